/* SPDX-License-Identifier: MIT */
/* A client at its server: its memory, and its life from the hello to the end. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/mutant.h"
#include "rpc/copy.h"
#include "rpc/server.h"

/* ---- beginning ---- */

/* With its qp gone nobody copies under its keys, and nothing here waits. */
static void destroy(struct rpc_conn *c)
{
	for (uint32_t i = 0; i < c->n_made; i++) {
		rpc_area_free(&rpc_conn_nth(c, i)->area);
		rpc_answer_free(rpc_conn_nth(c, i));
	}
	rpc_lent_return(c, true);
	rpc_shown_hide(c);
	gn_mr_deregister(c->request_mr);
	gn_mr_deregister(c->result_mr);
	gn_mem_free(c->request_mem);
	gn_mem_free(c->result_mem);
	gn_pd_destroy(c->pd);
	gn_free(c->scratch);
	gn_free(c->left);
	gn_free(c->writing);
	for (uint32_t i = 0; i < c->n_made; i += RPC_BLOCK)
		gn_free(c->blocks[i / RPC_BLOCK]);
	gn_free(c->blocks);
	rpc_dismiss(c);
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

bool rpc_conn_grow(struct rpc_conn *c)
{
	const uint32_t left = c->window - c->n_made, n = left < RPC_BLOCK ? left : RPC_BLOCK;
	struct gn_rpc_request *block = n ? gn_alloc(n * sizeof(*block), 0) : NULL;

	if (!block)
		return false;
	for (uint32_t i = n; i > 0; i--) {
		block[i - 1].conn = c;
		block[i - 1].next = c->idle;
		c->idle = &block[i - 1];
	}
	c->blocks[c->n_made / RPC_BLOCK] = block;
	c->n_made += n;
	return true;
}

static int make_tables(struct rpc_conn *c)
{
	c->blocks = gn_alloc((c->window + RPC_BLOCK - 1) / RPC_BLOCK * sizeof(*c->blocks), 0);
	c->left = gn_alloc((c->mask + 1) * sizeof(*c->left), 0);
	c->writing = gn_alloc((c->mask + 1) * sizeof(*c->writing), 0);
	if (!c->blocks || !c->left || !c->writing || !rpc_conn_grow(c))
		return -ENOMEM;
	if (!RPC_RACES_SHOW)
		return 0;
	c->scratch = gn_alloc(c->max_result + 1, 0);
	return c->scratch ? 0 : -ENOMEM;
}

/* Each client has a pd of its own, and may write only requests and read only results. */
static int make(struct rpc_conn *c)
{
	struct rpc_thread *t = c->thread;
	const uint32_t slots = c->mask + 1;
	const struct gn_qp_opts qp = {
		.size = sizeof(qp),
		.type = GN_QP_RC,
		.send_cq = t->cq,
		.recv_cq = t->cq,
		.chan = t->chan,
		.max_send_wr = rpc_max_sends(slots),
		.max_recv_wr = RPC_RECVS,
		.max_inline = t->server->max_inline,
		.user = c,
	};
	int rc = make_tables(c);

	if (!rc)
		rc = gn_pd_create(t->ctx, &c->pd);
	if (rc)
		return rc;
	/* Behind the slots: the word that says which results are not needed any more. */
	rc = make_region(c, c->request_stride * slots + RPC_ALIGN, GN_REMOTE_WRITE, &c->request_mem,
			 &c->request_mr, &c->requests);
	if (rc)
		return rc;
	rc = make_region(c, c->result_stride * slots, GN_REMOTE_READ, &c->result_mem, &c->result_mr,
			 &c->results);
	if (rc)
		return rc;
	rc = gn_qp_create(c->pd, &qp, &c->qp);
	for (unsigned i = 0; i < RPC_RECVS && !rc; i++)
		rc = rpc_conn_recv(c);
	return rc;
}

int rpc_conn_recv(struct rpc_conn *c)
{
	const struct gn_recv_wr wr = {.id = RPC_WAKE_ID};

	return gn_post_recv(c->qp, &wr, NULL);
}

static uint32_t least(uint32_t asked, uint32_t most)
{
	return asked < most ? asked : most;
}

static struct rpc_conn *new_conn(struct rpc_thread *t, const struct rpc_hello *hello)
{
	const struct gn_rpc_server_opts *o = &t->server->opts;
	struct rpc_conn *c = gn_alloc(sizeof(*c), 0);
	uint32_t slots = rpc_round_up(least(hello->slots, o->max_slots));

	if (!c)
		return NULL;
	if (slots > hello->slots || slots > o->max_slots)
		slots /= 2;
	c->thread = t;
	c->client = __atomic_add_fetch(&t->server->clients, 1, __ATOMIC_RELAXED);
	c->epoch = (uint32_t)gn_random() | 1;
	c->mask = slots - 1;
	c->window = least(hello->window, o->max_window);
	c->max_request = least(hello->max_request, o->max_request);
	c->max_result = least(hello->max_result, o->max_result);
	c->most = rpc_max_len(c->max_result);
	c->request_stride = rpc_stride(c->max_request);
	c->result_stride = rpc_stride(c->max_result);
	c->reply_key = hello->reply_key;
	c->nonce = hello->nonce;
	c->number = 1;
	c->held_end = &c->held;
	c->far_end = &c->far;
	return c;
}

static int accept_conn(struct rpc_conn *c, struct gn_conn_req *req)
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

	gn_mr_remote(c->request_mr, &request);
	gn_mr_remote(c->result_mr, &result);
	welcome.request_key = request.key;
	welcome.result_key = result.key;
	return gn_accept(req, c->qp, &opts);
}

static void link_to(struct rpc_conn *c, struct rpc_conn **list)
{
	c->next = *list;
	c->prev = list;
	if (c->next)
		c->next->prev = &c->next;
	*list = c;
}

static void unlink_conn(struct rpc_conn *c)
{
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

/* To be torn down by rpc_conn_bury(). */
static void retire(struct rpc_conn *c)
{
	c->dead = true;
	c->next = c->thread->dying;
	c->thread->dying = c;
}

void rpc_conn_accept(struct rpc_thread *t, struct rpc_newcomer *newcomer)
{
	struct gn_conn_req *req = newcomer->req;
	struct rpc_conn *c = new_conn(t, &newcomer->hello);
	int rc = -ENOMEM;

	gn_free(newcomer);
	if (c && !rpc_admit(c)) {
		gn_reject(req, NULL, 0);
		gn_free(c);
		return;
	}
	if (c)
		rc = make(c);
	if (rc) {
		gn_log(GN_LOG_WARN, "rpc: a client is refused: %s", gn_strerror(rc));
		gn_reject(req, NULL, 0);
	} else {
		rc = accept_conn(c, req);
	}
	if (rc) {
		if (c)
			retire(c);
		return;
	}
	t->n_half_open++;
	c->heard_ns = gn_now_ns();
	link_to(c, &t->conns);
	__atomic_fetch_add(&t->n_conns, 1, __ATOMIC_RELAXED);
}

static void learn_promises(struct rpc_conn *c)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};

	if (gn_qp_query(c->qp, &attr))
		return;
	c->check_request = !(attr.caps & GN_CAP_INORDER_WRITE);
	c->check_fetch = !(attr.caps & GN_CAP_READ_HEAD_FIRST);
}

void rpc_conn_established(struct rpc_conn *c)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	if (c->dead || c->established)
		return;
	c->established = true;
	c->thread->n_half_open--;
	learn_promises(c);
	if (o->peer)
		o->peer(o->peer_arg, c->client, true);
}

/* ---- end ---- */

/* Pieces that came, of requests that will be gone. */
static void forget_come(struct rpc_conn *c)
{
	for (struct gn_rpc_request **at = &c->thread->come; *at;)
		if ((*at)->conn == c)
			*at = (*at)->next;
		else
			at = &(*at)->next;
}

void rpc_conn_end(struct rpc_conn *c)
{
	const struct gn_rpc_server_opts *o = &c->thread->server->opts;

	if (c->dead)
		return;
	__atomic_fetch_sub(&c->thread->n_conns, 1, __ATOMIC_RELAXED);
	unlink_conn(c);
	retire(c);
	forget_come(c);
	gn_disconnect(c->qp);
	/* What nobody has seen, or everybody is done with, need not be waited for. */
	for (uint32_t i = 0; i < c->n_made; i++)
		if (rpc_conn_nth(c, i)->state == RPC_COMING ||
		    rpc_conn_nth(c, i)->state == RPC_HELD)
			c->n_busy--;
	c->thread->n_half_open -= !c->established;
	if (c->established && o->peer)
		o->peer(o->peer_arg, c->client, false);
}

void rpc_conn_bury(struct rpc_thread *t)
{
	for (struct rpc_conn **at = &t->dying; *at;) {
		struct rpc_conn *c = *at;

		if (c->n_busy || gn_qp_destroy_try(c->qp)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		destroy(c);
	}
}

static bool end_named(struct rpc_conn *list, uint64_t name)
{
	for (struct rpc_conn *c = list; c; c = c->next)
		if (rpc_conn_name(c->epoch, c->nonce) == name) {
			rpc_conn_end(c);
			return true;
		}
	return false;
}

void rpc_conn_end_named(struct rpc_thread *t, uint64_t name)
{
	if (!end_named(t->conns, name))
		end_named(t->parked, name);
}

/* ---- silence ---- */

void rpc_conn_probe(struct rpc_conn *c)
{
	struct gn_wr wr;
	int rc;

	if (!c->established || c->failed || !c->silent) {
		c->silent = true;
		return;
	}
	gn_wr_init(&wr, GN_OP_WRITE, RPC_OTHER_ID, NULL, 0, GN_SIGNALED);
	rc = gn_post_send(c->qp, &wr, NULL);
	counter_add(&c->thread->count.probes, !rc);
	if (rc && rc != -EAGAIN)
		rpc_conn_fail(c);
}

/* The word that its client fetches when it looks for its next result. */
static uint32_t *park_word(const struct rpc_conn *c)
{
	uint8_t *slot = c->results + ((c->placed + 1) & c->mask) * c->result_stride;

	return (uint32_t *)(void *)(slot + offsetof(struct rpc_head, word));
}

/* Is there a request, or half of one? After a long silence only a whole one counts. */
static bool has_request(const struct rpc_conn *c, bool long_silent)
{
	struct rpc_head head;

	if (__atomic_load_n(rpc_conn_word(c), __ATOMIC_SEQ_CST) != rpc_seq(c->epoch, c->number))
		return false;
	return !long_silent ||
	       rpc_look(rpc_conn_request(c, c->number), c->request_stride,
			rpc_seq(c->epoch, c->number), c->nonce, rpc_max_len(c->max_request),
			c->check_request, &head) == RPC_FOUND;
}

/*
 * A request that came before the client could read the word would not be noticed any more: so look
 * once again when the word is there.
 */
void rpc_conn_park(struct rpc_conn *c, bool long_silent)
{
	if (!++c->park_word)
		c->park_word = 1;
	__atomic_store_n(park_word(c), c->park_word, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (has_request(c, long_silent) && !mutant("rpc-park-blindly", 8)) {
		__atomic_store_n(park_word(c), 0, __ATOMIC_RELAXED);
		return;
	}
	c->parked = c->silent = true;
	unlink_conn(c);
	link_to(c, &c->thread->parked);
	counter_add(&c->thread->count.parks, 1);
}

void rpc_conn_unpark(struct rpc_conn *c)
{
	c->heard = true;
	if (!c->parked || c->dead)
		return;
	c->parked = false;
	if (!c->open)
		__atomic_store_n(park_word(c), 0, __ATOMIC_RELAXED);
	unlink_conn(c);
	link_to(c, &c->thread->conns);
	counter_add(&c->thread->count.wakes, 1);
}
