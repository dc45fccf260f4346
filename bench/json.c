/* SPDX-License-Identifier: MIT */
/*
 * Members of JSON objects, and sheets of figures.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "bench.h"

void bench_json_string(FILE *f, const char *key, const char *value)
{
	fprintf(f, "\"%s\":\"", key);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		fputc((unsigned char)*value < 0x20 ? ' ' : *value, f);
	}
	fputs("\",", f);
}

void bench_json_number(FILE *f, const char *key, double value, int digits)
{
	if (isfinite(value))
		fprintf(f, "\"%s\":%.*f,", key, digits, value);
	else
		fprintf(f, "\"%s\":null,", key);
}

void bench_json_count(FILE *f, const char *key, bool known, uint64_t value)
{
	if (known)
		fprintf(f, "\"%s\":%" PRIu64 ",", key, value);
	else
		fprintf(f, "\"%s\":null,", key);
}

/* ---- sheets ---- */

void sheet_text(struct bench_sheet *s, const char *name, const char *text)
{
	assert(s->n < BENCH_SHEET_MAX);
	s->cell[s->n].name = name;
	s->cell[s->n++].text = text;
}

void sheet_number(struct bench_sheet *s, const char *name, double value, int digits)
{
	assert(s->n < BENCH_SHEET_MAX);
	s->cell[s->n].name = name;
	s->cell[s->n].text = NULL;
	s->cell[s->n].value = value;
	s->cell[s->n++].digits = digits;
}

void sheet_count(struct bench_sheet *s, const char *name, uint64_t count)
{
	s->cell[s->n].count = count;
	sheet_number(s, name, (double)count, SHEET_COUNT);
}

void sheet_members(FILE *f, const struct bench_sheet *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		if (s->cell[i].text)
			bench_json_string(f, s->cell[i].name, s->cell[i].text);
		else if (s->cell[i].digits == SHEET_COUNT)
			bench_json_count(f, s->cell[i].name, true, s->cell[i].count);
		else
			bench_json_number(f, s->cell[i].name, s->cell[i].value, s->cell[i].digits);
	}
}

void sheet_json(FILE *f, const struct bench_sheet *s, const int cpus[2])
{
	fputc('{', f);
	sheet_members(f, s);
	fprintf(f, "\"cpus\":[%d,%d]}\n", cpus[0], cpus[1]);
	fflush(f);
}

void sheet_lines(FILE *f, const struct bench_sheet *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		if (s->cell[i].text)
			fprintf(f, "%s\t%s\n", s->cell[i].name, s->cell[i].text);
		else if (s->cell[i].digits == SHEET_COUNT)
			fprintf(f, "%s\t%" PRIu64 "\n", s->cell[i].name, s->cell[i].count);
		else if (isfinite(s->cell[i].value))
			fprintf(f, "%s\t%.*f\n", s->cell[i].name, s->cell[i].digits,
				s->cell[i].value);
		else
			fprintf(f, "%s\t-\n", s->cell[i].name);
	}
	fflush(f);
}
