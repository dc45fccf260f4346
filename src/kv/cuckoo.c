/* SPDX-License-Identifier: MIT */
/*
 * A 3-way cuckoo table that clients READ while it changes. Invariants that clients rely on:
 *
 *  - an existing key is in one of its three entries, or in two, at any moment;
 *  - an intact entry (by its CRC) describes an item that existed with that content at that time;
 *  - an entry never has the same words again after it had others (entry.h).
 *
 * So if all entries of a new key are in use, items are moved out of the way from the far end: first
 * a path to a free entry is found, then the last item of the path is written to the free entry, and
 * only then is the item before it written over it. If there is no path, or the table is too full, a
 * table of twice the size is filled; then all entries of the old table are marked, before anything
 * else changes. A client that READs a mark requests the layout again. It need not check anything
 * else: while an entry has no mark, the new table has not changed since. Old tables are kept:
 * clients may still READ them, and other data there could be mistaken for entries.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/mutant.h"
#include "kv/cuckoo.h"
#include "kv/scan.h"

#define BYTES_PER_ENTRY 256u /* of memory per entry of the first table */
#define FULL_PCT	85u
#define PATH_DEPTH_MAX	16u
#define MUTANT_NS	20000u
#define ENTRY_WRITE_NS	25u /* simulated cost of half an entry */

/* ---- entries ---- */

static struct kv_table *current_table(const struct gn_kv_store *s)
{
	return &s->cuckoo->tables[s->cuckoo->n_tables - 1];
}

static void entry_write(struct kv_cuckoo *c, struct kv_entry *to, uint64_t tag, uint32_t loc,
			uint32_t bytes, uint64_t sum)
{
	const uint64_t number = ++c->number;
	struct kv_entry e = {
		.id = tag << KV_ENTRY_LOW_BITS | (number & ((1u << KV_ENTRY_LOW_BITS) - 1)),
		.where = loc | (uint64_t)(bytes / KV_UNIT) << 32 |
			 number >> KV_ENTRY_LOW_BITS << KV_ENTRY_HIGH,
		.sum = sum,
	};

	e.crc = kv_entry_crc(&e);
	/*
	 * Write the item before its entry, and what a lookup matches last: so most entries are
	 * intact when found.
	 */
	__atomic_store_n(&to->crc, e.crc, __ATOMIC_RELEASE);
	__atomic_store_n(&to->sum, e.sum, __ATOMIC_RELEASE);
	/* A thread may be preempted here; the mutant makes that likely. */
	gn_charge(GN_WORK_NS, mutant("kv-entry-crc", number) ? MUTANT_NS : ENTRY_WRITE_NS);
	__atomic_store_n(&to->where, e.where, __ATOMIC_RELEASE);
	__atomic_store_n(&to->id, e.id, __ATOMIC_RELEASE);
	gn_charge(GN_WORK_NS, ENTRY_WRITE_NS);
}

static void entry_clear(struct kv_cuckoo *c, struct kv_entry *to)
{
	entry_write(c, to, 0, 0, 0, 0);
}

static void entry_copy(struct kv_cuckoo *c, struct kv_entry *to, const struct kv_entry *from)
{
	entry_write(c, to, kv_entry_tag(from), kv_entry_loc(from), kv_entry_size(from), from->sum);
}

static void entry_write_item(struct gn_kv_store *s, struct kv_entry *to, uint64_t hash,
			     uint32_t loc)
{
	const struct kv_item *item = kv_item_at(s, loc);
	const uint32_t bytes = kv_item_bytes(item->lengths);

	gn_charge(GN_WORK_CHECKSUM, bytes);
	entry_write(s->cuckoo, to, kv_tag(hash), loc, bytes, kv_item_sum(item));
}

static struct kv_entry *entry_of_item(const struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	const struct kv_table *t = current_table(s);

	for (unsigned way = 0; way < KV_WAYS; way++) {
		struct kv_entry *e = &t->entries[kv_entry_index(kv_tag(hash), way, t->bits)];

		if (kv_entry_loc(e) == loc)
			return e;
	}
	return NULL;
}

/* ---- paths to a free entry ---- */

static bool path_contains(const struct kv_path_step *steps, uint32_t step, uint32_t at)
{
	for (;; step = steps[step].from) {
		if (steps[step].at == at)
			return true;
		if (steps[step].from == step)
			return false;
	}
}

static unsigned path_depth(const struct kv_path_step *steps, uint32_t step)
{
	unsigned n = 0;

	for (; steps[step].from != step; step = steps[step].from)
		n++;
	return n;
}

/*
 * Finds a shortest path from any of the key's entries, visiting at most max entries. Returns its
 * last step, or KV_PATH_ENTRIES_MAX.
 */
static uint32_t path_find(const struct kv_table *t, struct kv_path_step *steps, uint64_t tag,
			  uint32_t max)
{
	uint32_t n = 0;

	for (unsigned way = 0; way < KV_WAYS; way++) {
		steps[n] = (struct kv_path_step){kv_entry_index(tag, way, t->bits), n};
		if (!kv_entry_loc(&t->entries[steps[n].at]))
			return n;
		n++;
	}
	for (uint32_t i = 0; i < n && n < max; i++) {
		const uint64_t other = kv_entry_tag(&t->entries[steps[i].at]);

		for (unsigned way = 0; way < KV_WAYS && n < max; way++) {
			const uint32_t at = kv_entry_index(other, way, t->bits);

			if (path_contains(steps, i, at) || path_depth(steps, i) >= PATH_DEPTH_MAX)
				continue;
			steps[n] = (struct kv_path_step){at, i};
			if (!kv_entry_loc(&t->entries[at]))
				return n;
			n++;
		}
	}
	return KV_PATH_ENTRIES_MAX;
}

/*
 * Moves every item of the path by one step. Returns the first entry, which may be overwritten then.
 */
static struct kv_entry *path_shift(struct gn_kv_store *s, struct kv_cuckoo *c,
				   const struct kv_table *t, uint32_t step)
{
	for (; c->steps[step].from != step; step = c->steps[step].from) {
		struct kv_entry *from = &t->entries[c->steps[c->steps[step].from].at];
		struct kv_entry *to = &t->entries[c->steps[step].at];

		if (mutant("kv-cuckoo-clear-first", MUTANT_ALWAYS)) {
			const struct kv_entry was = *from;

			entry_clear(c, from);
			gn_charge(GN_WORK_NS, MUTANT_NS);
			entry_copy(c, to, &was);
		} else {
			entry_copy(c, to, from);
		}
		c->moved_to[c->moves++ % KV_MOVES_LOGGED] = c->steps[step].at;
		s->stats.kicks++;
	}
	return &t->entries[c->steps[step].at];
}

/* ---- growing ---- */

static int table_make(struct gn_kv_store *s, unsigned bits, struct kv_table *out)
{
	const uint64_t bytes = sizeof(struct kv_entry) << bits;
	int rc;

	if (!kv_log_shrink(s, bytes))
		return -ENOMEM;
	rc = gn_mem_alloc(s->cuckoo->fabric, bytes, GN_REMOTE_READ, &out->mem);
	if (rc) {
		kv_log_unshrink(s, bytes);
		return rc;
	}
	out->entries = gn_mem_addr(out->mem);
	out->bits = bits;
	s->cuckoo->bytes += bytes;
	return 0;
}

/*
 * Copies an entry to the new table. If there is no path to a free entry, which is very rare, the
 * item is dropped.
 */
static void table_carry_over(struct gn_kv_store *s, const struct kv_table *to,
			     const struct kv_entry *e)
{
	struct kv_cuckoo *c = s->cuckoo;
	const uint32_t path = path_find(to, c->steps, kv_entry_tag(e), KV_PATH_ENTRIES_MAX);

	if (path < KV_PATH_ENTRIES_MAX) {
		entry_copy(c, path_shift(s, c, to, path), e);
		return;
	}
	kv_count_dropped(s, kv_item_at(s, kv_entry_loc(e)), &s->stats.evicted_bucket);
	kv_log_remove(s, kv_entry_loc(e));
	s->stats.items--;
	c->used--;
}

static void table_mark_moved(struct kv_cuckoo *c, const struct kv_table *t)
{
	for (uint64_t i = 0; i < 1ull << t->bits; i++)
		entry_write(c, &t->entries[i], 0, 0, KV_ENTRY_MOVED * KV_UNIT, 0);
}

/* False: no memory. */
static bool table_grow(struct gn_kv_store *s)
{
	struct kv_cuckoo *c = s->cuckoo;
	struct kv_table *old = current_table(s), *new = old + 1;

	if (c->cannot_grow || c->n_tables == KV_TABLES_MAX || table_make(s, old->bits + 1, new)) {
		c->cannot_grow = true;
		return false;
	}
	for (uint64_t i = 0; i < 1ull << old->bits; i++)
		if (kv_entry_loc(&old->entries[i]))
			table_carry_over(s, new, &old->entries[i]);
	c->n_tables++;
	table_mark_moved(c, old);
	s->stats.splits++;
	return true;
}

/* ---- index operations ---- */

/* The least recently used of the key's three items. */
static struct kv_entry *pick_victim(struct gn_kv_store *s, uint64_t tag)
{
	const struct kv_table *t = current_table(s);
	struct kv_entry *oldest = NULL;

	for (unsigned way = 0; way < KV_WAYS; way++) {
		struct kv_entry *e = &t->entries[kv_entry_index(tag, way, t->bits)];

		if (!oldest || kv_item_at(s, kv_entry_loc(e))->used >> KV_ITEM_BITS <
				       kv_item_at(s, kv_entry_loc(oldest))->used >> KV_ITEM_BITS)
			oldest = e;
	}
	return oldest;
}

static bool table_too_full(const struct gn_kv_store *s)
{
	return (s->cuckoo->used + 1) * 100 > (uint64_t)FULL_PCT << current_table(s)->bits;
}

/*
 * Keys without a path in a table that is not full have similar tags: a larger table would not help.
 */
static bool table_worth_growing(const struct gn_kv_store *s)
{
	return s->cuckoo->used >= 1ull << current_table(s)->bits >> 1;
}

/* An entry for a new key; NULL: another key must be evicted. */
static struct kv_entry *make_free_entry(struct gn_kv_store *s, uint64_t tag)
{
	struct kv_cuckoo *c = s->cuckoo;
	uint32_t path;

	/* If the table is too full and cannot grow, a long search is not worth it. */
	if (table_too_full(s) && !table_grow(s))
		path = path_find(current_table(s), c->steps, tag, KV_WAYS);
	else
		path = path_find(current_table(s), c->steps, tag, KV_PATH_ENTRIES_MAX);
	if (path == KV_PATH_ENTRIES_MAX && table_worth_growing(s) && table_grow(s))
		path = path_find(current_table(s), c->steps, tag, KV_PATH_ENTRIES_MAX);
	return path < KV_PATH_ENTRIES_MAX ? path_shift(s, c, current_table(s), path) : NULL;
}

void kv_cuckoo_link(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	struct kv_entry *to = make_free_entry(s, kv_tag(hash));
	uint32_t victim;

	if (to) {
		entry_write_item(s, to, hash, loc);
		s->stats.items++;
		s->cuckoo->used++;
		return;
	}
	to = pick_victim(s, kv_tag(hash));
	victim = kv_entry_loc(to);
	entry_write_item(s, to, hash, loc);
	kv_count_dropped(s, kv_item_at(s, victim), &s->stats.evicted_bucket);
	kv_log_remove(s, victim);
}

uint32_t kv_cuckoo_find(struct gn_kv_store *s, uint64_t hash, const void *key, uint32_t key_len)
{
	const struct kv_table *t = current_table(s);

	for (unsigned way = 0; way < KV_WAYS; way++) {
		const struct kv_entry *e = &t->entries[kv_entry_index(kv_tag(hash), way, t->bits)];
		const uint32_t loc = kv_entry_loc(e);

		if (loc && kv_entry_tag(e) == kv_tag(hash) &&
		    (kv_key_is(kv_item_at(s, loc), key, key_len) || mutant("kv-key-compare", hash)))
			return loc;
	}
	return 0;
}

void kv_cuckoo_relink(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to)
{
	struct kv_entry *e = entry_of_item(s, hash, from);

	if (e)
		entry_write_item(s, e, hash, to);
}

void kv_cuckoo_unlink(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	struct kv_entry *e = entry_of_item(s, hash, loc);

	if (!e)
		return;
	entry_clear(s->cuckoo, e);
	s->cuckoo->used--;
	s->stats.items--;
}

void kv_cuckoo_clear(struct gn_kv_store *s)
{
	const struct kv_table *t = current_table(s);

	for (uint64_t i = 0; i < 1ull << t->bits; i++)
		if (kv_entry_loc(&t->entries[i]))
			entry_clear(s->cuckoo, &t->entries[i]);
	s->cuckoo->used = 0;
	s->stats.items = 0;
}

void kv_cuckoo_prefetch_entries(const struct gn_kv_store *s, uint64_t hash)
{
	const struct kv_table *t = current_table(s);

	for (unsigned way = 0; way < KV_WAYS; way++)
		__builtin_prefetch(&t->entries[kv_entry_index(kv_tag(hash), way, t->bits)], 1);
}

void kv_cuckoo_prefetch_item(const struct gn_kv_store *s, uint64_t hash)
{
	const struct kv_table *t = current_table(s);

	for (unsigned way = 0; way < KV_WAYS; way++) {
		const struct kv_entry *e = &t->entries[kv_entry_index(kv_tag(hash), way, t->bits)];

		if (kv_entry_loc(e) && kv_entry_tag(e) == kv_tag(hash))
			__builtin_prefetch(kv_item_at(s, kv_entry_loc(e)), 1);
	}
}

/* ---- scans ---- */

/* The mark of a cursor: the table's size and the number of moves. 0 is not a mark. */
#define MARK_BITS 6u

static uint64_t cursor_mark(const struct gn_kv_store *s, uint64_t moves)
{
	return moves << MARK_BITS | current_table(s)->bits;
}

static bool scan_add_entry(const struct gn_kv_store *s, uint64_t at, struct kv_page *page)
{
	const uint32_t loc = kv_entry_loc(&current_table(s)->entries[at]);

	return !loc || kv_page_add(s, page, kv_item_at(s, loc));
}

/* Adds keys that moved behind the cursor. False: the page is full. */
static bool scan_add_moved(const struct gn_kv_store *s, struct kv_cursor *cursor,
			   struct kv_page *page)
{
	const struct kv_cuckoo *c = s->cuckoo;

	for (uint64_t n = cursor->mark >> MARK_BITS; n < c->moves; n++) {
		const uint32_t at = c->moved_to[n % KV_MOVES_LOGGED];

		if (at < cursor->at && !scan_add_entry(s, at, page)) {
			cursor->mark = cursor_mark(s, n);
			return false;
		}
	}
	cursor->mark = cursor_mark(s, c->moves);
	return true;
}

int kv_cuckoo_scan(const struct gn_kv_store *s, struct kv_cursor *cursor, struct kv_page *page)
{
	const struct kv_cuckoo *c = s->cuckoo;
	const uint64_t entries = 1ull << current_table(s)->bits, seen = cursor->mark >> MARK_BITS;

	if (!cursor->at || (cursor->mark ^ cursor_mark(s, 0)) & ((1u << MARK_BITS) - 1) ||
	    seen > c->moves || c->moves - seen > KV_MOVES_LOGGED) {
		if (cursor->at && ++cursor->restarts > KV_SCAN_RESTARTS)
			return -EAGAIN;
		cursor->at = 0;
		cursor->mark = cursor_mark(s, c->moves);
	}
	if (!scan_add_moved(s, cursor, page))
		return 1;
	for (uint32_t visited = 0; cursor->at < entries; cursor->at++, visited++)
		if (visited == KV_SCAN_ENTRIES || !scan_add_entry(s, cursor->at, page))
			return 1;
	return 0;
}

int kv_cuckoo_make(struct gn_kv_store *s, struct gn_fabric *fabric)
{
	unsigned bits = 0;
	int rc;

	while (2ull * BYTES_PER_ENTRY << bits <= s->stats.memory)
		bits++;
	s->cuckoo = gn_alloc(sizeof(*s->cuckoo), 0);
	if (!s->cuckoo)
		return -ENOMEM;
	s->cuckoo->fabric = fabric;
	rc = table_make(s, bits, &s->cuckoo->tables[0]);
	s->cuckoo->n_tables = 1;
	return rc;
}

void kv_cuckoo_free(struct gn_kv_store *s)
{
	struct kv_cuckoo *c = s->cuckoo;

	for (unsigned i = 0; c && i < c->n_tables; i++)
		gn_mem_free(c->tables[i].mem);
	gn_free(c);
	s->cuckoo = NULL;
}
