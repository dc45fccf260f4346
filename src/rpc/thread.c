/* SPDX-License-Identifier: MIT */
/* A server thread: what it does all day, and what it does when there is nothing to do. */
#include <errno.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/deadline.h"
#include "rpc/server.h"

#define COMPLETIONS  16
#define ROUNDS	     64u /* of completions at once: words without end are no reason to stay */
#define CHAN_EVERY   64u /* turns after which connections and clock are looked at */
#define ESTABLISH_NS 1000000000u /* from the acceptance to the news that it has arrived */
#define CHAN_NS	     50000u	 /* … or this much, of which handlers may need a lot */
#define EAGER_US     20u	 /* of waiting for requests and nothing else */
#define MANY_NAP_US  50u	 /* with more clients than a wait has room for */
#define DYING_NAP_US 1000u	 /* between two looks at a connection that is torn down */
#define PARKED_EVERY 10u /* rounds of probes, until those that are put aside are asked, too */

/* ---- what other threads ask ---- */

int rpc_thread_try_ask(struct rpc_thread *t, struct rpc_work *work)
{
	int rc;

	__atomic_fetch_add(&t->asking, 1, __ATOMIC_ACQUIRE);
	rc = gn_queue_push(t->queue, work);
	__atomic_fetch_sub(&t->asking, 1, __ATOMIC_RELEASE);
	return rc;
}

void rpc_thread_ask(struct rpc_thread *t, struct rpc_work *work)
{
	__atomic_fetch_add(&t->asking, 1, __ATOMIC_ACQUIRE);
	while (gn_queue_push(t->queue, work) == -EAGAIN)
		gn_yield();
	__atomic_fetch_sub(&t->asking, 1, __ATOMIC_RELEASE);
}

/* Who comes when it is over is refused. */
static void take_in(struct rpc_thread *t, struct rpc_newcomer *newcomer)
{
	if (!t->stop && !t->draining) {
		rpc_pass_newcomer(t, newcomer);
		return;
	}
	gn_reject(newcomer->req, NULL, 0);
	gn_free(newcomer);
}

int rpc_thread_work(struct rpc_thread *t)
{
	struct rpc_work *work;
	int n = 0;

	for (; (work = gn_queue_pop(t->queue)); n++) {
		switch (work->ask) {
		case RPC_ASK_STOP:
			t->stop = true;
			break;
		case RPC_ASK_DRAIN:
			t->draining = true;
			t->turns = CHAN_EVERY; /* who waits is told in this turn */
			break;
		case RPC_ASK_ACCEPT:
			take_in(t, container_of(work, struct rpc_newcomer, work));
			break;
		case RPC_ASK_ANSWER:
			rpc_answer(container_of(work, struct gn_rpc_request, work));
			break;
		}
	}
	return n;
}

/* ---- what the fabric says ---- */

static int take_events(struct rpc_thread *t)
{
	struct gn_event event;
	int n = 0;

	for (; !gn_chan_next(t->chan, &event); n++) {
		struct rpc_conn *c = event.qp ? gn_qp_user(event.qp) : NULL;

		if (event.type == GN_EVENT_CONNECT_REQUEST)
			rpc_take_newcomer(t, &event);
		else if (event.type == GN_EVENT_ESTABLISHED && c)
			rpc_conn_established(c);
		else if (c)
			rpc_conn_end(c);
		/* Who goes leaves completions behind; when many do, too many for one queue. */
		if (n % COMPLETIONS == COMPLETIONS - 1)
			rpc_thread_completions(t);
	}
	return n;
}

/* A word from a client that was put aside; there must be a receive for the next. */
static void take_word(struct rpc_conn *c)
{
	rpc_conn_established(c); /* or how could it send? The news of that may be lost. */
	rpc_conn_unpark(c);
	if (!c->dead && rpc_conn_recv(c))
		rpc_conn_fail(c);
}

/* Handlers are not run from here: one of them may be what waits for a completion. */
static void take_piece(struct rpc_thread *t, struct gn_rpc_request *r)
{
	r->conn->reading--;
	if (r->conn->dead || r->fresh++)
		return;
	r->next = t->come;
	t->come = r;
}

/*
 * A reply has arrived: its slot is the server's again. The slot of an inline one has been all the
 * time, and another reply may be being written from it by now.
 */
static void take_written(struct rpc_conn *c, uint64_t id)
{
	bool *writing = &c->writing[rpc_reply_slot(id)];

	c->unsent -= !!(id & RPC_REPLY_SYNC);
	if (id & RPC_REPLY_INLINE)
		return;
	c->n_writing -= *writing;
	*writing = false;
	c->thread->written |= c->held != NULL;
}

void rpc_thread_completions(struct rpc_thread *t)
{
	struct gn_wc wc[COMPLETIONS];
	unsigned rounds = 0;
	int n;

	do {
		n = gn_cq_poll(t->cq, wc, COMPLETIONS);
		for (int i = 0; i < n; i++) {
			struct rpc_conn *c = gn_qp_user(wc[i].qp);

			if (wc[i].status != GN_WC_OK)
				rpc_conn_fail(c);
			else if (wc[i].id == RPC_WAKE_ID)
				take_word(c);
			else if ((wc[i].id & RPC_ID_MASK) == RPC_REPLY_ID)
				take_written(c, wc[i].id);
			else if (wc[i].id != RPC_OTHER_ID)
				take_piece(t, (struct gn_rpc_request *)(uintptr_t)wc[i].id);
		}
	} while (n == COMPLETIONS && ++rounds < ROUNDS);
}

/*
 * A queue that is full has been done with, perhaps, and nobody has looked: behind what others left
 * in the cq when they went, which is less than its depth.
 */
int rpc_thread_post(struct rpc_conn *c, const struct gn_wr *wr)
{
	uint32_t left = gn_cq_depth(c->thread->cq) / (COMPLETIONS * ROUNDS) + 1;
	int rc = gn_post_send(c->qp, wr, NULL);

	for (; unlikely(rc == -EAGAIN) && left; left--) {
		rpc_thread_completions(c->thread);
		rc = gn_post_send(c->qp, wr, NULL);
	}
	return rc;
}

static int serve_come(struct rpc_thread *t)
{
	struct gn_rpc_request *r = t->come;
	int served = 0;

	t->come = NULL;
	for (struct gn_rpc_request *next; r; r = next) {
		next = r->next;
		served += r->fresh > 0;
		rpc_request_come(r);
	}
	return served;
}

/* ---- clients ---- */

static void end_failed(struct rpc_conn *list)
{
	for (struct rpc_conn *c = list, *next; c; c = next) {
		next = c->next;
		if (c->failed)
			rpc_conn_end(c);
	}
}

/* Results that were held until a reply had left their slot. */
static int release_written(struct rpc_thread *t)
{
	struct rpc_conn *lists[] = {t->conns, t->parked};
	int released = 0;

	t->written = false;
	for (unsigned i = 0; i < 2; i++)
		for (struct rpc_conn *c = lists[i], *next; c; c = next) {
			next = c->next;
			if (!c->held)
				continue;
			rpc_conn_release_held(c);
			released++;
		}
	return released;
}

static int serve_all(struct rpc_thread *t)
{
	int served = 0;
	unsigned empty = 0;

	for (struct rpc_conn *c = t->conns, *next; c; c = next) {
		int n;

		next = c->next;
		n = rpc_conn_serve(c);
		served += n;
		empty += !n;
	}
	gn_charge(GN_WORK_SCAN, empty);
	return served;
}

/*
 * Those from whom nothing has come for a while are put aside. After a longer while also those that
 * owe something: the rest of a message, the word that a result is not needed any more. They may owe
 * it for ever.
 */
static bool may_park(const struct rpc_conn *c, uint64_t now_ns)
{
	if (!c->established || c->failed || c->open || c->thread->draining || c->returning)
		return false;
	if (c->n_writing) /* from the slot whose word says: parked, perhaps */
		return false;
	return (!c->held && !c->lent) || now_ns >= c->heard_ns + RPC_PROBE_NS;
}

static void park_quiet(struct rpc_thread *t, uint64_t now_ns)
{
	const uint64_t park_ns = t->server->opts.park_us * 1000ull;

	for (struct rpc_conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (c->heard) {
			c->heard = c->silent = false;
			c->heard_ns = now_ns;
		} else if (!c->established && now_ns >= c->heard_ns + ESTABLISH_NS) {
			rpc_conn_fail(c); /* no news of it: it must not wait for us for ever */
		} else if (now_ns >= c->heard_ns + park_ns && may_park(c, now_ns)) {
			rpc_conn_park(c, now_ns >= c->heard_ns + RPC_PROBE_NS);
		}
		if (unlikely(c->returning))
			rpc_lent_return(c, false);
	}
}

static void probe_all(struct rpc_thread *t, uint64_t now_ns)
{
	if (now_ns < t->probe_ns)
		return;
	t->probe_ns = now_ns + RPC_PROBE_NS;
	for (struct rpc_conn *c = t->conns; c; c = c->next) {
		rpc_conn_probe(c);
		rpc_reclaim(c, 1);
	}
	/* With nobody else there the thread sleeps for that many rounds. */
	if (++t->rounds % PARKED_EVERY && t->conns)
		return;
	for (struct rpc_conn *c = t->parked, *next; c; c = next) {
		next = c->next;
		rpc_conn_probe(c);
		if (unlikely(c->held || c->lent))
			rpc_conn_look_acked(c);
		rpc_reclaim(c, PARKED_EVERY);
	}
}

/* How many clients have not got all their answers, for who drains the server. */
static void count_unquiet(struct rpc_thread *t, uint64_t now_ns)
{
	uint32_t n = 0;

	while (t->parked)
		rpc_conn_unpark(t->parked);
	for (const struct rpc_conn *c = t->conns; c; c = c->next)
		n += c->n_busy || c->heard ||
		     (c->placed != c->acked && now_ns - c->heard_ns < RPC_PROBE_NS);
	__atomic_store_n(&t->unquiet, n + 1, __ATOMIC_RELEASE);
}

/* ---- a turn ---- */

int rpc_thread_turn(struct rpc_thread *t)
{
	int busy = serve_all(t) + rpc_thread_work(t);

	if (unlikely(t->come))
		busy += serve_come(t);
	if (++t->turns >= CHAN_EVERY || t->begun_ns - t->looked_ns > CHAN_NS) {
		const uint64_t now_ns = gn_now_ns();

		t->turns = 0;
		t->looked_ns = t->begun_ns = now_ns;
		rpc_thread_completions(t);
		if (unlikely(t->written))
			busy += release_written(t);
		busy += take_events(t);
		rpc_conn_bury(t);
		park_quiet(t, now_ns);
		probe_all(t, now_ns);
		if (unlikely(t->draining))
			count_unquiet(t, now_ns);
	}
	if (unlikely(t->failed)) {
		t->failed = false;
		end_failed(t->conns);
		end_failed(t->parked);
	}
	return busy;
}

/* ---- nothing to do ---- */

#define WORDS (GN_WAIT_MAX - 3) /* beside queue, channel and cq */

/* What clients may write. False: not all of it can be waited for. */
static bool gather_words(const struct rpc_thread *t, struct gn_wait_item *items, unsigned *n,
			 bool *torn)
{
	const unsigned most = *n + WORDS;

	for (const struct rpc_conn *c = t->conns; c; c = c->next) {
		const uint64_t *word = rpc_conn_word(c);
		const uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);

		if (*n + 2 > most)
			return false;
		if (!c->established)
			continue;
		if (c->held || c->lent || t->draining)
			items[(*n)++] = gn_wait_word(rpc_conn_ack(c), c->ack_seen);
		if (seen == rpc_seq(c->epoch, c->number))
			*torn = true; /* or here since just now */
		else
			items[(*n)++] = gn_wait_word(word, seen);
	}
	return true;
}

/* When something is due that no event tells. */
static uint64_t next_due(const struct rpc_thread *t, uint64_t now_ns)
{
	const uint64_t park_ns = t->server->opts.park_us * 1000ull;

	/* An answer wakes us; a peer that has stopped copying does not. */
	if (t->dying)
		return now_ns + DYING_NAP_US * 1000;
	if (t->conns && park_ns < RPC_PROBE_NS)
		return now_ns + park_ns;
	if (t->conns)
		return deadline_due(t->probe_ns);
	return t->parked ? now_ns + RPC_PROBE_NS * PARKED_EVERY : GN_FOREVER;
}

/*
 * Until a client writes, an event, or another thread's word. To look at channel and cq costs a
 * system call, so they are left out at first: who calls now and then does not pay for them each
 * time.
 */
int rpc_thread_idle(struct rpc_thread *t, uint64_t deadline_ns)
{
	struct gn_wait_item items[GN_WAIT_MAX];
	uint64_t until_ns, now_ns;
	bool torn = false, all;
	unsigned n = 1;
	int rc = -ETIMEDOUT;

	items[0] = gn_wait_on(gn_queue_source(t->queue));
	all = gather_words(t, items, &n, &torn);
	/* Mostly it has just come, all of it. */
	if (torn && !t->torn) {
		t->torn = true;
		return 0;
	}
	t->torn = torn;
	if (n > 1) {
		until_ns = gn_deadline_us(torn ? RPC_TORN_NAP_US : EAGER_US);
		rc = gn_wait(items, n, until_ns < deadline_ns ? until_ns : deadline_ns,
			     "requests of clients");
	}
	if (rc != -ETIMEDOUT)
		return rc;
	t->turns = CHAN_EVERY;
	now_ns = gn_now_ns();
	if (torn)
		until_ns = now_ns + RPC_TORN_NAP_US * 1000;
	else if (!all)
		until_ns = now_ns + MANY_NAP_US * 1000;
	else
		until_ns = next_due(t, now_ns);
	items[n++] = gn_wait_on(gn_chan_source(t->chan));
	items[n++] = gn_wait_on(gn_cq_source(t->cq));
	return gn_wait(items, n, until_ns < deadline_ns ? until_ns : deadline_ns,
		       "requests of clients");
}

void rpc_thread_end(struct rpc_thread *t)
{
	while (t->conns)
		rpc_conn_end(t->conns);
	while (t->parked)
		rpc_conn_end(t->parked);
	for (rpc_conn_bury(t); t->dying || __atomic_load_n(&t->asking, __ATOMIC_ACQUIRE);
	     rpc_conn_bury(t)) {
		rpc_thread_work(t);
		gn_yield();
	}
}

void rpc_thread_main(void *arg)
{
	struct rpc_thread *t = arg;

	__atomic_store_n(&t->id, gn_thread_id(), __ATOMIC_RELEASE);
	while (!t->stop)
		if (!rpc_thread_turn(t) && !t->stop)
			rpc_thread_idle(t, GN_FOREVER);
	rpc_thread_end(t);
}
