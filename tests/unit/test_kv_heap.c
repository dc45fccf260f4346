/* SPDX-License-Identifier: MIT */
/*
 * The accounts of a store: after random operations the heap is walked, and its items are compared
 * with the accounts of its regions, with the index and with the statistics. Every lost item is
 * counted once, as evicted or as expired; and a scan returns every key that existed from its first
 * page to its last, while items are moved, evicted and expire.
 */
#include <errno.h>
#include <string.h>

#include "kv/compact.h"
#include "kv/scan.h"
#include "unit_sim.h"

#define KEYS_MAX  40000u
#define SECOND_US 1000000u

struct setup {
	const char *name;
	uint64_t memory;
	unsigned keys, seconds, ops; /* ops per second */
	uint32_t value_most, large;  /* bytes; one in 64 values has up to large */
	bool bypass;
};

struct key {
	bool there, told, fetched;
	uint32_t expires; /* 0: never */
	uint32_t born;	  /* the operation that created the item */
};

struct books {
	const struct setup *setup;
	struct gn_kv_store *s;
	uint64_t rng;
	uint32_t op, scans, scan_began;
	uint64_t evicted, expired; /* lost items, as far as this test knows */
	uint64_t evicted_ttl, evicted_unfetched, expired_unfetched;
	bool scanning;
	struct gn_kv_cursor cursor;
	struct key keys[KEYS_MAX];
};

static struct books books;
static uint8_t value[GN_KV_VALUE_MAX], page_room[GN_KV_PAGE_MIN];

static uint32_t place_of(const struct books *b, uint32_t n)
{
	return kv_find(b->s, kv_hash(&n, sizeof(n), b->s->seed), &n, sizeof(n));
}

/* ---- the heap ---- */

/* Where the next item or filler begins; gaps, and what a pass has freed so far, have none. */
static uint32_t skip_gaps(const struct kv_log *log, uint32_t at)
{
	for (uint32_t before = UINT32_MAX; before != at;) {
		before = at;
		if (at == log->active.at && kv_gap_len(&log->active))
			at = log->active.end;
		if (at == log->next.at && kv_gap_len(&log->next))
			at = log->next.end;
		if (log->pass.running && at == log->pass.to && log->pass.to < log->pass.at)
			at = log->pass.at;
	}
	return at;
}

struct account {
	uint64_t live, timed;
};

static int check_item(const struct books *b, uint32_t at, struct account *of)
{
	const struct kv_item *item = kv_item_at(b->s, at);
	const uint32_t bytes = kv_item_bytes(item->lengths);

	EXPECT(kv_find(b->s, kv_hash(kv_key(item), kv_key_len(item), b->s->seed), kv_key(item),
		       kv_key_len(item)) == at);
	of[at >> b->s->log.region_shift].live += bytes;
	if (kv_expires(item))
		of[at >> b->s->log.region_shift].timed += bytes;
	return 0;
}

static int check_heap(const struct books *b)
{
	static struct account of[8192];
	const struct gn_kv_store *s = b->s;
	const struct kv_log *log = &s->log;
	uint64_t items = 0, bytes = 0;
	uint32_t at = skip_gaps(log, log->lo), next_region = 0;

	EXPECT(log->n_regions <= sizeof(of) / sizeof(of[0]));
	memset(of, 0, sizeof(of));
	for (; at < log->hi; at = skip_gaps(log, at + kv_item_span(kv_item_at(s, at)) / KV_UNIT)) {
		EXPECT(kv_item_span(kv_item_at(s, at)) >= KV_UNIT);
		/* A pass updates the accounts of its window's regions only when it has ended. */
		for (; !log->pass.running && next_region < log->n_regions &&
		       next_region << log->region_shift <= at;
		     next_region++)
			EXPECT(skip_gaps(log, kv_region_start(log, next_region)) == at);
		if (kv_item_at(s, at)->used & KV_ITEM_DEAD)
			continue;
		EXPECT(check_item(b, at, of) == 0);
		items++;
		bytes += kv_item_bytes(kv_item_at(s, at)->lengths);
	}
	EXPECT(at == log->hi);
	EXPECT(items == s->stats.items && bytes == s->stats.item_bytes);
	for (uint32_t n = 0; n < log->n_regions; n++)
		EXPECT(log->regions[n].live == of[n].live &&
		       log->regions[n].expiry.all == of[n].timed);
	return 0;
}

/* ---- lost keys ---- */

static void lose(struct books *b, struct key *k)
{
	k->there = false;
	if (k->expires && k->expires <= b->s->now_s) {
		b->expired++;
		b->expired_unfetched += !k->fetched;
	} else {
		b->evicted++;
		b->evicted_unfetched += !k->fetched;
		b->evicted_ttl += k->expires != 0;
	}
}

static void look_for(struct books *b, uint32_t n)
{
	if (b->keys[n].there && !place_of(b, n))
		lose(b, &b->keys[n]);
}

static int check_counts(struct books *b)
{
	const struct gn_kv_stats *stats = &b->s->stats;

	for (uint32_t n = 0; n < b->setup->keys; n++)
		look_for(b, n);
	EXPECT(stats->evicted_bucket + stats->evicted_log == b->evicted);
	EXPECT(stats->evicted_unfetched == b->evicted_unfetched);
	EXPECT(stats->evicted_ttl == b->evicted_ttl);
	EXPECT(stats->expired == b->expired);
	EXPECT(stats->expired_unfetched == b->expired_unfetched);
	return 0;
}

/* ---- scans ---- */

static int scan_page(struct books *b)
{
	struct gn_kv_op op = {.verb = GN_KV_SCAN,
			      .key = &b->cursor,
			      .key_len = sizeof(b->cursor),
			      .room = page_room,
			      .room_bytes = sizeof(page_room)};
	struct gn_kv_key key;
	uint32_t at = 0, n;

	if (!b->scanning) {
		b->scanning = true;
		b->scan_began = b->op;
		b->cursor = (struct gn_kv_cursor){{0}};
		for (n = 0; n < b->setup->keys; n++)
			b->keys[n].told = false;
	}
	gn_kv_store_do(b->s, &op, 1);
	EXPECT(op.status == GN_KV_OK);
	while (gn_kv_page_next(&op, &at, &key)) {
		EXPECT(key.key_len == sizeof(n));
		memcpy(&n, key.key, sizeof(n));
		EXPECT(n < b->setup->keys && place_of(b, n));
		b->keys[n].told = true;
	}
	b->scanning = gn_kv_page_more(&op, &b->cursor);
	if (b->scanning)
		return 0;
	b->scans++;
	for (n = 0; n < b->setup->keys; n++) {
		const struct key *k = &b->keys[n];
		const bool lives = !k->expires || k->expires > b->s->now_s;

		EXPECT(k->told || !k->there || !lives || k->born > b->scan_began ||
		       !place_of(b, n));
	}
	return 0;
}

/* ---- operations ---- */

static uint32_t draw_ttl(struct books *b)
{
	return unit_next(&b->rng) % 2 ? 1 + unit_next(&b->rng) % 24 : 0;
}

static int step(struct books *b)
{
	const uint32_t n = unit_next(&b->rng) % b->setup->keys, what = unit_next(&b->rng) % 16;
	const uint32_t most = unit_next(&b->rng) % 64 ? b->setup->value_most : b->setup->large;
	struct key *k = &b->keys[n];
	struct gn_kv_op op = {.verb = what == 0 ? GN_KV_DELETE :
				      what <= 2 ? GN_KV_TOUCH :
				      what == 3 ? GN_KV_APPEND :
						  GN_KV_SET,
			      .key = &n,
			      .key_len = sizeof(n),
			      .value = value};
	const uint32_t ttl_s = draw_ttl(b);
	const uint64_t version = b->s->version;

	b->op++;
	look_for(b, n);
	if (what > 2)
		op.value_len = unit_next(&b->rng) % (what == 3 ? 40 : most);
	if (what != 0 && what != 3)
		op.ttl_s = ttl_s;
	gn_kv_store_do(b->s, &op, 1);
	if (op.status == GN_KV_MISS || op.status == GN_KV_NOT_STORED ||
	    op.status == GN_KV_TOO_BIG) {
		look_for(b, n);
		EXPECT(!k->there || op.status == GN_KV_TOO_BIG);
		return 0;
	}
	if (op.status != GN_KV_OK)
		print_error("%s: operation %u of %u bytes: %s\n", b->setup->name, b->op,
			    op.value_len, gn_kv_status_str(op.status));
	EXPECT(op.status == GN_KV_OK);
	if (what == 0) {
		k->there = false;
		return 0;
	}
	if (k->there && k->expires && k->expires <= b->s->now_s)
		lose(b, k); /* detected by the operation itself */
	/* Evicted to make space for its successor: then a SET starts over, with another version. */
	if (k->there && b->s->version == version + 2)
		lose(b, k);
	if (!k->there)
		k->born = b->op;
	k->there = true;
	k->fetched = op.verb == GN_KV_TOUCH; /* which counts as a use */
	if (what != 3)
		k->expires = ttl_s ? b->s->now_s + ttl_s : 0;
	return 0;
}

static int second(struct books *b)
{
	kv_tick(b->s);
	const uint32_t now_s = b->s->now_s;

	for (unsigned i = 0; i < b->setup->ops; i++) {
		EXPECT(step(b) == 0);
		if (i % 50 == 0)
			EXPECT(scan_page(b) == 0);
		if (i % 250 == 0)
			EXPECT(check_heap(b) == 0);
	}
	EXPECT(check_counts(b) == 0);
	EXPECT(now_s == b->s->now_s); /* an item has expired since or it has not: see look_for() */
	gn_sleep_us(SECOND_US);
	return 0;
}

static int run(const struct setup *setup, struct gn_fabric *fabric, uint64_t seed)
{
	const struct kv_store_opts opts = {.open = {.memory = setup->memory, .seed = seed | 1},
					   .fabric = fabric};
	struct books *b = &books;

	memset(b, 0, sizeof(*b));
	b->setup = setup;
	b->rng = seed;
	EXPECT(kv_store_make(&opts, &b->s) == 0);
	for (unsigned i = 0; i < setup->seconds; i++)
		EXPECT(second(b) == 0);
	print_message("# %s: %u operations, %u scans, %llu evicted, %llu expired, %llu moved\n",
		      setup->name, b->op, b->scans, (unsigned long long)b->evicted,
		      (unsigned long long)b->expired, (unsigned long long)b->s->stats.moved);
	EXPECT(b->scans && b->s->stats.moved && b->expired && b->evicted);
	gn_kv_store_destroy(b->s);
	return 0;
}

static const struct setup setups[] = {
	{"small items", 1u << 20, 30000, 30, 4000, 40, 41, false},
	{"items of all sizes", 1u << 20, 3000, 40, 1000, 900, 200000, false},
	{"large items", 1u << 20, 40, 40, 300, 150000, 262144, false},
	{"many items", 4u << 20, 40000, 30, 6000, 200, 3000, false},
	{"bypass, small items", 1u << 20, 30000, 30, 4000, 40, 41, true},
	{"bypass, items of all sizes", 1u << 20, 3000, 40, 1000, 600, 50000, true},
};

/* Whatever the size of the index, the largest value of a store fits. */
static int store_largest(struct gn_fabric *fabric, uint64_t memory)
{
	const struct kv_store_opts opts = {.open = {.memory = memory, .seed = 3}, .fabric = fabric};
	struct gn_kv_store *s;

	EXPECT(kv_store_make(&opts, &s) == 0);
	for (uint32_t round = 0; round < 3; round++) {
		char key[GN_KV_KEY_MAX] = {(char)('a' + round)};
		struct gn_kv_op largest = {.verb = GN_KV_SET,
					   .key = key,
					   .key_len = sizeof(key),
					   .flags = 1,
					   .value = value,
					   .value_len = s->max_value};

		for (uint32_t n = 0; n < memory / 16; n++) {
			struct gn_kv_op op = {.verb = GN_KV_SET, .key = &n, .key_len = 3};

			gn_kv_store_do(s, &op, 1);
			EXPECT(op.status == GN_KV_OK);
		}
		print_message("# %llu bytes: index of %llu, items of %llu\n",
			      (unsigned long long)memory, (unsigned long long)kv_log_reserved(s),
			      (unsigned long long)s->stats.item_bytes);
		gn_kv_store_do(s, &largest, 1);
		EXPECT(largest.status == GN_KV_OK);
	}
	gn_kv_store_destroy(s);
	return 0;
}

PROGRAM(largest)
{
	struct gn_fabric *fabric;

	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	for (uint64_t memory = 1u << 20; memory <= 2u << 20; memory += 1u << 20) {
		EXPECT(store_largest(NULL, memory) == 0);
		EXPECT(store_largest(fabric, memory) == 0);
	}
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static void test_largest(void **state)
{
	(void)state;
	sim_run_alone(largest, NULL);
}

PROGRAM(keep_books)
{
	const uint64_t seed = *(const uint64_t *)env->arg;
	struct gn_fabric *fabric;

	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	for (unsigned i = 0; i < sizeof(setups) / sizeof(setups[0]); i++)
		EXPECT(run(&setups[i], setups[i].bypass ? fabric : NULL, seed + i) == 0);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static void test_accounts(void **state)
{
	uint64_t seed = unit_seed();

	(void)state;
	sim_run_alone(keep_books, &seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {SIM_TEST(test_accounts), SIM_TEST(test_largest)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
