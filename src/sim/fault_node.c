/* SPDX-License-Identifier: MIT */
/*
 * Faults of a node: crash, kill, pause, slowness, partition, drift, lack of memory.
 *
 * For random faults each kind with a rate has one event for all nodes. Its opportunities are
 * numbered: a virtual millisecond has one per node, evenly spaced, and the event jumps to the next
 * that is taken. So every node has one opportunity per millisecond, whatever the number of nodes,
 * and there are no events in between.
 */
#include <assert.h>

#include "sim/nodes.h"

/*
 * Random values: durations of 100 us to 12.8 ms, rarely up to 3.3 s, beyond common timeouts; 2 to
 * 32 times slower; 500 ppm.
 */
#define SPAN_LEAST_PS	(100ull * 1000 * 1000)
#define SPAN_DOUBLINGS	7u
#define LONG_DOUBLINGS	8u
#define STILL_DOUBLINGS 5u /* … up to 410 ms where programs keep polling */
/* so that a node at 10% per millisecond is still up most of the time */
#define LONG_ONE_IN	 256u
#define FACTOR_DOUBLINGS 4u
#define PPM_RANGE	 500u

#define CHANCES_MAX 4096u /* opportunities per event */

/* Trace numbers of events: kind and node, and the type of event. */
#define NUMBER_PLAN    ((uint64_t)1 << 40)
#define NUMBER_ARRIVAL ((uint64_t)2 << 40)
#define NUMBER_RESTART ((uint64_t)3 << 40)

/* ---- events that wake no thread ---- */

static void idle_event_at(struct gn_sim *sim, struct sim_event *event, uint64_t at_ps)
{
	if (sim_event_waits(event))
		sim->faults.n_idle--;
	sim_event_at(&sim->engine, event, at_ps);
	if (sim_event_waits(event))
		sim->faults.n_idle++;
}

/* ---- crash ---- */

static void node_restart(struct sim_event *event)
{
	struct sim_node *node = container_of(event, struct sim_node, restart);
	struct gn_sim *sim = node->sim;

	if (node->restart_is_idle)
		sim->faults.n_idle--;
	node->down = node->crashed = false;
	gn_log(GN_LOG_INFO, "sim: %s is up again at %llu ns", node->name,
	       (unsigned long long)gn_sim_now_ns(sim));
	for (unsigned i = 0; i < sim->n_procs; i++)
		if (sim->procs[i]->node == node && sim->procs[i]->down)
			sim_proc_restart(sim->procs[i]);
}

/* A second crash while the node is down only extends it, or makes it silent. */
static void node_crash(struct sim_node *node, uint64_t up_ps, bool silent)
{
	struct gn_sim *sim = node->sim;
	unsigned down = 0;

	node->crashed |= silent;
	if (node->down && up_ps <= node->up_ps)
		return;
	if (!node->down)
		node->incarnation++;
	node->down = true;
	node->up_ps = up_ps;
	node->paused_until_ps = 0;
	for (unsigned i = 0; i < sim->n_procs; i++) {
		if (sim->procs[i]->node != node)
			continue;
		sim_proc_crash(sim->procs[i], up_ps != SIM_NEVER);
		down += sim->procs[i]->down;
	}
	if (sim_event_waits(&node->restart) && node->restart_is_idle)
		sim->faults.n_idle--;
	sim_event_at(&sim->engine, &node->restart, up_ps);
	node->restart_is_idle = !down;
	if (sim_event_waits(&node->restart) && node->restart_is_idle)
		sim->faults.n_idle++;
}

/* Reserves queue space for the events of a crash, while that can still fail. */
static int node_crash_prepare(struct gn_sim *sim)
{
	for (unsigned i = 0; i < sim->n_nodes; i++) {
		struct sim_node *node = &sim->nodes[i];
		int rc;

		if (node->has_restart)
			continue;
		rc = sim_event_init(&sim->engine, &node->restart, node_restart, SIM_KIND_FAULT,
				    NUMBER_RESTART | i);
		if (rc)
			return rc;
		node->has_restart = true;
	}
	return 0;
}

/* ---- pause, slowness, drift, partition ---- */

static void node_each_thread(struct sim_node *node,
			     void (*fn)(struct sim_thread *thread, uint64_t value), uint64_t value)
{
	const struct gn_sim *sim = node->sim;

	for (unsigned i = 0; i < sim->n_procs; i++) {
		if (sim->procs[i]->node != node || sim->procs[i]->ending)
			continue;
		for (struct sim_thread *t = sim->procs[i]->threads; t; t = t->next)
			if (!t->done)
				fn(t, value);
	}
}

/* Work in progress stops, too. */
static void thread_extend_work(struct sim_thread *thread, uint64_t by_ps)
{
	struct sim_engine *engine = &thread->proc->sim->engine;

	if (thread->busy_ps <= engine->now_ps)
		return;
	if (__builtin_add_overflow(thread->busy_ps, by_ps, &thread->busy_ps))
		thread->busy_ps = SIM_NEVER;
	if (!thread->working)
		return;
	thread->until_ps = thread->busy_ps;
	sim_event_at(engine, &thread->run, thread->until_ps);
}

/* The threads' own events do the rest: see thread_resume() in thread.c. */
static void pause_node(struct sim_node *node, uint64_t until_ps)
{
	const uint64_t now_ps = node->sim->engine.now_ps;
	const uint64_t was_ps = node->paused_until_ps > now_ps ? node->paused_until_ps : now_ps;

	if (until_ps <= was_ps || node->down)
		return;
	node->paused_until_ps = until_ps;
	node_each_thread(node, thread_extend_work, until_ps - was_ps);
}

/* The thread waits for a local time, which is another virtual time now. */
static void thread_move_deadline(struct sim_thread *thread, uint64_t unused)
{
	struct sim_engine *engine = &thread->proc->sim->engine;

	(void)unused;
	if (thread->deadline_ns == GN_FOREVER || thread->held_up || thread->unparked ||
	    (thread->run.where != SIM_EVENT_NEAR && thread->run.where != SIM_EVENT_FAR))
		return;
	thread->until_ps = sim_clock_until_ps(&thread->proc->node->clock, thread->deadline_ns);
	sim_event_at(engine, &thread->run, sim_later(thread->until_ps, thread->busy_ps));
}

static void node_drift(struct sim_node *node, int32_t ppm)
{
	sim_clock_drift(&node->clock, node->sim->engine.now_ps, ppm);
	node_each_thread(node, thread_move_deadline, 0);
	sim_alarms_drift(node);
}

static void extend_until(uint64_t *until_ps, uint64_t than_ps)
{
	if (*until_ps < than_ps)
		*until_ps = than_ps;
}

static void partition_split(struct gn_sim *sim, uint64_t until_ps)
{
	struct sim_random *random = &sim->engine.random;

	for (unsigned i = 0; i < sim->n_nodes; i++)
		sim->nodes[i].side = sim_random_below(random, 2);
	sim->faults.split_both_ways = sim_random_below(random, 2);
	sim->faults.split_until_ps = until_ps;
}

/*
 * Half of the time one node against all others; or one direction only; or two groups, one such
 * partition at a time.
 */
static void partition_random(struct sim_node *node, uint64_t until_ps)
{
	struct gn_sim *sim = node->sim;
	const uint32_t shape = sim_random_below(&sim->engine.random, 6);

	if (shape == 0 && sim->faults.split_until_ps <= sim->engine.now_ps) {
		partition_split(sim, until_ps);
	} else {
		if (shape != 1)
			extend_until(&node->cut_out_until_ps, until_ps);
		if (shape != 2)
			extend_until(&node->cut_in_until_ps, until_ps);
	}
	extend_until(&sim->faults.cut_until_ps, until_ps);
}

/* ---- start of a fault ---- */

struct extent {
	uint64_t until_ps;
	uint32_t factor;
	int32_t ppm;
};

static void fault_begin(struct sim_node *node, enum sim_fault kind, const struct extent *extent)
{
	struct gn_sim *sim = node->sim;

	sim_fault_note(sim, kind, node->index);
	sim_trace(&sim->engine, extent->until_ps);
	gn_log(GN_LOG_INFO, "sim: %s of %s at %llu ns", gn_sim_fault_name(kind), node->name,
	       (unsigned long long)gn_sim_now_ns(sim));
	switch (kind) {
	case SIM_CRASH:
	case SIM_KILL:
		node_crash(node, extent->until_ps, kind == SIM_CRASH);
		break;
	case SIM_PAUSE:
		pause_node(node, extent->until_ps);
		break;
	case SIM_SLOW_NODE:
		node->slow_cpu = (struct sim_slow){extent->until_ps, extent->factor};
		break;
	case SIM_SLOW_LINK:
		node->device.slow = (struct sim_slow){extent->until_ps, extent->factor};
		break;
	case SIM_PARTITION:
		partition_random(node, extent->until_ps);
		break;
	case SIM_DRIFT:
		node_drift(node, extent->ppm);
		break;
	case SIM_LOW_MEMORY:
		extend_until(&node->low_memory_until_ps, extent->until_ps);
		break;
	default:
		assert(false && "no fault of a node");
	}
}

/* ---- scheduled ---- */

static void partition_groups(struct sim_plan *plan, uint64_t until_ps)
{
	struct gn_sim *sim = plan->sim;

	sim_fault_note(sim, SIM_PARTITION, SIM_ANY_NODE);
	sim_trace(&sim->engine, until_ps);
	gn_log(GN_LOG_INFO, "sim: partition at %llu ns", (unsigned long long)gn_sim_now_ns(sim));
	plan->until_ps = until_ps;
	plan->next = sim->faults.cuts;
	sim->faults.cuts = plan;
	extend_until(&sim->faults.cut_until_ps, until_ps);
}

static void plan_begin(struct sim_event *event)
{
	struct sim_plan *plan = container_of(event, struct sim_plan, event), **at;
	struct gn_sim *sim = plan->sim;
	const struct extent extent = {
		.until_ps = plan->span_ps ? sim_after(&sim->engine, plan->span_ps) : SIM_NEVER,
		.factor = plan->factor,
		.ppm = plan->ppm,
	};
	uint32_t node = plan->node;

	for (at = &sim->faults.plans[plan->kind]; *at != plan;)
		at = &(*at)->next;
	*at = plan->next;
	if (!sim_fault_ends(plan->kind))
		sim->faults.n_idle--;
	if (plan->groups) {
		partition_groups(plan, extent.until_ps);
		return;
	}
	if (node == SIM_ANY_NODE)
		node = sim_random_below(&sim->engine.random, sim->n_nodes);
	fault_begin(&sim->nodes[node], plan->kind, &extent);
	sim_plan_free(plan);
}

int sim_plan_prepare(struct sim_plan *plan)
{
	int rc = sim_event_init(&plan->sim->engine, &plan->event, plan_begin, SIM_KIND_FAULT,
				NUMBER_PLAN | (uint64_t)plan->kind << 32 | plan->node);

	if (rc)
		return rc;
	plan->has_event = true;
	return sim_fault_ends(plan->kind) ? node_crash_prepare(plan->sim) : 0;
}

/*
 * A future crash may let other threads run, or end a wait, so the run continues. If only other
 * faults are scheduled, the run is stuck.
 */
void sim_plan_arm(struct sim_plan *plan)
{
	if (sim_fault_ends(plan->kind))
		sim_event_at(&plan->sim->engine, &plan->event, plan->at_ps);
	else
		idle_event_at(plan->sim, &plan->event, plan->at_ps);
}

/* ---- at random ---- */

/* One draw per statement: in one initialiser the compiler could choose the order. */
static struct extent draw_extent(struct gn_sim *sim, enum sim_fault kind)
{
	struct sim_random *random = &sim->engine.random;
	struct extent extent;
	uint64_t span_ps;

	if (sim_random_below(random, LONG_ONE_IN))
		span_ps = sim_fault_span_ps(sim, SPAN_LEAST_PS, SPAN_DOUBLINGS);
	else
		span_ps = sim_fault_span_ps(sim, SPAN_LEAST_PS << SPAN_DOUBLINGS,
					    sim_fault_ends(kind) || kind == SIM_PARTITION ?
						    LONG_DOUBLINGS :
						    STILL_DOUBLINGS);
	extent.until_ps = sim_after(&sim->engine, span_ps);
	extent.factor = 2 * SIM_FACTOR_ONE << sim_random_below(random, FACTOR_DOUBLINGS);
	extent.factor += sim_random_below(random, extent.factor);
	extent.ppm = (int32_t)sim_random_below(random, 2 * PPM_RANGE + 1) - (int32_t)PPM_RANGE;
	return extent;
}

/* The start and the length of an opportunity's slice of its millisecond. */
static uint64_t opportunity_at(const struct gn_sim *sim, uint64_t chance, uint64_t *slice_ps)
{
	const uint64_t period = chance / sim->n_nodes;

	*slice_ps = SIM_RATE_PERIOD_PS / sim->n_nodes;
	if (period >= SIM_NEVER / SIM_RATE_PERIOD_PS - 1)
		return SIM_NEVER;
	return period * SIM_RATE_PERIOD_PS + chance % sim->n_nodes * *slice_ps;
}

/* Advances to the next opportunity that is taken, or as far as one event may. */
static void arrivals_advance(struct sim_arrivals *arrivals)
{
	struct gn_sim *sim = arrivals->sim;
	struct sim_random *random = &sim->engine.random;
	uint64_t at_ps, slice_ps;

	arrivals->strikes = false;
	for (unsigned i = 0; i < CHANCES_MAX && !arrivals->strikes; i++) {
		arrivals->chance++;
		arrivals->strikes = sim_random_below(random, SIM_RATE_ONE) <
				    sim->faults.rate[arrivals->kind];
	}
	at_ps = opportunity_at(sim, arrivals->chance, &slice_ps);
	if (arrivals->strikes && at_ps != SIM_NEVER)
		at_ps += sim_random_below(random, (uint32_t)slice_ps);
	idle_event_at(sim, &arrivals->event, at_ps);
}

static void arrivals_fired(struct sim_event *event)
{
	struct sim_arrivals *arrivals = container_of(event, struct sim_arrivals, event);
	struct gn_sim *sim = arrivals->sim;

	sim->faults.n_idle--;
	if (arrivals->strikes) {
		const struct extent extent = draw_extent(sim, arrivals->kind);

		fault_begin(&sim->nodes[arrivals->chance % sim->n_nodes], arrivals->kind, &extent);
	}
	arrivals_advance(arrivals);
}

int sim_arrivals_prepare(struct gn_sim *sim, enum sim_fault kind)
{
	struct sim_arrivals *arrivals = &sim->faults.arrivals[kind];
	int rc;

	if (!arrivals->has_event) {
		rc = sim_event_init(&sim->engine, &arrivals->event, arrivals_fired, SIM_KIND_FAULT,
				    NUMBER_ARRIVAL | (uint64_t)kind << 32);
		if (rc)
			return rc;
		arrivals->has_event = true;
		arrivals->sim = sim;
		arrivals->kind = kind;
	}
	return sim_fault_ends(kind) ? node_crash_prepare(sim) : 0;
}

void sim_arrivals_arm(struct gn_sim *sim, enum sim_fault kind)
{
	struct sim_arrivals *arrivals = &sim->faults.arrivals[kind];

	if (!sim->faults.rate[kind]) {
		idle_event_at(sim, &arrivals->event, SIM_NEVER);
		return;
	}
	/* The current millisecond has had its opportunities. */
	arrivals->chance = (sim->engine.now_ps / SIM_RATE_PERIOD_PS + (sim->engine.now_ps > 0)) *
				   sim->n_nodes -
			   1;
	arrivals_advance(arrivals);
}

void sim_fault_nodes_fini(struct gn_sim *sim)
{
	for (unsigned kind = 0; kind < SIM_FAULTS; kind++)
		if (sim->faults.arrivals[kind].has_event)
			sim_event_fini(&sim->engine, &sim->faults.arrivals[kind].event);
	for (unsigned i = 0; i < sim->n_nodes; i++)
		if (sim->nodes[i].has_restart)
			sim_event_fini(&sim->engine, &sim->nodes[i].restart);
}
