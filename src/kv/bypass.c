/* SPDX-License-Identifier: MIT */
/*
 * GET with READs. First READ the first of the key's three entries: most keys are there, because the
 * server puts them there if it can. Then READ both others with one doorbell: a key that is not in
 * the first entry costs one more round trip, not two, and the server's card gets fewer READs than
 * with three at once. An entry with the key's tag leads to an item. (GN_KV_PAPER: one entry after
 * the other, each with its item, as in Pilaf.)
 *
 * A hit is correct: an intact entry pointed to this item when it was read, and bytes with the
 * checksum that the entry names are that item, wherever they were read.
 *
 * A miss needs a second round: the key may have moved from an entry that was not read yet to one
 * that was. After all three entries were read, READ the crc of each once more. If a crc is
 * unchanged, its entry was not written in between: an entry never has the same words again after it
 * had others, every entry has another crc, and the crc is written first. So at the moment after the
 * last READ of the first round and before the first of the second, all three entries were as they
 * were read. An existing key is in one of its three entries at any moment; so at that moment the
 * key did not exist. This holds only if all entries were intact in the first round.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/mutant.h"
#include "kv/bypass.h"

#define ATTEMPTS_MAX  8u /* torn or repeated READs of a GET, before it becomes a call */
#define CLOCK_SLACK_S 2u /* uncertainty of the server's clock */
#define SECOND_NS     1000000000ull
#define MUTANT_NS     40000u
#define ALL_WAYS      ((1u << KV_WAYS) - 1)

static void lookup_advance(struct kv_lookup *lookup);

static struct kv_link *bypass_link(const struct kv_bypass *b)
{
	return &b->client->links[b->part];
}

static unsigned hash_class(uint64_t hash)
{
	return hash % KV_BYPASS_CLASSES;
}

/* ---- completion ---- */

static void lookup_start(struct kv_bypass *b, struct gn_kv_op *op);

/* Frees the lookup, or starts the next queued operation with it. */
static void lookup_release(struct kv_lookup *lookup)
{
	struct kv_bypass *b = lookup->bypass;
	struct gn_kv_op *op = b->queued;

	gn_free(lookup->large);
	lookup->large = NULL;
	lookup->op = NULL;
	lookup->next = b->free_lookups;
	b->free_lookups = lookup;
	b->n_busy--;
	bypass_link(b)->outstanding--;
	if (!op)
		return;
	b->queued = op->next;
	if (!b->queued)
		b->queued_end = &b->queued;
	lookup_start(b, op);
}

static void lookup_end(struct kv_lookup *lookup, unsigned status)
{
	struct gn_kv_client *c = lookup->bypass->client;
	struct gn_kv_op *op = lookup->op;

	lookup_release(lookup);
	kv_op_complete(c, op, status);
}

static void lookup_call_server(struct gn_kv_client *c, struct gn_kv_op *op)
{
	const int rc = kv_op_call(c, op);

	c->count.fell_back++;
	if (rc)
		kv_op_complete(c, op, kv_status_of_error(rc));
}

static void lookup_fall_back(struct kv_lookup *lookup)
{
	struct gn_kv_client *c = lookup->bypass->client;
	struct gn_kv_op *op = lookup->op;

	lookup_release(lookup);
	lookup_call_server(c, op);
}

/* ---- READs ---- */

/*
 * READs are only gathered here and posted by reads_post(): a READ may complete while it is posted.
 */
static void read_gather(struct kv_bypass *b, struct gn_rpc_read_op *read)
{
	const bool large = read->len > GN_RPC_READ_SHORT;

	read->next = NULL;
	*(large ? b->single_end : b->gathered_end) = read;
	*(large ? &b->single_end : &b->gathered_end) = &read->next;
}

/* A READ failed or could not be posted. */
static void read_lost(struct kv_lookup *lookup, const struct gn_rpc_read_op *read,
		      bool disconnected)
{
	lookup->pending &= ~(1u << (read - lookup->read));
	lookup->failed = true;
	lookup->disconnected |= disconnected;
	lookup->bypass->client->disconnected |= disconnected;
	if (!lookup->pending)
		lookup_advance(lookup);
}

static void reads_begin(struct kv_bypass *b, struct gn_rpc_read_op *read)
{
	struct gn_rpc_client *rpc = bypass_link(b)->rpc;
	const int rc = rpc ? gn_rpc_read(rpc, read) : -ENOTCONN;

	for (struct gn_rpc_read_op *next; rc && read; read = next) {
		next = read->next;
		read_lost(read->arg, read, rc == -ENOTCONN);
	}
}

static void reads_post(struct kv_bypass *b)
{
	struct gn_rpc_read_op *gathered = b->gathered, *single = b->single, *next;

	b->gathered = b->single = NULL;
	b->gathered_end = &b->gathered;
	b->single_end = &b->single;
	if (gathered)
		reads_begin(b, gathered);
	for (; single; single = next) {
		next = single->next;
		single->next = NULL;
		reads_begin(b, single);
	}
}

static void entry_read_done(struct gn_rpc_read_op *read);
static void crc_read_done(struct gn_rpc_read_op *read);
static void item_read_done(struct gn_rpc_read_op *read);

typedef void read_done(struct gn_rpc_read_op *read);

/* READs bytes of an entry, from offset at on. */
static void read_entry(struct kv_lookup *lookup, unsigned way, uint32_t at, uint32_t bytes,
		       void *to, read_done *done)
{
	struct kv_bypass *b = lookup->bypass;
	const uint64_t n = kv_entry_index(kv_tag(lookup->op->hash), way, b->layout.table_bits);

	lookup->read[way] = (struct gn_rpc_read_op){
		.view = kv_view_read(&b->layout.table),
		.offset = n * sizeof(struct kv_entry) + at,
		.len = bytes,
		.to = to,
		.done = done,
		.arg = lookup,
	};
	lookup->pending |= 1u << way;
	b->client->count.entry_reads++;
	read_gather(b, &lookup->read[way]);
}

static void read_entries(struct kv_lookup *lookup, unsigned ways)
{
	for (unsigned way = 0; way < KV_WAYS; way++)
		if (ways & 1u << way)
			read_entry(lookup, way, 0, sizeof(struct kv_entry), &lookup->entry[way],
				   entry_read_done);
}

static void read_crcs(struct kv_lookup *lookup)
{
	for (unsigned way = 0; way < KV_WAYS; way++)
		read_entry(lookup, way, offsetof(struct kv_entry, crc), sizeof(lookup->crc[way]),
			   &lookup->crc[way], crc_read_done);
}

/* Which of the unread entries to READ next. */
static unsigned next_ways(const struct kv_lookup *lookup)
{
	const unsigned unknown = ALL_WAYS & ~lookup->valid;

	if (lookup->bypass->paper || (!lookup->retry && !lookup->valid))
		return unknown & -unknown;
	return unknown;
}

/* False: the entry does not describe a possible item. */
static bool read_item(struct kv_lookup *lookup, unsigned way)
{
	const struct kv_entry *e = &lookup->entry[way];
	struct kv_bypass *b = lookup->bypass;
	const uint64_t offset = (uint64_t)kv_entry_loc(e) * KV_UNIT;
	const uint32_t bytes = kv_entry_size(e);
	struct gn_rpc_read_op *read = &lookup->read[way];

	if (bytes <= KV_ITEM_HEAD || bytes > b->layout.items.bytes ||
	    offset > b->layout.items.bytes - bytes)
		return false;
	*read = (struct gn_rpc_read_op){
		.view = kv_view_read(&b->layout.items),
		.offset = offset,
		.len = bytes,
		.done = item_read_done,
		.arg = lookup,
	};
	lookup->way = way;
	lookup->pending = 1u << way;
	b->client->count.value_reads++;
	if (bytes > GN_RPC_READ_SHORT) {
		gn_free(lookup->large);
		lookup->large = gn_alloc(bytes, 0);
		read->to = lookup->large;
		lookup->failed = !lookup->large;
	}
	if (lookup->failed)
		lookup->pending = 0;
	else
		read_gather(b, read);
	return true;
}

/* ---- checks ---- */

static void lookup_torn(struct kv_lookup *lookup, unsigned way)
{
	lookup->bypass->client->count.torn++;
	lookup->attempts++;
	lookup->valid &= ~(1u << way);
}

static bool entry_is_intact(const struct kv_entry *e)
{
	gn_charge(GN_WORK_CHECKSUM, sizeof(*e));
	if (kv_entry_crc(e) == e->crc)
		return true;
	if (!mutant("kv-entry-crc", MUTANT_ALWAYS))
		return false;
	gn_charge(GN_WORK_NS, MUTANT_NS); /* give this mutant time to do harm */
	return true;
}

static void entry_read_done(struct gn_rpc_read_op *read)
{
	struct kv_lookup *lookup = read->arg;
	const unsigned way = (unsigned)(read - lookup->read);
	const struct kv_entry *e = &lookup->entry[way];

	if (read->status) {
		read_lost(lookup, read, true);
		return;
	}
	lookup->pending &= ~(1u << way);
	if (entry_is_intact(e)) {
		lookup->valid |= 1u << way;
		lookup->moved |= kv_entry_moved(e) && !mutant("kv-moved-ignored", MUTANT_ALWAYS);
	} else {
		lookup_torn(lookup, way);
	}
	if (!lookup->pending)
		lookup_advance(lookup);
}

enum item_verdict { TORN, OTHER_KEY, EXPIRED, UNSURE, FOUND };

static uint32_t server_now_s(const struct kv_bypass *b)
{
	return (uint32_t)((gn_now_ns() - b->layout_ns + b->layout.age_ns) / SECOND_NS) + 1;
}

/* Has the item expired, as far as the server's clock is known? */
static enum item_verdict item_check_expiry(struct kv_bypass *b, const struct kv_item *item,
					   struct gn_kv_op *op)
{
	const uint32_t expires = kv_expires(item);
	const uint32_t now = expires || op->how & GN_KV_DETAILS ? server_now_s(b) : 0;
	const uint32_t used = item->used >> KV_ITEM_BITS;

	op->ttl_s = op->was_ttl_s = GN_KV_TTL_NONE;
	op->idle_s = used < now ? now - used : 0;
	if (!expires)
		return FOUND;
	if (gn_now_ns() > b->clock_valid_until_ns) {
		b->stale = true; /* request the layout again */
		return UNSURE;
	}
	if (expires <= now && now - expires >= CLOCK_SLACK_S)
		return EXPIRED;
	if (expires <= now + CLOCK_SLACK_S)
		return UNSURE;
	op->ttl_s = op->was_ttl_s = expires - now;
	return FOUND;
}

/* Is this the item that the entry describes, and does it have the right key? */
static enum item_verdict item_check(struct kv_lookup *lookup, const struct kv_item *item)
{
	const struct kv_entry *e = &lookup->entry[lookup->way];
	struct gn_kv_op *op = lookup->op;

	if (!kv_key_len(item) || kv_key_len(item) > GN_KV_KEY_MAX ||
	    kv_value_len(item) > GN_KV_VALUE_MAX ||
	    kv_item_bytes(item->lengths) != kv_entry_size(e))
		return TORN;
	gn_charge(GN_WORK_CHECKSUM, kv_entry_size(e));
	/* The sum detects torn entries as well: the mutant skips both checks. */
	if (kv_item_sum(item) != e->sum && !mutant("kv-entry-crc", MUTANT_ALWAYS))
		return TORN;
	if (!kv_key_is(item, op->key, op->key_len) && !mutant("kv-key-compare", op->hash))
		return OTHER_KEY;
	/* Only the server can decide which client renews such an item. */
	if (item->used & (KV_ITEM_STALE | KV_ITEM_WON))
		return UNSURE;
	return item_check_expiry(lookup->bypass, item, op);
}

static void lookup_take_item(struct kv_lookup *lookup, struct kv_item *item)
{
	struct gn_kv_op *op = lookup->op;

	op->flags = kv_flags(item);
	op->cas = item->cas;
	op->len = kv_value_len(item);
	op->found = item->used & KV_ITEM_HIT ? GN_KV_HIT_BEFORE : 0;
	if (!(op->how & GN_KV_NO_VALUE) && op->len > op->room_bytes) {
		lookup_end(lookup, GN_KV_TOO_BIG);
		return;
	}
	if (!(op->how & GN_KV_NO_VALUE) && op->len) {
		memcpy(op->room, kv_value(item), op->len);
		gn_charge(GN_WORK_COPY, op->len);
	}
	lookup_end(lookup, GN_KV_OK);
}

static void lookup_miss(struct kv_lookup *lookup)
{
	lookup->op->found = lookup->op->len = lookup->op->idle_s = 0;
	lookup_end(lookup, GN_KV_MISS);
}

static void item_read_done(struct gn_rpc_read_op *read)
{
	struct kv_lookup *lookup = read->arg;
	const unsigned way = lookup->way;
	struct kv_item *item;

	if (read->status) {
		read_lost(lookup, read, true);
		return;
	}
	lookup->pending = 0;
	if (!lookup->op) {
		lookup_release(lookup);
		return;
	}
	item = (struct kv_item *)(uintptr_t)(read->to ? read->to : read->data);
	switch (item_check(lookup, item)) {
	case TORN:
		lookup_torn(lookup, way);
		lookup_advance(lookup);
		break;
	case OTHER_KEY:
		lookup->rejected_crc[way] = lookup->entry[way].crc;
		lookup_advance(lookup);
		break;
	case EXPIRED:
		lookup_miss(lookup);
		break;
	case UNSURE:
		lookup_fall_back(lookup);
		break;
	case FOUND:
		lookup_take_item(lookup, item);
		break;
	}
}

/* May the item of this entry have the key? */
static bool entry_may_lead_to_key(const struct kv_lookup *lookup, unsigned way)
{
	const struct kv_entry *e = &lookup->entry[way];

	return kv_entry_loc(e) && lookup->rejected_crc[way] != e->crc &&
	       (lookup->bypass->paper || kv_entry_tag(e) == kv_tag(lookup->op->hash));
}

/* All READs of this step have completed: take the next step. */
static void lookup_advance(struct kv_lookup *lookup)
{
	if (!lookup->op) {
		lookup_release(lookup);
		return;
	}
	if (lookup->failed && lookup->disconnected) {
		lookup_end(lookup, GN_KV_GONE);
		return;
	}
	lookup->bypass->stale |= lookup->moved;
	if (lookup->failed || lookup->moved || lookup->attempts > ATTEMPTS_MAX) {
		lookup_fall_back(lookup);
		return;
	}
	for (unsigned way = 0; way < KV_WAYS; way++) {
		if (!(lookup->valid & 1u << way)) {
			read_entries(lookup, next_ways(lookup));
			return;
		}
		if (!entry_may_lead_to_key(lookup, way))
			continue;
		if (!read_item(lookup, way)) {
			lookup_torn(lookup, way);
			lookup_advance(lookup);
		} else if (!lookup->pending) {
			lookup_advance(lookup);
		}
		return;
	}
	read_crcs(lookup);
}

/* The second round of a miss: if all crcs are unchanged, the key does not exist. */
static void crc_read_done(struct gn_rpc_read_op *read)
{
	struct kv_lookup *lookup = read->arg;
	bool same = true;

	if (read->status) {
		read_lost(lookup, read, true);
		return;
	}
	lookup->pending &= ~(1u << (read - lookup->read));
	if (lookup->pending)
		return;
	for (unsigned way = 0; way < KV_WAYS; way++)
		same &= lookup->crc[way] == lookup->entry[way].crc;
	same |= mutant("kv-miss-once", MUTANT_ALWAYS);
	if (lookup->op && same && !lookup->failed) {
		lookup_miss(lookup);
		return;
	}
	lookup->attempts++;
	lookup->retry = true;
	lookup->valid = 0;
	lookup_advance(lookup);
}

/* ---- start ---- */

static void lookup_start(struct kv_bypass *b, struct gn_kv_op *op)
{
	struct kv_lookup *lookup = b->free_lookups;

	b->free_lookups = lookup->next;
	b->n_busy++;
	bypass_link(b)->outstanding++;
	lookup->op = op;
	lookup->valid = lookup->pending = lookup->attempts = 0;
	lookup->retry = lookup->moved = lookup->failed = lookup->disconnected = false;
	memset(lookup->rejected_crc, 0, sizeof(lookup->rejected_crc));
	kv_note_deadline(b->client, op->deadline_ns);
	read_entries(lookup, next_ways(lookup));
}

static bool op_is_readable(const struct kv_bypass *b, const struct gn_kv_op *op)
{
	return op->verb == GN_KV_GET && !b->stale &&
	       !(op->how & ~(unsigned)(GN_KV_NO_VALUE | GN_KV_QUIET | GN_KV_DETAILS));
}

static bool op_writes(const struct gn_kv_op *op)
{
	return op->verb != GN_KV_GET || op->how & (GN_KV_AND_TOUCH | GN_KV_VIVIFY | GN_KV_RECACHE);
}

/* Must the operation wait for an outstanding one on the same key? */
static bool op_must_wait(const struct kv_bypass *b, const struct gn_kv_op *op)
{
	return op_writes(op) && b->gets[hash_class(op->hash)];
}

static int bypass_begin_op(struct kv_bypass *b, struct gn_kv_op *op)
{
	struct gn_kv_client *c = b->client;
	const unsigned class = hash_class(op->hash);
	const bool write = op_writes(op);
	int rc;

	if (op_is_readable(b, op) && !b->writes[class]) {
		op->step |= KV_OP_READS;
		b->gets[class]++;
		c->count.bypass_gets++;
		if (b->free_lookups) {
			lookup_start(b, op);
			return 0;
		}
		op->next = NULL;
		*b->queued_end = op;
		b->queued_end = &op->next;
		kv_note_deadline(b->client, op->deadline_ns);
		return 0;
	}
	/* Before the call: the operation may complete in it and belong to its caller again. */
	if (write) {
		op->step |= KV_OP_WRITES;
		b->writes[class]++;
	}
	rc = kv_op_call(c, op);
	if (rc && write) {
		op->step &= ~(uint32_t)KV_OP_WRITES;
		b->writes[class]--;
	}
	return rc;
}

int kv_bypass_begin(struct gn_kv_client *c, struct gn_kv_op *op)
{
	struct kv_bypass *b = c->links[op->part].bypass;

	if (likely(!b->held && !op_must_wait(b, op)))
		return bypass_begin_op(b, op);
	op->next = NULL;
	*b->held_end = op;
	b->held_end = &op->next;
	kv_note_deadline(b->client, op->deadline_ns);
	c->links[op->part].outstanding++;
	return 0;
}

void kv_bypass_ended(struct gn_kv_client *c, const struct gn_kv_op *op)
{
	struct kv_bypass *b = c->links[op->part].bypass;

	if (op->step & KV_OP_READS)
		b->gets[hash_class(op->hash)]--;
	if (op->step & KV_OP_WRITES)
		b->writes[hash_class(op->hash)]--;
}

static void bypass_release_held(struct kv_bypass *b)
{
	while (b->held && !op_must_wait(b, b->held)) {
		struct gn_kv_op *op = b->held;
		int rc;

		b->held = op->next;
		if (!b->held)
			b->held_end = &b->held;
		bypass_link(b)->outstanding--;
		rc = bypass_begin_op(b, op);
		if (rc)
			kv_op_complete(b->client, op, kv_status_of_error(rc));
	}
}

/* ---- progress ---- */

struct gn_kv_op *kv_bypass_collect_expired(struct kv_bypass *b, uint64_t now_ns,
					   struct gn_kv_op *expired)
{
	uint32_t uncounted = 0; /* operations that wait for a lookup do not count */

	expired = kv_ops_collect_expired(b->client, &b->held, &b->held_end,
					 &bypass_link(b)->outstanding, now_ns, expired);
	expired = kv_ops_collect_expired(b->client, &b->queued, &b->queued_end, &uncounted, now_ns,
					 expired);
	for (uint32_t i = 0; i < b->n_lookups; i++) {
		struct gn_kv_op *op = b->lookups[i].op;

		if (!op)
			continue;
		if (op->deadline_ns > now_ns) {
			kv_note_deadline(b->client, op->deadline_ns);
			continue;
		}
		b->lookups[i].op = NULL; /* its READs still complete, and are ignored */
		op->next = expired;
		expired = op;
	}
	return expired;
}

void kv_bypass_poll(struct kv_bypass *b)
{
	if (b->gathered || b->single)
		reads_post(b);
	if (unlikely(b->held))
		bypass_release_held(b);
	if (unlikely(b->stale))
		kv_bypass_refresh_layout(b);
	if (b->gathered || b->single)
		reads_post(b);
}

bool kv_bypass_must_poll(const struct kv_bypass *b)
{
	return b->gathered || b->single || (b->held && !op_must_wait(b, b->held));
}

/* READs ended with the connection. Queued operations start now and fail. */
void kv_bypass_end_all(struct kv_bypass *b)
{
	while (b->gathered || b->single)
		reads_post(b);
	while (b->held) {
		struct gn_kv_op *op = b->held;

		b->held = op->next;
		bypass_link(b)->outstanding--;
		kv_op_complete(b->client, op, GN_KV_GONE);
	}
}
