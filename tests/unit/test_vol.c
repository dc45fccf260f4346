/* SPDX-License-Identifier: MIT */
/*
 * Volumes without failures: every operation at every alignment against a copy in local memory,
 * overlapping requests of several threads, and calls that are wrong.
 */
#include "vol_world.h"

#define BYTES (3u * VOL_SLAB + 3 * GN_VOL_BLOCK) /* the last extent is not whole */

/* ---- random operations ---- */

struct model {
	struct vol_world w;
	uint64_t seed;
	uint8_t *bytes, *got;
	uint8_t kind[BYTES / GN_VOL_BLOCK]; /* enum gn_vol_extent_kind, or EITHER */
};

#define EITHER 9 /* zeros, and a hole or not: a part of a hole was zeroed */

static uint64_t draw(struct model *m, uint64_t below)
{
	return ((uint64_t)unit_next(&m->seed) << 20 ^ unit_next(&m->seed)) % below;
}

/* Positions near the ends of blocks, stripes and extents are more likely. */
static uint64_t draw_offset(struct model *m)
{
	static const uint64_t units[] = {GN_VOL_BLOCK, 64 << 10, VOL_SLAB, VOL_SLAB, 1};
	const uint64_t unit = units[draw(m, 5)];
	uint64_t at = draw(m, BYTES / unit + 1) * unit + draw(m, 2) * draw(m, 60);

	if (at >= 60 && draw(m, 3) == 0)
		at -= 60;
	return at < BYTES ? at : BYTES - 1 - draw(m, 5000);
}

static uint64_t draw_len(struct model *m, uint64_t offset)
{
	static const uint64_t most[] = {1, 100, GN_VOL_BLOCK, 9000, 70000, VOL_SLAB + 100000};
	uint64_t len = draw(m, most[draw(m, 6)]) + 1;

	if (draw(m, 3) == 0) /* whole blocks to the end */
		len = (offset + len + GN_VOL_BLOCK - 1) / GN_VOL_BLOCK * GN_VOL_BLOCK - offset;
	return len < BYTES - offset ? len : BYTES - offset;
}

static void model_write(struct model *m, uint64_t offset, uint64_t len)
{
	for (uint64_t b = offset / GN_VOL_BLOCK; b * GN_VOL_BLOCK < offset + len; b++)
		m->kind[b] = GN_VOL_DATA;
}

static void model_zero(struct model *m, uint64_t offset, uint64_t len)
{
	memset(m->bytes + offset, 0, len);
	for (uint64_t b = offset / GN_VOL_BLOCK; b * GN_VOL_BLOCK < offset + len; b++) {
		const bool whole = b * GN_VOL_BLOCK >= offset &&
				   (b + 1) * GN_VOL_BLOCK <= offset + len;

		m->kind[b] = whole ? GN_VOL_HOLE : m->kind[b] == GN_VOL_DATA ? GN_VOL_DATA : EITHER;
	}
}

static void check_read(struct model *m, uint64_t offset, uint64_t len)
{
	memset(m->got, 0xee, len + 1);
	assert_int_equal(gn_vol_read(m->w.vol, m->got, len, offset), 0);
	assert_memory_equal(m->got, m->bytes + offset, len);
	assert_int_equal(m->got[len], 0xee);
}

struct extent_check {
	struct model *m;
	uint64_t at;
	int last;
};

static int check_extent(void *arg, uint64_t offset, uint64_t len, enum gn_vol_extent_kind kind)
{
	struct extent_check *c = arg;

	assert_int_equal(offset, c->at);
	assert_true(len && len % GN_VOL_BLOCK == 0);
	assert_true((int)kind != c->last);
	for (uint64_t b = offset / GN_VOL_BLOCK; b < (offset + len) / GN_VOL_BLOCK; b++)
		assert_true(c->m->kind[b] == kind ||
			    (c->m->kind[b] == EITHER && kind != GN_VOL_LOST));
	c->at += len;
	c->last = (int)kind;
	return 0;
}

static void check_extents(struct model *m)
{
	struct extent_check c = {.m = m, .last = -1};
	const uint64_t from = draw(m, BYTES / GN_VOL_BLOCK) * GN_VOL_BLOCK;
	const uint64_t to = from + (draw(m, (BYTES - from) / GN_VOL_BLOCK) + 1) * GN_VOL_BLOCK;

	c.at = from;
	assert_int_equal(gn_vol_extents(m->w.vol, from, to - from, check_extent, &c), 0);
	assert_int_equal(c.at, to);
}

static void model_blocking(struct model *m)
{
	const uint64_t offset = draw_offset(m), len = draw_len(m, offset);
	const unsigned flags = draw(m, 8) ? 0 : GN_VOL_FUA;

	switch (draw(m, 7)) {
	case 0:
	case 1:
		fill(m->bytes + offset, (uint32_t)len, unit_next(&m->seed));
		model_write(m, offset, len);
		assert_int_equal(gn_vol_write(m->w.vol, m->bytes + offset, len, offset, flags), 0);
		break;
	case 2:
		model_zero(m, offset, len);
		assert_int_equal(gn_vol_zero(m->w.vol, len, offset, flags), 0);
		break;
	case 3:
		model_zero(m, offset, len);
		assert_int_equal(gn_vol_discard(m->w.vol, len, offset, flags), 0);
		break;
	case 4:
		check_extents(m);
		if (draw(m, 4) == 0)
			assert_int_equal(gn_vol_flush(m->w.vol), 0);
		break;
	default:
		check_read(m, offset, len);
	}
}

/* ---- … with a queue ---- */

#define LISTED 8u

struct listed {
	struct gn_vol_req req;
	struct gn_io_sge sge[GN_VOL_SGE_MAX];
	uint8_t *buf;
};

static bool overlaps(const struct listed *l, unsigned n, uint64_t offset, uint64_t len)
{
	for (unsigned i = 0; i < n; i++)
		if (offset < l[i].req.offset + l[i].req.len_bytes && l[i].req.offset < offset + len)
			return true;
	return false;
}

/* Cuts a buffer into some pieces. */
static uint32_t cut(struct model *m, struct listed *l, uint64_t len, struct gn_io_mem *mem)
{
	uint32_t n = 0;
	uint64_t at = 0;

	while (at < len) {
		uint64_t piece = n + 1 == GN_VOL_SGE_MAX ? len - at : draw(m, len - at) + 1;

		if (draw(m, 4) == 0)
			piece = len - at;
		l->sge[n++] = (struct gn_io_sge){
			.addr = l->buf + at, .len_bytes = (uint32_t)piece, .mem = mem};
		at += piece;
	}
	return n;
}

static void model_list(struct model *m, struct gn_vol_queue *queue, struct listed *l,
		       struct gn_io_mem *mem)
{
	struct gn_vol_req *reqs[LISTED], *ended[LISTED];
	unsigned n = 0, done = 0;

	for (unsigned tries = 0; n < LISTED && tries < 20; tries++) {
		const uint64_t offset = draw_offset(m);
		uint64_t len = draw_len(m, offset);
		const enum gn_vol_op op = (enum gn_vol_op)draw(m, GN_VOL_FLUSH);
		struct listed *one = &l[n];

		if (len > 200000)
			len = 200000;
		if (overlaps(l, n, offset, len))
			continue;
		one->req = (struct gn_vol_req){.op = op, .offset = offset, .user = one};
		if (op == GN_VOL_READ || op == GN_VOL_WRITE) {
			one->req.sge = one->sge;
			one->req.n_sge = cut(m, one, len, draw(m, 2) ? mem : NULL);
		}
		one->req.len_bytes = len; /* which gn_vol_submit() finds out by itself */
		if (op == GN_VOL_WRITE) {
			fill(m->bytes + offset, (uint32_t)len, unit_next(&m->seed));
			memcpy(one->buf, m->bytes + offset, len);
			model_write(m, offset, len);
		} else if (op != GN_VOL_READ) {
			model_zero(m, offset, len);
		}
		reqs[n++] = &one->req;
	}
	for (unsigned at = 0; at < n || done < n;) {
		int rc = at < n ? gn_vol_submit(queue, reqs + at, n - at) : 0;

		assert_true(rc >= 0 || rc == -EAGAIN);
		at += rc > 0 ? (unsigned)rc : 0;
		rc = gn_vol_wait(queue, ended, LISTED, gn_deadline_us(LONG_US));
		assert_true(rc > 0);
		for (int i = 0; i < rc; i++) {
			const struct listed *one = ended[i]->user;

			assert_int_equal(ended[i]->status, 0);
			if (ended[i]->op == GN_VOL_READ)
				assert_memory_equal(one->buf, m->bytes + ended[i]->offset,
						    ended[i]->len_bytes);
		}
		done += (unsigned)rc;
	}
	assert_int_equal(done, n);
}

static void run_model(const struct gn_vol_opts *more, unsigned copies, unsigned donors)
{
	struct listed l[LISTED];
	struct gn_vol_queue *queue;
	struct gn_vol_opts opts;
	struct gn_io_mem *mem;
	static struct model m;
	uint8_t *bufs;

	m = (struct model){.seed = unit_seed()};
	world_open(&m.w, donors, 6);
	opts = vol_opts(&m.w, BYTES, copies);
	opts.verify = more->verify;
	opts.headroom = more->headroom;
	vol_open(&m.w, &opts);
	assert_int_equal(gn_vol_bytes(m.w.vol), BYTES);
	assert_int_equal(gn_vol_queue_create(m.w.vol, LISTED, &queue), 0);
	m.bytes = gn_alloc(BYTES, GN_PAGE);
	m.got = gn_alloc(BYTES + 1, GN_PAGE);
	bufs = gn_alloc(LISTED * VOL_SLAB, GN_PAGE);
	assert_int_equal(gn_io_mem_register(gn_vol_engine(m.w.vol), bufs, LISTED * VOL_SLAB, &mem),
			 0);
	for (unsigned i = 0; i < LISTED; i++)
		l[i].buf = bufs + i * VOL_SLAB;
	for (unsigned i = 0; i < (unit_slow() ? 150u : 600u); i++) {
		if (i % 3)
			model_blocking(&m);
		else
			model_list(&m, queue, l, mem);
	}
	check_read(&m, 0, BYTES);
	assert_int_equal(vol_stats(&m.w).failed, 0);
	assert_int_equal(vol_stats(&m.w).crc_errors, 0);
	assert_int_equal(gn_io_mem_deregister(mem), 0);
	assert_int_equal(gn_vol_queue_destroy(queue), 0);
	gn_free(m.bytes);
	gn_free(m.got);
	gn_free(bufs);
	world_close(&m.w);
}

static void test_model_one_copy(void **state)
{
	(void)state;
	run_model(&(struct gn_vol_opts){0}, 1, 2);
}

static void test_model_two_copies(void **state)
{
	(void)state;
	run_model(&(struct gn_vol_opts){0}, 2, 3);
}

static void test_model_verify(void **state)
{
	(void)state;
	run_model(&(struct gn_vol_opts){.verify = true}, 2, 2);
}

static void test_model_headroom(void **state)
{
	(void)state;
	run_model(&(struct gn_vol_opts){.headroom = 4 * VOL_SLAB, .verify = true}, 1, 3);
}

/* ---- extents ---- */

static int count_kinds(void *arg, uint64_t offset, uint64_t len, enum gn_vol_extent_kind kind)
{
	(void)offset;
	((uint64_t *)arg)[kind] += len;
	return 0;
}

static int stop_at_once(void *arg, uint64_t offset, uint64_t len, enum gn_vol_extent_kind kind)
{
	(void)offset, (void)len, (void)kind;
	++*(unsigned *)arg;
	return -ECANCELED;
}

static void test_extents(void **state)
{
	uint64_t bytes[3] = {0};
	struct vol_world w;
	uint8_t byte = 1;
	unsigned calls = 0;

	(void)state;
	world_open_vol(&w, 2, 6, BYTES, 2);
	assert_int_equal(gn_vol_extents(w.vol, 0, BYTES, count_kinds, bytes), 0);
	assert_int_equal(bytes[GN_VOL_HOLE], BYTES);
	assert_int_equal(gn_vol_write(w.vol, &byte, 1, VOL_SLAB - 1, 0), 0);
	assert_int_equal(gn_vol_write(w.vol, &byte, 1, BYTES - 1, 0), 0);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(gn_vol_extents(w.vol, 0, BYTES, count_kinds, bytes), 0);
	assert_int_equal(bytes[GN_VOL_DATA], 2 * GN_VOL_BLOCK);
	assert_int_equal(vol_stats(&w).blocks_written, 2);
	assert_int_equal(gn_vol_discard(w.vol, BYTES, 0, 0), 0);
	assert_int_equal(vol_stats(&w).blocks_written, 0);
	assert_int_equal(gn_vol_extents(w.vol, 0, BYTES, stop_at_once, &calls), -ECANCELED);
	assert_int_equal(calls, 1);
	assert_int_equal(gn_vol_extents(w.vol, 0, BYTES + 1, count_kinds, bytes), -EINVAL);
	assert_int_equal(gn_vol_extents(w.vol, BYTES, 1, count_kinds, bytes), -EINVAL);
	assert_int_equal(gn_vol_extents(w.vol, 0, BYTES, NULL, NULL), -EINVAL);
	world_close(&w);
}

/* ---- overlapping requests ---- */

#define THREADS	    4u
#define WINDOW	    16384u
#define WINDOW_AT   (VOL_SLAB / 2 - 4096) /* inside one stripe */
#define WRITES	    400u
#define CROSSING_AT (2 * VOL_SLAB - 30000)

struct writer {
	struct vol_world *w;
	unsigned number;
	uint64_t seed;
	uint64_t torn; /* READs that saw parts of two WRITEs */
};

static bool is_uniform(const uint8_t *bytes, uint32_t len)
{
	for (uint32_t i = 1; i < len; i++)
		if (bytes[i] != bytes[0])
			return false;
	return true;
}

static void writer_main(void *arg)
{
	struct writer *t = arg;
	uint8_t bytes[WINDOW];

	for (unsigned i = 0; i < WRITES; i++) {
		const uint32_t random = unit_next(&t->seed);
		const uint32_t at = random % 50000, len = 1 + (random >> 16) % (WINDOW - 1);

		memset(bytes, (int)(t->number * 50 + i % 50), WINDOW);
		/* Everybody writes the whole window, and parts of another range. */
		if (i % 3 == 0)
			gn_vol_write(t->w->vol, bytes, WINDOW, WINDOW_AT, 0);
		else
			gn_vol_write(t->w->vol, bytes, len, CROSSING_AT + at, 0);
		if (i % 3 == 0) {
			gn_vol_read(t->w->vol, bytes, WINDOW, WINDOW_AT);
			t->torn += !is_uniform(bytes, WINDOW);
		}
	}
}

static void run_overlapping(bool verify)
{
	struct writer writers[THREADS];
	struct gn_thread *threads[THREADS];
	struct gn_vol_opts opts;
	uint64_t seed = unit_seed();
	struct vol_world w;
	uint8_t bytes[WINDOW] = {1};

	world_open(&w, 3, 6);
	opts = vol_opts(&w, 3 * VOL_SLAB, 3);
	opts.verify = verify;
	vol_open(&w, &opts);
	mark_extents(&w);
	memset(bytes, 1, WINDOW);
	assert_int_equal(gn_vol_write(w.vol, bytes, WINDOW, WINDOW_AT, 0), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){.w = &w, .number = i, .seed = seed + i};
		assert_int_equal(gn_thread_start("writer", writer_main, &writers[i], &threads[i]),
				 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		gn_thread_join(threads[i]);
		assert_int_equal(writers[i].torn, 0);
	}
	assert_int_equal(vol_stats(&w).failed, 0);
	assert_int_equal(vol_stats(&w).crc_errors, 0);
	assert_int_equal(gn_vol_flush(w.vol), 0);
	assert_copies_equal(&w, 3);
	world_close(&w);
}

static void test_overlapping(void **state)
{
	(void)state;
	run_overlapping(false);
}

static void test_overlapping_verify(void **state)
{
	(void)state;
	run_overlapping(true);
}

/* Requests of one queue that overlap all end, in some order. */
static void test_overlapping_in_a_queue(void **state)
{
	enum { N = 64 };
	static uint8_t bufs[N][8192];
	struct gn_io_sge sges[N];
	struct gn_vol_req reqs[N], *list[N], *ended[N];
	struct gn_vol_queue *queue;
	struct gn_vol_opts opts;
	struct vol_world w;
	unsigned done = 0, at = 0;

	(void)state;
	world_open(&w, 2, 6);
	opts = vol_opts(&w, 2 * VOL_SLAB, 2);
	vol_open(&w, &opts);
	mark_extents(&w);
	assert_int_equal(gn_vol_queue_create(w.vol, N, &queue), 0);
	for (unsigned i = 0; i < N; i++) {
		memset(bufs[i], (int)i + 1, sizeof(bufs[i]));
		sges[i] = (struct gn_io_sge){.addr = bufs[i], .len_bytes = sizeof(bufs[i])};
		reqs[i] = (struct gn_vol_req){.op = i % 8 == 7 ? GN_VOL_DISCARD : GN_VOL_WRITE,
					      .offset = VOL_SLAB - 4096 - i % 4 * 1000,
					      .len_bytes = 8192,
					      .sge = &sges[i],
					      .n_sge = 1};
		list[i] = &reqs[i];
	}
	while (done < N) {
		int rc = at < N ? gn_vol_submit(queue, list + at, N - at) : 0;

		assert_true(rc >= 0 || rc == -EAGAIN);
		at += rc > 0 ? (unsigned)rc : 0;
		rc = gn_vol_wait(queue, ended, N, gn_deadline_us(LONG_US));
		assert_true(rc > 0);
		for (int i = 0; i < rc; i++)
			assert_int_equal(ended[i]->status, 0);
		done += (unsigned)rc;
	}
	assert_true(vol_stats(&w).serialised > 0);
	assert_int_equal(gn_vol_wait(queue, ended, N, GN_NO_WAIT), -EAGAIN);
	assert_int_equal(gn_vol_queue_destroy(queue), 0);
	world_close(&w);
}

/* ---- calls that are wrong ---- */

static void submit_fails(struct gn_vol_queue *queue, struct gn_vol_req req, int rc)
{
	struct gn_vol_req *list = &req;

	assert_int_equal(gn_vol_submit(queue, &list, 1), rc);
	assert_true(gn_error()[0] != 0);
}

static void test_misuse(void **state)
{
	uint8_t bytes[64] = {0};
	const struct gn_io_sge sge = {.addr = bytes, .len_bytes = sizeof(bytes)};
	const struct gn_io_sge none = {.addr = bytes, .len_bytes = 0};
	struct gn_vol_req req = {.op = GN_VOL_WRITE, .sge = &sge, .n_sge = 1}, *list = &req, *ended;
	struct gn_vol_queue *queue;
	struct vol_world w;

	(void)state;
	world_open_vol(&w, 2, 6, BYTES, 2);
	assert_int_equal(gn_vol_read(w.vol, bytes, 1, BYTES), -EINVAL);
	assert_int_equal(gn_vol_read(w.vol, bytes, 2, BYTES - 1), -EINVAL);
	assert_int_equal(gn_vol_read(w.vol, bytes, 1, UINT64_MAX), -EINVAL);
	assert_int_equal(gn_vol_write(w.vol, bytes, SIZE_MAX, 1, 0), -EINVAL);
	assert_int_equal(gn_vol_write(w.vol, bytes, 1, 0, 128), -EINVAL);
	assert_int_equal(gn_vol_write(w.vol, NULL, 1, 0, 0), -EINVAL);
	assert_int_equal(gn_vol_read(NULL, bytes, 1, 0), -EINVAL);
	assert_int_equal(gn_vol_zero(w.vol, UINT64_MAX, 1, 0), -EINVAL);
	assert_int_equal(gn_vol_zero(w.vol, 1, BYTES, 0), -EINVAL);
	assert_int_equal(gn_vol_discard(w.vol, BYTES + 1, 0, 0), -EINVAL);
	assert_int_equal(gn_vol_flush(NULL), -EINVAL);
	assert_int_equal(gn_vol_query(w.vol, NULL), -EINVAL);
	assert_int_equal(gn_vol_query(NULL, &(struct gn_vol_stats){.size = 8}), -EINVAL);
	assert_int_equal(gn_vol_read(w.vol, NULL, 0, 0), 0); /* nothing to do */
	assert_int_equal(gn_vol_zero(w.vol, 0, BYTES, 0), 0);

	assert_int_equal(gn_vol_queue_create(w.vol, 0, &queue), -EINVAL);
	assert_int_equal(gn_vol_queue_create(w.vol, 4097, &queue), -EINVAL);
	assert_int_equal(gn_vol_queue_create(NULL, 1, &queue), -EINVAL);
	assert_int_equal(gn_vol_queue_create(w.vol, 2, &queue), 0);
	assert_int_equal(gn_vol_destroy(w.vol), -EBUSY);
	submit_fails(queue, (struct gn_vol_req){.op = GN_VOL_OPS}, -EINVAL);
	submit_fails(queue, (struct gn_vol_req){.op = GN_VOL_READ}, -EINVAL);
	submit_fails(queue, (struct gn_vol_req){.sge = &sge, .n_sge = GN_VOL_SGE_MAX + 1}, -EINVAL);
	submit_fails(queue, (struct gn_vol_req){.sge = &none, .n_sge = 1}, -EMSGSIZE);
	submit_fails(queue, (struct gn_vol_req){.sge = &sge, .n_sge = 1, .offset = BYTES - 63},
		     -EINVAL);
	submit_fails(queue,
		     (struct gn_vol_req){.op = GN_VOL_DISCARD, .offset = 1, .len_bytes = BYTES},
		     -EINVAL);
	submit_fails(queue, (struct gn_vol_req){.sge = &sge, .n_sge = 1, .flags = 64}, -EINVAL);
	assert_int_equal(gn_vol_submit(queue, &list, 0), 0);
	assert_int_equal(gn_vol_wait(queue, &ended, 1, GN_NO_WAIT), -EAGAIN);
	assert_int_equal(gn_vol_submit(queue, &list, 1), 1);
	assert_int_equal(gn_vol_submit(queue, &list, 1), -EBUSY); /* it is under way */
	list = &(struct gn_vol_req){
		.op = GN_VOL_WRITE, .offset = VOL_SLAB, .sge = &sge, .n_sge = 1};
	assert_int_equal(gn_vol_submit(queue, &list, 1), 1);
	list = &(struct gn_vol_req){.op = GN_VOL_WRITE, .sge = &sge, .n_sge = 1};
	assert_int_equal(gn_vol_submit(queue, &list, 1), -EAGAIN); /* depth is 2 */
	assert_int_equal(gn_vol_queue_destroy(queue), -EBUSY);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(gn_vol_wait(queue, &ended, 1, gn_deadline_us(LONG_US)), 1);
	assert_int_equal(req.len_bytes, sizeof(bytes));
	assert_int_equal(gn_vol_queue_destroy(queue), 0);
	world_close(&w);
	assert_int_equal(gn_vol_destroy(NULL), 0);
}

/* Too long for one request, and a buffer in a mem of another engine. */
static void test_misuse_buffers(void **state)
{
	static uint8_t bytes[GN_VOL_BYTES_MAX + 4096];
	const struct gn_io_sge sge = {.addr = bytes, .len_bytes = sizeof(bytes)};
	struct gn_vol_req req = {.n_sge = 1}, *list = &req, *ended;
	struct gn_vol_queue *queue;
	struct gn_io_mem *mem;
	struct gn_io *io;
	struct vol_world w;

	(void)state;
	world_open_vol(&w, 2, 6, BYTES, 2);
	assert_int_equal(gn_vol_queue_create(w.vol, 1, &queue), 0);
	submit_fails(queue, (struct gn_vol_req){.sge = &sge, .n_sge = 1}, -EMSGSIZE);
	assert_int_equal(gn_io_create(w.fabric, NULL, &io), 0);
	assert_int_equal(gn_io_mem_register(io, bytes, sizeof(bytes), &mem), 0);
	req.sge = &(struct gn_io_sge){.addr = bytes, .len_bytes = 4096, .mem = mem};
	assert_int_equal(gn_vol_write(w.vol, bytes, 4096, 0, 0), 0);
	for (req.op = GN_VOL_READ; req.op <= GN_VOL_WRITE; req.op++) {
		assert_int_equal(gn_vol_submit(queue, &list, 1), 1);
		assert_int_equal(gn_vol_wait(queue, &ended, 1, gn_deadline_us(LONG_US)), 1);
		assert_int_equal(req.status, -ERANGE);
	}
	assert_int_equal(gn_io_mem_deregister(mem), 0);
	assert_int_equal(gn_io_destroy(io), 0);
	assert_int_equal(gn_io_mem_register(gn_vol_engine(w.vol), bytes, 4096, &mem), 0);
	assert_int_equal(gn_vol_queue_destroy(queue), 0);
	assert_int_equal(gn_vol_destroy(w.vol), -EBUSY); /* a mem of its engine */
	assert_int_equal(gn_io_mem_deregister(mem), 0);
	world_close(&w);
}

/* At once, when the volume's threads may not have begun yet. */
static void test_destroy_with_mem(void **state)
{
	static uint8_t bytes[4096];
	struct gn_vol_opts opts;
	struct gn_io_mem *mem;
	struct vol_world w;

	(void)state;
	world_open(&w, 2, 6);
	opts = vol_opts(&w, VOL_SLAB, 2);
	for (unsigned i = 0; i < 10; i++) {
		vol_open(&w, &opts);
		assert_int_equal(gn_io_mem_register(gn_vol_engine(w.vol), bytes, 4096, &mem), 0);
		assert_int_equal(gn_vol_destroy(w.vol), -EBUSY);
		assert_int_equal(gn_io_mem_deregister(mem), 0);
		assert_int_equal(gn_vol_destroy(w.vol), 0);
	}
	w.vol = NULL;
	world_close(&w);
}

static void create_fails(struct vol_world *w, struct gn_vol_opts opts, int rc, const char *words)
{
	struct gn_vol *vol = (struct gn_vol *)w;

	assert_int_equal(gn_vol_create(w->fabric, &opts, &vol), rc);
	assert_ptr_equal(vol, w); /* untouched */
	if (!strstr(gn_error(), words))
		fail_msg("gn_error() is \"%s\", without \"%s\"", gn_error(), words);
}

static void test_misuse_create(void **state)
{
	const char *twice[2], *nobody[2] = {NULL, "shm:vol-nobody-is-here"};
	struct gn_vol_opts good, bad;
	struct vol_world w;
	struct gn_vol *vol;

	(void)state;
	world_open(&w, 2, 4);
	good = vol_opts(&w, BYTES, 2);
#define BAD(member, value, rc, words)             \
	do {                                      \
		bad = good;                       \
		bad.member = value;               \
		create_fails(&w, bad, rc, words); \
	} while (0)
	BAD(size, 8, -EINVAL, "gn_vol_opts");
	BAD(bytes, 0, -EINVAL, "bytes");
	BAD(bytes, GN_VOL_BLOCK - 1, -EINVAL, "bytes");
	BAD(bytes, GN_VOL_SIZE_MAX + GN_VOL_BLOCK, -EINVAL, "bytes");
	BAD(copies, GN_VOL_COPIES_MAX + 1, -EINVAL, "copies");
	BAD(n_donors, 0, -EINVAL, "donors");
	BAD(n_donors, GN_VOL_DONORS_MAX + 1, -EINVAL, "donors");
	BAD(n_donors, 1, -EINVAL, "2 copies need as many donors");
	BAD(repair_share, 101, -EINVAL, "repair_share");
	BAD(owner, "an owner with blanks", -EINVAL, "owner");
	BAD(bytes, 5 * VOL_SLAB, -ENOSPC, "memory"); /* the donors have four slabs each */
	twice[0] = twice[1] = w.addrs[0];
	BAD(donors, twice, -ENOTUNIQ, w.addrs[0]);
	nobody[0] = w.addrs[0];
	bad = good;
	bad.donors = nobody;
	bad.timeout_us = 1500000;
	create_fails(&w, bad, -ECONNREFUSED, nobody[1]);
	assert_int_equal(gn_vol_create(NULL, &good, &vol), -EINVAL);
	assert_int_equal(gn_vol_create(w.fabric, NULL, &vol), -EINVAL);
	assert_int_equal(gn_vol_create(w.fabric, &good, NULL), -EINVAL);
	/* Nothing of all that is left with the donors. */
	vol_open(&w, &good);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model_one_copy),
		cmocka_unit_test(test_model_two_copies),
		cmocka_unit_test(test_model_verify),
		cmocka_unit_test(test_model_headroom),
		cmocka_unit_test(test_extents),
		cmocka_unit_test(test_overlapping),
		cmocka_unit_test(test_overlapping_verify),
		cmocka_unit_test(test_overlapping_in_a_queue),
		cmocka_unit_test(test_misuse),
		cmocka_unit_test(test_misuse_buffers),
		cmocka_unit_test(test_destroy_with_mem),
		cmocka_unit_test(test_misuse_create),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
