/* SPDX-License-Identifier: MIT */
/*
 * The completions of a qp: one for each request that is signaled or fails, in order; after the first
 * failure FLUSHED for each of the others. Each failure needs a reason.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

#define LL(x) ((unsigned long long)(x))

void *array_grow(void *array, uint32_t n, uint32_t *cap, size_t size)
{
	if (n < *cap)
		return array;
	*cap = *cap ? 2 * *cap : 16;
	array = realloc(array, *cap * size);
	assert(array);
	return array;
}

/* ---- connections ---- */

struct conn *conn_create(struct fuzz_run *run, unsigned link)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	assert(conn);
	conn->link = link;
	conn->number = run->n_conns[link]++;
	conn->may_break = run->breaks;
	conn->next = run->conns;
	run->conns = conn;
	return conn;
}

struct conn *conn_find(struct fuzz_run *run, unsigned link, unsigned number)
{
	struct conn *conn = run->conns;

	while (conn && (conn->link != link || conn->number != number))
		conn = conn->next;
	return conn;
}

void conn_broke(struct fuzz_run *run, struct conn *conn, const char *what)
{
	if (conn->may_break || *conn->unexplained)
		return;
	snprintf(conn->unexplained, sizeof(conn->unexplained), "%s at %llu ns", what,
		 LL(gn_sim_now_ns(run->sim)));
}

/* ---- queues ---- */

void qp_model_fini(struct qp_model *model)
{
	mem_model_fini(&model->area);
	free(model->req);
	free(model->recv);
	free(model->msg);
}

struct request *qp_model_add_send(struct fuzz_run *run, struct qp_model *model)
{
	model->req = array_grow(model->req, model->n_req, &model->cap_req, sizeof(*model->req));
	model->req[model->n_req] =
		(struct request){.id = rng_mix(++run->last_id), .tick = ++run->tick};
	return &model->req[model->n_req++];
}

struct recv *qp_model_add_recv(struct fuzz_run *run, struct qp_model *model)
{
	model->recv =
		array_grow(model->recv, model->n_recv, &model->cap_recv, sizeof(*model->recv));
	model->recv[model->n_recv] =
		(struct recv){.id = rng_mix(++run->last_id), .tick = UINT64_MAX};
	return &model->recv[model->n_recv++];
}

void qp_model_unpost(struct qp_model *model, uint32_t n_req)
{
	model->n_req = n_req;
	while (model->n_msg > 0 && model->msg[model->n_msg - 1] >= n_req)
		model->n_msg--;
}

static void qp_model_flushed(struct fuzz_run *run, struct qp_model *model, const struct gn_wc *wc)
{
	CHECK(run, model->done < model->n_req,
	      "a completion (id %llx) after all %u requests of a failed qp had theirs", LL(wc->id),
	      model->n_req);
	CHECK(run, wc->id == model->req[model->done].id,
	      "request %u (%s) of a failed qp is next to complete, but id %llx came", model->done,
	      gn_op_str(model->req[model->done].op), LL(wc->id));
	CHECK(run, wc->status == GN_WC_FLUSHED, "request %u of a failed qp completes as %s",
	      model->done, gn_wc_status_str(wc->status));
	model->done++;
}

static void qp_model_check_ok(struct fuzz_run *run, const struct request *req, uint32_t i,
			      const struct gn_wc *wc)
{
	CHECK(run, req->flags & GN_SIGNALED, "request %u (%s) completes, though it is not signaled",
	      i, gn_op_str(req->op));
	CHECK(run, wc->op == req->op, "request %u (%s) completes as %s", i, gn_op_str(req->op),
	      gn_op_str(wc->op));
	if (req->op == GN_OP_READ || req->target == TARGET_FAA || req->target == TARGET_CAS)
		CHECK(run, wc->len_bytes == req->len,
		      "request %u (%s) of %u bytes completes with %u", i, gn_op_str(req->op),
		      req->len, wc->len_bytes);
}

uint32_t qp_model_send_done(struct fuzz_run *run, struct qp_model *model, const struct gn_wc *wc,
			    uint32_t *bad)
{
	uint32_t i = model->done;

	*bad = UINT32_MAX;
	if (model->failed) {
		qp_model_flushed(run, model, wc);
		return model->ok;
	}
	for (; i < model->n_req && model->req[i].id != wc->id; i++)
		CHECK(run, !(model->req[i].flags & GN_SIGNALED),
		      "the completion of request %u (%s) is missing: id %llx came, %s", i,
		      gn_op_str(model->req[i].op), LL(wc->id), gn_wc_status_str(wc->status));
	CHECK(run, i < model->n_req,
	      "a completion (id %llx, %s) of a request that is not outstanding", LL(wc->id),
	      gn_wc_status_str(wc->status));
	model->done = i + 1;
	if (wc->status == GN_WC_OK) {
		qp_model_check_ok(run, &model->req[i], i, wc);
		return i + 1;
	}
	model->failed = true;
	*bad = i;
	return i;
}

uint32_t qp_model_recv_done(struct fuzz_run *run, struct qp_model *model, const struct gn_wc *wc)
{
	const uint32_t i = model->recv_done;

	CHECK(run, i < model->n_recv, "a receive completes (id %llx), but all %u have", LL(wc->id),
	      model->n_recv);
	CHECK(run, wc->id == model->recv[i].id, "receive %u is next to complete, but id %llx came",
	      i, LL(wc->id));
	CHECK(run, !model->recv_failed || wc->status == GN_WC_FLUSHED,
	      "receive %u of a failed qp completes as %s", i, gn_wc_status_str(wc->status));
	model->recv_done++;
	if (wc->status != GN_WC_OK)
		model->recv_failed = true;
	return i;
}

/* ---- reasons ---- */

/* The number of a request among the messages; n_msg if it is none. */
static uint32_t message_index(const struct qp_model *model, uint32_t req)
{
	uint32_t k = model->n_msg;

	while (k > 0 && model->msg[k - 1] != req)
		k--;
	return k ? k - 1 : model->n_msg;
}

/* Its receive was posted later than the request, or never. */
static bool found_no_receive(const struct qp_model *model, const struct qp_model *peer,
			     uint32_t req)
{
	const uint32_t k = message_index(model, req);

	return k < model->n_msg && (k >= peer->n_recv || peer->recv[k].tick > model->req[req].tick);
}

static bool found_small_receive(const struct qp_model *model, const struct qp_model *peer,
				uint32_t req)
{
	const uint32_t k = message_index(model, req);

	return k < model->n_msg && k < peer->n_recv && model->req[req].op != GN_OP_WRITE_IMM &&
	       peer->recv[k].len < model->req[req].len;
}

static bool failure_has_reason(struct fuzz_run *run, const struct qp_model *model,
			       const struct qp_model *peer, uint32_t bad, enum gn_wc_status status)
{
	const struct request *req = &model->req[bad];

	switch (status) {
	case GN_WC_LOCAL_ACCESS:
		return req->target == TARGET_BAD_LOCAL;
	case GN_WC_REMOTE_ACCESS:
		return (req->target >= TARGET_BAD_KEY && req->target != TARGET_BAD_LOCAL) ||
		       (req->target != TARGET_NOTHING && req->op != GN_OP_SEND &&
			req->op != GN_OP_SEND_IMM && peer->deregistering);
	case GN_WC_REMOTE_INVALID:
		return found_small_receive(model, peer, bad);
	case GN_WC_RNR:
		return plan_fault(run, "rnr") || found_no_receive(model, peer, bad);
	case GN_WC_LOCAL_QP:
	case GN_WC_REMOTE_FAILED:
	case GN_WC_FATAL:
		return plan_fault(run, "qp-error");
	default:
		return false;
	}
}

void qp_model_explain(struct fuzz_run *run, struct conn *conn, struct qp_model *model,
		      struct qp_model *peer, uint32_t bad, enum gn_wc_status status)
{
	char what[96];

	snprintf(what, sizeof(what), "request %u (%s) failed: %s", bad,
		 gn_op_str(model->req[bad].op), gn_wc_status_str(status));
	fuzz_trace(run, "link %u connection %u: %s", conn->link, conn->number, what);
	if (status == GN_WC_RETRY || status == GN_WC_FLUSHED) {
		conn_broke(run, conn, what); /* the peer may know the reason, and be slow to poll */
		return;
	}
	CHECK(run, failure_has_reason(run, model, peer, bad, status), "%s, without a reason", what);
	conn->may_break = true;
}
