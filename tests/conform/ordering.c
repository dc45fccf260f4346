/* SPDX-License-Identifier: MIT */
/*
 * Cases 71, 72 and 75: the order in which the bytes of WRITEs become visible. In the first two, A
 * streams messages into a ring in B's memory without a notification, and B polls the word that must
 * come last: older data in front of it is a failure. They need capabilities that only some
 * connections have. The third, that a receive completion is a barrier, holds everywhere.
 */
#include <assert.h>
#include <errno.h>

#include "conform.h"

#define WORD	   sizeof(uint64_t)
#define LINE	   64u
#define BLOCK	   128u
#define RING	   32u /* messages that B has not confirmed */
#define SLOT_BYTES 2048u
#define SLOT_LINES (SLOT_BYTES / LINE)
#define CONFIRM	   8u /* messages between two confirmations, and between two signaled WRITEs */

/* The layout of both buffers; A's has the same for what it sends. */
#define FLAGS_AT   (RING * SLOT_BYTES)	    /* a line a slot, 72 only */
#define CONFIRM_AT (FLAGS_AT + RING * LINE) /* in A's: how many messages B has seen */
#define BUF_BYTES  (CONFIRM_AT + LINE)

#define STREAM_ROUNDS 1000000u
#define STREAM_STEP   256u /* messages between two decisions whether to go on */
#define SPINS	      256u

static_assert(RING % CONFIRM == 0 && STREAM_STEP % CONFIRM == 0, "a stream ends confirmed");
static_assert(SLOT_BYTES % BLOCK == 0, "blocks begin with slots");

/* What notifies B. */
enum last_word {
	LAST_OF_MESSAGE,
	LAST_OF_BLOCK, /* of each one */
	LAST_IS_FLAG,  /* in a WRITE of its own */
};

struct stream {
	struct cf_rc rc;
	enum last_word last;
	uint64_t seq;
	uint64_t completed; /* A: WRITEs that are complete */
};

/* Word i of message seq. Two messages that a slot holds in turn have no word in common. */
static uint64_t word_of(uint64_t seq, size_t i)
{
	return (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
}

/* Two lines to a whole slot. */
static uint32_t len_of(uint64_t seq)
{
	return LINE * (2 + (uint32_t)(word_of(seq, 0) >> 40) % (SLOT_LINES - 1));
}

static size_t slot_at(uint64_t seq)
{
	return seq % RING * SLOT_BYTES;
}

static size_t flag_at(uint64_t seq)
{
	return FLAGS_AT + seq % RING * LINE;
}

static uint64_t *word_at(const struct stream *st, size_t offset)
{
	return (uint64_t *)(void *)(st->rc.buf + offset);
}

static bool stream_open(struct cf *cf, enum last_word last, struct stream *st)
{
	struct cf_rc_opts opts = {.buf_bytes = BUF_BYTES};

	*st = (struct stream){.last = last};
	return cf_rc_pair(cf, &opts, &st->rc);
}

/* Until the word differs from what it was. A loop of loads comes first: it misses the least. */
static bool await_change(struct cf *cf, const uint64_t *word, uint64_t seen, uint64_t deadline_ns)
{
	struct gn_wait_item item = gn_wait_word(word, seen);
	int rc;

	for (unsigned i = 0; i < SPINS; i++)
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen)
			return true;
	rc = gn_wait(&item, 1, deadline_ns, "a word of the other side's WRITE");
	return rc >= 0 || rc == -EINTR || cf_why(cf, "%s", gn_strerror(rc));
}

static bool await_word(struct cf *cf, const uint64_t *word, uint64_t want)
{
	const uint64_t deadline_ns = cf_deadline(cf);
	uint64_t seen;

	/* Acquire pairs with the provider's placement: what is read later was placed earlier. */
	while ((seen = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != want)
		CHECK(await_change(cf, word, seen, deadline_ns));
	return true;
}

/* ---- A ---- */

/* Takes one completion of a WRITE; waits for it if wait is set. */
static bool reap(struct cf *cf, struct stream *st, bool wait)
{
	struct gn_cq *cq = st->rc.send_cq;
	struct gn_wc wc;
	int n = wait ? gn_cq_wait(cq, &wc, 1, cf_deadline(cf), "WRITEs to be done") :
		       gn_cq_poll(cq, &wc, 1);

	CHECK(n >= 0, "%s", gn_strerror(n));
	if (n > 0) {
		CHECK_INT(wc.status, GN_WC_OK);
		st->completed = wc.id + 1;
	}
	return true;
}

/* The slot may be used again: B has read it, and the device no longer reads its source. */
static bool await_room(struct cf *cf, struct stream *st)
{
	const uint64_t *confirmed = word_at(st, CONFIRM_AT);
	const uint64_t deadline_ns = cf_deadline(cf);
	uint64_t seen;

	if (st->seq < RING)
		return true;
	while ((seen = __atomic_load_n(confirmed, __ATOMIC_ACQUIRE)) <= st->seq - RING)
		CHECK(await_change(cf, confirmed, seen, deadline_ns));
	while (st->completed <= st->seq - RING)
		CHECK(reap(cf, st, true));
	return true;
}

static bool put_message(struct cf *cf, struct stream *st)
{
	const uint32_t len = len_of(st->seq);
	const uint32_t flags = st->seq % CONFIRM == CONFIRM - 1 ? GN_SIGNALED : 0;
	struct gn_sge sge = cf_sge(&st->rc, slot_at(st->seq), len);
	struct gn_sge flag_sge = cf_sge(&st->rc, flag_at(st->seq), WORD);
	struct gn_wr wr[2];

	for (size_t i = 0; i < len / WORD; i++)
		word_at(st, slot_at(st->seq))[i] = word_of(st->seq, i);
	*word_at(st, flag_at(st->seq)) = word_of(st->seq, 0);
	gn_wr_rdma(&wr[0], GN_OP_WRITE, st->seq, &sge, &st->rc.peer, slot_at(st->seq), flags);
	if (st->last == LAST_IS_FLAG) {
		wr[0].flags = 0;
		wr[0].next = &wr[1];
		gn_wr_rdma(&wr[1], GN_OP_WRITE, st->seq, &flag_sge, &st->rc.peer, flag_at(st->seq),
			   flags);
	}
	return cf_post(cf, st->rc.qp, wr);
}

static bool stream_out(struct cf *cf, struct stream *st)
{
	for (; st->seq % STREAM_STEP || cf_more_both(cf, st->seq, STREAM_ROUNDS); st->seq++) {
		CHECK(await_room(cf, st));
		CHECK(put_message(cf, st));
		CHECK(reap(cf, st, false));
	}
	return cf_sync(cf);
}

/* ---- B ---- */

static bool check_words(struct cf *cf, const struct stream *st, size_t from, size_t to)
{
	const uint64_t *slot = word_at(st, slot_at(st->seq));

	for (size_t i = from; i < to; i++)
		CHECK(__atomic_load_n(&slot[i], __ATOMIC_RELAXED) == word_of(st->seq, i),
		      "message %llu: word %zu of %zu was not there yet",
		      (unsigned long long)st->seq, i, len_of(st->seq) / WORD);
	return true;
}

static bool take_message(struct cf *cf, struct stream *st)
{
	const size_t words = len_of(st->seq) / WORD;
	size_t step = st->last == LAST_OF_BLOCK ? BLOCK / WORD : words;

	if (st->last == LAST_IS_FLAG) {
		CHECK(await_word(cf, word_at(st, flag_at(st->seq)), word_of(st->seq, 0)));
		return check_words(cf, st, 0, words);
	}
	for (size_t from = 0; from < words; from += step) {
		size_t last = (from + step < words ? from + step : words) - 1;

		CHECK(await_word(cf, word_at(st, slot_at(st->seq)) + last, word_of(st->seq, last)));
		CHECK(check_words(cf, st, from, last));
	}
	return true;
}

static bool confirm(struct cf *cf, struct stream *st)
{
	*word_at(st, CONFIRM_AT) = st->seq + 1;
	CHECK(cf_write(cf, &st->rc, st->seq, CONFIRM_AT, CONFIRM_AT, WORD, GN_SIGNALED));
	return cf_expect_wc(cf, st->rc.send_cq, st->seq, GN_WC_OK);
}

static bool stream_in(struct cf *cf, struct stream *st)
{
	for (; st->seq % STREAM_STEP || cf_more_both(cf, st->seq, STREAM_ROUNDS); st->seq++) {
		CHECK(take_message(cf, st));
		if (st->seq % CONFIRM == CONFIRM - 1)
			CHECK(confirm(cf, st));
	}
	return cf_sync(cf);
}

static bool stream(struct cf *cf, struct stream *st)
{
	return cf->role == CF_A ? stream_out(cf, st) : stream_in(cf, st);
}

/* ---- 71 ---- */

static bool in_order(struct cf *cf)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct stream st;

	CHECK(stream_open(cf, LAST_OF_MESSAGE, &st));
	CHECK_INT(gn_qp_query(st.rc.qp, &attr), 0);
	if (!(attr.caps & GN_CAP_INORDER_WRITE)) {
		if (!(attr.caps & GN_CAP_INORDER_128))
			SKIP("this connection does not promise the order of a WRITE's bytes");
		st.last = LAST_OF_BLOCK;
	}
	return stream(cf, &st);
}

/* ---- 72 ---- */

static bool write_order(struct cf *cf)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct stream st;

	CHECK(stream_open(cf, LAST_IS_FLAG, &st));
	CHECK_INT(gn_qp_query(st.rc.qp, &attr), 0);
	if (!(attr.caps & GN_CAP_WRITE_ORDER))
		SKIP("this connection does not promise the order of WRITEs");
	return stream(cf, &st);
}

/* ---- 75 ---- */

#define BARRIER_ROUNDS 100000u
#define AHEAD	       4u /* rounds that A is ahead of B's answers, each with an area of its own */
#define PIECES	       8u
#define PIECE_BYTES    4096u
#define PIECE_LEN_MAX  3000u
#define AREA_BYTES     (PIECES * PIECE_BYTES)
#define IMM	       0x75757575u

/* WRITEs of one round, ended by a SEND or by the last of them with an immediate value. */
struct round {
	unsigned n;
	bool with_imm;
	uint64_t number;
	size_t at[PIECES];
	uint32_t len_bytes[PIECES];
};

/* The same on both sides: both draw from the case's seed. */
static void plan(struct cf *cf, uint64_t number, struct round *round)
{
	round->number = number;
	round->n = (unsigned)cf_rand_in(cf, 1, PIECES);
	round->with_imm = cf_rand(cf) % 2;
	for (unsigned i = 0; i < round->n; i++) {
		round->len_bytes[i] = (uint32_t)cf_rand_in(cf, 1, PIECE_LEN_MAX);
		round->at[i] = number % AHEAD * AREA_BYTES + i * PIECE_BYTES +
			       cf_rand_in(cf, 0, PIECE_BYTES - PIECE_LEN_MAX);
	}
}

static bool barrier_out(struct cf *cf, struct cf_rc *rc, const struct round *round)
{
	struct gn_sge sge[PIECES];
	struct gn_wr wr[PIECES + 1];
	unsigned last = round->with_imm ? round->n - 1 : round->n;

	for (unsigned i = 0; i < round->n; i++) {
		sge[i] = cf_sge(rc, round->at[i], round->len_bytes[i]);
		cf_fill(cf, sge[i].addr, sge[i].len_bytes, round->number * PIECES + i);
		gn_wr_rdma(&wr[i], GN_OP_WRITE, 0, &sge[i], &rc->peer, round->at[i], 0);
		wr[i].next = &wr[i + 1];
	}
	if (round->with_imm)
		wr[last].op = GN_OP_WRITE_IMM;
	else
		gn_wr_init(&wr[last], GN_OP_SEND_IMM, 0, NULL, 0, 0);
	wr[last].id = round->number;
	wr[last].imm = IMM;
	wr[last].flags = GN_SIGNALED;
	wr[last].next = NULL;
	CHECK(cf_recv(cf, rc, round->number, 0, 0)); /* for the answer */
	return cf_post(cf, rc->qp, wr);
}

static bool barrier_answered(struct cf *cf, struct cf_rc *rc, uint64_t number)
{
	CHECK(cf_expect_wc(cf, rc->recv_cq, number, GN_WC_OK));
	return cf_expect_wc(cf, rc->send_cq, number, GN_WC_OK);
}

static bool barrier_in(struct cf *cf, struct cf_rc *rc, const struct round *round)
{
	struct gn_wc wc;

	CHECK(cf_poll_one(cf, rc->recv_cq, &wc));
	CHECK_INT(wc.status, GN_WC_OK);
	CHECK_INT(wc.op, round->with_imm ? GN_OP_RECV_WRITE_IMM : GN_OP_RECV);
	CHECK(wc.flags & GN_WC_IMM && wc.imm == IMM, "immediate %x", wc.imm);
	for (unsigned i = 0; i < round->n; i++)
		CHECK(cf_check_fill(cf, rc->buf + round->at[i], round->len_bytes[i],
				    round->number * PIECES + i),
		      "round %llu, write %u of %u: %s", (unsigned long long)round->number, i + 1,
		      round->n, cf->why);
	CHECK(cf_recv(cf, rc, 0, 0, 0));
	CHECK(cf_send(cf, rc, 0, 0, 0, GN_SIGNALED));
	return cf_expect_wc(cf, rc->send_cq, 0, GN_WC_OK);
}

static bool barrier_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.buf_bytes = AHEAD * AREA_BYTES};
	struct round round;
	uint64_t answered = 0;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0; i % STREAM_STEP || cf_more_both(cf, i, BARRIER_ROUNDS); i++) {
		if (i >= AHEAD)
			CHECK(barrier_answered(cf, &rc, answered++));
		plan(cf, i, &round);
		CHECK(barrier_out(cf, &rc, &round));
	}
	for (unsigned i = 0; i < AHEAD; i++)
		CHECK(barrier_answered(cf, &rc, answered++));
	return cf_sync(cf);
}

static bool barrier_b(struct cf *cf)
{
	struct cf_rc_opts opts = {.buf_bytes = AHEAD * AREA_BYTES};
	struct round round;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	for (unsigned i = 0; i < AHEAD; i++)
		CHECK(cf_recv(cf, &rc, 0, 0, 0));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0; i % STREAM_STEP || cf_more_both(cf, i, BARRIER_ROUNDS); i++) {
		plan(cf, i, &round);
		CHECK(barrier_in(cf, &rc, &round));
	}
	return cf_sync(cf);
}

const struct cf_case cf_cases_ordering[] = {
	{71, "a WRITE's last bytes come last", in_order, in_order, 0, 0},
	{72, "a WRITE never overtakes an earlier one", write_order, write_order, 0, 0},
	{75, "a receive shows all earlier WRITEs", barrier_a, barrier_b, 0, 0},
	{0},
};
