/* SPDX-License-Identifier: MIT */
/*
 * A store's client in another event loop: it sleeps while operations are outstanding and while
 * there are none, no wake-up is lost, and it finds a restarted server.
 */
#include "event_loop.h"
#include "kv_world.h"

#define WAVES	    150u
#define WAVES_SIM   40u
#define OPS_MAX	    40u
#define IDLE_US	    1000000u
#define IDLE_CPU_NS 5000000u
#define LOST_NS	    80000000u
#define LOST_SHARE  50u
#define PATIENCE    gn_deadline_us(UNIT_PATIENCE_US)

struct one {
	struct gn_kv_op op;
	uint32_t key, value, room;
	bool ended;
};

static void one_done(struct gn_kv_op *op)
{
	((struct one *)op->arg)->ended = true;
}

static int submit(struct gn_kv_client *client, struct one *o, enum gn_kv_verb verb, uint32_t key)
{
	*o = (struct one){.key = key, .value = key * 7 + 1};
	o->op.verb = verb;
	o->op.key = &o->key;
	o->op.key_len = sizeof(o->key);
	o->op.done = one_done;
	o->op.arg = o;
	o->op.deadline_ns = PATIENCE;
	if (verb == GN_KV_SET) {
		o->op.value = &o->value;
		o->op.value_len = sizeof(o->value);
	} else {
		o->op.room = &o->room;
		o->op.room_bytes = sizeof(o->room);
	}
	return gn_kv_submit(client, &o->op);
}

static int until_ended(struct gn_kv_client *client, struct nap *n, const struct one *ones,
		       unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		while (!ones[i].ended) {
			EXPECT(nap(n, PATIENCE) > 0);
			EXPECT(gn_kv_poll(client) >= 0);
		}
	return 0;
}

/*
 * Waves of operations on some keys, to all partitions; each is waited for through the source alone.
 */
static int waves(const struct kv_world *w, struct gn_kv_client *client, struct nap *n,
		 uint64_t *state)
{
	const unsigned rounds = w->simulated ? WAVES_SIM : WAVES;
	struct one ones[OPS_MAX];
	unsigned lost = 0;
	uint64_t most_ns = 0;

	for (unsigned i = 0; i < rounds; i++) {
		const unsigned count = 1 + unit_next(state) % (i % 3 ? 3 : OPS_MAX);
		const uint64_t begin_ns = gn_now_ns();
		uint64_t took_ns;

		for (unsigned k = 0; k < count; k++)
			EXPECT(submit(client, &ones[k],
				      unit_next(state) % 2 ? GN_KV_SET : GN_KV_GET,
				      unit_next(state) % 64) == 0);
		for (unsigned k = unit_next(state) % 3; k; k--)
			EXPECT(gn_kv_poll(client) >= 0);
		EXPECT(until_ended(client, n, ones, count) == 0);
		took_ns = gn_now_ns() - begin_ns;
		most_ns = took_ns > most_ns ? took_ns : most_ns;
		lost += took_ns > LOST_NS;
		for (unsigned k = 0; k < count; k++) {
			EXPECT(ones[k].op.status == GN_KV_OK ||
			       (ones[k].op.verb == GN_KV_GET && ones[k].op.status == GN_KV_MISS));
			EXPECT(ones[k].op.verb == GN_KV_SET || ones[k].op.status == GN_KV_MISS ||
			       ones[k].room == ones[k].value);
		}
		if (unit_next(state) % 2)
			gn_sleep_us(unit_next(state) % (i % 10 ? 100 : 3000));
	}
	print_message("# %u partitions: %llu us at most; %u lost\n", w->opts.threads,
		      (unsigned long long)most_ns / 1000, lost);
	EXPECT(lost <= (w->simulated ? 0 : rounds / LOST_SHARE));
	return 0;
}

static int idle(const struct kv_world *w, struct gn_kv_client *client, struct nap *n)
{
	const uint64_t end_ns = gn_deadline_us(IDLE_US);
	uint64_t spent_ns = nap_cpu_ns();

	while (gn_now_ns() < end_ns) {
		EXPECT(nap(n, end_ns) >= 0);
		EXPECT(gn_kv_poll(client) >= 0);
	}
	spent_ns = nap_cpu_ns() - spent_ns;
	if (w->simulated)
		return 0;
	print_message("# %u partitions: idle: %llu us of the processor in a second\n",
		      w->opts.threads, (unsigned long long)spent_ns / 1000);
	EXPECT(unit_slow() || spent_ns < IDLE_CPU_NS);
	return 0;
}

/* The server restarts while the client sleeps. */
static int server_back(struct kv_world *w, struct gn_kv_client *client, struct nap *n)
{
	struct one o;
	int rc;

	EXPECT(gn_kv_poll(client) == 0);
	EXPECT(nap(n, gn_deadline_us(1000)) >= 0);
	gn_kv_server_destroy(w->server);
	EXPECT(nap(n, PATIENCE) > 0 && gn_kv_poll(client) == 0);
	EXPECT(kv_server_up(w) == 0);
	while ((rc = submit(client, &o, GN_KV_SET, 1)) == -ENOTCONN || (!rc && !o.ended)) {
		EXPECT(nap(n, PATIENCE) > 0);
		EXPECT(gn_kv_poll(client) >= 0);
		if (!rc)
			EXPECT(until_ended(client, n, &o, 1) == 0);
		if (!rc && o.op.status == GN_KV_OK)
			break;
	}
	EXPECT(o.op.status == GN_KV_OK);
	return 0;
}

static int in_loop(struct kv_world *w, struct gn_fabric *fabric, unsigned number)
{
	const struct gn_kv_client_opts opts = {.size = sizeof(opts), .flags = GN_KV_RECONNECT};
	uint64_t state = gn_random();
	struct gn_kv_client *client;
	struct nap n;

	(void)number;
	EXPECT(!gn_kv_client_source(NULL) && !gn_kv_server_source(NULL));
	EXPECT(!gn_kv_server_source(w->server)); /* it has threads */
	EXPECT(gn_kv_client_open(fabric, w->addr, &opts, &client) == 0);
	nap_open(&n, w->simulated);
	EXPECT(nap_add(&n, gn_kv_client_source(client)) == 0);
	EXPECT(waves(w, client, &n, &state) == 0);
	EXPECT(idle(w, client, &n) == 0);
	if (!w->simulated) /* there a process cannot end another's server */
		EXPECT(server_back(w, client, &n) == 0);
	EXPECT(waves(w, client, &n, &state) == 0);
	nap_close(&n);
	EXPECT(gn_kv_client_close(client) == 0);
	return 0;
}

static void run(unsigned threads, bool bypass)
{
	struct kv_world w = {.program = in_loop, .clients = 1};

	w.opts.threads = threads;
	w.opts.bypass = bypass;
	kv_run_everywhere(&w);
}

static void test_one_partition(void **state)
{
	(void)state;
	run(1, false);
}

static void test_partitions(void **state)
{
	(void)state;
	run(3, false);
}

static void test_bypass(void **state)
{
	(void)state;
	run(2, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_partition),
		cmocka_unit_test(test_partitions),
		cmocka_unit_test(test_bypass),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
