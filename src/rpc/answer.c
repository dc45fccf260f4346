/* SPDX-License-Identifier: MIT */
/*
 * Results: put together in the next slot of their client, left there or written back. All by the
 * thread that owns the connection; what others answer comes by its queue.
 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "rpc/copy.h"
#include "rpc/quick.h"

#define SYNC_US 1000u /* that a thread waits for the completion of a reply, if it is told to */

/* A reply is still being written from the next slot: mostly it is done, and nobody has looked. */
bool rpc_result_slot_writing(const struct rpc_conn *c)
{
	const bool *writing = &c->writing[(c->placed + 1) & c->mask];

	if (*writing)
		link_loop_poll(&c->thread->loop);
	return *writing;
}

/* ---- a message with results ---- */

/* GN_RPC_SYNC_REPLY: for a while. A client whose card does not answer must not stop the others. */
static void wait_for_reply(struct rpc_conn *c)
{
	const uint64_t deadline_ns = gn_deadline_us(SYNC_US);
	int rc = 0;

	while (c->unsent && c->link.state == LINK_UP && rc != -ETIMEDOUT) {
		struct gn_wait_item item = gn_wait_on(gn_cq_source(c->thread->loop.cq));

		link_loop_poll(&c->thread->loop);
		if (c->unsent && c->link.state == LINK_UP)
			rc = gn_wait(&item, 1, deadline_ns, "the completion of a reply");
	}
}

/* A reply was posted, and is not known to have been executed. */
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
	if (!c->unsent++)
		wait_for_reply(c);
}

/* Write the message that was placed last, in this slot, to its client. */
no_inline void rpc_write_back(struct rpc_conn *c, uint8_t *from, uint32_t bytes)
{
	const uint32_t slot = c->placed & c->mask;
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
	/* There are no more of them under way than slots, so every round has a signal. */
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
 * The server's time for the message's results; also noted for the method of the last of them. Where
 * nobody has looked at the clock, what that method took when somebody has.
 */
static uint64_t time_us(struct rpc_conn *c)
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
			rpc_times_last(times, ns);
	}
	return ns / 1000;
}

/* What a message rarely needs: its flags. */
static no_inline unsigned prepare_rarely(struct rpc_conn *c)
{
	const bool ack = c->open_ack || c->thread->draining;

	if (c->parked)
		rpc_conn_unpark(c);
	c->open_ack = false;
	return (c->check_fetch || c->check_request ? RPC_CRC : 0) | (ack ? RPC_ACK : 0);
}

void rpc_seal_results(struct rpc_conn *c)
{
	unsigned flags = RPC_RESULT;

	if (c->open == RPC_NO_WAY || !rpc_result_len(c)) { /* nobody has answered */
		c->open = RPC_NO_WAY;
		c->quick = 0;
		return;
	}
	if (unlikely(c->rare))
		flags |= prepare_rarely(c);
	c->sealed_len = rpc_result_len(c);
	rpc_seal_open(c, (uint16_t)flags, rpc_time_pack(time_us(c)));
	if (unlikely(c->rare))
		rpc_conn_notify(c);
}

void rpc_conn_notify(struct rpc_conn *c)
{
	struct gn_wr wr;

	if (!c->notify || c->notifying || (int32_t)(c->placed - c->notify) < 0 || c->dead ||
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

bool rpc_result_open(struct rpc_conn *c, enum rpc_way way, uint32_t len)
{
	if (c->open && (c->open != way || !rpc_result_fits(c, len)))
		rpc_seal_results(c);
	if (!c->open)
		rpc_result_begin(c, way);
	return c->open;
}

/* False: there is no slot, or its client has not read enough of what was lent to it. */
static bool place(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;
	struct rpc_answer *a = &r->answer;
	struct rpc_far far;

	if (likely(a->len <= c->max_result)) {
		if (!rpc_result_open(c, r->is.way, a->len))
			return false;
		rpc_result_append(c, r->times, r->index, a->status, a->data, a->len);
		return true;
	}
	if (c->n_lent >= RPC_LENT_MAX || !rpc_result_open(c, r->is.way, sizeof(far)))
		return false;
	if (rpc_lend(r, &far)) {
		rpc_result_append(c, r->times, r->index | RPC_FAR, a->status, &far, sizeof(far));
		c->open_ack = true;
	} else {
		rpc_result_append(c, r->times, r->index, a->status, NULL, 0);
	}
	return true;
}

/*
 * Have the result for longer than the handler's call: its bytes are copied, unless they are in
 * memory that waits to be released, and count against the limits. Beyond them the result is lost.
 * Any thread: so nothing is released here.
 */
static void keep(struct gn_rpc_request *r)
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

static void hold(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	rpc_conn_unpark(c); /* its client may have acknowledged others: that is looked at then */
	keep(r);
	if (!r->answer.len) { /* its memory is not needed */
		const uint16_t status = r->answer.status;

		rpc_answer_free(r->conn, &r->answer);
		r->answer.status = status;
	}
	r->is.state = RPC_HELD;
	r->next = NULL;
	*c->held_end = r;
	c->held_end = &r->next;
	rpc_conn_attend(c);
	c->quick = 0;
}

void rpc_answer(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	rpc_abandon_forget(r);
	if (c->room == r)
		c->room = NULL;
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
	/* Behind the message another handler may be at work: then it is its turn first. */
	if (unlikely(c->held || c->room || !place(r))) {
		hold(r);
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

	if (likely(r->is.state == RPC_BUSY))
		rpc_answer(r);
	else
		rpc_answer_free(r->conn,
				&r->answer); /* its handler has answered at the same time */
}

/* ---- slots that are free again ---- */

/* Where the client looks for its next result, unless the card may be reading there. */
void rpc_conn_tell_taken(struct rpc_conn *c)
{
	struct rpc_head *head = (void *)c->result;

	c->untold = c->taken != c->taken_told && c->n_writing && rpc_result_slot_writing(c);
	rpc_conn_attend(c);
	if (c->untold || c->taken == c->taken_told)
		return;
	__atomic_store_n(&head->word, rpc_state_word(c->taken, 0), __ATOMIC_RELEASE);
	c->taken_told = c->taken;
}

bool rpc_conn_newly_acked(struct rpc_conn *c, uint32_t number)
{
	if (number - c->acked > c->placed - c->acked)
		return false;
	c->acked = number;
	if (unlikely(c->lent))
		rpc_lent_return(c, false);
	return true;
}

void rpc_conn_release_held(struct rpc_conn *c)
{
	while (c->held && !c->room) {
		struct gn_rpc_request *r = c->held;

		if (!place(r))
			break;
		c->held = r->next;
		if (!c->held)
			c->held_end = &c->held;
		rpc_answer_free(r->conn, &r->answer);
		rpc_request_free(r);
	}
	rpc_conn_attend(c);
	if (!c->serving)
		rpc_seal_results(c);
	else if (c->open && !c->held)
		c->quick = rpc_quick_word(c->open);
}

void rpc_conn_look_acked(struct rpc_conn *c)
{
	const uint64_t seq = __atomic_load_n(rpc_conn_ack(c), __ATOMIC_ACQUIRE);

	c->ack_seen = seq;
	/* Older than what a request said, or nothing yet: no news. */
	if (seq >> 32 == c->epoch && (int32_t)((uint32_t)seq - c->acked) > 0 &&
	    !rpc_conn_acked(c, (uint32_t)seq))
		rpc_conn_fail(c);
	rpc_conn_release_held(c);
}

/* ---- answers ---- */

static no_inline bool open_for_room(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	return rpc_request_runs(r) && !c->held && !rpc_request_answered(r) &&
	       rpc_result_open(c, r->is.way, c->last_len);
}

void *gn_rpc_request_room(struct gn_rpc_request *r, uint32_t *room)
{
	struct rpc_conn *c = r->conn;

	/* What was enough for the last result may be enough for this one. */
	if (unlikely(!rpc_request_quickly(r) || !rpc_result_fits(c, c->last_len)) &&
	    unlikely(!open_for_room(r))) {
		if (room)
			*room = 0;
		return NULL;
	}
	c->room = r;
	if (room)
		*room = (uint32_t)(c->put_end - rpc_result_at(c));
	if (RPC_RACES_SHOW) /* a handler's own stores are plain */
		return c->scratch;
	return rpc_result_at(c);
}

/* From another thread than the owner's. */
static void send_answer(struct gn_rpc_request *r)
{
	keep(r);
	r->task.run = rpc_answer_posted;
	link_loop_post(&r->conn->thread->loop, &r->task);
}

/* False: it was answered before. That is told, as long as the request is not used for another. */
static bool claim(struct gn_rpc_request *r)
{
	const bool first = !__atomic_exchange_n(&r->is.answered, true, __ATOMIC_ACQ_REL);
	/* While another thread looks at it, the handler may return. */
	const uint8_t state = __atomic_load_n(&r->is.state, __ATOMIC_RELAXED);

	if (likely(first && (state == RPC_BUSY || state == RPC_RUNNING)))
		return true;
	gn_fail_log(0, "rpc: a request of method %u is answered twice: the second is dropped",
		    r->method);
	return false;
}

static void answer(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	if (unlikely(!exec_is_owner(c->thread->id))) {
		send_answer(r);
		return;
	}
	if (r->is.state == RPC_RUNNING)
		rpc_request_settle(r);
	rpc_answer(r);
}

/* Of a handler that has returned, for which a new message is begun, or that is large … */
static no_inline void answer_slowly(struct gn_rpc_request *r, unsigned status, const void *data,
				    uint32_t len_bytes)
{
	struct rpc_conn *c = r->conn;

	if (unlikely(!claim(r)))
		return;
	r->answer.status = rpc_status(status);
	r->answer.data = data;
	r->answer.len = len_bytes;
	if (unlikely(len_bytes > c->thread->server->opts.max_large && len_bytes > c->max_result)) {
		r->answer.status = GN_RPC_TOO_BIG;
		r->answer.len = 0;
	}
	answer(r);
}

/* By itself: so that few bytes need no call of memcpy(), and no register is saved for one. */
static no_inline void answer_long(struct gn_rpc_request *r, unsigned status, const void *data,
				  uint32_t len_bytes)
{
	struct rpc_conn *c = r->conn;

	__atomic_store_n(&r->word, RPC_ANSWERED_WORD, __ATOMIC_RELAXED);
	c->room = NULL;
	rpc_result_append(c, r->times, r->index, rpc_status(status), data, len_bytes);
}

void gn_rpc_answer(struct gn_rpc_request *r, unsigned status, const void *data, uint32_t len_bytes)
{
	struct rpc_conn *c = r->conn;

	/* The answer of a handler that runs goes into the message with those before it. */
	if (unlikely(!rpc_request_quickly(r) || !rpc_result_fits(c, len_bytes))) {
		answer_slowly(r, status, data, len_bytes);
		return;
	}
	if (unlikely(len_bytes > RPC_STORE_SHORT)) {
		answer_long(r, status, data, len_bytes);
		return;
	}
	__atomic_store_n(&r->word, RPC_ANSWERED_WORD, __ATOMIC_RELAXED);
	c->room = NULL;
	rpc_result_append(c, r->times, r->index, rpc_status(status), data, len_bytes);
}

void gn_rpc_answer_mem(struct gn_rpc_request *r, unsigned status, struct gn_mem *mem, size_t offset,
		       uint32_t len_bytes, void (*release)(void *arg), void *arg)
{
	if (unlikely(!claim(r))) {
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
	answer(r);
}
