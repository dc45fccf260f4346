/* SPDX-License-Identifier: MIT */
/*
 * A client of a store connects again after the network was down. Its server has not noticed; but it
 * serves nothing of the earlier connections any more.
 */
#include "kv_world.h"
#include "unit_sim.h"

#define PARTITIONS 3u
#define DOWN	   "partition@5ms+15ms:n0|n1" /* longer than a card tries again */

static int set(struct gn_kv_client *client, uint32_t key, enum gn_kv_status *status)
{
	struct gn_kv_op op = {.verb = GN_KV_SET, .key = &key, .key_len = sizeof(key)};

	EXPECT(gn_kv_do(client, &op, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 0);
	*status = op.status;
	return 0;
}

static int connects_again(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	struct gn_kv_client_opts opts = {.size = sizeof(opts), .flags = GN_KV_RECONNECT};
	struct gn_kv_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	enum gn_kv_status status;

	(void)number;
	opts.rpc.timeout_us = 3000; /* it tries again soon, before the server asks silent clients */
	EXPECT(gn_kv_client_open(fabric, w->addr, &opts, &client) == 0);
	EXPECT(set(client, 1, &status) == 0 && status == GN_KV_OK);
	gn_sleep_us(6000);
	EXPECT(set(client, 1, &status) == 0 && status == GN_KV_GONE);
	EXPECT(set(client, 1, &status) == 0 && status == GN_KV_OK);
	EXPECT(gn_rpc_server_counters(gn_kv_server_rpc(w->server), &count) == 0);
	if (count.clients != PARTITIONS)
		print_message("# the server has %llu connections\n",
			      (unsigned long long)count.clients);
	EXPECT(count.clients == PARTITIONS);
	EXPECT(gn_kv_client_close(client) == 0);
	return 0;
}

static void test_connects_again(void **state)
{
	struct kv_world w = {.opts = {.threads = PARTITIONS},
			     .program = connects_again,
			     .clients = 1,
			     .faults = DOWN};

	(void)state;
	kv_simulate(&w, "ideal", 0, 1);
	kv_simulate(&w, "cx3", SIM_CAPS, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_connects_again, sim_setup, sim_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
