/* SPDX-License-Identifier: MIT */
/*
 * A client of a store reconnects after the network was down, before its server has noticed: the
 * server executes nothing of the earlier connections. And functions that must not wait do not,
 * whatever the state of the server.
 */
#include "kv_world.h"
#include "unit_sim.h"

#define PARTITIONS 3u
#define DOWN	   "partition@5ms+15ms:n0|n1" /* longer than a card retries */

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
	opts.rpc.timeout_us = 3000; /* it retries soon, before the server probes idle clients */
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

/* ---- submit and poll do not wait ---- */

#define AT_MOST_NS 1000000u
#define OPS	   300u
#define UNTIL_NS   900000000u
#define OP_US	   40000u

struct user {
	struct gn_kv_client *client;
	struct gn_kv_op ops[OPS];
	bool busy[OPS];
	unsigned ended[GN_KV_STATUSES], under_way;
	uint64_t last_ok_ns;
};

static void note(struct gn_kv_op *op)
{
	struct user *u = op->arg;

	u->busy[op - u->ops] = false;
	u->ended[op->status]++;
	u->under_way--;
	if (op->status == GN_KV_OK)
		u->last_ok_ns = gn_now_ns();
}

/* Submits what it can: 0, or -ENOTCONN. */
static int submit_some(struct user *u, unsigned most)
{
	for (unsigned i = 0; i < OPS && most; i++) {
		const uint64_t begin_ns = gn_now_ns();
		int rc;

		if (u->busy[i])
			continue;
		u->ops[i] = (struct gn_kv_op){.verb = GN_KV_SET,
					      .key = &u->ops[i].arg,
					      .key_len = sizeof(u->ops[i].arg),
					      .deadline_ns = gn_deadline_us(OP_US),
					      .done = note,
					      .arg = u};
		u->busy[i] = true;
		u->under_way++;
		rc = gn_kv_submit(u->client, &u->ops[i]);
		EXPECT(gn_now_ns() - begin_ns <= AT_MOST_NS);
		if (rc) {
			EXPECT(rc == -ENOTCONN);
			u->busy[i] = false;
			u->under_way--;
			return rc;
		}
		most--;
	}
	return 0;
}

static int never_waits(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	struct gn_kv_client_opts opts = {
		.size = sizeof(opts), .flags = GN_KV_RECONNECT, .gather = 2, .rpc.slots = 2};
	const uint64_t end_ns = gn_now_ns() + UNTIL_NS;
	struct gn_kv_counters count = {.size = sizeof(count)};
	struct user *u = gn_alloc(sizeof(*u), 0);
	unsigned refused = 0;

	(void)number;
	EXPECT(u && gn_kv_client_open(fabric, w->addr, &opts, &u->client) == 0);
	/* More than there are slots for. */
	EXPECT(submit_some(u, OPS) == 0);
	while (gn_now_ns() < end_ns) {
		const uint64_t begin_ns = gn_now_ns();

		EXPECT(gn_kv_poll(u->client) >= 0);
		EXPECT(gn_now_ns() - begin_ns <= AT_MOST_NS);
		refused += submit_some(u, 3) == -ENOTCONN;
		gn_sleep_us(1000);
	}
	while (u->under_way)
		EXPECT(gn_kv_wait(u->client, GN_FOREVER) > 0);
	EXPECT(gn_kv_client_counters(u->client, &count) == 0);
	print_message("# ok %u, gone %u, late %u, refused %u, reconnects %llu\n",
		      u->ended[GN_KV_OK], u->ended[GN_KV_GONE], u->ended[GN_KV_TIMEOUT], refused,
		      (unsigned long long)count.reconnects);
	/* It noticed, and reconnected. */
	EXPECT(refused && count.reconnects && u->ended[GN_KV_OK] > OPS);
	EXPECT(u->last_ok_ns + 100000000u >= end_ns);
	EXPECT(gn_kv_client_close(u->client) == 0);
	gn_free(u);
	return 0;
}

static void test_never_waits(void **state)
{
	struct kv_world w = {.opts = {.threads = PARTITIONS},
			     .program = never_waits,
			     .clients = 1,
			     .faults = "partition@50ms+400ms:n0|n1"};

	(void)state;
	kv_simulate(&w, "ideal", 0, 1);
	kv_simulate(&w, "cx3", SIM_CAPS, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_connects_again, sim_setup, sim_teardown),
		cmocka_unit_test_setup_teardown(test_never_waits, sim_setup, sim_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
