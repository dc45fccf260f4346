/* SPDX-License-Identifier: MIT */
/*
 * Whether the checker of transactions' histories knows right from wrong: histories of both kinds,
 * written by hand, and small random ones, for which all orders are tried.
 */
#include <errno.h>
#include <string.h>

#include "../sim/tx_history.h"
#include "unit.h"

#define KEYS 3u

static uint32_t attempt(struct tx_history *h, uint64_t inv, uint64_t ret, enum tx_outcome outcome)
{
	const uint32_t n = tx_history_begin(h, inv);

	tx_history_end(h, n, outcome, ret);
	return n;
}

static void reads(struct tx_history *h, uint32_t n, uint32_t key, uint64_t version, uint64_t digest)
{
	const struct tx_access a = {.key = key,
				    .op = 'r',
				    .present = digest != 0,
				    .version = version,
				    .digest = digest};

	tx_history_access(h, n, &a);
}

static void writes(struct tx_history *h, uint32_t n, uint32_t key, char op, uint64_t prev,
		   uint64_t version, uint64_t digest)
{
	const struct tx_access a = {.key = key,
				    .op = op,
				    .present = op != 'd',
				    .prev = prev,
				    .version = version,
				    .digest = digest};

	tx_history_access(h, n, &a);
}

static struct tx_history *two_keys(void)
{
	struct tx_history *h = tx_history_create(KEYS);

	tx_history_init(h, 0, 1, 100);
	tx_history_init(h, 1, 1, 101);
	return h;
}

static void expect(struct tx_history *h, const char *error)
{
	const int rc = tx_history_check(h);

	if (!error && rc)
		fail_msg("%s", tx_history_error(h));
	if (error) {
		assert_int_equal(rc, -EILSEQ);
		if (!strstr(tx_history_error(h), error))
			fail_msg("'%s' instead of '%s'", tx_history_error(h), error);
	}
	tx_history_destroy(h);
}

static void test_good(void **state)
{
	struct tx_history *h = two_keys();
	uint32_t n;

	(void)state;
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	reads(h, n, 0, 1, 100);
	writes(h, n, 1, 'u', 1, 2, 201);
	n = attempt(h, 2, 11, TX_HISTORY_OK); /* before the first, although it ends later */
	reads(h, n, 1, 1, 101);
	n = attempt(h, 12, 13, TX_HISTORY_OK);
	reads(h, n, 1, 2, 201);
	writes(h, n, 0, 'd', 1, 2, 0);
	n = attempt(h, 14, 15, TX_HISTORY_OK); /* at a floor */
	reads(h, n, 0, 7, 0);
	n = attempt(h, 16, 17, TX_HISTORY_OK);
	writes(h, n, 0, 'i', 7, 8, 300);
	writes(h, n, 2, 'i', 3, 4, 301);
	tx_history_final(h, 0, 8, true, 300);
	tx_history_final(h, 2, 4, true, 301);
	expect(h, NULL);
}

static void test_lost_update(void **state)
{
	struct tx_history *h = two_keys();
	uint32_t n;

	(void)state;
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	writes(h, n, 0, 'u', 1, 2, 200);
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	writes(h, n, 0, 'u', 1, 3, 201);
	expect(h, "does not follow");
}

static void test_same_version(void **state)
{
	struct tx_history *h = two_keys();
	uint32_t n;

	(void)state;
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	writes(h, n, 0, 'u', 1, 2, 200);
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	writes(h, n, 0, 'u', 1, 2, 201);
	expect(h, "both made");
}

static void test_write_skew(void **state)
{
	struct tx_history *h = two_keys();
	uint32_t n;

	(void)state;
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	reads(h, n, 0, 1, 100);
	writes(h, n, 1, 'u', 1, 2, 200);
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	reads(h, n, 1, 1, 101);
	writes(h, n, 0, 'u', 1, 2, 201);
	expect(h, "a cycle");
}

static void test_stale_read(void **state)
{
	struct tx_history *h = two_keys();
	uint32_t n;

	(void)state;
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	writes(h, n, 0, 'u', 1, 2, 200);
	n = attempt(h, 11, 12, TX_HISTORY_OK); /* serializable, but not strictly */
	reads(h, n, 0, 1, 100);
	expect(h, "a cycle");
}

static void test_aborted_write(void **state)
{
	struct tx_history *h = two_keys();
	uint32_t n;

	(void)state;
	n = attempt(h, 1, 10, TX_HISTORY_FAIL);
	writes(h, n, 0, 'u', 1, 2, 200);
	n = attempt(h, 1, 12, TX_HISTORY_FAIL); /* reads of failed attempts count, too */
	reads(h, n, 0, 2, 200);
	expect(h, "nobody wrote");
}

/* Seen in part: then it has committed, and all of it must be there. */
static void test_unknown(void **state)
{
	for (unsigned torn = 0; torn < 2; torn++) {
		struct tx_history *h = two_keys();
		uint32_t n = attempt(h, 1, TX_HISTORY_NEVER, TX_HISTORY_INFO);

		(void)state;
		writes(h, n, 0, 'u', 1, 2, 200);
		writes(h, n, 1, 'u', 1, 2, 201);
		n = attempt(h, 20, 21, TX_HISTORY_OK);
		reads(h, n, 0, 2, 200);
		n = attempt(h, 22, 23, TX_HISTORY_OK);
		reads(h, n, 1, torn ? 1 : 2, torn ? 101 : 201);
		expect(h, torn ? "a cycle" : NULL);
	}
}

static void test_presence(void **state)
{
	struct tx_history *h = two_keys();
	uint32_t n;

	(void)state;
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	writes(h, n, 0, 'i', 1, 2, 200);
	expect(h, "which was there");
	h = two_keys();
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	writes(h, n, 2, 'u', 0, 1, 200);
	expect(h, "which was not there");
}

static void test_final(void **state)
{
	struct tx_history *h = two_keys();
	uint32_t n;

	(void)state;
	n = attempt(h, 1, 10, TX_HISTORY_OK);
	writes(h, n, 0, 'u', 1, 2, 200);
	tx_history_final(h, 0, 2, true, 200);
	tx_history_final(h, 0, 1, true, 100); /* a backup that missed it */
	expect(h, "a replica has");
}

/* ---- random histories against all orders ---- */

#define MOST 5u

struct plan {
	unsigned n;
	uint64_t inv[MOST], ret[MOST];
	struct {
		uint32_t read, write; /* keys; KEYS: none */
		uint64_t read_version, prev, version;
	} tx[MOST];
};

/* Is there an order in which every transaction finds the versions that it says? */
static bool order_exists(const struct plan *p, unsigned done, uint64_t versions[KEYS])
{
	if (done == (1u << p->n) - 1)
		return true;
	for (unsigned i = 0; i < p->n; i++) {
		uint64_t after[KEYS];
		bool first = !(done & 1u << i);

		for (unsigned j = 0; j < p->n && first; j++)
			first = done & 1u << j || p->ret[j] >= p->inv[i] || j == i;
		if (!first ||
		    (p->tx[i].read < KEYS && versions[p->tx[i].read] != p->tx[i].read_version) ||
		    (p->tx[i].write < KEYS && versions[p->tx[i].write] != p->tx[i].prev))
			continue;
		memcpy(after, versions, sizeof(after));
		if (p->tx[i].write < KEYS)
			after[p->tx[i].write] = p->tx[i].version;
		if (order_exists(p, done | 1u << i, after))
			return true;
	}
	return false;
}

static void plan_draw(struct plan *p, uint64_t *rng)
{
	uint64_t newest[KEYS] = {1, 1, 1};

	p->n = 2 + unit_next(rng) % (MOST - 1);
	for (unsigned i = 0; i < p->n; i++) {
		p->inv[i] = unit_next(rng) % 12;
		p->ret[i] = p->inv[i] + 1 + unit_next(rng) % 8;
		p->tx[i].read = unit_next(rng) % (KEYS + 1);
		p->tx[i].write = unit_next(rng) % (KEYS + 1);
		if (p->tx[i].read < KEYS)
			p->tx[i].read_version = 1 + unit_next(rng) % newest[p->tx[i].read];
		if (p->tx[i].write == p->tx[i].read)
			p->tx[i].write = KEYS;
		if (p->tx[i].write < KEYS) {
			p->tx[i].prev = newest[p->tx[i].write]++;
			p->tx[i].version = newest[p->tx[i].write];
		}
	}
}

static void test_random(void **state)
{
	uint64_t rng = unit_seed();
	unsigned good = 0, bad = 0;

	(void)state;
	for (unsigned round = 0; round < 20000; round++) {
		struct tx_history *h = tx_history_create(KEYS);
		uint64_t versions[KEYS] = {1, 1, 1};
		struct plan p = {0};
		bool exists;

		plan_draw(&p, &rng);
		for (uint32_t k = 0; k < KEYS; k++)
			tx_history_init(h, k, 1, k * 100 + 1);
		for (unsigned i = 0; i < p.n; i++) {
			const uint32_t n = attempt(h, p.inv[i], p.ret[i], TX_HISTORY_OK);

			if (p.tx[i].read < KEYS)
				reads(h, n, p.tx[i].read, p.tx[i].read_version,
				      p.tx[i].read * 100 + p.tx[i].read_version);
			if (p.tx[i].write < KEYS)
				writes(h, n, p.tx[i].write, 'u', p.tx[i].prev, p.tx[i].version,
				       p.tx[i].write * 100 + p.tx[i].version);
		}
		exists = order_exists(&p, 0, versions);
		if (!tx_history_check(h) != exists)
			fail_msg("round %u: %s", round, tx_history_error(h));
		good += exists;
		bad += !exists;
		tx_history_destroy(h);
	}
	assert_true(good > 1000 && bad > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),	     cmocka_unit_test(test_lost_update),
		cmocka_unit_test(test_same_version), cmocka_unit_test(test_write_skew),
		cmocka_unit_test(test_stale_read),   cmocka_unit_test(test_aborted_write),
		cmocka_unit_test(test_unknown),	     cmocka_unit_test(test_presence),
		cmocka_unit_test(test_final),	     cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
