/* SPDX-License-Identifier: MIT */
/*
 * What becomes of requests when their qp fails or goes. On a card a flushed request may have taken
 * effect: it had left, or only its acknowledgement was missing. Over seeds both must be seen, for
 * every way in which a connection ends; and nothing may land after the target's region is gone.
 */
#include "unit_sim.h"
#include "unit_sim_side.h"

#define SEEDS  200u
#define WRITES 8u
#define AT     1024u /* in the target's buffer, a byte for each */

enum end { BY_ERROR, BY_DISCONNECT, BY_DESTROY, BY_KILL, BY_PEER, BY_DEREGISTER, ENDS };

static enum end how;
static struct gn_sim *sim;

/* What both sides saw; the host's memory outlives the programs. */
static struct {
	bool landed[WRITES];
	bool flushed[WRITES], ok[WRITES];
	bool changed_late;
} seen;

static uint32_t count(const bool *is)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < WRITES; i++)
		n += is[i];
	return n;
}

PROGRAM(target)
{
	struct gn_event ev;
	struct side s;
	uint8_t before[WRITES];

	(void)env;
	OR_RETURN(side_open(&s, "sim:n0"));
	OR_RETURN(server_connect(&s, "sim:n0:1"));
	if (how == BY_PEER || how == BY_DEREGISTER) {
		/* The client learns of it late. */
		gn_sleep_us(102 + gn_random() % 6);
		for (uint64_t n = gn_random() % 20; n > 0; n--)
			gn_yield();
		if (how == BY_PEER) {
			EXPECT(gn_disconnect(s.qp) == 0);
		} else {
			EXPECT(gn_mr_deregister(s.mr) == 0);
			s.mr = NULL;
			memcpy(before, s.buf + AT, WRITES);
		}
	}
	if (how != BY_PEER) {
		EXPECT(gn_chan_wait(s.chan, GN_FOREVER, &ev) == 0);
		EXPECT(ev.type == GN_EVENT_DISCONNECTED);
	}
	gn_sleep_us(50);
	for (uint32_t i = 0; i < WRITES; i++)
		seen.landed[i] = s.buf[AT + i] == i + 1;
	if (how == BY_DEREGISTER)
		seen.changed_late = memcmp(before, s.buf + AT, WRITES);
	return side_close(&s);
}

static int end_somehow(struct side *s)
{
	switch (how) {
	case BY_ERROR:
		return gn_qp_error(s->qp);
	case BY_DISCONNECT:
		return gn_disconnect(s->qp);
	case BY_DESTROY:
		EXPECT(gn_qp_destroy(s->qp) == 0);
		s->qp = NULL;
		return 0;
	case BY_KILL:
		return gn_sim_kill(sim, 1);
	default:
		return 0;
	}
}

PROGRAM(writer)
{
	struct side s;
	struct gn_wc wc;

	(void)env;
	OR_RETURN(client_open(&s, "sim:n1", "sim:n0:1"));
	for (uint32_t i = 0; i < WRITES; i++) {
		struct gn_sge sge = {s.buf + i, 1, gn_mr_lkey(s.mr)};
		struct gn_wr wr;

		s.buf[i] = (uint8_t)(i + 1);
		gn_wr_rdma(&wr, GN_OP_WRITE, i, &sge, &s.peer, AT + i, GN_SIGNALED);
		EXPECT(gn_post_send(s.qp, &wr, NULL) == 0);
	}
	for (uint64_t n = gn_random() % 50; n > 0; n--)
		gn_yield();
	EXPECT(end_somehow(&s) == 0);
	for (uint32_t i = 0; i < WRITES && s.qp; i++) {
		EXPECT(gn_cq_wait(s.cq, &wc, 1, gn_deadline_us(100000), "a completion") == 1);
		EXPECT(wc.id == i);
		seen.ok[i] = wc.status == GN_WC_OK;
		seen.flushed[i] = wc.status == GN_WC_FLUSHED;
	}
	return side_close(&s);
}

struct sums {
	uint32_t flushed_landed, flushed_lost, lost, landed;
};

static void run(const char *profile, uint64_t seed, struct sums *sums)
{
	const struct gn_sim_opts opts = {
		.size = sizeof(opts),
		.profile = profile,
		.nodes = 2,
		.seed = seed,
		.limit_ns = 1000000000u,
		/* Answers come before the news that the peer has left, unless they are lost. */
		.faults = how == BY_PEER ? "ack-loss=20%" : NULL,
	};
	int status;

	memset(&seen, 0, sizeof(seen));
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	sim_spawn(sim, 0, target, NULL);
	sim_spawn(sim, 1, writer, NULL);
	assert_int_equal(gn_sim_run(sim), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(gn_sim_status(sim, i, &status), 0);
		assert_int_equal(status, i && how == BY_KILL ? GN_SIM_KILLED : 0);
	}
	gn_sim_destroy(sim);
	assert_false(seen.changed_late);
	for (uint32_t i = 0; i < WRITES; i++) {
		if (seen.ok[i])
			assert_true(seen.landed[i]);
		if (i > 0 && seen.landed[i]) /* in order */
			assert_true(seen.landed[i - 1]);
		sums->flushed_landed += seen.flushed[i] && seen.landed[i];
		sums->flushed_lost += seen.flushed[i] && !seen.landed[i];
	}
	sums->landed += count(seen.landed);
	sums->lost += WRITES - count(seen.landed);
}

static void run_all(enum end end, const char *profile)
{
	static const char *const names[ENDS] = {"error", "disconnect", "destroy",
						"kill",	 "peer",       "deregister"};
	const uint64_t seed = unit_seed();
	struct sums sums = {0};

	how = end;
	for (unsigned n = 0; n < SEEDS; n++)
		run(profile, seed + n, &sums);
	print_message("# %s, %s: %u flushed landed, %u flushed lost, %u landed, %u lost\n", profile,
		      names[end], sums.flushed_landed, sums.flushed_lost, sums.landed, sums.lost);
	assert_true(sums.landed > 0 && sums.lost > 0);
	if (end == BY_ERROR || end == BY_DISCONNECT)
		assert_true(sums.flushed_landed > 0 && sums.flushed_lost > 0);
	if (end == BY_PEER)
		assert_true(sums.flushed_landed > 0);
}

static void test_ends(void **state)
{
	(void)state;
	for (unsigned end = 0; end < ENDS; end++)
		run_all(end, "cx3");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SIM_TEST(test_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
