/* SPDX-License-Identifier: MIT */
/*
 * Cases 29-32: compare-and-swap and fetch-and-add.
 */
#include <errno.h>
#include <string.h>

#include "conform.h"

/* Words of the peer's buffer. */
enum { COUNTER, LOCK, GUARDED, WORDS };

#define STRIDE	64u   /* bytes between them, here and there */
#define RESULTS 4096u /* where results land here */

static uint64_t word_at(const struct cf_rc *rc, size_t offset)
{
	uint64_t value;

	memcpy(&value, rc->buf + offset, sizeof(value));
	return value;
}

/* Do one atomic and wait for the old value. */
static bool atomic_once(struct cf *cf, struct cf_rc *rc, struct gn_wr *wr, uint64_t *old)
{
	struct gn_sge sge = cf_sge(rc, RESULTS, sizeof(*old));
	struct gn_wc wc;

	wr->sge = &sge;
	CHECK(cf_post(cf, rc->qp, wr));
	CHECK(cf_poll_one(cf, rc->send_cq, &wc));
	CHECK(wc.status == GN_WC_OK && wc.id == wr->id, "completion %llu is %s",
	      (unsigned long long)wc.id, gn_wc_status_str(wc.status));
	CHECK(wc.op == wr->op && wc.len_bytes == sizeof(*old));
	*old = word_at(rc, RESULTS);
	return true;
}

static bool cas(struct cf *cf, struct cf_rc *rc, uint64_t expected, uint64_t desired, uint64_t *old)
{
	struct gn_wr wr;

	gn_wr_cas(&wr, 1, NULL, &rc->peer, COUNTER, expected, desired, GN_SIGNALED);
	return atomic_once(cf, rc, &wr, old);
}

static bool faa(struct cf *cf, struct cf_rc *rc, uint64_t add, uint64_t *old)
{
	struct gn_wr wr;

	gn_wr_faa(&wr, 2, NULL, &rc->peer, COUNTER, add, GN_SIGNALED);
	return atomic_once(cf, rc, &wr, old);
}

/* ---- 29 ---- */

static bool values_a(struct cf *cf)
{
	uint64_t old, now = 0;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_sync(cf));
	cf_paint(rc.buf, rc.buf_bytes);
	for (uint64_t i = 0; cf_more(cf, i, 1000); i++) {
		uint64_t next = cf_rand(cf), add = cf_rand(cf) | 1ull << 63;

		CHECK(cas(cf, &rc, now, next, &old) && old == now, "a CAS that fits");
		CHECK(cas(cf, &rc, next + 1, 99, &old) && old == next, "a CAS that does not fit");
		CHECK(faa(cf, &rc, add, &old) && old == next, "after a CAS that did not fit");
		now = next + add; /* wraps every other time */
		CHECK(faa(cf, &rc, 0, &old) && old == now, "a sum that wraps");
	}
	CHECK(cas(cf, &rc, now, UINT64_MAX, &old) && old == now);
	CHECK(faa(cf, &rc, 2, &old) && old == UINT64_MAX);
	CHECK(faa(cf, &rc, UINT64_MAX, &old) && old == 1);
	CHECK(cf_check_paint(cf, rc.buf, 0, RESULTS));
	CHECK(cf_check_paint(cf, rc.buf, RESULTS + 8, rc.buf_bytes));
	CHECK(cf_publish(cf, &rc));
	return true;
}

static bool values_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	cf_paint(rc.buf, rc.buf_bytes);
	memset(rc.buf, 0, sizeof(uint64_t));
	CHECK(cf_sync(cf));
	CHECK(cf_observe(cf, &rc));
	CHECK(word_at(&rc, 0) == 0);
	CHECK(cf_check_paint(cf, rc.buf, sizeof(uint64_t), rc.buf_bytes), "neighbours changed");
	return true;
}

/* ---- 30 ---- */

enum refusal { MISALIGNED, BAD_LENGTH, NO_RIGHT, BAD_LKEY, BAD_RKEY, REFUSALS };

static const char *const refusal_name[] = {"misaligned", "length not 8", "no right", "bad lkey",
					   "bad rkey"};

static bool refused_at_post(struct cf *cf, struct cf_rc *rc, enum refusal how)
{
	static const uint32_t lengths[] = {0, 1, 4, 7, 9, 16};
	static const uint64_t places[] = {1, 2, 4, 7, 9, 12};
	const struct gn_wr *bad = NULL;

	for (unsigned i = 0; i < 6; i++) {
		uint32_t len = how == BAD_LENGTH ? lengths[i] : 8;
		uint64_t offset = how == MISALIGNED ? places[i] : 8;
		struct gn_sge sge = cf_sge(rc, RESULTS, len);
		struct gn_wr wr[2];

		gn_wr_cas(&wr[0], 1, &sge, &rc->peer, offset, 0, 1, GN_SIGNALED);
		gn_wr_faa(&wr[1], 1, &sge, &rc->peer, offset, 1, GN_SIGNALED);
		CHECK_INT(gn_post_send(rc->qp, &wr[0], &bad), -EINVAL);
		CHECK(bad == &wr[0]);
		CHECK_INT(gn_post_send(rc->qp, &wr[1], &bad), -EINVAL);
	}
	CHECK(cf_expect_none(cf, rc->send_cq));
	return true;
}

static bool refused_later(struct cf *cf, struct cf_rc *rc, enum refusal how)
{
	struct gn_sge sge = cf_sge(rc, RESULTS, 8);
	struct gn_wr wr;

	gn_wr_faa(&wr, 1, &sge, &rc->peer, 0, 1, GN_SIGNALED);
	if (how == BAD_LKEY)
		sge.lkey ^= 0x5a; /* like one that is in force, but for its tag */
	if (how == BAD_RKEY)
		wr.to.remote.key ^= 0x5a;
	CHECK(cf_post(cf, rc->qp, &wr));
	CHECK(cf_send(cf, rc, 2, 0, 0, 0));
	CHECK(cf_expect_wc(cf, rc->send_cq, 1,
			   how == BAD_LKEY ? GN_WC_LOCAL_ACCESS : GN_WC_REMOTE_ACCESS));
	CHECK(cf_expect_flushed(cf, rc->send_cq, 2, 1));
	CHECK(cf_expect_state(cf, rc->qp, GN_QP_ERROR));
	return true;
}

static bool refuse_a(struct cf *cf)
{
	struct cf_rc rc;

	for (int how = 0; how < REFUSALS; how++) {
		CHECK(cf_rc_pair(cf, NULL, &rc));
		cf_paint(rc.buf, rc.buf_bytes);
		CHECK(cf_sync(cf));
		if (how < NO_RIGHT)
			CHECK(refused_at_post(cf, &rc, (enum refusal)how), "%s", refusal_name[how]);
		else
			CHECK(refused_later(cf, &rc, (enum refusal)how), "%s", refusal_name[how]);
		CHECK(cf_sync(cf));
		CHECK(cf_check_paint(cf, rc.buf, 0, rc.buf_bytes),
		      "a refused atomic left a result");
	}
	return true;
}

/* With a bad lkey the target may have executed the operation before the result was refused. */
static bool word_as_it_may_be(const struct cf_rc *rc, uint64_t before, enum refusal how)
{
	return word_at(rc, 0) == before || (how == BAD_LKEY && word_at(rc, 0) == before + 1);
}

static bool refuse_b(struct cf *cf)
{
	uint64_t before;
	struct cf_rc rc;

	for (int how = 0; how < REFUSALS; how++) {
		struct cf_rc_opts opts = {.access = GN_LOCAL_WRITE | cf_all_rights(cf)};

		if (how == NO_RIGHT)
			opts.access &= ~(unsigned)GN_REMOTE_ATOMIC;
		CHECK(cf_rc_pair(cf, &opts, &rc));
		cf_paint(rc.buf, rc.buf_bytes);
		before = word_at(&rc, 0);
		CHECK(cf_sync(cf));
		CHECK(cf_sync(cf));
		CHECK(word_as_it_may_be(&rc, before, (enum refusal)how), "%s", refusal_name[how]);
		CHECK(cf_check_paint(cf, rc.buf, 8, rc.buf_bytes), "%s", refusal_name[how]);
	}
	return true;
}

/* ---- 31 and 32: many at once ---- */

#define CLIENTS	   4u
#define FAA_ROUNDS 100000u
#define CS_ROUNDS  5000u

/* One client of the peer's words: a connection and a thread that owns it. */
struct client {
	struct cf *cf; /* to read from only */
	struct cf_rc rc;
	struct gn_thread *thread;
	uint64_t added, entered;
	const char *error;
};

/* Post and wait for success, on a client's thread: findings go to client->error. */
static bool client_do(struct client *c, struct gn_wr *wr)
{
	struct gn_sge sge = cf_sge(&c->rc, RESULTS, sizeof(uint64_t));
	struct gn_wc wc;
	int n;

	wr->sge = &sge;
	if (gn_post_send(c->rc.qp, wr, NULL)) {
		c->error = "cannot post";
		return false;
	}
	n = gn_cq_wait(c->rc.send_cq, &wc, 1, cf_deadline(c->cf), "an atomic of a client");
	if (n != 1)
		c->error = gn_strerror(n);
	else if (wc.status != GN_WC_OK)
		c->error = gn_wc_status_str(wc.status);
	return !c->error;
}

static bool client_add(struct client *c)
{
	struct gn_wr wr;

	gn_wr_faa(&wr, 1, NULL, &c->rc.peer, COUNTER * STRIDE, 1, GN_SIGNALED);
	return client_do(c, &wr);
}

static bool client_lock(struct client *c)
{
	uint64_t deadline_ns = cf_deadline(c->cf);
	struct gn_wr wr;

	gn_wr_cas(&wr, 1, NULL, &c->rc.peer, LOCK * STRIDE, 0, 1, GN_SIGNALED);
	for (;;) {
		if (!client_do(c, &wr))
			return false;
		if (word_at(&c->rc, RESULTS) == 0)
			return true;
		if (gn_now_ns() > deadline_ns) {
			c->error = "never got the lock";
			return false;
		}
		gn_yield();
	}
}

static bool client_unlock(struct client *c)
{
	struct gn_wr wr;

	gn_wr_cas(&wr, 1, NULL, &c->rc.peer, LOCK * STRIDE, 1, 0, GN_SIGNALED);
	if (!client_do(c, &wr))
		return false;
	if (word_at(&c->rc, RESULTS) != 1)
		c->error = "someone else had the lock too";
	return !c->error;
}

/* Adds one by READ and WRITE: correct only under mutual exclusion. */
static bool client_section(struct client *c)
{
	struct gn_wr wr;
	uint64_t value;

	if (!client_lock(c))
		return false;
	gn_wr_rdma(&wr, GN_OP_READ, 1, NULL, &c->rc.peer, GUARDED * STRIDE, GN_SIGNALED);
	if (!client_do(c, &wr))
		return false;
	value = word_at(&c->rc, RESULTS) + 1;
	memcpy(c->rc.buf + RESULTS, &value, sizeof(value));
	gn_wr_rdma(&wr, GN_OP_WRITE, 1, NULL, &c->rc.peer, GUARDED * STRIDE, GN_SIGNALED);
	return client_do(c, &wr) && client_unlock(c);
}

static void client_main(void *arg)
{
	struct client *c = arg;

	while (!c->error && cf_more(c->cf, c->added, FAA_ROUNDS) && client_add(c))
		c->added++;
	/* On a slow device the time is up by now; once round must be. */
	while (!c->error && cf_more(c->cf, c->entered, CS_ROUNDS) && client_section(c))
		c->entered++;
}

/* A's final message to B: how often it executed each operation. */
struct totals {
	uint64_t added, entered;
};

static bool run_clients(struct cf *cf, struct client *clients, struct totals *totals)
{
	unsigned started = 0;

	*totals = (struct totals){.added = 0};
	while (started < CLIENTS &&
	       !gn_thread_start("client", client_main, &clients[started], &clients[started].thread))
		started++;
	for (unsigned i = 0; i < started; i++)
		gn_thread_join(clients[i].thread);
	CHECK(started == CLIENTS, "cannot start a thread");
	for (unsigned i = 0; i < CLIENTS; i++) {
		CHECK(!clients[i].error, "client %u: %s", i, clients[i].error);
		totals->added += clients[i].added;
		totals->entered += clients[i].entered;
	}
	return true;
}

static bool clients_a(struct cf *cf)
{
	struct client clients[CLIENTS];
	struct totals totals;

	memset(clients, 0, sizeof(clients));
	for (unsigned i = 0; i < CLIENTS; i++) {
		clients[i].cf = cf;
		CHECK(cf_rc_pair(cf, NULL, &clients[i].rc));
		clients[i].rc.peer = clients[0].rc.peer; /* all at the same words */
	}
	CHECK(cf_sync(cf));
	CHECK(run_clients(cf, clients, &totals));
	CHECK(cf_tell(cf, &totals, sizeof(totals)));
	for (unsigned i = 0; i < CLIENTS; i++)
		CHECK(cf_publish(cf, &clients[i].rc));
	return true;
}

static bool serve_clients(struct cf *cf, struct cf_rc *rc)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		CHECK(cf_rc_pair(cf, NULL, &rc[i]));
	CHECK(cf_sync(cf));
	return true;
}

static bool totals_match(struct cf *cf, struct cf_rc *rc, uint64_t own)
{
	struct totals totals;

	CHECK(cf_hear(cf, &totals, sizeof(totals)));
	for (unsigned i = 0; i < CLIENTS; i++)
		CHECK(cf_observe(cf, &rc[i]));
	CHECK(totals.added && totals.entered);
	CHECK_INT(word_at(rc, COUNTER * STRIDE), (totals.added + own));
	CHECK_INT(word_at(rc, LOCK * STRIDE), 0);
	CHECK_INT(word_at(rc, GUARDED * STRIDE), (totals.entered + own));
	return true;
}

static bool clients_b(struct cf *cf)
{
	struct cf_rc rc[CLIENTS];

	CHECK(serve_clients(cf, rc));
	CHECK(totals_match(cf, rc, 0));
	return true;
}

/* B's CPU joins in: it adds to the counter, and takes the lock. */
static bool mixed_b(struct cf *cf)
{
	struct cf_rc rc[CLIENTS];
	uint64_t *counter, *lock, *guarded, deadline_ns, i;

	CHECK(serve_clients(cf, rc));
	counter = (uint64_t *)(void *)(rc[0].buf + COUNTER * STRIDE);
	lock = (uint64_t *)(void *)(rc[0].buf + LOCK * STRIDE);
	guarded = (uint64_t *)(void *)(rc[0].buf + GUARDED * STRIDE);
	deadline_ns = cf_deadline(cf);
	for (i = 0; cf_more(cf, i, CS_ROUNDS); i++) {
		uint64_t expected = 0;

		__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(lock, &expected, 1, false, __ATOMIC_ACQUIRE,
						    __ATOMIC_RELAXED)) {
			CHECK(gn_now_ns() < deadline_ns, "never got the lock");
			expected = 0;
			gn_yield();
		}
		__atomic_store_n(guarded, __atomic_load_n(guarded, __ATOMIC_RELAXED) + 1,
				 __ATOMIC_RELAXED);
		__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
		gn_yield();
	}
	CHECK(totals_match(cf, rc, i));
	return true;
}

const struct cf_case cf_cases_atomics[] = {
	{29, "CAS and FAA return the old value, and wrap", values_a, values_b, GN_CAP_ATOMICS, 0},
	{30, "atomics that must be refused", refuse_a, refuse_b, GN_CAP_ATOMICS, 0},
	{31, "many clients: exact sums, one in the lock", clients_a, clients_b, GN_CAP_ATOMICS, 0},
	{32, "many clients and the target's CPU", clients_a, mixed_b,
	 GN_CAP_ATOMICS | GN_CAP_ATOMIC_CPU, 0},
	{0},
};
