/* SPDX-License-Identifier: MIT */
/* The authority of a volume is told of copies that did not go through repair. */
#include "vol_world.h"

static uint8_t bytes[VOL_SLAB];

struct told {
	unsigned refuse, asked, added; /* atomic */
	char donor[64];		       /* of the copy that was added last */
};

static int told_add(void *arg, const struct gn_vol_copy *copy)
{
	struct told *t = arg;

	__atomic_add_fetch(&t->asked, 1, __ATOMIC_ACQ_REL);
	if (__atomic_load_n(&t->refuse, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	snprintf(t->donor, sizeof(t->donor), "%s", copy->donor);
	__atomic_add_fetch(&t->added, 1, __ATOMIC_ACQ_REL);
	return 0;
}

struct one_write {
	struct gn_vol *vol;
	unsigned done; /* atomic */
	int rc;
};

static void write_block(void *arg)
{
	struct one_write *one = arg;

	one->rc = gn_vol_write(one->vol, bytes, GN_VOL_BLOCK, 0, 0);
	__atomic_store_n(&one->done, 1, __ATOMIC_RELEASE);
}

/* The first WRITE of an extent ends when the authority knows of its copies. */
static void test_fill_is_told(void **state)
{
	struct told t = {.refuse = 1};
	const struct gn_vol_authority authority = {NULL, told_add, &t};
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	struct gn_vol_opts opts;
	struct gn_thread *thread;
	struct one_write one = {0};
	struct vol_world w;

	(void)state;
	world_open(&w, 2, 6);
	opts = vol_opts(&w, VOL_SLAB, 2);
	opts.headroom = 2 * VOL_SLAB;
	opts.authority = &authority;
	vol_open(&w, &opts);
	one.vol = w.vol;
	assert_int_equal(gn_thread_start("write", write_block, &one, &thread), 0);
	while (__atomic_load_n(&t.asked, __ATOMIC_ACQUIRE) < 3) {
		assert_true(gn_now_ns() < until_ns);
		gn_sleep_us(200);
	}
	assert_int_equal(__atomic_load_n(&one.done, __ATOMIC_ACQUIRE), 0);
	__atomic_store_n(&t.refuse, 0, __ATOMIC_RELEASE);
	gn_thread_join(thread);
	assert_int_equal(one.rc, 0);
	assert_int_equal(__atomic_load_n(&t.added, __ATOMIC_ACQUIRE), 2);
	world_close(&w);
}

#define HALF (VOL_SLAB / 2)

/* Locks a range of the first stripe, which nobody else uses now, or unlocks it. */
static void range_hold(const struct vol_world *w, struct vol_range *range, bool lock)
{
	struct vol_bucket *bucket = vol_bucket(w->vol, range->start);

	vol_bucket_lock(bucket);
	if (lock)
		assert_true(vol_range_lock(bucket, range, NULL));
	else
		vol_range_unlock(bucket, range);
	vol_bucket_unlock(bucket);
}

/* A copy that is the only one left before it is complete: repair waits in the middle. */
static void test_last_copy_is_told(void **state)
{
	struct told t = {0};
	const struct gn_vol_authority authority = {NULL, told_add, &t};
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	struct gn_vol_opts opts;
	struct vol_range range = {.start = HALF, .end = HALF + VOL_CHUNK, .exclusive = true};
	struct gn_vol_stats s;
	struct vol_world w;
	unsigned first, second;

	(void)state;
	world_open(&w, 3, 6);
	opts = vol_opts(&w, VOL_SLAB, 2);
	opts.detect_us = 30000;
	opts.lost_us = 400000;
	opts.authority = &authority;
	vol_open(&w, &opts);
	assert_int_equal(gn_vol_write(w.vol, bytes, VOL_SLAB, 0, 0), 0);
	first = donor_read(&w, 0);
	second = w.vol->extents[0].copy[1]->donor->index;
	range_hold(&w, &range, true);
	donor_kill(&w, first);
	VOL_AWAIT(&w, s, s.repair_done == HALF);
	donor_kill(&w, second);
	VOL_AWAIT(&w, s, s.donors[second].state == GN_VOL_DONOR_DOWN);
	range_hold(&w, &range, false); /* the next chunk is read from a donor that is lost soon */
	VOL_AWAIT(&w, s, s.copies_lost == 2 && s.with_copies[1] == 1);
	assert_int_equal(s.blocks_written, HALF / GN_VOL_BLOCK);
	assert_int_equal(s.blocks_lost, HALF / GN_VOL_BLOCK);
	while (!__atomic_load_n(&t.added, __ATOMIC_ACQUIRE)) {
		assert_true(gn_now_ns() < until_ns);
		gn_sleep_us(200);
	}
	assert_string_equal(t.donor, w.addrs[3 - first - second]);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fill_is_told),
		cmocka_unit_test(test_last_copy_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
