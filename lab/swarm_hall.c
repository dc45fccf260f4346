/* SPDX-License-Identifier: MIT */
/*
 * Atomics. Every process has two words that all its peers reach: to one they only add, the other
 * they replace by values that are used once. So an addition owns the span of values from the one it
 * found, and no two spans overlap; and no value is replaced twice.
 */
#include <assert.h>
#include <stdlib.h>

#include "swarm_model.h"

#define LL(x) ((unsigned long long)(x))

static uint64_t new_value(struct hall *hall)
{
	hall->value =
		swarm_grow(hall->value, hall->n_values, &hall->cap_values, sizeof(*hall->value));
	hall->value[hall->n_values] = (struct hall_value){0};
	return hall->n_values++;
}

struct hall *hall_create(struct swarm *s)
{
	struct hall *hall = calloc(1, sizeof(*hall));

	assert(hall);
	hall->next = s->halls;
	s->halls = hall;
	new_value(hall);
	return hall;
}

void hall_fini(struct hall *hall)
{
	free(hall->span);
	free(hall->value);
}

void hall_faa_posted(struct hall *hall, struct request *req, uint64_t add)
{
	req->add = add;
	req->low = hall->sum_ok;
	hall->sum_maybe += add;
}

void hall_cas_posted(struct hall *hall, struct request *req, bool guess)
{
	req->add = guess ? req->seed | 1ull << 63 : hall->known;
	req->swap = new_value(hall);
}

static void add_span(struct swarm *s, struct hall *hall, uint64_t old, uint64_t add)
{
	for (uint32_t i = 0; i < hall->n_spans; i++) {
		const struct hall_span *span = &hall->span[i];

		CHECK(s, old + add <= span->from || old >= span->from + span->add,
		      "an addition of %llu found %llu, one of %llu found %llu: they overlap",
		      LL(add), LL(old), LL(span->add), LL(span->from));
	}
	CHECK(s, !hall->closed || old + add <= hall->last_sum,
	      "an addition of %llu found %llu, but the sum was %llu in the end", LL(add), LL(old),
	      LL(hall->last_sum));
	hall->span = swarm_grow(hall->span, hall->n_spans, &hall->cap_spans, sizeof(*hall->span));
	hall->span[hall->n_spans++] = (struct hall_span){.from = old, .add = add};
}

void hall_faa_done(struct swarm *s, struct hall *hall, const struct request *req, uint64_t old)
{
	const uint64_t most = hall->sum_ok + hall->sum_maybe - req->add;

	CHECK(s, old >= req->low && old <= most, "an addition found %llu, not %llu to %llu",
	      LL(old), LL(req->low), LL(most));
	hall->sum_ok += req->add;
	hall->sum_maybe -= req->add;
	add_span(s, hall, old, req->add);
}

void hall_cpu_added(struct swarm *s, struct hall *hall, uint64_t old, uint64_t add)
{
	const uint64_t most = hall->sum_ok + hall->sum_maybe;

	CHECK(s, old >= hall->sum_ok && old <= most,
	      "the CPU's addition found %llu, not %llu to %llu", LL(old), LL(hall->sum_ok),
	      LL(most));
	hall->sum_ok += add;
	add_span(s, hall, old, add);
}

/* A value that was there: somebody put it there, and nobody had replaced it before tick. */
static void check_value(struct swarm *s, const struct hall *hall, uint64_t value, uint64_t tick)
{
	CHECK(s, value < hall->n_values, "a CAS found %llu, which nobody wrote", LL(value));
	CHECK(s, !hall->value[value].refused,
	      "a CAS found %llu, but the one that offered it failed", LL(value));
	CHECK(s, !hall->value[value].taken_tick || hall->value[value].taken_tick > tick,
	      "a CAS found %llu, which had been replaced", LL(value));
}

void hall_cas_done(struct swarm *s, struct hall *hall, const struct request *req, uint64_t old)
{
	check_value(s, hall, old, req->tick);
	if (old != req->add) {
		hall->value[req->swap].refused = true;
		hall->known = old;
		return;
	}
	CHECK(s, !hall->value[old].taken_tick, "two CAS replaced the value %llu", LL(old));
	hall->value[old].taken_tick = ++s->tick;
	hall->known = req->swap;
}

void hall_close(struct swarm *s, struct hall *hall, const uint64_t *words)
{
	const uint64_t sum = words[HALL_FAA], most = hall->sum_ok + hall->sum_maybe;

	CHECK(s, sum >= hall->sum_ok && sum <= most, "additions came to %llu, not %llu to %llu",
	      LL(sum), LL(hall->sum_ok), LL(most));
	check_value(s, hall, words[HALL_CAS], s->tick);
	for (uint32_t i = 0; i < hall->n_spans; i++)
		CHECK(s, hall->span[i].from + hall->span[i].add <= sum,
		      "additions came to %llu, but one found %llu", LL(sum),
		      LL(hall->span[i].from));
	hall->closed = true;
	hall->last_sum = sum;
}
