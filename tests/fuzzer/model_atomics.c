/* SPDX-License-Identifier: MIT */
/*
 * Atomics. Each process has two words that all its peers reach. FAA adds to one; so an addition owns
 * the span of values from the one that it found, and no two spans overlap. CAS replaces the other,
 * by values that are used once; so no value is replaced twice.
 */
#include <assert.h>
#include <stdlib.h>

#include "model.h"

#define LL(x) ((unsigned long long)(x))

static uint64_t atomics_new_value(struct atomics *atomics)
{
	atomics->value = array_grow(atomics->value, atomics->n_values, &atomics->cap_values,
				    sizeof(*atomics->value));
	atomics->value[atomics->n_values] = (struct atomics_value){0};
	return atomics->n_values++;
}

struct atomics *atomics_create(struct fuzz_run *run)
{
	struct atomics *atomics = calloc(1, sizeof(*atomics));

	assert(atomics);
	atomics->next = run->all_atomics;
	run->all_atomics = atomics;
	atomics_new_value(atomics);
	return atomics;
}

void atomics_fini(struct atomics *atomics)
{
	free(atomics->span);
	free(atomics->value);
}

void atomics_faa_posted(struct atomics *atomics, struct request *req, uint64_t add)
{
	req->add = add;
	req->low = atomics->sum_ok;
	atomics->sum_maybe += add;
}

void atomics_cas_posted(struct atomics *atomics, struct request *req, bool guess)
{
	req->add = guess ? req->seed | 1ull << 63 : atomics->known;
	req->swap = atomics_new_value(atomics);
}

static void atomics_add_span(struct fuzz_run *run, struct atomics *atomics, uint64_t old,
			     uint64_t add)
{
	for (uint32_t i = 0; i < atomics->n_spans; i++) {
		const struct atomics_span *span = &atomics->span[i];

		CHECK(run, old + add <= span->from || old >= span->from + span->add,
		      "an addition of %llu found %llu, one of %llu found %llu: they overlap",
		      LL(add), LL(old), LL(span->add), LL(span->from));
	}
	CHECK(run, !atomics->closed || old + add <= atomics->last_sum,
	      "an addition of %llu found %llu, but the sum was %llu in the end", LL(add), LL(old),
	      LL(atomics->last_sum));
	atomics->span = array_grow(atomics->span, atomics->n_spans, &atomics->cap_spans,
				   sizeof(*atomics->span));
	atomics->span[atomics->n_spans++] = (struct atomics_span){.from = old, .add = add};
}

void atomics_faa_done(struct fuzz_run *run, struct atomics *atomics, const struct request *req,
		      uint64_t old)
{
	const uint64_t most = atomics->sum_ok + atomics->sum_maybe - req->add;

	CHECK(run, old >= req->low && old <= most, "an addition found %llu, not %llu to %llu",
	      LL(old), LL(req->low), LL(most));
	atomics->sum_ok += req->add;
	atomics->sum_maybe -= req->add;
	atomics_add_span(run, atomics, old, req->add);
}

void atomics_cpu_added(struct fuzz_run *run, struct atomics *atomics, uint64_t old, uint64_t add)
{
	const uint64_t most = atomics->sum_ok + atomics->sum_maybe;

	CHECK(run, old >= atomics->sum_ok && old <= most,
	      "the CPU's addition found %llu, not %llu to %llu", LL(old), LL(atomics->sum_ok),
	      LL(most));
	atomics->sum_ok += add;
	atomics_add_span(run, atomics, old, add);
}

/* The word held this value after tick: a CAS put it there, and none had replaced it before. */
static void atomics_check_value(struct fuzz_run *run, const struct atomics *atomics, uint64_t value,
				uint64_t tick)
{
	CHECK(run, value < atomics->n_values, "a CAS found %llu, which was never written",
	      LL(value));
	CHECK(run, !atomics->value[value].refused,
	      "a CAS found %llu, but the one that offered it failed", LL(value));
	CHECK(run, !atomics->value[value].taken_tick || atomics->value[value].taken_tick > tick,
	      "a CAS found %llu, which had been replaced", LL(value));
}

void atomics_cas_done(struct fuzz_run *run, struct atomics *atomics, const struct request *req,
		      uint64_t old)
{
	atomics_check_value(run, atomics, old, req->tick);
	if (old != req->add) {
		atomics->value[req->swap].refused = true;
		atomics->known = old;
		return;
	}
	CHECK(run, !atomics->value[old].taken_tick, "two CAS replaced the value %llu", LL(old));
	atomics->value[old].taken_tick = ++run->tick;
	atomics->known = req->swap;
}

void atomics_close(struct fuzz_run *run, struct atomics *atomics, const uint64_t *words)
{
	const uint64_t sum = words[WORD_FAA], most = atomics->sum_ok + atomics->sum_maybe;

	CHECK(run, sum >= atomics->sum_ok && sum <= most,
	      "additions came to %llu, not %llu to %llu", LL(sum), LL(atomics->sum_ok), LL(most));
	atomics_check_value(run, atomics, words[WORD_CAS], run->tick);
	for (uint32_t i = 0; i < atomics->n_spans; i++)
		CHECK(run, atomics->span[i].from + atomics->span[i].add <= sum,
		      "additions came to %llu, but one found %llu", LL(sum),
		      LL(atomics->span[i].from));
	atomics->closed = true;
	atomics->last_sum = sum;
}
