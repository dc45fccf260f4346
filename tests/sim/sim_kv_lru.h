/* SPDX-License-Identifier: MIT */
/* Checks that a bucket always evicts one of its least recently used items. */
#ifndef GN_TESTS_SIM_KV_LRU_H
#define GN_TESTS_SIM_KV_LRU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A small store, filled and used at random. Returns the number of evictions; false: why has the
 * reason.
 */
bool kv_lru_check(uint64_t seed, uint64_t *evicted, char *why, size_t room);

#endif
