/* SPDX-License-Identifier: MIT */
/*
 * Parts of exec_real for other files of base. Not for higher layers: these would use the real clock
 * inside a simulation.
 */
#ifndef GN_BASE_REAL_H
#define GN_BASE_REAL_H

#include <stdint.h>
#include <time.h>

#include "base/bits.h"
#include "gannet/exec.h"

#define NS_PER_US 1000ull
#define NS_PER_S  1000000000ull

/* Asserts that no simulation runs on this OS thread. */
uint64_t real_now_ns(void);

/* real_now_ns() without the assertion. */
uint64_t real_clock_ns(void);

/*
 * The clock of real_clock_ns(): clock_gettime(), by a pointer, at the cost of a PLT call. A process
 * that counts its own instructions (bench/count_clock.c) sets a clock with fixed steps.
 */
extern int (*real_clock)(clockid_t id, struct timespec *out);

/*
 * This thread's number; 0 until real_thread_number() assigns one. While a simulated thread runs
 * here, that thread's: so the owner check is one comparison in process and simulation.
 */
extern _Thread_local uint64_t real_own_number __attribute__((tls_model("initial-exec")));
uint64_t real_thread_number(void);

/* Threads of the parent process have numbers up to this; 0: not forked. */
extern uint64_t real_inherited;

static inline uint64_t real_thread_id(void)
{
	return likely(real_own_number) ? real_own_number : real_thread_number();
}

int real_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason,
	      bool spin);

static inline struct timespec ns_to_timespec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / NS_PER_S),
		.tv_nsec = (long)(ns % NS_PER_S),
	};
}

#endif
