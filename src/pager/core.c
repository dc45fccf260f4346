/* SPDX-License-Identifier: MIT */
/* The core of a pager: creation, faults, READs, and the handler's loop. */
#include "pager/pages.h"

#define LOCAL_MIN    32u /* pages; that of the API is higher */
#define FREE_LOW_MIN (4 * GN_PAGER_WINDOW_MAX)
#define CANNOT_MAP   "it cannot be mapped"
#define LOST_LOG_NS  UINT64_C(1000000000)
#define STALL_NS     UINT64_C(1000000000)
#define POLL_MAX     64u
#define RETRY_US     50u /* while nothing is under way that could free a frame */
#define PAGES_MAX    UINT32_MAX

/* ---- pages ---- */

void pager_pages_mapped(struct pager_core *core, uint64_t page, unsigned n)
{
	const uint32_t last = (uint32_t)((page + n - 1) / PAGER_CHUNK);

	for (uint64_t p = page; p < page + n; p++) {
		core->state[p] &= (uint8_t)~PAGE_SAVED;
		page_set(core, p, PAGE_MAPPED);
	}
	for (uint32_t chunk = (uint32_t)(page / PAGER_CHUNK); chunk <= last; chunk++)
		if (core->chunks[chunk].list == CHUNK_IDLE)
			chunk_move(core, chunk, CHUNK_ACTIVE);
}

/* One line a second: a donor that is lost can take millions of pages with it. */
static void log_lost(struct pager_core *core, uint64_t page, const char *why, int rc)
{
	const uint64_t now_ns = gn_now_ns();

	if (now_ns < core->lost_log_ns) {
		core->lost_unlogged++;
		return;
	}
	if (core->lost_unlogged)
		gn_log(GN_LOG_ERROR, "pager: %llu more pages were lost",
		       (unsigned long long)core->lost_unlogged);
	gn_log(GN_LOG_ERROR, "pager: page %llu is lost: %s: %s", (unsigned long long)page, why,
	       gn_strerror(rc));
	core->lost_log_ns = now_ns + LOST_LOG_NS;
	core->lost_unlogged = 0;
}

static void page_poison(struct pager_core *core, uint64_t page)
{
	if (core->ops->poison(core->arg, page))
		core->ops->wake(core->arg, page, 1); /* it faults again */
}

void pager_lose(struct pager_core *core, uint64_t page, const char *why, int rc)
{
	log_lost(core, page, why, rc);
	core->state[page] = (uint8_t)((core->state[page] & PAGE_PINNED) | PAGE_LOST);
	counter_add(&core->stats.lost, 1);
	page_poison(core, page);
}

/* ---- requests ---- */

void pager_submit(struct pager_core *core, struct gn_vol_req *const *reqs, unsigned n)
{
	const int rc = gn_vol_submit(core->queue, reqs, n);

	/* The queue is deep enough for all buffers, and the requests are ours. */
	assert(rc == (int)n);
	(void)rc;
	core->requests += n;
}

void pager_poll(struct pager_core *core)
{
	if (core->requests)
		gn_vol_poll(core->queue, NULL, POLL_MAX);
}

/* ---- READs ---- */

static void read_free(struct pager_read *read)
{
	struct pager_read **list = read->room > 1 ? &read->core->free_run :
						    &read->core->free_single;

	read->n = 0;
	read->next = *list;
	*list = read;
}

static void read_prepare(struct pager_read *read)
{
	struct pager_core *core = read->core;
	const uint64_t page = read->page + read->at;
	const unsigned n = read->single ? 1 : read->n;

	read->req.op = GN_VOL_READ;
	read->req.offset = page * PAGE_BYTES;
	read->sge.addr = read->bytes + (size_t)read->at * PAGE_BYTES;
	read->sge.len_bytes = n * PAGE_BYTES;
	core->prepared[core->n_prepared++] = &read->req;
}

void pager_read_submit(struct pager_core *core)
{
	const unsigned n = core->n_prepared;

	if (!n)
		return;
	core->n_prepared = 0;
	counter_add(&core->stats.reads, n);
	pager_submit(core, core->prepared, n);
}

/* Pages that were not read. */
static void read_failed(struct pager_core *core, uint64_t page, unsigned n, const char *why, int rc)
{
	gauge_add(&core->stats.resident, -(int64_t)n);
	for (uint64_t p = page; p < page + n; p++) {
		const bool wanted = core->state[p] & PAGE_WANTED;

		core->state[p] &= (uint8_t) ~(PAGE_WANTED | PAGE_DIRTY);
		page_set(core, p, PAGE_REMOTE);
		if (wanted)
			pager_lose(core, p, why, rc);
	}
}

/* Pages that were read, and are mapped. */
static void read_mapped(struct pager_read *read, uint64_t page, unsigned n)
{
	struct pager_core *core = read->core;

	for (uint64_t p = page; p < page + n; p++)
		if (core->state[p] & PAGE_WANTED)
			counter_add(&core->stats.fault_ns, gn_now_ns() - read->start_ns);
	if (read->scan)
		pager_pages_scanned(core, page, n);
	pager_pages_mapped(core, page, n);
	counter_add(&core->stats.pages_in, n);
}

/* Pages whose bytes are there. */
static void read_copy(struct pager_read *read, unsigned at, unsigned n)
{
	struct pager_core *core = read->core;
	const bool protect = !(core->state[read->page + at] & PAGE_DIRTY);

	while (n) {
		const uint64_t page = read->page + at;
		const int rc = core->ops->copy(core->arg, page, n,
					       read->bytes + (size_t)at * PAGE_BYTES, protect);
		const unsigned done = likely(rc > 0) ? (unsigned)rc : 1;

		if (likely(rc > 0))
			read_mapped(read, page, done);
		else /* the next ones are tried all the same */
			read_failed(core, page, 1, CANNOT_MAP, rc);
		at += done;
		n -= done;
	}
}

static void read_deliver(struct pager_read *read)
{
	if (likely(!read->failed)) {
		read_copy(read, 0, read->n);
		return;
	}
	for (unsigned i = 0; i < read->n; i++)
		if (read->failed >> i & 1)
			read_failed(read->core, read->page + i, 1, "no copy of it is left",
				    read->error);
		else
			read_copy(read, i, 1);
}

static void read_done(struct gn_vol_req *req)
{
	struct pager_read *read = req->user;

	read->core->requests--;
	if (mutant("pager-map-early", read->page)) {
		read_free(read);
		return;
	}
	if (unlikely(req->status && read->n > 1 && !read->single)) {
		read->single = true;
		read_prepare(read);
		pager_read_submit(read->core);
		return;
	}
	if (unlikely(req->status)) {
		read->failed |= UINT64_C(1) << read->at;
		read->error = req->status;
	}
	if (unlikely(read->single && ++read->at < read->n)) {
		read_prepare(read);
		pager_read_submit(read->core);
		return;
	}
	read_deliver(read);
	read_free(read);
}

bool pager_read(struct pager_core *core, uint64_t page, unsigned n)
{
	struct pager_read **list = n == 1 && core->free_single ? &core->free_single :
								 &core->free_run;
	struct pager_read *read = *list;

	if (!read || n > frames_free(core))
		return false;
	assert(n && n <= read->room);
	*list = read->next;
	read->page = page;
	read->n = n;
	read->start_ns = core->fault_ns;
	read->scan = core->scanning;
	read->single = false;
	read->at = 0;
	read->failed = 0;
	gauge_add(&core->stats.resident, n);
	for (uint64_t p = page; p < page + n; p++)
		page_set(core, p, PAGE_READING);
	read_prepare(read);
	if (mutant("pager-map-early", page))
		read_deliver(read);
	return true;
}

/* ---- faults ---- */

/* A fault that cannot be answered: frames, or buffers, are missing. */
static void waiter_add(struct pager_core *core, uint64_t page, uint64_t thread)
{
	if (core->n_waiters == WAITERS) {
		core->ops->wake(core->arg, page, 1); /* it faults again */
		return;
	}
	core->waiters[(core->waiters_head + core->n_waiters++) % WAITERS] =
		(struct pager_waiter){page, thread, core->fault_ns, core->fault_writes};
}

static void fault_ended(struct pager_core *core)
{
	counter_add(&core->stats.fault_ns, gn_now_ns() - core->fault_ns);
}

int pager_map_cached(struct pager_core *core, uint64_t page, unsigned n)
{
	/* A page that will be written back anyway need not tell of further writes. */
	const bool protect = !(core->state[page] & PAGE_DIRTY);
	int rc;

	for (; n; page += (unsigned)rc, n -= (unsigned)rc) {
		rc = core->ops->map(core->arg, page, n, protect);
		if (rc <= 0)
			return rc;
		gauge_add(&core->stats.cached, -(int64_t)rc);
		pager_pages_mapped(core, page, (unsigned)rc);
	}
	return 0;
}

/* A page that is mapped for a write need not tell of it. */
static void page_will_be_written(struct pager_core *core, uint64_t page)
{
	if (core->fault_writes)
		core->state[page] |= PAGE_DIRTY;
}

/* A local page that the kernel does not map, for want of memory. */
static void page_give_up(struct pager_core *core, uint64_t page, int rc)
{
	page_settle(core, page);
	if (core->ops->unmap(core->arg, page, 1) || core->ops->punch(core->arg, page, 1)) {
		core->ops->wake(core->arg, page, 1); /* it faults again */
		return;
	}
	gauge_add(&core->stats.resident, -1);
	if (page_state(core, page) == PAGE_CACHED)
		gauge_add(&core->stats.cached, -1);
	pager_lose(core, page, CANNOT_MAP, rc);
}

static void fault_cached(struct pager_core *core, uint64_t page, uint64_t thread)
{
	int rc = 0;

	pager_fault_window(core, page, thread);
	if (page_state(core, page) == PAGE_CACHED) {
		page_will_be_written(core, page);
		rc = pager_map_cached(core, page, 1);
	}
	if (unlikely(rc))
		page_give_up(core, page, rc);
	fault_ended(core);
}

/* Another fault has mapped it, or the program has unmapped it by itself. */
static void fault_mapped(struct pager_core *core, uint64_t page)
{
	const int rc = core->ops->remap(core->arg, page);

	if (unlikely(rc))
		page_give_up(core, page, rc);
}

static bool fault_remote(struct pager_core *core, uint64_t page, uint64_t thread)
{
	pager_fault_window(core, page, thread);
	if (page_state(core, page) == PAGE_REMOTE) {
		if (!pager_read(core, page, 1))
			return false;
		page_will_be_written(core, page);
	}
	if (page_state(core, page) == PAGE_READING)
		core->state[page] |= PAGE_WANTED;
	return true;
}

static void fault_fresh(struct pager_core *core, uint64_t page)
{
	const int rc = pager_zero_fill(core, page);

	if (rc)
		pager_lose(core, page, CANNOT_MAP, rc);
	fault_ended(core);
}

bool pager_fault_start(struct pager_core *core, uint64_t page, uint64_t thread)
{
	bool started = true;

	if (unlikely(page_is_held(core, page) && page_state(core, page) != PAGE_READING)) {
		core->ops->wake(core->arg, page, 1); /* it faults again */
		return true;
	}
	switch (page_state(core, page)) {
	case PAGE_FRESH:
		if (!frames_free(core))
			return false;
		fault_fresh(core, page);
		break;
	case PAGE_REMOTE:
		started = fault_remote(core, page, thread);
		break;
	case PAGE_READING:
		core->state[page] |= PAGE_WANTED;
		break;
	case PAGE_CACHED:
		fault_cached(core, page, thread);
		break;
	case PAGE_MAPPED:
		fault_mapped(core, page);
		break;
	case PAGE_LOST: /* again: the program can take the poison away, by MADV_DONTNEED */
		page_poison(core, page);
		break;
	default: /* unmapped meanwhile */
		core->ops->wake(core->arg, page, 1);
	}
	pager_read_submit(core);
	return started;
}

static void fault_count(struct pager_core *core, uint64_t page)
{
	counter_add(&core->stats.faults, 1);
	switch (page_state(core, page)) {
	case PAGE_FRESH:
		counter_add(&core->stats.faults_fresh, 1);
		break;
	case PAGE_REMOTE:
	case PAGE_READING:
		counter_add(&core->stats.faults_remote, 1);
		break;
	case PAGE_CACHED:
		counter_add(&core->stats.faults_cached, 1);
		break;
	default:
		break;
	}
}

/* Others that wait for a frame come first. */
static bool fault_queues(const struct pager_core *core, uint64_t page)
{
	return core->n_waiters &&
	       (page_state(core, page) == PAGE_FRESH || page_state(core, page) == PAGE_REMOTE);
}

void pager_core_fault(struct pager_core *core, uint64_t page, uint64_t thread, bool writes)
{
	assert(page < core->pages);
	core->fault_writes = writes;
	core->fault_ns = gn_now_ns();
	fault_count(core, page);
	if (unlikely(fault_queues(core, page) || !pager_fault_start(core, page, thread))) {
		counter_add(&core->stats.stalls, 1);
		waiter_add(core, page, thread);
		return;
	}
	pager_poll(core); /* the READ may have ended already */
}

static void waiters_start(struct pager_core *core)
{
	while (core->n_waiters) {
		const struct pager_waiter w = core->waiters[core->waiters_head];

		core->fault_ns = w.start_ns;
		core->fault_writes = w.writes;
		if (!pager_fault_start(core, w.page, w.thread))
			return;
		core->waiters_head = (core->waiters_head + 1) % WAITERS;
		core->n_waiters--;
	}
}

void pager_serve(struct pager_core *core)
{
	const uint64_t fault_ns = core->fault_ns;

	if (core->faults)
		core->faults(core->faults_arg);
	if (core->n_waiters)
		waiters_start(core);
	core->fault_ns = fault_ns;
}

/* ---- the loop ---- */

bool pager_core_busy(const struct pager_core *core)
{
	return core->requests || core->n_waiters;
}

bool pager_core_work(struct pager_core *core)
{
	bool more;

	pager_poll(core);
	more = pager_evict(core);
	if (unlikely(core->n_waiters))
		waiters_start(core);
	if (unlikely(core->n_needs))
		pager_needs_go_on(core);
	return more;
}

/* One line a second: what threads wait for that have waited for longer. */
static void log_stalls(struct pager_core *core)
{
	const uint64_t now_ns = gn_now_ns(), since_ns = now_ns - STALL_NS;
	const uint64_t waited_ns = core->waited_ns;
	const struct pager_waiter *w = &core->waiters[core->waiters_head];
	const struct pager_read *oldest = NULL;

	core->waited_ns = now_ns;
	if (likely(now_ns < core->stall_ns))
		return;
	core->stall_ns = now_ns + STALL_NS;
	for (unsigned i = 0; i < READS_SINGLE + READS_RUN; i++) {
		const struct pager_read *read = &core->reads[i];

		if (read->n && read->start_ns < since_ns &&
		    (!oldest || read->start_ns < oldest->start_ns))
			oldest = read;
	}
	/* Not the volume's fault: a busy or a stopped machine. */
	if (oldest && oldest->start_ns < waited_ns && waited_ns < since_ns)
		gn_log(GN_LOG_WARN, "pager: the handler did not run for %llu ms",
		       (unsigned long long)(now_ns - waited_ns) / 1000000);
	if (oldest)
		gn_log(GN_LOG_WARN, "pager: the READ of page %llu takes %llu ms so far",
		       (unsigned long long)oldest->page,
		       (unsigned long long)(now_ns - oldest->start_ns) / 1000000);
	if (core->n_held && core->held_ns < since_ns)
		gn_log(GN_LOG_WARN,
		       "pager: a command waits for requests of %llu pages from page %llu on for "
		       "%llu ms so far",
		       (unsigned long long)core->n_held, (unsigned long long)core->held,
		       (unsigned long long)(now_ns - core->held_ns) / 1000000);
	if (core->n_waiters && w->start_ns < since_ns)
		gn_log(GN_LOG_WARN,
		       "pager: page %llu waits for a free local page for %llu ms so far: %u "
		       "requests are under way; the last WRITE: %s",
		       (unsigned long long)w->page,
		       (unsigned long long)(now_ns - w->start_ns) / 1000000, core->requests,
		       gn_strerror(core->write_error));
}

bool pager_core_wait(struct pager_core *core, uint64_t deadline_ns)
{
	log_stalls(core);
	if (core->requests) {
		gn_vol_wait(core->queue, NULL, POLL_MAX, deadline_ns);
	} else if (core->n_waiters) {
		const uint64_t now = gn_now_ns();

		if (now < deadline_ns)
			gn_sleep_us(min_u64(RETRY_US, (deadline_ns - now) / 1000 + 1));
	}
	return pager_core_work(core);
}

/* Not until a request has ended: those of a donor that does not answer end when it is given up. */
void pager_pause(struct pager_core *core)
{
	if (pager_evict(core))
		return;
	log_stalls(core);
	if (core->requests)
		gn_vol_wait(core->queue, NULL, POLL_MAX, gn_deadline_us(RETRY_US));
	else
		gn_sleep_us(RETRY_US);
}

void pager_core_query(const struct pager_core *core, struct gn_pager_stats *out)
{
	const uint64_t *from = (const uint64_t *)(const void *)&core->stats;
	uint64_t *to = (uint64_t *)(void *)out;

	static_assert(sizeof(*out) % sizeof(uint64_t) == 0, "numbers only");
	for (size_t i = 1; i < sizeof(*out) / sizeof(uint64_t); i++)
		to[i] = counter_read(&from[i]);
}

/* ---- creation ---- */

static void core_free(struct pager_core *core)
{
	if (!core)
		return;
	gn_vol_queue_destroy(core->queue);
	if (core->mem)
		gn_io_mem_deregister(core->mem);
	ranges_fini(&core->ranges);
	gn_free(core->buffers);
	gn_free(core->reads);
	gn_free(core->batches);
	gn_free(core->waiters);
	gn_free(core->was_pinned);
	gn_free(core->chunks);
	gn_free(core->state);
	gn_free(core);
}

static int core_alloc(struct pager_core *core)
{
	const size_t bytes =
		(size_t)(READS_SINGLE + (READS_RUN + BATCHES + BATCHES_MORE) * PAGER_CHUNK) *
		PAGE_BYTES;

	core->state = gn_alloc((size_t)core->n_chunks * PAGER_CHUNK, GN_CACHELINE);
	core->chunks = gn_alloc(((size_t)core->n_chunks + CHUNK_LISTS) * sizeof(*core->chunks), 0);
	core->waiters = gn_alloc(WAITERS * sizeof(*core->waiters), 0);
	core->was_pinned = gn_alloc((core->local / 128 + 1) * sizeof(*core->was_pinned), 0);
	core->reads = gn_alloc((READS_SINGLE + READS_RUN) * sizeof(*core->reads), GN_CACHELINE);
	core->batches = gn_alloc((BATCHES + BATCHES_MORE) * sizeof(*core->batches), GN_CACHELINE);
	core->buffers = gn_alloc(bytes, PAGE_BYTES);
	if (!core->state || !core->chunks || !core->waiters || !core->was_pinned || !core->reads ||
	    !core->batches || !core->buffers || ranges_init(&core->ranges, core->pages))
		return gn_fail(-ENOMEM, "gn_pager_create(): " NO_MEMORY);
	return gn_io_mem_register(gn_vol_engine(core->vol), core->buffers, bytes, &core->mem);
}

static void reads_init(struct pager_core *core, uint8_t **bytes)
{
	for (unsigned i = 0; i < READS_SINGLE + READS_RUN; i++) {
		struct pager_read *read = &core->reads[i];

		read->core = core;
		read->room = i < READS_SINGLE ? 1 : PAGER_CHUNK;
		read->bytes = *bytes;
		read->sge.mem = core->mem;
		read->req.sge = &read->sge;
		read->req.n_sge = 1;
		read->req.done = read_done;
		read->req.user = read;
		*bytes += (size_t)read->room * PAGE_BYTES;
		read_free(read);
	}
}

static void core_init(struct pager_core *core)
{
	uint8_t *bytes = core->buffers;

	for (uint32_t list = 0; list < CHUNK_LISTS; list++)
		core->chunks[core->n_chunks + list] =
			(struct pager_chunk){.next = core->n_chunks + list,
					     .prev = core->n_chunks + list,
					     .list = (uint8_t)list};
	/* Some windows of prefetch fit in. */
	core->low = core->local / 64;
	if (core->low < FREE_LOW_MIN)
		core->low = min_u64(FREE_LOW_MIN, core->local / 16);
	core->high = 2 * core->low;
	core->freed = 1;
	/* More would save few READs, and cost a fault for each page that is touched again. */
	core->cached_target = core->local / 16;
	core->stats.local_bytes = (core->local + 1) * PAGE_BYTES;
	core->stats.free_bytes = core->pages * PAGE_BYTES;
	pager_prefetch_init(core);
	reads_init(core, &bytes);
	pager_batches_init(core, bytes);
}

int pager_core_create(struct gn_vol *vol, const struct pager_core_opts *opts,
		      const struct pager_ops *ops, void *arg, struct pager_core **out)
{
	struct pager_core *core;
	int rc;

	if (opts->pages > gn_vol_bytes(vol) / PAGE_BYTES || !opts->pages ||
	    opts->local < LOCAL_MIN || opts->pages > PAGES_MAX)
		return gn_fail(-EINVAL, "gn_pager_create(): sizes");
	core = gn_alloc(sizeof(*core), GN_CACHELINE);
	if (!core)
		return gn_fail(-ENOMEM, "gn_pager_create(): " NO_MEMORY);
	core->vol = vol;
	core->ops = ops;
	core->arg = arg;
	core->faults = opts->faults;
	core->faults_arg = opts->faults_arg;
	core->pages = opts->pages;
	core->local = opts->local - 1; /* one for page_revive() */
	core->window = opts->window;
	core->n_chunks = (uint32_t)((opts->pages + PAGER_CHUNK - 1) / PAGER_CHUNK);
	rc = core_alloc(core);
	if (!rc)
		rc = gn_vol_queue_create(vol, QUEUE_DEPTH, &core->queue);
	if (rc) {
		core_free(core);
		return rc;
	}
	core_init(core);
	*out = core;
	return 0;
}

void pager_core_destroy(struct pager_core *core)
{
	while (core && core->requests)
		gn_vol_wait(core->queue, NULL, POLL_MAX, GN_FOREVER);
	core_free(core);
}
