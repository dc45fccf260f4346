/* SPDX-License-Identifier: MIT */
/*
 * gannet demo: a key-value store, three ways to ask it (demo_race.c), and memcached's protocol in
 * front of it. For the last it runs the commands that a user would type, as processes, and prints a
 * session in memcached's protocol through a Unix socket, line by line.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gannet/base.h>
#include <gannet/kv.h>

#include "bench.h"
#include "cmd.h"
#include "command.h"
#include "demo.h"

#define READY_US   5000000u
#define END_US	   3000000u
#define NAP_US	   10000u
#define ANSWER_S   5
#define TMPDIR_MAX 50u

struct child {
	int pid; /* 0: none */
	int out; /* what it says can be read here, until it has ended */
};

struct session {
	char dir[80], path[96], addr[48];
	struct child server, proxy;
	int socket;
	char buf[4096]; /* what has come and was not shown */
	size_t n;
};

static int demo_failed(const char *what, int rc)
{
	if (!bench_stopped())
		fprintf(stderr, "gannet: demo: cannot %s: %s\n", what, gn_strerror(rc));
	return bench_stopped() ? -EINTR : rc;
}

/* ---- processes ---- */

/* Starts gannet with these words, which are shown; its first line of output says it is ready. */
static int demo_start(const char *const *words, struct child *child)
{
	char byte = 0;
	int fds[2], rc;
	ssize_t n;

	printf("  $ gannet");
	for (int i = 0; words[i]; i++)
		printf(" %s", words[i]);
	puts(" &");
	fflush(stdout);
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	rc = bench_spawn_words(words, fds[1], &child->pid);
	close(fds[1]);
	child->out = fds[0];
	while (!rc && byte != '\n') {
		n = read(fds[0], &byte, 1);
		if (n == 0)
			rc = -ECHILD;
		else if (n < 0)
			rc = errno == EINTR && !bench_stopped() ? 0 : -errno;
	}
	return rc;
}

static void demo_stop(struct child *child)
{
	const uint64_t end_ns = gn_deadline_us(END_US);

	if (child->pid > 0)
		kill(child->pid, SIGTERM);
	while (child->pid > 0 && waitpid(child->pid, NULL, WNOHANG) == 0) {
		if (gn_now_ns() > end_ns)
			kill(child->pid, SIGKILL);
		gn_sleep_us(NAP_US);
	}
	if (child->out >= 0)
		close(child->out);
}

static int demo_start_both(struct session *s)
{
	char where[112];
	const char *const serve[] = {"kv", "serve", "--listen", s->addr, "--memory", "64M", NULL};
	const char *const proxy[] = {"kv", "proxy", "--server", s->addr, "--listen", where, NULL};
	int rc;

	snprintf(where, sizeof(where), "unix:%s", s->path);
	rc = demo_start(serve, &s->server);
	if (rc)
		return demo_failed("start a server", rc);
	rc = demo_start(proxy, &s->proxy);
	return rc ? demo_failed("start a proxy", rc) : 0;
}

/* ---- a client of gannet's own ---- */

static int demo_store_one(const struct session *s)
{
	struct gn_fabric *fabric = NULL;
	struct gn_kv_client *client = NULL;
	int rc = gn_fabric_open("shm", &fabric);

	if (!rc)
		rc = gn_kv_client_open(fabric, s->addr, NULL, &client);
	if (!rc)
		rc = gn_kv_set(client, "fish", 4, "herring", 7, 0, gn_deadline_us(READY_US));
	gn_kv_client_close(client);
	gn_fabric_close(fabric);
	if (rc)
		return demo_failed("store a value", rc);
	puts("\n  A client of gannet/kv.h has stored herring under fish. Now memcached's\n"
	     "  protocol, what is sent (>) and what comes back (<):\n");
	return 0;
}

/* ---- a client of memcached's ---- */

static int demo_connect_socket(struct session *s)
{
	const struct timeval patience = {.tv_sec = ANSWER_S};
	const uint64_t end_ns = gn_deadline_us(READY_US);
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", s->path);
	s->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->socket < 0)
		return -errno;
	setsockopt(s->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	while (connect(s->socket, (struct sockaddr *)&to, sizeof(to))) {
		if (bench_stopped() || gn_now_ns() > end_ns)
			return -errno;
		gn_sleep_us(NAP_US);
	}
	return 0;
}

static void demo_show(char mark, const char *line, size_t len)
{
	printf("    %c %.*s\n", mark, (int)len, line);
	fflush(stdout);
}

static int demo_send(struct session *s, const char *text)
{
	const size_t len = strlen(text);

	for (const char *at = text, *end; (end = strstr(at, "\r\n")); at = end + 2)
		demo_show('>', at, (size_t)(end - at));
	return write(s->socket, text, len) == (ssize_t)len ? 0 : -errno;
}

static int demo_read_more(struct session *s)
{
	const ssize_t n = read(s->socket, s->buf + s->n, sizeof(s->buf) - s->n);

	if (n > 0)
		s->n += (size_t)n;
	return n > 0 ? 0 : n == 0 ? -ECONNRESET : errno == EINTR && !bench_stopped() ? 0 : -errno;
}

/* The next line of the answer, which must be that. */
static int demo_expect(struct session *s, const char *want, size_t len)
{
	char *end;
	size_t line;
	int rc = 0;

	while (!rc && !(end = memmem(s->buf, s->n, "\r\n", 2)))
		rc = s->n < sizeof(s->buf) ? demo_read_more(s) : -EMSGSIZE;
	if (rc)
		return rc;
	line = (size_t)(end - s->buf);
	demo_show('<', s->buf, line);
	if (line != len || memcmp(s->buf, want, len))
		return -EPROTO;
	s->n -= line + 2;
	memmove(s->buf, end + 2, s->n);
	return 0;
}

/* Lines end as the protocol has it. */
static const struct {
	const char *request, *response;
} talk[] = {
	{"get fish\r\n", "VALUE fish 0 7\r\nherring\r\nEND\r\n"},
	{"set dive 7 60 11\r\n30 m and up\r\n", "STORED\r\n"},
	{"get fish dive wings\r\n",
	 "VALUE fish 0 7\r\nherring\r\nVALUE dive 7 11\r\n30 m and up\r\nEND\r\n"},
	{"set eggs 0 0 1\r\n1\r\nincr eggs 41\r\n", "STORED\r\n42\r\n"},
	{"append fish 0 0 9\r\n, 2 a day\r\nmg fish v s f\r\n",
	 "STORED\r\nVA 16 s16 f0\r\nherring, 2 a day\r\n"},
	{"delete fish\r\nget fish\r\n", "DELETED\r\nEND\r\n"},
};

static int demo_converse(struct session *s)
{
	int rc = demo_connect_socket(s);

	for (size_t i = 0; !rc && i < sizeof(talk) / sizeof(talk[0]); i++) {
		rc = demo_send(s, talk[i].request);
		for (const char *at = talk[i].response, *end; !rc && (end = strstr(at, "\r\n"));
		     at = end + 2)
			rc = demo_expect(s, at, (size_t)(end - at));
	}
	if (rc)
		return demo_failed("talk to the proxy", rc);
	puts("\n  Any client library of memcached's will do. What several commands at a time\n"
	     "  ask for goes to the store in one message.");
	return 0;
}

static int demo_session(void)
{
	struct session s = {.server = {.out = -1}, .proxy = {.out = -1}, .socket = -1};
	const char *tmp = getenv("TMPDIR");
	int rc;

	/* The path of a socket is short. */
	snprintf(s.dir, sizeof(s.dir), "%s/gannet-demo-XXXXXX",
		 tmp && *tmp && strlen(tmp) <= TMPDIR_MAX ? tmp : "/tmp");
	if (!mkdtemp(s.dir))
		return demo_failed("make a folder for a socket", -errno);
	snprintf(s.path, sizeof(s.path), "%s/socket", s.dir);
	snprintf(s.addr, sizeof(s.addr), "shm:demo-%d", (int)getpid());
	puts("\nThe same store, for programs that speak memcached's protocol:\n");
	rc = demo_start_both(&s);
	if (!rc)
		rc = demo_store_one(&s);
	if (!rc)
		rc = demo_converse(&s);
	if (s.socket >= 0)
		close(s.socket);
	demo_stop(&s.proxy);
	demo_stop(&s.server);
	unlink(s.path);
	rmdir(s.dir);
	return rc;
}

/* ---- the command ---- */

static const char farewell[] =
	"\n"
	"Next, with the gannet that you have just run:\n"
	"\n"
	"  gannet kv serve --listen shm:mine --memory 256M   a store of your own; elsewhere:\n"
	"  gannet kv set --server shm:mine sea blue          and get, del, stats\n"
	"  gannet kv proxy --server shm:mine --listen 11211  for what speaks memcached\n"
	"  gannet bench kv --batch 32 --dist zipf:0.99       measure what you like\n"
	"  gannet doctor                                     is there RDMA hardware here?\n"
	"\n"
	"examples/kv.c is a program that uses the store, docs/kv.md explains it, and make check\n"
	"tests all of it, also in a simulated cluster with faults, and on emulated RDMA hardware.";

bool demo_on_terminal(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
}

struct demo {
	uint32_t rounds;
};

static const struct opt demo_options[] = {
	{OPT_U32, "rounds", "N", "of measurements; figures are their medians",
	 .to = offsetof(struct demo, rounds), RANGE(1, DEMO_ROUNDS_MAX)},
	{.type = OPT_END},
};

static int demo_run(const struct args *args)
{
	const struct demo *demo = args->opts;
	int rc;

	bench_stop_on_signals();
	printf("Gannet %s: a key-value store whose clients fetch.\n\n", gn_version());
	rc = demo_race(demo->rounds);
	if (!rc)
		rc = demo_session();
	if (bench_stopped())
		return EXIT_INTERRUPTED;
	if (rc)
		return EXIT_FAILURE;
	puts(farewell);
	return cmd_flush_stdout();
}

const struct command command_demo = {
	.name = "demo",
	.what = "a key-value store at work, over shared memory, in 20 seconds",
	.about = "Starts a key-value store and a client, each a process, over shared memory in "
		 "place of a network card; shows how fast they are when results are fetched, "
		 "replied, or found without the server; then talks to a store as a client of "
		 "memcached's would. Takes about 20 seconds and needs no RDMA hardware. Nothing is "
		 "left behind.",
	.run = demo_run,
	OPTIONS(demo_options, struct demo, .rounds = 4),
};
