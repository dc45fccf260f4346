/* SPDX-License-Identifier: MIT */
/*
 * What a client does besides the calls to a partition whose memory it can read: which operations
 * are reads (look.c), in what order with the others, until when; and where that memory is.
 */
#include <errno.h>

#include "base/bits.h"
#include "kv/bypass.h"

#define CLOCK_EVERY 16u /* polls */

/* ---- beginning ---- */

static unsigned kind_of(uint64_t hash)
{
	return hash % KV_BYPASS_KINDS;
}

static bool readable(const struct kv_bypass *b, const struct gn_kv_op *op)
{
	return op->verb == GN_KV_GET && !b->stale &&
	       !(op->how & ~(unsigned)(GN_KV_NO_VALUE | GN_KV_QUIET | GN_KV_DETAILS));
}

static bool writes(const struct gn_kv_op *op)
{
	return op->verb != GN_KV_GET || op->how & (GN_KV_AND_TOUCH | GN_KV_VIVIFY | GN_KV_RECACHE);
}

/* Is something under way that it must not overtake? */
static bool must_wait(const struct kv_bypass *b, const struct gn_kv_op *op)
{
	return writes(op) && b->gets[kind_of(op->hash)];
}

static int begin(struct kv_bypass *b, struct gn_kv_op *op)
{
	struct gn_kv_client *c = b->client;
	const unsigned kind = kind_of(op->hash);
	int rc;

	if (readable(b, op) && !b->writes[kind]) {
		op->step |= KV_STEP_READS;
		b->gets[kind]++;
		c->count.bypass_gets++;
		if (b->idle) {
			kv_look_start(b, op);
			return 0;
		}
		op->next = NULL;
		*b->waiting_end = op;
		b->waiting_end = &op->next;
		return 0;
	}
	rc = kv_message_add(c, op);
	if (!rc && writes(op)) {
		op->step |= KV_STEP_WRITES;
		b->writes[kind]++;
	}
	return rc;
}

int kv_bypass_begin(struct gn_kv_client *c, struct gn_kv_op *op)
{
	struct kv_bypass *b = c->links[op->part].bypass;

	if (op->deadline_ns < b->until_ns)
		b->until_ns = op->deadline_ns;
	if (likely(!b->held && !must_wait(b, op)))
		return begin(b, op);
	op->next = NULL;
	*b->held_end = op;
	b->held_end = &op->next;
	c->links[op->part].under_way++;
	return 0;
}

void kv_bypass_ended(struct gn_kv_client *c, const struct gn_kv_op *op)
{
	struct kv_bypass *b = c->links[op->part].bypass;

	if (op->step & KV_STEP_READS)
		b->gets[kind_of(op->hash)]--;
	if (op->step & KV_STEP_WRITES)
		b->writes[kind_of(op->hash)]--;
}

static void release_held(struct kv_bypass *b)
{
	while (b->held && !must_wait(b, b->held)) {
		struct gn_kv_op *op = b->held;

		b->held = op->next;
		if (!b->held)
			b->held_end = &b->held;
		kv_bypass_link(b)->under_way--;
		if (begin(b, op))
			kv_op_end(b->client, op, GN_KV_FAILED);
	}
}

/* ---- where things are ---- */

static bool layout_ok(const struct kv_layout *l)
{
	return l->bypass && l->table_bits && l->table_bits <= 32 &&
	       l->table.bytes >= sizeof(struct kv_entry) << l->table_bits;
}

static void learn(struct kv_bypass *b)
{
	b->layout = b->answer;
	b->learnt_ns = gn_now_ns();
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

static void ask_layout(struct kv_bypass *b)
{
	b->ask = (struct gn_rpc_op){.method = KV_LAYOUT,
				    .request = &ask_to_show,
				    .request_len = sizeof(ask_to_show),
				    .result = &b->answer,
				    .result_room = sizeof(b->answer),
				    .done = ask_done,
				    .arg = b};
	b->asking = !gn_rpc_submit(kv_bypass_link(b)->rpc, &b->ask);
}

/* ---- moving on ---- */

/* Is it too late for this one? If not, when it will be counts. */
static bool late(struct kv_bypass *b, const struct gn_kv_op *op, uint64_t now_ns)
{
	if (op->deadline_ns > now_ns && op->deadline_ns < b->until_ns)
		b->until_ns = op->deadline_ns;
	return op->deadline_ns <= now_ns;
}

/* Of those that have not begun: how many. */
static uint32_t end_late_of(struct kv_bypass *b, struct gn_kv_op **list,
			    struct gn_kv_op ***list_end, uint64_t now_ns)
{
	struct gn_kv_op *op = *list, *next;
	uint32_t n = 0;

	*list = NULL;
	*list_end = list;
	for (; op; op = next) {
		next = op->next;
		op->next = NULL;
		if (late(b, op, now_ns)) {
			kv_op_end(b->client, op, GN_KV_TIMEOUT);
			n++;
		} else {
			**list_end = op;
			*list_end = &op->next;
		}
	}
	return n;
}

static void end_late(struct kv_bypass *b, uint64_t now_ns)
{
	b->until_ns = GN_FOREVER;
	for (uint32_t i = 0; i < b->n_looks; i++) {
		struct gn_kv_op *op = b->looks[i].op;

		if (!op || !late(b, op, now_ns))
			continue;
		b->looks[i].op = NULL; /* what it has asked for comes, to nobody */
		kv_op_end(b->client, op, GN_KV_TIMEOUT);
	}
	end_late_of(b, &b->waiting, &b->waiting_end, now_ns);
	kv_bypass_link(b)->under_way -= end_late_of(b, &b->held, &b->held_end, now_ns);
}

void kv_bypass_poll(struct kv_bypass *b)
{
	kv_look_post(b);
	if (unlikely(b->held))
		release_held(b);
	if (unlikely(b->stale && !b->asking && layout_ok(&b->layout)))
		ask_layout(b);
	if (unlikely(b->until_ns != GN_FOREVER) && !(++b->polls % CLOCK_EVERY)) {
		const uint64_t now_ns = gn_now_ns();

		if (now_ns >= b->until_ns)
			end_late(b, now_ns);
	}
	kv_look_post(b);
}

/* ---- life ---- */

int kv_bypass_make(struct gn_kv_client *c, uint32_t part, uint64_t deadline_ns)
{
	struct kv_bypass *b = gn_alloc(sizeof(*b), 0);
	struct gn_rpc_limits limits;
	int rc;

	if (!b)
		return -ENOMEM;
	*b = (struct kv_bypass){.client = c, .part = part, .until_ns = GN_FOREVER};
	b->paper = c->opts.flags & GN_KV_PAPER;
	b->waiting_end = &b->waiting;
	b->gathered_end = &b->gathered;
	b->alone_end = &b->alone;
	b->held_end = &b->held;
	c->links[part].bypass = b;
	rc = gn_rpc_limits(c->links[part].rpc, &limits);
	if (!rc)
		rc = kv_client_call(c, part, KV_LAYOUT, &ask_to_show, sizeof(ask_to_show),
				    &b->answer, sizeof(b->answer), deadline_ns);
	if (rc)
		return rc;
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

/* What was read has ended with the connection. What waited for it begins, and finds nobody. */
void kv_bypass_end_all(struct kv_bypass *b)
{
	while (b->gathered || b->alone)
		kv_look_post(b);
	while (b->held) {
		struct gn_kv_op *op = b->held;

		b->held = op->next;
		kv_bypass_link(b)->under_way--;
		kv_op_end(b->client, op, GN_KV_GONE);
	}
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
