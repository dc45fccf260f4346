/* SPDX-License-Identifier: MIT */
/*
 * Random requests. Each is added to the model before it is posted; requests that the post call did
 * not take are removed again. A post call must take exactly the requests that fit before the first
 * invalid one.
 */
#include <errno.h>
#include <string.h>

#include "program.h"

#define GAP 16u /* between the pieces of a buffer */

/* ---- buffers ---- */

uint8_t *ep_send_slot(const struct endpoint *ep, uint32_t req)
{
	return (uint8_t *)gn_mem_addr(ep->local) +
	       (size_t)(req % ep->n_send_slots) * ep->send_slot_bytes;
}

uint8_t *ep_recv_slot(const struct endpoint *ep, uint32_t recv)
{
	return (uint8_t *)gn_mem_addr(ep->local) + (size_t)ep->n_send_slots * ep->send_slot_bytes +
	       (size_t)(recv % ep->max_recv) * ep->recv_slot_bytes;
}

uint32_t cut_pieces(struct rng *rng, uint32_t len, uint32_t piece[SGE_MAX])
{
	uint32_t n = rng_one_in(rng, 3) ? rng_range(rng, 1, SGE_MAX) : 1;

	if (len == 0 && rng_one_in(rng, 2))
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		piece[i] = i + 1 == n ? len : rng_below(rng, len + 1);
		len -= piece[i];
	}
	return n;
}

uint32_t fill_sges(struct gn_sge *sge, uint8_t *buffer, uint32_t lkey, uint32_t n,
		   const uint32_t *piece)
{
	for (uint32_t i = 0; i < n; i++) {
		sge[i] = (struct gn_sge){.addr = buffer, .len_bytes = piece[i], .lkey = lkey};
		buffer += piece[i] + GAP;
	}
	return n;
}

const uint8_t *gather(struct fuzz_run *run, const uint8_t *buffer, uint32_t n,
		      const uint32_t *piece, uint32_t len)
{
	uint8_t *to = run->scratch;

	for (uint32_t i = 0; i < n && len > 0; i++) {
		const uint32_t part = piece[i] < len ? piece[i] : len;

		memcpy(to, buffer, part);
		to += part;
		len -= part;
		buffer += piece[i] + GAP;
	}
	return run->scratch;
}

void scatter(uint8_t *buffer, uint32_t n, const uint32_t *piece, const uint8_t *from)
{
	for (uint32_t i = 0; i < n; i++) {
		memcpy(buffer, from, piece[i]);
		from += piece[i];
		buffer += piece[i] + GAP;
	}
}

uint32_t draw_len(struct rng *rng, uint32_t max)
{
	static const uint32_t edges[] = {0,  1,	  7,   8,   9,	 31,   32,   63,  64,
					 65, 127, 128, 129, 255, 4095, 4096, 4097};
	const uint32_t n = sizeof(edges) / sizeof(edges[0]);
	const uint32_t edge = edges[rng_below(rng, n)];

	if (rng_one_in(rng, 16))
		return max;
	if (edge <= max && !rng_one_in(rng, 4))
		return edge;
	return rng_below(rng, (max >> rng_below(rng, 6)) + 1);
}

/* ---- one request ---- */

static uint32_t draw_offset(struct rng *rng, uint32_t size, uint32_t len)
{
	const uint32_t off = rng_below(rng, size - len + 1);

	switch (rng_below(rng, 4)) {
	case 0:
		return 0; /* where others write, too */
	case 1:
		return off;
	default:
		return off / LINE * LINE;
	}
}

static enum gn_op draw_op(struct endpoint *ep, const struct plan_link *link)
{
	struct rng *rng = &ep->worker->rng;
	uint32_t sum = 0, at;

	for (unsigned op = 0; op <= GN_OP_FAA; op++)
		sum += link->weight[op];
	at = rng_below(rng, sum);
	for (unsigned op = 0; op <= GN_OP_FAA; op++) {
		if (at < link->weight[op])
			return (op == GN_OP_CAS || op == GN_OP_FAA) &&
					       !(ep->caps & GN_CAP_ATOMICS) ?
				       GN_OP_READ :
				       (enum gn_op)op;
		at -= link->weight[op];
	}
	return GN_OP_READ;
}

static bool is_message(enum gn_op op)
{
	return op == GN_OP_SEND || op == GN_OP_SEND_IMM || op == GN_OP_WRITE_IMM;
}

static bool is_write(enum gn_op op)
{
	return op == GN_OP_WRITE || op == GN_OP_WRITE_IMM;
}

static uint32_t draw_flags(struct endpoint *ep, const struct request *req, uint32_t signal_one_in)
{
	struct rng *rng = &ep->worker->rng;
	uint32_t flags = 0;

	/* Only a signaled request frees slots of the send queue. */
	if (rng_one_in(rng, signal_one_in) || ep->unsignaled >= ep->max_send / 2)
		flags |= GN_SIGNALED;
	if ((is_message(req->op) || is_write(req->op)) && req->len <= ep->max_inline &&
	    req->target != TARGET_BAD_LOCAL && rng_one_in(rng, 3))
		flags |= GN_INLINE;
	if (rng_one_in(rng, 8))
		flags |= GN_FENCE;
	if (is_message(req->op) && rng_one_in(rng, 8))
		flags |= GN_SOLICITED;
	return flags;
}

/* A request that must fail, by its key, its range or its local key. */
static void target_badly(struct endpoint *ep, struct request *req)
{
	struct rng *rng = &ep->worker->rng;

	ep->conn->may_break = true;
	req->op = rng_one_in(rng, 2) ? GN_OP_WRITE : GN_OP_READ;
	req->len = 1 + draw_len(rng, ep->max_len - 1);
	req->target = TARGET_BAD_KEY + rng_below(rng, TARGET_BAD_LOCAL - TARGET_BAD_KEY + 1);
	if (req->target == TARGET_BAD_RIGHT) /* the atomics region permits atomics only */
		return;
	req->off = req->target == TARGET_BAD_RANGE ?
			   region_bytes(ep->max_len) - req->len + rng_range(rng, 1, 2 * LINE) :
			   draw_offset(rng, area_bytes(ep->max_len), req->len);
}

/* A READ of what one of the last WRITEs wrote is the strictest check. */
static void target_last_write(struct endpoint *ep, struct request *req)
{
	const struct qp_model *model = ep->model;

	for (uint32_t i = model->n_req - 1; i > 0 && i + CHAIN_MAX >= model->n_req; i--) {
		const struct request *last = &model->req[i - 1];

		if (!is_write(last->op) || last->target != TARGET_AREA)
			continue;
		req->off = last->off;
		req->len = last->len;
		return;
	}
}

static void target_well(struct endpoint *ep, struct request *req)
{
	struct rng *rng = &ep->worker->rng;
	const bool atomic = req->op == GN_OP_FAA || req->op == GN_OP_CAS;

	req->len = atomic ? sizeof(uint64_t) : draw_len(rng, ep->max_len);
	if (req->op == GN_OP_SEND || req->op == GN_OP_SEND_IMM) {
		req->target = TARGET_MESSAGE;
	} else if (req->op == GN_OP_FAA) {
		req->target = TARGET_FAA;
		req->off = WORD_FAA * sizeof(uint64_t);
		atomics_faa_posted(ep->peer->atomics, req, rng_range(rng, 1, 1000));
	} else if (req->op == GN_OP_CAS) {
		req->target = TARGET_CAS;
		req->off = WORD_CAS * sizeof(uint64_t);
		atomics_cas_posted(ep->peer->atomics, req, rng_one_in(rng, 4));
	} else if (req->len == 0) {
		req->target = TARGET_NOTHING;
	} else if (req->op == GN_OP_READ && rng_one_in(rng, 3)) {
		req->target = TARGET_LINES;
		if (req->len > lines_bytes(ep->max_len))
			req->len = lines_bytes(ep->max_len);
		req->off = area_bytes(ep->max_len) +
			   draw_offset(rng, lines_bytes(ep->max_len), req->len) / LINE * LINE;
		req->low = ep->peer->version;
	} else {
		req->target = TARGET_AREA;
		req->off = draw_offset(rng, area_bytes(ep->max_len), req->len);
		if (req->op == GN_OP_READ && rng_one_in(rng, 2))
			target_last_write(ep, req);
	}
	req->imm = (uint32_t)rng_next(rng);
}

static uint32_t draw_wrong_key(struct endpoint *ep, uint32_t local)
{
	struct rng *rng = &ep->worker->rng;
	uint32_t key = 0;

	/* Preferably one that is valid for another connection of the same process. */
	for (struct conn *conn = ep->run->conns; conn && !key; conn = conn->next)
		for (unsigned side = 0; side < 2; side++)
			if (conn != ep->conn && conn->model[side].atomics == ep->peer->atomics &&
			    rng_one_in(rng, 4))
				key = conn->model[side].key;
	while (!key || key == ep->remote.key || key == ep->atomics_remote.key || key == local)
		key = (uint32_t)rng_next(rng);
	return key;
}

static void ep_fill_wr(struct endpoint *ep, struct gn_wr *wr, struct gn_sge *sge, uint32_t i)
{
	struct request *req = &ep->model->req[i];
	const uint32_t lkey = gn_mr_lkey(ep->local_mr);
	const bool local = req->target == TARGET_BAD_LOCAL;
	uint8_t *slot = ep_send_slot(ep, i);

	memset(slot, JUNK_BYTE, req->len + SGE_MAX * GAP);
	fill_sges(sge, slot, local ? ~lkey : lkey, req->n_sge, req->piece);
	if (is_write(req->op) || is_message(req->op)) {
		bytes_fill(ep->run->scratch, req->seed, is_write(req->op) ? req->off : 0, req->len);
		scatter(slot, req->n_sge, req->piece, ep->run->scratch);
	}
	gn_wr_init(wr, req->op, req->id, sge, req->n_sge, req->flags);
	wr->imm = req->imm;
	if (req->op == GN_OP_SEND || req->op == GN_OP_SEND_IMM)
		return;
	wr->to.remote.offset = req->off;
	if (req->target == TARGET_FAA || req->target == TARGET_CAS ||
	    req->target == TARGET_BAD_RIGHT) {
		wr->to.remote.offset += ep->atomics_remote.offset;
		wr->to.remote.key = ep->atomics_remote.key;
		if (req->target == TARGET_BAD_RIGHT)
			return;
		wr->to.remote.compare = req->add;
		wr->to.remote.swap = req->swap;
	} else {
		wr->to.remote.offset += ep->remote.offset;
		wr->to.remote.key = req->target == TARGET_BAD_KEY || req->target == TARGET_NOTHING ?
					    draw_wrong_key(ep, lkey) :
					    ep->remote.key;
	}
}

static void model_add_effects(struct endpoint *ep, uint32_t i)
{
	const struct request *req = &ep->model->req[i];

	if (is_write(req->op) && req->target == TARGET_AREA)
		mem_model_post(&ep->peer->area, i, req->off, req->len, req->seed);
	if (is_message(req->op) && req->target < TARGET_BAD_KEY) {
		ep->model->msg = array_grow(ep->model->msg, ep->model->n_msg, &ep->model->cap_msg,
					    sizeof(*ep->model->msg));
		ep->model->msg[ep->model->n_msg++] = i;
	}
	ep->unsignaled = req->flags & GN_SIGNALED ? 0 : ep->unsignaled + 1;
}

static void ep_make_request(struct endpoint *ep, struct gn_wr *wr, struct gn_sge *sge)
{
	const struct plan_link *link = &ep->run->plan.link[ep->link];
	struct rng *rng = &ep->worker->rng;
	struct request *req = qp_model_add_send(ep->run, ep->model);
	const uint32_t i = ep->model->n_req - 1;

	req->seed = rng_next(rng);
	if (link->hostile && rng_one_in(rng, 60)) {
		target_badly(ep, req);
	} else {
		req->op = draw_op(ep, link);
		target_well(ep, req);
	}
	req->flags = draw_flags(ep, req, link->signal_one_in);
	if (req->target == TARGET_FAA || req->target == TARGET_CAS) {
		req->n_sge = 1;
		req->piece[0] = req->len;
	} else {
		req->n_sge = cut_pieces(rng, req->len, req->piece);
	}
	ep_fill_wr(ep, wr, sge, i);
	model_add_effects(ep, i);
}

/* ---- a chain ---- */

static void ep_unpost(struct endpoint *ep, uint32_t n_req)
{
	for (uint32_t i = n_req; i < ep->model->n_req; i++) {
		if (ep->model->req[i].target == TARGET_FAA)
			ep->peer->atomics->sum_maybe -= ep->model->req[i].add;
		if (ep->ud)
			ud_take_back(ep, &ep->model->req[i]);
	}
	if (ep->peer)
		mem_model_unpost(&ep->peer->area, n_req);
	qp_model_unpost(ep->model, n_req);
	ep->unsignaled = 0;
	for (uint32_t i = n_req; i > 0 && !(ep->model->req[i - 1].flags & GN_SIGNALED); i--)
		ep->unsignaled++;
}

uint32_t ep_room(const struct endpoint *ep, uint32_t n_req)
{
	return ep->max_send - (n_req - ep->model->done);
}

static void ep_count_posted(struct endpoint *ep, uint32_t from)
{
	for (uint32_t i = from; i < ep->model->n_req; i++)
		ep->run->result->ops[ep->model->req[i].op]++;
}

void ep_post_chain(struct endpoint *ep, struct gn_wr *wr, uint32_t first, uint32_t n,
		   uint32_t broken)
{
	const uint32_t fit = ep_room(ep, first) < n ? ep_room(ep, first) : n;
	const uint32_t taken = broken < fit ? broken : fit;
	const int want = taken == n ? 0 : taken == broken ? -EINVAL : -EAGAIN;
	const struct gn_wr *bad = NULL;
	int rc;

	for (uint32_t i = 0; i + 1 < n; i++)
		wr[i].next = &wr[i + 1];
	if (broken < n)
		wr[broken].flags |= 1u << 30;
	rc = gn_post_send(ep->qp, wr, &bad);
	CHECK(ep->run, rc == want && (rc == 0 || bad == &wr[taken]),
	      "posting %u requests with room for %u, number %u bad, gave %s and stopped at %lld", n,
	      ep_room(ep, first), broken < n ? broken : n, gn_strerror(rc),
	      bad ? (long long)(bad - wr) : -1ll);
	ep_unpost(ep, first + taken);
	ep_count_posted(ep, first);
	for (uint32_t i = first; i < ep->model->n_req; i++)
		if (ep->model->req[i].flags & GN_INLINE) /* it was copied at the post */
			memset(ep_send_slot(ep, i), JUNK_BYTE, ep->model->req[i].len);
}

void ep_post(struct endpoint *ep)
{
	struct rng *rng = &ep->worker->rng;
	const uint32_t n = rng_one_in(rng, 2) ? 1 : rng_range(rng, 1, CHAIN_MAX);
	const uint32_t first = ep->model->n_req;
	struct gn_sge sge[CHAIN_MAX][SGE_MAX];
	struct gn_wr wr[CHAIN_MAX];

	if (ep_room(ep, first) < n && !rng_one_in(rng, 8))
		return; /* full: mostly wait, sometimes try */
	for (uint32_t i = 0; i < n; i++)
		ep_make_request(ep, &wr[i], sge[i]);
	ep_post_chain(ep, wr, first, n, rng_one_in(rng, 32) ? rng_below(rng, n) : UINT32_MAX);
}

static bool ep_post_one(struct endpoint *ep, enum gn_op op, enum target target, uint32_t len)
{
	struct request *req;
	struct gn_sge sge[SGE_MAX];
	struct gn_wr wr;
	const uint32_t first = ep->model->n_req;

	if (ep_room(ep, first) == 0)
		return false;
	req = qp_model_add_send(ep->run, ep->model);
	req->op = op;
	req->target = target;
	req->len = req->piece[0] = len;
	req->n_sge = len > 0;
	req->flags = GN_SIGNALED;
	ep_fill_wr(ep, &wr, sge, first);
	model_add_effects(ep, first);
	ep_post_chain(ep, &wr, first, 1, UINT32_MAX);
	return true;
}

bool ep_post_marker(struct endpoint *ep)
{
	return ep->ud ? ud_post_marker(ep) : ep_post_one(ep, GN_OP_WRITE, TARGET_NOTHING, 0);
}

bool ep_post_probe(struct endpoint *ep)
{
	return ep_post_one(ep, GN_OP_READ, TARGET_AREA, 2 * LINE);
}

/* ---- receives ---- */

static void ep_post_recv(struct endpoint *ep, uint32_t len)
{
	struct recv *r = qp_model_add_recv(ep->run, ep->model);
	const uint32_t i = ep->model->n_recv - 1;
	struct gn_sge sge[SGE_MAX];
	struct gn_recv_wr wr = {.id = r->id, .sge = sge};
	int rc;

	r->len = len;
	r->n_sge = cut_pieces(&ep->worker->rng, len, r->piece);
	memset(ep_recv_slot(ep, i), JUNK_BYTE, ep->recv_slot_bytes);
	wr.n_sge =
		fill_sges(sge, ep_recv_slot(ep, i), gn_mr_lkey(ep->local_mr), r->n_sge, r->piece);
	rc = gn_post_recv(ep->qp, &wr, NULL);
	CHECK(ep->run, rc == 0, "posting receive %u with %u of %u outstanding gave %s", i,
	      i - ep->model->recv_done, ep->max_recv, gn_strerror(rc));
	ep->model->recv[i].tick = ++ep->run->tick; /* the post call may take time */
	ep->model->recv_there = i + 1;
}

void ep_post_recvs(struct endpoint *ep, uint32_t most)
{
	const bool hostile = ep->conn && ep->run->plan.link[ep->link].hostile;
	struct rng *rng = &ep->worker->rng;

	while (most-- > 0 && ep->model->n_recv - ep->model->recv_done < ep->max_recv)
		ep_post_recv(ep, hostile && rng_one_in(rng, 32) ?
					 draw_len(rng, ep->max_len) :
					 ep->recv_slot_bytes - SGE_MAX * GAP);
}
