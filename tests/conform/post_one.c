/* SPDX-License-Identifier: MIT */
/* Cases 82-86: gn_post_one(), which may execute the request before it returns. */
#include <errno.h>
#include <string.h>

#include "conform.h"

/* How often each answer came. */
struct answers {
	uint64_t done, posted;
};

/* Post it, and have it done in any case: a completion comes for each that was not, and no other. */
static bool post_and_end(struct cf *cf, struct cf_rc *rc, const struct gn_wr *wr,
			 struct answers *answers)
{
	const int answer = gn_post_one(rc->qp, wr);
	struct gn_wc wc;

	CHECK(answer == 0 || answer == 1, "it is %d", answer);
	answers->done += answer == 1;
	answers->posted += answer == 0;
	if (answer == 1)
		return true;
	CHECK(cf_poll_one(cf, rc->send_cq, &wc));
	CHECK(wc.status == GN_WC_OK && wc.id == wr->id && wc.qp == rc->qp && wc.op == wr->op);
	return true;
}

/* ---- 82 ---- */

#define WHERE 16384u /* of the half that is read into */

static bool write_and_read(struct cf *cf, struct cf_rc *rc, uint64_t i, struct answers *answers)
{
	const uint32_t len =
		(uint32_t)(i % 2 ? cf_rand_in(cf, 1, 12) * 8 : cf_rand_in(cf, 1, 9000));
	const uint64_t round = i % 2 ? 8 : 1;
	const size_t mine = cf_rand_in(cf, 0, 4096 / round) * round;
	const size_t theirs = cf_rand_in(cf, 0, 4096 / round) * round;
	struct gn_sge sge = cf_sge(rc, mine, len);
	struct gn_wr wr;

	cf_fill(cf, rc->buf + mine, len, i);
	gn_wr_rdma(&wr, GN_OP_WRITE, 2 * i, &sge, &rc->peer, theirs, GN_SIGNALED);
	CHECK(post_and_end(cf, rc, &wr, answers));
	/* The buffer is the caller's again, and a READ returns what was written. */
	memset(rc->buf + mine, 0, len);
	sge = cf_sge(rc, WHERE + mine, len);
	gn_wr_rdma(&wr, GN_OP_READ, 2 * i + 1, &sge, &rc->peer, theirs, GN_SIGNALED);
	CHECK(post_and_end(cf, rc, &wr, answers));
	memmove(rc->buf + mine, rc->buf + WHERE + mine, len);
	CHECK(cf_check_fill(cf, rc->buf + mine, len, i));
	return true;
}

static bool counted(struct cf *cf, const struct cf_rc *rc, const struct answers *answers,
		    uint64_t rounds)
{
	struct gn_counters c = {.size = sizeof(c)};

	CHECK_INT(gn_qp_counters(rc->qp, &c), 0);
	CHECK_INT(c.wrs[GN_OP_WRITE], rounds);
	CHECK_INT(c.wrs[GN_OP_READ], rounds);
	CHECK(c.bytes[GN_OP_WRITE] == c.bytes[GN_OP_READ] && c.bytes[GN_OP_READ] >= rounds);
	CHECK_INT(c.doorbells, answers->done + answers->posted);
	CHECK_INT(c.cqes, answers->posted);
	CHECK_INT(c.bytes_in_flight, 0);
	return true;
}

static bool done_or_complete_a(struct cf *cf)
{
	struct answers answers = {0, 0};
	struct cf_rc rc;
	uint64_t i;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (i = 0; cf_more(cf, i, 5000); i++)
		CHECK(write_and_read(cf, &rc, i, &answers), "round %llu", (unsigned long long)i);
	CHECK(cf_expect_none(cf, rc.send_cq));
	CHECK(counted(cf, &rc, &answers, i));
	/* Neither kind has filled the send queue. */
	CHECK(cf_publish(cf, &rc));
	cf_note(cf, "%llu done at once, %llu completed", (unsigned long long)answers.done,
		(unsigned long long)answers.posted);
	return true;
}

/* ---- 83 ---- */

/* It completes with an error, and then so does everything. */
static bool fail_one(struct cf *cf, struct cf_rc *rc, const struct gn_wr *wr,
		     enum gn_wc_status status)
{
	CHECK_INT(gn_post_one(rc->qp, wr), 0);
	CHECK(cf_expect_wc(cf, rc->send_cq, wr->id, status));
	CHECK(cf_expect_state(cf, rc->qp, GN_QP_ERROR));
	CHECK_INT(gn_post_one(rc->qp, wr), 0);
	CHECK(cf_expect_wc(cf, rc->send_cq, wr->id, GN_WC_FLUSHED));
	return true;
}

#define FAILURES 5u

static bool fails_a(struct cf *cf)
{
	for (unsigned i = 0; i < FAILURES; i++) {
		enum gn_wc_status status = GN_WC_REMOTE_ACCESS;
		struct answers answers = {0, 0};
		struct cf_rc rc;
		struct gn_sge sge;
		struct gn_wr wr;

		CHECK(cf_rc_pair(cf, NULL, &rc));
		sge = cf_sge(&rc, 0, 64);
		gn_wr_rdma(&wr, i == 1 ? GN_OP_READ : GN_OP_WRITE, i, &sge, &rc.peer, 0,
			   GN_SIGNALED);
		CHECK(post_and_end(cf, &rc, &wr, &answers)); /* its key is known, and good */
		if (i == 2)
			wr.flags = 0;
		if (i < 3)
			wr.to.remote.offset += rc.peer.length - 56; /* a word too far */
		else if (i == 3)
			wr.to.remote.key ^= 1;
		else
			sge.addr = rc.buf + rc.buf_bytes - 56, status = GN_WC_LOCAL_ACCESS;
		CHECK(fail_one(cf, &rc, &wr, status), "failure %u", i);
		CHECK(cf_sync(cf));
		CHECK(cf_rc_close(cf, &rc));
	}
	return true;
}

static bool fails_b(struct cf *cf)
{
	for (unsigned i = 0; i < FAILURES; i++) {
		struct cf_rc rc;

		CHECK(cf_rc_pair(cf, NULL, &rc));
		CHECK(cf_sync(cf));
		CHECK(cf_rc_close(cf, &rc));
	}
	return true;
}

/* ---- 84 ---- */

/*
 * Behind a SEND that waits for its receive nothing is done: not by being answered so, and not in
 * the target's memory.
 */
static const struct gn_conn_opts patient = {
	.size = sizeof(patient), .rnr_retry = GN_RNR_RETRY_DEFAULT, .rnr_timer_us = 100000};
static const struct cf_rc_opts waits = {.conn = &patient};

static bool in_order_a(struct cf *cf)
{
	struct cf_rc rc;
	struct gn_sge sge;
	struct gn_wr wr;
	uint64_t here;

	CHECK(cf_rc_pair(cf, &waits, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, 50); i++) {
		memset(rc.buf, (int)i + 1, 8);
		CHECK(cf_send(cf, &rc, 1, 64, 8, GN_SIGNALED));
		sge = cf_sge(&rc, 0, 8);
		gn_wr_rdma(&wr, GN_OP_WRITE, 2, &sge, &rc.peer, 0, GN_SIGNALED);
		CHECK_INT(gn_post_one(rc.qp, &wr), 0);
		sge = cf_sge(&rc, 128, 8);
		gn_wr_rdma(&wr, GN_OP_READ, 3, &sge, &rc.peer, 0, GN_SIGNALED);
		CHECK_INT(gn_post_one(rc.qp, &wr), 0);
		CHECK(cf_sync(cf)); /* B has looked, and posts the receive */
		CHECK(cf_expect_wc(cf, rc.send_cq, 1, GN_WC_OK));
		CHECK(cf_expect_wc(cf, rc.send_cq, 2, GN_WC_OK));
		CHECK(cf_expect_wc(cf, rc.send_cq, 3, GN_WC_OK));
		memcpy(&here, rc.buf + 128, sizeof(here));
		CHECK(!memcmp(&here, rc.buf, sizeof(here)));
		CHECK(cf_sync(cf));
	}
	return true;
}

static bool in_order_b(struct cf *cf)
{
	struct gn_wc wc;
	struct cf_rc rc;
	uint64_t here;

	CHECK(cf_rc_pair(cf, &waits, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, 50); i++) {
		memcpy(&here, rc.buf, sizeof(here));
		CHECK(here == i % 256 * 0x0101010101010101u, "%llx in round %llu",
		      (unsigned long long)here, (unsigned long long)i);
		CHECK(cf_sync(cf));
		CHECK(cf_recv(cf, &rc, i, 64, 8));
		CHECK(cf_poll_one(cf, rc.recv_cq, &wc));
		CHECK_INT(wc.status, GN_WC_OK);
		CHECK(cf_sync(cf));
	}
	return true;
}

/* ---- 85 ---- */

static bool arguments_a(struct cf *cf)
{
	struct gn_qp_opts opts = {.size = sizeof(opts), .type = GN_QP_RC, .chan = cf->chan};
	struct answers answers = {0, 0};
	struct gn_wr wr, next;
	struct gn_cq *cq;
	struct gn_qp *qp;
	struct cf_rc rc;
	struct gn_sge sge[2];

	CHECK(cf_rc_pair(cf, NULL, &rc));
	sge[0] = cf_sge(&rc, 0, 8);
	sge[1] = cf_sge(&rc, 64, 8);
	gn_wr_rdma(&wr, GN_OP_WRITE, 1, sge, &rc.peer, 0, GN_SIGNALED);
	CHECK_INT(gn_post_one(NULL, &wr), -EINVAL);
	CHECK_INT(gn_post_one(rc.qp, NULL), -EINVAL);
	wr.sge = NULL;
	CHECK_INT(gn_post_one(rc.qp, &wr), -EINVAL);
	wr.sge = sge;
	wr.n_sge = 2; /* more than the qp was made for, or than that */
	CHECK(gn_post_one(rc.qp, &wr) == -EINVAL || cf->attr.max_sge > 1);
	wr.n_sge = 1;
	wr.flags = 1u << 20;
	CHECK_INT(gn_post_one(rc.qp, &wr), -EINVAL);
	wr.flags = GN_SIGNALED | GN_INLINE;
	wr.op = GN_OP_READ;
	CHECK_INT(gn_post_one(rc.qp, &wr), -EINVAL);
	wr.op = (enum gn_op)77;
	wr.flags = GN_SIGNALED;
	CHECK_INT(gn_post_one(rc.qp, &wr), -EINVAL);
	/* What next leads to is not posted, nor looked at. */
	wr.op = GN_OP_WRITE;
	next = wr;
	next.op = (enum gn_op)77;
	wr.next = &next;
	CHECK(post_and_end(cf, &rc, &wr, &answers));
	CHECK(cf_expect_none(cf, rc.send_cq));
	cq = cf_make_cq(cf, 16, NULL);
	CHECK(cq);
	opts.send_cq = opts.recv_cq = cq;
	qp = cf_make_qp(cf, cf->pd, &opts);
	CHECK(qp);
	CHECK_INT(gn_post_one(qp, &wr), -ENOTCONN);
	CHECK(cf_publish(cf, &rc));
	return true;
}

/* ---- 86 ---- */

/* Each finds what the last has left. */
static bool atomics_a(struct cf *cf)
{
	struct answers answers = {0, 0};
	uint64_t value = 0, old, next;
	struct gn_sge sge;
	struct cf_rc rc;
	struct gn_wr wr;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	sge = cf_sge(&rc, 4, 8); /* only the target's end is aligned */
	for (uint64_t i = 0; cf_more(cf, i, 3000); i++) {
		next = cf_rand(cf);
		if (i % 3 == 0)
			gn_wr_faa(&wr, i, &sge, &rc.peer, 64, next, GN_SIGNALED);
		else /* the second of two misses */
			gn_wr_cas(&wr, i, &sge, &rc.peer, 64, value + (i % 3 - 1), next,
				  GN_SIGNALED);
		CHECK(post_and_end(cf, &rc, &wr, &answers));
		memcpy(&old, rc.buf + 4, sizeof(old));
		CHECK(old == value, "round %llu", (unsigned long long)i);
		value = i % 3 == 0 ? value + next : i % 3 == 1 ? next : value;
	}
	gn_wr_faa(&wr, 1, &sge, &rc.peer, 12, 1, GN_SIGNALED);
	CHECK_INT(gn_post_one(rc.qp, &wr), -EINVAL); /* not aligned */
	CHECK(cf_expect_none(cf, rc.send_cq));
	gn_wr_faa(&wr, 1, &sge, &rc.peer, rc.peer.length, 1, GN_SIGNALED);
	CHECK(fail_one(cf, &rc, &wr, GN_WC_REMOTE_ACCESS));
	CHECK(cf_sync(cf));
	return true;
}

static bool atomics_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_sync(cf));
	return true;
}

const struct cf_case cf_cases_one[] = {
	{82, "a request by itself is done or completes, never both", done_or_complete_a,
	 cf_idle_peer, 0, 0},
	{83, "a request by itself that fails completes", fails_a, fails_b, 0, 0},
	{84, "a request by itself waits for those before it", in_order_a, in_order_b, 0, 0},
	{85, "what may be posted by itself, and what not", arguments_a, cf_idle_peer, 0, 0},
	{86, "an atomic by itself", atomics_a, atomics_b, GN_CAP_ATOMICS, 0},
	{0, NULL, NULL, NULL, 0, 0},
};
