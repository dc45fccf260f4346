/* SPDX-License-Identifier: MIT */
/* Pollers: the try-lock, completions, events. */
#include "io/engine.h"

#define LOCK_YIELDS_MAX 16u

/* ---- creation ---- */

static uint32_t poller_cq_depth(const struct gn_io *io)
{
	const uint64_t channels = io->opts.polling == GN_IO_SHARED_CQ ? 64 : 4;
	const uint64_t depth = channels * io->opts.depth;

	return depth < io->attr.max_cqe ? (uint32_t)depth : io->attr.max_cqe;
}

static int poller_create(struct gn_io *io, struct io_poller **out)
{
	struct io_poller *poller = gn_alloc(sizeof(*poller), _Alignof(struct io_poller));
	struct gn_cq_opts opts = {.size = sizeof(opts), .depth = poller_cq_depth(io)};
	int rc;

	if (!poller)
		return gn_fail(-ENOMEM, "io: " NO_MEMORY);
	rc = gn_chan_create(io->ctx, &poller->chan);
	if (rc)
		goto free_poller;
	opts.chan = poller->chan;
	rc = gn_cq_create(io->ctx, &opts, &poller->cq);
	if (rc)
		goto destroy_chan;
	poller->io = io;
	poller->cq_free = gn_cq_depth(poller->cq);
	poller->due_ns = GN_FOREVER;
	*out = poller;
	return 0;

destroy_chan:
	gn_chan_destroy(poller->chan);
free_poller:
	gn_free(poller);
	return rc;
}

void io_poller_destroy(struct io_poller *poller)
{
	gn_cq_destroy(poller->cq);
	gn_chan_destroy(poller->chan);
	gn_free(poller);
}

/* The poller for the next channel: an unused one, a new one, or one that has space. */
static struct io_poller *poller_choose(struct gn_io *io, uint32_t depth)
{
	struct io_poller *best = NULL;
	const bool shared = io->opts.polling == GN_IO_SHARED_CQ;

	for (uint32_t i = 0; i < io->n_pollers; i++) {
		struct io_poller *poller = io->pollers[i];

		if (poller->cq_free < depth)
			continue;
		if (!poller->channels || shared)
			return poller;
		if (!best || poller->cq_free > best->cq_free)
			best = poller;
	}
	return io->n_pollers == IO_POLLERS_MAX ? best : NULL;
}

/* io->lock is held, so nobody else adds or removes channels. */
int io_poller_get(struct gn_io *io, struct io_channel *ch, struct io_poller **out)
{
	struct io_poller *poller = poller_choose(io, ch->depth);
	int rc;

	if (!poller && io->n_pollers == IO_POLLERS_MAX)
		return gn_fail(-ENOSPC, "io: the engine has too many channels: use fewer targets, "
					"or a smaller opts.depth");
	if (!poller) {
		rc = poller_create(io, &poller);
		if (rc)
			return rc;
		poller->index = io->n_pollers;
		io->pollers[io->n_pollers] = poller;
		/* Pairs with the loads of threads that poll: they see the poller. */
		__atomic_store_n(&io->n_pollers, io->n_pollers + 1, __ATOMIC_RELEASE);
		io_service_wake(io);
	}
	io_poller_lock(poller);
	poller->cq_free -= ch->depth;
	ch->poller = poller;
	ch->next = poller->channels;
	poller->channels = ch;
	io_poller_leave(poller, NULL);
	*out = poller;
	return 0;
}

void io_poller_remove(struct io_poller *poller, struct io_channel *ch)
{
	struct io_channel **at = &poller->channels;

	while (*at != ch)
		at = &(*at)->next;
	*at = ch->next;
	poller->cq_free += ch->depth;
}

/* ---- the lock ---- */

/* If the core is busy, a thread that yields in a loop hardly runs. */
void io_poller_lock(struct io_poller *poller)
{
	for (unsigned tries = 0; !io_poller_try(poller); tries++)
		if (tries < LOCK_YIELDS_MAX)
			gn_yield();
		else
			gn_sleep_us(IO_LOCKED_NAP_US);
}

/* Before unlocking: a thread sleeps, or wants to; an event must wake it. */
static void poller_arm_for_sleepers(struct io_poller *poller, struct gn_io_queue *self)
{
	while (!poller->armed) {
		io_poller_arm(poller);
		if (!poller->armed)
			return;
		/*
		 * No event comes for completions that were there before: take all of them. A poll
		 * may also take the next event: then arm again.
		 */
		while (io_poller_poll(poller, IO_POLL_WCS, self) == IO_POLL_WCS)
			;
	}
}

/* Returns whether bytes of a window became free while the caller had the lock. */
static bool poller_unlock(struct io_poller *poller, struct gn_io_queue *self)
{
	bool freed = false;

	for (;;) {
		if (unlikely(__atomic_load_n(&poller->sleepers, __ATOMIC_SEQ_CST)))
			poller_arm_for_sleepers(poller, self);
		freed |= poller->freed;
		poller->freed = false;
		/* Pairs with io_poller_try_or_notify(): either it gets the lock, or we see it. */
		__atomic_store_n(&poller->lock, 0, __ATOMIC_SEQ_CST);
		if (likely(!__atomic_load_n(&poller->attention, __ATOMIC_SEQ_CST)) ||
		    !io_poller_try(poller))
			return freed;
		__atomic_store_n(&poller->attention, 0, __ATOMIC_SEQ_CST);
		io_poller_post(poller, self);
	}
}

void io_poller_leave(struct io_poller *poller, struct gn_io_queue *self)
{
	struct gn_io *io = poller->io;
	bool freed = poller_unlock(poller, self);

	/* Pairs with channel_admit_or_starve(): either it sees the free bytes, or we see it. */
	while (unlikely(freed && __atomic_load_n(&io->starved, __ATOMIC_SEQ_CST)) &&
	       __atomic_exchange_n(&io->starved, 0, __ATOMIC_SEQ_CST)) {
		const uint32_t n = __atomic_load_n(&io->n_pollers, __ATOMIC_ACQUIRE);

		freed = false;
		for (uint32_t i = 0; i < n; i++)
			if (io_poller_try_or_notify(io->pollers[i])) {
				io_poller_post(io->pollers[i], self);
				freed |= poller_unlock(io->pollers[i], self);
			}
	}
}

void io_poller_arm(struct io_poller *poller)
{
	poller->armed = gn_cq_arm(poller->cq, false) == 0;
	counter_add(&poller->stats.arms, 1);
}

/* ---- posting ---- */

static void poller_post_waiting(struct io_poller *poller, struct gn_io_queue *self)
{
	for (struct io_channel *ch = poller->channels; ch; ch = ch->next)
		if (ch->waiting[GN_IO_READ].first || ch->waiting[GN_IO_WRITE].first)
			io_channel_post(ch, self);
}

void io_poller_post(struct io_poller *poller, struct gn_io_queue *self)
{
	const bool purge = __atomic_load_n(&poller->purge, __ATOMIC_RELAXED) &&
			   __atomic_exchange_n(&poller->purge, false, __ATOMIC_ACQUIRE);

	for (struct io_channel *ch = poller->channels; ch; ch = ch->next) {
		io_channel_collect(ch);
		if (unlikely(purge))
			io_channel_purge(ch, gn_now_ns(), self);
	}
	poller_post_waiting(poller, self);
	if (unlikely(poller->broken))
		io_poller_maintain(poller, self);
}

/* ---- completions ---- */

static int wc_errno(enum gn_wc_status status)
{
	switch (status) {
	case GN_WC_REMOTE_ACCESS:
		return -EACCES;
	case GN_WC_LOCAL_ACCESS:
		return -EFAULT;
	case GN_WC_LOCAL_LENGTH:
		return -EMSGSIZE;
	default:
		return 0; /* of the connection: repeat */
	}
}

/* Takes the oldest posted work request. */
static struct io_posted ring_take(struct io_channel *ch, uint64_t freed[GN_IO_OPS])
{
	const struct io_posted posted = ch->posted[ch->head++ & ch->mask];

	freed[posted.op] += posted.len_bytes;
	return posted;
}

void io_posted_end(struct io_poller *poller, struct io_piece *piece, int status,
		   struct gn_io_queue *self)
{
	struct io_piece *next;

	for (; piece; piece = next) {
		next = piece->next;
		io_piece_end(poller, piece, status, self);
	}
}

static void poller_completion(struct io_poller *poller, const struct gn_wc *wc,
			      uint64_t freed[GN_IO_OPS], struct gn_io_queue *self)
{
	struct io_channel *ch = gn_qp_user(wc->qp);
	struct io_posted posted;
	int error;

	if (ch->state != IO_CHANNEL_UP || wc->qp != ch->qp)
		return; /* flushed: the channel has failed already */
	/* Requests of a qp complete in order: those before this one were not signaled. */
	while (ch->head < wc->id)
		io_posted_end(poller, ring_take(ch, freed).first, 0, self);
	if (likely(wc->status == GN_WC_OK)) {
		io_posted_end(poller, ring_take(ch, freed).first, 0, self);
		ch->proven = true;
		return;
	}
	error = wc_errno(wc->status);
	if (error) {
		posted = ring_take(ch, freed);
		io_posted_end(poller, posted.first, error, self);
	}
	io_channel_fail(ch);
}

static void poller_release(struct io_poller *poller, const uint64_t freed[GN_IO_OPS],
			   uint32_t found)
{
	struct gn_io *io = poller->io;

	for (unsigned op = 0; op < GN_IO_OPS; op++) {
		if (!freed[op])
			continue;
		io_window_put(&io->window[op], freed[op]);
		poller->freed = true;
		if ((op == GN_IO_READ ? io->opts.read_window : io->opts.write_window) !=
			    GN_IO_WINDOW_AUTO ||
		    __atomic_exchange_n(&io->auto_lock, 1, __ATOMIC_ACQUIRE))
			continue;
		io->adapt[op].limited |= __atomic_load_n(&io->starved, __ATOMIC_RELAXED) != 0;
		io_auto_ended(&io->adapt[op], &io->window[op], freed[op], found, gn_now_ns());
		__atomic_store_n(&io->auto_lock, 0, __ATOMIC_RELEASE);
	}
}

/* Polls once. The caller posts what became possible. */
static uint32_t poller_take_completions(struct io_poller *poller, uint32_t batch,
					struct gn_io_queue *self)
{
	uint64_t freed[GN_IO_OPS] = {0};
	struct gn_wc *wcs = io_scratch_of(poller, self)->wcs;
	int n = gn_cq_poll(poller->cq, wcs, (int)(batch < IO_POLL_WCS ? batch : IO_POLL_WCS));

	counter_add(&poller->stats.polls, 1);
	if (n <= 0) {
		counter_add(&poller->stats.polls_empty, 1);
		return 0;
	}
	for (int i = 0; i < n; i++)
		poller_completion(poller, &wcs[i], freed, self);
	poller_release(poller, freed, (uint32_t)n);
	return (uint32_t)n;
}

static void poller_maintain_if_due(struct io_poller *poller, struct gn_io_queue *self)
{
	if (++poller->polls >= IO_MAINTAIN_POLLS)
		io_poller_maintain(poller, self);
}

uint32_t io_poller_poll(struct io_poller *poller, uint32_t batch, struct gn_io_queue *self)
{
	const uint32_t n = poller_take_completions(poller, batch, self);

	if (!n)
		return 0;
	io_poller_post(poller, self);
	poller_maintain_if_due(poller, self);
	return n;
}

/*
 * After a post. A provider that executes requests during the post has completed them: taking the
 * completions now saves a second visit with the lock. Others have not; then the next
 * IO_PROMPT_SKIP posts do not look.
 */
static void poller_poll_prompt(struct io_poller *poller, const struct io_channel *ch,
			       struct gn_io_queue *self)
{
	while (ch->head != ch->tail && !poller->prompt_skip) {
		const uint64_t tail = ch->tail;

		poller_take_completions(poller, IO_POLL_WCS, self);
		if (ch->head < tail)
			poller->prompt_skip = IO_PROMPT_SKIP;
		/* Not what others bring meanwhile: they can lead as soon as this thread leaves. */
		poller_post_waiting(poller, self);
		poller_maintain_if_due(poller, self);
	}
	if (poller->prompt_skip)
		poller->prompt_skip--;
}

void io_poller_post_channel(struct io_poller *poller, struct io_channel *ch,
			    struct gn_io_queue *self)
{
	io_channel_collect(ch);
	io_channel_post(ch, self);
	if (!io_poll_by_event(&self->poll))
		poller_poll_prompt(poller, ch, self);
	if (unlikely(poller->broken))
		io_poller_maintain(poller, self);
}

/* ---- events and time ---- */

void io_poller_maintain(struct io_poller *poller, struct gn_io_queue *self)
{
	const uint64_t now_ns = gn_now_ns();
	struct gn_event event;

	poller->polls = 0;
	poller->broken = false;
	__atomic_store_n(&poller->due_ns, GN_FOREVER, __ATOMIC_RELAXED);
	while (gn_chan_next(poller->chan, &event) == 0) {
		counter_add(&poller->stats.events, event.type == GN_EVENT_CQ);
		/* queue_look_again() raises GN_EVENT_WAKE for completions that raise no event. */
		if (event.type == GN_EVENT_CQ || event.type == GN_EVENT_WAKE)
			poller->armed = false;
		else if (event.qp)
			io_channel_event(gn_qp_user(event.qp), &event, self);
	}
	for (struct io_channel *ch = poller->channels; ch; ch = ch->next) {
		io_channel_collect(ch);
		io_channel_advance(ch, now_ns, self);
	}
}
