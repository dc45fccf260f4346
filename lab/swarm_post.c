/* SPDX-License-Identifier: MIT */
/*
 * Random requests. Each is noted in the model before it is posted; what the post did not take is
 * taken back, and it must have taken exactly what fits before the first bad one.
 */
#include <errno.h>
#include <string.h>

#include "swarm_node.h"

#define GAP 16u /* between the pieces of a buffer */

/* ---- buffers ---- */

uint8_t *end_bay(const struct end *e, uint32_t req)
{
	return (uint8_t *)gn_mem_addr(e->local) + (size_t)(req % e->n_bays) * e->bay;
}

uint8_t *end_recv_bay(const struct end *e, uint32_t recv)
{
	return (uint8_t *)gn_mem_addr(e->local) + (size_t)e->n_bays * e->bay +
	       (size_t)(recv % e->max_recv) * e->recv_bay;
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

const uint8_t *gather(struct swarm *s, const uint8_t *buffer, uint32_t n, const uint32_t *piece,
		      uint32_t len)
{
	uint8_t *to = s->scratch;

	for (uint32_t i = 0; i < n && len > 0; i++) {
		const uint32_t part = piece[i] < len ? piece[i] : len;

		memcpy(to, buffer, part);
		to += part;
		len -= part;
		buffer += piece[i] + GAP;
	}
	return s->scratch;
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
		return 0; /* where others write too */
	case 1:
		return off;
	default:
		return off / LINE * LINE;
	}
}

static enum gn_op draw_op(struct end *e, const struct plan_link *link)
{
	struct rng *rng = &e->worker->rng;
	uint32_t sum = 0, at;

	for (unsigned op = 0; op <= GN_OP_FAA; op++)
		sum += link->weight[op];
	at = rng_below(rng, sum);
	for (unsigned op = 0; op <= GN_OP_FAA; op++) {
		if (at < link->weight[op])
			return (op == GN_OP_CAS || op == GN_OP_FAA) && !(e->caps & GN_CAP_ATOMICS) ?
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

static uint32_t draw_flags(struct end *e, const struct request *req, uint32_t signal_one_in)
{
	struct rng *rng = &e->worker->rng;
	uint32_t flags = 0;

	/* Rule 10: somebody has to free the slots. */
	if (rng_one_in(rng, signal_one_in) || e->unsignaled >= e->max_send / 2)
		flags |= GN_SIGNALED;
	if ((is_message(req->op) || is_write(req->op)) && req->len <= e->max_inline &&
	    req->aim != AIM_BAD_LOCAL && rng_one_in(rng, 3))
		flags |= GN_INLINE;
	if (rng_one_in(rng, 8))
		flags |= GN_FENCE;
	if (is_message(req->op) && rng_one_in(rng, 8))
		flags |= GN_SOLICITED;
	return flags;
}

/* What must be refused, by the key, the range or the own device. */
static void aim_badly(struct end *e, struct request *req)
{
	struct rng *rng = &e->worker->rng;

	e->life->may_break = true;
	req->op = rng_one_in(rng, 2) ? GN_OP_WRITE : GN_OP_READ;
	req->len = 1 + draw_len(rng, e->max_len - 1);
	req->aim = AIM_BAD_KEY + rng_below(rng, AIM_BAD_LOCAL - AIM_BAD_KEY + 1);
	if (req->aim == AIM_BAD_RIGHT) /* the hall is for atomics only */
		return;
	req->off = req->aim == AIM_BAD_RANGE ?
			   region_size_of(e->max_len) - req->len + rng_range(rng, 1, 2 * LINE) :
			   draw_offset(rng, area_size_of(e->max_len), req->len);
}

/* A READ of what one of the last WRITEs wrote sees most: whether it has been done at all. */
static void aim_after_write(struct end *e, struct request *req)
{
	const struct half *half = e->half;

	for (uint32_t i = half->n_req - 1; i > 0 && i + CHAIN_MAX >= half->n_req; i--) {
		const struct request *last = &half->req[i - 1];

		if (!is_write(last->op) || last->aim != AIM_AREA)
			continue;
		req->off = last->off;
		req->len = last->len;
		return;
	}
}

static void aim_well(struct end *e, struct request *req)
{
	struct rng *rng = &e->worker->rng;
	const bool atomic = req->op == GN_OP_FAA || req->op == GN_OP_CAS;

	req->len = atomic ? sizeof(uint64_t) : draw_len(rng, e->max_len);
	if (req->op == GN_OP_SEND || req->op == GN_OP_SEND_IMM) {
		req->aim = AIM_MESSAGE;
	} else if (req->op == GN_OP_FAA) {
		req->aim = AIM_FAA;
		req->off = HALL_FAA * sizeof(uint64_t);
		hall_faa_posted(e->peer->hall, req, rng_range(rng, 1, 1000));
	} else if (req->op == GN_OP_CAS) {
		req->aim = AIM_CAS;
		req->off = HALL_CAS * sizeof(uint64_t);
		hall_cas_posted(e->peer->hall, req, rng_one_in(rng, 4));
	} else if (req->len == 0) {
		req->aim = AIM_NOTHING;
	} else if (req->op == GN_OP_READ && rng_one_in(rng, 3)) {
		req->aim = AIM_LINES;
		if (req->len > lines_size_of(e->max_len))
			req->len = lines_size_of(e->max_len);
		req->off = area_size_of(e->max_len) +
			   draw_offset(rng, lines_size_of(e->max_len), req->len) / LINE * LINE;
		req->low = e->peer->version;
	} else {
		req->aim = AIM_AREA;
		req->off = draw_offset(rng, area_size_of(e->max_len), req->len);
		if (req->op == GN_OP_READ && rng_one_in(rng, 2))
			aim_after_write(e, req);
	}
	req->imm = (uint32_t)rng_next(rng);
}

static uint32_t wrong_key(struct end *e, uint32_t local)
{
	struct rng *rng = &e->worker->rng;
	uint32_t key = 0;

	/* One that is right for others of the same process is the best. */
	for (struct life *life = e->s->lives; life && !key; life = life->next)
		for (unsigned side = 0; side < 2; side++)
			if (life != e->life && life->half[side].hall == e->peer->hall &&
			    rng_one_in(rng, 4))
				key = life->half[side].key;
	while (!key || key == e->remote.key || key == e->hall_remote.key || key == local)
		key = (uint32_t)rng_next(rng);
	return key;
}

static void fill_wr(struct end *e, struct gn_wr *wr, struct gn_sge *sge, uint32_t i)
{
	struct request *req = &e->half->req[i];
	const uint32_t lkey = gn_mr_lkey(e->local_mr);
	const bool local = req->aim == AIM_BAD_LOCAL;
	uint8_t *bay = end_bay(e, i);

	memset(bay, JUNK_BYTE, req->len + SGE_MAX * GAP);
	fill_sges(sge, bay, local ? ~lkey : lkey, req->n_sge, req->piece);
	if (is_write(req->op) || is_message(req->op)) {
		bytes_fill(e->s->scratch, req->seed, is_write(req->op) ? req->off : 0, req->len);
		scatter(bay, req->n_sge, req->piece, e->s->scratch);
	}
	gn_wr_init(wr, req->op, req->id, sge, req->n_sge, req->flags);
	wr->imm = req->imm;
	if (req->op == GN_OP_SEND || req->op == GN_OP_SEND_IMM)
		return;
	wr->to.remote.offset = req->off;
	if (req->aim == AIM_FAA || req->aim == AIM_CAS || req->aim == AIM_BAD_RIGHT) {
		wr->to.remote.offset += e->hall_remote.offset;
		wr->to.remote.key = e->hall_remote.key;
		if (req->aim == AIM_BAD_RIGHT)
			return;
		wr->to.remote.compare = req->add;
		wr->to.remote.swap = req->swap;
	} else {
		wr->to.remote.offset += e->remote.offset;
		wr->to.remote.key = req->aim == AIM_BAD_KEY || req->aim == AIM_NOTHING ?
					    wrong_key(e, lkey) :
					    e->remote.key;
	}
}

static void note_effects(struct end *e, uint32_t i)
{
	const struct request *req = &e->half->req[i];

	if (is_write(req->op) && req->aim == AIM_AREA)
		area_post(&e->peer->area, i, req->off, req->len, req->seed);
	if (is_message(req->op) && req->aim < AIM_BAD_KEY) {
		e->half->msg = swarm_grow(e->half->msg, e->half->n_msg, &e->half->cap_msg,
					  sizeof(*e->half->msg));
		e->half->msg[e->half->n_msg++] = i;
	}
	e->unsignaled = req->flags & GN_SIGNALED ? 0 : e->unsignaled + 1;
}

static void make_request(struct end *e, struct gn_wr *wr, struct gn_sge *sge)
{
	const struct plan_link *link = &e->s->plan.link[e->link];
	struct rng *rng = &e->worker->rng;
	struct request *req = half_request(e->s, e->half);
	const uint32_t i = e->half->n_req - 1;

	req->seed = rng_next(rng);
	if (link->hostile && rng_one_in(rng, 60)) {
		aim_badly(e, req);
	} else {
		req->op = draw_op(e, link);
		aim_well(e, req);
	}
	req->flags = draw_flags(e, req, link->signal_one_in);
	if (req->aim == AIM_FAA || req->aim == AIM_CAS) {
		req->n_sge = 1;
		req->piece[0] = req->len;
	} else {
		req->n_sge = cut_pieces(rng, req->len, req->piece);
	}
	fill_wr(e, wr, sge, i);
	note_effects(e, i);
}

/* ---- a chain ---- */

static void take_back(struct end *e, uint32_t n_req)
{
	for (uint32_t i = n_req; i < e->half->n_req; i++) {
		if (e->half->req[i].aim == AIM_FAA)
			e->peer->hall->sum_maybe -= e->half->req[i].add;
		if (e->ud)
			ud_take_back(e, &e->half->req[i]);
	}
	if (e->peer)
		area_unpost(&e->peer->area, n_req);
	half_unpost(e->half, n_req);
	e->unsignaled = 0;
	for (uint32_t i = n_req; i > 0 && !(e->half->req[i - 1].flags & GN_SIGNALED); i--)
		e->unsignaled++;
}

uint32_t end_room(const struct end *e, uint32_t n_req)
{
	return e->max_send - (n_req - e->half->done);
}

static void count_posted(struct end *e, uint32_t from)
{
	for (uint32_t i = from; i < e->half->n_req; i++)
		e->s->result->ops[e->half->req[i].op]++;
}

void end_post_chain(struct end *e, struct gn_wr *wr, uint32_t first, uint32_t n, uint32_t broken)
{
	const uint32_t fit = end_room(e, first) < n ? end_room(e, first) : n;
	const uint32_t taken = broken < fit ? broken : fit;
	const int want = taken == n ? 0 : taken == broken ? -EINVAL : -EAGAIN;
	const struct gn_wr *bad = NULL;
	int rc;

	for (uint32_t i = 0; i + 1 < n; i++)
		wr[i].next = &wr[i + 1];
	if (broken < n)
		wr[broken].flags |= 1u << 30;
	rc = gn_post_send(e->qp, wr, &bad);
	CHECK(e->s, rc == want && (rc == 0 || bad == &wr[taken]),
	      "posting %u requests with room for %u, number %u bad, gave %s and stopped at %lld", n,
	      end_room(e, first), broken < n ? broken : n, gn_strerror(rc),
	      bad ? (long long)(bad - wr) : -1ll);
	take_back(e, first + taken);
	count_posted(e, first);
	for (uint32_t i = first; i < e->half->n_req; i++)
		if (e->half->req[i].flags & GN_INLINE) /* it was copied: the buffer is ours */
			memset(end_bay(e, i), JUNK_BYTE, e->half->req[i].len);
}

void end_post(struct end *e)
{
	struct rng *rng = &e->worker->rng;
	const uint32_t n = rng_one_in(rng, 2) ? 1 : rng_range(rng, 1, CHAIN_MAX);
	const uint32_t first = e->half->n_req;
	struct gn_sge sge[CHAIN_MAX][SGE_MAX];
	struct gn_wr wr[CHAIN_MAX];

	if (end_room(e, first) < n && !rng_one_in(rng, 8))
		return; /* full: most programs wait, some try */
	for (uint32_t i = 0; i < n; i++)
		make_request(e, &wr[i], sge[i]);
	end_post_chain(e, wr, first, n, rng_one_in(rng, 32) ? rng_below(rng, n) : UINT32_MAX);
}

static bool post_one(struct end *e, enum gn_op op, enum aim aim, uint32_t len)
{
	struct request *req;
	struct gn_sge sge[SGE_MAX];
	struct gn_wr wr;
	const uint32_t first = e->half->n_req;

	if (end_room(e, first) == 0)
		return false;
	req = half_request(e->s, e->half);
	req->op = op;
	req->aim = aim;
	req->len = req->piece[0] = len;
	req->n_sge = len > 0;
	req->flags = GN_SIGNALED;
	fill_wr(e, &wr, sge, first);
	note_effects(e, first);
	end_post_chain(e, &wr, first, 1, UINT32_MAX);
	return true;
}

bool end_post_marker(struct end *e)
{
	return e->ud ? ud_post_marker(e) : post_one(e, GN_OP_WRITE, AIM_NOTHING, 0);
}

bool end_post_probe(struct end *e)
{
	return post_one(e, GN_OP_READ, AIM_AREA, 2 * LINE);
}

/* ---- receives ---- */

static void post_recv(struct end *e, uint32_t len)
{
	struct receipt *r = half_receipt(e->s, e->half);
	const uint32_t i = e->half->n_recv - 1;
	struct gn_sge sge[SGE_MAX];
	struct gn_recv_wr wr = {.id = r->id, .sge = sge};
	int rc;

	r->len = len;
	r->n_sge = cut_pieces(&e->worker->rng, len, r->piece);
	memset(end_recv_bay(e, i), JUNK_BYTE, e->recv_bay);
	wr.n_sge = fill_sges(sge, end_recv_bay(e, i), gn_mr_lkey(e->local_mr), r->n_sge, r->piece);
	rc = gn_post_recv(e->qp, &wr, NULL);
	CHECK(e->s, rc == 0, "posting receive %u with %u of %u outstanding gave %s", i,
	      i - e->half->recv_done, e->max_recv, gn_strerror(rc));
	e->half->recv[i].tick = ++e->s->tick; /* posting takes time: it counts from now on */
	e->half->recv_there = i + 1;
}

void end_post_recvs(struct end *e, uint32_t most)
{
	const bool hostile = e->life && e->s->plan.link[e->link].hostile;
	struct rng *rng = &e->worker->rng;

	while (most-- > 0 && e->half->n_recv - e->half->recv_done < e->max_recv)
		post_recv(e, hostile && rng_one_in(rng, 32) ? draw_len(rng, e->max_len) :
							      e->recv_bay - SGE_MAX * GAP);
}
