/* SPDX-License-Identifier: MIT */
/*
 * The parts of gannet demo. Each returns 0, or -errno, which has been told unless it is -EINTR.
 */
#ifndef GN_CMD_DEMO_H
#define GN_CMD_DEMO_H

#include <stdbool.h>

#define DEMO_ROUNDS_MAX 16u

/* Lines may be drawn anew (demo.c). */
bool demo_on_terminal(void);
/* Three ways to GET, side by side, measured in turns (demo_race.c). */
int demo_race(unsigned rounds);
/* A server, a proxy in front of it, and a client of memcached's (demo_session.c). */
int demo_session(void);

#endif
