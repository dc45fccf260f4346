/* SPDX-License-Identifier: MIT */
/*
 * A run of calls from start to end: the hall, the server, the clients, the figures.
 */
#include <math.h>
#include <stdlib.h>

#include "rpc_hall.h"

const char *const bench_rpc_modes[BENCH_RPC_MODES + 1] = {
	[BENCH_RPC_FETCH] = "fetch",
	[BENCH_RPC_REPLY] = "reply",
	[BENCH_RPC_HYBRID] = "hybrid",
	[BENCH_RPC_LIMIT] = "limit",
};

struct run {
	struct crew crew;
	struct hall *hall;
	struct bench_rpc_result result;
	bench_progress_fn *progress;
};

/* ---- figures ---- */

/* One at a time next to a line, or several next to the loop without calls. */
static void take_comparison(struct run *run, const struct comparison *compared)
{
	const bool line = run->hall->opts.inflight == 1;

	run->result.run.cacheline_ratio = line ? compared->ratio : NAN;
	run->result.run.overhead_ns = line ? compared->overhead_ns : NAN;
	run->result.limit_ratio = line ? NAN : 1 / compared->ratio;
}

/* What one client's calls can be compared with; several clients share a core, or have more. */
static const struct load *limit_for(const struct bench_rpc_opts *o, const struct load *line,
				    const struct load *bare)
{
	if (o->clients > 1)
		return NULL;
	return o->inflight == 1 ? line : bare;
}

static int measure_calls(struct run *run)
{
	const struct bench_rpc_opts *o = &run->hall->opts;
	const struct limit_place place = limit_place_of(run->hall);
	struct pair *pair = &run->crew.pair;
	struct hold_bare hold = {
		.hold = {.pair = pair, .rest = caller_rest, .method = METHOD_CACHELINE},
		.hall = run->hall};
	const struct load line = {hold_line, &hold.hold, 0.25}, bare = {hold_bare, &hold, 0.25};
	struct comparison compared = {NAN, NAN, NAN, NAN};
	struct load own = {.run = caller_ops.run};
	int rc = caller_ops.create(run->crew.hall, 0, &own.arg), end;

	if (rc)
		return rc;
	hold.hold.caller = own.arg;
	rc = bare_create(pair, &place, &hold.bare);
	if (!rc)
		rc = crew_start_clients(&run->crew);
	crew_let_go(&run->crew);
	if (!rc)
		rc = blocks_run(pair, &own, limit_for(o, &line, &bare), NULL, run->progress,
				&run->result.run, &compared);
	end = crew_end_clients(&run->crew);
	rc = rc ? rc : end;
	if (!rc)
		rc = caller_ops.finish(own.arg);
	if (!rc)
		rc = pair_ask(pair, ORDER_CHECK);
	if (!rc) {
		take_comparison(run, &compared);
		tally_sum(run->crew.hall, &run->result);
	}
	bare_destroy(hold.bare);
	caller_ops.destroy(own.arg);
	return rc;
}

static int measure_limit(struct run *run)
{
	const struct bench_rpc_opts *o = &run->hall->opts;
	const struct limit_place place = limit_place_of(run->hall);
	const struct load limit = {cacheline_run, &run->crew.pair, 0.25};
	struct bench_rpc_result *r = &run->result;
	struct comparison compared;
	struct bare *bare;
	struct load own = {.run = bare_run};
	int rc = bare_create(&run->crew.pair, &place, &bare);

	if (rc)
		return rc;
	own.arg = bare;
	rc = blocks_run(&run->crew.pair, &own, o->inflight == 1 ? &limit : NULL, NULL,
			run->progress, &r->run, &compared);
	if (!rc)
		rc = bare_check(bare);
	take_comparison(run, &compared);
	r->mops = (double)r->run.ops / r->run.seconds / 1e6;
	r->server_wrs = r->client_wrs = r->round_trips = r->doorbells = r->batch_fill = NAN;
	bare_destroy(bare);
	return rc;
}

int bench_rpc_run(const struct bench_rpc_opts *opts, bench_progress_fn *progress,
		  struct bench_rpc_result *out)
{
	const struct limit_opts limit = limit_opts_of(opts);
	const struct crew_opts crew = {.hidden_arg = "--bench-rpc",
				       .bytes = sizeof(struct hall) + limit_bytes(&limit),
				       .threads = opts->threads,
				       .clients = opts->clients,
				       .seconds = opts->seconds,
				       .cpus = {opts->cpus[0], opts->cpus[1]}};
	struct run run = {.progress = progress};
	int rc = crew_open(&run.crew, &crew);

	if (rc)
		return rc;
	run.hall = (struct hall *)run.crew.hall; /* which begins with it */
	run.hall->opts = *opts;
	rc = crew_start_server(&run.crew);
	if (!rc)
		rc = opts->mode == BENCH_RPC_LIMIT ? measure_limit(&run) : measure_calls(&run);
	crew_stop_server(&run.crew);
	if (!rc) {
		/* A closed loop: with several under way, each takes that many times its share. */
		run.result.run.p50_ns *= opts->inflight;
		run.result.run.p99_ns *= opts->inflight;
		*out = run.result;
	}
	crew_close(&run.crew);
	return rc;
}

int bench_rpc_peer_main(void)
{
	struct crew_hall *crew;
	uint32_t number;
	int rc = crew_join(sizeof(struct hall), &crew, &number);

	if (rc)
		return EXIT_FAILURE;
	rc = number ? crew_be_client(crew, number, &caller_ops) : server_main((struct hall *)crew);
	crew_leave(crew);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
