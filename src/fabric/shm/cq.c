/* SPDX-License-Identifier: MIT */
/*
 * Polling. Return completions; if there are none, poll the peers that may have sent something. Hot
 * peers are polled every time, cold ones a few per poll in turn, so that a thousand idle
 * connections cost next to nothing. Once per millisecond an empty poll also asks the kernel for
 * closed control sockets.
 */
#include "base/fail.h"
#include "fabric/shm/shm.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define HOT_ALWAYS_MAX	    16	       /* up to this many peers, all stay hot */
#define COLD_AFTER_POLLS    1024       /* polls without a message */
#define COLD_PER_POLL	    4	       /* cold peers per poll */
#define CLOCK_EVERY	    8	       /* empty polls between readings of the clock */
#define DISCONNECT_CHECK_NS 1000000ull /* interval between checks for closed sockets */
#define LIFE_BATCH	    32
#define BLOCKED_POLL_NS	    1000000 /* poll interval of a sleeping thread with blocked sends */

/* ---- hot and cold lists ---- */

static void rx_list_add(struct shm_rx **circle, struct shm_rx *rx)
{
	if (!*circle) {
		rx->next = rx->prev = rx;
		*circle = rx;
		return;
	}
	rx->next = *circle;
	rx->prev = (*circle)->prev;
	rx->prev->next = rx;
	rx->next->prev = rx;
}

static void rx_list_del(struct shm_rx **circle, struct shm_rx *rx)
{
	if (rx->next == rx) {
		*circle = NULL;
	} else {
		rx->prev->next = rx->next;
		rx->next->prev = rx->prev;
		if (*circle == rx)
			*circle = rx->next;
	}
	rx->next = rx->prev = NULL;
}

void shm_rx_add(struct shm_rx *rx, struct shm_cq *cq, bool (*progress)(struct shm_rx *))
{
	if (rx->cq)
		return;
	*rx = (struct shm_rx){.cq = cq, .progress = progress, .is_hot = true};
	rx_list_add(&cq->hot, rx);
	cq->n_rx++;
}

void shm_rx_del(struct shm_rx *rx)
{
	if (!rx->cq)
		return;
	rx_list_del(rx->is_hot ? &rx->cq->hot : &rx->cq->cold, rx);
	rx->cq->n_rx--;
	rx->cq = NULL;
}

void shm_rx_make_hot(struct shm_rx *rx)
{
	rx->idle = 0;
	if (!rx->cq || rx->is_hot)
		return;
	rx_list_del(&rx->cq->cold, rx);
	rx->is_hot = true;
	rx_list_add(&rx->cq->hot, rx);
}

static void rx_make_cold(struct shm_rx *rx)
{
	rx_list_del(&rx->cq->hot, rx);
	rx->is_hot = false;
	rx_list_add(&rx->cq->cold, rx);
}

/* Polls a few cold peers in turn, or all of them before a sleep. */
static void cq_poll_cold(struct shm_cq *cq)
{
	uint32_t looks = cq->poll_all_cold ? cq->n_rx : COLD_PER_POLL;

	cq->poll_all_cold = false;
	for (; looks && cq->cold; looks--) {
		struct shm_rx *rx = cq->cold;

		cq->cold = rx->next;
		if (!shm_rx_empty(rx) && rx->progress(rx))
			shm_rx_make_hot(rx);
	}
}

/* Polls every hot peer once. Ends if a peer is removed meanwhile. */
static inline void cq_poll_hot(struct shm_cq *cq)
{
	struct shm_rx *rx = cq->hot;

	if (rx && rx->next == rx) {
		if (!shm_rx_empty(rx))
			rx->progress(rx);
	} else {
		for (uint32_t n = cq->n_rx; n && rx; n--) {
			struct shm_rx *next = rx->next;

			if (!shm_rx_empty(rx) && rx->progress(rx))
				rx->idle = 0;
			else if (rx->cq && ++rx->idle > COLD_AFTER_POLLS &&
				 cq->n_rx > HOT_ALWAYS_MAX)
				rx_make_cold(rx);
			if (!cq->hot || next->cq != cq || !next->is_hot)
				break;
			rx = next;
			if (rx == cq->hot)
				break;
		}
		if (likely(cq->hot))
			/* otherwise the first one would always win on a full cq */
			cq->hot = cq->hot->next;
	}
	if (unlikely(cq->cold))
		cq_poll_cold(cq);
}

/* ---- connections accepted by another thread ---- */

void shm_cq_hand_over(struct gn_qp *base)
{
	struct shm_cq *cq = (struct shm_cq *)base->recv_cq;
	struct shm_qp *qp = (struct shm_qp *)base;
	struct shm_qp *first = __atomic_load_n(&cq->incoming, __ATOMIC_RELAXED);

	qp->incoming = true;
	do {
		qp->next_incoming = first;
		/* Pairs with the acquire in shm_cq_admit(): the owner sees the complete qp. */
	} while (!__atomic_compare_exchange_n(&cq->incoming, &first, qp, true, __ATOMIC_RELEASE,
					      __ATOMIC_RELAXED));
}

void shm_cq_admit(struct shm_cq *cq)
{
	struct shm_qp *qp = __atomic_exchange_n(&cq->incoming, NULL, __ATOMIC_ACQUIRE);
	struct shm_qp *oldest = NULL, *next;

	for (; qp; qp = next) {
		next = qp->next_incoming;
		qp->next_incoming = oldest;
		oldest = qp;
	}
	for (qp = oldest; qp; qp = next) {
		next = qp->next_incoming;
		shm_conn_admit(qp);
	}
}

static inline void cq_admit_incoming(struct shm_cq *cq)
{
	if (unlikely(__atomic_load_n(&cq->incoming, __ATOMIC_RELAXED)))
		shm_cq_admit(cq);
}

/* ---- disconnects ---- */

int shm_cq_watch(struct shm_cq *cq, struct chan_fd *sock)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = sock};

	if (cq->epoll_fd < 0)
		cq->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (cq->epoll_fd < 0 || epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, sock->fd, &ev)) {
		const int rc = -errno;

		return gn_fail_log(rc, "shm: cannot watch a connection: %s", gn_strerror(rc));
	}
	return 0;
}

void shm_cq_unwatch(struct shm_cq *cq, const struct chan_fd *sock)
{
	if (cq->epoll_fd >= 0)
		epoll_ctl(cq->epoll_fd, EPOLL_CTL_DEL, sock->fd, NULL);
	for (int i = 0; i < cq->n_epoll_batch; i++)
		if (cq->epoll_batch[i].data.ptr == sock)
			cq->epoll_batch[i].data.ptr = NULL;
}

static void cq_poll_sockets(struct shm_cq *cq)
{
	struct epoll_event ev[LIFE_BATCH];

	cq->epoll_batch = ev;
	cq->n_epoll_batch = epoll_wait(cq->epoll_fd, ev, LIFE_BATCH, 0);
	for (int i = 0; i < cq->n_epoll_batch; i++) {
		struct chan_fd *sock = ev[i].data.ptr;

		if (sock) /* else it was removed in the meantime */
			sock->ready(sock);
	}
	cq->epoll_batch = NULL;
	cq->n_epoll_batch = 0;
}

/* After an empty poll: checks for disconnects from time to time. */
static void cq_check_disconnects(struct shm_cq *cq)
{
	struct timespec ts;
	uint64_t now;

	if (++cq->empty_polls % CLOCK_EVERY || cq->epoll_fd < 0)
		return;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
	if (now - cq->checked_ns < DISCONNECT_CHECK_NS)
		return;
	cq->checked_ns = now;
	cq_poll_sockets(cq);
}

/* ---- provider calls ---- */

/* The cq's only hot peer has no message. */
static inline bool cq_is_idle(const struct shm_cq *cq)
{
	const struct shm_rx *rx = cq->hot;

	return !cq->cold && rx && rx->next == rx && shm_rx_empty(rx);
}

/* Returns completions from the ring. */
static no_inline int cq_poll_ring(struct shm_cq *cq, struct gn_wc *wc, int n)
{
	int got = 0;

	for (; got < n && !soft_cq_empty(&cq->soft); got++) {
		soft_cq_pop(&cq->soft, &wc[got]);
		cq_finish(&wc[got]);
	}
	counter_add(&cq->soft.cq.polls_empty, !got);
	return got;
}

/*
 * cq_poll_any() for a cq with one owner. Handles the common cases: nothing, or completions in the
 * ring. Leaves the rest to cq_poll_any().
 */
static int cq_poll_owned(struct gn_cq *base, struct gn_wc *wc, int n)
{
	struct shm_cq *cq = (struct shm_cq *)base;

	if (!soft_cq_empty(&cq->soft))
		return cq_poll_ring(cq, wc, n);
	if (unlikely(!cq_is_idle(cq) || base->overrun || (cq->empty_polls + 1) % CLOCK_EVERY == 0))
		return cq_poll_any(base, wc, n);
	cq->empty_polls++;
	counter_add(&base->polls_empty, 1);
	return 0;
}

int shm_cq_init(struct gn_cq *base)
{
	struct shm_cq *cq = (struct shm_cq *)base;

	if (!base->shared)
		base->poll = cq_poll_owned;

	cq->epoll_fd = cq->timer.fd = -1;
	return soft_cq_init(&cq->soft);
}

void shm_cq_fini(struct gn_cq *base)
{
	struct shm_cq *cq = (struct shm_cq *)base;

	if (cq->epoll_fd >= 0)
		close(cq->epoll_fd);
	if (cq->timer.fd >= 0) {
		chan_fds_del(base->chan, &cq->timer);
		close(cq->timer.fd);
	}
	soft_cq_fini(&cq->soft);
}

int shm_cq_poll(struct gn_cq *base, struct gn_wc *wc, int n)
{
	struct shm_cq *cq = (struct shm_cq *)base;
	int got;

	cq_admit_incoming(cq);
	if (!soft_cq_empty(&cq->soft))
		return soft_cq_poll(&cq->soft, wc, n);
	cq->soft.direct = wc;
	cq->soft.direct_room = n;
	cq_poll_hot(cq);
	if (!cq->soft.n_direct)
		cq_check_disconnects(cq);
	got = cq->soft.n_direct;
	cq->soft.n_direct = cq->soft.direct_room = 0;
	return got;
}

bool shm_cq_ready(struct gn_cq *base)
{
	struct shm_cq *cq = (struct shm_cq *)base;

	cq_admit_incoming(cq);
	if (soft_cq_empty(&cq->soft)) {
		cq_poll_hot(cq);
		if (soft_cq_empty(&cq->soft))
			cq_check_disconnects(cq);
	}
	return !soft_cq_empty(&cq->soft);
}

static void cq_timer_fired(struct chan_fd *cfd)
{
	struct shm_cq *cq = container_of(cfd, struct shm_cq, timer);
	uint64_t n;

	if (read(cfd->fd, &n, sizeof(n)) < 0)
		return;
	cq_poll_hot(cq);
}

/* Blocked sends need periodic polls, asleep or not: credit may arrive, or a timeout pass. */
static void cq_set_blocked_timer(struct shm_cq *cq, bool blocked)
{
	const struct itimerspec on = {.it_value.tv_nsec = BLOCKED_POLL_NS,
				      .it_interval.tv_nsec = BLOCKED_POLL_NS};
	const struct itimerspec off = {.it_value.tv_nsec = 0};

	if (blocked == cq->timer_on)
		return;
	if (cq->timer.fd < 0) {
		cq->timer = (struct chan_fd){
			.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
			.ready = cq_timer_fired};
		if (cq->timer.fd < 0)
			return;
		if (chan_fds_add(cq->soft.cq.chan, &cq->timer)) {
			close(cq->timer.fd);
			cq->timer.fd = -1;
			return;
		}
	}
	timerfd_settime(cq->timer.fd, 0, blocked ? &on : &off, NULL);
	cq->timer_on = blocked;
}

void shm_cq_blocked(struct shm_cq *cq, struct shm_qp *qp)
{
	shm_conn_await_credit(qp);
	cq_set_blocked_timer(cq, true);
	qp->rx_send.progress(&qp->rx_send);
}

static void cq_arm_peer(struct shm_cq *cq, struct shm_rx *rx, bool *blocked)
{
	if (rx->progress == shm_progress_recvs) {
		shm_conn_arm(container_of(rx, struct shm_qp, rx_recv));
	} else if (rx->progress == shm_progress_sends) {
		shm_conn_await_credit(container_of(rx, struct shm_qp, rx_send));
		*blocked = true;
	} else {
		shm_ud_arm(rx, shm_cq_armed(cq));
	}
}

int shm_cq_arm(struct gn_cq *base, bool solicited_only)
{
	struct shm_cq *cq = (struct shm_cq *)base;
	struct shm_rx *circles[2];
	bool blocked = false;

	cq_admit_incoming(cq);
	circles[0] = cq->hot;
	circles[1] = cq->cold;
	if (!solicited_only)
		cq->soft.armed = SOFT_ARMED;
	else if (cq->soft.armed != SOFT_ARMED) /* SOFT_ARMED stays in effect */
		cq->soft.armed = SOFT_ARMED_SOLICITED;
	cq->arm_generation += 4;
	for (int i = 0; i < 2; i++) {
		struct shm_rx *rx = circles[i];

		for (bool first = true; rx && (first || rx != circles[i]);
		     rx = rx->next, first = false)
			cq_arm_peer(cq, rx, &blocked);
	}
	/* Pairs with the fences in tx_wake_receiver() and shm_ud_wake(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/* Earlier messages raised no wake-up: the next poll must poll all peers. */
	cq->poll_all_cold = true;
	cq_set_blocked_timer(cq, blocked);
	return 0;
}
