/* SPDX-License-Identifier: MIT */
/*
 * A client of the store that has something to do all the time: one batch after the other with
 * gn_kv_do(), or several under way with gn_kv_submit() and gn_kv_wait().
 */
#include <errno.h>

#include "kv_load.h"

#define GROUP_BATCHES 8u /* with several under way, so many times as many are timed together */
#define FILL_US	      60000000u
#define FILL_MORE     4u  /* bypass: at most so many times the keys, to fill the table, … */
#define FILL_STEP     32u /* … so many at a time */

/*
 * A client's own work, which nothing else charges for: to draw an operation and write down how long
 * it took, outside of its latency (35 clients that take 5.78 us for a call would make 6.05 M/s, and
 * make 5.5: P1a, P7a); and what the library does for a call. Fitted on C10a, P7a, P22f and P23a.
 */
#define DRAW_NS 160u
#define CALL_NS 250u

struct kv_client {
	struct load_client base;
	struct kv_run *run;
	struct gn_kv_client **kv; /* of all servers, or of its own */
	uint32_t first, n_kv;
	uint32_t partitions; /* of each */
	struct kv_draws draws;
	struct kv_ops ops;
	uint64_t *began_ns;
	uint32_t *idle, n_idle; /* operations that are not under way */
	uint32_t n_ops;
	int error; /* of an operation that ended */
};

static struct kv_client *kv_client_of(const struct load_client *c)
{
	return (struct kv_client *)c; /* which it begins with */
}

/* ---- filling ---- */

struct filler {
	struct kv_client *client;
	struct gn_kv_client *kv;
};

static int kv_fill_some(void *arg, struct gn_kv_op *ops, unsigned n)
{
	const struct filler *f = arg;

	if (*f->client->base.interrupted)
		return -EINTR;
	return gn_kv_do(f->kv, ops, n, gn_deadline_us(FILL_US));
}

/* Bypass: is the table as full as it should be? */
static int kv_is_full(struct filler *f, bool *full)
{
	const struct bench_kv_opts *o = &f->client->run->opts;
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	int rc = 0;

	*full = true;
	if (o->mode != BENCH_KV_BYPASS || !o->fill_pct)
		return 0;
	rc = gn_kv_client_stats(f->kv, GN_KV_ALL, &stats, gn_deadline_us(FILL_US));
	*full = stats.items * 100 >= stats.buckets * o->fill_pct;
	return load_check(&f->client->run->load, rc, "statistics");
}

static int kv_fill_server(struct filler *f, uint32_t server)
{
	struct kv_run *run = f->client->run;
	const uint32_t keys = run->opts.keys / run->servers, more = FILL_STEP;
	const uint32_t base = server * keys * FILL_MORE;
	char why[KV_WHY_MAX];
	bool full = false;
	int rc = kv_fill(&run->opts, base, keys, kv_fill_some, f, why);

	run->stored[server] = keys;
	if (!rc)
		rc = kv_is_full(f, &full);
	while (!rc && !full && run->stored[server] + more <= (uint64_t)keys * FILL_MORE) {
		rc = kv_fill(&run->opts, base + (uint32_t)run->stored[server], more, kv_fill_some,
			     f, why);
		run->stored[server] += more;
		if (!rc)
			rc = kv_is_full(f, &full);
	}
	if (rc)
		return load_fail(&run->load, rc, "%s", why);
	if (!full)
		return load_fail(&run->load, -ENOSPC, "a table does not become %u %% full",
				 run->opts.fill_pct);
	return 0;
}

/* By a connection of its own, for what it learns is not to be measured. */
static int kv_fill_servers(struct kv_client *c)
{
	const struct gn_kv_client_opts opts = {.size = sizeof(opts),
					       .rpc.timeout_us = LOAD_CONNECT_US};
	struct filler f = {.client = c};
	char addr[LOAD_ADDR_MAX];
	int rc = 0;

	for (uint32_t i = c->base.number; i < c->run->servers && !rc; i += c->run->load.n_clients) {
		load_server_addr(c->base.run, i, addr);
		rc = load_check(c->base.run,
				gn_kv_client_open(c->base.proc->fabric, addr, &opts, &f.kv),
				"connecting to the server");
		if (!rc)
			rc = kv_fill_server(&f, i);
		gn_kv_client_close(f.kv);
		f.kv = NULL;
	}
	return rc;
}

/* ---- beginning and end ---- */

static int connect_server(struct kv_client *c, uint32_t server)
{
	struct gn_kv_limits limits = {.size = sizeof(limits)};
	struct gn_kv_client_opts opts;
	char addr[LOAD_ADDR_MAX];
	int rc;

	kv_client_opts(&c->run->opts, &opts);
	opts.rpc.ctx = c->base.proc->ctx;
	load_server_addr(c->base.run, server, addr);
	rc = gn_kv_client_open(c->base.proc->fabric, addr, &opts, &c->kv[c->n_kv]);
	if (rc)
		return load_check(c->base.run, rc, "connecting to the server");
	rc = gn_kv_client_limits(c->kv[c->n_kv++], &limits);
	if (!rc && limits.bypass != (c->run->opts.mode == BENCH_KV_BYPASS))
		rc = -EPROTO;
	c->partitions = limits.partitions;
	return load_check(c->base.run, rc, "connecting to the server");
}

static void kv_client_op_done(struct gn_kv_op *op);

static int kv_make_ops(struct kv_client *c)
{
	const struct bench_kv_opts *o = &c->run->opts;
	int rc;

	c->n_ops = o->load.inflight > o->load.batch ? o->load.inflight : o->load.batch;
	rc = kv_ops_make(&c->ops, o, c->n_ops);
	if (rc)
		return rc;
	c->idle = gn_alloc(c->n_ops * sizeof(*c->idle), 0);
	c->began_ns = gn_alloc(c->n_ops * sizeof(*c->began_ns), 0);
	if (!c->idle || !c->began_ns)
		return -ENOMEM;
	for (uint32_t i = c->n_ops; i--;) {
		if (o->load.inflight > o->load.batch)
			c->ops.ops[i].done = kv_client_op_done;
		c->ops.ops[i].arg = c;
		c->idle[c->n_idle++] = i;
	}
	return 0;
}

static int kv_open(struct load_client *base)
{
	struct kv_client *c = kv_client_of(base);
	const struct bench_kv_opts *o;
	uint32_t n;
	int rc;

	c->run = (struct kv_run *)base->run; /* which begins with it */
	o = &c->run->opts;
	n = o->fixed ? 1 : c->run->servers;
	base->limit_ns = (uint64_t)(o->load.limit_us * 1000);
	c->kv = gn_alloc(n * sizeof(c->kv[0]), 0);
	rc = load_check(base->run, c->kv ? kv_make_ops(c) : -ENOMEM, "memory for operations");
	if (!rc)
		rc = kv_fill_servers(c);
	/* Neighbours have different servers, or begin with different ones. */
	c->first = base->number % c->run->servers;
	while (!rc && c->n_kv < n)
		rc = load_gives_up(base) ?
			     -EINTR :
			     connect_server(c, (c->first + c->n_kv) % c->run->servers);
	return rc;
}

static void kv_close(struct load_client *base)
{
	struct kv_client *c = kv_client_of(base);

	for (uint32_t i = 0; i < c->n_kv; i++)
		gn_kv_client_close(c->kv[i]);
	gn_free(c->kv);
	kv_draws_destroy(&c->draws);
	kv_ops_free(&c->ops);
	gn_free(c->idle);
	gn_free(c->began_ns);
}

/* When all servers are filled. */
static int make_draws(struct kv_client *c)
{
	const struct kv_run *run = c->run;
	uint64_t keys = run->stored[0];

	for (uint32_t i = 1; i < run->servers; i++)
		keys = run->stored[i] < keys ? run->stored[i] : keys;
	return load_check(c->base.run,
			  kv_draws_create(&c->draws, &run->opts, (uint32_t)keys,
					  run->opts.load.seed + ((uint64_t)c->base.number << 32),
					  &c->base.own),
			  "memory for keys");
}

/* ---- operations ---- */

static int check_op(struct kv_client *c, uint32_t i)
{
	char why[KV_WHY_MAX];
	const int rc = kv_op_check(&c->draws, &c->ops, i, why);

	return likely(!rc) ? 0 : load_fail(c->base.run, rc, "%s", why);
}

/* The first number of the keys of a server. */
static uint32_t base_of(const struct kv_client *c, uint32_t pick)
{
	const uint32_t server = (c->first + pick) % c->run->servers;

	return server * (c->run->opts.keys / c->run->servers) * FILL_MORE;
}

static int kv_run_batches(struct kv_client *c)
{
	const struct bench_kv_opts *o = &c->run->opts;
	int rc = 0;

	while (!rc && !load_stops(&c->base)) {
		const uint32_t pick = c->n_kv > 1 ? (uint32_t)(gn_random() % c->n_kv) : 0;
		struct gn_rpc_choice now = {.size = sizeof(now), .batch = o->load.batch};
		uint64_t began_ns;

		if (o->load.batch_auto)
			rc = gn_rpc_client_choice(gn_kv_client_rpc(c->kv[pick], 0), METHOD_KV,
						  &now);
		for (uint32_t i = 0; i < now.batch && !rc; i++)
			kv_op_next(&c->draws, &c->ops, i, base_of(c, pick));
		gn_charge(GN_WORK_NS, (uint64_t)now.batch * DRAW_NS);
		began_ns = load_stamp(&c->base);
		gn_charge(GN_WORK_NS, CALL_NS);
		if (!rc)
			rc = gn_kv_do(c->kv[pick], c->ops.ops, now.batch, c->base.deadline_ns);
		if (unlikely(rc))
			return load_check(c->base.run, rc, "an operation");
		for (uint32_t i = 0; i < now.batch && !rc; i++)
			rc = check_op(c, i);
		load_done(&c->base, now.batch, began_ns);
		load_between(&c->base);
	}
	return rc;
}

static void kv_client_op_done(struct gn_kv_op *op)
{
	struct kv_client *c = op->arg;
	const uint32_t i = (uint32_t)(op - c->ops.ops);

	if (likely(!c->error)) /* the others of a broken connection: the first was reported */
		c->error = check_op(c, i);
	c->idle[c->n_idle++] = i;
	load_done(&c->base, 1, c->began_ns[i]);
}

static int kv_submit_idle(struct kv_client *c)
{
	while (c->n_idle) {
		const uint32_t i = c->idle[--c->n_idle];
		struct gn_kv_op *op = &c->ops.ops[i];
		int rc;

		kv_op_next(&c->draws, &c->ops, i, base_of(c, 0));
		gn_charge(GN_WORK_NS, DRAW_NS);
		c->began_ns[i] = load_stamp(&c->base);
		op->deadline_ns = c->base.deadline_ns;
		rc = gn_kv_submit(c->kv[0], op);
		if (likely(!rc))
			continue;
		c->n_idle++;
		kv_op_undo(&c->draws);
		return rc == -EAGAIN ? 0 : load_check(c->base.run, rc, "submitting an operation");
	}
	return 0;
}

/* Until so many are idle. */
static int kv_await_idle(struct kv_client *c, uint32_t idle)
{
	while (c->n_idle < idle && !*c->base.interrupted) {
		const int rc = gn_kv_wait(c->kv[0], c->base.deadline_ns);

		if (unlikely(c->error))
			return c->error;
		if (unlikely(rc < 0 && rc != -EINTR))
			return load_check(c->base.run, rc, "waiting for results");
	}
	return *c->base.interrupted ? -EINTR : 0;
}

/* As many are begun together as fill a batch for each partition, on average. */
static int kv_run_window(struct kv_client *c)
{
	const struct bench_kv_opts *o = &c->run->opts;
	const uint32_t together = least_u32(o->load.batch * c->partitions, o->load.inflight);
	int rc = 0;

	while (!rc && !load_stops(&c->base)) {
		rc = kv_submit_idle(c);
		if (!rc)
			rc = kv_await_idle(c, together);
		load_between(&c->base);
	}
	return rc;
}

static int kv_run_ops(struct load_client *base)
{
	struct kv_client *c = kv_client_of(base);
	const int rc = c->draws.ring ? 0 : make_draws(c);

	if (rc)
		return rc;
	return c->run->opts.load.inflight > c->run->opts.load.batch ? kv_run_window(c) :
								      kv_run_batches(c);
}

/* ---- apart from what is measured ---- */

static int kv_rest(struct load_client *base)
{
	struct kv_client *c = kv_client_of(base);

	base->deadline_ns = gn_deadline_us(LOAD_OP_US);
	return kv_await_idle(c, c->n_ops);
}

/* A simulated store has memory for all keys. */
static int kv_check(struct load_client *base)
{
	if (base->run->simulated && base->own.hits != base->own.gets)
		return load_fail(base->run, -ENODATA, "%llu GETs of stored keys found nothing",
				 (unsigned long long)(base->own.gets - base->own.hits));
	return 0;
}

static void kv_count(const struct load_client *base, struct load_sums *out)
{
	const struct kv_client *c = kv_client_of(base);
	uint64_t ops = 0;

	*out = base->own;
	for (uint32_t i = 0; i < c->n_kv; i++) {
		struct gn_kv_counters now = {.size = sizeof(now)};

		gn_kv_client_counters(c->kv[i], &now);
		ops += now.ops;
		out->bypass_gets += now.bypass_gets;
		out->bypass_reads += now.entry_reads + now.value_reads;
		for (uint32_t p = 0; p < c->partitions; p++) {
			const struct gn_rpc_client *rpc = gn_kv_client_rpc(c->kv[i], p);

			if (!rpc)
				continue;
			load_count_rpc(rpc, out);
			load_count_choice(rpc, METHOD_KV, out);
		}
	}
	if (!base->run->simulated) {
		load_count_fabric(base->proc->fabric, out);
		out->ops = ops;
	}
}

static uint64_t kv_group_ops(const struct load_client *base)
{
	const uint32_t inflight = ((const struct kv_run *)base->run)->opts.load.inflight;

	return inflight == 1 ? GROUP_TRIPS : (uint64_t)GROUP_BATCHES * inflight;
}

struct gn_rpc_client *kv_client_connection(const struct load_client *base)
{
	return gn_kv_client_rpc(kv_client_of(base)->kv[0], 0);
}

int kv_client_stats(const struct load_client *base, struct gn_kv_stats *out)
{
	return gn_kv_client_stats(kv_client_of(base)->kv[0], GN_KV_ALL, out,
				  gn_deadline_us(LOAD_OP_US));
}

const struct load_kind load_kv = {
	.name = "kv",
	.serve = kv_serve,
	.client_bytes = sizeof(struct kv_client),
	.open = kv_open,
	.run = kv_run_ops,
	.rest = kv_rest,
	.check = kv_check,
	.close = kv_close,
	.count = kv_count,
	.group_ops = kv_group_ops,
};
