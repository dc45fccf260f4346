/* SPDX-License-Identifier: MIT */
/*
 * Clients and polled servers in another event loop: they sleep while there is nothing to do, are
 * woken in time by whatever happens to them, and no wake-up is lost.
 */
#include <poll.h>

#include "event_loop.h"
#include "rpc_world.h"
#include "unit_sim_run.h"

#define ROUNDS	      200u
#define ROUNDS_SIM    60u
#define IDLE_US	      1000000u
#define IDLE_CPU_NS   5000000u	/* per second without anything to do */
#define LOST_NS	      80000000u /* no probe comes earlier: a wait this long was not woken */
#define LOST_SHARE    50u	/* one in so many, on a shared machine */
#define MEDIAN_NS     2500000u
#define MEDIAN_SIM_NS 100000u

/* ---- a server and a client that both sleep whenever they can ---- */

struct duo {
	const char *addr;
	bool simulated;
	enum gn_rpc_mode mode;
	uint64_t seed;
	unsigned up, stop; /* atomic */
	unsigned idle;	   /* atomic: the client is idle */
	uint64_t server_cpu_ns;
	int failed;
};

static unsigned load(const unsigned *what)
{
	return __atomic_load_n(what, __ATOMIC_ACQUIRE);
}

static void store(unsigned *what, unsigned to)
{
	__atomic_store_n(what, to, __ATOMIC_RELEASE);
}

static void spin_us(struct gn_rpc_request *request, void *arg)
{
	uint32_t us = 0, len;
	const void *data = gn_rpc_request_data(request, &len);
	uint64_t until_ns;

	(void)arg;
	memcpy(&us, data, len < sizeof(us) ? len : sizeof(us));
	until_ns = gn_now_ns() + us * 1000ull;
	while (gn_now_ns() < until_ns)
		gn_charge(GN_WORK_NS, 1000);
	gn_rpc_answer(request, GN_RPC_OK, data, len);
}

static int duo_server(struct duo *d, struct gn_fabric *fabric)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .flags = GN_RPC_POLLED};
	struct gn_rpc_server *server;
	uint64_t spent_ns = 0;
	unsigned idle = 0;
	struct nap n;

	EXPECT(gn_rpc_server_create(fabric, d->addr, &opts, &server) == 0);
	EXPECT(gn_rpc_server_handle(server, 1, spin_us, NULL) == 0);
	EXPECT(gn_rpc_server_start(server) == 0);
	nap_open(&n, d->simulated);
	EXPECT(nap_add(&n, gn_rpc_server_source(server)) == 0);
	store(&d->up, 1);
	while (!load(&d->stop)) {
		while (gn_rpc_server_poll(server) > 0)
			;
		EXPECT(nap(&n, gn_deadline_us(300000)) >= 0);
		if (load(&d->idle) != idle) {
			idle = load(&d->idle);
			spent_ns = nap_cpu_ns() - spent_ns;
		}
	}
	d->server_cpu_ns = spent_ns;
	nap_close(&n);
	gn_rpc_server_destroy(server);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* One call, waited for through the source alone: returns its time beyond the handler's. */
static int duo_call(struct gn_rpc_client *client, struct nap *n, uint64_t *state, uint64_t *ns)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	uint32_t us = unit_next(state) % 4 ? 0 : unit_next(state) % 200;
	struct async_call f = {.ended = 0};
	uint64_t begin_ns;

	flight_make(&f, 1, sizeof(us), us, deadline_ns);
	memcpy(f.request, &us, sizeof(us));
	begin_ns = gn_now_ns();
	EXPECT(gn_rpc_submit(client, &f.op) == 0);
	/* Anything may happen between the last poll and the sleep. */
	for (unsigned i = unit_next(state) % 3; i; i--)
		EXPECT(gn_rpc_poll(client) >= 0);
	while (!f.ended) {
		EXPECT(nap(n, deadline_ns) > 0);
		EXPECT(gn_rpc_poll(client) >= 0);
	}
	*ns = gn_now_ns() - begin_ns - us * 1000ull;
	EXPECT(f.op.status == GN_RPC_OK && f.op.result_len == sizeof(us));
	return 0;
}

static int duo_rounds(const struct duo *d, struct gn_rpc_client *client, struct nap *n)
{
	const unsigned rounds = d->simulated ? ROUNDS_SIM : ROUNDS;
	uint64_t late_ns[ROUNDS], state = d->seed;
	unsigned lost = 0;

	for (unsigned i = 0; i < rounds; i++) {
		EXPECT(duo_call(client, n, &state, &late_ns[i]) == 0);
		lost += late_ns[i] > LOST_NS;
		if (unit_next(&state) % 2)
			gn_sleep_us(unit_next(&state) % (i % 10 ? 100 : 3000));
	}
	qsort(late_ns, rounds, sizeof(late_ns[0]), by_value);
	print_message("# mode %d: %llu us at the median, %llu us at most; %u lost\n", d->mode,
		      (unsigned long long)late_ns[rounds / 2] / 1000,
		      (unsigned long long)late_ns[rounds - 1] / 1000, lost);
	EXPECT(lost <= (d->simulated ? 0 : rounds / LOST_SHARE));
	EXPECT(unit_slow() || late_ns[rounds / 2] < (d->simulated ? MEDIAN_SIM_NS : MEDIAN_NS));
	return 0;
}

/* Nothing happens for a second: neither side does anything. */
static int duo_idle(struct duo *d, struct gn_rpc_client *client, struct nap *n)
{
	const uint64_t end_ns = gn_deadline_us(IDLE_US), sleeps = n->sleeps;
	uint64_t spent_ns;

	store(&d->idle, 1);
	spent_ns = nap_cpu_ns();
	while (gn_now_ns() < end_ns) {
		EXPECT(nap(n, end_ns) >= 0);
		EXPECT(gn_rpc_poll(client) >= 0);
	}
	spent_ns = nap_cpu_ns() - spent_ns;
	store(&d->idle, 2);
	if (d->simulated)
		return 0;
	print_message(
		"# mode %d: an idle client: %llu us of the processor in a second, %llu sleeps\n",
		d->mode, (unsigned long long)spent_ns / 1000,
		(unsigned long long)(n->sleeps - sleeps));
	EXPECT(unit_slow() || spent_ns < IDLE_CPU_NS);
	return 0;
}

static int duo_client(struct duo *d, struct gn_fabric *fabric)
{
	const struct gn_rpc_client_opts opts = in_mode(d->mode);
	struct gn_rpc_client *client;
	struct nap n;

	EXPECT(gn_rpc_client_open(fabric, d->addr, &opts, &client) == 0);
	nap_open(&n, d->simulated);
	EXPECT(nap_add(&n, gn_rpc_client_source(client)) == 0);
	EXPECT(duo_rounds(d, client, &n) == 0);
	EXPECT(duo_idle(d, client, &n) == 0);
	EXPECT(duo_rounds(d, client, &n) == 0);
	EXPECT(n.sleeps > 0);
	nap_close(&n);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static void duo_thread(void *arg)
{
	struct duo *d = arg;
	struct gn_fabric *fabric;

	d->failed = gn_fabric_open(given_addr() ? "verbs" : "shm", &fabric);
	if (!d->failed)
		d->failed = duo_server(d, fabric);
	store(&d->up, 1);
	if (!d->failed)
		gn_fabric_close(fabric);
}

static int duo_sim_server(struct gn_env *env, int argc, char **argv)
{
	struct duo *d = env->arg;
	struct gn_fabric *fabric;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	EXPECT(duo_server(d, fabric) == 0);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static int duo_sim_client(struct gn_env *env, int argc, char **argv)
{
	struct duo *d = env->arg;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	while (!load(&d->up))
		gn_sleep_us(20);
	rc = duo_client(d, fabric);
	store(&d->stop, 1);
	EXPECT(rc || gn_fabric_close(fabric) == 0);
	return rc;
}

static void duo_shm(enum gn_rpc_mode mode, uint64_t seed)
{
	struct duo d = {.mode = mode, .seed = seed};
	struct gn_thread *thread;
	struct gn_fabric *fabric;
	char addr[64];

	snprintf(addr, sizeof(addr), "shm:test-source-%llx", (unsigned long long)gn_random());
	d.addr = given_addr() ? given_addr() : addr;
	assert_int_equal(gn_fabric_open(given_addr() ? "verbs" : "shm", &fabric), 0);
	assert_int_equal(gn_thread_start("server", duo_thread, &d, &thread), 0);
	while (!load(&d.up))
		gn_sleep_us(20);
	assert_int_equal(d.failed, 0);
	assert_int_equal(duo_client(&d, fabric), 0);
	store(&d.stop, 1);
	assert_int_equal(gn_thread_join(thread), 0);
	assert_int_equal(d.failed, 0);
	print_message("# mode %d: an idle server: %llu us of the processor in a second\n", mode,
		      (unsigned long long)d.server_cpu_ns / 1000);
	assert_true(unit_slow() || d.server_cpu_ns < IDLE_CPU_NS);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

static void duo_sim(enum gn_rpc_mode mode, const char *profile, uint64_t caps_off, uint64_t seed)
{
	struct duo d = {.mode = mode, .seed = seed, .simulated = true, .addr = SIM_ADDR};
	const struct sim_run run = {.profile = profile,
				    .caps_off = caps_off,
				    .seed = seed,
				    .limit_ns = 60000000000u,
				    .server = duo_sim_server,
				    .client = duo_sim_client,
				    .clients = 1,
				    .arg = &d};

	sim_run(&run);
}

static void test_both_asleep(void **state)
{
	const uint64_t seed = unit_seed();

	(void)state;
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		duo_shm(mode, seed);
		if (THREADS_WATCHED || given_addr())
			continue;
		duo_sim(mode, "ideal", 0, seed);
		duo_sim(mode, "cx3", SIM_CAPS, seed + 1);
	}
}

/* ---- other wake-ups of a client ---- */

static int until_ended(struct nap *n, struct gn_rpc_client *client, const struct async_call *f)
{
	while (!f->ended) {
		EXPECT(nap(n, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
		EXPECT(gn_rpc_poll(client) >= 0);
	}
	return 0;
}

/* Nothing happens for 20 ms; a timer that was set before may end one sleep. */
static int stays_asleep(struct nap *n, struct gn_rpc_client *client)
{
	const uint64_t deadline_ns = gn_deadline_us(20000);
	unsigned woken = 0;

	while (gn_now_ns() < deadline_ns) {
		const int rc = nap(n, deadline_ns);

		EXPECT(rc >= 0 && gn_rpc_poll(client) == 0);
		woken += rc > 0;
	}
	EXPECT(woken <= 1);
	return 0;
}

static int wakes_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;
	struct async_call lock, late, more;
	uint64_t begin_ns, sleeps;
	struct nap n;

	opts.batch.entries = 8;
	opts.batch.wait_us = 20000;
	EXPECT(gn_rpc_client_open_begin(fabric, w->addr, &opts, &client) == 0);
	nap_open(&n, w->simulated);
	EXPECT(nap_add(&n, gn_rpc_client_source(client)) == 0);
	while (gn_rpc_client_open_wait(client, GN_NO_WAIT) == -EAGAIN)
		EXPECT(nap(&n, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
	/* A batch that is not flushed. */
	begin_ns = gn_now_ns();
	EXPECT(submit_echo(client, &more, ECHO, 0) == 0);
	EXPECT(until_ended(&n, client, &more) == 0 && async_call_check(&more) == 0);
	EXPECT(gn_now_ns() - begin_ns >= 20000000);
	EXPECT(!w->simulated || gn_now_ns() - begin_ns < 21000000);
	/* A result, while a batch is open. */
	begin_ns = gn_now_ns();
	EXPECT(submit_echo(client, &lock, LATER, 0) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	EXPECT(submit_echo(client, &more, ECHO, 0) == 0);
	EXPECT(until_ended(&n, client, &lock) == 0 && async_call_check(&lock) == 0);
	EXPECT(!w->simulated || (!more.ended && gn_now_ns() - begin_ns < 10000000));
	EXPECT(until_ended(&n, client, &more) == 0 && async_call_check(&more) == 0);
	/* A deadline, while another call is outstanding. */
	shut(&w->service, true);
	EXPECT(submit_echo(client, &lock, LATER, 0) == 0);
	EXPECT(submit_echo(client, &late, LATER, gn_deadline_us(40000)) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	begin_ns = gn_now_ns();
	sleeps = n.sleeps;
	EXPECT(until_ended(&n, client, &late) == 0);
	EXPECT(late.op.status == GN_RPC_TIMEOUT && n.sleeps > sleeps);
	EXPECT(!w->simulated || gn_now_ns() - begin_ns < 41000000);
	/* A fast call beside a slow one. */
	EXPECT(submit_echo(client, &more, ECHO, 0) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	EXPECT(until_ended(&n, client, &more) == 0 && async_call_check(&more) == 0);
	EXPECT(!lock.ended);
	/* A disconnect, while a call is outstanding and without one. */
	EXPECT(world_restart(w) == 0);
	EXPECT(until_ended(&n, client, &lock) == 0);
	EXPECT(lock.op.status == GN_RPC_PEER_GONE || lock.op.status == GN_RPC_OK);
	while (gn_rpc_flush(client) != -ENOTCONN) { /* it was answered before the end */
		EXPECT(nap(&n, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
		EXPECT(gn_rpc_poll(client) == 0);
	}
	/* Nothing happens any more, and no wake-up comes. */
	EXPECT(stays_asleep(&n, client) == 0);
	/* The same fd, after another connection. */
	EXPECT(gn_rpc_reconnect(client) == 0);
	EXPECT(submit_echo(client, &more, ECHO, 0) == 0);
	EXPECT(until_ended(&n, client, &more) == 0 && async_call_check(&more) == 0);
	nap_close(&n);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* The result of a sent call wakes a client also while a batch is open. */
static int wakes_beside_batch(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	struct gn_rpc_client_opts opts = in_mode(mode);
	struct gn_rpc_client *client;
	struct async_call sent, gathered;
	uint64_t begin_ns;
	struct nap n;

	opts.batch.entries = 8;
	opts.batch.wait_us = 4000000;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	nap_open(&n, w->simulated);
	EXPECT(nap_add(&n, gn_rpc_client_source(client)) == 0);
	shut(&w->service, true);
	EXPECT(submit_echo(client, &sent, LATER, 0) == 0);
	EXPECT(gn_rpc_flush(client) == 0);
	EXPECT(submit_echo(client, &gathered, LATER, 0) == 0);
	EXPECT(gn_rpc_poll(client) == 0);
	EXPECT(nap(&n, gn_deadline_us(20000)) >= 0);
	shut(&w->service, false);
	begin_ns = gn_now_ns();
	EXPECT(until_ended(&n, client, &sent) == 0 && async_call_check(&sent) == 0);
	EXPECT(gn_now_ns() - begin_ns < 2000000000u && !gathered.ended);
	EXPECT(gn_rpc_flush(client) == 0);
	EXPECT(until_ended(&n, client, &gathered) == 0 && async_call_check(&gathered) == 0);
	nap_close(&n);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int wakes(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		EXPECT(wakes_in(w, fabric, mode) == 0);
		EXPECT(wakes_beside_batch(w, fabric, mode) == 0);
	}
	return 0;
}

/* An idle client that sleeps detects the disconnect with its next poll. */
static int detects_disconnect(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct gn_rpc_client *client;
	struct async_call f;
	struct nap n;

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	nap_open(&n, w->simulated);
	EXPECT(nap_add(&n, gn_rpc_client_source(client)) == 0);
	EXPECT(gn_rpc_poll(client) == 0);
	EXPECT(nap(&n, gn_deadline_us(1000)) >= 0);
	EXPECT(world_restart(w) == 0);
	do {
		EXPECT(nap(&n, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
		EXPECT(gn_rpc_poll(client) == 0);
	} while (submit_echo(client, &f, ECHO, gn_deadline_us(1000)) == 0);
	nap_close(&n);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- misuse ---- */

static struct gn_source *misused;
static int misused_rc[2];

static void misuse_in_done(struct gn_rpc_op *op)
{
	(void)op;
	misused_rc[0] = gn_source_arm(misused);
}

static void misuse_in_thread(void *arg)
{
	(void)arg;
	misused_rc[1] = gn_source_arm(misused);
}

/* Polls first, as gn_source_arm() may ask for. */
static int arm_polled(struct gn_rpc_client *client)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	int rc = gn_source_arm(misused);

	while (rc == -EAGAIN && gn_now_ns() < deadline_ns) {
		gn_rpc_poll(client);
		rc = gn_source_arm(misused);
	}
	return rc;
}

static int misuse(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct gn_rpc_client *client;
	struct gn_thread *thread;
	struct gn_wait_item item;
	struct gn_queue *queue;
	struct async_call f;
	int fd;

	EXPECT(!gn_rpc_client_source(NULL) && !gn_rpc_server_source(NULL));
	EXPECT(!gn_rpc_server_source(w->service.server)); /* it has threads */
	EXPECT(gn_source_fd(NULL) == -EINVAL && gn_source_arm(NULL) == -EINVAL);
	gn_source_disarm(NULL);
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	misused = gn_rpc_client_source(client);
	EXPECT(gn_source_arm(misused) == -EINVAL);
	if (w->simulated) {
		EXPECT(gn_source_fd(misused) == -EOPNOTSUPP);
		return gn_rpc_client_close(client);
	}
	fd = gn_source_fd(misused);
	EXPECT(fd >= 0 && gn_source_fd(misused) == fd);
	flight_make(&f, ECHO, 8, 1, 0);
	f.op.done = misuse_in_done;
	EXPECT(gn_rpc_call_all(client, &f.op, 1) == 0);
	EXPECT(misused_rc[0] == -EDEADLK);
	EXPECT(gn_thread_start("other", misuse_in_thread, NULL, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(misused_rc[1] == -EPERM);
	/* Disarmed when it is not armed; waited for, called and released when it is. */
	gn_source_disarm(misused);
	gn_source_disarm(misused);
	item = gn_wait_on(misused);
	EXPECT(arm_polled(client) == 0);
	EXPECT(gn_wait(&item, 1, gn_deadline_us(1000), "nothing") == -ETIMEDOUT);
	EXPECT(arm_polled(client) == 0 && call_echo(client, ECHO, 20, 1) == 0);
	EXPECT(arm_polled(client) == 0 && gn_rpc_client_release(client) == 0);
	EXPECT(gn_source_arm(misused) == -EPERM && strstr(gn_error(), "adopt"));
	EXPECT(gn_rpc_client_adopt(client) == 0);
	/* Another connection, with the same fd. */
	EXPECT(arm_polled(client) == 0 && gn_rpc_reconnect(client) == 0);
	EXPECT(gn_source_fd(misused) == fd);
	for (unsigned i = 0; i < 3; i++) {
		struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

		EXPECT(submit_echo(client, &f, LATER, 0) == 0 && gn_rpc_flush(client) == 0);
		while (!f.ended) {
			const int rc = gn_source_arm(misused);

			EXPECT(rc == 0 || rc == -EAGAIN);
			EXPECT(rc || poll(&poll_fd, 1, UNIT_PATIENCE_US / 1000) == 1);
			EXPECT(gn_rpc_poll(client) >= 0);
		}
		EXPECT(async_call_check(&f) == 0);
	}
	/* Armed twice, and closed while armed. */
	EXPECT(gn_source_arm(misused) == 0 && gn_source_arm(misused) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	/* Other sources have an fd as well. */
	EXPECT(gn_queue_create(4, &queue) == 0);
	EXPECT(gn_source_fd(gn_queue_source(queue)) >= 0);
	EXPECT(gn_source_arm(gn_queue_source(queue)) == 0);
	EXPECT(gn_queue_push(queue, queue) == 0);
	EXPECT(gn_source_arm(gn_queue_source(queue)) == -EAGAIN);
	gn_queue_destroy(queue);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_asleep),
		RPC_TEST(test_wakes, wakes, NULL, 1),
		RPC_TEST(test_detects_disconnect, detects_disconnect, NULL, 1),
		RPC_TEST(test_misuse, misuse, NULL, 1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
