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
	struct px_conn *c = calloc(1, sizeof(*c));
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				    .data.ptr = c};

	if (!c || epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		gn_log(GN_LOG_WARN, "no room for a connection: %s", strerror(errno));
		free(c);
		close(fd);
		PX_COUNT(t, came, 1);
		PX_COUNT(t, gone, 1);
		return;
	}
	c->fd = fd;
	c->thread = t;
	c->last_ns = t->now_ns;
	c->last = &c->first;
	c->next = t->conns;
	c->prev = &t->conns;
	if (c->next)
		c->next->prev = &c->next;
	t->conns = c;
	PX_COUNT(t, came, 1);
}

void px_conn_free(struct px_conn *c)
{
	struct px_thread *t = c->thread;

	while (c->first) {
		struct px_slot *s = c->first;

		c->first = s->next;
		if (s->reads)
			t->reading[s->tag]--;
		px_slot_free(t, s);
	}
	px_in_end(c);
	px_memory_give(t, c->out_bytes);
	free(c->out);
	if (c->fd >= 0)
		close(c->fd);
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
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

static bool pinned(const struct px_conn *c)
{
	const bool own = c->mode == PX_MODE_VALUE && !c->in_needed;

	return c->slots > (own ? 1u : 0u);
}

static bool read_more(struct px_conn *c)
{
	size_t n;

	if (!c->readable)
		return false;
	if (c->mode == PX_MODE_VALUE && c->in_at == c->in_len)
		return read_value(c);
	if (!px_in_begin(c)) {
		c->dead = true;
		return false;
	}
	if (!pinned(c))
		px_in_tidy(c);
	if (c->in_len == PX_IN_BYTES)
		return false;
	n = read_some(c, c->in + c->in_len, PX_IN_BYTES - c->in_len);
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
		if (c->mode == PX_MODE_OVER || c->slots >= PX_WINDOW || !read_more(c))
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
		if (!pinned(c) && !c->queued)
			px_in_rest(c);
		return;
	}
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	if (!c->under_way && !c->queued)
		px_conn_free(c);
}
