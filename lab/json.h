/* SPDX-License-Identifier: MIT */
/*
 * Result files: one JSON object a line, flat or nearly so. Read strictly and within bounds, because
 * a file may be half written, or be something else.
 */
#ifndef GN_LAB_JSON_H
#define GN_LAB_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define JSON_FIELDS_MAX 64u
#define JSON_TEXT_MAX	16384u

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY };

/* Texts point into the object itself: it is not to be copied. */
struct json {
	unsigned n;
	struct json_field {
		const char *key;
		enum json_type type;
		double number;	  /* of a number; 0 or 1 of a bool */
		const char *text; /* of a string; of an array as it stands, without the brackets */
	} field[JSON_FIELDS_MAX];
	char text[JSON_TEXT_MAX];
	size_t used;
};

/*
 * One object of len bytes, and nothing after it but blanks. Values are scalars, arrays of scalars,
 * or objects of these, whose fields are named OUTER.KEY. NULL, or what is wrong, in a few words.
 */
const char *json_parse(struct json *json, const char *line, size_t len);

/*
 * The next line of a file, without its end: its length, -1 when there is none. What is longer than
 * an object may be is cut; *ended: a newline came after it, or
 * after the last there was.
 */
#define JSON_LINE_MAX (2 * JSON_TEXT_MAX)
ssize_t json_line(FILE *f, char line[JSON_LINE_MAX], bool *ended);

/* NULL and false: there is no such field, or it is of another type. */
const char *json_text(const struct json *json, const char *key);
bool json_number(const struct json *json, const char *key, double *out);
const struct json_field *json_field(const struct json *json, const char *key);

/* Writing: "key":value, with a comma after it. A number that is none is null. */
void json_put_text(FILE *f, const char *key, const char *value);
void json_put_number(FILE *f, const char *key, double value);
void json_put_count(FILE *f, const char *key, uint64_t value);

#endif
