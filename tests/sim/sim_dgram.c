/* SPDX-License-Identifier: MIT */
/*
 * Datagram calls under faults. Each seed draws a cluster, nodes of several threads and workers that all
 * call each other, their options, and faults, and checks:
 *
 *  - a call is executed at most once, by the right thread, with the bytes that were sent, whatever
 *    restarts in between;
 *  - every call ends once, with a status that has a reason;
 *  - a successful call was executed, and has its own, complete answer;
 *  - retransmissions never end a call: after the last fault each call without a deadline ends, within
 *    3 s, and every peer answers;
 *  - afterwards nothing is kept: no answers, no pieces, no slots;
 *  - without faults no datagram finds no receive;
 *  - no process that returned has leaked anything, and the run ends.
 *
 * In addition, the n-th allocation and registration fails, for every n.
 */
#include <stdio.h>
#include <stdlib.h>

#include "draw.h"
#include "sim_dgram.h"

#define LIMIT_NS 60000000000ull

static void check_end(struct seeds *run)
{
	struct world *w = (struct world *)run;

	for (uint32_t i = 0; i < w->n_calls; i++) {
		const struct call *call = &w->calls[i];

		if (call->life == w->nodes[call->node].lives && call->ended != 1)
			world_fail(w, "call %u of n%u.%u to n%u.%u ended %u times", i, call->node,
				   call->thread, call->to_node, call->to_thread, call->ended);
	}
	if (w->empty_executed > w->empty_started || w->empty_ok > w->empty_executed)
		world_fail(w, "%u empty requests, %u executed, %u OK", w->empty_started,
			   w->empty_executed, w->empty_ok);
}

void test_run(struct seeds *run)
{
	struct world *w = (struct world *)run;
	const unsigned n = w->plan.n_nodes + 1;
	struct node_arg arg[DG_NODES_MAX];
	struct seeds_process process[DG_NODES_MAX + 1];
	const struct gn_sim_opts opts = cluster_sim_opts(&w->plan.cluster, run->seed, n, LIMIT_NS);

	w->n_calls = w->empty_started = w->empty_executed = w->empty_ok = 0;
	memset(w->nodes, 0, sizeof(w->nodes));
	w->calm = false;
	for (unsigned i = 0; i < w->plan.n_nodes; i++) {
		arg[i] = (struct node_arg){w, i};
		process[i] = (struct seeds_process){dgram_node_main, &arg[i]};
	}
	process[n - 1] = (struct seeds_process){dgram_conductor_main, w};
	seeds_simulate(run, &opts, process, n, !ends_programs(w->plan.cluster.faults), check_end);
}

void test_points(struct seeds *run)
{
	seeds_points(run, 0, "node");
}

void test_breadth(struct seeds *run)
{
	const struct sums *s = &((const struct world *)run)->sums;
	const struct seeds_sum all[] = {
		{"executed", s->executed},
		{"never executed", s->never_executed},
		{"prefetched", s->prefetched},
		{"by call", s->called},
		{"by call_all", s->batches},
		{"by submit", s->submitted},
		{"refused for the moment", s->again},
		{"canceled", s->canceled},
		{"large requests", s->large_requests},
		{"large results", s->large_results},
		{"requests repeated", s->repeats},
		{"answers repeated", s->answers_repeated},
		{"duplicates", s->duplicates},
		{"late answers", s->late},
		{"pieces", s->pieces},
		{"pieces repeated", s->pieces_repeated},
		{"waited for credits", s->credit_waits},
		{"busy", s->busy},
		{"of another epoch", s->wrong_epoch},
		{"resets", s->resets},
		{"epochs", s->epochs},
		{"epochs that ended", s->gone},
		{"epochs checked", s->checks},
		{"processes begun again", s->lives},
		{"… by themselves", s->restarts},
		{"peers said to be gone", s->gones},
		{"served after all was well again", s->healed},
		{"longest call, ms", s->max_ms},
	};
	static const char *const methods[] = {"inline", "in a worker", "nested", "empty"};
	struct seeds_sum ways[DG_STATUSES + DG_METHODS];
	unsigned n = 0;

	for (unsigned i = 0; i < DG_STATUSES; i++)
		ways[n++] = (struct seeds_sum){gn_rpc_status_str(i), s->statuses[i]};
	for (unsigned i = 0; i < DG_MISSING; i++)
		ways[n++] = (struct seeds_sum){methods[i], s->methods[i]};
	seeds_result(seeds_all_there(ways, n), "by every method, and end in every way there is");
	seeds_result(seeds_all_there(all, sizeof(all) / sizeof(*all)),
		     "having done everything there is");
	/* No READs and WRITEs. */
	seeds_all_faults(run, (const char *const[]){"late-visibility", "lines", "torn-read",
						    "preempt", "low-memory", NULL});
}

int main(int argc, char **argv)
{
	static const struct seeds_test test = {
		.program = "sim-dgram",
		.what = "datagram calls",
		.seconds_max = 30,
		.more = 5,
	};
	static struct world w;
	int rc;

	w.calls = calloc(DG_CALLS_MAX, sizeof(*w.calls));
	if (!w.calls)
		return 1;
	rc = seeds_main(argc, argv, &test, &w.run);
	free(w.calls);
	return rc;
}
