/* SPDX-License-Identifier: MIT */
/*
 * Donors on shared memory for tests of volumes, with their threads in this process. A donor can be
 * ended without a word ("killed": its connections break, and nobody listens) and started again.
 * Tests look into the donors' slabs.
 */
#ifndef GN_TESTS_VOL_WORLD_H
#define GN_TESTS_VOL_WORLD_H

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "donor/server.h"
#include "gannet/vol.h"
#include "unit.h"
#include "unit_world.h"
#include "vol/vol.h"

#define VOL_SLAB  (1u << 20)
#define MOST	  6u
#define LONG_US	  UNIT_PATIENCE_US
#define MARK_WORD 0x6b72616d00000000u
#define MARK_AT	  (VOL_SLAB / 4) /* of each extent: a word that copies_of() looks for */

struct vol_world {
	struct gn_fabric *fabric; /* the volume's */
	struct {
		struct gn_fabric *fabric;
		struct gn_donor_server *server;
		struct gn_donor_server_opts opts;
		uint64_t available; /* atomic: what its system has */
		char addr[64];
	} donor[MOST];
	const char *addrs[MOST];
	unsigned n;
	struct gn_vol *vol;
};

static inline uint64_t donor_available(void *arg)
{
	return __atomic_load_n((uint64_t *)arg, __ATOMIC_RELAXED);
}

static inline void donor_start(struct vol_world *w, unsigned i)
{
	assert_int_equal(gn_donor_server_create(w->donor[i].fabric, w->addrs[i], &w->donor[i].opts,
						&w->donor[i].server),
			 0);
	assert_int_equal(gn_donor_server_start(w->donor[i].server), 0);
}

static inline void donor_kill(struct vol_world *w, unsigned i)
{
	gn_donor_server_destroy(w->donor[i].server);
	w->donor[i].server = NULL;
}

/* n donors with so many slabs each. */
static inline void world_open(struct vol_world *w, unsigned n, unsigned slabs)
{
	*w = (struct vol_world){.n = n};
	assert_true(n <= MOST);
	assert_int_equal(gn_fabric_open("shm", &w->fabric), 0);
	for (unsigned i = 0; i < n; i++) {
		w->donor[i].available = UINT64_MAX;
		w->donor[i].opts =
			(struct gn_donor_server_opts){.size = sizeof(w->donor[i].opts),
						      .slab = VOL_SLAB,
						      .memory = (uint64_t)slabs * VOL_SLAB,
						      .reserve = 1,
						      .available = donor_available,
						      .available_arg = &w->donor[i].available};
		snprintf(w->donor[i].addr, sizeof(w->donor[i].addr), "shm:vol-%d-%llx",
			 (int)getpid(), (unsigned long long)gn_random());
		w->addrs[i] = w->donor[i].addr;
		assert_int_equal(gn_fabric_open("shm", &w->donor[i].fabric), 0);
		donor_start(w, i);
	}
}

static inline struct gn_vol_opts vol_opts(const struct vol_world *w, uint64_t bytes,
					  uint32_t copies)
{
	return (struct gn_vol_opts){.size = sizeof(struct gn_vol_opts),
				    .bytes = bytes,
				    .donors = w->addrs,
				    .n_donors = w->n,
				    .copies = copies};
}

static inline void vol_open(struct vol_world *w, const struct gn_vol_opts *opts)
{
	const int rc = gn_vol_create(w->fabric, opts, &w->vol);

	if (rc)
		print_error("gn_vol_create(): %s\n", gn_error());
	assert_int_equal(rc, 0);
}

/* The number of the donor whose copy of an extent is read. */
static inline unsigned donor_read(const struct vol_world *w, uint32_t extent)
{
	return w->vol->extents[extent].copy[0]->donor->index;
}

/* Donors, and a volume with default options. */
static inline void world_open_vol(struct vol_world *w, unsigned n, unsigned slabs, uint64_t bytes,
				  uint32_t copies)
{
	struct gn_vol_opts opts;

	world_open(w, n, slabs);
	opts = vol_opts(w, bytes, copies);
	vol_open(w, &opts);
}

/* Destroys the volume. Every donor that runs has got its slabs back. */
static inline void world_close(struct vol_world *w)
{
	struct gn_donor_stats stats = {.size = sizeof(stats)};

	assert_int_equal(gn_vol_destroy(w->vol), 0);
	for (unsigned i = 0; i < w->n; i++) {
		if (w->donor[i].server) {
			gn_donor_server_stats(w->donor[i].server, &stats);
			assert_int_equal(stats.granted, 0);
		}
		donor_kill(w, i);
		assert_int_equal(gn_fabric_close(w->donor[i].fabric), 0);
	}
	assert_int_equal(gn_fabric_close(w->fabric), 0);
}

static inline struct gn_vol_stats vol_stats(const struct vol_world *w)
{
	struct gn_vol_stats stats = {.size = sizeof(stats)};

	assert_int_equal(gn_vol_query(w->vol, &stats), 0);
	return stats;
}

/* Every extent that has memory has all copies. */
static inline bool is_whole(const struct gn_vol_stats *s)
{
	uint64_t n = s->unused;

	for (unsigned i = 0; i <= GN_VOL_COPIES_MAX; i++)
		n += s->with_copies[i];
	assert_int_equal(n, s->extents);
	return s->with_copies[s->copies] == s->extents - s->unused;
}

/* Waits until a condition on the statistics s holds. */
#define VOL_AWAIT(w, s, cond)                                       \
	do {                                                        \
		const uint64_t until_ns_ = gn_deadline_us(LONG_US); \
		while ((s) = vol_stats(w), !(cond)) {               \
			if (gn_now_ns() > until_ns_)                \
				fail_msg("not in time: %s", #cond); \
			gn_sleep_us(500);                           \
		}                                                   \
	} while (0)

/* ---- slabs ---- */

/* A slab that a client holds, or NULL. No grant or release is under way. */
static inline uint8_t *slab_at(const struct vol_world *w, unsigned donor, unsigned slab)
{
	struct gn_donor_server *server = w->donor[donor].server;
	uint8_t *bytes = NULL;

	if (!server)
		return NULL;
	gn_mutex_lock(&server->lock);
	if (slab < server->n_slabs && server->slabs[slab].state == SLAB_GRANTED)
		bytes = gn_mem_addr(server->slabs[slab].mem);
	gn_mutex_unlock(&server->lock);
	return bytes;
}

/* The copies of the extent with a mark. Returns how many. */
static inline unsigned copies_of(const struct vol_world *w, uint32_t mark, uint8_t *out[MOST])
{
	const uint64_t word = MARK_WORD + mark;
	unsigned n = 0;

	for (unsigned i = 0; i < w->n; i++)
		for (unsigned s = 0; w->donor[i].server && s < w->donor[i].server->n_slabs; s++) {
			uint8_t *slab = slab_at(w, i, s);

			if (!slab || memcmp(slab + MARK_AT, &word, sizeof(word)))
				continue;
			assert_true(n < MOST);
			out[n++] = slab;
		}
	return n;
}

/* Marks all extents. */
static inline void mark_extents(struct vol_world *w)
{
	for (uint64_t at = 0; at < gn_vol_bytes(w->vol); at += VOL_SLAB) {
		const uint64_t word = MARK_WORD + at / VOL_SLAB;

		assert_int_equal(gn_vol_write(w->vol, &word, sizeof(word), at + MARK_AT, 0), 0);
	}
}

/*
 * All extents are marked, nothing is written now, and nothing was discarded. Copies that were given
 * up are returned a moment later.
 */
static inline void assert_copies_equal(const struct vol_world *w, unsigned copies)
{
	for (uint64_t at = 0; at < gn_vol_bytes(w->vol); at += VOL_SLAB) {
		const uint64_t until_ns = gn_deadline_us(LONG_US);
		uint8_t *copy[MOST];

		while (copies_of(w, (uint32_t)(at / VOL_SLAB), copy) != copies) {
			assert_true(gn_now_ns() < until_ns);
			gn_sleep_us(500);
		}
		for (unsigned i = 1; i < copies; i++)
			assert_memory_equal(copy[0], copy[i], VOL_SLAB);
	}
}

#endif
