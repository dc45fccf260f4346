/* SPDX-License-Identifier: MIT */
/* A client's calls: begun, waited for, ended. */
#include "rpc/client.h"

#include <errno.h>
#include <string.h>

#include "base/mutant.h"

#define EAGER_US 20u /* of waiting for a reply and nothing else */

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
	if (!client)
		return -EINVAL;
	return client->owner == gn_thread_id() ? 0 : -EPERM;
}

void rpc_end(struct gn_rpc_client *client, struct rpc_slot *slot, unsigned status,
	     uint32_t result_len)
{
	struct gn_rpc_op *op = slot->op;

	slot->op = NULL;
	if (!op)
		return;
	op->status = status;
	op->result_len = result_len;
	op->client = NULL;
	client->count.ended[status < GN_RPC_FAILED ? status : GN_RPC_FAILED]++;
	client->ended++;
	if (op->done)
		op->done(op);
}

void rpc_client_die(struct gn_rpc_client *client)
{
	if (client->dead)
		return;
	client->dead = true;
	for (uint32_t i = 0; i < client->n_slots; i++)
		rpc_end(client, &client->slots[i], GN_RPC_PEER_GONE, 0);
}

/* The request as a message of one entry, in its slot of local memory. Returns its size. */
static uint64_t build(struct gn_rpc_client *c, const struct gn_rpc_op *op, uint32_t number)
{
	uint8_t *slot = c->requests + number % c->n_slots * c->request_stride;
	const struct rpc_entry entry = {.len = op->request_len, .kind = (uint16_t)op->method};
	const struct rpc_seal seal = {
		.seq = rpc_seq(c->epoch, number),
		.nonce = c->nonce,
		.len = (uint32_t)sizeof(entry) + op->request_len,
		.aux = 1,
		.flags = (c->mode == GN_RPC_REPLY ? RPC_REPLY : 0) | (c->check_reply ? RPC_CRC : 0),
	};

	memcpy(slot + sizeof(struct rpc_head), &entry, sizeof(entry));
	if (op->request_len)
		memcpy(slot + sizeof(struct rpc_head) + sizeof(entry), op->request,
		       op->request_len);
	gn_charge(GN_WORK_COPY, op->request_len);
	return rpc_seal(slot, &seal);
}

/* Reads are always signaled, and free the slots of the requests before them. */
static uint32_t request_flags(struct gn_rpc_client *c, uint64_t bytes)
{
	uint32_t flags = bytes <= c->max_inline ? GN_INLINE : 0;

	if (c->mode == GN_RPC_REPLY && ++c->unsignaled >= c->n_slots) {
		c->unsignaled = 0;
		flags |= GN_SIGNALED;
	}
	return flags;
}

static int post_request(struct gn_rpc_client *c, uint32_t number, uint64_t bytes)
{
	const uint64_t offset = number % c->n_slots * c->request_stride;
	const struct gn_sge sge = {c->requests + offset, (uint32_t)bytes, gn_mr_lkey(c->local_mr)};
	const struct gn_remote to = {.key = c->request_key};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE, UINT64_MAX, &sge, &to, offset, request_flags(c, bytes));
	return gn_post_send(c->qp, &wr, NULL);
}

int gn_rpc_submit(struct gn_rpc_client *c, struct gn_rpc_op *op)
{
	struct rpc_slot *slot;
	int rc = rpc_client_check(c);

	if (rc)
		return rc;
	if (!op || op->method >= GN_RPC_METHODS_MAX || (op->request_len && !op->request) ||
	    (op->result_room && !op->result))
		return -EINVAL;
	if (op->request_len > c->max_request)
		return -EMSGSIZE;
	if (c->dead)
		return -ENOTCONN;
	slot = &c->slots[c->number % c->n_slots];
	if (slot->state != RPC_FREE && (slot->op || !mutant("rpc-slot-early", c->number)))
		return -EAGAIN;
	rc = post_request(c, c->number, build(c, op, c->number));
	if (rc == -ENOTCONN)
		rpc_client_die(c);
	if (rc)
		return rc;
	*slot = (struct rpc_slot){.state = RPC_WAITING, .op = op, .number = c->number};
	op->slot = c->number++ % c->n_slots;
	op->client = c;
	c->count.calls++;
	return 0;
}

int gn_rpc_cancel(struct gn_rpc_op *op)
{
	int rc;

	if (!op)
		return -EINVAL;
	if (!op->client)
		return -ESRCH;
	rc = rpc_client_check(op->client);
	if (rc)
		return rc;
	/* The slot stays taken until its result is there: the server may be at it. */
	rpc_end(op->client, &op->client->slots[op->slot], GN_RPC_CANCELED, 0);
	return 0;
}

int gn_rpc_poll(struct gn_rpc_client *client)
{
	int rc = rpc_client_check(client);

	return rc ? rc : rpc_client_poll(client);
}

static bool any_call(const struct gn_rpc_client *c)
{
	for (uint32_t n = c->oldest; n != c->number; n++)
		if (c->slots[n % c->n_slots].op)
			return true;
	return false;
}

/* The earliest deadline of a call under way. */
static uint64_t first_deadline(const struct gn_rpc_client *c)
{
	uint64_t first = GN_FOREVER;

	for (uint32_t n = c->oldest; n != c->number; n++) {
		const struct gn_rpc_op *op = c->slots[n % c->n_slots].op;

		if (op && op->deadline_ns && op->deadline_ns < first)
			first = op->deadline_ns;
	}
	return first;
}

/*
 * Until a completion, an event of the connection, or a reply. To look at the channel costs a system
 * call, so it is left out at first, and while a read is under way: that ends with the connection.
 */
static int wait_for_more(struct gn_rpc_client *c, uint64_t deadline_ns)
{
	struct gn_wait_item items[GN_WAIT_MAX]; /* many: to clear them all takes its time */
	uint64_t eager_ns;
	bool torn = false;
	unsigned n = 1;
	int rc;

	items[0] = gn_wait_on(gn_cq_source(c->cq));
	if (c->mode == GN_RPC_FETCH && !c->reads)
		return 0; /* the last one came too early: read again */
	if (c->mode == GN_RPC_FETCH)
		return gn_wait(items, n, deadline_ns, "the read of a result");
	for (uint32_t i = c->oldest; i != c->number && n < GN_WAIT_MAX - 1; i++) {
		const struct rpc_slot *slot = &c->slots[i % c->n_slots];
		const uint64_t *word =
			(const uint64_t *)(const void *)(c->replies +
							 i % c->n_slots * c->result_stride);
		const uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);

		if (slot->state != RPC_WAITING)
			continue;
		if (seen == rpc_seq(c->epoch, i))
			torn = true; /* or here since just now */
		else
			items[n++] = gn_wait_word(word, seen);
	}
	eager_ns = gn_deadline_us(torn ? RPC_TORN_NAP_US : EAGER_US);
	rc = gn_wait(items, n, eager_ns < deadline_ns ? eager_ns : deadline_ns,
		     "the result of a call");
	if (rc != -ETIMEDOUT || torn || deadline_ns <= eager_ns)
		return rc;
	items[n++] = gn_wait_on(gn_chan_source(c->chan));
	return gn_wait(items, n, deadline_ns, "the result of a call");
}

int gn_rpc_wait(struct gn_rpc_client *client, uint64_t deadline_ns)
{
	int rc = rpc_client_check(client);

	if (rc)
		return rc;
	for (;;) {
		uint64_t until;

		rc = rpc_client_poll(client);
		if (rc || !any_call(client))
			return rc;
		if (gn_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		until = first_deadline(client);
		if (client->mode == GN_RPC_REPLY && client->heard_ns + RPC_PROBE_NS < until)
			until = client->heard_ns + RPC_PROBE_NS;
		rc = wait_for_more(client, until < deadline_ns ? until : deadline_ns);
		if (rc == -EINTR)
			return rc;
	}
}

static void note_end(struct gn_rpc_op *op)
{
	*(bool *)op->arg = true;
}

int gn_rpc_call(struct gn_rpc_client *client, unsigned method, const void *request,
		uint32_t request_len, void *result, uint32_t result_room, uint32_t *result_len,
		uint64_t deadline_ns, unsigned *status)
{
	bool ended = false;
	struct gn_rpc_op op = {
		.method = method,
		.request = request,
		.request_len = request_len,
		.result = result,
		.result_room = result_room,
		.deadline_ns = deadline_ns,
		.done = note_end,
		.arg = &ended,
	};
	int rc = gn_rpc_submit(client, &op);

	if (rc == -EAGAIN) { /* the slot's last call ended early, and nobody has looked since */
		gn_rpc_poll(client);
		rc = gn_rpc_submit(client, &op);
	}
	if (rc)
		return rc;
	while (!ended)
		gn_rpc_wait(client, GN_FOREVER);
	if (status)
		*status = op.status;
	if (result_len)
		*result_len = op.result_len;
	return 0;
}

int gn_rpc_limits(const struct gn_rpc_client *client, struct gn_rpc_limits *out)
{
	if (!client || !out)
		return -EINVAL;
	*out = (struct gn_rpc_limits){client->n_slots, client->max_request, client->max_result, client->max_result, client->n_slots};
	return 0;
}

int gn_rpc_client_counters(const struct gn_rpc_client *client, struct gn_rpc_counters *out)
{
	if (!client || !out)
		return -EINVAL;
	*out = client->count;
	return 0;
}
