/* SPDX-License-Identifier: MIT */
/*
 * The server's process: a store, and the ping-pong of the limit beside it.
 */
#include <errno.h>
#include <unistd.h>

#include "kv_hall.h"

#define MEMORY_EACH  96u /* bytes for a pair, besides its own, whatever holds it */
#define MEMORY_SLACK 1.3 /* what a log and a table need to be idle */
#define MEMORY_LEAST (64u << 20)
#define ENTRY_BYTES  64u /* that an operation takes in a message, besides its own, at most */

uint64_t kv_memory(const struct bench_kv_opts *o)
{
	const uint64_t pair = (uint64_t)o->key_bytes + o->value_bytes + MEMORY_EACH;

	if (o->memory)
		return o->memory;
	return MEMORY_LEAST * (uint64_t)o->threads +
	       (uint64_t)((double)(pair * o->keys) * MEMORY_SLACK);
}

uint32_t kv_slots(const struct bench_kv_opts *o)
{
	const uint32_t batches = (o->inflight + o->batch - 1) / o->batch;

	return batches < 2 ? 2 : least_u32(batches, GN_RPC_SLOTS_MAX);
}

uint32_t kv_slot_bytes(const struct bench_kv_opts *o)
{
	const uint64_t pair = (uint64_t)o->key_bytes + o->value_bytes + ENTRY_BYTES;
	const uint64_t bytes = pair * o->batch;

	return bytes < GN_RPC_BYTES_DEFAULT ? GN_RPC_BYTES_DEFAULT :
	       bytes > GN_RPC_BYTES_MAX	    ? GN_RPC_BYTES_MAX :
					      (uint32_t)bytes;
}

static int start(struct kv_hall *hall, struct gn_fabric *fabric, struct gn_kv_server **out)
{
	const struct bench_kv_opts *o = &hall->opts;
	const struct gn_kv_server_opts opts = {.size = sizeof(opts),
					       .threads = o->threads,
					       .memory = kv_memory(o),
					       .bypass = o->mode == BENCH_KV_BYPASS,
					       .rpc = {.max_slots = kv_slots(o),
						       .max_window = kv_slots(o) * o->batch,
						       .max_request = kv_slot_bytes(o),
						       .max_result = kv_slot_bytes(o)}};
	char *addr = hall->crew.pair.addr;
	int rc;

	snprintf(addr, sizeof(hall->crew.pair.addr), "shm:bench-kv-%d", (int)getpid());
	rc = gn_kv_server_create(fabric, addr, &opts, out);
	if (!rc)
		rc = gn_rpc_server_handle(gn_kv_server_rpc(*out), METHOD_HOLD, hold_answer,
					  &hall->crew.pair);
	return rc ? rc : gn_kv_server_start(*out);
}

int kv_server_main(struct kv_hall *hall)
{
	struct gn_fabric *fabric = NULL;
	struct gn_kv_server *server = NULL;
	int rc;

	crew_be_server(&hall->crew);
	rc = gn_fabric_open("shm", &fabric);
	if (!rc)
		rc = start(hall, fabric, &server);
	if (rc)
		gn_log(GN_LOG_ERROR, "bench: cannot start the server: %s", gn_strerror(rc));
	peer_answer(&hall->crew.pair, ORDER_START, rc);
	if (!rc)
		crew_obey(&hall->crew, fabric, gn_kv_server_rpc(server));
	gn_kv_server_destroy(server);
	gn_fabric_close(fabric);
	return rc;
}
