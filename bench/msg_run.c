/* SPDX-License-Identifier: MIT */
/*
 * A run of messages from start to end: the processes and their cores, the figures.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "msg_hall.h"

int bench_msg_try(struct gn_fabric *fabric, const struct bench_msg_opts *o)
{
	const struct gn_msg_requester_opts opts = {
		.size = sizeof(opts),
		.protocol = o->protocol,
		.pending = o->pending,
		.request_bytes = o->request_bytes,
		.value_bytes = o->value_bytes,
		.max_conns = 1,
	};
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
static void share_cpus(struct crew *crew, const struct bench_msg_opts *o)
{
	const uint32_t asking = bench_msg_requesters(o), answering = bench_msg_responders(o);
	struct msg_hall *hall = (struct msg_hall *)crew->hall;
	int order[CPU_SETSIZE];
	uint32_t n = 0, part;

	order[n++] = o->cpus[0];
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &crew->cpus_before) && cpu != o->cpus[0] &&
		    cpu != o->cpus[1])
			order[n++] = cpu;
	if (o->cpus[1] != o->cpus[0])
		order[n++] = o->cpus[1];
	hall->crowded = asking + answering > n;
	part = (uint32_t)((uint64_t)n * asking / (asking + answering));
	part = part ? part : 1;
	for (uint32_t i = 0; i < answering; i++)
		run_on(i ? &hall->crew.client_cpus[i] : &hall->crew.server_cpus,
		       order[n - 1 - i % (n > part ? n - part : 1)]);
	for (uint32_t i = 0; i < asking; i++)
		run_on(&hall->crew.client_cpus[i ? answering + i - 1 : 0], order[i % part]);
}

/* ---- figures ---- */

void msg_count(struct gn_fabric *fabric, int sign, uint64_t *wrs, uint64_t *doorbells,
	       uint64_t *cqes)
{
	const uint64_t factor = (uint64_t)(int64_t)sign;
	struct gn_counters counters = {.size = sizeof(counters)};

	gn_fabric_counters(fabric, &counters);
	for (int op = 0; op < GN_OP_RECV; op++)
		*wrs += factor * counters.wrs[op];
	*doorbells += factor * counters.doorbells;
	*cqes += factor * counters.cqes;
}

static double ratio(uint64_t a, uint64_t b)
{
	return b ? (double)a / (double)b : 0;
}

/* After all processes have ended. Responders count all that they ever answered. */
static void sum_up(const struct msg_hall *hall, struct bench_msg_result *r)
{
	const struct bench_msg_opts *o = &hall->opts;
	struct msg_account answered = {0};
	struct gn_hist latency_ns;
	struct msg_tally all = {0};

	gn_hist_init(&latency_ns);
	for (uint32_t i = 0; i < bench_msg_requesters(o); i++) {
		const struct msg_tally *t = &hall->asked[i];

		gn_hist_merge(&latency_ns, &t->latency_ns);
		all.requests += t->requests;
		all.wrs += t->wrs;
		all.doorbells += t->doorbells;
		all.cqes += t->cqes;
		all.repeats += t->repeats;
		all.lost += t->lost;
		r->mops += 1e3 * ratio(t->requests, t->ns);
	}
	for (uint32_t i = 0; i < bench_msg_responders(o); i++) {
		const struct msg_account *a = &hall->answered[i];

		answered.requests += a->requests;
		answered.wrs += a->wrs;
		answered.doorbells += a->doorbells;
		answered.cqes += a->cqes;
		all.repeats += a->repeats;
	}
	r->requests = all.requests;
	r->wrs = ratio(all.wrs, all.requests) + ratio(answered.wrs, answered.requests);
	r->doorbells =
		ratio(all.doorbells, all.requests) + ratio(answered.doorbells, answered.requests);
	r->cqes = ratio(all.cqes, all.requests) + ratio(answered.cqes, answered.requests);
	r->repeats = o->protocol == GN_MSG_UD ? (double)all.repeats : NAN;
	r->lost = o->protocol == GN_MSG_UD ? (double)all.lost : NAN;
	r->gbps = 8e-3 * r->mops * o->value_bytes;
	/* 1:M has one node that takes values. */
	r->gbps_per_node = o->topology == BENCH_MSG_1M ? r->gbps : r->gbps / o->nodes;
	r->p50_us = 1e-3 * (double)gn_hist_percentile(&latency_ns, 50);
	r->p99_us = 1e-3 * (double)gn_hist_percentile(&latency_ns, 99);
}

/* ---- the limit ---- */

struct beside {
	struct pair *pair;
	struct bare *bare;
	void *requester;
};

/* The responder's thread answers the bare loop meanwhile. */
static int run_limit(void *arg, uint64_t block_ns, struct block *out)
{
	struct beside *b = arg;
	int rc = msg_requester_rest(b->requester);

	if (rc)
		return rc;
	rc = bare_run(b->bare, block_ns, out);
	pair_order(b->pair, ORDER_IDLE);
	return rc;
}

/* ---- the run ---- */

static bool has_limit(const struct bench_msg_opts *o)
{
	return !o->host[0] && bench_msg_requesters(o) == 1 && bench_msg_responders(o) == 1;
}

static int measure(struct crew *crew, struct beside *beside, bench_progress_fn *progress,
		   struct bench_msg_result *out)
{
	struct msg_hall *hall = (struct msg_hall *)crew->hall;
	const struct load own = {.run = msg_requester_ops.run, .arg = beside->requester};
	const struct load limit = {run_limit, beside, 0.25};
	struct comparison compared = {NAN, NAN, NAN, NAN};
	struct bench_result result = {0};
	int rc;

	crew_let_go(crew);
	rc = blocks_run(&crew->pair, &own, has_limit(&hall->opts) ? &limit : NULL, NULL, progress,
			&result, &compared);
	if (!rc)
		rc = msg_requester_ops.finish(beside->requester);
	if (rc)
		return rc;
	out->seconds = result.seconds;
	out->limit_ratio = 1 / compared.ratio;
	out->blocks = result.blocks;
	out->blocks_dropped = result.blocks_dropped;
	return 0;
}

/* Everyone else is started first: the first requester connects when all responders listen. */
static int run_crew(struct crew *crew, bench_progress_fn *progress, struct bench_msg_result *out)
{
	struct msg_hall *hall = (struct msg_hall *)crew->hall;
	const struct limit_place place = msg_limit_place(hall);
	struct beside beside = {.pair = &crew->pair};
	int end, rc = crew_start_server(crew);

	if (!rc)
		rc = crew_start_clients(crew);
	if (!rc)
		rc = msg_requester_ops.create(crew->hall, 0, &beside.requester);
	if (!rc)
		rc = bare_create(&crew->pair, &place, &beside.bare);
	if (!rc)
		rc = measure(crew, &beside, progress, out);
	if (rc) /* nobody waits for our last answers */
		__atomic_add_fetch(&hall->crew.failed, 1, __ATOMIC_RELEASE);
	end = crew_end_clients(crew);
	bare_destroy(beside.bare);
	if (beside.requester)
		msg_requester_ops.destroy(beside.requester);
	crew_stop_server(crew);
	return rc ? rc : end;
}

int bench_msg_run(const struct bench_msg_opts *opts, bench_progress_fn *progress,
		  struct bench_msg_result *out)
{
	const struct limit_opts limit = {.request_bytes = opts->request_bytes,
					 .result_bytes = opts->value_bytes,
					 .batch = 1,
					 .inflight = opts->pending};
	const struct crew_opts crew_opts = {
		.hidden_arg = "--bench-msg",
		.bytes = sizeof(struct msg_hall) + (has_limit(opts) ? limit_bytes(&limit) : 0),
		.threads = 1,
		.clients = bench_msg_requesters(opts) + bench_msg_responders(opts) - 1,
		.seconds = opts->seconds,
		.cpus = {opts->cpus[0], opts->cpus[1]}};
	const uint64_t began_ns = gn_now_ns();
	struct bench_msg_result result = {.limit_ratio = NAN};
	struct msg_hall *hall;
	struct crew crew = {.hall = NULL};
	int rc = crew_open(&crew, &crew_opts);

	if (rc)
		return rc;
	hall = (struct msg_hall *)crew.hall; /* which begins with it */
	hall->opts = *opts;
	for (uint32_t i = 0; i < bench_msg_requesters(opts); i++)
		gn_hist_init(&hall->asked[i].latency_ns);
	share_cpus(&crew, opts);
	rc = run_crew(&crew, progress, &result);
	if (!rc) {
		sum_up(hall, &result);
		result.wall_seconds = 1e-9 * (double)(gn_now_ns() - began_ns);
		*out = result;
	}
	crew_close(&crew);
	return rc;
}

int bench_msg_peer_main(void)
{
	struct crew_hall *crew;
	struct msg_hall *hall;
	uint32_t number;
	int rc = crew_join(sizeof(struct msg_hall), &crew, &number);

	if (rc)
		return EXIT_FAILURE;
	hall = (struct msg_hall *)crew; /* which begins with it */
	rc = number < bench_msg_responders(&hall->opts) ?
		     msg_responder_main(hall, number) :
		     crew_be_client(crew, number, &msg_requester_ops);
	crew_leave(crew);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
