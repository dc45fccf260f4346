/* SPDX-License-Identifier: MIT */
/*
 * gn_wait() in a process: spin a little, yield a while, then sleep in ppoll(). Machines with two
 * cores run two polling ends of a connection and the rest of the world, so spinning is short. A set
 * sleeps only if every member gave a file descriptor that wakes it; otherwise it goes on yielding.
 * Objects are prepared before the spin: what they ask of their peers takes as long as that.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "base/bits.h"
#include "base/exec.h"
#include "base/real.h"

#define SPIN_NS		5000u	  /* a sleep and a wake-up cost some ten times as much */
#define YIELD_NS	20000u	  /* after the spin, for who shares the core with us */
#define NO_SLEEP_NS	10000000u /* a set that cannot sleep returns after this: see real_wait() */
#define LOOKS_PER_CLOCK 8	  /* reading the clock costs more than looking */

/* The members that only the kernel can look at, after ready others were found. */
static int look_at_fds(struct gn_wait_item *items, unsigned n, int ready)
{
	struct pollfd fds[GN_WAIT_MAX];

	for (unsigned i = 0; i < n; i++)
		fds[i] = (struct pollfd){
			.fd = items[i].kind == GN_WAIT_FD ? items[i].fd : -1, /* which is skipped */
			.events = POLLIN,
		};
	if (poll(fds, n, 0) < 0)
		return ready ? ready : -errno;
	for (unsigned i = 0; i < n; i++) {
		/* Hang-ups and bad descriptors count as well: the owner's read() tells it which. */
		if (fds[i].revents) {
			items[i].ready = true;
			ready++;
		}
	}
	return ready;
}

/*
 * Looks at every member and sets its flag. Returns how many are ready, or -errno when none is and
 * poll failed.
 */
static inline int look(struct gn_wait_item *items, unsigned n)
{
	bool any_fd = false;
	int ready = 0;

	for (unsigned i = 0; i < n; i++) {
		struct gn_wait_item *item = &items[i];
		bool is = false;

		if (likely(item->kind == GN_WAIT_WORD))
			/*
			 * Pairs with the release store, or the remote write, that fills what the
			 * word announces.
			 */
			is = __atomic_load_n(item->word, __ATOMIC_ACQUIRE) != item->seen;
		else if (item->kind == GN_WAIT_SOURCE)
			is = item->source->ops->ready(item->source);
		else
			any_fd = true;
		item->ready = is;
		ready += is;
	}
	return unlikely(any_fd) ? look_at_fds(items, n, ready) : ready;
}

static int spin(struct gn_wait_item *items, unsigned n)
{
	for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
		int ready = look(items, n);

		if (ready)
			return ready;
		cpu_relax();
	}
	return 0;
}

static int arm(struct gn_wait_item *item)
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

static void disarm(struct gn_wait_item *item)
{
	if (item->kind == GN_WAIT_SOURCE && item->source->ops->disarm)
		item->source->ops->disarm(item->source);
}

static int sleep_on(struct pollfd *fds, unsigned n, uint64_t deadline_ns)
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
 * Sleeps until a member wakes it or the deadline, unless a member cannot wake it: then clears
 * *can_sleep.
 */
static int doze(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, bool *can_sleep)
{
	struct pollfd fds[GN_WAIT_MAX];
	unsigned armed;
	int rc = 0;

	for (armed = 0; armed < n; armed++) {
		rc = arm(&items[armed]);
		if (rc < 0)
			break;
		fds[armed] = (struct pollfd){.fd = rc, .events = POLLIN};
	}
	if (armed == n) {
		/*
		 * What became ready before its arm() raises no event, so look once more before the
		 * sleep.
		 */
		rc = look(items, n);
		if (rc == 0)
			rc = sleep_on(fds, n, deadline_ns);
	} else {
		*can_sleep = rc == -EAGAIN;
		rc = 0;
		sched_yield();
	}
	while (armed > 0)
		disarm(&items[--armed]);
	return rc ? rc : look(items, n);
}

/*
 * A signal ends ppoll() but leaves no trace in a loop that yields, so a set that cannot sleep
 * returns 0 now and then to let its caller see what a handler changed.
 */
static int wait_long(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns)
{
	uint64_t start_ns, spent_ns = 0;
	bool can_sleep = true;
	int ready = spin(items, n); /* before the first look at the clock, which takes as long */

	if (ready)
		return ready;
	start_ns = real_now_ns();
	while (start_ns + spent_ns < deadline_ns) {
		if (spent_ns < SPIN_NS) {
			ready = spin(items, n);
		} else if (spent_ns < SPIN_NS + YIELD_NS || !can_sleep) {
			sched_yield();
			ready = look(items, n);
		} else {
			ready = doze(items, n, deadline_ns, &can_sleep);
		}
		if (ready)
			return ready;
		spent_ns = real_now_ns() - start_ns;
		if (!can_sleep && spent_ns > NO_SLEEP_NS && start_ns + spent_ns < deadline_ns)
			return 0;
	}
	return -ETIMEDOUT;
}

/* What is ready already costs one look. */
int real_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason)
{
	uint64_t until_ns = deadline_ns;
	int rc = look(items, n);

	(void)reason;
	if (likely(rc))
		return rc;
	if (deadline_ns == GN_NO_WAIT)
		return -ETIMEDOUT;
	rc = source_prepare_items(items, n, &until_ns);
	if (!rc)
		rc = wait_long(items, n, until_ns);
	if (unlikely(rc == -ETIMEDOUT && until_ns < deadline_ns))
		rc = look(items, n); /* an object is due */
	source_rest_items(items, n);
	return rc;
}
