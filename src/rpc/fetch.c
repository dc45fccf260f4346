/* SPDX-License-Identifier: MIT */
/* How a client gets results: fetched from the server's memory, or found in its own. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/bits.h"
#include "base/mutant.h"
#include "rpc/client.h"
#include "rpc/copy.h"

#define FETCH_MISS_COST_NS     20u
#define FETCH_BACKOFF_AFTER_NS 20000u /* age of a call from which on fetches back off */
#define FETCH_BACKOFF_MAX_NS   10000000u
#define FETCH_AHEAD_MAX	       16u  /* result slots read with one doorbell */
#define PEEK_MIN_BYTES	       256u /* longer first reads check only the first line after a miss */
#define FETCH_PAUSES_MAX       64u  /* cpu_relax() between two fetches, at most: a few us */
#define FETCH_BURST	       8u   /* reads of one result per poll */
#define SLOW_CHECK_EVERY       16u  /* one in this many reads checks whether reads are still slow */

static uint64_t result_offset(const struct gn_rpc_client *c, uint32_t number)
{
	return (number & c->mask) * c->result_stride;
}

/*
 * Bytes to read after a miss, where a READ is a memory copy: reading all of a long message would
 * take its cache lines away from the server that is about to write it.
 */
static uint32_t peek_bytes(const struct gn_rpc_client *c)
{
	const uint32_t bytes = c->adapt.first_bytes;

	return bytes <= PEEK_MIN_BYTES ? bytes : RPC_ALIGN;
}

static inline uint64_t load_u64(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static inline uint32_t rotate_right(uint32_t x, unsigned bits)
{
	return x >> bits | x << (32 - bits);
}

/* ---- posting ---- */

/* A READ of bytes of result number, from offset at on. */
static void fetch_make_read(struct gn_rpc_client *c, uint32_t number, uint32_t at, uint32_t bytes,
			    struct gn_sge *sge, struct gn_wr *wr)
{
	const uint64_t offset = result_offset(c, number) + at;
	const struct gn_remote from = {.key = c->result_key};

	*sge = (struct gn_sge){c->fetched + offset, bytes, c->local_key};
	gn_wr_rdma(wr, GN_OP_READ, rpc_id(RPC_ID_RESULT, number), sge, &from, offset, GN_SIGNALED);
}

static void fetch_note_read(struct gn_rpc_client *c, uint32_t number, uint32_t until,
			    enum rpc_read state)
{
	struct rpc_result_slot *rslot = &c->rslots[number & c->mask];

	rslot->read = (uint8_t)state;
	rslot->bytes = until;
	c->posted++;
	c->n_fetch_reads++;
	c->count.fetches++;
}

static void fetch_read_rest(struct gn_rpc_client *c, uint32_t number, uint32_t have, uint32_t all)
{
	struct gn_sge sge;
	struct gn_wr wr;
	int rc;

	fetch_make_read(c, number, have, all - have, &sge, &wr);
	rc = gn_post_send(c->qp, &wr, NULL);
	if (rc == -EAGAIN)
		return; /* a poll reads the result from its start when the send queue has space */
	if (rc) {
		rpc_client_disconnected(c);
		return;
	}
	fetch_note_read(c, number, all, RPC_READING_REST);
	c->count.second_reads++;
}

void rpc_read_result(struct gn_rpc_client *c)
{
	const uint32_t bytes = c->adapt.first_bytes;
	struct gn_sge sge;
	struct gn_wr wr;
	int rc;

	if (c->rslots[c->expected & c->mask].read != RPC_UNREAD)
		return;
	fetch_make_read(c, c->expected, 0, bytes, &sge, &wr);
	rc = gn_post_send(c->qp, &wr, NULL);
	if (likely(!rc))
		fetch_note_read(c, c->expected, bytes, RPC_READING);
	else if (rc != -EAGAIN) /* on -EAGAIN the next poll retries */
		rpc_client_disconnected(c);
}

/* Reads the next n results that are not being read yet, with one doorbell. */
static void fetch_read_several(struct gn_rpc_client *c, uint32_t n)
{
	const uint32_t bytes = c->adapt.first_bytes;
	const struct gn_wr *bad = NULL;
	struct gn_wr wrs[FETCH_AHEAD_MAX];
	struct gn_sge sges[FETCH_AHEAD_MAX];
	uint32_t made = 0;
	int rc;

	for (uint32_t i = 0; i < n && made < FETCH_AHEAD_MAX; i++) {
		if (c->rslots[(c->expected + i) & c->mask].read != RPC_UNREAD)
			continue;
		fetch_make_read(c, c->expected + i, 0, bytes, &sges[made], &wrs[made]);
		if (made)
			wrs[made - 1].next = &wrs[made];
		made++;
	}
	if (!made)
		return;
	rc = gn_post_send(c->qp, wrs, &bad);
	if (rc && rc != -EAGAIN) {
		rpc_client_disconnected(c);
		return;
	}
	for (uint32_t i = 0; i < made && &wrs[i] != bad; i++)
		fetch_note_read(c, (uint32_t)wrs[i].id, bytes, RPC_READING);
}

/* ---- fetch ---- */

/* A result was fetched too early: compute when to fetch again. */
static void fetch_back_off(struct gn_rpc_client *c)
{
	const uint32_t fails = c->rslots[c->expected & c->mask].fails;
	const uint64_t newest_ns = c->newest_ns;
	uint64_t now_ns, age_ns;

	if (c->flags & GN_RPC_EAGER || fails <= c->adapt.retries ||
	    (!c->slow_reads && fails % FETCH_BURST))
		return;
	now_ns = gn_now_ns();
	if (newest_ns)
		c->missed_ns = newest_ns > c->sent_ns ? newest_ns : c->sent_ns;
	else if (fails <= c->adapt.retries + FETCH_BURST) /* for the first time */
		c->missed_ns = now_ns;
	age_ns = now_ns - c->missed_ns;
	if (c->notify)
		c->fetch_at_ns = GN_FOREVER; /* until the notification, or a liveness check */
	else if (age_ns > FETCH_BACKOFF_AFTER_NS)
		c->fetch_at_ns =
			now_ns +
			(age_ns / 8 < FETCH_BACKOFF_MAX_NS ? age_ns / 8 : FETCH_BACKOFF_MAX_NS);
}

/* The result was absent or incomplete. */
static void fetch_missed(struct gn_rpc_client *c, uint32_t number, enum rpc_found found)
{
	struct rpc_result_slot *rslot = &c->rslots[number & c->mask];

	rslot->read = RPC_UNREAD;
	if (number == c->expected && !rslot->fails && c->slow_reads)
		rpc_adapt_slack(c, false);
	/* A miss takes time also where a READ takes none: in the simulator time must pass. */
	exec_charge(GN_WORK_NS, FETCH_MISS_COST_NS);
	rslot->fails++;
	c->count.failed_fetches++;
	c->count.torn += found == RPC_TORN;
	if (number != c->expected)
		return;
	c->missed = true;
	if (found == RPC_ABSENT) {
		uint32_t word;

		memcpy(&word,
		       c->fetched + result_offset(c, number) + offsetof(struct rpc_head, ack),
		       sizeof(word));
		rpc_note_taken(c, word);
		/* Pairs with rpc_conn_publish_taken(): a slot is written only after it was read. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (unlikely(word & RPC_PARKED_MAX))
			rpc_handle_parked(c, word & RPC_PARKED_MAX);
	}
	fetch_back_off(c);
}

/*
 * Same as rpc_message_find(), for a copy that a READ made: nobody else writes it, so what was
 * checked does not change.
 */
static enum rpc_found fetch_check_copy(const struct gn_rpc_client *c, const uint8_t *message,
				       uint64_t have, uint64_t seq, struct rpc_head *head)
{
	uint64_t tail;

	memcpy(head, message, sizeof(*head));
	if (mutant("rpc-epoch-unchecked", 8) && (uint32_t)head->seq == (uint32_t)seq)
		seq = head->seq;
	if (head->seq != seq)
		return RPC_ABSENT;
	if (unlikely(head->len > c->max_results || head->len < sizeof(struct rpc_entry) ||
		     head->len % 8))
		return RPC_TORN;
	if (unlikely(have < rpc_message_bytes(head->len)))
		return RPC_FOUND;
	memcpy(&tail, message + rpc_tail_at(head->len), sizeof(tail));
	if (unlikely(tail != rpc_tail(seq, c->nonce)) && !mutant("rpc-tail-unchecked", seq))
		return RPC_TORN;
	if (likely(!c->check_fetch) || mutant("rpc-crc-unchecked", seq))
		return RPC_FOUND;
	return head->flags & RPC_CRC && head->crc == rpc_checksum(message, *head) ? RPC_FOUND :
										    RPC_TORN;
}

/* A READ has brought have bytes of the next result's slot. */
static no_inline void fetch_check(struct gn_rpc_client *c, struct rpc_result_slot *rslot,
				  const uint8_t *message, uint64_t have)
{
	const uint32_t number = c->expected;
	struct rpc_head head;
	const enum rpc_found found =
		fetch_check_copy(c, message, have, rpc_seq(c->epoch, number), &head);

	if (unlikely(found != RPC_FOUND)) {
		fetch_missed(c, number, found);
		return;
	}
	if (unlikely(c->slow_reads) && !rslot->fails)
		rpc_adapt_slack(c, true);
	if (unlikely(have < rpc_message_bytes(head.len))) {
		rslot->read = RPC_UNREAD;
		fetch_read_rest(c, number, (uint32_t)have, (uint32_t)rpc_message_bytes(head.len));
	} else {
		rpc_take_message(c, rslot, message, &head);
	}
}

/* Results are taken in order. One that arrives early is read again in its turn. */
static no_inline void fetch_read_done(struct gn_rpc_client *c, uint32_t number)
{
	struct rpc_result_slot *rslot = &c->rslots[number & c->mask];

	c->n_fetch_reads--;
	if (rslot->read == RPC_UNREAD || (int32_t)(number - c->expected) < 0)
		return; /* the result has arrived as a reply meanwhile */
	if (number == c->expected) {
		fetch_check(c, rslot, c->fetched + result_offset(c, number), rslot->bytes);
		return;
	}
	rslot->read = RPC_UNREAD;
}

void rpc_client_completed(struct link_conn *conn, const struct gn_wc *wc)
{
	struct gn_rpc_client *c = container_of(conn, struct rpc_link, conn)->client;

	if (unlikely(c->dead))
		return;
	c->posted--;
	switch ((enum rpc_id)(wc->id >> 32)) {
	case RPC_ID_RESULT:
		fetch_read_done(c, (uint32_t)wc->id);
		break;
	case RPC_ID_REQUEST:
		c->unconfirmed--;
		break;
	case RPC_ID_LARGE:
		rpc_large_piece_done(c, (uint32_t)wc->id);
		break;
	case RPC_ID_READ:
		rpc_read_done(c, (uint32_t)wc->id);
		break;
	case RPC_ID_NOTIFY:
		rpc_notified(c);
		break;
	case RPC_ID_OTHER:
		break;
	}
}

static no_inline void client_poll_completions(struct gn_rpc_client *c)
{
	link_loop_poll(&c->loop);
	if (unlikely(c->loop.failed))
		link_conns_report_failed(&c->loop);
}

/*
 * How many results can be there: those of messages that the server has not taken, as far as is
 * known.
 */
static uint32_t results_due(const struct gn_rpc_client *c, uint32_t n)
{
	const uint32_t most = c->number - 1 - c->taken;

	return n <= most ? n : most ? most : 1;
}

/*
 * Where a READ is a memory copy it completes at once; elsewhere polling right after posting is
 * wasted.
 */
static void fetch_detect_slow_reads(struct gn_rpc_client *c)
{
	const uint32_t reads = c->n_fetch_reads;
	const uint64_t ended = c->ended;

	client_poll_completions(c);
	c->slow_reads = c->n_fetch_reads == reads && c->ended == ended;
}

/* A READ that could have completed when it was posted has not. */
static no_inline void fetch_posted(struct gn_rpc_client *c, uint32_t bytes, int rc)
{
	if (!rc) {
		fetch_note_read(c, c->expected, bytes, RPC_READING);
		fetch_detect_slow_reads(c);
	} else if (rc != -EAGAIN) {
		rpc_client_disconnected(c);
	}
}

/* 1: bytes of the next result were read; 0: the READ is outstanding; -1: it was not posted. */
static force_inline int fetch_post_read(struct gn_rpc_client *c, uint32_t bytes,
					const uint8_t **message)
{
	const uint32_t number = c->expected;
	const uint64_t offset = result_offset(c, number);
	int rc;

	*message = c->fetched + offset;
	rc = gn_post_fixed(&c->result_wr, offset, bytes, rpc_id(RPC_ID_RESULT, number));
	if (unlikely(rc != 1))
		fetch_posted(c, bytes, rc);
	else
		c->count.fetches++;
	return rc;
}

/*
 * One result, where a READ completes when it is posted. False: the result is not there. True: it
 * was taken, the READ is outstanding, or the connection failed.
 */
static bool fetch_at_once(struct gn_rpc_client *c, struct rpc_result_slot *rslot, uint32_t bytes)
{
	const uint8_t *message;

	if (unlikely(fetch_post_read(c, bytes, &message) != 1))
		return true;
	if (unlikely(load_u64(message) != rpc_seq(c->epoch, c->expected)))
		return false;
	fetch_check(c, rslot, message, bytes);
	return true;
}

/*
 * Pause after a miss, for about an eighth of the time waited so far: polling without a pause takes
 * the cache line away from the server that is to write it.
 */
static inline void fetch_pause(const struct rpc_result_slot *rslot)
{
	for (uint32_t n = rslot->fails < FETCH_PAUSES_MAX * 8 ? rslot->fails / 8 : FETCH_PAUSES_MAX;
	     n; n--)
		cpu_relax();
}

static no_inline void fetch_again(struct gn_rpc_client *c, struct rpc_result_slot *rslot)
{
	for (unsigned i = 1; i < FETCH_BURST; i++) {
		fetch_missed(c, c->expected, RPC_ABSENT);
		fetch_pause(rslot);
		if (c->fetch_at_ns || c->dead || fetch_at_once(c, rslot, peek_bytes(c)))
			return;
	}
	fetch_missed(c, c->expected, RPC_ABSENT);
}

/* Fetches where READs take time, or while other requests are outstanding. */
static no_inline void fetch_ahead(struct gn_rpc_client *c, const struct rpc_result_slot *rslot)
{
	/* Results come in order: while the next is absent, so are those behind it. */
	const uint32_t n = rslot->fails || !c->slow_reads ? 1 : results_due(c, c->n_fetch);

	if (unlikely(c->unconfirmed && c->flags & GN_RPC_SIGNALED && !rslot->fails))
		return;
	if (c->fetch_at_ns) {
		if (gn_now_ns() < c->fetch_at_ns)
			return;
		c->fetch_at_ns = 0;
	}
	if (n == 1)
		rpc_read_result(c);
	else
		fetch_read_several(c, n <= c->mask ? n : c->mask + 1);
	if (c->n_fetch_reads && (!c->slow_reads || !(c->count.fetches % SLOW_CHECK_EVERY)) &&
	    !c->dead)
		fetch_detect_slow_reads(c);
}

/* ---- reply ---- */

static no_inline void reply_find(struct gn_rpc_client *c)
{
	enum rpc_found found;
	uint32_t n = 0;

	do {
		const uint8_t *message = c->replies + result_offset(c, c->expected);
		struct rpc_head head;

		found = rpc_message_find(message, c->result_stride, rpc_seq(c->epoch, c->expected),
					 c->nonce, c->max_results, c->check_reply, &head);
		if (found == RPC_FOUND)
			rpc_take_message(c, &c->rslots[c->expected & c->mask], message, &head);
	} while (found == RPC_FOUND && !c->dead && n++ < c->mask);
	c->count.torn += found == RPC_TORN;
}

/* ---- poll ---- */

/* The first deadline may have passed: one timer is set to a lower bound of all deadlines. */
void rpc_client_deadline(struct link_timer *timer, uint64_t now_ns)
{
	struct gn_rpc_client *c = container_of(timer, struct gn_rpc_client, deadline_timer);
	uint64_t next_ns = GN_FOREVER;

	c->left_to_ns = 0; /* the next call with the same deadline sets the timer again */
	for (uint32_t i = 0; i < c->limits.window; i++) {
		const struct gn_rpc_op *op = c->calls[i].op;

		if (!op || !op->deadline_ns)
			continue;
		if (op->deadline_ns <= now_ns) {
			rpc_call_abandon(c, i);
			rpc_call_complete(c, &c->calls[i], GN_RPC_TIMEOUT, 0);
		} else if (op->deadline_ns < next_ns) {
			next_ns = op->deadline_ns;
		}
	}
	if (next_ns < timer->due_ns)
		link_timer_set(&c->loop.timers, timer, next_ns);
}

/*
 * Runs every 100 ms while calls are outstanding. If no result has come since, a READ checks whether
 * the server is alive and polls this client's slots.
 */
void rpc_client_check_liveness(struct link_conn *conn)
{
	struct gn_rpc_client *c = container_of(conn, struct rpc_link, conn)->client;

	if (!rpc_calls_sent(c))
		link_conn_set_probe_interval(conn, GN_FOREVER);
	else if (c->results_seen == c->count.results)
		rpc_probe_server(c, c->loop.now_ns);
	c->results_seen = c->count.results;
}

/* Work that not every poll does; reads the clock. */
static no_inline void poll_periodic(struct gn_rpc_client *c)
{
	uint64_t now_ns;

	if (c->dead)
		return;
	/* An unsignaled request completes only if it fails. */
	if (unlikely(link_loop_will_maintain(&c->loop)))
		link_loop_maintain(&c->loop);
	else
		link_loop_run_timers(&c->loop);
	if (unlikely(c->dead))
		return;
	now_ns = c->loop.now_ns;
	if (c->retired)
		rpc_area_retry(&c->retired);
	if (c->entries && now_ns - c->begun_ns > c->adapt.batch.wait_us * 1000ull)
		rpc_flush(c);
	if (unlikely(rpc_calls_sent(c)))
		link_conn_set_probe_interval(&c->link->conn, LINK_PROBE_NS);
	if ((c->n_reply || rpc_waits_for_slot(c)) && !c->dead && now_ns > rpc_probe_due_ns(c))
		rpc_probe_server(c, now_ns);
}

/*
 * A poll that found nothing: the program may sleep before its next poll, so the number of polls
 * says nothing about time.
 */
static no_inline void poll_idle(struct gn_rpc_client *c)
{
	poll_periodic(c);
	if (c->dead || likely(c->loop.now_ns - c->loop.maintained_ns < LINK_MAINTAIN_NS))
		return;
	link_loop_force_maintain(&c->loop);
	link_loop_maintain(&c->loop);
}

/* The slow path: everything that may be pending. */
static no_inline void poll_all(struct gn_rpc_client *c)
{
	struct rpc_result_slot *rslot;

	if (c->posted)
		client_poll_completions(c);
	if (c->send_due)
		rpc_flush(c);
	if (c->large_reads)
		rpc_large_poll(c);
	if (c->view_reads.unposted)
		rpc_reads_post(c);
	if (c->n_reply && !c->dead)
		reply_find(c);
	if (!c->n_fetch || c->dead)
		return;
	rslot = &c->rslots[c->expected & c->mask];
	if (c->fetch_at_ns || c->slow_reads || c->posted || rslot->read)
		fetch_ahead(c, rslot);
	else if (!fetch_at_once(c, rslot, rslot->fails ? peek_bytes(c) : c->adapt.first_bytes))
		fetch_again(c, rslot);
}

/*
 * The common case: a message with one result, of a fast method, not timed. All state is updated
 * before done is called. False: not this case, and nothing was changed.
 */
static force_inline bool fetch_take_single(struct gn_rpc_client *c, const uint8_t *message,
					   uint32_t len, uint32_t time_flags)
{
	const uint64_t entry = load_u64(message + sizeof(struct rpc_head));
	const uint8_t *bytes = message + sizeof(struct rpc_head) + sizeof(entry);
	const uint32_t high = (uint32_t)(entry >> 32), n = (uint32_t)entry;
	const uint32_t number = c->expected;
	struct rpc_call *call = &c->calls[high >> 16];
	struct gn_rpc_op *op;

	/*
	 * time_flags: the server's time and the flags; high: the status, and whether the result is
	 * large
	 */
	if (unlikely((high & (RPC_LARGE << 16 | UINT16_MAX)) | (time_flags & UINT16_MAX) |
		     c->open_or_exported) ||
	    unlikely(high >> 16 >= c->limits.window || len - sizeof(entry) - n >= 8 ||
		     c->consumed + 1 != number))
		return false;
	op = call->op;
	if (unlikely(!op || !call->mstate->fast || call->begun_ns || n > op->result_room ||
		     (n > RPC_SHORT && !op->flags)))
		return false;
	if (op->flags)
		op->data = n ? bytes : NULL;
	else if (n)
		rpc_store(op->result, bytes, n);
	counter_add(&call->mstate->latency->calls, 1);
	c->count.results++;
	c->wakes_sent = c->woken_park = 0;
	c->consumed = number;
	c->expected = number + 1;
	rpc_call_free(c, call);
	if (likely(!c->any_sent))
		c->taken = c->number - 1;
	else
		rpc_note_taken(
			c, (uint32_t)(load_u64(message + offsetof(struct rpc_head, crc)) >> 32));
	if (unlikely(time_flags & RPC_WANT_ACK << 16 || number - c->acked > c->ack_after))
		c->ack_due |= time_flags & RPC_WANT_ACK << 16 || c->any_sent;
	rpc_op_complete(c, call, op, GN_RPC_OK, n);
	return true;
}

/*
 * fetch_at_once() and fetch_again() for the first fetch of a result, if nothing else is pending and
 * no checksum is needed. Anything unusual is left to fetch_check().
 */
static force_inline void fetch_first(struct gn_rpc_client *c)
{
	const uint8_t *message;
	uint64_t word, seq;
	uint32_t len;

	if (unlikely(fetch_post_read(c, c->adapt.first_bytes, &message) != 1))
		return;
	seq = rpc_seq(c->epoch, c->expected);
	if (unlikely(load_u64(message) != seq)) {
		fetch_again(c, &c->rslots[c->expected & c->mask]);
		return;
	}
	word = load_u64(message + offsetof(struct rpc_head, len));
	len = (uint32_t)word;
	/*
	 * A length that is no multiple of 8, or less than an entry, is rotated beyond UINT32_MAX /
	 * 8.
	 */
	if (likely(rotate_right(len - (uint32_t)sizeof(struct rpc_entry), 3) <=
		   c->adapt.first_words) &&
	    likely(load_u64(message + rpc_tail_at(len)) == rpc_tail(seq, c->nonce))) {
		if (!fetch_take_single(c, message, len, (uint32_t)(word >> 32)))
			rpc_take_fetched_message(c, message);
		return;
	}
	fetch_check(c, &c->rslots[c->expected & c->mask], message, c->adapt.first_bytes);
}

int rpc_client_poll(struct gn_rpc_client *c, bool clock)
{
	const uint64_t before = c->ended;

	if (unlikely(c->dead))
		return 0;
	c->busy = true;
	c->loop.iterations++;
	/* Usually the next result is all that is pending. */
	if (unlikely((uintptr_t)c->large_reads | (uintptr_t)c->view_reads.unposted |
		     c->fetch_at_ns | c->posted | c->n_reply | c->slow_path))
		poll_all(c);
	else if (c->n_fetch)
		fetch_first(c);
	/* Deadlines must be checked also while other calls complete all the time. */
	if (unlikely(clock && c->ended == before))
		poll_idle(c);
	else if (unlikely(!(c->loop.iterations % RPC_CLOCK_EVERY) ||
			  (c->ended - before >= RPC_CLOCK_EVERY &&
			   rpc_coarse_ns(c) >= c->deadline_timer.due_ns)))
		poll_periodic(c);
	/* Last: after the poll that completes a call the program may not poll for long. */
	if (unlikely(c->ack_due) && !c->dead)
		rpc_send_ack(c);
	c->busy = false;
	return (int)(c->ended - before);
}
