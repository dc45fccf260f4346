/* SPDX-License-Identifier: MIT */
/*
 * Cases 73 and 74: memory that changes while it is read. An object that a CPU rewrites during a
 * READ, and a message whose WRITE has completed but is not visible yet, are validated by the same
 * version at both ends and a checksum. Every word also carries its version, which the validation
 * does not use, so the cases can check the validation.
 */
#include <errno.h>
#include <string.h>

#include "conform.h"

#define WORD	   sizeof(uint64_t)
#define LINE	   64u
#define LINE_WORDS (LINE / WORD)

/*
 * An object of n lines. The first word of each line is the version, and so is the object's last
 * word; its second word is the checksum of all the others.
 */
#define SUM 1u

static uint64_t word_of(uint64_t version, size_t i)
{
	return (version + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
	       (i + 1) * UINT64_C(0xbf58476d1ce4e5b9);
}

static void compose(uint64_t *object, size_t lines, uint64_t version)
{
	const size_t n = lines * LINE_WORDS;

	for (size_t i = 0; i < n; i++)
		object[i] = i % LINE_WORDS ? word_of(version, i) : version;
	object[n - 1] = version;
	object[SUM] = 0;
	object[SUM] = gn_crc32c(0, object, n * WORD);
}

static void take_copy(uint64_t *copy, const uint64_t *object, size_t lines)
{
	/* Acquire: what is seen of the rest is as new as its beginning, where that is promised. */
	copy[0] = __atomic_load_n(object, __ATOMIC_ACQUIRE);
	for (size_t i = 1; i < lines * LINE_WORDS; i++)
		copy[i] = __atomic_load_n(&object[i], __ATOMIC_RELAXED);
}

/* The proof: all that a program would have to go by. copy is its own. */
static bool proves(uint64_t *copy, size_t lines)
{
	const size_t n = lines * LINE_WORDS;
	const uint64_t sum = copy[SUM];
	bool whole;

	copy[SUM] = 0;
	whole = copy[0] == copy[n - 1] && sum == gn_crc32c(0, copy, n * WORD);
	copy[SUM] = sum;
	return whole;
}

/* The truth: every word is of one version. */
static bool is_whole(const uint64_t *copy, size_t lines)
{
	const size_t n = lines * LINE_WORDS;

	for (size_t i = 0; i < n; i++) {
		const bool tells = i % LINE_WORDS == 0 || i == n - 1;

		if (i != SUM && copy[i] != (tells ? copy[0] : word_of(copy[0], i)))
			return false;
	}
	return true;
}

static uint64_t *words_at(const struct cf_rc *rc, size_t offset)
{
	return (uint64_t *)(void *)(rc->buf + offset);
}

static bool simulated_without(const struct cf *cf, uint64_t cap)
{
	return cf->sim && !(cf->attr.caps & cap);
}

/* ---- 73 ---- */

#define OBJECT_LINES 64u
#define OBJECT_BYTES (OBJECT_LINES * LINE)
#define READS	     100000u
#define SPELL	     64u  /* versions in a row that are written in the same way */
#define LINE_NS	     5u	  /* of work between two lines, where time passes there */
#define REST_NS	     400u /* between two versions, and between two READs, at most */

/*
 * B's CPU rewrites without an end: in turn a spell of versions each of which is written without
 * letting time pass, and one in which every line takes its time. In a simulation a READ that is
 * sampled at one instant can be torn by the second kind only.
 */
static bool at_once(uint64_t version)
{
	return version / SPELL % 2 == 0;
}

struct writer {
	uint64_t *object;
	uint64_t draws;
	bool stop; /* atomic */
	uint64_t next[OBJECT_LINES * LINE_WORDS];
};

/* From the last line to the first, and of that the version last, with release. */
static void rewrite(struct writer *writer, uint64_t version)
{
	compose(writer->next, OBJECT_LINES, version);
	for (size_t i = OBJECT_LINES * LINE_WORDS; i-- > 1;) {
		__atomic_store_n(&writer->object[i], writer->next[i], __ATOMIC_RELAXED);
		if (i % LINE_WORDS == 0 && !at_once(version))
			gn_charge(GN_WORK_NS, LINE_NS);
	}
	/* Pairs with the provider's acquire of a READ's first word. */
	__atomic_store_n(&writer->object[0], version, __ATOMIC_RELEASE);
}

static void writer_main(void *arg)
{
	struct writer *writer = arg;

	for (uint64_t version = 1; !__atomic_load_n(&writer->stop, __ATOMIC_ACQUIRE); version++) {
		rewrite(writer, version);
		writer->draws = word_of(writer->draws, version);
		gn_charge(GN_WORK_NS, 1 + (writer->draws >> 32) % REST_NS);
		if (version % SPELL == 0)
			gn_yield();
	}
}

/* What A found. Objects that were written at once are counted apart. */
struct found {
	uint64_t reads, versions, torn, torn_at_once, head_newer;
};

/* Whether all parts of a torn object are of one spell in which versions are written at once. */
static bool of_one_spell(const uint64_t *copy)
{
	for (size_t line = 0; line < OBJECT_LINES; line++)
		if (!at_once(copy[line * LINE_WORDS]) ||
		    copy[line * LINE_WORDS] / SPELL != copy[0] / SPELL)
			return false;
	return true;
}

/* The head was sampled last although it may be sampled first: some line is older. */
static bool older_than_head(const uint64_t *copy)
{
	for (size_t line = 1; line < OBJECT_LINES; line++)
		if (copy[line * LINE_WORDS] < copy[0])
			return true;
	return false;
}

static bool look_at(struct cf *cf, struct found *found, uint64_t *copy, uint64_t *last)
{
	const bool whole = is_whole(copy, OBJECT_LINES);

	CHECK(proves(copy, OBJECT_LINES) == whole, "READ %llu: %s, version %llu to %llu",
	      (unsigned long long)found->reads, whole ? "whole but refused" : "torn but accepted",
	      (unsigned long long)copy[0], (unsigned long long)copy[OBJECT_LINES * LINE_WORDS - 1]);
	found->reads++;
	found->torn += !whole;
	found->torn_at_once += !whole && of_one_spell(copy);
	found->head_newer += older_than_head(copy);
	if (whole) {
		CHECK(copy[0] >= *last, "version %llu after %llu", (unsigned long long)copy[0],
		      (unsigned long long)*last);
		found->versions += copy[0] != *last;
		*last = copy[0];
	}
	return true;
}

static bool judge_reads(struct cf *cf, const struct found *found)
{
	cf_note(cf, "%llu READs saw %llu versions; %llu were torn, %llu of what is written at once",
		(unsigned long long)found->reads, (unsigned long long)found->versions,
		(unsigned long long)found->torn, (unsigned long long)found->torn_at_once);
	if (cf->attr.caps & GN_CAP_READ_HEAD_FIRST)
		CHECK(!found->head_newer, "%llu READs have a head newer than a line",
		      (unsigned long long)found->head_newer);
	if (cf->sim)
		CHECK(found->torn && found->versions, "nothing was put to the test: %s", cf->note);
	if (simulated_without(cf, GN_CAP_READ_HEAD_FIRST))
		CHECK(found->torn_at_once && found->head_newer, "no READ was torn: %s", cf->note);
	return true;
}

static bool torn_a(struct cf *cf)
{
	struct found found = {.reads = 0};
	uint64_t last = 0, seen;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_sync(cf)); /* the first version is there */
	while (cf_more(cf, found.reads, READS)) {
		gn_charge(GN_WORK_NS, cf_rand_in(cf, 1, REST_NS));
		CHECK(cf_read(cf, &rc, found.reads, 0, 0, OBJECT_BYTES, GN_SIGNALED));
		CHECK(cf_expect_wc(cf, rc.send_cq, found.reads, GN_WC_OK));
		seen = last;
		CHECK(look_at(cf, &found, words_at(&rc, 0), &last));
		if (last == seen)
			gn_yield(); /* perhaps the writer has no core of its own */
	}
	CHECK(judge_reads(cf, &found));
	return cf_sync(cf);
}

static bool torn_b(struct cf *cf)
{
	struct gn_thread *thread;
	struct writer writer;
	struct cf_rc rc;
	bool read;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	memset(&writer, 0, sizeof(writer));
	writer.object = words_at(&rc, 0);
	writer.draws = cf->seed;
	rewrite(&writer, 0);
	CHECK_INT(gn_thread_start("writer", writer_main, &writer, &thread), 0);
	read = cf_sync(cf) && cf_sync(cf);
	__atomic_store_n(&writer.stop, true, __ATOMIC_RELEASE);
	CHECK_INT(gn_thread_join(thread), 0);
	return read;
}

/* ---- 74 ---- */

#define SLOT_LINES   16u
#define SLOT_BYTES   (SLOT_LINES * LINE)
#define WRITE_ROUNDS 20000u
#define LOOK_US	     5u /* a line may be there in part, which no word of it need tell */

static size_t message_lines(struct cf *cf)
{
	return cf_rand_in(cf, 2, SLOT_LINES);
}

/* In these B polls for the message; in the others a receive completes. */
static bool unannounced(uint64_t round)
{
	return round % 2 == 0;
}

/* B: until something of the message changes, or a little while. */
static bool await_line(struct cf *cf, const uint64_t *object, const uint64_t *copy, size_t lines)
{
	struct gn_wait_item items[SLOT_LINES];
	int rc;

	for (size_t i = 0; i < lines; i++)
		items[i] = gn_wait_word(&object[i * LINE_WORDS], copy[i * LINE_WORDS]);
	rc = gn_wait(items, (unsigned)lines, gn_deadline_us(LOOK_US), "lines of a WRITE");
	return rc >= 0 || rc == -ETIMEDOUT || rc == -EINTR || cf_why(cf, "%s", gn_strerror(rc));
}

static bool await_message(struct cf *cf, const uint64_t *object, size_t lines, uint64_t version)
{
	const uint64_t deadline_ns = cf_deadline(cf);
	uint64_t copy[SLOT_LINES * LINE_WORDS];

	for (;;) {
		take_copy(copy, object, lines);
		if (copy[0] == version && proves(copy, lines))
			break;
		CHECK(gn_now_ns() < deadline_ns, "message %llu does not come",
		      (unsigned long long)version);
		CHECK(await_line(cf, object, copy, lines));
	}
	CHECK(is_whole(copy, lines), "message %llu: accepted, but not whole",
	      (unsigned long long)version);
	return true;
}

/* After the receive the message is complete. */
static bool announced_message(struct cf *cf, const uint64_t *object, size_t lines, uint64_t version)
{
	uint64_t copy[SLOT_LINES * LINE_WORDS];

	take_copy(copy, object, lines);
	CHECK(copy[0] == version && is_whole(copy, lines) && proves(copy, lines),
	      "message %llu is not all there", (unsigned long long)version);
	return true;
}

/* A: first other data to the same offset, then the message, then a word of it. */
static bool write_twice(struct cf *cf, struct cf_rc *rc, uint64_t version, size_t lines)
{
	const uint32_t len = (uint32_t)(lines * LINE);

	compose(words_at(rc, SLOT_BYTES), lines, ~version);
	CHECK(cf_write(cf, rc, version, SLOT_BYTES, 0, len, 0));
	CHECK(cf_write(cf, rc, version, 0, 0, len, 0));
	CHECK(cf_send(cf, rc, version, 0, 0, GN_SIGNALED));
	return cf_expect_wc(cf, rc->send_cq, version, GN_WC_OK);
}

static bool early_a(struct cf *cf)
{
	uint64_t there, mine = 0, completed = 0, early = 0;
	uint64_t copy[SLOT_LINES * LINE_WORDS];
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(cf_swap(cf, &mine, &there, sizeof(there)));
	for (uint64_t i = 1; cf_more_both(cf, i - 1, WRITE_ROUNDS); i++) {
		const size_t lines = message_lines(cf);
		const uint32_t len = (uint32_t)(lines * LINE);

		compose(words_at(&rc, 0), lines, i);
		CHECK(cf_sync(cf)); /* B is ready */
		if (!unannounced(i)) {
			CHECK(write_twice(cf, &rc, i, lines));
			continue;
		}
		CHECK(cf_write(cf, &rc, i, 0, 0, len, GN_SIGNALED));
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
		completed++;
		/*
		 * Only a simulation can read the other node's memory as its CPU sees it at this
		 * instant.
		 */
		if (cf->sim) {
			take_copy(copy, (const uint64_t *)(uintptr_t)there, lines);
			early += copy[0] != i || !is_whole(copy, lines);
		}
	}
	if (cf->sim)
		cf_note(cf, "%llu of %llu WRITEs completed before they could be seen",
			(unsigned long long)early, (unsigned long long)completed);
	if (simulated_without(cf, GN_CAP_INORDER_WRITE))
		CHECK(early, "every WRITE was visible when it completed");
	return cf_sync(cf);
}

static bool early_b(struct cf *cf)
{
	uint64_t mine, theirs;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	mine = (uint64_t)(uintptr_t)rc.buf;
	CHECK(cf_swap(cf, &mine, &theirs, sizeof(theirs)));
	for (uint64_t i = 1; cf_more_both(cf, i - 1, WRITE_ROUNDS); i++) {
		const size_t lines = message_lines(cf);

		if (!unannounced(i))
			CHECK(cf_recv(cf, &rc, i, 0, 0));
		CHECK(cf_sync(cf));
		if (unannounced(i)) {
			CHECK(await_message(cf, words_at(&rc, 0), lines, i));
			continue;
		}
		CHECK(cf_expect_wc(cf, rc.recv_cq, i, GN_WC_OK));
		CHECK(announced_message(cf, words_at(&rc, 0), lines, i));
	}
	return cf_sync(cf);
}

const struct cf_case cf_cases_visible[] = {
	{73, "a READ of what a CPU rewrites: torn is found out", torn_a, torn_b, 0, 0},
	{74, "a WRITE that completed need not be visible", early_a, early_b, 0, 0},
	{0},
};
