/* SPDX-License-Identifier: MIT */
/*
 * gn_error(): every failing call says why, and names what is wrong. A table of failing calls, each
 * with its errno and a word that the text must have; each thread has its own text, a simulated one
 * too.
 */
#include <errno.h>
#include <string.h>

#include "error_check.h"
#include "gannet/kv.h"
#include "gannet/msg.h"
#include "unit_sim.h"

static struct gn_fabric *fabric;
static struct gn_ctx *ctx;
static struct gn_pd *pd;
static struct gn_chan *chan;
static struct gn_cq *cq;
static struct gn_qp *rc_qp;
static struct gn_mem *mem;
static struct gn_rpc_server *server;
static struct gn_rpc_client *client;
static struct gn_kv_client *kv;
static char addr[64], kv_addr[64];

static void *out[1];

#define OUT ((void *)&out[0])

static void handler(struct gn_rpc_request *request, void *arg)
{
	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

/* ---- a process ---- */

static void base_calls(void)
{
	struct gn_wait_item items[1];
	struct gn_queue *queue;

	CHECK(gn_wait(items, GN_WAIT_MAX + 1, GN_NO_WAIT, "test"), -EINVAL, "GN_WAIT_MAX");
	CHECK(gn_queue_create(0, &queue), -EINVAL, "capacity");
	assert_int_equal(gn_queue_create(2, &queue), 0);
	CHECK(gn_queue_push(queue, NULL), -EINVAL, "item");
	gn_queue_destroy(queue);
	CHECK(gn_fiber_create(NULL, NULL, 1, OUT), -EINVAL, "stack_bytes");
}

static void fabric_calls(void)
{
	struct gn_event event;
	struct gn_mr *mr;

	CHECK(gn_fabric_open(NULL, OUT), -EINVAL, "name");
	CHECK(gn_fabric_open("fire", OUT), -EINVAL, "'fire'");
	CHECK(gn_fabric_open("shm:device", OUT), -EINVAL, "device");
	CHECK(gn_fabric_close(fabric), -EBUSY, "destroy");
	CHECK(gn_fabric_query(fabric, NULL), -EINVAL, "gn_attr");
	CHECK(gn_ctx_destroy(ctx), -EBUSY, "context");
	CHECK(gn_pd_create(NULL, OUT), -EINVAL, "context");
	CHECK(gn_mem_alloc(fabric, 0, 0, OUT), -EINVAL, "size");
	CHECK(gn_mem_wrap(fabric, NULL, 1, OUT), -EINVAL, "addr");
	CHECK(gn_mr_register(pd, mem, 0, 1, GN_REMOTE_READ, &mr), -EINVAL, "rights");
	CHECK(gn_cq_create(ctx, OPTS(gn_cq_opts, .depth = 0), OUT), -EINVAL, "depth");
	CHECK(gn_cq_create(ctx, NULL, OUT), -EINVAL, "opts");
	CHECK(gn_cq_arm(cq, false), -EINVAL, "chan");
	CHECK(gn_qp_create(pd, OPTS(gn_qp_opts, .type = GN_QP_RC), OUT), -EINVAL, "cq");
	CHECK(gn_qp_create(pd, OPTS(gn_qp_opts, .send_cq = cq, .recv_cq = cq), OUT), -EINVAL,
	      "channel");
	CHECK(gn_qp_reset(rc_qp), -EINVAL, "UD");
	CHECK(gn_chan_wait(chan, GN_NO_WAIT, NULL), -EINVAL, "out");
	CHECK(gn_chan_next(NULL, &event), -EINVAL, "channel");
	CHECK(gn_post_send(rc_qp, &(struct gn_wr){.op = GN_OP_SEND}, NULL), -ENOTCONN,
	      "not connected");
	CHECK(gn_disconnect(rc_qp), -ENOTCONN, "not connected");
	CHECK(gn_connect(rc_qp, "verbs:host:1", NULL), -EINVAL, "shm:");
	CHECK(gn_connect_wait(rc_qp, "shm:test-error-nobody", NULL, NULL), -ECONNREFUSED,
	      "test-error-nobody");
	CHECK(gn_listener_create(ctx, addr, chan, 0, OUT), -EADDRINUSE, "uses this name");
	CHECK(gn_listener_create(ctx, addr, chan, 1u << 31, OUT), -EINVAL, "flags");
}

static void rpc_calls(void)
{
	struct gn_rpc_op op = {.method = GN_RPC_BUILTIN_END};

	CHECK(gn_rpc_server_create(fabric, NULL, NULL, OUT), -EINVAL, "addr");
	CHECK(gn_rpc_server_create(fabric, addr, OPTS(gn_rpc_server_opts, .threads = 1000), OUT),
	      -EINVAL, "threads 1000");
	CHECK(gn_rpc_server_handle(server, 1, handler, NULL), -EBUSY, "started");
	CHECK(gn_rpc_server_handle(server, UINT32_MAX, handler, NULL), -EINVAL, "method");
	CHECK(gn_rpc_server_start(server), -EINVAL, "started");
	CHECK(gn_rpc_server_poll(server), -EINVAL, "GN_RPC_POLLED");
	CHECK(gn_rpc_client_open(fabric, "shm:test-error-nobody", NULL, OUT), -ECONNREFUSED,
	      "test-error-nobody");
	CHECK(gn_rpc_client_open(fabric, addr, OPTS(gn_rpc_client_opts, .slots = 5000), OUT),
	      -EINVAL, "slots 5000");
	CHECK(gn_rpc_call(NULL, 1, NULL, 0, NULL, 0, NULL, 0, NULL), -EINVAL, "client");
	CHECK(gn_rpc_submit(client, NULL), -EINVAL, "op");
	CHECK(gn_rpc_submit(client, &op), -EINVAL, "method");
	CHECK(gn_rpc_call(client, 1, NULL, 1, NULL, 0, NULL, 0, NULL), -EINVAL, "request");
	CHECK(gn_rpc_call(client, 1, addr, GN_RPC_LARGE_MAX + 1, NULL, 0, NULL, 0, NULL), -EMSGSIZE,
	      "max_large");
	CHECK(gn_rpc_cancel(&op), -ESRCH, "completed");
	CHECK(gn_rpc_client_limits(client, NULL), -EINVAL, "gn_rpc_limits");
	CHECK(gn_rpc_client_choice(client, UINT32_MAX, NULL), -EINVAL, "method");
	CHECK(gn_rpc_tuning_read("/nowhere/at/all", OPTS(gn_rpc_tuning, .retries = 0)), -ENOENT,
	      "/nowhere/at/all");
}

static void kv_and_msg_calls(void)
{
	struct gn_kv_op op = {
		.verb = GN_KV_SET, .key = "a", .key_len = 1, .value_len = GN_KV_VALUE_MAX + 1};

	op.value = addr; /* not looked at */
	CHECK(gn_kv_server_create(fabric, addr, OPTS(gn_kv_server_opts, .memory = 1), OUT), -EINVAL,
	      "memory");
	CHECK(gn_kv_client_open(fabric, NULL, NULL, OUT), -EINVAL, "addr");
	CHECK(gn_kv_client_open(fabric, "shm:test-error-nobody", NULL, OUT), -ECONNREFUSED,
	      "test-error-nobody");
	CHECK(gn_kv_poll(NULL), -EINVAL, "client");
	CHECK(gn_kv_submit(kv, NULL), -EINVAL, "op");
	CHECK(gn_kv_submit(kv, &op), -EMSGSIZE, "value");
	CHECK(gn_kv_client_limits(kv, NULL), -EINVAL, "gn_kv_limits");
	CHECK(gn_msg_requester_create(fabric, NULL, OUT), -EINVAL, "opts");
	CHECK(gn_msg_responder_create(fabric, NULL, NULL, OUT), -EINVAL, "addr");
	CHECK(gn_msg_take(NULL, NULL, 0, 0), -EINVAL, "requester");
	CHECK(gn_msg_respond(NULL, 0), -EINVAL, "responder");
	CHECK(gn_msg_responder_stats(NULL, NULL), -EINVAL, "responder");
}

static void sim_calls(void)
{
	CHECK(gn_sim_create(NULL, OUT), -EINVAL, "opts");
	CHECK(gn_sim_create(OPTS(gn_sim_opts, .nodes = 0), OUT), -EINVAL, "nodes");
	CHECK(gn_sim_create(OPTS(gn_sim_opts, .nodes = 1, .profile = "abacus"), OUT), -EINVAL,
	      "abacus");
	CHECK(gn_sim_create(OPTS(gn_sim_opts, .nodes = 1, .faults = "rain=1%"), OUT), -EINVAL,
	      "rain");
}

static void elsewhere(void *arg)
{
	int *wrong = arg;

	*wrong = strcmp(gn_error(), "") != 0;
	*wrong += gn_rpc_poll(client) != -EPERM || !strstr(gn_error(), "thread");
	*wrong += gn_kv_poll(kv) != -EPERM || !strstr(gn_error(), "thread");
}

static void set_up(void)
{
	const unsigned long long own = gn_random();
	struct gn_qp_opts qp_opts = {.size = sizeof(qp_opts), .type = GN_QP_RC};

	snprintf(addr, sizeof(addr), "shm:test-error-%llx", own);
	snprintf(kv_addr, sizeof(kv_addr), "shm:test-error-kv-%llx", own);
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	assert_int_equal(gn_ctx_create(fabric, &ctx), 0);
	assert_int_equal(gn_pd_create(ctx, &pd), 0);
	assert_int_equal(gn_chan_create(ctx, &chan), 0);
	assert_int_equal(gn_cq_create(ctx, OPTS(gn_cq_opts, .depth = 8), &cq), 0);
	qp_opts.send_cq = qp_opts.recv_cq = cq;
	qp_opts.chan = chan;
	assert_int_equal(gn_qp_create(pd, &qp_opts, &rc_qp), 0);
	assert_int_equal(gn_mem_alloc(fabric, GN_PAGE, 0, &mem), 0);
	assert_int_equal(gn_rpc_server_create(fabric, addr, NULL, &server), 0);
	assert_int_equal(gn_rpc_server_start(server), 0);
	assert_int_equal(gn_rpc_client_open(fabric, addr, NULL, &client), 0);
}

static void test_process(void **state)
{
	struct gn_kv_server *kv_server;
	struct gn_thread *thread;
	int wrong = -1;

	(void)state;
	assert_string_equal(gn_error(), "");
	error_no_log();
	set_up();
	assert_int_equal(gn_kv_server_create(fabric, kv_addr, NULL, &kv_server), 0);
	assert_int_equal(gn_kv_server_start(kv_server), 0);
	assert_int_equal(gn_kv_client_open(fabric, kv_addr, NULL, &kv), 0);
	assert_string_equal(gn_error(), ""); /* what succeeds says nothing */
	base_calls();
	fabric_calls();
	rpc_calls();
	kv_and_msg_calls();
	sim_calls();
	assert_int_equal(gn_thread_start("else", elsewhere, &wrong, &thread), 0);
	assert_int_equal(gn_thread_join(thread), 0);
	assert_int_equal(wrong, 0);
	assert_int_equal(gn_kv_client_close(kv), 0);
	gn_kv_server_destroy(kv_server);
	assert_int_equal(gn_rpc_client_close(client), 0);
	gn_rpc_server_destroy(server);
	assert_int_equal(gn_mem_free(mem), 0);
	assert_int_equal(gn_qp_destroy(rc_qp), 0);
	assert_int_equal(gn_cq_destroy(cq), 0);
	assert_int_equal(gn_chan_destroy(chan), 0);
	assert_int_equal(gn_pd_destroy(pd), 0);
	assert_int_equal(gn_ctx_destroy(ctx), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
	gn_log_to(NULL, NULL);
}

/* ---- a simulation ---- */

static void other_thread(void *arg)
{
	int *wrong = arg;

	*wrong = strcmp(gn_error(), "") != 0;
	*wrong += gn_fabric_open("fire", OUT) != -EINVAL || !strstr(gn_error(), "fire");
}

PROGRAM(simulated)
{
	struct gn_wait_item item = gn_wait_fd(0);
	struct gn_thread *thread;
	int wrong = -1;

	(void)env;
	EXPECT(!strcmp(gn_error(), ""));
	EXPECT(gn_wait(&item, 1, GN_NO_WAIT, "test") == -EOPNOTSUPP && strstr(gn_error(), "fd 0"));
	EXPECT(gn_thread_start("other", other_thread, &wrong, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0 && wrong == 0);
	EXPECT(strstr(gn_error(), "fd 0"));
	EXPECT(gn_fabric_open("shm", OUT) == -EOPNOTSUPP && strstr(gn_error(), "simulation"));
	return 0;
}

static void test_simulation(void **state)
{
	(void)state;
	gn_rpc_cancel(NULL);
	sim_run_alone(simulated, NULL);
	assert_non_null(strstr(gn_error(), "gn_rpc_cancel")); /* of the thread outside */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_process),
		SIM_TEST(test_simulation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
