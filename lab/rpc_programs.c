/* SPDX-License-Identifier: MIT */
/* The two programs of the layer rpc: a server, and a client's thread. */
#include <errno.h>

#include "rpc_load.h"

#define ADDRESS	 "sim:n0:7000"
#define BETWEEN	 16u
#define LOOKS_US 1000000u /* the papers' servers look at every client all the time */

/*
 * Bytes of a slot: for a call, or a batch of them with what is put between, twice: results are put
 * together in place while there is as much room again.
 */
static uint32_t slot_bytes(const struct rpc_load *o, uint32_t each)
{
	const uint64_t n = o->call.batch ? 2 * o->call.batch * (uint64_t)(each + BETWEEN) : each;

	if (n < GN_RPC_BYTES_DEFAULT)
		return GN_RPC_BYTES_DEFAULT;
	return n < GN_RPC_BYTES_MAX ? (uint32_t)n : GN_RPC_BYTES_MAX;
}

/* ---- the server ---- */

static void handle(struct gn_rpc_request *request, void *arg)
{
	const struct rpc_run *run = arg;
	const struct rpc_load *o = run->opts;
	uint32_t room = 0;
	void *result = gn_rpc_request_room(request, &room);

	gn_charge(GN_WORK_NS, o->work_ns);
	/* Where a batch of results is full there is no room left; then it is copied. */
	gn_rpc_answer(request, GN_RPC_OK, room < o->resp ? run->result : result, o->resp);
}

static void serve(struct rpc_run *run, struct gn_rpc_server *server)
{
	if (call_ok(&run->call, gn_rpc_server_handle(server, RPC_METHOD, handle, run),
		    "a handler") &&
	    call_ok(&run->call, gn_rpc_server_start(server), "starting the server"))
		call_server_waits(&run->call);
}

int rpc_server_program(struct gn_env *env, int argc, char **argv)
{
	struct rpc_run *run = env->arg;
	const struct rpc_load *o = run->opts;
	const struct gn_rpc_server_opts opts = {
		.threads = o->call.server_threads,
		.max_request = slot_bytes(o, o->req),
		.max_result = slot_bytes(o, o->resp),
		.park_us = o->call.paper ? LOOKS_US : 0,
		.flags = o->call.paper ? GN_RPC_SERVER_PAPER : 0,
	};
	struct gn_rpc_server *server = NULL;
	struct gn_fabric *fabric;

	(void)argc;
	(void)argv;
	if (!call_ok(&run->call, gn_fabric_open(env->fabric, &fabric), "the fabric"))
		return 1;
	if (call_ok(&run->call, gn_rpc_server_create(fabric, ADDRESS, &opts, &server), "a server"))
		serve(run, server);
	gn_rpc_server_destroy(server);
	call_ok(&run->call, gn_fabric_close(fabric), "closing the fabric");
	return run->call.load.failed;
}

/* ---- a client ---- */

struct rpc_caller {
	struct caller *c;
	struct rpc_run *run;
	uint8_t *request, *result; /* results lie one behind the other */
	struct gn_rpc_op *ops;	   /* of a batch */
};

static bool connect_to(struct rpc_caller *r, unsigned thread)
{
	struct caller *c = r->c;
	const struct rpc_load *o = r->run->opts;
	const struct gn_rpc_client_opts opts = {
		.mode = o->call.mode,
		.flags = o->call.paper ? GN_RPC_CLIENT_PAPER : 0,
		.slots = o->call.paper ? 1 : 0,
		.max_request = slot_bytes(o, o->req),
		.max_result = slot_bytes(o, o->resp),
		.fetch_bytes = o->call.fetch_bytes,
		.retries = o->call.retries,
		.batch.entries = o->call.batch,
		.batch.limit_us = o->call.chosen ? (uint32_t)(o->call.limit_ns / 1000) : 0,
		.batch.alpha_pct = o->call.alpha_pct,
		.thread = thread + 1,
		.ctx = c->site->ctx,
	};

	if (!call_ok(c->run, gn_rpc_client_open(c->site->fabric, ADDRESS, &opts, &c->to[c->n_to]),
		     "connecting"))
		return false;
	c->n_to++;
	return true;
}

static bool connect_all(struct rpc_caller *r)
{
	struct caller *c = r->c;
	const unsigned threads = r->run->opts->call.server_threads;
	const unsigned n = r->run->opts->hashed ? threads : 1;
	bool up = true;

	c->to = gn_alloc(n * sizeof(c->to[0]), 0);
	if (!c->to) {
		load_fail(&c->run->load, "no memory for connections");
		return false;
	}
	/* Neighbours go to different server threads. */
	for (unsigned i = 0; i < n && up; i++)
		up = connect_to(r, (c->number + i) % threads);
	return up;
}

/* A call has ended. False: not as it should. */
static bool check_call(struct rpc_caller *r, unsigned status, uint32_t len)
{
	const struct rpc_load *o = r->run->opts;

	if (status != GN_RPC_OK || len != o->resp) {
		load_fail(&r->c->run->load, "a call on %s: %s, %u bytes instead of %u",
			  gn_node_name(), gn_rpc_status_str(status), len, o->resp);
		return false;
	}
	caller_count(r->c, 1);
	return true;
}

static struct gn_rpc_client *choose(const struct caller *c)
{
	return c->to[c->n_to > 1 ? gn_random() % c->n_to : 0];
}

static void call_always(struct rpc_caller *r)
{
	const struct rpc_load *o = r->run->opts;
	struct caller *c = r->c;

	while (!load_stops(&c->run->load)) {
		uint32_t len = 0;
		unsigned status = GN_RPC_OK;

		c->began_ns = gn_now_ns();
		if (!call_ok(c->run,
			     gn_rpc_call(choose(c), RPC_METHOD, r->request, o->req, r->result,
					 o->resp, &len, GN_FOREVER, &status),
			     "a call") ||
		    !check_call(r, status, len))
			return;
		caller_note(c);
	}
}

static void batch_call_done(struct gn_rpc_op *op)
{
	check_call(op->arg, op->status, op->result_len);
}

static void call_batches(struct rpc_caller *r)
{
	const struct rpc_load *o = r->run->opts;
	struct caller *c = r->c;

	for (uint32_t i = 0; i < o->call.batch; i++)
		r->ops[i] = (struct gn_rpc_op){
			.method = RPC_METHOD,
			.request = r->request,
			.request_len = o->req,
			.result = r->result + (size_t)i * o->resp,
			.result_room = o->resp,
			.deadline_ns = GN_FOREVER,
			.done = batch_call_done,
			.arg = r,
		};
	while (!load_stops(&c->run->load)) {
		struct gn_rpc_client *to = choose(c);
		struct gn_rpc_choice now = {.batch = o->call.batch};

		c->began_ns = gn_now_ns();
		if ((o->call.chosen &&
		     !call_ok(c->run, gn_rpc_client_choice(to, RPC_METHOD, &now), "its choice")) ||
		    !call_ok(c->run, gn_rpc_call_all(to, r->ops, now.batch), "calls"))
			return;
		caller_note(c);
	}
}

void rpc_call(struct caller *c)
{
	struct rpc_caller r = {.c = c, .run = (struct rpc_run *)c->run};
	const struct rpc_load *o = r.run->opts;
	const size_t n = o->call.batch ? o->call.batch : 1;

	r.request = gn_alloc(o->req + 1, 0);
	r.result = gn_alloc(n * o->resp + 1, 0);
	r.ops = gn_alloc(n * sizeof(r.ops[0]), 0);
	if (!r.request || !r.result || !r.ops)
		load_fail(&c->run->load, "no memory for a call");
	else if (connect_all(&r) && caller_starts(c))
		o->call.batch ? call_batches(&r) : call_always(&r);
	caller_ends(c);
	for (unsigned i = 0; i < c->n_to; i++)
		gn_rpc_client_close(c->to[i]);
	gn_free(c->to);
	gn_free(r.request);
	gn_free(r.result);
	gn_free(r.ops);
}
