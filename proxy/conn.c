/* SPDX-License-Identifier: MIT */
/*
 * Connections: each is processed in turns. It is read from while it reads its replies, until its
 * window is full.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "internal.h"

#define DROP_VISITS_MAX 64u /* connections visited to find the one to drop */

void px_conn_queue(struct px_conn *c)
{
	if (c->queued)
		return;
	c->queued = true;
	c->next_queued = NULL;
	*c->thread->queue_last = c;
	c->thread->queue_last = &c->next_queued;
}

void px_conn_add(struct px_thread *t, int fd)
{
	const bool room = t->conns_bytes + sizeof(struct px_conn) <= t->proxy->conns_bytes;
	struct px_conn *c = room ? calloc(1, sizeof(*c)) : NULL;
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				    .data.ptr = c};

	PX_COUNT(t, came, 1);
	if (!c || epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		free(c);
		px_refuse(t->proxy, fd);
		PX_COUNT(t, gone, 1);
		return;
	}
	t->conns_bytes += sizeof(*c);
	c->fd = fd;
	c->thread = t;
	c->last_ns = t->now_ns;
	c->last = &c->first;
	c->last_io_ns = c->command_ns = t->now_ns;
	c->next = t->conns;
	c->prev = &t->conns;
	if (c->next)
		c->next->prev = &c->next;
	t->conns = c;
}

/* ---- waiting for peers ---- */

/* A command or a reply has started, and the peer must continue. */
static bool waits_for_peer(const struct px_conn *c)
{
	if (c->out)
		return true;
	if (c->outstanding || c->n_retry || c->control_pending || c->starved)
		return false;
	return c->in_at < c->in_len || c->mode == PX_MODE_VALUE || c->mode == PX_MODE_KEYS ||
	       c->mode == PX_MODE_SKIP || c->mode == PX_MODE_SKIP_LINE;
}

static void leave_waiting(struct px_conn *c)
{
	if (!c->waiting)
		return;
	c->waiting = false;
	*c->prev_waiting = c->next_waiting;
	if (c->next_waiting)
		c->next_waiting->prev_waiting = c->prev_waiting;
	else
		c->thread->waiting_last = c->prev_waiting;
}

/* After a turn: updates the list of connections that wait for their peers; the newest is last. */
static void update_waiting(struct px_conn *c)
{
	struct px_thread *t = c->thread;
	const bool waits = waits_for_peer(c);

	if (c->progressed)
		c->command_ns = t->now_ns;
	if (waits && c->waiting && !c->progressed)
		return;
	c->progressed = false;
	leave_waiting(c);
	if (!waits)
		return;
	c->waiting = true;
	c->waiting_since_ns = t->now_ns;
	c->next_waiting = NULL;
	c->prev_waiting = t->waiting_last;
	*t->waiting_last = c;
	t->waiting_last = &c->next_waiting;
}

static void leave_starved(struct px_conn *c)
{
	struct px_conn **at = &c->thread->starved;

	if (!c->starved)
		return;
	c->starved = false;
	while (*at != c)
		at = &(*at)->next_starved;
	*at = c->next_starved;
	if (!*at)
		c->thread->starved_last = at;
}

static void slot_end_read(struct px_slot *s)
{
	if (!s->reads)
		return;
	s->reads = false;
	s->conn->thread->reading[s->tag]--;
	s->conn->reading--;
}

/* Releases everything except the struct and slots with outstanding operations. */
static void conn_release(struct px_conn *c)
{
	struct px_thread *t = c->thread;
	struct px_slot *s = c->first;

	c->dead = true;
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->first = NULL;
	c->last = &c->first;
	c->filling = NULL;
	c->slots = c->n_retry = 0;
	for (struct px_slot *next; s; s = next) {
		next = s->next;
		if (s->state != PX_OUTSTANDING) {
			slot_end_read(s);
			px_slot_free(t, s);
			continue;
		}
		s->next = NULL;
		s->prev = c->last;
		*c->last = s;
		c->last = &s->next;
		c->slots++;
	}
	px_in_release(c);
	px_memory_release(t, c->out_bytes);
	free(c->out);
	c->out = NULL;
	c->out_at = c->out_len = c->out_bytes = 0;
	leave_waiting(c);
	leave_starved(c);
}

void px_conn_drop(struct px_conn *c)
{
	conn_release(c);
	px_conn_queue(c);
}

/*
 * Drops the longest waiting of the connections without recent input or output; if there is none,
 * the longest waiting. So a slow client with a large value is not the first to be dropped.
 */
bool px_conn_drop_waiting(struct px_thread *t, const struct px_conn *except)
{
	struct px_conn *still = NULL, *slow = NULL, *c = t->waiting;

	for (unsigned n = 0; c && !still && n < DROP_VISITS_MAX; c = c->next_waiting, n++) {
		const uint64_t last_ns = c->last_io_ns > c->waiting_since_ns ? c->last_io_ns :
									       c->waiting_since_ns;

		if (c == except)
			continue;
		if (t->now_ns >= last_ns + PX_DROP_IDLE_MS * 1000000ull)
			still = c;
		else if (!slow && t->now_ns >= c->waiting_since_ns + PX_DROP_SLOW_MS * 1000000ull)
			slow = c;
	}
	c = still ? still : slow;
	if (!c)
		return false;
	PX_COUNT(t, closed_slow, 1);
	px_conn_drop(c);
	return true;
}

static void conns_drop_idle(struct px_thread *t, uint64_t stall_ns, uint64_t idle_ns)
{
	for (struct px_conn *c = t->waiting, *next; c; c = next) {
		next = c->next_waiting;
		if (t->now_ns - c->last_io_ns < stall_ns)
			continue;
		PX_COUNT(t, closed_stalled, 1);
		px_conn_drop(c);
	}
	for (struct px_conn *c = idle_ns ? t->conns : NULL; c; c = c->next) {
		if (c->dead || c->outstanding || t->now_ns - c->command_ns < idle_ns)
			continue;
		PX_COUNT(t, closed_idle, 1);
		px_conn_drop(c);
	}
}

int px_conns_sweep(struct px_thread *t)
{
	const uint32_t stall_ms = t->proxy->opts.stall_ms, idle_ms = t->proxy->opts.idle_ms;
	const uint32_t least_ms = idle_ms && idle_ms < stall_ms ? idle_ms : stall_ms;
	const uint32_t every_ms = least_ms < 4000 ? least_ms / 4 + 1 : 1000;

	if (t->now_ns - t->swept_ns >= every_ms * 1000000ull) {
		t->swept_ns = t->now_ns;
		conns_drop_idle(t, stall_ms * 1000000ull, idle_ms * 1000000ull);
	}
	return t->waiting || (idle_ms && t->conns) ? (int)every_ms : -1;
}

/* ---- end ---- */

void px_conn_free(struct px_conn *c)
{
	struct px_thread *t = c->thread;

	while (c->first) {
		struct px_slot *s = c->first;

		c->first = s->next;
		slot_end_read(s);
		px_slot_free(t, s);
	}
	conn_release(c);
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	t->conns_bytes -= sizeof(*c);
	PX_COUNT(t, gone, 1);
	free(c);
}

/* ---- reading ---- */

/* Returns the number of bytes read; 0: none now, or the end. */
static size_t read_some(struct px_conn *c, void *to, size_t room)
{
	ssize_t rc;

	do {
		rc = read(c->fd, to, room);
	} while (rc < 0 && errno == EINTR);
	if (rc > 0) {
		PX_COUNT(c->thread, bytes_read, rc);
		c->last_io_ns = c->thread->now_ns;
		/* A short read was everything; the next byte raises an event. */
		if ((size_t)rc < room && !c->hung_up)
			c->readable = false;
		return (size_t)rc;
	}
	c->readable = false;
	if (rc == 0)
		c->ended = true;
	else if (errno != EAGAIN)
		c->dead = true;
	return 0;
}

/* Reads a value directly to its destination. */
static bool read_value(struct px_conn *c)
{
	struct px_slot *s = c->filling;
	const uint32_t bytes = s->request.op.value_len + 2;
	char *value = bytes > sizeof(s->inline_buf) ? s->buf : s->inline_buf;
	const size_t n = read_some(c, value + s->filled, bytes - s->filled);

	s->filled += (uint32_t)n;
	return n;
}

static bool read_more(struct px_conn *c)
{
	size_t n;
	int rc;

	if (!c->readable)
		return false;
	if (c->mode == PX_MODE_VALUE && c->in_at == c->in_len)
		return read_value(c);
	rc = px_in_ready(c);
	if (rc == -ENOMEM)
		px_starve(c);
	if (rc)
		return false;
	n = read_some(c, c->in->bytes + c->in_len, c->in->capacity - c->in_len);
	c->in_len += (uint32_t)n;
	return n;
}

/* ---- turns ---- */

static bool answers_ready(const struct px_conn *c)
{
	return c->first && c->first->state == PX_DONE && !c->outstanding;
}

static void conn_work(struct px_conn *c)
{
	for (unsigned reads = 0; reads < PX_READS_PER_TURN && !c->dead;) {
		px_write_pending(c);
		px_write_replies(c);
		if (c->n_retry)
			px_retry(c);
		if (c->dead || c->out)
			return;
		px_input(c);
		if (answers_ready(c))
			continue;
		if (c->mode == PX_MODE_CLOSING || c->slots >= PX_WINDOW || c->starved ||
		    c->control_pending || !read_more(c))
			return;
		reads++;
	}
	if (!c->dead)
		px_conn_queue(c); /* after the others */
}

/* No input is left or will come, and everything complete is answered. */
static bool conn_is_finished(const struct px_conn *c)
{
	if ((c->mode != PX_MODE_CLOSING && !c->ended) || c->out || c->mode == PX_MODE_DUMP)
		return false;
	return !c->first || (c->mode == PX_MODE_VALUE && c->first == c->filling);
}

void px_conn_turn(struct px_conn *c)
{
	conn_work(c);
	if (conn_is_finished(c))
		c->dead = true;
	if (!c->dead) {
		if (!c->queued)
			px_in_shrink(c);
		update_waiting(c);
		return;
	}
	if (c->fd >= 0)
		conn_release(c);
	if (!c->outstanding && !c->queued)
		px_conn_free(c);
}
