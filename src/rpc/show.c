/* SPDX-License-Identifier: MIT */
/* Memory that a server shows to a client, as long as that is connected. */
#include <errno.h>

#include "base/fail.h"
#include "rpc/server.h"

static int show(struct rpc_conn *c, struct gn_mem *mem, struct rpc_shown **out)
{
	struct rpc_shown *shown;
	int rc;

	if (c->n_shown >= GN_RPC_VIEWS_MAX)
		return gn_fail(-ENOSPC, "gn_rpc_request_show(): a client is shown %u mems at most",
			       GN_RPC_VIEWS_MAX);
	shown = gn_alloc(sizeof(*shown), 0);
	if (!shown)
		return -ENOMEM;
	rc = gn_mr_register(c->pd, mem, 0, gn_mem_size(mem), GN_REMOTE_READ, &shown->mr);
	if (rc) {
		gn_free(shown);
		return rc;
	}
	shown->mem = mem;
	shown->next = c->shown;
	c->shown = shown;
	c->n_shown++;
	*out = shown;
	return 0;
}

int gn_rpc_request_show(struct gn_rpc_request *request, struct gn_mem *mem, struct gn_rpc_view *out)
{
	struct rpc_conn *c = request->conn;
	struct gn_remote remote;
	struct rpc_shown *shown;
	int rc = 0;

	if (!mem || !out)
		return gn_fail(-EINVAL, "gn_rpc_request_show(): mem is NULL, or out is NULL");
	if (!rpc_request_runs(request))
		return gn_fail(-EPERM, "gn_rpc_request_show(): only in its handler");
	for (shown = c->shown; shown && shown->mem != mem; shown = shown->next)
		;
	if (!shown)
		rc = show(c, mem, &shown);
	if (!rc)
		rc = gn_mr_remote(shown->mr, &remote);
	if (rc)
		return rc;
	*out = (struct gn_rpc_view){.bytes = remote.length, .key = remote.key, .epoch = c->epoch};
	return 0;
}

void rpc_shown_hide(struct rpc_conn *c)
{
	while (c->shown) {
		struct rpc_shown *shown = c->shown;

		c->shown = shown->next;
		gn_mr_deregister(shown->mr);
		gn_free(shown);
	}
}
