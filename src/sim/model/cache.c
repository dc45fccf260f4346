/* SPDX-License-Identifier: MIT */
/*
 * A card's cache of connection contexts and address translations (its ICM), by size in units: a
 * requester's context is larger than a responder's. Eviction is LRU.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/fail.h"
#include "sim/model/model.h"

#define NONE UINT32_MAX

struct sim_cache_entry {
	uint64_t key;
	uint32_t units;
	uint32_t before, after; /* LRU order */
	uint32_t chain;		/* in its bucket, or in the free list */
};

int sim_cache_init(struct sim_cache *cache, uint64_t units)
{
	uint32_t buckets = 16;

	*cache = (struct sim_cache){.units = units, .first = NONE, .last = NONE, .free = NONE};
	if (!units)
		return 0;
	while (buckets < units * 2)
		buckets *= 2;
	cache->entries = calloc(units, sizeof(*cache->entries));
	cache->buckets = malloc(buckets * sizeof(*cache->buckets));
	if (!cache->entries || !cache->buckets) {
		sim_cache_fini(cache);
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	}
	cache->mask = buckets - 1;
	for (uint32_t i = 0; i < buckets; i++)
		cache->buckets[i] = NONE;
	return 0;
}

void sim_cache_fini(struct sim_cache *cache)
{
	free(cache->entries);
	free(cache->buckets);
	cache->entries = NULL;
	cache->buckets = NULL;
}

static uint32_t *cache_bucket_of(const struct sim_cache *cache, uint64_t key)
{
	return &cache->buckets[sim_mix(key) & cache->mask];
}

static void cache_unlink(struct sim_cache *cache, const struct sim_cache_entry *e)
{
	if (e->before == NONE)
		cache->first = e->after;
	else
		cache->entries[e->before].after = e->after;
	if (e->after == NONE)
		cache->last = e->before;
	else
		cache->entries[e->after].before = e->before;
}

static void cache_link_first(struct sim_cache *cache, uint32_t i)
{
	struct sim_cache_entry *e = &cache->entries[i];

	e->before = NONE;
	e->after = cache->first;
	if (cache->first == NONE)
		cache->last = i;
	else
		cache->entries[cache->first].before = i;
	cache->first = i;
}

static void cache_evict_last(struct sim_cache *cache)
{
	const uint32_t i = cache->last;
	struct sim_cache_entry *e = &cache->entries[i];
	uint32_t *at = cache_bucket_of(cache, e->key);

	while (*at != i)
		at = &cache->entries[*at].chain;
	*at = e->chain;
	cache_unlink(cache, e);
	cache->used -= e->units;
	e->chain = cache->free;
	cache->free = i;
}

/* There is always an entry: each takes at least one unit. */
static uint32_t cache_take_entry(struct sim_cache *cache)
{
	const uint32_t i = cache->free;

	if (i == NONE)
		return cache->n_entries++;
	cache->free = cache->entries[i].chain;
	return i;
}

bool sim_cache_touch(struct sim_cache *cache, uint64_t key, uint32_t units)
{
	uint32_t *bucket, i;

	if (!cache->units)
		return true;
	bucket = cache_bucket_of(cache, key);
	for (i = *bucket; i != NONE; i = cache->entries[i].chain) {
		if (cache->entries[i].key != key)
			continue;
		if (cache->first != i) {
			cache_unlink(cache, &cache->entries[i]);
			cache_link_first(cache, i);
		}
		return true;
	}
	while (cache->used + units > cache->units)
		cache_evict_last(cache);
	i = cache_take_entry(cache);
	cache->entries[i] = (struct sim_cache_entry){.key = key, .units = units, .chain = *bucket};
	*bucket = i;
	cache_link_first(cache, i);
	cache->used += units;
	return false;
}

int sim_set_init(struct sim_set *set, uint64_t units)
{
	*set = (struct sim_set){.units = units};
	return sim_cache_init(&set->used, 2 * units);
}

void sim_set_fini(struct sim_set *set)
{
	sim_cache_fini(&set->used);
}

/*
 * Qps are used in turn, so the next one was used longest ago, and has just been evicted from a full
 * cache. With n units in use of which c fit, the share of misses is 2 (n - c) / n, at most 1. It is
 * kept exactly by a running debt: the order of posts makes no difference.
 */
bool sim_set_gone(struct sim_set *set, uint64_t key, uint32_t units)
{
	if (!set->units)
		return false;
	if (!sim_cache_touch(&set->used, key, units))
		return true;
	if (set->used.used <= set->units)
		return false;
	set->debt += 2 * (set->used.used - set->units);
	if (set->debt < set->used.used)
		return false;
	set->debt -= set->used.used;
	return true;
}
