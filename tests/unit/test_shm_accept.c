/* SPDX-License-Identifier: MIT */
/*
 * Connections that another thread than their owner accepts and tears down: one thread accepts for a
 * cq that a second one polls, arms and sleeps on, and a third destroys what the owner has detached,
 * while clients connect, write, disconnect, leave without a word and die. Run it under the thread
 * sanitizer, too.
 */
#include "shm_side.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define ADDR	 "shm:accept-test"
#define CONNS	 2000u
#define CLIENTS	 3u /* threads that make them, one at a time each */
#define CHILDREN 8u /* processes that make one each, and are killed with it */
#define RECVS	 4u
#define DEPTH	 16384u /* for the receives of every connection */
#define IMM	 0x1234u

/* One connection, as the server sees it. The acceptor's until gn_accept() is called. */
struct guest {
	struct gn_qp *qp;
	unsigned established, got, flushed, gone;
	bool done, detached;
	struct guest *next_done;
};

struct server {
	struct side side;
	struct gn_cq *cq;
	struct gn_chan *door;
	struct gn_listener *listener;
	struct gn_queue *leaving; /* qps, from the owner to the cleaner */
	struct gn_queue *bell;	  /* the acceptor has stopped */
	struct gn_thread *acceptor, *cleaner;
	struct guest guest[CONNS + CHILDREN];
	unsigned accepted, aborted; /* the acceptor's, until it has stopped */
	bool stopped;		    /* atomic: the acceptor has */
	bool owner_done;	    /* atomic */
	unsigned detached, got, destroyed;
	struct guest *done; /* to be detached once no completion of them is in our hands */
	int acceptor_rc, cleaner_rc;
	const char *wrong;
	uint64_t seed;
};

/* ---- the acceptor: makes every connection ready ---- */

static int post_receives(struct server *s, struct gn_qp *qp)
{
	int rc = 0;

	for (unsigned i = 0; i < RECVS && !rc; i++)
		rc = side_recv(&s->side, qp, i, 0, 8);
	return rc;
}

static int accept_one(struct server *s, struct gn_conn_req *req)
{
	struct guest *guest = &s->guest[s->accepted];
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = GN_QP_RC,
				  .send_cq = s->cq,
				  .recv_cq = s->cq,
				  .chan = s->side.chan,
				  .max_recv_wr = RECVS,
				  .max_inline = 8,
				  .user = guest};
	struct gn_conn_opts conn = {.size = sizeof(conn), .timeout_us = 0};
	struct gn_remote remote;
	struct gn_qp *qp;
	int rc = gn_mr_remote(s->side.mr, &remote);

	if (!rc)
		rc = gn_qp_create(s->side.pd, &opts, &qp);
	if (!rc)
		rc = post_receives(s, qp);
	if (rc) {
		gn_reject(req, NULL, 0);
		return rc;
	}
	conn.private_data = &remote;
	conn.private_len = sizeof(remote);
	guest->qp = qp;
	rc = gn_accept(req, qp, &conn);
	if (!rc) {
		s->accepted++;
		return 0;
	}
	s->aborted++;
	rc = rc == -ECONNABORTED ? 0 : rc;
	return gn_qp_destroy(qp) ?: rc;
}

static void acceptor_main(void *arg)
{
	struct server *s = arg;
	struct gn_event ev;
	int rc;

	for (;;) {
		rc = gn_chan_wait(s->door, gn_deadline_us(UNIT_PATIENCE_US), &ev);
		if (rc == -EINTR)
			continue;
		if (rc || ev.private_len) /* the last one */
			break;
		rc = accept_one(s, ev.req);
		if (rc)
			break;
	}
	if (!rc)
		gn_reject(ev.req, NULL, 0);
	s->acceptor_rc = rc;
	__atomic_store_n(&s->stopped, true, __ATOMIC_RELEASE);
	gn_queue_push(s->bell, s);
}

/* ---- the cleaner: destroys what the owner has detached ---- */

static void cleaner_main(void *arg)
{
	struct server *s = arg;
	struct gn_wait_item item = gn_wait_on(gn_queue_source(s->leaving));

	for (;;) {
		const bool last = __atomic_load_n(&s->owner_done, __ATOMIC_ACQUIRE);
		struct gn_qp *qp = gn_queue_pop(s->leaving);
		int rc;

		if (!qp && last)
			return;
		if (!qp) {
			gn_wait(&item, 1, gn_deadline_us(1000), "a qp to destroy");
			continue;
		}
		while ((rc = gn_qp_destroy_try(qp)) == -EAGAIN)
			gn_yield();
		s->destroyed++;
		if (rc)
			s->cleaner_rc = rc;
	}
}

/* ---- the owner: polls, sleeps, is busy with other things ---- */

static void note_if_done(struct server *s, struct guest *guest)
{
	if (guest->established > 1 || guest->gone > 1 || guest->got + guest->flushed > RECVS)
		s->wrong = "an event or a completion came twice";
	if (guest->done || !guest->established || !guest->gone ||
	    guest->got + guest->flushed < RECVS)
		return;
	guest->done = true;
	guest->next_done = s->done;
	s->done = guest;
}

static void detach_done(struct server *s)
{
	for (; s->done; s->done = s->done->next_done) {
		s->done->detached = true;
		s->detached++;
		s->got += s->done->got;
		if (gn_qp_detach(s->done->qp))
			s->wrong = "gn_qp_detach";
		if (gn_queue_push(s->leaving, s->done->qp))
			s->wrong = "the queue is full";
	}
}

static void take_completion(struct server *s, const struct gn_wc *wc)
{
	struct guest *guest = gn_qp_user(wc->qp);
	struct gn_sge sge = {s->side.buf, 8, 0};
	struct gn_wr wr;

	if (!guest || guest->qp != wc->qp || guest->detached) {
		s->wrong = "a completion of a qp that is not ours";
		return;
	}
	if (wc->status == GN_WC_OK && wc->op == GN_OP_RECV_WRITE_IMM) {
		if (wc->imm != IMM)
			s->wrong = "another immediate";
		guest->got++;
		gn_wr_send(&wr, 99, &sge, GN_INLINE);
		gn_post_send(wc->qp, &wr, NULL); /* the client may have disconnected */
	} else if (wc->id != 99) {
		guest->flushed++;
	}
	note_if_done(s, guest);
}

static void take_event(struct server *s, const struct gn_event *ev)
{
	struct guest *guest;

	if (ev->type == GN_EVENT_CQ)
		return;
	guest = ev->qp ? gn_qp_user(ev->qp) : NULL;
	if (!guest || guest->qp != ev->qp || guest->detached) {
		s->wrong = "an event of a qp that is not ours";
		return;
	}
	if (ev->type == GN_EVENT_ESTABLISHED)
		guest->established++;
	else if (ev->type == GN_EVENT_DISCONNECTED)
		guest->gone++;
	else
		s->wrong = gn_event_str(ev->type);
	if (guest->gone && !guest->established)
		s->wrong = "DISCONNECTED before ESTABLISHED";
	note_if_done(s, guest);
}

static bool take_all(struct server *s)
{
	struct gn_wc wc[16];
	struct gn_event ev;
	bool any = false;
	int n;

	while ((n = gn_cq_poll(s->cq, wc, 16)) > 0) {
		any = true;
		for (int i = 0; i < n; i++)
			take_completion(s, &wc[i]);
		detach_done(s);
	}
	if (n < 0)
		s->wrong = "gn_cq_poll";
	while (!gn_chan_next(s->side.chan, &ev)) {
		any = true;
		take_event(s, &ev);
		detach_done(s);
	}
	while (s->side.cq_chan != s->side.chan && !gn_chan_next(s->side.cq_chan, &ev)) {
		any = true; /* its completion may have come after the poll */
		take_event(s, &ev);
	}
	return any;
}

/* Nothing is there: sleep in one of the ways there are. The clients wait for us meanwhile. */
static void sleep_some_way(struct server *s)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_wait_item items[] = {gn_wait_on(gn_chan_source(s->side.chan)),
				       gn_wait_on(gn_cq_source(s->cq)),
				       gn_wait_on(gn_queue_source(s->bell))};
	int rc;

	if (unit_next(&s->seed) % 2) { /* armed, asleep on channels only */
		gn_cq_arm(s->cq, false);
		items[1] = gn_wait_on(gn_chan_source(s->side.cq_chan));
	}
	if (take_all(s))
		return;
	rc = gn_wait(items, 3, deadline_ns, "something to do");
	if (rc < 0 && rc != -EINTR)
		s->wrong = "nothing happens any more";
}

static void serve(struct server *s)
{
	while (!s->wrong) {
		const bool last = __atomic_load_n(&s->stopped, __ATOMIC_ACQUIRE);

		if (last && s->detached == s->accepted)
			return;
		if (last)
			gn_queue_pop(s->bell); /* it keeps waking otherwise */
		switch (unit_next(&s->seed) % 4) {
		case 0:
			for (unsigned i = 0; i < 200; i++)
				take_all(s);
			break;
		case 1: /* a long handler */
			gn_sleep_us(500);
			break;
		default:
			if (!take_all(s))
				sleep_some_way(s);
		}
	}
}

/* ---- clients ---- */

enum fate { ECHO_AND_DISCONNECT, ECHO_AND_VANISH, SEND_AND_VANISH, VANISH, FATES };

struct client {
	struct side side;
	struct gn_thread *thread;
	unsigned conns, sent;
	uint64_t seed;
	int rc;
};

/* One WRITE with immediate, and with echo the server's answer to it. */
static int say_hello(struct client *c, struct gn_qp *qp, const struct gn_remote *remote, bool echo)
{
	struct gn_sge sge = {c->side.buf, 8, gn_mr_lkey(c->side.mr)};
	struct gn_wc wc;
	struct gn_wr wr;
	int rc = side_recv(&c->side, qp, 1, 64, 8);

	gn_wr_rdma(&wr, GN_OP_WRITE_IMM, 2, &sge, remote, 0, GN_SIGNALED);
	wr.imm = IMM;
	rc = rc ?: gn_post_send(qp, &wr, NULL);
	for (int left = echo ? 2 : 1; left && !rc; left--) {
		rc = gn_cq_wait(c->side.cq, &wc, 1, gn_deadline_us(UNIT_PATIENCE_US), "an answer");
		rc = rc < 0 ? rc : wc.status == GN_WC_OK ? 0 : -EPROTO;
	}
	c->sent += !rc;
	return rc;
}

static int live_one(struct client *c, enum fate fate)
{
	struct gn_qp *qp = side_qp(&c->side, GN_QP_RC);
	struct gn_remote remote;
	struct gn_event ev;
	int rc;

	if (fate == VANISH) {
		rc = gn_connect(qp, ADDR, NULL);
		return gn_qp_destroy(qp) ?: rc;
	}
	rc = gn_connect_wait(qp, ADDR, NULL, &ev);
	if (!rc) {
		memcpy(&remote, ev.private_data, sizeof(remote));
		rc = say_hello(c, qp, &remote, fate != SEND_AND_VANISH);
	}
	if (!rc && fate == ECHO_AND_DISCONNECT)
		rc = gn_disconnect(qp);
	return gn_qp_destroy(qp) ?: rc;
}

static void client_main(void *arg)
{
	struct client *c = arg;

	while (c->conns-- && !c->rc)
		c->rc = live_one(c, unit_next(&c->seed) % FATES);
}

/* A process that dies with its connection. It has no threads yet, and nothing of the fabric. */
static pid_t start_child(int *go)
{
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct client c = {.rc = 0};
		struct gn_remote remote;
		struct gn_event ev;
		struct gn_qp *qp;
		char byte;

		close(fds[1]);
		if (read(fds[0], &byte, 1) != 1)
			_exit(1);
		side_make(&c.side);
		qp = side_qp(&c.side, GN_QP_RC);
		if (gn_connect_wait(qp, ADDR, NULL, &ev))
			_exit(2);
		memcpy(&remote, ev.private_data, sizeof(remote));
		if (!say_hello(&c, qp, &remote, true))
			raise(SIGKILL);
		_exit(3);
	}
	close(fds[0]);
	*go = fds[1];
	return pid;
}

/* ---- the test ---- */

static unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void server_make(struct server *s, bool cq_apart)
{
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = DEPTH};

	side_make_as(&s->side, 0, cq_apart);
	cq.chan = s->side.cq_chan;
	assert_int_equal(gn_cq_create(s->side.ctx, &cq, &s->cq), 0);
	assert_int_equal(gn_chan_create(s->side.ctx, &s->door), 0);
	assert_int_equal(gn_listener_create(s->side.ctx, ADDR, s->door, 0, &s->listener), 0);
	assert_int_equal(gn_queue_create(CONNS + CHILDREN, &s->leaving), 0);
	assert_int_equal(gn_queue_create(2, &s->bell), 0);
	assert_int_equal(gn_thread_start("acceptor", acceptor_main, s, &s->acceptor), 0);
	assert_int_equal(gn_thread_start("cleaner", cleaner_main, s, &s->cleaner), 0);
}

/* Told apart by its private data, and behind all others: the acceptor stops. */
static void stop_acceptor(struct client *c)
{
	const struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = "end", .private_len = 3};
	struct gn_qp *qp = side_qp(&c->side, GN_QP_RC);

	assert_int_equal(gn_connect_wait(qp, ADDR, &opts, NULL), -ECONNREFUSED);
	assert_int_equal(gn_qp_destroy(qp), 0);
}

struct crowd {
	struct client client[CLIENTS];
	pid_t child[CHILDREN];
	int go[CHILDREN];
	unsigned killed;
};

/* Everything that comes to the server, and then its end. */
static void crowd_main(void *arg)
{
	struct crowd *crowd = arg;

	for (unsigned i = 0; i < CLIENTS; i++)
		gn_thread_start("client", client_main, &crowd->client[i], &crowd->client[i].thread);
	for (unsigned i = 0; i < CHILDREN; i++) {
		int status;

		if (write(crowd->go[i], "g", 1) == 1 &&
		    waitpid(crowd->child[i], &status, 0) == crowd->child[i] && WIFSIGNALED(status))
			crowd->killed++;
		close(crowd->go[i]);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		gn_thread_join(crowd->client[i].thread);
	stop_acceptor(&crowd->client[0]);
}

static void run(bool cq_apart)
{
	struct server *s = gn_alloc(sizeof(*s), 0);
	struct crowd *crowd = gn_alloc(sizeof(*crowd), 0);
	struct gn_thread *thread;
	struct gn_counters count = {.size = sizeof(count)};
	struct pair warm;
	uint64_t deadline_ns;
	unsigned fds, sent;

	assert_non_null(s);
	assert_non_null(crowd);
	s->seed = unit_seed();
	for (unsigned i = 0; i < CHILDREN; i++)
		crowd->child[i] = start_child(&crowd->go[i]);
	pair_make(&warm, ADDR "-warm", NULL); /* what the provider makes once and keeps */
	pair_free(&warm);
	fds = open_fds();
	for (unsigned i = 0; i < CLIENTS; i++) {
		side_make(&crowd->client[i].side);
		crowd->client[i].conns = CONNS / CLIENTS;
		crowd->client[i].seed = s->seed + 1 + i;
	}
	gn_log_level_set(GN_LOG_ERROR); /* clients leave before they are accepted */
	server_make(s, cq_apart);
	assert_int_equal(gn_thread_start("crowd", crowd_main, crowd, &thread), 0);
	serve(s);
	if (s->wrong)
		fail_msg("%s", s->wrong);
	deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	gn_thread_join(thread);
	gn_thread_join(s->acceptor);
	assert_int_equal(s->acceptor_rc, 0);
	assert_int_equal(crowd->killed, CHILDREN);
	sent = CHILDREN;
	for (unsigned i = 0; i < CLIENTS; i++) {
		assert_int_equal(crowd->client[i].rc, 0);
		sent += crowd->client[i].sent;
	}
	printf("# %u accepted, %u given up before, %u messages\n", s->accepted, s->aborted, s->got);
	assert_int_equal(s->accepted + s->aborted, CONNS / CLIENTS * CLIENTS + CHILDREN);
	assert_int_equal(s->got, sent);
	__atomic_store_n(&s->owner_done, true, __ATOMIC_RELEASE);
	gn_thread_join(s->cleaner);
	assert_int_equal(s->cleaner_rc, 0);
	assert_int_equal(s->destroyed, s->accepted);
	assert_int_equal(gn_fabric_counters(s->side.fabric, &count), 0);
	assert_int_equal(count.inbound, sent);
	gn_queue_destroy(s->bell);
	gn_queue_destroy(s->leaving);
	assert_int_equal(gn_listener_destroy(s->listener), 0);
	assert_int_equal(gn_chan_destroy(s->door), 0);
	assert_int_equal(gn_cq_destroy(s->cq), 0);
	side_free(&s->side);
	for (unsigned i = 0; i < CLIENTS; i++)
		side_free(&crowd->client[i].side);
	/* What peers sent is closed by a thread of its own. */
	while (open_fds() != fds - CHILDREN && gn_now_ns() < deadline_ns)
		gn_sleep_us(1000);
	assert_int_equal(open_fds(), fds - CHILDREN);
	gn_log_level_set(GN_LOG_WARN);
	gn_free(crowd);
	gn_free(s);
}

/* ---- an owner that sleeps on its cq only, whose channel is another than the qp's ---- */

struct sleeper {
	struct side *side;
	bool arms; /* and sleeps on the channel; else gn_cq_wait() */
	int got;
	struct gn_wc wc;
};

static void sleeper_main(void *arg)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct sleeper *s = arg;
	struct gn_event ev;

	if (!s->arms) {
		s->got = gn_cq_wait(s->side->cq, &s->wc, 1, deadline_ns, "a message");
		return;
	}
	do {
		gn_cq_arm(s->side->cq, false);
		s->got = gn_cq_poll(s->side->cq, &s->wc, 1);
		if (!s->got && gn_chan_wait(s->side->cq_chan, deadline_ns, &ev))
			s->got = -ETIMEDOUT;
	} while (!s->got);
}

static void sleep_apart(bool arms)
{
	struct gn_thread *thread;
	struct sleeper sleeper;
	struct gn_event ev;
	struct pair p;

	side_make(&p.client);
	side_make_as(&p.server, 0, true);
	sleeper = (struct sleeper){.side = &p.server, .arms = arms};
	assert_int_equal(gn_listener_create(p.server.ctx, ADDR, p.server.chan, 0, &p.listener), 0);
	p.c = side_qp(&p.client, GN_QP_RC);
	assert_int_equal(gn_connect(p.c, ADDR, NULL), 0);
	assert_int_equal(gn_chan_wait(p.server.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	assert_int_equal(gn_thread_start("sleeper", sleeper_main, &sleeper, &thread), 0);
	gn_sleep_us(20000); /* asleep, most likely; it must be right in any case */
	p.s = side_qp(&p.server, GN_QP_RC);
	assert_int_equal(side_recv(&p.server, p.s, 1, 0, 8), 0);
	assert_int_equal(gn_accept(ev.req, p.s, NULL), 0);
	assert_int_equal(gn_chan_wait(p.client.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	assert_int_equal(side_send(&p.client, p.c, 2, 0, 8), 0);
	gn_thread_join(thread);
	assert_int_equal(sleeper.got, 1);
	assert_int_equal(sleeper.wc.status, GN_WC_OK);
	assert_ptr_equal(sleeper.wc.qp, p.s);
	pair_free(&p);
}

static void asleep_on_cq(void **state)
{
	(void)state;
	sleep_apart(false);
	sleep_apart(true);
}

/* ---- the owner has no descriptors left ---- */

static void say_nothing(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	(void)line;
}

/* The client sees a connection that breaks, not one that hangs. */
static void unwatched(void **state)
{
	struct rlimit limit, none;
	struct gn_event ev;
	struct pair p;
	struct gn_wc wc;
	int got;

	(void)state;
	side_make(&p.client);
	side_make(&p.server);
	assert_int_equal(gn_listener_create(p.server.ctx, ADDR, p.server.chan, 0, &p.listener), 0);
	p.s = side_qp(&p.server, GN_QP_RC);
	p.c = side_qp(&p.client, GN_QP_RC);
	assert_int_equal(side_recv(&p.server, p.s, 1, 0, 8), 0);
	assert_int_equal(gn_connect(p.c, ADDR, NULL), 0);
	assert_int_equal(gn_chan_wait(p.server.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	assert_int_equal(gn_accept(ev.req, p.s, NULL), 0);
	/* The cq makes its epoll set with its first connection. */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	gn_log_to(say_nothing, NULL);
	got = gn_cq_poll(p.server.cq, &wc, 1);
	gn_log_to(NULL, NULL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(got, 1);
	assert_int_equal(wc.status, GN_WC_FLUSHED);
	assert_int_equal(gn_chan_next(p.server.chan, &ev), 0);
	assert_int_equal(ev.type, GN_EVENT_ESTABLISHED);
	assert_int_equal(gn_chan_next(p.server.chan, &ev), 0);
	assert_int_equal(ev.type, GN_EVENT_DISCONNECTED);
	assert_int_equal(gn_chan_next(p.server.chan, &ev), -EAGAIN);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(gn_chan_wait(p.client.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev),
				 0);
		assert_int_equal(ev.type, i ? GN_EVENT_DISCONNECTED : GN_EVENT_ESTABLISHED);
	}
	pair_free(&p);
}

static void one_channel(void **state)
{
	(void)state;
	run(false);
}

static void channels_apart(void **state)
{
	(void)state;
	run(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(asleep_on_cq, side_folder_make, side_folder_remove),
		cmocka_unit_test_setup_teardown(unwatched, side_folder_make, side_folder_remove),
		cmocka_unit_test_setup_teardown(one_channel, side_folder_make, side_folder_remove),
		cmocka_unit_test_setup_teardown(channels_apart, side_folder_make,
						side_folder_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
