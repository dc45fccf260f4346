/* SPDX-License-Identifier: MIT */
/* Keys of memory regions: allocation, look-up, and reuse as late as possible. */
#include "base/fail.h"
#include "fabric/soft/soft.h"

#include <errno.h>

int soft_keys_init(struct soft_keys *keys)
{
	keys->table = gn_alloc(SOFT_KEYS * sizeof(*keys->table), 0);
	keys->free = gn_alloc(SOFT_KEYS * sizeof(*keys->free), 0);
	if (!keys->table || !keys->free) {
		gn_free(keys->table);
		gn_free(keys->free);
		return -ENOMEM;
	}
	keys->fresh = 1;		 /* no key is 0 */
	keys->table[0].key = UINT32_MAX; /* so that a look-up of key 0 fails */
	keys->free_head = keys->free_tail = 0;
	gn_mutex_init(&keys->lock);
	return 0;
}

void soft_keys_fini(struct soft_keys *keys)
{
	gn_mutex_fini(&keys->lock);
	gn_free(keys->table);
	gn_free(keys->free);
}

int soft_key_add(struct soft_keys *keys, struct gn_mr *mr)
{
	struct soft_key *k;
	uint32_t index, key;

	gn_mutex_lock(&keys->lock);
	if (keys->fresh < SOFT_KEYS) {
		index = keys->fresh++;
	} else if (keys->free_head != keys->free_tail) {
		index = keys->free[keys->free_tail++ % SOFT_KEYS];
	} else {
		gn_mutex_unlock(&keys->lock);
		return gn_fail_log(-ENOSPC, "fabric: all %u memory regions are in use",
				   SOFT_KEYS - 1);
	}
	gn_mutex_unlock(&keys->lock);

	k = &keys->table[index];
	key = index << 16 | (uint32_t)(gn_random() & 0xffff);
	k->access = mr->access;
	k->pd = mr->pd;
	k->addr = mr->addr;
	k->length = mr->length;
	mr->lkey = mr->rkey = key;
	/* Pairs with the acquire in soft_key_find(). */
	__atomic_store_n(&k->key, key, __ATOMIC_RELEASE);
	return 0;
}

void soft_key_remove(struct soft_keys *keys, const struct gn_mr *mr)
{
	const uint32_t index = soft_key_index(mr->lkey);

	__atomic_store_n(&keys->table[index].key, 0, __ATOMIC_RELEASE);
	__atomic_fetch_add(&keys->removed, 1, __ATOMIC_RELEASE);
	gn_mutex_lock(&keys->lock);
	keys->free[keys->free_head++ % SOFT_KEYS] = (uint16_t)index;
	gn_mutex_unlock(&keys->lock);
}
