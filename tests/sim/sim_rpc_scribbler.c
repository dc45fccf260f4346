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

static void posted(void *arg)
{
	struct world *w = arg;

	w->active_ns = gn_sim_now_ns(w->run.sim);
}

int scribbler_main(struct gn_env *env, int argc, char **argv)
{
	const struct client_arg *arg = env->arg;
	struct world *w = arg->w;
	const struct scribbler s = {
		.fabric = env->fabric,
		.addr = ADDR,
		.method = SCRIBBLED,
		.rounds = ROUNDS,
		.body = body,
		.posted = posted,
		.arg = w,
	};
	const int n = scribble(&s);

	(void)argc;
	(void)argv;
	w->sums.scribbled += n > 0 ? (uint64_t)n : 0;
	w->clients_over++;
	return 0;
}
