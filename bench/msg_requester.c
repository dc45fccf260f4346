/* SPDX-License-Identifier: MIT */
/*
 * A thread that asks: R requests under way on each connection; an answer is taken, checked, and the
 * next request takes its place. Of every value the first and the last word are looked at, of one in
 * some all bytes; of one request in some it is measured how long it took.
 */
#include <errno.h>
#include <stdlib.h>

#include "msg_hall.h"

#define TAKE_MAX      32u
#define WHOLE_EVERY   64u /* one value in so many is checked to the last byte */
#define ENDS_BYTES    8u  /* of a value: its first and its last ones */
#define CLOCK_EVERY   16u /* one request in so many is timed: a clock reading is a part of one */
#define GROUP	      256u
#define GROUP_LARGE   32u /* of values from here on */
#define LARGE_BYTES   16384u
#define CONNECT_US    5000000u
#define LISTEN_NAP_US 500u
#define LISTEN_US     10000000u

struct slot {
	struct gn_msg_conn *conn;
	uint32_t responder, key;
	const uint64_t (*ends)[2]; /* of the responder's values, by key */
	uint64_t asked_ns;	   /* 0: not timed */
};

struct requester {
	struct msg_hall *hall;
	struct msg_tally *tally;
	struct gn_fabric *fabric;
	struct gn_msg_requester *msg;
	struct slot *slots;  /* of all connections, each with as many as may be under way */
	uint64_t (*ends)[2]; /* of all values: of a connection's responder, by key */
	uint32_t n_slots, keys;
	uint32_t under_way;
	uint8_t *requests; /* one for each key: to write one and copy it at once is slow */
	uint64_t asked, taken;
	uint64_t now_ns; /* of this turn, once it was looked at */
	struct patience patience;
};

/* ---- making ---- */

static void destroy(void *arg)
{
	struct requester *q = arg;

	gn_msg_requester_destroy(q->msg);
	gn_fabric_close(q->fabric);
	free(q->requests);
	free(q->slots);
	free(q->ends);
	free(q);
}

/* All responders must listen first, and the last one may need a while to be started. */
static int await_responders(const struct msg_hall *hall)
{
	const uint64_t end_ns = gn_deadline_us(LISTEN_US);

	/* Pairs with the release in msg_responder_main(). */
	while (__atomic_load_n(&hall->listening, __ATOMIC_ACQUIRE) <
	       bench_msg_responders(&hall->opts)) {
		if (bench_stopped())
			return -EINTR;
		if (gn_now_ns() > end_ns || hall->crew.failed)
			return -ETIMEDOUT;
		gn_sleep_us(LISTEN_NAP_US);
	}
	return 0;
}

static int connect_all(struct requester *q, uint32_t index)
{
	const struct bench_msg_opts *o = &q->hall->opts;
	const uint32_t conns = bench_msg_conns(o);
	int rc = await_responders(q->hall);

	for (uint32_t i = 0; !rc && i < conns; i++) {
		const uint32_t responder = msg_responder_of(o, index, i);
		const char *addr = q->hall->addr[responder], *why = NULL;
		struct gn_msg_conn *conn;

		rc = gn_msg_conn_open(q->msg, addr, &why, &conn);
		if (rc) {
			gn_log(GN_LOG_ERROR, "bench: cannot connect to %s: %s", addr,
			       why ? why : gn_strerror(rc));
			return rc;
		}
		for (uint32_t k = 0; o->value_bytes >= ENDS_BYTES && k < q->keys; k++)
			pattern_ends(o->value_bytes, value_seed(o, responder, k),
				     q->ends[i * q->keys + k]);
		for (uint32_t k = 0; k < o->pending; k++)
			q->slots[i * o->pending + k] = (struct slot){
				.conn = conn,
				.responder = responder,
				.ends = (const uint64_t(*)[2]) & q->ends[i * q->keys]};
	}
	return rc;
}

static int open_requester(struct requester *q)
{
	const struct bench_msg_opts *o = &q->hall->opts;
	const struct gn_msg_requester_opts opts = {
		.protocol = o->protocol,
		.pending = o->pending,
		.request_bytes = o->request_bytes,
		.value_bytes = o->value_bytes,
		.max_conns = bench_msg_conns(o),
		.timeout_us = CONNECT_US,
		.flags = o->paper ? GN_MSG_PAPER : 0,
	};
	int rc = gn_fabric_open(o->provider, &q->fabric);

	if (!rc)
		rc = gn_msg_requester_create(q->fabric, &opts, &q->msg);
	if (rc)
		gn_log(GN_LOG_ERROR, "bench: cannot ask by %s over %s: %s",
		       gn_msg_protocol_str(o->protocol), o->provider, gn_strerror(rc));
	return rc;
}

static uint8_t *make_requests(const struct bench_msg_opts *o)
{
	uint8_t *requests = calloc(keys_of(o), o->request_bytes);

	for (uint32_t key = 0; requests && key < keys_of(o); key++)
		request_put(requests + (size_t)key * o->request_bytes, o->request_bytes, key);
	return requests;
}

static int create(struct crew_hall *crew, uint32_t index, void **out)
{
	struct msg_hall *hall = (struct msg_hall *)crew; /* which begins with it */
	const struct bench_msg_opts *o = &hall->opts;
	const uint32_t mine = index ? index - bench_msg_responders(o) + 1 : 0;
	struct requester *q = calloc(1, sizeof(*q));
	int rc;

	if (!q)
		return -ENOMEM;
	q->hall = hall;
	q->tally = &hall->asked[mine];
	q->keys = keys_of(o);
	q->patience = msg_patience(hall);
	q->n_slots = bench_msg_conns(o) * o->pending;
	q->slots = calloc(q->n_slots, sizeof(*q->slots));
	q->ends = calloc((size_t)bench_msg_conns(o) * q->keys, sizeof(*q->ends));
	q->requests = make_requests(o);
	q->asked = (uint64_t)mine << 20; /* nobody asks for what its neighbour does */
	q->taken = q->asked;
	rc = q->slots && q->ends && q->requests ? open_requester(q) : -ENOMEM;
	if (!rc)
		rc = connect_all(q, mine);
	if (rc) {
		destroy(q);
		return rc;
	}
	*out = q;
	return 0;
}

/* ---- the counting loop ---- */

static inline uint64_t now_of(struct requester *q)
{
	if (!q->now_ns)
		q->now_ns = gn_now_ns();
	return q->now_ns;
}

static inline int ask(struct requester *q, struct slot *slot)
{
	const struct bench_msg_opts *o = &q->hall->opts;
	const uint64_t id = (uint64_t)(slot - q->slots);
	int rc;

	slot->key = key_at(q->asked, q->keys);
	slot->asked_ns = q->asked++ % CLOCK_EVERY ? 0 : now_of(q);
	if (o->protocol == GN_MSG_READ) {
		rc = gn_msg_read(slot->conn, slot->key * value_stride(o), o->value_bytes, id);
	} else {
		rc = gn_msg_ask(slot->conn, q->requests + (size_t)slot->key * o->request_bytes,
				o->request_bytes, id);
	}
	if (unlikely(rc)) {
		gn_log(GN_LOG_ERROR, "bench: cannot ask: %s", gn_strerror(rc));
		return rc;
	}
	q->under_way++;
	return 0;
}

static int complain(const struct slot *slot, const struct gn_msg_result *r)
{
	gn_log(GN_LOG_ERROR, "bench: responder %u, key %u: %s, %u bytes%s", slot->responder,
	       slot->key, gn_msg_status_str(r->status), r->len,
	       r->status == GN_MSG_OK ? ", and not the right ones" : "");
	return -EBADMSG;
}

/* To look at all of every value would be most of what is measured. */
static inline bool is_right(const struct requester *q, const struct slot *slot,
			    const uint8_t *value, uint32_t len)
{
	const uint64_t *ends = slot->ends[slot->key];
	uint64_t first, last;

	if (q->taken % WHOLE_EVERY == 0 || len < ENDS_BYTES)
		return pattern_matches(value, len,
				       value_seed(&q->hall->opts, slot->responder, slot->key));
	memcpy(&first, value, ENDS_BYTES);
	memcpy(&last, value + len - ENDS_BYTES, ENDS_BYTES);
	return first == ends[0] && last == ends[1];
}

static inline int check(struct requester *q, const struct slot *slot, const struct gn_msg_result *r)
{
	if (unlikely(r->status == GN_MSG_LOST)) {
		q->tally->lost++;
		return 0;
	}
	if (likely(r->status == GN_MSG_OK && r->len == q->hall->opts.value_bytes) &&
	    likely(is_right(q, slot, r->value, r->len)))
		return 0;
	return complain(slot, r);
}

/* Takes what there is, and asks again, unless it is to come to rest. */
static inline int turn(struct requester *q, bool again)
{
	struct gn_msg_result results[TAKE_MAX];
	const int n = gn_msg_take(q->msg, results, TAKE_MAX, GN_NO_WAIT);
	int rc = 0;

	if (unlikely(n <= 0))
		return n && n != -EINTR ? n : patience_turn(&q->patience);
	patience_reset(&q->patience);
	q->now_ns = 0;
	for (int i = 0; !rc && i < n; i++) {
		struct slot *slot = &q->slots[results[i].id];

		rc = check(q, slot, &results[i]);
		if (slot->asked_ns)
			gn_hist_add(&q->tally->latency_ns, now_of(q) - slot->asked_ns, 1);
		q->taken++;
		q->under_way--;
		if (!rc && again)
			rc = ask(q, slot);
	}
	return rc;
}

static int tell_silence(int rc)
{
	if (rc == -ETIMEDOUT)
		gn_log(GN_LOG_ERROR, "bench: no answer for %u s", SILENCE_US / 1000000);
	return rc;
}

static int ask_until(struct requester *q, uint64_t taken)
{
	int rc = 0;

	while (!rc && q->taken < taken)
		rc = turn(q, true);
	return tell_silence(rc);
}

int msg_requester_rest(void *arg)
{
	struct requester *q = arg;
	int rc = 0;

	while (!rc && q->under_way)
		rc = turn(q, false);
	return tell_silence(rc);
}

/* ---- blocks ---- */

static uint64_t group_of(const struct bench_msg_opts *o)
{
	return o->value_bytes < LARGE_BYTES ? GROUP : GROUP_LARGE;
}

/* Everything is under way, and has been round once. */
static int warm(void *arg)
{
	struct requester *q = arg;
	int rc = 0;

	if (q->under_way)
		return 0;
	q->now_ns = 0;
	for (uint32_t i = 0; !rc && i < q->n_slots; i++)
		rc = ask(q, &q->slots[i]);
	return rc ? rc : ask_until(q, q->taken + least_u32(q->n_slots, GROUP));
}

static void tally_fabric_of(struct requester *q, int sign)
{
	struct msg_tally *t = q->tally;

	msg_count(q->fabric, sign, &t->wrs, &t->doorbells, &t->cqes);
	t->requests += (uint64_t)(int64_t)sign * q->taken;
}

static int run(void *arg, uint64_t block_ns, struct block *out)
{
	struct requester *q = arg;
	uint64_t since_ns, until;
	int rc = warm(q);

	out->group_ops = group_of(&q->hall->opts);
	tally_fabric_of(q, -1);
	until = q->taken;
	since_ns = gn_now_ns();
	while (!rc && out->ns < block_ns) {
		until += out->group_ops;
		rc = ask_until(q, until);
		if (!rc)
			since_ns = block_group(out, since_ns);
	}
	tally_fabric_of(q, 1);
	q->tally->ns += out->ns;
	return rc;
}

static int finish(void *arg)
{
	struct requester *q = arg;
	struct gn_msg_stats stats = {0};
	const int rc = msg_requester_rest(q);

	gn_msg_requester_stats(q->msg, &stats);
	q->tally->repeats = stats.repeats;
	/* Pairs with the acquire in msg_responder.c. */
	__atomic_add_fetch(&q->hall->left, 1, __ATOMIC_RELEASE);
	return rc;
}

const struct crew_client msg_requester_ops = {
	.create = create,
	.destroy = destroy,
	.warm = warm,
	.run = run,
	.finish = finish,
};
