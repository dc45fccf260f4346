/* SPDX-License-Identifier: MIT */
/*
 * Counted calls: gn_rpc_submit() and gn_rpc_flush(), then gn_rpc_wait(), at an echo.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "count_turns.h"
#include "rpc_hall.h"

#define CALL_US 30000000u

struct echo_server {
	struct count_server base;
	const struct bench_rpc_opts *opts;
	struct gn_fabric *fabric;
	uint8_t *fill;
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

static void echo(struct gn_rpc_request *request, void *arg)
{
	const struct echo_server *s = arg;
	const uint32_t bytes = s->opts->result_bytes;
	uint32_t len, room;
	const void *data = gn_rpc_request_data(request, &len);
	uint8_t *result;

	if (likely(len >= bytes))
		return gn_rpc_answer(request, GN_RPC_OK, data, bytes);
	result = gn_rpc_request_room(request, &room);
	if (!result || room < bytes)
		return gn_rpc_answer(request, GN_RPC_OK, s->fill, bytes);
	memcpy(result, data, len);
	memcpy(result + len, s->fill + len, bytes - len);
	gn_rpc_answer(request, GN_RPC_OK, result, bytes);
}

/* … of calls that come in batches. */
static void echo_group(struct gn_rpc_group *group, void *arg)
{
	const struct echo_server *s = arg;
	const uint32_t bytes = s->opts->result_bytes;
	const unsigned n = gn_rpc_group_size(group);

	for (unsigned i = 0; i < n; i++) {
		uint32_t len;
		const void *data = gn_rpc_group_data(group, i, &len);
		uint8_t *result;

		if (likely(len >= bytes)) {
			gn_rpc_group_answer(group, i, GN_RPC_OK, data, bytes);
			continue;
		}
		result = gn_rpc_group_room(group, i, bytes);
		if (!result)
			continue; /* it has ended */
		memcpy(result, data, len);
		memcpy(result + len, s->fill + len, bytes - len);
		gn_rpc_group_answer(group, i, GN_RPC_OK, result, bytes);
	}
}

static void stop(struct count_server *base)
{
	struct echo_server *s = (struct echo_server *)base; /* which it begins with */

	gn_rpc_server_destroy(base->rpc);
	gn_fabric_close(s->fabric);
	free(s->fill);
}

static int start(struct count_server *base)
{
	struct echo_server *s = (struct echo_server *)base;
	const struct bench_rpc_opts *o = s->opts;
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts),
						.flags = GN_RPC_POLLED,
						.max_slots = slots_for(o),
						.max_request = room_for(o->request_bytes, o->batch),
						.max_result = room_for(o->result_bytes, o->batch)};
	int rc = gn_fabric_open("shm", &s->fabric);

	s->fill = calloc(1, o->result_bytes + 1);
	if (!rc && !s->fill)
		rc = -ENOMEM;
	if (!rc)
		rc = gn_rpc_server_create(s->fabric, s->addr, &opts, &base->rpc);
	if (!rc)
		rc = o->batch > 1 ?
			     gn_rpc_server_handle_group(base->rpc, METHOD_ECHO, echo_group, s, 0) :
			     gn_rpc_server_handle(base->rpc, METHOD_ECHO, echo, s);
	if (!rc)
		rc = gn_rpc_server_start(base->rpc);
	return rc;
}

/* ---- the client ---- */

static int prepare(struct count_client *base)
{
	(void)base;
	return 0;
}

static int submit(void *arg)
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

static void note_end(struct gn_rpc_op *op)
{
	struct caller *c = op->arg;

	c->failed += op->status != GN_RPC_OK || op->result_len != op->result_room;
}

static int collect(void *arg)
{
	struct caller *c = arg;

	return gn_rpc_wait(c->rpc, c->base.deadline_ns);
}

static int check(struct count_client *base)
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
	const size_t stride = (size_t)o->request_bytes + o->result_bytes;
	const uint64_t deadline_ns = gn_deadline_us(CALL_US);

	c->ops = calloc(o->batch, sizeof(*c->ops));
	c->bytes = calloc(o->batch, stride + 1);
	if (!c->ops || !c->bytes)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->batch; i++) {
		uint8_t *at = c->bytes + i * stride;

		pattern_fill(at, o->request_bytes, o->seed + i);
		c->ops[i] = (struct gn_rpc_op){.method = METHOD_ECHO,
					       .request = at,
					       .request_len = o->request_bytes,
					       .result = at + o->request_bytes,
					       .result_room = o->result_bytes,
					       .deadline_ns = deadline_ns,
					       .done = note_end,
					       .arg = c};
	}
	return 0;
}

static int connect_caller(struct caller *c, const char *addr)
{
	const struct bench_rpc_opts *o = c->opts;
	struct gn_rpc_client_opts opts = {.size = sizeof(opts),
					  .slots = slots_for(o),
					  .batch.entries = o->batch,
					  .max_request = room_for(o->request_bytes, o->batch),
					  .max_result = room_for(o->result_bytes, o->batch),
					  .fetch_bytes = o->fetch_bytes,
					  .timeout_us = CALL_US}; /* callgrind takes its time */
	const int rc = gn_fabric_open("shm", &c->fabric);

	opts.mode = o->mode == BENCH_RPC_REPLY	? GN_RPC_REPLY :
		    o->mode == BENCH_RPC_HYBRID ? GN_RPC_HYBRID :
						  GN_RPC_FETCH;
	return rc ? rc : gn_rpc_client_open(c->fabric, addr, &opts, &c->rpc);
}

int count_rpc_main(struct count_page *page)
{
	struct echo_server server = {.base = {.start = start, .stop = stop},
				     .opts = &page->opts.rpc};
	struct caller c = {.base = {.batch = page->opts.rpc.batch,
				    .prepare = prepare,
				    .submit = submit,
				    .collect = collect,
				    .check = check},
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
	free(c.ops);
	free(c.bytes);
	return rc;
}
