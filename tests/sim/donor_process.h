/* SPDX-License-Identifier: MIT */
/* A simulated process that is a donor for a while. */
#ifndef GN_TESTS_SIM_DONOR_PROCESS_H
#define GN_TESTS_SIM_DONOR_PROCESS_H

#include "gannet/donor.h"

struct donor_process {
	const char *addr;
	uint64_t slab;
	uint32_t slabs;
	uint64_t lease_us, take_back_us, reserve;
	uint64_t (*available)(void *arg);
	/* Whether it goes on; leaves: it ends before the run, and tells its clients. */
	bool (*serves)(void *arg, bool *leaves);
	void *arg;
	uint32_t drain_us;	      /* that it waits for its clients at most */
	struct gn_donor_server **out; /* the server while there is one; NULL: not needed */
};

/* 0 or -errno: there was no donor. */
int donor_serve(struct gn_fabric *fabric, const struct donor_process *process);

#endif
