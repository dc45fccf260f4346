/* SPDX-License-Identifier: MIT */
/*
 * Reads callgrind's file. What a function does itself is in lines of position and cost behind its
 * name, and a call is three lines: who is called, how often, and what it cost:
 *
 *     fn=NAME
 *     POSITION COST
 *     cfn=NAME
 *     calls=COUNT TARGET
 *     POSITION COST
 */
#include "count_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool starts_with(const char *line, const char *word, const char **rest)
{
	const size_t len = strlen(word);

	*rest = line + len;
	return !strncmp(line, word, len);
}

static struct count_function *file_find(struct count_function *functions, unsigned n,
					const char *name)
{
	const size_t len = strcspn(name, "\n");

	for (unsigned i = 0; i < n; i++)
		if (strlen(functions[i].name) == len && !strncmp(functions[i].name, name, len))
			return &functions[i];
	return NULL;
}

int count_file_read(FILE *f, struct count_function *functions, unsigned n)
{
	struct count_function *called = NULL, *inside = NULL;
	bool events = false, cost_follows = false;
	const char *rest, *number;
	char *line = NULL;
	size_t room = 0;
	int rc = 0;

	while (!rc && getline(&line, &room, f) >= 0) {
		if (cost_follows) {
			cost_follows = false;
			number = strrchr(line, ' '); /* behind one position or two */
			if (!number)
				rc = -EBADMSG;
			else if (called)
				called->instructions += strtoull(number, NULL, 10);
		} else if (starts_with(line, "events: Ir", &rest)) {
			events = true;
		} else if (inside && strchr("0123456789+-*", line[0])) {
			number = strrchr(line, ' ');
			if (number)
				inside->self += strtoull(number, NULL, 10);
		} else if (starts_with(line, "fn=", &rest)) {
			inside = file_find(functions, n, rest);
		} else if (starts_with(line, "cfn=", &rest)) {
			called = file_find(functions, n, rest);
		} else if (starts_with(line, "calls=", &rest)) {
			cost_follows = true;
			if (called)
				called->calls += strtoull(rest, NULL, 10);
		}
	}
	free(line);
	return rc ? rc : ferror(f) ? -EIO : events ? 0 : -EBADMSG;
}
