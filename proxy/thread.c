/* SPDX-License-Identifier: MIT */
/*
 * A thread: looks which connections are ready, takes apart what they sent, has the store work on
 * all of it at once, and answers. It sleeps while there is nothing to do.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "front.h"

#define EVENTS	   512
#define YIELDS	   16u	    /* to the store, before its answers are waited for asleep */
#define MESSAGES   16u	    /* of the store, until connections have their turns */
#define STARVED_MS 1	    /* until it is looked again whether there is memory */
#define BLIND_MS   10	    /* between two looks at a store that cannot wake its thread */
#define IDLE_MS	   100	    /* without anything, until it is worth it to hear of the store's end */
#define END_US	   2000000u /* for what is under way, when it ends */

static void count_messages(struct px_thread *t)
{
	struct gn_kv_counters count = {.size = sizeof(count)};

	if (!gn_kv_client_counters(t->kv, &count))
		__atomic_store_n(&t->counters.messages, count.messages, __ATOMIC_RELAXED);
}

static void look_at_clock(struct px_thread *t)
{
	struct gn_kv_limits limits = {.size = sizeof(limits)};
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	t->now_ns = gn_now_ns();
	if (now.tv_sec == t->context.now_s)
		return;
	t->context.now_s = now.tv_sec;
	count_messages(t);
	/* The store may be another one by now. */
	if (!gn_kv_client_limits(t->kv, &limits) && limits.max_value)
		t->context.max_value = limits.max_value;
}

/* ---- connections that were let in ---- */

bool px_thread_give(struct px_thread *t, int fd)
{
	const uint64_t one = 1;
	bool given = true;

	gn_mutex_lock(&t->proxy->lock);
	if (t->n_given == t->given_room) {
		const unsigned room = t->given_room ? t->given_room * 2 : 64;
		int *fds = realloc(t->given, room * sizeof(*fds));

		given = fds;
		t->given = fds ? fds : t->given;
		t->given_room = fds ? room : t->given_room;
	}
	if (given)
		t->given[t->n_given++] = fd;
	gn_mutex_unlock(&t->proxy->lock);
	if (!given)
		close(fd);
	else if (write(t->wake_fd, &one, sizeof(one)) < 0)
		gn_log(GN_LOG_ERROR, "cannot wake a thread: %s", strerror(errno));
	return given;
}

static void take_given(struct px_thread *t)
{
	uint64_t count;

	if (read(t->wake_fd, &count, sizeof(count)) < 0)
		return;
	gn_mutex_lock(&t->proxy->lock);
	for (unsigned i = 0; i < t->n_given; i++)
		px_conn_add(t, t->given[i]);
	t->n_given = 0;
	gn_mutex_unlock(&t->proxy->lock);
}

/* ---- the loop ---- */

static void look_at_events(struct px_thread *t, int sleep_ms)
{
	struct epoll_event events[EVENTS];
	int n;

	n = epoll_wait(t->epoll_fd, events, EVENTS, sleep_ms);
	t->idle = !n && sleep_ms;
	look_at_clock(t);
	for (int i = 0; i < n; i++) {
		struct px_conn *c = events[i].data.ptr;

		if (events[i].data.ptr == &t->kv)
			continue; /* the store, which is polled anyway */
		if (!c) {
			take_given(t);
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

/* Those that are queued now; who is queued meanwhile has its turn after the store had its own. */
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

static bool ending(const struct px_thread *t)
{
	return __atomic_load_n(&t->proxy->ending, __ATOMIC_ACQUIRE);
}

/* Takes the store's answers, if there are any: a poll takes a message of them at most. */
static bool take_answers(struct px_thread *t)
{
	unsigned n = 0;

	while (gn_kv_poll(t->kv) > 0 && ++n < MESSAGES && t->under_way)
		;
	return n;
}

/*
 * Has the store answered? It is mostly faster than a sleep and a wake-up, and may need this very
 * core: so it gets it first.
 */
static bool wait_for_store(struct px_thread *t)
{
	bool answered = take_answers(t);

	for (unsigned i = 0; i < YIELDS && !answered && t->under_way && !t->queue; i++) {
		gn_yield();
		answered = take_answers(t);
	}
	return answered;
}

/* A time to sleep that is at most ms; sleep_ms < 0: for ever. */
static int sooner_ms(int sleep_ms, int ms)
{
	return sleep_ms < 0 || sleep_ms > ms ? ms : sleep_ms;
}

/*
 * How long to sleep; 0: there is something to do. When the store has answered, its next answer is
 * likely to be there too, and to ask to be woken for it would cost both sides system calls.
 *
 * The store wakes this thread if something is to come from it. While nothing is, only its end is of
 * interest, and only to a thread that is idle for long: most sleeps are short. A thread that the
 * store cannot wake, because the system lacks something, looks every BLIND_MS.
 */
static int rest_ms(struct px_thread *t, int sleep_ms)
{
	int rc;

	if (t->queue || (t->under_way && t->answered))
		return 0;
	count_messages(t);
	if (t->starved)
		sleep_ms = sooner_ms(sleep_ms, STARVED_MS);
	if (t->under_way || t->store_gone || t->idle) {
		t->armed = true;
		PX_COUNT(t, waits, t->under_way > 0);
		rc = gn_source_arm(t->store);
		return !rc ? sleep_ms : rc == -EAGAIN ? 0 : sooner_ms(sleep_ms, BLIND_MS);
	}
	if (t->armed)
		gn_source_disarm(t->store);
	t->armed = false;
	return sooner_ms(sleep_ms, IDLE_MS);
}

static void serve(struct px_thread *t)
{
	while (!ending(t)) {
		const int sleep_ms = px_conns_sweep(t);

		px_starved_wake(t);
		look_at_events(t, rest_ms(t, sleep_ms));
		take_turns(t);
		t->answered = wait_for_store(t);
		take_turns(t);
	}
}

/* ---- beginning and end ---- */

static void end(struct px_thread *t)
{
	const uint64_t end_ns = gn_deadline_us(END_US);

	while (t->under_way && gn_now_ns() < end_ns)
		gn_kv_wait(t->kv, end_ns);
	take_turns(t); /* answers that are there */
	gn_kv_client_close(t->kv);
	while (t->conns)
		px_conn_free(t->conns);
	px_pool_empty(t);
	/* What was counted was given back. */
	assert(!t->work_bytes && !t->ins_bytes && !t->conns_bytes);
}

static int open_all(struct px_thread *t)
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

static void close_all(struct px_thread *t)
{
	if (t->epoll_fd >= 0)
		close(t->epoll_fd);
	if (t->wake_fd >= 0)
		close(t->wake_fd);
	for (unsigned i = 0; i < t->n_given; i++)
		close(t->given[i]);
	free(t->given);
	free(t->out);
}

static void run(void *arg)
{
	struct px_thread *t = arg;
	const int rc = open_all(t);

	gn_mutex_lock(&t->proxy->lock);
	t->error = rc;
	t->proxy->n_begun++;
	gn_cond_signal(&t->proxy->begun);
	gn_mutex_unlock(&t->proxy->lock);
	if (rc) {
		gn_kv_client_close(t->kv);
		return;
	}
	look_at_clock(t);
	serve(t);
	end(t);
}

int px_thread_start(struct px_thread *t)
{
	t->epoll_fd = t->wake_fd = -1;
	t->queue_last = &t->queue;
	t->starved_last = &t->starved;
	t->waiting_last = &t->waiting;
	t->early_bytes = PX_ROOM;
	return gn_thread_start("kv-proxy", run, t, &t->thread);
}

void px_thread_end(struct px_thread *t)
{
	const uint64_t one = 1;

	if (!t->thread)
		return;
	if (t->wake_fd >= 0 && write(t->wake_fd, &one, sizeof(one)) < 0)
		gn_log(GN_LOG_ERROR, "cannot wake a thread: %s", strerror(errno));
	gn_thread_join(t->thread);
	close_all(t);
}
