/* SPDX-License-Identifier: MIT */
/*
 * The server's process: an echo, and the ping-pong of the limit. The library's threads do the work;
 * the first one only waits for orders, except in the mode limit, where it answers itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rpc_hall.h"

struct server {
	struct hall *hall;
	uint8_t *fill;
	struct gn_fabric *fabric;
	struct gn_rpc_server *rpc;
};

static void echo(struct gn_rpc_request *request, void *arg)
{
	const struct server *s = arg;
	const uint32_t bytes = s->hall->opts.result_bytes;
	uint32_t len, room;
	const void *data = gn_rpc_request_data(request, &len);
	uint8_t *result, *own = NULL;

	if (s->hall->opts.work_us > 0)
		compute(s->hall->opts.work_us);
	if (likely(len >= bytes))
		return gn_rpc_answer(request, GN_RPC_OK, data, bytes);
	result = gn_rpc_request_room(request, &room);
	if (unlikely(!result || room < bytes)) /* in the middle of a batch there may be less */
		result = own = malloc(bytes + 1);
	if (unlikely(!result))
		return gn_rpc_answer(request, GN_RPC_BUSY, NULL, 0);
	memcpy(result, data, len);
	memcpy(result + len, s->fill + len, bytes - len);
	gn_rpc_answer(request, GN_RPC_OK, result, bytes);
	free(own);
}

/* … of calls that come in batches. */
static void echo_group(struct gn_rpc_group *group, void *arg)
{
	const struct server *s = arg;
	const uint32_t bytes = s->hall->opts.result_bytes;
	const unsigned n = gn_rpc_group_size(group);

	for (unsigned i = 0; i < n; i++) {
		uint32_t len;
		const void *data = gn_rpc_group_data(group, i, &len);
		uint8_t *result;

		if (s->hall->opts.work_us > 0)
			compute(s->hall->opts.work_us);
		if (likely(len >= bytes)) {
			gn_rpc_group_answer(group, i, GN_RPC_OK, data, bytes);
			continue;
		}
		result = gn_rpc_group_room(group, i, bytes);
		if (unlikely(!result))
			continue; /* it has ended */
		memcpy(result, data, len);
		memcpy(result + len, s->fill + len, bytes - len);
		gn_rpc_group_answer(group, i, GN_RPC_OK, result, bytes);
	}
}

static void hold_lanes(struct gn_rpc_request *request, void *arg)
{
	const struct server *s = arg;
	const struct limit_place place = limit_place_of(s->hall);
	const uint64_t order = __atomic_load_n(&s->hall->crew.pair.order, __ATOMIC_ACQUIRE);
	int rc;

	/* Pairs with the acquire in hold_begin(). */
	__atomic_store_n(&s->hall->held, order, __ATOMIC_RELEASE);
	rc = bare_answer(&place, order);
	gn_rpc_answer(request, rc ? GN_RPC_FAILED : GN_RPC_OK, NULL, 0);
}

static int start(struct server *s)
{
	const struct bench_rpc_opts *opts = &s->hall->opts;
	const struct gn_rpc_server_opts rpc = {
		.size = sizeof(rpc),
		.threads = opts->threads,
		.max_slots = slots_for(opts),
		.max_request = room_for(opts->request_bytes, opts->batch),
		.max_result = room_for(opts->result_bytes, opts->batch)};
	char *addr = s->hall->crew.pair.addr;
	int rc = gn_fabric_open(s->hall->crew.pair.opts.provider, &s->fabric);

	if (rc)
		return rc;
	s->fill = malloc(opts->result_bytes + 1);
	if (!s->fill)
		return -ENOMEM;
	pattern_fill(s->fill, opts->result_bytes, opts->seed ^ RESULT_SEED);
	snprintf(addr, sizeof(s->hall->crew.pair.addr), "shm:bench-rpc-%d", (int)getpid());
	rc = gn_rpc_server_create(s->fabric, addr, &rpc, &s->rpc);
	if (!rc)
		rc = opts->batch > 1 ?
			     gn_rpc_server_handle_group(s->rpc, METHOD_ECHO, echo_group, s, 0) :
			     gn_rpc_server_handle(s->rpc, METHOD_ECHO, echo, s);
	if (!rc)
		rc = gn_rpc_server_handle(s->rpc, METHOD_CACHELINE, hold_answer,
					  &s->hall->crew.pair);
	if (!rc)
		rc = gn_rpc_server_handle(s->rpc, METHOD_BARE, hold_lanes, s);
	return rc ? rc : gn_rpc_server_start(s->rpc);
}

static int serve_calls(struct hall *hall)
{
	struct server s = {.hall = hall};
	const int rc = start(&s);

	if (rc)
		gn_log(GN_LOG_ERROR, "bench: cannot start the server: %s", gn_strerror(rc));
	peer_answer(&hall->crew.pair, ORDER_START, rc);
	if (!rc)
		crew_obey(&hall->crew, s.fabric, s.rpc);
	gn_rpc_server_destroy(s.rpc);
	gn_fabric_close(s.fabric);
	free(s.fill);
	return rc;
}

static int serve_limit(struct hall *hall)
{
	const struct limit_place place = limit_place_of(hall);
	uint64_t word = ORDER_START;
	int rc = 0;

	peer_answer(&hall->crew.pair, word, 0);
	while (!rc) {
		word = peer_next_order(&hall->crew.pair, word);
		switch ((enum order)(word & 0xff)) {
		case ORDER_QUIT:
			return 0;
		case ORDER_CACHELINE:
			rc = cacheline_answer(&hall->crew.pair);
			break;
		default:
			rc = bare_answer(&place, word);
		}
	}
	peer_answer(&hall->crew.pair, word, rc);
	return rc;
}

int server_main(struct hall *hall)
{
	crew_be_server(&hall->crew);
	return hall->opts.mode == BENCH_RPC_LIMIT ? serve_limit(hall) : serve_calls(hall);
}
