/* SPDX-License-Identifier: MIT */
/*
 * A store with little memory, and the order in which its keys were used. When a bucket evicts a
 * key, few of the remaining keys may have been used before it: as many as were in front of it after
 * its last use, which leaves a key in the front half of its bucket, or at the front. While memory
 * is not short, a use may or may not be recorded (KV_USE_S). Keys that the log evicts in compaction
 * are dropped here too, without a check.
 */
#include "sim_kv_lru.h"

#include <stdio.h>
#include <stdlib.h>

#include "kv/bucket.h"

#define KEYS	  3000u
#define OPS	  6000u
#define VALUE_MAX 600u

struct lru {
	struct gn_kv_store *store;
	uint64_t rng;
	uint64_t clock;
	uint64_t hash[KEYS];
	uint64_t used[KEYS];	 /* when; 0: it does not exist */
	uint64_t recorded[KEYS]; /* … and that was certainly recorded */
	unsigned ahead[KEYS];	 /* keys that may have been in front of it then */
	uint32_t sizes[2];
	uint64_t evicted;
	uint8_t value[VALUE_MAX];
};

static uint32_t draw(struct lru *l, uint32_t below)
{
	l->rng = l->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((l->rng >> 32) % below);
}

static uint64_t *bucket_of(const struct lru *l, uint32_t key)
{
	return kv_bucket_of(l->store, l->hash[key]);
}

static unsigned bucket_items(const struct lru *l, uint32_t key)
{
	unsigned n = 0;

	for (uint64_t *line = bucket_of(l, key); line; line = kv_line_next(l->store, line))
		for (unsigned i = 0; i < kv_line_slots(line); i++)
			n += line[i] != 0;
	return n;
}

static void note_use(struct lru *l, uint32_t key, bool recorded)
{
	const unsigned items = bucket_items(l, key);

	l->used[key] = ++l->clock;
	if (!recorded)
		return;
	l->recorded[key] = l->clock;
	l->ahead[key] = items < 2 ? 0 : (items - 2) / 2;
}

static bool is_there(const struct lru *l, uint32_t key)
{
	return kv_find(l->store, l->hash[key], &key, sizeof(key));
}

static unsigned do_op(struct lru *l, enum gn_kv_verb verb, uint32_t key, unsigned how)
{
	uint8_t room[VALUE_MAX];
	struct gn_kv_op op = {.verb = verb,
			      .how = how,
			      .key = &key,
			      .key_len = sizeof(key),
			      .value = l->value,
			      .value_len = verb == GN_KV_SET ? l->sizes[draw(l, 2)] : 0,
			      .room = room,
			      .room_bytes = sizeof(room)};

	gn_kv_store_do(l->store, &op, 1);
	return op.status;
}

/* Keys that do not exist any more, of all buckets. */
static void forget_absent(struct lru *l)
{
	for (uint32_t i = 0; i < KEYS; i++)
		if (l->used[i] && !is_there(l, i))
			l->used[i] = 0;
}

/* A key of this one's bucket was evicted: which, and was it allowed? */
static bool check_evicted(struct lru *l, uint32_t key, char *why, size_t room)
{
	const uint64_t *bucket = bucket_of(l, key);
	uint32_t gone = KEYS;
	unsigned n = 0, older = 0;

	for (uint32_t i = 0; i < KEYS; i++)
		if (i != key && l->used[i] && bucket_of(l, i) == bucket && !is_there(l, i)) {
			gone = i;
			n++;
		}
	for (uint32_t i = 0; i < KEYS && n == 1; i++)
		older += i != key && l->used[i] && bucket_of(l, i) == bucket &&
			 l->used[i] < l->recorded[gone];
	if (n == 1 && older <= l->ahead[gone]) {
		l->used[gone] = 0;
		return true;
	}
	snprintf(why, room,
		 "a bucket lost %u keys for key %u: the last %u, used at %llu; %u that stay were "
		 "used before it, and %u were in front of it",
		 n, key, gone, (unsigned long long)(n ? l->used[gone] : 0), older,
		 n ? l->ahead[gone] : 0);
	return false;
}

static bool set_one(struct lru *l, uint32_t key, char *why, size_t room)
{
	const struct gn_kv_stats before = l->store->stats;
	const unsigned status = do_op(l, GN_KV_SET, key, 0);
	const struct gn_kv_stats *after = &l->store->stats;

	if (status != GN_KV_OK) {
		snprintf(why, room, "key %u is not stored: %s", key, gn_kv_status_str(status));
		return false;
	}
	if (after->evicted_bucket > before.evicted_bucket &&
	    after->evicted_log == before.evicted_log) {
		l->evicted++;
		if (!check_evicted(l, key, why, room))
			return false;
	}
	if (after->evicted_log > before.evicted_log)
		forget_absent(l);
	note_use(l, key, true);
	return true;
}

static bool step(struct lru *l, char *why, size_t room)
{
	const uint32_t key = draw(l, KEYS), dice = draw(l, 100);

	if (dice < 60)
		return set_one(l, key, why, room);
	if (dice < 95) {
		const bool quiet = dice < 70, recorded = l->store->recent_use == UINT32_MAX;
		const unsigned status = do_op(l, GN_KV_GET, key, quiet ? GN_KV_QUIET : 0);

		if ((status == GN_KV_OK) != (l->used[key] != 0)) {
			snprintf(why, room, "key %u: %s", key, gn_kv_status_str(status));
			return false;
		}
		if (status == GN_KV_OK && !quiet)
			note_use(l, key, recorded);
		return true;
	}
	do_op(l, GN_KV_DELETE, key, 0);
	l->used[key] = 0;
	return true;
}

bool kv_lru_check(uint64_t seed, uint64_t *evicted, char *why, size_t room)
{
	struct lru *l = calloc(1, sizeof(*l));
	const struct gn_kv_store_opts opts = {
		.size = sizeof(opts), .memory = GN_KV_MEMORY_MIN, .seed = seed};
	bool ok = l && !gn_kv_store_create(&opts, &l->store);

	if (!ok)
		snprintf(why, room, "there is no store");
	if (ok) {
		l->rng = seed;
		for (uint32_t i = 0; i < KEYS; i++)
			l->hash[i] = kv_hash(&i, sizeof(i), l->store->seed);
		/* Mostly of one size, so that a new item fits where an old one was. */
		l->sizes[0] = 100 + draw(l, VALUE_MAX - 100);
		l->sizes[1] = draw(l, 4) ? l->sizes[0] : 100 + draw(l, VALUE_MAX - 100);
	}
	for (unsigned i = 0; i < OPS && ok; i++)
		ok = step(l, why, room);
	if (l) {
		*evicted += l->evicted;
		gn_kv_store_destroy(l->store);
	}
	free(l);
	return ok;
}
