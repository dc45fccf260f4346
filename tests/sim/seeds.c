/* SPDX-License-Identifier: MIT */
/* Runs for seeds: seeds.h. */
#include "seeds.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEEDS	   200u
#define SEEDS_FULL 5000u
#define POINTS_MAX 2000u

static const struct seeds_test *test; /* of this program: it has one */
static const char *path;
static uint64_t current; /* the seed, for the signal handler */
static unsigned cases, failed;

/* ---- output ---- */

void seeds_fail(struct seeds *w, const char *fmt, ...)
{
	va_list args;
	int n;

	if (*w->failure)
		return;
	n = snprintf(w->failure, sizeof(w->failure),
		     "at %llu ns: ", (unsigned long long)(w->sim ? gn_sim_now_ns(w->sim) : 0));
	va_start(args, fmt);
	vsnprintf(w->failure + n, sizeof(w->failure) - (size_t)n, fmt, args);
	va_end(args);
	seeds_log(w, "FAILED %s", w->failure);
}

void seeds_log(const struct seeds *w, const char *fmt, ...)
{
	va_list args;

	if (!w->verbose)
		return;
	printf("# %12llu ns %s: ", (unsigned long long)(w->sim ? gn_sim_now_ns(w->sim) : 0),
	       gn_node_name());
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
}

static void keep_line(void *arg, enum gn_log_level level, const char *line)
{
	struct seeds *w = arg;
	const size_t len = strlen(w->log);

	(void)level;
	snprintf(w->log + len, sizeof(w->log) - len, "#   log: %s\n", line);
}

void seeds_result(bool ok, const char *name)
{
	printf("%sok %u - %s\n", ok ? "" : "not ", ++cases, name);
	failed += !ok;
	fflush(stdout);
}

/* ---- one run ---- */

static void check_end(struct seeds *w, int rc, unsigned n, bool all_return)
{
	if (rc)
		seeds_fail(w, "the run ended with: %s", gn_strerror(rc));
	for (unsigned i = 0; i < n && !rc && all_return; i++) {
		int status;

		if (gn_sim_status(w->sim, i, &status) || status)
			seeds_fail(w, "process %u did not end well", i);
	}
	if (gn_sim_leaks(w->sim))
		seeds_fail(w, "%llu allocations were left behind",
			   (unsigned long long)gn_sim_leaks(w->sim));
	for (unsigned i = 0; i < KINDS_MAX && gn_sim_fault_name(i); i++)
		w->faults[i] += gn_sim_fault_count(w->sim, i);
}

void seeds_check_requests(struct seeds *w)
{
	if (w->submitted != w->ended)
		seeds_fail(w, "%llu requests were submitted, %llu ended",
			   (unsigned long long)w->submitted, (unsigned long long)w->ended);
}

unsigned seeds_draw_action(const unsigned *per_mille, unsigned n)
{
	unsigned left = (unsigned)(gn_random() % 1000), i = 0;

	for (; i < n && left >= per_mille[i]; i++)
		left -= per_mille[i];
	return i;
}

void seeds_simulate(struct seeds *w, const struct gn_sim_opts *opts,
		    const struct seeds_process *process, unsigned n, bool all_return,
		    void (*check)(struct seeds *w))
{
	int rc = gn_sim_create(opts, &w->sim);

	w->active_ns = 0;
	w->clients_over = 0;
	w->submitted = w->ended = 0;
	for (unsigned i = 0; !rc && i < n; i++)
		rc = gn_sim_spawn(w->sim, i, process[i].program, 0, NULL, process[i].arg, NULL);
	if (rc) {
		seeds_fail(w, "there is no cluster: %s", gn_strerror(rc));
	} else {
		check_end(w, gn_sim_run(w->sim), n, all_return);
		check(w);
	}
	gn_sim_destroy(w->sim);
	w->sim = NULL;
}

void seeds_simulate_clients(struct seeds *w, const struct gn_sim_opts *opts, gn_node_main *server,
			    gn_node_main *client, bool all_return, void (*check)(struct seeds *w))
{
	struct seeds_process process[NODES_MAX] = {{server, w}};
	struct seeds_client arg[NODES_MAX];

	assert(opts->nodes <= NODES_MAX);
	for (unsigned i = 1; i < opts->nodes; i++) {
		arg[i] = (struct seeds_client){w, i - 1};
		process[i] = (struct seeds_process){client, &arg[i]};
	}
	seeds_simulate(w, opts, process, opts->nodes, all_return, check);
}

bool seeds_over(const struct seeds *w, unsigned clients, uint64_t quiet_ns)
{
	return w->clients_over == clients || gn_sim_now_ns(w->sim) > w->active_ns + quiet_ns;
}

/* As planned; false if it failed. */
static bool run(struct seeds *w)
{
	current = w->seed;
	alarm(test->seconds_max);
	*w->failure = *w->log = '\0';
	gn_log_to(keep_line, w);
	test_run(w);
	gn_log_to(NULL, NULL);
	alarm(0);
	return !*w->failure;
}

static bool run_seed(struct seeds *w, uint64_t seed)
{
	w->seed = seed;
	test_plan(w);
	if (w->verbose)
		test_print(w);
	if (run(w))
		return true;
	printf("# seed %llu failed %s\n", (unsigned long long)seed, w->failure);
	test_print(w);
	printf("%s# replay: %s --seed %llu --verbose\n", w->log, path, (unsigned long long)seed);
	fflush(stdout);
	return false;
}

/* ---- cases ---- */

static void run_seeds(struct seeds *w, uint64_t n)
{
	uint64_t bad = 0;
	char name[64];

	for (uint64_t seed = 1; seed <= n && !bad; seed++)
		bad += !run_seed(w, seed);
	snprintf(name, sizeof(name), "%s of seeds 1 to %llu", test->what, (unsigned long long)n);
	seeds_result(!bad, name);
}

bool seeds_all_there(const struct seeds_sum *sum, unsigned n)
{
	bool ok = true;

	for (unsigned i = 0; i < n; i++) {
		printf("# %s: %llu\n", sum[i].what, (unsigned long long)sum[i].n);
		ok = ok && sum[i].n;
	}
	return ok;
}

static bool begins_with_one_of(const char *kind, const char *const *list)
{
	while (list && *list && strncmp(kind, *list, strlen(*list)))
		list++;
	return list && *list;
}

void seeds_all_faults(const struct seeds *w, const char *const *but)
{
	bool all = true;

	for (unsigned i = 0; i < KINDS_MAX && gn_sim_fault_name(i); i++) {
		const char *kind = gn_sim_fault_name(i);

		if (!begins_with_one_of(kind, but) && !w->faults[i]) {
			printf("# never: %s\n", kind);
			all = false;
		}
	}
	seeds_result(all, "while everything goes wrong");
}

static void points_of_kind(struct seeds *w, const char *kind, unsigned node, const char *label)
{
	char faults[64], name[96];
	unsigned which = 0, n = 1;
	bool ok = true;

	while (gn_sim_fault_name(which) && strcmp(gn_sim_fault_name(which), kind))
		which++;
	for (; n < POINTS_MAX && ok; n++) {
		const uint64_t before = w->faults[which];

		snprintf(faults, sizeof(faults), "%s@0ns:n%u:#%u", kind, node, n);
		test_plan_small(w, faults);
		w->seed = n;
		ok = run(w);
		if (!ok)
			printf("# %s: failed %s\n%s", faults, w->failure, w->log);
		if (w->faults[which] == before)
			break;
	}
	snprintf(name, sizeof(name), "%s fails at the %s, at every point of it", kind, label);
	printf("# %u points\n", n - 1);
	seeds_result(ok && n > 1, name);
}

void seeds_points(struct seeds *w, unsigned node, const char *label)
{
	points_of_kind(w, "alloc", node, label);
	points_of_kind(w, "register", node, label);
}

/* ---- processes ---- */

int seeds_fabric_open(const struct gn_env *env, unsigned attempts, uint32_t pause_us,
		      struct gn_fabric **out)
{
	int rc = -ENOMEM;

	for (unsigned i = 0; rc && i < attempts; i++) {
		rc = gn_fabric_open(env->fabric, out);
		if (rc)
			gn_sleep_us(pause_us);
	}
	return rc;
}

void seeds_fabric_close(struct seeds *w, struct gn_fabric *fabric, const char *owner)
{
	const int rc = gn_fabric_close(fabric);

	if (rc)
		seeds_fail(w, "%s's fabric cannot be closed: %s", owner, gn_strerror(rc));
}

int seeds_serve(struct seeds *w, const struct gn_env *env, const struct seeds_server *server)
{
	uint32_t stop_us = server->stop_us;
	struct gn_fabric *fabric;
	int rc = seeds_fabric_open(env, server->attempts, server->pause_us, &fabric);

	if (rc)
		return server->no_memory ? 0 : 1;
	for (unsigned i = 0; i < server->attempts && !server->all_over(w); i++) {
		rc = server->serve_once(w, fabric, stop_us);
		gn_sleep_us(server->pause_us + (rc ? 0 : gn_random() % server->max_down_us));
		if (!rc)
			stop_us = 0;
	}
	seeds_fabric_close(w, fabric, "the server");
	return 0;
}

/* ---- the program ---- */

static void on_signal(int sig)
{
	char text[256];
	const int n = snprintf(text, sizeof(text),
			       "# seed %llu: signal %d\n# replay: %s --seed %llu --verbose\n",
			       (unsigned long long)current, sig, path, (unsigned long long)current);

	if (write(STDOUT_FILENO, text, (size_t)n) < 0)
		_exit(1);
	signal(sig, SIG_DFL);
	raise(sig);
}

static int usage(int status)
{
	fprintf(status ? stderr : stdout,
		"usage: %s [--seeds N | --only-seeds N | --seed N [--verbose]]\n", test->program);
	return status;
}

int seeds_main(int argc, char **argv, const struct seeds_test *the, struct seeds *w)
{
	static const struct option options[] = {{"seed", required_argument, NULL, 's'},
						{"seeds", required_argument, NULL, 'n'},
						{"only-seeds", required_argument, NULL, 'o'},
						{"verbose", no_argument, NULL, 'v'},
						{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	static const int signals[] = {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
	const char *effort = getenv("GANNET_EFFORT");
	const uint64_t times = the->more ? the->more : 1;
	uint64_t seed = 0, seeds = times * (effort && atoi(effort) >= 10 ? SEEDS_FULL : SEEDS);
	bool only = false;
	int opt;

	test = the;
	path = argv[0];
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (opt == 'o' || opt == 'n')
			seeds = strtoull(optarg, NULL, 10);
		else if (opt == 'v')
			w->verbose = true;
		else
			return usage(opt == 'h' ? 0 : 2);
		only |= opt == 'o';
	}
	for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		signal(signals[i], on_signal);
	if (seed) {
		seeds_result(run_seed(w, seed), "the seed");
	} else {
		if (!only)
			test_points(w);
		run_seeds(w, seeds);
		if (!only && seeds >= SEEDS)
			test_breadth(w);
	}
	printf("1..%u\n", cases);
	return failed ? 1 : 0;
}
