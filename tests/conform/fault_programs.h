/* SPDX-License-Identifier: MIT */
/* fault_programs.h - the two programs that case 77 lets faults happen to, and what they report. */
#ifndef CONFORM_FAULT_PROGRAMS_H
#define CONFORM_FAULT_PROGRAMS_H

#include "conform.h"

/* What a program has done; both have all of their bits when nothing went wrong. */
enum point_done {
	POINT_CONNECTED = 1 << 0,
	POINT_WROTE = 1 << 1,
	POINT_READ = 1 << 2,
	POINT_SENT = 1 << 3,
	POINT_HEARD = 1 << 4,
	POINT_ADDED = 1 << 5,
	POINT_DATAGRAMS = 1 << 6,
	POINT_LEFT = 1 << 7, /* saw the end of the connection */
};

/* The programs write it directly, as no program of a node otherwise may. */
struct point {
	bool crashes; /* in: a node does */
	unsigned client, server;
	uint64_t caps;
	char why[CF_WHY_MAX]; /* the first thing that must not be */

	/* faults.c: of the run */
	uint64_t end_ns, count;
};

gn_node_main point_server, point_client;

bool point_finished(const struct point *point);

#endif
