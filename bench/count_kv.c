/* SPDX-License-Identifier: MIT */
/*
 * Counted operations of the store: gn_kv_submit() and gn_kv_flush(), then gn_kv_wait(). Local:
 * gn_kv_store_do().
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "count_turns.h"
#include "kv_load.h"

#define FILL_US 60000000u

struct store_server {
	struct count_server base;
	const struct bench_kv_opts *opts;
	struct gn_fabric *fabric;
	struct gn_kv_server *kv;
	char addr[64];
};

struct user {
	struct count_client base;
	const struct bench_kv_opts *opts;
	struct gn_fabric *fabric;
	struct gn_kv_client *kv;
	struct gn_kv_store *store; /* local */
	struct kv_draws draws;
	struct kv_ops ops;
	struct load_sums sums;
};

/* ---- the server ---- */

static void kv_stop(struct count_server *base)
{
	struct store_server *s = (struct store_server *)base; /* which it begins with */

	gn_kv_server_destroy(s->kv);
	gn_fabric_close(s->fabric);
}

static int kv_start(struct count_server *base)
{
	struct store_server *s = (struct store_server *)base;
	const struct bench_kv_opts *o = s->opts;
	const struct gn_kv_server_opts opts = {.size = sizeof(opts),
					       .memory = bench_kv_memory(o),
					       .bypass = o->mode == BENCH_KV_BYPASS,
					       .rpc = {.flags = GN_RPC_POLLED,
						       .max_slots = kv_slots(o),
						       .max_window = kv_slots(o) * o->load.batch,
						       .max_request = kv_slot_bytes(o),
						       .max_result = kv_slot_bytes(o)}};
	int rc = gn_fabric_open("shm", &s->fabric);

	if (!rc)
		rc = gn_kv_server_create(s->fabric, s->addr, &opts, &s->kv);
	if (!rc)
		rc = gn_kv_server_start(s->kv);
	if (!rc)
		base->rpc = gn_kv_server_rpc(s->kv);
	return rc;
}

/* ---- the client ---- */

static int kv_prepare(struct count_client *base)
{
	struct user *u = (struct user *)base; /* which it begins with */

	for (uint32_t i = 0; i < base->batch; i++)
		kv_op_next(&u->draws, &u->ops, i, 0);
	return 0;
}

static int kv_submit(void *arg)
{
	struct user *u = arg;
	const uint32_t n = u->base.batch;

	for (uint32_t i = 0; i < n; i++) {
		const int rc = gn_kv_submit(u->kv, &u->ops.ops[i]);

		if (unlikely(rc))
			return rc;
	}
	return gn_kv_flush(u->kv);
}

static void kv_op_done(struct gn_kv_op *op)
{
	(void)op;
}

static int kv_collect(void *arg)
{
	struct user *u = arg;

	return gn_kv_wait(u->kv, u->base.deadline_ns);
}

static int kv_check(struct count_client *base)
{
	struct user *u = (struct user *)base;
	char why[KV_WHY_MAX];
	int rc = 0;

	for (uint32_t i = 0; i < base->batch && !rc; i++)
		rc = kv_op_check(&u->draws, &u->ops, i, why);
	return rc;
}

static int submit_local(void *arg)
{
	struct user *u = arg;

	gn_kv_store_do(u->store, u->ops.ops, u->base.batch);
	return 0;
}

static int collect_local(void *arg)
{
	struct user *u = arg;

	return (int)u->base.batch;
}

static int do_some_local(void *arg, struct gn_kv_op *ops, unsigned n)
{
	struct user *u = arg;

	gn_kv_store_do(u->store, ops, n);
	return 0;
}

static int do_some(void *arg, struct gn_kv_op *ops, unsigned n)
{
	struct user *u = arg;

	return gn_kv_do(u->kv, ops, n, gn_deadline_us(FILL_US));
}

static int connect_user(struct user *u, const char *addr)
{
	const struct bench_kv_opts *o = u->opts;
	struct gn_kv_client_opts opts = {.size = sizeof(opts),
					 .gather = o->load.batch > 1 ? o->load.batch : 0};
	const int rc = u->fabric ? 0 : gn_fabric_open("shm", &u->fabric);

	opts.rpc.mode = o->mode == BENCH_KV_FETCH ? GN_RPC_FETCH :
			o->mode == BENCH_KV_REPLY ? GN_RPC_REPLY :
						    GN_RPC_HYBRID;
	opts.flags = o->mode == BENCH_KV_BYPASS ? 0 : GN_KV_CALL_ONLY;
	opts.rpc.slots = kv_slots(o);
	opts.rpc.max_request = opts.rpc.max_result = kv_slot_bytes(o);
	opts.rpc.timeout_us = FILL_US; /* callgrind takes its time */
	return rc ? rc : gn_kv_client_open(u->fabric, addr, &opts, &u->kv);
}

/* What is asked for. */
static int make_load(struct user *u)
{
	const uint64_t deadline_ns = gn_deadline_us(FILL_US); /* the same, or they go apart */
	int rc = kv_draws_create(&u->draws, u->opts, u->opts->keys, u->opts->load.seed, &u->sums);

	if (!rc)
		rc = kv_ops_make(&u->ops, u->opts, u->opts->load.batch);
	for (uint32_t i = 0; !rc && i < u->opts->load.batch; i++) {
		u->ops.ops[i].done = kv_op_done;
		u->ops.ops[i].deadline_ns = deadline_ns;
	}
	return rc;
}

static int kv_set_up(struct user *u, const char *addr)
{
	char why[KV_WHY_MAX];
	int rc = make_load(u);

	/* Another connection is counted: this one may have slept, and is still to be woken. */
	if (!rc)
		rc = connect_user(u, addr);
	if (!rc)
		rc = kv_fill(u->opts, 0, u->opts->keys, do_some, u, why);
	gn_kv_client_close(u->kv);
	u->kv = NULL;
	return rc ? rc : connect_user(u, addr);
}

static int count_local(struct count_page *page)
{
	const struct gn_kv_store_opts store = {.size = sizeof(store),
					       .memory = bench_kv_memory(&page->opts.kv)};
	struct user u = {.base = {.batch = page->opts.kv.load.batch,
				  .prepare = kv_prepare,
				  .submit = submit_local,
				  .collect = collect_local,
				  .check = kv_check},
			 .opts = &page->opts.kv};
	char why[KV_WHY_MAX];
	int rc = make_load(&u);

	if (!rc)
		rc = gn_kv_store_create(&store, &u.store);
	if (!rc)
		rc = kv_fill(u.opts, 0, u.opts->keys, do_some_local, &u, why);
	if (!rc)
		rc = count_alone(&u.base, page);
	gn_kv_store_destroy(u.store);
	kv_draws_destroy(&u.draws);
	kv_ops_free(&u.ops);
	return rc;
}

int count_kv_main(struct count_page *page)
{
	struct store_server server = {.base = {.start = kv_start, .stop = kv_stop},
				      .opts = &page->opts.kv};
	struct user u = {.base = {.batch = page->opts.kv.load.batch,
				  .prepare = kv_prepare,
				  .submit = kv_submit,
				  .collect = kv_collect,
				  .check = kv_check},
			 .opts = &page->opts.kv};
	struct count_turns *turns;
	int rc;

	if (page->opts.kv.mode == BENCH_KV_LOCAL)
		return count_local(page);
	snprintf(server.addr, sizeof(server.addr), "shm:count-kv-%d", (int)getpid());
	rc = count_turns_begin(&server.base, &turns);
	if (rc)
		return rc;
	rc = kv_set_up(&u, server.addr);
	if (!rc)
		rc = count_turns_run(turns, &u.base, page);
	gn_kv_client_close(u.kv);
	count_turns_end(turns);
	gn_fabric_close(u.fabric);
	kv_draws_destroy(&u.draws);
	kv_ops_free(&u.ops);
	return rc;
}
