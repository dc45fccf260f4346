/* SPDX-License-Identifier: MIT */
/*
 * The donors, and the conductor: a process that causes one event after the other. If the plan is
 * careful it waits until every extent has all its copies before the next one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "donor_process.h"
#include "sim_vol.h"

#define RESERVE (1u << 30) /* memory that the donor's system must have available */

#define SILENCE_NS 70000000000ull
#define ATTEMPTS   400u
#define MEMORY_US  1000u
#define DOWN_US	   3000u
#define DRAIN_US   60000u
#define LOOK_US	   500u
#define CONDUCT_NS 15000000000ull /* the faults end by then */
#define WHOLE_US   10000000u	  /* a careful conductor waits so long */
#define PROMISE_NS 2000000000ull  /* … and a copy that is gone may be promised so long */
#define ADDR_BYTES 16u

bool all_over(const struct seeds *run)
{
	const struct world *w = (const struct world *)run;
	unsigned over = 0;

	for (unsigned i = 0; i < w->plan.n_clients; i++)
		over += w->clients[i].over;
	return over == w->plan.n_clients || gn_sim_now_ns(run->sim) > w->active_ns + SILENCE_NS;
}

/* ---- donors ---- */

struct donor_arg {
	struct world *w;
	unsigned index;
};

static uint64_t available(void *arg)
{
	const struct donor_arg *a = arg;
	const uint32_t missing = a->w->donors[a->index].missing;

	return missing ? RESERVE - missing * a->w->plan.slab : UINT64_MAX;
}

static bool serves(void *arg, bool *leaves)
{
	const struct donor_arg *a = arg;

	*leaves = a->w->donors[a->index].leave && !*a->w->run.failure;
	return !*leaves && !all_over(&a->w->run) && !*a->w->run.failure;
}

/* The number of this process's node. */
static unsigned node_index(void)
{
	return (unsigned)atoi(gn_node_name() + 1);
}

static int serve_once(struct seeds *run, struct gn_fabric *fabric, uint32_t stop_us)
{
	struct world *w = (struct world *)run;
	struct donor_arg arg = {w, node_index()};
	struct donor_world *dw = &w->donors[arg.index];
	char addr[ADDR_BYTES];
	const struct donor_process process = {.addr = addr,
					      .slab = w->plan.slab,
					      .slabs = w->plan.donor_slabs,
					      .lease_us = w->plan.lease_us,
					      .take_back_us = w->plan.take_back_us,
					      .reserve = RESERVE,
					      .available = available,
					      .serves = serves,
					      .arg = &arg,
					      .drain_us = DRAIN_US,
					      .out = &dw->server};
	int rc;

	(void)stop_us;
	snprintf(addr, sizeof(addr), "sim:n%u:9", arg.index);
	dw->crashes = node_crashes(w, arg.index);
	dw->server = NULL;
	rc = donor_serve(fabric, &process);
	w->sums.left += !rc && dw->leave;
	dw->leave = false;
	return rc;
}

int donor_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	const struct seeds_server server = {.serve_once = serve_once,
					    .all_over = all_over,
					    .attempts = ATTEMPTS,
					    .pause_us = MEMORY_US,
					    .max_down_us = DOWN_US,
					    .no_memory = w->plan.cluster.no_memory};

	(void)argc, (void)argv;
	w->donors[node_index()].server = NULL;
	return seeds_serve(&w->run, env, &server);
}

/* ---- events ---- */

enum event { CRASH, KILL, PARTITION, PARTITION_OUT, PARTITION_IN, PAUSE, PRESSURE, LEAVE, EVENTS };

static enum event draw_event(const struct plan *plan)
{
	enum event event;

	do
		event = (enum event)(gn_random() % EVENTS);
	while ((event == LEAVE && !plan->leaves) || (event == PRESSURE && !plan->short_memory) ||
	       (event <= KILL && !plan->crashes));
	return event;
}

/* Short, longer than the detection, or longer than leases. */
static uint32_t draw_duration_us(const struct plan *plan)
{
	switch (gn_random() % 4) {
	case 0:
		return 100 + (uint32_t)gn_random() % 3000;
	case 1:
		return (uint32_t)(plan->lease_us < LEASE_LONG_US ? plan->lease_us : 200000) +
		       (uint32_t)gn_random() % 20000;
	default:
		return plan->detect_us + (uint32_t)gn_random() % 50000;
	}
}

/* Begins an event at a donor; returns how long it lasts. */
static uint32_t event_begin(struct world *w, unsigned donor, enum event event)
{
	static const char *const formats[EVENTS] = {[CRASH] = "crash@0us+%uus:n%u",
						    [KILL] = "kill@0us+%uus:n%u",
						    [PARTITION] = "partition@0us+%uus:n%u",
						    [PARTITION_OUT] = "partition@0us+%uus:n%u>",
						    [PARTITION_IN] = "partition@0us+%uus:>n%u",
						    [PAUSE] = "pause@0us+%uus:n%u"};
	const uint32_t us = draw_duration_us(&w->plan);
	struct donor_world *dw = &w->donors[donor];
	char fault[64];
	int rc = 0;

	if (event == LEAVE)
		dw->leave = true;
	else if (event == PRESSURE)
		dw->missing = 1 + (uint32_t)gn_random() % w->plan.donor_slabs;
	else if (snprintf(fault, sizeof(fault), formats[event], us, donor) > 0)
		rc = gn_sim_inject(w->run.sim, fault);
	if (rc)
		world_fail(w, "no fault %s", fault);
	world_log(w, "event %u: kind %u at donor %u for %u us", w->n_events, event, donor, us);
	/* A lease that ended destroys memory, too. */
	w->lossy += event != PAUSE;
	w->sums.events[event]++;
	w->n_events++;
	w->event_ns = gn_sim_now_ns(w->run.sim);
	dw->faulted = true;
	return us;
}

/* ---- conductor ---- */

static bool clients_wait(const struct world *w)
{
	bool all = true;

	for (unsigned i = 0; i < w->plan.n_clients; i++)
		all &= w->clients[i].ready;
	return all;
}

static bool all_whole(const struct world *w)
{
	bool whole = true;

	for (unsigned i = 0; i < w->plan.n_clients; i++)
		whole = whole && (w->clients[i].over || truth_whole(w, i));
	return whole;
}

/* A volume must not promise copies for long that do not exist. */
static void check_promises(struct world *w, uint64_t since_ns[CLIENTS_MAX])
{
	for (unsigned i = 0; i < w->plan.n_clients; i++) {
		const int64_t extent = truth_promised(w, i);

		if (extent < 0)
			since_ns[i] = gn_now_ns();
		else if (gn_now_ns() - since_ns[i] > PROMISE_NS)
			world_fail(w, "client %u has a copy of extent %lld in its map that is gone",
				   i, (long long)extent);
	}
}

/* Before an event of a careful conductor nothing else is going on. */
static bool wait_until_whole(struct world *w)
{
	const uint64_t until_ns = gn_deadline_us(w->plan.lease_us + WHOLE_US);
	uint64_t since_ns[CLIENTS_MAX];

	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		since_ns[i] = gn_now_ns();
	while (!*w->run.failure && !clients_wait(w)) {
		if (all_whole(w))
			return true;
		check_promises(w, since_ns);
		if (gn_now_ns() > until_ns) {
			world_fail(w, "some extents do not get all their copies");
			return false;
		}
		w->active_ns = gn_sim_now_ns(w->run.sim);
		gn_sleep_us(LOOK_US);
	}
	return false;
}

static void conduct(struct world *w)
{
	while (w->n_events < w->plan.events && !*w->run.failure && !clients_wait(w) &&
	       gn_sim_now_ns(w->run.sim) < CONDUCT_NS) {
		const unsigned donor = (unsigned)gn_random() % w->plan.n_donors;
		uint32_t us;

		gn_sleep_us(gn_random() % w->plan.event_us);
		if (w->plan.careful && !wait_until_whole(w))
			return;
		us = event_begin(w, donor, draw_event(&w->plan));
		gn_sleep_us(w->plan.careful ? us : gn_random() % w->plan.event_us);
		w->donors[donor].missing = 0;
		for (unsigned i = 0; w->plan.careful && w->donors[donor].leave && i < ATTEMPTS; i++)
			gn_sleep_us(MEMORY_US);
	}
}

/* Ends all faults, also those with a rate. */
static void heal(struct world *w)
{
	cluster_heal(w->run.sim);
	for (unsigned i = 0; i < w->plan.n_donors; i++)
		w->donors[i].missing = 0;
	w->calm = true;
}

int conductor_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;

	(void)argc, (void)argv;
	if (!w->calm)
		conduct(w);
	/* Threads that wait for a donor come to their end only after the faults. */
	while (!w->calm && !w->plan.careful && !clients_wait(w) && !*w->run.failure &&
	       gn_sim_now_ns(w->run.sim) < w->plan.heal_us * 1000ull)
		gn_sleep_us(LOOK_US);
	heal(w);
	return 0;
}
