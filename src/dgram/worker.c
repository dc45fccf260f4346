/* SPDX-License-Identifier: MIT */
/*
 * Workers: fibers of the endpoint's thread. A worker that waits for a call switches directly to the
 * next ready one; after the last, or after DGRAM_RESUMES_MAX, to the poller, which is the thread
 * that called gn_dgram_poll(). A worker whose function has returned is kept for the next one.
 */
#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "base/ticks.h"
#include "dgram/endpoint.h"

#define RESUMES_PER_TICKS 4u /* workers resumed between two looks at the time */

struct dgram_worker {
	struct gn_dgram_endpoint *ep;
	struct gn_fiber *fiber;
	struct dgram_worker *next_ready;
	void (*fn)(void *arg);
	void *arg;
	bool is_ready, handler;
	/* a handler's */
	struct gn_dgram_peer *peer;
	const struct dgram_method *method;
	uint64_t epoch;
	uint32_t index, number;
	struct gn_dgram_request request;
	struct dgram_job job;
	uint8_t *buffer; /* of the request's copy, then of the result */
	uint32_t buffer_bytes;
	struct dgram_worker *next, **prev; /* all workers */
	struct dgram_worker *next_idle;
};

/* ---- switching ---- */

static void worker_push(struct dgram_worker *worker)
{
	struct gn_dgram_endpoint *ep = worker->ep;

	if (worker->is_ready)
		return;
	worker->is_ready = true;
	worker->next_ready = NULL;
	*ep->ready_tail = worker;
	ep->ready_tail = &worker->next_ready;
}

void dgram_worker_wake(struct dgram_worker *worker)
{
	worker_push(worker);
}

static struct dgram_worker *worker_pop(struct gn_dgram_endpoint *ep)
{
	struct dgram_worker *worker = ep->ready;

	if (!worker)
		return NULL;
	ep->ready = worker->next_ready;
	if (!ep->ready)
		ep->ready_tail = &ep->ready;
	worker->is_ready = false;
	return worker;
}

/* The next worker to resume before the poller; NULL: the poller's turn. */
static struct dgram_worker *worker_next(struct gn_dgram_endpoint *ep)
{
	if (!ep->ready || ep->resumed >= DGRAM_RESUMES_MAX)
		return NULL;
	/* The counter costs as much as a switch. */
	if (ep->resumed % RESUMES_PER_TICKS == 0 &&
	    exec_ticks() - ep->poll_ticks > EXEC_TICKS_SHORT)
		return NULL;
	ep->resumed++;
	return worker_pop(ep);
}

/* Leaves the worker until it is resumed. */
static void worker_suspend(struct dgram_worker *worker)
{
	struct gn_dgram_endpoint *ep = worker->ep;
	struct dgram_worker *next = worker_next(ep);

	ep->current = next;
	if (next != worker)
		gn_fiber_switch(worker->fiber, next ? next->fiber : ep->poller);
}

void dgram_workers_run(struct gn_dgram_endpoint *ep)
{
	struct dgram_worker *next;

	if (!ep->ready)
		return;
	ep->resumed = 1;
	next = worker_pop(ep);
	ep->current = next;
	gn_fiber_switch(ep->poller, next->fiber);
	ep->ran = true;
	ep->events += ep->resumed;
	counter_add(&ep->stats.workers_resumed, ep->resumed);
}

/* ---- life ---- */

static void worker_finished(struct dgram_worker *worker)
{
	struct gn_dgram_endpoint *ep = worker->ep;

	if (worker->handler)
		ep->n_handlers--;
	else
		ep->n_workers--;
	worker->next_idle = ep->idle_workers;
	ep->idle_workers = worker;
	worker_suspend(worker);
}

static void worker_main(void *arg)
{
	struct dgram_worker *worker = arg;

	for (;;) {
		worker->fn(worker->arg);
		worker_finished(worker);
	}
}

typedef void dgram_worker_fn(void *arg);

static int worker_start(struct gn_dgram_endpoint *ep, dgram_worker_fn *fn, void *arg,
			struct dgram_worker **out)
{
	struct dgram_worker *worker = ep->idle_workers;
	int rc;

	if (worker) {
		ep->idle_workers = worker->next_idle;
	} else {
		worker = gn_alloc(sizeof(*worker), GN_CACHELINE);
		if (!worker)
			return gn_fail_text(-ENOMEM, "gn_dgram_spawn(): " NO_MEMORY);
		worker->ep = ep;
		rc = gn_fiber_create(worker_main, worker, ep->node->opts.stack_bytes,
				     &worker->fiber);
		if (rc) {
			gn_free(worker);
			return rc;
		}
		list_push(&ep->workers, worker);
	}
	worker->fn = fn;
	worker->arg = arg ? arg : worker;
	worker->handler = false;
	*out = worker;
	return 0;
}

int dgram_workers_init(struct gn_dgram_endpoint *ep)
{
	ep->ready_tail = &ep->ready;
	return gn_fiber_adopt(&ep->poller);
}

void dgram_workers_destroy(struct gn_dgram_endpoint *ep)
{
	while (ep->workers) {
		struct dgram_worker *worker = ep->workers;

		list_remove(worker);
		gn_fiber_destroy(worker->fiber);
		gn_free(worker->job.large);
		gn_free(worker->buffer);
		gn_free(worker);
	}
	gn_fiber_destroy(ep->poller);
}

/* ---- handlers ---- */

/* Has the call's session ended, or did the caller abandon it? Its answer is not sent then. */
static bool worker_is_current(const struct dgram_worker *worker)
{
	const struct gn_dgram_peer *peer = worker->peer;
	const struct dgram_slot *group;

	if (peer->epoch != worker->epoch || !peer->session)
		return false;
	group = peer->session->groups[worker->index / DGRAM_SLOT_GROUP];
	return group && group[worker->index % DGRAM_SLOT_GROUP].number == worker->number &&
	       group[worker->index % DGRAM_SLOT_GROUP].state == DGRAM_SLOT_EXECUTING;
}

static void worker_handle(void *arg)
{
	struct dgram_worker *worker = arg;
	struct gn_dgram_peer *peer = worker->peer;
	struct dgram_job *job = &worker->job; /* not on the stack, which may be discarded */
	const unsigned status = dgram_serve_run(peer, worker->method, &worker->request, job);

	peer->n_handlers--;
	if (worker_is_current(worker)) {
		peer->session->n_executing--;
		dgram_serve_done(peer, dgram_peer_slot(peer, worker->index), worker->index, status,
				 &worker->request, job);
	}
	gn_free(job->large);
	job->large = NULL;
	/* A copy of a large request is not kept: idle workers of all endpoints would add up. */
	if (unlikely(worker->buffer_bytes > 2 * worker->ep->node->opts.datagram_bytes)) {
		gn_free(worker->buffer);
		worker->buffer = NULL;
		worker->buffer_bytes = 0;
	}
	dgram_peer_release(peer);
}

int dgram_worker_serve(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index,
		       const struct dgram_method *method, uint32_t code, const uint8_t *data,
		       uint32_t len)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const uint32_t room = dgram_payload_max(peer), need = dgram_padded(len) + room;
	struct dgram_worker *worker;

	if (ep->n_handlers >= ep->node->opts.handler_workers ||
	    worker_start(ep, worker_handle, NULL, &worker))
		return -EBUSY;
	if (worker->buffer_bytes < need) {
		gn_free(worker->buffer);
		worker->buffer = gn_alloc(need, 0);
		worker->buffer_bytes = worker->buffer ? need : 0;
	}
	if (!worker->buffer) {
		worker->next_idle = ep->idle_workers;
		ep->idle_workers = worker;
		return -EBUSY;
	}
	worker->arg = worker;
	worker->handler = true;
	worker->peer = peer;
	worker->method = method;
	worker->epoch = peer->epoch;
	worker->index = index;
	worker->number = slot->number;
	if (len)
		memcpy(worker->buffer, data, len);
	exec_charge(GN_WORK_COPY, len);
	worker->request = (struct gn_dgram_request){.data = worker->buffer,
						    .len = len,
						    .method = code,
						    .result = worker->buffer + dgram_padded(len),
						    .room = room};
	ep->n_handlers++;
	peer->n_handlers++;
	peer->session->n_executing++;
	worker_push(worker);
	return 0;
}

/* ---- public ---- */

int gn_dgram_spawn(struct gn_dgram_endpoint *ep, void (*fn)(void *arg), void *arg)
{
	struct dgram_worker *worker;
	int rc = dgram_ep_check(ep, "gn_dgram_spawn()");

	if (!rc && !fn)
		rc = gn_fail_text(-EINVAL, "gn_dgram_spawn(): fn is NULL");
	if (!rc)
		rc = worker_start(ep, fn, arg, &worker);
	if (rc)
		return rc;
	worker->arg = arg;
	ep->n_workers++;
	worker_push(worker);
	return 0;
}

int gn_dgram_yield(struct gn_dgram_endpoint *ep)
{
	const int rc = dgram_ep_check(ep, "gn_dgram_yield()");
	struct dgram_worker *worker;

	if (rc)
		return rc;
	if (ep->in_handler)
		return gn_fail_text(-EDEADLK,
				    "gn_dgram_yield(): within a handler or done function");
	worker = ep->current;
	if (!worker)
		return gn_dgram_poll(ep) < 0 ? -EDEADLK : 0;
	worker_push(worker);
	worker_suspend(worker);
	return 0;
}

unsigned gn_dgram_workers(const struct gn_dgram_endpoint *ep)
{
	return ep ? ep->n_workers : 0;
}

/* Waits for the ops of the waiter: in a worker by switching away, else by polling. */
static int waiter_wait(struct gn_dgram_endpoint *ep, struct dgram_waiter *waiter)
{
	while (waiter->pending) {
		if (waiter->worker) {
			worker_suspend(waiter->worker);
		} else {
			const int rc = gn_dgram_wait(ep, GN_FOREVER);

			if (rc < 0 && rc != -EINTR)
				return rc;
		}
	}
	return 0;
}

/* They were not started. One that is under way gets its status when it ends. */
static void ops_reject(struct gn_dgram_op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ops[i].status = GN_RPC_CANCELED;
}

int gn_dgram_call_all(struct gn_dgram_op *ops, unsigned n)
{
	struct dgram_waiter waiter = {0};
	struct gn_dgram_endpoint *ep;
	int rc = 0, waited;
	unsigned i;

	if (unlikely(!n))
		return 0;
	if (unlikely(!ops || !ops->peer)) {
		ops_reject(ops, ops ? n : 0);
		return gn_fail_text(-EINVAL, ops ? "gn_dgram_call(): the op's peer is NULL" :
						   "gn_dgram_call(): the op is NULL");
	}
	ep = ops->peer->ep;
	waiter.worker = ep->current;
	if (unlikely(ep->in_handler)) {
		ops_reject(ops, n);
		return gn_fail_text(-EDEADLK, "gn_dgram_call(): within a handler or done function");
	}
	for (i = 0; i < n; i++) {
		if (unlikely(dgram_call_is_under_way(&ops[i]))) {
			rc = gn_fail_text(-EBUSY, "gn_dgram_call(): the op is under way");
			break;
		}
		ops[i].waiter = &waiter;
		if (unlikely(i && ops[i].peer && ops[i].peer->ep != ep))
			rc = gn_fail(-EINVAL,
				     "gn_dgram_call_all(): op %u calls a peer of another endpoint",
				     i);
		else
			rc = dgram_call_submit(&ops[i]);
		if (unlikely(rc))
			break;
		waiter.pending++;
	}
	ops_reject(ops + i, n - i);
	waited = waiter_wait(ep, &waiter);
	return rc ? rc : waited;
}

int gn_dgram_call(struct gn_dgram_op *op)
{
	return gn_dgram_call_all(op, 1);
}
