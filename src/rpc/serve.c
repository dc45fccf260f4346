/* SPDX-License-Identifier: MIT */
/* Requests: found in a client's memory, taken apart, handed to their handlers. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/mutant.h"
#include "rpc/server.h"

#define PIECES	   6u	/* of large requests, read at once: of RPC_SENDS_BESIDE */
#define MESSAGE_NS 255u /* for where time is simulated: lines that the card wrote, and answers */

/* ---- a request ---- */

/* Of calls that take long, or whose turn it is to be timed. */
no_inline void rpc_timing_begin(struct rpc_conn *c, struct rpc_timing *t)
{
	t->slow = t->times->last_us >= RPC_SLOW_US;
	t->begin_ns = c->thread->loop.now_ns = gn_now_ns();
	if (t->slow)
		rpc_seal_results(c);
	t->alone = t->slow || !c->begin_ns;
	if (t->alone)
		c->begin_ns = t->begin_ns;
}

no_inline void rpc_timing_end(struct rpc_conn *c, const struct rpc_timing *t, uint32_t n)
{
	if (!t->alone && n)
		rpc_times_last(t->times, (gn_now_ns() - t->begin_ns) / n);
	if (!t->slow)
		return;
	rpc_seal_results(c);
	c->begin_ns = 0;
}

/*
 * The clock is worth its price where something takes long, and now and then. Of a batch all is
 * timed together, and each by itself only if that took long.
 */
static void run(const struct rpc_method *method, struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	struct rpc_timing timing = {.times = rpc_served(c->thread, r->method)};

	if (unlikely(!timing.times)) {
		method->fn(r, method->arg);
		return;
	}
	counter_add(&timing.times->calls, 1);
	if (likely(!rpc_timing_due(c, timing.times))) {
		method->fn(r, method->arg);
		return;
	}
	rpc_timing_begin(c, &timing);
	r->begin_ns = timing.begin_ns;
	method->fn(r, method->arg);
	rpc_timing_end(c, &timing, r->state != RPC_BUSY);
}

/* Before it is begun: the clock is not read for that, others have. */
static bool given_up(const struct gn_rpc_request *r)
{
	return rpc_conn_given_up(r->conn, r->index, r->number) ||
	       rpc_request_expired(r, r->conn->thread->loop.now_ns);
}

static void handle(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	const struct rpc_method *method = rpc_method_find(c->thread->server, r->method);
	struct gn_rpc_request *before = c->current;

	r->state = RPC_BUSY;
	if (unlikely(c->thread->draining)) {
		gn_rpc_answer(r, GN_RPC_BUSY, NULL, 0);
		return;
	}
	if (unlikely(r->left_us) && given_up(r)) {
		gn_rpc_answer(r, GN_RPC_TIMEOUT, NULL, 0);
		return;
	}
	counter_add(&c->thread->count.calls, 1);
	c->current = r;
	if (likely(method && method->fn))
		run(method, r);
	else if (method)
		rpc_group_serve_one(method, r);
	else
		gn_rpc_answer(r, GN_RPC_NO_METHOD, NULL, 0);
	c->current = before;
	c->room = NULL;
}

/* ---- one that is answered later ---- */

void rpc_request_copy_out(struct gn_rpc_request *r)
{
	uint32_t is = RPC_IN_SLOT;

	if (!__atomic_compare_exchange_n(&r->bytes, &is, RPC_COPYING, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return;
	is = RPC_APART;
	if (r->len && !mutant("rpc-defer-uncopied", MUTANT_ALWAYS)) {
		const bool charged = rpc_charge_spare(r->conn, r->len);

		r->copy = charged ? gn_alloc(r->len, 0) : NULL;
		if (r->copy)
			memcpy(r->copy, r->data, r->len);
		else if (charged)
			rpc_uncharge(r->conn, r->len);
		is = r->copy ? RPC_APART : RPC_STAYING;
	}
	__atomic_store_n(&r->bytes, is, __ATOMIC_RELEASE);
}

/* The handler has returned without an answer. */
static void defer(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	if (!r->begin_ns)
		__atomic_store_n(&r->begin_ns, gn_now_ns(), __ATOMIC_RELAXED);
	rpc_request_copy_out(r);
	if (__atomic_load_n(&r->bytes, __ATOMIC_ACQUIRE) == RPC_APART)
		return;
	/* There is no memory, or another thread is just copying and not worth waiting for. */
	r->keeps_slot = true;
	c->keep_slot[r->number & c->mask]++;
}

void rpc_request_release(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	rpc_abandon_forget(r);
	if (r->area.mem) {
		c->coming_bytes -= r->from.len;
		rpc_uncharge(c, r->area.size);
		rpc_area_free(&r->area);
	}
	if (r->copy) {
		rpc_uncharge(c, r->len);
		gn_free(r->copy);
		r->copy = NULL;
	}
	if (r->keeps_slot) {
		r->keeps_slot = false;
		c->keep_slot[r->number & c->mask]--;
		if (!c->dead) {
			rpc_conn_advance(c);
			rpc_conn_tell_taken(c);
		}
	}
}

/* ---- a large one, which is read ---- */

static int read_piece(struct gn_rpc_request *r, uint32_t bytes)
{
	struct rpc_conn *c = r->conn;
	const struct gn_remote from = {.key = r->from.key};
	const struct gn_sge sge = {(uint8_t *)gn_mem_addr(r->area.mem) + r->asked, bytes,
				   gn_mr_lkey(r->area.mr)};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_READ, (uintptr_t)r, &sge, &from, r->from.offset + r->asked,
		   GN_SIGNALED);
	return rpc_thread_post(c, &wr);
}

/* Large requests are read in the order in which they came. */
static void read_more(struct rpc_conn *c)
{
	const uint32_t piece = c->thread->server->piece;

	while (c->far && c->reading < PIECES && c->link.state == LINK_UP) {
		struct gn_rpc_request *r = c->far;
		const uint32_t left = r->from.len - r->asked, bytes = left < piece ? left : piece;
		const int rc = read_piece(r, bytes);

		if (rc == -EAGAIN && c->reading)
			return; /* when the next piece has come */
		if (rc) {
			rpc_conn_fail(c);
			return;
		}
		c->reading++;
		r->asked += bytes;
		if (r->asked < r->from.len)
			continue;
		c->far = r->later;
		if (!c->far)
			c->far_end = &c->far;
	}
}

static bool make_area(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	const uint64_t bytes = rpc_area_bytes(r->len);

	if (!rpc_charge(c, bytes, true))
		return false;
	if (!rpc_area_make(c->thread->server->fabric, c->pd, r->len, 0, &r->area))
		return true;
	rpc_uncharge(c, bytes);
	return false;
}

static void begin_far(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	const uint32_t most = c->thread->server->opts.max_large;
	const struct rpc_method *method;
	unsigned status = GN_RPC_OK;

	memcpy(&r->from, r->data, sizeof(r->from));
	r->data = NULL;
	r->len = r->from.len;
	r->asked = r->done = r->fresh = 0;
	r->state = RPC_BUSY;
	if (!r->len || r->len > most)
		status = GN_RPC_TOO_BIG;
	else if (c->thread->draining || r->len > most - c->coming_bytes || !make_area(r))
		status = GN_RPC_BUSY;
	if (status) {
		gn_rpc_answer(r, status, NULL, 0);
		return;
	}
	c->coming_bytes += r->len;
	counter_add(&c->thread->count.large, 1);
	r->state = RPC_COMING;
	r->later = NULL;
	*c->far_end = r;
	c->far_end = &r->later;
	method = rpc_method_find(c->thread->server, r->method);
	if (method && method->flags & GN_RPC_ORDERED && !mutant("rpc-overtake", 8))
		c->ordered = r;
	read_more(c);
}

void rpc_request_come(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	const uint32_t piece = c->thread->server->piece;
	const uint64_t done = r->done + (uint64_t)r->fresh * piece;
	const bool ordered = c->ordered == r;

	r->fresh = 0;
	r->done = done < r->from.len ? (uint32_t)done : r->from.len;
	read_more(c);
	if (r->done < r->from.len)
		return;
	r->data = gn_mem_addr(r->area.mem);
	handle(r);
	if (!ordered)
		return;
	c->ordered = NULL;
	rpc_conn_unpark(c);
	rpc_conn_serve(c);
}

/* ---- a message ---- */

/* False: no client of ours, nonsense. */
static bool take_entry(struct rpc_conn *c, struct rpc_entry *entry, const uint8_t *data, bool reply)
{
	const bool far = entry->index & RPC_FAR;
	struct gn_rpc_request *r;
	struct rpc_left left = {0};

	if (unlikely(entry->len & RPC_TIMED)) {
		entry->len &= ~RPC_TIMED;
		if (entry->len < sizeof(left))
			return false;
		memcpy(&left, data, sizeof(left));
		data += sizeof(left);
		entry->len -= (uint32_t)sizeof(left);
	}
	if (unlikely(far && entry->len != sizeof(struct rpc_far)))
		return false;
	r = rpc_request_take(c);
	if (unlikely(!r))
		return false;
	r->number = c->number;
	r->method = entry->kind;
	r->index = (uint16_t)(entry->index & RPC_INDEX);
	r->reply = reply;
	r->data = data;
	r->len = entry->len;
	r->begin_ns = c->begin_ns;
	r->answered = false;
	r->left_us = left.us;
	__atomic_store_n(&r->bytes, far ? RPC_APART : RPC_IN_SLOT, __ATOMIC_RELAXED);
	if (unlikely(far)) {
		begin_far(r);
		return true;
	}
	handle(r);
	if (unlikely(r->state == RPC_BUSY))
		defer(r);
	return true;
}

/* False: likewise. It ends early, to be called again, when a large request is ordered. */
static bool take_entries(struct rpc_conn *c, struct rpc_cursor *at)
{
	const struct gn_rpc_server *server = c->thread->server;
	struct rpc_entry entry;
	const uint8_t *data;

	while (at->i < at->head.aux && likely(!c->ordered)) {
		const struct rpc_method *method;

		if (!rpc_entry_with(at->message, at->head.len, &at->at, &entry, &data, RPC_TIMED))
			return false;
		at->i++;
		method = rpc_method_find(server, entry.kind);
		if (method && method->group && !c->thread->draining &&
		    rpc_group_plain(c, &entry, &data))
			rpc_group_serve(c, method, &entry, data, at);
		else if (!take_entry(c, &entry, data, at->head.flags & RPC_REPLY))
			return false;
	}
	return true;
}

/* False: likewise. */
static bool begin_message(struct rpc_conn *c, const struct rpc_head *head)
{
	if (c->number - c->taken > c->mask + 1 || !rpc_conn_acked(c, head->word))
		return false;
	gn_charge(GN_WORK_NS, MESSAGE_NS);
	counter_add(&c->thread->count.batches, 1);
	c->begin_ns = 0;
	if (head->aux > 1)
		c->begin_ns = c->thread->loop.now_ns = gn_now_ns();
	return true;
}

/* The next message, or the rest of one; false: there is none. */
static bool next_message(struct rpc_conn *c, struct rpc_cursor *at)
{
	enum rpc_found found;

	if (unlikely(c->rest.message)) {
		*at = c->rest;
		c->rest.message = NULL;
		c->begin_ns = 0;
		return true;
	}
	*at = (struct rpc_cursor){.message = rpc_conn_slot(c, c->number)};
	found = rpc_look(at->message, c->request_stride, rpc_seq(c->epoch, c->number), c->nonce,
			 rpc_max_request(c->max_request), c->check_request, &at->head);
	if (found != RPC_FOUND) {
		counter_add(&c->thread->count.torn, found == RPC_TORN);
		return false;
	}
	if (begin_message(c, &at->head))
		return true;
	rpc_conn_fail(c);
	return false;
}

int rpc_conn_serve(struct rpc_conn *c)
{
	struct rpc_cursor at;
	int served = 0, again = 0;

	if (unlikely(c->held || c->lent || c->untold || c->thread->draining)) {
		rpc_conn_look_acked(c);
		rpc_conn_tell_taken(c);
	}
	/* A request may overtake the news of its connection, before which no promise is known. */
	while (c->link.state == LINK_UP && likely(!c->ordered) && next_message(c, &at)) {
		c->serving = true;
		if (!take_entries(c, &at))
			rpc_conn_fail(c);
		c->serving = false;
		served++;
		if (unlikely(c->ordered)) {
			c->rest = at;
		} else {
			if (!mutant("rpc-run-twice", c->number) || again++)
				c->number++;
			rpc_conn_advance(c);
		}
		rpc_seal_results(c);
		if (served > (int)c->mask)
			break; /* others wait, too */
	}
	if (!served)
		return 0;
	c->heard = true;
	if (unlikely(c->taken != c->taken_told))
		rpc_conn_tell_taken(c);
	return served;
}

/* ---- what a handler may ask ---- */

unsigned gn_rpc_request_method(const struct gn_rpc_request *request)
{
	return request->method;
}

/* While the handler runs, and perhaps returns, another thread gets bytes that stay. */
const void *gn_rpc_request_data(struct gn_rpc_request *r, uint32_t *len_bytes)
{
	uint32_t bytes;

	if (len_bytes)
		*len_bytes = r->len;
	if (__atomic_load_n(&r->bytes, __ATOMIC_ACQUIRE) == RPC_IN_SLOT &&
	    unlikely(r->conn->thread->id != gn_thread_id()))
		rpc_request_copy_out(r);
	/* A copy that another thread has begun is the only one: the slot may be written soon. */
	while (unlikely((bytes = __atomic_load_n(&r->bytes, __ATOMIC_ACQUIRE)) == RPC_COPYING))
		gn_yield();
	return unlikely(bytes == RPC_APART && r->copy) ? r->copy : r->data;
}

uint64_t gn_rpc_request_client(const struct gn_rpc_request *request)
{
	return request->conn->client;
}

unsigned gn_rpc_request_thread(const struct gn_rpc_request *request)
{
	return request->conn->thread->index;
}
