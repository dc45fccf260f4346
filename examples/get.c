/* SPDX-License-Identifier: MIT */
/*
 * The papers' GET, with the papers' own interface: messages instead of methods. A server holds
 * values, "example-get serve shm:get sea=blue sun=red" in one terminal, and "example-get shm:get
 * sun" in another asks for one; or: verbs:HOST:PORT.
 */
#include <err.h>
#include <errno.h>
#include <gannet/rpc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ROOM 4096u
static struct gn_fabric *fabric;
static volatile sig_atomic_t stop;

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

static void note(int signo)
{
	stop = signo;
}

/* A value with a + in front of it, or a - when there is none. */
static uint32_t find(char **pairs, const char *key, char *result)
{
	const size_t len = strlen(key);

	for (; *pairs; pairs++)
		if (!strncmp(*pairs, key, len) && (*pairs)[len] == '=')
			return (uint32_t)snprintf(result, ROOM, "+%.4000s", *pairs + len + 1);
	return (uint32_t)snprintf(result, ROOM, "-");
}

static void serve(const char *addr, char **pairs)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .flags = GN_RPC_POLLED};
	char *result = gn_rpc_buf_alloc(fabric, ROOM), key[256];
	struct gn_rpc_server *server;
	uint64_t client;
	int len;

	must(result ? 0 : -ENOMEM, "buffer");
	must(gn_rpc_server_create(fabric, addr, &opts, &server), "server");
	must(gn_rpc_server_start(server), addr);
	while (!stop) {
		len = gn_rpc_server_recv(server, &client, key, sizeof(key) - 1,
					 gn_deadline_us(100000)); /* then look for Ctrl-C */
		if (len == -ETIMEDOUT || len == -EINTR || len == -EMSGSIZE)
			continue;
		must(len, "receive");
		key[len] = '\0';
		/* A client that has gone meanwhile needs no answer. */
		gn_rpc_server_send(server, client, result, find(pairs, key, result));
	}
	gn_rpc_server_destroy(server);
	gn_rpc_buf_free(result);
}

static int get(const char *addr, const char *key)
{
	struct gn_rpc_client *client;
	char *value = gn_rpc_buf_alloc(fabric, ROOM);
	int len;

	must(value ? 0 : -ENOMEM, "buffer");
	must(gn_rpc_client_open(fabric, addr, NULL, &client), addr);
	must(gn_rpc_client_send(client, key, (uint32_t)strlen(key)), "send");
	must(len = gn_rpc_client_recv(client, value, ROOM, gn_deadline_us(2000000)), "receive");
	if (value[0] == '+')
		printf("%.*s\n", len - 1, value + 1);
	else
		warnx("there is no %s", key);
	gn_rpc_client_close(client);
	len = value[0] == '+' ? 0 : 1;
	gn_rpc_buf_free(value);
	return len;
}

int main(int argc, char **argv)
{
	const bool serving = argc >= 3 && !strcmp(argv[1], "serve");
	const char *addr = serving ? argv[2] : argv[1];
	char provider[16]; /* "shm" or "verbs" */
	int status = 0;

	if (argc < 3 || (argc > 3 && !serving))
		errx(2, "usage: example-get serve ADDR KEY=VALUE... | ADDR KEY");
	signal(SIGINT, note), signal(SIGTERM, note);
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(addr, ":"), addr);
	must(gn_fabric_open(provider, &fabric), provider);
	if (serving)
		serve(addr, argv + 3);
	else
		status = get(addr, argv[2]);
	gn_fabric_close(fabric);
	return status;
}
