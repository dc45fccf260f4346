/* SPDX-License-Identifier: MIT */
/*
 * gannet bench msg on a simulated cluster: the layer msg of lab/ runs the point.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <gannet/sim.h>

#include "bench_msg.h"
#include "lab.h"

static const char *const topologies[BENCH_MSG_TOPOLOGIES] = {
	[BENCH_MSG_M1] = "m1",
	[BENCH_MSG_1M] = "1m",
	[BENCH_MSG_MM] = "mm",
};

static int set_number(struct config *c, const char *key, uint32_t n, struct lab_error *error)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", n);
	return config_set(c, key, text, error);
}

static int make_config(const struct bench_msg_opts *o, struct config *c, struct lab_error *error)
{
	int rc = config_set(c, "topology", topologies[o->topology], error);

	if (!rc)
		rc = config_set(c, "protocol", gn_msg_protocol_str(o->protocol), error);
	if (!rc)
		rc = set_number(c, "nodes", o->nodes, error);
	if (!rc)
		rc = set_number(c, "threads", o->threads, error);
	if (!rc)
		rc = set_number(c, "pending", o->pending, error);
	if (!rc)
		rc = set_number(c, "key", o->request_bytes, error);
	return rc ? rc : set_number(c, "value", o->value_bytes, error);
}

static double metric(const struct lab_metrics *metrics, const char *name)
{
	const double *value = lab_metric_get(metrics, name);

	return value ? *value : NAN;
}

int msg_simulate(const struct bench_msg_opts *o, struct bench_msg_result *out)
{
	const struct lab_setup setup = {
		.profile = o->profile,
		.card = o->profile,
		.preset = o->paper ? "paper" : "gannet",
		.seed = o->seed,
		.effort = o->seconds / MSG_SIM_SECONDS,
		.interrupted = bench_stop_flag(),
	};
	const uint64_t began_ns = gn_now_ns();
	struct config config = {0};
	struct lab_metrics m = {0};
	struct lab_error error;
	int rc = make_config(o, &config, &error);

	if (!rc)
		rc = lab_msg_run(&setup, &config, &m, &error);
	if (bench_stopped())
		return -EINTR;
	if (rc) {
		msg_progress_hide();
		fprintf(stderr, "gannet: bench msg: %s\n", error.text);
		return rc;
	}
	*out = (struct bench_msg_result){
		.requests = (uint64_t)metric(&m, "requests"),
		.seconds = metric(&m, "seconds"),
		.mops = metric(&m, "mops"),
		.gbps = metric(&m, "gbps"),
		.gbps_per_node = metric(&m, "gbps_per_node"),
		.p50_us = metric(&m, "p50_us"),
		.p99_us = metric(&m, "p99_us"),
		.wrs = metric(&m, "wrs_per_request"),
		.doorbells = metric(&m, "doorbells_per_request"),
		.cqes = metric(&m, "cqes_per_request"),
		.repeats = o->protocol == GN_MSG_UD ? metric(&m, "repeats") : NAN,
		.lost = o->protocol == GN_MSG_UD ? 0 : NAN, /* one would have failed the run */
		.limit_ratio = NAN,
		.wall_seconds = 1e-9 * (double)(gn_now_ns() - began_ns),
	};
	return 0;
}

/* ---- what a card can carry ---- */

struct tries {
	const struct bench_msg_opts *opts;
	unsigned n;
	int *rcs;
};

static int try_all(struct gn_env *env, int argc, char **argv)
{
	const struct tries *t = env->arg;
	struct gn_fabric *fabric;
	const int rc = gn_fabric_open(env->fabric, &fabric);

	(void)argc;
	(void)argv;
	if (rc)
		return 1;
	for (unsigned i = 0; i < t->n; i++)
		t->rcs[i] = bench_msg_try(fabric, &t->opts[i]);
	gn_fabric_close(fabric);
	return 0;
}

int msg_simulate_tries(const struct bench_msg_opts *opts, unsigned n, int *rcs)
{
	struct tries tries = {opts, n, rcs};
	struct gn_sim *sim;
	int status = 1, rc;

	if (!n)
		return 0;
	rc = gn_sim_create(&(struct gn_sim_opts){.size = sizeof(struct gn_sim_opts),
						 .profile = opts->profile,
						 .nodes = 1},
			   &sim);
	if (rc)
		return rc;
	rc = gn_sim_spawn(sim, 0, try_all, 0, NULL, &tries, NULL);
	if (!rc)
		rc = gn_sim_run(sim);
	if (!rc)
		rc = gn_sim_status(sim, 0, &status);
	gn_sim_destroy(sim);
	return rc ? rc : status ? -EIO : 0;
}
