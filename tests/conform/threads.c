/* SPDX-License-Identifier: MIT */
/*
 * Both sides as threads of one process, as users run them too, and as the thread sanitizer needs
 * it. No side can be killed, so cases about processes are skipped.
 */
#include "threads.h"

struct threads {
	struct cf_run b;
	struct gn_thread *thread;
	int followed; /* what cf_follow() returned */
};

static void side_b(void *arg)
{
	struct threads *threads = arg;

	threads->followed = cf_follow(&threads->b);
}

static int start_b(void *arg)
{
	struct threads *threads = arg;

	return gn_thread_start("side b", side_b, threads, &threads->thread);
}

static void stop_b(void *arg, char *how, size_t size)
{
	struct threads *threads = arg;

	gn_thread_join(threads->thread);
	snprintf(how, size, "its thread returned %d", threads->followed);
}

int cf_thread(struct cf_run *run)
{
	struct threads threads = {.b = *run};

	run->world.peer_start = start_b;
	run->world.peer_stop = stop_b;
	run->world.arg = &threads;
	return cf_lead(run);
}
