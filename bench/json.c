/* SPDX-License-Identifier: MIT */
/*
 * Members of JSON objects.
 */
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

void bench_json_cells(FILE *f, const struct bench_cell *cells, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (cells[i].text)
			bench_json_string(f, cells[i].name, cells[i].text);
		else
			bench_json_number(f, cells[i].name, cells[i].value, cells[i].digits);
	}
}
