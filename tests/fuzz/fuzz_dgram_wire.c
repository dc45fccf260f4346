/* SPDX-License-Identifier: MIT */
/*
 * Everything in datagram calls that reads bytes which a peer wrote: hellos, heads and messages. What is
 * whole passes; what passes lies within the datagram and has values that a peer may send; and nothing
 * outside is read (under the address sanitizer).
 */
#include <errno.h>
#include <string.h>

#include "dgram/wire.h"
#include "fuzz.h"

#define MOST 4096u

static void scribble(uint8_t *bytes, uint32_t len)
{
	for (unsigned n = 1 + fuzz_pick(4); n && len; n--) {
		const uint32_t word = fuzz_strange(), at = fuzz_pick(len);

		memcpy(bytes + at, &word, len - at < 4 ? len - at : 4);
	}
}

/* In memory of exactly that size, so that a byte too many is seen. */
static uint8_t *exactly(const void *bytes, uint32_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	return copy;
}

/* ---- hellos ---- */

static void try_hello(const void *bytes, uint32_t len)
{
	uint8_t *copy = exactly(bytes, len);
	struct dgram_hello hello;

	if (!dgram_hello_check(copy, len, &hello)) {
		assert_true(hello.magic == DGRAM_MAGIC);
		assert_in_range(hello.kind, DGRAM_HELLO_NEW, DGRAM_HELLO_KINDS - 1);
		assert_in_range(hello.threads, 0, GN_DGRAM_THREADS_MAX);
		assert_in_range(len, DGRAM_HELLO_BYTES(hello.threads), sizeof(hello));
		assert_non_null(memchr(hello.addr, 0, sizeof(hello.addr)));
		if (hello.kind == DGRAM_HELLO_NEW || hello.kind == DGRAM_HELLO_OK) {
			assert_true(hello.threads && hello.incarnation);
			assert_in_range(hello.datagram_bytes, GN_DGRAM_BYTES_MIN, UINT32_MAX);
		}
	}
	free(copy);
}

static void test_hellos(void **state)
{
	const uint64_t until_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < until_ns) {
		struct dgram_hello hello = {.magic = DGRAM_MAGIC,
					    .kind = 1 + fuzz_pick(DGRAM_HELLO_KINDS - 1),
					    .threads = 1 + fuzz_pick(GN_DGRAM_THREADS_MAX),
					    .incarnation = 1 + fuzz_any(),
					    .datagram_bytes = GN_DGRAM_BYTES_MIN + fuzz_pick(4096),
					    .addr = "sim:n0:9"};
		const uint32_t len = DGRAM_HELLO_BYTES(hello.threads);
		struct dgram_hello took;

		assert_int_equal(dgram_hello_check(&hello, len, &took), 0);
		assert_int_equal(dgram_hello_check(&hello, len - 1, &took), -EPROTO);
		scribble((uint8_t *)&hello, fuzz_pick(2) ? DGRAM_HELLO_BYTES(0) : 64);
		try_hello(&hello, fuzz_pick(4) ? len : fuzz_pick(sizeof(hello) + 1));
	}
}

/* ---- datagrams ---- */

static uint32_t put_message(uint8_t *to, uint32_t left)
{
	const uint32_t most = left - (uint32_t)sizeof(struct dgram_msg);
	struct dgram_msg msg = {.type = (uint8_t)(1 + fuzz_pick(DGRAM_TYPES - 1)),
				.attempt = (uint8_t)fuzz_any(),
				.slot = (uint16_t)fuzz_pick(GN_DGRAM_SLOTS),
				.number = fuzz_any(),
				.bytes = (uint16_t)fuzz_pick((most < 200 ? most : 200) + 1)};

	switch (msg.type) {
	case DGRAM_PIECE:
		msg.code = (uint16_t)fuzz_pick(2);
		if (!msg.bytes)
			msg.bytes = 1;
		msg.total = fuzz_pick(GN_DGRAM_BYTES_MAX - msg.bytes);
		break;
	case DGRAM_ACK:
		msg.code = (uint16_t)fuzz_pick(2);
		msg.total = fuzz_any();
		break;
	case DGRAM_CANCEL:
		msg.bytes = 0;
		break;
	default:
		msg.code = (uint16_t)fuzz_any();
		msg.total = msg.bytes + fuzz_pick(GN_DGRAM_BYTES_MAX - msg.bytes + 1);
	}
	memcpy(to, &msg, sizeof(msg));
	memset(to + sizeof(msg), (int)fuzz_any(), msg.bytes);
	return (uint32_t)sizeof(msg) + dgram_padded(msg.bytes);
}

/* A whole datagram; returns its length. */
static uint32_t put_datagram(uint8_t bytes[MOST])
{
	struct dgram_head head = {.version = DGRAM_VERSION, .epoch = fuzz_any()};
	uint32_t at = sizeof(head), most = 64 + fuzz_pick(MOST - 64 - 8);

	while (most - at > sizeof(struct dgram_msg) + 8 && head.count < 20 && fuzz_pick(8)) {
		at += put_message(bytes + at, most - at);
		head.count++;
		if (at > most)
			most = at;
	}
	memcpy(bytes, &head, sizeof(head));
	return at;
}

/* Takes all messages; returns how many passed. */
static unsigned take(const uint8_t *bytes, uint32_t len)
{
	uint8_t *copy = exactly(bytes, len);
	uint32_t at = sizeof(struct dgram_head), before;
	struct dgram_head head;
	struct dgram_msg msg;
	unsigned n = 0;

	if (!dgram_head_check(copy, len, &head)) {
		assert_in_range(len, sizeof(head), UINT32_MAX);
		for (; n < head.count; n++) {
			before = at;
			if (dgram_msg_check(copy, len, &at, &msg))
				break;
			assert_in_range(at, before + sizeof(msg), len);
			assert_in_range(before + sizeof(msg) + msg.bytes, 0, len);
			assert_in_range(msg.slot, 0, GN_DGRAM_SLOTS - 1);
			assert_in_range(msg.type, DGRAM_REQUEST, DGRAM_CANCEL);
			if (msg.type == DGRAM_PIECE)
				assert_in_range(msg.total + msg.bytes, 1, GN_DGRAM_BYTES_MAX);
			if (msg.type == DGRAM_REQUEST || msg.type == DGRAM_ANSWER)
				assert_in_range(msg.total, msg.bytes, GN_DGRAM_BYTES_MAX);
		}
	}
	free(copy);
	return n;
}

static void test_datagrams(void **state)
{
	const uint64_t until_ns = fuzz_begin();
	uint8_t bytes[MOST];

	(void)state;
	while (gn_now_ns() < until_ns) {
		const uint32_t len = put_datagram(bytes);
		struct dgram_head head;

		memcpy(&head, bytes, sizeof(head));
		assert_int_equal(take(bytes, len), head.count);
		assert_true(!head.count || take(bytes, fuzz_pick(len)) <= head.count);
		scribble(bytes, len);
		take(bytes, len);
		bytes[2] = (uint8_t)fuzz_any(); /* more messages than there are */
		take(bytes, fuzz_pick(3) ? len : fuzz_pick(len));
	}
}

static void test_anything(void **state)
{
	const uint64_t until_ns = fuzz_begin();
	uint8_t bytes[MOST];

	(void)state;
	while (gn_now_ns() < until_ns) {
		const uint32_t len = fuzz_pick(300);

		for (uint32_t i = 0; i < len; i++)
			bytes[i] = (uint8_t)fuzz_any();
		bytes[0] = fuzz_pick(4) ? DGRAM_VERSION : bytes[0];
		take(bytes, len);
		try_hello(bytes, len);
	}
}

/* Serial numbers: of any two, at most one is before the other. */
static void test_serial(void **state)
{
	const uint64_t until_ns = fuzz_begin() - fuzz_us() * 900;

	(void)state;
	while (gn_now_ns() < until_ns) {
		const uint32_t a = fuzz_strange(), b = fuzz_strange(), by = 1 + fuzz_pick(1u << 30);

		assert_false(dgram_before(a, a));
		assert_true(dgram_before(a, a + by) && !dgram_before(a + by, a));
		assert_true(b - a == 0x80000000u || a == b ||
			    dgram_before(a, b) != dgram_before(b, a));
		assert_true(dgram_epoch(a, b));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hellos),
		cmocka_unit_test(test_datagrams),
		cmocka_unit_test(test_anything),
		cmocka_unit_test(test_serial),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
