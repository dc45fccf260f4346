/* SPDX-License-Identifier: MIT */
/*
 * gannet/pager.h - memory of any size, of which a part is local and the rest on a volume.
 *
 *     gn_pager_create()   a pager on a volume, with a limit of local memory
 *     gn_pager_map()      memory: use it as that of mmap()
 *     gn_pager_advise()   will-need, cold, dont-need, pin
 *
 * A thread of the pager answers the page faults of the process (userfaultfd(2)): it reads the page
 * from the volume and maps it. Pages that were not used for long are unmapped, written to the
 * volume if they changed, and freed.
 *
 * A page whose last copy on the donors is lost raises SIGBUS in the thread that touches it; a
 * system call that touches it fails with EFAULT. Other pages are not affected.
 *
 * Needs Linux 6.1 or later, and the right to handle faults of system calls: root or CAP_SYS_PTRACE,
 * or vm.unprivileged_userfaultfd=1, or access to /dev/userfaultfd. `gannet doctor` says what is
 * missing.
 *
 * Limits. fork(): a child does not have the memory of a pager. A device that writes into the memory
 * by itself (O_DIRECT, io_uring's registered buffers, a registered memory region) is not noticed:
 * pin such ranges first. mlockall() brings all of it in.
 */
#ifndef GANNET_PAGER_H
#define GANNET_PAGER_H

#include <gannet/vol.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GN_PAGER_PAGE	     4096u
#define GN_PAGER_LOCAL_MIN   (4u << 20)
#define GN_PAGER_NO_PREFETCH UINT32_MAX
#define GN_PAGER_WINDOW_MAX  64u

struct gn_pager;

struct gn_pager_opts {
	size_t size;	      /* sizeof(struct gn_pager_opts) */
	uint64_t local_bytes; /* resident at most, at least GN_PAGER_LOCAL_MIN */
	/* Pages read ahead of a trend, at most GN_PAGER_WINDOW_MAX; 0: 32; GN_PAGER_NO_PREFETCH. */
	uint32_t prefetch;
	/*
	 * Notice writes by faults, as on kernels before 6.7, although this one can tell written
	 * pages by itself.
	 */
	bool write_faults;
	bool stay; /* the handler does not move to the core of the faulting thread */
};

/*
 * The volume belongs to the pager until gn_pager_destroy(): all its bytes are used, and nobody else
 * reads or writes it. -EPERM: a right is missing; gn_error() says which, and how to give it.
 * -EBUSY: the volume has a pager already. -EOPNOTSUPP: the kernel is too old. -EINVAL, -ENOMEM.
 */
GN_API int gn_pager_create(struct gn_vol *vol, const struct gn_pager_opts *opts,
			   struct gn_pager **out);
/* Unmaps all its memory. No other thread uses it. pager may be NULL. */
GN_API int gn_pager_destroy(struct gn_pager *pager);

/*
 * Memory of zeros; bytes are rounded up to whole pages. -ENOMEM: the volume has no range of this
 * size left.
 */
GN_API int gn_pager_map(struct gn_pager *pager, size_t bytes, void **out);
/* Whole pages of memory of gn_pager_map(), of one call or of several. -EINVAL: others. */
GN_API int gn_pager_unmap(struct gn_pager *pager, void *addr, size_t bytes);

enum gn_pager_advice {
	GN_PAGER_WILL_NEED, /* read it now; does not wait for it */
	GN_PAGER_COLD,	    /* not used soon: evict it first */
	GN_PAGER_DONT_NEED, /* forget the bytes: reads as zeros afterwards */
	/*
	 * Keep it local: returns when all of it is. -ENOMEM: more than half of local_bytes would be
	 * pinned. -EIO: a page is lost, or the kernel does not map it.
	 */
	GN_PAGER_PIN,
	GN_PAGER_UNPIN,
	GN_PAGER_ADVICES
};

/* Whole pages of memory of gn_pager_map(). */
GN_API int gn_pager_advise(struct gn_pager *pager, void *addr, size_t bytes,
			   enum gn_pager_advice advice);

struct gn_pager_stats {
	size_t size; /* sizeof(struct gn_pager_stats) */
	uint64_t local_bytes;		   /* the limit */
	uint64_t mapped_bytes, free_bytes; /* by gn_pager_map(); that it has left */
	/* Pages that are local now; of these unmapped and kept as a second chance; pinned. */
	uint64_t resident, cached, pinned;
	uint64_t faults;	/* that threads waited for */
	uint64_t faults_fresh;	/* … of memory that was never written */
	uint64_t faults_remote; /* … that had to wait for the volume */
	uint64_t faults_cached; /* … whose page was still local */
	uint64_t faults_write;	/* … only to notice a write */
	uint64_t zeroed;	/* pages of zeros that were mapped */
	uint64_t pages_in, pages_out; /* read from and written to the volume */
	uint64_t reads, writes;	      /* requests for these */
	uint64_t dropped;	      /* pages freed without a write: unchanged, or zeros */
	uint64_t prefetched, prefetch_used, prefetch_wasted; /* pages */
	uint64_t stalls;  /* times that a fault waited for free local memory */
	uint64_t lost;	  /* pages that raised SIGBUS */
	uint64_t moves;	  /* of the handler to another core */
	uint64_t fault_ns; /* the sum over faults: from the event to the wake-up */
};

/* Any thread. The numbers may be taken at slightly different times. */
GN_API int gn_pager_query(struct gn_pager *pager, struct gn_pager_stats *out);

/*
 * Whether a pager can work here: 0, -EPERM, -EOPNOTSUPP. gn_error() says what is missing and how to
 * give it.
 */
GN_API int gn_pager_probe(void);

#ifdef __cplusplus
}
#endif

#endif
