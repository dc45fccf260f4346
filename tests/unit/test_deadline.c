/* SPDX-License-Identifier: MIT */
/*
 * One rule for every deadline: absolute, by gn_now_ns(); GN_FOREVER and 0 are none, GN_NO_WAIT only
 * looks. Each public call that takes one is a row of a table, run in a process and in a simulation:
 * with GN_NO_WAIT it returns at once and has found nothing; with 0 and with GN_FOREVER it waits for
 * what comes 20 ms later.
 */
#include <errno.h>
#include <string.h>

#include "deadline_stage.h"

#define AT_ONCE_NS 15000000u /* of virtual time: less than LATER_US */

/* ---- the calls ---- */

/*
 * With GN_NO_WAIT: what it returns for nothing. Else something happens later: 0 for what came. A
 * call returns its own way of saying so, made one: 1 something, 0 nothing; an errno is an error.
 */
typedef int call_fn(struct stage *s, uint64_t deadline_ns);

/* Waits are allowed to return early, for nothing. */
#define AGAIN(rc, happened, call) \
	do                        \
		rc = (call);      \
	while (deadline_ns != GN_NO_WAIT && rc == 0 && !(happened))

static int found(int rc)
{
	return rc == -ETIMEDOUT ? 0 : rc;
}

static void push(void *arg)
{
	gn_queue_push(arg, arg);
}

static int call_wait(struct stage *s, uint64_t deadline_ns)
{
	struct gn_wait_item item;
	struct gn_queue *queue;
	struct later l;
	int rc;

	(void)s;
	EXPECT(gn_queue_create(2, &queue) == 0);
	item = gn_wait_on(gn_queue_source(queue));
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(later(&l, push, queue) == 0);
	do
		rc = gn_wait(&item, 1, deadline_ns, "a test");
	while (rc == 0);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(gn_thread_join(l.thread) == 0);
	gn_queue_destroy(queue);
	return found(rc);
}

struct signal {
	struct gn_mutex mutex;
	struct gn_cond cond;
	bool is; /* under mutex */
};

static void signal_it(void *arg)
{
	struct signal *signal = arg;

	gn_mutex_lock(&signal->mutex);
	signal->is = true;
	gn_cond_signal(&signal->cond);
	gn_mutex_unlock(&signal->mutex);
}

static int call_cond_wait(struct stage *s, uint64_t deadline_ns)
{
	struct signal signal = {.is = false};
	struct later l;
	int rc = 0;

	(void)s;
	gn_mutex_init(&signal.mutex);
	gn_cond_init(&signal.cond);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(later(&l, signal_it, &signal) == 0);
	gn_mutex_lock(&signal.mutex);
	while (!signal.is && rc == 0)
		rc = gn_cond_wait(&signal.cond, &signal.mutex, deadline_ns, "a test");
	gn_mutex_unlock(&signal.mutex);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(gn_thread_join(l.thread) == 0);
	gn_cond_fini(&signal.cond);
	gn_mutex_fini(&signal.mutex);
	return rc ? found(rc) : 1;
}

static void break_qp(void *arg)
{
	gn_qp_error(arg);
}

static int call_cq_wait(struct stage *s, uint64_t deadline_ns)
{
	const struct gn_cq_opts cq_opts = {.size = sizeof(cq_opts), .depth = 8, .flags = GN_SHARED};
	struct gn_qp_opts qp_opts = {.size = sizeof(qp_opts), .type = GN_QP_UD, .flags = GN_SHARED};
	const struct gn_recv_wr wr = {.id = 1};
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_cq *cq;
	struct gn_qp *qp;
	struct gn_wc wc;
	struct later l;
	int rc;

	EXPECT(gn_ctx_create(s->fabric, &ctx) == 0 && gn_pd_create(ctx, &pd) == 0);
	EXPECT(gn_cq_create(ctx, &cq_opts, &cq) == 0);
	qp_opts.send_cq = qp_opts.recv_cq = cq;
	EXPECT(gn_qp_create(pd, &qp_opts, &qp) == 0 && gn_post_recv(qp, &wr, NULL) == 0);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(later(&l, break_qp, qp) == 0);
	rc = gn_cq_wait(cq, &wc, 1, deadline_ns, "a test");
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(gn_thread_join(l.thread) == 0);
	EXPECT(gn_qp_destroy(qp) == 0 && gn_cq_destroy(cq) == 0);
	EXPECT(gn_pd_destroy(pd) == 0 && gn_ctx_destroy(ctx) == 0);
	return found(rc);
}

/* Connects, and is refused. */
static int knock(struct stage *s)
{
	const struct gn_cq_opts cq_opts = {.size = sizeof(cq_opts), .depth = 8};
	struct gn_qp_opts qp_opts = {.size = sizeof(qp_opts), .type = GN_QP_RC};
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_qp *qp;

	EXPECT(gn_ctx_create(s->fabric, &ctx) == 0 && gn_pd_create(ctx, &pd) == 0);
	EXPECT(gn_cq_create(ctx, &cq_opts, &qp_opts.send_cq) == 0);
	EXPECT(gn_chan_create(ctx, &qp_opts.chan) == 0);
	qp_opts.recv_cq = qp_opts.send_cq;
	EXPECT(gn_qp_create(pd, &qp_opts, &qp) == 0);
	EXPECT(gn_connect_wait(qp, s->own_addr, NULL, NULL) == -ECONNREFUSED);
	EXPECT(gn_qp_destroy(qp) == 0 && gn_chan_destroy(qp_opts.chan) == 0);
	EXPECT(gn_cq_destroy(qp_opts.send_cq) == 0);
	EXPECT(gn_pd_destroy(pd) == 0 && gn_ctx_destroy(ctx) == 0);
	return 0;
}

static void knock_main(void *arg)
{
	knock(arg);
}

static int call_chan_wait(struct stage *s, uint64_t deadline_ns)
{
	struct gn_listener *listener;
	struct gn_chan *chan;
	struct gn_ctx *ctx;
	struct gn_event ev;
	struct later l;
	int rc;

	EXPECT(gn_ctx_create(s->fabric, &ctx) == 0 && gn_chan_create(ctx, &chan) == 0);
	EXPECT(gn_listener_create(ctx, s->own_addr, chan, 0, &listener) == 0);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(later(&l, knock_main, s) == 0);
	rc = gn_chan_wait(chan, deadline_ns, &ev);
	if (deadline_ns != GN_NO_WAIT) {
		EXPECT(rc == 0 && ev.type == GN_EVENT_CONNECT_REQUEST);
		EXPECT(gn_reject(ev.req, NULL, 0) == 0);
		EXPECT(gn_thread_join(l.thread) == 0);
	}
	EXPECT(gn_listener_destroy(listener) == 0);
	EXPECT(gn_chan_destroy(chan) == 0 && gn_ctx_destroy(ctx) == 0);
	return rc ? found(rc) : 1;
}

static int from_status(unsigned status)
{
	return status == GN_RPC_OK ? 1 : status == GN_RPC_TIMEOUT ? 0 : -EIO;
}

static int call_rpc_call(struct stage *s, uint64_t deadline_ns)
{
	unsigned status = GN_RPC_FAILED;

	EXPECT(gn_rpc_call(s->rpc, ECHO, NULL, 0, NULL, 0, NULL, deadline_ns, &status) == 0);
	return from_status(status);
}

static int call_rpc_call_all(struct stage *s, uint64_t deadline_ns)
{
	struct gn_rpc_op op = {.method = ECHO, .deadline_ns = deadline_ns};

	EXPECT(gn_rpc_call_all(s->rpc, &op, 1) == 0);
	return from_status(op.status);
}

static void op_done(struct gn_rpc_op *op)
{
	op->arg = NULL;
}

static int call_rpc_submit(struct stage *s, uint64_t deadline_ns)
{
	struct gn_rpc_op op = {
		.method = ECHO, .deadline_ns = deadline_ns, .done = op_done, .arg = s};

	EXPECT(gn_rpc_submit(s->rpc, &op) == 0);
	while (op.arg)
		EXPECT(gn_rpc_wait(s->rpc, GN_FOREVER) >= 0);
	return from_status(op.status);
}

static int call_rpc_wait(struct stage *s, uint64_t deadline_ns)
{
	struct gn_rpc_op op = {.method = ECHO, .done = op_done, .arg = s};
	int rc;

	EXPECT(gn_rpc_submit(s->rpc, &op) == 0);
	rc = gn_rpc_wait(s->rpc, deadline_ns);
	if (op.arg)
		EXPECT(gn_rpc_cancel(&op) == 0);
	return found(rc);
}

/* A polled server of the caller's own, and a client that comes later. */
static int ping(struct stage *s)
{
	struct gn_rpc_client *client;

	EXPECT(gn_rpc_client_open(s->fabric, s->own_addr, NULL, &client) == 0);
	EXPECT(gn_rpc_call(client, ECHO, NULL, 0, NULL, 0, NULL, GN_FOREVER, NULL) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static bool ping_ended;
static int ping_failed;

static void ping_main(void *arg)
{
	ping_failed = ping(arg);
	STORE(ping_ended, true);
}

static int own_server(struct stage *s, struct gn_rpc_server **out)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .flags = GN_RPC_POLLED};

	EXPECT(gn_rpc_server_create(s->fabric, s->own_addr, &opts, out) == 0);
	EXPECT(gn_rpc_server_handle(*out, ECHO, echo, NULL) == 0);
	EXPECT(gn_rpc_server_start(*out) == 0);
	return 0;
}

static int call_rpc_server_wait(struct stage *s, uint64_t deadline_ns)
{
	struct gn_rpc_server *server;
	struct later l;
	int rc;

	EXPECT(own_server(s, &server) == 0);
	STORE(ping_ended, false);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(later(&l, ping_main, s) == 0);
	AGAIN(rc, LOAD(l.happened), gn_rpc_server_wait(server, deadline_ns));
	if (deadline_ns != GN_NO_WAIT) {
		while (!LOAD(ping_ended))
			if (!gn_rpc_server_poll(server))
				gn_rpc_server_wait(server, gn_deadline_us(LATER_US));
		EXPECT(gn_thread_join(l.thread) == 0);
		EXPECT(!ping_failed);
	}
	gn_rpc_server_destroy(server);
	return rc ? found(rc) : 1;
}

/* A request is under way that is answered later. */
static struct gn_rpc_request *deferred;

static void defer(struct gn_rpc_request *request, void *arg)
{
	(void)arg;
	STORE(deferred, request);
}

static void answer_it(void *arg)
{
	(void)arg;
	gn_rpc_answer(LOAD(deferred), GN_RPC_OK, NULL, 0);
}

static void call_main(void *arg)
{
	struct stage *s = arg;
	struct gn_rpc_client *client;

	if (gn_rpc_client_open(s->fabric, s->own_addr, NULL, &client))
		return;
	gn_rpc_call(client, ECHO, NULL, 0, NULL, 0, NULL, GN_FOREVER, NULL);
	gn_rpc_client_close(client);
}

static int call_rpc_server_drain(struct stage *s, uint64_t deadline_ns)
{
	struct gn_rpc_server *server;
	struct gn_thread *client;
	struct later l;
	int rc;

	STORE(deferred, NULL);
	EXPECT(gn_rpc_server_create(s->fabric, s->own_addr, NULL, &server) == 0);
	EXPECT(gn_rpc_server_handle(server, ECHO, defer, NULL) == 0);
	EXPECT(gn_rpc_server_start(server) == 0);
	EXPECT(gn_thread_start("client", call_main, s, &client) == 0);
	while (!LOAD(deferred))
		gn_sleep_us(50);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(later(&l, answer_it, NULL) == 0);
	rc = gn_rpc_server_drain(server, deadline_ns);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(gn_thread_join(l.thread) == 0);
	else
		answer_it(NULL);
	EXPECT(gn_thread_join(client) == 0);
	gn_rpc_server_destroy(server);
	return rc ? found(rc) : 1;
}

/* ---- the store ---- */

static int from_kv(unsigned status)
{
	return status == GN_KV_OK || status == GN_KV_MISS ? 1 : status == GN_KV_TIMEOUT ? 0 : -EIO;
}

static int call_kv_do(struct stage *s, uint64_t deadline_ns)
{
	struct gn_kv_op op = {.verb = GN_KV_GET, .key = "a", .key_len = 1};

	EXPECT(gn_kv_do(s->kv, &op, 1, deadline_ns) == 0);
	return from_kv(op.status);
}

static void kv_done(struct gn_kv_op *op)
{
	op->arg = NULL;
}

static int call_kv_submit(struct stage *s, uint64_t deadline_ns)
{
	struct gn_kv_op op = {.verb = GN_KV_GET,
			      .key = "a",
			      .key_len = 1,
			      .deadline_ns = deadline_ns,
			      .done = kv_done,
			      .arg = s};

	EXPECT(gn_kv_submit(s->kv, &op) == 0);
	while (op.arg)
		EXPECT(gn_kv_wait(s->kv, GN_FOREVER) >= 0);
	return from_kv(op.status);
}

static int call_kv_wait(struct stage *s, uint64_t deadline_ns)
{
	struct gn_kv_op op = {
		.verb = GN_KV_GET, .key = "a", .key_len = 1, .done = kv_done, .arg = s};
	int rc;

	EXPECT(gn_kv_submit(s->kv, &op) == 0);
	rc = gn_kv_wait(s->kv, deadline_ns);
	STORE(s->still, false);
	while (op.arg)
		EXPECT(gn_kv_wait(s->kv, GN_FOREVER) >= 0);
	return found(rc);
}

static int call_kv_get(struct stage *s, uint64_t deadline_ns)
{
	const int rc = gn_kv_get(s->kv, "no", 2, NULL, 0, NULL, deadline_ns);

	return rc == -ENOENT ? 1 : found(rc);
}

static int call_kv_set(struct stage *s, uint64_t deadline_ns)
{
	const int rc = gn_kv_set(s->kv, "a", 1, "b", 1, 0, deadline_ns);

	return rc ? found(rc) : 1;
}

static int call_kv_del(struct stage *s, uint64_t deadline_ns)
{
	const int rc = gn_kv_del(s->kv, "no", 2, deadline_ns);

	return rc == -ENOENT ? 1 : found(rc);
}

static int call_kv_clear(struct stage *s, uint64_t deadline_ns)
{
	const int rc = gn_kv_clear(s->kv, 0, deadline_ns);

	return rc ? found(rc) : 1;
}

static int call_kv_stats(struct stage *s, uint64_t deadline_ns)
{
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	const int rc = gn_kv_client_stats(s->kv, GN_KV_ALL, &stats, deadline_ns);

	return rc ? found(rc) : 1;
}

static void control_done(struct gn_kv_control *control)
{
	control->arg = NULL;
}

static int call_kv_control(struct stage *s, uint64_t deadline_ns)
{
	struct gn_kv_control control = {.verb = GN_KV_CONTROL_STATS,
					.deadline_ns = deadline_ns,
					.done = control_done,
					.arg = s};

	EXPECT(gn_kv_control_submit(s->kv, &control) == 0);
	while (control.arg)
		EXPECT(gn_kv_wait(s->kv, GN_FOREVER) >= 0);
	return control.error ? found(control.error) : 1;
}

static void no_key(const struct gn_kv_key *key, void *arg)
{
	(void)key, (void)arg;
}

static int call_kv_scan(struct stage *s, uint64_t deadline_ns)
{
	struct gn_kv_cursor cursor = {{0}};
	const int rc = gn_kv_scan(s->kv, &cursor, no_key, NULL, deadline_ns);

	return rc >= 0 ? 1 : found(rc);
}

static int call_kv_server_drain(struct stage *s, uint64_t deadline_ns)
{
	struct gn_kv_server *server;
	int rc;

	/* It is gn_rpc_server_drain(): a server without clients is drained at once, or not yet. */
	EXPECT(gn_kv_server_create(s->fabric, s->own_addr, NULL, &server) == 0);
	EXPECT(gn_kv_server_start(server) == 0);
	rc = gn_kv_server_drain(server, deadline_ns);
	gn_kv_server_destroy(server);
	return rc == 0 && deadline_ns == GN_NO_WAIT ? 0 : rc ? found(rc) : 1;
}

/* ---- messages ---- */

static int call_msg_take(struct stage *s, uint64_t deadline_ns)
{
	struct gn_msg_result result;
	int rc;

	EXPECT(gn_msg_ask(s->conn, "ask", 3, 1) == 0 && gn_msg_flush(s->requester) == 0);
	rc = gn_msg_take(s->requester, &result, 1, deadline_ns);
	STORE(s->still, false);
	while (gn_msg_pending(s->conn))
		EXPECT(gn_msg_take(s->requester, &result, 1, GN_FOREVER) >= 0);
	return rc;
}

static int ask(struct stage *s)
{
	const struct gn_msg_requester_opts opts = {.size = sizeof(opts),
						   .protocol = GN_MSG_SEND_SEND};
	struct gn_msg_requester *requester;
	struct gn_msg_result result;
	struct gn_msg_conn *conn;

	EXPECT(gn_msg_requester_create(s->fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, s->own_addr, NULL, &conn) == 0);
	EXPECT(gn_msg_ask(conn, "ask", 3, 1) == 0);
	EXPECT(gn_msg_take(requester, &result, 1, GN_FOREVER) == 1);
	gn_msg_requester_destroy(requester);
	return 0;
}

static void ask_main(void *arg)
{
	ask(arg);
}

static int call_msg_respond(struct stage *s, uint64_t deadline_ns)
{
	const struct gn_msg_responder_opts opts = {.size = sizeof(opts), .answer = answer};
	struct gn_msg_responder *responder;
	struct later l;
	int rc;

	EXPECT(gn_msg_responder_create(s->fabric, s->own_addr, &opts, &responder) == 0);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(later(&l, ask_main, s) == 0);
	rc = gn_msg_respond(responder, deadline_ns);
	if (deadline_ns != GN_NO_WAIT)
		EXPECT(gn_thread_join(l.thread) == 0);
	gn_msg_responder_destroy(responder);
	return rc;
}

/* ---- the table ---- */

static const struct {
	const char *name;
	call_fn *call;
	bool served; /* the stage's servers hold still until later */
} calls[] = {
	{"gn_wait", call_wait, false},
	{"gn_cond_wait", call_cond_wait, false},
	{"gn_cq_wait", call_cq_wait, false},
	{"gn_chan_wait", call_chan_wait, false},
	{"gn_rpc_call", call_rpc_call, true},
	{"gn_rpc_call_all", call_rpc_call_all, true},
	{"gn_rpc_submit", call_rpc_submit, true},
	{"gn_rpc_wait", call_rpc_wait, true},
	{"gn_rpc_server_wait", call_rpc_server_wait, false},
	{"gn_rpc_server_drain", call_rpc_server_drain, false},
	{"gn_kv_do", call_kv_do, true},
	{"gn_kv_submit", call_kv_submit, true},
	{"gn_kv_wait", call_kv_wait, true},
	{"gn_kv_get", call_kv_get, true},
	{"gn_kv_set", call_kv_set, true},
	{"gn_kv_del", call_kv_del, true},
	{"gn_kv_clear", call_kv_clear, true},
	{"gn_kv_stats", call_kv_stats, true},
	{"gn_kv_control", call_kv_control, true},
	{"gn_kv_scan", call_kv_scan, true},
	{"gn_kv_server_drain", call_kv_server_drain, false},
	{"gn_msg_take", call_msg_take, true},
	{"gn_msg_respond", call_msg_respond, false},
};

static int try_one(struct stage *s, unsigned row, uint64_t deadline_ns, const char *word)
{
	const bool looks = deadline_ns == GN_NO_WAIT;
	struct later l = {.thread = NULL};
	uint64_t began_ns;
	int rc;

	STORE(s->still, calls[row].served);
	if (calls[row].served && !looks)
		EXPECT(later(&l, move_on, s) == 0);
	began_ns = gn_now_ns();
	rc = calls[row].call(s, deadline_ns);
	if (rc != (looks ? 0 : 1) ||
	    (looks && !strcmp(s->provider, "sim") && gn_now_ns() - began_ns > AT_ONCE_NS)) {
		print_error("%s(%s) on %s: %d after %llu us\n", calls[row].name, word, s->provider,
			    rc, (unsigned long long)(gn_now_ns() - began_ns) / 1000);
		return -1;
	}
	if (l.thread)
		EXPECT(gn_thread_join(l.thread) == 0);
	STORE(s->still, false);
	return 0;
}

static int stage_up(struct stage *s)
{
	const struct gn_msg_requester_opts opts = {.size = sizeof(opts),
						   .protocol = GN_MSG_SEND_SEND};

	EXPECT(gn_thread_start("server", serve_main, s, &s->server_thread) == 0);
	while (!LOAD(s->up))
		gn_sleep_us(50);
	EXPECT(s->server_failed == 0);
	EXPECT(gn_rpc_client_open(s->fabric, s->rpc_addr, NULL, &s->rpc) == 0);
	EXPECT(gn_kv_client_open(s->fabric, s->kv_addr, NULL, &s->kv) == 0);
	EXPECT(gn_msg_requester_create(s->fabric, &opts, &s->requester) == 0);
	EXPECT(gn_msg_conn_open(s->requester, s->msg_addr, NULL, &s->conn) == 0);
	return 0;
}

static int play(struct stage *s)
{
	EXPECT(stage_up(s) == 0);
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		EXPECT(try_one(s, i, GN_NO_WAIT, "GN_NO_WAIT") == 0);
		EXPECT(try_one(s, i, 0, "0") == 0);
		EXPECT(try_one(s, i, GN_FOREVER, "GN_FOREVER") == 0);
	}
	gn_msg_requester_destroy(s->requester);
	EXPECT(gn_kv_client_close(s->kv) == 0 && gn_rpc_client_close(s->rpc) == 0);
	STORE(s->stop, true);
	EXPECT(gn_thread_join(s->server_thread) == 0);
	EXPECT(s->server_failed == 0);
	return 0;
}

static void test_process(void **state)
{
	struct stage s = {.provider = "shm"};
	const unsigned long long own = gn_random();

	(void)state;
	snprintf(s.rpc_addr, sizeof(s.rpc_addr), "shm:test-deadline-r%llx", own);
	snprintf(s.kv_addr, sizeof(s.kv_addr), "shm:test-deadline-k%llx", own);
	snprintf(s.msg_addr, sizeof(s.msg_addr), "shm:test-deadline-m%llx", own);
	snprintf(s.own_addr, sizeof(s.own_addr), "shm:test-deadline-o%llx", own);
	assert_int_equal(gn_fabric_open("shm", &s.fabric), 0);
	assert_int_equal(play(&s), 0);
	assert_int_equal(gn_fabric_close(s.fabric), 0);
}

PROGRAM(simulated)
{
	struct stage s = {.provider = "sim",
			  .rpc_addr = "sim:n0:1",
			  .kv_addr = "sim:n0:2",
			  .msg_addr = "sim:n0:3",
			  .own_addr = "sim:n0:4"};

	EXPECT(gn_fabric_open(env->fabric, &s.fabric) == 0);
	EXPECT(play(&s) == 0);
	EXPECT(gn_fabric_close(s.fabric) == 0);
	return 0;
}

static void test_simulation(void **state)
{
	(void)state;
	if (!THREADS_WATCHED)
		sim_run_alone(simulated, NULL);
}

/* The constants are times: what has always passed, and what never comes. */
static void test_constants(void **state)
{
	(void)state;
	assert_true(GN_NO_WAIT != 0 && GN_NO_WAIT <= gn_now_ns());
	assert_int_equal(gn_deadline_us(UINT64_MAX), GN_FOREVER);
	assert_true(gn_deadline_us(0) >= GN_NO_WAIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_constants),
		cmocka_unit_test(test_process),
		SIM_TEST(test_simulation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
