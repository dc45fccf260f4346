/* SPDX-License-Identifier: MIT */
/*
 * Cases 17-23: messages and immediates on RC.
 */
#include <errno.h>
#include <string.h>

#include "conform.h"

/* ---- 17 ---- */

#define MIB   (1024u * 1024u)
#define FRAME 64u /* guard before a message */

/* Two halves: one to send from, and a painted one to receive in. */
#define HALF (2 * FRAME + MIB)

static uint32_t inline_flag(uint32_t len, const struct gn_qp_attr *attr)
{
	return len && len <= attr->max_inline ? GN_INLINE : 0;
}

/* Send len bytes with this tag and wait until they have left. */
static bool ping(struct cf *cf, struct cf_rc *rc, uint32_t len, uint64_t tag, uint32_t flags)
{
	cf_fill(cf, rc->buf, len, tag);
	CHECK(cf_send(cf, rc, tag, 0, len, GN_SIGNALED | flags));
	CHECK(cf_expect_wc(cf, rc->send_cq, tag, GN_WC_OK));
	return true;
}

static bool pong(struct cf *cf, struct cf_rc *rc, uint32_t len, uint64_t id, uint64_t tag)
{
	struct gn_wc wc;

	CHECK(cf_poll_one(cf, rc->recv_cq, &wc));
	CHECK(wc.status == GN_WC_OK && wc.id == id && wc.qp == rc->qp);
	CHECK(wc.op == GN_OP_RECV && !(wc.flags & GN_WC_IMM));
	CHECK_INT(wc.len_bytes, len);
	CHECK(cf_check_framed(cf, rc->buf + HALF, 2 * FRAME + len, FRAME, len, tag));
	return true;
}

static bool expect_message(struct cf *cf, struct cf_rc *rc, uint32_t len, uint64_t id)
{
	cf_paint(rc->buf + HALF, 2 * FRAME + len);
	return cf_recv(cf, rc, id, HALF + FRAME, len);
}

static bool ping_pong_size(struct cf *cf, struct cf_rc *rc, uint32_t len, uint32_t flags)
{
	uint64_t rounds = len > GN_PAGE ? 20 : 1000;
	const uint64_t answer = 1ull << 32; /* added to the tag of what B sends */

	/* B's receive for the next round is posted before its answer to this one. */
	if (cf->role == CF_B)
		CHECK(expect_message(cf, rc, len, 0));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0; i < cf_count(cf, rounds); i++) {
		if (cf->role == CF_A) {
			CHECK(expect_message(cf, rc, len, i));
			CHECK(ping(cf, rc, len, i, flags));
			CHECK(pong(cf, rc, len, i, i + answer));
		} else {
			CHECK(pong(cf, rc, len, i, i));
			if (i + 1 < cf_count(cf, rounds))
				CHECK(expect_message(cf, rc, len, i + 1));
			CHECK(ping(cf, rc, len, i + answer, flags));
		}
	}
	return true;
}

static bool ping_pong(struct cf *cf)
{
	struct cf_rc_opts opts = {
		.buf_bytes = 2 * HALF,
		.inline_bytes = cf->attr.max_inline < 256 ? cf->attr.max_inline : 256,
	};
	uint32_t sizes[] = {0, 1, opts.inline_bytes, opts.inline_bytes + 1, 4096, 65536, MIB};
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK_INT(gn_qp_query(rc.qp, &attr), 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (sizes[i] > cf->attr.max_msg)
			continue;
		CHECK(ping_pong_size(cf, &rc, sizes[i], 0), "%u bytes", sizes[i]);
		if (inline_flag(sizes[i], &attr))
			CHECK(ping_pong_size(cf, &rc, sizes[i], GN_INLINE), "%u bytes inline",
			      sizes[i]);
	}
	return true;
}

/* ---- 18 ---- */

#define PIECES	  8u
#define PIECE_MAX 777u
#define PIECE_GAP 1024u /* pieces lie this far apart, with paint between them */

/* A message in pieces, split differently on the two sides. */
struct cut {
	unsigned n;
	uint32_t len[PIECES];
	uint32_t total;
};

static void draw_cut(struct cf *cf, struct cut *cut, unsigned most)
{
	cut->n = (unsigned)cf_rand_in(cf, 1, most);
	cut->total = 0;
	for (unsigned i = 0; i < cut->n; i++) {
		cut->len[i] = (uint32_t)cf_rand_in(cf, 1, PIECE_MAX);
		cut->total += cut->len[i];
	}
}

/* Cut the same number of bytes differently. */
static void recut(struct cf *cf, const struct cut *whole, struct cut *cut, unsigned most)
{
	uint32_t left = whole->total;

	cut->n = 0;
	cut->total = whole->total;
	while (left && cut->n + 1 < most) {
		uint32_t len = (uint32_t)cf_rand_in(cf, 1, left < PIECE_MAX ? left : PIECE_MAX);

		cut->len[cut->n++] = len;
		left -= len;
	}
	if (left)
		cut->len[cut->n++] = left;
}

/* The pieces of cut in buf, last one first, so that their order is not the buffer's. */
static void lay_out(const struct cf_rc *rc, const struct cut *cut, struct gn_sge *sge)
{
	size_t at = PIECE_GAP + 1;

	for (unsigned i = cut->n; i--;) {
		sge[i] = cf_sge(rc, at, cut->len[i]);
		at += cut->len[i] + PIECE_GAP - 1;
	}
}

/* Put the message of this tag into the pieces. */
static void fill_pieces(struct cf *cf, const struct gn_sge *sge, const struct cut *cut,
			uint8_t *scratch, uint64_t tag)
{
	cf_fill(cf, scratch, cut->total, tag);
	for (unsigned i = 0; i < cut->n; i++) {
		memcpy(sge[i].addr, scratch, cut->len[i]);
		scratch += cut->len[i];
	}
}

/* The pieces hold the message, and what lies between them is untouched paint. */
static bool check_pieces(struct cf *cf, const struct cf_rc *rc, const struct gn_sge *sge,
			 const struct cut *cut, uint8_t *scratch, uint64_t tag)
{
	size_t clean = 0, used = 0;

	for (unsigned i = cut->n; i--;) {
		size_t at = (size_t)((uint8_t *)sge[i].addr - rc->buf);

		CHECK(cf_check_paint(cf, rc->buf, clean, at));
		clean = at + cut->len[i];
	}
	CHECK(cf_check_paint(cf, rc->buf, clean, rc->buf_bytes));
	for (unsigned i = 0; i < cut->n; i++) {
		memcpy(scratch + used, sge[i].addr, cut->len[i]);
		used += cut->len[i];
	}
	CHECK(cf_check_fill(cf, scratch, cut->total, tag));
	return true;
}

static bool scatter_round(struct cf *cf, struct cf_rc *rc, uint64_t i, unsigned most)
{
	uint8_t scratch[PIECES * PIECE_MAX];
	struct gn_sge sge[PIECES];
	struct cut from, into;

	draw_cut(cf, &from, most);
	recut(cf, &from, &into, most);
	if (cf->role == CF_A) {
		struct gn_wr wr;

		lay_out(rc, &from, sge);
		fill_pieces(cf, sge, &from, scratch, i);
		CHECK(cf_sync(cf));
		gn_wr_init(&wr, GN_OP_SEND, i, sge, from.n, GN_SIGNALED);
		CHECK(cf_post(cf, rc->qp, &wr));
		CHECK(cf_expect_wc(cf, rc->send_cq, i, GN_WC_OK));
	} else {
		struct gn_recv_wr wr = {.id = i, .sge = sge};

		lay_out(rc, &into, sge);
		wr.n_sge = into.n;
		cf_paint(rc->buf, rc->buf_bytes);
		CHECK_INT(gn_post_recv(rc->qp, &wr, NULL), 0);
		CHECK(cf_sync(cf));
		CHECK(cf_expect_wc(cf, rc->recv_cq, i, GN_WC_OK));
		CHECK(check_pieces(cf, rc, sge, &into, scratch, i));
	}
	return true;
}

/* One side alone: gathered WRITE to the peer, scattered READ back. */
static bool gather_round(struct cf *cf, struct cf_rc *rc, uint64_t i, unsigned most)
{
	uint8_t scratch[PIECES * PIECE_MAX];
	struct gn_sge sge[PIECES];
	struct cut from, into;
	struct gn_wr wr;

	draw_cut(cf, &from, most);
	recut(cf, &from, &into, most);
	lay_out(rc, &from, sge);
	fill_pieces(cf, sge, &from, scratch, i);
	gn_wr_rdma(&wr, GN_OP_WRITE, i, sge, &rc->peer, 13, GN_SIGNALED);
	wr.n_sge = from.n;
	CHECK(cf_post(cf, rc->qp, &wr));
	CHECK(cf_expect_wc(cf, rc->send_cq, i, GN_WC_OK));

	cf_paint(rc->buf, rc->buf_bytes);
	lay_out(rc, &into, sge);
	gn_wr_rdma(&wr, GN_OP_READ, i, sge, &rc->peer, 13, GN_SIGNALED);
	wr.n_sge = into.n;
	CHECK(cf_post(cf, rc->qp, &wr));
	CHECK(cf_expect_wc(cf, rc->send_cq, i, GN_WC_OK));
	CHECK(check_pieces(cf, rc, sge, &into, scratch, i));
	return true;
}

static bool pieces(struct cf *cf)
{
	unsigned most = cf->attr.max_sge < PIECES ? cf->attr.max_sge : PIECES;
	struct cf_rc_opts opts = {.send_sge = most, .recv_sge = most};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, 500); i++)
		CHECK(scatter_round(cf, &rc, i, most));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0; cf->role == CF_A && cf_more(cf, i, 500); i++)
		CHECK(gather_round(cf, &rc, i, most));
	CHECK(cf_sync(cf));
	return true;
}

/* ---- 19 ---- */

static bool length_class(enum gn_wc_status status)
{
	return status == GN_WC_LOCAL_LENGTH || status == GN_WC_REMOTE_INVALID ||
	       status == GN_WC_REMOTE_FAILED || status == GN_WC_LOCAL_QP;
}

static bool too_small_a(struct cf *cf)
{
	struct cf_rc rc;
	struct gn_wc wc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_sync(cf));
	CHECK(cf_send(cf, &rc, 1, 0, 129, GN_SIGNALED));
	CHECK(cf_poll_one(cf, rc.send_cq, &wc));
	CHECK(wc.id == 1 && length_class(wc.status), "completion %llu is %s",
	      (unsigned long long)wc.id, gn_wc_status_str(wc.status));
	CHECK(cf_expect_state(cf, rc.qp, GN_QP_ERROR));
	CHECK(cf_send(cf, &rc, 2, 0, 8, 0));
	CHECK(cf_expect_flushed(cf, rc.send_cq, 2, 1));
	CHECK(cf_sync(cf));
	return true;
}

static bool too_small_b(struct cf *cf)
{
	struct cf_rc rc;
	struct gn_wc wc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	cf_paint(rc.buf, rc.buf_bytes);
	CHECK(cf_recv(cf, &rc, 1, 0, 128));
	CHECK(cf_recv(cf, &rc, 2, 1024, 1024));
	CHECK(cf_sync(cf));
	CHECK(cf_poll_one(cf, rc.recv_cq, &wc));
	CHECK(wc.id == 1 && length_class(wc.status), "completion %llu is %s",
	      (unsigned long long)wc.id, gn_wc_status_str(wc.status));
	CHECK(cf_expect_flushed(cf, rc.recv_cq, 2, 1));
	CHECK(cf_expect_state(cf, rc.qp, GN_QP_ERROR));
	CHECK(cf_recv(cf, &rc, 3, 1024, 1024));
	CHECK(cf_expect_flushed(cf, rc.recv_cq, 3, 1));
	CHECK(cf_check_paint(cf, rc.buf, 128, rc.buf_bytes));
	CHECK(cf_sync(cf)); /* its qp stays until the other side has its answer */
	return true;
}

/* ---- 20 ---- */

/* Long enough for B to be scheduled, receive the sync, and post. */
static const struct gn_conn_opts patient = {
	.size = sizeof(patient), .rnr_retry = GN_RNR_RETRY_DEFAULT, .rnr_timer_us = 490000};
static const struct gn_conn_opts impatient = {
	.size = sizeof(impatient), .rnr_retry = GN_RNR_NONE, .rnr_timer_us = 1000};

static bool late_recv_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.conn = &patient};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	cf_fill(cf, rc.buf, 512, 1);
	CHECK(cf_send(cf, &rc, 1, 0, 512, GN_SIGNALED));
	CHECK(cf_sync(cf));
	CHECK(cf_expect_wc(cf, rc.send_cq, 1, GN_WC_OK));

	opts.conn = &impatient;
	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_send(cf, &rc, 2, 0, 512, GN_SIGNALED));
	CHECK(cf_send(cf, &rc, 3, 0, 512, GN_SIGNALED));
	CHECK(cf_expect_wc(cf, rc.send_cq, 2, GN_WC_RNR));
	CHECK(cf_expect_flushed(cf, rc.send_cq, 3, 1));
	CHECK(cf_expect_state(cf, rc.qp, GN_QP_ERROR));
	CHECK(cf_sync(cf));
	return true;
}

static bool late_recv_b(struct cf *cf)
{
	struct cf_rc_opts opts = {.conn = &patient};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_sync(cf));
	CHECK(cf_recv(cf, &rc, 1, 0, 512));
	CHECK(cf_expect_wc(cf, rc.recv_cq, 1, GN_WC_OK));
	CHECK(cf_check_fill(cf, rc.buf, 512, 1));

	opts.conn = &impatient;
	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_sync(cf));
	return true;
}

/* ---- 21 ---- */

#define WINDOW	64u  /* B's receives */
#define CREDIT	16u  /* B tells after each so many that there are as many again */
#define ORDERED 256u /* bytes between messages in the buffer */
#define LAST	1u   /* the immediate of the last message */

static uint32_t ordered_len(uint64_t i)
{
	return (uint32_t)(8 + i * 7 % (ORDERED - 8));
}

static bool ordered_send(struct cf *cf, struct cf_rc *rc, uint64_t i, bool last)
{
	size_t at = i % WINDOW * ORDERED;
	struct gn_sge sge = cf_sge(rc, at, ordered_len(i));
	struct gn_wr wr;

	cf_fill(cf, rc->buf + at, ordered_len(i), i);
	gn_wr_send(&wr, i, &sge, GN_SIGNALED);
	wr.op = last ? GN_OP_SEND_IMM : GN_OP_SEND;
	wr.imm = LAST;
	return cf_post(cf, rc->qp, &wr);
}

static bool order_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.send_wr = WINDOW, .recv_wr = WINDOW};
	uint64_t sent = 0, done = 0, allowed = WINDOW;
	struct cf_rc rc;
	bool more = true;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	for (uint64_t i = 0; i < WINDOW; i++)
		CHECK(cf_recv(cf, &rc, i, 0, 0));
	CHECK(cf_sync(cf));
	while (more) {
		if (sent == allowed) {
			CHECK(cf_expect_wc(cf, rc.recv_cq, allowed / CREDIT - WINDOW / CREDIT,
					   GN_WC_OK));
			CHECK(cf_recv(cf, &rc, allowed / CREDIT - WINDOW / CREDIT + WINDOW, 0, 0));
			allowed += CREDIT;
		}
		if (sent - done == WINDOW / 2)
			CHECK(cf_expect_wc(cf, rc.send_cq, done++, GN_WC_OK));
		more = cf_more(cf, sent + 1, 100000);
		CHECK(ordered_send(cf, &rc, sent++, !more));
	}
	while (done < sent)
		CHECK(cf_expect_wc(cf, rc.send_cq, done++, GN_WC_OK));
	return true;
}

static bool order_b(struct cf *cf)
{
	struct cf_rc_opts opts = {.send_wr = WINDOW, .recv_wr = WINDOW};
	uint64_t credits = 0, done = 0;
	struct gn_wc wc = {.flags = 0};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	for (uint64_t i = 0; i < WINDOW; i++)
		CHECK(cf_recv(cf, &rc, i, i * ORDERED, ORDERED));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0; !(wc.flags & GN_WC_IMM); i++) {
		size_t at = i % WINDOW * ORDERED;

		CHECK(cf_poll_one(cf, rc.recv_cq, &wc));
		CHECK(wc.status == GN_WC_OK && wc.id == i, "completion %llu is %s, expected %llu",
		      (unsigned long long)wc.id, gn_wc_status_str(wc.status),
		      (unsigned long long)i);
		CHECK_INT(wc.len_bytes, ordered_len(i));
		CHECK(cf_check_fill(cf, rc.buf + at, wc.len_bytes, i));
		CHECK(cf_recv(cf, &rc, i + WINDOW, at, ORDERED));
		if (i % CREDIT == CREDIT - 1)
			CHECK(cf_send(cf, &rc, credits++, 0, 0, GN_SIGNALED));
		/* Not at once: it may not complete before A polls, and A may wait for us. */
		if (credits - done == WINDOW / 2)
			CHECK(cf_expect_wc(cf, rc.send_cq, done++, GN_WC_OK));
	}
	return true;
}

/* ---- 22 ---- */

#define IMM_MAX 3000u
#define IMM_AT	8192u /* where A's WRITEs land; receives are before it */

static bool imm_op(uint64_t i)
{
	return i % 3; /* SEND, SEND_IMM, WRITE_IMM in turn */
}

/* B has two receives: two immediates take them, and nothing is left for a third message. */
static bool imm_takes_one_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.conn = &impatient};
	struct cf_rc rc;
	struct gn_wr wr[3];

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_sync(cf));
	gn_wr_init(&wr[0], GN_OP_WRITE_IMM, 1, NULL, 0, GN_SIGNALED);
	gn_wr_init(&wr[1], GN_OP_SEND_IMM, 2, NULL, 0, GN_SIGNALED);
	gn_wr_init(&wr[2], GN_OP_SEND, 3, NULL, 0, GN_SIGNALED);
	for (unsigned i = 0; i < 3; i++) {
		CHECK(cf_post(cf, rc.qp, &wr[i]));
		CHECK(cf_expect_wc(cf, rc.send_cq, i + 1, i < 2 ? GN_WC_OK : GN_WC_RNR));
	}
	return true;
}

static bool imm_takes_one_b(struct cf *cf)
{
	struct cf_rc_opts opts = {.conn = &impatient};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_recv(cf, &rc, 1, 0, 0));
	CHECK(cf_recv(cf, &rc, 2, 0, 0));
	CHECK(cf_sync(cf));
	CHECK(cf_expect_wc(cf, rc.recv_cq, 1, GN_WC_OK));
	CHECK(cf_expect_wc(cf, rc.recv_cq, 2, GN_WC_OK));
	return true;
}

static bool imm_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(imm_takes_one_a(cf));
	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, 1000); i++) {
		static const enum gn_op ops[] = {GN_OP_SEND, GN_OP_SEND_IMM, GN_OP_WRITE_IMM};
		uint32_t len = (uint32_t)cf_rand_in(cf, 1, IMM_MAX);
		struct gn_sge sge = cf_sge(&rc, 0, len);
		struct gn_wr wr;

		cf_fill(cf, rc.buf, len, i);
		gn_wr_rdma(&wr, ops[i % 3], i, &sge, &rc.peer, IMM_AT, GN_SIGNALED);
		wr.imm = (uint32_t)cf_rand(cf);
		CHECK(cf_sync(cf));
		CHECK(cf_post(cf, rc.qp, &wr));
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
	}
	return true;
}

static bool imm_arrived(struct cf *cf, struct cf_rc *rc, uint64_t i, uint32_t len, uint32_t imm)
{
	bool write = i % 3 == 2;
	struct gn_wc wc;

	CHECK(cf_poll_one(cf, rc->recv_cq, &wc));
	CHECK(wc.status == GN_WC_OK && wc.id == i, "completion %llu is %s",
	      (unsigned long long)wc.id, gn_wc_status_str(wc.status));
	CHECK_INT(wc.op, write ? GN_OP_RECV_WRITE_IMM : GN_OP_RECV);
	CHECK_INT(wc.len_bytes, len);
	CHECK_INT(wc.flags & GN_WC_IMM, imm_op(i) ? GN_WC_IMM : 0);
	if (imm_op(i))
		CHECK_INT(wc.imm, imm);
	CHECK(cf_check_framed(cf, rc->buf, rc->buf_bytes, write ? IMM_AT : FRAME, len, i));
	return true;
}

static bool imm_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(imm_takes_one_b(cf));
	CHECK(cf_rc_pair(cf, NULL, &rc));
	/* Always one receive ahead: had a message taken two, or none, the ids would not fit. */
	CHECK(cf_recv(cf, &rc, 0, FRAME, IMM_MAX));
	for (uint64_t i = 0; cf_more_both(cf, i, 1000); i++) {
		uint32_t len = (uint32_t)cf_rand_in(cf, 1, IMM_MAX);
		uint32_t imm = (uint32_t)cf_rand(cf);

		cf_paint(rc.buf, rc.buf_bytes);
		CHECK(cf_recv(cf, &rc, i + 1, FRAME, IMM_MAX));
		CHECK(cf_sync(cf));
		CHECK(imm_arrived(cf, &rc, i, len, imm), "message %llu", (unsigned long long)i);
	}
	CHECK(cf_expect_none(cf, rc.recv_cq));
	return true;
}

/* ---- 23 ---- */

static bool notify_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint32_t i = 0; cf_more_both(cf, i, 1000); i++) {
		struct gn_wr wr;

		gn_wr_init(&wr, GN_OP_WRITE_IMM, i, NULL, 0, GN_SIGNALED);
		wr.imm = ~i;
		wr.to.remote.key = (uint32_t)cf_rand(cf); /* not looked at */
		wr.to.remote.offset = cf_rand(cf);
		CHECK(cf_sync(cf));
		CHECK(cf_post(cf, rc.qp, &wr));
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
	}
	return true;
}

static bool notify_b(struct cf *cf)
{
	struct cf_rc rc;
	struct gn_wc wc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	cf_paint(rc.buf, rc.buf_bytes);
	for (uint32_t i = 0; cf_more_both(cf, i, 1000); i++) {
		CHECK(cf_recv(cf, &rc, i, 0, i % 2 ? 64 : 0));
		CHECK(cf_sync(cf));
		CHECK(cf_poll_one(cf, rc.recv_cq, &wc));
		CHECK(wc.status == GN_WC_OK && wc.id == i, "completion %llu is %s",
		      (unsigned long long)wc.id, gn_wc_status_str(wc.status));
		CHECK_INT(wc.op, GN_OP_RECV_WRITE_IMM);
		CHECK(wc.flags & GN_WC_IMM && wc.imm == ~i && wc.len_bytes == 0,
		      "imm %u of %u bytes", wc.imm, wc.len_bytes);
	}
	CHECK(cf_check_paint(cf, rc.buf, 0, rc.buf_bytes));
	return true;
}

const struct cf_case cf_cases_send[] = {
	{17, "ping-pong of 0 bytes to 1 MiB", ping_pong, ping_pong, 0, 0},
	{18, "gather and scatter in odd pieces", pieces, pieces, 0, 0},
	{19, "a receive that is too small", too_small_a, too_small_b, 0, 0},
	{20, "a receive that is late, and one that never comes", late_recv_a, late_recv_b, 0, 0},
	{21, "messages arrive in the order they were sent", order_a, order_b, 0, 0},
	{22, "immediates: value, length, one receive each", imm_a, imm_b, 0, 0},
	{23, "an empty WRITE with immediate notifies", notify_a, notify_b, 0, 0},
	{0},
};
