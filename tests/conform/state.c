/* SPDX-License-Identifier: MIT */
/*
 * Cases 12-16: what may be posted when, and what happens to requests that may not.
 */
#include <errno.h>

#include "conform.h"

#define MSG 64u /* bytes of a message; message i lies at i * MSG */

/* ---- 12 ---- */

static bool send_too_early(struct cf *cf)
{
	struct gn_qp_opts opts = {.size = sizeof(opts), .type = GN_QP_RC, .chan = cf->chan};
	const struct gn_wr *bad = NULL;
	struct gn_counters counters = {.size = sizeof(counters)};
	struct gn_wr wr[2];
	struct gn_wc wc;
	struct gn_qp *qp;

	CHECK(opts.send_cq = opts.recv_cq = cf_make_cq(cf, 16, NULL));
	CHECK(qp = cf_make_qp(cf, cf->pd, &opts));
	gn_wr_init(&wr[0], GN_OP_SEND, 1, NULL, 0, GN_SIGNALED);
	gn_wr_init(&wr[1], GN_OP_SEND, 2, NULL, 0, GN_SIGNALED);
	wr[0].next = &wr[1];
	CHECK_INT(gn_post_send(qp, wr, &bad), -ENOTCONN);
	CHECK(bad == &wr[0]);
	CHECK_INT(gn_post_send(qp, wr, NULL), -ENOTCONN);
	CHECK_INT(gn_post_send(qp, NULL, NULL), -EINVAL);
	CHECK_INT(gn_post_send(NULL, wr, &bad), -EINVAL);
	CHECK_INT(gn_cq_poll(opts.send_cq, &wc, 1), 0);
	CHECK_INT(gn_qp_counters(qp, &counters), 0);
	CHECK(counters.wrs[GN_OP_SEND] == 0 && counters.doorbells == 0, "counted what was refused");
	return true;
}

/* ---- 13 ---- */

#define EARLY 20u

static bool post_early(struct cf *cf, struct cf_rc *rc)
{
	for (unsigned i = 0; i < EARLY; i++)
		CHECK(cf_recv(cf, rc, i, i * MSG, MSG));
	return true;
}

static bool recv_early_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.early = post_early};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	for (unsigned i = 0; i < EARLY; i++) {
		CHECK(cf_expect_wc(cf, rc.recv_cq, i, GN_WC_OK));
		CHECK(cf_check_fill(cf, rc.buf + i * MSG, MSG, i));
	}
	CHECK(cf_expect_none(cf, rc.recv_cq));
	return true;
}

static bool recv_early_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (unsigned i = 0; i < EARLY; i++) {
		cf_fill(cf, rc.buf + i * MSG, MSG, i);
		CHECK(cf_send(cf, &rc, i, i * MSG, MSG, GN_SIGNALED));
	}
	for (unsigned i = 0; i < EARLY; i++)
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
	return true;
}

/* ---- 14 ---- */

/* Post until the queue is full, and no further. *n: how many it took. */
static bool fill_recv_queue(struct cf *cf, struct cf_rc *rc, unsigned *n)
{
	const struct gn_recv_wr *bad = NULL;
	struct gn_recv_wr wr = {.n_sge = 1};
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct gn_sge sge;

	CHECK_INT(gn_qp_query(rc->qp, &attr), 0);
	for (unsigned i = 0; i < attr.max_recv_wr; i++)
		CHECK(cf_recv(cf, rc, i, i * MSG, MSG), "%u of %u", i, attr.max_recv_wr);
	sge = cf_sge(rc, 0, MSG);
	wr.id = UINT64_MAX;
	wr.sge = &sge;
	for (unsigned i = 0; i < 3; i++) {
		CHECK_INT(gn_post_recv(rc->qp, &wr, &bad), -EAGAIN);
		CHECK(bad == &wr);
	}
	*n = attr.max_recv_wr;
	return true;
}

static bool fill_send_queue(struct cf *cf, struct cf_rc *rc, unsigned n)
{
	const struct gn_wr *bad = NULL;
	struct gn_wr wr[4];
	struct gn_sge sge;

	for (unsigned i = 0; i < n - 2; i++) {
		cf_fill(cf, rc->buf + i * MSG, MSG, i);
		CHECK(cf_send(cf, rc, i, i * MSG, MSG, GN_SIGNALED), "%u of %u", i, n);
	}
	/* The queue has space for two of a chain of four. */
	sge = cf_sge(rc, 0, MSG);
	for (unsigned i = 0; i < 4; i++) {
		gn_wr_send(&wr[i], n - 2 + i, &sge, GN_SIGNALED);
		wr[i].next = i < 3 ? &wr[i + 1] : NULL;
	}
	CHECK_INT(gn_post_send(rc->qp, wr, &bad), -EAGAIN);
	CHECK(bad == &wr[2]);
	CHECK_INT(gn_post_send(rc->qp, &wr[3], &bad), -EAGAIN);
	CHECK(bad == &wr[3]);
	return true;
}

/* A sends as many messages as its queue takes; B has a receive for each. */
static bool full_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.send_wr = 32, .recv_wr = 32, .cq_depth = 1024};
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK_INT(gn_qp_query(rc.qp, &attr), 0);
	CHECK(attr.max_send_wr <= opts.cq_depth && attr.max_send_wr * MSG <= rc.buf_bytes);
	CHECK(cf_tell(cf, &attr.max_send_wr, sizeof(attr.max_send_wr)));
	CHECK(cf_sync(cf));
	CHECK(fill_send_queue(cf, &rc, attr.max_send_wr));
	for (unsigned i = 0; i < attr.max_send_wr; i++)
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
	CHECK(cf_expect_none(cf, rc.send_cq));
	/* Polled slots can be used again. */
	CHECK(cf_sync(cf));
	CHECK(cf_send(cf, &rc, 77, 0, MSG, GN_SIGNALED));
	CHECK(cf_expect_wc(cf, rc.send_cq, 77, GN_WC_OK));
	return true;
}

static bool full_b(struct cf *cf)
{
	struct cf_rc_opts opts = {.send_wr = 32, .recv_wr = 32, .cq_depth = 1024};
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	unsigned coming, posted;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_hear(cf, &coming, sizeof(coming)));
	CHECK_INT(gn_qp_query(rc.qp, &attr), 0);
	CHECK(attr.max_recv_wr <= opts.cq_depth && attr.max_recv_wr * MSG <= rc.buf_bytes);
	CHECK(fill_recv_queue(cf, &rc, &posted));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < coming; i++) {
		unsigned slot = i % posted;

		CHECK(cf_expect_wc(cf, rc.recv_cq, i, GN_WC_OK));
		/* The last two were a chain that sent the first message again. */
		CHECK(cf_check_fill(cf, rc.buf + slot * MSG, MSG, i < coming - 2 ? i : 0));
		CHECK(cf_recv(cf, &rc, i + posted, slot * MSG, MSG));
	}
	CHECK(cf_expect_none(cf, rc.recv_cq));
	CHECK(cf_sync(cf));
	CHECK(cf_expect_wc(cf, rc.recv_cq, coming, GN_WC_OK));
	CHECK(cf_expect_none(cf, rc.recv_cq));
	return true;
}

/* ---- 15 ---- */

#define SGE_MOST 256u

static bool too_many_sges(struct cf *cf, struct cf_rc *rc)
{
	const struct gn_recv_wr *bad_recv = NULL;
	const struct gn_wr *bad_send = NULL;
	struct gn_sge sge[SGE_MOST];
	struct gn_recv_wr recv = {.sge = sge};
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct gn_wr wr;

	CHECK_INT(gn_qp_query(rc->qp, &attr), 0);
	CHECK(attr.max_send_sge < SGE_MOST && attr.max_recv_sge < SGE_MOST);
	for (unsigned i = 0; i < SGE_MOST; i++)
		sge[i] = cf_sge(rc, i, 1);
	for (int op = GN_OP_WRITE; op <= GN_OP_SEND_IMM; op++) {
		gn_wr_init(&wr, (enum gn_op)op, 1, sge, attr.max_send_sge + 1, GN_SIGNALED);
		CHECK_INT(gn_post_send(rc->qp, &wr, &bad_send), -EINVAL);
		CHECK(bad_send == &wr);
		wr.n_sge = UINT32_MAX;
		CHECK_INT(gn_post_send(rc->qp, &wr, &bad_send), -EINVAL);
	}
	gn_wr_init(&wr, GN_OP_SEND, 1, NULL, 1, GN_SIGNALED);
	CHECK_INT(gn_post_send(rc->qp, &wr, &bad_send), -EINVAL);
	recv.n_sge = attr.max_recv_sge + 1;
	CHECK_INT(gn_post_recv(rc->qp, &recv, &bad_recv), -EINVAL);
	CHECK(bad_recv == &recv);
	recv.sge = NULL;
	recv.n_sge = 1;
	CHECK_INT(gn_post_recv(rc->qp, &recv, &bad_recv), -EINVAL);
	return true;
}

static bool sges_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.send_sge = 2, .recv_sge = 2};
	struct cf_rc rc;

	if (cf->attr.max_sge < 2)
		opts.send_sge = opts.recv_sge = 1;
	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(too_many_sges(cf, &rc));
	/* Nothing of it counts, and the qp is as good as before. */
	CHECK(cf_publish(cf, &rc));
	CHECK(cf_expect_none(cf, rc.send_cq));
	return true;
}

static bool sges_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_observe(cf, &rc));
	CHECK(cf_expect_none(cf, rc.recv_cq));
	return true;
}

/* ---- 16 ---- */

#define CHAIN 9u

/* Invalid requests, and the error of each post. */
enum badness { BAD_OP, BAD_FLAG, BAD_SGES, BAD_INLINE, BADNESSES };

static int spoil(struct gn_wr *wr, enum badness how, uint32_t max_send_sge)
{
	switch (how) {
	case BAD_OP:
		wr->op = GN_OP_RECV;
		return -EINVAL;
	case BAD_FLAG:
		wr->flags |= 1u << 31;
		return -EINVAL;
	case BAD_SGES:
		wr->n_sge = max_send_sge + 1;
		return -EINVAL;
	default:
		wr->flags |= GN_INLINE;
		return -EMSGSIZE;
	}
}

/* A chain of WRITEs with an invalid one at index at; only those before it may arrive. */
static bool bad_chain(struct cf *cf, struct cf_rc *rc, unsigned at, enum badness how)
{
	const struct gn_wr *bad = NULL;
	struct gn_sge sge[CHAIN];
	struct gn_wr wr[CHAIN];
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	int err = 0;

	CHECK_INT(gn_qp_query(rc->qp, &attr), 0);
	for (unsigned i = 0; i < CHAIN; i++) {
		cf_fill(cf, rc->buf + i * GN_PAGE, GN_PAGE, i);
		sge[i] = cf_sge(rc, i * GN_PAGE, GN_PAGE);
		gn_wr_rdma(&wr[i], GN_OP_WRITE, i, &sge[i], &rc->peer, i * GN_PAGE, GN_SIGNALED);
		wr[i].next = i + 1 < CHAIN ? &wr[i + 1] : NULL;
		if (i == at)
			err = spoil(&wr[i], how, attr.max_send_sge);
	}
	if (how == BAD_INLINE && attr.max_inline >= GN_PAGE)
		SKIP("inline is longer than a page");
	CHECK_INT(gn_post_send(rc->qp, wr, &bad), err);
	CHECK(bad == &wr[at], "it names request %td, not %u", bad - wr, at);
	for (unsigned i = 0; i < at; i++)
		CHECK(cf_expect_wc(cf, rc->send_cq, i, GN_WC_OK));
	CHECK(cf_expect_none(cf, rc->send_cq));
	return true;
}

/* The same for receives: exactly those before the invalid one are posted. */
static bool bad_recv_chain(struct cf *cf, struct cf_rc *rc, unsigned at)
{
	const struct gn_recv_wr *bad = NULL;
	struct gn_recv_wr wr[CHAIN];
	struct gn_qp_attr attr = {.size = sizeof(attr)};

	CHECK_INT(gn_qp_query(rc->qp, &attr), 0);
	for (unsigned i = 0; i < CHAIN; i++) {
		wr[i] = (struct gn_recv_wr){.id = i};
		wr[i].next = i + 1 < CHAIN ? &wr[i + 1] : NULL;
	}
	wr[at].n_sge = attr.max_recv_sge + 1;
	CHECK_INT(gn_post_recv(rc->qp, wr, &bad), -EINVAL);
	CHECK(bad == &wr[at], "it names receive %td, not %u", bad - wr, at);
	return true;
}

static bool prefix_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (unsigned at = 0; at < CHAIN; at += 2)
		for (int how = 0; how < BADNESSES; how++) {
			CHECK(cf_sync(cf));
			CHECK(bad_chain(cf, &rc, at, (enum badness)how), "badness %d", how);
			CHECK(cf_publish(cf, &rc));
		}
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < CHAIN / 2; i++)
		CHECK(cf_send(cf, &rc, i, 0, 0, GN_SIGNALED));
	for (unsigned i = 0; i < CHAIN / 2; i++)
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
	CHECK_INT(gn_disconnect(rc.qp), 0);
	return true;
}

static bool prefix_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (unsigned at = 0; at < CHAIN; at += 2)
		for (int how = 0; how < BADNESSES; how++) {
			cf_paint(rc.buf, rc.buf_bytes);
			CHECK(cf_sync(cf));
			CHECK(cf_observe(cf, &rc));
			for (unsigned i = 0; i < at; i++)
				CHECK(cf_check_fill(cf, rc.buf + i * GN_PAGE, GN_PAGE, i));
			CHECK(cf_check_paint(cf, rc.buf, at * GN_PAGE, rc.buf_bytes),
			      "bad request at %u", at);
		}
	CHECK(bad_recv_chain(cf, &rc, CHAIN / 2));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < CHAIN / 2; i++)
		CHECK(cf_expect_wc(cf, rc.recv_cq, i, GN_WC_OK));
	/* Were there another one it would be flushed now. */
	CHECK(cf_expect_event(cf, rc.chan, GN_EVENT_DISCONNECTED, NULL));
	CHECK(cf_expect_none(cf, rc.recv_cq));
	return true;
}

const struct cf_case cf_cases_state[] = {
	{12, "a send before the connection is refused", send_too_early, NULL, 0, 0},
	{13, "receives posted before the connection", recv_early_a, recv_early_b, 0, 0},
	{14, "full queues refuse, and lose nothing", full_a, full_b, 0, 0},
	{15, "too many SGEs are refused", sges_a, sges_b, 0, 0},
	{16, "of a chain with a bad request the prefix is done", prefix_a, prefix_b, 0, 0},
	{0},
};
