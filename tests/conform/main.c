/* SPDX-License-Identifier: MIT */
/*
 * The conform command: takes the arguments, decides where the two sides of the cases run, and runs
 * them there.
 *
 * shm, and verbs in one guest: this process is A and spawns itself as B. verbs in two guests: the
 * second is B. sim: both are nodes of a simulated cluster in this process. With --one-process both
 * are threads of it. With --role a or b the other side is started by hand.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "simulated.h"
#include "threads.h"

#define ONLY_MAX     128
#define NAME_MAX_    48
#define CASE_LIMIT_S 240u /* of real time: beyond this something loops inside a call */
#define REPLAY_MAX   2048
#define NO_SUCH	     2 /* the exit status when an argument makes no sense */

extern char **environ;

struct options {
	const char *provider; /* "shm", "sim", "sim:PROFILE", "verbs", "verbs:DEVICE" */
	const char *addr;
	bool role_given, hash;
	int two_guests, one_process, list, help; /* set by getopt_long() */
	bool seed_given;
	bool sim_given; /* an option that only a simulation has */
	enum cf_role role;
	unsigned effort;
	uint64_t seed;
	struct cf_sim sim;
	unsigned only[ONLY_MAX + 1];
	char replay[REPLAY_MAX];
};

static const char usage[] =
	"usage: conform --provider shm|sim[:PROFILE]|verbs[:DEVICE] [OPTION...]\n"
	"\n"
	"Runs the conformance cases of the fabric and prints a line for each.\n"
	"\n"
	"  --effort N       1 (default) is a tenth of the full counts, 10 all of them\n"
	"  --only N[,N...]  these cases\n"
	"  --list           print the cases and stop\n"
	"  --seed S         of the cases' random choices; printed at the start of every run\n"
	"  --addr HOST      verbs: the address to use (default: $GN_VM_ADDR)\n"
	"                   shm, with --role: a name that both sides are given\n"
	"  --role a|b       run this side only\n"
	"  --two-guests     verbs: side B is guest 2 (see tests/vm/run)\n"
	"  --one-process    shm: both sides are threads of one process\n"
	"  --caps-off LIST  sim: promises that the run does not make, and breaks where it can: all\n"
	"                   of them, none (default), or some of inorder-write, inorder-128,\n"
	"                   write-order, read-head-first, atomic-cpu, and what all leaves alone:\n"
	"                   atomics, ud, foreign-remote\n"
	"  --faults TEXT    sim: what goes wrong, as gn_sim_inject() takes it\n"
	"  --hash           sim: print the trace hash at the end\n"
	"\n"
	"PROFILE is ideal (default), another of `gannet sim profile`, or a file with a '/' in its\n"
	"name. A run that fails prints the command that repeats it.\n"
	"\n"
	"GANNET_LOG=warn also shows what the library logs.\n";

/* ---- arguments ---- */

static bool parse_number(const char *text, uint64_t most, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 0);
	return !errno && end != text && !*end && text[0] != '-' && *out <= most;
}

static bool parse_only(struct options *o, const char *text)
{
	char list[ONLY_MAX * 4], *save;
	unsigned n = 0;

	snprintf(list, sizeof(list), "%s", text); /* a copy: the command is printed later */
	for (char *item = strtok_r(list, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		uint64_t number;

		if (n == ONLY_MAX || !parse_number(item, UINT32_MAX, &number) ||
		    !cf_case_find((unsigned)number)) {
			fprintf(stderr, "conform: there is no case %s\n", item);
			return false;
		}
		o->only[n++] = (unsigned)number;
	}
	return true;
}

static bool bad_value(const char *option, const char *value)
{
	fprintf(stderr, "conform: bad value \"%s\" for --%s\n", value, option);
	return false;
}

static bool parse_role(struct options *o, const char *role)
{
	if (strcmp(role, "a") != 0 && strcmp(role, "b") != 0)
		return bad_value("role", role);
	o->role_given = true;
	o->role = role[0] == 'a' ? CF_A : CF_B;
	return true;
}

static bool parse_effort(struct options *o, const char *text)
{
	uint64_t value;

	if (!parse_number(text, 1000, &value) || !value)
		return bad_value("effort", text);
	o->effort = (unsigned)value;
	return true;
}

/* Takes one option with its value. False: it was wrong, and an error was printed. */
static bool take_option(struct options *o, int c, const char *value)
{
	switch (c) {
	case 'p':
		o->provider = value;
		return true;
	case 'e':
		return parse_effort(o, value);
	case 'o':
		return parse_only(o, value);
	case 's':
		o->seed_given = true;
		return parse_number(value, UINT64_MAX, &o->seed) || bad_value("seed", value);
	case 'a':
		o->addr = value;
		return true;
	case 'r':
		return parse_role(o, value);
	case 'c':
		o->sim_given = true;
		return cf_caps_parse(value, &o->sim.caps_off);
	case 'f':
		o->sim_given = true;
		o->sim.faults = value;
		return true;
	case 'H':
		o->sim_given = o->hash = true;
		return true;
	case 0: /* stored */
		return true;
	default:
		return false;
	}
}

static bool parse_args(struct options *o, int argc, char **argv)
{
	const struct option known[] = {
		{"provider", required_argument, NULL, 'p'},
		{"effort", required_argument, NULL, 'e'},
		{"only", required_argument, NULL, 'o'},
		{"seed", required_argument, NULL, 's'},
		{"addr", required_argument, NULL, 'a'},
		{"role", required_argument, NULL, 'r'},
		{"caps-off", required_argument, NULL, 'c'},
		{"faults", required_argument, NULL, 'f'},
		{"hash", no_argument, NULL, 'H'},
		{"two-guests", no_argument, &o->two_guests, true},
		{"one-process", no_argument, &o->one_process, true},
		{"list", no_argument, &o->list, true},
		{"help", no_argument, &o->help, true},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
		if (!take_option(o, c, optarg))
			return false;
	if (optind < argc)
		fprintf(stderr, "conform: unexpected argument \"%s\"\n", argv[optind]);
	return optind == argc;
}

/* The same command, with the seed. */
static void set_replay(struct options *o, int argc, char **argv)
{
	FILE *out = fmemopen(o->replay, sizeof(o->replay), "w");

	if (!out)
		return;
	for (int i = 0; i < argc; i++)
		fprintf(out, strpbrk(argv[i], " |>") ? "%s'%s'" : "%s%s", i ? " " : "", argv[i]);
	if (!o->seed_given)
		fprintf(out, " --seed %llu", (unsigned long long)o->seed);
	fclose(out);
}

static void list_cases(void)
{
	for (unsigned number = 1; number <= CF_NUMBER_MAX; number++)
		if (cf_case_find(number))
			printf("%2u %s\n", number, cf_case_find(number)->name);
}

/* ---- side B as a process ---- */

struct spawned {
	const struct options *options;
	const char *addr;
	pid_t pid; /* 0: not running */
};

static int spawn_b(void *arg)
{
	struct spawned *b = arg;
	char *argv[] = {
		(char *)"conform",
		(char *)"--provider",
		(char *)b->options->provider,
		(char *)"--role",
		(char *)"b",
		(char *)"--addr",
		(char *)b->addr,
		NULL,
	};

	return -posix_spawn(&b->pid, "/proc/self/exe", NULL, NULL, argv, environ);
}

/* B has received the order to quit, or has died; otherwise it hangs. */
static void stop_b(void *arg, char *how, size_t size)
{
	const unsigned patience = 100;
	struct spawned *b = arg;
	int status = 0;
	pid_t got = 0;

	for (unsigned i = 0; b->pid && i < patience && !got; i++) {
		got = waitpid(b->pid, &status, WNOHANG);
		if (!got)
			gn_sleep_us(10000);
	}
	if (b->pid && !got) {
		kill(b->pid, SIGKILL);
		waitpid(b->pid, &status, 0);
		snprintf(how, size, "had to be killed");
	} else if (WIFSIGNALED(status)) {
		snprintf(how, size, "killed by signal %d", WTERMSIG(status));
	} else {
		snprintf(how, size, "exit status %d", WEXITSTATUS(status));
	}
	b->pid = 0;
}

/* B must not outlive A, however A ends. */
static bool die_with_parent(void)
{
	pid_t parent = getppid();

	return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

static void kill_self(void *arg)
{
	(void)arg;
	kill(getpid(), SIGKILL);
}

/* The whole guest, as if its power had failed. */
static void kill_guest(void *arg)
{
	int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);

	(void)arg;
	if (fd < 0 || write(fd, "b", 1) != 1)
		perror("conform: /proc/sysrq-trigger");
	for (;;)
		pause();
}

/* ---- a call that never returns ---- */

static volatile sig_atomic_t running_case;

static void on_alarm(int sig)
{
	char text[] = "Bail out! case 000 hangs inside a call\n";
	int number = (int)running_case;

	(void)sig;
	for (char *digit = strstr(text, "000") + 2; number; number /= 10)
		*digit-- = (char)('0' + number % 10);
	if (write(STDOUT_FILENO, text, sizeof(text) - 1) < 0)
		_exit(2);
	_exit(1);
}

static void watch_case(void *arg, unsigned number)
{
	(void)arg;
	running_case = (sig_atomic_t)number;
	alarm(CASE_LIMIT_S);
}

/* ---- running ---- */

static int finish(const struct cf_run *run, int err)
{
	if (err) {
		printf("Bail out! cannot run on %s: %s\n# to see that again: %s\n",
		       run->fabric_name[CF_A], gn_strerror(err), run->replay);
		return EXIT_FAILURE;
	}
	if (run->failed)
		printf("# to see that again: %s\n", run->replay);
	printf("%u passed, %u failed, %u skipped\n", run->passed, run->failed, run->skipped);
	return run->failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_processes(const struct options *o, struct cf_run *run)
{
	struct spawned b = {.options = o, .addr = run->name};

	run->process = true;
	run->world.die = o->two_guests ? kill_guest : kill_self;
	if (o->role == CF_B) {
		if (!o->two_guests && !die_with_parent())
			return EXIT_FAILURE;
		return cf_follow(run) ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	run->world.case_begins = watch_case;
	if (!o->role_given) {
		run->world.peer_start = spawn_b;
		run->world.peer_stop = stop_b;
		run->world.arg = &b;
	}
	return finish(run, cf_lead(run));
}

static int run_shm(struct options *o, struct cf_run *run)
{
	char name[NAME_MAX_];

	snprintf(name, sizeof(name), "conform-%d-%08x", (int)getpid(), (uint32_t)gn_random());
	run->name = o->addr ? o->addr : name;
	if (o->one_process) {
		run->world.case_begins = watch_case;
		return finish(run, cf_thread(run));
	}
	return run_processes(o, run);
}

static int run_verbs(struct options *o, struct cf_run *run)
{
	const char *guest = getenv("GN_VM_GUEST"), *own = getenv("GN_VM_ADDR");
	const char *peer = getenv("GN_VM_PEER");

	run->wait_us = 20000000;
	run->limit_us = 3000000;
	if (o->two_guests) {
		if (!guest || !own || !peer) {
			fprintf(stderr, "conform: --two-guests is for tests/vm/run --all\n");
			return EXIT_FAILURE;
		}
		o->role_given = true;
		o->role = strcmp(guest, "2") == 0 ? CF_B : CF_A;
		run->host[CF_A] = o->role == CF_A ? own : peer;
		run->host[CF_B] = o->role == CF_B ? own : peer;
		return run_processes(o, run);
	}
	own = o->addr ? o->addr : own;
	if (!own) {
		fprintf(stderr, "conform: --addr must name an address of the RDMA device\n");
		return EXIT_FAILURE;
	}
	run->host[CF_A] = run->host[CF_B] = run->name = own;
	return run_processes(o, run);
}

static int run_sim(struct options *o, struct cf_run *run)
{
	struct cf_trace trace;
	int err;

	run->sim = &o->sim;
	run->world.case_begins = watch_case;
	err = cf_simulate(run, &trace);
	if (!err)
		cf_lead_outside(run);
	if (!err && o->hash)
		printf("# trace %016llx, %llu events, %llu ns\n", (unsigned long long)trace.hash,
		       (unsigned long long)trace.events, (unsigned long long)trace.end_ns);
	return finish(run, err);
}

static int run_provider(struct options *o)
{
	struct cf_run run = {
		.fabric_name = {o->provider, o->provider},
		.effort = o->effort,
		.seed = o->seed,
		.wait_us = 10000000,
		.only = o->only[0] ? o->only : NULL,
		.replay = o->replay,
	};

	if (strcmp(o->provider, "shm") == 0)
		return run_shm(o, &run);
	if (strncmp(o->provider, "sim", 3) == 0)
		return run_sim(o, &run);
	return run_verbs(o, &run);
}

/* "NAME" or "NAME:…" */
static bool is_provider(const char *text, const char *name)
{
	const size_t len = strlen(name);

	return !strncmp(text, name, len) && (!text[len] || (text[len] == ':' && text[len + 1]));
}

static bool check_provider(struct options *o)
{
	if (is_provider(o->provider, "sim")) {
		o->sim.profile = o->provider[3] ? o->provider + 4 : NULL;
		return !cf_sim_check(&o->sim);
	}
	if (o->sim_given) {
		fprintf(stderr, "conform: --caps-off, --faults and --hash are for sim, not %s\n",
			o->provider);
		return false;
	}
	if (!strcmp(o->provider, "shm") || is_provider(o->provider, "verbs"))
		return true;
	fprintf(stderr, "conform: there is no provider \"%s\"; there are shm, sim and verbs\n",
		o->provider);
	return false;
}

/* Half of the cases misuse the library on purpose; its messages are shown only on request. */
static void drop_line(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	(void)line;
}

int main(int argc, char **argv)
{
	struct options o = {.effort = 1, .seed = gn_random() >> 32};

	if (!parse_args(&o, argc, argv))
		return NO_SUCH;
	if (o.help) {
		fputs(usage, stdout);
		return 0;
	}
	if (o.list) {
		list_cases();
		return 0;
	}
	if (!o.provider) {
		fputs(usage, stderr);
		return NO_SUCH;
	}
	if (!check_provider(&o))
		return NO_SUCH;
	set_replay(&o, argc, argv);
	if (!getenv("GANNET_LOG"))
		gn_log_to(drop_line, NULL);
	signal(SIGALRM, on_alarm);
	return run_provider(&o);
}
