/* SPDX-License-Identifier: MIT */
/*
 * Where a tuning runs: as threads of this process, or on a simulated cluster, whose first node has
 * the server and whose others have the clients.
 */
#include <errno.h>
#include <gannet/sim.h>
#include <sched.h>
#include <stdlib.h>

#include "bench.h"
#include "tune_shared.h"

#define POLL_US	     50u
#define STEP_MIN_US  1000u
#define ROUNDS_S     3.0 /* that several rounds need, at least */
#define SIM_POLL_US  10u
#define SIM_SLICE_US 400u
#define SIM_NODES    7u /* with clients, as in the papers */
#define SIM_LIMIT_NS 100000000000ull

/* ---- this machine ---- */

struct client_thread {
	struct tune_shared *shared;
	uint32_t index;
	struct gn_thread *thread;
};

static void client_thread_main(void *arg)
{
	const struct client_thread *thread = arg;

	tune_client(thread->shared, thread->index, thread->shared->opts.provider);
}

/*
 * A thread inherits the affinity of the thread that starts it: the server's threads run on the
 * first allowed cores, the clients' on the others, if there are any.
 */
static void set_affinity(const struct tune_opts *opts, const cpu_set_t *allowed, bool server)
{
	cpu_set_t set;
	uint32_t n = 0;

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, allowed) && (n++ < opts->threads) == server)
			CPU_SET((size_t)cpu, &set);
	sched_setaffinity(0, sizeof(set), n > opts->threads ? &set : allowed);
}

static int run_client_threads(struct tune_shared *shared, struct client_thread *threads,
			      struct tune_result *out)
{
	int rc = 0;

	for (uint32_t i = 0; i < shared->opts.clients; i++) {
		threads[i] = (struct client_thread){.shared = shared, .index = i};
		rc = gn_thread_start("tune", client_thread_main, &threads[i], &threads[i].thread);
		if (rc) { /* the threads that were started end */
			tune_fail(shared, "starting a thread", rc);
			shared->opts.clients = i;
			break;
		}
	}
	rc = tune_control(shared, out);
	for (uint32_t i = 0; i < shared->opts.clients; i++)
		gn_thread_join(threads[i].thread);
	return rc;
}

static int run_threads(struct tune_shared *shared, struct tune_result *out)
{
	struct client_thread *threads = calloc(shared->opts.clients, sizeof(*threads));
	struct tune_server *server = NULL;
	struct gn_fabric *fabric;
	cpu_set_t allowed;
	int rc;

	if (!threads)
		return -ENOMEM;
	sched_getaffinity(0, sizeof(allowed), &allowed);
	rc = gn_fabric_open(shared->opts.provider, &fabric);
	if (rc) {
		gn_log(GN_LOG_ERROR, "tune: cannot open %s: %s", shared->opts.provider,
		       gn_strerror(rc));
		free(threads);
		return rc;
	}
	if (!shared->opts.elsewhere) {
		set_affinity(&shared->opts, &allowed, true);
		rc = tune_server_start(fabric, &shared->opts, &server);
		set_affinity(&shared->opts, &allowed, false);
	}
	if (!rc)
		rc = run_client_threads(shared, threads, out);
	sched_setaffinity(0, sizeof(allowed), &allowed);
	tune_server_stop(server);
	gn_fabric_close(fabric);
	free(threads);
	return rc;
}

/* ---- a simulated cluster ---- */

struct node {
	struct tune_shared *shared;
	struct tune_result *out;
	uint32_t index; /* of a client */
	uint32_t *serving;
};

static int server_node_main(struct gn_env *env, int argc, char **argv)
{
	const struct node *node = env->arg;
	struct tune_server *server;
	struct gn_fabric *fabric;
	int rc = gn_fabric_open(env->fabric, &fabric);

	(void)argc;
	(void)argv;
	if (rc)
		return tune_fail(node->shared, "opening a card", rc);
	rc = tune_server_start(fabric, &node->shared->opts, &server);
	if (!rc) {
		*node->serving = 1;
		rc = tune_control(node->shared, node->out);
		tune_server_stop(server);
	} else {
		tune_fail(node->shared, "the server", rc);
	}
	gn_fabric_close(fabric);
	return rc;
}

static int client_node_main(struct gn_env *env, int argc, char **argv)
{
	const struct node *node = env->arg;

	(void)argc;
	(void)argv;
	while (!*node->serving && !tune_over(node->shared))
		gn_sleep_us(SIM_POLL_US);
	tune_client(node->shared, node->index, env->fabric);
	return 0;
}

static int run_simulated(struct tune_shared *shared, struct tune_result *out)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = shared->opts.profile,
					 .seed = shared->opts.seed,
					 .nodes = 1 + SIM_NODES,
					 .limit_ns = SIM_LIMIT_NS};
	struct node *nodes = calloc(1 + shared->opts.clients, sizeof(*nodes));
	uint32_t serving = 0;
	struct gn_sim *sim;
	int rc = nodes ? gn_sim_create(&opts, &sim) : -ENOMEM;

	if (rc) {
		free(nodes);
		return rc;
	}
	for (uint32_t i = 0; !rc && i <= shared->opts.clients; i++) {
		nodes[i] = (struct node){shared, out, i - 1, &serving};
		rc = gn_sim_spawn(sim, i ? 1 + (i - 1) % SIM_NODES : 0,
				  i ? client_node_main : server_node_main, 0, NULL, &nodes[i],
				  NULL);
	}
	if (!rc)
		rc = gn_sim_run(sim);
	gn_sim_destroy(sim);
	free(nodes);
	return shared->error ? shared->error : bench_stopped() ? -EINTR : rc;
}

int tune_run(const struct tune_opts *opts, tune_progress_fn *progress, struct tune_result *out)
{
	struct tune_shared *shared = aligned_alloc(_Alignof(struct tune_shared), sizeof(*shared));
	int rc;

	if (!shared)
		return -ENOMEM;
	*shared = (struct tune_shared){.opts = *opts, .progress = progress};
	*out = (struct tune_result){.tuning = {0}};
	shared->poll_us = opts->profile ? SIM_POLL_US : POLL_US;
	/* Virtual time does not vary: one round is enough. */
	shared->rounds = opts->profile || opts->seconds < ROUNDS_S ? 1 : TUNE_ROUNDS;
	shared->slice_us = (uint64_t)(opts->seconds * 1e6 / TUNE_STEPS / shared->rounds);
	if (shared->slice_us < STEP_MIN_US)
		shared->slice_us = STEP_MIN_US;
	if (opts->profile)
		shared->slice_us = SIM_SLICE_US;
	rc = opts->profile ? run_simulated(shared, out) : run_threads(shared, out);
	free(shared);
	return rc;
}
