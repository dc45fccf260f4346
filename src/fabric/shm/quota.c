/* SPDX-License-Identifier: MIT */
/*
 * Limits on mappings for processes of other users: per connection, per user, and for all other
 * users. The number of mappings and the address space of a process are limited, so without these
 * limits one peer could use them up.
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

	if (qp->conn.peer_kind != PEER_OTHER_USER)
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

static bool quota_fits(const struct shm_quota *used, uint64_t bytes, uint64_t max_mems,
		       uint64_t max_bytes)
{
	return used->mems < max_mems && bytes <= max_bytes - used->bytes;
}

static void quota_add(struct shm_quota *to, uint64_t mems, uint64_t bytes)
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
	if (!quota_fits(&qp->conn.charged, bytes, SHM_CONN_MEMS, SHM_CONN_BYTES) ||
	    !quota_fits(&user->used, bytes, SHM_USER_MEMS, SHM_USER_BYTES) ||
	    !quota_fits(&fabric->others, bytes, SHM_ALL_USERS_MEMS, SHM_ALL_USERS_BYTES)) {
		rc = -EDQUOT;
	} else {
		quota_add(&qp->conn.charged, 1, bytes);
		quota_add(&user->used, 1, bytes);
		quota_add(&fabric->others, 1, bytes);
	}
	gn_mutex_unlock(&fabric->quota_lock);
	return rc;
}

static void quota_sub(struct shm_qp *qp, uint64_t mems, uint64_t bytes)
{
	quota_add(&qp->conn.charged, -mems, -bytes);
	quota_add(&qp->conn.user->used, -mems, -bytes);
	quota_add(&shm_of(&qp->qp.obj)->others, -mems, -bytes);
}

void shm_quota_give(struct shm_qp *qp, uint64_t bytes)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);

	if (!qp->conn.user)
		return;
	gn_mutex_lock(&fabric->quota_lock);
	quota_sub(qp, 1, bytes);
	gn_mutex_unlock(&fabric->quota_lock);
}

void shm_quota_leave(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	struct shm_user *user = qp->conn.user, **at = &fabric->users;

	if (!user)
		return;
	gn_mutex_lock(&fabric->quota_lock);
	quota_sub(qp, qp->conn.charged.mems, qp->conn.charged.bytes);
	qp->conn.user = NULL;
	if (!--user->conns) {
		while (*at != user)
			at = &(*at)->next;
		*at = user->next;
		gn_free(user);
	}
	gn_mutex_unlock(&fabric->quota_lock);
}
