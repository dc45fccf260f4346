/* SPDX-License-Identifier: MIT */
/*
 * How far gannet bench msg is, on stderr: a bar that goes away on a terminal, else a line for each
 * point.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench_msg.h"

#define BAR_COLUMNS  16u
#define LINE_COLUMNS 79u /* of any terminal */

static struct {
	bool terminal, shown;
	unsigned points, done;
	double point_seconds; /* that one takes, about; or NAN */
	char what[64];
} state;

void msg_progress_begin(unsigned points)
{
	state.terminal = isatty(STDERR_FILENO);
	state.shown = false;
	state.points = points;
	state.done = 0;
}

static const char *left_text(char *to, size_t n, double part)
{
	const double seconds = (state.points - state.done - part) * state.point_seconds;

	if (!isfinite(seconds))
		snprintf(to, n, "time left unknown");
	else if (seconds < 90)
		snprintf(to, n, "%.0f s left", seconds < 0 ? 0 : seconds);
	else if (seconds < 5400)
		snprintf(to, n, "%.0f min left", seconds / 60);
	else
		snprintf(to, n, "%.1f h left", seconds / 3600);
	return to;
}

static void progress_draw(double part)
{
	const double all = (state.done + part) / state.points;
	const unsigned full = (unsigned)(all * BAR_COLUMNS);
	char bar[BAR_COLUMNS + 1], left[32], line[2 * LINE_COLUMNS];

	for (unsigned i = 0; i < BAR_COLUMNS; i++)
		bar[i] = i < full ? '#' : '.';
	bar[BAR_COLUMNS] = '\0';
	snprintf(line, sizeof(line), "[%s] %u of %u, %s: %s", bar, state.done, state.points,
		 left_text(left, sizeof(left), part), state.what);
	fprintf(stderr, "\r%-*.*s", (int)LINE_COLUMNS, (int)LINE_COLUMNS, line);
	fflush(stderr);
	state.shown = true;
}

void msg_progress_point(const struct bench_msg_opts *o, double estimated_seconds)
{
	char left[32];

	state.point_seconds = estimated_seconds;
	snprintf(state.what, sizeof(state.what), "%s %s n=%u t=%u r=%u v=%u",
		 gn_msg_protocol_str(o->protocol), bench_msg_topologies[o->topology], o->nodes,
		 o->threads, o->pending, o->value_bytes);
	if (state.terminal)
		progress_draw(0);
	else if (state.points > 1)
		fprintf(stderr, "%u of %u, %s: %s\n", state.done + 1, state.points,
			left_text(left, sizeof(left), 0), state.what);
}

void msg_progress_part(const struct bench_opts *opts, double done)
{
	(void)opts;
	if (state.terminal)
		progress_draw(done);
}

void msg_progress_done(void)
{
	state.done++;
}

void msg_progress_hide(void)
{
	if (state.shown)
		fprintf(stderr, "\r%*s\r", (int)LINE_COLUMNS, "");
	state.shown = false;
}
