/* SPDX-License-Identifier: MIT */
/*
 * Configurations: whatever joins, is removed or has been filled, full replicas are only members that
 * were full before or have been filled, none is lost needlessly, and load is balanced in the end.
 */
#include <errno.h>
#include <string.h>

#include "tx/config.h"
#include "unit.h"

#define PARTITIONS 60u

static struct tx_config config_first(uint32_t replicas, uint32_t min_members)
{
	return (struct tx_config){.hash_seed = 5,
				  .threads = 2,
				  .n_partitions = PARTITIONS,
				  .replicas = replicas,
				  .min_members = min_members,
				  .next_id = 1};
}

static void config_join(struct tx_config *config, uint32_t n)
{
	static struct tx_member joined[TX_MEMBERS_MAX];
	static struct tx_config next;
	const struct tx_change change = {.joined = joined, .n_joined = n, .manager = 1};

	for (uint32_t i = 0; i < n; i++) {
		joined[i] = (struct tx_member){.incarnation = config->number * 1000 + i + 1};
		snprintf(joined[i].addr, sizeof(joined[i].addr), "shm:n%llu-%u",
			 (unsigned long long)config->number, i);
	}
	tx_config_next(config, &change, 1, &next);
	*config = next;
}

static bool holds_full(const struct tx_config *config, uint32_t partition, uint32_t id)
{
	const struct tx_partition_map *map = &config->map[partition];

	for (uint32_t i = 0; i < map->n; i++)
		if (config->members[map->holder[i].member].id == id)
			return map->holder[i].full;
	return false;
}

static bool filled_in(const struct tx_change *change, uint32_t partition, uint32_t id)
{
	for (uint32_t i = 0; i < change->n_filled; i++)
		if (change->filled[i].partition == partition && change->filled[i].member == id)
			return true;
	return false;
}

/* No replica is full that has not the data, and a partition is lost only with its last one. */
static void check_next(const struct tx_config *old, const struct tx_change *change,
		       const struct tx_config *next)
{
	static uint8_t bytes[1 << 20];
	static struct tx_config again;
	const uint32_t len = tx_config_bytes(next);

	assert_int_equal(next->number, old->number + 1);
	for (uint32_t p = 0; p < PARTITIONS; p++) {
		const struct tx_partition_map *map = &next->map[p];
		uint32_t stay = 0;

		for (uint32_t i = 0; i < map->n; i++) {
			const uint32_t id = next->members[map->holder[i].member].id;

			assert_true(!i || !map->holder[i].full || map->holder[i - 1].full);
			if (map->holder[i].full)
				assert_true(holds_full(old, p, id) || filled_in(change, p, id));
			for (uint32_t j = 0; j < i; j++)
				assert_int_not_equal(map->holder[i].member, map->holder[j].member);
		}
		for (uint32_t i = 0; i < old->n_members; i++)
			stay += tx_config_member(next, old->members[i].id) >= 0 &&
				(holds_full(old, p, old->members[i].id) ||
				 filled_in(change, p, old->members[i].id));
		assert_int_equal(map->lost, !stay);
		assert_int_equal(tx_config_primary(next, p) >= 0, stay != 0);
		if (stay)
			assert_in_range(map->n,
					next->n_members < next->replicas ? next->n_members :
									   next->replicas,
					next->replicas + 1);
	}
	tx_config_encode(next, bytes);
	assert_int_equal(tx_config_decode(bytes, len, &again), 0);
	assert_memory_equal(next->map, again.map, sizeof(again.map));
	assert_memory_equal(next->members, again.members,
			    next->n_members * sizeof(struct tx_member));
}

static void test_place(void **state)
{
	static struct tx_config c;

	(void)state;
	c = config_first(3, 3);
	config_join(&c, 1);
	config_join(&c, 1);
	assert_int_equal(tx_config_primary(&c, 0), -ENOENT);
	config_join(&c, 2);
	assert_int_equal(c.number, 3);
	for (uint32_t p = 0; p < PARTITIONS; p++) {
		assert_int_equal(c.map[p].n, 3);
		assert_true(c.map[p].holder[2].full);
	}
}

/* Everything that fills becomes full, until nothing changes. */
static uint32_t settle(struct tx_config *config)
{
	static struct tx_filled filled[PARTITIONS * TX_HOLDERS_MAX];
	static struct tx_config next;
	uint32_t rounds = 0;

	for (;; rounds++) {
		struct tx_change change = {.filled = filled, .manager = config->manager};

		assert_true(rounds < 100);
		for (uint32_t p = 0; p < PARTITIONS; p++)
			for (uint32_t i = 0; i < config->map[p].n; i++)
				if (!config->map[p].holder[i].full)
					filled[change.n_filled++] = (struct tx_filled){
						(uint16_t)p,
						config->members[config->map[p].holder[i].member]
							.id};
		if (!change.n_filled)
			return rounds;
		tx_config_next(config, &change, 1, &next);
		check_next(config, &change, &next);
		*config = next;
	}
}

static void check_balance(const struct tx_config *c)
{
	uint32_t held[TX_MEMBERS_MAX] = {0}, primary[TX_MEMBERS_MAX] = {0};

	for (uint32_t p = 0; p < PARTITIONS; p++)
		for (uint32_t i = 0; i < c->map[p].n; i++) {
			held[c->map[p].holder[i].member]++;
			primary[c->map[p].holder[i].member] += i == 0;
		}
	for (uint32_t i = 0; i < c->n_members; i++)
		for (uint32_t j = 0; j < c->n_members; j++) {
			assert_true(held[i] <= held[j] + 2);
			assert_true(primary[i] <= primary[j] + PARTITIONS / 6);
		}
}

static void test_balance(void **state)
{
	static struct tx_config c;

	(void)state;
	for (uint32_t n = 3; n < 9; n++) {
		c = config_first(3, 3);
		config_join(&c, 3);
		config_join(&c, n);
		settle(&c);
		check_balance(&c);
	}
}

static void test_random(void **state)
{
	static struct tx_config c, next;
	uint64_t rng = unit_seed();

	(void)state;
	c = config_first(3, 3);
	config_join(&c, 5);
	for (unsigned round = 0; round < 3000; round++) {
		static struct tx_filled filled[PARTITIONS];
		static struct tx_member joined[2];
		struct tx_change change = {.filled = filled, .joined = joined};
		uint32_t removed[2];

		change.removed = removed;
		change.n_removed = c.n_members > 3 ? unit_next(&rng) % 3 : 0;
		for (uint32_t i = 0; i < change.n_removed; i++)
			removed[i] = c.members[unit_next(&rng) % c.n_members].id;
		change.n_joined = c.n_members < 9 ? unit_next(&rng) % 2 : 0;
		joined[0] = (struct tx_member){.incarnation = round + 1, .addr = "shm:x"};
		for (uint32_t p = 0; p < PARTITIONS; p++) {
			const struct tx_partition_map *map = &c.map[p];
			const struct tx_holder *last = map->n ? &map->holder[map->n - 1] : NULL;

			if (last && !last->full && unit_next(&rng) % 2)
				filled[change.n_filled++] =
					(struct tx_filled){(uint16_t)p, c.members[last->member].id};
		}
		tx_config_next(&c, &change, round, &next);
		check_next(&c, &change, &next);
		c = next;
		if (round % 50 == 49) {
			settle(&c);
			c = config_first(3, 3); /* most partitions are lost by now */
			config_join(&c, 5);
		}
	}
}

/* Any change of a byte is found; bytes that a hostile store could invent are refused. */
static void test_decode(void **state)
{
	static uint8_t bytes[1 << 20];
	static struct tx_config c, out;
	uint32_t len;

	(void)state;
	c = config_first(2, 2);
	config_join(&c, 3);
	len = tx_config_bytes(&c);
	tx_config_encode(&c, bytes);
	assert_int_equal(tx_config_decode(bytes, len, &out), 0);
	for (uint32_t i = 0; i < len; i++) {
		bytes[i] ^= 1;
		assert_int_equal(tx_config_decode(bytes, len, &out), -EPROTO);
		bytes[i] ^= 1;
	}
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(tx_config_decode(bytes, i, &out), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_place),
		cmocka_unit_test(test_balance),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_decode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
