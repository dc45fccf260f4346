/* SPDX-License-Identifier: MIT */
/*
 * The heap of the program: arenas of jemalloc whose extents come from the pager. jemalloc's own
 * arena 0, with its metadata and the caches of all threads, stays in plain memory. The island has
 * an arena to itself: a thread of the program may wait for a page while it has a lock of arena 0,
 * in a signal handler or because its stack is paged.
 *
 * What the C library and the dynamic linker allocate for themselves is plain, too, in all threads:
 * locales, tables of printf(), maps of loaded libraries, the environment. The island reads these.
 */
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"

#define ARENAS_PER_CPU 4u
#define ARENAS_MAX     64u
/* An arena asks for a part of the volume ahead of need, at most. */
#define GROW_PARTS  32u
#define GROW_MIN    (2u << 20)
#define GROW_MAX    (64u << 20)
#define RETURN_FROM (1u << 20) /* shorter extents stay with their arena when they are free */

/*
 * Wins over MALLOC_CONF. One arena of jemalloc's own; no separate arena for large allocations,
 * which would bypass the hooks.
 */
PRELOAD_API const char *malloc_conf_2_conf_harder =
	"narenas:1,percpu_arena:disabled,oversize_threshold:0,dss:disabled";

_Thread_local bool preload_paged, preload_island;

/* ---- extent hooks: memory of an arena ---- */

static void *extent_alloc(extent_hooks_t *hooks, void *new_addr, size_t bytes, size_t align,
			  bool *zero, bool *commit, unsigned arena)
{
	void *ptr;

	(void)hooks;
	(void)arena;
	if (new_addr)
		return NULL;
	ptr = paged_map(bytes, align);
	if (ptr) {
		*zero = true;
		*commit = true;
	}
	return ptr;
}

/* The hooks below return false for success. */
static bool extent_dalloc(extent_hooks_t *hooks, void *addr, size_t bytes, bool committed,
			  unsigned arena)
{
	(void)hooks;
	(void)committed;
	(void)arena;
	return bytes < RETURN_FROM || paged_unmap(addr, bytes);
}

static void extent_destroy(extent_hooks_t *hooks, void *addr, size_t bytes, bool committed,
			   unsigned arena)
{
	(void)hooks;
	(void)committed;
	(void)arena;
	paged_unmap(addr, bytes);
}

static bool extent_commit(extent_hooks_t *hooks, void *addr, size_t bytes, size_t offset,
			  size_t length, unsigned arena)
{
	(void)hooks;
	(void)addr;
	(void)bytes;
	(void)offset;
	(void)length;
	(void)arena;
	return false;
}

static bool extent_purge(extent_hooks_t *hooks, void *addr, size_t bytes, size_t offset,
			 size_t length, unsigned arena)
{
	(void)hooks;
	(void)bytes;
	(void)arena;
	return paged_advise((char *)addr + offset, length, GN_PAGER_DONT_NEED);
}

static bool extent_split(extent_hooks_t *hooks, void *addr, size_t bytes, size_t bytes_a,
			 size_t bytes_b, bool committed, unsigned arena)
{
	(void)hooks;
	(void)addr;
	(void)bytes;
	(void)bytes_a;
	(void)bytes_b;
	(void)committed;
	(void)arena;
	return false;
}

/* The pager does not care which call has mapped a page. */
static bool extent_merge(extent_hooks_t *hooks, void *a, size_t bytes_a, void *b, size_t bytes_b,
			 bool committed, unsigned arena)
{
	(void)hooks;
	(void)a;
	(void)bytes_a;
	(void)b;
	(void)bytes_b;
	(void)committed;
	(void)arena;
	return false;
}

static extent_hooks_t extent_hooks = {
	.alloc = extent_alloc,
	.dalloc = extent_dalloc,
	.destroy = extent_destroy,
	.commit = extent_commit,
	.purge_forced = extent_purge,
	.split = extent_split,
	.merge = extent_merge,
};

/* ---- arenas ---- */

static pthread_mutex_t arenas_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned arenas[ARENAS_MAX]; /* 0: not made yet */
static unsigned n_arenas, next_arena;
static size_t grow_bytes;

/*
 * The hooks are set after the arena was made: given to arenas.create, they would also be asked for
 * the metadata of the arena, which threads of the island read.
 */
static unsigned arena_create(void)
{
	extent_hooks_t *hooks = &extent_hooks;
	size_t size = sizeof(unsigned);
	unsigned arena;
	char name[64];

	if (mallctl("arenas.create", &arena, &size, NULL, 0))
		return 0;
	snprintf(name, sizeof(name), "arena.%u.retain_grow_limit", arena);
	mallctl(name, NULL, NULL, &grow_bytes, sizeof(grow_bytes));
	snprintf(name, sizeof(name), "arena.%u.extent_hooks", arena);
	return mallctl(name, NULL, NULL, &hooks, sizeof(hooks)) ? 0 : arena;
}

static unsigned arena_choose(void)
{
	unsigned *arena;

	pthread_mutex_lock(&arenas_lock);
	arena = &arenas[next_arena++ % n_arenas];
	if (!*arena)
		*arena = arena_create();
	pthread_mutex_unlock(&arenas_lock);
	return *arena;
}

void heap_enter(void)
{
	unsigned arena = arena_choose();

	if (arena)
		mallctl("thread.arena", NULL, NULL, &arena, sizeof(arena));
	preload_paged = true;
}

void heap_enter_island(void)
{
	static unsigned arena; /* the first thread makes it, and starts the others */
	size_t size = sizeof(arena);

	if (!arena && mallctl("arenas.create", &arena, &size, NULL, 0))
		return;
	mallctl("thread.arena", NULL, NULL, &arena, sizeof(arena));
	preload_island = true;
}

/* ---- malloc and its relatives ---- */

/* jemalloc's own, which objcopy has renamed. */
void *heap_malloc(size_t bytes);
void *heap_calloc(size_t n, size_t bytes);
void *heap_realloc(void *ptr, size_t bytes);

#define PLAIN (MALLOCX_ARENA(0) | MALLOCX_TCACHE_NONE)

/* The code of the C library, and of the dynamic linker. */
static struct code {
	uintptr_t from;
	size_t bytes;
} system_code[2];

static _Thread_local unsigned system_calls; /* of malloc(): heap_is_used() */

/* Does the C library or the dynamic linker want memory for itself, in a thread of the program? */
static inline bool is_system(const void *caller)
{
	const uintptr_t at = (uintptr_t)caller;

	return preload_paged && (at - system_code[0].from < system_code[0].bytes ||
				 at - system_code[1].from < system_code[1].bytes);
}

static void *heap_result(void *ptr)
{
	if (__builtin_expect(!ptr, 0))
		preload_deny(PRELOAD_DENIED_MEMORY);
	return ptr;
}

PRELOAD_API void *malloc(size_t bytes)
{
	if (!is_system(__builtin_return_address(0)))
		return heap_result(heap_malloc(bytes));
	system_calls++;
	return mallocx(bytes ? bytes : 1, PLAIN);
}

PRELOAD_API void *calloc(size_t n, size_t bytes)
{
	size_t all;

	if (!is_system(__builtin_return_address(0)))
		return heap_result(heap_calloc(n, bytes));
	if (__builtin_mul_overflow(n, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return mallocx(all ? all : 1, PLAIN | MALLOCX_ZERO);
}

PRELOAD_API void *realloc(void *ptr, size_t bytes)
{
	if (!is_system(__builtin_return_address(0)) || !bytes)
		return bytes ? heap_result(heap_realloc(ptr, bytes)) : heap_realloc(ptr, 0);
	return ptr ? rallocx(ptr, bytes, PLAIN) : mallocx(bytes, PLAIN);
}

PRELOAD_API void *reallocarray(void *ptr, size_t n, size_t bytes)
{
	size_t all;

	if (__builtin_mul_overflow(n, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(ptr, all);
}

/* jemalloc has none, and free() of the C library's would be jemalloc's. */
PRELOAD_API void *pvalloc(size_t bytes)
{
	size_t all;

	if (__builtin_add_overflow(bytes, GN_PAGER_PAGE - 1, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return heap_result(memalign(GN_PAGER_PAGE, all / GN_PAGER_PAGE * GN_PAGER_PAGE));
}

/* The C library's strings that are the program's. */
static char *string_copy(const char *text, size_t len)
{
	char *copy = heap_malloc(len + 1);

	if (copy) {
		memcpy(copy, text, len);
		copy[len] = 0;
	}
	return copy;
}

PRELOAD_API char *strndup(const char *text, size_t max)
{
	return string_copy(text, strnlen(text, max));
}

PRELOAD_API char *strdup(const char *text)
{
	return string_copy(text, strlen(text));
}

static int code_find(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	const bool is_libc = slash && !strncmp(slash, "/libc.so", strlen("/libc.so"));

	(void)size;
	(void)arg;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		const struct code code = {info->dlpi_addr + part->p_vaddr, part->p_memsz};

		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
			continue;
		if (is_libc)
			system_code[0] = code;
		else if (_r_debug.r_brk - code.from < code.bytes)
			system_code[1] = code;
	}
	return 0;
}

int heap_init(uint64_t volume_bytes)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	const uint64_t part = volume_bytes / GROW_PARTS;

	n_arenas = cpus > 0 ? (unsigned)cpus * ARENAS_PER_CPU : ARENAS_PER_CPU;
	n_arenas = n_arenas > ARENAS_MAX ? ARENAS_MAX : n_arenas;
	grow_bytes = part < GROW_MIN ? GROW_MIN : part > GROW_MAX ? GROW_MAX : part;
	dl_iterate_phdr(code_find, NULL);
	return system_code[0].bytes && system_code[1].bytes ? 0 : -ENOTSUP;
}

bool heap_is_used(void)
{
	const unsigned before = system_calls;
	char *text;
	int len;

	preload_paged = true;
	len = asprintf(&text, "gannet");
	preload_paged = false;
	return len > 0 && system_calls > before;
}
