/* SPDX-License-Identifier: MIT */
/*
 * What calls could be at best: the bytes of requests one way and of results back, between two
 * cores, with nothing but a number behind each batch of them. Each request is copied out of its
 * slot and made into a result, as a handler would; nobody checks, names a method, or keeps a
 * promise.
 */
#include <errno.h>
#include <stdlib.h>

#include "limit.h"
#include "load.h"

#define DEEP_GROUP 8u	   /* deep windows are timed over so many times more calls */
#define LOOK_US	   100000u /* of silence, then a look whether the other side lives */
#define LOOKS_MAX  (SILENCE_US / LOOK_US)

/*
 * Slot i of either direction: a batch of calls' bytes, then its number, which comes last. Slots are
 * lines of their own: two of them where the processor fetches pairs.
 */
static size_t number_at(const struct limit_opts *opts, uint32_t bytes)
{
	return ((size_t)opts->batch * bytes + 7) / 8 * 8;
}

static size_t stride_of(const struct limit_opts *opts, uint32_t bytes)
{
	const size_t line = 128;

	return (number_at(opts, bytes) + sizeof(uint64_t) + line - 1) / line * line;
}

/* Batches under way. */
static uint32_t window_of(const struct limit_opts *opts)
{
	return (opts->inflight + opts->batch - 1) / opts->batch;
}

size_t limit_bytes(const struct limit_opts *opts)
{
	return window_of(opts) *
	       (stride_of(opts, opts->request_bytes) + stride_of(opts, opts->result_bytes));
}

/* One direction. */
struct ring {
	uint8_t *slots;
	uint32_t bytes; /* of a call */
	size_t stride, number_at;
};

struct rings {
	uint32_t window, batch;
	double work_us;
	struct ring request, result;
};

static struct rings rings_of(const struct limit_place *place)
{
	const struct limit_opts *o = &place->opts;
	struct rings l = {.window = window_of(o), .batch = o->batch, .work_us = o->work_us};

	l.request = (struct ring){place->rings, o->request_bytes, stride_of(o, o->request_bytes),
				  number_at(o, o->request_bytes)};
	l.result = (struct ring){place->rings + l.window * l.request.stride, o->result_bytes,
				 stride_of(o, o->result_bytes), number_at(o, o->result_bytes)};
	return l;
}

/* Is the batch of that number there? Pairs with the release in hand_over(). */
static inline bool is_there(const struct ring *ring, uint32_t at, uint64_t number)
{
	const uint64_t *word =
		(uint64_t *)(void *)(ring->slots + at * ring->stride + ring->number_at);

	return __atomic_load_n(word, __ATOMIC_ACQUIRE) == number;
}

/* Pairs with the acquire in is_there(). */
static inline void hand_over(const struct ring *ring, uint32_t at, uint64_t number)
{
	uint64_t *word = (uint64_t *)(void *)(ring->slots + at * ring->stride + ring->number_at);

	__atomic_store_n(word, number, __ATOMIC_RELEASE);
}

/* ---- the side that answers ---- */

static void answer_batch(const struct rings *l, uint32_t at, uint64_t number, uint8_t *copy,
			 const uint8_t *fill)
{
	const uint32_t both = least_u32(l->request.bytes, l->result.bytes);
	const uint8_t *from = l->request.slots + at * l->request.stride;
	uint8_t *to = l->result.slots + at * l->result.stride;

	for (uint32_t i = 0; i < l->batch; i++) {
		memcpy(copy, from, l->request.bytes);
		if (l->work_us > 0)
			load_work((uint64_t)(l->work_us * 1000));
		memcpy(to, copy, both);
		if (both < l->result.bytes)
			memcpy(to + both, fill + both, l->result.bytes - both);
		from += l->request.bytes;
		to += l->result.bytes;
	}
	hand_over(&l->result, at, number);
}

int bare_answer(const struct limit_place *place, uint64_t mine)
{
	const struct limit_opts *o = &place->opts;
	const struct rings rings = rings_of(place);
	struct patience patience = patience_for(&place->shared->opts, SILENCE_US);
	uint8_t *copy = malloc(o->request_bytes + 1);
	uint8_t *fill = malloc(o->result_bytes + 1);
	uint32_t at;
	int rc = copy && fill ? 0 : -ENOMEM;

	if (!rc)
		pattern_fill(fill, o->result_bytes, o->seed ^ RESULT_SEED);
	/* A window has begun at number 1 in slot 0, or goes on where the last order left it. */
	for (uint64_t number = *place->answered + 1; !rc;) {
		at = (uint32_t)((number - 1) % rings.window);
		if (is_there(&rings.request, at, number)) {
			answer_batch(&rings, at, number++, copy, fill);
			++*place->answered;
			patience_reset(&patience);
		} else if (__atomic_load_n(&place->shared->order, __ATOMIC_ACQUIRE) != mine) {
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
	struct limit_place place;
	struct rings rings;
	uint64_t sent, done;	     /* batches */
	uint8_t *requests, *results; /* of each call in the window, as they are in slots */
	void *memory[2];	     /* that they are in */
};

#define PAGE 4096u

/*
 * A copy of a ring, half a page away from it: a load that looks like an earlier store by its last
 * 12 bits waits for that, and whether it does would depend on how memory happens to be laid out.
 */
static uint8_t *make_copy(const struct ring *ring, uint32_t window, void **memory)
{
	const size_t bytes = window * ring->stride + 2 * PAGE;
	const uintptr_t apart = ((uintptr_t)ring->slots + PAGE / 2) % PAGE;

	*memory = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
	return *memory ? (uint8_t *)*memory + apart : NULL;
}

/* Where call i of a window is. */
static uint8_t *call_at(uint8_t *copy, const struct ring *ring, uint32_t batch, uint32_t i)
{
	return copy + i / batch * ring->stride + (size_t)(i % batch) * ring->bytes;
}

static uint32_t calls_of(const struct bare *b)
{
	return b->rings.window * b->rings.batch;
}

int bare_create(struct pair *pair, const struct limit_place *place, struct bare **out)
{
	const struct limit_opts *opts = &place->opts;
	struct bare *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->pair = pair;
	b->place = *place;
	b->rings = rings_of(place);
	b->requests = make_copy(&b->rings.request, b->rings.window, &b->memory[0]);
	b->results = make_copy(&b->rings.result, b->rings.window, &b->memory[1]);
	if (!b->requests || !b->results) {
		bare_destroy(b);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < calls_of(b); i++)
		pattern_fill(call_at(b->requests, &b->rings.request, opts->batch, i),
			     opts->request_bytes, opts->seed + i);
	*out = b;
	return 0;
}

void bare_destroy(struct bare *b)
{
	if (!b)
		return;
	free(b->memory[0]);
	free(b->memory[1]);
	free(b);
}

/* Call by call, as each has its own buffers. */
static inline void copy_calls(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t calls)
{
	for (uint32_t i = 0; i < calls; i++, to += bytes, from += bytes)
		memcpy(to, from, bytes);
}

static inline void send_batch(struct bare *b)
{
	const struct ring *ring = &b->rings.request;
	const uint32_t at = (uint32_t)(b->sent % b->rings.window), batch = b->rings.batch;

	copy_calls(ring->slots + at * ring->stride, b->requests + at * ring->stride, ring->bytes,
		   batch);
	hand_over(ring, at, ++b->sent);
}

static inline bool collect(struct bare *b)
{
	const struct ring *ring = &b->rings.result;
	const uint32_t at = (uint32_t)(b->done % b->rings.window), batch = b->rings.batch;

	if (!is_there(ring, at, b->done + 1))
		return false;
	copy_calls(b->results + at * ring->stride, ring->slots + at * ring->stride, ring->bytes,
		   batch);
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

/* Until that many batches are done, with the window full, or running dry when it is the end. */
static int exchange(struct bare *b, uint64_t until, bool dry)
{
	struct patience patience = patience_for(&b->place.shared->opts, LOOK_US);
	unsigned looks = 0;
	int rc = 0;

	while (!rc && b->done < until) {
		while (b->sent - b->done < b->rings.window && !(dry && b->sent == until))
			send_batch(b);
		if (likely(collect(b))) {
			patience_reset(&patience);
			looks = 0;
		} else {
			rc = silence(b, &patience, &looks);
		}
	}
	return rc;
}

int bare_block(struct bare *b, uint64_t block_ns, struct block *out)
{
	const uint32_t calls = calls_of(b) == 1 ? GROUP_TRIPS : GROUP_TRIPS * DEEP_GROUP;
	const uint64_t batches = (calls + b->rings.batch - 1) / b->rings.batch;
	uint64_t since_ns;
	int rc;

	out->group_ops = batches * b->rings.batch;
	rc = exchange(b, b->done + batches, false); /* until the other side is there */
	since_ns = gn_now_ns();
	while (!rc && out->ns < block_ns) {
		rc = exchange(b, b->done + batches, false);
		if (!rc)
			since_ns = block_group(out, since_ns);
	}
	/* Nothing is under way when the order changes. */
	return rc ? rc : exchange(b, b->sent, true);
}

int bare_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct bare *b = arg;

	pair_order(b->pair, ORDER_ECHO);
	return bare_block(b, block_ns, out);
}

int bare_check(const struct bare *b)
{
	const struct limit_opts *opts = &b->place.opts;
	const uint32_t both = least_u32(opts->request_bytes, opts->result_bytes);
	uint8_t *want = malloc(opts->result_bytes + 1);
	int rc = want ? 0 : -ENOMEM;

	for (uint32_t i = 0; !rc && i < calls_of(b); i++) {
		pattern_fill(want, opts->result_bytes, opts->seed ^ RESULT_SEED);
		memcpy(want, call_at(b->requests, &b->rings.request, opts->batch, i), both);
		if (!memcmp(want, call_at(b->results, &b->rings.result, opts->batch, i),
			    opts->result_bytes))
			continue;
		gn_log(GN_LOG_ERROR, "limit: the last result of call %u in the window is wrong", i);
		rc = -EBADMSG;
	}
	free(want);
	return rc;
}
