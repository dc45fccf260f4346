/* SPDX-License-Identifier: MIT */
/*
 * The state file of gannet sim soak: what was asked for in its first line, and a line of numbers
 * for each seed that is done. A line is written at once; one without its end was cut off, and does
 * not count.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "sim_soak.h"

#define HEAD_MAX       (SWARM_PROFILE_MAX + 2 * SWARM_TEXT_MAX + 64)
#define LINE_MAX_BYTES 4096

static void make_head(const struct soak *soak, char *to, size_t size)
{
	const struct swarm_opts *o = &soak->swarm;

	snprintf(to, size, "gannet-soak 1 %s%s %s%s %s%s", o->profile ? "profile=" : "profile",
		 o->profile ? o->profile : "", o->faults ? "faults=" : "faults",
		 o->faults ? o->faults : "", o->only_faults ? "only=" : "only",
		 o->only_faults ? o->only_faults : "");
	for (; *to; to++)
		if (*to == '\n')
			*to = ' ';
}

/* The numbers of a line, in their order: what a sum is made of. */
static unsigned fields_of(struct swarm_result *r, uint64_t *field[])
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
	for (unsigned i = 0; i < SWARM_FAULTS; i++)
		field[n++] = &r->faults[i];
	return n;
}

#define FIELDS_MAX (6 + GN_OPS + SWARM_FAULTS)

int soak_state_add(struct soak *soak, uint64_t seed, const struct swarm_result *result)
{
	struct swarm_result r = *result;
	uint64_t *field[FIELDS_MAX];
	const unsigned n = fields_of(&r, field);
	char line[LINE_MAX_BYTES];
	int len;

	if (soak->state_fd < 0)
		return 0;
	len = snprintf(line, sizeof(line), "%" PRIu64 " %016" PRIx64 " %d", seed, r.hash, r.failed);
	for (unsigned i = 0; i < n; i++)
		len += snprintf(line + len, sizeof(line) - (size_t)len, " %" PRIu64, *field[i]);
	line[len++] = '\n';
	if (write(soak->state_fd, line, (size_t)len) == len)
		return 0;
	fprintf(stderr, "gannet: --state %s: cannot write: %s\n", soak->state, strerror(errno));
	return -EIO;
}

static bool read_line(struct soak *soak, char *line)
{
	struct swarm_result r = {0};
	uint64_t *field[FIELDS_MAX], seed;
	const unsigned n = fields_of(&r, field);
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
	if (seed < soak->first || seed > soak->last || soak->seed[seed - soak->first].done)
		return true;
	snprintf(r.what, sizeof(r.what), "in an earlier run");
	soak_add(soak, seed, &r, true);
	return true;
}

/* The last line of the file, without its end: all of it is text, and the first is a head's. */
static bool was_cut_off(FILE *in, const char *line, long begin, const char *head)
{
	const size_t len = strlen(line);

	return getc(in) == EOF && ftell(in) == begin + (long)len &&
	       (begin > 0 || !strncmp(line, head, len));
}

/* Reads whole lines; *end is where they end. */
static int read_file(struct soak *soak, FILE *in, long *end)
{
	char head[HEAD_MAX], line[LINE_MAX_BYTES];
	size_t number = 0, len;

	make_head(soak, head, sizeof(head));
	for (*end = 0; fgets(line, sizeof(line), in); *end = ftell(in)) {
		len = strlen(line);
		number++;
		if (!len || line[len - 1] != '\n') {
			if (was_cut_off(in, line, *end, head))
				return 0;
			return cmd_usage_error("--state %s, line %zu is none of mine", soak->state,
					       number);
		}
		line[len - 1] = '\0';
		if (number == 1 && strcmp(line, head))
			return cmd_usage_error("--state %s is of another soak ('%.200s'): name "
					       "another file, or the same options",
					       soak->state, line);
		if (number > 1 && !read_line(soak, line))
			return cmd_usage_error("--state %s, line %zu is none of mine", soak->state,
					       number);
	}
	return 0;
}

int soak_state_open(struct soak *soak)
{
	char head[HEAD_MAX];
	FILE *in;
	long end;
	int rc, len;

	soak->state_fd = open(soak->state, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (soak->state_fd < 0)
		return cmd_usage_error("--state %s: %s", soak->state, strerror(errno));
	in = fopen(soak->state, "r");
	if (!in)
		return cmd_usage_error("--state %s: %s", soak->state, strerror(errno));
	rc = read_file(soak, in, &end);
	fclose(in);
	if (rc)
		return rc;
	if (ftruncate(soak->state_fd, end))
		return cmd_usage_error("--state %s: %s", soak->state, strerror(errno));
	if (end > 0)
		return 0;
	make_head(soak, head, sizeof(head));
	len = (int)strlen(head);
	head[len++] = '\n';
	if (write(soak->state_fd, head, (size_t)len) != len)
		return cmd_usage_error("--state %s: %s", soak->state, strerror(errno));
	return 0;
}
