/* SPDX-License-Identifier: MIT */
/*
 * Requests: at most once. A slot is idle, executing or answered. A request with the slot's number
 * is a duplicate: dropped while the call executes, answered again from the kept answer afterwards.
 * The answer is kept until the slot's next number, or until the caller is idle.
 */
#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "base/mutant.h"
#include "dgram/endpoint.h"

/* ---- kept answers ---- */

#define ANSWER_CLASS_MAX 4096u
static const uint32_t answer_class_bytes[DGRAM_ANSWER_CLASSES] = {256, 1024, ANSWER_CLASS_MAX};

static uint32_t answer_class(uint32_t len)
{
	uint32_t c = 0;

	while (c < DGRAM_ANSWER_CLASSES && answer_class_bytes[c] < len)
		c++;
	return c;
}

/* Memory that an answer takes: what it is charged for. */
static uint32_t answer_bytes(uint32_t len)
{
	const uint32_t c = answer_class(len);

	return c < DGRAM_ANSWER_CLASSES ? answer_class_bytes[c] : len;
}

static uint8_t *answer_from_pool(struct gn_dgram_endpoint *ep, uint32_t c)
{
	uint8_t *data = ep->free_answers[c];

	if (!data)
		return NULL;
	memcpy(&ep->free_answers[c], data, sizeof(void *));
	ep->pooled_bytes -= answer_class_bytes[c];
	return data;
}

/* Frees pooled memory, the largest first, until bytes more are within the limit. */
static void answer_trim_pool(struct gn_dgram_endpoint *ep, uint32_t bytes)
{
	const uint64_t max = ep->node->opts.max_answer_bytes;

	for (uint32_t c = DGRAM_ANSWER_CLASSES; c-- > 0;)
		while (ep->free_answers[c] && ep->kept_bytes + ep->pooled_bytes + bytes > max)
			gn_free(answer_from_pool(ep, c));
}

/* Memory for an answer of len bytes; NULL: none, or the limit is reached. */
static uint8_t *answer_alloc(struct gn_dgram_peer *peer, uint32_t len)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const uint32_t c = answer_class(len), bytes = answer_bytes(len);
	uint8_t *data = NULL;

	if (ep->kept_bytes + bytes > ep->node->opts.max_answer_bytes)
		return NULL;
	if (likely(c < DGRAM_ANSWER_CLASSES))
		data = answer_from_pool(ep, c);
	if (unlikely(!data)) {
		answer_trim_pool(ep, bytes);
		data = gn_alloc(bytes, 0);
	}
	if (data) {
		counter_add(&ep->kept_bytes, bytes);
		peer->session->kept_bytes += bytes;
	}
	return data;
}

static void answer_free(struct gn_dgram_peer *peer, uint8_t *data, uint32_t len)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const uint32_t c = answer_class(len), bytes = answer_bytes(len);

	counter_sub(&ep->kept_bytes, bytes);
	peer->session->kept_bytes -= bytes;
	if (c == DGRAM_ANSWER_CLASSES) {
		gn_free(data);
		return;
	}
	ep->pooled_bytes += bytes;
	memcpy(data, &ep->free_answers[c], sizeof(void *));
	ep->free_answers[c] = data;
}

void dgram_serve_free(struct gn_dgram_peer *peer, struct dgram_slot *slot)
{
	if (unlikely(slot->transfer || slot->assembling))
		dgram_large_free_slot(peer, slot);
	if (slot->state == DGRAM_SLOT_ANSWERED && slot->len > DGRAM_INLINE_ANSWER)
		answer_free(peer, slot->data, slot->len);
	slot->len = 0;
	slot->data = NULL;
	slot->state = DGRAM_SLOT_IDLE;
}

/* ---- answers ---- */

void dgram_serve_answer(struct gn_dgram_peer *peer, uint32_t index, bool again)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_slot *slot = dgram_slot_of(peer, index);
	const uint32_t bytes = min_u32(slot->len, dgram_payload_max(peer));
	const struct dgram_msg msg = {.type = DGRAM_ANSWER,
				      .attempt = slot->attempt,
				      .slot = (uint16_t)index,
				      .number = slot->number,
				      .code = slot->status,
				      .bytes = (uint16_t)bytes,
				      .total = slot->len};
	uint8_t *payload = dgram_send_add(peer, &msg);

	/* Without a buffer the answer is as good as lost: the caller repeats its request. */
	if (unlikely(!payload))
		return;
	memcpy(payload, slot->len > DGRAM_INLINE_ANSWER ? slot->data : slot->inlined, bytes);
	exec_charge(GN_WORK_COPY, bytes);
	if (again)
		ep_count(ep, answers_repeated);
	else
		ep_count(ep, answers);
	if (mutant("dgram-answer-kept", slot->number))
		memset(slot->inlined, 0, sizeof(slot->inlined));
}

/* Keeps the answer and sends it. data NULL: no result. */
static void serve_finish(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index,
			 unsigned status, const uint8_t *data, uint32_t len)
{
	slot->state = DGRAM_SLOT_ANSWERED;
	slot->status = (uint16_t)status;
	slot->len = len;
	if (likely(len <= DGRAM_INLINE_ANSWER)) {
		if (len)
			memcpy(slot->inlined, data, len);
	} else {
		slot->data = answer_alloc(peer, len);
		if (slot->data) {
			memcpy(slot->data, data, len);
		} else {
			slot->status = GN_RPC_BUSY;
			slot->len = 0;
			ep_count(peer->ep, busy);
		}
	}
	if (unlikely(slot->len > dgram_payload_max(peer)) && dgram_large_answer_begin(peer, slot)) {
		answer_free(peer, slot->data, slot->len);
		slot->status = GN_RPC_BUSY;
		slot->len = 0;
	}
	dgram_serve_answer(peer, index, false);
}

void dgram_serve_busy(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index)
{
	ep_count(peer->ep, busy);
	serve_finish(peer, slot, index, GN_RPC_BUSY, NULL, 0);
}

/* ---- execution ---- */

void *gn_dgram_result(struct gn_dgram_request *request, uint32_t bytes)
{
	struct dgram_job *job = request->internal;
	const struct gn_dgram_endpoint *ep = request->endpoint;
	uint8_t *large;

	if (bytes <= request->room)
		return request->result;
	if (bytes > GN_DGRAM_BYTES_MAX) {
		gn_fail(-EMSGSIZE, "gn_dgram_result(): %u bytes exceed GN_DGRAM_BYTES_MAX (%u)",
			bytes, GN_DGRAM_BYTES_MAX);
		return NULL;
	}
	if (ep->kept_bytes + answer_bytes(bytes) > ep->node->opts.max_answer_bytes) {
		gn_fail_text(-ENOSPC, "gn_dgram_result(): max_answer_bytes are kept for callers");
		return NULL;
	}
	large = gn_alloc(bytes, 0);
	if (!large) {
		gn_fail_text(-ENOMEM, "gn_dgram_result(): " NO_MEMORY);
		return NULL;
	}
	gn_free(job->large);
	job->large = large;
	request->result = large;
	request->room = bytes;
	return large;
}

/* The handler broke its contract. Logged once per method: callers decide how often it happens. */
static void __attribute__((cold))
serve_misused(struct gn_dgram_node *node, uint32_t method, const struct gn_dgram_request *request,
	      unsigned status)
{
	if (__atomic_exchange_n(&node->methods[method].reported, true, __ATOMIC_RELAXED))
		return;
	if (request->result_len > request->room)
		gn_log(GN_LOG_ERROR,
		       "dgram: the handler of method %u set result_len to %u with room for %u "
		       "bytes: its caller gets GN_RPC_FAILED; see gn_dgram_result()",
		       method, request->result_len, request->room);
	else
		gn_log(GN_LOG_ERROR,
		       "dgram: the handler of method %u returned %u: %s; its caller gets "
		       "GN_RPC_FAILED",
		       method, status,
		       status < GN_RPC_FAILED ? "only the library may use this status" :
						"statuses end at 65535");
}

static bool status_is_handlers(unsigned status)
{
	return status == GN_RPC_OK || (status >= GN_RPC_DENIED && status <= UINT16_MAX);
}

/* Runs the handler; returns its status. */
unsigned dgram_serve_run(struct gn_dgram_peer *peer, const struct dgram_method *method,
			 struct gn_dgram_request *request, struct dgram_job *job)
{
	struct gn_dgram_node *node = peer->ep->node;
	unsigned status;

	request->peer = peer;
	request->endpoint = peer->ep;
	request->internal = job;
	ep_count(peer->ep, executed);
	peer->ep->events++;
	status = method->fn(method->arg, request);
	if (unlikely(request->result_len > request->room || !status_is_handlers(status))) {
		serve_misused(node, (uint32_t)(method - node->methods), request, status);
		request->result_len = 0;
		return GN_RPC_FAILED;
	}
	return status;
}

void dgram_serve_done(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index,
		      unsigned status, struct gn_dgram_request *request, struct dgram_job *job)
{
	serve_finish(peer, slot, index, status, request->result, request->result_len);
	gn_free(job->large);
	job->large = NULL;
}

static void serve_inline(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index,
			 const struct dgram_method *method, uint32_t code, const uint8_t *data,
			 uint32_t len)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_job job = {.large = NULL};
	struct gn_dgram_request request = {.data = data,
					   .len = len,
					   .method = code,
					   .result = ep->scratch,
					   .room = dgram_payload_max(peer)};
	unsigned status;

	ep->in_handler = true;
	status = dgram_serve_run(peer, method, &request, &job);
	ep->in_handler = false;
	dgram_serve_done(peer, slot, index, status, &request, &job);
}

void dgram_serve_execute(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index,
			 uint32_t code, const uint8_t *data, uint32_t len)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const struct dgram_method *method = code < GN_DGRAM_METHODS_MAX ? &ep->node->methods[code] :
									  NULL;
	int rc = 0;

	if (unlikely(!method || !method->fn)) {
		serve_finish(peer, slot, index, GN_RPC_NO_METHOD, NULL, 0);
		return;
	}
	/* Those who have caused it must wait; small answers of others need no memory. */
	if (unlikely(ep->kept_bytes + ANSWER_CLASS_MAX > ep->node->opts.max_answer_bytes) &&
	    peer->session->kept_bytes) {
		dgram_serve_busy(peer, slot, index);
		return;
	}
	if (method->flags & GN_DGRAM_IN_WORKER) {
		rc = dgram_worker_serve(peer, slot, index, method, code, data, len);
	} else {
		if (ep->flags & GN_DGRAM_NO_CHEAP_RECV && len <= ep->node->opts.datagram_bytes) {
			memcpy(ep->copy, data, len);
			exec_charge(GN_WORK_COPY, len);
			data = ep->copy;
		}
		serve_inline(peer, slot, index, method, code, data, len);
	}
	if (rc)
		dgram_serve_busy(peer, slot, index);
}

/* ---- requests and cancels ---- */

/* A number that the slot has seen: true. */
static bool serve_duplicate(struct gn_dgram_peer *peer, struct dgram_slot *slot,
			    const struct dgram_msg *msg)
{
	if (likely(dgram_before(slot->number, msg->number) &&
		   !dgram_before(msg->number, peer->floor)))
		return false;
	ep_count(peer->ep, duplicates);
	if (msg->number != slot->number)
		return true;
	if (slot->state == DGRAM_SLOT_ANSWERED) {
		slot->attempt = msg->attempt;
		dgram_serve_answer(peer, msg->slot, true);
	}
	return slot->state != DGRAM_SLOT_EXECUTING || slot->assembling ||
	       !mutant("dgram-executing", MUTANT_ALWAYS);
}

/* The slot for a new number; NULL: none, and counted. */
static struct dgram_slot *serve_take_slot(struct gn_dgram_peer *peer, const struct dgram_msg *msg)
{
	struct dgram_slot *slot;

	if (unlikely(peer->grant - peer->floor > DGRAM_NUMBERS_MAX))
		dgram_peer_raise_floor(peer);
	if (unlikely(dgram_peer_session(peer)) || !(slot = dgram_slot_of(peer, msg->slot))) {
		ep_count(peer->ep, over_limit);
		return NULL;
	}
	if (unlikely(serve_duplicate(peer, slot, msg))) {
		if (slot->assembling && msg->number == slot->number && msg->type == DGRAM_REQUEST)
			dgram_large_repeat_ack(peer, slot, msg->slot);
		return NULL;
	}
	/* The caller has abandoned the call that still executes; it repeats the new one. */
	if (unlikely(slot->state == DGRAM_SLOT_EXECUTING && msg->number != slot->number &&
		     !slot->assembling))
		return NULL;
	if (msg->number != slot->number && !dgram_credit_take(peer, msg->number))
		return NULL;
	dgram_serve_free(peer, slot);
	slot->number = msg->number;
	slot->attempt = msg->attempt;
	slot->canceled = false;
	return slot;
}

void dgram_serve_request(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
			 const uint8_t *payload)
{
	struct dgram_slot *slot = serve_take_slot(peer, msg);

	if (unlikely(!slot))
		return;
	slot->state = DGRAM_SLOT_EXECUTING;
	if (unlikely(msg->bytes < msg->total))
		dgram_large_request(peer, slot, msg, payload);
	else
		dgram_serve_execute(peer, slot, msg->slot, msg->code, payload, msg->bytes);
}

void dgram_serve_cancel(struct gn_dgram_peer *peer, const struct dgram_msg *msg)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_slot *slot;

	if (!dgram_peer_session(peer) && (slot = dgram_slot_of(peer, msg->slot)) &&
	    slot->number == msg->number) {
		slot->canceled = true;
		if (slot->assembling) { /* it has not begun: it never will */
			dgram_serve_free(peer, slot);
			serve_finish(peer, slot, msg->slot, GN_RPC_CANCELED, NULL, 0);
			return;
		}
	}
	slot = serve_take_slot(peer, msg);
	if (!slot)
		return;
	ep->events++;
	serve_finish(peer, slot, msg->slot, GN_RPC_CANCELED, NULL, 0);
}
