/* SPDX-License-Identifier: MIT */
/*
 * Numbers on the command line.
 */
#include <errno.h>
#include <stdlib.h>

#include "cmd.h"

int cmd_count(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*end == 'K' || *end == 'M') {
		n = n > max ? n : n << (*end == 'K' ? 10 : 20);
		end++;
	}
	if (*text < '0' || *text > '9' || *end || errno || n < min || n > max)
		return cmd_usage_error("%s must be a number from %u to %u, not '%s'", option, min,
				       max, text);
	*out = (uint32_t)n;
	return 0;
}

int cmd_real(const char *option, const char *text, double min, double max, double *out)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end || !(value >= min && value <= max))
		return cmd_usage_error("%s must be a number from %g to %g, not '%s'", option, min,
				       max, text);
	*out = value;
	return 0;
}
