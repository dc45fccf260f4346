/* SPDX-License-Identifier: MIT */
/*
 * The environment. The program may bring a getenv() of its own (bash does), and its setenv() moves
 * the environment to paged memory, so threads of the island read a copy.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"

static char **copy; /* to a NULL; NULL: not made yet */

/* What libgannet and jemalloc call: -Wl,--wrap. */
char *wrap_getenv(const char *name) __asm__("__wrap_getenv");

static char **env_find(char **env, const char *name)
{
	const size_t len = strlen(name);

	for (; env && *env; env++)
		if (!strncmp(*env, name, len) && (*env)[len] == '=')
			return env;
	return NULL;
}

char *wrap_getenv(const char *name)
{
	char **at = env_find(copy ? copy : environ, name);

	return at ? strchr(*at, '=') + 1 : NULL;
}

int env_copy(void)
{
	size_t n = 0;
	char **made;

	while (environ && environ[n])
		n++;
	made = calloc(n + 1, sizeof(*made));
	for (size_t i = 0; made && i < n; i++) {
		made[i] = strdup(environ[i]);
		if (!made[i])
			return -ENOMEM;
	}
	copy = made;
	return made ? 0 : -ENOMEM;
}

const char *env_get(const char *name)
{
	return wrap_getenv(name);
}

void env_set(const char *name, const char *value)
{
	char **at = env_find(environ, name), *text;

	if (!at)
		return;
	if (value) {
		if (asprintf(&text, "%s=%s", name, value) >= 0)
			*at = text; /* stays: the program has it */
		return;
	}
	for (; *at; at++)
		at[0] = at[1];
}
