/* SPDX-License-Identifier: MIT */
/* A thread's poller: an event loop, and the endpoints of its connections by index. */
#include <errno.h>

#include "base/fail.h"
#include "base/sized.h"
#include "msg/endpoint.h"

#define MAINTAIN_EVERY 256u /* iterations; polling the channel costs a system call */
#define SPIN_US	       20u  /* busy polling before the channel is polled */
/* between two polls of a sleeping thread whose messages are WRITTEN */
#define POLL_INTERVAL_MIN_NS 20000u
#define POLL_INTERVAL_MAX_NS 10240000u /* … after a long time without messages */

static struct msg_ep *ep_of(struct link_conn *conn)
{
	return container_of(conn, struct msg_ep, link);
}

static struct msg_poller *poller_of(struct link_loop *loop)
{
	return container_of(loop, struct msg_poller, loop);
}

/* ---- link callbacks ---- */

static void poller_completed(struct link_conn *conn, const struct gn_wc *wc)
{
	msg_ep_completed(ep_of(conn), wc);
}

static void poller_datagram(struct link_loop *loop, const struct gn_wc *wc)
{
	msg_ud_completed(poller_of(loop), wc);
}

static void poller_connect_request(struct link_loop *loop, struct gn_event *event)
{
	struct msg_poller *poller = poller_of(loop);

	if (poller->connect_request)
		poller->connect_request(poller, event);
	else
		gn_reject(event->req, NULL, 0);
}

static int poller_connect_done(struct link_conn *conn, const struct gn_event *event)
{
	return ep_of(conn)->poller->connect_done(ep_of(conn), event);
}

static void poller_conn_failed(struct link_conn *conn)
{
	msg_ep_fail(ep_of(conn), GN_MSG_GONE);
}

static bool poller_needs_probe(const struct link_conn *conn)
{
	return container_of(conn, const struct msg_ep, link)->n_expected;
}

static bool poller_destroy_conn(struct link_conn *conn)
{
	return msg_ep_destroy(ep_of(conn));
}

/* The words in which peers' messages appear. */
static void poller_poll_words(struct link_loop *loop, struct link_words *out)
{
	const struct msg_poller *poller = poller_of(loop);

	for (unsigned i = 0; i < poller->max_eps; i++) {
		const struct msg_ep *ep = poller->eps[i];
		const uint64_t *word = ep && ep->n_expected ? msg_ep_poll_word(ep) : NULL;
		uint64_t seen;

		if (!word)
			continue;
		seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		if (!link_words_add(out, word, seen))
			break;
		out->torn |= msg_frame_started(ep->rx.frame, seen, ep->rx.seq);
	}
}

/* Will the next poll find something to do? */
static bool ep_has_work(const struct msg_ep *ep)
{
	return ep->n_chain || ep->rx.n_arrived || (ep->status != GN_MSG_OK && ep->n_expected);
}

/*
 * Called before the thread sleeps. Completions report messages, except those WRITTEN to this side.
 * The thread polls for these at intervals that double until a message arrives.
 */
static int poller_prepare_sleep(struct link_loop *loop)
{
	struct msg_poller *poller = poller_of(loop);
	const uint64_t progress =
		poller->stats.requests + poller->stats.answers + poller->stats.failed;
	bool written = false, begun = false;

	for (unsigned i = 0; i < poller->max_eps; i++) {
		struct msg_ep *ep = poller->eps[i];
		const uint64_t *word = ep && ep->n_expected ? msg_ep_poll_word(ep) : NULL;

		if (ep && ep_has_work(ep))
			return -EAGAIN;
		if (ep && ep->tx.verb == MSG_WRITE)
			msg_ep_wake_peer(ep);
		if (!word)
			continue;
		written = true;
		msg_ep_announce_sleep(ep); /* before the last look at the word */
		begun |= msg_frame_started(ep->rx.frame, __atomic_load_n(word, __ATOMIC_ACQUIRE),
					   ep->rx.seq);
	}
	if (progress != poller->progress || begun)
		poller->poll_interval_ns = POLL_INTERVAL_MIN_NS;
	else if (poller->poll_interval_ns < POLL_INTERVAL_MAX_NS)
		/* 20 us doubled nine times is POLL_INTERVAL_MAX_NS */
		poller->poll_interval_ns *= 2;
	poller->progress = progress;
	if (written)
		source_due(&loop->source, gn_now_ns() + poller->poll_interval_ns);
	return poller->prepare_sleep ? poller->prepare_sleep(poller) : 0;
}

static const struct link_ops poller_ops = {
	.completed = poller_completed,
	.datagram = poller_datagram,
	.request = poller_connect_request,
	.connect_done = poller_connect_done,
	.conn_failed = poller_conn_failed,
	.needs_probe = poller_needs_probe,
	.destroy = poller_destroy_conn,
	.poll_words = poller_poll_words,
	.prepare_sleep = poller_prepare_sleep,
};

/* ---- poller ---- */

int msg_poller_open(struct msg_poller *poller, struct gn_fabric *fabric, struct gn_ctx *ctx,
		    unsigned max_eps, uint32_t completions)
{
	const struct link_loop_opts opts = {
		.fabric = fabric,
		.ctx = ctx,
		.completions = completions,
		.maintain_every = MAINTAIN_EVERY,
		.policy = {.spin_us = SPIN_US, .completions = true},
	};
	const int rc = link_loop_open(&poller->loop, &poller_ops, &opts);

	poller->max_eps = max_eps;
	link_timer_init(&poller->ud_reset, msg_ud_reset);
	poller->poll_interval_ns = POLL_INTERVAL_MIN_NS;
	poller->checksums = !(poller->loop.attr.caps & GN_CAP_INORDER_WRITE);
	poller->eps = gn_alloc(max_eps * sizeof(struct msg_ep *), 0);
	if (!rc && !poller->eps)
		return -ENOMEM;
	return rc;
}

void msg_poller_close(struct msg_poller *poller)
{
	for (unsigned i = 0; poller->eps && i < poller->max_eps; i++)
		if (poller->eps[i])
			msg_ep_close(poller->eps[i]);
	link_conns_sweep_all(&poller->loop);
	msg_ud_close(poller);
	link_loop_close(&poller->loop);
	gn_free(poller->eps);
}

int msg_poller_free_index(const struct msg_poller *poller)
{
	for (unsigned i = 0; i < poller->max_eps; i++)
		if (!poller->eps[i])
			return (int)i;
	return gn_fail_text(-ENOSPC, "msg: max_conns connections are open");
}

int msg_poller_reserve_bytes(struct msg_poller *poller, uint64_t bytes)
{
	if (poller->max_bytes && bytes > poller->max_bytes - poller->bytes)
		return gn_fail_text(-ENOBUFS, "msg: max_memory is used up");
	poller->bytes += bytes;
	return 0;
}

void msg_poller_release_bytes(struct msg_poller *poller, uint64_t bytes)
{
	poller->bytes -= bytes;
}

void msg_poller_poll(struct msg_poller *poller, bool now)
{
	link_loop_poll(&poller->loop);
	msg_ud_maintain(poller);
	if (now)
		link_loop_force_maintain(&poller->loop);
	link_loop_maintain(&poller->loop);
}

int msg_poller_stats(const struct msg_poller *poller, struct gn_msg_stats *out)
{
	struct gn_msg_stats stats = poller->stats;

	msg_ud_add_stats(poller, &stats);
	return SIZED_WRITE(out, &stats, "gn_msg_stats");
}

struct gn_source *msg_poller_source(struct msg_poller *poller)
{
	return &poller->loop.source;
}
