/* SPDX-License-Identifier: MIT */
/*
 * Posting as seen by the posting thread: its work, the path through its context, the doorbell.
 * After that requests advance by events (send.c).
 */
#include <errno.h>

#include "base/mutant.h"
#include "fabric/sim/sim.h"

#define INLINE_OWN 32u /* inline bytes in the first line of a WQE */
#define SGE_OWN	   2u  /* … or this many SGEs */
#define SGE_LINE   4u  /* SGEs in each further line */

int sim_ctx_init(struct gn_ctx *base)
{
	struct sim_ctx *ctx = container_of(base, struct sim_ctx, ctx);
	const unsigned n = (unsigned)sim_fabric_of(&base->obj)->sim->profile.post_paths;

	ctx->paths = gn_alloc(n * sizeof(*ctx->paths), 0);
	return ctx->paths ? 0 : -ENOMEM;
}

void sim_ctx_fini(struct gn_ctx *base)
{
	struct sim_ctx *ctx = container_of(base, struct sim_ctx, ctx);

	gn_free(ctx->paths);
}

struct sim_path *sim_ctx_path(struct gn_ctx *base)
{
	struct sim_ctx *ctx = container_of(base, struct sim_ctx, ctx);

	return &ctx->paths[ctx->next_path++ % sim_fabric_of(&base->obj)->sim->profile.post_paths];
}

/*
 * With many READs in flight, a thread's state for them and the rings do not stay in its core's
 * cache.
 */
static uint64_t post_cache_miss_ps(const struct sim_qp *qp, const struct gn_wr *wr,
				   const struct sim_profile *p)
{
	const uint64_t n = sim_cq_of(qp->qp.send_cq)->requests, near = p->near_requests;

	return wr->op == GN_OP_READ && n > near && near ? p->post_far_ps * (n - near) / n : 0;
}

/* Lines of a WQE behind its first. */
static uint32_t wqe_more_lines(const struct gn_wr *wr)
{
	if (wr->flags & GN_INLINE) {
		const uint64_t len = soft_sge_len(wr->sge, wr->n_sge);

		return len > INLINE_OWN ? (uint32_t)((len - INLINE_OWN + SIM_LINE - 1) / SIM_LINE) :
					  0;
	}
	return wr->n_sge > SGE_OWN ? (wr->n_sge - SGE_OWN + SGE_LINE - 1) / SGE_LINE : 0;
}

/* Charges the thread's work for one chain. Returns the time of its doorbell. */
static uint64_t post_charge(struct sim_qp *qp, const struct gn_wr *wr, unsigned n)
{
	struct gn_sim *sim = sim_fabric_of(&qp->qp.obj)->sim;
	const struct sim_profile *p = &sim->profile;
	struct sim_device *device = sim_device_of(qp);
	uint64_t work = n * (p->post_ps + post_cache_miss_ps(qp, wr, p)) + p->doorbell_ps;

	for (unsigned i = 0; i < n; i++, wr = wr->next)
		if (wr->flags & GN_INLINE)
			work += wqe_more_lines(wr) * p->inline_line_ps;
	sim_settle(sim);
	sim_owe_until(sim, sim_path_pass(qp->path, device, sim->thread ? sim->thread->id : 0,
					 sim->engine.now_ps));
	sim_owe(sim, sim_jitter(device, work));
	return sim->thread ? sim_later(sim->thread->busy_ps, sim->engine.now_ps) :
			     sim->engine.now_ps;
}

/* A mutant that changes a posted buffer, which programs must not do. */
static void mutant_change_buffer(const struct gn_wr *wr)
{
	if (!(wr->flags & GN_INLINE) && sim_op_gathers(wr->op) && wr->n_sge && wr->sge->len_bytes)
		++*(uint8_t *)wr->sge->addr;
}

unsigned sim_post_send(struct gn_qp *base, const struct gn_wr *wr, unsigned n)
{
	struct sim_qp *qp = sim_qp_of(base);
	const uint64_t rings = post_charge(qp, wr, n);

	for (unsigned i = 0; i < n; i++, wr = wr->next) {
		const uint64_t position = base->sq_head + i;

		soft_sq_push(&qp->sq, wr, position);
		*sim_send_at(qp, position) = (struct sim_send){
			.at_ps = rings,
			.first = i == 0,
			.alone = n == 1,
			.bytes = (uint32_t)soft_sge_len(wr->sge, wr->n_sge),
			.lines = 1 + wqe_more_lines(wr),
		};
		sim_request_keep(qp, sim_send_at(qp, position));
		sim_held_add(qp, position);
		if (mutant("buffer-early", position))
			mutant_change_buffer(wr);
	}
	if (base->state == GN_QP_ERROR) /* possibly since the post began */
		sim_stages_flush(qp);
	else
		sim_stage_kick(qp, SIM_RING);
	return n;
}

unsigned sim_post_recv(struct gn_qp *base, const struct gn_recv_wr *wr, unsigned n)
{
	struct sim_qp *qp = sim_qp_of(base);
	struct gn_sim *sim = sim_fabric_of(&base->obj)->sim;

	sim_owe(sim, n * sim->profile.recv_ps);
	for (unsigned i = 0; i < n; i++, wr = wr->next)
		soft_rq_post(&qp->rq, wr);
	if (base->state == GN_QP_ERROR)
		sim_event_now(&sim->engine, &qp->stage[SIM_DONE]);
	return n;
}
