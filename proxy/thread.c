/* SPDX-License-Identifier: MIT */
/*
 * A thread: polls its connections, parses their input, submits all operations, and writes replies.
 * It sleeps while there is nothing to do.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define EVENTS		 512
#define STORE_YIELDS	 16u /* to the store, before the thread sleeps until it responds */
#define STORE_POLLS_MAX	 16u /* of the store, before connections proceed */
#define STARVED_RETRY_MS 1   /* before memory is tried again */
#define UNARMED_POLL_MS	 10  /* polls of a store that cannot wake its thread */
/* without events, before the thread waits for a disconnect of the store */
#define IDLE_ARM_MS	 100
#define DRAIN_TIMEOUT_US 2000000u /* for outstanding operations, at shutdown */

static void count_messages(struct px_thread *t)
{
	struct gn_kv_counters count = {.size = sizeof(count)};

	if (!gn_kv_client_counters(t->kv, &count))
		__atomic_store_n(&t->counters.messages, count.messages, __ATOMIC_RELAXED);
}

static void update_clock(struct px_thread *t)
{
	struct gn_kv_limits limits = {.size = sizeof(limits)};
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	t->now_ns = gn_now_ns();
	if (now.tv_sec == t->context.now_s)
		return;
	t->context.now_s = now.tv_sec;
	count_messages(t);
	/* The store may have been replaced. */
	if (!gn_kv_client_limits(t->kv, &limits) && limits.max_value)
		t->context.max_value = limits.max_value;
}

/* ---- new connections ---- */

bool px_thread_add_conn(struct px_thread *t, int fd)
{
	const uint64_t one = 1;
	bool added = true;

	gn_mutex_lock(&t->proxy->lock);
	if (t->n_new_fds == t->new_fds_capacity) {
		const unsigned room = t->new_fds_capacity ? t->new_fds_capacity * 2 : 64;
		int *fds = realloc(t->new_fds, room * sizeof(*fds));

		added = fds;
		t->new_fds = fds ? fds : t->new_fds;
		t->new_fds_capacity = fds ? room : t->new_fds_capacity;
	}
	if (added)
		t->new_fds[t->n_new_fds++] = fd;
	gn_mutex_unlock(&t->proxy->lock);
	if (!added)
		close(fd);
	else if (write(t->wake_fd, &one, sizeof(one)) < 0)
		gn_log(GN_LOG_ERROR, "cannot wake a thread: %s", strerror(errno));
	return added;
}

static void add_new_conns(struct px_thread *t)
{
	uint64_t count;

	if (read(t->wake_fd, &count, sizeof(count)) < 0)
		return;
	gn_mutex_lock(&t->proxy->lock);
	for (unsigned i = 0; i < t->n_new_fds; i++)
		px_conn_add(t, t->new_fds[i]);
	t->n_new_fds = 0;
	gn_mutex_unlock(&t->proxy->lock);
}

/* ---- the loop ---- */

static void poll_events(struct px_thread *t, int sleep_ms)
{
	struct epoll_event events[EVENTS];
	int n;

	n = epoll_wait(t->epoll_fd, events, EVENTS, sleep_ms);
	t->idle = !n && sleep_ms;
	update_clock(t);
	for (int i = 0; i < n; i++) {
		struct px_conn *c = events[i].data.ptr;

		if (events[i].data.ptr == &t->kv)
			continue; /* the store, which is polled anyway */
		if (!c) {
			add_new_conns(t);
			continue;
		}
		if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
			c->readable = true;
		if (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
			c->hung_up = true;
		if (c->readable || c->out)
			px_conn_queue(c);
	}
}

/*
 * Processes connections that are queued now; those queued meanwhile follow after the store was
 * polled.
 */
static void take_turns(struct px_thread *t)
{
	struct px_conn *c = t->queue;

	t->queue = NULL;
	t->queue_last = &t->queue;
	while (c) {
		struct px_conn *next = c->next_queued;

		c->queued = false;
		px_conn_turn(c);
		c = next;
	}
}

static bool thread_must_end(const struct px_thread *t)
{
	return __atomic_load_n(&t->proxy->ending, __ATOMIC_ACQUIRE);
}

/* Takes responses of the store: a poll takes at most one message. */
static bool take_answers(struct px_thread *t)
{
	unsigned n = 0;

	while (gn_kv_poll(t->kv) > 0 && ++n < STORE_POLLS_MAX && t->outstanding)
		;
	return n;
}

/*
 * Has the store responded? It is usually faster than a sleep and a wake-up, and may need this core:
 * so yield first.
 */
static bool wait_for_store(struct px_thread *t)
{
	bool answered = take_answers(t);

	for (unsigned i = 0; i < STORE_YIELDS && !answered && t->outstanding && !t->queue; i++) {
		gn_yield();
		answered = take_answers(t);
	}
	return answered;
}

/* The earlier of two timeouts; negative: none. */
static int earlier_ms(int sleep_ms, int ms)
{
	return sleep_ms < 0 || sleep_ms > ms ? ms : sleep_ms;
}

/*
 * How long to sleep; 0: there is work. After a response of the store the next one is likely to be
 * there as well, and requesting a wake-up for it would cost both sides system calls.
 *
 * The store wakes this thread if operations are outstanding. Otherwise only a disconnect is of
 * interest, and only to a thread that is idle for long: most sleeps are short. If the store's
 * source cannot be armed, the thread polls every UNARMED_POLL_MS.
 */
static int sleep_timeout_ms(struct px_thread *t, int sleep_ms)
{
	int rc;

	if (t->queue || (t->outstanding && t->answered))
		return 0;
	count_messages(t);
	if (t->starved)
		sleep_ms = earlier_ms(sleep_ms, STARVED_RETRY_MS);
	if (t->outstanding || t->store_disconnected || t->idle) {
		t->armed = true;
		PX_COUNT(t, waits, t->outstanding > 0);
		rc = gn_source_arm(t->store);
		return !rc ? sleep_ms : rc == -EAGAIN ? 0 : earlier_ms(sleep_ms, UNARMED_POLL_MS);
	}
	if (t->armed)
		gn_source_disarm(t->store);
	t->armed = false;
	return earlier_ms(sleep_ms, IDLE_ARM_MS);
}

static void thread_serve(struct px_thread *t)
{
	while (!thread_must_end(t)) {
		const int sleep_ms = px_conns_sweep(t);

		px_starved_wake(t);
		poll_events(t, sleep_timeout_ms(t, sleep_ms));
		take_turns(t);
		t->answered = wait_for_store(t);
		take_turns(t);
	}
}

/* ---- start and end ---- */

static void thread_drain(struct px_thread *t)
{
	const uint64_t end_ns = gn_deadline_us(DRAIN_TIMEOUT_US);

	while (t->outstanding && gn_now_ns() < end_ns)
		gn_kv_wait(t->kv, end_ns);
	take_turns(t); /* responses that have arrived */
	gn_kv_client_close(t->kv);
	while (t->conns)
		px_conn_free(t->conns);
	px_pool_free(t);
	/* Everything that was reserved was released. */
	assert(!t->work_bytes && !t->ins_bytes && !t->conns_bytes);
}

static int thread_open(struct px_thread *t)
{
	struct epoll_event event = {.events = EPOLLIN};
	int rc;

	t->out = malloc(PX_OUT_BYTES);
	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!t->out || t->epoll_fd < 0 || t->wake_fd < 0 ||
	    epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->wake_fd, &event))
		return t->out ? -errno : -ENOMEM;
	rc = gn_kv_client_open(t->proxy->fabric, t->proxy->opts.server, &t->proxy->opts.kv, &t->kv);
	t->context.max_value = GN_KV_VALUE_MAX;
	if (rc)
		return rc;
	t->store = gn_kv_client_source(t->kv);
	rc = gn_source_fd(t->store);
	event.data.ptr = &t->kv;
	if (rc >= 0)
		rc = epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, rc, &event) ? -errno : 0;
	return rc;
}

static void thread_close(struct px_thread *t)
{
	if (t->epoll_fd >= 0)
		close(t->epoll_fd);
	if (t->wake_fd >= 0)
		close(t->wake_fd);
	for (unsigned i = 0; i < t->n_new_fds; i++)
		close(t->new_fds[i]);
	free(t->new_fds);
	free(t->out);
}

static void px_thread_main(void *arg)
{
	struct px_thread *t = arg;
	const int rc = thread_open(t);

	gn_mutex_lock(&t->proxy->lock);
	t->error = rc;
	t->proxy->n_started++;
	gn_cond_signal(&t->proxy->started);
	gn_mutex_unlock(&t->proxy->lock);
	if (rc) {
		gn_kv_client_close(t->kv);
		return;
	}
	update_clock(t);
	thread_serve(t);
	thread_drain(t);
}

int px_thread_start(struct px_thread *t)
{
	t->epoll_fd = t->wake_fd = -1;
	t->queue_last = &t->queue;
	t->starved_last = &t->starved;
	t->waiting_last = &t->waiting;
	t->guess_bytes = PX_INLINE_BYTES;
	return gn_thread_start("kv-proxy", px_thread_main, t, &t->thread);
}

void px_thread_end(struct px_thread *t)
{
	const uint64_t one = 1;

	if (!t->thread)
		return;
	if (t->wake_fd >= 0 && write(t->wake_fd, &one, sizeof(one)) < 0)
		gn_log(GN_LOG_ERROR, "cannot wake a thread: %s", strerror(errno));
	gn_thread_join(t->thread);
	thread_close(t);
}
