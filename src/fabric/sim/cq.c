/* SPDX-License-Identifier: MIT */
/* Completion queues and channels: the software ring, and the cost of empty polls. */
#include "base/mutant.h"
#include "fabric/sim/sim.h"

static struct soft_cq *soft_cq_of(struct gn_cq *cq)
{
	return container_of(cq, struct soft_cq, cq);
}

int sim_cq_init(struct gn_cq *cq)
{
	return soft_cq_init(soft_cq_of(cq));
}

void sim_cq_fini(struct gn_cq *cq)
{
	soft_cq_fini(soft_cq_of(cq));
}

int sim_cq_poll(struct gn_cq *cq, struct gn_wc *wc, int n)
{
	struct gn_sim *sim = sim_fabric_of(&cq->obj)->sim;
	const int got = soft_cq_poll(soft_cq_of(cq), wc, n);

	if (got) {
		sim_found(sim);
		sim_owe(sim, (uint64_t)got * sim->profile.poll_ps);
	} else {
		sim_looked(sim, sim->profile.look_ps);
	}
	return got;
}

int sim_cq_arm(struct gn_cq *cq, bool solicited_only)
{
	if (!solicited_only)
		soft_cq_of(cq)->armed = SOFT_ARMED;
	else if (soft_cq_of(cq)->armed == SOFT_UNARMED)
		soft_cq_of(cq)->armed = SOFT_ARMED_SOLICITED;
	return 0;
}

bool sim_cq_ready(struct gn_cq *cq)
{
	return !soft_cq_empty(soft_cq_of(cq));
}

void sim_chan_pump(struct gn_chan *chan)
{
	struct gn_sim *sim = sim_fabric_of(&chan->obj)->sim;

	/* Connections advance by events here. */
	if (chan->first)
		sim_found(sim);
	else
		sim_looked(sim, sim->profile.look_ps);
}

static void chan_timer_fired(struct sim_alarm *timer)
{
	struct gn_chan *chan = &container_of(timer, struct sim_chan, timer)->chan;

	chan_push(chan, &chan->ev_timer);
}

int sim_chan_timer(struct gn_chan *base, uint64_t deadline_ns)
{
	struct sim_chan *chan = container_of(base, struct sim_chan, chan);
	int rc = 0;

	if (!chan->has_timer && deadline_ns != GN_FOREVER) {
		rc = sim_alarm_init(&chan->timer, sim_fabric_of(&base->obj)->nic->node,
				    chan_timer_fired);
		chan->has_timer = !rc;
	}
	if (chan->has_timer)
		sim_alarm_set(&chan->timer, deadline_ns);
	return rc;
}

void sim_chan_fini(struct gn_chan *base)
{
	struct sim_chan *chan = container_of(base, struct sim_chan, chan);

	if (chan->has_timer)
		sim_alarm_fini(&chan->timer);
	chan->has_timer = false;
}

static void cq_fail_qps(struct gn_cq *cq)
{
	for (struct obj *o = cq->obj.fabric->pool[OBJ_QP].live; o; o = o->next) {
		struct sim_qp *qp = container_of(o, struct sim_qp, qp.obj);

		if (qp->up && (qp->qp.send_cq == cq || qp->qp.recv_cq == cq))
			sim_qp_fail(qp);
	}
}

void sim_cq_push(struct gn_cq *cq, const struct gn_wc *wc, bool solicited)
{
	const bool was_overrun = cq->overrun;

	if (!mutant("completion-lost", wc->id) && !soft_cq_push(soft_cq_of(cq), wc, solicited) &&
	    !was_overrun) {
		source_wake(&cq->source);
		cq_fail_qps(cq);
	}
}
