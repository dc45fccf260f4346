/* SPDX-License-Identifier: MIT */
/* A client at its server: memory of its own, requests found there, answers left there. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mutant.h"
#include "rpc/copy.h"
#include "rpc/server.h"

/* ---- beginning and end ---- */

static void destroy(struct rpc_conn *c)
{
	gn_qp_destroy(c->qp);
	gn_mr_deregister(c->request_mr);
	gn_mr_deregister(c->result_mr);
	gn_mem_free(c->request_mem);
	gn_mem_free(c->result_mem);
	gn_pd_destroy(c->pd);
	gn_free(c->scratch);
	gn_free(c->slots);
	gn_free(c);
}

static int make_region(struct rpc_conn *c, uint64_t bytes, unsigned rights, struct gn_mem **mem,
		       struct gn_mr **mr, uint8_t **at)
{
	int rc = gn_mem_alloc(c->thread->server->fabric, bytes, rights, mem);

	if (rc)
		return rc;
	*at = gn_mem_addr(*mem);
	return gn_mr_register(c->pd, *mem, 0, bytes, GN_LOCAL_WRITE | rights, mr);
}

/* Each client has a pd of its own, and may write only requests and read only results. */
static int make(struct rpc_conn *c)
{
	struct rpc_thread *t = c->thread;
	const struct gn_qp_opts qp = {
		.type = GN_QP_RC,
		.send_cq = t->cq,
		.recv_cq = t->cq,
		.chan = t->chan,
		.max_send_wr = 2 * c->n_slots,
		.max_recv_wr = 1,
		.user = c,
	};
	int rc;

	c->slots = gn_alloc(c->n_slots * sizeof(*c->slots), 0);
	if (!c->slots)
		return -ENOMEM;
	if (RPC_RACES_SHOW)
		c->scratch = gn_alloc(c->n_slots * c->result_stride, 0);
	if (RPC_RACES_SHOW && !c->scratch)
		return -ENOMEM;
	rc = gn_pd_create(t->ctx, &c->pd);
	if (rc)
		return rc;
	rc = make_region(c, c->request_stride * c->n_slots, GN_REMOTE_WRITE, &c->request_mem,
			 &c->request_mr, &c->requests);
	if (rc)
		return rc;
	rc = make_region(c, c->result_stride * c->n_slots, GN_REMOTE_READ, &c->result_mem,
			 &c->result_mr, &c->results);
	if (rc)
		return rc;
	return gn_qp_create(c->pd, &qp, &c->qp);
}

static uint32_t least(uint32_t asked, uint32_t most)
{
	return asked < most ? asked : most;
}

static struct rpc_conn *new_conn(struct rpc_thread *t, const struct rpc_hello *hello)
{
	const struct gn_rpc_server_opts *o = &t->server->opts;
	struct rpc_conn *c = gn_alloc(sizeof(*c), 0);

	if (!c)
		return NULL;
	c->thread = t;
	c->client = __atomic_add_fetch(&t->server->clients, 1, __ATOMIC_RELAXED);
	c->epoch = (uint32_t)gn_random() | 1;
	c->n_slots = least(hello->slots, o->max_slots);
	c->max_request = least(hello->max_request, o->max_request);
	c->max_result = least(hello->max_result, o->max_result);
	c->request_stride = rpc_stride(c->max_request);
	c->result_stride = rpc_stride(c->max_result);
	c->reply_key = hello->reply_key;
	c->nonce = hello->nonce;
	c->number = 1;
	return c;
}

static int accept_conn(struct rpc_conn *c, struct gn_conn_req *req)
{
	struct gn_remote request = {0}, result = {0};
	struct rpc_welcome welcome = {
		.magic = RPC_MAGIC,
		.version = RPC_VERSION,
		.bytes = sizeof(welcome),
		.slots = c->n_slots,
		.max_request = c->max_request,
		.max_result = c->max_result,
		.epoch = c->epoch,
	};
	const struct gn_conn_opts opts = {.private_data = &welcome, .private_len = sizeof(welcome)};

	gn_mr_remote(c->request_mr, &request);
	gn_mr_remote(c->result_mr, &result);
	welcome.request_key = request.key;
	welcome.result_key = result.key;
	return gn_accept(req, c->qp, &opts);
}

void rpc_conn_accept(struct rpc_thread *t, struct rpc_newcomer *newcomer)
{
	struct gn_conn_req *req = newcomer->req;
	struct rpc_conn *c = new_conn(t, &newcomer->hello);
	int rc = c ? make(c) : -ENOMEM;

	gn_free(newcomer);
	if (rc) {
		gn_log(GN_LOG_WARN, "rpc: a client is turned away: %s", gn_strerror(rc));
		gn_reject(req, NULL, 0);
	} else {
		rc = accept_conn(c, req);
	}
	if (rc) {
		if (c)
			destroy(c);
		return;
	}
	c->next = t->conns;
	c->prev = &t->conns;
	if (c->next)
		c->next->prev = &c->next;
	t->conns = c;
	t->n_conns++;
}

void rpc_conn_end(struct rpc_conn *c)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	if (c->dead)
		return;
	c->dead = true;
	c->thread->n_conns--;
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	c->next = c->thread->dying;
	c->thread->dying = c;
	gn_disconnect(c->qp);
	if (c->established && o->peer)
		o->peer(o->peer_arg, c->client, false);
}

void rpc_conn_bury(struct rpc_thread *t)
{
	for (struct rpc_conn **at = &t->dying; *at;) {
		struct rpc_conn *c = *at;

		if (__atomic_load_n(&c->pending, __ATOMIC_ACQUIRE)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		destroy(c);
	}
}

/* ---- requests ---- */

static void handle(struct rpc_conn *c, struct gn_rpc_request *r, const struct rpc_entry *entry)
{
	const struct rpc_method *method = rpc_method_find(c->thread->server, entry->kind);

	r->conn = c;
	r->number = c->number;
	r->method = entry->kind;
	r->index = entry->index;
	r->len = entry->len;
	r->begin_ns = gn_now_ns();
	c->thread->count.calls++;
	__atomic_store_n(&r->busy, true, __ATOMIC_RELAXED);
	__atomic_fetch_add(&c->pending, 1, __ATOMIC_RELAXED);
	if (method)
		method->fn(r, method->arg);
	else
		gn_rpc_answer(r, GN_RPC_NO_METHOD, NULL, 0);
}

static void learn_promises(struct rpc_conn *c)
{
	struct gn_qp_attr attr;

	if (gn_qp_query(c->qp, &attr))
		return;
	c->check_request = !(attr.caps & GN_CAP_INORDER_WRITE);
	c->check_fetch = !(attr.caps & GN_CAP_READ_HEAD_FIRST);
}

int rpc_conn_serve(struct rpc_conn *c)
{
	int served = 0;

	/* A request may overtake the news of its connection, before which no promise is known. */
	while (c->established && !c->failed) {
		const uint8_t *message = c->requests + c->number % c->n_slots * c->request_stride;
		struct gn_rpc_request *r = &c->slots[c->number % c->n_slots];
		struct rpc_entry entry;
		struct rpc_head head;
		const uint8_t *data;
		uint32_t at = 0;
		const enum rpc_found found =
			rpc_look(message, c->request_stride, rpc_seq(c->epoch, c->number), c->nonce,
				 (uint32_t)sizeof(entry) + c->max_request, c->check_request, &head);

		if (found != RPC_FOUND) {
			c->thread->count.torn += found == RPC_TORN;
			break;
		}
		/* No client of ours: nonsense, or a slot whose last request is unanswered. */
		if (!rpc_entry(message, head.len, &at, &entry, &data) ||
		    __atomic_load_n(&r->busy, __ATOMIC_ACQUIRE)) {
			rpc_conn_fail(c);
			break;
		}
		r->data = data;
		r->flags = head.flags;
		handle(c, r, &entry);
		c->number++;
		served++;
	}
	c->heard |= served;
	return served;
}

void rpc_conn_probe(struct rpc_conn *c)
{
	struct gn_wr wr;
	int rc;

	if (!c->established || c->failed || c->heard) {
		c->heard = false;
		return;
	}
	gn_wr_init(&wr, GN_OP_WRITE, c->client, NULL, 0, GN_SIGNALED);
	rc = gn_post_send(c->qp, &wr, NULL);
	c->thread->count.probes += !rc;
	if (rc && rc != -EAGAIN)
		rpc_conn_fail(c);
}

void rpc_conn_established(struct rpc_conn *c)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	c->established = true;
	learn_promises(c);
	if (o->peer)
		o->peer(o->peer_arg, c->client, true);
}

/* ---- answers ---- */

static uint8_t *result_of(const struct gn_rpc_request *r)
{
	const uint32_t number = r->number + mutant("rpc-slot-wrong", r->number);

	return r->conn->results + number % r->conn->n_slots * r->conn->result_stride;
}

unsigned gn_rpc_request_method(const struct gn_rpc_request *request)
{
	return request->method;
}

const void *gn_rpc_request_data(const struct gn_rpc_request *request, uint32_t *len_bytes)
{
	if (len_bytes)
		*len_bytes = request->len;
	return request->data;
}

uint64_t gn_rpc_request_client(const struct gn_rpc_request *request)
{
	return request->conn->client;
}

unsigned gn_rpc_request_thread(const struct gn_rpc_request *request)
{
	return request->conn->thread->index;
}

void *gn_rpc_request_room(struct gn_rpc_request *request, uint32_t *room)
{
	if (room)
		*room = request->conn->max_result;
	if (RPC_RACES_SHOW) /* a handler's own stores are plain */
		return request->conn->scratch +
		       request->number % request->conn->n_slots * request->conn->result_stride;
	return result_of(request) + sizeof(struct rpc_head) + sizeof(struct rpc_entry);
}

static uint16_t time_us(const struct gn_rpc_request *r)
{
	const uint64_t us = (gn_now_ns() - r->begin_ns) / 1000;

	return us < UINT16_MAX ? (uint16_t)us : UINT16_MAX;
}

void rpc_conn_post(struct rpc_conn *c, const struct gn_rpc_request *r)
{
	const uint64_t offset = r->number % c->n_slots * c->result_stride;
	struct rpc_head head;
	struct gn_sge sge = {c->results + offset, 0, gn_mr_lkey(c->result_mr)};
	const struct gn_remote to = {.key = c->reply_key};
	struct gn_wr wr;
	int rc;

	if (c->dead || c->failed)
		return;
	memcpy(&head, c->results + offset, sizeof(head));
	sge.len_bytes = (uint32_t)rpc_message_bytes(head.len);
	/* A client has no more calls under way than slots, so every round of them has a signal. */
	gn_wr_rdma(&wr, GN_OP_WRITE, c->client, &sge, &to, offset,
		   ++c->unsignaled % c->n_slots ? 0 : GN_SIGNALED);
	rc = gn_post_send(c->qp, &wr, NULL);
	if (rc == -EAGAIN) { /* what was sent is done, but nobody has looked */
		rpc_thread_completions(c->thread);
		rc = gn_post_send(c->qp, &wr, NULL);
	}
	if (rc)
		rpc_conn_fail(c);
}

void gn_rpc_answer(struct gn_rpc_request *r, unsigned status, const void *data, uint32_t len_bytes)
{
	struct rpc_conn *c = r->conn;
	struct rpc_thread *t = c->thread;
	const bool reply = r->flags & RPC_REPLY;
	uint8_t *slot = result_of(r);
	void *room = slot + sizeof(struct rpc_head) + sizeof(struct rpc_entry);
	struct rpc_entry entry = {.kind = (uint16_t)status, .index = r->index};
	struct rpc_seal seal = {
		.seq = rpc_seq(c->epoch, r->number),
		.nonce = c->nonce,
		.aux = time_us(r),
		.flags = c->check_fetch || c->check_request ? RPC_CRC : 0,
	};

	if (len_bytes > c->max_result) {
		entry.kind = GN_RPC_TOO_BIG;
		len_bytes = 0;
	}
	entry.len = len_bytes;
	seal.len = (uint32_t)sizeof(entry) + len_bytes;
	rpc_store(slot + sizeof(struct rpc_head), &entry, sizeof(entry));
	if (len_bytes && data != room) {
		rpc_store(room, data, len_bytes);
		gn_charge(GN_WORK_COPY, len_bytes);
	}
	__atomic_store_n(&r->busy, false, __ATOMIC_RELEASE);
	/* From here on a client that fetches has its result, and r may be its next request's. */
	rpc_seal(slot, &seal);
	if (!reply) {
		__atomic_fetch_sub(&c->pending, 1, __ATOMIC_RELEASE);
	} else if (t->id == gn_thread_id()) {
		rpc_conn_post(c, r);
		__atomic_fetch_sub(&c->pending, 1, __ATOMIC_RELEASE);
	} else {
		r->work.ask = RPC_ASK_POST;
		rpc_thread_ask(t, &r->work);
	}
}
