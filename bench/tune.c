/* SPDX-License-Identifier: MIT */
/*
 * Controls a tuning: runs all steps, in rounds because a machine's speed varies from second to
 * second, and chooses the tuning from the medians.
 */
#include "tune.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "tune_shared.h"

#define BETTER	   1.1 /* fetch must be, than reply */
#define CLIENTS_TIMEOUT_S 20u /* for all clients to connect, or to end a step */

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

int tune_fail(struct tune_shared *shared, const char *what, int rc)
{
	int none = 0;

	if (!__atomic_compare_exchange_n(&shared->error, &none, rc, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return -EINTR;
	if (rc != -EINTR)
		gn_log(GN_LOG_ERROR, "tune: %s failed: %s", what, gn_strerror(rc));
	return rc;
}

bool tune_over(const struct tune_shared *shared)
{
	return __atomic_load_n(&shared->error, __ATOMIC_ACQUIRE) || bench_stopped();
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

/* Waits until the counter has reached n; what: for the error if that takes too long. */
static int control_await(struct tune_shared *shared, const uint32_t *counter, uint32_t n,
			 const char *what)
{
	const uint64_t end_ns = gn_deadline_us(CLIENTS_TIMEOUT_S * 1000000ull);

	while (tune_load(counter) < n) {
		if (tune_over(shared))
			return -EINTR;
		if (gn_now_ns() > end_ns)
			return tune_fail(shared, what, -ETIMEDOUT);
		gn_sleep_us(shared->poll_us);
	}
	return 0;
}

static int control_run_step(struct tune_shared *shared, unsigned i, struct samples *s)
{
	const uint32_t clients = shared->opts.clients, number = shared->number + 1;
	const struct tune_count *count = shared->count;
	double rate = 0, ops = 0, fetches = 0;
	int rc;

	shared->step = step_at(i);
	__atomic_store_n(&shared->number, number, __ATOMIC_RELEASE);
	rc = control_await(shared, &shared->ready, number * clients, "connecting all clients");
	if (rc)
		return rc;
	__atomic_store_n(&shared->going, number, __ATOMIC_RELEASE);
	gn_sleep_us(shared->slice_us);
	__atomic_store_n(&shared->stopped, number, __ATOMIC_RELEASE);
	rc = control_await(shared, &shared->done, number * clients, "ending a step");
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
static unsigned way_end(const struct tune_result *r, enum tune_way way)
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

static void tuning_choose(struct tune_result *r)
{
	const unsigned eager = way_end(r, TUNE_EAGER), fetch = way_end(r, TUNE_FETCH);
	const double fetches = eager ? r->point[eager - 1].fetches : 1;
	const double us = r->point[fetch < TUNE_POINTS ? fetch : TUNE_POINTS - 1].work_us;

	r->tuning.retries = fetches < 1 ? 1 : (uint32_t)fmin(round(fetches), UINT16_MAX);
	/* The server reports whole microseconds. */
	r->tuning.switch_us = us < 1 ? 1 : (uint32_t)us;
}

static void tuning_fill(struct samples *s, struct tune_result *out)
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

int tune_control(struct tune_shared *shared, struct tune_result *out)
{
	const unsigned steps = TUNE_STEPS * shared->rounds;
	struct samples *s = calloc(1, sizeof(*s));
	int rc = s ? 0 : tune_fail(shared, "memory", -ENOMEM);

	for (unsigned i = 0; !rc && i < steps; i++) {
		rc = control_run_step(shared, i % TUNE_STEPS, s);
		if (!rc && shared->progress)
			shared->progress((double)(i + 1) / steps);
	}
	__atomic_store_n(&shared->number, UINT32_MAX, __ATOMIC_RELEASE);
	while (s && tune_load(&shared->left) < shared->opts.clients)
		gn_sleep_us(shared->poll_us);
	if (s)
		tuning_fill(s, out);
	if (!rc)
		tuning_choose(out);
	free(s);
	return shared->error ? shared->error : rc;
}
