/* SPDX-License-Identifier: MIT */
/* A simulated server and its clients, all of which must return 0 and leak nothing. */
#ifndef GN_TESTS_UNIT_SIM_RUN_H
#define GN_TESTS_UNIT_SIM_RUN_H

#include "gannet/sim.h"
#include "unit.h"

struct sim_run {
	const char *profile; /* NULL: the default */
	uint64_t caps_off, seed, limit_ns;
	const char *faults; /* NULL: none */
	gn_node_main *server, *client;
	unsigned clients; /* on n1, n2, …; the server is on n0 */
	void *arg;	  /* of all of them */
};

/* Returns the hash of the trace. */
static inline uint64_t sim_run(const struct sim_run *r)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = r->profile,
					 .seed = r->seed,
					 .nodes = 1 + r->clients,
					 .caps_off = r->caps_off,
					 .limit_ns = r->limit_ns};
	const char *profile = r->profile ? r->profile : "default";
	struct gn_sim *sim;
	uint64_t hash;
	int status;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	assert_int_equal(gn_sim_inject(sim, r->faults ? r->faults : ""), 0);
	assert_int_equal(gn_sim_spawn(sim, 0, r->server, 0, NULL, r->arg, NULL), 0);
	for (unsigned i = 1; i <= r->clients; i++)
		assert_int_equal(gn_sim_spawn(sim, i, r->client, 0, NULL, r->arg, NULL), 0);
	if (gn_sim_run(sim))
		fail_msg("profile %s, seed %llu: the run did not end", profile,
			 (unsigned long long)r->seed);
	for (unsigned i = 0; i <= r->clients; i++) {
		assert_int_equal(gn_sim_status(sim, i, &status), 0);
		if (status)
			fail_msg("profile %s, seed %llu, process %u: line %d", profile,
				 (unsigned long long)r->seed, i, status);
	}
	assert_int_equal(gn_sim_leaks(sim), 0);
	hash = gn_sim_trace_hash(sim);
	gn_sim_destroy(sim);
	return hash;
}

#endif
