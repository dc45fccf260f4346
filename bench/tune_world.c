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
#include "tune_hall.h"

#define NAP_US	     50u
#define STEP_MIN_US  1000u
#define ROUNDS_S     3.0 /* that several rounds need, at least */
#define SIM_NAP_US   10u
#define SIM_SLICE_US 400u
#define SIM_NODES    7u /* with clients, as in the papers */
#define SIM_LIMIT_NS 100000000000ull

/* ---- this machine ---- */

struct seat {
	struct tune_hall *hall;
	uint32_t index;
	struct gn_thread *thread;
};

static void sit(void *arg)
{
	const struct seat *seat = arg;

	tune_client(seat->hall, seat->index, seat->hall->opts.provider);
}

/*
 * Threads run where the one that starts them does: the server's on the first cores that we may use,
 * the clients on the others, if there are any.
 */
static void stand_apart(const struct tune_opts *opts, const cpu_set_t *allowed, bool server)
{
	cpu_set_t set;
	uint32_t n = 0;

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, allowed) && (n++ < opts->threads) == server)
			CPU_SET((size_t)cpu, &set);
	sched_setaffinity(0, sizeof(set), n > opts->threads ? &set : allowed);
}

static int seat_clients(struct tune_hall *hall, struct seat *seats, struct tune_result *out)
{
	int rc = 0;

	for (uint32_t i = 0; i < hall->opts.clients; i++) {
		seats[i] = (struct seat){.hall = hall, .index = i};
		rc = gn_thread_start("tune", sit, &seats[i], &seats[i].thread);
		if (rc) { /* those that are there end; the others have never come */
			tune_fail(hall, "starting a thread", rc);
			hall->opts.clients = i;
			break;
		}
	}
	rc = tune_control(hall, out);
	for (uint32_t i = 0; i < hall->opts.clients; i++)
		gn_thread_join(seats[i].thread);
	return rc;
}

static int run_here(struct tune_hall *hall, struct tune_result *out)
{
	struct seat *seats = calloc(hall->opts.clients, sizeof(*seats));
	struct tune_server *server = NULL;
	struct gn_fabric *fabric;
	cpu_set_t allowed;
	int rc;

	if (!seats)
		return -ENOMEM;
	sched_getaffinity(0, sizeof(allowed), &allowed);
	rc = gn_fabric_open(hall->opts.provider, &fabric);
	if (rc) {
		gn_log(GN_LOG_ERROR, "tune: cannot open %s: %s", hall->opts.provider,
		       gn_strerror(rc));
		free(seats);
		return rc;
	}
	if (!hall->opts.elsewhere) {
		stand_apart(&hall->opts, &allowed, true);
		rc = tune_server_start(fabric, &hall->opts, &server);
		stand_apart(&hall->opts, &allowed, false);
	}
	if (!rc)
		rc = seat_clients(hall, seats, out);
	sched_setaffinity(0, sizeof(allowed), &allowed);
	tune_server_stop(server);
	gn_fabric_close(fabric);
	free(seats);
	return rc;
}

/* ---- a simulated cluster ---- */

struct node {
	struct tune_hall *hall;
	struct tune_result *out;
	uint32_t index; /* of a client */
	uint32_t *serving;
};

static int server_node(struct gn_env *env, int argc, char **argv)
{
	const struct node *node = env->arg;
	struct tune_server *server;
	struct gn_fabric *fabric;
	int rc = gn_fabric_open(env->fabric, &fabric);

	(void)argc;
	(void)argv;
	if (rc)
		return tune_fail(node->hall, "opening a card", rc);
	rc = tune_server_start(fabric, &node->hall->opts, &server);
	if (!rc) {
		*node->serving = 1;
		rc = tune_control(node->hall, node->out);
		tune_server_stop(server);
	} else {
		tune_fail(node->hall, "the server", rc);
	}
	gn_fabric_close(fabric);
	return rc;
}

static int client_node(struct gn_env *env, int argc, char **argv)
{
	const struct node *node = env->arg;

	(void)argc;
	(void)argv;
	while (!*node->serving && !tune_over(node->hall))
		gn_sleep_us(SIM_NAP_US);
	tune_client(node->hall, node->index, env->fabric);
	return 0;
}

static int run_simulated(struct tune_hall *hall, struct tune_result *out)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = hall->opts.profile,
					 .seed = hall->opts.seed,
					 .nodes = 1 + SIM_NODES,
					 .limit_ns = SIM_LIMIT_NS};
	struct node *nodes = calloc(1 + hall->opts.clients, sizeof(*nodes));
	uint32_t serving = 0;
	struct gn_sim *sim;
	int rc = nodes ? gn_sim_create(&opts, &sim) : -ENOMEM;

	if (rc) {
		free(nodes);
		return rc;
	}
	for (uint32_t i = 0; !rc && i <= hall->opts.clients; i++) {
		nodes[i] = (struct node){hall, out, i - 1, &serving};
		rc = gn_sim_spawn(sim, i ? 1 + (i - 1) % SIM_NODES : 0,
				  i ? client_node : server_node, 0, NULL, &nodes[i], NULL);
	}
	if (!rc)
		rc = gn_sim_run(sim);
	gn_sim_destroy(sim);
	free(nodes);
	return hall->error ? hall->error : bench_stopped() ? -EINTR : rc;
}

int tune_run(const struct tune_opts *opts, tune_progress_fn *progress, struct tune_result *out)
{
	struct tune_hall *hall = aligned_alloc(_Alignof(struct tune_hall), sizeof(*hall));
	int rc;

	if (!hall)
		return -ENOMEM;
	*hall = (struct tune_hall){.opts = *opts, .progress = progress};
	*out = (struct tune_result){.tuning = {0}};
	hall->nap_us = opts->profile ? SIM_NAP_US : NAP_US;
	/* A simulated machine has no moods: once is enough. */
	hall->rounds = opts->profile || opts->seconds < ROUNDS_S ? 1 : TUNE_ROUNDS;
	hall->slice_us = (uint64_t)(opts->seconds * 1e6 / TUNE_STEPS / hall->rounds);
	if (hall->slice_us < STEP_MIN_US)
		hall->slice_us = STEP_MIN_US;
	if (opts->profile)
		hall->slice_us = SIM_SLICE_US;
	rc = opts->profile ? run_simulated(hall, out) : run_here(hall, out);
	free(hall);
	return rc;
}
