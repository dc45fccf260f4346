/* SPDX-License-Identifier: MIT */
/*
 * Memory for registration: anonymous pages, optionally huge. Any mapped memory can be registered,
 * so wrapped memory needs nothing.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* An explicit size: with another default size, munmap() would need that one. */
#define HUGE_LOG   21
#define HUGE_BYTES ((size_t)1 << HUGE_LOG)
#define HUGE_FLAGS (MAP_HUGETLB | HUGE_LOG << MAP_HUGE_SHIFT)

int vrb_mem_alloc(struct gn_mem *base)
{
	struct vrb_mem *mem = container_of(base, struct vrb_mem, base);
	const bool huge = base->rights & GN_MEM_HUGE;
	const size_t page = huge ? HUGE_BYTES : (size_t)sysconf(_SC_PAGESIZE);
	void *addr;

	mem->mapped_bytes = (base->size + page - 1) & ~(page - 1);
	addr = mmap(NULL, mem->mapped_bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | (huge ? HUGE_FLAGS : 0), -1, 0);
	if (addr != MAP_FAILED) {
		base->addr = addr;
		return 0;
	}
	if (huge)
		gn_fail_log(0,
			    "verbs: no %zu huge pages are free; reserve them with `sysctl "
			    "vm.nr_hugepages=N`",
			    mem->mapped_bytes / HUGE_BYTES);
	return -ENOMEM;
}

void vrb_mem_fini(struct gn_mem *base)
{
	if (!base->foreign)
		munmap(base->addr, container_of(base, struct vrb_mem, base)->mapped_bytes);
}
