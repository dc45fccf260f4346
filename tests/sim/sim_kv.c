/* SPDX-License-Identifier: MIT */
/*
 * A key-value store under faults. Each seed draws a cluster, a server, clients, keys and faults,
 * and checks:
 *
 *  - for each key there is an order in which its operations were executed, one at a time: history.h;
 *  - with enough memory, a stored item is removed only by its expiry, DELETE, and the server's end;
 *    with little memory, a removed item does not come back;
 *  - a value that is read, by a call or by bypass, consists of bytes written for this key, all of
 *    them;
 *  - every operation completes once, with an allowed status, about when it must;
 *  - nobody writes to the memory of an operation after its completion;
 *  - the server stays within its memory, and a bucket always evicts its least recently used item
 *    (kv_lru.c);
 *  - no process that returned has leaked anything, and the run ends.
 *
 * In addition, the n-th allocation and registration fails, for every n.
 */
#include <stdio.h>
#include <stdlib.h>

#include "draw.h"
#include "sim_kv.h"
#include "sim_kv_lru.h"

#define LIMIT_NS      30000000000ull
#define UNDECIDED_MAX 1000u /* one key in so many */

/* ---- one run ---- */

static void check_history(struct world *w)
{
	struct history_result result;

	history_check(w->history, &result);
	w->sums.keys += result.keys;
	w->sums.steps += result.steps;
	w->sums.undecided += result.undecided;
	if (result.verdict == HISTORY_UNDECIDED)
		printf("# seed %llu: key %u: %s\n", (unsigned long long)w->run.seed, result.key,
		       result.why);
	if (result.verdict != HISTORY_WRONG)
		return;
	world_fail(w, "key %u is not as it was: %s", result.key, result.why);
	history_print(w->history, result.key);
}

static void check_end(struct seeds *run)
{
	struct world *w = (struct world *)run;
	const bool crash = ends_programs(w->plan.cluster.faults);

	for (uint32_t i = 0; i < history_ops(w->history) && !crash && !*run->failure; i++)
		if (history_at(w->history, i)->end_ns == HISTORY_NEVER)
			world_fail(w, "op %u did not end", i);
	if (!*w->run.failure)
		check_history(w);
}

static void begin_world(struct world *w)
{
	const struct history_opts opts = {.may_evict = !w->plan.ample};

	w->history = history_create(&opts);
	w->epoch = 0;
	w->alive_ns = 0;
	w->begun = false;
	memset(w->lives, 0, sizeof(w->lives));
}

void test_run(struct seeds *run)
{
	struct world *w = (struct world *)run;
	struct client_arg arg[CLIENTS_MAX];
	struct seeds_process process[CLIENTS_MAX + 2] = {{server_main, w}};
	const struct gn_sim_opts opts = cluster_sim_opts(
		&w->plan.cluster, run->seed, w->plan.n_clients + w->plan.scribblers + 1, LIMIT_NS);

	begin_world(w);
	for (unsigned i = 0; i < w->plan.n_clients; i++) {
		arg[i] = (struct client_arg){w, i};
		process[i + 1] = (struct seeds_process){client_main, &arg[i]};
	}
	if (w->plan.scribblers)
		process[w->plan.n_clients + 1] = (struct seeds_process){scribbler_main, w};
	seeds_simulate(run, &opts, process, opts.nodes, !ends_programs(w->plan.cluster.faults),
		       check_end);
	history_destroy(w->history);
	if (!*run->failure && !w->points)
		kv_lru_check(run->seed, &w->sums.made_room, run->failure, sizeof(run->failure));
}

/* ---- cases ---- */

static void test_statuses(const struct sums *sums)
{
	struct seeds_sum all[GN_KV_STATUSES];
	unsigned n = 0;

	for (unsigned i = 0; i < GN_KV_STATUSES; i++)
		if (i != GN_KV_INVALID && i != GN_KV_NO_MEMORY)
			all[n++] = (struct seeds_sum){gn_kv_status_str(i), sums->statuses[i]};
	seeds_result(seeds_all_there(all, n), "end in every way there is");
}

/* What happened in them. */
void test_breadth(struct seeds *run)
{
	const struct world *w = (const struct world *)run;
	const struct sums *s = &w->sums;
	const struct seeds_sum all[] = {{"operations", s->ops},
					{"messages", s->messages},
					{"keys", s->keys},
					{"steps of the checker", s->steps},
					{"large values", s->large},
					{"connected again", s->reconnects},
					{"servers begun again", s->restarts},
					{"read past the server", s->bypassed},
					{"torn", s->torn},
					{"fell back to a message", s->fell_back},
					{"evicted from a bucket", s->evicted_bucket},
					{"evicted from the log", s->evicted_log},
					{"bytes moved", s->moved},
					{"buckets split, or tables grown", s->splits},
					{"made room for others in the table", s->kicks},
					{"expired", s->expired},
					{"made room in a bucket that was watched", s->made_room},
					{"messages written over", s->scribbled}};
	bool ok = true;

	test_statuses(s);
	seeds_result(seeds_all_there(all, sizeof(all) / sizeof(*all)),
		     "having done everything there is");
	for (unsigned i = 0; i < GN_KV_VERBS; i++)
		ok = ok && s->verbs[i];
	seeds_result(ok, "with every verb");
	seeds_all_faults(run, (const char *const[]){"ud-", NULL}); /* a store sends no datagrams */
	printf("# undecided: %llu\n", (unsigned long long)s->undecided);
	seeds_result(s->undecided * UNDECIDED_MAX <= s->keys, "and it is known of almost all keys");
}

void test_points(struct seeds *run)
{
	struct world *w = (struct world *)run;

	for (unsigned i = 0; i < 2; i++) {
		w->bypass = i;
		seeds_points(run, 0, i ? "server, with bypass" : "server");
		seeds_points(run, 1, i ? "client, with bypass" : "client");
	}
}

int main(int argc, char **argv)
{
	static const struct seeds_test test = {
		.program = "sim-kv",
		.what = "keys",
		.seconds_max = 30,
	};
	static struct world w;

	return seeds_main(argc, argv, &test, &w.run);
}
