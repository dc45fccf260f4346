/* SPDX-License-Identifier: MIT */
/* Configurations: reading, looking up, changing, writing. */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lab_error(struct lab_error *error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error->text, sizeof(error->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

static int find(const struct config *config, const char *key)
{
	for (unsigned i = 0; i < config->n; i++)
		if (!strcmp(config->pair[i].key, key))
			return (int)i;
	return -1;
}

const char *config_get(const struct config *config, const char *key)
{
	const int i = find(config, key);

	return i < 0 ? NULL : config->pair[i].value;
}

bool config_is(const struct config *config, const char *key, const char *value)
{
	const char *has = config_get(config, key);

	return has && !strcmp(has, value);
}

/* Keys and values are short in every list there is; a longer one is a mistake. */
static int set(struct config *config, const char *key, size_t key_len, const char *value,
	       size_t value_len, struct lab_error *error)
{
	char name[CONFIG_KEY_MAX];
	int i;

	if (!key_len || key_len >= CONFIG_KEY_MAX)
		return lab_error(error, "a key of %zu characters ('%.*s'); 1 to %u are allowed",
				 key_len, (int)(key_len < 40 ? key_len : 40), key,
				 CONFIG_KEY_MAX - 1);
	memcpy(name, key, key_len);
	name[key_len] = '\0';
	if (!value_len || value_len >= CONFIG_VALUE_MAX)
		return lab_error(error, "%s has a value of %zu characters; 1 to %u are allowed",
				 name, value_len, CONFIG_VALUE_MAX - 1);
	i = find(config, name);
	if (i < 0) {
		if (config->n == CONFIG_PAIRS_MAX)
			return lab_error(error, "more than %u keys", CONFIG_PAIRS_MAX);
		i = (int)config->n++;
		memcpy(config->pair[i].key, name, key_len + 1);
	}
	memcpy(config->pair[i].value, value, value_len);
	config->pair[i].value[value_len] = '\0';
	return 0;
}

int config_set(struct config *config, const char *key, const char *value, struct lab_error *error)
{
	return set(config, key, strlen(key), value, strlen(value), error);
}

int config_parse(struct config *config, const char *text, size_t len, struct lab_error *error)
{
	const char *const end = text + len;

	config->n = 0;
	if (len == 1 && text[0] == '-')
		return 0;
	while (text <= end) {
		const char *stop = memchr(text, ';', (size_t)(end - text));
		const char *mid;
		unsigned before;
		int rc;

		if (!stop)
			stop = end;
		mid = memchr(text, '=', (size_t)(stop - text));
		if (!mid)
			return lab_error(error, "'%.*s' is not key=value", (int)(stop - text),
					 text);
		before = config->n;
		rc = set(config, text, (size_t)(mid - text), mid + 1, (size_t)(stop - mid - 1),
			 error);
		if (rc)
			return rc;
		if (config->n == before)
			return lab_error(error, "%.*s is there twice", (int)(mid - text), text);
		text = stop + 1;
	}
	return 0;
}

int config_uint(const struct config *config, const char *key, uint64_t absent, uint64_t min,
		uint64_t max, uint64_t *out, struct lab_error *error)
{
	const char *text = config_get(config, key);
	unsigned long long n;
	char *end;

	if (!text) {
		*out = absent;
		return 0;
	}
	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < min || n > max)
		return lab_error(error, "%s=%s is not a number of %llu to %llu", key, text,
				 (unsigned long long)min, (unsigned long long)max);
	*out = n;
	return 0;
}

int config_numbers(const struct config *config, const struct config_number *numbers, size_t n,
		   struct lab_error *error)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		rc = config_uint(config, numbers[i].key, numbers[i].absent, numbers[i].min,
				 numbers[i].max, numbers[i].out, error);
	return rc;
}

int config_each(const struct config *config, bool *out, struct lab_error *error)
{
	const char *procs = config_get(config, "procs");

	if (procs && strcmp(procs, "each"))
		return lab_error(error, "procs=%s is not 'each'", procs);
	*out = procs != NULL;
	return 0;
}

int config_known(const struct config *config, const char *const *keys, size_t n, const char *layer,
		 struct lab_error *error)
{
	for (unsigned i = 0; i < config->n; i++) {
		size_t k = 0;

		while (k < n && strcmp(config->pair[i].key, keys[k]))
			k++;
		if (k == n)
			return lab_error(error, "key '%s' is not known to the layer %s",
					 config->pair[i].key, layer);
	}
	return 0;
}

bool list_next(const char **list, char *out, size_t size)
{
	const char *text = *list;
	size_t len, keep;

	if (!text)
		return false;
	len = strcspn(text, ",");
	keep = len < size ? len : size - 1;
	memcpy(out, text, keep);
	out[keep] = '\0';
	*list = text[len] ? text + len + 1 : NULL;
	return true;
}
