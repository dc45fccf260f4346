/* SPDX-License-Identifier: MIT */
/*
 * What the queues of a qp owe: one completion for each request that asked for one or failed, in
 * order; after the first failure one FLUSHED for each of the others; and a reason for each failure.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "swarm_model.h"

#define LL(x) ((unsigned long long)(x))

void *swarm_grow(void *array, uint32_t n, uint32_t *cap, size_t size)
{
	if (n < *cap)
		return array;
	*cap = *cap ? 2 * *cap : 16;
	array = realloc(array, *cap * size);
	assert(array);
	return array;
}

/* ---- lives ---- */

struct life *life_create(struct swarm *s, unsigned link)
{
	struct life *life = calloc(1, sizeof(*life));

	assert(life);
	life->link = link;
	life->number = s->n_life[link]++;
	life->may_break = s->breaks;
	life->next = s->lives;
	s->lives = life;
	return life;
}

struct life *life_find(struct swarm *s, unsigned link, unsigned number)
{
	struct life *life = s->lives;

	while (life && (life->link != link || life->number != number))
		life = life->next;
	return life;
}

void life_broke(struct swarm *s, struct life *life, const char *what)
{
	if (life->may_break || *life->unexplained)
		return;
	snprintf(life->unexplained, sizeof(life->unexplained), "%s at %llu ns", what,
		 LL(gn_sim_now_ns(s->sim)));
}

/* ---- halves ---- */

void half_fini(struct half *half)
{
	area_fini(&half->area);
	free(half->req);
	free(half->recv);
	free(half->msg);
}

struct request *half_request(struct swarm *s, struct half *half)
{
	half->req = swarm_grow(half->req, half->n_req, &half->cap_req, sizeof(*half->req));
	half->req[half->n_req] = (struct request){.id = rng_mix(++s->last_id), .tick = ++s->tick};
	return &half->req[half->n_req++];
}

struct receipt *half_receipt(struct swarm *s, struct half *half)
{
	half->recv = swarm_grow(half->recv, half->n_recv, &half->cap_recv, sizeof(*half->recv));
	half->recv[half->n_recv] =
		(struct receipt){.id = rng_mix(++s->last_id), .tick = UINT64_MAX};
	return &half->recv[half->n_recv++];
}

void half_unpost(struct half *half, uint32_t n_req)
{
	half->n_req = n_req;
	while (half->n_msg > 0 && half->msg[half->n_msg - 1] >= n_req)
		half->n_msg--;
}

static void flushed(struct swarm *s, struct half *half, const struct gn_wc *wc)
{
	CHECK(s, half->done < half->n_req,
	      "a completion (id %llx) after all %u requests of a failed qp had theirs", LL(wc->id),
	      half->n_req);
	CHECK(s, wc->id == half->req[half->done].id,
	      "request %u (%s) of a failed qp is next to complete, but id %llx came", half->done,
	      gn_op_str(half->req[half->done].op), LL(wc->id));
	CHECK(s, wc->status == GN_WC_FLUSHED, "request %u of a failed qp completes as %s",
	      half->done, gn_wc_status_str(wc->status));
	half->done++;
}

static void check_ok(struct swarm *s, const struct request *req, uint32_t i, const struct gn_wc *wc)
{
	CHECK(s, req->flags & GN_SIGNALED, "request %u (%s) completes though nobody asked", i,
	      gn_op_str(req->op));
	CHECK(s, wc->op == req->op, "request %u (%s) completes as %s", i, gn_op_str(req->op),
	      gn_op_str(wc->op));
	if (req->op == GN_OP_READ || req->aim == AIM_FAA || req->aim == AIM_CAS)
		CHECK(s, wc->len_bytes == req->len, "request %u (%s) of %u bytes completes with %u",
		      i, gn_op_str(req->op), req->len, wc->len_bytes);
}

uint32_t half_completed(struct swarm *s, struct half *half, const struct gn_wc *wc, uint32_t *bad)
{
	uint32_t i = half->done;

	*bad = UINT32_MAX;
	if (half->failed) {
		flushed(s, half, wc);
		return half->ok;
	}
	for (; i < half->n_req && half->req[i].id != wc->id; i++)
		CHECK(s, !(half->req[i].flags & GN_SIGNALED),
		      "the completion of request %u (%s) is missing: id %llx came, %s", i,
		      gn_op_str(half->req[i].op), LL(wc->id), gn_wc_status_str(wc->status));
	CHECK(s, i < half->n_req, "a completion (id %llx, %s) of a request that does not wait",
	      LL(wc->id), gn_wc_status_str(wc->status));
	half->done = i + 1;
	if (wc->status == GN_WC_OK) {
		check_ok(s, &half->req[i], i, wc);
		return i + 1;
	}
	half->failed = true;
	*bad = i;
	return i;
}

uint32_t half_received(struct swarm *s, struct half *half, const struct gn_wc *wc)
{
	const uint32_t i = half->recv_done;

	CHECK(s, i < half->n_recv, "a receive completes (id %llx), but all %u have", LL(wc->id),
	      half->n_recv);
	CHECK(s, wc->id == half->recv[i].id, "receive %u is next to complete, but id %llx came", i,
	      LL(wc->id));
	CHECK(s, !half->recv_failed || wc->status == GN_WC_FLUSHED,
	      "receive %u of a failed qp completes as %s", i, gn_wc_status_str(wc->status));
	half->recv_done++;
	if (wc->status != GN_WC_OK)
		half->recv_failed = true;
	return i;
}

/* ---- reasons ---- */

/* Which message of its side a request is; n_msg if none. */
static uint32_t message_of(const struct half *half, uint32_t req)
{
	uint32_t k = half->n_msg;

	while (k > 0 && half->msg[k - 1] != req)
		k--;
	return k ? k - 1 : half->n_msg;
}

/* Its receive was not there yet when it was posted, or never. */
static bool found_no_receive(const struct half *half, const struct half *peer, uint32_t req)
{
	const uint32_t k = message_of(half, req);

	return k < half->n_msg && (k >= peer->n_recv || peer->recv[k].tick > half->req[req].tick);
}

static bool found_small_receive(const struct half *half, const struct half *peer, uint32_t req)
{
	const uint32_t k = message_of(half, req);

	return k < half->n_msg && k < peer->n_recv && half->req[req].op != GN_OP_WRITE_IMM &&
	       peer->recv[k].len < half->req[req].len;
}

static bool has_reason(struct swarm *s, const struct half *half, const struct half *peer,
		       uint32_t bad, enum gn_wc_status status)
{
	const struct request *req = &half->req[bad];

	switch (status) {
	case GN_WC_LOCAL_ACCESS:
		return req->aim == AIM_BAD_LOCAL;
	case GN_WC_REMOTE_ACCESS:
		return (req->aim >= AIM_BAD_KEY && req->aim != AIM_BAD_LOCAL) ||
		       (req->aim != AIM_NOTHING && req->op != GN_OP_SEND &&
			req->op != GN_OP_SEND_IMM && peer->withdrawn);
	case GN_WC_REMOTE_INVALID:
		return found_small_receive(half, peer, bad);
	case GN_WC_RNR:
		return plan_fault(s, "rnr") || found_no_receive(half, peer, bad);
	case GN_WC_LOCAL_QP:
	case GN_WC_REMOTE_FAILED:
	case GN_WC_FATAL:
		return plan_fault(s, "qp-error");
	default:
		return false;
	}
}

void half_judge(struct swarm *s, struct life *life, struct half *half, struct half *peer,
		uint32_t bad, enum gn_wc_status status)
{
	char what[96];

	snprintf(what, sizeof(what), "request %u (%s) failed: %s", bad,
		 gn_op_str(half->req[bad].op), gn_wc_status_str(status));
	swarm_say(s, "link %u life %u: %s", life->link, life->number, what);
	if (status == GN_WC_RETRY || status == GN_WC_FLUSHED) {
		life_broke(s, life, what); /* the other side may know why, and be slow to look */
		return;
	}
	CHECK(s, has_reason(s, half, peer, bad, status), "%s, without a reason", what);
	life->may_break = true;
}
