/* SPDX-License-Identifier: MIT */
/* A deterministic clock: it advances by given amounts, and by a little at each reading. */
#ifndef GN_BENCH_COUNT_CLOCK_H
#define GN_BENCH_COUNT_CLOCK_H

#include <stdint.h>

/* The library's clock in this process, from start_ns on, until count_clock_end(). */
void count_clock_begin(uint64_t start_ns);
void count_clock_end(void);
void count_clock_step(uint64_t ns);
/* Does not advance it. */
uint64_t count_clock_ns(void);

#endif
