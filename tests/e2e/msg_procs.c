/* SPDX-License-Identifier: MIT */
/*
 * Requesters and responders as processes of their own, which are killed while they ask and answer;
 * whoever is left goes on. Over shared memory, by every protocol. Prints TAP.
 * Called by itself: msg_procs serve ADDR, msg_procs ask ADDR PROTOCOL.
 */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gannet/exec.h"
#include "gannet/msg.h"

#define KILLS	    4u	   /* of each kind, times GANNET_EFFORT */
#define LIVES_US    30000u /* about as long */
#define GONE_NS	    1000000000u
#define PATIENCE_US 30000000u
#define PENDING	    8u
#define BYTES	    200u
#define DATA_WORDS  1024u

extern char **environ;

static int n_tests, n_failed;
static const char *self;

static void ok(bool good, const char *what, const char *of)
{
	printf("%sok %d - %s: %s\n", good ? "" : "not ", ++n_tests, of, what);
	fflush(stdout);
	n_failed += !good;
}

static void die(const char *what, int rc)
{
	printf("Bail out! %s: %s\n", what, gn_strerror(rc));
	exit(1);
}

/* ---- the side that answers ---- */

/* What it is asked, turned over. */
static int turn_over(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	(void)arg;
	for (uint32_t i = 0; i < len && i < max; i++)
		((uint8_t *)value)[i] = ((const uint8_t *)request)[i] ^ 0xff;
	return (int)(len < max ? len : max);
}

static int serve(const char *addr)
{
	struct gn_msg_responder_opts opts = {.size = sizeof(opts), .answer = turn_over};
	struct gn_msg_responder *responder;
	struct gn_fabric *fabric;
	uint64_t *word;

	if (gn_fabric_open("shm", &fabric) ||
	    gn_mem_alloc(fabric, DATA_WORDS * 8, GN_REMOTE_READ, &opts.data))
		return 1;
	word = gn_mem_addr(opts.data);
	for (uint32_t i = 0; i < DATA_WORDS; i++)
		word[i] = i * 3;
	if (gn_msg_responder_create(fabric, addr, &opts, &responder))
		return 1;
	for (;;)
		gn_msg_respond(responder, gn_deadline_us(100000));
}

/* ---- the side that asks ---- */

struct asker {
	enum gn_msg_protocol protocol;
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;
	uint64_t asked, taken, gone;
};

static void asker_connect(struct asker *a, const char *addr)
{
	const uint64_t until_ns = gn_deadline_us(PATIENCE_US);
	int rc;

	while ((rc = gn_msg_conn_open(a->requester, addr, NULL, &a->conn)) &&
	       gn_now_ns() < until_ns)
		gn_sleep_us(1000); /* it has just been started */
	if (rc)
		die("connecting", rc);
}

static void asker_make(struct asker *a, struct gn_fabric *fabric, const char *addr,
		       enum gn_msg_protocol protocol)
{
	const struct gn_msg_requester_opts opts = {.size = sizeof(opts),
						   .protocol = protocol,
						   .pending = PENDING,
						   .request_bytes = BYTES,
						   .value_bytes = BYTES,
						   .repeat_us = 100000};
	const int rc = gn_msg_requester_create(fabric, &opts, &a->requester);

	if (rc)
		die("a requester", rc);
	a->protocol = protocol;
	asker_connect(a, addr);
}

/* As many as there may be: 0, or -ENOTCONN. */
static int asker_fill(struct asker *a)
{
	uint8_t request[BYTES];
	int rc = 0;

	while (!rc) {
		memset(request, (int)(a->asked & 0xff), sizeof(request));
		if (a->protocol == GN_MSG_READ)
			rc = gn_msg_read(a->conn, a->asked % DATA_WORDS * 8, 8, a->asked);
		else
			rc = gn_msg_ask(a->conn, request, (uint32_t)(8 + a->asked % (BYTES - 8)),
					a->asked);
		a->asked += !rc;
	}
	return rc == -EAGAIN ? 0 : rc;
}

static bool is_right(const struct asker *a, const struct gn_msg_result *result)
{
	const uint8_t *value = result->value;
	uint64_t word;

	if (a->protocol == GN_MSG_READ) {
		memcpy(&word, value, 8);
		return result->len == 8 && word == result->id % DATA_WORDS * 3;
	}
	for (uint32_t i = 0; i < result->len; i++)
		if (value[i] != (uint8_t)~result->id)
			return false;
	return result->len == 8 + result->id % (BYTES - 8);
}

/* Some results, each of which must be right, or gone. */
static bool asker_take(struct asker *a, uint64_t deadline_ns)
{
	struct gn_msg_result result[PENDING];
	const int n = gn_msg_take(a->requester, result, PENDING, deadline_ns);

	for (int i = 0; i < n; i++) {
		a->gone += result[i].status == GN_MSG_GONE;
		if (result[i].status != GN_MSG_GONE &&
		    (result[i].status != GN_MSG_OK || !is_right(a, &result[i])))
			return false;
	}
	a->taken += n > 0 ? (uint64_t)n : 0;
	return n > 0;
}

static int ask(const char *addr, enum gn_msg_protocol protocol)
{
	struct gn_fabric *fabric;
	struct asker a = {0};

	if (gn_fabric_open("shm", &fabric))
		return 1;
	asker_make(&a, fabric, addr, protocol);
	while (!asker_fill(&a) && asker_take(&a, gn_deadline_us(PATIENCE_US)))
		;
	return 1;
}

/* ---- killing ---- */

static pid_t start(const char *part, const char *addr, const char *arg)
{
	char *argv[] = {(char *)(uintptr_t)self, (char *)(uintptr_t)part, (char *)(uintptr_t)addr,
			(char *)(uintptr_t)arg, NULL};
	pid_t pid;

	if (posix_spawn(&pid, self, NULL, NULL, argv, environ))
		die("starting a process", -errno);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Others die while they ask; this one notices nothing. */
static bool kill_requesters(const char *addr, const char *name, struct asker *a, unsigned kills)
{
	bool good = true;

	for (unsigned i = 0; i < kills && good; i++) {
		const pid_t pid = start("ask", addr, name);
		const uint64_t until_ns = gn_deadline_us(LIVES_US + gn_random() % LIVES_US);

		while (good && gn_now_ns() < until_ns)
			good = !asker_fill(a) && asker_take(a, gn_deadline_us(PATIENCE_US));
		end(pid);
	}
	for (unsigned i = 0; i < 100 && good; i++)
		good = !asker_fill(a) && asker_take(a, gn_deadline_us(PATIENCE_US));
	return good && !a->gone;
}

/* The responder dies; all that is under way ends, soon; and there is another. */
static bool kill_responder(pid_t *responder, const char *addr, struct asker *a)
{
	uint64_t since_ns;
	bool good = true;

	end(*responder);
	since_ns = gn_now_ns();
	while (good && gn_msg_pending(a->conn))
		good = asker_take(a, since_ns + GONE_NS);
	if (good && !asker_fill(a)) /* nobody had asked: now one finds out */
		while (good && gn_msg_pending(a->conn))
			good = asker_take(a, since_ns + 2 * (uint64_t)GONE_NS);
	gn_msg_conn_close(a->conn);
	*responder = start("serve", addr, NULL);
	asker_connect(a, addr);
	a->gone = 0;
	for (unsigned i = 0; i < 20 && good; i++)
		good = !asker_fill(a) && asker_take(a, gn_deadline_us(PATIENCE_US));
	return good && !a->gone;
}

static void kill_all(struct gn_fabric *fabric, enum gn_msg_protocol protocol, unsigned kills)
{
	const char *name = gn_msg_protocol_str(protocol);
	struct asker a = {0};
	bool good = true;
	char addr[64];
	pid_t responder;

	snprintf(addr, sizeof(addr), "shm:msg-kill-%llx", (unsigned long long)gn_random());
	responder = start("serve", addr, NULL);
	asker_make(&a, fabric, addr, protocol);
	ok(kill_requesters(addr, name, &a, kills), "others are killed while they ask", name);
	for (unsigned i = 0; i < kills && good; i++)
		good = kill_responder(&responder, addr, &a);
	ok(good, "the responder is killed, and there is another", name);
	gn_msg_requester_destroy(a.requester);
	end(responder);
}

int main(int argc, char **argv)
{
	const char *effort = getenv("GANNET_EFFORT");
	const unsigned times = effort && atoi(effort) > 0 ? (unsigned)atoi(effort) : 1;
	enum gn_msg_protocol protocol;
	struct gn_fabric *fabric;

	self = "/proc/self/exe";
	if (argc > 1)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "ask") && !gn_msg_protocol_parse(argv[3], &protocol))
		return ask(argv[2], protocol);
	if (argc > 1 || gn_fabric_open("shm", &fabric))
		return 2;
	for (unsigned p = 0; p < GN_MSG_PROTOCOLS; p++)
		kill_all(fabric, (enum gn_msg_protocol)p, KILLS * times);
	ok(gn_fabric_close(fabric) == 0, "nothing is left behind", "all");
	printf("1..%d\n", n_tests);
	return n_failed ? 1 : 0;
}
