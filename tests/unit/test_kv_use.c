/* SPDX-License-Identifier: MIT */
/* Which uses of an item a store records: the order of evictions, and when a GET writes nothing. */
#include <string.h>

#include "../sim/sim_kv_lru.h"
#include "kv/store.h"
#include "unit_sim.h"

#define SECOND_US 1000000u

static void test_lru(void **state)
{
	const uint64_t seed = unit_seed();
	uint64_t evicted = 0;
	char why[256];

	(void)state;
	for (unsigned i = 0; i < (unit_slow() ? 4 : 20); i++)
		if (!kv_lru_check(seed + i, &evicted, why, sizeof(why)))
			fail_msg("seed %llu: %s", (unsigned long long)seed + i, why);
	print_message("# %llu made room\n", (unsigned long long)evicted);
	assert_true(evicted > 1000);
}

/* ---- what a GET writes ---- */

#define CLEAN_KEYS 2000u

static int get_all(struct gn_kv_store *s, uint32_t first, uint32_t n)
{
	for (uint32_t k = first; k < first + n; k++) {
		struct gn_kv_op op = {.verb = GN_KV_GET, .key = &k, .key_len = sizeof(k)};

		gn_kv_store_do(s, &op, 1);
		EXPECT(op.status == GN_KV_OK);
	}
	return 0;
}

/* Nothing, while memory is not short and the last recorded use is recent. */
PROGRAM(clean_gets)
{
	const struct gn_kv_store_opts opts = {.size = sizeof(opts), .memory = 1u << 20};
	uint8_t *before = gn_alloc(opts.memory, 0);
	struct gn_kv_store *s;

	(void)env;
	EXPECT(before && gn_kv_store_create(&opts, &s) == 0);
	for (uint32_t k = 0; k < CLEAN_KEYS; k++) {
		struct gn_kv_op op = {.verb = GN_KV_SET, .key = &k, .key_len = sizeof(k)};

		gn_kv_store_do(s, &op, 1);
	}
	EXPECT(get_all(s, 0, CLEAN_KEYS) == 0);
	memcpy(before, s->base, opts.memory);
	for (unsigned second = 0; second <= KV_USE_S; second++) {
		EXPECT(get_all(s, 0, CLEAN_KEYS) == 0);
		EXPECT(!memcmp(before, s->base, opts.memory));
		gn_sleep_us(SECOND_US);
	}
	EXPECT(get_all(s, 7, 1) == 0);
	EXPECT(memcmp(before, s->base, opts.memory));
	gn_kv_store_destroy(s);
	gn_free(before);
	return 0;
}

static void test_clean_gets(void **state)
{
	(void)state;
	sim_run_alone(clean_gets, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lru),
		SIM_TEST(test_clean_gets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
