/* SPDX-License-Identifier: MIT */
/*
 * Results: built in the client's next result slot, then left there for a fetch or written back as a
 * reply. Only the thread that owns the connection does this; other threads post their answers to
 * it.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "rpc/copy.h"
#include "rpc/fastpath.h"

#define SYNC_REPLY_WAIT_US 1000u /* GN_RPC_SYNC_REPLY: longest wait for the completion of a reply */

/*
 * True while a reply is still being written from the next slot. Polls the cq first: usually the
 * WRITE has completed.
 */
bool rpc_result_slot_writing(const struct rpc_conn *c)
{
	const bool *writing = &c->writing[(c->published + 1) & c->mask];

	if (*writing)
		link_loop_poll(&c->thread->loop);
	return *writing;
}

/* ---- a result message ---- */

/*
 * GN_RPC_SYNC_REPLY. The wait is bounded: a client whose card does not respond must not stop the
 * others.
 */
static void reply_wait_sync(struct rpc_conn *c)
{
	const uint64_t deadline_ns = gn_deadline_us(SYNC_REPLY_WAIT_US);
	int rc = 0;

	while (c->sync_pending && c->link.state == LINK_UP && rc != -ETIMEDOUT) {
		struct gn_wait_item item = gn_wait_on(gn_cq_source(c->thread->loop.cq));

		link_loop_poll(&c->thread->loop);
		if (c->sync_pending && c->link.state == LINK_UP)
			rc = gn_wait(&item, 1, deadline_ns, "the completion of a reply");
	}
}

/* A reply was posted and has not completed yet. */
static no_inline void reply_posted(struct rpc_conn *c, uint32_t slot)
{
	const uint32_t flags = c->reply_wr.flags;

	c->unsignaled = flags & GN_SIGNALED ? 0 : c->unsignaled + 1;
	if (!(flags & GN_INLINE)) {
		c->writing[slot] = true;
		c->n_writing++;
		c->writes = true;
	}
	if (!(c->thread->server->opts.flags & GN_RPC_SYNC_REPLY))
		return;
	if (!c->sync_pending++)
		reply_wait_sync(c);
}

/* WRITE the message that was published last, which is in this slot, to its client. */
no_inline void rpc_post_reply(struct rpc_conn *c, uint8_t *from, uint32_t bytes)
{
	const uint32_t slot = c->published & c->mask;
	const struct gn_rpc_server *server = c->thread->server;
	const bool copied = bytes <= server->max_inline;
	const bool sync = server->opts.flags & GN_RPC_SYNC_REPLY;
	struct gn_wr *wr = &c->reply_wr;
	int rc;

	if (unlikely(c->link.state != LINK_UP))
		return;
	wr->id = rpc_reply_id(slot, sync, copied);
	wr->to.remote.offset = (uint64_t)(from - c->results);
	c->reply_sge.addr = from;
	c->reply_sge.len_bytes = bytes;
	/*
	 * At most one reply per slot is outstanding, so one signaled WRITE per round of slots is
	 * enough.
	 */
	wr->flags = (copied ? GN_INLINE : 0) |
		    (sync || !copied || c->unsignaled >= c->mask ? GN_SIGNALED : 0);
	rc = gn_post_one(c->link.qp, wr);
	if (unlikely(rc == -EAGAIN))
		rc = rpc_thread_post(c, wr, gn_post_one);
	if (likely(rc == 1))
		c->unsignaled = 0;
	else if (!rc)
		reply_posted(c, slot);
	else
		rpc_conn_fail(c);
}

/*
 * The server's time for the results of the open message. Also records it for the method of the last
 * result. If this message was not timed, return the method's last measured time.
 */
static uint64_t seal_time_us(struct rpc_conn *c)
{
	struct rpc_times *times = c->open_times;
	uint64_t ns;

	if (!c->begin_ns)
		return times ? times->last_us : 0;
	ns = gn_now_ns() - c->begin_ns;
	c->time_each = ns > c->entries * (uint64_t)RPC_TIMED_NS;
	if (times) {
		rpc_times_add(times, ns, c->entries);
		if (c->entries == 1)
			rpc_times_set_last(times, ns);
	}
	return ns / 1000;
}

/* Flags that only messages on the slow path need. */
static no_inline unsigned seal_slow_flags(struct rpc_conn *c)
{
	const bool ack = c->open_ack || c->thread->draining;

	if (c->parked)
		rpc_conn_unpark(c);
	c->open_ack = false;
	return (c->check_fetch || c->check_request ? RPC_CRC : 0) | (ack ? RPC_WANT_ACK : 0);
}

void rpc_seal_results(struct rpc_conn *c)
{
	unsigned flags = RPC_RESULT;

	if (c->open == RPC_DELIVER_NONE || !rpc_result_len(c)) { /* no handler has answered */
		c->open = RPC_DELIVER_NONE;
		c->fast = 0;
		return;
	}
	if (unlikely(c->slow_path))
		flags |= seal_slow_flags(c);
	c->sealed_len = rpc_result_len(c);
	rpc_seal_open_message(c, (uint16_t)flags, rpc_time_pack(seal_time_us(c)));
	if (unlikely(c->slow_path))
		rpc_conn_notify(c);
}

void rpc_conn_notify(struct rpc_conn *c)
{
	struct gn_wr wr;

	if (!c->notify || c->notifying || (int32_t)(c->published - c->notify) < 0 || c->dead ||
	    mutant("rpc-notify-lost", 8))
		return;
	gn_wr_init(&wr, GN_OP_WRITE_IMM, RPC_NOTIFY_ID, NULL, 0, GN_SIGNALED | GN_SOLICITED);
	c->notify = 0;
	c->notifying = true;
	if (rpc_thread_post(c, &wr, rpc_post_send))
		rpc_conn_fail(c);
	else
		counter_add(&c->thread->count.notifies, 1);
}

bool rpc_result_open(struct rpc_conn *c, enum rpc_delivery delivery, uint32_t len)
{
	if (c->open && (c->open != delivery || !rpc_result_fits(c, len)))
		rpc_seal_results(c);
	if (!c->open)
		rpc_result_begin(c, delivery);
	return c->open;
}

/*
 * Puts the result into the open message. False: no slot is free, or the client has not read enough
 * of its exported results.
 */
static bool answer_place(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	struct rpc_answer *a = &r->answer;
	struct rpc_large_ref ref;

	if (likely(a->len <= c->max_result)) {
		if (!rpc_result_open(c, r->is.delivery, a->len))
			return false;
		rpc_result_append(c, r->times, r->index, a->status, a->data, a->len);
		return true;
	}
	if (c->n_exports >= RPC_EXPORTS_MAX || !rpc_result_open(c, r->is.delivery, sizeof(ref)))
		return false;
	if (rpc_result_export(r, &ref)) {
		rpc_result_append(c, r->times, r->index | RPC_LARGE, a->status, &ref, sizeof(ref));
		c->open_ack = true;
	} else {
		rpc_result_append(c, r->times, r->index, a->status, NULL, 0);
	}
	return true;
}

/*
 * Keeps the result beyond the handler's return. Copies the bytes, unless the handler's memory is
 * referenced until release. The bytes are charged to the client; beyond its limit the result is
 * dropped and the call ends with BUSY. Runs on any thread, so nothing is released here.
 */
static void answer_keep(struct gn_rpc_request *r)
{
	struct rpc_answer *a = &r->answer;

	if (!a->len || a->charged)
		return;
	if (rpc_charge(r->conn, a->len, a->len > r->conn->max_result)) {
		a->copy = a->mem ? NULL : gn_alloc(a->len, 0);
		if (a->copy)
			a->data = memcpy(a->copy, a->data, a->len);
		if (a->copy || a->mem) {
			a->charged = a->len;
			return;
		}
		rpc_uncharge(r->conn, a->len);
	}
	a->status = GN_RPC_BUSY;
	a->len = 0;
}

static void answer_hold(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	/*
	 * the client may have acknowledged results meanwhile: rpc_conn_check_acks() runs for
	 * unparked clients
	 */
	rpc_conn_unpark(c);
	answer_keep(r);
	if (!r->answer.len) { /* drop the memory */
		const uint16_t status = r->answer.status;

		rpc_answer_free(r->conn, &r->answer);
		r->answer.status = status;
	}
	r->is.state = RPC_REQ_HELD;
	r->next = NULL;
	*c->held_end = r;
	c->held_end = &r->next;
	rpc_conn_update_pending(c);
	c->fast = 0;
}

void rpc_answer(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	rpc_abandon_unregister(r);
	if (c->room_owner == r)
		c->room_owner = NULL;
	if (unlikely(r->deferred)) {
		counter_add(&r->times->open, -1ull);
		r->deferred = false;
	}
	if (unlikely(c->dead)) {
		rpc_answer_free(r->conn, &r->answer);
		rpc_request_free(r);
		return;
	}
	if (!c->serving && !c->open)
		c->begin_ns = r->begin_ns;
	/*
	 * Another handler may be building its result behind the open message: that result goes
	 * first.
	 */
	if (unlikely(c->held || c->room_owner || !answer_place(r))) {
		answer_hold(r);
		return;
	}
	if (unlikely(r->answer.copy || r->answer.mem || r->answer.area.mem))
		rpc_answer_free(r->conn, &r->answer);
	if (!c->serving)
		rpc_seal_results(c);
	rpc_request_free(r);
}

void rpc_answer_posted(struct link_task *task)
{
	struct gn_rpc_request *r = container_of(task, struct gn_rpc_request, task);

	if (likely(r->is.state == RPC_REQ_BUSY))
		rpc_answer(r);
	else
		rpc_answer_free(r->conn,
				&r->answer); /* the handler has answered at the same time */
}

/* ---- free slots ---- */

/*
 * The client reads the slot of its next result anyway. Do not write there while a reply is being
 * written from that slot.
 */
void rpc_conn_publish_taken(struct rpc_conn *c)
{
	struct rpc_head *head = (void *)c->result;

	c->taken_unpublished = c->taken != c->taken_published && c->n_writing &&
			       rpc_result_slot_writing(c);
	rpc_conn_update_pending(c);
	if (c->taken_unpublished || c->taken == c->taken_published)
		return;
	__atomic_store_n(&head->ack, rpc_taken_ack(c->taken, 0), __ATOMIC_RELEASE);
	c->taken_published = c->taken;
}

bool rpc_conn_newly_acked(struct rpc_conn *c, uint32_t number)
{
	if (number - c->acked > c->published - c->acked)
		return false;
	c->acked = number;
	if (unlikely(c->exports))
		rpc_exports_release(c, false);
	return true;
}

void rpc_conn_release_held(struct rpc_conn *c)
{
	while (c->held && !c->room_owner) {
		struct gn_rpc_request *r = c->held;

		if (!answer_place(r))
			break;
		c->held = r->next;
		if (!c->held)
			c->held_end = &c->held;
		rpc_answer_free(r->conn, &r->answer);
		rpc_request_free(r);
	}
	rpc_conn_update_pending(c);
	if (!c->serving)
		rpc_seal_results(c);
	else if (c->open && !c->held)
		c->fast = rpc_fast_bits(c->open);
}

void rpc_conn_check_acks(struct rpc_conn *c)
{
	const uint64_t seq = __atomic_load_n(rpc_conn_ack_at(c), __ATOMIC_ACQUIRE);

	c->ack_seen = seq;
	/* Ignore a value that is older than the ack of a request, or was never written. */
	if (seq >> 32 == c->epoch && (int32_t)((uint32_t)seq - c->acked) > 0 &&
	    !rpc_conn_acked(c, (uint32_t)seq))
		rpc_conn_fail(c);
	rpc_conn_release_held(c);
}

/* ---- answers ---- */

static no_inline bool room_open_message(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	return rpc_request_runs(r) && !c->held && !rpc_request_answered(r) &&
	       rpc_result_open(c, r->is.delivery, c->last_len);
}

void *gn_rpc_request_room(struct gn_rpc_request *r, uint32_t *room)
{
	struct rpc_conn *c = r->conn;

	/* If the last result's length fits, assume that this result fits as well. */
	if (unlikely(!rpc_request_is_fast(r) || !rpc_result_fits(c, c->last_len)) &&
	    unlikely(!room_open_message(r))) {
		if (room)
			*room = 0;
		return NULL;
	}
	c->room_owner = r;
	if (room)
		*room = (uint32_t)(c->put_end - rpc_result_at(c));
	if (RPC_RACES_SHOW) /* a handler's own stores are not atomic */
		return c->scratch;
	return rpc_result_at(c);
}

/* Called on another thread than the owner. */
static void answer_post_to_owner(struct gn_rpc_request *r)
{
	answer_keep(r);
	r->task.run = rpc_answer_posted;
	link_loop_post(&r->conn->thread->loop, &r->task);
}

/* False: the request was answered before. This is detected as long as the request is not reused. */
static bool answer_claim(struct gn_rpc_request *r)
{
	const bool first = !__atomic_exchange_n(&r->is.answered, true, __ATOMIC_ACQ_REL);
	/* The handler may return while another thread answers. */
	const uint8_t state = __atomic_load_n(&r->is.state, __ATOMIC_RELAXED);

	if (likely(first && (state == RPC_REQ_BUSY || state == RPC_REQ_RUNNING)))
		return true;
	gn_fail_log(0, "rpc: a request of method %u is answered twice: the second is dropped",
		    r->method);
	return false;
}

static void answer_claimed(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	if (unlikely(!exec_is_owner(c->thread->id))) {
		answer_post_to_owner(r);
		return;
	}
	if (r->is.state == RPC_REQ_RUNNING)
		rpc_request_make_busy(r);
	rpc_answer(r);
}

/*
 * The handler has returned, the result needs a new message or is large, or another thread answers.
 */
static no_inline void answer_slow(struct gn_rpc_request *r, unsigned status, const void *data,
				  uint32_t len_bytes)
{
	struct rpc_conn *c = r->conn;

	if (unlikely(!answer_claim(r)))
		return;
	r->answer.status = rpc_status(status);
	r->answer.data = data;
	r->answer.len = len_bytes;
	if (unlikely(len_bytes > c->thread->server->opts.max_large && len_bytes > c->max_result)) {
		r->answer.status = GN_RPC_TOO_BIG;
		r->answer.len = 0;
	}
	answer_claimed(r);
}

/* A separate function: short results then need no call of memcpy() and no saved register. */
static no_inline void answer_long(struct gn_rpc_request *r, unsigned status, const void *data,
				  uint32_t len_bytes)
{
	struct rpc_conn *c = r->conn;

	__atomic_store_n(&r->is_bits, RPC_ANSWERED_BITS, __ATOMIC_RELAXED);
	c->room_owner = NULL;
	rpc_result_append(c, r->times, r->index, rpc_status(status), data, len_bytes);
}

void gn_rpc_answer(struct gn_rpc_request *r, unsigned status, const void *data, uint32_t len_bytes)
{
	struct rpc_conn *c = r->conn;

	/* A running handler's result goes into the open message. */
	if (unlikely(!rpc_request_is_fast(r) || !rpc_result_fits(c, len_bytes))) {
		answer_slow(r, status, data, len_bytes);
		return;
	}
	if (unlikely(len_bytes > RPC_STORE_SHORT)) {
		answer_long(r, status, data, len_bytes);
		return;
	}
	__atomic_store_n(&r->is_bits, RPC_ANSWERED_BITS, __ATOMIC_RELAXED);
	c->room_owner = NULL;
	rpc_result_append(c, r->times, r->index, rpc_status(status), data, len_bytes);
}

void gn_rpc_answer_mem(struct gn_rpc_request *r, unsigned status, struct gn_mem *mem, size_t offset,
		       uint32_t len_bytes, void (*release)(void *arg), void *arg)
{
	if (unlikely(!answer_claim(r))) {
		if (release)
			release(arg);
		return;
	}
	r->answer = (struct rpc_answer){
		.status = rpc_status(status),
		.data = (const uint8_t *)gn_mem_addr(mem) + offset,
		.len = len_bytes,
		.mem = mem,
		.offset = offset,
		.release = release,
		.arg = arg,
	};
	if ((len_bytes > r->conn->thread->server->opts.max_large &&
	     len_bytes > r->conn->max_result) ||
	    offset > gn_mem_size(mem) || len_bytes > gn_mem_size(mem) - offset) {
		r->answer.status = GN_RPC_TOO_BIG;
		r->answer.len = 0;
	}
	answer_claimed(r);
}
