/* SPDX-License-Identifier: MIT */
/*
 * Eviction, by chunks in address order.
 *
 *     SCANNED ─┐
 *              ├─ unmap, THEN ask what was written, start WRITEs ──▶ INACTIVE ── free ──▶ no list
 *     ACTIVE ──┘                                                        │
 *        ▲                                                              │
 *        └────────────── pages that were touched meanwhile ◀────────────┘
 *
 * The lists are in the order in which chunks came to them. A chunk on the ACTIVE or SCANNED list
 * has MAPPED pages, one on the INACTIVE list has CACHED ones.
 *
 * A program that runs through more memory than is local, again and again, would find nothing there:
 * the oldest page is the next one to be used. Chunks that such a scan brings are SCANNED, and
 * unmapped before older ones of the ACTIVE list, a part of which stays for the next pass. Some of
 * them become ACTIVE all the same, and those that were freed only lately: what is ACTIVE may be out
 * of use.
 */
#include "pager/pages.h"
#include "vol/claim.h"

#define ROTATE_MAX	   4u /* chunks of one call that have nothing to free */
#define SCANNED_MIN	   4u /* chunks that scans use now */
#define SCAN_ACTIVE_ONE_IN 8u
#define WRITE_RETRY_NS	   UINT64_C(1000000)
#define WRITE_STUCK_NS	   UINT64_C(10000000)
#define WAITED_MAX	   64u /* chunks that one call unmaps while threads wait for a frame */
#define OUT_OF_MEMORY_NS   UINT64_C(2000000000) /* the volume grants memory in the background */

/* ---- chunks ---- */

void chunk_move(struct pager_core *core, uint32_t index, enum pager_list list)
{
	struct pager_chunk *const all = core->chunks, *chunk = &all[index];
	const uint32_t head = core->n_chunks + list;

	if (chunk->list != CHUNK_IDLE) {
		all[chunk->prev].next = chunk->next;
		all[chunk->next].prev = chunk->prev;
		core->listed[chunk->list]--;
	}
	chunk->list = (uint8_t)list;
	if (list == CHUNK_IDLE)
		return;
	core->listed[list]++;
	chunk->next = all[head].next;
	chunk->prev = head;
	all[chunk->next].prev = index;
	all[head].next = index;
}

void chunk_make_oldest(struct pager_core *core, uint32_t index)
{
	struct pager_chunk *const all = core->chunks, *chunk = &all[index];
	const uint32_t head = core->n_chunks + chunk->list;

	if (chunk->list == CHUNK_IDLE)
		return;
	all[chunk->prev].next = chunk->next;
	all[chunk->next].prev = chunk->prev;
	chunk->prev = all[head].prev;
	chunk->next = head;
	all[chunk->prev].next = index;
	all[head].prev = index;
}

static bool scan_is_active(const struct pager_core *core, uint32_t index)
{
	const uint32_t freed_at = core->chunks[index].freed_at;

	return (freed_at && core->freed - freed_at < core->local / 8) ||
	       core->scanned % SCAN_ACTIVE_ONE_IN == 0;
}

void pager_pages_scanned(struct pager_core *core, uint64_t page, unsigned n)
{
	const uint32_t last = (uint32_t)((page + n - 1) / PAGER_CHUNK);

	for (uint32_t chunk = (uint32_t)(page / PAGER_CHUNK); chunk <= last; chunk++)
		if (core->chunks[chunk].list == CHUNK_IDLE) {
			core->scanned++;
			chunk_move(core, chunk,
				   scan_is_active(core, chunk) ? CHUNK_ACTIVE : CHUNK_SCANNED);
		}
}

static uint32_t chunk_last(const struct pager_core *core, enum pager_list list)
{
	return core->chunks[core->n_chunks + list].prev;
}

/* Bits of the pages of a chunk with these bits of their state. */
static uint64_t chunk_bits(const struct pager_core *core, uint32_t chunk, unsigned mask,
			   unsigned value)
{
	const uint8_t *state = core->state + (size_t)chunk * PAGER_CHUNK;
	uint64_t bits = 0;

	for (unsigned i = 0; i < PAGER_CHUNK; i++)
		bits |= (uint64_t)((state[i] & mask) == value) << i;
	return bits;
}

/* The first run of set bits: its length; *at is where it begins. */
static unsigned run_first(uint64_t bits, unsigned *at)
{
	uint64_t rest;

	*at = (unsigned)__builtin_ctzll(bits);
	rest = ~(bits >> *at);
	return rest ? min_u32((uint32_t)__builtin_ctzll(rest), PAGER_CHUNK - *at) : PAGER_CHUNK;
}

static uint64_t run_mask(unsigned at, unsigned n)
{
	return (n == PAGER_CHUNK ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << at;
}

void chunk_sort(struct pager_core *core, uint32_t chunk)
{
	if (chunk_bits(core, chunk, PAGE_STATE, PAGE_CACHED))
		chunk_move(core, chunk, CHUNK_INACTIVE);
	else if (chunk_bits(core, chunk, PAGE_STATE, PAGE_MAPPED))
		chunk_move(core, chunk, CHUNK_ACTIVE);
	else
		chunk_move(core, chunk, CHUNK_IDLE);
}

/* ---- write-back ---- */

static struct pager_batch **batch_list(struct pager_core *core, const struct pager_batch *batch)
{
	return batch < core->batches + BATCHES ? &core->free_batches : &core->more_batches;
}

static void batch_free(struct pager_batch *batch)
{
	struct pager_batch **list = batch_list(batch->core, batch);

	batch->next = *list;
	*list = batch;
}

/* Has no batch ended for long? A donor does not answer, and is not given up yet. */
static bool writes_are_stuck(const struct pager_core *core)
{
	const uint64_t since_ns = gn_now_ns() - WRITE_STUCK_NS;

	if (core->free_batches)
		return false;
	for (unsigned i = 0; i < BATCHES; i++)
		if (core->batches[i].start_ns > since_ns)
			return false;
	return true;
}

/* NULL: not now. A donor that is not connected would keep the batch from the others. */
static struct pager_batch *batch_for(struct pager_core *core, uint64_t page)
{
	struct pager_batch *batch = core->free_batches;

	if (unlikely(core->write_error) && gn_now_ns() < core->write_retry_ns)
		return NULL;
	if (unlikely(!batch) && writes_are_stuck(core))
		batch = core->more_batches;
	return batch && vol_can_write(core->vol, page * PAGE_BYTES) ? batch : NULL;
}

static void write_done(struct gn_vol_req *req)
{
	struct pager_write *write = req->user;
	struct pager_batch *batch = write->batch;
	struct pager_core *core = batch->core;

	core->requests--;
	for (uint64_t p = write->page; p < write->page + write->n; p++) {
		core->state[p] &= (uint8_t)~PAGE_WRITING;
		if (unlikely(req->status))
			core->state[p] |= PAGE_DIRTY;
		else if (page_state(core, p) == PAGE_CACHED)
			core->state[p] |= PAGE_SAVED;
		if (mutant("pager-lose-write", MUTANT_ALWAYS))
			core->state[p] &= (uint8_t)~PAGE_DIRTY;
	}
	if (unlikely(req->status)) {
		const uint64_t now = gn_now_ns();

		if (!core->write_error)
			core->write_failed_ns = now;
		core->write_error = req->status;
		core->write_retry_ns = now + WRITE_RETRY_NS;
	} else {
		core->write_error = 0;
		counter_add(&core->stats.pages_out, write->n);
	}
	if (!--batch->pending)
		batch_free(batch);
}

static bool page_is_zero(const uint8_t *bytes)
{
	const uint64_t *word = (const uint64_t *)(const void *)bytes;

	for (size_t i = 0; i < PAGE_BYTES / sizeof(*word); i += 4)
		if (word[i] | word[i + 1] | word[i + 2] | word[i + 3])
			return false;
	return true;
}

static void batch_add(struct pager_batch *batch, uint64_t page, unsigned n, uint8_t *bytes)
{
	struct pager_write *write = &batch->write[batch->n++];
	struct pager_core *core = batch->core;

	write->page = page;
	write->n = n;
	write->req.op = GN_VOL_WRITE;
	write->req.offset = page * PAGE_BYTES;
	write->sge.addr = bytes;
	write->sge.len_bytes = n * PAGE_BYTES;
	for (uint64_t p = page; p < page + n; p++)
		core->state[p] =
			(uint8_t)((core->state[p] & ~PAGE_DIRTY) | PAGE_WRITING | PAGE_STORED);
}

/* Adds a run of changed pages but those of zeros, which the volume need not have. */
static void batch_add_run(struct pager_batch *batch, uint64_t page, unsigned n, uint8_t *bytes)
{
	struct pager_core *core = batch->core;
	unsigned from = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!page_is_zero(bytes + (size_t)i * PAGE_BYTES))
			continue;
		if (i > from)
			batch_add(batch, page + from, i - from, bytes + (size_t)from * PAGE_BYTES);
		core->state[page + i] &= (uint8_t) ~(PAGE_DIRTY | PAGE_STORED);
		from = i + 1;
	}
	if (n > from)
		batch_add(batch, page + from, n - from, bytes + (size_t)from * PAGE_BYTES);
}

/* Writes the CACHED pages of a chunk that changed. False: not now. */
static bool chunk_write(struct pager_core *core, uint32_t chunk)
{
	const uint64_t base = (uint64_t)chunk * PAGER_CHUNK;
	uint64_t bits = chunk_bits(core, chunk, PAGE_STATE | PAGE_DIRTY | PAGE_WRITING,
				   PAGE_CACHED | PAGE_DIRTY);
	struct pager_batch *batch = bits ? batch_for(core, base) : NULL;
	struct gn_vol_req *reqs[BATCH_WRITES];
	uint8_t *bytes;

	if (!bits)
		return true;
	if (!batch)
		return false;
	batch->n = 0;
	bytes = batch->bytes;
	while (bits) {
		unsigned at, n = run_first(bits, &at);

		bits &= ~run_mask(at, n);
		if (core->ops->load(core->arg, base + at, n, bytes))
			continue; /* stays DIRTY */
		batch_add_run(batch, base + at, n, bytes);
		bytes += (size_t)n * PAGE_BYTES;
	}
	if (!batch->n)
		return true;
	for (unsigned i = 0; i < batch->n; i++)
		reqs[i] = &batch->write[i].req;
	*batch_list(core, batch) = batch->next;
	batch->pending = batch->n;
	batch->start_ns = gn_now_ns();
	counter_add(&core->stats.writes, batch->n);
	pager_submit(core, reqs, batch->n);
	return true;
}

void pager_batches_init(struct pager_core *core, uint8_t *bytes)
{
	for (unsigned i = 0; i < BATCHES + BATCHES_MORE; i++) {
		struct pager_batch *batch = &core->batches[i];

		batch->core = core;
		batch->bytes = bytes;
		bytes += PAGER_CHUNK * PAGE_BYTES;
		batch_free(batch);
		for (unsigned w = 0; w < BATCH_WRITES; w++) {
			struct pager_write *write = &batch->write[w];

			write->batch = batch;
			write->sge.mem = core->mem;
			write->req.sge = &write->sge;
			write->req.n_sge = 1;
			write->req.done = write_done;
			write->req.user = write;
		}
	}
}

/* ---- unmapping ---- */

/*
 * Unmaps pages of a chunk, from the first to the last bit; between them are no pages to keep. The
 * bits of pages that were written since they were mapped. A write between the question and the
 * unmapping would not be noticed: first unmap, then ask.
 */
static int pages_unmap(struct pager_core *core, uint64_t base, uint64_t bits, uint64_t *written)
{
	const unsigned first = (unsigned)__builtin_ctzll(bits);
	const unsigned n = PAGER_CHUNK - (unsigned)__builtin_clzll(bits) - first;
	uint64_t got = 0;
	int rc;

	if (mutant("pager-scan-early", MUTANT_ALWAYS))
		core->ops->written(core->arg, base + first, n, &got);
	rc = core->ops->unmap(core->arg, base + first, n);
	if (rc)
		return rc;
	if (!mutant("pager-scan-early", MUTANT_ALWAYS) &&
	    core->ops->written(core->arg, base + first, n, &got))
		got = ~UINT64_C(0);
	*written |= got << first & bits;
	return 0;
}

/* The first of these bits: those before the next bit of stop. */
static uint64_t bits_until(uint64_t bits, uint64_t stop)
{
	const uint64_t behind = stop & ~((bits & -bits) - 1);

	return behind ? bits & ((behind & -behind) - 1) : bits;
}

unsigned pager_deactivate(struct pager_core *core, uint32_t chunk, uint64_t mask)
{
	const uint64_t base = (uint64_t)chunk * PAGER_CHUNK;
	const uint64_t pinned = chunk_bits(core, chunk, PAGE_PINNED, PAGE_PINNED);
	const uint64_t keep = pinned | ~mask;
	uint64_t left = chunk_bits(core, chunk, PAGE_STATE, PAGE_MAPPED) & ~keep;
	unsigned unmapped = 0;

	if (mutant("pager-evict-reading", MUTANT_ALWAYS)) {
		uint64_t reading = chunk_bits(core, chunk, PAGE_STATE, PAGE_READING);

		for (; reading; reading &= reading - 1) {
			page_set(core, base + (unsigned)__builtin_ctzll(reading), PAGE_REMOTE);
			gauge_add(&core->stats.resident, -1);
		}
	}
	while (left) {
		const uint64_t bits = bits_until(left, keep);
		uint64_t written = 0;

		left &= ~bits;
		if (pages_unmap(core, base, bits, &written))
			continue; /* they stay mapped */
		for (uint64_t rest = bits; rest; rest &= rest - 1) {
			const unsigned i = (unsigned)__builtin_ctzll(rest);

			page_set(core, base + i, PAGE_CACHED);
			if (written >> i & 1)
				core->state[base + i] |= PAGE_DIRTY;
		}
		unmapped += (unsigned)__builtin_popcountll(bits);
	}
	gauge_add(&core->stats.cached, unmapped);
	chunk_write(core, chunk);
	chunk_sort(core, chunk);
	return unmapped;
}

/* ---- freeing ---- */

/* Frees CACHED pages that the volume has. Returns how many. */
static unsigned chunk_free(struct pager_core *core, uint32_t chunk)
{
	const uint64_t base = (uint64_t)chunk * PAGER_CHUNK;
	const uint64_t in_file = chunk_bits(core, chunk, PAGE_STATE, PAGE_MAPPED) |
				 chunk_bits(core, chunk, PAGE_STATE, PAGE_CACHED);
	const uint64_t all = chunk_bits(
		core, chunk, PAGE_STATE | PAGE_DIRTY | PAGE_WRITING | PAGE_PINNED, PAGE_CACHED);
	uint64_t left = all;
	unsigned freed = 0, dropped = 0;

	while (left) {
		/* Pages that are not in the file do not end a run. */
		const uint64_t bits = bits_until(left, in_file & ~all);
		const unsigned first = (unsigned)__builtin_ctzll(bits);
		const unsigned n = PAGER_CHUNK - (unsigned)__builtin_clzll(bits) - first;

		left &= ~bits;
		if (core->ops->punch(core->arg, base + first, n))
			continue;
		for (uint64_t rest = bits; rest; rest &= rest - 1) {
			const uint64_t p = base + (unsigned)__builtin_ctzll(rest);

			dropped += !(core->state[p] & PAGE_SAVED);
			core->state[p] &= (uint8_t)~PAGE_SAVED;
			page_set(core, p, core->state[p] & PAGE_STORED ? PAGE_REMOTE : PAGE_FRESH);
		}
		freed += (unsigned)__builtin_popcountll(bits);
	}
	gauge_add(&core->stats.resident, -(int64_t)freed);
	gauge_add(&core->stats.cached, -(int64_t)freed);
	counter_add(&core->stats.dropped, dropped);
	core->freed += freed;
	if (freed)
		core->chunks[chunk].freed_at = core->freed;
	return freed;
}

/* Frees pages of the oldest INACTIVE chunk that has some, of all while threads wait for a frame. */
static bool reclaim(struct pager_core *core)
{
	const uint32_t all = core->listed[CHUNK_INACTIVE];

	for (uint32_t left = core->n_waiters ? all : min_u32(ROTATE_MAX, all); left; left--) {
		const uint32_t chunk = chunk_last(core, CHUNK_INACTIVE);
		const unsigned freed = chunk_free(core, chunk);

		chunk_write(core, chunk); /* if it could not be written before */
		chunk_sort(core, chunk);
		if (freed)
			return true;
	}
	return false;
}

/*
 * Unmaps chunks until one has pages. While threads wait for a frame, until one has pages that are
 * being written, or need not be: these are freed. While WRITEs are stuck, others stay local,
 * unmapped.
 */
static bool deactivate_from(struct pager_core *core, enum pager_list list)
{
	const bool waited = core->n_waiters, stuck = waited && writes_are_stuck(core);
	uint32_t left = min_u32(core->listed[list], waited ? WAITED_MAX : ROTATE_MAX);
	const uint32_t requests = core->requests;
	unsigned unmapped = 0, freed = 0;

	for (; left && (core->free_batches || stuck); left--) {
		const uint32_t chunk = chunk_last(core, list);

		unmapped += pager_deactivate(core, chunk, ~UINT64_C(0));
		if (waited) {
			freed = chunk_free(core, chunk);
			chunk_sort(core, chunk);
		}
		if (waited ? freed || core->requests > requests : unmapped)
			break;
	}
	return unmapped || freed;
}

static bool deactivate_oldest(struct pager_core *core)
{
	const uint64_t scanned = core->local / 16 / PAGER_CHUNK;

	if (core->listed[CHUNK_SCANNED] > (scanned > SCANNED_MIN ? scanned : SCANNED_MIN) &&
	    deactivate_from(core, CHUNK_SCANNED))
		return true;
	return deactivate_from(core, CHUNK_ACTIVE) || deactivate_from(core, CHUNK_SCANNED);
}

bool pager_is_out_of_memory(const struct pager_core *core)
{
	return core->write_error && !frames_free(core) && !core->requests &&
	       gn_now_ns() - core->write_failed_ns > OUT_OF_MEMORY_NS;
}

/* Nothing can be freed, because nothing can be written. */
static void out_of_memory(struct pager_core *core)
{
	const struct pager_waiter w = core->waiters[core->waiters_head];

	core->waiters_head = (core->waiters_head + 1) % WAITERS;
	core->n_waiters--;
	if (page_state(core, w.page) == PAGE_FRESH || page_state(core, w.page) == PAGE_REMOTE)
		pager_lose(core, w.page, "out of remote memory, no local page can be freed",
			   core->write_error);
	else
		core->ops->wake(core->arg, w.page, 1);
}

bool pager_evict(struct pager_core *core)
{
	const uint64_t free = frames_free(core);

	/* If everything fits, each page that is not local has its frame already. */
	if (likely(free >= core->high || core->stats.mapped_bytes <= core->local * PAGE_BYTES)) {
		core->reclaiming = false;
		return false;
	}
	if (free < core->low)
		core->reclaiming = true;
	if (!core->reclaiming)
		return false;
	if (unlikely(core->n_waiters)) {
		if (reclaim(core) || deactivate_oldest(core))
			return true;
		if (pager_is_out_of_memory(core))
			out_of_memory(core);
		return false;
	}
	/* Unmapped and written back before the frames are needed. */
	if (core->stats.cached < core->cached_target && deactivate_oldest(core))
		return true;
	if (reclaim(core))
		return true;
	/* More cannot be written at a time. */
	return core->stats.cached < core->cached_target + BATCHES * PAGER_CHUNK &&
	       deactivate_oldest(core);
}
