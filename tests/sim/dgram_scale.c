/* SPDX-License-Identifier: MIT */
/*
 * Datagram calls in large numbers on simulated clusters of cx3-fdr, in virtual time:
 *
 *  - very many calls while 5 % of the datagrams are lost and 5 % come twice: each is executed once, and
 *    each is answered (10^8 with GANNET_EFFORT of 10 or more);
 *  - after a single loss the 99th percentile of the recovery is below 1 ms;
 *  - incast: 100 nodes call one, and no datagram finds no receive;
 *  - a call costs the same with 2 and with 200 peers, within 10 %, without coalescing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gannet/dgram.h"
#include "gannet/sim.h"

#define NODES_MAX	201u
#define WORKERS_MAX	80u
#define WORKERS		20u
#define METHOD		1u
#define PORT		9u
#define STACK_BYTES	131072u
#define SERVE_US	1000u
#define LIMIT_NS	1000000000000000ull
#define CALLS		100000ull
#define CALLS_LONG	1000000ull
#define CALLS_FULL	100000000ull
#define RECOVERY_NS_MAX 1000000ull
#define RECOVERY_FACTOR 5u /* of the median: the call has lost a datagram */
#define RECOVERIES_MIN	50u

enum pattern {
	ALL_TO_ALL,
	TO_ONE,	  /* all others call n0 */
	FROM_ONE, /* n0 calls all others */
};

struct load {
	enum pattern pattern;
	unsigned nodes, workers;
	uint64_t calls; /* of a worker */
	unsigned flags; /* of nodes */
	const char *faults;
	uint32_t receives; /* of others than n0 */
};

struct request {
	uint32_t worker; /* of all */
	uint32_t reserved;
	uint64_t number;
};

struct node {
	struct world *w;
	unsigned index;
	struct gn_dgram_endpoint *endpoint;
	struct gn_dgram_peer *peers[NODES_MAX];
};

struct worker {
	struct node *node;
	uint32_t id;
};

struct world {
	struct load load;
	struct gn_sim *sim;
	char failure[256];
	unsigned callers, warm, over;
	uint64_t *seen; /* by worker: the last call that was executed */
	uint64_t executed, answered, drops, repeats, duplicates;
	uint64_t start_ns, end_ns;
	struct gn_hist latency;
	struct node nodes[NODES_MAX];
	struct worker workers[NODES_MAX * WORKERS_MAX];
};

static unsigned cases, failed;

static void result(bool ok, const char *name)
{
	printf("%sok %u - %s\n", ok ? "" : "not ", ++cases, name);
	failed += !ok;
	fflush(stdout);
}

#define world_fail(w, ...)                                                         \
	do {                                                                       \
		if (!*(w)->failure)                                                \
			snprintf((w)->failure, sizeof((w)->failure), __VA_ARGS__); \
	} while (0)

/* ---- programs ---- */

static unsigned handle(void *arg, struct gn_dgram_request *request)
{
	struct world *w = arg;
	struct request r;

	if (request->len != sizeof(r)) {
		world_fail(w, "a request of %u bytes", request->len);
		return GN_RPC_FAILED;
	}
	memcpy(&r, request->data, sizeof(r));
	if (r.number != ++w->seen[r.worker])
		world_fail(w, "worker %u: call %" PRIu64 " is executed after %" PRIu64, r.worker,
			   r.number, w->seen[r.worker] - 1);
	w->executed++;
	memcpy(request->result, &r, sizeof(r));
	request->result_len = sizeof(r);
	return GN_RPC_OK;
}

static bool calls_others(const struct load *load, unsigned node)
{
	return load->pattern == ALL_TO_ALL || (load->pattern == TO_ONE) == (node != 0);
}

static unsigned target(const struct load *load, unsigned node)
{
	unsigned to;

	if (load->pattern == TO_ONE)
		return 0;
	do
		to = (unsigned)(gn_random() % load->nodes);
	while (to == node);
	return to;
}

static void call_one(struct worker *worker, unsigned to, uint64_t number)
{
	struct world *w = worker->node->w;
	const struct request request = {worker->id, 0, number};
	struct request answer;
	struct gn_dgram_op op = {.peer = worker->node->peers[to],
				 .method = METHOD,
				 .request = &request,
				 .request_len = sizeof(request),
				 .result = &answer,
				 .result_room = sizeof(answer)};
	const uint64_t begin_ns = gn_now_ns();
	const int rc = gn_dgram_call(&op);

	if (rc || op.status != GN_RPC_OK || op.result_len != sizeof(answer) ||
	    memcmp(&answer, &request, sizeof(answer)))
		world_fail(w, "worker %u: call %" PRIu64 ": %s, %s, %u bytes", worker->id, number,
			   gn_strerror(rc), gn_rpc_status_str(op.status), op.result_len);
	w->answered++;
	if (w->warm == w->callers)
		gn_hist_add(&w->latency, gn_now_ns() - begin_ns, 1);
}

/* The first worker of each node makes the epochs; then all begin. */
static void worker_main(void *arg)
{
	struct worker *worker = arg;
	struct node *node = worker->node;
	struct world *w = node->w;
	uint64_t number = 0;

	if (worker->id % w->load.workers == 0) {
		for (unsigned i = 0; i < w->load.nodes; i++)
			if (node->peers[i])
				call_one(worker, i, ++number);
		if (++w->warm == w->callers)
			w->start_ns = gn_sim_now_ns(w->sim);
	}
	while (w->warm < w->callers && !*w->failure)
		gn_dgram_yield(node->endpoint);
	for (uint64_t i = 0; i < w->load.calls && !*w->failure; i++)
		call_one(worker, target(&w->load, node->index), ++number);
}

static int node_open(struct node *node, struct gn_fabric *fabric, struct gn_dgram_node **out)
{
	struct world *w = node->w;
	struct gn_dgram_opts opts = {.size = sizeof(opts), .flags = w->load.flags};
	char addr[32];
	int rc;

	if (node->index)
		opts.receives = w->load.receives;
	opts.datagram_bytes = 1024;
	snprintf(addr, sizeof(addr), "sim:n%u:%u", node->index, PORT);
	rc = gn_dgram_node_create(fabric, addr, &opts, out);
	if (!rc)
		rc = gn_dgram_handle(*out, METHOD, handle, NULL, w, 0);
	return rc ? rc : gn_dgram_endpoint_create(*out, 0, &node->endpoint);
}

static int node_start_workers(struct node *node)
{
	struct world *w = node->w;
	char addr[32];
	int rc = 0;

	for (unsigned i = 0; i < w->load.nodes && !rc; i++) {
		if (i == node->index || (w->load.pattern == TO_ONE && i))
			continue;
		snprintf(addr, sizeof(addr), "sim:n%u:%u", i, PORT);
		rc = gn_dgram_peer_open(node->endpoint, addr, 0, &node->peers[i]);
	}
	for (unsigned i = 0; i < w->load.workers && !rc; i++) {
		struct worker *worker = &w->workers[node->index * w->load.workers + i];

		*worker = (struct worker){node, node->index * w->load.workers + i};
		rc = gn_dgram_spawn(node->endpoint, worker_main, worker);
	}
	return rc;
}

static void node_count(struct node *node, struct gn_fabric *fabric)
{
	struct world *w = node->w;
	struct gn_dgram_stats stats = {.size = sizeof(stats)};
	struct gn_counters counters = {.size = sizeof(counters)};

	gn_dgram_endpoint_stats(node->endpoint, &stats);
	gn_fabric_counters(fabric, &counters);
	w->drops += counters.drops;
	w->repeats += stats.repeats;
	w->duplicates += stats.duplicates;
	if (stats.outstanding || stats.over_credit || stats.malformed)
		world_fail(w, "n%u: %" PRIu64 " outstanding, %" PRIu64 " over credit", node->index,
			   stats.outstanding, stats.over_credit);
}

static int node_main(struct gn_env *env, int argc, char **argv)
{
	struct node *node = env->arg;
	struct world *w = node->w;
	struct gn_dgram_node *dgram = NULL;
	struct gn_fabric *fabric;
	int rc = gn_fabric_open(env->fabric, &fabric);

	(void)argc, (void)argv;
	if (!rc)
		rc = node_open(node, fabric, &dgram);
	if (!rc && calls_others(&w->load, node->index))
		rc = node_start_workers(node);
	if (rc) {
		world_fail(w, "n%u: %s", node->index, gn_strerror(rc));
		return 1;
	}
	if (calls_others(&w->load, node->index)) {
		gn_dgram_run(node->endpoint, GN_FOREVER);
		if (++w->over == w->callers)
			w->end_ns = gn_sim_now_ns(w->sim);
	}
	while (w->over < w->callers && !*w->failure)
		gn_dgram_wait(node->endpoint, gn_deadline_us(SERVE_US));
	node_count(node, fabric);
	gn_dgram_endpoint_destroy(node->endpoint);
	return gn_dgram_node_destroy(dgram) || gn_fabric_close(fabric);
}

/* ---- runs ---- */

static bool simulate(struct world *w, const struct load *load, uint64_t seed)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = "cx3-fdr",
					 .seed = seed,
					 .nodes = load->nodes,
					 .stack_bytes = STACK_BYTES,
					 .limit_ns = LIMIT_NS,
					 .faults = load->faults};
	int rc;

	memset(w, 0, sizeof(*w));
	w->load = *load;
	gn_hist_init(&w->latency);
	w->seen = calloc((size_t)load->nodes * load->workers, sizeof(*w->seen));
	rc = w->seen ? gn_sim_create(&opts, &w->sim) : -1;
	for (unsigned i = 0; i < load->nodes && !rc; i++) {
		w->nodes[i] = (struct node){.w = w, .index = i};
		w->callers += calls_others(load, i);
		rc = gn_sim_spawn(w->sim, i, node_main, 0, NULL, &w->nodes[i], NULL);
	}
	if (!rc)
		rc = gn_sim_run(w->sim);
	if (rc)
		world_fail(w, "the run ended with: %s", gn_strerror(rc));
	if (w->executed != w->answered)
		world_fail(w, "%" PRIu64 " calls were executed, %" PRIu64 " answered", w->executed,
			   w->answered);
	gn_sim_destroy(w->sim);
	free(w->seen);
	printf("# seed %" PRIu64 ": %" PRIu64 " calls, p50 %" PRIu64 " ns, p99 %" PRIu64
	       " ns, max %" PRIu64 " ns, %" PRIu64 " repeats, %" PRIu64 " duplicates, %" PRIu64
	       " drops%s%s\n",
	       seed, w->answered, gn_hist_percentile(&w->latency, 50),
	       gn_hist_percentile(&w->latency, 99), w->latency.max, w->repeats, w->duplicates,
	       w->drops, *w->failure ? ": " : "", w->failure);
	fflush(stdout);
	return !*w->failure;
}

static bool effort_is_full(void)
{
	const char *effort = getenv("GANNET_EFFORT");

	return effort && atoi(effort) >= 10;
}

static void case_long(struct world *w, uint64_t seed, uint64_t calls)
{
	struct load load = {.pattern = ALL_TO_ALL,
			    .nodes = 2,
			    .workers = WORKERS,
			    .faults = "ud-loss=5%,ud-dup=5%"};
	char name[96];
	bool ok;

	load.calls = calls / load.nodes / load.workers;
	ok = simulate(w, &load, seed);
	snprintf(name, sizeof(name), "%" PRIu64 " calls, 5 %% of datagrams lost, 5 %% twice",
		 w->answered);
	result(ok && w->answered >= calls && w->repeats && w->duplicates, name);
}

/* The calls that took much longer than the median have lost a datagram, seldom two. */
static void case_recovery(struct world *w, uint64_t seed, unsigned workers)
{
	const struct load load = {.pattern = ALL_TO_ALL,
				  .nodes = 2,
				  .workers = workers,
				  .calls = CALLS / 2 / workers,
				  .faults = "ud-loss=0.1%"};
	bool ok = simulate(w, &load, seed);
	const uint64_t median_ns = gn_hist_percentile(&w->latency, 50);
	double percent = 100;
	uint64_t slow, p99_ns;
	char name[96];

	while (percent > 50 &&
	       gn_hist_percentile(&w->latency, percent) > median_ns * RECOVERY_FACTOR)
		percent -= 0.001;
	slow = (uint64_t)((double)w->latency.count * (100 - percent) / 100);
	p99_ns = gn_hist_percentile(&w->latency, 100 - (100 - percent) / 100) - median_ns;
	printf("# %" PRIu64 " recoveries, p99 %" PRIu64 " ns\n", slow, p99_ns);
	snprintf(name, sizeof(name), "p99 of recovery after a loss is below 1 ms, %u workers",
		 workers);
	result(ok && slow >= RECOVERIES_MIN && p99_ns < RECOVERY_NS_MAX, name);
}

static void case_incast(struct world *w, uint64_t seed)
{
	const struct load load = {
		.pattern = TO_ONE, .nodes = 101, .workers = WORKERS, .calls = 20, .receives = 256};
	const bool ok = simulate(w, &load, seed);

	result(ok && !w->drops, "incast: 100 nodes call one, no datagram finds no receive");
}

static uint64_t cost_ns(struct world *w, uint64_t seed, unsigned peers, bool *ok)
{
	const struct load load = {.pattern = FROM_ONE,
				  .nodes = peers + 1,
				  .workers = WORKERS_MAX, /* n0 is never idle */
				  .calls = 300,
				  .flags = GN_DGRAM_NO_COALESCE,
				  .receives = 256};

	*ok = *ok && simulate(w, &load, seed);
	return (w->end_ns - w->start_ns) / (load.calls * load.workers);
}

static void case_flat(struct world *w, uint64_t seed)
{
	static const unsigned peers[] = {2, 20, 200};
	uint64_t least = UINT64_MAX, most = 0;
	bool ok = true;

	for (unsigned i = 0; i < 3; i++) {
		const uint64_t ns = cost_ns(w, seed, peers[i], &ok);

		printf("# %u peers: %" PRIu64 " ns per call\n", peers[i], ns);
		least = ns < least ? ns : least;
		most = ns > most ? ns : most;
	}
	result(ok && most * 10 <= least * 11, "a call costs the same with 2 and with 200 peers");
}

/* Usage: dgram-scale [SEED [CALLS]]: CALLS of the long run. */
int main(int argc, char **argv)
{
	const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	const uint64_t calls = argc > 2		? strtoull(argv[2], NULL, 10) :
			       effort_is_full() ? CALLS_FULL :
						  CALLS_LONG;
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		return 1;
	printf("# seed %" PRIu64 "\n", seed);
	case_long(w, seed, calls);
	case_recovery(w, seed, 1);
	case_recovery(w, seed, WORKERS);
	case_incast(w, seed);
	case_flat(w, seed);
	printf("1..%u\n", cases);
	free(w);
	return failed ? 1 : 0;
}
