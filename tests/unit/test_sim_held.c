/* SPDX-License-Identifier: MIT */
/*
 * A posted buffer belongs to the card until its request has completed. A program that changes one
 * ends the run, whatever the operation; one that keeps to the rule never does.
 */
#include "unit_sim.h"
#include "unit_sim_side.h"

#define SEEDS 40u
#define LEN   300u /* several lines */

enum when { IN_FLIGHT, COMPLETED, INLINED, FENCED, PEERS, DEREGISTERED, OTHER_REGION };

struct deed {
	enum gn_op op;
	enum when when;
	bool ud;
};

static const struct deed *deed;

/* ---- connected ---- */

PROGRAM(target)
{
	struct gn_event ev;
	struct side s;

	(void)env;
	OR_RETURN(side_open(&s, "sim:n0"));
	EXPECT(side_recv(&s, 1, 0, LEN) == 0);
	EXPECT(side_recv(&s, 2, LEN, LEN) == 0);
	OR_RETURN(server_connect(&s, "sim:n0:1"));
	EXPECT(gn_chan_wait(s.chan, GN_FOREVER, &ev) == 0);
	EXPECT(ev.type == GN_EVENT_DISCONNECTED);
	return side_close(&s);
}

/* It may change at any moment of the request's life. */
static void some_time(void)
{
	for (uint64_t n = gn_random() % 2 ? 0 : gn_random() % 4; n > 0; n--)
		gn_yield();
}

static int write_own(struct side *s, uint32_t to)
{
	struct gn_sge sge = {s->buf + to, 8, gn_mr_lkey(s->mr)};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_READ, 7, &sge, &s->peer, 0, 0);
	return gn_post_send(s->qp, &wr, NULL);
}

PROGRAM(poster)
{
	unsigned flags = GN_SIGNALED;
	struct gn_mr *other;
	struct gn_sge sge;
	struct gn_wr wr;
	struct side s;
	struct gn_wc wc;

	(void)env;
	OR_RETURN(client_open(&s, "sim:n1", "sim:n0:1"));
	EXPECT(gn_mr_register(s.pd, s.mem, 0, LEN, GN_LOCAL_WRITE, &other) == 0);
	memset(s.buf, 1, LEN);
	sge = (struct gn_sge){s.buf, deed->when == INLINED ? 64 : LEN, gn_mr_lkey(s.mr)};
	flags |= deed->when == INLINED ? GN_INLINE : deed->when == FENCED ? GN_FENCE : 0;
	gn_wr_rdma(&wr, deed->op, 42, &sge, &s.peer, 1024, flags);
	if (deed->when == FENCED)
		EXPECT(write_own(&s, 8) == 0);
	EXPECT(gn_post_send(s.qp, &wr, NULL) == 0);
	if (deed->when == DEREGISTERED) {
		EXPECT(gn_mr_deregister(s.mr) == 0);
		gn_sleep_us(100);
		return 0;
	}
	if (deed->when == OTHER_REGION)
		EXPECT(gn_mr_deregister(other) == 0);
	if (deed->when == IN_FLIGHT) {
		some_time();
		s.buf[gn_random() % LEN]++;
	}
	if (deed->when == INLINED)
		s.buf[0]++;
	OR_RETURN(side_expect(&s, 42, GN_WC_OK, &wc));
	s.buf[0]++;
	EXPECT(gn_disconnect(s.qp) == 0);
	if (deed->when != OTHER_REGION)
		EXPECT(gn_mr_deregister(other) == 0);
	return side_close(&s);
}

/* ---- datagrams ---- */

/* To itself: a node hears its own datagrams. */
PROGRAM(talker)
{
	struct gn_ud_addr addr;
	struct gn_recv_wr recv;
	struct gn_sge sge, to;
	struct gn_ah *ah;
	struct gn_wr wr;
	struct side p;
	struct gn_wc wc;

	OR_RETURN(side_open_type(&p, env->fabric, GN_QP_UD));
	EXPECT(gn_qp_ud_addr(p.qp, &addr) == 0);
	EXPECT(gn_ah_create(p.qp, &addr, &ah) == 0);
	to = (struct gn_sge){p.buf + 1024, GN_GRH_BYTES + LEN, gn_mr_lkey(p.mr)};
	recv = (struct gn_recv_wr){.id = 1, .sge = &to, .n_sge = 1};
	EXPECT(gn_post_recv(p.qp, &recv, NULL) == 0);
	memset(p.buf, 1, LEN);
	sge = (struct gn_sge){p.buf, LEN, gn_mr_lkey(p.mr)};
	gn_wr_ud(&wr, 42, &sge, ah, addr.qpn, addr.qkey, GN_SIGNALED);
	wr.op = deed->op;
	EXPECT(gn_post_send(p.qp, &wr, NULL) == 0);
	if (deed->when == IN_FLIGHT) {
		some_time();
		p.buf[gn_random() % LEN]++;
	}
	for (int i = 0; i < 2; i++) {
		EXPECT(gn_cq_wait(p.cq, &wc, 1, gn_deadline_us(1000), "a completion") == 1);
		EXPECT(wc.status == GN_WC_OK);
		if (wc.id == 42)
			p.buf[0]++;
	}
	EXPECT(p.buf[1024 + GN_GRH_BYTES] == 1);
	EXPECT(gn_ah_destroy(ah) == 0);
	return side_close(&p);
}

/* ---- runs ---- */

static int run(const struct deed *which, const char *profile, uint64_t seed)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = profile,
					 .nodes = 2,
					 .seed = seed,
					 .limit_ns = 1000000000u};
	struct gn_sim *sim;
	int rc, status = 0;

	deed = which;
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	if (which->ud) {
		sim_spawn(sim, 0, talker, NULL);
	} else {
		sim_spawn(sim, 0, target, NULL);
		sim_spawn(sim, 1, poster, NULL);
	}
	rc = gn_sim_run(sim);
	for (unsigned i = 0; !rc && i < (which->ud ? 1 : 2); i++) {
		assert_int_equal(gn_sim_status(sim, i, &status), 0);
		assert_int_equal(status, 0);
	}
	gn_sim_destroy(sim);
	return rc;
}

static const char *const profiles[] = {"ideal", "cx3", "cx4"};

static const struct deed changes[] = {
	{GN_OP_WRITE, IN_FLIGHT, false},    {GN_OP_WRITE_IMM, IN_FLIGHT, false},
	{GN_OP_SEND, IN_FLIGHT, false},	    {GN_OP_SEND_IMM, IN_FLIGHT, false},
	{GN_OP_SEND, IN_FLIGHT, true},	    {GN_OP_SEND_IMM, IN_FLIGHT, true},
	{GN_OP_WRITE, DEREGISTERED, false},
};

/* Not always: the card may be done with it, though the program does not know. */
static void test_noticed(void **state)
{
	const uint64_t seed = unit_seed();

	quiet = true;
	for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		for (unsigned p = 0; p < 3; p++) {
			unsigned noticed = 0;

			for (unsigned n = 0; n < SEEDS; n++) {
				const int rc = run(&changes[i], profiles[p], seed + n);

				assert_true(rc == 0 || rc == -EFAULT);
				noticed += rc != 0;
			}
			if (noticed < SEEDS / 8)
				fail_msg("deed %u on %s: %u of %u", i, profiles[p], noticed, SEEDS);
		}
	quiet = false;
	sim_assert_logged(state, "n1 process 1: the buffer of a write changed before it completed: "
				 "qp 17, id 42, 300 bytes, posted at ");
}

static void test_named(void **state)
{
	static const struct deed region = {GN_OP_WRITE, DEREGISTERED, false};

	assert_int_equal(run(&region, "cx3", 1), -EFAULT);
	sim_assert_logged(state, "n1 process 1: the buffer of a write was deregistered before it "
				 "completed: qp 17, id 42, 300 bytes, posted at ");
}

static const struct deed rights[] = {
	{GN_OP_WRITE, COMPLETED, false}, {GN_OP_WRITE_IMM, COMPLETED, false},
	{GN_OP_SEND, COMPLETED, false},	 {GN_OP_SEND, COMPLETED, true},
	{GN_OP_WRITE, INLINED, false},	 {GN_OP_SEND, INLINED, false},
	{GN_OP_WRITE, FENCED, false},	 {GN_OP_WRITE, OTHER_REGION, false},
};

static void test_allowed(void **state)
{
	const uint64_t seed = unit_seed();

	(void)state;
	for (unsigned i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
		for (unsigned p = 0; p < 3; p++)
			for (unsigned n = 0; n < SEEDS; n++)
				assert_int_equal(run(&rights[i], profiles[p], seed + n), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SIM_TEST(test_noticed),
		SIM_TEST(test_named),
		SIM_TEST(test_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
