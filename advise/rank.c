/* SPDX-License-Identifier: MIT */
/*
 * Makes candidates of the points of the sweeps, and ranks them.
 *
 * A candidate has the fewest outstanding requests, and the fewest threads, that come near its best
 * throughput. Of equal candidates the simplest is chosen: the one that posts fewer receives for a
 * request, then the one that needs less besides the verbs.
 */
#include "advise.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define NEAR 0.98 /* of the best throughput: then fewer requests are better */

/* Ten times the receives that both sides post for a request, plus what else it needs. */
static const unsigned char complexity[GN_MSG_PROTOCOLS + 1] = {
	[GN_MSG_READ] = 0,	  [GN_MSG_WRITE_WRITE] = 1, /* polls memory on both sides */
	[GN_MSG_WRITE_SEND] = 10,			    /* … on one side */
	[GN_MSG_SEND_WRITE] = 11, /* … and the server posts the receives */
	[GN_MSG_SEND_SEND] = 20,  /* … on neither side */
	[GN_MSG_WRITE_IMM] = 21,  /* slots, too */
	[GN_MSG_UD] = 29,	  /* datagrams may be lost */
	[ADVISE_NO_PROTOCOL] = 0,
};

static unsigned candidate_complexity(const struct advise_candidate *c)
{
	/* Two protocols are more complex than any one. */
	return complexity[c->protocol] + complexity[c->writer] +
	       (c->writer == ADVISE_NO_PROTOCOL ? 0 : 100u);
}

bool advise_same(const struct advise_candidate *a, const struct advise_candidate *b)
{
	return a->protocol == b->protocol && a->writer == b->writer;
}

/* ---- one candidate ---- */

/* Reads and writes share the time in proportion. This is calculated, not simulated. */
static void candidate_combine(const struct advise_query *q, const struct advise_point *read,
			      const struct advise_point *write, struct advise_candidate *c)
{
	const double reads = !write ? 1 : read ? q->read_pct / 100.0 : 0;
	double us = 0;

	c->mean_us = c->p99_us = 0;
	c->long_run = true;
	if (read) {
		us = reads / read->mops;
		c->mean_us = reads * read->mean_us;
		c->p99_us = read->p99_us;
		c->long_run = read->long_run;
	}
	if (write) {
		us += (1 - reads) / write->mops;
		c->mean_us += (1 - reads) * write->mean_us;
		c->p99_us = fmax(c->p99_us, write->p99_us);
		c->long_run = c->long_run && write->long_run;
	}
	c->mops = 1 / us;
	c->pending = read ? read->pending : write->pending;
	c->writer_pending = write ? write->pending : 0;
	c->late = q->latency_us > 0 && c->p99_us > q->latency_us;
}

/* Is a to be chosen rather than b, which has the same protocols and threads? */
static bool is_preferred(const struct advise_candidate *a, const struct advise_candidate *b)
{
	if (a->late != b->late)
		return b->late;
	if (a->late)
		return a->p99_us < b->p99_us;
	if (a->long_run != b->long_run)
		return a->long_run;
	return a->mops > b->mops;
}

/* The next pair of points; with one protocol, both of the same pending. */
static bool candidate_next_pair(const struct advise_query *q, const struct advise_sweep *reads,
				const struct advise_sweep *writes, unsigned *i,
				struct advise_candidate *out)
{
	const unsigned nr = reads ? reads->n : 1, nw = writes ? writes->n : 1;

	for (; *i < nr * nw; ++*i) {
		const struct advise_point *r = reads ? &reads->point[*i / nw] : NULL;
		const struct advise_point *w = writes ? &writes->point[*i % nw] : NULL;

		if ((r && r->pending > q->pending_max) || (w && w->pending > q->pending_max) ||
		    (r && w && reads->protocol == writes->protocol && r->pending != w->pending))
			continue;
		candidate_combine(q, r, w, out);
		++*i;
		return true;
	}
	return false;
}

/* False: there are no points. */
static bool candidate_make(const struct advise_query *q, const struct advise_sweep *reads,
			   const struct advise_sweep *writes, struct advise_candidate *out)
{
	struct advise_candidate c = *out, most = {0};
	bool any = false;

	for (unsigned i = 0; candidate_next_pair(q, reads, writes, &i, &c);) {
		if (!any || is_preferred(&c, &most))
			most = c;
		any = true;
	}
	if (!any)
		return false;
	*out = most;
	for (unsigned i = 0; candidate_next_pair(q, reads, writes, &i, &c);)
		if (c.late == most.late && !most.late && c.long_run == most.long_run &&
		    c.mops >= NEAR * most.mops &&
		    c.pending + c.writer_pending < out->pending + out->writer_pending)
			*out = c;
	out->gbps = 8e-3 * out->mops * q->value;
	out->gbps_per_node = out->gbps / (q->topology == BENCH_MSG_MM ? q->nodes : 1);
	return true;
}

static const struct advise_sweep *sweep_find(const struct advise_query *q,
					     const struct advise_sweep *sweeps, unsigned n,
					     enum gn_msg_protocol protocol, unsigned threads,
					     bool writes)
{
	for (unsigned i = 0; i < n; i++)
		if (sweeps[i].nodes == q->nodes && sweeps[i].value == q->value &&
		    sweeps[i].threads == threads && sweeps[i].protocol == protocol &&
		    sweeps[i].writes == writes)
			return &sweeps[i];
	return NULL;
}

static struct advise_candidate candidate_make_with(const struct advise_query *q,
						   const struct advise_sweep *sweeps, unsigned n,
						   enum gn_msg_protocol protocol,
						   enum gn_msg_protocol writer, unsigned threads)
{
	struct advise_candidate c = {
		.protocol = protocol,
		.writer = writer,
		.threads = threads,
		.unranked = protocol == GN_MSG_UD && !q->datagrams,
	};
	const enum gn_msg_protocol by = writer == ADVISE_NO_PROTOCOL ? protocol : writer;
	const struct advise_sweep *reads = NULL, *writes = NULL;

	if (q->read_pct > 0)
		reads = sweep_find(q, sweeps, n, protocol, threads, false);
	if (q->read_pct < 100)
		writes = sweep_find(q, sweeps, n, by, threads, true);
	if ((q->read_pct > 0 && !reads) || (q->read_pct < 100 && !writes))
		c.impossible = "";
	else if (!candidate_make(q, reads, writes, &c))
		c.impossible = reads && !reads->n ? reads->reason : writes ? writes->reason : "";
	return c;
}

/* With different thread counts: fewer threads, unless throughput is lost. */
static bool threads_preferred(const struct advise_candidate *a, const struct advise_candidate *b)
{
	if (!a->impossible != !b->impossible)
		return !a->impossible;
	if (a->impossible)
		return *a->impossible && !*b->impossible;
	if (!a->late && !b->late && a->threads > b->threads)
		return a->mops * (1 - ADVISE_TIE) > b->mops;
	return is_preferred(a, b);
}

static struct advise_candidate candidate_make_best(const struct advise_query *q,
						   const struct advise_sweep *sweeps, unsigned n,
						   enum gn_msg_protocol protocol,
						   enum gn_msg_protocol writer)
{
	struct advise_candidate most = {0};
	unsigned counts[ADVISE_COUNTS_MAX];
	const unsigned n_counts = advise_threads(q, counts);

	for (unsigned i = 0; i < n_counts; i++) {
		struct advise_candidate c =
			candidate_make_with(q, sweeps, n, protocol, writer, counts[i]);

		if (i == 0 || threads_preferred(&c, &most))
			most = c;
	}
	return most;
}

/* ---- the order ---- */

static bool candidate_is_better(const struct advise_candidate *a, const struct advise_candidate *b)
{
	if (!a->impossible != !b->impossible)
		return !a->impossible;
	if (a->unranked != b->unranked)
		return b->unranked;
	if (a->late != b->late)
		return b->late;
	return a->late ? a->p99_us < b->p99_us : a->mops > b->mops;
}

static void result_insert(struct advise_result *out, const struct advise_candidate *c)
{
	unsigned at = out->n++;

	assert(out->n <= ADVISE_CANDIDATES);
	for (; at && candidate_is_better(c, &out->candidate[at - 1]); at--)
		out->candidate[at] = out->candidate[at - 1];
	out->candidate[at] = *c;
}

/* Moves the simplest candidate that is equal to the first to the front. */
static void result_settle_ties(struct advise_result *r)
{
	const double most = r->candidate[0].mops;
	unsigned simplest = 0;
	struct advise_candidate first;

	r->n_equal = 0;
	if (!r->n || r->candidate[0].impossible || r->candidate[0].late)
		return;
	for (unsigned i = 1; i < r->n; i++) {
		const struct advise_candidate *c = &r->candidate[i];

		if (c->impossible || c->unranked || c->late || c->mops < (1 - ADVISE_TIE) * most)
			break;
		r->n_equal = i;
		if (candidate_complexity(c) < candidate_complexity(&r->candidate[simplest]))
			simplest = i;
	}
	first = r->candidate[simplest];
	memmove(&r->candidate[1], &r->candidate[0], simplest * sizeof(first));
	r->candidate[0] = first;
}

/* READ for reads with each other protocol for writes: adds the best; of equal ones the simplest. */
static void result_add_pair(const struct advise_query *q, const struct advise_sweep *sweeps,
			    unsigned n, struct advise_result *out)
{
	struct advise_result pairs = {0};

	for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++) {
		struct advise_candidate c;

		if (i == GN_MSG_READ || !(q->protocols & 1u << i) ||
		    (i == GN_MSG_UD && !q->datagrams))
			continue;
		c = candidate_make_best(q, sweeps, n, GN_MSG_READ, (enum gn_msg_protocol)i);
		if (!c.impossible)
			result_insert(&pairs, &c);
	}
	result_settle_ties(&pairs);
	if (pairs.n)
		result_insert(out, &pairs.candidate[0]);
}

void advise_rank(const struct advise_query *q, const struct advise_sweep *sweeps, unsigned n,
		 struct advise_result *out)
{
	const bool mixed = q->read_pct > 0 && q->read_pct < 100;

	*out = (struct advise_result){0};
	for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++) {
		struct advise_candidate c;

		if (!(q->protocols & 1u << i) || (i == GN_MSG_READ && q->read_pct < 100))
			continue;
		c = candidate_make_best(q, sweeps, n, (enum gn_msg_protocol)i, ADVISE_NO_PROTOCOL);
		/* An empty reason: not yet run. */
		if (!c.impossible || *c.impossible)
			result_insert(out, &c);
	}
	if (mixed && (q->protocols & 1u << GN_MSG_READ))
		result_add_pair(q, sweeps, n, out);
	result_settle_ties(out);
}

struct advise_point *advise_point_of(const struct advise_query *q, struct advise_sweep *sweeps,
				     unsigned n, const struct advise_candidate *c, bool writes)
{
	const enum gn_msg_protocol by = writes && c->writer != ADVISE_NO_PROTOCOL ? c->writer :
										    c->protocol;
	const struct advise_sweep *found = sweep_find(q, sweeps, n, by, c->threads, writes);
	const unsigned pending = writes && q->read_pct > 0 ? c->writer_pending : c->pending;
	struct advise_sweep *sweep = found ? &sweeps[found - sweeps] : NULL;

	for (unsigned i = 0; sweep && i < sweep->n; i++)
		if (sweep->point[i].pending == pending)
			return &sweep->point[i];
	return NULL;
}
