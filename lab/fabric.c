/* SPDX-License-Identifier: MIT */
/*
 * The layer "fabric" of the list of figures: READs, WRITEs, atomics and datagrams without any
 * library above the fabric. A configuration becomes a load and a cluster, a run becomes metrics.
 */
#include "lab.h"

#include <errno.h>
#include <string.h>

#include "cluster.h"

#define INLINE_MAX	 92u /* S000 3.2 */
#define LINE		 64u
#define OPT_SIGNAL_EVERY 16u
#define CACHE_REGION	 (256u << 10)
#define DRAM_REGION	 (256u << 20)
#define THREADS_MAX	 512u
#define MACHINES_MAX	 256u
#define QPS_MAX		 1024u
#define SIZE_MAX_BYTES	 (16u << 20)

static const char *const keys[] = {
	"op",
	"dir",
	"size",
	"inline",
	"signaled",
	"transport",
	"qps_per_thread",
	"shared_by",
	"region",
	"opt",
	"pending",
	"window",
	"window_machine",
	"client_machines",
	"clients_per_machine",
	"server_threads",
	"procs",
	"nodes",
	"threads",
	"vms",
	"topology",
	"key",
	"value",
	"protocol",
	"reads_per_request",
	/* Who answers in S003's other protocols: a READ needs nobody. */
	"resp_threads",
	"qps_per_resp_thread",
};

#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* The configuration's numbers; 0 where a key is absent and has no default. */
struct shape {
	uint64_t size, key, value, pending, window, window_machine;
	uint64_t machines, clients, server_threads, nodes, threads, vms, qps, shared_by, reads;
	bool each; /* every thread its own process */
};

/* ---- reading the configuration ---- */

/* As many as the profile's machine has (S004: 8 and 14 cores). */
static int all_threads(const char *profile, uint64_t *out, struct lab_error *error)
{
	if (!strcmp(profile, "cx3-fdr"))
		*out = 8;
	else if (!strcmp(profile, "connect-ib"))
		*out = 14;
	else
		return lab_error(error, "threads=all is not known for profile %s", profile);
	return 0;
}

static int read_shape(const struct config *c, const char *profile, struct shape *s,
		      struct lab_error *error)
{
	const struct config_number numbers[] = {
		{"size", 0, 1, SIZE_MAX_BYTES, &s->size},
		{"key", 0, 0, SIZE_MAX_BYTES, &s->key},
		{"value", 0, 1, SIZE_MAX_BYTES, &s->value},
		{"pending", 0, 1, FAB_WINDOW_MAX, &s->pending},
		{"window", 0, 1, FAB_WINDOW_MAX, &s->window},
		{"window_machine", 0, 1, FAB_WINDOW_MAX, &s->window_machine},
		{"client_machines", 1, 1, MACHINES_MAX, &s->machines},
		{"clients_per_machine", 1, 1, THREADS_MAX, &s->clients},
		{"server_threads", 1, 1, THREADS_MAX, &s->server_threads},
		{"nodes", 0, 1, MACHINES_MAX, &s->nodes},
		{"vms", 1, 1, 64, &s->vms},
		{"qps_per_thread", 0, 1, QPS_MAX, &s->qps},
		{"shared_by", 1, 1, THREADS_MAX, &s->shared_by},
		{"reads_per_request", 1, 1, 1024, &s->reads},
	};
	int rc = config_numbers(c, numbers, sizeof(numbers) / sizeof(numbers[0]), error);

	if (!rc && config_is(c, "threads", "all"))
		rc = all_threads(profile, &s->threads, error);
	else if (!rc)
		rc = config_uint(c, "threads", 1, 1, THREADS_MAX, &s->threads, error);
	return rc ? rc : config_each(c, &s->each, error);
}

static int read_op(const struct config *c, struct fab_opts *o, struct lab_error *error)
{
	static const struct {
		const char *name;
		enum gn_op op;
	} ops[] = {
		{"READ", GN_OP_READ},
		{"WRITE", GN_OP_WRITE},
		{"SEND", GN_OP_SEND},
		{"FAA", GN_OP_FAA},
	};
	const char *op = config_get(c, "op"), *transport = config_get(c, "transport");

	if (!op)
		op = config_get(c, "protocol");
	if (!op)
		return lab_error(error, "op is missing");
	o->op = GN_OPS;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (!strcmp(op, ops[i].name))
			o->op = ops[i].op;
	if (o->op == GN_OPS)
		return lab_error(error, "op '%s' is not READ, WRITE, SEND or FAA", op);
	if (transport && strcmp(transport, "UD"))
		return lab_error(error, "transport=%s is not UD", transport);
	o->ud = transport != NULL;
	if (o->ud != (o->op == GN_OP_SEND))
		return lab_error(error, "%s",
				 o->ud ? "transport=UD has SENDs only" :
					 "op=SEND needs transport=UD here");
	return 0;
}

/* signaled=yes|no|1/N and opt=, which sets it too. */
static int read_signals(const struct config *c, const struct shape *s, struct fab_opts *o,
			struct lab_error *error)
{
	const char *signaled = config_get(c, "signaled"), *opt = config_get(c, "opt");
	const bool windows = s->pending || s->window || s->window_machine;
	struct config part = {0};
	uint64_t n = 1;

	if (opt && strcmp(opt, "none") && strcmp(opt, "inline") && strcmp(opt, "unsignaled") &&
	    strcmp(opt, "both"))
		return lab_error(error, "opt=%s is not none, inline, unsignaled or both", opt);
	if (opt && (!strcmp(opt, "unsignaled") || !strcmp(opt, "both")))
		n = OPT_SIGNAL_EVERY;
	else if (signaled && !strcmp(signaled, "no"))
		n = FAB_CHAIN_MAX;
	else if (signaled && strcmp(signaled, "yes")) {
		if (strncmp(signaled, "1/", 2) ||
		    config_set(&part, "signaled", signaled + 2, error) ||
		    config_uint(&part, "signaled", 1, 1, FAB_CHAIN_MAX, &n, error))
			return lab_error(error, "signaled=%s is not yes, no or 1/N, N up to %u",
					 signaled, FAB_CHAIN_MAX);
	}
	o->signal_every = (unsigned)n;
	o->stream = n > 1 && !windows;
	return 0;
}

static int read_inline(const struct config *c, struct fab_opts *o, struct lab_error *error)
{
	const char *text = config_get(c, "inline"), *opt = config_get(c, "opt");
	const bool can = o->op == GN_OP_WRITE || o->op == GN_OP_SEND;

	if (text && strcmp(text, "yes") && strcmp(text, "no"))
		return lab_error(error, "inline=%s is neither yes nor no", text);
	if (opt)
		o->inlined = !strcmp(opt, "inline") || !strcmp(opt, "both");
	else if (text)
		o->inlined = !strcmp(text, "yes");
	else
		o->inlined = can && o->size_bytes <= INLINE_MAX;
	if (o->inlined && !can)
		return lab_error(error, "only WRITE and SEND can be inline");
	return 0;
}

static int read_buffers(const struct config *c, const struct shape *s, struct fab_opts *o,
			struct lab_error *error)
{
	const char *region = config_get(c, "region");

	if (!s->value == !s->size)
		return lab_error(error, "one of size and value is needed");
	o->size_bytes = (uint32_t)(s->value ? s->value : s->size);
	o->lead_bytes = s->value ? (uint32_t)s->key : 0;
	/* S003's buffers lie end to end; others each begin a cache line. */
	o->buffer_bytes = s->value ? o->lead_bytes + o->size_bytes :
				     (o->size_bytes + LINE - 1) / LINE * LINE;
	if (o->ud)
		o->buffer_bytes += GN_GRH_BYTES;
	if (o->op != GN_OP_FAA)
		return region ? lab_error(error, "region= is for atomics") : 0;
	if (o->size_bytes != 8)
		return lab_error(error, "an atomic has 8 bytes, not %u", o->size_bytes);
	if (!region || (strcmp(region, "cache") && strcmp(region, "dram")))
		return lab_error(error, "region=%s is neither cache nor dram",
				 region ? region : "");
	o->region_bytes = !strcmp(region, "cache") ? CACHE_REGION : DRAM_REGION;
	return 0;
}

static int read_window(const struct config *c, const struct shape *s, struct fab_opts *o,
		       struct lab_error *error)
{
	if (!!s->pending + !!s->window + !!s->window_machine > 1)
		return lab_error(error,
				 "only one of pending, window and window_machine makes sense");
	o->requests_per_op = (unsigned)s->reads;
	o->shared_by = (unsigned)s->shared_by;
	o->window = s->pending ? (unsigned)s->pending : s->window ? (unsigned)s->window : 1;
	/*
	 * S002's server threads pick a client for each request and wait for it: pending is what a
	 * thread has under way. In S003's clusters it is what each connection has.
	 */
	o->per_qp = s->pending && config_get(c, "topology");
	if (o->stream)
		return s->shared_by > 1 ? lab_error(error, "shared_by needs a window") : 0;
	if (o->per_qp && (o->signal_every > 1 || s->shared_by > 1))
		return lab_error(error, "pending per connection needs signaled=yes and no sharing");
	if ((s->window_machine ? s->window_machine : o->window) % o->signal_every ||
	    (s->window_machine && o->signal_every > 1))
		return lab_error(error, "a window of %u cannot be posted %u at a time", o->window,
				 o->signal_every);
	if (o->signal_every > 1 && o->requests_per_op > 1)
		return lab_error(error, "reads_per_request needs signaled=yes");
	return 0;
}

static int read_load(const struct config *c, const struct shape *s, struct fab_opts *o,
		     struct lab_error *error)
{
	int rc = read_op(c, o, error);

	if (!rc)
		rc = read_signals(c, s, o, error);
	if (!rc)
		rc = read_buffers(c, s, o, error);
	if (!rc)
		rc = read_inline(c, o, error);
	if (!rc)
		rc = read_window(c, s, o, error);
	return rc;
}

/* ---- the cluster ---- */

/* The threads of one machine, as one process or as one each. */
static int add_machine(struct cluster *c, const struct shape *s, unsigned node, uint64_t threads,
		       bool requests)
{
	const uint64_t procs = s->each ? threads : 1;
	const unsigned each = requests ? (unsigned)(threads / procs) : 0;
	const unsigned first = c->n_procs;

	for (uint64_t i = 0; i < procs; i++)
		if (!cluster_add(c, node, each))
			return -ENOMEM;
	if (requests && s->window_machine)
		return cluster_spread(c, first, (unsigned)procs, (unsigned)s->window_machine);
	return 0;
}

/* Clients read and write the server's memory, or its threads theirs. Node 0 is the server. */
static int build_server(struct cluster *c, const struct shape *s, bool in)
{
	const uint64_t qps = (s->qps ? s->qps : 1) * s->vms;
	unsigned server, clients;
	int rc = add_machine(c, s, 0, s->server_threads, !in);

	server = c->n_procs;
	for (unsigned m = 1; m <= s->machines && !rc; m++)
		rc = add_machine(c, s, m, s->clients, in);
	clients = c->n_procs - server;
	c->n_nodes = 1 + (unsigned)s->machines;
	for (unsigned i = 0; in && i < clients && !rc; i++)
		rc = cluster_connect(c, server + i, i % server, (unsigned)qps);
	/* A server thread is connected to every client thread. */
	for (unsigned k = 0; !in && k < server && !rc; k++)
		for (unsigned i = 0; i < clients && !rc; i++)
			rc = cluster_connect(c, k, server + i,
					     (unsigned)((s->each ? 1 : s->clients) * qps));
	c->load.receivers = c->load.ud ? (s->each ? 1 : (unsigned)s->clients) : 0;
	return rc;
}

static int build_many_to_one(struct cluster *c, const struct shape *s)
{
	int rc = add_machine(c, s, 0, 1, false);

	c->n_nodes = 1 + (unsigned)s->nodes;
	for (unsigned m = 1; m < c->n_nodes && !rc; m++) {
		const unsigned first = c->n_procs;

		rc = add_machine(c, s, m, s->threads, true);
		for (unsigned i = first; i < c->n_procs && !rc; i++)
			rc = cluster_connect(c, i, 0, (unsigned)((s->qps ? s->qps : 1) * s->vms));
	}
	return rc;
}

static int build_one_to_many(struct cluster *c, const struct shape *s)
{
	int rc = add_machine(c, s, 0, s->threads, true);
	const unsigned requesters = c->n_procs;

	c->n_nodes = 1 + (unsigned)s->nodes;
	for (unsigned m = 1; m < c->n_nodes && !rc; m++) {
		rc = add_machine(c, s, m, 1, false);
		for (unsigned i = 0; i < requesters && !rc; i++)
			rc = cluster_connect(c, i, c->n_procs - 1,
					     (unsigned)((s->qps ? s->qps : 1) * s->vms));
	}
	return rc;
}

/* Each thread is connected to every other machine, or to so many, going round. */
static int build_many_to_many(struct cluster *c, const struct shape *s, struct lab_error *error)
{
	const unsigned n = (unsigned)s->nodes;
	const uint64_t qps = (s->qps ? s->qps : n - 1) * s->vms;
	int rc = 0;

	if (n < 2)
		return lab_error(error, "nodes=%u: at least 2 are needed to reach another", n);
	if (s->each)
		return lab_error(error, "procs=each does not go with topology=mm");
	c->n_nodes = n;
	for (unsigned m = 0; m < n && !rc; m++)
		rc = add_machine(c, s, m, s->threads, true);
	for (unsigned m = 0; m < n && !rc; m++)
		for (uint64_t k = 0; k < qps && !rc; k++)
			rc = cluster_connect(c, m, (m + 1 + (unsigned)(k % (n - 1))) % n, 1);
	return rc;
}

static int build(const struct config *config, const struct shape *s, struct cluster *c,
		 struct lab_error *error)
{
	const char *topology = config_get(config, "topology"), *dir = config_get(config, "dir");
	int rc;

	if (topology && !s->nodes)
		return lab_error(error, "topology=%s needs nodes", topology);
	if (topology && c->load.ud)
		return lab_error(error, "datagrams need dir= and not topology=");
	if (topology && !strcmp(topology, "m1"))
		rc = build_many_to_one(c, s);
	else if (topology && !strcmp(topology, "1m"))
		rc = build_one_to_many(c, s);
	else if (topology && !strcmp(topology, "mm"))
		rc = build_many_to_many(c, s, error);
	else if (topology)
		return lab_error(error, "topology=%s is not m1, 1m or mm", topology);
	else if (dir && (!strcmp(dir, "in") || !strcmp(dir, "out")))
		rc = build_server(c, s, !strcmp(dir, "in"));
	else
		return lab_error(error, "dir=%s is neither in nor out", dir ? dir : "");
	if (rc == -ENOMEM)
		lab_error(error, "no memory for a cluster of %u machines", c->n_nodes);
	return rc;
}

/* ---- metrics ---- */

/* In-bound at a server: its own cache. Otherwise the caches of all that have something to do. */
static double misses_per_op(const struct trial_result *r, unsigned nodes, bool in)
{
	uint64_t misses = 0, requests = 0;

	if (in) {
		misses = r->stats[0].inbound_misses;
		requests = r->stats[0].inbound;
	}
	for (unsigned i = 0; !in && i < nodes; i++) {
		misses += r->stats[i].cache_misses;
		requests += r->stats[i].requests;
	}
	return requests ? (double)misses / (double)requests : 0;
}

static void metrics(const struct cluster *c, const struct trial_result *r, bool in,
		    struct lab_metrics *out)
{
	const double mops = 1e3 * (double)r->ops / (double)r->ns;
	const double gbps = 8e-3 * mops * c->load.size_bytes;
	unsigned threads = 0, nodes = 0, last = UINT32_MAX;

	for (unsigned i = 0; i < c->n_procs; i++) {
		threads += c->procs[i].n_threads;
		if (c->procs[i].n_threads && c->procs[i].node != last) {
			last = c->procs[i].node;
			nodes++;
		}
	}
	out->n = 0;
	lab_metric_add(out, "mops", mops);
	lab_metric_add(out, "mops_per_core", mops / threads);
	lab_metric_add(out, "mops_per_node", mops / nodes);
	lab_metric_add(out, "gbps", gbps);
	lab_metric_add(out, "gbps_per_node", gbps / nodes);
	lab_metric_add(out, "misses_per_op", misses_per_op(r, c->n_nodes, in));
	if (c->load.stream)
		return;
	lab_metric_add(out, "latency_us_mean", 1e-3 * r->latency_ns_mean);
	lab_metric_add(out, "p15_us", 1e-3 * r->p15_ns);
	lab_metric_add(out, "p50_us", 1e-3 * r->p50_ns);
	lab_metric_add(out, "p99_us", 1e-3 * r->p99_ns);
}

int lab_fabric_cluster(const struct config *config, const char *profile, struct cluster *out,
		       struct lab_error *error)
{
	struct shape shape = {0};
	int rc = config_known(config, keys, KEYS, "fabric", error);

	*out = (struct cluster){0};
	if (!rc)
		rc = read_shape(config, profile, &shape, error);
	if (!rc)
		rc = read_load(config, &shape, &out->load, error);
	if (!rc)
		rc = build(config, &shape, out, error);
	if (rc)
		cluster_free(out);
	return rc;
}

int lab_fabric_run(const struct lab_setup *setup, const struct config *config,
		   struct lab_metrics *out, struct lab_error *error)
{
	const struct cluster_opts opts = {
		.card = setup->card,
		.seed = setup->seed,
		.effort = setup->effort,
		.interrupted = setup->interrupted,
	};
	struct cluster cluster;
	struct trial_result result;
	int rc = lab_fabric_cluster(config, setup->profile, &cluster, error);

	if (rc)
		return rc;
	rc = cluster_run(&cluster, &opts, &result, error);
	if (!rc) {
		metrics(&cluster, &result, config_is(config, "dir", "in"), out);
		trial_result_free(&result);
	}
	cluster_free(&cluster);
	return rc;
}
