/* SPDX-License-Identifier: MIT */
/*
 * When messages leave: at once in part if the peer has nothing to do, else together at the end of
 * the poll. And the receives that are posted for what may arrive.
 */
#include "dgram_pair.h"

#define CALLS 20u /* two bursts of them fit the slots of a peer */

struct burst {
	struct gn_dgram_op ops[GN_DGRAM_SLOTS];
	uint32_t results[GN_DGRAM_SLOTS];
	unsigned done;
};

static void submit(struct pair *p, struct burst *b, unsigned n)
{
	b->done = 0;
	for (unsigned i = 0; i < n; i++) {
		b->ops[i] = (struct gn_dgram_op){.peer = p->peer,
						 .method = PAIR_ECHO,
						 .request = "once",
						 .request_len = 4,
						 .result = &b->results[i],
						 .result_room = 4,
						 .deadline_ns = gn_deadline_us(PAIR_LIMIT_US / 2),
						 .done = pair_count,
						 .arg = &b->done};
		assert_int_equal(gn_dgram_submit(&b->ops[i]), 0);
	}
}

/* Gets credits for as many calls as there are slots. */
static void warm_up(struct pair *p)
{
	struct burst b;

	for (unsigned i = 0; i < 4; i++) {
		submit(p, &b, GN_DGRAM_SLOTS);
		pair_until(p, b.done == GN_DGRAM_SLOTS);
	}
}

static uint64_t datagrams(const struct pair *p)
{
	return p->ep->port.stats.sent;
}

static void test_early(void **state)
{
	struct pair p = {.hold = NULL};
	struct burst first, second;
	uint64_t before;

	(void)state;
	pair_open(&p);
	warm_up(&p);
	before = datagrams(&p);
	submit(&p, &first, CALLS);
	assert_int_equal(datagrams(&p) - before, 1);
	/* The peer has work now: what follows waits, however much it is. */
	submit(&p, &second, CALLS);
	assert_int_equal(datagrams(&p) - before, 1);
	assert_int_equal(gn_dgram_flush(p.ep), 0);
	assert_int_equal(datagrams(&p) - before, 2);
	pair_until(&p, first.done == CALLS && second.done == CALLS);
	pair_close(&p);
}

/* A few messages are not divided. */
static void test_few(void **state)
{
	struct pair p = {.hold = NULL};
	struct burst b;
	uint64_t before;

	(void)state;
	pair_open(&p);
	warm_up(&p);
	before = datagrams(&p);
	submit(&p, &b, DGRAM_EARLY_MSGS);
	assert_int_equal(datagrams(&p) - before, 0);
	assert_int_equal(gn_dgram_flush(p.ep), 0);
	assert_int_equal(datagrams(&p) - before, 1);
	pair_until(&p, b.done == DGRAM_EARLY_MSGS);
	pair_close(&p);
}

/* Datagrams of one message each leave together, too: the first ones with a doorbell of their own. */
static void test_apart(void **state)
{
	struct pair p = {.opts = {.flags = GN_DGRAM_NO_COALESCE}};
	struct burst b;
	uint64_t before;

	(void)state;
	pair_open(&p);
	p.ep->flags |= GN_DGRAM_NO_COALESCE;
	warm_up(&p);
	before = p.ep->port.stats.doorbells;
	submit(&p, &b, CALLS);
	assert_int_equal(p.ep->port.stats.doorbells - before, 1);
	assert_int_equal(gn_dgram_flush(p.ep), 0);
	assert_int_equal(p.ep->port.stats.doorbells - before, 2);
	pair_until(&p, b.done == CALLS);
	pair_close(&p);
}

static void check_receives(const struct gn_dgram_endpoint *ep)
{
	const uint32_t posted = ep->port.posted, all = ep->port.opts.receives;

	assert_true(posted <= all);
	assert_true(posted == all ||
		    posted >= 2 * (ep->answers + ep->grants) + DGRAM_SPARE_RECVS);
	/* Receives that were taken are posted again before a poll ends. */
	assert_int_equal(ep->port.n_repost, 0);
}

/* Receives are posted as credits are granted and calls start. */
static void test_receives(void **state)
{
	struct pair p = {.opts = {.receives = 256}};
	struct burst b;

	(void)state;
	pair_open(&p);
	assert_true(p.ep->port.posted < p.ep->port.opts.receives / 2);
	check_receives(p.ep);
	for (unsigned i = 0; i < 4; i++) {
		submit(&p, &b, GN_DGRAM_SLOTS);
		while (b.done < GN_DGRAM_SLOTS) {
			pair_poll(&p);
			check_receives(p.ep);
			check_receives(p.server_ep);
		}
	}
	assert_true(p.ep->port.posted < p.ep->port.opts.receives / 2);
	assert_int_equal(p.server_ep->port.posted, 256);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_early),
		cmocka_unit_test(test_few),
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_receives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
