/* SPDX-License-Identifier: MIT */
/*
 * What the tests of datagram calls share: nodes with one endpoint each that call each other, over
 * shared memory with a thread for each node, and on a simulated cluster. Node 0 serves; a test is a
 * program for the others. Methods: ECHO answers with the request; FILL with as many bytes as it is
 * asked for; SLOW does so in a worker, after a call to the caller's node or a yield; COUNT adds one
 * to the count of its key, to detect calls that are executed twice.
 */
#ifndef GN_TESTS_DGRAM_WORLD_H
#define GN_TESTS_DGRAM_WORLD_H

#include <errno.h>
#include <stdio.h>

#include "gannet/dgram.h"
#include "gannet/exec.h"
#include "gannet/sim.h"
#include "unit_world.h"

#define DGRAM_NODES_MAX 8u
#define DGRAM_KEYS	65536u
#define DGRAM_LIMIT_NS	60000000000u

enum { ECHO, FILL, SLOW, COUNT, NOTHING };

struct dgram_world {
	/* what a test chooses */
	struct gn_dgram_opts opts;
	unsigned nodes; /* with the server */
	int (*program)(struct dgram_world *w, struct gn_dgram_endpoint *ep,
		       struct gn_dgram_peer *server, unsigned me);
	bool all_listen; /* clients have addresses, too */
	void *arg;
	/* where it runs */
	bool simulated;
	char addr[DGRAM_NODES_MAX][64];
	struct gn_fabric *fabric;
	unsigned next, running;
	int failed[DGRAM_NODES_MAX];
	bool up, stop;
	unsigned slow; /* handlers that wait */
	bool release;  /* … until then */
	uint8_t counts[DGRAM_KEYS];
	struct gn_dgram_stats stats[DGRAM_NODES_MAX];
};

#define LOAD(x)	     __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, to) __atomic_store_n(&(x), to, __ATOMIC_RELEASE)

static inline unsigned dgram_echo(void *arg, struct gn_dgram_request *r)
{
	void *to = gn_dgram_result(r, r->len);

	(void)arg;
	if (!to)
		return GN_RPC_BUSY;
	memcpy(to, r->data, r->len);
	r->result_len = r->len;
	return GN_RPC_OK;
}

/* {seed, bytes} and what the seed gives. */
static inline unsigned dgram_fill(void *arg, struct gn_dgram_request *r)
{
	uint32_t ask[2];
	uint8_t *to;

	(void)arg;
	if (r->len < sizeof(ask))
		return GN_RPC_DENIED;
	memcpy(ask, r->data, sizeof(ask));
	if (!is_filled((const uint8_t *)r->data + 8, r->len - 8, ask[0]))
		return GN_RPC_FAILED;
	to = gn_dgram_result(r, ask[1]);
	if (!to)
		return GN_RPC_BUSY;
	fill(to, ask[1], ask[0] + 1);
	r->result_len = ask[1];
	return GN_RPC_OK;
}

static inline unsigned dgram_slow(void *arg, struct gn_dgram_request *r)
{
	struct dgram_world *w = arg;

	__atomic_fetch_add(&w->slow, 1, __ATOMIC_ACQ_REL);
	while (!LOAD(w->release))
		gn_dgram_yield(r->endpoint);
	__atomic_fetch_sub(&w->slow, 1, __ATOMIC_ACQ_REL);
	return dgram_echo(arg, r);
}

static inline unsigned dgram_count(void *arg, struct gn_dgram_request *r)
{
	struct dgram_world *w = arg;
	uint32_t key;

	if (r->len < sizeof(key))
		return GN_RPC_DENIED;
	memcpy(&key, r->data, sizeof(key));
	__atomic_fetch_add(&w->counts[key % DGRAM_KEYS], 1, __ATOMIC_RELAXED);
	memcpy(r->result, &key, sizeof(key));
	r->result_len = sizeof(key);
	return GN_RPC_OK;
}

static inline int dgram_handlers(struct dgram_world *w, struct gn_dgram_node *node)
{
	EXPECT(gn_dgram_handle(node, ECHO, dgram_echo, NULL, w, 0) == 0);
	EXPECT(gn_dgram_handle(node, FILL, dgram_fill, NULL, w, 0) == 0);
	EXPECT(gn_dgram_handle(node, SLOW, dgram_slow, NULL, w, GN_DGRAM_IN_WORKER) == 0);
	EXPECT(gn_dgram_handle(node, COUNT, dgram_count, NULL, w, 0) == 0);
	return 0;
}

static inline int dgram_serve(struct dgram_world *w, struct gn_dgram_endpoint *ep)
{
	STORE(w->up, true);
	while (!LOAD(w->stop)) {
		const int rc = gn_dgram_wait(ep, gn_deadline_us(200));

		EXPECT(rc >= 0 || rc == -ETIMEDOUT);
	}
	return 0;
}

static inline int dgram_client(struct dgram_world *w, struct gn_dgram_endpoint *ep, unsigned me)
{
	struct gn_dgram_peer *server;

	while (!LOAD(w->up))
		gn_sleep_us(20);
	EXPECT(gn_dgram_peer_open(ep, w->addr[0], 0, &server) == 0);
	return w->program(w, ep, server, me);
}

static inline int dgram_node_main(struct dgram_world *w, struct gn_fabric *fabric, unsigned me)
{
	const char *addr = !me || w->all_listen ? w->addr[me] : NULL;
	struct gn_dgram_endpoint *ep;
	struct gn_dgram_node *node;
	int rc;

	EXPECT(gn_dgram_node_create(fabric, addr, &w->opts, &node) == 0);
	EXPECT(dgram_handlers(w, node) == 0);
	EXPECT(gn_dgram_endpoint_create(node, 0, &ep) == 0);
	rc = me ? dgram_client(w, ep, me) : dgram_serve(w, ep);
	if (me && !__atomic_sub_fetch(&w->running, 1, __ATOMIC_ACQ_REL))
		STORE(w->stop, true);
	w->stats[me].size = sizeof(w->stats[me]);
	EXPECT(gn_dgram_endpoint_stats(ep, &w->stats[me]) == 0);
	EXPECT(gn_dgram_endpoint_destroy(ep) == 0);
	EXPECT(gn_dgram_node_destroy(node) == 0);
	return rc;
}

static inline void dgram_begin(struct dgram_world *w)
{
	w->opts.size = sizeof(w->opts);
	w->next = 0;
	w->running = w->nodes - 1;
	w->up = w->stop = w->release = false;
	w->slow = 0;
	memset(w->failed, 0, sizeof(w->failed));
	memset(w->counts, 0, sizeof(w->counts));
}

static inline void dgram_thread(void *arg)
{
	struct dgram_world *w = arg;
	const unsigned me = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED);

	w->failed[me] = dgram_node_main(w, w->fabric, me);
	if (w->failed[me])
		STORE(w->stop, true);
}

static inline const char *dgram_given_host(void)
{
	return getenv("GANNET_DGRAM_HOST");
}

/* Over shared memory, or verbs if GANNET_DGRAM_HOST names a host. */
static inline void dgram_run_real(struct dgram_world *w)
{
	struct gn_thread *thread[DGRAM_NODES_MAX];
	const char *given = dgram_given_host();

	w->simulated = false;
	dgram_begin(w);
	for (unsigned i = 0; i < w->nodes; i++)
		if (given)
			snprintf(w->addr[i], sizeof(w->addr[i]), "verbs:%.40s:%u", given, 7500 + i);
		else
			snprintf(w->addr[i], sizeof(w->addr[i]), "shm:test-dgram-%llx",
				 (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open(given ? "verbs" : "shm", &w->fabric), 0);
	for (unsigned i = 0; i < w->nodes; i++)
		assert_int_equal(gn_thread_start("node", dgram_thread, w, &thread[i]), 0);
	for (unsigned i = 0; i < w->nodes; i++)
		assert_int_equal(gn_thread_join(thread[i]), 0);
	for (unsigned i = 0; i < w->nodes; i++)
		assert_int_equal(w->failed[i], 0);
	assert_int_equal(gn_fabric_close(w->fabric), 0);
}

static inline int dgram_sim_main(struct gn_env *env, int argc, char **argv)
{
	struct dgram_world *w = env->arg;
	const unsigned me = (unsigned)atoi(env->node + 1);
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	rc = dgram_node_main(w, fabric, me);
	EXPECT(rc || gn_fabric_close(fabric) == 0);
	return rc;
}

static inline void dgram_run_sim(struct dgram_world *w, uint64_t seed, const char *faults)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = "cx3-fdr",
					 .seed = seed,
					 .nodes = w->nodes,
					 .faults = faults,
					 .limit_ns = DGRAM_LIMIT_NS};
	struct gn_sim *sim;
	int status;

	w->simulated = true;
	dgram_begin(w);
	for (unsigned i = 0; i < w->nodes; i++)
		snprintf(w->addr[i], sizeof(w->addr[i]), "sim:n%u:7000", i);
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	for (unsigned i = 0; i < w->nodes; i++)
		assert_int_equal(gn_sim_spawn(sim, i, dgram_sim_main, 0, NULL, w, NULL), 0);
	assert_int_equal(gn_sim_run(sim), 0);
	for (unsigned i = 0; i < w->nodes; i++) {
		assert_int_equal(gn_sim_status(sim, i, &status), 0);
		assert_int_equal(status, 0);
	}
	assert_int_equal(gn_sim_leaks(sim), 0);
	gn_sim_destroy(sim);
}

static inline void dgram_run(struct dgram_world *w, const char *faults)
{
	if (!faults)
		dgram_run_real(w);
	if (dgram_given_host())
		return;
	dgram_run_sim(w, 1, faults);
	if (faults)
		for (uint64_t seed = 2; seed < 8; seed++)
			dgram_run_sim(w, seed, faults);
}

#endif
