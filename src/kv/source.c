/* SPDX-License-Identifier: MIT */
/* A client or a polled server as a wait source: preparation for sleep. */
#include <errno.h>

#include "base/bits.h"
#include "base/fail.h"
#include "kv/bypass.h"

void kv_link_poll_idle(struct gn_kv_client *c, struct kv_link *link)
{
	gn_rpc_poll(link->rpc);
	if (c->connect == KV_CONNECT_IDLE && gn_rpc_flush(link->rpc) == -ENOTCONN)
		c->disconnected = true;
}

/* The connections are members of the source and report their own readiness. */
static int client_source_prepare(struct gn_source *source)
{
	struct gn_kv_client *c = container_of(source, struct gn_kv_client, source);
	int rc = kv_client_check(c);

	if (!rc && c->busy)
		rc = gn_fail(-EDEADLK, "kv: a client cannot wait within a done function");
	if (rc)
		return rc;
	c->poll_idle_links = true;
	c->polls = KV_CLOCK_EVERY - 1; /* … and reads the clock */
	source_due(source, c->earliest_deadline_ns);
	if (c->disconnected && c->opts.flags & GN_KV_RECONNECT && c->connect != KV_CONNECT_IDLE)
		source_due(source, c->connect_deadline_ns);
	else if (c->disconnected && c->opts.flags & GN_KV_RECONNECT && !c->n_ops)
		source_due(source, c->backoff.at_ns);
	for (uint32_t i = 0; i < c->n_links; i++) {
		const struct kv_link *link = &c->links[i];

		if (link->bypass && kv_bypass_must_poll(link->bypass))
			return -EAGAIN;
	}
	return source->due_ns <= gn_now_ns() ? -EAGAIN : 0;
}

const struct source_ops kv_client_source = {
	.ready = source_object_ready,
	.arm = source_object_arm,
	.disarm = source_object_disarm,
	.prepare = client_source_prepare,
};

struct gn_source *gn_kv_client_source(struct gn_kv_client *client)
{
	if (client)
		return &client->source;
	gn_fail(-EINVAL, "gn_kv_client_source(): client is NULL");
	return NULL;
}

struct gn_source *gn_kv_server_source(struct gn_kv_server *server)
{
	return gn_rpc_server_source(gn_kv_server_rpc(server));
}
