/* SPDX-License-Identifier: MIT */
/* The figure at a point: runs what has not run yet, and sweeps and compares as the metric says. */
#include "figure_run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char read6[] =
	"op=READ;topology=mm;nodes=6;threads=all;qps_per_thread=6;window=24;size=32;signaled=yes";

static const char *const control_keys[] = {"vary", "among", "over", "of"};

#define CONTROL_KEYS (sizeof(control_keys) / sizeof(control_keys[0]))

static const char *const best_threads[] = {"1", "2", "4", "8", "16"};

#define BEST_THREADS (sizeof(best_threads) / sizeof(best_threads[0]))

void point_of_line(const struct paper_line *line, struct point *out)
{
	*out = (struct point){line->layer, line->profile, line->preset, line->config};
}

bool metric_smaller_is_better(const char *metric)
{
	static const char *const smaller[] = {
		"latency_us_mean", "p15_us", "p50_us", "p99_us", "interrupts", "ios",
	};

	for (size_t i = 0; i < sizeof(smaller) / sizeof(smaller[0]); i++)
		if (!strcmp(metric, smaller[i]))
			return true;
	return false;
}

/* ---- what has run already ---- */

struct cache_entry {
	char *key;
	int rc;
	struct lab_metrics metrics;
	struct lab_error error;
};

struct figure_cache {
	struct cache_entry *entries;
	size_t n;
};

void figure_forget(struct figure_env *env)
{
	struct figure_cache *cache = env->cache;

	for (size_t i = 0; cache && i < cache->n; i++)
		free(cache->entries[i].key);
	if (cache)
		free(cache->entries);
	free(cache);
	env->cache = NULL;
}

static struct cache_entry *cache_find(const struct figure_env *env, const char *key)
{
	for (size_t i = 0; env->cache && i < env->cache->n; i++)
		if (!strcmp(env->cache->entries[i].key, key))
			return &env->cache->entries[i];
	return NULL;
}

static struct cache_entry *cache_add(struct figure_env *env, const char *key)
{
	struct cache_entry *entries;

	if (!env->cache)
		env->cache = calloc(1, sizeof(*env->cache));
	if (!env->cache)
		return NULL;
	entries = reallocarray(env->cache->entries, env->cache->n + 1, sizeof(*entries));
	if (!entries)
		return NULL;
	env->cache->entries = entries;
	entries[env->cache->n] = (struct cache_entry){.key = strdup(key)};
	return entries[env->cache->n].key ? &entries[env->cache->n++] : NULL;
}

/* ---- running ---- */

static const char *card_of(const struct figure_env *env, const char *profile)
{
	for (unsigned i = 0; i < env->n_cards; i++)
		if (!strcmp(env->cards[i].profile, profile))
			return env->cards[i].card;
	return profile;
}

/* Without the keys that are about the figure, and in one order: equal runs have equal texts. */
static int run(struct figure_env *env, const struct point *point, const struct cache_entry **out)
{
	char text[CONFIG_TEXT_MAX], key[CONFIG_TEXT_MAX + 128];
	struct config config = point->config;
	const struct lab_layer *layer = env->layers;
	const bool replaced = env->preset && strcmp(point->preset, "-");
	const struct lab_setup setup = {
		.profile = point->profile,
		.card = card_of(env, point->profile),
		.preset = replaced ? env->preset : point->preset,
		.seed = env->seed,
		.effort = env->effort,
		.interrupted = env->interrupted,
	};
	struct cache_entry *entry;

	while (layer->name && strcmp(layer->name, point->layer))
		layer++;
	if (!layer->name)
		return -ENOSYS;
	for (size_t i = 0; i < CONTROL_KEYS; i++)
		config_drop(&config, control_keys[i]);
	config_text(&config, text, sizeof(text));
	snprintf(key, sizeof(key), "%s %s %s %s", point->layer, point->profile, setup.preset, text);
	entry = cache_find(env, key);
	if (!entry) {
		entry = cache_add(env, key);
		if (!entry)
			return -ENOMEM;
		entry->rc = layer->run(&setup, &config, &entry->metrics, &entry->error);
	}
	*out = entry;
	return entry->rc;
}

static int plain(struct figure_env *env, const struct point *point, const char *metric, double *out,
		 struct lab_error *error)
{
	const struct cache_entry *entry = NULL;
	const double *value;
	int rc = run(env, point, &entry);

	if (rc) {
		if (entry)
			*error = entry->error;
		else if (rc == -ENOMEM)
			lab_error(error, "no memory to remember what was run");
		return rc;
	}
	value = lab_metric_get(&entry->metrics, metric);
	if (!value)
		return lab_error(error, "metric '%s' is not among those of layer %s", metric,
				 point->layer);
	*out = *value;
	return 0;
}

/* server_threads=best: the best of some numbers, by the figure. */
static int plain_or_best(struct figure_env *env, const struct point *point, const char *metric,
			 double *out, struct lab_error *error)
{
	const bool smaller = metric_smaller_is_better(metric);
	struct point at = *point;

	if (!config_is(&point->config, "server_threads", "best"))
		return plain(env, point, metric, out, error);
	for (size_t i = 0; i < BEST_THREADS; i++) {
		double value;
		int rc = config_set(&at.config, "server_threads", best_threads[i], error);

		if (!rc)
			rc = plain(env, &at, metric, &value, error);
		if (rc)
			return rc;
		if (i == 0 || (smaller ? value < *out : value > *out))
			*out = value;
	}
	return 0;
}

/* ---- sweeps ---- */

/* What a sweep keeps of its values, in their order. */
struct sweep {
	double first, last, min, max;
	unsigned n;
};

static void sweep_add(struct sweep *s, double value)
{
	if (!s->n++)
		s->first = s->min = s->max = value;
	s->last = value;
	s->min = value < s->min ? value : s->min;
	s->max = value > s->max ? value : s->max;
}

static int sweep_vary(struct figure_env *env, const struct point *point, const char *metric,
		      struct sweep *out, struct lab_error *error)
{
	char key[CONFIG_KEY_MAX], x[CONFIG_VALUE_MAX];
	const char *list;
	struct point at = *point;
	double value;
	int rc = config_vary(&point->config, key, &list, error);

	config_drop(&at.config, "vary");
	while (!rc && list_next(&list, x, sizeof(x))) {
		rc = config_set(&at.config, key, x, error);
		if (!rc)
			rc = point_figure(env, &at, metric, &value, error);
		if (!rc)
			sweep_add(out, value);
	}
	return rc;
}

/* over=KEY:GROUP: the members one by one. */
static int sweep_group(struct figure_env *env, const struct point *point, const char *key,
		       const char *group, struct sweep *out, struct lab_error *error)
{
	const char *own = config_get(&point->config, key), *member;
	struct point at = *point;

	for (unsigned i = 0; (member = setting_group_member(key, group, own, i)); i++) {
		char over[CONFIG_VALUE_MAX + CONFIG_KEY_MAX];
		double value;
		int rc;

		snprintf(over, sizeof(over), "%s:%s", key, member);
		rc = config_set(&at.config, "over", over, error);
		if (!rc)
			rc = point_figure(env, &at, "ratio", &value, error);
		if (rc)
			return rc;
		sweep_add(out, value);
	}
	return out->n ? 0 : lab_error(error, "over=%s:%s has no members", key, group);
}

/* Is over= a single KEY:GROUP? */
static bool over_group(const struct point *point, char key[CONFIG_KEY_MAX], const char **group)
{
	const char *over = config_get(&point->config, "over");
	const char *colon = over ? strchr(over, ':') : NULL;

	if (!colon || colon - over >= CONFIG_KEY_MAX)
		return false;
	memcpy(key, over, (size_t)(colon - over));
	key[colon - over] = '\0';
	*group = colon + 1;
	return setting_is_group(key, *group);
}

/* Throughput at a mean latency of limit_us, on straight lines between the points of the sweep. */
static int at_latency(struct figure_env *env, const struct point *point, const char *metric,
		      double *out, struct lab_error *error)
{
	char key[CONFIG_KEY_MAX], x[CONFIG_VALUE_MAX];
	const char *limit_text = config_get(&point->config, "limit_us"), *list;
	const double limit = limit_text ? strtod(limit_text, NULL) : 0;
	double us = 0, value = 0, last_us = 0, last_value = 0;
	struct point at = *point;
	int rc = config_vary(&point->config, key, &list, error);

	config_drop(&at.config, "vary");
	config_drop(&at.config, "limit_us"); /* the figure's, not the run's */
	for (unsigned n = 0; !rc && list_next(&list, x, sizeof(x)); n++) {
		rc = config_set(&at.config, key, x, error);
		if (!rc)
			rc = point_figure(env, &at, "latency_us_mean", &us, error);
		if (!rc)
			rc = point_figure(env, &at, metric, &value, error);
		if (!rc && n && (last_us - limit) * (us - limit) <= 0 && us != last_us) {
			*out = last_value +
			       (value - last_value) * (limit - last_us) / (us - last_us);
			return 0;
		}
		last_us = us;
		last_value = value;
	}
	return rc ? rc : lab_error(error, "no point of the sweep reaches limit_us=%g", limit);
}

/* ---- comparisons ---- */

int point_over(struct figure_env *env, const struct point *point, struct point *out,
	       const char **metric, double *scale, struct lab_error *error)
{
	const char *over = config_get(&point->config, "over");
	const struct paper_line *line;

	*scale = 1;
	if (!over)
		return lab_error(error, "a comparison without over=");
	if (strchr(over, ':')) {
		*out = *point;
		config_drop(&out->config, "over");
		return config_change(&out->config, over, error);
	}
	if (!strcmp(over, "READ6") || !strcmp(over, "READ6x2")) {
		*out = (struct point){"fabric", point->profile, "-", {0}};
		*metric = "mops_per_node";
		*scale = strcmp(over, "READ6") ? 0.5 : 1;
		return config_parse(&out->config, read6, strlen(read6), error);
	}
	line = paper_find(env->paper, over);
	if (!line)
		return lab_error(error, "over=%s: there is no such line", over);
	point_of_line(line, out);
	config_drop(&out->config, "over");
	return 0;
}

static int compare(struct figure_env *env, const struct point *point, bool divide, double *out,
		   struct lab_error *error)
{
	const char *of = config_get(&point->config, "of"), *other_of = of;
	struct point here = *point, other;
	double a, b, scale;
	int rc;

	if (!of)
		return lab_error(error, "a comparison without of=");
	rc = point_over(env, point, &other, &other_of, &scale, error);
	config_drop(&here.config, "over");
	if (!rc)
		rc = point_figure(env, &here, of, &a, error);
	if (!rc)
		rc = point_figure(env, &other, other_of, &b, error);
	if (rc)
		return rc;
	b *= scale;
	if (divide && b == 0)
		return lab_error(error, "%s is 0 at the other side of the ratio", other_of);
	*out = divide ? a / b : a - b;
	return 0;
}

/* X at twice the setting of among= divided by X at the setting. */
static int gain(struct figure_env *env, const struct point *point, const char *metric, double *out,
		struct lab_error *error)
{
	const char *key = config_get(&point->config, "among");
	struct point twice = *point;
	char text[32];
	uint64_t n = 0;
	double a, b;
	int rc;

	if (!key || !config_get(&point->config, key))
		return lab_error(error, "gain_%s needs a setting of among=", metric);
	rc = config_uint(&point->config, key, 0, 1, UINT32_MAX, &n, error);
	snprintf(text, sizeof(text), "%llu", 2ull * n);
	if (!rc)
		rc = config_set(&twice.config, key, text, error);
	if (!rc)
		rc = point_figure(env, point, metric, &a, error);
	if (!rc)
		rc = point_figure(env, &twice, metric, &b, error);
	if (!rc && a == 0)
		rc = lab_error(error, "%s is 0 at %s=%s", metric, key,
			       config_get(&point->config, key));
	if (!rc)
		*out = b / a;
	return rc;
}

/* ---- all together ---- */

/* Copies metric without its last `suffix`; false if it does not end so. */
static bool without(const char *metric, const char *suffix, char out[CONFIG_VALUE_MAX])
{
	const size_t len = strlen(metric), cut = strlen(suffix);

	if (len <= cut || len - cut >= CONFIG_VALUE_MAX || strcmp(metric + len - cut, suffix))
		return false;
	memcpy(out, metric, len - cut);
	out[len - cut] = '\0';
	return true;
}

static int swept(struct figure_env *env, const struct point *point, const char *metric,
		 struct sweep *out, struct lab_error *error)
{
	char key[CONFIG_KEY_MAX];
	const char *group;

	*out = (struct sweep){0};
	if (!strcmp(metric, "ratio") && over_group(point, key, &group))
		return sweep_group(env, point, key, group, out, error);
	return sweep_vary(env, point, metric, out, error);
}

int point_figure(struct figure_env *env, const struct point *point, const char *metric, double *out,
		 struct lab_error *error)
{
	char inner[CONFIG_VALUE_MAX];
	struct sweep sweep;
	/* A layer may have a maximum of its own (over time): only a sweep or a ratio makes one. */
	const bool sweeps = config_get(&point->config, "vary") || !strncmp(metric, "ratio_", 6);
	int rc;

	if (!strcmp(metric, "ratio") || !strcmp(metric, "delta"))
		return compare(env, point, !strcmp(metric, "ratio"), out, error);
	if (!strncmp(metric, "gain_", 5))
		return gain(env, point, metric + 5, out, error);
	if (without(metric, "_at_latency", inner))
		return at_latency(env, point, inner, out, error);
	if (!strncmp(metric, "drop_", 5)) {
		rc = swept(env, point, metric + 5, &sweep, error);
		if (!rc && sweep.last == 0)
			return lab_error(error, "%s is 0 at the end of the sweep", metric + 5);
		*out = rc ? 0 : sweep.first / sweep.last;
		return rc;
	}
	if (sweeps && (without(metric, "_max", inner) || without(metric, "_min", inner))) {
		rc = swept(env, point, inner, &sweep, error);
		if (!rc)
			*out = without(metric, "_max", inner) ? sweep.max : sweep.min;
		return rc;
	}
	return plain_or_best(env, point, metric, out, error);
}
