/* SPDX-License-Identifier: MIT */
/* An endpoint: creation, polling, waiting, counters. */
#include <errno.h>
#include <string.h>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/sized.h"
#include "dgram/endpoint.h"

#define MAINTAIN_EVERY	 1024u /* polls; the clock forces it every 50 us */
#define SPIN_US		 20u
#define CQ_SLACK	 64u
#define SENDS_UNSIGNALED 64u /* completed ones that a later completion will report */

int dgram_ep_invalid(const struct gn_dgram_endpoint *ep, const char *what)
{
	if (!ep)
		return gn_fail(-EINVAL, "%s: the endpoint is NULL", what);
	if (!exec_is_owner(ep->owner))
		return exec_not_owner(ep->owner, what);
	return gn_fail(-ESHUTDOWN, "%s: the endpoint is being destroyed", what);
}

/* ---- link callbacks ---- */

static void ep_completed(struct link_conn *conn, const struct gn_wc *wc)
{
	(void)conn;
	(void)wc;
}

static void ep_datagram(struct link_loop *loop, const struct gn_wc *wc)
{
	dgram_receive_one(dgram_ep_of(loop), wc);
}

static bool ep_destroy_conn(struct link_conn *conn)
{
	(void)conn;
	return true;
}

/* Completions, timers and tasks wake the thread; what is left to do must be done first. */
static int ep_prepare_sleep(struct link_loop *loop)
{
	struct gn_dgram_endpoint *ep = dgram_ep_of(loop);

	port_flush_receives(&ep->port);
	if (ep->blocked || ep->port.broken)
		source_due(&loop->source, gn_now_ns() + DGRAM_RETRY_NS);
	return ep->ready || ep->flush_list || ep->port.n_chain ? -EAGAIN : 0;
}

static const struct link_ops ep_ops = {
	.completed = ep_completed,
	.datagram = ep_datagram,
	.destroy = ep_destroy_conn,
	.prepare_sleep = ep_prepare_sleep,
};

/* ---- polling ---- */

void dgram_ep_clock(struct gn_dgram_endpoint *ep)
{
	ep->now_ns = link_loop_clock(&ep->loop);
	if (ep->ran) {
		const uint64_t gap_ns = ep->now_ns - ep->polled_ns;

		if (unlikely(gap_ns > ep->stats.longest_gap_ns))
			counter_set(&ep->stats.longest_gap_ns, gap_ns);
		ep->ran = false;
	}
	ep->polled_ns = ep->now_ns;
}

void dgram_ep_progress(struct gn_dgram_endpoint *ep)
{
	struct link_loop *loop = &ep->loop;

	/* First: what has waited takes free buffers and receives before what arrives now. */
	if (unlikely(ep->blocked)) {
		dgram_ep_refresh(ep);
		dgram_call_start_blocked(ep);
	}
	dgram_receive(ep);
	/* Then: the last answers of a node may arrive with its goodbye. */
	link_loop_run_tasks(loop);
	if (unlikely(link_timers_due(&loop->timers) <= ep->now_ns))
		link_timers_run(&loop->timers, ep->now_ns);
	if (unlikely(link_loop_maintain(loop))) {
		port_maintain(&ep->port, ep->now_ns);
		if (unlikely(ep->old_ahs))
			dgram_peers_free_ahs(ep);
	}
}

int gn_dgram_poll(struct gn_dgram_endpoint *ep)
{
	const int rc = dgram_ep_check(ep, "gn_dgram_poll()");
	uint64_t events;

	if (unlikely(rc))
		return rc;
	if (unlikely(ep->current || ep->in_handler))
		return gn_fail_text(-EDEADLK, "gn_dgram_poll(): within a worker or a handler");
	events = ep->events;
	dgram_ep_progress(ep);
	dgram_workers_run(ep);
	dgram_send_flush(ep);
	dgram_ep_post_receives(ep); /* peers may be new */
	if (ep->port.n_repost)	    /* after the sends, for which peers wait */
		port_flush_receives(&ep->port);
	events = ep->events - events;
	return events < INT32_MAX ? (int)events : INT32_MAX;
}

int gn_dgram_flush(struct gn_dgram_endpoint *ep)
{
	const int rc = dgram_ep_check(ep, "gn_dgram_flush()");

	if (!rc)
		dgram_send_flush(ep);
	return rc;
}

/* May the caller poll until something happens? */
static int ep_check_waits(const struct gn_dgram_endpoint *ep, const char *what)
{
	const int rc = dgram_ep_check(ep, what);

	if (unlikely(!rc && (ep->current || ep->in_handler)))
		return gn_fail(-EDEADLK, "%s: within a worker or a handler", what);
	return rc;
}

/* gn_dgram_wait() without the checks, and without a text for -ETIMEDOUT. */
static int ep_wait(struct gn_dgram_endpoint *ep, uint64_t deadline_ns)
{
	deadline_ns = deadline_given(deadline_ns);
	for (;;) {
		int rc = gn_dgram_poll(ep);

		if (rc)
			return rc;
		if (ep->ready || ep->flush_list)
			continue;
		rc = link_loop_wait(&ep->loop,
				    ep->blocked || ep->port.broken ?
					    min_u64(deadline_ns, gn_deadline_us(50)) :
					    deadline_ns,
				    "datagram calls");
		if (rc == -EINTR || (rc == -ETIMEDOUT && gn_now_ns() >= deadline_ns)) {
			const int last = gn_dgram_poll(ep);

			return last ? last : rc;
		}
	}
}

int gn_dgram_wait(struct gn_dgram_endpoint *ep, uint64_t deadline_ns)
{
	int rc = ep_check_waits(ep, "gn_dgram_wait()");

	if (rc)
		return rc;
	rc = ep_wait(ep, deadline_ns);
	return rc == -ETIMEDOUT ? gn_fail_text(rc, "gn_dgram_wait(): there was nothing to do") : rc;
}

int gn_dgram_run(struct gn_dgram_endpoint *ep, uint64_t deadline_ns)
{
	int rc = ep_check_waits(ep, "gn_dgram_run()");

	while (!rc && ep->n_workers) {
		const int n = ep_wait(ep, deadline_ns);

		rc = n < 0 ? n : 0;
		if (!rc && deadline_ns > GN_NO_WAIT && deadline_ns != GN_FOREVER && ep->n_workers &&
		    ep->now_ns >= deadline_ns)
			rc = -ETIMEDOUT;
	}
	if (rc == -ETIMEDOUT)
		return gn_fail(rc, "gn_dgram_run(): %u workers have not returned", ep->n_workers);
	return rc;
}

struct gn_source *gn_dgram_source(struct gn_dgram_endpoint *ep)
{
	if (ep)
		return &ep->loop.source;
	gn_fail(-EINVAL, "gn_dgram_source(): the endpoint is NULL");
	return NULL;
}

/* ---- creation ---- */

static int ep_create_tables(struct gn_dgram_endpoint *ep)
{
	const struct gn_dgram_opts *opts = &ep->node->opts;

	while (ep->hash_mask + 1 < opts->max_peers)
		ep->hash_mask = 2 * ep->hash_mask + 1;
	ep->hash = gn_alloc((ep->hash_mask + 1) * sizeof(struct gn_dgram_peer *), 0);
	ep->tables = gn_alloc(opts->max_peers * sizeof(struct dgram_table), 0);
	ep->scratch = gn_alloc(opts->datagram_bytes, GN_CACHELINE);
	ep->copy = gn_alloc(opts->datagram_bytes, GN_CACHELINE);
	if (!ep->hash || !ep->tables || !ep->scratch || !ep->copy)
		return gn_fail_text(-ENOMEM, "gn_dgram_endpoint_create(): " NO_MEMORY);
	return 0;
}

/* A quarter of the receives is slack: duplicates, acknowledgements, heads without messages. */
static void ep_divide_receives(struct gn_dgram_endpoint *ep)
{
	const struct gn_dgram_opts *opts = &ep->node->opts;

	ep->answers_max = opts->calls;
	ep->grants_max = opts->receives - opts->receives / 4 - opts->calls;
}

static int ep_open(struct gn_dgram_endpoint *ep)
{
	const struct gn_dgram_opts *opts = &ep->node->opts;
	const struct link_loop_opts loop = {.fabric = ep->node->fabric,
					    .completions = opts->receives + CQ_SLACK,
					    .maintain_every = MAINTAIN_EVERY,
					    .policy = {.spin_us = SPIN_US, .completions = true}};
	const struct port_opts port = {.datagram_bytes = opts->datagram_bytes,
				       .receives = opts->receives,
				       .sends = DGRAM_SENDS + SENDS_UNSIGNALED,
				       .buffers = DGRAM_SENDS,
				       .posted = DGRAM_SPARE_RECVS,
				       .signal_every = opts->flags & GN_DGRAM_SIGNAL_ALL ? 1 : 0,
				       .single_recv = opts->flags & GN_DGRAM_NO_CHEAP_RECV};
	int rc = link_loop_open(&ep->loop, &ep_ops, &loop);

	if (!rc)
		rc = port_open(&ep->port, &ep->loop, &port);
	if (!rc)
		rc = ep_create_tables(ep);
	if (!rc)
		rc = dgram_workers_init(ep);
	ep_divide_receives(ep);
	return rc;
}

static void ep_close(struct gn_dgram_endpoint *ep)
{
	dgram_peers_destroy(ep); /* ends calls whose ops are on stacks of workers */
	dgram_workers_destroy(ep);
	if (ep->port.loop)
		port_close(&ep->port);
	link_loop_close(&ep->loop);
	for (uint32_t c = 0; c < DGRAM_ANSWER_CLASSES; c++)
		while (ep->free_answers[c]) {
			void *data = ep->free_answers[c];

			memcpy(&ep->free_answers[c], data, sizeof(void *));
			gn_free(data);
		}
	gn_free(ep->hash);
	gn_free(ep->tables);
	gn_free(ep->scratch);
	gn_free(ep->copy);
	gn_free(ep);
}

int gn_dgram_endpoint_create(struct gn_dgram_node *node, uint32_t thread,
			     struct gn_dgram_endpoint **out)
{
	struct gn_dgram_endpoint *ep;
	int rc;

	if (!node || !out)
		return gn_fail_text(-EINVAL, "gn_dgram_endpoint_create(): node or out is NULL");
	if (thread >= node->opts.threads)
		return gn_fail(-EINVAL,
			       "gn_dgram_endpoint_create(): thread %u is not below opts.threads "
			       "of the node (%u)",
			       thread, node->opts.threads);
	ep = gn_alloc(sizeof(*ep), GN_CACHELINE);
	if (!ep)
		return gn_fail_text(-ENOMEM, "gn_dgram_endpoint_create(): " NO_MEMORY);
	ep->node = node;
	ep->owner = gn_thread_id();
	ep->thread = thread;
	ep->flags = node->opts.flags;
	ep->blocked_tail = &ep->blocked;
	ep->survey_task.run = dgram_evict_survey;
	rc = ep_open(ep);
	if (!rc)
		rc = dgram_node_add(ep);
	if (rc) {
		ep_close(ep);
		return rc;
	}
	*out = ep;
	return 0;
}

int gn_dgram_endpoint_destroy(struct gn_dgram_endpoint *ep)
{
	int rc;

	if (!ep)
		return 0;
	rc = dgram_ep_check(ep, "gn_dgram_endpoint_destroy()");
	if (rc)
		return rc;
	if (ep->current || ep->in_handler)
		return gn_fail_text(-EDEADLK,
				    "gn_dgram_endpoint_destroy(): within a worker or a handler");
	dgram_send_flush(ep);
	ep->destroying = true;
	dgram_node_remove(ep);
	ep_close(ep);
	return 0;
}

/* ---- counters ---- */

int gn_dgram_endpoint_stats(const struct gn_dgram_endpoint *ep, struct gn_dgram_stats *out)
{
	struct gn_dgram_stats stats;

	if (!ep)
		return gn_fail_text(-EINVAL, "gn_dgram_endpoint_stats(): the endpoint is NULL");
	counters_read((uint64_t *)&stats, (const uint64_t *)&ep->stats, sizeof(stats));
	stats.sent = counter_read(&ep->port.stats.sent);
	stats.doorbells = counter_read(&ep->port.stats.doorbells);
	stats.recv_doorbells = counter_read(&ep->port.stats.recv_doorbells);
	stats.resets = counter_read(&ep->port.stats.resets);
	stats.outstanding = counter_read(&ep->n_ops);
	stats.granted = counter_read(&ep->grants);
	stats.kept_bytes = counter_read(&ep->kept_bytes);
	stats.reassembly_bytes = counter_read(&ep->reassembly_bytes);
	return SIZED_WRITE(out, &stats, "gn_dgram_stats");
}
