/* SPDX-License-Identifier: MIT */
/*
 * A store's client in an event loop of one's own, beside another descriptor: standard input. In one
 * terminal "gannet kv serve --listen shm:cache", and in another "example-epoll shm:cache"; then
 * type "colour red" to store, and "colour" to look. The program sleeps in epoll_wait() whenever
 * neither input nor an answer is there.
 */
#include <err.h>
#include <gannet/kv.h>
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
		errx(1, "%s: %s", what, gn_strerror(rc));
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

int main(int argc, char **argv)
{
	const struct gn_kv_client_opts opts = {.size = sizeof(opts), .flags = GN_KV_RECONNECT};
	struct epoll_event event = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
	const int loop = epoll_create1(EPOLL_CLOEXEC);
	struct gn_kv_client *store;
	struct gn_fabric *fabric;
	struct gn_source *source;
	bool input = true;
	char provider[16]; /* "shm" or "verbs" */

	if (argc != 2)
		errx(2, "usage: example-epoll ADDR");
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(argv[1], ":"), argv[1]);
	must(gn_fabric_open(provider, &fabric), provider);
	must(gn_kv_client_open(fabric, argv[1], &opts, &store), argv[1]);
	source = gn_kv_client_source(store);
	if (epoll_ctl(loop, EPOLL_CTL_ADD, STDIN_FILENO, &event))
		err(1, "standard input is nothing to wait for");
	event.data.fd = gn_source_fd(source);
	must(event.data.fd, "an fd for the store");
	if (epoll_ctl(loop, EPOLL_CTL_ADD, event.data.fd, &event))
		err(1, "epoll_ctl");
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
	gn_fabric_close(fabric);
	close(loop);
}
