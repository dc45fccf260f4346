/* SPDX-License-Identifier: MIT */
/*
 * Notifies sanitizers and Valgrind of fiber switches; empty in a plain build. A hooks struct
 * describes the stack whose context is saved in its fiber. That need not be the fiber's own stack:
 * when a simulated thread parks inside one of its own fibers, the thread's struct holds that
 * fiber's stack.
 */
#ifndef GN_BASE_FIBER_HOOKS_H
#define GN_BASE_FIBER_HOOKS_H

#include <stddef.h>

#if defined(__has_feature)
#define FIBER_FEATURE(x) __has_feature(x)
#else
#define FIBER_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || FIBER_FEATURE(address_sanitizer)
#define FIBER_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#else
#define FIBER_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || FIBER_FEATURE(thread_sanitizer)
#define FIBER_TSAN 1
#include <sanitizer/tsan_interface.h>
/*
 * For every function between __tsan_switch_to_fiber() and the switch: it must not enter or leave a
 * frame.
 */
#define FIBER_NO_TSAN __attribute__((no_sanitize("thread")))
#else
#define FIBER_TSAN 0
#define FIBER_NO_TSAN
#endif

#if defined(__has_include) && __has_include(<valgrind/valgrind.h>)
#define FIBER_VALGRIND 1
#include <valgrind/valgrind.h>
#else
#define FIBER_VALGRIND 0
#endif

struct fiber_hooks {
#if FIBER_ASAN
	const void *saved_bottom; /* unknown until an adopted stack is first switched from */
	size_t saved_bytes;
#endif
#if FIBER_TSAN
	void *saved_tsan; /* the sanitizer's handle of the saved context */
	void *own_tsan;
#endif
#if FIBER_VALGRIND
	unsigned valgrind_id;
#endif
	char unused; /* a struct needs a member */
};

/* Registers a new stack; stack is its low end. */
static inline void hooks_stack_made(struct fiber_hooks *hooks, void *stack, size_t bytes)
{
	(void)hooks, (void)stack, (void)bytes;
#if FIBER_ASAN
	hooks->saved_bottom = stack;
	hooks->saved_bytes = bytes;
	/* Without this, memory referenced only from a parked fiber's variables counts as a leak. */
	__lsan_register_root_region(stack, bytes);
#endif
#if FIBER_TSAN
	hooks->own_tsan = __tsan_create_fiber(0);
	hooks->saved_tsan = hooks->own_tsan;
#endif
#if FIBER_VALGRIND
	hooks->valgrind_id = VALGRIND_STACK_REGISTER(stack, (char *)stack + bytes);
#endif
}

/* Undoes hooks_stack_made(), before the memory is unmapped. */
static inline void hooks_stack_gone(struct fiber_hooks *hooks, void *stack, size_t bytes)
{
	(void)hooks, (void)stack, (void)bytes;
#if FIBER_ASAN
	__lsan_unregister_root_region(stack, bytes);
	/*
	 * Frames that never returned left red zones; the next mapping here must not inherit them.
	 */
	__asan_unpoison_memory_region(stack, bytes);
#endif
#if FIBER_TSAN
	__tsan_destroy_fiber(hooks->own_tsan);
#endif
#if FIBER_VALGRIND
	VALGRIND_STACK_DEREGISTER(hooks->valgrind_id);
#endif
}

#if FIBER_ASAN
/* The from of the current switch on this OS thread. */
static _Thread_local struct fiber_hooks *hooks_left;
#endif

/* Call right before a switch. *fake is kept on the stack that is left. */
FIBER_NO_TSAN static inline void hooks_leave(struct fiber_hooks *from, struct fiber_hooks *to,
					     void **fake)
{
	(void)from, (void)to, (void)fake;
#if FIBER_ASAN
	hooks_left = from;
	__sanitizer_start_switch_fiber(fake, to->saved_bottom, to->saved_bytes);
#endif
#if FIBER_TSAN
	from->saved_tsan = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(to->saved_tsan, 0);
#endif
}

/*
 * Call right after a switch, on the new stack; fake is the value kept on that stack, or NULL for a
 * new stack.
 */
FIBER_NO_TSAN static inline void hooks_land(void *fake)
{
	(void)fake;
#if FIBER_ASAN
	__sanitizer_finish_switch_fiber(fake, &hooks_left->saved_bottom, &hooks_left->saved_bytes);
#endif
}

#endif
