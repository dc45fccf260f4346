/* SPDX-License-Identifier: MIT */
/*
 * A tuning as two tables for people, or as one JSON object.
 */
#include <math.h>

#include "bench.h"
#include "tune.h"

static void print_rates(FILE *f, const struct gn_rpc_tuning *t)
{
	fprintf(f, "calls in a millisecond, by reads of a call (R) and bytes of a read (F)\n%6s",
		"R \\ F");
	for (uint32_t k = 0; k < t->n_sizes; k++)
		fprintf(f, " %7u", t->bytes[k]);
	for (uint32_t i = 0; i < t->n_retries; i++) {
		fprintf(f, "\n%6u", i + 1);
		for (uint32_t k = 0; k < t->n_sizes; k++)
			if (t->rate[i][k])
				fprintf(f, " %7u", t->rate[i][k]);
			else
				fprintf(f, " %7s", "-");
	}
	fputs("\n\n", f);
}

static void print_cell(FILE *f, int width, double value, int digits)
{
	if (isfinite(value))
		fprintf(f, " %*.*f", width, digits, value);
	else
		fprintf(f, " %*s", width, "-");
}

static void print_points(FILE *f, const struct tune_result *r)
{
	fprintf(f,
		"calls in a millisecond, by the server's time for each\n"
		"%6s %8s %8s %8s %8s\n",
		"us", "reply", "fetch", "eager", "reads");
	for (unsigned i = 0; i < TUNE_POINTS; i++) {
		const struct tune_point *p = &r->point[i];

		fprintf(f, "%6g", p->work_us);
		print_cell(f, 8, p->rate[TUNE_REPLY], 0);
		print_cell(f, 8, p->rate[TUNE_FETCH], 0);
		print_cell(f, 8, p->rate[TUNE_EAGER], 0);
		print_cell(f, 8, p->fetches, 2);
		fputc('\n', f);
	}
	fputc('\n', f);
}

void tune_print(FILE *f, const struct tune_opts *o, const struct tune_result *r)
{
	if (o->profile)
		fprintf(f, "simulated: %s, ", o->profile);
	fprintf(f, "%u clients, %u server thread%s\n\n", o->clients, o->threads,
		o->threads == 1 ? "" : "s");
	print_rates(f, &r->tuning);
	print_points(f, r);
	if (r->tuning.retries)
		fprintf(f,
			"R  %u reads at most, with which fetch is 10 %% better than reply\n"
			"Tx %u us of the server, from which on it is not\n",
			r->tuning.retries, r->tuning.switch_us);
}

static void print_numbers(FILE *f, const uint32_t *numbers, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		fprintf(f, "%s%u", i ? "," : "[", numbers[i]);
	fputc(']', f);
}

void tune_print_json(FILE *f, const struct tune_opts *o, const struct tune_result *r)
{
	const struct gn_rpc_tuning *t = &r->tuning;

	fputc('{', f);
	bench_json_string(f, "provider", o->profile ? "sim" : o->provider);
	if (o->profile)
		bench_json_string(f, "profile", o->profile);
	bench_json_count(f, "clients", true, o->clients);
	bench_json_count(f, "threads", true, o->threads);
	bench_json_count(f, "retries", t->retries, t->retries);
	bench_json_count(f, "switch_us", t->retries, t->switch_us);
	fputs("\"bytes\":", f);
	print_numbers(f, t->bytes, t->n_sizes);
	for (uint32_t i = 0; i < t->n_retries; i++) {
		fputs(i ? "," : ",\"rate\":[", f);
		print_numbers(f, t->rate[i], t->n_sizes);
	}
	fputs("],\"points\":[", f);
	for (unsigned i = 0; i < TUNE_POINTS; i++) {
		const struct tune_point *p = &r->point[i];

		fputs(i ? ",{" : "{", f);
		bench_json_number(f, "reply", p->rate[TUNE_REPLY], 1);
		bench_json_number(f, "fetch", p->rate[TUNE_FETCH], 1);
		bench_json_number(f, "eager", p->rate[TUNE_EAGER], 1);
		bench_json_number(f, "reads", p->fetches, 3);
		fprintf(f, "\"work_us\":%g}", p->work_us);
	}
	fputs("]}\n", f);
}
