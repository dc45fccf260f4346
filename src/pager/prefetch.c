/* SPDX-License-Identifier: MIT */
/*
 * What else is mapped at a fault.
 *
 * Pages that were written before: the trend of a thread's faults is the difference that most of the
 * last ones have (Leap 4.1), or that of a row of neighbours among other faults. A trend becomes a
 * stream, which maps a window of pages at once. The fault at the page behind the window says that
 * the window was used, and doubles it.
 *
 * Fresh pages: the fault at either end of the last fill continues it, twice as far.
 */
#include "pager/pages.h"
#include "vol/claim.h"

#define FIRST_WINDOW_MIN 2u
#define FIRST_WINDOW_MAX 8u
#define FIRST_FILL_MAX	 16u
#define FILL_MAX	 512u
#define SCAN_MIN	 2048u
#define STREAM_AGE_MAX	 512u	/* faults; later ones hit the page by chance */
#define SKIP_MAX	 32768u /* pages that are mapped already, behind a window */

/* ---- trends ---- */

static unsigned hash_of(uint64_t key, unsigned bits)
{
	return (unsigned)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits));
}

static void history_add(struct pager_history *history, uint64_t page, int64_t delta)
{
	const unsigned at = history->at++;

	history->no_pair = delta == history->delta[(at - 1) % HISTORY] ? 0 : history->no_pair + 1;
	history->delta[at % HISTORY] = delta;
	history->recent[hash_of(page, RECENT_BITS)] = page;
	history->last = page;
	if (history->n < HISTORY)
		history->n++;
}

/* The difference that more than half of the last n have: Boyer and Moore's vote. 0: none. */
static int64_t history_majority(const struct pager_history *history, unsigned n)
{
	int64_t candidate = 0;
	unsigned votes = 0, count = 0;

	for (unsigned i = 1; i <= n; i++) {
		const int64_t delta = history->delta[(history->at - i) % HISTORY];

		if (!votes)
			candidate = delta;
		votes += delta == candidate ? 1u : -1u;
	}
	for (unsigned i = 1; i <= n; i++)
		count += history->delta[(history->at - i) % HISTORY] == candidate;
	return count > n / 2 ? candidate : 0;
}

static bool history_has(const struct pager_history *history, uint64_t page)
{
	return history->recent[hash_of(page, RECENT_BITS)] == page;
}

/* 0: none. */
static int64_t history_trend(const struct pager_history *history, uint64_t page)
{
	/* More than half of n in a row: two neighbours are the same. */
	for (unsigned n = 2; n <= history->n && history->no_pair < HISTORY; n *= 2) {
		const int64_t trend = history->no_pair < n ? history_majority(history, n) : 0;

		if (trend)
			return trend;
	}
	if (history_has(history, page - 1) && history_has(history, page - 2))
		return 1;
	return history_has(history, page + 1) && history_has(history, page + 2) ? -1 : 0;
}

/* ---- streams ---- */

static struct pager_stream *stream_new(struct pager_core *core, int64_t delta)
{
	struct pager_prefetch *prefetch = &core->prefetch;
	unsigned oldest = 0;

	for (unsigned i = 1; i < STREAMS; i++)
		if (prefetch->stream[i].used_at < prefetch->stream[oldest].used_at)
			oldest = i;
	counter_add(&core->stats.prefetch_wasted, prefetch->stream[oldest].pages);
	if (prefetch->stream[oldest].pages && prefetch->first_window > FIRST_WINDOW_MIN)
		prefetch->first_window /= 2;
	prefetch->stream[oldest] = (struct pager_stream){
		.delta = delta, .window = min_u32(prefetch->first_window, core->window)};
	return &prefetch->stream[oldest];
}

static struct pager_stream *stream_continue(struct pager_core *core, unsigned i)
{
	struct pager_prefetch *prefetch = &core->prefetch;
	struct pager_stream *stream = &prefetch->stream[i];

	counter_add(&core->stats.prefetch_used, stream->pages);
	stream->window = min_u32(2 * stream->window, core->window);
	prefetch->first_window = min_u32(2 * prefetch->first_window, FIRST_WINDOW_MAX);
	return stream;
}

/* The stream that this fault begins or continues, or NULL. */
static struct pager_stream *stream_at(struct pager_core *core, uint64_t page, uint64_t thread)
{
	struct pager_prefetch *prefetch = &core->prefetch;
	struct pager_history *history = &prefetch->history[hash_of(thread, HISTORIES_BITS)];
	struct pager_stream *stream = NULL;
	int64_t trend;

	prefetch->clock++;
	for (unsigned i = 0; i < STREAMS && !stream; i++)
		if (prefetch->expected[i] == page &&
		    prefetch->clock - prefetch->stream[i].used_at < STREAM_AGE_MAX)
			stream = stream_continue(core, i);
	if (stream) {
		history_add(history, page, stream->delta);
	} else {
		history_add(history, page, (int64_t)(page - history->last));
		trend = history_trend(history, page);
		stream = trend ? stream_new(core, trend) : NULL;
	}
	if (stream)
		stream->used_at = prefetch->clock;
	return stream;
}

/* ---- windows ---- */

/* How many pages from page on are adjacent and alike, at most most. */
static unsigned run_length(const struct pager_core *core, uint64_t page, int64_t delta,
			   uint64_t most)
{
	const unsigned mask = PAGE_STATE | PAGE_DIRTY;
	unsigned n = 1;

	if (delta != 1 && delta != -1)
		return 1;
	most = min_u64(most, PAGER_CHUNK);
	for (uint64_t next = page + (uint64_t)delta; n < most && next < core->pages; n++) {
		if ((core->state[next] ^ core->state[page]) & mask)
			break;
		next += (uint64_t)delta;
	}
	return n;
}

bool pager_may_read_ahead(const struct pager_core *core, uint64_t page)
{
	return vol_can_write(core->vol, page * PAGE_BYTES);
}

unsigned pager_bring(struct pager_core *core, uint64_t page, int64_t delta, unsigned n,
		     uint64_t spare, uint64_t *end)
{
	const uint64_t first = page;
	unsigned reads = 0;

	while (n && page < core->pages && page_state(core, page) != PAGE_NONE) {
		const uint64_t free = frames_free(core);
		unsigned length = 1;

		if (page_state(core, page) == PAGE_CACHED) {
			length = run_length(core, page, delta, n);
			if (pager_map_cached(core, delta < 0 ? page - length + 1 : page, length))
				break;
		} else if (page_state(core, page) == PAGE_REMOTE) {
			if (free <= spare || (page != first && !pager_may_read_ahead(core, page)))
				break;
			length = run_length(core, page, delta, min_u64(free - spare, n));
			if (!pager_read(core, delta < 0 ? page - length + 1 : page, length))
				break;
			reads += length;
		}
		page += (uint64_t)delta * length;
		n -= length;
	}
	*end = page;
	return reads;
}

void pager_fault_window(struct pager_core *core, uint64_t page, uint64_t thread)
{
	struct pager_prefetch *prefetch = &core->prefetch;
	struct pager_stream *stream = core->window ? stream_at(core, page, thread) : NULL;
	const bool remote = page_state(core, page) == PAGE_REMOTE;
	uint64_t next, spare = core->low / 2;
	unsigned n;

	if (!stream)
		return;
	/* The page itself may have the last frame. */
	if (remote && frames_free(core) <= spare)
		spare = frames_free(core) ? frames_free(core) - 1 : 0;
	/* It runs through more than fits: what it brings is not needed soon again. */
	core->scanning = stream->length > min_u64(SCAN_MIN, core->local / 8) &&
			 frames_free(core) < 2 * core->high;
	n = pager_bring(core, page, stream->delta, stream->window, spare, &next);
	core->scanning = false;
	stream->length += n;
	if (page_state(core, page) == PAGE_REMOTE)
		n = 0; /* there was no buffer */
	else
		n -= remote;
	for (unsigned i = 0;
	     i < SKIP_MAX && next < core->pages && page_state(core, next) == PAGE_MAPPED; i++)
		next += (uint64_t)stream->delta;
	prefetch->expected[stream - prefetch->stream] = next;
	stream->pages = n;
	counter_add(&core->stats.prefetched, n);
}

/* ---- fresh pages ---- */

/* The fill that the page continues, or the oldest one anew; *down: towards lower addresses. */
static struct pager_fill *fill_at(struct pager_prefetch *prefetch, uint64_t page, bool *down)
{
	struct pager_fill *fill = NULL, *oldest = prefetch->fill;

	*down = false;
	for (unsigned i = 0; i < FILLS && !fill; i++) {
		struct pager_fill *f = &prefetch->fill[i];

		if (f->n && (f->end == page || f->start == page + 1)) {
			fill = f;
			*down = f->end != page;
		} else if (f->used_at < oldest->used_at) {
			oldest = f;
		}
	}
	if (fill) {
		fill->n = min_u32(2 * fill->n, FILL_MAX);
		fill->continued = true;
		prefetch->first_fill = FIRST_FILL_MAX;
	} else {
		fill = oldest;
		if (fill->n && !fill->continued && prefetch->first_fill > 1)
			prefetch->first_fill /= 2;
		*fill = (struct pager_fill){.start = page, .end = page, .n = prefetch->first_fill};
	}
	fill->used_at = ++prefetch->clock;
	return fill;
}

static bool fill_may(const struct pager_core *core, uint64_t page)
{
	return page < core->pages && !page_is_held(core, page) &&
	       (page_state(core, page) == PAGE_FRESH ||
		(mutant("pager-zero-data", page) && page_state(core, page) == PAGE_REMOTE));
}

/* How many of these FRESH pages are mapped now, from the first one on; or -errno. */
static int zero_pages(struct pager_core *core, uint64_t page, unsigned n)
{
	const int rc = core->ops->zero(core->arg, page, n);

	if (rc <= 0)
		return rc;
	n = (unsigned)rc;
	for (uint64_t p = page; p < page + n; p++)
		core->state[p] |= PAGE_DIRTY;
	gauge_add(&core->stats.resident, n);
	pager_pages_mapped(core, page, n);
	counter_add(&core->stats.zeroed, n);
	return rc;
}

int pager_zero_fill(struct pager_core *core, uint64_t page)
{
	uint64_t first = page, last = page, most;
	bool down;
	struct pager_fill *fill = fill_at(&core->prefetch, page, &down);
	int rc;

	most = min_u64(fill->n, frames_free(core) / 4);
	while (last - first + 1 < most && fill_may(core, down ? first - 1 : last + 1)) {
		if (down)
			first--;
		else
			last++;
	}
	rc = zero_pages(core, first, (unsigned)(last - first + 1));
	if (unlikely(first < last && page_state(core, page) == PAGE_FRESH))
		rc = zero_pages(core, page, 1); /* at least this one */
	if (rc <= 0)
		return rc;
	fill->start = first < fill->start ? first : fill->start;
	fill->end = last + 1 > fill->end ? last + 1 : fill->end;
	return 0;
}

void pager_prefetch_init(struct pager_core *core)
{
	core->prefetch.first_window = FIRST_WINDOW_MAX / 2;
	core->prefetch.first_fill = FIRST_FILL_MAX;
	for (unsigned i = 0; i < STREAMS; i++)
		core->prefetch.expected[i] = UINT64_MAX;
	for (unsigned i = 0; i < 1u << HISTORIES_BITS; i++)
		memset(core->prefetch.history[i].recent, 0xff,
		       sizeof(core->prefetch.history[i].recent));
}
