/* SPDX-License-Identifier: MIT */
/*
 * Results of the store: as one JSON object, or as lines of names and figures.
 */
#include <math.h>
#include <string.h>

#include "kv.h"

struct sheet {
	char dist[32];
	unsigned n;
	struct bench_cell cells[3 * BENCH_CELLS_MAX];
};

static void add(struct sheet *s, const struct bench_cell *cells, unsigned n)
{
	memcpy(s->cells + s->n, cells, n * sizeof(*cells));
	s->n += n;
}

static void add_options(struct sheet *s, const struct bench_kv_opts *o)
{
	const struct bench_cell cells[] = {
		{"provider", o->mode == BENCH_KV_LOCAL ? "none" : "shm", 0, 0},
		{"mode", bench_kv_modes[o->mode], 0, 0},
		{"threads", NULL, o->threads, 0},
		{"clients", NULL, o->clients, 0},
		{"keys", NULL, o->keys, 0},
		{"key", NULL, o->key_bytes, 0},
		{"value", NULL, o->value_bytes, 0},
		{"get", NULL, o->get_percent, 2},
		{"dist", s->dist, 0, 0},
		{"batch", NULL, o->batch, 0},
		{"inflight", NULL, o->inflight, 0},
	};

	_Static_assert(sizeof(cells) / sizeof(cells[0]) <= BENCH_CELLS_MAX, "there is room");
	if (o->zipf > 0)
		snprintf(s->dist, sizeof(s->dist), "zipf:%g", o->zipf);
	else
		snprintf(s->dist, sizeof(s->dist), "uniform");
	add(s, cells, sizeof(cells) / sizeof(cells[0]));
}

static void add_store(struct sheet *s, const struct bench_kv_result *r)
{
	const struct bench_cell cells[] = {
		{"p999_us", NULL, r->calls.run.p999_ns / 1000, 4},
		{"cacheline_ns", NULL, r->cacheline_ns, 1},
		{"local_p50_ns", NULL, r->local_p50_ns, 1},
		{"gets", NULL, (double)r->gets, 0},
		{"puts", NULL, (double)r->puts, 0},
		{"hits", NULL, (double)r->hits, 0},
		{"reads_per_get", NULL, r->reads_per_get, 4},
		{"server_cpu_percent", NULL, r->server_cpu_percent, 1},
		{"items", NULL, (double)r->items, 0},
		{"bytes_per_item", NULL, r->bytes_per_item, 1},
	};

	_Static_assert(sizeof(cells) / sizeof(cells[0]) <= BENCH_CELLS_MAX, "there is room");
	add(s, cells, sizeof(cells) / sizeof(cells[0]));
}

static void fill_in(struct sheet *s, const struct bench_kv_opts *o, const struct bench_kv_result *r)
{
	s->n = 0;
	add_options(s, o);
	s->n += bench_rpc_cells(&r->calls, s->cells + s->n);
	add_store(s, r);
}

void bench_kv_print_json(FILE *f, const struct bench_kv_opts *o, const struct bench_kv_result *r)
{
	struct sheet s;

	fill_in(&s, o, r);
	fputc('{', f);
	bench_json_cells(f, s.cells, s.n);
	fprintf(f, "\"cpus\":[%d,%d]}\n", o->cpus[0], o->cpus[1]);
	fflush(f);
}

void bench_kv_print_lines(FILE *f, const struct bench_kv_opts *o, const struct bench_kv_result *r)
{
	struct sheet s;

	fill_in(&s, o, r);
	for (unsigned i = 0; i < s.n; i++) {
		const struct bench_cell *cell = &s.cells[i];

		if (cell->text)
			fprintf(f, "%s\t%s\n", cell->name, cell->text);
		else if (isfinite(cell->value))
			fprintf(f, "%s\t%.*f\n", cell->name, cell->digits, cell->value);
		else
			fprintf(f, "%s\t-\n", cell->name);
	}
	fflush(f);
}
