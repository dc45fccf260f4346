/* SPDX-License-Identifier: MIT */
/* Whether what a bucket evicts is always among its least recently used items. */
#ifndef GN_TESTS_SIM_KV_LRU_H
#define GN_TESTS_SIM_KV_LRU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A small store, filled and used at random; how many made room. false: why has the reason. */
bool kv_lru_check(uint64_t seed, uint64_t *evicted, char *why, size_t room);

#endif
