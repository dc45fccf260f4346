/* SPDX-License-Identifier: MIT */
/* The server of the load of the store, and the sizes that both sides agree on. */
#include <errno.h>

#include "kv_load.h"
#include "procs.h"

#define MEMORY_EACH  96u /* bytes for a pair, besides its own, whatever holds it */
#define MEMORY_SLACK 1.3 /* what a log and a table need to be idle */
#define MEMORY_LEAST (64u << 20)
#define MEMORY_SIM   (2u << 20) /* of a simulated partition, and so many times what is stored: */
#define SIM_TIMES    6u		/* nothing is ever forgotten */
#define ENTRY_BYTES  64u	/* that an operation takes in a message, besides its own, at most */
#define PARK_US	     1000000u	/* the papers' servers poll every client's slots all the time */
/* The papers count 4 bytes before a value, and there are 8 in the result of a GET. */
#define PAPER_HEAD  4u
#define RESULT_HEAD 8u

/* One batch after the other, by the papers' way or by the library's defaults. */
static bool is_plain(const struct bench_kv_opts *o)
{
	return (o->load.paper || o->load.profile) && o->load.inflight <= o->load.batch;
}

static uint32_t servers_of(const struct bench_kv_opts *o)
{
	return o->split ? o->load.threads : 1;
}

uint64_t bench_kv_memory(const struct bench_kv_opts *o)
{
	const uint64_t pair = (uint64_t)o->key_bytes + o->value_bytes;
	const uint32_t n = servers_of(o);

	if (o->memory)
		return o->memory / n;
	if (o->load.profile)
		return SIM_TIMES * (pair + ENTRY_BYTES) * (o->keys / n) +
		       (uint64_t)(o->load.threads / n) * MEMORY_SIM;
	return MEMORY_LEAST * (uint64_t)o->load.threads +
	       (uint64_t)((double)((pair + MEMORY_EACH) * o->keys) * MEMORY_SLACK);
}

int kv_no_store(const struct bench_kv_opts *o, int rc, char why[LOAD_ERROR_MAX])
{
	if (rc == -ENOMEM)
		snprintf(
			why, LOAD_ERROR_MAX,
			"there is not enough memory for a store of %llu MiB: take fewer --keys, or "
			"set --memory",
			(unsigned long long)bench_kv_memory(o) >> 20);
	else
		snprintf(why, LOAD_ERROR_MAX, "a store: %s", gn_strerror(rc));
	return rc;
}

uint32_t kv_slots(const struct bench_kv_opts *o)
{
	const uint32_t batches = (o->load.inflight + o->load.batch - 1) / o->load.batch;

	if (is_plain(o))
		return o->load.paper ? 1 : 0;
	return batches < 2 ? 2 : least_u32(batches, GN_RPC_SLOTS_MAX);
}

uint32_t kv_slot_bytes(const struct bench_kv_opts *o)
{
	const uint64_t pair = (uint64_t)o->key_bytes + o->value_bytes + ENTRY_BYTES;
	const uint64_t bytes = pair * o->load.batch * (is_plain(o) ? 2 : 1);

	return bytes < GN_RPC_BYTES_DEFAULT ? GN_RPC_BYTES_DEFAULT :
	       bytes > GN_RPC_BYTES_MAX	    ? GN_RPC_BYTES_MAX :
					      (uint32_t)bytes;
}

void kv_server_opts(const struct bench_kv_opts *o, struct gn_kv_server_opts *out)
{
	*out = (struct gn_kv_server_opts){
		.size = sizeof(*out),
		.threads = o->load.threads / servers_of(o),
		.memory = bench_kv_memory(o),
		.bypass = o->mode == BENCH_KV_BYPASS,
		.rpc = {.max_request = kv_slot_bytes(o), .max_result = kv_slot_bytes(o)}};
	if (o->load.paper) {
		out->rpc.park_us = PARK_US;
		out->rpc.flags = GN_RPC_SERVER_PAPER;
	} else if (!is_plain(o)) {
		out->rpc.max_slots = kv_slots(o);
		out->rpc.max_window = kv_slots(o) * o->load.batch;
	}
}

void kv_client_opts(const struct bench_kv_opts *o, struct gn_kv_client_opts *out)
{
	const bool bypass = o->mode == BENCH_KV_BYPASS;
	const bool gather = o->load.batch > 1 && !o->load.batch_auto &&
			    (o->load.paper || !is_plain(o));

	*out = (struct gn_kv_client_opts){
		.size = sizeof(*out),
		.flags = (o->load.paper ? GN_KV_PAPER : 0) | (bypass ? 0 : GN_KV_CALL_ONLY),
		.gather = gather ? o->load.batch : 0,
		.rpc = {
			.flags = o->load.paper ? GN_RPC_CLIENT_PAPER : 0,
			.slots = kv_slots(o),
			.max_request = kv_slot_bytes(o),
			.max_result = kv_slot_bytes(o),
			.fetch_bytes = o->load.paper && o->load.fetch_bytes > PAPER_HEAD ?
					       o->load.fetch_bytes - PAPER_HEAD + RESULT_HEAD :
					       o->load.fetch_bytes,
			.retries = o->load.retries,
			.timeout_us = LOAD_CONNECT_US,
		}};
	out->rpc.mode = o->mode == BENCH_KV_FETCH	    ? GN_RPC_FETCH :
			o->mode == BENCH_KV_REPLY	    ? GN_RPC_REPLY :
			bypass && o->load.paper /* Pilaf */ ? GN_RPC_REPLY :
							      GN_RPC_HYBRID;
	if (!o->load.batch_auto)
		return;
	out->rpc.batch.entries = o->load.batch;
	out->rpc.batch.limit_us = (uint32_t)o->load.limit_us;
	out->rpc.batch.alpha_pct = o->load.alpha_pct;
}

/* ---- the server ---- */

struct kv_server {
	struct load_proc *proc;
	struct gn_kv_server *kv;
};

static int kv_listen_at(void *arg, const char *addr)
{
	struct kv_server *s = arg;
	struct kv_run *run = (struct kv_run *)s->proc->run; /* which begins with it */
	struct gn_kv_server_opts opts;
	char why[LOAD_ERROR_MAX];
	int rc;

	kv_server_opts(&run->opts, &opts);
	rc = gn_kv_server_create(s->proc->fabric, addr, &opts, &s->kv);
	if (rc == -ENOMEM)
		load_fail(&run->load, kv_no_store(&run->opts, rc, why), "%s", why);
	if (!rc)
		rc = gn_rpc_server_handle(gn_kv_server_rpc(s->kv), METHOD_HOLD, hold_answer,
					  &run->load.pair);
	if (!rc)
		rc = gn_kv_server_start(s->kv);
	if (rc) {
		gn_kv_server_destroy(s->kv);
		s->kv = NULL;
	}
	return rc;
}

int kv_serve(struct load_proc *proc, uint32_t number)
{
	struct kv_server s = {.proc = proc};
	const int rc = load_listen(proc, number, kv_listen_at, &s);

	if (!rc)
		load_serve(proc, gn_kv_server_rpc(s.kv));
	gn_kv_server_destroy(s.kv);
	return rc;
}
