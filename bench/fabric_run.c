/* SPDX-License-Identifier: MIT */
/* A run of a cluster's fabric, as processes or in virtual time, and its figures. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "fabric_load.h"
#include "procs.h"

/* At effort 1. */
#define WARM_OPS_PER_THREAD 10u
#define WARM_OPS_PER_QP	    4u /* so that a card's cache holds what it would after hours */
#define WARM_ROUNDS	    3u /* times everything under way */
#define WARM_NS		    20000u
#define MIN_OPS		    50000u
#define MIN_ROUNDS	    6u
#define MIN_NS		    200000u
#define MAX_NS		    20000000u
#define OPS_ENOUGH	    50u /* times MIN_OPS, however little time that took */

static uint64_t most_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Requests that all clients together can have under way. */
static uint64_t all_under_way(const struct bench_fabric_opts *o, uint32_t clients)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < clients; i++)
		n += fabric_window(o, i);
	return o->signal_every ? n / 2 : n;
}

static void set_length(struct fabric_run *run)
{
	const struct bench_fabric_opts *o = &run->opts;
	const struct fabric_shape s = fabric_shape(o);
	const uint32_t clients = run->load.n_clients;
	const uint64_t rounds = all_under_way(o, clients);
	const uint64_t ends = (uint64_t)s.client_nodes * s.client_procs_per_node *
			      ((s.threads_per_proc + o->shared_by - 1) / o->shared_by);
	const uint64_t warm_ops = most_u64(WARM_OPS_PER_THREAD * (uint64_t)clients,
					   WARM_OPS_PER_QP * ends * fabric_conns(o));
	const double effort = o->load.effort;
	struct load_length *l = &run->load.length;

	l->warm_ops = most_u64(warm_ops, WARM_ROUNDS * rounds);
	l->warm_ns = WARM_NS;
	l->min_ops = (uint64_t)((double)most_u64(MIN_OPS, MIN_ROUNDS * rounds) * effort);
	l->min_ns = (uint64_t)(MIN_NS * effort);
	l->max_ns = (uint64_t)(MAX_NS * effort);
	l->max_ops = OPS_ENOUGH * l->min_ops;
	if (o->ops) {
		l->min_ops = l->max_ops = o->ops;
		l->max_ns = UINT64_MAX;
	}
}

/* One for each process, node by node; returns how many. */
static unsigned place_all(const struct bench_fabric_opts *o, struct load_place *places)
{
	const struct fabric_shape s = fabric_shape(o);
	uint32_t servers = 0, clients = 0;
	unsigned n = 0;

	for (uint32_t node = 0; node < s.nodes; node++) {
		const bool requests = node >= s.first_client_node &&
				      node < s.first_client_node + s.client_nodes;
		const bool serves = node >= s.first_server_node &&
				    node < s.first_server_node + s.server_nodes;
		const uint32_t procs = requests ? s.client_procs_per_node : s.servers_per_node;

		for (uint32_t i = 0; i < procs; i++, n++) {
			places[n] =
				(struct load_place){.node = node,
						    .first_server = servers,
						    .n_servers = serves,
						    .first_client = clients,
						    .n_clients = requests ? s.threads_per_proc : 0};
			servers += places[n].n_servers;
			clients += places[n].n_clients;
		}
	}
	return n;
}

static void take_figures(const struct bench_fabric_opts *o, struct bench_fabric_result *r)
{
	const struct fabric_shape s = fabric_shape(o);
	const uint32_t clients = s.client_procs_per_node * s.threads_per_proc;

	r->mops_per_node = r->load.mops / s.client_nodes;
	r->mops_per_core = r->mops_per_node / clients;
	r->gbps = 8e-3 * r->load.mops * o->size_bytes;
	r->gbps_per_node = r->gbps / s.client_nodes;
	r->misses_per_op = o->topology == FABRIC_IN ? r->load.served_misses : r->load.misses;
}

static int run_cluster(const struct bench_fabric_opts *o, struct bench_fabric_result *out)
{
	const struct fabric_shape s = fabric_shape(o);
	const uint32_t procs =
		s.client_nodes * s.client_procs_per_node + s.server_nodes * s.servers_per_node;
	struct fabric_run *run = (struct fabric_run *)load_run_create(sizeof(*run), &o->load);
	struct load_place *places = calloc(procs, sizeof(*places));
	int rc;

	if (!run || !places) {
		free(run);
		free(places);
		return load_no_memory(&out->load);
	}
	run->opts = *o;
	run->load.n_servers = s.server_nodes * s.servers_per_node;
	run->load.n_clients = s.client_nodes * s.client_procs_per_node * s.threads_per_proc;
	run->load.first_server_node = s.first_server_node;
	run->load.servers_per_node = s.servers_per_node;
	set_length(run);
	rc = load_simulate(&run->load, &load_fabric, places, place_all(o, places), &out->load);
	free(places);
	return rc;
}

/* A server, and clients that are a process each. */
static int run_processes(const struct bench_fabric_opts *o, bench_progress_fn *progress,
			 struct bench_fabric_result *out)
{
	struct comparison compared;
	struct procs procs;
	int rc = procs_open(&procs, &load_fabric, sizeof(struct fabric_run), &o->load, 1, 1,
			    o->load.clients);

	if (rc)
		return rc;
	((struct fabric_run *)procs.run)->opts = *o;
	rc = procs_start(&procs);
	if (!rc)
		rc = procs_measure(&procs, NULL, NULL, progress, &out->load, &compared);
	procs_scale_latency(&o->load, &out->load);
	return procs_close(&procs, rc, &out->load);
}

int bench_fabric_run(const struct bench_fabric_opts *o, bench_progress_fn *progress,
		     struct bench_fabric_result *out)
{
	int rc;

	*out = (struct bench_fabric_result){.gbps = NAN};
	load_result_init(&out->load);
	rc = o->load.profile ? run_cluster(o, out) : run_processes(o, progress, out);
	if (!rc)
		take_figures(o, out);
	return rc;
}

/* ---- printing ---- */

static double known_if(bool known, uint32_t n)
{
	return known ? n : (double)NAN;
}

void bench_fabric_print_json(FILE *f, const struct bench_fabric_opts *o,
			     const struct bench_fabric_result *r)
{
	const bool star = o->topology == FABRIC_IN || o->topology == FABRIC_OUT;
	struct bench_sheet s = {0};

	load_sheet_opts(&s, &o->load);
	sheet_text(&s, "op", bench_ops[o->op]);
	sheet_text(&s, "topology", bench_fabric_topologies[o->topology]);
	sheet_number(&s, "size", o->size_bytes, 0);
	sheet_number(&s, "depth", o->chain, 0);
	sheet_number(&s, "nodes", known_if(!star, o->nodes), 0);
	sheet_number(&s, "machines", known_if(star, o->load.machines), 0);
	sheet_number(&s, "clients", known_if(star, o->load.clients), 0);
	sheet_number(&s, "threads", o->load.threads, 0);
	sheet_number(&s, "qps", o->qps, 0);
	sheet_number(&s, "window", known_if(o->window, o->window), 0);
	sheet_number(&s, "window_qp", known_if(o->window_qp, o->window_qp), 0);
	sheet_number(&s, "window_machine", known_if(o->window_machine, o->window_machine), 0);
	sheet_number(&s, "signal_every", o->signal_every ? o->signal_every : o->chain, 0);
	sheet_number(&s, "shared_by", o->shared_by, 0);
	sheet_number(&s, "requests", o->requests, 0);
	sheet_text(&s, "inline", o->inlined ? "yes" : "no");
	load_sheet_result(&s, &r->load);
	sheet_number(&s, "mops_per_core", r->mops_per_core, 9);
	sheet_number(&s, "mops_per_node", r->mops_per_node, 9);
	sheet_number(&s, "gbps", r->gbps, 9);
	sheet_number(&s, "gbps_per_node", r->gbps_per_node, 9);
	sheet_number(&s, "misses_per_op", r->misses_per_op, 9);
	sheet_json(f, &s, o->load.cpus);
}

#define ROW "%-8s %-8s %8s %10s %10s %9s %9s %9s   %s\n"

void bench_fabric_print_row(FILE *f, const struct bench_fabric_opts *o,
			    const struct bench_fabric_result *r)
{
	char size[16], mops[16], per_node[16], gbps[16], p50[16] = "-", p99[16] = "-", where[96];

	snprintf(size, sizeof(size), "%u B", o->size_bytes);
	snprintf(mops, sizeof(mops), "%.3f", r->load.mops);
	snprintf(per_node, sizeof(per_node), "%.3f", r->mops_per_node);
	snprintf(gbps, sizeof(gbps), "%.2f", r->gbps);
	if (isfinite(r->load.run.p50_ns)) {
		snprintf(p50, sizeof(p50), "%.3f", r->load.run.p50_ns / 1000);
		snprintf(p99, sizeof(p99), "%.3f", r->load.run.p99_ns / 1000);
	}
	snprintf(where, sizeof(where), "%s%.80s", o->load.profile ? "simulated, " : "",
		 o->load.profile ? o->load.profile : o->load.provider);
	fprintf(f, ROW, "op", "topology", "size", "Mops/s", "each node", "Gb/s", "p50 us", "p99 us",
		"");
	fprintf(f, ROW, bench_ops[o->op], bench_fabric_topologies[o->topology], size, mops,
		per_node, gbps, p50, p99, where);
	fflush(f);
}
