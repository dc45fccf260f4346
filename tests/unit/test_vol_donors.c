/* SPDX-License-Identifier: MIT */
/*
 * Volumes whose donors fail: killed, restarted, leaving, short of memory, with wrong bytes. Requests
 * go on, nothing is lost while a copy is left, and what is lost reads as -EIO.
 */
#define EXTENTS 4u
#include "vol_filled.h"

static const struct gn_vol_opts plain = {.size = 0};

/* ---- a writer and reader that goes on while donors fail ---- */

struct traffic {
	struct vol_world *w;
	struct gn_thread *thread;
	unsigned stop, over; /* atomic: it should end; it has ended */
	uint64_t seed, ended;
	int rc; /* the first that was not 0 */
	bool wrong;
	uint64_t longest_ns; /* that a request took */
};

static void traffic_main(void *arg)
{
	static uint8_t back[70000];
	struct traffic *t = arg;

	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE) && !t->rc && !t->wrong) {
		const uint32_t random = unit_next(&t->seed), len = 1 + random % 60000;
		const uint64_t at = ((uint64_t)unit_next(&t->seed) << 8) % (BYTES - len);
		const uint64_t begin_ns = gn_now_ns();

		if (at % VOL_SLAB < MARK_AT + 8 && at % VOL_SLAB + len > MARK_AT)
			continue; /* the marks stay */
		fill(bytes + at, len, random);
		t->rc = gn_vol_write(t->w->vol, bytes + at, len, at, 0);
		if (!t->rc)
			t->rc = gn_vol_read(t->w->vol, back, len, at);
		t->wrong = !t->rc && memcmp(back, bytes + at, len) != 0;
		if (gn_now_ns() - begin_ns > t->longest_ns)
			t->longest_ns = gn_now_ns() - begin_ns;
		__atomic_add_fetch(&t->ended, 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&t->over, 1, __ATOMIC_RELEASE);
}

/* Waits until n more requests have ended. */
static void traffic_pass(struct traffic *t, uint64_t n)
{
	const uint64_t goal = __atomic_load_n(&t->ended, __ATOMIC_ACQUIRE) + n;
	const uint64_t until_ns = gn_deadline_us(LONG_US);

	while (__atomic_load_n(&t->ended, __ATOMIC_ACQUIRE) < goal &&
	       !__atomic_load_n(&t->over, __ATOMIC_ACQUIRE)) {
		assert_true(gn_now_ns() < until_ns);
		gn_sleep_us(200);
	}
}

/* A volume with traffic. */
static void open_busy(struct vol_world *w, struct traffic *t, unsigned donors, unsigned copies,
		      unsigned slabs)
{
	open_filled(w, donors, copies, slabs, &plain);
	*t = (struct traffic){.w = w, .seed = unit_seed()};
	assert_int_equal(gn_thread_start("traffic", traffic_main, t, &t->thread), 0);
	traffic_pass(t, 10);
}

static void traffic_stop(struct traffic *t)
{
	__atomic_store_n(&t->stop, 1, __ATOMIC_RELEASE);
	gn_thread_join(t->thread);
	assert_int_equal(t->rc, 0);
	assert_false(t->wrong);
	printf("# %llu requests, the longest %.1f ms\n", (unsigned long long)t->ended,
	       (double)t->longest_ns / 1e6);
}

/* ---- killed ---- */

static void test_killed(void **state)
{
	struct gn_vol_stats s;
	struct traffic t;
	struct vol_world w;

	(void)state;
	open_busy(&w, &t, 3, 2, 6);
	donor_kill(&w, 1);
	traffic_pass(&t, 20);
	VOL_AWAIT(&w, s, s.donors[1].lost && is_whole(&s));
	assert_int_equal(gn_vol_wait_repaired(w.vol, gn_deadline_us(LONG_US)), 0);
	traffic_pass(&t, 20);
	traffic_stop(&t);
	check_all(&w);
	assert_int_equal(gn_vol_flush(w.vol), 0);
	assert_copies_equal(&w, 2);
	s = vol_stats(&w);
	assert_int_equal(s.failed, 0);
	assert_int_equal(s.blocks_lost, 0);
	assert_int_equal(s.repair_bytes, 0);
	assert_true(s.copies_made >= s.copies_lost && s.repaired_bytes >= s.copies_lost * VOL_SLAB);
	assert_int_equal(s.donors[1].state, GN_VOL_DONOR_DOWN);
	assert_int_equal(s.donors[1].copies, 0);
	assert_int_equal(s.donors[1].lost, 1);
	assert_int_equal(s.donors[0].copies + s.donors[2].copies, 2 * EXTENTS);
	world_close(&w);
}

/* A donor that comes back gets new copies; nothing that it had before is read. */
static void test_killed_and_back(void **state)
{
	struct gn_vol_stats s;
	struct traffic t;
	struct vol_world w;

	(void)state;
	open_busy(&w, &t, 3, 2, 6);
	for (unsigned i = 0; i < 6; i++) {
		const unsigned donor = i % 3;
		const uint64_t lost = vol_stats(&w).donors[donor].lost;

		traffic_pass(&t, 10);
		donor_kill(&w, donor);
		VOL_AWAIT(&w, s, s.donors[donor].lost > lost && is_whole(&s));
		donor_start(&w, donor);
		VOL_AWAIT(&w, s, s.donors[donor].state == GN_VOL_DONOR_UP);
	}
	traffic_stop(&t);
	check_all(&w);
	assert_int_equal(vol_stats(&w).failed, 0);
	assert_copies_equal(&w, 2);
	world_close(&w);
}

/* Without a third donor the volume is degraded, says so, and heals when the donor is back. */
static void test_degraded(void **state)
{
	struct gn_vol_stats s;
	struct vol_world w;

	(void)state;
	open_filled(&w, 2, 2, 6, &plain);
	assert_int_equal(gn_vol_wait_repaired(w.vol, GN_NO_WAIT), 0);
	donor_kill(&w, 0);
	VOL_AWAIT(&w, s, s.with_copies[1] == EXTENTS);
	assert_int_equal(s.with_copies[2], 0);
	assert_int_equal(s.blocks_lost, 0);
	assert_int_equal(s.donors[0].state, GN_VOL_DONOR_DOWN);
	assert_true(s.repair_bytes > 0);
	assert_int_equal(gn_vol_wait_repaired(w.vol, gn_deadline_us(20000)), -ETIMEDOUT);
	fill(bytes + 5000, 5000, 7);
	assert_int_equal(gn_vol_write(w.vol, bytes + 5000, 5000, 5000, GN_VOL_FUA), 0);
	check_all(&w);
	donor_start(&w, 0);
	assert_int_equal(gn_vol_wait_repaired(w.vol, gn_deadline_us(LONG_US)), 0);
	assert_true((s = vol_stats(&w), is_whole(&s)));
	assert_copies_equal(&w, 2);
	/* Now the other one: what was copied is complete. */
	donor_kill(&w, 1);
	VOL_AWAIT(&w, s, s.with_copies[1] == EXTENTS);
	check_all(&w);
	world_close(&w);
}

/* ---- the last copy ---- */

struct kinds {
	uint64_t bytes[3];
};

static int count_kinds(void *arg, uint64_t offset, uint64_t len, enum gn_vol_extent_kind kind)
{
	(void)offset;
	((struct kinds *)arg)->bytes[kind] += len;
	return 0;
}

static struct kinds kinds_of(const struct vol_world *w)
{
	struct kinds k = {0};

	assert_int_equal(gn_vol_extents(w->vol, 0, BYTES, count_kinds, &k), 0);
	return k;
}

/* Extents without copies get new ones in the background; until then there is no memory for them. */
static int write_patiently(const struct vol_world *w, const void *buf, size_t len, uint64_t at)
{
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	int rc;

	while ((rc = gn_vol_write(w->vol, buf, len, at, 0)) == -ENOSPC && gn_now_ns() < until_ns)
		gn_sleep_us(500);
	return rc;
}

static void test_last_copy(void **state)
{
	struct gn_vol_stats s;
	uint64_t lost = BYTES, at;
	struct vol_world w;
	uint8_t block[GN_VOL_BLOCK];

	(void)state;
	open_filled(&w, 2, 1, 8, &plain);
	/* A part that was never written, and one that was discarded, are not lost. */
	assert_int_equal(gn_vol_discard(w.vol, 2 * GN_VOL_BLOCK, 4 * GN_VOL_BLOCK, 0), 0);
	memset(bytes + 4 * GN_VOL_BLOCK, 0, 2 * GN_VOL_BLOCK);
	s = vol_stats(&w);
	assert_true(s.donors[0].copies + s.donors[1].copies == EXTENTS);
	donor_kill(&w, 0);
	VOL_AWAIT(&w, s, s.donors[0].lost || s.donors[0].state == GN_VOL_DONOR_DOWN);
	VOL_AWAIT(&w, s, s.donors[0].copies == 0);
	for (at = 0; at < BYTES; at += VOL_SLAB)
		if (gn_vol_read(w.vol, block, 1, at) == -EIO)
			lost = at;
	if (lost == BYTES) { /* all were on the other donor */
		donor_kill(&w, 1);
		VOL_AWAIT(&w, s, s.donors[1].copies == 0);
		donor_start(&w, 0);
		lost = 0;
	}
	s = vol_stats(&w);
	assert_true(s.blocks_lost > 0);
	assert_int_equal(kinds_of(&w).bytes[GN_VOL_LOST], s.blocks_lost * GN_VOL_BLOCK);
	/* Never old bytes, never zeros. */
	for (at = lost; at < lost + VOL_SLAB; at += GN_VOL_BLOCK) {
		const bool hole = at == 4 * GN_VOL_BLOCK || at == 5 * GN_VOL_BLOCK;

		assert_int_equal(gn_vol_read(w.vol, block, 10, at + 100), hole ? 0 : -EIO);
		if (hole)
			assert_memory_equal(block, bytes + at + 100, 10);
	}
	at = lost + 16 * GN_VOL_BLOCK;
	assert_int_equal(gn_vol_write(w.vol, bytes, 100, at, 0), -EIO); /* a part */
	assert_int_equal(gn_vol_read(w.vol, block, 1, at), -EIO);
	assert_int_equal(gn_vol_zero(w.vol, 100, at, 0), -EIO);
	assert_int_equal(write_patiently(&w, bytes + at, GN_VOL_BLOCK, at), 0);
	assert_int_equal(gn_vol_read(w.vol, block, GN_VOL_BLOCK, at), 0);
	assert_memory_equal(block, bytes + at, GN_VOL_BLOCK);
	assert_int_equal(gn_vol_read(w.vol, block, 1, at + GN_VOL_BLOCK), -EIO);
	at += GN_VOL_BLOCK;
	assert_int_equal(gn_vol_discard(w.vol, GN_VOL_BLOCK, at, 0), 0);
	assert_int_equal(gn_vol_read(w.vol, block, 1, at), 0);
	assert_int_equal(block[0], 0);
	at += GN_VOL_BLOCK;
	assert_int_equal(gn_vol_zero(w.vol, GN_VOL_BLOCK, at, 0), 0);
	assert_int_equal(gn_vol_read(w.vol, block, 1, at), 0);
	assert_int_equal(vol_stats(&w).blocks_lost, s.blocks_lost - 3);
	/* The donor comes back: what was lost stays lost until it is written. */
	if (!w.donor[0].server)
		donor_start(&w, 0);
	VOL_AWAIT(&w, s, s.donors[0].state == GN_VOL_DONOR_UP);
	assert_int_equal(gn_vol_read(w.vol, block, 1, lost + 20 * GN_VOL_BLOCK), -EIO);
	fill(bytes, BYTES, 9);
	assert_int_equal(write_patiently(&w, bytes, BYTES, 0), 0);
	check_all(&w);
	assert_int_equal(vol_stats(&w).blocks_lost, 0);
	world_close(&w);
}

/* ---- donors that want their memory back ---- */

static void test_leaving(void **state)
{
	struct gn_vol_stats s;
	struct traffic t;
	struct vol_world w;

	(void)state;
	open_busy(&w, &t, 3, 2, 6);
	assert_int_equal(gn_donor_server_drain(w.donor[0].server, gn_deadline_us(LONG_US)), 0);
	traffic_pass(&t, 10);
	traffic_stop(&t);
	s = vol_stats(&w);
	assert_int_equal(s.donors[0].copies, 0);
	assert_int_equal(s.failed, 0);
	assert_int_equal(s.copies_lost, 0);
	assert_true(is_whole(&s)); /* at no time were there fewer copies */
	check_all(&w);
	donor_kill(&w, 0);
	check_all(&w);
	assert_copies_equal(&w, 2);
	VOL_AWAIT(&w, s, s.donors[0].state == GN_VOL_DONOR_DOWN);
	assert_int_equal(s.donors[0].lost, 0);
	world_close(&w);
}

/* One copy each: it is moved, not lost. */
static void test_leaving_with_the_last_copy(void **state)
{
	struct gn_vol_stats s;
	struct traffic t;
	struct vol_world w;

	(void)state;
	open_busy(&w, &t, 2, 1, 8);
	for (unsigned i = 0; i < 2; i++) {
		traffic_pass(&t, 10);
		assert_int_equal(gn_donor_server_drain(w.donor[i].server, gn_deadline_us(LONG_US)),
				 0);
		donor_kill(&w, i);
		donor_start(&w, i);
		VOL_AWAIT(&w, s, s.donors[i].state == GN_VOL_DONOR_UP);
	}
	traffic_stop(&t);
	s = vol_stats(&w);
	assert_int_equal(s.failed + s.blocks_lost, 0);
	assert_true(s.copies_moved >= EXTENTS);
	check_all(&w);
	world_close(&w);
}

static void test_pressure(void **state)
{
	struct gn_vol_stats s;
	struct traffic t;
	struct vol_world w;

	(void)state;
	open_busy(&w, &t, 3, 2, 6);
	__atomic_store_n(&w.donor[2].available, 0, __ATOMIC_RELAXED);
	VOL_AWAIT(&w, s, s.donors[2].copies == 0 && is_whole(&s));
	__atomic_store_n(&w.donor[2].available, UINT64_MAX, __ATOMIC_RELAXED);
	traffic_pass(&t, 10);
	traffic_stop(&t);
	s = vol_stats(&w);
	assert_int_equal(s.failed + s.blocks_lost + s.copies_lost, 0);
	assert_true(s.copies_moved > 0);
	check_all(&w);
	assert_copies_equal(&w, 2);
	world_close(&w);
}

/* ---- a process that watches another ---- */

/* Ends the sessions of a volume, as if its process were dead: the donors forget them at once. */
static void test_sessions(void **state)
{
	struct gn_vol_session sessions[GN_VOL_DONORS_MAX];
	struct gn_io *io;
	struct vol_world w;

	(void)state;
	open_filled(&w, 3, 1, 6, &plain); /* with two, repair could be fast enough */
	assert_int_equal(gn_vol_sessions(w.vol, NULL), -EINVAL);
	assert_int_equal(gn_vol_sessions(w.vol, sessions), 3);
	assert_int_equal(gn_io_create(w.fabric, NULL, &io), 0);
	for (unsigned i = 0; i < 3; i++) {
		const struct gn_donor_opts opts = {.size = sizeof(opts), .id = &sessions[i].id};
		struct gn_donor *donor;

		assert_string_equal(sessions[i].addr, w.addrs[i]);
		assert_int_equal(gn_donor_connect(w.fabric, io, w.addrs[i], &opts, &donor), 0);
		assert_int_equal(gn_donor_close(donor, 0), 0);
		assert_int_equal(gn_donor_connect(w.fabric, io, w.addrs[i], &opts, &donor),
				 -ESTALE);
	}
	assert_int_equal(gn_io_destroy(io), 0);
	assert_int_equal(gn_vol_read(w.vol, got, GN_VOL_BLOCK, 0), -EIO);
	world_close(&w);
}

/* ---- wrong bytes ---- */

static void test_verify(void **state)
{
	struct gn_vol_stats s;
	uint8_t *copy[MOST];
	struct vol_world w;

	(void)state;
	open_filled(&w, 3, 2, 6, &(struct gn_vol_opts){.verify = true});
	for (unsigned flips = 0; flips < 2; flips++) {
		const uint64_t errors = vol_stats(&w).crc_errors;

		/* One of the copies is the one that is read. */
		for (unsigned i = 0; i < 2 && vol_stats(&w).crc_errors == errors; i++) {
			assert_int_equal(copies_of(&w, 2, copy), 2);
			copy[i][70000 + flips] ^= 4;
			check_all(&w);
			if (vol_stats(&w).crc_errors == errors)
				copy[i][70000 + flips] ^= 4;
		}
		assert_int_equal(vol_stats(&w).crc_errors, errors + 1);
		VOL_AWAIT(&w, s, s.copies_made > flips && is_whole(&s));
		check_all(&w);
		assert_copies_equal(&w, 2);
	}
	assert_int_equal(vol_stats(&w).failed, 0);
	world_close(&w);
}

/* All copies are wrong: an error, not the bytes. */
static void test_verify_all_wrong(void **state)
{
	uint8_t *copy[MOST], block[GN_VOL_BLOCK];
	struct vol_world w;

	(void)state;
	open_filled(&w, 2, 2, 6, &(struct gn_vol_opts){.verify = true});
	assert_int_equal(copies_of(&w, 1, copy), 2);
	copy[0][GN_VOL_BLOCK + 5] ^= 1;
	copy[1][GN_VOL_BLOCK + 6] ^= 1;
	assert_int_equal(gn_vol_read(w.vol, block, 10, VOL_SLAB + GN_VOL_BLOCK), -EIO);
	assert_int_equal(gn_vol_write(w.vol, bytes, 10, VOL_SLAB + GN_VOL_BLOCK, 0), -EIO);
	assert_int_equal(gn_vol_write(w.vol, bytes, GN_VOL_BLOCK, VOL_SLAB + GN_VOL_BLOCK, 0), 0);
	assert_int_equal(gn_vol_read(w.vol, block, GN_VOL_BLOCK, VOL_SLAB + GN_VOL_BLOCK), 0);
	assert_memory_equal(block, bytes, GN_VOL_BLOCK);
	world_close(&w);
}

/* ---- memory that is granted ahead ---- */

static void test_headroom(void **state)
{
	struct gn_vol_stats s;
	struct gn_vol_opts opts;
	struct vol_world w;
	unsigned extent = 0;
	int rc = 0;

	(void)state;
	world_open(&w, 2, 3); /* which is not enough for all */
	opts = vol_opts(&w, BYTES, 2);
	opts.headroom = 2 * VOL_SLAB;
	vol_open(&w, &opts);
	s = vol_stats(&w);
	assert_int_equal(s.unused, EXTENTS);
	assert_true(s.headroom >= 2 * VOL_SLAB);
	fill(bytes, BYTES, 3);
	assert_int_equal(gn_vol_discard(w.vol, BYTES, 0, 0), 0);
	assert_int_equal(gn_vol_zero(w.vol, BYTES, 0, 0), 0);
	assert_int_equal(vol_stats(&w).unused, EXTENTS); /* zeros need no memory */
	for (; extent < EXTENTS && !rc; extent++) {
		const uint64_t until_ns = gn_deadline_us(LONG_US);

		/* The headroom is filled up again in the background, as long as there is memory. */
		do {
			rc = gn_vol_write(w.vol, bytes, 100, extent * (uint64_t)VOL_SLAB, 0);
			if (rc == -ENOSPC && extent < 3)
				gn_sleep_us(1000);
		} while (rc == -ENOSPC && extent < 3 && gn_now_ns() < until_ns);
	}
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(extent, EXTENTS); /* the last one */
	memset(got, 1, 200);
	assert_int_equal(gn_vol_read(w.vol, got, 200, 3 * (uint64_t)VOL_SLAB), 0);
	assert_true(got[0] == 0 && got[199] == 0);
	assert_int_equal(gn_vol_read(w.vol, got, 100, 2 * (uint64_t)VOL_SLAB), 0);
	assert_memory_equal(got, bytes, 100);
	s = vol_stats(&w);
	assert_int_equal(s.unused, 1);
	assert_true(is_whole(&s));
	world_close(&w);
}

/* The headroom is there when the volume is. */
static void test_headroom_at_once(void **state)
{
	struct gn_vol_opts opts;
	struct vol_world w;

	(void)state;
	world_open(&w, 2, 4);
	opts = vol_opts(&w, BYTES, 2);
	opts.headroom = 2 * VOL_SLAB;
	for (unsigned i = 0; i < 10; i++) {
		vol_open(&w, &opts);
		assert_int_equal(gn_vol_write(w.vol, "x", 1, 0, 0), 0);
		assert_int_equal(gn_vol_destroy(w.vol), 0);
		w.vol = NULL;
	}
	world_close(&w);
}

/* ---- donors that do not suit ---- */

static void create_fails(struct vol_world *w, const struct gn_vol_opts *opts, int rc,
			 const char *words)
{
	struct gn_vol *vol;

	assert_int_equal(gn_vol_create(w->fabric, opts, &vol), rc);
	if (!strstr(gn_error(), words))
		fail_msg("gn_error() is \"%s\", without \"%s\"", gn_error(), words);
	printf("# %s\n", gn_error());
}

static void other_slab(struct vol_world *w, unsigned i, uint64_t slab)
{
	donor_kill(w, i);
	w->donor[i].opts.slab = slab;
	donor_start(w, i);
}

static void test_unsuitable(void **state)
{
	struct gn_vol_opts opts;
	struct vol_world w;
	struct gn_vol *other;

	(void)state;
	world_open(&w, 3, 6);
	opts = vol_opts(&w, BYTES, 2);
	opts.timeout_us = 3000000;
	other_slab(&w, 2, 2 * VOL_SLAB);
	create_fails(&w, &opts, -EINVAL, w.addrs[2]); /* slabs of another size */
	for (unsigned i = 0; i < 3; i++)
		other_slab(&w, i, 65536);
	create_fails(&w, &opts, -EINVAL, "slab");
	for (unsigned i = 0; i < 3; i++)
		other_slab(&w, i, VOL_SLAB);
	/* Another volume has the memory: not enough is left on two donors. */
	opts.n_donors = 2;
	assert_int_equal(gn_vol_create(w.fabric, &opts, &other), 0);
	create_fails(&w, &opts, -ENOSPC, "memory");
	opts.n_donors = 3;
	opts.copies = 1;
	vol_open(&w, &opts); /* on the third */
	assert_int_equal(gn_vol_destroy(other), 0);
	world_close(&w);
}

/* ---- an authority ---- */

struct authority {
	unsigned lost, added, refuse; /* atomic */
};

static int authority_lose(void *arg, const struct gn_vol_copy *copy)
{
	struct authority *a = arg;

	assert_true(copy->extent < EXTENTS && copy->donor[0] && copy->slab);
	__atomic_add_fetch(&a->lost, 1, __ATOMIC_ACQ_REL);
	if (!__atomic_load_n(&a->refuse, __ATOMIC_ACQUIRE))
		return 0;
	return -EAGAIN;
}

static int authority_add(void *arg, const struct gn_vol_copy *copy)
{
	struct authority *a = arg;

	assert_true(copy->extent < EXTENTS && copy->donor[0] && copy->slab);
	__atomic_add_fetch(&a->added, 1, __ATOMIC_ACQ_REL);
	return 0;
}

struct one_write {
	struct vol_world *w;
	unsigned done; /* atomic */
	int rc;
};

static void write_all(void *arg)
{
	struct one_write *one = arg;

	one->rc = gn_vol_write(one->w->vol, bytes, BYTES, 0, 0);
	__atomic_store_n(&one->done, 1, __ATOMIC_RELEASE);
}

/* A WRITE that skipped a copy ends when the map without that copy is in force. */
static void test_authority(void **state)
{
	struct authority a = {.refuse = 1};
	const struct gn_vol_authority authority = {authority_lose, authority_add, &a};
	struct gn_thread *thread;
	struct one_write one;
	struct gn_vol_stats s;
	struct vol_world w;

	(void)state;
	open_filled(&w, 3, 2, 6, &(struct gn_vol_opts){.authority = &authority});
	donor_kill(&w, 0);
	one = (struct one_write){.w = &w};
	assert_int_equal(gn_thread_start("write", write_all, &one, &thread), 0);
	while (__atomic_load_n(&a.lost, __ATOMIC_ACQUIRE) < 3)
		gn_sleep_us(200);
	assert_int_equal(__atomic_load_n(&one.done, __ATOMIC_ACQUIRE), 0);
	assert_int_equal(vol_stats(&w).copies_made, 0);
	__atomic_store_n(&a.refuse, 0, __ATOMIC_RELEASE);
	gn_thread_join(thread);
	assert_int_equal(one.rc, 0);
	VOL_AWAIT(&w, s, is_whole(&s) && s.copies_lost);
	assert_int_equal(__atomic_load_n(&a.added, __ATOMIC_ACQUIRE), s.copies_made);
	check_all(&w);
	world_close(&w);
}

/* ---- a backup ---- */

/* After the last copy is lost, blocks are read from the backup, unless they are newer than that. */
static void test_backup(void **state)
{
	static struct backup b;
	const struct gn_vol_backup backup = {backup_read, backup_write, backup_sync, &b, 0};
	struct gn_vol_stats s;
	struct vol_world w;

	(void)state;
	open_filled(&w, 2, 1, 8, &(struct gn_vol_opts){.backup = &backup});
	assert_int_equal(gn_vol_flush(w.vol), 0);
	assert_true(b.syncs > 0);
	assert_memory_equal(b.bytes, bytes, BYTES);
	assert_int_equal(vol_stats(&w).backup_lag, 0);
	/* This one does not reach the backup. */
	__atomic_store_n(&b.refuse, 1, __ATOMIC_RELEASE);
	assert_int_equal(gn_vol_write(w.vol, got, 10, 10 * GN_VOL_BLOCK, 0), 0);
	VOL_AWAIT(&w, s, s.backup_error == -EIO);
	assert_true(s.backup_lag >= GN_VOL_BLOCK);
	donor_kill(&w, 0);
	donor_kill(&w, 1);
	VOL_AWAIT(&w, s, s.donors[0].copies + s.donors[1].copies == 0);
	memset(got, 0xee, BYTES);
	assert_int_equal(gn_vol_read(w.vol, got, 10 * GN_VOL_BLOCK, 0), 0);
	assert_memory_equal(got, bytes, 10 * GN_VOL_BLOCK);
	assert_int_equal(gn_vol_read(w.vol, got, 1, 10 * GN_VOL_BLOCK), -EIO);
	assert_int_equal(gn_vol_read(w.vol, got, VOL_SLAB, VOL_SLAB), 0);
	assert_memory_equal(got, bytes + VOL_SLAB, VOL_SLAB);
	world_close(&w);
}

/* A WRITE that exceeds the backup's lag waits until the backup has caught up, or fails with it. */
static void test_backup_lag(void **state)
{
	static struct backup b;
	const struct gn_vol_backup backup = {backup_read, backup_write, backup_sync, &b,
					     .lag_bytes = 2 * GN_VOL_BLOCK};
	const struct gn_io_sge sge = {.addr = bytes, .len_bytes = GN_VOL_BLOCK};
	struct gn_vol_req req = {.op = GN_VOL_WRITE, .offset = VOL_SLAB, .sge = &sge, .n_sge = 1};
	struct gn_vol_req *list = &req;
	struct gn_vol_queue *queue;
	struct vol_world w;

	(void)state;
	open_filled(&w, 1, 1, 8, &(struct gn_vol_opts){.backup = &backup});
	assert_int_equal(gn_vol_queue_create(w.vol, 1, &queue), 0);
	for (unsigned refuse = 0; refuse < 2; refuse++) {
		assert_int_equal(gn_vol_flush(w.vol), 0);
		b.held = 0;
		__atomic_store_n(&b.hold, 1, __ATOMIC_RELEASE);
		/* A block that is being written to the backup does not count. */
		assert_int_equal(gn_vol_write(w.vol, bytes, 1, 8 * GN_VOL_BLOCK, 0), 0);
		while (!__atomic_load_n(&b.held, __ATOMIC_ACQUIRE))
			gn_sleep_us(200);
		assert_int_equal(gn_vol_write(w.vol, bytes, backup.lag_bytes, 0, 0), 0);
		assert_int_equal(gn_vol_submit(queue, &list, 1), 1);
		assert_int_equal(gn_vol_wait(queue, &list, 1, gn_deadline_us(20000)), -ETIMEDOUT);
		assert_int_equal(vol_stats(&w).backup_lag, backup.lag_bytes);
		__atomic_store_n(&b.refuse, refuse, __ATOMIC_RELEASE);
		__atomic_store_n(&b.hold, 0, __ATOMIC_RELEASE);
		assert_int_equal(gn_vol_wait(queue, &list, 1, gn_deadline_us(LONG_US)), 1);
		assert_int_equal(req.status, refuse ? -EIO : 0);
	}
	assert_int_equal(gn_vol_queue_destroy(queue), 0);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_killed_and_back),
		cmocka_unit_test(test_degraded),
		cmocka_unit_test(test_last_copy),
		cmocka_unit_test(test_leaving),
		cmocka_unit_test(test_leaving_with_the_last_copy),
		cmocka_unit_test(test_pressure),
		cmocka_unit_test(test_sessions),
		cmocka_unit_test(test_verify),
		cmocka_unit_test(test_verify_all_wrong),
		cmocka_unit_test(test_headroom),
		cmocka_unit_test(test_headroom_at_once),
		cmocka_unit_test(test_unsuitable),
		cmocka_unit_test(test_authority),
		cmocka_unit_test(test_backup),
		cmocka_unit_test(test_backup_lag),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
