/* SPDX-License-Identifier: MIT */
/*
 * Calls under faults. Each seed draws a cluster, a server, clients and what goes wrong, and then:
 *
 *  - every call ends once, at most 1 ms after its deadline (100 ms if its own node is stopped or
 *    slowed), and one without a deadline within 2 s of its server's end, whatever that was;
 *  - no call is executed twice, and what is executed is the request as it was made, by a client of
 *    this connection;
 *  - a call that ended well was executed and has its own result, all of it;
 *  - nobody writes to what a call lent after its end, and what a handler lent is released once;
 *  - where nothing goes wrong calls end as they must, and nobody waits for 10 ms for anything that
 *    is there: a lost wake-up would show;
 *  - a server that was drained has lost no answer, and forgets clients that are gone within 3 s;
 *  - no process that returned has left anything behind, and the run ends.
 *
 * Besides, the n-th allocation and registration fails, for every n there is.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc.h"

#define SEEDS	    200u
#define SEEDS_FULL  5000u
#define LIMIT_NS    20000000000ull
#define STACK_BYTES 131072u
#define LIVES_MAX   512u
#define CALLS_MAX   65536u
#define SECONDS_MAX 20u
#define POINTS_MAX  1000u

static uint64_t current; /* the seed, for who has no other way to know */
static const char *program;

/* ---- what is said ---- */

void world_fail(struct world *w, const char *fmt, ...)
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
	world_say(w, "FAILED %s", w->failure);
}

void world_say(const struct world *w, const char *fmt, ...)
{
	va_list args;

	if (!w->verbose)
		return;
	printf("# %12llu ns %s: ", (unsigned long long)gn_sim_now_ns(w->sim), gn_node_name());
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
}

static void keep_line(void *arg, enum gn_log_level level, const char *line)
{
	struct world *w = arg;
	const size_t len = strlen(w->log);

	(void)level;
	snprintf(w->log + len, sizeof(w->log) - len, "#   log: %s\n", line);
}

struct call *world_call(struct world *w, unsigned life, uint32_t *number)
{
	*number = 0;
	if (w->n_calls == w->calls_room) {
		world_fail(w, "more calls than were planned");
		return NULL;
	}
	*number = w->n_calls++;
	w->call[*number] = (struct call){.life = life, .begun_ns = gn_sim_now_ns(w->sim)};
	return &w->call[*number];
}

/* ---- one run ---- */

static void check_end(struct world *w, int rc)
{
	const bool crash = strstr(w->plan.faults, "crash");

	if (rc)
		world_fail(w, "the run ended with: %s", gn_strerror(rc));
	for (unsigned i = 0; i <= w->plan.n_clients + w->plan.raw && !rc && !crash; i++) {
		int status;

		if (gn_sim_status(w->sim, i, &status) || status)
			world_fail(w, "process %u did not end well", i);
	}
	if (gn_sim_leaks(w->sim))
		world_fail(w, "%llu allocations were left behind",
			   (unsigned long long)gn_sim_leaks(w->sim));
	for (uint32_t i = 0; i < w->n_calls; i++) {
		const struct call *call = &w->call[i];

		if (call->life < LIVES_MAX && w->life[call->life].over && call->ended != 1)
			world_fail(w, "call %u ended %u times", i, call->ended);
	}
	for (unsigned i = 0; i < KINDS_MAX && gn_sim_fault_name(i); i++)
		w->sums.faults[i] += gn_sim_fault_count(w->sim, i);
}

/* As planned; false if it failed. */
static bool run(struct world *w)
{
	struct client_arg arg[CLIENTS_MAX + 1];
	const struct gn_sim_opts opts = {
		.profile = w->plan.profile,
		.seed = w->seed,
		.nodes = w->plan.n_clients + w->plan.raw + 1,
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
		.caps_off = w->plan.caps_off,
		.faults = *w->plan.faults ? w->plan.faults : NULL,
	};
	int rc;

	current = w->seed;
	alarm(SECONDS_MAX);
	w->n_calls = 0;
	w->n_lives = w->clients_over = 0;
	w->active_ns = 0;
	w->drained = false;
	*w->failure = *w->log = '\0';
	memset(w->call, 0, CALLS_MAX * sizeof(*w->call));
	memset(w->life, 0, LIVES_MAX * sizeof(*w->life));
	gn_log_to(keep_line, w);
	rc = gn_sim_create(&opts, &w->sim);
	if (!rc)
		rc = gn_sim_spawn(w->sim, 0, server_main, 0, NULL, w, NULL);
	for (unsigned i = 0; !rc && i < w->plan.n_clients + w->plan.raw; i++) {
		arg[i] = (struct client_arg){w, i};
		rc = gn_sim_spawn(w->sim, i + 1, i < w->plan.n_clients ? client_main : raw_main, 0,
				  NULL, &arg[i], NULL);
	}
	if (rc)
		world_fail(w, "there is no cluster: %s", gn_strerror(rc));
	else
		check_end(w, gn_sim_run(w->sim));
	gn_sim_destroy(w->sim);
	w->sim = NULL;
	gn_log_to(NULL, NULL);
	alarm(0);
	return !*w->failure;
}

static bool run_seed(struct world *w, uint64_t seed)
{
	w->seed = seed;
	plan_draw(&w->plan, seed);
	if (w->verbose)
		plan_print(&w->plan);
	if (run(w))
		return true;
	printf("# seed %llu failed %s\n", (unsigned long long)seed, w->failure);
	plan_print(&w->plan);
	printf("%s# replay: %s --seed %llu --verbose\n", w->log, program, (unsigned long long)seed);
	fflush(stdout);
	return false;
}

/* ---- cases ---- */

static unsigned cases, failed;

static void result(bool ok, const char *name)
{
	printf("%sok %u - %s\n", ok ? "" : "not ", ++cases, name);
	failed += !ok;
	fflush(stdout);
}

static void test_seeds(struct world *w, uint64_t n)
{
	uint64_t bad = 0;
	char name[64];

	for (uint64_t seed = 1; seed <= n && !bad; seed++)
		bad += !run_seed(w, seed);
	snprintf(name, sizeof(name), "calls of seeds 1 to %llu", (unsigned long long)n);
	result(!bad, name);
}

/* What happened in them. */
static bool test_sums(const struct sums *sums)
{
	const struct {
		const char *what;
		uint64_t n;
	} all[] = {{"executed", sums->executed},
		   {"torn", sums->torn},
		   {"read twice", sums->twice_read},
		   {"large", sums->large},
		   {"too large to begin", sums->emsgsize},
		   {"in batches", sums->batched},
		   {"switches of mode", sums->switches},
		   {"connected again", sums->reconnects},
		   {"put aside", sums->parks},
		   {"woken", sums->wakes},
		   {"answered with lent memory", sums->lent},
		   {"drained", sums->drained},
		   {"drained in vain", sums->undrained},
		   {"requests of another epoch", sums->old},
		   {"requests written again", sums->again}};
	bool ok = true;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		printf("# %s: %llu\n", all[i].what, (unsigned long long)all[i].n);
		ok = ok && all[i].n;
	}
	return ok;
}

static void test_breadth(const struct world *w)
{
	bool all = true;

	for (unsigned i = 0; i < GN_RPC_FAILED + 1; i++) {
		printf("# %s: %llu\n", gn_rpc_status_str(i),
		       (unsigned long long)w->sums.statuses[i]);
		all = all && w->sums.statuses[i];
	}
	result(all, "end in every way there is");
	result(test_sums(&w->sums), "having done everything there is");
	all = true;
	for (unsigned i = 0; i < KINDS_MAX && gn_sim_fault_name(i); i++) {
		const char *kind = gn_sim_fault_name(i);

		/* Calls send no datagrams. */
		if (strncmp(kind, "ud-", 3) && !w->sums.faults[i]) {
			printf("# never: %s\n", kind);
			all = false;
		}
	}
	result(all, "while everything goes wrong");
}

/* The n-th time on a node, for every n: until a run has fewer than that. */
static void test_points(struct world *w, const char *kind, unsigned node)
{
	char faults[64], name[96];
	unsigned which = 0, n = 1;
	bool ok = true;

	while (gn_sim_fault_name(which) && strcmp(gn_sim_fault_name(which), kind))
		which++;
	for (; n < POINTS_MAX && ok; n++) {
		const uint64_t before = w->sums.faults[which];

		snprintf(faults, sizeof(faults), "%s@0ns:n%u:#%u", kind, node, n);
		plan_small(&w->plan, faults);
		w->seed = n;
		ok = run(w);
		if (!ok)
			printf("# %s: failed %s\n%s", faults, w->failure, w->log);
		if (w->sums.faults[which] == before)
			break;
	}
	snprintf(name, sizeof(name), "%s fails at the %s, at every point of it", kind,
		 node ? "client" : "server");
	printf("# %u points\n", n - 1);
	result(ok && n > 1, name);
}

static void on_signal(int sig)
{
	char text[256];
	const int n = snprintf(
		text, sizeof(text), "# seed %llu: signal %d\n# replay: %s --seed %llu --verbose\n",
		(unsigned long long)current, sig, program, (unsigned long long)current);

	if (write(STDOUT_FILENO, text, (size_t)n) < 0)
		_exit(1);
	signal(sig, SIG_DFL);
	raise(sig);
}

static const char usage[] = "usage: sim-rpc [--seeds N | --only-seeds N | --seed N [--verbose]]\n";

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seed", required_argument, NULL, 's'},
						{"seeds", required_argument, NULL, 'n'},
						{"only-seeds", required_argument, NULL, 'o'},
						{"verbose", no_argument, NULL, 'v'},
						{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	static const int signals[] = {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
	static struct world w;
	const char *effort = getenv("GANNET_EFFORT");
	uint64_t seed = 0, seeds = effort && atoi(effort) >= 10 ? SEEDS_FULL : SEEDS;
	bool only = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 's':
			seed = strtoull(optarg, NULL, 10);
			break;
		case 'o':
			only = true;
			seeds = strtoull(optarg, NULL, 10);
			break;
		case 'n':
			seeds = strtoull(optarg, NULL, 10);
			break;
		case 'v':
			w.verbose = true;
			break;
		default:
			fputs(usage, opt == 'h' ? stdout : stderr);
			return opt == 'h' ? 0 : 2;
		}
	}
	program = argv[0];
	w.calls_room = CALLS_MAX;
	w.call = calloc(CALLS_MAX, sizeof(*w.call));
	w.life = calloc(LIVES_MAX, sizeof(*w.life));
	if (!w.call || !w.life)
		return 1;
	for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		signal(signals[i], on_signal);
	if (seed) {
		result(run_seed(&w, seed), "the seed");
	} else if (only) {
		test_seeds(&w, seeds);
	} else {
		test_points(&w, "alloc", 0);
		test_points(&w, "alloc", 1);
		test_points(&w, "register", 0);
		test_points(&w, "register", 1);
		test_seeds(&w, seeds);
		if (seeds >= SEEDS)
			test_breadth(&w);
	}
	printf("1..%u\n", cases);
	free(w.call);
	free(w.life);
	return failed ? 1 : 0;
}
