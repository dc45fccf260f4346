/* SPDX-License-Identifier: MIT */
/*
 * The memory of a store: over many limits and patterns of use, no live item is evicted while more
 * than KV_GARBAGE_PCT of the memory is garbage; the work of one operation is bounded; and moved
 * items do not change.
 *
 * Garbage is everything that is neither a live item nor the index: dead and expired items, free
 * memory, and padding between items. The item to be stored counts as live.
 */
#include <errno.h>
#include <string.h>

#include "kv/store.h"
#include "unit_sim.h"

#define KEYS_MAX 150000u
#define MIB	 (1ull << 20)

enum pattern { CHURN, GROWING, SHRINKING, MIXED, DELETES, NUMBERS, APPENDS, PATTERNS, STEADY };

static const char *const pattern_names[] = {
	[CHURN] = "churn",     [GROWING] = "growing", [SHRINKING] = "shrinking",
	[MIXED] = "mixed",     [DELETES] = "deletes", [NUMBERS] = "numbers",
	[APPENDS] = "appends", [STEADY] = "steady",
};

struct load {
	enum pattern pattern;
	uint64_t memory, seed;
	double fill; /* live items and their index, as a fraction of memory; 1 and more: too much */
	unsigned ops;
	bool bypass;
};

struct run {
	const struct load *load;
	struct gn_kv_store *s;
	uint64_t rng, want; /* bytes that may be live */
	uint64_t living;    /* … that are, as far as this test knows */
	unsigned keys, step;
	uint32_t scale;		/* of the sizes: large memories are filled with fewer operations */
	uint32_t len[KEYS_MAX]; /* of the value + 1; 0: no such key */
	uint64_t stamp[KEYS_MAX];
	uint64_t stored, evictions;
	double worst;	  /* garbage at an eviction */
	uint32_t largest; /* item */
	uint64_t work;	  /* most bytes that one operation visited */
};

static uint8_t value[GN_KV_VALUE_MAX], got[GN_KV_VALUE_MAX];

static uint32_t pick(struct run *r, uint32_t below)
{
	return unit_next(&r->rng) % below;
}

static uint32_t item_bytes(uint32_t value_len)
{
	return kv_item_bytes(kv_lengths(sizeof(uint32_t), value_len));
}

/* With its share of the index. */
static uint64_t cost(uint32_t value_len)
{
	return item_bytes(value_len) + 20;
}

static void stamp_value(uint8_t *at, uint32_t len, uint64_t stamp)
{
	for (uint32_t i = 0; i < len && i < 64; i++)
		at[i] = at[len - 1 - i] = (uint8_t)(stamp >> i % 8 * 8);
	if (len)
		at[len / 2] = (uint8_t)stamp;
}

/* ---- one operation ---- */

static uint64_t region(const struct gn_kv_store *s)
{
	return (uint64_t)KV_UNIT << s->log.region_shift;
}

static void do_op(struct run *r, struct gn_kv_op *op, uint32_t bytes)
{
	const struct gn_kv_stats before = r->s->stats;
	const uint64_t memory = r->load->memory;
	double garbage;

	if (bytes > r->largest)
		r->largest = bytes;
	gn_kv_store_do(r->s, op, 1);
	assert_true(r->s->stats.item_bytes <= memory);
	if (r->s->log.work > KV_WORK_FACTOR * ((uint64_t)bytes + r->largest) + 4 * region(r->s))
		fail_msg("%s: looked at %llu bytes for an item of %u; the largest has %u",
			 pattern_names[r->load->pattern], (unsigned long long)r->s->log.work, bytes,
			 r->largest);
	if (r->s->log.work > r->work)
		r->work = r->s->log.work;
	r->s->log.work = 0;
	if (r->s->stats.evicted_bucket + r->s->stats.evicted_log ==
	    before.evicted_bucket + before.evicted_log)
		return;
	r->evictions++;
	garbage = ((double)memory - (double)kv_log_reserved(r->s) - (double)before.item_bytes -
		   bytes) /
		  (double)memory * 100;
	if (garbage > r->worst)
		r->worst = garbage;
	if (garbage > KV_GARBAGE_PCT)
		fail_msg("%s in %.2f MiB, seed %llu: an item was evicted with %.1f %% garbage",
			 pattern_names[r->load->pattern], (double)memory / MIB,
			 (unsigned long long)r->load->seed, garbage);
}

static void forget(struct run *r, uint32_t key)
{
	if (r->len[key])
		r->living -= cost(r->len[key] - 1);
	r->len[key] = 0;
}

static void delete_key(struct run *r, uint32_t key)
{
	struct gn_kv_op op = {.verb = GN_KV_DELETE, .key = &key, .key_len = sizeof(key)};

	do_op(r, &op, 0);
	assert_true(op.status == GN_KV_OK || (op.status == GN_KV_MISS && r->evictions));
	forget(r, key);
}

/* Delete others so that the next item fits. */
static void make_room(struct run *r, uint64_t bytes)
{
	while (r->living + bytes > r->want) {
		const uint32_t key = pick(r, r->keys);

		if (r->len[key])
			delete_key(r, key);
	}
}

static void set_key(struct run *r, uint32_t key, uint32_t len)
{
	struct gn_kv_op op = {.verb = GN_KV_SET,
			      .key = &key,
			      .key_len = sizeof(key),
			      .value = value,
			      .value_len = len};

	make_room(r, cost(len) + (r->len[key] ? cost(r->len[key] - 1) : 0));
	r->stamp[key] = ((uint64_t)key << 32 | r->step) * 0x9e3779b97f4a7c15;
	stamp_value(value, len, r->stamp[key]);
	do_op(r, &op, item_bytes(len));
	assert_int_equal(op.status, GN_KV_OK);
	forget(r, key);
	r->len[key] = len + 1;
	r->living += cost(len);
	r->stored += item_bytes(len);
}

/* Appends 0 or more of another byte. */
static void append_key(struct run *r, uint32_t key)
{
	const uint32_t old = r->len[key] ? r->len[key] - 1 : 0, more = 1 + pick(r, r->scale * 100);
	struct gn_kv_op op = {.verb = GN_KV_APPEND,
			      .key = &key,
			      .key_len = sizeof(key),
			      .value = value,
			      .value_len = more};

	if (!r->len[key] || old + more > r->scale * 4000) {
		set_key(r, key, 1 + pick(r, r->scale * 64));
		return;
	}
	make_room(r, cost(old + more));
	if (!r->len[key])
		return;
	do_op(r, &op, item_bytes(old + more));
	assert_true(op.status == GN_KV_OK || (op.status == GN_KV_NOT_STORED && r->evictions));
	forget(r, key);
	if (op.status == GN_KV_OK) {
		r->len[key] = old + more + 1;
		r->living += cost(old + more);
		r->stored += item_bytes(old + more);
		r->stamp[key] = 0; /* it was not made by stamp_value() any more */
	}
}

/* A number that gets more digits, and fewer. */
static void count_key(struct run *r, uint32_t key)
{
	struct gn_kv_op op = {.verb = GN_KV_INCR,
			      .how = GN_KV_CREATE,
			      .key = &key,
			      .key_len = sizeof(key),
			      .number = 1ull << pick(r, 63)};

	if (r->len[key] && !pick(r, 8)) {
		delete_key(r, key);
		return;
	}
	make_room(r, 2 * cost(20));
	do_op(r, &op, item_bytes(20));
	assert_int_equal(op.status, GN_KV_OK);
	forget(r, key);
	r->len[key] = 20 + 1; /* at most */
	r->living += cost(20);
	r->stored += item_bytes(20);
}

/* ---- patterns ---- */

static uint32_t large(struct run *r)
{
	const uint32_t most = r->s->max_value, bits = pick(r, (uint32_t)__builtin_clz(1)) + 1;
	const uint32_t below = bits >= 20 ? most : 1u << bits;

	return pick(r, below < most ? below : most) + (pick(r, 8) ? 0 : 1);
}

static void step(struct run *r)
{
	const double done = (double)r->step / r->load->ops;
	const uint32_t key = pick(r, r->keys);

	switch (r->load->pattern) {
	case CHURN:
		if (r->len[key] && pick(r, 2))
			delete_key(r, key);
		else
			set_key(r, key, r->scale * 8 + pick(r, r->scale * 24));
		break;
	case GROWING:
		set_key(r, key, 8 + pick(r, r->scale * (16 + (uint32_t)(done * 2000))));
		break;
	case SHRINKING:
		set_key(r, key, 8 + pick(r, r->scale * (16 + (uint32_t)((1 - done) * 2000))));
		break;
	case MIXED:
		set_key(r, key, pick(r, 8) ? 8 + pick(r, 200) : large(r));
		break;
	case DELETES:
		/* Every other key is deleted, then larger ones are stored. */
		if (r->step % (2 * r->keys) < r->keys)
			set_key(r, r->step % r->keys, r->scale * (40 + r->step / r->keys % 5 * 16));
		else if (r->len[r->step % r->keys] && r->step % 3)
			delete_key(r, r->step % r->keys);
		break;
	case NUMBERS:
		count_key(r, key);
		break;
	case STEADY:
		set_key(r, key, 10 + pick(r, 2000));
		break;
	default:
		append_key(r, key);
	}
}

/* Every expected key exists and has not changed. */
static void check_all(struct run *r)
{
	uint64_t missing = 0;

	for (uint32_t key = 0; key < r->keys; key++) {
		struct gn_kv_op op = {.verb = GN_KV_GET,
				      .how = GN_KV_QUIET,
				      .key = &key,
				      .key_len = sizeof(key),
				      .room = got,
				      .room_bytes = sizeof(got)};

		gn_kv_store_do(r->s, &op, 1);
		if (!r->len[key]) {
			assert_int_equal(op.status, GN_KV_MISS);
			continue;
		}
		if (op.status != GN_KV_OK) {
			missing++;
			continue;
		}
		if (r->load->pattern == NUMBERS || !r->stamp[key])
			continue;
		assert_int_equal(op.len, r->len[key] - 1);
		stamp_value(value, op.len, r->stamp[key]);
		for (uint32_t i = 0; i < op.len && i < 64; i++)
			assert_true(got[i] == value[i] &&
				    got[op.len - 1 - i] == value[op.len - 1 - i]);
		assert_true(!op.len || got[op.len / 2] == value[op.len / 2]);
	}
	if (missing && !r->evictions)
		fail_msg("%s: %llu keys are gone, but none was evicted",
			 pattern_names[r->load->pattern], (unsigned long long)missing);
	if (missing && r->load->fill < 0.81)
		fail_msg("%s in %.2f MiB, seed %llu: %llu of %u keys are lost with %.0f %% living",
			 pattern_names[r->load->pattern], (double)r->load->memory / MIB,
			 (unsigned long long)r->load->seed, (unsigned long long)missing, r->keys,
			 100.0 * (double)r->s->stats.item_bytes / (double)r->load->memory);
}

/* About twice as many as fit. */
static unsigned keys_of(const struct run *r)
{
	static const uint32_t usual[] = {
		[STEADY] = 1000, [CHURN] = 24,	 [GROWING] = 400, [SHRINKING] = 400,
		[MIXED] = 2000,	 [DELETES] = 80, [NUMBERS] = 24,  [APPENDS] = 1200};
	const enum pattern p = r->load->pattern;
	const uint32_t scale = p == MIXED || p == NUMBERS || p == STEADY ? 1 : r->scale;
	const uint64_t n =
		(uint64_t)((double)r->load->memory * r->load->fill * 2) / (usual[p] * scale + 24);

	return n > KEYS_MAX ? KEYS_MAX : (unsigned)n;
}

/* Returns how many bytes compaction moved per stored byte. */
static double run_load(const struct load *load, struct gn_fabric *fabric)
{
	const struct kv_store_opts opts = {.open = {.memory = load->memory, .seed = load->seed + 1},
					   .fabric = load->bypass ? fabric : NULL};
	struct run *r = calloc(1, sizeof(*r));
	double moved;

	assert_non_null(r);
	r->load = load;
	r->rng = load->seed;
	r->scale = load->memory < 2 * MIB ? 1 : (uint32_t)(load->memory / MIB);
	r->keys = keys_of(r);
	r->want = (uint64_t)((double)load->memory * load->fill);
	assert_int_equal(kv_store_make(&opts, &r->s), 0);
	for (r->step = 0; r->step < load->ops; r->step++)
		step(r);
	check_all(r);
	assert_true(r->s->stats.item_bytes <= load->memory);
	moved = (double)r->s->stats.moved / (double)(r->stored + 1);
	if (load->fill < 0.81)
		assert_int_equal(r->evictions, 0);
	print_message("# %-9s %6.2f MiB, fill %.2f: %u ops, stored %.1f of it, moved %.2f times, "
		      "%llu evictions with %.1f %% garbage at most, %.1f KiB looked at at most\n",
		      pattern_names[load->pattern], (double)load->memory / MIB, load->fill,
		      load->ops, (double)r->stored / (double)load->memory, moved,
		      (unsigned long long)r->evictions, r->worst, (double)r->work / 1024);
	gn_kv_store_destroy(r->s);
	free(r);
	return moved;
}

/* ---- tests ---- */

/* 140,000 keys, of which half are deleted and stored in other sizes: a third of 16 MiB is live. */
static void test_half_churn(void **state)
{
	static const double mib[] = {15, 16, 17, 24};
	struct run *r = calloc(1, sizeof(*r));

	(void)state;
	assert_non_null(r);
	for (unsigned i = 0; i < 4; i++) {
		const struct load load = {.pattern = CHURN,
					  .memory = (uint64_t)(mib[i] * MIB),
					  .seed = 12,
					  .fill = 0.8};
		const struct gn_kv_store_opts opts = {
			.size = sizeof(opts), .memory = load.memory, .seed = 13};
		uint64_t lost = 0;

		*r = (struct run){.load = &load, .rng = 1, .want = UINT64_MAX, .keys = 140000};
		assert_int_equal(gn_kv_store_create(&opts, &r->s), 0);
		for (uint32_t key = 0; key < r->keys; key++)
			set_key(r, key, 8 + pick(r, 16));
		for (unsigned n = 0; n < 3 * r->keys; n++) {
			const uint32_t key = pick(r, r->keys / 2) * 2;

			delete_key(r, key);
			set_key(r, key, 8 + pick(r, 16));
		}
		for (uint32_t key = 0; key < r->keys; key++)
			lost += !kv_find(r->s, kv_hash(&key, sizeof(key), r->s->seed), &key,
					 sizeof(key));
		print_message("# %.0f MiB: %llu of %u keys lost, %.0f %% living\n", mib[i],
			      (unsigned long long)lost, r->keys,
			      (double)r->s->stats.item_bytes * 100 / (double)load.memory);
		assert_int_equal(lost, 0);
		assert_int_equal(r->evictions, 0);
		gn_kv_store_destroy(r->s);
	}
	free(r);
}

static void run_all(uint64_t memory, double fill, uint64_t seed, struct gn_fabric *fabric)
{
	static const unsigned ops[PATTERNS] = {
		[CHURN] = 40000,   [GROWING] = 10000, [SHRINKING] = 10000, [MIXED] = 3000,
		[DELETES] = 40000, [NUMBERS] = 30000, [APPENDS] = 10000};

	for (enum pattern p = 0; p < PATTERNS; p++) {
		const struct load load = {.pattern = p,
					  .memory = memory,
					  .seed = seed,
					  .fill = fill,
					  .bypass = fabric != NULL,
					  .ops = ops[p]};

		run_load(&load, fabric);
	}
}

static const unsigned limits[] = {1, 2, 4, 8, 15, 16, 17, 24, 32, 64};
#define LIMITS (sizeof(limits) / sizeof(*limits))

/* Live items with the index never take more than 80 %: nothing may be evicted. */
static void test_fits(void **state)
{
	uint64_t seed = unit_seed(), rng = seed;

	(void)state;
	for (unsigned i = 0; i < LIMITS; i++)
		run_all(limits[i] * MIB, 0.8, seed + i, NULL);
	for (unsigned i = 0; i < 4; i++)
		run_all(MIB + unit_next(&rng) % (20 * MIB), 0.3 + 0.05 * (unit_next(&rng) % 10),
			seed + i, NULL);
}

static void test_too_much(void **state)
{
	uint64_t seed = unit_seed(), rng = seed;

	(void)state;
	for (unsigned i = 0; i < LIMITS; i++)
		run_all(limits[i] * MIB, 0.85 + 0.1 * i, seed + i, NULL);
	for (unsigned i = 0; i < 4; i++)
		run_all(MIB + unit_next(&rng) % (20 * MIB), 0.85 + 0.05 * (unit_next(&rng) % 10),
			seed + i, NULL);
}

/* The cost of compaction for values of 10 to 2000 bytes. */
static void test_amplification(void **state)
{
	static const struct {
		double fill, most;
	} at[] = {{0.5, 0.35}, {0.7, 1.1}, {0.85, 3.0}};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		const struct load load = {.pattern = STEADY,
					  .memory = 8 * MIB,
					  .seed = i,
					  .fill = at[i].fill,
					  .ops = 60000};

		assert_true(run_load(&load, NULL) <= at[i].most);
	}
}

/*
 * With bypass, the table and a buffer for the largest item take their share; and items must be so
 * large that the table, which may not be able to grow, has an entry for each.
 */
static void test_bypass(void **state)
{
	static const enum pattern fit[] = {GROWING, SHRINKING, MIXED, APPENDS};
	static const uint64_t memory[] = {MIB, 4 * MIB, 16 * MIB};
	const uint64_t seed = unit_seed();
	struct gn_fabric *fabric;

	(void)state;
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	for (unsigned i = 0; i < 3; i++) {
		struct load load = {.memory = memory[i], .seed = seed + i, .bypass = true};

		load.fill = 0.55;
		load.ops = 6000;
		for (unsigned k = 0; k < 4; k++) {
			load.pattern = fit[k];
			run_load(&load, fabric);
		}
		load.fill = 0.9 + 0.2 * i;
		for (unsigned k = 2; k < 4; k++) {
			load.pattern = fit[k];
			run_load(&load, fabric);
		}
	}
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* ---- items that expire and are not requested again ---- */

#define SECOND_US  1000000u
#define SECONDS	   60u
#define TTL_MOST_S 20u

/* A third of memory holds items without expiry, and a third items that expire after ten seconds. */
static int expire_in(uint64_t memory, uint64_t *rng)
{
	const struct gn_kv_store_opts opts = {.size = sizeof(opts), .memory = memory, .seed = 3};
	const uint32_t stay = (uint32_t)(memory * 35 / 100 / cost(100));
	const uint32_t each_s = (uint32_t)(memory * 33 / 100 / cost(108) / (TTL_MOST_S / 2));
	struct gn_kv_store *s;
	uint32_t key = 0;

	EXPECT(gn_kv_store_create(&opts, &s) == 0);
	for (unsigned second = 0; second < SECONDS; second++) {
		for (uint32_t i = 0; i < (second ? each_s : stay); i++, key++) {
			struct gn_kv_op op = {.verb = GN_KV_SET,
					      .key = &key,
					      .key_len = sizeof(key),
					      .value = value,
					      .value_len = 100};

			if (second)
				op.ttl_s = 1 + unit_next(rng) % TTL_MOST_S;
			gn_kv_store_do(s, &op, 1);
			EXPECT(op.status == GN_KV_OK);
		}
		gn_sleep_us(SECOND_US);
	}
	print_message("# %llu MiB: %u stay, %u a second expire, %llu evicted, %llu expired\n",
		      (unsigned long long)(memory / MIB), stay, each_s,
		      (unsigned long long)(s->stats.evicted_bucket + s->stats.evicted_log),
		      (unsigned long long)s->stats.expired);
	for (key = 0; key < stay; key++)
		EXPECT(kv_find(s, kv_hash(&key, sizeof(key), s->seed), &key, sizeof(key)));
	EXPECT(s->stats.evicted_bucket + s->stats.evicted_log == 0);
	EXPECT(s->stats.expired > each_s);
	gn_kv_store_destroy(s);
	return 0;
}

PROGRAM(expire)
{
	static const uint64_t memory[] = {MIB, 3 * MIB, 16 * MIB};
	uint64_t rng = *(const uint64_t *)env->arg;

	for (unsigned i = 0; i < 3; i++)
		EXPECT(expire_in(memory[i], &rng) == 0);
	return 0;
}

static void test_expiry(void **state)
{
	uint64_t seed = unit_seed();

	(void)state;
	sim_run_alone(expire, &seed);
}

/* Bytes by expiry second: the bins are never too high, nor late by more than one bin. */
static void test_bins(void **state)
{
	enum { ITEMS = 400 };
	uint64_t rng = unit_seed();

	(void)state;
	for (unsigned round = 0; round < 300; round++) {
		const uint32_t base = unit_next(&rng) >> unit_next(&rng) % 32;
		const uint32_t spread = 1u << unit_next(&rng) % 30;
		struct kv_expiry e = {0};
		uint32_t when[ITEMS];

		for (unsigned i = 0; i < ITEMS; i++) {
			when[i] = base / 2 + 1 + unit_next(&rng) % spread;
			kv_expiry_add(&e, when[i], 8);
		}
		for (unsigned i = ITEMS / 2; i < ITEMS; i++) /* half of them are removed */
			kv_expiry_remove(&e, when[i], 8);
		for (unsigned t = 0; t < 50; t++) {
			const uint32_t now = base / 2 + 1 + unit_next(&rng) % spread;
			const uint64_t width = 1ull << e.shift;
			uint32_t most = 0, least = 0;

			for (unsigned i = 0; i < ITEMS / 2; i++) {
				most += when[i] <= now ? 8 : 0;
				least += when[i] + width <= now ? 8 : 0;
			}
			assert_in_range(kv_expiry_by(&e, now), least, most);
		}
		assert_true(e.shift == 0 || spread >> e.shift >= KV_EXPIRY_BINS / 4);
		assert_true(kv_expiry_by(&e, UINT32_MAX) == ITEMS / 2 * 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_half_churn), cmocka_unit_test(test_fits),
		cmocka_unit_test(test_too_much),   cmocka_unit_test(test_amplification),
		cmocka_unit_test(test_bypass),	   SIM_TEST(test_expiry),
		cmocka_unit_test(test_bins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
