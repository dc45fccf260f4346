/* SPDX-License-Identifier: MIT */
/* What a client knows of a partition's memory: learnt when it connects, and again when it moved. */
#include <errno.h>

#include "kv/bypass.h"

#define TRUST_NS  (3600ull * 1000000000) /* that the server's clock is thought to go as ours does */
#define SECOND_NS 1000000000ull

static bool layout_ok(const struct kv_layout *l)
{
	return l->bypass && l->table_bits && l->table_bits <= 32 &&
	       l->table.bytes >= sizeof(struct kv_entry) << l->table_bits;
}

static void learn(struct kv_bypass *b)
{
	b->layout = b->answer;
	b->learnt_ns = gn_now_ns();
	/* An answer that took long is of long ago. */
	b->trust_ns = b->learnt_ns - b->asked_ns < SECOND_NS ? b->learnt_ns + TRUST_NS : 0;
	b->stale = !layout_ok(&b->layout);
}

static void ask_done(struct gn_rpc_op *op)
{
	struct kv_bypass *b = op->arg;

	b->asking = false;
	if (op->status == GN_RPC_OK && op->result_len == sizeof(b->answer))
		learn(b);
}

static const struct kv_layout_ask ask_to_show = {.show = 1};

void kv_bypass_learn(struct kv_bypass *b)
{
	if (b->asking || !layout_ok(&b->layout))
		return;
	b->ask = (struct gn_rpc_op){.method = KV_LAYOUT,
				    .request = &ask_to_show,
				    .request_len = sizeof(ask_to_show),
				    .result = &b->answer,
				    .result_room = sizeof(b->answer),
				    .done = ask_done,
				    .arg = b};
	b->asked_ns = gn_now_ns();
	b->asking = !gn_rpc_submit(b->client->links[b->part].rpc, &b->ask);
}

int kv_bypass_make(struct gn_kv_client *c, uint32_t part, const struct kv_layout *layout,
		   uint64_t asked_ns)
{
	struct kv_bypass *b = gn_alloc(sizeof(*b), 0);
	struct gn_rpc_limits limits = {.size = sizeof(limits)};
	int rc;

	if (!b)
		return -ENOMEM;
	*b = (struct kv_bypass){.client = c, .part = part};
	b->paper = c->opts.flags & GN_KV_PAPER;
	b->waiting_end = &b->waiting;
	b->gathered_end = &b->gathered;
	b->alone_end = &b->alone;
	b->held_end = &b->held;
	c->links[part].bypass = b;
	rc = gn_rpc_client_limits(c->links[part].rpc, &limits);
	if (rc)
		return rc;
	b->asked_ns = asked_ns;
	b->answer = *layout;
	learn(b);
	b->n_looks = limits.reads / KV_WAYS;
	b->looks = gn_alloc(b->n_looks * sizeof(*b->looks), 0);
	if (!b->looks)
		return -ENOMEM;
	for (uint32_t i = b->n_looks; i > 0; i--) {
		b->looks[i - 1].bypass = b;
		b->looks[i - 1].next = b->idle;
		b->idle = &b->looks[i - 1];
	}
	return 0;
}

void kv_bypass_free(struct kv_link *link)
{
	struct kv_bypass *b = link->bypass;

	if (!b)
		return;
	gn_free(b->looks);
	gn_free(b);
	link->bypass = NULL;
}
