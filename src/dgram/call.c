/* SPDX-License-Identifier: MIT */
/*
 * Calls. An op waits on its peer's list until the peer has an association, a slot, a credit and
 * space in its window, and the endpoint has a receive for the answer. Then it has a slot until its
 * answer arrives. If the op ends earlier, the slot stays and sends CANCEL.
 */
#include <errno.h>
#include <string.h>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "dgram/endpoint.h"

#define RESULT_GUESS 64u

/* ---- the end of an op ---- */

void dgram_call_end(struct gn_dgram_op *op, unsigned status)
{
	struct gn_dgram_endpoint *ep = op->peer->ep;
	struct dgram_waiter *waiter = op->waiter;

	op->state = DGRAM_OP_ENDED;
	op->status = status;
	counter_sub(&ep->n_ops, 1);
	ep->events++;
	counter_add(&ep->stats.ended[status < GN_RPC_FAILED ? status : GN_RPC_FAILED], 1);
	if (waiter) {
		if (!--waiter->pending && waiter->worker)
			dgram_worker_wake(waiter->worker);
	} else if (op->done) {
		const bool nested = ep->in_handler;

		ep->in_handler = true;
		op->done(op);
		ep->in_handler = nested;
	}
}

/* ---- slots ---- */

/*
 * Receives for the answer. A large result is content with fewer than its window: it would wait for
 * so many at the same time while small calls take each one.
 */
static uint32_t call_recvs(const struct gn_dgram_peer *peer, const struct gn_dgram_op *op)
{
	const struct gn_dgram_endpoint *ep = peer->ep;
	const uint32_t free = ep->answers < ep->answers_max ? ep->answers_max - ep->answers : 1;

	if (likely(op->result_room <= dgram_payload_max(peer)))
		return 1;
	return min_u32(1 + DGRAM_PIECES_WINDOW, free);
}

void dgram_call_free(struct gn_dgram_peer *peer, uint32_t slot)
{
	struct dgram_session *session = peer->session;
	struct dgram_call *call = &session->calls[slot];

	if (unlikely(call->transfer || call->result))
		dgram_large_free_call(peer, call);
	peer->used_bytes -= call->cost_bytes;
	peer->ep->answers -= call->recvs;
	session->used &= ~(UINT64_C(1) << slot);
	call->op = NULL;
	if (session->used)
		return;
	if (!peer->ep->answers)
		dgram_send_early(peer);
	if (!session->n_waiting) {
		peer->done = peer->next_number;
		session->active_ns = peer->ep->now_ns;
	}
}

/* The window grows with answers; it shrinks if the round trip time is twice the shortest. */
static void window_answered(struct gn_dgram_peer *peer, uint32_t cost_bytes)
{
	const struct gn_dgram_endpoint *ep = peer->ep;
	const struct dgram_rtt *rtt = &peer->rtt;
	const uint32_t max = ep->node->opts.window_bytes;

	if (unlikely(rtt->srtt_ns > 2 * (uint64_t)rtt->min_ns + ep->node->opts.min_rto_us * 1000) &&
	    ep->now_ns - peer->cut_ns > rtt->srtt_ns) {
		peer->cut_ns = ep->now_ns;
		peer->window_bytes -= (peer->window_bytes - DGRAM_WINDOW_MIN) / 8;
	} else if (peer->window_bytes < max) {
		peer->window_bytes = min_u32(max, peer->window_bytes + cost_bytes / 4 + 1);
	}
}

static void call_sample(struct gn_dgram_peer *peer, const struct dgram_call *call, uint8_t attempt)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	uint64_t from_ns = attempt ? call->last_ns : call->first_ns;

	if (mutant("dgram-karn", MUTANT_ALWAYS))
		from_ns = call->last_ns;
	else if (!dgram_rtt_is_sample(attempt, call->attempt))
		return;
	dgram_rtt_sample(&peer->rtt, ep->now_ns - from_ns, ep->node->opts.min_rto_us * 1000);
	counter_set(&ep->stats.srtt_ns, peer->rtt.srtt_ns);
}

void dgram_call_finish(struct gn_dgram_peer *peer, uint32_t slot, unsigned status, uint32_t len)
{
	struct dgram_call *call = &peer->session->calls[slot];
	struct gn_dgram_op *op = call->op;
	const uint32_t expected = peer->result_bytes - peer->result_bytes / 16;

	peer->result_bytes = len > expected ? len : expected;
	window_answered(peer, call->cost_bytes);
	dgram_call_free(peer, slot);
	if (unlikely(!op)) {
		ep_count(peer->ep, late);
		return;
	}
	op->result_len = len;
	dgram_call_end(op, status);
}

void dgram_call_answer(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
		       const uint8_t *payload)
{
	struct dgram_session *session = peer->session;
	struct dgram_call *call;

	if (unlikely(!session || !(session->used >> msg->slot & 1) ||
		     session->calls[msg->slot].number != msg->number)) {
		ep_count(peer->ep, late);
		return;
	}
	call = &session->calls[msg->slot];
	if (unlikely(call->result)) /* a repeat of the first piece */
		return;
	if (likely(!call->transfer))
		call_sample(peer, call, msg->attempt);
	if (unlikely(!call->op)) {
		dgram_call_finish(peer, msg->slot, GN_RPC_CANCELED, 0);
	} else if (unlikely(msg->total > call->op->result_room)) {
		dgram_call_finish(peer, msg->slot, msg->code ? msg->code : GN_RPC_TOO_BIG, 0);
	} else if (unlikely(msg->bytes < msg->total)) {
		dgram_large_answer(peer, call, msg, payload);
	} else {
		if (msg->bytes)
			memcpy(call->op->result, payload, msg->bytes);
		exec_charge(GN_WORK_COPY, msg->bytes);
		dgram_call_finish(peer, msg->slot, msg->code, msg->bytes);
	}
}

/* ---- start ---- */

void dgram_call_blocked(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;

	if (peer->blocked)
		return;
	peer->blocked = true;
	peer->next_blocked = NULL;
	*ep->blocked_tail = peer;
	ep->blocked_tail = &peer->next_blocked;
}

static uint32_t call_cost(const struct gn_dgram_peer *peer, const struct gn_dgram_op *op)
{
	const uint32_t result = peer->result_bytes ? peer->result_bytes : RESULT_GUESS;

	return min_u32(op->request_len, peer->max_bytes) +
	       min_u32(min_u32(op->result_room, result), peer->max_bytes) +
	       2 * (uint32_t)(sizeof(struct dgram_head) + sizeof(struct dgram_msg));
}

/* Sends the first datagram of the op in a free slot; false: no buffer. */
static bool call_send(struct gn_dgram_peer *peer, struct gn_dgram_op *op, uint32_t slot)
{
	const uint32_t bytes = min_u32(op->request_len, dgram_payload_max(peer));
	const struct dgram_msg msg = {.type = DGRAM_REQUEST,
				      .slot = (uint16_t)slot,
				      .number = peer->next_number,
				      .code = (uint16_t)op->method,
				      .bytes = (uint16_t)bytes,
				      .total = op->request_len};
	uint8_t *payload = dgram_send_add(peer, &msg);

	if (unlikely(!payload))
		return false;
	if (bytes)
		memcpy(payload, op->request, bytes);
	exec_charge(GN_WORK_COPY, bytes);
	return true;
}

static bool call_start_one(struct gn_dgram_peer *peer, struct gn_dgram_op *op)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_session *session = peer->session;
	const uint32_t slot = (uint32_t)__builtin_ctzll(~session->used);
	const uint32_t recvs = call_recvs(peer, op), cost = call_cost(peer, op);
	struct dgram_call *call = &session->calls[slot];

	if (unlikely(peer->used_bytes && peer->used_bytes + cost > peer->window_bytes))
		return false;
	if (unlikely(ep->short_of_recvs && ep->short_of_recvs != peer)) { /* it was first */
		dgram_call_blocked(peer);
		return false;
	}
	if (unlikely(ep->answers && ep->answers + recvs > ep->answers_max) &&
	    !mutant("dgram-answers", MUTANT_ALWAYS)) {
		ep->short_of_recvs = peer;
		dgram_call_blocked(peer);
		return false;
	}
	if (unlikely(!call_send(peer, op, slot))) {
		dgram_call_blocked(peer);
		return false;
	}
	*call = (struct dgram_call){.op = op,
				    .number = peer->next_number++,
				    .cost_bytes = cost,
				    .recvs = recvs,
				    .rto_ns = peer->rtt.rto_ns,
				    .first_ns = ep->now_ns,
				    .last_ns = ep->now_ns,
				    .repeat_ns = ep->now_ns + peer->rtt.rto_ns};
	session->used |= UINT64_C(1) << slot;
	session->idle_sent = 0;
	peer->idle = false;
	peer->used_bytes += cost;
	ep->answers += recvs;
	op->slot = (uint16_t)slot;
	op->number = call->number;
	op->state = DGRAM_OP_SENT;
	if (unlikely(op->request_len > dgram_payload_max(peer)) && dgram_large_begin(peer, call))
		op->deadline_ns = GN_NO_WAIT; /* no memory: the timer cancels the call */
	if (unlikely(call->repeat_ns < session->timer.due_ns))
		dgram_timer_no_later(peer, call->repeat_ns);
	return true;
}

void dgram_call_start(struct gn_dgram_peer *peer)
{
	struct dgram_session *session = peer->session;

	if (unlikely(!peer->confirmed && peer->assoc))
		peer->confirmed = __atomic_load_n(&peer->assoc->confirmed, __ATOMIC_RELAXED);
	while (session->n_waiting && peer->confirmed && !peer->assoc_ending && ~session->used &&
	       dgram_before(peer->next_number, peer->granted)) {
		struct gn_dgram_op *op = session->waiting;

		if (!call_start_one(peer, op))
			return;
		session->waiting = op->next;
		if (!session->waiting)
			session->waiting_tail = &session->waiting;
		session->n_waiting--;
	}
}

void dgram_call_start_blocked(struct gn_dgram_endpoint *ep)
{
	struct gn_dgram_peer *peer = ep->blocked;

	ep->blocked = NULL;
	ep->blocked_tail = &ep->blocked;
	while (peer) {
		struct gn_dgram_peer *next = peer->next_blocked;

		peer->blocked = false;
		if (ep->short_of_recvs == peer)
			ep->short_of_recvs = NULL;
		if (peer->session && peer->session->pieces_wait)
			dgram_large_resume(peer);
		if (peer->session)
			dgram_call_start(peer);
		dgram_peer_release(peer);
		peer = next;
	}
}

static int __attribute__((cold)) call_invalid(const struct gn_dgram_op *op)
{
	if (!op || !op->peer)
		return gn_fail_text(-EINVAL,
				    op ? "dgram: the op's peer is NULL" : "dgram: the op is NULL");
	if (op->method >= GN_DGRAM_METHODS_MAX)
		return gn_fail(-EINVAL, "dgram: method %u is not below GN_DGRAM_METHODS_MAX (%u)",
			       op->method, GN_DGRAM_METHODS_MAX);
	if (op->request_len > GN_DGRAM_BYTES_MAX)
		return gn_fail(-EMSGSIZE,
			       "dgram: a request of %u bytes exceeds GN_DGRAM_BYTES_MAX (%u)",
			       op->request_len, GN_DGRAM_BYTES_MAX);
	if (!op->request && op->request_len)
		return gn_fail(-EINVAL, "dgram: the op's request is NULL, and request_len is %u",
			       op->request_len);
	return gn_fail(-EINVAL, "dgram: the op's result is NULL, and result_room is %u",
		       op->result_room);
}

static int call_check(const struct gn_dgram_op *op)
{
	if (unlikely(!op || !op->peer || (!op->request && op->request_len) ||
		     (!op->result && op->result_room) || op->method >= GN_DGRAM_METHODS_MAX ||
		     op->request_len > GN_DGRAM_BYTES_MAX))
		return call_invalid(op);
	return dgram_ep_check(op->peer->ep, "gn_dgram_submit()");
}

int dgram_call_submit(struct gn_dgram_op *op)
{
	struct gn_dgram_peer *peer;
	struct dgram_session *session;
	int rc = call_check(op);

	if (unlikely(rc))
		return rc;
	peer = op->peer;
	if (!peer->ep->current && !peer->ep->in_handler)
		dgram_ep_refresh(peer->ep); /* the last poll may have been long ago */
	if (unlikely(dgram_peer_session(peer)))
		return gn_fail_text(-ENOMEM, "dgram: " NO_MEMORY);
	session = peer->session;
	op->state = DGRAM_OP_WAITING;
	op->status = GN_RPC_CANCELED;
	op->number = session->round;
	op->result_len = 0;
	op->next = NULL;
	*session->waiting_tail = op;
	session->waiting_tail = &op->next;
	session->n_waiting++;
	counter_add(&peer->ep->n_ops, 1);
	ep_count(peer->ep, calls);
	if (unlikely(!peer->assoc) && session->n_waiting == 1)
		session->n_gone = __atomic_load_n(&peer->remote->n_gone, __ATOMIC_RELAXED);
	if (likely(session->n_waiting == 1))
		dgram_call_start(peer);
	if (op->deadline_ns && op->deadline_ns < session->timer.due_ns)
		dgram_timer_no_later(peer, op->deadline_ns);
	if (unlikely(op->state == DGRAM_OP_WAITING)) {
		ep_count(peer->ep, credit_waits);
		dgram_timer_no_later(peer, peer->ep->now_ns + (peer->assoc ? peer->rtt.rto_ns : 0));
	}
	return 0;
}

/* ---- other ends ---- */

static void waiting_remove(struct gn_dgram_op *op)
{
	struct dgram_session *session = op->peer->session;
	struct gn_dgram_op **at = &session->waiting;

	while (*at != op)
		at = &(*at)->next;
	*at = op->next;
	if (!op->next)
		session->waiting_tail = at;
	session->n_waiting--;
}

/* Ends an op before its answer: its slot, if it has one, cancels the call at the peer. */
void dgram_call_abandon(struct gn_dgram_op *op, unsigned status)
{
	struct gn_dgram_peer *peer = op->peer;

	if (op->state == DGRAM_OP_WAITING) {
		waiting_remove(op);
	} else {
		struct dgram_call *call = &peer->session->calls[op->slot];

		if (call->transfer || call->result)
			dgram_large_free_call(peer, call);
		call->op = NULL;
		call->repeat_ns = peer->ep->now_ns;
		dgram_timer_no_later(peer, call->repeat_ns);
	}
	dgram_call_end(op, status);
}

/* A done function may cancel ops of the list, and submit others: those of this round stay. */
static void waiting_end(struct dgram_session *session, unsigned status)
{
	const uint32_t round = session->round;

	while (session->waiting && session->waiting->number != round) {
		struct gn_dgram_op *op = session->waiting;

		waiting_remove(op);
		dgram_call_end(op, status);
	}
}

void dgram_call_end_waiting(struct gn_dgram_peer *peer, unsigned status)
{
	peer->session->round++;
	waiting_end(peer->session, status);
}

void dgram_call_end_all(struct gn_dgram_peer *peer, unsigned status)
{
	struct dgram_session *session = peer->session;
	uint64_t used = session->used;

	session->round++;
	/* Calls that a done function submits meanwhile wait for the next association. */
	peer->assoc_ending = true;
	for (; used; used &= used - 1) {
		const uint32_t slot = (uint32_t)__builtin_ctzll(used);
		struct gn_dgram_op *op = session->calls[slot].op;

		dgram_call_free(peer, slot);
		if (op)
			dgram_call_end(op, status);
	}
	/* Without a confirmed association they were never sent: they wait for the next one. */
	if (peer->confirmed || status != GN_RPC_PEER_GONE)
		waiting_end(session, status);
	peer->assoc_ending = false;
}

/* The private members of an op that was never used may have any value: so this looks there. */
bool dgram_call_is_under_way(const struct gn_dgram_op *op)
{
	const struct dgram_session *session = op && op->peer ? op->peer->session : NULL;

	if (likely(op && op->state != DGRAM_OP_WAITING && op->state != DGRAM_OP_SENT) || !session)
		return false;
	if (op->state == DGRAM_OP_SENT)
		return op->slot < GN_DGRAM_SLOTS && session->used >> op->slot & 1 &&
		       session->calls[op->slot].op == op;
	for (const struct gn_dgram_op *at = session->waiting; at; at = at->next)
		if (at == op)
			return true;
	return false;
}

int gn_dgram_submit(struct gn_dgram_op *op)
{
	if (unlikely(dgram_call_is_under_way(op)))
		return gn_fail_text(-EBUSY, "gn_dgram_submit(): the op is under way");
	if (likely(op)) {
		op->status = GN_RPC_CANCELED; /* unless it is started */
		op->waiter = NULL;
	}
	if (unlikely(op && op->peer && op->peer->ep->n_ops >= op->peer->ep->node->opts.calls))
		return gn_fail_text(-EAGAIN, "gn_dgram_submit(): opts.calls calls are outstanding");
	return dgram_call_submit(op);
}

int gn_dgram_cancel(struct gn_dgram_op *op)
{
	int rc;

	if (!op || !op->peer)
		return gn_fail_text(-EINVAL, "gn_dgram_cancel(): op or its peer is NULL");
	rc = dgram_ep_check(op->peer->ep, "gn_dgram_cancel()");
	if (rc)
		return rc;
	if (!dgram_call_is_under_way(op))
		return gn_fail_text(-ESRCH, "gn_dgram_cancel(): the call has ended");
	dgram_call_abandon(op, GN_RPC_CANCELED);
	return 0;
}
