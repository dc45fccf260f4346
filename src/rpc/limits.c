/* SPDX-License-Identifier: MIT */
/*
 * What clients may make a server keep. A connection is charged for its slots, window and queues
 * when it is accepted, and for held results, deferred requests and large messages as long as they
 * are kept; all of it counts against a limit for each client and one for the server. A hello beyond
 * them is granted less or refused, a call beyond them ends with BUSY.
 */
#include <errno.h>

#include "rpc/server.h"

#define WINDOW_PER_SLOT	 128u
#define HELD_BYTES	 (64u << 20) /* results of a window that no slot is free for, by default */
#define LARGE_PER_CLIENT 4u	     /* large messages, of a client by default */
#define CLIENTS_AT_ONCE	 4u	     /* that may have all they may have, by default */
#define CONN_BYTES	 (48u << 10) /* a connection, its pd and its qp, without what follows */
#define WR_BYTES	 128u	     /* of a queue, for each request */
#define LOG_NS		 1000000000u /* between two lines about limits: clients may come often */
#define HALF_OPEN_MIN	 16u	     /* connections of a thread that are not established yet */
#define UNACKED_ROUNDS	 10u	     /* of probes: a second */

/* ---- options ---- */

static uint64_t fixed_bytes(uint64_t slots, uint64_t window, uint32_t max_request,
			    uint32_t max_result)
{
	return CONN_BYTES +
	       rpc_area_bytes(rpc_given_up_at(rpc_stride(max_request), (uint32_t)slots,
					      (uint32_t)window)) +
	       rpc_area_bytes(slots * rpc_stride(max_result)) + slots * sizeof(uint32_t) +
	       window * sizeof(struct gn_rpc_request) +
	       rpc_completions((uint32_t)slots) * (uint64_t)WR_BYTES;
}

/* Every call of a window may be answered before the first result is acknowledged. */
static uint64_t held_bytes(uint64_t window, uint32_t max_result)
{
	return window * max_result;
}

/* As many calls as slots can carry in batches, if the results of all of them can be held. */
static uint32_t default_window(const struct gn_rpc_server_opts *o)
{
	const uint64_t most = HELD_BYTES / o->max_result;
	uint64_t window = (uint64_t)o->max_slots * WINDOW_PER_SLOT;

	if (window > most)
		window = most;
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
		o->max_bytes = CLIENTS_AT_ONCE * o->max_client_bytes;
		if (o->max_bytes < GN_RPC_SERVER_BYTES_DEFAULT)
			o->max_bytes = GN_RPC_SERVER_BYTES_DEFAULT;
	}
	if (o->max_client_bytes > o->max_bytes)
		o->max_client_bytes = o->max_bytes;
}

/*
 * Every send and every receive may be flushed at once when a connection breaks, signaled or not.
 * Replies that are not reclaimed yet are fewer than two rounds of slots: each round has a signal.
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

/* A line about limits may be logged: not more often than somebody can read. */
static bool may_log(struct gn_rpc_server *server)
{
	const uint64_t now_ns = gn_now_ns();
	uint64_t last_ns = __atomic_load_n(&server->logged_ns, __ATOMIC_RELAXED);

	return (!last_ns || now_ns - last_ns >= LOG_NS) &&
	       __atomic_compare_exchange_n(&server->logged_ns, &last_ns, now_ns, false,
					   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Never more than most, not even for a moment: others read it meanwhile. */
static bool add_within(uint64_t *sum, uint64_t bytes, uint64_t most)
{
	uint64_t now = __atomic_load_n(sum, __ATOMIC_RELAXED);

	do {
		if (now + bytes > most)
			return false;
	} while (!__atomic_compare_exchange_n(sum, &now, now + bytes, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return true;
}

/* client_most, most: of max_client_bytes and max_bytes. NULL, or the option that is in the way. */
static const char *charge(struct rpc_conn *c, uint64_t bytes, uint64_t client_most, uint64_t most)
{
	struct gn_rpc_server *server = c->thread->server;

	if (!add_within(&c->bytes, bytes, client_most))
		return __atomic_load_n(&server->bytes, __ATOMIC_RELAXED) + bytes > most ?
			       "max_bytes" :
			       "max_client_bytes";
	if (add_within(&server->bytes, bytes, most))
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
 * What large messages of a client may not use of max_client_bytes: the results of its window find
 * room whatever else is kept for it. Where max_client_bytes was set to too little for both, large
 * messages may have half of what slots and window leave.
 */
static uint64_t reserved(const struct rpc_conn *c)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;
	const uint64_t held = held_bytes(c->window, c->max_result);
	const uint64_t left = o->max_client_bytes -
			      fixed_bytes(c->mask + 1, c->window, c->max_request, c->max_result);
	const uint64_t large = LARGE_PER_CLIENT * (uint64_t)o->max_large;
	const uint64_t most = left - (large < left / 2 ? large : left / 2);

	return held < most ? held : most;
}

/* A quarter of max_bytes is for connections alone: a newcomer finds room whatever others keep. */
static const char *charge_kept(struct rpc_conn *c, uint64_t bytes, bool large)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	return charge(c, bytes, o->max_client_bytes - (large ? reserved(c) : 0),
		      o->max_bytes - o->max_bytes / 4);
}

bool rpc_charge_spare(struct rpc_conn *c, uint64_t bytes)
{
	return !charge_kept(c, bytes, true);
}

bool rpc_charge(struct rpc_conn *c, uint64_t bytes, bool large)
{
	struct gn_rpc_server *server = c->thread->server;
	const char *limit = charge_kept(c, bytes, large);

	if (!limit)
		return true;
	__atomic_fetch_add(&server->dropped, 1, __ATOMIC_RELAXED);
	if (may_log(server))
		gn_log(GN_LOG_WARN,
		       "rpc: %llu bytes are kept for client %llu: %s is reached, calls that need "
		       "more end with BUSY",
		       (unsigned long long)__atomic_load_n(&c->bytes, __ATOMIC_RELAXED),
		       (unsigned long long)c->client, limit);
	return false;
}

/* ---- connections ---- */

/* Less and less of what the hello asked for. NULL, or the option that is in the way. */
static const char *charge_fixed(struct rpc_conn *c)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	for (;;) {
		const uint32_t slots = c->mask + 1;
		const char *limit =
			charge(c, fixed_bytes(slots, c->window, c->max_request, c->max_result),
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
 * Those that are established, and whose thread has not heard of that, count no more: it may be in a
 * slow handler, which is not their fault.
 */
static bool too_many_half_open(struct rpc_thread *t)
{
	const uint32_t quarter = t->server->opts.max_clients / 4;
	const uint32_t most = quarter > HALF_OPEN_MIN ? quarter : HALF_OPEN_MIN;
	const uint32_t n = __atomic_load_n(&t->loop.n_opening, __ATOMIC_RELAXED);

	return n >= most && n >= most + (uint32_t)gn_chan_count(t->loop.chan, GN_EVENT_ESTABLISHED);
}

/* What rpc_dismiss() gives back is counted before it is checked. */
static const char *refusal(struct rpc_conn *c)
{
	struct rpc_thread *t = c->thread;
	const struct gn_rpc_server_opts *o = &t->server->opts;
	const char *limit;

	if (__atomic_add_fetch(&t->server->n_conns, 1, __ATOMIC_RELAXED) > o->max_clients)
		return "max_clients";
	if (too_many_half_open(t))
		return "a quarter of max_clients, of connections that are not established,";
	limit = charge_fixed(c);
	if (limit)
		return limit;
	return rpc_completions(c->mask + 1) <= __atomic_load_n(&t->loop.cq_free, __ATOMIC_RELAXED) ?
		       NULL :
		       "the end of a thread's completion queue (threads, max_slots)";
}

bool rpc_admit(struct rpc_conn *c)
{
	struct gn_rpc_server *server = c->thread->server;
	const char *why = refusal(c);

	if (!why)
		return true;
	rpc_dismiss(c);
	__atomic_fetch_add(&server->refused, 1, __ATOMIC_RELAXED);
	if (may_log(server))
		gn_log(GN_LOG_WARN,
		       "rpc: a client is refused: %s is reached; %u clients are connected, for "
		       "which %llu bytes are kept",
		       why, __atomic_load_n(&server->n_conns, __ATOMIC_RELAXED),
		       (unsigned long long)__atomic_load_n(&server->bytes, __ATOMIC_RELAXED));
	return false;
}

void rpc_dismiss(struct rpc_conn *c)
{
	struct gn_rpc_server *server = c->thread->server;

	rpc_uncharge(c, c->bytes);
	__atomic_fetch_sub(&server->n_conns, 1, __ATOMIC_RELAXED);
}

void rpc_reclaim(struct rpc_conn *c, uint32_t rounds)
{
	const struct gn_rpc_server *server = c->thread->server;

	if ((!c->held && !c->lent) || c->acked != c->acked_before) {
		c->acked_before = c->acked;
		c->rounds_unacked = 0;
		return;
	}
	c->rounds_unacked += rounds;
	if (c->rounds_unacked < UNACKED_ROUNDS ||
	    __atomic_load_n(&server->bytes, __ATOMIC_RELAXED) < server->opts.max_bytes / 2)
		return;
	gn_log(GN_LOG_WARN,
	       "rpc: client %llu is disconnected: it acknowledges no result, and the server has "
	       "half of max_bytes in use",
	       (unsigned long long)c->client);
	rpc_conn_fail(c);
}
