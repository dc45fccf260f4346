/* SPDX-License-Identifier: MIT */
/* The timing wheel, and the heap for later events. */
#include "sim/queue.h"
#include "base/fail.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARITY 4u /* half the levels of a binary heap; four entries fill two cache lines */
#define WORD  64u
#define WORDS (SIM_BUCKETS / WORD)

void sim_queue_init(struct sim_queue *queue)
{
	memset(queue, 0, sizeof(*queue));
}

void sim_queue_fini(struct sim_queue *queue)
{
	free(queue->far);
}

int sim_queue_reserve(struct sim_queue *queue, uint32_t n)
{
	struct sim_far *bigger;

	if (n <= queue->capacity)
		return 0;
	bigger = reallocarray(queue->far, n, sizeof(*bigger));
	if (!bigger)
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	queue->far = bigger;
	queue->capacity = n;
	return 0;
}

/* ---- the heap ---- */

static bool far_before(const struct sim_far *a, const struct sim_far *b)
{
	return a->at_ps != b->at_ps ? a->at_ps < b->at_ps : a->seq < b->seq;
}

static void far_put(struct sim_queue *queue, uint32_t pos, struct sim_far entry)
{
	queue->far[pos] = entry;
	entry.event->pos = pos;
}

static void far_sift_up(struct sim_queue *queue, uint32_t pos, struct sim_far entry)
{
	while (pos > 0) {
		const uint32_t parent = (pos - 1) / ARITY;

		if (!far_before(&entry, &queue->far[parent]))
			break;
		far_put(queue, pos, queue->far[parent]);
		pos = parent;
	}
	far_put(queue, pos, entry);
}

static void far_sift_down(struct sim_queue *queue, uint32_t pos, struct sim_far entry)
{
	for (;;) {
		const uint32_t first = pos * ARITY + 1;
		uint32_t end = first + ARITY, least = first;

		if (first >= queue->n_far)
			break;
		if (end > queue->n_far)
			end = queue->n_far;
		for (uint32_t child = first + 1; child < end; child++)
			if (far_before(&queue->far[child], &queue->far[least]))
				least = child;
		if (!far_before(&queue->far[least], &entry))
			break;
		far_put(queue, pos, queue->far[least]);
		pos = least;
	}
	far_put(queue, pos, entry);
}

static void far_remove(struct sim_queue *queue, uint32_t pos)
{
	const struct sim_far last = queue->far[--queue->n_far];

	if (pos == queue->n_far)
		return;
	if (pos > 0 && far_before(&last, &queue->far[(pos - 1) / ARITY]))
		far_sift_up(queue, pos, last);
	else
		far_sift_down(queue, pos, last);
}

/* ---- the wheel ---- */

static uint32_t near_bucket_of(uint64_t at_ps)
{
	return at_ps >> SIM_BUCKET_BITS & (SIM_BUCKETS - 1);
}

/* pos: bucket and index in it. */
static void near_put(struct sim_queue *queue, uint32_t pos, struct sim_near entry)
{
	queue->near[pos / SIM_BUCKET_ROOM][pos % SIM_BUCKET_ROOM] = entry;
	entry.event->pos = pos;
}

static void near_add(struct sim_queue *queue, uint32_t b, struct sim_near entry)
{
	near_put(queue, b * SIM_BUCKET_ROOM + queue->n_near[b]++, entry);
	queue->used[b / WORD] |= 1ull << b % WORD;
	queue->any |= 1ull << b / WORD;
}

/* Returns the event's time. */
static uint64_t near_remove(struct sim_queue *queue, uint32_t pos)
{
	const uint32_t b = pos / SIM_BUCKET_ROOM, last = --queue->n_near[b];
	const uint64_t at_ps = queue->near[b][pos % SIM_BUCKET_ROOM].at_ps;

	if (pos % SIM_BUCKET_ROOM != last)
		near_put(queue, pos, queue->near[b][last]);
	if (!last) {
		queue->used[b / WORD] &= ~(1ull << b % WORD);
		if (!queue->used[b / WORD])
			queue->any &= ~(1ull << b / WORD);
	}
	return at_ps;
}

/* The first non-empty bucket from b on, wrapping around. There must be one. */
static uint32_t near_next_used(const struct sim_queue *queue, uint32_t b)
{
	uint32_t word = b / WORD;
	uint64_t bits = queue->used[word] & ~0ull << b % WORD, words;

	if (!bits) {
		words = word + 1 < WORDS ? queue->any & ~0ull << (word + 1) : 0;
		word = (uint32_t)__builtin_ctzll(words ? words : queue->any);
		bits = queue->used[word];
	}
	return word * WORD + (uint32_t)__builtin_ctzll(bits);
}

static uint64_t near_first_ps(const struct sim_queue *queue, uint64_t now_ps)
{
	uint64_t first_ps = SIM_NEVER;
	uint32_t b;

	if (!queue->any)
		return SIM_NEVER;
	b = near_next_used(queue, near_bucket_of(now_ps));
	for (uint32_t i = 0; i < queue->n_near[b]; i++)
		if (queue->near[b][i].at_ps < first_ps)
			first_ps = queue->near[b][i].at_ps;
	return first_ps;
}

/* ---- both ---- */

void sim_queue_add(struct sim_queue *queue, struct sim_event *event, uint64_t at_ps,
		   uint64_t now_ps)
{
	const uint32_t b = near_bucket_of(at_ps);

	assert(at_ps > now_ps && queue->n < queue->capacity);
	/* The wheel covers one turn: SIM_BUCKETS buckets from the present one on. */
	if ((at_ps >> SIM_BUCKET_BITS) - (now_ps >> SIM_BUCKET_BITS) < SIM_BUCKETS &&
	    queue->n_near[b] < SIM_BUCKET_ROOM) {
		event->where = SIM_EVENT_NEAR;
		near_add(queue, b, (struct sim_near){.at_ps = at_ps, .event = event});
	} else {
		event->where = SIM_EVENT_FAR;
		far_sift_up(queue, queue->n_far++,
			    (struct sim_far){.at_ps = at_ps, .seq = queue->seq++, .event = event});
	}
	queue->n++;
	if (at_ps < queue->first_ps)
		queue->first_ps = at_ps;
}

void sim_queue_remove(struct sim_queue *queue, struct sim_event *event)
{
	uint64_t at_ps;

	if (event->where == SIM_EVENT_NEAR) {
		at_ps = near_remove(queue, event->pos);
	} else {
		at_ps = queue->far[event->pos].at_ps;
		far_remove(queue, event->pos);
	}
	queue->n--;
	if (at_ps == queue->first_ps)
		queue->known = false;
}

uint64_t sim_queue_first_ps(struct sim_queue *queue, uint64_t now_ps)
{
	if (!queue->known) {
		queue->first_ps = near_first_ps(queue, now_ps);
		if (queue->n_far && queue->far[0].at_ps < queue->first_ps)
			queue->first_ps = queue->far[0].at_ps;
		queue->known = true;
	}
	return queue->first_ps;
}

struct sim_event *sim_queue_take(struct sim_queue *queue, uint64_t at_ps)
{
	const uint32_t b = near_bucket_of(at_ps);
	struct sim_event *event = NULL;

	for (uint32_t i = 0; i < queue->n_near[b] && !event; i++)
		if (queue->near[b][i].at_ps == at_ps)
			event = queue->near[b][i].event;
	if (!event && queue->n_far && queue->far[0].at_ps == at_ps)
		event = queue->far[0].event;
	if (event)
		sim_queue_remove(queue, event);
	return event;
}
