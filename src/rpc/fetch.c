/* SPDX-License-Identifier: MIT */
/* How results come to a client: fetched from the server's memory, or found in its own. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/bits.h"
#include "rpc/client.h"

#define COMPLETIONS 16
#define LOOK_NS	    20u
#define CHAN_EVERY  64u	   /* polls after which the connection is looked at in any case */
#define CLOCK_EVERY 16u	   /* … and the clock; or ends of calls in one poll */
#define PATIENCE_NS 20000u /* of a call, until it is fetched more and more seldom */
#define SELDOM_NS   10000000u
#define AHEAD	    16u	   /* results that are read at once */
#define PEEK_FROM   256u   /* bytes that are worth it to look at the first of them before */
#define ALONE	    8u	   /* reads in a row of one result */
#define SLOW_LOOK   16u	   /* polls of which one looks whether reads are still slow */
#define ASK_NS	    20000u /* and the server's silence, until it is asked for a reply */

static uint64_t result_at(const struct gn_rpc_client *c, uint32_t number)
{
	return (number & c->mask) * c->result_stride;
}

/* The bytes of a message that the first read brings. */
static uint32_t first_bytes(const struct gn_rpc_client *c)
{
	const uint64_t bytes = rpc_message_bytes(rpc_max_len(c->learn.fetch_bytes));

	return (uint32_t)(bytes < c->result_stride ? bytes : c->result_stride);
}

/*
 * … of a read that is as good as a copy, when one was in vain: a server that is about to write a
 * long message should not lose the lines of it to us each time.
 */
static uint32_t peek_bytes(const struct gn_rpc_client *c)
{
	const uint32_t bytes = first_bytes(c);

	return bytes <= PEEK_FROM ? bytes : RPC_ALIGN;
}

/* ---- what is posted ---- */

/* A request to read bytes of result number from at on. */
static void make_read(struct gn_rpc_client *c, uint32_t number, uint32_t at, uint32_t bytes,
		      struct gn_sge *sge, struct gn_wr *wr)
{
	const uint64_t offset = result_at(c, number) + at;
	const struct gn_remote from = {.key = c->result_key};

	*sge = (struct gn_sge){c->fetched + offset, bytes, c->local_key};
	gn_wr_rdma(wr, GN_OP_READ, rpc_id(RPC_ID_RESULT, number), sge, &from, offset, GN_SIGNALED);
}

static void note_read(struct gn_rpc_client *c, uint32_t number, uint32_t until, enum rpc_read kind)
{
	struct rpc_got *got = &c->got[number & c->mask];

	got->read = kind;
	got->bytes = until;
	c->posted++;
	c->reads++;
	c->count.fetches++;
}

static void read_rest(struct gn_rpc_client *c, uint32_t number, uint32_t have, uint32_t all)
{
	struct gn_sge sge;
	struct gn_wr wr;
	int rc;

	make_read(c, number, have, all - have, &sge, &wr);
	rc = gn_post_send(c->qp, &wr, NULL);
	if (rc == -EAGAIN)
		return; /* from the beginning, when the queue has room again */
	if (rc) {
		rpc_client_die(c);
		return;
	}
	note_read(c, number, all, RPC_READING_REST);
	c->count.second_reads++;
}

/* Read the next result. */
static void read_one(struct gn_rpc_client *c)
{
	const uint32_t bytes = first_bytes(c);
	struct gn_sge sge;
	struct gn_wr wr;
	int rc;

	if (c->got[c->expected & c->mask].read != RPC_UNREAD)
		return;
	make_read(c, c->expected, 0, bytes, &sge, &wr);
	rc = gn_post_send(c->qp, &wr, NULL);
	if (likely(!rc))
		note_read(c, c->expected, bytes, RPC_READING);
	else if (rc != -EAGAIN) /* else when the queue has room again */
		rpc_client_die(c);
}

/* … and those behind it that may be there too, with one doorbell. */
static void read_next(struct gn_rpc_client *c, uint32_t n)
{
	const uint32_t bytes = first_bytes(c);
	const struct gn_wr *bad = NULL;
	struct gn_wr wrs[AHEAD];
	struct gn_sge sges[AHEAD];
	uint32_t made = 0;
	int rc;

	for (uint32_t i = 0; i < n && made < AHEAD; i++) {
		if (c->got[(c->expected + i) & c->mask].read != RPC_UNREAD)
			continue;
		make_read(c, c->expected + i, 0, bytes, &sges[made], &wrs[made]);
		if (made)
			wrs[made - 1].next = &wrs[made];
		made++;
	}
	if (!made)
		return;
	rc = gn_post_send(c->qp, wrs, &bad);
	if (rc && rc != -EAGAIN) {
		rpc_client_die(c);
		return;
	}
	for (uint32_t i = 0; i < made && &wrs[i] != bad; i++)
		note_read(c, (uint32_t)wrs[i].id, bytes, RPC_READING);
}

/* Tell the server which results are not needed any more, without a request. */
static void tell(struct gn_rpc_client *c)
{
	uint64_t word = rpc_seq(c->epoch, c->spent);
	const struct gn_sge sge = {&word, sizeof(word), 0};
	const struct gn_remote to = {.key = c->request_key};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE, rpc_id(RPC_ID_OTHER, 0), &sge, &to,
		   rpc_ack_at(c->request_stride, c->limits.slots), GN_INLINE | GN_SIGNALED);
	if (!gn_post_send(c->qp, &wr, NULL)) {
		c->posted++;
		c->told = c->spent;
		c->tell = false;
	}
}

/* Not more often than results come: the server has a few receives for it. */
bool rpc_wake(struct gn_rpc_client *c)
{
	struct gn_wr wr;

	if (c->waking)
		return true;
	gn_wr_init(&wr, GN_OP_WRITE_IMM, rpc_id(RPC_ID_OTHER, 0), NULL, 0,
		   GN_SIGNALED | GN_SOLICITED);
	if (gn_post_send(c->qp, &wr, NULL))
		return false;
	c->posted++;
	c->waking = true;
	c->count.wakes++;
	return true;
}

/* ---- asleep ---- */

int rpc_notify_recv(struct gn_rpc_client *c)
{
	const struct gn_recv_wr wr = {.id = rpc_id(RPC_ID_NOTIFY, 0)};

	return gn_post_recv(c->qp, &wr, NULL);
}

/* Until it has come, results are only read to see that the server is there. */
bool rpc_notify(struct gn_rpc_client *c, uint64_t now_ns)
{
	struct gn_wr wr;

	if (c->notify)
		return true;
	gn_wr_init(&wr, GN_OP_WRITE_IMM, rpc_id(RPC_ID_OTHER, 0), NULL, 0,
		   GN_SIGNALED | GN_SOLICITED);
	wr.imm = c->expected;
	if (!wr.imm || gn_post_send(c->qp, &wr, NULL))
		return false;
	c->posted += 2; /* this, and the answer */
	c->notify = true;
	c->notify_ns = now_ns;
	if (c->first_ns)
		c->first_ns = now_ns + RPC_PROBE_NS;
	c->count.notifies++;
	return true;
}

/* Waits that are over at once are not worth it: with many clients they would be work for all. */
static void take_notified(struct gn_rpc_client *c)
{
	const uint64_t slept_ns = gn_now_ns() - c->notify_ns;

	c->notify = false;
	c->first_ns = 0;
	if (slept_ns < RPC_NOTIFY_NS)
		c->notify_after_ns *= 2;
	else
		c->notify_after_ns /= 2;
	if (c->notify_after_ns < RPC_NOTIFY_NS)
		c->notify_after_ns = RPC_NOTIFY_NS;
	if (c->notify_after_ns > RPC_NOTIFY_MAX_NS)
		c->notify_after_ns = RPC_NOTIFY_MAX_NS;
	if (rpc_notify_recv(c))
		rpc_client_die(c);
}

/* The server does not poll this client's slots, says the slot of its next result. */
static void see_parked(struct gn_rpc_client *c, uint32_t parked)
{
	if (parked == c->woken)
		return;
	c->waking = false;
	if (rpc_wake(c))
		c->woken = parked;
}

/* ---- a message with results ---- */

void rpc_move_spent(struct gn_rpc_client *c)
{
	while (c->spent + 1 != c->expected && !c->got[(c->spent + 1) & c->mask].far) {
		struct rpc_got *got = &c->got[++c->spent & c->mask];

		c->tell |= got->tell;
		got->tell = false;
	}
}

/*
 * There is no room for it. What the handler thought of the call stands, if its caller can see by
 * the length that the bytes are not there.
 */
static void end_too_big(struct gn_rpc_client *c, struct rpc_call *call, unsigned status,
			uint32_t len)
{
	const bool seen = call->op && len > call->op->result_room;

	rpc_end(c, call, status == GN_RPC_OK || !seen ? GN_RPC_TOO_BIG : status, len);
}

static void deliver(struct gn_rpc_client *c, struct rpc_call *call, const struct rpc_entry *entry,
		    const uint8_t *bytes)
{
	struct gn_rpc_op *op = call->op;

	if (!op)
		return;
	if (entry->len > op->result_room) {
		end_too_big(c, call, entry->kind, entry->len);
		return;
	}
	if (op->flags & GN_RPC_IN_PLACE)
		op->data = bytes;
	else if (entry->len)
		memcpy(op->result, bytes, entry->len);
	rpc_end(c, call, entry->kind, entry->len);
}

/* One that is elsewhere: true if it is going to be read. */
static bool take_far(struct gn_rpc_client *c, uint32_t index, const struct rpc_entry *entry,
		     const uint8_t *bytes, uint32_t number)
{
	struct rpc_call *call = &c->calls[index];
	struct rpc_far_read read = {.call = index, .number = number, .status = entry->kind};

	memcpy(&read.from, bytes, sizeof(read.from));
	if (!call->op || !read.from.len)
		return false;
	if (read.from.len > call->op->result_room)
		rpc_mail_room(c, call->op, read.from.len);
	if (read.from.len > call->op->result_room || read.from.len > c->opts.max_large) {
		end_too_big(c, call, entry->kind, read.from.len);
		return false;
	}
	if (rpc_far_begin(c, &read)) {
		call->far = true;
		c->got[number & c->mask].far++;
		return true;
	}
	end_too_big(c, call, entry->kind, read.from.len); /* for this process, now */
	return false;
}

/* False: a server of ours says no such things: of a call twice, or of one that was not sent. */
static bool take_entry(struct gn_rpc_client *c, const struct rpc_entry *entry, const uint8_t *bytes,
		       uint32_t number, struct rpc_lesson *lesson)
{
	const uint32_t index = entry->index & RPC_INDEX;
	const bool far = entry->index & RPC_FAR;
	struct rpc_call *call = &c->calls[index];
	uint64_t sent_ns;

	if (unlikely(index >= c->limits.window || !call->taken || call->far ||
		     call->sent->number == c->number ||
		     (far && entry->len != sizeof(struct rpc_far))))
		return false;
	sent_ns = call->sent->ns;
	if (unlikely(call->kind != lesson->kind || sent_ns != lesson->sent_ns)) {
		if (lesson->kind)
			rpc_learn_calls(c, lesson);
		lesson->kind = call->kind;
		lesson->sent_ns = sent_ns;
		lesson->calls = 0;
	}
	lesson->calls++;
	if (unlikely(far) && take_far(c, index, entry, bytes, number))
		return true;
	if (likely(!far))
		deliver(c, call, entry, bytes);
	rpc_call_over(c, index);
	return true;
}

/* The next message is here, all of it. */
static void take_message(struct gn_rpc_client *c, const uint8_t *message,
			 const struct rpc_head *head)
{
	const uint32_t number = c->expected++;
	struct rpc_got *got = &c->got[number & c->mask];
	struct rpc_lesson lesson = {.now_ns = rpc_learn_timed(c, number) ? gn_now_ns() : 0,
				    .fails = got->fails,
				    .time_us = rpc_time_us(head->aux)};
	struct rpc_entry entry;
	const uint8_t *bytes;
	uint32_t at = 0;

	rpc_note_taken(c, head->word);
	c->waking = false;
	c->woken = 0;
	c->first_ns = 0;
	c->count.results++;
	got->read = RPC_UNREAD;
	got->tell = head->flags & RPC_ACK;
	if (lesson.now_ns || rpc_message_bytes(head->len) > first_bytes(c))
		rpc_learn_size(c, head->len);
	while (at < head->len && !c->dead)
		if (unlikely(!rpc_entry(message, head->len, &at, &entry, &bytes) ||
			     !take_entry(c, &entry, bytes, number, &lesson)))
			rpc_client_die(c);
	if (likely(lesson.kind))
		rpc_learn_calls(c, &lesson);
	gn_charge(GN_WORK_COPY, head->len);
	got->fails = 0;
	rpc_move_spent(c);
}

/* ---- fetch ---- */

/* A read of a result was too early: when is it worth the next? */
static void put_off(struct gn_rpc_client *c)
{
	const uint32_t fails = c->got[c->expected & c->mask].fails;
	struct rpc_sent *sent = c->newest;
	uint64_t now_ns, age_ns;

	if (c->flags & GN_RPC_EAGER || fails <= c->learn.retries ||
	    (!c->slow_reads && fails % ALONE))
		return;
	now_ns = gn_now_ns();
	if (!sent->ns)
		sent->ns = now_ns;
	age_ns = now_ns - (sent->ns > c->heard_ns ? sent->ns : c->heard_ns);
	if (c->notify)
		c->first_ns = now_ns + RPC_PROBE_NS;
	else if (age_ns > PATIENCE_NS)
		c->first_ns = now_ns + (age_ns / 8 < SELDOM_NS ? age_ns / 8 : SELDOM_NS);
}

/* The result was not there, or not all of it. */
static void miss(struct gn_rpc_client *c, uint32_t number, enum rpc_found found)
{
	struct rpc_got *got = &c->got[number & c->mask];

	got->read = RPC_UNREAD;
	if (number == c->expected && !got->fails)
		rpc_learn_first(c, false);
	/* Looking takes time also where reading takes none: so the result comes nearer. */
	gn_charge(GN_WORK_NS, LOOK_NS);
	got->fails++;
	c->count.failed_fetches++;
	c->count.torn += found == RPC_TORN;
	if (number != c->expected)
		return;
	if (found == RPC_NOTHING) {
		uint32_t word;

		memcpy(&word, c->fetched + result_at(c, number) + offsetof(struct rpc_head, word),
		       sizeof(word));
		rpc_note_taken(c, word);
		/* Pairs with rpc_conn_tell_taken(): a slot is written after it was read. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (unlikely(word & RPC_PARKED_MAX))
			see_parked(c, word & RPC_PARKED_MAX);
	}
	put_off(c);
}

static void look(struct gn_rpc_client *c, uint32_t number, uint64_t have)
{
	struct rpc_got *got = &c->got[number & c->mask];
	const uint8_t *message = c->fetched + result_at(c, number);
	struct rpc_head head;
	const enum rpc_found found = rpc_look(message, have, rpc_seq(c->epoch, number), c->nonce,
					      rpc_max_len(c->limits.max_result), c->check_fetch,
					      &head);

	if (found != RPC_FOUND) {
		miss(c, number, found);
		return;
	}
	got->read = RPC_UNREAD;
	if (number == c->expected && !got->fails)
		rpc_learn_first(c, true);
	if (have < rpc_message_bytes(head.len))
		read_rest(c, number, (uint32_t)have, (uint32_t)rpc_message_bytes(head.len));
	else
		take_message(c, message, &head);
}

/* Results are taken in order: one that is here before its turn is looked at again then. */
static void read_done(struct gn_rpc_client *c, uint32_t number)
{
	struct rpc_got *got = &c->got[number & c->mask];

	c->reads--;
	if (got->read == RPC_UNREAD || (int32_t)(number - c->expected) < 0)
		return; /* it came another way meanwhile */
	if (number == c->expected) {
		look(c, number, got->bytes);
		return;
	}
	got->read = RPC_UNREAD;
}

static void take_completions(struct gn_rpc_client *c)
{
	struct gn_wc wc[COMPLETIONS];
	const int n = gn_cq_poll(c->cq, wc, COMPLETIONS);

	if (unlikely(n < 0))
		rpc_client_die(c);
	else
		c->posted -= (uint32_t)n;
	for (int i = 0; i < n && !c->dead; i++) {
		if (unlikely(wc[i].status != GN_WC_OK)) {
			rpc_client_die(c);
			return;
		}
		switch ((enum rpc_id)(wc[i].id >> 32)) {
		case RPC_ID_RESULT:
			read_done(c, (uint32_t)wc[i].id);
			break;
		case RPC_ID_REQUEST:
			c->unconfirmed--;
			break;
		case RPC_ID_FAR:
			rpc_far_done(c, (uint32_t)wc[i].id);
			break;
		case RPC_ID_READ:
			rpc_read_done(c, (uint32_t)wc[i].id);
			break;
		case RPC_ID_NOTIFY:
			take_notified(c);
			break;
		case RPC_ID_OTHER:
			break;
		}
	}
}

/* Messages of requests that the server has, whose results are to be fetched. */
static uint32_t fetchable(const struct gn_rpc_client *c)
{
	return c->n_fetch - (c->entries && !c->reply);
}

/* How many results may be there: of messages that the server has not taken, as far as is known. */
static uint32_t results_due(const struct gn_rpc_client *c, uint32_t n)
{
	const uint32_t most = c->number - 1 - c->taken;

	return n <= most ? n : most ? most : 1;
}

/*
 * One result, and reads that are as good as copies: again and again for a while, without all that
 * may be under way besides. False: this one is not.
 */
static bool fetch_alone(struct gn_rpc_client *c)
{
	const uint32_t number = c->expected;
	struct rpc_got *got = &c->got[number & c->mask];
	const uint32_t bytes = got->fails ? peek_bytes(c) : first_bytes(c);
	const uint64_t *word = (const uint64_t *)(const void *)(c->fetched + result_at(c, number));
	const uint64_t seq = rpc_seq(c->epoch, number);
	struct gn_sge sge;
	struct gn_wr wr;

	if (c->posted || c->slow_reads || got->read != RPC_UNREAD)
		return false;
	make_read(c, number, 0, bytes, &sge, &wr);
	for (unsigned i = 0; i < ALONE; i++) {
		struct gn_wc wc;
		int rc = gn_post_send(c->qp, &wr, NULL);

		if (unlikely(rc))
			return false;
		note_read(c, number, bytes, RPC_READING);
		rc = gn_cq_poll(c->cq, &wc, 1);
		if (unlikely(rc != 1 || wc.status != GN_WC_OK)) {
			c->slow_reads = !rc;
			if (rc)
				rpc_client_die(c);
			return true;
		}
		c->posted--;
		c->reads--;
		if (*word == seq || i == ALONE - 1)
			look(c, number, bytes);
		else
			miss(c, number, RPC_NOTHING);
		if (got->read != RPC_UNREAD || !got->fails || c->first_ns)
			return true;
	}
	return true;
}

static void fetch(struct gn_rpc_client *c)
{
	const struct rpc_got *got = &c->got[c->expected & c->mask];
	uint32_t n = fetchable(c);

	if (c->flags & GN_RPC_SIGNALED && c->unconfirmed && !got->fails)
		return;
	if (c->first_ns) {
		if (gn_now_ns() < c->first_ns)
			return;
		c->first_ns = 0;
	}
	/* While the next is not there, those behind it are not either. */
	n = got->fails || !c->slow_reads ? 1 : results_due(c, n);
	if (n == 1 && fetch_alone(c))
		return;
	if (n == 1)
		read_one(c);
	else
		read_next(c, n <= c->mask ? n : c->mask + 1);
	/* Where a read is a copy, its result is there at once; elsewhere it is worth no look. */
	if (c->reads && (!c->slow_reads || !(c->polls % SLOW_LOOK)) && !c->dead) {
		const uint32_t reads = c->reads;

		take_completions(c);
		c->slow_reads = c->reads == reads && !c->ended;
	}
}

/* ---- reply ---- */

static void find_replies(struct gn_rpc_client *c)
{
	enum rpc_found found;
	uint32_t n = 0;

	do {
		const uint8_t *message = c->replies + result_at(c, c->expected);
		struct rpc_head head;

		found = rpc_look(message, c->result_stride, rpc_seq(c->epoch, c->expected),
				 c->nonce, rpc_max_len(c->limits.max_result), c->check_reply,
				 &head);
		if (found == RPC_FOUND)
			take_message(c, message, &head);
	} while (found == RPC_FOUND && !c->dead && n++ < c->mask);
	c->count.torn += found == RPC_TORN;
}

/*
 * In the mode reply nothing is posted while a result is waited for. A server that has vanished
 * without a word is found by a read, and so is one that does not look any more.
 */
void rpc_ask(struct gn_rpc_client *c, uint64_t now_ns)
{
	c->asked_ns = now_ns;
	c->count.probes++;
	read_one(c);
}

/* A call was refused because the server had not taken enough messages, as far as is known. */
static bool wants_slot(const struct gn_rpc_client *c)
{
	return unlikely(c->starved) && rpc_slots_full(c);
}

/*
 * A request may become visible to a server that has put its client aside just then, when a read has
 * found that it had not. So it is looked at more than once: less and less often.
 */
uint64_t rpc_ask_ns(const struct gn_rpc_client *c)
{
	const uint64_t last_ns = c->asked_ns > c->heard_ns ? c->asked_ns : c->heard_ns;
	const uint64_t least_ns = wants_slot(c) ? ASK_NS : c->park_us * 1000ull + ASK_NS;
	uint64_t wait_ns = last_ns - c->heard_ns;

	if (wait_ns < least_ns)
		wait_ns = least_ns;
	return last_ns + (wait_ns < RPC_PROBE_NS ? wait_ns : RPC_PROBE_NS);
}

/* ---- all of it ---- */

static void end_late(struct gn_rpc_client *c, uint64_t now_ns)
{
	c->until_ns = GN_FOREVER;
	for (uint32_t i = 0; i < c->limits.window; i++) {
		const struct gn_rpc_op *op = c->calls[i].op;

		if (!op || !op->deadline_ns)
			continue;
		if (op->deadline_ns <= now_ns) {
			rpc_give_up(c, i);
			rpc_end(c, &c->calls[i], GN_RPC_TIMEOUT, 0);
		} else if (op->deadline_ns < c->until_ns) {
			c->until_ns = op->deadline_ns;
		}
	}
}

static void take_events(struct gn_rpc_client *c)
{
	struct gn_event event;

	while (!c->dead && !gn_chan_next(c->chan, &event))
		if (event.type == GN_EVENT_DISCONNECTED || event.type == GN_EVENT_CQ_OVERRUN)
			rpc_client_die(c);
}

static void look_at_clock(struct gn_rpc_client *c)
{
	const uint64_t now_ns = gn_now_ns();

	if (c->entries && now_ns - c->open->ns > c->learn.batch.wait_us * 1000ull)
		rpc_flush(c);
	if (now_ns >= c->until_ns)
		end_late(c, now_ns);
	if ((c->n_sent > c->n_fetch || wants_slot(c)) && !c->dead && now_ns > rpc_ask_ns(c))
		rpc_ask(c, now_ns);
}

int rpc_client_poll(struct gn_rpc_client *c, bool clock)
{
	c->ended = 0;
	if (c->dead)
		return 0;
	c->busy = true;
	c->polls++;
	/* What is not signaled completes only if it fails, and then whatever comes next does. */
	if (c->posted || c->polls >= CHAN_EVERY)
		take_completions(c);
	if (c->n_sent > c->n_fetch && !c->dead)
		find_replies(c);
	if (unlikely(c->due))
		rpc_flush(c);
	if (unlikely(c->far_reads))
		rpc_far_poll(c);
	if (unlikely(c->look.late))
		rpc_read_late(c);
	if (fetchable(c) && !c->dead)
		fetch(c);
	/* Last: after the poll that ends a call there may be no other for long. */
	if (unlikely(c->tell || (c->n_sent && c->spent - c->told > c->mask / 2)) && !c->dead)
		tell(c);
	if (c->polls >= CHAN_EVERY) {
		c->polls = 0;
		take_events(c);
		if (unlikely(c->retired))
			rpc_area_retry(&c->retired);
		if (unlikely(c->old_links))
			rpc_old_links_retry(c);
	}
	/* Calls may be late also while others end all the time. */
	if (((clock && !c->ended) || !(c->polls % CLOCK_EVERY) ||
	     (c->until_ns != GN_FOREVER && c->ended >= (int)CLOCK_EVERY)) &&
	    !c->dead)
		look_at_clock(c);
	c->busy = false;
	return c->ended;
}
