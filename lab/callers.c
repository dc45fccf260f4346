/* SPDX-License-Identifier: MIT */
/* The process of clients, and what every client does: begin with all others, count, end. */
#include <errno.h>

#include "calls.h"

#define NAP_US	 20u /* between two looks at what others have got ready */
#define QUICK_NS 7000u

bool call_ok(struct call_run *run, int rc, const char *what)
{
	if (rc < 0)
		load_fail(&run->load, "%s on %s: %s", what, gn_node_name(), gn_strerror(rc));
	return rc >= 0;
}

void call_server_waits(struct call_run *run)
{
	run->load.listening++;
	while (run->clients_gone < run->client_procs)
		gn_sleep_us(NAP_US);
}

bool caller_starts(struct caller *c)
{
	return load_starts(&c->run->load);
}

/* ---- counting ---- */

static void read_counters(const struct caller *c, struct call_sums *out)
{
	*out = c->count;
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

void caller_count(struct caller *c, unsigned n)
{
	const uint64_t took_ns = gn_now_ns() - c->began_ns;
	const uint64_t limit_ns = c->run->opts->limit_ns;

	c->count.ops += n;
	c->count.late += limit_ns && took_ns > limit_ns ? n : 0;
	c->count.quick += took_ns < QUICK_NS ? n : 0;
	load_count(&c->run->load, n, c->began_ns);
}

/* Only whole calls are counted: between the ends of two in the phase MEASURED. */
void caller_note(struct caller *c)
{
	if (c->counts || c->run->load.phase != LOAD_MEASURED)
		return;
	c->counts = true;
	read_counters(c, &c->before);
}

static void add_choices(const struct caller *c, struct call_sums *sums)
{
	for (unsigned i = 0; i < c->n_to; i++) {
		struct gn_rpc_choice choice;

		if (gn_rpc_client_choice(c->to[i], c->run->method, &choice))
			continue;
		sums->batches += choice.batch;
		sums->connections++;
	}
}

void caller_ends(struct caller *c)
{
	struct call_sums *sums = &c->run->sums, now;

	read_counters(c, &now);
	sums->switches += now.switches;
	add_choices(c, sums);
	if (!c->counts)
		return;
	sums->ops += now.ops - c->before.ops;
	sums->late += now.late - c->before.late;
	sums->quick += now.quick - c->before.quick;
	sums->calls += now.calls - c->before.calls;
	sums->fetches += now.fetches - c->before.fetches;
	sums->failed_fetches += now.failed_fetches - c->before.failed_fetches;
	sums->second_reads += now.second_reads - c->before.second_reads;
}

/* ---- the process ---- */

static void caller_main(void *arg)
{
	struct caller *c = arg;
	const struct load_run *load = &c->run->load;

	while (load->listening < load->n_listeners && !load->failed)
		gn_sleep_us(NAP_US);
	if (!load->failed)
		c->run->call(c);
}

static void run_callers(struct call_site *site, struct caller *callers)
{
	unsigned started = 0;

	for (; started < site->n && !site->run->load.failed; started++) {
		struct caller *c = &callers[started];

		*c = (struct caller){
			.run = site->run,
			.site = site,
			.number = site->first + started,
		};
		if (!call_ok(c->run, gn_thread_start("caller", caller_main, c, &c->thread),
			     "a thread"))
			break;
	}
	for (unsigned i = 0; i < started; i++)
		gn_thread_join(callers[i].thread);
}

int call_client_program(struct gn_env *env, int argc, char **argv)
{
	struct call_site *site = env->arg;
	struct call_run *run = site->run;
	struct caller *callers = gn_alloc(site->n * sizeof(*callers), 0);

	(void)argc;
	(void)argv;
	if (!callers)
		load_fail(&run->load, "no memory for clients");
	else if (call_ok(run, gn_fabric_open(env->fabric, &site->fabric), "the fabric") &&
		 (!run->opts->paper ||
		  call_ok(run, gn_ctx_create(site->fabric, &site->ctx), "a context")))
		run_callers(site, callers);
	gn_ctx_destroy(site->ctx);
	if (site->fabric)
		call_ok(run, gn_fabric_close(site->fabric), "closing the fabric");
	gn_free(callers);
	run->clients_gone++;
	return run->load.failed;
}
