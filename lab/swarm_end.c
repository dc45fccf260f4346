/* SPDX-License-Identifier: MIT */
/*
 * An end's way: memory, a qp, a connection, and the way back. Everything it owns is made for one
 * life of the connection and goes with it.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "swarm_node.h"

#define REMOTE_RIGHTS (GN_REMOTE_READ | GN_REMOTE_WRITE | GN_REMOTE_ATOMIC)
#define PIECES_EXTRA  (SGE_MAX * 16u)

static_assert(sizeof(struct hello) <= 56, "what every provider's connect can carry");

bool got(struct swarm *s, int rc, const char *call)
{
	if (rc == 0)
		return true;
	CHECK(s, rc == -ENOMEM && s->no_memory, "%s gave %s", call, gn_strerror(rc));
	return false;
}

/* ---- queues and buffers ---- */

static void query_qp(struct end *e)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	int rc = gn_qp_query(e->qp, &attr);

	CHECK(e->s, rc == 0, "gn_qp_query gave %s", gn_strerror(rc));
	e->caps = attr.caps;
	e->max_send = attr.max_send_wr;
	e->max_recv = attr.max_recv_wr;
	e->max_inline = attr.max_inline;
	e->bay = (e->max_len + PIECES_EXTRA + LINE) / LINE * LINE;
	e->recv_bay = e->bay + (e->ud ? GN_GRH_BYTES + PIECES_EXTRA : 0);
	e->n_bays = e->max_send + CHAIN_MAX;
}

bool end_open_queues(struct end *e, const struct gn_qp_opts *opts)
{
	struct gn_fabric *fabric = e->worker->house->fabric;
	struct swarm *s = e->s;
	size_t size;

	if (!got(s, gn_pd_create(e->worker->ctx, &e->pd), "gn_pd_create") ||
	    !got(s, gn_qp_create(e->pd, opts, &e->qp), "gn_qp_create"))
		return false;
	query_qp(e);
	size = (size_t)e->n_bays * e->bay + (size_t)e->max_recv * e->recv_bay;
	return got(s, gn_mem_alloc(fabric, size, 0, &e->local), "gn_mem_alloc") &&
	       got(s, gn_mr_register(e->pd, e->local, 0, size, GN_LOCAL_WRITE, &e->local_mr),
		   "gn_mr_register");
}

static void must(struct end *e, int rc, const char *call)
{
	CHECK(e->s, rc == 0, "%s gave %s", call, gn_strerror(rc));
}

void end_free_queues(struct end *e)
{
	must(e, gn_qp_destroy(e->qp), "gn_qp_destroy");
	must(e, gn_mr_deregister(e->hall_mr), "gn_mr_deregister");
	must(e, gn_mr_deregister(e->mr), "gn_mr_deregister");
	must(e, gn_mr_deregister(e->local_mr), "gn_mr_deregister");
	must(e, gn_mem_free(e->local), "gn_mem_free");
	must(e, gn_mem_free(e->mem), "gn_mem_free");
	must(e, gn_pd_destroy(e->pd), "gn_pd_destroy");
	e->qp = NULL;
	e->hall_mr = e->mr = e->local_mr = NULL;
	e->local = e->mem = NULL;
	e->pd = NULL;
}

/* ---- a life ---- */

static bool open_region(struct end *e)
{
	struct house *house = e->worker->house;
	const uint32_t region = region_size_of(e->max_len);
	const size_t size = GUARD + (region + GN_PAGE - 1) / GN_PAGE * GN_PAGE + GUARD;
	struct gn_remote remote;
	uint8_t *mem;

	if (!got(e->s, gn_mem_alloc(house->fabric, size, REMOTE_RIGHTS, &e->mem), "gn_mem_alloc"))
		return false;
	mem = gn_mem_addr(e->mem);
	memset(mem, GUARD_BYTE, size);
	memcpy(mem + GUARD, e->half->area.base, e->half->area.size);
	e->half->version = 0;
	if (!got(e->s,
		 gn_mr_register(e->pd, e->mem, GUARD, region,
				GN_LOCAL_WRITE | GN_REMOTE_READ | GN_REMOTE_WRITE, &e->mr),
		 "gn_mr_register") ||
	    !got(e->s,
		 gn_mr_register(e->pd, house->hall_mem, 0, GN_PAGE,
				GN_LOCAL_WRITE | GN_REMOTE_ATOMIC, &e->hall_mr),
		 "gn_mr_register"))
		return false;
	end_bump(e);
	must(e, gn_mr_remote(e->mr, &remote), "gn_mr_remote");
	e->half->key = remote.key;
	return true;
}

static bool open_life(struct end *e, struct life *life)
{
	const struct plan_link *link = &e->s->plan.link[e->link];
	const uint32_t inline_max = e->worker->house->attr.max_inline;
	struct rng *rng = &e->worker->rng;
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_RC,
		.send_cq = e->worker->send_cq,
		.recv_cq = e->worker->recv_cq,
		.chan = e->worker->chan,
		.max_send_wr = link->window,
		.max_recv_wr = link->recvs,
		.max_send_sge = SGE_MAX,
		.max_recv_sge = SGE_MAX,
		.max_inline = rng_below(rng, (inline_max < 256 ? inline_max : 256) + 1),
		.flags = e->worker->house->plan->shared ? GN_SHARED : 0,
		.user = e,
	};

	e->life = life;
	e->half = &life->half[e->side];
	e->peer = &life->half[!e->side];
	e->broken = e->told_gone = false;
	e->unsignaled = 0;
	e->max_len = link->max_len;
	*e->half = (struct half){.started = true, .hall = e->worker->house->hall};
	area_init(&e->half->area, area_size_of(e->max_len), rng_next(rng));
	if (!end_open_queues(e, &opts) || !open_region(e))
		return false;
	end_post_recvs(e, link->sloppy ? rng_below(rng, link->recvs) : UINT32_MAX);
	return true;
}

static void free_life(struct end *e)
{
	end_free_queues(e);
	e->half->ended = true;
	e->life = NULL;
	e->half = e->peer = NULL;
	e->state = END_IDLE;
}

static void fill_hello(struct end *e, struct hello *hello, struct gn_conn_opts *opts)
{
	*opts = e->s->plan.link[e->link].conn;
	*hello = (struct hello){.link = e->link, .number = e->life->number};
	must(e, gn_mr_remote(e->mr, &hello->region), "gn_mr_remote");
	must(e, gn_mr_remote(e->hall_mr, &hello->hall), "gn_mr_remote");
	opts->private_data = hello;
	opts->private_len = sizeof(*hello);
}

void end_connect(struct end *e)
{
	const struct plan *plan = &e->s->plan;
	const unsigned server = plan->link[e->link].server;
	struct gn_conn_opts opts = {.size = sizeof(opts)};
	struct hello hello;
	char addr[32];

	e->attempts++;
	if (!open_life(e, life_create(e->s, e->link))) {
		free_life(e);
		return;
	}
	fill_hello(e, &hello, &opts);
	snprintf(addr, sizeof(addr), "sim:n%u:%u", plan->proc[plan->worker[server].proc].node,
		 server + 1);
	e->state = END_CONNECTING;
	must(e, gn_connect(e->qp, addr, &opts), "gn_connect");
}

/* The other side is as far as the model says: it asked for this life, and had no answer yet. */
void end_accept(struct end *e, struct gn_conn_req *req, const struct hello *hello)
{
	struct life *life = life_find(e->s, hello->link, hello->number);
	struct gn_conn_opts opts = {.size = sizeof(opts)};
	struct hello answer;
	int rc;

	CHECK(e->s, life && life->half[0].started && !life->half[1].started,
	      "a connection request for link %u, life %u, which nobody asked for, or twice",
	      hello->link, hello->number);
	if (e->life)
		end_close(e);
	if (rng_one_in(&e->worker->rng, 32) || !open_life(e, life)) {
		if (e->life)
			free_life(e);
		life->may_break = true;
		rc = gn_reject(req, NULL, 0);
		CHECK(e->s, rc == 0, "gn_reject gave %s", gn_strerror(rc));
		return;
	}
	e->remote = hello->region;
	e->hall_remote = hello->hall;
	fill_hello(e, &answer, &opts);
	rc = gn_accept(req, e->qp, &opts);
	if (rc) { /* the client gave up meanwhile */
		swarm_say(e->s, "link %u life %u: gn_accept gave %s", e->link, life->number,
			  gn_strerror(rc));
		life->may_break = true;
		end_close(e);
		return;
	}
	e->state = END_UP;
}

static void established(struct end *e, const struct gn_event *event)
{
	struct hello answer;

	e->s->result->connections += e->side == 0;
	if (e->side)
		return;
	CHECK(e->s, event->private_len >= sizeof(answer), "the answer has %u bytes, not %zu",
	      event->private_len, sizeof(answer));
	memcpy(&answer, event->private_data, sizeof(answer));
	CHECK(e->s, answer.link == e->link && answer.number == e->life->number,
	      "link %u life %u is answered as %u, %u", e->link, e->life->number, answer.link,
	      answer.number);
	e->remote = answer.region;
	e->hall_remote = answer.hall;
	e->state = END_UP;
}

void end_event(struct end *e, const struct gn_event *event)
{
	swarm_say(e->s, "link %u life %u: %s gets %s (%d)", e->link, e->life->number,
		  e->side ? "server" : "client", gn_event_str(event->type), event->status);
	switch (event->type) {
	case GN_EVENT_ESTABLISHED:
		established(e, event);
		break;
	case GN_EVENT_REJECTED:
	case GN_EVENT_UNREACHABLE:
		e->life->may_break = true;
		end_close(e);
		break;
	case GN_EVENT_DISCONNECTED:
		CHECK(e->s, !e->told_gone, "DISCONNECTED came twice");
		e->told_gone = e->broken = true;
		life_broke(e->s, e->life, "DISCONNECTED");
		break;
	default:
		swarm_fail(e->s, "event %s of a qp", gn_event_str(event->type));
	}
}

/* ---- the end ---- */

static bool is_empty(const struct end *e)
{
	return e->half->done == e->half->n_req && e->half->recv_done == e->half->n_recv;
}

static void wait_for_all(struct end *e, bool recvs, const char *what)
{
	const uint64_t deadline = worker_now(e->worker) + PATIENCE_US * 1000ull;

	for (;;) {
		worker_poll(e->worker);
		if (recvs ? is_empty(e) : e->half->done == e->half->n_req || e->broken)
			return;
		CHECK(e->s, worker_now(e->worker) < deadline,
		      "%s: %u of %u requests and %u of %u receives completed in %u ms", what,
		      e->half->done, e->half->n_req, e->half->recv_done, e->half->n_recv,
		      PATIENCE_US / 1000);
		worker_wait(e->worker, PATIENCE_US, false);
	}
}

void end_sync(struct end *e)
{
	const uint64_t deadline = worker_now(e->worker) + PATIENCE_US * 1000ull;

	while (!e->broken && !end_post_probe(e)) {
		CHECK(e->s, worker_now(e->worker) < deadline,
		      "a send queue stays full for %u ms: %u of %u done", PATIENCE_US / 1000,
		      e->half->done, e->half->n_req);
		worker_wait(e->worker, PATIENCE_US, false);
		worker_poll(e->worker);
	}
	wait_for_all(e, false, "a connection that works");
}

void end_drain(struct end *e)
{
	const uint64_t deadline = worker_now(e->worker) + PATIENCE_US * 1000ull;
	const bool connected = e->state == END_UP;

	while (connected && !end_post_marker(e)) {
		CHECK(e->s, worker_now(e->worker) < deadline,
		      "a failed qp flushes %u of %u requests in %u ms", e->half->done,
		      e->half->n_req, PATIENCE_US / 1000);
		worker_wait(e->worker, PATIENCE_US, false);
		worker_poll(e->worker);
	}
	end_post_recvs(e, 1);
	wait_for_all(e, true, "a qp in error");
}

/* What the sender knows to have arrived has arrived. */
static void check_messages(struct end *e, uint32_t known)
{
	CHECK(e->s, e->half->got >= known, "%u messages of %u that were acknowledged arrived",
	      e->half->got, known);
}

static void fail_qp(struct end *e)
{
	if (e->state != END_IDLE && rng_one_in(&e->worker->rng, 2))
		must(e, gn_disconnect(e->qp), "gn_disconnect");
	else
		must(e, gn_qp_error(e->qp), "gn_qp_error");
}

void end_close(struct end *e)
{
	struct rng *rng = &e->worker->rng;
	const bool withdraw_first = rng_one_in(rng, 2);

	swarm_say(e->s, "link %u life %u: %s closes, %u requests, %u received", e->link,
		  e->life->number, e->side ? "server" : "client", e->half->n_req, e->half->got);
	e->life->may_break = true;
	e->s->result->broken += e->broken;
	if (withdraw_first && e->qp && e->local_mr)
		end_withdraw(e);
	if (!rng_one_in(rng, 4)) {
		const uint32_t known = e->peer->msg_ok;

		fail_qp(e);
		end_drain(e);
		check_messages(e, known);
	}
	must(e, gn_qp_destroy(e->qp), "gn_qp_destroy");
	e->qp = NULL;
	end_withdraw(e);
	end_check_guards(e);
	free_life(e);
}
