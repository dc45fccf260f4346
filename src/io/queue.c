/* SPDX-License-Identifier: MIT */
/* Queues: the requests of a thread that have ended; polling and waiting for them. */
#include "io/engine.h"

/* ---- the end of a request ---- */

static void queue_add_mine(struct gn_io_queue *queue, struct gn_io_req *req)
{
	struct io_req *r = io_req_of(req);

	r->next = NULL;
	*queue->mine_last = req;
	queue->mine_last = &r->next;
}

static void req_end(struct io_poller *poller, struct gn_io_req *req, struct gn_io_queue *self)
{
	struct io_req *r = io_req_of(req);

	counter_add(&poller->stats.requests[req->op], 1);
	counter_add(&poller->stats.bytes[req->op], r->len_bytes);
	counter_add(&poller->stats.failed, r->status != 0);
	if (r->queue == self && likely(!self->has_source))
		queue_add_mine(self, req);
	else /* which has space for all requests that may be under way */
		gn_queue_push(r->queue->ended, req);
}

void io_piece_end(struct io_poller *poller, struct io_piece *piece, int status,
		  struct gn_io_queue *self)
{
	struct gn_io_req *req = io_part_of(piece)->req;
	struct io_req *r = io_req_of(req);
	int none = 0;

	if (unlikely(status))
		__atomic_compare_exchange_n(&r->status, &none, status, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	/* With two pieces two threads may be here; the last sees what the first stored. */
	if (likely(__atomic_load_n(&r->pieces_left, __ATOMIC_ACQUIRE) == 1) ||
	    __atomic_sub_fetch(&r->pieces_left, 1, __ATOMIC_ACQ_REL) == 0)
		req_end(poller, req, self);
}

static struct gn_io_req *queue_take(struct gn_io_queue *queue)
{
	struct gn_io_req *req = queue->mine;

	if (!req)
		return gn_queue_pop(queue->ended);
	queue->mine = io_req_of(req)->next;
	if (!queue->mine)
		queue->mine_last = &queue->mine;
	return req;
}

static void queue_forget_pieces(struct gn_io_queue *queue, struct gn_io_req *req)
{
	const struct gn_io_target *target = req->region->target;
	const struct io_req *r = io_req_of(req);
	const uint32_t first = r->part[0].piece.len_bytes;

	for (unsigned i = 0; i < 1 + (first < r->len_bytes); i++) {
		const uint64_t at = r->part[i].piece.start;

		queue->out[target->channels[io_channel_of(at, target->n_channels)].poller->index]--;
	}
}

/* The owner takes a request that has ended. */
static void queue_finish(struct gn_io_queue *queue, struct gn_io_req *req,
			 struct io_refs_list *refs)
{
	struct io_req *r = io_req_of(req);

	req->status = r->status;
	if (likely(req->region)) {
		if (unlikely(r->buffer || r->dyn))
			io_memory_finish(queue->io, req);
		queue_forget_pieces(queue, req);
		io_refs_count_req(refs, req, -1);
	}
	r->queue = NULL;
	queue->under_way--;
}

/* Hands ended requests to the owner. */
static unsigned queue_reap(struct gn_io_queue *queue, struct gn_io_req **reqs, unsigned n)
{
	struct io_refs_list refs = {0};
	struct gn_io_req *req;
	unsigned got = 0;

	queue->reaping++;
	while (got < n && (req = queue_take(queue))) {
		queue_finish(queue, req, &refs);
		if (req->done) {
			io_refs_apply_all(&refs, -1);
			req->done(req);
		} else if (reqs) {
			*reqs++ = req;
		}
		got++;
	}
	io_refs_apply_all(&refs, -1);
	queue->reaping--;
	return got;
}

/* ---- progress ---- */

/* The pollers that have requests of this queue; for the service thread, all of them. */
static uint64_t queue_pollers(const struct gn_io_queue *queue)
{
	const uint32_t n = __atomic_load_n(&queue->io->n_pollers, __ATOMIC_ACQUIRE);
	uint64_t set = 0;

	for (uint32_t i = 0; i < n; i++)
		if (queue->out[i] || queue->service)
			set |= UINT64_C(1) << i;
	return set;
}

/* Takes the next poller out of the set. */
static struct io_poller *pollers_next(const struct gn_io *io, uint64_t *set)
{
	const int i = __builtin_ctzll(*set);

	*set &= *set - 1;
	return io->pollers[i];
}

/*
 * Whether a completion may come. For the service thread, which others submit for, also soon: while
 * there is a connection. The caller has the lock.
 */
static bool poller_may_complete(const struct io_poller *poller, bool service)
{
	for (const struct io_channel *ch = poller->channels; ch; ch = ch->next)
		if (ch->state == IO_CHANNEL_UP && (service || ch->head != ch->tail))
			return true;
	return false;
}

/*
 * One poll of each poller. From time to time also looks for events and deadlines: under the same
 * lock, since threads that poll in step could find it taken whenever they try for that alone.
 * *posted: whether a completion may come, as far as this thread can see.
 */
static uint32_t queue_progress(struct gn_io_queue *queue, uint64_t set, bool *posted)
{
	uint64_t ticks = 0;
	uint32_t found = 0;
	bool locked = false, all = true, due = false;

	*posted = false;
	while (set) {
		struct io_poller *poller = pollers_next(queue->io, &set);
		uint32_t n;

		if (!io_poller_try(poller)) {
			*posted = true;
			all = false;
			continue;
		}
		locked = true;
		io_poller_post(poller, queue);
		n = io_poller_poll(poller, queue->poll.batch, queue);
		if (!n) {
			*posted |= poller_may_complete(poller, queue->service);
			ticks = ticks ? ticks : exec_ticks();
			due = ticks - queue->maintained_ticks >= IO_MAINTAIN_TICKS;
		}
		if (unlikely(due))
			io_poller_maintain(poller, queue);
		io_poller_leave(poller, queue);
		found += n;
	}
	if (unlikely(due && all))
		queue->maintained_ticks = ticks;
	if (!locked)
		gn_yield(); /* other threads poll, or were preempted while they did */
	return found;
}

/* Returns whether it did so for all pollers: other threads may hold their locks. */
static bool queue_maintain(struct gn_io_queue *queue, uint64_t set)
{
	bool all = true;

	while (set) {
		struct io_poller *poller = pollers_next(queue->io, &set);

		if (!io_poller_try(poller)) {
			all = false;
			continue;
		}
		io_poller_maintain(poller, queue);
		io_poller_leave(poller, queue);
	}
	return all;
}

int gn_io_poll(struct gn_io_queue *queue, struct gn_io_req **reqs, unsigned n)
{
	uint64_t set;
	unsigned got;
	bool posted;
	const int rc = io_queue_check(queue, "gn_io_poll()");

	if (unlikely(rc))
		return rc;
	got = queue_reap(queue, reqs, n);
	if (got || !queue->under_way)
		return (int)got;
	set = queue_pollers(queue);
	queue_progress(queue, set, &posted);
	return (int)queue_reap(queue, reqs, n);
}

/* ---- waiting ---- */

/*
 * After arming: completions that came before raise no event of their own. Polls them; or, in a mode
 * with an event for each batch, raises the event.
 */
static uint32_t queue_look_again(struct gn_io_queue *queue, struct io_poller *poller)
{
	struct gn_source *cq = gn_cq_source(poller->cq);

	if (mutant("io-no-poll-after-arm", MUTANT_ALWAYS))
		return 0;
	if (!io_poll_by_event(&queue->poll))
		return io_poller_poll(poller, queue->poll.batch, queue);
	if (cq->ops->ready(cq))
		gn_chan_wake(poller->chan);
	return 0;
}

/* Requests an event of each poller. */
static uint32_t queue_arm(struct gn_io_queue *queue, uint64_t set)
{
	uint32_t found = 0;

	while (set) {
		struct io_poller *poller = pollers_next(queue->io, &set);

		/* From now on a thread that holds the lock arms the cq before unlocking. */
		__atomic_fetch_add(&poller->sleepers, 1, __ATOMIC_SEQ_CST);
		if (!io_poller_try_or_notify(poller))
			continue;
		if (!poller->armed)
			io_poller_arm(poller);
		io_poller_post(poller, queue);
		found += queue_look_again(queue, poller);
		io_poller_leave(poller, queue);
	}
	return found;
}

static struct gn_wait_item poller_wait_item(const struct io_poller *poller)
{
	return poller->io->attr.caps & GN_CAP_EVENT_FD ? gn_wait_fd(gn_chan_fd(poller->chan)) :
							 gn_wait_on(gn_chan_source(poller->chan));
}

/* All pollers are armed: sleeps until one has an event, or a request has ended. */
static int queue_sleep(struct gn_io_queue *queue, uint64_t set, uint64_t deadline_ns)
{
	struct gn_wait_item items[IO_POLLERS_MAX + 1];
	uint64_t due_ns = deadline_ns;
	unsigned n = 0;
	int rc;

	items[n++] = gn_wait_on(gn_queue_source(queue->ended));
	while (set) {
		const struct io_poller *poller = pollers_next(queue->io, &set);
		const uint64_t ns = __atomic_load_n(&poller->due_ns, __ATOMIC_RELAXED);

		due_ns = ns < due_ns ? ns : due_ns;
		items[n++] = poller_wait_item(poller);
	}
	rc = gn_wait_sleep(items, n, due_ns, "io completions");
	__atomic_fetch_add(&queue->io->wakeups, 1, __ATOMIC_RELAXED);
	return rc >= 0 || (rc == -ETIMEDOUT && due_ns < deadline_ns) ? 0 : rc;
}

/* One step of waiting: 0, -ETIMEDOUT or -EINTR. */
static int queue_wait_step(struct gn_io_queue *queue, enum io_poll_step *step, uint64_t deadline_ns)
{
	const uint64_t set = queue_pollers(queue);
	struct gn_io_req **const last = queue->mine_last;
	uint32_t found;
	bool posted;
	int rc = 0;

	if (*step == IO_POLL_AGAIN) {
		found = queue_progress(queue, set, &posted);
		if (!found)
			cpu_relax();
		/* Also if it found something: that may be of other queues, again and again. */
		if (queue->mine_last == last && unlikely(gn_now_ns() >= deadline_ns))
			rc = -ETIMEDOUT;
		*step = io_poll_next(&queue->poll, found);
		/* All requests wait for a connection or a window: sleep until an event. */
		if (!found && *step == IO_POLL_AGAIN && !posted)
			*step = io_poll_arm(&queue->poll);
		return rc;
	}
	found = queue_arm(queue, set);
	*step = io_poll_next(&queue->poll, found);
	if (*step == IO_POLL_SLEEP) {
		if (queue->mine_last == last) /* nothing of this queue ended meanwhile */
			rc = queue_sleep(queue, set, deadline_ns);
		*step = IO_POLL_AGAIN;
	}
	for (uint64_t left = set; left;)
		__atomic_fetch_sub(&pollers_next(queue->io, &left)->sleepers, 1, __ATOMIC_RELAXED);
	/*
	 * The event of a poller that was not maintained is still there, and would end the next
	 * sleep at once. If this thread has preempted the holder of the lock, let that run.
	 */
	if (!queue_maintain(queue, set))
		gn_sleep_us(IO_LOCKED_NAP_US);
	return rc;
}

int gn_io_wait(struct gn_io_queue *queue, struct gn_io_req **reqs, unsigned n, uint64_t deadline_ns)
{
	enum io_poll_step step = IO_POLL_AGAIN;
	unsigned got;
	int rc = io_queue_check(queue, "gn_io_wait()");

	if (rc)
		return rc;
	if (!n)
		return gn_fail(-EINVAL, "gn_io_wait(): n is 0");
	if (!deadline_ns)
		deadline_ns = GN_FOREVER;
	for (;;) {
		got = queue_reap(queue, reqs, n);
		if (got)
			return (int)got;
		if (!queue->under_way)
			return gn_fail_text(-EAGAIN, "gn_io_wait(): no request is under way");
		if (rc)
			return exec_wait_failed(rc, deadline_ns, "io completions");
		rc = queue_wait_step(queue, &step, deadline_ns);
	}
}

/* Unlinks req from the requests that have ended, if it is there. */
static bool queue_unlink(struct gn_io_queue *queue, struct gn_io_req *req)
{
	struct gn_io_req *ended, **at = &queue->mine;

	while ((ended = gn_queue_pop(queue->ended)))
		queue_add_mine(queue, ended);
	while (*at && *at != req)
		at = &io_req_of(*at)->next;
	if (!*at)
		return false;
	*at = io_req_of(req)->next;
	if (!*at)
		queue->mine_last = at;
	return true;
}

/* If the queue has a source, that shows requests that have ended. */
static void queue_wake_source(struct gn_io_queue *queue)
{
	while (queue->has_source && queue->mine)
		gn_queue_push(queue->ended, queue_take(queue));
}

/* The status of a request, as an error with a text. */
static no_inline int req_failed(const struct gn_io_req *req)
{
	switch (req->status) {
	case -ESTALE:
		return io_target_lost(req->region->target);
	case -ETIMEDOUT:
		return gn_fail_text(-ETIMEDOUT, "gn_io_run(): the deadline passed");
	case -EACCES:
		return gn_fail(-EACCES,
			       "gn_io_run(): %s has taken the range back, or never granted it",
			       req->region->target->addr);
	default:
		return gn_fail(req->status, "gn_io_run(): %s", gn_strerror(req->status));
	}
}

int gn_io_run(struct gn_io_queue *queue, struct gn_io_req *req)
{
	enum io_poll_step step = IO_POLL_AGAIN;
	struct gn_io_req *const one = req;
	struct io_refs_list refs = {0};
	int rc = gn_io_submit(queue, &one, 1);

	if (rc < 0)
		return rc;
	while (!queue_unlink(queue, req))
		queue_wait_step(queue, &step, GN_FOREVER);
	queue_finish(queue, req, &refs);
	io_refs_apply_all(&refs, -1);
	queue_wake_source(queue);
	return likely(!req->status) ? 0 : req_failed(req);
}

/* ---- requests that other threads end ---- */

int gn_io_expect(struct gn_io_queue *queue, struct gn_io_req *req)
{
	int rc = io_queue_check(queue, "gn_io_expect()");
	struct io_req *r;

	if (rc)
		return rc;
	if (!req)
		return gn_fail(-EINVAL, "gn_io_expect(): req is NULL");
	r = io_req_of(req);
	if (r->queue)
		return gn_fail(-EBUSY, "gn_io_expect(): the request is under way");
	if (queue->under_way == queue->depth)
		return gn_fail_text(-EAGAIN, "gn_io_expect(): the queue has depth requests under "
					     "way: poll first");
	req->region = NULL;
	r->queue = queue;
	queue->under_way++;
	return 0;
}

int gn_io_end(struct gn_io_req *req, int status)
{
	if (!req || !io_req_of(req)->queue || req->region)
		return gn_fail(-EINVAL, "gn_io_end(): not a request of gn_io_expect()");
	io_req_of(req)->status = status;
	/* The queue has space for all requests that may be under way. */
	return gn_queue_push(io_req_of(req)->queue->ended, req);
}

/* ---- creation ---- */

int io_queue_adopt(struct gn_io_queue *queue, const char *call)
{
	if (exec_inherited(queue->owner) || queue->under_way)
		return exec_not_owner(queue->owner, call);
	queue->owner = gn_thread_id();
	return 0;
}

int gn_io_queue_create(struct gn_io *io, uint32_t depth, struct gn_io_queue **out)
{
	struct gn_io_queue *queue;
	int rc;

	if (!io || !out || !depth || depth > IO_QUEUE_DEPTH_MAX)
		return gn_fail(-EINVAL, "gn_io_queue_create(): depth is 1 to %u",
			       IO_QUEUE_DEPTH_MAX);
	rc = io_check(io, "gn_io_queue_create()");
	if (rc)
		return rc;
	queue = gn_alloc(sizeof(*queue), _Alignof(struct gn_io_queue));
	if (!queue)
		return gn_fail(-ENOMEM, "gn_io_queue_create(): " NO_MEMORY);
	rc = gn_queue_create(depth, &queue->ended);
	if (rc) {
		gn_free(queue);
		return rc;
	}
	queue->io = io;
	queue->owner = gn_thread_id();
	queue->depth = depth;
	queue->mine_last = &queue->mine;
	io_poll_init(&queue->poll, (enum io_poll_mode)io->opts.polling, io->opts.max_retry,
		     io->opts.polling == GN_IO_EVENT_BATCH ? io->opts.poll_batch : IO_POLL_WCS);
	__atomic_fetch_add(&io->n_queues, 1, __ATOMIC_RELAXED);
	*out = queue;
	return 0;
}

int gn_io_queue_destroy(struct gn_io_queue *queue)
{
	int rc;

	if (!queue)
		return 0;
	rc = io_check(queue->io, "gn_io_queue_destroy()");
	if (rc)
		return rc;
	if (queue->under_way)
		return gn_fail(-EBUSY, "gn_io_queue_destroy(): %u requests are under way",
			       queue->under_way);
	if (queue->reaping)
		return gn_fail(-EBUSY, "gn_io_queue_destroy(): called by a done of this queue");
	/* A thread that ended the last request may still be about to wake the queue's source. */
	for (uint32_t i = 0; i < __atomic_load_n(&queue->io->n_pollers, __ATOMIC_ACQUIRE); i++) {
		io_poller_lock(queue->io->pollers[i]);
		io_poller_leave(queue->io->pollers[i], NULL);
	}
	__atomic_fetch_sub(&queue->io->n_queues, 1, __ATOMIC_RELAXED);
	gn_queue_destroy(queue->ended);
	gn_free(queue);
	return 0;
}

/* ---- the service thread ---- */

static void service_main(void *arg)
{
	struct gn_io *io = arg;
	enum io_poll_step step = IO_POLL_AGAIN;

	while (!__atomic_load_n(&io->service_stop, __ATOMIC_ACQUIRE)) {
		queue_wait_step(io->service_queue, &step, gn_deadline_us(IO_SERVICE_LOOK_US));
		while (gn_queue_pop(io->service_queue->ended))
			; /* it only woke the thread */
	}
}

/* io->lock is held. */
static int service_start(struct gn_io *io)
{
	int rc = gn_io_queue_create(io, IO_SERVICE_WAKES, &io->service_queue);

	if (rc)
		return rc;
	io->service_queue->service = true;
	rc = gn_thread_start("gannet-io", service_main, io, &io->service);
	if (rc) {
		gn_io_queue_destroy(io->service_queue);
		io->service_queue = NULL;
	}
	__atomic_store_n(&io->service_runs, !rc, __ATOMIC_RELEASE);
	return rc;
}

void io_service_wake(struct gn_io *io)
{
	if (__atomic_load_n(&io->service_runs, __ATOMIC_ACQUIRE))
		gn_queue_push(io->service_queue->ended, io); /* full: it wakes anyway */
}

void io_service_stop(struct gn_io *io)
{
	if (!io->service)
		return;
	__atomic_store_n(&io->service_stop, true, __ATOMIC_RELEASE);
	io_service_wake(io);
	gn_thread_join(io->service);
	gn_io_queue_destroy(io->service_queue);
}

int gn_io_queue_source(struct gn_io_queue *queue, struct gn_source **out)
{
	int rc;

	if (!queue || !out)
		return gn_fail(-EINVAL, "gn_io_queue_source(): queue or out is NULL");
	rc = io_check(queue->io, "gn_io_queue_source()");
	if (rc)
		return rc;
	gn_mutex_lock(&queue->io->lock);
	if (!queue->io->service)
		rc = service_start(queue->io);
	gn_mutex_unlock(&queue->io->lock);
	if (rc)
		return rc;
	queue->has_source = true;
	queue_wake_source(queue);
	*out = gn_queue_source(queue->ended);
	return 0;
}
