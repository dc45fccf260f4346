/* SPDX-License-Identifier: MIT */
/*
 * Channels with fds: an epoll set of the provider's fds and one eventfd that is readable while
 * events are queued. Users poll the set's own fd.
 */
#include "base/fail.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PUMP_BATCH  32
#define NS_PER_S    1000000000ull
#define PUMP_ROUNDS 8 /* then return to the caller; remaining fds keep the set readable */

static int chan_fds_fail(const char *what)
{
	const int rc = -errno;

	return gn_fail_log(rc, "fabric: %s: %s%s", what, gn_strerror(rc),
			   rc == -EMFILE ? "; raise the limit on open files (ulimit -n)" : "");
}

int chan_fds_init(struct gn_chan *chan)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int rc;

	chan->fd = epoll_create1(EPOLL_CLOEXEC);
	if (chan->fd < 0)
		return chan_fds_fail("cannot create an event channel");
	chan->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (chan->wake_fd < 0) {
		rc = chan_fds_fail("cannot create an event channel");
		goto close_epoll;
	}
	if (epoll_ctl(chan->fd, EPOLL_CTL_ADD, chan->wake_fd, &ev)) {
		rc = chan_fds_fail("cannot create an event channel");
		goto close_wake;
	}
	return 0;
close_wake:
	close(chan->wake_fd);
close_epoll:
	close(chan->fd);
	return rc;
}

void chan_fds_fini(struct gn_chan *chan)
{
	if (chan->timer.fd >= 0)
		close(chan->timer.fd);
	close(chan->wake_fd);
	close(chan->fd);
}

void chan_fds_pump(struct gn_chan *chan)
{
	struct epoll_event ev[PUMP_BATCH];

	for (int round = 0; round < PUMP_ROUNDS; round++) {
		int done = 0;

		chan->batch = ev;
		chan->n_batch = epoll_wait(chan->fd, ev, PUMP_BATCH, 0);
		for (int i = 0; i < chan->n_batch; i++) {
			struct chan_fd *cfd = ev[i].data.ptr;

			if (cfd) { /* else it is the wake fd, or was removed in the meantime */
				cfd->ready(cfd);
				done++;
			}
		}
		if (chan->n_batch < PUMP_BATCH || !done)
			break;
	}
	chan->batch = NULL;
	chan->n_batch = 0;
}

static void chan_timer_fired(struct chan_fd *cfd)
{
	struct gn_chan *chan = container_of(cfd, struct gn_chan, timer);
	uint64_t n;

	if (read(cfd->fd, &n, sizeof(n)) == sizeof(n))
		chan_push(chan, &chan->ev_timer);
}

static int chan_timer_create(struct gn_chan *chan)
{
	const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int rc;

	if (fd < 0)
		return chan_fds_fail("cannot create a channel's timer");
	chan->timer = (struct chan_fd){.fd = fd, .ready = chan_timer_fired};
	rc = chan_fds_add(chan, &chan->timer);
	if (rc) {
		close(fd);
		chan->timer.fd = -1;
	}
	return rc;
}

int chan_fds_timer(struct gn_chan *chan, uint64_t deadline_ns)
{
	struct itimerspec spec = {.it_value.tv_nsec = 0}; /* disarmed */
	int rc;

	if (chan->timer.fd < 0) {
		if (deadline_ns == GN_FOREVER)
			return 0;
		rc = chan_timer_create(chan);
		if (rc)
			return rc;
	}
	if (deadline_ns != GN_FOREVER)
		spec.it_value = (struct timespec){.tv_sec = (time_t)(deadline_ns / NS_PER_S),
						  .tv_nsec = (long)(deadline_ns % NS_PER_S)};
	/* gn_now_ns() is CLOCK_MONOTONIC here. */
	return timerfd_settime(chan->timer.fd, TFD_TIMER_ABSTIME, &spec, NULL) ?
		       chan_fds_fail("cannot set a channel's timer") :
		       0;
}

int chan_fds_add(struct gn_chan *chan, struct chan_fd *cfd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = cfd};

	if (epoll_ctl(chan->fd, EPOLL_CTL_ADD, cfd->fd, &ev))
		return chan_fds_fail("cannot add an fd to an event channel");
	return 0;
}

void chan_fds_del(struct gn_chan *chan, struct chan_fd *cfd)
{
	epoll_ctl(chan->fd, EPOLL_CTL_DEL, cfd->fd, NULL);
	for (int i = 0; i < chan->n_batch; i++)
		if (chan->batch[i].data.ptr == cfd)
			chan->batch[i].data.ptr = NULL;
}
