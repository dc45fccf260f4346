/* SPDX-License-Identifier: MIT */
/*
 * Limits on what processes of other users have us map: of a connection, of a user, of all other
 * users together. A process has a limited number of mappings and a limited address space, so
 * without these a peer that hoards mappings would take them from all others.
 */
#include "fabric/shm/shm.h"

#include <errno.h>

struct shm_user {
	uid_t uid;
	uint32_t conns;
	struct shm_quota used;
	struct shm_user *next;
};

int shm_quota_join(struct shm_qp *qp, uid_t uid)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	struct shm_user *user;

	if (qp->conn.peer_kind != PEER_STRANGER)
		return 0;
	gn_mutex_lock(&fabric->quota_lock);
	for (user = fabric->users; user && user->uid != uid; user = user->next)
		;
	if (!user) {
		user = gn_alloc(sizeof(*user), 0);
		if (user) {
			*user = (struct shm_user){.uid = uid, .next = fabric->users};
			fabric->users = user;
		}
	}
	if (user)
		user->conns++;
	qp->conn.user = user;
	gn_mutex_unlock(&fabric->quota_lock);
	return user ? 0 : -ENOMEM;
}

static bool fits(const struct shm_quota *used, uint64_t bytes, uint64_t max_mems,
		 uint64_t max_bytes)
{
	return used->mems < max_mems && bytes <= max_bytes - used->bytes;
}

static void add(struct shm_quota *to, uint64_t mems, uint64_t bytes)
{
	to->mems += mems;
	to->bytes += bytes;
}

int shm_quota_take(struct shm_qp *qp, uint64_t bytes)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	struct shm_user *user = qp->conn.user;
	int rc = 0;

	if (!user)
		return 0;
	gn_mutex_lock(&fabric->quota_lock);
	if (!fits(&qp->conn.charged, bytes, SHM_STRANGER_MEMS, SHM_STRANGER_BYTES) ||
	    !fits(&user->used, bytes, SHM_USER_MEMS, SHM_USER_BYTES) ||
	    !fits(&fabric->others, bytes, SHM_OTHERS_MEMS, SHM_OTHERS_BYTES)) {
		rc = -EDQUOT;
	} else {
		add(&qp->conn.charged, 1, bytes);
		add(&user->used, 1, bytes);
		add(&fabric->others, 1, bytes);
	}
	gn_mutex_unlock(&fabric->quota_lock);
	return rc;
}

static void give(struct shm_qp *qp, uint64_t mems, uint64_t bytes)
{
	add(&qp->conn.charged, -mems, -bytes);
	add(&qp->conn.user->used, -mems, -bytes);
	add(&shm_of(&qp->qp.obj)->others, -mems, -bytes);
}

void shm_quota_give(struct shm_qp *qp, uint64_t bytes)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);

	if (!qp->conn.user)
		return;
	gn_mutex_lock(&fabric->quota_lock);
	give(qp, 1, bytes);
	gn_mutex_unlock(&fabric->quota_lock);
}

void shm_quota_leave(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	struct shm_user *user = qp->conn.user, **at = &fabric->users;

	if (!user)
		return;
	gn_mutex_lock(&fabric->quota_lock);
	give(qp, qp->conn.charged.mems, qp->conn.charged.bytes);
	qp->conn.user = NULL;
	if (!--user->conns) {
		while (*at != user)
			at = &(*at)->next;
		*at = user->next;
		gn_free(user);
	}
	gn_mutex_unlock(&fabric->quota_lock);
}
