/* SPDX-License-Identifier: MIT */
/* The parts of gannet demo. */
#ifndef GN_CMD_DEMO_H
#define GN_CMD_DEMO_H

#include <stdbool.h>

#define DEMO_ROUNDS_MAX 16u

/* May lines be redrawn? (demo.c) */
bool demo_on_terminal(void);
/* Measures three ways to GET in turns (demo_race.c). 0 or -errno; prints errors but -EINTR. */
int demo_race(unsigned rounds);

#endif
