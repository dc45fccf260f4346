/* SPDX-License-Identifier: MIT */
/*
 * What is to be simulated for a question: which clusters, which protocols, and the question's
 * neighbours.
 */
#include "advise.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

/* A simulation holds every buffer, and begins with all of them under way: so many at most. */
#define BUFFERS_BYTES (512ull << 20)
#define UNDER_WAY     30000u

#define OTHER_VALUE 4096u
#define SMALL_VALUE 365u /* S003's, where the question's is large */
#define FEW_THREADS 1u
#define ALL_THREADS 8u

/* A neighbour with more connections takes long: then few protocols and few requests must do. */
#define MANY_CONNS    1000u
#define FEW_PENDING   2u
#define FEW_PROTOCOLS (1u << GN_MSG_READ | 1u << GN_MSG_WRITE_WRITE | 1u << GN_MSG_SEND_SEND)

static const char *const topologies[ADVISE_TOPOLOGIES] = {
	[ADVISE_M1] = "M:1",
	[ADVISE_1M] = "1:M",
	[ADVISE_MM] = "M:M",
};

const char *advise_topology_str(enum advise_topology topology)
{
	return topologies[topology];
}

int advise_topology_parse(const char *text, enum advise_topology *out)
{
	for (unsigned i = 0; i < ADVISE_TOPOLOGIES; i++) {
		if (!strcasecmp(text, topologies[i])) {
			*out = (enum advise_topology)i;
			return 0;
		}
	}
	return -EINVAL;
}

unsigned advise_conns(const struct advise_query *q, unsigned threads)
{
	return q->nodes * threads * (q->topology == ADVISE_MM ? q->nodes - 1 : 1);
}

/* Datagrams need a qp for each thread, whomever it talks to. */
void advise_qps(const struct advise_query *q, enum gn_msg_protocol protocol, unsigned threads,
		unsigned out[2])
{
	const bool ud = protocol == GN_MSG_UD;

	switch (q->topology) {
	case ADVISE_M1:
		out[0] = threads;
		out[1] = ud ? threads : q->nodes * threads;
		break;
	case ADVISE_1M:
		out[0] = ud ? threads : q->nodes * threads;
		out[1] = threads;
		break;
	default:
		out[0] = out[1] = 2 * threads * (ud ? 1 : q->nodes - 1);
		break;
	}
}

int advise_check(const struct advise_query *q, struct lab_error *error)
{
	const unsigned conns = advise_conns(q, q->threads_max);

	if (q->topology == ADVISE_MM && q->nodes < 2)
		return lab_error(error, "--nodes %u: M:M needs two at least", q->nodes);
	if (conns > ADVISE_CONNS_MAX)
		return lab_error(error,
				 "--nodes %u with --threads %u are %u connections; %u can be "
				 "simulated: take fewer nodes or threads",
				 q->nodes, q->threads_max, conns, ADVISE_CONNS_MAX);
	if (q->request > GN_MSG_BYTES_MAX || q->value > GN_MSG_BYTES_MAX)
		return lab_error(error,
				 "--%s %u is too large for every protocol: %u bytes at most, so "
				 "split it",
				 q->request > GN_MSG_BYTES_MAX ? "request" : "value",
				 q->request > GN_MSG_BYTES_MAX ? q->request : q->value,
				 GN_MSG_BYTES_MAX);
	if (q->read_pct < 100 && q->request + q->value > GN_MSG_BYTES_MAX)
		return lab_error(error,
				 "--request %u and --value %u are too large for a write by every "
				 "protocol: %u bytes together at most",
				 q->request, q->value, GN_MSG_BYTES_MAX);
	if (q->read_pct < 100 && !(q->protocols & ~(1u << GN_MSG_READ)))
		return lab_error(error,
				 "--protocols READ cannot write, and --read is %u: name another, "
				 "too",
				 q->read_pct);
	if ((uint64_t)conns * (q->request + q->value) > BUFFERS_BYTES)
		return lab_error(error,
				 "--value %u over %u connections is more than can be simulated: "
				 "take fewer nodes or threads",
				 q->value, conns);
	return 0;
}

/* ---- threads ---- */

/* Each twice the one before, and the most that there may be. */
unsigned advise_threads(const struct advise_query *q, unsigned out[ADVISE_COUNTS_MAX])
{
	unsigned n = 0;

	for (unsigned t = q->threads_min; t < q->threads_max; t *= 2)
		out[n++] = t;
	out[n++] = q->threads_max;
	assert(n <= ADVISE_COUNTS_MAX);
	return n;
}

/* ---- neighbours ---- */

static struct advise_neighbour *add(const struct advise_query *q, struct advise_neighbour *out,
				    unsigned *n)
{
	struct advise_neighbour *neighbour = &out[(*n)++];

	assert(*n <= ADVISE_NEIGHBOURS);
	*neighbour = (struct advise_neighbour){.query = *q};
	return neighbour;
}

/* One that cannot be simulated is left out again. */
static void keep_possible(const struct advise_neighbour *out, unsigned *n)
{
	struct lab_error error;

	if (out[*n - 1].query.nodes > ADVISE_NODES_MAX || advise_check(&out[*n - 1].query, &error))
		(*n)--;
}

static void add_nodes(const struct advise_query *q, unsigned nodes, const char *what,
		      struct advise_neighbour *out, unsigned *n)
{
	struct advise_neighbour *neighbour = add(q, out, n);

	neighbour->query.nodes = nodes;
	snprintf(neighbour->label, sizeof(neighbour->label), "%s the nodes (%u)", what, nodes);
	keep_possible(out, n);
}

static void add_threads(const struct advise_query *q, struct advise_neighbour *out, unsigned *n)
{
	const unsigned threads = q->threads_min == FEW_THREADS ? ALL_THREADS : FEW_THREADS;
	struct advise_neighbour *neighbour = add(q, out, n);

	neighbour->query.threads_min = neighbour->query.threads_max = threads;
	snprintf(neighbour->label, sizeof(neighbour->label), "%u thread%s instead of %u", threads,
		 threads == 1 ? "" : "s", q->threads_min);
	keep_possible(out, n);
}

static void add_value(const struct advise_query *q, struct advise_neighbour *out, unsigned *n)
{
	const uint32_t value = q->value < OTHER_VALUE / 2 ? OTHER_VALUE : SMALL_VALUE;
	struct advise_neighbour *neighbour = add(q, out, n);

	neighbour->query.value = value;
	snprintf(neighbour->label, sizeof(neighbour->label), "values of %u bytes", value);
	keep_possible(out, n);
}

static void add_reads(const struct advise_query *q, struct advise_neighbour *out, unsigned *n)
{
	const unsigned pct = q->read_pct == 100 ? 50 : 100;
	struct advise_neighbour *neighbour = add(q, out, n);

	neighbour->query.read_pct = pct;
	snprintf(neighbour->label, sizeof(neighbour->label), "%u %% reads instead of %u %%", pct,
		 q->read_pct);
	keep_possible(out, n);
}

static void add_pending(const struct advise_query *q, struct advise_neighbour *out, unsigned *n)
{
	struct advise_neighbour *neighbour = add(q, out, n);

	neighbour->query.pending_max = 1;
	snprintf(neighbour->label, sizeof(neighbour->label), "1 request under way on each qp");
}

/* The question itself was asked of all of them, whatever that took. */
static void spare(const struct advise_query *q, const struct advise_candidate *winner,
		  struct advise_query *there)
{
	const unsigned conns = advise_conns(there, there->threads_min);

	if (conns <= MANY_CONNS || conns <= advise_conns(q, q->threads_min))
		return;
	there->protocols &= FEW_PROTOCOLS | 1u << winner->protocol | 1u << winner->writer;
	if (there->pending_max > FEW_PENDING)
		there->pending_max = FEW_PENDING;
}

unsigned advise_neighbours(const struct advise_query *q, const struct advise_candidate *winner,
			   struct advise_neighbour out[ADVISE_NEIGHBOURS])
{
	unsigned n = 0;

	add_nodes(q, 2 * q->nodes, "twice", out, &n);
	if (q->nodes / 2 > (q->topology == ADVISE_MM))
		add_nodes(q, q->nodes / 2, "half", out, &n);
	add_threads(q, out, &n);
	add_value(q, out, &n);
	if (q->pending_max > 1)
		add_pending(q, out, &n);
	add_reads(q, out, &n);
	for (unsigned i = 0; i < n; i++)
		spare(q, winner, &out[i].query);
	return n;
}

/* ---- ladders ---- */

static unsigned pending_max(const struct advise_query *q, unsigned threads)
{
	const uint64_t conns = advise_conns(q, threads);
	const uint64_t buffers = BUFFERS_BYTES / (conns * (q->request + q->value));
	const uint64_t requests = UNDER_WAY / conns;
	uint64_t most = q->pending_max < buffers ? q->pending_max : buffers;

	most = most < requests ? most : requests;
	return most ? (unsigned)most : 1;
}

static bool is_there(const struct advise_ladder *ladders, unsigned n,
		     const struct advise_ladder *wanted)
{
	for (unsigned i = 0; i < n; i++)
		if (ladders[i].nodes == wanted->nodes && ladders[i].threads == wanted->threads &&
		    ladders[i].value == wanted->value && ladders[i].protocol == wanted->protocol &&
		    ladders[i].writes == wanted->writes)
			return true;
	return false;
}

unsigned advise_ladders(const struct advise_query *q, unsigned threads,
			struct advise_ladder *ladders, unsigned n)
{
	for (unsigned i = 0; i < 2 * GN_MSG_PROTOCOLS; i++) {
		const struct advise_ladder wanted = {
			.nodes = q->nodes,
			.threads = threads,
			.value = q->value,
			.protocol = i % GN_MSG_PROTOCOLS,
			.writes = i >= GN_MSG_PROTOCOLS,
			.whole = q->read_pct > 0 && q->read_pct < 100,
			.pending_max = pending_max(q, threads),
		};

		if (!(q->protocols & 1u << wanted.protocol) ||
		    (wanted.writes ? q->read_pct == 100 : q->read_pct == 0) ||
		    (wanted.writes && wanted.protocol == GN_MSG_READ) ||
		    is_there(ladders, n, &wanted))
			continue;
		assert(n < ADVISE_LADDERS_MAX);
		ladders[n++] = wanted;
	}
	return n;
}
