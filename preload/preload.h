/* SPDX-License-Identifier: MIT */
/*
 * The library that `gannet pager run` loads into a program. Memory of the program's threads comes
 * from a pager: the heap (jemalloc, heap.c) and large anonymous mappings (mapping.c).
 *
 * Threads of the pager, of the volume and of the fabric form the island (island.c): they have their
 * own table of descriptors and their own arena of jemalloc, block all signals, and must never touch
 * paged memory, because nobody would answer the fault, nor wait for a lock that a thread of the
 * program can have while it waits for a page. So paged memory is what a thread has to ask for: only
 * the main thread and threads that such a thread starts are marked preload_paged. All others use
 * jemalloc's arena 0 and plain mappings. This library itself, jemalloc and libgannet call mmap(2)
 * and its relatives directly (--wrap of the linker).
 */
#ifndef GN_PRELOAD_H
#define GN_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "shared.h"

#define PRELOAD_API __attribute__((visibility("default")))

/* The calling thread gets paged memory … */
extern _Thread_local bool preload_paged __attribute__((tls_model("initial-exec")));
/* … and belongs to the island. */
extern _Thread_local bool preload_island __attribute__((tls_model("initial-exec")));

struct preload_opts {
	struct gn_vol_opts vol;
	struct gn_io_opts io;
	struct gn_pager_opts pager;
	const char *donors[GN_VOL_DONORS_MAX];
	const char *monitor, *shared;
	bool children;
	pid_t pid;
};

/* ---- start.c ---- */

extern struct preload_shared *preload_shared;

/* Notes that a call was denied; the command, or a thread of the island, says it. */
void preload_deny(enum preload_denied what);
/*
 * The process is about to execute another program: for the command, which says so. NULL: it could
 * not. Also for signal handlers and children of vfork(), which are other processes.
 */
void preload_execute(const char *path);

/* ---- env.c ---- */

/* From now on libgannet sees the environment as it is now. 0 or -ENOMEM. */
int env_copy(void);
/* Of the copy. */
const char *env_get(const char *name);
/* Changes a variable that the program has; NULL removes it. */
void env_set(const char *name, const char *value);

/* ---- island.c ---- */

/* Starts the island, and returns when the pager is there: 0, or -errno with the reason in why. */
int island_start(const struct preload_opts *opts);
/* The program ends: has the last statistics written to preload_shared. */
void island_end(void);

/* ---- memory of the pager (paged.c) ---- */

void paged_init(struct gn_pager *pager);
bool paged_ready(void);
/* NULL: the volume is full. align is a power of two. */
void *paged_map(size_t bytes, size_t align);
/* Whole pages, all of them paged. 0 or -errno. */
int paged_unmap(void *addr, size_t bytes);
int paged_advise(void *addr, size_t bytes, enum gn_pager_advice advice);
/*
 * The part of a range that is in the address range of the pager: true if there is one. Its ends are
 * rounded out to whole pages.
 */
bool paged_part(const void *addr, size_t bytes, char **from, size_t *part_bytes);

/* ---- heap.c ---- */

/* -ENOTSUP: there is no C library that is loaded dynamically. */
int heap_init(uint64_t volume_bytes);
/* Whether others call this library's malloc(), and not one of the program itself. */
bool heap_is_used(void);
/* From now on the calling thread allocates paged memory. */
void heap_enter(void);
/* From now on it allocates in the arena of the island. */
void heap_enter_island(void);

/* ---- system calls that bypass the library's own symbols (mapping.c) ---- */

void *plain_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset);
int plain_munmap(void *addr, size_t bytes);

#endif
