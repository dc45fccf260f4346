/* SPDX-License-Identifier: MIT */
/*
 * A run of single operations from start to end: next to their limit, or on simulated machines.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pair_load.h"
#include "procs.h"

const struct bench_trait bench_traits[BENCH_OPS] = {
	[BENCH_WRITE] = {BENCH_ONE_SIDED, 32, 16}, [BENCH_READ] = {BENCH_ONE_SIDED, 32, 16},
	[BENCH_SEND] = {BENCH_MESSAGE, 32, 1},	   [BENCH_WRITE_IMM] = {BENCH_MESSAGE, 32, 1},
	[BENCH_CAS] = {BENCH_ATOMIC, 8, 16},	   [BENCH_FAA] = {BENCH_ATOMIC, 8, 16},
	[BENCH_UD_SEND] = {BENCH_MESSAGE, 32, 1},  [BENCH_CACHELINE] = {BENCH_LIMIT, 64, 1},
	[BENCH_MEMCPY] = {BENCH_LIMIT, 32, 1},	   [BENCH_WAKE] = {BENCH_SLEEPER, 32, 1},
};

const char *const bench_ops[BENCH_OPS + 1] = {
	[BENCH_WRITE] = "write",     [BENCH_READ] = "read",
	[BENCH_SEND] = "send",	     [BENCH_WRITE_IMM] = "write-imm",
	[BENCH_CAS] = "cas",	     [BENCH_FAA] = "faa",
	[BENCH_UD_SEND] = "ud-send", [BENCH_CACHELINE] = "cacheline",
	[BENCH_MEMCPY] = "memcpy",   [BENCH_WAKE] = "wake",
};

/* The same copies without a fabric: from and to memory of the kinds the operation uses. */
static struct copying copying_like(struct side *side, bool read)
{
	const struct plan *plan = &side->plan;
	uint8_t *second_half = side->local + plan->local_bytes[INITIATOR] / 2;
	struct copying c = {.plan = plan,
			    .dst = read ? second_half : side->limit,
			    .src = read ? side->limit : side->local,
			    .size_bytes = side->opts.size_bytes,
			    .group_ops = one_sided_group_ops(&side->opts)};

	slots_fill(c.src, 2 * plan->slots, plan->stride, c.size_bytes, side->opts.seed);
	return c;
}

static int check_copying(const struct copying *c, uint64_t seed)
{
	return slots_check("memcpy", c->dst, c->plan, c->size_bytes, c->ops, seed);
}

static void take_counters(const struct load_sums *sums, struct bench_result *r)
{
	r->wrs = sums->wrs;
	r->doorbells = sums->doorbells;
	r->cqes = sums->cqes;
	r->lost = sums->lost;
	r->has_counters = true;
}

/* ---- processes ---- */

static uint64_t working_set(const struct side *side)
{
	return 3 * (uint64_t)side->plan.slots * side->plan.stride;
}

static int measure_one_sided(struct procs *procs, bench_progress_fn *progress,
			     struct load_result *r)
{
	struct side *side = &((struct pair_client *)procs->client)->side;
	const bool atomic = bench_traits[side->opts.op].kind == BENCH_ATOMIC;
	struct copying c = {.ops = 0};
	/* As long as the operation's, so that the caches are as cold or warm for both. */
	const struct load limit = {copying_run, &c, 1};
	struct comparison compared;
	int rc;

	if (!atomic)
		c = copying_like(side, side->opts.op == BENCH_READ);
	rc = procs_measure(procs, atomic ? NULL : &limit, NULL, progress, r, &compared);
	r->run.memcpy_ratio = 1 / compared.ratio;
	r->run.working_set_bytes = working_set(side);
	take_counters(&r->sums, &r->run);
	return rc;
}

static int measure_messages(struct procs *procs, bench_progress_fn *progress, struct load_result *r)
{
	const struct load limit = {cacheline_run, &procs->pair, 0.25};
	/* Only one message at a time can be compared with one line at a time. */
	const bool alone = procs->run->pair.opts.depth == 1;
	struct comparison compared;
	const int rc = procs_measure(procs, alone ? &limit : NULL, NULL, progress, r, &compared);

	r->run.cacheline_ratio = compared.ratio;
	r->run.overhead_ns = compared.overhead_ns;
	take_counters(&r->sums, &r->run);
	return rc;
}

static int measure_wake(struct procs *procs, bench_progress_fn *progress, struct load_result *r)
{
	struct pair_client *c = (struct pair_client *)procs->client;
	struct load_sums before, after;
	int rc;

	load_pair.count(&c->base, &before);
	rc = wake_run(&procs->pair, &c->side, c->messages, progress, &r->run);
	load_pair.count(&c->base, &after);
	load_sums_add(&after, &before, -1);
	take_counters(&after, &r->run);
	return rc;
}

static int measure_limit(struct procs *procs, bench_progress_fn *progress, struct load_result *r)
{
	struct side *side = &((struct pair_client *)procs->client)->side;
	struct comparison compared;
	struct copying c;
	struct load load = {.run = cacheline_run, .arg = &procs->pair};
	int rc;

	if (side->opts.op == BENCH_CACHELINE)
		return blocks_run(&procs->pair, &load, NULL, NULL, progress, &r->run, &compared);
	c = copying_like(side, false);
	load = (struct load){.run = copying_run, .arg = &c};
	rc = blocks_run(&procs->pair, &load, NULL, NULL, progress, &r->run, &compared);
	r->run.working_set_bytes = working_set(side);
	return rc ? rc : check_copying(&c, side->opts.seed);
}

/* Its number must not be the one that the spawn gives to something else. */
static int inherited_eventfd(void)
{
	const int fd = eventfd(0, EFD_CLOEXEC);
	const int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD, BENCH_PEER_FD + 1);

	if (fd >= 0)
		close(fd);
	return high;
}

static int run_processes(const struct load_opts *load, const struct bench_opts *opts,
			 bench_progress_fn *progress, struct load_result *out)
{
	static int (*const measures[])(struct procs *, bench_progress_fn *,
				       struct load_result *) = {
		[BENCH_ONE_SIDED] = measure_one_sided, [BENCH_ATOMIC] = measure_one_sided,
		[BENCH_MESSAGE] = measure_messages,    [BENCH_SLEEPER] = measure_wake,
		[BENCH_LIMIT] = measure_limit,
	};
	struct procs procs;
	int eventfd = -1,
	    rc = procs_open(&procs, &load_pair, sizeof(struct load_run), load, 1, 1, 1);

	if (rc)
		return rc;
	if (opts->op == BENCH_WAKE)
		eventfd = inherited_eventfd();
	procs.run->pair.opts = *opts;
	procs.run->pair.eventfd = eventfd;
	rc = procs_start(&procs);
	if (!rc)
		rc = measures[bench_traits[opts->op].kind](&procs, progress, out);
	rc = procs_close(&procs, rc, out);
	if (eventfd >= 0)
		close(eventfd);
	return rc;
}

/* ---- two simulated machines ---- */

static int run_simulated(const struct load_opts *load, const struct bench_opts *opts,
			 struct load_result *out)
{
	static const struct load_place places[] = {{.node = 0, .n_servers = 1},
						   {.node = 1, .n_clients = 1}};
	struct load_run *run = load_run_create(sizeof(*run), load);
	double group_ops = 1;
	int rc;

	if (!run)
		return load_no_memory(out);
	run->pair.opts = *opts;
	run->n_servers = run->n_clients = run->servers_per_node = 1;
	run->length = (struct load_length){.warm_ops = 1,
					   .min_ops = 1,
					   .max_ops = UINT64_MAX,
					   .min_ns = (uint64_t)(1e9 * opts->seconds),
					   .max_ns = UINT64_MAX};
	rc = load_simulate(run, &load_pair, places, 2, out);
	if (bench_traits[opts->op].kind != BENCH_MESSAGE)
		group_ops = (double)one_sided_group_ops(opts);
	else
		group_ops = (double)messages_group_ops(opts);
	out->run.p50_ns /= group_ops;
	out->run.p99_ns /= group_ops;
	out->run.blocks = 1;
	take_counters(&out->sums, &out->run);
	return rc;
}

int bench_run(const struct bench_opts *opts, bench_progress_fn *progress, struct bench_result *out)
{
	struct load_opts load = {.profile = opts->profile,
				 .effort = 1,
				 .seconds = opts->seconds,
				 .seed = opts->seed,
				 .cpus = {opts->cpus[0], opts->cpus[1]}};
	struct load_result r;
	int rc;

	memcpy(load.provider, opts->provider, sizeof(load.provider));
	memcpy(load.host, opts->host, sizeof(load.host));
	load_result_init(&r);
	r.run.cpu_percent = r.run.eventfd_p50_ns = r.run.eventfd_cpu_percent = NAN;
	rc = opts->profile ? run_simulated(&load, opts, &r) :
			     run_processes(&load, opts, progress, &r);
	if (!rc)
		*out = r.run;
	else if (r.error[0] && rc != -EINTR && (opts->profile || rc == -EINVAL || rc == -ENOMEM))
		/* What else can go wrong has been logged where it did. */
		gn_log(GN_LOG_ERROR, "bench: %s", r.error);
	return rc;
}
