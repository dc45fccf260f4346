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

#include "draw.h"
#include "sim_donor.h"

#define LIMIT_NS   100000000000ull
#define SILENCE_NS 6000000000ull
#define ATTEMPTS   300u
#define MEMORY_US  1000u
#define DOWN_US	   2000u
#define LOOK_US	   200u
#define RESERVE	   (1u << 30)

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
	plan->stop_us = plan->low_us = plan->high_us = 0;
	plan->lease_us = 30000000;
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
	if (one_in(&rng, 2)) {
		plan->low_us = range(&rng, 500, 5000);
		plan->high_us = plan->low_us + range(&rng, 100, 20000);
	}
	plan->blocks = range(&rng, 1, BLOCKS);
	plan->intrudes = one_in(&rng, 2);
	if (one_in(&rng, 4))
		draw_late(plan, &rng);
	else
		plan->heals = cluster_draw_faults(&plan->cluster, &rng);
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
	       "donor stops at %u us; memory is short from %u to %u us\n",
	       p->n_clients, p->channels, p->steps, p->depth, p->slabs,
	       (unsigned long long)p->lease_us, p->stop_us, p->low_us, p->high_us);
}

/* ---- the donor ---- */

static bool all_over(const struct seeds *run)
{
	const struct world *w = (const struct world *)run;

	return w->clients_over == w->plan.n_clients ||
	       gn_sim_now_ns(run->sim) > w->active_ns + SILENCE_NS;
}

static uint64_t available(void *arg)
{
	const struct world *w = arg;
	const uint64_t now_us = gn_sim_now_ns(w->run.sim) / 1000;

	return now_us >= w->plan.low_us && now_us < w->plan.high_us ? RESERVE - SLAB : UINT64_MAX;
}

static int serve_once(struct seeds *run, struct gn_fabric *fabric, uint32_t stop_us)
{
	struct world *w = (struct world *)run;
	const struct gn_donor_server_opts opts = {
		.size = sizeof(opts),
		.memory = (uint64_t)w->plan.slabs * SLAB,
		.slab = SLAB,
		.ready = 1,
		.lease_us = w->plan.lease_us,
		.silence_us = 60000000,
		.take_back_us = w->plan.take_back_us,
		.reserve = RESERVE,
		.available = available,
		.available_arg = w,
		.max_sessions = 64,
		.max_shares = 64,
		.max_conns = 64,
	};
	struct gn_donor_server *server = NULL;
	int rc = gn_donor_server_create(fabric, ADDR, &opts, &server);

	if (!rc)
		rc = gn_donor_server_start(server);
	while (!rc && !all_over(run) && !*run->failure &&
	       (!stop_us || gn_sim_now_ns(run->sim) < stop_us * 1000ull))
		gn_sleep_us(LOOK_US);
	if (!rc && stop_us && !*run->failure)
		gn_donor_server_drain(server, gn_deadline_us(gn_random() % 2000));
	gn_donor_server_destroy(server);
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
	struct client_arg arg[CLIENTS_MAX];
	struct seeds_process process[CLIENTS_MAX + 1] = {{donor_main, w}};
	const struct gn_sim_opts opts =
		cluster_sim_opts(&w->plan.cluster, run->seed, w->plan.n_clients + 1, LIMIT_NS);

	w->version = w->clients_over = 0;
	w->active_ns = 0;
	for (unsigned i = 0; i < w->plan.n_clients; i++) {
		arg[i] = (struct client_arg){w, i};
		process[i + 1] = (struct seeds_process){client_main, &arg[i]};
	}
	seeds_simulate(run, &opts, process, opts.nodes, !ends_programs(w->plan.cluster.faults),
		       check_end);
}

void test_points(struct seeds *run)
{
	seeds_points(run, "alloc", 0, "donor");
	seeds_points(run, "alloc", 1, "client");
	seeds_points(run, "register", 0, "donor");
	seeds_points(run, "register", 1, "client");
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
