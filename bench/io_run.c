/* SPDX-License-Identifier: MIT */
/* A run of the I/O engine: threads of this process beside memcpy, or a simulated cluster. */
#include <math.h>
#include <stdlib.h>

#include "io_load.h"
#include "procs.h"

#define MIN_OPS	    4000u /* of a simulated run, at effort 1 */
#define RATE_OPS    400u  /* … with a rate or bursts */
#define RATE_MAX_NS 20000000000ull

const char *const bench_io_ops[BENCH_IO_OPS + 1] = {
	[BENCH_IO_READ] = "read", [BENCH_IO_WRITE] = "write", [BENCH_IO_MIXED] = "mixed"};
const char *const bench_io_batchings[GN_IO_BATCHINGS + 1] = {
	[GN_IO_HYBRID] = "hybrid",
	[GN_IO_SINGLE] = "single",
	[GN_IO_DOORBELL] = "doorbell",
	[GN_IO_MERGE] = "merge",
};
const char *const bench_io_mrs[BENCH_IO_MRS + 1] = {
	[GN_IO_MR_AUTO] = "auto",
	[GN_IO_MR_PRE] = "pre",
	[GN_IO_MR_DYN] = "dyn",
	[BENCH_IO_MR_REGISTERED] = "registered",
};
const char *const bench_io_polls[GN_IO_POLLINGS + 1] = {
	[GN_IO_ADAPTIVE] = "adaptive",
	[GN_IO_BUSY] = "busy",
	[GN_IO_EVENT] = "event",
	[GN_IO_EVENT_BATCH] = "event-batch",
	[GN_IO_NAIVE_HYBRID] = "naive-hybrid",
	[GN_IO_SHARED_CQ] = "shared",
};

/* Only the closed loop over shared memory can be compared with memcpy. */
static bool is_compared(const struct bench_io_opts *o)
{
	return !o->load.host[0] && !o->burst && !o->rate;
}

/* With a rate the engine's service thread works beside the clients, while the server sleeps. */
static void share_all_cpus(struct procs *procs, uint32_t clients)
{
	for (uint32_t i = 0; i < clients; i++)
		procs->run->client_cpus[i] = procs->cpus_before;
	sched_setaffinity(0, sizeof(cpu_set_t), &procs->cpus_before);
}

static int run_processes(const struct bench_io_opts *o, bench_progress_fn *progress,
			 struct load_result *out)
{
	struct procs procs;
	const struct load limit = {procs_limit, &procs, 0.5};
	struct comparison compared = {NAN, NAN, NAN, NAN};
	int rc = procs_open(&procs, &load_io, sizeof(struct io_run), &o->load,
			    o->volume ? o->donors : 1, 1, o->load.clients);

	if (rc)
		return rc;
	((struct io_run *)procs.run)->opts = *o;
	if (o->rate)
		share_all_cpus(&procs, o->load.clients);
	rc = procs_start(&procs);
	if (!rc)
		rc = procs_measure(&procs, is_compared(o) ? &limit : NULL, NULL, progress, out,
				   &compared);
	if (!rc) {
		out->run.memcpy_ratio = 1 / compared.ratio;
		out->run.overhead_ns = compared.overhead_ns;
	}
	return procs_close(&procs, rc, out);
}

static void set_length(struct load_run *run, const struct bench_io_opts *o)
{
	load_set_length(run, MIN_OPS, 1, false);
	if (!o->rate && !o->burst)
		return;
	run->length.min_ops = (uint64_t)(RATE_OPS * run->opts.effort) + 1;
	run->length.max_ns = RATE_MAX_NS;
}

static int run_cluster(const struct bench_io_opts *o, struct load_result *out)
{
	struct io_run *run = (struct io_run *)load_run_create(sizeof(*run), &o->load);

	if (!run)
		return load_no_memory(out);
	run->opts = *o;
	run->load.n_servers = o->volume ? o->donors : 1;
	run->load.servers_per_node = o->volume ? 2 : 1; /* addresses */
	run->load.n_clients = o->load.machines * o->load.clients;
	set_length(&run->load, o);
	return load_simulate_machines(&run->load, &load_io, out);
}

int bench_io_run(const struct bench_io_opts *opts, bench_progress_fn *progress,
		 struct load_result *out, struct bench_io_kills *kills)
{
	load_result_init(out);
	*kills = (struct bench_io_kills){0};
	return opts->load.profile ? run_cluster(opts, out) :
	       opts->kills	  ? io_kill_run(opts, progress, out, kills) :
				    run_processes(opts, progress, out);
}
