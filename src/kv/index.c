/* SPDX-License-Identifier: MIT */
/*
 * Buckets of one cache line with eight slots. A slot is 32 bits of the key's hash and the item's
 * location. New slots are inserted at the front. A use moves a slot from the back half of its
 * bucket to the front, so the slots at the end were not used for long.
 *
 * Buckets are added one at a time as items are (linear hashing): bucket n is split when it is its
 * turn, and slots whose hash has the next bit set move to the new bucket, in order. A bucket with
 * more than eight items links from its last slot to another line, while spare lines are available;
 * else its least recently used item is evicted.
 */
#include "base/mutant.h"
#include "kv/bucket.h"
#include "kv/scan.h"

#define ITEMS_PER_BUCKET  4u /* average, before a bucket is added */
#define LINES_MAX	  4u
#define GROW_LINES	  64u /* lines by which the index grows */
#define SPARE_MIN	  4u  /* free lines, before the next item may need them */
#define BUCKETS_PER_SPARE 3u  /* limits spare lines to an eighth of memory */
#define INITIAL_DIVISOR	  64u /* the initial index is this fraction of memory */

static uint64_t slot_make(uint64_t hash, uint32_t loc)
{
	return hash << 32 | loc;
}

uint32_t kv_bucket_find(struct gn_kv_store *s, uint64_t hash, const void *key, uint32_t key_len)
{
	const uint64_t *line = kv_bucket_of(s, hash);

	for (; line; line = kv_line_next(s, line)) {
		for (unsigned found = kv_line_match(line, hash); found; found &= found - 1) {
			const unsigned at = (unsigned)__builtin_ctz(found);
			const uint32_t loc = kv_slot_loc(line[at]);

			if (loc && (kv_key_is(kv_item_at(s, loc), key, key_len) ||
				    mutant("kv-key-compare", hash))) {
				s->found_slot = at;
				return loc;
			}
		}
	}
	return 0;
}

/* ---- lines ---- */

static void line_free(struct gn_kv_store *s, uint64_t *line)
{
	line[0] = s->spare;
	s->spare = (uint32_t)(((uint8_t *)line - s->base) / KV_UNIT);
	s->spare_free++;
	s->stats.spare_lines--;
}

/* NULL: no spare line. */
static uint64_t *line_alloc(struct gn_kv_store *s)
{
	uint64_t *line;

	if (!s->spare_free)
		return NULL;
	if (s->spare) {
		line = kv_line_at(s, s->spare);
		s->spare = (uint32_t)line[0];
	} else {
		line = kv_line_at(s, s->spare_next);
		s->spare_next += KV_LINE_SLOTS;
	}
	memset(line, 0, KV_LINE_BYTES);
	s->spare_free--;
	s->stats.spare_lines++;
	return line;
}

/* Inserts a slot at the front of a bucket. Returns the slot that did not fit, or 0. */
static uint64_t bucket_push(struct gn_kv_store *s, uint64_t *line, uint64_t slot)
{
	unsigned lines = 1;

	for (uint64_t *next;; line = next, lines++) {
		const unsigned last = kv_line_slots(line) - 1;
		const uint64_t out = line[last];

		memmove(line + 1, line, last * sizeof(line[0]));
		line[0] = slot;
		slot = out;
		next = kv_line_next(s, line);
		if (!slot || !next)
			break;
	}
	if (slot && lines < LINES_MAX) {
		uint64_t *more = line_alloc(s);

		if (!more)
			return slot;
		more[0] = line[KV_LINE_SLOTS - 1];
		more[1] = slot;
		line[KV_LINE_SLOTS - 1] = KV_LINK | (uint64_t)((uint8_t *)more - s->base) / KV_UNIT;
		return 0;
	}
	return slot;
}

/*
 * Removes the slot of an item; those behind it move up. Returns the slot, or 0 if it is not there.
 */
static uint64_t bucket_remove_slot(struct gn_kv_store *s, uint64_t *line, uint32_t loc)
{
	uint64_t *before = NULL, *next, slot = 0;
	unsigned at = 0;

	for (; line; before = line, line = kv_line_next(s, line)) {
		for (at = 0; at < kv_line_slots(line) && kv_slot_loc(line[at]) != loc; at++)
			;
		if (at < kv_line_slots(line))
			break;
	}
	if (!line)
		return 0;
	for (slot = line[at];; before = line, line = next, at = 0) {
		const unsigned last = kv_line_slots(line) - 1;

		memmove(line + at, line + at + 1, (last - at) * sizeof(line[0]));
		next = kv_line_next(s, line);
		line[last] = next ? next[0] : 0;
		if (!next)
			break;
	}
	if (before && !line[0]) {
		before[KV_LINE_SLOTS - 1] = 0;
		line_free(s, line);
	}
	return slot;
}

/* ---- buckets ---- */

void kv_index_reserve(struct gn_kv_store *s)
{
	s->index_needs_space = false;
	if (s->spare_free < SPARE_MIN && s->stats.spare_lines < s->bucket_max / BUCKETS_PER_SPARE &&
	    kv_log_cut_bottom(s, GROW_LINES * KV_LINE_SLOTS))
		s->spare_free += GROW_LINES;
	if (s->level + s->split == s->bucket_capacity &&
	    s->bucket_capacity + GROW_LINES <= s->bucket_max &&
	    kv_log_cut_top(s, GROW_LINES * KV_LINE_SLOTS))
		s->bucket_capacity += GROW_LINES;
}

/* Returns all slots of a bucket, in order, and frees its further lines. */
static unsigned bucket_empty(struct gn_kv_store *s, uint64_t *line, uint64_t *out)
{
	unsigned n = 0;

	for (uint64_t *next, *first = line; line; line = next) {
		next = kv_line_next(s, line);
		for (unsigned i = 0; i < kv_line_slots(line) && line[i]; i++)
			out[n++] = line[i];
		if (line != first)
			line_free(s, line);
		else
			memset(line, 0, KV_LINE_BYTES);
	}
	return n;
}

static void bucket_split_next(struct gn_kv_store *s)
{
	const uint32_t new_number = s->level + s->split;
	uint64_t slots[LINES_MAX * KV_LINE_SLOTS], *old, *new;
	unsigned n;

	if (new_number == s->bucket_capacity)
		return;
	old = kv_bucket(s, s->split);
	new = kv_bucket(s, new_number);
	memset(new, 0, KV_LINE_BYTES);
	n = bucket_empty(s, old, slots);
	/* They fit: at least as many lines are available as before. */
	while (n--)
		bucket_push(s, slots[n] >> 32 & s->level ? new : old, slots[n]);
	if (++s->split == s->level) {
		s->level *= 2;
		s->split = 0;
	}
	s->stats.splits++;
}

void kv_bucket_link(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	uint64_t out;

	if (s->stats.items >= (uint64_t)ITEMS_PER_BUCKET * (s->level + s->split))
		bucket_split_next(s);
	out = bucket_push(s, kv_bucket_of(s, hash), slot_make(hash, loc));
	s->stats.items++;
	s->wide = s->stats.item_bytes > s->stats.items * KV_LINE_BYTES;
	if (out) {
		kv_count_dropped(s, kv_item_at(s, kv_slot_loc(out)), &s->stats.evicted_bucket);
		kv_log_remove(s, kv_slot_loc(out));
		s->stats.items--;
	}
	s->index_needs_space = s->spare_free < SPARE_MIN ||
			       s->level + s->split == s->bucket_capacity;
}

void kv_bucket_relink(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to)
{
	for (uint64_t *line = kv_bucket_of(s, hash); line; line = kv_line_next(s, line))
		for (unsigned i = 0; i < kv_line_slots(line); i++)
			if (kv_slot_loc(line[i]) == from) {
				line[i] = slot_make(hash, to);
				return;
			}
}

void kv_bucket_unlink(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	if (bucket_remove_slot(s, kv_bucket_of(s, hash), loc))
		s->stats.items--;
}

void kv_bucket_promote(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	uint64_t *first = kv_bucket_of(s, hash), slot;
	unsigned at = s->found_slot;

	if (likely(kv_slot_loc(first[at]) == loc)) {
		/* In the front half: more slots are behind it than before it. */
		if (at < KV_LINE_SLOTS / 2 && first[2 * at + 1])
			return;
		for (slot = first[at]; at; at--)
			first[at] = first[at - 1];
		first[0] = slot;
		return;
	}
	slot = bucket_remove_slot(s, first, loc);
	if (slot)
		bucket_push(s, first, slot);
}

uint32_t kv_bucket_oldest(const struct gn_kv_store *s, uint64_t hash)
{
	const uint64_t *line = kv_bucket_of(s, hash);
	uint32_t found = 0;

	for (; line; line = kv_line_next(s, line))
		for (unsigned i = 0; i < kv_line_slots(line) && line[i]; i++)
			if (!found || !mutant("kv-evict-wrong", hash))
				found = kv_slot_loc(line[i]);
	return found;
}

/* The initial, smallest index. */
static void index_reset(struct gn_kv_store *s)
{
	uint64_t lines = GROW_LINES;

	while (2 * lines * KV_LINE_BYTES <= s->stats.memory / INITIAL_DIVISOR)
		lines *= 2;
	s->level = s->bucket_capacity = (uint32_t)lines;
	s->split = s->spare = 0;
	s->spare_next = KV_LINE_SLOTS; /* no line is at location 0 */
	s->spare_free = GROW_LINES - 1;
	s->index_needs_space = false;
	s->stats.items = s->stats.spare_lines = 0;
	memset(kv_bucket(s, s->level - 1), 0, lines * KV_LINE_BYTES);
	kv_log_clear(s, GROW_LINES * KV_LINE_SLOTS,
		     (uint32_t)(((uint8_t *)kv_bucket(s, s->level - 1) - s->base) / KV_UNIT));
}

void kv_index_make(struct gn_kv_store *s)
{
	s->buckets_end = s->base + s->stats.memory / KV_LINE_BYTES * KV_LINE_BYTES;
	s->bucket_max = (uint32_t)(s->stats.memory / KV_LINE_BYTES * 3 / 8);
	index_reset(s);
}

void kv_bucket_clear(struct gn_kv_store *s)
{
	index_reset(s);
}

/* A page contains all keys of a bucket or none: the smallest page fits any bucket. */
_Static_assert(GN_KV_PAGE_MIN >= sizeof(struct kv_page_head) + LINES_MAX * KV_LINE_SLOTS *
								       (sizeof(struct kv_page_key) +
									GN_KV_KEY_MAX + KV_UNIT),
	       "a page fits all keys of a bucket");

static bool scan_add_bucket(const struct gn_kv_store *s, const uint64_t *line, struct kv_page *page)
{
	const struct kv_page was = *page;

	for (; line; line = kv_line_next(s, line))
		for (unsigned i = 0; i < kv_line_slots(line) && line[i]; i++)
			if (!kv_page_add(s, page, kv_item_at(s, kv_slot_loc(line[i])))) {
				*page = was;
				return false;
			}
	return true;
}

int kv_bucket_scan(const struct gn_kv_store *s, struct kv_cursor *cursor, struct kv_page *page)
{
	const uint64_t buckets = (uint64_t)s->level + s->split;

	for (uint32_t visited = 0; cursor->at < buckets; cursor->at++, visited++)
		if (visited == KV_SCAN_BUCKETS ||
		    !scan_add_bucket(s, kv_bucket(s, (uint32_t)cursor->at), page))
			return 1;
	return 0;
}
