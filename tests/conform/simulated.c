/* SPDX-License-Identifier: MIT */
/*
 * The suite on a simulated cluster: side A is a program on node n0 and starts side B on n1.
 */
#include "simulated.h"

#include <errno.h>
#include <gannet/sim.h>
#include <string.h>

/* ---- options ---- */

/* What a provider may leave out without anything missing: "all" of --caps-off. */
#define OPTIONAL_CAPS                                                                         \
	(GN_CAP_ATOMIC_CPU | GN_CAP_INORDER_WRITE | GN_CAP_INORDER_128 | GN_CAP_WRITE_ORDER | \
	 GN_CAP_READ_HEAD_FIRST)

static const struct {
	const char *name;
	uint64_t caps;
} cap_names[] = {
	{"all", OPTIONAL_CAPS},
	{"none", 0},
	{"inorder-write", GN_CAP_INORDER_WRITE},
	{"inorder-128", GN_CAP_INORDER_128},
	{"write-order", GN_CAP_WRITE_ORDER},
	{"read-head-first", GN_CAP_READ_HEAD_FIRST},
	{"atomic-cpu", GN_CAP_ATOMIC_CPU},
	{"atomics", GN_CAP_ATOMICS | GN_CAP_ATOMIC_CPU}, /* the second means the first */
	{"ud", GN_CAP_UD},
	{"foreign-remote", GN_CAP_FOREIGN_REMOTE},
};

static bool cap_find(const char *name, size_t len, uint64_t *caps)
{
	for (size_t i = 0; i < sizeof(cap_names) / sizeof(cap_names[0]); i++)
		if (strlen(cap_names[i].name) == len && !memcmp(cap_names[i].name, name, len)) {
			*caps |= cap_names[i].caps;
			return true;
		}
	return false;
}

bool cf_caps_parse(const char *list, uint64_t *out)
{
	*out = 0;
	for (;;) {
		const size_t len = strcspn(list, ",");

		if (!cap_find(list, len, out)) {
			fprintf(stderr, "conform: --caps-off: no capability is called \"%.*s\"\n",
				(int)len, list);
			return false;
		}
		if (!list[len])
			return true;
		list += len + 1;
	}
}

static int create(const struct cf_sim *how, uint64_t seed, struct gn_sim **out)
{
	struct gn_sim_opts opts = {
		.size = sizeof(opts),
		.profile = how->profile,
		.seed = seed,
		.nodes = 2,
		.caps_off = how->caps_off,
		.faults = how->faults,
	};

	return gn_sim_create(&opts, out);
}

int cf_sim_check(const struct cf_sim *how)
{
	struct gn_sim *sim;
	int err = create(how, 0, &sim);

	if (!err)
		gn_sim_destroy(sim);
	return err;
}

/* ---- the two sides ---- */

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

/* ---- the run ---- */

static void set_up(struct cf_run *run, struct cluster *cluster)
{
	run->fabric_name[CF_A] = "sim:n0";
	run->fabric_name[CF_B] = "sim:n1";
	run->host[CF_A] = "n0";
	run->host[CF_B] = "n1";
	run->world.peer_start = start_b;
	run->world.peer_stop = stop_b;
	run->world.die = kill_b;
	run->world.arg = cluster;
}

static void check_leaks(struct cf_run *run, const struct gn_sim *sim)
{
	if (run->failed || !gn_sim_leaks(sim))
		return;
	run->failed++;
	if (!run->quiet)
		printf("not ok 0 - the sides free what they allocate\n# %llu allocations left\n",
		       (unsigned long long)gn_sim_leaks(sim));
}

int cf_simulate(struct cf_run *run, struct cf_trace *trace)
{
	struct cluster cluster = {.run = run};
	int err = create(run->sim, run->seed, &cluster.sim);

	if (err)
		return err;
	set_up(run, &cluster);
	err = gn_sim_spawn(cluster.sim, 0, side_a, 0, NULL, &cluster, NULL);
	if (!err)
		err = gn_sim_run(cluster.sim);
	if (!err)
		err = cluster.led;
	if (!err)
		check_leaks(run, cluster.sim);
	trace->hash = gn_sim_trace_hash(cluster.sim);
	trace->events = gn_sim_events(cluster.sim);
	trace->end_ns = gn_sim_now_ns(cluster.sim);
	gn_sim_destroy(cluster.sim);
	return err;
}
