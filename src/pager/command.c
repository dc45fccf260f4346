/* SPDX-License-Identifier: MIT */
/* Commands of a program: mappings, and advice about them. */
#include "pager/pages.h"

#define BRING_MAX  512u
#define CANNOT_MAP "gn_pager_advise(): the kernel does not map a page"

/* Does each page of the range belong to a mapping? */
static bool range_is_mapped(const struct pager_core *core, uint64_t page, uint64_t n)
{
	if (!n || page >= core->pages || n > core->pages - page)
		return false;
	for (uint64_t p = page; p < page + n; p++)
		if (page_state(core, p) == PAGE_NONE)
			return false;
	return true;
}

static bool page_has_request(const struct pager_core *core, uint64_t page)
{
	return page_state(core, page) == PAGE_READING || core->state[page] & PAGE_WRITING;
}

void page_settle(struct pager_core *core, uint64_t page)
{
	while (page_has_request(core, page))
		gn_vol_wait(core->queue, NULL, 1, GN_FOREVER);
}

/*
 * Commands that wait for requests of a range hold it: faults of other pages are answered meanwhile,
 * since a request takes as long as a donor needs to be given up. Returns what was held before.
 */
static struct pager_range range_hold(struct pager_core *core, uint64_t page, uint64_t n)
{
	const struct pager_range before = {core->held, core->n_held};

	if (!before.n)
		core->held_ns = gn_now_ns();
	core->held = page;
	core->n_held = n;
	return before;
}

static void range_let_go(struct pager_core *core, struct pager_range before)
{
	core->held = before.start;
	core->n_held = before.n;
}

/* For a command that holds a range. */
static void command_wait(struct pager_core *core)
{
	pager_pause(core);
	pager_poll(core);
	pager_serve(core);
}

/* Waits until no request is under way for pages of the range, which is held. */
static void range_settle(struct pager_core *core, uint64_t page, uint64_t n)
{
	bool waited;

	do { /* again: eviction and prefetch have gone on meanwhile */
		waited = false;
		for (uint64_t p = page; p < page + n; p++)
			while (page_has_request(core, p)) {
				command_wait(core);
				waited = true;
			}
	} while (waited);
}

struct discard {
	struct gn_vol_req req;
	struct pager_core *core;
	bool ended;
};

static void discard_done(struct gn_vol_req *req)
{
	struct discard *discard = req->user;

	discard->core->requests--;
	discard->ended = true;
}

/*
 * The volume need not keep them, nor make copies of them when a donor is lost. They are held: a
 * WRITE that overlaps could be executed first.
 */
static void range_discard(struct pager_core *core, uint64_t page, uint64_t n)
{
	struct discard discard = {.req = {.op = GN_VOL_DISCARD,
					  .offset = page * PAGE_BYTES,
					  .len_bytes = n * PAGE_BYTES,
					  .done = discard_done,
					  .user = &discard},
				  .core = core};

	pager_submit(core, &(struct gn_vol_req *){&discard.req}, 1);
	pager_poll(core);
	while (!discard.ended)
		command_wait(core);
}

struct tally {
	uint64_t resident, cached, pinned, stored;
};

static struct tally range_tally(const struct pager_core *core, uint64_t page, uint64_t n)
{
	struct tally t = {0};

	for (uint64_t p = page; p < page + n; p++) {
		const enum page_state state = page_state(core, p);

		t.resident += state == PAGE_MAPPED || state == PAGE_CACHED;
		t.cached += state == PAGE_CACHED;
		t.pinned += (core->state[p] & PAGE_PINNED) != 0;
		t.stored += (core->state[p] & PAGE_STORED) != 0;
	}
	return t;
}

/* Pages that are unmapped, and could not be freed. */
static void range_keep(struct pager_core *core, uint64_t page, uint64_t n, const struct tally *t)
{
	for (uint64_t p = page; p < page + n; p++)
		if (page_state(core, p) == PAGE_MAPPED) {
			page_set(core, p, PAGE_CACHED);
			core->state[p] |= PAGE_DIRTY;
		}
	gauge_add(&core->stats.cached, (int64_t)(t->resident - t->cached));
}

static void range_sort(struct pager_core *core, uint64_t page, uint64_t n)
{
	for (uint64_t chunk = page / PAGER_CHUNK; chunk <= (page + n - 1) / PAGER_CHUNK; chunk++)
		chunk_sort(core, (uint32_t)chunk);
}

/*
 * Forgets the bytes of pages: they are not in the file, not in the page table, and not on the
 * volume. Requests that were under way have ended.
 */
static int range_forget_held(struct pager_core *core, uint64_t page, uint64_t n,
			     enum page_state state)
{
	struct tally t;
	int rc = 0;

	range_settle(core, page, n);
	t = range_tally(core, page, n);
	if (t.resident)
		rc = core->ops->unmap(core->arg, page, (unsigned)n);
	if (rc)
		return rc;
	if (t.resident)
		rc = core->ops->punch(core->arg, page, (unsigned)n);
	if (rc) {
		range_keep(core, page, n, &t);
	} else {
		gauge_add(&core->stats.resident, -(int64_t)t.resident);
		gauge_add(&core->stats.cached, -(int64_t)t.cached);
		gauge_add(&core->stats.pinned, -(int64_t)t.pinned);
		memset(core->state + page, (int)state, n);
	}
	range_sort(core, page, n);
	if (t.stored && !rc)
		range_discard(core, page, n);
	return rc;
}

static int range_forget(struct pager_core *core, uint64_t page, uint64_t n, enum page_state state)
{
	const struct pager_range before = range_hold(core, page, n);
	const int rc = range_forget_held(core, page, n, state);

	range_let_go(core, before);
	return rc;
}

int pager_core_map(struct pager_core *core, uint64_t n, uint64_t *page)
{
	int rc = -ENOMEM;

	if (!n)
		return gn_fail(-EINVAL, "gn_pager_map(): no bytes");
	rc = ranges_take(&core->ranges, n, page);
	if (rc && core->ranges.partial) {
		ranges_rebuild(&core->ranges, core->state, core->pages);
		rc = ranges_take(&core->ranges, n, page);
	}
	if (rc)
		return gn_fail(rc, "gn_pager_map(): the volume has no range of %llu bytes left",
			       (unsigned long long)n * PAGE_BYTES);
	memset(core->state + *page, PAGE_FRESH, n);
	gauge_add(&core->stats.mapped_bytes, (int64_t)(n * PAGE_BYTES));
	gauge_add(&core->stats.free_bytes, -(int64_t)(n * PAGE_BYTES));
	return 0;
}

int pager_core_check(const struct pager_core *core, uint64_t page, uint64_t n, const char *call)
{
	if (range_is_mapped(core, page, n))
		return 0;
	return gn_fail(-EINVAL, "%s: not memory of gn_pager_map()", call);
}

int pager_core_unmap(struct pager_core *core, uint64_t page, uint64_t n)
{
	int rc = pager_core_check(core, page, n, "gn_pager_unmap()");

	if (!rc)
		rc = range_forget(core, page, n, PAGE_NONE);
	if (rc)
		return rc;
	ranges_give(&core->ranges, page, n);
	gauge_add(&core->stats.mapped_bytes, -(int64_t)(n * PAGE_BYTES));
	gauge_add(&core->stats.free_bytes, (int64_t)(n * PAGE_BYTES));
	return 0;
}

/* ---- advice ---- */

/* A frame for a page of a command. Faults of other threads come first. */
static int frame_await(struct pager_core *core)
{
	while (pager_serve(core), !frames_free(core)) {
		if (pager_evict(core))
			continue;
		if (pager_is_out_of_memory(core))
			return gn_fail(-ENOMEM, "gn_pager_advise(): out of remote memory: %s",
				       gn_strerror(core->write_error));
		pager_pause(core);
	}
	return 0;
}

/* Only a new page takes the place of a poisoned one; there is a frame for this. */
static int page_revive(struct pager_core *core, uint64_t page)
{
	int rc = core->stats.resident > core->local ? frame_await(core) : 0;

	if (!rc)
		rc = core->ops->zero(core->arg, page, 1);
	if (rc < 0)
		return rc;
	core->state[page] = PAGE_DIRTY;
	gauge_add(&core->stats.resident, 1);
	pager_pages_mapped(core, page, 1);
	return range_forget(core, page, 1, PAGE_FRESH);
}

/* No page of the range is lost any more, nor can one be by a READ that is under way. */
static int range_revive(struct pager_core *core, uint64_t page, uint64_t n)
{
	const struct pager_range before = range_hold(core, page, n);
	bool revived;
	int rc = 0;

	do {
		revived = false;
		range_settle(core, page, n);
		for (uint64_t p = page; p < page + n && !rc; p++)
			if (page_state(core, p) == PAGE_LOST) {
				rc = page_revive(core, p); /* which may answer faults */
				revived = true;
			}
	} while (revived && !rc);
	range_let_go(core, before);
	return rc;
}

static int range_dont_need(struct pager_core *core, uint64_t page, uint64_t n)
{
	int rc;

	for (uint64_t p = page; p < page + n; p++)
		if (core->state[p] & PAGE_PINNED)
			return gn_fail(-EINVAL, "gn_pager_advise(): pinned memory is needed");
	rc = range_revive(core, page, n);
	return rc ? rc : range_forget(core, page, n, PAGE_FRESH);
}

static int range_bring_in(struct pager_core *core, uint64_t page, uint64_t n)
{
	const uint64_t end = page + n;
	uint64_t next;
	int rc = 0;

	core->fault_ns = gn_now_ns();
	while (page < end && !rc) {
		switch (page_state(core, page)) {
		case PAGE_MAPPED:
			page++;
			break;
		case PAGE_READING:
			core->state[page] |= PAGE_WANTED;
			pager_pause(core);
			pager_serve(core);
			break;
		case PAGE_FRESH:
			rc = frame_await(core);
			if (!rc && page_state(core, page) == PAGE_FRESH &&
			    pager_zero_fill(core, page))
				rc = gn_fail(-EIO, CANNOT_MAP);
			break;
		case PAGE_REMOTE:
		case PAGE_CACHED:
			rc = frame_await(core);
			if (rc)
				break;
			pager_bring(core, page, 1, (unsigned)min_u64(end - page, BRING_MAX), 0,
				    &next);
			pager_read_submit(core);
			if (page_state(core, page) == PAGE_REMOTE)
				pager_pause(core);
			else if (page_state(core, page) == PAGE_CACHED)
				rc = gn_fail(-EIO, CANNOT_MAP);
			break;
		default:
			rc = gn_fail(-EIO, "gn_pager_advise(): a page is lost");
		}
	}
	return rc;
}

/* keep: NULL, or bits of pages that stay pinned. */
static void range_unpin(struct pager_core *core, uint64_t page, uint64_t n, const uint64_t *keep)
{
	int64_t pinned = 0;

	for (uint64_t p = page; p < page + n; p++) {
		const uint64_t i = p - page;

		if (!(core->state[p] & PAGE_PINNED) || (keep && keep[i / 64] >> i % 64 & 1))
			continue;
		pinned++;
		core->state[p] &= (uint8_t)~PAGE_PINNED;
		/* A device may have written there, which nobody notices. */
		if (page_state(core, p) == PAGE_MAPPED)
			core->state[p] |= PAGE_DIRTY;
	}
	gauge_add(&core->stats.pinned, -pinned);
}

static int range_pin(struct pager_core *core, uint64_t page, uint64_t n)
{
	uint64_t more = 0;
	int rc;

	for (uint64_t p = page; p < page + n; p++)
		more += !(core->state[p] & PAGE_PINNED);
	if (core->stats.pinned + more > core->local / 2)
		return gn_fail(-ENOMEM, "gn_pager_advise(): more than half of the local memory "
					"would be pinned");
	/* All of them will be pinned: n is not more than that half. */
	memset(core->was_pinned, 0, (n + 63) / 64 * sizeof(*core->was_pinned));
	for (uint64_t i = 0; i < n; i++) {
		core->was_pinned[i / 64] |= (uint64_t)(core->state[page + i] / PAGE_PINNED & 1)
					    << i % 64;
		core->state[page + i] |= PAGE_PINNED;
	}
	gauge_add(&core->stats.pinned, (int64_t)more);
	rc = range_bring_in(core, page, n);
	if (rc)
		range_unpin(core, page, n, core->was_pinned);
	return rc;
}

static void range_cold(struct pager_core *core, uint64_t page, uint64_t n)
{
	const uint64_t end = page + n;

	while (page < end) {
		const uint64_t base = page / PAGER_CHUNK * PAGER_CHUNK;
		const uint64_t to = min_u64(end, base + PAGER_CHUNK);
		uint64_t mask = ~UINT64_C(0) << (page - base);

		if (to - base < PAGER_CHUNK)
			mask &= (UINT64_C(1) << (to - base)) - 1;
		pager_deactivate(core, (uint32_t)(base / PAGER_CHUNK), mask);
		chunk_make_oldest(core, (uint32_t)(base / PAGER_CHUNK));
		page = to;
	}
}

/* More than half of the local memory is not brought in: it would be evicted before it is used. */
static void range_will_need(struct pager_core *core, uint64_t page, uint64_t n)
{
	if (core->n_needs == NEEDS)
		memmove(core->needs, core->needs + 1, --core->n_needs * sizeof(*core->needs));
	core->needs[core->n_needs++] =
		(struct pager_need){page, page + min_u64(n, core->local / 2)};
	pager_needs_go_on(core);
}

void pager_needs_go_on(struct pager_core *core)
{
	while (core->n_needs) {
		struct pager_need *need = &core->needs[0];
		const uint64_t n = min_u64(need->end - need->page, BRING_MAX);
		uint64_t next;
		bool all;

		if (page_state(core, need->page) == PAGE_REMOTE &&
		    !pager_may_read_ahead(core, need->page))
			return;
		pager_bring(core, need->page, 1, (unsigned)n, core->low / 2, &next);
		pager_read_submit(core);
		all = next - need->page == n;
		need->page = next;
		if (all && next < need->end)
			continue;
		if (!all && page_state(core, next) == PAGE_REMOTE)
			return; /* frames or buffers are missing: goes on later */
		memmove(core->needs, core->needs + 1, --core->n_needs * sizeof(*core->needs));
	}
}

int pager_core_advise(struct pager_core *core, uint64_t page, uint64_t n,
		      enum gn_pager_advice advice)
{
	int rc = pager_core_check(core, page, n, "gn_pager_advise()");

	if (rc)
		return rc;
	switch (advice) {
	case GN_PAGER_WILL_NEED:
		range_will_need(core, page, n);
		return 0;
	case GN_PAGER_COLD:
		range_cold(core, page, n);
		return 0;
	case GN_PAGER_DONT_NEED:
		return range_dont_need(core, page, n);
	case GN_PAGER_PIN:
		return range_pin(core, page, n);
	case GN_PAGER_UNPIN:
		range_unpin(core, page, n, NULL);
		return 0;
	default:
		return gn_fail(-EINVAL, "gn_pager_advise(): there is no advice %d", (int)advice);
	}
}
