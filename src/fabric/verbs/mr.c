/* SPDX-License-Identifier: MIT */
/*
 * Protection domains and memory regions.
 *
 * A device has one address space per registration, for local and remote access. Gannet has two: an
 * SGE holds a pointer, and peers use offsets from the region's start and learn no pointers. So a
 * region with remote rights is registered twice: at its address without remote rights for the lkey,
 * and at 0 for the rkey. Its pages count twice towards the limit on locked memory.
 *
 * No relaxed ordering, which would let a later WRITE overtake an earlier one; no on-demand paging,
 * which would turn a page fault into a retry storm.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

int vrb_pd_init(struct gn_pd *base)
{
	struct vrb_pd *pd = vrb_pd(base);
	int rc;

	pd->ibv = ibv_alloc_pd(vrb_ctx(base->ctx)->ibv);
	if (pd->ibv)
		return 0;
	rc = vrb_errno();
	return gn_fail_log(rc, "verbs: no protection domain: %s", gn_strerror(rc));
}

void vrb_pd_fini(struct gn_pd *base)
{
	const int rc = ibv_dealloc_pd(vrb_pd(base)->ibv);

	if (rc)
		gn_fail_log(0, "verbs: a protection domain is left behind: %s", gn_strerror(-rc));
}

static int mr_fail(const struct gn_mr *mr)
{
	const int rc = vrb_errno();
	struct rlimit limit;

	if (rc == -ENOMEM && !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur != RLIM_INFINITY)
		gn_fail_log(
			0,
			"verbs: cannot register %zu bytes: this process may lock %zu (regions with "
			"remote rights count twice); raise that with `ulimit -l unlimited`, or "
			"LimitMEMLOCK=infinity in a systemd unit",
			mr->length, (size_t)limit.rlim_cur);
	else
		gn_fail_log(0, "verbs: cannot register %zu bytes: %s", mr->length, gn_strerror(rc));
	return rc;
}

static unsigned mr_remote_flags(unsigned access)
{
	return (access & GN_LOCAL_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0u) |
	       (access & GN_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u) |
	       (access & GN_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
	       (access & GN_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

static void mr_deregister(struct ibv_mr *mr)
{
	const int rc = mr ? ibv_dereg_mr(mr) : 0;

	if (rc)
		gn_fail_log(0, "verbs: a memory region is left registered: %s", gn_strerror(-rc));
}

int vrb_mr_init(struct gn_mr *base)
{
	struct vrb_mr *mr = container_of(base, struct vrb_mr, base);
	struct ibv_pd *pd = vrb_pd(base->pd)->ibv;
	const unsigned flags = mr_remote_flags(base->access);
	const unsigned local = flags & IBV_ACCESS_LOCAL_WRITE;
	int rc;

	mr->local = ibv_reg_mr(pd, base->addr, base->length, local);
	if (!mr->local)
		return mr_fail(base);
	base->lkey = mr->local->lkey;
	if (flags == local)
		return 0;
	/* A device maps whole pages: address and iova must have the same offset in a page. */
	base->iova = (uintptr_t)base->addr % (uintptr_t)sysconf(_SC_PAGESIZE);
	mr->remote = ibv_reg_mr_iova(pd, base->addr, base->length, base->iova, flags);
	if (!mr->remote) {
		rc = mr_fail(base);
		mr_deregister(mr->local);
		return rc;
	}
	base->rkey = mr->remote->rkey;
	return 0;
}

void vrb_mr_fini(struct gn_mr *base)
{
	struct vrb_mr *mr = container_of(base, struct vrb_mr, base);

	mr_deregister(mr->remote);
	mr_deregister(mr->local);
}
