/* SPDX-License-Identifier: MIT */
/* The answer as one JSON object. */
#include "advise.h"

#include <inttypes.h>

static void put_string(FILE *f, const char *text)
{
	fputc('"', f);
	for (; *text; text++) {
		const unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(f, "\\%c", c);
		else if (c < ' ')
			fprintf(f, "\\u%04x", c);
		else
			fputc(c, f);
	}
	fputc('"', f);
}

static void put_candidate(FILE *f, const struct advise_query *q, const struct advise_candidate *c)
{
	char name[ADVISE_NAME_MAX];
	unsigned qps[2];

	advise_name(c, name);
	fputs("{\"name\": ", f);
	put_string(f, name);
	fprintf(f, ", \"protocol\": \"%s\"", gn_msg_protocol_str(c->protocol));
	if (c->writer != ADVISE_NO_PROTOCOL)
		fprintf(f, ", \"writer\": \"%s\"", gn_msg_protocol_str(c->writer));
	if (c->impossible) {
		fputs(", \"impossible\": ", f);
		put_string(f, c->impossible);
		fputc('}', f);
		return;
	}
	advise_qps(q, c->protocol, c->threads, qps);
	fprintf(f, ", \"threads\": %u, \"qps\": %u, \"server_qps\": %u, \"pending\": %u",
		c->threads, qps[0], qps[1], c->pending);
	if (c->writer != ADVISE_NO_PROTOCOL)
		fprintf(f, ", \"writer_pending\": %u", c->writer_pending);
	fprintf(f,
		", \"mops\": %.6g, \"gbps\": %.6g, \"gbps_per_node\": %.6g, \"mean_us\": %.6g"
		", \"p99_us\": %.6g, \"late\": %s}",
		c->mops, c->gbps, c->gbps_per_node, c->mean_us, c->p99_us,
		c->late ? "true" : "false");
}

static void put_result(FILE *f, const struct advise_query *q, const struct advise_result *r)
{
	fputs("\"candidates\": [", f);
	for (unsigned i = 0; i < r->n; i++) {
		fputs(i ? ",\n  " : "\n  ", f);
		put_candidate(f, q, &r->candidate[i]);
	}
	fprintf(f, "], \"equal\": %u", r->n_equal);
}

static void put_query(FILE *f, const struct advise_query *q)
{
	fprintf(f,
		"\"topology\": \"%s\", \"nodes\": %u, \"threads\": [%u, %u], \"request\": %u"
		", \"value\": %u, \"read_pct\": %u, \"pending_max\": %u",
		bench_msg_topologies[q->topology], q->nodes, q->threads_min, q->threads_max,
		q->request, q->value, q->read_pct, q->pending_max);
	if (q->latency_us > 0)
		fprintf(f, ", \"latency_us\": %.6g", q->latency_us);
}

static void put_variants(FILE *f, const struct advise_answer *a)
{
	fputs("\"variants\": [", f);
	for (unsigned i = 0; i < a->n_variants; i++) {
		const struct advise_variant *n = &a->variant[i];

		fputs(i ? ",\n {\"label\": " : "\n {\"label\": ", f);
		put_string(f, n->label);
		fprintf(f, ", \"changes\": %s, \"better\": %s, ", n->changes ? "true" : "false",
			n->better ? "true" : "false");
		put_query(f, &n->query);
		fputs(", ", f);
		put_result(f, &n->query, &n->result);
		fputc('}', f);
	}
	fputs("],\n", f);
}

void advise_json(FILE *f, const struct advise_answer *a)
{
	const struct advise_query *q = &a->query;
	const bool any = a->result.n && !a->result.candidate[0].impossible;
	char name[ADVISE_NAME_MAX];

	if (any)
		advise_name(&a->result.candidate[0], name);
	fputs("{\"answer\": ", f);
	put_string(f, any ? name : "");
	fprintf(f,
		", \"simulated\": true, \"unfinished\": %s, \"keeps_latency\": %s, \"runs\": %u,\n",
		a->unfinished ? "true" : "false",
		any && !a->result.candidate[0].late ? "true" : "false", a->runs);
	fputs("\"profile\": ", f);
	put_string(f, q->profile);
	fprintf(f, ", \"preset\": \"%s\", \"seed\": %" PRIu64 ", ", load_presets[q->paper],
		q->seed);
	put_query(f, q);
	fputs(",\n", f);
	put_result(f, q, &a->result);
	fputs(",\n", f);
	put_variants(f, a);
	if (any) {
		fputs("\"quickest\": ", f);
		put_candidate(f, q, &a->quickest);
		fputs(",\n", f);
	}
	fprintf(f, "\"rpc\": {\"fetch_bytes\": %u, \"batch\": %u, \"simulated\": %s",
		a->rpc.fetch_bytes, a->rpc.batch, a->rpc.mops > 0 ? "true" : "false");
	if (a->rpc.mops > 0)
		fprintf(f, ", \"mops\": %.6g", a->rpc.mops);
	fputs("}}\n", f);
}
