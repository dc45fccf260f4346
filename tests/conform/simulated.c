/* SPDX-License-Identifier: MIT */
/*
 * The suite on a simulated cluster: side A is a program on node n0 and starts side B on n1.
 */
#include "simulated.h"

#include <errno.h>
#include <gannet/sim.h>

struct cluster {
	struct gn_sim *sim;
	struct cf_run *run;
	unsigned b; /* B's process */
	int led;    /* what cf_lead() returned */
};

static int side_a(struct gn_env *env, int argc, char **argv)
{
	struct cluster *cluster = env->arg;

	(void)argc;
	(void)argv;
	cluster->led = cf_lead(cluster->run);
	return cluster->led ? 1 : 0;
}

static int side_b(struct gn_env *env, int argc, char **argv)
{
	struct cluster *cluster = env->arg;

	(void)argc;
	(void)argv;
	return cf_follow(cluster->run) ? 1 : 0;
}

static int start_b(void *arg)
{
	struct cluster *cluster = arg;

	return gn_sim_spawn(cluster->sim, 1, side_b, 0, NULL, cluster, &cluster->b);
}

static void stop_b(void *arg, char *how, size_t size)
{
	struct cluster *cluster = arg;
	int status;

	if (gn_sim_status(cluster->sim, cluster->b, &status) == -EAGAIN)
		gn_sim_kill(cluster->sim, cluster->b);
	gn_sim_status(cluster->sim, cluster->b, &status);
	snprintf(how, size, status == GN_SIM_KILLED ? "killed" : "exit status %d", status);
}

static void kill_b(void *arg)
{
	struct cluster *cluster = arg;

	gn_sim_kill(cluster->sim, cluster->b);
}

int cf_simulate(struct cf_run *run)
{
	struct gn_sim_opts opts = {.seed = run->seed, .nodes = 2};
	struct cluster cluster = {.run = run};
	int err = gn_sim_create(&opts, &cluster.sim);

	if (err)
		return err;
	run->fabric_name[CF_A] = "sim:n0";
	run->fabric_name[CF_B] = "sim:n1";
	run->host[CF_A] = "n0";
	run->host[CF_B] = "n1";
	run->world.peer_start = start_b;
	run->world.peer_stop = stop_b;
	run->world.die = kill_b;
	run->world.arg = &cluster;
	err = gn_sim_spawn(cluster.sim, 0, side_a, 0, NULL, &cluster, NULL);
	if (!err)
		err = gn_sim_run(cluster.sim);
	if (!err)
		err = cluster.led;
	if (!err && !run->failed && gn_sim_leaks(cluster.sim)) {
		printf("not ok 0 - the sides free what they allocate\n# %llu allocations left\n",
		       (unsigned long long)gn_sim_leaks(cluster.sim));
		run->failed++;
	}
	gn_sim_destroy(cluster.sim);
	return err;
}
