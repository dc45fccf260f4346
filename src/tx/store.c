/* SPDX-License-Identifier: MIT */
/*
 * A partition's records: a hash table of chains that grows one bucket at a time (linear hashing),
 * so that no insert takes long, and memory in size classes.
 */
#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bits.h"
#include "base/list.h"
#include "gannet/exec.h"
#include "tx/store.h"

#define CLASS_STEP    32u /* bytes: classes up to SMALL_MAX */
#define SMALL_MAX     512u
#define LARGE_STEP    256u
#define CLASSES	      (SMALL_MAX / CLASS_STEP + (4608u - SMALL_MAX) / LARGE_STEP)
#define CHUNK_BYTES   16384u /* taken from the heap at a time */
#define CHUNK_HEAD    64u
#define SEGMENT_FIRST 64u /* buckets; each segment has as many as all before it */
#define SEGMENTS_MAX  32u
#define SCAN_BUCKETS  16u /* of one tx_store_scan() */
#define ABSENT_BYTES  ((uint32_t)sizeof(struct tx_absent))

struct free_block {
	struct free_block *next;
};

/* Memory of one class, aligned to its size. */
struct chunk {
	struct chunk *next, **prev; /* of its class, or of full ones */
	struct free_block *free;
	uint32_t used, class; /* blocks in use */
};
static_assert(sizeof(struct chunk) <= CHUNK_HEAD, "blocks begin behind it");

struct tx_store {
	struct tx_record **segment[SEGMENTS_MAX];
	uint64_t n_buckets,
		split_mask; /* mask of the round: buckets below n - mask - 1 were split */
	uint64_t n_records; /* of all states */
	uint64_t n_tombstones, n_lock_only, n_locked;
	uint64_t floor;
	struct tx_record *absents;
	uint64_t bytes, max_bytes;
	struct chunk *full;
	struct chunk *partial[CLASSES]; /* with free blocks */
};

/* ---- memory ---- */

static uint32_t class_of(uint32_t bytes)
{
	if (bytes <= SMALL_MAX)
		return (bytes + CLASS_STEP - 1) / CLASS_STEP - 1;
	return SMALL_MAX / CLASS_STEP + (bytes - SMALL_MAX + LARGE_STEP - 1) / LARGE_STEP - 1;
}

static uint32_t class_bytes(uint32_t class)
{
	const uint32_t small = SMALL_MAX / CLASS_STEP;

	return class < small ? (class + 1) * CLASS_STEP :
			       SMALL_MAX + (class - small + 1) * LARGE_STEP;
}

static void *store_take(struct tx_store *store, size_t bytes, size_t align)
{
	void *at = store->bytes + bytes <= store->max_bytes ? gn_alloc(bytes, align) : NULL;

	if (at)
		store->bytes += bytes;
	return at;
}

static struct chunk *chunk_add(struct tx_store *store, uint32_t class)
{
	struct chunk *chunk = store_take(store, CHUNK_BYTES, CHUNK_BYTES);
	const uint32_t bytes = class_bytes(class);

	if (!chunk)
		return NULL;
	chunk->class = class;
	for (uint32_t at = CHUNK_HEAD; at + bytes <= CHUNK_BYTES; at += bytes) {
		struct free_block *block = (void *)((char *)chunk + at);

		block->next = chunk->free;
		chunk->free = block;
	}
	list_push(&store->partial[class], chunk);
	return chunk;
}

static void *block_take(struct tx_store *store, uint32_t class)
{
	struct chunk *chunk = store->partial[class];
	struct free_block *block;

	if (!chunk)
		chunk = chunk_add(store, class);
	if (!chunk)
		return NULL;
	block = chunk->free;
	chunk->free = block->next;
	chunk->used++;
	if (!chunk->free) {
		list_remove(chunk);
		list_push(&store->full, chunk);
	}
	return block;
}

/* A chunk without blocks in use goes back, so that records of other sizes can have its memory. */
static void record_free(struct tx_store *store, struct tx_record *record)
{
	struct chunk *chunk = (void *)((uintptr_t)record & ~(uintptr_t)(CHUNK_BYTES - 1));
	struct free_block *block = (void *)record;

	if (!chunk->free) {
		list_remove(chunk);
		list_push(&store->partial[chunk->class], chunk);
	}
	block->next = chunk->free;
	chunk->free = block;
	if (--chunk->used)
		return;
	list_remove(chunk);
	gn_free(chunk);
	store->bytes -= CHUNK_BYTES;
}

static uint32_t record_bytes(uint32_t key_len, uint32_t value_len)
{
	const uint32_t value = value_len > ABSENT_BYTES ? value_len : ABSENT_BYTES;

	return (uint32_t)offsetof(struct tx_record, data) + ((key_len + 7u) & ~7u) + value;
}

static struct tx_record *record_alloc(struct tx_store *store, const struct tx_key *key,
				      uint32_t value_len)
{
	const uint32_t class = class_of(record_bytes(key->len, value_len));
	struct tx_record *record = block_take(store, class);

	if (!record)
		return NULL;
	*record = (struct tx_record){.hash = (uint32_t)key->hash,
				     .table = (uint16_t)key->table,
				     .key_len = (uint8_t)key->len,
				     .size_class = (uint8_t) class};
	memcpy(record->data, key->data, key->len);
	return record;
}

static uint8_t *record_value(struct tx_record *record)
{
	return record->data + ((record->key_len + 7u) & ~7u);
}

static struct tx_absent *record_absent(struct tx_record *record)
{
	return (void *)record_value(record);
}

/* ---- index ---- */

/* The smallest power of two of buckets is segment 0; each further segment doubles their number. */
static struct tx_record **bucket_at(const struct tx_store *store, uint64_t bucket)
{
	unsigned n;

	if (bucket < SEGMENT_FIRST)
		return &store->segment[0][bucket];
	n = (unsigned)(63 - __builtin_clzll(bucket / SEGMENT_FIRST));
	return &store->segment[n + 1][bucket - ((uint64_t)SEGMENT_FIRST << n)];
}

static uint64_t bucket_of(const struct tx_store *store, uint32_t hash)
{
	const uint64_t bucket = hash & (2 * store->split_mask + 1);

	return bucket < store->n_buckets ? bucket : hash & store->split_mask;
}

static bool segment_add(struct tx_store *store, uint64_t bucket)
{
	const unsigned n = (unsigned)(63 - __builtin_clzll(bucket / SEGMENT_FIRST)) + 1;

	if (store->segment[n])
		return true;
	store->segment[n] = store_take(store, bucket * sizeof(struct tx_record *), GN_CACHELINE);
	return store->segment[n] != NULL;
}

/* Splits the next bucket of the round. Without memory chains just grow. */
static void index_grow(struct tx_store *store)
{
	const uint64_t to = store->n_buckets, from = to - store->split_mask - 1;
	struct tx_record **at, **target;

	if (to > UINT32_MAX || ((to & (to - 1)) == 0 && !segment_add(store, to)))
		return;
	store->n_buckets++;
	at = bucket_at(store, from);
	target = bucket_at(store, to);
	*target = NULL;
	while (*at) {
		struct tx_record *record = *at;

		if (bucket_of(store, record->hash) == from) {
			at = &record->next;
			continue;
		}
		*at = record->next;
		record->next = *target;
		*target = record;
	}
	if (store->n_buckets == 2 * (store->split_mask + 1))
		store->split_mask = 2 * store->split_mask + 1;
}

static bool record_is(const struct tx_record *record, const struct tx_key *key)
{
	return record->hash == (uint32_t)key->hash && record->key_len == key->len &&
	       record->table == key->table && !memcmp(record->data, key->data, key->len);
}

/* The pointer to the key's record, or to the NULL at the end of its chain. */
static struct tx_record **index_place(const struct tx_store *store, const struct tx_key *key)
{
	struct tx_record **at = bucket_at(store, bucket_of(store, (uint32_t)key->hash));

	while (*at && !record_is(*at, key))
		at = &(*at)->next;
	return at;
}

struct tx_record *tx_store_find(const struct tx_store *store, const struct tx_key *key)
{
	return *index_place(store, key);
}

void tx_store_prefetch(const struct tx_store *store, uint64_t hash)
{
	__builtin_prefetch(bucket_at(store, bucket_of(store, (uint32_t)hash)));
}

uint64_t tx_key_hash(uint32_t table, const void *data, uint32_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed + table * UINT64_C(0x9e3779b97f4a7c15));
}

/* ---- states of a record ---- */

static void absents_add(struct tx_store *store, struct tx_record *record)
{
	struct tx_absent *absent = record_absent(record);

	*absent = (struct tx_absent){store->absents, &store->absents};
	if (absent->next)
		record_absent(absent->next)->prev = &absent->next;
	store->absents = record;
}

static void absents_remove(struct tx_record *record)
{
	const struct tx_absent absent = *record_absent(record);

	*absent.prev = absent.next;
	if (absent.next)
		record_absent(absent.next)->prev = absent.prev;
}

static uint64_t *state_count(struct tx_store *store, uint8_t state)
{
	return state == TX_TOMBSTONE ? &store->n_tombstones :
	       state == TX_LOCK_ONLY ? &store->n_lock_only :
				       NULL;
}

/* Leaves the value alone unless the record becomes absent. */
static void record_set_state(struct tx_store *store, struct tx_record *record, uint8_t state)
{
	uint64_t *from = state_count(store, record->state), *to = state_count(store, state);

	if (from)
		(*from)--;
	if (to)
		(*to)++;
	if (from && !to)
		absents_remove(record);
	if (to && !from)
		absents_add(store, record);
	if (to)
		record->value_len = 0;
	record->state = state;
}

static void record_set_lock(struct tx_store *store, struct tx_record *record, uint64_t id)
{
	store->n_locked -= record->lock != 0;
	store->n_locked += id != 0;
	record->lock = id;
}

/* A new record, present and without a value yet. */
static struct tx_record *record_insert(struct tx_store *store, const struct tx_key *key,
				       uint32_t value_len)
{
	struct tx_record *record = record_alloc(store, key, value_len), **at;

	if (!record)
		return NULL;
	if (++store->n_records > store->n_buckets)
		index_grow(store);
	at = bucket_at(store, bucket_of(store, record->hash));
	record->next = *at;
	*at = record;
	return record;
}

/* Removes an absent record that is not locked. */
static void record_remove(struct tx_store *store, struct tx_record **at)
{
	struct tx_record *record = *at;

	absents_remove(record);
	(*state_count(store, record->state))--;
	store->n_records--;
	*at = record->next;
	record_free(store, record);
}

/* ---- locks ---- */

uint64_t tx_store_floor(const struct tx_store *store)
{
	return store->floor;
}

static enum tx_found lock_without_record(struct tx_store *store, const struct tx_key *key,
					 uint64_t id, struct tx_record **out)
{
	struct tx_record *record = record_insert(store, key, 0);

	if (!record)
		return TX_NO_MEMORY;
	record->version = store->floor;
	record_set_state(store, record, TX_LOCK_ONLY);
	record_set_lock(store, record, id);
	*out = record;
	return TX_FOUND;
}

enum tx_found tx_store_lock(struct tx_store *store, const struct tx_key *key, enum tx_op op,
			    uint64_t id, struct tx_record **out)
{
	struct tx_record *record = tx_store_find(store, key);
	const bool present = record && record->state == TX_PRESENT;

	*out = record;
	if (record && record->lock && record->lock != id)
		return TX_LOCKED;
	if (op == TX_INSERT && present)
		return TX_EXISTS;
	if (op != TX_INSERT && !present)
		return TX_ABSENT;
	if (!record)
		return lock_without_record(store, key, id, out);
	record_set_lock(store, record, id);
	return TX_FOUND;
}

static void place_unlock(struct tx_store *store, struct tx_record **at)
{
	record_set_lock(store, *at, 0);
	if ((*at)->state == TX_LOCK_ONLY)
		record_remove(store, at);
}

bool tx_store_unlock(struct tx_store *store, const struct tx_key *key, uint64_t id)
{
	struct tx_record **at = index_place(store, key);

	if (!*at || !id || (*at)->lock != id)
		return false;
	place_unlock(store, at);
	return true;
}

uint64_t tx_store_unlock_all(struct tx_store *store, tx_store_keep *keep, void *arg)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < store->n_buckets && store->n_locked; i++) {
		struct tx_record **at = bucket_at(store, i);

		while (*at) {
			struct tx_record *record = *at;

			if (record->lock && !keep(arg, record->lock)) {
				place_unlock(store, at);
				n++;
			}
			if (*at == record)
				at = &record->next;
		}
	}
	return n;
}

/* ---- changes ---- */

/*
 * Other memory for a record whose value grows, or shrinks to less than half. A change to a smaller
 * value, or to none, never fails.
 */
static struct tx_record *record_resize(struct tx_store *store, struct tx_record **at,
				       const struct tx_key *key, uint32_t len)
{
	const uint32_t class = class_of(record_bytes(key->len, len));
	struct tx_record *old = *at, *record;

	if (class <= old->size_class &&
	    (!len || 2 * class_bytes(class) >= class_bytes(old->size_class)))
		return old;
	record = record_alloc(store, key, len);
	if (!record)
		return class < old->size_class ? old : NULL;
	record->next = old->next;
	record->lock = old->lock;
	record->version = old->version;
	record->state = old->state;
	if (old->state != TX_PRESENT) {
		absents_remove(old);
		absents_add(store, record);
	}
	*at = record;
	record_free(store, old);
	return record;
}

int tx_store_apply(struct tx_store *store, const struct tx_key *key, enum tx_op op,
		   uint64_t version, const void *value, uint32_t len)
{
	struct tx_record **at = index_place(store, key), *record = *at;

	if (version <= (record ? record->version : store->floor))
		return 1;
	if (op == TX_DELETE)
		len = 0;
	record = record ? record_resize(store, at, key, len) : record_insert(store, key, len);
	if (!record)
		return -ENOMEM;
	record->version = version;
	record_set_state(store, record, op == TX_DELETE ? TX_TOMBSTONE : TX_PRESENT);
	if (len)
		memcpy(record_value(record), value, len);
	record->value_len = (uint16_t)len;
	return 0;
}

/* ---- scans and tombstones ---- */

bool tx_store_scan(const struct tx_store *store, uint64_t *cursor, tx_store_visit *visit, void *arg)
{
	const uint64_t end = min_u64(*cursor + SCAN_BUCKETS, store->n_buckets);

	for (; *cursor < end; ++*cursor)
		for (const struct tx_record *record = *bucket_at(store, *cursor); record;
		     record = record->next)
			if (record->state != TX_LOCK_ONLY)
				visit(arg, record);
	return *cursor < store->n_buckets;
}

uint64_t tx_store_droppable(const struct tx_store *store)
{
	uint64_t newest = 0, bound = UINT64_MAX;

	for (struct tx_record *r = store->absents; r; r = record_absent(r)->next)
		if (r->lock)
			bound = min_u64(bound, r->version);
		else if (newest < r->version)
			newest = r->version;
	return min_u64(newest, bound);
}

void tx_store_drop_tombstones(struct tx_store *store, uint64_t floor)
{
	struct tx_record *next;

	for (struct tx_record *r = store->absents; r; r = next) {
		struct tx_record **at = bucket_at(store, bucket_of(store, r->hash));

		next = record_absent(r)->next;
		if (r->lock || r->state != TX_TOMBSTONE || r->version > floor)
			continue;
		while (*at != r)
			at = &(*at)->next;
		record_remove(store, at);
	}
	if (store->floor < floor)
		store->floor = floor;
}

void tx_store_query(const struct tx_store *store, struct tx_store_stats *out)
{
	*out = (struct tx_store_stats){
		.records = store->n_records - store->n_tombstones - store->n_lock_only,
		.tombstones = store->n_tombstones,
		.locked = store->n_locked,
		.bytes = store->bytes,
	};
}

/* ---- creation ---- */

int tx_store_create(uint64_t max_bytes, struct tx_store **out)
{
	struct tx_store *store = gn_alloc(sizeof(*store), GN_CACHELINE);

	if (!store)
		return -ENOMEM;
	store->max_bytes = max_bytes;
	store->n_buckets = SEGMENT_FIRST;
	store->split_mask = SEGMENT_FIRST - 1;
	store->segment[0] =
		store_take(store, SEGMENT_FIRST * sizeof(struct tx_record *), GN_CACHELINE);
	if (!store->segment[0]) {
		gn_free(store);
		return -ENOMEM;
	}
	*out = store;
	return 0;
}

static void chunks_free(struct chunk *chunk)
{
	struct chunk *next;

	for (; chunk; chunk = next) {
		next = chunk->next;
		gn_free(chunk);
	}
}

void tx_store_destroy(struct tx_store *store)
{
	if (!store)
		return;
	chunks_free(store->full);
	for (unsigned i = 0; i < CLASSES; i++)
		chunks_free(store->partial[i]);
	for (unsigned i = 0; i < SEGMENTS_MAX; i++)
		gn_free(store->segment[i]);
	gn_free(store);
}
