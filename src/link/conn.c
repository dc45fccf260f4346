/* SPDX-License-Identifier: MIT */
/* A connection's life: made, established, silent, failed, closed. */
#include <errno.h>

#include "base/counter.h"
#include "base/fail.h"
#include "link/link.h"

#define SWEEP_NS     1000000u /* between two looks at what is closing */
#define SWEEP_NAP_US 100u

static void list_add(struct link_conn *conn, struct link_conn **list)
{
	conn->next = *list;
	conn->prev = list;
	if (conn->next)
		conn->next->prev = &conn->next;
	*list = conn;
}

static void list_del(struct link_conn *conn)
{
	*conn->prev = conn->next;
	if (conn->next)
		conn->next->prev = conn->prev;
}

/* ---- silence ---- */

/* All connections of a loop are looked at in the same moment: one waking for all of them. */
static void look_later(struct link_conn *conn, uint64_t now_ns)
{
	const uint64_t ns = conn->probe_ns;

	link_timer_set(&conn->loop->timers, &conn->timer,
		       ns == GN_FOREVER ? GN_FOREVER : now_ns - now_ns % ns + ns);
}

static void probe(struct link_conn *conn)
{
	struct gn_wr wr;
	int rc;

	if (conn->probing)
		return;
	gn_wr_init(&wr, GN_OP_WRITE, LINK_PROBE_ID, NULL, 0, GN_SIGNALED);
	rc = gn_post_send(conn->qp, &wr, NULL);
	conn->probing = !rc;
	counter_add(&conn->loop->probes, !rc);
	if (rc && rc != -EAGAIN) /* a full queue asks the peer already */
		link_conn_fail(conn);
}

static void conn_due(struct link_timer *timer, uint64_t now_ns)
{
	struct link_conn *conn = container_of(timer, struct link_conn, timer);
	const struct link_ops *ops = conn->loop->ops;

	if (conn->state == LINK_OPENING) /* the peer must not wait for us for ever */
		link_conn_fail(conn);
	if (conn->state != LINK_UP)
		return;
	if (!conn->heard && (!ops->watched || ops->watched(conn)))
		probe(conn);
	conn->heard = false;
	if (ops->looked)
		ops->looked(conn);
	look_later(conn, now_ns);
}

void link_conn_watch(struct link_conn *conn, uint64_t every_ns)
{
	if (conn->probe_ns == every_ns)
		return;
	conn->probe_ns = every_ns;
	if (conn->state == LINK_UP)
		look_later(conn, conn->loop->now_ns);
}

/* ---- life ---- */

void link_conn_init(struct link_loop *loop, struct link_conn *conn)
{
	*conn = (struct link_conn){.loop = loop, .probe_ns = LINK_PROBE_NS};
	link_timer_init(&conn->timer, conn_due);
}

int link_conn_make(struct link_conn *conn, struct gn_pd *pd, struct gn_qp_opts *opts)
{
	const uint32_t completions = opts->max_send_wr + LINK_PROBE_SENDS + opts->max_recv_wr;
	struct link_loop *loop = conn->loop;
	int rc;

	if (__atomic_sub_fetch(&loop->cq_free, completions, __ATOMIC_RELAXED) > INT32_MAX) {
		__atomic_fetch_add(&loop->cq_free, completions, __ATOMIC_RELAXED);
		return gn_fail_text(-ENOSPC, "link: the cq has no room for another connection");
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

/* It is not half open any more. */
static void opened(struct link_conn *conn)
{
	if (!conn->opening)
		return;
	conn->opening = false;
	__atomic_fetch_sub(&conn->loop->n_opening, 1, __ATOMIC_RELAXED);
}

static void open_conn(struct link_conn *conn)
{
	conn->state = LINK_OPENING;
	list_add(conn, &conn->loop->conns);
	conn->loop->n_conns++;
	conn->loop->now_ns = gn_now_ns();
}

void link_conn_begin(struct link_conn *conn)
{
	struct link_loop *loop = conn->loop;

	open_conn(conn);
	link_timer_set(&loop->timers, &conn->timer, loop->now_ns + LINK_ESTABLISH_NS);
	if (conn->early)
		link_conn_established(conn);
	if (conn->gone)
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
	open_conn(conn);
	return 0;
}

int link_conn_refused(const struct link_conn *conn, const struct gn_event *event)
{
	if (event->type == GN_EVENT_ESTABLISHED)
		return 0;
	if (event->status == -EACCES)
		return gn_fail(-EACCES, "the server at %s does not let other users in", conn->addr);
	if (event->type == GN_EVENT_UNREACHABLE)
		return gn_fail(event->status, "no server answers at %s: %s%s%.*s", conn->addr,
			       gn_strerror(event->status), event->private_len ? "; " : "",
			       (int)event->private_len, (const char *)event->private_data);
	return gn_fail(-ECONNREFUSED, "the server at %s refuses the connection", conn->addr);
}

void link_conn_answered(struct link_conn *conn, const struct gn_event *event)
{
	const struct link_ops *ops = conn->loop->ops;

	conn->error = ops->answered ? ops->answered(conn, event) : link_conn_refused(conn, event);
	if (conn->error)
		link_conn_fail(conn);
	else
		link_conn_established(conn);
}

/* The provider bounds an attempt: its outcome comes by itself. */
int link_conn_wait(struct link_conn *conn, uint64_t deadline_ns)
{
	struct link_loop *loop = conn->loop;
	int rc = 0;

	for (;;) {
		link_loop_must_tend(loop);
		link_loop_tend(loop);
		if (conn->error != -EAGAIN || rc == -ETIMEDOUT)
			return conn->error;
		rc = link_loop_wait(loop, deadline_ns, "a connection to be made");
	}
}

void link_conn_established(struct link_conn *conn)
{
	conn->early |= conn->state == LINK_NEW;
	if (conn->state != LINK_OPENING)
		return;
	conn->state = LINK_UP;
	opened(conn);
	look_later(conn, conn->loop->now_ns);
	if (conn->loop->ops->established)
		conn->loop->ops->established(conn);
}

void link_conn_fail(struct link_conn *conn)
{
	conn->gone |= conn->state == LINK_NEW;
	if (conn->state == LINK_NEW || conn->state >= LINK_FAILED)
		return;
	if (conn->error == -EAGAIN) /* the outcome comes, and says why */
		return;
	opened(conn);
	conn->state = LINK_FAILED;
	conn->loop->failed = true;
	link_loop_must_tend(conn->loop);
	link_timer_set(&conn->loop->timers, &conn->timer, GN_FOREVER);
}

void link_conns_end_failed(struct link_loop *loop)
{
	while (loop->failed) {
		loop->failed = false;
		for (struct link_conn *c = loop->conns, *next; c; c = next) {
			next = c->next;
			if (c->state != LINK_FAILED || c->told)
				continue;
			c->told = true;
			loop->ops->ended(c);
		}
	}
}

/* ---- the end ---- */

void link_conn_close(struct link_conn *conn)
{
	struct link_loop *loop = conn->loop;

	if (conn->state == LINK_CLOSING)
		return;
	opened(conn);
	if (conn->state != LINK_NEW) {
		list_del(conn);
		loop->n_conns--;
		if (!conn->error || conn->error == -EAGAIN) /* else it was refused */
			gn_disconnect(conn->qp);
		link_timer_set(&loop->timers, &conn->timer, GN_FOREVER);
	}
	conn->state = LINK_CLOSING;
	list_add(conn, &loop->closing);
	loop->n_closing++;
	link_timer_set(&loop->timers, &loop->sweep, loop->now_ns);
}

/* The list changes below only here: destroy frees what it is given. */
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
		list_del(c);
		loop->n_closing--;
		if (loop->ops->destroy(c))
			continue;
		list_add(c, &loop->closing);
		loop->n_closing++;
	}
	link_timer_set(&loop->timers, &loop->sweep,
		       loop->closing ? loop->now_ns + SWEEP_NS : GN_FOREVER);
}

void link_conns_sweep_all(struct link_loop *loop)
{
	while (loop->closing) {
		link_conns_sweep(loop);
		if (loop->closing)
			gn_sleep_us(SWEEP_NAP_US);
	}
}
