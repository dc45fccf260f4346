/* SPDX-License-Identifier: MIT */
/*
 * The fd of a source, for somebody else's event loop and for gn_wait() on an object: an epoll set
 * with the fds of all that the source is made of, and a timer. It is made when it is first needed;
 * in a simulation there is none. What others see is a second set, the gate, which holds the first
 * only while the source is armed: a source that is not polled may have readable fds for long.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/exec.h"
#include "base/fail.h"
#include "base/real.h"

struct source_poller {
	int fd, gate_fd, timer_fd;
	bool open;	  /* the gate */
	uint64_t set_ns;  /* what the timer is set to; GN_FOREVER: it is off */
	uint32_t version; /* of the set: grows when an fd leaves it */
};

/* ---- the set ---- */

static void disarm_all(struct gn_source *source)
{
	for (struct gn_source *m = source->members; m; m = m->next)
		disarm_all(m);
	if (source->armed && source->ops->disarm && !source_is_object(source))
		source->ops->disarm(source);
	source->armed = false;
}

/* Another member may have the same fd: it is entered anew when it is armed next. */
static void leave_poller(struct gn_source *source)
{
	if (!source->entered)
		return;
	epoll_ctl(source->entered->fd, EPOLL_CTL_DEL, source->fd, NULL);
	source->entered->version++;
	source->entered = NULL;
}

/* Its fds may stay readable, and nobody takes what is there. */
static void leave_all(struct gn_source *source)
{
	leave_poller(source);
	for (struct gn_source *m = source->members; m; m = m->next)
		leave_all(m);
}

/* The set is about to go. */
static void forget_poller(struct gn_source *source, const struct source_poller *poller)
{
	if (source->entered == poller)
		source->entered = NULL;
	for (struct gn_source *m = source->members; m; m = m->next)
		forget_poller(m, poller);
}

static void close_poller(struct source_poller *p)
{
	const int fds[] = {p->gate_fd, p->timer_fd, p->fd};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	gn_free(p);
}

void source_poller_fini(struct gn_source *source)
{
	disarm_all(source);
	leave_poller(source);
	if (!source->poller)
		return;
	forget_poller(source, source->poller);
	close_poller(source->poller);
	source->poller = NULL;
}

static int make_poller(struct gn_source *source)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct source_poller *p;
	int rc;

	if (source->poller)
		return 0;
	p = gn_alloc(sizeof(*p), 0);
	if (!p)
		return -ENOMEM;
	*p = (struct source_poller){.set_ns = GN_FOREVER};
	p->fd = epoll_create1(EPOLL_CLOEXEC);
	p->gate_fd = epoll_create1(EPOLL_CLOEXEC);
	p->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (p->fd >= 0 && p->gate_fd >= 0 && p->timer_fd >= 0 &&
	    !epoll_ctl(p->fd, EPOLL_CTL_ADD, p->timer_fd, &event)) {
		source->poller = p;
		return 0;
	}
	rc = gn_fail_log(-errno, "base: cannot make an fd to wait on: %s", gn_strerror(-errno));
	close_poller(p);
	return rc;
}

/* Two sources may have one fd: a cq has its channel's. */
static int enter(struct source_poller *p, struct gn_source *source, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (source->entered == p && source->fd == fd && source->entered_at == p->version)
		return 0;
	if (epoll_ctl(p->fd, EPOLL_CTL_ADD, fd, &event) && errno != EEXIST)
		return gn_fail_log(-errno, "base: cannot wait on fd %d: %s", fd,
				   gn_strerror(-errno));
	source->entered = p;
	source->entered_at = p->version;
	source->fd = fd;
	return 0;
}

static int arm_into(struct source_poller *p, struct gn_source *source)
{
	int rc = 0;

	if (source->mute)
		leave_all(source);
	for (struct gn_source *m = source->mute ? NULL : source->members; m && !rc; m = m->next)
		rc = arm_into(p, m);
	if (rc || source_is_object(source))
		return rc;
	rc = source->ops->arm(source);
	if (rc < 0)
		return rc;
	source->armed = true;
	return enter(p, source, rc);
}

/* ---- arming ---- */

/*
 * Readable at that time, or earlier: it is not set again for a later one, because it is mostly
 * never reached, and to set it costs a system call.
 */
static int set_timer(struct source_poller *p, uint64_t due_ns)
{
	struct itimerspec spec = {.it_value = {0}}; /* off */

	if (p->set_ns <= due_ns && (p->set_ns == GN_FOREVER || p->set_ns > real_now_ns()))
		return 0;
	p->set_ns = due_ns;
	if (due_ns != GN_FOREVER)
		spec.it_value = ns_to_timespec(due_ns);
	return timerfd_settime(p->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) ?
		       gn_fail_log(-errno, "base: cannot set a timer: %s", gn_strerror(-errno)) :
		       0;
}

static int set_gate(struct source_poller *p, bool open)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (p->open == open)
		return 0;
	if (epoll_ctl(p->gate_fd, open ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, p->fd, &event))
		return gn_fail_log(-errno, "base: cannot arm an fd: %s", gn_strerror(-errno));
	p->open = open;
	return 0;
}

static int arm(struct gn_source *source, uint64_t due_ns)
{
	int rc = make_poller(source);

	if (!rc)
		rc = set_timer(source->poller, due_ns);
	if (!rc)
		rc = arm_into(source->poller, source);
	if (rc)
		disarm_all(source);
	return rc;
}

/* Of gn_wait(), which sleeps until the object is due by itself. */
int source_object_arm(struct gn_source *object)
{
	const int rc = arm(object, GN_FOREVER);

	return rc ? rc : object->poller->fd;
}

void source_object_disarm(struct gn_source *object)
{
	disarm_all(object);
}

int gn_source_fd(struct gn_source *source)
{
	int rc;

	if (!source)
		return gn_fail(-EINVAL, "gn_source_fd(): source is NULL");
	if (exec_current() != &exec_real)
		return gn_fail(-EOPNOTSUPP,
			       "gn_source_fd(): there are no fds in a simulation; gn_wait()");
	rc = make_poller(source);
	return rc ? rc : source->poller->gate_fd;
}

int gn_source_arm(struct gn_source *source)
{
	int rc;

	if (!source || !source->poller)
		return gn_fail(-EINVAL,
			       "gn_source_arm(): source is NULL, or has no gn_source_fd()");
	disarm_all(source);
	rc = source_prepare(source);
	if (!rc)
		rc = arm(source, source_due_ns(source));
	/* What became ready before it was armed raises no event. */
	if (!rc && source->ops->ready(source))
		rc = -EAGAIN;
	if (!rc)
		rc = set_gate(source->poller, true);
	if (rc) {
		disarm_all(source);
		source_rest(source);
	}
	return rc;
}

void gn_source_disarm(struct gn_source *source)
{
	if (!source)
		return;
	disarm_all(source);
	source_rest(source);
	if (source->poller)
		set_gate(source->poller, false);
}
