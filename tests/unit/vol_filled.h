/* SPDX-License-Identifier: MIT */
/*
 * A volume that is wholly written, with a mark in each extent, and a backup in memory. Define
 * EXTENTS before including it.
 */
#ifndef GN_TESTS_VOL_FILLED_H
#define GN_TESTS_VOL_FILLED_H

#include "vol_world.h"

#define BYTES  (EXTENTS * VOL_SLAB)
#define DETECT 30000u
#define LOST   400000u

static uint8_t bytes[BYTES], got[BYTES];

static inline void open_filled(struct vol_world *w, unsigned donors, unsigned copies,
			       unsigned slabs, const struct gn_vol_opts *more)
{
	struct gn_vol_opts opts;

	world_open(w, donors, slabs);
	opts = vol_opts(w, BYTES, copies);
	opts.detect_us = more->detect_us ? more->detect_us : DETECT;
	opts.lost_us = LOST;
	opts.verify = more->verify;
	opts.authority = more->authority;
	opts.backup = more->backup;
	opts.repair_share = 100;
	vol_open(w, &opts);
	fill(bytes, BYTES, 1);
	for (unsigned i = 0; i < EXTENTS; i++) {
		const uint64_t word = MARK_WORD + i;

		memcpy(bytes + (size_t)i * VOL_SLAB + MARK_AT, &word, sizeof(word));
	}
	assert_int_equal(gn_vol_write(w->vol, bytes, BYTES, 0, 0), 0);
}

static inline void check_all(const struct vol_world *w)
{
	memset(got, 0xee, BYTES);
	assert_int_equal(gn_vol_read(w->vol, got, BYTES, 0), 0);
	assert_memory_equal(got, bytes, BYTES);
}

/* ---- backup ---- */

struct backup {
	uint8_t bytes[BYTES];
	struct gn_vol *vol;
	uint64_t overwrite; /* atomic: the offset of a block that is written meanwhile, + 1 */
	unsigned refuse;    /* atomic: writes fail */
	unsigned hold;	    /* atomic: writes wait until it is 0 … */
	unsigned held;	    /* atomic: … and have begun to */
	unsigned syncs;	    /* atomic */
};

static inline int backup_read(void *arg, void *buf, size_t len, uint64_t offset)
{
	memcpy(buf, ((struct backup *)arg)->bytes + offset, len);
	return 0;
}

static inline int backup_write(void *arg, const void *buf, size_t len, uint64_t offset)
{
	struct backup *b = arg;
	const uint64_t at = __atomic_load_n(&b->overwrite, __ATOMIC_ACQUIRE) - 1;

	assert_true(offset % GN_VOL_BLOCK == 0 && len % GN_VOL_BLOCK == 0);
	if (__atomic_load_n(&b->refuse, __ATOMIC_ACQUIRE))
		return -EIO;
	while (__atomic_load_n(&b->hold, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&b->held, 1, __ATOMIC_RELEASE);
		gn_sleep_us(200);
	}
	if (at >= offset && at < offset + len) {
		__atomic_store_n(&b->overwrite, 0, __ATOMIC_RELEASE);
		fill(bytes + at, GN_VOL_BLOCK, 77);
		assert_int_equal(gn_vol_write(b->vol, bytes + at, GN_VOL_BLOCK, at, 0), 0);
	}
	memcpy(b->bytes + offset, buf, len);
	return 0;
}

static inline int backup_sync(void *arg)
{
	__atomic_add_fetch(&((struct backup *)arg)->syncs, 1, __ATOMIC_ACQ_REL);
	return 0;
}

#endif
