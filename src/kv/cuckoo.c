/* SPDX-License-Identifier: MIT */
/*
 * A cuckoo table with three ways, which clients read while it changes. What they may rely on:
 *
 *  - a key that is there is in one of its three entries at any moment, or in two;
 *  - an entry that is whole (its CRC says so) tells of an item that was there with that content
 *    when the entry was;
 *  - an entry never has the same words twice, with others between (entry.h).
 *
 * So a new key whose entries are all taken moves others out of its way from the far end: first the
 * way to a free entry is found, then the last item on it is written to the free one, and only then
 * the one before it over it. When there is no way, or the table is too full, a table of twice the
 * size is filled; then all entries of the old one are marked, and only then anything else is done.
 * Who finds the mark asks the server where the table is now. Nobody need look for that elsewhere:
 * as long as an entry has no mark, nothing has happened since. Old tables stay: clients may read
 * them, and what came to lie there instead could pass for entries.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/mutant.h"
#include "kv/cuckoo.h"
#include "kv/scan.h"

#define BYTES_PER_ENTRY 256u /* of memory, for which the first table has an entry */
#define FULL_PCT	85u
#define PATH_DEEP	16u
#define MUTANT_NS	20000u
#define WRITE_NS	25u /* half of an entry, where time is simulated */

/* ---- entries ---- */

static struct kv_table *table_of(const struct gn_kv_store *s)
{
	return &s->cuckoo->tables[s->cuckoo->n_tables - 1];
}

static void write_entry(struct kv_cuckoo *c, struct kv_entry *to, uint64_t tag, uint32_t place,
			uint32_t bytes, uint64_t sum)
{
	const uint64_t number = ++c->number;
	struct kv_entry e = {
		.id = tag << KV_ENTRY_LOW_BITS | (number & ((1u << KV_ENTRY_LOW_BITS) - 1)),
		.where = place | (uint64_t)(bytes / KV_UNIT) << 32 |
			 number >> KV_ENTRY_LOW_BITS << KV_ENTRY_HIGH,
		.sum = sum,
	};

	e.crc = kv_entry_crc(&e);
	/* The item before its entry, and what it is found by last: so most are whole when found. */
	__atomic_store_n(&to->crc, e.crc, __ATOMIC_RELEASE);
	__atomic_store_n(&to->sum, e.sum, __ATOMIC_RELEASE);
	/* A thread may be put aside here; who looks for that defect gives it time to be. */
	gn_charge(GN_WORK_NS, mutant("kv-entry-crc", number) ? MUTANT_NS : WRITE_NS);
	__atomic_store_n(&to->where, e.where, __ATOMIC_RELEASE);
	__atomic_store_n(&to->id, e.id, __ATOMIC_RELEASE);
	gn_charge(GN_WORK_NS, WRITE_NS);
}

static void empty_entry(struct kv_cuckoo *c, struct kv_entry *to)
{
	write_entry(c, to, 0, 0, 0, 0);
}

static void copy_entry(struct kv_cuckoo *c, struct kv_entry *to, const struct kv_entry *from)
{
	write_entry(c, to, kv_entry_tag(from), kv_entry_place(from), kv_entry_size(from),
		    from->sum);
}

static void write_item(struct gn_kv_store *s, struct kv_entry *to, uint64_t hash, uint32_t place)
{
	const struct kv_item *item = kv_at(s, place);
	const uint32_t bytes = kv_item_bytes(item->lengths);

	gn_charge(GN_WORK_CHECKSUM, bytes);
	write_entry(s->cuckoo, to, kv_tag(hash), place, bytes, kv_item_sum(item));
}

static struct kv_entry *entry_with(const struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	const struct kv_table *t = table_of(s);

	for (unsigned way = 0; way < KV_WAYS; way++) {
		struct kv_entry *e = &t->entries[kv_entry_at(kv_tag(hash), way, t->bits)];

		if (kv_entry_place(e) == place)
			return e;
	}
	return NULL;
}

/* ---- a way to a free entry ---- */

static bool on_the_way(const struct kv_step *steps, uint32_t step, uint32_t at)
{
	for (;; step = steps[step].from) {
		if (steps[step].at == at)
			return true;
		if (steps[step].from == step)
			return false;
	}
}

static unsigned depth(const struct kv_step *steps, uint32_t step)
{
	unsigned n = 0;

	for (; steps[step].from != step; step = steps[step].from)
		n++;
	return n;
}

/*
 * The last step of a shortest way from any of the key's entries, after a look at most of them at
 * most, or KV_PATH_MAX.
 */
static uint32_t find_way(const struct kv_table *t, struct kv_step *steps, uint64_t tag,
			 uint32_t most)
{
	uint32_t n = 0;

	for (unsigned way = 0; way < KV_WAYS; way++) {
		steps[n] = (struct kv_step){kv_entry_at(tag, way, t->bits), n};
		if (!kv_entry_place(&t->entries[steps[n].at]))
			return n;
		n++;
	}
	for (uint32_t i = 0; i < n && n < most; i++) {
		const uint64_t other = kv_entry_tag(&t->entries[steps[i].at]);

		for (unsigned way = 0; way < KV_WAYS && n < most; way++) {
			const uint32_t at = kv_entry_at(other, way, t->bits);

			if (on_the_way(steps, i, at) || depth(steps, i) >= PATH_DEEP)
				continue;
			steps[n] = (struct kv_step){at, i};
			if (!kv_entry_place(&t->entries[at]))
				return n;
			n++;
		}
	}
	return KV_PATH_MAX;
}

/* Everything on the way moves on by one. The first entry, which may be overwritten then. */
static struct kv_entry *make_way(struct gn_kv_store *s, struct kv_cuckoo *c,
				 const struct kv_table *t, uint32_t step)
{
	for (; c->steps[step].from != step; step = c->steps[step].from) {
		struct kv_entry *from = &t->entries[c->steps[c->steps[step].from].at];
		struct kv_entry *to = &t->entries[c->steps[step].at];

		if (mutant("kv-cuckoo-clear-first", MUTANT_ALWAYS)) {
			const struct kv_entry was = *from;

			empty_entry(c, from);
			gn_charge(GN_WORK_NS, MUTANT_NS);
			copy_entry(c, to, &was);
		} else {
			copy_entry(c, to, from);
		}
		c->moved_to[c->moves++ % KV_MOVES_KEPT] = c->steps[step].at;
		s->stats.kicks++;
	}
	return &t->entries[c->steps[step].at];
}

/* ---- growing ---- */

static int make_table(struct gn_kv_store *s, unsigned bits, struct kv_table *out)
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

/* An item that has no entry in the new table; that is so rare that it may be forgotten. */
static void carry_over(struct gn_kv_store *s, const struct kv_table *to, const struct kv_entry *e)
{
	struct kv_cuckoo *c = s->cuckoo;
	const uint32_t way = find_way(to, c->steps, kv_entry_tag(e), KV_PATH_MAX);

	if (way < KV_PATH_MAX) {
		copy_entry(c, make_way(s, c, to, way), e);
		return;
	}
	kv_count_dropped(s, kv_at(s, kv_entry_place(e)), &s->stats.evicted_bucket);
	kv_log_kill(s, kv_entry_place(e));
	s->stats.items--;
	c->used--;
}

static void mark_moved(struct kv_cuckoo *c, const struct kv_table *t)
{
	for (uint64_t i = 0; i < 1ull << t->bits; i++)
		write_entry(c, &t->entries[i], 0, 0, KV_ENTRY_MOVED * KV_UNIT, 0);
}

/* False: there is no memory for it. */
static bool grow(struct gn_kv_store *s)
{
	struct kv_cuckoo *c = s->cuckoo;
	struct kv_table *old = table_of(s), *new = old + 1;

	if (c->stuck || c->n_tables == KV_TABLES_MAX || make_table(s, old->bits + 1, new)) {
		c->stuck = true;
		return false;
	}
	for (uint64_t i = 0; i < 1ull << old->bits; i++)
		if (kv_entry_place(&old->entries[i]))
			carry_over(s, new, &old->entries[i]);
	c->n_tables++;
	mark_moved(c, old);
	s->stats.splits++;
	return true;
}

/* ---- what an index does ---- */

/* Which of the three was used least recently: its item is forgotten. */
static struct kv_entry *evict(struct gn_kv_store *s, uint64_t tag)
{
	const struct kv_table *t = table_of(s);
	struct kv_entry *oldest = NULL;

	for (unsigned way = 0; way < KV_WAYS; way++) {
		struct kv_entry *e = &t->entries[kv_entry_at(tag, way, t->bits)];

		if (!oldest || kv_at(s, kv_entry_place(e))->used >> KV_ITEM_BITS <
				       kv_at(s, kv_entry_place(oldest))->used >> KV_ITEM_BITS)
			oldest = e;
	}
	return oldest;
}

static bool too_full(const struct gn_kv_store *s)
{
	return (s->cuckoo->used + 1) * 100 > (uint64_t)FULL_PCT << table_of(s)->bits;
}

/* Keys without a way in a table that is not full are alike: a larger one would not help them. */
static bool worth_growing(const struct gn_kv_store *s)
{
	return s->cuckoo->used >= 1ull << table_of(s)->bits >> 1;
}

/* Where a new key may be written; NULL: another has to go. */
static struct kv_entry *free_entry(struct gn_kv_store *s, uint64_t tag)
{
	struct kv_cuckoo *c = s->cuckoo;
	uint32_t way;

	/* A table that is too full, and cannot grow, is not worth a long search. */
	if (too_full(s) && !grow(s))
		way = find_way(table_of(s), c->steps, tag, KV_WAYS);
	else
		way = find_way(table_of(s), c->steps, tag, KV_PATH_MAX);
	if (way == KV_PATH_MAX && worth_growing(s) && grow(s))
		way = find_way(table_of(s), c->steps, tag, KV_PATH_MAX);
	return way < KV_PATH_MAX ? make_way(s, c, table_of(s), way) : NULL;
}

void kv_cuckoo_link(struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	struct kv_entry *to = free_entry(s, kv_tag(hash));
	uint32_t gone;

	if (to) {
		write_item(s, to, hash, place);
		s->stats.items++;
		s->cuckoo->used++;
		return;
	}
	to = evict(s, kv_tag(hash));
	gone = kv_entry_place(to);
	write_item(s, to, hash, place);
	kv_count_dropped(s, kv_at(s, gone), &s->stats.evicted_bucket);
	kv_log_kill(s, gone);
}

uint32_t kv_cuckoo_find(struct gn_kv_store *s, uint64_t hash, const void *key, uint32_t key_len)
{
	const struct kv_table *t = table_of(s);

	for (unsigned way = 0; way < KV_WAYS; way++) {
		const struct kv_entry *e = &t->entries[kv_entry_at(kv_tag(hash), way, t->bits)];
		const uint32_t place = kv_entry_place(e);

		if (place && kv_entry_tag(e) == kv_tag(hash) &&
		    (kv_key_is(kv_at(s, place), key, key_len) || mutant("kv-key-compare", hash)))
			return place;
	}
	return 0;
}

void kv_cuckoo_relink(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to)
{
	struct kv_entry *e = entry_with(s, hash, from);

	if (e)
		write_item(s, e, hash, to);
}

void kv_cuckoo_unlink(struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	struct kv_entry *e = entry_with(s, hash, place);

	if (!e)
		return;
	empty_entry(s->cuckoo, e);
	s->cuckoo->used--;
	s->stats.items--;
}

void kv_cuckoo_clear(struct gn_kv_store *s)
{
	const struct kv_table *t = table_of(s);

	for (uint64_t i = 0; i < 1ull << t->bits; i++)
		if (kv_entry_place(&t->entries[i]))
			empty_entry(s->cuckoo, &t->entries[i]);
	s->cuckoo->used = 0;
	s->stats.items = 0;
}

void kv_cuckoo_prefetch_entries(const struct gn_kv_store *s, uint64_t hash)
{
	const struct kv_table *t = table_of(s);

	for (unsigned way = 0; way < KV_WAYS; way++)
		__builtin_prefetch(&t->entries[kv_entry_at(kv_tag(hash), way, t->bits)], 1);
}

void kv_cuckoo_prefetch_item(const struct gn_kv_store *s, uint64_t hash)
{
	const struct kv_table *t = table_of(s);

	for (unsigned way = 0; way < KV_WAYS; way++) {
		const struct kv_entry *e = &t->entries[kv_entry_at(kv_tag(hash), way, t->bits)];

		if (kv_entry_place(e) && kv_entry_tag(e) == kv_tag(hash))
			__builtin_prefetch(kv_at(s, kv_entry_place(e)), 1);
	}
}

/* ---- scans ---- */

/* The mark of a cursor: the table, and how many moves there were. 0 is no mark. */
#define MARK_BITS 6u

static uint64_t mark_of(const struct gn_kv_store *s, uint64_t moves)
{
	return moves << MARK_BITS | table_of(s)->bits;
}

static bool tell_entry(const struct gn_kv_store *s, uint64_t at, struct kv_page *page)
{
	const uint32_t place = kv_entry_place(&table_of(s)->entries[at]);

	return !place || kv_page_add(s, page, kv_at(s, place));
}

/* Keys that went to where the cursor has been. False: the page is full. */
static bool tell_moved(const struct gn_kv_store *s, struct kv_cursor *cursor, struct kv_page *page)
{
	const struct kv_cuckoo *c = s->cuckoo;

	for (uint64_t n = cursor->mark >> MARK_BITS; n < c->moves; n++) {
		const uint32_t at = c->moved_to[n % KV_MOVES_KEPT];

		if (at < cursor->at && !tell_entry(s, at, page)) {
			cursor->mark = mark_of(s, n);
			return false;
		}
	}
	cursor->mark = mark_of(s, c->moves);
	return true;
}

int kv_cuckoo_scan(const struct gn_kv_store *s, struct kv_cursor *cursor, struct kv_page *page)
{
	const struct kv_cuckoo *c = s->cuckoo;
	const uint64_t entries = 1ull << table_of(s)->bits, seen = cursor->mark >> MARK_BITS;

	if (!cursor->at || (cursor->mark ^ mark_of(s, 0)) & ((1u << MARK_BITS) - 1) ||
	    seen > c->moves || c->moves - seen > KV_MOVES_KEPT) {
		if (cursor->at && ++cursor->restarts > KV_SCAN_RESTARTS)
			return -EAGAIN;
		cursor->at = 0;
		cursor->mark = mark_of(s, c->moves);
	}
	if (!tell_moved(s, cursor, page))
		return 1;
	for (uint32_t looked = 0; cursor->at < entries; cursor->at++, looked++)
		if (looked == KV_SCAN_ENTRIES || !tell_entry(s, cursor->at, page))
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
	rc = make_table(s, bits, &s->cuckoo->tables[0]);
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
