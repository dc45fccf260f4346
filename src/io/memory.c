/* SPDX-License-Identifier: MIT */
/*
 * Local memory: registered once by the caller, copied through registered buffers, or registered for
 * one request (RDMAbox IV-A). The submitter copies and registers, never the leader.
 */
#include <string.h>

#include "io/engine.h"

/* ---- staging buffers ---- */

/* The sizes of buffers, and each size's part of the area. */
static const struct {
	uint32_t size, part;
} staging_classes[IO_STAGING_CLASSES] = {
	{4096, 8}, {32768, 8}, {131072, 4}, {GN_IO_BYTES_MAX, 2}};

static uint8_t *class_take(struct io_staging_class *class)
{
	uint64_t top = __atomic_load_n(&class->top, __ATOMIC_ACQUIRE), next;
	uint32_t index;

	do {
		index = (uint32_t)top;
		if (!index)
			return NULL;
		/* May be stale if another thread was faster: then the tag differs. */
		next = (top >> 32) + 1;
		next = next << 32 | __atomic_load_n(&class->next[index - 1], __ATOMIC_RELAXED);
	} while (!__atomic_compare_exchange_n(&class->top, &top, next, true, __ATOMIC_ACQ_REL,
					      __ATOMIC_ACQUIRE));
	return class->base + (size_t)(index - 1) * class->size;
}

static void class_put(struct io_staging_class *class, const uint8_t *buffer)
{
	const uint32_t index = (uint32_t)((size_t)(buffer - class->base) / class->size) + 1;
	uint64_t top = __atomic_load_n(&class->top, __ATOMIC_RELAXED);

	do
		__atomic_store_n(&class->next[index - 1], (uint32_t)top, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&class->top, &top, ((top >> 32) + 1) << 32 | index,
					    true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

static uint8_t *staging_take(struct gn_io *io, uint32_t len)
{
	uint8_t *buffer = NULL;

	for (unsigned i = 0; !buffer && i < IO_STAGING_CLASSES; i++)
		if (io->staging[i].size >= len)
			buffer = class_take(&io->staging[i]);
	return buffer;
}

static void staging_put(struct gn_io *io, uint8_t *buffer)
{
	for (unsigned i = 0; i < IO_STAGING_CLASSES; i++) {
		struct io_staging_class *class = &io->staging[i];

		if (buffer >= class->base && buffer < class->base + (size_t) class->n * class->size)
			class_put(class, buffer);
	}
}

static int staging_init(struct gn_io *io)
{
	const size_t bytes = io->opts.staging_bytes;
	uint8_t *at;
	int rc = gn_mem_alloc(io->fabric, bytes, 0, &io->staging_mem);

	if (!rc)
		rc = gn_mr_register(io->pd, io->staging_mem, 0, bytes, GN_LOCAL_WRITE,
				    &io->staging_mr);
	if (rc)
		return rc;
	at = gn_mr_addr(io->staging_mr);
	for (unsigned i = 0; i < IO_STAGING_CLASSES; i++) {
		struct io_staging_class *class = &io->staging[i];
		const size_t share = bytes / staging_classes[i].part;

		class->size = staging_classes[i].size;
		class->n = (uint32_t)(share / class->size);
		class->base = at;
		class->next = gn_alloc((class->n + 1) * sizeof(*class->next), 0);
		if (!class->next)
			return gn_fail(-ENOMEM, "gn_io_create(): " NO_MEMORY);
		at += (size_t) class->n * class->size;
		for (uint32_t b = 0; b < class->n; b++)
			class_put(class, class->base + (size_t)b * class->size);
	}
	return 0;
}

/* ---- registration ---- */

static int buffer_register(struct gn_io *io, void *addr, size_t length, struct gn_mem **mem,
			   struct gn_mr **mr)
{
	int rc = gn_mem_wrap(io->fabric, addr, length, mem);

	if (rc)
		return rc;
	rc = gn_mr_register(io->pd, *mem, 0, length, GN_LOCAL_WRITE, mr);
	if (rc) {
		gn_mem_free(*mem);
		*mem = NULL;
	}
	return rc;
}

static int buffer_deregister(struct gn_mem *mem, struct gn_mr *mr)
{
	const int rc = gn_mr_deregister(mr);

	if (!rc)
		gn_mem_free(mem);
	return rc;
}

int gn_io_mem_register(struct gn_io *io, void *addr, size_t length, struct gn_io_mem **out)
{
	struct gn_io_mem *mem;
	int rc;

	if (!io || !addr || !length || !out)
		return gn_fail(-EINVAL,
			       "gn_io_mem_register(): io, addr or out is NULL, or length is 0");
	rc = io_check(io, "gn_io_mem_register()");
	if (rc)
		return rc;
	mem = gn_alloc(sizeof(*mem), 0);
	if (!mem)
		return gn_fail(-ENOMEM, "gn_io_mem_register(): " NO_MEMORY);
	rc = buffer_register(io, addr, length, &mem->mem, &mem->mr);
	if (rc) {
		gn_free(mem);
		return rc;
	}
	mem->io = io;
	mem->addr = addr;
	mem->length = length;
	mem->lkey = gn_mr_lkey(mem->mr);
	__atomic_fetch_add(&io->n_mems, 1, __ATOMIC_RELAXED);
	*out = mem;
	return 0;
}

int gn_io_mem_deregister(struct gn_io_mem *mem)
{
	int rc;

	if (!mem)
		return 0;
	rc = io_check(mem->io, "gn_io_mem_deregister()");
	if (rc)
		return rc;
	if (__atomic_load_n(&mem->refs, __ATOMIC_ACQUIRE))
		return gn_fail(-EBUSY, "gn_io_mem_deregister(): requests refer to it");
	rc = buffer_deregister(mem->mem, mem->mr);
	if (rc)
		return rc;
	__atomic_fetch_sub(&mem->io->n_mems, 1, __ATOMIC_RELAXED);
	gn_free(mem);
	return 0;
}

/* ---- requests ---- */

static void req_copy(struct gn_io_req *req, uint8_t *buffer, bool out)
{
	for (uint32_t i = 0; i < req->n_sge; i++) {
		const struct gn_io_sge *sge = &req->sge[i];

		if (out)
			memcpy(buffer, sge->addr, sge->len_bytes);
		else
			memcpy(sge->addr, buffer, sge->len_bytes);
		buffer += sge->len_bytes;
	}
	gn_charge(GN_WORK_COPY, io_req_of(req)->len_bytes);
}

static bool req_is_registered(const struct gn_io_req *req)
{
	for (uint32_t i = 0; i < req->n_sge; i++)
		if (!req->sge[i].mem)
			return false;
	return true;
}

/*
 * Registers the only buffer of a request. If that fails and the engine may choose, it copies from
 * now on: the device has no keys left, or the process may not lock more memory.
 */
static int req_register(struct gn_io *io, const struct gn_io_req *req)
{
	struct io_req *r = io_req_of((struct gn_io_req *)(uintptr_t)req);
	int rc = buffer_register(io, req->sge->addr, req->sge->len_bytes, &r->dyn, &r->dyn_mr);

	if (!rc) {
		r->lkey = gn_mr_lkey(r->dyn_mr);
	} else if (rc != -EFAULT && io->opts.mr == GN_IO_MR_AUTO) {
		__atomic_store_n(&io->copy_below, UINT64_MAX, __ATOMIC_RELAXED);
		gn_log(GN_LOG_WARN,
		       "io: a buffer cannot be registered: buffers are copied from now on");
		rc = 0;
	}
	return rc;
}

int io_memory_prepare(struct gn_io *io, struct gn_io_req *req)
{
	struct io_req *r = io_req_of(req);
	int rc;

	r->buffer = NULL;
	r->dyn = NULL;
	if (likely(req_is_registered(req))) {
		r->lkey = req->sge->mem->lkey;
		return 0;
	}
	/* A request of several buffers is copied: registering each costs more than one copy. */
	if (req->n_sge == 1 &&
	    r->len_bytes >= __atomic_load_n(&io->copy_below, __ATOMIC_RELAXED)) {
		rc = req_register(io, req);
		if (rc || r->dyn)
			return rc;
	}
	r->buffer = staging_take(io, r->len_bytes);
	if (!r->buffer)
		return gn_fail_text(-EAGAIN, "gn_io_submit(): the staging buffers are in use: poll "
					     "first, or raise opts.staging_bytes");
	r->lkey = gn_mr_lkey(io->staging_mr);
	if (req->op == GN_IO_WRITE)
		req_copy(req, r->buffer, true);
	return 0;
}

void io_memory_finish(struct gn_io *io, struct gn_io_req *req)
{
	struct io_req *r = io_req_of(req);

	if (r->buffer) {
		if (req->op == GN_IO_READ && !r->status)
			req_copy(req, r->buffer, false);
		staging_put(io, r->buffer);
	}
	if (r->dyn)
		buffer_deregister(r->dyn, r->dyn_mr);
	r->buffer = NULL;
	r->dyn = NULL;
}

/* ---- copy or register: what is faster here ---- */

#define MEASURE_ROUNDS 3u

static uint64_t measure_copy(struct gn_io *io, uint8_t *from, uint32_t len)
{
	uint64_t best = UINT64_MAX;

	for (unsigned i = 0; i < MEASURE_ROUNDS; i++) {
		const uint64_t begin_ns = gn_now_ns();
		uint64_t took_ns;

		memcpy(io->staging[IO_STAGING_CLASSES - 1].base, from, len);
		gn_charge(GN_WORK_COPY, len);
		took_ns = gn_now_ns() - begin_ns;
		best = took_ns < best ? took_ns : best;
	}
	return best;
}

static uint64_t measure_register(struct gn_io *io, uint8_t *from, uint32_t len)
{
	uint64_t best = UINT64_MAX;

	for (unsigned i = 0; i < MEASURE_ROUNDS; i++) {
		const uint64_t begin_ns = gn_now_ns();
		struct gn_io_mem *mem;
		uint64_t took_ns;

		if (gn_io_mem_register(io, from, len, &mem))
			return UINT64_MAX;
		gn_io_mem_deregister(mem);
		took_ns = gn_now_ns() - begin_ns;
		best = took_ns < best ? took_ns : best;
	}
	return best;
}

static int copy_below_measure(struct gn_io *io)
{
	uint8_t *from = gn_alloc(GN_IO_BYTES_MAX, GN_PAGE);
	uint32_t len = GN_IO_BYTES_MAX;

	if (!from)
		return gn_fail(-ENOMEM, "gn_io_create(): " NO_MEMORY);
	memset(from, 1, GN_IO_BYTES_MAX);
	/* The shortest length from which registering is faster for all lengths. */
	while (len >= GN_PAGE && measure_register(io, from, len) < measure_copy(io, from, len))
		len /= 2;
	io->copy_below = len < GN_PAGE ? GN_PAGE : 2ull * len;
	gn_free(from);
	return 0;
}

int io_memory_init(struct gn_io *io)
{
	int rc = staging_init(io);

	if (rc)
		return rc;
	switch (io->opts.mr) {
	case GN_IO_MR_PRE:
		io->copy_below = UINT64_MAX;
		return 0;
	case GN_IO_MR_DYN:
		io->copy_below = 0;
		return 0;
	default:
		return copy_below_measure(io);
	}
}

void io_memory_fini(struct gn_io *io)
{
	for (unsigned i = 0; i < IO_STAGING_CLASSES; i++)
		gn_free(io->staging[i].next);
	gn_mr_deregister(io->staging_mr);
	gn_mem_free(io->staging_mem);
}
