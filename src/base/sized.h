/* SPDX-License-Identifier: MIT */
/*
 * Public structs begin with their size, which the caller sets to sizeof. Later versions append
 * members: a program of 0.2 passes the size it knows.
 */
#ifndef GN_BASE_SIZED_H
#define GN_BASE_SIZED_H

#include <stddef.h>

/*
 * Options: copies given (the caller's) to own, which has known bytes. NULL: all defaults. -EINVAL:
 * size below known. -E2BIG: a larger size with non-zero members that this library does not know, or
 * an implausible size. name: of the struct, for gn_error().
 */
int sized_read(void *own, size_t known, const void *given, const char *name);

/*
 * Results: copies known bytes of full to out (the caller's), at most out's size; zeroes members
 * that this library does not know. -EINVAL: NULL, or size below known; -E2BIG.
 */
int sized_write(void *out, const void *full, size_t known, const char *name);

/* The same, with the size from the pointer's type. */
#define SIZED_READ(own, given, name) sized_read(own, sizeof(*(own)), given, name)
#define SIZED_WRITE(out, full, name) sized_write(out, full, sizeof(*(full)), name)

#endif
