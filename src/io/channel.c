/* SPDX-License-Identifier: MIT */
/*
 * Connections of channels. A connection that breaks is made anew, and its requests are repeated.
 *
 *     IDLE ─▶ CONNECTING ─▶ UP ─ failure ─▶ BROKEN ─ qp destroyed ─▶ IDLE
 *
 * The fence: a WRITE of the old qp must not land after its repetition has completed. The donor
 * destroys the old qp before it accepts a higher generation (attach.h). Until then the WRITEs are
 * repeated nowhere, and their requests do not end. READs do not end before this side has destroyed
 * its qp: until then one may still write to its buffer.
 */
#include <string.h>

#include "io/engine.h"

/* A connection that was up for so long was good, even if nothing was done with it. */
#define UP_LONG_NS     UINT64_C(1000000000)
#define LOST_RESTARTED "the donor was restarted"

void io_channel_init(struct io_channel *ch, struct gn_io_target *target, uint32_t index)
{
	ch->target = target;
	ch->index = index;
	ch->state = IO_CHANNEL_IDLE;
	ch->deadline_ns = GN_FOREVER;
	ch->down_ns = gn_now_ns();
	for (unsigned op = 0; op < GN_IO_OPS; op++) {
		io_list_init(&ch->waiting[op]);
		io_list_init(&ch->repeat[op]);
	}
}

static void channel_set_state(struct io_channel *ch, enum io_channel_state state)
{
	__atomic_store_n(&ch->state, state, __ATOMIC_RELEASE);
}

/*
 * A target that accepts connections and drops them before anything was done with them counts as
 * one that cannot be reached: pauses grow, and in the end it is lost.
 */
static void channel_went_down(struct io_channel *ch)
{
	const uint64_t now_ns = gn_now_ns();

	if (ch->proven || now_ns - ch->up_ns > UP_LONG_NS) {
		ch->backoff = (struct link_backoff){0};
		__atomic_store_n(&ch->down_ns, now_ns, __ATOMIC_RELAXED);
	} else {
		link_backoff_failed(&ch->backoff);
	}
}

void io_channel_drop_claims(struct io_channel *ch)
{
	for (unsigned op = 0; op < GN_IO_OPS; op++)
		if (ch->state != IO_CHANNEL_UP || !ch->waiting[op].first)
			ch->poller->freed |=
				io_window_disclaim(&ch->poller->io->window[op], (uintptr_t)ch);
}

void io_channel_fail(struct io_channel *ch)
{
	if (ch->state != IO_CHANNEL_UP && ch->state != IO_CHANNEL_CONNECTING)
		return;
	if (ch->state == IO_CHANNEL_UP)
		channel_went_down(ch);
	channel_set_state(ch, IO_CHANNEL_BROKEN);
	io_channel_drop_claims(ch);
	ch->poller->broken = true;
	io_poller_due(ch->poller, GN_NO_WAIT);
}

/* ---- requests ---- */

/* A defect for the tests: the next channel does not wait for the fence. */
static void channel_repeat_elsewhere(struct io_channel *ch, enum gn_io_op op,
				     struct io_piece *piece)
{
	struct io_channel *other = &ch->target->channels[(ch->index + 1) % ch->target->n_channels];

	piece->next = __atomic_load_n(&other->incoming[op], __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&other->incoming[op], &piece->next, piece, true,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	__atomic_store_n(&other->poller->attention, 1, __ATOMIC_SEQ_CST);
}

/* Moves posted pieces to the list of those that are repeated. */
static void channel_unpost(struct io_channel *ch)
{
	uint64_t freed[GN_IO_OPS] = {0};

	for (; ch->head < ch->tail; ch->head++) {
		const struct io_posted *posted = &ch->posted[ch->head & ch->mask];
		struct io_piece *next;

		freed[posted->op] += posted->len_bytes;
		for (struct io_piece *piece = posted->first; piece; piece = next) {
			next = piece->next;
			if (mutant("io-other-channel", MUTANT_ALWAYS)) {
				channel_repeat_elsewhere(ch, posted->op, piece);
				continue;
			}
			io_part_of(piece)->unfenced = true;
			io_list_add(&ch->repeat[posted->op], piece);
			counter_add(&ch->poller->stats.repeated, 1);
		}
	}
	ch->unsignaled = 0;
	for (unsigned op = 0; op < GN_IO_OPS; op++)
		if (freed[op])
			io_window_put(&ch->poller->io->window[op], freed[op]);
	ch->poller->freed = true;
}

static void list_set_fenced(struct io_list *list)
{
	for (struct io_piece *piece = list->first; piece; piece = piece->next)
		io_part_of(piece)->unfenced = false;
}

/* After the fence: waiting pieces again, before those that came later. */
static void channel_repeat(struct io_channel *ch)
{
	for (unsigned op = 0; op < GN_IO_OPS; op++) {
		list_set_fenced(&ch->repeat[op]);
		io_list_put_back(&ch->waiting[op], &ch->repeat[op]);
	}
}

/* Ends those of a list that may and should end; returns the first deadline of the others. */
static uint64_t list_purge(struct io_channel *ch, struct io_list *list, uint64_t now_ns, int all,
			   struct gn_io_queue *self)
{
	uint64_t first_ns = GN_FOREVER;
	struct io_piece *piece = list->first, *next;

	io_list_init(list);
	for (; piece; piece = next) {
		const struct io_part *part = io_part_of(piece);
		const uint64_t deadline_ns = part->req->deadline_ns ?: GN_FOREVER;
		int status = all;

		next = piece->next;
		if (!status && __atomic_load_n(&io_req_of(part->req)->cancelled, __ATOMIC_RELAXED))
			status = -ECANCELED;
		if (!status && deadline_ns <= now_ns)
			status = -ETIMEDOUT;
		if (status && (all || !part->unfenced)) {
			io_piece_end(ch->poller, piece, status, self);
			continue;
		}
		io_list_add(list, piece);
		if (!part->unfenced && deadline_ns < first_ns)
			first_ns = deadline_ns;
	}
	return first_ns;
}

static void channel_purge(struct io_channel *ch, uint64_t now_ns, int all, struct gn_io_queue *self)
{
	ch->deadline_ns = GN_FOREVER;
	for (unsigned op = 0; op < GN_IO_OPS; op++) {
		const uint64_t waiting = list_purge(ch, &ch->waiting[op], now_ns, all, self);
		const uint64_t repeat = list_purge(ch, &ch->repeat[op], now_ns, all, self);
		const uint64_t first_ns = waiting < repeat ? waiting : repeat;

		if (first_ns < ch->deadline_ns)
			ch->deadline_ns = first_ns;
	}
	io_channel_drop_claims(ch);
}

void io_channel_purge(struct io_channel *ch, uint64_t now_ns, struct gn_io_queue *self)
{
	channel_purge(ch, now_ns, 0, self);
}

bool io_channel_busy(struct io_channel *ch)
{
	io_channel_collect(ch);
	for (unsigned op = 0; op < GN_IO_OPS; op++)
		if (ch->waiting[op].first || ch->repeat[op].first)
			return true;
	return ch->head < ch->tail;
}

/* ---- connecting ---- */

static void channel_retry_later(struct io_channel *ch, int why)
{
	__atomic_store_n(&ch->target->refused, why, __ATOMIC_RELAXED);
	link_backoff_failed(&ch->backoff);
	io_poller_due(ch->poller, ch->backoff.at_ns);
}

static void channel_connect(struct io_channel *ch)
{
	struct gn_io *io = ch->poller->io;
	struct gn_io_target *target = ch->target;
	const uint32_t first = __atomic_load_n(&target->first_generation, __ATOMIC_RELAXED);
	struct io_attach attach = target->attach;
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = GN_QP_RC,
				  .send_cq = ch->poller->cq,
				  .recv_cq = ch->poller->cq,
				  .chan = ch->poller->chan,
				  .max_send_wr = ch->depth,
				  .max_recv_wr = 1,
				  .max_send_sge = ch->max_sge,
				  .user = ch};
	struct gn_conn_opts conn = {.size = sizeof(conn),
				    .private_data = &attach,
				    .private_len = sizeof(attach),
				    .timeout_us = target->timeout_us};
	int rc;

	attach.channel = ch->index;
	if (ch->generation < first)
		ch->generation = first;
	attach.generation = ch->generation++;
	rc = gn_qp_create(io->pd, &opts, &ch->qp);
	if (!rc) {
		channel_set_state(ch, IO_CHANNEL_CONNECTING);
		rc = gn_connect(ch->qp, target->addr, &conn);
		if (rc)
			io_channel_fail(ch);
	}
	if (rc)
		channel_retry_later(ch, rc);
}

void io_target_lose(struct gn_io_target *target, int error, const char *why, bool log)
{
	const struct gn_io *io = target->io;
	int none = 0;

	__atomic_store_n(&target->why_lost, why, __ATOMIC_RELAXED);
	if (!__atomic_compare_exchange_n(&target->lost, &none, error, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return;
	if (log)
		gn_log(GN_LOG_WARN, "io: the memory at %s is lost: %s", target->addr, why);
	/*
	 * The channels learn of it when they are advanced. This thread does not hold the locks of
	 * all their pollers, and the target may just be adding channels: wakes all pollers.
	 */
	for (uint32_t i = 0; i < __atomic_load_n(&io->n_pollers, __ATOMIC_ACQUIRE); i++)
		gn_chan_wake(io->pollers[i]->chan);
}

static void channel_lose(struct io_channel *ch, int error, const char *why)
{
	io_poller_due(ch->poller, GN_NO_WAIT);
	/* gn_io_target_open() returns it if the channel never was up. */
	io_target_lose(ch->target, error, why, ch->was_up);
}

/*
 * The donor has accepted generation last of this token. Whether the next attempt begins above it: a
 * share that is being opened is taken over from its earlier clients, once; all channels begin in
 * the same epoch.
 */
static bool channel_take_over(struct io_channel *ch, uint32_t last)
{
	struct gn_io_target *target = ch->target;
	const uint32_t epoch = last >> IO_EPOCH_SHIFT;
	uint32_t first = 0;

	if (!__atomic_load_n(&target->takes_over, __ATOMIC_RELAXED) || epoch == IO_EPOCH_MAX)
		return false;
	__atomic_compare_exchange_n(&target->first_generation, &first,
				    (epoch + 1) << IO_EPOCH_SHIFT, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
	/* If another channel was first: did this attempt begin there already? */
	return !first || ch->generation <= first;
}

/* The donor's answer. 0: the channel may be used. */
static int channel_reply(struct io_channel *ch, const struct gn_event *event)
{
	struct gn_io_target *target = ch->target;
	struct io_attach_reply reply;
	struct gn_io_range range = {0};

	if (event->private_len < sizeof(reply))
		return -EPROTO;
	memcpy(&reply, event->private_data, sizeof(reply));
	if (reply.magic != IO_ATTACH_MAGIC || reply.version != IO_ATTACH_VERSION)
		return -EPROTO;
	switch (reply.status) {
	case IO_ATTACH_OK:
		break;
	case IO_ATTACH_BAD_TOKEN:
		channel_lose(ch, -EACCES, "the donor has ended the session or the share");
		return -EACCES;
	case IO_ATTACH_OTHER_INCARNATION:
		channel_lose(ch, -ESTALE, LOST_RESTARTED);
		return -ESTALE;
	case IO_ATTACH_OLD_GENERATION:
		if (channel_take_over(ch, reply.generation))
			return -EAGAIN;
		channel_lose(ch, -ESTALE,
			     target->attach.kind == IO_ATTACH_SHARE ?
				     "another client has opened the token" :
				     "another client has resumed the session");
		return -ESTALE;
	case IO_ATTACH_BUSY:
		return -EAGAIN;
	default:
		return -EPROTO;
	}
	if (event->type != GN_EVENT_ESTABLISHED)
		return -EPROTO;
	if (target->attach.incarnation && reply.incarnation != target->attach.incarnation) {
		channel_lose(ch, -ESTALE, LOST_RESTARTED);
		return -ESTALE;
	}
	if (target->attach.kind != IO_ATTACH_SHARE)
		return 0;
	range.remote.key = reply.key;
	range.remote.offset = reply.offset;
	range.remote.length = reply.length;
	range.rights = (reply.rights & IO_RIGHT_READ ? GN_REMOTE_READ : 0u) |
		       (reply.rights & IO_RIGHT_WRITE ? GN_REMOTE_WRITE : 0u);
	/* The range never changes; target.c compares those of the channels. */
	if (ch->was_up && !io_range_equal(&ch->shared, &range)) {
		channel_lose(ch, -ESTALE, "the donor answered with another range");
		return -ESTALE;
	}
	if (!ch->was_up)
		ch->shared = range;
	return 0;
}

static void channel_up(struct io_channel *ch, struct gn_io_queue *self)
{
	ch->up_ns = gn_now_ns();
	ch->proven = false;
	ch->head = ch->tail = 0;
	channel_set_state(ch, IO_CHANNEL_UP);
	counter_add(&ch->poller->stats.reconnects, ch->was_up);
	ch->was_up = true;
	channel_repeat(ch);
	io_channel_purge(ch, ch->up_ns, self);
	io_channel_post(ch, self);
}

void io_channel_event(struct io_channel *ch, const struct gn_event *event, struct gn_io_queue *self)
{
	int rc;

	if (event->qp != ch->qp)
		return;
	switch (event->type) {
	case GN_EVENT_ESTABLISHED:
	case GN_EVENT_REJECTED:
		if (ch->state != IO_CHANNEL_CONNECTING)
			return;
		rc = channel_reply(ch, event);
		if (!rc) {
			channel_up(ch, self);
			return;
		}
		break;
	case GN_EVENT_UNREACHABLE:
		rc = event->status;
		break;
	case GN_EVENT_DISCONNECTED:
		rc = -ECONNRESET;
		if (ch->state == IO_CHANNEL_UP) {
			io_channel_fail(ch);
			return;
		}
		break;
	default:
		return;
	}
	io_channel_fail(ch);
	channel_retry_later(ch, rc);
}

void io_channel_advance(struct io_channel *ch, uint64_t now_ns, struct gn_io_queue *self)
{
	const int lost = __atomic_load_n(&ch->target->lost, __ATOMIC_ACQUIRE);

	if (unlikely(lost) && ch->state != IO_CHANNEL_BROKEN && ch->state != IO_CHANNEL_LOST)
		io_channel_fail(ch);
	if (ch->state == IO_CHANNEL_BROKEN) {
		channel_unpost(ch);
		if (gn_qp_destroy_try(ch->qp) == -EAGAIN) {
			io_poller_due(ch->poller, now_ns + 1000000);
		} else {
			ch->qp = NULL;
			channel_set_state(ch, IO_CHANNEL_IDLE);
			list_set_fenced(&ch->repeat[GN_IO_READ]);
		}
		/* Deadlines of READs count again, and those that were cancelled end. */
		io_channel_purge(ch, now_ns, self);
	}
	if (ch->state == IO_CHANNEL_IDLE && lost)
		channel_set_state(ch, IO_CHANNEL_LOST);
	if (ch->state == IO_CHANNEL_LOST)
		channel_purge(ch, now_ns, -ESTALE, self);
	if (ch->state == IO_CHANNEL_IDLE &&
	    now_ns > ch->down_ns + ch->poller->io->opts.lost_us * 1000ull) {
		channel_lose(ch, -ESTALE, "it could not be reached for too long");
		io_poller_due(ch->poller, GN_NO_WAIT);
	} else if (ch->state == IO_CHANNEL_IDLE && now_ns >= ch->backoff.at_ns) {
		channel_connect(ch);
	} else if (ch->state == IO_CHANNEL_IDLE) {
		io_poller_due(ch->poller, ch->backoff.at_ns);
	}
	if (unlikely(ch->deadline_ns <= now_ns))
		io_channel_purge(ch, now_ns, self);
	io_poller_due(ch->poller, ch->deadline_ns);
	if (ch->waiting[GN_IO_READ].first || ch->waiting[GN_IO_WRITE].first)
		io_channel_post(ch, self);
}

void io_channel_close(struct io_channel *ch)
{
	if (ch->qp)
		gn_qp_destroy(ch->qp);
	ch->qp = NULL;
	channel_set_state(ch, IO_CHANNEL_LOST);
}
