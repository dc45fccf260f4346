/* SPDX-License-Identifier: MIT */
/* Requests: found in a client's memory, taken apart, handed to their handlers. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/mutant.h"
#include "rpc/quick.h"

#define PIECES	   6u	/* of large requests, read at once: of RPC_SENDS_BESIDE */
#define MESSAGE_NS 255u /* for where time is simulated: lines that the card wrote, and answers */

/* ---- a request ---- */

/* Of calls that take long, or whose turn it is to be timed. */
no_inline void rpc_timing_begin(struct rpc_conn *c, struct rpc_timing *t, uint32_t n)
{
	struct rpc_times *times = t->times;
	const bool always = times->last_us >= RPC_TIMED_NS / 1000;

	t->n = n;
	counter_add(&times->open, n);
	t->slow = times->last_us >= RPC_SLOW_US;
	/* At no regular distance: calls have rhythms of their own. */
	times->untimed = always ? 0 : 8 + ((uint32_t)times->calls * 0x9e3779b1u >> 30);
	t->begin_ns = link_loop_clock(&c->thread->loop);
	if (t->slow)
		rpc_seal_results(c);
	t->alone = t->slow || !c->begin_ns;
	if (t->alone)
		c->begin_ns = t->begin_ns;
}

/*
 * A message's time goes to the method of its last call: a method that was never last has no time of
 * its own but this.
 */
static void rpc_timing_note(const struct rpc_timing *t, uint64_t ns)
{
	rpc_times_last(t->times, ns);
	if (!t->times->count)
		rpc_times_add(t->times, ns, t->n);
}

no_inline void rpc_timing_end(struct rpc_conn *c, const struct rpc_timing *t, uint32_t n)
{
	if (!t->alone && n)
		rpc_timing_note(t, (gn_now_ns() - t->begin_ns) / n);
	if (t->slow) {
		rpc_seal_results(c);
		c->begin_ns = 0;
	}
	counter_add(&t->times->open, -(uint64_t)t->n);
}

void rpc_request_settle(struct gn_rpc_request *r)
{
	struct gn_rpc_request **at = &r->conn->idle;

	while (*at != r) /* others may have become idle since */
		at = &(*at)->next;
	*at = r->next;
	r->conn->n_busy++;
	__atomic_store_n(&r->is.state, RPC_BUSY, __ATOMIC_RELAXED);
}

/*
 * The clock is worth its price where something takes long, and now and then. Of a batch all is
 * timed together, and each by itself only if that took long.
 */
static no_inline void run_timed(gn_rpc_handler *fn, void *arg, struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	struct rpc_timing timing = {.times = r->times};

	rpc_timing_begin(c, &timing, 1);
	r->begin_ns = timing.begin_ns;
	fn(r, arg);
	rpc_timing_end(c, &timing, r->is.state != RPC_BUSY && r->is.state != RPC_RUNNING);
}

static force_inline void run(struct rpc_conn *c, const struct rpc_known *known,
			     struct gn_rpc_request *r)
{
	counter_add(&r->times->calls, 1);
	if (likely(!rpc_timing_due(c, r->times)))
		known->fn(r, known->arg);
	else
		run_timed(known->fn, known->arg, r);
}

/* The long way, of one that is RPC_BUSY. */
static void handle(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	struct rpc_thread *t = c->thread;
	const struct rpc_known *known = rpc_thread_know(t, r->method);

	r->times = known->times; /* there may have been no memory for it when the request came */
	r->is.state = RPC_BUSY;
	if (unlikely(t->draining)) {
		gn_rpc_answer(r, GN_RPC_BUSY, NULL, 0);
		return;
	}
	if (r->left_us && (rpc_conn_given_up(c, r->index, r->number) ||
			   (r->begin_ns && t->loop.now_ns >= r->begin_ns + r->left_us * 1000ull))) {
		gn_rpc_answer(r, GN_RPC_TIMEOUT, NULL, 0);
		return;
	}
	counter_add(&t->count.calls, 1);
	c->current = r;
	if (known->fn)
		run(c, known, r);
	else if (known->how && known->how->group)
		rpc_group_serve_one(known->how, r);
	else
		gn_rpc_answer(r, known->how ? GN_RPC_BUSY : GN_RPC_NO_METHOD, NULL, 0);
	c->current = NULL;
	c->room = NULL;
}

/* ---- one that is answered later ---- */

void rpc_request_copy_out(struct gn_rpc_request *r)
{
	uint32_t is = RPC_IN_SLOT;

	if (!__atomic_compare_exchange_n(&r->is.bytes, &is, RPC_COPYING, false, __ATOMIC_RELAXED,
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
	__atomic_store_n(&r->is.bytes, is, __ATOMIC_RELEASE);
}

/* The handler has returned without an answer. */
static void defer(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	if (r->is.state == RPC_RUNNING)
		rpc_request_settle(r);
	c->room = NULL;
	r->deferred = r->times;
	if (r->deferred)
		counter_add(&r->times->open, 1);
	if (!r->begin_ns)
		__atomic_store_n(&r->begin_ns, gn_now_ns(), __ATOMIC_RELAXED);
	rpc_request_copy_out(r);
	if (__atomic_load_n(&r->is.bytes, __ATOMIC_ACQUIRE) == RPC_APART)
		return;
	/* There is no memory, or another thread is just copying and not worth waiting for. */
	r->is.keeps_slot = true;
	c->keep_slot[r->number & c->mask]++;
	c->n_kept++;
	rpc_conn_attend(c);
}

/* … perhaps: it was not answered quickly. */
static no_inline void unanswered(struct gn_rpc_request *r)
{
	if (r->is.state == RPC_RUNNING || r->is.state == RPC_BUSY)
		defer(r);
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
	if (r->is.keeps_slot) {
		r->is.keeps_slot = false;
		c->keep_slot[r->number & c->mask]--;
		c->n_kept--;
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
	return rpc_thread_post(c, &wr, rpc_post_send);
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
	const struct rpc_method *method = rpc_thread_know(c->thread, r->method)->how;
	unsigned status = GN_RPC_OK;

	memcpy(&r->from, r->data, sizeof(r->from));
	r->data = NULL;
	r->len = r->from.len;
	r->asked = r->done = r->fresh = 0;
	r->is.state = RPC_BUSY;
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
	r->is.state = RPC_COMING;
	r->later = NULL;
	*c->far_end = r;
	c->far_end = &r->later;
	if (method && method->flags & GN_RPC_ORDERED && !mutant("rpc-overtake", 8))
		c->ordered = r;
	rpc_conn_attend(c);
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
	c->begin_ns = r->begin_ns;
	c->serving = true;
	handle(r);
	c->serving = false;
	rpc_seal_results(c);
	if (!ordered)
		return;
	c->ordered = NULL;
	rpc_conn_attend(c);
	rpc_conn_unpark(c);
	rpc_conn_serve(c);
}

/* ---- a message ---- */

/* One that is large, whose caller has given up, or that has no handler. False: nonsense. */
static no_inline bool take_rare(struct rpc_conn *c, struct rpc_entry entry, const uint8_t *data,
				enum rpc_way way)
{
	const bool far = entry.index & RPC_FAR;
	struct gn_rpc_request *r;
	struct rpc_left left = {0};

	if (entry.len & RPC_TIMED) {
		entry.len &= ~RPC_TIMED;
		if (entry.len < sizeof(left))
			return false;
		memcpy(&left, data, sizeof(left));
		data += sizeof(left);
		entry.len -= (uint32_t)sizeof(left);
	}
	if (far && entry.len != sizeof(struct rpc_far))
		return false;
	r = rpc_request_take(c);
	if (!r)
		return false;
	entry.index &= RPC_INDEX;
	rpc_request_set(r, &entry, data, c->thread->known.times, RPC_BUSY | (uint64_t)way << 8);
	r->left_us = left.us;
	if (far) {
		r->is.bytes = RPC_APART;
		begin_far(r);
		return true;
	}
	handle(r);
	if (r->is.state == RPC_BUSY)
		defer(r);
	return true;
}

/* A group, or what is rare. False: nonsense. */
static no_inline bool take_otherwise(struct rpc_conn *c, struct rpc_entry entry,
				     const uint8_t *data, struct rpc_cursor *at)
{
	const struct rpc_known *known = &c->thread->known;
	uint32_t left_us;

	if (known->how && known->how->group && known->times && !c->thread->draining &&
	    rpc_entry_plain(c, &entry, &data, &left_us)) {
		rpc_group_serve(c, &entry, data, at);
		return true;
	}
	return take_rare(c, entry, data, rpc_way(at->flags));
}

/* False: no client of ours, nonsense. It ends early, to go on, when a large request is ordered. */
static force_inline bool take_entries(struct rpc_conn *c, struct rpc_cursor *cursor)
{
	struct rpc_thread *t = c->thread;
	struct rpc_cursor at = *cursor, rare; /* at: in registers */
	const uint64_t word = rpc_quick_word(rpc_way(at.flags));
	uint32_t left_us;
	struct rpc_entry entry;
	const uint8_t *data;
	bool good = true;

	while (at.i < at.entries) {
		const struct rpc_known *known;
		struct gn_rpc_request *r;

		good = rpc_entry_with(at.message, at.len, &at.at, &entry, &data, RPC_TIMED);
		if (unlikely(!good))
			break;
		at.i++;
		known = rpc_thread_know(t, entry.kind);
		if (unlikely(!known->fn || !rpc_entry_plain(c, &entry, &data, &left_us))) {
			rare = at;
			good = take_otherwise(c, entry, data, &rare);
			at = rare;
			if (!good || c->ordered)
				break;
			continue;
		}
		r = c->idle;
		if (unlikely(!r)) {
			good = rpc_conn_grow(c);
			if (!good)
				break;
			r = c->idle;
		}
		rpc_request_set(r, &entry, data, known->times, word);
		r->left_us = left_us;
		counter_add(&t->count.calls, 1);
		run(c, known, r);
		if (unlikely(!rpc_answered_quickly(r)))
			unanswered(r);
	}
	*cursor = at;
	return good;
}

/*
 * Its sequence is there: is all of it? The head is copied once the tail was seen, and only the copy
 * is used: lengths is its len, aux and flags. As rpc_look(), which looks for those whose checksum
 * decides.
 */
static force_inline bool look_closer(const struct rpc_conn *c, uint64_t *lengths, uint32_t *acked)
{
	const uint64_t *words = rpc_conn_word(c);
	const uint32_t len = (uint32_t)__atomic_load_n(&words[1], __ATOMIC_RELAXED);
	const uint32_t more = len - (uint32_t)sizeof(struct rpc_entry);
	uint64_t tail;

	/* From an entry to max_len bytes, and a multiple of 8: else the rotation is large. */
	if (unlikely((more >> 3 | more << 29) > c->max_more))
		return false;
	if (len > RPC_BATCH_BYTES)
		prefetch_lines((const uint8_t *)words + RPC_ALIGN, len);
	exec_preempt();
	/* What was there before the tail became visible is there now. */
	tail = __atomic_load_n(rpc_tail_of(words, len), __ATOMIC_ACQUIRE);
	if (unlikely(tail != rpc_tail(c->seq, c->nonce)) && !mutant("rpc-tail-unchecked", c->seq))
		return false;
	exec_preempt();
	*lengths = __atomic_load_n(&words[1], __ATOMIC_RELAXED);
	*acked = (uint32_t)(__atomic_load_n(&words[2], __ATOMIC_RELAXED) >> 32);
	/* Before, half of the head may have been that of the slot's last message. */
	return likely((uint32_t)*lengths == len) || mutant("rpc-double-fetch", MUTANT_ALWAYS);
}

static no_inline bool look_checked(const struct rpc_conn *c, uint64_t *lengths, uint32_t *acked)
{
	struct rpc_head head;

	if (rpc_look(c->message, c->request_stride, c->seq, c->nonce, c->max_len, true, &head) !=
	    RPC_FOUND)
		return false;
	memcpy(lengths, &head.len, sizeof(*lengths));
	*acked = head.word;
	return true;
}

/* The next message; false: there is none. acked: which results its client does not need. */
static force_inline bool find_message(struct rpc_conn *c, struct rpc_cursor *at, uint32_t *acked)
{
	uint64_t lengths;
	const uint64_t seq = __atomic_load_n(rpc_conn_word(c), __ATOMIC_ACQUIRE);
	bool found;

	if (mutant("rpc-epoch-unchecked", 8) && (uint32_t)seq == (uint32_t)c->seq)
		c->seq = seq;
	if (seq != c->seq)
		return false;
	if (likely(!c->check_request))
		found = look_closer(c, &lengths, acked);
	else
		found = look_checked(c, &lengths, acked);
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

/* False: nonsense. */
static force_inline bool begin_message(struct rpc_conn *c, uint32_t entries, uint32_t acked)
{
	struct rpc_thread *t = c->thread;

	if (unlikely(c->rare) && c->n_kept && c->number - c->taken > c->mask + 1)
		return false;
	if (unlikely(!rpc_conn_acked(c, acked)))
		return false;
	exec_charge(GN_WORK_NS, MESSAGE_NS);
	counter_add(&t->count.batches, 1);
	c->begin_ns = 0;
	if (entries > 1)
		c->begin_ns = link_loop_clock(&t->loop);
	return true;
}

/* The message, or the rest of it, is there. */
static force_inline void serve_message(struct rpc_conn *c, struct rpc_cursor *at)
{
	struct rpc_cursor again = *at;

	c->serving = true;
	if (!c->open)
		rpc_result_begin(c, rpc_way(at->flags));
	if (mutant("rpc-run-twice", c->number))
		take_entries(c, &again);
	if (unlikely(!take_entries(c, at)))
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

/* What is not there with every turn. How many messages. */
static no_inline int attend(struct rpc_conn *c)
{
	struct rpc_cursor at = c->rest;

	if (!c->attend)
		return 0;
	rpc_conn_look_acked(c);
	rpc_conn_tell_taken(c);
	if (!at.message || c->ordered || c->link.state != LINK_UP)
		return 0;
	c->rest.message = NULL;
	c->begin_ns = 0;
	serve_message(c, &at);
	rpc_conn_attend(c);
	return 1;
}

static no_inline int serve_all(struct rpc_conn *c)
{
	struct rpc_cursor at;
	uint32_t acked;
	int served = 0;

	if (unlikely(c->rare))
		served = attend(c);
	/* A request may overtake the news of its connection, before which no promise is known. */
	while (likely(c->link.state == LINK_UP) && likely(!c->rare || !c->ordered) &&
	       find_message(c, &at, &acked)) {
		if (likely(begin_message(c, at.entries, acked)))
			serve_message(c, &at);
		else
			rpc_conn_fail(c);
		if (++served > (int)c->mask)
			break; /* others wait, too */
	}
	if (!served) {
		exec_charge(GN_WORK_SCAN, 1);
		return 0;
	}
	c->heard = true;
	if (unlikely(c->taken != c->taken_told))
		rpc_conn_tell_taken(c);
	return served;
}

/* The rest of serve_single(), if there is more to be done than to seal the message. */
static no_inline void finish_single(struct rpc_conn *c, struct gn_rpc_request *r)
{
	if (!rpc_answered_quickly(r))
		unanswered(r);
	c->serving = false;
	c->heard = true;
	rpc_conn_next(c, c->number + 1);
	rpc_conn_advance(c);
	rpc_seal_results(c);
	if (c->taken != c->taken_told)
		rpc_conn_tell_taken(c);
}

/*
 * The same, for what most messages are: one request, of the method that was looked up last, and
 * nothing else to think of. It has the checks of look_closer(), begin_message(), take_entries() and
 * serve_message(). False: it is not so, and nothing was done.
 */
static force_inline bool serve_single(struct rpc_conn *c)
{
	struct rpc_thread *t = c->thread;
	struct rpc_times *times = t->known.times;
	struct gn_rpc_request *r = c->idle;
	const uint8_t *data = c->message + sizeof(struct rpc_head) + sizeof(struct rpc_entry);
	uint64_t lengths, entry;
	uint32_t acked, len, left_us = 0;
	enum rpc_way way;

	if (unlikely(!t->known.fn || !r || c->rare) || mutant("rpc-epoch-unchecked", 8) ||
	    unlikely(!look_closer(c, &lengths, &acked)) || unlikely((uint16_t)(lengths >> 32) != 1))
		return false;
	exec_preempt();
	memcpy(&entry, data - sizeof(entry), sizeof(entry));
	len = (uint32_t)entry & ~RPC_TIMED;
	if (unlikely((uint16_t)(entry >> 32) != t->known.method || (int64_t)entry < 0 ||
		     len > (uint32_t)lengths - (uint32_t)sizeof(struct rpc_entry)))
		return false;
	if (entry & RPC_TIMED) {
		if (unlikely(len < sizeof(struct rpc_left)))
			return false;
		memcpy(&left_us, data + offsetof(struct rpc_left, us), sizeof(left_us));
		if (unlikely(rpc_conn_given_up(c, (uint32_t)(entry >> 48), c->number)))
			return false; /* it may have no deadline, which is looked at then */
		entry -= RPC_TIMED + sizeof(struct rpc_left); /* of its len */
		data += sizeof(struct rpc_left);
	}
	/* It acknowledges no result that it has not got, and there is a slot for the next. */
	if (unlikely(acked - c->acked > c->placed - c->acked || c->placed - acked > c->mask))
		return false;
	c->acked = acked;
	exec_charge(GN_WORK_NS, MESSAGE_NS);
	counter_add(&t->count.batches, 1);
	counter_add(&t->count.calls, 1);
	counter_add(&times->calls, 1);
	c->begin_ns = 0;
	c->serving = true;
	way = rpc_way((unsigned)(lengths >> 48));
	rpc_result_open_next(c, way);
	memcpy(&r->len, &entry, sizeof(entry));
	r->data = data;
	r->number = c->number;
	r->left_us = left_us;
	r->word = rpc_quick_word(way);
	r->begin_ns = 0;
	r->times = times;
	if (unlikely(!times->untimed)) {
		run_timed(t->known.fn, t->known.arg, r);
		finish_single(c, r);
		return true;
	}
	times->untimed--;
	t->known.fn(r, t->known.arg);
	if (unlikely(!rpc_answered_quickly(r) || c->rare)) {
		finish_single(c, r);
		return true;
	}
	c->serving = false;
	c->taken = c->number;
	rpc_conn_next(c, c->number + 1);
	rpc_seal_open(c, RPC_RESULT, (uint16_t)r->times->last_us);
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

/* ---- what a handler may ask ---- */

unsigned gn_rpc_request_method(const struct gn_rpc_request *request)
{
	return request->method;
}

/* While the handler runs, and perhaps returns, another thread gets bytes that stay. */
static no_inline const void *data_apart(struct gn_rpc_request *r)
{
	uint32_t bytes = __atomic_load_n(&r->is.bytes, __ATOMIC_ACQUIRE);

	if (bytes == RPC_IN_SLOT && !exec_is_owner(r->conn->thread->id))
		rpc_request_copy_out(r);
	/* A copy that another thread has begun is the only one: the slot may be written soon. */
	while ((bytes = __atomic_load_n(&r->is.bytes, __ATOMIC_ACQUIRE)) == RPC_COPYING)
		gn_yield();
	return bytes == RPC_APART && r->copy ? r->copy : r->data;
}

const void *gn_rpc_request_data(struct gn_rpc_request *r, uint32_t *len_bytes)
{
	if (len_bytes)
		*len_bytes = r->len;
	if (unlikely(!exec_is_owner(r->owner) || r->is.state != RPC_RUNNING))
		return data_apart(r);
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
