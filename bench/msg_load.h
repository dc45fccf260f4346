/* SPDX-License-Identifier: MIT */
/* The control block of the load of messages, and what its requester and responder share. */
#ifndef GN_BENCH_MSG_LOAD_H
#define GN_BENCH_MSG_LOAD_H

#include "limit.h"
#include "msg.h"

/* What a responder has done in all its life. */
struct msg_account {
	uint64_t requests;
	struct load_sums sums;
};

struct msg_run {
	struct load_run load;
	struct bench_msg_opts opts;
	bool crowded;		    /* there are more processes than cores */
	LINE uint64_t bare_batches; /* that the limit's other side has answered */
	struct msg_account answered[LOAD_TALLIES_MAX];
	/*
	 * Rings without messages. At the beginning of a page they are as fast as anywhere, and a
	 * fifth faster than at some offsets.
	 */
	_Alignas(GN_PAGE) uint8_t limit[];
};

static inline struct limit_place msg_limit_place(struct msg_run *run)
{
	const struct bench_msg_opts *o = &run->opts;

	return (struct limit_place){.shared = &run->load.pair,
				    .opts = {.request_bytes = o->request_bytes,
					     .result_bytes = o->value_bytes,
					     .batch = 1,
					     .inflight = o->pending,
					     .seed = o->load.seed},
				    .answered = &run->bare_batches,
				    .rings = run->limit};
}

/* With one connection. */
static inline struct gn_msg_requester_opts msg_requester_opts(const struct bench_msg_opts *o)
{
	return (struct gn_msg_requester_opts){
		.size = sizeof(struct gn_msg_requester_opts),
		.protocol = o->protocol,
		.pending = o->pending,
		.request_bytes = o->request_bytes,
		.value_bytes = o->value_bytes,
		.max_conns = 1,
	};
}

/* ---- requests and values ---- */

#define KEYS_BYTES (4u << 20) /* that all values of a responder take, and all requests, about */
#define KEYS_MAX   64u
#define KEYS_MIN   4u

/* A power of two. */
static inline uint32_t keys_of(const struct bench_msg_opts *o)
{
	const uint64_t bytes = o->value_bytes > o->request_bytes ? o->value_bytes :
								   o->request_bytes;
	uint32_t n = KEYS_MAX;

	while (n > KEYS_MIN && n * bytes > KEYS_BYTES)
		n /= 2;
	return n;
}

/* From one value to the next in what READs see. */
static inline size_t value_stride(const struct bench_msg_opts *o)
{
	return ((size_t)o->value_bytes + 63) / 64 * 64;
}

static inline uint64_t value_seed(const struct bench_msg_opts *o, uint32_t responder, uint32_t key)
{
	return o->load.seed + ((uint64_t)responder << 32) + key;
}

/*
 * Simulated READs have a slot for each outstanding request, with a key before its value, as in the
 * paper. The contents are not used.
 */
static inline uint64_t read_slots_bytes(const struct bench_msg_opts *o)
{
	return (uint64_t)(o->request_bytes + o->value_bytes) * o->pending;
}

/* The key of a responder's n-th request: those that share a buffer follow each other rarely. */
static inline uint32_t key_at(uint64_t n, uint32_t keys)
{
	return (uint32_t)(n * 0x9e3779b97f4a7c15ull >> 40) & (keys - 1);
}

/* A request begins with its key, and ends with the key's complement if it is long enough. */
static inline void request_put(uint8_t *request, uint32_t bytes, uint32_t key)
{
	const uint32_t check = ~key;

	memcpy(request, &key, sizeof(key));
	if (bytes >= 2 * sizeof(key))
		memcpy(request + bytes - sizeof(check), &check, sizeof(check));
}

/* Its key, or UINT32_MAX: that is no request. */
static inline uint32_t request_get(const uint8_t *request, uint32_t bytes)
{
	uint32_t key, check;

	if (bytes < sizeof(key))
		return UINT32_MAX;
	memcpy(&key, request, sizeof(key));
	if (bytes < 2 * sizeof(key))
		return key;
	memcpy(&check, request + bytes - sizeof(check), sizeof(check));
	return check == (uint32_t)~key ? key : UINT32_MAX;
}

/* ---- which threads are connected (msg_topology.c) ---- */

/* Responding threads of a node that has any, and connections of each at most. */
uint32_t msg_resp_threads(const struct bench_msg_opts *opts);
uint32_t msg_resp_conns(const struct bench_msg_opts *opts);
/* The responder of connection i of a requester; *number: which of its connections that is. */
uint32_t msg_responder_of(const struct bench_msg_opts *opts, uint32_t requester, uint32_t i,
			  uint32_t *number);

/* Waits for the end of requests under way, and makes no more. */
int msg_requester_rest(struct load_client *requester);

int msg_serve(struct load_proc *proc, uint32_t number);

#endif
