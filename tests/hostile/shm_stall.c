/* SPDX-License-Identifier: MIT */
/*
 * No peer makes a thread wait. The peers are other users' processes: their busy words are odd for
 * ever, their grants name memory that they never send, they never read their sockets. What a post, a
 * registration, a poll of the victim takes is measured while they do.
 */
#include "cost.h"
#include "shm_raw.h"
#include "shm_side.h"


#define ADDR	"shm:stall-test"
#define NAME	"stall-test"
#define HOSTILE 12u
#define MEMS	200u /* more than a small socket holds messages */
/*
 * The longest duration of a call that does not wait. A busy machine deschedules for longer than
 * that at times, so the fastest of several tries counts: a wait would be in each.
 */
#define TRIES	   5u
#define NO_WAIT_NS (unit_slow() ? 40000000u : 10000000u)

/* ---- the hostile process ---- */

static void evil_clients(struct raw *r, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		raw_make(&r[i]);
		r[i].sock = raw_dial(NAME);
		raw_say(&r[i], WIRE_HELLO, r[i].area_fd, r[i].grants_fd);
	}
}

/* Grants of memory that is never sent. */
static void evil_never_sent(int ctl)
{
	struct raw r[TRIES];

	evil_clients(r, TRIES);
	for (unsigned i = 0; i < TRIES; i++)
		raw_grant(&r[i], 9, GN_PAGE);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

/* … of which it says that there is more to come. */
static void evil_never_done(int ctl)
{
	struct raw r[TRIES];

	evil_clients(r, TRIES);
	for (unsigned i = 0; i < TRIES; i++) {
		r[i].area->conn_state.mems = UINT64_MAX;
		raw_grant(&r[i], 9, GN_PAGE);
	}
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

/* Copies for ever, and violates the protocol on request. */
static void evil_busy(int ctl)
{
	struct raw r[HOSTILE];

	evil_clients(r, HOSTILE);
	for (unsigned i = 0; i < HOSTILE; i++)
		r[i].area->busy.posting = 1;
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	for (unsigned i = 0; i < HOSTILE; i++)
		raw_send_mem(&r[i], 0, r[i].area_fd, GN_PAGE, false);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

/* Sends HELLO, and reads nothing until requested. Then it must find all registered memory. */
static void evil_reads_late(int ctl)
{
	int fds[WIRE_FDS];
	union wire_any msg;
	struct raw r;
	unsigned mems = 0;

	evil_clients(&r, 1);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	while (mems < MEMS) {
		const struct wire_head wake = wire_head(WIRE_WAKE);

		/* What a library says that misses memory. */
		if (wire_recv(r.sock, &msg, fds) == -EAGAIN) {
			assert_int_equal(wire_send(r.sock, &wake, sizeof(wake), NULL, 0), 0);
			assert_true(raw_recv(&r, &msg, fds) > 0);
		}
		if (msg.head.type == WIRE_MEM)
			mems += msg.mems.n;
		wire_close_fds(fds);
	}
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

static const struct raw_role roles[] = {
	{"never_sent", evil_never_sent},
	{"never_done", evil_never_done},
	{"busy", evil_busy},
	{"reads_late", evil_reads_late},
	{NULL, NULL},
};

/* ---- the victim ---- */

struct victim {
	struct side side;
	struct gn_listener *listener;
	struct gn_qp *qps[HOSTILE];
	unsigned n_qps;
	struct raw_process evil;
};

static void victim_begin(struct victim *v, const char *role, unsigned n)
{
	*v = (struct victim){.n_qps = 0};
	gn_log_level_set(GN_LOG_ERROR);
	side_make(&v->side);
	assert_int_equal(
		gn_listener_create(v->side.ctx, ADDR, v->side.chan, GN_ANY_USER, &v->listener), 0);
	raw_start(&v->evil, role);
	while (v->n_qps < n) {
		struct gn_event ev;

		assert_int_equal(gn_chan_wait(v->side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev),
				 0);
		if (ev.type != GN_EVENT_CONNECT_REQUEST)
			continue;
		v->qps[v->n_qps] = side_qp(&v->side, GN_QP_RC);
		assert_int_equal(gn_accept(ev.req, v->qps[v->n_qps++], NULL), 0);
	}
	raw_turn_wait(v->evil.ctl);
}

static void victim_end(struct victim *v)
{
	raw_turn_end(v->evil.ctl);
	raw_end(&v->evil);
	for (unsigned i = 0; i < v->n_qps; i++)
		assert_int_equal(gn_qp_destroy(v->qps[i]), 0);
	assert_int_equal(gn_listener_destroy(v->listener), 0);
	side_free(&v->side);
}

static void post_write(struct victim *v, struct gn_qp *qp)
{
	struct gn_sge sge = {v->side.buf, 64, gn_mr_lkey(v->side.mr)};
	const struct gn_remote remote = {.key = RAW_KEY};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE, 1, &sge, &remote, 0, GN_SIGNALED);
	assert_int_equal(gn_post_send(qp, &wr, NULL), 0);
}

/* The fastest of some WRITEs, each on a connection of its own, to memory that was never sent. */
static uint64_t fastest_post(struct victim *v)
{
	uint64_t best_ns = UINT64_MAX;

	for (unsigned i = 0; i < TRIES; i++) {
		const uint64_t begun_ns = gn_now_ns();

		post_write(v, v->qps[i]);
		if (gn_now_ns() - begun_ns < best_ns)
			best_ns = gn_now_ns() - begun_ns;
	}
	print_message("# a post took %u us\n", (unsigned)(best_ns / 1000));
	return best_ns;
}

static void never_sent(void **state)
{
	struct victim v;

	(void)state;
	victim_begin(&v, "never_sent", TRIES);
	assert_true(fastest_post(&v) < NO_WAIT_NS);
	for (unsigned i = 0; i < TRIES; i++)
		side_expect(v.side.cq, 1, GN_WC_REMOTE_ACCESS);
	victim_end(&v);
}

/* The requests wait, the thread does not; and they do not wait for ever. */
static void never_done(void **state)
{
	uint64_t begun_ns;
	struct victim v;

	(void)state;
	victim_begin(&v, "never_done", TRIES);
	begun_ns = gn_now_ns();
	assert_true(fastest_post(&v) < NO_WAIT_NS);
	for (unsigned i = 0; i < TRIES; i++)
		side_expect(v.side.cq, 1, GN_WC_REMOTE_ACCESS);
	assert_true(gn_now_ns() - begun_ns >= SHM_MEM_WAIT_NS);
	assert_true(gn_now_ns() - begun_ns < 5 * SHM_MEM_WAIT_NS);
	victim_end(&v);
}

/* Peers that copy for ever and then violate the protocol: no poll waits for them. */
static void busy_and_gone(void **state)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	uint64_t polled_ns = 0, begun_ns;
	unsigned gone = 0;
	struct victim v;

	(void)state;
	victim_begin(&v, "busy", HOSTILE);
	raw_turn_end(v.evil.ctl);
	raw_turn_wait(v.evil.ctl);
	while (gone < HOSTILE) {
		struct gn_event ev;
		struct gn_wc wc;

		assert_true(gn_now_ns() < deadline_ns);
		begun_ns = gn_now_ns();
		gn_cq_poll(v.side.cq, &wc, 1);
		while (!gn_chan_next(v.side.chan, &ev))
			gone += ev.type == GN_EVENT_DISCONNECTED;
		polled_ns += gn_now_ns() - begun_ns;
	}
	print_message("# polls took %u us\n", (unsigned)(polled_ns / 1000));
	/* All of them together: less than one that is waited for. */
	assert_true(polled_ns < 1000ull * GN_TEARDOWN_US);
	/* And the region, the same. The peers' second ends at the same time. */
	begun_ns = gn_now_ns();
	assert_int_equal(gn_mr_deregister_try(v.side.mr), -EAGAIN);
	assert_true(gn_now_ns() - begun_ns < 1000ull * GN_TEARDOWN_US / 2);
	assert_int_equal(gn_mr_deregister(v.side.mr), 0);
	assert_true(gn_now_ns() - begun_ns < 3000ull * GN_TEARDOWN_US);
	assert_int_equal(
		gn_mr_register(v.side.pd, v.side.mem, 0, SIDE_BYTES, GN_LOCAL_WRITE, &v.side.mr),
		0);
	victim_end(&v);
}

struct many {
	struct gn_mem *mem[MEMS];
	struct gn_mr *mr[MEMS];
};

/* Registrations that the peer of this qp does not hear of: its socket is full soon. */
static void many_make(struct many *m, struct side *s, struct gn_qp *qp)
{
	const int bytes = 16384; /* of which a message takes over 500 */
	unsigned slow = 0;

	assert_int_equal(setsockopt(((struct shm_qp *)qp)->conn.sock.fd, SOL_SOCKET, SO_SNDBUF,
				    &bytes, sizeof(bytes)),
			 0);
	for (unsigned i = 0; i < MEMS; i++) {
		uint64_t begun_ns;

		assert_int_equal(gn_mem_alloc(s->fabric, GN_PAGE, GN_REMOTE_WRITE, &m->mem[i]), 0);
		begun_ns = gn_now_ns();
		assert_int_equal(gn_mr_register(s->pd, m->mem[i], 0, GN_PAGE,
						GN_LOCAL_WRITE | GN_REMOTE_WRITE, &m->mr[i]),
				 0);
		slow += gn_now_ns() - begun_ns > NO_WAIT_NS;
	}
	print_message("# %u of %u registrations took over %u us\n", slow, MEMS,
		      (unsigned)(NO_WAIT_NS / 1000));
	assert_true(slow <= TRIES);
}

static void many_free(struct many *m)
{
	for (unsigned i = 0; i < MEMS; i++) {
		assert_int_equal(gn_mr_deregister(m->mr[i]), 0);
		assert_int_equal(gn_mem_free(m->mem[i]), 0);
	}
}

/* A peer that does not read its socket gets its memory when it does. */
static void reads_late(void **state)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct pollfd pfd;
	struct victim v;
	struct many m;

	(void)state;
	victim_begin(&v, "reads_late", 1);
	many_make(&m, &v.side, v.qps[0]);
	raw_turn_end(v.evil.ctl);
	pfd = (struct pollfd){.fd = v.evil.ctl, .events = POLLIN};
	do {
		assert_true(gn_now_ns() < deadline_ns);
		side_drain(v.side.chan);
	} while (poll(&pfd, 1, 1) != 1);
	raw_turn_wait(v.evil.ctl);
	many_free(&m);
	victim_end(&v);
}

/* An honest peer that was away for a while writes to the newest region. */
static void honest_and_late(void **state)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_remote remote;
	struct gn_sge sge;
	struct gn_wr wr;
	struct gn_wc wc;
	struct pair p;
	struct many m;

	(void)state;
	pair_make(&p, ADDR, NULL);
	many_make(&m, &p.server, p.s);
	memset(p.client.buf, 0x5a, 64);
	assert_int_equal(gn_mr_remote(m.mr[MEMS - 1], &remote), 0);
	sge = (struct gn_sge){p.client.buf, 64, gn_mr_lkey(p.client.mr)};
	gn_wr_rdma(&wr, GN_OP_WRITE, 1, &sge, &remote, 0, GN_SIGNALED);
	assert_int_equal(gn_post_send(p.c, &wr, NULL), 0);
	while (gn_cq_poll(p.client.cq, &wc, 1) != 1) {
		struct gn_wc none;

		assert_true(gn_now_ns() < deadline_ns);
		assert_int_equal(gn_cq_poll(p.server.cq, &none, 1), 0);
	}
	assert_int_equal(wc.status, GN_WC_OK);
	assert_memory_equal(gn_mem_addr(m.mem[MEMS - 1]), p.client.buf, 64);
	many_free(&m);
	pair_free(&p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		RAW_CASE(never_sent), RAW_CASE(never_done),	 RAW_CASE(busy_and_gone),
		RAW_CASE(reads_late), RAW_CASE(honest_and_late),
	};
	const int status = raw_main(roles, 4096, argc, argv);

	return status >= 0 ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
