/* SPDX-License-Identifier: MIT */
/* A server thread: a loop, what it does all day, and what it does when there is nothing to do. */
#include <errno.h>
#include <limits.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/deadline.h"
#include "base/owner.h"
#include "rpc/server.h"

#define AWAKE_NS     1000000u /* between two looks at clients that owe something */
#define PARKED_EVERY 10u      /* looks at a client, until one at a client that is parked */
#define END_WARN_US  1000000u /* of waiting for answers at the end, before the log says so */

static struct rpc_conn *conn_of(struct link_conn *link)
{
	return container_of(link, struct rpc_conn, link);
}

static struct rpc_thread *thread_of(struct link_loop *loop)
{
	return container_of(loop, struct rpc_thread, loop);
}

/* ---- what other threads ask ---- */

void rpc_thread_stop(struct link_task *task)
{
	container_of(task, struct rpc_thread, stop_task)->stop = true;
}

void rpc_thread_drain(struct link_task *task)
{
	struct rpc_thread *t = container_of(task, struct rpc_thread, drain_task);

	t->draining = true;
	for (struct rpc_conn *c = t->conns; c; c = c->next)
		rpc_conn_attend(c);
	for (struct rpc_conn *c = t->parked; c; c = c->next)
		rpc_conn_attend(c);
	t->known.method = UINT_MAX;    /* its handler is not to be called any more */
	link_loop_force_maintain(&t->loop); /* whoever waits is told in this turn */
}

/* ---- what the fabric says ---- */

/*
 * A client that was put aside is there, or one sleeps until this result is there. There must be a
 * receive for the next. One that asks all the time is told no more often than it takes to tell it.
 */
static void take_word(struct rpc_conn *c, uint32_t notify)
{
	link_conn_established(&c->link); /* or how could it send? The news of that may be lost. */
	rpc_conn_unpark(c);
	if (!c->dead && rpc_conn_recv(c))
		rpc_conn_fail(c);
	c->thread->watch_woken = true;
	if (!notify)
		return;
	c->notify = notify;
	rpc_conn_notify(c);
}

/* Handlers are not run from here: one of them may be what waits for a completion. */
static void take_piece(struct rpc_thread *t, struct gn_rpc_request *r)
{
	r->conn->reading--;
	if (r->conn->dead || r->fresh++)
		return;
	r->next = t->come;
	t->come = r;
}

/*
 * A reply has arrived: its slot is the server's again. The slot of an inline one has been all the
 * time, and another reply may be being written from it by now.
 */
static void take_written(struct rpc_conn *c, uint64_t id)
{
	bool *writing = &c->writing[rpc_reply_slot(id)];

	c->unsent -= !!(id & RPC_REPLY_SYNC);
	if (id & RPC_REPLY_INLINE)
		return;
	c->n_writing -= *writing;
	c->writes = c->n_writing;
	*writing = false;
	c->thread->written |= c->held != NULL;
}

static void completed(struct link_conn *link, const struct gn_wc *wc)
{
	struct rpc_conn *c = conn_of(link);

	if (wc->id == RPC_WAKE_ID) {
		take_word(c, wc->imm);
	} else if (wc->id == RPC_NOTIFY_ID) {
		c->notifying = false;
		rpc_conn_notify(c);
	} else if ((wc->id & RPC_ID_MASK) == RPC_REPLY_ID) {
		take_written(c, wc->id);
	} else {
		take_piece(c->thread, (struct gn_rpc_request *)(uintptr_t)wc->id);
	}
}

/*
 * A queue that is full has been done with, perhaps, and nobody has looked: behind what others left
 * in the cq when they went, which is less than its depth.
 */
int rpc_thread_post(struct rpc_conn *c, const struct gn_wr *wr, rpc_post_fn *post)
{
	struct link_loop *loop = &c->thread->loop;
	uint32_t left;
	int rc = post(c->link.qp, wr);

	if (likely(rc != -EAGAIN))
		return rc;
	for (left = gn_cq_depth(loop->cq) / LINK_POLL_MAX + 1; rc == -EAGAIN && left; left--) {
		link_loop_poll(loop);
		rc = post(c->link.qp, wr);
	}
	return rc;
}

int rpc_post_send(struct gn_qp *qp, const struct gn_wr *wr)
{
	return gn_post_send(qp, wr, NULL);
}

static int serve_come(struct rpc_thread *t)
{
	struct gn_rpc_request *r = t->come;
	int served = 0;

	t->come = NULL;
	for (struct gn_rpc_request *next; r; r = next) {
		next = r->next;
		served += r->fresh > 0;
		rpc_request_come(r);
	}
	return served;
}

/* ---- clients ---- */

/* Results that were held until a reply had left their slot. */
static int release_written(struct rpc_thread *t)
{
	struct rpc_conn *lists[] = {t->conns, t->parked};
	int released = 0;

	t->written = false;
	for (unsigned i = 0; i < 2; i++)
		for (struct rpc_conn *c = lists[i], *next; c; c = next) {
			next = c->next;
			if (!c->held)
				continue;
			rpc_conn_release_held(c);
			released++;
		}
	return released;
}

/*
 * Those from whom nothing has come for a while are put aside. After a longer while also those that
 * owe something: the rest of a message, the word that a result is not needed any more. They may owe
 * it for ever.
 */
static bool may_park(const struct rpc_conn *c, uint64_t now_ns)
{
	if (c->link.state != LINK_UP || c->open || c->thread->draining || c->returning)
		return false;
	if (c->n_writing) /* from the slot whose word says: parked, perhaps */
		return false;
	return (!c->held && !c->lent) || now_ns >= c->heard_ns + LINK_PROBE_NS;
}

static void park_quiet(struct rpc_thread *t, uint64_t now_ns)
{
	const uint64_t park_ns = t->server->opts.park_us * 1000ull;

	for (struct rpc_conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (c->heard) {
			c->heard = false;
			c->link.active = true;
			c->heard_ns = now_ns;
		} else if (now_ns >= c->heard_ns + park_ns && may_park(c, now_ns)) {
			rpc_conn_park(c, now_ns >= c->heard_ns + LINK_PROBE_NS);
			link_conn_set_probe_interval(&c->link, LINK_PROBE_NS * PARKED_EVERY);
		}
		if (unlikely(c->returning))
			rpc_lent_return(c, false);
	}
}

void rpc_thread_park_due(struct link_timer *timer, uint64_t now_ns)
{
	struct rpc_thread *t = container_of(timer, struct rpc_thread, park);

	if (t->conns)
		link_timer_set(&t->loop.timers, timer, now_ns + t->server->opts.park_us * 1000ull);
}

/*
 * Its thread is about to sleep in somebody else's event loop: all are put aside at once, so that
 * they wake it. Those that cannot be are looked at now and then.
 */
static int sleep_soon(struct link_loop *loop)
{
	struct rpc_thread *t = thread_of(loop);

	if (t->id != gn_thread_id())
		return exec_not_owner(t->id, "rpc server");
	if (t->come || t->written)
		return -EAGAIN;
	for (struct rpc_conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (c->link.state != LINK_UP)
			continue;
		if (may_park(c, loop->now_ns)) {
			rpc_conn_park(c, false);
			if (!c->parked)
				return -EAGAIN;
			link_conn_set_probe_interval(&c->link, LINK_PROBE_NS * PARKED_EVERY);
		} else {
			source_due(&loop->source, loop->now_ns + AWAKE_NS);
		}
	}
	return 0;
}

/* With each look whether a client is silent. */
static void looked(struct link_conn *link)
{
	struct rpc_conn *c = conn_of(link);

	if (unlikely(c->parked && (c->held || c->lent)))
		rpc_conn_look_acked(c);
	rpc_reclaim(c, c->parked ? PARKED_EVERY : 1);
}

/* How many clients have not got all their answers, for who drains the server. */
static void count_unquiet(struct rpc_thread *t, uint64_t now_ns)
{
	uint32_t n = 0;

	while (t->parked)
		rpc_conn_unpark(t->parked);
	for (const struct rpc_conn *c = t->conns; c; c = c->next)
		n += c->n_busy || c->heard ||
		     (c->placed != c->acked && now_ns - c->heard_ns < LINK_PROBE_NS);
	__atomic_store_n(&t->unquiet, n + 1, __ATOMIC_RELEASE);
}

/* ---- a turn ---- */

/* The rest of a turn, which is not there each time. empty: clients without a request. */
static no_inline int tend(struct rpc_thread *t, unsigned empty)
{
	int busy;

	exec_charge(GN_WORK_SCAN, empty);
	busy = link_loop_run_tasks(&t->loop);
	if (unlikely(t->come))
		busy += serve_come(t);
	if (!link_loop_maintain(&t->loop))
		return busy;
	if (unlikely(t->written))
		busy += release_written(t);
	if (unlikely(t->watched))
		rpc_abandon_look(t, t->loop.now_ns);
	park_quiet(t, t->loop.now_ns);
	if (unlikely(t->draining))
		count_unquiet(t, t->loop.now_ns);
	return busy;
}

static force_inline int serve_conns(struct rpc_thread *t, unsigned *empty)
{
	int served = 0;

	*empty = 0;
	for (struct rpc_conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (rpc_conn_ready(c))
			served += rpc_conn_serve_ready(c);
		else
			++*empty;
	}
	return served;
}

/*
 * A poll that found nothing, the first for some time: the program may sleep before the next. So
 * what comes with the events is served by this poll: the requests of clients that were parked.
 */
static no_inline int turn_idle(struct rpc_thread *t)
{
	unsigned empty;
	int served;

	if (likely(!link_loop_overdue(&t->loop)))
		return 0;
	served = tend(t, 0);
	served += serve_conns(t, &empty);
	exec_charge(GN_WORK_SCAN, empty);
	return served;
}

int rpc_thread_turn(struct rpc_thread *t)
{
	unsigned empty;
	const int served = serve_conns(t, &empty);

	if (unlikely((uintptr_t)__atomic_load_n(&t->loop.tasks, __ATOMIC_RELAXED) |
		     (uintptr_t)t->come) ||
	    unlikely(link_loop_will_maintain(&t->loop)))
		return served + tend(t, empty);
	exec_charge(GN_WORK_SCAN, empty + 1); /* and the tasks */
	t->loop.iterations++;
	return served ? served : turn_idle(t);
}

/* What clients may write. */
static void words(struct link_loop *loop, struct link_words *out)
{
	const struct rpc_thread *t = thread_of(loop);

	for (const struct rpc_conn *c = t->conns; c; c = c->next) {
		const uint64_t *word = rpc_conn_word(c);
		const uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);

		if (c->link.state != LINK_UP)
			continue;
		if (c->held || c->lent || t->draining)
			link_words_add(out, rpc_conn_ack(c), c->ack_seen);
		if (c->ordered)
			continue; /* a completion comes */
		if (seen == c->seq)
			out->torn = true; /* or here since just now */
		else if (!link_words_add(out, word, seen))
			return;
	}
}

static void request(struct link_loop *loop, struct gn_event *event)
{
	rpc_conn_request(thread_of(loop)->server, event);
}

const struct link_ops rpc_thread_ops = {
	.completed = completed,
	.request = request,
	.established = rpc_conn_established,
	.conn_failed = rpc_conn_end,
	.probe_due = looked,
	.busy = rpc_conn_busy,
	.destroy = rpc_conn_destroy,
	.poll_words = words,
	.prepare_sleep = sleep_soon,
};

int rpc_thread_idle(struct rpc_thread *t, uint64_t deadline_ns)
{
	if (t->conns && t->park.due_ns == GN_FOREVER)
		rpc_thread_park_due(&t->park, gn_now_ns());
	return link_loop_wait(&t->loop, deadline_ns, "requests of clients");
}

/* Requests that handlers have not answered: their connections cannot be destroyed before. */
static void warn_unanswered(const struct rpc_thread *t)
{
	unsigned n = 0;

	for (struct link_conn *c = t->loop.closing; c; c = c->next)
		n += conn_of(c)->n_busy;
	if (n)
		gn_log(GN_LOG_WARN,
		       "rpc: gn_rpc_server_destroy() of %s waits: %u request%s not answered",
		       t->server->addr, n, n == 1 ? " is" : "s are");
}

void rpc_thread_end(struct rpc_thread *t)
{
	uint64_t warn_ns = gn_deadline_us(END_WARN_US);

	do {
		link_loop_run_tasks(&t->loop);
		while (t->conns)
			rpc_conn_end(&t->conns->link);
		while (t->parked)
			rpc_conn_end(&t->parked->link);
		link_conns_sweep(&t->loop);
		if (t->loop.closing || !link_loop_no_posters(&t->loop))
			gn_yield();
		if (gn_now_ns() >= warn_ns) {
			warn_unanswered(t);
			warn_ns = GN_FOREVER;
		}
	} while (t->loop.closing || t->loop.tasks || !link_loop_no_posters(&t->loop));
}

void rpc_thread_main(void *arg)
{
	struct rpc_thread *t = arg;

	__atomic_store_n(&t->id, gn_thread_id(), __ATOMIC_RELEASE);
	while (!t->stop)
		if (!rpc_thread_turn(t) && !t->stop)
			rpc_thread_idle(t, GN_FOREVER);
	rpc_thread_end(t);
}
