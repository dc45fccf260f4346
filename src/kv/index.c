/* SPDX-License-Identifier: MIT */
/*
 * Where items are: buckets of a cache line, with eight slots. A slot is 32 bits of the key's hash
 * and the item's place. New slots come first; one in the back half of its bucket moves to the front
 * when its item is used, so those that were not used for long are at the end.
 *
 * Buckets are added one by one as items are (linear hashing): bucket n is split when it is its
 * turn, and those of its slots whose hash says so go to the new one, in their order. A bucket with
 * more than eight items has its last slot link to another line, as long as there is memory that
 * nobody needs; else what was used least recently makes room.
 */
#include "base/mutant.h"
#include "kv/bucket.h"
#include "kv/scan.h"

#define LOAD	    4u /* items for a bucket, before there is another */
#define LINES_MAX   4u
#define STEP_LINES  64u /* by which the index grows */
#define SPARE_LEAST 4u	/* lines that are there before the next item may need them */
#define SPARE_SHARE 3u	/* spare lines for the most buckets: an eighth of memory */
#define FIRST_SHARE 64u /* of memory is the index at first */

static uint64_t slot_of(uint64_t hash, uint32_t place)
{
	return hash << 32 | place;
}

uint32_t kv_bucket_find(struct gn_kv_store *s, uint64_t hash, const void *key, uint32_t key_len)
{
	const uint64_t *line = kv_bucket_of(s, hash);

	for (; line; line = kv_line_next(s, line)) {
		for (unsigned found = kv_line_match(line, hash); found; found &= found - 1) {
			const unsigned at = (unsigned)__builtin_ctz(found);
			const uint32_t place = kv_slot_place(line[at]);

			if (place && (kv_key_is(kv_at(s, place), key, key_len) ||
				      mutant("kv-key-compare", hash))) {
				s->found_at = at;
				return place;
			}
		}
	}
	return 0;
}

/* ---- lines ---- */

static void free_line(struct gn_kv_store *s, uint64_t *line)
{
	line[0] = s->spare;
	s->spare = (uint32_t)(((uint8_t *)line - s->base) / KV_UNIT);
	s->spare_free++;
	s->stats.spare_lines--;
}

/* NULL: memory is short. */
static uint64_t *new_line(struct gn_kv_store *s)
{
	uint64_t *line;

	if (!s->spare_free)
		return NULL;
	if (s->spare) {
		line = kv_line_at(s, s->spare);
		s->spare = (uint32_t)line[0];
	} else {
		line = kv_line_at(s, s->spare_next);
		s->spare_next += KV_LINE;
	}
	memset(line, 0, KV_LINE_BYTES);
	s->spare_free--;
	s->stats.spare_lines++;
	return line;
}

/* As the first of a bucket. Returns a slot for which there is no room any more, or 0. */
static uint64_t push(struct gn_kv_store *s, uint64_t *line, uint64_t slot)
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
		uint64_t *more = new_line(s);

		if (!more)
			return slot;
		more[0] = line[KV_LINE - 1];
		more[1] = slot;
		line[KV_LINE - 1] = KV_LINK | (uint64_t)((uint8_t *)more - s->base) / KV_UNIT;
		return 0;
	}
	return slot;
}

/* Those behind it move up. Returns the slot, 0 if it is not there. */
static uint64_t pull(struct gn_kv_store *s, uint64_t *line, uint32_t place)
{
	uint64_t *before = NULL, *next, slot = 0;
	unsigned at = 0;

	for (; line; before = line, line = kv_line_next(s, line)) {
		for (at = 0; at < kv_line_slots(line) && kv_slot_place(line[at]) != place; at++)
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
		before[KV_LINE - 1] = 0;
		free_line(s, line);
	}
	return slot;
}

/* ---- buckets ---- */

void kv_index_reserve(struct gn_kv_store *s)
{
	s->index_wants = false;
	if (s->spare_free < SPARE_LEAST && s->stats.spare_lines < s->most / SPARE_SHARE &&
	    kv_log_cut_bottom(s, STEP_LINES * KV_LINE))
		s->spare_free += STEP_LINES;
	if (s->level + s->split == s->room && s->room + STEP_LINES <= s->most &&
	    kv_log_cut_top(s, STEP_LINES * KV_LINE))
		s->room += STEP_LINES;
}

/* All slots of a bucket, the first first; its further lines are free. */
static unsigned empty(struct gn_kv_store *s, uint64_t *line, uint64_t *out)
{
	unsigned n = 0;

	for (uint64_t *next, *first = line; line; line = next) {
		next = kv_line_next(s, line);
		for (unsigned i = 0; i < kv_line_slots(line) && line[i]; i++)
			out[n++] = line[i];
		if (line != first)
			free_line(s, line);
		else
			memset(line, 0, KV_LINE_BYTES);
	}
	return n;
}

static void split_one(struct gn_kv_store *s)
{
	const uint32_t new_number = s->level + s->split;
	uint64_t slots[LINES_MAX * KV_LINE], *old, *new;
	unsigned n;

	if (new_number == s->room)
		return;
	old = kv_bucket(s, s->split);
	new = kv_bucket(s, new_number);
	memset(new, 0, KV_LINE_BYTES);
	n = empty(s, old, slots);
	/* They fit: there are as many lines as before, at least. */
	while (n--)
		push(s, slots[n] >> 32 & s->level ? new : old, slots[n]);
	if (++s->split == s->level) {
		s->level *= 2;
		s->split = 0;
	}
	s->stats.splits++;
}

void kv_bucket_link(struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	uint64_t out;

	if (s->stats.items >= (uint64_t)LOAD * (s->level + s->split))
		split_one(s);
	out = push(s, kv_bucket_of(s, hash), slot_of(hash, place));
	s->stats.items++;
	s->wide = s->stats.item_bytes > s->stats.items * KV_LINE_BYTES;
	if (out) {
		kv_count_dropped(s, kv_at(s, kv_slot_place(out)), &s->stats.evicted_bucket);
		kv_log_kill(s, kv_slot_place(out));
		s->stats.items--;
	}
	s->index_wants = s->spare_free < SPARE_LEAST || s->level + s->split == s->room;
}

void kv_bucket_relink(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to)
{
	for (uint64_t *line = kv_bucket_of(s, hash); line; line = kv_line_next(s, line))
		for (unsigned i = 0; i < kv_line_slots(line); i++)
			if (kv_slot_place(line[i]) == from) {
				line[i] = slot_of(hash, to);
				return;
			}
}

void kv_bucket_unlink(struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	if (pull(s, kv_bucket_of(s, hash), place))
		s->stats.items--;
}

void kv_bucket_promote(struct gn_kv_store *s, uint64_t hash, uint32_t place)
{
	uint64_t *first = kv_bucket_of(s, hash), slot;
	unsigned at = s->found_at;

	if (likely(kv_slot_place(first[at]) == place)) {
		/* It is in the front half: more slots are behind it than before it. */
		if (at < KV_LINE / 2 && first[2 * at + 1])
			return;
		for (slot = first[at]; at; at--)
			first[at] = first[at - 1];
		first[0] = slot;
		return;
	}
	slot = pull(s, first, place);
	if (slot)
		push(s, first, slot);
}

uint32_t kv_bucket_oldest(const struct gn_kv_store *s, uint64_t hash)
{
	const uint64_t *line = kv_bucket_of(s, hash);
	uint32_t found = 0;

	for (; line; line = kv_line_next(s, line))
		for (unsigned i = 0; i < kv_line_slots(line) && line[i]; i++)
			if (!found || !mutant("kv-evict-wrong", hash))
				found = kv_slot_place(line[i]);
	return found;
}

/* The least that there is: what there was at the beginning. */
static void first_buckets(struct gn_kv_store *s)
{
	uint64_t lines = STEP_LINES;

	while (2 * lines * KV_LINE_BYTES <= s->stats.memory / FIRST_SHARE)
		lines *= 2;
	s->level = s->room = (uint32_t)lines;
	s->split = s->spare = 0;
	s->spare_next = KV_LINE; /* no line is at place 0 */
	s->spare_free = STEP_LINES - 1;
	s->index_wants = false;
	s->stats.items = s->stats.spare_lines = 0;
	memset(kv_bucket(s, s->level - 1), 0, lines * KV_LINE_BYTES);
	kv_log_clear(s, STEP_LINES * KV_LINE,
		     (uint32_t)(((uint8_t *)kv_bucket(s, s->level - 1) - s->base) / KV_UNIT));
}

void kv_index_make(struct gn_kv_store *s)
{
	s->buckets_end = s->base + s->stats.memory / KV_LINE_BYTES * KV_LINE_BYTES;
	s->most = (uint32_t)(s->stats.memory / KV_LINE_BYTES * 3 / 8);
	first_buckets(s);
}

void kv_bucket_clear(struct gn_kv_store *s)
{
	first_buckets(s);
}

/* A bucket is told as a whole, or with the next page: the smallest page has room for any. */
_Static_assert(GN_KV_PAGE_MIN >= sizeof(struct kv_page_head) + LINES_MAX * KV_LINE *
								       (sizeof(struct kv_page_key) +
									GN_KV_KEY_MAX + KV_UNIT),
	       "a page has room for all keys of a bucket");

static bool tell_bucket(const struct gn_kv_store *s, const uint64_t *line, struct kv_page *page)
{
	const struct kv_page was = *page;

	for (; line; line = kv_line_next(s, line))
		for (unsigned i = 0; i < kv_line_slots(line) && line[i]; i++)
			if (!kv_page_add(s, page, kv_at(s, kv_slot_place(line[i])))) {
				*page = was;
				return false;
			}
	return true;
}

int kv_bucket_scan(const struct gn_kv_store *s, struct kv_cursor *cursor, struct kv_page *page)
{
	const uint64_t buckets = (uint64_t)s->level + s->split;

	for (uint32_t looked = 0; cursor->at < buckets; cursor->at++, looked++)
		if (looked == KV_SCAN_BUCKETS ||
		    !tell_bucket(s, kv_bucket(s, (uint32_t)cursor->at), page))
			return 1;
	return 0;
}
