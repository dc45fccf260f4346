/* SPDX-License-Identifier: MIT */
/* From a seed to a plan: cluster, nodes and their options, what threads do, and faults. */
#include "draw.h"
#include "sim_dgram.h"

/* ---- faults ---- */

/* Mostly faults of datagrams. */
static void draw_lossy(struct plan *plan, struct rng *rng)
{
	static const char *const kinds[] = {"ud-loss", "ud-dup", "ud-reorder", "ud-delay"};
	char fault[64];

	for (unsigned i = 0; i < 4; i++) {
		const unsigned percent = range(rng, 1, 30);

		if (one_in(rng, 4))
			continue;
		snprintf(fault, sizeof(fault), "%s=%u%%", kinds[i], percent);
		cluster_add_fault(&plan->cluster, fault);
	}
}

/* Epochs end again and again, and datagrams of earlier ones arrive. */
static void draw_stale(struct plan *plan, struct rng *rng)
{
	static const char *const ends[] = {"crash", "kill"};
	char fault[64];

	snprintf(fault, sizeof(fault), "ud-dup=%u%%,ud-delay=%u%%,ud-loss=%u%%", range(rng, 5, 30),
		 range(rng, 5, 30), range(rng, 1, 10));
	cluster_add_fault(&plan->cluster, fault);
	plan->gones = range(rng, 2, 30);
	for (unsigned i = range(rng, 0, 2); i; i--) {
		snprintf(fault, sizeof(fault), "%s@%uus+%uus:n%u", ends[range(rng, 0, 1)],
			 range(rng, 100, 8000), range(rng, 20, 2000),
			 range(rng, 0, plan->n_nodes - 1));
		cluster_add_fault(&plan->cluster, fault);
		plan->cluster.breaks = true;
	}
}

/*
 * All call one thread, as much as they can; all have few receives, and do not look at them for a while.
 * No datagram may be dropped.
 */
static void draw_incast(struct plan *plan, struct rng *rng)
{
	plan->incast = plan->faultless = true;
	plan->n_nodes = range(rng, 3, DG_NODES_MAX);
	plan->workers = DG_WORKERS_MAX;
	plan->calls = range(rng, 200, 400);
	plan->batches = 1000;
	plan->thinks = range(rng, 100, 500);
	plan->think_us = range(rng, 5, 100);
	plan->large = UINT32_MAX;
	plan->rounds = 1;
	for (unsigned i = 0; i < plan->n_nodes; i++) {
		struct gn_dgram_opts *o = &plan->opts[i];

		o->receives = i && one_in(rng, 2) ? 512 : range(rng, 64, 100);
		o->calls = o->receives == 512 ? 128 : range(rng, 4, 12);
		o->window_bytes = 0;
		o->min_rto_us = o->first_rto_us = 50000; /* a repeat has no receive */
		o->datagram_bytes = 0;
		plan->silent[i] = i >= 2 && one_in(rng, 2);
		plan->restart_us[i] = 0;
	}
}

/* n1 takes its time: round trips are longer than the first timeouts, and measured nevertheless. */
static void draw_slow(struct plan *plan, struct rng *rng)
{
	plan->slow = plan->faultless = true;
	plan->n_nodes = 2;
	plan->n_threads = 1;
	plan->workers = 0;
	plan->window = range(rng, 1, 3);
	plan->calls = DG_SLOW_CALLS;
	plan->rounds = 1;
	plan->until_us = plan->heal_us = 2000000;
	plan->large = UINT32_MAX;
	plan->thinks = plan->nested = plan->in_worker = plan->cancels = plan->deadlines = 0;
	plan->nap_us = plan->gones = 0;
	for (unsigned i = 0; i < plan->n_nodes; i++) {
		plan->opts[i] = (struct gn_dgram_opts){.threads = 1,
						       .min_rto_us = range(rng, 5, 20),
						       .first_rto_us = range(rng, 20, 50)};
		plan->restart_us[i] = 0;
	}
	plan->work_us = range(rng, 200, 2000);
}

static void draw_faults(struct plan *plan, struct rng *rng)
{
	switch (range(rng, 0, 9)) {
	case 0:
		plan->faultless = true;
		break;
	case 8:
		draw_incast(plan, rng);
		break;
	case 9:
		draw_slow(plan, rng);
		break;
	case 1:
	case 2:
		draw_lossy(plan, rng);
		break;
	case 3:
	case 4:
		draw_stale(plan, rng);
		break;
	default:
		cluster_draw_some_faults(&plan->cluster, rng);
	}
}

/* ---- programs ---- */

/* Values are small enough to be reached, and large enough for all peers. */
static void draw_opts(struct gn_dgram_opts *o, struct rng *rng, unsigned threads, bool mapped)
{
	static const uint32_t receives[] = {128, 256, 512, 0};
	static const uint32_t bytes[] = {256, 512, 1024, 2048, 4096, 0};

	*o = (struct gn_dgram_opts){
		.threads = threads,
		.flags = (one_in(rng, 2) ? 0 : range(rng, 0, GN_DGRAM_MAPPED - 1)) |
			 (mapped ? GN_DGRAM_MAPPED : 0),
		.datagram_bytes = bytes[range(rng, 0, 5)],
		.receives = receives[range(rng, 0, 3)],
		.calls = one_in(rng, 2) ? 0 : range(rng, 1, 32),
		.window_bytes = one_in(rng, 2) ? 0 : range(rng, 1024, 16384),
		.min_rto_us = one_in(rng, 2) ? 0 : range(rng, 5, 200),
		.first_rto_us = one_in(rng, 2) ? 0 : range(rng, 20, 4000),
		.check_us = one_in(rng, 2) ? 0 : range(rng, 500, 60000),
		.handler_workers = one_in(rng, 2) ? 0 : range(rng, 1, 8),
		.stack_bytes = one_in(rng, 2) ? 0 : 49152,
		.max_peer_bytes = one_in(rng, 3) ? range(rng, 8192, 400000) : 0,
		.max_bytes = one_in(rng, 3) ? range(rng, 100000, 1000000) : 0,
		.max_answer_bytes = one_in(rng, 3) ? range(rng, 20000, 1000000) : 0,
	};
}

static void draw_threads(struct plan *plan, struct rng *rng)
{
	plan->workers = one_in(rng, 3) ? 0 : range(rng, 1, DG_WORKERS_MAX);
	plan->window = one_in(rng, 3) ? 0 : range(rng, 1, 24);
	plan->calls = range(rng, 10, 120);
	plan->until_us = range(rng, 1000, 15000);
	plan->rounds = 1;
	if (one_in(rng, 3)) { /* sessions end, and begin again */
		plan->rounds = range(rng, 2, 5);
		plan->calls = plan->calls / plan->rounds + 1;
		plan->nap_us = range(rng, 5000, 25000);
		plan->until_us += plan->rounds * plan->nap_us;
	}
	plan->heal_us = plan->until_us / 2 + range(rng, 0, 30000);
	plan->think_us = range(rng, 1, one_in(rng, 4) ? 2000 : 50);
	plan->large = one_in(rng, 4) ? 8 : range(rng, 30, 200);
	plan->batches = one_in(rng, 2) ? 0 : range(rng, 1, 500);
	plan->sleeps = one_in(rng, 2) ? 0 : range(rng, 1, 200);
	plan->thinks = one_in(rng, 2) ? 0 : range(rng, 1, 200);
	plan->cancels = one_in(rng, 2) ? 0 : range(rng, 1, 100);
	plan->deadlines = one_in(rng, 2) ? 0 : range(rng, 1, 500);
	plan->nested = one_in(rng, 2) ? 0 : range(rng, 1, 300);
	plan->in_worker = one_in(rng, 2) ? 0 : range(rng, 1, 500);
	plan->gones = one_in(rng, 6) ? range(rng, 1, 10) : 0;
}

void test_plan(struct seeds *run)
{
	struct plan *plan = &((struct world *)run)->plan;
	struct rng rng = {run->seed * 0xd6e8feb86659fd93u + 0x6467};
	bool mapped;

	*plan = (struct plan){0};
	cluster_draw(&plan->cluster, &rng);
	plan->n_nodes = range(&rng, 2, one_in(&rng, 3) ? DG_NODES_MAX : 3);
	plan->n_threads = range(&rng, 1, DG_THREADS_MAX);
	mapped = one_in(&rng, 4);
	for (unsigned i = 0; i < DG_NODES_MAX; i++) {
		draw_opts(&plan->opts[i], &rng, plan->n_threads, mapped);
		plan->silent[i] = i >= 2 && one_in(&rng, 6);
		plan->restart_us[i] = one_in(&rng, 10) ? range(&rng, 200, 8000) : 0;
	}
	draw_threads(plan, &rng);
	draw_faults(plan, &rng);
}

void test_plan_small(struct seeds *run, const char *faults)
{
	struct plan *plan = &((struct world *)run)->plan;

	*plan = (struct plan){.n_nodes = 2,
			      .n_threads = 1,
			      .workers = 2,
			      .window = 2,
			      .calls = 4,
			      .rounds = 1,
			      .until_us = 3000,
			      .heal_us = 100,
			      .large = 4,
			      .in_worker = 300,
			      .nested = 100};
	for (unsigned i = 0; i < plan->n_nodes; i++)
		plan->opts[i] = (struct gn_dgram_opts){.threads = 1, .receives = 128};
	cluster_small(&plan->cluster, faults);
}

static void print_opts(unsigned node, const struct plan *p)
{
	const struct gn_dgram_opts *o = &p->opts[node];

	printf("# n%u%s: flags %x, %u bytes, %u receives, %u calls, window %u, rto %u, %u, check %u, "
	       "%u workers, limits %llu, %llu, %llu; restarts %u us\n",
	       node, p->silent[node] ? " (no address)" : "", o->flags, o->datagram_bytes,
	       o->receives, o->calls, o->window_bytes, o->min_rto_us, o->first_rto_us, o->check_us,
	       o->handler_workers, (unsigned long long)o->max_peer_bytes,
	       (unsigned long long)o->max_bytes, (unsigned long long)o->max_answer_bytes,
	       p->restart_us[node]);
}

void test_print(const struct seeds *run)
{
	const struct plan *p = &((const struct world *)run)->plan;

	printf("# profile %s, caps off %llx%s\n# faults %s\n", p->cluster.profile,
	       (unsigned long long)p->cluster.caps_off, p->faultless ? ", faultless" : "",
	       p->cluster.faults);
	for (unsigned i = 0; i < p->n_nodes; i++)
		print_opts(i, p);
	printf("# %u threads, %u workers, window %u, %u calls %u times, until %u us, heals %u us, "
	       "thinks %u us, naps %u us, one in %u large\n",
	       p->n_threads, p->workers, p->window, p->calls, p->rounds, p->until_us, p->heal_us,
	       p->think_us, p->nap_us, p->large);
	printf("# per 1000: %u batches, %u sleeps, %u thinks, %u cancels, %u gone, %u deadlines, %u "
	       "nested, %u in workers\n",
	       p->batches, p->sleeps, p->thinks, p->cancels, p->gones, p->deadlines, p->nested,
	       p->in_worker);
}
