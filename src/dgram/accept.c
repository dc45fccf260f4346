/* SPDX-License-Identifier: MIT */
/*
 * Hellos of other nodes. A hello names the address at which its node listens, and any node can name
 * any address. So the acceptor connects to that address and asks whether the hello is from there:
 *
 *     A ── NEW: I am at X, random r ──▶ B        B ── VERIFY r ──▶ X
 *     A ◀── OK, or REFUSED ──────────── B        B ◀── OK, the addresses of its threads ── X
 *
 * Only a verified hello ends earlier epochs of the node at X and serves for calls to X. One that
 * cannot be verified, because nobody answers at X or X was asked too often, gets an association as
 * a node without an address does: for its own calls.
 */
#include <string.h>

#include "base/counter.h"
#include "dgram/handshake.h"

#define VERIFY_NS	 200000000u /* to connect and be answered: less than the hello may take */
#define VERIFY_WINDOW_NS 200000000u
#define VERIFY_MAX	 20u /* of one address in a window */

/* ---- may an address be asked? ---- */

/* Behind the provider's name, is there more than a numeric address with its port? */
static bool verify_has_name(const char *addr)
{
	const char *host = strchr(addr, ':');

	return !host || (host[1] != '[' && host[strspn(host, "0123456789.:")]);
}

/*
 * A look-up of a host name may take seconds, and a stranger has chosen the name. A node with a
 * numeric address makes none, but for names that its program has opened.
 */
static bool verify_needs_no_lookup(const struct gn_dgram_node *node, const char *addr)
{
	return verify_has_name(node->addr) || !verify_has_name(addr);
}

/* Bounds what strangers can make this node send to a third one. */
static bool verify_is_within_rate(struct gn_dgram_node *node, const char *addr)
{
	const uint64_t now_ns = gn_now_ns();
	uint64_t hash = node->incarnation;
	struct dgram_verify_rate *rate;

	for (; *addr; addr++)
		hash = (hash ^ (uint8_t)*addr) * UINT64_C(0x100000001b3);
	rate = &node->verify_rates[(hash ^ hash >> 32) % DGRAM_VERIFY_RATES];
	if (now_ns - rate->since_ns > VERIFY_WINDOW_NS)
		*rate = (struct dgram_verify_rate){.since_ns = now_ns};
	return rate->n++ < VERIFY_MAX;
}

/* ---- associations ---- */

/* Ends what a verified hello makes obsolete: see the architecture page. */
static void accept_end_obsolete(struct dgram_remote *remote, const struct dgram_hello *hello)
{
	struct gn_dgram_node *node = remote->node;

	for (struct dgram_assoc *a = node->assocs, *next; a; a = next) {
		next = a->next;
		/* Nodes that could not prove to be at the address were not, or are not any more. */
		if (a->remote != remote && a->incarnation != hello->incarnation &&
		    strcmp(a->remote->claim, hello->addr))
			continue;
		if (a->incarnation != hello->incarnation || !a->initiated)
			dgram_assoc_end(a);
	}
}

/*
 * A node without an address: only it knows the incarnation that it has for this node. False: a
 * later hello of it was there before.
 */
static bool accept_end_nameless(struct gn_dgram_node *node, const struct dgram_hello *hello)
{
	for (struct dgram_assoc *a = node->assocs, *next; a; a = next) {
		next = a->next;
		if (a->incarnation != hello->incarnation || *a->remote->addr ||
		    a->remote->unverified)
			continue;
		if (a->remote->attempt >= hello->attempt)
			return false;
		dgram_assoc_end(a);
	}
	return true;
}

/* Whether the hello must wait, for what this node knows of the address. */
static bool accept_is_early(const struct dgram_remote *remote, const struct dgram_hello *hello)
{
	/* We are connecting there, too: the lower incarnation's hello wins. */
	if (remote->connecting && remote->node->incarnation < hello->incarnation)
		return true;
	/* A later hello of the same incarnation was there before. */
	return remote->incarnation == hello->incarnation && hello->attempt <= remote->attempt;
}

static uint32_t accept_associate(struct dgram_conn *conn, struct dgram_remote *remote,
				 const struct dgram_hello *hello)
{
	struct gn_dgram_node *node = conn->node;
	const uint64_t epoch = dgram_epoch(hello->random, conn->out->random);
	uint32_t index;

	if (!dgram_peers_allowed(node, hello->threads) || dgram_assoc_of_epoch(node, epoch) ||
	    dgram_index_take(node, &index))
		return DGRAM_HELLO_BUSY;
	if (!dgram_assoc_add(remote, hello, epoch, false, index)) {
		node->indices[index] = false;
		return DGRAM_HELLO_BUSY;
	}
	remote->attempt = hello->attempt;
	dgram_remote_reached(remote);
	conn->out->index = index;
	return DGRAM_HELLO_OK;
}

/* named: the hello is from the address that it names. */
static uint32_t accept_new(struct dgram_conn *conn, const struct dgram_hello *hello, bool named)
{
	struct gn_dgram_node *node = conn->node;
	struct dgram_remote *remote = dgram_remote_get(node, named ? hello->addr : "");
	uint32_t kind = DGRAM_HELLO_BUSY;

	if (!remote) {
		dgram_evict(node);
		return DGRAM_HELLO_BUSY;
	}
	remote->unverified = !named && *hello->addr;
	if (remote->unverified)
		memcpy(remote->claim, hello->addr, sizeof(remote->claim));
	if (named && !accept_is_early(remote, hello)) {
		accept_end_obsolete(remote, hello);
		kind = accept_associate(conn, remote, hello);
	} else if (!named && (remote->unverified || accept_end_nameless(node, hello))) {
		kind = accept_associate(conn, remote, hello);
	}
	dgram_remote_put(remote);
	return kind;
}

/* ---- replies ---- */

static void accept_reply(struct dgram_conn *conn, uint32_t kind)
{
	struct gn_dgram_node *node = conn->node;
	const uint64_t random = conn->out->random;
	const uint32_t index = conn->out->index;

	dgram_hello_fill(node, conn->out, kind);
	conn->out->random = random;
	conn->out->index = index;
	if (kind == DGRAM_HELLO_BUSY || kind == DGRAM_HELLO_REFUSED)
		counter_add(&node->stats.refused, 1);
	dgram_conn_send(conn);
}

/* ---- verification ---- */

/* Begins to verify the hello of conn; false: that cannot be done now. */
static bool verify_begin(struct dgram_conn *conn, const struct dgram_hello *hello)
{
	const struct gn_conn_opts opts = {.size = sizeof(opts), .timeout_us = VERIFY_NS / 1000};
	struct gn_dgram_node *node = conn->node;
	const struct dgram_remote *known = dgram_remote_find(node, hello->addr);
	struct dgram_conn *verify;

	if ((!known && !verify_needs_no_lookup(node, hello->addr)) ||
	    !verify_is_within_rate(node, hello->addr))
		return false;
	conn->hello = gn_alloc(sizeof(*hello), 0);
	if (!conn->hello || dgram_conn_create(node, CONN_VERIFY, &verify))
		return false;
	*conn->hello = *hello;
	verify->epoch = hello->random;
	memcpy(verify->addr, hello->addr, sizeof(verify->addr));
	dgram_conn_limit(verify, VERIFY_NS);
	if (link_conn_connect(&verify->link, verify->addr, &opts)) {
		link_conn_close(&verify->link);
		return false;
	}
	verify->other = conn;
	conn->other = verify;
	counter_add(&node->stats.checks, 1);
	return true;
}

/* The node at the address says that it has sent this hello, and not another one with its number. */
static bool verify_matches(const struct dgram_hello *hello, const struct dgram_hello *reply)
{
	return reply->kind == DGRAM_HELLO_OK && reply->incarnation == hello->incarnation &&
	       reply->threads == hello->threads &&
	       !memcmp(reply->thread, hello->thread, hello->threads * sizeof(*hello->thread));
}

void dgram_accept_verified(struct dgram_conn *verify, const struct dgram_hello *reply)
{
	struct dgram_conn *conn = verify->other;
	struct gn_dgram_node *node = verify->node;

	if (!conn)
		return;
	verify->other = conn->other = NULL;
	if (conn->link.state >= LINK_FAILED)
		return;
	if (node->n_endpoints < node->opts.threads)
		accept_reply(conn, DGRAM_HELLO_BUSY);
	else if (reply && !verify_matches(conn->hello, reply))
		accept_reply(conn, DGRAM_HELLO_REFUSED);
	else
		accept_reply(conn, accept_new(conn, conn->hello, reply));
}

/* Another node asks whether this one has begun the handshake with that number. */
static bool verify_is_ours(const struct gn_dgram_node *node, uint64_t random)
{
	for (uint32_t i = 0; i < node->opts.max_handshakes; i++) {
		const struct dgram_conn *conn = node->conns[i];

		if (conn && conn->purpose == CONN_NEW && conn->link.state == LINK_UP &&
		    !conn->replied && conn->out->random == random)
			return true;
	}
	return false;
}

/* ---- hellos ---- */

static void accept_hello_new(struct dgram_conn *conn, const struct dgram_hello *hello)
{
	const struct gn_dgram_node *node = conn->node;
	const struct dgram_remote *remote = dgram_remote_find(conn->node, hello->addr);

	conn->out->random = gn_random();
	conn->out->index = 0;
	if (((hello->flags ^ node->opts.flags) & GN_DGRAM_MAPPED) ||
	    ((hello->flags & GN_DGRAM_MAPPED) && hello->threads != node->opts.threads) ||
	    hello->incarnation == node->incarnation) /* by another name of its own address */
		accept_reply(conn, DGRAM_HELLO_REFUSED);
	else if (node->n_endpoints < node->opts.threads ||
		 (remote && accept_is_early(remote, hello)))
		accept_reply(conn, DGRAM_HELLO_BUSY);
	else if (!*hello->addr || !verify_begin(conn, hello))
		accept_reply(conn, accept_new(conn, hello, false));
}

void dgram_accept_hello(struct dgram_conn *conn, const struct dgram_hello *hello)
{
	struct gn_dgram_node *node = conn->node;
	struct dgram_assoc *assoc = dgram_assoc_of_epoch(node, hello->epoch);
	bool known = assoc;

	switch (hello->kind) {
	case DGRAM_HELLO_NEW:
		accept_hello_new(conn, hello);
		return;
	case DGRAM_HELLO_BYE:
		if (assoc)
			dgram_assoc_end(assoc);
		known = false;
		break;
	case DGRAM_HELLO_CHECK:
		break;
	case DGRAM_HELLO_VERIFY:
		known = verify_is_ours(node, hello->epoch);
		break;
	default:
		accept_reply(conn, DGRAM_HELLO_REFUSED);
		return;
	}
	accept_reply(conn, known ? DGRAM_HELLO_OK : DGRAM_HELLO_UNKNOWN);
}
