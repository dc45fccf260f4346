/* SPDX-License-Identifier: MIT */
/*
 * A program's own event loop: it sleeps in epoll on the fds of sources, where there are fds, and in
 * gn_wait() in a simulation. Nothing here looks again by itself before the deadline, so a wake-up
 * that is lost shows as time.
 */
#ifndef GN_TESTS_EVENT_LOOP_H
#define GN_TESTS_EVENT_LOOP_H

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "gannet/base.h"

#define NAP_SOURCES 4u

struct nap {
	struct gn_source *sources[NAP_SOURCES];
	unsigned n;
	bool simulated;
	int epoll_fd;
	uint64_t sleeps; /* times that it went to sleep */
};

static inline void nap_open(struct nap *nap, bool simulated)
{
	*nap = (struct nap){.simulated = simulated, .epoll_fd = -1};
	if (!simulated)
		nap->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
}

static inline int nap_add(struct nap *nap, struct gn_source *source)
{
	struct epoll_event event = {.events = EPOLLIN};
	int fd;

	if (!source || nap->n == NAP_SOURCES)
		return -EINVAL;
	nap->sources[nap->n++] = source;
	if (nap->simulated)
		return 0;
	fd = gn_source_fd(source);
	if (fd < 0)
		return fd;
	return epoll_ctl(nap->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static inline void nap_close(struct nap *nap)
{
	if (nap->epoll_fd >= 0)
		close(nap->epoll_fd);
}

/* 1: something is to be polled; 0: the deadline; or -errno. */
static inline int nap(struct nap *nap, uint64_t deadline_ns)
{
	struct epoll_event event;
	int rc = 0, n = 0;
	uint64_t now_ns;

	if (nap->simulated) {
		struct gn_wait_item items[NAP_SOURCES];

		for (unsigned i = 0; i < nap->n; i++)
			items[i] = gn_wait_on(nap->sources[i]);
		nap->sleeps++;
		rc = gn_wait(items, nap->n, deadline_ns, "an event loop");
		return rc == -ETIMEDOUT ? 0 : rc < 0 ? rc : 1;
	}
	for (unsigned i = 0; i < nap->n && !rc; i++)
		rc = gn_source_arm(nap->sources[i]);
	now_ns = gn_now_ns();
	if (!rc && now_ns < deadline_ns) {
		nap->sleeps++;
		n = epoll_wait(nap->epoll_fd, &event, 1,
			       (int)((deadline_ns - now_ns) / 1000000 + 1));
	}
	for (unsigned i = 0; i < nap->n; i++)
		gn_source_disarm(nap->sources[i]);
	if (rc)
		return rc == -EAGAIN ? 1 : rc;
	return n < 0 ? -errno : n;
}

/* Of this thread. */
static inline uint64_t nap_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
