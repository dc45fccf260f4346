/* SPDX-License-Identifier: MIT */
/*
 * Case 77: every kind of fault at every point of a short program. A client on n1 connects to a
 * server on n0, and does three WRITEs, a READ, a message each way, an FAA and three datagrams. Once
 * without a fault, which tells how long it takes; then with one fault at each of so many instants
 * of that time, on each node. Whatever happens, both programs end by themselves and soon, every
 * request completes once, in order and with a status that makes sense, what has succeeded is true,
 * and nothing is left behind. The programs are in fault_programs.c.
 */
#include <errno.h>
#include <gannet/sim.h>
#include <stdio.h>
#include <string.h>

#include "fault_programs.h"

#define INSTANTS 60u
#define LIMIT_NS UINT64_C(60000000000) /* no fault here lasts a second, nor do many waits */
#define NODES	 2u

/* How a kind is scheduled beyond its time and node; most need nothing. */
struct shape {
	const char *kind, *span, *amount;
};

static const struct shape shapes[] = {
	{"crash", "", ""},
	{"crash", "+200us", ""}, /* and starts again */
	{"kill", "", ""},
	{"kill", "+200us", ""},
	{"pause", "+50us", ""},
	{"slow-node", "+1ms", ":20x"},
	{"slow-link", "+1ms", ":20x"},
	{"partition", "", ""}, /* permanent */
	{"partition", "+300us", ""},
	{"partition", "+300us", ">"}, /* it receives, but cannot send */
	{"drift", "", ":200ppm"},
	{"low-memory", "+1ms", ""},
};

/* The n-th way to schedule a kind, or NULL if there are fewer. */
static const struct shape *shape_of(const char *kind, unsigned n)
{
	static const struct shape plain = {NULL, "", ""};
	bool listed = false;

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		if (strcmp(shapes[i].kind, kind) != 0)
			continue;
		listed = true;
		if (n-- == 0)
			return &shapes[i];
	}
	return listed || n ? NULL : &plain;
}

/* Faults that need what the run may not have: then they cannot happen. */
static bool can_happen(const struct point *point, const char *kind)
{
	if (!strncmp(kind, "ud-", 3))
		return point->caps & GN_CAP_UD;
	if (!strcmp(kind, "lines"))
		return !(point->caps & GN_CAP_INORDER_WRITE);
	if (!strcmp(kind, "torn-read")) /* without the promise every READ is, and no fault */
		return point->caps & GN_CAP_READ_HEAD_FIRST;
	if (!strcmp(kind, "preempt")) /* only layers above the fabric can be */
		return false;
	return true;
}

/* ---- one run ---- */

/* Every process there was has ended, by itself or by a crash. */
static bool all_ended(struct cf *cf, const struct gn_sim *sim, bool crashes)
{
	int status;

	for (unsigned i = 0; gn_sim_status(sim, i, &status) != -EINVAL; i++) {
		CHECK(gn_sim_status(sim, i, &status) == 0, "process %u still runs", i);
		CHECK(status == 0 || (crashes && status == GN_SIM_KILLED),
		      "process %u ended with %d", i, status);
	}
	CHECK(!gn_sim_leaks(sim), "%llu allocations left", (unsigned long long)gn_sim_leaks(sim));
	return true;
}

static bool spawn_and_run(struct cf *cf, struct gn_sim *sim, struct point *point)
{
	int err;

	CHECK_INT(gn_sim_spawn(sim, 0, point_server, 0, NULL, point, NULL), 0);
	CHECK_INT(gn_sim_spawn(sim, 1, point_client, 0, NULL, point, NULL), 0);
	err = gn_sim_run(sim);
	CHECK(err == 0, "the run ends with %s at %llu ns", gn_strerror(err),
	      (unsigned long long)gn_sim_now_ns(sim));
	return true;
}

/* faults: "" for none. */
static bool run_point(struct cf *cf, const char *faults, struct point *point, struct gn_sim *sim)
{
	memset(point, 0, sizeof(*point));
	point->crashes = !strncmp(faults, "crash", 5) || !strncmp(faults, "kill", 4);
	if (faults[0])
		CHECK_INT(gn_sim_inject(sim, faults), 0);
	CHECK(spawn_and_run(cf, sim, point));
	CHECK(!point->why[0], "%s", point->why);
	CHECK(all_ended(cf, sim, point->crashes));
	point->end_ns = gn_sim_now_ns(sim);
	return true;
}

static bool try_point(struct cf *cf, const char *faults, struct point *point, unsigned kind)
{
	struct gn_sim_opts opts = {
		.size = sizeof(opts),
		.profile = cf->sim->profile,
		.seed = cf->seed,
		.nodes = NODES,
		.caps_off = cf->sim->caps_off,
		.limit_ns = LIMIT_NS,
	};
	struct gn_sim *sim;
	bool ok;

	CHECK_INT(gn_sim_create(&opts, &sim), 0);
	ok = run_point(cf, faults, point, sim);
	point->count = gn_sim_fault_count(sim, kind);
	gn_sim_destroy(sim);
	CHECK(ok, "with the fault '%s'", faults);
	return true;
}

/* ---- all of them ---- */

struct tally {
	uint64_t runs, happened, unfinished;
};

static bool try_shape(struct cf *cf, unsigned kind, const struct shape *shape, uint64_t length_ns,
		      struct tally *tally)
{
	const char *name = gn_sim_fault_name(kind);
	struct point point;
	char text[128];

	for (unsigned i = 0; i < NODES * INSTANTS; i++) {
		const uint64_t at_ns = length_ns * (i / NODES) / INSTANTS;

		snprintf(text, sizeof(text), "%s@%lluns%s:n%u%s", name, (unsigned long long)at_ns,
			 shape->span, i % NODES, shape->amount);
		CHECK(try_point(cf, text, &point, kind));
		tally->runs++;
		tally->happened += point.count;
		tally->unfinished += !point_finished(&point);
	}
	return true;
}

static bool try_kind(struct cf *cf, unsigned kind, const struct point *calm, struct tally *all)
{
	const char *name = gn_sim_fault_name(kind);
	const struct shape *shape;
	struct tally tally = {.runs = 0};

	for (unsigned n = 0; (shape = shape_of(name, n)); n++)
		CHECK(try_shape(cf, kind, shape, calm->end_ns, &tally));
	CHECK(tally.happened || !can_happen(calm, name), "'%s' never happened", name);
	if (!strcmp(name, "crash") || !strcmp(name, "qp-error"))
		CHECK(tally.unfinished, "'%s' never made a difference", name);
	all->runs += tally.runs;
	all->happened += tally.happened;
	all->unfinished += tally.unfinished;
	return true;
}

static bool fault_points(struct cf *cf)
{
	struct tally all = {.runs = 0};
	struct point calm;
	unsigned kinds = 0;

	CHECK(try_point(cf, "", &calm, 0));
	CHECK(point_finished(&calm), "without a fault the client did %x, the server %x",
	      calm.client, calm.server);
	for (; gn_sim_fault_name(kinds); kinds++)
		CHECK(try_kind(cf, kinds, &calm, &all));
	cf_note(cf, "%llu runs of %u kinds, %llu faults, %llu programs did not get through",
		(unsigned long long)all.runs, kinds, (unsigned long long)all.happened,
		(unsigned long long)all.unfinished);
	return true;
}

const struct cf_case cf_cases_faults[] = {
	{77, "each fault at each point of a short program", fault_points, NULL, 0, CF_OUTSIDE},
	{0},
};
