/* SPDX-License-Identifier: MIT */
/* Clients and polled servers as sources: what they do before their thread sleeps. */
#include <errno.h>

#include "base/bits.h"
#include "base/fail.h"
#include "rpc/client.h"
#include "rpc/server.h"

#define RETRY_NS 100000u  /* until a request that had no room in the queue is tried again */
#define SWEEP_NS 1000000u /* between two looks at memory that a server may be copying */

/*
 * The server says when the next result is there. Until then results are only read to see that the
 * server is there, each RPC_PROBE_NS.
 */
static void ask_to_be_woken(struct gn_rpc_client *c, uint64_t now_ns)
{
	uint64_t probe_ns;

	if (!rpc_notify(c, now_ns)) {
		source_due(&c->source, now_ns + RETRY_NS);
		return;
	}
	if (c->n_reply)
		source_due(&c->source, rpc_ask_ns(c) + 1);
	if (!c->n_fetch)
		return;
	probe_ns = c->notify_ns + RPC_PROBE_NS;
	if (c->first_ns < probe_ns)
		c->first_ns = probe_ns;
	source_due(&c->source, c->first_ns);
}

/* Everything else that a client waits for completes, or is an event. */
int rpc_client_prepare(struct gn_source *source)
{
	struct gn_rpc_client *c = container_of(source, struct gn_rpc_client, source);
	int rc = rpc_client_check(c);
	uint64_t now_ns;

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "rpc: a client does not wait from within a done function");
	source->mute = c->dead && !c->opening;
	if (rc || c->dead)
		return rc;
	c->polls = UINT32_MAX / 2; /* the next poll looks at the channel */
	now_ns = gn_now_ns();
	source_due(source, c->until_ns);
	if (c->entries && !c->due)
		source_due(source, c->begun_ns + c->learn.batch.wait_us * 1000ull + 1);
	if ((c->due || c->look.late) && !c->posted)
		source_due(source, now_ns + RETRY_NS);
	if (c->retired || c->old_links)
		source_due(source, now_ns + SWEEP_NS);
	if (c->starved && rpc_slots_full(c))
		source_due(source, rpc_ask_ns(c) + 1);
	if (c->n_fetch | c->n_reply)
		ask_to_be_woken(c, now_ns);
	return source->due_ns <= now_ns ? -EAGAIN : 0;
}

struct gn_source *gn_rpc_client_source(struct gn_rpc_client *client)
{
	if (client)
		return &client->source;
	gn_fail(-EINVAL, "gn_rpc_client_source(): client is NULL");
	return NULL;
}

struct gn_source *gn_rpc_server_source(struct gn_rpc_server *server)
{
	if (server && server->opts.flags & GN_RPC_POLLED)
		return &server->threads[0].loop.source;
	gn_fail(-EINVAL, "gn_rpc_server_source(): server is NULL, or not GN_RPC_POLLED");
	return NULL;
}
