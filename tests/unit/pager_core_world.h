/* SPDX-License-Identifier: MIT */
/*
 * The core of a pager on a volume, with a model of the page table: for tests that are the handler.
 */
#ifndef GN_TESTS_PAGER_CORE_WORLD_H
#define GN_TESTS_PAGER_CORE_WORLD_H

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "../pager_model.h"
#include "vol_world.h"

#define PAGES_SLABS 8u
#define PAGES	    (PAGES_SLABS * VOL_SLAB / GN_PAGER_PAGE)
#define LOCAL	    512u

struct pager_world {
	struct vol_world w;
	struct pager_model m;
	struct pager_core *core;
	uint64_t seed;
	uint32_t *version;	   /* of each page: 0 for zeros */
	void (*faults)(void *arg); /* pager_core_opts */
	void *faults_arg;
};

/* The world is open. */
static inline void pager_open_core(struct pager_world *p, uint64_t local, uint32_t window,
				   unsigned slabs, uint32_t lost_us)
{
	const struct pager_core_opts opts = {.pages = PAGES,
					     .local = local,
					     .window = window,
					     .faults = p->faults,
					     .faults_arg = p->faults_arg};
	struct gn_vol_opts vol;

	vol = vol_opts(&p->w, (uint64_t)PAGES * GN_PAGER_PAGE, 1);
	vol.lost_us = lost_us;
	vol.headroom = slabs < PAGES_SLABS ? VOL_SLAB : 0;
	vol_open(&p->w, &vol);
	assert_int_equal(model_init(&p->m, PAGES, local), 0);
	assert_int_equal(pager_core_create(p->w.vol, &opts, &model_ops, &p->m, &p->core), 0);
	p->version = gn_alloc(PAGES * sizeof(*p->version), 0);
	assert_non_null(p->version);
	p->seed = unit_seed();
}

static inline void pager_open_vol(struct pager_world *p, uint64_t local, uint32_t window,
				  unsigned slabs, uint32_t lost_us)
{
	world_open(&p->w, 1, slabs);
	pager_open_core(p, local, window, slabs, lost_us);
}

static inline void pager_open(struct pager_world *p, uint64_t local, uint32_t window)
{
	pager_open_vol(p, local, window, PAGES_SLABS, 0);
}

static inline void pager_close(struct pager_world *p)
{
	assert_string_equal(p->m.failure, "");
	pager_core_destroy(p->core);
	model_fini(&p->m);
	gn_free(p->version);
	world_close(&p->w);
}

static inline struct gn_pager_stats pager_stats(const struct pager_world *p)
{
	struct gn_pager_stats stats = {.size = sizeof(stats)};

	pager_core_query(p->core, &stats);
	return stats;
}

static inline uint64_t page_word(uint64_t page, uint32_t version)
{
	return version ? (page + 1) << 32 | version : 0;
}

/* As the front's handler does it. The page may be evicted before it is touched: another fault. */
static inline enum model_touch pager_touch(struct pager_world *p, uint64_t page, bool write)
{
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	enum model_touch touch;

	while ((touch = model_touch(&p->m, page, write)) == TOUCH_FAULT) {
		assert_true(gn_now_ns() < until_ns);
		pager_core_fault(p->core, page, 1, write);
		while (pager_core_work(p->core))
			;
		while (pager_core_busy(p->core))
			pager_core_wait(p->core, gn_deadline_us(50));
	}
	return touch;
}

static inline void pager_check(struct pager_world *p, uint64_t page)
{
	const uint64_t want = page_word(page, p->version[page]);
	const uint64_t *word;

	assert_int_equal(pager_touch(p, page, false), TOUCH_DONE);
	word = (const uint64_t *)(const void *)model_bytes(&p->m, page);
	for (unsigned i = 0; i < GN_PAGER_PAGE / 8; i++)
		if (word[i] != want)
			fail_msg("page %llu: word %u is %llx instead of %llx",
				 (unsigned long long)page, i, (unsigned long long)word[i],
				 (unsigned long long)want);
}

static inline void pager_write(struct pager_world *p, uint64_t page, uint32_t version)
{
	uint64_t *word;

	assert_int_equal(pager_touch(p, page, true), TOUCH_DONE);
	p->version[page] = version;
	word = (uint64_t *)(void *)model_bytes(&p->m, page);
	for (unsigned i = 0; i < GN_PAGER_PAGE / 8; i++)
		word[i] = page_word(page, version);
}

static inline uint64_t pager_map(struct pager_world *p, uint64_t n)
{
	uint64_t page = UINT64_MAX;

	assert_int_equal(pager_core_map(p->core, n, &page), 0);
	assert_true(page <= PAGES - n);
	for (uint64_t i = page; i < page + n; i++)
		p->version[i] = 0;
	return page;
}

/* The first three quarters are on the volume only. */
static inline uint64_t pager_fill_volume(struct pager_world *p)
{
	const uint64_t first = pager_map(p, PAGES);

	for (uint64_t i = 0; i < PAGES; i++)
		pager_write(p, first + i, 5);
	return first;
}

/* ---- donors ---- */

/*
 * A donor in a process of its own: this program again. A donor of this process that ends may still
 * say that its sessions are gone; a process that is killed says nothing.
 */
static inline int donor_process_main(char *const *argv)
{
	const struct gn_donor_server_opts opts = {.size = sizeof(opts),
						  .slab = VOL_SLAB,
						  .memory = strtoull(argv[2], NULL, 10) * VOL_SLAB,
						  .reserve = 1};
	struct gn_donor_server *server;
	struct gn_fabric *fabric;

	if (gn_fabric_open("shm", &fabric) ||
	    gn_donor_server_create(fabric, argv[1], &opts, &server) ||
	    gn_donor_server_start(server) || write(STDOUT_FILENO, "", 1) != 1)
		return 1;
	for (;;)
		pause();
}

static inline pid_t donor_process_start(const char *addr, unsigned slabs)
{
	char name[] = "donor", at[64], memory[16], ready;
	char *argv[] = {name, at, memory, NULL};
	posix_spawn_file_actions_t actions;
	int out[2];
	pid_t pid;

	snprintf(at, sizeof(at), "%s", addr);
	snprintf(memory, sizeof(memory), "%u", slabs);
	assert_int_equal(pipe(out), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, out[0]);
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(out[1]);
	assert_int_equal(read(out[0], &ready, 1), 1);
	close(out[0]);
	return pid;
}

#endif
