/* SPDX-License-Identifier: MIT */
/*
 * What callgrind has written: how often a function was called, and what that cost.
 */
#ifndef GN_BENCH_COUNT_FILE_H
#define GN_BENCH_COUNT_FILE_H

#include <stdint.h>
#include <stdio.h>

struct count_function {
	const char *name;
	uint64_t calls, instructions; /* inclusive */
	uint64_t self;		      /* without what it calls */
};

/*
 * Adds what the file says about each of n functions. The file was written with
 * --compress-strings=no. -EBADMSG: it is none of callgrind's.
 */
int count_file_read(FILE *f, struct count_function *functions, unsigned n);

#endif
