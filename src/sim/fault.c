/* SPDX-License-Identifier: MIT */
/*
 * Faults: names, the schedule, and whether a fault happens at an opportunity. Random choices are
 * drawn only for kinds that were configured: a run without faults is identical with and without
 * this file.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/fail.h"
#include "sim/nodes.h"

#define DELAY_LEAST_PS	(1000ull * 1000) /* 1 us */
#define DELAY_DOUBLINGS 10u
#define LONG_LEAST_PS	(1000ull * 1000 * 1000) /* 1 ms */
#define LONG_DOUBLINGS	12u

static const char *const names[SIM_FAULTS] = {
	[SIM_UD_LOSS] = "ud-loss",
	[SIM_UD_DUP] = "ud-dup",
	[SIM_UD_REORDER] = "ud-reorder",
	[SIM_UD_DELAY] = "ud-delay",
	[SIM_QP_ERROR] = "qp-error",
	[SIM_RNR] = "rnr",
	[SIM_ACK_LOSS] = "ack-loss",
	[SIM_LATE_COMPLETION] = "late-completion",
	[SIM_LATE_VISIBILITY] = "late-visibility",
	[SIM_LINES] = "lines",
	[SIM_TORN_READ] = "torn-read",
	[SIM_LATE_ESTABLISHED] = "late-established",
	[SIM_CRASH] = "crash",
	[SIM_KILL] = "kill",
	[SIM_PAUSE] = "pause",
	[SIM_SLOW_NODE] = "slow-node",
	[SIM_SLOW_LINK] = "slow-link",
	[SIM_PARTITION] = "partition",
	[SIM_DRIFT] = "drift",
	[SIM_ALLOC] = "alloc",
	[SIM_REGISTER] = "register",
	[SIM_PREEMPT] = "preempt",
	[SIM_LOW_MEMORY] = "low-memory",
};

const char *gn_sim_fault_name(unsigned kind)
{
	return kind < SIM_FAULTS ? names[kind] : NULL;
}

uint64_t gn_sim_fault_count(const struct gn_sim *sim, unsigned kind)
{
	return sim && kind < SIM_FAULTS ? sim->faults.count[kind] : 0;
}

void sim_fault_note(struct gn_sim *sim, enum sim_fault kind, unsigned node)
{
	sim->faults.count[kind]++;
	sim_trace(&sim->engine, (uint64_t)SIM_KIND_FAULT << 56 | (uint64_t)kind << 32 | node);
}

/* ---- the list ---- */

void sim_plan_free(struct sim_plan *plan)
{
	if (plan->has_event)
		sim_event_fini(&plan->sim->engine, &plan->event);
	free(plan->from); /* also frees to, which follows it */
	free(plan);
}

static void free_plans(struct sim_plan *plan)
{
	while (plan) {
		struct sim_plan *next = plan->next;

		sim_plan_free(plan);
		plan = next;
	}
}

static int plans_prepare(struct gn_sim *sim, const struct sim_fault_list *list)
{
	int rc = 0;

	for (struct sim_plan *plan = list->plans; plan && !rc; plan = plan->next)
		if (sim_fault_is_of_node(plan->kind))
			rc = sim_plan_prepare(plan);
	for (unsigned kind = 0; kind < SIM_FAULTS && !rc; kind++)
		if (sim_fault_is_of_node(kind) && list->rated & 1u << kind)
			rc = sim_arrivals_prepare(sim, kind);
	return rc;
}

static void add_plan(struct sim_faults *faults, struct sim_plan *plan)
{
	struct sim_plan **last = &faults->plans[plan->kind];

	while (*last)
		last = &(*last)->next;
	*last = plan;
	plan->next = NULL;
	if (sim_fault_is_of_node(plan->kind))
		sim_plan_arm(plan);
}

static void plans_commit(struct gn_sim *sim, struct sim_fault_list *list)
{
	struct sim_faults *faults = &sim->faults;

	while (list->plans) {
		struct sim_plan *plan = list->plans;

		list->plans = plan->next;
		faults->named |= 1u << plan->kind;
		add_plan(faults, plan);
	}
	for (unsigned kind = 0; kind < SIM_FAULTS; kind++) {
		if (!(list->rated & 1u << kind))
			continue;
		faults->rate[kind] = list->rate[kind];
		faults->named |= 1u << kind;
		if (sim_fault_is_of_node(kind))
			sim_arrivals_arm(sim, kind);
	}
}

int gn_sim_inject(struct gn_sim *sim, const char *text)
{
	struct sim_fault_list list;
	int rc = sim_check_home(sim);

	if (rc)
		return rc;
	if (!text)
		return gn_fail_log(-EINVAL, "sim: faults is NULL");
	rc = sim_fault_parse(sim, text, &list);
	if (rc)
		return rc;
	rc = plans_prepare(sim, &list);
	if (rc) {
		free_plans(list.plans);
		return rc;
	}
	plans_commit(sim, &list);
	return 0;
}

void sim_faults_fini(struct gn_sim *sim)
{
	for (unsigned kind = 0; kind < SIM_FAULTS; kind++)
		free_plans(sim->faults.plans[kind]);
	free_plans(sim->faults.cuts);
	sim_fault_nodes_fini(sim);
}

/* ---- opportunities ---- */

/* Does the scheduled fault happen at this opportunity? *over: it will not happen again. */
static bool plan_takes(struct sim_plan *plan, unsigned node, bool *over)
{
	const uint64_t now_ps = plan->sim->engine.now_ps;

	*over = plan->span_ps && now_ps - plan->at_ps >= plan->span_ps && now_ps >= plan->at_ps;
	if (*over || now_ps < plan->at_ps || (plan->node != SIM_ANY_NODE && plan->node != node))
		return false;
	if (plan->skip) {
		plan->skip--;
		return false;
	}
	*over = !plan->span_ps;
	return true;
}

bool sim_fault_taken(struct gn_sim *sim, enum sim_fault kind, unsigned node)
{
	struct sim_faults *faults = &sim->faults;
	bool taken = false;

	/* Every plan counts every opportunity; otherwise one would change another's count. */
	for (struct sim_plan **at = &faults->plans[kind]; *at;) {
		struct sim_plan *plan = *at;
		bool over;

		taken |= plan_takes(plan, node, &over);
		if (over) {
			*at = plan->next;
			sim_plan_free(plan);
		} else {
			at = &plan->next;
		}
	}
	if (faults->rate[kind] &&
	    sim_random_below(&sim->engine.random, SIM_RATE_ONE) < faults->rate[kind])
		taken = true;
	if (!faults->rate[kind] && !faults->plans[kind])
		faults->named &= ~(1u << kind);
	if (taken)
		sim_fault_note(sim, kind, node);
	return taken;
}

uint64_t sim_fault_span_ps(struct gn_sim *sim, uint64_t least_ps, unsigned doublings)
{
	struct sim_random *random = &sim->engine.random;
	const uint64_t octave_ps = least_ps << sim_random_below(random, doublings);

	return octave_ps + sim_random_below(random, (uint32_t)(octave_ps / SIM_PS_PER_NS)) *
				   (uint64_t)SIM_PS_PER_NS;
}

uint64_t sim_fault_delay_ps(struct gn_sim *sim)
{
	return sim_fault_span_ps(sim, DELAY_LEAST_PS, DELAY_DOUBLINGS);
}

uint64_t sim_fault_long_delay_ps(struct gn_sim *sim)
{
	if (sim_random_below(&sim->engine.random, SIM_LONG_ONE_IN))
		return sim_fault_delay_ps(sim);
	return sim_fault_span_ps(sim, LONG_LEAST_PS, LONG_DOUBLINGS);
}

/* ---- partitions ---- */

static bool group_has(const uint64_t *nodes, unsigned node)
{
	return nodes[node / 64] >> node % 64 & 1;
}

bool sim_fault_is_cut(const struct gn_sim *sim, unsigned from, unsigned to)
{
	const struct sim_faults *faults = &sim->faults;
	const uint64_t now_ps = sim->engine.now_ps;
	const struct sim_node *a, *b;

	if (from == to || from >= sim->n_nodes || to >= sim->n_nodes)
		return false;
	a = &sim->nodes[from];
	b = &sim->nodes[to];
	if (a->cut_out_until_ps > now_ps || b->cut_in_until_ps > now_ps)
		return true;
	if (faults->split_until_ps > now_ps && a->side != b->side &&
	    (faults->split_both_ways || a->side))
		return true;
	for (const struct sim_plan *cut = faults->cuts; cut; cut = cut->next)
		if (cut->until_ps > now_ps &&
		    ((group_has(cut->from, from) && group_has(cut->to, to)) ||
		     (cut->both_ways && group_has(cut->from, to) && group_has(cut->to, from))))
			return true;
	return false;
}
