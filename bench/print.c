/* SPDX-License-Identifier: MIT */
/*
 * Results as one JSON object per line, or as a table for people.
 */
#include <math.h>

#include "bench.h"

/* ---- JSON ---- */

void bench_print_json(FILE *f, const struct bench_opts *opts, const struct bench_result *r,
		      const struct bench_machine *machine)
{
	const struct bench_trait *trait = &bench_traits[opts->op];
	const bool wake = trait->kind == BENCH_SLEEPER;

	fputc('{', f);
	bench_json_string(f, "provider", opts->provider);
	if (opts->profile) {
		bench_json_string(f, "profile", opts->profile);
		bench_json_count(f, "seed", true, opts->seed);
	}
	bench_json_string(f, "op", bench_ops[opts->op]);
	bench_json_count(f, "size", true, opts->size_bytes);
	bench_json_count(f, "depth", true, opts->depth);
	bench_json_number(f, "seconds", r->seconds, 6);
	bench_json_count(f, "ops", true, r->ops);
	bench_json_number(f, "mops", (double)r->ops / r->seconds / 1e6, 6);
	bench_json_number(f, "p50_ns", r->p50_ns, 1);
	bench_json_number(f, "p99_ns", r->p99_ns, 1);
	bench_json_number(f, "cacheline_ratio", r->cacheline_ratio, 3);
	bench_json_number(f, "overhead_ns", r->overhead_ns, 1);
	bench_json_number(f, "memcpy_ratio", r->memcpy_ratio, 3);
	bench_json_count(f, "wrs", r->has_counters, r->wrs);
	bench_json_count(f, "doorbells", r->has_counters, r->doorbells);
	bench_json_count(f, "cqes", r->has_counters, r->cqes);
	bench_json_count(f, "lost", opts->op == BENCH_UD_SEND, r->lost);
	bench_json_count(f, "blocks", !wake, r->blocks);
	bench_json_count(f, "blocks_dropped", !wake, r->blocks_dropped);
	bench_json_count(f, "working_set", r->working_set_bytes != 0, r->working_set_bytes);
	bench_json_number(f, "cpu_percent", r->cpu_percent, 3);
	bench_json_number(f, "eventfd_p50_ns", r->eventfd_p50_ns, 1);
	bench_json_number(f, "eventfd_cpu_percent", r->eventfd_cpu_percent, 3);
	bench_json_count(f, "sleeps", wake, r->sleeps);
	if (machine) {
		fputs("\"machine\":{", f);
		bench_json_string(f, "cpu", machine->cpu);
		bench_json_string(f, "kernel", machine->kernel);
		fprintf(f, "\"cores\":%d},", machine->cores);
	}
	fprintf(f, "\"cpus\":[%d,%d]}\n", opts->cpus[0], opts->cpus[1]);
	fflush(f);
}

/* ---- table ---- */

#define ROW "%-10s %7s %6s %10s %10s %10s   %s\n"

void bench_print_head(FILE *f)
{
	fprintf(f, ROW, "op", "size", "depth", "Mops/s", "p50 ns", "p99 ns", "next to its limit");
	fflush(f);
}

static const char *size_text(char *to, size_t n, uint32_t bytes)
{
	if (bytes >= 1u << 20 && bytes % (1u << 20) == 0)
		snprintf(to, n, "%u MiB", bytes >> 20);
	else if (bytes >= 1u << 10 && bytes % (1u << 10) == 0)
		snprintf(to, n, "%u KiB", bytes >> 10);
	else
		snprintf(to, n, "%u B", bytes);
	return to;
}

/* Three or so significant digits. */
static const char *number_text(char *to, size_t n, double value)
{
	snprintf(to, n, "%.*f", value < 0.1 ? 4 : value < 10 ? 2 : value < 100 ? 1 : 0, value);
	return to;
}

#define BULK_BYTES 4096u /* from here on what counts is bytes, and memcpy is what to beat */

static const char *limit_text(char *to, size_t n, const struct bench_opts *opts,
			      const struct bench_result *r)
{
	const double gb_per_s = (double)r->ops * opts->size_bytes / r->seconds / 1e9;
	const bool bulk = opts->size_bytes >= BULK_BYTES;
	int at = 0;

	to[0] = '\0';
	if (bulk)
		at = gb_per_s < 1 ? snprintf(to, n, "%.0f MB/s  ", 1000 * gb_per_s) :
				    snprintf(to, n, "%.1f GB/s  ", gb_per_s);
	if (isfinite(r->cacheline_ratio))
		snprintf(to + at, n - (size_t)at, "%.2f x cacheline, %+.0f ns", r->cacheline_ratio,
			 r->overhead_ns);
	else if (isfinite(r->memcpy_ratio) && bulk)
		snprintf(to + at, n - (size_t)at, "%.2f x memcpy", r->memcpy_ratio);
	else if (isfinite(r->cpu_percent))
		snprintf(to, n, "eventfd %.0f ns; %.2f %% of a core, eventfd %.2f %%",
			 r->eventfd_p50_ns, r->cpu_percent, r->eventfd_cpu_percent);
	else if (r->has_counters && r->doorbells && opts->depth > 1)
		snprintf(to + at, n - (size_t)at, "%.1f requests to a doorbell",
			 (double)r->wrs / (double)r->doorbells);
	return to;
}

void bench_print_row(FILE *f, const struct bench_opts *opts, const struct bench_result *r)
{
	char size[16], depth[16], mops[16], p50[16], p99[16], limit[80];

	snprintf(depth, sizeof(depth), "%u", opts->depth);
	fprintf(f, ROW, bench_ops[opts->op], size_text(size, sizeof(size), opts->size_bytes), depth,
		number_text(mops, sizeof(mops), (double)r->ops / r->seconds / 1e6),
		number_text(p50, sizeof(p50), r->p50_ns), number_text(p99, sizeof(p99), r->p99_ns),
		limit_text(limit, sizeof(limit), opts, r));
	fflush(f);
}
