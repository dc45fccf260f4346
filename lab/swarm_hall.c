/* SPDX-License-Identifier: MIT */
/*
 * Atomics. Every process has two words that all its peers reach: to one they only add, the other
 * they replace by values that are used once. So an addition owns the span of values from the one it
 * found, and no two spans overlap; and no value is replaced twice.
 */
#include <assert.h>
#include <stdlib.h>

#include "swarm_model.h"

struct hall *hall_create(struct swarm *s)
{
	struct hall *hall = calloc(1, sizeof(*hall));

	assert(hall);
	hall->next = s->halls;
	s->halls = hall;
	return hall;
}

void hall_fini(struct hall *hall)
{
	free(hall->span);
	free(hall->taken);
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
	req->swap = ++hall->issued;
}

static void add_span(struct swarm *s, struct hall *hall, uint64_t old, uint64_t add)
{
	for (uint32_t i = 0; i < hall->n_spans; i++) {
		const struct hall_span *span = &hall->span[i];

		CHECK(s, old + add <= span->from || old >= span->from + span->add,
		      "an addition of %llu found %llu, one of %llu found %llu: they overlap",
		      (unsigned long long)add, (unsigned long long)old,
		      (unsigned long long)span->add, (unsigned long long)span->from);
	}
	CHECK(s, !hall->closed || old + add <= hall->last_sum,
	      "an addition of %llu found %llu, but the sum was %llu in the end",
	      (unsigned long long)add, (unsigned long long)old, (unsigned long long)hall->last_sum);
	hall->span = swarm_grow(hall->span, hall->n_spans, &hall->cap_spans, sizeof(*hall->span));
	hall->span[hall->n_spans++] = (struct hall_span){.from = old, .add = add};
}

void hall_faa_done(struct swarm *s, struct hall *hall, const struct request *req, uint64_t old)
{
	const uint64_t most = hall->sum_ok + hall->sum_maybe - req->add;

	CHECK(s, old >= req->low && old <= most, "an addition found %llu, not %llu to %llu",
	      (unsigned long long)old, (unsigned long long)req->low, (unsigned long long)most);
	hall->sum_ok += req->add;
	hall->sum_maybe -= req->add;
	add_span(s, hall, old, req->add);
}

void hall_cpu_added(struct swarm *s, struct hall *hall, uint64_t old, uint64_t add)
{
	const uint64_t most = hall->sum_ok + hall->sum_maybe;

	CHECK(s, old >= hall->sum_ok && old <= most,
	      "the CPU's addition found %llu, not %llu to %llu", (unsigned long long)old,
	      (unsigned long long)hall->sum_ok, (unsigned long long)most);
	hall->sum_ok += add;
	add_span(s, hall, old, add);
}

void hall_cas_done(struct swarm *s, struct hall *hall, const struct request *req, uint64_t old)
{
	CHECK(s, old <= hall->issued, "a CAS found %llu, which nobody wrote: the last is %llu",
	      (unsigned long long)old, (unsigned long long)hall->issued);
	hall->known = old;
	if (old != req->add)
		return;
	for (uint32_t i = 0; i < hall->n_taken; i++)
		CHECK(s, hall->taken[i] != old, "two CAS replaced the value %llu",
		      (unsigned long long)old);
	hall->taken =
		swarm_grow(hall->taken, hall->n_taken, &hall->cap_taken, sizeof(*hall->taken));
	hall->taken[hall->n_taken++] = old;
	hall->known = req->swap;
}

void hall_close(struct swarm *s, struct hall *hall, const uint64_t *words)
{
	const uint64_t sum = words[HALL_FAA], most = hall->sum_ok + hall->sum_maybe;

	CHECK(s, sum >= hall->sum_ok && sum <= most, "additions came to %llu, not %llu to %llu",
	      (unsigned long long)sum, (unsigned long long)hall->sum_ok, (unsigned long long)most);
	CHECK(s, words[HALL_CAS] <= hall->issued, "the CAS word is %llu: the last offered is %llu",
	      (unsigned long long)words[HALL_CAS], (unsigned long long)hall->issued);
	for (uint32_t i = 0; i < hall->n_spans; i++)
		CHECK(s, hall->span[i].from + hall->span[i].add <= sum,
		      "additions came to %llu, but one found %llu", (unsigned long long)sum,
		      (unsigned long long)hall->span[i].from);
	hall->closed = true;
	hall->last_sum = sum;
}
