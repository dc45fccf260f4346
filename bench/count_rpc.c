/* SPDX-License-Identifier: MIT */
/*
 * Counted calls: gn_rpc_submit() and gn_rpc_flush(), then gn_rpc_wait(), at an echo.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "count_turns.h"
#include "rpc_load.h"

#define CALL_US 30000000u

struct echo_server {
	struct count_server base;
	const struct bench_rpc_opts *opts;
	struct gn_fabric *fabric;
	struct rpc_echo echo;
	char addr[64];
};

struct caller {
	struct count_client base;
	const struct bench_rpc_opts *opts;
	struct gn_fabric *fabric;
	struct gn_rpc_client *rpc;
	struct gn_rpc_op *ops;
	uint8_t *bytes; /* a request and a result for each */
	uint32_t failed;
};

/* ---- the server ---- */

static void rpc_stop(struct count_server *base)
{
	struct echo_server *s = (struct echo_server *)base; /* which it begins with */

	gn_rpc_server_destroy(base->rpc);
	gn_fabric_close(s->fabric);
	rpc_echo_free(&s->echo);
}

static int rpc_start(struct count_server *base)
{
	struct echo_server *s = (struct echo_server *)base;
	const struct bench_rpc_opts *o = s->opts;
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts),
						.flags = GN_RPC_POLLED,
						.max_slots = rpc_slots(o),
						.max_request = rpc_slot_bytes(o, o->request_bytes),
						.max_result = rpc_slot_bytes(o, o->result_bytes)};
	int rc = gn_fabric_open("shm", &s->fabric);

	if (!rc)
		rc = rpc_echo_init(&s->echo, o);
	if (!rc)
		rc = gn_rpc_server_create(s->fabric, s->addr, &opts, &base->rpc);
	if (!rc)
		rc = rpc_echo_handle(&s->echo, base->rpc);
	if (!rc)
		rc = gn_rpc_server_start(base->rpc);
	return rc;
}

/* ---- the client ---- */

static int rpc_prepare(struct count_client *base)
{
	(void)base;
	return 0;
}

static int rpc_submit(void *arg)
{
	struct caller *c = arg;
	const uint32_t n = c->base.batch;

	for (uint32_t i = 0; i < n; i++) {
		const int rc = gn_rpc_submit(c->rpc, &c->ops[i]);

		if (unlikely(rc))
			return rc;
	}
	return gn_rpc_flush(c->rpc);
}

static void rpc_op_done(struct gn_rpc_op *op)
{
	struct caller *c = op->arg;

	c->failed += op->status != GN_RPC_OK || op->result_len != op->result_room;
}

static int rpc_collect(void *arg)
{
	struct caller *c = arg;

	return gn_rpc_wait(c->rpc, c->base.deadline_ns);
}

static int rpc_check(struct count_client *base)
{
	struct caller *c = (struct caller *)base; /* which it begins with */
	const uint32_t both = least_u32(c->opts->request_bytes, c->opts->result_bytes);

	for (uint32_t i = 0; i < base->batch && !c->failed; i++)
		c->failed += memcmp(c->ops[i].request, c->ops[i].result, both) != 0;
	return c->failed ? -EBADMSG : 0;
}

static int make_ops(struct caller *c)
{
	const struct bench_rpc_opts *o = c->opts;
	const uint64_t deadline_ns = gn_deadline_us(CALL_US);
	const int rc =
		rpc_ops_make(o, o->load.batch, o->load.seed, rpc_op_done, c, &c->ops, &c->bytes);

	for (uint32_t i = 0; !rc && i < o->load.batch; i++)
		c->ops[i].deadline_ns = deadline_ns;
	return rc;
}

static int connect_caller(struct caller *c, const char *addr)
{
	const struct bench_rpc_opts *o = c->opts;
	struct gn_rpc_client_opts opts = {.size = sizeof(opts),
					  .slots = rpc_slots(o),
					  .batch.entries = o->load.batch,
					  .max_request = rpc_slot_bytes(o, o->request_bytes),
					  .max_result = rpc_slot_bytes(o, o->result_bytes),
					  .fetch_bytes = o->load.fetch_bytes,
					  .timeout_us = CALL_US}; /* callgrind takes its time */
	const int rc = gn_fabric_open("shm", &c->fabric);

	opts.mode = rpc_mode_of(o->mode);
	return rc ? rc : gn_rpc_client_open(c->fabric, addr, &opts, &c->rpc);
}

int count_rpc_main(struct count_page *page)
{
	struct echo_server server = {.base = {.start = rpc_start, .stop = rpc_stop},
				     .opts = &page->opts.rpc};
	struct caller c = {.base = {.batch = page->opts.rpc.load.batch,
				    .prepare = rpc_prepare,
				    .submit = rpc_submit,
				    .collect = rpc_collect,
				    .check = rpc_check},
			   .opts = &page->opts.rpc};
	struct count_turns *turns;
	int rc;

	snprintf(server.addr, sizeof(server.addr), "shm:count-rpc-%d", (int)getpid());
	rc = count_turns_begin(&server.base, &turns);
	if (rc)
		return rc;
	rc = make_ops(&c);
	if (!rc)
		rc = connect_caller(&c, server.addr);
	if (!rc)
		rc = count_turns_run(turns, &c.base, page);
	gn_rpc_client_close(c.rpc);
	count_turns_end(turns);
	gn_fabric_close(c.fabric);
	gn_free(c.ops);
	gn_free(c.bytes);
	return rc;
}
