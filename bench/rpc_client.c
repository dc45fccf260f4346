/* SPDX-License-Identifier: MIT */
/*
 * A client that calls all the time: one call after the other with gn_rpc_call(), batches one after
 * the other with gn_rpc_call_all(), or more under way with gn_rpc_submit() and gn_rpc_wait(). A
 * request of 8 bytes or more begins with the call's number, and so must its result.
 */
#include <errno.h>

#include "rpc_load.h"

#define GROUP_BATCHES 8u /* with several under way, so many times as many are timed together */

struct rpc_client {
	struct load_client base;
	struct rpc_run *run;
	struct gn_rpc_client **to; /* a connection to each server thread it calls */
	uint32_t n_to;
	struct gn_rpc_op *ops;
	uint64_t *numbers, *began_ns; /* of each operation's call */
	uint32_t *idle;		      /* operations that are not under way */
	uint32_t n_ops, n_idle;
	uint8_t *bytes;
	uint64_t begun;
	int error; /* of a call that ended */
};

static struct rpc_client *rpc_client_of(const struct load_client *c)
{
	return (struct rpc_client *)c; /* which it begins with */
}

/* ---- beginning and end ---- */

int rpc_ops_make(const struct bench_rpc_opts *o, uint32_t n, uint64_t seed,
		 void (*done)(struct gn_rpc_op *op), void *arg, struct gn_rpc_op **ops,
		 uint8_t **bytes)
{
	const size_t stride = (size_t)o->request_bytes + o->result_bytes;

	*ops = gn_alloc(n * sizeof(**ops), 0);
	*bytes = gn_alloc(stride * n + 1, 0);
	if (!*ops || !*bytes)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *request = *bytes + i * stride;

		pattern_fill(request, o->request_bytes, seed + i);
		(*ops)[i] = (struct gn_rpc_op){.method = METHOD_ECHO,
					       .request = request,
					       .request_len = o->request_bytes,
					       .result = request + o->request_bytes,
					       .result_room = o->result_bytes,
					       .deadline_ns = GN_FOREVER,
					       .done = done,
					       .arg = arg};
	}
	return 0;
}

static int connect_thread(struct rpc_client *c, uint32_t thread)
{
	const struct bench_rpc_opts *o = &c->run->opts;
	const struct gn_rpc_client_opts opts = {
		.size = sizeof(opts),
		.mode = rpc_mode_of(o->mode),
		.flags = o->load.paper ? GN_RPC_CLIENT_PAPER : 0,
		.slots = rpc_slots(o),
		.max_request = rpc_slot_bytes(o, o->request_bytes),
		.max_result = rpc_slot_bytes(o, o->result_bytes),
		.fetch_bytes = o->load.fetch_bytes,
		.retries = o->load.retries,
		.timeout_us = LOAD_CONNECT_US,
		.batch.entries = o->load.batch_auto || o->load.batch > 1 ? o->load.batch : 0,
		.batch.limit_us = o->load.batch_auto ? (uint32_t)o->load.limit_us : 0,
		.batch.alpha_pct = o->load.alpha_pct,
		.thread = thread + 1,
		.ctx = c->base.proc->ctx,
	};
	char addr[LOAD_ADDR_MAX];
	int rc;

	load_server_addr(c->base.run, 0, addr);
	rc = gn_rpc_client_open(c->base.proc->fabric, addr, &opts, &c->to[c->n_to]);
	if (rc)
		return load_check(c->base.run, rc, "connecting to the server");
	c->n_to++;
	return 0;
}

static void call_done(struct gn_rpc_op *op);

static int rpc_make_ops(struct rpc_client *c)
{
	const struct bench_rpc_opts *o = &c->run->opts;
	const uint64_t seed = o->load.seed + ((uint64_t)c->base.number << 32);

	c->n_ops = o->load.inflight > o->load.batch ? o->load.inflight : o->load.batch;
	c->numbers = gn_alloc(c->n_ops * sizeof(*c->numbers), 0);
	c->began_ns = gn_alloc(c->n_ops * sizeof(*c->began_ns), 0);
	c->idle = gn_alloc(c->n_ops * sizeof(*c->idle), 0);
	if (!c->numbers || !c->began_ns || !c->idle)
		return -ENOMEM;
	for (uint32_t i = c->n_ops; i--;)
		c->idle[c->n_idle++] = i;
	return rpc_ops_make(o, c->n_ops, seed, call_done, c, &c->ops, &c->bytes);
}

static int rpc_open(struct load_client *base)
{
	struct rpc_client *c = rpc_client_of(base);
	const struct bench_rpc_opts *o;
	uint32_t n;
	int rc;

	c->run = (struct rpc_run *)base->run; /* which begins with it */
	o = &c->run->opts;
	n = o->hashed ? o->load.threads : 1;
	base->limit_ns = (uint64_t)(o->load.limit_us * 1000);
	base->slack_ns = (uint64_t)(2000 * o->work_us) * c->base.kind->group_ops(base);
	c->to = gn_alloc(n * sizeof(*c->to), 0);
	rc = load_check(base->run, c->to ? rpc_make_ops(c) : -ENOMEM, "memory for calls");
	/* Neighbours call different server threads. */
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = load_gives_up(base) ? -EINTR :
					   connect_thread(c, (base->number + i) % o->load.threads);
	return rc;
}

static void rpc_close(struct load_client *base)
{
	struct rpc_client *c = rpc_client_of(base);

	for (uint32_t i = 0; i < c->n_to; i++)
		gn_rpc_client_close(c->to[i]);
	gn_free(c->to);
	gn_free(c->ops);
	gn_free(c->numbers);
	gn_free(c->began_ns);
	gn_free(c->idle);
	gn_free(c->bytes);
}

/* ---- calls ---- */

static inline void number_call(struct rpc_client *c, uint32_t i, uint64_t number)
{
	c->numbers[i] = number;
	if (c->ops[i].request_len >= sizeof(number))
		memcpy((void *)c->ops[i].request, &number, sizeof(number));
}

static int rpc_complain(struct rpc_client *c, uint32_t i, unsigned status, uint32_t len)
{
	const unsigned long long number = c->numbers[i];

	if (status != GN_RPC_OK || len != c->ops[i].result_room)
		return load_fail(c->base.run, -EIO, "call %llu failed: %s, %u bytes instead of %u",
				 number, gn_rpc_status_str(status), len, c->ops[i].result_room);
	return load_fail(c->base.run, -EBADMSG, "call %llu was answered with another's result",
			 number);
}

static inline int check_result(struct rpc_client *c, uint32_t i, unsigned status, uint32_t len)
{
	const struct gn_rpc_op *op = &c->ops[i];

	if (unlikely(status != GN_RPC_OK || len != op->result_room))
		return rpc_complain(c, i, status, len);
	if (op->request_len < sizeof(uint64_t) || len < sizeof(uint64_t) ||
	    likely(!memcmp(op->result, &c->numbers[i], sizeof(uint64_t))))
		return 0;
	return rpc_complain(c, i, status, len);
}

static void call_done(struct gn_rpc_op *op)
{
	struct rpc_client *c = op->arg;
	const uint32_t i = (uint32_t)(op - c->ops);

	if (likely(!c->error)) /* the others of a broken connection: the first was reported */
		c->error = check_result(c, i, op->status, op->result_len);
	c->idle[c->n_idle++] = i;
	load_done(&c->base, 1, c->began_ns[i]);
}

static inline struct gn_rpc_client *choose_thread(const struct rpc_client *c)
{
	return c->to[c->n_to > 1 ? gn_random() % c->n_to : 0];
}

static int rpc_run_single(struct rpc_client *c)
{
	const struct gn_rpc_op *op = &c->ops[0];
	int rc = 0;

	while (!rc && !load_stops(&c->base)) {
		const uint64_t began_ns = load_stamp(&c->base);
		unsigned status = GN_RPC_OK;
		uint32_t len = 0;

		number_call(c, 0, ++c->begun);
		rc = gn_rpc_call(choose_thread(c), METHOD_ECHO, op->request, op->request_len,
				 op->result, op->result_room, &len, c->base.deadline_ns, &status);
		if (unlikely(rc))
			return load_check(c->base.run, rc, "calling");
		rc = check_result(c, 0, status, len);
		load_done(&c->base, 1, began_ns);
		load_between(&c->base);
	}
	return rc;
}

static int rpc_run_batches(struct rpc_client *c)
{
	const struct bench_rpc_opts *o = &c->run->opts;
	int rc = 0;

	while (!rc && !load_stops(&c->base)) {
		struct gn_rpc_client *to = choose_thread(c);
		struct gn_rpc_choice now = {.size = sizeof(now), .batch = o->load.batch};
		const uint64_t began_ns = load_stamp(&c->base);

		if (o->load.batch_auto)
			rc = gn_rpc_client_choice(to, METHOD_ECHO, &now);
		for (uint32_t i = 0; i < now.batch && !rc; i++) {
			number_call(c, i, ++c->begun);
			c->began_ns[i] = began_ns;
			c->ops[i].deadline_ns = c->base.deadline_ns;
		}
		c->n_idle = 0; /* only a window needs to know which are idle */
		if (!rc)
			rc = gn_rpc_call_all(to, c->ops, now.batch);
		if (rc)
			return load_check(c->base.run, rc, "calling");
		rc = c->error;
		load_between(&c->base);
	}
	c->n_idle = c->n_ops;
	return rc;
}

static int rpc_submit_idle(struct rpc_client *c)
{
	const uint64_t began_ns = load_stamp(&c->base);

	while (c->n_idle) {
		const uint32_t i = c->idle[c->n_idle - 1];
		const uint64_t last = c->numbers[i];
		int rc;

		number_call(c, i, c->begun + 1);
		c->began_ns[i] = began_ns;
		c->ops[i].deadline_ns = c->base.deadline_ns;
		rc = gn_rpc_submit(c->to[0], &c->ops[i]);
		if (rc == -EAGAIN) { /* its slot's turn has not come */
			number_call(c, i, last);
			return 0;
		}
		if (unlikely(rc))
			return load_check(c->base.run, rc, "submitting a call");
		c->n_idle--;
		c->begun++;
	}
	return 0;
}

static int await_some(struct rpc_client *c)
{
	const int rc = gn_rpc_wait(c->to[0], c->base.deadline_ns);

	if (unlikely(rc < 0 && rc != -EINTR))
		return load_check(c->base.run, rc, "waiting for results");
	return c->error;
}

static int rpc_run_window(struct rpc_client *c)
{
	int rc = 0;

	while (!rc && !load_stops(&c->base)) {
		rc = rpc_submit_idle(c);
		if (!rc)
			rc = await_some(c);
		load_between(&c->base);
	}
	return rc;
}

static int rpc_run_calls(struct load_client *base)
{
	struct rpc_client *c = rpc_client_of(base);
	const struct bench_rpc_opts *o = &c->run->opts;

	if (o->load.inflight > o->load.batch)
		return rpc_run_window(c);
	return o->load.batch > 1 || o->load.batch_auto ? rpc_run_batches(c) : rpc_run_single(c);
}

/* ---- apart from what is measured ---- */

static int rpc_rest(struct load_client *base)
{
	struct rpc_client *c = rpc_client_of(base);
	int rc = 0;

	base->deadline_ns = gn_deadline_us(LOAD_OP_US);
	while (!rc && c->n_idle < c->n_ops && !*base->interrupted)
		rc = await_some(c);
	return *base->interrupted ? -EINTR : rc;
}

/* Every byte of the last results. */
static int rpc_check(struct load_client *base)
{
	const struct rpc_client *c = rpc_client_of(base);
	const struct bench_rpc_opts *o = &c->run->opts;
	const uint32_t both = least_u32(o->request_bytes, o->result_bytes);
	uint8_t *want = gn_alloc(o->result_bytes + 1, 0);
	int rc = load_check(base->run, want ? 0 : -ENOMEM, "memory for a result");

	for (uint32_t i = 0; !rc && i < c->n_ops; i++) {
		if (!c->numbers[i])
			continue; /* the window was never that full */
		pattern_fill(want, o->result_bytes, o->load.seed ^ RESULT_SEED);
		memcpy(want, c->ops[i].request, both);
		if (memcmp(want, c->ops[i].result, o->result_bytes))
			rc = load_fail(base->run, -EBADMSG, "the last result of buffer %u is wrong",
				       i);
	}
	gn_free(want);
	return rc;
}

static void rpc_count(const struct load_client *base, struct load_sums *out)
{
	const struct rpc_client *c = rpc_client_of(base);

	*out = base->own;
	for (uint32_t i = 0; i < c->n_to; i++) {
		load_count_rpc(c->to[i], out);
		load_count_choice(c->to[i], METHOD_ECHO, out);
	}
	if (!base->run->simulated) {
		load_count_fabric(base->proc->fabric, out);
		out->ops = out->calls;
	}
}

static uint64_t rpc_group_ops(const struct load_client *base)
{
	const struct bench_rpc_opts *o = &((const struct rpc_run *)base->run)->opts;

	if (o->load.inflight == 1)
		return GROUP_TRIPS;
	return (uint64_t)GROUP_BATCHES *
	       (o->load.inflight < GROUP_TRIPS ? GROUP_TRIPS : o->load.inflight);
}

struct gn_rpc_client *rpc_client_connection(const struct load_client *base)
{
	return rpc_client_of(base)->to[0];
}

const struct load_kind load_rpc = {
	.name = "rpc",
	.serve = rpc_serve,
	.client_bytes = sizeof(struct rpc_client),
	.open = rpc_open,
	.run = rpc_run_calls,
	.rest = rpc_rest,
	.check = rpc_check,
	.close = rpc_close,
	.count = rpc_count,
	.group_ops = rpc_group_ops,
};
