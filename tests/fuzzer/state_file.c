/* SPDX-License-Identifier: MIT */
/*
 * The state file of a campaign: the options in its first line, then a line of numbers for each seed
 * that is done. A line is written by one write(); the last line may be incomplete, and is dropped.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "campaign.h"
#include "cmd.h"

#define HEAD_MAX       (FUZZ_PROFILE_MAX + 2 * FUZZ_TEXT_MAX + 64)
#define LINE_MAX_BYTES 4096

static void state_file_head(const struct campaign *c, char *to, size_t size)
{
	const struct fuzz_opts *o = &c->fuzz;

	snprintf(to, size, "fabric-fuzzer 1 %s%s %s%s %s%s", o->profile ? "profile=" : "profile",
		 o->profile ? o->profile : "", o->faults ? "faults=" : "faults",
		 o->faults ? o->faults : "", o->only_faults ? "only=" : "only",
		 o->only_faults ? o->only_faults : "");
	for (; *to; to++)
		if (*to == '\n')
			*to = ' ';
}

/* The numbers of a line, in order. */
static unsigned result_fields(struct fuzz_result *r, uint64_t *field[])
{
	unsigned n = 0;

	field[n++] = &r->events;
	field[n++] = &r->virtual_ns;
	field[n++] = &r->datagrams;
	field[n++] = &r->connections;
	field[n++] = &r->broken;
	field[n++] = &r->restarts;
	for (unsigned i = 0; i < GN_OPS; i++)
		field[n++] = &r->ops[i];
	for (unsigned i = 0; i < FUZZ_FAULTS; i++)
		field[n++] = &r->faults[i];
	return n;
}

#define FIELDS_MAX (6 + GN_OPS + FUZZ_FAULTS)

int state_file_add(struct campaign *c, uint64_t seed, const struct fuzz_result *result)
{
	struct fuzz_result r = *result;
	uint64_t *field[FIELDS_MAX];
	const unsigned n = result_fields(&r, field);
	char line[LINE_MAX_BYTES];
	int len;

	if (c->state_fd < 0)
		return 0;
	len = snprintf(line, sizeof(line), "%" PRIu64 " %016" PRIx64 " %d", seed, r.hash, r.failed);
	for (unsigned i = 0; i < n; i++)
		len += snprintf(line + len, sizeof(line) - (size_t)len, " %" PRIu64, *field[i]);
	line[len++] = '\n';
	if (write(c->state_fd, line, (size_t)len) == len)
		return 0;
	cmd_usage_error("--state %s: cannot write: %s", c->state, strerror(errno));
	return -EIO;
}

static bool state_file_read_line(struct campaign *c, char *line)
{
	struct fuzz_result r = {0};
	uint64_t *field[FIELDS_MAX], seed;
	const unsigned n = result_fields(&r, field);
	char *at = line;

	seed = strtoull(at, &at, 10);
	r.hash = strtoull(at, &at, 16);
	r.failed = strtoull(at, &at, 10);
	for (unsigned i = 0; i < n; i++) {
		if (*at != ' ')
			return false;
		*field[i] = strtoull(at, &at, 10);
	}
	if (*at)
		return false;
	if (seed < c->first || seed > c->last || c->seed[seed - c->first].done)
		return true;
	snprintf(r.what, sizeof(r.what), "in an earlier run");
	campaign_add(c, seed, &r, true);
	return true;
}

/* Is this the last line of the file, incomplete but without a NUL? A first line must begin a head. */
static bool was_cut_off(FILE *in, const char *line, long begin, const char *head)
{
	const size_t len = strlen(line);

	return getc(in) == EOF && ftell(in) == begin + (long)len &&
	       (begin > 0 || !strncmp(line, head, len));
}

/* Reads the complete lines; *end is the offset behind them. */
static int state_file_read(struct campaign *c, FILE *in, long *end)
{
	char head[HEAD_MAX], line[LINE_MAX_BYTES];
	size_t number = 0, len;

	state_file_head(c, head, sizeof(head));
	for (*end = 0; fgets(line, sizeof(line), in); *end = ftell(in)) {
		len = strlen(line);
		number++;
		if (!len || line[len - 1] != '\n') {
			if (was_cut_off(in, line, *end, head))
				return 0;
			return cmd_usage_error("--state %s, line %zu is not of a campaign",
					       c->state, number);
		}
		line[len - 1] = '\0';
		if (number == 1 && strcmp(line, head))
			return cmd_usage_error("--state %s is of another campaign ('%.200s'): "
					       "name another file, or the same options",
					       c->state, line);
		if (number > 1 && !state_file_read_line(c, line))
			return cmd_usage_error("--state %s, line %zu is not of a campaign",
					       c->state, number);
	}
	return 0;
}

int state_file_open(struct campaign *c)
{
	char head[HEAD_MAX];
	FILE *in;
	long end;
	int rc, len;

	c->state_fd = open(c->state, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (c->state_fd < 0)
		return cmd_usage_error("--state %s: %s", c->state, strerror(errno));
	in = fopen(c->state, "r");
	if (!in)
		return cmd_usage_error("--state %s: %s", c->state, strerror(errno));
	rc = state_file_read(c, in, &end);
	fclose(in);
	if (rc)
		return rc;
	if (ftruncate(c->state_fd, end))
		return cmd_usage_error("--state %s: %s", c->state, strerror(errno));
	if (end > 0)
		return 0;
	state_file_head(c, head, sizeof(head));
	len = (int)strlen(head);
	head[len++] = '\n';
	if (write(c->state_fd, head, (size_t)len) != len)
		return cmd_usage_error("--state %s: %s", c->state, strerror(errno));
	return 0;
}
