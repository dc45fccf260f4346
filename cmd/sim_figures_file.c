/* SPDX-License-Identifier: MIT */
/* The file of gannet sim figures: which points it has already, and one object for each new one. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gannet/base.h>

#include "json.h"
#include "sim_figures.h"

int sim_figures_point(const struct sim_job *job, struct point *point, const char **metric)
{
	struct lab_error error;

	return chart_point(job->chart, job->series, job->x, point, metric, &error);
}

static bool says(const struct json *json, const char *key, const char *text)
{
	const char *said = json_text(json, key);

	return said && !strcmp(said, text);
}

static bool says_number(const struct json *json, const char *key, double number)
{
	double said;

	return json_number(json, key, &said) && fabs(said - number) <= 1e-9 * fabs(number);
}

/* Two that are neighbours are not the same. */
static bool says_count(const struct json *json, const char *key, uint64_t count)
{
	double said;

	return json_number(json, key, &said) && said == (double)count;
}

static const char *card_of(const struct sim_figures *r, const char *profile)
{
	for (unsigned i = 0; i < r->options.env.n_cards; i++)
		if (!strcmp(r->options.env.cards[i].profile, profile))
			return r->options.env.cards[i].card;
	return profile;
}

static bool is_of(const struct sim_figures *r, const struct json *json, const struct sim_job *job)
{
	char config[CONFIG_TEXT_MAX];
	const char *metric;
	struct point at;

	if (!says(json, "figure", job->chart->id) ||
	    !says(json, "series", job->chart->series[job->series].label) ||
	    !says(json, "x", job->chart->x[job->x].label) || sim_figures_point(job, &at, &metric))
		return false;
	config_text(&at.config, config, sizeof(config));
	return says(json, "config", config) && says(json, "metric", metric) &&
	       says(json, "profile", at.profile) && says(json, "card", card_of(r, at.profile)) &&
	       says(json, "version", gn_version()) &&
	       says_count(json, "seed", r->options.env.seed) &&
	       says_number(json, "effort", r->options.env.effort) &&
	       !says(json, "status", "failed");
}

static void forget_known(struct sim_figures *r, const struct json *json)
{
	for (unsigned i = 0; i < r->n; i++) {
		if (!is_of(r, json, &r->jobs[i]))
			continue;
		r->n--;
		memmove(&r->jobs[i], &r->jobs[i + 1], (r->n - i) * sizeof(r->jobs[0]));
		r->n_known++;
		return;
	}
}

/* Takes from the jobs what the file has; *ends: its last line is whole. */
static int read_known(struct sim_figures *r, struct json *json, bool *ends)
{
	char line[JSON_LINE_MAX];
	unsigned number = 0;
	struct stat st;
	ssize_t len;
	FILE *f;

	*ends = true;
	if (stat(r->out, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode)) /* a pipe or a terminal has nothing yet */
		return 0;
	f = fopen(r->out, "re");
	if (!f)
		return -errno;
	while ((len = json_line(f, line, ends)) >= 0) {
		const char *wrong;

		number++;
		if (!len)
			continue;
		wrong = json_parse(json, line, (size_t)len);
		if (wrong)
			fprintf(stderr, "gannet: %s line %u: %s; left as it is\n", r->out, number,
				wrong);
		else
			forget_known(r, json);
	}
	fclose(f);
	return 0;
}

int sim_figures_open(struct sim_figures *r)
{
	struct json *json = malloc(sizeof(*json));
	bool ends;
	int rc = json ? read_known(r, json, &ends) : -ENOMEM;

	free(json);
	if (!rc) {
		r->to = fopen(r->out, "ae");
		rc = r->to ? 0 : -errno;
	}
	/* A line that a crash cut short stays alone: what comes now begins another. */
	if (!rc && !ends && fputc('\n', r->to) == EOF)
		rc = -errno;
	if (!rc)
		return 0;
	fprintf(stderr, "gannet: --out %s: %s\n", r->out, strerror(-rc));
	return EXIT_FAILURE;
}

void sim_figures_write(const struct sim_figures *r, const struct sim_job *job,
		       const struct sim_outcome *o)
{
	char config[CONFIG_TEXT_MAX];
	const char *metric;
	struct point at;

	if (sim_figures_point(job, &at, &metric))
		return;
	config_text(&at.config, config, sizeof(config));
	fputc('{', r->to);
	json_put_text(r->to, "figure", job->chart->id);
	json_put_text(r->to, "series", job->chart->series[job->series].label);
	json_put_text(r->to, "x", job->chart->x[job->x].label);
	json_put_number(r->to, "y", o->y);
	json_put_text(r->to, "metric", metric);
	json_put_text(r->to, "layer", at.layer);
	json_put_text(r->to, "profile", at.profile);
	json_put_text(r->to, "card", card_of(r, at.profile));
	json_put_text(r->to, "preset", at.preset);
	json_put_text(r->to, "config", config);
	json_put_count(r->to, "seed", r->options.env.seed);
	json_put_number(r->to, "effort", r->options.env.effort);
	json_put_text(r->to, "version", gn_version());
	json_put_text(r->to, "status", figure_status_text(o->status));
	if (o->reason[0])
		json_put_text(r->to, "reason", o->reason);
	fprintf(r->to, "\"seconds\":%.3f}\n", o->seconds);
}
