/* SPDX-License-Identifier: MIT */
/*
 * The parts of exec_real that other files of base use directly. Never for the layers above: they
 * would run on the real clock inside a simulation.
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

/* The same for who has just made sure of that. */
uint64_t real_clock_ns(void);

/*
 * What real_clock_ns() reads: clock_gettime(), by a pointer, which costs what the linkage table
 * does. A process that counts its own instructions (bench/count_clock.c) sets a clock that
 * advances by fixed steps.
 */
extern int (*real_clock)(clockid_t id, struct timespec *out);

/*
 * This thread's number; 0 until real_thread_number() has given it one. While a simulated thread
 * runs on it, that one's: so that an object's owner is found by one compare in either world.
 */
extern _Thread_local uint64_t real_own_number __attribute__((tls_model("initial-exec")));
uint64_t real_thread_number(void);

/* Threads of the process that this one was forked from have numbers up to this; 0: of none. */
extern uint64_t real_inherited;

static inline uint64_t real_thread_id(void)
{
	return likely(real_own_number) ? real_own_number : real_thread_number();
}

int real_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason);

static inline struct timespec ns_to_timespec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / NS_PER_S),
		.tv_nsec = (long)(ns % NS_PER_S),
	};
}

#endif
