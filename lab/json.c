/* SPDX-License-Identifier: MIT */
/* Flat JSON objects, read and written. */
#include "json.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where reading stands. */
struct reader {
	const char *at, *end;
	struct json *json;
	const char *wrong;
};

static bool fail(struct reader *r, const char *what)
{
	if (!r->wrong)
		r->wrong = what;
	return false;
}

static void skip_blanks(struct reader *r)
{
	while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r'))
		r->at++;
}

static bool take(struct reader *r, char c)
{
	skip_blanks(r);
	if (r->at == r->end || *r->at != c)
		return false;
	r->at++;
	return true;
}

/* ---- texts ---- */

static bool put(struct reader *r, unsigned byte)
{
	struct json *j = r->json;

	if (j->used == sizeof(j->text))
		return fail(r, "more text than a line of results has");
	j->text[j->used++] = (char)byte;
	return true;
}

static bool put_utf8(struct reader *r, unsigned code)
{
	if (code < 0x80)
		return put(r, code);
	if (code < 0x800)
		return put(r, 0xc0 | code >> 6) && put(r, 0x80 | (code & 0x3f));
	if (code < 0x10000)
		return put(r, 0xe0 | code >> 12) && put(r, 0x80 | (code >> 6 & 0x3f)) &&
		       put(r, 0x80 | (code & 0x3f));
	return put(r, 0xf0 | code >> 18) && put(r, 0x80 | (code >> 12 & 0x3f)) &&
	       put(r, 0x80 | (code >> 6 & 0x3f)) && put(r, 0x80 | (code & 0x3f));
}

static bool hex4(struct reader *r, unsigned *out)
{
	unsigned code = 0;

	if (r->end - r->at < 4)
		return fail(r, "a \\u without four digits");
	for (int i = 0; i < 4; i++, r->at++) {
		const int c = tolower((unsigned char)*r->at);

		if (!isxdigit(c))
			return fail(r, "a \\u without four digits");
		code = code * 16 + (unsigned)(isdigit(c) ? c - '0' : c - 'a' + 10);
	}
	*out = code;
	return true;
}

static bool escape_u(struct reader *r)
{
	unsigned code, low;

	if (!hex4(r, &code))
		return false;
	if (code >= 0xd800 && code < 0xdc00) {
		if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
			return fail(r, "half of a surrogate pair");
		r->at += 2;
		if (!hex4(r, &low))
			return false;
		if (low < 0xdc00 || low > 0xdfff)
			return fail(r, "half of a surrogate pair");
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	} else if (code >= 0xdc00 && code < 0xe000) {
		return fail(r, "half of a surrogate pair");
	}
	return code ? put_utf8(r, code) : fail(r, "a zero in a text");
}

static bool escape(struct reader *r)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found;

	if (r->at == r->end)
		return fail(r, "a text without an end");
	if (*r->at == 'u') {
		r->at++;
		return escape_u(r);
	}
	found = *r->at ? strchr(from, *r->at) : NULL;
	if (!found)
		return fail(r, "an escape that there is not");
	r->at++;
	return put(r, (unsigned char)to[found - from]);
}

static bool string(struct reader *r, const char **out)
{
	const size_t start = r->json->used;

	if (!take(r, '"'))
		return fail(r, "no text where one belongs");
	for (;;) {
		unsigned char c;

		if (r->at == r->end)
			return fail(r, "a text without an end");
		c = (unsigned char)*r->at++;
		if (c == '"')
			break;
		if (c < 0x20)
			return fail(r, "a control character in a text");
		if (c == '\\' ? !escape(r) : !put(r, c))
			return false;
	}
	*out = r->json->text + start;
	return put(r, '\0');
}

/* ---- the other values ---- */

static bool digits(struct reader *r)
{
	const char *start = r->at;

	while (r->at < r->end && isdigit((unsigned char)*r->at))
		r->at++;
	return r->at > start;
}

static bool number(struct reader *r, double *out)
{
	const char *start = r->at;
	char text[64];
	size_t len;

	if (r->at < r->end && *r->at == '-')
		r->at++;
	if (r->at < r->end && *r->at == '0')
		r->at++;
	else if (!digits(r))
		return fail(r, "a value that is none");
	if (r->at < r->end && *r->at == '.') {
		r->at++;
		if (!digits(r))
			return fail(r, "a number without its digits");
	}
	if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
		r->at++;
		if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
			r->at++;
		if (!digits(r))
			return fail(r, "a number without its digits");
	}
	len = (size_t)(r->at - start);
	if (len >= sizeof(text))
		return fail(r, "a number of too many digits");
	memcpy(text, start, len);
	text[len] = '\0';
	*out = strtod(text, NULL);
	return true;
}

static bool word(struct reader *r, const char *text)
{
	const size_t len = strlen(text);

	if ((size_t)(r->end - r->at) < len || memcmp(r->at, text, len))
		return false;
	r->at += len;
	return true;
}

static bool scalar(struct reader *r, struct json_field *field)
{
	skip_blanks(r);
	field->number = 0;
	field->text = NULL;
	if (r->at == r->end)
		return fail(r, "a line that ends in the middle");
	if (*r->at == '"') {
		field->type = JSON_STRING;
		return string(r, &field->text);
	}
	if (word(r, "null")) {
		field->type = JSON_NULL;
		return true;
	}
	if (word(r, "true") || word(r, "false")) {
		field->type = JSON_BOOL;
		field->number = r->at[-2] == 'u';
		return true;
	}
	field->type = JSON_NUMBER;
	return number(r, &field->number);
}

static bool array(struct reader *r, struct json_field *field)
{
	const char *start = r->at;
	struct json_field item;
	size_t used;

	if (!take(r, ']')) {
		do {
			used = r->json->used;
			if (!scalar(r, &item))
				return false;
			r->json->used = used; /* it was looked at, and is kept below */
		} while (take(r, ','));
		if (!take(r, ']'))
			return fail(r, "an array without an end");
	}
	field->type = JSON_ARRAY;
	field->text = r->json->text + r->json->used;
	for (; start < r->at - 1; start++)
		if (!put(r, (unsigned char)*start))
			return false;
	return put(r, '\0');
}

/* OUTER.KEY of what is inside an object, KEY of what is not. */
static bool key_of(struct reader *r, const char *outer, const char **out)
{
	const size_t start = r->json->used;
	const char *rest;

	for (const char *c = outer; c && *c; c++)
		if (!put(r, (unsigned char)*c))
			return false;
	if ((outer && !put(r, '.')) || !string(r, &rest))
		return false;
	*out = r->json->text + start;
	return true;
}

static bool members(struct reader *r, const char *outer);

static bool member(struct reader *r, const char *outer)
{
	struct json *j = r->json;
	struct json_field field;

	if (!key_of(r, outer, &field.key))
		return false;
	if (!take(r, ':'))
		return fail(r, "a key without a value");
	if (json_field(j, field.key))
		return fail(r, "a key that is there twice");
	if (!outer && take(r, '{'))
		return members(r, field.key);
	if (take(r, '[') ? !array(r, &field) : !scalar(r, &field))
		return false;
	if (j->n == JSON_FIELDS_MAX)
		return fail(r, "more fields than a line of results has");
	j->field[j->n++] = field;
	return true;
}

/* All of an object, after its first brace. */
static bool members(struct reader *r, const char *outer)
{
	if (take(r, '}'))
		return true;
	do {
		skip_blanks(r);
		if (!member(r, outer))
			return false;
	} while (take(r, ','));
	return take(r, '}') || fail(r, r->at == r->end ? "a line that ends in the middle" :
							 "no comma between two fields");
}

const char *json_parse(struct json *json, const char *line, size_t len)
{
	struct reader r = {.at = line, .end = line + len, .json = json};

	json->n = 0;
	json->used = 0;
	if (!take(&r, '{'))
		return "not a JSON object";
	if (!members(&r, NULL))
		return r.wrong;
	skip_blanks(&r);
	return r.at == r.end ? NULL : "something after the object";
}

ssize_t json_line(FILE *f, char line[JSON_LINE_MAX], bool *ended)
{
	size_t len = 0;
	int c;

	while ((c = getc(f)) != EOF && c != '\n')
		if (len < JSON_LINE_MAX)
			line[len++] = (char)c;
	if (c == EOF && !len)
		return -1;
	*ended = c == '\n';
	return (ssize_t)len;
}

/* ---- what is in it ---- */

const struct json_field *json_field(const struct json *json, const char *key)
{
	for (unsigned i = 0; i < json->n; i++)
		if (!strcmp(json->field[i].key, key))
			return &json->field[i];
	return NULL;
}

const char *json_text(const struct json *json, const char *key)
{
	const struct json_field *field = json_field(json, key);

	return field && field->type == JSON_STRING ? field->text : NULL;
}

bool json_number(const struct json *json, const char *key, double *out)
{
	const struct json_field *field = json_field(json, key);

	if (!field || field->type != JSON_NUMBER)
		return false;
	*out = field->number;
	return true;
}

/* ---- writing ---- */

void json_put_text(FILE *f, const char *key, const char *value)
{
	fprintf(f, "\"%s\":\"", key);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		fputc((unsigned char)*value < 0x20 ? ' ' : *value, f);
	}
	fputs("\",", f);
}

void json_put_number(FILE *f, const char *key, double value)
{
	if (isfinite(value))
		fprintf(f, "\"%s\":%.9g,", key, value);
	else
		fprintf(f, "\"%s\":null,", key);
}

void json_put_count(FILE *f, const char *key, uint64_t value)
{
	fprintf(f, "\"%s\":%llu,", key, (unsigned long long)value);
}
