/* SPDX-License-Identifier: MIT */
/* A run of datagram calls: as processes beside raw sends, or on a simulated cluster. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "dgram_load.h"
#include "procs.h"

const char *const bench_dgram_steps[BENCH_DGRAM_STEPS + 1] = {
	[STEP_BATCH] = "batch",
	[STEP_COALESCE] = "coalesce",
	[STEP_ANSWER_BATCH] = "answer-batch",
	[STEP_CHEAP_RECV] = "cheap-recv",
	[STEP_SIGNALING] = "signaling",
	[STEP_PREFETCH] = "prefetch",
};

const unsigned bench_dgram_flags[BENCH_DGRAM_STEPS] = {
	[STEP_BATCH] = GN_DGRAM_NO_BATCH,
	[STEP_COALESCE] = GN_DGRAM_NO_COALESCE,
	[STEP_ANSWER_BATCH] = GN_DGRAM_NO_ANSWER_BATCH,
	[STEP_CHEAP_RECV] = GN_DGRAM_NO_CHEAP_RECV,
	[STEP_SIGNALING] = GN_DGRAM_SIGNAL_ALL,
	[STEP_PREFETCH] = GN_DGRAM_NO_PREFETCH,
};

#define SIM_ENDPOINTS_MAX 65536u /* a request has 16 bits for its caller */
#define RAW_SHARE	  0.5	 /* of a block of calls */

uint32_t bench_dgram_clients(const struct bench_dgram_opts *o)
{
	return o->nodes * o->load.threads;
}

int bench_dgram_check(const struct bench_dgram_opts *o, char why[BENCH_WHY_MAX])
{
	const uint32_t each = dgram_node_endpoints(o);

	if (o->nodes < 2)
		return bench_refuse(why, "a node needs another one to call: --nodes 2 at least");
	if (each > GN_DGRAM_THREADS_MAX)
		return bench_refuse(why,
				    "--threads times --endpoints is %u; a node has %u endpoints at "
				    "most",
				    each, GN_DGRAM_THREADS_MAX);
	if (!o->load.profile && bench_dgram_clients(o) > LOAD_CLIENTS_MAX)
		return bench_refuse(why,
				    "%u nodes of %u threads are more than %u, unless simulated: "
				    "take fewer, or --provider sim",
				    o->nodes, o->load.threads, LOAD_CLIENTS_MAX);
	if (dgram_endpoints(o) > SIM_ENDPOINTS_MAX)
		return bench_refuse(why, "%u endpoints are more than %u: take fewer --nodes",
				    dgram_endpoints(o), SIM_ENDPOINTS_MAX);
	if (dgram_under_way(o) > BENCH_DGRAM_CALLS_MAX)
		return bench_refuse(why, "--workers times --batch is %u; the most are %u",
				    dgram_under_way(o), BENCH_DGRAM_CALLS_MAX);
	if (((uint64_t)o->request_bytes + o->result_bytes) * dgram_under_way(o) >
	    BENCH_IN_FLIGHT_MAX)
		return bench_refuse(why,
				    "--req plus --resp times --workers times --batch must not "
				    "exceed %u MiB",
				    BENCH_IN_FLIGHT_MAX >> 20);
	return 0;
}

/* ---- figures ---- */

static double dgram_per(uint64_t n, uint64_t of)
{
	return of ? (double)n / (double)of : (double)NAN;
}

static void dgram_take_result(const struct bench_dgram_opts *o, uint32_t cores,
			      const struct dgram_misses *misses, struct bench_dgram_result *r)
{
	const struct load_sums *sums = &r->load.sums;

	r->mops_per_core = r->load.mops / cores;
	r->mrps = r->load.mops / (o->one_way ? 1 : o->nodes);
	r->datagrams = dgram_per(sums->datagrams, sums->ops);
	r->messages = dgram_per(sums->messages, sums->ops);
	r->doorbells = dgram_per(sums->doorbells, sums->ops);
	r->recv_doorbells = dgram_per(sums->recv_doorbells, sums->ops);
	r->mverbs_per_core = r->mops_per_core * dgram_per(sums->wrs, sums->ops);
	r->repeats = (double)sums->repeats;
	r->lost = (double)misses->lost;
	r->twice = (double)misses->twice;
}

/* Cores of threads that call. */
static uint32_t cores_of(const struct bench_dgram_opts *o, uint32_t cpus)
{
	const uint32_t callers = o->one_way ? o->load.threads : bench_dgram_clients(o);

	return callers < cpus ? callers : cpus;
}

/* ---- processes ---- */

/* Thread by thread, so that the first threads of two nodes have the two chosen cores. */
static uint32_t dgram_share_cpus(struct procs *procs, const struct bench_dgram_opts *o)
{
	struct dgram_run *run = dgram_run_of(procs->run);
	const int *cpus = o->load.cpus;
	int order[CPU_SETSIZE + 2];
	uint32_t n = 0;

	order[n++] = cpus[0];
	if (cpus[1] != cpus[0])
		order[n++] = cpus[1];
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &procs->cpus_before) && cpu != cpus[0] && cpu != cpus[1])
			order[n++] = cpu;
	for (uint32_t node = 0; node < o->nodes; node++) {
		for (uint32_t t = 0; t < o->load.threads; t++) {
			cpu_set_t *set = &run->load.client_cpus[node * o->load.threads + t];

			CPU_ZERO(set);
			CPU_SET((size_t)order[(node + t * o->nodes) % n], set);
		}
	}
	sched_setaffinity(0, sizeof(cpu_set_t), &run->load.client_cpus[0]);
	run->crowded = bench_dgram_clients(o) > n;
	return n;
}

/* Raw sends carry what fits one datagram. */
static bool raw_fits(const struct bench_dgram_opts *o)
{
	const uint32_t bytes = o->request_bytes > o->result_bytes ? o->request_bytes :
								    o->result_bytes;
	struct gn_attr attr = {.size = sizeof(attr)};
	struct gn_fabric *fabric;

	if (o->load.profile)
		return bytes <= GN_PAGE;
	if (gn_fabric_open(o->load.provider, &fabric))
		return false; /* the run will say why */
	gn_fabric_query(fabric, &attr);
	gn_fabric_close(fabric);
	return bytes <= attr.ud_mtu;
}

static size_t dgram_run_bytes(const struct bench_dgram_opts *o)
{
	return sizeof(struct dgram_run) + dgram_endpoints(o) * sizeof(struct gn_ud_addr);
}

static int dgram_run_processes(const struct bench_dgram_opts *o, bool with_raw,
			       bench_progress_fn *progress, struct bench_dgram_result *out)
{
	struct procs procs;
	const struct load limit = {procs_limit, &procs, RAW_SHARE};
	struct comparison compared = {NAN, NAN, NAN, NAN};
	struct dgram_run *run;
	uint32_t cpus;
	int rc = procs_open(&procs, &load_dgram, dgram_run_bytes(o), &o->load, 0, 1,
			    bench_dgram_clients(o));

	if (rc)
		return rc;
	run = dgram_run_of(procs.run);
	run->opts = *o;
	run->load.clients_per_proc = o->load.threads;
	cpus = dgram_share_cpus(&procs, o);
	/* Threads that take turns on a core lose raw datagrams, and wait 100 ms for each. */
	out->crowded = with_raw && run->crowded;
	with_raw = with_raw && !run->crowded;
	run->with_raw = with_raw;
	rc = procs_start(&procs);
	if (!rc)
		rc = procs_measure(&procs, with_raw ? &limit : NULL, NULL, progress, &out->load,
				   &compared);
	if (!rc) {
		dgram_take_result(o, cores_of(o, cpus), &run->misses, out);
		out->raw_ratio = 1 / compared.ratio;
		out->raw_mops_per_core = 1e3 / compared.limit_ns;
	}
	return procs_close(&procs, rc, &out->load);
}

/* ---- a simulated cluster ---- */

/* At effort 1. Everything is under way before anything is measured. */
#define WARM_ROUNDS   3u /* times everything under way */
#define WARM_PER_PEER 2u
#define WARM_NS	      50000u
#define MIN_ROUNDS    6u
#define MIN_OPS	      50000u
#define MIN_NS	      200000u
/* Whatever the effort: calls of many workers end at the same time. */
#define LEAST_ROUNDS 2u
#define LEAST_NS     50000u
#define MAX_NS	     100000000u
#define OPS_ENOUGH   20u /* times min_ops, however little time that took */

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void dgram_set_length(const struct bench_dgram_opts *o, struct load_length *l)
{
	const double effort = o->load.effort;
	const uint64_t callers = dgram_endpoints(o) / (o->one_way ? o->nodes : 1);
	const uint64_t rounds = callers * dgram_under_way(o);

	l->warm_ops = most(WARM_ROUNDS * rounds, WARM_PER_PEER * callers * dgram_peers(o));
	l->warm_ns = WARM_NS;
	l->min_ops = (uint64_t)((double)most(MIN_OPS, MIN_ROUNDS * rounds) * effort);
	l->min_ops = most(l->min_ops, LEAST_ROUNDS * rounds);
	l->min_ns = most((uint64_t)(MIN_NS * effort), LEAST_NS);
	l->max_ns = (uint64_t)(MAX_NS * effort);
	l->max_ops = OPS_ENOUGH * l->min_ops;
}

static struct dgram_run *run_of_cluster(const struct bench_dgram_opts *o,
					bench_progress_fn *progress)
{
	struct dgram_run *run = (struct dgram_run *)load_run_create(dgram_run_bytes(o), &o->load);

	if (!run)
		return NULL;
	run->opts = *o;
	run->load.n_servers = 0;
	run->load.n_clients = bench_dgram_clients(o);
	run->load.clients_per_proc = o->load.threads;
	run->load.progress = progress;
	dgram_set_length(o, &run->load.length);
	return run;
}

/* load_simulate() frees the control block: misses is where its counters go before. */
static int dgram_simulate(const struct bench_dgram_opts *o, const struct load_kind *kind,
			  struct dgram_misses *misses, bench_progress_fn *progress,
			  struct load_result *out)
{
	struct dgram_run *run = run_of_cluster(o, progress);
	struct load_place *places = calloc(o->nodes, sizeof(*places));
	int rc;

	if (!run || !places) {
		free(run);
		free(places);
		return load_no_memory(out);
	}
	run->result = misses;
	for (uint32_t i = 0; i < o->nodes; i++)
		places[i] = (struct load_place){.node = i,
						.first_client = i * o->load.threads,
						.n_clients = o->load.threads};
	rc = load_simulate(&run->load, kind, places, o->nodes, out);
	free(places);
	return rc;
}

static int dgram_run_cluster(const struct bench_dgram_opts *o, bool with_raw,
			     bench_progress_fn *progress, struct bench_dgram_result *out)
{
	struct bench_dgram_opts bare = *o;
	struct dgram_misses misses = {0};
	struct load_result raw;
	int rc = dgram_simulate(o, &load_dgram, &misses, progress, &out->load);

	if (rc)
		return rc;
	dgram_take_result(o, cores_of(o, UINT32_MAX), &misses, out);
	load_result_init(&raw);
	bare.load.faults = NULL; /* raw sends know no repeats */
	if (with_raw)
		rc = dgram_simulate(&bare, &load_dgram_raw, NULL, progress, &raw);
	if (rc) {
		memcpy(out->load.error, raw.error, sizeof(raw.error));
		return rc;
	}
	out->raw_mops_per_core = raw.mops / cores_of(o, UINT32_MAX);
	out->raw_ratio = out->load.mops / raw.mops;
	return 0;
}

int bench_dgram_run(const struct bench_dgram_opts *o, bool with_raw, bench_progress_fn *progress,
		    struct bench_dgram_result *out)
{
	*out = (struct bench_dgram_result){
		.raw_ratio = NAN, .raw_mops_per_core = NAN, .switch_ns = NAN, .worker_bytes = NAN};
	load_result_init(&out->load);
	with_raw = with_raw && raw_fits(o);
	return o->load.profile ? dgram_run_cluster(o, with_raw, progress, out) :
				 dgram_run_processes(o, with_raw, progress, out);
}
