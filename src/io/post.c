/* SPDX-License-Identifier: MIT */
/* Posting (RDMAbox, Algorithm 2): takes what is queued, plans work requests, rings the doorbell. */
#include "io/engine.h"

/* ---- from the stack to the list ---- */

void io_channel_collect(struct io_channel *ch)
{
	for (unsigned op = 0; op < GN_IO_OPS; op++) {
		struct io_piece *piece, *next, *oldest = NULL;

		if (!__atomic_load_n(&ch->incoming[op], __ATOMIC_RELAXED))
			continue;
		if (unlikely(ch->state == IO_CHANNEL_LOST))
			ch->poller->broken = true; /* they must end */
		/* Pairs with the push of gn_io_submit(). */
		piece = __atomic_exchange_n(&ch->incoming[op], NULL, __ATOMIC_ACQUIRE);
		for (; piece; piece = next) {
			next = piece->next;
			piece->next = oldest;
			oldest = piece;
		}
		for (piece = oldest; piece; piece = next) {
			const uint64_t deadline_ns = io_part_of(piece)->req->deadline_ns;

			next = piece->next;
			io_list_add(&ch->waiting[op], piece);
			if (unlikely(deadline_ns && deadline_ns < ch->deadline_ns)) {
				ch->deadline_ns = deadline_ns;
				io_poller_due(ch->poller, deadline_ns);
				/* No event is to be expected before: it must look at the clock. */
				if (ch->state != IO_CHANNEL_UP)
					io_service_wake(ch->poller->io);
			}
		}
	}
}

/* ---- from pieces to work requests ---- */

/* A request that is waiting ends early. */
static int piece_early_status(const struct io_piece *piece)
{
	struct gn_io_req *req = container_of(piece, struct io_part, piece)->req;

	return unlikely(__atomic_load_n(&io_req_of(req)->cancelled, __ATOMIC_RELAXED)) ?
		       -ECANCELED :
		       0;
}

/* Plans waiting pieces. True: there is something to post. */
static bool channel_plan(struct io_channel *ch, enum gn_io_op op, uint32_t space,
			 struct gn_io_queue *self)
{
	struct gn_io *io = ch->poller->io;
	struct io_plan *plan = &io_scratch_of(ch->poller, self)->plan;
	struct io_list *waiting = &ch->waiting[op];
	const uint64_t window = __atomic_load_n(&io->window[op].limit, __ATOMIC_RELAXED);
	const enum gn_io_batching batching = io->opts.batching;
	const struct io_plan_limits limits = {
		.wrs = space < IO_PLAN_WRS ? space : IO_PLAN_WRS,
		.sges = ch->max_sge,
		.bytes = window < io->opts.merge_bytes ? (uint32_t)window : io->opts.merge_bytes,
		.merge = batching == GN_IO_HYBRID || batching == GN_IO_MERGE,
	};
	uint32_t sges = 0, pieces = 0;

	io_plan_init(plan);
	while (waiting->first) {
		struct io_piece *piece = waiting->first, *next = piece->next;
		const int early = piece_early_status(piece);

		if (!early &&
		    (sges + piece->n_sge > IO_CHAIN_SGES || !io_plan_add(plan, piece, &limits))) {
			piece->next = next;
			break;
		}
		waiting->first = next;
		if (!next)
			waiting->last = &waiting->first;
		if (unlikely(early)) {
			io_piece_end(ch->poller, piece, early, self);
			continue;
		}
		sges += piece->n_sge;
		pieces++;
	}
	return pieces;
}

static struct gn_sge *sge_add(struct gn_sge *first, struct gn_sge *at, void *addr, uint32_t len,
			      uint32_t lkey)
{
	if (at > first && at[-1].lkey == lkey &&
	    (uint8_t *)at[-1].addr + at[-1].len_bytes == (uint8_t *)addr) {
		at[-1].len_bytes += len;
		return at;
	}
	*at = (struct gn_sge){.addr = addr, .len_bytes = len, .lkey = lkey};
	return at + 1;
}

/* The local buffers of a piece. */
static struct gn_sge *piece_sges(const struct io_piece *piece, struct gn_sge *first,
				 struct gn_sge *at)
{
	struct gn_io_req *req = container_of(piece, struct io_part, piece)->req;
	const struct io_req *r = io_req_of(req);
	uint32_t skip = piece->skip, left = piece->len_bytes;

	if (r->buffer)
		return sge_add(first, at, r->buffer + skip, left, r->lkey);
	if (likely(req->n_sge == 1))
		return sge_add(first, at, (uint8_t *)req->sge->addr + skip, left, r->lkey);
	for (const struct gn_io_sge *sge = req->sge; left; sge++) {
		uint32_t len = sge->len_bytes;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		len = len - skip < left ? len - skip : left;
		at = sge_add(first, at, (uint8_t *)sge->addr + skip, len, sge->mem->lkey);
		left -= len;
		skip = 0;
	}
	return at;
}

/* May this work request be posted now? Counts its bytes as in flight. */
static bool channel_admit(struct io_channel *ch, enum gn_io_op op, uint32_t bytes)
{
	struct gn_io *io = ch->poller->io;
	struct io_window *window = &io->window[op];

	if (unlikely(io->opts.admit)) {
		const uint64_t now = __atomic_load_n(&window->in_flight, __ATOMIC_RELAXED);

		if (now && !io->opts.admit(io->opts.admit_arg, op, bytes, now))
			return false;
		io_window_add(window, bytes);
		return true;
	}
	if (mutant("io-window-race", MUTANT_ALWAYS)) {
		if (!io_window_has(window, bytes))
			return false;
		gn_yield();
		io_window_add(window, bytes);
		return true;
	}
	return io_window_take(window, bytes, (uintptr_t)ch);
}

/*
 * The channel was refused. It claims the window, so that it is the next that others' completions
 * let in; but not twice in a row while another one has no claim.
 */
static void channel_claim(struct io_channel *ch, enum gn_io_op op)
{
	struct io_window *window = &ch->poller->io->window[op];
	const uint64_t claim = __atomic_load_n(&window->claim, __ATOMIC_RELAXED);

	if (claim && claim != (uintptr_t)ch)
		ch->had_claim[op] = false;
	else if (!ch->had_claim[op] && !ch->poller->io->opts.admit)
		io_window_claim(window, (uintptr_t)ch);
}

/* The channel goes: others may have been waiting for its claim. */
static bool channel_admitted(struct io_channel *ch, enum gn_io_op op)
{
	struct io_poller *poller = ch->poller;

	if (unlikely(io_window_disclaim(&poller->io->window[op], (uintptr_t)ch))) {
		ch->had_claim[op] = true;
		poller->freed = true;
	}
	ch->starved = false;
	return true;
}

/* Admits, or marks the channel as held back: then the release of any bytes lets it try again. */
static bool channel_admit_or_starve(struct io_channel *ch, enum gn_io_op op, uint32_t bytes)
{
	struct io_poller *poller = ch->poller;

	if (likely(channel_admit(ch, op, bytes)))
		return channel_admitted(ch, op);
	channel_claim(ch, op);
	/* Pairs with io_window_put(): either we see the free bytes, or the releaser sees this. */
	__atomic_store_n(&poller->io->starved, 1, __ATOMIC_SEQ_CST);
	if (channel_admit(ch, op, bytes))
		return channel_admitted(ch, op);
	counter_add(&poller->stats.waited, !ch->starved);
	ch->starved = true;
	return false;
}

/* Admits all of a plan in one step. False: one by one, then. */
static bool plan_admit(struct io_channel *ch, enum gn_io_op op, const struct io_plan *plan)
{
	const struct gn_io *io = ch->poller->io;
	struct io_window *window = &ch->poller->io->window[op];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < plan->n; i++)
		bytes += plan->wr[i].first ? plan->wr[i].len_bytes : 0;
	return !io->opts.admit && bytes <= __atomic_load_n(&window->limit, __ATOMIC_RELAXED) &&
	       io_window_take(window, bytes, (uintptr_t)ch) && channel_admitted(ch, op);
}

/* Not posted: back to the head of the waiting pieces, from work request i of the plan on. */
static void plan_put_back(struct io_channel *ch, enum gn_io_op op, const struct io_plan *plan,
			  uint32_t i)
{
	struct io_list head;

	io_list_init(&head);
	for (; i < plan->n; i++) {
		struct io_piece *next;

		for (struct io_piece *piece = plan->wr[i].first; piece; piece = next) {
			next = piece->next;
			io_list_add(&head, piece);
		}
	}
	io_list_put_back(&ch->waiting[op], &head);
}

/* ---- the doorbell ---- */

static void ring_push(struct io_channel *ch, enum gn_io_op op, const struct io_planned *planned)
{
	ch->posted[ch->tail++ & ch->mask] = (struct io_posted){
		.first = planned->first, .len_bytes = planned->len_bytes, .op = op};
}

/* The fabric refused a work request for what it is: its requests end, the others are repeated. */
static void channel_refused(struct io_channel *ch, uint32_t n_left, int rc,
			    struct gn_io_queue *self)
{
	struct io_posted *posted = &ch->posted[(ch->tail - n_left) & ch->mask];

	if (rc != -ENOTCONN && rc != -EAGAIN) {
		gn_log(GN_LOG_ERROR, "io: cannot post a request: %s", gn_error());
		io_posted_end(ch->poller, posted->first, rc, self);
		posted->first = NULL;
	}
	io_channel_fail(ch);
}

/*
 * Posts the last n work requests of the ring, which are wrs, with one doorbell. False: the
 * connection is gone, or will be made anew.
 */
static bool channel_doorbell(struct io_channel *ch, struct gn_wr *wrs, uint32_t n,
			     struct gn_io_queue *self)
{
	struct io_poller *poller = ch->poller;
	const struct gn_wr *bad = wrs;
	int rc;

	counter_add(&poller->stats.doorbells, 1);
	wrs[n - 1].next = NULL;
	if (n == 1) {
		rc = gn_post_one(ch->qp, wrs);
		if (likely(rc == 0))
			return true;
		if (rc == 1) { /* executed, and there will be no completion */
			const struct io_posted posted = ch->posted[--ch->tail & ch->mask];

			io_window_put(&poller->io->window[posted.op], posted.len_bytes);
			poller->freed = true;
			ch->proven = true;
			io_posted_end(poller, posted.first, 0, self);
			return true;
		}
	} else {
		for (uint32_t i = 0; i + 1 < n; i++)
			wrs[i].next = &wrs[i + 1];
		rc = gn_post_send(ch->qp, wrs, &bad);
		if (likely(rc == 0))
			return true;
	}
	channel_refused(ch, n - (uint32_t)(bad - wrs), rc, self);
	return false;
}

static void wr_fill(struct io_channel *ch, enum gn_io_op op, const struct io_planned *planned,
		    struct gn_wr *wr, struct gn_sge **at, bool last)
{
	struct gn_sge *first = *at;
	uint64_t extra = 0;

	for (struct io_piece *piece = planned->first; piece; piece = piece->next) {
		*at = piece_sges(piece, first, *at);
		extra++;
	}
	counter_add(&ch->poller->stats.merged, extra - 1);
	ch->unsignaled++;
	gn_wr_init(wr, op == GN_IO_READ ? GN_OP_READ : GN_OP_WRITE, ch->tail, first,
		   (uint32_t)(*at - first), 0);
	if (last || ch->unsignaled >= IO_SIGNAL_EVERY) {
		wr->flags = GN_SIGNALED;
		ch->unsignaled = 0;
	}
	wr->to.remote.offset = planned->start;
	wr->to.remote.key = planned->key;
}

/* Posts the plan. False: the window or the connection stopped it. */
static bool channel_post_plan(struct io_channel *ch, enum gn_io_op op, struct gn_io_queue *self)
{
	struct io_poller *poller = ch->poller;
	struct io_scratch *scratch = io_scratch_of(poller, self);
	const struct io_plan *plan = &scratch->plan;
	const enum gn_io_batching batching = poller->io->opts.batching;
	const bool chain = batching == GN_IO_HYBRID || batching == GN_IO_DOORBELL;
	const bool all = chain && plan->n > 1 && plan_admit(ch, op, plan);
	struct gn_sge *at = scratch->sges;
	uint32_t n = 0, i;
	bool admitted = true;

	for (i = 0; i < plan->n; i++) {
		const struct io_planned *planned = &plan->wr[i];

		if (!planned->first)
			continue; /* joined to another */
		admitted = all || channel_admit_or_starve(ch, op, planned->len_bytes);
		if (unlikely(!admitted))
			break;
		wr_fill(ch, op, planned, &scratch->wrs[n], &at, !chain);
		ring_push(ch, op, planned);
		counter_add(&poller->stats.wrs, 1);
		n++;
		if (!chain && unlikely(!channel_doorbell(ch, &scratch->wrs[n - 1], 1, self))) {
			i++;
			admitted = false;
			break;
		}
	}
	if (unlikely(i < plan->n))
		plan_put_back(ch, op, plan, i);
	if (!chain || !n)
		return admitted;
	scratch->wrs[n - 1].flags = GN_SIGNALED;
	ch->unsignaled = 0;
	return channel_doorbell(ch, scratch->wrs, n, self) && admitted;
}

static void channel_post_op(struct io_channel *ch, enum gn_io_op op, struct gn_io_queue *self)
{
	while (ch->waiting[op].first && ch->state == IO_CHANNEL_UP) {
		const uint32_t space = ch->depth - (uint32_t)(ch->tail - ch->head);

		if (!space) {
			counter_add(&ch->poller->stats.waited, !ch->starved);
			ch->starved = true;
			return; /* a completion lets it continue */
		}
		if (!channel_plan(ch, op, space, self))
			return;
		ch->first = op == GN_IO_READ ? GN_IO_WRITE : GN_IO_READ;
		if (!channel_post_plan(ch, op, self))
			return;
	}
}

void io_channel_post(struct io_channel *ch, struct gn_io_queue *self)
{
	/* The operation that did not post last: READs never keep WRITEs out of the send queue. */
	const enum gn_io_op first = ch->first;

	channel_post_op(ch, first, self);
	channel_post_op(ch, first == GN_IO_READ ? GN_IO_WRITE : GN_IO_READ, self);
	io_channel_drop_claims(ch);
}
