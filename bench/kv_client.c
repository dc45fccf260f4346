/* SPDX-License-Identifier: MIT */
/*
 * A client of the store that has something to do all the time: one operation after the other with
 * gn_kv_do(), or several under way with gn_kv_submit() and gn_kv_wait(), as many in a message as
 * make a batch.
 */
#include <errno.h>
#include <stdlib.h>

#include "kv_hall.h"

#define DEEP_GROUP 8u	     /* several under way are timed over so many times more operations */
#define GROUP_US   30000000u /* a group that takes longer has failed */

struct user {
	struct kv_hall *hall;
	const struct bench_kv_opts *opts;
	uint32_t index;
	struct gn_fabric *fabric;
	struct gn_kv_client *kv;
	uint32_t partitions;
	struct kv_load load;
	struct kv_errands errands;
	uint32_t *idle, n_idle; /* errands that are not under way */
	uint64_t ended, deadline_ns;
	int error; /* of an operation that ended */
};

/* ---- beginning and end ---- */

static int connect_user(struct user *u)
{
	const struct bench_kv_opts *o = u->opts;
	struct gn_kv_client_opts opts = {.size = sizeof(opts),
					 .gather = o->batch > 1 ? o->batch : 0};
	struct gn_kv_limits limits = {.size = sizeof(limits)};
	int rc = gn_fabric_open("shm", &u->fabric);

	opts.rpc.mode = o->mode == BENCH_KV_FETCH ? GN_RPC_FETCH :
			o->mode == BENCH_KV_REPLY ? GN_RPC_REPLY :
						    GN_RPC_HYBRID;
	opts.flags = o->mode == BENCH_KV_BYPASS ? 0 : GN_KV_CALL_ONLY;
	opts.rpc.slots = kv_slots(o);
	opts.rpc.max_request = opts.rpc.max_result = kv_slot_bytes(o);
	if (!rc)
		rc = gn_kv_client_open(u->fabric, u->hall->crew.pair.addr, &opts, &u->kv);
	if (!rc)
		rc = gn_kv_client_limits(u->kv, &limits);
	if (!rc && limits.bypass != (o->mode == BENCH_KV_BYPASS))
		rc = -EPROTO;
	u->partitions = limits.partitions;
	if (rc)
		gn_log(GN_LOG_ERROR, "bench: cannot connect to the server: %s", gn_strerror(rc));
	return rc;
}

static void note_end(struct gn_kv_op *op)
{
	struct user *u = op->arg;
	const uint32_t i = (uint32_t)(op - u->errands.ops);

	if (likely(!u->error)) /* the others of a broken connection: the first was told */
		u->error = kv_errand_check(&u->load, &u->errands, i);
	u->ended++;
	u->idle[u->n_idle++] = i;
}

static int make_errands(struct user *u)
{
	const uint32_t n = u->opts->inflight;
	const int rc = kv_errands_make(&u->errands, u->opts, n);

	if (rc)
		return rc;
	u->idle = calloc(n, sizeof(*u->idle));
	if (!u->idle)
		return -ENOMEM;
	for (uint32_t i = n; i--;) {
		u->errands.ops[i].done = note_end;
		u->errands.ops[i].arg = u;
		u->idle[u->n_idle++] = i;
	}
	return 0;
}

static void user_destroy(void *arg)
{
	struct user *u = arg;

	gn_kv_client_close(u->kv);
	gn_fabric_close(u->fabric);
	kv_load_destroy(&u->load);
	kv_errands_free(&u->errands);
	free(u->idle);
	free(u);
}

static int user_create(struct crew_hall *crew, uint32_t index, void **out)
{
	struct user *u = calloc(1, sizeof(*u));
	int rc;

	if (!u)
		return -ENOMEM;
	u->hall = (struct kv_hall *)crew; /* which it begins with */
	u->opts = &u->hall->opts;
	u->index = index;
	rc = kv_load_create(&u->load, u->opts, u->opts->seed + ((uint64_t)index << 32),
			    &u->hall->tally[index]);
	if (!rc)
		rc = make_errands(u);
	if (!rc)
		rc = connect_user(u);
	if (rc) {
		user_destroy(u);
		return rc;
	}
	*out = u;
	return 0;
}

/* ---- operations ---- */

static inline int do_once(struct user *u)
{
	int rc;

	kv_errand_next(&u->load, &u->errands, 0);
	rc = gn_kv_do(u->kv, u->errands.ops, 1, u->deadline_ns);
	if (unlikely(rc)) {
		gn_log(GN_LOG_ERROR, "cannot do an operation: %s", gn_strerror(rc));
		return rc;
	}
	u->ended++;
	return kv_errand_check(&u->load, &u->errands, 0);
}

static int begin_idle(struct user *u)
{
	while (u->n_idle) {
		const uint32_t i = u->idle[u->n_idle - 1];
		int rc;

		kv_errand_next(&u->load, &u->errands, i);
		u->errands.ops[i].deadline_ns = u->deadline_ns;
		u->n_idle--;
		rc = gn_kv_submit(u->kv, &u->errands.ops[i]);
		if (likely(!rc))
			continue;
		u->n_idle++;
		kv_errand_undo(&u->load);
		if (rc == -EAGAIN)
			return 0;
		gn_log(GN_LOG_ERROR, "cannot submit an operation: %s", gn_strerror(rc));
		return rc;
	}
	return 0;
}

/* Until so many are idle. */
static int wait_for(struct user *u, uint32_t idle)
{
	while (u->n_idle < idle) {
		const int rc = gn_kv_wait(u->kv, u->deadline_ns);

		if (unlikely(bench_stopped()))
			return -EINTR;
		if (unlikely(u->error))
			return u->error;
		if (unlikely(rc < 0 && rc != -EINTR)) {
			gn_log(GN_LOG_ERROR, "no operation has ended: %s", gn_strerror(rc));
			return rc;
		}
	}
	return 0;
}

/* As many are begun together as fill a batch for each partition, on average. */
static int do_group(struct user *u, uint64_t ops)
{
	const uint32_t together = least_u32(u->opts->batch * u->partitions, u->opts->inflight);
	const uint64_t until = u->ended + ops;
	int rc = 0;

	u->deadline_ns = gn_deadline_us(GROUP_US);
	while (!rc && u->ended < until) {
		if (unlikely(bench_stopped()))
			return -EINTR;
		if (u->opts->inflight == 1) {
			rc = do_once(u);
			continue;
		}
		rc = begin_idle(u);
		if (!rc)
			rc = wait_for(u, together);
	}
	return rc;
}

static uint64_t group_ops(const struct bench_kv_opts *o)
{
	return o->inflight == 1 ? GROUP_TRIPS : (uint64_t)DEEP_GROUP * o->inflight;
}

static int warm(void *arg)
{
	struct user *u = arg;

	return do_group(u, group_ops(u->opts));
}

static void tally_up(struct user *u, int sign)
{
	const uint64_t factor = (uint64_t)(int64_t)sign;
	struct tally *t = &u->hall->crew.tally[u->index];
	struct kv_tally *kv = &u->hall->tally[u->index];
	struct gn_kv_counters counters = {.size = sizeof(counters)};

	gn_kv_client_counters(u->kv, &counters);
	t->calls += factor * counters.ops;
	kv->bypass_gets += factor * counters.bypass_gets;
	kv->reads += factor * (counters.entry_reads + counters.value_reads);
	tally_fabric(t, u->fabric, sign);
	t->switches = 0;
	for (uint32_t i = 0; i < u->partitions; i++) {
		const struct gn_rpc_client *rpc = gn_kv_client_rpc(u->kv, i);
		struct gn_rpc_counters calls = {.size = sizeof(calls)};

		if (!rpc)
			continue;
		tally_calls(t, rpc, sign);
		gn_rpc_client_counters(rpc, &calls);
		t->switches += calls.switches; /* of all its life */
	}
}

static int user_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct user *u = arg;
	const struct kv_tally before = u->hall->tally[u->index];
	uint64_t since_ns;
	int rc;

	out->group_ops = group_ops(u->opts);
	rc = warm(u); /* both sides have done something else before */
	/* What was only to get warm does not count. */
	u->load.tally->gets = before.gets;
	u->load.tally->puts = before.puts;
	u->load.tally->hits = before.hits;
	tally_up(u, -1);
	since_ns = gn_now_ns();
	while (!rc && out->ns < block_ns) {
		rc = do_group(u, out->group_ops);
		if (!rc)
			since_ns = block_group(out, since_ns);
	}
	tally_up(u, 1);
	tally_block(&u->hall->crew.tally[u->index], out);
	return rc;
}

/* ---- apart from what is measured ---- */

static int rest(struct user *u)
{
	u->deadline_ns = gn_deadline_us(GROUP_US);
	return wait_for(u, u->opts->inflight);
}

struct gn_rpc_client *kv_user_rest(void *arg)
{
	struct user *u = arg;

	return rest(u) ? NULL : gn_kv_client_rpc(u->kv, 0);
}

static int finish(void *arg)
{
	return rest(arg);
}

static int do_some(void *arg, struct gn_kv_op *ops, unsigned n)
{
	struct user *u = arg;
	const int rc = gn_kv_do(u->kv, ops, n, gn_deadline_us(GROUP_US));

	if (rc)
		gn_log(GN_LOG_ERROR, "cannot fill the store: %s", gn_strerror(rc));
	return rc;
}

int kv_user_fill(void *arg)
{
	struct user *u = arg;

	return kv_fill(&u->load, do_some, u);
}

int kv_user_stats(void *arg, struct gn_kv_stats *out)
{
	struct user *u = arg;

	return gn_kv_client_stats(u->kv, GN_KV_ALL, out, gn_deadline_us(GROUP_US));
}

const struct crew_client kv_user_ops = {
	.create = user_create,
	.destroy = user_destroy,
	.warm = warm,
	.run = user_run,
	.finish = finish,
};
