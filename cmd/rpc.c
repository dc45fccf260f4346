/* SPDX-License-Identifier: MIT */
/*
 * gannet rpc: finds the second word and calls it; and what those commands share.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "rpc_cmd.h"

#define LOOK_US 50000u /* between looks for an interrupt */

static const struct command *const commands[] = {
	&command_rpc_serve, &command_rpc_call, &command_rpc_ping,
	&command_rpc_stats, &command_rpc_tune, NULL,
};

const struct command command_rpc = {
	.name = "rpc",
	.what = "calls by hand: gannet rpc serve, call, ping, stats, tune",
	.about = "Calls by hand, of any server that is written against gannet/rpc.h.",
	.more = "An address is shm:NAME, between processes of this machine, or verbs:HOST:PORT.",
	.commands = commands,
};

const char *const rpc_modes[GN_RPC_MODES + 1] = {
	[GN_RPC_HYBRID] = "hybrid", [GN_RPC_FETCH] = "fetch", [GN_RPC_REPLY] = "reply"};

/* ---- addresses ---- */

int cmd_take_addr(const char *name, const char *text, void *to)
{
	(void)name;
	if (strncmp(text, "shm:", 4) && strncmp(text, "verbs:", 6))
		return cmd_usage_error("'%s' is no address; those are shm:NAME and verbs:HOST:PORT",
				       text);
	memcpy(to, &text, sizeof(text));
	return 0;
}

int rpc_open(const char *addr, struct gn_fabric **out)
{
	char provider[16];
	int rc;

	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(addr, ":"), addr);
	rc = gn_fabric_open(provider, out);
	if (rc)
		fprintf(stderr, "gannet: cannot open %s: %s; gannet doctor says what it lacks\n",
			provider, gn_strerror(rc));
	return rc;
}

/* ---- a connection ---- */

int rpc_link_open(struct rpc_link *link, const char *addr, const struct gn_rpc_client_opts *opts)
{
	int rc;

	*link = (struct rpc_link){.addr = addr};
	rc = rpc_open(addr, &link->fabric);
	if (rc)
		return rc;
	link->limits.size = sizeof(link->limits);
	rc = gn_rpc_client_open(link->fabric, addr, opts, &link->client);
	if (!rc)
		rc = gn_rpc_client_limits(link->client, &link->limits);
	if (!rc) {
		bench_stop_on_signals(); /* until here a signal may end the process as it likes */
		return 0;
	}
	cmd_connect_failed(addr, rc, "RPC server");
	rpc_link_close(link);
	return rc;
}

void rpc_link_close(struct rpc_link *link)
{
	gn_rpc_client_close(link->client);
	gn_fabric_close(link->fabric);
	*link = (struct rpc_link){.addr = link->addr};
}

static void rpc_note_done(struct gn_rpc_op *op)
{
	*(bool *)op->arg = true;
}

int rpc_link_call(struct rpc_link *link, struct gn_rpc_op *op, uint32_t timeout_ms)
{
	bool done = false;
	int rc;

	op->deadline_ns = gn_deadline_us((uint64_t)timeout_ms * 1000);
	op->done = rpc_note_done;
	op->arg = &done;
	rc = gn_rpc_submit(link->client, op);
	if (rc == -EMSGSIZE)
		fprintf(stderr, "gannet: %u bytes are too many for %s, which takes %u\n",
			op->request_len, link->addr, link->limits.max_large);
	else if (rc && rc != -ENOTCONN)
		fprintf(stderr, "gannet: cannot call: %s\n", cmd_why(rc));
	if (rc == -ENOTCONN) { /* it broke before: the same as if it had a moment later */
		op->status = GN_RPC_PEER_GONE;
		return 0;
	}
	while (!rc && !done && !bench_stopped()) {
		rc = gn_rpc_wait(link->client, gn_deadline_us(LOOK_US));
		rc = rc == -ETIMEDOUT || rc == -EINTR || rc > 0 ? 0 : rc;
	}
	if (!done && bench_stopped())
		return gn_rpc_cancel(op), -EINTR;
	return rc;
}

const char *rpc_status_text(unsigned status)
{
	static char text[64];

	if (status < GN_RPC_FAILED)
		return gn_rpc_status_str(status);
	snprintf(text, sizeof(text), "%s, %u", gn_rpc_status_str(status), status);
	return text;
}
