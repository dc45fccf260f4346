/* SPDX-License-Identifier: MIT */
/* A fabric of shared memory for a test, with an address that nobody else has. */
#ifndef GN_TESTS_UNIT_SHM_H
#define GN_TESTS_UNIT_SHM_H

#include "gannet/fabric.h"
#include "unit.h"

#define UNIT_ADDR 64u

static inline struct gn_fabric *unit_shm(char addr[UNIT_ADDR])
{
	struct gn_fabric *fabric;

	snprintf(addr, UNIT_ADDR, "shm:test-%llx", (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	return fabric;
}

#endif
