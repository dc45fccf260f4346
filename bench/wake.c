/* SPDX-License-Identifier: MIT */
/*
 * A receiver that sleeps: messages come now and then, each ends a sleep on the event channel. Takes
 * turns with an eventfd, the limit of such a wake-up. What the receiver's process uses of its core
 * is measured from inside.
 */
#include "pair.h"

#include <errno.h>
#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

#define PERIOD_US   10000u /* between messages */
#define BLOCK_WAKES 10u
#define SETTLE_US   3000u  /* for the receiver to fall asleep */
#define LOOK_US	    20000u /* a sleeper looks for new orders at least so often */
#define POLL_BATCH  16

static uint64_t cpu_ns(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
}

static bool ordered_away(const struct shared *shared, uint64_t mine)
{
	return __atomic_load_n(&shared->order, __ATOMIC_ACQUIRE) != mine || bench_stopped();
}

static void note(struct shared *shared, struct gn_hist *hist, uint64_t now_ns)
{
	gn_hist_add(hist, now_ns - __atomic_load_n(&shared->wake_stamp_ns, __ATOMIC_ACQUIRE), 1);
}

/* ---- the receiver ---- */

int wake_sleep(struct messages *m, struct side *side, struct shared *shared, uint64_t mine)
{
	struct wake_report *report = &shared->wake;
	const uint64_t cpu_before_ns = cpu_ns(), wall_before_ns = gn_now_ns();
	struct gn_counters before, after;

	gn_fabric_counters(side->fabric, &before);
	while (!ordered_away(shared, mine)) {
		struct gn_wc wc[POLL_BATCH];
		int n = gn_cq_wait(side->cq, wc, POLL_BATCH, gn_deadline_us(LOOK_US), "a message");
		const uint64_t now_ns = gn_now_ns();

		if (n == -ETIMEDOUT || n == -EINTR)
			continue;
		n = messages_receive(m, wc, n);
		if (n < 0)
			return n;
		if (n > 0)
			note(shared, &report->latency_ns, now_ns);
		report->wakes += (uint64_t)n;
		n = messages_restock(m);
		if (n)
			return n;
	}
	gn_fabric_counters(side->fabric, &after);
	report->arms += after.arms - before.arms;
	report->cpu_ns += cpu_ns() - cpu_before_ns;
	report->wall_ns += gn_now_ns() - wall_before_ns;
	return 0;
}

int wake_sleep_fd(struct shared *shared, uint64_t mine)
{
	uint64_t count;

	while (!ordered_away(shared, mine)) {
		if (read(shared->eventfd, &count, sizeof(count)) != sizeof(count))
			continue;
		if (!ordered_away(shared, mine))
			note(shared, &shared->wake.eventfd_ns, gn_now_ns());
	}
	return 0;
}

/* ---- the sender ---- */

static void stamp(struct shared *shared)
{
	__atomic_store_n(&shared->wake_stamp_ns, gn_now_ns(), __ATOMIC_RELEASE);
}

static int poke(const struct shared *shared)
{
	const uint64_t one = 1;

	return write(shared->eventfd, &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

static int wake_by_message(struct pair *pair, struct messages *m)
{
	struct gn_wc wc[POLL_BATCH];
	int rc = messages_receive(m, wc, gn_cq_poll(pair->side.cq, wc, POLL_BATCH));

	if (rc < 0)
		return rc;
	stamp(pair->shared);
	return messages_send(m);
}

static int wake_by_fd(struct pair *pair, struct messages *m)
{
	(void)m;
	stamp(pair->shared);
	return poke(pair->shared);
}

static int wake_block(struct pair *pair, struct messages *m, enum order order,
		      int (*wake)(struct pair *, struct messages *))
{
	int rc = 0;

	pair_order(pair, order);
	gn_sleep_us(SETTLE_US);
	for (unsigned i = 0; i < BLOCK_WAKES && !rc; i++) {
		gn_sleep_us(PERIOD_US);
		rc = bench_stopped() ? -EINTR : wake(pair, m);
	}
	gn_sleep_us(PERIOD_US);
	if (rc)
		return rc;
	pair_order(pair, ORDER_IDLE);
	if (order == ORDER_WAKE_FD)
		rc = poke(pair->shared); /* it sees the order when it wakes up */
	return rc ? rc : pair_wait(pair);
}

int wake_run(struct pair *pair, struct messages *m, bench_progress_fn *progress,
	     struct bench_result *result)
{
	const struct bench_opts *opts = &pair->shared->opts;
	const struct wake_report *report = &pair->shared->wake;
	uint64_t sent = 0;
	int rc = 0;

	gn_hist_init(&pair->shared->wake.latency_ns);
	gn_hist_init(&pair->shared->wake.eventfd_ns);
	while (!rc && (double)(sent * PERIOD_US) < opts->seconds * 1e6) {
		rc = wake_block(pair, m, ORDER_WAKE, wake_by_message);
		sent += BLOCK_WAKES;
		if (!rc)
			rc = wake_block(pair, m, ORDER_WAKE_FD, wake_by_fd);
		if (progress)
			progress(opts, fmin(1, (double)(sent * PERIOD_US) / opts->seconds / 1e6));
	}
	if (rc)
		return rc;
	if (report->wakes != sent) {
		gn_log(GN_LOG_ERROR, "wake: %llu messages of %llu arrived",
		       (unsigned long long)report->wakes, (unsigned long long)sent);
		return -EBADMSG;
	}
	result->ops = sent;
	result->seconds = (double)report->wall_ns / 1e9;
	result->p50_ns = (double)gn_hist_percentile(&report->latency_ns, 50);
	result->p99_ns = (double)gn_hist_percentile(&report->latency_ns, 99);
	result->eventfd_p50_ns = (double)gn_hist_percentile(&report->eventfd_ns, 50);
	result->cpu_percent = 100.0 * (double)report->cpu_ns / (double)report->wall_ns;
	result->sleeps = report->arms;
	return 0;
}
