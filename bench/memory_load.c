/* SPDX-License-Identifier: MIT */
/*
 * memory-load: programs that need much memory, as the papers about remote paging have them. Each
 * takes its memory from malloc(), so the same program runs with a pager, with swap and with
 * neither. Prints one line of JSON: the time of the iterations, percentiles of their steps, and a
 * checksum that does not depend on where the memory is.
 *
 *     kmeans     points against 8 centres: reads all memory in order, again and again
 *     logreg     logistic regression by gradient descent: the same, and writes a residual per row
 *     textrank   ranks flow over the edges of a graph: edges in order, ranks at random
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/base.h>

#include "choice.h"

#define COLUMNS	  16u
#define CENTRES	  8u
#define EDGES	  8u	/* of a node */
#define STEP_ROWS 4096u /* rows whose time is one sample */
#define DAMPING	  0.85
#define RATE	  0.1
#define LINK_ZIPF 0.8 /* links prefer some nodes, as words do */

struct load {
	uint64_t bytes, iterations, seed;
	struct choice choice;
	struct gn_hist steps; /* ns */
	uint64_t step_start;
	double checksum;
};

static void *load_alloc(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p) {
		fprintf(stderr, "memory-load: no memory for %zu bytes\n", n * size);
		exit(1);
	}
	return p;
}

static float load_uniform(struct load *l)
{
	return (float)(choice_word(&l->choice) >> 40) / (float)(1u << 24);
}

static void load_step(struct load *l)
{
	const uint64_t now = gn_now_ns();

	gn_hist_add(&l->steps, now - l->step_start, 1);
	l->step_start = now;
}

/* Rows of COLUMNS floats around CENTRES different points. */
static float *load_rows(struct load *l, uint64_t n)
{
	float *rows = load_alloc(n, COLUMNS * sizeof(*rows));

	for (uint64_t i = 0; i < n; i++) {
		const float about = (float)(choice_word(&l->choice) % CENTRES);

		for (unsigned c = 0; c < COLUMNS; c++)
			rows[i * COLUMNS + c] = about + load_uniform(l);
	}
	return rows;
}

/* ---- k-means ---- */

static unsigned kmeans_nearest(const float *row, const float centres[CENTRES][COLUMNS])
{
	float best = INFINITY;
	unsigned at = 0;

	for (unsigned k = 0; k < CENTRES; k++) {
		float sum = 0;

		for (unsigned c = 0; c < COLUMNS; c++)
			sum += (row[c] - centres[k][c]) * (row[c] - centres[k][c]);
		if (sum < best) {
			best = sum;
			at = k;
		}
	}
	return at;
}

static uint64_t kmeans_start(struct load *l, void **state)
{
	const uint64_t n = l->bytes / (COLUMNS * sizeof(float));

	*state = load_rows(l, n);
	return n;
}

static void kmeans_run(struct load *l, void *state, uint64_t n)
{
	const float *rows = state;
	float centres[CENTRES][COLUMNS];

	memcpy(centres, rows, sizeof(centres));
	for (uint64_t turn = 0; turn < l->iterations; turn++) {
		double sums[CENTRES][COLUMNS] = {0};
		uint64_t counts[CENTRES] = {0};

		for (uint64_t i = 0; i < n; i++) {
			const float *row = rows + i * COLUMNS;
			const unsigned k = kmeans_nearest(row, centres);

			counts[k]++;
			for (unsigned c = 0; c < COLUMNS; c++)
				sums[k][c] += (double)row[c];
			if (i % STEP_ROWS == STEP_ROWS - 1)
				load_step(l);
		}
		for (unsigned k = 0; k < CENTRES; k++)
			for (unsigned c = 0; counts[k] && c < COLUMNS; c++)
				centres[k][c] = (float)(sums[k][c] / (double)counts[k]);
	}
	for (unsigned k = 0; k < CENTRES; k++)
		l->checksum += (double)centres[k][0] * (k + 1);
}

/* ---- logistic regression ---- */

struct logreg {
	float *rows;
	float *residuals; /* one each: written in every iteration */
};

static uint64_t logreg_start(struct load *l, void **state)
{
	const uint64_t n = l->bytes / ((COLUMNS + 1) * sizeof(float));
	struct logreg *g = load_alloc(1, sizeof(*g));

	g->rows = load_rows(l, n);
	g->residuals = load_alloc(n, sizeof(*g->residuals));
	*state = g;
	return n;
}

static void logreg_run(struct load *l, void *state, uint64_t n)
{
	struct logreg *g = state;
	double weights[COLUMNS] = {0};

	for (uint64_t turn = 0; turn < l->iterations; turn++) {
		double gradient[COLUMNS] = {0};

		for (uint64_t i = 0; i < n; i++) {
			const float *row = g->rows + i * COLUMNS;
			const double label = row[0] > (float)CENTRES / 2 ? 1 : 0;
			double z = 0;

			for (unsigned c = 0; c < COLUMNS; c++)
				z += weights[c] * (double)row[c];
			g->residuals[i] = (float)(1 / (1 + exp(-z)) - label);
			for (unsigned c = 0; c < COLUMNS; c++)
				gradient[c] += (double)(g->residuals[i] * row[c]);
			if (i % STEP_ROWS == STEP_ROWS - 1)
				load_step(l);
		}
		for (unsigned c = 0; c < COLUMNS; c++)
			weights[c] -= RATE * gradient[c] / (double)n;
	}
	for (unsigned c = 0; c < COLUMNS; c++)
		l->checksum += weights[c] * (c + 1);
}

/* ---- TextRank ---- */

struct node {
	double rank, next;
	uint8_t text[48]; /* a node is a word: what is ranked is not packed densely */
};

struct textrank {
	uint32_t *edges; /* EDGES of each node */
	struct node *nodes;
};

static uint64_t textrank_start(struct load *l, void **state)
{
	const uint64_t n = l->bytes / (EDGES * sizeof(uint32_t) + sizeof(struct node));
	struct textrank *t = load_alloc(1, sizeof(*t));

	if (n > UINT32_MAX) {
		fprintf(stderr, "memory-load: too much memory for textrank\n");
		exit(2);
	}
	t->edges = load_alloc(n * EDGES, sizeof(*t->edges));
	t->nodes = load_alloc(n, sizeof(*t->nodes));
	choice_init(&l->choice, (uint32_t)n, (uint32_t)n, LINK_ZIPF, l->seed);
	for (uint64_t i = 0; i < n * EDGES; i++)
		t->edges[i] = choice_draw(&l->choice);
	for (uint64_t i = 0; i < n; i++)
		t->nodes[i].rank = 1.0 / (double)n;
	*state = t;
	return n;
}

static void textrank_run(struct load *l, void *state, uint64_t n)
{
	struct textrank *t = state;

	for (uint64_t turn = 0; turn < l->iterations; turn++) {
		for (uint64_t i = 0; i < n; i++) {
			const double give = DAMPING * t->nodes[i].rank / EDGES;

			for (unsigned e = 0; e < EDGES; e++)
				t->nodes[t->edges[i * EDGES + e]].next += give;
			if (i % STEP_ROWS == STEP_ROWS - 1)
				load_step(l);
		}
		for (uint64_t i = 0; i < n; i++) {
			t->nodes[i].rank = (1 - DAMPING) / (double)n + t->nodes[i].next;
			t->nodes[i].next = 0;
		}
	}
	for (uint64_t i = 0; i < n; i++)
		l->checksum += t->nodes[i].rank * (double)(i % 1000);
}

/* ---- the program ---- */

static const struct kind {
	const char *name;
	uint64_t (*start)(struct load *l, void **state); /* the number of rows */
	void (*run)(struct load *l, void *state, uint64_t rows);
} kinds[] = {
	{"kmeans", kmeans_start, kmeans_run},
	{"logreg", logreg_start, logreg_run},
	{"textrank", textrank_start, textrank_run},
};

static _Noreturn void usage(void)
{
	fprintf(stderr,
		"usage: memory-load kmeans|logreg|textrank MEBIBYTES [ITERATIONS [SEED]]\n");
	exit(2);
}

static uint64_t number(const char *text, uint64_t max)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*end || end == text || *text == '-' || errno || !n || n > max)
		usage();
	return n;
}

int main(int argc, char **argv)
{
	struct load l = {.iterations = 5, .seed = 1};
	const struct kind *kind = NULL;
	uint64_t rows, start, filled, end;
	void *state;

	if (argc < 3 || argc > 5)
		usage();
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(argv[1], kinds[i].name))
			kind = &kinds[i];
	if (!kind)
		usage();
	l.bytes = number(argv[2], 1u << 20) << 20;
	if (argc > 3)
		l.iterations = number(argv[3], 1000000);
	if (argc > 4)
		l.seed = number(argv[4], UINT64_MAX);
	gn_hist_init(&l.steps);
	choice_init(&l.choice, 1, 1, 0, l.seed);

	start = gn_now_ns();
	rows = kind->start(&l, &state);
	filled = l.step_start = gn_now_ns();
	kind->run(&l, state, rows);
	end = gn_now_ns();
	printf("{\"load\": \"%s\", \"bytes\": %llu, \"rows\": %llu, \"iterations\": %llu, "
	       "\"seed\": %llu, \"fill_s\": %.3f, \"run_s\": %.3f, \"step_p50_us\": %.1f, "
	       "\"step_p99_us\": %.1f, \"checksum\": \"%.12g\"}\n",
	       kind->name, (unsigned long long)l.bytes, (unsigned long long)rows,
	       (unsigned long long)l.iterations, (unsigned long long)l.seed,
	       (double)(filled - start) / 1e9, (double)(end - filled) / 1e9,
	       (double)gn_hist_percentile(&l.steps, 50) / 1e3,
	       (double)gn_hist_percentile(&l.steps, 99) / 1e3, l.checksum);
	return 0;
}
