/* SPDX-License-Identifier: MIT */
/*
 * How gaps are made. While garbage is plentiful, the window with the most garbage for its length is
 * compacted, and everything in it that lives is kept. Else memory is full, and the window that was
 * written longest ago is compacted: items that were used since its last turn are kept, up to half
 * of what lives there, and the others are evicted.
 *
 * Windows are found by their regions' accounts: for each region the shortest window from it on that
 * yields enough. A window of all regions yields all garbage there is: so an item has room wherever
 * its bytes are garbage, however small the pieces.
 */
#include "kv/compact.h"

#define ROOMY_SHIFT 2u
_Static_assert(ROOMY_SHIFT < KV_EVICT_SHIFT, "uses are recorded before they are asked for");

/* ---- accounts ---- */

static uint32_t region_of(const struct kv_log *log, uint32_t place)
{
	return place >> log->region_shift;
}

void kv_heap_mark(struct kv_log *log, uint32_t from, uint32_t to)
{
	for (uint32_t n = region_of(log, from) + 1; n <= region_of(log, to) && n < log->n_regions;
	     n++)
		log->regions[n].first = to;
}

#define FILLER_MOST 0x7fffffu /* units that a filler's lengths can tell */

void kv_heap_fill(struct gn_kv_store *s, uint32_t from, uint32_t to)
{
	for (uint32_t n; from < to; from += n) {
		struct kv_item *filler = kv_at(s, from);

		n = to - from < FILLER_MOST ? to - from : FILLER_MOST;
		KV_PUT(&filler->used, KV_ITEM_DEAD);
		KV_PUT(&filler->lengths, n << 8);
		kv_heap_mark(&s->log, from, from + n);
	}
}

void kv_heap_count(struct gn_kv_store *s, uint32_t place, uint32_t bytes)
{
	s->log.regions[region_of(&s->log, place)].live += bytes;
}

void kv_heap_discount(struct gn_kv_store *s, uint32_t place, uint32_t bytes)
{
	s->log.regions[region_of(&s->log, place)].live -= bytes;
}

/* What is garbage beyond an item of so many bytes, which may be negative. */
static int64_t garbage_beside(const struct gn_kv_store *s, uint32_t bytes)
{
	const struct kv_log *log = &s->log;

	return (int64_t)((uint64_t)(log->hi - log->lo) * KV_UNIT + log->expired) -
	       (int64_t)s->stats.item_bytes + (int64_t)log->exiled - bytes;
}

static bool is_full(const struct gn_kv_store *s, uint32_t bytes)
{
	return garbage_beside(s, bytes) <= (int64_t)(s->stats.memory >> KV_EVICT_SHIFT);
}

static bool may_evict(const struct gn_kv_store *s, uint32_t bytes)
{
	return garbage_beside(s, bytes) * 100 <= (int64_t)(s->stats.memory * KV_GARBAGE_PCT);
}

static void find_expired(struct gn_kv_store *s)
{
	struct kv_log *log = &s->log;

	if (log->expired_s == s->now_s && !log->expired)
		return;
	log->expired = 0;
	log->expired_s = s->now_s;
	for (uint32_t i = 0; i < log->n_regions; i++)
		log->expired += kv_expiry_by(&log->regions[i].expiry, s->now_s);
}

void kv_log_judge_uses(struct gn_kv_store *s)
{
	const uint32_t since_s = s->now_s > KV_USE_S ? s->now_s - KV_USE_S : 0;
	const bool roomy = garbage_beside(s, 0) > (int64_t)(s->stats.memory >> ROOMY_SHIFT);

	s->recent_use = roomy ? since_s << KV_ITEM_BITS : UINT32_MAX;
}

bool kv_log_short(struct gn_kv_store *s)
{
	const struct kv_log *log = &s->log;

	if (log->pass.running && !log->pass.evict)
		return false;
	if (log->expired_s != s->now_s)
		find_expired(s);
	return kv_gap_len(&log->active) <= 1u << log->region_shift && is_full(s, 0);
}

/* ---- windows ---- */

/* The regions from i up to j, without j; bytes are those between the items they begin with. */
struct window {
	uint32_t i, j;
	uint64_t bytes, live;
	double age;
};

static void extend(const struct gn_kv_store *s, struct window *w, int by, uint32_t n)
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

static uint64_t yield(const struct window *w, bool evict)
{
	return w->bytes - (evict ? w->live / 2 : w->live);
}

static double score(const struct window *w, bool evict)
{
	return (evict ? w->age : (double)(w->bytes - w->live)) / (double)w->bytes;
}

/* The best window that yields so many bytes, and not the active gap. False: there is none. */
static bool choose(const struct gn_kv_store *s, uint64_t need, bool evict, struct window *best)
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
		while (w.j < n && w.j != barrier && yield(&w, evict) < need)
			extend(s, &w, 1, w.j++);
		if (w.bytes && yield(&w, evict) >= need &&
		    (!best->bytes || score(&w, evict) > score(best, evict)))
			*best = w;
		if (w.j > i)
			extend(s, &w, -1, i);
	}
	return best->bytes;
}

static bool begin(struct gn_kv_store *s, uint64_t need, bool evict, uint32_t bytes)
{
	struct kv_log *log = &s->log;
	struct window w;

	if (!choose(s, need, evict, &w))
		return false;
	log->pass = (struct kv_pass){
		.running = true,
		.evict = evict,
		.begin = kv_region_start(log, w.i),
		.end = kv_region_start(log, w.j),
		.need = bytes,
		.keep_most = (uint32_t)(w.live / 2),
	};
	log->pass.to = log->pass.at = log->pass.begin;
	return true;
}

/* ---- passes ---- */

/* Where clients read, a living item is whole somewhere at any moment. */
void kv_heap_move(struct gn_kv_store *s, uint64_t hash, uint32_t from, uint32_t to, uint32_t bytes)
{
	if (!s->mem) {
		memmove(kv_at(s, to), kv_at(s, from), bytes);
	} else if (to < from && from - to < bytes / KV_UNIT) {
		kv_copy(kv_at(s, s->log.scratch), kv_at(s, from), bytes);
		kv_relink(s, hash, from, s->log.scratch);
		kv_copy(kv_at(s, to), kv_at(s, s->log.scratch), bytes);
		from = s->log.scratch;
	} else {
		kv_copy(kv_at(s, to), kv_at(s, from), bytes);
	}
	kv_relink(s, hash, from, to);
	kv_log_timed(s, to);
	gn_charge(GN_WORK_COPY, bytes);
	s->stats.moved += bytes;
}

static bool keep(struct gn_kv_store *s, struct kv_item *item, uint32_t bytes)
{
	struct kv_pass *p = &s->log.pass;

	if (kv_has_expired(s, item))
		return false;
	if (!p->evict || !may_evict(s, p->need))
		return true;
	if (!(item->used & KV_ITEM_RECENT) || p->kept + bytes > p->keep_most)
		return false;
	p->kept += bytes;
	KV_PUT(&item->used, item->used & ~KV_ITEM_RECENT);
	return true;
}

static void look_at(struct gn_kv_store *s, struct kv_item *item, uint32_t bytes)
{
	struct kv_pass *p = &s->log.pass;
	uint64_t hash;

	if (item->used & KV_ITEM_DEAD)
		return;
	hash = kv_hash(kv_key(item), kv_key_len(item), s->seed);
	if (!keep(s, item, bytes)) {
		if (kv_has_expired(s, item))
			s->log.expired -= bytes < s->log.expired ? bytes : s->log.expired;
		kv_count_dropped(s, item, &s->stats.evicted_log);
		kv_forget(s, hash, p->at);
		return;
	}
	if (p->to != p->at) {
		kv_log_untimed(s, p->at);
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

	for (uint64_t looked = 0; p->at < p->end;) {
		struct kv_item *item = kv_at(s, p->at);
		const uint32_t size = kv_step(item);

		if (looked >= bytes)
			return;
		looked += size;
		log->work += size;
		look_at(s, item, size);
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

	find_expired(s);
	if (is_full(s, 0))
		begin(s, region / 2, true, 0);
	else
		begin(s, region >> KV_EVICT_SHIFT, false, 0);
}

bool kv_compact_now(struct gn_kv_store *s, uint32_t bytes)
{
	struct kv_log *log = &s->log;

	/* A pass that evicts may find that it need not: the next one compacts. */
	for (unsigned tries = 0; tries < 4; tries++) {
		find_expired(s);
		if (!begin(s, bytes, is_full(s, bytes), bytes) && !begin(s, bytes, false, bytes))
			return false;
		kv_compact_some(s, UINT64_MAX);
		if ((uint64_t)kv_gap_len(&log->next) * KV_UNIT >= bytes)
			return true;
		kv_heap_fill(s, log->next.at, log->next.end);
		log->next = (struct kv_gap){0, 0};
	}
	return false;
}
