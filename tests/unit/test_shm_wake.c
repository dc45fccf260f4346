/* SPDX-License-Identifier: MIT */
/*
 * Sleeping on shared memory: a thread that armed a cq and found it empty is woken by the next
 * message, and by one already in flight. Each case is a past bug: it slept too long, or not at all.
 */
#include "shm_side.h"

#include "fabric/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define ADDR	"shm:wake-test-" /* and the case, or one that fails would take others along */
#define WAKE_US 10000000u	 /* only a lost wake-up takes this long */
#define MSG	64u

/* Arm, and find nothing: what a caller does before it sleeps. */
static void arm_empty(struct gn_cq *cq)
{
	struct gn_wc wc;

	assert_int_equal(gn_cq_arm(cq, false), 0);
	assert_int_equal(gn_cq_poll(cq, &wc, 1), 0);
}

/* Sleep on the channel of a cq that was armed, until it has a completion: this one. */
static void wake_for(struct side *s, uint64_t id, enum gn_wc_status status)
{
	const uint64_t deadline_ns = gn_deadline_us(WAKE_US);
	struct gn_event ev;
	struct gn_wc wc;

	for (;;) {
		assert_int_equal(gn_chan_wait(s->cq_chan, deadline_ns, &ev), 0);
		if (gn_cq_poll(s->cq, &wc, 1) == 1)
			break;
		assert_int_equal(gn_cq_arm(s->cq, false), 0);
		if (gn_cq_poll(s->cq, &wc, 1) == 1)
			break;
	}
	assert_int_equal(wc.id, id);
	assert_int_equal(wc.status, status);
}

/* ---- a cq whose events go elsewhere than its qp's ---- */

static void cq_channel_apart(void **state)
{
	struct gn_event ev;
	struct pair p;

	(void)state;
	side_make_as(&p.client, 0, true);
	side_make_as(&p.server, 0, true);
	pair_connect(&p, ADDR "apart", NULL);
	assert_int_equal(side_recv(&p.server, p.s, 1, 0, MSG), 0);
	assert_int_equal(side_recv(&p.server, p.s, 2, 0, MSG), 0);
	arm_empty(p.server.cq);
	assert_int_equal(side_send(&p.client, p.c, 3, 0, MSG), 0);
	wake_for(&p.server, 1, GN_WC_OK);
	side_expect(p.client.cq, 3, GN_WC_OK);
	/* What the kernel does for a client that was killed. */
	side_drain(p.server.cq_chan);
	arm_empty(p.server.cq);
	assert_int_equal(shutdown(((struct shm_qp *)p.c)->conn.sock.fd, SHUT_RDWR), 0);
	wake_for(&p.server, 2, GN_WC_FLUSHED);
	assert_int_equal(gn_chan_wait(p.server.chan, gn_deadline_us(WAKE_US), &ev), 0);
	assert_int_equal(ev.type, GN_EVENT_DISCONNECTED);
	pair_free(&p);
}

/* ---- peers that were quiet for long ---- */

#define COLD 40u
#define COOL 100000u /* polls after which they are */

/* All but perhaps one are looked at in turn only. */
static bool quiet(const struct gn_cq *cq)
{
	const struct shm_rx *hot = ((const struct shm_cq *)cq)->hot;

	return !hot || hot->next == hot;
}

static void cold_peers(void **state)
{
	struct gn_qp *c[COLD], *s[COLD];
	struct gn_listener *listener;
	struct side client, server;
	struct gn_wc wc;

	(void)state;
	side_make(&client);
	side_make(&server);
	assert_int_equal(gn_listener_create(server.ctx, ADDR "cold", server.chan, 0, &listener), 0);
	for (uint64_t i = 0; i < COLD; i++) {
		side_connect(&client, &server, ADDR "cold", &c[i], &s[i]);
		assert_int_equal(side_recv(&server, s[i], i, i * MSG, MSG), 0);
	}
	for (uint32_t i = 0; i < COOL && !quiet(server.cq); i++)
		assert_int_equal(gn_cq_poll(server.cq, &wc, 1), 0);
	assert_true(quiet(server.cq));
	for (uint64_t i = 0; i < COLD; i++) {
		side_drain(server.chan);
		assert_int_equal(side_send(&client, c[i], i, 0, MSG), 0);
		/* It was there before: the poll after the arm has it, or an event comes. */
		assert_int_equal(gn_cq_arm(server.cq, false), 0);
		if (gn_cq_poll(server.cq, &wc, 1) == 1) {
			assert_int_equal(wc.id, i);
			assert_int_equal(wc.status, GN_WC_OK);
		} else {
			wake_for(&server, i, GN_WC_OK);
		}
		side_expect(client.cq, i, GN_WC_OK);
	}
	for (uint64_t i = 0; i < COLD; i++) {
		assert_int_equal(gn_qp_destroy(c[i]), 0);
		assert_int_equal(gn_qp_destroy(s[i]), 0);
	}
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(&client);
	side_free(&server);
}

/* ---- a message larger than the ring ---- */

static void conn_send_all_mems(void *arg)
{
	struct pair *p = arg;
	struct gn_wc wc;

	if (!side_send(&p->client, p->c, 1, 0, SIDE_BYTES))
		gn_cq_wait(p->client.cq, &wc, 1, gn_deadline_us(WAKE_US), "a long send");
}

/* The wake-up for its first piece brings no completion, and must not be the last. */
static void long_message(void **state)
{
	struct gn_thread *thread;
	struct pair p;

	(void)state;
	pair_make(&p, ADDR "long", NULL);
	memset(p.client.buf, 0x5a, SIDE_BYTES);
	assert_int_equal(side_recv(&p.server, p.s, 2, 0, SIDE_BYTES), 0);
	arm_empty(p.server.cq);
	assert_int_equal(gn_thread_start("sender", conn_send_all_mems, &p, &thread), 0);
	wake_for(&p.server, 2, GN_WC_OK);
	assert_int_equal(gn_thread_join(thread), 0);
	assert_memory_equal(p.client.buf, p.server.buf, SIDE_BYTES);
	pair_free(&p);
}

/* ---- sends that wait ---- */

/* A send that finds no receive after its cq was armed goes on when one is posted. */
static void blocked_after_arm(void **state)
{
	const struct gn_conn_opts patient = {
		.size = sizeof(patient), .rnr_retry = 6, .rnr_timer_us = WAKE_US};
	struct pair p;

	(void)state;
	pair_make(&p, ADDR "blocked", &patient);
	arm_empty(p.client.cq);
	assert_int_equal(side_send(&p.client, p.c, 1, 0, MSG), 0);
	assert_int_equal(side_recv(&p.server, p.s, 2, 0, MSG), 0);
	wake_for(&p.client, 1, GN_WC_OK);
	side_expect(p.server.cq, 2, GN_WC_OK);
	pair_free(&p);
}

/* … and fails when none is posted in time, asleep or not. */
static void rnr_while_asleep(void **state)
{
	const struct gn_conn_opts hasty = {
		.size = sizeof(hasty), .rnr_retry = 1, .rnr_timer_us = 2000};
	struct pair p;

	(void)state;
	pair_make(&p, ADDR "rnr", &hasty);
	arm_empty(p.client.cq);
	assert_int_equal(side_send(&p.client, p.c, 1, 0, MSG), 0);
	wake_for(&p.client, 1, GN_WC_RNR);
	pair_free(&p);
}

/* ---- datagrams ---- */

static void datagram(struct side *s, struct gn_qp *qp, struct gn_ah *ah, uint32_t qpn,
		     uint32_t qkey)
{
	struct gn_sge sge = {s->buf, 8, gn_mr_lkey(s->mr)};
	struct gn_wr wr;

	gn_wr_ud(&wr, 1, &sge, ah, qpn, qkey, 0);
	assert_int_equal(gn_post_send(qp, &wr, NULL), 0);
}

static void dropped_datagram(void **state)
{
	const uint64_t deadline_ns = gn_deadline_us(WAKE_US);
	struct gn_counters counters = {.size = sizeof(counters)};
	struct side client, server;
	struct gn_qp *c, *s;
	struct gn_ud_addr addr;
	struct gn_event ev;
	struct gn_ah *ah;

	(void)state;
	side_make(&client);
	side_make(&server);
	c = side_qp(&client, GN_QP_UD);
	s = side_qp(&server, GN_QP_UD);
	assert_int_equal(gn_qp_ud_addr(s, &addr), 0);
	assert_int_equal(gn_ah_create(c, &addr, &ah), 0);
	for (uint64_t i = 0; i < 2; i++)
		assert_int_equal(side_recv(&server, s, i, i * 256, 256), 0);
	/* Once the two know each other … */
	arm_empty(server.cq);
	datagram(&client, c, ah, addr.qpn, SIDE_QKEY);
	wake_for(&server, 0, GN_WC_OK);
	side_drain(server.chan);
	/* … one that is dropped wakes, but is no completion: the sleeper stays armed. */
	arm_empty(server.cq);
	datagram(&client, c, ah, addr.qpn, SIDE_QKEY + 1);
	do {
		assert_true(gn_now_ns() < deadline_ns);
		assert_int_not_equal(gn_chan_next(server.chan, &ev), 0);
		assert_int_equal(gn_qp_counters(s, &counters), 0);
	} while (!counters.drops);
	datagram(&client, c, ah, addr.qpn, SIDE_QKEY);
	wake_for(&server, 1, GN_WC_OK);
	assert_int_equal(gn_ah_destroy(ah), 0);
	assert_int_equal(gn_qp_destroy(c), 0);
	assert_int_equal(gn_qp_destroy(s), 0);
	side_free(&client);
	side_free(&server);
}

/* ---- gn_cq_wait() ---- */

#define ROUNDS 20

struct waiter {
	struct gn_cq *cq;
	uint32_t *done; /* atomic */
	int got;
	bool woken; /* and not up at its deadline, to find what had been there for long */
};

static void wait_one(void *arg)
{
	const uint64_t deadline_ns = gn_deadline_us(WAKE_US);
	struct waiter *w = arg;
	struct gn_wc wc;

	w->got = gn_cq_wait(w->cq, &wc, 1, deadline_ns, "one of two");
	w->woken = gn_now_ns() < deadline_ns;
	__atomic_fetch_add(w->done, 1, __ATOMIC_RELEASE);
}

static uint64_t arms_of(struct side *s)
{
	struct gn_counters counters = {.size = sizeof(counters)};

	assert_int_equal(gn_fabric_counters(s->fabric, &counters), 0);
	return counters.arms;
}

/* Two threads sleep on one cq, two messages come: each gets one. */
static void two_waiters(void **state)
{
	struct pair p;

	(void)state;
	side_make(&p.client);
	side_make_as(&p.server, GN_SHARED, false);
	pair_connect(&p, ADDR "two", NULL);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		const uint64_t deadline_ns = gn_deadline_us(2 * WAKE_US);
		const uint64_t arms = arms_of(&p.server);
		struct waiter w[2];
		struct gn_thread *thread[2];
		uint32_t done = 0;

		for (uint64_t i = 0; i < 2; i++) {
			assert_int_equal(side_recv(&p.server, p.s, i, i * MSG, MSG), 0);
			w[i] = (struct waiter){.cq = p.server.cq, .done = &done};
			assert_int_equal(gn_thread_start("waiter", wait_one, &w[i], &thread[i]), 0);
		}
		while (arms_of(&p.server) < arms + 2 && gn_now_ns() < deadline_ns)
			gn_yield();
		assert_int_equal(side_send(&p.client, p.c, 0, 0, MSG), 0);
		/* The second comes at once, or after one of them is up. */
		while (round % 2 && !__atomic_load_n(&done, __ATOMIC_ACQUIRE) &&
		       gn_now_ns() < deadline_ns)
			gn_yield();
		assert_int_equal(side_send(&p.client, p.c, 1, 0, MSG), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(gn_thread_join(thread[i]), 0);
		for (int i = 0; i < 2; i++)
			assert_true(w[i].got == 1 && w[i].woken);
		side_expect(p.client.cq, 0, GN_WC_OK);
		side_expect(p.client.cq, 1, GN_WC_OK);
	}
	pair_free(&p);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts), 0);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/*
 * An event that is not taken keeps the channel readable. A wait beside it must sleep nevertheless.
 */
static void untaken_event(void **state)
{
	uint64_t wall, cpu;
	struct gn_wc wc;
	struct pair p;

	(void)state;
	side_make(&p.client);
	side_make(&p.server);
	assert_int_equal(
		gn_listener_create(p.server.ctx, ADDR "untaken", p.server.chan, 0, &p.listener), 0);
	side_connect(&p.client, &p.server, ADDR "untaken", &p.c, &p.s);
	/* The server's ESTABLISHED is still in its channel. */
	wall = gn_now_ns();
	cpu = cpu_ns();
	assert_int_equal(gn_cq_wait(p.server.cq, &wc, 1, gn_deadline_us(500000), "nothing"),
			 -ETIMEDOUT);
	wall = gn_now_ns() - wall;
	cpu = cpu_ns() - cpu;
	if (!unit_slow())
		assert_true(cpu < wall / 10 * 6);
	/* And what comes is still found. */
	assert_int_equal(side_recv(&p.server, p.s, 1, 0, MSG), 0);
	assert_int_equal(side_send(&p.client, p.c, 2, 0, MSG), 0);
	side_expect(p.server.cq, 1, GN_WC_OK);
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cq_channel_apart), cmocka_unit_test(cold_peers),
		cmocka_unit_test(long_message),	    cmocka_unit_test(blocked_after_arm),
		cmocka_unit_test(rnr_while_asleep), cmocka_unit_test(dropped_datagram),
		cmocka_unit_test(two_waiters),	    cmocka_unit_test(untaken_event),
	};

	return cmocka_run_group_tests(tests, side_folder_make, side_folder_remove);
}
