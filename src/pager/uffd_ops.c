/* SPDX-License-Identifier: MIT */
/*
 * pager_ops on userfaultfd. A page that is mapped write-protected and not written leaves a marker
 * in the page table when it is unmapped; a written one leaves nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "pager/uffd.h"
#include "pager/uffd_abi.h"

#define PAGE GN_PAGER_PAGE

static uint8_t *addr_of(const struct uffd *u, uint64_t page)
{
	return u->base + page * PAGE;
}

static struct uffdio_range range_of(const struct uffd *u, uint64_t page, uint64_t n)
{
	return (struct uffdio_range){(uintptr_t)addr_of(u, page), n * PAGE};
}

static int ops_failed(const char *what, uint64_t page, int rc)
{
	gn_log(GN_LOG_ERROR, "pager: %s of page %llu: %s", what, (unsigned long long)page,
	       gn_strerror(rc));
	return rc;
}

static void set_changed(struct uffd *u, uint64_t page, uint64_t n, bool changed)
{
	for (uint64_t p = page; u->changed && p < page + n; p++) {
		const uint64_t bit = UINT64_C(1) << p % 64;

		if (changed)
			u->changed[p / 64] |= bit;
		else
			u->changed[p / 64] &= ~bit;
	}
}

/* ---- into the page table ---- */

/* What is left of a range, for calls that take one mapping of the program's each. */
struct rest {
	uint64_t page;
	unsigned n, most; /* pages of one call */
};

static unsigned rest_next(const struct rest *rest)
{
	return min_u32(rest->n, rest->most);
}

static void rest_skip(struct rest *rest, unsigned n)
{
	rest->page += n;
	rest->n -= n;
}

/*
 * A call failed after a part of its range, in bytes, or at its first page. Returns whether to call
 * again: behind what was done, at the same place, or with fewer pages, because the program has
 * divided the mapping (mprotect()).
 */
static bool goes_on(struct rest *rest, int64_t done)
{
	if (done > 0) {
		rest_skip(rest, (unsigned)((uint64_t)done / PAGE));
		return true;
	}
	if (errno == ENOENT && rest_next(rest) > 1) {
		rest->most = rest_next(rest) / 2;
		return true;
	}
	return errno == EAGAIN || errno == EINTR;
}

static int wake_range(struct uffd *u, uint64_t page, unsigned n)
{
	struct uffdio_range range = range_of(u, page, n);

	return ioctl(u->fd, UFFDIO_WAKE, &range) ? ops_failed("UFFDIO_WAKE", page, -errno) : 0;
}

/* A page that the program has unmapped by itself: who waits for it gets SIGSEGV. */
static int skip_unmapped(struct uffd *u, struct rest *rest)
{
	const int rc = wake_range(u, rest->page, 1);

	rest_skip(rest, 1);
	return rc;
}

/* The next page cannot be mapped. Those before it are. */
static int rest_failed(const struct rest *rest, unsigned n, const char *what, int rc)
{
	return rest->n < n ? (int)(n - rest->n) : ops_failed(what, rest->page, rc);
}

static int ops_copy(void *arg, uint64_t page, unsigned n, const void *bytes, bool protect)
{
	struct rest rest = {page, n, n};
	struct uffd *u = arg;

	set_changed(u, page, n, !protect);
	while (rest.n) {
		struct uffdio_copy c = {.dst = (uintptr_t)addr_of(u, rest.page),
					.src = (uintptr_t)bytes + (rest.page - page) * PAGE,
					.len = rest_next(&rest) * (uint64_t)PAGE,
					.mode = protect ? UFFDIO_COPY_MODE_WP : 0};

		if (!ioctl(u->fd, UFFDIO_COPY, &c))
			rest_skip(&rest, rest_next(&rest));
		else if (!goes_on(&rest, c.copy) && (errno != ENOENT || skip_unmapped(u, &rest)))
			return rest_failed(&rest, n, "UFFDIO_COPY", -errno);
	}
	return (int)n;
}

/*
 * Only a new mapping takes the place of a lost page before Linux 6.6: see ops_poison(). Such a page
 * is asked for by itself; one of a window is a page that the program has unmapped.
 */
static int zero_unmapped(struct uffd *u, struct rest *rest, bool *covered)
{
	if (!*covered)
		return skip_unmapped(u, rest);
	*covered = false;
	return uffd_map_range(u, rest->page, 1);
}

static int ops_zero(void *arg, uint64_t page, unsigned n)
{
	struct rest rest = {page, n, n};
	struct uffd *u = arg;
	bool covered = u->empty >= 0 && n == 1;

	set_changed(u, page, n, true);
	while (rest.n) {
		struct uffdio_zeropage z = {.range = range_of(u, rest.page, rest_next(&rest))};

		if (!ioctl(u->fd, UFFDIO_ZEROPAGE, &z))
			rest_skip(&rest, rest_next(&rest));
		else if (!goes_on(&rest, z.zeropage) &&
			 (errno != ENOENT || zero_unmapped(u, &rest, &covered)))
			return rest_failed(&rest, n, "UFFDIO_ZEROPAGE", -errno);
	}
	return (int)n;
}

/*
 * Pages of the file. The program can have done things to its page table by itself: a page that is
 * mapped already stays (EEXIST), a page that it took out of the file is zeros (EFAULT), and a range
 * that it unmapped is gone (ENOENT).
 */
static int ops_map(void *arg, uint64_t page, unsigned n, bool protect)
{
	struct rest rest = {page, n, n};
	struct uffd *u = arg;

	protect = protect && u->map_protected;
	set_changed(u, page, n, !protect);
	while (rest.n) {
		struct uffdio_continue c = {.range = range_of(u, rest.page, rest_next(&rest)),
					    .mode = protect ? UFFDIO_CONTINUE_MODE_WP : 0};
		int rc;

		if (!ioctl(u->fd, UFFDIO_CONTINUE, &c)) {
			rest_skip(&rest, rest_next(&rest));
			continue;
		}
		if (goes_on(&rest, c.mapped))
			continue;
		rc = -errno;
		if (rc == -EFAULT)
			rc = ops_zero(u, rest.page, 1);
		else if (rc == -EEXIST || rc == -ENOENT)
			rc = wake_range(u, rest.page, 1);
		if (rc < 0)
			return rest_failed(&rest, n, "UFFDIO_CONTINUE", rc);
		rest_skip(&rest, 1);
	}
	return (int)n;
}

static int ops_remap(void *arg, uint64_t page)
{
	const int rc = ops_map(arg, page, 1, false);

	return rc < 0 ? rc : 0;
}

static int ops_wake(void *arg, uint64_t page, unsigned n)
{
	return wake_range(arg, page, n);
}

int uffd_allow_write(struct uffd *u, uint64_t page)
{
	struct uffdio_writeprotect w = {.range = range_of(u, page, 1)};

	set_changed(u, page, 1, true);
	if (!ioctl(u->fd, UFFDIO_WRITEPROTECT, &w))
		return 0;
	if (errno != ENOENT)
		ops_failed("UFFDIO_WRITEPROTECT", page, -errno);
	return wake_range(u, page, 1); /* it faults again, or has no such memory */
}

/* ---- out of the page table ---- */

static int ops_unmap(void *arg, uint64_t page, unsigned n)
{
	struct uffd *u = arg;

	/* ENOMEM: the program unmapped a part by itself. */
	if (madvise(addr_of(u, page), n * (size_t)PAGE, MADV_DONTNEED_LOCKED) && errno != ENOMEM)
		return ops_failed("madvise(MADV_DONTNEED)", page, -errno);
	return 0;
}

/* A page of which the kernel tells nothing counts as written. */
static int ops_written(void *arg, uint64_t page, unsigned n, uint64_t *bits)
{
	struct uffd *u = arg;
	struct abi_region regions[64];
	struct abi_scan scan = {.size = sizeof(scan),
				.start = (uintptr_t)addr_of(u, page),
				.end = (uintptr_t)addr_of(u, page + n),
				.vec = (uintptr_t)regions,
				.vec_len = 64,
				.category_inverted = ABI_WRITTEN,
				.category_mask = ABI_WRITTEN | ABI_SWAPPED,
				.return_mask = ABI_SWAPPED};
	uint64_t all = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
	int got;

	if (u->changed) {
		*bits = 0;
		for (unsigned i = 0; i < n; i++)
			*bits |= (u->changed[(page + i) / 64] >> (page + i) % 64 & 1) << i;
		return 0;
	}
	*bits = all;
	got = ioctl(u->pagemap, ABI_SCAN, &scan);
	if (got < 0)
		return ops_failed("PAGEMAP_SCAN", page, -errno);
	for (int i = 0; i < got; i++)
		for (uint64_t at = regions[i].start; at < regions[i].end; at += PAGE)
			*bits &= ~(UINT64_C(1) << (at - scan.start) / PAGE);
	return 0;
}

/* ---- the file ---- */

/* pread() of 64 pages takes half the time of an alias mapping, and adds nothing to the RSS. */
static int ops_load(void *arg, uint64_t page, unsigned n, void *bytes)
{
	struct uffd *u = arg;
	const size_t len = n * (size_t)PAGE;

	for (size_t done = 0; done < len;) {
		const ssize_t got = pread(u->file, (uint8_t *)bytes + done, len - done,
					  (off_t)(page * PAGE + done));

		if (got <= 0 && errno != EINTR)
			return ops_failed("pread", page, got ? -errno : -EIO);
		done += got > 0 ? (size_t)got : 0;
	}
	return 0;
}

static int ops_punch(void *arg, uint64_t page, unsigned n)
{
	struct uffd *u = arg;

	if (fallocate(u->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(page * PAGE),
		      n * (off_t)PAGE))
		return ops_failed("fallocate", page, -errno);
	return 0;
}

/* ---- lost pages ---- */

static int poison_by_ioctl(struct uffd *u, uint64_t page)
{
	struct abi_poison p = {.range = range_of(u, page, 1)};
	struct uffdio_writeprotect w = {.range = p.range};

	if (!ioctl(u->fd, ABI_POISON, &p))
		return 0;
	/* A marker of an unwritten page is in the way. */
	if (errno != EEXIST || ioctl(u->fd, UFFDIO_WRITEPROTECT, &w))
		return -errno;
	/* EEXIST once more: it is poisoned already, since two threads waited for it. */
	return ioctl(u->fd, ABI_POISON, &p) && errno != EEXIST ? -errno : 0;
}

static int ops_poison(void *arg, uint64_t page)
{
	struct uffd *u = arg;
	int rc;

	if (u->empty < 0) {
		rc = poison_by_ioctl(u, page);
		if (rc == -ENOENT)
			return wake_range(u, page, 1);
		return rc ? ops_failed("UFFDIO_POISON", page, rc) : 0;
	}
	/* Before Linux 6.6: a mapping beyond the end of a file raises the same signal. */
	if (mmap(addr_of(u, page), PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, u->empty,
		 0) == MAP_FAILED)
		return ops_failed("mmap", page, -errno);
	return wake_range(u, page, 1);
}

const struct pager_ops uffd_ops = {
	.copy = ops_copy,
	.zero = ops_zero,
	.map = ops_map,
	.unmap = ops_unmap,
	.written = ops_written,
	.load = ops_load,
	.punch = ops_punch,
	.poison = ops_poison,
	.remap = ops_remap,
	.wake = ops_wake,
};
