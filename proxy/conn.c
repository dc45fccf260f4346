/* SPDX-License-Identifier: MIT */
/*
 * The life of a connection: what there is to do for it is done in turns. It is read from as long as
 * it takes its answers, and until its window is full.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "front.h"

#define DROP_LOOKS 64u /* at connections, to find the one that is dropped */

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
	c->moved_ns = c->command_ns = t->now_ns;
	c->next = t->conns;
	c->prev = &t->conns;
	if (c->next)
		c->next->prev = &c->next;
	t->conns = c;
}

/* ---- waiting for peers ---- */

/* A command has begun, or an answer, and it is the peer that has to go on. */
static bool waits_for_peer(const struct px_conn *c)
{
	if (c->out)
		return true;
	if (c->under_way || c->again || c->control || c->starved)
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

/* After a turn: since when does it wait for its peer? The last of the list since now. */
static void note_waiting(struct px_conn *c)
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
	c->since_ns = t->now_ns;
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

static void forget_read(struct px_slot *s)
{
	if (!s->reads)
		return;
	s->reads = false;
	s->conn->thread->reading[s->tag]--;
	s->conn->reading--;
}

/* All but itself, and slots that the store's client knows of. */
static void release(struct px_conn *c)
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
	c->slots = c->again = 0;
	for (struct px_slot *next; s; s = next) {
		next = s->next;
		if (s->state != PX_UNDER_WAY) {
			forget_read(s);
			px_slot_free(t, s);
			continue;
		}
		s->next = NULL;
		s->prev = c->last;
		*c->last = s;
		c->last = &s->next;
		c->slots++;
	}
	px_in_end(c);
	px_memory_give(t, c->out_bytes);
	free(c->out);
	c->out = NULL;
	c->out_at = c->out_len = c->out_bytes = 0;
	leave_waiting(c);
	leave_starved(c);
}

void px_conn_drop(struct px_conn *c)
{
	release(c);
	px_conn_queue(c);
}

/*
 * The longest waiting of those that have not moved a byte lately; if all have, the longest waiting.
 * A client that takes its time with a large value is not the first to go.
 */
bool px_conn_drop_waiting(struct px_thread *t, const struct px_conn *but)
{
	struct px_conn *still = NULL, *slow = NULL, *c = t->waiting;

	for (unsigned n = 0; c && !still && n < DROP_LOOKS; c = c->next_waiting, n++) {
		const uint64_t last_ns = c->moved_ns > c->since_ns ? c->moved_ns : c->since_ns;

		if (c == but)
			continue;
		if (t->now_ns >= last_ns + PX_STILL_MS * 1000000ull)
			still = c;
		else if (!slow && t->now_ns >= c->since_ns + PX_SLOW_MS * 1000000ull)
			slow = c;
	}
	c = still ? still : slow;
	if (!c)
		return false;
	PX_COUNT(t, closed_slow, 1);
	px_conn_drop(c);
	return true;
}

static void sweep(struct px_thread *t, uint64_t stall_ns, uint64_t idle_ns)
{
	for (struct px_conn *c = t->waiting, *next; c; c = next) {
		next = c->next_waiting;
		if (t->now_ns - c->moved_ns < stall_ns)
			continue;
		PX_COUNT(t, closed_stalled, 1);
		px_conn_drop(c);
	}
	for (struct px_conn *c = idle_ns ? t->conns : NULL; c; c = c->next) {
		if (c->dead || c->under_way || t->now_ns - c->command_ns < idle_ns)
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
		sweep(t, stall_ms * 1000000ull, idle_ms * 1000000ull);
	}
	return t->waiting || (idle_ms && t->conns) ? (int)every_ms : -1;
}

/* ---- the end ---- */

void px_conn_free(struct px_conn *c)
{
	struct px_thread *t = c->thread;

	while (c->first) {
		struct px_slot *s = c->first;

		c->first = s->next;
		forget_read(s);
		px_slot_free(t, s);
	}
	release(c);
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	t->conns_bytes -= sizeof(*c);
	PX_COUNT(t, gone, 1);
	free(c);
}

/* ---- reading ---- */

/* How much came, into room bytes; 0 when there is nothing now, or never again. */
static size_t read_some(struct px_conn *c, void *to, size_t room)
{
	ssize_t rc;

	do {
		rc = read(c->fd, to, room);
	} while (rc < 0 && errno == EINTR);
	if (rc > 0) {
		PX_COUNT(c->thread, bytes_read, rc);
		c->moved_ns = c->thread->now_ns;
		/* Less than asked for is all there was; the next byte is an event of its own. */
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

/* A value straight to where it stays. */
static bool read_value(struct px_conn *c)
{
	struct px_slot *s = c->filling;
	const uint32_t bytes = s->request.op.value_len + 2;
	char *value = bytes > sizeof(s->room) ? s->more : s->room;
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
	n = read_some(c, c->in->bytes + c->in_len, c->in->room - c->in_len);
	c->in_len += (uint32_t)n;
	return n;
}

/* ---- turns ---- */

static bool answers_ready(const struct px_conn *c)
{
	return c->first && c->first->state == PX_DONE && !c->under_way;
}

static void work(struct px_conn *c)
{
	for (unsigned reads = 0; reads < PX_READS && !c->dead;) {
		px_reply_rest(c);
		px_reply(c);
		if (c->again)
			px_begin_again(c);
		if (c->dead || c->out)
			return;
		px_input(c);
		if (answers_ready(c))
			continue;
		if (c->mode == PX_MODE_OVER || c->slots >= PX_WINDOW || c->starved || c->control ||
		    !read_more(c))
			return;
		reads++;
	}
	if (!c->dead)
		px_conn_queue(c); /* after the others */
}

/* No more will come, and all that came is answered, but for what has no end. */
static bool is_over(const struct px_conn *c)
{
	if ((c->mode != PX_MODE_OVER && !c->ended) || c->out || c->mode == PX_MODE_DUMP)
		return false;
	return !c->first || (c->mode == PX_MODE_VALUE && c->first == c->filling);
}

void px_conn_turn(struct px_conn *c)
{
	work(c);
	if (is_over(c))
		c->dead = true;
	if (!c->dead) {
		if (!c->queued)
			px_in_shrink(c);
		note_waiting(c);
		return;
	}
	if (c->fd >= 0)
		release(c);
	if (!c->under_way && !c->queued)
		px_conn_free(c);
}
