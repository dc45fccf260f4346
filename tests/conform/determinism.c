/* SPDX-License-Identifier: MIT */
/* Cases 76 and 78: the same seed gives the same run, and time never goes back. */
#include <string.h>

#include "conform.h"
#include "simulated.h"

/* ---- 76 ---- */

/* Messages, one-sided, atomics by many threads, events, datagrams, connections, order. */
static const unsigned part[] = {17, 21, 25, 31, 41, 48, 53, 67, 69, 73, 74, 75, 68, 0};

/* A part of this suite, on a cluster of its own. */
static bool run_part(struct cf *cf, uint64_t seed, struct cf_trace *trace)
{
	struct cf_run run = {
		.effort = 1,
		.seed = seed,
		.wait_us = cf->wait_us,
		.only = part,
		.quiet = true,
		.sim = cf->sim,
	};

	CHECK_INT(cf_simulate(&run, trace), 0);
	CHECK(!run.failed, "%u cases fail with seed %llu", run.failed, (unsigned long long)seed);
	CHECK(run.passed, "every case was skipped");
	return true;
}

static bool same_seed(struct cf *cf)
{
	struct cf_trace first, again, other;

	CHECK(run_part(cf, cf->seed, &first));
	CHECK(run_part(cf, cf->seed, &again));
	CHECK(run_part(cf, cf->seed + 1, &other));
	CHECK(first.events == again.events && first.end_ns == again.end_ns,
	      "%llu events until %llu ns, then %llu until %llu", (unsigned long long)first.events,
	      (unsigned long long)first.end_ns, (unsigned long long)again.events,
	      (unsigned long long)again.end_ns);
	CHECK(first.hash == again.hash, "trace %016llx, then %016llx",
	      (unsigned long long)first.hash, (unsigned long long)again.hash);
	CHECK(first.hash != other.hash, "another seed has the same trace %016llx",
	      (unsigned long long)first.hash);
	cf_note(cf, "%llu events, trace %016llx twice", (unsigned long long)first.events,
		(unsigned long long)first.hash);
	return true;
}

/* ---- 78 ---- */

#define READERS	   3u
#define READINGS   20000u
#define EXCHANGES  1000u
#define NAP_US	   50u
#define TURN_EVERY 16u /* readings between two that let others run */

/* Threads of one side that read the clock in turn: what one has read, none reads less of. */
struct clock_watch {
	struct gn_mutex lock;
	uint64_t latest_ns, readings;
	uint64_t back_ns; /* by how much a thread saw it go back */
};

static void read_clock(struct clock_watch *watch)
{
	uint64_t now_ns;

	gn_mutex_lock(&watch->lock);
	now_ns = gn_now_ns();
	if (now_ns < watch->latest_ns)
		watch->back_ns = watch->latest_ns - now_ns;
	watch->latest_ns = now_ns;
	gn_mutex_unlock(&watch->lock);
}

static void reader_main(void *arg)
{
	struct clock_watch *watch = arg;

	for (uint64_t i = 0; i < watch->readings; i++) {
		read_clock(watch);
		gn_charge(GN_WORK_NS, i % TURN_EVERY);
		if (i % TURN_EVERY == 0)
			gn_yield();
	}
}

static bool watch_clock(struct cf *cf)
{
	struct clock_watch watch = {.readings = cf_count(cf, READINGS)};
	struct gn_thread *thread[READERS];
	unsigned started = 0;
	int err = 0;

	gn_mutex_init(&watch.lock);
	while (!err && started < READERS) {
		err = gn_thread_start("reader", reader_main, &watch, &thread[started]);
		started += !err;
	}
	for (unsigned i = 0; i < started; i++)
		gn_thread_join(thread[i]);
	gn_mutex_fini(&watch.lock);
	CHECK_INT(err, 0);
	CHECK(!watch.back_ns, "the clock went back by %llu ns", (unsigned long long)watch.back_ns);
	return true;
}

/* A sleep takes at least the requested time. */
static bool sleep_takes_time(struct cf *cf)
{
	const uint64_t before_ns = gn_now_ns();

	gn_sleep_us(NAP_US);
	CHECK(gn_now_ns() - before_ns >= UINT64_C(1000) * NAP_US, "a nap of %u us took %llu ns",
	      NAP_US, (unsigned long long)(gn_now_ns() - before_ns));
	return true;
}

/* One clock for both sides: processes of one machine, or nodes whose clocks do not drift. */
static bool one_clock(const struct cf *cf)
{
	if (cf->sim)
		return !cf->sim->faults || !strstr(cf->sim->faults, "drift");
	return !cf->host[CF_A] || !cf->host[CF_B] || !strcmp(cf->host[CF_A], cf->host[CF_B]);
}

/* A clock value that one side sends has been reached by the other's clock when it arrives. */
static bool clocks(struct cf *cf)
{
	uint64_t mine_ns, theirs_ns;

	CHECK(watch_clock(cf));
	CHECK(sleep_takes_time(cf));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0; cf_more_both(cf, i, EXCHANGES); i++) {
		mine_ns = gn_now_ns();
		CHECK(cf_swap(cf, &mine_ns, &theirs_ns, sizeof(theirs_ns)));
		if (one_clock(cf))
			CHECK(gn_now_ns() >= theirs_ns, "it is %llu ns here, and was %llu there",
			      (unsigned long long)gn_now_ns(), (unsigned long long)theirs_ns);
	}
	return cf_sync(cf);
}

const struct cf_case cf_cases_repeat[] = {
	{76, "the same seed is the same run, another is not", same_seed, NULL, 0, CF_OUTSIDE},
	{78, "the clock never goes back", clocks, clocks, 0, 0},
	{0},
};
