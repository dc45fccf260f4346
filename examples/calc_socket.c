/* SPDX-License-Identifier: MIT */
/*
 * calc.c as it would be without Gannet, over sockets: "example-calc-socket serve /tmp/calc" in one
 * terminal, and in another "example-calc-socket /tmp/calc '2 * 3 + 4'". What changes is
 *     diff examples/calc_socket.c examples/calc.c
 */
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum status { OK, FAILED, BY_ZERO };

struct request {
	uint32_t op; /* and both operands: there is no other method */
	uint32_t zero;
	double v[2];
};

struct answer {
	uint32_t status;
	uint32_t zero;
	double r;
};

static int client;
static const char *at; /* what is left of the expression */

static void must(int rc, const char *what)
{
	if (rc < 0)
		err(1, "%s", what);
}

/* A stream has no messages: bytes come in as many pieces as they like. */
static bool read_all(int fd, void *to, size_t len)
{
	for (size_t n = 0; n < len;) {
		const ssize_t got = read(fd, (char *)to + n, len - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		n += (size_t)got;
	}
	return true;
}

static bool write_all(int fd, const void *from, size_t len)
{
	for (size_t n = 0; n < len;) {
		const ssize_t put = send(fd, (const char *)from + n, len - n, MSG_NOSIGNAL);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		n += (size_t)put;
	}
	return true;
}

static struct answer compute(const struct request *request)
{
	const uint32_t op = request->op;
	const double a = request->v[0], b = request->v[1];

	if (!op || !strchr("+-*/", (int)op))
		return (struct answer){.status = FAILED};
	if (op == '/' && b == 0)
		return (struct answer){.status = BY_ZERO};
	return (struct answer){.r = op == '+' ? a + b :
				    op == '-' ? a - b :
				    op == '*' ? a * b :
						a / b};
}

/* A thread for each client, which sleeps in the kernel until the next request. */
static void *serve_client(void *arg)
{
	const int fd = (int)(intptr_t)arg;
	struct request request;
	struct answer answer;

	while (read_all(fd, &request, sizeof(request))) {
		answer = compute(&request);
		if (!write_all(fd, &answer, sizeof(answer)))
			break;
	}
	close(fd);
	return NULL;
}

static void *accept_clients(void *arg)
{
	const int listener = (int)(intptr_t)arg;
	pthread_t thread;
	int fd;

	while ((fd = accept(listener, NULL, NULL)) >= 0 || errno == EINTR ||
	       errno == ECONNABORTED) {
		if (fd < 0)
			continue;
		if (pthread_create(&thread, NULL, serve_client, (void *)(intptr_t)fd))
			close(fd);
		else
			pthread_detach(thread);
	}
	return NULL;
}

static void serve(int listener, const struct sockaddr_un *to)
{
	pthread_t thread;
	sigset_t set;

	sigemptyset(&set), sigaddset(&set, SIGINT), sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL); /* in the server's threads too */
	must(bind(listener, (const struct sockaddr *)to, sizeof(*to)), to->sun_path);
	must(listen(listener, 16), "listen");
	must(-pthread_create(&thread, NULL, accept_clients, (void *)(intptr_t)listener), "thread");
	sigwaitinfo(&set, NULL); /* its threads do the work, until the process ends */
	unlink(to->sun_path);
}

/* A client reads the expression and has each operator computed. */
static double call(char op, double a, double b)
{
	const struct request request = {(uint32_t)op, 0, {a, b}};
	struct answer answer;

	if (!write_all(client, &request, sizeof(request)) ||
	    !read_all(client, &answer, sizeof(answer)))
		errx(1, "call: the server is gone, or slow");
	if (answer.status)
		errx(1, "%g %c %g: %s", a, op, b,
		     answer.status == BY_ZERO ? "division by zero" : "failed");
	return answer.r;
}

static double number(void)
{
	char *end;
	double value = strtod(at, &end);

	if (end == at)
		errx(2, "no number at \"%s\"", at);
	at = end + strspn(end, " ");
	return value;
}

/* Sums are made of products, and products of numbers. */
static double expression(bool sum)
{
	double value = sum ? expression(false) : number();

	while (*at && strchr(sum ? "+-" : "*/", *at)) {
		const char op = *at++;

		value = call(op, value, sum ? expression(false) : number());
	}
	if (sum && *at)
		errx(2, "no operator at \"%s\"", at);
	return value;
}

int main(int argc, char **argv)
{
	const bool serving = argc == 3 && !strcmp(argv[1], "serve");
	const char *addr = serving ? argv[2] : argv[1];
	const struct timeval patience = {.tv_sec = 2};
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd;

	if (argc != 3)
		errx(2, "usage: example-calc-socket serve PATH | PATH EXPR");
	if (strlen(addr) >= sizeof(to.sun_path))
		errx(2, "%s: too long", addr);
	memcpy(to.sun_path, addr, strlen(addr));
	must(fd = socket(AF_UNIX, SOCK_STREAM, 0), "socket");
	if (serving) {
		serve(fd, &to);
	} else {
		at = argv[2];
		client = fd;
		must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)),
		     "deadline");
		must(connect(fd, (const struct sockaddr *)&to, sizeof(to)), addr);
		printf("%g\n", expression(true));
	}
	close(fd);
}
