/* SPDX-License-Identifier: MIT */
/*
 * What calls could be at best: the bytes of requests one way and of results back, between two
 * cores, with nothing but a number behind each. The request is copied out of its slot and made into
 * a result, as a handler would; nobody checks, names a method, or keeps a promise.
 */
#include <errno.h>
#include <stdlib.h>

#include "rpc_hall.h"

#define DEEP_GROUP 8u	   /* deep windows are timed over so many times more messages */
#define LOOK_US	   100000u /* of silence, then a look whether the other side lives */
#define LOOKS_MAX  (SILENCE_US / LOOK_US)

/*
 * Slot i of either direction: bytes, then the number of the message, which comes last. Slots are
 * lines of their own: two of them where the processor fetches pairs.
 */
static size_t stride_of(uint32_t bytes)
{
	const size_t line = 128;

	return ((size_t)bytes + 7 + sizeof(uint64_t) + line - 1) / line * line;
}

static uint64_t *number_in(uint8_t *slot, uint32_t bytes)
{
	return (uint64_t *)(void *)(slot + (bytes + 7) / 8 * 8);
}

size_t limit_bytes(const struct bench_rpc_opts *opts)
{
	return opts->inflight * (stride_of(opts->request_bytes) + stride_of(opts->result_bytes));
}

struct lanes {
	const struct bench_rpc_opts *opts;
	uint8_t *requests, *results;
	size_t request_stride, result_stride;
};

static struct lanes lanes_of(struct hall *hall)
{
	struct lanes lanes = {.opts = &hall->opts,
			      .requests = hall->limit,
			      .request_stride = stride_of(hall->opts.request_bytes),
			      .result_stride = stride_of(hall->opts.result_bytes)};

	lanes.results = lanes.requests + hall->opts.inflight * lanes.request_stride;
	return lanes;
}

/* ---- the side that answers ---- */

static void answer_one(const struct lanes *l, uint32_t at, uint64_t number, uint8_t *copy,
		       const uint8_t *fill)
{
	const uint32_t request = l->opts->request_bytes, result = l->opts->result_bytes;
	const uint32_t both = least_u32(request, result);
	uint8_t *to = l->results + at * l->result_stride;

	memcpy(copy, l->requests + at * l->request_stride, request);
	if (l->opts->work_us > 0)
		compute(l->opts->work_us);
	memcpy(to, copy, both);
	memcpy(to + both, fill + both, result - both);
	/* Pairs with the acquire in collect(). */
	__atomic_store_n(number_in(to, result), number, __ATOMIC_RELEASE);
}

int bare_answer(struct hall *hall, uint64_t mine)
{
	const struct lanes lanes = lanes_of(hall);
	struct patience patience = patience_for(&hall->pair.opts, SILENCE_US);
	uint8_t *copy = malloc(hall->opts.request_bytes + 1);
	uint8_t *fill = malloc(hall->opts.result_bytes + 1);
	const uint32_t request = hall->opts.request_bytes, window = hall->opts.inflight;
	uint32_t at = 0;
	int rc = copy && fill ? 0 : -ENOMEM;

	if (!rc)
		pattern_fill(fill, hall->opts.result_bytes, hall->opts.seed ^ RESULT_SEED);
	/* A window has begun at number 1 in slot 0, or goes on where the last order left it. */
	for (uint64_t number = hall->server_calls + 1; !rc;) {
		uint8_t *slot;

		at = (uint32_t)((number - 1) % window);
		slot = lanes.requests + at * lanes.request_stride;
		/* Pairs with the release in send_one(). */
		if (__atomic_load_n(number_in(slot, request), __ATOMIC_ACQUIRE) == number) {
			answer_one(&lanes, at, number++, copy, fill);
			hall->server_calls++;
			patience_reset(&patience);
		} else if (__atomic_load_n(&hall->pair.order, __ATOMIC_ACQUIRE) != mine) {
			break;
		} else {
			rc = patience_turn(&patience);
		}
	}
	free(copy);
	free(fill);
	return rc;
}

/* ---- the side that measures ---- */

struct bare {
	struct pair *pair;
	struct hall *hall;
	struct lanes lanes;
	uint64_t sent, done;
	uint8_t *requests, *results; /* one for each slot */
};

int bare_create(struct pair *pair, struct hall *hall, struct bare **out)
{
	const struct bench_rpc_opts *opts = &hall->opts;
	struct bare *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->pair = pair;
	b->hall = hall;
	b->lanes = lanes_of(hall);
	b->requests = malloc((size_t)opts->inflight * opts->request_bytes + 1);
	b->results = malloc((size_t)opts->inflight * opts->result_bytes + 1);
	if (!b->requests || !b->results) {
		bare_destroy(b);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < opts->inflight; i++)
		pattern_fill(b->requests + (size_t)i * opts->request_bytes, opts->request_bytes,
			     opts->seed + i);
	*out = b;
	return 0;
}

void bare_destroy(struct bare *b)
{
	if (!b)
		return;
	free(b->requests);
	free(b->results);
	free(b);
}

static inline void send_one(struct bare *b)
{
	const uint32_t bytes = b->lanes.opts->request_bytes;
	const uint32_t at = (uint32_t)(b->sent % b->lanes.opts->inflight);
	uint8_t *slot = b->lanes.requests + at * b->lanes.request_stride;

	memcpy(slot, b->requests + (size_t)at * bytes, bytes);
	/* Pairs with the acquire in bare_answer(). */
	__atomic_store_n(number_in(slot, bytes), ++b->sent, __ATOMIC_RELEASE);
}

static inline bool collect(struct bare *b)
{
	const uint32_t bytes = b->lanes.opts->result_bytes;
	const uint32_t at = (uint32_t)(b->done % b->lanes.opts->inflight);
	uint8_t *slot = b->lanes.results + at * b->lanes.result_stride;

	/* Pairs with the release in answer_one(). */
	if (__atomic_load_n(number_in(slot, bytes), __ATOMIC_ACQUIRE) != b->done + 1)
		return false;
	memcpy(b->results + (size_t)at * bytes, slot, bytes);
	b->done++;
	return true;
}

static int silence(struct bare *b, struct patience *patience, unsigned *looks)
{
	int rc = patience_turn(patience);

	if (rc != -ETIMEDOUT)
		return rc;
	patience_reset(patience);
	if (++*looks < LOOKS_MAX && pair_peer_lives(b->pair))
		return 0;
	gn_log(GN_LOG_ERROR, "limit: the second process does not answer");
	return rc;
}

/* Until that many are done, with the window full, or running dry when it is the end. */
static int exchange(struct bare *b, uint64_t until, bool dry)
{
	const uint32_t window = b->lanes.opts->inflight;
	struct patience patience = patience_for(&b->hall->pair.opts, LOOK_US);
	unsigned looks = 0;
	int rc = 0;

	while (!rc && b->done < until) {
		while (b->sent - b->done < window && !(dry && b->sent == until))
			send_one(b);
		if (likely(collect(b)))
			patience_reset(&patience);
		else
			rc = silence(b, &patience, &looks);
	}
	return rc;
}

int bare_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct bare *b = arg;
	const uint32_t window = b->lanes.opts->inflight;
	uint64_t since_ns;
	int rc;

	out->group_ops = window == 1 ? GROUP_TRIPS : (uint64_t)GROUP_TRIPS * DEEP_GROUP;
	pair_order(b->pair, ORDER_ECHO);
	rc = exchange(b, b->done + out->group_ops, false); /* until the other side is there */
	since_ns = gn_now_ns();
	while (!rc && out->ns < block_ns) {
		rc = exchange(b, b->done + out->group_ops, false);
		if (!rc)
			since_ns = block_group(out, since_ns);
	}
	/* Nothing is under way when the order changes. */
	return rc ? rc : exchange(b, b->sent, true);
}

int bare_check(const struct bare *b)
{
	const struct bench_rpc_opts *opts = b->lanes.opts;
	const uint32_t both = least_u32(opts->request_bytes, opts->result_bytes);
	uint8_t *want = malloc(opts->result_bytes + 1);
	int rc = want ? 0 : -ENOMEM;

	for (uint32_t i = 0; !rc && i < opts->inflight; i++) {
		pattern_fill(want, opts->result_bytes, opts->seed ^ RESULT_SEED);
		memcpy(want, b->requests + (size_t)i * opts->request_bytes, both);
		if (!memcmp(want, b->results + (size_t)i * opts->result_bytes, opts->result_bytes))
			continue;
		gn_log(GN_LOG_ERROR, "limit: the last result in slot %u is wrong", i);
		rc = -EBADMSG;
	}
	free(want);
	return rc;
}
