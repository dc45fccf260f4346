/* SPDX-License-Identifier: MIT */
/*
 * Messages longer than a datagram. The first piece travels as REQUEST or ANSWER. The receiver
 * acknowledges selectively, with a bitmap, and says how many pieces may be sent: for these it has
 * set receives aside. All timers are the caller's: it repeats missing pieces of its request, or its
 * acknowledgement of the answer, which makes the other side repeat missing pieces.
 */
#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "dgram/endpoint.h"

#define MAP_WORDS (DGRAM_PIECES_MAX / 64)

static bool map_has(const uint64_t *map, uint32_t i)
{
	return map[i / 64] >> (i % 64) & 1;
}

static void map_set(uint64_t *map, uint32_t i)
{
	map[i / 64] |= UINT64_C(1) << (i % 64);
}

static uint32_t map_first_missing(const uint64_t *map, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && map_has(map, i))
		i++;
	return i;
}

static uint32_t pieces_of(uint32_t bytes, uint32_t piece)
{
	return (bytes + piece - 1) / piece;
}

/* ---- sending ---- */

static struct dgram_transfer *transfer_create(const struct gn_dgram_peer *peer, const void *data,
					      uint32_t bytes)
{
	struct dgram_transfer *transfer = gn_alloc(sizeof(*transfer), 0);

	if (!transfer)
		return NULL;
	transfer->data = data;
	transfer->bytes = bytes;
	transfer->piece = dgram_payload_max(peer);
	transfer->pieces = pieces_of(bytes, transfer->piece);
	transfer->granted = transfer->next = 1;
	return transfer;
}

int dgram_large_begin(struct gn_dgram_peer *peer, struct dgram_call *call)
{
	call->transfer = transfer_create(peer, call->op->request, call->op->request_len);
	return call->transfer ? 0 : -ENOMEM;
}

int dgram_large_answer_begin(struct gn_dgram_peer *peer, struct dgram_slot *slot)
{
	slot->transfer = transfer_create(peer, slot->data, slot->len);
	return slot->transfer ? 0 : -ENOMEM;
}

static bool send_piece(struct gn_dgram_peer *peer, const struct dgram_transfer *transfer,
		       uint32_t i, uint32_t slot, uint32_t number, enum dgram_of of)
{
	const uint32_t offset = i * transfer->piece;
	const uint32_t bytes = min_u32(transfer->piece, transfer->bytes - offset);
	const struct dgram_msg msg = {.type = DGRAM_PIECE,
				      .slot = (uint16_t)slot,
				      .number = number,
				      .code = (uint16_t)of,
				      .bytes = (uint16_t)bytes,
				      .total = offset};
	uint8_t *payload = dgram_send_add(peer, &msg);

	if (!payload)
		return false;
	memcpy(payload, transfer->data + offset, bytes);
	gn_charge(GN_WORK_COPY, bytes);
	ep_count(peer->ep, pieces);
	return true;
}

static void send_next_pieces(struct gn_dgram_peer *peer, struct dgram_transfer *transfer,
			     uint32_t slot, uint32_t number, enum dgram_of of)
{
	while (transfer->next < transfer->granted) {
		if (!send_piece(peer, transfer, transfer->next, slot, number, of)) {
			/* No send buffer: goes on before anything else takes the next one. */
			peer->session->pieces_wait = true;
			dgram_call_blocked(peer);
			return;
		}
		transfer->next++;
	}
}

/* Repeats pieces that have not arrived, or the last one sent if all have. */
static void send_missing_pieces(struct gn_dgram_peer *peer, struct dgram_transfer *transfer,
				uint32_t slot, uint32_t number, enum dgram_of of)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < transfer->next && n < DGRAM_PIECES_WINDOW; i++)
		if (!map_has(transfer->map, i) && send_piece(peer, transfer, i, slot, number, of))
			n++;
	if (!n && of == DGRAM_OF_REQUEST)
		n += send_piece(peer, transfer, transfer->next - 1, slot, number, of);
	counter_add(&peer->ep->stats.pieces_repeated, n);
}

static void transfer_acked(struct dgram_transfer *transfer, const struct dgram_msg *msg,
			   const uint8_t *payload)
{
	const uint32_t bytes = min_u32(msg->bytes, (uint32_t)sizeof(transfer->map));
	uint64_t map[MAP_WORDS] = {0};

	memcpy(map, payload, bytes);
	for (uint32_t i = 0; i < MAP_WORDS; i++)
		transfer->map[i] |= map[i];
	if (msg->total > transfer->granted)
		transfer->granted = min_u32(msg->total, transfer->pieces);
}

/* ---- receiving ---- */

static struct dgram_reassembly *reassembly_create(const struct dgram_msg *msg, uint8_t *data,
						  const uint8_t *payload)
{
	struct dgram_reassembly *r;

	if (!msg->bytes || pieces_of(msg->total, msg->bytes) > DGRAM_PIECES_MAX)
		return NULL;
	r = gn_alloc(sizeof(*r), 0);
	if (!r)
		return NULL;
	r->data = data;
	r->bytes = msg->total;
	r->piece = msg->bytes;
	r->pieces = pieces_of(msg->total, msg->bytes);
	r->arrived = r->granted = 1;
	r->status = msg->code;
	map_set(r->map, 0);
	memcpy(data, payload, msg->bytes);
	gn_charge(GN_WORK_COPY, msg->bytes);
	return r;
}

/* Takes a piece; false: it is impossible, or not new. */
static bool reassembly_piece(struct gn_dgram_peer *peer, struct dgram_reassembly *r,
			     const struct dgram_msg *msg, const uint8_t *payload)
{
	const uint32_t i = msg->total / r->piece;

	if (msg->total % r->piece || i >= r->pieces ||
	    msg->bytes != min_u32(r->piece, r->bytes - msg->total)) {
		ep_count(peer->ep, malformed);
		return false;
	}
	if (i >= r->granted) {
		ep_count(peer->ep, over_credit);
		return false;
	}
	if (map_has(r->map, i)) {
		ep_count(peer->ep, duplicates);
		return false;
	}
	map_set(r->map, i);
	r->arrived++;
	memcpy(r->data + msg->total, payload, msg->bytes);
	gn_charge(GN_WORK_COPY, msg->bytes);
	return true;
}

static void send_ack(struct gn_dgram_peer *peer, struct dgram_reassembly *r, uint32_t slot,
		     uint32_t number, enum dgram_of of, bool again)
{
	const uint32_t window = r->reserved_recvs ? r->reserved_recvs : 1;
	const uint32_t limit = min_u32(r->pieces, map_first_missing(r->map, r->pieces) + window);
	const uint32_t bytes = (r->pieces + 63) / 64 * 8;
	struct dgram_msg msg = {.type = DGRAM_ACK,
				.attempt = again,
				.slot = (uint16_t)slot,
				.number = number,
				.code = (uint16_t)of,
				.bytes = (uint16_t)min_u32(bytes, dgram_payload_max(peer) & ~7u)};
	uint8_t *payload;

	if (limit > r->granted)
		r->granted = limit;
	msg.total = r->granted;
	payload = dgram_send_add(peer, &msg);
	if (payload)
		memcpy(payload, r->map, msg.bytes);
}

/* Half of the granted pieces have arrived: grant more. */
static bool ack_is_due(const struct dgram_reassembly *r)
{
	const uint32_t window = r->reserved_recvs ? r->reserved_recvs : 1;

	return r->granted < r->pieces &&
	       map_first_missing(r->map, r->pieces) + window >= r->granted + (window + 1) / 2;
}

/* ---- requests, at the executing side ---- */

static void request_release(struct gn_dgram_peer *peer, struct dgram_slot *slot)
{
	struct dgram_reassembly *r = slot->request;

	counter_sub(&peer->ep->grants, r->reserved_recvs);
	counter_sub(&peer->ep->reassembly_bytes, r->bytes);
	peer->session->reassembly_bytes -= r->bytes;
	slot->assembling = false;
	slot->request = NULL;
	gn_free(r->data);
	gn_free(r);
}

void dgram_large_free_slot(struct gn_dgram_peer *peer, struct dgram_slot *slot)
{
	gn_free(slot->transfer);
	slot->transfer = NULL;
	if (slot->assembling) {
		request_release(peer, slot);
		slot->state = DGRAM_SLOT_IDLE;
	}
}

void dgram_large_request(struct gn_dgram_peer *peer, struct dgram_slot *slot,
			 const struct dgram_msg *msg, const uint8_t *payload)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const struct gn_dgram_opts *opts = &ep->node->opts;
	const bool allowed = peer->session->reassembly_bytes + msg->total <= opts->max_peer_bytes &&
			     ep->reassembly_bytes + msg->total <= opts->max_bytes;
	uint8_t *data = allowed ? gn_alloc(msg->total, 0) : NULL;
	struct dgram_reassembly *r = data ? reassembly_create(msg, data, payload) : NULL;

	if (!r) {
		gn_free(data);
		ep_count(ep, over_limit);
		dgram_serve_busy(peer, slot, msg->slot);
		return;
	}
	counter_add(&ep->reassembly_bytes, r->bytes);
	peer->session->reassembly_bytes += r->bytes;
	r->reserved_recvs = min_u32(DGRAM_PIECES_WINDOW, dgram_ep_spare_grants(ep));
	counter_add(&ep->grants, r->reserved_recvs);
	slot->method = msg->code;
	slot->assembling = true;
	slot->request = r;
	send_ack(peer, r, msg->slot, msg->number, DGRAM_OF_REQUEST, false);
}

void dgram_large_repeat_ack(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index)
{
	send_ack(peer, slot->request, index, slot->number, DGRAM_OF_REQUEST, true);
}

static void request_piece(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
			  const uint8_t *payload)
{
	struct dgram_slot *group = peer->session->groups[msg->slot / DGRAM_SLOT_GROUP];
	struct dgram_slot *slot = group ? &group[msg->slot % DGRAM_SLOT_GROUP] : NULL;
	struct dgram_reassembly *r;
	bool taken;

	if (!slot || slot->number != msg->number || slot->state == DGRAM_SLOT_IDLE) {
		ep_count(peer->ep, duplicates);
		return;
	}
	if (!slot->assembling) {
		if (slot->state == DGRAM_SLOT_ANSWERED)
			dgram_serve_answer(peer, msg->slot, true);
		return;
	}
	r = slot->request;
	taken = reassembly_piece(peer, r, msg, payload);
	if (r->arrived < r->pieces) {
		if (!taken || ack_is_due(r))
			send_ack(peer, r, msg->slot, msg->number, DGRAM_OF_REQUEST, false);
		return;
	}
	slot->assembling = false;
	slot->request = NULL;
	dgram_serve_execute(peer, slot, msg->slot, slot->method, r->data, r->bytes);
	counter_sub(&peer->ep->grants, r->reserved_recvs);
	counter_sub(&peer->ep->reassembly_bytes, r->bytes);
	peer->session->reassembly_bytes -= r->bytes;
	gn_free(r->data);
	gn_free(r);
}

/* ---- answers, at the caller ---- */

void dgram_large_free_call(struct gn_dgram_peer *peer, struct dgram_call *call)
{
	(void)peer;
	gn_free(call->transfer);
	gn_free(call->result); /* its data is the caller's */
	call->transfer = NULL;
	call->result = NULL;
	call->acked = false;
}

static void call_progress(struct gn_dgram_peer *peer, struct dgram_call *call)
{
	call->rto_ns = peer->rtt.rto_ns;
	call->repeat_ns = peer->ep->now_ns + call->rto_ns;
}

void dgram_large_answer(struct gn_dgram_peer *peer, struct dgram_call *call,
			const struct dgram_msg *msg, const uint8_t *payload)
{
	call->result = reassembly_create(msg, call->op->result, payload);
	if (!call->result) {
		ep_count(peer->ep, over_limit);
		return;
	}
	call->result->reserved_recvs = call->recvs - 1;
	call_progress(peer, call);
	send_ack(peer, call->result, msg->slot, msg->number, DGRAM_OF_ANSWER, false);
}

/* The call began with fewer receives than a window of pieces takes: one more, if it is free. */
static void call_take_recv(struct gn_dgram_peer *peer, struct dgram_call *call)
{
	struct gn_dgram_endpoint *ep = peer->ep;

	if (likely(call->recvs > DGRAM_PIECES_WINDOW) || ep->short_of_recvs ||
	    ep->answers >= ep->answers_max)
		return;
	ep->answers++;
	call->recvs++;
	call->result->reserved_recvs++;
}

static void answer_piece(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
			 const uint8_t *payload)
{
	struct dgram_session *session = peer->session;
	struct dgram_call *call = &session->calls[msg->slot];
	struct dgram_reassembly *r = call->result;

	if (!(session->used >> msg->slot & 1) || call->number != msg->number || !r) {
		ep_count(peer->ep, late);
		return;
	}
	if (!reassembly_piece(peer, r, msg, payload))
		return;
	call_progress(peer, call);
	call_take_recv(peer, call);
	if (r->arrived == r->pieces)
		dgram_call_finish(peer, msg->slot, r->status, r->bytes);
	else if (ack_is_due(r))
		send_ack(peer, r, msg->slot, msg->number, DGRAM_OF_ANSWER, false);
}

void dgram_large_piece(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
		       const uint8_t *payload)
{
	if (!peer->session)
		ep_count(peer->ep, duplicates);
	else if (msg->code == DGRAM_OF_REQUEST)
		request_piece(peer, msg, payload);
	else
		answer_piece(peer, msg, payload);
}

/* ---- acknowledgements ---- */

static void request_acked(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
			  const uint8_t *payload)
{
	struct dgram_call *call = &peer->session->calls[msg->slot];

	if (!(peer->session->used >> msg->slot & 1) || call->number != msg->number ||
	    !call->transfer) {
		ep_count(peer->ep, late);
		return;
	}
	call->acked = true;
	transfer_acked(call->transfer, msg, payload);
	call_progress(peer, call);
	send_next_pieces(peer, call->transfer, msg->slot, msg->number, DGRAM_OF_REQUEST);
}

static void answer_acked(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
			 const uint8_t *payload)
{
	struct dgram_slot *group = peer->session->groups[msg->slot / DGRAM_SLOT_GROUP];
	struct dgram_slot *slot = group ? &group[msg->slot % DGRAM_SLOT_GROUP] : NULL;

	if (!slot || slot->number != msg->number || slot->state != DGRAM_SLOT_ANSWERED ||
	    !slot->transfer) {
		ep_count(peer->ep, duplicates);
		return;
	}
	transfer_acked(slot->transfer, msg, payload);
	if (msg->attempt)
		send_missing_pieces(peer, slot->transfer, msg->slot, msg->number, DGRAM_OF_ANSWER);
	send_next_pieces(peer, slot->transfer, msg->slot, msg->number, DGRAM_OF_ANSWER);
}

void dgram_large_ack(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
		     const uint8_t *payload)
{
	if (!peer->session)
		ep_count(peer->ep, late);
	else if (msg->code == DGRAM_OF_REQUEST)
		request_acked(peer, msg, payload);
	else
		answer_acked(peer, msg, payload);
}

void dgram_large_resume(struct gn_dgram_peer *peer)
{
	struct dgram_session *session = peer->session;
	uint64_t used = session->used;

	session->pieces_wait = false;
	for (; used; used &= used - 1) {
		const uint32_t slot = (uint32_t)__builtin_ctzll(used);
		struct dgram_call *call = &session->calls[slot];

		if (call->transfer && call->acked && !call->result)
			send_next_pieces(peer, call->transfer, slot, call->number,
					 DGRAM_OF_REQUEST);
	}
	for (uint32_t i = 0; i < GN_DGRAM_SLOTS; i++) {
		struct dgram_slot *slot = session->groups[i / DGRAM_SLOT_GROUP];

		if (!slot)
			continue;
		slot += i % DGRAM_SLOT_GROUP;
		if (slot->state == DGRAM_SLOT_ANSWERED && slot->transfer)
			send_next_pieces(peer, slot->transfer, i, slot->number, DGRAM_OF_ANSWER);
	}
}

void dgram_large_repeat(struct gn_dgram_peer *peer, uint32_t slot)
{
	struct dgram_call *call = &peer->session->calls[slot];

	ep_count(peer->ep, repeats);
	if (call->result)
		send_ack(peer, call->result, slot, call->number, DGRAM_OF_ANSWER, true);
	else
		send_missing_pieces(peer, call->transfer, slot, call->number, DGRAM_OF_REQUEST);
}
