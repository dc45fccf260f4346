/* SPDX-License-Identifier: MIT */
/*
 * Fibers. One mapping holds a guard page, the stack above it, and the struct at the high end, so a
 * fiber needs no heap memory:
 *
 *     low │ guard │ … stack, grows down … │ struct gn_fiber │ shift │ high
 *
 * The shift differs from fiber to fiber: stacks with the same offset in their pages would evict
 * each other from the caches.
 *
 * The fiber of an adopted thread is the struct alone. A simulated process keeps a list of its
 * fibers, because it may be killed at any point and the simulator must then destroy them.
 */
#define _GNU_SOURCE 1
#include <assert.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/exec.h"
#include "base/fail.h"
#include "base/fiber_context.h"
#include "base/fiber_hooks.h"
#include "base/list.h"
#include "gannet/base.h"

struct gn_fiber {
	struct fiber_context context;
	struct fiber_hooks hooks;
	void (*fn)(void *arg);
	void *arg;
	char *map;
	size_t map_bytes;
	char *stack;		       /* low end; NULL when adopted */
	struct gn_fiber *next, **prev; /* the process's list, if there is one */
};

/* The struct follows the stack, whose end must be aligned. */
#define STRUCT_BYTES ((sizeof(struct gn_fiber) + 63) & ~(size_t)63)

static size_t stack_bytes_of(const struct gn_fiber *fiber)
{
	return (size_t)((const char *)fiber - fiber->stack);
}

static void fiber_main(void *arg)
{
	struct gn_fiber *self = arg;

	hooks_land(NULL);
	self->fn(self->arg);
	assert(false && "a fiber's function returned instead of switching away");
}

static void fiber_link(struct gn_fiber *fiber)
{
	const struct exec_ops *ops = exec_current();
	struct gn_fiber **list = ops->fibers ? ops->fibers() : NULL;

	if (!list)
		return;
	list_push(list, fiber);
}

static void fiber_unlink(struct gn_fiber *fiber)
{
	if (!fiber->prev)
		return;
	list_remove(fiber);
}

#define LINE	   64u
#define SHIFTS	   64u /* cache lines per page */
#define SHIFT_STEP 13u /* odd, so that all are used */

static size_t fiber_shift(const char *map, size_t page)
{
	return (uintptr_t)map / page * SHIFT_STEP % SHIFTS * LINE;
}

/* Maps guard_bytes without access at the low end and a zeroed struct at the high end. */
static int fiber_map(size_t guard_bytes, size_t bytes, struct gn_fiber **out)
{
	const size_t map_bytes = guard_bytes + bytes;
	char *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	struct gn_fiber *fiber;

	if (map == MAP_FAILED)
		return gn_fail(-ENOMEM, "no stack of %zu bytes can be mapped for a fiber",
			       map_bytes);
	if (guard_bytes && mprotect(map, guard_bytes, PROT_NONE) != 0) {
		munmap(map, map_bytes);
		return gn_fail(-ENOMEM, "the stack of a fiber gets no guard page");
	}
	if (guard_bytes)
		bytes -= fiber_shift(map, guard_bytes);
	fiber = (void *)(map + guard_bytes + bytes - STRUCT_BYTES);
	fiber->map = map;
	fiber->map_bytes = map_bytes;
	fiber_link(fiber);
	*out = fiber;
	return 0;
}

int gn_fiber_create(void (*fn)(void *arg), void *arg, size_t stack_bytes, struct gn_fiber **out)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct gn_fiber *fiber;
	int err;

	if (stack_bytes < GN_FIBER_STACK_MIN)
		return gn_fail(-EINVAL,
			       "gn_fiber_create(): stack_bytes is less than GN_FIBER_STACK_MIN");
	if (stack_bytes > SIZE_MAX / 2)
		return gn_fail(-ENOMEM, "gn_fiber_create(): a stack of %zu bytes", stack_bytes);
	err = fiber_map(page, (stack_bytes + STRUCT_BYTES + SHIFTS * LINE + page - 1) / page * page,
			&fiber);
	if (err)
		return err;
	fiber->fn = fn;
	fiber->arg = arg;
	fiber->stack = fiber->map + page;
	hooks_stack_made(&fiber->hooks, fiber->stack, stack_bytes_of(fiber));
	context_make(&fiber->context, fiber->stack, fiber, fiber_main, fiber);
	*out = fiber;
	return 0;
}

int gn_fiber_adopt(struct gn_fiber **out)
{
	return fiber_map(0, STRUCT_BYTES, out);
}

FIBER_NO_TSAN void gn_fiber_switch(struct gn_fiber *from, struct gn_fiber *to)
{
	void *fake = NULL;

	hooks_leave(&from->hooks, &to->hooks, &fake);
	context_swap(&from->context, &to->context);
	hooks_land(fake);
}

void gn_fiber_destroy(struct gn_fiber *fiber)
{
	if (!fiber)
		return;
	if (fiber->stack)
		hooks_stack_gone(&fiber->hooks, fiber->stack, stack_bytes_of(fiber));
	fiber_unlink(fiber);
	munmap(fiber->map, fiber->map_bytes);
}
