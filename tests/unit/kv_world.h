/* SPDX-License-Identifier: MIT */
/*
 * Environments ("worlds") for a store: shared memory, with the server's threads and a thread per
 * client, and simulated cards that give every ordering guarantee or none. A test is a program for a
 * client.
 */
#ifndef GN_TESTS_KV_WORLD_H
#define GN_TESTS_KV_WORLD_H

#include <errno.h>
#include <string.h>

#include "gannet/kv.h"
#include "gannet/sim.h"
#include "unit.h"
#include "unit_sim_run.h"
#include "unit_world.h"

#define KV_SIM_ADDR "sim:n0:7000"
#define KV_CLIENTS_MAX 8u

struct kv_world {
	struct gn_kv_server_opts opts;
	const char *addr;
	struct gn_fabric *fabric; /* the server's */
	struct gn_kv_server *server;
	int (*program)(struct kv_world *w, struct gn_fabric *fabric, unsigned client);
	bool simulated;
	const char *faults; /* of the simulator, or NULL */
	unsigned clients, running, next; /* atomic */
	unsigned step;			 /* atomic: the program's */
	int failed[KV_CLIENTS_MAX];
};

static inline unsigned world_step(const struct kv_world *w)
{
	return __atomic_load_n(&w->step, __ATOMIC_ACQUIRE);
}

static inline void world_go(struct kv_world *w, unsigned step)
{
	__atomic_store_n(&w->step, step, __ATOMIC_RELEASE);
}

/* The step is not reached yet, and no program has ended or failed. */
static inline bool world_before(const struct kv_world *w, unsigned step)
{
	return world_step(w) < step && __atomic_load_n(&w->running, __ATOMIC_ACQUIRE) == w->clients;
}

static inline void world_await(const struct kv_world *w, unsigned step)
{
	while (world_before(w, step))
		gn_sleep_us(20);
}

static inline int kv_server_up(struct kv_world *w)
{
	w->opts.size = sizeof(w->opts);
	EXPECT(gn_kv_server_create(w->fabric, w->addr, &w->opts, &w->server) == 0);
	EXPECT(gn_kv_server_start(w->server) == 0);
	return 0;
}

static inline int kv_sim_server(struct gn_env *env, int argc, char **argv)
{
	struct kv_world *w = env->arg;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &w->fabric) == 0);
	EXPECT(kv_server_up(w) == 0);
	while (w->running)
		gn_sleep_us(100);
	gn_kv_server_destroy(w->server);
	EXPECT(gn_fabric_close(w->fabric) == 0);
	return 0;
}

static inline int kv_sim_client(struct gn_env *env, int argc, char **argv)
{
	struct kv_world *w = env->arg;
	const unsigned number = w->next++;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	gn_sleep_us(50);
	rc = w->program(w, fabric, number);
	w->running--;
	EXPECT(rc || gn_fabric_close(fabric) == 0);
	return rc;
}

static inline void kv_simulate(struct kv_world *w, const char *profile, uint64_t caps_off,
			       uint64_t seed)
{
	const struct sim_run run = {.profile = profile,
				    .caps_off = caps_off,
				    .seed = seed,
				    .limit_ns = 60000000000u,
				    .faults = w->faults,
				    .server = kv_sim_server,
				    .client = kv_sim_client,
				    .clients = w->clients,
				    .arg = w};

	w->simulated = true;
	w->addr = KV_SIM_ADDR;
	w->running = w->clients;
	w->next = w->step = 0;
	sim_run(&run);
}

static inline void kv_shm_client(void *arg)
{
	struct kv_world *w = arg;
	const unsigned number = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED);

	w->failed[number] = w->program(w, w->fabric, number);
	__atomic_fetch_sub(&w->running, 1, __ATOMIC_RELEASE);
}

static inline void kv_run_shm(struct kv_world *w)
{
	const char *given = getenv("GANNET_RPC_ADDR");
	struct gn_thread *threads[KV_CLIENTS_MAX];
	char addr[64];

	snprintf(addr, sizeof(addr), "shm:test-kv-%llx", (unsigned long long)gn_random());
	if (given)
		snprintf(addr, sizeof(addr), "%s", given);
	w->addr = addr;
	w->simulated = false;
	w->running = w->clients;
	w->next = w->step = 0;
	assert_int_equal(gn_fabric_open(given ? "verbs" : "shm", &w->fabric), 0);
	assert_int_equal(kv_server_up(w), 0);
	for (unsigned i = 0; i < w->clients; i++)
		assert_int_equal(gn_thread_start("client", kv_shm_client, w, &threads[i]), 0);
	for (unsigned i = 0; i < w->clients; i++)
		assert_int_equal(gn_thread_join(threads[i]), 0);
	for (unsigned i = 0; i < w->clients; i++)
		assert_int_equal(w->failed[i], 0);
	gn_kv_server_destroy(w->server);
	assert_int_equal(gn_fabric_close(w->fabric), 0);
}

/* In turn: shared memory, and simulated cards. */
static inline void kv_run_everywhere(struct kv_world *w)
{
	const uint64_t seed = unit_seed();

	assert_true(w->clients <= KV_CLIENTS_MAX);
	kv_run_shm(w);
	for (unsigned k = 0; k < 2 && !getenv("GANNET_RPC_ADDR") && !THREADS_WATCHED; k++) {
		kv_simulate(w, "ideal", k ? SIM_CAPS : 0, seed);
		kv_simulate(w, "cx3", k ? SIM_CAPS : 0, seed + 1);
	}
}

#endif
