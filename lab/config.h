/* SPDX-License-Identifier: MIT */
/*
 * A configuration as the list of figures writes it: key=value;key=value. Small and copied by value,
 * so that one with a key changed is made without asking for memory.
 */
#ifndef GN_LAB_CONFIG_H
#define GN_LAB_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_PAIRS_MAX 24u
#define CONFIG_KEY_MAX	 32u
#define CONFIG_VALUE_MAX 96u
#define LAB_ERROR_MAX	 256u

/* What went wrong, as one line without a newline. */
struct lab_error {
	char text[LAB_ERROR_MAX];
};

/* Returns -EINVAL, for the caller to return in turn. */
int lab_error(struct lab_error *error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct config {
	unsigned n;
	struct {
		char key[CONFIG_KEY_MAX], value[CONFIG_VALUE_MAX];
	} pair[CONFIG_PAIRS_MAX];
};

/* text is len bytes of key=value;…, or "-" for none. -EINVAL and error: says what is wrong. */
int config_parse(struct config *config, const char *text, size_t len, struct lab_error *error);

/* NULL when it has no such key. */
const char *config_get(const struct config *config, const char *key);
bool config_is(const struct config *config, const char *key, const char *value);
int config_set(struct config *config, const char *key, const char *value, struct lab_error *error);

/* A whole number of min to max; without the key, the one given. */
int config_uint(const struct config *config, const char *key, uint64_t absent, uint64_t min,
		uint64_t max, uint64_t *out, struct lab_error *error);
struct config_number {
	const char *key;
	uint64_t absent, min, max, *out;
};
int config_numbers(const struct config *config, const struct config_number *numbers, size_t n,
		   struct lab_error *error);

/* procs=each: is it there? */
int config_each(const struct config *config, bool *out, struct lab_error *error);

/* Does a layer know all the keys that config has? -EINVAL and error: one that it does not. */
int config_known(const struct config *config, const char *const *keys, size_t n, const char *layer,
		 struct lab_error *error);

/* The next element of a list "a,b,c": false at its end. *list moves on. */
bool list_next(const char **list, char *out, size_t size);

#endif
