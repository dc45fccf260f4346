/* SPDX-License-Identifier: MIT */
/*
 * A victim with one endpoint, an honest node that calls it all the time, and a peer written against
 * the wire: it shakes hands with any hello and then sends any datagrams. Over shared memory, on
 * simulated cards, and on Soft-RoCE with GANNET_DGRAM_ADDR=verbs:HOST:PORT.
 */
#ifndef GN_TESTS_HOSTILE_DGRAM_RAW_H
#define GN_TESTS_HOSTILE_DGRAM_RAW_H

#include <errno.h>
#include <malloc.h>

#include "../raw_endpoint.h"
#include "dgram/wire.h"
#include "fuzz.h"
#include "gannet/sim.h"
#include "unit_world.h"

#define RAW_BYTES      (128u << 10)
#define RAW_WRS	       64u
#define RAW_QKEY       77u
#define RAW_OUT	       8192u /* where datagrams are sent from; hellos below */
#define RAW_IN	       (64u << 10)
#define PACE_US	       10u
#define SERVE_US       1000u
#define DGRAM_LIMIT_NS 120000000000ull

/* Methods of the victim. */
enum method {
	ECHO = 1,
	BLOB, /* as many bytes as the request says */
	ECHO_IN_WORKER,
};

struct world {
	/* what a test chooses */
	int (*attack)(struct world *w, struct gn_fabric *fabric);
	struct gn_dgram_opts opts; /* of the victim */
	uint64_t stall_ns;	   /* longest honest call; 0: any */
	/* where it runs */
	const char *addr, *where;
	bool simulated;
	/* what happens; atomic */
	unsigned step; /* 1: the honest node has been answered, 2: the attack is over, 3: all is */
	bool up;
	uint32_t executed, calls;
	uint64_t worst_ns;
	/* the victim's, for its thread and after its end */
	struct gn_dgram_stats stats;
	struct gn_dgram_node_stats node_stats;
	uint64_t most_kept, most_reassembly, most_peers, heap_before, most_heap;
	int failed[3]; /* victim, honest, attacker */
};

#define LOAD(x)	     __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, to) __atomic_store_n(&(x), to, __ATOMIC_RELEASE)

static inline void world_await(struct world *w, unsigned step)
{
	while (LOAD(w->step) < step)
		gn_sleep_us(50);
}

/* ---- the victim ---- */

static inline unsigned victim_echo(void *arg, struct gn_dgram_request *request)
{
	struct world *w = arg;
	void *room = gn_dgram_result(request, request->len);

	__atomic_fetch_add(&w->executed, 1, __ATOMIC_RELAXED);
	if (!room)
		return GN_RPC_BUSY;
	memcpy(room, request->data, request->len);
	request->result_len = request->len;
	return GN_RPC_OK;
}

static inline unsigned victim_blob(void *arg, struct gn_dgram_request *request)
{
	struct world *w = arg;
	uint32_t bytes = 0;
	void *room;

	__atomic_fetch_add(&w->executed, 1, __ATOMIC_RELAXED);
	memcpy(&bytes, request->data, request->len < 4 ? request->len : 4);
	room = gn_dgram_result(request, bytes);
	if (!room)
		return bytes > GN_DGRAM_BYTES_MAX ? GN_RPC_DENIED : GN_RPC_BUSY;
	fill(room, bytes, bytes);
	request->result_len = bytes;
	return GN_RPC_OK;
}

static inline uint64_t heap_bytes(void)
{
	const struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static inline void victim_look(struct world *w, struct gn_dgram_endpoint *endpoint)
{
	const uint64_t heap = heap_bytes();

	w->stats.size = sizeof(w->stats);
	gn_dgram_endpoint_stats(endpoint, &w->stats);
	if (w->stats.kept_bytes > w->most_kept)
		w->most_kept = w->stats.kept_bytes;
	if (w->stats.reassembly_bytes > w->most_reassembly)
		w->most_reassembly = w->stats.reassembly_bytes;
	if (w->stats.peers > w->most_peers)
		w->most_peers = w->stats.peers;
	if (heap > w->most_heap)
		w->most_heap = heap;
}

static inline int victim_serve(struct world *w, struct gn_fabric *fabric)
{
	struct gn_dgram_opts opts = w->opts;
	struct gn_dgram_endpoint *endpoint;
	struct gn_dgram_node *node;
	int rc;

	opts.size = sizeof(opts);
	EXPECT(gn_dgram_node_create(fabric, w->addr, &opts, &node) == 0);
	EXPECT(gn_dgram_handle(node, ECHO, victim_echo, NULL, w, 0) == 0);
	EXPECT(gn_dgram_handle(node, BLOB, victim_blob, NULL, w, 0) == 0);
	EXPECT(gn_dgram_handle(node, ECHO_IN_WORKER, victim_echo, NULL, w, GN_DGRAM_IN_WORKER) ==
	       0);
	EXPECT(gn_dgram_endpoint_create(node, 0, &endpoint) == 0);
	w->heap_before = heap_bytes();
	STORE(w->up, true);
	while (LOAD(w->step) < 3) {
		rc = gn_dgram_wait(endpoint, gn_deadline_us(SERVE_US));
		EXPECT(rc >= 0 || rc == -ETIMEDOUT);
		victim_look(w, endpoint);
	}
	w->node_stats.size = sizeof(w->node_stats);
	EXPECT(gn_dgram_node_stats_read(node, &w->node_stats) == 0);
	EXPECT(gn_dgram_endpoint_destroy(endpoint) == 0);
	EXPECT(gn_dgram_node_destroy(node) == 0);
	return 0;
}

/* ---- the honest node ---- */

struct honest {
	struct gn_dgram_node *node;
	struct gn_dgram_endpoint *endpoint;
	struct gn_dgram_peer *peer;
};

static inline int honest_open(struct honest *h, struct world *w, struct gn_fabric *fabric)
{
	EXPECT(gn_dgram_node_create(fabric, NULL, NULL, &h->node) == 0);
	EXPECT(gn_dgram_endpoint_create(h->node, 0, &h->endpoint) == 0);
	EXPECT(gn_dgram_peer_open(h->endpoint, w->addr, 0, &h->peer) == 0);
	return 0;
}

static inline int honest_close(struct honest *h)
{
	EXPECT(gn_dgram_endpoint_destroy(h->endpoint) == 0);
	EXPECT(gn_dgram_node_destroy(h->node) == 0);
	return 0;
}

/* A call that must be answered. */
static inline int honest_call(struct honest *h, struct world *w, uint32_t number)
{
	const uint32_t bytes[4] = {number, ~number, number * 7, 1};
	uint32_t answer[4] = {0};
	struct gn_dgram_op op = {.peer = h->peer,
				 .method = number % 4 ? ECHO : ECHO_IN_WORKER,
				 .request = bytes,
				 .request_len = sizeof(bytes),
				 .result = answer,
				 .result_room = sizeof(answer),
				 .deadline_ns = gn_deadline_us(UNIT_PATIENCE_US)};
	const uint64_t since_ns = gn_now_ns();
	uint64_t ns;

	EXPECT(gn_dgram_call(&op) == 0);
	if (op.status != GN_RPC_OK)
		print_error("honest call %u: %s\n", number, gn_rpc_status_str(op.status));
	EXPECT(op.status == GN_RPC_OK && op.result_len == sizeof(bytes));
	EXPECT(!memcmp(answer, bytes, sizeof(bytes)));
	ns = gn_now_ns() - since_ns;
	/* The first call makes the epoch. */
	if (number && ns > LOAD(w->worst_ns))
		STORE(w->worst_ns, ns);
	return 0;
}

static inline int honest_run(struct world *w, struct gn_fabric *fabric)
{
	struct honest h;
	uint32_t calls = 0;

	EXPECT(honest_open(&h, w, fabric) == 0);
	EXPECT(honest_call(&h, w, calls++) == 0);
	STORE(w->step, 1);
	while (LOAD(w->step) < 2 || calls < 10) {
		EXPECT(honest_call(&h, w, calls++) == 0);
		if (w->simulated)
			gn_sleep_us(PACE_US);
	}
	STORE(w->calls, calls);
	EXPECT(honest_close(&h) == 0);
	return 0;
}

/* ---- the peer written against the wire ---- */

struct raw {
	struct raw_endpoint ep;
	struct gn_qp *ud;
	struct gn_ah *ah;
	struct dgram_hello hello, reply;
	struct dgram_head head; /* of the next datagram */
	uint64_t epoch;
	uint32_t mtu;
};

static inline int raw_make(struct raw *raw, struct gn_fabric *fabric)
{
	const struct raw_endpoint_opts own = {
		.bytes = RAW_BYTES, .cq_depth = 4 * RAW_WRS, .notify = true};
	struct gn_attr attr = {.size = sizeof(attr)};
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = GN_QP_RC,
				  .max_send_wr = RAW_WRS,
				  .max_recv_wr = RAW_WRS,
				  .qkey = RAW_QKEY};

	*raw = (struct raw){.ud = NULL};
	EXPECT(gn_fabric_query(fabric, &attr) == 0);
	raw->mtu = attr.ud_mtu < 4096 ? attr.ud_mtu : 4096;
	EXPECT(raw_endpoint_make(&raw->ep, fabric, &own, &opts) == 0);
	opts.type = GN_QP_UD;
	EXPECT(gn_qp_create(raw->ep.pd, &opts, &raw->ud) == 0);
	raw->hello = (struct dgram_hello){.magic = DGRAM_MAGIC,
					  .kind = DGRAM_HELLO_NEW,
					  .threads = 1,
					  .incarnation = gn_random() | 1,
					  .random = gn_random(),
					  .attempt = 1,
					  .datagram_bytes = 4096};
	EXPECT(gn_qp_ud_addr(raw->ud, &raw->hello.thread[0]) == 0);
	return 0;
}

static inline void raw_free(struct raw *raw)
{
	gn_ah_destroy(raw->ah);
	gn_qp_destroy(raw->ud);
	raw_endpoint_end(&raw->ep);
}

static inline uint8_t *raw_at(const struct raw *raw, uint32_t offset)
{
	return (uint8_t *)gn_mem_addr(raw->ep.mem) + offset;
}

/* Waits for a completion of one of the two qps; others are ignored. */
static inline int raw_await(struct raw *raw, const struct gn_qp *qp, enum gn_op op,
			    struct gn_wc *wc)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	int n;

	do
		n = gn_cq_wait(raw->ep.cq, wc, 1, until_ns, "a completion");
	while (n == 1 && (wc->qp != qp || wc->op != op) && wc->status == GN_WC_OK);
	EXPECT(n == 1 && wc->status == GN_WC_OK);
	return 0;
}

/* Connects and says the hello's first len bytes. */
static inline int raw_say_hello(struct raw *raw, const char *addr, uint32_t len)
{
	const struct gn_conn_opts opts = {.size = sizeof(opts), .timeout_us = UNIT_PATIENCE_US};
	const uint32_t lkey = gn_mr_lkey(raw->ep.mr);
	const struct gn_sge in = {raw_at(raw, RAW_IN), sizeof(raw->reply), lkey};
	const struct gn_sge out = {raw_at(raw, 0), len, lkey};
	const struct gn_recv_wr recv = {.sge = &in, .n_sge = 1};
	struct gn_wr wr;

	EXPECT(gn_post_recv(raw->ep.qp, &recv, NULL) == 0);
	EXPECT(gn_connect_wait(raw->ep.qp, addr, &opts, NULL) == 0);
	memcpy(raw_at(raw, 0), &raw->hello, sizeof(raw->hello));
	gn_wr_send(&wr, 0, &out, GN_SIGNALED);
	EXPECT(gn_post_send(raw->ep.qp, &wr, NULL) == 0);
	return 0;
}

/* … and waits for the reply. */
static inline int raw_greet(struct raw *raw, const char *addr, uint32_t len)
{
	struct gn_wc wc;

	EXPECT(raw_say_hello(raw, addr, len) == 0);
	EXPECT(raw_await(raw, raw->ep.qp, GN_OP_RECV, &wc) == 0);
	EXPECT(dgram_hello_check(raw_at(raw, RAW_IN), wc.len_bytes, &raw->reply) == 0);
	return 0;
}

/* A handshake as it should be; then the peer can send. */
static inline int raw_join(struct raw *raw, struct gn_fabric *fabric, const char *addr)
{
	EXPECT(raw_make(raw, fabric) == 0);
	EXPECT(raw_greet(raw, addr, DGRAM_HELLO_BYTES(1)) == 0);
	EXPECT(raw->reply.kind == DGRAM_HELLO_OK);
	EXPECT(gn_ah_create(raw->ud, &raw->reply.thread[0], &raw->ah) == 0);
	raw->epoch = dgram_epoch(raw->hello.random, raw->reply.random);
	raw->head = (struct dgram_head){.version = DGRAM_VERSION,
					.count = 1,
					.peer = DGRAM_PEER(raw->reply.index, 0),
					.epoch = raw->epoch,
					.granted = DGRAM_GRANT_MIN};
	return 0;
}

/* Sends the len bytes at RAW_OUT. */
static inline int raw_send(struct raw *raw, uint32_t len)
{
	const struct gn_sge sge = {raw_at(raw, RAW_OUT), len, gn_mr_lkey(raw->ep.mr)};
	const struct gn_ud_addr *to = &raw->reply.thread[0];
	struct gn_wc wc;
	struct gn_wr wr;

	gn_wr_ud(&wr, 0, &sge, raw->ah, to->qpn, to->qkey, GN_SIGNALED);
	EXPECT(gn_post_send(raw->ud, &wr, NULL) == 0);
	return raw_await(raw, raw->ud, GN_OP_SEND, &wc);
}

/* Sends a message with raw->head. payload may be NULL: any bytes. */
static inline int raw_say(struct raw *raw, const struct dgram_msg *msg, const void *payload)
{
	uint8_t *at = raw_at(raw, RAW_OUT);

	memcpy(at, &raw->head, sizeof(raw->head));
	memcpy(at + sizeof(raw->head), msg, sizeof(*msg));
	if (payload)
		memcpy(at + sizeof(raw->head) + sizeof(*msg), payload, msg->bytes);
	return raw_send(raw, (uint32_t)(sizeof(raw->head) + sizeof(*msg)) + msg->bytes);
}

/* ---- running ---- */

static inline int run_as(struct world *w, struct gn_fabric *fabric, unsigned who)
{
	int rc;

	if (who == 0) {
		rc = victim_serve(w, fabric);
		STORE(w->up, true);
		return rc;
	}
	while (!LOAD(w->up))
		gn_sleep_us(20);
	if (who == 1) {
		rc = honest_run(w, fabric);
		if (rc)
			STORE(w->step, 1);
		world_await(w, 2);
		STORE(w->step, 3);
		return rc;
	}
	world_await(w, 1);
	rc = w->attack(w, fabric);
	STORE(w->step, 2);
	return rc;
}

struct actor {
	struct world *w;
	unsigned who;
	const char *fabric;
};

static inline void actor_thread(void *arg)
{
	const struct actor *a = arg;
	struct gn_fabric *fabric;

	if (gn_fabric_open(a->fabric, &fabric)) {
		a->w->failed[a->who] = __LINE__;
		return;
	}
	a->w->failed[a->who] = run_as(a->w, fabric, a->who);
	if (!a->w->failed[a->who] && gn_fabric_close(fabric))
		a->w->failed[a->who] = __LINE__;
}

static inline int actor_process(struct gn_env *env, int argc, char **argv)
{
	struct actor *a = env->arg;

	(void)argc, (void)argv;
	a->fabric = env->fabric;
	actor_thread(a);
	return a->w->failed[a->who];
}

static inline void world_reset(struct world *w)
{
	*w = (struct world){.attack = w->attack,
			    .opts = w->opts,
			    .stall_ns = w->stall_ns,
			    .addr = w->addr,
			    .where = w->where,
			    .simulated = w->simulated};
}

static inline void world_check(const struct world *w)
{
	printf("# %s: %u honest calls, the slowest took %llu us; %llu malformed, %llu of other epochs, "
	       "%llu of unknown peers, %llu over credit, %llu over limits\n",
	       w->where, w->calls, (unsigned long long)w->worst_ns / 1000,
	       (unsigned long long)w->stats.malformed, (unsigned long long)w->stats.wrong_epoch,
	       (unsigned long long)w->stats.unknown_peer, (unsigned long long)w->stats.over_credit,
	       (unsigned long long)w->stats.over_limit);
	for (unsigned i = 0; i < 3; i++)
		if (w->failed[i])
			fail_msg("%s: actor %u failed in line %d", w->where, i, w->failed[i]);
	if (w->stall_ns && !unit_slow())
		assert_in_range(w->worst_ns, 0, w->stall_ns);
}

static inline void simulate(struct world *w, const char *profile, uint64_t seed)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = profile,
					 .seed = seed,
					 .nodes = 3,
					 .limit_ns = DGRAM_LIMIT_NS};
	struct actor actor[3];
	struct gn_sim *sim;

	w->simulated = true;
	w->addr = "sim:n0:9";
	w->where = profile;
	world_reset(w);
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	for (unsigned i = 0; i < 3; i++) {
		actor[i] = (struct actor){w, i, NULL};
		assert_int_equal(gn_sim_spawn(sim, i, actor_process, 0, NULL, &actor[i], NULL), 0);
	}
	assert_int_equal(gn_sim_run(sim), 0);
	world_check(w);
	assert_int_equal(gn_sim_leaks(sim), 0);
	gn_sim_destroy(sim);
}

static inline const char *given_addr(void)
{
	return getenv("GANNET_DGRAM_ADDR");
}

static inline void run_threads(struct world *w)
{
	const char *given = given_addr();
	struct actor actor[3];
	struct gn_thread *thread[3];
	char addr[64];

	snprintf(addr, sizeof(addr), "shm:test-dgram-%llx", (unsigned long long)gn_random());
	w->addr = given ? given : addr;
	w->where = given ? "verbs" : "shm";
	w->simulated = false;
	world_reset(w);
	for (unsigned i = 0; i < 3; i++) {
		actor[i] = (struct actor){w, i, w->where};
		assert_int_equal(gn_thread_start("actor", actor_thread, &actor[i], &thread[i]), 0);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(gn_thread_join(thread[i]), 0);
	world_check(w);
}

/* Over shared memory or verbs; and, unless an address is given, on simulated cards. */
static inline void run_everywhere(struct world *w, void (*check)(const struct world *w))
{
	gn_log_to(fuzz_be_silent, NULL);
	run_threads(w);
	check(w);
	if (!given_addr()) {
		simulate(w, "ideal", 1);
		check(w);
		simulate(w, "cx3-roce", 2);
		check(w);
	}
	gn_log_to(NULL, NULL);
}

#endif
