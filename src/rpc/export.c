/* SPDX-License-Identifier: MIT */
/*
 * Server memory that a client may READ: large results, until the client acknowledges them; and
 * memory exposed by a handler, until the connection ends.
 */
#include <errno.h>
#include <string.h>

#include "base/counter.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "rpc/server.h"

/* ---- large results ---- */

/* The handler's own memory: register the pages that hold the result. */
static int export_mem(struct rpc_conn *c, struct rpc_answer *a, struct rpc_export *export,
		      struct rpc_large_ref *out)
{
	const size_t from = a->offset / GN_PAGE * GN_PAGE;
	struct gn_remote remote;
	int rc = gn_mr_register(c->pd, a->mem, from, a->offset + a->len - from, GN_REMOTE_READ,
				&export->mr);

	if (rc)
		return rc;
	gn_mr_remote(export->mr, &remote);
	*out = (struct rpc_large_ref){
		.offset = remote.offset + a->offset - from, .key = remote.key, .len = a->len};
	export->release = a->release;
	export->arg = a->arg;
	a->release = NULL;
	return 0;
}

static int export_copy(struct rpc_conn *c, struct rpc_answer *a, struct rpc_export *export,
		       struct rpc_large_ref *out)
{
	struct gn_remote remote;
	int rc = 0;

	if (a->area.mem) { /* the handler built the result there */
		export->area = a->area;
		a->area = (struct rpc_area){0};
	} else {
		rc = rpc_area_make(c->thread->server->fabric, c->pd, a->len, GN_REMOTE_READ,
				   &export->area);
		if (rc)
			return rc;
		memcpy(gn_mem_addr(export->area.mem), a->data, a->len);
		gn_charge(GN_WORK_COPY, a->len);
	}
	gn_mr_remote(export->area.mr, &remote);
	*out = (struct rpc_large_ref){.offset = remote.offset, .key = remote.key, .len = a->len};
	return 0;
}

/* False: not possible now; the answer's status says so. */
bool rpc_result_export(struct gn_rpc_request *r, struct rpc_large_ref *out)
{
	struct rpc_conn *c = r->conn;
	struct rpc_answer *a = &r->answer;
	struct rpc_export *export = NULL;
	uint64_t bytes = a->charged; /* a kept result is charged already */
	int rc = -ENOMEM;

	if (!bytes && rpc_charge(c, a->len, true))
		bytes = a->len;
	a->charged = 0;
	if (bytes)
		export = gn_alloc(sizeof(*export), 0);
	/* Memory that was allocated without GN_REMOTE_READ is copied. */
	if (export && a->mem)
		rc = export_mem(c, a, export, out);
	if (export && rc)
		rc = export_copy(c, a, export, out);
	if (rc) {
		rpc_uncharge(c, bytes);
		gn_free(export);
		a->status = GN_RPC_BUSY;
		return false;
	}
	export->bytes = bytes;
	export->number = c->published + 1;
	export->next = c->exports;
	c->exports = export;
	c->n_exports++;
	rpc_conn_update_pending(c);
	counter_add(&c->thread->count.large, 1);
	return true;
}

void rpc_exports_release(struct rpc_conn *c, bool all)
{
	c->releasing = false;
	for (struct rpc_export **at = &c->exports; *at;) {
		struct rpc_export *export = *at;

		if (!all && (int32_t)(export->number - c->acked) > 0 &&
		    !mutant("rpc-export-early", 8)) {
			at = &export->next;
			continue;
		}
		/* Either mr or area is set. Do not wait for a client that is copying. */
		if (gn_mr_deregister_try(export->mr) || rpc_area_free_try(&export->area)) {
			c->releasing = true;
			at = &export->next;
			continue;
		}
		*at = export->next;
		c->n_exports--;
		rpc_uncharge(c, export->bytes);
		if (export->release)
			export->release(export->arg);
		gn_free(export);
	}
	rpc_conn_update_pending(c);
}

/* ---- exposed memory ---- */

static int expose_mem(struct rpc_conn *c, struct gn_mem *mem, struct rpc_exposed **out)
{
	struct rpc_exposed *exposed;
	int rc;

	if (c->n_exposed >= GN_RPC_VIEWS_MAX)
		return gn_fail(-ENOSPC, "gn_rpc_request_show(): at most %u mems per client",
			       GN_RPC_VIEWS_MAX);
	exposed = gn_alloc(sizeof(*exposed), 0);
	if (!exposed)
		return -ENOMEM;
	rc = gn_mr_register(c->pd, mem, 0, gn_mem_size(mem), GN_REMOTE_READ, &exposed->mr);
	if (rc) {
		gn_free(exposed);
		return rc;
	}
	exposed->mem = mem;
	exposed->next = c->exposed;
	c->exposed = exposed;
	c->n_exposed++;
	*out = exposed;
	return 0;
}

int gn_rpc_request_show(struct gn_rpc_request *request, struct gn_mem *mem, struct gn_rpc_view *out)
{
	struct rpc_conn *c = request->conn;
	struct gn_remote remote;
	struct rpc_exposed *exposed;
	int rc = 0;

	if (!mem || !out)
		return gn_fail(-EINVAL, "gn_rpc_request_show(): mem is NULL, or out is NULL");
	if (!rpc_request_runs(request))
		return gn_fail(-EPERM, "gn_rpc_request_show(): only while the handler runs");
	for (exposed = c->exposed; exposed && exposed->mem != mem; exposed = exposed->next)
		;
	if (!exposed)
		rc = expose_mem(c, mem, &exposed);
	if (!rc)
		rc = gn_mr_remote(exposed->mr, &remote);
	if (rc)
		return rc;
	*out = (struct gn_rpc_view){.bytes = remote.length, .key = remote.key, .epoch = c->epoch};
	return 0;
}

void rpc_exposed_free(struct rpc_conn *c)
{
	while (c->exposed) {
		struct rpc_exposed *exposed = c->exposed;

		c->exposed = exposed->next;
		gn_mr_deregister(exposed->mr);
		gn_free(exposed);
	}
}
