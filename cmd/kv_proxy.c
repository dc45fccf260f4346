/* SPDX-License-Identifier: MIT */
/*
 * gannet kv proxy: memcached's protocols in front of a store.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "proxy.h"
#include "rpc_cmd.h"

#define WAIT_MS	    100		/* between looks whether there is a server by now */
#define LARGE_BYTES (128 << 10) /* blocks of memory that go back to the system when they are free */

static const char help[] =
	"Usage: gannet kv proxy --server ADDR --listen WHERE [--listen WHERE…] [OPTION…]\n"
	"\n"
	"Lets programs that speak to memcached use a store: the text and the meta protocol of\n"
	"memcached 1.6, until Ctrl-C or SIGTERM. Waits for the store if it is not there yet, and\n"
	"connects again when it comes back.\n"
	"\n"
	"  --server ADDR      of gannet kv serve: shm:NAME or verbs:HOST:PORT\n"
	"  --listen WHERE     PORT, on this machine's loopback; HOST:PORT; unix:PATH; a port of\n"
	"                     0 is any that is free\n"
	"  --threads N        1 to 64 (1); clients are spread over them\n"
	"  --connections N    that may be open at a time (as many as ulimit -n allows)\n"
	"  --memory N         for all that clients make it hold, to 4095M (256M, and 8M for\n"
	"                     a thread at least)\n"
	"  --stall-ms N       without a byte in the middle of a command or an answer, until a\n"
	"                     client is closed (60000)\n"
	"  --idle-ms N        without a command, until a client is closed (never)\n"
	"  --timeout-ms N     for the store to answer (5000)\n"
	"  --socket-mode N    who may connect to Unix sockets, octal (700)\n"
	"  --mode M           of the store's results: hybrid, fetch or reply (hybrid)\n"
	"\n"
	"There is no authentication: who can connect can read and change everything.";

struct request {
	struct proxy_opts opts;
	const char *listen[PROXY_LISTEN_MAX];
};

enum {
	SERVER = 256,
	LISTEN,
	THREADS,
	CONNECTIONS,
	MEMORY,
	STALL,
	IDLE,
	TIMEOUT,
	SOCKET_MODE,
	MODE
};

static const struct option options[] = {
	{"server", required_argument, NULL, SERVER},
	{"listen", required_argument, NULL, LISTEN},
	{"threads", required_argument, NULL, THREADS},
	{"connections", required_argument, NULL, CONNECTIONS},
	{"memory", required_argument, NULL, MEMORY},
	{"stall-ms", required_argument, NULL, STALL},
	{"idle-ms", required_argument, NULL, IDLE},
	{"timeout-ms", required_argument, NULL, TIMEOUT},
	{"socket-mode", required_argument, NULL, SOCKET_MODE},
	{"mode", required_argument, NULL, MODE},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int add_place(struct request *r)
{
	if (r->opts.n_listen == PROXY_LISTEN_MAX)
		return cmd_usage_error("--listen: %u places are enough", PROXY_LISTEN_MAX);
	r->listen[r->opts.n_listen++] = optarg;
	return 0;
}

static int take_mode(const char *text, unsigned *out)
{
	char *end;
	const unsigned long mode = strtoul(text, &end, 8);

	if (*end || end == text || !mode || mode > 0777)
		return cmd_usage_error("--socket-mode must be octal, 1 to 777, not '%s'", text);
	*out = (unsigned)mode;
	return 0;
}

static int take_option(int option, struct request *r)
{
	uint32_t bytes;
	int status;

	switch (option) {
	case SERVER:
		r->opts.server = optarg;
		return 0;
	case LISTEN:
		return add_place(r);
	case THREADS:
		return cmd_count("--threads", optarg, 1, PROXY_THREADS_MAX, &r->opts.threads);
	case CONNECTIONS:
		return cmd_count("--connections", optarg, 1, 1000000, &r->opts.max_conns);
	case MEMORY:
		status = cmd_count("--memory", optarg, (uint32_t)PROXY_MEMORY_MIN, UINT32_MAX,
				   &bytes);
		r->opts.memory = bytes;
		return status;
	case STALL:
		return cmd_count("--stall-ms", optarg, 1, 86400000, &r->opts.stall_ms);
	case IDLE:
		return cmd_count("--idle-ms", optarg, 1, 86400000, &r->opts.idle_ms);
	case TIMEOUT:
		return cmd_count("--timeout-ms", optarg, 1, 3600000, &r->opts.timeout_ms);
	case SOCKET_MODE:
		return take_mode(optarg, &r->opts.socket_mode);
	default:
		return rpc_parse_mode(optarg, &r->opts.kv.rpc.mode);
	}
}

static int parse(int argc, char **argv, struct request *r, int *status)
{
	int option;

	*r = (struct request){.opts.listen = NULL};
	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "kv proxy", status)) >= 0)
		*status = take_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	r->opts.listen = r->listen;
	if (!*status && !r->opts.server)
		*status = cmd_usage_error("kv proxy needs --server, the address of gannet kv "
					  "serve");
	if (!*status)
		*status = rpc_check_addr(r->opts.server, "kv proxy --server");
	if (!*status && !r->opts.n_listen)
		*status = cmd_usage_error("kv proxy needs --listen: PORT, HOST:PORT or unix:PATH");
	return *status ? -1 : 0;
}

static int try_store(const struct request *r, struct gn_fabric *fabric)
{
	struct gn_kv_client *client;
	const int rc = gn_kv_client_open(fabric, r->opts.server, NULL, &client);

	if (!rc)
		return gn_kv_client_close(client);
	if (!proxy_may_wait(rc))
		fprintf(stderr, "gannet: cannot connect to %s: %s%s\n", r->opts.server,
			gn_strerror(rc),
			rc == -EPROTO ?
				"; who listens there is no gannet kv serve of this version" :
				"");
	return rc;
}

/*
 * With a store that is not there yet, or that is full: until it lets us in. -EINTR: a signal came
 * first.
 */
static int create(const struct request *r, struct gn_fabric *fabric, int stop_fd,
		  struct proxy **out)
{
	struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
	bool told = false;
	int rc;

	for (;;) {
		rc = try_store(r, fabric);
		if (!rc)
			rc = proxy_create(fabric, &r->opts, out);
		if (!proxy_may_wait(rc))
			return rc;
		if (!told)
			fprintf(stderr,
				"gannet: cannot connect to %s (%s): no store runs there, or it "
				"refuses clients and logs why; waiting for gannet kv serve\n",
				r->opts.server, gn_strerror(rc));
		told = true;
		if (poll(&stop, 1, WAIT_MS) > 0)
			return -EINTR;
	}
}

static int tell_begin(const struct request *r, const struct proxy *proxy)
{
	const unsigned threads = r->opts.threads ? r->opts.threads : 1;

	fputs("memcached at ", stdout);
	for (unsigned i = 0; proxy_place(proxy, i); i++)
		printf("%s%s", i ? ", " : "", proxy_place(proxy, i));
	printf(" for %s with %u thread%s; Ctrl-C ends\n", r->opts.server, threads,
	       threads > 1 ? "s" : "");
	return cmd_flush_stdout();
}

static int serve(const struct request *r, struct gn_fabric *fabric, int stop_fd)
{
	struct signalfd_siginfo signal = {0};
	uint64_t conns, commands;
	struct proxy *proxy;
	int status, rc = create(r, fabric, stop_fd, &proxy);

	if (rc == -EINTR && read(stop_fd, &signal, sizeof(signal)) > 0)
		return signal.ssi_signo == SIGINT ? EXIT_INTERRUPTED : EXIT_SUCCESS;
	if (rc)
		return EXIT_FAILURE;
	status = tell_begin(r, proxy);
	if (!status && (rc = proxy_run(proxy, stop_fd))) {
		fprintf(stderr, "gannet: cannot wait for clients: %s\n", gn_strerror(rc));
		status = EXIT_FAILURE;
	}
	proxy_totals(proxy, &conns, &commands);
	proxy_destroy(proxy);
	if (status)
		return status;
	if (read(stop_fd, &signal, sizeof(signal)) < 0)
		signal.ssi_signo = SIGTERM;
	printf("%" PRIu64 " commands of %" PRIu64 " clients\n", commands, conns);
	status = cmd_flush_stdout();
	return status ? status : signal.ssi_signo == SIGINT ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}

int cmd_kv_proxy(int argc, char **argv)
{
	struct gn_fabric *fabric;
	struct request r;
	sigset_t set;
	int status, stop_fd;

	if (parse(argc, argv, &r, &status))
		return status;
	/*
	 * glibc's limit of both, but fixed: it would grow with each large block that is given back,
	 * and answers that nobody takes would leave holes in the heap, beyond --memory.
	 */
	mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	mallopt(M_TRIM_THRESHOLD, LARGE_BYTES);
	/* Blocked in all threads: they are read from a descriptor. */
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	stop_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (stop_fd < 0) {
		fprintf(stderr, "gannet: cannot wait for signals: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	status = EXIT_FAILURE;
	if (!rpc_open(r.opts.server, &fabric)) {
		status = serve(&r, fabric, stop_fd);
		gn_fabric_close(fabric);
	}
	close(stop_fd);
	return status;
}
