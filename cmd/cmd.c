/* SPDX-License-Identifier: MIT */
/*
 * What all commands share (cmd.h): messages, reading a file, checking a simulated cluster.
 */
#include "cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/sim.h>

int cmd_usage_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	return EXIT_USAGE;
}

const char *cmd_why(int rc)
{
	return *gn_error() ? gn_error() : gn_strerror(rc);
}

void cmd_connect_failed(const char *addr, int rc, const char *server)
{
	const char *why = cmd_why(rc);
	char advice[80] = "";

	if (rc == -ECONNREFUSED && !strstr(why, "refuses"))
		snprintf(advice, sizeof(advice), "; is a server running there?");
	else if (rc == -EPROTO && !strstr(why, "version") && !strstr(why, "what listens"))
		snprintf(advice, sizeof(advice), "; what listens there is no %s", server);
	if (strstr(why, addr))
		fprintf(stderr, "gannet: %s%s\n", why, advice);
	else
		fprintf(stderr, "gannet: cannot connect to %s: %s%s\n", addr, why, advice);
}

int cmd_flush_stdout(void)
{
	if (fflush(stdout))
		fprintf(stderr, "gannet: cannot write to stdout: %s\n", strerror(errno));
	else if (ferror(stdout)) /* and what was the cause is forgotten */
		fputs("gannet: cannot write to stdout\n", stderr);
	else
		return 0;
	return EXIT_FAILURE;
}

#define READ_STEP 65536u

int cmd_read_all(int fd, uint32_t max, uint8_t **out, uint32_t *len)
{
	uint8_t *bytes = NULL;
	size_t n = 0, room = 0;
	ssize_t got = 1;
	int rc = 0;

	while (!rc && got) {
		if (room - n < READ_STEP) {
			uint8_t *more = realloc(bytes, room = 2 * room + READ_STEP);

			if (!more) {
				free(bytes);
				return -ENOMEM;
			}
			bytes = more;
		}
		got = read(fd, bytes + n, room - n);
		if (got < 0)
			rc = errno == EINTR ? 0 : -errno;
		else
			n += (size_t)got;
		if (n > max)
			rc = -EFBIG;
	}
	if (rc) {
		free(bytes);
		return rc;
	}
	*out = bytes;
	*len = (uint32_t)n;
	return 0;
}

#define WHY_MAX 512u

/* The first error, without the prefix of the layer. */
static void keep_first_error(void *arg, enum gn_log_level level, const char *line)
{
	static const char part[] = "sim: ";
	char *to = arg;

	if (level != GN_LOG_ERROR || *to)
		return;
	if (!strncmp(line, part, strlen(part)))
		line += strlen(part);
	snprintf(to, WHY_MAX, "%s", line);
}

/* Creates the cluster and never runs it, so that the message is the library's own. */
int cmd_sim_check(const struct gn_sim_opts *opts)
{
	char why[WHY_MAX] = "";
	struct gn_sim *sim;
	int rc;

	gn_log_to(keep_first_error, why);
	rc = gn_sim_create(opts, &sim);
	gn_log_to(NULL, NULL);
	if (rc)
		return cmd_usage_error("%s", *why ? why : gn_strerror(rc));
	gn_sim_destroy(sim);
	return 0;
}
