/* SPDX-License-Identifier: MIT */
/*
 * How a loop waits. At first it polls for messages in memory and for posted tasks: polling a
 * channel costs a system call, and most waits end here. Then it also waits for events, completions
 * and timers, and sleeps if no message may appear in memory.
 */
#include <errno.h>

#include "base/deadline.h"
#include "link/link.h"

#define TORN_RETRY_US	  1u  /* poll for the rest of a partly written message */
#define UNWATCHED_POLL_US 50u /* poll interval for words that do not fit into the wait set */
#define EXTRA_ITEMS	  3u  /* wait items of inbox, cq and channel */

static int loop_wait_result(int rc, uint64_t deadline_ns)
{
	if (rc == -ETIMEDOUT)
		return gn_now_ns() < deadline_ns ? 0 : rc;
	return rc > 0 ? 0 : rc;
}

/* No message may appear in memory: the channel wakes the inbox's owner. */
static int loop_sleep(struct link_loop *loop, struct gn_wait_item *items, unsigned n,
		      uint64_t until_ns, const char *reason)
{
	int rc = 0;

	/* Pairs with link_loop_post(): it sees asleep, or we see its task. */
	__atomic_store_n(&loop->asleep, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&loop->tasks, __ATOMIC_SEQ_CST))
		rc = exec_wait(items, n, until_ns, reason);
	__atomic_store_n(&loop->asleep, 0, __ATOMIC_RELAXED);
	return rc;
}

int link_loop_wait(struct link_loop *loop, uint64_t deadline_ns, const char *reason)
{
	struct gn_wait_item items[GN_WAIT_MAX];
	const struct link_policy *policy = &loop->policy;
	struct link_words words = {.items = items, .max = GN_WAIT_MAX - EXTRA_ITEMS};
	uint64_t until_ns;
	unsigned n;
	int rc;

	if (loop->ops->poll_words)
		loop->ops->poll_words(loop, &words);
	/* Usually the rest of the message has just arrived: iterate once more. */
	if (words.torn && !loop->torn) {
		loop->torn = true;
		return 0;
	}
	loop->torn = words.torn;
	n = words.n;
	if (policy->spin_us && (n || policy->completions)) {
		if (policy->completions)
			items[n++] = gn_wait_on(gn_cq_source(loop->cq));
		items[n++] = gn_wait_on(&loop->inbox);
		until_ns = link_loop_clock(loop) +
			   (words.torn ? TORN_RETRY_US : policy->spin_us) * 1000ull;
		rc = exec_wait(items, n, min_u64(deadline_ns, until_ns), reason);
		if (rc != -ETIMEDOUT)
			return loop_wait_result(rc, deadline_ns);
	}
	if (loop->ops->req_notify && !words.torn && loop->ops->req_notify(loop))
		words.n = 0;
	link_loop_force_maintain(loop);
	until_ns = words.torn ? gn_deadline_us(TORN_RETRY_US) :
		   words.more ? gn_deadline_us(UNWATCHED_POLL_US) :
				GN_FOREVER;
	until_ns = min_u64(until_ns, deadline_due(link_timers_due(&loop->timers)));
	until_ns = min_u64(until_ns, deadline_ns);
	n = words.n;
	items[n++] = gn_wait_on(gn_chan_source(loop->chan));
	items[n++] = gn_wait_on(gn_cq_source(loop->cq));
	if (words.n) {
		items[n++] = gn_wait_on(&loop->inbox);
		rc = exec_wait(items, n, until_ns, reason);
	} else {
		rc = loop_sleep(loop, items, n, until_ns, reason);
	}
	return loop_wait_result(rc, deadline_ns);
}

/*
 * The caller iterates with maintenance before and after. From here on link_loop_post() wakes the
 * loop through its channel.
 */
int link_loop_prepare(struct gn_source *source)
{
	struct link_loop *loop = container_of(source, struct link_loop, source);
	const bool maintained = !loop->iterations;

	link_loop_force_maintain(loop);
	if (!maintained)
		return -EAGAIN;
	/* Pairs with link_loop_post(): it sees asleep, or we see its task. */
	__atomic_store_n(&loop->asleep, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&loop->tasks, __ATOMIC_SEQ_CST))
		return -EAGAIN;
	source_due(source, link_timers_due(&loop->timers));
	return loop->ops->prepare_sleep ? loop->ops->prepare_sleep(loop) : 0;
}
