/* SPDX-License-Identifier: MIT */
/* Memory, protection domains and memory regions: checks that all providers share. */
#include "base/fail.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define REMOTE_RIGHTS (GN_REMOTE_WRITE | GN_REMOTE_READ | GN_REMOTE_ATOMIC)

static int mem_create(struct gn_fabric *fabric, void *addr, size_t size, unsigned rights,
		      struct gn_mem **out)
{
	const unsigned failures_before = gn_fail_count();
	const struct provider *p = fabric->provider;
	struct gn_mem *mem;
	int rc = obj_create(fabric, OBJ_MEM, sizeof(*mem), &mem);

	if (rc)
		return rc;
	mem->addr = addr;
	mem->size = size;
	mem->rights = rights;
	mem->foreign = addr;
	rc = addr ? p->mem_wrap(mem) : p->mem_alloc(mem);
	if (rc) {
		obj_destroy(&mem->obj);
		return gn_fail_since(failures_before, rc,
				     addr ? "gn_mem_wrap()" : "gn_mem_alloc()");
	}
	*out = mem;
	return 0;
}

int gn_mem_alloc(struct gn_fabric *fabric, size_t size, unsigned rights, struct gn_mem **out)
{
	if (!out || !size || size > SIZE_MAX / 2 ||
	    rights & ~(unsigned)(REMOTE_RIGHTS | GN_MEM_HUGE))
		return gn_fail(
			-EINVAL,
			"gn_mem_alloc(): out is NULL, size is 0 or too large, or rights has bits "
			"other than "
			"GN_REMOTE_* and GN_MEM_HUGE");
	if (fabric_check(fabric))
		return -EINVAL;
	if (rights & GN_MEM_HUGE && !(fabric->attr.caps & GN_CAP_HUGE))
		return gn_fail(-EOPNOTSUPP, "gn_mem_alloc(): %s has no GN_CAP_HUGE",
			       fabric->attr.provider);
	return mem_create(fabric, NULL, size, rights, out);
}

/* Asks the kernel whether pages are mapped. */
static bool mem_is_mapped(uint8_t *addr, size_t size)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)addr & ~(page - 1);
	const uintptr_t end = (uintptr_t)addr + size;
	unsigned char seen[256];

	while (at < end) {
		const uintptr_t len = end - at < sizeof(seen) * page ? end - at :
								       sizeof(seen) * page;

		if (mincore((void *)at, len, seen)) /* NOLINT: the address is what is checked */
			return false;
		at += len;
	}
	return true;
}

int gn_mem_wrap(struct gn_fabric *fabric, void *addr, size_t size, struct gn_mem **out)
{
	if (!out || !addr || !size || (uintptr_t)addr + size < (uintptr_t)addr)
		return gn_fail(-EINVAL,
			       "gn_mem_wrap(): out or addr is NULL, or size is 0 or too large");
	if (fabric_check(fabric))
		return -EINVAL;
	if (!mem_is_mapped(addr, size))
		return gn_fail_log(-EFAULT,
				   "fabric: memory to wrap is not mapped, or not all of it");
	return mem_create(fabric, addr, size,
			  fabric->attr.caps & GN_CAP_FOREIGN_REMOTE ? REMOTE_RIGHTS : 0, out);
}

int gn_mem_free(struct gn_mem *mem)
{
	int rc;

	if (!mem)
		return 0;
	rc = obj_check_idle(mem, OBJ_MEM);
	if (rc)
		return rc;
	mem->obj.fabric->provider->mem_fini(mem);
	obj_destroy(&mem->obj);
	return 0;
}

void *gn_mem_addr(const struct gn_mem *mem)
{
	return obj_alive(mem, OBJ_MEM) ? mem->addr : NULL;
}

size_t gn_mem_size(const struct gn_mem *mem)
{
	return obj_alive(mem, OBJ_MEM) ? mem->size : 0;
}

int gn_pd_create(struct gn_ctx *ctx, struct gn_pd **out)
{
	const unsigned failures_before = gn_fail_count();
	const struct provider *p;
	struct gn_pd *pd;
	int rc;

	if (obj_check(ctx, OBJ_CTX))
		return -EINVAL;
	if (!out)
		return gn_fail(-EINVAL, "gn_pd_create(): out is NULL");
	p = ctx->obj.fabric->provider;
	rc = obj_create(ctx->obj.fabric, OBJ_PD, sizeof(*pd), &pd);
	if (rc)
		return rc;
	pd->ctx = ctx;
	rc = p->pd_init(pd);
	if (rc) {
		obj_destroy(&pd->obj);
		return gn_fail_since(failures_before, rc, "gn_pd_create()");
	}
	obj_hold(&ctx->obj);
	*out = pd;
	return 0;
}

int gn_pd_destroy(struct gn_pd *pd)
{
	int rc;

	if (!pd)
		return 0;
	rc = obj_check_idle(pd, OBJ_PD);
	if (rc)
		return rc;
	pd->obj.fabric->provider->pd_fini(pd);
	obj_release(&pd->ctx->obj);
	obj_destroy(&pd->obj);
	return 0;
}

static int mr_check_region(const struct gn_mem *mem, size_t offset, size_t length, unsigned access)
{
	if (access & ~(unsigned)(REMOTE_RIGHTS | GN_LOCAL_WRITE | GN_CONFINED))
		return gn_fail(-EINVAL, "gn_mr_register(): access has bits other than GN_REMOTE_*, "
					"GN_LOCAL_WRITE and GN_CONFINED");
	if (access & (GN_REMOTE_WRITE | GN_REMOTE_ATOMIC) && !(access & GN_LOCAL_WRITE))
		return gn_fail(-EINVAL,
			       "gn_mr_register(): remote write and atomic need GN_LOCAL_WRITE");
	if (!length || offset > mem->size || length > mem->size - offset)
		return gn_fail(-EINVAL, "gn_mr_register(): %zu bytes at %zu of a mem of %zu",
			       length, offset, mem->size);
	/* Remote offsets count from the region's start, and devices map whole pages. */
	if (access & REMOTE_RIGHTS && ((uintptr_t)mem->addr + offset) % GN_PAGE)
		return gn_fail(-EINVAL,
			       "gn_mr_register(): remote rights need a start on a page, not %zu",
			       offset);
	if (access & (unsigned)REMOTE_RIGHTS & ~mem->rights)
		return gn_fail_log(
			mem->foreign ? -EOPNOTSUPP : -EINVAL,
			mem->foreign ?
				"fabric: this provider cannot grant remote access to wrapped "
				"memory; use gn_mem_alloc()" :
				"fabric: the region has remote rights that its mem was not "
				"allocated with");
	return 0;
}

int gn_mr_register(struct gn_pd *pd, struct gn_mem *mem, size_t offset, size_t length,
		   unsigned access, struct gn_mr **out)
{
	const unsigned failures_before = gn_fail_count();
	const struct provider *p;
	struct gn_mr *mr;
	int rc;

	if (obj_check(pd, OBJ_PD) || obj_check(mem, OBJ_MEM))
		return -EINVAL;
	if (!out || pd->obj.fabric != mem->obj.fabric)
		return gn_fail(
			-EINVAL,
			"gn_mr_register(): out is NULL, or pd and mem are of different fabrics");
	rc = mr_check_region(mem, offset, length, access);
	if (rc)
		return rc;
	p = pd->obj.fabric->provider;
	rc = obj_create(pd->obj.fabric, OBJ_MR, sizeof(*mr), &mr);
	if (rc)
		return rc;
	mr->pd = pd;
	mr->mem = mem;
	mr->addr = mem->addr + offset;
	mr->length = length;
	mr->access = access;
	rc = p->mr_init(mr);
	if (rc) {
		obj_destroy(&mr->obj);
		return gn_fail_since(failures_before, rc, "gn_mr_register()");
	}
	obj_hold(&pd->obj);
	obj_hold(&mem->obj);
	*out = mr;
	return 0;
}

int gn_mr_deregister_try(struct gn_mr *mr)
{
	int rc;

	if (!mr)
		return 0;
	rc = obj_check_idle(mr, OBJ_MR);
	if (rc)
		return rc;
	rc = mr->obj.fabric->provider->mr_revoke(mr);
	if (rc)
		return rc; /* a peer is copying: not a failure for gn_error() */
	mr->obj.fabric->provider->mr_fini(mr);
	obj_release(&mr->pd->obj);
	obj_release(&mr->mem->obj);
	obj_destroy(&mr->obj);
	return 0;
}

int gn_mr_deregister(struct gn_mr *mr)
{
	int rc;

	for (unsigned tries = 0; (rc = gn_mr_deregister_try(mr)) == -EAGAIN; tries++)
		teardown_pause(tries);
	return rc;
}

uint32_t gn_mr_lkey(const struct gn_mr *mr)
{
	return obj_alive(mr, OBJ_MR) ? mr->lkey : 0;
}

void *gn_mr_addr(const struct gn_mr *mr)
{
	return obj_alive(mr, OBJ_MR) ? mr->addr : NULL;
}

size_t gn_mr_length(const struct gn_mr *mr)
{
	return obj_alive(mr, OBJ_MR) ? mr->length : 0;
}

int gn_mr_remote(const struct gn_mr *mr, struct gn_remote *out)
{
	if (obj_check(mr, OBJ_MR))
		return -EINVAL;
	if (!out)
		return gn_fail(-EINVAL, "gn_mr_remote(): out is NULL");
	*out = (struct gn_remote){.offset = mr->iova, .length = mr->length, .key = mr->rkey};
	return 0;
}
