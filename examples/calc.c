/* SPDX-License-Identifier: MIT */
/*
 * A calculator whose operators are remote: "example-calc serve shm:calc" in one terminal, and in
 * another "example-calc shm:calc '2 * 3 + 4'", which makes two calls; or: verbs:HOST:PORT.
 */
#include <err.h>
#include <gannet/rpc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BY_ZERO (GN_RPC_FAILED + 1) /* a status of our own */

static struct gn_rpc_client *client;
static const char *at; /* what is left of the expression */

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

/* A server has a method for each operator, numbered by its character. */
static void compute(struct gn_rpc_request *request, void *arg)
{
	const unsigned op = gn_rpc_request_method(request);
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);
	double v[2], a, b, r;

	(void)arg;
	if (len != sizeof(v))
		return gn_rpc_answer(request, GN_RPC_FAILED, NULL, 0);
	memcpy(v, data, sizeof(v)); /* once: the client may change it meanwhile */
	a = v[0], b = v[1];
	if (op == '/' && b == 0)
		return gn_rpc_answer(request, BY_ZERO, NULL, 0);
	r = op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : a / b;
	gn_rpc_answer(request, GN_RPC_OK, &r, sizeof(r));
}

static void serve(struct gn_fabric *fabric, const char *addr)
{
	struct gn_rpc_server *server;
	sigset_t set;

	sigemptyset(&set), sigaddset(&set, SIGINT), sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL); /* in the server's threads too */
	must(gn_rpc_server_create(fabric, addr, NULL, &server), "server");
	for (const char *op = "+-*/"; *op; op++)
		must(gn_rpc_server_handle(server, (unsigned)*op, compute, NULL), "method");
	must(gn_rpc_server_start(server), addr);
	sigwaitinfo(&set, NULL); /* its threads do the work */
	gn_rpc_server_destroy(server);
}

/* A client reads the expression and has each operator computed. */
static double call(char op, double a, double b)
{
	const double v[2] = {a, b};
	unsigned status;
	double r;

	must(gn_rpc_call(client, (unsigned)op, v, sizeof(v), &r, sizeof(r), NULL,
			 gn_deadline_us(2000000), &status),
	     "call");
	if (status)
		errx(1, "%g %c %g: %s", a, op, b,
		     status == BY_ZERO ? "division by zero" : gn_rpc_status_str(status));
	return r;
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
	struct gn_fabric *fabric;
	char provider[16]; /* "shm" or "verbs" */

	if (argc != 3)
		errx(2, "usage: example-calc serve ADDR | ADDR EXPR");
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(addr, ":"), addr);
	must(gn_fabric_open(provider, &fabric), provider);
	if (serving) {
		serve(fabric, addr);
	} else {
		at = argv[2];
		must(gn_rpc_client_open(fabric, addr, NULL, &client), addr);
		printf("%g\n", expression(true));
		gn_rpc_client_close(client);
	}
	gn_fabric_close(fabric);
}
