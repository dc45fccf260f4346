/* SPDX-License-Identifier: MIT */
/*
 * The cost of a request for every protocol, with and without GN_MSG_PAPER: WRs, doorbells and
 * receives. All counts are exact and must not depend on timing.
 */
#include "msg_stream.h"

#define PENDING 8u
#define BATCHES 25u
#define ASKED	(PENDING * BATCHES)

static bool request_received(const struct world *w)
{
	return w->protocol == GN_MSG_SEND_SEND || w->protocol == GN_MSG_SEND_WRITE ||
	       w->protocol == GN_MSG_WRITE_IMM;
}

static bool answer_received(const struct world *w)
{
	return w->protocol == GN_MSG_SEND_SEND || w->protocol == GN_MSG_WRITE_SEND ||
	       w->protocol == GN_MSG_WRITE_IMM;
}

/* What the fabric has counted itself, before and after; both sides are in it on shared memory. */
static uint64_t posted(const struct gn_counters *c)
{
	return c->wrs[GN_OP_WRITE] + c->wrs[GN_OP_READ] + c->wrs[GN_OP_WRITE_IMM] +
	       c->wrs[GN_OP_SEND] + c->wrs[GN_OP_SEND_IMM];
}

/* As many as there may be are asked, one flush, and when all are executed they are taken. */
static int batches(struct world *w, struct gn_msg_requester *requester, struct gn_msg_conn *conn)
{
	uint8_t room[16];

	for (unsigned i = 0; i < BATCHES; i++) {
		struct gn_msg_result result[PENDING];
		unsigned got = 0;

		for (unsigned k = 0; k < PENDING; k++) {
			const struct want want = {.seed = k, .len = 16, .value_len = 50};

			EXPECT(begin(w, conn, &want, k, room) == 0);
		}
		EXPECT(gn_msg_flush(requester) == 0);
		while (got < PENDING) {
			const int n = gn_msg_take(requester, result, PENDING,
						  gn_deadline_us(UNIT_PATIENCE_US));

			EXPECT(n > 0);
			got += (unsigned)n;
		}
	}
	return 0;
}

/* Of the requester: a quarter of the pending requests is posted together, where a peer waits. */
static uint64_t doorbells(const struct world *w)
{
	if (w->flags & GN_MSG_PAPER)
		return ASKED;
	return w->protocol == GN_MSG_READ || w->protocol == GN_MSG_UD ? BATCHES : 4 * BATCHES;
}

static int check_requester(const struct world *w, struct gn_msg_requester *requester,
			   const struct gn_counters *before, const struct gn_counters *after)
{
	struct gn_msg_stats s = {.size = sizeof(s)};
	const uint64_t receives = answer_received(w) ? ASKED : 0;

	gn_msg_requester_stats(requester, &s);
	EXPECT(s.requests == ASKED && s.answers == ASKED && s.failed == 0);
	EXPECT(s.wrs == ASKED && s.repeats == 0 && s.strays == 0);
	EXPECT(s.doorbells == doorbells(w));
	if (w->protocol != GN_MSG_UD)
		EXPECT(s.recvs == receives);
	else
		EXPECT(s.recvs >= ASKED); /* for all connections there may be, to begin with */
	EXPECT(answer_received(w) || w->protocol == GN_MSG_UD || w->protocol == GN_MSG_READ ||
	       s.looks > 0 || !w->simulated);
	if (!w->simulated)
		return 0; /* there the fabric is only this side's */
	EXPECT(posted(after) - posted(before) == s.wrs);
	EXPECT(after->doorbells - before->doorbells == s.doorbells);
	return 0;
}

static int costs(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_counters before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;
	struct gn_msg_stats s = {.size = sizeof(s)};

	(void)client;
	opts.pending = PENDING;
	opts.request_bytes = 16;
	opts.value_bytes = 50;
	opts.max_conns = 1;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	EXPECT(gn_fabric_counters(fabric, &before) == 0);
	EXPECT(batches(w, requester, conn) == 0);
	EXPECT(gn_fabric_counters(fabric, &after) == 0);
	EXPECT(check_requester(w, requester, &before, &after) == 0);
	gn_msg_conn_close(conn);
	gn_msg_requester_destroy(requester);
	world_down(w);
	s = w->stats;
	if (w->protocol == GN_MSG_READ) {
		EXPECT(s.requests == 0 && s.answers == 0 && s.wrs == 0 && s.doorbells == 0);
		EXPECT(s.recvs == 0);
		return 0;
	}
	EXPECT(s.requests == ASKED && s.answers == ASKED && s.failed == 0 && s.repeats == 0);
	EXPECT(s.wrs == ASKED);
	/* One for each, or for all that were there together: at most as many. */
	if (w->flags & GN_MSG_PAPER)
		EXPECT(s.doorbells == ASKED);
	else
		EXPECT(s.doorbells >= BATCHES && s.doorbells <= ASKED);
	/* Those that wait for requests to begin with, and one for each that came. */
	if (w->protocol != GN_MSG_UD)
		EXPECT(s.recvs == (request_received(w) ? PENDING + ASKED : 0));
	return 0;
}

/* Refused requests, and those lost with the responder, count as failed. */
static int failures(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	const struct want bad = {.len = 8, .value_len = REFUSE, .status = GN_MSG_REFUSED};
	const struct want good = {.seed = 1, .len = 8, .value_len = 8};
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_result result;
	struct gn_msg_conn *conn;
	struct gn_msg_stats s = {.size = sizeof(s)};
	uint8_t room[16];

	(void)client;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	EXPECT(one(w, requester, conn, &bad, NULL) == 0);
	EXPECT(one(w, requester, conn, &good, NULL) == 0);
	EXPECT(one(w, requester, conn, &bad, NULL) == 0);
	world_still(w);
	EXPECT(begin(w, conn, &good, 9, room) == 0);
	EXPECT(gn_msg_flush(requester) == 0);
	world_down(w);
	EXPECT(gn_msg_take(requester, &result, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
	EXPECT(result.status == GN_MSG_GONE && result.id == 9);
	gn_msg_requester_stats(requester, &s);
	EXPECT(s.requests == 4 && s.failed == 3 && s.answers == 1);
	EXPECT(w->stats.requests == 3 && w->stats.failed == 2 && w->stats.answers == 3);
	gn_msg_requester_destroy(requester);
	return 0;
}

/* With the name of a case, only that one. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		MSG_TEST(test_costs, EVERYWHERE, ALL, .program = costs, .clients = 1,
			 .data_bytes = GN_PAGE),
		MSG_TEST(test_failures, EVERYWHERE, BUT_READ, .program = failures, .clients = 1),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
