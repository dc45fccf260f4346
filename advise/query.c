/* SPDX-License-Identifier: MIT */
/*
 * The simulations that a query needs: its limits, its thread counts, its variants, its sweeps.
 */
#include "advise.h"

#include <assert.h>

/* A simulation holds every buffer, and begins with all requests outstanding. */
#define BUFFERS_BYTES (512ull << 20)
#define IN_FLIGHT_MAX 30000u

#define OTHER_VALUE 4096u
#define SMALL_VALUE 365u /* the message passing evaluation's */
#define FEW_THREADS 1u
#define ALL_THREADS 8u

/* A variant with more connections takes long: it gets few protocols and few requests. */
#define MANY_CONNS    1000u
#define FEW_PENDING   2u
#define FEW_PROTOCOLS (1u << GN_MSG_READ | 1u << GN_MSG_WRITE_WRITE | 1u << GN_MSG_SEND_SEND)

unsigned advise_conns(const struct advise_query *q, unsigned threads)
{
	return q->nodes * threads * (q->topology == BENCH_MSG_MM ? q->nodes - 1 : 1);
}

/* UD needs one qp for each thread, whatever the number of peers. */
void advise_qps(const struct advise_query *q, enum gn_msg_protocol protocol, unsigned threads,
		unsigned out[2])
{
	const bool ud = protocol == GN_MSG_UD;

	switch (q->topology) {
	case BENCH_MSG_M1:
		out[0] = threads;
		out[1] = ud ? threads : q->nodes * threads;
		break;
	case BENCH_MSG_1M:
		out[0] = ud ? threads : q->nodes * threads;
		out[1] = threads;
		break;
	default:
		out[0] = out[1] = 2 * threads * (ud ? 1 : q->nodes - 1);
		break;
	}
}

int advise_check(const struct advise_query *q, char why[BENCH_WHY_MAX])
{
	const unsigned conns = advise_conns(q, q->threads_max);

	if (q->topology == BENCH_MSG_MM && q->nodes < 2)
		return bench_refuse(why, "--nodes %u: M:M needs two at least", q->nodes);
	if (conns > ADVISE_CONNS_MAX)
		return bench_refuse(why,
				    "--nodes %u with --threads %u are %u connections; %u can be "
				    "simulated: take fewer nodes or threads",
				    q->nodes, q->threads_max, conns, ADVISE_CONNS_MAX);
	if (q->request > GN_MSG_BYTES_MAX || q->value > GN_MSG_BYTES_MAX)
		return bench_refuse(why,
				    "--%s %u is too large for every protocol: %u bytes at most, so "
				    "split it",
				    q->request > GN_MSG_BYTES_MAX ? "request" : "value",
				    q->request > GN_MSG_BYTES_MAX ? q->request : q->value,
				    GN_MSG_BYTES_MAX);
	if (q->read_pct < 100 && q->request + q->value > GN_MSG_BYTES_MAX)
		return bench_refuse(
			why,
			"--request %u and --value %u are too large for a write by every "
			"protocol: %u bytes together at most",
			q->request, q->value, GN_MSG_BYTES_MAX);
	if (q->read_pct < 100 && !(q->protocols & ~(1u << GN_MSG_READ)))
		return bench_refuse(
			why,
			"--protocols READ cannot write, and --read is %u: name another, "
			"too",
			q->read_pct);
	if ((uint64_t)conns * (q->request + q->value) > BUFFERS_BYTES)
		return bench_refuse(why,
				    "--value %u over %u connections is more than can be simulated: "
				    "take fewer nodes or threads",
				    q->value, conns);
	return 0;
}

/* ---- threads ---- */

/* Powers of two times threads_min, and threads_max. */
unsigned advise_threads(const struct advise_query *q, unsigned out[ADVISE_COUNTS_MAX])
{
	unsigned n = 0;

	for (unsigned t = q->threads_min; t < q->threads_max; t *= 2)
		out[n++] = t;
	out[n++] = q->threads_max;
	assert(n <= ADVISE_COUNTS_MAX);
	return n;
}

/* ---- variants ---- */

static struct advise_variant *variant_add(const struct advise_query *q, struct advise_variant *out,
					  unsigned *n)
{
	struct advise_variant *variant = &out[(*n)++];

	assert(*n <= ADVISE_VARIANTS_MAX);
	*variant = (struct advise_variant){.query = *q};
	return variant;
}

/* Drops the last variant if it cannot be simulated. */
static void variant_keep_if_possible(const struct advise_variant *out, unsigned *n)
{
	char why[BENCH_WHY_MAX];

	if (out[*n - 1].query.nodes > ADVISE_NODES_MAX || advise_check(&out[*n - 1].query, why))
		(*n)--;
}

static void variant_nodes(const struct advise_query *q, unsigned nodes, const char *what,
			  struct advise_variant *out, unsigned *n)
{
	struct advise_variant *variant = variant_add(q, out, n);

	variant->query.nodes = nodes;
	snprintf(variant->label, sizeof(variant->label), "%s the nodes (%u)", what, nodes);
	variant_keep_if_possible(out, n);
}

static void variant_threads(const struct advise_query *q, struct advise_variant *out, unsigned *n)
{
	const unsigned threads = q->threads_min == FEW_THREADS ? ALL_THREADS : FEW_THREADS;
	struct advise_variant *variant = variant_add(q, out, n);

	variant->query.threads_min = variant->query.threads_max = threads;
	snprintf(variant->label, sizeof(variant->label), "%u thread%s instead of %u", threads,
		 threads == 1 ? "" : "s", q->threads_min);
	variant_keep_if_possible(out, n);
}

static void variant_value(const struct advise_query *q, struct advise_variant *out, unsigned *n)
{
	const uint32_t value = q->value < OTHER_VALUE / 2 ? OTHER_VALUE : SMALL_VALUE;
	struct advise_variant *variant = variant_add(q, out, n);

	variant->query.value = value;
	snprintf(variant->label, sizeof(variant->label), "values of %u bytes", value);
	variant_keep_if_possible(out, n);
}

static void variant_reads(const struct advise_query *q, struct advise_variant *out, unsigned *n)
{
	const unsigned pct = q->read_pct == 100 ? 50 : 100;
	struct advise_variant *variant = variant_add(q, out, n);

	variant->query.read_pct = pct;
	snprintf(variant->label, sizeof(variant->label), "%u %% reads instead of %u %%", pct,
		 q->read_pct);
	variant_keep_if_possible(out, n);
}

static void variant_pending(const struct advise_query *q, struct advise_variant *out, unsigned *n)
{
	struct advise_variant *variant = variant_add(q, out, n);

	variant->query.pending_max = 1;
	snprintf(variant->label, sizeof(variant->label), "1 outstanding request on each QP");
}

/* The query itself is run with all protocols, however long that takes. */
static void variant_limit_cost(const struct advise_query *q, const struct advise_candidate *winner,
			       struct advise_query *there)
{
	const unsigned conns = advise_conns(there, there->threads_min);

	if (conns <= MANY_CONNS || conns <= advise_conns(q, q->threads_min))
		return;
	there->protocols &= FEW_PROTOCOLS | 1u << winner->protocol | 1u << winner->writer;
	if (there->pending_max > FEW_PENDING)
		there->pending_max = FEW_PENDING;
}

unsigned advise_variants(const struct advise_query *q, const struct advise_candidate *winner,
			 struct advise_variant out[ADVISE_VARIANTS_MAX])
{
	unsigned n = 0;

	variant_nodes(q, 2 * q->nodes, "twice", out, &n);
	if (q->nodes / 2 > (q->topology == BENCH_MSG_MM))
		variant_nodes(q, q->nodes / 2, "half", out, &n);
	variant_threads(q, out, &n);
	variant_value(q, out, &n);
	if (q->pending_max > 1)
		variant_pending(q, out, &n);
	variant_reads(q, out, &n);
	for (unsigned i = 0; i < n; i++)
		variant_limit_cost(q, winner, &out[i].query);
	return n;
}

/* ---- sweeps ---- */

static unsigned sweep_pending_max(const struct advise_query *q, unsigned threads)
{
	const uint64_t conns = advise_conns(q, threads);
	const uint64_t buffers = BUFFERS_BYTES / (conns * (q->request + q->value));
	const uint64_t requests = IN_FLIGHT_MAX / conns;
	uint64_t most = q->pending_max < buffers ? q->pending_max : buffers;

	most = most < requests ? most : requests;
	return most ? (unsigned)most : 1;
}

static bool sweep_is_planned(const struct advise_sweep *sweeps, unsigned n,
			     const struct advise_sweep *wanted)
{
	for (unsigned i = 0; i < n; i++)
		if (sweeps[i].nodes == wanted->nodes && sweeps[i].threads == wanted->threads &&
		    sweeps[i].value == wanted->value && sweeps[i].protocol == wanted->protocol &&
		    sweeps[i].writes == wanted->writes)
			return true;
	return false;
}

unsigned advise_sweeps(const struct advise_query *q, unsigned threads, struct advise_sweep *sweeps,
		       unsigned n)
{
	for (unsigned i = 0; i < 2 * GN_MSG_PROTOCOLS; i++) {
		const struct advise_sweep wanted = {
			.nodes = q->nodes,
			.threads = threads,
			.value = q->value,
			.protocol = i % GN_MSG_PROTOCOLS,
			.writes = i >= GN_MSG_PROTOCOLS,
			.whole = q->read_pct > 0 && q->read_pct < 100,
			.pending_max = sweep_pending_max(q, threads),
		};

		if (!(q->protocols & 1u << wanted.protocol) ||
		    (wanted.writes ? q->read_pct == 100 : q->read_pct == 0) ||
		    (wanted.writes && wanted.protocol == GN_MSG_READ) ||
		    sweep_is_planned(sweeps, n, &wanted))
			continue;
		assert(n < ADVISE_SWEEPS_MAX);
		sweeps[n++] = wanted;
	}
	return n;
}
