/* SPDX-License-Identifier: MIT */
/* The I/O engine: wake-ups, fairness, deadlines of repeated requests, donors that misbehave. */
#include "io_world.h"

#define WAIT_US 10000000u /* far longer than anything here takes */

static void req_init(struct gn_io_req *req, struct gn_io_sge *sge, struct user *u, enum gn_io_op op,
		     uint64_t offset, void *bytes, uint32_t len, struct gn_io_mem *mem)
{
	*sge = (struct gn_io_sge){.addr = bytes, .len_bytes = len, .mem = mem};
	*req = (struct gn_io_req){
		.op = op, .region = u->region, .offset = offset, .sge = sge, .n_sge = 1};
}

static int wait_one(struct gn_io_queue *queue)
{
	struct gn_io_req *ended;

	return gn_io_wait(queue, &ended, 1, gn_deadline_us(WAIT_US));
}

/* A stripe is 1 MiB, and consecutive stripes are on different channels. */
#define STRIPE(i) ((uint64_t)(i) << 20)

/* ---- a window that is full ---- */

struct other {
	struct user *u;
	struct gn_io_queue *queue;
	uint8_t *bytes;
	struct gn_io_mem *mem;
	unsigned loops;
	bool started; /* atomic */
	int rc;
};

static int other_large_run(struct other *o)
{
	struct gn_io_req req;
	struct gn_io_sge sge;

	for (unsigned i = 0; i < o->loops; i++) {
		req_init(&req, &sge, o->u, GN_IO_READ, STRIPE(1), o->bytes, 1 << 20, o->mem);
		__atomic_store_n(&o->started, true, __ATOMIC_RELEASE);
		EXPECT(gn_io_run(o->queue, &req) == 0);
	}
	return 0;
}

static void other_large(void *arg)
{
	struct other *o = arg;

	o->rc = other_large_run(o);
}

/*
 * A thread that sleeps because a window holds its request back is woken when another thread's
 * request, on another channel, has completed within the post.
 */
static int program_window_wakes(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *bytes = gn_alloc(2 << 20, 4096);
	struct other o = {.loops = 1, .bytes = bytes};
	struct gn_io_req req, *list = &req;
	struct gn_thread *thread;
	struct gn_io_sge sge;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_queue_create(u.io, 4, &o.queue) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, 2 << 20, &o.mem) == 0);
	o.u = &u;
	for (unsigned i = 0; i < 300; i++) {
		o.started = false;
		EXPECT(gn_thread_start("large", other_large, &o, &thread) == 0);
		while (!__atomic_load_n(&o.started, __ATOMIC_ACQUIRE))
			gn_yield();
		for (unsigned k = 0; k < 20; k++) {
			req_init(&req, &sge, &u, GN_IO_READ, 0, bytes + (1 << 20), 4096, o.mem);
			EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
			EXPECT(wait_one(u.queue) == 1 && req.status == 0);
		}
		EXPECT(gn_thread_join(thread) == 0);
		EXPECT(o.rc == 0);
	}
	EXPECT(gn_io_mem_deregister(o.mem) == 0);
	EXPECT(gn_io_queue_destroy(o.queue) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(bytes);
	return 0;
}

static void test_window_wakes(void **state)
{
	(void)state;
	run_here(program_window_wakes,
		 &(struct gn_io_opts){.polling = GN_IO_EVENT, .read_window = 4096});
}

static void other_expires(void *arg)
{
	struct other *o = arg;
	struct gn_io_req req, *list = &req;
	struct gn_io_sge sge;

	req_init(&req, &sge, o->u, GN_IO_READ, STRIPE(1), o->bytes, 1 << 20, o->mem);
	req.deadline_ns = gn_deadline_us(20000);
	o->rc = gn_io_submit(o->queue, &list, 1);
	__atomic_store_n(&o->started, true, __ATOMIC_RELEASE);
	if (o->rc == 1)
		o->rc = wait_one(o->queue) == 1 ? req.status : -EIO;
}

/* … and when that request was in flight on a connection that broke. */
static int program_window_broken(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *bytes = gn_alloc(2 << 20, 4096);
	struct other o = {.bytes = bytes};
	struct gn_io_req req, *list = &req;
	struct gn_thread *thread;
	struct gn_io_sge sge;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_queue_create(u.io, 4, &o.queue) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, 2 << 20, &o.mem) == 0);
	o.u = &u;
	w->lender.broken = 1; /* the second channel is the next to break */
	w->lender.refuse = true;
	EXPECT(gn_thread_start("expires", other_expires, &o, &thread) == 0);
	while (!__atomic_load_n(&o.started, __ATOMIC_ACQUIRE))
		gn_sleep_us(1);
	req_init(&req, &sge, &u, GN_IO_READ, 0, bytes + (1 << 20), 4096, o.mem);
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	__atomic_store_n(&w->lender.breaks, 2, __ATOMIC_RELEASE);
	EXPECT(gn_io_wait(u.queue, &list, 1, gn_deadline_us(1000000)) == 1 && req.status == 0);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(o.rc == -ETIMEDOUT || o.rc == 0);
	EXPECT(gn_io_mem_deregister(o.mem) == 0);
	EXPECT(gn_io_queue_destroy(o.queue) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(bytes);
	return 0;
}

static void test_window_broken(void **state)
{
	(void)state;
	run_simulated(program_window_broken, &(struct gn_io_opts){.read_window = 4096});
}

/* ---- fairness ---- */

#define FLOOD 32u

struct flood {
	struct gn_io_req reqs[FLOOD];
	struct gn_io_sge sges[FLOOD];
	struct gn_io_queue *queue;
	unsigned ended;
	bool stop;
};

static void flood_again(struct gn_io_req *req)
{
	struct flood *f = req->user;

	f->ended++;
	if (!f->stop && gn_io_submit(f->queue, &req, 1) != 1)
		abort();
}

static int flood_start(struct flood *f, struct user *u, uint8_t *bytes, struct gn_io_mem *mem,
		       uint64_t offset, uint64_t step)
{
	f->queue = u->queue;
	for (unsigned i = 0; i < FLOOD; i++) {
		struct gn_io_req *req = &f->reqs[i];

		req_init(req, &f->sges[i], u, GN_IO_READ, offset + i * step, bytes, 4096, mem);
		req->done = flood_again;
		req->user = f;
		EXPECT(gn_io_submit(u->queue, &req, 1) == 1);
	}
	return 0;
}

static int flood_stop(struct flood *f)
{
	int rc = 0;

	f->stop = true;
	while (rc >= 0)
		rc = gn_io_wait(f->queue, NULL, FLOOD, gn_deadline_us(UNIT_PATIENCE_US));
	return rc == -EAGAIN ? 0 : rc;
}

/* One request beside a flood of READs of 4 KiB ends before many of those have. */
static int flooded(struct world *w, struct gn_fabric *fabric, enum gn_io_op op, uint32_t len,
		   unsigned channel)
{
	uint8_t *bytes = gn_alloc(2 << 20, 4096);
	struct flood *f = gn_alloc(sizeof(*f), 0);
	struct gn_io_req req, *list = &req;
	struct gn_io_mem *mem;
	struct gn_io_sge sge;
	unsigned before;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, 2 << 20, &mem) == 0);
	EXPECT(flood_start(f, &u, bytes + (1 << 20), mem, 0, 8192) == 0);
	while (f->ended < 100)
		EXPECT(gn_io_wait(u.queue, NULL, 1, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
	before = f->ended;
	req_init(&req, &sge, &u, op, STRIPE(channel), bytes, len, mem);
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	list = NULL;
	while (!list && f->ended < before + 2000)
		EXPECT(gn_io_wait(u.queue, &list, 1, gn_deadline_us(UNIT_PATIENCE_US)) > 0);
	EXPECT(list == &req && req.status == 0);
	EXPECT(flood_stop(f) == 0);
	EXPECT(gn_io_mem_deregister(mem) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(f);
	gn_free(bytes);
	return 0;
}

static int program_write_beside_reads(struct world *w, struct gn_fabric *fabric)
{
	return flooded(w, fabric, GN_IO_WRITE, 4096, 0);
}

/* READs that fill the send queue do not keep a WRITE out. */
static void test_write_beside_reads(void **state)
{
	(void)state;
	run_simulated(program_write_beside_reads,
		      &(struct gn_io_opts){.depth = 4, .channels = 1, .batching = GN_IO_DOORBELL});
}

static int program_large_beside_small(struct world *w, struct gn_fabric *fabric)
{
	return flooded(w, fabric, GN_IO_READ, 1 << 20, 1);
}

/* Short requests do not keep a request out that is larger than the window. */
static void test_large_beside_small(void **state)
{
	(void)state;
	run_simulated(program_large_beside_small, &(struct gn_io_opts){.read_window = 65536});
}

/* Refuses short requests, as long as there are others. */
static bool admit_long(void *arg, enum gn_io_op op, uint64_t bytes, uint64_t in_flight)
{
	(void)arg, (void)op, (void)in_flight;
	return bytes >= 4096;
}

struct flooder {
	struct flood f;
	struct user u; /* with a queue of its own */
	uint8_t *bytes;
	struct gn_io_mem *mem;
	bool started, stop; /* atomic */
	int rc;
};

static int flooder_run(struct flooder *t)
{
	EXPECT(flood_start(&t->f, &t->u, t->bytes, t->mem, 0, 8192) == 0);
	__atomic_store_n(&t->started, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE))
		EXPECT(gn_io_wait(t->u.queue, NULL, 1, gn_deadline_us(WAIT_US)) > 0);
	return flood_stop(&t->f);
}

static void flooder_main(void *arg)
{
	struct flooder *t = arg;

	t->rc = flooder_run(t);
}

/* A wait ends at its deadline, even if it always finds completions for another thread. */
static int program_wait_deadline(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *bytes = gn_alloc(8192, 4096);
	struct flooder *t = gn_alloc(sizeof(*t), 0);
	struct gn_io_req req, *list = &req;
	struct gn_thread *thread;
	struct gn_io_sge sge;
	uint64_t begin_ns;
	struct user u;
	int rc;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, 8192, &t->mem) == 0);
	t->u = u;
	t->bytes = bytes;
	EXPECT(gn_io_queue_create(u.io, FLOOD, &t->u.queue) == 0);
	EXPECT(gn_thread_start("flooder", flooder_main, t, &thread) == 0);
	while (!__atomic_load_n(&t->started, __ATOMIC_ACQUIRE))
		gn_sleep_us(1);
	req_init(&req, &sge, &u, GN_IO_READ, 0, bytes + 4096, 512, t->mem);
	begin_ns = gn_now_ns();
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	rc = gn_io_wait(u.queue, &list, 1, gn_deadline_us(1000));
	EXPECT(rc == -ETIMEDOUT || rc == 1);
	EXPECT(!w->simulated || gn_now_ns() - begin_ns < 1500000);
	__atomic_store_n(&t->stop, true, __ATOMIC_RELEASE);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(t->rc == 0);
	EXPECT(rc == 1 || wait_one(u.queue) == 1);
	EXPECT(gn_io_queue_destroy(t->u.queue) == 0);
	EXPECT(gn_io_mem_deregister(t->mem) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(t);
	gn_free(bytes);
	return 0;
}

static void test_wait_deadline(void **state)
{
	(void)state;
	for (unsigned p = 0; p < GN_IO_POLLINGS; p++)
		run_simulated(program_wait_deadline,
			      &(struct gn_io_opts){.polling = (enum gn_io_polling)p,
						   .channels = 1,
						   .admit = admit_long});
}

/* ---- queues ---- */

#define MANY 65536u

/* As many requests as a queue can have, all on one channel that is not connected. */
static int program_deep_queue(struct world *w, struct gn_fabric *fabric)
{
	struct gn_io_req *reqs = gn_alloc(MANY * sizeof(*reqs), 0), **list;
	uint8_t bytes[64];
	struct gn_io_queue *queue;
	struct gn_io_mem *mem;
	struct gn_io_sge sge;
	struct user u;
	unsigned got = 0;

	list = gn_alloc(MANY * sizeof(*list), 0);
	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, sizeof(bytes), &mem) == 0);
	EXPECT(gn_io_queue_create(u.io, MANY, &queue) == 0);
	__atomic_store_n(&w->lender.refuse, true, __ATOMIC_RELAXED);
	__atomic_store_n(&w->lender.breaks, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&w->lender.broken, __ATOMIC_ACQUIRE))
		gn_sleep_us(50);
	for (unsigned i = 0; i < MANY; i++) {
		req_init(&reqs[i], &sge, &u, GN_IO_READ, 0, bytes, sizeof(bytes), mem);
		reqs[i].deadline_ns = gn_deadline_us(50000);
		list[i] = &reqs[i];
	}
	EXPECT(gn_io_submit(queue, list, MANY) == (int)MANY);
	EXPECT(gn_io_submit(queue, list, 1) == -EAGAIN);
	while (got < MANY) {
		int rc = gn_io_wait(queue, list, MANY, gn_deadline_us(UNIT_PATIENCE_US));

		EXPECT(rc > 0);
		got += (unsigned)rc;
	}
	EXPECT(gn_io_queue_destroy(queue) == 0);
	EXPECT(gn_io_mem_deregister(mem) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(list);
	gn_free(reqs);
	return 0;
}

static void test_deep_queue(void **state)
{
	(void)state;
	run_here(program_deep_queue, &(struct gn_io_opts){.channels = 1});
}

/* An event loop that looks at the source before it polls learns of a request that ended at once. */
static int program_source_first(struct world *w, struct gn_fabric *fabric)
{
	uint8_t bytes[512];
	struct gn_io_req req, beside, *list = &req;
	struct gn_io_sge sge, sge_beside;
	struct gn_source *source;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	/* One that ended before the source was asked for. */
	req_init(&req, &sge, &u, GN_IO_READ, 0, bytes, sizeof(bytes), NULL);
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	EXPECT(gn_io_queue_source(u.queue, &source) == 0);
	for (unsigned i = 0; i < 20; i++) {
		struct gn_wait_item item = gn_wait_on(source);

		while (gn_wait(&item, 1, gn_deadline_us(1000000), "test") >= 0 &&
		       gn_io_poll(u.queue, &list, 1) == 0)
			;
		EXPECT(req.status == 0 && gn_io_poll(u.queue, &list, 1) == 0);
		EXPECT(gn_io_cancel(&req) == -EINVAL); /* it was reaped */
		EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
		if (i % 2)
			continue;
		/* It may end while gn_io_run() waits for another one. */
		req_init(&beside, &sge_beside, &u, GN_IO_READ, 0, bytes, sizeof(bytes), NULL);
		EXPECT(gn_io_run(u.queue, &beside) == 0);
	}
	EXPECT(wait_one(u.queue) == 1);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_source_first(void **state)
{
	(void)state;
	run_everywhere(program_source_first, NULL);
}

static void done_destroys(struct gn_io_req *req)
{
	struct gn_io_queue **queue = req->user;

	if (gn_io_queue_destroy(*queue) == 0)
		*queue = NULL;
}

/* The last request's done must not destroy the queue that calls it. */
static int program_destroy_in_done(struct world *w, struct gn_fabric *fabric)
{
	uint8_t bytes[512];
	struct gn_io_queue *queue;
	struct gn_io_req req, *list = &req;
	struct gn_io_sge sge;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_queue_create(u.io, 4, &queue) == 0);
	req_init(&req, &sge, &u, GN_IO_READ, 0, bytes, sizeof(bytes), NULL);
	req.done = done_destroys;
	req.user = &queue;
	EXPECT(gn_io_submit(queue, &list, 1) == 1);
	EXPECT(wait_one(queue) == 1);
	EXPECT(queue);
	EXPECT(gn_io_queue_destroy(queue) == 0);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_destroy_in_done(void **state)
{
	(void)state;
	run_everywhere(program_destroy_in_done, NULL);
}

/* ---- connections that break ---- */

/* Two READs were posted when the connection broke; it does not come back. */
static int program_repeat_ends(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *bytes = gn_alloc(2 << 20, 4096);
	struct gn_io_req due, cancelled, *list = &due, *ended[2];
	struct gn_io_sge sges[2];
	struct gn_io_mem *mem;
	unsigned got = 0;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, 2 << 20, &mem) == 0);
	req_init(&due, &sges[0], &u, GN_IO_READ, 0, bytes, 1 << 20, mem);
	due.deadline_ns = gn_deadline_us(20000);
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	list = &cancelled;
	req_init(&cancelled, &sges[1], &u, GN_IO_READ, 0, bytes + (1 << 20), 1 << 20, mem);
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	EXPECT(gn_io_cancel(&cancelled) == 0); /* too late: both are in flight */
	w->lender.refuse = true;
	__atomic_store_n(&w->lender.breaks, 1, __ATOMIC_RELEASE);
	while (got < 2) {
		int rc = gn_io_wait(u.queue, ended, 2, gn_deadline_us(1000000));

		EXPECT(rc > 0);
		got += (unsigned)rc;
	}
	EXPECT(due.status == -ETIMEDOUT && cancelled.status == -ECANCELED);
	EXPECT(gn_io_mem_deregister(mem) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(bytes);
	return 0;
}

static void test_repeat_ends(void **state)
{
	(void)state;
	run_simulated(program_repeat_ends, &(struct gn_io_opts){.channels = 1});
}

/*
 * A lender that accepts each connection and drops it: it is not asked without a pause, and after
 * lost_us it is lost. The service thread connects; no request is there to succeed by chance. But
 * where the message of a disconnect was lost, only a request finds out.
 */
static int program_drops(struct world *w, struct gn_fabric *fabric)
{
	const uint64_t deadline_ns = gn_deadline_us(2 * WAIT_US);
	uint64_t request_ns = gn_deadline_us(WAIT_US / 4);
	uint8_t bytes[512];
	struct gn_source *source;
	struct gn_io_req req;
	struct gn_io_sge sge;
	unsigned before;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	before = __atomic_load_n(&w->lender.accepted, __ATOMIC_RELAXED);
	EXPECT(gn_io_queue_source(u.queue, &source) == 0);
	__atomic_store_n(&w->lender.drop, true, __ATOMIC_RELAXED);
	__atomic_store_n(&w->lender.breaks, 1, __ATOMIC_RELEASE);
	while (gn_io_target_state(u.target) == 0 && gn_now_ns() < deadline_ns) {
		gn_sleep_us(1000);
		if (gn_now_ns() < request_ns)
			continue;
		req_init(&req, &sge, &u, GN_IO_READ, 0, bytes, sizeof(bytes), NULL);
		req.deadline_ns = gn_deadline_us(WAIT_US / 10);
		EXPECT(gn_io_run(u.queue, &req) != -EINVAL);
		request_ns = gn_deadline_us(WAIT_US / 4);
	}
	EXPECT(gn_io_target_state(u.target) == -ESTALE);
	EXPECT(__atomic_load_n(&w->lender.accepted, __ATOMIC_RELAXED) - before < 60);
	req_init(&req, &sge, &u, GN_IO_WRITE, 0, bytes, sizeof(bytes), NULL);
	EXPECT(gn_io_run(u.queue, &req) == -ESTALE);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_drops(void **state)
{
	(void)state;
	run_everywhere(program_drops, &(struct gn_io_opts){.channels = 1, .lost_us = 500000});
}

/* The channels of a share have one range and its rights, or it is not opened. */
static int program_share(struct world *w, struct gn_fabric *fabric)
{
	struct gn_io_target_opts opts = {.size = sizeof(opts), .incarnation = INCARNATION};
	struct gn_io_target *target = NULL;
	struct gn_io_range range = {0};
	struct gn_source *source;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_queue_source(u.queue, &source) == 0); /* another thread connects, too */
	opts.share = true;
	for (unsigned i = 0; i < 20; i++) {
		__atomic_store_n(&w->lender.odd, i % 2, __ATOMIC_RELAXED);
		opts.generation = 1000 * (i + 1);
		EXPECT(gn_io_target_open(u.io, w->addr, &opts, &range, &target) ==
		       (i % 2 ? -ESTALE : 0));
		if (i % 2)
			continue;
		EXPECT(range.remote.length == LENT_BYTES && range.rights == GN_REMOTE_READ);
		EXPECT(gn_io_target_close(target) == 0);
	}
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_share(void **state)
{
	(void)state;
	run_everywhere(program_share, NULL);
}

/* While a source is waited for, deadlines are kept by the service thread. */
static int program_source_deadline(struct world *w, struct gn_fabric *fabric)
{
	uint8_t bytes[512];
	struct gn_io_req req, *list = &req;
	struct gn_wait_item item;
	struct gn_source *source;
	struct gn_io_sge sge;
	uint64_t begin_ns;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_queue_source(u.queue, &source) == 0);
	__atomic_store_n(&w->lender.refuse, true, __ATOMIC_RELAXED);
	__atomic_store_n(&w->lender.breaks, 1, __ATOMIC_RELEASE);
	gn_sleep_us(500000); /* now attempts to connect are rare */
	for (unsigned i = 0; i < 4; i++) {
		req_init(&req, &sge, &u, GN_IO_READ, 0, bytes, sizeof(bytes), NULL);
		begin_ns = gn_now_ns();
		req.deadline_ns = begin_ns + 5000000;
		EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
		item = gn_wait_on(source);
		EXPECT(gn_wait(&item, 1, gn_deadline_us(WAIT_US), "test") >= 0);
		EXPECT(gn_now_ns() - begin_ns < 10000000);
		EXPECT(gn_io_poll(u.queue, &list, 1) == 1 && req.status == -ETIMEDOUT);
	}
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_source_deadline(void **state)
{
	(void)state;
	run_simulated(program_source_deadline, &(struct gn_io_opts){.channels = 1});
}

/* ---- what a request refers to ---- */

static void other_cancels(void *arg)
{
	struct gn_io_req *req = arg;

	gn_sleep_us(60000);
	gn_io_cancel(req);
}

static int program_refers(struct world *w, struct gn_fabric *fabric)
{
	uint8_t bytes[512];
	struct gn_io_req req, *list = &req;
	struct gn_thread *thread;
	struct gn_io_mem *mem;
	struct gn_io_sge sge;
	struct user u;
	uint64_t begin_ns;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, sizeof(bytes), &mem) == 0);
	__atomic_store_n(&w->lender.refuse, true, __ATOMIC_RELAXED);
	__atomic_store_n(&w->lender.breaks, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&w->lender.broken, __ATOMIC_ACQUIRE))
		gn_sleep_us(50);
	req_init(&req, &sge, &u, GN_IO_READ, 0, bytes, sizeof(bytes), mem);
	EXPECT(gn_io_submit(u.queue, &list, 1) == 1);
	EXPECT(gn_io_region_remove(u.region) == -EBUSY);
	EXPECT(gn_io_mem_deregister(mem) == -EBUSY);
	/* Another thread may cancel: the owner, which sleeps, wakes. */
	EXPECT(gn_thread_start("cancels", other_cancels, &req, &thread) == 0);
	begin_ns = gn_now_ns();
	EXPECT(wait_one(u.queue) == 1 && req.status == -ECANCELED);
	EXPECT(!w->simulated || gn_now_ns() - begin_ns < 62000000);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(gn_io_mem_deregister(mem) == 0);
	EXPECT(user_close(&u) == 0);
	return 0;
}

static void test_refers(void **state)
{
	(void)state;
	run_everywhere(program_refers, &(struct gn_io_opts){.channels = 1});
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window_wakes),
		cmocka_unit_test(test_window_broken),
		cmocka_unit_test(test_write_beside_reads),
		cmocka_unit_test(test_large_beside_small),
		cmocka_unit_test(test_wait_deadline),
		cmocka_unit_test(test_deep_queue),
		cmocka_unit_test(test_source_first),

		cmocka_unit_test(test_destroy_in_done),
		cmocka_unit_test(test_repeat_ends),
		cmocka_unit_test(test_drops),
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_source_deadline),
		cmocka_unit_test(test_refers),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
