/* SPDX-License-Identifier: MIT */
/* Clients and polled servers as wait sources: preparation for sleep. */
#include <errno.h>

#include "base/bits.h"
#include "base/fail.h"
#include "rpc/client.h"
#include "rpc/server.h"

/* before a work request that found the send queue full is tried again */
#define POST_RETRY_NS 100000u
/* between two attempts to free memory that a server may be copying */
#define RETIRED_CHECK_NS 1000000u

/*
 * The server notifies the client of the next result; until then only rpc_client_check_liveness()
 * reads it.
 */
static void request_notification(struct gn_rpc_client *c, uint64_t now_ns)
{
	if (!rpc_notify(c, now_ns))
		source_due(&c->loop.source, now_ns + POST_RETRY_NS);
	else if (c->n_fetch)
		c->fetch_at_ns = GN_FOREVER;
}

/* Everything else that a client waits for is a completion, an event or a timer. */
static int client_source_prepare(struct gn_source *source)
{
	struct gn_rpc_client *c = container_of(source, struct gn_rpc_client, loop.source);
	int rc = rpc_client_check(c);
	uint64_t now_ns;

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "rpc: a client cannot wait within a done function");
	source->mute = c->dead && !rpc_client_opening(c);
	if (rc || c->dead)
		return rc;
	link_loop_force_maintain(&c->loop); /* in the next poll */
	now_ns = gn_now_ns();
	if (c->entries && !c->send_due)
		source_due(source, c->begun_ns + c->adapt.batch.wait_us * 1000ull + 1);
	if ((c->send_due || c->view_reads.unposted) && !c->posted)
		source_due(source, now_ns + POST_RETRY_NS);
	if (c->retired)
		source_due(source, now_ns + RETIRED_CHECK_NS);
	if (c->n_reply || rpc_waits_for_slot(c))
		source_due(source, rpc_probe_due_ns(c) + 1);
	link_conn_set_probe_interval(&c->link->conn,
				     rpc_calls_sent(c) ? LINK_PROBE_NS : GN_FOREVER);
	if (rpc_calls_sent(c))
		request_notification(c, now_ns);
	source_due(source, link_timers_due(&c->loop.timers));
	return source->due_ns <= now_ns ? -EAGAIN : 0;
}

const struct source_ops rpc_client_source = {
	.ready = source_object_ready,
	.arm = source_object_arm,
	.disarm = source_object_disarm,
	.prepare = client_source_prepare,
};

struct gn_source *gn_rpc_client_source(struct gn_rpc_client *client)
{
	if (client)
		return &client->loop.source;
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
