/* SPDX-License-Identifier: MIT */
/*
 * The file of a tuning: lines of a name and numbers, separated by tabs. Every name must occur once,
 * and no other; R and Tx come last, so that a truncated file is detected. Lines that begin with #
 * are comments.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/sized.h"
#include "gannet/rpc.h"

#define MAGIC	    "gannet-rpc-tuning"
#define VERSION	    1u
#define LINE_BYTES  512u
#define NUMBERS_MAX (GN_RPC_TUNING_SIZES + 1)

struct reader {
	const char *path;
	unsigned line;
	bool has_magic, has_retries, has_switch;
	struct gn_rpc_tuning tuning;
};

static int tuning_wrong(const struct reader *r, const char *what, const char *value)
{
	return gn_fail_log(-EINVAL,
			   "%s, line %u: %s: '%s'; gannet rpc tune --out writes such a file",
			   r->path, r->line, what, value);
}

/* Parses the numbers after a line's name. Returns how many there are, or an error. */
static int parse_numbers(const struct reader *r, char **rest, uint32_t *numbers)
{
	char *word, *end;
	int n = 0;

	while ((word = strsep(rest, "\t"))) {
		const unsigned long long value = strtoull(word, &end, 10);

		if (*word < '0' || *word > '9' || *end || value > UINT32_MAX)
			return tuning_wrong(r, "not a number", word);
		if (n == NUMBERS_MAX)
			return tuning_wrong(r, "one number too many", word);
		numbers[n++] = (uint32_t)value;
	}
	return n;
}

static int tuning_take_bytes(struct reader *r, const uint32_t *numbers, int n)
{
	struct gn_rpc_tuning *t = &r->tuning;

	if (t->n_sizes || n < 1 || n > (int)GN_RPC_TUNING_SIZES)
		return tuning_wrong(r, "a second line of this name, or not 1 to 16 sizes", "bytes");
	memcpy(t->bytes, numbers, (size_t)n * sizeof(*numbers));
	t->n_sizes = (uint32_t)n;
	return 0;
}

static int tuning_take_rate(struct reader *r, const uint32_t *numbers, int n)
{
	struct gn_rpc_tuning *t = &r->tuning;

	if (t->n_retries == GN_RPC_TUNING_RETRIES || n < 1 || numbers[0] != t->n_retries + 1)
		return tuning_wrong(r, "its first number must count 1, 2, … 8", "rate");
	if ((uint32_t)n != t->n_sizes + 1)
		return tuning_wrong(r, "needs as many numbers behind the first as there are bytes",
				    "rate");
	memcpy(t->rate[t->n_retries++], numbers + 1, ((size_t)n - 1) * sizeof(*numbers));
	return 0;
}

static int tuning_take_single(struct reader *r, const char *name, bool *has,
			      const uint32_t *numbers, int n, uint32_t *out)
{
	if (*has || n != 1)
		return tuning_wrong(r, "a second line of this name, or not one number", name);
	*has = true;
	*out = numbers[0];
	return 0;
}

static int tuning_take_line(struct reader *r, char *line)
{
	uint32_t numbers[NUMBERS_MAX], version = 0;
	char *rest = line;
	const char *name = strsep(&rest, "\t");
	const int n = parse_numbers(r, &rest, numbers);

	if (n < 0)
		return n;
	if (!strcmp(name, MAGIC)) {
		const int rc = tuning_take_single(r, name, &r->has_magic, numbers, n, &version);

		return rc || version == VERSION ? rc : tuning_wrong(r, "not version 1 of", name);
	}
	if (!r->has_magic)
		return tuning_wrong(r, "must begin with " MAGIC " and not with", name);
	if (!strcmp(name, "bytes"))
		return tuning_take_bytes(r, numbers, n);
	if (!strcmp(name, "rate"))
		return tuning_take_rate(r, numbers, n);
	if (!strcmp(name, "retries"))
		return tuning_take_single(r, name, &r->has_retries, numbers, n, &r->tuning.retries);
	if (!strcmp(name, "switch_us"))
		return tuning_take_single(r, name, &r->has_switch, numbers, n,
					  &r->tuning.switch_us);
	return tuning_wrong(r, "no such name", name);
}

/* Checks the values of a file or a caller. NULL: valid. */
static const char *tuning_invalid(const struct gn_rpc_tuning *t)
{
	if (t->retries < 1 || t->retries > UINT16_MAX)
		return "retries is not from 1 to 65535";
	if (t->switch_us > UINT16_MAX) /* the most that a server can report */
		return "switch_us is more than 65535";
	if (t->n_sizes < 1 || t->n_sizes > GN_RPC_TUNING_SIZES)
		return "bytes has not 1 to 16 sizes";
	if (t->n_retries < 1 || t->n_retries > GN_RPC_TUNING_RETRIES)
		return "rate has not 1 to 8 lines";
	for (uint32_t i = 0; i < t->n_sizes; i++)
		if (t->bytes[i] < 1 || t->bytes[i] > GN_RPC_BYTES_MAX ||
		    (i && t->bytes[i] <= t->bytes[i - 1]))
			return "bytes are not ascending, from 1 to 1048576";
	return NULL;
}

static int tuning_read_lines(struct reader *r, FILE *f)
{
	char line[LINE_BYTES];
	int rc = 0;

	while (!rc && fgets(line, sizeof(line), f)) {
		char *end = strchr(line, '\n');

		r->line++;
		if (!end)
			return tuning_wrong(r, "does not end, or is too long", line);
		*end = '\0';
		if (line[0] && line[0] != '#')
			rc = tuning_take_line(r, line);
	}
	if (!rc && ferror(f))
		rc = -EIO;
	return rc;
}

int gn_rpc_tuning_read(const char *path, struct gn_rpc_tuning *out)
{
	struct reader r = {.path = path};
	const char *why;
	FILE *f;
	int rc;

	if (!path || !out)
		return gn_fail(-EINVAL, "gn_rpc_tuning_read(): path is NULL, or out is NULL");
	f = fopen(path, "re");
	if (!f) {
		rc = -errno;
		return gn_fail_log(rc, "cannot read the tuning %s: %s", path, gn_strerror(rc));
	}
	rc = tuning_read_lines(&r, f);
	fclose(f);
	if (rc)
		return rc;
	if (!r.has_magic || !r.has_switch || !r.has_retries)
		return tuning_wrong(&r, "the file ends before", "retries and switch_us");
	why = tuning_invalid(&r.tuning);
	if (why)
		return tuning_wrong(&r, "cannot be", why);
	return SIZED_WRITE(out, &r.tuning, "gn_rpc_tuning");
}

static void print_row(FILE *f, const uint32_t *numbers, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		fprintf(f, "\t%u", numbers[i]);
	fputc('\n', f);
}

int gn_rpc_tuning_write(const char *path, const struct gn_rpc_tuning *given)
{
	struct gn_rpc_tuning tuning = {.size = sizeof(tuning)}, *t = &tuning;
	const char *why;
	int rc = SIZED_READ(t, given, "gn_rpc_tuning");
	FILE *f;

	if (rc)
		return rc;
	why = path && given ? tuning_invalid(t) : "no path or no tuning";
	if (why)
		return gn_fail_log(-EINVAL, "cannot write the tuning: %s", why);
	f = fopen(path, "we");
	if (!f)
		return -errno;
	fprintf(f, MAGIC "\t%u\n# rate R: calls per millisecond with R fetches each, for bytes\n",
		VERSION);
	fprintf(f, "bytes");
	print_row(f, t->bytes, t->n_sizes);
	for (uint32_t i = 0; i < t->n_retries; i++) {
		fprintf(f, "rate\t%u", i + 1);
		print_row(f, t->rate[i], t->n_sizes);
	}
	fprintf(f, "retries\t%u\nswitch_us\t%u\n", t->retries, t->switch_us);
	if (ferror(f))
		rc = -EIO;
	if (fclose(f) && !rc)
		rc = -errno;
	return rc;
}
