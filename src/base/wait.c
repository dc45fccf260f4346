/* SPDX-License-Identifier: MIT */
/*
 * gn_wait() in a process: spin shortly, yield for a while, then sleep in ppoll(); gn_wait_sleep()
 * sleeps at once. A machine with
 * two cores may run both polling sides of a connection and everything else, so spinning is short. A
 * set sleeps only if every item has an fd that wakes it; otherwise it keeps yielding. Objects are
 * prepared before the spin, because their requests to peers take as long as the spin.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "base/bits.h"
#include "base/exec.h"
#include "base/real.h"

#define SPIN_NS		5000u	  /* a sleep and a wake-up cost about ten times as much */
#define YIELD_NS	20000u	  /* after the spin, for threads that share the core */
#define YIELD_MAX_NS	10000000u /* a set that cannot sleep returns after this: see wait_slow() */
#define POLLS_PER_CLOCK 8	  /* reading the clock costs more than a poll */

/* Polls the fds, which need a system call, after the other items. */
static int poll_fds(struct gn_wait_item *items, unsigned n, int ready)
{
	struct pollfd fds[GN_WAIT_MAX];

	for (unsigned i = 0; i < n; i++)
		fds[i] = (struct pollfd){
			.fd = items[i].kind == GN_WAIT_FD ? items[i].fd : -1, /* -1 is skipped */
			.events = POLLIN,
		};
	if (poll(fds, n, 0) < 0)
		return ready ? ready : -errno;
	for (unsigned i = 0; i < n; i++) {
		/*
		 * Hang-ups and bad descriptors count as ready: the owner's read() returns the
		 * error.
		 */
		if (fds[i].revents) {
			items[i].ready = true;
			ready++;
		}
	}
	return ready;
}

/*
 * Polls every item and sets its ready flag. Returns the number of ready items, or -errno if none is
 * and poll() failed.
 */
static inline int poll_items(struct gn_wait_item *items, unsigned n)
{
	bool any_fd = false;
	int ready = 0;

	for (unsigned i = 0; i < n; i++) {
		struct gn_wait_item *item = &items[i];
		bool is = false;

		if (likely(item->kind == GN_WAIT_WORD))
			/*
			 * Pairs with the release store, or the remote WRITE, that the word
			 * announces.
			 */
			is = __atomic_load_n(item->word, __ATOMIC_ACQUIRE) != item->seen;
		else if (item->kind == GN_WAIT_SOURCE)
			is = item->source->ops->ready(item->source);
		else
			any_fd = true;
		item->ready = is;
		ready += is;
	}
	return unlikely(any_fd) ? poll_fds(items, n, ready) : ready;
}

static int spin_items(struct gn_wait_item *items, unsigned n)
{
	for (int i = 0; i < POLLS_PER_CLOCK; i++) {
		int ready = poll_items(items, n);

		if (ready)
			return ready;
		cpu_relax();
	}
	return 0;
}

static int arm_items(struct gn_wait_item *item)
{
	switch (item->kind) {
	case GN_WAIT_SOURCE:
		return item->source->ops->arm(item->source);
	case GN_WAIT_FD:
		return item->fd;
	case GN_WAIT_WORD:
		break;
	}
	return -EOPNOTSUPP;
}

static void disarm_items(struct gn_wait_item *item)
{
	if (item->kind == GN_WAIT_SOURCE && item->source->ops->disarm)
		item->source->ops->disarm(item->source);
}

static int ppoll_items(struct pollfd *fds, unsigned n, uint64_t deadline_ns)
{
	struct timespec left, *timeout = NULL;
	uint64_t now_ns;

	if (deadline_ns != GN_FOREVER) {
		now_ns = real_now_ns();
		if (now_ns >= deadline_ns)
			return 0;
		left = ns_to_timespec(deadline_ns - now_ns);
		timeout = &left;
	}
	return ppoll(fds, n, timeout, NULL) < 0 ? -errno : 0;
}

/*
 * Sleeps until an item wakes it or the deadline, unless an item cannot wake it: then clears
 * *can_sleep.
 */
static int sleep_items(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns,
		       bool *can_sleep)
{
	struct pollfd fds[GN_WAIT_MAX];
	unsigned armed;
	int rc = 0;

	for (armed = 0; armed < n; armed++) {
		rc = arm_items(&items[armed]);
		if (rc < 0)
			break;
		fds[armed] = (struct pollfd){.fd = rc, .events = POLLIN};
	}
	if (armed == n) {
		/* An item that became ready before its arm() raises no event: poll once more. */
		rc = poll_items(items, n);
		if (rc == 0)
			rc = ppoll_items(fds, n, deadline_ns);
	} else {
		*can_sleep = rc == -EAGAIN;
		rc = 0;
		sched_yield();
	}
	while (armed > 0)
		disarm_items(&items[--armed]);
	return rc ? rc : poll_items(items, n);
}

/*
 * A signal interrupts ppoll() but not a loop that yields, so a set that cannot sleep returns 0 from
 * time to time: the caller sees what a signal handler changed.
 */
static int wait_slow(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, bool spin)
{
	const uint64_t spin_ns = spin ? SPIN_NS : 0, yield_ns = spin ? YIELD_NS : 0;
	uint64_t start_ns, spent_ns = 0;
	bool can_sleep = true;
	int ready =
		/* before the first reading of the clock, which takes as long */
		spin ? spin_items(items, n) : 0;

	if (ready)
		return ready;
	start_ns = real_now_ns();
	while (start_ns + spent_ns < deadline_ns) {
		if (spent_ns < spin_ns) {
			ready = spin_items(items, n);
		} else if (spent_ns < spin_ns + yield_ns || !can_sleep) {
			sched_yield();
			ready = poll_items(items, n);
		} else {
			ready = sleep_items(items, n, deadline_ns, &can_sleep);
		}
		if (ready)
			return ready;
		spent_ns = real_now_ns() - start_ns;
		if (!can_sleep && spent_ns > YIELD_MAX_NS && start_ns + spent_ns < deadline_ns)
			return 0;
	}
	return -ETIMEDOUT;
}

/* An item that is ready already costs one poll. */
int real_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason,
	      bool spin)
{
	uint64_t until_ns = deadline_ns;
	/* Without spinning the caller has polled, and wants an event. */
	int rc = likely(spin) || deadline_ns == GN_NO_WAIT ? poll_items(items, n) : 0;

	(void)reason;
	if (likely(rc))
		return rc;
	if (deadline_ns == GN_NO_WAIT)
		return -ETIMEDOUT;
	rc = source_prepare_items(items, n, &until_ns);
	if (!rc)
		rc = wait_slow(items, n, until_ns, spin);
	if (unlikely(rc == -ETIMEDOUT && until_ns < deadline_ns))
		rc = poll_items(items, n); /* an object may be due */
	source_rest_items(items, n);
	return rc;
}
