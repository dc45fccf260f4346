/* SPDX-License-Identifier: MIT */
/*
 * Raw UD sends and receives in the shape of datagram calls: each endpoint has as many requests
 * under way as its workers have calls, to the same peers in the same order, and returns an answer
 * for each request that it receives. A poll takes what has arrived, and sends all answers and new
 * requests with one doorbell. Nothing is retransmitted: a request that takes longer than LOST_US is
 * counted as lost, and sent anew under another number.
 */
#include <assert.h>
#include <errno.h>

#include "dgram_load.h"

#define CHAIN	     32u   /* datagrams that one poll takes, and that one doorbell sends */
#define RECEIVES     2048u /* the same as the library has */
#define SEND_WRS     512u
#define SIGNAL_EVERY 64u
#define RECV_CHAIN   128u    /* receives posted with one doorbell */
#define INLINE_MAX   60u     /* FaSST's */
#define LOST_US	     100000u /* a datagram that takes longer is lost */
#define LOOK_EVERY   256u    /* empty polls between looks at the clock */
#define QKEY	     0x72617721u
#define IS_ANSWER    0x80000000u

static_assert(SEND_WRS % SIGNAL_EVERY == 0 && RECEIVES % RECV_CHAIN == 0, "whole chains");

struct raw_peer {
	struct gn_ah *ah;
	uint32_t qpn, qkey;
};

/* What a datagram begins with. */
struct raw_head {
	uint32_t seq;
	uint16_t slot;
	uint16_t from; /* an endpoint: its requests are answered there */
};
static_assert(sizeof(struct raw_head) == BENCH_DGRAM_REQUEST_MIN, "the least that a request has");

struct raw_slot {
	uint32_t seq, peer; /* of the request under way, and of the peer's turn */
	uint64_t began_ns;
};

struct dgram_raw {
	struct dgram_run *run;
	uint32_t number, n_slots, stride, receives;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_cq *send_cq, *recv_cq;
	struct gn_qp *qp;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint8_t *send_buffers, *recv_buffers;
	struct raw_peer *peers; /* by number of the endpoint */
	struct raw_slot *slots;
	uint64_t sent, acked, signaled, received, stocked;
	uint64_t lost, since_ns;
	uint32_t looks;
	uint32_t n_wr; /* of the chain that is being filled */
	uint64_t began_ns[CHAIN];
	struct gn_wr wr[2 * CHAIN];
	struct gn_sge sge[2 * CHAIN];
	struct gn_recv_wr recv_wr[RECV_CHAIN];
	struct gn_sge recv_sge[RECV_CHAIN];
};

/* ---- objects ---- */

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static int raw_create_qp(struct dgram_raw *r, struct gn_fabric *fabric, const struct gn_attr *attr)
{
	const struct bench_dgram_opts *o = &r->run->opts;
	const uint32_t bytes = larger(o->request_bytes, o->result_bytes);
	const struct gn_cq_opts send_cq = {.size = sizeof(send_cq), .depth = SEND_WRS};
	const struct gn_cq_opts recv_cq = {.size = sizeof(recv_cq), .depth = r->receives};
	struct gn_qp_opts qp = {
		.size = sizeof(qp),
		.type = GN_QP_UD,
		.max_send_wr = SEND_WRS,
		.max_recv_wr = r->receives,
		.max_inline = bytes <= INLINE_MAX && bytes <= attr->max_inline ? bytes : 0,
		.qkey = QKEY};
	int rc = gn_ctx_create(fabric, &r->ctx);

	if (!rc)
		rc = gn_pd_create(r->ctx, &r->pd);
	if (!rc)
		rc = gn_cq_create(r->ctx, &send_cq, &r->send_cq);
	if (!rc)
		rc = gn_cq_create(r->ctx, &recv_cq, &r->recv_cq);
	qp.send_cq = r->send_cq;
	qp.recv_cq = r->recv_cq;
	if (!rc)
		rc = gn_qp_create(r->pd, &qp, &r->qp);
	for (uint32_t i = 0; i < 2 * CHAIN; i++)
		gn_wr_init(&r->wr[i], GN_OP_SEND, 0, &r->sge[i], 1, qp.max_inline ? GN_INLINE : 0);
	return rc;
}

static int raw_create_memory(struct dgram_raw *r, struct gn_fabric *fabric)
{
	const size_t bytes = (size_t)r->stride * (SEND_WRS + r->receives);
	int rc = gn_mem_alloc(fabric, bytes, 0, &r->mem);

	if (!rc)
		rc = gn_mr_register(r->pd, r->mem, 0, bytes, GN_LOCAL_WRITE, &r->mr);
	if (rc)
		return rc;
	r->send_buffers = gn_mem_addr(r->mem);
	r->recv_buffers = r->send_buffers + (size_t)r->stride * SEND_WRS;
	memset(r->send_buffers, 0, bytes); /* page faults now, not later */
	for (uint32_t i = 0; i < 2 * CHAIN; i++)
		r->sge[i].lkey = gn_mr_lkey(r->mr);
	for (uint32_t i = 0; i < RECV_CHAIN; i++) {
		r->recv_sge[i] = (struct gn_sge){.len_bytes = r->stride, .lkey = gn_mr_lkey(r->mr)};
		r->recv_wr[i] =
			(struct gn_recv_wr){.next = i + 1 < RECV_CHAIN ? &r->recv_wr[i + 1] : NULL,
					    .sge = &r->recv_sge[i],
					    .n_sge = 1};
	}
	return 0;
}

static int raw_post_receives(struct dgram_raw *r)
{
	for (uint32_t i = 0; i < RECV_CHAIN; i++) {
		const uint32_t slot = (uint32_t)(r->stocked++ % r->receives);

		r->recv_wr[i].id = slot;
		r->recv_sge[i].addr = r->recv_buffers + (size_t)slot * r->stride;
	}
	return gn_post_recv(r->qp, r->recv_wr, NULL);
}

int dgram_raw_create(struct dgram_run *run, struct gn_fabric *fabric, uint32_t endpoint, bool calls,
		     struct dgram_raw **out)
{
	const struct bench_dgram_opts *o = &run->opts;
	struct gn_attr attr = {.size = sizeof(attr)};
	struct dgram_raw *r = gn_alloc(sizeof(*r), 64);
	int rc = -ENOMEM;

	if (!r)
		return rc;
	gn_fabric_query(fabric, &attr);
	r->run = run;
	r->number = endpoint;
	r->n_slots = calls ? dgram_under_way(o) : 0;
	r->stride = (larger(o->request_bytes, o->result_bytes) + GN_GRH_BYTES + 63) / 64 * 64;
	r->receives = least_u32(RECEIVES, attr.max_recv_wr / RECV_CHAIN * RECV_CHAIN);
	r->peers = gn_alloc(dgram_endpoints(o) * sizeof(*r->peers), 0);
	r->slots = gn_alloc((r->n_slots + 1) * sizeof(*r->slots), 0);
	if (r->peers && r->slots)
		rc = raw_create_qp(r, fabric, &attr);
	if (!rc)
		rc = raw_create_memory(r, fabric);
	while (!rc && r->stocked < r->receives)
		rc = raw_post_receives(r);
	if (!rc)
		rc = gn_qp_ud_addr(r->qp, &run->raw[endpoint]);
	if (rc)
		dgram_raw_destroy(r);
	else
		*out = r;
	return rc;
}

void dgram_raw_destroy(struct dgram_raw *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; r->peers && i < dgram_endpoints(&r->run->opts); i++)
		gn_ah_destroy(r->peers[i].ah);
	gn_qp_destroy(r->qp);
	gn_mr_deregister(r->mr);
	gn_mem_free(r->mem);
	gn_cq_destroy(r->send_cq);
	gn_cq_destroy(r->recv_cq);
	gn_pd_destroy(r->pd);
	gn_ctx_destroy(r->ctx);
	gn_free(r->peers);
	gn_free(r->slots);
	gn_free(r);
}

uint64_t dgram_raw_lost(const struct dgram_raw *r)
{
	return r->lost;
}

uint64_t dgram_raw_began(const struct dgram_raw *r, int i)
{
	return r->began_ns[i];
}

/* ---- sending ---- */

static void raw_write(struct dgram_raw *r, const struct raw_peer *to, const struct raw_head *head,
		      uint32_t bytes)
{
	const uint32_t i = r->n_wr++;
	uint8_t *buffer = r->send_buffers + (size_t)((r->sent + i) % SEND_WRS) * r->stride;

	memcpy(buffer, head, sizeof(*head));
	r->sge[i].addr = buffer;
	r->sge[i].len_bytes = bytes;
	r->wr[i].to.ud.ah = to->ah;
	r->wr[i].to.ud.qpn = to->qpn;
	r->wr[i].to.ud.qkey = to->qkey;
}

/* The slot's next request, to the next peer. */
static void raw_request(struct dgram_raw *r, uint32_t slot, uint64_t now_ns)
{
	const struct bench_dgram_opts *o = &r->run->opts;
	struct raw_slot *s = &r->slots[slot];
	const struct raw_head head = {
		.seq = ++s->seq & ~IS_ANSWER, .slot = (uint16_t)slot, .from = (uint16_t)r->number};

	s->began_ns = now_ns;
	if (++s->peer >= dgram_peers(o))
		s->peer = 0;
	raw_write(r, &r->peers[dgram_peer_of(o, r->number, s->peer)], &head, o->request_bytes);
}

/* All that was written, with one doorbell. */
static int raw_flush(struct dgram_raw *r)
{
	struct gn_wr *last;
	int rc;

	if (!r->n_wr)
		return 0;
	last = &r->wr[r->n_wr - 1];
	for (uint32_t i = 0; i + 1 < r->n_wr; i++)
		r->wr[i].next = &r->wr[i + 1];
	last->next = NULL;
	r->sent += r->n_wr;
	if (r->sent - r->signaled >= SIGNAL_EVERY) {
		last->flags |= GN_SIGNALED;
		last->id = r->signaled = r->sent;
	}
	rc = gn_post_send(r->qp, r->wr, NULL);
	last->flags &= ~(uint32_t)GN_SIGNALED;
	r->n_wr = 0;
	return rc;
}

static int raw_reap(struct dgram_raw *r)
{
	struct gn_wc wc[8];
	const int n = gn_cq_poll(r->send_cq, wc, 8);

	for (int i = 0; i < n; i++) {
		if (wc[i].status != GN_WC_OK)
			return -EIO;
		r->acked = wc[i].id;
	}
	return n < 0 ? n : 0;
}

/* Every slot's request is sent, or sent anew: nothing has been answered for long. */
static int raw_begin(struct dgram_raw *r)
{
	const uint64_t now_ns = gn_now_ns();
	int rc = 0;

	r->since_ns = now_ns;
	for (uint32_t i = 0; i < r->n_slots && !rc; i++) {
		while (!rc && r->sent - r->acked > SEND_WRS - 2 * CHAIN)
			rc = *bench_stop_flag() ? -EINTR : raw_reap(r);
		raw_request(r, i, now_ns);
		if (!rc && (r->n_wr == CHAIN || i + 1 == r->n_slots))
			rc = raw_flush(r);
	}
	return rc;
}

int dgram_raw_connect(struct dgram_raw *r)
{
	const struct bench_dgram_opts *o = &r->run->opts;
	const uint32_t each = dgram_node_endpoints(o);
	int rc = 0;

	for (uint32_t i = 0; i < dgram_endpoints(o) && !rc; i++) {
		const struct gn_ud_addr *addr = &r->run->raw[i];

		if (i / each == r->number / each || (o->mapped && i % each != r->number % each))
			continue;
		r->peers[i].qpn = addr->qpn;
		r->peers[i].qkey = addr->qkey;
		rc = gn_ah_create(r->qp, addr, &r->peers[i].ah);
	}
	for (uint32_t i = 0; i < r->n_slots; i++)
		r->slots[i].peer = (uint32_t)(gn_random() % dgram_peers(o));
	return rc ? rc : raw_begin(r);
}

/* ---- arriving ---- */

/* An answer to a request under way: true, and when the request was sent. */
static bool raw_take(struct dgram_raw *r, const struct gn_wc *wc, uint64_t now_ns,
		     uint64_t *began_ns)
{
	const struct bench_dgram_opts *o = &r->run->opts;
	struct raw_head head;

	r->received++;
	memcpy(&head, r->recv_buffers + wc->id * r->stride + GN_GRH_BYTES, sizeof(head));
	if (!(head.seq & IS_ANSWER)) {
		head.seq |= IS_ANSWER;
		if (likely(head.from < dgram_endpoints(o) && r->peers[head.from].ah))
			raw_write(r, &r->peers[head.from], &head, o->result_bytes);
		return false;
	}
	if (unlikely(head.slot >= r->n_slots || (head.seq ^ r->slots[head.slot].seq) & ~IS_ANSWER))
		return false; /* given up before */
	*began_ns = r->slots[head.slot].began_ns;
	raw_request(r, head.slot, now_ns);
	return true;
}

static int raw_idle(struct dgram_raw *r)
{
	if (!r->n_slots || (!r->run->load.simulated && ++r->looks % LOOK_EVERY))
		return 0;
	if (!r->since_ns)
		r->since_ns = gn_now_ns();
	if (gn_now_ns() - r->since_ns < LOST_US * 1000ull)
		return 0;
	r->lost += r->n_slots;
	return raw_begin(r);
}

int dgram_raw_poll(struct dgram_raw *r)
{
	struct gn_wc wc[CHAIN];
	uint64_t now_ns = 0;
	int n, rc, ended = 0;

	if (r->acked != r->signaled) {
		rc = raw_reap(r);
		if (rc || r->sent - r->acked > SEND_WRS - 2 * CHAIN)
			return rc;
	}
	n = gn_cq_poll(r->recv_cq, wc, CHAIN);
	if (n <= 0)
		return n ? n : raw_idle(r);
	if (r->run->load.simulated)
		now_ns = gn_now_ns();
	for (int i = 0; i < n; i++) {
		if (unlikely(wc[i].status != GN_WC_OK))
			return -EIO;
		ended += raw_take(r, &wc[i], now_ns, &r->began_ns[ended]);
	}
	rc = raw_flush(r);
	while (!rc && r->received + r->receives - r->stocked >= RECV_CHAIN)
		rc = raw_post_receives(r);
	if (ended)
		r->since_ns = 0;
	return rc ? rc : ended;
}

/* ---- as a load by itself, on simulated clusters ---- */

struct raw_client {
	struct load_client base;
	struct dgram_run *run;
	struct dgram_raw **raw;
};

#define MEET_US 20u

static int raw_open(struct load_client *base)
{
	struct raw_client *c = (struct raw_client *)base;
	struct dgram_run *run = dgram_run_of(base->run);
	const uint32_t n = run->opts.endpoints;
	int rc = 0;

	c->run = run;
	c->raw = gn_alloc(n * sizeof(struct dgram_raw *), 0);
	if (!c->raw)
		return load_check(base->run, -ENOMEM, "memory for endpoints");
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = dgram_raw_create(run, base->proc->fabric, base->number * n + i,
				      dgram_calls(&run->opts, base->number), &c->raw[i]);
	rc = load_check(base->run, rc, "creating a UD qp");
	run->opened++;
	while (!rc && run->opened < run->load.n_clients && !load_gives_up(base))
		gn_sleep_us(MEET_US);
	return rc;
}

static int raw_run(struct load_client *base)
{
	struct raw_client *c = (struct raw_client *)base;
	const uint32_t n = c->run->opts.endpoints;
	int rc = 0;

	for (uint32_t i = 0; i < n && !rc; i++)
		rc = dgram_raw_connect(c->raw[i]);
	while (!rc && !load_stops(base)) {
		for (uint32_t i = 0; i < n && !rc; i++) {
			const int ended = dgram_raw_poll(c->raw[i]);

			rc = ended < 0 ? ended : 0;
			for (int k = 0; k < ended; k++)
				load_done(base, 1, dgram_raw_began(c->raw[i], k));
		}
		load_between(base);
		base->stops |= base->run->phase == LOAD_OVER;
	}
	return load_check(base->run, rc, "raw sends");
}

static int raw_rest(struct load_client *base)
{
	(void)base;
	return 0;
}

static void raw_close(struct load_client *base)
{
	struct raw_client *c = (struct raw_client *)base;

	for (uint32_t i = 0; c->raw && i < c->run->opts.endpoints; i++)
		dgram_raw_destroy(c->raw[i]);
	gn_free(c->raw);
}

static void raw_count(const struct load_client *base, struct load_sums *out)
{
	const struct raw_client *c = (const struct raw_client *)base;

	*out = base->own;
	for (uint32_t i = 0; i < c->run->opts.endpoints; i++)
		out->lost += dgram_raw_lost(c->raw[i]);
}

static uint64_t raw_group_ops(const struct load_client *base)
{
	(void)base;
	return 1;
}

const struct load_kind load_dgram_raw = {
	.name = "dgram-raw",
	.client_bytes = sizeof(struct raw_client),
	.open = raw_open,
	.run = raw_run,
	.rest = raw_rest,
	.close = raw_close,
	.count = raw_count,
	.group_ops = raw_group_ops,
};
