/* SPDX-License-Identifier: MIT */
/*
 * The same store without calls, in the thread that measures: what an operation costs by itself.
 */
#include <errno.h>
#include <stdlib.h>

#include "kv_hall.h"

#define DEEP_GROUP 8u /* batches are timed over so many */

struct kv_local {
	const struct bench_kv_opts *opts;
	struct gn_kv_store *store;
	struct kv_load load;
	struct kv_errands errands; /* of a batch */
};

static int do_some(void *arg, struct gn_kv_op *ops, unsigned n)
{
	gn_kv_store_do(arg, ops, n);
	return 0;
}

int kv_local_create(const struct bench_kv_opts *opts, struct kv_tally *tally, struct kv_local **out)
{
	const struct gn_kv_store_opts store = {.size = sizeof(store), .memory = kv_memory(opts)};
	struct kv_local *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->opts = opts;
	rc = gn_kv_store_create(&store, &l->store);
	if (rc)
		gn_log(GN_LOG_ERROR, "bench: cannot make a store: %s", gn_strerror(rc));
	if (!rc)
		rc = kv_load_create(&l->load, opts, opts->seed, tally);
	if (!rc)
		rc = kv_errands_make(&l->errands, opts, opts->batch);
	if (!rc)
		rc = kv_fill(&l->load, do_some, l->store);
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
	kv_load_destroy(&l->load);
	kv_errands_free(&l->errands);
	free(l);
}

void kv_local_stats(struct kv_local *l, struct gn_kv_stats *out)
{
	gn_kv_store_stats(l->store, out);
}

static int do_batch(struct kv_local *l)
{
	const uint32_t n = l->opts->batch;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		kv_errand_next(&l->load, &l->errands, i);
	gn_kv_store_do(l->store, l->errands.ops, n);
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = kv_errand_check(&l->load, &l->errands, i);
	return rc;
}

static int do_group(struct kv_local *l, uint64_t ops)
{
	int rc = bench_stopped() ? -EINTR : 0;

	for (uint64_t i = 0; !rc && i < ops; i += l->opts->batch)
		rc = do_batch(l);
	return rc;
}

int kv_local_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct kv_local *l = arg;
	uint64_t since_ns;
	int rc;

	out->group_ops = l->opts->batch == 1 ? GROUP_TRIPS : DEEP_GROUP * l->opts->batch;
	rc = do_group(l, out->group_ops);
	since_ns = gn_now_ns();
	while (!rc && out->ns < block_ns) {
		rc = do_group(l, out->group_ops);
		if (!rc)
			since_ns = block_group(out, since_ns);
	}
	return rc;
}
