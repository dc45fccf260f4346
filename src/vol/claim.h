/* SPDX-License-Identifier: MIT */
/* For layers that use a volume as a whole: at most one of them has it. */
#ifndef GN_VOL_CLAIM_H
#define GN_VOL_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

struct gn_vol;

/* False: somebody else has it. */
bool vol_claim(struct gn_vol *vol);
void vol_unclaim(struct gn_vol *vol);

/*
 * Whether all donors with a copy of the byte at offset are connected. Otherwise a WRITE there ends
 * when they are again, or are given up.
 */
bool vol_can_write(struct gn_vol *vol, uint64_t offset);

#endif
