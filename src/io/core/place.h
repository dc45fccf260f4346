/* SPDX-License-Identifier: MIT */
/*
 * io: placement of copies on donors. Of two random donors the one with more free memory is taken:
 * nearly as even as looking at all of them, and clients that decide at the same time from the same
 * numbers do not all choose the same donor.
 */
#ifndef GN_IO_CORE_PLACE_H
#define GN_IO_CORE_PLACE_H

#include <stdint.h>

/* The k-th of the n donors with free memory. */
static inline unsigned place_nth(const uint64_t *free_slabs, unsigned n, unsigned k)
{
	for (unsigned i = 0; i < n; i++)
		if (free_slabs[i] && k-- == 0)
			return i;
	return n;
}

/* Returns the index of a donor, or n if none has free memory. */
static inline unsigned io_place(const uint64_t *free_slabs, unsigned n, uint64_t random)
{
	unsigned with = 0, a, b;

	for (unsigned i = 0; i < n; i++)
		with += free_slabs[i] != 0;
	if (!with)
		return n;
	a = place_nth(free_slabs, n, (unsigned)((random & 0xffffffffu) % with));
	b = place_nth(free_slabs, n, (unsigned)((random >> 32) % with));
	return free_slabs[b] > free_slabs[a] ? b : a;
}

/* The donor with most free memory, or n: finds places for all copies where there are any. */
static inline unsigned io_place_most(const uint64_t *free_slabs, unsigned n)
{
	unsigned best = n;

	for (unsigned i = 0; i < n; i++)
		if (free_slabs[i] && (best == n || free_slabs[i] > free_slabs[best]))
			best = i;
	return best;
}

#endif
