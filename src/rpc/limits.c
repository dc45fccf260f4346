/* SPDX-License-Identifier: MIT */
/*
 * Limits on the memory that clients can make a server keep. A connection is charged for its slots,
 * window and queues when it is accepted, and for held results, deferred requests and large messages
 * while they are kept. All charges count against max_client_bytes and max_bytes. Beyond a limit a
 * new connection gets less or is refused, and a call ends with BUSY.
 */
#include <errno.h>

#include "rpc/server.h"

#define WINDOW_PER_SLOT	 128u
#define HELD_BYTES	 (64u << 20) /* default for results of a window that no slot is free for */
#define LARGE_PER_CLIENT 4u	     /* default number of large messages per client */
/* default: clients that can reach max_client_bytes at the same time */
#define FULL_CLIENTS	4u
#define CONN_BYTES	(48u << 10) /* a connection with its pd and qp, without slots and window */
#define WR_BYTES	128u	    /* per work request of a queue */
#define LOG_INTERVAL_NS 1000000000u /* between two log lines about limits */
#define HALF_OPEN_MIN	16u	    /* connections of a thread that are not established yet */
/* probes without an ack before a client is disconnected: one second */
#define UNACKED_PROBES_MAX 10u

/* ---- options ---- */

static uint64_t fixed_bytes(uint64_t slots, uint64_t window, uint32_t max_request,
			    uint32_t max_result)
{
	return CONN_BYTES +
	       rpc_area_bytes(rpc_abandoned_at(rpc_stride(max_request), (uint32_t)slots,
					       (uint32_t)window)) +
	       rpc_area_bytes(slots * rpc_stride(max_result)) + slots * sizeof(uint32_t) +
	       window * sizeof(struct gn_rpc_request) +
	       rpc_completions((uint32_t)slots) * (uint64_t)WR_BYTES;
}

/* All calls of a window may be answered before the first result is acknowledged. */
static uint64_t held_bytes(uint64_t window, uint32_t max_result)
{
	return window * max_result;
}

/* As many calls as slots can carry in batches, if all their results can be held. */
static uint32_t default_window(const struct gn_rpc_server_opts *o)
{
	const uint64_t max = HELD_BYTES / o->max_result;
	uint64_t window = (uint64_t)o->max_slots * WINDOW_PER_SLOT;

	if (window > max)
		window = max;
	return window > o->max_slots ? (uint32_t)window : o->max_slots;
}

void rpc_limits_default(struct gn_rpc_server_opts *o)
{
	uint64_t need;

	if (!o->max_clients)
		o->max_clients = GN_RPC_CLIENTS_DEFAULT * o->threads;
	if (!o->max_window)
		o->max_window = default_window(o);
	if (o->max_window > GN_RPC_WINDOW_MAX)
		o->max_window = GN_RPC_WINDOW_MAX;
	need = fixed_bytes(o->max_slots, o->max_window, o->max_request, o->max_result) +
	       held_bytes(o->max_window, o->max_result);
	if (!o->max_client_bytes)
		o->max_client_bytes = need + LARGE_PER_CLIENT * (uint64_t)o->max_large;
	if (!o->max_bytes) {
		o->max_bytes = FULL_CLIENTS * o->max_client_bytes;
		if (o->max_bytes < GN_RPC_SERVER_BYTES_DEFAULT)
			o->max_bytes = GN_RPC_SERVER_BYTES_DEFAULT;
	}
	if (o->max_client_bytes > o->max_bytes)
		o->max_client_bytes = o->max_bytes;
}

/*
 * When a connection breaks, every send and receive may be flushed at once, signaled or not. Replies
 * that are not reclaimed yet are fewer than two rounds of slots: each round has a signaled WRITE.
 */
uint32_t rpc_max_sends(uint32_t slots)
{
	return 2 * slots + RPC_SENDS_BESIDE;
}

uint32_t rpc_completions(uint32_t slots)
{
	return rpc_max_sends(slots) + LINK_PROBE_SENDS + RPC_RECVS;
}

/* ---- bytes ---- */

/* Limits the rate of log lines about limits. */
static bool limits_may_log(struct gn_rpc_server *server)
{
	const uint64_t now_ns = gn_now_ns();
	uint64_t last_ns = __atomic_load_n(&server->logged_ns, __ATOMIC_RELAXED);

	return (!last_ns || now_ns - last_ns >= LOG_INTERVAL_NS) &&
	       __atomic_compare_exchange_n(&server->logged_ns, &last_ns, now_ns, false,
					   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* The sum never exceeds max, not even for a moment: other threads read it. */
static bool add_within(uint64_t *sum, uint64_t bytes, uint64_t max)
{
	uint64_t now = __atomic_load_n(sum, __ATOMIC_RELAXED);

	do {
		if (now + bytes > max)
			return false;
	} while (!__atomic_compare_exchange_n(sum, &now, now + bytes, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return true;
}

/*
 * client_max, max: bounds for max_client_bytes and max_bytes. Returns NULL, or the limit that was
 * hit.
 */
static const char *limits_charge(struct rpc_conn *c, uint64_t bytes, uint64_t client_max,
				 uint64_t max)
{
	struct gn_rpc_server *server = c->thread->server;

	if (!add_within(&c->bytes, bytes, client_max))
		return __atomic_load_n(&server->bytes, __ATOMIC_RELAXED) + bytes > max ?
			       "max_bytes" :
			       "max_client_bytes";
	if (add_within(&server->bytes, bytes, max))
		return NULL;
	__atomic_fetch_sub(&c->bytes, bytes, __ATOMIC_RELAXED);
	return "max_bytes";
}

void rpc_uncharge(struct rpc_conn *c, uint64_t bytes)
{
	__atomic_fetch_sub(&c->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&c->thread->server->bytes, bytes, __ATOMIC_RELAXED);
}

/*
 * The part of max_client_bytes that large messages cannot use: the results of the client's window
 * always fit. If max_client_bytes is too small for both, large messages get half of what slots and
 * window leave.
 */
static uint64_t limits_reserved(const struct rpc_conn *c)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;
	const uint64_t held = held_bytes(c->window, c->max_result);
	const uint64_t left = o->max_client_bytes -
			      fixed_bytes(c->mask + 1, c->window, c->max_request, c->max_result);
	const uint64_t large = LARGE_PER_CLIENT * (uint64_t)o->max_large;
	const uint64_t max = left - (large < left / 2 ? large : left / 2);

	return held < max ? held : max;
}

/* A quarter of max_bytes is reserved for new connections. */
static const char *limits_charge_kept(struct rpc_conn *c, uint64_t bytes, bool large)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	return limits_charge(c, bytes, o->max_client_bytes - (large ? limits_reserved(c) : 0),
			     o->max_bytes - o->max_bytes / 4);
}

bool rpc_charge_spare(struct rpc_conn *c, uint64_t bytes)
{
	return !limits_charge_kept(c, bytes, true);
}

bool rpc_charge(struct rpc_conn *c, uint64_t bytes, bool large)
{
	struct gn_rpc_server *server = c->thread->server;
	const char *limit = limits_charge_kept(c, bytes, large);

	if (!limit)
		return true;
	__atomic_fetch_add(&server->dropped, 1, __ATOMIC_RELAXED);
	if (limits_may_log(server))
		gn_log(GN_LOG_WARN,
		       "rpc: %llu bytes are kept for client %llu: %s is reached, calls that need "
		       "more end with BUSY",
		       (unsigned long long)__atomic_load_n(&c->bytes, __ATOMIC_RELAXED),
		       (unsigned long long)c->client, limit);
	return false;
}

/* ---- connections ---- */

/* Charges what the hello requested, or less. Returns NULL, or the limit that was hit. */
static const char *limits_charge_fixed(struct rpc_conn *c)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	for (;;) {
		const uint32_t slots = c->mask + 1;
		const char *limit = limits_charge(
			c, fixed_bytes(slots, c->window, c->max_request, c->max_result),
			o->max_client_bytes, o->max_bytes);

		if (!limit)
			return NULL;
		if (c->window > slots) {
			c->window = c->window / 2 > slots ? c->window / 2 : slots;
			continue;
		}
		if (slots == 1)
			return limit;
		c->mask /= 2;
		if (c->window > slots / 2)
			c->window = slots / 2;
	}
}

/*
 * Connections that are established, but whose thread has not processed the event yet, do not count:
 * the thread may be in a slow handler.
 */
static bool too_many_half_open(struct rpc_thread *t)
{
	const uint32_t quarter = t->server->opts.max_clients / 4;
	const uint32_t max = quarter > HALF_OPEN_MIN ? quarter : HALF_OPEN_MIN;
	const uint32_t n = __atomic_load_n(&t->loop.n_opening, __ATOMIC_RELAXED);

	return n >= max && n >= max + (uint32_t)gn_chan_count(t->loop.chan, GN_EVENT_ESTABLISHED);
}

/* Counts first and checks then; rpc_unadmit() undoes the count. */
static const char *limits_refusal(struct rpc_conn *c)
{
	struct rpc_thread *t = c->thread;
	const struct gn_rpc_server_opts *o = &t->server->opts;
	const char *limit;

	if (__atomic_add_fetch(&t->server->n_conns, 1, __ATOMIC_RELAXED) > o->max_clients)
		return "max_clients";
	if (too_many_half_open(t))
		return "a quarter of max_clients, of connections that are not established,";
	limit = limits_charge_fixed(c);
	if (limit)
		return limit;
	return rpc_completions(c->mask + 1) <= __atomic_load_n(&t->loop.cq_free, __ATOMIC_RELAXED) ?
		       NULL :
		       "the size of a thread's completion queue (threads, max_slots)";
}

bool rpc_admit(struct rpc_conn *c)
{
	struct gn_rpc_server *server = c->thread->server;
	const char *why = limits_refusal(c);

	if (!why)
		return true;
	rpc_unadmit(c);
	__atomic_fetch_add(&server->refused, 1, __ATOMIC_RELAXED);
	if (limits_may_log(server))
		gn_log(GN_LOG_WARN,
		       "rpc: a client is refused: %s is reached; %u clients are connected, for "
		       "which %llu bytes are kept",
		       why, __atomic_load_n(&server->n_conns, __ATOMIC_RELAXED),
		       (unsigned long long)__atomic_load_n(&server->bytes, __ATOMIC_RELAXED));
	return false;
}

void rpc_unadmit(struct rpc_conn *c)
{
	struct gn_rpc_server *server = c->thread->server;

	rpc_uncharge(c, c->bytes);
	__atomic_fetch_sub(&server->n_conns, 1, __ATOMIC_RELAXED);
}

void rpc_reclaim(struct rpc_conn *c, uint32_t rounds)
{
	const struct gn_rpc_server *server = c->thread->server;

	if ((!c->held && !c->exports) || c->acked != c->acked_before) {
		c->acked_before = c->acked;
		c->rounds_unacked = 0;
		return;
	}
	c->rounds_unacked += rounds;
	if (c->rounds_unacked < UNACKED_PROBES_MAX ||
	    __atomic_load_n(&server->bytes, __ATOMIC_RELAXED) < server->opts.max_bytes / 2)
		return;
	gn_log(GN_LOG_WARN,
	       "rpc: client %llu is disconnected: it acknowledges no result, and the server has "
	       "half of max_bytes in use",
	       (unsigned long long)c->client);
	rpc_conn_fail(c);
}
