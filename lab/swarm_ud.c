/* SPDX-License-Identifier: MIT */
/*
 * Datagrams. Each names itself, in its first bytes or, if it has none, in its immediate, so that
 * the receiver's model knows which one arrived.
 */
#include <string.h>

#include "swarm_node.h"

#define RECVS	 32u
#define WINDOW	 16u
#define GRACE_NS 20000000u /* the longest way, with what delays a datagram */
#define SGID_AT	 8u	   /* in a global route header */

static unsigned own_index(const struct end *e)
{
	return (unsigned)(e->ud - e->s->ud);
}

static bool get_ah(struct end *e, unsigned index)
{
	return e->ah[index] ||
	       got(e->s, gn_ah_create(e->qp, &e->s->ud[index].addr, &e->ah[index]), "gn_ah_create");
}

static void free_queues(struct end *e)
{
	for (unsigned i = 0; e->ah && i < UD_AHS; i++)
		CHECK(e->s, gn_ah_destroy(e->ah[i]) == 0, "gn_ah_destroy failed");
	gn_free(e->ah);
	e->ah = NULL;
	end_free_queues(e);
	e->ud = NULL;
	e->half = NULL;
	e->state = END_IDLE;
}

void ud_open(struct end *e)
{
	const struct house *house = e->worker->house;
	struct swarm *s = e->s;
	const struct gn_qp_opts opts = {
		.type = GN_QP_UD,
		.send_cq = e->worker->send_cq,
		.recv_cq = e->worker->recv_cq,
		.max_send_wr = WINDOW,
		.max_recv_wr = RECVS,
		.max_send_sge = SGE_MAX,
		.max_recv_sge = SGE_MAX,
		.max_inline = house->attr.max_inline < 64 ? house->attr.max_inline : 64,
		.qkey = (uint32_t)rng_next(&e->worker->rng),
		.flags = house->plan->shared ? GN_SHARED : 0,
		.user = e,
	};

	if (!(house->attr.caps & GN_CAP_UD) || s->n_uds == UDS_MAX)
		return;
	e->ud = &s->ud[s->n_uds++];
	e->ud->node = house->plan->node;
	e->ud->worker = e->worker->index;
	e->half = &e->ud->half;
	e->broken = false;
	e->max_len = s->plan.ud_len < house->attr.ud_mtu ? s->plan.ud_len : house->attr.ud_mtu;
	e->ah = gn_alloc(UD_AHS * sizeof(struct gn_ah *), 0);
	CHECK(s, e->ah || s->no_memory, "gn_alloc gave nothing");
	if (!e->ah || !end_open_queues(e, &opts)) {
		free_queues(e);
		return;
	}
	CHECK(s, gn_qp_ud_addr(e->qp, &e->ud->addr) == 0, "gn_qp_ud_addr failed");
	if (!get_ah(e, own_index(e))) {
		free_queues(e);
		return;
	}
	end_post_recvs(e, UINT32_MAX);
	e->ud->open = true;
	e->state = END_UP;
}

/* ---- sending ---- */

static bool draw_target(struct end *e, unsigned *out)
{
	const struct swarm *s = e->s;

	for (unsigned tries = 0; tries < 8; tries++) {
		*out = rng_below(&e->worker->rng, s->n_uds);
		if (s->ud[*out].open || (s->ud[*out].addr.qpn && tries == 7))
			return true;
	}
	return false;
}

static void fill_payload(struct end *e, const struct request *req, uint32_t i)
{
	const uint32_t header[2] = {req->off, (uint32_t)req->low};

	bytes_fill(e->s->scratch, req->seed, 0, req->len);
	if (req->len >= HEADER)
		memcpy(e->s->scratch, header, HEADER);
	memset(end_bay(e, i), JUNK_BYTE, e->bay);
	scatter(end_bay(e, i), req->n_sge, req->piece, e->s->scratch);
}

/* Notes it at its target: off is its number there, low the target's index. */
static void note_datagram(struct end *e, struct request *req, unsigned target)
{
	struct ud_model *to = &e->s->ud[target];

	req->low = target;
	req->off = to->n_in;
	req->op = req->len < HEADER || rng_one_in(&e->worker->rng, 3) ? GN_OP_SEND_IMM : GN_OP_SEND;
	req->imm = req->len < HEADER ? req->off : (uint32_t)rng_next(&e->worker->rng);
	to->in = swarm_grow(to->in, to->n_in, &to->cap_in, sizeof(*to->in));
	to->in[to->n_in++] = (struct datagram){
		.from = own_index(e),
		.seed = req->seed,
		.len = req->len,
		.imm = req->imm,
		.has_imm = req->op == GN_OP_SEND_IMM,
	};
	if (to->n_in > to->half.recv_there)
		to->may_lose = true;
}

static void make_datagram(struct end *e, struct gn_wr *wr, struct gn_sge *sge, unsigned target)
{
	struct rng *rng = &e->worker->rng;
	struct request *req = half_request(e->s, e->half);
	const uint32_t i = e->half->n_req - 1;
	uint32_t lkey = gn_mr_lkey(e->local_mr);

	req->aim = AIM_MESSAGE;
	req->seed = rng_next(rng);
	req->len = draw_len(rng, e->max_len);
	note_datagram(e, req, target);
	if (rng_one_in(rng, 3) || e->unsignaled >= e->max_send / 2)
		req->flags |= GN_SIGNALED;
	if (req->len <= e->max_inline && rng_one_in(rng, 3))
		req->flags |= GN_INLINE;
	req->n_sge = cut_pieces(rng, req->len, req->piece);
	fill_payload(e, req, i);
	if (e->worker->plan->hostile && req->len > 0 && rng_one_in(rng, 100)) {
		req->aim = AIM_BAD_LOCAL;
		req->flags &= ~(uint32_t)GN_INLINE;
		lkey = ~lkey;
	}
	fill_sges(sge, end_bay(e, i), lkey, req->n_sge, req->piece);
	gn_wr_init(wr, req->op, req->id, sge, req->n_sge, req->flags);
	wr->imm = req->imm;
	wr->to.ud.ah = e->ah[target];
	wr->to.ud.qpn = e->s->ud[target].addr.qpn;
	wr->to.ud.qkey = e->s->ud[target].addr.qkey;
	if (rng_one_in(rng, 50)) { /* nobody takes that */
		wr->to.ud.qkey++;
		e->s->ud[target].in[req->off].cancelled = true;
	}
	e->unsignaled = req->flags & GN_SIGNALED ? 0 : e->unsignaled + 1;
}

void ud_post(struct end *e)
{
	struct rng *rng = &e->worker->rng;
	const uint32_t first = e->half->n_req, n = rng_range(rng, 1, CHAIN_MAX);
	struct gn_sge sge[CHAIN_MAX][SGE_MAX];
	struct gn_wr wr[CHAIN_MAX];
	unsigned target;

	if ((end_room(e, first) < n && !rng_one_in(rng, 8)) || !draw_target(e, &target) ||
	    !get_ah(e, target))
		return;
	for (uint32_t i = 0; i < n; i++)
		make_datagram(e, &wr[i], sge[i], target);
	end_post_chain(e, wr, first, n, rng_one_in(rng, 32) ? rng_below(rng, n) : UINT32_MAX);
	e->s->result->datagrams += e->half->n_req - first;
}

bool ud_post_marker(struct end *e)
{
	const uint32_t first = e->half->n_req;
	struct gn_sge sge[SGE_MAX];
	struct gn_wr wr;

	if (end_room(e, first) == 0)
		return false;
	make_datagram(e, &wr, sge, own_index(e));
	e->half->req[first].flags |= GN_SIGNALED;
	wr.flags |= GN_SIGNALED;
	end_post_chain(e, &wr, first, 1, UINT32_MAX);
	return true;
}

void ud_take_back(struct end *e, const struct request *req)
{
	e->s->ud[req->low].in[req->off].cancelled = true;
}

void ud_sent(struct end *e, uint32_t req)
{
	const struct request *r = &e->half->req[req];

	e->s->ud[r->low].in[r->off].left_ns = gn_sim_now_ns(e->s->sim);
}

/* Nothing arrives at a qp in error. */
void ud_failed(struct end *e, uint32_t req, enum gn_wc_status status)
{
	const bool bad = e->half->req[req].aim == AIM_BAD_LOCAL;

	CHECK(e->s,
	      (status == GN_WC_FLUSHED && !e->ud->open) || (status == GN_WC_LOCAL_ACCESS && bad) ||
		      (status == GN_WC_LOCAL_QP && plan_fault(e->s, "qp-error")),
	      "datagram %u failed: %s", req, gn_wc_status_str(status));
	e->ud->may_lose = true;
}

/* ---- receiving ---- */

static struct datagram *find(struct end *e, const struct gn_wc *wc, const uint8_t *payload,
			     uint32_t len)
{
	uint32_t header[2] = {wc->imm, own_index(e)};

	if (len >= HEADER)
		memcpy(header, payload, HEADER);
	CHECK(e->s, header[1] == own_index(e) && header[0] < e->ud->n_in,
	      "a datagram of %u bytes says that it is number %u for endpoint %u; this is %u and "
	      "%u were sent to it",
	      len, header[0], header[1], own_index(e), e->ud->n_in);
	return &e->ud->in[header[0]];
}

static void check_way_back(struct end *e, const struct gn_wc *wc, const uint8_t *grh)
{
	uint8_t header[GN_GRH_BYTES]; /* the scratch is others' as soon as this waits */
	struct gn_ah *ah;

	memcpy(header, grh, sizeof(header));
	if (got(e->s, gn_ah_create_from_wc(e->qp, wc, header, &ah), "gn_ah_create_from_wc"))
		CHECK(e->s, gn_ah_destroy(ah) == 0, "gn_ah_destroy failed");
}

void ud_received(struct end *e, const struct gn_wc *wc, uint32_t recv)
{
	const struct receipt *r = &e->half->recv[recv];
	const struct ud_model *from;
	const uint8_t *grh, *payload;
	struct datagram *d;
	uint32_t len;

	CHECK(e->s, wc->flags & GN_WC_GRH && wc->len_bytes >= GN_GRH_BYTES && wc->op == GN_OP_RECV,
	      "a datagram arrives with flags %x and %u bytes", wc->flags, wc->len_bytes);
	len = wc->len_bytes - GN_GRH_BYTES;
	grh = gather(e->s, end_recv_bay(e, recv), r->n_sge, r->piece, wc->len_bytes);
	payload = grh + GN_GRH_BYTES;
	d = find(e, wc, payload, len);
	from = &e->s->ud[d->from];
	CHECK(e->s, !d->cancelled, "a datagram arrives that was not posted, or with a wrong qkey");
	CHECK(e->s, d->arrived == 0 || plan_fault(e->s, "ud-dup"), "a datagram arrives twice");
	CHECK(e->s,
	      len == d->len && d->has_imm == !!(wc->flags & GN_WC_IMM) &&
		      (!d->has_imm || wc->imm == d->imm),
	      "a datagram of %u bytes arrives with %u, or with another immediate", d->len, len);
	CHECK(e->s,
	      len < HEADER ? bytes_equal(payload, d->seed, 0, len) :
			     bytes_equal(payload + HEADER, d->seed, HEADER, len - HEADER),
	      "a datagram of %u bytes arrives with other bytes", len);
	CHECK(e->s,
	      wc->src_qpn == from->addr.qpn &&
		      !memcmp(grh + SGID_AT, from->addr.gid, sizeof(from->addr.gid)),
	      "a datagram of qp %u on n%u says it is from qp %u", from->addr.qpn, from->node,
	      wc->src_qpn);
	e->ud->n_arrived += d->arrived++ == 0;
	if (rng_one_in(&e->worker->rng, 16))
		check_way_back(e, wc, grh);
}

/* ---- the end ---- */

static void check_losses(struct end *e, uint64_t now)
{
	const struct swarm *s = e->s;

	if (e->ud->may_lose || plan_fault(s, "ud-loss") || plan_fault(s, "ud-dup") ||
	    plan_fault(s, "ud-delay") || plan_fault(s, "partition") || plan_ends_programs(s))
		return;
	for (uint32_t i = 0; i < e->ud->n_in; i++) {
		const struct datagram *d = &e->ud->in[i];

		CHECK(e->s,
		      d->arrived || d->cancelled || !d->left_ns || d->left_ns + GRACE_NS > now,
		      "datagram %u, which left at %llu ns, found a receive and did not arrive", i,
		      (unsigned long long)d->left_ns);
	}
}

void ud_close(struct end *e)
{
	const uint64_t until = worker_now(e->worker) + GRACE_NS;

	while (!e->broken && e->ud->n_arrived < e->ud->n_in && worker_now(e->worker) <= until) {
		worker_wait(e->worker, GRACE_NS / 1000, false);
		worker_poll(e->worker);
	}
	check_losses(e, gn_sim_now_ns(e->s->sim));
	e->ud->open = false;
	CHECK(e->s, gn_qp_error(e->qp) == 0, "gn_qp_error failed");
	end_drain(e);
	free_queues(e);
}
