/* SPDX-License-Identifier: MIT */
/*
 * The life cycle of an endpoint: memory, qp, connection, teardown. Everything it owns is made for
 * one connection.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

#define REMOTE_RIGHTS (GN_REMOTE_READ | GN_REMOTE_WRITE | GN_REMOTE_ATOMIC)
#define PIECES_EXTRA  (SGE_MAX * 16u)

static_assert(sizeof(struct hello) <= 56, "what every provider's connect can carry");

bool ok_or_no_memory(struct fuzz_run *run, int rc, const char *call)
{
	if (rc == 0)
		return true;
	CHECK(run, rc == -ENOMEM && run->no_memory, "%s gave %s", call, gn_strerror(rc));
	return false;
}

/* ---- queues and buffers ---- */

static void ep_query_qp(struct endpoint *ep)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	int rc = gn_qp_query(ep->qp, &attr);

	CHECK(ep->run, rc == 0, "gn_qp_query gave %s", gn_strerror(rc));
	ep->caps = attr.caps;
	ep->max_send = attr.max_send_wr;
	ep->max_recv = attr.max_recv_wr;
	ep->max_inline = attr.max_inline;
	ep->send_slot_bytes = (ep->max_len + PIECES_EXTRA + LINE) / LINE * LINE;
	ep->recv_slot_bytes = ep->send_slot_bytes + (ep->ud ? GN_GRH_BYTES + PIECES_EXTRA : 0);
	ep->n_send_slots = ep->max_send + CHAIN_MAX;
}

bool ep_open_queues(struct endpoint *ep, const struct gn_qp_opts *opts)
{
	struct gn_fabric *fabric = ep->worker->process->fabric;
	struct fuzz_run *run = ep->run;
	size_t size;

	if (!ok_or_no_memory(run, gn_pd_create(ep->worker->ctx, &ep->pd), "gn_pd_create") ||
	    !ok_or_no_memory(run, gn_qp_create(ep->pd, opts, &ep->qp), "gn_qp_create"))
		return false;
	ep_query_qp(ep);
	size = (size_t)ep->n_send_slots * ep->send_slot_bytes +
	       (size_t)ep->max_recv * ep->recv_slot_bytes;
	return ok_or_no_memory(run, gn_mem_alloc(fabric, size, 0, &ep->local), "gn_mem_alloc") &&
	       ok_or_no_memory(
		       run,
		       gn_mr_register(ep->pd, ep->local, 0, size, GN_LOCAL_WRITE, &ep->local_mr),
		       "gn_mr_register");
}

static void ep_must(struct endpoint *ep, int rc, const char *call)
{
	CHECK(ep->run, rc == 0, "%s gave %s", call, gn_strerror(rc));
}

void ep_free_queues(struct endpoint *ep)
{
	ep_must(ep, gn_qp_destroy(ep->qp), "gn_qp_destroy");
	ep_must(ep, gn_mr_deregister(ep->atomics_mr), "gn_mr_deregister");
	ep_must(ep, gn_mr_deregister(ep->mr), "gn_mr_deregister");
	ep_must(ep, gn_mr_deregister(ep->local_mr), "gn_mr_deregister");
	ep_must(ep, gn_mem_free(ep->local), "gn_mem_free");
	ep_must(ep, gn_mem_free(ep->mem), "gn_mem_free");
	ep_must(ep, gn_pd_destroy(ep->pd), "gn_pd_destroy");
	ep->qp = NULL;
	ep->atomics_mr = ep->mr = ep->local_mr = NULL;
	ep->local = ep->mem = NULL;
	ep->pd = NULL;
}

/* ---- connecting ---- */

static bool ep_open_region(struct endpoint *ep)
{
	struct process *process = ep->worker->process;
	const uint32_t region = region_bytes(ep->max_len);
	const size_t size = GUARD + (region + GN_PAGE - 1) / GN_PAGE * GN_PAGE + GUARD;
	struct gn_remote remote;
	uint8_t *mem;

	if (!ok_or_no_memory(ep->run, gn_mem_alloc(process->fabric, size, REMOTE_RIGHTS, &ep->mem),
			     "gn_mem_alloc"))
		return false;
	mem = gn_mem_addr(ep->mem);
	memset(mem, GUARD_BYTE, size);
	memcpy(mem + GUARD, ep->model->area.base, ep->model->area.size);
	ep->model->version = 0;
	if (!ok_or_no_memory(ep->run,
			     gn_mr_register(ep->pd, ep->mem, GUARD, region,
					    GN_LOCAL_WRITE | GN_REMOTE_READ | GN_REMOTE_WRITE,
					    &ep->mr),
			     "gn_mr_register") ||
	    !ok_or_no_memory(ep->run,
			     gn_mr_register(ep->pd, process->atomics_mem, 0, GN_PAGE,
					    GN_LOCAL_WRITE | GN_REMOTE_ATOMIC, &ep->atomics_mr),
			     "gn_mr_register"))
		return false;
	ep_bump_version(ep);
	ep_must(ep, gn_mr_remote(ep->mr, &remote), "gn_mr_remote");
	ep->model->key = remote.key;
	return true;
}

static bool ep_open(struct endpoint *ep, struct conn *conn)
{
	const struct plan_link *link = &ep->run->plan.link[ep->link];
	const uint32_t inline_max = ep->worker->process->attr.max_inline;
	struct rng *rng = &ep->worker->rng;
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_RC,
		.send_cq = ep->worker->send_cq,
		.recv_cq = ep->worker->recv_cq,
		.chan = ep->worker->chan,
		.max_send_wr = link->window,
		.max_recv_wr = link->recvs,
		.max_send_sge = SGE_MAX,
		.max_recv_sge = SGE_MAX,
		.max_inline = rng_below(rng, (inline_max < 256 ? inline_max : 256) + 1),
		.flags = ep->worker->process->plan->shared ? GN_SHARED : 0,
		.user = ep,
	};

	ep->conn = conn;
	ep->model = &conn->model[ep->side];
	ep->peer = &conn->model[!ep->side];
	ep->broken = ep->disconnected = false;
	ep->unsignaled = 0;
	ep->max_len = link->max_len;
	*ep->model = (struct qp_model){.started = true, .atomics = ep->worker->process->atomics};
	mem_model_init(&ep->model->area, area_bytes(ep->max_len), rng_next(rng));
	if (!ep_open_queues(ep, &opts) || !ep_open_region(ep))
		return false;
	ep_post_recvs(ep, link->few_recvs ? rng_below(rng, link->recvs) : UINT32_MAX);
	return true;
}

static void ep_free(struct endpoint *ep)
{
	ep_free_queues(ep);
	ep->model->ended = true;
	ep->conn = NULL;
	ep->model = ep->peer = NULL;
	ep->state = EP_IDLE;
}

static void ep_fill_hello(struct endpoint *ep, struct hello *hello, struct gn_conn_opts *opts)
{
	*opts = ep->run->plan.link[ep->link].conn;
	*hello = (struct hello){.link = ep->link, .number = ep->conn->number};
	ep_must(ep, gn_mr_remote(ep->mr, &hello->region), "gn_mr_remote");
	ep_must(ep, gn_mr_remote(ep->atomics_mr, &hello->atomics), "gn_mr_remote");
	opts->private_data = hello;
	opts->private_len = sizeof(*hello);
}

void ep_connect(struct endpoint *ep)
{
	const struct plan *plan = &ep->run->plan;
	const unsigned server = plan->link[ep->link].server;
	struct gn_conn_opts opts = {.size = sizeof(opts)};
	struct hello hello;
	char addr[32];

	ep->attempts++;
	if (!ep_open(ep, conn_create(ep->run, ep->link))) {
		ep_free(ep);
		return;
	}
	ep_fill_hello(ep, &hello, &opts);
	snprintf(addr, sizeof(addr), "sim:n%u:%u", plan->proc[plan->worker[server].proc].node,
		 server + 1);
	ep->state = EP_CONNECTING;
	ep_must(ep, gn_connect(ep->qp, addr, &opts), "gn_connect");
}

/* The model must know the client's side of this connection, and no server's side yet. */
void ep_accept(struct endpoint *ep, struct gn_conn_req *req, const struct hello *hello)
{
	struct conn *conn = conn_find(ep->run, hello->link, hello->number);
	struct gn_conn_opts opts = {.size = sizeof(opts)};
	struct hello answer;
	int rc;

	CHECK(ep->run, conn && conn->model[0].started && !conn->model[1].started,
	      "a connection request for link %u, connection %u, which no client sent, or a duplicate",
	      hello->link, hello->number);
	if (ep->conn)
		ep_close(ep);
	if (rng_one_in(&ep->worker->rng, 32) || !ep_open(ep, conn)) {
		if (ep->conn)
			ep_free(ep);
		conn->may_break = true;
		rc = gn_reject(req, NULL, 0);
		CHECK(ep->run, rc == 0, "gn_reject gave %s", gn_strerror(rc));
		return;
	}
	ep->remote = hello->region;
	ep->atomics_remote = hello->atomics;
	ep_fill_hello(ep, &answer, &opts);
	rc = gn_accept(req, ep->qp, &opts);
	if (rc) { /* the client has given up */
		fuzz_trace(ep->run, "link %u connection %u: gn_accept gave %s", ep->link,
			   conn->number, gn_strerror(rc));
		conn->may_break = true;
		ep_close(ep);
		return;
	}
	ep->state = EP_UP;
}

static void ep_established(struct endpoint *ep, const struct gn_event *event)
{
	struct hello answer;

	ep->run->result->connections += ep->side == 0;
	if (ep->side)
		return;
	CHECK(ep->run, event->private_len >= sizeof(answer), "the answer has %u bytes, not %zu",
	      event->private_len, sizeof(answer));
	memcpy(&answer, event->private_data, sizeof(answer));
	CHECK(ep->run, answer.link == ep->link && answer.number == ep->conn->number,
	      "link %u connection %u is answered as %u, %u", ep->link, ep->conn->number,
	      answer.link, answer.number);
	ep->remote = answer.region;
	ep->atomics_remote = answer.atomics;
	ep->state = EP_UP;
}

void ep_event(struct endpoint *ep, const struct gn_event *event)
{
	fuzz_trace(ep->run, "link %u connection %u: %s gets %s (%d)", ep->link, ep->conn->number,
		   ep->side ? "server" : "client", gn_event_str(event->type), event->status);
	switch (event->type) {
	case GN_EVENT_ESTABLISHED:
		ep_established(ep, event);
		break;
	case GN_EVENT_REJECTED:
	case GN_EVENT_UNREACHABLE:
		ep->conn->may_break = true;
		ep_close(ep);
		break;
	case GN_EVENT_DISCONNECTED:
		CHECK(ep->run, !ep->disconnected, "DISCONNECTED came twice");
		ep->disconnected = ep->broken = true;
		conn_broke(ep->run, ep->conn, "DISCONNECTED");
		break;
	default:
		fuzz_fail(ep->run, "event %s of a qp", gn_event_str(event->type));
	}
}

/* ---- teardown ---- */

static bool ep_queues_empty(const struct endpoint *ep)
{
	return ep->model->done == ep->model->n_req && ep->model->recv_done == ep->model->n_recv;
}

static void ep_wait_completions(struct endpoint *ep, bool recvs, const char *what)
{
	const uint64_t deadline = worker_now(ep->worker) + PROGRESS_TIMEOUT_US * 1000ull;

	for (;;) {
		worker_poll(ep->worker);
		if (recvs ? ep_queues_empty(ep) : ep->model->done == ep->model->n_req || ep->broken)
			return;
		CHECK(ep->run, worker_now(ep->worker) < deadline,
		      "%s: %u of %u requests and %u of %u receives completed in %u ms", what,
		      ep->model->done, ep->model->n_req, ep->model->recv_done, ep->model->n_recv,
		      PROGRESS_TIMEOUT_US / 1000);
		worker_wait(ep->worker, PROGRESS_TIMEOUT_US, false);
	}
}

void ep_sync(struct endpoint *ep)
{
	const uint64_t deadline = worker_now(ep->worker) + PROGRESS_TIMEOUT_US * 1000ull;

	while (!ep->broken && !ep_post_probe(ep)) {
		CHECK(ep->run, worker_now(ep->worker) < deadline,
		      "a send queue stays full for %u ms: %u of %u done",
		      PROGRESS_TIMEOUT_US / 1000, ep->model->done, ep->model->n_req);
		worker_wait(ep->worker, PROGRESS_TIMEOUT_US, false);
		worker_poll(ep->worker);
	}
	ep_wait_completions(ep, false, "a working connection");
}

void ep_drain(struct endpoint *ep)
{
	const uint64_t deadline = worker_now(ep->worker) + PROGRESS_TIMEOUT_US * 1000ull;
	const bool connected = ep->state == EP_UP;

	while (connected && !ep_post_marker(ep)) {
		CHECK(ep->run, worker_now(ep->worker) < deadline,
		      "a failed qp flushes %u of %u requests in %u ms", ep->model->done,
		      ep->model->n_req, PROGRESS_TIMEOUT_US / 1000);
		worker_wait(ep->worker, PROGRESS_TIMEOUT_US, false);
		worker_poll(ep->worker);
	}
	ep_post_recvs(ep, 1);
	ep_wait_completions(ep, true, "a qp in error");
}

/* Every message that was acknowledged to the sender has arrived. */
static void ep_check_acknowledged(struct endpoint *ep, uint32_t known)
{
	CHECK(ep->run, ep->model->got >= known, "%u messages of %u that were acknowledged arrived",
	      ep->model->got, known);
}

static void ep_fail_qp(struct endpoint *ep)
{
	if (ep->state != EP_IDLE && rng_one_in(&ep->worker->rng, 2))
		ep_must(ep, gn_disconnect(ep->qp), "gn_disconnect");
	else
		ep_must(ep, gn_qp_error(ep->qp), "gn_qp_error");
}

void ep_close(struct endpoint *ep)
{
	struct rng *rng = &ep->worker->rng;
	const bool deregister_first = rng_one_in(rng, 2);

	fuzz_trace(ep->run, "link %u connection %u: %s closes, %u requests, %u received", ep->link,
		   ep->conn->number, ep->side ? "server" : "client", ep->model->n_req,
		   ep->model->got);
	ep->conn->may_break = true;
	ep->run->result->broken += ep->broken;
	if (deregister_first && ep->qp && ep->local_mr)
		ep_deregister(ep);
	if (!rng_one_in(rng, 4)) {
		const uint32_t known = ep->peer->msg_ok;

		ep_fail_qp(ep);
		ep_drain(ep);
		ep_check_acknowledged(ep, known);
	}
	ep_must(ep, gn_qp_destroy(ep->qp), "gn_qp_destroy");
	ep->qp = NULL;
	ep_deregister(ep);
	ep_check_guards(ep);
	ep_free(ep);
}
