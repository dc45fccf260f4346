/* SPDX-License-Identifier: MIT */
/* Opens the shared-memory provider: its directory, limits and table. */
#include "base/fail.h"
#include "fabric/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_WR	   16384u
#define MAX_SGE	   32u
#define MAX_INLINE 1024u
#define MAX_CQE	   (1u << 20)
#define MAX_MSG	   (1ull << 30)
#define UD_MTU	   4096u

bool shm_name_ok(const char *name)
{
	const size_t len =
		strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return len >= 1 && len <= 64 && !name[len] && strcmp(name, ".") && strcmp(name, "..");
}

int shm_addr_check(struct gn_fabric *fabric, const char *name)
{
	(void)fabric;
	if (shm_name_ok(name))
		return 0;
	return gn_fail_log(-EINVAL, "shm: '%.80s' is not a name: 1 to 64 of A-Z a-z 0-9 . _ -",
			   name);
}

void shm_path(const struct shm_fabric *fabric, const char *name, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(out->sun_path, sizeof(out->sun_path), "%s/%s", fabric->dir, name);
}

/* Must be owned by us with mode 0700: otherwise others could place sockets under our names. */
static int dir_check_own(const char *dir)
{
	struct stat st;

	if (mkdir(dir, 0700) && errno != EEXIST) {
		const int rc = -errno;

		return gn_fail_log(rc, "shm: cannot create the directory %s: %s", dir,
				   gn_strerror(rc));
	}
	if (lstat(dir, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077)
		return gn_fail_log(
			-EACCES,
			"shm: %s must be a directory of yours with mode 0700; remove it or set "
			"GANNET_SHM_DIR",
			dir);
	return 0;
}

static int dir_find(struct shm_fabric *fabric)
{
	const char *given = getenv("GANNET_SHM_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	int len;

	if (given && *given) {
		/* Chosen by the user, possibly shared with others: used as it is. */
		len = snprintf(fabric->dir, sizeof(fabric->dir), "%s", given);
		if (len < (int)sizeof(fabric->dir) && (stat(given, &st) || !S_ISDIR(st.st_mode)))
			return gn_fail_log(-ENOTDIR, "shm: GANNET_SHM_DIR=%s is not a directory",
					   given);
	} else if (runtime && *runtime && !stat(runtime, &st) && S_ISDIR(st.st_mode)) {
		len = snprintf(fabric->dir, sizeof(fabric->dir), "%s/gannet", runtime);
	} else {
		len = snprintf(fabric->dir, sizeof(fabric->dir), "/tmp/gannet-%u",
			       (unsigned)geteuid());
	}
	if (len >= (int)sizeof(fabric->dir))
		return gn_fail_log(
			-ENAMETOOLONG,
			"shm: the directory's path is longer than %zu bytes; set GANNET_SHM_DIR",
			sizeof(fabric->dir) - 1);
	return given && *given ? 0 : dir_check_own(fabric->dir);
}

void shm_name_folder(struct gn_qp *qp, int status)
{
	int len;

	qp->private_len = 0; /* set by the acceptor, if the connection failed after ACCEPT */
	if (status != -ECONNREFUSED)
		return;
	len = snprintf((char *)qp->private_data, sizeof(qp->private_data), "looked in %s",
		       shm_of(&qp->obj)->dir);
	if (len > 0 && len < (int)sizeof(qp->private_data))
		qp->private_len = (uint32_t)len;
}

static int shm_open_fabric(struct gn_fabric *base, const char *device)
{
	struct shm_fabric *fabric = shm_fabric_of(base);
	int rc;

	if (*device)
		return gn_fail_log(-EINVAL, "shm: the provider has no devices; open \"shm\"");
	rc = dir_find(fabric);
	if (rc)
		return rc;
	rc = soft_keys_init(&fabric->keys);
	if (rc)
		return rc;
	shm_sweep(fabric);
	gn_mutex_init(&fabric->grant_lock);
	pthread_mutex_init(&fabric->serve_lock, NULL);
	gn_mutex_init(&fabric->quota_lock);
	fabric->gid_tail = gn_random();
	fabric->next_mem_id = 1;
	fabric->next_qpn = 1 + (uint32_t)(gn_random() & 0xffff);
	strcpy(base->attr.device, "memory");
	base->attr.caps = GN_CAP_UD | GN_CAP_ATOMICS | GN_CAP_ATOMIC_CPU | GN_CAP_INORDER_WRITE |
			  GN_CAP_WRITE_ORDER | GN_CAP_READ_HEAD_FIRST | GN_CAP_EVENT_FD |
			  GN_CAP_TARGET_PROGRESS | GN_CAP_HUGE;
	base->attr.max_send_wr = base->attr.max_recv_wr = MAX_WR;
	base->attr.max_sge = MAX_SGE;
	base->attr.max_inline = MAX_INLINE;
	base->attr.max_cqe = MAX_CQE;
	base->attr.max_rd_atomic = MAX_WR;
	base->attr.max_mr = SOFT_KEYS - 1;
	base->attr.ud_mtu = UD_MTU;
	base->attr.max_msg = MAX_MSG;
	base->attr.max_private = PRIVATE_CONNECT_MAX;
	return 0;
}

static void shm_close_fabric(struct gn_fabric *base)
{
	struct shm_fabric *fabric = shm_fabric_of(base);

	shm_serve_stop(fabric);
	pthread_mutex_destroy(&fabric->serve_lock);
	gn_mutex_fini(&fabric->quota_lock);
	gn_mutex_fini(&fabric->grant_lock);
	soft_keys_fini(&fabric->keys);
}

/* The fds' handlers access qps and cqs, also shared ones. */
static void shm_chan_pump(struct gn_chan *chan)
{
	gn_mutex_lock(&chan->ctx->lock);
	chan_fds_pump(chan);
	gn_mutex_unlock(&chan->ctx->lock);
}

const struct provider provider_shm = {
	.name = "shm",
	.fabric_size = sizeof(struct shm_fabric),
	.size = {[OBJ_MEM] = sizeof(struct shm_mem),
		 [OBJ_PD] = sizeof(struct shm_pd),
		 [OBJ_MR] = sizeof(struct shm_mr),
		 [OBJ_CQ] = sizeof(struct shm_cq),
		 [OBJ_QP] = sizeof(struct shm_qp),
		 [OBJ_AH] = sizeof(struct shm_ah),
		 [OBJ_LISTENER] = sizeof(struct shm_listener),
		 [OBJ_REQ] = sizeof(struct shm_req)},
	.open = shm_open_fabric,
	.close = shm_close_fabric,
	.mem_alloc = shm_mem_alloc,
	.mem_fini = shm_mem_fini,
	.pd_init = shm_pd_init,
	.pd_fini = shm_pd_fini,
	.mr_init = shm_mr_init,
	.mr_revoke = shm_mr_revoke,
	.mr_fini = shm_mr_fini,
	.chan_init = chan_fds_init,
	.chan_fini = chan_fds_fini,
	.chan_pump = shm_chan_pump,
	.chan_timer = chan_fds_timer,
	.cq_init = shm_cq_init,
	.cq_fini = shm_cq_fini,
	.cq_poll = shm_cq_poll,
	.cq_arm = shm_cq_arm,
	.cq_ready = shm_cq_ready,
	.qp_init = shm_qp_init,
	.qp_adopt = shm_qp_adopt,
	.qp_detach = shm_qp_detach,
	.qp_close = shm_qp_close,
	.qp_fini = shm_qp_fini,
	.qp_error = shm_qp_error,
	.qp_reset = shm_qp_reset,
	.ud_addr = shm_ud_addr,
	.ah_init = shm_ah_init,
	.ah_fini = shm_ah_fini,
	.ah_reverse = shm_ah_reverse,
	.post_send = shm_post_send,
	.post_plain = shm_post_plain,
	.post_recv = shm_post_recv,
	.listen_init = shm_listen_init,
	.listen_fini = shm_listen_fini,
	.addr_check = shm_addr_check,
	.connect = shm_connect,
	.accept = shm_accept,
	.reject = shm_reject,
	.disconnect = shm_disconnect,
};
