/* SPDX-License-Identifier: MIT */
/*
 * A hostile client of an RPC server: it sends well-formed messages, and overwrites their lengths
 * and counts repeatedly while the server reads them. With the fault "preempt" the server finds
 * another value whenever it loads one for the second time. Whatever happens to its own requests,
 * the server and its other clients must not be affected.
 */
#ifndef GN_TESTS_SIM_SCRIBBLE_H
#define GN_TESTS_SIM_SCRIBBLE_H

#include <stdint.h>

#include "gannet/exec.h"
#include "gannet/fabric.h"

#include "seeds.h"

#define SCRIBBLE_BYTES 128u /* of its requests, at most */

struct scribbler {
	const char *addr;
	unsigned method;
	unsigned rounds; /* connections, one after the other */
	/* A well-formed request, a multiple of 8 bytes. Returns its length. */
	uint32_t (*body)(uint8_t *to);
	/* Words of it that are written over, from the first one on, and with what. */
	unsigned words;
	uint64_t (*word)(unsigned i);
};

/*
 * A client of the run, from beginning to end. Returns how many messages it wrote over; 0 when the
 * fabric cannot be opened or closed.
 */
uint64_t scribble(struct seeds *run, const char *fabric_name, const struct scribbler *s);

#endif
