/* SPDX-License-Identifier: MIT */
/*
 * Sweeps: every combination of several values of several options. A sweep is KEY=RANGE; RANGE is a
 * list of values, and of numbers FROM..TO, FROM..TOxTIMES or FROM..TO+MORE.
 */
#ifndef GN_BENCH_MSG_SWEEP_H
#define GN_BENCH_MSG_SWEEP_H

#include "msg.h"

enum sweep_key {
	SWEEP_PROTOCOL,
	SWEEP_TOPOLOGY,
	SWEEP_NODES,
	SWEEP_THREADS,
	SWEEP_PENDING,
	SWEEP_REQUEST,
	SWEEP_VALUE,
	SWEEP_KEYS
};

/* A key's name, and the least and the largest of its numbers. */
struct sweep_trait {
	const char *name;
	uint32_t min, max;
};
extern const struct sweep_trait sweep_traits[SWEEP_KEYS];

#define SWEEP_POINTS_MAX 10000u

struct sweep_axis {
	enum sweep_key key;
	uint32_t n, *values;
};

/* Zero is ready for use: one point. The first axis varies slowest. */
struct sweep {
	unsigned n;
	struct sweep_axis axis[SWEEP_KEYS];
};

/* text: KEY=RANGE. -EINVAL and why: one line that names what is wrong; -ENOMEM. */
int sweep_add(struct sweep *sweep, const char *text, char why[BENCH_WHY_MAX]);
/* The same with the key apart. */
int sweep_add_range(struct sweep *sweep, enum sweep_key key, const char *range,
		    char why[BENCH_WHY_MAX]);
bool sweep_has(const struct sweep *sweep, enum sweep_key key);
/* At most SWEEP_POINTS_MAX: sweep_add() sees to it. */
uint32_t sweep_points(const struct sweep *sweep);
/* Point i's values; others stay as they are. */
void sweep_point(const struct sweep *sweep, uint32_t i, struct bench_msg_opts *opts);
void sweep_free(struct sweep *sweep);

#endif
