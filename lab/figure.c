/* SPDX-License-Identifier: MIT */
/* Whole lines: orders, peaks, points from where figures are equal; the rule of each operator. */
#include "figure.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figure_run.h"

#define PEAK_PART  0.95 /* of the sweep's largest: still the peak */
#define EQUAL_PART 0.05
#define EPSILON	   1e-9 /* 5 % is 5 %, whatever a division makes of it */

const char *figure_status_text(enum figure_status status)
{
	static const char *const texts[FIGURE_STATUSES] = {
		[FIGURE_MEASURED] = "measured",
		[FIGURE_WAITING] = "waiting",
		[FIGURE_NO] = "no",
		[FIGURE_FAILED] = "failed",
	};

	return texts[status];
}

/* ---- order ---- */

static int list_add(struct figure *out, double value, struct lab_error *error)
{
	if (out->n_list == FIGURE_LIST_MAX)
		return lab_error(error, "an order of more than %u figures", FIGURE_LIST_MAX);
	out->list[out->n_list++] = value;
	return 0;
}

/* The figure at one setting of an order. */
static int order_figure(struct figure_env *env, const struct paper_line *line,
			const struct point *base, const char *among, const char *setting,
			double *out, struct lab_error *error)
{
	const char *metric = config_get(&line->config, "of");
	struct point at = *base;
	int rc = 0;

	if (!strcmp(among, "line") && strcmp(setting, "self")) {
		const struct paper_line *other = paper_find(env->paper, setting);

		if (!other)
			return lab_error(error, "there is no line '%s'", setting);
		point_of_line(other, &at);
		return point_figure(env, &at, metric ? metric : other->metric, out, error);
	}
	if (!metric)
		return lab_error(error, "an order without of=");
	if (!strcmp(among, "profile"))
		at.profile = setting;
	else if (strcmp(among, "line"))
		rc = config_set(&at.config, among, setting, error);
	if (config_get(&at.config, "over"))
		metric = "ratio";
	return rc ? rc : point_figure(env, &at, metric, out, error);
}

/* Best and worst figure of an item, which may be a group. */
struct span {
	double best, worst;
};

static int order_item(struct figure_env *env, const struct paper_line *line,
		      const struct point *base, const char *among, const char *item, bool smaller,
		      struct span *span, struct figure *out, struct lab_error *error)
{
	const bool group = setting_is_group(among, item);
	const char *setting = group ? setting_group_member(among, item, line->value, 0) : item;

	if (!setting)
		return lab_error(error, "the group %s=%s is empty", among, item);
	for (unsigned i = 0; setting; i++) {
		double value;
		int rc = order_figure(env, line, base, among, setting, &value, error);

		if (!rc)
			rc = list_add(out, value, error);
		if (rc)
			return rc;
		if (i == 0 || (smaller ? value < span->best : value > span->best))
			span->best = value;
		if (i == 0 || (smaller ? value > span->worst : value < span->worst))
			span->worst = value;
		setting = group ? setting_group_member(among, item, line->value, i + 1) : NULL;
	}
	return 0;
}

static int order_at(struct figure_env *env, const struct paper_line *line, const struct point *base,
		    struct figure *out, struct lab_error *error)
{
	const char *among = config_get(&line->config, "among");
	const char *of = config_get(&line->config, "of"), *list = line->value;
	const bool smaller = of && !config_get(&line->config, "over") &&
			     metric_smaller_is_better(of);
	char item[CONFIG_VALUE_MAX];
	struct span last = {0}, span = {0};

	for (unsigned n = 0; list_next(&list, item, sizeof(item)); n++) {
		int rc = order_item(env, line, base, among, item, smaller, &span, out, error);

		if (rc)
			return rc;
		/* Every figure of an item must be worse than every one of the item before. */
		if (n && !(smaller ? span.best > last.worst : span.best < last.worst))
			out->hit = false;
		last = span;
	}
	return 0;
}

/* A group in the configuration itself: the order must hold for each of its members. */
static int order(struct figure_env *env, const struct paper_line *line, struct figure *out,
		 struct lab_error *error)
{
	struct point at;

	point_of_line(line, &at);
	out->hit = true;
	for (unsigned i = 0; i < line->config.n; i++) {
		const char *key = line->config.pair[i].key, *name = line->config.pair[i].value;
		const char *member;

		if (!setting_is_group(key, name))
			continue;
		for (unsigned k = 0; (member = setting_group_member(key, name, NULL, k)); k++) {
			int rc = config_set(&at.config, key, member, error);

			if (!rc)
				rc = order_at(env, line, &at, out, error);
			if (rc)
				return rc;
		}
		return 0;
	}
	return order_at(env, line, &at, out, error);
}

/* ---- peak, equal_from ---- */

static int peak(struct figure_env *env, const struct paper_line *line, struct figure *out,
		struct lab_error *error)
{
	const char *of = config_get(&line->config, "of"), *list;
	char key[CONFIG_KEY_MAX], x[CONFIG_VALUE_MAX];
	double value, largest = -INFINITY, there = NAN;
	struct point at;
	int rc;

	point_of_line(line, &at);
	if (!of)
		return lab_error(error, "a peak without of=");
	rc = config_vary(&line->config, key, &list, error);
	config_drop(&at.config, "vary");
	while (!rc && list_next(&list, x, sizeof(x))) {
		rc = config_set(&at.config, key, x, error);
		if (!rc)
			rc = point_figure(env, &at, of, &value, error);
		if (rc)
			return rc;
		if (value > largest) {
			largest = value;
			out->simulated = strtod(x, NULL);
		}
		if (strtod(x, NULL) == line->number_value)
			there = value;
	}
	if (!rc && isnan(there))
		rc = lab_error(error, "the sweep does not visit %s", line->value);
	out->hit = there >= PEAK_PART * largest;
	return rc;
}

/* Smallest x from which on the two figures stay within 5 %; infinite when they never do. */
static int equal_from(struct figure_env *env, const struct paper_line *line, struct figure *out,
		      struct lab_error *error)
{
	char key[CONFIG_KEY_MAX], x[CONFIG_VALUE_MAX];
	const char *list;
	struct point at;
	double ratio;
	int rc;

	point_of_line(line, &at);
	rc = config_vary(&line->config, key, &list, error);
	config_drop(&at.config, "vary");
	out->simulated = INFINITY;
	while (!rc && list_next(&list, x, sizeof(x))) {
		rc = config_set(&at.config, key, x, error);
		if (!rc)
			rc = point_figure(env, &at, "ratio", &ratio, error);
		if (rc)
			return rc;
		if (fabs(ratio - 1) > EQUAL_PART + EPSILON)
			out->simulated = INFINITY;
		else if (isinf(out->simulated))
			out->simulated = strtod(x, NULL);
	}
	return rc;
}

/* ---- a line ---- */

static void judge(const struct paper_line *line, struct figure *f)
{
	const double value = line->number_value;

	switch (line->op) {
	case PAPER_EQUAL:
		f->error_pct = value != 0	 ? 100 * (f->simulated / value - 1) :
			       f->simulated == 0 ? 0 :
						   INFINITY;
		f->hit = fabs(f->error_pct) <= line->tol_pct + EPSILON;
		break;
	case PAPER_AT_MOST:
		f->hit = f->simulated <= value;
		break;
	case PAPER_AT_LEAST:
		f->hit = f->simulated >= value;
		break;
	case PAPER_ORDER:
	case PAPER_PEAK:
		break; /* known already */
	}
}

static int measure(struct figure_env *env, const struct paper_line *line, struct figure *out,
		   struct lab_error *error)
{
	struct point at;

	if (line->op == PAPER_ORDER)
		return order(env, line, out, error);
	if (line->op == PAPER_PEAK)
		return peak(env, line, out, error);
	if (!strcmp(line->metric, "equal_from"))
		return equal_from(env, line, out, error);
	point_of_line(line, &at);
	return point_figure(env, &at, line->metric, &out->simulated, error);
}

int figure_eval(struct figure_env *env, const struct paper_line *line, struct figure *out)
{
	struct lab_error error = {""};
	int rc;

	*out = (struct figure){.simulated = NAN, .error_pct = NAN};
	if (line->no) {
		out->status = FIGURE_NO;
		snprintf(out->reason, sizeof(out->reason), "%s", line->no);
		return 0;
	}
	rc = measure(env, line, out, &error);
	if (env->interrupted && *env->interrupted)
		return -EINTR;
	if (rc) {
		out->status = rc == -ENOSYS ? FIGURE_WAITING : FIGURE_FAILED;
		snprintf(out->reason, sizeof(out->reason), "%s", error.text);
		out->n_list = 0;
		out->hit = false;
		return 0;
	}
	out->status = FIGURE_MEASURED;
	judge(line, out);
	return 0;
}
