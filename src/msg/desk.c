/* SPDX-License-Identifier: MIT */
/* A thread's desk: where completions and events of its connections come in, and how it waits. */
#include <errno.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "msg/end.h"

#define POLL	    32u
#define POLLS	    8u	 /* of a turn: datagrams are answered there, and who asks may never end */
#define CHAN_EVERY  256u /* turns: to look at the channel costs a system call */
#define EAGER_US    20u	 /* of waiting for messages and nothing else */
#define TORN_NAP_US 1u	 /* the rest of a message is on its way, and its first word says nothing */
#define MANY_NAP_US 50u	 /* with more connections than a wait has room for */
#define PROBE_NS    100000000u /* of silence */
#define EVENTS	    512u       /* of a turn */
#define REQUESTS    64u	       /* to connect, of a turn */
#define WORDS	    (GN_WAIT_MAX - 2)

int msg_desk_open(struct msg_desk *desk, struct gn_fabric *fabric, struct gn_ctx *ctx,
		  unsigned max_ends, uint32_t completions)
{
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = completions};
	int rc;

	desk->attr.size = sizeof(desk->attr);
	rc = gn_fabric_query(fabric, &desk->attr);
	desk->fabric = fabric;
	desk->ctx = ctx;
	desk->max_ends = max_ends;
	if (rc)
		return rc;
	desk->sums = !(desk->attr.caps & GN_CAP_INORDER_WRITE);
	if (cq.depth > desk->attr.max_cqe)
		cq.depth = desk->attr.max_cqe;
	desk->cq_room = cq.depth;
	desk->ends = gn_alloc(max_ends * sizeof(struct msg_end *), 0);
	if (!desk->ends)
		return -ENOMEM;
	if (!ctx) {
		rc = gn_ctx_create(fabric, &desk->ctx);
		desk->own_ctx = !rc;
	}
	if (!rc)
		rc = gn_chan_create(desk->ctx, &desk->chan);
	cq.chan = desk->chan;
	if (!rc)
		rc = gn_cq_create(desk->ctx, &cq, &desk->cq);
	return rc;
}

void msg_desk_close(struct msg_desk *desk)
{
	for (unsigned i = 0; desk->ends && i < desk->max_ends; i++)
		if (desk->ends[i])
			msg_end_free(desk->ends[i]);
	msg_desk_sweep_all(desk);
	msg_ud_close(desk);
	gn_cq_destroy(desk->cq);
	gn_chan_destroy(desk->chan);
	if (desk->own_ctx)
		gn_ctx_destroy(desk->ctx);
	gn_free(desk->ends);
}

int msg_desk_number(const struct msg_desk *desk)
{
	for (unsigned i = 0; i < desk->max_ends; i++)
		if (!desk->ends[i])
			return (int)i;
	return -ENOSPC;
}

int msg_desk_take_bytes(struct msg_desk *desk, uint64_t bytes)
{
	if (desk->max_bytes && bytes > desk->max_bytes - desk->bytes)
		return -ENOBUFS;
	desk->bytes += bytes;
	return 0;
}

void msg_desk_give_bytes(struct msg_desk *desk, uint64_t bytes)
{
	desk->bytes -= bytes;
}

/* ---- a turn ---- */

static void take_event(const struct gn_event *event)
{
	struct msg_end *end = event->qp ? gn_qp_user(event->qp) : NULL;

	switch (event->type) {
	case GN_EVENT_ESTABLISHED:
		if (end)
			end->established = true;
		break;
	case GN_EVENT_UNREACHABLE:
	case GN_EVENT_REJECTED:
	case GN_EVENT_DISCONNECTED:
		if (end)
			msg_end_fail(end, GN_MSG_GONE);
		break;
	default:
		break;
	}
}

/*
 * Requests to connect come last: the place of a peer whose disconnect is in the channel is free
 * for them.
 */
static void take_events(struct msg_desk *desk)
{
	struct gn_event event, requests[REQUESTS];
	unsigned n = 0;

	for (unsigned i = 0; i < EVENTS && n < REQUESTS && !gn_chan_next(desk->chan, &event); i++) {
		if (event.type != GN_EVENT_CONNECT_REQUEST)
			take_event(&event);
		else if (desk->request)
			requests[n++] = event;
		else
			gn_reject(event.req, NULL, 0);
	}
	for (unsigned i = 0; i < n; i++)
		desk->request(desk, &requests[i]);
}

static void all_fail(struct msg_desk *desk)
{
	for (unsigned i = 0; i < desk->max_ends; i++)
		if (desk->ends[i])
			msg_end_fail(desk->ends[i], GN_MSG_GONE);
}

/*
 * Who crashed says nothing. Whoever has been silent for a while, and is waited for, is asked by a
 * WRITE of nothing whether it is there: if not, that fails.
 */
static void probe(struct msg_desk *desk)
{
	const uint64_t now_ns = gn_now_ns();
	const bool first = !desk->probe_ns;

	if (now_ns < desk->probe_ns)
		return;
	desk->probe_ns = now_ns + PROBE_NS;
	for (unsigned i = 0; i < desk->max_ends; i++) {
		struct msg_end *end = desk->ends[i];

		if (!end)
			continue;
		if (!first && end->awaited && end->probed == end->told.number)
			msg_end_probe(end);
		end->probed = end->told.number;
	}
}

void msg_desk_turn(struct msg_desk *desk, bool now)
{
	struct gn_wc wc[POLL];
	int n = (int)POLL;

	desk->torn = false;
	for (unsigned polls = 0; polls < POLLS && n == (int)POLL; polls++) {
		n = gn_cq_poll(desk->cq, wc, POLL);
		for (int i = 0; i < n; i++) {
			struct msg_end *end = gn_qp_user(wc[i].qp);

			if (likely(end))
				msg_end_completed(end, &wc[i]);
			else
				msg_ud_completed(desk, &wc[i]);
		}
	}
	if (unlikely(n < 0))
		all_fail(desk);
	msg_ud_tend(desk);
	if (!now && ++desk->turns < CHAN_EVERY)
		return;
	desk->turns = 0;
	take_events(desk);
	if (unlikely(desk->torn_down))
		msg_desk_sweep(desk);
	probe(desk);
}

/* ---- nothing to do ---- */

/* Memory that peers may write. False: not all of it can be waited for. */
static bool gather_words(const struct msg_desk *desk, struct gn_wait_item *items, unsigned *n,
			 bool *begun)
{
	for (unsigned i = 0; i < desk->max_ends; i++) {
		const struct msg_end *end = desk->ends[i];
		const uint64_t *word = end && end->awaited ? msg_end_word(end) : NULL;
		uint64_t seen;

		if (!word)
			continue;
		if (*n == WORDS)
			return false;
		seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		*begun |= msg_frame_begun(end->told.frame, seen, end->told.number);
		items[(*n)++] = gn_wait_word(word, seen);
	}
	return true;
}

static uint64_t sooner(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

/* To look at the channel costs a system call, so it is left out at first. */
int msg_desk_wait(struct msg_desk *desk, uint64_t deadline_ns, const char *reason)
{
	struct gn_wait_item items[GN_WAIT_MAX];
	unsigned n = 0;
	bool begun = false;
	const bool all = gather_words(desk, items, &n, &begun);
	uint64_t until_ns;
	int rc;

	/* It came after the last look, mostly all of it; or there is no room for its answer yet. */
	if (begun && !desk->torn)
		return gn_now_ns() < deadline_ns ? 0 : -ETIMEDOUT;
	items[n++] = gn_wait_on(gn_cq_source(desk->cq));
	until_ns = gn_deadline_us(begun ? TORN_NAP_US : EAGER_US);
	rc = gn_wait(items, n, sooner(deadline_ns, until_ns), reason);
	if (rc != -ETIMEDOUT)
		return rc;
	if (begun)
		return gn_now_ns() < deadline_ns ? 0 : rc;
	desk->turns = CHAN_EVERY;
	items[n++] = gn_wait_on(gn_chan_source(desk->chan));
	until_ns = all ? GN_FOREVER : gn_deadline_us(MANY_NAP_US);
	if (desk->n_ends)
		until_ns = sooner(until_ns, deadline_due(desk->probe_ns));
	if (desk->torn_down)
		until_ns = sooner(until_ns, gn_deadline_us(MSG_SWEEP_US));
	until_ns = sooner(until_ns, deadline_due(msg_ud_reset_ns(desk)));
	rc = gn_wait(items, n, sooner(deadline_ns, until_ns), reason);
	return rc == -ETIMEDOUT && gn_now_ns() < deadline_ns ? 0 : rc;
}
