/* SPDX-License-Identifier: MIT */
/*
 * Public structs that begin with their size. Each call that takes one refuses a size that is missing
 * or too small, and says so; takes a larger one of a newer program, unless something is set there;
 * and writes no byte beyond the size.
 */
#include <errno.h>
#include <string.h>

#include "gannet/kv.h"
#include "gannet/msg.h"
#include "gannet/sim.h"
#include "unit.h"

#define MORE 24u /* bytes that a newer header has */

struct made {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_cq *cq;
	struct gn_chan *chan;
	struct gn_qp *rc, *ud;
	struct gn_rpc_server *rpc_server;
	struct gn_rpc_client *rpc;
	struct gn_kv_server *kv_server;
	struct gn_kv_client *kv;
	struct gn_kv_store *store;
	struct gn_msg_responder *responder;
	struct gn_msg_requester *requester;
	struct gn_sim *sim;
	char addr[64], kv_addr[64], msg_addr[64], new_addr[64];
};

static int answer(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	(void)arg, (void)request, (void)len, (void)value, (void)max;
	return 0;
}

/* ---- a call for each struct: what it returns, with what it made destroyed again ---- */

static int with_cq_opts(struct made *m, void *opts)
{
	struct gn_cq_opts *o = opts;
	struct gn_cq *cq = NULL;
	int rc;

	o->depth = 8;
	rc = gn_cq_create(m->ctx, o, &cq);
	gn_cq_destroy(cq);
	return rc;
}

static int with_qp_opts(struct made *m, void *opts)
{
	struct gn_qp_opts *o = opts;
	struct gn_qp *qp = NULL;
	int rc;

	o->type = GN_QP_UD;
	o->send_cq = o->recv_cq = m->cq;
	rc = gn_qp_create(m->pd, o, &qp);
	gn_qp_destroy(qp);
	return rc;
}

static int with_conn_opts(struct made *m, void *opts)
{
	const struct gn_qp_opts qp_opts = {.size = sizeof(qp_opts),
					   .type = GN_QP_RC,
					   .send_cq = m->cq,
					   .recv_cq = m->cq,
					   .chan = m->chan};
	struct gn_qp *qp;
	int rc;

	assert_int_equal(gn_qp_create(m->pd, &qp_opts, &qp), 0);
	rc = gn_connect_wait(qp, "shm:test-sized-nobody", opts, NULL);
	gn_qp_destroy(qp);
	return rc == -ECONNREFUSED ? 0 : rc;
}

static int with_rpc_server_opts(struct made *m, void *opts)
{
	struct gn_rpc_server *server = NULL;
	const int rc = gn_rpc_server_create(m->fabric, m->new_addr, opts, &server);

	gn_rpc_server_destroy(server);
	return rc;
}

static int with_rpc_client_opts(struct made *m, void *opts)
{
	struct gn_rpc_client *client = NULL;
	const int rc = gn_rpc_client_open(m->fabric, m->addr, opts, &client);

	gn_rpc_client_close(client);
	return rc;
}

static int with_kv_store_opts(struct made *m, void *opts)
{
	struct gn_kv_store *store = NULL;
	const int rc = gn_kv_store_create(opts, &store);

	(void)m;
	gn_kv_store_destroy(store);
	return rc;
}

static int with_kv_server_opts(struct made *m, void *opts)
{
	struct gn_kv_server *server = NULL;
	const int rc = gn_kv_server_create(m->fabric, m->new_addr, opts, &server);

	gn_kv_server_destroy(server);
	return rc;
}

static int with_kv_client_opts(struct made *m, void *opts)
{
	struct gn_kv_client *client = NULL;
	const int rc = gn_kv_client_open(m->fabric, m->kv_addr, opts, &client);

	if (client)
		gn_kv_client_close(client);
	return rc;
}

static int with_msg_responder_opts(struct made *m, void *opts)
{
	struct gn_msg_responder_opts *o = opts;
	struct gn_msg_responder *responder = NULL;
	int rc;

	o->answer = answer;
	rc = gn_msg_responder_create(m->fabric, m->new_addr, o, &responder);
	gn_msg_responder_destroy(responder);
	return rc;
}

static int with_msg_requester_opts(struct made *m, void *opts)
{
	struct gn_msg_requester *requester = NULL;
	const int rc = gn_msg_requester_create(m->fabric, opts, &requester);

	gn_msg_requester_destroy(requester);
	return rc;
}

static int with_sim_opts(struct made *m, void *opts)
{
	struct gn_sim_opts *o = opts;
	struct gn_sim *sim = NULL;
	int rc;

	(void)m;
	o->nodes = 1;
	rc = gn_sim_create(o, &sim);
	gn_sim_destroy(sim);
	return rc;
}

#define OUT(name, call)                                  \
	static int out_##name(struct made *m, void *out) \
	{                                                \
		return call;                             \
	}

OUT(attr, gn_fabric_query(m->fabric, out))
OUT(qp_attr, gn_qp_query(m->ud, out))
OUT(qp_counters, gn_qp_counters(m->ud, out))
OUT(counters, gn_fabric_counters(m->fabric, out))
OUT(rpc_limits, gn_rpc_client_limits(m->rpc, out))
OUT(rpc_counters, gn_rpc_client_counters(m->rpc, out))
OUT(rpc_server_counters, gn_rpc_server_counters(m->rpc_server, out))
OUT(rpc_choice, gn_rpc_client_choice(m->rpc, 1, out))
OUT(kv_limits, gn_kv_client_limits(m->kv, out))
OUT(kv_counters, gn_kv_client_counters(m->kv, out))
OUT(kv_stats, gn_kv_client_stats(m->kv, GN_KV_ALL, out, GN_FOREVER))
OUT(kv_store_stats, gn_kv_store_stats(m->store, out))
OUT(msg_responder_stats, gn_msg_responder_stats(m->responder, out))
OUT(msg_requester_stats, gn_msg_requester_stats(m->requester, out))
OUT(sim_stats, gn_sim_node_stats(m->sim, 0, out))

static const struct {
	const char *name;
	size_t size;
	int (*call)(struct made *m, void *sized);
	bool out;
} structs[] = {
	{"gn_cq_opts", sizeof(struct gn_cq_opts), with_cq_opts, false},
	{"gn_qp_opts", sizeof(struct gn_qp_opts), with_qp_opts, false},
	{"gn_conn_opts", sizeof(struct gn_conn_opts), with_conn_opts, false},
	{"gn_rpc_server_opts", sizeof(struct gn_rpc_server_opts), with_rpc_server_opts, false},
	{"gn_rpc_client_opts", sizeof(struct gn_rpc_client_opts), with_rpc_client_opts, false},
	{"gn_kv_store_opts", sizeof(struct gn_kv_store_opts), with_kv_store_opts, false},
	{"gn_kv_server_opts", sizeof(struct gn_kv_server_opts), with_kv_server_opts, false},
	{"gn_kv_client_opts", sizeof(struct gn_kv_client_opts), with_kv_client_opts, false},
	{"gn_msg_responder_opts", sizeof(struct gn_msg_responder_opts), with_msg_responder_opts,
	 false},
	{"gn_msg_requester_opts", sizeof(struct gn_msg_requester_opts), with_msg_requester_opts,
	 false},
	{"gn_sim_opts", sizeof(struct gn_sim_opts), with_sim_opts, false},
	{"gn_attr", sizeof(struct gn_attr), out_attr, true},
	{"gn_qp_attr", sizeof(struct gn_qp_attr), out_qp_attr, true},
	{"gn_counters", sizeof(struct gn_counters), out_qp_counters, true},
	{"gn_counters", sizeof(struct gn_counters), out_counters, true},
	{"gn_rpc_limits", sizeof(struct gn_rpc_limits), out_rpc_limits, true},
	{"gn_rpc_counters", sizeof(struct gn_rpc_counters), out_rpc_counters, true},
	{"gn_rpc_counters", sizeof(struct gn_rpc_counters), out_rpc_server_counters, true},
	{"gn_rpc_choice", sizeof(struct gn_rpc_choice), out_rpc_choice, true},
	{"gn_kv_limits", sizeof(struct gn_kv_limits), out_kv_limits, true},
	{"gn_kv_counters", sizeof(struct gn_kv_counters), out_kv_counters, true},
	{"gn_kv_stats", sizeof(struct gn_kv_stats), out_kv_stats, true},
	{"gn_kv_stats", sizeof(struct gn_kv_stats), out_kv_store_stats, true},
	{"gn_msg_stats", sizeof(struct gn_msg_stats), out_msg_responder_stats, true},
	{"gn_msg_stats", sizeof(struct gn_msg_stats), out_msg_requester_stats, true},
	{"gn_sim_stats", sizeof(struct gn_sim_stats), out_sim_stats, true},
};

/* ---- what all of them do ---- */

static union {
	size_t size;
	unsigned char bytes[4096];
} sized;

static int call(struct made *m, unsigned i, size_t size, unsigned char fill)
{
	memset(&sized, fill, sizeof(sized));
	memset(sized.bytes, 0, structs[i].size);
	sized.size = size;
	return structs[i].call(m, &sized);
}

static void assert_error(unsigned i, size_t size)
{
	char number[32];

	snprintf(number, sizeof(number), "%zu", size);
	if (!strstr(gn_error(), structs[i].name) || !strstr(gn_error(), number))
		fail_msg("%s of %zu bytes: gn_error() is '%s'", structs[i].name, size, gn_error());
}

static void test_all(struct made *m, unsigned i)
{
	const size_t known = structs[i].size;

	assert_true(known + MORE < sizeof(sized));
	assert_int_equal(call(m, i, 0, 0), -EINVAL);
	assert_error(i, known);
	assert_int_equal(call(m, i, SIZE_MAX - 7, 0), -E2BIG);
	assert_error(i, SIZE_MAX - 7);
	assert_int_equal(call(m, i, known - 1, 0), -EINVAL);
	assert_error(i, known - 1);
	if (call(m, i, known, 0xa5))
		fail_msg("%s: %s", structs[i].name, gn_error());
	for (size_t at = known; at < sizeof(sized); at++)
		assert_int_equal(sized.bytes[at], 0xa5);
	if (structs[i].out) {
		assert_int_equal(call(m, i, known + MORE, 0xa5), 0);
		assert_int_equal(sized.size, known + MORE);
		for (size_t at = known; at < sizeof(sized); at++)
			assert_int_equal(sized.bytes[at], at < known + MORE ? 0 : 0xa5);
		return;
	}
	assert_int_equal(call(m, i, known + MORE, 0), 0);
	assert_int_equal(call(m, i, known + MORE, 0xa5), -E2BIG);
	assert_error(i, known + MORE);
}

static void make_fabric(struct made *m)
{
	const struct gn_cq_opts cq_opts = {.size = sizeof(cq_opts), .depth = 64};
	struct gn_qp_opts qp_opts = {.size = sizeof(qp_opts), .type = GN_QP_UD};

	assert_int_equal(gn_fabric_open("shm", &m->fabric), 0);
	assert_int_equal(gn_ctx_create(m->fabric, &m->ctx), 0);
	assert_int_equal(gn_pd_create(m->ctx, &m->pd), 0);
	assert_int_equal(gn_chan_create(m->ctx, &m->chan), 0);
	assert_int_equal(gn_cq_create(m->ctx, &cq_opts, &m->cq), 0);
	qp_opts.send_cq = qp_opts.recv_cq = m->cq;
	assert_int_equal(gn_qp_create(m->pd, &qp_opts, &m->ud), 0);
}

static void make_layers(struct made *m)
{
	const struct gn_msg_responder_opts msg_opts = {.size = sizeof(msg_opts), .answer = answer};
	const struct gn_msg_requester_opts req_opts = {.size = sizeof(req_opts)};
	const struct gn_sim_opts sim_opts = {.size = sizeof(sim_opts), .nodes = 1};

	assert_int_equal(gn_rpc_server_create(m->fabric, m->addr, NULL, &m->rpc_server), 0);
	assert_int_equal(gn_rpc_server_start(m->rpc_server), 0);
	assert_int_equal(gn_rpc_client_open(m->fabric, m->addr, NULL, &m->rpc), 0);
	assert_int_equal(gn_kv_server_create(m->fabric, m->kv_addr, NULL, &m->kv_server), 0);
	assert_int_equal(gn_kv_server_start(m->kv_server), 0);
	assert_int_equal(gn_kv_client_open(m->fabric, m->kv_addr, NULL, &m->kv), 0);
	assert_int_equal(gn_kv_store_create(NULL, &m->store), 0);
	assert_int_equal(gn_msg_responder_create(m->fabric, m->msg_addr, &msg_opts, &m->responder),
			 0);
	assert_int_equal(gn_msg_requester_create(m->fabric, &req_opts, &m->requester), 0);
	assert_int_equal(gn_sim_create(&sim_opts, &m->sim), 0);
}

static void unmake(struct made *m)
{
	gn_sim_destroy(m->sim);
	gn_msg_requester_destroy(m->requester);
	gn_msg_responder_destroy(m->responder);
	gn_kv_store_destroy(m->store);
	assert_int_equal(gn_kv_client_close(m->kv), 0);
	gn_kv_server_destroy(m->kv_server);
	assert_int_equal(gn_rpc_client_close(m->rpc), 0);
	gn_rpc_server_destroy(m->rpc_server);
	assert_int_equal(gn_qp_destroy(m->ud), 0);
	assert_int_equal(gn_cq_destroy(m->cq), 0);
	assert_int_equal(gn_chan_destroy(m->chan), 0);
	assert_int_equal(gn_pd_destroy(m->pd), 0);
	assert_int_equal(gn_ctx_destroy(m->ctx), 0);
	assert_int_equal(gn_fabric_close(m->fabric), 0);
}

static void test_sizes(void **state)
{
	const unsigned long long own = gn_random();
	struct made m = {.fabric = NULL};

	(void)state;
	snprintf(m.addr, sizeof(m.addr), "shm:test-sized-r%llx", own);
	snprintf(m.kv_addr, sizeof(m.kv_addr), "shm:test-sized-k%llx", own);
	snprintf(m.msg_addr, sizeof(m.msg_addr), "shm:test-sized-m%llx", own);
	snprintf(m.new_addr, sizeof(m.new_addr), "shm:test-sized-n%llx", own);
	make_fabric(&m);
	make_layers(&m);
	for (unsigned i = 0; i < sizeof(structs) / sizeof(structs[0]); i++)
		test_all(&m, i);
	unmake(&m);
}

/* A tuning is both: read from a file, written to one, and an option. */
static void test_tuning(void **state)
{
	struct gn_rpc_tuning tuning = {.size = 0};
	char path[] = "/tmp/gannet-test-sized-XXXXXX";
	const int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(gn_rpc_tuning_write(path, &tuning), -EINVAL);
	assert_non_null(strstr(gn_error(), "gn_rpc_tuning"));
	tuning = (struct gn_rpc_tuning){.size = sizeof(tuning),
					.retries = 3,
					.switch_us = 7,
					.n_sizes = 1,
					.n_retries = 1,
					.bytes = {64},
					.rate = {{1}}};
	assert_int_equal(gn_rpc_tuning_write(path, &tuning), 0);
	tuning = (struct gn_rpc_tuning){.size = 0};
	assert_int_equal(gn_rpc_tuning_read(path, &tuning), -EINVAL);
	tuning.size = sizeof(tuning);
	assert_int_equal(gn_rpc_tuning_read(path, &tuning), 0);
	assert_int_equal(tuning.retries, 3);
	remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_tuning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
