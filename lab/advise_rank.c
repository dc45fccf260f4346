/* SPDX-License-Identifier: MIT */
/*
 * From points to candidates, and from candidates to an order of them.
 *
 * A candidate has as few requests under way, and as few threads, as get it near its most. Of
 * candidates that are equal the simplest is taken: one with fewer receives to post for a request,
 * then one that needs fewer things beside the verbs.
 */
#include "advise.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define NEAR 0.98 /* of the most: then fewer under way are better */

/* Receives that are posted for a request by both sides, times ten, and what else it takes. */
static const unsigned char effort_of[GN_MSG_PROTOCOLS + 1] = {
	[GN_MSG_READ] = 0,	  [GN_MSG_WRITE_WRITE] = 1, /* looks at memory, on both sides */
	[GN_MSG_WRITE_SEND] = 10,			    /* … on one side */
	[GN_MSG_SEND_WRITE] = 11, /* … and the side that serves many posts the receives */
	[GN_MSG_SEND_SEND] = 20,  /* … nowhere */
	[GN_MSG_WRITE_IMM] = 21,  /* places to agree upon, too */
	[GN_MSG_UD] = 29,	  /* losses */
	[ADVISE_NO_PROTOCOL] = 0,
};

static unsigned effort(const struct advise_candidate *c)
{
	/* Two protocols are more than any one. */
	return effort_of[c->protocol] + effort_of[c->writer] +
	       (c->writer == ADVISE_NO_PROTOCOL ? 0 : 100u);
}

bool advise_same(const struct advise_candidate *a, const struct advise_candidate *b)
{
	return a->protocol == b->protocol && a->writer == b->writer;
}

/* ---- one candidate ---- */

/* Reads and writes share the time in proportion: what is combined is a rule, not a run. */
static void combine(const struct advise_query *q, const struct advise_point *read,
		    const struct advise_point *write, struct advise_candidate *c)
{
	const double reads = !write ? 1 : read ? q->read_pct / 100.0 : 0;
	double us = 0;

	c->mean_us = c->p99_us = 0;
	c->longer = true;
	if (read) {
		us = reads / read->mops;
		c->mean_us = reads * read->mean_us;
		c->p99_us = read->p99_us;
		c->longer = read->longer;
	}
	if (write) {
		us += (1 - reads) / write->mops;
		c->mean_us += (1 - reads) * write->mean_us;
		c->p99_us = fmax(c->p99_us, write->p99_us);
		c->longer = c->longer && write->longer;
	}
	c->mops = 1 / us;
	c->pending = read ? read->pending : write->pending;
	c->writer_pending = write ? write->pending : 0;
	c->late = q->latency_us > 0 && c->p99_us > q->latency_us;
}

/* Is a, of the same protocols and threads, to be taken rather than b? */
static bool is_preferred(const struct advise_candidate *a, const struct advise_candidate *b)
{
	if (a->late != b->late)
		return b->late;
	if (a->late)
		return a->p99_us < b->p99_us;
	if (a->longer != b->longer)
		return a->longer;
	return a->mops > b->mops;
}

/* The pairs of points that there are, the same protocol with as many of both under way. */
static bool next_pair(const struct advise_query *q, const struct advise_ladder *reads,
		      const struct advise_ladder *writes, unsigned *i, struct advise_candidate *out)
{
	const unsigned nr = reads ? reads->n : 1, nw = writes ? writes->n : 1;

	for (; *i < nr * nw; ++*i) {
		const struct advise_point *r = reads ? &reads->point[*i / nw] : NULL;
		const struct advise_point *w = writes ? &writes->point[*i % nw] : NULL;

		if ((r && r->pending > q->pending_max) || (w && w->pending > q->pending_max) ||
		    (r && w && reads->protocol == writes->protocol && r->pending != w->pending))
			continue;
		combine(q, r, w, out);
		++*i;
		return true;
	}
	return false;
}

/* False: there is nothing to make it of. */
static bool make(const struct advise_query *q, const struct advise_ladder *reads,
		 const struct advise_ladder *writes, struct advise_candidate *out)
{
	struct advise_candidate c = *out, most = {0};
	bool any = false;

	for (unsigned i = 0; next_pair(q, reads, writes, &i, &c);) {
		if (!any || is_preferred(&c, &most))
			most = c;
		any = true;
	}
	if (!any)
		return false;
	*out = most;
	for (unsigned i = 0; next_pair(q, reads, writes, &i, &c);)
		if (c.late == most.late && !most.late && c.longer == most.longer &&
		    c.mops >= NEAR * most.mops &&
		    c.pending + c.writer_pending < out->pending + out->writer_pending)
			*out = c;
	out->gbps = 8e-3 * out->mops * q->value;
	out->gbps_per_node = out->gbps / (q->topology == ADVISE_MM ? q->nodes : 1);
	return true;
}

static const struct advise_ladder *find(const struct advise_query *q,
					const struct advise_ladder *ladders, unsigned n,
					enum gn_msg_protocol protocol, unsigned threads,
					bool writes)
{
	for (unsigned i = 0; i < n; i++)
		if (ladders[i].nodes == q->nodes && ladders[i].value == q->value &&
		    ladders[i].threads == threads && ladders[i].protocol == protocol &&
		    ladders[i].writes == writes)
			return &ladders[i];
	return NULL;
}

static struct advise_candidate make_with(const struct advise_query *q,
					 const struct advise_ladder *ladders, unsigned n,
					 enum gn_msg_protocol protocol, enum gn_msg_protocol writer,
					 unsigned threads)
{
	struct advise_candidate c = {
		.protocol = protocol,
		.writer = writer,
		.threads = threads,
		.apart = protocol == GN_MSG_UD && !q->datagrams,
	};
	const enum gn_msg_protocol by = writer == ADVISE_NO_PROTOCOL ? protocol : writer;
	const struct advise_ladder *reads = NULL, *writes = NULL;

	if (q->read_pct > 0)
		reads = find(q, ladders, n, protocol, threads, false);
	if (q->read_pct < 100)
		writes = find(q, ladders, n, by, threads, true);
	if ((q->read_pct > 0 && !reads) || (q->read_pct < 100 && !writes))
		c.impossible = "";
	else if (!make(q, reads, writes, &c))
		c.impossible = reads && !reads->n ? reads->reason : writes ? writes->reason : "";
	return c;
}

/* Of one protocol, with different threads: fewer of them, if nothing is lost. */
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

static struct advise_candidate make_best(const struct advise_query *q,
					 const struct advise_ladder *ladders, unsigned n,
					 enum gn_msg_protocol protocol, enum gn_msg_protocol writer)
{
	struct advise_candidate most = {0};
	unsigned counts[ADVISE_COUNTS_MAX];
	const unsigned n_counts = advise_threads(q, counts);

	for (unsigned i = 0; i < n_counts; i++) {
		struct advise_candidate c = make_with(q, ladders, n, protocol, writer, counts[i]);

		if (i == 0 || threads_preferred(&c, &most))
			most = c;
	}
	return most;
}

/* ---- the order ---- */

static bool is_better(const struct advise_candidate *a, const struct advise_candidate *b)
{
	if (!a->impossible != !b->impossible)
		return !a->impossible;
	if (a->apart != b->apart)
		return b->apart;
	if (a->late != b->late)
		return b->late;
	return a->late ? a->p99_us < b->p99_us : a->mops > b->mops;
}

static void insert(struct advise_result *out, const struct advise_candidate *c)
{
	unsigned at = out->n++;

	assert(out->n <= ADVISE_CANDIDATES);
	for (; at && is_better(c, &out->candidate[at - 1]); at--)
		out->candidate[at] = out->candidate[at - 1];
	out->candidate[at] = *c;
}

/* The simplest of those that are equal to the first comes to the front; they stay in order. */
static void settle_ties(struct advise_result *r)
{
	const double most = r->candidate[0].mops;
	unsigned simplest = 0;
	struct advise_candidate first;

	r->n_equal = 0;
	if (!r->n || r->candidate[0].impossible || r->candidate[0].late)
		return;
	for (unsigned i = 1; i < r->n; i++) {
		const struct advise_candidate *c = &r->candidate[i];

		if (c->impossible || c->apart || c->late || c->mops < (1 - ADVISE_TIE) * most)
			break;
		r->n_equal = i;
		if (effort(c) < effort(&r->candidate[simplest]))
			simplest = i;
	}
	first = r->candidate[simplest];
	memmove(&r->candidate[1], &r->candidate[0], simplest * sizeof(first));
	r->candidate[0] = first;
}

/* Of READ beside each of the others, the best; of equal ones, the simplest. */
static void add_pair(const struct advise_query *q, const struct advise_ladder *ladders, unsigned n,
		     struct advise_result *out)
{
	struct advise_result pairs = {0};

	for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++) {
		struct advise_candidate c;

		if (i == GN_MSG_READ || !(q->protocols & 1u << i) ||
		    (i == GN_MSG_UD && !q->datagrams))
			continue;
		c = make_best(q, ladders, n, GN_MSG_READ, (enum gn_msg_protocol)i);
		if (!c.impossible)
			insert(&pairs, &c);
	}
	settle_ties(&pairs);
	if (pairs.n)
		insert(out, &pairs.candidate[0]);
}

void advise_rank(const struct advise_query *q, const struct advise_ladder *ladders, unsigned n,
		 struct advise_result *out)
{
	const bool mixed = q->read_pct > 0 && q->read_pct < 100;

	*out = (struct advise_result){0};
	for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++) {
		struct advise_candidate c;

		if (!(q->protocols & 1u << i) || (i == GN_MSG_READ && q->read_pct < 100))
			continue;
		c = make_best(q, ladders, n, (enum gn_msg_protocol)i, ADVISE_NO_PROTOCOL);
		/* Not yet run, and not known to be impossible. */
		if (!c.impossible || *c.impossible)
			insert(out, &c);
	}
	if (mixed && (q->protocols & 1u << GN_MSG_READ))
		add_pair(q, ladders, n, out);
	settle_ties(out);
}

struct advise_point *advise_point_of(const struct advise_query *q, struct advise_ladder *ladders,
				     unsigned n, const struct advise_candidate *c, bool writes)
{
	const enum gn_msg_protocol by = writes && c->writer != ADVISE_NO_PROTOCOL ? c->writer :
										    c->protocol;
	const struct advise_ladder *found = find(q, ladders, n, by, c->threads, writes);
	const unsigned pending = writes && q->read_pct > 0 ? c->writer_pending : c->pending;
	struct advise_ladder *ladder = found ? &ladders[found - ladders] : NULL;

	for (unsigned i = 0; ladder && i < ladder->n; i++)
		if (ladder->point[i].pending == pending)
			return &ladder->point[i];
	return NULL;
}
