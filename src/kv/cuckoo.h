/* SPDX-License-Identifier: MIT */
/*
 * The index of a store with bypass: a cuckoo table that clients READ. Replaces the buckets of
 * index.c. It keeps no order of use.
 */
#ifndef GN_KV_CUCKOO_H
#define GN_KV_CUCKOO_H

#include "kv/entry.h"
#include "kv/store.h"

#define KV_TABLES_MAX	    32u
#define KV_MOVES_LOGGED	    4096u
#define KV_PATH_ENTRIES_MAX 384u /* entries visited in the search for a free one */

struct kv_table {
	struct gn_mem *mem;
	struct kv_entry *entries;
	unsigned bits; /* 1 << bits entries */
};

/* A step of a path to a free entry: the item of step from can move to entry at. */
struct kv_path_step {
	uint32_t at;
	uint32_t from; /* index of the previous step, or of this one */
};

struct kv_cuckoo {
	struct gn_fabric *fabric;
	/* the last is current, the others are marked as moved */
	struct kv_table tables[KV_TABLES_MAX];
	unsigned n_tables;
	uint64_t number; /* of the entry written last */
	uint64_t used;	 /* entries in use */
	uint64_t bytes;	 /* of all tables */
	uint64_t moves;	 /* entries moved so far, and the destinations of the last ones */
	uint32_t moved_to[KV_MOVES_LOGGED];
	bool cannot_grow; /* growing failed once: memory in use cannot become a table */
	struct kv_path_step steps[KV_PATH_ENTRIES_MAX];
};

int kv_cuckoo_make(struct gn_kv_store *store, struct gn_fabric *fabric);
void kv_cuckoo_free(struct gn_kv_store *store);

static inline const struct kv_table *kv_cuckoo_table(const struct kv_cuckoo *c)
{
	return &c->tables[c->n_tables - 1];
}

#endif
