/* SPDX-License-Identifier: MIT */
/*
 * What takes apart the bytes that a peer wrote, fed with messages of ours that were changed at
 * random: it must not look outside of them, and where there is a checksum no changed one passes.
 * Runs for some time, after a seed that is printed and can be given (GN_SEED).
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "gannet/rpc.h"
#include "rpc/server.h"

#define MAX	512u
#define ENTRIES 8u

/* ---- messages ---- */

struct message {
	uint64_t seq, nonce;
	uint32_t len, n;
	struct rpc_entry entries[ENTRIES];
	uint32_t stride;
	uint8_t *slot; /* exactly as large as a slot is */
};

static void make_message(struct message *m, bool crc)
{
	struct rpc_seal seal = {.flags = crc ? RPC_CRC : 0, .ack = fuzz_strange()};
	uint32_t at = 0;

	m->stride = (uint32_t)rpc_stride(MAX);
	m->slot = aligned_alloc(RPC_ALIGN, m->stride);
	assert_non_null(m->slot);
	for (uint32_t i = 0; i < m->stride; i++)
		m->slot[i] = (uint8_t)fuzz_any();
	m->seq = rpc_seq(fuzz_any() | 1, fuzz_any());
	m->nonce = (uint64_t)fuzz_any() << 32 | fuzz_any();
	m->n = 1 + fuzz_pick(ENTRIES);
	for (uint32_t i = 0; i < m->n; i++) {
		struct rpc_entry *e = &m->entries[i];

		*e = (struct rpc_entry){.len = fuzz_pick(MAX / ENTRIES - 16),
					.code = (uint16_t)fuzz_strange(),
					.index = (uint16_t)fuzz_strange()};
		memcpy(m->slot + sizeof(struct rpc_head) + at, e, sizeof(*e));
		at += (uint32_t)sizeof(*e) + rpc_align8(e->len);
	}
	m->len = seal.len = at;
	seal.seq = m->seq;
	seal.nonce = m->nonce;
	seal.aux = (uint16_t)m->n;
	assert_int_equal(rpc_seal(m->slot, &seal), rpc_message_bytes(at));
}

/* Bits, words in likely places, and pieces of it elsewhere. */
static void change(struct message *m)
{
	const uint32_t bytes = (uint32_t)rpc_message_bytes(m->len);
	const uint32_t at = fuzz_pick(2) ? fuzz_pick(sizeof(struct rpc_head) + 16) :
					   fuzz_pick(bytes);
	const uint32_t word = fuzz_strange();

	switch (fuzz_pick(4)) {
	case 0:
		m->slot[at] ^= (uint8_t)(1u << fuzz_pick(8));
		break;
	case 1:
		memcpy(m->slot + at / 4 * 4, &word, 4);
		break;
	case 2:
		memcpy(m->slot + at / 2 * 2, &word, 2);
		break;
	default:
		memmove(m->slot + fuzz_pick(bytes), m->slot + at, fuzz_pick(m->stride - bytes + 1));
		break;
	}
}

/* As server and client do it; every byte that they are given is touched. */
static uint32_t take_apart(const struct message *m, const struct rpc_head *head, uint32_t *touched)
{
	struct rpc_entry entry;
	const uint8_t *bytes;
	uint32_t at = 0, n = 0;

	while (at < head->len && rpc_entry(m->slot, head->len, &at, &entry, &bytes)) {
		assert_true(bytes >= m->slot && bytes + entry.len <= m->slot + m->stride);
		assert_true(at <= head->len);
		for (uint32_t i = 0; i < entry.len; i++)
			*touched += bytes[i];
		n++;
	}
	return n;
}

/* But for the word that no checksum has. */
static bool changed(const struct message *m, const uint8_t *before)
{
	const size_t head = sizeof(struct rpc_head);

	return memcmp(before, m->slot, offsetof(struct rpc_head, ack)) ||
	       memcmp(before + head, m->slot + head, rpc_message_bytes(m->len) - head);
}

static void test_messages(void **state)
{
	const uint64_t end_ns = fuzz_begin();
	unsigned found = 0, torn = 0, nothing = 0;
	uint32_t touched = 0;

	(void)state;
	while (gn_now_ns() < end_ns) {
		const bool check = fuzz_pick(2);
		struct rpc_head head;
		struct message m;
		uint8_t *before;
		enum rpc_found what;

		make_message(&m, check);
		before = malloc(m.stride);
		assert_non_null(before);
		memcpy(before, m.slot, m.stride);
		what = rpc_message_find(m.slot, m.stride, m.seq, m.nonce, rpc_max_len(MAX), check,
					&head);
		assert_int_equal(what, RPC_FOUND);
		assert_int_equal(take_apart(&m, &head, &touched), m.n);
		for (unsigned i = fuzz_pick(4); i < 4; i++)
			change(&m);
		what = rpc_message_find(m.slot, m.stride, m.seq, m.nonce, rpc_max_len(MAX), check,
					&head);
		found += what == RPC_FOUND;
		torn += what == RPC_TORN;
		nothing += what == RPC_ABSENT;
		if (what == RPC_FOUND)
			take_apart(&m, &head, &touched);
		if (what == RPC_FOUND && check && changed(&m, before))
			fail_msg("a changed message passed its checksum");
		free(before);
		free(m.slot);
	}
	print_message("# found %u, torn %u, nothing %u (%u)\n", found, torn, nothing, touched & 1);
	assert_true(found && torn && nothing);
}

/* Of a message only the beginning is there: the head decides how much there is to come. */
static void test_beginnings(void **state)
{
	const uint64_t end_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < end_ns) {
		struct rpc_head head;
		struct message m;
		uint8_t *part;
		uint32_t have;

		make_message(&m, true);
		have = (uint32_t)sizeof(head) + fuzz_pick(m.stride - sizeof(head)) / 8 * 8;
		if (fuzz_pick(2))
			change(&m);
		part = aligned_alloc(8, have);
		assert_non_null(part);
		memcpy(part, m.slot, have);
		if (rpc_message_find(part, have, m.seq, m.nonce, rpc_max_len(MAX), fuzz_pick(2),
				     &head) == RPC_FOUND) {
			assert_true(head.len <= rpc_max_len(MAX) && head.len % 8 == 0);
			assert_true(rpc_message_bytes(head.len) <= m.stride);
		}
		free(part);
		free(m.slot);
	}
}

/* ---- what a client does not need any more ---- */

static void test_acks(void **state)
{
	const uint64_t end_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < end_ns) {
		const uint32_t acked = fuzz_pick(2) ? fuzz_strange() : fuzz_pick(100);
		const uint32_t ahead = fuzz_pick(1025);
		struct rpc_conn c = {.acked = acked, .published = acked + ahead};
		const uint32_t number = fuzz_pick(2) ? acked + fuzz_pick(1100) : fuzz_strange();
		const bool ok = rpc_conn_acked(&c, number);

		/* It moves on, and never beyond what there is. */
		assert_true(c.acked - acked <= ahead);
		assert_true(c.acked == acked || (ok && c.acked == number));
		if (number - acked <= ahead)
			assert_true(ok && c.acked == number);
		if (number - acked > ahead && number - acked < 0x80000000u)
			assert_false(ok);
	}
}

/* ---- a tuning file ---- */

#define FILE_BYTES 4096u

static size_t change_text(char *text, size_t len)
{
	static const char *const words[] = {
		"\t",	      "\n",	      "-1", "0", "4294967296", "rate\t1\t2\n",
		"bytes\t1\n", "retries\t1\n", "#",  "",	 "1e9"};
	const size_t at = fuzz_pick((uint32_t)len), cut = fuzz_pick(8);
	const char *word = words[fuzz_pick(sizeof(words) / sizeof(words[0]))];
	const size_t n = *word ? strlen(word) : 1; /* a NUL, too */

	if (fuzz_pick(3) == 0) {
		text[at] = (char)fuzz_any();
		return len;
	}
	if (fuzz_pick(2) && at + cut < len) {
		memmove(text + at, text + at + cut, len - at - cut);
		return len - cut;
	}
	if (len + n > FILE_BYTES)
		return len;
	memmove(text + at + n, text + at, len - at);
	memcpy(text + at, word, n);
	return len + n;
}

static void write_file(const char *path, const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static void test_tuning(void **state)
{
	static const char good[] = "gannet-rpc-tuning\t1\n# for people\nbytes\t32\t64\t128\n"
				   "rate\t1\t900\t800\t700\nrate\t2\t90\t80\t70\n"
				   "retries\t3\nswitch_us\t7\n";
	const uint64_t end_ns = fuzz_begin();
	char path[] = "/tmp/gannet-fuzz-XXXXXX";
	unsigned taken = 0, refused = 0;

	(void)state;
	assert_int_equal(close(mkstemp(path)), 0);
	gn_log_to(fuzz_be_silent, NULL);
	while (gn_now_ns() < end_ns) {
		struct gn_rpc_tuning tuning = {.size = sizeof(tuning)},
				     again = {.size = sizeof(again)};
		char text[FILE_BYTES];
		size_t len = sizeof(good) - 1;

		memcpy(text, good, len);
		for (unsigned i = fuzz_pick(4); i < 4 && len > 8; i++)
			len = change_text(text, len);
		write_file(path, text, len);
		if (gn_rpc_tuning_read(path, &tuning)) {
			refused++;
			continue;
		}
		taken++;
		assert_int_equal(gn_rpc_tuning_write(path, &tuning), 0);
		assert_int_equal(gn_rpc_tuning_read(path, &again), 0);
		assert_memory_equal(&tuning, &again, sizeof(tuning));
	}
	gn_log_to(NULL, NULL);
	unlink(path);
	print_message("# taken %u, refused %u\n", taken, refused);
	assert_true(taken && refused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_beginnings),
		cmocka_unit_test(test_acks),
		cmocka_unit_test(test_tuning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
