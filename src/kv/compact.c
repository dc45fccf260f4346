/* SPDX-License-Identifier: MIT */
/*
 * Makes gaps. While garbage is plentiful, the window with the most garbage per byte is compacted,
 * and all of its live items are kept. Else memory is full, and the window that was written longest
 * ago is compacted: items used since its last compaction are kept, up to half of the live bytes,
 * and the others are evicted.
 *
 * Windows are found by the accounts of their regions: for each region the shortest window from it
 * on that yields enough bytes. A window of all regions yields all garbage: so an item fits whenever
 * enough bytes are garbage, however fragmented.
 */
#include "kv/compact.h"

#define AMPLE_SHIFT 2u
_Static_assert(AMPLE_SHIFT < KV_EVICT_SHIFT, "uses are recorded before eviction needs them");

/* ---- accounts ---- */

static uint32_t region_of(const struct kv_log *log, uint32_t loc)
{
	return loc >> log->region_shift;
}

void kv_heap_mark(struct kv_log *log, uint32_t from, uint32_t to)
{
	for (uint32_t n = region_of(log, from) + 1; n <= region_of(log, to) && n < log->n_regions;
	     n++)
		log->regions[n].first = to;
}

#define FILLER_MAX_UNITS 0x7fffffu /* units that the lengths of a filler can express */

void kv_heap_fill(struct gn_kv_store *s, uint32_t from, uint32_t to)
{
	for (uint32_t n; from < to; from += n) {
		struct kv_item *filler = kv_item_at(s, from);

		n = to - from < FILLER_MAX_UNITS ? to - from : FILLER_MAX_UNITS;
		KV_STORE_RELAXED(&filler->used, KV_ITEM_DEAD);
		KV_STORE_RELAXED(&filler->lengths, n << 8);
		kv_heap_mark(&s->log, from, from + n);
	}
}

void kv_heap_count(struct gn_kv_store *s, uint32_t loc, uint32_t bytes)
{
	s->log.regions[region_of(&s->log, loc)].live += bytes;
}

void kv_heap_discount(struct gn_kv_store *s, uint32_t loc, uint32_t bytes)
{
	s->log.regions[region_of(&s->log, loc)].live -= bytes;
}

/* Garbage without an item of so many bytes; may be negative. */
static int64_t garbage_beside(const struct gn_kv_store *s, uint32_t bytes)
{
	const struct kv_log *log = &s->log;

	return (int64_t)((uint64_t)(log->hi - log->lo) * KV_UNIT + log->expired) -
	       (int64_t)s->stats.item_bytes + (int64_t)log->evacuating - bytes;
}

static bool is_full(const struct gn_kv_store *s, uint32_t bytes)
{
	return garbage_beside(s, bytes) <= (int64_t)(s->stats.memory >> KV_EVICT_SHIFT);
}

static bool may_evict(const struct gn_kv_store *s, uint32_t bytes)
{
	return garbage_beside(s, bytes) * 100 <= (int64_t)(s->stats.memory * KV_GARBAGE_PCT);
}

static void update_expired(struct gn_kv_store *s)
{
	struct kv_log *log = &s->log;

	if (log->expired_s == s->now_s && !log->expired)
		return;
	log->expired = 0;
	log->expired_s = s->now_s;
	for (uint32_t i = 0; i < log->n_regions; i++)
		log->expired += kv_expiry_by(&log->regions[i].expiry, s->now_s);
}

void kv_log_update_recent_use(struct gn_kv_store *s)
{
	const uint32_t since_s = s->now_s > KV_USE_S ? s->now_s - KV_USE_S : 0;
	const bool ample = garbage_beside(s, 0) > (int64_t)(s->stats.memory >> AMPLE_SHIFT);

	s->recent_use = ample ? since_s << KV_ITEM_BITS : UINT32_MAX;
}

bool kv_log_is_full(struct gn_kv_store *s)
{
	const struct kv_log *log = &s->log;

	if (log->pass.running && !log->pass.evict)
		return false;
	if (log->expired_s != s->now_s)
		update_expired(s);
	return kv_gap_len(&log->active) <= 1u << log->region_shift && is_full(s, 0);
}

/* ---- windows ---- */

/* Regions i up to j, without j; bytes are those between the items they begin with. */
struct window {
	uint32_t i, j;
	uint64_t bytes, live;
	double age;
};

static void window_extend(const struct gn_kv_store *s, struct window *w, int by, uint32_t n)
{
	const struct kv_log *log = &s->log;
	const struct kv_region *r = &log->regions[n];
	const uint64_t bytes =
		(uint64_t)(kv_region_start(log, n + 1) - kv_region_start(log, n)) * KV_UNIT;
	const uint64_t live = r->live - kv_expiry_by(&r->expiry, s->now_s);

	if (by > 0) {
		w->bytes += bytes;
		w->live += live;
		w->age += (double)bytes * (log->order - r->order);
	} else {
		w->bytes -= bytes;
		w->live -= live;
		w->age -= (double)bytes * (log->order - r->order);
	}
}

static uint64_t window_yield(const struct window *w, bool evict)
{
	return w->bytes - (evict ? w->live / 2 : w->live);
}

static double window_score(const struct window *w, bool evict)
{
	return (evict ? w->age : (double)(w->bytes - w->live)) / (double)w->bytes;
}

/*
 * Finds the best window that yields so many bytes and does not contain the active gap. False: none.
 */
static bool window_choose(const struct gn_kv_store *s, uint64_t need, bool evict,
			  struct window *best)
{
	const struct kv_log *log = &s->log;
	const uint32_t n = region_of(log, log->hi - 1) + 1;
	const uint32_t barrier = kv_gap_len(&log->active) ? region_of(log, log->active.at) :
							    UINT32_MAX;
	struct window w = {0};

	best->bytes = 0;
	for (uint32_t i = 0; i < n; i++) {
		w.i = i;
		if (w.j < i || i == barrier)
			w = (struct window){.i = i, .j = i};
		while (w.j < n && w.j != barrier && window_yield(&w, evict) < need)
			window_extend(s, &w, 1, w.j++);
		if (w.bytes && window_yield(&w, evict) >= need &&
		    (!best->bytes || window_score(&w, evict) > window_score(best, evict)))
			*best = w;
		if (w.j > i)
			window_extend(s, &w, -1, i);
	}
	return best->bytes;
}

static bool pass_begin(struct gn_kv_store *s, uint64_t need, bool evict, uint32_t bytes)
{
	struct kv_log *log = &s->log;
	struct window w;

	if (!window_choose(s, need, evict, &w))
		return false;
	log->pass = (struct kv_pass){
		.running = true,
		.evict = evict,
		.begin = kv_region_start(log, w.i),
		.end = kv_region_start(log, w.j),
		.need = bytes,
		.keep_max = (uint32_t)(w.live / 2),
	};
	log->pass.to = log->pass.at = log->pass.begin;
	return true;
}

/* ---- passes ---- */

/* With bypass, a live item must be intact at some location at any moment. */
void kv_heap_move(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to, uint32_t bytes)
{
	if (!s->mem) {
		memmove(kv_item_at(s, to), kv_item_at(s, from), bytes);
	} else if (to < from && from - to < bytes / KV_UNIT) {
		kv_copy(kv_item_at(s, s->log.scratch), kv_item_at(s, from), bytes);
		kv_relink(s, hash, from, s->log.scratch);
		kv_copy(kv_item_at(s, to), kv_item_at(s, s->log.scratch), bytes);
		from = s->log.scratch;
	} else {
		kv_copy(kv_item_at(s, to), kv_item_at(s, from), bytes);
	}
	kv_relink(s, hash, from, to);
	kv_log_expiry_add(s, to);
	gn_charge(GN_WORK_COPY, bytes);
	s->stats.moved += bytes;
}

static bool pass_keeps(struct gn_kv_store *s, struct kv_item *item, uint32_t bytes)
{
	struct kv_pass *p = &s->log.pass;

	if (kv_has_expired(s, item))
		return false;
	if (!p->evict || !may_evict(s, p->need))
		return true;
	if (!(item->used & KV_ITEM_RECENT) || p->kept + bytes > p->keep_max)
		return false;
	p->kept += bytes;
	KV_STORE_RELAXED(&item->used, item->used & ~KV_ITEM_RECENT);
	return true;
}

static void pass_visit(struct gn_kv_store *s, struct kv_item *item, uint32_t bytes)
{
	struct kv_pass *p = &s->log.pass;
	uint64_t hash;

	if (item->used & KV_ITEM_DEAD)
		return;
	hash = kv_hash(kv_key(item), kv_key_len(item), s->seed);
	if (!pass_keeps(s, item, bytes)) {
		if (kv_has_expired(s, item))
			s->log.expired -= bytes < s->log.expired ? bytes : s->log.expired;
		kv_count_dropped(s, item, &s->stats.evicted_log);
		kv_item_remove(s, hash, p->at);
		return;
	}
	if (p->to != p->at) {
		kv_log_expiry_remove(s, p->at);
		kv_heap_discount(s, p->at, bytes);
		kv_heap_count(s, p->to, bytes);
		kv_heap_move(s, hash, p->at, p->to, bytes);
	}
	kv_heap_mark(&s->log, p->to, p->to + bytes / KV_UNIT);
	p->to += bytes / KV_UNIT;
}

void kv_compact_some(struct gn_kv_store *s, uint64_t bytes)
{
	struct kv_log *log = &s->log;
	struct kv_pass *p = &log->pass;

	for (uint64_t visited = 0; p->at < p->end;) {
		struct kv_item *item = kv_item_at(s, p->at);
		const uint32_t size = kv_item_span(item);

		if (visited >= bytes)
			return;
		visited += size;
		log->work += size;
		pass_visit(s, item, size);
		p->at += size / KV_UNIT;
	}
	kv_heap_mark(log, p->to, p->end);
	log->next = (struct kv_gap){p->to, p->end};
	p->running = false;
}

void kv_compact_abort(struct gn_kv_store *s)
{
	struct kv_pass *p = &s->log.pass;

	if (p->running)
		kv_heap_fill(s, p->to, p->at);
	p->running = false;
}

void kv_compact_begin(struct gn_kv_store *s)
{
	const uint64_t region = (uint64_t)KV_UNIT << s->log.region_shift;

	update_expired(s);
	if (is_full(s, 0))
		pass_begin(s, region / 2, true, 0);
	else
		pass_begin(s, region >> KV_EVICT_SHIFT, false, 0);
}

bool kv_compact_now(struct gn_kv_store *s, uint32_t bytes)
{
	struct kv_log *log = &s->log;

	/*
	 * An evicting pass may stop evicting and yield too little: the next pass then only
	 * compacts.
	 */
	for (unsigned tries = 0; tries < 4; tries++) {
		update_expired(s);
		if (!pass_begin(s, bytes, is_full(s, bytes), bytes) &&
		    !pass_begin(s, bytes, false, bytes))
			return false;
		kv_compact_some(s, UINT64_MAX);
		if ((uint64_t)kv_gap_len(&log->next) * KV_UNIT >= bytes)
			return true;
		kv_heap_fill(s, log->next.at, log->next.end);
		log->next = (struct kv_gap){0, 0};
	}
	return false;
}
