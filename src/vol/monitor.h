/* SPDX-License-Identifier: MIT */
/*
 * The call of a volume's monitor: its request is empty, its result is the state of the volume.
 * Integers are little-endian.
 */
#ifndef GN_VOL_MONITOR_H
#define GN_VOL_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gannet/vol.h"

#define VOL_STATUS_VERSION 1u

enum vol_method { VOL_STATUS = 1 };

#define VOL_STATUS_WORDS 27u /* of struct gn_vol_stats: monitor.c has their order */

struct vol_status_donor {
	char addr[GN_VOL_ADDR]; /* text that ends with NULs */
	uint32_t state, reserved;
	uint64_t copies, spare, free_bytes, lost;
};

struct vol_status {
	uint32_t version;
	uint32_t n_donors;
	uint32_t copies;
	int32_t backup_error;
	uint64_t words[VOL_STATUS_WORDS];
	struct vol_status_donor donors[];
};

#define VOL_STATUS_MAX \
	(sizeof(struct vol_status) + GN_VOL_DONORS_MAX * sizeof(struct vol_status_donor))

_Static_assert(sizeof(struct vol_status_donor) == 168, "wire format");
_Static_assert(offsetof(struct vol_status_donor, copies) == 136, "wire format");
_Static_assert(sizeof(struct vol_status) == 16 + 8 * VOL_STATUS_WORDS, "wire format");
_Static_assert(offsetof(struct vol_status, donors) == sizeof(struct vol_status), "wire format");
_Static_assert(VOL_STATUS_MAX <= 4096 - 256, "the state fits a slot of rpc");

/* Returns the bytes of the result, which buf has space for: VOL_STATUS_MAX. */
uint32_t vol_status_write(const struct gn_vol_stats *stats, void *buf);
/* False: it is not the state of a volume. */
bool vol_status_read(const void *buf, uint32_t len, struct gn_vol_stats *out);

#endif
