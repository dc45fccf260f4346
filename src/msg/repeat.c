/* SPDX-License-Identifier: MIT */
/*
 * Requests by datagrams: answers come in any order or not at all, and a request that is not
 * answered in time is repeated with the same number, so that it is executed once at most.
 *
 * The time-out is the peer's: its round trip and the variation of it are estimated as TCP does
 * (RFC 6298). A repeat doubles the time-out of its request, and that of the peer's next requests
 * with it, until an answer gives a new estimate (Karn and Partridge, SIGCOMM '87). So a peer that
 * becomes slow is measured after some repeats, however slow it is.
 *
 * An answer says which copy of its request it answers, as TCP's timestamps do, and is a sample if
 * that is the first or the last copy. With unrepeated requests as the only samples, a time-out
 * that is doubled by each loss would grow without end where one datagram in six is lost.
 *
 * No number of repeats means that a request is lost: the peer is gone when its connection says
 * so, and a peer that lives may answer late. A request is given up at its deadline only.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "msg/requester.h"

#define TIMEOUT_FIRST_NS   10000000u   /* before the round trip was measured */
#define TIMEOUT_MIN_NS	   100000u     /* a thread of the peer may not run for a while */
#define TIMEOUT_MAX_NS	   2000000000u /* a peer that lives is asked at least so often */
#define CHECKS_PER_TIMEOUT 4u	       /* of the shortest: how exactly a time-out is kept */

static void fifo_put(const struct gn_msg_conn *c, struct msg_fifo *fifo, uint32_t place)
{
	fifo->places[(fifo->first + fifo->n++) % c->end->pending] = (uint16_t)place;
}

static uint32_t fifo_take(const struct gn_msg_conn *c, struct msg_fifo *fifo)
{
	const uint32_t place = fifo->places[fifo->first];

	fifo->first = (fifo->first + 1) % c->end->pending;
	fifo->n--;
	return place;
}

/* ---- time-outs ---- */

static uint64_t shortest_timeout_ns(const struct gn_msg_requester *r)
{
	return r->opts.repeat_us ? r->opts.repeat_us * 1000ull : TIMEOUT_MIN_NS;
}

/* The option is a lower bound, so it is also an upper one when it is beyond ours. */
static uint64_t bounded_timeout_ns(const struct gn_msg_requester *r, uint64_t ns)
{
	const uint64_t min_ns = shortest_timeout_ns(r);

	ns = ns < TIMEOUT_MAX_NS ? ns : TIMEOUT_MAX_NS;
	return ns > min_ns ? ns : min_ns;
}

/*
 * Twice the round trip at least: where the variation is small the margin would be, too, and a peer
 * that shares its processor with others is late now and then.
 */
static void rtt_sample(struct gn_msg_conn *c, uint64_t ns)
{
	struct msg_rtt *rtt = &c->rtt;
	const uint64_t was_ns = rtt->smoothed_ns;
	const uint64_t off_ns = was_ns > ns ? was_ns - ns : ns - was_ns;
	uint64_t margin_ns;

	rtt->variation_ns = was_ns ? (3 * rtt->variation_ns + off_ns) / 4 : ns / 2;
	rtt->smoothed_ns = was_ns ? (7 * was_ns + ns) / 8 : ns;
	margin_ns = 4 * rtt->variation_ns;
	if (margin_ns < rtt->smoothed_ns)
		margin_ns = rtt->smoothed_ns;
	rtt->timeout_ns = bounded_timeout_ns(c->requester, rtt->smoothed_ns + margin_ns);
}

static void due_at_latest(struct gn_msg_requester *r, uint64_t ns)
{
	if (ns < r->repeat.due_ns)
		link_timer_set(&r->desk.loop.timers, &r->repeat, ns);
}

static void schedule(struct gn_msg_conn *c, struct msg_asked *asked, uint64_t now_ns)
{
	asked->last_ns = now_ns;
	asked->repeat_ns = now_ns + asked->timeout_ns;
	if (asked->repeat_ns > asked->deadline_ns)
		asked->repeat_ns = asked->deadline_ns;
	due_at_latest(c->requester, asked->repeat_ns);
}

/*
 * Of several requests that were sent together each doubles its own time-out, and the peer's is the
 * longest of them: it is doubled once, not once for each.
 */
static void back_off(struct gn_msg_conn *c, struct msg_asked *asked)
{
	asked->timeout_ns = bounded_timeout_ns(c->requester, 2 * asked->timeout_ns);
	if (c->rtt.timeout_ns < asked->timeout_ns)
		c->rtt.timeout_ns = asked->timeout_ns;
}

/* ---- requests ---- */

int msg_requester_places(struct gn_msg_conn *c)
{
	const struct gn_msg_requester *r = c->requester;
	const uint32_t n = c->end->pending;

	c->rtt.timeout_ns =
		bounded_timeout_ns(r, r->opts.repeat_us ? 0 : (uint64_t)TIMEOUT_FIRST_NS);
	c->asked = gn_alloc(n * sizeof(*c->asked), 0);
	c->idle.places = gn_alloc(n * sizeof(*c->idle.places), 0);
	c->ready.places = gn_alloc(n * sizeof(*c->ready.places), 0);
	if (!c->asked || !c->idle.places || !c->ready.places)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		fifo_put(c, &c->idle, i);
	return 0;
}

int msg_requester_ask(struct gn_msg_conn *c, const void *request, uint32_t len, uint64_t id)
{
	struct gn_msg_requester *r = c->requester;
	struct msg_lane *said = &c->end->said;
	const uint32_t at = c->idle.places[c->idle.first];
	struct msg_asked *asked = &c->asked[at];
	uint64_t now_ns;
	int rc;

	if (unlikely(!msg_ud_writable(c->end, at)))
		msg_desk_turn(&r->desk, false); /* what is done may not have been looked at */
	if (unlikely(!msg_ud_writable(c->end, at)))
		return c->end->fate != GN_MSG_OK ? -ENOTCONN : -EAGAIN;
	if (likely(len))
		memcpy(msg_place(said, at) + msg_frame_head(said->frame), request, len);
	gn_charge(GN_WORK_COPY, len);
	rc = msg_ud_say(c->end, at, said->number, len, 0, false);
	if (unlikely(rc)) {
		msg_desk_turn(&r->desk, false);
		rc = c->end->fate != GN_MSG_OK ?
			     -ENOTCONN :
			     msg_ud_say(c->end, at, said->number, len, 0, false);
	}
	if (rc)
		return rc;
	fifo_take(c, &c->idle);
	now_ns = gn_now_ns();
	*asked = (struct msg_asked){
		.first_ns = now_ns,
		.deadline_ns = now_ns + r->opts.request_timeout_us * 1000ull,
		.timeout_ns = c->rtt.timeout_ns,
		.number = said->number++,
		.length = len,
		.under_way = true,
	};
	schedule(c, asked, now_ns);
	c->ids[at] = id;
	c->under_way++;
	c->end->awaited = c->under_way;
	r->under_way++;
	r->desk.stats.requests++;
	return 0;
}

/* The bytes are copied: the receive is needed for the next datagram. */
void msg_requester_datagram(struct msg_end *end, const struct msg_datagram *head, uint32_t copy,
			    const uint8_t *data)
{
	struct gn_msg_conn *c = end->owner;
	struct msg_asked *asked = &c->asked[head->place];
	const uint32_t len = head->length & ~MSG_REFUSED;

	if (!asked->under_way || asked->number != head->number || len > end->told.max) {
		end->desk->stats.strays++;
		return;
	}
	asked->under_way = false;
	if (copy == 0 || copy == asked->repeats)
		rtt_sample(c, gn_now_ns() - (copy ? asked->last_ns : asked->first_ns));
	end->told.lengths[head->place] = head->length;
	memcpy(msg_place(&end->told, head->place), data, len);
	gn_charge(GN_WORK_COPY, len);
	fifo_put(c, &c->ready, head->place);
}

/* ---- results ---- */

static void give_up(struct gn_msg_conn *c, uint32_t at)
{
	c->asked[at].under_way = false;
	c->asked[at].lost = true;
	fifo_put(c, &c->ready, at);
}

unsigned msg_requester_take(struct gn_msg_conn *c, struct gn_msg_result *out, unsigned n)
{
	const enum gn_msg_status fate = c->end->fate;
	unsigned got = 0;

	for (uint32_t i = 0; fate != GN_MSG_OK && i < c->end->pending; i++)
		if (c->asked[i].under_way)
			give_up(c, i);
	while (got < n && c->ready.n) {
		const uint32_t at = fifo_take(c, &c->ready), length = c->end->told.lengths[at];
		enum gn_msg_status status = GN_MSG_OK;

		if (c->asked[at].lost)
			status = fate != GN_MSG_OK ? fate : GN_MSG_LOST;
		else if (length & MSG_REFUSED)
			status = GN_MSG_REFUSED;
		fifo_put(c, &c->idle, at);
		msg_requester_result(c, at, status, status == GN_MSG_OK ? length : 0,
				     status == GN_MSG_OK ? msg_place(&c->end->told, at) : NULL,
				     &out[got++]);
	}
	return got;
}

/* ---- repeats ---- */

static void repeat(struct gn_msg_conn *c, uint32_t at, uint64_t now_ns)
{
	struct msg_asked *asked = &c->asked[at];

	if (asked->deadline_ns <= now_ns) {
		give_up(c, at);
		return;
	}
	/* Not before the last copy has left the device, nor without room: at the next check. */
	if (!msg_ud_writable(c->end, at) ||
	    msg_ud_say(c->end, at, asked->number, asked->length, asked->repeats + 1, true)) {
		due_at_latest(c->requester, now_ns);
		return;
	}
	asked->repeats++;
	back_off(c, asked);
	schedule(c, asked, now_ns);
	c->requester->desk.stats.repeats++;
}

static void repeat_conn(struct gn_msg_conn *c, uint64_t now_ns)
{
	for (uint32_t at = 0; c->under_way && at < c->end->pending; at++) {
		const struct msg_asked *asked = &c->asked[at];

		if (!asked->under_way)
			continue;
		if (asked->repeat_ns <= now_ns)
			repeat(c, at, now_ns);
		else
			due_at_latest(c->requester, asked->repeat_ns);
	}
}

void msg_requester_repeat(struct link_timer *timer, uint64_t now_ns)
{
	struct gn_msg_requester *r = container_of(timer, struct gn_msg_requester, repeat);
	uint64_t soonest_ns;

	for (unsigned i = 0; i < r->desk.max_ends; i++)
		if (r->desk.ends[i])
			repeat_conn(r->desk.ends[i]->owner, now_ns);
	/* Requests sent one after the other are due one after the other: check some at a time. */
	soonest_ns = now_ns + shortest_timeout_ns(r) / CHECKS_PER_TIMEOUT;
	if (timer->due_ns < soonest_ns)
		link_timer_set(&r->desk.loop.timers, timer, soonest_ns);
	msg_ud_flush(&r->desk);
}

int msg_requester_sleep(struct msg_desk *desk)
{
	const struct gn_msg_requester *r = container_of(desk, struct gn_msg_requester, desk);

	if (r->opts.protocol != GN_MSG_UD || !r->under_way)
		return 0;
	for (unsigned i = 0; i < desk->max_ends; i++) {
		const struct gn_msg_conn *c = desk->ends[i] ? desk->ends[i]->owner : NULL;

		if (c && c->ready.n)
			return -EAGAIN;
	}
	return 0;
}
