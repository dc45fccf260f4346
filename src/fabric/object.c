/* SPDX-License-Identifier: MIT */
/*
 * Creation and destruction of fabric objects. A destroyed object stays in its fabric's pool, marked
 * as destroyed, until QUARANTINE others of its type were destroyed: using or destroying it again is
 * an error instead of memory corruption.
 */
#include "base/fail.h"
#include "base/list.h"
#include "fabric/fabric.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define QUARANTINE 64u /* destroyed objects of a type that are kept before one is reused */
#define MAGIC_DEAD 0xdeadd1edu

static const char *const names[OBJ_TYPES] = {
	[OBJ_CTX] = "context",
	[OBJ_MEM] = "mem",
	[OBJ_PD] = "pd",
	[OBJ_MR] = "mr",
	[OBJ_CQ] = "cq",
	[OBJ_CHAN] = "channel",
	[OBJ_QP] = "qp",
	[OBJ_AH] = "ah",
	[OBJ_LISTENER] = "listener",
	[OBJ_REQ] = "connection request",
};

int obj_create(struct gn_fabric *fabric, enum obj_type type, size_t base_size, void *out)
{
	const size_t own = fabric->provider->size[type];
	const size_t size = own ? own : base_size;
	struct obj_pool *pool = &fabric->pool[type];
	struct obj *obj = NULL;

	assert(size >= base_size);
	gn_mutex_lock(&fabric->lock);
	if (pool->n_dead > QUARANTINE) {
		obj = pool->dead_first;
		pool->dead_first = obj->next;
		pool->n_dead--;
		memset(obj, 0, size);
	}
	gn_mutex_unlock(&fabric->lock);
	if (!obj)
		obj = gn_alloc(size, GN_CACHELINE);
	if (!obj)
		return -ENOMEM;

	obj->magic = obj_magic(type);
	obj->type = type;
	obj->fabric = fabric;
	gn_mutex_lock(&fabric->lock);
	list_push(&pool->live, obj);
	gn_mutex_unlock(&fabric->lock);
	memcpy(out, &obj, sizeof(obj));
	return 0;
}

void obj_destroy(struct obj *obj)
{
	struct gn_fabric *fabric = obj->fabric;
	struct obj_pool *pool = &fabric->pool[obj->type];

	gn_mutex_lock(&fabric->lock);
	list_remove(obj);
	obj->magic = MAGIC_DEAD;
	obj->next = NULL;
	if (!pool->dead_first)
		pool->dead_last = &pool->dead_first;
	*pool->dead_last = obj;
	pool->dead_last = &obj->next;
	pool->n_dead++;
	gn_mutex_unlock(&fabric->lock);
}

int obj_check(const void *ptr, enum obj_type type)
{
	const struct obj *obj = ptr;

	if (likely(obj_alive(ptr, type)))
		return 0;
	if (!obj)
		gn_fail_log(0, "fabric: a %s is NULL", names[type]);
	else if (obj->magic == MAGIC_DEAD)
		gn_fail_log(0, "fabric: a %s was used after it was destroyed", names[type]);
	else
		gn_fail_log(0, "fabric: the pointer is not a %s", names[type]);
	return -EINVAL;
}

int obj_check_idle(const void *ptr, enum obj_type type)
{
	const struct obj *obj = ptr;
	int rc = obj_check(ptr, type);

	if (rc)
		return rc;
	/* Pairs with the release in obj_release(): the last child's accesses are complete. */
	if (__atomic_load_n(&obj->children, __ATOMIC_ACQUIRE)) {
		gn_log(GN_LOG_WARN, "fabric: a %s is still used by %u other objects", names[type],
		       obj->children);
		return gn_fail(-EBUSY,
			       "fabric: a %s is still used by %u other objects; destroy them first",
			       names[type], obj->children);
	}
	return 0;
}
