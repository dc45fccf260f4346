/* SPDX-License-Identifier: MIT */
/* Runs a load on a simulated cluster, and takes the measured part of what happened. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include <gannet/sim.h>

#include "load.h"

#define STACK_BYTES (128u * 1024u)
#define LIMIT_NS    100000000000ull /* of virtual time: something hangs */
#define NAP_US	    20u		    /* between two looks at what others have got ready */
#define START_US    50u
#define SCATTER_NS  5000u /* threads of real machines do not begin at one instant either */

/* ---- servers and clients ---- */

static void cluster_listens(struct load_proc *proc, uint32_t number, int rc)
{
	(void)number;
	proc->run->listening += !rc;
}

static bool cluster_served(struct load_proc *proc, struct gn_rpc_server *rpc)
{
	(void)rpc;
	return proc->run->gone == proc->run->n_clients;
}

/* A client is ready. Returns at the common start; false when there will be none. */
static bool client_starts(struct load_client *c)
{
	struct load_run *run = c->run;

	if (++run->connected == run->n_clients)
		run->start_ns = gn_now_ns() + START_US * 1000;
	while (!run->start_ns && !load_gives_up(c))
		gn_sleep_us(NAP_US);
	if (load_gives_up(c))
		return false;
	if (run->start_ns > gn_now_ns())
		gn_sleep_us((run->start_ns - gn_now_ns()) / 1000);
	gn_charge(GN_WORK_NS, gn_random() % SCATTER_NS);
	return true;
}

static void cluster_client(struct load_client *c)
{
	struct load_run *run = c->run;

	while (run->listening < run->n_servers && !load_gives_up(c))
		gn_sleep_us(NAP_US);
	if (load_gives_up(c))
		return;
	if (!c->kind->open(c) && client_starts(c)) {
		const int rc = c->kind->run(c);

		load_client_ends(c);
		/* Without a check at the end nobody waits for what is under way. */
		if (!rc && !load_failed(run) && c->kind->check && !c->kind->rest(c))
			c->kind->check(c);
	}
	c->kind->close(c);
}

/* ---- measuring ---- */

struct measurement {
	struct gn_sim *sim;
	unsigned nodes;
	uint64_t events;
	double wall_seconds;
	struct gn_sim_stats *stats; /* of each node */
};

static double wall_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Struct gn_sim_stats is nothing but counters. */
static void subtract_stats(struct gn_sim_stats *from, const struct gn_sim_stats *what)
{
	uint64_t a[sizeof(*from) / sizeof(uint64_t)], b[sizeof(*from) / sizeof(uint64_t)];

	memcpy(a, from, sizeof(a));
	memcpy(b, what, sizeof(b));
	for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++)
		a[i] -= b[i];
	memcpy(from, a, sizeof(a));
}

/* At the beginning and at the end: what remains is the difference. */
static void note_phase(struct load_run *run)
{
	struct measurement *m = run->mark_arg;

	for (unsigned i = 0; i < m->nodes; i++) {
		struct gn_sim_stats stats = {.size = sizeof(stats)};

		gn_sim_node_stats(m->sim, i, &stats);
		subtract_stats(&stats, &m->stats[i]);
		m->stats[i] = stats;
	}
	m->events = gn_sim_events(m->sim) - m->events;
	m->wall_seconds = wall_now() - m->wall_seconds;
}

static int check_run(const struct measurement *m, struct load_run *run, int rc)
{
	const char *why = NULL;

	if (!load_failed(run) && rc)
		load_fail(run, rc, "the simulation: %s", gn_strerror(rc));
	else if (run->phase != LOAD_OVER)
		why = "the programs ended before anything was measured";
	else if (run->end_ns == run->begin_ns)
		why = "no virtual time went by: this profile has no costs";
	else if (gn_sim_leaks(m->sim))
		why = "the programs left allocations behind";
	if (why)
		load_fail(run, -EIO, "%s", why);
	if (*run->interrupted)
		return -EINTR;
	return rc ? rc : load_failed(run) ? -EIO : 0;
}

static double per_op(uint64_t n, uint64_t ops)
{
	return ops ? (double)n / (double)ops : 0;
}

static void take_result(const struct load_run *run, const struct measurement *m,
			struct load_result *out)
{
	const uint64_t ops = run->end_ops - run->begin_ops, ns = run->end_ns - run->begin_ns;
	const uint64_t begun = run->life.ops ? run->life.ops : run->ops;
	const struct gn_hist *hist = &run->tally[0].group_ns;
	uint64_t requests = 0, misses = 0, interrupts = 0, cpu_ns = 0;

	for (unsigned i = 0; i < m->nodes; i++) {
		requests += m->stats[i].requests;
		misses += m->stats[i].cache_misses;
		interrupts += i ? m->stats[i].interrupts : 0;
		cpu_ns += i ? m->stats[i].cpu_busy_ns : 0;
	}
	out->sums = run->tally[0].sums;
	out->sums.repeats += run->life.repeats;
	out->run.ops = ops;
	out->run.seconds = 1e-9 * (double)ns;
	out->mops = 1e3 * (double)ops / (double)ns;
	if (hist->count) {
		out->latency_ns_mean = gn_hist_mean(hist);
		out->p15_ns = (double)gn_hist_percentile(hist, 15);
		out->run.p50_ns = (double)gn_hist_percentile(hist, 50);
		out->run.p99_ns = (double)gn_hist_percentile(hist, 99);
		out->run.p999_ns = (double)gn_hist_percentile(hist, 99.9);
	}
	out->server_wrs = per_op(m->stats[0].requests, ops);
	out->client_wrs = per_op(requests - m->stats[0].requests, ops);
	out->misses = per_op(misses, requests);
	out->interrupts = per_op(interrupts, ops);
	out->cpu_ns = per_op(cpu_ns, ops);
	out->inflight_max = run->tally[0].inflight_max;
	out->served_misses = per_op(m->stats[0].inbound_misses, m->stats[0].inbound);
	out->round_trips = out->server_wrs + out->client_wrs;
	out->doorbells = per_op(run->life.doorbells, begun);
	out->cqes = per_op(run->life.cqes, begun);
	if (out->sums.messages)
		out->batch_fill = (double)out->sums.calls / (double)out->sums.messages;
	out->batch = per_op(out->sums.batches, out->sums.batched);
	out->events = m->events;
	out->wall_seconds = m->wall_seconds;
}

/* ---- the run ---- */

static int spawn_all(struct gn_sim *sim, struct load_run *run, const struct load_kind *kind,
		     const struct load_place *places, unsigned n, struct load_proc *procs)
{
	int rc = 0;

	for (unsigned i = 0; i < n && !rc; i++) {
		procs[i] = (struct load_proc){
			.run = run,
			.kind = kind,
			.first_server = places[i].first_server,
			.n_servers = places[i].n_servers,
			.first_client = places[i].first_client,
			.n_clients = places[i].n_clients,
			.client_main = cluster_client,
			.listens = cluster_listens,
			.served = cluster_served,
			.nap_us = NAP_US,
		};
		rc = gn_sim_spawn(sim, places[i].node, load_program, 0, NULL, &procs[i], NULL);
	}
	return rc;
}

static int simulate(struct load_run *run, const struct load_kind *kind,
		    const struct load_place *places, unsigned n, struct load_proc *procs,
		    struct measurement *m, struct load_result *out)
{
	const struct gn_sim_opts opts = {
		.size = sizeof(opts),
		.profile = run->opts.profile,
		.seed = run->opts.seed,
		.nodes = m->nodes,
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
		.faults = run->opts.faults,
		.interrupted = run->interrupted,
	};
	int rc = gn_sim_create(&opts, &m->sim);

	if (rc)
		return load_fail(run, rc, "no cluster of %u nodes with profile %s: %s", m->nodes,
				 opts.profile, gn_strerror(rc));
	run->mark = note_phase;
	run->mark_arg = m;
	rc = spawn_all(m->sim, run, kind, places, n, procs);
	if (!rc)
		rc = gn_sim_run(m->sim);
	rc = check_run(m, run, rc);
	if (!rc)
		take_result(run, m, out);
	out->trace_hash = gn_sim_trace_hash(m->sim);
	gn_sim_destroy(m->sim);
	return rc;
}

int load_simulate(struct load_run *run, const struct load_kind *kind,
		  const struct load_place *places, unsigned n, struct load_result *out)
{
	struct load_proc *procs = calloc(n, sizeof(*procs));
	struct measurement m = {.nodes = 0};
	int rc = -ENOMEM;

	for (unsigned i = 0; i < n; i++)
		if (places[i].node >= m.nodes)
			m.nodes = places[i].node + 1;
	m.stats = calloc(m.nodes, sizeof(*m.stats));
	run->simulated = true;
	run->interrupted = bench_stop_flag();
	if (procs && m.stats)
		rc = simulate(run, kind, places, n, procs, &m, out);
	else
		load_fail(run, rc, "no memory for a cluster of %u machines", m.nodes);
	memcpy(out->error, run->error, sizeof(out->error));
	free(m.stats);
	free(procs);
	free(run);
	return rc;
}

/*
 * At effort 1. A hybrid client has settled long before the end of the warm-up: it takes two calls.
 * A batch that clients choose grows by one at a time, and takes many calls to settle.
 */
#define WARM_NS	 500000u
#define WARM_OPS 10u /* of each client */
#define AUTO_OPS 60000u
#define FEW	 8u /* operations of a batch, so that those of a larger one count less */
#define MIN_NS	 2000000u
#define MAX_NS	 40000000u
#define MAX_OPS	 10000000u

static uint64_t scaled(uint64_t n, double by)
{
	return (uint64_t)((double)n * by);
}

void load_set_length(struct load_run *run, uint64_t min_ops, uint32_t batch, bool batch_auto)
{
	const double effort = run->opts.effort;
	const uint64_t warm_ops = batch_auto ? scaled(AUTO_OPS, effort) : WARM_OPS;

	if (batch > 1)
		min_ops *= 1 + batch / FEW;
	run->length = (struct load_length){
		.warm_ops = warm_ops * run->n_clients,
		.warm_ns = effort < 1 ? scaled(WARM_NS, effort) : WARM_NS,
		.min_ops = scaled(min_ops, effort),
		.min_ns = scaled(MIN_NS, effort),
		.max_ops = scaled(MAX_OPS, effort),
		.max_ns = scaled(MAX_NS, effort),
	};
}

struct load_run *load_run_create(size_t bytes, const struct load_opts *opts)
{
	struct load_run *run = NULL;

	if (posix_memalign((void **)&run, GN_PAGE, bytes))
		return NULL;
	memset(run, 0, bytes);
	run->bytes = bytes;
	run->opts = *opts;
	run->n_servers = run->servers_per_node = 1;
	run->n_clients = opts->machines * opts->clients;
	gn_hist_init(&run->tally[0].group_ns);
	return run;
}

int load_simulate_machines(struct load_run *run, const struct load_kind *kind,
			   struct load_result *out)
{
	const struct load_opts *o = &run->opts;
	const uint32_t machines = o->machines, clients = o->clients, servers = run->n_servers;
	struct load_place *places = calloc(machines + servers, sizeof(*places));
	int rc;

	if (!places) {
		free(run);
		return load_no_memory(out);
	}
	for (uint32_t i = 0; i < servers; i++)
		places[i] = (struct load_place){.node = i, .first_server = i, .n_servers = 1};
	for (uint32_t i = 0; i < machines; i++)
		places[servers + i] = (struct load_place){
			.node = servers + i, .first_client = i * clients, .n_clients = clients};
	rc = load_simulate(run, kind, places, machines + servers, out);
	free(places);
	return rc;
}
