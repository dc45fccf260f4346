/* SPDX-License-Identifier: MIT */
/* Memory of the pager, for the heap and for mappings; and which addresses are of the pager. */
#include <errno.h>
#include <stdatomic.h>

#include "preload.h"

static struct gn_pager *pager;
static atomic_bool ready;
/*
 * The lowest and the highest address that was mapped. All memory of a pager is in one range of
 * addresses that nobody else uses, so whatever is between the two belongs to the pager.
 */
static atomic_uintptr_t lowest = UINTPTR_MAX, highest;

void paged_init(struct gn_pager *p)
{
	pager = p;
	atomic_store_explicit(&ready, true, memory_order_release); /* pairs with paged_ready() */
}

bool paged_ready(void)
{
	return atomic_load_explicit(&ready, memory_order_acquire);
}

static void paged_extend(uintptr_t from, uintptr_t to)
{
	uintptr_t old = atomic_load(&lowest);

	while (from < old && !atomic_compare_exchange_weak(&lowest, &old, from))
		;
	old = atomic_load(&highest);
	while (to > old && !atomic_compare_exchange_weak(&highest, &old, to))
		;
}

static uintptr_t round_up(uintptr_t n, size_t to)
{
	return (n + to - 1) & ~((uintptr_t)to - 1);
}

void *paged_map(size_t bytes, size_t align)
{
	const size_t more = align > GN_PAGER_PAGE ? align - GN_PAGER_PAGE : 0;
	uintptr_t from, at;
	void *ptr;
	int rc;

	if (!bytes || bytes > SIZE_MAX - more - GN_PAGER_PAGE)
		return NULL;
	bytes = round_up(bytes, GN_PAGER_PAGE);
	rc = gn_pager_map(pager, bytes + more, &ptr);
	if (rc)
		return NULL;
	from = (uintptr_t)ptr;
	at = round_up(from, align);
	paged_extend(from, from + bytes + more);
	if (at > from)
		gn_pager_unmap(pager, ptr, at - from);
	if (from + more > at)
		gn_pager_unmap(pager, (void *)(at + bytes), from + more - at);
	return (void *)at;
}

/* munmap() succeeds where nothing is mapped, gn_pager_unmap() does not. */
static int paged_unmap_pages(char *from, const char *to)
{
	for (; from < to; from += GN_PAGER_PAGE) {
		const int rc = gn_pager_unmap(pager, from, GN_PAGER_PAGE);

		if (rc && rc != -EINVAL)
			return rc;
	}
	return 0;
}

int paged_unmap(void *addr, size_t bytes)
{
	const int rc = gn_pager_unmap(pager, addr, bytes);

	return rc == -EINVAL ? paged_unmap_pages(addr, (char *)addr + bytes) : rc;
}

int paged_advise(void *addr, size_t bytes, enum gn_pager_advice advice)
{
	return gn_pager_advise(pager, addr, bytes, advice);
}

bool paged_part(const void *addr, size_t bytes, char **from, size_t *part_bytes)
{
	const uintptr_t low = atomic_load_explicit(&lowest, memory_order_relaxed);
	const uintptr_t high = atomic_load_explicit(&highest, memory_order_relaxed);
	uintptr_t at = (uintptr_t)addr & ~((uintptr_t)GN_PAGER_PAGE - 1);
	uintptr_t end = (uintptr_t)addr + bytes;

	if (end < (uintptr_t)addr || end <= low || at >= high)
		return false;
	end = round_up(end, GN_PAGER_PAGE);
	at = at < low ? low : at;
	end = end > high ? high : end;
	*from = (char *)at;
	*part_bytes = end - at;
	return end > at;
}
