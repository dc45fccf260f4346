/* SPDX-License-Identifier: MIT */
/* A loop: open and close, iterations, and tasks from other threads. */
#include <errno.h>

#include "base/counter.h"
#include "link/link.h"

#define POLL_BATCH	     32
#define EVENTS_MAX	     512u /* per maintenance */
#define CONNECT_REQUESTS_MAX 64u  /* … of which connect requests */
#define EVENTS_PER_POLL	     16u  /* disconnects flush completions: poll before the cq overflows */

/* ---- open and close ---- */

static void loop_sweep_timer(struct link_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	link_conns_sweep(container_of(timer, struct link_loop, sweep));
}

static bool inbox_ready(struct gn_source *source)
{
	return __atomic_load_n(&container_of(source, struct link_loop, inbox)->tasks,
			       __ATOMIC_ACQUIRE);
}

/* The channel wakes a sleeping loop. */
static int inbox_arm(struct gn_source *source)
{
	return inbox_ready(source) ? -EAGAIN : -EOPNOTSUPP;
}

static const struct source_ops inbox_ops = {.ready = inbox_ready, .arm = inbox_arm};

static const struct source_ops loop_ops = {
	.ready = source_object_ready,
	.arm = source_object_arm,
	.disarm = source_object_disarm,
	.prepare = link_loop_prepare,
};

int link_loop_open(struct link_loop *loop, const struct link_ops *ops,
		   const struct link_loop_opts *opts)
{
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = opts->completions};
	int rc;

	*loop = (struct link_loop){.ops = ops,
				   .fabric = opts->fabric,
				   .ctx = opts->ctx,
				   .policy = opts->policy,
				   .maintain_every = opts->maintain_every};
	source_init(&loop->inbox, &inbox_ops);
	source_init(&loop->source, &loop_ops);
	link_timer_init(&loop->sweep, loop_sweep_timer);
	loop->attr.size = sizeof(loop->attr);
	rc = gn_fabric_query(opts->fabric, &loop->attr);
	if (!rc && !loop->ctx) {
		rc = gn_ctx_create(opts->fabric, &loop->ctx);
		loop->own_ctx = !rc;
	}
	if (!rc)
		rc = gn_chan_create(loop->ctx, &loop->chan);
	if (rc)
		return rc;
	if (cq.depth > loop->attr.max_cqe)
		cq.depth = loop->attr.max_cqe;
	cq.chan = loop->chan;
	loop->cq_free = cq.depth;
	rc = gn_cq_create(loop->ctx, &cq, &loop->cq);
	if (rc)
		return rc;
	source_join(&loop->source, gn_cq_source(loop->cq));
	source_join(&loop->source, gn_chan_source(loop->chan));
	return 0;
}

void link_loop_close(struct link_loop *loop)
{
	link_conns_sweep_all(loop);
	while (!link_loop_no_posters(loop))
		gn_yield();
	source_fini(&loop->source);
	gn_cq_destroy(loop->cq);
	gn_chan_destroy(loop->chan);
	if (loop->own_ctx)
		gn_ctx_destroy(loop->ctx);
	loop->cq = NULL;
	loop->chan = NULL;
	loop->own_ctx = false;
}

/* ---- completions and events ---- */

static void loop_dispatch_completion(struct link_loop *loop, const struct gn_wc *wc)
{
	struct link_conn *conn = gn_qp_user(wc->qp);

	if (unlikely(!conn))
		loop->ops->datagram(loop, wc);
	else if (unlikely(conn->state == LINK_CLOSING))
		return;
	else if (unlikely(wc->status != GN_WC_OK))
		link_conn_fail(conn);
	else if (unlikely(wc->id == LINK_PROBE_ID))
		conn->probe_pending = false;
	else
		loop->ops->completed(conn, wc);
}

void link_loop_poll(struct link_loop *loop)
{
	struct gn_wc wc[POLL_BATCH];
	unsigned batches = 0;
	int n;

	do {
		n = gn_cq_poll(loop->cq, wc, POLL_BATCH);
		for (int i = 0; i < n; i++)
			loop_dispatch_completion(loop, &wc[i]);
	} while (n == POLL_BATCH && ++batches < LINK_POLL_MAX / POLL_BATCH);
	/* -EOVERFLOW: completions were lost, so their requests would never end. */
	for (struct link_conn *c = n < 0 ? loop->conns : NULL; c; c = c->next)
		link_conn_fail(c);
}

static void loop_dispatch_event(const struct gn_event *event)
{
	struct link_conn *conn = event->qp ? gn_qp_user(event->qp) : NULL;

	if (!conn)
		return;
	if (conn->error == -EAGAIN && conn->state == LINK_OPENING)
		link_conn_connect_done(conn, event);
	else if (event->type == GN_EVENT_ESTABLISHED)
		link_conn_established(conn);
	else
		link_conn_fail(conn);
}

/* Connect requests come last: a reconnecting peer finds its old connection closed. */
static void loop_dispatch_events(struct link_loop *loop)
{
	struct gn_event event, requests[CONNECT_REQUESTS_MAX];
	unsigned n = 0;

	for (unsigned i = 1;
	     i <= EVENTS_MAX && n < CONNECT_REQUESTS_MAX && !gn_chan_next(loop->chan, &event);
	     i++) {
		if (event.type != GN_EVENT_CONNECT_REQUEST)
			loop_dispatch_event(&event);
		else if (loop->ops->request)
			requests[n++] = event;
		else
			gn_reject(event.req, NULL, 0);
		if (i % EVENTS_PER_POLL == 0)
			link_loop_poll(loop);
	}
	link_conns_report_failed(loop);
	for (unsigned i = 0; i < n; i++)
		loop->ops->request(loop, &requests[i]);
}

bool link_loop_maintain(struct link_loop *loop)
{
	bool maintained = false;

	if (++loop->iterations >= loop->maintain_every) {
		loop->iterations = 0;
		__atomic_store_n(&loop->asleep, 0, __ATOMIC_RELAXED);
		loop->now_ns = loop->maintained_ns = gn_now_ns();
		link_loop_poll(loop);
		loop_dispatch_events(loop);
		link_timers_run(&loop->timers, loop->now_ns);
		maintained = true;
	}
	if (unlikely(loop->failed))
		link_conns_report_failed(loop);
	return maintained;
}

/* ---- inbox ---- */

void link_loop_post(struct link_loop *loop, struct link_task *task)
{
	struct link_task *newest = __atomic_load_n(&loop->tasks, __ATOMIC_RELAXED);

	__atomic_fetch_add(&loop->n_posting, 1, __ATOMIC_ACQUIRE);
	do {
		task->next = newest;
		/* Sequentially consistent before the load of asleep: pairs with loop_sleep(). */
	} while (!__atomic_compare_exchange_n(&loop->tasks, &newest, task, true, __ATOMIC_SEQ_CST,
					      __ATOMIC_RELAXED));
	source_wake(&loop->inbox);
	if (unlikely(__atomic_load_n(&loop->asleep, __ATOMIC_SEQ_CST)))
		gn_chan_wake(loop->chan);
	__atomic_fetch_sub(&loop->n_posting, 1, __ATOMIC_RELEASE);
}

int link_loop_run_tasks(struct link_loop *loop)
{
	struct link_task *task, *oldest = NULL;
	int n = 0;

	if (likely(!__atomic_load_n(&loop->tasks, __ATOMIC_RELAXED))) {
		gn_charge(GN_WORK_SCAN, 1);
		return 0;
	}
	/* Pairs with the push: the task's content is visible. */
	task = __atomic_exchange_n(&loop->tasks, NULL, __ATOMIC_ACQUIRE);
	while (task) {
		struct link_task *next = task->next;

		task->next = oldest;
		oldest = task;
		task = next;
	}
	for (; oldest; n++) {
		task = oldest;
		oldest = task->next;
		task->run(task);
	}
	return n;
}
