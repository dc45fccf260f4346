/* SPDX-License-Identifier: MIT */
/*
 * Remote memory under faults. Each seed draws a cluster, clients with an engine and some threads
 * each, and what goes wrong, and then:
 *
 *  - each line of a block reads as the last WRITE that ended well, or as one that did not;
 *  - every request ends, once, and with a status that has a reason;
 *  - nothing is written outside of a client's own blocks;
 *  - the windows are kept;
 *  - clients come to their end after all is well again;
 *  - no process that returned has left anything behind, and the run ends.
 */
#include <stdio.h>
#include <string.h>

#include "draw.h"
#include "sim_io.h"

#define LIMIT_NS 100000000000ull

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
	if (one_in(rng, 2))
		cluster_add_fault(&plan->cluster, "ack-loss=2%");
	plan->cluster.breaks = true;
	plan->groups = 1;
	plan->heals = true;
	plan->reads = range(rng, 30, 60);
	plan->steps = 600;
	plan->opts.lost_us = 5000000;
}

/* No faults: a thread that is not woken when its request has completed waits for the next round. */
static void draw_rounds(struct plan *plan, struct rng *rng)
{
	plan->rounds = true;
	plan->n_threads = range(rng, 2, THREADS_MAX);
	plan->groups = range(rng, 1, BLOCKS / GROUP / plan->n_threads);
	plan->stop_us = 0;
	plan->depth = range(rng, 1, 2);
	plan->steps = 300;
	plan->opts.polling = (enum gn_io_polling)range(rng, GN_IO_EVENT, GN_IO_NAIVE_HYBRID);
	plan->opts.channels = range(rng, 1, 2);
	/* A thread that sleeps does not take its completions, and keeps a window full. */
	plan->opts.read_window = plan->opts.write_window = GN_IO_WINDOW_NONE;
	plan->heals = true;
}

static uint64_t draw_window(struct rng *rng)
{
	switch (range(rng, 0, 3)) {
	case 0:
		return GN_IO_WINDOW_AUTO;
	case 1:
		return GN_IO_WINDOW_NONE;
	default:
		return range(rng, 256, 16384);
	}
}

void test_plan(struct seeds *run)
{
	struct plan *plan = &((struct world *)run)->plan;
	struct rng rng = {run->seed * 0xd6e8feb86659fd93u + 0x696f};
	struct gn_io_opts *o = &plan->opts;

	*plan = (struct plan){0};
	cluster_draw(&plan->cluster, &rng);
	plan->n_clients = range(&rng, 1, CLIENTS_MAX);
	plan->n_threads = range(&rng, 1, THREADS_MAX);
	plan->depth = range(&rng, 1, 16);
	plan->steps = range(&rng, 20, 300);
	plan->deadlines = one_in(&rng, 2) ? 0 : range(&rng, 1, 60);
	plan->cancels = one_in(&rng, 2) ? 0 : range(&rng, 1, 20);
	plan->reads = range(&rng, 20, 80);
	plan->stop_us = one_in(&rng, 4) ? range(&rng, 50, 3000) : 0;
	o->batching = (enum gn_io_batching)range(&rng, 0, GN_IO_BATCHINGS - 1);
	o->mr = (enum gn_io_mr)range(&rng, 0, GN_IO_MRS - 1);
	o->polling = (enum gn_io_polling)range(&rng, 0, GN_IO_POLLINGS - 1);
	o->read_window = draw_window(&rng);
	o->write_window = draw_window(&rng);
	o->channels = range(&rng, 1, 4);
	o->depth = range(&rng, 1, 32);
	o->merge_bytes = range(&rng, 512, 16384);
	o->max_retry = range(&rng, 1, 200);
	o->poll_batch = range(&rng, 1, 16);
	o->staging_bytes = 2u << 20;
	o->lost_us = range(&rng, 100000, 5000000);
	plan->groups = range(&rng, 1, BLOCKS / GROUP / plan->n_threads);
	plan->intrudes = one_in(&rng, 2);
	if (one_in(&rng, 4))
		draw_late(plan, &rng);
	else
		plan->heals = cluster_draw_faults(&plan->cluster, &rng);
	if (!*plan->cluster.faults)
		draw_rounds(plan, &rng);
}

void test_plan_small(struct seeds *run, const char *faults)
{
	struct plan *plan = &((struct world *)run)->plan;

	*plan = (struct plan){.n_clients = 1,
			      .n_threads = 2,
			      .depth = 4,
			      .steps = 8,
			      .groups = 4,
			      .reads = 50,
			      .opts = {.channels = 2, .staging_bytes = 2u << 20}};
	cluster_small(&plan->cluster, faults);
}

void test_print(const struct seeds *run)
{
	const struct plan *p = &((const struct world *)run)->plan;
	const struct gn_io_opts *o = &p->opts;

	printf("# profile %s, caps off %llx%s\n# faults %s\n", p->cluster.profile,
	       (unsigned long long)p->cluster.caps_off, p->heals ? ", heals" : "",
	       p->cluster.faults);
	printf("# %u clients of %u threads: %u requests at once of %u; %u %% READs, %u %% deadlines, "
	       "%u %% cancelled; the lender stops at %u us\n",
	       p->n_clients, p->n_threads, p->depth, p->steps, p->reads, p->deadlines, p->cancels,
	       p->stop_us);
	printf("# batching %u, mr %u, polling %u, windows %lld and %lld, %u channels of %u, merges %u\n",
	       o->batching, o->mr, o->polling, (long long)o->read_window,
	       (long long)o->write_window, o->channels, o->depth, o->merge_bytes);
}

static void check_end(struct seeds *run)
{
	if (!ends_programs(((struct world *)run)->plan.cluster.faults))
		seeds_check_requests(run);
}

void test_run(struct seeds *run)
{
	struct world *w = (struct world *)run;
	const struct gn_sim_opts opts =
		cluster_sim_opts(&w->plan.cluster, run->seed, w->plan.n_clients + 1, LIMIT_NS);

	memset(w->blocks, 0, sizeof(w->blocks));
	memset(w->seen, 0, sizeof(w->seen));
	memset(w->generation, 0, sizeof(w->generation));
	w->version = w->lives = 0;
	w->incarnation = 0;
	seeds_simulate_clients(run, &opts, lender_main, client_main,
			       !ends_programs(w->plan.cluster.faults), check_end);
}

void test_points(struct seeds *run)
{
	seeds_points(run, 0, "lender");
	seeds_points(run, 1, "client");
}

void test_breadth(struct seeds *run)
{
	const struct sums *s = &((const struct world *)run)->sums;
	const struct seeds_sum all[] = {
		{"read", s->reads},
		{"written", s->writes},
		{"merged", s->merged},
		{"held back by a window or a full queue", s->waited},
		{"posted again", s->repeated},
		{"connected again", s->reconnects},
		{"past a deadline", s->timeouts},
		{"cancelled", s->cancelled},
		{"lost with the lender", s->lost},
		{"WRITEs that may have landed", s->uncertain},
		{"lenders begun again", s->restarts},
		{"slept", s->slept},
		{"clients that came to their end", s->healed},
	};

	seeds_result(seeds_all_there(all, sizeof(all) / sizeof(*all)),
		     "having done everything there is");
	/* An engine sends no messages, and reads no memory that peers write. */
	seeds_all_faults(run, (const char *const[]){"ud-", "rnr", "preempt", NULL});
}

int main(int argc, char **argv)
{
	static const struct seeds_test test = {
		.program = "sim-io",
		.what = "remote memory",
		.seconds_max = 30,
		.more = 1,
	};
	static struct world w;

	return seeds_main(argc, argv, &test, &w.run);
}
