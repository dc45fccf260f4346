/* SPDX-License-Identifier: MIT */
/*
 * The page tables of a pager: pages in a memfd, mapped into an address range whose faults
 * userfaultfd reports. The handler thread makes all calls, except where a comment says otherwise.
 */
#ifndef GN_PAGER_UFFD_H
#define GN_PAGER_UFFD_H

#include <sys/types.h>

#include "pager/core.h"

struct uffd {
	int fd, file, pagemap;
	int empty; /* a file without pages: mapped over a lost page; -1: the kernel has POISON */
	uint8_t *base; /* of the pages */
	uint64_t pages;
	uint8_t *doorbell;  /* a page that no core knows: a fault there is a command */
	bool write_faults;  /* each first write is a fault; otherwise the kernel marks them */
	bool map_protected; /* UFFDIO_CONTINUE can write-protect */
	bool nowait; /* preadv2(RWF_NOWAIT) works (6.10); otherwise the descriptor never blocks */
	/* write_faults: a bit for each page: changed or unknown. NULL otherwise. */
	uint64_t *changed;
};

struct uffd_event {
	uint8_t *addr;
	pid_t thread;
	bool write; /* only to notice a write */
	bool writes; /* a write is waiting, at a page that is not mapped */
};

#define UFFD_EVENTS 16u

/* Any thread. -EPERM, -EOPNOTSUPP: gn_error() says what is missing. */
int uffd_open(struct uffd *u, uint64_t pages, bool write_faults);
void uffd_close(struct uffd *u);
int uffd_probe(void);

extern const struct pager_ops uffd_ops; /* arg: struct uffd */

/* Pages become memory that the program may touch, or memory whose touch is SIGSEGV. */
int uffd_map_range(struct uffd *u, uint64_t page, uint64_t n);
int uffd_unmap_range(struct uffd *u, uint64_t page, uint64_t n);

/* Returns the number of events, at most UFFD_EVENTS; 0 without wait if there are none; -errno. */
int uffd_read(struct uffd *u, struct uffd_event *events, bool wait);
/* The thread that faulted at a page that is mapped write-protected may write. */
int uffd_allow_write(struct uffd *u, uint64_t page);
/* Lets the thread continue that touched the doorbell. Another thread arms it again. */
int uffd_answer(struct uffd *u);
void uffd_arm(struct uffd *u);

#endif
