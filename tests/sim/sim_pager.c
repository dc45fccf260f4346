/* SPDX-License-Identifier: MIT */
/*
 * A pager under faults. Each seed draws a cluster, donors, a program with some threads, and what goes
 * wrong, and then:
 *
 *  - each page has the bytes that were last written to it, whenever a thread touches it;
 *  - every fault and every command ends;
 *  - no more pages are resident than may be, and pinned ones always are;
 *  - a page is lost only with a reason, and then every touch says so. If one donor fails at a time,
 *    and all copies exist again before the next one, none is lost;
 *  - nothing that the kernel would refuse is asked of it, nor anything that would lose bytes: see
 *    pager_model.h;
 *  - no process that returned leaves anything.
 */
#include <stdlib.h>

#include "donor_process.h"
#include "draw.h"
#include "sim_pager.h"

#define LIMIT_NS   300000000000ull
#define MIB	   (1u << 20)
#define SILENCE_NS 70000000000ull
#define ATTEMPTS   400u
#define MEMORY_US  1000u
#define DOWN_US	   3000u
#define LOOK_US	   500u
#define LONG_US	   30000000u

/* ---- donors, and the end of the faults ---- */

static bool all_over(const struct seeds *run)
{
	const struct world *w = (const struct world *)run;

	return w->over || gn_sim_now_ns(run->sim) > w->active_ns + SILENCE_NS;
}

static uint64_t available(void *arg)
{
	(void)arg;
	return UINT64_MAX;
}

static bool serves(void *arg, bool *leaves)
{
	const struct world *w = arg;

	*leaves = false;
	return !all_over(&w->run) && !*w->run.failure;
}

static int serve_once(struct seeds *run, struct gn_fabric *fabric, uint32_t stop_us)
{
	struct world *w = (struct world *)run;
	char addr[16];
	const struct donor_process process = {.addr = addr,
					      .slab = w->plan.slab,
					      .slabs = w->plan.donor_slabs,
					      .lease_us = w->plan.lease_us,
					      .available = available,
					      .serves = serves,
					      .arg = w,
					      .drain_us = 1};

	(void)stop_us;
	snprintf(addr, sizeof(addr), "sim:%s:9", gn_node_name());
	return donor_serve(fabric, &process);
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
	return seeds_serve(&w->run, env, &server);
}

/* Ends all faults with a rate, after a while: threads that wait for a donor come to their end. */
int healer_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;

	(void)argc, (void)argv;
	while (!w->over && !*w->run.failure &&
	       gn_sim_now_ns(w->run.sim) < w->plan.heal_us * 1000ull)
		gn_sleep_us(LOOK_US);
	cluster_heal(w->run.sim);
	w->calm = true;
	return 0;
}

/* ---- the plan ---- */

static void draw_memory(struct plan *plan, struct rng *rng)
{
	unsigned extents;

	plan->slab = MIB;
	plan->pages = range(rng, 1, 4) * 256 - (one_in(rng, 2) ? 0 : range(rng, 1, 100));
	extents = (unsigned)((plan->pages * GN_PAGER_PAGE + plan->slab - 1) / plan->slab);
	plan->local = range(rng, 32, (uint32_t)plan->pages * 3 / 4);
	plan->shared = plan->pages * range(rng, 30, 90) / 100;
	plan->hot = range(rng, 1, (uint32_t)plan->shared);
	plan->window = one_in(rng, 4) ? 0 : range(rng, 1, GN_PAGER_WINDOW_MAX);
	plan->copies = range(rng, 1, plan->n_donors < 3 ? plan->n_donors : 3);
	plan->donor_slabs = extents + range(rng, 2, 4);
	plan->headroom = one_in(rng, 3) ? plan->slab * range(rng, 1, 2) : 0;
	plan->verify = one_in(rng, 2);
	plan->detect_us = one_in(rng, 3) ? 0 : range(rng, 2000, 60000);
	plan->lost_us = one_in(rng, 2) ? range(rng, 100000, 300000) : LONG_US;
	plan->lease_us = one_in(rng, 2) ? LONG_US : range(rng, 20000, 200000);
	plan->io = (struct gn_io_opts){
		.batching = (enum gn_io_batching)range(rng, 0, GN_IO_BATCHINGS - 1),
		.polling = one_in(rng, 2) ? GN_IO_ADAPTIVE : GN_IO_EVENT_BATCH,
		.channels = range(rng, 1, 4),
		.depth = range(rng, 1, 64),
		.staging_bytes = 4 * MIB,
	};
	plan->tight = one_in(rng, 8) && extents > 2;
	if (plan->tight) {
		plan->shared = plan->pages * 9 / 10;
		plan->local = plan->pages / 4;
		plan->hot = (uint32_t)plan->shared;
		plan->writes = 700;
		plan->steps = 600;
		plan->donor_slabs = 1;
		plan->n_donors = plan->copies = 2;
		plan->headroom = plan->slab;
	}
}

void test_plan(struct seeds *run)
{
	struct plan *plan = &((struct world *)run)->plan;
	struct rng rng = {run->seed * 0xd6e8feb86659fd93u + 0x7067};

	*plan = (struct plan){0};
	cluster_draw(&plan->cluster, &rng);
	plan->n_donors = range(&rng, 2, DONORS_MAX);
	plan->n_threads = range(&rng, 1, THREADS_MAX);
	plan->steps = range(&rng, 50, 5000);
	plan->pace_us = range(&rng, 1, 40);
	plan->step_one_in = range(&rng, 1, 40);
	plan->step_us = range(&rng, 1, 8);
	plan->writes = range(&rng, 0, 700);
	plan->rows = range(&rng, 0, 60);
	plan->commands = range(&rng, 0, 60);
	plan->heal_us = range(&rng, 50000, 400000);
	plan->refuse_one_in = one_in(&rng, 6) ? range(&rng, 20, 1000) : 0;
	draw_memory(plan, &rng);
	plan->events = range(&rng, 1, 4);
	plan->event_us = range(&rng, 100, 10000);
	switch (range(&rng, 0, 3)) {
	case 0:
		plan->events = 0;
		break;
	case 1:
		plan->events = 0;
		cluster_draw_some_faults(&plan->cluster, &rng);
		break;
	case 2:
		plan->lost_us = range(&rng, 1000, 300000);
		break;
	default:
		plan->careful = !plan->tight;
		plan->copies = 2;
		plan->lost_us = LONG_US;
		plan->lease_us = LONG_US;
		plan->headroom = plan->tight ? plan->headroom : 0;
	}
}

void test_plan_small(struct seeds *run, const char *faults)
{
	struct plan *plan = &((struct world *)run)->plan;

	*plan = (struct plan){.n_donors = 2,
			      .n_threads = 1,
			      .steps = 60,
			      .pace_us = 10,
			      .step_one_in = 8,
			      .step_us = 2,
			      .writes = 500,
			      .rows = 20,
			      .commands = 20,
			      .slab = MIB,
			      .pages = 256,
			      .local = 64,
			      .shared = 160,
			      .hot = 160,
			      .window = 8,
			      .copies = 2,
			      .donor_slabs = 2,
			      .lost_us = LONG_US,
			      .lease_us = 200000,
			      .heal_us = 100000,
			      .io = {.channels = 1, .staging_bytes = 4 * MIB}};
	cluster_small(&plan->cluster, faults);
}

void test_print(const struct seeds *run)
{
	const struct plan *p = &((const struct world *)run)->plan;

	printf("# profile %s, caps off %llx%s%s\n# faults %s\n", p->cluster.profile,
	       (unsigned long long)p->cluster.caps_off, p->careful ? ", careful" : "",
	       p->tight ? ", tight" : "", p->cluster.faults);
	printf("# %u threads, %u steps every %u us, %u writes, %u rows, %u commands of 1000; calls "
	       "interrupted one in %u for %u us, refused one in %u\n",
	       p->n_threads, p->steps, p->pace_us, p->writes, p->rows, p->commands, p->step_one_in,
	       p->step_us, p->refuse_one_in);
	printf("# %llu pages, %llu local, %llu shared, %u hot, window %u; %u copies on %u donors of %u "
	       "slabs, headroom %llu%s\n",
	       (unsigned long long)p->pages, (unsigned long long)p->local,
	       (unsigned long long)p->shared, p->hot, p->window, p->copies, p->n_donors,
	       p->donor_slabs, (unsigned long long)p->headroom, p->verify ? ", verify" : "");
	printf("# detect %u us, lost %u us, lease %llu us, heals at %u us, %u events within %u us\n",
	       p->detect_us, p->lost_us, (unsigned long long)p->lease_us, p->heal_us, p->events,
	       p->event_us);
}

/* ---- runs ---- */

static void check_end(struct seeds *run)
{
	struct world *w = (struct world *)run;

	if (!w->over && !ends_programs(w->plan.cluster.faults))
		world_fail(w, "the program did not end");
}

void test_run(struct seeds *run)
{
	struct world *w = (struct world *)run;
	const unsigned n = w->plan.n_donors + 2;
	struct seeds_process process[DONORS_MAX + 2];
	const struct gn_sim_opts opts = cluster_sim_opts(&w->plan.cluster, run->seed, n, LIMIT_NS);

	w->over = w->calm = false;
	w->active_ns = 0;
	w->lives = 0;
	for (unsigned i = 0; i < w->plan.n_donors; i++)
		process[i] = (struct seeds_process){donor_main, w};
	process[n - 2] = (struct seeds_process){client_main, w};
	process[n - 1] = (struct seeds_process){healer_main, w};
	seeds_simulate(run, &opts, process, n,
		       !ends_programs(w->plan.cluster.faults) && !w->plan.events, check_end);
}

void test_points(struct seeds *run)
{
	seeds_points(run, 2, "program");
}

void test_breadth(struct seeds *run)
{
	const struct sums *s = &((const struct world *)run)->sums;
	const struct seeds_sum all[] = {
		{"touches", s->touches},
		{"of these writes", s->writes},
		{"touches of lost pages", s->sigbus},
		{"stale faults", s->stale},
		{"mapped", s->commands[COMMAND_MAP]},
		{"unmapped", s->commands[COMMAND_UNMAP]},
		{"will-need", s->commands[GN_PAGER_WILL_NEED]},
		{"cold", s->commands[GN_PAGER_COLD]},
		{"unmapped by the program itself", s->forgotten},
		{"dont-need", s->commands[GN_PAGER_DONT_NEED]},
		{"pinned", s->commands[GN_PAGER_PIN]},
		{"unpinned", s->commands[GN_PAGER_UNPIN]},
		{"faults of fresh pages", s->pager.faults_fresh},
		{"faults of remote pages", s->pager.faults_remote},
		{"faults of cached pages", s->pager.faults_cached},
		{"faults that waited for a frame", s->pager.stalls},
		{"pages of zeros", s->pager.zeroed},
		{"pages read", s->pager.pages_in},
		{"pages written", s->pager.pages_out},
		{"pages dropped", s->pager.dropped},
		{"pages read ahead", s->pager.prefetched},
		{"of these used", s->pager.prefetch_used},
		{"of these wasted", s->pager.prefetch_wasted},
		{"pages lost", s->pager.lost},
		{"calls that the kernel refused", s->refused},
		{"donors that failed", s->events},
		{"pagers", s->created},
		{"pagers that came to their end", s->ended},
		{"longest touch or command, us", s->longest_us},
	};

	seeds_result(seeds_all_there(all, sizeof(all) / sizeof(*all)),
		     "having done everything there is");
}

int main(int argc, char **argv)
{
	static const struct seeds_test test = {
		.program = "sim-pager",
		.what = "a pager",
		.seconds_max = 60,
		.more = 1,
	};
	static struct world w;

	return seeds_main(argc, argv, &test, &w.run);
}
