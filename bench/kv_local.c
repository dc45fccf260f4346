/* SPDX-License-Identifier: MIT */
/* The same store without calls, in the thread that measures: what an operation costs by itself. */
#include <errno.h>
#include <stdlib.h>

#include "kv_load.h"

#define GROUP_BATCHES 8u /* batches are timed over so many */

struct kv_local {
	const struct bench_kv_opts *opts;
	struct gn_kv_store *store;
	struct kv_draws draws;
	struct kv_ops ops; /* of a batch */
	struct load_sums sums;
};

static int fill_some(void *arg, struct gn_kv_op *ops, unsigned n)
{
	if (bench_stopped())
		return -EINTR;
	gn_kv_store_do(arg, ops, n);
	return 0;
}

int kv_local_create(const struct bench_kv_opts *opts, struct kv_local **out)
{
	const uint64_t memory = bench_kv_memory(opts);
	const struct gn_kv_store_opts store = {
		.size = sizeof(store),
		.memory = memory < GN_KV_MEMORY_MAX ? memory : GN_KV_MEMORY_MAX};
	struct kv_local *l = calloc(1, sizeof(*l));
	char why[KV_WHY_MAX];
	int rc;

	if (!l)
		return -ENOMEM;
	l->opts = opts;
	rc = gn_kv_store_create(&store, &l->store);
	if (!rc)
		rc = kv_draws_create(&l->draws, opts, opts->keys, opts->load.seed, &l->sums);
	if (!rc)
		rc = kv_ops_make(&l->ops, opts, opts->load.batch);
	if (!rc)
		rc = kv_fill(opts, 0, opts->keys, fill_some, l->store, why);
	if (rc) {
		kv_local_destroy(l);
		return rc;
	}
	*out = l;
	return 0;
}

void kv_local_destroy(struct kv_local *l)
{
	if (!l)
		return;
	gn_kv_store_destroy(l->store);
	kv_draws_destroy(&l->draws);
	kv_ops_free(&l->ops);
	free(l);
}

void kv_local_stats(const struct kv_local *l, struct gn_kv_stats *out, struct load_sums *sums)
{
	gn_kv_store_stats(l->store, out);
	*sums = l->sums;
}

static int local_batch(struct kv_local *l)
{
	const uint32_t n = l->opts->load.batch;
	char why[KV_WHY_MAX];
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		kv_op_next(&l->draws, &l->ops, i, 0);
	gn_kv_store_do(l->store, l->ops.ops, n);
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = kv_op_check(&l->draws, &l->ops, i, why);
	if (unlikely(rc))
		gn_log(GN_LOG_ERROR, "bench kv: the store without calls: %s", why);
	return rc;
}

static int local_group(struct kv_local *l, uint64_t ops)
{
	int rc = bench_stopped() ? -EINTR : 0;

	for (uint64_t i = 0; !rc && i < ops; i += l->opts->load.batch)
		rc = local_batch(l);
	return rc;
}

int kv_local_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct kv_local *l = arg;
	uint64_t since_ns;
	int rc;

	out->group_ops = l->opts->load.batch == 1 ? GROUP_TRIPS :
						    GROUP_BATCHES * l->opts->load.batch;
	rc = local_group(l, out->group_ops);
	since_ns = gn_now_ns();
	while (!rc && out->ns < block_ns) {
		rc = local_group(l, out->group_ops);
		if (!rc)
			since_ns = block_group(out, since_ns);
	}
	return rc;
}
