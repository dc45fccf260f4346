/* SPDX-License-Identifier: MIT */
/*
 * Writes replies, in the order of the commands. They are gathered in the thread's buffer and
 * written with one system call; only what a client does not read is kept for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "internal.h"

#define GATHER_BYTES_MAX (1u << 20) /* bytes of a write, plus at most one value */
#define END		 "END\r\n"
#define END_BYTES	 5u

/* ---- gathering ---- */

struct gather {
	struct px_thread *thread;
	char *at, *run; /* in the thread's buffer: its end, and the start of the current piece */
	unsigned n;	/* pieces */
	size_t bytes;
};

static void gather_piece(struct gather *g, const void *from, size_t len)
{
	if (!len)
		return;
	g->thread->iov[g->n++] =
		(struct iovec){.iov_base = (void *)(uintptr_t)from, .iov_len = len};
	g->bytes += len;
}

static void gather_end_run(struct gather *g)
{
	gather_piece(g, g->run, (size_t)(g->at - g->run));
	g->run = g->at;
}

static bool gather_has_space(const struct gather *g)
{
	return g->at + PX_HEAD_MAX + PX_COPY_MAX + 64 <= g->thread->out + PX_OUT_BYTES &&
	       g->n + 3 <= PX_IOVS && g->bytes + (size_t)(g->at - g->run) < GATHER_BYTES_MAX;
}

static void put_bytes(struct gather *g, const char *from, uint32_t len)
{
	if (len <= PX_COPY_MAX + 2) {
		memcpy(g->at, from, len);
		g->at += len;
		return;
	}
	gather_end_run(g);
	gather_piece(g, from, len);
}

/* A get with a failed key has no END. */
static void put_end(struct gather *g, struct px_conn *c)
{
	if (!c->get_failed) {
		memcpy(g->at, END, END_BYTES);
		g->at += END_BYTES;
		return;
	}
	g->at = stpcpy(stpcpy(g->at, c->get_failed), "\r\n");
	c->get_failed = NULL;
}

static void put_slot(struct gather *g, struct px_slot *s)
{
	struct px_request *r = &s->request;
	bool value;

	if (s->reply_bytes) {
		put_bytes(g, s->buf, s->reply_bytes);
		return;
	}
	if (r->kind == PX_VALUE && r->op.status > GN_KV_MISS)
		s->conn->get_failed = r->op.status == GN_KV_NO_MEMORY ?
					      "SERVER_ERROR out of memory writing get response" :
					      px_error_text(r);
	if (r->kind == PX_END && !r->reply) {
		put_end(g, s->conn);
		return;
	}
	if (r->kind == PX_END)
		s->conn->get_failed = NULL;
	g->at += px_response(r, g->at, &value);
	if (value) {
		char *room = r->op.room;

		room[r->op.len] = '\r';
		room[r->op.len + 1] = '\n';
		put_bytes(g, room, r->op.len + 2);
	}
	if (r->kind == PX_VALUE && r->bits & PX_LAST)
		put_end(g, s->conn);
}

/* ---- writing ---- */

/*
 * Keeps what was not written, behind what is kept already. It counts, but is not limited: slots
 * that release as much are freed right after. False: realloc() failed.
 */
static bool output_keep(struct px_conn *c, const struct gather *g, size_t written)
{
	const size_t more = g->bytes - written;
	struct px_thread *t = c->thread;
	char *out;

	if (c->out_len + more > c->out_bytes) {
		const size_t bytes = c->out_len + more;

		out = realloc(c->out, bytes);
		if (!out)
			return false;
		t->work_bytes += bytes - c->out_bytes;
		c->out = out;
		c->out_bytes = bytes;
	}
	for (unsigned i = 0; i < g->n; i++) {
		const size_t len = t->iov[i].iov_len, skip = written < len ? written : len;

		memcpy(c->out + c->out_len, (char *)t->iov[i].iov_base + skip, len - skip);
		c->out_len += len - skip;
		written -= skip;
	}
	return true;
}

/* Returns the number of bytes written; 0 also when the connection is broken. */
static size_t write_out(struct px_conn *c, struct iovec *iov, unsigned n)
{
	const struct msghdr message = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t rc;

	do {
		rc = n == 1 ? send(c->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL) :
			      sendmsg(c->fd, &message, MSG_NOSIGNAL);
	} while (rc < 0 && errno == EINTR);
	if (rc < 0 && errno != EAGAIN)
		c->dead = true;
	if (rc <= 0)
		return 0;
	PX_COUNT(c->thread, bytes_written, rc);
	c->last_io_ns = c->thread->now_ns;
	return (size_t)rc;
}

static void send_gathered(struct px_conn *c, struct gather *g)
{
	size_t written = 0;

	gather_end_run(g);
	if (!g->bytes || c->dead)
		return;
	if (!c->out)
		written = write_out(c, c->thread->iov, g->n);
	if (c->dead || written == g->bytes || output_keep(c, g, written))
		return;
	PX_COUNT(c->thread, closed_slow, 1);
	c->dead = true; /* the client requests more than it reads, and no memory is left */
}

static void slots_free_until(struct px_conn *c, const struct px_slot *end)
{
	while (c->first != end) {
		struct px_slot *s = c->first;

		c->first = s->next;
		c->slots--;
		px_slot_free(c->thread, s);
	}
	if (!c->first)
		c->last = &c->first;
}

bool px_write_replies(struct px_conn *c)
{
	while (c->first && c->first->state == PX_DONE) {
		struct gather g = {
			.thread = c->thread, .at = c->thread->out, .run = c->thread->out};
		struct px_slot *s = c->first;

		for (; s && s->state == PX_DONE && gather_has_space(&g); s = s->next)
			put_slot(&g, s);
		send_gathered(c, &g);
		slots_free_until(c, s);
	}
	return !c->out;
}

bool px_write_pending(struct px_conn *c)
{
	struct iovec iov = {.iov_base = c->out + c->out_at, .iov_len = c->out_len - c->out_at};

	if (!c->out)
		return true;
	c->out_at += write_out(c, &iov, 1);
	if (c->out_at < c->out_len)
		return false;
	px_memory_release(c->thread, c->out_bytes);
	free(c->out);
	c->out = NULL;
	c->out_at = c->out_len = c->out_bytes = 0;
	c->progressed = true;
	return true;
}
