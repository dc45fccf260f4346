/* SPDX-License-Identifier: MIT */
/*
 * mmap() and its relatives as the program calls them. A large anonymous private mapping comes from
 * the pager; calls on paged memory become calls of the pager; all others go to the kernel.
 *
 * The functions have names of their own here, because the headers rename mmap to mmap64.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

#define PAGED_FROM (128u << 10) /* bytes; shorter mappings stay plain */

/* The program's names for the functions below. */
PRELOAD_API void *export_mmap(void *, size_t, int, int, int, off_t) __asm__("mmap");
PRELOAD_API void *export_mmap64(void *, size_t, int, int, int, off_t) __asm__("mmap64");
PRELOAD_API int export_munmap(void *, size_t) __asm__("munmap");
PRELOAD_API void *export_mremap(void *, size_t, size_t, int, ...) __asm__("mremap");
PRELOAD_API int export_madvise(void *, size_t, int) __asm__("madvise");
PRELOAD_API int export_mlock(const void *, size_t) __asm__("mlock");
PRELOAD_API int export_mlock2(const void *, size_t, unsigned) __asm__("mlock2");
PRELOAD_API int export_munlock(const void *, size_t) __asm__("munlock");
PRELOAD_API int export_mlockall(int) __asm__("mlockall");

/* As a system call returns: 0, or -1 with errno. */
static int to_errno(int rc)
{
	if (!rc)
		return 0;
	errno = -rc;
	return -1;
}

/* ---- the kernel's ---- */

void *plain_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, addr, bytes, prot, flags, fd, offset);
}

int plain_munmap(void *addr, size_t bytes)
{
	return (int)syscall(SYS_munmap, addr, bytes);
}

static int plain_madvise(void *addr, size_t bytes, int advice)
{
	return (int)syscall(SYS_madvise, addr, bytes, advice);
}

/* What this library, jemalloc and libgannet call: -Wl,--wrap. */
void *wrap_mmap(void *, size_t, int, int, int, off_t) __asm__("__wrap_mmap");
void *wrap_mmap64(void *, size_t, int, int, int, off_t) __asm__("__wrap_mmap64");
int wrap_munmap(void *, size_t) __asm__("__wrap_munmap");
int wrap_madvise(void *, size_t, int) __asm__("__wrap_madvise");

void *wrap_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return plain_mmap(addr, bytes, prot, flags, fd, offset);
}

void *wrap_mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return plain_mmap(addr, bytes, prot, flags, fd, offset);
}

int wrap_munmap(void *addr, size_t bytes)
{
	return plain_munmap(addr, bytes);
}

int wrap_madvise(void *addr, size_t bytes, int advice)
{
	return plain_madvise(addr, bytes, advice);
}

/* ---- mmap ---- */

/* Anonymous memory of the program's own, of the usual kind. */
static bool mapping_is_usual(int flags)
{
	const int never = MAP_SHARED | MAP_GROWSDOWN | MAP_HUGETLB | MAP_LOCKED | MAP_32BIT;

	return (flags & (MAP_PRIVATE | MAP_ANONYMOUS)) == (MAP_PRIVATE | MAP_ANONYMOUS) &&
	       !(flags & never);
}

static bool mapping_is_heap(size_t bytes, int prot, int flags)
{
	return bytes >= PAGED_FROM && prot == (PROT_READ | PROT_WRITE) && mapping_is_usual(flags) &&
	       !(flags & MAP_STACK);
}

static void *mapping_full(void)
{
	preload_deny(PRELOAD_DENIED_MEMORY);
	errno = ENOMEM;
	return MAP_FAILED;
}

/*
 * At an address in paged memory. Fresh memory is possible, and how it may be used; another kind of
 * mapping is not, because the pager unmaps ranges of its own.
 */
static void *mapping_fixed(char *addr, size_t bytes, int prot, int flags)
{
	char *from;
	size_t part;

	if (flags & MAP_FIXED_NOREPLACE) {
		errno = EEXIST;
		return MAP_FAILED;
	}
	if (!mapping_is_usual(flags) || !paged_part(addr, bytes, &from, &part) || from != addr ||
	    part < bytes || paged_advise(from, part, GN_PAGER_DONT_NEED)) {
		preload_deny(PRELOAD_DENIED_FIXED);
		errno = EINVAL;
		return MAP_FAILED;
	}
	return mprotect(from, part, prot) ? MAP_FAILED : addr;
}

static void *paged_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	const bool fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
	size_t part;
	char *from;
	void *ptr;

	if (fixed && paged_part(addr, bytes, &from, &part))
		return mapping_fixed(addr, bytes, prot, flags);
	if (fixed || !mapping_is_heap(bytes, prot, flags) || !preload_paged)
		return plain_mmap(addr, bytes, prot, flags, fd, offset);
	ptr = paged_map(bytes, GN_PAGER_PAGE);
	return ptr ? ptr : mapping_full();
}

void *export_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return paged_mmap(addr, bytes, prot, flags, fd, offset);
}

void *export_mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return paged_mmap(addr, bytes, prot, flags, fd, offset);
}

/* ---- munmap, mremap ---- */

/* Calls plain for what is before and after the paged part of a range. */
static int on_plain_ends(char *addr, size_t bytes, const char *from, size_t part,
			 int (*plain)(void *addr, size_t bytes))
{
	const char *end = addr + bytes, *part_end = from + part;

	if (from > addr && plain(addr, (size_t)(from - addr)))
		return -1;
	return end > part_end ? plain((char *)part_end, (size_t)(end - part_end)) : 0;
}

int export_munmap(void *addr, size_t bytes)
{
	char *from;
	size_t part;

	if ((uintptr_t)addr % GN_PAGER_PAGE || !paged_part(addr, bytes, &from, &part))
		return plain_munmap(addr, bytes);
	if (to_errno(paged_unmap(from, part)))
		return -1;
	return on_plain_ends(addr, bytes, from, part, plain_munmap);
}

static size_t whole_pages(size_t bytes)
{
	return (bytes + GN_PAGER_PAGE - 1) & ~((size_t)GN_PAGER_PAGE - 1);
}

static void *paged_remap(char *addr, size_t bytes, size_t new_bytes, int flags)
{
	void *ptr;

	if (flags & ~MREMAP_MAYMOVE || !bytes || !new_bytes) {
		preload_deny(PRELOAD_DENIED_FIXED);
		errno = EINVAL;
		return MAP_FAILED;
	}
	if ((uintptr_t)addr % GN_PAGER_PAGE || new_bytes > SIZE_MAX - GN_PAGER_PAGE) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	bytes = whole_pages(bytes);
	new_bytes = whole_pages(new_bytes);
	if (new_bytes < bytes)
		return to_errno(paged_unmap(addr + new_bytes, bytes - new_bytes)) ? MAP_FAILED :
										    addr;
	if (new_bytes == bytes)
		return addr;
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	/* It is copied: all of it is needed soon, and must be mapped. */
	if (paged_advise(addr, bytes, GN_PAGER_WILL_NEED)) {
		errno = EFAULT;
		return MAP_FAILED;
	}
	ptr = paged_map(new_bytes, GN_PAGER_PAGE);
	if (!ptr)
		return mapping_full();
	memcpy(ptr, addr, bytes);
	paged_unmap(addr, bytes);
	return ptr;
}

void *export_mremap(void *addr, size_t bytes, size_t new_bytes, int flags, ...)
{
	char *from, *to = NULL;
	size_t part;
	va_list args;

	va_start(args, flags);
	if (flags & MREMAP_FIXED)
		to = va_arg(args, char *);
	va_end(args);
	if (paged_part(addr, bytes ? bytes : 1, &from, &part))
		return paged_remap(addr, bytes, new_bytes, flags);
	if (to && paged_part(to, new_bytes, &from, &part))
		return paged_remap(addr, bytes, new_bytes, flags);
	return (void *)syscall(SYS_mremap, addr, bytes, new_bytes, flags, to);
}

/* ---- madvise ---- */

static int paged_madvise(void *from, size_t part, int advice)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_FREE:
		return paged_advise(from, part, GN_PAGER_DONT_NEED);
	case MADV_WILLNEED:
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
		return paged_advise(from, part, GN_PAGER_WILL_NEED);
	case MADV_COLD:
	case MADV_PAGEOUT:
		return paged_advise(from, part, GN_PAGER_COLD);
	case MADV_NORMAL:
	case MADV_RANDOM:
	case MADV_SEQUENTIAL:
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case MADV_MERGEABLE:
	case MADV_UNMERGEABLE:
	case MADV_DODUMP:
	case MADV_DONTDUMP:
	case MADV_DONTFORK:
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
		return 0;
	default:
		return -EINVAL;
	}
}

/* A part of the range is not mapped: the others are advised all the same, as by the kernel. */
static int paged_madvise_pages(char *from, size_t part, int advice)
{
	bool any = false;

	for (size_t at = 0; at < part; at += GN_PAGER_PAGE) {
		const int rc = paged_madvise(from + at, GN_PAGER_PAGE, advice);

		if (rc && rc != -EINVAL)
			return rc;
		any |= !rc;
	}
	return any ? -ENOMEM : -EINVAL;
}

int export_madvise(void *addr, size_t bytes, int advice)
{
	char *from, *end = (char *)addr + bytes;
	size_t part;
	int rc;

	if ((uintptr_t)addr % GN_PAGER_PAGE || !bytes || !paged_part(addr, bytes, &from, &part))
		return plain_madvise(addr, bytes, advice);
	if (from > (char *)addr && plain_madvise(addr, (size_t)(from - (char *)addr), advice))
		return -1;
	rc = paged_madvise(from, part, advice);
	if (rc == -EINVAL)
		rc = paged_madvise_pages(from, part, advice);
	if (!rc && end > from + part)
		return plain_madvise(from + part, (size_t)(end - (from + part)), advice);
	return to_errno(rc);
}

/* ---- mlock ---- */

static int plain_mlock(void *addr, size_t bytes)
{
	return (int)syscall(SYS_mlock, addr, bytes);
}

static int plain_munlock(void *addr, size_t bytes)
{
	return (int)syscall(SYS_munlock, addr, bytes);
}

/* Pages that are pinned are in memory that may still be swapped by the kernel. */
int export_mlock(const void *addr, size_t bytes)
{
	char *from;
	size_t part;

	if (!bytes || !paged_part(addr, bytes, &from, &part))
		return plain_mlock((void *)addr, bytes);
	if (to_errno(paged_advise(from, part, GN_PAGER_PIN)))
		return -1;
	return on_plain_ends((char *)addr, bytes, from, part, plain_mlock);
}

int export_mlock2(const void *addr, size_t bytes, unsigned flags)
{
	char *from;
	size_t part;

	if (!bytes || !paged_part(addr, bytes, &from, &part))
		return (int)syscall(SYS_mlock2, addr, bytes, flags);
	return export_mlock(addr, bytes);
}

int export_munlock(const void *addr, size_t bytes)
{
	char *from;
	size_t part;

	if (!bytes || !paged_part(addr, bytes, &from, &part))
		return plain_munlock((void *)addr, bytes);
	if (to_errno(paged_advise(from, part, GN_PAGER_UNPIN)))
		return -1;
	return on_plain_ends((char *)addr, bytes, from, part, plain_munlock);
}

/* It would bring in all paged memory, and keep the pager from evicting any. */
int export_mlockall(int flags)
{
	if (!paged_ready())
		return (int)syscall(SYS_mlockall, flags);
	preload_deny(PRELOAD_DENIED_MLOCKALL);
	errno = EPERM;
	return -1;
}
