/* SPDX-License-Identifier: MIT */
/*
 * gn_source_fd(): an epoll set with the fds of a source's members and a timer, for other event
 * loops and for gn_wait() on an object. It is created on first use; a simulation has none. Users
 * get a second, outer set that contains the first only while the source is armed: the fds of a
 * source that is not polled may stay readable for long.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/exec.h"
#include "base/fail.h"
#include "base/real.h"

struct source_epoll {
	int fd, outer_fd, timer_fd;
	bool open;	  /* the outer set contains the inner */
	uint64_t set_ns;  /* the timer's deadline; GN_FOREVER: off */
	uint32_t version; /* grows when an fd is removed */
};

/* ---- epoll set ---- */

static void source_disarm_all(struct gn_source *source)
{
	for (struct gn_source *m = source->members; m; m = m->next)
		source_disarm_all(m);
	if (source->armed && source->ops->disarm && !source_is_object(source))
		source->ops->disarm(source);
	source->armed = false;
}

/* Another member may share the fd: it is added again when that member is armed. */
static void source_leave_epoll(struct gn_source *source)
{
	if (!source->entered)
		return;
	epoll_ctl(source->entered->fd, EPOLL_CTL_DEL, source->fd, NULL);
	source->entered->version++;
	source->entered = NULL;
}

/* Removes fds that may stay readable while nothing polls the source. */
static void source_leave_epoll_all(struct gn_source *source)
{
	source_leave_epoll(source);
	for (struct gn_source *m = source->members; m; m = m->next)
		source_leave_epoll_all(m);
}

/* Called before the set is closed. */
static void source_forget_epoll(struct gn_source *source, const struct source_epoll *epoll)
{
	if (source->entered == epoll)
		source->entered = NULL;
	for (struct gn_source *m = source->members; m; m = m->next)
		source_forget_epoll(m, epoll);
}

static void source_close_epoll(struct source_epoll *p)
{
	const int fds[] = {p->outer_fd, p->timer_fd, p->fd};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	gn_free(p);
}

void source_poller_fini(struct gn_source *source)
{
	source_disarm_all(source);
	source_leave_epoll(source);
	if (!source->epoll)
		return;
	source_forget_epoll(source, source->epoll);
	source_close_epoll(source->epoll);
	source->epoll = NULL;
}

static int source_create_epoll(struct gn_source *source)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct source_epoll *p;
	int rc;

	if (source->epoll)
		return 0;
	p = gn_alloc(sizeof(*p), 0);
	if (!p)
		return -ENOMEM;
	*p = (struct source_epoll){.set_ns = GN_FOREVER};
	p->fd = epoll_create1(EPOLL_CLOEXEC);
	p->outer_fd = epoll_create1(EPOLL_CLOEXEC);
	p->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (p->fd >= 0 && p->outer_fd >= 0 && p->timer_fd >= 0 &&
	    !epoll_ctl(p->fd, EPOLL_CTL_ADD, p->timer_fd, &event)) {
		source->epoll = p;
		return 0;
	}
	rc = gn_fail_log(-errno, "base: cannot make an fd to wait on: %s", gn_strerror(-errno));
	source_close_epoll(p);
	return rc;
}

/* Two sources may share an fd: a cq uses its channel's. */
static int epoll_add_source(struct source_epoll *p, struct gn_source *source, int fd)
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

static int source_arm_into(struct source_epoll *p, struct gn_source *source)
{
	int rc = 0;

	if (source->mute)
		source_leave_epoll_all(source);
	for (struct gn_source *m = source->mute ? NULL : source->members; m && !rc; m = m->next)
		rc = source_arm_into(p, m);
	if (rc || source_is_object(source))
		return rc;
	rc = source->ops->arm(source);
	if (rc < 0)
		return rc;
	source->armed = true;
	return epoll_add_source(p, source, rc);
}

/* ---- arming ---- */

/*
 * Sets the timer to due_ns. An earlier deadline is kept: most deadlines are never reached, and
 * setting the timer costs a system call.
 */
static int epoll_set_timer(struct source_epoll *p, uint64_t due_ns)
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

static int epoll_set_outer(struct source_epoll *p, bool open)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (p->open == open)
		return 0;
	if (epoll_ctl(p->outer_fd, open ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, p->fd, &event))
		return gn_fail_log(-errno, "base: cannot arm an fd: %s", gn_strerror(-errno));
	p->open = open;
	return 0;
}

static int source_arm_epoll(struct gn_source *source, uint64_t due_ns)
{
	int rc = source_create_epoll(source);

	if (!rc)
		rc = epoll_set_timer(source->epoll, due_ns);
	if (!rc)
		rc = source_arm_into(source->epoll, source);
	if (rc)
		source_disarm_all(source);
	return rc;
}

/* For gn_wait(), which itself limits its sleep to the object's due time. */
int source_object_arm(struct gn_source *object)
{
	const int rc = source_arm_epoll(object, GN_FOREVER);

	return rc ? rc : object->epoll->fd;
}

void source_object_disarm(struct gn_source *object)
{
	source_disarm_all(object);
}

int gn_source_fd(struct gn_source *source)
{
	int rc;

	if (!source)
		return gn_fail(-EINVAL, "gn_source_fd(): source is NULL");
	if (exec_current() != &exec_real)
		return gn_fail(-EOPNOTSUPP,
			       "gn_source_fd(): there are no fds in a simulation; gn_wait()");
	rc = source_create_epoll(source);
	return rc ? rc : source->epoll->outer_fd;
}

int gn_source_arm(struct gn_source *source)
{
	int rc;

	if (!source || !source->epoll)
		return gn_fail(-EINVAL,
			       "gn_source_arm(): source is NULL, or has no gn_source_fd()");
	source_disarm_all(source);
	rc = source_prepare(source);
	if (!rc)
		rc = source_arm_epoll(source, source_due_ns(source));
	/* A source that became ready before it was armed raises no event. */
	if (!rc && source->ops->ready(source))
		rc = -EAGAIN;
	if (!rc)
		rc = epoll_set_outer(source->epoll, true);
	if (rc) {
		source_disarm_all(source);
		source_rest(source);
	}
	return rc;
}

void gn_source_disarm(struct gn_source *source)
{
	if (!source)
		return;
	source_disarm_all(source);
	source_rest(source);
	if (source->epoll)
		epoll_set_outer(source->epoll, false);
}
