/* SPDX-License-Identifier: MIT */
/*
 * Servers and clients as processes of their own, which are killed, or are many. Prints TAP.
 *
 * rpc_procs kill [PROVIDER-ADDRESS]: either side is killed again and again, and the other stays
 * healthy. For GANNET_EFFORT times some seconds.
 * rpc_procs scale: a thousand clients that are silent, and one that is not.
 * Called by itself: rpc_procs serve ADDR, rpc_procs call ADDR SEED, rpc_procs crowd ADDR N.
 */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gannet/exec.h"
#include "gannet/rpc.h"

#define KILL_MS	    2000u	/* of each kind of killing, times GANNET_EFFORT */
#define GONE_NS	    1000000000u /* until a client knows that its server is not there */
#define STALL_NS    1000000000u
#define PATIENCE_US 30000000u
#define BYTES	    200u
#define LARGE	    (300u << 10)
#define LAZY_FDS    3u /* of a client, created when first needed: two timers, one large buffer */
#define CLIENTS	    1000u
#define CROWDS	    4u
#define ROUNDS	    51u
#define BLOCK_NS    25000000u
#define IDLE_US	    3000000u
#define IDLE_SHARE  0.01
#define IDLE_LOOKS  4u

extern char **environ;

enum { ECHO = 1, LARGE_ECHO = 2 };

static int n_tests, n_failed;
static const char *self;

static void ok(bool good, const char *what)
{
	printf("%sok %d - %s\n", good ? "" : "not ", ++n_tests, what);
	fflush(stdout);
	n_failed += !good;
}

static unsigned effort(void)
{
	const char *given = getenv("GANNET_EFFORT");
	const unsigned long n = given ? strtoul(given, NULL, 10) : 1;

	return n ? (unsigned)n : 1;
}

static void die(const char *what, int rc)
{
	printf("Bail out! %s: %s\n", what, gn_strerror(rc));
	exit(1);
}

/* ---- the parts ---- */

static void echo(struct gn_rpc_request *request, void *arg)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);

	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, data, len);
}

static int serve(const char *addr)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .threads = 1};
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;

	if (gn_fabric_open("shm", &fabric) || gn_rpc_server_create(fabric, addr, &opts, &server) ||
	    gn_rpc_server_handle(server, ECHO, echo, NULL) ||
	    gn_rpc_server_handle(server, LARGE_ECHO, echo, NULL) || gn_rpc_server_start(server))
		return 1;
	for (;;)
		pause();
}

static void fill(uint8_t *bytes, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

/* A call whose result is the request; 0, or what went wrong. */
static int check_echo(struct gn_rpc_client *client, unsigned method, uint32_t len, uint32_t seed,
		      unsigned *status)
{
	static uint8_t request[LARGE], result[LARGE];
	uint32_t got = 0;
	int rc;

	fill(request, len, seed);
	*status = GN_RPC_FAILED;
	rc = gn_rpc_call(client, method, request, len, result, len, &got,
			 gn_deadline_us(PATIENCE_US), status);
	if (rc || *status != GN_RPC_OK)
		return rc;
	return got == len && !memcmp(request, result, len) ? 0 : -EBADMSG;
}

static struct gn_rpc_client *connect_to(struct gn_fabric *fabric, const char *addr,
					enum gn_rpc_mode mode, uint32_t batch)
{
	struct gn_rpc_client_opts opts = {.size = sizeof(opts)};
	const uint64_t deadline_ns = gn_deadline_us(PATIENCE_US);
	struct gn_rpc_client *client;
	int rc;

	opts.mode = mode;
	opts.batch.entries = batch;
	while ((rc = gn_rpc_client_open(fabric, addr, &opts, &client)) && gn_now_ns() < deadline_ns)
		gn_sleep_us(1000); /* it has just been started */
	if (rc)
		die("connecting", rc);
	return client;
}

/* Calls of all kinds, several under way, until somebody kills it. */
static int call(const char *addr, unsigned seed)
{
	struct gn_fabric *fabric;
	struct gn_rpc_client *client;
	uint8_t request[16][64], result[16][64];
	unsigned status;

	if (gn_fabric_open("shm", &fabric))
		return 1;
	client = connect_to(fabric, addr, (enum gn_rpc_mode)(seed % GN_RPC_MODES), seed % 5);
	for (unsigned i = seed;; i++) {
		struct gn_rpc_op ops[16];

		for (unsigned k = 0; k < 16; k++) {
			fill(request[k], 64, i + k);
			ops[k] = (struct gn_rpc_op){.method = ECHO,
						    .request = request[k],
						    .request_len = 64,
						    .result = result[k],
						    .result_room = 64};
		}
		if (gn_rpc_call_all(client, ops, 16) ||
		    check_echo(client, LARGE_ECHO, i % 7 ? 5000 : LARGE, i, &status))
			return 1;
		for (unsigned k = 0; k < 16; k++)
			if (ops[k].status || memcmp(request[k], result[k], 64))
				return 1;
	}
}

/* Connected, and silent ever after. A line on stdout tells when all are. */
static _Noreturn void crowd(const char *addr, unsigned n)
{
	struct gn_rpc_client_opts opts = {.size = sizeof(opts),
					  .slots = 2,
					  .max_request = 64,
					  .max_result = 64,
					  .timeout_us = PATIENCE_US};
	struct gn_fabric *fabric;
	struct gn_ctx *ctx = NULL;
	int rc = gn_fabric_open("shm", &fabric);

	if (!rc)
		rc = gn_ctx_create(fabric, &ctx);
	opts.ctx = ctx;
	for (unsigned i = 0; i < n && !rc; i++) {
		struct gn_rpc_client *client;
		unsigned status;

		rc = gn_rpc_client_open(fabric, addr, &opts, &client);
		if (!rc)
			rc = gn_rpc_call(client, ECHO, "x", 1, &status, 1, NULL,
					 gn_deadline_us(PATIENCE_US), NULL);
	}
	printf("%s\n", rc ? gn_strerror(rc) : "here");
	fflush(stdout);
	for (;;)
		pause();
}

/* ---- processes ---- */

/* out: NULL, or gets the reading end of its stdout. */
static pid_t start(const char *part, const char *addr, const char *arg, FILE **out)
{
	char *argv[] = {(char *)(uintptr_t)self, (char *)(uintptr_t)part, (char *)(uintptr_t)addr,
			(char *)(uintptr_t)arg, NULL};
	posix_spawn_file_actions_t actions;
	int fds[2];
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	if (out && !pipe2(fds, O_CLOEXEC))
		posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	if (posix_spawn(&pid, self, &actions, NULL, argv, environ))
		die("starting a process", -errno);
	posix_spawn_file_actions_destroy(&actions);
	if (out) {
		close(fds[1]);
		*out = fdopen(fds[0], "r");
	}
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static unsigned count_entries(const char *fmt, int pid)
{
	char path[64];
	unsigned n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), fmt, pid);
	dir = opendir(path);
	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static unsigned open_fds(pid_t pid)
{
	return count_entries("/proc/%d/fd", pid);
}

/* Waits until a process has at most so many: a thread closes discarded ones. Returns the number. */
static unsigned fds_become(pid_t pid, unsigned most)
{
	const uint64_t until_ns = gn_deadline_us(5000000);
	unsigned n;

	while ((n = open_fds(pid)) > most && gn_now_ns() < until_ns)
		gn_sleep_us(1000);
	return n;
}

/* In KiB: what is in memory. */
static unsigned long memory_of(pid_t pid)
{
	unsigned long size = 0, resident = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%lu %lu", &size, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

/* The time that its threads were running, all of them. */
static uint64_t cpu_ns(pid_t pid)
{
	char path[300];
	struct dirent *entry;
	uint64_t sum = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		unsigned long long ns = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", pid, entry->d_name);
		f = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (f && fscanf(f, "%llu", &ns) == 1)
			sum += ns;
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return sum;
}

/* ---- who kills servers ---- */

struct async_call {
	struct gn_rpc_op op;
	uint8_t request[BYTES], result[BYTES];
};

/* So many calls end, all of them; how long that takes, in ns. */
static uint64_t all_end(struct gn_rpc_client *client, const struct async_call *f, unsigned n)
{
	const uint64_t begin_ns = gn_now_ns();

	for (unsigned i = 0; i < n; i++)
		while (f[i].op.client && gn_now_ns() - begin_ns < PATIENCE_US * 1000ull)
			gn_rpc_wait(client, gn_deadline_us(100000));
	return gn_now_ns() - begin_ns;
}

/* Calls go on, until its server is gone; then it connects to the next. */
static uint64_t outlive(struct gn_rpc_client *client, pid_t server, uint64_t us, bool *wrong)
{
	const uint64_t until_ns = gn_deadline_us(us);
	struct async_call f[8];
	unsigned begun = 0, status;
	uint64_t took_ns;

	for (unsigned i = 0; gn_now_ns() < until_ns; i++) {
		const int rc = check_echo(client, i % 50 ? ECHO : LARGE_ECHO,
					  i % 50 ? BYTES : LARGE, i, &status);

		if (rc || status != GN_RPC_OK) {
			printf("# call %u: %d, status %u: %s\n", i, rc, status, gn_error());
			*wrong = true;
		}
	}
	for (; begun < 8; begun++) {
		f[begun].op = (struct gn_rpc_op){.method = ECHO,
						 .request = f[begun].request,
						 .request_len = BYTES,
						 .result = f[begun].result,
						 .result_room = BYTES};
		if (gn_rpc_submit(client, &f[begun].op))
			break;
		if (begun == us % 8)
			end(server);
	}
	if (begun <= us % 8)
		end(server);
	took_ns = all_end(client, f, begun);
	for (unsigned i = 0; i < begun; i++)
		*wrong |= f[i].op.client ||
			  (f[i].op.status != GN_RPC_OK && f[i].op.status != GN_RPC_PEER_GONE);
	return took_ns;
}

static void kill_servers(struct gn_fabric *fabric, const char *addr)
{
	const uint64_t until_ns = gn_deadline_us(KILL_MS * 1000ull * effort());
	struct gn_rpc_client *clients[GN_RPC_MODES];
	uint64_t slowest_ns = 0;
	unsigned lives = 0, fds = 0, left;
	bool wrong = false;

	while (gn_now_ns() < until_ns || lives < 8 * GN_RPC_MODES) {
		pid_t server = start("serve", addr, NULL, NULL);
		struct gn_rpc_client **client = &clients[lives % GN_RPC_MODES];
		uint64_t took_ns;
		int rc = 0;

		if (lives < GN_RPC_MODES)
			*client = connect_to(fabric, addr, (enum gn_rpc_mode)lives, 0);
		else
			while ((rc = gn_rpc_reconnect(*client)) == -ECONNREFUSED)
				gn_sleep_us(500);
		if (rc) {
			printf("# reconnecting: %s\n", gn_error());
			wrong = true;
		}
		took_ns = outlive(*client, server, 1000 + gn_random() % 40000, &wrong);
		slowest_ns = took_ns > slowest_ns ? took_ns : slowest_ns;
		if (++lives == GN_RPC_MODES)
			fds = open_fds(getpid());
	}
	left = fds_become(getpid(), fds + LAZY_FDS * GN_RPC_MODES);
	printf("# %u servers killed; a client knew after %.1f ms at most; %u, then %u open files\n",
	       lives, (double)slowest_ns * 1e-6, fds, left);
	ok(!wrong, "kill: calls end well, or with the server");
	ok(slowest_ns < GONE_NS, "kill: clients know soon");
	ok(left <= fds + LAZY_FDS * GN_RPC_MODES, "kill: and keep nothing of those that are gone");
	for (unsigned i = 0; i < GN_RPC_MODES; i++)
		gn_rpc_client_close(clients[i]);
}

/* ---- who kills clients ---- */

static uint64_t clients_of(struct gn_rpc_client *client)
{
	static char text[1 << 20];
	const char *at;
	uint32_t len = 0;
	unsigned status;

	if (gn_rpc_call(client, GN_RPC_STATS_JSON, NULL, 0, text, sizeof(text) - 1, &len,
			gn_deadline_us(PATIENCE_US), &status) ||
	    status)
		return UINT64_MAX;
	text[len] = '\0';
	at = strstr(text, "\"clients\": ");
	return at ? strtoull(at + strlen("\"clients\": "), NULL, 10) : UINT64_MAX;
}

static bool become(struct gn_rpc_client *client, uint64_t clients)
{
	const uint64_t until_ns = gn_deadline_us(5000000);

	while (clients_of(client) != clients)
		if (gn_now_ns() > until_ns)
			return false;
		else
			gn_sleep_us(1000);
	return true;
}

/* Three at a time, of which the oldest is killed after a while. */
static void kill_clients(struct gn_fabric *fabric, const char *addr)
{
	const uint64_t until_ns = gn_deadline_us(KILL_MS * 1000ull * effort());
	const pid_t server = start("serve", addr, NULL, NULL);
	struct gn_rpc_client *client = connect_to(fabric, addr, GN_RPC_HYBRID, 0);
	const unsigned fds = open_fds(server);
	unsigned lives = 0, calls = 0, status, left;
	pid_t pids[3] = {0};
	unsigned long memory = 0;
	uint64_t slowest_ns = 0;
	bool wrong = false;

	while (gn_now_ns() < until_ns || lives < 6) {
		const uint64_t kill_ns = gn_deadline_us(1000 + gn_random() % 30000);
		pid_t *pid = &pids[lives % 3];
		char seed[16];

		if (*pid)
			end(*pid);
		if (lives == 6) /* it has had all kinds by now */
			memory = memory_of(server);
		snprintf(seed, sizeof(seed), "%u", lives++);
		*pid = start("call", addr, seed, NULL);
		while (gn_now_ns() < kill_ns) {
			const uint64_t begin_ns = gn_now_ns();
			uint64_t ns;

			wrong |= check_echo(client, ECHO, BYTES, calls++, &status) || status;
			ns = gn_now_ns() - begin_ns;
			slowest_ns = ns > slowest_ns ? ns : slowest_ns;
		}
	}
	for (unsigned i = 0; i < 3; i++)
		end(pids[i]);
	printf("# %u clients killed beside %u calls, of which the slowest took %.1f ms\n", lives,
	       calls, (double)slowest_ns * 1e-6);
	ok(!wrong, "kill: another client's calls end well");
	ok(slowest_ns < STALL_NS, "kill: and in time");
	ok(become(client, 1), "kill: the server knows that they are gone");
	/* Two more are made once, when the first client is woken: a timer, and what watches sockets. */
	left = fds_become(server, fds + 2);
	printf("# the server: %u open files, then %u; %lu KiB, then %lu\n", fds, left, memory,
	       memory_of(server));
	ok(left <= fds + 2, "kill: it keeps no files of theirs");
	ok(memory_of(server) < memory + 8192, "kill: and no memory");
	gn_rpc_client_close(client);
	end(server);
}

static int kill_them(void)
{
	struct gn_fabric *fabric;
	char addr[64];
	int rc = gn_fabric_open("shm", &fabric);

	if (rc)
		die("opening shm", rc);
	snprintf(addr, sizeof(addr), "shm:rpc-kill-%d", (int)getpid());
	kill_servers(fabric, addr);
	kill_clients(fabric, addr);
	ok(gn_fabric_close(fabric) == 0, "kill: nothing is left here");
	return 0;
}

/* ---- many ---- */

static double calls_per_s(struct gn_rpc_client *client)
{
	const uint64_t begin_ns = gn_now_ns();
	uint32_t n = 0, got;
	uint64_t ns;

	do {
		for (unsigned i = 0; i < 32; i++, n++)
			if (gn_rpc_call(client, ECHO, &n, sizeof(n), &got, sizeof(got), NULL,
					gn_deadline_us(PATIENCE_US), NULL) ||
			    got != n)
				die("a call", -EBADMSG);
		ns = gn_now_ns() - begin_ns;
	} while (ns < BLOCK_NS);
	return n * 1e9 / (double)ns;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* How long this thread has waited for a core, in ns, that others had. */
static uint64_t waited_ns(void)
{
	unsigned long long ran = 0, waited = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "r");

	if (f && fscanf(f, "%llu %llu", &ran, &waited) != 2)
		waited = 0;
	if (f)
		fclose(f);
	return waited;
}

/*
 * In turns: without the others, and with them. Where other programs take the cores from us, every
 * pause sends the server to sleep, which is the dearer the more clients it has: there less is asked
 * for, and it is said.
 */
static void compare(struct gn_rpc_client *alone, struct gn_rpc_client *beside)
{
	const uint64_t begin_ns = gn_now_ns(), waited = waited_ns();
	double rates[2][ROUNDS], ratios[ROUNDS], busy;

	for (unsigned i = 0; i < ROUNDS; i++) {
		rates[0][i] = calls_per_s(alone);
		rates[1][i] = calls_per_s(beside);
		ratios[i] = rates[1][i] / rates[0][i];
	}
	busy = (double)(waited_ns() - waited) / (double)(gn_now_ns() - begin_ns);
	for (unsigned k = 0; k < 2; k++)
		qsort(rates[k], ROUNDS, sizeof(double), by_value);
	qsort(ratios, ROUNDS, sizeof(double), by_value);
	printf("# calls a second: %.0f alone, %.0f beside %u silent clients; ratio %.3f, medians "
	       "of %u turns; others had the core for %.1f %% of the time\n",
	       rates[0][ROUNDS / 2], rates[1][ROUNDS / 2], CLIENTS, ratios[ROUNDS / 2], ROUNDS,
	       busy * 100);
	if (busy < 0.02) {
		ok(ratios[ROUNDS / 2] >= 0.9, "scale: it keeps 90 % of its speed");
		return;
	}
	printf("# the machine is too busy for more than a rough look\n");
	ok(ratios[ROUNDS / 2] >= 0.6, "scale: it keeps 60 % of its speed on a busy machine");
}

static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* On a busy machine the server parks its clients later: it has IDLE_LOOKS times to be found asleep. */
static void idle(const char *who, pid_t server)
{
	double share = 1;

	for (unsigned look = 0; look < IDLE_LOOKS && share >= IDLE_SHARE; look++) {
		const uint64_t cpu = cpu_ns(server), ns = gn_now_ns();

		gn_sleep_us(IDLE_US);
		share = (double)(cpu_ns(server) - cpu) / (double)(gn_now_ns() - ns);
		printf("# the server with %s: %.2f %% of a core while nobody calls\n", who,
		       share * 100);
	}
	ok(share < IDLE_SHARE, "scale: a server whose clients are silent sleeps");
}

/* Client and servers on cores of their own, where there are two: else it is luck which they get. */
static void stay_on(unsigned cpu)
{
	cpu_set_t set;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set); /* where it is not allowed it is left alone */
}

static void scale(void)
{
	struct gn_rpc_client *alone, *beside;
	struct gn_fabric *fabric;
	pid_t servers[2], crowds[CROWDS];
	char addr[2][64], number[16], line[64];
	bool all = true;
	int rc = gn_fabric_open("shm", &fabric);

	if (rc)
		die("opening shm", rc);
	raise_limit();
	stay_on(0);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(addr[i], sizeof(addr[i]), "shm:rpc-scale-%u-%d", i, (int)getpid());
		servers[i] = start("serve", addr[i], NULL, NULL);
	}
	alone = connect_to(fabric, addr[0], GN_RPC_FETCH, 0);
	beside = connect_to(fabric, addr[1], GN_RPC_FETCH, 0);
	snprintf(number, sizeof(number), "%u", CLIENTS / CROWDS);
	for (unsigned i = 0; i < CROWDS; i++) {
		FILE *out;

		crowds[i] = start("crowd", addr[1], number, &out);
		all &= fgets(line, sizeof(line), out) && !strcmp(line, "here\n");
		fclose(out);
	}
	ok(all && clients_of(beside) == CLIENTS + 1, "scale: a thousand clients are there");
	stay_on(1);
	gn_sleep_us(200000);
	idle("one client", servers[0]);
	idle("a thousand", servers[1]);
	compare(alone, beside);
	for (unsigned i = 0; i < CROWDS; i++)
		end(crowds[i]);
	ok(become(beside, 1), "scale: all of them are killed at once, and it knows");
	ok(calls_per_s(beside) > 0, "scale: and serves on");
	gn_rpc_client_close(alone);
	gn_rpc_client_close(beside);
	end(servers[0]);
	end(servers[1]);
	gn_fabric_close(fabric);
}

int main(int argc, char **argv)
{
	self = "/proc/self/exe";
	if (argc > 2) /* one of our own parts: it ends with us */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc == 3 && !strcmp(argv[1], "serve")) {
		raise_limit();
		return serve(argv[2]);
	}
	if (argc == 4 && !strcmp(argv[1], "call"))
		return call(argv[2], (unsigned)strtoul(argv[3], NULL, 10));
	if (argc == 4 && !strcmp(argv[1], "crowd")) {
		raise_limit();
		crowd(argv[2], (unsigned)strtoul(argv[3], NULL, 10));
	}
	if (argc == 2 && !strcmp(argv[1], "kill"))
		kill_them();
	else if (argc == 2 && !strcmp(argv[1], "scale"))
		scale();
	else
		return 2;
	printf("1..%d\n", n_tests);
	return n_failed ? 1 : 0;
}
