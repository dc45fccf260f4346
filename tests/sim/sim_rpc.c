/* SPDX-License-Identifier: MIT */
/*
 * Calls under faults. Each seed draws a cluster, a server, clients and faults, and checks:
 *
 *  - every call completes once, at most 1 ms after its deadline (100 ms if its own node is stopped or
 *    slowed); a call without a deadline completes within 2 s of its server's end;
 *  - no call is executed twice, and the executed request is the one that a client of this connection
 *    made;
 *  - a successful call was executed and has its own, complete result;
 *  - nobody writes to the memory of a call after its completion, and a handler's own memory is
 *    released once;
 *  - without faults calls complete as they must, and no result stays unnoticed for 10 ms: this
 *    detects a lost wake-up;
 *  - a drained server has lost no result, and forgets disconnected clients within 3 s;
 *  - a client that overwrites its requests while they are read does not affect others; its handler
 *    gets no more bytes than such a request can have;
 *  - no process that returned has leaked anything, and the run ends.
 *
 * In addition, the n-th allocation and registration fails, for every n.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "sim_rpc.h"

#define LIMIT_NS    20000000000ull
#define LIVES_MAX   512u
#define CALLS_MAX   65536u

struct call *world_call(struct world *w, unsigned life, uint32_t *number)
{
	*number = 0;
	if (w->n_calls == w->calls_room) {
		world_fail(w, "more calls than were planned");
		return NULL;
	}
	*number = w->n_calls++;
	w->call[*number] = (struct call){.life = life, .begun_ns = gn_sim_now_ns(w->run.sim)};
	return &w->call[*number];
}

static void check_end(struct seeds *run)
{
	struct world *w = (struct world *)run;

	for (uint32_t i = 0; i < w->n_calls; i++) {
		const struct call *call = &w->call[i];

		if (call->life < LIVES_MAX && w->life[call->life].over && call->ended != 1)
			world_fail(w, "call %u ended %u times", i, call->ended);
	}
}

void test_run(struct seeds *run)
{
	struct world *w = (struct world *)run;
	const unsigned raw = w->plan.n_clients + w->plan.raw, clients = raw + w->plan.scribblers;
	struct client_arg arg[CLIENTS_MAX + 2];
	struct seeds_process process[CLIENTS_MAX + 3] = {{server_main, w}};
	const struct gn_sim_opts opts =
		cluster_sim_opts(&w->plan.cluster, run->seed, clients + 1, LIMIT_NS);

	w->n_calls = 0;
	w->n_lives = 0;
	w->drained = false;
	memset(w->call, 0, CALLS_MAX * sizeof(*w->call));
	memset(w->life, 0, LIVES_MAX * sizeof(*w->life));
	for (unsigned i = 0; i < clients; i++) {
		arg[i] = (struct client_arg){w, i};
		process[i + 1] = (struct seeds_process){i < w->plan.n_clients ? client_main :
							i < raw		      ? raw_main :
										scribbler_main,
							&arg[i]};
	}
	seeds_simulate(run, &opts, process, opts.nodes, !ends_programs(w->plan.cluster.faults),
		       check_end);
}

/* ---- cases ---- */

/* What happened in them. */
static bool test_sums(const struct sums *sums)
{
	const struct seeds_sum all[] = {{"executed", sums->executed},
					{"torn", sums->torn},
					{"read twice", sums->twice_read},
					{"large", sums->large},
					{"too large to begin", sums->emsgsize},
					{"in batches", sums->batched},
					{"switches of mode", sums->switches},
					{"connected again", sums->reconnects},
					{"put aside", sums->parks},
					{"woken", sums->wakes},
					{"handled in groups", sums->grouped},
					{"answered from exported memory", sums->exported},
					{"drained", sums->drained},
					{"drained in vain", sums->undrained},
					{"requests of another epoch", sums->old},
					{"requests written again", sums->again},
					{"messages written over", sums->scribbled},
					{"requests of those", sums->taken}};

	return seeds_all_there(all, sizeof(all) / sizeof(*all));
}

void test_breadth(struct seeds *run)
{
	const struct world *w = (const struct world *)run;
	struct seeds_sum ends[GN_RPC_FAILED + 1];

	for (unsigned i = 0; i < GN_RPC_FAILED + 1; i++)
		ends[i] = (struct seeds_sum){gn_rpc_status_str(i), w->sums.statuses[i]};
	seeds_result(seeds_all_there(ends, GN_RPC_FAILED + 1), "end in every way there is");
	seeds_result(test_sums(&w->sums), "having done everything there is");
	seeds_all_faults(run, (const char *const[]){"ud-", NULL}); /* calls send no datagrams */
}

void test_points(struct seeds *run)
{
	seeds_points(run, 0, "server");
	seeds_points(run, 1, "client");
}

int main(int argc, char **argv)
{
	static const struct seeds_test test = {
		.program = "sim-rpc",
		.what = "calls",
		.seconds_max = 20,
	};
	static struct world w;
	int rc;

	w.calls_room = CALLS_MAX;
	w.call = calloc(CALLS_MAX, sizeof(*w.call));
	w.life = calloc(LIVES_MAX, sizeof(*w.life));
	if (!w.call || !w.life)
		return 1;
	rc = seeds_main(argc, argv, &test, &w.run);
	free(w.call);
	free(w.life);
	return rc;
}
