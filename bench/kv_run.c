/* SPDX-License-Identifier: MIT */
/* A run of the store: as processes beside their limits, or on a simulated cluster. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kv_load.h"
#include "procs.h"

const char *const bench_kv_modes[BENCH_KV_MODES + 1] = {
	[BENCH_KV_FETCH] = "fetch",   [BENCH_KV_REPLY] = "reply", [BENCH_KV_HYBRID] = "hybrid",
	[BENCH_KV_BYPASS] = "bypass", [BENCH_KV_LOCAL] = "local",
};

#define SHARE	0.25  /* of an operation's blocks: how long those are that it is compared with */
#define MIN_OPS 30000u /* of a simulated run, at effort 1 */

/* ---- processes ---- */

static void take_stats(struct bench_kv_result *r, const struct gn_kv_stats *stats)
{
	r->items = stats->items;
	r->bytes_per_item = stats->items ? (double)stats->used / (double)stats->items : NAN;
}

static void take_comparison(struct bench_kv_result *r, const struct comparison *compared, bool line)
{
	if (line) {
		r->calls.run.cacheline_ratio = compared->ratio;
		r->calls.run.overhead_ns = compared->overhead_ns;
		r->cacheline_ns = compared->limit_ns;
		r->local_p50_ns = compared->part_ns;
	} else {
		r->calls.limit_ratio = 1 / compared->ratio;
		r->local_p50_ns = compared->limit_ns;
	}
}

/*
 * The store in this thread is a limit to several operations under way; to one at a time it is a
 * part of what a call has to do, and a line between the cores is the other. A GET that bypasses the
 * server has nothing to do with its thread.
 */
static int measure_beside(struct procs *procs, bench_progress_fn *progress,
			  struct bench_kv_result *r)
{
	const struct bench_kv_opts *o = &((struct kv_run *)procs->run)->opts;
	const bool line = o->load.inflight == 1 && o->mode != BENCH_KV_BYPASS;
	struct hold hold = {
		.procs = procs, .rpc = kv_client_connection(procs->client), .method = METHOD_HOLD};
	const struct load held = {hold_line, &hold, SHARE};
	struct load local = {.run = kv_local_run, .share = SHARE};
	struct comparison compared;
	struct kv_local *store;
	char why[LOAD_ERROR_MAX];
	int rc = kv_local_create(o, &store);

	if (rc)
		return load_fail(procs->run, kv_no_store(o, rc, why), "%s", why);
	local.arg = store;
	rc = procs_measure(procs, line ? &held : &local, line ? &local : NULL, progress, &r->calls,
			   &compared);
	if (!rc)
		take_comparison(r, &compared, line);
	kv_local_destroy(store);
	return rc;
}

static int measure_ops(struct procs *procs, bench_progress_fn *progress, struct bench_kv_result *r)
{
	const struct bench_kv_opts *o = &((struct kv_run *)procs->run)->opts;
	const bool alone = o->load.clients == 1 && !o->load.host[0] && !o->load.batch_auto;
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	struct comparison compared;
	int rc = procs_start(procs);

	if (rc)
		return rc;
	rc = alone ? measure_beside(procs, progress, r) :
		     procs_measure(procs, NULL, NULL, progress, &r->calls, &compared);
	if (!rc)
		rc = load_check(procs->run, kv_client_stats(procs->client, &stats), "statistics");
	if (!rc)
		take_stats(r, &stats);
	return rc;
}

static int run_processes(const struct bench_kv_opts *o, bench_progress_fn *progress,
			 struct bench_kv_result *out)
{
	struct procs procs;
	struct kv_run *run;
	int rc = procs_open(&procs, &load_kv, sizeof(*run), &o->load, 1, o->load.threads,
			    o->load.clients);

	if (rc)
		return rc;
	run = (struct kv_run *)procs.run;
	run->opts = *o;
	run->servers = 1;
	rc = measure_ops(&procs, progress, out);
	procs_scale_latency(&o->load, &out->calls);
	return procs_close(&procs, rc, &out->calls);
}

/* ---- the store alone ---- */

static int run_local(const struct bench_kv_opts *o, bench_progress_fn *progress,
		     struct bench_kv_result *out)
{
	struct shared shared = {.opts = {.seconds = o->load.seconds}};
	struct pair pair = {.shared = &shared};
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	struct comparison compared;
	struct load own = {.run = kv_local_run};
	struct kv_local *local;
	int rc = bench_pin(o->load.cpus[0]);

	if (rc)
		gn_log(GN_LOG_WARN, "cannot run on one cpu only: %s", gn_strerror(rc));
	rc = kv_local_create(o, &local);
	if (rc)
		return kv_no_store(o, rc, out->calls.error);
	own.arg = local;
	rc = blocks_run(&pair, &own, NULL, NULL, progress, &out->calls.run, &compared);
	kv_local_stats(local, &stats, &out->calls.sums);
	take_stats(out, &stats);
	out->local_p50_ns = out->calls.run.p50_ns;
	out->calls.mops = (double)out->calls.run.ops / out->calls.run.seconds / 1e6;
	kv_local_destroy(local);
	return rc;
}

/* ---- a simulated cluster ---- */

/* Server processes on node 0, then clients: each a process, or one process for each machine. */
static unsigned place_all(const struct bench_kv_opts *o, uint32_t servers,
			  struct load_place *places)
{
	const uint32_t clients = o->load.machines * o->load.clients;
	const uint32_t some = o->procs_each ? 1 : servers,
		       many = o->procs_each ? 1 : o->load.clients;
	unsigned n = 0;

	for (uint32_t i = 0; i < servers; i += some)
		places[n++] = (struct load_place){.first_server = i, .n_servers = some};
	for (uint32_t i = 0; i < clients; i += many)
		places[n++] = (struct load_place){
			.node = 1 + i / o->load.clients, .first_client = i, .n_clients = many};
	return n;
}

static int run_cluster(const struct bench_kv_opts *o, struct bench_kv_result *out)
{
	const uint32_t servers = o->split ? o->load.threads : 1,
		       clients = o->load.machines * o->load.clients;
	struct kv_run *run = (struct kv_run *)load_run_create(sizeof(*run), &o->load);
	struct load_place *places = calloc(servers + clients, sizeof(*places));
	int rc;

	if (!run || !places) {
		free(run);
		free(places);
		return load_no_memory(&out->calls);
	}
	run->opts = *o;
	run->servers = servers;
	run->load.n_servers = run->load.servers_per_node = servers;
	run->load.n_clients = clients;
	load_set_length(&run->load, MIN_OPS, o->load.batch, o->load.batch_auto);
	rc = load_simulate(&run->load, &load_kv, places, place_all(o, servers, places),
			   &out->calls);
	free(places);
	return rc;
}

int bench_kv_run(const struct bench_kv_opts *opts, bench_progress_fn *progress,
		 struct bench_kv_result *out)
{
	*out = (struct bench_kv_result){
		.cacheline_ns = NAN, .local_p50_ns = NAN, .bytes_per_item = NAN};
	load_result_init(&out->calls);
	if (opts->mode == BENCH_KV_LOCAL)
		return run_local(opts, progress, out);
	return opts->load.profile ? run_cluster(opts, out) : run_processes(opts, progress, out);
}
