/* SPDX-License-Identifier: MIT */
/*
 * What peers of datagram calls can make an endpoint keep and wait for: answers that are never
 * acknowledged, requests that never become whole, handshakes that stall, thousands of peers, and
 * addresses where nobody is. docs/limits.md states the numbers.
 */
#include "dgram_raw.h"

#define STALL_NS   2000000000ull
#define HEAP_MORE  (64ull << 20)
#define ALL_SLOTS  GN_DGRAM_SLOTS
#define ANSWERS	   (1u << 20)
#define REASSEMBLY (512u << 10)
#define ROUNDS	   6u
#define PIECE	   200u
#define PEERS	   (unit_slow() ? 300u : 1000u)
#define MAX_PEERS  100u
#define STALLED	   100u
#define HANDSHAKES 16u

/* ---- large answers without an acknowledgement ---- */

/* Asks for the largest results in all slots, again and again, with whatever credits there are. */
static int ask_for_blobs(struct world *w, struct gn_fabric *fabric)
{
	struct raw raw[4];

	for (unsigned i = 0; i < 4; i++)
		EXPECT(raw_join(&raw[i], fabric, w->addr) == 0);
	for (uint32_t number = 0; number < ROUNDS * ALL_SLOTS; number++)
		for (unsigned i = 0; i < 4; i++) {
			const uint32_t bytes = GN_DGRAM_BYTES_MAX - number % 3;
			const struct dgram_msg msg = {.type = DGRAM_REQUEST,
						      .slot = (uint16_t)(number % ALL_SLOTS),
						      .number = number,
						      .code = BLOB,
						      .bytes = 4,
						      .total = 4};

			raw[i].head.want = 255;
			EXPECT(raw_say(&raw[i], &msg, &bytes) == 0);
		}
	for (unsigned i = 0; i < 4; i++)
		raw_free(&raw[i]);
	return 0;
}

static void check_blobs(const struct world *w)
{
	assert_in_range(w->most_kept, 1, ANSWERS);
	if (!unit_slow())
		assert_in_range(w->most_heap, 0, w->heap_before + HEAP_MORE);
}

static void test_unacknowledged_answers(void **state)
{
	struct world w = {.attack = ask_for_blobs,
			  .stall_ns = STALL_NS,
			  .opts = {.max_answer_bytes = ANSWERS}};

	(void)state;
	run_everywhere(&w, check_blobs);
}

/* ---- requests that never become whole ---- */

static int begin_requests(struct world *w, struct gn_fabric *fabric)
{
	struct raw raw[4];

	for (unsigned i = 0; i < 4; i++)
		EXPECT(raw_join(&raw[i], fabric, w->addr) == 0);
	for (uint32_t number = 0; number < ROUNDS * ALL_SLOTS; number++)
		for (unsigned i = 0; i < 4; i++) {
			struct dgram_msg msg = {.type = DGRAM_REQUEST,
						.slot = (uint16_t)(number % ALL_SLOTS),
						.number = number,
						.code = ECHO,
						.bytes = PIECE,
						.total = GN_DGRAM_BYTES_MAX};

			raw[i].head.want = 255;
			EXPECT(raw_say(&raw[i], &msg, NULL) == 0);
			/* Pieces of any place, also of a request that was refused. */
			msg.type = DGRAM_PIECE;
			msg.code = (uint16_t)(number % 2);
			msg.total = fuzz_pick(GN_DGRAM_BYTES_MAX / PIECE) * PIECE;
			EXPECT(raw_say(&raw[i], &msg, NULL) == 0);
		}
	for (unsigned i = 0; i < 4; i++)
		raw_free(&raw[i]);
	return 0;
}

static void check_requests(const struct world *w)
{
	assert_in_range(w->most_reassembly, 1, REASSEMBLY);
	assert_in_range(w->executed, w->calls, w->calls + 4 * ROUNDS * ALL_SLOTS);
	if (!unit_slow())
		assert_in_range(w->most_heap, 0, w->heap_before + HEAP_MORE);
}

static void test_endless_requests(void **state)
{
	struct world w = {.attack = begin_requests,
			  .stall_ns = STALL_NS,
			  .opts = {.max_peer_bytes = REASSEMBLY / 2, .max_bytes = REASSEMBLY}};

	(void)state;
	fuzz_begin();
	run_everywhere(&w, check_requests);
}

/* ---- handshakes that stall ---- */

/* As many connections as the node accepts, and none says a word. A new honest node is served. */
static int stall_handshakes(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_conn_opts opts = {.size = sizeof(opts)};
	static struct raw raw[STALLED];
	struct honest h;
	unsigned n = 0;

	for (; n < STALLED; n++) {
		EXPECT(raw_make(&raw[n], fabric) == 0);
		if (gn_connect(raw[n].ep.qp, w->addr, &opts))
			break;
	}
	EXPECT(honest_open(&h, w, fabric) == 0);
	EXPECT(honest_call(&h, w, 0) == 0);
	EXPECT(honest_close(&h) == 0);
	for (unsigned i = 0; i < STALLED && i <= n; i++)
		raw_free(&raw[i]);
	return 0;
}

static void check_stalled(const struct world *w)
{
	assert_in_range(w->most_peers, 0, 8);
}

static void test_stalled_handshakes(void **state)
{
	struct world w = {.attack = stall_handshakes,
			  .stall_ns = STALL_NS,
			  .opts = {.max_handshakes = HANDSHAKES}};

	(void)state;
	run_everywhere(&w, check_stalled);
}

/* ---- hellos of all sorts ---- */

static int say_hellos(struct world *w, struct gn_fabric *fabric)
{
	for (unsigned i = 0; i < 30; i++) {
		struct raw raw;
		uint32_t len = DGRAM_HELLO_BYTES(1);
		const uint32_t word = fuzz_strange();
		struct gn_wc wc;

		EXPECT(raw_make(&raw, fabric) == 0);
		if (i % 3 == 0)
			len = fuzz_pick(len);
		else if (i % 3 == 1)
			memcpy((uint8_t *)&raw.hello + fuzz_pick(64), &word, sizeof(word));
		else
			raw.hello.kind = fuzz_pick(10);
		/* Refused, or the connection ends without a reply. */
		EXPECT(raw_say_hello(&raw, w->addr, len ? len : 1) == 0);
		for (unsigned k = 0; k < 2; k++)
			gn_cq_wait(raw.ep.cq, &wc, 1, gn_deadline_us(20000), "a reply, or none");
		raw_free(&raw);
	}
	return 0;
}

static void check_hellos(const struct world *w)
{
	assert_in_range(w->node_stats.refused, 1, UINT64_MAX);
}

static void test_hellos(void **state)
{
	struct world w = {.attack = say_hellos, .stall_ns = STALL_NS};

	(void)state;
	fuzz_begin();
	run_everywhere(&w, check_hellos);
}

/* ---- thousands of peers ---- */

static int join_often(struct world *w, struct gn_fabric *fabric)
{
	const struct dgram_msg msg = {.type = DGRAM_REQUEST, .code = ECHO, .bytes = 8, .total = 8};
	const uint64_t since_ns = gn_now_ns();
	uint64_t seconds;
	unsigned joined = 0;

	for (unsigned i = 0; i < PEERS; i++) {
		struct raw raw;

		EXPECT(raw_make(&raw, fabric) == 0);
		EXPECT(raw_greet(&raw, w->addr, DGRAM_HELLO_BYTES(1)) == 0);
		if (raw.reply.kind == DGRAM_HELLO_OK) {
			EXPECT(gn_ah_create(raw.ud, &raw.reply.thread[0], &raw.ah) == 0);
			raw.head = (struct dgram_head){
				.version = DGRAM_VERSION,
				.count = 1,
				.peer = DGRAM_PEER(raw.reply.index, 0),
				.epoch = dgram_epoch(raw.hello.random, raw.reply.random)};
			EXPECT(raw_say(&raw, &msg, NULL) == 0);
			joined++;
		}
		raw_free(&raw);
	}
	/* Those that have been idle for a second give way. */
	seconds = (gn_now_ns() - since_ns) / 1000000000u;
	EXPECT(joined && joined < MAX_PEERS * (1 + seconds));
	return 0;
}

static void check_peers(const struct world *w)
{
	assert_in_range(w->most_peers, 1, MAX_PEERS);
	assert_in_range(w->node_stats.refused, 1, UINT64_MAX);
	if (!unit_slow())
		assert_in_range(w->most_heap, 0, w->heap_before + HEAP_MORE);
}

static void test_thousands_of_peers(void **state)
{
	struct world w = {
		.attack = join_often, .stall_ns = STALL_NS, .opts = {.max_peers = MAX_PEERS}};

	(void)state;
	run_everywhere(&w, check_peers);
}

/* ---- a hello from nowhere ---- */

/* The hello names an address where nobody is: the answer to its request must keep nobody waiting. */
static int from_nowhere(struct world *w, struct gn_fabric *fabric)
{
	static const uint8_t nowhere[16] = {[10] = 0xff, 0xff, 10, 77, 0, 99};
	const struct dgram_msg msg = {.type = DGRAM_REQUEST, .code = ECHO, .bytes = 8, .total = 8};

	for (unsigned i = 0; i < 4; i++) {
		struct raw raw;

		EXPECT(raw_make(&raw, fabric) == 0);
		memcpy(raw.hello.thread[0].gid, nowhere, sizeof(nowhere));
		raw.hello.thread[0].gid[15] = (uint8_t)(nowhere[15] + i);
		EXPECT(raw_greet(&raw, w->addr, DGRAM_HELLO_BYTES(1)) == 0);
		if (raw.reply.kind == DGRAM_HELLO_OK) {
			EXPECT(gn_ah_create(raw.ud, &raw.reply.thread[0], &raw.ah) == 0);
			raw.head = (struct dgram_head){
				.version = DGRAM_VERSION,
				.count = 1,
				.flags = DGRAM_ECHO,
				.peer = DGRAM_PEER(raw.reply.index, 0),
				.epoch = dgram_epoch(raw.hello.random, raw.reply.random)};
			EXPECT(raw_say(&raw, &msg, NULL) == 0);
		}
		raw_free(&raw);
	}
	return 0;
}

static void check_nowhere(const struct world *w)
{
	assert_in_range(w->stats.resets, 0, 0);
}

static void test_from_nowhere(void **state)
{
	struct world w = {.attack = from_nowhere, .stall_ns = STALL_NS / 3};

	(void)state;
	run_everywhere(&w, check_nowhere);
}

/* With the name of a case, only that one. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unacknowledged_answers),
		cmocka_unit_test(test_endless_requests),
		cmocka_unit_test(test_stalled_handshakes),
		cmocka_unit_test(test_hellos),
		cmocka_unit_test(test_thousands_of_peers),
		cmocka_unit_test(test_from_nowhere),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
