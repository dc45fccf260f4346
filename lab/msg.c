/* SPDX-License-Identifier: MIT */
/*
 * The layer "msg" of the list of figures: requests and answers by one of several protocols, in
 * S003's three topologies. A configuration becomes a load, a run becomes metrics.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "msg_load.h"

#define NODES_MAX   256u
#define THREADS_MAX 64u

#define STACK_BYTES (64u * 1024u)
#define LIMIT_NS    (20ull * 1000 * 1000 * 1000) /* of virtual time: something hangs */

/*
 * A run's length; effort 1. Everything is under way before anything is measured, whatever the
 * effort. Where that would take for ever it is so many operations, or so many bytes.
 */
#define WARM_OPS_PER_QP 8u
#define WARM_PCT	110u /* of what is under way */
#define WARM_OPS	150000u
#define WARM_NS		50000u
#define MIN_OPS		60000u
#define MIN_ROUNDS	6u /* times everything under way, up to that */
#define MIN_NS		200000u
#define MAX_NS		400000000u
#define OPS_ENOUGH	20u /* times min_ops, however little time that took */
#define BYTES_ENOUGH	(64u << 20)

/* S003 IV.A.2: 14 threads that answer when a machine asks with one thread, else 16. */
#define RESP_THREADS_ONE 14u
#define RESP_THREADS	 16u

static const char *const keys[] = {
	"topology", "nodes", "threads", "resp_threads", "qps_per_resp_thread",
	"pending",  "key",   "value",	"protocol",
};

/* ---- who asks whom ---- */

unsigned msg_machines(const struct msg_load *o)
{
	return o->topology == MSG_MANY_TO_MANY ? o->nodes : o->nodes + 1;
}

unsigned msg_askers(const struct msg_load *o)
{
	return o->topology == MSG_ONE_TO_MANY ? o->threads : o->nodes * o->threads;
}

unsigned msg_conns_of_asker(const struct msg_load *o)
{
	switch (o->topology) {
	case MSG_MANY_TO_ONE:
		return 1;
	case MSG_ONE_TO_MANY:
		return o->nodes;
	default:
		return o->nodes - 1;
	}
}

unsigned msg_conns_of_answerer(const struct msg_load *o)
{
	switch (o->topology) {
	case MSG_MANY_TO_ONE:
		return (o->nodes * o->threads + o->resp_threads - 1) / o->resp_threads;
	case MSG_ONE_TO_MANY:
		return 1;
	default:
		return o->nodes - 1;
	}
}

/* M:1: node 0 answers; 1:M: it asks. */
struct msg_place msg_place_of(const struct msg_load *o, unsigned node, unsigned thread, unsigned i)
{
	const unsigned asker = (node - 1) * o->threads + thread;
	unsigned to;

	switch (o->topology) {
	case MSG_MANY_TO_ONE:
		return (struct msg_place){0, asker % o->resp_threads, asker / o->resp_threads};
	case MSG_ONE_TO_MANY:
		return (struct msg_place){1 + i, thread, 0};
	default:
		to = (node + 1 + i) % o->nodes;
		return (struct msg_place){to, thread, node < to ? node : node - 1};
	}
}

/* ---- the configuration ---- */

static int read_topology(const struct config *c, struct msg_load *o, struct lab_error *error)
{
	static const char *const names[] = {
		[MSG_MANY_TO_ONE] = "m1",
		[MSG_ONE_TO_MANY] = "1m",
		[MSG_MANY_TO_MANY] = "mm",
	};
	const char *text = config_get(c, "topology");

	for (unsigned i = 0; text && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			o->topology = (enum msg_topology)i;
			return 0;
		}
	return lab_error(error, "topology=%s is not m1, 1m or mm", text ? text : "");
}

static int read_protocol(const struct config *c, struct msg_load *o, struct lab_error *error)
{
	const char *text = config_get(c, "protocol");

	if (text && !gn_msg_protocol_parse(text, &o->protocol))
		return 0;
	return lab_error(error,
			 "protocol=%s is not SEND/SEND, SEND/WRITE, WRITE/SEND, WRITE/WRITE, READ, "
			 "WRITE_IMM or UD",
			 text ? text : "");
}

/* resp_threads and qps_per_resp_thread are of M:1; else a thread answers for each that asks. */
static int read_answerers(const struct config *c, struct msg_load *o, struct lab_error *error)
{
	const unsigned usual = o->threads == 1 ? RESP_THREADS_ONE : RESP_THREADS;
	const unsigned all = o->nodes * o->threads;
	uint64_t threads, qps;
	int rc = config_uint(c, "resp_threads", usual < all ? usual : all, 1, THREADS_MAX, &threads,
			     error);

	if (!rc)
		rc = config_uint(c, "qps_per_resp_thread", GN_MSG_CONNS_MAX, 1, GN_MSG_CONNS_MAX,
				 &qps, error);
	if (rc)
		return rc;
	if (o->topology != MSG_MANY_TO_ONE) {
		o->resp_threads = o->threads;
		return 0;
	}
	o->resp_threads = (unsigned)(threads < all ? threads : all);
	if (msg_conns_of_answerer(o) > qps)
		return lab_error(error,
				 "%u threads ask: more than resp_threads=%u with "
				 "qps_per_resp_thread=%llu take",
				 all, o->resp_threads, (unsigned long long)qps);
	return 0;
}

static int read_load(const struct config *c, const char *preset, struct msg_load *o,
		     struct lab_error *error)
{
	uint64_t nodes, threads, pending, key, value;
	const struct config_number numbers[] = {
		{"nodes", 2, 1, NODES_MAX, &nodes},
		{"threads", 1, 1, THREADS_MAX, &threads},
		{"pending", 1, 1, GN_MSG_PENDING_MAX, &pending},
		{"key", 36, 1, GN_MSG_BYTES_MAX, &key},
		{"value", 365, 1, GN_MSG_BYTES_MAX, &value},
	};
	int rc = read_topology(c, o, error);

	o->paper = !strcmp(preset, "paper");
	if (!o->paper && strcmp(preset, "gannet"))
		return lab_error(error, "preset '%s' is neither paper nor gannet", preset);
	if (!rc)
		rc = read_protocol(c, o, error);
	if (!rc)
		rc = config_numbers(c, numbers, sizeof(numbers) / sizeof(numbers[0]), error);
	if (rc)
		return rc;
	if (o->topology == MSG_MANY_TO_MANY && nodes < 2)
		return lab_error(error, "nodes=1: topology=mm needs at least 2");
	o->nodes = (unsigned)nodes;
	o->threads = (unsigned)threads;
	o->pending = (unsigned)pending;
	o->key = (uint32_t)key;
	o->value = (uint32_t)value;
	return read_answerers(c, o, error);
}

/* ---- the run ---- */

static uint64_t scaled(uint64_t n, double by)
{
	return (uint64_t)((double)n * by);
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void set_length(struct msg_run *run, const struct lab_setup *setup)
{
	const struct msg_load *o = run->opts;
	const double effort = setup->effort;
	const uint64_t qps = (uint64_t)msg_askers(o) * msg_conns_of_asker(o);
	const uint64_t rounds = MIN_ROUNDS * qps * o->pending;
	/* Large values: fewer of them tell as much. */
	const uint64_t few = max_u64(BYTES_ENOUGH / o->value, 256);
	struct load_run *load = &run->load;
	struct load_length *l = &load->length;

	load->n_threads = msg_askers(o);
	load->n_listeners = o->resp_threads * (o->topology == MSG_MANY_TO_ONE ? 1 : o->nodes);
	load->interrupted = setup->interrupted;
	l->warm_ops = max_u64(qps * o->pending * WARM_PCT / 100, WARM_OPS_PER_QP * qps);
	l->warm_ops = min_u64(min_u64(l->warm_ops, WARM_OPS), few);
	l->warm_ns = WARM_NS;
	l->min_ops = min_u64(max_u64(scaled(MIN_OPS, effort), min_u64(rounds, MIN_OPS)), few);
	l->min_ns = scaled(MIN_NS, effort);
	l->max_ns = scaled(MAX_NS, effort);
	l->max_ops = OPS_ENOUGH * l->min_ops;
}

struct spawning {
	struct msg_run *run;
	struct msg_site *sites;
};

static int spawn_all(struct gn_sim *sim, void *arg)
{
	const struct spawning *s = arg;
	const struct msg_load *o = s->run->opts;
	const unsigned n = msg_machines(o);
	int rc = 0;

	for (unsigned i = 0; i < n && !rc; i++) {
		const bool first = i == 0, mm = o->topology == MSG_MANY_TO_MANY;
		const bool asks = mm || first == (o->topology == MSG_ONE_TO_MANY);

		s->sites[i] = (struct msg_site){
			.run = s->run,
			.number = i,
			.askers = asks ? o->threads : 0,
			.answerers = mm || !asks ? o->resp_threads : 0,
		};
		rc = gn_sim_spawn(sim, i, msg_program, 0, NULL, &s->sites[i], NULL);
	}
	return rc;
}

static int run_load(struct msg_run *run, const struct lab_setup *setup, struct trial_result *out,
		    struct lab_error *error)
{
	struct spawning spawning = {.run = run};
	const struct trial trial = {
		.card = setup->card,
		.seed = setup->seed,
		.nodes = msg_machines(run->opts),
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
		.spawn = spawn_all,
		.arg = &spawning,
	};
	int rc = -ENOMEM;

	set_length(run, setup);
	run->key = calloc(1, run->opts->key);
	spawning.sites = calloc(trial.nodes, sizeof(spawning.sites[0]));
	if (!run->key || !spawning.sites)
		lab_error(error, "no memory for a cluster of %u machines", trial.nodes);
	else
		rc = trial_run(&trial, &run->load, out, error);
	free(spawning.sites);
	free(run->key);
	return rc;
}

static void metrics(const struct msg_run *run, const struct trial_result *r,
		    struct lab_metrics *out)
{
	const struct msg_load *o = run->opts;
	const double mops = 1e3 * (double)r->ops / (double)r->ns;
	const double gbps = 8e-3 * mops * o->value;
	const double requests = (double)max_u64(run->requests, 1);

	out->n = 0;
	lab_metric_add(out, "requests", (double)r->ops);
	lab_metric_add(out, "seconds", 1e-9 * (double)r->ns);
	lab_metric_add(out, "mops", mops);
	lab_metric_add(out, "gbps", gbps);
	/* 1:M has one machine that takes values. */
	lab_metric_add(out, "gbps_per_node",
		       o->topology == MSG_ONE_TO_MANY ? gbps : gbps / o->nodes);
	lab_metric_add(out, "latency_us_mean", 1e-3 * r->latency_ns_mean);
	lab_metric_add(out, "p50_us", 1e-3 * r->p50_ns);
	lab_metric_add(out, "p99_us", 1e-3 * r->p99_ns);
	lab_metric_add(out, "wrs_per_request", (double)run->wrs / requests);
	lab_metric_add(out, "doorbells_per_request", (double)run->doorbells / requests);
	lab_metric_add(out, "cqes_per_request", (double)run->cqes / requests);
	lab_metric_add(out, "repeats", (double)run->repeats);
}

int lab_msg_run(const struct lab_setup *setup, const struct config *config, struct lab_metrics *out,
		struct lab_error *error)
{
	struct msg_load load = {0};
	struct msg_run run = {.opts = &load};
	struct trial_result result;
	int rc = config_known(config, keys, sizeof(keys) / sizeof(keys[0]), "msg", error);

	if (!rc)
		rc = read_load(config, setup->preset, &load, error);
	if (!rc)
		rc = run_load(&run, setup, &result, error);
	if (rc)
		return rc;
	metrics(&run, &result, out);
	trial_result_free(&result);
	return 0;
}
