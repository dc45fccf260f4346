/* SPDX-License-Identifier: MIT */
/*
 * Environments ("worlds") for a donor: shared memory, with the donor's threads in this process, and
 * simulated cards that give every ordering guarantee or none. A test is a program for a client, which
 * speaks the control calls and attaches data connections by itself: see src/donor/wire.h.
 */
#ifndef GN_TESTS_DONOR_WORLD_H
#define GN_TESTS_DONOR_WORLD_H

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "../raw_endpoint.h"
#include "donor/wire.h"
#include "gannet/donor.h"
#include "gannet/rpc.h"
#include "gannet/sim.h"
#include "unit.h"
#include "unit_sim_run.h"
#include "unit_world.h"

#define DONOR_SIM_ADDR "sim:n0:7000"
#define SLAB	       (64u << 10)
#define LONG_US	       10000000u

struct donor_world {
	struct gn_donor_server_opts opts;
	char addr[64];
	struct gn_fabric *fabric; /* the donor's */
	struct gn_donor_server *server;
	int (*program)(struct donor_world *w, struct gn_fabric *fabric);
	bool simulated;
	const char *faults; /* of the simulator, or NULL */
	unsigned running;   /* atomic */
	uint64_t available; /* atomic; what opts.available returns, with this world as its arg */
};

static inline uint64_t world_available(void *arg)
{
	return __atomic_load_n(&((struct donor_world *)arg)->available, __ATOMIC_RELAXED);
}

static inline int donor_up(struct donor_world *w)
{
	w->opts.size = sizeof(w->opts);
	if (!w->opts.slab)
		w->opts.slab = SLAB;
	if (!w->opts.memory)
		w->opts.memory = 8 * w->opts.slab;
	EXPECT(gn_donor_server_create(w->fabric, w->addr, &w->opts, &w->server) == 0);
	EXPECT(gn_donor_server_start(w->server) == 0);
	return 0;
}

static inline int donor_sim_server(struct gn_env *env, int argc, char **argv)
{
	struct donor_world *w = env->arg;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &w->fabric) == 0);
	EXPECT(donor_up(w) == 0);
	while (__atomic_load_n(&w->running, __ATOMIC_ACQUIRE))
		gn_sleep_us(100);
	gn_donor_server_destroy(w->server);
	EXPECT(gn_fabric_close(w->fabric) == 0);
	return 0;
}

static inline int donor_sim_client(struct gn_env *env, int argc, char **argv)
{
	struct donor_world *w = env->arg;
	struct gn_fabric *fabric;
	int line;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	gn_sleep_us(1000); /* the donor starts */
	line = w->program(w, fabric);
	__atomic_store_n(&w->running, 0, __ATOMIC_RELEASE);
	EXPECT(gn_fabric_close(fabric) == 0);
	return line;
}

/* In this process, the donor and the client with a fabric each. */
static inline int donor_run_here(struct donor_world *w)
{
	struct gn_fabric *fabric;
	static unsigned n;
	int line;

	snprintf(w->addr, sizeof(w->addr), "shm:donor-%d-%u", (int)getpid(), n++);
	EXPECT(gn_fabric_open("shm", &w->fabric) == 0);
	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(donor_up(w) == 0);
	line = w->program(w, fabric);
	gn_donor_server_destroy(w->server);
	EXPECT(gn_fabric_close(w->fabric) == 0);
	EXPECT(gn_fabric_close(fabric) == 0);
	return line;
}

static inline void donor_run_simulated(struct donor_world *w, const char *profile,
				       uint64_t caps_off)
{
	w->simulated = true;
	w->running = 1;
	strcpy(w->addr, DONOR_SIM_ADDR);
	sim_run(&(struct sim_run){.profile = profile,
				  .caps_off = caps_off,
				  .seed = unit_seed(),
				  .limit_ns = 300000000000u,
				  .faults = w->faults,
				  .server = donor_sim_server,
				  .client = donor_sim_client,
				  .clients = 1,
				  .arg = w});
	w->simulated = false;
}

static inline void donor_run(const struct gn_donor_server_opts *opts,
			     int (*program)(struct donor_world *w, struct gn_fabric *fabric))
{
	struct donor_world w = {.program = program, .available = UINT64_MAX};

	if (opts)
		w.opts = *opts;
	if (w.opts.reserve) {
		w.opts.available = world_available;
		w.opts.available_arg = &w;
	}
	assert_int_equal(donor_run_here(&w), 0);
	if (THREADS_WATCHED)
		return;
	w.available = UINT64_MAX;
	donor_run_simulated(&w, "ideal", 0);
	w.available = UINT64_MAX;
	donor_run_simulated(&w, "cx3-roce", SIM_CAPS);
}

/* ---- control calls ---- */

struct donor_raw {
	struct gn_fabric *fabric;
	struct gn_rpc_client *rpc;
	struct donor_hello_result hello;
	char data_addr[DONOR_ADDR_MAX];
};

static inline unsigned raw_call(const struct donor_raw *raw, unsigned method, const void *request,
				uint32_t len, void *result, uint32_t room, uint32_t *got)
{
	unsigned status = GN_RPC_FAILED;

	if (gn_rpc_call(raw->rpc, method, request, len, result, room, got, gn_deadline_us(LONG_US),
			&status))
		return UINT32_MAX;
	return status;
}

static inline unsigned raw_hello(struct donor_raw *raw, const char *owner, const uint8_t *resume,
				 uint64_t incarnation)
{
	struct donor_hello hello = {
		.version = DONOR_VERSION, .resume = resume != NULL, .incarnation = incarnation};

	strcpy(hello.owner, owner);
	if (resume)
		memcpy(hello.token, resume, sizeof(hello.token));
	return raw_call(raw, DONOR_HELLO, &hello, sizeof(hello), &raw->hello, sizeof(raw->hello),
			NULL);
}

static inline int raw_connect(struct donor_world *w, struct gn_fabric *fabric,
			      struct donor_raw *raw)
{
	*raw = (struct donor_raw){.fabric = fabric};
	EXPECT(gn_rpc_client_open(fabric, w->addr, NULL, &raw->rpc) == 0);
	return 0;
}

static inline int raw_open(struct donor_world *w, struct gn_fabric *fabric, struct donor_raw *raw)
{
	EXPECT(raw_connect(w, fabric, raw) == 0);
	EXPECT(raw_hello(raw, "me", NULL, 0) == GN_RPC_OK);
	EXPECT(raw->hello.version == DONOR_VERSION && raw->hello.incarnation);
	EXPECT(donor_data_addr(w->addr, raw->hello.data, raw->data_addr) == 0);
	return 0;
}

static inline void raw_close(struct donor_raw *raw)
{
	gn_rpc_client_close(raw->rpc);
	raw->rpc = NULL;
}

static inline unsigned raw_grant(const struct donor_raw *raw, struct donor_grant_result *out)
{
	return raw_call(raw, DONOR_GRANT, NULL, 0, out, sizeof(*out), NULL);
}

static inline unsigned raw_release(const struct donor_raw *raw, uint64_t slab)
{
	const struct donor_slab_id id = {slab};

	return raw_call(raw, DONOR_RELEASE, &id, sizeof(id), NULL, 0, NULL);
}

static inline unsigned raw_share(const struct donor_raw *raw, uint64_t slab, uint64_t offset,
				 uint64_t length, uint32_t rights, struct donor_token *out)
{
	const struct donor_share_request share = {slab, offset, length, rights, 0};

	return raw_call(raw, DONOR_SHARE, &share, sizeof(share), out, sizeof(*out), NULL);
}

static inline unsigned raw_revoke(const struct donor_raw *raw, const struct donor_token *token)
{
	return raw_call(raw, DONOR_REVOKE, token, sizeof(*token), NULL, 0, NULL);
}

static inline int raw_stats(const struct donor_raw *raw, struct gn_donor_stats *out)
{
	uint64_t words[DONOR_STATS_WORDS];

	EXPECT(raw_call(raw, DONOR_STATS, NULL, 0, words, sizeof(words), NULL) == GN_RPC_OK);
	donor_stats_read(words, out);
	return 0;
}

/* Waits until a member of the statistics has a value. */
static inline int raw_await(const struct donor_raw *raw, size_t member, uint64_t value)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_donor_stats stats;
	uint64_t now;

	do {
		EXPECT(gn_now_ns() < until_ns);
		gn_sleep_us(500);
		EXPECT(raw_stats(raw, &stats) == 0);
		memcpy(&now, (char *)&stats + member, sizeof(now));
	} while (now != value);
	return 0;
}
#define RAW_AWAIT(raw, member, value) \
	EXPECT(raw_await(raw, offsetof(struct gn_donor_stats, member), value) == 0)

/* ---- data connections ---- */

static inline struct io_attach raw_attach_request(const struct donor_raw *raw, uint32_t channel,
						  uint32_t generation)
{
	struct io_attach a = {.magic = IO_ATTACH_MAGIC,
			      .version = IO_ATTACH_VERSION,
			      .kind = IO_ATTACH_SESSION,
			      .incarnation = raw->hello.incarnation,
			      .channel = channel,
			      .generation = generation};

	memcpy(a.token, raw->hello.token, sizeof(a.token));
	return a;
}

static inline struct io_attach raw_attach_share(const struct donor_raw *raw,
						const struct donor_token *token, uint32_t channel,
						uint32_t generation)
{
	struct io_attach a = raw_attach_request(raw, channel, generation);

	a.kind = IO_ATTACH_SHARE;
	memcpy(a.token, token->token, sizeof(a.token));
	return a;
}

/*
 * Connects an endpoint with this private data: the reply's status, or -errno. Call raw_endpoint_end()
 * afterwards in any case.
 */
static inline int raw_attach_bytes(const struct donor_raw *raw, const void *data, uint32_t len,
				   struct raw_endpoint *e, struct io_attach_reply *reply)
{
	const struct raw_endpoint_opts opts = {.bytes = SLAB, .cq_depth = 64};
	struct gn_qp_opts qp = {.size = sizeof(qp), .type = GN_QP_RC, .max_send_wr = 16};
	const struct gn_conn_opts conn = {
		.size = sizeof(conn), .private_data = data, .private_len = len};
	struct gn_event event;
	int rc = raw_endpoint_make(e, raw->fabric, &opts, &qp);

	if (rc)
		return rc;
	rc = gn_connect_wait(e->qp, raw->data_addr, &conn, &event);
	if (rc && event.type != GN_EVENT_REJECTED)
		return rc;
	if (event.private_len < sizeof(*reply))
		return -EPROTO;
	memcpy(reply, event.private_data, sizeof(*reply));
	return reply->magic == IO_ATTACH_MAGIC && !rc == (reply->status == IO_ATTACH_OK) ?
		       reply->status :
		       -EPROTO;
}

static inline int raw_attach(const struct donor_raw *raw, const struct io_attach *a,
			     struct raw_endpoint *e, struct io_attach_reply *reply)
{
	int rc;

	for (;;) { /* the old qp may take a moment to be destroyed */
		rc = raw_attach_bytes(raw, a, sizeof(*a), e, reply);
		if (rc != IO_ATTACH_BUSY)
			return rc;
		raw_endpoint_reset(e);
		gn_sleep_us(200);
	}
}

/* One READ or WRITE of the endpoint's first bytes: its status, or -errno. */
static inline int raw_access(struct raw_endpoint *e, enum gn_op op,
			     const struct donor_remote *remote, uint64_t offset, uint32_t len)
{
	const struct gn_remote to = {
		.offset = remote->offset, .length = remote->length, .key = remote->key};
	const struct gn_sge sge = {gn_mr_addr(e->mr), len, gn_mr_lkey(e->mr)};
	struct gn_wr wr;
	struct gn_wc wc;
	int rc;

	gn_wr_rdma(&wr, op, 1, &sge, &to, offset, GN_SIGNALED);
	rc = gn_post_send(e->qp, &wr, NULL);
	if (rc)
		return rc;
	rc = gn_cq_wait(e->cq, &wc, 1, gn_deadline_us(LONG_US), "an access");
	return rc < 0 ? rc : (int)wc.status;
}

static inline int raw_write_seed(struct raw_endpoint *e, const struct donor_remote *remote,
				 uint64_t offset, uint32_t len, uint32_t seed)
{
	fill(gn_mr_addr(e->mr), len, seed);
	return raw_access(e, GN_OP_WRITE, remote, offset, len);
}

static inline bool raw_has_seed(struct raw_endpoint *e, const struct donor_remote *remote,
				uint64_t offset, uint32_t len, uint32_t seed)
{
	memset(gn_mr_addr(e->mr), 0xee, len);
	return raw_access(e, GN_OP_READ, remote, offset, len) == GN_WC_OK &&
	       is_filled(gn_mr_addr(e->mr), len, seed);
}

static inline bool raw_is_zero(struct raw_endpoint *e, const struct donor_remote *remote,
			       uint32_t len)
{
	const uint8_t *bytes = gn_mr_addr(e->mr);

	memset(gn_mr_addr(e->mr), 0xee, len);
	if (raw_access(e, GN_OP_READ, remote, 0, len) != GN_WC_OK)
		return false;
	for (uint32_t i = 0; i < len; i++)
		if (bytes[i])
			return false;
	return true;
}

#endif
