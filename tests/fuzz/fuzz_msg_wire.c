/* SPDX-License-Identifier: MIT */
/*
 * Everything in messages that reads bytes which a peer wrote: greetings, messages in memory and the
 * heads of datagrams. What is whole passes; what was changed does not pass as something that it is
 * not; and nothing outside is read (under the address sanitizer).
 */
#include <errno.h>

#include "fuzz.h"
#include "msg/wire.h"
#include "unit_world.h"

#define MOST 600u

static void scribble(uint8_t *bytes, uint32_t len)
{
	for (unsigned n = 1 + fuzz_pick(4); n && len; n--) {
		const uint32_t word = fuzz_strange(), at = fuzz_pick(len);

		memcpy(bytes + at, &word, len - at < 4 ? len - at : 4);
	}
}

/* ---- greetings ---- */

/* In memory of exactly that size, so that a byte too many is seen. */
static void try_hello(const void *bytes, uint32_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	struct msg_hello hello;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	if (msg_hello_check(copy, len, &hello) == MSG_ACCEPTED) {
		assert_in_range(len, sizeof(hello), UINT32_MAX);
		assert_in_range(hello.protocol, 0, GN_MSG_PROTOCOLS - 1);
		assert_in_range(hello.pending, 1, GN_MSG_PENDING_MAX);
		assert_in_range(hello.request_bytes, 0, GN_MSG_BYTES_MAX);
		if (hello.protocol != GN_MSG_READ)
			assert_in_range(hello.value_bytes, 0, GN_MSG_BYTES_MAX);
	}
	free(copy);
}

static void try_welcome(const void *bytes, uint32_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	struct msg_welcome welcome;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	if (!msg_welcome_check(copy, len, &welcome)) {
		assert_in_range(welcome.refusal, 0, MSG_REFUSALS - 1);
		assert_true(welcome.refusal != MSG_ACCEPTED || len >= sizeof(welcome));
	}
	free(copy);
}

static void test_greetings(void **state)
{
	const uint64_t until_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < until_ns) {
		uint8_t bytes[GN_PRIVATE_MAX] = {0};
		struct msg_hello hello = {.magic = MSG_MAGIC,
					  .version = MSG_VERSION,
					  .protocol = (uint8_t)fuzz_pick(GN_MSG_PROTOCOLS),
					  .pending = 1 + fuzz_pick(16),
					  .request_bytes = fuzz_pick(100),
					  .value_bytes = fuzz_pick(100)};
		struct msg_welcome welcome = {.magic = MSG_MAGIC, .version = MSG_VERSION};
		struct msg_hello took;
		struct msg_welcome taken;

		assert_int_equal(msg_hello_check(&hello, sizeof(hello), &took), MSG_ACCEPTED);
		assert_int_equal(msg_welcome_check(&welcome, sizeof(welcome), &taken), 0);
		memcpy(bytes, &hello, sizeof(hello));
		scribble(bytes, sizeof(hello));
		try_hello(bytes, fuzz_pick(4) ? sizeof(hello) : fuzz_pick(sizeof(bytes)));
		memcpy(bytes, &welcome, sizeof(welcome));
		scribble(bytes, sizeof(welcome));
		try_welcome(bytes, fuzz_pick(4) ? sizeof(welcome) : fuzz_pick(sizeof(bytes)));
		assert_non_null(msg_refusal_text(fuzz_strange()));
	}
}

/* ---- messages in memory ---- */

struct message {
	enum msg_frame frame;
	uint32_t seq, nonce, length, len, bytes;
	uint8_t *slot; /* of exactly the bytes that the largest has */
};

static void message_make(struct message *m)
{
	static const enum msg_frame frames[] = {MSG_MARKERS, MSG_SEQUENCED, MSG_CHECKSUMMED};

	m->frame = frames[fuzz_pick(3)];
	m->seq = 1 + fuzz_pick(3) ? fuzz_any() : fuzz_pick(4);
	m->nonce = fuzz_any();
	m->len = fuzz_pick(MOST + 1);
	m->length = m->len | (fuzz_pick(8) ? 0 : MSG_REFUSED);
	m->bytes = msg_frame_bytes(m->frame, m->len);
	m->slot = aligned_alloc(8, (msg_frame_bytes(m->frame, MOST) + 7) / 8 * 8);
	assert_non_null(m->slot);
	memset(m->slot, 0, msg_frame_bytes(m->frame, MOST));
	fill(m->slot + msg_frame_head(m->frame), m->len, m->seq);
	msg_frame_put(m->frame, m->slot, m->seq, m->nonce, m->length);
}

static int64_t look(const struct message *m)
{
	return msg_frame_peek(m->frame, m->slot, m->seq, m->nonce, MOST);
}

/* All of it is there, or the last part is not yet. */
static void check_parts(struct message *m)
{
	const uint32_t there = fuzz_pick(m->bytes);
	bool zeros = true; /* what is not there yet looks just like that */

	assert_int_equal(look(m), m->length);
	for (uint32_t i = there; i < m->bytes; i++)
		zeros = zeros && !m->slot[i];
	memset(m->slot + there, 0, m->bytes - there);
	assert_true(look(m) < 0 || zeros);
}

/* With a checksum nothing that was changed passes; of others it is the length that must be so. */
static void check_changed(struct message *m)
{
	uint8_t before[2048];
	int64_t length;

	assert_true(m->bytes <= sizeof(before));
	memcpy(before, m->slot, m->bytes);
	scribble(m->slot, m->bytes);
	length = look(m);
	assert_true(length < 0 || (length & ~(int64_t)MSG_REFUSED) <= MOST);
	if (m->frame != MSG_CHECKSUMMED || length < 0)
		return;
	/* The word between is not looked at, nor what fills the bytes up to a whole word. */
	assert_int_equal(length, m->length);
	assert_memory_equal(before, m->slot, 12);
	assert_memory_equal(before + 16, m->slot + 16, m->len);
}

static void test_messages(void **state)
{
	const uint64_t until_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < until_ns) {
		struct message m;

		message_make(&m);
		if (fuzz_pick(2))
			check_parts(&m);
		else
			check_changed(&m);
		if (m.frame != MSG_MARKERS) { /* it is of this number and this connection */
			m.seq += 1 + fuzz_pick(100);
			assert_true(look(&m) < 0);
		}
		free(m.slot);
	}
}

/* Anything at all, too, and what is longer than it may be. */
static void test_anything(void **state)
{
	const uint64_t until_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < until_ns) {
		struct message m;
		int64_t length;

		message_make(&m);
		for (uint32_t i = 0; i < m.bytes; i++)
			m.slot[i] = (uint8_t)fuzz_any();
		if (fuzz_pick(2))
			memcpy(m.slot, &m.seq, 4);
		if (fuzz_pick(2)) {
			const uint32_t strange = fuzz_strange();

			memcpy(m.slot + (m.frame == MSG_MARKERS ? 0 : 4), &strange, 4);
		}
		length = look(&m);
		assert_true(length < 0 || (length & ~(int64_t)MSG_REFUSED) <= MOST);
		free(m.slot);
	}
}

/* ---- datagrams ---- */

static void test_datagrams(void **state)
{
	const uint64_t until_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < until_ns) {
		const uint32_t len = fuzz_pick(200);
		uint8_t *data = malloc(len ? len : 1);
		struct msg_datagram head;

		assert_non_null(data);
		for (uint32_t i = 0; i < len; i++)
			data[i] = (uint8_t)fuzz_any();
		if (len >= sizeof(head) && fuzz_pick(2)) {
			const uint32_t right = len - (uint32_t)sizeof(head);

			memcpy(data + offsetof(struct msg_datagram, length), &right, 4);
			assert_int_equal(msg_datagram_check(data, len, &head), 0);
		}
		if (!msg_datagram_check(data, len, &head))
			assert_int_equal((head.length & ~MSG_REFUSED) + sizeof(head), len);
		free(data);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_greetings),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_anything),
		cmocka_unit_test(test_datagrams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
