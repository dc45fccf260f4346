/* SPDX-License-Identifier: MIT */
/* From a seed to a plan: cluster, server, clients, keys, and faults. */
#include <stdio.h>

#include "draw.h"
#include "sim_kv.h"

static void draw_faults(struct plan *plan, struct rng *rng)
{
	const struct fault_opts opts = {.until_us = 5000, .good = GOOD_CLIENT, .rare_ppm = 3000};
	const bool none = one_in(rng, 4);
	const uint32_t share = range(rng, 2, 8);
	const char *kind;

	for (unsigned i = 0; (kind = gn_sim_fault_name(i)); i++) {
		const bool chosen = one_in(rng, share) && !none && strncmp(kind, "ud-", 3);
		/* In seconds there would be too many of them. */
		const bool scheduled = one_in(rng, 2) || plan->naps;

		cluster_draw_fault(&plan->cluster, rng, kind, chosen, scheduled, &opts);
	}
}

/* ---- the server, and its content ---- */

static void draw_server(struct plan *plan, struct rng *rng)
{
	struct gn_kv_server_opts *o = &plan->server;

	o->size = sizeof(*o);
	o->threads = range(rng, 1, plan->ample ? 4 : 2);
	o->bypass = one_in(rng, 3);
	o->memory = (uint64_t)o->threads * (plan->ample ? 4u << 20 : GN_KV_MEMORY_MIN);
	o->rpc.max_slots = range(rng, 1, 32);
	o->rpc.max_request = one_in(rng, 2) ? 0 : range(rng, 600, 6000);
	o->rpc.max_result = one_in(rng, 2) ? 0 : range(rng, 600, 6000);
	o->rpc.park_us = range(rng, 20, one_in(rng, 2) ? 50 : 500);
	o->rpc.flags = (one_in(rng, 4) ? GN_RPC_SYNC_REPLY : 0) |
		       (one_in(rng, 3) ? GN_RPC_ONE_CTX : 0);
	plan->stop_us = one_in(rng, 4) ? range(rng, 100, plan->naps ? 2000000 : 5000) : 0;
	if (plan->stop_us && one_in(rng, 2))
		plan->drain_us = range(rng, 100, 3000);
}

static void draw_keys(struct plan *plan, struct rng *rng)
{
	static const uint32_t cold[] = {0, 10, 30, 200};

	plan->hot = range(rng, 1, 8);
	plan->counters = range(rng, 0, plan->hot / 2);
	plan->cold = plan->ample ? cold[range(rng, 0, 3)] : range(rng, 300, 500);
	plan->small = one_in(rng, 2) ? 64 : 400;
	plan->large = one_in(rng, 3) ? BYTES_MAX / 2 : 3000;
	if (!plan->ample) { /* it must be too little */
		plan->small = range(rng, 1000, 4000);
		plan->large = one_in(rng, 2) ? plan->small : 7000;
		plan->least = plan->large == plan->small ? plan->small : 0;
	}
	plan->heat = plan->ample ? 700 : 200;
	plan->ttls = plan->naps ? range(rng, 100, 500) : one_in(rng, 4) ? range(rng, 10, 100) : 0;
}

/* ---- clients ---- */

static void draw_opts(struct gn_kv_client_opts *o, struct rng *rng)
{
	static const unsigned flags[] = {0, 0, GN_RPC_SIGNALED, GN_RPC_CLIENT_PAPER, GN_RPC_EAGER};

	o->size = sizeof(*o);
	o->flags = (one_in(rng, 4) ? GN_KV_CALL_ONLY : 0) | (one_in(rng, 3) ? GN_KV_PAPER : 0) |
		   (one_in(rng, 6) ? 0 : GN_KV_RECONNECT);
	o->gather = one_in(rng, 2) ? 0 : range(rng, 1, 20);
	o->rpc.mode = (enum gn_rpc_mode)range(rng, 0, GN_RPC_MODES - 1);
	o->rpc.flags = flags[range(rng, 0, 4)] | (one_in(rng, 4) ? GN_RPC_BY_FAILS : 0);
	o->rpc.slots = range(rng, 1, one_in(rng, 3) ? 2 : 24);
	o->rpc.max_request = one_in(rng, 2) ? 0 : range(rng, 600, 6000);
	o->rpc.max_result = one_in(rng, 2) ? 0 : range(rng, 600, 6000);
	o->rpc.fetch_bytes = one_in(rng, 2) ? 0 : range(rng, 1, 1000);
	o->rpc.timeout_us = range(rng, 2000, 20000);
	if (one_in(rng, 4))
		o->rpc.batch.entries = range(rng, 1, 8);
	if (one_in(rng, 2))
		o->rpc.batch.wait_us = range(rng, 5, 100);
}

static void draw_client(struct plan *plan, struct plan_client *c, struct rng *rng)
{
	draw_opts(&c->opts, rng);
	c->threads = one_in(rng, 2) ? 1 : range(rng, 1, THREADS_MAX);
	c->window = range(rng, 1, 16);
	c->batch = range(rng, 1, one_in(rng, 2) ? 4 : 24);
	c->ops = range(rng, 20, 150) * (plan->ample ? 1 : 2);
	c->max_timeout_us = one_in(rng, 2) ? 50 : 1000;
	c->hurries = one_in(rng, 2) ? 0 : range(rng, 5, 60);
	c->closes = one_in(rng, 2) ? 0 : range(rng, 1, 30);
	c->sleeps = one_in(rng, 2) ? 20 : range(rng, 1, 200);
	c->clears = one_in(rng, 4) ? range(rng, 1, 5) : 0;
	c->looks = range(rng, 1, 30);
	c->singles = range(rng, 50, 500);
	c->asyncs = one_in(rng, 2) ? 0 : range(rng, 50, 500);
	c->writes = range(rng, plan->ample ? 100 : 400, plan->ample ? 500 : 700);
	c->removes = one_in(rng, 3) ? 0 : range(rng, 10, 100);
	c->numbers = one_in(rng, 3) ? 0 : range(rng, 10, 150);
	c->joins = one_in(rng, 3) ? 0 : range(rng, 10, 100);
}

/*
 * Many keys in a small table, until items are evicted and the table grows: a lookup of an existing
 * key finds it at any time.
 */
static void draw_crowd(struct plan *plan, struct rng *rng)
{
	plan->kind = "crowd";
	plan->ample = true;
	plan->naps = false;
	plan->ttls = plan->stop_us = plan->drain_us = 0;
	plan->server.threads = 1;
	plan->server.bypass = true;
	plan->server.memory = 384u << 10; /* the table begins with 1024 entries */
	plan->hot = 1;
	plan->counters = 0;
	plan->heat = 10;
	plan->cold = range(rng, 1000, 1300);
	plan->small = plan->large = 16;
	plan->least = 0;
	plan->n_clients = range(rng, 2, CLIENTS_MAX);
	for (unsigned i = 0; i < plan->n_clients; i++) {
		struct plan_client *c = &plan->client[i];

		draw_opts(&c->opts, rng);
		*c = (struct plan_client){.opts = c->opts, .threads = 2, .window = 16};
		c->opts.flags &= ~(unsigned)GN_KV_CALL_ONLY;
		c->opts.rpc.slots = 16;
		c->batch = 24;
		c->ops = 2600 / plan->n_clients;
		c->singles = 50;
		c->asyncs = 100;
		c->looks = 5;
		c->writes = 600;
		c->removes = range(rng, 0, 20);
	}
}

/*
 * Few keys, and values so large that two fill a segment of the log: the memory of an item that was
 * just read is soon reused.
 */
static void draw_churn(struct plan *plan, struct rng *rng)
{
	plan->kind = "churn";
	plan->plain = true;
	plan->ample = plan->naps = false;
	plan->ttls = 0;
	plan->server.threads = 1;
	plan->server.bypass = true;
	plan->server.memory = GN_KV_MEMORY_MIN;
	plan->hot = range(rng, 1, 4);
	plan->counters = plan->cold = 0;
	plan->small = plan->large = plan->least = one_in(rng, 4) ? 4000 : 7000;
	plan->n_clients = range(rng, 3, CLIENTS_MAX);
	for (unsigned i = 0; i < plan->n_clients; i++) {
		struct plan_client *c = &plan->client[i];

		c->opts.flags &= ~(unsigned)GN_KV_CALL_ONLY;
		c->threads = THREADS_MAX;
		c->window = 8;
		c->batch = i ? 4 : 8;
		c->ops = 120;
		c->hurries = c->clears = c->sleeps = 0;
		c->removes = c->numbers = c->joins = 0;
		c->writes = i ? range(rng, 50, 200) : 900;
	}
}

void test_plan(struct seeds *run)
{
	struct world *w = (struct world *)run;
	struct plan *plan = &w->plan;
	struct rng rng = {run->seed * 0xd6e8feb86659fd93u + 0x6b76};

	w->points = false;
	*plan = (struct plan){0};
	plan->kind = "mixed";
	cluster_draw(&plan->cluster, &rng);
	plan->n_clients = range(&rng, 1, CLIENTS_MAX);
	plan->naps = one_in(&rng, 5);
	plan->ample = one_in(&rng, 2);
	draw_server(plan, &rng);
	draw_keys(plan, &rng);
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		draw_client(plan, &plan->client[i], &rng);
	if (one_in(&rng, 5))
		draw_crowd(plan, &rng);
	else if (one_in(&rng, 5))
		draw_churn(plan, &rng);
	draw_faults(plan, &rng);
	plan->scribblers = one_in(&rng, 5) && plan->ample;
	if (plan->scribblers) /* others run between any two loads */
		cluster_add_fault(&plan->cluster, "preempt=30%");
	plan->strict = cluster_is_strict(&plan->cluster);
	/* A table that cannot grow does not hold all keys. */
	plan->ample &= !(plan->cluster.no_memory && plan->server.bypass);
}

void test_plan_small(struct seeds *run, const char *faults)
{
	struct world *w = (struct world *)run;
	struct plan *plan = &w->plan;
	struct plan_client client = {.threads = 1,
				     .window = 3,
				     .batch = 3,
				     .ops = 12,
				     .singles = 300,
				     .asyncs = 300,
				     .looks = 50,
				     .writes = 400,
				     .numbers = 100};

	w->points = true;
	*plan = (struct plan){0};
	client.opts.rpc.slots = 2;
	client.opts.rpc.timeout_us = 5000;
	plan->kind = "small";
	plan->ample = true;
	plan->hot = 4;
	plan->small = 100;
	plan->large = 5000;
	plan->n_clients = 2;
	plan->client[0] = plan->client[1] = client;
	plan->client[1].opts.rpc.mode = GN_RPC_REPLY;
	plan->server.threads = 2;
	plan->server.bypass = w->bypass;
	plan->server.memory = 2ull << 20;
	cluster_small(&plan->cluster, faults);
}

void test_print(const struct seeds *run)
{
	const struct plan *p = &((const struct world *)run)->plan;
	const struct gn_kv_server_opts *o = &p->server;

	printf("# %s: profile %s, caps off %llx%s%s%s\n# faults %s\n", p->kind, p->cluster.profile,
	       (unsigned long long)p->cluster.caps_off, p->strict ? ", strict" : "",
	       p->ample ? ", ample" : "", p->naps ? ", naps" : "", p->cluster.faults);
	printf("# n0: %u threads%s, %llu KiB, flags %x, %u slots, %u and %u bytes, parks %u us, "
	       "stops %u us, drains %u us\n",
	       o->threads, o->bypass ? ", bypass" : "", (unsigned long long)o->memory >> 10,
	       o->rpc.flags, o->rpc.max_slots, o->rpc.max_request, o->rpc.max_result,
	       o->rpc.park_us, p->stop_us, p->drain_us);
	printf("# keys: %u hot, %u of them numbers, %u cold; values from %u up to %u, some %u; ttls %u\n",
	       p->hot, p->counters, p->cold, p->least, p->small, p->large, p->ttls);
	for (unsigned i = 0; i < p->n_clients; i++) {
		const struct plan_client *c = &p->client[i];

		printf("# n%u: %u threads, mode %d, flags %x and %x, gather %u, %u slots, %u and "
		       "%u bytes, batches of %u, window %u, batch %u, %u ops, hurries %u up to %u "
		       "us, closes %u, sleeps %u, clears %u, writes %u\n",
		       i + 1, c->threads, c->opts.rpc.mode, c->opts.flags, c->opts.rpc.flags,
		       c->opts.gather, c->opts.rpc.slots, c->opts.rpc.max_request,
		       c->opts.rpc.max_result, c->opts.rpc.batch.entries, c->window, c->batch,
		       c->ops, c->hurries, c->max_timeout_us, c->closes, c->sleeps, c->clears,
		       c->writes);
	}
}
