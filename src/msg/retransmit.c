/* SPDX-License-Identifier: MIT */
/*
 * Requests by UD. Answers arrive in any order or not at all. A request without an answer in time is
 * retransmitted with the same sequence number, so the responder executes it at most once.
 *
 * Each connection has its own timeout (dgram/rtt.h). A retransmission doubles the timeout of its
 * request and of the connection's next requests until an answer gives a new sample (Karn and
 * Partridge, SIGCOMM '87). So a peer that becomes slow is measured after some retransmissions,
 * however slow it is.
 *
 * Retransmissions alone never fail a request: the connection detects a disconnected peer, and a
 * live peer may answer late. A request fails only at its deadline.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "msg/requester.h"

#define TIMEOUT_FIRST_NS 10000000u   /* before the round trip time is known */
#define TIMEOUT_MIN_NS	 100000u     /* a thread of the peer may be descheduled */
#define TIMEOUT_MAX_NS	 2000000000u /* a request is retransmitted at least this often */
/* of the shortest timeout: precision of the retransmission timer */
#define CHECKS_PER_TIMEOUT 4u

static void fifo_put(const struct gn_msg_conn *c, struct msg_fifo *fifo, uint32_t slot)
{
	fifo->slots[(fifo->first + fifo->n++) % c->ep->pending] = (uint16_t)slot;
}

static uint32_t fifo_take(const struct gn_msg_conn *c, struct msg_fifo *fifo)
{
	const uint32_t slot = fifo->slots[fifo->first];

	fifo->first = (fifo->first + 1) % c->ep->pending;
	fifo->n--;
	return slot;
}

/* ---- timeouts ---- */

static uint64_t shortest_timeout_ns(const struct gn_msg_requester *r)
{
	return r->opts.repeat_us ? r->opts.repeat_us * 1000ull : TIMEOUT_MIN_NS;
}

/* A repeat_us above TIMEOUT_MAX_NS raises the upper bound too. */
static uint64_t longest_timeout_ns(const struct gn_msg_requester *r)
{
	const uint64_t min_ns = shortest_timeout_ns(r);

	return min_ns > TIMEOUT_MAX_NS ? min_ns : TIMEOUT_MAX_NS;
}

/*
 * The timeout is at least twice the round trip time. With a small variation the margin of RFC 6298
 * would be too small for a peer that shares its CPU.
 */
static void conn_sample(struct gn_msg_conn *c, uint64_t ns)
{
	const struct dgram_rto_bounds bounds = {.min_ns = shortest_timeout_ns(c->requester),
						.max_ns = longest_timeout_ns(c->requester),
						.var_divisor = 4};

	dgram_rtt_measured(&c->rtt, ns);
	c->timeout_ns = dgram_rto_ns(&c->rtt, bounds);
}

static void timer_set_no_later(struct gn_msg_requester *r, uint64_t ns)
{
	if (ns < r->repeat.due_ns)
		link_timer_set(&r->poller.loop.timers, &r->repeat, ns);
}

static void request_schedule(struct gn_msg_conn *c, struct msg_request *req, uint64_t now_ns)
{
	req->last_ns = now_ns;
	req->repeat_ns = now_ns + req->timeout_ns;
	if (req->repeat_ns > req->deadline_ns)
		req->repeat_ns = req->deadline_ns;
	timer_set_no_later(c->requester, req->repeat_ns);
}

/*
 * Requests sent together each double their own timeout. The connection's timeout is the longest of
 * these: it doubles once, not once per request.
 */
static void request_back_off(struct gn_msg_conn *c, struct msg_request *req)
{
	req->timeout_ns = dgram_rto_doubled(req->timeout_ns, longest_timeout_ns(c->requester));
	if (c->timeout_ns < req->timeout_ns)
		c->timeout_ns = req->timeout_ns;
}

/* ---- requests ---- */

int msg_requester_init_slots(struct gn_msg_conn *c)
{
	const struct gn_msg_requester *r = c->requester;
	const uint32_t n = c->ep->pending;

	c->timeout_ns = r->opts.repeat_us ? shortest_timeout_ns(r) : TIMEOUT_FIRST_NS;
	c->requests = gn_alloc(n * sizeof(*c->requests), 0);
	c->idle.slots = gn_alloc(n * sizeof(*c->idle.slots), 0);
	c->ready.slots = gn_alloc(n * sizeof(*c->ready.slots), 0);
	if (!c->requests || !c->idle.slots || !c->ready.slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		fifo_put(c, &c->idle, i);
	return 0;
}

int msg_requester_send(struct gn_msg_conn *c, const void *request, uint32_t len, uint64_t id)
{
	struct gn_msg_requester *r = c->requester;
	struct msg_ring *tx = &c->ep->tx;
	const uint32_t at = c->idle.slots[c->idle.first];
	struct msg_request *req = &c->requests[at];
	uint64_t now_ns;
	int rc;

	if (unlikely(!msg_ud_writable(c->ep, at)))
		msg_poller_poll(&r->poller, false); /* polls completions of earlier sends */
	if (unlikely(!msg_ud_writable(c->ep, at)))
		return c->ep->status != GN_MSG_OK ? -ENOTCONN : -EAGAIN;
	if (likely(len))
		memcpy(msg_slot(tx, at) + msg_frame_head(tx->frame), request, len);
	gn_charge(GN_WORK_COPY, len);
	rc = msg_ud_send(c->ep, at, tx->seq, len, 0, false);
	if (unlikely(rc)) {
		msg_poller_poll(&r->poller, false);
		rc = c->ep->status != GN_MSG_OK ? -ENOTCONN :
						  msg_ud_send(c->ep, at, tx->seq, len, 0, false);
	}
	if (rc)
		return rc;
	fifo_take(c, &c->idle);
	now_ns = gn_now_ns();
	*req = (struct msg_request){
		.first_ns = now_ns,
		.deadline_ns = now_ns + r->opts.request_timeout_us * 1000ull,
		.timeout_ns = c->timeout_ns,
		.seq = tx->seq++,
		.length = len,
		.in_flight = true,
	};
	request_schedule(c, req, now_ns);
	c->ids[at] = id;
	c->in_flight++;
	c->ep->n_expected = c->in_flight;
	r->in_flight++;
	r->poller.stats.requests++;
	return 0;
}

/* Copies the payload: the receive buffer is reposted. */
void msg_requester_datagram(struct msg_ep *ep, const struct msg_datagram *head, uint32_t attempt,
			    const uint8_t *data)
{
	struct gn_msg_conn *c = ep->owner;
	struct msg_request *req = &c->requests[head->slot];
	const uint32_t len = head->length & ~MSG_REFUSED;

	if (!req->in_flight || req->seq != head->seq || len > ep->rx.max) {
		ep->poller->stats.strays++;
		return;
	}
	req->in_flight = false;
	if (dgram_rtt_is_sample(attempt, req->repeats))
		conn_sample(c, gn_now_ns() - (attempt ? req->last_ns : req->first_ns));
	ep->rx.lengths[head->slot] = head->length;
	memcpy(msg_slot(&ep->rx, head->slot), data, len);
	gn_charge(GN_WORK_COPY, len);
	fifo_put(c, &c->ready, head->slot);
}

/* ---- results ---- */

static void request_expire(struct gn_msg_conn *c, uint32_t at)
{
	c->requests[at].in_flight = false;
	c->requests[at].lost = true;
	fifo_put(c, &c->ready, at);
}

unsigned msg_requester_take_datagrams(struct gn_msg_conn *c, struct gn_msg_result *out, unsigned n)
{
	const enum gn_msg_status ep_status = c->ep->status;
	unsigned got = 0;

	for (uint32_t i = 0; ep_status != GN_MSG_OK && i < c->ep->pending; i++)
		if (c->requests[i].in_flight)
			request_expire(c, i);
	while (got < n && c->ready.n) {
		const uint32_t at = fifo_take(c, &c->ready), length = c->ep->rx.lengths[at];
		enum gn_msg_status status = GN_MSG_OK;

		if (c->requests[at].lost)
			status = ep_status != GN_MSG_OK ? ep_status : GN_MSG_LOST;
		else if (length & MSG_REFUSED)
			status = GN_MSG_REFUSED;
		fifo_put(c, &c->idle, at);
		msg_requester_result(c, at, status, status == GN_MSG_OK ? length : 0,
				     status == GN_MSG_OK ? msg_slot(&c->ep->rx, at) : NULL,
				     &out[got++]);
	}
	return got;
}

/* ---- retransmission ---- */

static void request_retransmit(struct gn_msg_conn *c, uint32_t at, uint64_t now_ns)
{
	struct msg_request *req = &c->requests[at];

	if (req->deadline_ns <= now_ns) {
		request_expire(c, at);
		return;
	}
	/* The last transmission must have left the device, and the send queue needs space. */
	if (!msg_ud_writable(c->ep, at) ||
	    msg_ud_send(c->ep, at, req->seq, req->length, req->repeats + 1, true)) {
		timer_set_no_later(c->requester, now_ns);
		return;
	}
	req->repeats++;
	request_back_off(c, req);
	request_schedule(c, req, now_ns);
	c->requester->poller.stats.repeats++;
}

static void conn_retransmit(struct gn_msg_conn *c, uint64_t now_ns)
{
	for (uint32_t at = 0; c->in_flight && at < c->ep->pending; at++) {
		const struct msg_request *req = &c->requests[at];

		if (!req->in_flight)
			continue;
		if (req->repeat_ns <= now_ns)
			request_retransmit(c, at, now_ns);
		else
			timer_set_no_later(c->requester, req->repeat_ns);
	}
}

void msg_requester_retransmit(struct link_timer *timer, uint64_t now_ns)
{
	struct gn_msg_requester *r = container_of(timer, struct gn_msg_requester, repeat);
	uint64_t soonest_ns;

	for (unsigned i = 0; i < r->poller.max_eps; i++)
		if (r->poller.eps[i])
			conn_retransmit(r->poller.eps[i]->owner, now_ns);
	/* Requests sent one by one are due one by one: handle several per timer. */
	soonest_ns = now_ns + shortest_timeout_ns(r) / CHECKS_PER_TIMEOUT;
	if (timer->due_ns < soonest_ns)
		link_timer_set(&r->poller.loop.timers, timer, soonest_ns);
	msg_ud_flush(&r->poller);
}

int msg_requester_prepare_sleep(struct msg_poller *poller)
{
	const struct gn_msg_requester *r = container_of(poller, struct gn_msg_requester, poller);

	if (r->opts.protocol != GN_MSG_UD || !r->in_flight)
		return 0;
	for (unsigned i = 0; i < poller->max_eps; i++) {
		const struct gn_msg_conn *c = poller->eps[i] ? poller->eps[i]->owner : NULL;

		if (c && c->ready.n)
			return -EAGAIN;
	}
	return 0;
}
