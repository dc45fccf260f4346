/* SPDX-License-Identifier: MIT */
/*
 * The seeds of a campaign, each in a worker process: a seed that crashes or hangs fails, and the
 * others go on.
 */
#include "campaign.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "workers.h"

#define SEED_SECONDS 60 /* the longest that a seed may take */
#define NS_PER_MS    1000000u
#define OPS_SHOWN    ((unsigned)GN_OP_RECV + 1)
#define COUNTERS_MAX (8 + GN_OPS + FUZZ_FAULTS)

static_assert(sizeof(struct fuzz_result) <= WORKER_RESULT_MAX, "a worker sends it at once");

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / NS_PER_MS;
}

/* ---- results ---- */

static void print_quoted(FILE *to, const char *option, const char *value)
{
	if (!value)
		return;
	fprintf(to, " %s '", option);
	for (; *value; value++) {
		if (*value == '\'')
			fputs("'\\''", to);
		else
			fputc(*value, to);
	}
	fputc('\'', to);
}

void campaign_print_replay(const struct campaign *c, uint64_t seed)
{
	fprintf(stderr, "%s: replay: %s --seeds %" PRIu64 "..%" PRIu64 " --verbose",
		program_invocation_short_name, program_invocation_name, seed, seed);
	print_quoted(stderr, "--profile", c->fuzz.profile);
	print_quoted(stderr, "--faults", c->fuzz.faults);
	print_quoted(stderr, "--only-faults", c->fuzz.only_faults);
	fputc('\n', stderr);
}

void campaign_add(struct campaign *c, uint64_t seed, const struct fuzz_result *result, bool resumed)
{
	struct fuzz_result *sum = &c->sum;

	c->seed[seed - c->first] = (struct campaign_seed){.hash = result->hash, .done = true};
	c->n_done++;
	c->n_resumed += resumed;
	sum->events += result->events;
	sum->virtual_ns += result->virtual_ns;
	for (unsigned i = 0; i < GN_OPS; i++)
		sum->ops[i] += result->ops[i];
	sum->datagrams += result->datagrams;
	sum->connections += result->connections;
	sum->broken += result->broken;
	sum->restarts += result->restarts;
	for (unsigned i = 0; i < FUZZ_FAULTS; i++)
		sum->faults[i] += result->faults[i];
	if (!result->failed)
		return;
	if (!c->n_failed++ || seed < c->lowest_failed)
		c->lowest_failed = seed;
	fprintf(stderr, "%s: seed %" PRIu64 " failed %s\n", program_invocation_short_name, seed,
		result->what);
	campaign_print_replay(c, seed);
}

struct counter {
	const char *name;
	uint64_t value;
};

static void print_counters(const struct campaign *c, const char *group, bool first,
			   const struct counter *counter, unsigned n)
{
	if (c->json)
		printf("%s\"%s\": {", first ? "{" : ", ", group);
	for (unsigned i = 0; i < n; i++) {
		if (c->json)
			printf("%s\"%s\": %" PRIu64, i ? ", " : "", counter[i].name,
			       counter[i].value);
		else
			printf("%s\t%s\t%" PRIu64 "\n", group, counter[i].name, counter[i].value);
	}
	if (c->json)
		putchar('}');
}

static void print_sums(const struct campaign *c)
{
	const struct fuzz_result *sum = &c->sum;
	const struct counter total[] = {
		{"seeds", c->n_done},
		{"resumed", c->n_resumed},
		{"failed", c->n_failed},
		{"events", sum->events},
		{"virtual_ms", sum->virtual_ns / NS_PER_MS},
		{"connections", sum->connections},
		{"broken_endpoints", sum->broken},
		{"restarts", sum->restarts},
		{"datagrams", sum->datagrams},
	};
	struct counter counter[COUNTERS_MAX];
	unsigned n;

	print_counters(c, "total", true, total, sizeof(total) / sizeof(total[0]));
	for (n = 0; n < OPS_SHOWN; n++)
		counter[n] = (struct counter){gn_op_str((enum gn_op)n), sum->ops[n]};
	print_counters(c, "ops", false, counter, n);
	for (n = 0; n < FUZZ_FAULTS && gn_sim_fault_name(n); n++)
		counter[n] = (struct counter){gn_sim_fault_name(n), sum->faults[n]};
	print_counters(c, "faults", false, counter, n);
	if (c->json)
		puts("}");
}

void campaign_print(const struct campaign *c)
{
	if (!c->hash) {
		print_sums(c);
		return;
	}
	for (uint64_t i = 0; i <= c->last - c->first; i++)
		if (c->seed[i].done)
			printf("%" PRIu64 " %016" PRIx64 "\n", c->first + i, c->seed[i].hash);
}

/* ---- worker processes ---- */

static void show_progress(const struct campaign *c)
{
	const uint64_t all = c->last - c->first + 1, ran = c->n_done - c->n_resumed;
	const uint64_t ms = now_ms() - c->began_ms;
	const uint64_t left_s = ran ? (all - c->n_done) * ms / ran / 1000 : 0;

	if (!isatty(STDERR_FILENO) || c->fuzz.verbose)
		return;
	fprintf(stderr,
		"\r%" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 "/s, %" PRIu64 " failed, %" PRIu64
		":%02" PRIu64 " left \033[K%s",
		c->n_done, all, ms ? ran * 1000 / ms : 0, c->n_failed, left_s / 60, left_s % 60,
		c->n_done == all ? "\r\033[K" : "");
}

static int run_one(void *arg, unsigned job, void *result)
{
	const struct campaign *c = arg;
	struct fuzz_opts opts = c->fuzz;
	int rc;

	opts.seed = c->first + c->todo[job];
	rc = fuzz_seed(&opts, result);
	if (!rc)
		return 0;
	fprintf(stderr, "%s: seed %" PRIu64 " cannot be run: %s\n", program_invocation_short_name,
		opts.seed, gn_strerror(rc));
	campaign_print_replay(c, opts.seed);
	return rc;
}

static void one_done(void *arg, unsigned job, const void *result)
{
	struct campaign *c = arg;
	const uint64_t seed = c->first + c->todo[job];

	campaign_add(c, seed, result, false);
	if (state_file_add(c, seed, result))
		interrupted = c->state_failed = true;
	show_progress(c);
}

static void one_died(void *arg, unsigned job, int status)
{
	struct fuzz_result result = {.failed = true};

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(result.what, sizeof(result.what), "to end within %d s", SEED_SECONDS);
	else if (WIFSIGNALED(status))
		snprintf(result.what, sizeof(result.what), "with signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(result.what, sizeof(result.what), "with exit status %d",
			 WEXITSTATUS(status));
	one_done(arg, job, &result);
}

int campaign_run(struct campaign *c)
{
	const struct sigaction on = {.sa_handler = on_interrupt};
	struct workers_job job = {
		.result_bytes = sizeof(struct fuzz_result),
		.seconds_max = SEED_SECONDS,
		.run = run_one,
		.done = one_done,
		.died = one_died,
		.arg = c,
		.interrupted = &interrupted,
	};
	int rc;

	c->todo = calloc(c->last - c->first + 1, sizeof(*c->todo));
	if (!c->todo)
		return -ENOMEM;
	for (uint32_t i = 0; i <= c->last - c->first; i++)
		if (!c->seed[i].done)
			c->todo[job.n++] = i;
	c->began_ms = now_ms();
	sigaction(SIGINT, &on, NULL);
	sigaction(SIGTERM, &on, NULL);
	rc = workers_run(&job, c->jobs);
	free(c->todo);
	if (c->state_failed)
		rc = -EIO;
	if (rc && rc != -EINTR)
		fprintf(stderr, "%s stops: %s\n", program_invocation_short_name, gn_strerror(rc));
	return rc;
}
