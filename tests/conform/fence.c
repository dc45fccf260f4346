/* SPDX-License-Identifier: MIT */
/*
 * Cases 90-92: what ends a peer's access. B lends memory, and A writes to it as fast as it can. When
 * gn_mr_deregister() or gn_qp_destroy() has returned at B, no WRITE of A lands any more, also none
 * that A posted before. And memory that is lent in parts: what one client may write, another may
 * only read, in pieces that are larger than anything a provider handles at once.
 */
#include <string.h>

#include "conform.h"

#define ROUNDS	    40u
#define LENT_BYTES  (32u * GN_PAGE)
#define WRITE_BYTES (16u * GN_PAGE)
#define DEPTH	    16u
#define PAUSE_US    200u

/* ---- 90, 91 ---- */

/* B's memory; the connection's own buffer is not used. */
struct lent {
	struct cf_rc rc;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_remote to;
};

static bool lend(struct cf *cf, struct lent *lent, unsigned confined)
{
	const unsigned access = GN_LOCAL_WRITE | cf_all_rights(cf) | confined;

	memset(lent, 0, sizeof(*lent));
	CHECK(cf_rc_pair(cf, NULL, &lent->rc));
	if (cf->role == CF_A)
		return cf_hear(cf, &lent->to, sizeof(lent->to));
	CHECK((lent->mem = cf_make_mem(cf, LENT_BYTES, cf_all_rights(cf))));
	CHECK((lent->mr = cf_make_mr(cf, cf->pd, lent->mem, access)));
	CHECK_INT(gn_mr_remote(lent->mr, &lent->to), 0);
	return cf_tell(cf, &lent->to, sizeof(lent->to));
}

/* A: keeps DEPTH WRITEs outstanding until one fails; then all are flushed. */
static bool write_until_refused(struct cf *cf, struct lent *lent)
{
	struct gn_sge sge = cf_sge(&lent->rc, 0, WRITE_BYTES);
	const uint64_t deadline_ns = cf_deadline(cf);
	uint64_t posted = 0, done = 0;
	bool refused = false;

	cf_fill(cf, lent->rc.buf, WRITE_BYTES, 1);
	while (!refused || done < posted) {
		struct gn_event ev;
		struct gn_wr wr;
		struct gn_wc wc;
		int n;

		for (; !refused && posted < done + DEPTH; posted++) {
			gn_wr_rdma(&wr, GN_OP_WRITE, posted, &sge, &lent->to,
				   posted * WRITE_BYTES % LENT_BYTES, GN_SIGNALED);
			CHECK(cf_post(cf, lent->rc.qp, &wr));
		}
		gn_chan_next(lent->rc.chan, &ev); /* it may be the peer's end */
		n = gn_cq_wait(lent->rc.send_cq, &wc, 1, gn_deadline_us(PAUSE_US), "a WRITE");
		CHECK(gn_now_ns() < deadline_ns, "no WRITE was refused");
		if (n < 1)
			continue;
		CHECK_INT(wc.id, done);
		done++;
		refused |= wc.status != GN_WC_OK;
	}
	return true;
}

/* B: in the middle of A's WRITEs. */
static bool writes_arrive(struct cf *cf, struct lent *lent)
{
	CHECK(cf_observe(cf, &lent->rc));
	gn_sleep_us(cf_rand_in(cf, 0, PAUSE_US));
	return true;
}

static bool fence_round(struct cf *cf, bool by_qp, unsigned confined)
{
	struct lent lent;

	CHECK(lend(cf, &lent, confined));
	if (cf->role == CF_A) {
		CHECK(cf_publish(cf, &lent.rc));
		CHECK(write_until_refused(cf, &lent));
		CHECK(cf_destroy(cf, lent.rc.qp));
		return cf_sync(cf);
	}
	CHECK(writes_arrive(cf, &lent));
	CHECK(cf_destroy(cf, by_qp ? (void *)lent.rc.qp : (void *)lent.mr));
	cf_paint(gn_mem_addr(lent.mem), LENT_BYTES);
	CHECK(cf_sync(cf)); /* A's qp is gone, too */
	CHECK(cf_check_paint(cf, gn_mem_addr(lent.mem), 0, LENT_BYTES));
	return cf_destroy(cf, by_qp ? (void *)lent.mr : (void *)lent.rc.qp) &&
	       cf_destroy(cf, lent.mem);
}

static bool fence_by_region(struct cf *cf)
{
	for (uint64_t i = 0; cf_more_both(cf, i, ROUNDS); i++)
		CHECK(fence_round(cf, false, 0) && fence_round(cf, false, GN_CONFINED));
	return true;
}

static bool fence_by_qp(struct cf *cf)
{
	for (uint64_t i = 0; cf_more_both(cf, i, ROUNDS); i++)
		CHECK(fence_round(cf, true, 0) && fence_round(cf, true, GN_CONFINED));
	return true;
}

/* ---- 92 ---- */

#define PART_AT	   GN_PAGE
#define PART_BYTES (75u * GN_PAGE) /* of a mem with a page more on each side */
#define MEM_BYTES  (PART_BYTES + 2u * GN_PAGE)
#define ODD_BYTES  (PART_BYTES - 4099u)
#define SGES	   3u

/* Two connections to one mem: the first may access all of it, the second only a part. */
struct shared {
	struct cf_rc all, part;
	struct gn_pd *pd; /* B: of the second */
	struct gn_mem *mem;
	struct gn_remote to_all, to_part;
};

static bool share_b(struct cf *cf, struct shared *s, unsigned access)
{
	struct gn_mr *all, *part;

	CHECK((s->mem = cf_make_mem(cf, MEM_BYTES, cf_all_rights(cf))));
	CHECK((all = cf_make_mr(cf, cf->pd, s->mem, GN_LOCAL_WRITE | cf_all_rights(cf))));
	CHECK_INT(gn_mr_register(s->pd, s->mem, PART_AT, PART_BYTES, access, &part), 0);
	cf_own(cf, CF_MR, part);
	CHECK_INT(gn_mr_remote(all, &s->to_all), 0);
	CHECK_INT(gn_mr_remote(part, &s->to_part), 0);
	CHECK(cf_tell(cf, &s->to_all, sizeof(s->to_all)));
	return cf_tell(cf, &s->to_part, sizeof(s->to_part));
}

static bool share(struct cf *cf, struct shared *s, unsigned access)
{
	struct cf_rc_opts opts = {
		.buf_bytes = 2 * MEM_BYTES, .access = GN_LOCAL_WRITE, .send_sge = SGES};

	memset(s, 0, sizeof(*s));
	CHECK((s->pd = cf_make_pd(cf)));
	CHECK(cf_rc_pair(cf, &opts, &s->all));
	opts.pd = s->pd;
	CHECK(cf_rc_pair(cf, &opts, &s->part));
	if (cf->role == CF_B)
		return share_b(cf, s, access);
	CHECK(cf_hear(cf, &s->to_all, sizeof(s->to_all)));
	return cf_hear(cf, &s->to_part, sizeof(s->to_part));
}

/* A: one request with three SGEs of odd lengths; its completion. */
static bool request(struct cf *cf, struct cf_rc *rc, enum gn_op op, const struct gn_remote *to,
		    uint64_t offset, uint32_t len, enum gn_wc_status status)
{
	const uint32_t first = len / 3 + 1, second = len / 5 + 2;
	const struct gn_sge sge[SGES] = {
		cf_sge(rc, 0, first),
		cf_sge(rc, first, second),
		cf_sge(rc, first + second, len - first - second),
	};
	struct gn_wr wr;

	gn_wr_rdma(&wr, op, len, sge, to, offset, GN_SIGNALED);
	wr.n_sge = SGES;
	CHECK(cf_post(cf, rc->qp, &wr));
	return cf_expect_wc(cf, rc->send_cq, len, status);
}

static bool faa(struct cf *cf, struct cf_rc *rc, const struct gn_remote *to, uint64_t old)
{
	struct gn_sge sge = cf_sge(rc, 0, sizeof(old));
	struct gn_wr wr;

	gn_wr_faa(&wr, 8, &sge, to, 8, 1, GN_SIGNALED);
	CHECK(cf_post(cf, rc->qp, &wr));
	CHECK(cf_expect_wc(cf, rc->send_cq, 8, GN_WC_OK));
	CHECK(!memcmp(rc->buf, &old, sizeof(old)), "the old value is wrong");
	return true;
}

/* The one client writes, the other reads its part, and may not write. */
static bool read_only_part(struct cf *cf)
{
	struct shared s;

	CHECK(share(cf, &s, GN_REMOTE_READ));
	if (cf->role == CF_B)
		return cf_sync(cf) && cf_sync(cf);
	for (uint64_t tag = 1; tag < 4; tag++) {
		cf_fill(cf, s.all.buf, PART_BYTES, tag);
		CHECK(request(cf, &s.all, GN_OP_WRITE, &s.to_all, PART_AT, PART_BYTES, GN_WC_OK));
		CHECK(request(cf, &s.all, GN_OP_READ, &s.to_all, PART_AT, PART_BYTES, GN_WC_OK));
		cf_paint(s.part.buf, s.part.buf_bytes);
		CHECK(request(cf, &s.part, GN_OP_READ, &s.to_part, 0, ODD_BYTES, GN_WC_OK));
		CHECK(cf_check_framed(cf, s.part.buf, s.part.buf_bytes, 0, ODD_BYTES, tag));
	}
	CHECK(cf_sync(cf));
	CHECK(request(cf, &s.part, GN_OP_WRITE, &s.to_part, 0, 64, GN_WC_REMOTE_ACCESS));
	return cf_sync(cf);
}

/* The second may write its part, and nothing around it. */
static bool confined_part(struct cf *cf)
{
	const unsigned access = GN_LOCAL_WRITE | GN_CONFINED | cf_all_rights(cf);
	struct shared s;
	uint64_t old;

	CHECK(share(cf, &s, access));
	if (cf->role == CF_B) {
		cf_paint(gn_mem_addr(s.mem), MEM_BYTES);
		CHECK(cf_sync(cf));
		CHECK(cf_observe(cf, &s.part));
		return cf_check_framed(cf, gn_mem_addr(s.mem), MEM_BYTES, PART_AT, PART_BYTES, 1) &&
		       cf_sync(cf);
	}
	CHECK(cf_sync(cf));
	cf_fill(cf, s.part.buf, PART_BYTES, 1);
	memcpy(&old, s.part.buf + 8, sizeof(old));
	CHECK(request(cf, &s.part, GN_OP_WRITE, &s.to_part, 0, PART_BYTES, GN_WC_OK));
	CHECK(request(cf, &s.part, GN_OP_READ, &s.to_part, 0, PART_BYTES, GN_WC_OK));
	CHECK(cf_check_fill(cf, s.part.buf, PART_BYTES, 1));
	CHECK(cf_publish(cf, &s.part));
	CHECK(cf_sync(cf));
	if (cf->attr.caps & GN_CAP_ATOMICS)
		CHECK(faa(cf, &s.part, &s.to_part, old) && faa(cf, &s.part, &s.to_part, old + 1));
	return request(cf, &s.part, GN_OP_READ, &s.to_part, 64, PART_BYTES, GN_WC_REMOTE_ACCESS);
}

static bool parts(struct cf *cf)
{
	CHECK(read_only_part(cf));
	return confined_part(cf);
}

const struct cf_case cf_cases_fence[] = {
	{90, "no WRITE lands after its region is deregistered", fence_by_region, fence_by_region, 0,
	 0},
	{91, "no WRITE lands after the target's qp is destroyed", fence_by_qp, fence_by_qp, 0, 0},
	{92, "a part of memory that others may write", parts, parts, 0, 0},
	{0},
};
