/* SPDX-License-Identifier: MIT */
/* Checks the outcome of a call against everything that is known about it. */
#include <errno.h>

#include "sim_rpc.h"

static bool too_big(const struct check *c, const struct call *call)
{
	const uint32_t most = c->w->plan.server.max_large;

	if (call->result_len > call->result_room)
		return true;
	return call->large_result &&
	       (call->result_len > c->max_large || (most && call->result_len > most));
}

/* Of the statuses that the server returns. */
static bool status_is_right(const struct check *c, const struct call *call, unsigned status)
{
	const struct plan *plan = &c->w->plan;
	const unsigned meant = call->method == OWN ? own_status(c->number) : GN_RPC_OK;

	if (status == GN_RPC_BUSY && !call->executed)
		return call->large_request || plan->cluster.no_memory || plan->drain_us;
	if (status == GN_RPC_BUSY)
		return call->large_result || plan->cluster.no_memory;
	if (call->method == NOBODY)
		return status == GN_RPC_NO_METHOD;
	if (status == GN_RPC_TOO_BIG)
		return too_big(c, call) || (call->large_result && plan->cluster.no_memory);
	/* A handler's own status is kept, without bytes, if the caller can see that. */
	if (too_big(c, call) && (meant == GN_RPC_OK || call->result_len <= call->result_room))
		return false;
	return status == meant;
}

/* The server's status and bytes: those of this call, and all of them. */
static void check_result(const struct check *c, const struct call *call, const struct gn_rpc_op *op)
{
	const unsigned status = op->status;
	uint32_t bad;

	if (!status_is_right(c, call, status))
		world_fail(c->w, "call %u for method %u, %u of %u bytes, ends with %u", c->number,
			   call->method, call->result_len, call->result_room, status);
	else if (status != GN_RPC_NO_METHOD && status != GN_RPC_BUSY && call->executed != 1)
		world_fail(c->w, "call %u ends with %u and was executed %u times", c->number,
			   status, call->executed);
	else if (status != GN_RPC_OK &&
		 (call->method != OWN || status != own_status(c->number) || too_big(c, call)))
		return;
	else if (op->result_len != call->result_len)
		world_fail(c->w, "call %u: %u bytes instead of %u", c->number, op->result_len,
			   call->result_len);
	else if (!pattern_is(op->result, op->result_len, c->number, true, &bad))
		world_fail(c->w, "call %u: its result's %u bytes are wrong from %u on", c->number,
			   op->result_len, bad);
}

/* Without faults a result is noticed soon: this detects a lost wake-up. */
static void check_stall(const struct check *c, const struct call *call)
{
	const uint64_t now_ns = gn_sim_now_ns(c->w->run.sim);
	const uint64_t prompt_ns = c->w->plan.prompt_us * 1000ull;
	const uint64_t most_ns = (prompt_ns ? prompt_ns : PROMPT_NS) + c->idle_ns;
	const uint64_t sent_ns = call->begun_ns + c->wait_us * 1000ull;
	const uint64_t came_ns = call->received_ns ? call->received_ns : now_ns;

	if (came_ns > sent_ns + most_ns)
		world_fail(c->w, "call %u has %s after %llu ns", c->number,
			   call->received_ns ? "come to its handler only" : "not come to anybody",
			   (unsigned long long)(came_ns - call->begun_ns));
	if (call->answered_ns && now_ns > call->answered_ns + most_ns)
		world_fail(c->w, "call %u ends %llu ns after its answer", c->number,
			   (unsigned long long)(now_ns - call->answered_ns));
}

void check_ended(const struct check *c, const struct gn_rpc_op *op)
{
	const struct plan *plan = &c->w->plan;
	const struct call *call = &c->w->call[c->number];
	const uint64_t now_ns = gn_now_ns();

	if (plan->strict && !c->broken && op->status != GN_RPC_BUSY)
		check_stall(c, call);
	switch (op->status) {
	case GN_RPC_TIMEOUT:
		if (now_ns < call->deadline_ns)
			world_fail(c->w, "call %u ends %llu ns before its deadline", c->number,
				   (unsigned long long)(call->deadline_ns - now_ns));
		break;
	case GN_RPC_CANCELED:
		if (!c->canceled)
			world_fail(c->w, "call %u: nobody has canceled it", c->number);
		break;
	case GN_RPC_PEER_GONE:
		if (plan->strict && !plan->stop_us && !c->broken)
			world_fail(c->w, "call %u: the peer is not gone", c->number);
		if (plan->strict && c->w->drained && call->answered_ns && !c->broken)
			world_fail(c->w, "call %u was answered, and its server drained", c->number);
		break;
	default:
		check_result(c, call, op);
	}
}
