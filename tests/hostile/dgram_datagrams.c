/* SPDX-License-Identifier: MIT */
/*
 * Hostile datagrams to an endpoint of datagram calls: any bytes, truncated and impossible messages,
 * forged epochs, peers and credits, repeated, reordered and old numbers. They are counted and dropped;
 * a request is executed once; an honest node beside is answered all the while.
 */
#include "dgram_raw.h"

#define DATAGRAMS (unit_slow() ? 1500u : 6000u)
#define STALL_NS  2000000000ull
#define HEAP_MORE (96ull << 20)

static void check_nothing_kept(const struct world *w)
{
	assert_in_range(w->most_kept, 0, 64u << 20);
	assert_in_range(w->most_reassembly, 0, 1u << 20);
	if (!unit_slow())
		assert_in_range(w->most_heap, 0, w->heap_before + HEAP_MORE);
}

/* ---- any bytes ---- */

static int send_any(struct world *w, struct gn_fabric *fabric)
{
	struct raw raw;

	EXPECT(raw_join(&raw, fabric, w->addr) == 0);
	for (unsigned i = 0; i < DATAGRAMS; i++) {
		const uint32_t len = i % 8 ? fuzz_pick(200) : fuzz_pick(raw.mtu + 1);
		uint8_t *at = raw_at(&raw, RAW_OUT);

		for (uint32_t k = 0; k < len; k++)
			at[k] = (uint8_t)fuzz_any();
		if (i % 3 == 0)
			memcpy(at, &raw.head, len < sizeof(raw.head) ? len : sizeof(raw.head));
		EXPECT(raw_send(&raw, len) == 0);
	}
	raw_free(&raw);
	return 0;
}

static void check_any(const struct world *w)
{
	check_nothing_kept(w);
	assert_in_range(w->stats.malformed, 10, UINT64_MAX);
}

static void test_any_bytes(void **state)
{
	struct world w = {.attack = send_any, .stall_ns = STALL_NS};

	(void)state;
	fuzz_begin();
	run_everywhere(&w, check_any);
}

/* ---- messages of a peer that has shaken hands ---- */

static void draw_head(struct dgram_head *head)
{
	if (fuzz_pick(4) == 0)
		head->granted = fuzz_strange();
	if (fuzz_pick(4) == 0)
		head->done = fuzz_strange();
	if (fuzz_pick(4) == 0)
		head->returned = fuzz_strange();
	if (fuzz_pick(4) == 0)
		head->want = (uint8_t)fuzz_any();
	if (fuzz_pick(4) == 0) /* DGRAM_GONE ends the epoch: see dgram_nodes.c */
		head->flags = (uint8_t)(fuzz_any() & ~(unsigned)DGRAM_GONE);
	if (fuzz_pick(8) == 0)
		head->count = (uint8_t)fuzz_any();
}

static struct dgram_msg draw_message(void)
{
	struct dgram_msg msg = {.type = (uint8_t)(1 + fuzz_pick(6)),
				.attempt = (uint8_t)fuzz_any(),
				.slot = (uint16_t)fuzz_pick(fuzz_pick(8) ? 64 : 70),
				.number = fuzz_pick(3) ? fuzz_pick(100) : fuzz_strange(),
				.code = (uint16_t)fuzz_pick(5),
				.bytes = (uint16_t)fuzz_pick(400),
				.total = fuzz_strange()};

	if (fuzz_pick(2))
		msg.total = fuzz_pick(GN_DGRAM_BYTES_MAX + 2);
	if (fuzz_pick(4) == 0)
		msg.total = msg.bytes;
	return msg;
}

static int send_wild(struct world *w, struct gn_fabric *fabric)
{
	struct dgram_head head;
	struct raw raw;

	EXPECT(raw_join(&raw, fabric, w->addr) == 0);
	head = raw.head;
	for (unsigned i = 0; i < DATAGRAMS; i++) {
		const struct dgram_msg msg = draw_message();

		raw.head = head;
		draw_head(&raw.head);
		EXPECT(raw_say(&raw, &msg, NULL) == 0);
	}
	raw_free(&raw);
	return 0;
}

static void check_wild(const struct world *w)
{
	check_nothing_kept(w);
	assert_in_range(w->stats.malformed, 10, UINT64_MAX);
	assert_in_range(w->stats.over_credit, 1, UINT64_MAX);
}

static void test_wild_messages(void **state)
{
	struct world w = {.attack = send_wild, .stall_ns = STALL_NS};

	(void)state;
	fuzz_begin();
	run_everywhere(&w, check_wild);
}

/* ---- forged epochs and peers ---- */

/* Requests that would be executed, but for their epoch or peer. */
static int send_forged(struct world *w, struct gn_fabric *fabric)
{
	struct dgram_head head;
	struct raw raw;

	EXPECT(raw_join(&raw, fabric, w->addr) == 0);
	head = raw.head;
	for (unsigned i = 0; i < DATAGRAMS / 4; i++) {
		const struct dgram_msg msg = {
			.type = DGRAM_REQUEST, .code = BLOB, .bytes = 4, .total = 4};

		raw.head = head;
		if (i % 2)
			raw.head.epoch ^= 1ull << fuzz_pick(64);
		else
			raw.head.peer = i % 4 ? fuzz_strange() | 1u << 31 :
						DGRAM_PEER(fuzz_pick(8), 1 + fuzz_pick(255));
		EXPECT(raw_say(&raw, &msg, NULL) == 0);
		/* Another association's number with our epoch. */
		raw.head.epoch = head.epoch;
		raw.head.peer = DGRAM_PEER((head.peer >> 8) + 1 + fuzz_pick(5), 0);
		EXPECT(raw_say(&raw, &msg, NULL) == 0);
	}
	raw_free(&raw);
	return 0;
}

static void check_forged(const struct world *w)
{
	check_nothing_kept(w);
	assert_int_equal(w->executed, w->calls);
	assert_in_range(w->stats.wrong_epoch, 10, UINT64_MAX);
	assert_in_range(w->stats.unknown_peer, 10, UINT64_MAX);
}

static void test_forged_epochs(void **state)
{
	struct world w = {.attack = send_forged, .stall_ns = STALL_NS};

	(void)state;
	fuzz_begin();
	run_everywhere(&w, check_forged);
}

/* ---- the qp of another peer ---- */

/* A second qp sends with the number and epoch of the first: the sender's qp does not match. */
static int send_from_other_qp(struct world *w, struct gn_fabric *fabric)
{
	const struct dgram_msg msg = {.type = DGRAM_REQUEST, .code = ECHO};
	struct raw first, second;

	EXPECT(raw_join(&first, fabric, w->addr) == 0);
	EXPECT(raw_join(&second, fabric, w->addr) == 0);
	second.head = first.head;
	for (unsigned i = 0; i < 100; i++)
		EXPECT(raw_say(&second, &msg, NULL) == 0);
	raw_free(&first);
	raw_free(&second);
	return 0;
}

static void check_other_qp(const struct world *w)
{
	assert_int_equal(w->executed, w->calls);
	assert_in_range(w->stats.unknown_peer + w->stats.wrong_epoch, 1, UINT64_MAX);
}

static void test_other_qp(void **state)
{
	struct world w = {.attack = send_from_other_qp, .stall_ns = STALL_NS};

	(void)state;
	run_everywhere(&w, check_other_qp);
}

/* ---- repeated, reordered and old numbers ---- */

#define NUMBERS 40u

/* Slots and numbers as a caller may use them, but each many times and in any order. */
static int send_again(struct world *w, struct gn_fabric *fabric)
{
	struct raw raw;

	EXPECT(raw_join(&raw, fabric, w->addr) == 0);
	raw.head.want = NUMBERS;
	for (uint32_t number = 0; number < NUMBERS; number++)
		for (unsigned again = 0; again < 20; again++) {
			const uint32_t old = fuzz_pick(number + 1);
			const struct dgram_msg msg = {.type = DGRAM_REQUEST,
						      .attempt = (uint8_t)again,
						      .slot = (uint16_t)(old % 3),
						      .number = old,
						      .code = ECHO,
						      .bytes = 8,
						      .total = 8};

			EXPECT(raw_say(&raw, &msg, NULL) == 0);
			if (again % 4 == 0)
				gn_sleep_us(20);
		}
	raw_free(&raw);
	return 0;
}

static void check_again(const struct world *w)
{
	check_nothing_kept(w);
	assert_in_range(w->executed, w->calls + 1, w->calls + NUMBERS);
	assert_in_range(w->stats.duplicates, 1, UINT64_MAX);
}

static void test_old_numbers(void **state)
{
	struct world w = {.attack = send_again, .stall_ns = STALL_NS};

	(void)state;
	fuzz_begin();
	run_everywhere(&w, check_again);
}

/* With the name of a case, only that one. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_bytes),     cmocka_unit_test(test_wild_messages),
		cmocka_unit_test(test_forged_epochs), cmocka_unit_test(test_other_qp),
		cmocka_unit_test(test_old_numbers),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
