/* SPDX-License-Identifier: MIT */
/* Reading the list of figures. A line that is not understood is named, with its field. */
#include "paper.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum column {
	ID,
	KIND,
	LAYER,
	PROFILE,
	PRESET,
	CONFIG,
	METRIC,
	UNIT,
	OP,
	VALUE,
	TOL,
	RUN,
	SOURCE,
	NOTE,
	COLUMNS
};

static const char *const names[COLUMNS] = {
	"id",	"kind", "layer", "profile", "preset", "config", "metric",
	"unit", "op",	"value", "tol_pct", "run",    "source", "note",
};

static const char *const ops[] = {
	[PAPER_EQUAL] = "=",	 [PAPER_AT_MOST] = "<=", [PAPER_AT_LEAST] = ">=",
	[PAPER_ORDER] = "order", [PAPER_PEAK] = "peak",
};

#define OPS (sizeof(ops) / sizeof(ops[0]))

const char *paper_op_text(enum paper_op op)
{
	return ops[op];
}

/* ---- one line ---- */

/* Ends the fields of a line in place. */
static int split(char *line, char *fields[COLUMNS], struct lab_error *error)
{
	unsigned n = 1;

	fields[0] = line;
	for (char *at = line; (at = strchr(at, '\t')); n++) {
		*at++ = '\0';
		if (n < COLUMNS)
			fields[n] = at;
	}
	if (n != COLUMNS)
		return lab_error(error, "%u fields instead of %u", n, (unsigned)COLUMNS);
	for (unsigned i = 0; i < COLUMNS; i++)
		if (!*fields[i])
			return lab_error(error, "%s: is empty; \"-\" means none", names[i]);
	return 0;
}

static int parse_number(const char *field, const char *text, double *out, struct lab_error *error)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end || !isfinite(value))
		return lab_error(error, "%s: '%s' is not a number", field, text);
	*out = value;
	return 0;
}

static int parse_op(struct paper_line *line, const char *text, struct lab_error *error)
{
	for (unsigned i = 0; i < OPS; i++) {
		if (!strcmp(text, ops[i])) {
			line->op = (enum paper_op)i;
			return 0;
		}
	}
	return lab_error(error, "op: '%s' is not one of = <= >= order peak", text);
}

static int parse_run(struct paper_line *line, const char *text, struct lab_error *error)
{
	if (!strcmp(text, "yes"))
		return 0;
	if (strncmp(text, "no:", 3) || !text[3])
		return lab_error(error, "run: '%s' is neither yes nor no:REASON", text);
	line->no = text + 3;
	return 0;
}

static int parse_line(struct paper_line *line, char *text, struct lab_error *error)
{
	struct lab_error why;
	char *f[COLUMNS];
	int rc = split(text, f, error);

	if (rc)
		return rc;
	*line = (struct paper_line){
		.number = line->number,
		.id = f[ID],
		.kind = f[KIND][0],
		.layer = f[LAYER],
		.profile = f[PROFILE],
		.preset = f[PRESET],
		.metric = f[METRIC],
		.unit = f[UNIT],
		.value = f[VALUE],
		.source = f[SOURCE],
		.note = f[NOTE],
	};
	if (strcmp(f[KIND], "C") && strcmp(f[KIND], "P"))
		return lab_error(error, "kind: '%s' is neither C nor P", f[KIND]);
	if (config_parse(&line->config, f[CONFIG], strlen(f[CONFIG]), &why))
		return lab_error(error, "config: %s", why.text);
	rc = parse_op(line, f[OP], error);
	if (!rc && line->op != PAPER_ORDER)
		rc = parse_number("value", f[VALUE], &line->number_value, error);
	if (!rc)
		rc = parse_number("tol_pct", f[TOL], &line->tol_pct, error);
	if (!rc && line->tol_pct < 0)
		rc = lab_error(error, "tol_pct: '%s' is negative", f[TOL]);
	if (!rc)
		rc = parse_run(line, f[RUN], error);
	return rc;
}

/* ---- what lines say about themselves and each other ---- */

static bool is_line(const struct paper *paper, const char *id)
{
	return paper_find(paper, id) != NULL;
}

static int check_over(const struct paper *paper, const char *over, struct lab_error *error)
{
	struct config scratch = {0};
	struct lab_error why;

	if (strchr(over, ':')) {
		if (config_change(&scratch, over, &why))
			return lab_error(error, "config: over=%s: %s", over, why.text);
		return 0;
	}
	if (strcmp(over, "READ6") && strcmp(over, "READ6x2") && !is_line(paper, over))
		return lab_error(error, "config: over=%s is neither a line nor KEY:VALUE", over);
	return 0;
}

static int check_order(const struct paper *paper, const struct paper_line *line,
		       struct lab_error *error)
{
	const char *among = config_get(&line->config, "among"), *list = line->value;
	char item[CONFIG_VALUE_MAX];

	if (!among)
		return lab_error(error, "config: an order needs among=");
	if (!strchr(list, ','))
		return lab_error(error, "value: '%s' is no list to put in order", list);
	while (!strcmp(among, "line") && list_next(&list, item, sizeof(item)))
		if (strcmp(item, "self") && !is_line(paper, item))
			return lab_error(error, "value: there is no line '%s'", item);
	return 0;
}

static int check_line(const struct paper *paper, const struct paper_line *line,
		      struct lab_error *error)
{
	const char *over = config_get(&line->config, "over");
	const char *vary = config_get(&line->config, "vary"), *list;
	char key[CONFIG_KEY_MAX];
	struct lab_error why;
	int rc = 0;

	if (paper_find(paper, line->id) != line)
		return lab_error(error, "id: %s is there twice", line->id);
	if (line->no) /* what cannot run may speak of what nobody understands */
		return 0;
	if (over)
		rc = check_over(paper, over, error);
	if (!rc && vary && config_vary(&line->config, key, &list, &why))
		rc = lab_error(error, "config: %.200s", why.text);
	if (!rc && line->op == PAPER_PEAK && !vary)
		rc = lab_error(error, "config: a peak needs vary=");
	if (!rc && line->op == PAPER_ORDER)
		rc = check_order(paper, line, error);
	return rc;
}

/* ---- the whole ---- */

static int located(const struct paper_line *line, const struct lab_error *why,
		   struct lab_error *error)
{
	return lab_error(error, "line %u: %.200s", line->number, why->text);
}

static int add_line(struct paper *paper, char *text, unsigned number, struct lab_error *error)
{
	struct lab_error why;
	struct paper_line *lines =
		reallocarray(paper->lines, paper->n + 1, sizeof(paper->lines[0]));

	if (!lines)
		return -ENOMEM;
	paper->lines = lines;
	lines[paper->n].number = number;
	if (parse_line(&lines[paper->n], text, &why))
		return located(&lines[paper->n], &why, error);
	paper->n++;
	return 0;
}

static int parse_lines(struct paper *paper, struct lab_error *error)
{
	unsigned number = 0;
	struct lab_error why;
	int rc;

	for (char *text = paper->text, *next; text; text = next) {
		next = strchr(text, '\n');
		if (next)
			*next++ = '\0';
		number++;
		if (!*text || *text == '#' || !strncmp(text, "id\t", 3))
			continue;
		rc = add_line(paper, text, number, error);
		if (rc)
			return rc;
	}
	for (unsigned i = 0; i < paper->n; i++)
		if (check_line(paper, &paper->lines[i], &why))
			return located(&paper->lines[i], &why, error);
	return paper->n ? 0 : lab_error(error, "no lines in it");
}

int paper_parse(struct paper *paper, const char *text, size_t len, struct lab_error *error)
{
	int rc;

	*paper = (struct paper){0};
	if (memchr(text, '\0', len))
		return lab_error(error, "a zero byte: not a text");
	paper->text = malloc(len + 1);
	if (!paper->text)
		return lab_error(error, "no memory for %zu bytes", len);
	memcpy(paper->text, text, len);
	paper->text[len] = '\0';
	rc = parse_lines(paper, error);
	if (rc == -ENOMEM)
		lab_error(error, "no memory for its lines");
	if (rc)
		paper_free(paper);
	return rc;
}

int paper_read(struct paper *paper, const char *file, struct lab_error *error)
{
	FILE *f = fopen(file, "re");
	char *text = NULL;
	size_t len = 0, got;
	int rc;

	if (!f)
		return lab_error(error, "%s", strerror(errno));
	do {
		char *more = realloc(text, len + 65536);

		if (!more) {
			rc = lab_error(error, "no memory for %zu bytes", len + 65536);
			goto done;
		}
		text = more;
		got = fread(text + len, 1, 65536, f);
		len += got;
	} while (got);
	rc = ferror(f) ? lab_error(error, "%s", strerror(errno)) :
			 paper_parse(paper, text, len, error);
done:
	free(text);
	fclose(f);
	return rc;
}

void paper_free(struct paper *paper)
{
	free(paper->lines);
	free(paper->text);
	*paper = (struct paper){0};
}

const struct paper_line *paper_find(const struct paper *paper, const char *id)
{
	for (unsigned i = 0; i < paper->n; i++)
		if (!strcmp(paper->lines[i].id, id))
			return &paper->lines[i];
	return NULL;
}
