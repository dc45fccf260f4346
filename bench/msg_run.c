/* SPDX-License-Identifier: MIT */
/* A run of messages: as processes beside their limit, or on a simulated cluster. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "msg_load.h"
#include "procs.h"

int bench_msg_try(struct gn_fabric *fabric, const struct bench_msg_opts *o)
{
	const struct gn_msg_requester_opts opts = msg_requester_opts(o);
	struct gn_msg_requester *msg;
	const int rc = gn_msg_requester_create(fabric, &opts, &msg);

	if (!rc)
		gn_msg_requester_destroy(msg);
	return rc;
}

/* ---- cores ---- */

static void run_on(cpu_set_t *set, int cpu)
{
	CPU_ZERO(set);
	CPU_SET((size_t)cpu, set);
}

/*
 * The first requester and the first responder have the two that were chosen. Requesters share one
 * part of all cores, responders the other, as many as there are of them.
 */
static void msg_share_cpus(struct procs *procs, const struct bench_msg_opts *o)
{
	const uint32_t requesters = bench_msg_requesters(o), responders = bench_msg_responders(o);
	struct msg_run *run = (struct msg_run *)procs->run;
	const int *cpus = o->load.cpus;
	int order[CPU_SETSIZE];
	uint32_t n = 0, part;

	order[n++] = cpus[0];
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &procs->cpus_before) && cpu != cpus[0] && cpu != cpus[1])
			order[n++] = cpu;
	if (cpus[1] != cpus[0])
		order[n++] = cpus[1];
	run->crowded = requesters + responders > n;
	part = (uint32_t)((uint64_t)n * requesters / (requesters + responders));
	part = part ? part : 1;
	for (uint32_t i = 0; i < responders; i++)
		run_on(i ? &run->load.more_server_cpus[i] : &run->load.server_cpus,
		       order[n - 1 - i % (n > part ? n - part : 1)]);
	for (uint32_t i = 0; i < requesters; i++)
		run_on(&run->load.client_cpus[i], order[i % part]);
}

/* ---- figures ---- */

static double limit_ratio_of(uint64_t a, uint64_t b)
{
	return b ? (double)a / (double)b : 0;
}

static void msg_take_result(const struct bench_msg_opts *o, const struct load_result *from,
			    struct bench_msg_result *r)
{
	const bool ud = o->protocol == GN_MSG_UD;

	r->requests = from->run.ops;
	r->seconds = from->run.seconds;
	r->mops = from->mops;
	r->gbps = 8e-3 * r->mops * o->value_bytes;
	/* 1:M has one node that takes values. */
	r->gbps_per_node = o->topology == BENCH_MSG_1M ? r->gbps : r->gbps / o->nodes;
	r->latency_us_mean = 1e-3 * from->latency_ns_mean;
	r->p50_us = 1e-3 * from->run.p50_ns;
	r->p99_us = 1e-3 * from->run.p99_ns;
	r->wrs = from->client_wrs;
	r->doorbells = from->doorbells;
	r->cqes = from->cqes;
	r->repeats = ud ? (double)from->sums.repeats : NAN;
	r->lost = ud ? (double)from->sums.lost : NAN;
	r->limit_ratio = from->limit_ratio;
	r->blocks = from->run.blocks;
	r->blocks_dropped = from->run.blocks_dropped;
}

/* After all processes have ended. Responders count all that they ever answered. */
static void add_responders(const struct msg_run *run, struct bench_msg_result *r)
{
	struct msg_account all = {0};

	for (uint32_t i = 0; i < bench_msg_responders(&run->opts); i++) {
		all.requests += run->answered[i].requests;
		load_sums_add(&all.sums, &run->answered[i].sums, 1);
	}
	r->wrs += limit_ratio_of(all.sums.wrs, all.requests);
	r->doorbells += limit_ratio_of(all.sums.doorbells, all.requests);
	r->cqes += limit_ratio_of(all.sums.cqes, all.requests);
	r->repeats += (double)all.sums.repeats;
}

/* ---- processes ---- */

/* The responder's thread answers the bare loop meanwhile. */
static int run_limit(void *arg, uint64_t block_ns, struct block *out)
{
	struct hold *h = arg;
	int rc = msg_requester_rest(h->procs->client);

	if (rc)
		return rc;
	rc = bare_run(h->bare, block_ns, out);
	pair_order(&h->procs->pair, ORDER_IDLE);
	return rc;
}

static bool has_limit(const struct bench_msg_opts *o)
{
	return !o->load.host[0] && bench_msg_requesters(o) == 1 && bench_msg_responders(o) == 1;
}

static int measure_requests(struct procs *procs, bench_progress_fn *progress, struct load_result *r)
{
	struct msg_run *run = (struct msg_run *)procs->run;
	const struct limit_place place = msg_limit_place(run);
	struct hold hold = {.procs = procs};
	const struct load limit = {run_limit, &hold, 0.25};
	struct comparison compared;
	int rc = procs_start(procs);

	if (!rc)
		rc = bare_create(&procs->pair, &place, &hold.bare);
	if (!rc)
		rc = procs_measure(procs, has_limit(&run->opts) ? &limit : NULL, NULL, progress, r,
				   &compared);
	if (!rc)
		r->limit_ratio = 1 / compared.ratio;
	bare_destroy(hold.bare);
	return rc;
}

static int msg_run_processes(const struct bench_msg_opts *o, bench_progress_fn *progress,
			     struct load_result *result, struct bench_msg_result *out)
{
	const struct limit_opts limit = {.request_bytes = o->request_bytes,
					 .result_bytes = o->value_bytes,
					 .batch = 1,
					 .inflight = o->pending};
	const size_t bytes = sizeof(struct msg_run) + (has_limit(o) ? limit_bytes(&limit) : 0);
	struct procs procs;
	int rc = procs_open(&procs, &load_msg, bytes, &o->load, bench_msg_responders(o), 1,
			    bench_msg_requesters(o));

	if (rc)
		return rc;
	((struct msg_run *)procs.run)->opts = *o;
	msg_share_cpus(&procs, o);
	sched_setaffinity(0, sizeof(cpu_set_t), &procs.run->client_cpus[0]);
	rc = measure_requests(&procs, progress, result);
	procs_stop_server(&procs);
	if (!rc) {
		msg_take_result(o, result, out);
		add_responders((struct msg_run *)procs.run, out);
	}
	return procs_close(&procs, rc, result);
}

/* ---- a simulated cluster ---- */

/*
 * A run's length; effort 1. Everything is under way before anything is measured, whatever the
 * effort. Where that would take for ever it is so many operations, or so many bytes.
 */
#define WARM_OPS_PER_QP 8u
#define WARM_PCT	110u /* of what is under way */
#define WARM_OPS	150000u
#define WARM_NS		50000u
#define MIN_OPS		60000u
#define MIN_ROUNDS	6u /* times everything under way, up to that */
#define MIN_NS		200000u
#define MAX_NS		400000000u
#define OPS_ENOUGH	20u	    /* times min_ops, however little time that took */
#define BYTES_ENOUGH	(64u << 20) /* for the machine that is the busiest */

static uint64_t per_effort(uint64_t n, double by)
{
	return (uint64_t)((double)n * by);
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void set_length(const struct bench_msg_opts *o, struct load_length *l)
{
	const double effort = o->load.effort;
	const uint64_t qps = (uint64_t)bench_msg_requesters(o) * bench_msg_conns(o);
	const uint64_t rounds = MIN_ROUNDS * qps * o->pending;
	/* Fewer large values are enough. */
	const unsigned busy = o->topology == BENCH_MSG_MM ? o->nodes : 1;
	const uint64_t few = max_u64((uint64_t)busy * BYTES_ENOUGH / o->value_bytes, 256);

	l->warm_ops = max_u64(qps * o->pending * WARM_PCT / 100, WARM_OPS_PER_QP * qps);
	l->warm_ops = min_u64(min_u64(l->warm_ops, WARM_OPS), few);
	l->warm_ns = WARM_NS;
	l->min_ops = min_u64(max_u64(per_effort(MIN_OPS, effort), min_u64(rounds, MIN_OPS)), few);
	l->min_ns = per_effort(MIN_NS, effort);
	l->max_ns = per_effort(MAX_NS, effort);
	l->max_ops = OPS_ENOUGH * l->min_ops;
}

/* M:1: node 0 responds; 1:M: it requests. */
static unsigned msg_place_all(const struct bench_msg_opts *o, struct load_place *places)
{
	const bool mm = o->topology == BENCH_MSG_MM;
	const unsigned n = mm ? o->nodes : o->nodes + 1;
	uint32_t servers = 0, clients = 0;

	for (unsigned i = 0; i < n; i++) {
		const bool requests = mm || (i == 0) == (o->topology == BENCH_MSG_1M);

		places[i] =
			(struct load_place){.node = i,
					    .first_server = servers,
					    .n_servers = mm || !requests ? msg_resp_threads(o) : 0,
					    .first_client = clients,
					    .n_clients = requests ? o->threads : 0};
		servers += places[i].n_servers;
		clients += places[i].n_clients;
	}
	return n;
}

static int msg_run_cluster(const struct bench_msg_opts *o, struct load_result *result,
			   struct bench_msg_result *out)
{
	struct msg_run *run = (struct msg_run *)load_run_create(sizeof(*run), &o->load);
	struct load_place *places = calloc(o->nodes + 1, sizeof(*places));
	int rc;

	if (!run || !places) {
		free(run);
		free(places);
		return load_no_memory(result);
	}
	run->opts = *o;
	run->load.n_servers = bench_msg_responders(o);
	run->load.n_clients = bench_msg_requesters(o);
	run->load.servers_per_node = msg_resp_threads(o);
	run->load.first_server_node = o->topology == BENCH_MSG_1M;
	set_length(o, &run->load.length);
	rc = load_simulate(&run->load, &load_msg, places, msg_place_all(o, places), result);
	free(places);
	if (rc)
		return rc;
	result->client_wrs = result->round_trips; /* of both sides */
	msg_take_result(o, result, out);
	out->lost = o->protocol == GN_MSG_UD ? 0 : NAN; /* one would have failed the run */
	return 0;
}

int bench_msg_run(const struct bench_msg_opts *o, bench_progress_fn *progress,
		  struct bench_msg_result *out)
{
	const uint64_t began_ns = gn_now_ns();
	struct load_result result;
	int rc;

	*out = (struct bench_msg_result){.limit_ratio = NAN};
	load_result_init(&result);
	rc = o->load.profile ? msg_run_cluster(o, &result, out) :
			       msg_run_processes(o, progress, &result, out);
	memcpy(out->error, result.error, sizeof(out->error));
	out->wall_seconds = 1e-9 * (double)(gn_now_ns() - began_ns);
	return rc;
}
