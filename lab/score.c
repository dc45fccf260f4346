/* SPDX-License-Identifier: MIT */
/* Counting hits. */
#include "score.h"

#include <math.h>

void score_add(struct score *s, const struct paper_line *line, const struct figure *figure)
{
	const bool failed = figure->status == FIGURE_FAILED;
	const double error_pct = failed ? INFINITY : fabs(figure->error_pct);

	if (figure->status == FIGURE_NO) {
		s->no++;
	} else if (figure->status == FIGURE_WAITING) {
		s->waiting++;
	} else if (line->op == PAPER_EQUAL) {
		s->equal++;
		s->within += !failed && figure->hit;
		if (!(error_pct <= s->worst_pct))
			s->worst_pct = error_pct;
	} else {
		s->others++;
		s->right += !failed && figure->hit;
	}
}

static bool within(const struct score *s)
{
	return s->within * 100 >= s->equal * SCORE_WITHIN_PCT;
}

static bool none_far(const struct score *s)
{
	return s->worst_pct <= SCORE_WORST_PCT;
}

static bool right(const struct score *s)
{
	return s->right * 100 >= s->others * SCORE_RIGHT_PCT;
}

bool score_reached(const struct score *s)
{
	return within(s) && none_far(s) && right(s);
}

static const char *verdict(bool good)
{
	return good ? "reached" : "missed";
}

void score_print(FILE *f, const char *layer, const struct score *s)
{
	fprintf(f, "# %s, simulated: %u of %u \"=\" lines within their tolerance (%u %%: %s)\n",
		layer, s->within, s->equal, SCORE_WITHIN_PCT, verdict(within(s)));
	fprintf(f, "# %s, simulated: largest error of them %.1f %% (%g %%: %s)\n", layer,
		s->worst_pct, SCORE_WORST_PCT, verdict(none_far(s)));
	fprintf(f, "# %s, simulated: %u of %u other lines right (%u %%: %s)\n", layer, s->right,
		s->others, SCORE_RIGHT_PCT, verdict(right(s)));
	fprintf(f, "# %s: %u lines cannot be run, %u wait for a later layer\n", layer, s->no,
		s->waiting);
}

void score_json(FILE *f, const char *layer, const struct score *s)
{
	fprintf(f, "{\"score\":\"%s\",\"equal\":%u,\"within\":%u,", layer, s->equal, s->within);
	if (isfinite(s->worst_pct))
		fprintf(f, "\"worst_pct\":%.9g,", s->worst_pct);
	else
		fputs("\"worst_pct\":null,", f);
	fprintf(f, "\"others\":%u,\"right\":%u,\"no\":%u,\"waiting\":%u,\"reached\":%s}\n",
		s->others, s->right, s->no, s->waiting, score_reached(s) ? "true" : "false");
}
