/* SPDX-License-Identifier: MIT */
/* A client's calls: put into messages, sent, ended. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "base/owner.h"
#include "rpc/client.h"

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

int rpc_client_check(const struct gn_rpc_client *client)
{
	if (unlikely(!client))
		return gn_fail(-EINVAL, "rpc: client is NULL");
	return likely(client->owner == gn_thread_id()) ?
		       0 :
		       exec_not_owner(client->owner, "rpc client");
}

void rpc_client_die(struct gn_rpc_client *c)
{
	const bool busy = c->busy;

	if (c->dead)
		return;
	c->dead = c->busy = true; /* who is called back may not close it */
	c->prepared = NULL;
	for (uint32_t i = 0; i < c->limits.window; i++)
		rpc_end(c, &c->calls[i], GN_RPC_PEER_GONE, 0);
	rpc_reads_end(c, GN_RPC_PEER_GONE);
	if (c->opts.peer)
		c->opts.peer(c->opts.peer_arg, c->epoch, false);
	c->busy = busy;
}

/* ---- a message with requests ---- */

static uint8_t *request_slot(const struct gn_rpc_client *c, uint32_t number)
{
	return c->requests + (number & c->mask) * c->request_stride;
}

/* Reads are always signaled, and free the places of the requests before them. */
static uint32_t request_flags(struct gn_rpc_client *c, uint64_t bytes)
{
	uint32_t flags = bytes <= c->max_inline ? GN_INLINE : 0;

	if (c->flags & GN_RPC_SIGNALED || (c->reply && ++c->unsignaled > c->mask)) {
		c->unsignaled = 0;
		c->unconfirmed++;
		flags |= GN_SIGNALED;
	}
	return flags;
}

/*
 * After a silence the server may not look at this client any more. After a long one it does not, so
 * it is woken at once; else a read tells, which in the mode fetch comes anyway.
 */
static void end_silence(struct gn_rpc_client *c, uint64_t now_ns)
{
	c->woken = 0;
	if (now_ns - c->heard_ns > c->park_us * 2000ull && !c->waking)
		rpc_wake(c);
	else if (c->reply)
		rpc_ask(c, now_ns);
}

/*
 * The next result is not fetched before then. While others are under way it may be theirs, and
 * theirs may have been put off for long: fetches in vain for them say nothing of this one.
 */
static void fetch_from(struct gn_rpc_client *c, uint64_t ns)
{
	if (c->n_sent > 1 && ns >= c->first_ns)
		return;
	c->first_ns = ns;
	c->got[c->expected & c->mask].fails = 0;
}

/* Its result is worth a look after what the server took last time. */
static void note_sent(struct gn_rpc_client *c, const struct rpc_sent *sent, bool waited)
{
	const uint64_t now_ns = waited ? gn_now_ns() : sent->ns;

	if (!now_ns)
		return;
	/* When results came says nothing: they may have lain here for long. */
	if (unlikely(now_ns - c->sent_ns > c->park_us * 250ull))
		end_silence(c, now_ns);
	c->heard_ns = c->sent_ns = now_ns;
	if (!c->reply && !(c->flags & GN_RPC_EAGER) && (c->n_sent == 1 || c->first_ns))
		fetch_from(c, rpc_learn_delay(c, sent));
}

void rpc_flush(struct gn_rpc_client *c)
{
	uint8_t *slot = request_slot(c, c->number);
	const struct gn_remote to = {.key = c->request_key};
	const struct rpc_seal seal = {
		.seq = rpc_seq(c->epoch, c->number),
		.nonce = c->nonce,
		.len = c->at,
		.aux = (uint16_t)c->entries,
		.flags = (c->reply ? RPC_REPLY : 0) | (c->check_reply ? RPC_CRC : 0),
		.word = c->spent,
	};
	const bool waited = c->due || c->learn.entries > 1 || c->far;
	struct gn_sge sge = {slot, 0, c->local_key};
	struct gn_wr wr;
	int rc;

	if (!c->entries || c->dead)
		return;
	sge.len_bytes = (uint32_t)rpc_seal(slot, &seal);
	gn_wr_rdma(&wr, GN_OP_WRITE, rpc_id(RPC_ID_REQUEST, 0), &sge, &to,
		   (c->number & c->mask) * c->request_stride, request_flags(c, sge.len_bytes));
	rc = gn_post_send(c->qp, &wr, NULL);
	c->due = rc == -EAGAIN; /* when the queue has room again */
	if (c->due && wr.flags & GN_SIGNALED)
		c->unconfirmed--;
	if (rc && rc != -EAGAIN)
		rpc_client_die(c);
	if (rc)
		return;
	gn_charge(GN_WORK_COPY, c->at);
	c->posted += !!(wr.flags & GN_SIGNALED);
	c->told = c->spent;
	c->tell = false;
	c->count.batches++;
	c->entries = 0;
	c->number++;
	c->newest = c->open;
	c->prepared = NULL;
	note_sent(c, c->open, waited);
}

/*
 * Is the time of this message of no use? It is to be fetched, by a caller that waits for nothing
 * else and finds out what there is to find out, and fetching is quick.
 */
static bool timeless(const struct gn_rpc_client *c, bool reply)
{
	return c->waits && !reply && !c->slow_reads && !c->first_ns &&
	       !rpc_learn_timed(c, c->number);
}

/* There is room for an entry of so many bytes, in this message or the next; or -EAGAIN. */
static int make_room(struct gn_rpc_client *c, bool reply, uint32_t need)
{
	if (c->entries && (c->due || c->reply != reply || need > c->most - c->at))
		rpc_flush(c);
	if (c->dead)
		return -ENOTCONN;
	if (c->entries)
		return c->due ? -EAGAIN : 0;
	if (rpc_slots_full(c) && !mutant("rpc-slot-early", c->number)) {
		c->first_ns = 0; /* a read tells what is free */
		return gn_fail(-EAGAIN, "rpc: all %u slots are taken; gn_rpc_wait() for some",
			       c->limits.slots);
	}
	c->at = 0;
	c->far = false;
	return 0;
}

/* Begin a message with a request of the method that make_room() was called for. */
static void open_message(struct gn_rpc_client *c)
{
	const bool reply = rpc_replied(c, c->learn.last);
	struct rpc_sent *sent = c->idle_sent;

	c->open = sent;
	c->idle_sent = sent->next;
	c->starved = false;
	c->reply = reply;
	c->n_sent++;
	c->n_fetch += !reply;
	*sent = (struct rpc_sent){
		.number = c->number, .reply = reply, .ns = timeless(c, reply) ? 0 : gn_now_ns()};
}

/* most: bytes that its request may have. */
static int check_op(struct gn_rpc_client *c, const struct gn_rpc_op *op, uint32_t most)
{
	if (!op || op->method >= GN_RPC_BUILTIN_END || op->flags & ~(unsigned)GN_RPC_IN_PLACE ||
	    (op->flags ? !op->done : op->result_room && !op->result))
		return gn_fail(-EINVAL,
			       "rpc: op is NULL, its method is not below %u, it has unknown flags, "
			       "its result is NULL but not empty, or is in place without a done",
			       GN_RPC_BUILTIN_END);
	if (op->request_len > most)
		return gn_fail(-EMSGSIZE, "rpc: a request of %u bytes: at most %u here",
			       op->request_len, most);
	if (c->dead)
		return gn_fail(-ENOTCONN, "rpc: the server at %s is gone; gn_rpc_reconnect()",
			       c->addr);
	if (likely(c->n_idle))
		return 0;
	c->starved = true;
	return gn_fail(-EAGAIN,
		       "rpc: %u calls are under way, all that this client may have; gn_rpc_wait() "
		       "for some",
		       c->limits.window);
}

static inline bool has_deadline(const struct gn_rpc_op *op)
{
	return op->deadline_ns && op->deadline_ns != GN_FOREVER;
}

/* The bytes that it takes in a message. */
static inline uint32_t entry_bytes(const struct gn_rpc_op *op, uint32_t len)
{
	return (uint32_t)(sizeof(struct rpc_entry) +
			  (has_deadline(op) ? sizeof(struct rpc_left) : 0)) +
	       rpc_align8(len);
}

/* Does it go into the message that is put together, with its likes? */
static inline bool goes_along(const struct gn_rpc_client *c, const struct gn_rpc_op *op)
{
	const uint32_t need = entry_bytes(op, op->request_len);

	return c->entries && !c->due && op->method == c->learn.last_method &&
	       c->reply == rpc_replied(c, c->learn.last) &&
	       op->request_len <= c->limits.max_request && need <= c->most - c->at;
}

/* Before the bytes of a request with a deadline: the time that is left for it. */
static no_inline uint32_t put_left(struct gn_rpc_client *c, uint64_t deadline_ns, uint8_t *to)
{
	const uint64_t now_ns = c->open->ns ? c->open->ns : gn_now_ns();
	const uint64_t us = deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000 + 1 : 1;
	const struct rpc_left left = {.us = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX};

	memcpy(to, &left, sizeof(left));
	return sizeof(left);
}

/* Where the bytes of the next request go. */
static inline uint8_t *bytes_at(const struct gn_rpc_client *c, const struct gn_rpc_op *op)
{
	return request_slot(c, c->number) + sizeof(struct rpc_head) + c->at + entry_bytes(op, 0);
}

/* The call is begun: an entry before its len bytes, which are at bytes_at() already. */
static inline void join(struct gn_rpc_client *c, struct gn_rpc_op *op, uint32_t len, uint32_t far)
{
	const uint32_t index = c->idle[--c->n_idle];
	uint8_t *to = request_slot(c, c->number) + sizeof(struct rpc_head) + c->at;
	struct rpc_entry entry = {
		.len = len, .kind = (uint16_t)op->method, .index = (uint16_t)(index | far)};
	struct rpc_call *call = &c->calls[index];

	if (!c->entries)
		open_message(c);
	if (c->open->time_us < c->learn.last->time_us)
		c->open->time_us = c->learn.last->time_us;
	c->at += entry_bytes(op, len);
	if (has_deadline(op)) {
		entry.len += put_left(c, op->deadline_ns, to + sizeof(entry)) | RPC_TIMED;
		if (op->deadline_ns < c->until_ns)
			c->until_ns = op->deadline_ns;
	}
	memcpy(to, &entry, sizeof(entry));
	c->prepared = NULL;
	c->entries++;
	c->open->left++;
	call->op = op;
	call->kind = c->learn.last;
	call->sent = c->open;
	call->taken = true;
	op->slot = index;
	op->client = c;
	op->data = NULL;
	c->n_live++;
	c->count.calls++;
}

/* A large request: the server is told where it is. */
static int join_far(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	struct rpc_call *call = &c->calls[c->idle[c->n_idle - 1]];
	struct rpc_far where;
	int rc = rpc_far_lend(c, call, op->request, op->request_len, &where);

	if (rc)
		return rc;
	c->far = true;
	memcpy(bytes_at(c, op), &where, sizeof(where));
	join(c, op, sizeof(where), RPC_FAR);
	return 0;
}

/* There is room for an entry of this op with len bytes; a message may be sent for that. */
static inline int find_room(struct gn_rpc_client *c, const struct gn_rpc_op *op, uint32_t len)
{
	const struct rpc_kind *kind;
	int rc;

	if (likely(goes_along(c, op)))
		return 0;
	kind = rpc_kind_of(c, op->method);
	rc = kind ? make_room(c, rpc_replied(c, kind), entry_bytes(op, len)) : -ENOMEM;
	c->starved |= rc == -EAGAIN;
	return rc;
}

static inline void flush_full(struct gn_rpc_client *c)
{
	if (c->entries >= c->learn.entries || c->at >= c->learn.batch.bytes)
		rpc_flush(c);
}

static uint32_t most_bytes(const struct gn_rpc_client *c)
{
	return c->limits.max_large > c->limits.max_request ? c->limits.max_large :
							     c->limits.max_request;
}

int gn_rpc_submit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	int rc = rpc_client_check(c);
	bool far;

	if (likely(!rc))
		rc = check_op(c, op, most_bytes(c));
	if (unlikely(!rc && op->request_len && !op->request))
		rc = gn_fail(-EINVAL, "gn_rpc_submit(): the request is NULL but not empty");
	if (unlikely(rc))
		return rc;
	far = op->request_len > c->limits.max_request;
	rc = find_room(c, op, far ? (uint32_t)sizeof(struct rpc_far) : op->request_len);
	if (unlikely(rc))
		return rc;
	if (unlikely(far)) {
		rc = join_far(c, op);
	} else {
		if (op->request_len)
			memcpy(bytes_at(c, op), op->request, op->request_len);
		join(c, op, op->request_len, 0);
	}
	if (likely(!rc))
		flush_full(c);
	return rc;
}

/* ---- requests that are written in place ---- */

/*
 * Nothing is kept for a prepared call but where its bytes go: whatever begins another call or sends
 * the message takes that away, and then the call cannot be committed any more.
 */
int gn_rpc_prepare(struct gn_rpc_client *c, struct gn_rpc_op *op, void **out)
{
	int rc = rpc_client_check(c);

	if (likely(!rc) && unlikely(!out))
		rc = gn_fail(-EINVAL, "gn_rpc_prepare(): out is NULL");
	if (likely(!rc))
		rc = check_op(c, op, c->limits.max_request);
	if (likely(!rc))
		rc = find_room(c, op, op->request_len);
	if (unlikely(rc))
		return rc;
	c->prepared = op;
	c->prepared_len = op->request_len;
	*out = c->prepared_at = bytes_at(c, op);
	return 0;
}

int gn_rpc_commit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	int rc = rpc_client_check(c);

	if (likely(!rc) && unlikely(c->dead))
		rc = gn_fail(-ENOTCONN, "gn_rpc_commit(): the server at %s is gone", c->addr);
	if (unlikely(rc))
		return rc;
	if (unlikely(!op || c->prepared != op))
		return gn_fail(-ESRCH, "gn_rpc_commit(): not the call that was prepared last, or "
				       "the client has sent or begun something since");
	if (unlikely(op->request_len > c->prepared_len || op->method != c->learn.last_method ||
		     bytes_at(c, op) != c->prepared_at))
		return gn_fail(-EINVAL, "gn_rpc_commit(): the request is longer than it was "
					"prepared, or has another method or a deadline");
	join(c, op, op->request_len, 0);
	flush_full(c);
	return 0;
}

/* Nothing depends on it, so it is dropped where the queue is full. */
void rpc_give_up(struct gn_rpc_client *c, uint32_t index)
{
	uint32_t number = c->calls[index].sent->number;
	const struct gn_sge sge = {&number, sizeof(number), 0};
	const struct gn_remote to = {.key = c->request_key};
	struct gn_wr wr;

	if (c->dead || c->max_inline < sizeof(number) || c->calls[index].far)
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
	return c->dead ? -ENOTCONN : 0;
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
