/* SPDX-License-Identifier: MIT */
/*
 * Polling: hand out what is complete; when there is nothing, look at the peers that may have sent
 * something. Busy peers are looked at by every poll, quiet ones a few at a time in turn, so that a
 * thousand idle connections cost a poll next to nothing. Once a millisecond an empty poll also asks
 * the kernel whether a peer died.
 */
#include "base/fail.h"
#include "fabric/shm/shm.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define ALL_HOT		16	   /* with so few peers none is ever cold */
#define COOL_AFTER	1024	   /* looks in vain */
#define COLD_LOOKS	4	   /* cold ones looked at by a poll */
#define CLOCK_EVERY	8	   /* empty polls between looks at the clock */
#define LIFE_NS		1000000ull /* how old a poll's knowledge of its peers may be */
#define LIFE_BATCH	32
#define BLOCKED_TICK_NS 1000000 /* while asleep with sends that wait */

/* ---- circles of peers ---- */

static void link_rx(struct shm_rx **circle, struct shm_rx *rx)
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

static void unlink_rx(struct shm_rx **circle, struct shm_rx *rx)
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
	link_rx(&cq->hot, rx);
	cq->n_rx++;
}

void shm_rx_del(struct shm_rx *rx)
{
	if (!rx->cq)
		return;
	unlink_rx(rx->is_hot ? &rx->cq->hot : &rx->cq->cold, rx);
	rx->cq->n_rx--;
	rx->cq = NULL;
}

void shm_rx_heat(struct shm_rx *rx)
{
	rx->idle = 0;
	if (!rx->cq || rx->is_hot)
		return;
	unlink_rx(&rx->cq->cold, rx);
	rx->is_hot = true;
	link_rx(&rx->cq->hot, rx);
}

static void cool(struct shm_rx *rx)
{
	unlink_rx(&rx->cq->hot, rx);
	rx->is_hot = false;
	link_rx(&rx->cq->cold, rx);
}

/* A few of the quiet ones in turn; all of them when somebody is about to sleep. */
static void look_at_cold(struct shm_cq *cq)
{
	uint32_t looks = cq->look_at_cold ? cq->n_rx : COLD_LOOKS;

	cq->look_at_cold = false;
	for (; looks && cq->cold; looks--) {
		struct shm_rx *rx = cq->cold;

		cq->cold = rx->next;
		if (!shm_rx_quiet(rx) && rx->progress(rx))
			shm_rx_heat(rx);
	}
}

/* Look at every hot peer once. One that goes away while we look ends the round. */
static inline void look_at_all(struct shm_cq *cq)
{
	struct shm_rx *rx = cq->hot;

	if (rx && rx->next == rx) {
		if (!shm_rx_quiet(rx))
			rx->progress(rx);
	} else {
		for (uint32_t n = cq->n_rx; n && rx; n--) {
			struct shm_rx *next = rx->next;

			if (!shm_rx_quiet(rx) && rx->progress(rx))
				rx->idle = 0;
			else if (rx->cq && ++rx->idle > COOL_AFTER && cq->n_rx > ALL_HOT)
				cool(rx);
			if (!cq->hot || next->cq != cq || !next->is_hot)
				break;
			rx = next;
			if (rx == cq->hot)
				break;
		}
		if (likely(cq->hot))
			cq->hot = cq->hot->next; /* with a full cq the first one would always win */
	}
	if (unlikely(cq->cold))
		look_at_cold(cq);
}

/* ---- connections that another thread has accepted ---- */

void shm_cq_hand_over(struct gn_qp *base)
{
	struct shm_cq *cq = (struct shm_cq *)base->recv_cq;
	struct shm_qp *qp = (struct shm_qp *)base;
	struct shm_qp *first = __atomic_load_n(&cq->incoming, __ATOMIC_RELAXED);

	qp->incoming = true;
	do {
		qp->next_incoming = first;
		/* Pairs with the acquire in shm_cq_admit(): all that was made of the qp is seen. */
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

static inline void admit_incoming(struct shm_cq *cq)
{
	if (unlikely(__atomic_load_n(&cq->incoming, __ATOMIC_RELAXED)))
		shm_cq_admit(cq);
}

/* ---- life and death ---- */

int shm_cq_watch(struct shm_cq *cq, struct chan_fd *sock)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = sock};

	if (cq->life_fd < 0)
		cq->life_fd = epoll_create1(EPOLL_CLOEXEC);
	if (cq->life_fd < 0 || epoll_ctl(cq->life_fd, EPOLL_CTL_ADD, sock->fd, &ev)) {
		const int rc = -errno;

		return gn_fail_log(rc, "shm: cannot watch a connection: %s", gn_strerror(rc));
	}
	return 0;
}

void shm_cq_unwatch(struct shm_cq *cq, const struct chan_fd *sock)
{
	if (cq->life_fd >= 0)
		epoll_ctl(cq->life_fd, EPOLL_CTL_DEL, sock->fd, NULL);
	for (int i = 0; i < cq->n_life_batch; i++)
		if (cq->life_batch[i].data.ptr == sock)
			cq->life_batch[i].data.ptr = NULL;
}

static void look_at_sockets(struct shm_cq *cq)
{
	struct epoll_event ev[LIFE_BATCH];

	cq->life_batch = ev;
	cq->n_life_batch = epoll_wait(cq->life_fd, ev, LIFE_BATCH, 0);
	for (int i = 0; i < cq->n_life_batch; i++) {
		struct chan_fd *sock = ev[i].data.ptr;

		if (sock) /* else gone since the kernel told of it */
			sock->ready(sock);
	}
	cq->life_batch = NULL;
	cq->n_life_batch = 0;
}

/* Nothing was found. Now and then see whether anybody is left to wait for. */
static void check_life(struct shm_cq *cq)
{
	struct timespec ts;
	uint64_t now;

	if (++cq->empty_polls % CLOCK_EVERY || cq->life_fd < 0)
		return;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
	if (now - cq->checked_ns < LIFE_NS)
		return;
	cq->checked_ns = now;
	look_at_sockets(cq);
}

/* ---- the provider's calls ---- */

/* One look at the only peer that may have sent something finds nothing. */
static inline bool is_quiet(const struct shm_cq *cq)
{
	const struct shm_rx *rx = cq->hot;

	return !cq->cold && rx && rx->next == rx && shm_rx_quiet(rx);
}

/* What is complete. */
static no_inline int poll_ring(struct shm_cq *cq, struct gn_wc *wc, int n)
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
 * cq_poll_any() for a cq that has one owner. Most polls find nothing, or what is complete already:
 * what takes longer is left to cq_poll_any().
 */
static int poll_own(struct gn_cq *base, struct gn_wc *wc, int n)
{
	struct shm_cq *cq = (struct shm_cq *)base;

	if (!soft_cq_empty(&cq->soft))
		return poll_ring(cq, wc, n);
	if (unlikely(!is_quiet(cq) || base->overrun || (cq->empty_polls + 1) % CLOCK_EVERY == 0))
		return cq_poll_any(base, wc, n);
	cq->empty_polls++;
	counter_add(&base->polls_empty, 1);
	return 0;
}

int shm_cq_init(struct gn_cq *base)
{
	struct shm_cq *cq = (struct shm_cq *)base;

	if (!base->shared)
		base->poll = poll_own;

	cq->life_fd = cq->timer.fd = -1;
	return soft_cq_init(&cq->soft);
}

void shm_cq_fini(struct gn_cq *base)
{
	struct shm_cq *cq = (struct shm_cq *)base;

	if (cq->life_fd >= 0)
		close(cq->life_fd);
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

	admit_incoming(cq);
	if (!soft_cq_empty(&cq->soft))
		return soft_cq_poll(&cq->soft, wc, n);
	cq->soft.direct = wc;
	cq->soft.direct_room = n;
	look_at_all(cq);
	if (!cq->soft.n_direct)
		check_life(cq);
	got = cq->soft.n_direct;
	cq->soft.n_direct = cq->soft.direct_room = 0;
	return got;
}

bool shm_cq_ready(struct gn_cq *base)
{
	struct shm_cq *cq = (struct shm_cq *)base;

	admit_incoming(cq);
	if (soft_cq_empty(&cq->soft)) {
		look_at_all(cq);
		if (soft_cq_empty(&cq->soft))
			check_life(cq);
	}
	return !soft_cq_empty(&cq->soft);
}

static void tick(struct chan_fd *cfd)
{
	struct shm_cq *cq = container_of(cfd, struct shm_cq, timer);
	uint64_t n;

	if (read(cfd->fd, &n, sizeof(n)) < 0)
		return;
	look_at_all(cq);
}

/* Sends that wait need us now and then, asleep or not: credit may come, or time may run out. */
static void tick_while_blocked(struct shm_cq *cq, bool blocked)
{
	const struct itimerspec on = {.it_value.tv_nsec = BLOCKED_TICK_NS,
				      .it_interval.tv_nsec = BLOCKED_TICK_NS};
	const struct itimerspec off = {.it_value.tv_nsec = 0};

	if (blocked == cq->ticking)
		return;
	if (cq->timer.fd < 0) {
		cq->timer = (struct chan_fd){
			.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
			.ready = tick};
		if (cq->timer.fd < 0)
			return;
		if (chan_fds_add(cq->soft.cq.chan, &cq->timer)) {
			close(cq->timer.fd);
			cq->timer.fd = -1;
			return;
		}
	}
	timerfd_settime(cq->timer.fd, 0, blocked ? &on : &off, NULL);
	cq->ticking = blocked;
}

void shm_cq_blocked(struct shm_cq *cq, struct shm_qp *qp)
{
	shm_conn_await_credit(qp);
	tick_while_blocked(cq, true);
	qp->rx_send.progress(&qp->rx_send);
}

static void arm_one(struct shm_cq *cq, struct shm_rx *rx, bool *blocked)
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

	admit_incoming(cq);
	circles[0] = cq->hot;
	circles[1] = cq->cold;
	if (!solicited_only)
		cq->soft.armed = SOFT_ARMED;
	else if (cq->soft.armed != SOFT_ARMED) /* which stays in force */
		cq->soft.armed = SOFT_ARMED_SOLICITED;
	cq->arm_generation += 4;
	for (int i = 0; i < 2; i++) {
		struct shm_rx *rx = circles[i];

		for (bool first = true; rx && (first || rx != circles[i]);
		     rx = rx->next, first = false)
			arm_one(cq, rx, &blocked);
	}
	/* Pairs with the fences in wake_receiver() and shm_ud_send(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/*
	 * What came from anybody before that raised no wake-up: the poll that follows looks at all.
	 */
	cq->look_at_cold = true;
	tick_while_blocked(cq, blocked);
	return 0;
}
