/* SPDX-License-Identifier: MIT */
/* The page: one HTML file that needs nothing else. */
#ifndef GN_REPORT_PAGE_H
#define GN_REPORT_PAGE_H

#include "results.h"

struct page_facts {
	const char *machine; /* where the page was made */
	const char *date;
	struct words files;
};

/* -EINVAL and error: the list of figures speaks of a line that is not there. */
int page_write(FILE *f, const struct results *results, const struct page_facts *facts,
	       struct lab_error *error);
/* One figure as a file of its own. */
int page_svg(FILE *f, const struct results *results, const struct chart *chart,
	     struct lab_error *error);

#endif
