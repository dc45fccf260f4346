/* SPDX-License-Identifier: MIT */
/*
 * Public structs that begin with their size, which the caller sets to its sizeof. Later versions
 * append members: a program of 0.2 gives and gets the size it knows.
 */
#ifndef GN_BASE_SIZED_H
#define GN_BASE_SIZED_H

#include <stddef.h>

/*
 * Options: given, of a caller, to own, of known bytes. NULL is all defaults. -EINVAL for a size
 * below known, -E2BIG for a larger one with something set that this library does not know, or for
 * one that nobody can have meant; name is the struct's, for gn_error().
 */
int sized_read(void *own, size_t known, const void *given, const char *name);

/*
 * Results: known bytes of full to out, of a caller; at most as many as it says it has, and zeros in
 * those that this library does not know. -EINVAL for NULL and for a size below known; -E2BIG.
 */
int sized_write(void *out, const void *full, size_t known, const char *name);

/* The same two for a struct of which the pointer has the type. */
#define SIZED_READ(own, given, name)  sized_read(own, sizeof(*(own)), given, name)
#define SIZED_WRITE(out, full, name) sized_write(out, full, sizeof(*(full)), name)

#endif
