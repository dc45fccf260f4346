/* SPDX-License-Identifier: MIT */
/*
 * A run from start to end: the pair, the operation next to its limit, the check of the data.
 */
#include "pair.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include <gannet/sim.h>

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

/* What is measured of one run. */
struct measure {
	struct pair pair;
	bench_progress_fn *progress;
	struct bench_result *result;
	struct comparison compared;
	struct gn_counters before;
};

static void count_from_here(struct measure *m)
{
	m->before.size = sizeof(m->before);
	gn_fabric_counters(m->pair.side.fabric, &m->before);
}

static void count_to_here(struct measure *m)
{
	struct gn_counters now = {.size = sizeof(now)};

	gn_fabric_counters(m->pair.side.fabric, &now);
	for (int op = 0; op < GN_OP_RECV; op++)
		m->result->wrs += now.wrs[op] - m->before.wrs[op];
	m->result->doorbells = now.doorbells - m->before.doorbells;
	m->result->cqes = now.cqes - m->before.cqes;
	m->result->has_counters = true;
}

static int alternate(struct measure *m, const struct load *own, const struct load *limit)
{
	return blocks_run(&m->pair, own, limit, NULL, m->progress, m->result, &m->compared);
}

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

static int measure_one_sided(struct measure *m)
{
	struct side *side = &m->pair.side;
	const bool atomic = bench_traits[side->opts.op].kind == BENCH_ATOMIC;
	struct one_sided *o;
	struct copying c = {.ops = 0};
	/* As long as the operation's, so that the caches are as cold or warm for both. */
	const struct load limit = {copying_run, &c, 1};
	struct load own = {.run = one_sided_run};
	int rc;

	if (!atomic)
		c = copying_like(side, side->opts.op == BENCH_READ);
	rc = one_sided_create(side, &o);
	if (rc)
		return rc;
	own.arg = o;
	rc = one_sided_warm(o);
	count_from_here(m);
	if (!rc)
		rc = alternate(m, &own, atomic || side->opts.profile ? NULL : &limit);
	count_to_here(m);
	m->result->memcpy_ratio = 1 / m->compared.ratio;
	m->result->working_set_bytes = 3 * (uint64_t)side->plan.slots * side->plan.stride;
	if (!rc)
		rc = one_sided_settle(o, &m->pair.shared->check_ops);
	if (!rc)
		rc = one_sided_check(o, m->pair.shared->check_ops);
	if (!rc)
		rc = pair_ask(&m->pair, ORDER_CHECK);
	one_sided_destroy(o);
	return rc;
}

static int measure_messages(struct measure *m)
{
	const struct bench_opts *opts = &m->pair.side.opts;
	struct ping ping = {.pair = &m->pair};
	const struct load own = {.run = messages_run, .arg = &ping};
	const struct load limit = {cacheline_run, &m->pair, 0.25};
	int rc = messages_create(&m->pair.side, &ping.messages);

	if (rc)
		return rc;
	count_from_here(m);
	if (opts->op == BENCH_WAKE) {
		rc = wake_run(&m->pair, ping.messages, m->progress, m->result);
	} else {
		/* Only one message at a time can be compared with one line at a time. */
		rc = alternate(m, &own, opts->depth == 1 && !opts->profile ? &limit : NULL);
		m->result->cacheline_ratio = m->compared.ratio;
		m->result->overhead_ns = m->compared.overhead_ns;
	}
	count_to_here(m);
	m->result->lost = messages_lost(ping.messages);
	if (!rc && opts->op != BENCH_WAKE)
		rc = messages_check(&ping);
	messages_destroy(ping.messages);
	return rc;
}

static int measure_limit(struct measure *m)
{
	struct side *side = &m->pair.side;
	struct copying c;
	struct load load = {.run = cacheline_run, .arg = &m->pair};
	int rc;

	if (side->opts.op == BENCH_CACHELINE)
		return alternate(m, &load, NULL);
	c = copying_like(side, false);
	load = (struct load){.run = copying_run, .arg = &c};
	rc = alternate(m, &load, NULL);
	m->result->working_set_bytes = 3 * (uint64_t)side->plan.slots * side->plan.stride;
	return rc ? rc : check_copying(&c, side->opts.seed);
}

static int measure(struct measure *m)
{
	*m->result = (struct bench_result){.cacheline_ratio = NAN,
					   .overhead_ns = NAN,
					   .memcpy_ratio = NAN,
					   .cpu_percent = NAN,
					   .eventfd_p50_ns = NAN,
					   .eventfd_cpu_percent = NAN};
	m->compared = (struct comparison){NAN, NAN, NAN, NAN};
	switch (bench_traits[m->pair.shared->opts.op].kind) {
	case BENCH_ONE_SIDED:
	case BENCH_ATOMIC:
		return measure_one_sided(m);
	case BENCH_MESSAGE:
	case BENCH_SLEEPER:
		return measure_messages(m);
	default:
		return measure_limit(m);
	}
}

/* ---- two simulated machines ---- */

#define LIMIT_NS 100000000000ull /* of virtual time: something hangs */

struct machines {
	struct measure measure;
	struct shared *shared;
	int rc; /* of the first program that failed */
};

static int peer_program(struct gn_env *env, int argc, char **argv)
{
	struct machines *m = env->arg;
	const int rc = peer_serve(m->shared, env->fabric);

	(void)argc;
	(void)argv;
	m->rc = m->rc ? m->rc : rc;
	return rc != 0;
}

static int initiator_program(struct gn_env *env, int argc, char **argv)
{
	struct machines *m = env->arg;
	struct pair *pair = &m->measure.pair;
	struct bench_opts opts = m->shared->opts;
	int rc;

	(void)argc;
	(void)argv;
	snprintf(opts.provider, sizeof(opts.provider), "%s", env->fabric);
	pair->shared = m->shared;
	rc = pair_meet(pair, &opts);
	if (!rc)
		rc = measure(&m->measure);
	pair_order(pair, ORDER_QUIT);
	side_close(&pair->side);
	m->rc = m->rc ? m->rc : rc;
	return rc != 0;
}

static int simulate_pair(struct machines *m)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = m->shared->opts.profile,
					 .seed = m->shared->opts.seed,
					 .nodes = 2,
					 .limit_ns = LIMIT_NS};
	struct gn_sim *sim;
	int rc = gn_sim_create(&opts, &sim);

	if (rc)
		return rc;
	rc = gn_sim_spawn(sim, 0, peer_program, 0, NULL, m, NULL);
	if (!rc)
		rc = gn_sim_spawn(sim, 1, initiator_program, 0, NULL, m, NULL);
	if (!rc)
		rc = gn_sim_run(sim);
	gn_sim_destroy(sim);
	return m->rc ? m->rc : rc;
}

static int run_simulated(const struct bench_opts *opts, struct bench_result *out)
{
	struct machines *m = calloc(1, sizeof(*m));
	struct shared *shared = NULL;
	int rc = -ENOMEM;

	if (m && !posix_memalign((void **)&shared, _Alignof(struct shared), sizeof(*shared))) {
		memset(shared, 0, sizeof(*shared));
		shared->opts = *opts;
		shared->answer = UINT64_MAX;
		m->shared = shared;
		m->measure.result = out;
		rc = simulate_pair(m);
	}
	free(shared);
	free(m);
	return rc;
}

int bench_run(const struct bench_opts *opts, bench_progress_fn *progress, struct bench_result *out)
{
	struct bench_result result;
	struct measure m = {.progress = progress, .result = &result};
	int rc;

	if (opts->profile)
		return run_simulated(opts, out);
	rc = pair_start(&m.pair, opts);
	if (rc)
		return rc;
	rc = measure(&m);
	pair_stop(&m.pair);
	if (!rc)
		*out = result;
	return rc;
}
