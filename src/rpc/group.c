/* SPDX-License-Identifier: MIT */
/*
 * Groups: calls of one message that one handler receives together. The handler answers all calls
 * before it returns, so a call needs no struct gn_rpc_request, unless its result has to wait for a
 * slot.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/fail.h"
#include "rpc/fastpath.h"

/* ---- queries of a handler ---- */

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

/* Release a result buffer that was not used. */
static void group_drop_room(struct gn_rpc_group *g)
{
	g->conn->room_owner = g->room = NULL;
	g->fast = rpc_fast_bits(g->delivery);
	if (unlikely(g->kept))
		rpc_answer_free(g->conn, &g->keep);
	g->kept = false;
}

static inline bool group_is_pending(const struct gn_rpc_group *g, unsigned i)
{
	return i < GN_RPC_GROUP_MAX && g->pending >> i & 1;
}

/* Marks the call as answered. False: it is not in the group, or was answered before. */
static bool group_claim(struct gn_rpc_group *g, unsigned i)
{
	if (likely(group_is_pending(g, i))) {
		g->pending &= ~(1ull << i);
		return true;
	}
	gn_fail_log(0, "rpc: call %u of a group of %u does not exist, or is answered twice", i,
		    g->n);
	return false;
}

/* A result of len bytes fits the open message, and no result buffer has to be released first. */
static inline bool group_fits(const struct gn_rpc_group *g, uint32_t len)
{
	const struct rpc_conn *c = g->conn;

	return likely(c->fast == g->fast && rpc_result_fits(c, len));
}

/*
 * rpc_result_append() without copying the bytes and without what group_run() does for the whole
 * group.
 */
static inline uint8_t *group_append(struct gn_rpc_group *g, unsigned i, unsigned status,
				    uint32_t len)
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

/* For a result that is large, or for which no slot is free. */
static void group_answer_as_request(struct gn_rpc_group *g, unsigned i, struct rpc_answer *answer)
{
	struct rpc_conn *c = g->conn;
	struct gn_rpc_request *r = g->request;

	if (!r) {
		r = rpc_request_take(c);
		if (!r) { /* the client has more calls outstanding than its window allows */
			rpc_conn_fail(c);
			rpc_answer_free(c, answer);
			return;
		}
		rpc_request_set(
			r,
			&(struct rpc_entry){.code = g->entry[i].method, .index = g->entry[i].index},
			NULL, g->times, RPC_REQ_BUSY | (uint64_t)g->delivery << 8);
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

/* Memory for a result that cannot be built in a slot. */
static void *group_keep_room(struct gn_rpc_group *g, unsigned i, uint32_t most)
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
	g->fast = GROUP_ROOM;
	return g->room = large ? gn_mem_addr(a.area.mem) : a.copy;
}

static no_inline void *group_room_slow(struct gn_rpc_group *g, unsigned i, uint32_t most)
{
	struct rpc_conn *c = g->conn;

	if (!group_is_pending(g, i)) /* the handler has returned: its connection may be freed */
		return NULL;
	group_drop_room(g);
	if (most > c->max_result || c->held || !rpc_result_open(c, g->delivery, most))
		return group_keep_room(g, i, most);
	return gn_rpc_group_room(g, i, most);
}

void *gn_rpc_group_room(struct gn_rpc_group *g, unsigned i, uint32_t most)
{
	struct rpc_conn *c = g->conn;

	if (unlikely(!group_is_pending(g, i) || !group_fits(g, most)))
		return group_room_slow(g, i, most);
	c->room_owner = g;
	g->most = most;
	g->fast = GROUP_ROOM;
	return g->room = RPC_RACES_SHOW ? c->scratch : rpc_result_at(c);
}

/*
 * Results are sent when the handler has returned or calls another function of the group, not
 * before.
 */
void *gn_rpc_group_put(struct gn_rpc_group *g, unsigned i, unsigned status, uint32_t len)
{
	if (unlikely(RPC_RACES_SHOW || !group_is_pending(g, i) || !group_fits(g, len)))
		return NULL;
	return group_append(g, i, status, len);
}

static void group_answer_kept(struct gn_rpc_group *g, unsigned i, unsigned status, uint32_t len)
{
	struct rpc_answer a = g->keep;

	g->kept = false;
	group_drop_room(g);
	a.status = rpc_status(status);
	a.len = len;
	group_answer_as_request(g, i, &a);
}

static no_inline void group_answer_slow(struct gn_rpc_group *g, unsigned i, unsigned status,
					const void *data, uint32_t len)
{
	struct rpc_conn *c = g->conn;
	const bool in_room = data && data == g->room;

	if (!group_claim(g, i))
		return;
	if (in_room && len > g->most) {
		gn_fail_log(0, "rpc: a result of %u bytes exceeds its buffer of %u", len, g->most);
		status = GN_RPC_FAILED;
		len = 0;
	}
	if (in_room && g->kept) {
		group_answer_kept(g, i, status, len);
		return;
	}
	group_drop_room(g);
	/* A result that was built behind the open message goes before held results. */
	if (in_room || (len <= c->max_result && !c->held && rpc_result_open(c, g->delivery, len)))
		rpc_result_append(c, g->times, g->entry[i].index, rpc_status(status), data, len);
	else
		group_answer_as_request(g, i,
					&(struct rpc_answer){.status = rpc_status(status),
							     .data = data,
							     .len = len});
}

/* A separate function, as for a single request. */
static no_inline void group_answer_long(struct gn_rpc_group *g, unsigned i, unsigned status,
					const void *data, uint32_t len)
{
	rpc_store(group_append(g, i, status, len), data, len);
}

void gn_rpc_group_answer(struct gn_rpc_group *g, unsigned i, unsigned status, const void *data,
			 uint32_t len)
{
	if (unlikely(!group_is_pending(g, i) || !group_fits(g, len))) {
		group_answer_slow(g, i, status, data, len);
		return;
	}
	if (unlikely(len > RPC_STORE_SHORT)) {
		group_answer_long(g, i, status, data, len);
		return;
	}
	rpc_store(group_append(g, i, status, len), data, len);
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

	if (unlikely(!group_claim(g, i))) {
		if (release)
			release(arg);
		return;
	}
	group_drop_room(g);
	group_answer_as_request(g, i, &a);
}

/* ---- running the handler ---- */

static void group_run(const struct rpc_method *method, struct gn_rpc_group *g, uint32_t n,
		      struct rpc_timing *timing)
{
	struct rpc_conn *c = g->conn;

	g->n = n;
	g->pending = UINT64_MAX >> (GN_RPC_GROUP_MAX - n);
	g->fast = rpc_fast_bits(g->delivery);
	g->room = NULL;
	c->open_times = g->times;
	if (unlikely(timing))
		rpc_timing_begin(c, timing, n);
	method->group(g, method->arg);
	group_drop_room(g);
	for (unsigned i = 0; unlikely(g->pending) && i < n; i++)
		if (group_is_pending(g, i))
			gn_rpc_group_answer(g, i, GN_RPC_FAILED, NULL, 0);
	if (unlikely(timing))
		rpc_timing_end(c, timing, n);
}

/*
 * A call of another method can join the group if it has the same handler and is not slow. method
 * NULL: no other method may join.
 */
static bool group_may_join(const struct rpc_method_cache *other, const struct rpc_method *method)
{
	return method && other->def && other->def->group == method->group &&
	       other->def->arg == method->arg && other->times &&
	       other->times->last_us < RPC_TIMED_NS / 1000;
}

/*
 * Collects the entries after the first that belong to the group. Same checks as rpc_entry_flagged()
 * and rpc_entry_plain(), with the entry's head in one load. Returns the size of the group.
 */
static force_inline uint32_t group_take_entries(struct rpc_conn *c, const struct rpc_method *method,
						uint32_t most, const uint8_t **at,
						const uint8_t *end)
{
	struct rpc_thread *t = c->thread;
	struct gn_rpc_group *g = &t->group;
	struct rpc_group_entry *out = &g->entry[1], *const out_end = &g->entry[most];
	const uint32_t *const abandoned = c->abandoned;
	const uint32_t window = c->window, number = c->number;
	const uint8_t *from = *at, *next;
	uint16_t method_id = g->entry[0].method;
	uint32_t counted = 1;

	for (; out < out_end; out++, from = next) {
		const uint8_t *data = from + sizeof(struct rpc_entry);
		uint64_t head;
		uint32_t len;

		exec_preempt();
		/* at the end of the message this is the tail, and no entry fits behind it */
		memcpy(&head, from, sizeof(head));
		len = (uint32_t)head & ~RPC_HAS_DEADLINE;
		next = data + rpc_align8(len);
		if (unlikely(next > end || (int64_t)head < 0)) /* RPC_LARGE */
			break;
		if (head & RPC_HAS_DEADLINE) {
			if (unlikely(len < sizeof(struct rpc_time_left)))
				break;
			if (head >> 48 < window &&
			    unlikely(__atomic_load_n(&abandoned[head >> 48], __ATOMIC_RELAXED) ==
				     number))
				break; /* the slow path checks whether it has a deadline */
			data += sizeof(struct rpc_time_left);
			/* subtracts from the entry's len */
			head -= RPC_HAS_DEADLINE + sizeof(struct rpc_time_left);
		}
		out->data = data;
		memcpy(&out->len, &head, sizeof(head));
		if (likely((uint16_t)(head >> 32) == method_id))
			continue;
		method_id = (uint16_t)(head >> 32);
		if (!group_may_join(rpc_thread_method(t, method_id), method))
			break;
		counter_add(&g->times->calls, (uint32_t)(out - g->entry) - counted);
		counted = (uint32_t)(out - g->entry);
		g->times = t->cached.times;
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
	const struct rpc_method *method = t->cached.def;
	struct rpc_timing timing = {.times = t->cached.times};
	const bool timed = (counter_add(&timing.times->calls, 1), rpc_timing_due(c, timing.times));
	const uint32_t left = cursor->entries - cursor->i + 1;
	/*
	 * A slow method's call runs alone. So does each call after a timed one: deadlines may have
	 * passed.
	 */
	const bool alone = (timed && timing.times->last_us >= RPC_SLOW_US) ||
			   unlikely(c->begin_ns && t->loop.now_ns != c->begin_ns);
	const uint32_t limit = alone ? 1 : GN_RPC_GROUP_MAX;
	const uint8_t *begin = cursor->message + sizeof(struct rpc_head), *at = begin + cursor->at;
	uint32_t n;

	g->times = timing.times;
	g->entry[0] = (struct rpc_group_entry){data, first->len, first->code, first->index};
	n = group_take_entries(c, timed ? NULL : method, left < limit ? left : limit, &at,
			       begin + cursor->len);
	cursor->at = (uint32_t)(at - begin);
	cursor->i += n - 1;
	counter_add(&t->count.calls, n);
	g->conn = c;
	g->request = NULL;
	g->delivery = rpc_delivery_of(cursor->flags);
	group_run(method, g, n, timed ? &timing : NULL);
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
	g->delivery = r->is.delivery;
	g->times = r->times;
	g->entry[0] = (struct rpc_group_entry){r->data, r->len, r->method, r->index};
	group_run(method, g, 1, timing.times && rpc_timing_due(c, timing.times) ? &timing : NULL);
	if (r->is.state == RPC_REQ_BUSY) /* its result is in the message already */
		rpc_request_free(r);
}
