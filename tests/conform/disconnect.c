/* SPDX-License-Identifier: MIT */
/*
 * Cases 67-70: how connections end. By a call on either side or both, by a peer's death in the
 * middle of a transfer, and what comes after: a new connection. Each request is accounted for
 * exactly once. The last case looks at a process that forks, which on some systems moves its
 * memory away from under the device.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform.h"

#define QUIET_US 2000u

/* ---- 67 ---- */

#define FLUSH_RECVS 8u
#define FLUSH_SENDS 4u
#define MSG_BYTES   64u

/*
 * The side that calls gn_disconnect() in round i / 2; side i % 2 has outstanding requests in round
 * i.
 */
static bool leaves(const struct cf *cf, unsigned i)
{
	const bool both = i / 2 == 2;

	return both || i / 2 == (unsigned)cf->role;
}

#define LEAVE_ROUNDS 6u

/* One DISCONNECTED on each side, whichever side disconnected. */
static bool expect_gone(struct cf *cf, struct cf_rc *rc)
{
	struct gn_event ev;

	CHECK(cf_expect_event(cf, rc->chan, GN_EVENT_DISCONNECTED, &ev));
	CHECK(ev.qp == rc->qp, "the event names another qp");
	CHECK(cf_expect_state(cf, rc->qp, GN_QP_ERROR));
	return true;
}

static bool expect_no_more(struct cf *cf, struct cf_rc *rc)
{
	struct gn_event ev;

	CHECK(cf_expect_none(cf, rc->send_cq));
	CHECK(cf_expect_none(cf, rc->recv_cq));
	CHECK_INT(gn_chan_wait(rc->chan, gn_deadline_us(QUIET_US), &ev), -ETIMEDOUT);
	return true;
}

/* The peer may have stopped answering before this side knew: the first send may fail. */
static bool expect_sends_flushed(struct cf *cf, struct cf_rc *rc)
{
	struct gn_wc wc;

	CHECK(cf_poll_one(cf, rc->send_cq, &wc));
	CHECK_INT(wc.id, 0);
	CHECK(wc.status == GN_WC_FLUSHED || wc.status == GN_WC_RETRY, "%s",
	      gn_wc_status_str(wc.status));
	return cf_expect_flushed(cf, rc->send_cq, 1, FLUSH_SENDS - 1);
}

/* Later posts are flushed as well. */
static bool post_too_late(struct cf *cf, struct cf_rc *rc)
{
	CHECK(cf_recv(cf, rc, 100, 0, MSG_BYTES));
	CHECK(cf_send(cf, rc, 101, 0, MSG_BYTES, 0));
	CHECK(cf_write(cf, rc, 102, 0, 0, MSG_BYTES, GN_SIGNALED));
	CHECK(cf_expect_flushed(cf, rc->recv_cq, 100, 1));
	return cf_expect_flushed(cf, rc->send_cq, 101, 2);
}

static bool leave_round(struct cf *cf, unsigned i)
{
	/* The other side posts no receive; the sends wait for one longer than the round lasts. */
	struct gn_conn_opts conn = {
		.size = sizeof(conn), .rnr_retry = GN_RNR_RETRY_DEFAULT, .rnr_timer_us = 490000};
	struct cf_rc_opts opts = {.conn = &conn};
	const bool busy = i % 2 == (unsigned)cf->role;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	if (busy) {
		for (unsigned n = 0; n < FLUSH_RECVS; n++)
			CHECK(cf_recv(cf, &rc, n, n * MSG_BYTES, MSG_BYTES));
		for (unsigned n = 0; n < FLUSH_SENDS; n++)
			CHECK(cf_send(cf, &rc, n, 0, MSG_BYTES, n % 2 ? GN_SIGNALED : 0));
	}
	CHECK(cf_sync(cf));
	if (leaves(cf, i))
		CHECK_INT(gn_disconnect(rc.qp), 0);
	CHECK(expect_gone(cf, &rc));
	if (busy) {
		CHECK(expect_sends_flushed(cf, &rc));
		CHECK(cf_expect_flushed(cf, rc.recv_cq, 0, FLUSH_RECVS));
	}
	CHECK(post_too_late(cf, &rc));
	gn_disconnect(rc.qp); /* a second call has no effect, whatever it returns */
	CHECK(expect_no_more(cf, &rc));
	CHECK(cf_sync(cf));
	return cf_rc_close(cf, &rc);
}

static bool leave(struct cf *cf)
{
	for (unsigned i = 0; i < LEAVE_ROUNDS; i++)
		CHECK(leave_round(cf, i));
	return true;
}

/* A qp that is destroyed leaves too. */
static bool destroy_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(leave(cf));
	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_recv(cf, &rc, 0, 0, MSG_BYTES));
	CHECK(cf_sync(cf));
	CHECK(expect_gone(cf, &rc));
	CHECK(cf_expect_flushed(cf, rc.recv_cq, 0, 1));
	return expect_no_more(cf, &rc);
}

static bool destroy_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(leave(cf));
	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_sync(cf));
	return cf_destroy(cf, rc.qp);
}

/* ---- 68 ---- */

#define KILL_AFTER     500u /* messages that B sends before it dies */
#define KILL_DEPTH     16u  /* receives, and WRITEs, that A keeps outstanding */
#define KILL_MSG_BYTES 4096u
#define KILL_WRITE     32768u
#define KILL_PAUSE_US  500u /* between bursts of WRITEs: they cost no time at all in a simulation */
#define SHM_NOTICE_NS  UINT64_C(100000000) /* shm must detect a death while it is polled */

/* A connection of A with itself, to show that others go on. */
struct loop {
	struct gn_cq *cq;
	struct gn_qp *near, *far;
	struct gn_mr *mr;
	uint8_t *buf;
};

#define LOOP_BYTES 1024u

static bool loop_open(struct cf *cf, struct loop *loop)
{
	struct gn_qp_opts opts = {.size = sizeof(opts), .type = GN_QP_RC, .chan = cf->chan};
	char addr[CF_ADDR_MAX];
	unsigned established = 0;
	struct gn_event ev;
	struct gn_mem *mem;

	CHECK((loop->cq = cf_make_cq(cf, 512, NULL)));
	opts.send_cq = opts.recv_cq = loop->cq;
	CHECK((loop->near = cf_make_qp(cf, cf->pd, &opts)));
	CHECK((loop->far = cf_make_qp(cf, cf->pd, &opts)));
	CHECK((mem = cf_make_mem(cf, 2 * LOOP_BYTES, GN_REMOTE_WRITE)));
	CHECK((loop->mr = cf_make_mr(cf, cf->pd, mem, GN_LOCAL_WRITE | GN_REMOTE_WRITE)));
	loop->buf = gn_mem_addr(mem);
	CHECK(cf_make_listener(cf, cf_addr(cf, CF_A, 1, addr), cf->chan));
	CHECK_INT(gn_connect(loop->near, addr, NULL), 0);
	while (established < 2) {
		CHECK_INT(gn_chan_wait(cf->chan, cf_deadline(cf), &ev), 0);
		if (ev.type == GN_EVENT_CONNECT_REQUEST)
			CHECK_INT(gn_accept(ev.req, loop->far, NULL), 0);
		else
			CHECK(ev.type == GN_EVENT_ESTABLISHED, "%s", gn_event_str(ev.type));
		established += ev.type == GN_EVENT_ESTABLISHED;
	}
	return true;
}

/* A WRITE from the buffer's first half to its second, and a message that shows it. */
static bool loop_goes_on(struct cf *cf, struct loop *loop, uint64_t tag)
{
	struct gn_sge sge = {loop->buf, LOOP_BYTES, gn_mr_lkey(loop->mr)};
	struct gn_recv_wr recv = {.id = tag};
	struct gn_remote remote;
	struct gn_wr wr;

	CHECK_INT(gn_mr_remote(loop->mr, &remote), 0);
	cf_fill(cf, loop->buf, LOOP_BYTES, tag);
	CHECK_INT(gn_post_recv(loop->far, &recv, NULL), 0);
	gn_wr_rdma(&wr, GN_OP_WRITE_IMM, 0, &sge, &remote, LOOP_BYTES, 0);
	CHECK(cf_post(cf, loop->near, &wr));
	CHECK(cf_expect_wc(cf, loop->cq, tag, GN_WC_OK));
	return cf_check_fill(cf, loop->buf + LOOP_BYTES, LOOP_BYTES, tag);
}

/* One of A's two queues: ids are positions, so each must complete once and in order. */
struct ledger {
	struct gn_cq *cq;
	uint64_t posted, done, ok;
};

static bool account(struct cf *cf, struct ledger *ledger)
{
	struct gn_wc wc;
	int n = gn_cq_poll(ledger->cq, &wc, 1);

	CHECK(n >= 0, "%s", gn_strerror(n));
	if (n == 0)
		return true;
	CHECK(ledger->done < ledger->posted, "one completion too many");
	CHECK_INT(wc.id, ledger->done);
	if (ledger->ok < ledger->done)
		CHECK_INT(wc.status, GN_WC_FLUSHED);
	ledger->ok += wc.status == GN_WC_OK;
	ledger->done++;
	return true;
}

struct transfer {
	struct cf_rc rc;
	struct ledger sends, recvs;
	int pidfd; /* of B, or -1 */
	uint64_t died_ns, wrote_ns;
};

/* Only shm has a bound for this, and there B is a process of this machine. */
static bool watch_b(struct cf *cf, struct transfer *t)
{
	int32_t pid;

	CHECK(cf_hear(cf, &pid, sizeof(pid)));
	t->pidfd = -1;
	if (strcmp(cf->attr.provider, "shm"))
		return true;
	t->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	CHECK(t->pidfd >= 0, "pidfd_open: %s", strerror(errno));
	return true;
}

static void look_after_b(struct transfer *t)
{
	struct pollfd fd = {.fd = t->pidfd, .events = POLLIN};

	if (t->pidfd >= 0 && !t->died_ns && poll(&fd, 1, 0) == 1)
		t->died_ns = gn_now_ns();
}

static bool keep_busy(struct cf *cf, struct transfer *t)
{
	for (; t->recvs.posted < t->recvs.done + KILL_DEPTH; t->recvs.posted++)
		CHECK(cf_recv(cf, &t->rc, t->recvs.posted, 0, KILL_MSG_BYTES));
	if (gn_now_ns() - t->wrote_ns < KILL_PAUSE_US * 1000)
		return true;
	t->wrote_ns = gn_now_ns();
	for (; t->sends.posted < t->sends.done + KILL_DEPTH; t->sends.posted++)
		CHECK(cf_write(cf, &t->rc, t->sends.posted, 0, 0, KILL_WRITE, GN_SIGNALED));
	return true;
}

static bool broken(const struct transfer *t)
{
	return t->sends.ok < t->sends.done || t->recvs.ok < t->recvs.done;
}

/* Until there is something to account for, or to write. */
static void rest(struct transfer *t)
{
	struct gn_wait_item items[] = {gn_wait_on(gn_cq_source(t->sends.cq)),
				       gn_wait_on(gn_cq_source(t->recvs.cq))};

	gn_wait(items, 2, gn_deadline_us(KILL_PAUSE_US), "the end of a transfer");
}

/* Transfers until B is dead, and then until everything has come back. */
static bool outlive(struct cf *cf, struct transfer *t)
{
	uint64_t deadline_ns = cf_deadline(cf), received = 0;

	while (!broken(t) || t->sends.done < t->sends.posted || t->recvs.done < t->recvs.posted) {
		if (!broken(t))
			CHECK(keep_busy(cf, t));
		CHECK(account(cf, &t->sends));
		CHECK(account(cf, &t->recvs));
		look_after_b(t);
		if (t->recvs.ok > received)
			deadline_ns = cf_deadline(cf);
		received = t->recvs.ok;
		CHECK(gn_now_ns() < deadline_ns,
		      "no end: %llu of %llu WRITEs, %llu of %llu receives came back",
		      (unsigned long long)t->sends.done, (unsigned long long)t->sends.posted,
		      (unsigned long long)t->recvs.done, (unsigned long long)t->recvs.posted);
		rest(t);
	}
	return true;
}

static bool survive(struct cf *cf, struct transfer *t, struct loop *loop)
{
	uint64_t late_ns;

	CHECK(outlive(cf, t));
	late_ns = t->died_ns ? gn_now_ns() - t->died_ns : 0;
	CHECK(late_ns < SHM_NOTICE_NS, "noticed after %llu us", (unsigned long long)late_ns / 1000);
	CHECK(t->recvs.ok <= KILL_AFTER, "more messages than were sent");
	CHECK(expect_gone(cf, &t->rc));
	CHECK(post_too_late(cf, &t->rc));
	CHECK(expect_no_more(cf, &t->rc));
	CHECK(loop_goes_on(cf, loop, 2));
	return true;
}

/*
 * B is faster than A and waits for receives. A guest without a processor for a while posts none,
 * which is not tested here; simulated processors are always available.
 */
#define KILL_RNR_US	490000u
#define KILL_RNR_SIM_US 1000u

static bool connect_killed(struct cf *cf, struct cf_rc *rc)
{
	const struct gn_conn_opts conn = {.size = sizeof(conn),
					  .rnr_retry = GN_RNR_RETRY_DEFAULT,
					  .rnr_timer_us = cf->sim ? KILL_RNR_SIM_US : KILL_RNR_US};
	const struct cf_rc_opts opts = {.conn = &conn};

	return cf_rc_pair(cf, &opts, rc);
}

static bool killed_a(struct cf *cf)
{
	struct transfer t = {.pidfd = -1};
	struct loop loop;
	bool ok;

	CHECK(loop_open(cf, &loop));
	CHECK(loop_goes_on(cf, &loop, 1));
	CHECK(connect_killed(cf, &t.rc));
	t.sends.cq = t.rc.send_cq;
	t.recvs.cq = t.rc.recv_cq;
	CHECK(watch_b(cf, &t));
	ok = keep_busy(cf, &t) && cf_sync(cf) && survive(cf, &t, &loop);
	if (t.pidfd >= 0)
		close(t.pidfd);
	return ok;
}

static bool killed_b(struct cf *cf)
{
	const int32_t pid = (int32_t)getpid();
	struct cf_rc rc;

	CHECK(connect_killed(cf, &rc));
	CHECK(cf_tell(cf, &pid, sizeof(pid)));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0; i < KILL_AFTER; i++) {
		CHECK(cf_send(cf, &rc, i, 0, KILL_MSG_BYTES, GN_SIGNALED));
		if (i >= KILL_DEPTH) /* so many are on their way at the end */
			CHECK(cf_expect_wc(cf, rc.send_cq, i - KILL_DEPTH, GN_WC_OK));
	}
	cf_die(cf);
}

/* ---- 69 ---- */

#define RECONNECTS 100u
#define NO_KEY	   0xdeadbeefu

/* Ends in a failed WRITE of A or B in turn, with flushed receives that are not polled. */
static bool fail_round(struct cf *cf, struct cf_rc *rc, unsigned i)
{
	char addr[CF_ADDR_MAX];
	struct gn_sge sge = cf_sge(rc, 0, MSG_BYTES);
	struct gn_remote nowhere = {.key = NO_KEY};
	struct gn_wr wr;

	for (unsigned n = 0; n < FLUSH_RECVS; n++)
		CHECK(cf_recv(cf, rc, n, 0, MSG_BYTES));
	CHECK(cf_sync(cf)); /* the other side has polled all that came before */
	if (i % 2 == (unsigned)cf->role) {
		gn_wr_rdma(&wr, GN_OP_WRITE, i, &sge, &nowhere, 0, 0);
		CHECK(cf_post(cf, rc->qp, &wr));
		CHECK(cf_expect_wc(cf, rc->send_cq, i, GN_WC_REMOTE_ACCESS));
		CHECK(cf_expect_state(cf, rc->qp, GN_QP_ERROR));
	}
	CHECK_INT(gn_connect(rc->qp, cf_addr(cf, CF_A, 0, addr), NULL), -EISCONN);
	return cf_sync(cf);
}

static bool works(struct cf *cf, struct cf_rc *rc, uint64_t tag)
{
	if (cf->role == CF_A) {
		cf_fill(cf, rc->buf, MSG_BYTES, tag);
		CHECK(cf_write(cf, rc, tag, 0, MSG_BYTES, MSG_BYTES, GN_SIGNALED));
		CHECK(cf_expect_wc(cf, rc->send_cq, tag, GN_WC_OK));
		return cf_publish(cf, rc);
	}
	CHECK(cf_observe(cf, rc));
	return cf_check_fill(cf, rc->buf + MSG_BYTES, MSG_BYTES, tag);
}

static bool reconnect(struct cf *cf)
{
	struct cf_rc first, rc;

	CHECK(cf_rc_pair(cf, NULL, &first)); /* its cqs, channel and buffer serve all the others */
	struct cf_rc_opts opts = {
		.send_cq = first.send_cq,
		.recv_cq = first.recv_cq,
		.chan = cf->chan,
		.buf_of = &first,
	};
	for (unsigned i = 0; cf_more_both(cf, i, RECONNECTS); i++) {
		CHECK(cf_rc_pair(cf, &opts, &rc));
		CHECK(works(cf, &rc, i));
		CHECK(fail_round(cf, &rc, i));
		CHECK(cf_rc_close(cf, &rc));
	}
	return works(cf, &first, RECONNECTS);
}

/* ---- 70 ---- */

#define FORK_BYTES  16384u
#define FORK_ROUNDS 10u
#define CHILD_TAG   UINT64_C(0xc41d)

static void child_fault(int sig)
{
	(void)sig;
	_exit(0);
}

/* The child scribbles over the memory, or finds none there. Nothing of ours is ended in it. */
static _Noreturn void child_main(const struct cf *cf, uint8_t *buf, const int wake[2])
{
	uint8_t scribble[256], byte;

	signal(SIGSEGV, child_fault);
	signal(SIGBUS, child_fault);
	close(wake[1]); /* a parent that gives up wakes us too */
	if (read(wake[0], &byte, 1) < 0)
		_exit(1);
	cf_fill(cf, scribble, sizeof(scribble), CHILD_TAG);
	for (size_t i = 0; i < FORK_BYTES; i += sizeof(scribble))
		memcpy(buf + i, scribble, sizeof(scribble));
	_exit(0);
}

/* In the parent all is as without a child: its own stores, B's WRITEs, its READs. */
static bool use_memory(struct cf *cf, struct cf_rc *rc, uint64_t tag)
{
	cf_fill(cf, rc->buf, FORK_BYTES,
		tag); /* where pages are copied on write, this moves ours */
	CHECK(cf_write(cf, rc, 1, 0, 0, FORK_BYTES, 0));
	memset(rc->buf + FORK_BYTES, 0, FORK_BYTES);
	CHECK(cf_read(cf, rc, 2, FORK_BYTES, 0, FORK_BYTES, GN_SIGNALED | GN_FENCE));
	CHECK(cf_expect_wc(cf, rc->send_cq, 2, GN_WC_OK));
	CHECK(cf_check_fill(cf, rc->buf + FORK_BYTES, FORK_BYTES, tag));
	CHECK(cf_sync(cf)); /* B writes into the buffer's third quarter */
	CHECK(cf_observe(cf, rc));
	CHECK(cf_check_fill(cf, rc->buf + 2 * FORK_BYTES, FORK_BYTES, ~tag));
	return cf_check_fill(cf, rc->buf, FORK_BYTES, tag);
}

static bool with_child(struct cf *cf, struct cf_rc *rc, const int wake[2], uint64_t tag)
{
	const uint8_t byte = 0;
	int status;
	pid_t pid;

	CHECK(use_memory(cf, rc, tag));
	pid = fork();
	CHECK(pid >= 0, "fork: %s", strerror(errno));
	if (pid == 0)
		child_main(cf, rc->buf, wake);
	CHECK(use_memory(cf, rc, tag + 1)); /* while the child has its copy */
	CHECK(write(wake[1], &byte, 1) == 1, "write: %s", strerror(errno));
	CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x", status);
	CHECK(cf_check_fill(cf, rc->buf, FORK_BYTES, tag + 1)); /* and after it scribbled */
	return use_memory(cf, rc, tag + 2);
}

static bool fork_a(struct cf *cf)
{
	struct cf_rc rc;
	int wake[2];
	bool ok = true;

	if (!cf->process)
		SKIP("side A is no process of its own");
	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(rc.buf_bytes >= 3 * FORK_BYTES);
	CHECK(pipe(wake) == 0, "pipe: %s", strerror(errno));
	for (uint64_t i = 0; ok && cf_more_both(cf, i, FORK_ROUNDS); i++)
		ok = with_child(cf, &rc, wake, 3 * i);
	close(wake[0]);
	close(wake[1]);
	return ok;
}

static bool fork_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, FORK_ROUNDS); i++)
		for (uint64_t tag = 3 * i; tag < 3 * i + 3; tag++) {
			CHECK(cf_sync(cf));
			cf_fill(cf, rc.buf + FORK_BYTES, FORK_BYTES, ~tag);
			CHECK(cf_write(cf, &rc, tag, FORK_BYTES, 2 * FORK_BYTES, FORK_BYTES, 0));
			CHECK(cf_publish(cf, &rc));
		}
	return true;
}

const struct cf_case cf_cases_disconnect[] = {
	{67, "disconnect from either side or both", destroy_a, destroy_b, 0, 0},
	{68, "the other side is killed mid-transfer", killed_a, killed_b, 0, CF_B_DIES},
	{69, "reconnect on a new qp after an error", reconnect, reconnect, 0, 0},
	{70, "a fork leaves registered memory alone", fork_a, fork_b, 0, 0},
	{0},
};
