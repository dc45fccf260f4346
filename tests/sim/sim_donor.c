/* SPDX-License-Identifier: MIT */
/*
 * A donor and its clients under faults. Each seed draws a cluster, clients, and what goes wrong, and
 * then:
 *
 *  - a slab is zero when it is granted, and each line of a block reads as the last WRITE that ended
 *    well, or as one that did not: nothing of another client, of an old connection, or of a share
 *    that was revoked;
 *  - every call and request ends, with a status that has a reason;
 *  - clients come to their end after all is well again;
 *  - no process that returned has left anything behind, and the run ends.
 */
#include <stdio.h>
#include <string.h>

#include "donor_process.h"
#include "draw.h"
#include "sim_donor.h"

#define LIMIT_NS   100000000000ull
#define SILENCE_NS 6000000000ull
#define ATTEMPTS   300u
#define MEMORY_US  1000u
#define DOWN_US	   2000u
#define DRAIN_US   2000u
#define RESERVE	   SLAB

/* ---- the plan ---- */

/*
 * Connections break while WRITEs are on their way, and the same few blocks are written again and
 * again: without a fence an old WRITE would land on a newer one.
 */
static void draw_late(struct plan *plan, struct rng *rng)
{
	char fault[64];

	snprintf(fault, sizeof(fault), "late-visibility=%u%%", range(rng, 10, 60));
	cluster_add_fault(&plan->cluster, fault);
	snprintf(fault, sizeof(fault), "qp-error=%uppm", range(rng, 2000, 30000));
	cluster_add_fault(&plan->cluster, fault);
	plan->cluster.breaks = plan->heals = true;
	plan->blocks = range(rng, 1, 3);
	plan->slabs = range(rng, 1, 2);
	plan->steps = 300;
	plan->n_clients = 1;
	plan->stop_us = 0;
	plan->lease_us = 30000000;
}

/* Of the donor's node, long enough for slabs to be taken. */
static void draw_low_memory(struct plan *plan, struct rng *rng)
{
	char fault[64];
	const uint32_t at_us = range(rng, 500, 5000);

	snprintf(fault, sizeof(fault), "low-memory@%uus+%uus:n0", at_us, range(rng, 100, 20000));
	cluster_add_fault(&plan->cluster, fault);
}

void test_plan(struct seeds *run)
{
	struct plan *plan = &((struct world *)run)->plan;
	struct rng rng = {run->seed * 0xd6e8feb86659fd93u + 0x646f};

	*plan = (struct plan){.take_back_us = range(&rng, 100, 5000)};
	cluster_draw(&plan->cluster, &rng);
	plan->n_clients = range(&rng, 1, CLIENTS_MAX);
	plan->steps = range(&rng, 10, 80);
	plan->depth = range(&rng, 1, 8);
	plan->channels = range(&rng, 1, 3);
	plan->slabs = range(&rng, 1, 8);
	plan->stop_us = one_in(&rng, 4) ? range(&rng, 200, 5000) : 0;
	plan->lease_us = one_in(&rng, 2) ? 30000000 : range(&rng, 1000, 100000);
	plan->blocks = range(&rng, 1, BLOCKS);
	plan->intrudes = one_in(&rng, 2);
	if (one_in(&rng, 4))
		draw_late(plan, &rng);
	else
		plan->heals = cluster_draw_faults(&plan->cluster, &rng);
	if (one_in(&rng, 2))
		draw_low_memory(plan, &rng);
}

void test_plan_small(struct seeds *run, const char *faults)
{
	struct plan *plan = &((struct world *)run)->plan;

	*plan = (struct plan){.n_clients = 1,
			      .steps = 6,
			      .depth = 2,
			      .channels = 1,
			      .blocks = 2,
			      .slabs = 3,
			      .lease_us = 30000000,
			      .take_back_us = 1000};
	cluster_small(&plan->cluster, faults);
}

void test_print(const struct seeds *run)
{
	const struct plan *p = &((const struct world *)run)->plan;

	printf("# profile %s, caps off %llx%s\n# faults %s\n", p->cluster.profile,
	       (unsigned long long)p->cluster.caps_off, p->heals ? ", heals" : "",
	       p->cluster.faults);
	printf("# %u clients of %u channels: %u steps of %u requests; %u slabs, lease %llu us; the "
	       "donor stops at %u us\n",
	       p->n_clients, p->channels, p->steps, p->depth, p->slabs,
	       (unsigned long long)p->lease_us, p->stop_us);
}

/* ---- the donor ---- */

static bool all_over(const struct seeds *run)
{
	const struct world *w = (const struct world *)run;

	return seeds_over(run, w->plan.n_clients, SILENCE_NS);
}

static bool serves(void *arg, bool *leaves)
{
	const struct world *w = arg;

	*leaves = w->stop_us && !*w->run.failure;
	return !all_over(&w->run) && !*w->run.failure &&
	       (!w->stop_us || gn_sim_now_ns(w->run.sim) < w->stop_us * 1000ull);
}

static int serve_once(struct seeds *run, struct gn_fabric *fabric, uint32_t stop_us)
{
	struct world *w = (struct world *)run;
	const struct donor_process process = {.addr = ADDR,
					      .slab = SLAB,
					      .slabs = w->plan.slabs,
					      .lease_us = w->plan.lease_us,
					      .take_back_us = w->plan.take_back_us,
					      .reserve = RESERVE,
					      .serves = serves,
					      .arg = w,
					      .drain_us = DRAIN_US};
	int rc;

	w->stop_us = stop_us;
	rc = donor_serve(fabric, &process);
	w->sums.restarts += !rc && stop_us;
	return rc;
}

static int donor_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	const struct seeds_server server = {.serve_once = serve_once,
					    .all_over = all_over,
					    .stop_us = w->plan.stop_us,
					    .attempts = ATTEMPTS,
					    .pause_us = MEMORY_US,
					    .max_down_us = DOWN_US,
					    .no_memory = w->plan.cluster.no_memory};

	(void)argc, (void)argv;
	return seeds_serve(&w->run, env, &server);
}

/* ---- runs ---- */

static void check_end(struct seeds *run)
{
	(void)run;
}

void test_run(struct seeds *run)
{
	struct world *w = (struct world *)run;
	const struct gn_sim_opts opts =
		cluster_sim_opts(&w->plan.cluster, run->seed, w->plan.n_clients + 1, LIMIT_NS);

	w->version = 0;
	seeds_simulate_clients(run, &opts, donor_main, client_main,
			       !ends_programs(w->plan.cluster.faults), check_end);
}

void test_points(struct seeds *run)
{
	seeds_points(run, 0, "donor");
	seeds_points(run, 1, "client");
}

void test_breadth(struct seeds *run)
{
	const struct sums *s = &((const struct world *)run)->sums;
	const struct seeds_sum all[] = {
		{"written", s->writes},
		{"read", s->reads},
		{"requests that failed", s->failed},
		{"slabs granted", s->grants},
		{"slabs returned", s->releases},
		{"grants refused", s->refused},
		{"sessions lost", s->lost},
		{"sessions resumed", s->resumed},
		{"slabs asked for", s->asked},
		{"slabs taken", s->taken},
		{"donors that said they leave", s->leaving},
		{"ranges shared", s->shared},
		{"shares opened again", s->reopened},
		{"shares revoked", s->revoked},
		{"earlier users refused", s->intruded},
		{"requests posted again", s->repeated},
		{"donors begun again", s->restarts},
		{"clients that came to their end", s->ended},
	};

	seeds_result(seeds_all_there(all, sizeof(all) / sizeof(*all)),
		     "having done everything there is");
	/* No datagrams, and messages only to wake a peer: calls have tests of their own. */
	seeds_all_faults(run, (const char *const[]){"ud-", "rnr", NULL});
}

int main(int argc, char **argv)
{
	static const struct seeds_test test = {
		.program = "sim-donor",
		.what = "lent memory",
		.seconds_max = 30,
		.more = 1,
	};
	static struct world w;

	return seeds_main(argc, argv, &test, &w.run);
}
