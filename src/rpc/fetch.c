/* SPDX-License-Identifier: MIT */
/* How results come to a client: fetched from the server's memory, or found in its own. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/bits.h"
#include "base/mutant.h"
#include "rpc/client.h"
#include "rpc/copy.h"

#define LOOK_NS	    20u
#define PATIENCE_NS 20000u /* of a call, until it is fetched more and more seldom */
#define SELDOM_NS   10000000u
#define AHEAD	    16u	 /* results that are read at once */
#define PEEK_FROM   256u /* bytes that are worth it to look at the first of them before */
#define RESTS	    64u	 /* pauses between two looks, at most: a few us */
#define ALONE	    8u	 /* reads in a row of one result */
#define SLOW_LOOK   16u	 /* reads of which one is looked at, whether reads are still slow */

static uint64_t result_at(const struct gn_rpc_client *c, uint32_t number)
{
	return (number & c->mask) * c->result_stride;
}

/*
 * The bytes of a read that is as good as a copy, when one was in vain: a server that is about to
 * write a long message should not lose the lines of it to us each time.
 */
static uint32_t peek_bytes(const struct gn_rpc_client *c)
{
	const uint32_t bytes = c->learn.first_bytes;

	return bytes <= PEEK_FROM ? bytes : RPC_ALIGN;
}

static inline uint64_t load_word(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static inline uint32_t rotate_right(uint32_t x, unsigned bits)
{
	return x >> bits | x << (32 - bits);
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

void rpc_read_result(struct gn_rpc_client *c)
{
	const uint32_t bytes = c->learn.first_bytes;
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
	const uint32_t bytes = c->learn.first_bytes;
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

/* ---- fetch ---- */

/* A read of a result was too early: when is it worth the next? */
static void put_off(struct gn_rpc_client *c)
{
	const uint32_t fails = c->got[c->expected & c->mask].fails;
	const uint64_t newest_ns = c->newest_ns;
	uint64_t now_ns, age_ns;

	if (c->flags & GN_RPC_EAGER || fails <= c->learn.retries ||
	    (!c->slow_reads && fails % ALONE))
		return;
	now_ns = gn_now_ns();
	if (newest_ns)
		c->missed_ns = newest_ns > c->sent_ns ? newest_ns : c->sent_ns;
	else if (fails <= c->learn.retries + ALONE) /* for the first time */
		c->missed_ns = now_ns;
	age_ns = now_ns - c->missed_ns;
	if (c->notify)
		c->first_ns = GN_FOREVER; /* or rpc_client_looked() finds it */
	else if (age_ns > PATIENCE_NS)
		c->first_ns = now_ns + (age_ns / 8 < SELDOM_NS ? age_ns / 8 : SELDOM_NS);
}

/* The result was not there, or not all of it. */
static void miss(struct gn_rpc_client *c, uint32_t number, enum rpc_found found)
{
	struct rpc_got *got = &c->got[number & c->mask];

	got->read = RPC_UNREAD;
	if (number == c->expected && !got->fails && c->slow_reads)
		rpc_learn_first(c, false);
	/* Looking takes time also where reading takes none: so the result comes nearer. */
	exec_charge(GN_WORK_NS, LOOK_NS);
	got->fails++;
	c->count.failed_fetches++;
	c->count.torn += found == RPC_TORN;
	if (number != c->expected)
		return;
	c->missed = true;
	if (found == RPC_NOTHING) {
		uint32_t word;

		memcpy(&word, c->fetched + result_at(c, number) + offsetof(struct rpc_head, word),
		       sizeof(word));
		rpc_note_taken(c, word);
		/* Pairs with rpc_conn_tell_taken(): a slot is written after it was read. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (unlikely(word & RPC_PARKED_MAX))
			rpc_see_parked(c, word & RPC_PARKED_MAX);
	}
	put_off(c);
}

/*
 * Like rpc_look(), for what a READ has brought to memory that nobody else writes: what was checked
 * stays as it is.
 */
static enum rpc_found look_at_copy(const struct gn_rpc_client *c, const uint8_t *message,
				   uint64_t have, uint64_t seq, struct rpc_head *head)
{
	uint64_t tail;

	memcpy(head, message, sizeof(*head));
	if (mutant("rpc-epoch-unchecked", 8) && (uint32_t)head->seq == (uint32_t)seq)
		seq = head->seq;
	if (head->seq != seq)
		return RPC_NOTHING;
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

/* A READ has brought so many bytes of the next result's slot. */
static no_inline void look(struct gn_rpc_client *c, struct rpc_got *got, const uint8_t *message,
			   uint64_t have)
{
	const uint32_t number = c->expected;
	struct rpc_head head;
	const enum rpc_found found =
		look_at_copy(c, message, have, rpc_seq(c->epoch, number), &head);

	if (unlikely(found != RPC_FOUND)) {
		miss(c, number, found);
		return;
	}
	if (unlikely(c->slow_reads) && !got->fails)
		rpc_learn_first(c, true);
	if (unlikely(have < rpc_message_bytes(head.len))) {
		got->read = RPC_UNREAD;
		read_rest(c, number, (uint32_t)have, (uint32_t)rpc_message_bytes(head.len));
	} else {
		rpc_take_message(c, got, message, &head);
	}
}

/* Results are taken in order: one that is here before its turn is looked at again then. */
static no_inline void read_done(struct gn_rpc_client *c, uint32_t number)
{
	struct rpc_got *got = &c->got[number & c->mask];

	c->reads--;
	if (got->read == RPC_UNREAD || (int32_t)(number - c->expected) < 0)
		return; /* it came another way meanwhile */
	if (number == c->expected) {
		look(c, got, c->fetched + result_at(c, number), got->bytes);
		return;
	}
	got->read = RPC_UNREAD;
}

void rpc_client_completed(struct link_conn *conn, const struct gn_wc *wc)
{
	struct gn_rpc_client *c = container_of(conn, struct rpc_link, conn)->client;

	if (unlikely(c->dead))
		return;
	c->posted--;
	switch ((enum rpc_id)(wc->id >> 32)) {
	case RPC_ID_RESULT:
		read_done(c, (uint32_t)wc->id);
		break;
	case RPC_ID_REQUEST:
		c->unconfirmed--;
		break;
	case RPC_ID_FAR:
		rpc_far_done(c, (uint32_t)wc->id);
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

static no_inline void take_completions(struct gn_rpc_client *c)
{
	link_loop_poll(&c->loop);
	if (unlikely(c->loop.failed))
		link_conns_report_failed(&c->loop);
}

/* How many results may be there: of messages that the server has not taken, as far as is known. */
static uint32_t results_due(const struct gn_rpc_client *c, uint32_t n)
{
	const uint32_t most = c->number - 1 - c->taken;

	return n <= most ? n : most ? most : 1;
}

/* Where a read is a copy, its result is there at once; elsewhere it is worth no look. */
static void look_whether_slow(struct gn_rpc_client *c)
{
	const uint32_t reads = c->reads;
	const uint64_t ended = c->ended;

	take_completions(c);
	c->slow_reads = c->reads == reads && c->ended == ended;
}

/* A read that might have been done when it was posted was not. */
static no_inline void fetch_posted(struct gn_rpc_client *c, uint32_t bytes, int rc)
{
	if (!rc) {
		note_read(c, c->expected, bytes, RPC_READING);
		look_whether_slow(c);
	} else if (rc != -EAGAIN) {
		rpc_client_die(c);
	}
}

/* 1: bytes of the next result were read; 0: they will be; -1: they will not. */
static force_inline int read_now(struct gn_rpc_client *c, uint32_t bytes, const uint8_t **message)
{
	const uint32_t number = c->expected;
	const uint64_t offset = result_at(c, number);
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
 * One result, and reads that are done when they are posted: again and again for a while, without
 * all that may be under way besides. False: it is not there; true may mean that it never will be.
 */
static bool fetch_at_once(struct gn_rpc_client *c, struct rpc_got *got, uint32_t bytes)
{
	const uint8_t *message;

	if (unlikely(read_now(c, bytes, &message) != 1))
		return true;
	if (unlikely(load_word(message) != rpc_seq(c->epoch, c->expected)))
		return false;
	look(c, got, message, bytes);
	return true;
}

/*
 * After every look in vain some more time goes by until the next, about an eighth of what was
 * waited for: who looks all the time takes the line away from the server that is to write it.
 */
static inline void rest(const struct rpc_got *got)
{
	for (uint32_t n = got->fails < RESTS * 8 ? got->fails / 8 : RESTS; n; n--)
		cpu_relax();
}

static no_inline void fetch_again(struct gn_rpc_client *c, struct rpc_got *got)
{
	for (unsigned i = 1; i < ALONE; i++) {
		miss(c, c->expected, RPC_NOTHING);
		rest(got);
		if (c->first_ns || c->dead || fetch_at_once(c, got, peek_bytes(c)))
			return;
	}
	miss(c, c->expected, RPC_NOTHING);
}

/* The next result is to be read, where that takes its time or something else is under way. */
static no_inline void fetch_ahead(struct gn_rpc_client *c, const struct rpc_got *got)
{
	/* While the next is not there, those behind it are not either. */
	const uint32_t n = got->fails || !c->slow_reads ? 1 : results_due(c, c->n_fetch);

	if (unlikely(c->unconfirmed && c->flags & GN_RPC_SIGNALED && !got->fails))
		return;
	if (c->first_ns) {
		if (gn_now_ns() < c->first_ns)
			return;
		c->first_ns = 0;
	}
	if (n == 1)
		rpc_read_result(c);
	else
		read_next(c, n <= c->mask ? n : c->mask + 1);
	if (c->reads && (!c->slow_reads || !(c->count.fetches % SLOW_LOOK)) && !c->dead)
		look_whether_slow(c);
}

/* ---- reply ---- */

static no_inline void find_replies(struct gn_rpc_client *c)
{
	enum rpc_found found;
	uint32_t n = 0;

	do {
		const uint8_t *message = c->replies + result_at(c, c->expected);
		struct rpc_head head;

		found = rpc_look(message, c->result_stride, rpc_seq(c->epoch, c->expected),
				 c->nonce, c->max_results, c->check_reply, &head);
		if (found == RPC_FOUND)
			rpc_take_message(c, &c->got[c->expected & c->mask], message, &head);
	} while (found == RPC_FOUND && !c->dead && n++ < c->mask);
	c->count.torn += found == RPC_TORN;
}

/* ---- all of it ---- */

/* The first deadline may have come: one timer is set to a lower bound of all. */
void rpc_client_late(struct link_timer *timer, uint64_t now_ns)
{
	struct gn_rpc_client *c = container_of(timer, struct gn_rpc_client, late);
	uint64_t next_ns = GN_FOREVER;

	c->left_to_ns = 0; /* the next call with the same deadline sets the timer again */
	for (uint32_t i = 0; i < c->limits.window; i++) {
		const struct gn_rpc_op *op = c->calls[i].op;

		if (!op || !op->deadline_ns)
			continue;
		if (op->deadline_ns <= now_ns) {
			rpc_give_up(c, i);
			rpc_end(c, &c->calls[i], GN_RPC_TIMEOUT, 0);
		} else if (op->deadline_ns < next_ns) {
			next_ns = op->deadline_ns;
		}
	}
	if (next_ns < timer->due_ns)
		link_timer_set(&c->loop.timers, timer, next_ns);
}

/*
 * Every 100 ms while calls are under way: if no result has come since, a READ finds out whether the
 * server lives, and polls this client's slots.
 */
void rpc_client_looked(struct link_conn *conn)
{
	struct gn_rpc_client *c = container_of(conn, struct rpc_link, conn)->client;

	if (!rpc_calls_sent(c))
		link_conn_set_probe_interval(conn, GN_FOREVER);
	else if (c->seen == c->count.results)
		rpc_ask(c, c->loop.now_ns);
	c->seen = c->count.results;
}

/* What a poll has to do now and then only; the clock too, should it be asked for. */
static no_inline void poll_seldom(struct gn_rpc_client *c)
{
	uint64_t now_ns;

	if (c->dead)
		return;
	/* What is not signaled completes only if it fails. */
	if (unlikely(link_loop_will_maintain(&c->loop)))
		link_loop_maintain(&c->loop);
	else
		link_loop_run_timers(&c->loop);
	if (unlikely(c->dead))
		return;
	now_ns = c->loop.now_ns;
	if (c->retired)
		rpc_area_retry(&c->retired);
	if (c->entries && now_ns - c->begun_ns > c->learn.batch.wait_us * 1000ull)
		rpc_flush(c);
	if (unlikely(rpc_calls_sent(c)))
		link_conn_set_probe_interval(&c->link->conn, LINK_PROBE_NS);
	if ((c->n_reply || rpc_wants_slot(c)) && !c->dead && now_ns > rpc_ask_ns(c))
		rpc_ask(c, now_ns);
}

/*
 * A poll that found nothing: the program may sleep before the next, and the count of polls says
 * nothing of the time.
 */
static no_inline void poll_idle(struct gn_rpc_client *c)
{
	poll_seldom(c);
	if (c->dead || likely(c->loop.now_ns - c->loop.maintained_ns < LINK_MAINTAIN_NS))
		return;
	link_loop_force_maintain(&c->loop);
	link_loop_maintain(&c->loop);
}

/* Everything that may have to be done. */
static no_inline void poll_all(struct gn_rpc_client *c)
{
	struct rpc_got *got;

	if (c->posted)
		take_completions(c);
	if (c->due)
		rpc_flush(c);
	if (c->far_reads)
		rpc_far_poll(c);
	if (c->look.late)
		rpc_read_late(c);
	if (c->n_reply && !c->dead)
		find_replies(c);
	if (!c->n_fetch || c->dead)
		return;
	got = &c->got[c->expected & c->mask];
	if (c->first_ns || c->slow_reads || c->posted || got->read)
		fetch_ahead(c, got);
	else if (!fetch_at_once(c, got, got->fails ? peek_bytes(c) : c->learn.first_bytes))
		fetch_again(c, got);
}

/*
 * A message with the result of one call, as most are: of a quick method, not timed, with nothing
 * else about it. Everything is done before its caller hears of it. False: nothing was done.
 */
static force_inline bool take_one(struct gn_rpc_client *c, const uint8_t *message, uint32_t len,
				  uint32_t about)
{
	const uint64_t entry = load_word(message + sizeof(struct rpc_head));
	const uint8_t *bytes = message + sizeof(struct rpc_head) + sizeof(entry);
	const uint32_t high = (uint32_t)(entry >> 32), n = (uint32_t)entry;
	const uint32_t number = c->expected;
	struct rpc_call *call = &c->calls[high >> 16];
	struct gn_rpc_op *op;

	/* about: the server's time, and flags; high: its status, and whether it is elsewhere */
	if (unlikely((high & (RPC_FAR << 16 | UINT16_MAX)) | (about & UINT16_MAX) |
		     c->open_or_lent) ||
	    unlikely(high >> 16 >= c->limits.window || len - sizeof(entry) - n >= 8 ||
		     c->spent + 1 != number))
		return false;
	op = call->op;
	if (unlikely(!op || !call->kind->quick || call->ns || n > op->result_room ||
		     (n > RPC_SHORT && !op->flags)))
		return false;
	if (op->flags)
		op->data = n ? bytes : NULL;
	else if (n)
		rpc_store(op->result, bytes, n);
	counter_add(&call->kind->latency->calls, 1);
	c->count.results++;
	c->waking = c->woken = 0;
	c->spent = number;
	c->expected = number + 1;
	rpc_call_free(c, call);
	if (likely(!c->any_sent))
		c->taken = c->number - 1;
	else
		rpc_note_taken(
			c, (uint32_t)(load_word(message + offsetof(struct rpc_head, crc)) >> 32));
	if (unlikely(about & RPC_ACK << 16 || number - c->told > c->tell_after))
		c->tell |= about & RPC_ACK << 16 || c->any_sent;
	rpc_end_op(c, call, op, GN_RPC_OK, n);
	return true;
}

/*
 * fetch_at_once() and fetch_again(), where nothing but the next result is to be looked for: it is
 * looked for the first time, and bytes need no checksum. What is not right is left to look().
 */
static force_inline void fetch_first(struct gn_rpc_client *c)
{
	const uint8_t *message;
	uint64_t word, seq;
	uint32_t len;

	if (unlikely(read_now(c, c->learn.first_bytes, &message) != 1))
		return;
	seq = rpc_seq(c->epoch, c->expected);
	if (unlikely(load_word(message) != seq)) {
		fetch_again(c, &c->got[c->expected & c->mask]);
		return;
	}
	word = load_word(message + offsetof(struct rpc_head, len));
	len = (uint32_t)word;
	/* Whole words, at least one: what is not is beyond UINT32_MAX / 8. */
	if (likely(rotate_right(len - (uint32_t)sizeof(struct rpc_entry), 3) <=
		   c->learn.first_words) &&
	    likely(load_word(message + rpc_tail_at(len)) == rpc_tail(seq, c->nonce))) {
		if (!take_one(c, message, len, (uint32_t)(word >> 32)))
			rpc_take_fetched(c, message);
		return;
	}
	look(c, &c->got[c->expected & c->mask], message, c->learn.first_bytes);
}

int rpc_client_poll(struct gn_rpc_client *c, bool clock)
{
	const uint64_t before = c->ended;

	if (unlikely(c->dead))
		return 0;
	c->busy = true;
	c->loop.iterations++;
	/* Mostly there is nothing but the next result to be fetched. */
	if (unlikely((uintptr_t)c->far_reads | (uintptr_t)c->look.late | c->first_ns | c->posted |
		     c->n_reply | c->odd))
		poll_all(c);
	else if (c->n_fetch)
		fetch_first(c);
	/* Calls may be late also while others end all the time. */
	if (unlikely(clock && c->ended == before))
		poll_idle(c);
	else if (unlikely(!(c->loop.iterations % RPC_CLOCK_EVERY) ||
			  (c->ended - before >= RPC_CLOCK_EVERY &&
			   rpc_coarse_ns(c) >= c->late.due_ns)))
		poll_seldom(c);
	/* Last: after the poll that ends a call there may be no other for long. */
	if (unlikely(c->tell) && !c->dead)
		rpc_tell_spent(c);
	c->busy = false;
	return (int)(c->ended - before);
}
