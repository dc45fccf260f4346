/* SPDX-License-Identifier: MIT */
/*
 * Hostile clients of a donor: forged, replayed, foreign and revoked tokens; keys and ranges that are
 * not theirs; malformed messages; and clients that take all they can get. They are refused, at a
 * bounded cost, and an honest client does not notice.
 */
#include "../unit/donor_world.h"

#define N	   4096u
#define GUESSES	   1000000u
#define AT_ONCE	   512u
#define SESSIONS   4u
#define SHARES	   6u
#define OWN_SHARES 4u
#define OWN_SLABS  3u
#define CONNS	   5u

/* A client with a slab that has its bytes in it, and must keep them. */
struct honest {
	struct donor_raw raw;
	struct raw_endpoint e;
	struct donor_grant_result slab;
};

static int honest_open(struct donor_world *w, struct gn_fabric *fabric, struct honest *h)
{
	struct io_attach_reply reply;
	struct io_attach a;

	*h = (struct honest){.slab.slab = 0};
	EXPECT(raw_open(w, fabric, &h->raw) == 0);
	EXPECT(raw_grant(&h->raw, &h->slab) == GN_RPC_OK);
	a = raw_attach_request(&h->raw, 0, 10);
	EXPECT(raw_attach(&h->raw, &a, &h->e, &reply) == IO_ATTACH_OK);
	EXPECT(raw_write_seed(&h->e, &h->slab.remote, 0, SLAB, 99) == GN_WC_OK);
	return 0;
}

/* Its connection has not been touched, and neither has its memory. */
static int honest_close(struct honest *h)
{
	EXPECT(raw_has_seed(&h->e, &h->slab.remote, 0, SLAB, 99));
	EXPECT(raw_release(&h->raw, h->slab.slab) == GN_RPC_OK);
	raw_endpoint_end(&h->e);
	raw_close(&h->raw);
	return 0;
}

/* ---- tokens ---- */

static int refused(const struct donor_raw *raw, const struct io_attach *a, unsigned status)
{
	struct raw_endpoint e = {.ctx = NULL};
	struct io_attach_reply reply;
	const int rc = raw_attach_bytes(raw, a, sizeof(*a), &e, &reply);

	raw_endpoint_end(&e);
	EXPECT(rc == (int)status);
	/* Nothing about any range. */
	EXPECT(!reply.key && !reply.length && !reply.offset && !reply.rights);
	return 0;
}

static int tokens_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct donor_token share;
	struct donor_grant_result slab;
	struct donor_raw evil;
	struct honest h;
	struct io_attach a;

	EXPECT(honest_open(w, fabric, &h) == 0);
	EXPECT(raw_open(w, fabric, &evil) == 0);
	/* Almost the honest client's. */
	for (unsigned bit = 0; bit < 8 * IO_TOKEN_BYTES; bit += 37) {
		a = raw_attach_request(&h.raw, 0, 11);
		a.token[bit / 8] ^= (uint8_t)(1u << bit % 8);
		EXPECT(refused(&evil, &a, IO_ATTACH_BAD_TOKEN) == 0);
		EXPECT(raw_hello(&(struct donor_raw){.rpc = evil.rpc}, "me", a.token,
				 h.raw.hello.incarnation) == GN_RPC_DENIED); /* has a session */
	}
	/* Replayed: the generation is not new. */
	a = raw_attach_request(&h.raw, 0, 10);
	EXPECT(refused(&evil, &a, IO_ATTACH_OLD_GENERATION) == 0);
	a.generation = 1;
	EXPECT(refused(&evil, &a, IO_ATTACH_OLD_GENERATION) == 0);
	/* A session's token is no share's, and vice versa. */
	a = raw_attach_request(&h.raw, 1, 1);
	a.kind = IO_ATTACH_SHARE;
	EXPECT(refused(&evil, &a, IO_ATTACH_BAD_TOKEN) == 0);
	EXPECT(raw_share(&h.raw, h.slab.slab, 0, N, IO_RIGHT_READ, &share) == GN_RPC_OK);
	a = raw_attach_share(&h.raw, &share, 0, 1);
	a.kind = IO_ATTACH_SESSION;
	EXPECT(refused(&evil, &a, IO_ATTACH_BAD_TOKEN) == 0);
	/* Foreign: only its owner revokes it, and shares or releases the slab. */
	EXPECT(raw_revoke(&evil, &share) == DONOR_NOT_FOUND);
	EXPECT(raw_release(&evil, h.slab.slab) == DONOR_NOT_FOUND);
	EXPECT(raw_share(&evil, h.slab.slab, 0, N, IO_RIGHT_READ, &share) == DONOR_NOT_FOUND);
	EXPECT(raw_grant(&evil, &slab) == GN_RPC_OK);
	EXPECT(raw_release(&h.raw, slab.slab) == DONOR_NOT_FOUND);
	/* Of a donor that ran before. */
	a = raw_attach_request(&h.raw, 0, 11);
	a.incarnation ^= 2;
	EXPECT(refused(&evil, &a, IO_ATTACH_OTHER_INCARNATION) == 0);
	raw_close(&evil);
	return honest_close(&h);
}

static void test_tokens(void **state)
{
	(void)state;
	donor_run(NULL, tokens_program);
}

struct guesses {
	struct gn_rpc_op ops[AT_ONCE];
	struct donor_hello hello[AT_ONCE];
	unsigned wrong;
};

static void guessed(struct gn_rpc_op *op)
{
	((struct guesses *)op->arg)->wrong += op->status == DONOR_NO_SESSION;
}

/* A million wrong tokens: each is refused, and an honest client's calls go on beside them. */
static int guesses_program(struct donor_world *w, struct gn_fabric *fabric)
{
	const unsigned n = w->simulated || unit_slow() ? GUESSES / 100 : GUESSES;
	const struct gn_rpc_client_opts opts = {.size = sizeof(opts), .batch = {.entries = 32}};
	struct guesses *g = calloc(1, sizeof(*g));
	struct gn_donor_stats stats;
	struct donor_raw evil = {.fabric = fabric};
	struct honest h;
	unsigned done = 0;

	EXPECT(g && honest_open(w, fabric, &h) == 0);
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &evil.rpc) == 0);
	while (done < n) {
		const unsigned some = n - done < AT_ONCE ? n - done : AT_ONCE;

		for (unsigned i = 0; i < some; i++) {
			g->hello[i] = (struct donor_hello){.version = DONOR_VERSION,
							   .resume = 1,
							   .incarnation = h.raw.hello.incarnation};
			memcpy(g->hello[i].token, h.raw.hello.token, IO_TOKEN_BYTES);
			g->hello[i].token[(done + i) % IO_TOKEN_BYTES] ^=
				(uint8_t)(1 + (done + i) / IO_TOKEN_BYTES % 255);
			g->ops[i] =
				(struct gn_rpc_op){.method = DONOR_HELLO,
						   .request = &g->hello[i],
						   .request_len = sizeof(g->hello[i]),
						   .done = guessed,
						   .arg = g,
						   .deadline_ns = gn_deadline_us(UNIT_PATIENCE_US)};
		}
		EXPECT(gn_rpc_call_all(evil.rpc, g->ops, some) == 0);
		done += some;
		if (done % (64 * AT_ONCE) == 0)
			EXPECT(raw_has_seed(&h.e, &h.slab.remote, 0, N, 99));
	}
	EXPECT(g->wrong == n);
	print_message("# %u wrong tokens refused\n", n);
	free(g);
	EXPECT(raw_stats(&h.raw, &stats) == 0);
	EXPECT(stats.bad_tokens == n && stats.sessions == 1 && stats.granted == 1);
	raw_close(&evil);
	return honest_close(&h);
}

static void test_guesses(void **state)
{
	(void)state;
	donor_run(NULL, guesses_program);
}

/* ---- keys and ranges ---- */

/* A session's connection reaches its own slabs only: with its bounds, and not with other keys. */
static int keys_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct donor_grant_result slab;
	struct donor_token share;
	struct donor_raw evil;
	struct honest h;
	uint32_t generation = 1;

	EXPECT(honest_open(w, fabric, &h) == 0);
	EXPECT(raw_open(w, fabric, &evil) == 0);
	EXPECT(raw_grant(&evil, &slab) == GN_RPC_OK);
	for (unsigned i = 0; i < 4; i++) {
		const struct donor_remote *to = i == 0 ? &h.slab.remote :
						i == 1 ? &h.raw.hello.lease :
							 &slab.remote;
		const uint64_t offset = i == 2 ? SLAB - N + 1 : i == 3 ? UINT64_MAX - N + 2 : 0;
		struct raw_endpoint e = {.ctx = NULL};
		struct io_attach_reply reply;
		struct io_attach a = raw_attach_request(&evil, 0, generation++);

		EXPECT(raw_attach(&evil, &a, &e, &reply) == IO_ATTACH_OK);
		EXPECT(raw_write_seed(&e, to, offset, N, i) == GN_WC_REMOTE_ACCESS);
		raw_endpoint_end(&e);
	}
	for (unsigned i = 0; i < 8; i++) {
		static const struct {
			uint64_t offset, length;
			uint32_t rights;
		} bad[8] = {{0, 0, 1},	  {1, N, 1},	    {0, N + 1, 1},
			    {SLAB, N, 1}, {0, SLAB + N, 1}, {UINT64_MAX - N + 1, N, 1},
			    {0, N, 0},	  {0, N, 4}};

		EXPECT(raw_share(&evil, slab.slab, bad[i].offset, bad[i].length, bad[i].rights,
				 &share) == DONOR_INVALID);
	}
	raw_close(&evil);
	return honest_close(&h);
}

static void test_keys(void **state)
{
	(void)state;
	donor_run(NULL, keys_program);
}

/* ---- malformed ---- */

static int malformed_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct donor_raw evil;
	struct honest h;

	EXPECT(honest_open(w, fabric, &h) == 0);
	EXPECT(raw_open(w, fabric, &evil) == 0);
	for (unsigned i = 0; i < 8; i++) {
		struct io_attach a = raw_attach_request(&evil, 0, 1);
		struct raw_endpoint e = {.ctx = NULL};
		struct io_attach_reply reply;
		uint32_t len = sizeof(a);
		int status;

		switch (i) {
		case 0:
			a.magic++;
			break;
		case 1:
			a.version++;
			break;
		case 2:
			a.kind = 0;
			break;
		case 3:
			a.kind = 3;
			break;
		case 4:
			a.reserved = 1;
			break;
		case 5:
			a.channel = IO_CHANNELS_MAX;
			break;
		case 6:
			a.generation = 0;
			break;
		default:
			len = 0;
		}
		status = raw_attach_bytes(&evil, len ? &a : NULL, len, &e, &reply);
		EXPECT(status == (i == 1 ? IO_ATTACH_BAD_VERSION : IO_ATTACH_BAD_REQUEST));
		raw_endpoint_end(&e);
	}
	/* Calls of a wrong length, and unknown ones. */
	for (unsigned method = DONOR_HELLO; method <= DONOR_END + 1; method++) {
		uint8_t bytes[512] = {1};
		const unsigned status =
			raw_call(&evil, method, bytes, sizeof(bytes), bytes, sizeof(bytes), NULL);

		EXPECT(status != UINT32_MAX);
		EXPECT(status != GN_RPC_OK || method == DONOR_GRANT || method == DONOR_STATS ||
		       method == DONOR_END);
		if (method == DONOR_REVOKE)
			method = DONOR_NOTICE; /* the next ones; LIST and NOTICE have tests */
	}
	raw_close(&evil);
	return honest_close(&h);
}

static void test_malformed(void **state)
{
	(void)state;
	donor_run(NULL, malformed_program);
}

/* ---- limits ---- */

static int limits_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct donor_raw raw[SESSIONS + 1];
	struct donor_grant_result slab[OWN_SLABS + 1];
	struct raw_endpoint e[CONNS + 1] = {{.ctx = NULL}};
	struct donor_token token[SHARES + 1];
	struct gn_donor_stats stats;
	struct io_attach_reply reply;
	struct io_attach a;

	for (unsigned i = 0; i < SESSIONS; i++)
		EXPECT(raw_open(w, fabric, &raw[i]) == 0);
	EXPECT(raw_connect(w, fabric, &raw[SESSIONS]) == 0);
	EXPECT(raw_hello(&raw[SESSIONS], "me", NULL, 0) == DONOR_LIMIT);
	for (unsigned i = 0; i < OWN_SLABS; i++)
		EXPECT(raw_grant(&raw[0], &slab[i]) == GN_RPC_OK);
	EXPECT(raw_grant(&raw[0], &slab[OWN_SLABS]) == DONOR_LIMIT);
	for (unsigned i = 0; i < OWN_SHARES; i++)
		EXPECT(raw_share(&raw[0], slab[0].slab, 0, N, IO_RIGHT_READ, &token[i]) ==
		       GN_RPC_OK);
	EXPECT(raw_share(&raw[0], slab[0].slab, 0, N, IO_RIGHT_READ, &token[SHARES]) ==
	       DONOR_LIMIT);
	EXPECT(raw_grant(&raw[1], &slab[OWN_SLABS]) == GN_RPC_OK);
	for (unsigned i = OWN_SHARES; i < SHARES; i++)
		EXPECT(raw_share(&raw[1], slab[OWN_SLABS].slab, 0, N, IO_RIGHT_READ, &token[i]) ==
		       GN_RPC_OK);
	EXPECT(raw_share(&raw[1], slab[OWN_SLABS].slab, 0, N, IO_RIGHT_READ, &token[SHARES]) ==
	       DONOR_LIMIT);
	for (unsigned i = 0; i <= CONNS; i++) {
		const int want = i < CONNS ? IO_ATTACH_OK : IO_ATTACH_BUSY;

		a = raw_attach_request(&raw[i % 2], i, 1);
		EXPECT(raw_attach_bytes(&raw[0], &a, sizeof(a), &e[i], &reply) == want);
	}
	EXPECT(raw_stats(&raw[0], &stats) == 0);
	EXPECT(stats.sessions == SESSIONS && stats.shares == SHARES && stats.conns == CONNS);
	EXPECT(stats.busy == 2);
	/* What one gives back, another gets. */
	raw_close(&raw[3]);
	RAW_AWAIT(&raw[0], sessions, SESSIONS - 1);
	EXPECT(raw_hello(&raw[SESSIONS], "me", NULL, 0) == GN_RPC_OK);
	EXPECT(raw_revoke(&raw[0], &token[0]) == GN_RPC_OK);
	EXPECT(raw_share(&raw[0], slab[0].slab, 0, N, IO_RIGHT_READ, &token[0]) == GN_RPC_OK);
	for (unsigned i = 0; i <= CONNS; i++)
		raw_endpoint_end(&e[i]);
	for (unsigned i = 0; i <= SESSIONS; i++)
		raw_close(&raw[i]);
	return 0;
}

static void test_limits(void **state)
{
	const struct gn_donor_server_opts opts = {.max_sessions = SESSIONS,
						  .max_client_slabs = OWN_SLABS,
						  .max_shares = SHARES,
						  .max_client_shares = OWN_SHARES,
						  .max_conns = CONNS};

	(void)state;
	donor_run(&opts, limits_program);
}

/*
 * Connections that are accepted and not established yet: one at a time here. ESTABLISHED comes late,
 * so others are refused; each gets in when it tries again.
 */
static int opening_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct raw_endpoint e[IO_CHANNELS_MAX] = {{.ctx = NULL}};
	struct io_attach_reply reply;
	struct gn_donor_stats stats;
	struct donor_raw raw;
	struct io_attach a;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	for (unsigned i = 0; i < IO_CHANNELS_MAX; i++) {
		a = raw_attach_request(&raw, i, 1);
		EXPECT(raw_attach(&raw, &a, &e[i], &reply) == IO_ATTACH_OK);
	}
	EXPECT(raw_stats(&raw, &stats) == 0);
	EXPECT(stats.conns == IO_CHANNELS_MAX && stats.busy > 0);
	for (unsigned i = 0; i < IO_CHANNELS_MAX; i++)
		raw_endpoint_end(&e[i]);
	raw_close(&raw);
	return 0;
}

static void test_opening(void **state)
{
	struct donor_world w = {.program = opening_program,
				.opts = {.max_opening = 1},
				.faults = "late-established=100%"};

	(void)state;
	donor_run_simulated(&w, "ideal", 0);
}

/* ---- calls that wait ---- */

struct waiting {
	struct gn_rpc_op op;
	struct donor_grant_result result;
	unsigned *ended;
};

static void waiting_done(struct gn_rpc_op *op)
{
	++*((struct waiting *)op->arg)->ended;
}

/*
 * GRANT calls beyond what there is, canceled or left behind: each ends, nothing is granted to nobody,
 * and sessions of clients that left end.
 */
static int abandon_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct waiting calls[12];
	unsigned ended = 0, granted = 0;
	struct gn_donor_stats stats;
	struct donor_raw evil;
	struct honest h;

	EXPECT(honest_open(w, fabric, &h) == 0);
	for (unsigned round = 0; round < 3; round++) {
		EXPECT(raw_open(w, fabric, &evil) == 0);
		for (unsigned i = 0; i < 12; i++) {
			calls[i] = (struct waiting){.op = {.method = DONOR_GRANT,
							   .result = &calls[i].result,
							   .result_room = sizeof(calls[i].result),
							   .done = waiting_done,
							   .arg = &calls[i]},
						    .ended = &ended};
			EXPECT(gn_rpc_submit(evil.rpc, &calls[i].op) == 0);
		}
		EXPECT(gn_rpc_flush(evil.rpc) == 0);
		for (unsigned i = 0; i < 12 && round == 1; i += 2)
			gn_rpc_cancel(&calls[i].op);
		for (unsigned i = 0; i < 100 && round < 2 && ended % 12; i++)
			gn_rpc_wait(evil.rpc, gn_deadline_us(1000));
		raw_close(&evil); /* in the last round at once */
		EXPECT(ended == 12 * (round + 1));
	}
	for (unsigned i = 0; i < 12; i++)
		granted += calls[i].op.status == GN_RPC_OK;
	EXPECT(granted <= 7);
	RAW_AWAIT(&h.raw, sessions, 1);
	RAW_AWAIT(&h.raw, granted, 1);
	EXPECT(raw_stats(&h.raw, &stats) == 0);
	EXPECT(stats.waiting == 0 && stats.orphans == 0);
	return honest_close(&h);
}

static void test_abandon(void **state)
{
	const struct gn_donor_server_opts opts = {.lease_us = 20000};

	(void)state;
	donor_run(&opts, abandon_program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tokens),	cmocka_unit_test(test_guesses),
		cmocka_unit_test(test_keys),	cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_limits),	cmocka_unit_test(test_opening),
		cmocka_unit_test(test_abandon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
