/* SPDX-License-Identifier: MIT */
/* Reading result files, line by line. */
#include "results.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEASURED_MAX 4096u

void words_add(struct words *words, const char *text)
{
	for (unsigned i = 0; i < words->n; i++)
		if (!strcmp(words->word[i], text))
			return;
	if (words->n < RESULTS_WORDS_MAX)
		snprintf(words->word[words->n++], RESULTS_WORD_MAX, "%s", text);
}

int results_init(struct results *r, const struct paper *paper, const struct charts *charts)
{
	*r = (struct results){.paper = paper, .charts = charts};
	r->lines = calloc(paper->n, sizeof(r->lines[0]));
	r->chart = calloc(charts->n, sizeof(r->chart[0]));
	if (!r->lines || !r->chart) {
		results_free(r);
		return -ENOMEM;
	}
	for (unsigned c = 0; c < charts->n; c++)
		for (unsigned s = 0; s < CHART_SERIES_MAX; s++)
			for (unsigned x = 0; x < CHART_X_MAX; x++)
				r->chart[c].y[s][x] = NAN;
	return 0;
}

void results_free(struct results *r)
{
	free(r->lines);
	free(r->chart);
	free(r->measured);
	r->lines = NULL;
	r->chart = NULL;
	r->measured = NULL;
}

/* ---- lines of each kind: NULL, or what is wrong ---- */

/* How it was made, where a line says so. */
static void read_facts(struct results *r, const struct json *json)
{
	char text[32];
	double number;

	if (json_text(json, "version"))
		words_add(&r->versions, json_text(json, "version"));
	if (json_text(json, "profile") && strcmp(json_text(json, "profile"), "-"))
		words_add(&r->profiles, json_text(json, "profile"));
	if (json_number(json, "seed", &number)) {
		snprintf(text, sizeof(text), "%.17g", number);
		words_add(&r->seeds, text);
	}
	if (json_number(json, "effort", &number)) {
		snprintf(text, sizeof(text), "%g", number);
		words_add(&r->efforts, text);
	}
}

static const char *read_point(struct results *r, const struct json *json)
{
	const struct chart *chart = charts_find(r->charts, json_text(json, "figure"));
	const char *series = json_text(json, "series"), *x = json_text(json, "x");
	struct chart_result *result;
	double y = NAN;
	int s, i;

	if (!chart)
		return "a figure that is not in the list";
	s = series ? chart_series_find(chart, series) : -1;
	i = x ? chart_x_find(chart, x) : -1;
	if (s < 0 || i < 0)
		return "a point that the figure does not have";
	if (!json_field(json, "y"))
		return "a point without y";
	if (json_field(json, "y")->type != JSON_NULL && !json_number(json, "y", &y))
		return "y is not a number";
	result = &r->chart[chart - r->charts->chart];
	if (isfinite(y) && !isfinite(result->y[s][i]))
		result->n++;
	if (isfinite(y))
		result->y[s][i] = y;
	read_facts(r, json);
	return NULL;
}

static bool read_status(const char *text, enum figure_status *out)
{
	for (unsigned i = 0; text && i < FIGURE_STATUSES; i++) {
		if (strcmp(text, figure_status_text((enum figure_status)i)))
			continue;
		*out = (enum figure_status)i;
		return true;
	}
	return false;
}

static void read_list(const char *text, struct figure *figure)
{
	char item[64];

	while (*text && figure->n_list < FIGURE_LIST_MAX && list_next(&text, item, sizeof(item))) {
		figure->list[figure->n_list++] = strtod(item, NULL);
		if (!text)
			break;
	}
}

static const char *read_line(struct results *r, const struct json *json)
{
	const struct paper_line *line = paper_find(r->paper, json_text(json, "id"));
	const struct json_field *simulated = json_field(json, "simulated");
	const struct json_field *hit = json_field(json, "hit");
	struct figure figure = {.simulated = NAN, .error_pct = NAN};
	const char *reason = json_text(json, "reason");

	if (!line)
		return "an id that is not in the list of figures";
	if (!simulated || !hit || !read_status(json_text(json, "status"), &figure.status))
		return "not a whole result of gannet sim calibrate or reproduce";
	if (simulated->type == JSON_NUMBER)
		figure.simulated = simulated->number;
	else if (simulated->type == JSON_ARRAY)
		read_list(simulated->text, &figure);
	else if (simulated->type == JSON_NULL && figure.status == FIGURE_MEASURED)
		figure.simulated = INFINITY; /* there is no such x */
	json_number(json, "error_pct", &figure.error_pct);
	figure.hit = hit->type == JSON_BOOL && hit->number != 0;
	snprintf(figure.reason, sizeof(figure.reason), "%s", reason ? reason : "");
	r->lines[line - r->paper->lines] = (struct line_result){true, figure};
	read_facts(r, json);
	return NULL;
}

/* "…, 2 cores, Linux 6.1" */
static void add_machine(const struct json *json, struct measured *m)
{
	const char *kernel = json_text(json, "machine.kernel");
	char *at = strchr(m->machine, '\0');
	double cores;

	if (at > m->machine && json_number(json, "machine.cores", &cores))
		snprintf(at, sizeof(m->machine) - (size_t)(at - m->machine), ", %g cores", cores);
	at = strchr(m->machine, '\0');
	if (at > m->machine && kernel)
		snprintf(at, sizeof(m->machine) - (size_t)(at - m->machine), ", Linux %s", kernel);
}

static const char *read_measured(struct results *r, const struct json *json)
{
	struct measured m = {0}, *all;
	const struct {
		const char *key;
		char *to;
		size_t size;
		bool needed;
	} texts[] = {
		{"provider", m.provider, sizeof(m.provider), true},
		{"profile", m.profile, sizeof(m.profile), false},
		{"protocol", m.protocol, sizeof(m.protocol), true},
		{"topology", m.topology, sizeof(m.topology), true},
		{"preset", m.preset, sizeof(m.preset), false},
		{"machine.cpu", m.machine, sizeof(m.machine), false},
	};
	const struct {
		const char *key;
		double *to;
	} numbers[] = {
		{"nodes", &m.nodes}, {"threads", &m.threads}, {"pending", &m.pending},
		{"value", &m.value}, {"gbps", &m.gbps},	      {"gbps_per_node", &m.gbps_per_node},
	};

	if (!json_text(json, "bench") || strcmp(json_text(json, "bench"), "msg"))
		return "a benchmark of which there is no figure";
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		const char *text = json_text(json, texts[i].key);

		if (!text && texts[i].needed)
			return "not a whole result of gannet bench msg";
		snprintf(texts[i].to, texts[i].size, "%s", text ? text : "");
	}
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!json_number(json, numbers[i].key, numbers[i].to))
			return "not a whole result of gannet bench msg";
	add_machine(json, &m);
	if (r->n_measured == MEASURED_MAX)
		return "more measurements than a page can show";
	all = reallocarray(r->measured, r->n_measured + 1, sizeof(m));
	if (!all)
		return "no memory for it";
	r->measured = all;
	r->measured[r->n_measured++] = m;
	if (json_text(json, "version"))
		words_add(&r->versions, json_text(json, "version"));
	return NULL;
}

static const char *take(struct results *r, const struct json *json)
{
	if (json_text(json, "figure"))
		return read_point(r, json);
	if (json_text(json, "id") && json_field(json, "paper"))
		return read_line(r, json);
	if (json_field(json, "bench"))
		return read_measured(r, json);
	if (json_text(json, "score")) /* counted again from the lines */
		return NULL;
	return "no result that a report has a place for";
}

/* ---- a file ---- */

static void complain(const char *file, unsigned number, const char *what)
{
	fprintf(stderr, "gannet: %s line %u: %s; left out\n", file, number, what);
}

int results_read(struct results *r, const char *file)
{
	FILE *f = strcmp(file, "-") ? fopen(file, "re") : stdin;
	struct json *json = malloc(sizeof(*json));
	unsigned number = 0;
	char line[JSON_LINE_MAX];
	ssize_t len;
	bool ended;
	int rc = !f ? -errno : !json ? -ENOMEM : 0;

	errno = 0;
	while (!rc && (len = json_line(f, line, &ended)) >= 0) {
		const char *wrong;

		number++;
		if (!len)
			continue;
		wrong = json_parse(json, line, (size_t)len);
		if (!wrong)
			wrong = take(r, json);
		if (wrong)
			complain(file, number, wrong);
		else
			r->usable++;
		errno = 0;
	}
	if (!rc && ferror(f))
		rc = errno ? -errno : -EIO;
	free(json);
	if (f && f != stdin)
		fclose(f);
	return rc;
}
