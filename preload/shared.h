/* SPDX-License-Identifier: MIT */
/*
 * Between `gannet pager run` and the library that it loads into the program: the options in the
 * environment, and the state and statistics in a page that both map.
 */
#ifndef GN_PRELOAD_SHARED_H
#define GN_PRELOAD_SHARED_H

#include <stdatomic.h>
#include <sys/types.h>

#include <gannet/pager.h>

#define PRELOAD_LIBRARY "libgannet-pager.so"
/*
 * NAME=VALUE, a line each: local, volume, copies, headroom, lost-us, prefetch, batching, poll,
 * window, owner, donor (several), monitor, children (1: programs that it starts inherit it), shared
 * (the file of struct preload_shared), pid (other processes use only its slots; 0: there are none).
 */
#define PRELOAD_ENV	  "GANNET_PAGER"
#define PRELOAD_EXIT	  125 /* of a program that was not started: there is no pager */
#define PRELOAD_WHY	  512u
#define PRELOAD_SAMPLE_MS 100u /* between two samples of the statistics */
#define PRELOAD_SLOTS	  64u  /* programs at a time whose memory the command returns */
#define PRELOAD_PATH	  256u

enum preload_state {
	PRELOAD_ABSENT, /* the library was not loaded */
	PRELOAD_STARTS, /* connects to the donors */
	PRELOAD_READY,
	PRELOAD_FAILED /* why says it */
};

/* What the program was denied, as bits of preload_shared.denied. */
enum preload_denied {
	PRELOAD_DENIED_MEMORY,	 /* malloc() or mmap(): the volume is full */
	PRELOAD_DENIED_FORK,	 /* fork(), daemon(), forkpty() */
	PRELOAD_DENIED_MLOCKALL, /* mlockall() */
	PRELOAD_DENIED_FIXED,	 /* mmap() or mremap() to an address in paged memory */
	PRELOAD_DENIED_ALL
};

struct preload_sample {
	struct gn_pager_stats pager;
	struct gn_vol_stats vol;
	struct gn_io_stats io;
};

/*
 * The sessions of one program, for the command to end: the program itself may be killed, or execute
 * another one. As long as it lives it holds a lock on the file, an F_OFD_SETLK of the byte with the
 * slot's number. The command locks the slot while it ends the sessions, and then sets n to 0.
 */
struct preload_slot {
	struct gn_vol_session sessions[GN_VOL_DONORS_MAX];
	_Atomic uint32_t n; /* 0: free */
};

struct preload_shared {
	uint64_t size; /* sizeof(struct preload_shared), set by the command */
	pid_t pid;     /* of the command */
	_Atomic uint32_t state;
	_Atomic uint32_t denied;
	_Atomic uint64_t granted, wanted; /* bytes, while it starts */
	_Atomic bool orphans;		  /* it waits for memory of programs that have ended */
	char why[PRELOAD_WHY];
	/* The program executes another one, whose library, if it has one, clears this. */
	_Atomic bool executed;
	char executed_path[PRELOAD_PATH]; /* as much of it as fits */
	/* The statistics: odd while they are being written. */
	_Atomic uint32_t version;
	struct preload_sample sample;
	struct preload_slot slots[PRELOAD_SLOTS]; /* also of the program's children */
};

#endif
