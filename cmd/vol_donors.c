/* SPDX-License-Identifier: MIT */
/* The donors of a volume, as options: --donor, once for each. */
#include <inttypes.h>
#include <string.h>

#include "rpc_cmd.h"
#include "vol_cmd.h"

int vol_take_donor(const char *name, const char *text, void *to)
{
	struct vol_donors *donors = to;

	if (donors->n == GN_VOL_DONORS_MAX)
		return cmd_usage_error("%s: a volume has at most %u donors", name,
				       GN_VOL_DONORS_MAX);
	return cmd_take_addr(name, text, &donors->addr[donors->n++]);
}

int vol_donors_check(const struct vol_donors *donors, uint32_t copies)
{
	const char *const *addr = donors->addr;

	for (uint32_t i = 1; i < donors->n; i++) {
		if (strncmp(addr[i], addr[0], strcspn(addr[0], ":") + 1))
			return cmd_usage_error("--donor %s and --donor %s are of different "
					       "providers",
					       addr[0], addr[i]);
		for (uint32_t k = 0; k < i; k++)
			if (!strcmp(addr[i], addr[k]))
				return cmd_usage_error("--donor %s is given twice: copies must be "
						       "on different donors",
						       addr[i]);
	}
	if (copies > donors->n)
		return cmd_usage_error("%" PRIu32 " copies need %" PRIu32 " donors: give more "
				       "--donor, or --copies %" PRIu32,
				       copies, copies, donors->n);
	return 0;
}
