/* SPDX-License-Identifier: MIT */
/*
 * The plan of a tuning, step by step, in rounds, because what a machine can do changes from second
 * to second; and what is chosen in the end.
 */
#include "tune.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "tune_hall.h"

#define BETTER	   1.1 /* fetch must be, than reply */
#define PATIENCE_S 20u /* for all clients to connect, or to end a step */

static const uint32_t sizes[] = {32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096};
#define SIZES ((uint32_t)(sizeof(sizes) / sizeof(sizes[0])))

static const double works_us[TUNE_POINTS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50};

#define READ_STEPS (GN_RPC_TUNING_RETRIES * SIZES)

static_assert(SIZES <= GN_RPC_TUNING_SIZES, "the table has room for them");
static_assert(TUNE_STEPS == READ_STEPS + TUNE_POINTS * TUNE_WAYS, "and all are measured");

struct samples {
	double rate[TUNE_STEPS][TUNE_ROUNDS], fetches[TUNE_STEPS][TUNE_ROUNDS];
	unsigned n[TUNE_STEPS];
};

int tune_fail(struct tune_hall *hall, const char *what, int rc)
{
	int none = 0;

	if (!__atomic_compare_exchange_n(&hall->error, &none, rc, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return -EINTR;
	if (rc != -EINTR)
		gn_log(GN_LOG_ERROR, "tune: %s failed: %s", what, gn_strerror(rc));
	return rc;
}

bool tune_over(const struct tune_hall *hall)
{
	return __atomic_load_n(&hall->error, __ATOMIC_ACQUIRE) || bench_stopped();
}

/* ---- steps ---- */

static struct tune_step step_at(unsigned i)
{
	if (i < READ_STEPS)
		return (struct tune_step){.retries = 1 + i / SIZES, .bytes = sizes[i % SIZES]};
	i -= READ_STEPS;
	return (struct tune_step){
		.calls = true, .way = i % TUNE_WAYS, .work_us = works_us[i / TUNE_WAYS]};
}

/* Until word is as many; clients that are gone are never as many. */
static int await(struct tune_hall *hall, const uint32_t *word, uint32_t as_many, const char *what)
{
	const uint64_t end_ns = gn_deadline_us(PATIENCE_S * 1000000ull);

	while (tune_word(word) < as_many) {
		if (tune_over(hall))
			return -EINTR;
		if (gn_now_ns() > end_ns)
			return tune_fail(hall, what, -ETIMEDOUT);
		gn_sleep_us(hall->nap_us);
	}
	return 0;
}

static int run_step(struct tune_hall *hall, unsigned i, struct samples *s)
{
	const uint32_t clients = hall->opts.clients, number = hall->number + 1;
	const struct tune_count *count = hall->count;
	double rate = 0, ops = 0, fetches = 0;
	int rc;

	hall->step = step_at(i);
	__atomic_store_n(&hall->number, number, __ATOMIC_RELEASE);
	rc = await(hall, &hall->ready, number * clients, "connecting all clients");
	if (rc)
		return rc;
	__atomic_store_n(&hall->going, number, __ATOMIC_RELEASE);
	gn_sleep_us(hall->slice_us);
	__atomic_store_n(&hall->stopped, number, __ATOMIC_RELEASE);
	rc = await(hall, &hall->done, number * clients, "ending a step");
	if (rc)
		return rc;
	for (uint32_t k = 0; k < clients; k++) {
		rate += (double)count[k].ops / ((double)count[k].ns / 1e6);
		ops += (double)count[k].ops;
		fetches += (double)count[k].fetches;
	}
	s->rate[i][s->n[i]] = rate;
	s->fetches[i][s->n[i]++] = fetches / ops;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, unsigned n)
{
	qsort(values, n, sizeof(*values), by_value);
	return n ? values[n / 2] : NAN;
}

/* ---- choices ---- */

/* The first point from which on a way is not better enough than reply, twice in a row. */
static unsigned end_of(const struct tune_result *r, enum tune_way way)
{
	unsigned i = 0;

	for (; i < TUNE_POINTS; i++) {
		const struct tune_point *p = &r->point[i], *next = i + 1 < TUNE_POINTS ? p + 1 : p;

		if (p->rate[way] < BETTER * p->rate[TUNE_REPLY] &&
		    next->rate[way] < BETTER * next->rate[TUNE_REPLY])
			break;
	}
	return i;
}

static void choose(struct tune_result *r)
{
	const unsigned eager = end_of(r, TUNE_EAGER), fetch = end_of(r, TUNE_FETCH);
	const double fetches = eager ? r->point[eager - 1].fetches : 1;
	const double us = r->point[fetch < TUNE_POINTS ? fetch : TUNE_POINTS - 1].work_us;

	r->tuning.retries = fetches < 1 ? 1 : (uint32_t)fmin(round(fetches), UINT16_MAX);
	/* The server reports whole microseconds. */
	r->tuning.switch_us = us < 1 ? 1 : (uint32_t)us;
}

static void fill_in(struct samples *s, struct tune_result *out)
{
	struct gn_rpc_tuning *t = &out->tuning;

	*t = (struct gn_rpc_tuning){.size = sizeof(struct gn_rpc_tuning),
				    .n_retries = GN_RPC_TUNING_RETRIES,
				    .n_sizes = SIZES};
	memcpy(t->bytes, sizes, sizeof(sizes));
	for (unsigned i = 0; i < TUNE_STEPS; i++) {
		const struct tune_step step = step_at(i);
		const double rate = median(s->rate[i], s->n[i]);
		struct tune_point *p = &out->point[(i - READ_STEPS) / TUNE_WAYS % TUNE_POINTS];

		if (!step.calls) {
			t->rate[i / SIZES][i % SIZES] = s->n[i] ? (uint32_t)fmax(1, rate) : 0;
			continue;
		}
		p->work_us = step.work_us;
		p->rate[step.way] = rate;
		if (step.way == TUNE_EAGER)
			p->fetches = median(s->fetches[i], s->n[i]);
	}
}

int tune_control(struct tune_hall *hall, struct tune_result *out)
{
	const unsigned steps = TUNE_STEPS * hall->rounds;
	struct samples *s = calloc(1, sizeof(*s));
	int rc = s ? 0 : tune_fail(hall, "memory", -ENOMEM);

	for (unsigned i = 0; !rc && i < steps; i++) {
		rc = run_step(hall, i % TUNE_STEPS, s);
		if (!rc && hall->progress)
			hall->progress((double)(i + 1) / steps);
	}
	__atomic_store_n(&hall->number, UINT32_MAX, __ATOMIC_RELEASE);
	while (s && tune_word(&hall->left) < hall->opts.clients)
		gn_sleep_us(hall->nap_us);
	if (s)
		fill_in(s, out);
	if (!rc)
		choose(out);
	free(s);
	return hall->error ? hall->error : rc;
}
