/* SPDX-License-Identifier: MIT */
/*
 * Cases 35-39 and 93: unsignaled requests, inline data, chains.
 */
#include <errno.h>
#include <string.h>

#include "conform.h"

#define MSG 256u /* bytes of a message; message i lies at i * MSG, here and there */

/* ---- 35 ---- */

#define QUIET 64u

static bool unsignaled_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t round = 0; cf_more_both(cf, round, 200); round++) {
		CHECK(cf_sync(cf));
		for (unsigned i = 0; i <= QUIET; i++) {
			cf_fill(cf, rc.buf + i * MSG, MSG, round + i);
			CHECK(cf_write(cf, &rc, i, i * MSG, i * MSG, MSG,
				       i == QUIET ? GN_SIGNALED : 0));
		}
		CHECK(cf_expect_wc(cf, rc.send_cq, QUIET, GN_WC_OK));
		CHECK(cf_publish(cf, &rc)); /* whose completion is the next one */
	}
	CHECK(cf_expect_none(cf, rc.send_cq));
	return true;
}

static bool unsignaled_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t round = 0; cf_more_both(cf, round, 200); round++) {
		cf_paint(rc.buf, rc.buf_bytes);
		CHECK(cf_sync(cf));
		CHECK(cf_observe(cf, &rc));
		for (unsigned i = 0; i <= QUIET; i++)
			CHECK(cf_check_fill(cf, rc.buf + i * MSG, MSG, round + i), "message %u", i);
		CHECK(cf_check_paint(cf, rc.buf, (QUIET + 1) * MSG, rc.buf_bytes));
	}
	return true;
}

/* ---- 36 ---- */

static bool never_signaled_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.send_wr = 16};
	const struct gn_wr *bad = NULL;
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct gn_sge sge;
	struct gn_wr wr;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK_INT(gn_qp_query(rc.qp, &attr), 0);
	CHECK(attr.max_send_wr * MSG <= rc.buf_bytes);
	CHECK(cf_tell(cf, &attr.max_send_wr, sizeof(attr.max_send_wr)));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < attr.max_send_wr; i++) {
		cf_fill(cf, rc.buf + i * MSG, MSG, i);
		CHECK(cf_send(cf, &rc, i, i * MSG, MSG, 0), "%u of %u", i, attr.max_send_wr);
	}
	sge = cf_sge(&rc, 0, MSG);
	gn_wr_send(&wr, 99, &sge, GN_SIGNALED);
	CHECK_INT(gn_post_send(rc.qp, &wr, &bad), -EAGAIN);
	CHECK(bad == &wr);
	/* Also after B has received everything: no completion was polled. */
	CHECK(cf_expect_none(cf, rc.send_cq));
	CHECK(cf_sync(cf));
	CHECK(cf_expect_none(cf, rc.send_cq));
	CHECK_INT(gn_post_send(rc.qp, &wr, &bad), -EAGAIN);
	return true;
}

static bool never_signaled_b(struct cf *cf)
{
	struct cf_rc_opts opts = {.recv_wr = 256};
	struct cf_rc rc;
	unsigned n;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_hear(cf, &n, sizeof(n)));
	CHECK(n < opts.recv_wr, "%u", n);
	for (unsigned i = 0; i <= n; i++)
		CHECK(cf_recv(cf, &rc, i, i * MSG, MSG));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < n; i++) {
		CHECK(cf_expect_wc(cf, rc.recv_cq, i, GN_WC_OK));
		CHECK(cf_check_fill(cf, rc.buf + i * MSG, MSG, i));
	}
	CHECK(cf_sync(cf));
	CHECK(cf_expect_none(cf, rc.recv_cq));
	return true;
}

/* ---- 37 ---- */

static bool quiet_error_a(struct cf *cf)
{
	struct gn_sge sge;
	struct gn_wr wr[6];
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	cf_fill(cf, rc.buf, MSG, 1);
	sge = cf_sge(&rc, 0, MSG);
	for (unsigned i = 0; i < 6; i++) {
		gn_wr_rdma(&wr[i], GN_OP_WRITE, i, &sge, &rc.peer, i * MSG,
			   i == 4 ? GN_SIGNALED : 0);
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
	}
	wr[2].to.remote.key ^= 0x5a5a5a5a;
	CHECK(cf_sync(cf));
	CHECK(cf_post(cf, rc.qp, wr));
	CHECK(cf_expect_wc(cf, rc.send_cq, 2, GN_WC_REMOTE_ACCESS));
	CHECK(cf_expect_flushed(cf, rc.send_cq, 3, 3));
	CHECK(cf_expect_state(cf, rc.qp, GN_QP_ERROR));
	CHECK(cf_write(cf, &rc, 6, 0, 6 * MSG, MSG, 0));
	CHECK(cf_send(cf, &rc, 7, 0, MSG, GN_SIGNALED));
	CHECK(cf_expect_flushed(cf, rc.send_cq, 6, 2));
	CHECK(cf_expect_none(cf, rc.send_cq));
	CHECK(cf_sync(cf));
	return true;
}

static bool quiet_error_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	cf_paint(rc.buf, rc.buf_bytes);
	CHECK(cf_sync(cf));
	CHECK(cf_sync(cf));
	/* The first two may not be visible yet, but nothing else may ever be. */
	CHECK(cf_check_paint(cf, rc.buf, 2 * MSG, rc.buf_bytes));
	return true;
}

/* ---- 38 ---- */

#define BURST 16u

/* Long enough for B to be scheduled and to post its receives after A's messages. */
static const struct gn_conn_opts held = {
	.size = sizeof(held), .rnr_retry = GN_RNR_RETRY_DEFAULT, .rnr_timer_us = 160000};

static uint32_t inline_max(const struct cf *cf)
{
	return cf->attr.max_inline < MSG ? cf->attr.max_inline : MSG;
}

static uint32_t inline_len(uint64_t i, uint32_t max)
{
	return (uint32_t)(1 + i * 13 % max);
}

/* Then it has no receive posted yet, and the requests have to wait, with their data. */
static bool b_is_late(uint64_t round)
{
	return round % 8 == 0;
}

/* WRITEs and SENDs in turn, out of a buffer that is not registered and that changes at once. */
static bool inline_burst(struct cf *cf, struct cf_rc *rc, uint64_t round, uint32_t max)
{
	const uint32_t no_key = 0xdeadbeef;
	uint8_t source[MSG];

	for (uint64_t i = 0; i < BURST; i++) {
		struct gn_sge sge = {source, inline_len(round + i, max), no_key};
		uint32_t flags = GN_INLINE | (i == BURST - 1 ? GN_SIGNALED : 0);
		struct gn_wr wr;

		cf_fill(cf, source, sge.len_bytes, round + i);
		gn_wr_rdma(&wr, i % 2 ? GN_OP_SEND : GN_OP_WRITE, i, &sge, &rc->peer, i * MSG,
			   flags);
		CHECK(cf_post(cf, rc->qp, &wr));
		memset(source, 0xee, sizeof(source));
	}
	return true;
}

static bool inline_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.inline_bytes = inline_max(cf), .conn = &held};
	struct cf_rc rc;

	if (!opts.inline_bytes)
		SKIP("no inline data");
	CHECK(cf_rc_pair(cf, &opts, &rc));
	for (uint64_t round = 0; cf_more_both(cf, round, 500); round++) {
		CHECK(cf_sync(cf));
		CHECK(inline_burst(cf, &rc, round, opts.inline_bytes));
		if (b_is_late(round))
			CHECK(cf_sync(cf));
		CHECK(cf_expect_wc(cf, rc.send_cq, BURST - 1, GN_WC_OK));
		/* The next burst comes unasked: not before B has looked at this one's WRITEs. */
		if (round % 8 == 7)
			CHECK(cf_sync(cf));
	}
	return true;
}

static bool inline_b(struct cf *cf)
{
	struct cf_rc_opts opts = {.conn = &held};
	uint32_t max = inline_max(cf);
	struct cf_rc rc;

	if (!max)
		SKIP("no inline data");
	CHECK(cf_rc_pair(cf, &opts, &rc));
	for (uint64_t round = 0; cf_more_both(cf, round, 500); round++) {
		if (b_is_late(round))
			CHECK(cf_sync(cf) && cf_sync(cf));
		for (unsigned i = 1; i < BURST; i += 2)
			CHECK(cf_recv(cf, &rc, i, i * MSG, MSG));
		if (!b_is_late(round))
			CHECK(cf_sync(cf));
		for (unsigned i = 1; i < BURST; i += 2) {
			CHECK(cf_expect_wc(cf, rc.recv_cq, i, GN_WC_OK));
			CHECK(cf_check_fill(cf, rc.buf + i * MSG, inline_len(round + i, max),
					    round + i));
			/* The WRITE before it. */
			CHECK(cf_check_fill(cf, rc.buf + (i - 1) * MSG,
					    inline_len(round + i - 1, max), round + i - 1));
		}
		if (round % 8 == 7)
			CHECK(cf_sync(cf));
	}
	return true;
}

/* ---- 39 ---- */

#define CHAIN 16u

static bool chain_a(struct cf *cf)
{
	struct gn_counters before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	struct gn_sge sge[CHAIN];
	struct gn_wr wr[CHAIN];
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < CHAIN; i++) {
		cf_fill(cf, rc.buf + i * MSG, MSG, i);
		sge[i] = cf_sge(&rc, i * MSG, MSG);
		gn_wr_rdma(&wr[i], i % 2 ? GN_OP_SEND : GN_OP_WRITE, i, &sge[i], &rc.peer, i * MSG,
			   GN_SIGNALED);
		wr[i].next = i + 1 < CHAIN ? &wr[i + 1] : NULL;
	}
	CHECK_INT(gn_qp_counters(rc.qp, &before), 0);
	CHECK(cf_post(cf, rc.qp, wr));
	CHECK_INT(gn_qp_counters(rc.qp, &after), 0);
	CHECK_INT((after.doorbells - before.doorbells), 1);
	CHECK_INT((after.wrs[GN_OP_WRITE] - before.wrs[GN_OP_WRITE]), CHAIN / 2);
	CHECK_INT((after.wrs[GN_OP_SEND] - before.wrs[GN_OP_SEND]), CHAIN / 2);
	CHECK_INT((after.bytes[GN_OP_SEND] - before.bytes[GN_OP_SEND]), CHAIN / 2 * MSG);
	for (unsigned i = 0; i < CHAIN; i++)
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
	CHECK_INT(gn_qp_counters(rc.qp, &after), 0);
	CHECK_INT((after.cqes - before.cqes), CHAIN);
	CHECK_INT(after.bytes_in_flight, 0);
	CHECK(cf_expect_none(cf, rc.send_cq));
	return true;
}

static bool chain_b(struct cf *cf)
{
	struct gn_recv_wr wr[CHAIN / 2];
	struct gn_sge sge[CHAIN / 2];
	struct gn_counters before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (unsigned i = 0; i < CHAIN / 2; i++) {
		sge[i] = cf_sge(&rc, (2 * i + 1) * MSG, MSG);
		wr[i] = (struct gn_recv_wr){.id = i, .sge = &sge[i], .n_sge = 1};
		wr[i].next = i + 1 < CHAIN / 2 ? &wr[i + 1] : NULL;
	}
	CHECK_INT(gn_qp_counters(rc.qp, &before), 0);
	CHECK_INT(gn_post_recv(rc.qp, wr, NULL), 0);
	CHECK_INT(gn_qp_counters(rc.qp, &after), 0);
	CHECK_INT((after.recv_doorbells - before.recv_doorbells), 1);
	CHECK_INT((after.wrs[GN_OP_RECV] - before.wrs[GN_OP_RECV]), CHAIN / 2);
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < CHAIN / 2; i++)
		CHECK(cf_expect_wc(cf, rc.recv_cq, i, GN_WC_OK));
	for (unsigned i = 0; i < CHAIN; i++)
		CHECK(cf_check_fill(cf, rc.buf + i * MSG, MSG, i));
	CHECK_INT(gn_qp_counters(rc.qp, &after), 0);
	CHECK_INT((after.inbound - before.inbound), CHAIN / 2);
	CHECK_INT((after.bytes[GN_OP_RECV] - before.bytes[GN_OP_RECV]), CHAIN / 2 * MSG);
	return true;
}

/* ---- 93 ---- */

#define LONGS	  4u
#define LONG_ROOM 12288u /* apart, in the buffer */

static const struct {
	uint32_t at, len;
} longs[LONGS] = {{0, 8192}, {3, 4177}, {61, 9001}, {64, 4096}};

/* All are executed, although the last request of the chain is refused. */
static bool long_chain_post(struct cf *cf, struct cf_rc *rc, enum gn_op op)
{
	const struct gn_wr *bad = NULL;
	struct gn_sge sge[LONGS];
	struct gn_wr wr[LONGS + 1];

	for (unsigned i = 0; i < LONGS; i++) {
		sge[i] = cf_sge(rc, i * LONG_ROOM + longs[i].at, longs[i].len);
		gn_wr_rdma(&wr[i], op, i, &sge[i], &rc->peer, i * LONG_ROOM + longs[i].at,
			   i + 1 < LONGS ? 0 : GN_SIGNALED);
		wr[i].next = &wr[i + 1];
	}
	wr[LONGS] = wr[LONGS - 1];
	wr[LONGS].sge = NULL;
	wr[LONGS].next = NULL;
	CHECK_INT(gn_post_send(rc->qp, wr, &bad), -EINVAL);
	CHECK(bad == &wr[LONGS]);
	CHECK(cf_expect_wc(cf, rc->send_cq, LONGS - 1, GN_WC_OK));
	return true;
}

/* The bytes between the requests keep their colour. */
static bool long_chain_check(struct cf *cf, struct cf_rc *rc, uint64_t round)
{
	size_t from = 0;

	for (unsigned i = 0; i < LONGS; i++) {
		const size_t at = i * LONG_ROOM + longs[i].at;

		CHECK(cf_check_paint(cf, rc->buf, from, at));
		CHECK(cf_check_fill(cf, rc->buf + at, longs[i].len, round + i), "request %u", i);
		from = at + longs[i].len;
	}
	CHECK(cf_check_paint(cf, rc->buf, from, rc->buf_bytes));
	return true;
}

static void long_chain_fill(struct cf *cf, struct cf_rc *rc, uint64_t round)
{
	cf_paint(rc->buf, rc->buf_bytes);
	for (unsigned i = 0; i < LONGS; i++)
		cf_fill(cf, rc->buf + i * LONG_ROOM + longs[i].at, longs[i].len, round + i);
}

static bool long_chain_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	long_chain_fill(cf, &rc, 1);
	CHECK(cf_sync(cf));
	CHECK(long_chain_post(cf, &rc, GN_OP_WRITE));
	CHECK(cf_publish(cf, &rc));
	cf_paint(rc.buf, rc.buf_bytes);
	CHECK(cf_sync(cf));
	CHECK(long_chain_post(cf, &rc, GN_OP_READ));
	CHECK(long_chain_check(cf, &rc, 2));
	CHECK(cf_sync(cf));
	return true;
}

static bool long_chain_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	cf_paint(rc.buf, rc.buf_bytes);
	CHECK(cf_sync(cf));
	CHECK(cf_observe(cf, &rc));
	CHECK(long_chain_check(cf, &rc, 1));
	long_chain_fill(cf, &rc, 2);
	CHECK(cf_sync(cf));
	CHECK(cf_sync(cf));
	return true;
}

const struct cf_case cf_cases_chains[] = {
	{35, "64 unsignaled requests, then a signaled one", unsignaled_a, unsignaled_b, 0, 0},
	{36, "a queue of unsignaled requests stays full", never_signaled_a, never_signaled_b, 0, 0},
	{37, "an unsignaled request that fails completes", quiet_error_a, quiet_error_b, 0, 0},
	{38, "inline data is copied by the post", inline_a, inline_b, 0, 0},
	{39, "a chain of 16 is one doorbell, in order", chain_a, chain_b, 0, 0},
	{93, "a chain of long requests before a refused one", long_chain_a, long_chain_b, 0, 0},
	{0},
};
