/* SPDX-License-Identifier: MIT */
/*
 * GET by reading. The first of a key's three entries is read alone: most keys are there, because
 * the server puts them there if it can. Then both others are, with one doorbell: a key that is not
 * in the first has to wait for one more round trip, not for two, and the server's card is asked for
 * less than by three reads each time. An entry with the key's tag leads to an item. (GN_KV_PAPER:
 * one entry after the other, and the item of each, as Pilaf does it.)
 *
 * A key that was found was there with that value when its entry was read: an entry that is whole
 * told of this item then, and bytes with the sum that it names are that item, wherever they lay.
 *
 * A key that was not found in three entries may have moved from one that was not read yet to one
 * that was. So when all of these reads are done, the crc of each is read once more. If it is the
 * same, the entry was not written between: no entry has the same words again after others, its crc
 * is another with each, and is written first. So there was a moment, when the last of the first
 * reads was done and none of the second had begun, at which all three were as they were read. At
 * any moment a key that is there is in one of its three entries; so at that one it was not there.
 * All of this is true of entries that were whole the first time only.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/mutant.h"
#include "kv/bypass.h"

#define TRIES	  8u /* of a GET, after which it is called */
#define SLACK_S	  2u /* by which the server's clock may be another than we think */
#define SECOND_NS 1000000000ull
#define MUTANT_NS 40000u
#define ALL	  ((1u << KV_WAYS) - 1)

static void think(struct kv_look *look);

static struct kv_link *link_of(const struct kv_bypass *b)
{
	return &b->client->links[b->part];
}

static unsigned kind_of(uint64_t hash)
{
	return hash % KV_BYPASS_KINDS;
}

/* ---- the end of a GET ---- */

static void start(struct kv_bypass *b, struct gn_kv_op *op);

/* It is idle, or begins with the next. */
static void release(struct kv_look *look)
{
	struct kv_bypass *b = look->bypass;
	struct gn_kv_op *op = b->waiting;

	gn_free(look->large);
	look->large = NULL;
	look->op = NULL;
	look->next = b->idle;
	b->idle = look;
	b->n_busy--;
	link_of(b)->under_way--;
	if (!op)
		return;
	b->waiting = op->next;
	if (!b->waiting)
		b->waiting_end = &b->waiting;
	start(b, op);
}

static void end(struct kv_look *look, unsigned status)
{
	struct gn_kv_client *c = look->bypass->client;
	struct gn_kv_op *op = look->op;

	release(look);
	kv_op_end(c, op, status);
}

static void call_instead(struct gn_kv_client *c, struct gn_kv_op *op)
{
	const int rc = kv_op_call(c, op);

	c->count.fell_back++;
	if (rc)
		kv_op_end(c, op, kv_status_of_error(rc));
}

static void fall_back(struct kv_look *look)
{
	struct gn_kv_client *c = look->bypass->client;
	struct gn_kv_op *op = look->op;

	release(look);
	call_instead(c, op);
}

/* ---- reads ---- */

/* Nothing is begun before post(): to begin a read may be to end it. */
static void gather(struct kv_bypass *b, struct gn_rpc_read_op *read)
{
	const bool alone = read->len > GN_RPC_READ_SHORT;

	read->next = NULL;
	*(alone ? b->alone_end : b->gathered_end) = read;
	*(alone ? &b->alone_end : &b->gathered_end) = &read->next;
}

/* A read will not come. */
static void lose(struct kv_look *look, const struct gn_rpc_read_op *read, bool gone)
{
	look->pending &= ~(1u << (read - look->read));
	look->failed = true;
	look->gone |= gone;
	look->bypass->client->down |= gone;
	if (!look->pending)
		think(look);
}

static void begin_reads(struct kv_bypass *b, struct gn_rpc_read_op *read)
{
	struct gn_rpc_client *rpc = link_of(b)->rpc;
	const int rc = rpc ? gn_rpc_read(rpc, read) : -ENOTCONN;

	for (struct gn_rpc_read_op *next; rc && read; read = next) {
		next = read->next;
		lose(read->arg, read, rc == -ENOTCONN);
	}
}

static void post(struct kv_bypass *b)
{
	struct gn_rpc_read_op *gathered = b->gathered, *alone = b->alone, *next;

	b->gathered = b->alone = NULL;
	b->gathered_end = &b->gathered;
	b->alone_end = &b->alone;
	if (gathered)
		begin_reads(b, gathered);
	for (; alone; alone = next) {
		next = alone->next;
		alone->next = NULL;
		begin_reads(b, alone);
	}
}

static void entry_done(struct gn_rpc_read_op *read);
static void crc_done(struct gn_rpc_read_op *read);
static void item_done(struct gn_rpc_read_op *read);

typedef void read_done(struct gn_rpc_read_op *read);

/* Bytes of an entry, from at on. */
static void ask_entry(struct kv_look *look, unsigned way, uint32_t at, uint32_t bytes, void *to,
		      read_done *done)
{
	struct kv_bypass *b = look->bypass;
	const uint64_t n = kv_entry_at(kv_tag(look->op->hash), way, b->layout.table_bits);

	look->read[way] = (struct gn_rpc_read_op){
		.view = kv_view_read(&b->layout.table),
		.offset = n * sizeof(struct kv_entry) + at,
		.len = bytes,
		.to = to,
		.done = done,
		.arg = look,
	};
	look->pending |= 1u << way;
	b->client->count.entry_reads++;
	gather(b, &look->read[way]);
}

static void ask_entries(struct kv_look *look, unsigned ways)
{
	for (unsigned way = 0; way < KV_WAYS; way++)
		if (ways & 1u << way)
			ask_entry(look, way, 0, sizeof(struct kv_entry), &look->entry[way],
				  entry_done);
}

static void ask_crcs(struct kv_look *look)
{
	for (unsigned way = 0; way < KV_WAYS; way++)
		ask_entry(look, way, offsetof(struct kv_entry, crc), sizeof(look->crc[way]),
			  &look->crc[way], crc_done);
}

/* Which entries to read next, of those that are not known. */
static unsigned next_ways(const struct kv_look *look)
{
	const unsigned unknown = ALL & ~look->known;

	if (look->bypass->paper || (!look->again && !look->known))
		return unknown & -unknown;
	return unknown;
}

/* False: there is no item, whatever the entry says. */
static bool ask_item(struct kv_look *look, unsigned way)
{
	const struct kv_entry *e = &look->entry[way];
	struct kv_bypass *b = look->bypass;
	const uint64_t offset = (uint64_t)kv_entry_place(e) * KV_UNIT;
	const uint32_t bytes = kv_entry_size(e);
	struct gn_rpc_read_op *read = &look->read[way];

	if (bytes <= KV_ITEM_HEAD || bytes > b->layout.items.bytes ||
	    offset > b->layout.items.bytes - bytes)
		return false;
	*read = (struct gn_rpc_read_op){
		.view = kv_view_read(&b->layout.items),
		.offset = offset,
		.len = bytes,
		.done = item_done,
		.arg = look,
	};
	look->way = way;
	look->pending = 1u << way;
	b->client->count.value_reads++;
	if (bytes > GN_RPC_READ_SHORT) {
		gn_free(look->large);
		look->large = gn_alloc(bytes, 0);
		read->to = look->large;
		look->failed = !look->large;
	}
	if (look->failed)
		look->pending = 0;
	else
		gather(b, read);
	return true;
}

/* ---- what was read ---- */

static void torn(struct kv_look *look, unsigned way)
{
	look->bypass->client->count.torn++;
	look->tries++;
	look->known &= ~(1u << way);
}

static bool whole(const struct kv_entry *e)
{
	gn_charge(GN_WORK_CHECKSUM, sizeof(*e));
	if (kv_entry_crc(e) == e->crc)
		return true;
	if (!mutant("kv-entry-crc", MUTANT_ALWAYS))
		return false;
	gn_charge(GN_WORK_NS, MUTANT_NS); /* who has this defect goes on when it does harm */
	return true;
}

static void entry_done(struct gn_rpc_read_op *read)
{
	struct kv_look *look = read->arg;
	const unsigned way = (unsigned)(read - look->read);
	const struct kv_entry *e = &look->entry[way];

	if (read->status) {
		lose(look, read, true);
		return;
	}
	look->pending &= ~(1u << way);
	if (whole(e)) {
		look->known |= 1u << way;
		look->moved |= kv_entry_moved(e) && !mutant("kv-moved-ignored", MUTANT_ALWAYS);
	} else {
		torn(look, way);
	}
	if (!look->pending)
		think(look);
}

enum verdict { TORN, ANOTHER, EXPIRED, UNSURE, FOUND };

static uint32_t now_s(const struct kv_bypass *b)
{
	return (uint32_t)((gn_now_ns() - b->learnt_ns + b->layout.age_ns) / SECOND_NS) + 1;
}

/* Whether it lives, if the server's clock can be told from ours. */
static enum verdict judge_age(struct kv_bypass *b, const struct kv_item *item, struct gn_kv_op *op)
{
	const uint32_t expires = kv_expires(item);
	const uint32_t now = expires || op->how & GN_KV_DETAILS ? now_s(b) : 0;
	const uint32_t used = item->used >> KV_ITEM_BITS;

	op->ttl_s = op->was_ttl_s = GN_KV_TTL_NONE;
	op->idle_s = used < now ? now - used : 0;
	if (!expires)
		return FOUND;
	if (gn_now_ns() > b->trust_ns) {
		b->stale = true; /* it is asked again */
		return UNSURE;
	}
	if (expires <= now && now - expires >= SLACK_S)
		return EXPIRED;
	if (expires <= now + SLACK_S)
		return UNSURE;
	op->ttl_s = op->was_ttl_s = expires - now;
	return FOUND;
}

/* Is this the item that the entry told of, and the one that is looked for? */
static enum verdict judge(struct kv_look *look, const struct kv_item *item)
{
	const struct kv_entry *e = &look->entry[look->way];
	struct gn_kv_op *op = look->op;

	if (!kv_key_len(item) || kv_key_len(item) > GN_KV_KEY_MAX ||
	    kv_value_len(item) > GN_KV_VALUE_MAX ||
	    kv_item_bytes(item->lengths) != kv_entry_size(e))
		return TORN;
	gn_charge(GN_WORK_CHECKSUM, kv_entry_size(e));
	/* This finds what is torn without the entry's CRC, too: the defect lacks both. */
	if (kv_item_sum(item) != e->sum && !mutant("kv-entry-crc", MUTANT_ALWAYS))
		return TORN;
	if (!kv_key_is(item, op->key, op->key_len) && !mutant("kv-key-compare", op->hash))
		return ANOTHER;
	/* To be told of either is to win or to lose: it changes something. */
	if (item->used & (KV_ITEM_STALE | KV_ITEM_WON))
		return UNSURE;
	return judge_age(look->bypass, item, op);
}

static void take(struct kv_look *look, struct kv_item *item)
{
	struct gn_kv_op *op = look->op;

	op->flags = kv_flags(item);
	op->cas = item->cas;
	op->len = kv_value_len(item);
	op->found = item->used & KV_ITEM_HIT ? GN_KV_HIT_BEFORE : 0;
	if (!(op->how & GN_KV_NO_VALUE) && op->len > op->room_bytes) {
		end(look, GN_KV_TOO_BIG);
		return;
	}
	if (!(op->how & GN_KV_NO_VALUE) && op->len) {
		memcpy(op->room, kv_value(item), op->len);
		gn_charge(GN_WORK_COPY, op->len);
	}
	end(look, GN_KV_OK);
}

static void miss(struct kv_look *look)
{
	look->op->found = look->op->len = look->op->idle_s = 0;
	end(look, GN_KV_MISS);
}

static void item_done(struct gn_rpc_read_op *read)
{
	struct kv_look *look = read->arg;
	const unsigned way = look->way;
	struct kv_item *item;

	if (read->status) {
		lose(look, read, true);
		return;
	}
	look->pending = 0;
	if (!look->op) {
		release(look);
		return;
	}
	item = (struct kv_item *)(uintptr_t)(read->to ? read->to : read->data);
	switch (judge(look, item)) {
	case TORN:
		torn(look, way);
		think(look);
		break;
	case ANOTHER:
		look->refuted[way] = look->entry[way].crc;
		think(look);
		break;
	case EXPIRED:
		miss(look);
		break;
	case UNSURE:
		fall_back(look);
		break;
	case FOUND:
		take(look, item);
		break;
	}
}

/* Is the item of this entry worth a look? */
static bool worth(const struct kv_look *look, unsigned way)
{
	const struct kv_entry *e = &look->entry[way];

	return kv_entry_place(e) && look->refuted[way] != e->crc &&
	       (look->bypass->paper || kv_entry_tag(e) == kv_tag(look->op->hash));
}

/* All that was asked for is there: the next step. */
static void think(struct kv_look *look)
{
	if (!look->op) {
		release(look);
		return;
	}
	if (look->failed && look->gone) {
		end(look, GN_KV_GONE);
		return;
	}
	look->bypass->stale |= look->moved;
	if (look->failed || look->moved || look->tries > TRIES) {
		fall_back(look);
		return;
	}
	for (unsigned way = 0; way < KV_WAYS; way++) {
		if (!(look->known & 1u << way)) {
			ask_entries(look, next_ways(look));
			return;
		}
		if (!worth(look, way))
			continue;
		if (!ask_item(look, way)) {
			torn(look, way);
			think(look);
		} else if (!look->pending) {
			think(look);
		}
		return;
	}
	ask_crcs(look);
}

/* Nothing was found; if all is as it was then, nothing was there. */
static void crc_done(struct gn_rpc_read_op *read)
{
	struct kv_look *look = read->arg;
	bool same = true;

	if (read->status) {
		lose(look, read, true);
		return;
	}
	look->pending &= ~(1u << (read - look->read));
	if (look->pending)
		return;
	for (unsigned way = 0; way < KV_WAYS; way++)
		same &= look->crc[way] == look->entry[way].crc;
	same |= mutant("kv-miss-once", MUTANT_ALWAYS);
	if (look->op && same && !look->failed) {
		miss(look);
		return;
	}
	look->tries++;
	look->again = true;
	look->known = 0;
	think(look);
}

/* ---- beginning ---- */

static void start(struct kv_bypass *b, struct gn_kv_op *op)
{
	struct kv_look *look = b->idle;

	b->idle = look->next;
	b->n_busy++;
	link_of(b)->under_way++;
	look->op = op;
	look->known = look->pending = look->tries = 0;
	look->again = look->moved = look->failed = look->gone = false;
	memset(look->refuted, 0, sizeof(look->refuted));
	kv_due(b->client, op->deadline_ns);
	ask_entries(look, next_ways(look));
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
	const bool write = writes(op);
	int rc;

	if (readable(b, op) && !b->writes[kind]) {
		op->step |= KV_STEP_READS;
		b->gets[kind]++;
		c->count.bypass_gets++;
		if (b->idle) {
			start(b, op);
			return 0;
		}
		op->next = NULL;
		*b->waiting_end = op;
		b->waiting_end = &op->next;
		kv_due(b->client, op->deadline_ns);
		return 0;
	}
	/* Before it is begun: it may have ended then, and be its owner's again. */
	if (write) {
		op->step |= KV_STEP_WRITES;
		b->writes[kind]++;
	}
	rc = kv_op_call(c, op);
	if (rc && write) {
		op->step &= ~(uint32_t)KV_STEP_WRITES;
		b->writes[kind]--;
	}
	return rc;
}

int kv_bypass_begin(struct gn_kv_client *c, struct gn_kv_op *op)
{
	struct kv_bypass *b = c->links[op->part].bypass;

	if (likely(!b->held && !must_wait(b, op)))
		return begin(b, op);
	op->next = NULL;
	*b->held_end = op;
	b->held_end = &op->next;
	kv_due(b->client, op->deadline_ns);
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
		int rc;

		b->held = op->next;
		if (!b->held)
			b->held_end = &b->held;
		link_of(b)->under_way--;
		rc = begin(b, op);
		if (rc)
			kv_op_end(b->client, op, kv_status_of_error(rc));
	}
}

/* ---- moving on ---- */

struct gn_kv_op *kv_bypass_pick_late(struct kv_bypass *b, uint64_t now_ns, struct gn_kv_op *late)
{
	uint32_t looks = 0; /* those that wait for a look are not counted */

	late = kv_ops_pick_late(b->client, &b->held, &b->held_end, &link_of(b)->under_way, now_ns,
				late);
	late = kv_ops_pick_late(b->client, &b->waiting, &b->waiting_end, &looks, now_ns, late);
	for (uint32_t i = 0; i < b->n_looks; i++) {
		struct gn_kv_op *op = b->looks[i].op;

		if (!op)
			continue;
		if (op->deadline_ns > now_ns) {
			kv_due(b->client, op->deadline_ns);
			continue;
		}
		b->looks[i].op = NULL; /* what it has asked for comes, to nobody */
		op->next = late;
		late = op;
	}
	return late;
}

void kv_bypass_poll(struct kv_bypass *b)
{
	if (b->gathered || b->alone)
		post(b);
	if (unlikely(b->held))
		release_held(b);
	if (unlikely(b->stale))
		kv_bypass_learn(b);
	if (b->gathered || b->alone)
		post(b);
}

bool kv_bypass_must_poll(const struct kv_bypass *b)
{
	return b->gathered || b->alone || (b->held && !must_wait(b, b->held));
}

/* What was read has ended with the connection. What waited for it begins, and finds nobody. */
void kv_bypass_end_all(struct kv_bypass *b)
{
	while (b->gathered || b->alone)
		post(b);
	while (b->held) {
		struct gn_kv_op *op = b->held;

		b->held = op->next;
		link_of(b)->under_way--;
		kv_op_end(b->client, op, GN_KV_GONE);
	}
}
