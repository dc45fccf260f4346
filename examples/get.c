/* SPDX-License-Identifier: MIT */
/*
 * The GET of the papers RFP and RF-RPC, with their interface: messages instead of methods. A client
 * sends and receives, a server receives and sends. Here that interface is four short functions on
 * top of gannet/rpc.h.
 *
 * "example-get serve shm:get sea=blue sun=red" in one terminal holds values, and "example-get
 * shm:get sun" in another gets one; or: verbs:HOST:PORT.
 */
#include <err.h>
#include <errno.h>
#include <gannet/rpc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE	  1u /* the only method */
#define BYTES_MAX 4096u
#define QUEUE_MAX 64u /* requests that were received and are not answered */

static struct gn_fabric *fabric;
static volatile sig_atomic_t stop;

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

static void on_signal(int signo)
{
	stop = signo;
}

/* ---- the client's side of the interface ---- */

/* A request in flight, and then its result. */
struct message {
	struct gn_rpc_op op;
	bool ended;
	char bytes[BYTES_MAX];
};

static void message_ended(struct gn_rpc_op *op)
{
	((struct message *)op->arg)->ended = true;
}

/* The request is copied before this returns; the message must stay until it is received. */
static int client_send(struct gn_rpc_client *client, struct message *m, const void *buf,
		       uint32_t len)
{
	m->ended = false;
	m->op = (struct gn_rpc_op){
		.method = MESSAGE,
		.request = buf,
		.request_len = len,
		.result = m->bytes,
		.result_room = sizeof(m->bytes),
		.done = message_ended,
		.arg = m,
	};
	return gn_rpc_submit(client, &m->op);
}

/* The length of the result in m->bytes, or -errno. A timeout cancels the request. */
static int client_recv(struct gn_rpc_client *client, struct message *m, uint64_t deadline_ns)
{
	int rc = 0;

	while (!m->ended && rc >= 0)
		rc = gn_rpc_wait(client, deadline_ns);
	if (!m->ended)
		gn_rpc_cancel(&m->op);
	else if (m->op.status != GN_RPC_OK)
		errx(1, "the request failed: %s", gn_rpc_status_str(m->op.status));
	return m->ended ? (int)m->op.result_len : rc;
}

/* ---- the server's side of the interface ---- */

static struct {
	struct gn_rpc_request *request[QUEUE_MAX];
	unsigned first, n;
} queue;

/* A handler may return without an answer: the request is answered later. */
static void enqueue(struct gn_rpc_request *request, void *arg)
{
	(void)arg;
	if (queue.n == QUEUE_MAX)
		gn_rpc_answer(request, GN_RPC_BUSY, NULL, 0);
	else
		queue.request[(queue.first + queue.n++) % QUEUE_MAX] = request;
}

static int server_recv(struct gn_rpc_server *server, struct gn_rpc_request **request,
		       uint64_t deadline_ns)
{
	while (!queue.n) {
		int rc = gn_rpc_server_poll(server);

		if (rc == 0)
			rc = gn_rpc_server_wait(server, deadline_ns);
		if (rc < 0)
			return rc;
	}
	*request = queue.request[queue.first++ % QUEUE_MAX];
	queue.n--;
	return 0;
}

static void server_send(struct gn_rpc_request *request, const void *buf, uint32_t len)
{
	gn_rpc_answer(request, GN_RPC_OK, buf, len);
}

/* ---- GET ---- */

/* The value after a '+', or a '-' if there is no such key. */
static uint32_t find(char **pairs, const char *key, size_t len, char *result)
{
	for (; *pairs; pairs++)
		if (!strncmp(*pairs, key, len) && (*pairs)[len] == '=')
			return (uint32_t)snprintf(result, BYTES_MAX, "+%.4000s", *pairs + len + 1);
	return (uint32_t)snprintf(result, BYTES_MAX, "-");
}

static void serve(const char *addr, char **pairs)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .flags = GN_RPC_POLLED};
	struct gn_rpc_request *request = NULL;
	struct gn_rpc_server *server;
	char result[BYTES_MAX];
	const char *key;
	uint32_t len;
	int rc;

	must(gn_rpc_server_create(fabric, addr, &opts, &server), "server");
	must(gn_rpc_server_handle(server, MESSAGE, enqueue, NULL), "handler");
	must(gn_rpc_server_start(server), addr);
	while (!stop) {
		rc = server_recv(server, &request, gn_deadline_us(100000)); /* then look at stop */
		if (rc == -ETIMEDOUT || rc == -EINTR)
			continue;
		must(rc, "receive");
		key = gn_rpc_request_data(request, &len);
		server_send(request, result, find(pairs, key, len, result));
	}
	for (; queue.n; queue.n--) /* destroying waits for all answers */
		gn_rpc_answer(queue.request[queue.first++ % QUEUE_MAX], GN_RPC_BUSY, NULL, 0);
	gn_rpc_server_destroy(server);
}

static int get(const char *addr, const char *key)
{
	static struct message m;
	struct gn_rpc_client *client;
	int len;

	must(gn_rpc_client_open(fabric, addr, NULL, &client), addr);
	must(client_send(client, &m, key, (uint32_t)strlen(key)), "send");
	must(len = client_recv(client, &m, gn_deadline_us(2000000)), "receive");
	if (m.bytes[0] == '+')
		printf("%.*s\n", len - 1, m.bytes + 1);
	else
		warnx("there is no %s", key);
	gn_rpc_client_close(client);
	return m.bytes[0] == '+' ? 0 : 1;
}

int main(int argc, char **argv)
{
	const bool serving = argc >= 3 && !strcmp(argv[1], "serve");
	const char *addr = serving ? argv[2] : argv[1];
	char provider[16]; /* "shm" or "verbs" */
	int status = 0;

	if (argc < 3 || (argc > 3 && !serving))
		errx(2, "usage: example-get serve ADDR KEY=VALUE... | ADDR KEY");
	signal(SIGINT, on_signal), signal(SIGTERM, on_signal);
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(addr, ":"), addr);
	must(gn_fabric_open(provider, &fabric), provider);
	if (serving)
		serve(addr, argv + 3);
	else
		status = get(addr, argv[2]);
	gn_fabric_close(fabric);
	return status;
}
