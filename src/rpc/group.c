/* SPDX-License-Identifier: MIT */
/*
 * Groups: calls of one message that their handler is given together. It ends them before it
 * returns, so none of them needs a struct gn_rpc_request, unless its result has to wait for a slot.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/fail.h"
#include "rpc/quick.h"

/* ---- what a handler may ask ---- */

unsigned gn_rpc_group_size(const struct gn_rpc_group *g)
{
	return g->n;
}

unsigned gn_rpc_group_method(const struct gn_rpc_group *g, unsigned i)
{
	return g->entry[i].method;
}

const void *gn_rpc_group_data(const struct gn_rpc_group *g, unsigned i, uint32_t *len_bytes)
{
	*len_bytes = g->entry[i].len;
	return g->entry[i].data;
}

uint64_t gn_rpc_group_client(const struct gn_rpc_group *g)
{
	return g->conn->client;
}

unsigned gn_rpc_group_thread(const struct gn_rpc_group *g)
{
	return g->conn->thread->index;
}

/* ---- answers ---- */

/* Room that was not used, and is not kept any more. */
static void drop_room(struct gn_rpc_group *g)
{
	g->conn->room = g->room = NULL;
	g->quick = rpc_quick_word(g->way);
	if (unlikely(g->kept))
		rpc_answer_free(g->conn, &g->keep);
	g->kept = false;
}

/* Is it one of the group, and not answered? */
static inline bool is_pending(const struct gn_rpc_group *g, unsigned i)
{
	return i < GN_RPC_GROUP_MAX && g->pending >> i & 1;
}

/* … and not any more. */
static bool claim(struct gn_rpc_group *g, unsigned i)
{
	if (likely(is_pending(g, i))) {
		g->pending &= ~(1ull << i);
		return true;
	}
	gn_fail_log(0, "rpc: call %u of a group of %u is none, or is answered twice", i, g->n);
	return false;
}

/* A result of so many bytes goes into the open message, and no room is to be dropped for it. */
static inline bool fits(const struct gn_rpc_group *g, uint32_t len)
{
	const struct rpc_conn *c = g->conn;

	return likely(c->quick == g->quick && rpc_result_fits(c, len));
}

/* rpc_result_append(), without the bytes, and what run() has done for all of them. */
static inline uint8_t *append(struct gn_rpc_group *g, unsigned i, unsigned status, uint32_t len)
{
	struct rpc_conn *c = g->conn;
	uint8_t *to = c->put;
	uint64_t entry;

	memcpy(&entry, &g->entry[i].len, sizeof(entry));
	entry = entry >> 48 << 48 | (uint64_t)rpc_status(status) << 32 | len;
	rpc_store(to, &entry, sizeof(entry));
	c->put = to + rpc_result_bytes(len);
	c->entries++;
	g->pending &= ~(1ull << i);
	return to + sizeof(entry);
}

/* The long way, which a result goes that is large, or that no slot is free for. */
static void answer_apart(struct gn_rpc_group *g, unsigned i, struct rpc_answer *answer)
{
	struct rpc_conn *c = g->conn;
	struct gn_rpc_request *r = g->request;

	if (!r) {
		r = rpc_request_take(c);
		if (!r) { /* it has begun more calls than its window has */
			rpc_conn_fail(c);
			rpc_answer_free(c, answer);
			return;
		}
		rpc_request_set(
			r,
			&(struct rpc_entry){.kind = g->entry[i].method, .index = g->entry[i].index},
			NULL, g->times, RPC_BUSY | (uint64_t)g->way << 8);
	}
	r->is.answered = true;
	r->answer = *answer;
	if (unlikely(r->answer.len > c->thread->server->opts.max_large &&
		     r->answer.len > c->max_result)) {
		r->answer.status = GN_RPC_TOO_BIG;
		r->answer.len = 0;
	}
	rpc_answer(r);
}

/* Memory for a result that cannot be put together in a slot. */
static void *keep_room(struct gn_rpc_group *g, unsigned i, uint32_t most)
{
	struct rpc_conn *c = g->conn;
	struct gn_rpc_server *server = c->thread->server;
	const bool large = most > c->max_result;
	const uint64_t bytes = large ? rpc_area_bytes(most) : most;
	struct rpc_answer a = {.charged = bytes};

	if (large && most > server->opts.max_large) {
		gn_rpc_group_answer(g, i, GN_RPC_TOO_BIG, NULL, 0);
		return NULL;
	}
	if (rpc_charge(c, bytes, large)) {
		if (!large)
			a.data = a.copy = gn_alloc(most + 1u, 0);
		else if (!rpc_area_make(server->fabric, c->pd, most, GN_REMOTE_READ, &a.area))
			a.data = gn_mem_addr(a.area.mem);
		if (!a.data)
			rpc_uncharge(c, bytes);
	}
	if (!a.data) {
		gn_rpc_group_answer(g, i, GN_RPC_BUSY, NULL, 0);
		return NULL;
	}
	g->keep = a;
	g->kept = true;
	g->most = most;
	g->quick = GROUP_ROOM;
	return g->room = large ? gn_mem_addr(a.area.mem) : a.copy;
}

static no_inline void *room_slowly(struct gn_rpc_group *g, unsigned i, uint32_t most)
{
	struct rpc_conn *c = g->conn;

	if (!is_pending(g, i)) /* of a handler that has returned: its connection may be gone */
		return NULL;
	drop_room(g);
	if (most > c->max_result || c->held || !rpc_result_open(c, g->way, most))
		return keep_room(g, i, most);
	return gn_rpc_group_room(g, i, most);
}

void *gn_rpc_group_room(struct gn_rpc_group *g, unsigned i, uint32_t most)
{
	struct rpc_conn *c = g->conn;

	if (unlikely(!is_pending(g, i) || !fits(g, most)))
		return room_slowly(g, i, most);
	c->room = g;
	g->most = most;
	g->quick = GROUP_ROOM;
	return g->room = RPC_RACES_SHOW ? c->scratch : rpc_result_at(c);
}

/* Results are not sent before the handler has returned, or calls something else of the group. */
void *gn_rpc_group_put(struct gn_rpc_group *g, unsigned i, unsigned status, uint32_t len)
{
	if (unlikely(RPC_RACES_SHOW || !is_pending(g, i) || !fits(g, len)))
		return NULL;
	return append(g, i, status, len);
}

static void answer_kept(struct gn_rpc_group *g, unsigned i, unsigned status, uint32_t len)
{
	struct rpc_answer a = g->keep;

	g->kept = false;
	drop_room(g);
	a.status = rpc_status(status);
	a.len = len;
	answer_apart(g, i, &a);
}

static no_inline void answer_slowly(struct gn_rpc_group *g, unsigned i, unsigned status,
				    const void *data, uint32_t len)
{
	struct rpc_conn *c = g->conn;
	const bool in_room = data && data == g->room;

	if (!claim(g, i))
		return;
	if (in_room && len > g->most) {
		gn_fail_log(0, "rpc: a result of %u bytes was put into room for %u", len, g->most);
		status = GN_RPC_FAILED;
		len = 0;
	}
	if (in_room && g->kept) {
		answer_kept(g, i, status, len);
		return;
	}
	drop_room(g);
	/* What was put together behind the open message goes before others that wait. */
	if (in_room || (len <= c->max_result && !c->held && rpc_result_open(c, g->way, len)))
		rpc_result_append(c, g->times, g->entry[i].index, rpc_status(status), data, len);
	else
		answer_apart(g, i,
			     &(struct rpc_answer){
				     .status = rpc_status(status), .data = data, .len = len});
}

/* By itself, as that of one request. */
static no_inline void answer_long(struct gn_rpc_group *g, unsigned i, unsigned status,
				  const void *data, uint32_t len)
{
	rpc_store(append(g, i, status, len), data, len);
}

void gn_rpc_group_answer(struct gn_rpc_group *g, unsigned i, unsigned status, const void *data,
			 uint32_t len)
{
	if (unlikely(!is_pending(g, i) || !fits(g, len))) {
		answer_slowly(g, i, status, data, len);
		return;
	}
	if (unlikely(len > RPC_STORE_SHORT)) {
		answer_long(g, i, status, data, len);
		return;
	}
	rpc_store(append(g, i, status, len), data, len);
}

void gn_rpc_group_answer_mem(struct gn_rpc_group *g, unsigned i, unsigned status,
			     struct gn_mem *mem, size_t offset, uint32_t len,
			     void (*release)(void *arg), void *arg)
{
	const bool inside = offset <= gn_mem_size(mem) && len <= gn_mem_size(mem) - offset;
	struct rpc_answer a = {
		.status = rpc_status(inside ? status : (unsigned)GN_RPC_TOO_BIG),
		.data = (const uint8_t *)gn_mem_addr(mem) + offset,
		.len = inside ? len : 0,
		.mem = mem,
		.offset = offset,
		.release = release,
		.arg = arg,
	};

	if (unlikely(!claim(g, i))) {
		if (release)
			release(arg);
		return;
	}
	drop_room(g);
	answer_apart(g, i, &a);
}

/* ---- its handler ---- */

static void run(const struct rpc_method *method, struct gn_rpc_group *g, uint32_t n,
		struct rpc_timing *timing)
{
	struct rpc_conn *c = g->conn;

	g->n = n;
	g->pending = UINT64_MAX >> (GN_RPC_GROUP_MAX - n);
	g->quick = rpc_quick_word(g->way);
	g->room = NULL;
	c->open_times = g->times;
	if (unlikely(timing))
		rpc_timing_begin(c, timing, n);
	method->group(g, method->arg);
	drop_room(g);
	for (unsigned i = 0; unlikely(g->pending) && i < n; i++)
		if (is_pending(g, i))
			gn_rpc_group_answer(g, i, GN_RPC_FAILED, NULL, 0);
	if (unlikely(timing))
		rpc_timing_end(c, timing, n);
}

/* Another method may go along, if it has the same handler and is not slow. method NULL: none. */
static bool goes_along(const struct rpc_known *other, const struct rpc_method *method)
{
	return method && other->how && other->how->group == method->group &&
	       other->how->arg == method->arg && other->times &&
	       other->times->last_us < RPC_TIMED_NS / 1000;
}

/*
 * Those behind the first entry that go with it, as rpc_entry_with() and rpc_entry_plain() take them
 * apart, but all of a head in one word. Returns how many there are with the first.
 */
static force_inline uint32_t take_group(struct rpc_conn *c, const struct rpc_method *method,
					uint32_t most, const uint8_t **at, const uint8_t *end)
{
	struct rpc_thread *t = c->thread;
	struct gn_rpc_group *g = &t->group;
	struct rpc_group_entry *out = &g->entry[1], *const out_end = &g->entry[most];
	const uint32_t *const given_up = c->given_up;
	const uint32_t window = c->window, number = c->number;
	const uint8_t *from = *at, *next;
	uint16_t kind = g->entry[0].method;
	uint32_t counted = 1;

	for (; out < out_end; out++, from = next) {
		const uint8_t *data = from + sizeof(struct rpc_entry);
		uint64_t head;
		uint32_t len;

		exec_preempt();
		memcpy(&head, from, sizeof(head)); /* or the tail, behind which nothing fits */
		len = (uint32_t)head & ~RPC_TIMED;
		next = data + rpc_align8(len);
		if (unlikely(next > end || (int64_t)head < 0)) /* RPC_FAR */
			break;
		if (head & RPC_TIMED) {
			if (unlikely(len < sizeof(struct rpc_left)))
				break;
			if (head >> 48 < window &&
			    unlikely(__atomic_load_n(&given_up[head >> 48], __ATOMIC_RELAXED) ==
				     number))
				break; /* it may have no deadline, which is looked at then */
			data += sizeof(struct rpc_left);
			head -= RPC_TIMED + sizeof(struct rpc_left); /* of its len */
		}
		out->data = data;
		memcpy(&out->len, &head, sizeof(head));
		if (likely((uint16_t)(head >> 32) == kind))
			continue;
		kind = (uint16_t)(head >> 32);
		if (!goes_along(rpc_thread_know(t, kind), method))
			break;
		counter_add(&g->times->calls, (uint32_t)(out - g->entry) - counted);
		counted = (uint32_t)(out - g->entry);
		g->times = t->known.times;
	}
	*at = from;
	counter_add(&g->times->calls, (uint32_t)(out - g->entry) - counted);
	return (uint32_t)(out - g->entry);
}

void rpc_group_serve(struct rpc_conn *c, const struct rpc_entry *first, const uint8_t *data,
		     struct rpc_cursor *cursor)
{
	struct rpc_thread *t = c->thread;
	struct gn_rpc_group *g = &t->group;
	const struct rpc_method *method = t->known.how;
	struct rpc_timing timing = {.times = t->known.times};
	const bool timed = (counter_add(&timing.times->calls, 1), rpc_timing_due(c, timing.times));
	const uint32_t left = cursor->entries - cursor->i + 1;
	/* A slow one by itself; and each, if one before it was timed: deadlines may have passed. */
	const bool alone = (timed && timing.times->last_us >= RPC_SLOW_US) ||
			   unlikely(c->begin_ns && t->loop.now_ns != c->begin_ns);
	const uint32_t limit = alone ? 1 : GN_RPC_GROUP_MAX;
	const uint8_t *begin = cursor->message + sizeof(struct rpc_head), *at = begin + cursor->at;
	uint32_t n;

	g->times = timing.times;
	g->entry[0] = (struct rpc_group_entry){data, first->len, first->kind, first->index};
	n = take_group(c, timed ? NULL : method, left < limit ? left : limit, &at,
		       begin + cursor->len);
	cursor->at = (uint32_t)(at - begin);
	cursor->i += n - 1;
	counter_add(&t->count.calls, n);
	g->conn = c;
	g->request = NULL;
	g->way = rpc_way(cursor->flags);
	run(method, g, n, timed ? &timing : NULL);
}

void rpc_group_serve_one(const struct rpc_method *method, struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	struct gn_rpc_group *g = &c->thread->group;
	struct rpc_timing timing = {.times = r->times};

	if (timing.times)
		counter_add(&timing.times->calls, 1);
	g->conn = c;
	g->request = r;
	g->way = r->is.way;
	g->times = r->times;
	g->entry[0] = (struct rpc_group_entry){r->data, r->len, r->method, r->index};
	run(method, g, 1, timing.times && rpc_timing_due(c, timing.times) ? &timing : NULL);
	if (r->is.state == RPC_BUSY) /* its result is in the message already */
		rpc_request_free(r);
}
