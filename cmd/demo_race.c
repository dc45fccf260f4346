/* SPDX-License-Identifier: MIT */
/*
 * The first part of the demo: a table of three ways to GET, each measured for a moment in turn,
 * again and again, since what a machine can do changes from second to second. On a terminal the
 * table is drawn anew after each.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/exec.h>

#include "demo.h"
#include "kv.h"

#define SECONDS	    0.3
#define KEYS	    200000u
#define BATCH	    32u
#define WAYS	    3u
#define BAR_COLUMNS 14.0
#define TABLE_LINES 6 /* that are drawn anew */

enum { ONE, MANY, KINDS }; /* operations under way */

/* A row of the table. */
struct way {
	enum bench_kv_mode mode;
	unsigned n[KINDS];
	struct bench_kv_result runs[KINDS][DEMO_ROUNDS_MAX];
};

struct race {
	bool terminal, drawn;
	unsigned round, rounds;
	char now[80]; /* what is being measured */
	int cpus[2];
	struct way ways[WAYS];
};

/* ---- figures ---- */

typedef double figure_fn(const struct bench_kv_result *r);

static double p50_us(const struct bench_kv_result *r)
{
	return r->calls.run.p50_ns / 1000;
}

static double p99_us(const struct bench_kv_result *r)
{
	return r->calls.run.p99_ns / 1000;
}

static double race_mops(const struct bench_kv_result *r)
{
	return r->calls.mops;
}

static double race_server_sends(const struct bench_kv_result *r)
{
	return r->calls.server_wrs;
}

static double race_reads_per_get(const struct bench_kv_result *r)
{
	return (double)r->calls.sums.bypass_reads / (double)r->calls.sums.bypass_gets;
}

static int race_compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median over rounds; NAN before the first. */
static double race_median(const struct way *way, int kind, figure_fn *fn)
{
	double values[DEMO_ROUNDS_MAX];
	const unsigned n = way->n[kind];

	for (unsigned i = 0; i < n; i++)
		values[i] = fn(&way->runs[kind][i]);
	qsort(values, n, sizeof(values[0]), race_compare);
	return !n ? NAN : n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* ---- the table ---- */

static void race_put_figure(double value, int columns)
{
	if (isfinite(value))
		printf("%*.2f", columns, value);
	else
		printf("%*s", columns, "-");
}

static void race_draw_row(const struct way *way, double best, const char *end)
{
	const double fast = race_median(way, MANY, race_mops);

	printf("  %-6s", bench_kv_modes[way->mode]);
	race_put_figure(race_median(way, ONE, p50_us), 10);
	race_put_figure(race_median(way, ONE, p99_us), 10);
	race_put_figure(race_median(way, ONE, race_mops), 10);
	race_put_figure(race_median(way, ONE, race_server_sends), 14);
	race_put_figure(fast, 10);
	fputs("  ", stdout);
	for (double part = 0.5; part < BAR_COLUMNS * fast / best; part++)
		fputs("▇", stdout);
	fputs(end, stdout);
}

static void race_draw(struct race *race)
{
	const char *end = race->terminal ? "\033[K\n" : "\n"; /* erases what was there */
	double best = 0;

	if (race->drawn)
		printf("\033[%dA", TABLE_LINES);
	race->drawn = true;
	for (unsigned i = 0; i < WAYS; i++)
		best = fmax(best, race_median(&race->ways[i], MANY, race_mops));
	printf("          ----------- one operation at a time -----------  32 together%s", end);
	printf("            p50 us    p99 us    Mops/s  server sends    Mops/s%s", end);
	for (unsigned i = 0; i < WAYS; i++)
		race_draw_row(&race->ways[i], best, end);
	if (race->terminal)
		printf("  %s%s", race->now, end);
	fflush(stdout);
}

/* ---- the race ---- */

static int race_measure(struct race *race, struct way *way, int kind)
{
	const struct bench_kv_opts opts = {
		.mode = way->mode,
		.keys = KEYS,
		.key_bytes = 16,
		.value_bytes = 32,
		.get_percent = 95,
		.load = {.provider = "shm",
			 .threads = 1,
			 .clients = 1,
			 .batch = kind == ONE ? 1 : BATCH,
			 .inflight = kind == ONE ? 1 : LOAD_BATCHES * BATCH,
			 .seconds = SECONDS,
			 .cpus = {race->cpus[0], race->cpus[1]},
			 .seed = gn_random()}};
	struct bench_kv_result *result = &way->runs[kind][race->round];
	int rc;

	snprintf(race->now, sizeof(race->now), "round %u of %u: %s, %s", race->round + 1,
		 race->rounds, bench_kv_modes[way->mode],
		 kind == ONE ? "one at a time" : "32 together");
	if (race->terminal)
		race_draw(race);
	rc = bench_kv_run(&opts, NULL, result);
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: demo: %s\n", result->calls.error);
	if (!rc)
		way->n[kind]++;
	return rc;
}

static void race_introduce(const struct race *race)
{
	struct bench_machine machine;

	bench_machine_get(&machine);
	printf("A server on core %d holds %u pairs of 16 and 32 bytes; a client on core %d\n"
	       "GETs 95 times and PUTs 5 times in a hundred, any key, and checks every value.\n"
	       "%s, Linux %s.\n\n",
	       race->cpus[1], KEYS, race->cpus[0], machine.cpu, machine.kernel);
	if (race->cpus[0] == race->cpus[1])
		puts("There is only one core for both: latencies are the scheduler's.\n");
}

static void race_explain(const struct race *race)
{
	const struct way *bypass = &race->ways[WAYS - 1];
	const struct bench_kv_result *last = &race->ways[0].runs[ONE][race->rounds - 1];

	printf("\n"
	       "  fetch   the client writes a request into the server's memory, and reads the\n"
	       "          result from there: the server sends nothing\n"
	       "  reply   the server writes the result back\n"
	       "  bypass  the client finds values in the server's memory by itself, with %.1f\n"
	       "          reads for a GET; only PUTs are calls\n"
	       "\n"
	       "Medians of %u round%s. ",
	       race_median(bypass, ONE, race_reads_per_get), race->rounds,
	       race->rounds == 1 ? "" : "s");
	if (isfinite(last->cacheline_ns) && isfinite(last->local_p50_ns))
		printf("For scale: a bare cache line there and back between\n"
		       "these cores took %.2f us, and an operation without any call %.2f us.\n",
		       last->cacheline_ns / 1000, last->local_p50_ns / 1000);
	else
		putchar('\n');
	fflush(stdout);
}

static int race_run_rounds(struct race *race)
{
	int rc = 0;

	for (race->round = 0; !rc && race->round < race->rounds; race->round++)
		for (unsigned i = 0; !rc && i < WAYS; i++)
			for (int kind = 0; !rc && kind < KINDS; kind++)
				rc = race_measure(race, &race->ways[i], kind);
	race->now[0] = '\0';
	if (!rc || race->ways[0].n[ONE]) /* or what there is so far */
		race_draw(race);
	return rc;
}

int demo_race(unsigned rounds)
{
	static const enum bench_kv_mode modes[WAYS] = {BENCH_KV_FETCH, BENCH_KV_REPLY,
						       BENCH_KV_BYPASS};
	struct race *race = calloc(1, sizeof(*race));
	int rc;

	if (!race)
		return -ENOMEM;
	race->rounds = rounds;
	race->terminal = demo_on_terminal();
	for (unsigned i = 0; i < WAYS; i++)
		race->ways[i].mode = modes[i];
	bench_pick_cpus(race->cpus);
	race_introduce(race);
	rc = race_run_rounds(race);
	if (!rc)
		race_explain(race);
	free(race);
	return rc;
}
