/* SPDX-License-Identifier: MIT */
/*
 * Requests by datagrams: answers come in any order or not at all, and what is not answered in time
 * is asked again, with the same number, so that it is executed once at most.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "msg/requester.h"

#define LOOKS_PER_REPEAT 4u /* how often, in the time after which something is asked again */
#define TRIPS		 16u
#define REPEAT_MIN_NS	 100000u
#define REPEAT_MAX_NS	 10000000u
#define TRIP_WEIGHT	 8u /* one part in so many is new */

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

/* How long an answer may take, before the first is there as long as it may ever. */
static uint64_t patience_ns(const struct gn_msg_requester *r)
{
	const uint64_t ns = TRIPS * r->trip_ns;

	if (r->opts.repeat_us)
		return r->opts.repeat_us * 1000ull;
	return !ns || ns > REPEAT_MAX_NS ? REPEAT_MAX_NS : ns < REPEAT_MIN_NS ? REPEAT_MIN_NS : ns;
}

int msg_requester_places(struct gn_msg_conn *c)
{
	const uint32_t n = c->end->pending;

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
	rc = msg_ud_say(c->end, at, said->number, len, false);
	if (unlikely(rc)) {
		msg_desk_turn(&r->desk, false);
		rc = c->end->fate != GN_MSG_OK ? -ENOTCONN :
						 msg_ud_say(c->end, at, said->number, len, false);
	}
	if (rc)
		return rc;
	fifo_take(c, &c->idle);
	now_ns = gn_now_ns();
	*asked = (struct msg_asked){
		.at_ns = now_ns,
		.due_ns = now_ns + patience_ns(r),
		.number = said->number++,
		.length = len,
		.under_way = true,
	};
	c->ids[at] = id;
	c->under_way++;
	c->end->awaited = c->under_way;
	r->under_way++;
	r->desk.stats.requests++;
	return 0;
}

/* What was asked twice may be answered twice, and does not tell how long that takes. */
static void learn(struct gn_msg_requester *r, const struct msg_asked *asked)
{
	const uint64_t trip_ns = gn_now_ns() - asked->at_ns;

	if (asked->tries)
		return;
	r->trip_ns = r->trip_ns ? (r->trip_ns * (TRIP_WEIGHT - 1) + trip_ns) / TRIP_WEIGHT :
				  trip_ns;
}

/* The bytes are copied: the receive is needed for the next datagram. */
void msg_requester_datagram(struct msg_end *end, const struct msg_datagram *head,
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
	learn(c->requester, asked);
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

/* ---- what is late ---- */

static void repeat(struct gn_msg_conn *c, uint32_t at, uint64_t now_ns)
{
	const struct gn_msg_requester_opts *o = &c->requester->opts;
	struct msg_asked *asked = &c->asked[at];

	if (asked->tries == o->repeats) {
		give_up(c, at);
		return;
	}
	/* Not before the last copy has left the device, nor without room: at the next look. */
	if (!msg_ud_writable(c->end, at) ||
	    msg_ud_say(c->end, at, asked->number, asked->length, true))
		return;
	asked->tries++;
	asked->due_ns = now_ns + (patience_ns(c->requester) << asked->tries);
	c->requester->desk.stats.repeats++;
}

void msg_requester_repeat(struct gn_msg_requester *r)
{
	const uint64_t now_ns = gn_now_ns();

	if (now_ns < r->due_ns)
		return;
	r->due_ns = now_ns + patience_ns(r) / LOOKS_PER_REPEAT;
	for (unsigned i = 0; i < r->desk.max_ends; i++) {
		struct gn_msg_conn *c = r->desk.ends[i] ? r->desk.ends[i]->owner : NULL;

		for (uint32_t at = 0; c && c->under_way && at < c->end->pending; at++)
			if (c->asked[at].under_way && c->asked[at].due_ns <= now_ns)
				repeat(c, at, now_ns);
	}
	msg_ud_flush(&r->desk);
}

int msg_requester_wait(struct gn_msg_requester *r, uint64_t deadline_ns)
{
	const uint64_t due_ns = deadline_due(r->due_ns);
	const uint64_t until_ns = due_ns < deadline_ns ? due_ns : deadline_ns;
	const int rc = msg_desk_wait(&r->desk, until_ns, "answers by datagram");

	return rc == -ETIMEDOUT && until_ns != deadline_ns ? 0 : rc;
}
