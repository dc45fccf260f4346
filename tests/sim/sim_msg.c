/* SPDX-License-Identifier: MIT */
/*
 * Messages under faults. Each seed draws a cluster, a responder, requesters with a protocol each, and
 * faults, and checks:
 *
 *  - a request is executed at most once, with the bytes that were sent;
 *  - every request completes once, within 2 s if its responder disconnects;
 *  - a successful request was executed and has its own, complete answer; a READ returns words of its
 *    own offset that are not older than the READ;
 *  - over RC, results arrive in the order of the requests;
 *  - only datagrams are lost, and no connection breaks without a reason;
 *  - after the last fault a new requester is served;
 *  - the responder frees the endpoints of disconnected requesters;
 *  - no process that returned has leaked anything, and the run ends.
 *
 * In addition, the n-th allocation and registration fails, for every n.
 */
#include <stdio.h>
#include <stdlib.h>

#include "draw.h"
#include "sim_msg.h"

#define LIMIT_NS 100000000000ull

static void check_end(struct seeds *run)
{
	struct world *w = (struct world *)run;

	for (uint32_t i = 0; i < w->n_requests; i++) {
		const struct request *request = &w->requests[i];

		if (w->over[request->life] && request->ended != 1)
			world_fail(w, "request %u ended %u times", i, request->ended);
	}
}

void test_run(struct seeds *run)
{
	struct world *w = (struct world *)run;
	struct requester_arg arg[REQUESTERS_MAX];
	struct seeds_process process[REQUESTERS_MAX + 1] = {{responder_main, w}};
	const struct gn_sim_opts opts =
		cluster_sim_opts(&w->plan.cluster, run->seed, w->plan.n_requesters + 1, LIMIT_NS);

	w->n_requests = w->n_lives = 0;
	w->version = 0;
	memset(w->over, 0, sizeof(w->over));
	for (unsigned i = 0; i < w->plan.n_requesters; i++) {
		arg[i] = (struct requester_arg){w, i};
		process[i + 1] = (struct seeds_process){requester_main, &arg[i]};
	}
	seeds_simulate(run, &opts, process, opts.nodes, !ends_programs(w->plan.cluster.faults),
		       check_end);
}

void test_points(struct seeds *run)
{
	seeds_points(run, 0, "responder");
	seeds_points(run, 1, "requester");
	seeds_points(run, 2, "requester with datagrams");
}

void test_breadth(struct seeds *run)
{
	const struct sums *s = &((const struct world *)run)->sums;
	const struct seeds_sum all[] = {
		{"executed", s->executed},
		{"read", s->reads},
		{"neighbours of different versions", s->torn_words},
		{"as in the paper", s->papers},
		{"retransmitted", s->repeats},
		{"belonged to nothing", s->strays},
		{"looked for in vain", s->looks},
		{"connected again", s->reconnects},
		{"refused to connect", s->refused_conns},
		{"responders begun again", s->restarts},
		{"left under way", s->left},
		{"served after all was well again", s->healed},
	};
	struct seeds_sum ways[GN_MSG_PROTOCOLS + GN_MSG_STATUSES];
	unsigned n = 0;

	for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++)
		ways[n++] = (struct seeds_sum){gn_msg_protocol_str(i), s->protocols[i]};
	for (unsigned i = 0; i < GN_MSG_STATUSES; i++)
		if (i != GN_MSG_BROKEN) /* no process is hostile */
			ways[n++] = (struct seeds_sum){gn_msg_status_str(i), s->statuses[i]};
	seeds_result(seeds_all_there(ways, n), "by every protocol, and end in every way there is");
	seeds_result(seeds_all_there(all, sizeof(all) / sizeof(*all)),
		     "having done everything there is");
	seeds_all_faults(run, NULL);
}

int main(int argc, char **argv)
{
	static const struct seeds_test test = {
		.program = "sim-msg",
		.what = "messages",
		.seconds_max = 30,
		.more = 5,
	};
	static struct world w;
	int rc;

	w.requests = calloc(REQUESTS_MAX, sizeof(*w.requests));
	if (!w.requests)
		return 1;
	rc = seeds_main(argc, argv, &test, &w.run);
	free(w.requests);
	return rc;
}
