/* SPDX-License-Identifier: MIT */
/*
 * In a simulation there is no clock but the virtual one. This program's own definitions stand
 * before the C library's, so that every reading of a real clock and every real random number in it
 * is counted; programs on two nodes then do whatever takes or tells time. Asking for the real ones
 * on purpose ends the process. tests/unit/no_clock looks at the same from the outside.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/exec.h"
#include "gannet/fabric.h"
#include "unit_sim.h"

/* ---- the C library's, with a count ---- */

static unsigned asked;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	asked++;
	return (int)syscall(SYS_clock_gettime, id, ts);
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	asked++;
	return (int)syscall(SYS_gettimeofday, tv, zone);
}

time_t time(time_t *out)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (out)
		*out = ts.tv_sec;
	return ts.tv_sec;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *ts, struct timespec *left)
{
	asked++;
	return syscall(SYS_clock_nanosleep, id, flags, ts, left) ? errno : 0;
}

ssize_t getrandom(void *data, size_t len, unsigned flags)
{
	asked++;
	return syscall(SYS_getrandom, data, len, flags);
}

static void test_counted(void **state)
{
	(void)state;
	asked = 0;
	gn_now_ns();
	assert_int_equal(asked, 1);
	gn_sleep_us(1);
	assert_int_equal(asked, 3);
	for (unsigned i = 0; i < 100; i++)
		gn_random();
	assert_true(asked > 3);
}

/* ---- programs that do what takes time ---- */

#define THREADS 3u
#define ROUNDS	200u

/* All nodes share the clock: no reading is below one made before, wherever. */
struct watch {
	uint64_t latest_ns, readings, back;
};

static void look(struct watch *watch)
{
	const uint64_t now_ns = gn_now_ns();

	watch->back += now_ns < watch->latest_ns;
	watch->latest_ns = now_ns;
	watch->readings++;
}

/* A wait that ends by its deadline, in each of the ways there are. */
static int wait_in_vain(struct watch *watch, struct gn_queue *queue, uint64_t ns)
{
	const uint64_t deadline_ns = gn_now_ns() + ns;
	struct gn_wait_item item = gn_wait_on(gn_queue_source(queue));
	struct gn_mutex mutex;
	struct gn_cond cond;
	int rc;

	EXPECT(gn_wait(&item, 1, deadline_ns, "nothing") == -ETIMEDOUT);
	look(watch);
	EXPECT(watch->latest_ns >= deadline_ns);
	gn_mutex_init(&mutex);
	gn_cond_init(&cond);
	gn_mutex_lock(&mutex);
	do
		rc = gn_cond_wait(&cond, &mutex, deadline_ns + ns, "nothing either");
	while (!rc);
	gn_mutex_unlock(&mutex);
	gn_cond_fini(&cond);
	gn_mutex_fini(&mutex);
	look(watch);
	EXPECT(rc == -ETIMEDOUT && watch->latest_ns >= deadline_ns + ns);
	return 0;
}

static void pass_time(void *arg)
{
	struct watch *watch = arg;
	struct gn_queue *queue;

	if (gn_queue_create(2, &queue))
		return;
	for (unsigned i = 0; i < ROUNDS; i++) {
		look(watch);
		gn_charge(GN_WORK_NS, gn_random() % 100);
		look(watch);
		gn_yield();
		look(watch);
		gn_sleep_us(gn_random() % 3);
		if (wait_in_vain(watch, queue, gn_random() % 500))
			watch->back++;
	}
	gn_queue_destroy(queue);
}

/* The fabric has deadlines too: of a connection that nobody answers, and of a wait for it. */
static int connect_in_vain(const struct gn_env *env, struct watch *watch)
{
	const struct gn_conn_opts opts = {.size = sizeof(opts), .timeout_us = 100};
	struct gn_cq_opts cq_opts = {.size = sizeof(cq_opts), .depth = 4};
	struct gn_qp_opts qp_opts = {.size = sizeof(qp_opts), .type = GN_QP_RC};
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_wc wc;

	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	EXPECT(gn_ctx_create(fabric, &ctx) == 0 && gn_pd_create(ctx, &pd) == 0);
	EXPECT(gn_chan_create(ctx, &qp_opts.chan) == 0);
	EXPECT(gn_cq_create(ctx, &cq_opts, &qp_opts.send_cq) == 0);
	qp_opts.recv_cq = qp_opts.send_cq;
	EXPECT(gn_qp_create(pd, &qp_opts, &qp) == 0);
	EXPECT(gn_connect_wait(qp, "sim:n9:1", &opts, NULL) == -ETIMEDOUT);
	look(watch);
	EXPECT(gn_cq_wait(qp_opts.send_cq, &wc, 1, gn_deadline_us(50), "nothing") == -ETIMEDOUT);
	look(watch);
	EXPECT(gn_qp_destroy(qp) == 0 && gn_cq_destroy(qp_opts.send_cq) == 0);
	EXPECT(gn_chan_destroy(qp_opts.chan) == 0 && gn_pd_destroy(pd) == 0);
	EXPECT(gn_ctx_destroy(ctx) == 0 && gn_fabric_close(fabric) == 0);
	return 0;
}

PROGRAM(busy)
{
	struct gn_thread *thread[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		EXPECT(gn_thread_start("busy", pass_time, env->arg, &thread[i]) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		EXPECT(gn_thread_join(thread[i]) == 0);
	return connect_in_vain(env, env->arg);
}

static void test_no_real_clock(void **state)
{
	struct gn_sim *sim = sim_make(2, unit_seed());
	struct watch watch = {.back = 0};
	int status[2];

	(void)state;
	sim_spawn(sim, 0, busy, &watch);
	sim_spawn(sim, 1, busy, &watch);
	asked = 0;
	assert_int_equal(gn_sim_run(sim), 0);
	assert_int_equal(asked, 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(gn_sim_status(sim, i, &status[i]), 0);
		assert_int_equal(status[i], 0);
	}
	assert_true(watch.readings >= 2 * THREADS * ROUNDS);
	assert_int_equal(watch.back, 0);
	assert_true(watch.latest_ns <= gn_sim_now_ns(sim));
	gn_sim_destroy(sim);
}

/* ---- asking for it all the same ---- */

enum { REAL_NOW, REAL_RANDOM, REAL_SLEEP, REAL_COND, REALS };

PROGRAM(ask_for_real)
{
	const int what = *(int *)env->arg;
	struct gn_mutex mutex;
	struct gn_cond cond;

	switch (what) {
	case REAL_NOW:
		exec_real.now_ns();
		break;
	case REAL_RANDOM:
		exec_real.random();
		break;
	case REAL_SLEEP:
		exec_real.sleep_us(1);
		break;
	default:
		exec_real.mutex_init(&mutex);
		exec_real.cond_init(&cond);
		exec_real.mutex_lock(&mutex);
		exec_real.cond_wait(&cond, &mutex, 1, "nothing");
		break;
	}
	return 0;
}

/* In a child, which the assertion must end. */
static void test_real_clock_asserts(void **state)
{
	const struct rlimit no_core = {0, 0};

	(void)state;
	for (int what = 0; what < REALS; what++) {
		pid_t pid = fork();
		int status;

		assert_true(pid >= 0);
		if (pid == 0) {
			setrlimit(RLIMIT_CORE, &no_core);
			signal(SIGABRT, SIG_DFL);
			fclose(stderr);
			sim_run_alone(ask_for_real, &what);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counted),
		SIM_TEST(test_no_real_clock),
		SIM_TEST(test_real_clock_asserts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
