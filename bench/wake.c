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

#define PERIOD_US      10000u /* between messages */
#define BLOCK_WAKES    10u
#define SETTLE_US      2000000u /* for the receiver to take one and fall asleep, at most */
#define SETTLE_LOOK_US 200u
#define LOOK_US	       20000u /* a sleeper looks for new orders at least so often */
#define POLL_BATCH     16

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

static void note(struct shared *shared, struct wakes *wakes, uint64_t now_ns)
{
	/* Pairs with the release in stamp(). */
	const uint64_t sent_ns = __atomic_load_n(&shared->wake.stamp_ns, __ATOMIC_ACQUIRE);

	gn_hist_add(&wakes->latency_ns, now_ns - sent_ns, 1);
}

/* The sender waits for that before it sends the next, and stamps it: see settle(). */
static void count(struct wakes *wakes, uint64_t n)
{
	__atomic_fetch_add(&wakes->messages, n, __ATOMIC_RELEASE);
}

/* ---- the receiver ---- */

static int take_messages(struct messages *m, struct wakes *wakes, const struct gn_wc *wc, int n)
{
	n = messages_receive(m, wc, n);
	if (n < 0)
		return n;
	count(wakes, (uint64_t)n);
	return messages_restock(m);
}

static int sleep_on_cq(struct messages *m, struct side *side, struct shared *shared, uint64_t mine)
{
	struct wakes *wakes = &shared->wake.by_message;
	struct gn_wc wc[POLL_BATCH];
	int n, rc = 0;

	while (!rc && !ordered_away(shared, mine)) {
		n = gn_cq_wait(side->cq, wc, POLL_BATCH, gn_deadline_us(LOOK_US), "a message");
		if (n == -ETIMEDOUT || n == -EINTR)
			continue;
		if (n > 0)
			note(shared, wakes, gn_now_ns());
		rc = take_messages(m, wakes, wc, n);
	}
	/* One may have come while we were too slow to see it before the order. */
	while (!rc && (n = gn_cq_poll(side->cq, wc, POLL_BATCH)) != 0)
		rc = take_messages(m, wakes, wc, n);
	return rc;
}

static void sleep_on_fd(struct shared *shared, uint64_t mine)
{
	uint64_t value;

	while (!ordered_away(shared, mine)) {
		if (read(shared->eventfd, &value, sizeof(value)) != sizeof(value))
			continue;
		if (ordered_away(shared, mine))
			break;
		note(shared, &shared->wake.by_eventfd, gn_now_ns());
		count(&shared->wake.by_eventfd, 1);
	}
}

int wake_sleep(struct messages *m, struct side *side, struct shared *shared, uint64_t mine)
{
	const bool by_message = (mine & 0xff) == ORDER_WAKE;
	struct wakes *wakes = by_message ? &shared->wake.by_message : &shared->wake.by_eventfd;
	const uint64_t cpu_before_ns = cpu_ns(), wall_before_ns = gn_now_ns();
	struct gn_counters before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	int rc = 0;

	gn_fabric_counters(side->fabric, &before);
	if (by_message)
		rc = sleep_on_cq(m, side, shared, mine);
	else
		sleep_on_fd(shared, mine);
	gn_fabric_counters(side->fabric, &after);
	wakes->arms += after.arms - before.arms;
	wakes->cpu_ns += cpu_ns() - cpu_before_ns;
	wakes->wall_ns += gn_now_ns() - wall_before_ns;
	return rc;
}

/* ---- the sender ---- */

static void stamp(struct shared *shared)
{
	/* Pairs with the acquire in note(). */
	__atomic_store_n(&shared->wake.stamp_ns, gn_now_ns(), __ATOMIC_RELEASE);
}

static int poke(const struct shared *shared)
{
	const uint64_t one = 1;

	return write(shared->eventfd, &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

static int wake_by_message(struct pair *pair, const struct side *side, struct messages *m)
{
	struct gn_wc wc[POLL_BATCH];
	int rc = messages_receive(m, wc, gn_cq_poll(side->cq, wc, POLL_BATCH));

	if (rc < 0)
		return rc;
	stamp(pair->shared);
	return messages_send(m);
}

static int wake_by_fd(struct pair *pair, const struct side *side, struct messages *m)
{
	(void)side;
	(void)m;
	stamp(pair->shared);
	return poke(pair->shared);
}

static bool is_asleep(pid_t pid)
{
	char path[32], state = 'S';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 'S';
	if (f)
		fclose(f);
	return state == 'S';
}

/*
 * The receiver has taken so many messages, and sleeps. On a busy machine it yields for longer than
 * a period before it sleeps: the next message would end no sleep, or two of them the same. What
 * never comes is found when all are counted.
 */
static void settle(const struct pair *pair, const struct wakes *wakes, uint64_t n)
{
	const uint64_t until_ns = gn_deadline_us(SETTLE_US);

	while ((__atomic_load_n(&wakes->messages, __ATOMIC_ACQUIRE) < n || !is_asleep(pair->pid)) &&
	       !bench_stopped() && gn_now_ns() < until_ns)
		gn_sleep_us(SETTLE_LOOK_US);
}

static int wake_block(struct pair *pair, const struct side *side, struct messages *m,
		      enum order order,
		      int (*wake)(struct pair *, const struct side *, struct messages *))
{
	const struct wake_report *report = &pair->shared->wake;
	const struct wakes *wakes = order == ORDER_WAKE ? &report->by_message : &report->by_eventfd;
	const uint64_t before = __atomic_load_n(&wakes->messages, __ATOMIC_RELAXED);
	int rc = 0;

	pair_order(pair, order);
	for (unsigned i = 0; i < BLOCK_WAKES && !rc; i++) {
		gn_sleep_us(PERIOD_US);
		settle(pair, wakes, before + i);
		rc = bench_stopped() ? -EINTR : wake(pair, side, m);
	}
	if (!rc)
		settle(pair, wakes, before + BLOCK_WAKES);
	if (rc)
		return rc;
	pair_order(pair, ORDER_IDLE);
	if (order == ORDER_WAKE_FD)
		rc = poke(pair->shared); /* it sees the order when it wakes up */
	return rc ? rc : pair_wait(pair);
}

static double cpu_percent(const struct wakes *wakes)
{
	return 100.0 * (double)wakes->cpu_ns / (double)wakes->wall_ns;
}

static int report(const struct wake_report *wake, uint64_t sent, struct bench_result *result)
{
	const struct wakes *own = &wake->by_message, *limit = &wake->by_eventfd;

	if (own->messages != sent) {
		gn_log(GN_LOG_ERROR, "wake: %llu messages of %llu arrived",
		       (unsigned long long)own->messages, (unsigned long long)sent);
		return -EBADMSG;
	}
	result->ops = sent;
	result->seconds = (double)own->wall_ns / 1e9;
	result->p50_ns = (double)gn_hist_percentile(&own->latency_ns, 50);
	result->p99_ns = (double)gn_hist_percentile(&own->latency_ns, 99);
	result->cpu_percent = cpu_percent(own);
	result->sleeps = own->arms;
	result->eventfd_p50_ns = (double)gn_hist_percentile(&limit->latency_ns, 50);
	result->eventfd_cpu_percent = cpu_percent(limit);
	return 0;
}

int wake_run(struct pair *pair, const struct side *side, struct messages *m,
	     bench_progress_fn *progress, struct bench_result *result)
{
	const struct bench_opts *opts = &pair->shared->opts;
	struct wake_report *wake = &pair->shared->wake;
	uint64_t sent = 0;
	int rc = 0;

	gn_hist_init(&wake->by_message.latency_ns);
	gn_hist_init(&wake->by_eventfd.latency_ns);
	while (!rc && (double)(sent * PERIOD_US) < opts->seconds * 1e6) {
		rc = wake_block(pair, side, m, ORDER_WAKE, wake_by_message);
		sent += BLOCK_WAKES;
		if (!rc)
			rc = wake_block(pair, side, m, ORDER_WAKE_FD, wake_by_fd);
		if (progress)
			progress(opts, fmin(1, (double)(sent * PERIOD_US) / opts->seconds / 1e6));
	}
	return rc ? rc : report(wake, sent, result);
}
