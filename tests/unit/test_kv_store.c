/* SPDX-License-Identifier: MIT */
/*
 * A local store against a trivial model: every verb with every option, one by one and in batches,
 * with enough memory and without, in virtual time. How much memory it takes, and that it takes no
 * more, also when values change their sizes.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "kv/store.h"
#include "kv_model.h"
#include "unit_sim.h"

#define ROOM	  (MODEL_BYTES + 64u)
#define HALF_US	  500000u
#define SECOND_US 1000000u
#define BATCH	  64u

struct setting {
	uint64_t seed;
	unsigned rounds, keys, value_max;
	uint64_t memory;
	bool bypass, may_evict;
};

struct run {
	const struct setting *set;
	struct gn_kv_store *store;
	struct model *m;
	uint64_t rng, last_cas, forgotten, begin_ns;
	char key[MODEL_KEYS][GN_KV_KEY_MAX + 1];
	uint32_t key_len[MODEL_KEYS];
	uint8_t value[BATCH][ROOM], room[BATCH][ROOM];
	unsigned which[BATCH];
	struct gn_kv_op op[BATCH], done[BATCH];
	uint64_t statuses[GN_KV_STATUSES];
	struct gn_kv_stats tally; /* what the store should have counted */
	unsigned found;
};

static uint32_t pick(struct run *r, uint32_t below)
{
	return unit_next(&r->rng) % below;
}

/* ---- random operations ---- */

static unsigned draw_how(struct run *r, enum gn_kv_verb verb)
{
	static const unsigned fits[GN_KV_VERBS] = {
		[GN_KV_GET] = GN_KV_NO_VALUE | GN_KV_AND_TOUCH | GN_KV_VIVIFY | GN_KV_RECACHE |
			      GN_KV_QUIET | GN_KV_SET_CAS | GN_KV_RECACHE_FIRST,
		[GN_KV_SET] = GN_KV_IF_CAS | GN_KV_SET_CAS | GN_KV_INVALIDATE,
		[GN_KV_ADD] = GN_KV_SET_CAS,
		[GN_KV_REPLACE] = GN_KV_IF_CAS | GN_KV_SET_CAS,
		[GN_KV_APPEND] = GN_KV_IF_CAS | GN_KV_SET_CAS,
		[GN_KV_PREPEND] = GN_KV_IF_CAS | GN_KV_SET_CAS,
		[GN_KV_DELETE] = GN_KV_IF_CAS | GN_KV_INVALIDATE | GN_KV_SET_CAS | GN_KV_AND_TOUCH,
		[GN_KV_INCR] = GN_KV_IF_CAS | GN_KV_CREATE | GN_KV_AND_TOUCH | GN_KV_SET_CAS,
		[GN_KV_DECR] = GN_KV_IF_CAS | GN_KV_CREATE | GN_KV_AND_TOUCH | GN_KV_SET_CAS,
	};
	unsigned how = pick(r, 3) ? unit_next(&r->rng) & fits[verb] : 0;

	if (pick(r, 3)) /* most given versions should be the right ones */
		how &= ~(unsigned)GN_KV_IF_CAS;
	return how;
}

static uint32_t draw_ttl(struct run *r)
{
	if (pick(r, 3))
		return 0;
	return pick(r, 20) ? 1 + pick(r, 6) : pick(r, 2) ? GN_KV_TTL_PAST : 4000000000u;
}

/* Numbers, almost numbers, and any bytes. */
static uint32_t draw_value(struct run *r, uint8_t *to)
{
	static const char *const texts[] = {"0",
					    "7",
					    "99",
					    "18446744073709551615",
					    "18446744073709551616",
					    "12 ",
					    " 12",
					    "",
					    "1x",
					    "18446744073709551615 -",
					    "-18446744073709551615",
					    "-0",
					    "+5",
					    "5\n",
					    "5 x\t y",
					    "-5",
					    "\t\r\n+8 ",
					    "+",
					    "9\vx"};
	const uint32_t len = pick(r, 4) ? pick(r, 60) : pick(r, r->set->value_max + 1);

	if (pick(r, 3) == 0) {
		const char *text = texts[pick(r, sizeof(texts) / sizeof(*texts))];

		memcpy(to, text, strlen(text));
		return (uint32_t)strlen(text);
	}
	for (uint32_t i = 0; i < len; i++)
		to[i] = (uint8_t)unit_next(&r->rng);
	return len;
}

static void draw_op(struct run *r, unsigned i)
{
	static const enum gn_kv_verb verbs[] = {
		GN_KV_GET,  GN_KV_GET,	GN_KV_GET,     GN_KV_GET,    GN_KV_SET,	    GN_KV_SET,
		GN_KV_SET,  GN_KV_ADD,	GN_KV_REPLACE, GN_KV_APPEND, GN_KV_PREPEND, GN_KV_DELETE,
		GN_KV_INCR, GN_KV_DECR, GN_KV_INCR,    GN_KV_TOUCH};
	const unsigned k = pick(r, r->set->keys);
	struct gn_kv_op *op = &r->op[i];

	r->which[i] = k;
	*op = (struct gn_kv_op){.verb = verbs[pick(r, sizeof(verbs) / sizeof(*verbs))],
				.key = r->key[k],
				.key_len = r->key_len[k],
				.value = r->value[i],
				.room = r->room[i],
				.room_bytes = pick(r, 16) ? ROOM : pick(r, 64),
				.flags = unit_next(&r->rng),
				.ttl_s = draw_ttl(r),
				.create_s = draw_ttl(r),
				.recache_s = pick(r, 8),
				.cas = r->m->item[k].cas,
				.new_cas = 1000000000000u + unit_next(&r->rng),
				.number = pick(r, 8) ? pick(r, 200) : UINT64_MAX - pick(r, 3),
				.initial = unit_next(&r->rng)};
	op->how = draw_how(r, op->verb);
	op->value_len = draw_value(r, r->value[i]);
	if (pick(r, 4) == 0)
		op->cas = pick(r, 4) ? op->cas + (pick(r, 2) ? 1 : UINT64_MAX) : 0;
	memset(r->room[i], 0x5a, ROOM);
}

/* ---- and their results ---- */

static void tally(struct gn_kv_stats *t, const struct gn_kv_op *op, const struct gn_kv_op *done)
{
	const bool missed = done->status == GN_KV_MISS, made = done->found & GN_KV_CREATED;
	const bool touches = op->verb == GN_KV_TOUCH || op->how & GN_KV_AND_TOUCH;
	const bool ok = done->status == GN_KV_OK;

	switch (op->verb) {
	case GN_KV_GET:
	case GN_KV_TOUCH:
		*(touches ? &t->touches : &t->hits) += !missed && !made;
		*(touches ? &t->touch_misses : &t->misses) += missed || made;
		t->gets += !touches;
		break;
	case GN_KV_DELETE:
		t->deletes += ok && !(op->how & GN_KV_INVALIDATE);
		t->delete_misses += missed || done->status == GN_KV_EXISTS;
		break;
	case GN_KV_INCR:
		t->incr_hits += ok && !made;
		t->incr_misses += missed;
		break;
	case GN_KV_DECR:
		t->decr_hits += ok && !made;
		t->decr_misses += missed;
		break;
	default:
		t->sets++;
		if (!(op->how & GN_KV_IF_CAS) || op->verb > GN_KV_REPLACE || op->verb == GN_KV_ADD)
			break;
		t->cas_bad += done->status == GN_KV_EXISTS;
		t->cas_misses += missed;
		t->cas_ok += !missed && done->status != GN_KV_EXISTS;
	}
}

static int check_tally(const struct gn_kv_stats *t, const struct gn_kv_stats *s)
{
	EXPECT(s->gets == t->gets && s->hits == t->hits && s->misses == t->misses);
	EXPECT(s->touches == t->touches && s->touch_misses == t->touch_misses);
	EXPECT(s->deletes == t->deletes && s->delete_misses == t->delete_misses);
	EXPECT(s->incr_hits == t->incr_hits && s->incr_misses == t->incr_misses);
	EXPECT(s->decr_hits == t->decr_hits && s->decr_misses == t->decr_misses);
	EXPECT(s->cas_ok == t->cas_ok && s->cas_bad == t->cas_bad);
	EXPECT(s->cas_misses == t->cas_misses && s->sets == t->sets);
	return 0;
}

static const char *compare(struct run *r, unsigned i)
{
	const struct gn_kv_op *op = &r->op[i], *done = &r->done[i];
	const unsigned k = r->which[i];
	const bool was = r->m->item[k].present;
	struct expected e = model_do(r->m, k, op);
	const char *wrong = model_compare_to(r->m, k, op, done, &e, &r->last_cas);

	if (wrong && was && r->set->may_evict) {
		model_forget(&r->m->item[k]);
		r->forgotten++;
		e = model_do(r->m, k, op);
		wrong = model_compare_to(r->m, k, op, done, &e, &r->last_cas);
	}
	tally(&r->tally, op, done);
	r->statuses[done->status]++;
	r->found |= done->status == GN_KV_OK ? done->found : 0;
	if (wrong)
		print_error("verb %d how %x of key %u: wrong %s: status %s (%s), found %x (%x), "
			    "len %u (%u), flags %x (%x), ttl %u (%u), idle %u (%u), number %llu "
			    "(%llu), version %llu\n",
			    op->verb, op->how, k, wrong, gn_kv_status_str(done->status),
			    gn_kv_status_str(e.status), done->found, e.found, done->len, e.len,
			    done->flags, e.flags, done->ttl_s, e.ttl_s, done->idle_s, e.idle_s,
			    (unsigned long long)done->number, (unsigned long long)e.number,
			    (unsigned long long)done->cas);
	const uint8_t *behind = r->room[i] + (e.has_value ? e.len : 0);

	/* All bytes are equal if each equals the one before it. */
	if (!wrong && (*behind != 0x5a ||
		       memcmp(behind, behind + 1, (size_t)(r->room[i] + ROOM - behind) - 1)))
		wrong = "what is behind its room";
	return wrong;
}

/* The clock is always half a second after a full one, so that all seconds are whole. */
static void pass(struct run *r)
{
	if (pick(r, 40))
		return;
	gn_sleep_us(SECOND_US * (1 + pick(r, 3)));
	model_tick(r->m, (gn_now_ns() - r->begin_ns) / 1000000000u);
}

static void flush(struct run *r)
{
	const uint32_t delay = pick(r, 2) ? 0 : 1 + pick(r, 4);

	if (pick(r, 1000))
		return;
	gn_kv_store_clear(r->store, delay);
	r->m->flush_s = r->m->now_s + delay;
	model_tick(r->m, r->m->now_s);
}

static int check_memory(const struct run *r)
{
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	gn_kv_store_stats(r->store, &stats);
	EXPECT(stats.used <= stats.memory && stats.memory == r->set->memory);
	EXPECT(stats.item_bytes <= stats.used);
	EXPECT(r->set->may_evict || stats.evicted_bucket + stats.evicted_log == 0);
	EXPECT(r->forgotten <= stats.evicted_bucket + stats.evicted_log);
	EXPECT(stats.evicted_unfetched <= stats.evicted_bucket + stats.evicted_log);
	EXPECT(stats.expired_get <= stats.expired && stats.expired_unfetched <= stats.expired);
	EXPECT(r->set->may_evict || check_tally(&r->tally, &stats) == 0);
	return 0;
}

static int round_of(struct run *r)
{
	const unsigned n = pick(r, 3) ? 1 : 1 + pick(r, BATCH);

	pass(r);
	flush(r);
	for (unsigned i = 0; i < n; i++) {
		draw_op(r, i);
		r->done[i] = r->op[i];
	}
	gn_kv_store_do(r->store, r->done, n);
	for (unsigned i = 0; i < n; i++)
		EXPECT(!compare(r, i));
	return check_memory(r);
}

static int make(struct run *r, struct gn_fabric *fabric)
{
	const struct kv_store_opts opts = {
		.open = {.memory = r->set->memory, .max_value = 9000, .seed = r->set->seed + 1},
		.fabric = r->set->bypass ? fabric : NULL};

	r->m = gn_alloc(sizeof(*r->m), 0);
	EXPECT(r->m);
	r->m->flush_s = UINT64_MAX;
	for (unsigned i = 0; i < MODEL_KEYS; i++) {
		const uint32_t len = pick(r, 8) ? 4 + pick(r, 20) : 4 + pick(r, GN_KV_KEY_MAX - 3);

		r->m->item[i].value = gn_alloc(MODEL_BYTES, 0);
		EXPECT(r->m->item[i].value);
		r->key_len[i] = len;
		for (uint32_t b = 0; b < len; b++)
			r->key[i][b] = (char)unit_next(&r->rng);
		memcpy(r->key[i], &i, 4);
	}
	r->begin_ns = gn_now_ns();
	EXPECT(kv_store_make(&opts, &r->store) == 0);
	r->m->max_value = r->store->max_value;
	gn_sleep_us(HALF_US);
	return 0;
}

PROGRAM(beside_model)
{
	const struct setting *set = env->arg;
	struct run *r = gn_alloc(sizeof(*r), 0);
	struct gn_fabric *fabric;
	int rc;

	EXPECT(r);
	r->set = set;
	r->rng = set->seed;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	rc = make(r, fabric);
	for (unsigned i = 0; i < set->rounds && !rc; i++) {
		rc = round_of(r);
		if (rc)
			print_error("seed %llu, round %u\n", (unsigned long long)set->seed, i);
	}
	EXPECT(rc == 0);
	for (unsigned i = GN_KV_OK; i <= GN_KV_NOT_NUMBER; i++)
		EXPECT(r->statuses[i]);
	EXPECT(r->statuses[GN_KV_TOO_BIG]);
	EXPECT(r->found == (GN_KV_CREATED * 2 - 1));
	EXPECT(!set->may_evict || r->forgotten);
	gn_kv_store_destroy(r->store);
	EXPECT(gn_fabric_close(fabric) == 0);
	for (unsigned i = 0; i < MODEL_KEYS; i++)
		gn_free(r->m->item[i].value);
	gn_free(r->m);
	gn_free(r);
	return 0;
}

static void run_setting(struct setting set)
{
	for (unsigned i = 0; i < (unit_slow() ? 2 : 5); i++) {
		sim_run_alone(beside_model, &set);
		set.seed++;
	}
}

static void test_enough_memory(void **state)
{
	(void)state;
	run_setting((struct setting){unit_seed(), 6000, 64, 4000, 4u << 20, false, false});
}

static void test_little_memory(void **state)
{
	(void)state;
	run_setting((struct setting){unit_seed(), 6000, MODEL_KEYS, 7000, GN_KV_MEMORY_MIN, false,
				     true});
}

/* ---- a batch gives the same results as single operations ---- */

PROGRAM(batches)
{
	static const struct setting set = {.keys = 300, .value_max = 300};
	struct run *r = gn_alloc(sizeof(*r), 0);
	struct gn_kv_store_opts opts = {
		.size = sizeof(opts), .memory = GN_KV_MEMORY_MIN, .seed = 77};
	struct gn_kv_store *other;
	struct gn_kv_stats a = {.size = sizeof(a)}, b = {.size = sizeof(b)};
	uint8_t room[ROOM];

	EXPECT(r);
	r->set = &set;
	r->rng = *(const uint64_t *)env->arg;
	r->m = gn_alloc(sizeof(*r->m), 0);
	EXPECT(r->m && gn_kv_store_create(&opts, &r->store) == 0);
	EXPECT(gn_kv_store_create(&opts, &other) == 0);
	EXPECT(other->version != r->store->version); /* versions do not depend on the seed */
	other->version = r->store->version;
	for (unsigned i = 0; i < MODEL_KEYS; i++) {
		memcpy(r->key[i], &i, 4);
		r->key_len[i] = 4 + i % 30;
	}
	for (unsigned round = 0; round < 2000; round++) {
		const unsigned n = 1 + pick(r, BATCH);

		for (unsigned i = 0; i < n; i++) {
			draw_op(r, i);
			r->done[i] = r->op[i];
		}
		gn_kv_store_do(r->store, r->done, n);
		for (unsigned i = 0; i < n; i++) {
			struct gn_kv_op one = r->op[i];

			one.room = room;
			memset(room, 0x5a, sizeof(room));
			gn_kv_store_do(other, &one, 1);
			EXPECT(!memcmp(room, r->room[i], ROOM));
			one.room = r->done[i].room;
			one.hash = r->done[i].hash; /* private, and so are line and step */
			one.line = r->done[i].line;
			one.step = r->done[i].step;
			EXPECT(!memcmp(&one, &r->done[i], sizeof(one)));
		}
	}
	gn_kv_store_stats(r->store, &a);
	gn_kv_store_stats(other, &b);
	EXPECT(!memcmp(&a, &b, sizeof(a)));
	gn_kv_store_destroy(other);
	gn_kv_store_destroy(r->store);
	gn_free(r->m);
	gn_free(r);
	return 0;
}

static void test_batches(void **state)
{
	uint64_t seed = unit_seed();

	(void)state;
	sim_run_alone(batches, &seed);
}

/* ---- edges ---- */

static unsigned do_one(struct gn_kv_store *s, enum gn_kv_verb verb, const void *key, uint32_t len,
		       const void *value, uint32_t value_len)
{
	struct gn_kv_op op = {
		.verb = verb, .key = key, .key_len = len, .value = value, .value_len = value_len};

	gn_kv_store_do(s, &op, 1);
	return op.status;
}

static void test_edges(void **state)
{
	static const uint64_t wrong[] = {1, GN_KV_MEMORY_MIN - 1, GN_KV_MEMORY_MAX + 1};
	uint8_t *value = calloc(1, GN_KV_VALUE_MAX + 1);
	struct gn_kv_store *s = NULL;
	char key[GN_KV_KEY_MAX + 1] = {0};

	(void)state;
	assert_non_null(value);
	for (unsigned i = 0; i < 3; i++) {
		const struct gn_kv_store_opts opts = {.size = sizeof(opts), .memory = wrong[i]};

		assert_int_equal(gn_kv_store_create(&opts, &s), -EINVAL);
		assert_null(s);
	}
	for (unsigned i = 0; i < 2; i++) { /* a value has at most a quarter of the memory */
		const struct gn_kv_store_opts opts = {.size = sizeof(opts),
						      .memory = (4ull << 20) - i * 4,
						      .max_value = GN_KV_VALUE_MAX};

		assert_int_equal(gn_kv_store_create(&opts, &s), i ? -EINVAL : 0);
		for (unsigned n = 0; n < 20 && !i; n++, key[0]++)
			assert_int_equal(do_one(s, GN_KV_SET, key, GN_KV_KEY_MAX, value,
						GN_KV_VALUE_MAX - n % 3),
					 GN_KV_OK);
		if (!i)
			assert_true(s->stats.items == 3);
		gn_kv_store_destroy(s);
		s = NULL;
	}
	assert_int_equal(gn_kv_store_create(NULL, &s), 0);
	assert_int_equal(do_one(s, GN_KV_SET, key, 0, value, 1), GN_KV_INVALID);
	assert_int_equal(do_one(s, GN_KV_SET, key, GN_KV_KEY_MAX + 1, value, 1), GN_KV_INVALID);
	assert_int_equal(do_one(s, GN_KV_VERBS, key, 1, value, 1), GN_KV_INVALID);
	assert_int_equal(do_one(s, GN_KV_SET, key, GN_KV_KEY_MAX, value, GN_KV_VALUE_MAX),
			 GN_KV_OK);
	assert_int_equal(do_one(s, GN_KV_APPEND, key, GN_KV_KEY_MAX, value, 1), GN_KV_TOO_BIG);
	assert_int_equal(do_one(s, GN_KV_SET, key, 1, value, GN_KV_VALUE_MAX + 1), GN_KV_TOO_BIG);
	assert_int_equal(do_one(s, GN_KV_GET, key, 1, NULL, 0), GN_KV_MISS);
	gn_kv_store_destroy(s);
	gn_kv_store_destroy(NULL);
	free(value);
}

/* Always below 2^53, never 0, and none twice. */
static void test_versions(void **state)
{
	enum { TIMES = 100 };
	struct gn_kv_op op = {.verb = GN_KV_SET, .key = "k", .key_len = 1};
	uint64_t seen[TIMES];
	struct gn_kv_store *s;

	(void)state;
	assert_int_equal(gn_kv_store_create(NULL, &s), 0);
	assert_true(s->version < 1ull << (KV_VERSION_BITS - 1));
	s->version = (1ull << KV_VERSION_BITS) - TIMES / 2;
	for (unsigned i = 0; i < TIMES; i++) {
		gn_kv_store_do(s, &op, 1);
		assert_int_equal(op.status, GN_KV_OK);
		assert_in_range(op.cas, 1, (1ull << KV_VERSION_BITS) - 1);
		seen[i] = op.cas;
		for (unsigned k = 0; k < i; k++)
			assert_true(seen[k] != op.cas);
	}
	gn_kv_store_destroy(s);
}

/* ---- memory ---- */

#define LIMIT (64ull << 20)
#define MIB   1048576.0

static uint64_t rss(void)
{
	unsigned long long pages = 0, all;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu %llu", &all, &pages), 2);
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* How many of the items stored last, which would take a quarter of memory, exist? */
static double share_of_last(struct gn_kv_store *s, uint32_t bytes, uint64_t next)
{
	const uint64_t n = LIMIT / 4 / (bytes + 48);
	uint64_t there = 0;

	for (uint64_t key = next - n; key < next; key++) {
		struct gn_kv_op op = {.verb = GN_KV_GET,
				      .how = GN_KV_NO_VALUE | GN_KV_QUIET,
				      .key = &key,
				      .key_len = sizeof(key)};

		gn_kv_store_do(s, &op, 1);
		there += op.status == GN_KV_OK;
	}
	return (double)there / (double)n;
}

/* Stores more than fits, in values of so many bytes. */
static void fill_up(struct gn_kv_store *s, uint32_t bytes, uint64_t *next, uint64_t before)
{
	static uint8_t value[GN_KV_VALUE_MAX];
	const uint64_t n = 3 * LIMIT / (bytes + 48);
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	uint64_t grown;
	double last;

	for (uint64_t i = 0; i < n; i++, ++*next)
		assert_int_equal(do_one(s, GN_KV_SET, next, sizeof(*next), value,
					bytes - (uint32_t)(i % (bytes / 4 + 1))),
				 GN_KV_OK);
	gn_kv_store_stats(s, &stats);
	grown = rss() - before;
	last = share_of_last(s, bytes, *next);
	print_message("# values of %u bytes: %llu items in %.1f MiB, used %.1f MiB, RSS %.1f MiB, "
		      "of the last %.0f %%\n",
		      bytes, (unsigned long long)stats.items, (double)stats.item_bytes / MIB,
		      (double)stats.used / MIB, (double)grown / MIB, last * 100);
	assert_true(stats.used <= stats.memory && stats.used >= stats.memory / 10 * 9);
	assert_true(stats.item_bytes >= stats.memory / 2);
	assert_true(last >= 0.8);
	if (!unit_slow())
		assert_true(grown <= LIMIT / 10 * 11 && grown >= LIMIT / 10 * 9);
}

static void test_limit(void **state)
{
	static const uint32_t sizes[] = {32, 1000, 100000, 1000, 32, 500000, 32};
	const struct gn_kv_store_opts opts = {.size = sizeof(opts), .memory = LIMIT};
	const uint64_t before = rss();
	struct gn_kv_store *s;
	uint64_t next = 1;

	(void)state;
	assert_int_equal(gn_kv_store_create(&opts, &s), 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		fill_up(s, sizes[i], &next, before);
	gn_kv_store_destroy(s);
}

/*
 * Items that are rewritten often count as used: others are evicted for keys that are stored once.
 */
static void test_rewritten(void **state)
{
	const struct gn_kv_store_opts opts = {.size = sizeof(opts), .memory = 2u << 20, .seed = 5};
	static uint8_t value[2000];
	struct gn_kv_store *s;
	unsigned lost = 0;

	(void)state;
	assert_int_equal(gn_kv_store_create(&opts, &s), 0);
	for (uint64_t next = 100, round = 0; round < 3000; round++) {
		for (uint64_t hot = 0; hot < 8; hot++) {
			lost += round && do_one(s, GN_KV_REPLACE, &hot, sizeof(hot), value, 100);
			assert_int_equal(do_one(s, GN_KV_SET, &hot, sizeof(hot), value, 100),
					 GN_KV_OK);
		}
		for (unsigned i = 0; i < 10; i++, next++)
			assert_int_equal(do_one(s, GN_KV_SET, &next, sizeof(next), value,
						(uint32_t)(next * 7919 % sizeof(value))),
					 GN_KV_OK);
	}
	print_message("# lost %u times\n", lost);
	assert_int_equal(lost, 0);
	gn_kv_store_destroy(s);
}

/* Memory of an item of 16 and 32 bytes, with a million items. */
#define PAIRS	  1000000u
#define PAIR_MOST 125.0

static void test_pairs(void **state)
{
	const struct gn_kv_store_opts opts = {.size = sizeof(opts), .memory = 256ull << 20};
	const uint64_t before = rss();
	uint64_t key[2] = {0}, value[4] = {1, 2, 3, 4};
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	struct gn_kv_store *s;
	double each;

	(void)state;
	assert_int_equal(gn_kv_store_create(&opts, &s), 0);
	for (key[0] = 1; key[0] <= PAIRS; key[0]++)
		assert_int_equal(do_one(s, GN_KV_SET, key, sizeof(key), value, sizeof(value)),
				 GN_KV_OK);
	gn_kv_store_stats(s, &stats);
	assert_int_equal(stats.items, PAIRS);
	each = (double)stats.used / PAIRS;
	print_message("# a pair takes %.1f bytes, of RSS %.1f\n", each,
		      (double)(rss() - before) / PAIRS);
	assert_true(each <= PAIR_MOST);
	if (!unit_slow())
		assert_true((double)(rss() - before) / PAIRS <= PAIR_MOST);
	gn_kv_store_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SIM_TEST(test_enough_memory),
		SIM_TEST(test_little_memory),
		SIM_TEST(test_batches),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_rewritten),
		cmocka_unit_test(test_versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
