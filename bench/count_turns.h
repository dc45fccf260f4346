/* SPDX-License-Identifier: MIT */
/*
 * What the files of the counted process share: how its client and its server take turns.
 */
#ifndef GN_BENCH_COUNT_TURNS_H
#define GN_BENCH_COUNT_TURNS_H

#define COUNT_WARM_MESSAGES 256u /* before those that are counted */

#include <gannet/rpc.h>

#include "count.h"
#include "pair.h"

/* What the two processes share: options in, how much was done out. */
struct count_page {
	struct count_opts opts;
	uint64_t messages, calls;
};

/* A client of some kind. All functions return 0 or -errno unless they say something else. */
struct count_client {
	uint32_t batch;				     /* calls of a message */
	int (*prepare)(struct count_client *client); /* the next message; not counted */
	int (*submit)(void *client);
	/* End calls that are done by deadline_ns: how many, or -errno. */
	int (*collect)(void *client);
	int (*check)(struct count_client *client); /* what has come; not counted */
	uint64_t deadline_ns;			   /* of collect */
};

/* A server without threads of its own, and what makes it, on the thread that polls it. */
struct count_server {
	int (*start)(struct count_server *server);
	void (*stop)(struct count_server *server);
	struct gn_rpc_server *rpc; /* which start sets */
	void *arg;
};

/*
 * Runs a server on a thread of its own while the caller does what it likes, and afterwards in
 * turns with it.
 */
struct count_turns;
int count_turns_begin(struct count_server *server, struct count_turns **out);
/* Some messages that are not counted, then those that are. */
int count_turns_run(struct count_turns *turns, struct count_client *client,
		    struct count_page *page);
void count_turns_end(struct count_turns *turns);

/* The same for what needs no server. */
int count_alone(struct count_client *client, struct count_page *page);

int count_rpc_main(struct count_page *page);
int count_kv_main(struct count_page *page);
int count_fabric_main(struct count_page *page);

#endif
