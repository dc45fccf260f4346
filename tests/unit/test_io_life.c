/* SPDX-License-Identifier: MIT */
/* The I/O engine: several threads, connections that break, deadlines, cancelling, misuse. */
#define LENT_BYTES (16u << 20)
#include "io_world.h"

static void wait_until_broken(struct world *w, unsigned n)
{
	while (__atomic_load_n(&w->lender.broken, __ATOMIC_ACQUIRE) < n)
		gn_sleep_us(50);
}

static int one(struct user *u, struct gn_io_queue *queue, enum gn_io_op op, uint64_t offset,
	       void *bytes, uint32_t len, uint64_t deadline_ns)
{
	const struct gn_io_sge sge = {.addr = bytes, .len_bytes = len};
	struct gn_io_req req = {.op = op,
				.region = u->region,
				.offset = offset,
				.sge = &sge,
				.n_sge = 1,
				.deadline_ns = deadline_ns};

	return gn_io_run(queue, &req);
}

/* ---- connections that break ---- */

/* All connections break again and again; every request ends well. */
static int program_breaks(struct world *w, struct gn_fabric *fabric)
{
	uint8_t out[4096], in[4096];
	struct gn_io_stats stats = {.size = sizeof(stats)};
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	for (unsigned i = 0; i < 40; i++) {
		const uint64_t offset = i * 300000ull;

		fill(out, sizeof(out), i);
		if (i % 4 == 0)
			__atomic_add_fetch(&w->lender.breaks, 1, __ATOMIC_RELEASE);
		EXPECT(one(&u, u.queue, GN_IO_WRITE, offset % (7 << 20), out, sizeof(out), 0) == 0);
		if (i % 4 == 2)
			wait_until_broken(w, i / 4 + 1);
		memset(in, 0, sizeof(in));
		EXPECT(one(&u, u.queue, GN_IO_READ, offset % (7 << 20), in, sizeof(in), 0) == 0);
		EXPECT(is_filled(in, sizeof(in), i));
	}
	EXPECT(gn_io_query(u.io, &stats) == 0);
	EXPECT(stats.reconnects > 0 && !stats.failed);
	EXPECT(!stats.in_flight[0] && !stats.in_flight[1]);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_breaks(void **state)
{
	(void)state;
	run_everywhere(program_breaks, NULL);
}

/* While there is no connection, deadlines and cancel end requests, and nothing else does. */
static int program_deadlines(struct world *w, struct gn_fabric *fabric)
{
	uint8_t bytes[512];
	const struct gn_io_sge sge = {.addr = bytes, .len_bytes = sizeof(bytes)};
	struct gn_io_req req = {.sge = &sge, .n_sge = 1}, *list = &req, *ended;
	struct user u;
	uint64_t begin_ns;

	EXPECT(user_open(&u, w, fabric) == 0);
	req.region = u.region;
	__atomic_store_n(&w->lender.refuse, true, __ATOMIC_RELAXED);
	__atomic_store_n(&w->lender.breaks, 4, __ATOMIC_RELEASE);
	wait_until_broken(w, 4);
	gn_sleep_us(2000);
	/* The first finds out that the connection is gone; then READs are waiting. */
	for (unsigned i = 0; i < 3; i++) {
		begin_ns = gn_now_ns();
		EXPECT(one(&u, u.queue, GN_IO_READ, 4096, bytes, sizeof(bytes),
			   gn_deadline_us(20000)) == -ETIMEDOUT);
		EXPECT(gn_now_ns() - begin_ns < 1000000000u);
	}
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	EXPECT(gn_io_submit(u.queue, &list, 1) == -EBUSY);
	EXPECT(gn_io_wait(u.queue, &ended, 1, gn_deadline_us(10000)) == -ETIMEDOUT);
	EXPECT(gn_io_target_close(u.target) == -EBUSY && gn_io_queue_destroy(u.queue) == -EBUSY);
	EXPECT(gn_io_cancel(&req) == 0);
	EXPECT(gn_io_wait(u.queue, &ended, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
	EXPECT(ended == &req && req.status == -ECANCELED);
	EXPECT(gn_io_cancel(&req) == -EINVAL);
	/* The connections come back. */
	__atomic_store_n(&w->lender.refuse, false, __ATOMIC_RELAXED);
	EXPECT(one(&u, u.queue, GN_IO_READ, 4096, bytes, sizeof(bytes), 0) == 0);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_deadlines(void **state)
{
	(void)state;
	run_everywhere(program_deadlines, NULL);
}

/*
 * One connection is broken and stays so, others are up and idle: a busy thread that waits for the
 * first sleeps. A simulated thread that polled instead would poll some 2,000,000 times.
 */
static int program_busy_sleeps(struct world *w, struct gn_fabric *fabric)
{
	struct gn_io_stats before = {.size = sizeof(before)}, after = before;
	uint8_t bytes[512];
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	__atomic_store_n(&w->lender.refuse, true, __ATOMIC_RELAXED);
	__atomic_store_n(&w->lender.breaks, 1, __ATOMIC_RELEASE);
	wait_until_broken(w, 1);
	EXPECT(one(&u, u.queue, GN_IO_READ, 0, bytes, sizeof(bytes), gn_deadline_us(20000)) ==
	       -ETIMEDOUT);
	EXPECT(gn_io_query(u.io, &before) == 0);
	EXPECT(one(&u, u.queue, GN_IO_READ, 0, bytes, sizeof(bytes), gn_deadline_us(100000)) ==
	       -ETIMEDOUT);
	EXPECT(gn_io_query(u.io, &after) == 0);
	EXPECT(after.polls - before.polls < 10000);
	EXPECT(one(&u, u.queue, GN_IO_READ, 1 << 20, bytes, sizeof(bytes), 0) == 0);
	__atomic_store_n(&w->lender.refuse, false, __ATOMIC_RELAXED);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_busy_sleeps(void **state)
{
	(void)state;
	run_simulated(program_busy_sleeps, &(struct gn_io_opts){.polling = GN_IO_BUSY});
	run_simulated(program_busy_sleeps, &(struct gn_io_opts){.polling = GN_IO_SHARED_CQ});
}

/* Another incarnation: what was there is lost. */
static int program_lost(struct world *w, struct gn_fabric *fabric)
{
	uint8_t bytes[512];
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_target_state(u.target) == 0);
	w->lender.incarnation++;
	__atomic_store_n(&w->lender.breaks, 4, __ATOMIC_RELEASE);
	wait_until_broken(w, 4);
	EXPECT(one(&u, u.queue, GN_IO_READ, 0, bytes, sizeof(bytes), 0) == -ESTALE);
	EXPECT(gn_io_target_state(u.target) == -ESTALE);
	EXPECT(one(&u, u.queue, GN_IO_READ, 3 << 20, bytes, sizeof(bytes), 0) == -ESTALE);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_lost(void **state)
{
	(void)state;
	run_everywhere(program_lost, NULL);
}

struct waiter {
	struct user *u;
	uint64_t offset, ended_ns;
	int status;
};

static void waiter_main(void *arg)
{
	struct waiter *t = arg;
	struct gn_io_queue *queue;
	uint8_t bytes[512];

	t->status = gn_io_queue_create(t->u->io, 1, &queue);
	if (t->status)
		return;
	t->status = one(t->u, queue, GN_IO_READ, t->offset, bytes, sizeof(bytes), 0);
	t->ended_ns = gn_now_ns();
	gn_io_queue_destroy(queue);
}

/* When one channel learns that the target is lost, threads that sleep on the others wake. */
static int program_lost_wakes(struct world *w, struct gn_fabric *fabric)
{
	struct user u;
	struct waiter *t = gn_alloc(2 * sizeof(*t), 0);
	struct gn_thread *threads[2];
	uint64_t between_ns;

	EXPECT(user_open(&u, w, fabric) == 0);
	__atomic_store_n(&w->lender.refuse, true, __ATOMIC_RELAXED);
	/* Both channels try to connect every 100 ms, in the end: 50 ms apart. */
	for (unsigned i = 0; i < 2; i++) {
		__atomic_store_n(&w->lender.breaks, i + 1, __ATOMIC_RELEASE);
		wait_until_broken(w, i + 1);
		t[i] = (struct waiter){.u = &u, .offset = (uint64_t)i << 20};
		EXPECT(gn_thread_start("waiter", waiter_main, &t[i], &threads[i]) == 0);
		gn_sleep_us(i ? 400000 : 50000);
	}
	w->lender.incarnation++;
	for (unsigned i = 0; i < 2; i++) {
		EXPECT(gn_thread_join(threads[i]) == 0);
		EXPECT(t[i].status == -ESTALE);
	}
	between_ns = t[0].ended_ns < t[1].ended_ns ? t[1].ended_ns - t[0].ended_ns :
						     t[0].ended_ns - t[1].ended_ns;
	EXPECT(between_ns < 10000000);
	EXPECT(user_close(&u) == 0);
	gn_free(t);
	return 0;
}

static void test_lost_wakes(void **state)
{
	(void)state;
	run_simulated(program_lost_wakes, &(struct gn_io_opts){.channels = 2});
}

/* ---- waiting ---- */

#define BACKLOG 1024u

/* A wait ends at its deadline, even if each of its polls finds requests of another queue. */
static int program_backlog(struct world *w, struct gn_fabric *fabric)
{
	struct gn_io_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	struct gn_io_req *reqs = gn_alloc((BACKLOG + 1) * sizeof(*reqs), 0);
	struct gn_io_req *list = &reqs[BACKLOG];
	uint8_t *bytes = gn_alloc(4096, GN_PAGE);
	struct gn_io_queue *other;
	struct gn_io_mem *mem;
	struct gn_io_sge sge;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, 4096, &mem) == 0);
	EXPECT(gn_io_queue_create(u.io, BACKLOG, &other) == 0);
	sge = (struct gn_io_sge){.addr = bytes, .len_bytes = 512, .mem = mem};
	/* The first channel cannot connect, the second can be used. */
	__atomic_store_n(&w->lender.refuse, true, __ATOMIC_RELAXED);
	__atomic_store_n(&w->lender.breaks, 1, __ATOMIC_RELEASE);
	wait_until_broken(w, 1);
	for (unsigned i = 0; i <= BACKLOG; i++)
		reqs[i] = (struct gn_io_req){.region = u.region,
					     .offset = i < BACKLOG ? 1 << 20 : 0,
					     .sge = &sge,
					     .n_sge = 1};
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	EXPECT(gn_io_wait(u.queue, &list, 1, gn_deadline_us(5000)) == -ETIMEDOUT);
	for (unsigned i = 0; i < BACKLOG; i++) {
		list = &reqs[i];
		EXPECT(gn_io_submit(other, &list, 1) == 1);
	}
	gn_sleep_us(10000);
	EXPECT(gn_io_query(u.io, &before) == 0);
	EXPECT(gn_io_wait(u.queue, &list, 1, GN_NO_WAIT) == -ETIMEDOUT);
	EXPECT(gn_io_query(u.io, &after) == 0);
	EXPECT(after.polls - before.polls < 4);
	__atomic_store_n(&w->lender.refuse, false, __ATOMIC_RELAXED);
	EXPECT(gn_io_wait(u.queue, &list, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
	for (unsigned left = BACKLOG; left;) {
		const int n = gn_io_wait(other, NULL, left, gn_deadline_us(UNIT_PATIENCE_US));

		EXPECT(n > 0);
		left -= (unsigned)n;
	}
	EXPECT(gn_io_queue_destroy(other) == 0);
	EXPECT(gn_io_mem_deregister(mem) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(bytes);
	gn_free(reqs);
	return 0;
}

static void test_backlog(void **state)
{
	(void)state;
	run_simulated(program_backlog, &(struct gn_io_opts){.channels = 2,
							    .depth = BACKLOG,
							    .batching = GN_IO_SINGLE,
							    .polling = GN_IO_SHARED_CQ});
}

/* ---- references ---- */

#define SPREAD 32u /* 16 channels, READs and WRITEs */

struct remover {
	struct gn_io_region *region;
	unsigned asked, removed;
};

static bool admit_removing(void *arg, enum gn_io_op op, uint64_t bytes, uint64_t in_flight)
{
	struct remover *r = arg;

	(void)op, (void)bytes, (void)in_flight;
	r->asked++;
	r->removed += !r->removed && gn_io_region_remove(r->region) != -EBUSY;
	return true;
}

/* A region that a submit has posted requests of cannot be removed before the submit returns. */
static int program_long_list(struct world *w, struct gn_fabric *fabric)
{
	struct remover *r = w->opts.admit_arg;
	struct gn_io_range range = {.rights = GN_REMOTE_READ | GN_REMOTE_WRITE};
	struct gn_io_req *reqs = gn_alloc(SPREAD * sizeof(*reqs), 0), *list[SPREAD];
	struct gn_io_sge sges[SPREAD];
	uint8_t *bytes = gn_alloc((size_t)SPREAD * 512, 0);
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_mr_remote(w->lender.mr, &range.remote) == 0);
	EXPECT(gn_io_region_add(u.target, &range, &r->region) == 0);
	for (unsigned i = 0; i < SPREAD; i++) {
		sges[i] = (struct gn_io_sge){.addr = bytes + (size_t)i * 512, .len_bytes = 512};
		reqs[i] = (struct gn_io_req){.op = i % 2 ? GN_IO_READ : GN_IO_WRITE,
					     .region = r->region,
					     .offset = (uint64_t)(i / 2) << 20,
					     .sge = &sges[i],
					     .n_sge = 1};
		list[i] = &reqs[i];
	}
	EXPECT(gn_io_submit(u.queue, list, SPREAD) == (int)SPREAD);
	EXPECT(r->asked && !r->removed);
	for (unsigned left = SPREAD; left;) {
		const int n = gn_io_wait(u.queue, NULL, left, gn_deadline_us(UNIT_PATIENCE_US));

		EXPECT(n > 0);
		left -= (unsigned)n;
	}
	EXPECT(gn_io_region_remove(r->region) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(bytes);
	gn_free(reqs);
	return 0;
}

static void test_long_list(void **state)
{
	struct remover r = {0};

	(void)state;
	run_simulated(program_long_list,
		      &(struct gn_io_opts){
			      .channels = 16, .admit = admit_removing, .admit_arg = &r});
}

/* ---- threads ---- */

#define THREADS 4u
#define LOOPS	400u
#define AT_ONCE 8u

struct writer {
	struct user *u;
	unsigned index, loops;
	int rc;
};

/* Each thread has its own blocks, in the same stripes as those of the others. */
static int writer_run(const struct writer *t)
{
	struct gn_io_req reqs[AT_ONCE], *list[AT_ONCE], *ended[AT_ONCE];
	struct gn_io_sge sges[AT_ONCE];
	uint8_t *bytes = gn_alloc(AT_ONCE * 512, 0);
	struct gn_io_queue *queue;

	EXPECT(gn_io_queue_create(t->u->io, AT_ONCE, &queue) == 0);
	for (unsigned i = 0; i < t->loops; i++) {
		const enum gn_io_op op = i % 2 ? GN_IO_READ : GN_IO_WRITE;
		unsigned got = 0;

		for (unsigned k = 0; k < AT_ONCE; k++) {
			const uint64_t block = (i / 2 * 7 + k * 300) * THREADS + t->index;

			if (op == GN_IO_WRITE)
				fill(bytes + k * 512, 512, (uint32_t)block + i / 2);
			sges[k] = (struct gn_io_sge){.addr = bytes + k * 512, .len_bytes = 512};
			reqs[k] = (struct gn_io_req){.op = op,
						     .region = t->u->region,
						     .offset = block * 512 % (7 << 20),
						     .sge = &sges[k],
						     .n_sge = 1};
			list[k] = &reqs[k];
		}
		EXPECT(gn_io_submit(queue, list, AT_ONCE) == (int)AT_ONCE);
		while (got < AT_ONCE) {
			int rc =
				gn_io_wait(queue, ended, AT_ONCE, gn_deadline_us(UNIT_PATIENCE_US));

			EXPECT(rc > 0);
			got += (unsigned)rc;
		}
		for (unsigned k = 0; k < AT_ONCE; k++) {
			const uint64_t block = (i / 2 * 7 + k * 300) * THREADS + t->index;

			EXPECT(reqs[k].status == 0);
			EXPECT(op == GN_IO_WRITE ||
			       is_filled(bytes + k * 512, 512, (uint32_t)block + i / 2));
		}
	}
	EXPECT(gn_io_queue_destroy(queue) == 0);
	gn_free(bytes);
	return 0;
}

static void writer_main(void *arg)
{
	struct writer *t = arg;

	t->rc = writer_run(t);
}

static int program_threads(struct world *w, struct gn_fabric *fabric)
{
	struct gn_io_stats stats = {.size = sizeof(stats)};
	struct gn_thread *threads[THREADS];
	struct writer writers[THREADS];
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	for (unsigned i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){
			.u = &u, .index = i, .loops = w->simulated ? LOOPS / 8 : LOOPS};
		EXPECT(gn_thread_start("writer", writer_main, &writers[i], &threads[i]) == 0);
	}
	if (w->arg) /* break connections meanwhile */
		for (unsigned i = 0; i < 8; i++) {
			__atomic_add_fetch(&w->lender.breaks, 1, __ATOMIC_RELEASE);
			gn_sleep_us(500);
		}
	for (unsigned i = 0; i < THREADS; i++) {
		EXPECT(gn_thread_join(threads[i]) == 0);
		EXPECT(writers[i].rc == 0);
	}
	EXPECT(gn_io_query(u.io, &stats) == 0);
	EXPECT(stats.requests[0] + stats.requests[1] == THREADS * AT_ONCE * writers[0].loops);
	EXPECT(!stats.in_flight[0] && !stats.in_flight[1]);
	EXPECT(stats.in_flight_max[1] <= stats.window[1]);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_threads(void **state)
{
	(void)state;
	for (unsigned p = 0; p < GN_IO_POLLINGS; p++)
		run_everywhere(program_threads,
			       &(struct gn_io_opts){.polling = (enum gn_io_polling)p,
						    .channels = 1 + p % 4,
						    .write_window = p % 2 ? 4096 : 0});
}

static int program_threads_breaks(struct world *w, struct gn_fabric *fabric)
{
	w->arg = 1;
	return program_threads(w, fabric);
}

static void test_threads_breaks(void **state)
{
	(void)state;
	for (unsigned p = 0; p < GN_IO_POLLINGS; p += 2)
		run_everywhere(program_threads_breaks,
			       &(struct gn_io_opts){.polling = (enum gn_io_polling)p});
}

/* ---- the queue as a source ---- */

static int program_source(struct world *w, struct gn_fabric *fabric)
{
	uint8_t bytes[512];
	const struct gn_io_sge sge = {.addr = bytes, .len_bytes = sizeof(bytes)};
	struct gn_io_req req = {.sge = &sge, .n_sge = 1}, *list = &req, *ended = NULL;
	struct gn_source *source;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_queue_source(u.queue, &source) == 0);
	req.region = u.region;
	for (unsigned i = 0; i < 50; i++) {
		struct gn_wait_item item = gn_wait_on(source);

		req.offset = i * 100000;
		EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
		while (gn_io_poll(u.queue, &ended, 1) == 0)
			EXPECT(gn_wait(&item, 1, gn_deadline_us(UNIT_PATIENCE_US), "test") >= 0);
		EXPECT(ended == &req && req.status == 0);
	}
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_source(void **state)
{
	(void)state;
	run_everywhere(program_source, NULL);
}

/* ---- misuse ---- */

static int program_misuse(struct world *w, struct gn_fabric *fabric)
{
	static uint8_t bytes[4096];
	struct gn_io_sge sge = {.addr = bytes, .len_bytes = 512};
	struct gn_io_req req = {.sge = &sge, .n_sge = 1}, *list = &req, *none = NULL, *ended;
	struct gn_io_range range = {.rights = GN_REMOTE_READ};
	struct gn_io_region *read_only;
	struct gn_io_mem *mem;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_submit(NULL, &list, 1) == -EINVAL &&
	       gn_io_submit(u.queue, NULL, 1) == -EINVAL);
	EXPECT(gn_io_submit(u.queue, &none, 1) == -EINVAL);
	EXPECT(gn_io_submit(u.queue, &list, 1) == -EINVAL); /* no region */
	EXPECT(gn_io_submit(u.queue, &list, 0) == 0);
	req.region = u.region;
	req.offset = LENT_BYTES - 511;
	EXPECT(gn_io_submit(u.queue, &list, 1) == -ERANGE);
	req.offset = UINT64_MAX - 10;
	EXPECT(gn_io_submit(u.queue, &list, 1) == -ERANGE);
	req.offset = 0;
	req.op = (enum gn_io_op)7;
	EXPECT(gn_io_submit(u.queue, &list, 1) == -EINVAL);
	req.op = GN_IO_WRITE;
	req.n_sge = 0;
	EXPECT(gn_io_submit(u.queue, &list, 1) == -EINVAL);
	req.n_sge = GN_IO_SGE_MAX + 1;
	EXPECT(gn_io_submit(u.queue, &list, 1) == -EINVAL);
	req.n_sge = 1;
	sge.len_bytes = 0;
	EXPECT(gn_io_submit(u.queue, &list, 1) == -EMSGSIZE);
	sge.len_bytes = GN_IO_BYTES_MAX + 1;
	EXPECT(gn_io_submit(u.queue, &list, 1) == -EMSGSIZE);
	EXPECT(gn_io_mem_register(u.io, bytes, 1024, &mem) == 0);
	sge = (struct gn_io_sge){.addr = bytes + 1000, .len_bytes = 25, .mem = mem};
	EXPECT(gn_io_submit(u.queue, &list, 1) == -ERANGE);
	sge.addr = bytes;
	EXPECT(gn_mr_remote(w->lender.mr, &range.remote) == 0);
	EXPECT(gn_io_region_add(u.target, &range, &read_only) == 0);
	req.region = read_only;
	EXPECT(gn_io_submit(u.queue, &list, 1) == -EACCES);
	EXPECT(gn_io_wait(u.queue, &ended, 1, GN_FOREVER) == -EAGAIN);
	EXPECT(gn_io_poll(u.queue, &ended, 1) == 0);
	EXPECT(gn_io_destroy(u.io) == -EBUSY && gn_io_target_close(u.target) == -EBUSY);
	EXPECT(gn_io_region_remove(read_only) == 0);
	/* A key that the lender does not know: the request ends, the channel is made anew. */
	range.remote.key ^= 0x5a5a0000;
	EXPECT(gn_io_region_add(u.target, &range, &read_only) == 0);
	req.op = GN_IO_READ;
	req.region = read_only;
	EXPECT(gn_io_run(u.queue, &req) == -EACCES);
	req.region = u.region;
	EXPECT(gn_io_run(u.queue, &req) == 0);
	EXPECT(gn_io_region_remove(read_only) == 0);
	EXPECT(gn_io_mem_deregister(mem) == 0);
	EXPECT(user_close(&u) == 0);
	EXPECT(gn_io_destroy(NULL) == 0 && gn_io_target_close(NULL) == 0 &&
	       gn_io_region_remove(NULL) == 0 && gn_io_mem_deregister(NULL) == 0 &&
	       gn_io_queue_destroy(NULL) == 0);
	return 0;
}

static void test_misuse(void **state)
{
	(void)state;
	run_everywhere(program_misuse, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_breaks),	       cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_lost),	       cmocka_unit_test(test_threads),
		cmocka_unit_test(test_threads_breaks), cmocka_unit_test(test_source),
		cmocka_unit_test(test_misuse),	       cmocka_unit_test(test_lost_wakes),
		cmocka_unit_test(test_backlog),	       cmocka_unit_test(test_long_list),
		cmocka_unit_test(test_busy_sleeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
