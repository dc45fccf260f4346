/* SPDX-License-Identifier: MIT */
/* The answer as text. Its first word is the protocol, or "None". */
#include "advise.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NAME_WIDTH 34

void advise_name(const struct advise_candidate *c, char out[ADVISE_NAME_MAX])
{
	if (c->writer == ADVISE_NO_PROTOCOL)
		snprintf(out, ADVISE_NAME_MAX, "%s", gn_msg_protocol_str(c->protocol));
	else
		snprintf(out, ADVISE_NAME_MAX, "%s for reads and %s for writes",
			 gn_msg_protocol_str(c->protocol), gn_msg_protocol_str(c->writer));
}

static const char *plural(unsigned n)
{
	return n == 1 ? "" : "s";
}

static double less_pct(const struct advise_candidate *c, const struct advise_candidate *than)
{
	return 100 * (1 - c->mops / than->mops);
}

/* ---- the first line ---- */

static void print_figure(FILE *f, const struct advise_query *q, const struct advise_candidate *c)
{
	fprintf(f, "%.1f Gbps of values%s (%.2f M/s)", c->gbps_per_node,
		q->topology == BENCH_MSG_MM ? " at each node" : "", c->mops);
}

/* The candidates that are equal, or the distance of the next one. */
static void print_others(FILE *f, const struct advise_result *r)
{
	const struct advise_candidate *next = &r->candidate[r->n_equal + 1];
	char name[ADVISE_NAME_MAX];

	for (unsigned i = 1; i <= r->n_equal; i++) {
		advise_name(&r->candidate[i], name);
		fprintf(f, "%s%s", i == 1 ? "; " : i < r->n_equal ? ", " : " and ", name);
	}
	if (r->n_equal) {
		fprintf(f, " %s as good and more complex", r->n_equal == 1 ? "is" : "are");
		return;
	}
	if (r->n < 2 || next->impossible || next->unranked) {
		fputs("; no other was possible", f);
		return;
	}
	advise_name(next, name);
	if (next->late)
		fprintf(f, "; no other keeps the limit, %s comes closest with %.1f us", name,
			next->p99_us);
	else
		fprintf(f, "; the next best, %s, has %.0f %% less", name,
			less_pct(next, &r->candidate[0]));
}

static void print_first(FILE *f, const struct advise_answer *a)
{
	const struct advise_candidate *c = &a->result.candidate[0];
	char name[ADVISE_NAME_MAX];

	advise_name(c, name);
	if (a->unfinished)
		fputs("Interrupted; so far: ", f);
	if (c->late)
		fprintf(f, "None keeps %g us: %s comes closest with %.1f us for 99 of 100, ",
			a->query.latency_us, name, c->p99_us);
	else
		fprintf(f, "%s: ", name);
	print_figure(f, &a->query, c);
	fputs(", simulated", f);
	if (!c->late)
		print_others(f, &a->result);
	fputs(".\n", f);
}

/* UD is mentioned even if the query does not rank it. */
static void print_datagrams(FILE *f, const struct advise_answer *a)
{
	const struct advise_candidate *best = &a->result.candidate[0];

	for (unsigned i = 1; i < a->result.n; i++) {
		const struct advise_candidate *c = &a->result.candidate[i];

		if (!c->unranked || c->impossible || c->late ||
		    (!best->late && c->mops <= (1 + ADVISE_TIE) * best->mops))
			continue;
		fputs("UD would ", f);
		if (best->late)
			fputs("keep it", f);
		else
			fprintf(f, "have %.0f %% more", -less_pct(c, best));
		fputs(": if datagrams are acceptable, which may be lost and are then sent again, "
		      "name it in --protocols.\n",
		      f);
	}
}

/* ---- the table ---- */

static void print_question(FILE *f, const struct advise_query *q)
{
	fputs("\nSimulated: ", f);
	switch (q->topology) {
	case BENCH_MSG_M1:
		fprintf(f, "%u client node%s, one server node", q->nodes, plural(q->nodes));
		break;
	case BENCH_MSG_1M:
		fprintf(f, "one client node, %u server node%s", q->nodes, plural(q->nodes));
		break;
	default:
		fprintf(f, "%u nodes, all clients of each other", q->nodes);
		break;
	}
	if (q->threads_min == q->threads_max)
		fprintf(f, ", %u thread%s", q->threads_min, plural(q->threads_min));
	else
		fprintf(f, ", %u to %u threads", q->threads_min, q->threads_max);
	fprintf(f, ", requests of %u B, values of %u B, %u %% reads, %s,\n", q->request, q->value,
		q->read_pct, q->profile);
	fprintf(f, "messages sent %s, seed %" PRIu64,
		q->paper ? "one by one as in the message passing evaluation" :
			   "as the library does",
		q->seed);
	if (q->latency_us > 0)
		fprintf(f, ", 99 of 100 within %g us", q->latency_us);
	fputs(".\n\n", f);
}

static void print_row(FILE *f, const struct advise_query *q, const struct advise_candidate *c,
		      const struct advise_candidate *best)
{
	char name[ADVISE_NAME_MAX], pending[24];
	unsigned qps[2];

	advise_name(c, name);
	if (c->impossible) {
		fprintf(f, "  %-*s not possible: %s\n", NAME_WIDTH, name, c->impossible);
		return;
	}
	advise_qps(q, c->protocol, c->threads, qps);
	if (c->writer != ADVISE_NO_PROTOCOL && c->writer_pending != c->pending)
		snprintf(pending, sizeof(pending), "%u+%u", c->pending, c->writer_pending);
	else
		snprintf(pending, sizeof(pending), "%u", c->pending);
	fprintf(f, "  %-*s %7u %5u %7s %7.1f %7.2f %8.1f %8.1f", NAME_WIDTH, name, c->threads,
		qps[0], pending, c->gbps_per_node, c->mops, c->mean_us, c->p99_us);
	if (c->late)
		fputs("  too late", f);
	else if (c != best && !best->late)
		fprintf(f, "  %+.0f %%", -less_pct(c, best));
	if (c->unranked)
		fputs(", datagrams", f);
	fputc('\n', f);
}

static void print_table(FILE *f, const struct advise_answer *a)
{
	const struct advise_result *r = &a->result;

	fprintf(f, "  %-*s %7s %5s %7s %7s %7s %8s %8s\n", NAME_WIDTH, "protocol", "threads", "QPs",
		"pending", a->query.topology == BENCH_MSG_MM ? "Gbps/n" : "Gbps", "M/s", "mean us",
		"p99 us");
	for (unsigned i = 0; i < r->n; i++)
		print_row(f, &a->query, &r->candidate[i], &r->candidate[0]);
	fprintf(f, "\nQPs: of a %s node; pending: outstanding requests on each.\n",
		a->query.topology == BENCH_MSG_MM ? "client and server" : "client");
	if (a->query.read_pct > 0 && a->query.read_pct < 100)
		fputs("Reads and writes were simulated apart; what they make together is "
		      "calculated.\n",
		      f);
}

/* ---- set-up ---- */

static void print_bytes(FILE *f, uint64_t n)
{
	if (n >= 10u << 20)
		fprintf(f, "%.0f MB", (double)n / (1 << 20));
	else if (n >= 10u << 10)
		fprintf(f, "%.0f KB", (double)n / (1 << 10));
	else
		fprintf(f, "%" PRIu64 " B", n);
}

static void print_qps(FILE *f, const struct advise_query *q, const struct advise_candidate *c)
{
	unsigned qps[2];

	advise_qps(q, c->protocol, c->threads, qps);
	fprintf(f, "  threads     %u on each client node\n", c->threads);
	if (q->topology == BENCH_MSG_MM)
		fprintf(f, "  QPs         %u on each node", qps[0]);
	else if (q->topology == BENCH_MSG_M1)
		fprintf(f, "  QPs         %u on each client node, %u on the server node", qps[0],
			qps[1]);
	else
		fprintf(f, "  QPs         %u on the client node, %u on each server node", qps[0],
			qps[1]);
	if (c->writer != ADVISE_NO_PROTOCOL)
		fputs("; as many again for writes,\n"
		      "              which the simulation of reads did not have",
		      f);
	fputc('\n', f);
}

static void print_setup(FILE *f, const struct advise_answer *a)
{
	const struct advise_query *q = &a->query;
	const struct advise_candidate *c = &a->result.candidate[0];
	const uint64_t buffers = (uint64_t)(q->request + q->value) * c->pending;
	unsigned qps[2];

	advise_qps(q, c->protocol, c->threads, qps);
	fputs("\nSet up (calculated where it does not say simulated):\n", f);
	print_qps(f, q, c);
	fprintf(f, "  pending     %u on each QP, simulated", c->pending);
	if (c->writer != ADVISE_NO_PROTOCOL)
		fprintf(f, "; %u for writes", c->writer_pending);
	fputs("\n  buffers     ", f);
	print_bytes(f, buffers);
	fputs(" for each QP, ", f);
	print_bytes(f, buffers * (qps[0] > qps[1] ? qps[0] : qps[1]));
	fputs(" on the node with most of them\n", f);
	if (c->protocol == GN_MSG_READ && q->read_pct > 0)
		fprintf(f, "  fetch size  %u B: one READ brings a value\n", q->value);
	fprintf(f, "  gannet rpc  fetch_bytes %u, batch.entries %u", a->rpc.fetch_bytes,
		a->rpc.batch);
	if (a->rpc.mops > 0)
		fprintf(f, ": %.2f M/s, simulated", a->rpc.mops);
	fputc('\n', f);
}

/* ---- variants ---- */

static const struct advise_candidate *find_same(const struct advise_result *r,
						const struct advise_candidate *c)
{
	for (unsigned i = 0; i < r->n; i++)
		if (advise_same(&r->candidate[i], c) && !r->candidate[i].impossible)
			return &r->candidate[i];
	return NULL;
}

static void print_variant(FILE *f, const struct advise_answer *a, const struct advise_variant *n)
{
	const struct advise_candidate *now = &a->result.candidate[0], *there;
	const struct advise_candidate *best = &n->result.candidate[0];
	char name[ADVISE_NAME_MAX];

	there = find_same(&n->result, now);
	advise_name(n->changes ? best : now, name);
	if (!n->changes && there)
		best = there; /* one of several that are equal */
	fprintf(f, "  %s: %s, ", n->label, name);
	print_figure(f, &n->query, best);
	advise_name(now, name);
	if (n->changes && there)
		fprintf(f, "; %s %.0f %% less", name, less_pct(there, best));
	if (n->query.protocols != a->query.protocols)
		fprintf(f, " (fewer tried, %u pending)", n->query.pending_max);
	fputc('\n', f);
}

static void print_variants(FILE *f, const struct advise_answer *a)
{
	for (unsigned changes = 0; changes < 2; changes++) {
		bool any = false;

		for (unsigned i = 0; i < a->n_variants; i++) {
			if (a->variant[i].changes == (changes > 0))
				continue;
			if (!any)
				fprintf(f,
					"\nWhat would %schange the answer, simulated in short "
					"runs:\n",
					changes ? "not " : "");
			any = true;
			print_variant(f, a, &a->variant[i]);
		}
	}
	for (unsigned i = 0; i < a->n_variants; i++) {
		const struct advise_candidate *best = &a->variant[i].result.candidate[0];

		if (!a->variant[i].better)
			continue;
		fprintf(f, "\nIf you can, use %u thread%s: that has %.0f %% more.\n", best->threads,
			plural(best->threads),
			100 * (best->mops / a->result.candidate[0].mops - 1));
	}
}

static void print_quickest(FILE *f, const struct advise_answer *a)
{
	const struct advise_candidate *c = &a->quickest;
	char name[ADVISE_NAME_MAX];

	advise_name(c, name);
	fprintf(f,
		"\nThe shortest times, simulated: %s with %u pending, %.1f us mean, %.1f us for 99 "
		"of 100, at %.1f Gbps.\n",
		name, c->pending, c->mean_us, c->p99_us, c->gbps_per_node);
}

void advise_print(FILE *f, const struct advise_answer *a)
{
	if (!a->result.n || a->result.candidate[0].impossible) {
		fputs("Interrupted before anything was known.\n", f);
		return;
	}
	print_first(f, a);
	print_datagrams(f, a);
	print_question(f, &a->query);
	print_table(f, a);
	print_setup(f, a);
	print_variants(f, a);
	print_quickest(f, a);
	fprintf(f,
		"%u runs. How well the simulated cards match real ones: docs/simulator.md; "
		"measure yours with gannet bench msg.\n",
		a->runs);
}
