/* SPDX-License-Identifier: MIT */
/* A client's connection at the server: its memory and its states, from the hello to the end. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/list.h"
#include "base/mutant.h"
#include "rpc/copy.h"
#include "rpc/server.h"

/* ---- create ---- */

bool rpc_conn_busy(const struct link_conn *link)
{
	return container_of(link, const struct rpc_conn, link)->n_busy;
}

/* After the qp is destroyed the client cannot access this memory, so nothing here waits. */
bool rpc_conn_destroy(struct link_conn *link)
{
	struct rpc_conn *c = container_of(link, struct rpc_conn, link);

	for (uint32_t i = 0; i < c->n_made; i++) {
		rpc_area_free(&rpc_conn_request_at(c, i)->area);
		gn_free(rpc_conn_request_at(c, i)->copy);
		rpc_answer_free(c, &rpc_conn_request_at(c, i)->answer);
	}
	rpc_exports_release(c, true);
	rpc_exposed_free(c);
	rpc_area_free(&c->request_area);
	rpc_area_free(&c->result_area);
	gn_pd_destroy(c->pd);
	gn_free(c->scratch);
	gn_free(c->slot_pins);
	gn_free(c->writing);
	for (uint32_t i = 0; i < c->n_made; i += RPC_BLOCK)
		gn_free(c->blocks[i / RPC_BLOCK]);
	gn_free(c->blocks);
	rpc_unadmit(c);
	gn_free(c);
	return true;
}

bool rpc_conn_grow(struct rpc_conn *c)
{
	const uint32_t left = c->window - c->n_made, n = left < RPC_BLOCK ? left : RPC_BLOCK;
	struct gn_rpc_request *block = n ? gn_alloc(n * sizeof(*block), 0) : NULL;

	if (!block)
		return false;
	for (uint32_t i = n; i > 0; i--) {
		block[i - 1].conn = c;
		block[i - 1].owner = __atomic_load_n(&c->thread->id, __ATOMIC_RELAXED);
		block[i - 1].next = c->free_requests;
		c->free_requests = &block[i - 1];
	}
	c->blocks[c->n_made / RPC_BLOCK] = block;
	c->n_made += n;
	return true;
}

static int conn_make_tables(struct rpc_conn *c)
{
	c->blocks = gn_alloc((c->window + RPC_BLOCK - 1) / RPC_BLOCK * sizeof(*c->blocks), 0);
	c->slot_pins = gn_alloc((c->mask + 1) * sizeof(*c->slot_pins), 0);
	c->writing = gn_alloc((c->mask + 1) * sizeof(*c->writing), 0);
	if (!c->blocks || !c->slot_pins || !c->writing || !rpc_conn_grow(c))
		return -ENOMEM;
	if (!RPC_RACES_SHOW)
		return 0;
	c->scratch = gn_alloc(c->max_result + 1, 0);
	return c->scratch ? 0 : -ENOMEM;
}

/*
 * Each client has its own pd, can WRITE only to its request slots and READ only its result slots.
 */
static int conn_make_resources(struct rpc_conn *c)
{
	struct rpc_thread *t = c->thread;
	const uint32_t slots = c->mask + 1;
	struct gn_qp_opts qp = {
		.size = sizeof(qp),
		.type = GN_QP_RC,
		.max_send_wr = rpc_max_sends(slots),
		.max_recv_wr = RPC_RECVS,
		.max_inline = t->server->max_inline,
	};
	int rc = conn_make_tables(c);

	if (!rc)
		rc = gn_pd_create(t->loop.ctx, &c->pd);
	if (rc)
		return rc;
	rc = rpc_area_make(t->server->fabric, c->pd,
			   rpc_abandoned_at(c->request_stride, slots, c->window), GN_REMOTE_WRITE,
			   &c->request_area);
	if (!rc)
		rc = rpc_area_make(t->server->fabric, c->pd, c->result_stride * slots,
				   GN_REMOTE_READ, &c->result_area);
	if (rc)
		return rc;
	c->requests = gn_mem_addr(c->request_area.mem);
	c->results = gn_mem_addr(c->result_area.mem);
	rpc_conn_next(c, 1);
	c->abandoned =
		(const uint32_t *)(const void *)(c->requests +
						 rpc_abandoned_at(c->request_stride, slots, 0));
	c->result = c->results + (1 & c->mask) * c->result_stride;
	c->reply_sge.lkey = gn_mr_lkey(c->result_area.mr);
	gn_wr_rdma(&c->reply_wr, GN_OP_WRITE, 0, &c->reply_sge,
		   &(struct gn_remote){.key = c->reply_key}, 0, 0);
	rc = link_conn_create_qp(&c->link, c->pd, &qp);
	for (unsigned i = 0; i < RPC_RECVS && !rc; i++)
		rc = rpc_conn_recv(c);
	return rc;
}

int rpc_conn_recv(struct rpc_conn *c)
{
	const struct gn_recv_wr wr = {.id = RPC_WAKE_ID};

	return gn_post_recv(c->link.qp, &wr, NULL);
}

static struct rpc_conn *conn_new(struct rpc_thread *t, const struct rpc_hello *hello)
{
	const struct gn_rpc_server_opts *o = &t->server->opts;
	struct rpc_conn *c = gn_alloc(sizeof(*c), 0);
	uint32_t slots = rpc_round_up(min_u32(hello->slots, o->max_slots));

	if (!c)
		return NULL;
	if (slots > hello->slots || slots > o->max_slots)
		slots /= 2;
	link_conn_init(&t->loop, &c->link);
	c->thread = t;
	c->client = __atomic_add_fetch(&t->server->clients, 1, __ATOMIC_RELAXED);
	c->epoch = (uint32_t)gn_random() | 1;
	c->mask = slots - 1;
	c->window = min_u32(hello->window, o->max_window);
	c->max_request = min_u32(hello->max_request, o->max_request);
	c->max_result = min_u32(hello->max_result, o->max_result);
	c->max_len = rpc_max_request(c->max_request);
	c->max_extra_words = (c->max_len - (uint32_t)sizeof(struct rpc_entry)) / 8;
	c->request_stride = rpc_stride(c->max_request);
	c->result_stride = rpc_stride(c->max_result);
	c->reply_key = hello->reply_key;
	c->nonce = hello->nonce;
	c->time_each = true;
	c->held_end = &c->held;
	c->large_end = &c->large;
	return c;
}

static int conn_accept(struct rpc_conn *c, struct gn_conn_req *req)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;
	struct gn_remote request = {0}, result = {0};
	struct rpc_welcome welcome = {
		.magic = RPC_MAGIC,
		.version = RPC_VERSION,
		.bytes = sizeof(welcome),
		.slots = c->mask + 1,
		.max_request = c->max_request,
		.max_result = c->max_result,
		.epoch = c->epoch,
		.window = c->window,
		.max_large = o->max_large,
		.park_us = o->park_us,
		.thread = c->thread->index + 1,
	};
	const struct gn_conn_opts opts = {.size = sizeof(opts),
					  .private_data = &welcome,
					  .private_len = sizeof(welcome),
					  .rnr_timer_us = RPC_RNR_US};

	gn_mr_remote(c->request_area.mr, &request);
	gn_mr_remote(c->result_area.mr, &result);
	welcome.request_key = request.key;
	welcome.result_key = result.key;
	return gn_accept(req, c->link.qp, &opts);
}

static bool conn_hello_ok(const struct gn_event *event, struct rpc_hello *hello)
{
	memcpy(hello, event->private_data, sizeof(*hello));
	return event->private_len >= sizeof(*hello) && hello->magic == RPC_MAGIC &&
	       hello->version == RPC_VERSION && hello->slots && hello->slots <= GN_RPC_SLOTS_MAX &&
	       hello->max_request <= GN_RPC_BYTES_MAX && hello->max_result <= GN_RPC_BYTES_MAX &&
	       hello->window && hello->window <= GN_RPC_WINDOW_MAX;
}

static void conn_end_by_name(struct rpc_conn *list, uint64_t name)
{
	for (struct rpc_conn *c = list; c; c = c->next)
		if (rpc_conn_name(c->epoch, c->nonce) == name) {
			rpc_conn_end(&c->link);
			return;
		}
}

/*
 * Hands a new connection to its thread. If the client names a previous connection, the task first
 * goes to the thread of that connection and closes it, so that no old request starts after a new
 * one.
 */
static void conn_adopt(struct link_task *task)
{
	struct rpc_conn *c = container_of(task, struct rpc_conn, task);
	struct rpc_thread *t = c->thread, *first = &t->server->threads[c->previous_thread];

	if (c->previous) {
		conn_end_by_name(first->conns, c->previous);
		conn_end_by_name(first->parked, c->previous);
		c->previous = 0;
		if (first != t) {
			link_loop_post(&t->loop, task);
			return;
		}
	}
	if (c->dead) { /* it could not be accepted */
		link_conn_close(&c->link);
		return;
	}
	/* the blocks may have been allocated before the thread ran */
	for (uint32_t i = 0; i < c->n_made; i++)
		rpc_conn_request_at(c, i)->owner = t->id;
	list_push(&t->conns, c);
	rpc_conn_update_pending(c);
	__atomic_fetch_add(&t->n_conns, 1, __ATOMIC_RELAXED);
	c->active_ns = gn_now_ns();
	link_conn_accepted(&c->link);
}

static struct rpc_thread *conn_choose_thread(struct gn_rpc_server *server,
					     const struct rpc_hello *hello)
{
	unsigned thread = hello->thread - 1;

	if (thread >= server->opts.threads)
		thread = server->next++ % server->opts.threads;
	return &server->threads[thread];
}

static void conn_refuse(struct gn_conn_req *req, enum rpc_refusal_reason reason)
{
	const struct rpc_refusal refusal = {
		.magic = RPC_MAGIC, .version = RPC_VERSION, .reason = (uint16_t)reason};

	gn_reject(req, &refusal, sizeof(refusal));
}

static void conn_refuse_hello(struct gn_rpc_server *server, const struct gn_event *event,
			      const struct rpc_hello *hello)
{
	if (__atomic_load_n(&server->draining, __ATOMIC_ACQUIRE)) {
		gn_log(GN_LOG_WARN, "rpc: a client is refused: the server is shutting down");
		conn_refuse(event->req, RPC_REFUSED_ENDING);
	} else if (event->private_len < RPC_VERSION_BYTES || hello->magic != RPC_MAGIC) {
		gn_log(GN_LOG_WARN, "rpc: a client is refused: it uses another protocol");
		conn_refuse(event->req, RPC_REFUSED_VERSION);
	} else if (hello->version != RPC_VERSION) {
		gn_log(GN_LOG_WARN,
		       "rpc: a client is refused: it speaks version %u, this server version %u",
		       hello->version, RPC_VERSION);
		conn_refuse(event->req, RPC_REFUSED_VERSION);
	} else {
		gn_log(GN_LOG_WARN, "rpc: a client is refused: its hello is invalid");
		conn_refuse(event->req, RPC_REFUSED);
	}
}

void rpc_conn_request(struct gn_rpc_server *server, struct gn_event *event)
{
	const bool draining = __atomic_load_n(&server->draining, __ATOMIC_ACQUIRE);
	struct rpc_hello hello;
	struct rpc_conn *c;
	int rc;

	if (!conn_hello_ok(event, &hello) || draining) {
		conn_refuse_hello(server, event, &hello);
		return;
	}
	c = conn_new(conn_choose_thread(server, &hello), &hello);
	if (!c || !rpc_admit(c)) {
		conn_refuse(event->req, c ? RPC_REFUSED_FULL : RPC_REFUSED_MEMORY);
		gn_free(c);
		return;
	}
	c->task.run = conn_adopt;
	if (hello.previous && hello.previous_thread - 1 < server->opts.threads) {
		c->previous = hello.previous;
		c->previous_thread = hello.previous_thread - 1;
	}
	rc = conn_make_resources(c);
	if (rc) {
		gn_log(GN_LOG_WARN, "rpc: a client is refused: %s", gn_strerror(rc));
		conn_refuse(event->req, rc == -EMFILE || rc == -ENFILE ? RPC_REFUSED_FILES :
					rc == -ENOMEM		       ? RPC_REFUSED_MEMORY :
									 RPC_REFUSED);
	} else {
		rc = conn_accept(c, event->req);
	}
	if (rc) /* on success the thread may own the connection already */
		c->dead = true;
	link_loop_post(&(c->previous ? &server->threads[c->previous_thread] : c->thread)->loop,
		       &c->task);
}

static void conn_query_ordering(struct rpc_conn *c)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};

	if (gn_qp_query(c->link.qp, &attr))
		return;
	c->check_request = !(attr.caps & GN_CAP_INORDER_WRITE);
	c->check_fetch = !(attr.caps & GN_CAP_READ_HEAD_FIRST);
}

void rpc_conn_established(struct link_conn *link)
{
	struct rpc_conn *c = container_of(link, struct rpc_conn, link);
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	conn_query_ordering(c);
	c->peer_notified = true;
	if (o->peer)
		o->peer(o->peer_arg, c->client, true);
}

/* ---- end ---- */

/* Remove the connection's requests from the list of requests with newly read pieces. */
static void conn_drop_arrived(struct rpc_conn *c)
{
	for (struct gn_rpc_request **at = &c->thread->arrived; *at;)
		if ((*at)->conn == c)
			*at = (*at)->next;
		else
			at = &(*at)->next;
}

void rpc_conn_end(struct link_conn *link)
{
	struct rpc_conn *c = container_of(link, struct rpc_conn, link);
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	__atomic_fetch_sub(&c->thread->n_conns, 1, __ATOMIC_RELAXED);
	list_remove(c);
	__atomic_store_n(&c->dead, true, __ATOMIC_RELAXED);
	conn_drop_arrived(c);
	link_conn_close(link);
	/*
	 * A request that no handler has seen, or that is already answered, need not be waited for.
	 */
	for (uint32_t i = 0; i < c->n_made; i++)
		if (rpc_conn_request_at(c, i)->is.state == RPC_REQ_READING ||
		    rpc_conn_request_at(c, i)->is.state == RPC_REQ_HELD)
			c->n_busy--;
	rpc_abandon_conn(c);
	if (c->peer_notified && o->peer)
		o->peer(o->peer_arg, c->client, false);
}

/* ---- parking ---- */

/*
 * Publish the parked state where the client looks for its next result. parked: 0, or 1 …
 * RPC_PARKED_MAX.
 */
static void conn_publish_parked(struct rpc_conn *c, uint32_t parked, int order)
{
	__atomic_store_n((uint32_t *)(void *)(c->result + offsetof(struct rpc_head, ack)),
			 rpc_taken_ack(c->taken, parked), order);
	c->taken_published = c->taken;
}

/* Is there a request, or a part of one? After a long idle time only a complete one counts. */
static bool conn_has_request(const struct rpc_conn *c, bool long_idle)
{
	struct rpc_head head;

	if (__atomic_load_n(rpc_conn_seq_at(c), __ATOMIC_SEQ_CST) != c->seq)
		return false;
	return !long_idle || rpc_message_find(c->message, c->request_stride, c->seq, c->nonce,
					      c->max_len, c->check_request, &head) == RPC_FOUND;
}

/*
 * A request that arrived before the client could see the parked state would be missed: check once
 * more after the state is published.
 */
void rpc_conn_park(struct rpc_conn *c, bool long_idle)
{
	c->park_count = c->park_count % RPC_PARKED_MAX + 1;
	conn_publish_parked(c, c->park_count, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (conn_has_request(c, long_idle) && !mutant("rpc-park-blindly", MUTANT_ALWAYS)) {
		conn_publish_parked(c, 0, __ATOMIC_RELEASE);
		return;
	}
	c->parked = true;
	list_remove(c);
	list_push(&c->thread->parked, c);
	counter_add(&c->thread->count.parks, 1);
}

void rpc_conn_unpark(struct rpc_conn *c)
{
	c->active = true;
	if (!c->parked || c->dead)
		return;
	c->parked = false;
	if (!c->open)
		conn_publish_parked(c, 0, __ATOMIC_RELEASE);
	list_remove(c);
	list_push(&c->thread->conns, c);
	link_conn_set_probe_interval(&c->link, LINK_PROBE_NS);
	counter_add(&c->thread->count.wakes, 1);
}
