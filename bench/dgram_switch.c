/* SPDX-License-Identifier: MIT */
/*
 * What workers cost by themselves: workers of one endpoint without peers yield all the time. A
 * round of n workers is n switches and a poll; the difference between many workers and one is
 * switches alone. The memory of an idle worker is what the process has more when many have begun
 * and wait.
 */
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "dgram_load.h"

#define FEW    1u
#define MANY   16u /* the library polls after so many */
#define YIELDS 2000u
#define ROUNDS 41u
#define IDLE   1024u

struct yields {
	struct gn_dgram_endpoint *endpoint;
	uint64_t left;
	bool ends;
};

static void yield_worker(void *arg)
{
	struct yields *y = arg;

	for (uint64_t left = y->left; left; left--)
		gn_dgram_yield(y->endpoint);
}

/* Nanoseconds of a round of n workers; -errno. */
static int time_rounds(struct yields *y, unsigned n, double *ns)
{
	uint64_t began_ns;
	int rc = 0;

	y->left = YIELDS;
	for (unsigned i = 0; i < n && !rc; i++)
		rc = gn_dgram_spawn(y->endpoint, yield_worker, y);
	began_ns = gn_now_ns();
	if (!rc)
		rc = gn_dgram_run(y->endpoint, GN_FOREVER);
	*ns = (double)(gn_now_ns() - began_ns) / YIELDS;
	return rc;
}

/* The least of several: others of the machine can only make it longer. */
static int time_switch(struct yields *y, double *switch_ns)
{
	double few, many, least_few = INFINITY, least_many = INFINITY;
	int rc = 0;

	for (unsigned i = 0; i < ROUNDS && !rc; i++) {
		rc = time_rounds(y, FEW, &few);
		if (!rc)
			rc = time_rounds(y, MANY, &many);
		least_few = fmin(least_few, few);
		least_many = fmin(least_many, many);
	}
	if (!rc)
		*switch_ns = (least_many - least_few) / (MANY - FEW);
	return rc;
}

static void idle_worker(void *arg)
{
	struct yields *y = arg;

	while (!y->ends)
		gn_dgram_yield(y->endpoint);
}

static uint64_t resident_bytes(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	unsigned long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "Rss: %lu", &kib) != 1)
		;
	if (f)
		fclose(f);
	return (uint64_t)kib * 1024;
}

static int weigh_worker(struct yields *y, double *bytes)
{
	const uint64_t before = resident_bytes();
	uint64_t after;
	int rc = 0;

	for (unsigned i = 0; i < IDLE && !rc; i++)
		rc = gn_dgram_spawn(y->endpoint, idle_worker, y);
	for (unsigned i = 0; i < IDLE && rc >= 0; i++) /* each has begun, at the latest then */
		rc = gn_dgram_poll(y->endpoint);
	after = resident_bytes();
	if (rc >= 0 && before && after > before)
		*bytes = (double)(after - before) / IDLE;
	y->ends = true;
	return rc < 0 ? rc : gn_dgram_run(y->endpoint, GN_FOREVER);
}

int bench_dgram_switch(const struct bench_dgram_opts *o, double *switch_ns, double *worker_bytes)
{
	struct gn_fabric *fabric = NULL;
	struct gn_dgram_node *node = NULL;
	struct yields y = {.endpoint = NULL};
	int rc = gn_fabric_open(o->load.provider, &fabric);

	if (!rc)
		rc = gn_dgram_node_create(fabric, NULL, NULL, &node);
	if (!rc)
		rc = gn_dgram_endpoint_create(node, 0, &y.endpoint);
	if (!rc)
		rc = weigh_worker(&y, worker_bytes);
	if (!rc)
		rc = time_switch(&y, switch_ns);
	if (y.endpoint)
		gn_dgram_endpoint_destroy(y.endpoint);
	if (node)
		gn_dgram_node_destroy(node);
	if (fabric)
		gn_fabric_close(fabric);
	return rc;
}
