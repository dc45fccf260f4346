/* SPDX-License-Identifier: MIT */
/* The two programs of the layer rpc: a server, and a machine full of clients. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rpc_load.h"

#define ADDRESS	   "sim:n0:7000"
#define METHOD	   1u
#define BETWEEN	   16u
#define NAP_US	   20u /* between two looks at what others have got ready */
#define START_US   50u
#define LOOKS_US   1000000u /* the papers' servers look at every client all the time */
#define SCATTER_NS 5000u    /* clients do not begin at one instant */

static bool ok(struct rpc_run *run, int rc, const char *what)
{
	if (rc < 0)
		load_fail(&run->load, "%s on %s: %s", what, gn_node_name(), gn_strerror(rc));
	return rc >= 0;
}

/*
 * Bytes of a slot: for a call, or a batch of them with what is put between, twice: results are put
 * together in place while there is as much room again.
 */
static uint32_t slot_bytes(const struct rpc_load *o, uint32_t each)
{
	const uint64_t n = o->batch ? 2 * o->batch * (uint64_t)(each + BETWEEN) : each;

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

static bool serve(struct rpc_run *run, struct gn_rpc_server *server)
{
	if (!ok(run, gn_rpc_server_handle(server, METHOD, handle, run), "a handler") ||
	    !ok(run, gn_rpc_server_start(server), "starting the server"))
		return false;
	run->load.listening = 1;
	while (run->clients_gone < run->opts->machines)
		gn_sleep_us(NAP_US);
	return true;
}

int rpc_server_program(struct gn_env *env, int argc, char **argv)
{
	struct rpc_run *run = env->arg;
	const struct rpc_load *o = run->opts;
	const struct gn_rpc_server_opts opts = {
		.threads = o->server_threads,
		.max_request = slot_bytes(o, o->req),
		.max_result = slot_bytes(o, o->resp),
		.park_us = o->paper ? LOOKS_US : 0,
		.flags = o->paper ? GN_RPC_SERVER_PAPER : 0,
	};
	struct gn_rpc_server *server = NULL;
	struct gn_fabric *fabric;

	(void)argc;
	(void)argv;
	if (!ok(run, gn_fabric_open(env->fabric, &fabric), "the fabric"))
		return 1;
	if (ok(run, gn_rpc_server_create(fabric, ADDRESS, &opts, &server), "a server"))
		serve(run, server);
	gn_rpc_server_destroy(server);
	ok(run, gn_fabric_close(fabric), "closing the fabric");
	return run->load.failed;
}

/* ---- clients ---- */

struct rpc_machine {
	struct rpc_run *run;
	unsigned number;
	struct gn_fabric *fabric;
	struct gn_ctx *ctx; /* the papers have one to a process */
	struct rpc_caller *callers;
};

struct rpc_caller {
	struct rpc_machine *machine;
	unsigned number; /* of all clients */
	struct gn_thread *thread;
	struct gn_rpc_client **to; /* server threads: one, or all */
	unsigned n_to;
	uint8_t *request, *result; /* results lie one behind the other */
	struct gn_rpc_op *ops;	   /* of a batch */
	uint64_t began_ns, late;
	struct rpc_sums before; /* when it first called in the phase MEASURED */
	bool counts;
};

static bool connect_to(struct rpc_caller *c, unsigned thread)
{
	struct rpc_run *run = c->machine->run;
	const struct rpc_load *o = run->opts;
	const struct gn_rpc_client_opts opts = {
		.mode = o->mode,
		.flags = o->paper ? GN_RPC_CLIENT_PAPER : 0,
		.slots = o->paper ? 1 : 0,
		.max_request = slot_bytes(o, o->req),
		.max_result = slot_bytes(o, o->resp),
		.fetch_bytes = o->fetch_bytes,
		.retries = o->retries,
		.batch.entries = o->batch,
		.batch.limit_us = o->chosen ? (uint32_t)(o->limit_ns / 1000) : 0,
		.batch.alpha_pct = o->alpha_pct,
		.thread = thread + 1,
		.ctx = c->machine->ctx,
	};

	if (!ok(run, gn_rpc_connect(c->machine->fabric, ADDRESS, &opts, &c->to[c->n_to]),
		"connecting"))
		return false;
	c->n_to++;
	return true;
}

static bool connect_caller(struct rpc_caller *c)
{
	const struct rpc_load *o = c->machine->run->opts;
	const unsigned n = o->hashed ? o->server_threads : 1;
	bool up = true;

	c->to = gn_alloc(n * sizeof(c->to[0]), 0);
	if (!c->to) {
		load_fail(&c->machine->run->load, "no memory for connections");
		return false;
	}
	for (unsigned i = 0; i < n && up; i++)
		up = connect_to(c, (c->number + i) % o->server_threads);
	return up;
}

/* Between its connection and the common start; false when there will be none. */
static bool wait_for_start(struct rpc_run *run)
{
	struct load_run *load = &run->load;

	if (++load->connected == load->n_threads)
		load->start_ns = gn_now_ns() + START_US * 1000;
	while (!load->start_ns && !load->failed)
		gn_sleep_us(NAP_US);
	if (load->failed)
		return false;
	if (load->start_ns > gn_now_ns())
		gn_sleep_us((load->start_ns - gn_now_ns()) / 1000);
	gn_charge(GN_WORK_NS, gn_random() % SCATTER_NS);
	return true;
}

static void read_counters(const struct rpc_caller *c, struct rpc_sums *out)
{
	*out = (struct rpc_sums){0};
	for (unsigned i = 0; i < c->n_to; i++) {
		struct gn_rpc_counters now;

		if (gn_rpc_client_counters(c->to[i], &now))
			continue;
		out->calls += now.ended[GN_RPC_OK];
		out->fetches += now.fetches;
		out->failed_fetches += now.failed_fetches;
		out->second_reads += now.second_reads;
		out->switches += now.switches;
	}
}

/* Only whole calls are counted: between the ends of two in the phase MEASURED. */
static void note(struct rpc_caller *c)
{
	if (c->counts || c->machine->run->load.phase != LOAD_MEASURED)
		return;
	c->counts = true;
	read_counters(c, &c->before);
}

/* A call has ended. False: not as it should. */
static bool check_call(struct rpc_caller *c, unsigned status, uint32_t len)
{
	struct rpc_run *run = c->machine->run;
	const struct rpc_load *o = run->opts;

	if (status != GN_RPC_OK || len != o->resp) {
		load_fail(&run->load, "a call on %s: %s, %u bytes instead of %u", gn_node_name(),
			  gn_rpc_status_str(status), len, o->resp);
		return false;
	}
	if (o->limit_ns && c->counts)
		c->late += gn_now_ns() - c->began_ns > o->limit_ns;
	load_count(&run->load, 1, c->began_ns);
	return true;
}

static struct gn_rpc_client *choose(struct rpc_caller *c)
{
	return c->to[c->n_to > 1 ? gn_random() % c->n_to : 0];
}

static void call_always(struct rpc_caller *c)
{
	struct rpc_run *run = c->machine->run;
	const struct rpc_load *o = run->opts;

	while (!load_stops(&run->load)) {
		uint32_t len = 0;
		unsigned status = GN_RPC_OK;

		c->began_ns = gn_now_ns();
		if (!ok(run,
			gn_rpc_call(choose(c), METHOD, c->request, o->req, c->result, o->resp, &len,
				    GN_FOREVER, &status),
			"a call") ||
		    !check_call(c, status, len))
			return;
		note(c);
	}
}

static void batch_call_done(struct gn_rpc_op *op)
{
	check_call(op->arg, op->status, op->result_len);
}

static void call_batches(struct rpc_caller *c)
{
	struct rpc_run *run = c->machine->run;
	const struct rpc_load *o = run->opts;

	for (uint32_t i = 0; i < o->batch; i++)
		c->ops[i] = (struct gn_rpc_op){
			.method = METHOD,
			.request = c->request,
			.request_len = o->req,
			.result = c->result + (size_t)i * o->resp,
			.result_room = o->resp,
			.deadline_ns = GN_FOREVER,
			.done = batch_call_done,
			.arg = c,
		};
	while (!load_stops(&run->load)) {
		struct gn_rpc_client *to = choose(c);
		struct gn_rpc_choice now = {.batch = o->batch};

		c->began_ns = gn_now_ns();
		if ((o->chosen && !ok(run, gn_rpc_choice(to, METHOD, &now), "its choice")) ||
		    !ok(run, gn_rpc_call_all(to, c->ops, now.batch), "calls"))
			return;
		note(c);
	}
}

static void add_choices(const struct rpc_caller *c, struct rpc_sums *sums)
{
	for (unsigned i = 0; i < c->n_to; i++) {
		struct gn_rpc_choice choice;

		if (!gn_rpc_choice(c->to[i], METHOD, &choice))
			sums->batches += choice.batch;
	}
}

static void add_sums(struct rpc_caller *c)
{
	struct rpc_sums *sums = &c->machine->run->sums, now;

	read_counters(c, &now);
	sums->switches += now.switches;
	add_choices(c, sums);
	if (!c->counts)
		return;
	sums->calls += now.calls - c->before.calls;
	sums->late += c->late;
	sums->fetches += now.fetches - c->before.fetches;
	sums->failed_fetches += now.failed_fetches - c->before.failed_fetches;
	sums->second_reads += now.second_reads - c->before.second_reads;
}

static void caller_main(void *arg)
{
	struct rpc_caller *c = arg;
	struct rpc_run *run = c->machine->run;
	const struct rpc_load *o = run->opts;

	while (!run->load.listening && !run->load.failed)
		gn_sleep_us(NAP_US);
	c->request = gn_alloc(o->req + 1, 0);
	c->result = gn_alloc((size_t)(o->batch ? o->batch : 1) * o->resp + 1, 0);
	c->ops = gn_alloc((o->batch + 1) * sizeof(c->ops[0]), 0);
	if (!c->request || !c->result || !c->ops)
		load_fail(&run->load, "no memory for a call");
	else if (!run->load.failed && connect_caller(c) && wait_for_start(run))
		o->batch ? call_batches(c) : call_always(c);
	add_sums(c);
	for (unsigned i = 0; i < c->n_to; i++)
		gn_rpc_close(c->to[i]);
	gn_free(c->to);
	gn_free(c->request);
	gn_free(c->result);
	gn_free(c->ops);
}

static void run_callers(struct rpc_machine *m)
{
	const unsigned n = m->run->opts->clients;
	unsigned started = 0;

	for (; started < n && !m->run->load.failed; started++) {
		struct rpc_caller *c = &m->callers[started];

		/* Neighbours go to different server threads. */
		*c = (struct rpc_caller){.machine = m, .number = m->number * n + started};
		if (!ok(m->run, gn_thread_start("caller", caller_main, c, &c->thread), "a thread"))
			break;
	}
	for (unsigned i = 0; i < started; i++)
		gn_thread_join(m->callers[i].thread);
}

int rpc_client_program(struct gn_env *env, int argc, char **argv)
{
	const struct rpc_site *site = env->arg;
	struct rpc_machine m = {.run = site->run, .number = site->machine};

	(void)argc;
	(void)argv;
	m.callers = gn_alloc(m.run->opts->clients * sizeof(*m.callers), 0);
	if (!m.callers)
		load_fail(&m.run->load, "no memory for clients");
	else if (ok(m.run, gn_fabric_open(env->fabric, &m.fabric), "the fabric") &&
		 (!m.run->opts->paper || ok(m.run, gn_ctx_create(m.fabric, &m.ctx), "a context")))
		run_callers(&m);
	gn_ctx_destroy(m.ctx);
	if (m.fabric)
		ok(m.run, gn_fabric_close(m.fabric), "closing the fabric");
	gn_free(m.callers);
	m.run->clients_gone++;
	return m.run->load.failed;
}
