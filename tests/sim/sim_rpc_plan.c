/* SPDX-License-Identifier: MIT */
/* From a seed to a plan: cluster, server, clients, and faults. */
#include <stdio.h>
#include <string.h>

#include "draw.h"
#include "sim_rpc.h"

static void draw_faults(struct plan *plan, struct rng *rng)
{
	const struct fault_opts opts = {.until_us = 5000, .good = GOOD_ALL, .rare_ppm = 5000};
	const bool none = one_in(rng, 6);
	const uint32_t share = range(rng, 2, 8);
	const char *kind;

	for (unsigned i = 0; (kind = gn_sim_fault_name(i)); i++) {
		const bool chosen = one_in(rng, share) && !none;

		cluster_draw_fault(&plan->cluster, rng, kind, chosen, one_in(rng, 2), &opts);
	}
}

/* ---- programs ---- */

static uint32_t draw_bytes(struct rng *rng)
{
	static const uint32_t most[] = {64, 200, 200, 1000, 4096, BYTES_MAX};

	return most[range(rng, 0, 5)];
}

/* A limit for large messages: too little for some, or enough for all. */
static uint32_t draw_large(struct rng *rng)
{
	static const uint32_t most[] = {0, 0, 500, 3000, 20000, 100000};

	return most[range(rng, 0, 5)];
}

static void draw_batch(struct gn_rpc_batch *batch, struct rng *rng)
{
	batch->entries = range(rng, 1, one_in(rng, 2) ? 4 : 32);
	batch->bytes = one_in(rng, 2) ? 0 : range(rng, 50, 2000);
	batch->wait_us = one_in(rng, 3) ? 0 : range(rng, 5, 500);
	batch->limit_us = one_in(rng, 2) ? 0 : range(rng, 2, 200);
	batch->alpha_pct = range(rng, 0, 30);
}

static void draw_opts(struct gn_rpc_client_opts *o, struct rng *rng)
{
	static const unsigned flags[] = {0, 0, GN_RPC_SIGNALED, GN_RPC_CLIENT_PAPER, GN_RPC_EAGER};

	o->mode = (enum gn_rpc_mode)range(rng, 0, GN_RPC_MODES - 1);
	o->flags = flags[range(rng, 0, 4)] | (one_in(rng, 4) ? GN_RPC_BY_FAILS : 0) |
		   (one_in(rng, 3) ? GN_RPC_RECONNECT : 0);
	o->slots = range(rng, 1, one_in(rng, 3) ? 2 : 24);
	o->max_request = draw_bytes(rng);
	o->max_result = draw_bytes(rng);
	o->max_large = draw_large(rng);
	o->fetch_bytes = one_in(rng, 2) ? 0 : range(rng, 1, 1000);
	o->retries = one_in(rng, 2) ? 0 : range(rng, 1, 8);
	o->switch_us = one_in(rng, 2) ? 0 : range(rng, 1, 20);
	o->thread = one_in(rng, 2) ? 0 : range(rng, 1, 4);
	o->timeout_us = range(rng, 2000, 20000);
	if (one_in(rng, 2))
		draw_batch(&o->batch, rng);
}

/* Idle times are close to the parking time. */
static uint32_t draw_think(struct rng *rng, uint32_t park_us)
{
	if (one_in(rng, 4))
		return range(rng, 1, 100);
	return one_in(rng, 2) ? park_us * range(rng, 1, 3) : park_us + range(rng, 0, 5);
}

static void draw_client(struct plan_client *c, struct rng *rng, uint32_t park_us)
{
	static const uint32_t beyond[] = {100, 5000, 60000, LARGE_BYTES_MAX};

	draw_opts(&c->opts, rng);
	c->window = range(rng, 1, 24);
	c->calls = range(rng, 20, 200);
	c->max_timeout_us = one_in(rng, 2) ? 100 : 3000;
	c->think_us = draw_think(rng, park_us);
	c->cancels = one_in(rng, 2) ? 0 : range(rng, 1, 150);
	c->closes = one_in(rng, 2) ? 0 : range(rng, 1, 20);
	c->reconnects = one_in(rng, 3) ? range(rng, 1, 20) : 0;
	c->sleeps = one_in(rng, 2) ? 0 : range(rng, 1, 100);
	c->pauses = one_in(rng, 3) ? 0 : range(rng, 1, 100);
	c->large_bytes = beyond[range(rng, 0, 3)];
	c->fars = one_in(rng, 2) ? 0 : range(rng, 10, 200);
	if (!c->fars || c->large_bytes <= beyond[0])
		return;
	c->window = 1 + c->window % 8;
	c->calls = 20 + c->calls % (c->large_bytes > beyond[1] ? 40 : 100);
}

static void draw_server(struct plan *plan, struct rng *rng)
{
	struct gn_rpc_server_opts *o = &plan->server;

	o->threads = range(rng, 1, 3);
	o->max_slots = range(rng, 1, 32);
	o->max_request = draw_bytes(rng);
	o->max_result = draw_bytes(rng);
	o->max_large = draw_large(rng);
	o->park_us = range(rng, 20, one_in(rng, 2) ? 50 : 500);
	o->flags = (one_in(rng, 4) ? GN_RPC_SYNC_REPLY : 0) | (one_in(rng, 3) ? GN_RPC_ONE_CTX : 0);
	if (one_in(rng, 5)) {
		o->flags |= GN_RPC_POLLED;
		o->threads = 1;
	}
	plan->defer_us = one_in(rng, 2) ? 50 : 1000;
	plan->stop_us = one_in(rng, 3) ? range(rng, 100, 10000) : 0;
	if (plan->stop_us && one_in(rng, 2))
		plan->drain_us = range(rng, 100, one_in(rng, 2) ? 3000 : 300000);
}

/*
 * One thread is kept busy by one client, while the others are idle for about as long as parking
 * takes. There are no faults, so their next requests are noticed at once.
 */
static void draw_parking(struct plan *plan, struct rng *rng)
{
	const struct gn_rpc_client_opts opts = {
		.size = sizeof(opts), .timeout_us = 20000, .slots = 4};

	plan->raw = plan->scribblers = 0;
	/* Else a request may become visible to a server that has just checked for the last time. */
	plan->cluster.caps_off &= GN_CAP_READ_HEAD_FIRST;
	plan->n_clients = range(rng, 2, CLIENTS_MAX);
	plan->defer_us = 20;
	plan->server = (struct gn_rpc_server_opts){.size = sizeof(struct gn_rpc_server_opts),
						   .threads = 1,
						   .park_us = range(rng, 600, 1000)};
	plan->server.flags = one_in(rng, 4) ? GN_RPC_POLLED : 0;
	plan->stop_us = plan->drain_us = 0;
	plan->prompt_us = plan->server.park_us / 2;
	for (unsigned i = 0; i < plan->n_clients; i++) {
		struct plan_client *c = &plan->client[i];

		*c = (struct plan_client){.opts = opts, .window = 2, .calls = 2500};
		c->max_timeout_us = 20000;
		c->opts.mode = (enum gn_rpc_mode)range(rng, 0, GN_RPC_MODES - 1);
		if (!i)
			continue;
		c->opts.mode = one_in(rng, 4) ? GN_RPC_FETCH : GN_RPC_REPLY;
		/* Else it requests a notification soon, and wakes a server that missed it. */
		c->opts.flags = one_in(rng, 4) ? 0 : GN_RPC_EAGER;
		c->think_us = plan->server.park_us;
		c->window = 1;
		c->calls = 30;
		c->pauses = 1000;
	}
}

/* Clients with many outstanding calls at any time, some of which exceed their deadlines. */
static void draw_steady(struct plan *plan, struct rng *rng)
{
	plan->raw = plan->scribblers = 0;
	plan->n_clients = range(rng, 1, 2);
	plan->defer_us = 5000;
	plan->server = (struct gn_rpc_server_opts){.size = sizeof(struct gn_rpc_server_opts),
						   .threads = range(rng, 1, 2),
						   .max_slots = 64};
	plan->stop_us = plan->drain_us = 0;
	for (unsigned i = 0; i < plan->n_clients; i++) {
		struct plan_client *c = &plan->client[i];

		*c = (struct plan_client){.steady = true, .calls = 1000, .window = 24};
		c->opts.mode = (enum gn_rpc_mode)range(rng, 0, GN_RPC_MODES - 1);
		c->opts.flags = one_in(rng, 2) ? GN_RPC_EAGER : 0;
		c->opts.slots = 64;
		c->opts.max_request = c->opts.max_result = 64;
		c->opts.timeout_us = 20000;
		c->opts.batch.entries = range(rng, 1, 4);
		c->opts.batch.wait_us = 5;
		c->max_timeout_us = 500;
	}
}

void test_plan(struct seeds *run)
{
	struct plan *plan = &((struct world *)run)->plan;
	struct rng rng = {run->seed * 0xd6e8feb86659fd93u + 0x727063};

	*plan = (struct plan){0};
	cluster_draw(&plan->cluster, &rng);
	plan->n_clients = range(&rng, 1, CLIENTS_MAX);
	plan->raw = one_in(&rng, 4);
	plan->scribblers = one_in(&rng, 4);
	draw_server(plan, &rng);
	for (unsigned i = 0; i < plan->n_clients; i++)
		draw_client(&plan->client[i], &rng, plan->server.park_us);
	if (one_in(&rng, 8))
		draw_parking(plan, &rng);
	else if (one_in(&rng, 16))
		draw_steady(plan, &rng);
	else
		draw_faults(plan, &rng);
	/* where races are visible: without checksums, and with preemption */
	if (plan->scribblers) {
		cluster_add_fault(&plan->cluster, "preempt=30%");
		plan->cluster.caps_off &= one_in(&rng, 2) ? ~0ull : 0;
	}
	plan->strict = cluster_is_strict(&plan->cluster);
	plan->groups = one_in(&rng, 2);
}

void test_plan_small(struct seeds *run, const char *faults)
{
	struct plan *plan = &((struct world *)run)->plan;
	struct plan_client client = {
		.window = 3, .calls = 8, .max_timeout_us = 1000, .fars = 200, .large_bytes = 5000};

	*plan = (struct plan){0};
	client.opts.slots = 2;
	client.opts.timeout_us = 5000;
	plan->n_clients = 2;
	plan->client[0] = plan->client[1] = client;
	plan->client[0].opts.batch.entries = 2;
	plan->client[1].opts.mode = GN_RPC_REPLY;
	plan->server.threads = 2;
	plan->defer_us = 10;
	cluster_small(&plan->cluster, faults);
}

void test_print(const struct seeds *run)
{
	const struct plan *p = &((const struct world *)run)->plan;
	const struct gn_rpc_server_opts *o = &p->server;

	printf("# profile %s, caps off %llx%s%s\n# faults %s\n", p->cluster.profile,
	       (unsigned long long)p->cluster.caps_off, p->strict ? ", strict" : "",
	       p->raw && p->scribblers ? ", raw, scribbler" :
	       p->raw		       ? ", raw" :
	       p->scribblers	       ? ", scribbler" :
					 "",
	       p->cluster.faults);
	printf("# n0:%s %u threads, flags %x, %u slots, %u and %u bytes, %u large, parks %u us, "
	       "defers %u us, stops %u us, drains %u us, prompt %u us\n",
	       p->groups ? " groups," : "", o->threads, o->flags, o->max_slots, o->max_request,
	       o->max_result, o->max_large, o->park_us, p->defer_us, p->stop_us, p->drain_us,
	       p->prompt_us);
	for (unsigned i = 0; i < p->n_clients; i++) {
		const struct plan_client *c = &p->client[i];
		const struct gn_rpc_batch *b = &c->opts.batch;

		printf("# n%u: mode %d, flags %x, %u slots, %u and %u bytes, %u large, batches of "
		       "%u, %u bytes, %u us, limit %u us, window %u, %u calls, up to %u us, thinks "
		       "%u us, %u beyond\n",
		       i + 1, c->opts.mode, c->opts.flags, c->opts.slots, c->opts.max_request,
		       c->opts.max_result, c->opts.max_large, b->entries, b->bytes, b->wait_us,
		       b->limit_us, c->window, c->calls, c->max_timeout_us, c->think_us,
		       c->fars ? c->large_bytes : 0);
	}
}
