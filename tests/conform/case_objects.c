/* SPDX-License-Identifier: MIT */
/*
 * The objects of a case, in a list, newest first: a case may stop anywhere, and all of them are
 * destroyed in an order that every provider accepts.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "harness.h"

struct cf_made {
	struct cf_made *next;
	enum cf_object kind;
	void *object;
	size_t size; /* CF_PAGES */
};

static const char *const kind_name[] = {"fabric", "ctx", "pd", "mem",	   "mr",     "cq",
					"chan",	  "qp",	 "ah", "listener", "mapping"};

/*
 * The calls that never wait: they end within the time they state, twice that on a busy machine.
 * The other sort is called by the cases themselves.
 */
static int mr_deregister_try(void *mr)
{
	return gn_mr_deregister_try(mr);
}

static int qp_destroy_try(void *qp)
{
	return gn_qp_destroy_try(qp);
}

static int destroy_until_gone(int (*try)(void *), void *object)
{
	const uint64_t deadline_ns = gn_deadline_us(2 * GN_TEARDOWN_US);
	int err = try(object);

	while (err == -EAGAIN && gn_now_ns() < deadline_ns) {
		gn_yield();
		err = try(object);
	}
	return err;
}

static int destroy_object(const struct cf_made *made)
{
	void *object = made->object;

	switch (made->kind) {
	case CF_FABRIC:
		return gn_fabric_close(object);
	case CF_CTX:
		return gn_ctx_destroy(object);
	case CF_PD:
		return gn_pd_destroy(object);
	case CF_MEM:
		return gn_mem_free(object);
	case CF_MR:
		return destroy_until_gone(mr_deregister_try, object);
	case CF_CQ:
		return gn_cq_destroy(object);
	case CF_CHAN:
		return gn_chan_destroy(object);
	case CF_QP:
		return destroy_until_gone(qp_destroy_try, object);
	case CF_AH:
		return gn_ah_destroy(object);
	case CF_LISTENER:
		return gn_listener_destroy(object);
	case CF_PAGES:
		return munmap(object, made->size) ? -errno : 0;
	}
	return -EINVAL;
}

static void own_sized(struct cf *cf, enum cf_object kind, void *object, size_t size)
{
	struct cf_made *made;

	if (!object)
		return;
	made = gn_alloc(sizeof(*made), 0);
	if (!made) {
		cf_fail(cf, __FILE__, __LINE__, "gn_alloc", " no memory");
		return;
	}
	*made = (struct cf_made){cf->made, kind, object, size};
	cf->made = made;
}

void cf_own(struct cf *cf, enum cf_object kind, void *object)
{
	own_sized(cf, kind, object, 0);
}

static struct cf_made **made_find(struct cf *cf, const void *object)
{
	struct cf_made **link = &cf->made;

	while (*link && (*link)->object != object)
		link = &(*link)->next;
	return link;
}

bool cf_disown(struct cf *cf, const void *object)
{
	struct cf_made **link = made_find(cf, object);
	struct cf_made *made = *link;

	if (!made)
		return cf_why(cf, "not an object of this case");
	*link = made->next;
	gn_free(made);
	return true;
}

bool cf_destroy(struct cf *cf, const void *object)
{
	struct cf_made *made = *made_find(cf, object);
	int err;

	if (!made)
		return cf_why(cf, "not an object of this case");
	err = destroy_object(made);
	if (err)
		cf_why(cf, "cannot destroy a %s: %s", kind_name[made->kind], gn_strerror(err));
	else
		cf_disown(cf, object);
	return !err;
}

bool cf_destroy_all(struct cf *cf)
{
	char first[CF_WHY_MAX] = "";

	while (cf->made) {
		if (cf_destroy(cf, cf->made->object))
			continue;
		if (!first[0])
			memcpy(first, cf->why, sizeof(first));
		cf_disown(cf, cf->made->object);
	}
	return !first[0] || cf_why(cf, "%s", first);
}

/* ---- created and remembered ---- */

#define MADE(kind, call)                                                                          \
	do {                                                                                      \
		int err_ = (call);                                                                \
		if (err_) {                                                                       \
			cf_why(cf, "cannot create a %s: %s", kind_name[kind], gn_strerror(err_)); \
			return NULL;                                                              \
		}                                                                                 \
		cf_own(cf, kind, made);                                                           \
		return made;                                                                      \
	} while (0)

struct gn_cq *cf_make_cq(struct cf *cf, uint32_t depth, struct gn_chan *chan)
{
	struct gn_cq_opts opts = {.size = sizeof(opts), .depth = depth, .chan = chan};
	struct gn_cq *made;

	MADE(CF_CQ, gn_cq_create(cf->ctx, &opts, &made));
}

struct gn_chan *cf_make_chan(struct cf *cf)
{
	struct gn_chan *made;

	MADE(CF_CHAN, gn_chan_create(cf->ctx, &made));
}

struct gn_pd *cf_make_pd(struct cf *cf)
{
	struct gn_pd *made;

	MADE(CF_PD, gn_pd_create(cf->ctx, &made));
}

struct gn_qp *cf_make_qp(struct cf *cf, struct gn_pd *pd, const struct gn_qp_opts *opts)
{
	struct gn_qp *made;

	MADE(CF_QP, gn_qp_create(pd, opts, &made));
}

struct gn_mem *cf_make_mem(struct cf *cf, size_t size, unsigned rights)
{
	struct gn_mem *made;

	MADE(CF_MEM, gn_mem_alloc(cf->fabric, size, rights, &made));
}

struct gn_mr *cf_make_mr(struct cf *cf, struct gn_pd *pd, struct gn_mem *mem, unsigned access)
{
	struct gn_mr *made;

	MADE(CF_MR, gn_mr_register(pd, mem, 0, gn_mem_size(mem), access, &made));
}

struct gn_ah *cf_make_ah(struct cf *cf, struct gn_qp *qp, const struct gn_ud_addr *addr)
{
	struct gn_ah *made;

	MADE(CF_AH, gn_ah_create(qp, addr, &made));
}

struct gn_listener *cf_make_listener(struct cf *cf, const char *addr, struct gn_chan *chan)
{
	struct gn_listener *made;

	MADE(CF_LISTENER, gn_listener_create(cf->ctx, addr, chan, 0, &made));
}

uint8_t *cf_make_pages(struct cf *cf, size_t size, void *hint)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (hint ? MAP_FIXED : 0);
	void *pages = mmap(hint, size, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (pages == MAP_FAILED) {
		cf_why(cf, "mmap: %s", strerror(errno));
		return NULL;
	}
	if (!hint)
		own_sized(cf, CF_PAGES, pages, size);
	return pages;
}
