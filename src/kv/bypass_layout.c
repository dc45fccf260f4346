/* SPDX-License-Identifier: MIT */
/*
 * The layout of a partition's memory: taken when the client connects, and again when the table was
 * replaced.
 */
#include <errno.h>

#include "kv/bypass.h"

/* how long the server's clock is assumed to run like ours */
#define CLOCK_VALID_NS (3600ull * 1000000000)
#define SECOND_NS      1000000000ull

static bool layout_ok(const struct kv_layout *l)
{
	return l->bypass && l->table_bits && l->table_bits <= 32 &&
	       l->table.bytes >= sizeof(struct kv_entry) << l->table_bits;
}

static void layout_take(struct kv_bypass *b)
{
	b->layout = b->layout_response;
	b->layout_ns = gn_now_ns();
	/* A response that took long has an outdated clock. */
	b->clock_valid_until_ns =
		b->layout_ns - b->layout_sent_ns < SECOND_NS ? b->layout_ns + CLOCK_VALID_NS : 0;
	b->stale = !layout_ok(&b->layout);
}

static void layout_done(struct gn_rpc_op *op)
{
	struct kv_bypass *b = op->arg;

	b->layout_pending = false;
	if (op->status == GN_RPC_OK && op->result_len == sizeof(b->layout_response))
		layout_take(b);
}

static const struct kv_layout_request layout_request = {.expose = 1};

void kv_bypass_refresh_layout(struct kv_bypass *b)
{
	if (b->layout_pending || !layout_ok(&b->layout))
		return;
	b->layout_op = (struct gn_rpc_op){.method = KV_LAYOUT,
					  .request = &layout_request,
					  .request_len = sizeof(layout_request),
					  .result = &b->layout_response,
					  .result_room = sizeof(b->layout_response),
					  .done = layout_done,
					  .arg = b};
	b->layout_sent_ns = gn_now_ns();
	b->layout_pending = !gn_rpc_submit(b->client->links[b->part].rpc, &b->layout_op);
}

int kv_bypass_create(struct gn_kv_client *c, uint32_t part, const struct kv_layout *layout,
		     uint64_t asked_ns)
{
	struct kv_bypass *b = gn_alloc(sizeof(*b), 0);
	struct gn_rpc_limits limits = {.size = sizeof(limits)};
	int rc;

	if (!b)
		return -ENOMEM;
	*b = (struct kv_bypass){.client = c, .part = part};
	b->paper = c->opts.flags & GN_KV_PAPER;
	b->queued_end = &b->queued;
	b->gathered_end = &b->gathered;
	b->single_end = &b->single;
	b->held_end = &b->held;
	c->links[part].bypass = b;
	rc = gn_rpc_client_limits(c->links[part].rpc, &limits);
	if (rc)
		return rc;
	b->layout_sent_ns = asked_ns;
	b->layout_response = *layout;
	layout_take(b);
	b->n_lookups = limits.reads / KV_WAYS;
	b->lookups = gn_alloc(b->n_lookups * sizeof(*b->lookups), 0);
	if (!b->lookups)
		return -ENOMEM;
	for (uint32_t i = b->n_lookups; i > 0; i--) {
		b->lookups[i - 1].bypass = b;
		b->lookups[i - 1].next = b->free_lookups;
		b->free_lookups = &b->lookups[i - 1];
	}
	return 0;
}

void kv_bypass_free(struct kv_link *link)
{
	struct kv_bypass *b = link->bypass;

	if (!b)
		return;
	gn_free(b->lookups);
	gn_free(b);
	link->bypass = NULL;
}
