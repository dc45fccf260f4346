/* SPDX-License-Identifier: MIT */
/*
 * gn_error() on ways that fail late: what is posted, what is full, what is over in time, a peer that
 * is gone, memory that is not there.
 */
#include <errno.h>
#include <string.h>

#include "error_check.h"
#include "gannet/kv.h"
#include "gannet/msg.h"
#include "unit_shm.h"
#include "unit_sim.h"

#define DEPTH		4u
#define SOON		gn_deadline_us(1000)

/* Only a bug takes long. */
#define UNTIL(condition)                                                               \
	for (const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US); !(condition); \
	     gn_sleep_us(100))                                                         \
	assert_true(gn_now_ns() < until_ns)

/* ---- base ---- */

static void test_base(void **state)
{
	struct gn_wait_item never;
	struct gn_queue *queue;
	struct gn_mutex mutex;
	struct gn_cond cond;
	uint64_t word = 0;
	void *out;

	(void)state;
	never = gn_wait_word(&word, 0);
	CHECK(gn_wait(&never, 1, GN_NO_WAIT, "the end"), -ETIMEDOUT, "ready");
	CHECK(gn_wait(&never, 1, SOON, "the end"), -ETIMEDOUT, "the end");
	gn_mutex_init(&mutex);
	gn_cond_init(&cond);
	gn_mutex_lock(&mutex);
	CHECK(gn_cond_wait(&cond, &mutex, SOON, "a signal"), -ETIMEDOUT, "a signal");
	gn_mutex_unlock(&mutex);
	gn_cond_fini(&cond);
	gn_mutex_fini(&mutex);
	assert_int_equal(gn_queue_create(2, &queue), 0);
	assert_int_equal(gn_queue_push(queue, &word), 0);
	assert_int_equal(gn_queue_push(queue, &word), 0);
	CHECK(gn_queue_push(queue, &word), -EAGAIN, "full");
	gn_queue_destroy(queue);
	CHECK(gn_alloc(8, 3) != NULL, 0, "align 3");
	CHECK(gn_thread_join(NULL), -EINVAL, "thread");
	CHECK(gn_fiber_create(NULL, NULL, SIZE_MAX / 2 + 1, (void *)&out), -ENOMEM, "stack");
	CHECK(gn_fiber_create(NULL, NULL, SIZE_MAX / 4, (void *)&out), -ENOMEM, "stack");
}

/* ---- fabric: two ends in one process ---- */

static struct {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_qp *qp[2], *ud;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_listener *listener;
	char addr[UNIT_ADDR];
} w;

static struct gn_qp *make_qp(enum gn_qp_type type)
{
	struct gn_qp *qp;

	assert_int_equal(gn_qp_create(w.pd,
				      OPTS(gn_qp_opts, .type = type, .send_cq = w.cq,
					   .recv_cq = w.cq, .chan = w.chan, .max_send_wr = DEPTH,
					   .max_recv_wr = DEPTH, .max_inline = 16),
				      &qp),
			 0);
	return qp;
}

static void connect_ends(void)
{
	unsigned up = 0;

	assert_int_equal(gn_connect(w.qp[0], w.addr, NULL), 0);
	while (up < 2) {
		struct gn_event event;

		assert_int_equal(gn_chan_wait(w.chan, gn_deadline_us(UNIT_PATIENCE_US), &event), 0);
		if (event.type == GN_EVENT_CONNECT_REQUEST)
			assert_int_equal(gn_accept(event.req, w.qp[1], NULL), 0);
		up += event.type == GN_EVENT_ESTABLISHED;
	}
}

static int open_ends(void **state)
{
	(void)state;
	error_no_log();
	w.fabric = unit_shm(w.addr);
	assert_int_equal(gn_ctx_create(w.fabric, &w.ctx), 0);
	assert_int_equal(gn_pd_create(w.ctx, &w.pd), 0);
	assert_int_equal(gn_chan_create(w.ctx, &w.chan), 0);
	assert_int_equal(gn_cq_create(w.ctx, OPTS(gn_cq_opts, .depth = 64, .chan = w.chan), &w.cq),
			 0);
	assert_int_equal(gn_mem_alloc(w.fabric, 2 * GN_PAGE, GN_REMOTE_WRITE, &w.mem), 0);
	assert_int_equal(gn_mr_register(w.pd, w.mem, 0, GN_PAGE, GN_LOCAL_WRITE, &w.mr), 0);
	assert_int_equal(gn_listener_create(w.ctx, w.addr, w.chan, 0, &w.listener), 0);
	w.qp[0] = make_qp(GN_QP_RC);
	w.qp[1] = make_qp(GN_QP_RC);
	w.ud = make_qp(GN_QP_UD);
	connect_ends();
	return 0;
}

static int close_ends(void **state)
{
	(void)state;
	assert_int_equal(gn_qp_destroy(w.ud), 0);
	assert_int_equal(gn_qp_destroy(w.qp[1]), 0);
	assert_int_equal(gn_qp_destroy(w.qp[0]), 0);
	assert_int_equal(gn_listener_destroy(w.listener), 0);
	assert_int_equal(gn_mr_deregister(w.mr), 0);
	assert_int_equal(gn_mem_free(w.mem), 0);
	assert_int_equal(gn_cq_destroy(w.cq), 0);
	assert_int_equal(gn_chan_destroy(w.chan), 0);
	assert_int_equal(gn_pd_destroy(w.pd), 0);
	assert_int_equal(gn_ctx_destroy(w.ctx), 0);
	assert_int_equal(gn_fabric_close(w.fabric), 0);
	gn_log_to(NULL, NULL);
	return 0;
}

#define POST(qp, ...) gn_post_send(qp, &(struct gn_wr){__VA_ARGS__}, NULL)

static void test_posts(void **state)
{
	struct gn_sge sge = {gn_mr_addr(w.mr), 64, gn_mr_lkey(w.mr)}, tiny = sge;
	struct gn_recv_wr recv = {.sge = &sge, .n_sge = 1};

	(void)state;
	tiny.len_bytes = 4;
	CHECK(gn_post_send(w.qp[0], NULL, NULL), -EINVAL, "wr is NULL");
	CHECK(gn_post_one(w.qp[0], NULL), -EINVAL, "wr is NULL");
	CHECK(POST(w.qp[0], .op = (enum gn_op)99), -EINVAL, "op 99");
	CHECK(POST(w.qp[0], .op = GN_OP_SEND, .flags = 1u << 30), -EINVAL, "flags");
	CHECK(POST(w.qp[0], .op = GN_OP_SEND, .sge = &sge, .n_sge = 99), -EINVAL, "n_sge is 99");
	CHECK(POST(w.qp[0], .op = GN_OP_SEND, .n_sge = 1), -EINVAL, "sge is NULL");
	CHECK(POST(w.qp[0], .op = GN_OP_RECV), -EINVAL, "recv");
	CHECK(POST(w.qp[0], .op = GN_OP_SEND, .sge = &sge, .n_sge = 1, .flags = GN_INLINE),
	      -EMSGSIZE, "max_inline");
	CHECK(POST(w.qp[0], .op = GN_OP_READ, .sge = &tiny, .n_sge = 1, .flags = GN_INLINE),
	      -EINVAL, "GN_INLINE");
	CHECK(POST(w.qp[0], .op = GN_OP_FAA, .sge = &sge, .n_sge = 1), -EINVAL, "8 bytes");
	CHECK(POST(w.ud, .op = GN_OP_SEND, .sge = &tiny, .n_sge = 1), -EINVAL, "to.ud.ah");
	CHECK(POST(w.ud, .op = GN_OP_READ, .sge = &tiny, .n_sge = 1), -EINVAL, "UD");
	/* Nobody polls the cq. */
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(POST(w.qp[0], .op = GN_OP_WRITE, .sge = &tiny, .n_sge = 1,
				      .flags = GN_SIGNALED, .to.remote.key = 1),
				 0);
	CHECK(POST(w.qp[0], .op = GN_OP_WRITE, .sge = &tiny, .n_sge = 1), -EAGAIN, "send queue");
	CHECK(gn_post_recv(w.qp[1], NULL, NULL), -EINVAL, "wr is NULL");
	recv.n_sge = 99;
	CHECK(gn_post_recv(w.qp[1], &recv, NULL), -EINVAL, "n_sge is 99");
	recv.n_sge = 1;
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(gn_post_recv(w.ud, &recv, NULL), 0);
	CHECK(gn_post_recv(w.ud, &recv, NULL), -EAGAIN, "receive queue");
}

static void test_fabric(void **state)
{
	struct gn_ud_addr to = {.lid = 0};
	struct gn_event event;
	struct gn_wc wc[64];
	struct gn_mr *mr;
	void *out;

	(void)state;
	while (gn_cq_poll(w.cq, wc, 64) > 0)
		;
	CHECK(gn_cq_poll(w.cq, NULL, 1), -EINVAL, "wc");
	CHECK(gn_cq_wait(w.cq, wc, 1, SOON, "a completion"), -ETIMEDOUT, "a completion");
	while (!gn_chan_next(w.chan, &event))
		;
	CHECK(gn_chan_wait(w.chan, SOON, &event), -ETIMEDOUT, "channel");
	CHECK(gn_ctx_create(w.fabric, NULL), -EINVAL, "out");
	CHECK(gn_pd_create(w.ctx, NULL), -EINVAL, "out");
	CHECK(gn_mr_register(w.pd, w.mem, 0, 1, 1u << 30, &mr), -EINVAL, "access");
	CHECK(gn_mr_register(w.pd, w.mem, 0, 1, GN_REMOTE_WRITE, &mr), -EINVAL, "GN_LOCAL_WRITE");
	CHECK(gn_mr_register(w.pd, w.mem, 1, 2 * GN_PAGE, 0, &mr), -EINVAL, "of a mem of");
	CHECK(gn_mr_register(w.pd, w.mem, 8, 8, GN_REMOTE_WRITE | GN_LOCAL_WRITE, &mr), -EINVAL,
	      "page");
	CHECK(gn_mem_alloc(w.fabric, SIZE_MAX / 4, 0, (void *)&out), -ENOMEM, "cannot allocate");
	CHECK(gn_qp_create(w.pd, OPTS(gn_qp_opts, .type = (enum gn_qp_type)9), (void *)&out),
	      -EINVAL, "type 9");
	CHECK(gn_qp_create(w.pd,
			   OPTS(gn_qp_opts, .type = GN_QP_RC, .send_cq = w.cq, .recv_cq = w.cq,
				.flags = 1u << 30),
			   (void *)&out),
	      -EINVAL, "flags");
	CHECK(gn_qp_create(w.pd,
			   OPTS(gn_qp_opts, .type = GN_QP_RC, .send_cq = w.cq, .recv_cq = w.cq,
				.chan = w.chan, .max_send_sge = 1000000),
			   (void *)&out),
	      -EINVAL, "1000000");
	CHECK(gn_ah_create(w.ud, NULL, (void *)&out), -EINVAL, "addr");
	assert_int_equal(gn_disconnect(w.qp[0]), 0);
	CHECK(gn_ah_create_peer(w.ud, w.qp[0], &to, (void *)&out), -ENOTCONN, "not connected");
}

/* ---- calls ---- */

static void late(struct gn_rpc_request *request, void *arg)
{
	struct gn_rpc_request **kept = arg;

	__atomic_store_n(kept, request, __ATOMIC_RELEASE);
}

static void test_rpc(void **state)
{
	struct gn_rpc_op op = {.method = 1};
	struct gn_rpc_request *kept = NULL;
	struct gn_rpc_read_op read = {.len = 8};
	struct gn_rpc_server *server;
	struct gn_rpc_client *client;
	struct gn_fabric *fabric;
	char addr[UNIT_ADDR];
	void *to;

	(void)state;
	error_no_log();
	fabric = unit_shm(addr);
	assert_int_equal(gn_rpc_server_create(fabric, addr, NULL, &server), 0);
	assert_int_equal(gn_rpc_server_handle(server, 1, late, &kept), 0);
	assert_int_equal(gn_rpc_server_start(server), 0);
	CHECK(gn_rpc_client_open(fabric, addr, NULL, NULL), -EINVAL, "out");
	assert_int_equal(gn_rpc_client_close(NULL), 0);
	assert_int_equal(gn_rpc_client_open(fabric, addr, NULL, &client), 0);
	CHECK(gn_rpc_client_open_wait(client, GN_NO_WAIT), -EISCONN, "connected");
	CHECK(gn_rpc_call_all(client, NULL, 1), -EINVAL, "ops");
	CHECK(gn_rpc_read(client, NULL), -EINVAL, "read");
	CHECK(gn_rpc_read(client, &read), -EINVAL, "view");
	assert_int_equal(gn_rpc_submit(client, &op), 0);
	CHECK(gn_rpc_wait(client, SOON), -ETIMEDOUT, "gn_rpc_wait");
	UNTIL(__atomic_load_n(&kept, __ATOMIC_ACQUIRE));
	CHECK(gn_rpc_server_drain(server, SOON), -ETIMEDOUT, "gn_rpc_server_drain");
	gn_rpc_answer(kept, GN_RPC_OK, NULL, 0);
	gn_rpc_server_destroy(server);
	while (!op.status && op.client)
		gn_rpc_wait(client, SOON);
	UNTIL(gn_rpc_poll(client) >= 0 && gn_rpc_submit(client, &op) == -ENOTCONN);
	CHECK(gn_rpc_read(client, &(struct gn_rpc_read_op){.len = 1}), -ENOTCONN, "broke");
	assert_int_equal(gn_rpc_poll(client), 0); /* none is under way */
	assert_int_equal(gn_rpc_wait(client, GN_FOREVER), 0);
	CHECK(gn_rpc_flush(client), -ENOTCONN, addr);
	CHECK(gn_rpc_submit(client, &op), -ENOTCONN, addr);
	CHECK(gn_rpc_prepare(client, &op, &to), -ENOTCONN, "broke");
	CHECK(gn_rpc_call_all(client, &op, 1), -ENOTCONN, "broke");
	CHECK(gn_rpc_call(client, 1, NULL, 0, NULL, 0, NULL, SOON, NULL), -ENOTCONN, "broke");
	CHECK(gn_rpc_client_open_wait(client, GN_NO_WAIT), -ENOTCONN, "broke");
	CHECK(gn_rpc_reconnect(client), -ECONNREFUSED, addr);
	assert_int_equal(gn_rpc_client_close(client), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
	gn_log_to(NULL, NULL);
}

/* ---- stores ---- */

static void test_kv(void **state)
{
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	struct gn_kv_server *server;
	struct gn_kv_client *client;
	struct gn_kv_store *store;
	struct gn_fabric *fabric;
	char addr[UNIT_ADDR], buf[8];

	(void)state;
	error_no_log();
	fabric = unit_shm(addr);
	CHECK(gn_kv_store_create(OPTS(gn_kv_store_opts, .memory = 1), &store), -EINVAL, "memory 1");
	CHECK(gn_kv_store_create(OPTS(gn_kv_store_opts, .memory = GN_KV_MEMORY_MIN,
				      .max_value = GN_KV_VALUE_MAX),
				 &store),
	      -EINVAL, "max_value");
	assert_int_equal(gn_kv_server_create(fabric, addr, NULL, &server), 0);
	assert_int_equal(gn_kv_server_start(server), 0);
	assert_int_equal(gn_kv_client_open(fabric, addr, NULL, &client), 0);
	CHECK(gn_kv_get(client, "k", 1, buf, sizeof(buf), NULL, GN_FOREVER), -ENOENT,
	      "no such key");
	CHECK(gn_kv_del(client, "k", 1, GN_FOREVER), -ENOENT, "no such key");
	CHECK(gn_kv_client_stats(client, 99, &stats, GN_FOREVER), -EINVAL, "partition 99");
	CHECK(gn_kv_control_submit(client, NULL), -EINVAL, "control");
	CHECK(gn_kv_submit(client, &(struct gn_kv_op){.verb = GN_KV_GET}), -EINVAL, "key");
	CHECK(gn_kv_submit(client, &(struct gn_kv_op){.verb = 99, .key = "k", .key_len = 1}),
	      -EINVAL, "verb");
	CHECK(gn_kv_do(client, NULL, 1, GN_FOREVER), -EINVAL, "ops");
	assert_int_equal(gn_kv_client_close(NULL), 0);
	CHECK(gn_kv_server_start(NULL), -EINVAL, "server");
	CHECK(gn_kv_server_drain(NULL, GN_FOREVER), -EINVAL, "server");
	gn_kv_server_destroy(server);
	UNTIL(gn_kv_get(client, "k", 1, buf, sizeof(buf), NULL, GN_FOREVER) == -ENOTCONN);
	CHECK(gn_kv_get(client, "k", 1, buf, sizeof(buf), NULL, GN_FOREVER), -ENOTCONN, "broke");
	CHECK(gn_kv_submit(client, &(struct gn_kv_op){.verb = GN_KV_DELETE, .key = "k",
						      .key_len = 1}),
	      -ENOTCONN, "broke");
	assert_int_equal(gn_kv_poll(client), 0); /* none is under way */
	assert_int_equal(gn_kv_wait(client, GN_FOREVER), 0);
	CHECK(gn_kv_client_stats(client, 0, &stats, GN_FOREVER), -ENOTCONN, "broke");
	CHECK(gn_kv_clear(client, 0, GN_FOREVER), -ENOTCONN, "broke");
	CHECK(gn_kv_control_submit(client, &(struct gn_kv_control){.done = (void *)error_ignore}),
	      -ENOTCONN, "broke");
	assert_int_equal(gn_kv_client_close(client), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
	gn_log_to(NULL, NULL);
}

/* ---- messages ---- */

static int answer(void *arg, const void *request, uint32_t len, void *value, uint32_t room)
{
	(void)arg, (void)request, (void)len, (void)value, (void)room;
	return 0;
}

struct responding {
	struct gn_msg_responder *responder;
	bool stop;
};

static void respond(void *arg)
{
	struct responding *r = arg;

	while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE))
		gn_msg_respond(r->responder, gn_deadline_us(1000));
}

static void test_msg(void **state)
{
	struct gn_msg_requester *requester;
	struct responding r = {.stop = false};
	enum gn_msg_protocol protocol;
	struct gn_msg_conn *conn, *more;
	struct gn_fabric *fabric;
	struct gn_thread *thread;
	struct gn_msg_result result;
	char addr[UNIT_ADDR], big[256] = "";
	void *out;

	(void)state;
	error_no_log();
	fabric = unit_shm(addr);
	CHECK(gn_msg_protocol_parse("smoke", &protocol), -EINVAL, "'smoke'");
	CHECK(gn_msg_requester_create(fabric, OPTS(gn_msg_requester_opts, .pending = 1u << 30),
				      (void *)&out),
	      -EINVAL, "pending");
	CHECK(gn_msg_requester_create(
		      fabric, OPTS(gn_msg_requester_opts, .request_bytes = 1u << 31), (void *)&out),
	      -EMSGSIZE, "request_bytes");
	CHECK(gn_msg_requester_create(
		      fabric,
		      OPTS(gn_msg_requester_opts, .protocol = GN_MSG_UD, .request_bytes = 1u << 20),
		      (void *)&out),
	      -EMSGSIZE, "request_bytes");
	CHECK(gn_msg_responder_create(fabric, addr, OPTS(gn_msg_responder_opts, .max_conns = 0),
				      (void *)&out),
	      -EINVAL, "answer");
	CHECK(gn_msg_responder_create(
		      fabric, addr,
		      OPTS(gn_msg_responder_opts, .answer = answer, .max_conns = 1u << 30),
		      (void *)&out),
	      -EINVAL, "max_conns");
	assert_int_equal(gn_msg_responder_create(fabric, addr,
						 OPTS(gn_msg_responder_opts, .answer = answer),
						 &r.responder),
			 0);
	assert_int_equal(gn_thread_start("respond", respond, &r, &thread), 0);
	assert_int_equal(gn_msg_requester_create(fabric,
						 OPTS(gn_msg_requester_opts, .pending = 2,
						      .request_bytes = 64, .max_conns = 1),
						 &requester),
			 0);
	assert_int_equal(gn_msg_conn_open(requester, addr, NULL, &conn), 0);
	CHECK(gn_msg_conn_open(requester, addr, NULL, &more), -ENOSPC, "max_conns");
	CHECK(gn_msg_ask(conn, big, sizeof(big), 1), -EMSGSIZE, "takes at most 64");
	CHECK(gn_msg_read(conn, 0, 1, 1), -EINVAL, "READ");
	assert_int_equal(gn_msg_ask(conn, big, 1, 1), 0);
	assert_int_equal(gn_msg_ask(conn, big, 1, 2), 0);
	CHECK(gn_msg_ask(conn, big, 1, 3), -EAGAIN, "pending");
	__atomic_store_n(&r.stop, true, __ATOMIC_RELEASE);
	assert_int_equal(gn_thread_join(thread), 0);
	gn_msg_responder_destroy(r.responder);
	while (gn_msg_take(requester, &result, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1)
		;
	UNTIL((gn_msg_take(requester, &result, 1, GN_NO_WAIT),
	       gn_msg_ask(conn, big, 1, 4) == -ENOTCONN));
	CHECK(gn_msg_ask(conn, big, 1, 4), -ENOTCONN, "disconnected");
	gn_msg_conn_close(conn);
	CHECK(gn_msg_conn_open(requester, addr, NULL, &conn), -ECONNREFUSED, addr);
	gn_msg_requester_destroy(requester);
	assert_int_equal(gn_fabric_close(fabric), 0);
	gn_log_to(NULL, NULL);
}

/* ---- a simulation, and every allocation that may fail ---- */

PROGRAM(sleeper)
{
	(void)env;
	gn_sleep_us(10);
	return 0;
}

PROGRAM(stuck)
{
	struct gn_wait_item item;
	uint64_t word = 0;

	(void)env;
	item = gn_wait_word(&word, 0);
	gn_wait(&item, 1, GN_FOREVER, "what never comes");
	return 0;
}

static void test_sim(void **state)
{
	struct gn_sim *sim = sim_make(1, 1);
	int status;

	(void)state;
	CHECK(gn_sim_spawn(sim, 7, sleeper, 0, NULL, NULL, NULL), -EINVAL, "node 7");
	CHECK(gn_sim_spawn(sim, 0, NULL, 0, NULL, NULL, NULL), -EINVAL, "program");
	CHECK(gn_sim_spawn(sim, 0, sleeper, -1, NULL, NULL, NULL), -EINVAL, "argc -1");
	CHECK(gn_sim_status(sim, 3, &status), -EINVAL, "process 3");
	CHECK(gn_sim_inject(sim, NULL), -EINVAL, "faults");
	sim_spawn(sim, 0, sleeper, NULL);
	CHECK(gn_sim_status(sim, 0, &status), -EAGAIN, "ended");
	assert_int_equal(gn_sim_run(sim), 0);
	CHECK(gn_sim_kill(sim, 0), -ESRCH, "ended");
	sim_spawn(sim, 0, stuck, NULL);
	CHECK(gn_sim_run(sim), -EDEADLK, "deadlock");
	gn_sim_destroy(sim);
	assert_int_equal(gn_sim_create(OPTS(gn_sim_opts, .nodes = 1, .limit_ns = 1000), &sim), 0);
	sim_spawn(sim, 0, sleeper, NULL);
	CHECK(gn_sim_run(sim), -ETIMEDOUT, "limit_ns 1000");
	gn_sim_destroy(sim);
}

/* A call of set-up; if it fails for want of memory it must have said so. */
#define TRY(call)                                                                                 \
	({                                                                                        \
		const unsigned before = gn_fail_count();                                          \
		const int rc = (call);                                                            \
                                                                                                  \
		if (rc && gn_fail_count() == before) {                                            \
			gn_log(GN_LOG_ERROR, "%s: %s, and nothing else", #call, gn_strerror(rc)); \
			silent++;                                                                 \
		}                                                                                 \
		rc;                                                                               \
	})

static unsigned silent;

static void set_up_kv(struct gn_fabric *fabric)
{
	struct gn_kv_server *server = NULL;
	struct gn_kv_client *client = NULL;

	if (!TRY(gn_kv_server_create(
		    fabric, "sim:n0:2",
		    OPTS(gn_kv_server_opts, .memory = GN_KV_MEMORY_MIN, .bypass = true),
		    &server)) &&
	    !TRY(gn_kv_server_start(server)) &&
	    !TRY(gn_kv_client_open(fabric, "sim:n0:2", NULL, &client)))
		TRY(gn_kv_set(client, "key", 3, "value", 5, 0, GN_FOREVER));
	if (client)
		TRY(gn_kv_client_close(client));
	gn_kv_server_destroy(server);
}

static void set_up_msg(struct gn_fabric *fabric)
{
	struct gn_msg_responder *responder = NULL;
	struct gn_msg_requester *requester = NULL;

	TRY(gn_msg_responder_create(fabric, "sim:n0:3",
				    OPTS(gn_msg_responder_opts, .answer = answer), &responder));
	TRY(gn_msg_requester_create(fabric, OPTS(gn_msg_requester_opts, .protocol = GN_MSG_UD),
				    &requester));
	gn_msg_requester_destroy(requester);
	gn_msg_responder_destroy(responder);
}

PROGRAM(set_up)
{
	struct gn_fabric *fabric = NULL;
	struct gn_queue *queue = NULL;
	struct gn_slot *slot = NULL;

	TRY(gn_queue_create(2, &queue));
	gn_queue_destroy(queue);
	TRY(gn_slot_create(NULL, &slot));
	gn_slot_destroy(slot);
	if (TRY(gn_fabric_open(env->fabric, &fabric)))
		return 0;
	set_up_kv(fabric);
	set_up_msg(fabric);
	return gn_fabric_close(fabric);
}

static void test_no_memory(void **state)
{
	char faults[64];
	bool failed = true;
	unsigned n;

	(void)state;
	for (n = 1; failed; n++) {
		struct gn_sim *sim = sim_make(1, 1);

		snprintf(faults, sizeof(faults), "alloc@0s:n0:#%u", n);
		assert_int_equal(gn_sim_inject(sim, faults), 0);
		sim_spawn(sim, 0, set_up, NULL);
		assert_int_equal(gn_sim_run(sim), 0);
		failed = false;
		for (unsigned kind = 0; gn_sim_fault_name(kind); kind++)
			failed |= gn_sim_fault_count(sim, kind) > 0;
		gn_sim_destroy(sim);
	}
	print_message("# %u allocations\n", n);
	assert_true(n > 50);
	if (silent)
		fail_msg("%u calls failed without a word:\n%s", silent,
			 ((struct sim_lines *)*state)->text);
}

int main(void)
{
	const struct CMUnitTest ends[] = {
		cmocka_unit_test(test_posts),
		cmocka_unit_test(test_fabric),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_base), cmocka_unit_test(test_rpc), cmocka_unit_test(test_kv),
		cmocka_unit_test(test_msg),  SIM_TEST(test_sim),	 SIM_TEST(test_no_memory),
	};

	return cmocka_run_group_tests(ends, open_ends, close_ends) +
	       cmocka_run_group_tests(tests, NULL, NULL);
}
