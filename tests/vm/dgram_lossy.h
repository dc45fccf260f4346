/* SPDX-License-Identifier: MIT */
/*
 * What the two sides of dgram_lossy share: the settings of the link, and the methods. Guest 2 runs
 * the server (dgram_lossy_serve.c), guest 1 the cases (dgram_lossy.c).
 *
 * The server counts how often it has executed each key of COUNT. Control goes by calls, too: LINK
 * sets the netem of the server's side, REPORT says what happened since. They have a thread of the
 * server to themselves: tc takes a while, which would count as the round trip time of the load's.
 */
#ifndef GN_TESTS_VM_DGRAM_LOSSY_H
#define GN_TESTS_VM_DGRAM_LOSSY_H

#include <gannet/dgram.h>
#include <stdint.h>

#define KEYS	    65536u
#define LARGE_BYTES 20000u

enum { LOAD_THREAD, CONTROL_THREAD };

enum method {
	COUNT = 1, /* struct numbered, and any bytes behind it: the same with times, and the bytes */
	BACK,	   /* likewise, after a call to COUNT of the caller */
	LINK,	   /* uint32_t: enum link */
	REPORT,	   /* struct report */
	DIE,	   /* no answer: SIGKILL */
	END,
};

enum link { CLEAN, LOSS, BURSTS, DUPLICATES, REORDER, MIXED, HEAVY, CUT, N_LINKS };

struct numbered {
	uint32_t key;
	uint32_t times; /* that the key was executed, with this one */
};

/* Of the server, since the last LINK. */
struct report {
	uint64_t executed;   /* COUNT and BACK */
	uint64_t twice;	     /* … for a key that was executed before */
	uint64_t overtaken;  /* COUNT, after one with a higher key */
	uint64_t drops;	     /* by netem */
	uint64_t duplicates; /* requests that were not executed again */
	uint64_t sent;	     /* datagrams */
};

/* What a node has executed. */
struct counts {
	uint8_t times[KEYS];
	uint32_t highest;
	struct report report;
};

/* Puts the link's netem on eth0, whose counters then start at 0. Returns 0 if tc did. */
int link_set(enum link link);
/* Packets that the netem of eth0 has dropped; -1: there is none. */
int64_t link_drops(void);

unsigned count_handler(void *counts, struct gn_dgram_request *request);

int serve(const char *addr);

#endif
