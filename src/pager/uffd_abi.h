/* SPDX-License-Identifier: MIT */
/*
 * What <linux/userfaultfd.h> and <linux/fs.h> of Linux 6.1 lack, by value, so that a library built
 * there uses what a newer kernel has.
 */
#ifndef GN_PAGER_UFFD_ABI_H
#define GN_PAGER_UFFD_ABI_H

#include <linux/userfaultfd.h>
#include <stdint.h>
#include <sys/ioctl.h>

#ifndef USERFAULTFD_IOC_NEW /* 6.1 */
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_FEATURE_POISON /* 6.6 */
#define UFFD_FEATURE_POISON (1 << 14)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC /* 6.7 */
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFDIO_CONTINUE_MODE_WP /* 6.4 */
#define UFFDIO_CONTINUE_MODE_WP ((__u64)1 << 1)
#endif
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 0x8
#endif
#ifndef MADV_DONTNEED_LOCKED /* 5.18 */
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MFD_NOEXEC_SEAL /* 6.3 */
#define MFD_NOEXEC_SEAL 0x8U
#endif

/* UFFDIO_POISON, 6.6 */
struct abi_poison {
	struct uffdio_range range;
	uint64_t mode;
	int64_t updated;
};
#define ABI_POISON _IOWR(0xAA, 0x08, struct abi_poison)

/* PAGEMAP_SCAN, 6.7 */
struct abi_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
struct abi_region {
	uint64_t start, end, categories;
};
#define ABI_SCAN    _IOWR('f', 16, struct abi_scan)
#define ABI_WRITTEN (1u << 1)
#define ABI_SWAPPED (1u << 4)

#endif
