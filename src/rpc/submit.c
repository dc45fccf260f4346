/* SPDX-License-Identifier: MIT */
/* A client's calls: added to messages, sent, canceled. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "base/owner.h"
#include "rpc/client.h"
#include "rpc/copy.h"

static const char *const statuses[] = {
	[GN_RPC_OK] = "ok",
	[GN_RPC_TIMEOUT] = "no result by the deadline",
	[GN_RPC_CANCELED] = "canceled",
	[GN_RPC_PEER_GONE] = "the peer is gone",
	[GN_RPC_NO_METHOD] = "no such method",
	[GN_RPC_TOO_BIG] = "the result is too big",
	[GN_RPC_DENIED] = "denied",
	[GN_RPC_BUSY] = "busy",
	[GN_RPC_FAILED] = "failed",
};

const char *gn_rpc_status_str(unsigned status)
{
	return statuses[status < GN_RPC_FAILED ? status : GN_RPC_FAILED];
}

int rpc_client_refuse(const struct gn_rpc_client *client)
{
	return client ? exec_not_owner(__atomic_load_n(&client->owner, __ATOMIC_RELAXED),
				       "rpc client") :
			gn_fail(-EINVAL, "rpc: client is NULL");
}

void rpc_client_disconnected(struct gn_rpc_client *c)
{
	const bool busy = c->busy;

	if (c->dead)
		return;
	c->dead = c->busy = true; /* the callbacks must not close the client */
	c->put_end = NULL;
	link_conn_fail(&c->link->conn);
	c->prepared = NULL;
	for (uint32_t i = 0; i < c->limits.window; i++)
		rpc_call_complete(c, &c->calls[i], GN_RPC_PEER_GONE, 0);
	rpc_reads_end(c, GN_RPC_PEER_GONE);
	if (c->opts.peer)
		c->opts.peer(c->opts.peer_arg, c->epoch, false);
	c->busy = busy;
}

/* ---- a request message ---- */

void rpc_next_slot(struct gn_rpc_client *c)
{
	c->slot_at = (c->number & c->mask) * c->request_stride;
	c->put = c->requests + c->slot_at + sizeof(struct rpc_head);
	c->put_end = NULL;
	c->entries = 0;
}

void rpc_init_posts(struct gn_rpc_client *c)
{
	const struct gn_remote to = {.key = c->request_key}, from = {.key = c->result_key};
	const struct gn_sge request = {c->requests, 0, c->local_key};
	const struct gn_sge result = {c->fetched, 0, c->local_key};
	struct gn_wr wr;
	int rc;

	gn_wr_rdma(&wr, GN_OP_WRITE, 0, &request, &to, 0, 0);
	rc = gn_fixed_init(&c->request_wr, c->qp, &wr, c->max_inline);
	assert(!rc);
	gn_wr_rdma(&wr, GN_OP_READ, 0, &result, &from, 0, GN_SIGNALED);
	c->signal_after = c->flags & GN_RPC_SIGNALED ? 0 : c->mask + 1;
	rc = gn_fixed_init(&c->result_wr, c->qp, &wr, 0);
	assert(!rc);
}

uint64_t rpc_read_clock(struct gn_rpc_client *c)
{
	c->clock_ns = gn_now_ns();
	c->left_to_ns = 0; /* the time left must be computed again */
	return c->clock_ns;
}

/*
 * After an idle time the server may have parked this client. After three quarters of park_us wake
 * the server at once, because the caller may not poll soon. Else a READ of the next result tells,
 * which in fetch mode comes anyway. A poll may be looking at the only result slot: then a later
 * poll probes.
 */
static no_inline void wake_after_idle(struct gn_rpc_client *c, uint64_t now_ns)
{
	c->woken_park = 0;
	/* The mutant leaves only the READ, which suffices in most cases. */
	if (now_ns - c->sent_ns > c->park_quarter_ns * 3 &&
	    !mutant("rpc-park-blindly", MUTANT_ALWAYS))
		rpc_wake_again(c);
	else if (c->reply && (c->mask || !c->busy))
		rpc_probe_server(c, now_ns);
}

/*
 * Plans the first fetch for when the server's last time has passed. While other calls are
 * outstanding the next result may be theirs, and their fetches may have backed off far: their
 * misses say nothing about this call.
 */
static no_inline void send_plan_fetch(struct gn_rpc_client *c, bool alone)
{
	uint64_t ns;

	if (c->reply || c->flags & GN_RPC_EAGER || (!alone && !c->fetch_at_ns))
		return;
	ns = rpc_adapt_fetch_ns(c, c->open_ns, c->open_us);
	if (!alone && ns >= c->fetch_at_ns)
		return;
	c->fetch_at_ns = ns;
	c->rslots[c->expected & c->mask].fails = 0;
	c->missed = false;
}

/* The message did not complete when it was posted. False: it was not even posted. */
static no_inline bool request_posted(struct gn_rpc_client *c, int rc, bool signaled)
{
	c->put_end = NULL;	     /* until it is sent */
	c->send_due = rc == -EAGAIN; /* retried when the send queue has space */
	if (rc && !c->send_due)
		rpc_client_disconnected(c);
	if (rc)
		return false;
	c->unsignaled++;
	if (signaled) {
		c->unsignaled = 0;
		c->unconfirmed++;
		c->posted++;
	}
	return true;
}

/* A message whose WRITE may have to be signaled. */
static no_inline bool request_post_signaled(struct gn_rpc_client *c, uint32_t bytes)
{
	const bool signaled = c->reply || c->flags & GN_RPC_SIGNALED;
	const struct gn_sge sge = {c->requests + c->slot_at, bytes, c->local_key};
	const struct gn_remote to = {.key = c->request_key};
	struct gn_wr wr;
	int rc;

	gn_wr_rdma(&wr, GN_OP_WRITE, rpc_id(RPC_ID_REQUEST, 0), &sge, &to, c->slot_at,
		   (bytes <= c->max_inline ? GN_INLINE : 0) | (signaled ? GN_SIGNALED : 0));
	rc = gn_post_one(c->qp, &wr);
	if (rc != 1)
		return request_posted(c, rc, signaled);
	c->unsignaled = 0;
	return true;
}

/*
 * Posts the message. READs are always signaled and reclaim the WRITEs before them; where no READs
 * are posted, one WRITE in signal_after is signaled.
 */
static inline bool request_post(struct gn_rpc_client *c, uint32_t bytes)
{
	int rc;

	if (unlikely(c->unsignaled >= c->signal_after))
		return request_post_signaled(c, bytes);
	rc = gn_post_fixed(&c->request_wr, c->slot_at, bytes, rpc_id(RPC_ID_REQUEST, 0));
	if (unlikely(rc != 1))
		return request_posted(c, rc, false);
	c->unsignaled = 0;
	return true;
}

/* Where the connection does not guarantee the order of bytes. */
static no_inline void message_add_checksum(struct gn_rpc_client *c)
{
	uint8_t *slot = c->requests + c->slot_at;
	struct rpc_head head;

	memcpy(&head, slot, sizeof(head));
	head.flags |= RPC_CRC;
	head.crc = rpc_checksum(slot, head);
	memcpy(slot, &head, sizeof(head));
}

static inline void store_u64(uint8_t *at, uint64_t word)
{
	memcpy(at, &word, sizeof(word));
	/* Keep each store separate: the compiler would merge two, and a wide load would wait. */
	__asm__("" : : : "memory");
}

/*
 * The message is not visible to others before it is posted: head and tail may be written in any
 * order.
 */
static force_inline uint32_t message_seal(struct gn_rpc_client *c)
{
	uint8_t *slot = c->requests + c->slot_at, *end = c->put;
	const uint64_t seq = rpc_seq(c->epoch, c->number);
	const uint32_t bytes = (uint32_t)(end - slot);

	_Static_assert(RPC_REPLY == 1, "as rpc_seal()");
	store_u64(slot, seq);
	store_u64(slot + offsetof(struct rpc_head, len), (bytes - sizeof(struct rpc_head)) |
								 (uint64_t)c->entries << 32 |
								 (uint64_t)c->reply << 48);
	store_u64(slot + offsetof(struct rpc_head, crc), (uint64_t)c->consumed << 32);
	store_u64(end, rpc_tail(seq, c->nonce));
	if (unlikely(c->check_reply))
		message_add_checksum(c);
	return bytes + (uint32_t)sizeof(uint64_t);
}

/* Messages that were delayed, are large or are batches read the clock. */
static no_inline uint64_t send_read_clock(struct gn_rpc_client *c)
{
	c->send_due = c->has_large = false;
	return rpc_coarse_ns(c);
}

static no_inline void send_charge_copy(const struct gn_rpc_client *c)
{
	gn_charge(GN_WORK_COPY,
		  (uint64_t)(c->put - c->requests) - c->slot_at - sizeof(struct rpc_head));
}

int rpc_send(struct gn_rpc_client *c)
{
	uint64_t now_ns;

	if (unlikely(!request_post(c, message_seal(c))))
		return 0;
	if (unlikely(exec_installed))
		send_charge_copy(c);
	if (unlikely(c->open_ns | c->fetch_at_ns))
		send_plan_fetch(c, !c->any_sent);
	now_ns = c->clock_ns;
	if (unlikely(c->send_due | c->has_large) || c->entries > 1)
		now_ns = send_read_clock(c);
	c->n_sent[c->reply] += c->entries;
	c->ack_due = false;
	c->acked = c->consumed;
	c->count.batches++;
	c->number++;
	rpc_next_slot(c);
	c->prepared = NULL;
	c->newest_ns = c->open_ns;
	/* When results arrived says nothing: they may have been here for long. */
	if (unlikely(now_ns - c->sent_ns > c->park_quarter_ns))
		wake_after_idle(c, now_ns);
	c->sent_ns = now_ns;
	return 0;
}

/* Opens a message for a request of this method. */
static inline void message_open(struct gn_rpc_client *c, const struct rpc_method_state *mstate)
{
	c->reply = rpc_uses_reply(c, mstate);
	c->blocked = false;
	c->put_end = c->put + c->max_fill;
	c->full = c->put + c->send_fill;
	c->open_us = 0;
	c->open_ns = 0;
	if (unlikely(!c->untimed-- || !mstate->fast)) {
		c->begun_ns = c->open_ns = rpc_read_clock(c);
		c->untimed = rpc_adapt_untimed(c);
	} else {
		c->begun_ns = rpc_coarse_ns(c);
	}
}

/* ---- a call ---- */

/* Bytes of the time left, which precede a request with a deadline. */
static inline uint32_t deadline_bytes(const struct gn_rpc_op *op)
{
	return op->deadline_ns - 1 < GN_FOREVER - 1 ? (uint32_t)sizeof(struct rpc_time_left) : 0;
}

/* Bytes of a request's entry. */
static inline uint32_t entry_bytes(const struct gn_rpc_op *op, uint32_t len)
{
	return (uint32_t)sizeof(struct rpc_entry) + deadline_bytes(op) + rpc_align8(len);
}

/* Computes the time left until a deadline, which differs from the last call's. */
static no_inline void deadline_update_left(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	const uint64_t now_ns = c->clock_ns; /* possibly a few us old */
	const uint64_t us = deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000 + 1 : 1;

	c->left_us = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
	c->left_to_ns = deadline_ns;
	if (deadline_ns < c->deadline_timer.due_ns)
		link_timer_set(&c->loop.timers, &c->deadline_timer, deadline_ns);
}

/*
 * Adds a call to the open message, which has space for it. len: bytes of data, of which copy are to
 * be copied. left: deadline_bytes(). Makes no function call if copy is known to be short. False:
 * the message must be sent.
 */
static force_inline bool message_add_call(struct gn_rpc_client *c, struct gn_rpc_op *op,
					  const void *data, uint32_t len, uint32_t copy,
					  uint64_t large, uint32_t left)
{
	struct rpc_call *call = c->free_calls;
	uint8_t *to = c->put;
	const uint64_t entry = (call->index_bits | large | c->adapt.last_entry) +
			       (left ? (len + left) | RPC_HAS_DEADLINE : len);
	const struct rpc_time_left us = {.us = c->left_us};
	uint32_t entries;

	memcpy(to, &entry, sizeof(entry));
	if (left)
		memcpy(to + sizeof(entry), &us, sizeof(us));
	to += sizeof(entry) + left;
	if (copy)
		rpc_store(to, data, copy);
	to += rpc_align8(len);
	c->put = to;
	c->free_calls = call->next;
	call->op = op;
	call->mstate = c->adapt.last;
	call->begun_ns = c->open_ns;
	call->number = c->number;
	call->reply = c->reply;
	op->slot = call->index;
	op->client = c;
	op->data = NULL;
	c->count.calls++;
	entries = ++c->entries;
	return likely(entries < c->adapt.entries && to < c->full);
}

/* Adds any call, opening a message if necessary. */
static no_inline int message_add_any(struct gn_rpc_client *c, struct gn_rpc_op *op,
				     const void *data, uint32_t len, uint64_t large)
{
	const struct rpc_method_state *mstate = c->adapt.last;
	const uint32_t left = deadline_bytes(op);

	if (!c->entries)
		message_open(c, mstate);
	if (unlikely(c->open_us < mstate->time_us))
		c->open_us = mstate->time_us;
	if (left && op->deadline_ns != c->left_to_ns)
		deadline_update_left(c, op->deadline_ns);
	return message_add_call(c, op, data, len, data ? len : 0, large, left) ? 0 : rpc_send(c);
}

/* The open message has space for so many bytes. */
static inline bool message_has_room(const struct gn_rpc_client *c, uint32_t bytes)
{
	return c->put + bytes <= c->put_end;
}

static int method_refuse(void)
{
	return gn_fail(-EINVAL, "rpc: the method is not below %u", GN_RPC_BUILTIN_END);
}

/*
 * The open message has no space for an entry of this op with len bytes, or no message is open: make
 * space, if necessary by sending the message.
 */
static no_inline int message_make_room(struct gn_rpc_client *c, const struct gn_rpc_op *op,
				       uint32_t len)
{
	const struct rpc_method_state *mstate;

	if (op->method >= GN_RPC_BUILTIN_END)
		return method_refuse();
	mstate = rpc_method_state_of(c, op->method);
	if (!mstate)
		return -ENOMEM;
	if (c->entries &&
	    (c->reply != rpc_uses_reply(c, mstate) || !message_has_room(c, entry_bytes(op, len))))
		rpc_flush(c);
	if (c->dead)
		return gn_fail_text(-ENOTCONN, RPC_GONE);
	if (c->entries && !c->send_due)
		return 0;
	c->blocked = true;
	if (c->send_due)
		return gn_fail_text(-EAGAIN, "rpc: the send queue is full; call gn_rpc_wait()");
	if (rpc_slots_full(c) && !mutant("rpc-slot-early", c->number)) {
		c->fetch_at_ns = 0; /* a READ tells which slots are free */
		return gn_fail_text(-EAGAIN,
				    "rpc: all request slots are in use; call gn_rpc_wait()");
	}
	c->blocked = false;
	return 0;
}

/*
 * Is there space for an entry of this op with len bytes? Usually in the open message or a new one.
 */
static inline int message_find_room(struct gn_rpc_client *c, const struct gn_rpc_op *op,
				    uint32_t len)
{
	if (likely(op->method == c->adapt.last_method &&
		   (message_has_room(c, entry_bytes(op, len)) ||
		    !(c->entries || rpc_slots_full(c)))))
		return 0;
	return message_make_room(c, op, len);
}

static no_inline int fail_disconnected(const struct gn_rpc_client *c)
{
	return gn_fail(-ENOTCONN, "rpc: the connection to %s broke; call gn_rpc_reconnect()",
		       c->addr);
}

/* Checks of a call whose request may have up to most bytes. */
static inline bool op_ok(const struct gn_rpc_client *c, const struct gn_rpc_op *op, uint32_t most)
{
	return likely(op && op->request_len <= most && c->free_calls && !c->dead &&
		      (op->flags ? op->flags == GN_RPC_IN_PLACE && op->done :
				   !op->result_room || op->result));
}

/* The error of a call that op_ok() rejects. */
static no_inline int op_refuse(struct gn_rpc_client *c, const struct gn_rpc_op *op, uint32_t most)
{
	if (!op || op->flags & ~(unsigned)GN_RPC_IN_PLACE ||
	    (op->flags ? !op->done : op->result_room && !op->result))
		return gn_fail(-EINVAL, "rpc: op is NULL, it has unknown flags, its result is NULL "
					"but not empty, or is in place without a done");
	if (op->method >= GN_RPC_BUILTIN_END)
		return method_refuse();
	if (op->request_len > most)
		return gn_fail(-EMSGSIZE,
			       "rpc: a request of %u bytes: at most %u (max_large, or max_request "
			       "in place)",
			       op->request_len, most);
	if (c->dead)
		return fail_disconnected(c);
	c->blocked = true;
	return gn_fail_text(-EAGAIN, "rpc: too many calls are outstanding; call gn_rpc_wait()");
}

/* A large request, which the server READs; or an invalid one. */
static no_inline int submit_large(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	const uint32_t most = c->limits.max_large > c->limits.max_request ? c->limits.max_large :
									    c->limits.max_request;
	struct rpc_large_ref where;
	int rc;

	if (op && op->request_len && !op->request)
		return gn_fail(-EINVAL, "gn_rpc_submit(): the request is NULL but not empty");
	if (!op_ok(c, op, most) || op->request_len <= c->limits.max_request)
		return op_refuse(c, op, most);
	rc = message_make_room(c, op, sizeof(where));
	if (!rc)
		rc = rpc_large_export(c, c->free_calls, op->request, op->request_len, &where);
	if (rc)
		return rc;
	c->has_large = true;
	return message_add_any(c, op, &where, sizeof(where), (uint64_t)RPC_LARGE << 48);
}

/* The slow path of a submission. */
static no_inline int submit_any(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	int rc;

	if (!op_ok(c, op, c->limits.max_request) || unlikely(op->request_len && !op->request))
		return submit_large(c, op);
	rc = message_find_room(c, op, op->request_len);
	return unlikely(rc) ? rc : message_add_any(c, op, op->request, op->request_len, 0);
}

/* A short request of a fast method, which opens a message. */
static no_inline int submit_first(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	uint32_t len;

	if (unlikely(c->dead || c->entries || rpc_slots_full(c)))
		return submit_any(c, op);
	message_open(c, c->adapt.last);
	if (deadline_bytes(op) && unlikely(op->deadline_ns != c->left_to_ns))
		deadline_update_left(c, op->deadline_ns);
	len = op->request_len;
	if (len > RPC_SHORT)
		__builtin_unreachable();
	if (deadline_bytes(op) ? message_add_call(c, op, op->request, len, len, 0,
						  sizeof(struct rpc_time_left)) :
				 message_add_call(c, op, op->request, len, len, 0, 0))
		return 0;
	return rpc_send(c);
}

/*
 * The fast path: a short request joins others of its method. It needs no stack frame; everything
 * else is done in other functions.
 */
static force_inline int submit_short(struct gn_rpc_client *c, struct gn_rpc_op *op, uint32_t len,
				     uint32_t left)
{
	if (!message_has_room(c, (uint32_t)sizeof(struct rpc_entry) + left + rpc_align8(len)))
		return submit_first(c, op);
	if (unlikely(left && op->deadline_ns != c->left_to_ns))
		return submit_any(c, op);
	return message_add_call(c, op, op->request, len, len, 0, left) ? 0 : rpc_send(c);
}

static force_inline int submit_fast(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	const uint32_t len = op->request_len;

	if (unlikely(len > c->max_short || !c->free_calls || op->method != c->adapt.fast_method ||
		     (len && !op->request) ||
		     (op->flags ? op->flags != GN_RPC_IN_PLACE || !op->done :
				  op->result_room && !op->result)))
		return submit_any(c, op);
	if (len > RPC_SHORT)
		__builtin_unreachable(); /* max_short is at most RPC_SHORT */
	if (deadline_bytes(op))
		return submit_short(c, op, len, sizeof(struct rpc_time_left));
	return submit_short(c, op, len, 0);
}

inline int rpc_submit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	return likely(op) ? submit_fast(c, op) : submit_any(c, op);
}

int gn_rpc_submit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	return rpc_client_is_owner(c) ? rpc_submit(c, op) : rpc_client_refuse(c);
}

/* ---- requests built in place ---- */

/*
 * Nothing is kept for a prepared call except where its bytes go. Starting another call or sending
 * the message invalidates it; then commit fails.
 */
static force_inline int prepare_note(struct gn_rpc_client *c, const struct gn_rpc_op *op,
				     void **out)
{
	c->prepared = op;
	c->prepared_len = op->request_len;
	*out = c->prepared_at = c->put + entry_bytes(op, 0);
	return 0;
}

static no_inline int prepare_any(struct gn_rpc_client *c, struct gn_rpc_op *op, void **out)
{
	int rc = rpc_client_check(c);

	if (!rc && !out)
		rc = gn_fail(-EINVAL, "gn_rpc_prepare(): out is NULL");
	if (!rc && !op_ok(c, op, c->limits.max_request))
		rc = op_refuse(c, op, c->limits.max_request);
	if (!rc)
		rc = message_find_room(c, op, op->request_len);
	return rc ? rc : prepare_note(c, op, out);
}

/* Usually the call joins others of its method, or is the first. */
int gn_rpc_prepare(struct gn_rpc_client *c, struct gn_rpc_op *op, void **out)
{
	if (unlikely(!rpc_client_is_owner(c) || !out || !op_ok(c, op, c->limits.max_request) ||
		     op->method != c->adapt.last_method ||
		     !(message_has_room(c, entry_bytes(op, op->request_len)) ||
		       !(c->entries || rpc_slots_full(c)))))
		return prepare_any(c, op, out);
	return prepare_note(c, op, out);
}

static no_inline int commit_any(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	int rc = rpc_client_check(c);

	if (!rc && c->dead)
		rc = gn_fail(-ENOTCONN, "gn_rpc_commit(): the connection to %s broke", c->addr);
	if (rc)
		return rc;
	if (!op || c->prepared != op || c->put + entry_bytes(op, 0) != c->prepared_at)
		return gn_fail(-ESRCH, "gn_rpc_commit(): not the call that was prepared last, or "
				       "a call was started or a message sent since, or the "
				       "deadline was changed");
	if (op->request_len > c->prepared_len || op->method != c->adapt.last_method)
		return gn_fail(-EINVAL, "gn_rpc_commit(): the request is longer than it was "
					"prepared, or has another method");
	return message_add_any(c, op, NULL, op->request_len, 0);
}

static force_inline int commit_fast(struct gn_rpc_client *c, struct gn_rpc_op *op, uint32_t left)
{
	if (unlikely(c->put + sizeof(struct rpc_entry) + left != c->prepared_at))
		return commit_any(c, op);
	if (!c->entries || (left && unlikely(op->deadline_ns != c->left_to_ns)))
		return message_add_any(c, op, NULL, op->request_len, 0);
	return message_add_call(c, op, NULL, op->request_len, 0, 0, left) ? 0 : rpc_send(c);
}

/* The fast path: the call joins others, as in submit_fast(). */
int gn_rpc_commit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	if (unlikely(!rpc_client_is_owner(c) || !op || c->prepared != op ||
		     op->request_len > c->prepared_len || op->method != c->adapt.fast_method ||
		     c->dead))
		return commit_any(c, op);
	return deadline_bytes(op) ? commit_fast(c, op, sizeof(struct rpc_time_left)) :
				    commit_fast(c, op, 0);
}

/* Only a hint to the server: dropped if the send queue is full. */
void rpc_call_abandon(struct gn_rpc_client *c, uint32_t index)
{
	uint32_t number = c->calls[index].number;
	const struct gn_sge sge = {&number, sizeof(number), 0};
	const struct gn_remote to = {.key = c->request_key};
	struct gn_wr wr;

	if (c->dead || c->max_inline < sizeof(number) || c->calls[index].mstate == &c->large_mstate)
		return;
	gn_wr_rdma(&wr, GN_OP_WRITE, rpc_id(RPC_ID_OTHER, 0), &sge, &to,
		   rpc_abandoned_at(c->request_stride, c->limits.slots, index),
		   GN_INLINE | GN_SIGNALED);
	if (gn_post_send(c->qp, &wr, NULL))
		return;
	c->posted++;
	/* the server may have parked this client and not look at the abandoned array */
	rpc_wake(c);
}

int gn_rpc_flush(struct gn_rpc_client *c)
{
	int rc = rpc_client_check(c);

	if (rc)
		return rc;
	rpc_flush(c);
	return unlikely(c->dead) ? fail_disconnected(c) : 0;
}

int gn_rpc_cancel(struct gn_rpc_op *op)
{
	int rc;

	if (!op)
		return gn_fail(-EINVAL, "gn_rpc_cancel(): op is NULL");
	if (!op->client)
		return gn_fail(-ESRCH, "gn_rpc_cancel(): the call has completed");
	rc = rpc_client_check(op->client);
	if (rc)
		return rc;
	/*
	 * The index stays in use until the result is there: the server may be executing the call.
	 */
	rpc_call_abandon(op->client, op->slot);
	rpc_call_complete(op->client, &op->client->calls[op->slot], GN_RPC_CANCELED, 0);
	return 0;
}
