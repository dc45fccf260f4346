/* SPDX-License-Identifier: MIT */
/*
 * A requester: has R requests under way on each of its connections, checks each response, and posts
 * the next request when it has come.
 */
#include <errno.h>

#include "msg_load.h"

#define TAKE_MAX    32
#define SIM_TAKE    16
#define WHOLE_EVERY 64u /* one value in so many is checked to the last byte */
#define ENDS_BYTES  8u	/* of a value: its first and its last ones */
#define CLOCK_EVERY \
	16u /* processes time one request in so many: a clock reading is a part of one */
#define GROUP	    256u
#define GROUP_LARGE 32u /* of values from here on */
#define LARGE_BYTES 16384u
#define CONNECT_US  5000000u
#define FIRST	    8u	/* requests of a connection to begin with */
#define READS	    16u /* that cards have under way of a qp */

struct request {
	uint32_t conn, key;
	uint64_t posted_ns; /* 0: not timed */
};

struct msg_conn {
	struct gn_msg_conn *conn;
	uint32_t responder;
	uint64_t read_base;  /* simulated READs: where the responder's slots for it begin */
	uint32_t begun;	     /* requests that were ever under way at once */
	uint64_t (*ends)[2]; /* of the responder's values, by key */
};

struct msg_requester {
	struct load_client base;
	struct msg_run *run;
	struct gn_msg_requester *msg;
	struct msg_conn *conns;
	struct request *requests; /* of all connections, each with as many as may be under way */
	uint64_t (*ends)[2];
	uint32_t n_conns, keys, under_way;
	bool slots;	/* READs of slots whose contents are not used */
	uint8_t *bytes; /* a request for each key: to write one and copy it at once is slow */
	uint64_t posted, taken;
	uint64_t now_ns; /* of this turn, once it was looked at */
	struct patience patience;
};

static struct msg_requester *requester_of(const struct load_client *c)
{
	return (struct msg_requester *)c; /* which it begins with */
}

/* Neighbours use other keys. */
static uint64_t first_request(const struct load_client *base)
{
	return (uint64_t)base->number << 20;
}

/* ---- beginning and end ---- */

static int connect_responder(struct msg_requester *q, uint32_t i)
{
	const struct bench_msg_opts *o = &q->run->opts;
	struct msg_conn *c = &q->conns[i];
	char addr[LOAD_ADDR_MAX];
	const char *why = NULL;
	uint32_t number;
	int rc;

	c->responder = msg_responder_of(o, q->base.number, i, &number);
	c->read_base = number * read_slots_bytes(o);
	c->ends = &q->ends[i * q->keys];
	load_server_addr(q->base.run, c->responder, addr);
	rc = gn_msg_conn_open(q->msg, addr, &why, &c->conn);
	if (rc)
		return load_fail(q->base.run, rc, "connecting %s to %s: %s", gn_node_name(), addr,
				 why ? why : gn_strerror(rc));
	for (uint32_t k = 0; o->value_bytes >= ENDS_BYTES && k < q->keys; k++)
		pattern_ends(o->value_bytes, value_seed(o, c->responder, k), c->ends[k]);
	return 0;
}

static int open_requester(struct msg_requester *q)
{
	const struct bench_msg_opts *o = &q->run->opts;
	struct gn_msg_requester_opts opts = msg_requester_opts(o);
	int rc;

	opts.max_conns = q->n_conns;
	opts.timeout_us = o->load.profile ? 0 : CONNECT_US;
	opts.ctx = q->base.proc->ctx;
	opts.flags = o->load.paper ? GN_MSG_PAPER : 0;
	rc = gn_msg_requester_create(q->base.proc->fabric, &opts, &q->msg);
	if (rc == -EMSGSIZE)
		return load_fail(q->base.run, rc, "a value of %u bytes is more than %s can carry",
				 o->value_bytes, gn_msg_protocol_str(o->protocol));
	return load_check(q->base.run, rc, "creating a requester");
}

static int make_requests(struct msg_requester *q)
{
	const struct bench_msg_opts *o = &q->run->opts;

	q->conns = gn_alloc(q->n_conns * sizeof(*q->conns), 0);
	q->requests = gn_alloc((size_t)q->n_conns * o->pending * sizeof(*q->requests), 0);
	q->ends = gn_alloc((size_t)q->n_conns * q->keys * sizeof(*q->ends), 0);
	q->bytes = gn_alloc((size_t)q->keys * o->request_bytes, 0);
	if (!q->conns || !q->requests || !q->ends || !q->bytes)
		return -ENOMEM;
	for (uint32_t i = 0; i < q->n_conns * o->pending; i++)
		q->requests[i].conn = i / o->pending;
	for (uint32_t key = 0; key < q->keys; key++)
		request_put(q->bytes + (size_t)key * o->request_bytes, o->request_bytes, key);
	return 0;
}

static int msg_open(struct load_client *base)
{
	struct msg_requester *q = requester_of(base);
	const struct bench_msg_opts *o;
	int rc;

	q->run = (struct msg_run *)base->run; /* which begins with it */
	o = &q->run->opts;
	q->n_conns = bench_msg_conns(o);
	q->keys = keys_of(o);
	q->slots = o->load.profile && o->protocol == GN_MSG_READ;
	q->patience = patience_for(&base->run->pair.opts, SILENCE_US);
	if (q->run->crowded)
		q->patience.spins = 1;			     /* others on this core run at once */
	q->posted = q->taken = first_request(base);
	rc = load_check(base->run, make_requests(q), "memory for requests");
	if (!rc)
		rc = open_requester(q);
	for (uint32_t i = 0; i < q->n_conns && !rc; i++)
		rc = load_gives_up(base) ? -EINTR : connect_responder(q, i);
	return rc;
}

static void msg_close(struct load_client *base)
{
	struct msg_requester *q = requester_of(base);

	if (base->run->simulated)
		base->run->life.ops += q->posted - first_request(base);
	gn_msg_requester_destroy(q->msg);
	gn_free(q->conns);
	gn_free(q->requests);
	gn_free(q->ends);
	gn_free(q->bytes);
}

/* ---- requests ---- */

static inline uint64_t now_of(struct msg_requester *q)
{
	if (!q->now_ns)
		q->now_ns = gn_now_ns();
	return q->now_ns;
}

static inline int post_request(struct msg_requester *q, uint32_t id)
{
	const struct bench_msg_opts *o = &q->run->opts;
	struct request *r = &q->requests[id];
	struct msg_conn *c = &q->conns[r->conn];
	int rc;

	r->key = key_at(q->posted, q->keys);
	if (q->base.run->simulated)
		r->posted_ns = gn_now_ns();
	else
		r->posted_ns = q->posted % CLOCK_EVERY ? 0 : now_of(q);
	q->posted++;
	if (o->protocol != GN_MSG_READ)
		rc = gn_msg_ask(c->conn, q->bytes + (size_t)r->key * o->request_bytes,
				o->request_bytes, id);
	else if (q->slots)
		rc = gn_msg_read(c->conn,
				 c->read_base +
					 (uint64_t)(id % o->pending) *
						 (o->request_bytes + o->value_bytes) +
					 o->request_bytes,
				 o->value_bytes, id);
	else
		rc = gn_msg_read(c->conn, r->key * value_stride(o), o->value_bytes, id);
	if (unlikely(rc))
		return load_check(q->base.run, rc, "posting a request");
	q->under_way++;
	return 0;
}

/* One more is under way on a connection, up to R. */
static inline int post_more(struct msg_requester *q, uint32_t conn)
{
	const uint32_t pending = q->run->opts.pending;

	if (likely(q->conns[conn].begun == pending))
		return 0;
	return post_request(q, conn * pending + q->conns[conn].begun++);
}

/* To look at all of every value would be most of what is measured. */
static inline bool is_right(const struct msg_requester *q, const struct request *r,
			    const uint8_t *value, uint32_t len)
{
	const struct msg_conn *c = &q->conns[r->conn];
	uint64_t first, last;

	if (q->slots)
		return true;
	if (q->taken % WHOLE_EVERY == 0 || len < ENDS_BYTES)
		return pattern_matches(value, len, value_seed(&q->run->opts, c->responder, r->key));
	memcpy(&first, value, ENDS_BYTES);
	memcpy(&last, value + len - ENDS_BYTES, ENDS_BYTES);
	return first == c->ends[r->key][0] && last == c->ends[r->key][1];
}

static inline int check_response(struct msg_requester *q, const struct gn_msg_result *result)
{
	const struct request *r = &q->requests[result->id];

	if (likely(result->status == GN_MSG_OK && result->len == q->run->opts.value_bytes) &&
	    likely(is_right(q, r, result->value, result->len)))
		return 0;
	if (result->status == GN_MSG_LOST && !q->base.run->simulated) {
		q->base.own.lost++;
		return 0;
	}
	return load_fail(q->base.run, -EBADMSG, "responder %u, key %u: %s, %u bytes%s",
			 q->conns[r->conn].responder, r->key, gn_msg_status_str(result->status),
			 result->len,
			 result->status == GN_MSG_OK ? ", and not the right ones" : "");
}

static inline int take_response(struct msg_requester *q, const struct gn_msg_result *result,
				bool again)
{
	const uint32_t id = (uint32_t)result->id;
	struct request *r = &q->requests[id];
	int rc = check_response(q, result);

	if (r->posted_ns && !q->base.run->simulated)
		gn_hist_add(&q->base.tally->latency_ns, now_of(q) - r->posted_ns, 1);
	q->taken++;
	q->under_way--;
	load_done(&q->base, 1, r->posted_ns);
	if (rc || !again || (q->base.run->simulated && load_stops(&q->base)))
		return rc;
	rc = post_request(q, id);
	return rc ? rc : post_more(q, r->conn);
}

/* Takes what there is. Processes poll, for others may need the core; simulated nodes wait. */
static inline int take_turn(struct msg_requester *q, bool again)
{
	const bool simulated = q->base.run->simulated;
	struct gn_msg_result results[TAKE_MAX];
	const int n = gn_msg_take(q->msg, results, simulated ? SIM_TAKE : TAKE_MAX,
				  simulated ? GN_FOREVER : GN_NO_WAIT);
	int rc = 0;

	if (unlikely(n < 0 && n != -EINTR))
		return load_check(q->base.run, n, "taking responses");
	if (unlikely(n <= 0)) {
		rc = patience_turn(&q->patience);
		if (rc == -ETIMEDOUT)
			return load_fail(q->base.run, rc, "no response for %u s",
					 SILENCE_US / 1000000);
		return rc;
	}
	patience_reset(&q->patience);
	q->now_ns = 0;
	for (int i = 0; !rc && i < n; i++)
		rc = take_response(q, &results[i], again);
	return rc;
}

/*
 * With all that may be under way posted at once, requests and responses would come in waves for a
 * long time, the ones without the others. So there are more with each response. More READs than a
 * card takes of a qp wait there, and make no waves. Processes have time enough to get warm.
 */
static int begin_requests(struct msg_requester *q)
{
	const struct bench_msg_opts *o = &q->run->opts;
	const bool all = !q->base.run->simulated ||
			 (o->protocol == GN_MSG_READ && o->pending > READS);
	const uint32_t first = all ? o->pending : FIRST;
	int rc = 0;

	q->now_ns = 0;
	for (uint32_t i = 0; i < first; i++)
		for (uint32_t c = 0; c < q->n_conns && !rc && !load_stops(&q->base); c++)
			rc = post_more(q, c);
	return rc;
}

static int msg_run_requests(struct load_client *base)
{
	struct msg_requester *q = requester_of(base);
	int rc = q->under_way ? 0 : begin_requests(q);

	while (!rc && !load_stops(base)) {
		rc = take_turn(q, true);
		load_between(base);
	}
	return rc;
}

int msg_requester_rest(struct load_client *base)
{
	struct msg_requester *q = requester_of(base);
	int rc = 0;

	while (!rc && q->under_way && !*base->interrupted)
		rc = take_turn(q, false);
	for (uint32_t i = 0; i < q->n_conns; i++)
		q->conns[i].begun = 0;
	return *base->interrupted ? -EINTR : rc;
}

static void msg_count(const struct load_client *base, struct load_sums *out)
{
	const struct msg_requester *q = requester_of(base);
	struct gn_msg_stats stats = {.size = sizeof(stats)};

	*out = base->own;
	gn_msg_requester_stats(q->msg, &stats);
	out->repeats = stats.repeats;
	if (!base->run->simulated) {
		load_count_fabric(base->proc->fabric, out);
		out->ops = q->taken;
	}
}

static uint64_t msg_group_ops(const struct load_client *base)
{
	const struct msg_run *run = (const struct msg_run *)base->run;

	return run->opts.value_bytes < LARGE_BYTES ? GROUP : GROUP_LARGE;
}

const struct load_kind load_msg = {
	.name = "msg",
	.one_ctx = true,
	.serve = msg_serve,
	.client_bytes = sizeof(struct msg_requester),
	.open = msg_open,
	.run = msg_run_requests,
	.rest = msg_requester_rest,
	.close = msg_close,
	.count = msg_count,
	.group_ops = msg_group_ops,
};
