/* SPDX-License-Identifier: MIT */
/*
 * Faults of whole nodes: what a crash, a pause, slowness, a partition, a drifting clock and
 * lack of memory do to the programs there.
 */
#include <errno.h>

#include "base/memory.h"
#include "gannet/fabric.h"
#include "sim/nodes.h"
#include "unit_sim.h"

/* ---- crash ---- */

/* What is on disk, one would say: it survives. */
struct disk {
	struct gn_sim *sim;
	int starts, steps;
	uint64_t started_ns;
	struct gn_fiber *fiber;
};

static void never_returns(void *arg)
{
	(void)arg;
	for (;;)
		gn_sleep_us(1);
}

static void in_fiber(void *arg)
{
	(void)arg;
	gn_wait(NULL, 0, GN_FOREVER, "nothing");
}

static int counts(struct gn_env *env, int argc, char **argv)
{
	struct disk *disk = env->arg;
	struct gn_thread *thread;
	struct gn_slot *slots[SIM_SLOTS];

	EXPECT(argc == 1 && !strcmp(argv[0], "prog"));
	argv[0][0] = 'x';
	disk->starts++;
	disk->started_ns = gn_now_ns();
	for (unsigned i = 0; i < SIM_SLOTS; i++) {
		EXPECT(gn_slot_create(NULL, &slots[i]) == 0);
		EXPECT(gn_slot_get(slots[i]) == NULL);
		EXPECT(gn_slot_set(slots[i], disk) == 0);
	}
	EXPECT(gn_thread_start("other", never_returns, NULL, &thread) == 0);
	EXPECT(gn_fiber_create(in_fiber, NULL, GN_FIBER_STACK_MIN, &disk->fiber) == 0);
	EXPECT(gn_alloc(100, 0));
	while (disk->steps < 10) {
		gn_sleep_us(100);
		disk->steps++;
	}
	for (unsigned i = 0; i < SIM_SLOTS; i++)
		gn_slot_destroy(slots[i]);
	return 42;
}

static void spawn_counting(struct gn_sim *sim, unsigned node, struct disk *disk)
{
	char prog[] = "prog", *argv[] = {prog};

	disk->sim = sim;
	assert_int_equal(gn_sim_spawn(sim, node, counts, 1, argv, disk, NULL), 0);
}

static unsigned count_maps(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned n = 0;
	int c;

	assert_non_null(file);
	while ((c = fgetc(file)) != EOF)
		n += c == '\n';
	fclose(file);
	return n;
}

static void test_crash_restarts(void **state)
{
	struct gn_sim *sim = sim_make_faulty(2, "crash@250us+1ms:n1");
	struct disk crashed = {0}, whole = {0};

	(void)state;
	spawn_counting(sim, 1, &crashed);
	spawn_counting(sim, 0, &whole);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(whole.starts, 1);
	assert_int_equal(crashed.starts, 2);
	assert_int_equal(crashed.started_ns, 1250 * US);
	assert_int_equal(gn_sim_now_ns(sim), 1250 * US + 8 * 100 * US);
	sim_assert_status(sim, 0, 42);
	sim_assert_status(sim, 1, 42);
	assert_int_equal(gn_sim_leaks(sim), 2); /* what the two forgot that returned */
	assert_int_equal(gn_sim_fault_count(sim, SIM_CRASH), 1);
	assert_int_equal(sim->nodes[1].incarnation, 1);
	assert_int_equal(sim->nodes[0].incarnation, 0);
	assert_false(sim->nodes[1].crashed);
	gn_sim_destroy(sim);
}

static void test_crash_for_good(void **state)
{
	struct gn_sim *sim = sim_make_faulty(2, "crash@250us:n1");
	struct disk disk = {0};

	spawn_counting(sim, 1, &disk);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_now_ns(sim), 250 * US);
	assert_int_equal(disk.starts, 1);
	assert_int_equal(disk.steps, 2);
	sim_assert_status(sim, 0, GN_SIM_KILLED);
	assert_int_equal(gn_sim_leaks(sim), 0);
	assert_true(sim->nodes[1].crashed);
	assert_int_equal(gn_sim_spawn(sim, 1, counts, 0, NULL, NULL, NULL), -EHOSTDOWN);
	sim_assert_logged(state, "node 1 has crashed and is down");
	gn_sim_destroy(sim);
}

/* A crash of what is down already is one that lasts longer; the fibers of the dead are unmapped. */
static void test_crash_again(void **state)
{
	struct gn_sim *sim =
		sim_make_faulty(1, "crash@250us+1ms crash@500us+100us crash@750us+2ms");
	struct disk disk = {0};
	unsigned maps = count_maps();

	(void)state;
	spawn_counting(sim, 0, &disk);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(disk.starts, 2);
	assert_int_equal(disk.started_ns, 2750 * US);
	assert_int_equal(sim->nodes[0].incarnation, 1);
	assert_true(count_maps() <= maps);
	gn_sim_destroy(sim);

	sim = sim_make_faulty(1, "crash@250us+1ms crash@500us");
	disk = (struct disk){0};
	spawn_counting(sim, 0, &disk);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_now_ns(sim), 500 * US);
	sim_assert_status(sim, 0, GN_SIM_KILLED);
	gn_sim_destroy(sim);
}

PROGRAM(returns_7)
{
	(void)env;
	return 7;
}

PROGRAM(watches)
{
	struct disk *disk = env->arg;
	int status;

	gn_sleep_us(300);
	EXPECT(disk->starts == 1);
	EXPECT(gn_sim_status(disk->sim, 0, &status) == -EAGAIN); /* it will run again */
	EXPECT(gn_sim_kill(disk->sim, 0) == 0);			 /* or not */
	EXPECT(gn_sim_kill(disk->sim, 0) == -ESRCH);
	EXPECT(gn_sim_status(disk->sim, 0, &status) == 0 && status == GN_SIM_KILLED);
	EXPECT(gn_sim_spawn(disk->sim, 1, returns_7, 0, NULL, NULL, NULL) == -EHOSTDOWN);
	return 0;
}

static void test_killed_while_down(void **state)
{
	struct gn_sim *sim = sim_make_faulty(2, "crash@250us+1ms:n1");
	struct disk disk = {0};

	(void)state;
	spawn_counting(sim, 1, &disk);
	sim_spawn(sim, 0, watches, &disk);
	sim_spawn(sim, 1, returns_7, NULL); /* before the crash, so that is how it stays */
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(gn_sim_now_ns(sim), 300 * US);
	sim_assert_status(sim, 1, 0);
	sim_assert_status(sim, 2, 7);
	assert_int_equal(disk.starts, 1);
	gn_sim_destroy(sim);

	sim = sim_make_faulty(2, "crash@250us+1ms:n1");
	spawn_counting(sim, 1, &disk);
	sim->engine.limit_ps = sim_ns_to_ps(300 * US);
	assert_int_equal(gn_sim_run(sim), -ETIMEDOUT);
	gn_log_level_set(GN_LOG_INFO);
	assert_int_equal(gn_sim_run(sim), -ETIMEDOUT);
	gn_log_level_set(GN_LOG_WARN);
	sim_assert_logged(state, "n1 process 0 waits for its node, down until 1250000 ns");
	gn_sim_destroy(sim); /* while it is down */
}

/* ---- pause ---- */

struct times {
	struct gn_sim *sim;
	uint64_t slept, worked, waited, local;
};

PROGRAM(takes_times)
{
	struct times *times = env->arg;

	gn_sleep_us(1500);
	times->slept = gn_sim_now_ns(times->sim);
	gn_charge(GN_WORK_NS, 2 * MS);
	times->worked = gn_sim_now_ns(times->sim);
	EXPECT(gn_wait(NULL, 0, gn_deadline_us(1000), "nothing") == -ETIMEDOUT);
	times->waited = gn_sim_now_ns(times->sim);
	times->local = gn_now_ns();
	return 0;
}

static void run_times(const char *faults, struct times times[2])
{
	struct gn_sim *sim = sim_make_faulty(2, faults);

	times[0].sim = times[1].sim = sim;
	sim_spawn(sim, 0, takes_times, &times[0]);
	sim_spawn(sim, 1, takes_times, &times[1]);
	assert_int_equal(gn_sim_run(sim), 0);
	sim_assert_status(sim, 0, 0);
	sim_assert_status(sim, 1, 0);
	assert_int_equal(times[0].slept, 1500 * US); /* the other one notices nothing */
	assert_int_equal(times[0].worked, 3500 * US);
	assert_int_equal(times[0].waited, 4500 * US);
	assert_int_equal(times[0].local, 4500 * US);
	gn_sim_destroy(sim);
}

static void test_pause(void **state)
{
	struct times t[2];

	(void)state;
	/* A deadline in the pause comes at its end; work stands still; one past it is not moved. */
	run_times("pause@1ms+1ms:n1 pause@3ms+500us:n1 pause@3.25ms+750us:n1 pause@5ms+100us:n1",
		  t);
	assert_int_equal(t[1].slept, 2000 * US);
	assert_int_equal(t[1].worked, 5100 * US);
	assert_int_equal(t[1].waited, 6100 * US);
	assert_int_equal(t[1].local, 6100 * US);
}

static void test_pause_reported(void **state)
{
	struct gn_sim_opts opts = {
		.size = sizeof(opts), .nodes = 1, .limit_ns = 2 * MS, .faults = "pause@1ms+5ms"};
	struct times times = {0};
	struct gn_sim *sim;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	times.sim = sim;
	sim_spawn(sim, 0, takes_times, &times);
	gn_log_level_set(GN_LOG_INFO);
	assert_int_equal(gn_sim_run(sim), -ETIMEDOUT);
	gn_log_level_set(GN_LOG_WARN);
	sim_assert_logged(state, "sim: pause of n0 at 1000000 ns");
	sim_assert_logged(state, "waits for the end of a sleep, until 1500000 ns; its node is "
				 "paused until 6000000 ns");
	gn_sim_destroy(sim);
}

/* One side of a connection, for as little as a WRITE needs. */
struct side {
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_qp *qp;
	struct gn_mr *mr;
	uint64_t *word;
};

struct meeting {
	struct gn_sim *sim;
	struct gn_remote target;
	uint64_t written, seen; /* when */
};

static int side_open(struct side *s, const char *name)
{
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = 16};
	struct gn_qp_opts qp = {.size = sizeof(qp), .type = GN_QP_RC};
	struct gn_fabric *fabric;
	struct gn_mem *mem;

	EXPECT(gn_fabric_open(name, &fabric) == 0);
	EXPECT(gn_ctx_create(fabric, &s->ctx) == 0);
	EXPECT(gn_pd_create(s->ctx, &s->pd) == 0);
	EXPECT(gn_chan_create(s->ctx, &s->chan) == 0);
	EXPECT(gn_cq_create(s->ctx, &cq, &s->cq) == 0);
	qp.send_cq = qp.recv_cq = s->cq;
	qp.chan = s->chan;
	EXPECT(gn_qp_create(s->pd, &qp, &s->qp) == 0);
	EXPECT(gn_mem_alloc(fabric, 4096, GN_REMOTE_WRITE, &mem) == 0);
	EXPECT(gn_mr_register(s->pd, mem, 0, 4096, GN_LOCAL_WRITE | GN_REMOTE_WRITE, &s->mr) == 0);
	s->word = gn_mem_addr(mem);
	return 0;
}

PROGRAM(is_written_to)
{
	struct meeting *meeting = env->arg;
	struct gn_listener *listener;
	struct gn_conn_opts opts = {.size = sizeof(opts)};
	struct gn_wait_item item;
	struct gn_event ev;
	struct side s;

	EXPECT(side_open(&s, env->fabric) == 0);
	EXPECT(gn_mr_remote(s.mr, &meeting->target) == 0);
	EXPECT(gn_listener_create(s.ctx, "sim:n1:1", s.chan, 0, &listener) == 0);
	EXPECT(gn_chan_wait(s.chan, GN_FOREVER, &ev) == 0);
	EXPECT(gn_accept(ev.req, s.qp, &opts) == 0);
	item = gn_wait_word(s.word, 0);
	EXPECT(gn_wait(&item, 1, gn_deadline_us(1000000), "the word") == 1);
	meeting->seen = gn_sim_now_ns(meeting->sim);
	EXPECT(*s.word == 77);
	return 0;
}

PROGRAM(writes)
{
	struct meeting *meeting = env->arg;
	struct gn_conn_opts opts = {.size = sizeof(opts)};
	struct gn_event ev;
	struct gn_wc wc;
	struct side s;
	struct gn_sge sge;
	struct gn_wr wr = {.op = GN_OP_WRITE, .flags = GN_SIGNALED, .sge = &sge, .n_sge = 1};

	gn_sleep_us(100);
	EXPECT(side_open(&s, env->fabric) == 0);
	EXPECT(gn_connect_wait(s.qp, "sim:n1:1", &opts, &ev) == 0);
	gn_sleep_us(1500);
	*s.word = 77;
	sge = (struct gn_sge){s.word, sizeof(*s.word), gn_mr_lkey(s.mr)};
	wr.to.remote.offset = meeting->target.offset;
	wr.to.remote.key = meeting->target.key;
	EXPECT(gn_post_send(s.qp, &wr, NULL) == 0);
	EXPECT(gn_cq_wait(s.cq, &wc, 1, GN_FOREVER, "its completion") == 1);
	EXPECT(wc.status == GN_WC_OK);
	meeting->written = gn_sim_now_ns(meeting->sim);
	gn_sleep_us(5000);
	return 0;
}

/*
 * A paused node's memory is there: its device needs no processor. Who was woken meanwhile goes on at
 * the end of the pause, also if its deadline has moved since.
 */
static void test_pause_device(void **state)
{
	struct meeting meeting = {
		.sim = sim_make_faulty(2, "pause@1ms+3ms:n1 drift@2ms:n1:100ppm")};

	(void)state;
	sim_spawn(meeting.sim, 0, writes, &meeting);
	sim_spawn(meeting.sim, 1, is_written_to, &meeting);
	assert_int_equal(gn_sim_run(meeting.sim), 0);
	sim_assert_status(meeting.sim, 0, 0);
	sim_assert_status(meeting.sim, 1, 0);
	assert_in_range(meeting.written, 1600 * US, 2000 * US);
	assert_int_equal(meeting.seen, 4000 * US);
	gn_sim_destroy(meeting.sim);
}

/* ---- slowness ---- */

static void test_slow_node(void **state)
{
	struct times t[2];

	(void)state;
	run_times("slow-node@1ms+1ms:n1:2.5x", t); /* the work begins within, so it is slow */
	assert_int_equal(t[1].slept, 1500 * US);
	assert_int_equal(t[1].worked, 6500 * US);
	assert_int_equal(t[1].waited, 7500 * US);
	run_times("slow-node@1ms+100us:n1:20x", t);
	assert_int_equal(t[1].waited, 4500 * US);
	run_times("slow-node@1ms:n1:20x", t); /* for good */
	assert_int_equal(t[1].worked, 41500 * US);
}

PROGRAM(naps)
{
	(void)env;
	gn_sleep_us(1500);
	return 0;
}

static uint32_t link_factor(const struct gn_sim *sim, unsigned node)
{
	return sim_slow_factor(&sim->nodes[node].device.slow, sim->engine.now_ps);
}

static void test_slow_link(void **state)
{
	struct gn_sim *sim =
		sim_make_faulty(2, "slow-link@1ms+1ms:n1:3x slow-link@1.2ms:n0:10000x");

	(void)state;
	assert_int_equal(link_factor(sim, 1), 256);
	sim_spawn(sim, 0, naps, NULL);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(link_factor(sim, 0), 2560000);
	assert_int_equal(link_factor(sim, 1), 768);
	assert_int_equal(sim_fault_cpu_factor(sim, 1), 256);
	sim_spawn(sim, 0, naps, NULL);
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(link_factor(sim, 0), 2560000);
	assert_int_equal(link_factor(sim, 1), 256);
	gn_sim_destroy(sim);
}

/* ---- partitions ---- */

#define CUT_NODES 4u

/* Who does not reach whom among n0 to n3: bit from * 4 + to. */
static unsigned cuts(const struct gn_sim *sim)
{
	unsigned found = 0;

	for (unsigned from = 0; from < CUT_NODES; from++)
		for (unsigned to = 0; to < CUT_NODES; to++)
			found |= (unsigned)sim_fault_cut(sim, from, to) << (from * 4 + to);
	return found;
}

#define CUT(from, to)  (1u << ((from)*4 + (to)))
#define BOTH(from, to) (CUT(from, to) | CUT(to, from))

static const struct {
	const char *faults;
	unsigned cut;
} partitions[] = {
	{"partition@1ms+1ms:n0|n1", BOTH(0, 1)},
	{"partition@1ms+1ms:n0>n1", CUT(0, 1)},
	{"partition@1ms+1ms:n1", BOTH(1, 0) | BOTH(1, 2) | BOTH(1, 3)},
	{"partition@1ms+1ms:n0|n1+n2", BOTH(0, 1) | BOTH(0, 2)},
	{"partition@1ms+1ms:n0+n3>n1", CUT(0, 1) | CUT(3, 1)},
	{"partition@1ms+1ms:n3+n2", BOTH(3, 0) | BOTH(3, 1) | BOTH(2, 0) | BOTH(2, 1)},
	{"partition@1ms+1ms:n3>", CUT(3, 0) | CUT(3, 1) | CUT(3, 2)},
	{"partition@1ms+1ms:>n3", CUT(0, 3) | CUT(1, 3) | CUT(2, 3)},
	{"partition@1ms:n0|n1 partition@1.4ms+1ms:n2>n3", BOTH(0, 1) | CUT(2, 3)},
	{"partition@1ms+100us:n0|n1", 0},
	{"partition@1.6ms:n0|n1", 0},
	{"rnr=1%", 0},
};

static void test_partitions(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(partitions) / sizeof(partitions[0]); i++) {
		struct gn_sim *sim = sim_make_faulty(CUT_NODES, partitions[i].faults);

		assert_int_equal(cuts(sim), 0);
		sim_spawn(sim, 0, naps, NULL);
		assert_int_equal(gn_sim_run(sim), 0);
		assert_int_equal(cuts(sim), partitions[i].cut);
		gn_sim_destroy(sim);
	}
}

/* A partition of nobody in particular cuts somebody off, somehow. */
static void test_partition_drawn(void **state)
{
	unsigned shapes = 0, last = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++) {
		struct gn_sim *sim = sim_make(CUT_NODES, seed);
		unsigned cut;

		assert_int_equal(gn_sim_inject(sim, "partition@1ms+1ms"), 0);
		sim_spawn(sim, 0, naps, NULL);
		assert_int_equal(gn_sim_run(sim), 0);
		cut = cuts(sim);
		assert_int_equal(cut & (CUT(0, 0) | CUT(1, 1) | CUT(2, 2) | CUT(3, 3)), 0);
		shapes += cut != last && cut;
		last = cut;
		sim_spawn(sim, 0, naps, NULL);
		assert_int_equal(gn_sim_run(sim), 0);
		assert_int_equal(cuts(sim), 0);
		gn_sim_destroy(sim);
	}
	assert_true(shapes > 20);
}

/* ---- drift ---- */

static void test_drift(void **state)
{
	struct times t[2];

	(void)state;
	/* Fast: what it means to sleep for takes less. 500 us by a clock that is 10 % fast. */
	run_times("drift@1ms:n1:100000ppm", t);
	assert_int_equal(t[1].slept, 1000 * US + 454545);
	assert_int_equal(t[1].worked, t[1].slept + 2 * MS); /* which is no matter of clocks */
	assert_in_range(t[1].waited, t[1].worked + 909090, t[1].worked + 909091);
	assert_int_equal(t[1].local, 1500 * US + 2200 * US + 1000 * US);
	/* Slow, and then right again but for what it has lost. */
	run_times("drift@1ms:n1:-100000ppm drift@2ms:n1:0ppm", t);
	assert_int_equal(t[1].slept, 1000 * US + 555555);
	assert_int_equal(t[1].worked, t[1].slept + 2 * MS);
	assert_int_equal(t[1].waited, t[1].worked + 1000 * US);
	assert_int_equal(t[1].local, t[1].waited - 100 * US);
}

/* A channel's timer goes by its node's clock, and ends with its process. */
struct timing {
	struct gn_sim *sim;
	uint64_t at_ps;
};

PROGRAM(takes_timer)
{
	struct timing *timing = env->arg;
	struct gn_fabric *fabric;
	struct gn_chan *chan;
	struct gn_ctx *ctx;
	struct gn_event ev;

	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	EXPECT(gn_ctx_create(fabric, &ctx) == 0);
	EXPECT(gn_chan_create(ctx, &chan) == 0);
	EXPECT(gn_chan_timer(chan, 1500 * US) == 0);
	EXPECT(gn_chan_wait(chan, GN_FOREVER, &ev) == 0);
	EXPECT(ev.type == GN_EVENT_TIMER);
	timing->at_ps = timing->sim->engine.now_ps;
	EXPECT(gn_chan_destroy(chan) == 0);
	EXPECT(gn_ctx_destroy(ctx) == 0);
	return gn_fabric_close(fabric);
}

static void test_drift_timer(void **state)
{
	static const struct {
		const char *faults;
		uint64_t at_ns;
	} runs[] = {
		{"drift@1ms:n0:0ppm", 1500 * US},
		{"drift@1ms:n0:100000ppm", 1000 * US + 454545},
		{"drift@1ms:n0:-100000ppm", 1000 * US + 555555},
		{"kill@1ms:n0", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		struct timing timing = {.sim = sim_make_faulty(2, runs[i].faults)};

		sim_spawn(timing.sim, 0, takes_timer, &timing);
		assert_int_equal(gn_sim_run(timing.sim), 0);
		assert_in_range(timing.at_ps, runs[i].at_ns * 1000, runs[i].at_ns * 1000 + 1999);
		gn_sim_destroy(timing.sim);
	}
}

static void test_clock(void **state)
{
	struct sim_clock clock = {0};
	uint64_t rng = unit_seed(), now = 0, before = 0;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		uint64_t ns, until;

		if (i % 20 == 0)
			sim_clock_drift(&clock, now,
					(int32_t)(unit_next(&rng) % 200001) - SIM_DRIFT_MAX);
		now += unit_next(&rng) % 5000000;
		ns = sim_clock_ns(&clock, now);
		assert_true(ns >= before);
		before = ns;
		ns += unit_next(&rng) % 100000;
		until = sim_clock_until_ps(&clock, ns);
		assert_true(sim_clock_ns(&clock, until) >= ns);
		if (until > clock.from_ps)
			assert_true(sim_clock_ns(&clock, until - 1) < ns);
	}
	assert_int_equal(sim_clock_until_ps(&clock, GN_FOREVER), SIM_NEVER);
	assert_int_equal(sim_clock_until_ps(&clock, SIM_NS_MAX + 1), SIM_NEVER);
}

struct handing {
	struct gn_mutex mutex;
	struct gn_cond cond;
	struct gn_sim *sim;
	uint64_t timed_out;
};

PROGRAM(waits_for_signal)
{
	struct handing *h = env->arg;
	int rc = 0;

	gn_mutex_init(&h->mutex);
	gn_cond_init(&h->cond);
	gn_mutex_lock(&h->mutex);
	while (!rc)
		rc = gn_cond_wait(&h->cond, &h->mutex, 2 * MS, "a signal");
	EXPECT(rc == -ETIMEDOUT && gn_now_ns() >= 2 * MS);
	h->timed_out = gn_sim_now_ns(h->sim);
	gn_mutex_unlock(&h->mutex);
	return 0;
}

/* A deadline moves out of a pause that it was to come in. */
static void test_drift_in_pause(void **state)
{
	struct handing h = {.sim = sim_make_faulty(1, "pause@1ms+1.05ms drift@1.1ms:-100000ppm")};

	(void)state;
	sim_spawn(h.sim, 0, waits_for_signal, &h);
	assert_int_equal(gn_sim_run(h.sim), 0);
	sim_assert_status(h.sim, 0, 0);
	assert_int_equal(h.timed_out, 2100 * US);
	gn_sim_destroy(h.sim);
}

/* ---- lack of memory ---- */

PROGRAM(looks_at_memory)
{
	const struct gn_sim *sim = env->arg;

	for (int i = 0; i < 60; i++) {
		const uint64_t now_ns = gn_sim_now_ns(sim);
		const bool low = (now_ns >= 1 * MS && now_ns < 3 * MS) || now_ns >= 5 * MS;

		EXPECT(exec_memory_available() == (low ? 0 : UINT64_MAX));
		gn_free(gn_alloc(100, 0));
		gn_sleep_us(97);
	}
	return 0;
}

PROGRAM(has_memory)
{
	(void)env;
	for (int i = 0; i < 60; i++) {
		EXPECT(exec_memory_available() == UINT64_MAX);
		gn_sleep_us(97);
	}
	return 0;
}

/* Two that overlap add up. */
static void test_low_memory(void **state)
{
	struct gn_sim *sim = sim_make_faulty(2, "low-memory@1ms+2ms:n0 low-memory@2ms+10us:n0 "
						"low-memory@5ms:n0");

	(void)state;
	sim_spawn(sim, 0, looks_at_memory, sim);
	sim_spawn(sim, 1, has_memory, sim);
	assert_int_equal(gn_sim_run(sim), 0);
	sim_assert_status(sim, 0, 0);
	sim_assert_status(sim, 1, 0);
	assert_int_equal(gn_sim_fault_count(sim, SIM_LOW_MEMORY), 3);
	gn_sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SIM_TEST(test_crash_restarts),	SIM_TEST(test_crash_for_good),
		SIM_TEST(test_crash_again),	SIM_TEST(test_killed_while_down),
		SIM_TEST(test_pause),		SIM_TEST(test_pause_reported),
		SIM_TEST(test_pause_device),	SIM_TEST(test_slow_node),
		SIM_TEST(test_slow_link),	SIM_TEST(test_partitions),
		SIM_TEST(test_partition_drawn), SIM_TEST(test_drift),
		SIM_TEST(test_drift_timer),	SIM_TEST(test_clock),
		SIM_TEST(test_drift_in_pause),	SIM_TEST(test_low_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
