/* SPDX-License-Identifier: MIT */
/*
 * A key-value store under faults. Each seed draws a cluster, a server, clients, keys, and what goes
 * wrong, and then:
 *
 *  - for each key there is an order in which its operations were done, one at a time: history.h;
 *  - with memory for all, nothing that was stored is forgotten but by its time to live, DELETE, and
 *    the server's end; with little, what was forgotten does not come back;
 *  - what is read, by message or past the server, are bytes that were written for this key, all of
 *    them;
 *  - every operation ends once, with a status that may be, about when it must;
 *  - nobody writes to what an operation lent after its end;
 *  - the server keeps to its memory, and of a bucket it is always the least recently used that makes
 *    room (kv_lru.c);
 *  - no process that returned has left anything behind, and the run ends.
 *
 * Besides, the n-th allocation and registration fails, for every n there is.
 */
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kv.h"
#include "kv_lru.h"

#define SEEDS	      200u
#define SEEDS_FULL    5000u
#define LIMIT_NS      30000000000ull
#define STACK_BYTES   131072u
#define SECONDS_MAX   30u
#define POINTS_MAX    2000u
#define UNDECIDED_MAX 1000u /* one key in so many */

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

/* ---- one run ---- */

static void check_history(struct world *w)
{
	struct history_result result;

	history_check(w->history, &result);
	w->sums.keys += result.keys;
	w->sums.steps += result.steps;
	w->sums.undecided += result.undecided;
	if (result.verdict == HISTORY_UNDECIDED)
		printf("# seed %llu: key %u: %s\n", (unsigned long long)w->seed, result.key,
		       result.why);
	if (result.verdict != HISTORY_WRONG)
		return;
	world_fail(w, "key %u is not as it was: %s", result.key, result.why);
	history_print(w->history, result.key);
}

static void check_end(struct world *w, int rc)
{
	const bool crash = strstr(w->plan.faults, "crash");

	if (rc)
		world_fail(w, "the run ended with: %s", gn_strerror(rc));
	for (unsigned i = 0; i <= w->plan.n_clients && !rc && !crash; i++) {
		int status;

		if (gn_sim_status(w->sim, i, &status) || status)
			world_fail(w, "process %u did not end well", i);
	}
	if (gn_sim_leaks(w->sim))
		world_fail(w, "%llu allocations were left behind",
			   (unsigned long long)gn_sim_leaks(w->sim));
	for (uint32_t i = 0; i < history_ops(w->history) && !rc && !crash; i++)
		if (history_at(w->history, i)->end_ns == HISTORY_NEVER)
			world_fail(w, "op %u did not end", i);
	for (unsigned i = 0; i < KINDS_MAX && gn_sim_fault_name(i); i++)
		w->sums.faults[i] += gn_sim_fault_count(w->sim, i);
	if (!*w->failure)
		check_history(w);
}

static void begin_world(struct world *w)
{
	const struct history_opts opts = {.may_evict = !w->plan.ample};

	w->history = history_create(&opts);
	w->clients_over = 0;
	w->epoch = 0;
	w->alive_ns = w->active_ns = 0;
	memset(w->lives, 0, sizeof(w->lives));
	*w->failure = *w->log = '\0';
}

/* As planned; false if it failed. */
static bool run(struct world *w)
{
	struct client_arg arg[CLIENTS_MAX];
	const struct gn_sim_opts opts = {
		.profile = w->plan.profile,
		.seed = w->seed,
		.nodes = w->plan.n_clients + 1,
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
		.caps_off = w->plan.caps_off,
		.faults = *w->plan.faults ? w->plan.faults : NULL,
	};
	int rc;

	current = w->seed;
	alarm(SECONDS_MAX);
	begin_world(w);
	gn_log_to(keep_line, w);
	rc = gn_sim_create(&opts, &w->sim);
	if (!rc)
		rc = gn_sim_spawn(w->sim, 0, server_main, 0, NULL, w, NULL);
	for (unsigned i = 0; !rc && i < w->plan.n_clients; i++) {
		arg[i] = (struct client_arg){w, i};
		rc = gn_sim_spawn(w->sim, i + 1, client_main, 0, NULL, &arg[i], NULL);
	}
	if (rc)
		world_fail(w, "there is no cluster: %s", gn_strerror(rc));
	else
		check_end(w, gn_sim_run(w->sim));
	gn_sim_destroy(w->sim);
	w->sim = NULL;
	gn_log_to(NULL, NULL);
	history_destroy(w->history);
	alarm(0);
	return !*w->failure;
}

static bool run_seed(struct world *w, uint64_t seed)
{
	bool ok;

	w->seed = seed;
	plan_draw(&w->plan, seed);
	if (w->verbose)
		plan_print(&w->plan);
	ok = run(w);
	if (ok)
		ok = kv_lru_check(seed, &w->sums.made_room, w->failure, sizeof(w->failure));
	if (ok)
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
	snprintf(name, sizeof(name), "keys of seeds 1 to %llu", (unsigned long long)n);
	result(!bad, name);
}

struct sum {
	const char *what;
	uint64_t n;
};

static bool all_there(const struct sum *sum, unsigned n)
{
	bool ok = true;

	for (unsigned i = 0; i < n; i++) {
		printf("# %s: %llu\n", sum[i].what, (unsigned long long)sum[i].n);
		ok = ok && sum[i].n;
	}
	return ok;
}

static void test_statuses(const struct sums *sums)
{
	struct sum all[GN_KV_STATUSES];
	unsigned n = 0;

	for (unsigned i = 0; i < GN_KV_STATUSES; i++)
		if (i != GN_KV_INVALID && i != GN_KV_NO_MEMORY)
			all[n++] = (struct sum){gn_kv_status_str(i), sums->statuses[i]};
	result(all_there(all, n), "end in every way there is");
}

/* What happened in them. */
static void test_breadth(const struct world *w)
{
	const struct sums *s = &w->sums;
	const struct sum all[] = {{"operations", s->ops},
				  {"messages", s->messages},
				  {"keys", s->keys},
				  {"steps of the checker", s->steps},
				  {"large values", s->large},
				  {"connected again", s->reconnects},
				  {"servers begun again", s->restarts},
				  {"read past the server", s->bypassed},
				  {"torn", s->torn},
				  {"fell back to a message", s->fell_back},
				  {"evicted from a bucket", s->evicted_bucket},
				  {"evicted from the log", s->evicted_log},
				  {"bytes moved", s->moved},
				  {"buckets split, or tables grown", s->splits},
				  {"made room for others in the table", s->kicks},
				  {"expired", s->expired},
				  {"made room in a bucket that was watched", s->made_room}};
	bool ok = true;

	test_statuses(s);
	result(all_there(all, sizeof(all) / sizeof(*all)), "having done everything there is");
	for (unsigned i = 0; i < GN_KV_VERBS; i++)
		ok = ok && s->verbs[i];
	result(ok, "with every verb");
	ok = true;
	for (unsigned i = 0; i < KINDS_MAX && gn_sim_fault_name(i); i++) {
		const char *kind = gn_sim_fault_name(i);

		/* A store sends no datagrams. */
		if (strncmp(kind, "ud-", 3) && !s->faults[i]) {
			printf("# never: %s\n", kind);
			ok = false;
		}
	}
	result(ok, "while everything goes wrong");
	printf("# undecided: %llu\n", (unsigned long long)s->undecided);
	result(s->undecided * UNDECIDED_MAX <= s->keys, "and it is known of almost all keys");
}

/* The n-th time on a node, for every n: until a run has fewer than that. */
static void test_points(struct world *w, const char *kind, unsigned node, bool bypass)
{
	char faults[64], name[96];
	unsigned which = 0, n = 1;
	bool ok = true;

	while (gn_sim_fault_name(which) && strcmp(gn_sim_fault_name(which), kind))
		which++;
	for (; n < POINTS_MAX && ok; n++) {
		const uint64_t before = w->sums.faults[which];

		snprintf(faults, sizeof(faults), "%s@0ns:n%u:#%u", kind, node, n);
		plan_small(&w->plan, faults, bypass);
		w->seed = n;
		ok = run(w);
		if (!ok)
			printf("# %s: failed %s\n%s", faults, w->failure, w->log);
		if (w->sums.faults[which] == before)
			break;
	}
	snprintf(name, sizeof(name), "%s fails at the %s, at every point of it%s", kind,
		 node ? "client" : "server", bypass ? ", with bypass" : "");
	printf("# %u points\n", n - 1);
	result(ok && n > 1, name);
}

static void test_all_points(struct world *w)
{
	for (unsigned i = 0; i < 2; i++) {
		test_points(w, "alloc", 0, i);
		test_points(w, "alloc", 1, i);
		test_points(w, "register", 0, i);
		test_points(w, "register", 1, i);
	}
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

static const char usage[] = "usage: sim-kv [--seeds N | --only-seeds N | --seed N [--verbose]]\n";

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
	for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		signal(signals[i], on_signal);
	if (seed) {
		result(run_seed(&w, seed), "the seed");
	} else if (only) {
		test_seeds(&w, seeds);
	} else {
		test_all_points(&w);
		test_seeds(&w, seeds);
		if (seeds >= SEEDS)
			test_breadth(&w);
	}
	printf("1..%u\n", cases);
	return failed ? 1 : 0;
}
