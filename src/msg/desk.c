/* SPDX-License-Identifier: MIT */
/* A thread's desk: a loop, and the ends of its connections by number. */
#include <errno.h>

#include "base/fail.h"
#include "msg/end.h"

#define TEND_EVERY 256u	     /* turns: to look at the channel costs a system call */
#define SPIN_US	   20u	     /* of waiting, before it looks at events */
#define NAP_MIN_NS 20000u    /* between two looks at memory by a sleeping responder */
#define NAP_MAX_NS 10240000u /* … when nothing has come for long */

static struct msg_end *end_of(struct link_conn *conn)
{
	return container_of(conn, struct msg_end, link);
}

static struct msg_desk *desk_of(struct link_loop *loop)
{
	return container_of(loop, struct msg_desk, loop);
}

/* ---- what the loop asks for ---- */

static void completed(struct link_conn *conn, const struct gn_wc *wc)
{
	msg_end_completed(end_of(conn), wc);
}

static void datagram(struct link_loop *loop, const struct gn_wc *wc)
{
	msg_ud_completed(desk_of(loop), wc);
}

static void request(struct link_loop *loop, struct gn_event *event)
{
	struct msg_desk *desk = desk_of(loop);

	if (desk->request)
		desk->request(desk, event);
	else
		gn_reject(event->req, NULL, 0);
}

static int answered(struct link_conn *conn, const struct gn_event *event)
{
	return end_of(conn)->desk->answered(end_of(conn), event);
}

static void ended(struct link_conn *conn)
{
	msg_end_fail(end_of(conn), GN_MSG_GONE);
}

static bool watched(const struct link_conn *conn)
{
	return container_of(conn, const struct msg_end, link)->awaited;
}

static bool destroy(struct link_conn *conn)
{
	return msg_end_destroy(end_of(conn));
}

/* Memory that peers may write. */
static void words(struct link_loop *loop, struct link_words *out)
{
	const struct msg_desk *desk = desk_of(loop);

	for (unsigned i = 0; i < desk->max_ends; i++) {
		const struct msg_end *end = desk->ends[i];
		const uint64_t *word = end && end->awaited ? msg_end_word(end) : NULL;
		uint64_t seen;

		if (!word)
			continue;
		seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		if (!link_words_add(out, word, seen))
			break;
		out->torn |= msg_frame_begun(end->told.frame, seen, end->told.number);
	}
}

/* Is something here that the next turn takes? */
static bool end_has_news(const struct msg_end *end)
{
	return end->n_chain || end->told.arrived || (end->fate != GN_MSG_OK && end->awaited);
}

/*
 * Before its thread sleeps. Completions tell of messages, except of those that are WRITTEN to this
 * side: these are looked for less and less often, until something comes.
 */
static int sleep_soon(struct link_loop *loop)
{
	struct msg_desk *desk = desk_of(loop);
	const uint64_t moved = desk->stats.requests + desk->stats.answers + desk->stats.failed;
	bool written = false, begun = false;

	for (unsigned i = 0; i < desk->max_ends; i++) {
		struct msg_end *end = desk->ends[i];
		const uint64_t *word = end && end->awaited ? msg_end_word(end) : NULL;

		if (end && end_has_news(end))
			return -EAGAIN;
		if (end && end->said.verb == MSG_WRITE)
			msg_end_wake_peer(end);
		if (!word)
			continue;
		written = true;
		msg_end_sleep(end); /* before the last look */
		begun |= msg_frame_begun(end->told.frame, __atomic_load_n(word, __ATOMIC_ACQUIRE),
					 end->told.number);
	}
	if (moved != desk->moved || begun)
		desk->nap_ns = NAP_MIN_NS;
	else if (desk->nap_ns < NAP_MAX_NS)
		desk->nap_ns *= 2; /* from 20 us it meets NAP_MAX_NS */
	desk->moved = moved;
	if (written)
		source_due(&loop->source, gn_now_ns() + desk->nap_ns);
	return desk->sleep ? desk->sleep(desk) : 0;
}

static const struct link_ops desk_ops = {
	.completed = completed,
	.datagram = datagram,
	.request = request,
	.answered = answered,
	.ended = ended,
	.watched = watched,
	.destroy = destroy,
	.words = words,
	.sleep = sleep_soon,
};

/* ---- a desk ---- */

int msg_desk_open(struct msg_desk *desk, struct gn_fabric *fabric, struct gn_ctx *ctx,
		  unsigned max_ends, uint32_t completions)
{
	const struct link_loop_opts opts = {
		.fabric = fabric,
		.ctx = ctx,
		.completions = completions,
		.tend_every = TEND_EVERY,
		.policy = {.spin_us = SPIN_US, .completions = true},
	};
	const int rc = link_loop_open(&desk->loop, &desk_ops, &opts);

	desk->max_ends = max_ends;
	link_timer_init(&desk->ud_reset, msg_ud_reset);
	desk->nap_ns = NAP_MIN_NS;
	desk->sums = !(desk->loop.attr.caps & GN_CAP_INORDER_WRITE);
	desk->ends = gn_alloc(max_ends * sizeof(struct msg_end *), 0);
	if (!rc && !desk->ends)
		return -ENOMEM;
	return rc;
}

void msg_desk_close(struct msg_desk *desk)
{
	for (unsigned i = 0; desk->ends && i < desk->max_ends; i++)
		if (desk->ends[i])
			msg_end_free(desk->ends[i]);
	link_conns_sweep_all(&desk->loop);
	msg_ud_close(desk);
	link_loop_close(&desk->loop);
	gn_free(desk->ends);
}

int msg_desk_number(const struct msg_desk *desk)
{
	for (unsigned i = 0; i < desk->max_ends; i++)
		if (!desk->ends[i])
			return (int)i;
	return gn_fail_text(-ENOSPC, "msg: max_conns are open");
}

int msg_desk_take_bytes(struct msg_desk *desk, uint64_t bytes)
{
	if (desk->max_bytes && bytes > desk->max_bytes - desk->bytes)
		return gn_fail_text(-ENOBUFS, "msg: max_memory is taken");
	desk->bytes += bytes;
	return 0;
}

void msg_desk_give_bytes(struct msg_desk *desk, uint64_t bytes)
{
	desk->bytes -= bytes;
}

void msg_desk_turn(struct msg_desk *desk, bool now)
{
	link_loop_poll(&desk->loop);
	msg_ud_tend(desk);
	if (now)
		link_loop_must_tend(&desk->loop);
	link_loop_tend(&desk->loop);
}

struct gn_source *msg_desk_source(struct msg_desk *desk)
{
	return &desk->loop.source;
}
