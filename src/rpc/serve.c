/* SPDX-License-Identifier: MIT */
/* Requests: found in a client's request slots, parsed, and passed to their handlers. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/mutant.h"
#include "rpc/fastpath.h"

/* READs of large requests at a time; part of RPC_SENDS_BESIDE */
#define PIECES_IN_FLIGHT 6u
/* simulated cost of a message: cache misses on request and result lines */
#define MESSAGE_COST_NS 255u

/* ---- a request ---- */

void rpc_request_make_busy(struct gn_rpc_request *r)
{
	struct gn_rpc_request **at = &r->conn->free_requests;

	while (*at != r) /* others may have been freed since */
		at = &(*at)->next;
	*at = r->next;
	r->conn->n_busy++;
	__atomic_store_n(&r->is.state, RPC_REQ_BUSY, __ATOMIC_RELAXED);
}

/*
 * Reads the clock only where a call takes long, and now and then. The calls of a batch are timed
 * together, and one by one only if that took long.
 */
static no_inline void request_run_timed(gn_rpc_handler *fn, void *arg, struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	struct rpc_timing timing = {.times = r->times};

	rpc_timing_begin(c, &timing, 1);
	r->begin_ns = timing.begin_ns;
	fn(r, arg);
	rpc_timing_end(c, &timing, r->is.state != RPC_REQ_BUSY && r->is.state != RPC_REQ_RUNNING);
}

static force_inline void request_run(struct rpc_conn *c, const struct rpc_method_cache *cached,
				     struct gn_rpc_request *r)
{
	counter_add(&r->times->calls, 1);
	if (likely(!rpc_timing_due(c, r->times)))
		cached->fn(r, cached->arg);
	else
		request_run_timed(cached->fn, cached->arg, r);
}

/* The slow path: the request is RPC_REQ_BUSY. */
static void request_handle(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	struct rpc_thread *t = c->thread;
	const struct rpc_method_cache *cached = rpc_thread_method(t, r->method);

	/* there may have been no memory for it when the request arrived */
	r->times = cached->times;
	r->is.state = RPC_REQ_BUSY;
	if (unlikely(t->draining)) {
		gn_rpc_answer(r, GN_RPC_BUSY, NULL, 0);
		return;
	}
	if (r->left_us && (rpc_conn_abandoned(c, r->index, r->number) ||
			   (r->begin_ns && t->loop.now_ns >= r->begin_ns + r->left_us * 1000ull))) {
		gn_rpc_answer(r, GN_RPC_TIMEOUT, NULL, 0);
		return;
	}
	counter_add(&t->count.calls, 1);
	c->current = r;
	if (cached->fn)
		request_run(c, cached, r);
	else if (cached->def && cached->def->group)
		rpc_group_serve_one(cached->def, r);
	else
		gn_rpc_answer(r, cached->def ? GN_RPC_BUSY : GN_RPC_NO_METHOD, NULL, 0);
	c->current = NULL;
	c->room_owner = NULL;
}

/* ---- deferred answers ---- */

void rpc_request_copy_out(struct gn_rpc_request *r)
{
	uint32_t is = RPC_IN_SLOT;

	if (!__atomic_compare_exchange_n(&r->is.bytes, &is, RPC_COPYING, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return;
	is = RPC_COPIED;
	if (r->len && !mutant("rpc-defer-uncopied", MUTANT_ALWAYS)) {
		const bool charged = rpc_charge_spare(r->conn, r->len);

		r->copy = charged ? gn_alloc(r->len, 0) : NULL;
		if (r->copy)
			memcpy(r->copy, r->data, r->len);
		else if (charged)
			rpc_uncharge(r->conn, r->len);
		is = r->copy ? RPC_COPIED : RPC_PINNED;
	}
	__atomic_store_n(&r->is.bytes, is, __ATOMIC_RELEASE);
}

/* The handler has returned without an answer. */
static void request_defer(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	if (r->is.state == RPC_REQ_RUNNING)
		rpc_request_make_busy(r);
	c->room_owner = NULL;
	r->deferred = r->times;
	if (r->deferred)
		counter_add(&r->times->open, 1);
	if (!r->begin_ns)
		__atomic_store_n(&r->begin_ns, gn_now_ns(), __ATOMIC_RELAXED);
	rpc_request_copy_out(r);
	if (__atomic_load_n(&r->is.bytes, __ATOMIC_ACQUIRE) == RPC_COPIED)
		return;
	/* No memory, or another thread is copying right now: keep the slot instead of waiting. */
	r->is.pins_slot = true;
	c->slot_pins[r->number & c->mask]++;
	c->n_pins++;
	rpc_conn_update_pending(c);
}

/* A request that was not answered on the fast path. */
static no_inline void request_defer_unanswered(struct gn_rpc_request *r)
{
	if (r->is.state == RPC_REQ_RUNNING || r->is.state == RPC_REQ_BUSY)
		request_defer(r);
}

void rpc_request_release(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	rpc_abandon_unregister(r);
	if (r->area.mem) {
		c->reading_bytes -= r->from.len;
		rpc_uncharge(c, r->area.size);
		rpc_area_free(&r->area);
	}
	if (r->copy) {
		rpc_uncharge(c, r->len);
		gn_free(r->copy);
		r->copy = NULL;
	}
	if (r->is.pins_slot) {
		r->is.pins_slot = false;
		c->slot_pins[r->number & c->mask]--;
		c->n_pins--;
		if (!c->dead) {
			rpc_conn_advance(c);
			rpc_conn_publish_taken(c);
		}
	}
}

/* ---- large requests ---- */

static int large_read_piece(struct gn_rpc_request *r, uint32_t bytes)
{
	struct rpc_conn *c = r->conn;
	const struct gn_remote from = {.key = r->from.key};
	const struct gn_sge sge = {(uint8_t *)gn_mem_addr(r->area.mem) + r->requested, bytes,
				   gn_mr_lkey(r->area.mr)};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_READ, (uintptr_t)r, &sge, &from, r->from.offset + r->requested,
		   GN_SIGNALED);
	return rpc_thread_post(c, &wr, rpc_post_send);
}

/* Large requests are read in the order of their arrival. */
static void large_read_more(struct rpc_conn *c)
{
	const uint32_t piece = c->thread->server->piece;

	while (c->large && c->reading < PIECES_IN_FLIGHT && c->link.state == LINK_UP) {
		struct gn_rpc_request *r = c->large;
		const uint32_t left = r->from.len - r->requested,
			       bytes = left < piece ? left : piece;
		const int rc = large_read_piece(r, bytes);

		if (rc == -EAGAIN && c->reading)
			return; /* retried when the next piece has been read */
		if (rc) {
			rpc_conn_fail(c);
			return;
		}
		c->reading++;
		r->requested += bytes;
		if (r->requested < r->from.len)
			continue;
		c->large = r->next_large;
		if (!c->large)
			c->large_end = &c->large;
	}
}

static bool large_make_area(struct gn_rpc_request *r)
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

static void large_begin_read(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	const uint32_t most = c->thread->server->opts.max_large;
	const struct rpc_method *method = rpc_thread_method(c->thread, r->method)->def;
	unsigned status = GN_RPC_OK;

	memcpy(&r->from, r->data, sizeof(r->from));
	r->data = NULL;
	r->len = r->from.len;
	r->requested = r->done = r->new_pieces = 0;
	r->is.state = RPC_REQ_BUSY;
	if (!r->len || r->len > most)
		status = GN_RPC_TOO_BIG;
	else if (c->thread->draining || r->len > most - c->reading_bytes || !large_make_area(r))
		status = GN_RPC_BUSY;
	if (status) {
		gn_rpc_answer(r, status, NULL, 0);
		return;
	}
	c->reading_bytes += r->len;
	counter_add(&c->thread->count.large, 1);
	r->is.state = RPC_REQ_READING;
	r->next_large = NULL;
	*c->large_end = r;
	c->large_end = &r->next_large;
	if (method && method->flags & GN_RPC_ORDERED && !mutant("rpc-overtake", 8))
		c->ordered = r;
	rpc_conn_update_pending(c);
	large_read_more(c);
}

void rpc_request_piece_read(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	const uint32_t piece = c->thread->server->piece;
	const uint64_t done = r->done + (uint64_t)r->new_pieces * piece;
	const bool ordered = c->ordered == r;

	r->new_pieces = 0;
	r->done = done < r->from.len ? (uint32_t)done : r->from.len;
	large_read_more(c);
	if (r->done < r->from.len)
		return;
	r->data = gn_mem_addr(r->area.mem);
	c->begin_ns = r->begin_ns;
	c->serving = true;
	request_handle(r);
	c->serving = false;
	rpc_seal_results(c);
	if (!ordered)
		return;
	c->ordered = NULL;
	rpc_conn_update_pending(c);
	rpc_conn_unpark(c);
	rpc_conn_serve(c);
}

/* ---- a message ---- */

/*
 * A large request, one that its caller abandoned, or one without a handler. False: invalid entry.
 */
static no_inline bool take_slow(struct rpc_conn *c, struct rpc_entry entry, const uint8_t *data,
				enum rpc_delivery delivery)
{
	const bool large = entry.index & RPC_LARGE;
	struct gn_rpc_request *r;
	struct rpc_time_left left = {0};

	if (entry.len & RPC_HAS_DEADLINE) {
		entry.len &= ~RPC_HAS_DEADLINE;
		if (entry.len < sizeof(left))
			return false;
		memcpy(&left, data, sizeof(left));
		data += sizeof(left);
		entry.len -= (uint32_t)sizeof(left);
	}
	if (large && entry.len != sizeof(struct rpc_large_ref))
		return false;
	r = rpc_request_take(c);
	if (!r)
		return false;
	entry.index &= RPC_INDEX;
	rpc_request_set(r, &entry, data, c->thread->cached.times,
			RPC_REQ_BUSY | (uint64_t)delivery << 8);
	r->left_us = left.us;
	if (large) {
		r->is.bytes = RPC_COPIED;
		large_begin_read(r);
		return true;
	}
	request_handle(r);
	if (r->is.state == RPC_REQ_BUSY)
		request_defer(r);
	return true;
}

/* Serves a group, or takes the slow path. False: invalid entry. */
static no_inline bool take_group_or_slow(struct rpc_conn *c, struct rpc_entry entry,
					 const uint8_t *data, struct rpc_cursor *at)
{
	const struct rpc_method_cache *cached = &c->thread->cached;
	uint32_t left_us;

	if (cached->def && cached->def->group && cached->times && !c->thread->draining &&
	    rpc_entry_plain(c, &entry, &data, &left_us)) {
		rpc_group_serve(c, &entry, data, at);
		return true;
	}
	return take_slow(c, entry, data, rpc_delivery_of(at->flags));
}

/* False: invalid message. Stops early, to be resumed, at a large request of an ordered method. */
static force_inline bool message_take_entries(struct rpc_conn *c, struct rpc_cursor *cursor)
{
	struct rpc_thread *t = c->thread;
	struct rpc_cursor at = *cursor, rare; /* at stays in registers */
	const uint64_t word = rpc_fast_bits(rpc_delivery_of(at.flags));
	uint32_t left_us;
	struct rpc_entry entry;
	const uint8_t *data;
	bool good = true;

	while (at.i < at.entries) {
		const struct rpc_method_cache *cached;
		struct gn_rpc_request *r;

		good = rpc_entry_flagged(at.message, at.len, &at.at, &entry, &data,
					 RPC_HAS_DEADLINE);
		if (unlikely(!good))
			break;
		at.i++;
		cached = rpc_thread_method(t, entry.code);
		if (unlikely(!cached->fn || !rpc_entry_plain(c, &entry, &data, &left_us))) {
			rare = at;
			good = take_group_or_slow(c, entry, data, &rare);
			at = rare;
			if (!good || c->ordered)
				break;
			continue;
		}
		r = c->free_requests;
		if (unlikely(!r)) {
			good = rpc_conn_grow(c);
			if (!good)
				break;
			r = c->free_requests;
		}
		rpc_request_set(r, &entry, data, cached->times, word);
		r->left_us = left_us;
		counter_add(&t->count.calls, 1);
		request_run(c, cached, r);
		if (unlikely(!rpc_request_answered_fast(r)))
			request_defer_unanswered(r);
	}
	*cursor = at;
	return good;
}

/*
 * The sequence is there: is the message complete? The head is copied after the tail was seen, and
 * only the copy is used; lengths holds its len, aux and flags. Same as rpc_message_find() without a
 * checksum.
 */
static force_inline bool request_check(const struct rpc_conn *c, uint64_t *lengths, uint32_t *acked)
{
	const uint64_t *words = rpc_conn_seq_at(c);
	const uint32_t len = (uint32_t)__atomic_load_n(&words[1], __ATOMIC_RELAXED);
	const uint32_t more = len - (uint32_t)sizeof(struct rpc_entry);
	uint64_t tail;

	/*
	 * Valid: sizeof(struct rpc_entry) to max_len, a multiple of 8. Else the rotated value is
	 * too large.
	 */
	if (unlikely((more >> 3 | more << 29) > c->max_extra_words))
		return false;
	if (len > RPC_BATCH_BYTES)
		prefetch_lines((const uint8_t *)words + RPC_ALIGN, len);
	exec_preempt();
	/* All bytes written before the tail are visible now. */
	tail = __atomic_load_n(rpc_tail_of(words, len), __ATOMIC_ACQUIRE);
	if (unlikely(tail != rpc_tail(c->seq, c->nonce)) && !mutant("rpc-tail-unchecked", c->seq))
		return false;
	exec_preempt();
	*lengths = __atomic_load_n(&words[1], __ATOMIC_RELAXED);
	*acked = (uint32_t)(__atomic_load_n(&words[2], __ATOMIC_RELAXED) >> 32);
	/*
	 * The first load may have mixed two heads, of this message and of the slot's previous one.
	 */
	return likely((uint32_t)*lengths == len) || mutant("rpc-double-fetch", MUTANT_ALWAYS);
}

static no_inline bool request_check_crc(const struct rpc_conn *c, uint64_t *lengths,
					uint32_t *acked)
{
	struct rpc_head head;

	if (rpc_message_find(c->message, c->request_stride, c->seq, c->nonce, c->max_len, true,
			     &head) != RPC_FOUND)
		return false;
	memcpy(lengths, &head.len, sizeof(*lengths));
	*acked = head.ack;
	return true;
}

/* Finds the next message. acked: the last result that its client has consumed. */
static force_inline bool request_find(struct rpc_conn *c, struct rpc_cursor *at, uint32_t *acked)
{
	uint64_t lengths;
	const uint64_t seq = __atomic_load_n(rpc_conn_seq_at(c), __ATOMIC_ACQUIRE);
	bool found;

	if (mutant("rpc-epoch-unchecked", 8) && (uint32_t)seq == (uint32_t)c->seq)
		c->seq = seq;
	if (seq != c->seq)
		return false;
	if (likely(!c->check_request))
		found = request_check(c, &lengths, acked);
	else
		found = request_check_crc(c, &lengths, acked);
	if (unlikely(!found)) {
		counter_add(&c->thread->count.torn, 1);
		return false;
	}
	*at = (struct rpc_cursor){.message = c->message,
				  .len = (uint32_t)lengths,
				  .entries = (uint16_t)(lengths >> 32),
				  .flags = (uint16_t)(lengths >> 48)};
	return true;
}

/* False: the message violates the protocol. */
static force_inline bool message_begin(struct rpc_conn *c, uint32_t entries, uint32_t acked)
{
	struct rpc_thread *t = c->thread;

	if (unlikely(c->slow_path) && c->n_pins && c->number - c->taken > c->mask + 1)
		return false;
	if (unlikely(!rpc_conn_acked(c, acked)))
		return false;
	exec_charge(GN_WORK_NS, MESSAGE_COST_NS);
	counter_add(&t->count.batches, 1);
	c->begin_ns = 0;
	if (entries > 1)
		c->begin_ns = link_loop_clock(&t->loop);
	return true;
}

/* Serves a message, or the rest of it. */
static force_inline void message_serve(struct rpc_conn *c, struct rpc_cursor *at)
{
	struct rpc_cursor again = *at;

	c->serving = true;
	if (!c->open)
		rpc_result_begin(c, rpc_delivery_of(at->flags));
	if (mutant("rpc-run-twice", c->number))
		message_take_entries(c, &again);
	if (unlikely(!message_take_entries(c, at)))
		rpc_conn_fail(c);
	c->serving = false;
	if (likely(!c->ordered)) {
		rpc_conn_next(c, c->number + 1);
		rpc_conn_advance(c);
	} else {
		c->rest = *at;
	}
	rpc_seal_results(c);
}

/* Work that is not pending in most turns. Returns the number of messages served. */
static no_inline int serve_pending_work(struct rpc_conn *c)
{
	struct rpc_cursor at = c->rest;

	if (!c->pending_work)
		return 0;
	rpc_conn_check_acks(c);
	rpc_conn_publish_taken(c);
	if (!at.message || c->ordered || c->link.state != LINK_UP)
		return 0;
	c->rest.message = NULL;
	c->begin_ns = 0;
	message_serve(c, &at);
	rpc_conn_update_pending(c);
	return 1;
}

static no_inline int serve_all(struct rpc_conn *c)
{
	struct rpc_cursor at;
	uint32_t acked;
	int served = 0;

	if (unlikely(c->slow_path))
		served = serve_pending_work(c);
	/*
	 * A request may overtake the ESTABLISHED event; before that event the ordering guarantees
	 * are unknown.
	 */
	while (likely(c->link.state == LINK_UP) && likely(!c->slow_path || !c->ordered) &&
	       request_find(c, &at, &acked)) {
		if (likely(message_begin(c, at.entries, acked)))
			message_serve(c, &at);
		else
			rpc_conn_fail(c);
		if (++served > (int)c->mask)
			break; /* let other clients proceed */
	}
	if (!served) {
		exec_charge(GN_WORK_SCAN, 1);
		return 0;
	}
	c->active = true;
	if (unlikely(c->taken != c->taken_published))
		rpc_conn_publish_taken(c);
	return served;
}

/* The end of serve_single() if the request is not answered or the slow path is needed. */
static no_inline void finish_single(struct rpc_conn *c, struct gn_rpc_request *r)
{
	if (!rpc_request_answered_fast(r))
		request_defer_unanswered(r);
	c->serving = false;
	c->active = true;
	rpc_conn_next(c, c->number + 1);
	rpc_conn_advance(c);
	rpc_seal_results(c);
	if (c->taken != c->taken_published)
		rpc_conn_publish_taken(c);
}

/*
 * The fast path, for most messages: one request, of the method that was looked up last. It has the
 * checks of request_check(), message_begin(), message_take_entries() and message_serve(). False:
 * not this case, and nothing was changed.
 */
static force_inline bool serve_single(struct rpc_conn *c)
{
	struct rpc_thread *t = c->thread;
	struct rpc_times *times = t->cached.times;
	struct gn_rpc_request *r = c->free_requests;
	const uint8_t *data = c->message + sizeof(struct rpc_head) + sizeof(struct rpc_entry);
	uint64_t lengths, entry;
	uint32_t acked, len, left_us = 0;
	enum rpc_delivery delivery;

	if (unlikely(!t->cached.fn || !r || c->slow_path) || mutant("rpc-epoch-unchecked", 8) ||
	    unlikely(!request_check(c, &lengths, &acked)) ||
	    unlikely((uint16_t)(lengths >> 32) != 1))
		return false;
	exec_preempt();
	memcpy(&entry, data - sizeof(entry), sizeof(entry));
	len = (uint32_t)entry & ~RPC_HAS_DEADLINE;
	if (unlikely((uint16_t)(entry >> 32) != t->cached.method || (int64_t)entry < 0 ||
		     len > (uint32_t)lengths - (uint32_t)sizeof(struct rpc_entry)))
		return false;
	if (entry & RPC_HAS_DEADLINE) {
		if (unlikely(len < sizeof(struct rpc_time_left)))
			return false;
		memcpy(&left_us, data + offsetof(struct rpc_time_left, us), sizeof(left_us));
		if (unlikely(rpc_conn_abandoned(c, (uint32_t)(entry >> 48), c->number)))
			return false; /* the slow path checks whether it has a deadline */
		/* subtracts from the entry's len */
		entry -= RPC_HAS_DEADLINE + sizeof(struct rpc_time_left);
		data += sizeof(struct rpc_time_left);
	}
	/* The ack is not ahead of the results, and the next result slot is free. */
	if (unlikely(acked - c->acked > c->published - c->acked || c->published - acked > c->mask))
		return false;
	c->acked = acked;
	exec_charge(GN_WORK_NS, MESSAGE_COST_NS);
	counter_add(&t->count.batches, 1);
	counter_add(&t->count.calls, 1);
	counter_add(&times->calls, 1);
	c->begin_ns = 0;
	c->serving = true;
	delivery = rpc_delivery_of((unsigned)(lengths >> 48));
	rpc_result_open_next(c, delivery);
	memcpy(&r->len, &entry, sizeof(entry));
	r->data = data;
	r->number = c->number;
	r->left_us = left_us;
	r->is_bits = rpc_fast_bits(delivery);
	r->begin_ns = 0;
	r->times = times;
	if (unlikely(!times->untimed)) {
		request_run_timed(t->cached.fn, t->cached.arg, r);
		finish_single(c, r);
		return true;
	}
	times->untimed--;
	t->cached.fn(r, t->cached.arg);
	if (unlikely(!rpc_request_answered_fast(r) || c->slow_path)) {
		finish_single(c, r);
		return true;
	}
	c->serving = false;
	c->taken = c->number;
	rpc_conn_next(c, c->number + 1);
	rpc_seal_open_message(c, RPC_RESULT, (uint16_t)r->times->last_us);
	return true;
}

int rpc_conn_serve_ready(struct rpc_conn *c)
{
	int served = 0;

	do {
		if (unlikely(c->link.state != LINK_UP || !serve_single(c)))
			return served + serve_all(c);
	} while (++served <= (int)c->mask && rpc_conn_ready(c));
	return served;
}

/* ---- queries of a handler ---- */

unsigned gn_rpc_request_method(const struct gn_rpc_request *request)
{
	return request->method;
}

/* On another thread than the handler's: the bytes must survive the handler's return. */
static no_inline const void *request_data_copied(struct gn_rpc_request *r)
{
	uint32_t bytes = __atomic_load_n(&r->is.bytes, __ATOMIC_ACQUIRE);

	if (bytes == RPC_IN_SLOT && !exec_is_owner(r->conn->thread->id))
		rpc_request_copy_out(r);
	/* If another thread is copying, wait for that copy: the slot may be overwritten soon. */
	while ((bytes = __atomic_load_n(&r->is.bytes, __ATOMIC_ACQUIRE)) == RPC_COPYING)
		gn_yield();
	return bytes == RPC_COPIED && r->copy ? r->copy : r->data;
}

const void *gn_rpc_request_data(struct gn_rpc_request *r, uint32_t *len_bytes)
{
	if (len_bytes)
		*len_bytes = r->len;
	if (unlikely(!exec_is_owner(r->owner) || r->is.state != RPC_REQ_RUNNING))
		return request_data_copied(r);
	return r->data;
}

uint64_t gn_rpc_request_client(const struct gn_rpc_request *request)
{
	return request->conn->client;
}

unsigned gn_rpc_request_thread(const struct gn_rpc_request *request)
{
	return request->conn->thread->index;
}
