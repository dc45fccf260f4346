/* SPDX-License-Identifier: MIT */
/* Clients of a store whose server ends or does not respond, and what may be called from done. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kv/wire.h"
#include "unit.h"

#define LONG_US	 10000000u
#define SHORT_US 20000u
#define LARGE	 65536u /* more than a slot holds */

static const struct gn_kv_client_opts reconnects = {.size = sizeof(reconnects),
						    .flags = GN_KV_RECONNECT};

struct world {
	struct gn_fabric *fabric;
	char addr[64];
	struct gn_kv_server_opts opts;
	struct gn_kv_server *server;
	struct gn_kv_client *client;
	struct gn_thread *thread; /* polls a server without threads */
	bool stop, pause, paused; /* atomic */
	unsigned came;
	unsigned ended;
};

static void server_up(struct world *w)
{
	w->opts.size = sizeof(w->opts);
	assert_int_equal(gn_kv_server_create(w->fabric, w->addr, &w->opts, &w->server), 0);
	assert_int_equal(gn_kv_server_start(w->server), 0);
}

static void world_up(struct world *w)
{
	snprintf(w->addr, sizeof(w->addr), "shm:test-kv-life-%llx",
		 (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &w->fabric), 0);
	if (!(w->opts.rpc.flags & GN_RPC_POLLED))
		server_up(w);
}

static void world_open(struct world *w, const struct gn_kv_client_opts *opts)
{
	world_up(w);
	assert_int_equal(gn_kv_client_open(w->fabric, w->addr, opts, &w->client), 0);
}

static void world_down(struct world *w)
{
	gn_kv_server_destroy(w->server);
	assert_int_equal(gn_fabric_close(w->fabric), 0);
}

static void restart(struct world *w)
{
	gn_kv_server_destroy(w->server);
	server_up(w);
}

/* ---- calls within done ---- */

static void forbidden(struct gn_kv_op *op)
{
	struct world *w = op->arg;
	struct gn_kv_op other = {.verb = GN_KV_GET, .key = "x", .key_len = 1};
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	w->ended++;
	assert_int_equal(gn_kv_client_close(w->client), -EDEADLK);
	assert_int_equal(gn_kv_do(w->client, &other, 1, GN_FOREVER), -EDEADLK);
	assert_int_equal(gn_kv_poll(w->client), -EDEADLK);
	assert_int_equal(gn_kv_wait(w->client, GN_FOREVER), -EDEADLK);
	assert_int_equal(gn_kv_clear(w->client, 0, GN_FOREVER), -EDEADLK);
	assert_int_equal(gn_kv_client_stats(w->client, GN_KV_ALL, &stats, GN_FOREVER), -EDEADLK);
}

static struct gn_kv_op an_op(struct world *w, enum gn_kv_verb verb)
{
	return (struct gn_kv_op){.verb = verb,
				 .key = "key",
				 .key_len = 3,
				 .value = verb == GN_KV_SET ? "value" : NULL,
				 .value_len = verb == GN_KV_SET ? 5 : 0,
				 .done = forbidden,
				 .arg = w};
}

/* From a poll, from another call that waits, from a close, and after a disconnect. */
static void within_done(bool bypass)
{
	struct world w = {.opts = {.bypass = bypass}};
	struct gn_kv_op set, get;
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	world_open(&w, &reconnects);
	set = an_op(&w, GN_KV_SET);
	assert_int_equal(gn_kv_submit(w.client, &set), 0);
	while (!w.ended)
		gn_kv_wait(w.client, GN_FOREVER);
	assert_int_equal(set.status, GN_KV_OK);
	set = an_op(&w, GN_KV_SET);
	assert_int_equal(gn_kv_submit(w.client, &set), 0);
	assert_int_equal(gn_kv_flush(w.client), 0);
	while (w.ended < 2)
		assert_int_equal(gn_kv_client_stats(w.client, GN_KV_ALL, &stats, GN_FOREVER), 0);
	set = an_op(&w, GN_KV_SET);
	get = an_op(&w, GN_KV_GET);
	gn_kv_server_destroy(w.server);
	w.server = NULL;
	assert_int_equal(gn_kv_submit(w.client, &set), 0);
	gn_kv_submit(w.client, &get);
	while (gn_kv_wait(w.client, GN_FOREVER) > 0)
		;
	assert_int_equal(set.status, GN_KV_GONE);
	server_up(&w);
	set = an_op(&w, GN_KV_SET);
	while (gn_kv_submit(w.client, &set)) {
		gn_sleep_us(1000);
		gn_kv_poll(w.client); /* reconnects */
	}
	w.ended = 0;
	assert_int_equal(gn_kv_client_close(w.client), 0);
	assert_int_equal(w.ended, 1);
	assert_int_equal(set.status, GN_KV_GONE);
	world_down(&w);
}

static void test_within_done(void **state)
{
	(void)state;
	within_done(false);
	within_done(true);
}

/* ---- a completed operation belongs to its caller ---- */

static void free_it(struct gn_kv_op *op)
{
	struct world *w = op->arg;

	w->ended++;
	free(op);
}

static void owned(bool bypass)
{
	struct world w = {.opts = {.bypass = bypass}};
	const struct gn_kv_client_opts opts = {
		.size = sizeof(opts), .flags = GN_KV_RECONNECT, .gather = 1};
	unsigned begun = 0;

	world_open(&w, &opts);
	for (unsigned i = 0; i < 40; i++) {
		struct gn_kv_op *op = malloc(sizeof(*op));

		assert_non_null(op);
		*op = an_op(&w, i % 4 == 3 ? GN_KV_GET : GN_KV_SET);
		op->done = free_it;
		if (i == 4) {
			gn_kv_server_destroy(w.server);
			w.server = NULL;
		}
		if (gn_kv_submit(w.client, op))
			free(op);
		else
			begun++;
	}
	assert_int_equal(gn_kv_client_close(w.client), 0);
	assert_int_equal(w.ended, begun);
	world_down(&w);
}

static void test_owned(void **state)
{
	(void)state;
	owned(false);
	owned(true);
}

/* ---- a server that does not respond ---- */

static void poll_server(void *arg)
{
	struct world *w = arg;

	server_up(w);
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		if (__atomic_load_n(&w->pause, __ATOMIC_ACQUIRE)) {
			__atomic_store_n(&w->paused, true, __ATOMIC_RELEASE);
			gn_sleep_us(100);
		} else {
			gn_rpc_server_poll(gn_kv_server_rpc(w->server));
		}
	}
	gn_kv_server_destroy(w->server);
	w->server = NULL;
}

/* The server answers nothing more, including requests that it was about to answer. */
static void pause_server(struct world *w)
{
	__atomic_store_n(&w->paused, false, __ATOMIC_RELAXED);
	__atomic_store_n(&w->pause, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&w->paused, __ATOMIC_ACQUIRE))
		gn_sleep_us(100);
}

static void count_it(struct gn_kv_op *op)
{
	struct world *w = op->arg;

	w->ended++;
}

/* An operation queued behind a large one that is not answered also completes at its deadline. */
static void late(bool bypass)
{
	struct world w = {.opts = {.bypass = bypass, .rpc.flags = GN_RPC_POLLED}};
	static uint8_t value[LARGE];
	struct gn_kv_op large, small;
	uint64_t begin_ns;

	world_up(&w);
	assert_int_equal(gn_thread_start("server", poll_server, &w, &w.thread), 0);
	while (gn_kv_client_open(w.fabric, w.addr, &reconnects, &w.client))
		gn_sleep_us(1000);
	pause_server(&w);
	large = an_op(&w, GN_KV_SET);
	large.value = value;
	large.value_len = LARGE;
	large.done = count_it;
	small = an_op(&w, GN_KV_SET);
	assert_int_equal(gn_kv_submit(w.client, &large), 0);
	assert_int_equal(gn_kv_flush(w.client), 0);
	begin_ns = gn_now_ns();
	assert_int_equal(gn_kv_do(w.client, &small, 1, gn_deadline_us(SHORT_US)), 0);
	assert_int_equal(small.status, GN_KV_TIMEOUT);
	assert_true(gn_now_ns() - begin_ns < LONG_US * 1000ull);
	__atomic_store_n(&w.pause, false, __ATOMIC_RELEASE);
	while (!w.ended)
		gn_kv_wait(w.client, GN_FOREVER);
	assert_int_equal(large.status, GN_KV_OK);
	assert_int_equal(gn_kv_client_close(w.client), 0);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
	gn_thread_join(w.thread);
	world_down(&w);
}

static void test_late(void **state)
{
	(void)state;
	late(false);
	late(true);
}

#define MORE 3000u /* operations, than a connection can have outstanding */

struct more {
	struct world w;
	struct gn_kv_op ops[MORE];
	uint64_t numbers[GN_KV_STATUSES];
	uint64_t last;
	bool in_order;
};

static void note_number(struct gn_kv_op *op)
{
	struct more *m = op->arg;

	m->numbers[op->status]++;
	m->w.ended++;
	if (op->status == GN_KV_OK) {
		m->in_order &= op->number == m->last + 1;
		m->last = op->number;
	}
}

static void submit_more(struct more *m, uint64_t deadline_ns)
{
	m->w.ended = 0;
	m->in_order = true;
	memset(m->numbers, 0, sizeof(m->numbers));
	for (unsigned i = 0; i < MORE; i++) {
		m->ops[i] = (struct gn_kv_op){.verb = GN_KV_INCR,
					      .how = GN_KV_CREATE,
					      .initial = 1,
					      .number = 1,
					      .key = "n",
					      .key_len = 1,
					      .deadline_ns = deadline_ns,
					      .done = note_number,
					      .arg = m};
		assert_int_equal(gn_kv_submit(m->w.client, &m->ops[i]), 0);
	}
	while (m->w.ended < MORE)
		assert_true(gn_kv_wait(m->w.client, gn_deadline_us(LONG_US)) > 0);
}

/*
 * Operations without a free slot are queued, executed in order, and completed by their deadlines.
 */
static void test_more_than_fit(void **state)
{
	struct more *m = calloc(1, sizeof(*m));
	struct world *w = &m->w;

	(void)state;
	assert_non_null(m);
	w->opts.rpc.flags = GN_RPC_POLLED;
	world_up(w);
	assert_int_equal(gn_thread_start("server", poll_server, w, &w->thread), 0);
	while (gn_kv_client_open(w->fabric, w->addr, &reconnects, &w->client))
		gn_sleep_us(1000);
	submit_more(m, GN_FOREVER);
	assert_int_equal(m->numbers[GN_KV_OK], MORE);
	assert_true(m->in_order);
	assert_int_equal(m->last, MORE);
	pause_server(w);
	submit_more(m, gn_deadline_us(SHORT_US));
	assert_int_equal(m->numbers[GN_KV_TIMEOUT], MORE);
	__atomic_store_n(&w->pause, false, __ATOMIC_RELEASE);
	/* Those that were queued were not sent any more, and the others have expired. */
	assert_int_equal(gn_kv_del(w->client, "n", 1, gn_deadline_us(LONG_US)), 0);
	m->last = 0;
	submit_more(m, GN_FOREVER);
	assert_int_equal(m->numbers[GN_KV_OK], MORE);
	assert_true(m->in_order);
	assert_int_equal(gn_kv_client_close(w->client), 0);
	__atomic_store_n(&w->stop, true, __ATOMIC_RELEASE);
	gn_thread_join(w->thread);
	world_down(w);
	free(m);
}

/* ---- control requests ---- */

#define CONTROLS 100u /* more than a connection has slots */

static void control_ended(struct gn_kv_control *k)
{
	struct world *w = k->arg;

	w->ended++;
	assert_int_equal(gn_kv_client_close(w->client), -EDEADLK);
}

/* Submits many, and waits until all have completed; each with that error. */
static void controls(struct world *w, enum gn_kv_control_verb verb, uint64_t us, int error)
{
	static struct gn_kv_control k[CONTROLS];
	const uint64_t begin_ns = gn_now_ns();

	w->ended = 0;
	for (unsigned i = 0; i < CONTROLS; i++) {
		k[i] = (struct gn_kv_control){.verb = verb,
					      .deadline_ns = gn_deadline_us(us),
					      .done = control_ended,
					      .arg = w};
		assert_int_equal(gn_kv_control_submit(w->client, &k[i]), 0);
	}
	while (w->ended < CONTROLS)
		assert_true(gn_kv_wait(w->client, gn_deadline_us(LONG_US)) > 0);
	assert_int_equal(w->ended, CONTROLS);
	assert_true(gn_now_ns() - begin_ns < LONG_US * 1000ull);
	for (unsigned i = 0; i < CONTROLS; i++) {
		assert_int_equal(k[i].error, error);
		if (verb == GN_KV_CONTROL_STATS && !error)
			assert_int_equal(k[i].stats.items, 2);
	}
}

static void test_controls(void **state)
{
	struct world w = {.opts = {.threads = 2}};
	struct gn_kv_control bad = {.verb = GN_KV_CONTROL_STATS};
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	(void)state;
	world_open(&w, &reconnects);
	assert_int_equal(gn_kv_control_submit(w.client, NULL), -EINVAL);
	assert_int_equal(gn_kv_control_submit(w.client, &bad), -EINVAL);
	assert_int_equal(gn_kv_set(w.client, "a", 1, "b", 1, 0, gn_deadline_us(LONG_US)), 0);
	assert_int_equal(gn_kv_set(w.client, "b", 1, "b", 1, 0, gn_deadline_us(LONG_US)), 0);
	controls(&w, GN_KV_CONTROL_STATS, LONG_US, 0);
	controls(&w, GN_KV_CONTROL_CLEAR, LONG_US, 0);
	assert_int_equal(gn_kv_client_stats(w.client, GN_KV_ALL, &stats, gn_deadline_us(LONG_US)),
			 0);
	assert_int_equal(stats.items, 0);
	gn_kv_server_destroy(w.server);
	w.server = NULL;
	controls(&w, GN_KV_CONTROL_STATS, LONG_US, -ENOTCONN);
	bad.done = control_ended;
	assert_int_equal(gn_kv_control_submit(w.client, &bad), -ENOTCONN);
	assert_int_equal(gn_kv_client_close(w.client), 0);
	world_down(&w);
}

/* Of a server that hangs: each completes by its deadline, and the client works afterwards. */
static void test_controls_late(void **state)
{
	struct world w = {.opts = {.rpc.flags = GN_RPC_POLLED}};

	(void)state;
	world_up(&w);
	assert_int_equal(gn_thread_start("server", poll_server, &w, &w.thread), 0);
	while (gn_kv_client_open(w.fabric, w.addr, &reconnects, &w.client))
		gn_sleep_us(1000);
	pause_server(&w);
	controls(&w, GN_KV_CONTROL_CLEAR, SHORT_US, -ETIMEDOUT);
	__atomic_store_n(&w.pause, false, __ATOMIC_RELEASE);
	/* Abandoned calls occupy all slots until they are answered. */
	controls(&w, GN_KV_CONTROL_CLEAR, LONG_US, 0);
	assert_int_equal(gn_kv_set(w.client, "a", 1, "b", 1, 0, gn_deadline_us(LONG_US)), 0);
	assert_int_equal(gn_kv_client_close(w.client), 0);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
	gn_thread_join(w.thread);
	world_down(&w);
}

/* A request queued behind others, which have all slots and more time, completes by its deadline. */
static void test_control_behind(void **state)
{
	static struct gn_kv_control k[CONTROLS];
	struct world w = {.opts = {.rpc.flags = GN_RPC_POLLED}};

	(void)state;
	world_up(&w);
	assert_int_equal(gn_thread_start("server", poll_server, &w, &w.thread), 0);
	while (gn_kv_client_open(w.fabric, w.addr, &reconnects, &w.client))
		gn_sleep_us(1000);
	pause_server(&w);
	for (unsigned i = 0; i < CONTROLS; i++) {
		const bool last = i == CONTROLS - 1;

		k[i] = (struct gn_kv_control){.verb = GN_KV_CONTROL_STATS,
					      .deadline_ns = last ? gn_deadline_us(SHORT_US) : 0,
					      .done = control_ended,
					      .arg = &w};
		assert_int_equal(gn_kv_control_submit(w.client, &k[i]), 0);
	}
	assert_int_equal(gn_kv_wait(w.client, gn_deadline_us(LONG_US)), 1);
	assert_int_equal(k[CONTROLS - 1].error, -ETIMEDOUT);
	__atomic_store_n(&w.pause, false, __ATOMIC_RELEASE);
	while (w.ended < CONTROLS)
		assert_true(gn_kv_wait(w.client, gn_deadline_us(LONG_US)) > 0);
	for (unsigned i = 0; i < CONTROLS - 1; i++)
		assert_int_equal(k[i].error, 0);
	assert_int_equal(gn_kv_client_close(w.client), 0);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
	gn_thread_join(w.thread);
	world_down(&w);
}

/* ---- another server ---- */

static void restart_at_second(void *arg, uint64_t client, bool came)
{
	struct world *w = arg;

	(void)client;
	w->came += came;
	if (came && w->came == 2)
		restart(w);
}

/* A client is never connected to partitions of two servers. */
static void test_two_servers(void **state)
{
	struct world w = {.opts = {.threads = 3}};
	const struct gn_kv_client_opts opts = {.size = sizeof(opts),
					       .flags = GN_KV_RECONNECT,
					       .rpc = {.peer = restart_at_second, .peer_arg = &w}};

	(void)state;
	world_up(&w);
	assert_int_not_equal(gn_kv_client_open(w.fabric, w.addr, &opts, &w.client), 0);
	assert_int_equal(gn_kv_client_open(w.fabric, w.addr, &opts, &w.client), 0);
	assert_int_equal(gn_kv_set(w.client, "a", 1, "b", 1, 0, gn_deadline_us(LONG_US)), 0);
	assert_int_equal(gn_kv_client_close(w.client), 0);
	world_down(&w);
}

/* Any call after a restart finds the new server. */
static void test_restart(void **state)
{
	struct world w = {.opts = {.threads = 2}};
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	(void)state;
	world_open(&w, &reconnects);
	assert_int_equal(gn_kv_set(w.client, "a", 1, "b", 1, 0, gn_deadline_us(LONG_US)), 0);
	restart(&w);
	memset(&stats, 0x55, sizeof(stats));
	stats.size = sizeof(stats);
	if (gn_kv_client_stats(w.client, GN_KV_ALL, &stats, gn_deadline_us(LONG_US)))
		assert_int_equal(stats.items, 0x5555555555555555); /* untouched */
	assert_int_equal(gn_kv_client_stats(w.client, GN_KV_ALL, &stats, gn_deadline_us(LONG_US)),
			 0);
	assert_int_equal(stats.items, 0);
	assert_int_equal(gn_kv_client_close(w.client), 0);
	world_down(&w);
}

/* Invalid arguments and too large ones are distinguished. */
static void test_arguments(void **state)
{
	static uint8_t value[GN_KV_VALUE_MAX + 1];
	struct world w = {0};
	uint32_t len;
	struct gn_kv_op op;

	(void)state;
	world_open(&w, &reconnects);
	assert_int_equal(gn_kv_set(w.client, "a", 1, value, sizeof(value), 0, GN_FOREVER), -EFBIG);
	assert_int_equal(gn_kv_set(w.client, "a", 1, NULL, 1, 0, GN_FOREVER), -EINVAL);
	assert_int_equal(gn_kv_get(w.client, "a", 1, NULL, 1, NULL, GN_FOREVER), -EINVAL);
	assert_int_equal(gn_kv_set(w.client, "a", 1, value, 4, 0, GN_FOREVER), 0);
	/* A buffer cannot be this large, but may be announced. */
	assert_int_equal(gn_kv_get(w.client, "a", 1, value, UINT32_MAX, &len, GN_FOREVER), 0);
	assert_int_equal(len, 4);
	op = (struct gn_kv_op){.verb = GN_KV_GET,
			       .key = "a",
			       .key_len = 1,
			       .room = value,
			       .room_bytes = UINT32_MAX - 8};
	assert_int_equal(gn_kv_do(w.client, &op, 1, GN_FOREVER), 0);
	assert_int_equal(op.status, GN_KV_OK);
	assert_int_equal(gn_kv_client_close(w.client), 0);
	world_down(&w);
}

/* A server that reports a value must send it. */
static void test_value_missing(void **state)
{
	const struct kv_response head = {.status = GN_KV_OK, .len = 1000};
	char room[8];
	struct gn_kv_op op = {.verb = GN_KV_GET, .room = room, .room_bytes = sizeof(room)};

	(void)state;
	assert_false(kv_response_read((const uint8_t *)&head, sizeof(head), &op));
	op.how = GN_KV_NO_VALUE;
	assert_true(kv_response_read((const uint8_t *)&head, sizeof(head), &op));
}

/* Without GN_KV_RECONNECT a disconnected client does not connect again. */
static void test_no_reconnect(void **state)
{
	struct world w = {.opts = {.threads = 2}};
	struct gn_kv_op op = {.verb = GN_KV_GET, .key = "a", .key_len = 1};
	struct gn_kv_counters count = {.size = sizeof(count)};
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	(void)state;
	world_open(&w, NULL);
	restart(&w);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(gn_kv_do(w.client, &op, 1, gn_deadline_us(LONG_US)), 0);
		assert_int_equal(op.status, GN_KV_GONE);
	}
	assert_int_equal(gn_kv_submit(w.client, &op), -ENOTCONN);
	assert_int_equal(gn_kv_clear(w.client, 0, gn_deadline_us(LONG_US)), -ENOTCONN);
	assert_int_equal(gn_kv_client_stats(w.client, GN_KV_ALL, &stats, gn_deadline_us(LONG_US)),
			 -ENOTCONN);
	assert_int_equal(gn_kv_client_counters(w.client, &count), 0);
	assert_int_equal(count.reconnects, 0);
	assert_int_equal(gn_kv_client_close(w.client), 0);
	world_down(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_within_done),    cmocka_unit_test(test_owned),
		cmocka_unit_test(test_late),	       cmocka_unit_test(test_two_servers),
		cmocka_unit_test(test_restart),	       cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_value_missing),    cmocka_unit_test(test_more_than_fit),
		cmocka_unit_test(test_controls),       cmocka_unit_test(test_controls_late),
		cmocka_unit_test(test_control_behind), cmocka_unit_test(test_no_reconnect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
