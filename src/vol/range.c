/* SPDX-License-Identifier: MIT */
/*
 * Locks of ranges, and of the map. The ranges of a bucket are a list in the order of arrival. A
 * range is locked when no earlier one in the list conflicts with it, so nobody starves.
 */
#include "vol/vol.h"

#define YIELDS_MAX 16u
#define NAP_US	   20u

/*
 * The holder may have been preempted. If the core is busy, a thread gives up its time slice with
 * each yield (1.4 ms beside one other thread, Linux 6.18) and comes back last: one that yields in a
 * loop hardly runs. So it sleeps instead.
 */
void vol_bucket_await(struct vol_bucket *bucket)
{
	for (unsigned tries = 0; !vol_bucket_try(bucket); tries++)
		if (tries < YIELDS_MAX)
			gn_yield();
		else
			gn_sleep_us(NAP_US);
}

void vol_map_lock(struct gn_vol *vol)
{
	for (unsigned i = 0; i < VOL_BUCKETS; i++)
		vol_bucket_lock(&vol->buckets[i]);
}

void vol_map_unlock(struct gn_vol *vol)
{
	for (unsigned i = 0; i < VOL_BUCKETS; i++)
		vol_bucket_unlock(&vol->buckets[i]);
}

static bool range_conflicts(const struct vol_range *a, const struct vol_range *b)
{
	return a->start < b->end && b->start < a->end && (a->exclusive || b->exclusive);
}

static bool range_is_free(const struct vol_bucket *bucket, const struct vol_range *range)
{
	for (const struct vol_range *r = bucket->first; r != range; r = r->next)
		if (range_conflicts(r, range))
			return false;
	return true;
}

bool vol_range_lock_behind(struct vol_bucket *bucket, struct vol_range *range,
			   struct gn_io_queue *queue)
{
	range->granted = range_is_free(bucket, range);
	if (!range->granted) {
		/* The queue has space for it: an op that waits has no other request. */
		int rc = gn_io_expect(queue, range->wake);

		assert(!rc);
		(void)rc;
	}
	return range->granted;
}

void vol_range_unlock_others(struct vol_bucket *bucket, struct vol_range *range)
{
	struct vol_range *const rest = range->next;

	*range->prev = rest;
	if (rest)
		rest->prev = range->prev;
	else
		bucket->last = range->prev;
	for (struct vol_range *r = rest; r; r = r->next) {
		if (r->granted || !range_conflicts(range, r) || !range_is_free(bucket, r))
			continue;
		r->granted = true;
		gn_io_end(r->wake, 0);
	}
}
