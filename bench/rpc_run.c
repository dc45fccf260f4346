/* SPDX-License-Identifier: MIT */
/* A run of calls: as processes beside their limit, or on a simulated cluster. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "procs.h"
#include "rpc_load.h"

#define MIN_OPS 4000u /* of a simulated run, at effort 1 */

const char *const bench_rpc_modes[BENCH_RPC_MODES + 1] = {
	[BENCH_RPC_FETCH] = "fetch",
	[BENCH_RPC_REPLY] = "reply",
	[BENCH_RPC_HYBRID] = "hybrid",
	[BENCH_RPC_LIMIT] = "limit",
};

/* ---- processes ---- */

/* One call at a time next to a line, or several next to the loop without calls. */
static void rpc_take_comparison(const struct bench_rpc_opts *o, const struct comparison *compared,
				struct load_result *r)
{
	if (o->load.inflight == 1) {
		r->run.cacheline_ratio = compared->ratio;
		r->run.overhead_ns = compared->overhead_ns;
	} else {
		r->limit_ratio = 1 / compared->ratio;
	}
}

/* Only one client over shared memory can be compared with bare shared memory. */
static const struct load *limit_of(const struct bench_rpc_opts *o, const struct load *line,
				   const struct load *bare)
{
	if (o->load.clients > 1 || o->load.host[0] || o->load.batch_auto)
		return NULL;
	return o->load.inflight == 1 ? line : bare;
}

static int measure_calls(struct procs *procs, bench_progress_fn *progress, struct load_result *r)
{
	struct rpc_run *run = (struct rpc_run *)procs->run;
	const struct limit_place place = rpc_limit_place(run);
	struct hold hold = {.procs = procs, .method = METHOD_BARE, .held = &run->held};
	const struct load line = {hold_line, &hold, 0.25}, bare = {hold_bare, &hold, 0.25};
	struct comparison compared;
	int rc = procs_start(procs);

	if (rc)
		return rc;
	if (run->opts.load.inflight == 1)
		hold.method = METHOD_CACHELINE;
	hold.rpc = rpc_client_connection(procs->client);
	rc = bare_create(&procs->pair, &place, &hold.bare);
	if (!rc)
		rc = procs_measure(procs, limit_of(&run->opts, &line, &bare), NULL, progress, r,
				   &compared);
	if (!rc)
		rpc_take_comparison(&run->opts, &compared, r);
	bare_destroy(hold.bare);
	return rc;
}

/* The mode limit: no calls. */
static int rpc_measure_limit(struct procs *procs, bench_progress_fn *progress,
			     struct load_result *r)
{
	struct rpc_run *run = (struct rpc_run *)procs->run;
	const struct limit_place place = rpc_limit_place(run);
	const struct load limit = {cacheline_run, &procs->pair, 0.25};
	struct comparison compared;
	struct bare *bare;
	struct load own = {.run = bare_run};
	int rc = procs_start_server(procs);

	if (!rc)
		rc = bare_create(&procs->pair, &place, &bare);
	if (rc)
		return rc;
	own.arg = bare;
	rc = blocks_run(&procs->pair, &own, run->opts.load.inflight == 1 ? &limit : NULL, NULL,
			progress, &r->run, &compared);
	if (!rc)
		rc = bare_check(bare);
	rpc_take_comparison(&run->opts, &compared, r);
	r->mops = (double)r->run.ops / r->run.seconds / 1e6;
	bare_destroy(bare);
	return rc;
}

static int rpc_run_processes(const struct bench_rpc_opts *o, bench_progress_fn *progress,
			     struct load_result *out)
{
	const struct limit_opts limit = rpc_limit_opts(o);
	const size_t bytes = sizeof(struct rpc_run) + limit_bytes(&limit);
	struct procs procs;
	int rc =
		procs_open(&procs, &load_rpc, bytes, &o->load, 1, o->load.threads, o->load.clients);

	if (rc)
		return rc;
	((struct rpc_run *)procs.run)->opts = *o;
	rc = o->mode == BENCH_RPC_LIMIT ? rpc_measure_limit(&procs, progress, out) :
					  measure_calls(&procs, progress, out);
	procs_scale_latency(&o->load, out);
	return procs_close(&procs, rc, out);
}

/* ---- a simulated cluster ---- */

static int rpc_run_cluster(const struct bench_rpc_opts *o, struct load_result *out)
{
	struct rpc_run *run = (struct rpc_run *)load_run_create(sizeof(*run), &o->load);

	if (!run)
		return load_no_memory(out);
	run->opts = *o;
	load_set_length(&run->load, MIN_OPS, o->load.batch, o->load.batch_auto);
	return load_simulate_machines(&run->load, &load_rpc, out);
}

int bench_rpc_run(const struct bench_rpc_opts *opts, bench_progress_fn *progress,
		  struct load_result *out)
{
	load_result_init(out);
	return opts->load.profile ? rpc_run_cluster(opts, out) :
				    rpc_run_processes(opts, progress, out);
}
