/* SPDX-License-Identifier: MIT */
/*
 * A run of the store from start to end: the server, the clients, what they are compared with, and
 * the figures.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kv_hall.h"

const char *const bench_kv_modes[BENCH_KV_MODES + 1] = {
	[BENCH_KV_FETCH] = "fetch",   [BENCH_KV_REPLY] = "reply", [BENCH_KV_HYBRID] = "hybrid",
	[BENCH_KV_BYPASS] = "bypass", [BENCH_KV_LOCAL] = "local",
};

#define SHARE 0.25 /* of an operation's blocks: how long those are that it is compared with */

struct run {
	struct crew crew;
	struct kv_hall *hall;
	struct bench_kv_result result;
	bench_progress_fn *progress;
	void *user;
	struct kv_local *local;
	struct kv_tally spare; /* for what is not reported */
};

/* ---- figures ---- */

static void take_stats(struct bench_kv_result *r, const struct gn_kv_stats *stats)
{
	r->items = stats->items;
	r->bytes_per_item = stats->items ? (double)stats->used / (double)stats->items : NAN;
}

static void take_counts(struct run *run)
{
	struct bench_kv_result *r = &run->result;
	uint64_t bypass_gets = 0, reads = 0, messages = 0;

	for (uint32_t i = 0; i < run->hall->opts.clients; i++) {
		const struct kv_tally *t = &run->hall->tally[i];

		r->gets += t->gets;
		r->puts += t->puts;
		r->hits += t->hits;
		bypass_gets += t->bypass_gets;
		reads += t->reads;
		messages += run->crew.hall->tally[i].batches;
	}
	if (bypass_gets && messages) /* those were in no message */
		r->calls.batch_fill = (double)(r->calls.run.ops - bypass_gets) / (double)messages;
	r->reads_per_get = bypass_gets ? (double)reads / (double)bypass_gets : NAN;
}

static void take_comparison(struct run *run, const struct comparison *compared, bool line)
{
	struct bench_kv_result *r = &run->result;

	r->calls.run.cacheline_ratio = line ? compared->ratio : NAN;
	r->calls.run.overhead_ns = line ? compared->overhead_ns : NAN;
	r->calls.limit_ratio = line ? NAN : 1 / compared->ratio;
	r->cacheline_ns = line ? compared->limit_ns : NAN;
	r->local_p50_ns = line ? compared->part_ns : compared->limit_ns;
}

/* ---- one client, next to what it can be compared with ---- */

/*
 * The store in this thread is a limit to several operations under way; to one at a time it is a
 * part of what a call has to do, and a line between the cores is the other. A GET that bypasses the
 * server has nothing to do with its thread.
 */
static int measure_one(struct run *run)
{
	const struct bench_kv_opts *o = &run->hall->opts;
	const bool line = o->inflight == 1 && o->mode != BENCH_KV_BYPASS;
	struct pair *pair = &run->crew.pair;
	struct hold hold = {
		.pair = pair, .rest = kv_user_rest, .caller = run->user, .method = METHOD_HOLD};
	const struct load own = {.run = kv_user_ops.run, .arg = run->user};
	const struct load held = {hold_line, &hold, SHARE};
	struct load local = {.run = kv_local_run, .share = SHARE};
	struct comparison compared;
	int rc = kv_local_create(o, &run->spare, &run->local);

	if (rc)
		return rc;
	local.arg = run->local;
	rc = blocks_run(pair, &own, line ? &held : &local, line ? &local : NULL, run->progress,
			&run->result.calls.run, &compared);
	if (!rc)
		take_comparison(run, &compared, line);
	return rc;
}

static int measure_many(struct run *run)
{
	const struct comparison none = {NAN, NAN, NAN, NAN};
	const struct load own = {.run = kv_user_ops.run, .arg = run->user};
	struct comparison compared;
	int rc = crew_start_clients(&run->crew), end;

	crew_let_go(&run->crew);
	if (!rc)
		rc = blocks_run(&run->crew.pair, &own, NULL, NULL, run->progress,
				&run->result.calls.run, &compared);
	end = crew_end_clients(&run->crew);
	take_comparison(run, &none, true);
	return rc ? rc : end;
}

static int measure_user(struct run *run)
{
	struct pair *pair = &run->crew.pair;
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	uint64_t cpu_ns, since_ns;
	int rc = kv_user_fill(run->user);

	if (!rc)
		rc = pair_ask(pair, ORDER_CHECK);
	cpu_ns = run->crew.hall->server_cpu_ns;
	since_ns = gn_now_ns();
	if (!rc)
		rc = run->hall->opts.clients > 1 ? measure_many(run) : measure_one(run);
	if (!rc)
		rc = kv_user_ops.finish(run->user);
	if (!rc)
		rc = pair_ask(pair, ORDER_CHECK);
	if (!rc)
		rc = kv_user_stats(run->user, &stats);
	if (rc)
		return rc;
	run->result.server_cpu_percent = 100 * (double)(run->crew.hall->server_cpu_ns - cpu_ns) /
					 (double)(gn_now_ns() - since_ns);
	take_stats(&run->result, &stats);
	tally_sum(run->crew.hall, &run->result.calls);
	take_counts(run);
	return 0;
}

static int measure_calls(struct run *run)
{
	int rc = crew_start_server(&run->crew);

	if (!rc)
		rc = kv_user_ops.create(run->crew.hall, 0, &run->user);
	if (!rc) {
		rc = measure_user(run);
		kv_user_ops.destroy(run->user);
	}
	crew_stop_server(&run->crew);
	return rc;
}

/* ---- the store alone ---- */

static int measure_local(struct run *run)
{
	const struct bench_kv_opts *o = &run->hall->opts;
	struct bench_kv_result *r = &run->result;
	struct load own = {.run = kv_local_run};
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	struct comparison compared;
	int rc = kv_local_create(o, &run->hall->tally[0], &run->local);

	if (rc)
		return rc;
	own.arg = run->local;
	rc = blocks_run(&run->crew.pair, &own, NULL, NULL, run->progress, &r->calls.run, &compared);
	take_comparison(run, &compared, true);
	kv_local_stats(run->local, &stats);
	take_stats(r, &stats);
	take_counts(run);
	r->local_p50_ns = r->calls.run.p50_ns;
	r->calls.mops = (double)r->calls.run.ops / r->calls.run.seconds / 1e6;
	r->calls.server_wrs = r->calls.client_wrs = r->calls.round_trips = r->calls.doorbells =
		r->calls.batch_fill = r->server_cpu_percent = NAN;
	return rc;
}

/* ---- all of it ---- */

int bench_kv_run(const struct bench_kv_opts *opts, bench_progress_fn *progress,
		 struct bench_kv_result *out)
{
	const struct crew_opts crew = {.hidden_arg = "--bench-kv",
				       .bytes = sizeof(struct kv_hall),
				       .threads = opts->threads,
				       .clients = opts->clients,
				       .seconds = opts->seconds,
				       .cpus = {opts->cpus[0], opts->cpus[1]}};
	const double under_way = opts->mode == BENCH_KV_LOCAL ? 1 : opts->inflight;
	struct run run = {.progress = progress};
	int rc = crew_open(&run.crew, &crew);

	if (rc)
		return rc;
	run.hall = (struct kv_hall *)run.crew.hall; /* which begins with it */
	run.hall->opts = *opts;
	rc = opts->mode == BENCH_KV_LOCAL ? measure_local(&run) : measure_calls(&run);
	kv_local_destroy(run.local);
	if (!rc) {
		/* A closed loop: with several under way, each takes that many times its share. */
		run.result.calls.run.p50_ns *= under_way;
		run.result.calls.run.p99_ns *= under_way;
		run.result.calls.run.p999_ns *= under_way;
		*out = run.result;
	}
	crew_close(&run.crew);
	return rc;
}

int bench_kv_peer_main(void)
{
	struct crew_hall *crew;
	uint32_t number;
	int rc = crew_join(sizeof(struct kv_hall), &crew, &number);

	if (rc)
		return EXIT_FAILURE;
	rc = number ? crew_be_client(crew, number, &kv_user_ops) :
		      kv_server_main((struct kv_hall *)crew);
	crew_leave(crew);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
