/* SPDX-License-Identifier: MIT */
/*
 * How a loop waits. First, for a short while, for what peers write and other threads post: to look
 * at a channel costs a system call, and most waits end here. Then for events, completions and
 * timers as well; asleep, if nothing has to be found in memory.
 */
#include <errno.h>

#include "base/deadline.h"
#include "link/link.h"

#define TORN_NAP_US 1u	/* the rest of a message is on its way, and its first word says nothing */
#define MANY_NAP_US 50u /* with more words than a wait has room for */
#define BESIDE	    3u	/* items for inbox, cq and channel */

static uint64_t sooner(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

static int look_again(int rc, uint64_t deadline_ns)
{
	if (rc == -ETIMEDOUT)
		return gn_now_ns() < deadline_ns ? 0 : rc;
	return rc > 0 ? 0 : rc;
}

/* Nothing is to be found in memory: the inbox wakes through the channel. */
static int sleep_on(struct link_loop *loop, struct gn_wait_item *items, unsigned n,
		    uint64_t until_ns, const char *reason)
{
	int rc = 0;

	/* Pairs with link_loop_post(): it sees that we sleep, or we see its task. */
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
	struct link_words words = {.items = items, .max = GN_WAIT_MAX - BESIDE};
	uint64_t until_ns;
	unsigned n;
	int rc;

	if (loop->ops->words)
		loop->ops->words(loop, &words);
	/* Mostly it has just come, all of it. */
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
			   (words.torn ? TORN_NAP_US : policy->spin_us) * 1000ull;
		rc = exec_wait(items, n, sooner(deadline_ns, until_ns), reason);
		if (rc != -ETIMEDOUT)
			return look_again(rc, deadline_ns);
	}
	if (loop->ops->notified && !words.torn && loop->ops->notified(loop))
		words.n = 0;
	link_loop_must_tend(loop);
	until_ns = words.torn ? gn_deadline_us(TORN_NAP_US) :
		   words.more ? gn_deadline_us(MANY_NAP_US) :
				GN_FOREVER;
	until_ns = sooner(until_ns, deadline_due(link_timers_due(&loop->timers)));
	until_ns = sooner(until_ns, deadline_ns);
	n = words.n;
	items[n++] = gn_wait_on(gn_chan_source(loop->chan));
	items[n++] = gn_wait_on(gn_cq_source(loop->cq));
	if (words.n) {
		items[n++] = gn_wait_on(&loop->inbox);
		rc = exec_wait(items, n, until_ns, reason);
	} else {
		rc = sleep_on(loop, items, n, until_ns, reason);
	}
	return look_again(rc, deadline_ns);
}

/*
 * A turn that looks at everything comes before and after. From here on link_loop_post() wakes
 * through the channel.
 */
int link_loop_prepare(struct gn_source *source)
{
	struct link_loop *loop = container_of(source, struct link_loop, source);
	const bool tended = !loop->turns;

	link_loop_must_tend(loop);
	if (!tended)
		return -EAGAIN;
	/* Pairs with link_loop_post(): it sees that we sleep, or we see its task. */
	__atomic_store_n(&loop->asleep, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&loop->tasks, __ATOMIC_SEQ_CST))
		return -EAGAIN;
	source_due(source, link_timers_due(&loop->timers));
	return loop->ops->sleep ? loop->ops->sleep(loop) : 0;
}
