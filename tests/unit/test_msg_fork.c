/* SPDX-License-Identifier: MIT */
/* Requesters and responders in a forked child: every call fails, and the child survives. */
#include <sys/wait.h>
#include <unistd.h>

#include "msg_stream.h"

static unsigned told;

static void count_told(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	told += level == GN_LOG_ERROR && strstr(line, "fork");
}

struct parent {
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;
	struct gn_msg_responder *responder;
};

static int child(const struct world *w, const struct parent *p)
{
	struct gn_msg_result result;
	struct gn_msg_conn *conn = NULL;

	gn_log_to(count_told, NULL);
	if (w->protocol == GN_MSG_READ)
		EXPECT(gn_msg_read(p->conn, 0, 1, 1) == -EPERM);
	else
		EXPECT(gn_msg_ask(p->conn, "a", 1, 1) == -EPERM);
	EXPECT(told == 1 && strstr(gn_error(), "fork"));
	EXPECT(gn_msg_flush(p->requester) == -EPERM);
	EXPECT(gn_msg_take(p->requester, &result, 1, GN_FOREVER) == -EPERM);
	EXPECT(gn_msg_conn_open(p->requester, w->addr, NULL, &conn) == -EPERM && !conn);
	EXPECT(gn_msg_requester_source(p->requester) == NULL);
	EXPECT(gn_msg_respond(p->responder, GN_FOREVER) == -EPERM);
	EXPECT(gn_msg_responder_source(p->responder) == NULL);
	EXPECT(told == 7);
	gn_msg_conn_close(p->conn); /* logs, and does nothing */
	gn_msg_requester_destroy(p->requester);
	gn_msg_responder_destroy(p->responder);
	EXPECT(told == 10);
	return 0;
}

static int ask_anew(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;
	uint8_t *data = data_of(w);

	EXPECT(data && gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	EXPECT(echo(w, requester, conn, 8, 1, data) == 0);
	gn_msg_requester_destroy(requester);
	gn_free(data);
	return 0;
}

/* The child may begin anew. */
static int child_begins(struct world *w)
{
	struct gn_fabric *fabric;

	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(ask_anew(w, fabric) == 0);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static int inherits(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	const struct gn_msg_responder_opts own = {.size = sizeof(own), .answer = answer, .arg = w};
	uint8_t *data = data_of(w);
	struct parent p;
	char addr[96];
	int status;
	pid_t pid;

	(void)client;
	snprintf(addr, sizeof(addr), "%s-own", w->addr);
	EXPECT(data && gn_msg_responder_create(fabric, addr, &own, &p.responder) == 0);
	EXPECT(gn_msg_requester_create(fabric, &opts, &p.requester) == 0);
	EXPECT(gn_msg_conn_open(p.requester, w->addr, NULL, &p.conn) == 0);
	EXPECT(echo(w, p.requester, p.conn, 8, 1, data) == 0);
	pid = fork();
	if (!pid)
		_exit(child(w, &p) || child_begins(w));
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status));
	EXPECT(echo(w, p.requester, p.conn, 8, 2, data) == 0); /* all is as it was */
	gn_msg_conn_close(p.conn);
	gn_msg_requester_destroy(p.requester);
	gn_msg_responder_destroy(p.responder);
	gn_free(data);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {MSG_TEST(test_inherited, REAL, ALL, .program = inherits,
						    .clients = 1, .data_bytes = MSG_DATA_BYTES)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
