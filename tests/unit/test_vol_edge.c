/* SPDX-License-Identifier: MIT */
/*
 * Volumes where two things happen at once: WRITEs while their blocks are backed up, wrong bytes on
 * the last copy, requests that end in gn_vol_submit(), buffers that the engine refuses.
 */
#define EXTENTS 2u
#include "vol_filled.h"

/* ---- backup ---- */

/* A block that is written while its older bytes go to the backup is still behind. */
static void test_written_while_backed_up(void **state)
{
	static struct backup b;
	const struct gn_vol_backup backup = {backup_read, backup_write, backup_sync, &b, 0};
	struct vol_world w;

	(void)state;
	open_filled(&w, 2, 1, 6, &(struct gn_vol_opts){.backup = &backup});
	assert_int_equal(gn_vol_flush(w.vol), 0);
	b.vol = w.vol;
	fill(bytes + 8 * GN_VOL_BLOCK, GN_VOL_BLOCK, 76);
	__atomic_store_n(&b.overwrite, 8 * GN_VOL_BLOCK + 1, __ATOMIC_RELEASE);
	assert_int_equal(
		gn_vol_write(w.vol, bytes + 8 * GN_VOL_BLOCK, GN_VOL_BLOCK, 8 * GN_VOL_BLOCK, 0),
		0);
	assert_int_equal(gn_vol_flush(w.vol), 0);
	assert_int_equal(gn_vol_flush(w.vol), 0); /* the second begins after the WRITE */
	assert_int_equal(__atomic_load_n(&b.overwrite, __ATOMIC_ACQUIRE), 0);
	assert_memory_equal(b.bytes, bytes, BYTES);
	assert_int_equal(vol_stats(&w).backup_lag, 0);
	check_all(&w);
	world_close(&w);
}

/* Blocks with wrong bytes on the last copy leave the count of what is behind. */
static void test_lag_of_lost_blocks(void **state)
{
	static struct backup b;
	const struct gn_vol_backup backup = {backup_read, backup_write, backup_sync, &b, 0};
	uint8_t *copy[MOST], block[GN_VOL_BLOCK];
	struct gn_vol_stats s;
	struct vol_world w;

	(void)state;
	open_filled(&w, 2, 1, 6, &(struct gn_vol_opts){.backup = &backup, .verify = true});
	assert_int_equal(gn_vol_flush(w.vol), 0);
	__atomic_store_n(&b.refuse, 1, __ATOMIC_RELEASE);
	assert_int_equal(gn_vol_write(w.vol, bytes, GN_VOL_BLOCK, 0, 0), 0);
	VOL_AWAIT(&w, s, s.backup_error == -EIO);
	assert_int_equal(s.backup_lag, GN_VOL_BLOCK);
	assert_int_equal(copies_of(&w, 0, copy), 1);
	copy[0][5] ^= 1;
	assert_int_equal(gn_vol_read(w.vol, block, 1, 0), -EIO);
	VOL_AWAIT(&w, s, s.backup_lag == 0);
	assert_int_equal(gn_vol_write(w.vol, bytes, GN_VOL_BLOCK, 0, 0), 0);
	__atomic_store_n(&b.refuse, 0, __ATOMIC_RELEASE);
	assert_int_equal(gn_vol_flush(w.vol), 0);
	VOL_AWAIT(&w, s, s.backup_lag == 0);
	check_all(&w);
	world_close(&w);
}

/* ---- wrong bytes ---- */

/* Repair finds a wrong block on the only copy: that block is lost, not the extent. */
static void test_repair_finds_wrong_block(void **state)
{
	uint8_t *copy[MOST], block[GN_VOL_BLOCK];
	struct gn_vol_stats s;
	struct vol_world w;

	(void)state;
	open_filled(&w, 2, 2, 6, &(struct gn_vol_opts){.verify = true});
	donor_kill(&w, 0);
	VOL_AWAIT(&w, s, s.with_copies[1] == EXTENTS);
	assert_int_equal(copies_of(&w, 0, copy), 1);
	copy[0][3 * GN_VOL_BLOCK] ^= 1;
	donor_start(&w, 0);
	assert_int_equal(gn_vol_wait_repaired(w.vol, gn_deadline_us(LONG_US)), 0);
	s = vol_stats(&w);
	assert_int_equal(s.blocks_lost, 1);
	assert_int_equal(s.crc_errors, 1);
	assert_int_equal(gn_vol_read(w.vol, block, 1, 3 * GN_VOL_BLOCK), -EIO);
	assert_int_equal(
		gn_vol_write(w.vol, bytes + 3 * GN_VOL_BLOCK, GN_VOL_BLOCK, 3 * GN_VOL_BLOCK, 0),
		0);
	check_all(&w);
	assert_copies_equal(&w, 2);
	world_close(&w);
}

/*
 * A block is wrong on one copy, and the donor of the other is down: if that does not come back, this
 * block is lost, and not the extent.
 */
static void test_wrong_while_other_is_down(void **state)
{
	uint8_t *copy[MOST], block[GN_VOL_BLOCK];
	struct gn_vol_stats s;
	struct vol_world w;
	unsigned donor;

	(void)state;
	open_filled(&w, 2, 2, 6, &(struct gn_vol_opts){.verify = true, .detect_us = 200000});
	donor = donor_read(&w, 0);
	assert_int_equal(copies_of(&w, 0, copy), 2);
	copy[donor][3 * GN_VOL_BLOCK] ^= 1;
	donor_kill(&w, !donor);
	VOL_AWAIT(&w, s, s.donors[!donor].state == GN_VOL_DONOR_DOWN);
	assert_int_equal(gn_vol_read(w.vol, block, GN_VOL_BLOCK, 3 * GN_VOL_BLOCK), -EIO);
	VOL_AWAIT(&w, s, s.with_copies[1] == EXTENTS);
	assert_int_equal(s.blocks_lost, 1);
	assert_int_equal(s.crc_errors, 1);
	assert_int_equal(
		gn_vol_write(w.vol, bytes + 3 * GN_VOL_BLOCK, GN_VOL_BLOCK, 3 * GN_VOL_BLOCK, 0),
		0);
	check_all(&w);
	world_close(&w);
}

/* A slab that was not zero when it was granted: holes are zeros all the same. */
static void test_slab_is_not_zero(void **state)
{
	uint8_t *copy[MOST], *at;
	struct vol_world w;

	(void)state;
	world_open_vol(&w, 1, 6, BYTES, 1);
	mark_extents(&w);
	assert_int_equal(copies_of(&w, 0, copy), 1);
	at = copy[0] + MARK_AT + GN_VOL_BLOCK;
	memset(at, 0x5a, GN_VOL_BLOCK);
	assert_int_equal(gn_vol_read(w.vol, got, 2 * GN_VOL_BLOCK, MARK_AT), 0);
	for (unsigned i = 8; i < 2 * GN_VOL_BLOCK; i++)
		assert_int_equal(got[i], 0);
	world_close(&w);
}

/* ---- queues ---- */

/* The source shows requests that ended in gn_vol_submit(), and those that a poll left. */
static void test_source(void **state)
{
	struct gn_io_sge sge = {.addr = got, .len_bytes = 100};
	struct gn_vol_req req[2] = {0}, *list[2] = {&req[0], &req[1]}, *ended;
	struct gn_vol_queue *queue;
	struct gn_source *source;
	struct gn_wait_item item;
	struct vol_world w;

	(void)state;
	world_open_vol(&w, 2, 6, BYTES, 2);
	assert_int_equal(gn_vol_queue_create(w.vol, 2, &queue), 0);
	assert_int_equal(gn_vol_queue_source(queue, &source), 0);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 2; i++)
			req[i] = (struct gn_vol_req){.op = round ? GN_VOL_WRITE : GN_VOL_READ,
						     .offset = i * 8192,
						     .sge = &sge,
						     .n_sge = 1};
		assert_int_equal(gn_vol_submit(queue, list, 2), 2);
		for (unsigned i = 0; i < 2;) {
			int rc;

			item = gn_wait_on(source);
			assert_true(gn_wait_sleep(&item, 1, gn_deadline_us(LONG_US), "test") >= 0);
			rc = gn_vol_poll(queue, &ended, 1);
			assert_true(rc >= 0);
			i += (unsigned)rc;
		}
	}
	item = gn_wait_on(source);
	assert_int_equal(gn_wait_sleep(&item, 1, gn_deadline_us(20000), "test"), -ETIMEDOUT);
	assert_int_equal(gn_vol_queue_destroy(queue), 0);
	world_close(&w);
}

static void test_null_request(void **state)
{
	struct gn_vol_req *list[1] = {NULL};
	struct gn_vol_queue *queue;
	struct vol_world w;

	(void)state;
	world_open_vol(&w, 2, 6, BYTES, 2);
	assert_int_equal(gn_vol_queue_create(w.vol, 1, &queue), 0);
	assert_int_equal(gn_vol_submit(queue, list, 1), -EINVAL);
	assert_int_equal(gn_vol_queue_destroy(queue), 0);
	world_close(&w);
}

/* The engine refuses the buffers for all copies: no copy is wrong. */
static void test_refused_buffers(void **state)
{
	struct gn_vol_req req = {.op = GN_VOL_WRITE, .n_sge = 1}, *list = &req, *ended;
	struct gn_vol_queue *queue;
	struct gn_io_mem *mem;
	struct vol_world w;

	(void)state;
	open_filled(&w, 2, 2, 6, &(struct gn_vol_opts){.verify = true});
	assert_int_equal(gn_vol_queue_create(w.vol, 1, &queue), 0);
	assert_int_equal(gn_io_mem_register(gn_vol_engine(w.vol), got, 8192, &mem), 0);
	req.sge = &(struct gn_io_sge){.addr = got + 8192, .len_bytes = 4096, .mem = mem};
	assert_int_equal(gn_vol_submit(queue, &list, 1), 1);
	assert_int_equal(gn_vol_wait(queue, &ended, 1, gn_deadline_us(LONG_US)), 1);
	assert_int_equal(req.status, -ERANGE);
	assert_int_equal(vol_stats(&w).copies_lost, 0);
	assert_int_equal(vol_stats(&w).blocks_lost, 0);
	check_all(&w);
	assert_int_equal(gn_io_mem_deregister(mem), 0);
	assert_int_equal(gn_vol_queue_destroy(queue), 0);
	world_close(&w);
}

/* ---- creation and the end ---- */

/* More headroom than there are bytes. */
static void test_headroom_without_end(void **state)
{
	struct gn_vol_opts opts;
	struct vol_world w;

	(void)state;
	world_open(&w, 2, 6);
	opts = vol_opts(&w, BYTES, 2);
	opts.headroom = UINT64_MAX;
	vol_open(&w, &opts);
	assert_int_equal(vol_stats(&w).headroom, 2 * BYTES);
	assert_int_equal(gn_vol_write(w.vol, bytes, BYTES, 0, 0), 0);
	world_close(&w);
}

static int refuse_to_lose(void *arg, const struct gn_vol_copy *copy)
{
	(void)copy;
	__atomic_add_fetch((unsigned *)arg, 1, __ATOMIC_ACQ_REL);
	return -EAGAIN;
}

/* Copies that the authority does not give up do not keep a volume from its end. */
static void run_destroy_while_refused(const struct gn_vol_backup *backup)
{
	unsigned asked = 0;
	const struct gn_vol_authority authority = {refuse_to_lose, NULL, &asked};
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	struct vol_world w;

	open_filled(&w, 3, 3, 6, &(struct gn_vol_opts){.authority = &authority, .backup = backup});
	donor_kill(&w, donor_read(&w, 0));
	while (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
		assert_true(gn_now_ns() < until_ns);
		gn_sleep_us(200);
	}
	if (backup)
		__atomic_store_n(&((struct backup *)backup->arg)->refuse, 0, __ATOMIC_RELEASE);
	world_close(&w);
}

static void test_destroy_while_authority_refuses(void **state)
{
	(void)state;
	run_destroy_while_refused(NULL);
}

/* … and all that is behind reaches the backup. */
static void test_destroy_backup_while_authority_refuses(void **state)
{
	static struct backup b = {.refuse = 1};
	const struct gn_vol_backup backup = {backup_read, backup_write, backup_sync, &b, 0};

	(void)state;
	run_destroy_while_refused(&backup);
	assert_memory_equal(b.bytes, bytes, BYTES);
}

static unsigned sync_failures; /* atomic: that the log told of */

static void log_failed_sync(void *arg, enum gn_log_level level, const char *text)
{
	(void)arg;
	if (level == GN_LOG_ERROR && strstr(text, "backup fails"))
		__atomic_add_fetch(&sync_failures, 1, __ATOMIC_ACQ_REL);
}

static int sync_fails(void *arg)
{
	(void)arg;
	return -EIO;
}

/* What a failed sync at the end loses is not lost without a word. */
static void test_destroy_with_backup_that_cannot_sync(void **state)
{
	static struct backup b;
	const struct gn_vol_backup backup = {backup_read, backup_write, sync_fails, &b, 0};
	struct vol_world w;

	(void)state;
	gn_log_to(log_failed_sync, NULL);
	open_filled(&w, 2, 2, 6, &(struct gn_vol_opts){.backup = &backup});
	world_close(&w);
	gn_log_to(NULL, NULL);
	assert_memory_equal(b.bytes, bytes, BYTES);
	assert_int_equal(__atomic_load_n(&sync_failures, __ATOMIC_ACQUIRE), 1);
}

static int keep_first_extent(void *arg, const struct gn_vol_copy *copy)
{
	(void)arg;
	return copy->extent ? 0 : -EAGAIN;
}

/* An extent that the authority does not let go does not keep others from moving. */
static void test_move_while_authority_refuses(void **state)
{
	const struct gn_vol_authority authority = {keep_first_extent, NULL, NULL};
	struct gn_vol_stats s;
	struct vol_world w;
	unsigned donor = 0;

	(void)state;
	open_filled(&w, 3, 2, 6, &(struct gn_vol_opts){.authority = &authority});
	s = vol_stats(&w);
	while (s.donors[donor].copies < EXTENTS) /* four copies on three donors */
		donor++;
	assert_int_equal(gn_donor_server_drain(w.donor[donor].server, gn_deadline_us(1000)),
			 -ETIMEDOUT);
	VOL_AWAIT(&w, s, s.donors[donor].copies == 1 && s.copies_moved == 1);
	check_all(&w);
	world_close(&w);
}

/* … nor extents that have lost all copies from new ones. */
static void test_fresh_while_authority_refuses(void **state)
{
	const struct gn_vol_authority authority = {keep_first_extent, NULL, NULL};
	struct gn_vol_stats s;
	struct vol_world w;
	unsigned donor;

	(void)state;
	open_filled(&w, 3, 1, 6, &(struct gn_vol_opts){.authority = &authority});
	donor = donor_read(&w, 0);
	assert_int_equal(gn_donor_server_drain(w.donor[donor].server, gn_deadline_us(1000)),
			 -ETIMEDOUT);
	VOL_AWAIT(&w, s, s.donors[donor].copies == 1 && s.with_copies[2] == 1);
	donor_kill(&w, donor_read(&w, 1));
	VOL_AWAIT(&w, s, s.blocks_lost && !s.with_copies[0]);
	assert_int_equal(gn_vol_write(w.vol, bytes, VOL_SLAB, VOL_SLAB, 0), 0);
	world_close(&w);
}

struct joining {
	struct vol_world *w;
	char donor[64]; /* of the first copy that is added */
	uint64_t slab;
	unsigned added, lost; /* atomic; lost: that copy */
};

static int joining_lose(void *arg, const struct gn_vol_copy *copy)
{
	struct joining *j = arg;

	if (__atomic_load_n(&j->added, __ATOMIC_ACQUIRE) && copy->slab == j->slab &&
	    !strcmp(copy->donor, j->donor))
		__atomic_store_n(&j->lost, 1, __ATOMIC_RELEASE);
	return 0;
}

/* The donor is killed while its copy is added. */
static int joining_add(void *arg, const struct gn_vol_copy *copy)
{
	struct joining *j = arg;
	struct gn_vol_stats s;
	unsigned donor = 0;

	if (__atomic_load_n(&j->added, __ATOMIC_ACQUIRE))
		return 0;
	while (strcmp(j->w->addrs[donor], copy->donor))
		donor++;
	snprintf(j->donor, sizeof(j->donor), "%s", copy->donor);
	j->slab = copy->slab;
	donor_kill(j->w, donor);
	VOL_AWAIT(j->w, s, s.donors[donor].state == GN_VOL_DONOR_DOWN);
	gn_sleep_us(100000); /* the keeper has looked at it several times */
	__atomic_store_n(&j->added, 1, __ATOMIC_RELEASE);
	return 0;
}

/* A copy that fails while the authority adds it is lost for the authority, too. */
static void test_lost_while_added(void **state)
{
	struct joining j = {0};
	const struct gn_vol_authority authority = {joining_lose, joining_add, &j};
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	struct vol_world w;

	(void)state;
	j.w = &w;
	open_filled(&w, 3, 2, 6, &(struct gn_vol_opts){.authority = &authority});
	donor_kill(&w, vol_stats(&w).donors[0].copies ? 0 : 1);
	while (!__atomic_load_n(&j.lost, __ATOMIC_ACQUIRE)) {
		assert_true(gn_now_ns() < until_ns);
		gn_sleep_us(500);
	}
	world_close(&w);
}

/* ---- everything at once ---- */

#define THREADS 4u
#define KILLS	(unit_slow() ? 3u : 6u)
#define AREA	(64u * GN_VOL_BLOCK) /* that all threads write: at the end of an extent */
#define AREA_AT (VOL_SLAB - AREA / 2)

struct mixed {
	struct vol_world *w;
	struct gn_thread *thread;
	uint64_t seed;
	unsigned *stop; /* atomic */
	unsigned torn;	/* blocks with bytes of two WRITEs */
	int rc;		/* the first that was not 0 */
	uint8_t buf[9 * GN_VOL_BLOCK];
};

static void mixed_check(struct mixed *m, uint64_t n)
{
	for (uint64_t at = 0; at < n; at += GN_VOL_BLOCK)
		m->torn += memcmp(m->buf + at, m->buf + at + 1, GN_VOL_BLOCK - 1) != 0;
}

/* One request of whole blocks, by a queue that lives for it, or a blocking call. */
static void mixed_step(struct mixed *m)
{
	const uint32_t random = unit_next(&m->seed);
	const uint64_t n = GN_VOL_BLOCK * (1 + random / 16 % 8);
	const uint64_t at =
		AREA_AT + (random >> 12) % ((AREA - n) / GN_VOL_BLOCK + 1) * GN_VOL_BLOCK;
	const enum gn_vol_op op = random % 8 < 3 ? GN_VOL_READ : (enum gn_vol_op)(random % 8 % 5);
	struct gn_io_sge sge = {.addr = m->buf, .len_bytes = (uint32_t)n};
	struct gn_vol_req req = {.op = op,
				 .flags = op == GN_VOL_WRITE && random >> 30 == 0 ? GN_VOL_FUA : 0,
				 .offset = at,
				 .len_bytes = n,
				 .sge = &sge,
				 .n_sge = 1};
	struct gn_vol_req *list = &req, *ended;
	struct gn_vol_queue *queue;

	if (op == GN_VOL_WRITE)
		memset(m->buf, (int)(random >> 24 | 1), n);
	if (random >> 28 & 1) {
		if (gn_vol_queue_create(m->w->vol, 1, &queue))
			return;
		m->rc = gn_vol_submit(queue, &list, 1) == 1 ? 0 : -EPROTO;
		while (!m->rc && gn_vol_wait(queue, &ended, 1, GN_FOREVER) != 1)
			;
		m->rc = m->rc ? m->rc : req.status;
		gn_vol_queue_destroy(queue);
	} else if (op == GN_VOL_READ) {
		m->rc = gn_vol_read(m->w->vol, m->buf, n, at);
	} else if (op == GN_VOL_WRITE) {
		m->rc = gn_vol_write(m->w->vol, m->buf, n, at, req.flags);
	} else if (op == GN_VOL_FLUSH) {
		m->rc = gn_vol_flush(m->w->vol);
	} else {
		m->rc = gn_vol_discard(m->w->vol, n, at, 0);
	}
	if (op == GN_VOL_READ && !m->rc)
		mixed_check(m, n);
}

static void mixed_main(void *arg)
{
	struct mixed *m = arg;

	while (!__atomic_load_n(m->stop, __ATOMIC_ACQUIRE) && !m->rc)
		mixed_step(m);
}

/* Threads that overlap, while donors are killed and come back. */
static void run_mixed(bool verify, const struct gn_vol_backup *backup)
{
	static struct mixed m[THREADS];
	uint64_t seed = unit_seed();
	unsigned stop = 0;
	struct gn_vol_stats s;
	struct vol_world w;

	open_filled(&w, 3, 2, 6, &(struct gn_vol_opts){.verify = verify, .backup = backup});
	memset(bytes + AREA_AT, 9, AREA);
	assert_int_equal(gn_vol_write(w.vol, bytes + AREA_AT, AREA, AREA_AT, 0), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		m[i] = (struct mixed){.w = &w, .seed = seed + i, .stop = &stop};
		assert_int_equal(gn_thread_start("mixed", mixed_main, &m[i], &m[i].thread), 0);
	}
	for (unsigned i = 0; i < KILLS; i++) {
		const unsigned donor = i % 3;
		const uint64_t lost = vol_stats(&w).donors[donor].lost;

		donor_kill(&w, donor);
		VOL_AWAIT(&w, s, s.donors[donor].lost > lost && is_whole(&s));
		donor_start(&w, donor);
		VOL_AWAIT(&w, s, s.donors[donor].state == GN_VOL_DONOR_UP);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < THREADS; i++) {
		gn_thread_join(m[i].thread);
		assert_int_equal(m[i].rc, 0);
		assert_int_equal(m[i].torn, 0);
	}
	s = vol_stats(&w);
	assert_int_equal(s.failed + s.blocks_lost + s.crc_errors, 0);
	assert_int_equal(gn_vol_read(w.vol, got, BYTES, 0), 0);
	memcpy(bytes + AREA_AT, got + AREA_AT, AREA);
	assert_memory_equal(got, bytes, BYTES);
	if (backup) {
		assert_int_equal(gn_vol_flush(w.vol), 0);
		assert_memory_equal(((struct backup *)backup->arg)->bytes, bytes, BYTES);
		assert_int_equal(vol_stats(&w).backup_lag, 0);
	}
	world_close(&w);
}

static void test_mixed(void **state)
{
	(void)state;
	run_mixed(false, NULL);
}

static void test_mixed_verify_backup(void **state)
{
	static struct backup b;
	const struct gn_vol_backup backup = {backup_read, backup_write, backup_sync, &b, 65536};

	(void)state;
	run_mixed(true, &backup);
}

/* ---- locks ---- */

struct reader {
	struct gn_vol *vol;
	pid_t thread; /* atomic */
	int rc;
};

static void reader_main(void *arg)
{
	struct reader *r = arg;
	uint8_t block[GN_VOL_BLOCK];

	__atomic_store_n(&r->thread, gettid(), __ATOMIC_RELEASE);
	r->rc = gn_vol_read(r->vol, block, sizeof(block), 0);
}

/* The letter of the thread's state, or 0. */
static char thread_state(pid_t thread)
{
	char path[64], line[256] = "", *end;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	file = fopen(path, "re");
	if (file && !fgets(line, sizeof(line), file))
		*line = 0;
	if (file)
		fclose(file);
	end = strrchr(line, ')');
	return end && end[1] ? end[2] : 0;
}

/* A thread that holds a bucket may have been preempted: the next one does not use up its core. */
static void test_a_bucket_that_is_held_for_long(void **state)
{
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	struct reader reader = {.rc = 1};
	struct gn_thread *thread;
	struct vol_bucket *bucket;
	struct vol_world w;

	(void)state;
	open_filled(&w, 1, 1, 4, &(struct gn_vol_opts){.copies = 1});
	bucket = vol_bucket(w.vol, 0);
	reader.vol = w.vol;
	vol_bucket_lock(bucket);
	assert_int_equal(gn_thread_start("reader", reader_main, &reader, &thread), 0);
	while (!__atomic_load_n(&reader.thread, __ATOMIC_ACQUIRE) ||
	       thread_state(reader.thread) != 'S')
		assert_true(gn_now_ns() < until_ns);
	vol_bucket_unlock(bucket);
	gn_thread_join(thread);
	assert_int_equal(reader.rc, 0);
	world_close(&w);
}

/* ---- what is to be copied ---- */

/* Repair copies blocks with data, and no holes: the statistics count the same. */
static void test_repair_bytes_without_holes(void **state)
{
	struct gn_vol_stats s;
	struct gn_vol_opts opts;
	struct vol_world w;

	(void)state;
	world_open(&w, 2, 4);
	opts = vol_opts(&w, BYTES, 2);
	opts.detect_us = DETECT;
	vol_open(&w, &opts);
	assert_int_equal(gn_vol_write(w.vol, bytes, 5 * GN_VOL_BLOCK, 0, 0), 0);
	assert_int_equal(gn_vol_write(w.vol, bytes, GN_VOL_BLOCK, VOL_SLAB, 0), 0);
	assert_int_equal(gn_vol_discard(w.vol, GN_VOL_BLOCK, GN_VOL_BLOCK, 0), 0);
	assert_int_equal(vol_stats(&w).repair_bytes, 0);
	donor_kill(&w, 0);
	VOL_AWAIT(&w, s, s.with_copies[1] == EXTENTS);
	assert_int_equal(s.repair_bytes, 5 * GN_VOL_BLOCK);
	assert_int_equal(s.repair_done, 0);
	donor_start(&w, 0);
	assert_int_equal(gn_vol_wait_repaired(w.vol, gn_deadline_us(LONG_US)), 0);
	s = vol_stats(&w);
	assert_int_equal(s.repair_bytes, 0);
	assert_int_equal(s.repaired_bytes, 5 * GN_VOL_BLOCK);
	world_close(&w);
}

/* ---- no copy is left ---- */

/* Errors say that blocks are lost, and not how the last wait ended. */
static void test_reason_of_lost_blocks(void **state)
{
	static const char why[] = "no copy of a block is left";
	struct gn_vol_stats s;
	struct vol_world w;

	(void)state;
	open_filled(&w, 2, 2, 4, &(struct gn_vol_opts){.size = 0});
	donor_kill(&w, 0);
	donor_kill(&w, 1);
	VOL_AWAIT(&w, s, s.blocks_lost == BYTES / GN_VOL_BLOCK);
	assert_int_equal(gn_vol_read(w.vol, got, 1, 0), -EIO);
	assert_non_null(strstr(gn_error(), why));
	gn_fail(-ETIMEDOUT, "an earlier call");
	assert_int_equal(gn_vol_read(w.vol, got, BYTES, 0), -EIO);
	assert_non_null(strstr(gn_error(), why));
	gn_fail(-ETIMEDOUT, "an earlier call");
	assert_int_equal(gn_vol_write(w.vol, bytes, 100, 0, 0), -EIO);
	assert_non_null(strstr(gn_error(), why));
	gn_fail(-ETIMEDOUT, "an earlier call");
	assert_int_equal(gn_vol_zero(w.vol, 100, 0, 0), -EIO);
	assert_non_null(strstr(gn_error(), why));
	assert_int_equal(gn_vol_write(w.vol, bytes, GN_VOL_BLOCK, 0, 0), -ENOSPC);
	assert_non_null(strstr(gn_error(), "no donor of the volume can be used"));
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_written_while_backed_up),
		cmocka_unit_test(test_lag_of_lost_blocks),
		cmocka_unit_test(test_repair_finds_wrong_block),
		cmocka_unit_test(test_wrong_while_other_is_down),
		cmocka_unit_test(test_slab_is_not_zero),
		cmocka_unit_test(test_source),
		cmocka_unit_test(test_null_request),
		cmocka_unit_test(test_refused_buffers),
		cmocka_unit_test(test_headroom_without_end),
		cmocka_unit_test(test_destroy_while_authority_refuses),
		cmocka_unit_test(test_destroy_backup_while_authority_refuses),
		cmocka_unit_test(test_destroy_with_backup_that_cannot_sync),
		cmocka_unit_test(test_move_while_authority_refuses),
		cmocka_unit_test(test_fresh_while_authority_refuses),
		cmocka_unit_test(test_lost_while_added),
		cmocka_unit_test(test_a_bucket_that_is_held_for_long),
		cmocka_unit_test(test_repair_bytes_without_holes),
		cmocka_unit_test(test_reason_of_lost_blocks),
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_mixed_verify_backup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
