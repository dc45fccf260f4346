/* SPDX-License-Identifier: MIT */
/*
 * Cases 8 and 10: registering memory, and memory that goes and comes back.
 */
#include <errno.h>
#include <sys/mman.h>

#include "conform.h"

/* ---- 8 ---- */

static bool register_combination(struct cf *cf, struct gn_mem *mem, unsigned access)
{
	bool legal = access & GN_LOCAL_WRITE || !(access & (GN_REMOTE_WRITE | GN_REMOTE_ATOMIC));
	struct gn_remote remote;
	struct gn_mr *mr = NULL;

	CHECK_INT(gn_mr_register(cf->pd, mem, GN_PAGE, GN_PAGE + 1, access, &mr),
		  legal ? 0 : -EINVAL);
	CHECK(legal == (mr != NULL));
	if (!legal)
		return true;
	cf_own(cf, CF_MR, mr);
	CHECK(gn_mr_addr(mr) == (uint8_t *)gn_mem_addr(mem) + GN_PAGE);
	CHECK_INT(gn_mr_length(mr), GN_PAGE + 1);
	if (access & cf_all_rights(cf)) {
		CHECK_INT(gn_mr_remote(mr, &remote), 0);
		CHECK_INT(remote.length, GN_PAGE + 1);
	}
	CHECK_INT(gn_mem_free(mem), -EBUSY);
	return true;
}

static bool register_bad(struct cf *cf, struct gn_mem *mem)
{
	const unsigned remote = GN_REMOTE_READ, local = GN_LOCAL_WRITE;
	size_t size = gn_mem_size(mem);
	struct gn_mr *mr = NULL;
	struct gn_mem *private;

	CHECK_INT(gn_mr_register(cf->pd, mem, 0, 0, local, &mr), -EINVAL);
	CHECK_INT(gn_mr_register(cf->pd, mem, 0, size + 1, local, &mr), -EINVAL);
	CHECK_INT(gn_mr_register(cf->pd, mem, size, 1, local, &mr), -EINVAL);
	CHECK_INT(gn_mr_register(cf->pd, mem, GN_PAGE, SIZE_MAX - 1, local, &mr), -EINVAL);
	CHECK_INT(gn_mr_register(cf->pd, mem, SIZE_MAX - GN_PAGE + 1, GN_PAGE, local, &mr),
		  -EINVAL);
	CHECK_INT(gn_mr_register(cf->pd, mem, 8, 64, remote, &mr), -EINVAL);
	CHECK_INT(gn_mr_register(cf->pd, mem, 0, 64, 1u << 30, &mr), -EINVAL);
	CHECK_INT(gn_mr_register(cf->pd, NULL, 0, 64, local, &mr), -EINVAL);
	CHECK_INT(gn_mr_register(NULL, mem, 0, 64, local, &mr), -EINVAL);
	CHECK_INT(gn_mr_register(cf->pd, mem, 0, 64, local, NULL), -EINVAL);
	CHECK(private = cf_make_mem(cf, GN_PAGE, 0));
	CHECK_INT(gn_mr_register(cf->pd, private, 0, GN_PAGE, remote, &mr), -EINVAL);
	CHECK(!mr, "a failed call wrote to its output");
	return true;
}

static bool wrap_memory(struct cf *cf)
{
	struct gn_mem *mem = NULL;
	struct gn_mr *mr = NULL;
	uint8_t *pages;
	int err;

	/* Two mapped pages, and two unmapped: others may map there, so use them at once. */
	CHECK(pages = cf_make_pages(cf, 4 * GN_PAGE, NULL));
	CHECK(munmap(pages + 2 * GN_PAGE, 2 * GN_PAGE) == 0);
	CHECK_INT(gn_mem_wrap(cf->fabric, pages, 4 * GN_PAGE, &mem), -EFAULT);
	CHECK_INT(gn_mem_wrap(cf->fabric, pages + 2 * GN_PAGE, GN_PAGE, &mem), -EFAULT);
	CHECK(cf_make_pages(cf, 2 * GN_PAGE, pages + 2 * GN_PAGE));

	CHECK_INT(gn_mem_wrap(cf->fabric, pages, 0, &mem), -EINVAL);
	CHECK_INT(gn_mem_wrap(cf->fabric, NULL, GN_PAGE, &mem), -EINVAL);
	CHECK_INT(gn_mem_wrap(cf->fabric, pages, SIZE_MAX, &mem), -EINVAL);
	CHECK(!mem, "a failed call wrote to its output");
	CHECK_INT(gn_mem_wrap(cf->fabric, pages, 4 * GN_PAGE, &mem), 0);
	cf_own(cf, CF_MEM, mem);
	CHECK(gn_mem_addr(mem) == pages && gn_mem_size(mem) == 4 * GN_PAGE);
	CHECK(cf_make_mr(cf, cf->pd, mem, GN_LOCAL_WRITE));
	err = gn_mr_register(cf->pd, mem, 0, GN_PAGE, GN_REMOTE_READ, &mr);
	cf_own(cf, CF_MR, mr);
	CHECK_INT(err, cf->attr.caps & GN_CAP_FOREIGN_REMOTE ? 0 : -EOPNOTSUPP);
	return true;
}

static bool registration(struct cf *cf)
{
	const unsigned all = GN_LOCAL_WRITE | cf_all_rights(cf);
	struct gn_mem *mem = NULL;

	CHECK_INT(gn_mem_alloc(cf->fabric, 0, 0, &mem), -EINVAL);
	CHECK_INT(gn_mem_alloc(cf->fabric, SIZE_MAX, 0, &mem), -EINVAL);
	CHECK_INT(gn_mem_alloc(cf->fabric, GN_PAGE, 1u << 30, &mem), -EINVAL);
	CHECK(!mem, "a failed call wrote to its output");
	CHECK(mem = cf_make_mem(cf, 4 * GN_PAGE, cf_all_rights(cf)));
	CHECK((uintptr_t)gn_mem_addr(mem) % GN_PAGE == 0);
	for (size_t i = 0; i < gn_mem_size(mem); i++)
		CHECK(((uint8_t *)gn_mem_addr(mem))[i] == 0, "byte %zu of new memory", i);
	for (unsigned access = 0; access <= all; access++)
		if (!(access & ~all))
			CHECK(register_combination(cf, mem, access), "access %#x", access);
	CHECK(register_bad(cf, mem));
	CHECK(wrap_memory(cf));
	return true;
}

/* ---- 10 ---- */

#define RENEWED (3 * GN_PAGE)

/*
 * A maps other pages at the same address, again and again; what it sends must come from the newest.
 */
static bool remap_a(struct cf *cf)
{
	struct cf_rc rc;
	uint8_t *pages;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(pages = cf_make_pages(cf, RENEWED, NULL));
	for (uint64_t i = 0; cf_more_both(cf, i, 100); i++) {
		struct gn_mem *mem = NULL;
		struct gn_mr *mr;
		struct gn_sge sge;
		struct gn_wr wr;

		CHECK(cf_make_pages(cf, RENEWED, pages));
		cf_fill(cf, pages, RENEWED, i);
		CHECK_INT(gn_mem_wrap(cf->fabric, pages, RENEWED, &mem), 0);
		cf_own(cf, CF_MEM, mem);
		CHECK(mr = cf_make_mr(cf, cf->pd, mem, 0));
		sge = (struct gn_sge){pages, RENEWED, gn_mr_lkey(mr)};
		gn_wr_send(&wr, i, &sge, GN_SIGNALED);
		CHECK(cf_sync(cf));
		CHECK(cf_post(cf, rc.qp, &wr));
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
		CHECK(cf_destroy(cf, mr) && cf_destroy(cf, mem));
	}
	return true;
}

static bool remap_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, 100); i++) {
		cf_paint(rc.buf, rc.buf_bytes);
		CHECK(cf_recv(cf, &rc, i, 64, RENEWED));
		CHECK(cf_sync(cf));
		CHECK(cf_expect_wc(cf, rc.recv_cq, i, GN_WC_OK));
		CHECK(cf_check_framed(cf, rc.buf, rc.buf_bytes, 64, RENEWED, i));
	}
	return true;
}

/* A frees remotely readable memory and allocates it again; B reads the newest. */
static bool renew_a(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(remap_a(cf));
	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, 100); i++) {
		struct gn_remote remote;
		struct gn_mem *mem;
		struct gn_mr *mr;

		CHECK(mem = cf_make_mem(cf, RENEWED, GN_REMOTE_READ));
		CHECK(mr = cf_make_mr(cf, cf->pd, mem, GN_REMOTE_READ));
		cf_fill(cf, gn_mem_addr(mem), RENEWED, i);
		CHECK_INT(gn_mr_remote(mr, &remote), 0);
		CHECK(cf_tell(cf, &remote, sizeof(remote)));
		CHECK(cf_sync(cf)); /* B has read it */
		CHECK(cf_destroy(cf, mr) && cf_destroy(cf, mem));
	}
	return true;
}

static bool renew_b(struct cf *cf)
{
	struct cf_rc rc;

	CHECK(remap_b(cf));
	CHECK(cf_rc_pair(cf, NULL, &rc));
	for (uint64_t i = 0; cf_more_both(cf, i, 100); i++) {
		CHECK(cf_hear(cf, &rc.peer, sizeof(rc.peer)));
		cf_paint(rc.buf, rc.buf_bytes);
		CHECK(cf_read(cf, &rc, i, 64, 0, RENEWED, GN_SIGNALED));
		CHECK(cf_expect_wc(cf, rc.send_cq, i, GN_WC_OK));
		CHECK(cf_check_framed(cf, rc.buf, rc.buf_bytes, 64, RENEWED, i));
		CHECK(cf_sync(cf));
	}
	return true;
}

const struct cf_case cf_cases_memory[] = {
	{8, "memory regions: all rights, bad ranges", registration, NULL, 0, 0},
	{10, "memory freed and allocated anew is the new one", renew_a, renew_b, 0, 0},
	{0},
};
