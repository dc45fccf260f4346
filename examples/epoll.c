/* SPDX-License-Identifier: MIT */
/*
 * Clients and a server in an event loop of one's own, which sleeps in epoll_wait() whenever there
 * is nothing to do.
 *
 * A store's client beside standard input: in one terminal "gannet kv serve --listen shm:cache", and
 * in another "example-epoll shm:cache"; then type "colour red" to store, and "colour" to look.
 *
 * A server of calls and a client in one loop: "example-epoll shm:relay shm:calc" answers what
 * example-calc calls at shm:relay by calling "example-calc serve shm:calc". It ends with that.
 */
#include <err.h>
#include <gannet/kv.h>
#include <gannet/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LINE_MAX_BYTES 256
#define TIMEOUT	       gn_deadline_us(2000000)

struct question {
	struct gn_kv_op op;
	char line[LINE_MAX_BYTES], value[LINE_MAX_BYTES];
};

static unsigned under_way;

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

/* Called from within gn_kv_poll(). */
static void answered(struct gn_kv_op *op)
{
	struct question *q = op->arg;

	if (op->status == GN_KV_OK && op->verb == GN_KV_GET)
		printf("%s is %.*s\n", q->line, (int)op->len, q->value);
	else
		printf("%s: %s\n", q->line, gn_kv_status_str(op->status));
	fflush(stdout);
	under_way--;
	free(q);
}

/* "KEY" or "KEY VALUE" */
static void ask(struct gn_kv_client *store, const char *line)
{
	struct question *q = calloc(1, sizeof(*q));
	char *value;

	if (!q)
		errx(1, "no memory");
	snprintf(q->line, sizeof(q->line), "%s", line);
	value = strchr(q->line, ' ');
	if (value)
		*value++ = 0;
	q->op = (struct gn_kv_op){.verb = value ? GN_KV_SET : GN_KV_GET,
				  .key = q->line,
				  .key_len = (uint32_t)strlen(q->line),
				  .value = value,
				  .value_len = value ? (uint32_t)strlen(value) : 0,
				  .room = q->value,
				  .room_bytes = sizeof(q->value),
				  .deadline_ns = TIMEOUT,
				  .done = answered,
				  .arg = q};
	must(gn_kv_submit(store, &q->op), q->line);
	under_way++;
}

/* False at the end of the input. */
static bool read_lines(struct gn_kv_client *store)
{
	static char text[LINE_MAX_BYTES];
	static size_t have;
	const ssize_t n = read(STDIN_FILENO, text + have, sizeof(text) - 1 - have);
	char *end;

	if (n <= 0)
		return false;
	have += (size_t)n;
	text[have] = 0;
	while ((end = strchr(text, '\n'))) {
		*end = 0;
		if (end != text)
			ask(store, text);
		have -= (size_t)(end + 1 - text);
		memmove(text, end + 1, have + 1);
	}
	return have < sizeof(text) - 1; /* or a line is too long */
}

/* ---- a relay ---- */

struct forward {
	struct gn_rpc_op op;
	struct gn_rpc_request *request; /* to be answered */
	char asked[LINE_MAX_BYTES], result[LINE_MAX_BYTES];
};

/* Called from within gn_rpc_poll(), and by gn_rpc_client_close() for all that is under way. */
static void forwarded(struct gn_rpc_op *op)
{
	struct forward *f = op->arg;
	const uint32_t len = op->result_len <= sizeof(f->result) ? op->result_len : 0;

	gn_rpc_answer(f->request, op->status, f->result, len);
	free(f);
}

/* Called from within gn_rpc_server_poll(). */
static void forward(struct gn_rpc_request *request, void *next)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);
	struct forward *f = len <= sizeof(f->asked) ? calloc(1, sizeof(*f)) : NULL;

	if (!f)
		return gn_rpc_answer(request, GN_RPC_BUSY, NULL, 0);
	memcpy(f->asked, data, len); /* data is good until this function returns */
	f->request = request;
	f->op = (struct gn_rpc_op){.method = gn_rpc_request_method(request),
				   .request = f->asked,
				   .request_len = len,
				   .result = f->result,
				   .result_room = sizeof(f->result),
				   .deadline_ns = TIMEOUT,
				   .done = forwarded,
				   .arg = f};
	if (gn_rpc_submit(next, &f->op)) { /* too many are under way, or the server is gone */
		free(f);
		gn_rpc_answer(request, GN_RPC_BUSY, NULL, 0);
	}
}

static void came_or_went(void *arg, uint64_t peer, bool came)
{
	(void)peer;
	*(bool *)arg = !came;
}

static void watch(int loop, struct gn_source *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = gn_source_fd(source)};

	must(event.data.fd, "an fd");
	if (epoll_ctl(loop, EPOLL_CTL_ADD, event.data.fd, &event))
		err(1, "epoll_ctl");
}

static void relay(struct gn_fabric *fabric, int loop, const char *addr, const char *to)
{
	bool gone = false;
	const struct gn_rpc_server_opts server_opts = {
		.size = sizeof(server_opts), .flags = GN_RPC_POLLED, .park_us = 100};
	const struct gn_rpc_client_opts client_opts = {
		.size = sizeof(client_opts), .slots = 64, .peer = came_or_went, .peer_arg = &gone};
	struct gn_rpc_server *server;
	struct gn_rpc_client *next;
	struct epoll_event event;

	must(gn_rpc_client_open(fabric, to, &client_opts, &next), to);
	must(gn_rpc_server_create(fabric, addr, &server_opts, &server), addr);
	for (const char *op = "+-*/"; *op; op++)
		must(gn_rpc_server_handle(server, (unsigned)*op, forward, next), "method");
	must(gn_rpc_server_start(server), addr);
	watch(loop, gn_rpc_server_source(server));
	watch(loop, gn_rpc_client_source(next));
	while (!gone) {
		const int served = gn_rpc_server_poll(server);
		const int ended = gn_rpc_poll(next);

		must(served, addr);
		if (served > 0 || ended > 0)
			continue;
		/* Both have nothing more to do: arm both, and sleep if neither has since. */
		if (!gn_source_arm(gn_rpc_server_source(server)) &&
		    !gn_source_arm(gn_rpc_client_source(next)))
			epoll_wait(loop, &event, 1, -1);
	}
	/* First the client: that answers what is under way, and the server waits for it. */
	gn_rpc_client_close(next);
	gn_rpc_server_drain(server, TIMEOUT);
	gn_rpc_server_destroy(server);
}

/* ---- a store ---- */

static void type_and_look(struct gn_fabric *fabric, int loop, const char *addr)
{
	const struct gn_kv_client_opts opts = {.size = sizeof(opts), .flags = GN_KV_RECONNECT};
	struct epoll_event event = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
	struct gn_kv_client *store;
	struct gn_source *source;
	bool input = true;

	must(gn_kv_client_open(fabric, addr, &opts, &store), addr);
	source = gn_kv_client_source(store);
	if (epoll_ctl(loop, EPOLL_CTL_ADD, STDIN_FILENO, &event))
		err(1, "standard input is nothing to wait for");
	watch(loop, source);
	while (input || under_way) {
		/* Poll until there is nothing more; arm; sleep; poll again. */
		while (gn_kv_poll(store) > 0)
			;
		if (!input && !under_way)
			break;
		if (epoll_wait(loop, &event, 1, gn_source_arm(source) == 0 ? -1 : 0) == 1 &&
		    event.data.fd == STDIN_FILENO && !read_lines(store)) {
			input = false;
			epoll_ctl(loop, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
		}
	}
	gn_kv_client_close(store);
}

int main(int argc, char **argv)
{
	const int loop = epoll_create1(EPOLL_CLOEXEC);
	struct gn_fabric *fabric;
	char provider[16]; /* "shm" or "verbs" */

	if (argc != 2 && argc != 3)
		errx(2, "usage: example-epoll STORE, or example-epoll ADDR NEXT");
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(argv[1], ":"), argv[1]);
	must(gn_fabric_open(provider, &fabric), provider);
	if (argc == 2)
		type_and_look(fabric, loop, argv[1]);
	else
		relay(fabric, loop, argv[1], argv[2]);
	gn_fabric_close(fabric);
	close(loop);
}
