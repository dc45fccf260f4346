/* SPDX-License-Identifier: MIT */
/* The merge plan: finds the work request that a piece continues, precedes, or joins to another. */
#include "io/core/plan.h"
#include "base/mutant.h"

/* The bit of an address in a filter. Requests mostly begin at multiples of a sector or a page. */
static inline uint32_t plan_bit(uint32_t key, uint64_t address)
{
	const uint32_t sector = (uint32_t)(address >> 9);

	return (sector ^ sector >> 8 ^ (uint32_t)address ^ key) % (IO_PLAN_WORDS * 64);
}

static inline void plan_note(uint64_t *filter, uint32_t key, uint64_t address)
{
	const uint32_t bit = plan_bit(key, address);

	filter[bit / 64] |= UINT64_C(1) << bit % 64;
}

static inline uint64_t planned_end(const struct io_planned *wr)
{
	return wr->start + wr->len_bytes;
}

/* The work request that ends (or begins) at address, or NULL. */
static inline struct io_planned *plan_find(struct io_plan *plan, const uint64_t *filter, bool ends,
					   uint32_t key, uint64_t address)
{
	const uint32_t bit = plan_bit(key, address);

	if (!(filter[bit / 64] >> bit % 64 & 1))
		return NULL;
	for (uint32_t i = plan->n; i--;) {
		struct io_planned *wr = &plan->wr[i];

		if ((ends ? planned_end(wr) : wr->start) == address && wr->key == key && wr->first)
			return wr;
	}
	return NULL;
}

static bool plan_fits(const struct io_planned *wr, uint32_t n_sge, uint32_t len_bytes,
		      const struct io_plan_limits *limits)
{
	return wr->n_sge + n_sge <= limits->sges && len_bytes <= limits->bytes &&
	       wr->len_bytes <= limits->bytes - len_bytes;
}

static void planned_append(struct io_planned *wr, struct io_piece *first, struct io_piece *last,
			   uint32_t n_sge, uint32_t len_bytes)
{
	wr->last->next = first;
	wr->last = last;
	wr->n_sge += n_sge;
	wr->len_bytes += len_bytes;
}

/* The piece closed the gap between wr and next: next becomes a part of wr. */
static void plan_join(struct io_plan *plan, struct io_planned *wr, struct io_planned *next)
{
	const uint32_t last = plan->n - 1;

	planned_append(wr, next->first, next->last, next->n_sge, next->len_bytes);
	plan_note(plan->ends, wr->key, planned_end(wr));
	next->first = NULL;
	if (next == &plan->wr[last])
		plan->n = last;
}

static bool plan_merge(struct io_plan *plan, struct io_piece *piece,
		       const struct io_plan_limits *limits)
{
	const uint64_t end = piece->start + piece->len_bytes;
	struct io_planned *before, *after;

	before = plan_find(plan, plan->ends, true, piece->key, piece->start);
	if (mutant("io-merge-gap", piece->start / 512) && plan->wr[plan->n - 1].first)
		before = &plan->wr[plan->n - 1];
	after = plan_find(plan, plan->starts, false, piece->key, end);
	if (before && plan_fits(before, piece->n_sge, piece->len_bytes, limits)) {
		planned_append(before, piece, piece, piece->n_sge, piece->len_bytes);
		plan_note(plan->ends, piece->key, end);
		if (after && after != before &&
		    plan_fits(before, after->n_sge, after->len_bytes, limits))
			plan_join(plan, before, after);
		return true;
	}
	if (after && plan_fits(after, piece->n_sge, piece->len_bytes, limits)) {
		piece->next = after->first;
		after->first = piece;
		after->start = piece->start;
		after->n_sge += piece->n_sge;
		after->len_bytes += piece->len_bytes;
		plan_note(plan->starts, piece->key, piece->start);
		return true;
	}
	return false;
}

bool io_plan_add(struct io_plan *plan, struct io_piece *piece, const struct io_plan_limits *limits)
{
	struct io_planned *wr;

	piece->next = NULL;
	if (limits->merge && plan->n) {
		if (plan->n == 1 && plan->wr[0].first == plan->wr[0].last) {
			/* The second piece: from now on the filters are used. */
			__builtin_memset(plan->ends, 0, sizeof(plan->ends));
			__builtin_memset(plan->starts, 0, sizeof(plan->starts));
			plan_note(plan->ends, plan->wr[0].key, planned_end(&plan->wr[0]));
			plan_note(plan->starts, plan->wr[0].key, plan->wr[0].start);
		}
		if (plan_merge(plan, piece, limits))
			return true;
	}
	if (plan->n >= limits->wrs || plan->n >= IO_PLAN_WRS)
		return false;
	wr = &plan->wr[plan->n];
	*wr = (struct io_planned){.first = piece,
				  .last = piece,
				  .start = piece->start,
				  .key = piece->key,
				  .len_bytes = piece->len_bytes,
				  .n_sge = piece->n_sge};
	if (limits->merge && plan->n) {
		plan_note(plan->ends, wr->key, planned_end(wr));
		plan_note(plan->starts, wr->key, wr->start);
	}
	plan->n++;
	return true;
}
