/* SPDX-License-Identifier: MIT */
/*
 * Messages there and back: SEND, WRITE_IMM, and SEND as a datagram. One side keeps a number of
 * messages in flight and counts what comes back; the other returns each of them. Every message
 * carries its number in its first bytes; the tails of the last exchange are checked as well.
 *
 * Each side sends its i-th message from send buffer i mod n. Message number i arrives in the next
 * receive, or, for WRITE_IMM, in the exposed buffer i mod n.
 */
#include "pair.h"

#include <errno.h>
#include <gannet/exec.h>

#define CHAIN	    16u	    /* messages sent, taken or receives posted at once, at most */
#define DEEP_GROUP  8u	    /* deep windows are timed over so many times more messages */
#define LOST_US	    100000u /* a datagram that takes longer is lost */
#define CHECK_TRIES 10	    /* for a last datagram to come through */

struct messages {
	struct side *side;
	enum bench_op op;
	uint32_t mask;		    /* buffers - 1 */
	uint32_t restock_at;	    /* used receives that make a chain worth posting */
	uint64_t sent, acked;	    /* messages, and how many are known to be done */
	uint64_t signaled;	    /* the last one that asked for a completion */
	uint64_t received, stocked; /* receives used up, and posted */
	uint64_t expected;	    /* the number that comes next */
	uint64_t lost;
	uint64_t taken, returned; /* messages accepted and, by the side that answers, sent back */
	uint64_t *numbers;	  /* of those that are still to be sent back */
	uint8_t *receives;
	const uint8_t *last; /* payload */
	struct gn_wr wr[CHAIN];
	struct gn_sge sge[CHAIN];
	struct gn_recv_wr recv_wr[CHAIN];
	struct gn_sge recv_sge[CHAIN];
};

static const char *name_of(const struct messages *m)
{
	return bench_ops[m->op];
}

/* ---- receives ---- */

static int restock(struct messages *m, uint32_t n)
{
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t slot = (uint32_t)(m->stocked++ & m->mask);

		m->recv_wr[i].id = slot;
		m->recv_wr[i].next = i + 1 < n ? &m->recv_wr[i + 1] : NULL;
		m->recv_sge[i].addr = m->receives + (size_t)slot * m->side->plan.receive_stride;
	}
	rc = gn_post_recv(m->side->qp, m->recv_wr, NULL);
	if (rc)
		gn_log(GN_LOG_ERROR, "%s: cannot post a receive: %s", name_of(m), gn_strerror(rc));
	return rc;
}

static inline int restock_if_due(struct messages *m)
{
	const uint64_t used = m->received + m->mask + 1 - m->stocked;

	return unlikely(used >= m->restock_at) ? restock(m, m->restock_at) : 0;
}

int messages_restock(struct messages *m)
{
	return restock_if_due(m);
}

/* What does not change from one use of a request to the next. */
static void prepare(struct messages *m)
{
	const struct side *side = m->side;
	const uint32_t flags = side->inline_max >= side->opts.size_bytes ? GN_INLINE : 0;
	const bool has_buffer = m->op != BENCH_WRITE_IMM && side->plan.receive_stride;

	for (uint32_t i = 0; i < CHAIN; i++) {
		m->sge[i] = (struct gn_sge){.len_bytes = side->opts.size_bytes,
					    .lkey = gn_mr_lkey(side->local_mr)};
		gn_wr_init(&m->wr[i], m->op == BENCH_WRITE_IMM ? GN_OP_WRITE_IMM : GN_OP_SEND, 0,
			   &m->sge[i], 1, flags);
		m->recv_sge[i] = (struct gn_sge){.len_bytes = side->plan.receive_stride,
						 .lkey = gn_mr_lkey(side->local_mr)};
		m->recv_wr[i] = (struct gn_recv_wr){.sge = &m->recv_sge[i], .n_sge = has_buffer};
	}
}

int messages_create(struct side *side, struct messages **out)
{
	const struct plan *plan = &side->plan;
	struct messages *m = gn_alloc(sizeof(*m), 0);
	int rc = -ENOMEM;

	if (!m)
		return rc;
	m->side = side;
	m->op = side->opts.op;
	m->mask = plan->receives - 1;
	m->restock_at = plan->receives / 4 > CHAIN ? CHAIN : plan->receives / 4;
	m->restock_at += !m->restock_at;
	m->receives = side->local + (size_t)plan->slots * plan->stride;
	m->numbers = gn_alloc(plan->receives * sizeof(*m->numbers), 0);
	if (!m->numbers)
		goto destroy;
	prepare(m);
	if (plan->receive_stride)
		slots_fill(side->local, plan->slots, plan->stride, side->opts.size_bytes,
			   side->opts.seed);
	for (uint32_t i = 0; i < plan->receives; i += m->restock_at) {
		rc = restock(m, m->restock_at);
		if (rc)
			goto destroy;
	}
	*out = m;
	return 0;

destroy:
	messages_destroy(m);
	return rc;
}

void messages_destroy(struct messages *m)
{
	if (!m)
		return;
	gn_free(m->numbers);
	gn_free(m);
}

uint64_t messages_lost(const struct messages *m)
{
	return m->lost;
}

/* ---- sending ---- */

static inline uint32_t room(const struct messages *m)
{
	const uint64_t left = m->side->plan.send_wrs - (m->sent - m->acked);

	return left > CHAIN ? CHAIN : (uint32_t)left;
}

static inline uint8_t *send_buffer(const struct messages *m, uint64_t index)
{
	return m->side->local + (size_t)(index & m->mask) * m->side->plan.stride;
}

/* Fill in request i with a message of that number. */
static inline void write_message(struct messages *m, uint32_t i, uint64_t number)
{
	const struct side *side = m->side;
	const uint32_t size = side->opts.size_bytes;
	struct gn_wr *wr = &m->wr[i];

	m->sge[i].addr = send_buffer(m, m->sent + i);
	if (likely(size >= sizeof(number)))
		memcpy(m->sge[i].addr, &number, sizeof(number));
	else
		memcpy(m->sge[i].addr, &number, size);
	if (m->op == BENCH_WRITE_IMM) {
		wr->imm = (uint32_t)number;
		wr->to.remote.key = side->remote.key;
		wr->to.remote.offset =
			side->remote.offset + (number & m->mask) * side->plan.receive_stride;
	} else if (m->op == BENCH_UD_SEND) {
		wr->to.ud.ah = side->ah;
		wr->to.ud.qpn = side->to.qpn;
		wr->to.ud.qkey = side->to.qkey;
	}
}

static inline int post_messages(struct messages *m, uint32_t n)
{
	struct gn_wr *last = &m->wr[n - 1];
	int rc;

	for (uint32_t i = 0; i + 1 < n; i++)
		m->wr[i].next = &m->wr[i + 1];
	last->next = NULL;
	m->sent += n;
	if (unlikely(m->sent - m->signaled >= m->side->plan.send_wrs / 2)) {
		last->flags |= GN_SIGNALED;
		last->id = m->signaled = m->sent;
	}
	rc = gn_post_send(m->side->qp, m->wr, NULL);
	last->flags &= ~(uint32_t)GN_SIGNALED;
	if (unlikely(rc))
		gn_log(GN_LOG_ERROR, "%s: cannot post: %s", name_of(m), gn_strerror(rc));
	return rc;
}

/* ---- arriving ---- */

static inline const uint8_t *payload_of(const struct messages *m, const struct gn_wc *wc)
{
	const size_t stride = m->side->plan.receive_stride;

	if (m->op == BENCH_WRITE_IMM)
		return m->side->exposed + (wc->imm & m->mask) * stride;
	return m->receives + wc->id * stride + (m->op == BENCH_UD_SEND ? GN_GRH_BYTES : 0);
}

/* How far a message is from the expected one, in as many bits as it has for its number. */
static inline int64_t number_minus_expected(const struct messages *m, const uint8_t *payload)
{
	const uint32_t size = m->side->opts.size_bytes;
	const unsigned spare = size < 8 ? 64 - 8 * size : 0;
	uint64_t number = 0;

	if (likely(size >= 8))
		memcpy(&number, payload, 8);
	else
		memcpy(&number, payload, size);
	return (int64_t)((number - m->expected) << spare) >> spare;
}

static int out_of_turn(struct messages *m, int64_t off)
{
	if (m->op != BENCH_UD_SEND) {
		gn_log(GN_LOG_ERROR, "%s: message %llu came instead of %llu", name_of(m),
		       (unsigned long long)(m->expected + (uint64_t)off),
		       (unsigned long long)m->expected);
		return -EBADMSG;
	}
	if (off > 0) /* those in between are lost; an older one was given up before */
		m->lost += (uint64_t)off;
	return 0;
}

/* 1 for a message that was expected. */
static inline int take(struct messages *m, const struct gn_wc *wc)
{
	const uint8_t *payload;
	int64_t off;

	if (unlikely(wc->status != GN_WC_OK)) {
		if (!bench_stopped()) /* the end of the other process is no surprise then */
			gn_log(GN_LOG_ERROR, "%s failed: %s", name_of(m),
			       gn_wc_status_str(wc->status));
		return -EIO;
	}
	if (wc->op != GN_OP_RECV && wc->op != GN_OP_RECV_WRITE_IMM) {
		m->acked = wc->id;
		return 0;
	}
	m->received++;
	if (unlikely(!m->side->plan.receive_stride))
		return 1;
	payload = payload_of(m, wc);
	off = number_minus_expected(m, payload);
	if (m->op == BENCH_WRITE_IMM && unlikely(wc->imm != (uint32_t)m->expected))
		off = (int32_t)(wc->imm - (uint32_t)m->expected);
	if (unlikely(off)) {
		const int rc = out_of_turn(m, off);

		if (rc || off < 0)
			return rc;
	}
	m->last = payload;
	m->expected += (uint64_t)off;
	m->numbers[m->taken++ & m->mask] = m->expected++;
	return 1;
}

/* How many messages were taken. */
int messages_receive(struct messages *m, const struct gn_wc *wc, int n)
{
	int taken = 0;

	for (int i = 0; i < n; i++) {
		const int rc = take(m, &wc[i]);

		if (unlikely(rc < 0))
			return rc;
		taken += rc;
	}
	return n < 0 ? n : taken;
}

static inline int poll_messages(struct messages *m)
{
	struct gn_wc wc[CHAIN];

	return messages_receive(m, wc, gn_cq_poll(m->side->cq, wc, CHAIN));
}

/* ---- the side that counts ---- */

static int silence(struct messages *m, struct patience *patience)
{
	const int rc = patience_turn(patience);

	if (likely(rc != -ETIMEDOUT))
		return rc;
	if (m->op != BENCH_UD_SEND) {
		gn_log(GN_LOG_ERROR, "%s: no answer for %u s", name_of(m), SILENCE_US / 1000000);
		return rc;
	}
	m->lost += m->sent - m->expected;
	m->expected = m->sent;
	patience_reset(patience);
	return 0;
}

static inline int fill_window(struct messages *m, uint32_t window)
{
	const uint64_t in_flight = m->sent - m->expected;
	const uint32_t free_now = in_flight < window ? window - (uint32_t)in_flight : 0;
	const uint32_t n = free_now < room(m) ? free_now : room(m);

	for (uint32_t i = 0; i < n; i++)
		write_message(m, i, m->sent + i);
	return n ? post_messages(m, n) : 0;
}

/* Until all messages below number are back, with `window` in flight. */
static int pump(struct messages *m, uint64_t number, uint32_t window)
{
	struct patience patience =
		patience_for(&m->side->opts, m->op == BENCH_UD_SEND ? LOST_US : SILENCE_US);

	while (m->expected < number) {
		int rc = fill_window(m, window);

		if (!rc)
			rc = restock_if_due(m);
		if (unlikely(rc))
			return rc;
		rc = poll_messages(m);
		if (rc > 0)
			patience_reset(&patience);
		else if (!rc)
			rc = silence(m, &patience);
		if (unlikely(rc < 0))
			return rc;
	}
	return 0;
}

uint64_t messages_group_ops(const struct bench_opts *opts)
{
	/* Simulated clocks take no time. */
	return least_u32(opts->depth, DEEP_GROUP) * (opts->profile ? 1 : GROUP_TRIPS);
}

int messages_begin(struct messages *m)
{
	return pump(m, m->sent + m->side->opts.depth, m->side->opts.depth);
}

int messages_trips(struct messages *m, uint32_t n)
{
	return pump(m, m->expected + n, m->side->opts.depth);
}

int messages_end(struct messages *m)
{
	return pump(m, m->sent, 0);
}

int messages_send(struct messages *m)
{
	if (!room(m))
		return -EAGAIN;
	write_message(m, 0, m->sent);
	return post_messages(m, 1);
}

/* ---- the tail of a message: what comes after its number ---- */

static void write_tail(struct messages *m, uint64_t index, uint64_t seed)
{
	const uint32_t size = m->side->opts.size_bytes;

	if (size > 8)
		pattern_fill(send_buffer(m, index) + 8, size - 8, seed);
}

static int check_tail(const struct messages *m, uint64_t seed)
{
	const uint32_t size = m->side->opts.size_bytes;

	if (size <= 8 || pattern_matches(m->last + 8, size - 8, seed))
		return 0;
	gn_log(GN_LOG_ERROR, "%s: wrong data in message %llu", name_of(m),
	       (unsigned long long)(m->expected - 1));
	return -EBADMSG;
}

/* One more message with a tail of its own; the answer has another one. */
int messages_check(struct messages *m, struct pair *pair)
{
	const uint64_t seed = m->side->opts.seed;
	/* A peer that has not seen the order yet would echo it like any other. */
	int rc = pair_ask(pair, ORDER_IDLE);

	if (rc)
		return rc;
	pair_order(pair, ORDER_CHECK);
	for (int i = 0; i < CHECK_TRIES; i++) {
		const uint64_t lost = m->lost, number = m->sent;

		write_tail(m, number, seed + number);
		rc = pump(m, number + 1, 1);
		if (rc)
			return rc;
		if (m->lost == lost) {
			rc = check_tail(m, ~seed + number);
			break;
		}
		rc = -ETIMEDOUT;
	}
	if (rc == -ETIMEDOUT)
		gn_log(GN_LOG_ERROR, "%s: the last message was lost %d times", name_of(m),
		       CHECK_TRIES);
	return rc ? rc : pair_ask(pair, ORDER_IDLE);
}

/* ---- the side that answers ---- */

static int give_back(struct messages *m, bool check)
{
	while (m->returned != m->taken) {
		const uint64_t left = m->taken - m->returned;
		const uint32_t n = left < room(m) ? (uint32_t)left : room(m);
		int rc;

		for (uint32_t i = 0; i < n; i++) {
			const uint64_t number = m->numbers[(m->returned + i) & m->mask];

			if (unlikely(check))
				write_tail(m, m->sent + i, ~m->side->opts.seed + number);
			write_message(m, i, number);
		}
		if (!n) /* when completions have been polled */
			return 0;
		rc = post_messages(m, n);
		if (rc)
			return rc;
		m->returned += n;
	}
	return 0;
}

int messages_echo(struct messages *m, const uint64_t *order, uint64_t mine, bool check)
{
	struct patience patience = patience_for(&m->side->opts, GN_FOREVER / 1000);

	for (;;) {
		int rc = poll_messages(m);

		if (rc > 0) {
			patience_reset(&patience);
			rc = check ? check_tail(m, m->side->opts.seed + m->expected - 1) : 0;
		} else if (rc == 0 && m->returned == m->taken) {
			/* Pairs with the release in pair_order(). */
			if (__atomic_load_n(order, __ATOMIC_ACQUIRE) != mine)
				return 0;
			rc = patience_turn(&patience);
			if (!rc)
				continue;
		}
		if (!rc)
			rc = give_back(m, check);
		if (!rc)
			rc = restock_if_due(m);
		if (unlikely(rc))
			return rc;
	}
}

/* The zero-byte message after which all one-sided requests are in place. */
int messages_await_one(struct messages *m)
{
	struct patience patience = patience_for(&m->side->opts, SILENCE_US);
	int rc;

	while ((rc = poll_messages(m)) == 0) {
		rc = patience_turn(&patience);
		if (rc)
			break;
	}
	return rc < 0 ? rc : 0;
}
