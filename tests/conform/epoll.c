/* SPDX-License-Identifier: MIT */
/* Case 46: a channel's fd in another event loop. Only this case waits by a system call. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "conform.h"

#define MSG_BYTES    32u
#define EDGE_ROUNDS  200u
#define DRAIN_ROUNDS 8u
#define TIMER_US     2000u

static int wait_fd(int epfd, uint64_t deadline_ns)
{
	struct epoll_event ev;
	uint64_t now_ns, left_ms;
	int n;

	do {
		now_ns = gn_now_ns();
		left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000000 : 0;
		n = epoll_wait(epfd, &ev, 1, left_ms > INT32_MAX ? -1 : (int)left_ms);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* Sleeps on the fd until the channel has an event of this type. A readable fd may mean nothing. */
static bool fd_event(struct cf *cf, int epfd, struct gn_chan *chan, enum gn_event_type type)
{
	const uint64_t deadline_ns = cf_deadline(cf);
	struct gn_event ev;
	int rc;

	do {
		CHECK(wait_fd(epfd, deadline_ns) == 1, "the fd never became readable");
		rc = gn_chan_next(chan, &ev);
	} while (rc == -EAGAIN);
	CHECK_INT(rc, 0);
	CHECK(ev.type == type, "%s", gn_event_str(ev.type));
	CHECK_INT(gn_chan_next(chan, &ev), -EAGAIN); /* also what an edge needs before the next */
	return true;
}

static bool fd_silent(struct cf *cf, int epfd, struct gn_chan *chan)
{
	struct gn_event ev;

	for (unsigned i = 0; i < DRAIN_ROUNDS; i++) {
		if (wait_fd(epfd, 0) == 0)
			return true;
		CHECK_INT(gn_chan_next(chan, &ev), -EAGAIN);
	}
	return cf_why(cf, "the fd of an empty channel stays readable");
}

static bool fd_round(struct cf *cf, int epfd, struct cf_rc *rc, bool level)
{
	CHECK(cf_recv(cf, rc, 1, 0, MSG_BYTES));
	CHECK_INT(gn_cq_arm(rc->recv_cq, false), 0);
	CHECK(cf_sync(cf));
	if (level) {
		CHECK(wait_fd(epfd, cf_deadline(cf)) == 1, "the fd never became readable");
		CHECK(wait_fd(epfd, 0) == 1, "level triggered, and no longer readable");
	}
	CHECK(fd_event(cf, epfd, rc->chan, GN_EVENT_CQ));
	CHECK(cf_expect_wc(cf, rc->recv_cq, 1, GN_WC_OK));
	CHECK(fd_silent(cf, epfd, rc->chan));
	return true;
}

static bool fd_rounds(struct cf *cf, int epfd, struct cf_rc *rc)
{
	struct epoll_event level = {.events = EPOLLIN}, edge = {.events = EPOLLIN | EPOLLET};
	const int fd = gn_chan_fd(rc->chan);

	CHECK(fd >= 0, "gn_chan_fd: %s", gn_strerror(fd));
	CHECK_INT(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &level), 0);
	CHECK(fd_silent(cf, epfd, rc->chan));
	CHECK(fd_round(cf, epfd, rc, true));
	CHECK(fd_round(cf, epfd, rc, true));
	CHECK_INT(epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &edge), 0);
	for (unsigned i = 0; cf_more_both(cf, i, EDGE_ROUNDS); i++)
		CHECK(fd_round(cf, epfd, rc, false));
	CHECK_INT(gn_chan_timer(rc->chan, gn_deadline_us(TIMER_US)), 0);
	CHECK(fd_event(cf, epfd, rc->chan, GN_EVENT_TIMER));
	CHECK(cf_sync(cf)); /* B disconnects: a connection's event, through the same fd */
	CHECK(fd_event(cf, epfd, rc->chan, GN_EVENT_DISCONNECTED));
	return cf_sync(cf);
}

static bool fd_a(struct cf *cf)
{
	struct cf_rc_opts opts = {.events = true};
	struct cf_rc rc;
	bool ok;
	int epfd;

	CHECK(cf_rc_pair(cf, &opts, &rc));
	epfd = epoll_create1(EPOLL_CLOEXEC);
	CHECK(epfd >= 0, "epoll_create1: %s", strerror(errno));
	ok = fd_rounds(cf, epfd, &rc);
	close(epfd);
	return ok;
}

static bool fd_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (unsigned i = 0; i < 2 || cf_more_both(cf, i - 2, EDGE_ROUNDS); i++) {
		CHECK(cf_sync(cf));
		CHECK(cf_send(cf, &rc, i, 0, MSG_BYTES, GN_SIGNALED));
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
	}
	CHECK(cf_sync(cf));
	CHECK_INT(gn_disconnect(rc.qp), 0);
	return cf_sync(cf);
}

const struct cf_case cf_cases_epoll[] = {
	{46, "channel fd in epoll, level and edge", fd_a, fd_b, GN_CAP_EVENT_FD, 0},
	{0},
};
