/* SPDX-License-Identifier: MIT */
/*
 * Cases 40-45 and 47: completion queues and event channels. What arming promises is only worth
 * something with its limits, so most cases count events: none unasked, one for one arm, never too
 * late.
 */
#include <errno.h>
#include <string.h>

#include "conform.h"

#define QUIET_US    2000u /* an event that is wrong would have come by then */
#define POLL_GAP_US 20u
#define BURST	    3u
#define MSG_BYTES   32u

/* One completion by polling alone: gn_cq_wait() may arm the cq, and arming is tested here. */
static bool poll_plain(struct cf *cf, struct gn_cq *cq, struct gn_wc *wc)
{
	const uint64_t deadline_ns = cf_deadline(cf);
	int n;

	while ((n = gn_cq_poll(cq, wc, 1)) == 0 && gn_now_ns() < deadline_ns)
		gn_sleep_us(POLL_GAP_US);
	return n == 1 || cf_why(cf, "no completion: gn_cq_poll() is %d", n);
}

static bool poll_plain_ok(struct cf *cf, struct gn_cq *cq, unsigned n)
{
	struct gn_wc wc;

	for (unsigned i = 0; i < n; i++) {
		CHECK(poll_plain(cf, cq, &wc));
		CHECK_INT(wc.status, GN_WC_OK);
	}
	return true;
}

static bool expect_quiet(struct cf *cf, struct gn_chan *chan)
{
	struct gn_event ev;
	int rc = gn_chan_wait(chan, gn_deadline_us(QUIET_US), &ev);

	if (rc == -ETIMEDOUT)
		return true;
	return cf_why(cf, "%s on a channel that should be quiet",
		      rc ? gn_strerror(rc) : gn_event_str(ev.type));
}

static bool expect_cq_event(struct cf *cf, struct gn_chan *chan, const struct gn_cq *cq)
{
	struct gn_event ev;

	CHECK(cf_expect_event(cf, chan, GN_EVENT_CQ, &ev));
	CHECK(ev.cq == cq, "the event names another cq");
	return true;
}

static bool recv_burst(struct cf *cf, struct cf_rc *rc)
{
	for (unsigned i = 0; i < BURST; i++)
		CHECK(cf_recv(cf, rc, i, i * MSG_BYTES, MSG_BYTES));
	return true;
}

static bool send_some(struct cf *cf, struct cf_rc *rc, unsigned n, uint32_t flags)
{
	for (unsigned i = 0; i < n; i++)
		CHECK(cf_send(cf, rc, i, 0, MSG_BYTES, GN_SIGNALED | flags));
	return poll_plain_ok(cf, rc->send_cq, n);
}

/* ---- 40 ---- */

#define ARM_ROUNDS   4u
#define SLEEP_ROUNDS 40u
#define LATE_US	     2000u

/* In round n a side arms its cq n times before the burst: whatever n, one event at most. */
static bool once_round(struct cf *cf, struct gn_chan *chan, struct gn_cq *cq, unsigned arms)
{
	if (arms)
		CHECK(expect_cq_event(cf, chan, cq));
	CHECK(poll_plain_ok(cf, cq, BURST));
	CHECK(expect_quiet(cf, chan));
	return true;
}

static bool arm_times(struct cf *cf, struct gn_cq *cq, unsigned n)
{
	while (n-- > 0)
		CHECK_INT(gn_cq_arm(cq, false), 0);
	return true;
}

/* gn_cq_wait() may arm behind the scenes; the user sees an event only for an arm of their own. */
static bool wait_is_not_arm(struct cf *cf, struct cf_rc *rc)
{
	CHECK(recv_burst(cf, rc));
	CHECK(cf_expect_none(cf, rc->recv_cq)); /* a wait that found nothing */
	CHECK(cf_sync(cf));
	CHECK(poll_plain_ok(cf, rc->recv_cq, BURST));
	CHECK(expect_quiet(cf, rc->chan));

	CHECK(recv_burst(cf, rc));
	CHECK(arm_times(cf, rc->recv_cq, 1));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < BURST; i++)
		CHECK(cf_expect_wc(cf, rc->recv_cq, i, GN_WC_OK));
	CHECK(expect_cq_event(cf, rc->chan, rc->recv_cq));
	CHECK(expect_quiet(cf, rc->chan));
	return true;
}

/* Sleeps until the next completion, which comes early or late. */
static bool sleep_round(struct cf *cf, struct cf_rc *rc)
{
	struct gn_wait_item item = gn_wait_on(gn_cq_source(rc->recv_cq));
	const uint64_t deadline_ns = cf_deadline(cf);
	struct gn_wc wc;
	int n, rc_wait = 0;

	CHECK(cf_recv(cf, rc, 1, 0, MSG_BYTES));
	CHECK(cf_sync(cf));
	while (!(n = gn_cq_poll(rc->recv_cq, &wc, 1))) {
		CHECK(rc_wait >= 0, "the wait: %s", gn_strerror(rc_wait));
		rc_wait = gn_wait_sleep(&item, 1, deadline_ns, "a message");
	}
	CHECK_INT(n, 1);
	CHECK_INT(wc.status, GN_WC_OK);
	return true;
}

static bool sleep_rounds(struct cf *cf, struct cf_rc *rc)
{
	struct gn_counters before = {.size = sizeof(before)}, after = before;

	CHECK_INT(gn_fabric_counters(cf->fabric, &before), 0);
	for (unsigned i = 0; i < SLEEP_ROUNDS; i++)
		CHECK(sleep_round(cf, rc));
	CHECK_INT(gn_fabric_counters(cf->fabric, &after), 0);
	/* Usually as many as late messages; on a busy machine these may be there first. */
	CHECK(after.arms > before.arms, "no wait has armed the cq");
	CHECK(expect_quiet(cf, rc->chan));
	return true;
}

static bool once_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.events = true};
	struct gn_cq *mute;
	struct cf_rc rc;

	CHECK((mute = cf_make_cq(cf, 1, NULL)));
	CHECK_INT(gn_cq_arm(mute, false), -EINVAL);
	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(expect_quiet(cf, rc.chan));
	for (unsigned arms = 0; arms < ARM_ROUNDS; arms++) {
		CHECK(recv_burst(cf, &rc));
		CHECK(arm_times(cf, rc.recv_cq, arms));
		CHECK(cf_sync(cf));
		CHECK(once_round(cf, rc.chan, rc.recv_cq, arms));
	}
	CHECK(wait_is_not_arm(cf, &rc));
	CHECK(sleep_rounds(cf, &rc));
	return cf_sync(cf);
}

static bool once_b(struct cf *cf)
{
	struct cf_rc_opts opts = {.events = true};
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	for (unsigned arms = 0; arms < ARM_ROUNDS; arms++) {
		CHECK(arm_times(cf, rc.send_cq, arms));
		CHECK(cf_sync(cf));
		for (unsigned i = 0; i < BURST; i++)
			CHECK(cf_send(cf, &rc, i, 0, MSG_BYTES, GN_SIGNALED));
		CHECK(once_round(cf, rc.chan, rc.send_cq, arms));
	}
	for (unsigned i = 0; i < 2; i++) {
		CHECK(cf_sync(cf));
		CHECK(send_some(cf, &rc, BURST, 0));
	}
	for (unsigned i = 0; i < SLEEP_ROUNDS; i++) {
		CHECK(cf_sync(cf));
		gn_sleep_us(i % 2 ? LATE_US : 0);
		CHECK(send_some(cf, &rc, 1, 0));
	}
	return cf_sync(cf);
}

/* ---- 41 ---- */

#define RACE_ROUNDS	100000u
#define RACE_AHEAD	16u
#define RACE_SPIN	4000u /* loop turns: about as long as a message takes on shared memory */
#define RACE_LONG_EVERY 64u   /* rounds between two in which the waiter is left to fall asleep */
#define RACE_LONG_US	300u
#define ARMS_PER_WAIT	16u /* events left over from earlier arms are few */

/* Some time in either world, from nothing to a microsecond or a few. */
static void dawdle(struct cf *cf)
{
	const uint64_t turns = cf_rand_in(cf, 0, RACE_SPIN);

	gn_charge(GN_WORK_NS, turns);
	for (uint64_t i = 0; i < turns; i++)
		__asm__ volatile("");
}

/* The sequence that fabric.h prescribes. */
static bool arm_poll_sleep(struct cf *cf, struct cf_rc *rc, uint64_t id)
{
	struct gn_event ev;
	struct gn_wc wc;
	int n;

	for (unsigned arms = 0; arms < ARMS_PER_WAIT; arms++) {
		CHECK_INT(gn_cq_arm(rc->recv_cq, false), 0);
		n = gn_cq_poll(rc->recv_cq, &wc, 1);
		CHECK(n >= 0, "poll: %s", gn_strerror(n));
		if (n == 1) {
			CHECK_INT(wc.status, GN_WC_OK);
			CHECK_INT(wc.id, id);
			return true;
		}
		n = gn_chan_wait(rc->chan, cf_deadline(cf), &ev);
		CHECK(n == 0, "asleep forever in round %llu: %s", (unsigned long long)id,
		      gn_strerror(n));
		CHECK(ev.type == GN_EVENT_CQ && ev.cq == rc->recv_cq, "event: %s",
		      gn_event_str(ev.type));
	}
	return cf_why(cf, "%u events and no completion", ARMS_PER_WAIT);
}

/* A few questions are always on their way, so answers come while A arms, polls and sleeps. */
static bool ask(struct cf *cf, struct cf_rc *rc, uint64_t id)
{
	CHECK(cf_recv(cf, rc, id, 0, MSG_BYTES));
	return cf_send(cf, rc, id, 0, 1, GN_SIGNALED);
}

static bool race_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.events = true};
	uint64_t asked = 0, answered = 0;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_sync(cf));
	while (asked < RACE_AHEAD)
		CHECK(ask(cf, &rc, asked++));
	for (; answered < asked; answered++) {
		dawdle(cf);
		CHECK(arm_poll_sleep(cf, &rc, answered));
		CHECK(poll_plain_ok(cf, rc.send_cq, 1));
		if (cf_more(cf, asked, RACE_ROUNDS))
			CHECK(ask(cf, &rc, asked++));
	}
	CHECK(cf_send(cf, &rc, asked, 0, 0, GN_SIGNALED)); /* no byte: the end */
	CHECK(poll_plain_ok(cf, rc.send_cq, 1));
	return cf_sync(cf);
}

static bool race_b(struct cf *cf)
{
	struct cf_rc rc;
	struct gn_wc wc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (unsigned i = 0; i < RACE_AHEAD; i++)
		CHECK(cf_recv(cf, &rc, 0, 0, MSG_BYTES));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0;; i++) {
		CHECK(cf_poll_one(cf, rc.recv_cq, &wc));
		CHECK_INT(wc.status, GN_WC_OK);
		if (wc.len_bytes == 0)
			break;
		CHECK(cf_recv(cf, &rc, 0, 0, MSG_BYTES));
		if (i % RACE_LONG_EVERY == 0)
			gn_sleep_us(RACE_LONG_US);
		dawdle(cf);
		CHECK(cf_send(cf, &rc, i, 0, MSG_BYTES, GN_SIGNALED));
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
	}
	return cf_sync(cf);
}

/* ---- 42 ---- */

static bool solicited_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.events = true};
	struct cf_rc rc;
	struct gn_wc wc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(recv_burst(cf, &rc));
	CHECK_INT(gn_cq_arm(rc.recv_cq, true), 0);
	CHECK(cf_sync(cf)); /* a plain SEND and a plain WRITE_IMM */
	CHECK(poll_plain_ok(cf, rc.recv_cq, 2));
	CHECK(expect_quiet(cf, rc.chan));
	CHECK(cf_sync(cf)); /* a solicited SEND: the arm still stands */
	CHECK(expect_cq_event(cf, rc.chan, rc.recv_cq));
	CHECK(poll_plain_ok(cf, rc.recv_cq, 1));

	CHECK(recv_burst(cf, &rc));
	CHECK_INT(gn_cq_arm(rc.recv_cq, true), 0);
	CHECK(cf_sync(cf)); /* a solicited WRITE_IMM */
	CHECK(expect_cq_event(cf, rc.chan, rc.recv_cq));
	CHECK(poll_plain_ok(cf, rc.recv_cq, 1));
	CHECK(expect_quiet(cf, rc.chan));

	/* An error is always solicited. */
	CHECK(cf_sync(cf)); /* B has its completion: this end may fail now */
	CHECK_INT(gn_cq_arm(rc.recv_cq, true), 0);
	CHECK_INT(gn_qp_error(rc.qp), 0);
	CHECK(expect_cq_event(cf, rc.chan, rc.recv_cq));
	for (unsigned i = 1; i < BURST; i++) {
		CHECK(poll_plain(cf, rc.recv_cq, &wc));
		CHECK_INT(wc.id, i);
		CHECK_INT(wc.status, GN_WC_FLUSHED);
	}
	return cf_sync(cf);
}

static bool write_imm(struct cf *cf, struct cf_rc *rc, uint32_t flags)
{
	struct gn_sge sge = cf_sge(rc, 0, MSG_BYTES);
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE_IMM, 0, &sge, &rc->peer, 4 * MSG_BYTES, GN_SIGNALED | flags);
	CHECK(cf_post(cf, rc->qp, &wr));
	return poll_plain_ok(cf, rc->send_cq, 1);
}

static bool solicited_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_sync(cf));
	CHECK(send_some(cf, &rc, 1, 0));
	CHECK(write_imm(cf, &rc, 0));
	CHECK(cf_sync(cf));
	CHECK(send_some(cf, &rc, 1, GN_SOLICITED));
	CHECK(cf_sync(cf));
	CHECK(write_imm(cf, &rc, GN_SOLICITED));
	CHECK(cf_sync(cf));
	return cf_sync(cf);
}

/* ---- 43 ---- */

#define TWO_CQS 2u

static bool two_cqs_a(struct cf *cf)
{
	struct gn_chan *chan;
	struct cf_rc rc[TWO_CQS];
	struct gn_cq *cq[TWO_CQS];
	struct gn_event ev;

	CHECK((chan = cf_make_chan(cf)));
	for (unsigned i = 0; i < TWO_CQS; i++) {
		CHECK((cq[i] = cf_make_cq(cf, 64, chan)));
		struct cf_rc_opts opts = {.send_cq = cq[i],
					  .recv_cq = cq[i],
					  .chan = chan,
					  .send_wr = 16,
					  .recv_wr = 16};
		CHECK(cf_rc_pair(cf, &opts, &rc[i]));
		CHECK(recv_burst(cf, &rc[i]));
		CHECK_INT(gn_cq_arm(cq[i], false), 0);
	}
	CHECK(expect_quiet(cf, chan));
	for (unsigned i = 0; i < TWO_CQS; i++) { /* one at a time: the other stays silent */
		CHECK(cf_sync(cf));
		CHECK(expect_cq_event(cf, chan, cq[i]));
		CHECK(poll_plain_ok(cf, cq[i], 1));
		CHECK(expect_quiet(cf, chan));
	}
	for (unsigned i = 0; i < TWO_CQS; i++)
		CHECK_INT(gn_cq_arm(cq[i], false), 0);
	CHECK(cf_sync(cf)); /* both: one event each, in any order */
	CHECK(cf_expect_event(cf, chan, GN_EVENT_CQ, &ev));
	CHECK(ev.cq == cq[0] || ev.cq == cq[1], "the event names neither cq");
	CHECK(expect_cq_event(cf, chan, cq[ev.cq == cq[0]]));
	for (unsigned i = 0; i < TWO_CQS; i++)
		CHECK(poll_plain_ok(cf, cq[i], 1));
	CHECK(expect_quiet(cf, chan));
	return cf_sync(cf);
}

static bool two_cqs_b(struct cf *cf)
{
	struct cf_rc rc[TWO_CQS];

	for (unsigned i = 0; i < TWO_CQS; i++)
		CHECK(cf_rc_pair(cf, NULL, &rc[i]));
	for (unsigned i = 0; i < TWO_CQS; i++) {
		CHECK(cf_sync(cf));
		CHECK(send_some(cf, &rc[i], 1, 0));
	}
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < TWO_CQS; i++)
		CHECK(send_some(cf, &rc[i], 1, 0));
	return cf_sync(cf);
}

/* ---- 44 ---- */

#define DESTROY_ROUNDS 50u

/* A cq dies with its event untaken, and in every second round with its completions unpolled too. */
static bool unconsumed_round(struct cf *cf, struct gn_chan *chan, unsigned round)
{
	struct gn_wait_item item = gn_wait_on(gn_chan_source(chan));
	struct gn_event ev;
	struct cf_rc rc;
	struct gn_cq *cq;
	int rc_wait;

	CHECK((cq = cf_make_cq(cf, 64, chan)));
	struct cf_rc_opts opts = {
		.send_cq = cq, .recv_cq = cq, .chan = chan, .send_wr = 16, .recv_wr = 16};
	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(recv_burst(cf, &rc));
	CHECK_INT(gn_cq_arm(cq, false), 0);
	CHECK(cf_sync(cf));
	do
		rc_wait = gn_wait(&item, 1, cf_deadline(cf), "an event, to leave it");
	while (rc_wait == 0 || rc_wait == -EINTR);
	CHECK_INT(rc_wait, 1);
	if (round % 2)
		CHECK(poll_plain_ok(cf, cq, BURST));
	CHECK(cf_sync(cf));
	CHECK(cf_rc_close(cf, &rc));
	CHECK(cf_destroy(cf, cq));
	CHECK_INT(gn_chan_next(chan, &ev), -EAGAIN);
	return true;
}

static bool unconsumed_a(struct cf *cf)
{
	struct gn_chan *chan;

	CHECK((chan = cf_make_chan(cf)));
	for (unsigned i = 0; cf_more_both(cf, i, DESTROY_ROUNDS); i++)
		CHECK(unconsumed_round(cf, chan, i));
	return cf_destroy(cf, chan);
}

static bool unconsumed_b(struct cf *cf)
{
	struct cf_rc rc;

	for (unsigned i = 0; cf_more_both(cf, i, DESTROY_ROUNDS); i++) {
		CHECK(cf_rc_pair(cf, NULL, &rc));
		CHECK(cf_sync(cf));
		for (unsigned n = 0; n < BURST; n++)
			CHECK(cf_send(cf, &rc, n, 0, MSG_BYTES, 0));
		CHECK(cf_sync(cf));
		CHECK(cf_rc_close(cf, &rc));
	}
	return true;
}

/* ---- 45 ---- */

#define OVERRUN_DEPTH 4u
#define OVERRUN_BY    32u

/*
 * The event comes without a poll, which would free entries. Others, as DISCONNECTED, may come too.
 */
static bool expect_overrun(struct cf *cf, struct gn_chan *chan, struct gn_cq *cq)
{
	const uint64_t deadline_ns = cf_deadline(cf);
	const uint32_t depth = gn_cq_depth(cq);
	struct gn_event ev;
	struct gn_wc wc;
	uint32_t polled = 0;
	int n;

	do {
		n = gn_chan_wait(chan, deadline_ns, &ev);
		CHECK(n == 0, "no overrun event: %s", gn_strerror(n));
	} while (ev.type != GN_EVENT_CQ_OVERRUN);
	CHECK(ev.cq == cq, "the event names another cq");
	while ((n = gn_cq_poll(cq, &wc, 1)) == 1)
		CHECK(++polled <= depth, "a cq of depth %u held more", depth);
	CHECK_INT(n, -EOVERFLOW);
	CHECK_INT(gn_cq_poll(cq, &wc, 1), -EOVERFLOW);
	return true;
}

static bool overrun_a(struct cf *cf)
{
	struct cf_rc busy, idle, other;
	struct gn_chan *chan;
	struct gn_cq *cq, *recv_cq;
	struct gn_sge sge;
	struct gn_wr wr;
	uint32_t n;

	CHECK((chan = cf_make_chan(cf)));
	CHECK((cq = cf_make_cq(cf, OVERRUN_DEPTH, chan)));
	CHECK((recv_cq = cf_make_cq(cf, 64, chan)));
	n = gn_cq_depth(cq) + OVERRUN_BY;
	CHECK(n >= OVERRUN_DEPTH + OVERRUN_BY && n <= cf->attr.max_send_wr, "cq depth %u",
	      gn_cq_depth(cq));
	struct cf_rc_opts opts = {
		.send_cq = cq, .recv_cq = recv_cq, .chan = chan, .send_wr = n, .recv_wr = 16};
	CHECK(cf_rc_pair(cf, &opts, &busy));
	CHECK(cf_rc_pair(cf, &opts, &idle));
	CHECK(cf_rc_pair(cf, NULL, &other));

	sge = cf_sge(&busy, 0, MSG_BYTES);
	for (uint32_t i = 0; i < n; i++) {
		gn_wr_rdma(&wr, GN_OP_WRITE, i, &sge, &busy.peer, 0, GN_SIGNALED);
		CHECK(cf_post(cf, busy.qp, &wr));
	}
	CHECK(expect_overrun(cf, chan, cq));
	CHECK(cf_expect_state(cf, busy.qp, GN_QP_ERROR));
	CHECK(cf_expect_state(cf, idle.qp, GN_QP_ERROR));

	cf_fill(cf, other.buf, other.buf_bytes, 45);
	CHECK(cf_write(cf, &other, 1, 0, 0, (uint32_t)other.buf_bytes, GN_SIGNALED));
	CHECK(cf_expect_wc(cf, other.send_cq, 1, GN_WC_OK));
	CHECK(cf_publish(cf, &other));
	return cf_sync(cf);
}

static bool overrun_b(struct cf *cf)
{
	struct cf_rc busy, idle, other;

	CHECK(cf_rc_pair(cf, NULL, &busy));
	CHECK(cf_rc_pair(cf, NULL, &idle));
	CHECK(cf_rc_pair(cf, NULL, &other));
	CHECK(cf_observe(cf, &other));
	CHECK(cf_check_fill(cf, other.buf, other.buf_bytes, 45));
	return cf_sync(cf);
}

/* ---- 47 ---- */

#define POLL_TOTAL 10u
#define POLL_MOST  3
#define BAD_ID	   0xfedcba9876543210u

/* Never more than requested, in order, and nothing stored beyond the returned ones. */
static bool poll_in_threes(struct cf *cf, struct cf_rc *rc)
{
	const uint64_t deadline_ns = cf_deadline(cf);
	struct gn_wc wc[POLL_MOST + 1], blank;
	unsigned got = 0;
	int n;

	memset(&blank, 0xa5, sizeof(blank));
	while (got < POLL_TOTAL && gn_now_ns() < deadline_ns) {
		for (int i = 0; i <= POLL_MOST; i++)
			wc[i] = blank;
		n = gn_cq_poll(rc->recv_cq, wc, POLL_MOST);
		CHECK(n >= 0 && n <= POLL_MOST, "gn_cq_poll is %d", n);
		CHECK(!memcmp(&wc[POLL_MOST], &blank, sizeof(blank)), "stored beyond the array");
		for (int i = 0; i < n; i++, got++) {
			CHECK_INT(wc[i].id, got);
			CHECK_INT(wc[i].status, GN_WC_OK);
			CHECK_INT(wc[i].op, GN_OP_RECV);
			CHECK_INT(wc[i].len_bytes, MSG_BYTES);
			CHECK(wc[i].qp == rc->qp, "another qp");
		}
		if (n == 0)
			gn_sleep_us(POLL_GAP_US);
	}
	CHECK_INT(got, POLL_TOTAL);
	CHECK_INT(gn_cq_poll(rc->recv_cq, wc, POLL_MOST), 0);
	return true;
}

static bool poll_a(struct cf *cf)
{
	struct cf_rc rc;
	struct gn_sge sge;
	struct gn_wr wr;
	struct gn_wc wc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (unsigned i = 0; i < POLL_TOTAL; i++)
		CHECK(cf_recv(cf, &rc, i, i * MSG_BYTES, MSG_BYTES));
	CHECK(cf_sync(cf));
	CHECK(poll_in_threes(cf, &rc));
	CHECK(cf_sync(cf)); /* B has its completions: the connection may fail now */

	CHECK(cf_recv(cf, &rc, 7, 0, MSG_BYTES));
	sge = cf_sge(&rc, 0, MSG_BYTES);
	gn_wr_rdma(&wr, GN_OP_WRITE, BAD_ID, &sge, &rc.peer, rc.peer.length, 0);
	CHECK(cf_post(cf, rc.qp, &wr));
	CHECK(cf_poll_one(cf, rc.send_cq, &wc));
	CHECK(wc.id == BAD_ID, "id %llx", (unsigned long long)wc.id);
	CHECK_INT(wc.status, GN_WC_REMOTE_ACCESS);
	CHECK(wc.qp == rc.qp, "another qp");
	CHECK(strcmp(gn_wc_status_str(wc.status), gn_wc_status_str(GN_WC_OK)),
	      "no text of its own");
	CHECK(cf_poll_one(cf, rc.recv_cq, &wc));
	CHECK_INT(wc.id, 7);
	CHECK_INT(wc.status, GN_WC_FLUSHED);
	CHECK(wc.qp == rc.qp, "another qp");
	return cf_sync(cf);
}

static bool poll_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_sync(cf));
	CHECK(send_some(cf, &rc, POLL_TOTAL, 0));
	CHECK(cf_sync(cf));
	return cf_sync(cf);
}

const struct cf_case cf_cases_events[] = {
	{40, "an arm gives one event, no arm none", once_a, once_b, 0, 0},
	{41, "arm races with arrival", race_a, race_b, 0, 0},
	{42, "solicited-only arm", solicited_a, solicited_b, 0, 0},
	{43, "two cqs on one channel", two_cqs_a, two_cqs_b, 0, 0},
	{44, "cq destroyed with unconsumed events", unconsumed_a, unconsumed_b, 0, 0},
	{45, "cq overrun", overrun_a, overrun_b, 0, 0},
	{47, "poll returns at most n, errors their fields", poll_a, poll_b, 0, 0},
	{0},
};
