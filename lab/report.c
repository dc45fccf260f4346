/* SPDX-License-Identifier: MIT */
/* Results as a table with tabs, as JSON, and summed up. */
#include "report.h"

#include <math.h>
#include <string.h>

#include <gannet/base.h>

#include "json.h"

/* ---- what a line is about ---- */

/*
 * How a key is said: the value between two texts, or for one value a text of its own; NULL leaves
 * the key out. Keys that are not here are said as key=value.
 */
static const struct {
	const char *key, *value, *before, *after;
} words[] = {
	{"op", NULL, "", ""},
	{"dir", "in", "in-bound", NULL},
	{"dir", "out", "out-bound", NULL},
	{"topology", "m1", "many to one", NULL},
	{"topology", "1m", "one to many", NULL},
	{"topology", "mm", "all to all", NULL},
	{"protocol", NULL, "", ""},
	{"transport", NULL, "", ""},
	{"size", NULL, "", " B"},
	{"value", NULL, "", " B"},
	{"key", NULL, NULL, NULL},
	{"signaled", "yes", NULL, NULL},
	{"inline", "yes", NULL, NULL},
	{"resp_threads", NULL, NULL, NULL},
	{"qps_per_resp_thread", NULL, NULL, NULL},
	{"client_machines", NULL, "client machines ", ""},
	{"clients_per_machine", NULL, "x ", ""},
	{"server_threads", NULL, "server threads ", ""},
	{"nodes", NULL, "", " nodes"},
	{"threads", NULL, "threads ", ""},
	{"of", NULL, NULL, NULL},
};

#define WORDS (sizeof(words) / sizeof(words[0]))

static size_t say(char *out, size_t size, const char *key, const char *value)
{
	size_t i = 0;

	while (i < WORDS &&
	       (strcmp(words[i].key, key) || (words[i].value && strcmp(words[i].value, value))))
		i++;
	if (i == WORDS)
		return (size_t)snprintf(out, size, ", %s=%s", key, value);
	if (!words[i].before)
		return 0;
	if (words[i].value)
		return (size_t)snprintf(out, size, ", %s", words[i].before);
	return (size_t)snprintf(out, size, ", %s%s%s", words[i].before, value, words[i].after);
}

void report_what(const struct paper_line *line, char out[WHAT_MAX])
{
	const char *of = config_get(&line->config, "of");
	size_t at = (size_t)snprintf(out, WHAT_MAX, "%s %s%s%s%s", line->profile, line->metric,
				     of ? " (" : "", of ? of : "", of ? ")" : "");

	for (unsigned i = 0; i < line->config.n && at < WHAT_MAX; i++)
		at += say(out + at, WHAT_MAX - at, line->config.pair[i].key,
			  line->config.pair[i].value);
}

/* ---- for people ---- */

void report_value(FILE *f, const struct figure *figure)
{
	if (figure->status != FIGURE_MEASURED)
		fputs("-", f);
	else if (figure->n_list)
		for (unsigned i = 0; i < figure->n_list; i++)
			fprintf(f, "%s%.4g", i ? "," : "", figure->list[i]);
	else if (isfinite(figure->simulated))
		fprintf(f, "%.4g", figure->simulated);
	else
		fputs("never", f);
}

void report_head(FILE *f)
{
	fputs("id\twhat\tpaper\tsimulated\terror_%\thit|miss\tsource\n", f);
}

void report_row(FILE *f, const struct paper_line *line, const struct figure *figure)
{
	const bool equal = line->op == PAPER_EQUAL;
	char what[WHAT_MAX];

	report_what(line, what);
	fprintf(f, "%s\t%s\t%s%s%s\t", line->id, what, equal ? "" : paper_op_text(line->op),
		equal ? "" : " ", line->value);
	report_value(f, figure);
	if (figure->status == FIGURE_MEASURED && equal)
		fprintf(f, "\t%+.1f", figure->error_pct);
	else
		fputs("\t-", f);
	if (figure->status == FIGURE_MEASURED)
		fprintf(f, "\t%s", figure->hit ? "hit" : "miss");
	else if (figure->reason[0])
		fprintf(f, "\t%s: %s", figure_status_text(figure->status), figure->reason);
	else
		fprintf(f, "\t%s", figure_status_text(figure->status));
	fprintf(f, "\t%s\n", line->source);
	fflush(f);
}

/* ---- JSON ---- */

/* The paper's value: a number, or the list of an order as strings. */
static void json_paper(FILE *f, const struct paper_line *line)
{
	const char *list = line->value;
	char item[CONFIG_VALUE_MAX];

	if (line->op != PAPER_ORDER) {
		json_put_number(f, "paper", line->number_value);
		return;
	}
	fputs("\"paper\":[", f);
	for (bool first = true; list_next(&list, item, sizeof(item)); first = false)
		fprintf(f, "%s\"%s\"", first ? "" : ",", item);
	fputs("],", f);
}

static void json_simulated(FILE *f, const char *key, const struct figure *figure)
{
	if (!figure->n_list) {
		json_put_number(f, key,
				figure->status == FIGURE_MEASURED ? figure->simulated : NAN);
		return;
	}
	fprintf(f, "\"%s\":[", key);
	for (unsigned i = 0; i < figure->n_list; i++)
		fprintf(f, "%s%.9g", i ? "," : "", figure->list[i]);
	fputs("],", f);
}

void report_json(FILE *f, const struct figure_env *env, const struct paper_line *line,
		 const struct figure *figure, const struct figure *beside)
{
	const bool measured = figure->status == FIGURE_MEASURED;
	char what[WHAT_MAX];

	report_what(line, what);
	fputc('{', f);
	json_put_text(f, "id", line->id);
	json_put_text(f, "kind", line->kind == 'C' ? "C" : "P");
	json_put_text(f, "layer", line->layer);
	json_put_text(f, "profile", line->profile);
	json_put_text(f, "preset", line->preset);
	json_put_text(f, "what", what);
	json_put_text(f, "unit", line->unit);
	json_put_text(f, "op", paper_op_text(line->op));
	json_paper(f, line);
	json_simulated(f, "simulated", figure);
	if (beside)
		json_simulated(f, "gannet_simulated", beside);
	json_put_number(f, "error_pct", measured ? figure->error_pct : NAN);
	json_put_number(f, "tol_pct", line->tol_pct);
	fprintf(f, "\"hit\":%s,", !measured ? "null" : figure->hit ? "true" : "false");
	json_put_text(f, "status", figure_status_text(figure->status));
	if (figure->reason[0])
		json_put_text(f, "reason", figure->reason);
	json_put_text(f, "source", line->source);
	json_put_count(f, "seed", env->seed);
	json_put_number(f, "effort", env->effort);
	json_put_text(f, "version", gn_version());
	fprintf(f, "\"seconds\":%.3f}\n", figure->seconds);
	fflush(f);
}

/* ---- summed up ---- */

/* How often a reason was given; 0 when an earlier line gave it. */
static unsigned count_reason(const struct figure *figures, const bool *done, unsigned n,
			     unsigned at)
{
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!done[i] || figures[i].status != FIGURE_NO ||
		    strcmp(figures[i].reason, figures[at].reason))
			continue;
		if (i < at)
			return 0;
		count++;
	}
	return count;
}

static void print_reasons(FILE *f, const struct figure *figures, const bool *done, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned count;

		if (!done[i] || figures[i].status != FIGURE_NO)
			continue;
		count = count_reason(figures, done, n, i);
		if (count)
			fprintf(f, "#   %u: %s\n", count, figures[i].reason);
	}
}

static void print_fits(FILE *f, const struct fit_line *fits, unsigned n)
{
	if (!n)
		fputs("# fit: no free parameters are recorded in data/fit.tsv\n", f);
	for (unsigned i = 0; i < n; i++)
		fprintf(f,
			"# fit of %s: %u free parameters, %u lines used, leave-one-out error "
			"median %.1f %%, largest %.1f %%\n",
			fits[i].profile, fits[i].parameters, fits[i].lines, fits[i].loo_median_pct,
			fits[i].loo_max_pct);
}

void report_summary(FILE *f, const struct paper_line *const *lines, const struct figure *figures,
		    const bool *is_done, unsigned n, const struct fit_line *fits, unsigned n_fits)
{
	unsigned by_status[FIGURE_STATUSES] = {0}, hits = 0, equal = 0, within = 0, done = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!is_done[i])
			continue;
		done++;
		by_status[figures[i].status]++;
		if (figures[i].status != FIGURE_MEASURED)
			continue;
		hits += figures[i].hit;
		equal += lines[i]->op == PAPER_EQUAL;
		within += lines[i]->op == PAPER_EQUAL && figures[i].hit;
	}
	fprintf(f, "# %u of %u lines: %u measured on simulated cards, %u hits, %u misses\n", done,
		n, by_status[FIGURE_MEASURED], hits, by_status[FIGURE_MEASURED] - hits);
	fprintf(f, "# \"=\" lines within their tolerance: %u of %u\n", within, equal);
	fprintf(f, "# waiting for a later layer: %u; failed: %u; no: %u\n",
		by_status[FIGURE_WAITING], by_status[FIGURE_FAILED], by_status[FIGURE_NO]);
	print_reasons(f, figures, is_done, n);
	print_fits(f, fits, n_fits);
}
