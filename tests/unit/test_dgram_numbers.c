/* SPDX-License-Identifier: MIT */
/*
 * Numbers of datagram calls wrap around at 2^32. A caller that is never idle for 10 ms reaches that
 * within minutes: the test makes both sides believe that so many calls have been made.
 */
#include "dgram_pair.h"

#define STEP (UINT32_C(1) << 28)

/* As if n calls had been made and answered, all in the first slot. */
static void skip_numbers(struct pair *p, uint32_t n)
{
	struct gn_dgram_peer *caller = pair_caller(p);

	p->peer->next_number += n;
	p->peer->granted += n;
	p->peer->done += n;
	caller->grant += n;
	caller->seen += n;
}

/* n calls at the same time: they use the slots from 0 to n - 1. */
static void burst(struct pair *p, unsigned n)
{
	struct gn_dgram_op ops[GN_DGRAM_SLOTS];
	uint32_t results[GN_DGRAM_SLOTS];
	unsigned done = 0;
	const unsigned executed = p->executed;

	for (uint32_t i = 0; i < n; i++) {
		ops[i] = (struct gn_dgram_op){.peer = p->peer,
					      .method = PAIR_ECHO,
					      .request = "once",
					      .request_len = 4,
					      .result = &results[i],
					      .result_room = 4,
					      .deadline_ns = gn_deadline_us(PAIR_LIMIT_US / 2),
					      .done = pair_count,
					      .arg = &done};
		assert_int_equal(gn_dgram_submit(&ops[i]), 0);
	}
	pair_until(p, done == n);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(ops[i].status, GN_RPC_OK);
	assert_int_equal(p->executed, executed + n);
}

static void test_wrap(void **state)
{
	struct pair p = {.hold = NULL};

	(void)state;
	pair_open(&p);
	burst(&p, GN_DGRAM_SLOTS);
	for (unsigned i = 0; i < 20; i++) { /* 5 * 2^30 calls */
		skip_numbers(&p, STEP);
		burst(&p, 1);
	}
	/* Slots that were used 5 * 2^30 calls ago. */
	burst(&p, GN_DGRAM_SLOTS);
	pair_close(&p);
}

/* A timeout that was measured while a peer was slow stays within 100 ms, and so does its double. */
static void test_timeout(void **state)
{
	struct dgram_rtt rtt = {.rto_ns = 0};

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		dgram_rtt_sample(&rtt, 10000000ull * i, 50000);
		assert_true(rtt.rto_ns >= 50000 && rtt.rto_ns <= DGRAM_RTO_MAX_NS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_timeout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
