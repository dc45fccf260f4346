/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous requests to all partitions of a server: one partition after the other, each with one
 * call.
 */
#include <errno.h>

#include "base/deadline.h"
#include "base/fail.h"
#include "kv/client.h"

static void control_end(struct gn_kv_control *k, int error)
{
	struct gn_kv_client *c = k->client;

	c->links[k->part].outstanding--;
	*k->prev = k->next;
	if (k->next)
		k->next->prev = k->prev;
	else
		c->controls_end = k->prev;
	c->n_ops--;
	c->ended++;
	k->error = error;
	k->done(k);
}

static int control_error(unsigned status)
{
	switch (status) {
	case GN_RPC_TIMEOUT:
		return -ETIMEDOUT;
	case GN_RPC_PEER_GONE:
	case GN_RPC_CANCELED:
		return -ENOTCONN;
	case GN_RPC_BUSY:
		return -EBUSY;
	default:
		return -EPROTO;
	}
}

/* Queued until its connection has a free slot. */
static void control_wait(struct gn_kv_control *k)
{
	k->called = false;
	kv_note_deadline(k->client, k->deadline_ns);
}

static void control_call(struct gn_kv_control *k);

static void control_called(struct gn_rpc_op *op)
{
	struct gn_kv_control *k = op->arg;
	struct gn_kv_client *c = k->client;

	k->called = false;
	c->disconnected |= op->status == GN_RPC_PEER_GONE;
	if (op->status != GN_RPC_OK || op->result_len != op->result_room) {
		control_end(k, control_error(op->status));
		return;
	}
	if (k->verb == GN_KV_CONTROL_STATS) {
		struct gn_kv_stats one = {.size = sizeof(one)};

		kv_stats_read(k->answer, &one);
		kv_stats_sum(&k->stats, &one);
	}
	if (k->part + 1 == c->n_links) {
		control_end(k, 0);
		return;
	}
	c->links[k->part++].outstanding--;
	c->links[k->part].outstanding++;
	control_call(k);
}

/* Calls the next partition; if no slot is free, the next poll tries again. */
static void control_call(struct gn_kv_control *k)
{
	const bool stats = k->verb == GN_KV_CONTROL_STATS;
	struct kv_link *link = &k->client->links[k->part];
	struct kv_clear *clear = (struct kv_clear *)(void *)k->request;
	int rc;

	_Static_assert(sizeof(*clear) == sizeof(k->request), "a request of CLEAR");
	*clear = (struct kv_clear){.delay_s = k->delay_s};
	k->rpc = (struct gn_rpc_op){
		.method = stats ? KV_STATS : KV_CLEAR,
		.request = stats ? NULL : clear,
		.request_len = stats ? 0 : sizeof(*clear),
		.result = stats ? k->answer : NULL,
		.result_room = stats ? sizeof(k->answer) : 0,
		.deadline_ns = k->deadline_ns,
		.done = control_called,
		.arg = k,
	};
	/* If the connection broke, the control may complete before gn_rpc_submit() returns. */
	k->called = true;
	rc = link->rpc ? gn_rpc_submit(link->rpc, &k->rpc) : -ENOTCONN;
	if (!rc)
		return;
	if (rc == -EAGAIN) {
		control_wait(k);
		return;
	}
	k->client->disconnected |= rc == -ENOTCONN;
	control_end(k, rc);
}

/* Completes queued controls whose deadline has passed. */
void kv_controls_expire(struct gn_kv_client *c, uint64_t now_ns)
{
	struct gn_kv_control *k = c->controls;

	while (k) {
		if (!k->called && k->deadline_ns <= now_ns) {
			control_end(k, -ETIMEDOUT);
			k = c->controls; /* done may have started or ended others */
			continue;
		}
		if (!k->called)
			control_wait(k);
		k = k->next;
	}
}

/* The first queued control. */
static struct gn_kv_control *first_waiting(const struct gn_kv_client *c)
{
	struct gn_kv_control *k = c->controls;

	while (k && k->called)
		k = k->next;
	return k;
}

void kv_controls_poll(struct gn_kv_client *c)
{
	struct gn_kv_control *k = first_waiting(c);

	while (k) {
		const struct gn_kv_control *before = k;

		control_call(k);
		k = first_waiting(c);
		if (k == before) /* no slot is free */
			return;
	}
}

void kv_controls_end_all(struct gn_kv_client *c)
{
	while (c->controls)
		control_end(c->controls, -ENOTCONN);
}

int gn_kv_control_submit(struct gn_kv_client *c, struct gn_kv_control *k)
{
	int rc = kv_client_check(c);

	if (!rc && (!k || !k->done || k->verb > GN_KV_CONTROL_STATS))
		rc = gn_fail(-EINVAL,
			     "gn_kv_control_submit(): control or done is NULL, or no such verb");
	if (!rc && (c->closing || c->disconnected))
		rc = gn_fail(-ENOTCONN, KV_DISCONNECTED, c->addr);
	if (rc)
		return rc;
	k->deadline_ns = deadline_given(k->deadline_ns);
	k->client = c;
	k->part = 0;
	control_wait(k);
	k->stats = (struct gn_kv_stats){.size = sizeof(struct gn_kv_stats)};
	k->next = NULL;
	k->prev = c->controls_end;
	*c->controls_end = k;
	c->controls_end = &k->next;
	/* Also while it is queued: slots of calls that timed out are freed by polls. */
	c->links[0].outstanding++;
	c->n_ops++;
	return 0;
}
