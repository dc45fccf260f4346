/* SPDX-License-Identifier: MIT */
/*
 * Volumes under faults. Each seed draws a cluster, donors, clients with a volume and some threads
 * each, and what goes wrong, and then:
 *
 *  - each sector reads as the last WRITE that ended, or as one that was under way at the same time;
 *  - -EIO has a reason: a block is lost, and stays so until it is written as a whole. If only one
 *    donor fails at a time, and all copies exist again before the next one, nothing is lost;
 *  - after a WRITE, and always after a FLUSH, the memory of all copies in the map has the data;
 *  - every request ends, once;
 *  - when the faults are over each extent gets all its copies, and they are equal;
 *  - the status does not promise copies that do not exist;
 *  - a volume leaves no slab behind at a donor, and no process that returned leaves anything.
 */
#include <stdio.h>
#include <string.h>

#include "draw.h"
#include "sim_vol.h"

#define LIMIT_NS 300000000000ull
#define MIB	 (1u << 20)
#define STRIPE	 (MIB / SECTOR)

/* ---- the plan ---- */

/* Around the borders of blocks, stripes and extents, and the ends. */
static void draw_hot(struct plan *plan, struct rng *rng)
{
	const uint32_t all = (uint32_t)(plan->bytes / SECTOR);

	plan->n_hot = range(rng, 1, HOT_MAX);
	for (unsigned i = 0; i < HOT_MAX; i++) {
		const uint32_t any = range(rng, 0, all - 1);

		switch (range(rng, 0, 2)) {
		case 0:
			plan->hot[i] = any / STRIPE * STRIPE;
			break;
		case 1:
			plan->hot[i] = one_in(rng, 2) ? all - 1 : STRIPE < all ? STRIPE : 0;
			break;
		default:
			plan->hot[i] = any;
		}
	}
}

static void draw_io(struct plan *plan, struct rng *rng)
{
	plan->io = (struct gn_io_opts){
		.batching = (enum gn_io_batching)range(rng, 0, GN_IO_BATCHINGS - 1),
		.mr = (enum gn_io_mr)range(rng, 0, GN_IO_MRS - 1),
		.polling = (enum gn_io_polling)range(rng, 0, GN_IO_POLLINGS - 1),
		.channels = range(rng, 1, 4),
		.depth = range(rng, 1, 64),
		.staging_bytes = 4 * MIB,
	};
}

static void draw_volume(struct plan *plan, struct rng *rng)
{
	unsigned extents;

	plan->slab = MIB << range(rng, 0, 1);
	plan->bytes = (uint64_t)range(rng, 1, 4) * MIB -
		      (one_in(rng, 2) ? 0 : range(rng, 1, 100)) * (uint64_t)GN_VOL_BLOCK;
	extents = (unsigned)((plan->bytes + plan->slab - 1) / plan->slab);
	plan->copies = range(rng, 1, plan->n_donors < 3 ? plan->n_donors : 3);
	plan->verify = one_in(rng, 2);
	plan->backup = one_in(rng, 4);
	plan->headroom = one_in(rng, 3) ? plan->slab * range(rng, 1, 4) : 0;
	plan->authority = range(rng, 0, 2);
	plan->repair_share = range(rng, 1, 100);
	plan->detect_us = one_in(rng, 3) ? 0 : range(rng, 2000, 60000);
	plan->lost_us = one_in(rng, 4) ? range(rng, 100000, LOST_SHORT_US) : 30000000;
	plan->lease_us = one_in(rng, 2) ? LEASE_LONG_US : range(rng, 20000, 200000);
	plan->take_back_us = range(rng, 1000, 40000);
	plan->donor_slabs = plan->n_clients * extents + range(rng, 2, 8);
	draw_hot(plan, rng);
	draw_io(plan, rng);
}

/* One donor fails at a time, and nothing else happens. */
static void draw_careful(struct plan *plan, struct rng *rng)
{
	plan->careful = true;
	plan->n_donors = range(rng, 2, DONORS_MAX);
	plan->copies = range(rng, 2, plan->n_donors < 3 ? 2 : 3);
	plan->lost_us = 30000000;
	plan->repair_share = range(rng, 20, 100);
	plan->events = range(rng, 2, 8);
	plan->event_us = range(rng, 1000, 30000);
	plan->headroom = 0;
	if (one_in(rng, 2)) {
		cluster_add_fault(&plan->cluster, "late-visibility=20%");
		plan->visible = false;
	}
}

void test_plan(struct seeds *run)
{
	struct plan *plan = &((struct world *)run)->plan;
	struct rng rng = {run->seed * 0xd6e8feb86659fd93u + 0x766f};

	*plan = (struct plan){0};
	cluster_draw(&plan->cluster, &rng);
	plan->n_donors = range(&rng, 2, DONORS_MAX);
	plan->n_clients = range(&rng, 1, CLIENTS_MAX);
	plan->n_threads = range(&rng, 1, THREADS_MAX);
	plan->depth = range(&rng, 1, DEPTH_MAX);
	plan->steps = range(&rng, 30, 150);
	plan->pace_us = range(&rng, 10, 4000);
	plan->reads = range(&rng, 20, 70);
	plan->zeroes = range(&rng, 0, 20);
	plan->flushes = range(&rng, 0, 8);
	plan->events = one_in(&rng, 3) ? 0 : range(&rng, 1, 12);
	plan->event_us = range(&rng, 1000, 60000);
	plan->heal_us = range(&rng, 50000, 400000);
	plan->leaves = one_in(&rng, 2);
	plan->short_memory = one_in(&rng, 2);
	plan->crashes = !one_in(&rng, 4);
	plan->visible = !(plan->cluster.caps_off & (GN_CAP_INORDER_WRITE | GN_CAP_WRITE_ORDER));
	draw_volume(plan, &rng);
	if (one_in(&rng, 2))
		draw_careful(plan, &rng);
	else
		cluster_draw_some_faults(&plan->cluster, &rng);
	plan->visible = plan->visible && !strstr(plan->cluster.faults, "late-visibility");
	/* A thread that never sleeps must not wait for a donor for long: the simulator ends the run. */
	if (plan->events || !cluster_is_strict(&plan->cluster))
		while (plan->io.polling == GN_IO_BUSY || plan->io.polling == GN_IO_SHARED_CQ)
			plan->io.polling = (enum gn_io_polling)range(&rng, 0, GN_IO_POLLINGS - 1);
}

void test_plan_small(struct seeds *run, const char *faults)
{
	struct plan *plan = &((struct world *)run)->plan;

	*plan = (struct plan){.n_clients = 1,
			      .n_donors = 2,
			      .n_threads = 2,
			      .depth = 2,
			      .steps = 6,
			      .pace_us = 100,
			      .reads = 40,
			      .zeroes = 10,
			      .flushes = 10,
			      .event_us = 100,
			      .visible = true,
			      .slab = MIB,
			      .bytes = 2 * MIB,
			      .donor_slabs = 4,
			      .copies = 2,
			      .lost_us = 30000000,
			      .lease_us = 200000,
			      .take_back_us = 10000,
			      .n_hot = 2,
			      .hot = {0, STRIPE},
			      .io = {.channels = 2, .staging_bytes = 4 * MIB}};
	cluster_small(&plan->cluster, faults);
}

void test_print(const struct seeds *run)
{
	const struct plan *p = &((const struct world *)run)->plan;

	printf("# profile %s, caps off %llx%s%s\n# faults %s\n", p->cluster.profile,
	       (unsigned long long)p->cluster.caps_off, p->careful ? ", careful" : "",
	       p->visible ? ", visible" : "", p->cluster.faults);
	printf("# %u clients of %u threads, %u requests at once of %u, pace %u us; %u %% READs, %u %% "
	       "zeros, %u %% flushes\n",
	       p->n_clients, p->n_threads, p->depth, p->steps, p->pace_us, p->reads, p->zeroes,
	       p->flushes);
	printf("# %llu bytes, %u copies on %u donors of %u slabs of %llu MiB%s%s, headroom %llu, "
	       "authority %u, repair %u %%\n",
	       (unsigned long long)p->bytes, p->copies, p->n_donors, p->donor_slabs,
	       (unsigned long long)p->slab / MIB, p->verify ? ", verify" : "",
	       p->backup ? ", backup" : "", (unsigned long long)p->headroom, p->authority,
	       p->repair_share);
	printf("# %u events every %u us%s%s%s, heals at %u us; detect %u us, lost %u us, lease %llu "
	       "us, take back %llu us; batching %u, mr %u, polling %u\n",
	       p->events, p->event_us, p->leaves ? ", leaves" : "",
	       p->short_memory ? ", pressure" : "", p->crashes ? ", crashes" : "", p->heal_us,
	       p->detect_us, p->lost_us, (unsigned long long)p->lease_us,
	       (unsigned long long)p->take_back_us, p->io.batching, p->io.mr, p->io.polling);
}

/* ---- runs ---- */

/* A program that crashed when its node did has not returned. */
static bool run_crashes(const struct plan *plan)
{
	return ends_programs(plan->cluster.faults) || plan->crashes;
}

static void check_end(struct seeds *run)
{
	if (!ends_programs(((struct world *)run)->plan.cluster.faults))
		seeds_check_requests(run);
}

void test_run(struct seeds *run)
{
	struct world *w = (struct world *)run;
	const unsigned n = w->plan.n_donors + w->plan.n_clients + 1;
	struct client_arg arg[CLIENTS_MAX];
	struct seeds_process process[DONORS_MAX + CLIENTS_MAX + 1];
	const struct gn_sim_opts opts = cluster_sim_opts(&w->plan.cluster, run->seed, n, LIMIT_NS);

	memset(w->donors, 0, sizeof(w->donors));
	w->n_events = 0;
	w->lossy = w->active_ns = 0;
	w->calm = false;
	for (unsigned i = 0; i < w->plan.n_donors; i++)
		process[i] = (struct seeds_process){donor_main, w};
	for (unsigned i = 0; i < w->plan.n_clients; i++) {
		struct client_world *cw = &w->clients[i];

		cw->vol = NULL;
		cw->lives = cw->deciding = 0;
		cw->over = cw->ready = false;
		arg[i] = (struct client_arg){w, i};
		process[w->plan.n_donors + i] = (struct seeds_process){client_main, &arg[i]};
	}
	process[n - 1] = (struct seeds_process){conductor_main, w};
	seeds_simulate(run, &opts, process, n, !run_crashes(&w->plan), check_end);
}

void test_points(struct seeds *run)
{
	seeds_points(run, 0, "donor");
	seeds_points(run, 2, "client");
}

void test_breadth(struct seeds *run)
{
	const struct sums *s = &((const struct world *)run)->sums;
	const struct seeds_sum all[] = {
		{"read", s->ops[GN_VOL_READ]},
		{"written", s->ops[GN_VOL_WRITE]},
		{"zeroed", s->ops[GN_VOL_ZERO]},
		{"discarded", s->ops[GN_VOL_DISCARD]},
		{"flushed", s->ops[GN_VOL_FLUSH]},
		{"requests for lost blocks", s->failed},
		{"blocks lost at the end", s->lost_blocks},
		{"blocks that were lost and written again", s->healed_blocks},
		{"WRITEs without memory", s->no_space},
		{"copies lost", s->copies_lost},
		{"copies made", s->copies_made},
		{"copies moved", s->copies_moved},
		{"requests that waited for others", s->serialised},
		{"decisions refused", s->refused},
		{"sectors of copies compared", s->copy_checks},
		{"sectors compared after a flush", s->flush_checks},
		{"blocks read from a backup", s->backup_reads},
		{"blocks that were wrong in a copy", s->crc_errors},
		{"crashes", s->events[0]},
		{"kills", s->events[1]},
		{"partitions", s->events[2]},
		{"partitions out", s->events[3]},
		{"partitions in", s->events[4]},
		{"pauses", s->events[5]},
		{"short of memory", s->events[6]},
		{"donors that left", s->left},
		{"volumes", s->created},
		{"volumes that came to their end", s->ended},
		{"longest request, us", s->longest_us},
	};

	seeds_result(seeds_all_there(all, sizeof(all) / sizeof(*all)),
		     "having done everything there is");
	/* No datagrams, and messages only to wake a peer: calls have tests of their own. */
	seeds_all_faults(run, (const char *const[]){"ud-", "rnr", NULL});
}

int main(int argc, char **argv)
{
	static const struct seeds_test test = {
		.program = "sim-vol",
		.what = "volumes",
		.seconds_max = 60,
		.more = 1,
	};
	static struct world w;

	return seeds_main(argc, argv, &test, &w.run);
}
