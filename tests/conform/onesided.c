/* SPDX-License-Identifier: MIT */
/*
 * Cases 25-28, 33, 34: WRITE and READ.
 */
#include <string.h>

#include "conform.h"

/* ---- 25 ---- */

static bool write_read_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, 1000); i++) {
		uint32_t len = (uint32_t)cf_rand_in(cf, 1, 30000);
		size_t mine = cf_rand_in(cf, 0, rc.buf_bytes - len);
		size_t theirs = cf_rand_in(cf, 0, rc.buf_bytes - len);

		cf_paint(rc.buf, rc.buf_bytes);
		cf_fill(cf, rc.buf + mine, len, i);
		CHECK(cf_sync(cf));
		CHECK(cf_write(cf, &rc, 2 * i, mine, theirs, len, GN_SIGNALED));
		CHECK(cf_expect_wc(cf, rc.send_cq, 2 * i, GN_WC_OK));
		CHECK(cf_publish(cf, &rc));
		CHECK(cf_check_framed(cf, rc.buf, rc.buf_bytes, mine, len, i));

		/* B has checked, and written other data to the same offset. */
		CHECK(cf_sync(cf));
		CHECK(cf_read(cf, &rc, 2 * i + 1, mine, theirs, len, GN_SIGNALED));
		CHECK(cf_expect_wc(cf, rc.send_cq, 2 * i + 1, GN_WC_OK));
		CHECK(cf_check_framed(cf, rc.buf, rc.buf_bytes, mine, len, ~i));
		CHECK(cf_sync(cf));
	}
	return true;
}

static bool write_read_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, 1000); i++) {
		uint32_t len = (uint32_t)cf_rand_in(cf, 1, 30000);
		size_t theirs;

		cf_rand(cf); /* A's place */
		theirs = cf_rand_in(cf, 0, rc.buf_bytes - len);
		cf_paint(rc.buf, rc.buf_bytes);
		CHECK(cf_sync(cf));
		CHECK(cf_observe(cf, &rc));
		CHECK(cf_check_framed(cf, rc.buf, rc.buf_bytes, theirs, len, i), "round %llu",
		      (unsigned long long)i);
		cf_fill(cf, rc.buf + theirs, len, ~i);
		CHECK(cf_sync(cf));
		CHECK(cf_sync(cf)); /* A has read it */
	}
	return true;
}

/* ---- 26 ---- */

static bool empty_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t i = 0; cf_more(cf, i, 1000); i++) {
		enum gn_op op = i % 2 ? GN_OP_READ : GN_OP_WRITE;
		struct gn_sge sge = {NULL, 0, (uint32_t)cf_rand(cf)};
		struct gn_wr wr;

		gn_wr_init(&wr, op, i, &sge, i / 2 % 2, GN_SIGNALED);
		wr.to.remote.key = (uint32_t)cf_rand(cf);
		wr.to.remote.offset = cf_rand(cf);
		CHECK(cf_post(cf, rc.qp, &wr));
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
	}
	CHECK(cf_publish(cf, &rc));
	return true;
}

static bool empty_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	cf_paint(rc.buf, rc.buf_bytes);
	CHECK(cf_observe(cf, &rc));
	CHECK(cf_check_paint(cf, rc.buf, 0, rc.buf_bytes));
	return true;
}

/* ---- 27 ---- */

#define EDGE  64u    /* guard read back on either side */
#define THERE 8192u  /* the peer's middle; everything happens around it */
#define BACK  32768u /* what was read back */

/* WRITE len bytes, READ them back with a frame around them, and without it. */
static bool write_back(struct cf *cf, struct cf_rc *rc, size_t mine, size_t theirs, uint32_t len)
{
	uint64_t tag = mine * 31 + theirs * 17 + len;
	uint32_t framed = len + 2 * EDGE;

	cf_paint(rc->buf, framed);
	CHECK(cf_write(cf, rc, 1, 0, theirs - EDGE, framed, 0));
	/*
	 * The first request's source must not change until the request is complete, which the next
	 * completion implies.
	 */
	CHECK(cf_read(cf, rc, 2, BACK, theirs - EDGE, framed, GN_SIGNALED));
	CHECK(cf_expect_wc(cf, rc->send_cq, 2, GN_WC_OK));
	CHECK(cf_check_paint(cf, rc->buf + BACK, 0, framed));

	cf_fill(cf, rc->buf + mine, len, tag);
	memset(rc->buf + BACK, 0, framed + 2);
	CHECK(cf_write(cf, rc, 3, mine, theirs, len, 0));
	CHECK(cf_read(cf, rc, 4, BACK + 1, theirs - EDGE, framed, GN_SIGNALED));
	CHECK(cf_expect_wc(cf, rc->send_cq, 4, GN_WC_OK));
	CHECK(cf_check_framed(cf, rc->buf + BACK + 1, framed, EDGE, len, tag));
	CHECK(rc->buf[BACK] == 0 && rc->buf[BACK + 1 + framed] == 0);

	/* Exactly these bytes, between odd offsets. */
	cf_paint(rc->buf + BACK, mine + framed);
	CHECK(cf_read(cf, rc, 5, BACK + mine, theirs, len, GN_SIGNALED));
	CHECK(cf_expect_wc(cf, rc->send_cq, 5, GN_WC_OK));
	CHECK(cf_check_framed(cf, rc->buf + BACK, mine + framed, mine, len, tag));
	return true;
}

static bool edges_a(struct cf *cf)
{
	static const uint32_t sizes[] = {1,    2,    3,	   7,	 8,    9,    63,   64,	 65,
					 255,  256,  257,  1023, 1024, 1025, 2047, 2048, 2049,
					 4095, 4096, 4097, 8191, 8192, 8193, 12289};
	static const size_t places[] = {0, 1, 3, 7, 8, 61, 64, 4095, 4096, 4089};
	struct cf_rc_opts opts = {.buf_bytes = 128 * 1024};
	const unsigned n_sizes = sizeof(sizes) / sizeof(sizes[0]);
	const unsigned n_places = sizeof(places) / sizeof(places[0]);
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	/*
	 * Neighbours in this order differ in size and both offsets, so that a time limit leaves no
	 * class of them out.
	 */
	for (unsigned i = 0; i < n_sizes * n_places; i++) {
		uint32_t len = sizes[i % n_sizes];
		size_t mine = places[(i * 3 + i / n_sizes) % n_places];
		size_t theirs = THERE + places[i / n_sizes];

		if (!cf_more(cf, i, 10 * n_sizes * n_places))
			break;
		CHECK(write_back(cf, &rc, mine, theirs, len), "%u bytes from %zu to %zu", len, mine,
		      theirs);
	}
	CHECK(cf_sync(cf));
	return true;
}

static bool edges_b(struct cf *cf)
{
	struct cf_rc_opts opts = {.buf_bytes = 128 * 1024};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_sync(cf));
	return true;
}

/* ---- 28 ---- */

#define DEPTH_MOST 512u
#define DEEP_BYTES 100u

static unsigned read_depth(const struct cf *cf)
{
	unsigned want = cf->attr.max_rd_atomic < DEPTH_MOST / 4 ? 4 * cf->attr.max_rd_atomic :
								  DEPTH_MOST;

	return want < cf->attr.max_send_wr ? want : cf->attr.max_send_wr;
}

static bool deep_a(struct cf *cf)
{
	unsigned depth = read_depth(cf);
	struct cf_rc_opts opts = {.send_wr = depth, .cq_depth = depth};
	struct gn_sge sge[DEPTH_MOST];
	struct gn_wr wr[DEPTH_MOST];
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_sync(cf));
	cf_paint(rc.buf, rc.buf_bytes);
	for (unsigned i = 0; i < depth; i++) {
		size_t at = i * DEEP_BYTES;

		sge[i] = cf_sge(&rc, at, DEEP_BYTES);
		gn_wr_rdma(&wr[i], GN_OP_READ, i, &sge[i], &rc.peer, at, GN_SIGNALED);
		wr[i].next = i + 1 < depth / 2 ? &wr[i + 1] : NULL;
	}
	/* Half of them in a chain, the others one by one. */
	CHECK(cf_post(cf, rc.qp, wr));
	for (unsigned i = depth / 2; i < depth; i++)
		CHECK(cf_post(cf, rc.qp, &wr[i]), "READ %u of %u", i, depth);
	for (unsigned i = 0; i < depth; i++) {
		struct gn_wc wc;

		CHECK(cf_poll_one(cf, rc.send_cq, &wc));
		CHECK(wc.id == i && wc.status == GN_WC_OK && wc.op == GN_OP_READ,
		      "completion %llu is %s, expected %u", (unsigned long long)wc.id,
		      gn_wc_status_str(wc.status), i);
		CHECK_INT(wc.len_bytes, DEEP_BYTES);
		CHECK(cf_check_fill(cf, rc.buf + i * DEEP_BYTES, DEEP_BYTES, i));
	}
	CHECK(cf_check_paint(cf, rc.buf, depth * DEEP_BYTES, rc.buf_bytes));
	CHECK(cf_sync(cf));
	return true;
}

static bool deep_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (unsigned i = 0; i < read_depth(cf); i++)
		cf_fill(cf, rc.buf + i * DEEP_BYTES, DEEP_BYTES, i);
	CHECK(cf_sync(cf));
	CHECK(cf_sync(cf));
	return true;
}

/* ---- 33 ---- */

#define STALE 49152u /* what the first WRITE sends */

/*
 * Two overlapping WRITEs and a READ in one chain: the READ returns the data of the second WRITE,
 * which takes effect after the first.
 */
static bool read_after_write_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t i = 0; cf_more(cf, i, 10000); i++) {
		uint32_t len = (uint32_t)cf_rand_in(cf, 1, i % 16 ? 500 : 16000);
		uint32_t stale = (uint32_t)cf_rand_in(cf, 1, 500);
		size_t theirs = cf_rand_in(cf, 0, 1000);
		struct gn_sge from = cf_sge(&rc, 0, len), into = cf_sge(&rc, BACK, len);
		struct gn_sge old = cf_sge(&rc, STALE, stale);
		struct gn_wr wr[3];

		cf_fill(cf, rc.buf, len, i);
		cf_fill(cf, old.addr, stale, ~i);
		gn_wr_rdma(&wr[0], GN_OP_WRITE, 0, &old, &rc.peer, theirs + len / 2, 0);
		gn_wr_rdma(&wr[1], GN_OP_WRITE, 1, &from, &rc.peer, theirs, 0);
		gn_wr_rdma(&wr[2], GN_OP_READ, 2, &into, &rc.peer, theirs, GN_SIGNALED);
		wr[0].next = &wr[1];
		wr[1].next = &wr[2];
		CHECK(cf_post(cf, rc.qp, wr));
		CHECK(cf_expect_wc(cf, rc.send_cq, 2, GN_WC_OK));
		CHECK(cf_check_fill(cf, rc.buf + BACK, len, i), "round %llu",
		      (unsigned long long)i);
	}
	CHECK(cf_sync(cf));
	return true;
}

static bool idle_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_sync(cf));
	return true;
}

/* ---- 34 ---- */

/* Places of 8 KiB each: on our side and, by the same numbers, on the peer's. */
#define PLACE 8192u

enum { NEW, RESULT, CHECKED, OTHER };

/*
 * READ the peer's OTHER into RESULT, then, fenced, WRITE RESULT to its CHECKED and NEW to its
 * OTHER: the first WRITE must carry what was read, the second must not be seen by the READ.
 */
static bool fence_once(struct cf *cf, struct cf_rc *rc, uint64_t i, uint32_t len)
{
	struct gn_sge result = cf_sge(rc, RESULT * PLACE, len), new = cf_sge(rc, NEW * PLACE, len);
	struct gn_wr wr[3];

	cf_fill(cf, result.addr, len, ~i);
	cf_fill(cf, new.addr, len, i + 1);
	gn_wr_rdma(&wr[0], GN_OP_READ, 1, &result, &rc->peer, OTHER * PLACE, 0);
	gn_wr_rdma(&wr[1], GN_OP_WRITE, 2, &result, &rc->peer, CHECKED * PLACE, GN_FENCE);
	gn_wr_rdma(&wr[2], GN_OP_WRITE, 3, &new, &rc->peer, OTHER * PLACE, GN_FENCE | GN_SIGNALED);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	CHECK(cf_post(cf, rc->qp, wr));
	CHECK(cf_expect_wc(cf, rc->send_cq, 3, GN_WC_OK));
	CHECK(cf_check_fill(cf, result.addr, len, i), "the READ saw a later WRITE");
	CHECK(cf_read(cf, rc, 4, CHECKED * PLACE, CHECKED * PLACE, len, GN_SIGNALED));
	CHECK(cf_expect_wc(cf, rc->send_cq, 4, GN_WC_OK));
	CHECK(cf_check_fill(cf, rc->buf + CHECKED * PLACE, len, i), "the WRITE overtook the READ");
	return true;
}

static bool fence_rounds(struct cf *cf, struct cf_rc *rc, uint32_t len, uint64_t rounds)
{
	cf_fill(cf, rc->buf, len, 0);
	CHECK(cf_write(cf, rc, 0, 0, OTHER * PLACE, len, GN_SIGNALED));
	CHECK(cf_expect_wc(cf, rc->send_cq, 0, GN_WC_OK));
	for (uint64_t i = 0; cf_more(cf, i, rounds); i++)
		CHECK(fence_once(cf, rc, i, len), "round %llu", (unsigned long long)i);
	return true;
}

static bool fence_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(fence_rounds(cf, &rc, PLACE, 1000));
	CHECK(fence_rounds(cf, &rc, 200, 5000));
	CHECK(cf_sync(cf));
	return true;
}

const struct cf_case cf_cases_onesided[] = {
	{25, "WRITE and READ, with guards", write_read_a, write_read_b, 0, 0},
	{26, "empty WRITE and READ with a garbage key", empty_a, empty_b, 0, 0},
	{27, "odd sizes and places, across pages and packets", edges_a, edges_b, 0, 0},
	{28, "more READs than can be under way", deep_a, deep_b, 0, 0},
	{33, "a READ after a WRITE sees it", read_after_write_a, idle_b, 0, 0},
	{34, "a fenced WRITE waits for the READ", fence_a, idle_b, 0, 0},
	{0},
};
