/* SPDX-License-Identifier: MIT */
/*
 * Whether the checker of histories knows right from wrong: stories of both kinds, told by hand, and
 * small ones at random, for which all orders can be tried without being clever.
 */
#include <string.h>

#include "../sim/history_inner.h"
#include "unit.h"

#define S 1000000000ull

/* ---- stories ---- */

struct story {
	struct history *h;
	struct history_op *op; /* the last */
};

static struct story begin_story(bool may_evict)
{
	const struct history_opts opts = {.may_evict = may_evict};
	const struct story s = {history_create(&opts), NULL};

	return s;
}

static uint32_t wrote(struct story *s, uint64_t what)
{
	const struct piece piece = {.what = what, .len = 8};

	return history_value(s->h, &piece, 1);
}

static uint32_t wrote_number(struct story *s, uint64_t what)
{
	struct piece piece = {.what = what, .len = 1, .number = true};

	for (uint64_t n = what; n >= 10; n /= 10)
		piece.len++;
	return history_value(s->h, &piece, 1);
}

/* Of a client, from and to, with its status; end 0: it never ended. */
static struct history_op *tell(struct story *s, unsigned client, unsigned verb, uint64_t begin,
			       uint64_t end, unsigned status)
{
	struct history_op *op = history_add(s->h, NULL);

	op->client = client;
	op->verb = verb;
	op->begin_ns = begin;
	op->end_ns = end ? end : HISTORY_NEVER;
	op->status = status;
	s->op = op;
	return op;
}

static void set(struct story *s, unsigned client, uint64_t what, uint64_t begin, uint64_t end)
{
	tell(s, client, GN_KV_SET, begin, end, GN_KV_OK)->value = wrote(s, what);
}

static void get(struct story *s, unsigned client, uint64_t what, uint64_t begin, uint64_t end)
{
	tell(s, client, GN_KV_GET, begin, end, what ? GN_KV_OK : GN_KV_MISS)->seen =
		what ? wrote(s, what) : HISTORY_UNSEEN;
}

static void incr(struct story *s, unsigned client, uint64_t by, uint64_t is, uint64_t begin,
		 uint64_t end, unsigned status)
{
	struct history_op *op = tell(s, client, GN_KV_INCR, begin, end, status);

	op->number = by;
	op->seen_number = is;
}

static void set_number(struct story *s, uint64_t n, uint64_t begin, uint64_t end)
{
	tell(s, 1, GN_KV_SET, begin, end, GN_KV_OK)->value = wrote_number(s, n);
}

static void get_number(struct story *s, uint64_t n, uint64_t begin, uint64_t end)
{
	tell(s, 2, GN_KV_GET, begin, end, GN_KV_OK)->seen = wrote_number(s, n);
}

static void end_story(struct story *s, enum history_verdict verdict)
{
	struct history_result result;

	history_check(s->h, &result);
	if (result.verdict != verdict) {
		history_print(s->h, 0);
		fail_msg("verdict %d instead of %d: %s", result.verdict, verdict, result.why);
	}
	history_destroy(s->h);
}

#define STORY(name, may_evict, verdict, ...)                 \
	static void name(void **state)                       \
	{                                                    \
		struct story story = begin_story(may_evict); \
		struct story *s = &story;                    \
                                                             \
		(void)state;                                 \
		__VA_ARGS__                                  \
		end_story(s, verdict);                       \
	}

/* ---- right ---- */

STORY(right_nothing, false, HISTORY_RIGHT, get(s, 1, 0, 1, 2);)
STORY(right_in_turn, false, HISTORY_RIGHT, set(s, 1, 7, 1, 2); get(s, 2, 7, 3, 4);
      set(s, 2, 8, 5, 6); get(s, 1, 8, 7, 8);)
/* Two writes at the same time, and readers that agree on which came first. */
STORY(right_at_once, false, HISTORY_RIGHT, set(s, 1, 7, 1, 10); set(s, 2, 8, 1, 10);
      get(s, 3, 8, 3, 4); get(s, 3, 7, 5, 6); get(s, 4, 7, 11, 12);)
/* A write that nobody knows of takes effect late, or never. */
STORY(right_late, false, HISTORY_RIGHT, set(s, 1, 7, 1, 2); set(s, 2, 8, 3, 4);
      s->op->status = GN_KV_TIMEOUT; get(s, 1, 7, 50, 60); get(s, 1, 8, 70, 80);
      set(s, 1, 9, 90, 91); get(s, 1, 9, 92, 93);)
STORY(right_never, false, HISTORY_RIGHT, set(s, 1, 7, 1, 2); set(s, 2, 8, 3, 0);
      get(s, 1, 7, 50, 60);)
STORY(right_counted, false, HISTORY_RIGHT, set_number(s, 1, 1, 2); incr(s, 1, 2, 3, 3, 20, 0);
      incr(s, 2, 2, 5, 3, 20, 0); incr(s, 3, 2, 0, 3, 20, GN_KV_GONE); get_number(s, 7, 30, 31);)
STORY(
	right_joined, false, HISTORY_RIGHT, set(s, 1, 7, 1, 2);
	tell(s, 1, GN_KV_APPEND, 3, 9, GN_KV_OK)->value = wrote(s, 8);
	tell(s, 2, GN_KV_PREPEND, 3, 9, GN_KV_OK)->value = wrote(s, 6); {
		const struct piece all[] = {{6, 8, false}, {7, 8, false}, {8, 8, false}};

		tell(s, 2, GN_KV_GET, 10, 11, GN_KV_OK)->seen = history_value(s->h, all, 3);
	})
STORY(right_evicted, true, HISTORY_RIGHT, set(s, 1, 7, 1, 2); get(s, 1, 7, 3, 4);
      get(s, 1, 0, 5, 6); set(s, 1, 8, 7, 8); get(s, 1, 8, 9, 10);)
STORY(right_expired, false, HISTORY_RIGHT, set(s, 1, 7, 1, 2); s->op->ttl_s = 3;
      get(s, 1, 7, S, S + 1); get(s, 1, 0, 3 * S, 3 * S + 1);)
STORY(right_touched, false, HISTORY_RIGHT, set(s, 1, 7, 1, 2); s->op->ttl_s = 2;
      tell(s, 1, GN_KV_TOUCH, 3, 4, GN_KV_OK)->ttl_s = 100; get(s, 1, 7, 50 * S, 50 * S + 1);)
STORY(right_restarted, false, HISTORY_RIGHT, set(s, 1, 7, 1, 2);
      tell(s, 0, HISTORY_RESTART, 5, 9, GN_KV_OK); get(s, 1, 7, 6, 7); get(s, 1, 0, 8, 9);)
STORY(right_versions, false, HISTORY_RIGHT, set(s, 1, 7, 1, 2); s->op->seen_cas = 100;
      get(s, 1, 7, 3, 4); s->op->seen_cas = 100; set(s, 1, 8, 5, 6); s->op->how = GN_KV_IF_CAS;
      s->op->cas = 100; s->op->seen_cas = 101; set(s, 2, 9, 7, 8); s->op->how = GN_KV_IF_CAS;
      s->op->cas = 100; s->op->status = GN_KV_EXISTS; s->op->seen_cas = 101;)
/* A version that was seen of a write whose end was not. */
STORY(right_version_unknown, false, HISTORY_RIGHT, set(s, 1, 7, 1, 0); get(s, 2, 7, 3, 4);
      s->op->seen_cas = 100; set(s, 2, 8, 5, 6); s->op->how = GN_KV_IF_CAS; s->op->cas = 100;
      s->op->seen_cas = 101;)

/* ---- wrong ---- */

STORY(wrong_lost, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); get(s, 1, 0, 3, 4);)
STORY(wrong_stale, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); set(s, 2, 8, 3, 4);
      get(s, 3, 7, 5, 6);)
STORY(wrong_thin_air, true, HISTORY_WRONG, set(s, 1, 7, 1, 2); get(s, 1, 9, 3, 4);)
STORY(wrong_too_soon, false, HISTORY_WRONG, get(s, 1, 7, 1, 2); set(s, 2, 7, 3, 4);)
STORY(wrong_too_soon_unknown, false, HISTORY_WRONG, get(s, 1, 7, 1, 2); set(s, 2, 7, 3, 0);)
/* One client sees the new value and then the old one, while the write is still under way. */
STORY(wrong_back_again, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); set(s, 2, 8, 3, 20);
      get(s, 3, 8, 4, 5); get(s, 3, 7, 6, 7);)
STORY(wrong_two_orders, false, HISTORY_WRONG, set(s, 1, 7, 1, 10); set(s, 2, 8, 1, 10);
      get(s, 3, 7, 11, 12); get(s, 4, 8, 11, 12);)
STORY(wrong_update_lost, false, HISTORY_WRONG, set_number(s, 1, 1, 2); incr(s, 1, 1, 2, 3, 20, 0);
      incr(s, 2, 1, 2, 3, 20, 0);)
/* A call that was tried again and done twice. */
STORY(wrong_twice, false, HISTORY_WRONG, set_number(s, 1, 1, 2); incr(s, 1, 1, 2, 3, 4, 0);
      get_number(s, 3, 5, 6);)
STORY(wrong_twice_unknown, false, HISTORY_WRONG, set_number(s, 1, 1, 2);
      incr(s, 1, 1, 0, 3, 4, GN_KV_TIMEOUT); get_number(s, 2, 5, 6); get_number(s, 3, 7, 8);)
STORY(wrong_resurrected, true, HISTORY_WRONG, set(s, 1, 7, 1, 2); get(s, 1, 0, 3, 4);
      get(s, 1, 7, 5, 6);)
STORY(wrong_deleted, true, HISTORY_WRONG, set(s, 1, 7, 1, 2);
      tell(s, 1, GN_KV_DELETE, 3, 4, GN_KV_OK); get(s, 2, 7, 5, 6);)
STORY(wrong_deleted_twice, false, HISTORY_WRONG, set(s, 1, 7, 1, 2);
      tell(s, 1, GN_KV_DELETE, 3, 10, GN_KV_OK); tell(s, 2, GN_KV_DELETE, 3, 10, GN_KV_OK);)
STORY(wrong_added_twice, false, HISTORY_WRONG,
      tell(s, 1, GN_KV_ADD, 3, 10, GN_KV_OK)->value = wrote(s, 7);
      tell(s, 2, GN_KV_ADD, 3, 10, GN_KV_OK)->value = wrote(s, 8);)
STORY(wrong_early_death, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); s->op->ttl_s = 5;
      get(s, 1, 0, S, 2 * S);)
STORY(wrong_undead, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); s->op->ttl_s = 5;
      get(s, 1, 7, 7 * S, 7 * S + 1);)
STORY(wrong_after_restart, false, HISTORY_WRONG, set(s, 1, 7, 1, 2);
      tell(s, 0, HISTORY_RESTART, 5, 9, GN_KV_OK); get(s, 1, 7, 10, 11);)
/* What was sent to one server is not done by the next. */
STORY(wrong_other_epoch, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); s->op->status = GN_KV_GONE;
      s->op->last_epoch = 0; tell(s, 0, HISTORY_RESTART, 5, 9, GN_KV_OK); get(s, 1, 7, 10, 11);)
STORY(wrong_after_clear, true, HISTORY_WRONG, set(s, 1, 7, 1, 2);
      tell(s, 2, HISTORY_FORGET, 5, 9, GN_KV_OK); get(s, 1, 7, 10, 11);)
STORY(wrong_version_won_twice, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); s->op->seen_cas = 100;
      set(s, 1, 8, 3, 9); s->op->how = GN_KV_IF_CAS; s->op->cas = 100; s->op->seen_cas = 101;
      set(s, 2, 9, 3, 9); s->op->how = GN_KV_IF_CAS; s->op->cas = 100; s->op->seen_cas = 102;)
STORY(wrong_version_of_two, true, HISTORY_WRONG, set(s, 1, 7, 1, 2); s->op->seen_cas = 100;
      set(s, 1, 8, 3, 4); s->op->seen_cas = 100;)
/* An update is lost between a write that nobody knows the end of and one for an older version. */
STORY(wrong_version_unknown, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); s->op->seen_cas = 100;
      set(s, 2, 8, 3, 0); get(s, 3, 8, 4, 5); set(s, 1, 9, 6, 7); s->op->how = GN_KV_IF_CAS;
      s->op->cas = 100; s->op->seen_cas = 102;)
STORY(wrong_version_order, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); s->op->seen_cas = 100;
      set(s, 1, 8, 3, 4); s->op->seen_cas = 99;)
STORY(right_version_order, false, HISTORY_RIGHT, set(s, 1, 7, 1, 9); s->op->seen_cas = 100;
      set(s, 2, 8, 1, 9); s->op->seen_cas = 99; get(s, 3, 7, 10, 11);)
STORY(wrong_flags, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); s->op->flags = 5; get(s, 1, 7, 3, 4);
      s->op->seen_flags = 6;)
STORY(wrong_length, false, HISTORY_WRONG, set(s, 1, 7, 1, 2);
      tell(s, 1, GN_KV_GET, 3, 4, GN_KV_TOO_BIG)->seen_len = 9;)
/* In one batch a key's operations are done in their order. */
STORY(wrong_in_batch, false, HISTORY_WRONG, set(s, 1, 7, 1, 2); set(s, 1, 8, 3, 9);
      s->op->batch = 5; get(s, 1, 7, 3, 9); s->op->batch = 5;)
STORY(right_in_batch, false, HISTORY_RIGHT, set(s, 1, 7, 1, 2); get(s, 1, 7, 3, 9);
      s->op->batch = 5; set(s, 1, 8, 3, 9); s->op->batch = 5;)
STORY(wrong_joined, false, HISTORY_WRONG, set(s, 1, 7, 1, 2);
      tell(s, 1, GN_KV_APPEND, 3, 4, GN_KV_OK)->value = wrote(s, 8); get(s, 1, 8, 5, 6);)

/* Keys have nothing to do with each other. */
static void test_keys(void **state)
{
	struct story s = begin_story(false);
	struct history_result result;

	(void)state;
	set(&s, 1, 7, 1, 2);
	set(&s, 1, 8, 3, 4);
	s.op->key = 5;
	get(&s, 1, 7, 5, 6);
	get(&s, 1, 7, 7, 8);
	s.op->key = 5;
	history_check(s.h, &result);
	assert_int_equal(result.verdict, HISTORY_WRONG);
	assert_int_equal(result.key, 5);
	assert_int_equal(result.stuck, 3);
	assert_int_equal(result.keys, 2);
	history_destroy(s.h);
}

/* Dozens of writes with unknown ends are no reason to look for ever. */
static void test_many_unknown(void **state)
{
	struct story s = begin_story(true);
	struct history_result result;

	(void)state;
	for (unsigned i = 0; i < 40; i++)
		set(&s, i, 100 + i, 1 + i, 0);
	for (unsigned i = 0; i < 400; i++) {
		set(&s, 50, 1000 + i, 100 + 10 * i, 105 + 10 * i);
		get(&s, 51, i % 3 ? 1000 + i : 0, 106 + 10 * i, 109 + 10 * i);
	}
	get(&s, 52, 117, 5000, 5001);
	history_check(s.h, &result);
	assert_int_equal(result.verdict, HISTORY_RIGHT);
	get(&s, 52, 1399, 5002, 5003);
	history_check(s.h, &result);
	assert_int_equal(result.verdict, HISTORY_WRONG);
	print_message("# %llu steps\n", (unsigned long long)result.steps);
	history_destroy(s.h);
}

/* ---- all orders of a few ---- */

#define FEW 6u

struct orders {
	struct story s;
	bool done[FEW];
	uint32_t n;
};

static bool some_order(struct orders *o, const struct key_state *at, unsigned known_left);

static bool some_order_after(struct orders *o, uint32_t i, const struct key_state *at,
			     unsigned known_left)
{
	const struct history_op *op = &o->s.h->op[i];
	const struct key_state gone = history_absent(at);
	struct key_state to;
	bool found = false;

	o->done[i] = true;
	if (history_may_live(op, at) && history_step(o->s.h, op, at, &to))
		found = some_order(o, &to, known_left - history_known(op));
	if (!found && history_may_die(o->s.h, op, at) && history_step(o->s.h, op, &gone, &to))
		found = some_order(o, &to, known_left - history_known(op));
	o->done[i] = false;
	return found;
}

static bool some_order(struct orders *o, const struct key_state *at, unsigned known_left)
{
	if (!known_left)
		return true;
	for (uint32_t i = 0; i < o->n; i++) {
		bool may = !o->done[i];

		for (uint32_t k = 0; k < o->n && may; k++)
			may = o->done[k] || !history_known(&o->s.h->op[k]) ||
			      o->s.h->op[k].end_ns >= o->s.h->op[i].begin_ns;
		if (may && some_order_after(o, i, at, known_left))
			return true;
	}
	return false;
}

static void draw(struct orders *o, uint64_t *rng)
{
	static const unsigned verbs[] = {GN_KV_SET,    GN_KV_SET,    GN_KV_GET,
					 GN_KV_GET,    GN_KV_GET,    GN_KV_ADD,
					 GN_KV_DELETE, GN_KV_APPEND, HISTORY_RESTART};
	static const unsigned ends[] = {GN_KV_OK, GN_KV_OK, GN_KV_OK, GN_KV_OK, GN_KV_TIMEOUT};
	const struct piece both[] = {{1, 8, false}, {2, 8, false}};

	o->n = 2 + unit_next(rng) % (FEW - 1);
	for (uint32_t i = 0; i < o->n; i++) {
		const uint64_t begin = 1 + unit_next(rng) % 12;
		struct history_op *op = tell(&o->s, i, verbs[unit_next(rng) % 9], begin,
					     begin + unit_next(rng) % 6, ends[unit_next(rng) % 5]);
		const unsigned saw = unit_next(rng) % 4;

		op->value = wrote(&o->s, 1 + unit_next(rng) % 2);
		if (op->verb == GN_KV_ADD && op->status == GN_KV_OK && unit_next(rng) % 2)
			op->status = GN_KV_NOT_STORED;
		if (op->verb == GN_KV_GET && op->status == GN_KV_OK && !saw)
			op->status = GN_KV_MISS;
		if (op->verb == GN_KV_GET && op->status == GN_KV_OK)
			op->seen = saw < 3 ? wrote(&o->s, saw) : history_value(o->s.h, both, 2);
	}
}

static void test_all_orders(void **state)
{
	const struct key_state nothing = {.dies_from_ns = HISTORY_NEVER,
					  .dies_by_ns = HISTORY_NEVER};
	uint64_t rng = unit_seed();
	unsigned right = 0, wrong = 0;

	(void)state;
	for (unsigned round = 0; round < (unit_slow() ? 2000 : 20000); round++) {
		struct orders o = {.s = begin_story(round % 4 == 0)};
		struct history_result result;
		unsigned known = 0;
		bool is;

		draw(&o, &rng);
		/* A version of its own for each value would say too much here. */
		for (uint32_t i = 0; i < o.n; i++)
			known += history_known(&o.s.h->op[i]);
		history_check(o.s.h, &result);
		is = some_order(&o, &nothing, known);
		if (result.keys && is != (result.verdict == HISTORY_RIGHT)) {
			history_print(o.s.h, 0);
			fail_msg("round %u: verdict %d, %s", round, result.verdict, result.why);
		}
		right += is;
		wrong += !is;
		history_destroy(o.s.h);
	}
	print_message("# right %u, wrong %u\n", right, wrong);
	assert_true(right > 100 && wrong > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_nothing),
		cmocka_unit_test(right_in_turn),
		cmocka_unit_test(right_at_once),
		cmocka_unit_test(right_late),
		cmocka_unit_test(right_never),
		cmocka_unit_test(right_counted),
		cmocka_unit_test(right_joined),
		cmocka_unit_test(right_evicted),
		cmocka_unit_test(right_expired),
		cmocka_unit_test(right_touched),
		cmocka_unit_test(right_restarted),
		cmocka_unit_test(right_versions),
		cmocka_unit_test(right_version_unknown),
		cmocka_unit_test(right_in_batch),
		cmocka_unit_test(wrong_lost),
		cmocka_unit_test(wrong_stale),
		cmocka_unit_test(wrong_thin_air),
		cmocka_unit_test(wrong_too_soon),
		cmocka_unit_test(wrong_too_soon_unknown),
		cmocka_unit_test(wrong_back_again),
		cmocka_unit_test(wrong_two_orders),
		cmocka_unit_test(wrong_update_lost),
		cmocka_unit_test(wrong_twice),
		cmocka_unit_test(wrong_twice_unknown),
		cmocka_unit_test(wrong_resurrected),
		cmocka_unit_test(wrong_deleted),
		cmocka_unit_test(wrong_deleted_twice),
		cmocka_unit_test(wrong_added_twice),
		cmocka_unit_test(wrong_early_death),
		cmocka_unit_test(wrong_undead),
		cmocka_unit_test(wrong_after_restart),
		cmocka_unit_test(wrong_other_epoch),
		cmocka_unit_test(wrong_after_clear),
		cmocka_unit_test(wrong_version_won_twice),
		cmocka_unit_test(wrong_version_of_two),
		cmocka_unit_test(wrong_version_unknown),
		cmocka_unit_test(wrong_version_order),
		cmocka_unit_test(right_version_order),
		cmocka_unit_test(wrong_flags),
		cmocka_unit_test(wrong_length),
		cmocka_unit_test(wrong_in_batch),
		cmocka_unit_test(wrong_joined),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_many_unknown),
		cmocka_unit_test(test_all_orders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
