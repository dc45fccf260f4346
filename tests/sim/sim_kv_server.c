/* SPDX-License-Identifier: MIT */
/* The server of the test: starts, ends, drains, crashes, and is started again. */
#include <errno.h>

#include "sim_kv.h"

#define QUIET_NS  1000000000ull /* no client has done anything: they have ended */
#define FORGET_NS 3000000000ull /* then the server must know; an accept takes up to 2 s */
#define TICK_US	  100u
#define MEMORY_US 50u
#define ATTEMPTS  200u
#define DOWN_US	  2000u /* between one server and the next, at most */

static bool all_over(const struct seeds *run)
{
	const struct world *w = (const struct world *)run;
	const uint64_t quiet_ns = w->plan.naps ? 4 * QUIET_NS : QUIET_NS;

	return seeds_over(run, w->plan.n_clients + w->plan.scribblers, quiet_ns);
}

static uint64_t clients_now(struct gn_kv_server *server)
{
	struct gn_rpc_counters count = {.size = sizeof(count)};

	gn_rpc_server_counters(gn_kv_server_rpc(server), &count);
	return count.clients;
}

/* Until it must end, or all clients have ended: then it must know this. */
static void serve(struct world *w, struct gn_kv_server *server, uint32_t stop_us)
{
	uint64_t until;

	while (!all_over(&w->run) && (!stop_us || gn_sim_now_ns(w->run.sim) < stop_us * 1000ull)) {
		gn_sleep_us(w->plan.naps ? 10 * TICK_US : TICK_US);
		w->alive_ns = gn_sim_now_ns(w->run.sim);
	}
	if (!all_over(&w->run))
		return;
	until = gn_sim_now_ns(w->run.sim) + FORGET_NS;
	while (clients_now(server) && gn_sim_now_ns(w->run.sim) < until)
		gn_sleep_us(1000);
	if (clients_now(server))
		world_fail(w, "the server still has %llu clients, %llu ms after the last has gone",
			   (unsigned long long)clients_now(server), FORGET_NS / 1000000);
}

static void drain(struct world *w, struct gn_kv_server *server)
{
	const int rc = gn_kv_server_drain(server, gn_deadline_us(w->plan.drain_us));

	world_log(w, "drained: %s", gn_strerror(rc));
	if (rc && rc != -ETIMEDOUT)
		world_fail(w, "the server cannot be drained: %s", gn_strerror(rc));
}

/* A new server has nothing of the last one's content. */
static void new_epoch(struct world *w)
{
	struct history_op *op;

	if (w->begun) {
		op = history_add(w->history, NULL);
		op->verb = HISTORY_RESTART;
		op->begin_ns = w->alive_ns;
		op->end_ns = gn_sim_now_ns(w->run.sim);
		op->status = GN_KV_OK;
		w->epoch++;
		w->sums.restarts++;
	}
	w->begun = true; /* at 0 ns, perhaps */
	w->alive_ns = gn_sim_now_ns(w->run.sim);
}

static int serve_once(struct seeds *run, struct gn_fabric *fabric, uint32_t stop_us)
{
	struct world *w = (struct world *)run;
	struct gn_kv_server *server = NULL;
	int rc;

	w->plan.server.size = sizeof(w->plan.server);
	rc = gn_kv_server_create(fabric, ADDR, &w->plan.server, &server);
	if (!rc) {
		new_epoch(w);
		rc = gn_kv_server_start(server);
	}
	if (!rc) {
		world_log(w, "the server begins");
		serve(w, server, stop_us);
		if (stop_us && w->plan.drain_us && !all_over(&w->run))
			drain(w, server);
		world_log(w, "the server ends");
		w->alive_ns = gn_sim_now_ns(w->run.sim);
	} else if (rc != -ENOMEM || !w->plan.cluster.no_memory) {
		world_fail(w, "no server: %s", gn_strerror(rc));
	}
	gn_kv_server_destroy(server);
	return rc;
}

int server_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	const struct seeds_server server = {
		.serve_once = serve_once,
		.all_over = all_over,
		.stop_us = w->epoch ? 0 : w->plan.stop_us,
		.attempts = ATTEMPTS,
		.pause_us = MEMORY_US,
		.max_down_us = DOWN_US,
		.no_memory = w->plan.cluster.no_memory,
	};

	(void)argc;
	(void)argv;
	return seeds_serve(&w->run, env, &server);
}
