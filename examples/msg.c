/* SPDX-License-Identifier: MIT */
/*
 * Names of months, by a protocol of one's choice: "example-msg serve shm:months" in one terminal,
 * and in another "example-msg shm:months WRITE/WRITE 1 5 12", or SEND/SEND, SEND/WRITE, WRITE/SEND,
 * WRITE_IMM, UD; or READ, which leaves the responder's processor alone: who knows where a name lies
 * needs nobody to look it up. Other networks: verbs:HOST:PORT.
 */
#include <err.h>
#include <gannet/msg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MONTHS	   12
#define NAME_BYTES 16
#define MOST	   16 /* requests under way */
#define TIMEOUT	   gn_deadline_us(2000000)

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

/* The responder: a table, in memory that READs may see, and a function for who asks. */
static int answer(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	const char *table = arg;
	uint32_t month;

	if (len != sizeof(month) || max < NAME_BYTES)
		return -1;
	memcpy(&month, request, sizeof(month)); /* once: the requester may change it meanwhile */
	if (month < 1 || month > MONTHS)
		return -1; /* the requester sees that it is refused */
	memcpy(value, table + (month - 1) * NAME_BYTES, NAME_BYTES);
	return NAME_BYTES;
}

static void serve(struct gn_fabric *fabric, const char *addr)
{
	static const char names[MONTHS][NAME_BYTES] = {
		"January", "February", "March",	    "April",   "May",	   "June",
		"July",	   "August",   "September", "October", "November", "December"};
	struct gn_msg_responder_opts opts = {.size = sizeof(opts), .answer = answer};
	struct gn_msg_responder *responder;

	must(gn_mem_alloc(fabric, sizeof(names), GN_REMOTE_READ, &opts.data), "memory");
	opts.arg = memcpy(gn_mem_addr(opts.data), names, sizeof(names));
	must(gn_msg_responder_create(fabric, addr, &opts, &responder), addr);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	while (!stop) /* a deadline, so that a signal is noticed whenever it comes */
		gn_msg_respond(responder, gn_deadline_us(100000));
	gn_msg_responder_destroy(responder);
	gn_mem_free(opts.data);
}

/* The requester: all are under way at once, and answers may come in any order. */
static void print(const struct gn_msg_result *result)
{
	if (result->status)
		errx(1, "month %d: %s", (int)result->id, gn_msg_status_str(result->status));
	printf("%d: %.*s\n", (int)result->id, (int)result->len, (const char *)result->value);
}

static void ask(struct gn_fabric *fabric, const char *addr, enum gn_msg_protocol protocol,
		const uint32_t *months, int n)
{
	const struct gn_msg_requester_opts opts = {.size = sizeof(opts),
						   .protocol = protocol,
						   .pending = MOST,
						   .value_bytes = NAME_BYTES};
	struct gn_msg_requester *requester;
	struct gn_msg_result result[MOST];
	struct gn_msg_conn *conn;
	const char *why;
	int rc;

	must(gn_msg_requester_create(fabric, &opts, &requester), gn_msg_protocol_str(protocol));
	rc = gn_msg_conn_open(requester, addr, &why, &conn);
	if (rc)
		errx(1, "%s: %s %s", addr, gn_strerror(rc), why);
	for (int i = 0; i < n; i++)
		must(protocol == GN_MSG_READ ?
			     gn_msg_read(conn, (months[i] - 1) * NAME_BYTES, NAME_BYTES,
					 months[i]) :
			     gn_msg_ask(conn, &months[i], sizeof(months[i]), months[i]),
		     "request");
	for (int got = 0; got < n; got += rc) {
		rc = gn_msg_take(requester, result, MOST, TIMEOUT);
		must(rc, "answers");
		if (rc == 0)
			errx(1, "no answer for two seconds");
		for (int i = 0; i < rc; i++)
			print(&result[i]);
	}
	gn_msg_requester_destroy(requester);
}

int main(int argc, char **argv)
{
	const bool serving = argc == 3 && !strcmp(argv[1], "serve");
	const char *addr = serving ? argv[2] : argv[1];
	enum gn_msg_protocol protocol = GN_MSG_WRITE_WRITE;
	struct gn_fabric *fabric;
	uint32_t months[MOST];
	char provider[16]; /* "shm" or "verbs" */

	if (argc < 3 || argc > 3 + MOST || (!serving && argc < 4))
		errx(2, "usage: example-msg serve ADDR | ADDR PROTOCOL MONTH... (up to %d)", MOST);
	if (!serving && gn_msg_protocol_parse(argv[2], &protocol))
		errx(2, "%s is no protocol: SEND/SEND, WRITE/WRITE, READ, UD, ...", argv[2]);
	for (int i = 3; i < argc; i++)
		months[i - 3] = (uint32_t)strtoul(argv[i], NULL, 10);
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(addr, ":"), addr);
	must(gn_fabric_open(provider, &fabric), provider);
	if (serving)
		serve(fabric, addr);
	else
		ask(fabric, addr, protocol, months, argc - 3);
	gn_fabric_close(fabric);
}
