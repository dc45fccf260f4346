/* SPDX-License-Identifier: MIT */
/*
 * Event channels: the fds of a completion channel, of an rdma_cm channel, of the context's
 * asynchronous events (every channel of a context watches these; any of them takes the events), and
 * a timer for connection attempts, because rdma_cm itself retries a silent peer for a minute.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull

static void chan_comp_ready(struct chan_fd *self)
{
	struct vrb_chan *chan = container_of(self, struct vrb_chan, comp_fd);

	gn_mutex_lock(&chan->lock);
	vrb_cq_events(chan);
	gn_mutex_unlock(&chan->lock);
}

static void chan_cm_ready(struct chan_fd *self)
{
	struct vrb_chan *chan = container_of(self, struct vrb_chan, cm_fd);

	gn_mutex_lock(&chan->lock);
	vrb_cm_events(chan);
	gn_mutex_unlock(&chan->lock);
}

static void chan_async_ready(struct chan_fd *self)
{
	vrb_async_pump(vrb_ctx(container_of(self, struct vrb_chan, async_fd)->base.ctx));
}

/* Sets the timer to the earliest deadline, or stops it. */
static void chan_set_timer(struct vrb_chan *chan)
{
	struct itimerspec spec = {.it_value = {0}};
	uint64_t first = GN_FOREVER;

	for (struct vrb_qp *qp = chan->pending; qp; qp = qp->conn.next)
		if (qp->conn.deadline_ns < first)
			first = qp->conn.deadline_ns;
	if (first != GN_FOREVER) {
		spec.it_value.tv_sec = (time_t)(first / NS_PER_S);
		spec.it_value.tv_nsec = (long)(first % NS_PER_S);
	}
	/* gn_now_ns() is CLOCK_MONOTONIC here. */
	timerfd_settime(chan->timer_fd.fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

void vrb_chan_set_deadline(struct vrb_chan *chan, struct vrb_qp *qp)
{
	qp->conn.next = chan->pending;
	qp->conn.prev = &chan->pending;
	if (qp->conn.next)
		qp->conn.next->conn.prev = &qp->conn.next;
	chan->pending = qp;
	chan_set_timer(chan);
}

void vrb_chan_clear_deadline(struct vrb_chan *chan, struct vrb_qp *qp)
{
	if (!qp->conn.prev)
		return;
	*qp->conn.prev = qp->conn.next;
	if (qp->conn.next)
		qp->conn.next->conn.prev = qp->conn.prev;
	qp->conn.next = NULL;
	qp->conn.prev = NULL;
	chan_set_timer(chan);
}

static void chan_timer_ready(struct chan_fd *self)
{
	struct vrb_chan *chan = container_of(self, struct vrb_chan, timer_fd);
	const uint64_t now = gn_now_ns();
	struct vrb_qp *next;

	gn_mutex_lock(&chan->lock);
	for (struct vrb_qp *qp = chan->pending; qp; qp = next) {
		next = qp->conn.next;
		if (qp->conn.deadline_ns <= now)
			vrb_cm_expired(qp);
	}
	chan_set_timer(chan); /* also makes the fd unreadable */
	gn_mutex_unlock(&chan->lock);
}

static int chan_add_fds(struct vrb_chan *chan)
{
	struct chan_fd *const fds[] = {&chan->comp_fd, &chan->cm_fd, &chan->async_fd,
				       &chan->timer_fd};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(fds) / sizeof(*fds); i++)
		rc = chan_fds_add(&chan->base, fds[i]);
	return rc;
}

static int chan_open_comp(struct vrb_chan *chan)
{
	int rc;

	chan->comp = ibv_create_comp_channel(vrb_ctx(chan->base.ctx)->ibv);
	if (!chan->comp)
		return vrb_errno();
	rc = vrb_nonblocking(chan->comp->fd);
	if (rc)
		ibv_destroy_comp_channel(chan->comp);
	return rc;
}

static int chan_open_cm(struct vrb_chan *chan)
{
	int rc;

	chan->cm = rdma_create_event_channel();
	if (!chan->cm)
		return vrb_errno();
	rc = vrb_nonblocking(chan->cm->fd);
	if (rc)
		rdma_destroy_event_channel(chan->cm);
	return rc;
}

int vrb_chan_init(struct gn_chan *base)
{
	struct vrb_chan *chan = vrb_chan(base);
	int rc = chan_fds_init(base), timer;

	if (rc)
		return rc;
	rc = chan_open_comp(chan);
	if (rc) {
		gn_fail_log(0, "verbs: no completion channel: %s", gn_strerror(rc));
		goto fini_fds;
	}
	rc = chan_open_cm(chan);
	if (rc) {
		gn_fail_log(0,
			    "verbs: no connection manager: %s; is /dev/infiniband/rdma_cm there? "
			    "(`modprobe rdma_ucm`)",
			    gn_strerror(rc));
		goto destroy_comp;
	}
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (timer < 0) {
		rc = -errno;
		gn_fail_log(0, "verbs: no timer: %s", gn_strerror(rc));
		goto destroy_cm;
	}
	chan->comp_fd = (struct chan_fd){chan->comp->fd, chan_comp_ready};
	chan->cm_fd = (struct chan_fd){chan->cm->fd, chan_cm_ready};
	chan->async_fd = (struct chan_fd){vrb_ctx(base->ctx)->ibv->async_fd, chan_async_ready};
	chan->timer_fd = (struct chan_fd){timer, chan_timer_ready};
	gn_mutex_init(&chan->lock);
	rc = chan_add_fds(chan);
	if (!rc)
		return 0;
	gn_mutex_fini(&chan->lock);
	close(timer);
destroy_cm:
	rdma_destroy_event_channel(chan->cm);
destroy_comp:
	ibv_destroy_comp_channel(chan->comp);
fini_fds:
	chan_fds_fini(base);
	return rc;
}

void vrb_chan_fini(struct gn_chan *base)
{
	struct vrb_chan *chan = vrb_chan(base);

	/* First the epoll set: the context's fd stays open and must not be watched any more. */
	chan_fds_fini(base);
	close(chan->timer_fd.fd);
	rdma_destroy_event_channel(chan->cm);
	ibv_destroy_comp_channel(chan->comp);
	gn_mutex_fini(&chan->lock);
}
