/* SPDX-License-Identifier: MIT */
/* A pager on a volume of donors in this process, and what tests ask about it. */
#ifndef GN_TESTS_PAGER_WORLD_H
#define GN_TESTS_PAGER_WORLD_H

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "gannet/pager.h"
#include "vol_world.h"

#define MIB   (1u << 20)
#define PAGE  GN_PAGER_PAGE
#define LOCAL GN_PAGER_LOCAL_MIN

struct pager_world {
	struct vol_world vol;
	struct gn_pager *pager;
	uint64_t bytes; /* of the volume */
};

/* Leaves if no pager can work here. */
static inline void pager_require(void)
{
	if (!gn_pager_probe())
		return;
	printf("1..0 # SKIP %s\n", gn_error());
	exit(77);
}

static inline struct gn_pager_opts pager_opts(bool write_faults)
{
	return (struct gn_pager_opts){.size = sizeof(struct gn_pager_opts),
				      .local_bytes = LOCAL,
				      .write_faults = write_faults};
}

static inline void pager_open(struct pager_world *w, unsigned donors, unsigned copies, unsigned mib,
			      const struct gn_pager_opts *opts)
{
	struct gn_vol_opts vol;
	int rc;

	world_open(&w->vol, donors, mib);
	w->bytes = (uint64_t)mib * MIB;
	vol = vol_opts(&w->vol, w->bytes, copies);
	vol.detect_us = 30000;
	vol.lost_us = 400000;
	vol.repair_share = 100;
	vol_open(&w->vol, &vol);
	rc = gn_pager_create(w->vol.vol, opts, &w->pager);
	if (rc)
		print_error("gn_pager_create(): %s\n", gn_error());
	assert_int_equal(rc, 0);
}

static inline void pager_close(struct pager_world *w)
{
	assert_int_equal(gn_pager_destroy(w->pager), 0);
	world_close(&w->vol);
}

static inline uint8_t *pager_map(const struct pager_world *w, uint64_t bytes)
{
	void *addr = NULL;
	const int rc = gn_pager_map(w->pager, bytes, &addr);

	if (rc)
		print_error("gn_pager_map(): %s\n", gn_error());
	assert_int_equal(rc, 0);
	return addr;
}

static inline struct gn_pager_stats pager_stats(const struct pager_world *w)
{
	struct gn_pager_stats s = {.size = sizeof(s)};

	assert_int_equal(gn_pager_query(w->pager, &s), 0);
	return s;
}

/* ---- contents ---- */

/*
 * The first word of a page is its number, which other threads read while the owner writes it again;
 * the rest is of its owner's last version.
 */
static inline bool page_has_number(const uint8_t *base, uint64_t page)
{
	return __atomic_load_n((const uint64_t *)(const void *)(base + page * PAGE),
			       __ATOMIC_RELAXED) == page;
}

static inline void page_write(uint8_t *base, uint64_t page, uint32_t version)
{
	uint8_t *at = base + page * PAGE;

	fill(at + 8, PAGE - 8, (uint32_t)page * 131 + version);
	__atomic_store_n((uint64_t *)(void *)at, page, __ATOMIC_RELAXED);
}

static inline bool page_is(const uint8_t *base, uint64_t page, uint32_t version)
{
	const uint8_t *at = base + page * PAGE;

	return page_has_number(base, page) &&
	       is_filled(at + 8, PAGE - 8, (uint32_t)page * 131 + version);
}

/* ---- signals ---- */

static sigjmp_buf touch_back;
static volatile sig_atomic_t touch_code;

static void touch_caught(int signo, siginfo_t *info, void *context)
{
	(void)context;
	touch_code = info->si_code;
	siglongjmp(touch_back, signo);
}

/* Returns the signal that a read of the byte raises, or 0. */
static inline int touch(const uint8_t *addr)
{
	const struct sigaction catch = {.sa_sigaction = touch_caught, .sa_flags = SA_SIGINFO};
	struct sigaction segv, bus;
	int signo;

	sigaction(SIGSEGV, &catch, &segv);
	sigaction(SIGBUS, &catch, &bus);
	signo = sigsetjmp(touch_back, 1);
	if (!signo)
		*(volatile const uint8_t *)addr;
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return signo;
}

#endif
