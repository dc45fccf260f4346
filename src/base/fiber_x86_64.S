/* SPDX-License-Identifier: MIT */
/*
 * The fiber switch for x86-64, System V ABI. A function call already gives up the caller-saved
 * registers, so only the callee-saved ones and the two floating-point control words travel; struct
 * fiber_frame in fiber_context.h is the layout. No shadow-stack note is emitted on purpose: this
 * switch cannot run with one.
 */
#if defined(__x86_64__) && defined(__LP64__) && !defined(GN_FIBER_UCONTEXT)

	.text

/* void fiber_swap(void **save_sp, void *load_sp) */
	.globl	fiber_swap
	.hidden	fiber_swap
	.type	fiber_swap, @function
	.p2align 4
fiber_swap:
	.cfi_startproc
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	pushq	%r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r12, 0
	pushq	%r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r13, 0
	pushq	%r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r14, 0
	pushq	%r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r15, 0
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	stmxcsr	(%rsp)
	fnstcw	4(%rsp)

	/* Both stacks have the same frame on top, so the unwind information holds across this. */
	movq	%rsp, (%rdi)
	movq	%rsi, %rsp

	ldmxcsr	(%rsp)
	fldcw	4(%rsp)
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r15
	popq	%r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r14
	popq	%r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r13
	popq	%r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r12
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	popq	%rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	/* Mispredicted, and still the fast way: a pop and an indirect jump took 60 ns, not 11. */
	ret
	.cfi_endproc
	.size	fiber_swap, . - fiber_swap

/* Where a new fiber's first switch returns to: the outermost frame of its stack. */
	.globl	fiber_boot
	.hidden	fiber_boot
	.type	fiber_boot, @function
	.p2align 4
	/* An unwinder looks up the instruction before a return address: this is the one. */
	.cfi_startproc
	.cfi_undefined %rip
	nop
fiber_boot:
	movq	%rbx, %rdi
	call	*%r12
	ud2
	.cfi_endproc
	.size	fiber_boot, . - fiber_boot

#endif

	.section .note.GNU-stack, "", @progbits
