/* SPDX-License-Identifier: MIT */
/* A server thread: its loop, its turns, parking, and waiting. */
#include <errno.h>
#include <limits.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/deadline.h"
#include "base/owner.h"
#include "rpc/server.h"

#define UNPARKED_CHECK_NS   1000000u /* between two checks of clients that cannot be parked */
#define PARKED_PROBE_FACTOR 10u	     /* parked clients are probed this many times less often */
/* of waiting for answers in gn_rpc_server_destroy(), before the log says so */
#define DESTROY_WARN_US 1000000u

static struct rpc_conn *conn_of(struct link_conn *link)
{
	return container_of(link, struct rpc_conn, link);
}

static struct rpc_thread *thread_of(struct link_loop *loop)
{
	return container_of(loop, struct rpc_thread, loop);
}

/* ---- tasks of other threads ---- */

void rpc_thread_stop(struct link_task *task)
{
	container_of(task, struct rpc_thread, stop_task)->stop = true;
}

void rpc_thread_drain(struct link_task *task)
{
	struct rpc_thread *t = container_of(task, struct rpc_thread, drain_task);

	t->draining = true;
	for (struct rpc_conn *c = t->conns; c; c = c->next)
		rpc_conn_update_pending(c);
	for (struct rpc_conn *c = t->parked; c; c = c->next)
		rpc_conn_update_pending(c);
	t->cached.method = UINT_MAX;	    /* its handler must not be called any more */
	link_loop_force_maintain(&t->loop); /* to publish the drained state in this turn */
}

/* ---- completions ---- */

/*
 * A wake-up: the client was parked, or it sleeps and wants a notification of result notify. Posts a
 * receive for the next wake-up. At most one notification per client is outstanding.
 */
static void take_wake(struct rpc_conn *c, uint32_t notify)
{
	/* the ESTABLISHED event may be lost, but the client could send */
	link_conn_established(&c->link);
	rpc_conn_unpark(c);
	if (!c->dead && rpc_conn_recv(c))
		rpc_conn_fail(c);
	c->thread->watch_woken = true;
	if (!notify)
		return;
	c->notify = notify;
	rpc_conn_notify(c);
}

/* Handlers do not run here: a handler may be what waits for this completion. */
static void take_large_piece(struct rpc_thread *t, struct gn_rpc_request *r)
{
	r->conn->reading--;
	if (r->conn->dead || r->new_pieces++)
		return;
	r->next = t->arrived;
	t->arrived = r;
}

/*
 * A reply has arrived: its slot is free. The slot of an inline reply was free when it was posted,
 * and may be in use for another reply by now.
 */
static void take_reply_written(struct rpc_conn *c, uint64_t id)
{
	bool *writing = &c->writing[rpc_reply_slot(id)];

	c->sync_pending -= !!(id & RPC_REPLY_SYNC);
	if (id & RPC_REPLY_INLINE)
		return;
	c->n_writing -= *writing;
	c->writes = c->n_writing;
	*writing = false;
	c->thread->written |= c->held != NULL;
}

static void thread_completed(struct link_conn *link, const struct gn_wc *wc)
{
	struct rpc_conn *c = conn_of(link);

	if (wc->id == RPC_WAKE_ID) {
		take_wake(c, wc->imm);
	} else if (wc->id == RPC_NOTIFY_ID) {
		c->notifying = false;
		rpc_conn_notify(c);
	} else if ((wc->id & RPC_ID_MASK) == RPC_REPLY_ID) {
		take_reply_written(c, wc->id);
	} else {
		take_large_piece(c->thread, (struct gn_rpc_request *)(uintptr_t)wc->id);
	}
}

/*
 * A full send queue may hold completed requests that nobody has polled, behind completions of
 * closed connections in the cq, which are fewer than its depth.
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

static int thread_serve_arrived(struct rpc_thread *t)
{
	struct gn_rpc_request *r = t->arrived;
	int served = 0;

	t->arrived = NULL;
	for (struct gn_rpc_request *next; r; r = next) {
		next = r->next;
		served += r->new_pieces > 0;
		rpc_request_piece_read(r);
	}
	return served;
}

/* ---- clients ---- */

/* Results that were held until a reply had left their slot. */
static int release_held_results(struct rpc_thread *t)
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
 * Clients that were idle for park_us are parked. Clients with held or exported results, or an
 * incomplete message, are parked after LINK_PROBE_NS: what they owe may never come.
 */
static bool conn_may_park(const struct rpc_conn *c, uint64_t now_ns)
{
	if (c->link.state != LINK_UP || c->open || c->thread->draining || c->releasing)
		return false;
	if (c->n_writing) /* the parked state may have to be published in that slot */
		return false;
	return (!c->held && !c->exports) || now_ns >= c->active_ns + LINK_PROBE_NS;
}

static void park_idle(struct rpc_thread *t, uint64_t now_ns)
{
	const uint64_t park_ns = t->server->opts.park_us * 1000ull;

	for (struct rpc_conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (c->active) {
			c->active = false;
			c->link.active = true;
			c->active_ns = now_ns;
		} else if (now_ns >= c->active_ns + park_ns && conn_may_park(c, now_ns)) {
			rpc_conn_park(c, now_ns >= c->active_ns + LINK_PROBE_NS);
			link_conn_set_probe_interval(&c->link, LINK_PROBE_NS * PARKED_PROBE_FACTOR);
		}
		if (unlikely(c->releasing))
			rpc_exports_release(c, false);
	}
}

void rpc_thread_park_due(struct link_timer *timer, uint64_t now_ns)
{
	struct rpc_thread *t = container_of(timer, struct rpc_thread, park);

	if (t->conns)
		link_timer_set(&t->loop.timers, timer, now_ns + t->server->opts.park_us * 1000ull);
}

/*
 * The thread is about to sleep in another event loop: park all clients at once, so that they wake
 * it. Clients that cannot be parked are checked every UNPARKED_CHECK_NS.
 */
static int thread_prepare_sleep(struct link_loop *loop)
{
	struct rpc_thread *t = thread_of(loop);

	if (t->id != gn_thread_id())
		return exec_not_owner(t->id, "rpc server");
	if (t->arrived || t->written)
		return -EAGAIN;
	for (struct rpc_conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (c->link.state != LINK_UP)
			continue;
		if (conn_may_park(c, loop->now_ns)) {
			rpc_conn_park(c, false);
			if (!c->parked)
				return -EAGAIN;
			link_conn_set_probe_interval(&c->link, LINK_PROBE_NS * PARKED_PROBE_FACTOR);
		} else {
			source_due(&loop->source, loop->now_ns + UNPARKED_CHECK_NS);
		}
	}
	return 0;
}

/* Runs with each probe of an idle client. */
static void thread_probed(struct link_conn *link)
{
	struct rpc_conn *c = conn_of(link);

	if (unlikely(c->parked && (c->held || c->exports)))
		rpc_conn_check_acks(c);
	rpc_reclaim(c, c->parked ? PARKED_PROBE_FACTOR : 1);
}

/* Counts clients that have not received all results, for gn_rpc_server_drain(). */
static void count_unquiet(struct rpc_thread *t, uint64_t now_ns)
{
	uint32_t n = 0;

	while (t->parked)
		rpc_conn_unpark(t->parked);
	for (const struct rpc_conn *c = t->conns; c; c = c->next)
		n += c->n_busy || c->active ||
		     (c->published != c->acked && now_ns - c->active_ns < LINK_PROBE_NS);
	__atomic_store_n(&t->undrained, n + 1, __ATOMIC_RELEASE);
}

/* ---- a turn ---- */

/* The part of a turn that not every turn has. empty: clients without a request. */
static no_inline int thread_maintain(struct rpc_thread *t, unsigned empty)
{
	int busy;

	exec_charge(GN_WORK_SCAN, empty);
	busy = link_loop_run_tasks(&t->loop);
	if (unlikely(t->arrived))
		busy += thread_serve_arrived(t);
	if (!link_loop_maintain(&t->loop))
		return busy;
	if (unlikely(t->written))
		busy += release_held_results(t);
	if (unlikely(t->watched))
		rpc_abandon_check(t, t->loop.now_ns);
	park_idle(t, t->loop.now_ns);
	if (unlikely(t->draining))
		count_unquiet(t, t->loop.now_ns);
	return busy;
}

static force_inline int thread_serve_conns(struct rpc_thread *t, unsigned *empty)
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
 * A poll that found nothing, the first for some time: the program may sleep before its next poll.
 * So serve now what the events bring: requests of clients that were parked.
 */
static no_inline int thread_turn_idle(struct rpc_thread *t)
{
	unsigned empty;
	int served;

	if (likely(!link_loop_overdue(&t->loop)))
		return 0;
	served = thread_maintain(t, 0);
	served += thread_serve_conns(t, &empty);
	exec_charge(GN_WORK_SCAN, empty);
	return served;
}

int rpc_thread_turn(struct rpc_thread *t)
{
	unsigned empty;
	const int served = thread_serve_conns(t, &empty);

	if (unlikely((uintptr_t)__atomic_load_n(&t->loop.tasks, __ATOMIC_RELAXED) |
		     (uintptr_t)t->arrived) ||
	    unlikely(link_loop_will_maintain(&t->loop)))
		return served + thread_maintain(t, empty);
	exec_charge(GN_WORK_SCAN, empty + 1); /* and the tasks */
	t->loop.iterations++;
	return served ? served : thread_turn_idle(t);
}

/* The words that clients may write. */
static void thread_words(struct link_loop *loop, struct link_words *out)
{
	const struct rpc_thread *t = thread_of(loop);

	for (const struct rpc_conn *c = t->conns; c; c = c->next) {
		const uint64_t *word = rpc_conn_seq_at(c);
		const uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);

		if (c->link.state != LINK_UP)
			continue;
		if (c->held || c->exports || t->draining)
			link_words_add(out, rpc_conn_ack_at(c), c->ack_seen);
		if (c->ordered)
			continue; /* a completion comes */
		if (seen == c->seq)
			out->torn = true; /* or complete since the last poll */
		else if (!link_words_add(out, word, seen))
			return;
	}
}

static void thread_request(struct link_loop *loop, struct gn_event *event)
{
	rpc_conn_request(thread_of(loop)->server, event);
}

const struct link_ops rpc_thread_ops = {
	.completed = thread_completed,
	.request = thread_request,
	.established = rpc_conn_established,
	.conn_failed = rpc_conn_end,
	.probe_due = thread_probed,
	.busy = rpc_conn_busy,
	.destroy = rpc_conn_destroy,
	.poll_words = thread_words,
	.prepare_sleep = thread_prepare_sleep,
};

int rpc_thread_idle(struct rpc_thread *t, uint64_t deadline_ns)
{
	if (t->conns && t->park.due_ns == GN_FOREVER)
		rpc_thread_park_due(&t->park, gn_now_ns());
	return link_loop_wait(&t->loop, deadline_ns, "requests of clients");
}

/* Connections with unanswered requests cannot be destroyed yet. */
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
	uint64_t warn_ns = gn_deadline_us(DESTROY_WARN_US);

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
