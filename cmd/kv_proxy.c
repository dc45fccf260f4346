/* SPDX-License-Identifier: MIT */
/*
 * gannet kv proxy: memcached's protocols in front of a store.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "kv_cmd.h"
#include "metrics.h"
#include "proxy.h"
#include "rpc_cmd.h"
#include "serving.h"

#define WAIT_MS	    100		/* between looks whether there is a server by now */
#define LARGE_BYTES (128 << 10) /* blocks of memory that go back to the system when they are free */

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct proxy_opts opts;
	const char *metrics;
	const char *listen[PROXY_LISTEN_MAX];
};

static int kv_proxy_take_listen(const char *name, const char *text, void *to)
{
	struct request *r = to;

	if (!proxy_can_listen(text))
		return cmd_usage_error("%s must be PORT, HOST:PORT or unix:PATH, not '%s'", name,
				       text);
	if (r->opts.n_listen == PROXY_LISTEN_MAX)
		return cmd_usage_error("%s: %u places are enough", name, PROXY_LISTEN_MAX);
	r->listen[r->opts.n_listen++] = text;
	return 0;
}

static int kv_proxy_take_mode(const char *name, const char *text, void *to)
{
	char *end;
	const unsigned long mode = strtoul(text, &end, 8);

	if (*end || end == text || !mode || mode > 0777)
		return cmd_usage_error("%s must be octal, 1 to 777, not '%s'", name, text);
	*(unsigned *)to = (unsigned)mode;
	return 0;
}

static const struct opt options[] = {
	OPT_SERVER(struct request, opts.server),
	{OPT_OTHER, "listen", "WHERE",
	 "PORT, on this machine's loopback; HOST:PORT; unix:PATH; a port of 0 is any that is free; "
	 "several times for several",
	 .required = true, .take = kv_proxy_take_listen},
	{OPT_U32, "threads", "N", "over which clients are spread", "1", AT(opts.threads),
	 RANGE(1, PROXY_THREADS_MAX)},
	{OPT_U32, "connections", "N", "that may be open at a time", "as many as ulimit -n allows",
	 AT(opts.max_conns), RANGE(1, 1000000)},
	{OPT_U64, "memory", "N", "for all that clients make it hold",
	 "256M, and 8M for a thread at least", AT(opts.memory),
	 RANGE(PROXY_MEMORY_MIN, 4095ull << 20)},
	{OPT_U32, "stall-ms", "N",
	 "without a byte in the middle of a command or an answer, until a client is closed",
	 "60000", AT(opts.stall_ms), RANGE(1, 86400000)},
	{OPT_U32, "idle-ms", "N", "without a command, until a client is closed", "never",
	 AT(opts.idle_ms), RANGE(1, 86400000)},
	{OPT_U32, "timeout-ms", "N", "for the store to answer", "5000", AT(opts.timeout_ms),
	 RANGE(1, 3600000)},
	{OPT_OTHER, "socket-mode", "N", "mode of Unix sockets, octal", "700", AT(opts.socket_mode),
	 .take = kv_proxy_take_mode},
	{OPT_CHOICE, "mode", "M", "of the store's results: hybrid, fetch or reply",
	 AT(opts.kv.rpc.mode), .choices = rpc_modes},
	OPT_METRICS(struct request, metrics),
	{.type = OPT_END},
};

static int kv_proxy_try_store(const struct request *r, struct gn_fabric *fabric)
{
	struct gn_kv_client *client;
	const int rc = gn_kv_client_open(fabric, r->opts.server, NULL, &client);

	if (!rc)
		return gn_kv_client_close(client);
	if (!proxy_may_retry(rc))
		cmd_connect_failed(r->opts.server, rc, "gannet kv serve");
	return rc;
}

/*
 * With a store that is not there yet, or that is full: until it lets us in. -EINTR: a signal came
 * first.
 */
static int kv_proxy_create(const struct request *r, struct gn_fabric *fabric, int stop_fd,
			   struct proxy **out)
{
	struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
	bool told = false;
	int rc;

	for (;;) {
		rc = kv_proxy_try_store(r, fabric);
		if (!rc)
			rc = proxy_create(fabric, &r->opts, out);
		if (!proxy_may_retry(rc))
			return rc;
		if (!told)
			fprintf(stderr, "gannet: %s; waiting for gannet kv serve\n", cmd_why(rc));
		told = true;
		if (poll(&stop, 1, WAIT_MS) > 0)
			return -EINTR;
	}
}

static int kv_proxy_announce(const struct request *r, const struct proxy *proxy)
{
	const unsigned threads = r->opts.threads ? r->opts.threads : 1;

	fputs("memcached at ", stdout);
	for (unsigned i = 0; proxy_listen_addr(proxy, i); i++)
		printf("%s%s", i ? ", " : "", proxy_listen_addr(proxy, i));
	printf(" for %s with %u thread%s; Ctrl-C ends\n", r->opts.server, threads,
	       threads > 1 ? "s" : "");
	return cmd_flush_stdout();
}

static int kv_proxy_metrics(void *proxy, char *buf, size_t room)
{
	struct prom prom;

	prom_init(&prom, "gannet_kv_proxy_", buf, room);
	proxy_metrics(proxy, &prom);
	return (int)prom.len;
}

static int kv_proxy_serve(const struct request *r, struct gn_fabric *fabric, int stop_fd)
{
	struct signalfd_siginfo signal = {0};
	struct metrics_source source = {.write = kv_proxy_metrics};
	struct metrics *metrics;
	uint64_t conns, commands;
	struct proxy *proxy;
	int status, rc = kv_proxy_create(r, fabric, stop_fd, &proxy);

	if (rc == -EINTR && read(stop_fd, &signal, sizeof(signal)) > 0)
		return signal.ssi_signo == SIGINT ? EXIT_INTERRUPTED : EXIT_SUCCESS;
	if (rc)
		return EXIT_FAILURE;
	source.arg = proxy;
	if (metrics_start(r->metrics, &source, &metrics)) {
		proxy_destroy(proxy);
		return EXIT_FAILURE;
	}
	serving_tell_metrics(stdout, metrics);
	status = kv_proxy_announce(r, proxy);
	if (!status && (rc = proxy_run(proxy, stop_fd))) {
		fprintf(stderr, "gannet: cannot wait for clients: %s\n", gn_strerror(rc));
		status = EXIT_FAILURE;
	}
	metrics_stop(metrics);
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

static int kv_proxy_run(const struct args *args)
{
	struct request *r = args->opts;
	struct gn_fabric *fabric;
	sigset_t set;
	int status, stop_fd;

	r->opts.listen = r->listen;
	/*
	 * glibc's limit of both, but fixed: it would grow with each large block that is given back,
	 * and answers that are not read would leave holes in the heap, beyond --memory.
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
	if (!rpc_open(r->opts.server, &fabric)) {
		status = kv_proxy_serve(r, fabric, stop_fd);
		gn_fabric_close(fabric);
	}
	close(stop_fd);
	return status;
}

const struct command command_kv_proxy = {
	.name = "proxy",
	.what = "memcached's protocols, for programs that speak them",
	.about = "Lets programs that speak to memcached use a store: the text and the meta "
		 "protocol of memcached 1.6, until Ctrl-C or SIGTERM. Waits for the store if it is "
		 "not there yet, and connects again when it comes back.",
	.more = "There is no authentication: every client can read and change everything.",
	.run = kv_proxy_run,
	OPTIONS(options, struct request, .opts = {.listen = NULL}),
};
