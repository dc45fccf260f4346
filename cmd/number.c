/* SPDX-License-Identifier: MIT */
/*
 * Numbers on the command line.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"

#define SUFFIXES "KMG"

int cmd_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	const char *suffix;
	char *end;
	unsigned long long n;
	unsigned shift = 0;

	errno = 0;
	n = strtoull(text, &end, 10);
	suffix = *end ? strchr(SUFFIXES, *end) : NULL;
	if (suffix) {
		shift = 10 * (unsigned)(suffix - SUFFIXES + 1);
		end++;
	}
	if (*text < '0' || *text > '9' || *end || errno || n > max >> shift || n << shift < min)
		return cmd_usage_error("%s must be a number from %" PRIu64 " to %" PRIu64
				       ", not '%s'",
				       option, min, max, text);
	*out = n << shift;
	return 0;
}

int cmd_count(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
	uint64_t n;
	const int status = cmd_number(option, text, min, max, &n);

	if (!status)
		*out = (uint32_t)n;
	return status;
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
