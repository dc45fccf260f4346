/* SPDX-License-Identifier: MIT */
/*
 * The index of a store whose clients find values by themselves: it does what index.c does with
 * buckets. There is no order of use in it, and so no least recently used.
 */
#ifndef GN_KV_CUCKOO_H
#define GN_KV_CUCKOO_H

#include "kv/entry.h"
#include "kv/store.h"

#define KV_TABLES_MAX 32u
#define KV_MOVES_KEPT 4096u
#define KV_PATH_MAX   384u /* entries that are looked at for a free one */

struct kv_table {
	struct gn_mem *mem;
	struct kv_entry *entries;
	unsigned bits; /* there are 1 << bits */
};

/* An entry on the way to a free one: its item could go there if the one before it went here. */
struct kv_step {
	uint32_t at;
	uint32_t from; /* the step before, or itself */
};

struct kv_cuckoo {
	struct gn_fabric *fabric;
	struct kv_table tables[KV_TABLES_MAX]; /* the last is in use, the others are marked */
	unsigned n_tables;
	uint64_t number; /* of the entry that was written last */
	uint64_t used;	 /* entries */
	uint64_t bytes;	 /* of all tables */
	uint64_t moves;	 /* of entries to where others were, and where the last of them went */
	uint32_t moved_to[KV_MOVES_KEPT];
	bool stuck; /* it could not grow, and will not: memory that was used stays so */
	struct kv_step steps[KV_PATH_MAX];
};

int kv_cuckoo_make(struct gn_kv_store *store, struct gn_fabric *fabric);
void kv_cuckoo_free(struct gn_kv_store *store);

static inline const struct kv_table *kv_cuckoo_table(const struct kv_cuckoo *c)
{
	return &c->tables[c->n_tables - 1];
}

#endif
