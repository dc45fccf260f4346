/* SPDX-License-Identifier: MIT */
/* A client that overwrites its requests: see scribble.h. */
#include "scribble.h"
#include "sim_rpc.h"

#define ROUNDS 6u

static uint32_t body(uint8_t *to)
{
	const uint32_t len = 8 * (1 + (uint32_t)(gn_random() % (SCRIBBLE_BYTES / 8)));

	memset(to, 0xee, len);
	return len;
}

int scribbler_main(struct gn_env *env, int argc, char **argv)
{
	const struct client_arg *arg = env->arg;
	struct world *w = arg->w;
	const struct scribbler s = {
		.addr = ADDR,
		.method = SCRIBBLED,
		.rounds = ROUNDS,
		.body = body,
	};

	(void)argc;
	(void)argv;
	w->sums.scribbled += scribble(&w->run, env->fabric, &s);
	return 0;
}
