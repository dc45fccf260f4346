/* SPDX-License-Identifier: MIT */
/* What the fit of the profiles left behind: free parameters, lines used, leave-one-out errors. */
#include "paper.h"

#include <stdio.h>
#include <string.h>

int fit_parse(struct fit_line *fits, const char *text, size_t len, struct lab_error *error)
{
	const char *const end = text + len;
	unsigned n = 0;

	for (unsigned number = 1; text < end; number++) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		const size_t chars = (size_t)((stop ? stop : end) - text);
		struct fit_line *fit = &fits[n];
		char line[160], more;

		if (chars >= sizeof(line) && *text != '#')
			return lab_error(error, "fit line %u: over %zu characters", number,
					 sizeof(line) - 1);
		if (chars && *text != '#' && strncmp(text, "profile\t", 8)) {
			memcpy(line, text, chars);
			line[chars] = '\0';
			if (n == FIT_LINES_MAX)
				return lab_error(error, "fit line %u: more than %u profiles",
						 number, FIT_LINES_MAX);
			if (sscanf(line, "%31[^\t]\t%u\t%u\t%lf\t%lf%c", fit->profile,
				   &fit->parameters, &fit->lines, &fit->loo_median_pct,
				   &fit->loo_max_pct, &more) != 5)
				return lab_error(error,
						 "fit line %u is not profile, parameters, "
						 "lines, loo_median_pct, loo_max_pct",
						 number);
			n++;
		}
		text += chars + 1;
	}
	return (int)n;
}
