/* SPDX-License-Identifier: MIT */
/*
 * Single operations between two processes, or between two simulated machines, as a load: the client
 * posts requests or sends messages, the server carries out orders. All data is checked at the end.
 */
#include <errno.h>

#include "pair_load.h"

/* ---- the server ---- */

struct pair_server {
	struct load_proc *proc;
	struct side side;
	struct messages *messages;
	bool opened;
};

static int pair_server_open(struct pair_server *s)
{
	struct shared *shared = &s->proc->run->pair;
	const struct bench_opts *opts = &shared->opts;
	int rc = side_open(&s->side, PEER, opts, s->proc->fabric);

	s->opened = true;
	if (rc || !s->side.plan.needs_qp)
		return rc;
	if (opts->op == BENCH_READ)
		slots_fill(s->side.exposed, 2 * s->side.plan.slots, s->side.plan.stride,
			   opts->size_bytes, opts->seed);
	rc = side_publish(&s->side, shared);
	return rc ? rc : messages_create(&s->side, &s->messages);
}

static int pair_server_listen(void *arg, const char *addr)
{
	struct pair_server *s = arg;
	const int rc = s->opened ? 0 : pair_server_open(s);

	return rc || !s->side.plan.needs_qp ? rc : side_listen(&s->side, addr);
}

static int check_data(struct pair_server *s, uint64_t word)
{
	const struct shared *shared = &s->proc->run->pair;
	int rc;

	if (bench_traits[shared->opts.op].kind == BENCH_MESSAGE)
		return messages_echo(s->messages, &shared->order, word, true);
	rc = messages_await_one(s->messages);
	return rc ? rc : one_sided_check_target(&s->side, shared->check_ops);
}

static int obey(struct pair_server *s, uint64_t word)
{
	struct shared *shared = &s->proc->run->pair;
	int rc;

	switch ((enum order)(word & 0xff)) {
	case ORDER_CONNECT:
		rc = side_accept(&s->side);
		return rc ? rc : side_meet(&s->side, shared);
	case ORDER_CACHELINE:
		return cacheline_answer(shared);
	case ORDER_ECHO:
		return messages_echo(s->messages, &shared->order, word, false);
	case ORDER_CHECK:
		return check_data(s, word);
	case ORDER_WAKE:
	case ORDER_WAKE_FD:
		return wake_sleep(s->messages, &s->side, shared, word);
	default:
		return 0;
	}
}

static int pair_serve(struct load_proc *proc, uint32_t number)
{
	struct pair_server s = {.proc = proc};
	uint64_t word = ORDER_START;
	int rc = load_listen(proc, number, pair_server_listen, &s);

	while (!rc && (word = load_next_order(proc, word)) && (word & 0xff) != ORDER_QUIT) {
		rc = load_check(proc->run, obey(&s, word), "carrying out an order");
		peer_answer(&proc->run->pair, word, rc);
	}
	messages_destroy(s.messages);
	side_close(&s.side);
	return rc;
}

/* ---- the client ---- */

static int pair_client_connect(struct pair_client *c)
{
	struct shared *shared = c->pair->shared;
	char addr[LOAD_ADDR_MAX];
	int rc = side_publish(&c->side, shared);

	if (rc)
		return rc;
	pair_order(c->pair, ORDER_CONNECT);
	load_server_addr(c->base.run, 0, addr);
	rc = side_connect(&c->side, addr);
	if (!rc)
		rc = pair_wait(c->pair);
	return rc ? rc : side_meet(&c->side, shared);
}

static int pair_client_open(struct load_client *base)
{
	struct pair_client *c = (struct pair_client *)base;
	struct shared *shared = &base->run->pair;
	const enum bench_kind kind = bench_traits[shared->opts.op].kind;
	int rc;

	c->own.shared = shared;
	c->pair = base->proc->pair ? base->proc->pair : &c->own;
	rc = side_open(&c->side, INITIATOR, &shared->opts, base->proc->fabric);
	if (!rc && c->side.plan.needs_qp)
		rc = pair_client_connect(c);
	if (!rc && shared->opts.op == BENCH_WRITE)
		slots_fill(c->side.local, 2 * c->side.plan.slots, c->side.plan.stride,
			   shared->opts.size_bytes, shared->opts.seed);
	if (!rc && (kind == BENCH_ONE_SIDED || kind == BENCH_ATOMIC)) {
		rc = one_sided_create(&c->side, &c->one_sided);
		if (!rc)
			rc = one_sided_warm(c->one_sided);
	} else if (!rc && kind != BENCH_LIMIT) {
		rc = messages_create(&c->side, &c->messages);
	}
	return load_check(base->run, rc, "connecting to the other side");
}

static uint64_t pair_client_group_ops(const struct load_client *base)
{
	const struct pair_client *c = (const struct pair_client *)base;

	return c->one_sided ? one_sided_group_ops(&c->side.opts) :
			      messages_group_ops(&c->side.opts);
}

static int one_sided_ops(struct pair_client *c)
{
	const uint32_t group_ops = (uint32_t)pair_client_group_ops(&c->base);
	int rc = 0;

	while (!rc && !load_stops(&c->base)) {
		const uint64_t began_ns = load_stamp(&c->base);

		rc = one_sided_post(c->one_sided, group_ops);
		if (likely(!rc))
			load_done(&c->base, group_ops, began_ns);
		load_between(&c->base);
	}
	return rc;
}

static int messages_ops(struct pair_client *c)
{
	const uint32_t group_ops = (uint32_t)pair_client_group_ops(&c->base);
	int rc;

	pair_order(c->pair, ORDER_ECHO);
	rc = messages_begin(c->messages); /* until the server is there */
	while (!rc && !load_stops(&c->base)) {
		const uint64_t began_ns = load_stamp(&c->base);

		rc = messages_trips(c->messages, group_ops);
		if (likely(!rc))
			load_done(&c->base, group_ops, began_ns);
		load_between(&c->base);
	}
	return rc ? rc : messages_end(c->messages);
}

static int pair_client_run(struct load_client *base)
{
	struct pair_client *c = (struct pair_client *)base;

	return load_check(base->run, c->one_sided ? one_sided_ops(c) : messages_ops(c),
			  "the operations");
}

static int pair_client_rest(struct load_client *base)
{
	(void)base;
	return 0;
}

static int pair_client_check(struct load_client *base)
{
	struct pair_client *c = (struct pair_client *)base;
	uint64_t *ops = &c->pair->shared->check_ops;
	int rc;

	if (c->messages)
		return load_check(base->run, messages_check(c->messages, c->pair), "checking data");
	rc = one_sided_settle(c->one_sided, ops);
	if (!rc)
		rc = one_sided_check(c->one_sided, *ops);
	if (!rc)
		rc = pair_ask(c->pair, ORDER_CHECK);
	return load_check(base->run, rc, "checking data");
}

static void pair_client_close(struct load_client *base)
{
	struct pair_client *c = (struct pair_client *)base;

	if (c->pair)
		pair_order(c->pair, ORDER_IDLE); /* the server may wait for messages */
	one_sided_destroy(c->one_sided);
	messages_destroy(c->messages);
	side_close(&c->side);
}

static void pair_client_count(const struct load_client *base, struct load_sums *out)
{
	const struct pair_client *c = (const struct pair_client *)base;

	*out = base->own;
	out->ops = base->ended;
	out->lost = c->messages ? messages_lost(c->messages) : 0;
	load_count_fabric(base->proc->fabric, out);
}

const struct load_kind load_pair = {
	.name = "pair",
	.serve = pair_serve,
	.client_bytes = sizeof(struct pair_client),
	.open = pair_client_open,
	.run = pair_client_run,
	.rest = pair_client_rest,
	.check = pair_client_check,
	.close = pair_client_close,
	.count = pair_client_count,
	.group_ops = pair_client_group_ops,
};
