/* SPDX-License-Identifier: MIT */
/*
 * What the simulator's unit tests share: a log that is kept for the test to read, the shortest ways
 * to a simulation and through one, and words for the programs that run in it.
 */
#ifndef GN_TESTS_UNIT_SIM_H
#define GN_TESTS_UNIT_SIM_H

#include <string.h>

#include "gannet/sim.h"
#include "unit.h"
#include "unit_world.h"

#define US 1000u
#define MS 1000000u

struct sim_lines {
	char text[8192];
	size_t len;
};

static inline void sim_keep_line(void *arg, enum gn_log_level level, const char *line)
{
	struct sim_lines *lines = arg;

	(void)level;
	lines->len += (size_t)snprintf(lines->text + lines->len, sizeof(lines->text) - lines->len,
				       "%s\n", line);
	if (lines->len >= sizeof(lines->text))
		lines->len = sizeof(lines->text) - 1;
}

/* Every test gets an empty log; it is the test's initial state. */
static inline int sim_setup(void **state)
{
	struct sim_lines *lines = calloc(1, sizeof(*lines));

	gn_log_to(sim_keep_line, lines);
	*state = lines;
	return lines ? 0 : -1;
}

static inline int sim_teardown(void **state)
{
	gn_log_to(NULL, NULL);
	free(*state);
	return 0;
}

static inline void sim_assert_logged(void **state, const char *text)
{
	const struct sim_lines *lines = *state;

	if (!strstr(lines->text, text))
		fail_msg("'%s' is not in the log:\n%s", text, lines->text);
}

static inline struct gn_sim *sim_make(unsigned nodes, uint64_t seed)
{
	struct gn_sim_opts opts = {
		.size = sizeof(opts), .profile = "ideal", .nodes = nodes, .seed = seed};
	struct gn_sim *sim;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	return sim;
}

static inline void sim_spawn(struct gn_sim *sim, unsigned node, gn_node_main *program, void *arg)
{
	assert_int_equal(gn_sim_spawn(sim, node, program, 0, NULL, arg, NULL), 0);
}

static inline struct gn_sim *sim_make_faulty(unsigned nodes, const char *faults)
{
	struct gn_sim_opts opts = {
		.size = sizeof(opts), .nodes = nodes, .seed = 11, .faults = faults};
	struct gn_sim *sim;

	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	return sim;
}

static inline void sim_assert_status(const struct gn_sim *sim, unsigned process, int expected)
{
	int status = -1;

	assert_int_equal(gn_sim_status(sim, process, &status), 0);
	assert_int_equal(status, expected);
}

/* One process on one node, which is to end well. */
static inline void sim_run_alone(gn_node_main *program, void *arg)
{
	struct gn_sim *sim = sim_make(1, 1);

	sim_spawn(sim, 0, program, arg);
	assert_int_equal(gn_sim_run(sim), 0);
	sim_assert_status(sim, 0, 0);
	assert_int_equal(gn_sim_leaks(sim), 0);
	gn_sim_destroy(sim);
}

static inline void sim_test_alone(void **state)
{
	sim_run_alone(*(gn_node_main **)*state, NULL);
}

#define PROGRAM(name)                                                         \
	static int name(struct gn_env *env, int argc __attribute__((unused)), \
			char **argv __attribute__((unused)))

#define SIM_TEST(name) cmocka_unit_test_setup_teardown(name, sim_setup, sim_teardown)
/* One program that runs alone is all of the test. */
#define SIM_TEST_ALONE(name, program)                                \
	{                                                            \
#name, sim_test_alone, NULL, NULL, &(gn_node_main *) \
		{                                                    \
			program                                      \
		}                                                    \
	}

#endif
