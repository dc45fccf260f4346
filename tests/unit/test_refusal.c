/* SPDX-License-Identifier: MIT */
/*
 * A connection that a server refuses: gn_error() says whose version is which, or what the server
 * lacks, and nobody takes it for a server that is not there.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "error_check.h"
#include "gannet/exec.h"
#include "gannet/kv.h"
#include "gannet/msg.h"
#include "kv/wire.h"
#include "msg/wire.h"
#include "rpc/wire.h"
#include "unit_shm.h"

#define OTHER_VERSION 77u

/* ---- a peer that refuses ---- */

struct refuser {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_listener *listener;
	struct gn_thread *thread;
	const void *says;
	uint32_t len;
	char addr[UNIT_ADDR];
};

/* The first that comes. */
static void refuse_one(void *arg)
{
	struct refuser *r = arg;
	struct gn_event event;

	if (!gn_chan_wait(r->chan, gn_deadline_us(UNIT_PATIENCE_US), &event) &&
	    event.type == GN_EVENT_CONNECT_REQUEST)
		gn_reject(event.req, r->says, r->len);
}

static void refuser_start(struct refuser *r, const void *says, uint32_t len)
{
	*r = (struct refuser){.says = says, .len = len};
	r->fabric = unit_shm(r->addr);
	assert_int_equal(gn_ctx_create(r->fabric, &r->ctx), 0);
	assert_int_equal(gn_chan_create(r->ctx, &r->chan), 0);
	assert_int_equal(gn_listener_create(r->ctx, r->addr, r->chan, 0, &r->listener), 0);
	assert_int_equal(gn_thread_start("refuser", refuse_one, r, &r->thread), 0);
}

static void refuser_end(struct refuser *r)
{
	assert_int_equal(gn_thread_join(r->thread), 0);
	assert_int_equal(gn_listener_destroy(r->listener), 0);
	assert_int_equal(gn_chan_destroy(r->chan), 0);
	assert_int_equal(gn_ctx_destroy(r->ctx), 0);
	assert_int_equal(gn_fabric_close(r->fabric), 0);
}

/* ---- versions ---- */

static void expect_versions(const char *what, unsigned theirs, unsigned ours)
{
	char wanted[96];

	snprintf(wanted, sizeof(wanted), "speaks version %u, this %s version %u", theirs, what,
		 ours);
	if (!strstr(gn_error(), wanted))
		fail_msg("'%s' has no '%s'", gn_error(), wanted);
}

static void test_rpc_version(void **state)
{
	const struct rpc_refusal says = {
		.magic = RPC_MAGIC, .version = OTHER_VERSION, .reason = RPC_REFUSED_VERSION};
	struct gn_rpc_client *client;
	struct refuser r;

	(void)state;
	error_no_log();
	refuser_start(&r, &says, sizeof(says));
	CHECK(gn_rpc_client_open(r.fabric, r.addr, NULL, &client), -EPROTO, r.addr);
	expect_versions("client", OTHER_VERSION, RPC_VERSION);
	refuser_end(&r);
	refuser_start(&r, NULL, 0); /* no reason: none is made up */
	CHECK(gn_rpc_client_open(r.fabric, r.addr, NULL, &client), -ECONNREFUSED, "refuses");
	assert_null(strstr(gn_error(), "version"));
	refuser_end(&r);
	gn_log_to(NULL, NULL);
}

static char logged[256];

static void keep_log(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg, (void)level;
	if (strstr(line, "refused"))
		snprintf(logged, sizeof(logged), "%s", line);
}

/* A client of another version hears the server's, and the server's log has both. */
static void test_rpc_server_says_version(void **state)
{
	const struct rpc_hello hello = {.magic = RPC_MAGIC, .version = OTHER_VERSION};
	const struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = &hello, .private_len = sizeof(hello)};
	struct gn_qp_opts qp_opts = {.size = sizeof(qp_opts)};
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	struct rpc_refusal says;
	struct gn_event reply;
	char addr[UNIT_ADDR];
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_qp *qp;

	(void)state;
	gn_log_to(keep_log, NULL);
	fabric = unit_shm(addr);
	assert_int_equal(gn_rpc_server_create(fabric, addr, NULL, &server), 0);
	assert_int_equal(gn_rpc_server_start(server), 0);
	assert_int_equal(gn_ctx_create(fabric, &ctx), 0);
	assert_int_equal(gn_pd_create(ctx, &pd), 0);
	assert_int_equal(gn_chan_create(ctx, &qp_opts.chan), 0);
	assert_int_equal(gn_cq_create(ctx, OPTS(gn_cq_opts, .depth = 4), &qp_opts.send_cq), 0);
	qp_opts.recv_cq = qp_opts.send_cq;
	assert_int_equal(gn_qp_create(pd, &qp_opts, &qp), 0);
	assert_int_equal(gn_connect_wait(qp, addr, &opts, &reply), -ECONNREFUSED);
	assert_int_equal(reply.private_len, sizeof(says));
	memcpy(&says, reply.private_data, sizeof(says));
	assert_int_equal(says.magic, RPC_MAGIC);
	assert_int_equal(says.version, RPC_VERSION);
	assert_int_equal(says.reason, RPC_REFUSED_VERSION);
	assert_int_equal(gn_qp_destroy(qp), 0);
	assert_int_equal(gn_cq_destroy(qp_opts.send_cq), 0);
	assert_int_equal(gn_chan_destroy(qp_opts.chan), 0);
	assert_int_equal(gn_pd_destroy(pd), 0);
	assert_int_equal(gn_ctx_destroy(ctx), 0);
	gn_rpc_server_destroy(server);
	gn_log_to(NULL, NULL);
	assert_int_equal(gn_fabric_close(fabric), 0);
	assert_non_null(strstr(logged, "it speaks version 77, this server version "));
}

static void answer_layout(struct gn_rpc_request *request, void *arg)
{
	gn_rpc_answer(request, GN_RPC_OK, arg, sizeof(struct kv_layout));
}

static void test_kv_version(void **state)
{
	struct kv_layout layout = {.version = OTHER_VERSION, .partitions = 1};
	struct gn_rpc_server *server;
	struct gn_kv_client *client;
	struct gn_fabric *fabric;
	char addr[UNIT_ADDR];

	(void)state;
	error_no_log();
	fabric = unit_shm(addr);
	assert_int_equal(gn_rpc_server_create(fabric, addr, NULL, &server), 0);
	assert_int_equal(gn_rpc_server_handle(server, KV_LAYOUT, answer_layout, &layout), 0);
	assert_int_equal(gn_rpc_server_start(server), 0);
	CHECK(gn_kv_client_open(fabric, addr, NULL, &client), -EPROTO, addr);
	expect_versions("client", OTHER_VERSION, KV_VERSION);
	gn_rpc_server_destroy(server);
	assert_int_equal(gn_fabric_close(fabric), 0);
	gn_log_to(NULL, NULL);
}

static void test_msg_version(void **state)
{
	const struct msg_welcome says = {
		.magic = MSG_MAGIC, .version = OTHER_VERSION, .refusal = MSG_NO_VERSION};
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;
	struct refuser r;

	(void)state;
	error_no_log();
	refuser_start(&r, &says, offsetof(struct msg_welcome, request_key));
	assert_int_equal(gn_msg_requester_create(
				 r.fabric, OPTS(gn_msg_requester_opts, .pending = 1), &requester),
			 0);
	CHECK(gn_msg_conn_open(requester, r.addr, NULL, &conn), -EPROTO, r.addr);
	expect_versions("requester", OTHER_VERSION, MSG_VERSION);
	gn_msg_requester_destroy(requester);
	refuser_end(&r);
	gn_log_to(NULL, NULL);
}

/* ---- what a server lacks ---- */

#define CLIENTS 64

/* The server of a child process; it ends when the pipe does. */
static void serve_with_files(const char *addr, unsigned files, int ready)
{
	const struct rlimit limit = {.rlim_cur = files, .rlim_max = files};
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	char c;

	gn_log_to(error_ignore, NULL);
	if (setrlimit(RLIMIT_NOFILE, &limit) || gn_fabric_open("shm", &fabric) ||
	    gn_rpc_server_create(fabric, addr, NULL, &server) || gn_rpc_server_start(server) ||
	    write(ready, "r", 1) != 1 || read(ready, &c, 1) < 0)
		_exit(1);
	_exit(0);
}

/* A limit at which the next descriptor is missing at another place each time. */
static void test_no_files(void **state)
{
	(void)state;
	for (unsigned files = 30; files < 42; files++) {
		struct gn_rpc_client *client[CLIENTS];
		struct gn_fabric *fabric;
		char addr[UNIT_ADDR], c;
		int fds[2], n = 0, rc = 0;
		pid_t pid;

		snprintf(addr, sizeof(addr), "shm:test-%llx", (unsigned long long)gn_random());
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		pid = fork();
		if (!pid) {
			close(fds[0]);
			serve_with_files(addr, files, fds[1]);
		}
		close(fds[1]);
		assert_int_equal(read(fds[0], &c, 1), 1);
		error_no_log();
		assert_int_equal(gn_fabric_open("shm", &fabric), 0);
		while (n < CLIENTS && !rc) {
			rc = gn_rpc_client_open(fabric, addr, NULL, &client[n]);
			n += !rc;
		}
		if (rc != -ECONNREFUSED || !strstr(gn_error(), "refuses the connection") ||
		    !strstr(gn_error(), "descriptors"))
			fail_msg("%u files: client %d: %d, '%s'", files, n, rc, gn_error());
		while (n)
			assert_int_equal(gn_rpc_client_close(client[--n]), 0);
		assert_int_equal(gn_fabric_close(fabric), 0);
		gn_log_to(NULL, NULL);
		close(fds[0]);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
}

/* As many as it was told to take. */
static void test_full(void **state)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .max_clients = 1};
	struct gn_rpc_client *client, *other;
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	char addr[UNIT_ADDR];

	(void)state;
	error_no_log();
	fabric = unit_shm(addr);
	assert_int_equal(gn_rpc_server_create(fabric, addr, &opts, &server), 0);
	assert_int_equal(gn_rpc_server_start(server), 0);
	assert_int_equal(gn_rpc_client_open(fabric, addr, NULL, &client), 0);
	CHECK(gn_rpc_client_open(fabric, addr, NULL, &other), -ECONNREFUSED, "max_clients");
	assert_int_equal(gn_rpc_client_close(client), 0);
	gn_rpc_server_destroy(server);
	assert_int_equal(gn_fabric_close(fabric), 0);
	gn_log_to(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rpc_version), cmocka_unit_test(test_rpc_server_says_version),
		cmocka_unit_test(test_kv_version),  cmocka_unit_test(test_msg_version),
		cmocka_unit_test(test_full),	    cmocka_unit_test(test_no_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
