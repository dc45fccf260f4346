/* SPDX-License-Identifier: MIT */
/* A client's calls: put into messages, sent, ended. */
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

void rpc_client_die(struct gn_rpc_client *c)
{
	const bool busy = c->busy;

	if (c->dead)
		return;
	c->dead = c->busy = true; /* who is called back may not close it */
	c->end = NULL;
	link_conn_fail(&c->link->conn);
	c->prepared = NULL;
	for (uint32_t i = 0; i < c->limits.window; i++)
		rpc_end(c, &c->calls[i], GN_RPC_PEER_GONE, 0);
	rpc_reads_end(c, GN_RPC_PEER_GONE);
	if (c->opts.peer)
		c->opts.peer(c->opts.peer_arg, c->epoch, false);
	c->busy = busy;
}

/* ---- a message with requests ---- */

void rpc_next_slot(struct gn_rpc_client *c)
{
	c->slot_at = (c->number & c->mask) * c->request_stride;
	c->put = c->requests + c->slot_at + sizeof(struct rpc_head);
	c->end = NULL;
	c->entries = 0;
}

void rpc_set_posts(struct gn_rpc_client *c)
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
	c->left_to_ns = 0; /* what was left then is not left now */
	return c->clock_ns;
}

/*
 * After a silence the server may not look at this client any more. When it has been about as long
 * as the server's patience it is woken at once: its client may not poll soon. Else a read tells,
 * which in the mode fetch comes anyway. Within a poll a result may be looked at, in the only slot
 * that a read could use if there is one: then a later poll asks.
 */
static no_inline void end_silence(struct gn_rpc_client *c, uint64_t now_ns)
{
	c->woken = 0;
	if (now_ns - c->sent_ns > c->silence_ns * 3 &&
	    !mutant("rpc-park-blindly", MUTANT_ALWAYS)) /* one of the two is enough, mostly */
		rpc_wake_again(c);
	else if (c->reply && (c->mask || !c->busy))
		rpc_ask(c, now_ns);
}

/*
 * Its result is worth a look after what the server took last time, and not before. While others are
 * under way the next result may be theirs, and theirs may have been put off for long: fetches in
 * vain for them say nothing of this one.
 */
static no_inline void plan_fetch(struct gn_rpc_client *c, bool alone)
{
	uint64_t ns;

	if (c->reply || c->flags & GN_RPC_EAGER || (!alone && !c->first_ns))
		return;
	ns = rpc_learn_delay(c, c->open_ns, c->open_us);
	if (!alone && ns >= c->first_ns)
		return;
	c->first_ns = ns;
	c->got[c->expected & c->mask].fails = 0;
	c->missed = false;
}

/* The message was not done when it was posted, or not even posted: then it is false. */
static no_inline bool request_posted(struct gn_rpc_client *c, int rc, bool signaled)
{
	c->end = NULL;		/* until it is sent */
	c->due = rc == -EAGAIN; /* when the queue has room again */
	if (rc && !c->due)
		rpc_client_die(c);
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

/* One that may have to be signaled. */
static no_inline bool post_counted(struct gn_rpc_client *c, uint32_t bytes)
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
 * Post the message. Reads are always signaled, and free the places of the WRITEs before them; where
 * there are none, one WRITE in so many is.
 */
static inline bool post_request(struct gn_rpc_client *c, uint32_t bytes)
{
	int rc;

	if (unlikely(c->unsignaled >= c->signal_after))
		return post_counted(c, bytes);
	rc = gn_post_fixed(&c->request_wr, c->slot_at, bytes, rpc_id(RPC_ID_REQUEST, 0));
	if (unlikely(rc != 1))
		return request_posted(c, rc, false);
	c->unsignaled = 0;
	return true;
}

/* Where the order of bytes is not promised. */
static no_inline void add_checksum(struct gn_rpc_client *c)
{
	uint8_t *slot = c->requests + c->slot_at;
	struct rpc_head head;

	memcpy(&head, slot, sizeof(head));
	head.flags |= RPC_CRC;
	head.crc = rpc_checksum(slot, head);
	memcpy(slot, &head, sizeof(head));
}

static inline void put_word(uint8_t *at, uint64_t word)
{
	memcpy(at, &word, sizeof(word));
	__asm__(""
		:
		:
		: "memory"); /* a word is stored by itself: two would be put together first */
}

/* Nobody else sees the message before it is posted: head and tail may be written in any order. */
static force_inline uint32_t seal_request(struct gn_rpc_client *c)
{
	uint8_t *slot = c->requests + c->slot_at, *end = c->put;
	const uint64_t seq = rpc_seq(c->epoch, c->number);
	const uint32_t bytes = (uint32_t)(end - slot);

	_Static_assert(RPC_REPLY == 1, "as rpc_seal()");
	put_word(slot, seq);
	put_word(slot + offsetof(struct rpc_head, len), (bytes - sizeof(struct rpc_head)) |
								(uint64_t)c->entries << 32 |
								(uint64_t)c->reply << 48);
	put_word(slot + offsetof(struct rpc_head, crc), (uint64_t)c->spent << 32);
	put_word(end, rpc_tail(seq, c->nonce));
	if (unlikely(c->check_reply))
		add_checksum(c);
	return bytes + (uint32_t)sizeof(uint64_t);
}

/* What few messages need: they have waited, or are large. */
static no_inline uint64_t look_at_clock(struct gn_rpc_client *c)
{
	c->due = c->far = false;
	return rpc_coarse_ns(c);
}

static no_inline void charge_copy(const struct gn_rpc_client *c)
{
	gn_charge(GN_WORK_COPY,
		  (uint64_t)(c->put - c->requests) - c->slot_at - sizeof(struct rpc_head));
}

int rpc_send(struct gn_rpc_client *c)
{
	uint64_t now_ns;

	if (unlikely(!post_request(c, seal_request(c))))
		return 0;
	if (unlikely(exec_installed))
		charge_copy(c);
	if (unlikely(c->open_ns | c->first_ns))
		plan_fetch(c, !c->any_sent);
	now_ns = c->clock_ns;
	if (unlikely(c->due | c->far) || c->entries > 1)
		now_ns = look_at_clock(c);
	c->n_sent[c->reply] += c->entries;
	c->tell = false;
	c->told = c->spent;
	c->count.batches++;
	c->number++;
	rpc_next_slot(c);
	c->prepared = NULL;
	c->newest_ns = c->open_ns;
	/* When results came says nothing: they may have lain here for long. */
	if (unlikely(now_ns - c->sent_ns > c->silence_ns))
		end_silence(c, now_ns);
	c->sent_ns = now_ns;
	return 0;
}

/* Begin a message with a request of this kind. */
static inline void open_message(struct gn_rpc_client *c, const struct rpc_kind *kind)
{
	c->reply = rpc_replied(c, kind);
	c->starved = false;
	c->end = c->put + c->most;
	c->full = c->put + c->enough;
	c->open_us = 0;
	c->open_ns = 0;
	if (unlikely(!c->untimed-- || !kind->quick)) {
		c->begun_ns = c->open_ns = rpc_read_clock(c);
		c->untimed = rpc_learn_untimed(c);
	} else {
		c->begun_ns = rpc_coarse_ns(c);
	}
}

/* ---- a call ---- */

/* The bytes that a request's deadline takes before its own. */
static inline uint32_t left_bytes(const struct gn_rpc_op *op)
{
	return op->deadline_ns - 1 < GN_FOREVER - 1 ? (uint32_t)sizeof(struct rpc_left) : 0;
}

/* … all of them, in a message. */
static inline uint32_t entry_bytes(const struct gn_rpc_op *op, uint32_t len)
{
	return (uint32_t)sizeof(struct rpc_entry) + left_bytes(op) + rpc_align8(len);
}

/* The time that is left for a request, about; it was not the same for the last. */
static no_inline void measure_left(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	const uint64_t now_ns = c->clock_ns; /* or somewhat earlier */
	const uint64_t us = deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000 + 1 : 1;

	c->left_us = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
	c->left_to_ns = deadline_ns;
	if (deadline_ns < c->late.due_ns)
		link_timer_set(&c->loop.timers, &c->late, deadline_ns);
}

/*
 * The call is in the message that is open, which has room for it, with len bytes of data, and copy
 * of them are not there already. left: left_bytes(), which were measured. Nothing here is called,
 * if copy is known to be short. False: the message is to be sent.
 */
static force_inline bool join(struct gn_rpc_client *c, struct gn_rpc_op *op, const void *data,
			      uint32_t len, uint32_t copy, uint64_t far, uint32_t left)
{
	struct rpc_call *call = c->idle;
	uint8_t *to = c->put;
	const uint64_t entry = (call->name | far | c->learn.last_entry) +
			       (left ? (len + left) | RPC_TIMED : len);
	const struct rpc_left us = {.us = c->left_us};
	uint32_t entries;

	memcpy(to, &entry, sizeof(entry));
	if (left)
		memcpy(to + sizeof(entry), &us, sizeof(us));
	to += sizeof(entry) + left;
	if (copy)
		rpc_store(to, data, copy);
	to += rpc_align8(len);
	c->put = to;
	c->idle = call->next;
	call->op = op;
	call->kind = c->learn.last;
	call->ns = c->open_ns;
	call->number = c->number;
	call->reply = c->reply;
	op->slot = call->index;
	op->client = c;
	op->data = NULL;
	c->count.calls++;
	entries = ++c->entries;
	return likely(entries < c->learn.entries && to < c->full);
}

/* A call of any kind, in a message that there is room in, or in the next. */
static no_inline int join_any(struct gn_rpc_client *c, struct gn_rpc_op *op, const void *data,
			      uint32_t len, uint64_t far)
{
	const struct rpc_kind *kind = c->learn.last;
	const uint32_t left = left_bytes(op);

	if (!c->entries)
		open_message(c, kind);
	if (unlikely(c->open_us < kind->time_us))
		c->open_us = kind->time_us;
	if (left && op->deadline_ns != c->left_to_ns)
		measure_left(c, op->deadline_ns);
	return join(c, op, data, len, data ? len : 0, far, left) ? 0 : rpc_send(c);
}

/* The message that is put together is open, and has room for so many bytes. */
static inline bool has_room(const struct gn_rpc_client *c, uint32_t bytes)
{
	return c->put + bytes <= c->end;
}

static int refuse_method(void)
{
	return gn_fail(-EINVAL, "rpc: the method is not below %u", GN_RPC_BUILTIN_END);
}

/*
 * There is no room for an entry of this op with len bytes in the message that is put together, or
 * there is no message: make room, perhaps by sending it.
 */
static no_inline int make_room(struct gn_rpc_client *c, const struct gn_rpc_op *op, uint32_t len)
{
	const struct rpc_kind *kind;

	if (op->method >= GN_RPC_BUILTIN_END)
		return refuse_method();
	kind = rpc_kind_of(c, op->method);
	if (!kind)
		return -ENOMEM;
	if (c->entries && (c->reply != rpc_replied(c, kind) || !has_room(c, entry_bytes(op, len))))
		rpc_flush(c);
	if (c->dead)
		return gn_fail_text(-ENOTCONN, RPC_GONE);
	if (c->entries && !c->due)
		return 0;
	c->starved = true;
	if (c->due)
		return gn_fail_text(-EAGAIN, "rpc: the send queue is full; gn_rpc_wait()");
	if (rpc_slots_full(c) && !mutant("rpc-slot-early", c->number)) {
		c->first_ns = 0; /* a read tells what is free */
		return gn_fail_text(-EAGAIN, "rpc: all slots are taken; gn_rpc_wait() for some");
	}
	c->starved = false;
	return 0;
}

/* Is there room for an entry of this op with len bytes? Mostly: with its likes, or alone. */
static inline int find_room(struct gn_rpc_client *c, const struct gn_rpc_op *op, uint32_t len)
{
	if (likely(op->method == c->learn.last_method &&
		   (has_room(c, entry_bytes(op, len)) || !(c->entries || rpc_slots_full(c)))))
		return 0;
	return make_room(c, op, len);
}

static no_inline int fail_gone(const struct gn_rpc_client *c)
{
	return gn_fail(-ENOTCONN, "rpc: the server at %s is gone; gn_rpc_reconnect()", c->addr);
}

/* What may keep a call with a request of at most so many bytes from being begun. */
static inline bool op_ok(const struct gn_rpc_client *c, const struct gn_rpc_op *op, uint32_t most)
{
	return likely(op && op->request_len <= most && c->idle && !c->dead &&
		      (op->flags ? op->flags == GN_RPC_IN_PLACE && op->done :
				   !op->result_room || op->result));
}

/* … in words. */
static no_inline int refuse_op(struct gn_rpc_client *c, const struct gn_rpc_op *op, uint32_t most)
{
	if (!op || op->flags & ~(unsigned)GN_RPC_IN_PLACE ||
	    (op->flags ? !op->done : op->result_room && !op->result))
		return gn_fail(-EINVAL, "rpc: op is NULL, it has unknown flags, its result is NULL "
					"but not empty, or is in place without a done");
	if (op->method >= GN_RPC_BUILTIN_END)
		return refuse_method();
	if (op->request_len > most)
		return gn_fail(-EMSGSIZE,
			       "rpc: a request of %u bytes: at most %u (max_large, or max_request "
			       "in place)",
			       op->request_len, most);
	if (c->dead)
		return fail_gone(c);
	c->starved = true;
	return gn_fail_text(-EAGAIN, "rpc: as many calls are under way as this client may have; "
				     "gn_rpc_wait() for some");
}

/* A large request: the server is told where it is. Or one that something is wrong with. */
static no_inline int submit_large(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	const uint32_t most = c->limits.max_large > c->limits.max_request ? c->limits.max_large :
									    c->limits.max_request;
	struct rpc_far where;
	int rc;

	if (op && op->request_len && !op->request)
		return gn_fail(-EINVAL, "gn_rpc_submit(): the request is NULL but not empty");
	if (!op_ok(c, op, most) || op->request_len <= c->limits.max_request)
		return refuse_op(c, op, most);
	rc = make_room(c, op, sizeof(where));
	if (!rc)
		rc = rpc_far_lend(c, c->idle, op->request, op->request_len, &where);
	if (rc)
		return rc;
	c->far = true;
	return join_any(c, op, &where, sizeof(where), (uint64_t)RPC_FAR << 48);
}

/* The whole way of a call. */
static no_inline int submit_any(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	int rc;

	if (!op_ok(c, op, c->limits.max_request) || unlikely(op->request_len && !op->request))
		return submit_large(c, op);
	rc = find_room(c, op, op->request_len);
	return unlikely(rc) ? rc : join_any(c, op, op->request, op->request_len, 0);
}

/* A short request of a quick method, that may begin a message. */
static no_inline int submit_first(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	uint32_t len;

	if (unlikely(c->dead || c->entries || rpc_slots_full(c)))
		return submit_any(c, op);
	open_message(c, c->learn.last);
	if (left_bytes(op) && unlikely(op->deadline_ns != c->left_to_ns))
		measure_left(c, op->deadline_ns);
	len = op->request_len;
	if (len > RPC_SHORT)
		__builtin_unreachable();
	if (left_bytes(op) ? join(c, op, op->request, len, len, 0, sizeof(struct rpc_left)) :
			     join(c, op, op->request, len, len, 0, 0))
		return 0;
	return rpc_send(c);
}

/*
 * The short way is that of a short request which joins others of its method: it needs no frame, so
 * whatever else may be to do is done elsewhere.
 */
static force_inline int submit_short(struct gn_rpc_client *c, struct gn_rpc_op *op, uint32_t len,
				     uint32_t left)
{
	if (!has_room(c, (uint32_t)sizeof(struct rpc_entry) + left + rpc_align8(len)))
		return submit_first(c, op);
	if (unlikely(left && op->deadline_ns != c->left_to_ns))
		return submit_any(c, op);
	return join(c, op, op->request, len, len, 0, left) ? 0 : rpc_send(c);
}

static force_inline int submit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	const uint32_t len = op->request_len;

	if (unlikely(len > c->max_short || !c->idle || op->method != c->learn.quick_method ||
		     (len && !op->request) ||
		     (op->flags ? op->flags != GN_RPC_IN_PLACE || !op->done :
				  op->result_room && !op->result)))
		return submit_any(c, op);
	if (len > RPC_SHORT)
		__builtin_unreachable(); /* max_short is not more */
	if (left_bytes(op))
		return submit_short(c, op, len, sizeof(struct rpc_left));
	return submit_short(c, op, len, 0);
}

inline int rpc_submit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	return likely(op) ? submit(c, op) : submit_any(c, op);
}

int gn_rpc_submit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	return rpc_client_own(c) ? rpc_submit(c, op) : rpc_client_refuse(c);
}

/* ---- requests that are written in place ---- */

/*
 * Nothing is kept for a prepared call but where its bytes go: whatever begins another call or sends
 * the message takes that away, and then the call cannot be committed any more.
 */
static force_inline int note_prepared(struct gn_rpc_client *c, const struct gn_rpc_op *op,
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
		rc = refuse_op(c, op, c->limits.max_request);
	if (!rc)
		rc = find_room(c, op, op->request_len);
	return rc ? rc : note_prepared(c, op, out);
}

/* Mostly it joins others of its method, or is the first. */
int gn_rpc_prepare(struct gn_rpc_client *c, struct gn_rpc_op *op, void **out)
{
	if (unlikely(!rpc_client_own(c) || !out || !op_ok(c, op, c->limits.max_request) ||
		     op->method != c->learn.last_method ||
		     !(has_room(c, entry_bytes(op, op->request_len)) ||
		       !(c->entries || rpc_slots_full(c)))))
		return prepare_any(c, op, out);
	return note_prepared(c, op, out);
}

static no_inline int commit_any(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	int rc = rpc_client_check(c);

	if (!rc && c->dead)
		rc = gn_fail(-ENOTCONN, "gn_rpc_commit(): the server at %s is gone", c->addr);
	if (rc)
		return rc;
	if (!op || c->prepared != op || c->put + entry_bytes(op, 0) != c->prepared_at)
		return gn_fail(-ESRCH, "gn_rpc_commit(): not the call that was prepared last, or "
				       "the client has sent or begun something since, or the "
				       "deadline was changed");
	if (op->request_len > c->prepared_len || op->method != c->learn.last_method)
		return gn_fail(-EINVAL, "gn_rpc_commit(): the request is longer than it was "
					"prepared, or has another method");
	return join_any(c, op, NULL, op->request_len, 0);
}

static force_inline int commit(struct gn_rpc_client *c, struct gn_rpc_op *op, uint32_t left)
{
	if (unlikely(c->put + sizeof(struct rpc_entry) + left != c->prepared_at))
		return commit_any(c, op);
	if (!c->entries || (left && unlikely(op->deadline_ns != c->left_to_ns)))
		return join_any(c, op, NULL, op->request_len, 0);
	return join(c, op, NULL, op->request_len, 0, 0, left) ? 0 : rpc_send(c);
}

/* The short way is that of one which joins others, as in submit(). */
int gn_rpc_commit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	if (unlikely(!rpc_client_own(c) || !op || c->prepared != op ||
		     op->request_len > c->prepared_len || op->method != c->learn.quick_method ||
		     c->dead))
		return commit_any(c, op);
	return left_bytes(op) ? commit(c, op, sizeof(struct rpc_left)) : commit(c, op, 0);
}

/* Nothing depends on it, so it is dropped where the queue is full. */
void rpc_give_up(struct gn_rpc_client *c, uint32_t index)
{
	uint32_t number = c->calls[index].number;
	const struct gn_sge sge = {&number, sizeof(number), 0};
	const struct gn_remote to = {.key = c->request_key};
	struct gn_wr wr;

	if (c->dead || c->max_inline < sizeof(number) || c->calls[index].kind == &c->far_kind)
		return;
	gn_wr_rdma(&wr, GN_OP_WRITE, rpc_id(RPC_ID_OTHER, 0), &sge, &to,
		   rpc_given_up_at(c->request_stride, c->limits.slots, index),
		   GN_INLINE | GN_SIGNALED);
	if (gn_post_send(c->qp, &wr, NULL))
		return;
	c->posted++;
	rpc_wake(c); /* it may have put this client aside, and not look there */
}

int gn_rpc_flush(struct gn_rpc_client *c)
{
	int rc = rpc_client_check(c);

	if (rc)
		return rc;
	rpc_flush(c);
	return unlikely(c->dead) ? fail_gone(c) : 0;
}

int gn_rpc_cancel(struct gn_rpc_op *op)
{
	int rc;

	if (!op)
		return gn_fail(-EINVAL, "gn_rpc_cancel(): op is NULL");
	if (!op->client)
		return gn_fail(-ESRCH, "gn_rpc_cancel(): the call has ended");
	rc = rpc_client_check(op->client);
	if (rc)
		return rc;
	/* Its name stays taken until its result is there: the server may be at it. */
	rpc_give_up(op->client, op->slot);
	rpc_end(op->client, &op->client->calls[op->slot], GN_RPC_CANCELED, 0);
	return 0;
}
