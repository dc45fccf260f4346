/* SPDX-License-Identifier: MIT */
/* A connection's states: new, opening, up, failed, closing; probes of idle peers; reconnecting. */
#include <errno.h>

#include "base/counter.h"
#include "base/fail.h"
#include "base/list.h"
#include "link/link.h"

#define SWEEP_INTERVAL_NS 1000000u /* between two attempts to destroy closing connections */
#define SWEEP_SLEEP_US	  100u

#define RETRY_MIN_US	    1000u /* after the first failed attempt */
#define RETRY_DOUBLINGS_MAX 7u
#define RETRY_MAX_US	    100000u

/* ---- probes ---- */

/* Rounded, so that one wake-up probes all connections of a loop. */
static void conn_schedule_probe(struct link_conn *conn, uint64_t now_ns)
{
	const uint64_t ns = conn->probe_ns;

	link_timer_set(&conn->loop->timers, &conn->timer,
		       ns == GN_FOREVER ? GN_FOREVER : now_ns - now_ns % ns + ns);
}

static void conn_probe(struct link_conn *conn)
{
	struct gn_wr wr;
	int rc;

	if (conn->probe_pending)
		return;
	gn_wr_init(&wr, GN_OP_WRITE, LINK_PROBE_ID, NULL, 0, GN_SIGNALED);
	rc = gn_post_send(conn->qp, &wr, NULL);
	conn->probe_pending = !rc;
	counter_add(&conn->loop->probes, !rc);
	if (rc && rc != -EAGAIN) /* with a full queue, earlier requests detect a disconnect */
		link_conn_fail(conn);
}

static void conn_timer_fired(struct link_timer *timer, uint64_t now_ns)
{
	struct link_conn *conn = container_of(timer, struct link_conn, timer);
	const struct link_ops *ops = conn->loop->ops;

	if (conn->state == LINK_OPENING) /* the peer did not establish it in time */
		link_conn_fail(conn);
	if (conn->state != LINK_UP)
		return;
	if (!conn->active && (!ops->needs_probe || ops->needs_probe(conn)))
		conn_probe(conn);
	conn->active = false;
	if (ops->probe_due)
		ops->probe_due(conn);
	conn_schedule_probe(conn, now_ns);
}

void link_conn_set_probe_interval(struct link_conn *conn, uint64_t every_ns)
{
	if (conn->probe_ns == every_ns)
		return;
	conn->probe_ns = every_ns;
	if (conn->state == LINK_UP)
		conn_schedule_probe(conn, conn->loop->now_ns);
}

/* ---- creation ---- */

void link_conn_init(struct link_loop *loop, struct link_conn *conn)
{
	*conn = (struct link_conn){.loop = loop, .probe_ns = LINK_PROBE_NS};
	link_timer_init(&conn->timer, conn_timer_fired);
}

int link_conn_create_qp(struct link_conn *conn, struct gn_pd *pd, struct gn_qp_opts *opts)
{
	const uint32_t completions = opts->max_send_wr + LINK_PROBE_SENDS + opts->max_recv_wr;
	struct link_loop *loop = conn->loop;
	int rc;

	if (__atomic_sub_fetch(&loop->cq_free, completions, __ATOMIC_RELAXED) > INT32_MAX) {
		__atomic_fetch_add(&loop->cq_free, completions, __ATOMIC_RELAXED);
		return gn_fail_text(-ENOSPC, "link: the cq has no space for another connection");
	}
	conn->completions = completions;
	opts->max_send_wr += LINK_PROBE_SENDS;
	opts->send_cq = opts->recv_cq = loop->cq;
	opts->chan = loop->chan;
	opts->user = conn;
	rc = gn_qp_create(pd, opts, &conn->qp);
	if (rc)
		return rc;
	conn->opening = true;
	__atomic_fetch_add(&loop->n_opening, 1, __ATOMIC_RELAXED);
	return 0;
}

/* Removes it from the count of half-open connections. */
static void conn_not_opening(struct link_conn *conn)
{
	if (!conn->opening)
		return;
	conn->opening = false;
	__atomic_fetch_sub(&conn->loop->n_opening, 1, __ATOMIC_RELAXED);
}

static void conn_start_opening(struct link_conn *conn)
{
	conn->state = LINK_OPENING;
	list_push(&conn->loop->conns, conn);
	conn->loop->n_conns++;
	conn->loop->now_ns = gn_now_ns();
}

void link_conn_accepted(struct link_conn *conn)
{
	struct link_loop *loop = conn->loop;

	conn_start_opening(conn);
	link_timer_set(&loop->timers, &conn->timer, loop->now_ns + LINK_ESTABLISH_NS);
	if (conn->early_established)
		link_conn_established(conn);
	if (conn->early_failed)
		link_conn_fail(conn);
}

/* ---- connecting ---- */

int link_conn_connect(struct link_conn *conn, const char *addr, const struct gn_conn_opts *opts)
{
	const int rc = gn_connect(conn->qp, addr, opts);

	if (rc)
		return rc;
	conn->error = -EAGAIN;
	conn->addr = addr;
	conn_start_opening(conn);
	return 0;
}

int link_connect_error(const struct link_conn *conn, const struct gn_event *event)
{
	if (event->type == GN_EVENT_ESTABLISHED)
		return 0;
	if (event->status == -EACCES)
		return gn_fail(-EACCES, "the server at %s does not accept other users", conn->addr);
	if (event->type == GN_EVENT_UNREACHABLE)
		return gn_fail(event->status, "no server answers at %s: %s%s%.*s", conn->addr,
			       gn_strerror(event->status), event->private_len ? "; " : "",
			       (int)event->private_len, (const char *)event->private_data);
	return gn_fail(-ECONNREFUSED, "the server at %s refuses the connection", conn->addr);
}

void link_conn_connect_done(struct link_conn *conn, const struct gn_event *event)
{
	const struct link_ops *ops = conn->loop->ops;

	conn->error = ops->connect_done ? ops->connect_done(conn, event) :
					  link_connect_error(conn, event);
	if (conn->error)
		link_conn_fail(conn);
	else
		link_conn_established(conn);
}

/* The provider bounds the attempt, so the outcome always arrives. */
int link_conn_wait(struct link_conn *conn, uint64_t deadline_ns)
{
	struct link_loop *loop = conn->loop;
	int rc = 0;

	for (;;) {
		link_loop_force_maintain(loop);
		link_loop_maintain(loop);
		if (conn->error != -EAGAIN || rc == -ETIMEDOUT)
			return conn->error;
		rc = link_loop_wait(loop, deadline_ns, "connection");
	}
}

/* ---- reconnecting ---- */

void link_backoff_failed(struct link_backoff *backoff)
{
	const uint32_t us = RETRY_MIN_US << backoff->failed;

	backoff->at_ns = gn_deadline_us(us < RETRY_MAX_US ? us : RETRY_MAX_US);
	backoff->failed += backoff->failed < RETRY_DOUBLINGS_MAX;
}

int link_backoff_wait(const struct link_backoff *backoff, uint64_t deadline_ns)
{
	const uint64_t until_ns = backoff->at_ns < deadline_ns ? backoff->at_ns : deadline_ns;
	const uint64_t now_ns = gn_now_ns();

	if (now_ns < until_ns)
		gn_sleep_us((until_ns - now_ns) / 1000 + 1);
	return until_ns < deadline_ns ? 0 : -ETIMEDOUT;
}

/* ---- state ---- */

void link_conn_established(struct link_conn *conn)
{
	conn->early_established |= conn->state == LINK_NEW;
	if (conn->state != LINK_OPENING)
		return;
	conn->state = LINK_UP;
	conn_not_opening(conn);
	conn_schedule_probe(conn, conn->loop->now_ns);
	if (conn->loop->ops->established)
		conn->loop->ops->established(conn);
}

void link_conn_fail(struct link_conn *conn)
{
	conn->early_failed |= conn->state == LINK_NEW;
	if (conn->state == LINK_NEW || conn->state >= LINK_FAILED)
		return;
	if (conn->error == -EAGAIN) /* connect_done will report the reason */
		return;
	conn_not_opening(conn);
	conn->state = LINK_FAILED;
	conn->loop->failed = true;
	link_loop_force_maintain(conn->loop);
	link_timer_set(&conn->loop->timers, &conn->timer, GN_FOREVER);
}

void link_conns_report_failed(struct link_loop *loop)
{
	while (loop->failed) {
		loop->failed = false;
		for (struct link_conn *c = loop->conns, *next; c; c = next) {
			next = c->next;
			if (c->state != LINK_FAILED || c->failure_reported)
				continue;
			c->failure_reported = true;
			loop->ops->conn_failed(c);
		}
	}
}

/* ---- closing ---- */

void link_conn_close(struct link_conn *conn)
{
	struct link_loop *loop = conn->loop;

	if (conn->state == LINK_CLOSING)
		return;
	conn_not_opening(conn);
	if (conn->state != LINK_NEW) {
		list_remove(conn);
		loop->n_conns--;
		if (!conn->error || conn->error == -EAGAIN) /* otherwise it was refused */
			gn_disconnect(conn->qp);
		link_timer_set(&loop->timers, &conn->timer, GN_FOREVER);
	}
	conn->state = LINK_CLOSING;
	list_push(&loop->closing, conn);
	loop->n_closing++;
	link_timer_set(&loop->timers, &loop->sweep, loop->now_ns);
}

/* Only this function changes the list below: destroy frees its argument. */
void link_conns_sweep(struct link_loop *loop)
{
	for (struct link_conn *c = loop->closing, *next; c; c = next) {
		next = c->next;
		if (loop->ops->busy && loop->ops->busy(c))
			continue;
		if (c->qp && gn_qp_destroy_try(c->qp) == -EAGAIN)
			continue;
		c->qp = NULL;
		__atomic_fetch_add(&loop->cq_free, c->completions, __ATOMIC_RELAXED);
		c->completions = 0;
		list_remove(c);
		loop->n_closing--;
		if (loop->ops->destroy(c))
			continue;
		list_push(&loop->closing, c);
		loop->n_closing++;
	}
	link_timer_set(&loop->timers, &loop->sweep,
		       loop->closing ? loop->now_ns + SWEEP_INTERVAL_NS : GN_FOREVER);
}

void link_conns_sweep_all(struct link_loop *loop)
{
	while (loop->closing) {
		link_conns_sweep(loop);
		if (loop->closing)
			gn_sleep_us(SWEEP_SLEEP_US);
	}
}
