/* SPDX-License-Identifier: MIT */
/*
 * UD qps. Each datagram carries its number at the receiver, in its first bytes or, if it is shorter,
 * in its immediate, so the model knows which one arrived.
 */
#include <string.h>

#include "program.h"

#define RECVS		32u
#define WINDOW		16u
#define DATAGRAM_MAX_NS 20000000u /* the longest that a datagram is in flight, with faults */
#define SGID_AT		8u	  /* offset of the source GID in a GRH */

static unsigned ud_index(const struct endpoint *ep)
{
	return (unsigned)(ep->ud - ep->run->ud);
}

static bool ud_get_ah(struct endpoint *ep, unsigned index)
{
	return ep->ah[index] ||
	       ok_or_no_memory(ep->run,
			       gn_ah_create(ep->qp, &ep->run->ud[index].addr, &ep->ah[index]),
			       "gn_ah_create");
}

static void ud_free_queues(struct endpoint *ep)
{
	for (unsigned i = 0; ep->ah && i < UD_AHS; i++)
		CHECK(ep->run, gn_ah_destroy(ep->ah[i]) == 0, "gn_ah_destroy failed");
	gn_free(ep->ah);
	ep->ah = NULL;
	ep_free_queues(ep);
	ep->ud = NULL;
	ep->model = NULL;
	ep->state = EP_IDLE;
}

void ud_open(struct endpoint *ep)
{
	const struct process *process = ep->worker->process;
	struct fuzz_run *run = ep->run;
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_UD,
		.send_cq = ep->worker->send_cq,
		.recv_cq = ep->worker->recv_cq,
		.max_send_wr = WINDOW,
		.max_recv_wr = RECVS,
		.max_send_sge = SGE_MAX,
		.max_recv_sge = SGE_MAX,
		.max_inline = process->attr.max_inline < 64 ? process->attr.max_inline : 64,
		.qkey = (uint32_t)rng_next(&ep->worker->rng),
		.flags = process->plan->shared ? GN_SHARED : 0,
		.user = ep,
	};

	if (!(process->attr.caps & GN_CAP_UD) || run->n_uds == UDS_MAX)
		return;
	ep->ud = &run->ud[run->n_uds++];
	ep->ud->node = process->plan->node;
	ep->ud->worker = ep->worker->index;
	ep->model = &ep->ud->model;
	ep->broken = false;
	ep->max_len = run->plan.ud_len < process->attr.ud_mtu ? run->plan.ud_len :
								process->attr.ud_mtu;
	ep->ah = gn_alloc(UD_AHS * sizeof(struct gn_ah *), 0);
	CHECK(run, ep->ah || run->no_memory, "gn_alloc gave nothing");
	if (!ep->ah || !ep_open_queues(ep, &opts)) {
		ud_free_queues(ep);
		return;
	}
	CHECK(run, gn_qp_ud_addr(ep->qp, &ep->ud->addr) == 0, "gn_qp_ud_addr failed");
	if (!ud_get_ah(ep, ud_index(ep))) {
		ud_free_queues(ep);
		return;
	}
	ep_post_recvs(ep, UINT32_MAX);
	ep->ud->open = true;
	ep->state = EP_UP;
}

/* ---- sending ---- */

static bool ud_draw_target(struct endpoint *ep, unsigned *out)
{
	const struct fuzz_run *run = ep->run;

	for (unsigned tries = 0; tries < 8; tries++) {
		*out = rng_below(&ep->worker->rng, run->n_uds);
		if (run->ud[*out].open || (run->ud[*out].addr.qpn && tries == 7))
			return true;
	}
	return false;
}

static void ud_fill_payload(struct endpoint *ep, const struct request *req, uint32_t i)
{
	const uint32_t header[2] = {req->off, (uint32_t)req->low};

	bytes_fill(ep->run->scratch, req->seed, 0, req->len);
	if (req->len >= HEADER)
		memcpy(ep->run->scratch, header, HEADER);
	memset(ep_send_slot(ep, i), JUNK_BYTE, ep->send_slot_bytes);
	scatter(ep_send_slot(ep, i), req->n_sge, req->piece, ep->run->scratch);
}

/* Adds the datagram at its target: req->off is its number there, req->low the target's index. */
static void ud_model_add(struct endpoint *ep, struct request *req, unsigned target)
{
	struct ud_model *to = &ep->run->ud[target];

	req->low = target;
	req->off = to->n_in;
	req->op = req->len < HEADER || rng_one_in(&ep->worker->rng, 3) ? GN_OP_SEND_IMM :
									 GN_OP_SEND;
	req->imm = req->len < HEADER ? req->off : (uint32_t)rng_next(&ep->worker->rng);
	to->in = array_grow(to->in, to->n_in, &to->cap_in, sizeof(*to->in));
	to->in[to->n_in++] = (struct datagram){
		.from = ud_index(ep),
		.seed = req->seed,
		.len = req->len,
		.imm = req->imm,
		.has_imm = req->op == GN_OP_SEND_IMM,
	};
	if (to->n_in > to->model.recv_there)
		to->may_lose = true;
}

static void ud_make_datagram(struct endpoint *ep, struct gn_wr *wr, struct gn_sge *sge,
			     unsigned target)
{
	struct rng *rng = &ep->worker->rng;
	struct request *req = qp_model_add_send(ep->run, ep->model);
	const uint32_t i = ep->model->n_req - 1;
	uint32_t lkey = gn_mr_lkey(ep->local_mr);

	req->target = TARGET_MESSAGE;
	req->seed = rng_next(rng);
	req->len = draw_len(rng, ep->max_len);
	ud_model_add(ep, req, target);
	if (rng_one_in(rng, 3) || ep->unsignaled >= ep->max_send / 2)
		req->flags |= GN_SIGNALED;
	if (req->len <= ep->max_inline && rng_one_in(rng, 3))
		req->flags |= GN_INLINE;
	req->n_sge = cut_pieces(rng, req->len, req->piece);
	ud_fill_payload(ep, req, i);
	if (ep->worker->plan->hostile && req->len > 0 && rng_one_in(rng, 100)) {
		req->target = TARGET_BAD_LOCAL;
		req->flags &= ~(uint32_t)GN_INLINE;
		lkey = ~lkey;
	}
	fill_sges(sge, ep_send_slot(ep, i), lkey, req->n_sge, req->piece);
	gn_wr_init(wr, req->op, req->id, sge, req->n_sge, req->flags);
	wr->imm = req->imm;
	wr->to.ud.ah = ep->ah[target];
	wr->to.ud.qpn = ep->run->ud[target].addr.qpn;
	wr->to.ud.qkey = ep->run->ud[target].addr.qkey;
	if (rng_one_in(rng, 50)) { /* the target drops it */
		wr->to.ud.qkey++;
		ep->run->ud[target].in[req->off].cancelled = true;
	}
	ep->unsignaled = req->flags & GN_SIGNALED ? 0 : ep->unsignaled + 1;
}

void ud_post(struct endpoint *ep)
{
	struct rng *rng = &ep->worker->rng;
	const uint32_t first = ep->model->n_req, n = rng_range(rng, 1, CHAIN_MAX);
	struct gn_sge sge[CHAIN_MAX][SGE_MAX];
	struct gn_wr wr[CHAIN_MAX];
	unsigned target;

	if ((ep_room(ep, first) < n && !rng_one_in(rng, 8)) || !ud_draw_target(ep, &target) ||
	    !ud_get_ah(ep, target))
		return;
	for (uint32_t i = 0; i < n; i++)
		ud_make_datagram(ep, &wr[i], sge[i], target);
	ep_post_chain(ep, wr, first, n, rng_one_in(rng, 32) ? rng_below(rng, n) : UINT32_MAX);
	ep->run->result->datagrams += ep->model->n_req - first;
}

bool ud_post_marker(struct endpoint *ep)
{
	const uint32_t first = ep->model->n_req;
	struct gn_sge sge[SGE_MAX];
	struct gn_wr wr;

	if (ep_room(ep, first) == 0)
		return false;
	ud_make_datagram(ep, &wr, sge, ud_index(ep));
	ep->model->req[first].flags |= GN_SIGNALED;
	wr.flags |= GN_SIGNALED;
	ep_post_chain(ep, &wr, first, 1, UINT32_MAX);
	return true;
}

void ud_take_back(struct endpoint *ep, const struct request *req)
{
	ep->run->ud[req->low].in[req->off].cancelled = true;
}

void ud_sent(struct endpoint *ep, uint32_t req)
{
	const struct request *r = &ep->model->req[req];

	ep->run->ud[r->low].in[r->off].left_ns = gn_sim_now_ns(ep->run->sim);
}

/* A qp in error receives nothing. */
void ud_failed(struct endpoint *ep, uint32_t req, enum gn_wc_status status)
{
	const bool bad = ep->model->req[req].target == TARGET_BAD_LOCAL;

	CHECK(ep->run,
	      (status == GN_WC_FLUSHED && !ep->ud->open) || (status == GN_WC_LOCAL_ACCESS && bad) ||
		      (status == GN_WC_LOCAL_QP && plan_fault(ep->run, "qp-error")),
	      "datagram %u failed: %s", req, gn_wc_status_str(status));
	ep->ud->may_lose = true;
}

/* ---- receiving ---- */

static struct datagram *ud_find(struct endpoint *ep, const struct gn_wc *wc, const uint8_t *payload,
				uint32_t len)
{
	uint32_t header[2] = {wc->imm, ud_index(ep)};

	if (len >= HEADER)
		memcpy(header, payload, HEADER);
	CHECK(ep->run, header[1] == ud_index(ep) && header[0] < ep->ud->n_in,
	      "a datagram of %u bytes has number %u for endpoint %u; this is endpoint %u, and %u "
	      "were sent to it",
	      len, header[0], header[1], ud_index(ep), ep->ud->n_in);
	return &ep->ud->in[header[0]];
}

static void ud_check_reply_ah(struct endpoint *ep, const struct gn_wc *wc, const uint8_t *grh)
{
	uint8_t header[GN_GRH_BYTES]; /* the scratch buffer is not valid after a wait */
	struct gn_ah *ah;

	memcpy(header, grh, sizeof(header));
	if (ok_or_no_memory(ep->run, gn_ah_create_from_wc(ep->qp, wc, header, &ah),
			    "gn_ah_create_from_wc"))
		CHECK(ep->run, gn_ah_destroy(ah) == 0, "gn_ah_destroy failed");
}

void ud_received(struct endpoint *ep, const struct gn_wc *wc, uint32_t recv)
{
	const struct recv *r = &ep->model->recv[recv];
	const struct ud_model *from;
	const uint8_t *grh, *payload;
	struct datagram *d;
	uint32_t len;

	CHECK(ep->run,
	      wc->flags & GN_WC_GRH && wc->len_bytes >= GN_GRH_BYTES && wc->op == GN_OP_RECV,
	      "a datagram arrives with flags %x and %u bytes", wc->flags, wc->len_bytes);
	len = wc->len_bytes - GN_GRH_BYTES;
	grh = gather(ep->run, ep_recv_slot(ep, recv), r->n_sge, r->piece, wc->len_bytes);
	payload = grh + GN_GRH_BYTES;
	d = ud_find(ep, wc, payload, len);
	from = &ep->run->ud[d->from];
	CHECK(ep->run, !d->cancelled,
	      "a datagram arrives that was not posted, or with a wrong qkey");
	CHECK(ep->run, d->arrived == 0 || plan_fault(ep->run, "ud-dup"),
	      "a datagram arrives twice");
	CHECK(ep->run,
	      len == d->len && d->has_imm == !!(wc->flags & GN_WC_IMM) &&
		      (!d->has_imm || wc->imm == d->imm),
	      "a datagram of %u bytes arrives with %u, or with another immediate", d->len, len);
	CHECK(ep->run,
	      len < HEADER ? bytes_equal(payload, d->seed, 0, len) :
			     bytes_equal(payload + HEADER, d->seed, HEADER, len - HEADER),
	      "a datagram of %u bytes arrives with other bytes", len);
	CHECK(ep->run,
	      wc->src_qpn == from->addr.qpn &&
		      !memcmp(grh + SGID_AT, from->addr.gid, sizeof(from->addr.gid)),
	      "a datagram of qp %u on n%u arrives with source qp %u", from->addr.qpn, from->node,
	      wc->src_qpn);
	ep->ud->n_arrived += d->arrived++ == 0;
	if (rng_one_in(&ep->worker->rng, 16))
		ud_check_reply_ah(ep, wc, grh);
}

/* ---- teardown ---- */

static void ud_check_losses(struct endpoint *ep, uint64_t now)
{
	const struct fuzz_run *run = ep->run;

	if (ep->ud->may_lose || plan_fault(run, "ud-loss") || plan_fault(run, "ud-dup") ||
	    plan_fault(run, "ud-delay") || plan_fault(run, "partition") || plan_ends_programs(run))
		return;
	for (uint32_t i = 0; i < ep->ud->n_in; i++) {
		const struct datagram *d = &ep->ud->in[i];

		CHECK(ep->run,
		      d->arrived || d->cancelled || !d->left_ns ||
			      d->left_ns + DATAGRAM_MAX_NS > now,
		      "datagram %u, sent at %llu ns, did not arrive, though a receive was posted",
		      i, (unsigned long long)d->left_ns);
	}
}

void ud_close(struct endpoint *ep)
{
	const uint64_t until = worker_now(ep->worker) + DATAGRAM_MAX_NS;

	while (!ep->broken && ep->ud->n_arrived < ep->ud->n_in && worker_now(ep->worker) <= until) {
		worker_wait(ep->worker, DATAGRAM_MAX_NS / 1000, false);
		worker_poll(ep->worker);
	}
	ud_check_losses(ep, gn_sim_now_ns(ep->run->sim));
	ep->ud->open = false;
	CHECK(ep->run, gn_qp_error(ep->qp) == 0, "gn_qp_error failed");
	ep_drain(ep);
	ud_free_queues(ep);
}
