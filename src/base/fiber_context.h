/* SPDX-License-Identifier: MIT */
/*
 * A saved context and the switch between two contexts: assembly on x86-64 (fiber_x86_64.S),
 * ucontext elsewhere and with -DGN_FIBER_UCONTEXT, which is twenty times slower because it saves
 * the signal mask with a system call.
 */
#ifndef GN_BASE_FIBER_CONTEXT_H
#define GN_BASE_FIBER_CONTEXT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__LP64__) && !defined(GN_FIBER_UCONTEXT)

struct fiber_context {
	void *sp; /* the rest is on the stack it points into */
};

/* Stack layout of fiber_swap(). */
struct fiber_frame {
	uint32_t mxcsr;
	uint16_t x87_control, unused;
	void *r15, *r14, *r13, *r12, *rbx, *rbp;
	void *return_to;
};
static_assert(sizeof(struct fiber_frame) == 64, "fiber_x86_64.S knows the offsets");
static_assert(sizeof(struct fiber_frame) % 16 == 0, "fiber_boot starts on an aligned stack");

void fiber_swap(void **save_sp, void *load_sp);
void fiber_boot(void); /* calls r12(rbx) */

/* The state that the ABI gives a new thread: all exceptions masked, round to nearest. */
#define MXCSR_DEFAULT	    0x1f80
#define X87_CONTROL_DEFAULT 0x037f

/* top is the stack's high end. */
static inline void context_make(struct fiber_context *context, void *stack, void *top,
				void (*entry)(void *arg), void *arg)
{
	struct fiber_frame *frame = (void *)((uintptr_t)top & ~(uintptr_t)15);

	(void)stack;
	frame--;
	*frame = (struct fiber_frame){
		.mxcsr = MXCSR_DEFAULT,
		.x87_control = X87_CONTROL_DEFAULT,
		.r12 = (void *)(uintptr_t)entry,
		.rbx = arg,
		.return_to = (void *)(uintptr_t)fiber_boot,
	};
	context->sp = frame;
}

static inline void context_swap(struct fiber_context *from, struct fiber_context *to)
{
	fiber_swap(&from->sp, to->sp);
}

#else

#include <ucontext.h>

struct fiber_context {
	ucontext_t saved;
	void (*entry)(void *arg);
	void *arg;
};

/* makecontext() passes ints, so a pointer is passed in two halves. */
static inline void context_enter(unsigned high, unsigned low)
{
	struct fiber_context *context = (void *)(((uintptr_t)high << 16 << 16) | low);

	context->entry(context->arg);
}

static inline void context_make(struct fiber_context *context, void *stack, void *top,
				void (*entry)(void *arg), void *arg)
{
	uintptr_t self = (uintptr_t)context;

	context->entry = entry;
	context->arg = arg;
	getcontext(&context->saved);
	context->saved.uc_stack.ss_sp = stack;
	context->saved.uc_stack.ss_size = (size_t)((char *)top - (char *)stack);
	context->saved.uc_link = NULL;
	makecontext(&context->saved, (void (*)(void))(uintptr_t)context_enter, 2,
		    (unsigned)(self >> 16 >> 16), (unsigned)self);
}

static inline void context_swap(struct fiber_context *from, struct fiber_context *to)
{
	swapcontext(&from->saved, &to->saved);
}

#endif

#endif
