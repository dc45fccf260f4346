/* SPDX-License-Identifier: MIT */
/*
 * A session's timer: repeats, deadlines, requests for an association, checks of a silent peer, and
 * the end of the session when it is idle. The timer is a lower bound: answers do not move it.
 */
#include "base/deadline.h"
#include "dgram/endpoint.h"

void dgram_timer_no_later(struct gn_dgram_peer *peer, uint64_t ns)
{
	struct dgram_session *session = peer->session;

	if (ns < session->timer.due_ns)
		link_timer_set(&peer->ep->loop.timers, &session->timer, ns);
}

/* A loss: the window halves, once per round trip. */
static void timer_cut_window(struct gn_dgram_peer *peer)
{
	const uint64_t now_ns = peer->ep->now_ns;

	if (now_ns - peer->cut_ns <= peer->rtt.srtt_ns)
		return;
	peer->cut_ns = now_ns;
	peer->window_bytes = peer->window_bytes > 2 * DGRAM_WINDOW_MIN ? peer->window_bytes / 2 :
									 DGRAM_WINDOW_MIN;
}

static void call_repeat(struct gn_dgram_peer *peer, struct dgram_call *call, uint32_t slot)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const struct gn_dgram_op *op = call->op;
	const uint32_t bytes = op ? min_u32(op->request_len, dgram_payload_max(peer)) : 0;
	const struct dgram_msg msg = {
		.type = op ? DGRAM_REQUEST : DGRAM_CANCEL,
		.attempt = call->attempt < UINT8_MAX ? (uint8_t)(call->attempt + 1) : UINT8_MAX,
		.slot = (uint16_t)slot,
		.number = call->number,
		.code = op ? (uint16_t)op->method : 0,
		.bytes = (uint16_t)bytes,
		.total = op ? op->request_len : 0};
	uint8_t *payload;

	if (call->acked || call->result) {
		dgram_large_repeat(peer, slot);
		return;
	}
	payload = dgram_send_add(peer, &msg);
	if (!payload)
		return;
	if (bytes)
		__builtin_memcpy(payload, op->request, bytes);
	exec_charge(GN_WORK_COPY, bytes);
	call->attempt = msg.attempt;
	ep_count(ep, repeats);
}

/* The first CANCEL is no repeat: nothing was lost. */
static void call_timeout(struct gn_dgram_peer *peer, uint32_t slot)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_call *call = &peer->session->calls[slot];

	if (call->op || call->canceled)
		timer_cut_window(peer);
	call->canceled = !call->op;
	call_repeat(peer, call, slot);
	call->last_ns = ep->now_ns;
	call->rto_ns = (uint32_t)dgram_rto_doubled(call->rto_ns, DGRAM_RTO_MAX_NS);
	call->repeat_ns = ep->now_ns + call->rto_ns;
}

/* Repeats what is due and ends what is too late; returns the next due time. */
static uint64_t timer_calls(struct gn_dgram_peer *peer, uint64_t now_ns)
{
	struct dgram_session *session = peer->session;
	uint64_t due_ns = GN_FOREVER, used = session->used;

	for (; used; used &= used - 1) {
		const uint32_t slot = (uint32_t)__builtin_ctzll(used);
		struct dgram_call *call = &session->calls[slot];
		struct gn_dgram_op *op = call->op;

		if (op && deadline_given(op->deadline_ns) <= now_ns)
			dgram_call_abandon(op, GN_RPC_TIMEOUT);
		if (!(session->used >> slot & 1)) /* by a done function */
			continue;
		if (call->repeat_ns <= now_ns)
			call_timeout(peer, slot);
		due_ns = min_u64(due_ns, call->repeat_ns);
		if (call->op)
			due_ns = min_u64(due_ns, deadline_given(call->op->deadline_ns));
	}
	return due_ns;
}

/*
 * Answers bring credits; if none comes for a while, asks for them. Less and less often while the
 * peer is silent, as with repeats.
 */
static uint64_t timer_credits(struct gn_dgram_peer *peer, uint64_t now_ns)
{
	struct dgram_session *session = peer->session;

	if (peer->heard_ns >= session->asked_ns)
		session->ask_ns = DGRAM_RETRY_NS;
	if (now_ns >= session->asked_ns + session->ask_ns) {
		dgram_send_head(peer, DGRAM_ECHO);
		session->asked_ns = now_ns;
		session->ask_ns = min_u32(2 * session->ask_ns, DGRAM_RTO_MAX_NS);
	}
	return session->asked_ns + session->ask_ns;
}

static uint64_t timer_waiting(struct gn_dgram_peer *peer, uint64_t now_ns)
{
	struct dgram_session *session = peer->session;
	const uint32_t round = ++session->round;
	uint64_t due_ns = GN_FOREVER;

	/* Ops that a done function submits have set the timer themselves. */
	for (struct gn_dgram_op *op = session->waiting, *next; op && op->number != round;
	     op = next) {
		const uint64_t deadline_ns = deadline_given(op->deadline_ns);

		next = op->next;
		if (deadline_ns <= now_ns) {
			dgram_call_abandon(op, GN_RPC_TIMEOUT);
			next = session->waiting; /* a done function may have changed the list */
			due_ns = GN_FOREVER;
		} else {
			due_ns = min_u64(due_ns, deadline_ns);
		}
	}
	if (!session->n_waiting || !peer->assoc)
		return due_ns;
	if (peer->confirmed && peer->next_number == peer->granted)
		return min_u64(due_ns, timer_credits(peer, now_ns));
	return min_u64(due_ns, now_ns + DGRAM_RETRY_NS);
}

/* Calls wait for an association of a node that is gone, or that cannot be connected to. */
static void timer_unreachable(struct gn_dgram_peer *peer)
{
	struct dgram_session *session = peer->session;
	const uint32_t n_gone = __atomic_load_n(&peer->remote->n_gone, __ATOMIC_RELAXED);

	if (n_gone == session->n_gone && *peer->remote->addr)
		return;
	session->n_gone = n_gone;
	dgram_call_end_waiting(peer, GN_RPC_PEER_GONE);
}

/* Calls wait for an association, or a called peer is silent: asks the control thread. */
static uint64_t timer_association(struct gn_dgram_peer *peer, uint64_t now_ns)
{
	struct dgram_session *session = peer->session;
	const uint64_t check_ns = peer->ep->node->opts.check_us * 1000ull;
	uint64_t from_ns = peer->heard_ns;

	if (!peer->assoc) {
		timer_unreachable(peer);
		if (!session->n_waiting)
			return GN_FOREVER;
		if (now_ns >= session->want_ns) {
			session->want_ns = now_ns + DGRAM_RETRY_NS;
			dgram_peer_want(peer);
		}
		return session->n_waiting ? session->want_ns : GN_FOREVER;
	}
	if (!session->used && (peer->confirmed || !session->n_waiting))
		return GN_FOREVER;
	if (session->active_ns > from_ns)
		from_ns = session->active_ns;
	if (now_ns < from_ns + check_ns)
		return from_ns + check_ns;
	if (now_ns >= session->want_ns) {
		session->want_ns = now_ns + check_ns;
		__atomic_store_n(&peer->remote->check_epoch, peer->epoch, __ATOMIC_RELEASE);
		dgram_remote_want(peer->remote);
	}
	return session->want_ns;
}

/* Without calls for some time: says so, and gives up the session. */
static uint64_t timer_idle(struct gn_dgram_peer *peer, uint64_t now_ns)
{
	struct dgram_session *session = peer->session;

	if (peer->idle || !peer->assoc)
		return GN_FOREVER;
	if (now_ns < session->active_ns + DGRAM_IDLE_NS)
		return session->active_ns + DGRAM_IDLE_NS;
	if (session->idle_sent == DGRAM_IDLE_REPEATS) {
		peer->idle = true;
		return GN_FOREVER;
	}
	dgram_credit_return(peer);
	dgram_send_head(peer, DGRAM_IDLE | DGRAM_ECHO);
	session->idle_sent++;
	session->active_ns = now_ns;
	return now_ns + DGRAM_IDLE_NS;
}

void dgram_timer_fired(struct link_timer *timer, uint64_t now_ns)
{
	struct dgram_session *session = container_of(timer, struct dgram_session, timer);
	struct gn_dgram_peer *peer = session->peer;
	uint64_t due_ns = timer_calls(peer, now_ns);

	due_ns = min_u64(due_ns, timer_waiting(peer, now_ns));
	due_ns = min_u64(due_ns, timer_association(peer, now_ns));
	if (session->n_waiting)
		dgram_call_start(peer);
	if (!session->used && !session->n_waiting)
		due_ns = min_u64(due_ns, timer_idle(peer, now_ns));
	dgram_timer_no_later(peer, due_ns);
	if (peer->idle || !peer->assoc) {
		dgram_peer_rest(peer);
		dgram_peer_release(peer);
	}
}
