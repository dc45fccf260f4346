/* SPDX-License-Identifier: MIT */
/*
 * The qps of a context by index and generation: maps a completion to its qp, or detects that the qp
 * was destroyed. Slots are in chunks that never move, so a look-up takes no lock
 * (vrb_table_find()).
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <assert.h>
#include <errno.h>

#define NO_SLOT	       UINT32_MAX
#define GENERATION_MAX ((1u << (64 - VRB_TAG_SHIFT - VRB_INDEX_BITS)) - 1)

static_assert(VRB_WR_MAX < VRB_POSITION_MASK, "a position must tell outstanding requests apart");

static struct vrb_slot *table_slot(const struct vrb_table *table, uint32_t index)
{
	return &table->chunk[index / VRB_CHUNK][index % VRB_CHUNK];
}

void vrb_table_init(struct vrb_table *table)
{
	gn_mutex_init(&table->lock);
	table->free_first = table->free_last = NO_SLOT;
}

void vrb_table_fini(struct vrb_table *table)
{
	for (uint32_t i = 0; i < table->n_chunks; i++)
		gn_free(table->chunk[i]);
	gn_mutex_fini(&table->lock);
}

static void table_push_free(struct vrb_table *table, uint32_t index)
{
	table_slot(table, index)->next_free = NO_SLOT;
	if (table->free_first == NO_SLOT)
		table->free_first = index;
	else
		table_slot(table, table->free_last)->next_free = index;
	table->free_last = index;
}

static int table_add_chunk(struct vrb_table *table)
{
	const uint32_t n = table->n_chunks;
	struct vrb_slot *chunk;

	if (n == VRB_QPS_MAX / VRB_CHUNK)
		return gn_fail_log(-ENOSPC, "verbs: a context has at most %u qps", VRB_QPS_MAX);
	chunk = gn_alloc(VRB_CHUNK * sizeof(*chunk), GN_CACHELINE);
	if (!chunk)
		return -ENOMEM;
	/* Pairs with the acquire in vrb_table_find(). */
	__atomic_store_n(&table->chunk[n], chunk, __ATOMIC_RELEASE);
	table->n_chunks++;
	for (uint32_t i = 0; i < VRB_CHUNK; i++)
		table_push_free(table, n * VRB_CHUNK + i);
	return 0;
}

int vrb_table_add(struct vrb_table *table, struct vrb_qp *qp, uint64_t *tag)
{
	struct vrb_slot *slot;
	uint32_t index;
	int rc = 0;

	gn_mutex_lock(&table->lock);
	if (table->free_first == NO_SLOT)
		rc = table_add_chunk(table);
	if (!rc) {
		index = table->free_first;
		slot = table_slot(table, index);
		table->free_first = slot->next_free;
		slot->generation = slot->generation % GENERATION_MAX + 1;
		slot->qp = qp;
		/* Pairs with the acquire in vrb_table_find(). */
		__atomic_store_n(&slot->tag, (uint64_t)slot->generation << VRB_INDEX_BITS | index,
				 __ATOMIC_RELEASE);
		*tag = slot->tag << VRB_TAG_SHIFT;
	}
	gn_mutex_unlock(&table->lock);
	return rc;
}

void vrb_table_del(struct vrb_table *table, uint64_t tag)
{
	const uint32_t index = (tag >> VRB_TAG_SHIFT) & (VRB_QPS_MAX - 1);

	gn_mutex_lock(&table->lock);
	__atomic_store_n(&table_slot(table, index)->tag, 0, __ATOMIC_RELAXED);
	table_push_free(table, index);
	gn_mutex_unlock(&table->lock);
}

void vrb_table_each(struct vrb_table *table, void (*fn)(struct vrb_qp *qp, void *arg), void *arg)
{
	gn_mutex_lock(&table->lock);
	for (uint32_t i = 0; i < table->n_chunks * VRB_CHUNK; i++)
		if (table_slot(table, i)->tag)
			fn(table_slot(table, i)->qp, arg);
	gn_mutex_unlock(&table->lock);
}
