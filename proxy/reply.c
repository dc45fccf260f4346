/* SPDX-License-Identifier: MIT */
/*
 * Answers, in the order in which they were asked for. They are put together in the thread's own
 * memory and written at once; only what a client does not take is kept for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "front.h"

#define GATHER_MAX (1u << 20) /* bytes of a write, or one value more */
#define END	   "END\r\n"
#define END_BYTES  5u

/* ---- putting together ---- */

struct gather {
	struct px_thread *thread;
	char *at, *run; /* of the thread's memory: its end, and where the last piece began */
	unsigned n;	/* pieces */
	size_t bytes;
};

static void piece(struct gather *g, const void *from, size_t len)
{
	if (!len)
		return;
	g->thread->iov[g->n++] =
		(struct iovec){.iov_base = (void *)(uintptr_t)from, .iov_len = len};
	g->bytes += len;
}

static void cut(struct gather *g)
{
	piece(g, g->run, (size_t)(g->at - g->run));
	g->run = g->at;
}

static bool has_room(const struct gather *g)
{
	return g->at + PX_HEAD_MAX + PX_COPY_MAX + 64 <= g->thread->out + PX_OUT_BYTES &&
	       g->n + 3 <= PX_IOVS && g->bytes + (size_t)(g->at - g->run) < GATHER_MAX;
}

static void put_bytes(struct gather *g, const char *from, uint32_t len)
{
	if (len <= PX_COPY_MAX + 2) {
		memcpy(g->at, from, len);
		g->at += len;
		return;
	}
	cut(g);
	piece(g, from, len);
}

/* A get that failed for a key has no END. */
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

	if (s->raw_bytes) {
		put_bytes(g, s->more, s->raw_bytes);
		return;
	}
	if (r->kind == PX_VALUE && r->op.status > GN_KV_MISS)
		s->conn->get_failed = r->op.status == GN_KV_NO_MEMORY ?
					      "SERVER_ERROR out of memory writing get response" :
					      px_failure(r);
	if (r->kind == PX_END && !r->say) {
		put_end(g, s->conn);
		return;
	}
	if (r->kind == PX_END)
		s->conn->get_failed = NULL;
	g->at += px_answer(r, g->at, &value);
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
 * Keeps what is left of it, behind what is left already. It counts, but is not refused: the slots
 * that give back as much are freed right after. False: there is no memory at all.
 */
static bool keep(struct px_conn *c, const struct gather *g, size_t written)
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

/* How much was written; 0 also when the connection is broken. */
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
	c->moved_ns = c->thread->now_ns;
	return (size_t)rc;
}

static void send_gathered(struct px_conn *c, struct gather *g)
{
	size_t written = 0;

	cut(g);
	if (!g->bytes || c->dead)
		return;
	if (!c->out)
		written = write_out(c, c->thread->iov, g->n);
	if (c->dead || written == g->bytes || keep(c, g, written))
		return;
	PX_COUNT(c->thread, closed_slow, 1);
	c->dead = true; /* it asks for more than it takes, and there is no memory left for it */
}

static void drop_until(struct px_conn *c, const struct px_slot *end)
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

bool px_reply(struct px_conn *c)
{
	while (c->first && c->first->state == PX_DONE) {
		struct gather g = {
			.thread = c->thread, .at = c->thread->out, .run = c->thread->out};
		struct px_slot *s = c->first;

		for (; s && s->state == PX_DONE && has_room(&g); s = s->next)
			put_slot(&g, s);
		send_gathered(c, &g);
		drop_until(c, s);
	}
	return !c->out;
}

bool px_reply_rest(struct px_conn *c)
{
	struct iovec iov = {.iov_base = c->out + c->out_at, .iov_len = c->out_len - c->out_at};

	if (!c->out)
		return true;
	c->out_at += write_out(c, &iov, 1);
	if (c->out_at < c->out_len)
		return false;
	px_memory_give(c->thread, c->out_bytes);
	free(c->out);
	c->out = NULL;
	c->out_at = c->out_len = c->out_bytes = 0;
	c->progressed = true;
	return true;
}
