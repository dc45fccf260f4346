/* SPDX-License-Identifier: MIT */
/*
 * What the processes of a run of messages share, and what the files of the benchmark share. A
 * process is one thread of S003: it asks, or it answers. Processes are numbered: responders from 0
 * on, then requesters from the second on; the first requester is the process that started them.
 */
#ifndef GN_BENCH_MSG_HALL_H
#define GN_BENCH_MSG_HALL_H

#include "crew.h"
#include "limit.h"
#include "msg.h"

#define ADDR_MAX 192u

/* What a requester has seen, of what was measured. */
struct msg_tally {
	uint64_t requests, ns;
	uint64_t wrs, doorbells, cqes;
	uint64_t repeats, lost; /* of all its life */
	struct gn_hist latency_ns;
};

/* What a responder has done in all its life. */
struct msg_account {
	uint64_t requests, wrs, doorbells, cqes, repeats;
};

struct msg_hall {
	struct crew_hall crew;
	struct bench_msg_opts opts;
	bool crowded;		    /* there are more processes than cores */
	LINE uint64_t bare_batches; /* that the limit's other side has answered */
	LINE char addr[BENCH_MSG_PROCESSES_MAX][ADDR_MAX]; /* of responders */
	struct msg_account answered[BENCH_MSG_PROCESSES_MAX];
	LINE uint32_t listening; /* responders */
	uint32_t left;		 /* requesters that were started, and are through */
	LINE struct msg_tally asked[BENCH_MSG_PROCESSES_MAX];
	/*
	 * Lanes without messages. At the beginning of a page they are as fast as anywhere, and a
	 * fifth faster than at some offsets.
	 */
	_Alignas(GN_PAGE) uint8_t limit[];
};

static inline struct limit_place msg_limit_place(struct msg_hall *hall)
{
	const struct bench_msg_opts *o = &hall->opts;

	return (struct limit_place){.shared = &hall->crew.pair,
				    .opts = {.request_bytes = o->request_bytes,
					     .result_bytes = o->value_bytes,
					     .batch = 1,
					     .inflight = o->pending,
					     .seed = o->seed},
				    .answered = &hall->bare_batches,
				    .lanes = hall->limit};
}

/* What a process does when there is nothing: with others on its core it lets them run at once. */
static inline struct patience msg_patience(const struct msg_hall *hall)
{
	struct patience p = patience_for(&hall->crew.pair.opts, SILENCE_US);

	if (hall->crowded)
		p.spins = 1;
	return p;
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
	return o->seed + ((uint64_t)responder << 32) + key;
}

/* The key of a responder's n-th request: those that share a buffer follow each other rarely. */
static inline uint32_t key_at(uint64_t n, uint32_t keys)
{
	return (uint32_t)(n * 0x9e3779b97f4a7c15ull >> 40) & (keys - 1);
}

/* A request begins with its key, and ends with the key's complement if there is room. */
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

/* ---- who is who (msg_topology.c) ---- */

/* The number of the responder that connection i of a requester goes to. */
uint32_t msg_responder_of(const struct bench_msg_opts *opts, uint32_t requester, uint32_t i);

/* Adds what a fabric has counted so far, or takes it away (msg_run.c). */
void msg_count(struct gn_fabric *fabric, int sign, uint64_t *wrs, uint64_t *doorbells,
	       uint64_t *cqes);

/* ---- a requester (msg_requester.c) ---- */

/* index: of all processes; 0: the one that started the others. Its run is a load. */
extern const struct crew_client msg_requester_ops;
/* Takes what is under way, and asks no more. */
int msg_requester_rest(void *requester);

/* ---- a responder (msg_responder.c) ---- */

/* From beginning to end. */
int msg_responder_main(struct msg_hall *hall, uint32_t number);

#endif
