/* SPDX-License-Identifier: MIT */
/*
 * The I/O engine: queues that a second thread or a forked child uses, staging buffers that run out,
 * and buffers that cannot be registered.
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_world.h"

#define WAIT_US 10000000u

static void req_init(struct gn_io_req *req, struct gn_io_sge *sge, struct user *u, enum gn_io_op op,
		     void *bytes, uint32_t len)
{
	*sge = (struct gn_io_sge){.addr = bytes, .len_bytes = len};
	*req = (struct gn_io_req){.op = op, .region = u->region, .sge = sge, .n_sge = 1};
}

/* The connections break, and the lender refuses new ones: requests wait. */
static void hold_requests(struct world *w)
{
	const unsigned breaks = __atomic_load_n(&w->lender.breaks, __ATOMIC_RELAXED) + 4;

	__atomic_store_n(&w->lender.refuse, true, __ATOMIC_RELAXED);
	__atomic_store_n(&w->lender.breaks, breaks, __ATOMIC_RELEASE);
	while (__atomic_load_n(&w->lender.broken, __ATOMIC_ACQUIRE) < breaks)
		gn_sleep_us(50);
}

/* ---- a second thread ---- */

struct second {
	struct gn_io_queue *queue;
	struct gn_io_req *req;
	int submit, poll, wait, run, destroy;
};

static void second_main(void *arg)
{
	struct second *s = arg;
	struct gn_io_req *ended;

	s->submit = gn_io_submit(s->queue, &s->req, 1);
	s->poll = gn_io_poll(s->queue, &ended, 1);
	s->wait = s->poll == 1 ? 0 : gn_io_wait(s->queue, &ended, 1, gn_deadline_us(WAIT_US));
	s->run = gn_io_run(s->queue, s->req);
	s->destroy = gn_io_queue_destroy(s->queue);
}

/* While requests are under way a queue is its thread's; an idle one can go to another thread. */
static int program_second_thread(struct world *w, struct gn_fabric *fabric)
{
	static uint8_t bytes[2][512];
	struct gn_io_req first, other, *list = &first;
	struct gn_io_sge sges[2];
	struct second s = {.req = &other};
	struct gn_thread *thread;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_queue_create(u.io, 16, &s.queue) == 0);
	req_init(&first, &sges[0], &u, GN_IO_READ, bytes[0], sizeof(bytes[0]));
	req_init(&other, &sges[1], &u, GN_IO_READ, bytes[1], sizeof(bytes[1]));
	EXPECT(gn_io_run(s.queue, &first) == 0);
	hold_requests(w);
	EXPECT(gn_io_submit(s.queue, &list, 1) == 1);
	EXPECT(gn_thread_start("second", second_main, &s, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(s.submit == -EPERM && s.poll == -EPERM && s.wait == -EPERM && s.run == -EPERM);
	EXPECT(s.destroy == -EBUSY);
	__atomic_store_n(&w->lender.refuse, false, __ATOMIC_RELAXED);
	EXPECT(gn_io_wait(s.queue, &list, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
	EXPECT(list == &first && first.status == 0);
	EXPECT(gn_thread_start("second", second_main, &s, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(s.submit == 1 && s.poll + s.wait == 1 && s.run == 0 && s.destroy == 0);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_second_thread(void **state)
{
	(void)state;
	run_everywhere(program_second_thread, &(struct gn_io_opts){.channels = 1});
}

/* ---- a forked child ---- */

static unsigned told;

static void count_told(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	told += level == GN_LOG_ERROR && strstr(line, "fork");
}

static int child(struct world *w, struct user *u, struct gn_io_mem *mem,
		 struct gn_io_req *under_way)
{
	const struct gn_io_target_opts opts = {.size = sizeof(opts), .incarnation = INCARNATION};
	struct gn_io_req req, *list = &req;
	struct gn_io_target *target = NULL;
	struct gn_io_queue *queue = NULL;
	struct gn_io_mem *more = NULL;
	struct gn_source *source;
	struct gn_io_sge sge;
	uint8_t bytes[512];

	gn_log_to(count_told, NULL);
	told = 0;
	req_init(&req, &sge, u, GN_IO_WRITE, bytes, sizeof(bytes));
	EXPECT(gn_io_submit(u->queue, &list, 1) == -EPERM && strstr(gn_error(), "fork"));
	EXPECT(gn_io_poll(u->queue, &list, 1) == -EPERM);
	EXPECT(gn_io_wait(u->queue, &list, 1, GN_FOREVER) == -EPERM);
	EXPECT(gn_io_run(u->queue, &req) == -EPERM);
	EXPECT(gn_io_cancel(under_way) == -EPERM);
	EXPECT(gn_io_queue_source(u->queue, &source) == -EPERM);
	EXPECT(gn_io_queue_create(u->io, 4, &queue) == -EPERM && !queue);
	EXPECT(gn_io_mem_register(u->io, bytes, sizeof(bytes), &more) == -EPERM && !more);
	EXPECT(gn_io_target_open(u->io, w->addr, &opts, NULL, &target) == -EPERM && !target);
	EXPECT(told == 9);
	EXPECT(gn_io_queue_destroy(u->queue) == -EPERM);
	EXPECT(gn_io_mem_deregister(mem) == -EPERM);
	EXPECT(gn_io_target_close(u->target) == -EPERM);
	EXPECT(gn_io_destroy(u->io) == -EPERM);
	EXPECT(told == 13);
	return 0;
}

/* The child cannot use what it inherited, and the parent goes on, also with what was under way. */
static int program_fork(struct world *w, struct gn_fabric *fabric)
{
	static uint8_t bytes[2][4096];
	struct gn_io_req req, held, *list = &held;
	struct gn_io_sge sges[2];
	struct gn_io_mem *mem;
	struct user u;
	int status;
	pid_t pid;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, sizeof(bytes), &mem) == 0);
	fill(bytes[0], 4096, 1);
	req_init(&req, &sges[0], &u, GN_IO_WRITE, bytes[0], 4096);
	EXPECT(gn_io_run(u.queue, &req) == 0);
	hold_requests(w);
	req_init(&held, &sges[1], &u, GN_IO_READ, bytes[1], 4096);
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	pid = fork();
	if (!pid)
		_exit(child(w, &u, mem, &held) != 0);
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status));
	__atomic_store_n(&w->lender.refuse, false, __ATOMIC_RELAXED);
	EXPECT(gn_io_wait(u.queue, &list, 1, gn_deadline_us(WAIT_US)) == 1);
	EXPECT(held.status == 0 && is_filled(bytes[1], 4096, 1));
	EXPECT(gn_io_mem_deregister(mem) == 0);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_fork(void **state)
{
	(void)state;
	if (!THREADS_WATCHED && !given_addr())
		run_here(program_fork, NULL);
}

/* ---- staging buffers ---- */

#define STAGED 4096u

/* Submits requests until the staging buffers are in use: how many there were. */
static int submit_all(struct user *u, struct gn_io_queue *queue, struct gn_io_req *reqs,
		      struct gn_io_sge *sges, uint8_t *bytes, uint32_t len)
{
	for (unsigned i = 0; i < STAGED; i++) {
		struct gn_io_req *list = &reqs[i];
		int rc;

		req_init(&reqs[i], &sges[i], u, i % 2 ? GN_IO_READ : GN_IO_WRITE, bytes, len);
		reqs[i].offset = i % 2 ? 1 << 20 : 0;
		rc = gn_io_submit(queue, &list, 1);
		if (rc != 1)
			return rc == -EAGAIN && strstr(gn_error(), "staging") ? (int)i : -1;
	}
	return -1;
}

static int collect(struct gn_io_queue *queue, int n, int status)
{
	struct gn_io_req *ended[64];

	while (n > 0) {
		const int rc = gn_io_wait(queue, ended, 64, gn_deadline_us(UNIT_PATIENCE_US));

		EXPECT(rc > 0);
		for (int i = 0; i < rc; i++)
			EXPECT(ended[i]->status == status || ended[i]->status == 0);
		n -= rc;
	}
	EXPECT(n == 0);
	return 0;
}

/*
 * Requests that wait hold their staging buffers. Another one gets -EAGAIN; when some have ended it is
 * taken. No buffer is lost, whatever the status was.
 */
static int program_staging(struct world *w, struct gn_fabric *fabric)
{
	struct gn_io_req *reqs = gn_alloc(STAGED * sizeof(*reqs), 0);
	struct gn_io_sge *sges = gn_alloc(STAGED * sizeof(*sges), 0);
	uint8_t *bytes = gn_alloc(GN_IO_BYTES_MAX, 4096);
	static const uint32_t lens[] = {512, 4096, 4097, 65536, GN_IO_BYTES_MAX};
	int first[5] = {0};
	struct gn_io_queue *queue;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_queue_create(u.io, STAGED, &queue) == 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 5; i++) {
			int n;

			hold_requests(w);
			n = submit_all(&u, queue, reqs, sges, bytes, lens[i]);
			EXPECT(n > 0 && (!round || n == first[i]));
			first[i] = n;
			for (int k = 0; round == 1 && k < n; k++)
				EXPECT(gn_io_cancel(&reqs[k]) == 0);
			/* WRITEs that were posted end when the lender accepts again. */
			__atomic_store_n(&w->lender.refuse, false, __ATOMIC_RELAXED);
			EXPECT(collect(queue, n, round == 1 ? -ECANCELED : 0) == 0);
			req_init(&reqs[0], &sges[0], &u, GN_IO_READ, bytes, lens[i]);
			EXPECT(gn_io_run(queue, &reqs[0]) == 0);
		}
	}
	EXPECT(first[0] == first[1] && first[4] >= 1);
	EXPECT(gn_io_queue_destroy(queue) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(bytes);
	gn_free(sges);
	gn_free(reqs);
	return 0;
}

static void test_staging(void **state)
{
	(void)state;
	run_everywhere(
		program_staging,
		&(struct gn_io_opts){.mr = GN_IO_MR_PRE, .channels = 1, .staging_bytes = 4u << 20});
}

/* ---- buffers that cannot be registered ---- */

/* A page that is not mapped: the request is refused, those before it are not, and nothing leaks. */
static int program_not_mapped(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *pages =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct gn_io_req reqs[3], *list[3] = {&reqs[0], &reqs[1], &reqs[2]}, *ended;
	struct gn_io_sge sges[3];
	struct user u;

	EXPECT(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0);
	EXPECT(user_open(&u, w, fabric) == 0);
	for (unsigned i = 0; i < 3; i++)
		req_init(&reqs[i], &sges[i], &u, GN_IO_WRITE, pages + (i == 1 ? 2048 : 0), 4096);
	EXPECT(gn_io_submit(u.queue, list, 3) == 1);
	EXPECT(gn_io_wait(u.queue, &ended, 1, gn_deadline_us(WAIT_US)) == 1 && ended == &reqs[0]);
	EXPECT(gn_io_submit(u.queue, list + 1, 2) == -EFAULT && strstr(gn_error(), "not mapped"));
	EXPECT(gn_io_wait(u.queue, &ended, 1, gn_deadline_us(WAIT_US)) == -EAGAIN);
	sges[1].addr = pages;
	EXPECT(gn_io_run(u.queue, &reqs[1]) == 0);
	EXPECT(user_close(&u) == 0);
	munmap(pages, 4096);
	return 0;
}

static void test_not_mapped(void **state)
{
	(void)state;
	run_everywhere(program_not_mapped, &(struct gn_io_opts){.mr = GN_IO_MR_DYN});
}

#define KEYS_MAX 70000u

/* The device has no keys left: requests fail, or are copied where that was allowed. */
static int program_no_keys(struct world *w, struct gn_fabric *fabric)
{
	struct gn_io_mem **mems = gn_alloc(KEYS_MAX * sizeof(struct gn_io_mem *), 0);
	uint8_t *bytes = gn_alloc(GN_IO_BYTES_MAX, 4096);
	struct gn_io_stats stats = {.size = sizeof(stats)};
	struct gn_io_req req;
	struct gn_io_sge sge;
	unsigned n = 0;
	struct user u;
	int rc = 0;

	EXPECT(user_open(&u, w, fabric) == 0);
	while (!rc && n < KEYS_MAX) {
		rc = gn_io_mem_register(u.io, bytes, 64, &mems[n]);
		n += !rc;
	}
	EXPECT(rc < 0);
	req_init(&req, &sge, &u, GN_IO_WRITE, bytes, GN_IO_BYTES_MAX);
	EXPECT(gn_io_run(u.queue, &req) == (w->opts.mr == GN_IO_MR_DYN ? rc : 0));
	EXPECT(gn_io_query(u.io, &stats) == 0);
	EXPECT(w->opts.mr == GN_IO_MR_DYN || stats.copy_below > GN_IO_BYTES_MAX);
	EXPECT(gn_io_mem_deregister(mems[--n]) == 0);
	for (unsigned i = 0; i < 100; i++)
		EXPECT(gn_io_run(u.queue, &req) == 0);
	while (n)
		EXPECT(gn_io_mem_deregister(mems[--n]) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(bytes);
	gn_free(mems);
	return 0;
}

static void test_no_keys(void **state)
{
	(void)state;
	if (given_addr()) /* a card has many more */
		return;
	run_everywhere(program_no_keys, &(struct gn_io_opts){.mr = GN_IO_MR_DYN});
	run_everywhere(program_no_keys, &(struct gn_io_opts){.mr = GN_IO_MR_AUTO});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_second_thread), cmocka_unit_test(test_fork),
		cmocka_unit_test(test_staging),	      cmocka_unit_test(test_not_mapped),
		cmocka_unit_test(test_no_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
