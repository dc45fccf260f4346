/* SPDX-License-Identifier: MIT */
/* Lines of the list of figures: choosing them, running them, in one process or several. */
#include "sim_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "bench.h"
#include "cmd.h"

#define EFFORT_MIN 0.01
#define EFFORT_MAX 100.0

/* ---- options ---- */

#define AT(member) .to = offsetof(struct sim_lines, member)

/* NAME=P. A file gets the '/' that tells it from the name of a built-in profile. */
static int take_profile(const char *option, const char *text, void *to)
{
	struct sim_lines *l = to;
	const char *is = strchr(text, '=');
	char *kept = l->cards[l->env.n_cards];
	const size_t room = sizeof(l->cards[0]);
	const char *prefix;
	size_t name;

	if (!is || is == text || !is[1])
		return cmd_usage_error("%s must be NAME=P, not '%s'", option, text);
	if (l->env.n_cards == FIGURE_CARDS_MAX)
		return cmd_usage_error("%s can be given %u times", option, FIGURE_CARDS_MAX);
	prefix = strchr(is, '/') || gn_sim_profile_text(is + 1) ? "" : "./";
	name = (size_t)(is - text);
	if (strlen(text) + strlen(prefix) >= room)
		return cmd_usage_error("%s %.20s… is too long", option, text);
	snprintf(kept, room, "%.*s", (int)name, text);
	snprintf(kept + name + 1, room - name - 1, "%s%s", prefix, is + 1);
	if (*prefix && access(is + 1, R_OK))
		return cmd_usage_error("--profile: '%s' is neither a profile nor a file: %s",
				       is + 1, strerror(errno));
	l->env.cards[l->env.n_cards++] = (struct figure_card){kept, kept + name + 1};
	return cmd_sim_check(&(struct gn_sim_opts){
		.size = sizeof(struct gn_sim_opts), .profile = kept + name + 1, .nodes = 1});
}

const struct opt sim_run_options[] = {
	{OPT_FLAG, "json", NULL, "one object a line", AT(json)},
	{OPT_U64, "seed", "N", "of everything left to chance", AT(env.seed)},
	{OPT_REAL, "effort", "E", "length of each run", AT(env.effort),
	 RANGE(EFFORT_MIN, EFFORT_MAX)},
	{OPT_U32, "jobs", "J", "processes to use", AT(jobs), RANGE(1, WORKERS_MAX)},
	{OPT_OTHER, "profile", "NAME=P", "simulate profile or file P where NAME is asked for",
	 .take = take_profile},
	{OPT_END},
};

const struct opt sim_lines_options[] = {
	{OPT_TEXT, "only", "LIST", "lines or whole experiments, as C1a,C4; of any kind", AT(only)},
	{OPT_TEXT, "data", "FILE", "another list of figures than the one built in", AT(data)},
	{OPT_TABLE, .table = sim_run_options},
	{OPT_END},
};

double sim_wall_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* ---- the lines ---- */

static int read_data(struct sim_lines *l)
{
	struct lab_error error;
	int rc;

	if (l->data)
		rc = paper_read(&l->paper, l->data, &error);
	else
		rc = paper_parse(&l->paper, lab_paper_data,
				 (size_t)(lab_paper_data_end - lab_paper_data), &error);
	if (rc)
		return cmd_usage_error("%s: %s", l->data ? l->data : "data/paper.tsv", error.text);
	l->env.paper = &l->paper;
	return 0;
}

/* C4 of C4a: the experiment. */
static size_t stem(const char *id)
{
	size_t len = strlen(id);

	while (len && id[len - 1] >= 'a' && id[len - 1] <= 'z')
		len--;
	return len;
}

static bool matches(const char *id, const char *item)
{
	return !strcmp(id, item) || (strlen(item) == stem(id) && !strncmp(id, item, stem(id)));
}

static bool is_listed(const char *id, const char *list)
{
	char item[64];

	while (list_next(&list, item, sizeof(item)))
		if (matches(id, item))
			return true;
	return false;
}

static int check_only(const struct sim_lines *l)
{
	const char *list = l->only;
	char item[64];

	while (list_next(&list, item, sizeof(item))) {
		unsigned i = 0;

		while (i < l->paper.n && !matches(l->paper.lines[i].id, item))
			i++;
		if (i == l->paper.n)
			return cmd_usage_error("--only: there is no line or experiment '%s'", item);
	}
	return 0;
}

/* What replaces a profile that nobody has would be left unused without a word. */
static int check_cards(const struct sim_lines *l)
{
	for (unsigned k = 0; k < l->env.n_cards; k++) {
		const char *name = l->env.cards[k].profile;
		unsigned i = 0;

		while (i < l->paper.n && strcmp(l->paper.lines[i].profile, name))
			i++;
		if (i == l->paper.n && !gn_sim_profile_text(name))
			return cmd_usage_error("--profile: no line asks for '%s'", name);
	}
	return 0;
}

void sim_lines_free(struct sim_lines *l)
{
	figure_forget(&l->env);
	paper_free(&l->paper);
	free(l->lines);
	free(l->results);
	free(l->done);
	free(l->groups);
}

static int make_room(struct sim_lines *l)
{
	const unsigned n = l->paper.n;

	l->lines = calloc(n, sizeof(l->lines[0]));
	l->results = calloc(n, l->result_bytes);
	l->done = calloc(n, sizeof(l->done[0]));
	l->groups = calloc(n, sizeof(l->groups[0]));
	if (l->lines && l->results && l->done && l->groups)
		return 0;
	fputs("gannet: no memory for the results\n", stderr);
	return EXIT_FAILURE;
}

int sim_lines_choose(struct sim_lines *l,
		     bool (*wanted)(const struct sim_lines *l, const struct paper_line *line))
{
	int status = read_data(l);

	if (!status)
		status = check_only(l);
	if (!status)
		status = check_cards(l);
	if (!status)
		status = make_room(l);
	for (unsigned i = 0; i < l->paper.n && !status; i++) {
		const struct paper_line *line = &l->paper.lines[i];

		if ((l->only && !is_listed(line->id, l->only)) || !wanted(l, line))
			continue;
		/* Lines of an experiment share configurations: one worker does them all. */
		l->groups[l->n] = l->n;
		if (l->n && stem(line->id) == stem(l->lines[l->n - 1]->id) &&
		    !strncmp(line->id, l->lines[l->n - 1]->id, stem(line->id)))
			l->groups[l->n] = l->groups[l->n - 1];
		l->lines[l->n++] = line;
	}
	return status;
}

/* ---- running ---- */

static int run_line(void *arg, unsigned i, void *result)
{
	struct sim_lines *l = arg;

	return l->run(l, i, result);
}

static void show_progress(const struct sim_lines *l)
{
	if (isatty(STDERR_FILENO) && l->printed < l->n)
		fprintf(stderr, "\r%u of %u: %-8s", l->printed + 1, l->n, l->lines[l->printed]->id);
}

static void erase_progress(void)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%30s\r", "");
}

/* Results come in any order, and are printed in the list's. */
static void line_done(void *arg, unsigned i, const void *result)
{
	struct sim_lines *l = arg;

	memcpy((char *)l->results + i * l->result_bytes, result, l->result_bytes);
	l->done[i] = true;
	erase_progress();
	for (; l->printed < l->n && l->done[l->printed]; l->printed++)
		l->print(l, l->printed);
	show_progress(l);
}

int sim_lines_run(struct sim_lines *l)
{
	const struct workers_job job = {
		.n = l->n,
		.groups = l->groups,
		.result_bytes = l->result_bytes,
		.run = run_line,
		.done = line_done,
		.arg = l,
		.interrupted = bench_stop_flag(),
	};
	int rc;

	l->env.interrupted = bench_stop_flag();
	bench_stop_on_signals();
	fflush(stdout); /* or workers would inherit what is in it */
	show_progress(l);
	rc = workers_run(&job, l->jobs);
	erase_progress();
	return rc;
}

int sim_lines_status(int rc)
{
	const int status = cmd_flush_stdout();

	if (rc == -EINTR)
		return EXIT_INTERRUPTED;
	if (rc) {
		fprintf(stderr, "gannet: the workers: %s\n", strerror(-rc));
		return EXIT_FAILURE;
	}
	return status;
}
