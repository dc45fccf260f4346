/* SPDX-License-Identifier: MIT */
/*
 * What the death of a donor costs the users of a volume: a thread kills donors with SIGKILL while
 * the load runs, waits until the volume has all copies again, and starts the donor anew. Requests
 * that ended are counted for each 10 ms.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "io_load.h"
#include "procs.h"

#define LOOK_US	    500u
#define DETECT_US   60000000u  /* for the volume to give the donor up */
#define REPAIR_US   600000000u /* … and to have all copies again */
#define RETURN_US   30000000u  /* for a donor to come back */
#define OUTAGE_US   1000000u   /* after the kill, in which completions may be missing */
#define EDGE_NS	    50000000u  /* of a phase that does not count for its throughput */
#define BUCKETS_MAX (3600u * (1000000000u / IO_BUCKET_NS))

/* ---- the watch ---- */

void io_watch_note(struct io_watch *w, uint32_t n, uint64_t *last_ns)
{
	const uint64_t now_ns = gn_now_ns(), gap_ns = *last_ns ? now_ns - *last_ns : 0;
	const uint64_t bucket = (now_ns - w->begin_ns) / IO_BUCKET_NS;
	uint64_t longest_ns = __atomic_load_n(&w->gap_ns, __ATOMIC_RELAXED);

	*last_ns = now_ns;
	while (gap_ns > longest_ns &&
	       !__atomic_compare_exchange_n(&w->gap_ns, &longest_ns, gap_ns, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	if (bucket < w->n)
		__atomic_fetch_add(&w->ended[bucket], n, __ATOMIC_RELAXED);
}

/* Thousands of requests per second between two times. */
static double kiops_between(const struct io_watch *w, uint64_t from_ns, uint64_t to_ns)
{
	const uint64_t first = (from_ns - w->begin_ns) / IO_BUCKET_NS + 1;
	const uint64_t end = (to_ns - w->begin_ns) / IO_BUCKET_NS;
	uint64_t ended = 0;

	for (uint64_t i = first; i < end && i < w->n; i++)
		ended += w->ended[i];
	return end > first ? (double)ended / (double)(end - first) * 1e6 / IO_BUCKET_NS : NAN;
}

/* ---- the thread that kills ---- */

struct kill_times {
	uint64_t begin_ns, kill_ns, detected_ns, repaired_ns, end_ns;
	uint64_t gap_ns, repaired_bytes;
};

struct killer {
	struct procs *procs;
	const struct bench_io_opts *opts;
	struct io_watch watch;
	struct kill_times *times;
	uint32_t n;    /* kills that are complete */
	uint32_t over; /* atomic */
};

static bool gives_up(const struct killer *k)
{
	return load_failed(k->procs->run) || bench_stopped();
}

static struct gn_vol *volume_of(const struct killer *k)
{
	return ((struct io_process *)k->procs->self.state)->vol;
}

static int state_of(const struct killer *k, struct gn_vol_stats *out)
{
	*out = (struct gn_vol_stats){.size = sizeof(*out)};
	return gn_vol_query(volume_of(k), out);
}

static int killer_sleep(const struct killer *k, double seconds)
{
	const uint64_t end_ns = gn_now_ns() + (uint64_t)(seconds * 1e9);

	while (gn_now_ns() < end_ns && !gives_up(k))
		gn_sleep_us(LOOK_US);
	return gives_up(k) ? -EINTR : 0;
}

/* Waits until the state is as asked for. */
static int killer_await(struct killer *k, uint64_t limit_us, const char *what,
			bool (*is)(const struct gn_vol_stats *stats, uint64_t arg), uint64_t arg)
{
	const uint64_t end_ns = gn_deadline_us(limit_us);
	struct gn_vol_stats stats;
	int rc;

	while (!(rc = state_of(k, &stats)) && !is(&stats, arg)) {
		if (gives_up(k))
			return -EINTR;
		if (gn_now_ns() > end_ns)
			return load_fail(k->procs->run, -ETIMEDOUT, "%s takes too long", what);
		gn_sleep_us(LOOK_US);
	}
	return rc;
}

static bool has_lost(const struct gn_vol_stats *stats, uint64_t copies)
{
	return stats->copies_lost > copies;
}

static bool is_whole(const struct gn_vol_stats *s, uint64_t donor)
{
	(void)donor;
	return s->with_copies[s->copies] == s->extents - s->unused && !s->repair_bytes;
}

static bool is_up(const struct gn_vol_stats *stats, uint64_t donor)
{
	return stats->donors[donor].state == GN_VOL_DONOR_UP;
}

static int32_t *pid_of(const struct killer *k, uint32_t donor)
{
	return &((struct io_run *)k->procs->run)->donor_pid[donor];
}

/* The parent then does not take the end of this process for a failure. */
static void forget_process(struct procs *p, pid_t pid)
{
	for (uint32_t i = 0; i < p->n_pids; i++)
		if (p->pids[i] == pid)
			__atomic_store_n(&p->pids[i], 0, __ATOMIC_RELAXED);
}

static int donor_kill(struct killer *k, uint32_t donor, struct kill_times *t)
{
	const pid_t pid = __atomic_load_n(pid_of(k, donor), __ATOMIC_ACQUIRE);
	struct gn_vol_stats before;
	int rc = state_of(k, &before);

	if (rc)
		return rc;
	forget_process(k->procs, pid);
	__atomic_store_n(&k->watch.gap_ns, 0, __ATOMIC_RELAXED);
	t->kill_ns = gn_now_ns();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rc = killer_await(k, DETECT_US, "giving a donor up", has_lost, before.copies_lost);
	t->detected_ns = gn_now_ns();
	if (!rc)
		rc = killer_await(k, REPAIR_US, "repair", is_whole, donor);
	t->repaired_ns = gn_now_ns();
	if (!rc)
		rc = state_of(k, &before);
	t->repaired_bytes = before.repaired_bytes;
	return rc;
}

static int donor_restart(struct killer *k, uint32_t donor)
{
	struct procs *p = k->procs;
	int pid, rc;

	__atomic_store_n(&p->run->joined, donor, __ATOMIC_RELAXED); /* its number */
	rc = bench_spawn("--bench-load", p->pair.fd, &pid);
	if (rc)
		return load_check(p->run, rc, "starting a donor");
	for (uint32_t i = 0; i < p->n_pids; i++)
		if (!p->pids[i]) {
			__atomic_store_n(&p->pids[i], pid, __ATOMIC_RELAXED);
			break;
		}
	return killer_await(k, RETURN_US, "the return of a donor", is_up, donor);
}

static void killer_main(void *arg)
{
	struct killer *k = arg;
	int rc = 0;

	for (uint32_t i = 0; i < k->opts->kills && !rc; i++) {
		/* Donor 0 is the process that the parent has orders for. */
		const uint32_t donor = 1 + i % (k->opts->donors - 1);
		struct kill_times *t = &k->times[i];
		struct gn_vol_stats before;

		t->begin_ns = gn_now_ns();
		rc = killer_sleep(k, k->opts->kill_s);
		if (!rc)
			rc = state_of(k, &before);
		if (!rc)
			rc = donor_kill(k, donor, t);
		if (rc)
			break;
		t->repaired_bytes -= before.repaired_bytes;
		while (gn_now_ns() < t->kill_ns + OUTAGE_US * 1000ull && !gives_up(k))
			gn_sleep_us(LOOK_US);
		t->gap_ns = __atomic_load_n(&k->watch.gap_ns, __ATOMIC_RELAXED);
		rc = killer_sleep(k, k->opts->kill_s);
		t->end_ns = gn_now_ns();
		if (!rc && i + 1 < k->opts->kills)
			rc = donor_restart(k, donor);
		k->n += !rc;
	}
	if (rc && rc != -EINTR)
		load_check(k->procs->run, rc, "killing donors");
	/* Pairs with the acquire in is_over(). */
	__atomic_store_n(&k->over, 1, __ATOMIC_RELEASE);
}

static bool is_over(void *arg)
{
	struct killer *k = arg;

	return __atomic_load_n(&k->over, __ATOMIC_ACQUIRE);
}

/* ---- results ---- */

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void sum_up(const struct killer *k, struct bench_io_kills *out)
{
	double outage_ms[BENCH_IO_KILLS_MAX];
	const double n = k->n;

	*out = (struct bench_io_kills){.n = k->n};
	for (uint32_t i = 0; i < k->n; i++) {
		const struct kill_times *t = &k->times[i];

		outage_ms[i] = (double)t->gap_ns / 1e6;
		out->detect_ms += (double)(t->detected_ns - t->kill_ns) / 1e6 / n;
		out->before_kiops +=
			kiops_between(&k->watch, t->begin_ns + EDGE_NS, t->kill_ns) / n;
		out->repair_kiops += kiops_between(&k->watch, t->detected_ns, t->repaired_ns) / n;
		out->after_kiops +=
			kiops_between(&k->watch, t->repaired_ns + EDGE_NS, t->end_ns) / n;
		out->repair_s += (double)(t->repaired_ns - t->detected_ns) / 1e9 / n;
		out->repair_mib += (double)t->repaired_bytes / 1048576 / n;
	}
	if (!k->n)
		return;
	qsort(outage_ms, k->n, sizeof(outage_ms[0]), by_value);
	out->outage_ms_p50 = outage_ms[(k->n - 1) / 2];
	out->outage_ms_p99 = outage_ms[(k->n * 99 + 99) / 100 - 1];
	out->outage_ms_max = outage_ms[k->n - 1];
}

/* Lines: milliseconds, thousands of requests per second, and what happened then. */
static int write_series(const struct killer *k)
{
	const uint64_t end = (gn_now_ns() - k->watch.begin_ns) / IO_BUCKET_NS;
	FILE *f = fopen(k->opts->series, "we");
	uint32_t next = 0;
	int rc = 0;

	if (!f)
		return -errno;
	fputs("ms\tkiops\tevent\n", f);
	for (uint64_t i = 0; i < end && i < k->watch.n; i++) {
		const uint64_t until_ns = k->watch.begin_ns + (i + 1) * IO_BUCKET_NS;
		const struct kill_times *t = &k->times[next / 2];
		const char *event = "";

		if (next < 2 * k->n && until_ns > (next % 2 ? t->repaired_ns : t->kill_ns))
			event = next++ % 2 ? "repaired" : "kill";
		fprintf(f, "%llu\t%.3f\t%s\n", (unsigned long long)(i * IO_BUCKET_NS / 1000000),
			(double)k->watch.ended[i] * 1e6 / IO_BUCKET_NS, event);
	}
	if (fclose(f))
		rc = -errno;
	return rc;
}

/* ---- the run ---- */

static int kill_measure(struct killer *k, bench_progress_fn *progress, struct load_result *out)
{
	struct procs *p = k->procs;
	struct gn_thread *thread;
	int rc;

	(void)progress;
	k->watch.begin_ns = gn_now_ns();
	((struct io_process *)p->self.state)->watch = &k->watch;
	rc = gn_thread_start("killer", killer_main, k, &thread);
	if (rc)
		return load_check(p->run, rc, "starting a thread");
	rc = procs_run(p, is_over, k, out);
	gn_thread_join(thread);
	return rc;
}

int io_kill_run(const struct bench_io_opts *o, bench_progress_fn *progress, struct load_result *out,
		struct bench_io_kills *kills)
{
	struct procs procs;
	struct killer k = {.procs = &procs, .opts = o, .watch.n = BUCKETS_MAX};
	int rc = procs_open(&procs, &load_io, sizeof(struct io_run), &o->load, o->donors, 1,
			    o->load.clients);

	if (rc)
		return rc;
	((struct io_run *)procs.run)->opts = *o;
	k.times = calloc(o->kills, sizeof(*k.times));
	k.watch.ended = calloc(k.watch.n, sizeof(*k.watch.ended));
	rc = k.times && k.watch.ended ? procs_start(&procs) : -ENOMEM;
	if (!rc)
		rc = kill_measure(&k, progress, out);
	if (!rc)
		sum_up(&k, kills);
	if (!rc && o->series)
		rc = load_check(procs.run, write_series(&k), o->series);
	rc = procs_close(&procs, rc, out);
	free(k.times);
	free(k.watch.ended);
	return rc;
}
