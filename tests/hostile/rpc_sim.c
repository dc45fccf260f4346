/* SPDX-License-Identifier: MIT */
/*
 * Clients whose timing is the attack, on simulated cards: they acknowledge a reply before it has
 * been written, and vanish with as many outstanding requests as a server allows.
 */
#include "rpc_raw.h"
#include "unit_sim.h"

/* ---- a reply that is acknowledged while it is written ---- */

#define CALLS 40u

/* Fetches only the head: that is faster than the WRITE of the whole result. */
static int see_result(struct raw_client *r, uint32_t number)
{
	const struct gn_sge sge = {r->buf, RPC_ALIGN, gn_mr_lkey(r->ep.raw.mr)};
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	const uint64_t at = (number & (r->welcome.slots - 1)) * rpc_stride(r->welcome.max_result);
	struct gn_wr wr;
	uint64_t seq;

	do {
		gn_wr_rdma(&wr, GN_OP_READ, 0, &sge,
			   &(struct gn_remote){.key = r->welcome.result_key}, at, 0);
		EXPECT(raw_post(r, &wr) == 0);
		EXPECT(gn_now_ns() < deadline_ns);
		memcpy(&seq, r->buf, sizeof(seq));
	} while (seq != rpc_seq(r->welcome.epoch, number));
	return 0;
}

/* Calls with results of the given lengths in turn, each acknowledged before it is complete. */
static int ack_early(struct gn_fabric *fabric, uint32_t slots, uint32_t calls,
		     const uint32_t *lengths, uint32_t n_lengths)
{
	struct raw_client r = {.fabric = fabric, .flags = RPC_REPLY};
	struct rpc_hello hello = raw_hello(4);

	hello.slots = slots;
	EXPECT(raw_connect(&r, SIM_ADDR, hello) == 0);
	for (uint32_t i = 1; i <= calls; i++) {
		const struct two want = {lengths[i % n_lengths], i};

		EXPECT(raw_send(&r, BLOB, &want, sizeof(want), 1, i - 1) == 0);
		EXPECT(see_result(&r, i) == 0);
	}
	raw_end(&r);
	return 0;
}

static int early_ack(struct world *w, struct gn_fabric *fabric)
{
	return ack_early(fabric, 1 + (w->arg & 1), CALLS, (const uint32_t[]){4000}, 1);
}

/* The simulator ends the run if the buffer of a WRITE changes before it has completed. */
static void test_early_ack(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	assert_non_null(w);
	w->program = early_ack;
	for (w->arg = 0; w->arg < 4; w->arg++)
		simulate(w, w->arg & 2 ? "cx3" : "ideal", 0, 1 + w->arg, 1);
	free(w);
}

/* ---- a reply whose completion is late, and the next from the same slot ---- */

#define TINY	   8u /* bytes: posted inline */
#define MORE_CALLS 600u

/*
 * Inline replies and longer ones in turn, all from one slot. The slot of an inline reply is free at
 * once, so its completion says nothing about the reply that is being written from the slot by then.
 */
static int late_inline(struct world *w, struct gn_fabric *fabric)
{
	(void)w;
	return ack_early(fabric, 1, MORE_CALLS, (const uint32_t[]){4000, TINY, 4000}, 3);
}

static void test_late_inline(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	assert_non_null(w);
	w->program = late_inline;
	w->faults = "late-completion@0ms+10s:n0";
	for (w->arg = 0; w->arg < 8; w->arg++) {
		w->opts.flags = w->arg & 1 ? GN_RPC_SYNC_REPLY : 0;
		simulate(w, w->arg & 2 ? "cx3" : "ideal", 0, 1 + w->arg, 1);
	}
	free(w);
}

/* ---- an honest, slow client ---- */

#define ENTRIES	   128u
#define WINDOW	   (GN_RPC_SLOTS_DEFAULT * ENTRIES)
#define BLOB_BYTES 4000u
#define LARGE_MOST (32u << 10)
#define LARGE	   16u /* of the calls */

struct slow_call {
	struct gn_rpc_op op;
	struct two want;
	uint8_t *result;
	bool done;
};

static void note_done(struct gn_rpc_op *op)
{
	struct slow_call *call = op->arg;

	call->done = true;
}

/* Large results may be refused, but not results that fit a slot. */
static int check_slow(const struct slow_call *call)
{
	const bool large = call->want.bytes > BLOB_BYTES;

	EXPECT(call->done);
	if (large && call->op.status == GN_RPC_BUSY)
		return 0;
	EXPECT(call->op.status == GN_RPC_OK && call->op.result_len == call->want.bytes);
	EXPECT(is_filled(call->result, call->want.bytes, call->want.arg));
	return 0;
}

/* The whole window is outstanding, and the client consumes no result until all are there. */
static int slow_client(struct world *w, struct gn_fabric *fabric)
{
	struct slow_call *calls = gn_alloc(WINDOW * sizeof(*calls), 0);
	uint8_t *results = gn_alloc((size_t)WINDOW * LARGE_MOST, 0);
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};

	EXPECT(calls && results);
	opts.batch = (struct gn_rpc_batch){ENTRIES, 0, 1000, 0, 0};
	EXPECT(gn_rpc_client_open(fabric, SIM_ADDR, &opts, &client) == 0);
	for (unsigned i = 0; i < WINDOW; i++) {
		struct slow_call *call = &calls[i];

		call->want = (struct two){i < LARGE ? LARGE_MOST : BLOB_BYTES, i};
		call->result = results + (size_t)i * LARGE_MOST;
		call->op = (struct gn_rpc_op){.method = BLOB,
					      .request = &call->want,
					      .request_len = sizeof(call->want),
					      .result = call->result,
					      .result_room = LARGE_MOST,
					      .done = note_done,
					      .arg = call};
		EXPECT(gn_rpc_submit(client, &call->op) == 0);
	}
	EXPECT(gn_rpc_flush(client) == 0);
	gn_sleep_us(50000);
	EXPECT(gn_rpc_server_counters(w->service.server, &count) == 0);
	EXPECT(count.calls == WINDOW);
	while (gn_rpc_wait(client, deadline_ns) > 0 && !calls[WINDOW - 1].done)
		EXPECT(gn_now_ns() < deadline_ns);
	for (unsigned i = 0; i < WINDOW; i++)
		EXPECT(check_slow(&calls[i]) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(results);
	gn_free(calls);
	return 0;
}

/* By default all results of a window can be kept, however little is left for large messages. */
static void test_slow_client(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	assert_non_null(w);
	w->program = slow_client;
	w->opts.max_large = LARGE_MOST;
	simulate(w, "ideal", 0, 1, 1);
	free(w);
}

/* ---- many connections break at once ---- */

#define GROUP	  70u /* hostile connections */
#define GROUP_MAX 64u /* bytes per slot */
#define HOLD_US	  1000000u
#define LONGER_US 6000000u /* than a card retries */
#define CRASH	  "crash@600ms:n1"

struct broken {
	struct world world;
	unsigned admitted, refused;
	uint64_t slots;
};

/* A server on n0, an attacker on n1, and on n2 a client that must be served. */
struct attack {
	uint64_t seed;
	const char *faults;
	gn_node_main *attacker, *honest;
	bool crashes; /* the attacker does not return */
};

static void attack_run(const struct attack *a, struct broken *b)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = "ideal",
					 .seed = a->seed,
					 .nodes = 3,
					 .limit_ns = 60000000000u};
	struct gn_sim *sim;
	int status = -1;

	b->world.simulated = true;
	b->world.addr = SIM_ADDR;
	b->world.running = 1;
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	assert_int_equal(gn_sim_inject(sim, a->faults), 0);
	assert_int_equal(gn_sim_spawn(sim, 0, sim_server, 0, NULL, &b->world, NULL), 0);
	assert_int_equal(gn_sim_spawn(sim, 1, a->attacker, 0, NULL, b, NULL), 0);
	assert_int_equal(gn_sim_spawn(sim, 2, a->honest, 0, NULL, b, NULL), 0);
	assert_int_equal(gn_sim_run(sim), 0);
	for (unsigned process = 0; process <= 2; process++) {
		if (process == 1 && a->crashes)
			continue;
		assert_int_equal(gn_sim_status(sim, process, &status), 0);
		assert_int_equal(status, 0);
	}
	gn_sim_destroy(sim);
}

/* A message in every slot, written at once. */
static int fill_slots(struct raw_client *r)
{
	const uint64_t stride = rpc_stride(r->welcome.max_request);
	const uint32_t slots = r->welcome.slots;
	const struct rpc_entry entry = {.code = ECHO};
	struct gn_wr wake;

	for (uint32_t n = 1; n <= slots; n++) {
		uint8_t *to = r->buf + (n & (slots - 1)) * stride;
		const struct rpc_seal seal = {.seq = rpc_seq(r->welcome.epoch, n),
					      .nonce = r->hello.nonce,
					      .len = sizeof(entry),
					      .aux = 1,
					      .flags = RPC_REPLY};

		memcpy(to + sizeof(struct rpc_head), &entry, sizeof(entry));
		rpc_seal(to, &seal);
	}
	EXPECT(slots * stride <= RAW_BYTES);
	EXPECT(raw_write(r, 0, (uint32_t)(slots * stride)) == 0);
	gn_wr_init(&wake, GN_OP_WRITE_IMM, 0, NULL, 0, GN_SOLICITED);
	EXPECT(raw_post(r, &wake) == 0);
	return 0;
}

PROGRAM(vanish)
{
	struct broken *b = env->arg;
	struct raw_client *group = gn_alloc(GROUP * sizeof(*group), 0);
	struct gn_fabric *fabric;

	EXPECT(group && gn_fabric_open(env->fabric, &fabric) == 0);
	gn_sleep_us(20);
	for (unsigned i = 0; i < GROUP; i++) {
		struct rpc_hello hello = raw_hello(GN_RPC_WINDOW_MAX);
		int rc;

		hello.slots = GN_RPC_SLOTS_MAX / 2;
		hello.max_request = hello.max_result = GROUP_MAX;
		group[i].fabric = fabric;
		rc = raw_connect(&group[i], SIM_ADDR, hello);
		EXPECT(rc == 0 || rc == -ECONNREFUSED);
		b->admitted += !rc;
		b->refused += !!rc;
		if (!rc)
			b->slots += group[i].welcome.slots;
	}
	gn_sleep_us(200000); /* the other holds the server's thread */
	for (unsigned i = 0; i < GROUP; i++)
		if (group[i].up)
			EXPECT(fill_slots(&group[i]) == 0);
	gn_sleep_us(60000000); /* it does not live that long */
	return 0;
}

static int hold_thread(struct gn_rpc_client *client, uint32_t us)
{
	unsigned status = GN_RPC_FAILED;

	EXPECT(gn_rpc_call(client, SLOW, &us, sizeof(us), NULL, 0, NULL,
			   gn_deadline_us(UNIT_PATIENCE_US), &status) == 0);
	EXPECT(status == GN_RPC_OK);
	return 0;
}

PROGRAM(witness)
{
	struct broken *b = env->arg;
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_REPLY);
	struct gn_rpc_client *client;
	struct gn_fabric *fabric;

	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	gn_sleep_us(100000);
	EXPECT(gn_rpc_client_open(fabric, SIM_ADDR, &opts, &client) == 0);
	/* Requests are written meanwhile, and their clients vanish. */
	EXPECT(hold_thread(client, HOLD_US) == 0);
	for (unsigned i = 0; i < 200; i++)
		EXPECT(call_echo(client, ECHO, i, i) == 0);
	/*
	 * Replies to vanished clients are outstanding; all of them are flushed while nobody polls.
	 */
	EXPECT(hold_thread(client, LONGER_US) == 0);
	for (unsigned i = 0; i < 200; i++)
		EXPECT(call_echo(client, ECHO, i, i) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	b->world.running = 0;
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static void test_flushed_at_once(void **state)
{
	const struct attack attack = {
		.seed = 3, .faults = CRASH, .attacker = vanish, .honest = witness, .crashes = true};
	struct broken *b = calloc(1, sizeof(*b));

	(void)state;
	assert_non_null(b);
	b->world.opts = (struct gn_rpc_server_opts){.size = sizeof(struct gn_rpc_server_opts),
						    .max_slots = GN_RPC_SLOTS_MAX,
						    .max_request = GROUP_MAX * 16,
						    .max_result = GROUP_MAX * 16};
	attack_run(&attack, b);
	print_message("# %u clients with %llu slots vanished at once, %u had been refused\n",
		      b->admitted, (unsigned long long)b->slots, b->refused);
	assert_true(b->admitted > GROUP / 2);
	free(b);
}

/* ---- connections that are never established ---- */

#define ASKED	 32u
/*
 * While connection requests wait for the server's node, n1 is cut off: it does not receive the
 * acceptances.
 */
#define DEAFNESS "pause@19ms+10ms:n0,partition@25ms:n0>n1"

/* Requests connections, and receives nothing from the server. */
PROGRAM(deaf)
{
	const struct rpc_hello hello = raw_hello(16);
	const struct gn_conn_opts conn = {
		.size = sizeof(conn), .private_data = &hello, .private_len = sizeof(hello)};
	struct raw_client *group = gn_alloc(ASKED * sizeof(*group), 0);
	struct gn_fabric *fabric;

	EXPECT(group && gn_fabric_open(env->fabric, &fabric) == 0);
	gn_sleep_us(20000); /* the server's thread is held */
	for (unsigned i = 0; i < ASKED; i++) {
		group[i].fabric = fabric;
		EXPECT(raw_make(&group[i]) == 0);
		EXPECT(gn_connect(group[i].ep.raw.qp, SIM_ADDR, &conn) == 0);
	}
	gn_sleep_us(3000000);
	for (unsigned i = 0; i < ASKED; i++)
		raw_end(&group[i]);
	gn_free(group);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

PROGRAM(newcomer)
{
	struct broken *b = env->arg;
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct gn_rpc_client *client;
	struct gn_fabric *fabric;

	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	gn_sleep_us(1000);
	EXPECT(gn_rpc_client_open(fabric, SIM_ADDR, &opts, &client) == 0);
	EXPECT(hold_thread(client, 100000) == 0);
	gn_sleep_us(50000);
	EXPECT(gn_rpc_server_counters(b->world.service.server, &count) == 0);
	b->admitted = (unsigned)count.clients - 1;
	b->refused = (unsigned)count.refused;
	gn_sleep_us(1500000);
	EXPECT(gn_rpc_server_counters(b->world.service.server, &count) == 0);
	EXPECT(count.clients == 1);
	for (unsigned i = 0; i < 20; i++)
		EXPECT(call_echo(client, ECHO, i, i) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	b->world.running = 0;
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

/* A quarter of max_clients, at least 16, for a second each. */
static void test_half_open(void **state)
{
	const struct attack attack = {
		.seed = 4, .faults = DEAFNESS, .attacker = deaf, .honest = newcomer};
	struct broken *b = calloc(1, sizeof(*b));

	(void)state;
	assert_non_null(b);
	b->world.opts = (struct gn_rpc_server_opts){.size = sizeof(struct gn_rpc_server_opts),
						    .max_clients = ASKED};
	attack_run(&attack, b);
	print_message("# of %u half-open connections %u were kept, and %u refused\n", ASKED,
		      b->admitted, b->refused);
	assert_int_equal(b->admitted, 16);
	assert_int_equal(b->refused, ASKED - 16);
	free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_early_ack, sim_setup, sim_teardown),
		cmocka_unit_test_setup_teardown(test_late_inline, sim_setup, sim_teardown),
		cmocka_unit_test_setup_teardown(test_slow_client, sim_setup, sim_teardown),
		cmocka_unit_test_setup_teardown(test_flushed_at_once, sim_setup, sim_teardown),
		cmocka_unit_test_setup_teardown(test_half_open, sim_setup, sim_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
