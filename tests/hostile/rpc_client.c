/* SPDX-License-Identifier: MIT */
/*
 * Hostile clients: they connect like RPC clients, and then write anything to any memory that they
 * can. Beside them an honest client calls, on the same server thread, and must get its own results,
 * in time, each time. In the end the server has nothing left of disconnected clients, and does
 * nothing when all are idle.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "rpc_evil.h"

#define EVILS	 3u
#define STALL_NS (unit_slow() ? 5000000000u : 1000000000u)

/* ---- the honest client ---- */

/* What the hostile clients have done so far. */
struct sums {
	unsigned lives, requests, answered;
	unsigned groups, in_groups; /* groups that reached their handler, and calls in them */
};

static unsigned groups, in_groups; /* atomic */

static struct sums sum_up(const struct evil *evils)
{
	struct sums sums = {0};

	for (unsigned i = 0; i < EVILS; i++) {
		sums.lives += __atomic_load_n(&evils[i].lives, __ATOMIC_RELAXED);
		sums.requests += __atomic_load_n(&evils[i].requests, __ATOMIC_RELAXED);
		sums.answered += __atomic_load_n(&evils[i].answered, __ATOMIC_RELAXED);
	}
	sums.groups = __atomic_load_n(&groups, __ATOMIC_RELAXED);
	sums.in_groups = __atomic_load_n(&in_groups, __ATOMIC_RELAXED);
	return sums;
}

static bool is_enough(struct sums sums, unsigned calls)
{
	return calls > 100 && sums.lives > 5 && sums.answered > 20 && sums.groups > 20 &&
	       sums.in_groups > sums.groups + 20;
}

#define BATCH 24u

/* A group of its own, whose calls have their own results. */
static int honest_batch(struct gn_rpc_client *client, uint32_t seed)
{
	struct async_call f[BATCH];
	struct gn_rpc_op *ops[BATCH];

	for (unsigned i = 0; i < BATCH; i++) {
		flight_make(&f[i], i % 5 ? GROUP_ECHO : GROUP_ECHO_TOO, (seed + i) % 50, seed + i,
			    gn_deadline_us(UNIT_PATIENCE_US));
		ops[i] = &f[i].op;
		while (gn_rpc_submit(client, ops[i]) == -EAGAIN)
			EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	}
	EXPECT(wait_all(client, f, BATCH) == 0);
	for (unsigned i = 0; i < BATCH; i++)
		EXPECT(async_call_check(&f[i]) == 0);
	return 0;
}

/* Until end_ns; beside hostile clients, which may be NULL, until enough has been done. */
static int honest_calls(struct world *w, const struct evil *evils, uint64_t end_ns, unsigned *calls)
{
	const uint64_t deadline_ns = end_ns + UNIT_PATIENCE_US * 1000ull;
	struct gn_rpc_client *clients[GN_RPC_MODES];
	uint64_t slowest_ns = 0;

	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		struct gn_rpc_client_opts opts = in_mode(mode);

		opts.batch.entries = 16;
		EXPECT(gn_rpc_client_open(w->fabric, w->addr, &opts, &clients[mode]) == 0);
	}
	while (gn_now_ns() < end_ns || (evils && !is_enough(sum_up(evils), *calls))) {
		const uint64_t begin_ns = gn_now_ns();

		EXPECT(begin_ns < deadline_ns);
		EXPECT(call_echo(clients[*calls % 3],
				 *calls % 11 == 0 ? LATER :
				 *calls % 2	  ? ECHO :
						    GROUP_ECHO,
				 *calls % 700, *calls) == 0);
		if (*calls % 16 == 0)
			EXPECT(honest_batch(clients[*calls % 3], *calls) == 0);
		if (gn_now_ns() - begin_ns > slowest_ns)
			slowest_ns = gn_now_ns() - begin_ns;
		if (!(++*calls % 1000))
			gn_sleep_us(3000);
	}
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++)
		EXPECT(gn_rpc_client_close(clients[mode]) == 0);
	print_message("# the honest client: %u calls, the slowest took %.1f ms\n", *calls,
		      (double)slowest_ns * 1e-6);
	EXPECT(slowest_ns < STALL_NS);
	return 0;
}

static unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static uint64_t cpu_ns(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000u;
}

/* Handlers may return what a request asks for, but not gigabytes of it. */
static void blob_of_64k(struct gn_rpc_request *request, void *arg)
{
	static const uint8_t bytes[65536];
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);
	struct two want = {0};

	(void)arg;
	memcpy(&want, data, len < sizeof(want) ? len : sizeof(want));
	gn_rpc_answer(request, GN_RPC_OK, bytes, want.bytes % sizeof(bytes));
}

static void group_echo(struct gn_rpc_group *group, void *arg)
{
	const unsigned n = gn_rpc_group_size(group);

	(void)arg;
	for (unsigned i = 0; i < n; i++) {
		uint32_t len;
		const void *data = gn_rpc_group_data(group, i, &len);
		void *to = gn_rpc_group_room(group, i, len);

		if (!to) /* answered already */
			continue;
		memcpy(to, data, len);
		gn_rpc_group_answer(group, i, GN_RPC_OK, to, len);
	}
}

/* Everything that a handler may do, and some that it must not: the request decides. */
static void group_any(struct gn_rpc_group *group, void *arg)
{
	struct service *s = arg;
	const unsigned n = gn_rpc_group_size(group);

	__atomic_fetch_add(&groups, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&in_groups, n, __ATOMIC_RELAXED);
	for (unsigned k = 0; k < n; k++) {
		const unsigned i = n - 1 - k; /* in any order */
		uint32_t len, sum = 0;
		const uint8_t *data = gn_rpc_group_data(group, i, &len);
		uint8_t *to;

		for (uint32_t b = 0; b < len; b++)
			sum += data[b];
		switch (sum % 7) {
		case 0:
			to = gn_rpc_group_put(group, i, GN_RPC_OK, len);
			if (to)
				memset(to, 1, len);
			break;
		case 1:
			to = gn_rpc_group_room(group, i, sum);
			if (to)
				memset(to, 2, sum);
			gn_rpc_group_answer(group, i, GN_RPC_OK, to, to ? sum : 0);
			break;
		case 2:
			__atomic_fetch_add(&s->lent, 1, __ATOMIC_RELAXED);
			gn_rpc_group_answer_mem(group, i, GN_RPC_OK, s->mem, sum % 64, sum,
						mem_released, s);
			break;
		case 3: /* twice, and one that does not exist */
			gn_rpc_group_answer(group, i, GN_RPC_OK, data, len);
			gn_rpc_group_answer(group, i, GN_RPC_OK, data, len);
			gn_rpc_group_answer(group, i + sum, GN_RPC_OK, NULL, 0);
			break;
		case 4: /* larger than a slot, and not used */
			gn_rpc_group_room(group, i, 20000 + sum);
			break;
		case 5:
			break;
		default:
			gn_rpc_group_answer(group, i, sum, data, len);
		}
	}
}

static int start(struct world *w, const char *addr)
{
	struct service *s = &w->service;

	gn_mutex_init(&s->lock);
	EXPECT(gn_fabric_open("shm", &w->fabric) == 0);
	EXPECT(gn_mem_alloc(w->fabric, MEM_BYTES, GN_REMOTE_READ, &s->mem) == 0);
	w->addr = addr;
	w->opts = (struct gn_rpc_server_opts){
		.size = sizeof(struct gn_rpc_server_opts), .peer = service_peer, .peer_arg = s};
	EXPECT(gn_rpc_server_create(w->fabric, addr, &w->opts, &s->server) == 0);
	EXPECT(gn_rpc_server_handle(s->server, ECHO, echo, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, LATER, put_aside, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, ROOM_LATER, room_later, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, SUM, sum, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, BLOB, blob_of_64k, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, WATCH, watch_caller, s) == 0);
	EXPECT(gn_rpc_server_handle_group(s->server, GROUP_ECHO, group_echo, s, GN_RPC_ORDERED) ==
	       0);
	EXPECT(gn_rpc_server_handle_group(s->server, GROUP_ECHO_TOO, group_echo, s, 0) == 0);
	EXPECT(gn_rpc_server_handle_group(s->server, GROUP_ANY, group_any, s, 0) == 0);
	EXPECT(gn_rpc_server_handle_group(s->server, GROUP_ANY_TOO, group_any, s, GN_RPC_ORDERED) ==
	       0);
	EXPECT(gn_rpc_server_start(s->server) == 0);
	EXPECT(gn_thread_start("answerer", answer_later, s, &s->answerer) == 0);
	return 0;
}

static int finish(struct world *w)
{
	struct service *s = &w->service;

	gn_rpc_server_destroy(s->server);
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	EXPECT(gn_thread_join(s->answerer) == 0);
	gn_mutex_fini(&s->lock);
	EXPECT(s->came == s->went);
	EXPECT(s->lent == s->released && !__atomic_load_n(&s->watching, __ATOMIC_ACQUIRE));
	EXPECT(gn_mem_free(s->mem) == 0);
	EXPECT(gn_fabric_close(w->fabric) == 0);
	return 0;
}

static int clients_are(struct gn_rpc_server *server, uint64_t n)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_rpc_counters count = {.size = sizeof(count)};

	do {
		EXPECT(gn_rpc_server_counters(server, &count) == 0);
		EXPECT(gn_now_ns() < deadline_ns);
		gn_sleep_us(1000);
	} while (count.clients != n);
	return 0;
}

static void test_hostile_clients(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct evil *evils = calloc(EVILS, sizeof(*evils));
	struct gn_thread *threads[EVILS];
	unsigned calls = 0, fds;
	const uint64_t end_ns = fuzz_begin() + fuzz_us() * 2000;
	bool stop = false;
	struct sums sums;
	char addr[64];
	int rc;

	(void)state;
	assert_true(w && evils);
	gn_log_to(fuzz_be_silent, NULL);
	snprintf(addr, sizeof(addr), "shm:hostile-rpc-%llx", (unsigned long long)gn_random());
	assert_int_equal(start(w, addr), 0);
	fds = open_fds();
	for (unsigned i = 0; i < EVILS; i++) {
		evils[i] = (struct evil){.addr = addr,
					 .fabric = w->fabric,
					 .seed = (uint64_t)fuzz_any() << 8 | (i + 1),
					 .stop = &stop};
		assert_int_equal(gn_thread_start("evil", evil_main, &evils[i], &threads[i]), 0);
	}
	rc = honest_calls(w, evils, end_ns, &calls);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < EVILS; i++) {
		assert_int_equal(gn_thread_join(threads[i]), 0);
		assert_int_equal(evils[i].failed, 0);
	}
	assert_int_equal(rc, 0);
	sums = sum_up(evils);
	print_message("# the others: %u lives, %u requests, %u results; %u groups of %u calls\n",
		      sums.lives, sums.requests, sums.answered, sums.groups, sums.in_groups);
	assert_true(is_enough(sums, calls));
	/* Their resources are free again, and later clients are served. */
	assert_int_equal(clients_are(w->service.server, 0), 0);
	gn_sleep_us(200000);
	/*
	 * The service may have one open meanwhile; a thread opens two more when it first waits for
	 * a client's receive.
	 */
	assert_true(open_fds() <= fds + 3);
	calls = 0;
	assert_int_equal(honest_calls(w, NULL, gn_deadline_us(100000), &calls), 0);
	assert_int_equal(finish(w), 0);
	gn_log_to(NULL, NULL);
	free(evils);
	free(w);
}

/* ---- idle clients ---- */

/* Left behind: half a message, results that are not fetched, memory that is not read. */
static void leave_half(struct evil *e)
{
	struct rpc_seal seal = {.seq = rpc_seq(e->welcome.epoch, 1), .len = 64, .aux = 1};

	rpc_seal(e->buf, &seal);
	write_at(e, 0, rpc_stride(e->welcome.max_request), 48, e->welcome.request_key);
}

static void leave_results(struct evil *e, uint16_t method, uint32_t entries)
{
	const struct two want = {5000, 0};

	for (uint32_t n = 1; n <= e->welcome.slots; n++) {
		const uint64_t to =
			(n & (e->welcome.slots - 1)) * rpc_stride(e->welcome.max_request);
		struct rpc_seal seal = {.seq = rpc_seq(e->welcome.epoch, n),
					.nonce = e->hello.nonce,
					.len = entries * 16,
					.aux = (uint16_t)entries};
		const struct rpc_entry entry = {.len = sizeof(want), .code = method};

		for (uint32_t i = 0; i < entries; i++) {
			memcpy(e->buf + 24 + i * 16, &entry, sizeof(entry));
			memcpy(e->buf + 32 + i * 16, &want, sizeof(want));
		}
		write_at(e, 0, to, (uint32_t)rpc_seal(e->buf, &seal), e->welcome.request_key);
	}
}

/* Share of one core, over half a second without any work. */
static double idle_share(void)
{
	const uint64_t cpu = cpu_ns(), ns = gn_now_ns();

	gn_sleep_us(500000);
	return (double)(cpu_ns() - cpu) / (double)(gn_now_ns() - ns);
}

static void test_silence(void **state)
{
	static const char *const what[] = {"nobody", "half a message", "results", "memory"};
	struct world *w = calloc(1, sizeof(*w));
	unsigned calls = 0;
	char addr[64];

	(void)state;
	assert_non_null(w);
	gn_log_to(fuzz_be_silent, NULL);
	snprintf(addr, sizeof(addr), "shm:hostile-rpc-%llx", (unsigned long long)gn_random());
	assert_int_equal(start(w, addr), 0);
	for (unsigned k = 0; k < 4; k++) {
		struct evil e = {.addr = addr, .fabric = w->fabric};
		double share;

		assert_int_equal(gn_ctx_create(e.fabric, &e.ep.ctx), 0);
		do { /* until it has drawn a hello that is accepted */
			evil_end(&e);
			assert_int_equal(evil_begin(&e), 0);
		} while (!e.up || e.welcome.slots < 2 || e.welcome.max_request < 512 ||
			 e.welcome.max_result < 64 || e.welcome.window < 16);
		if (k == 1)
			leave_half(&e);
		if (k == 2)
			leave_results(&e, ECHO, 16 / e.welcome.slots + 1);
		if (k == 3)
			leave_results(&e, BLOB, 1);
		gn_sleep_us(1200000);	 /* LINK_PROBE_NS has passed */
		shut(&w->service, true); /* then it sleeps longer */
		share = idle_share();
		shut(&w->service, false);
		print_message("# left behind: %s; %.1f %% of a core\n", what[k], share * 100);
		if (!unit_slow())
			assert_true(share < 0.1);
		assert_int_equal(honest_calls(w, NULL, gn_deadline_us(50000), &calls), 0);
		evil_end(&e);
		assert_int_equal(gn_ctx_destroy(e.ep.ctx), 0);
	}
	assert_int_equal(finish(w), 0);
	gn_log_to(NULL, NULL);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile_clients),
		cmocka_unit_test(test_silence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
