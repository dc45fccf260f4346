/* SPDX-License-Identifier: MIT */
/*
 * A server of memcached's protocol whose store is elsewhere: it is a client of gannet/kv.h.
 */
#ifndef GN_PROXY_H
#define GN_PROXY_H

#include <stdbool.h>
#include <stdint.h>

#include <gannet/kv.h>

#define PROXY_THREADS_MAX 64u
#define PROXY_LISTEN_MAX  16u
#define PROXY_MEMORY_MIN  (8ull << 20) /* of a thread */

struct proxy_opts {
	const char *server;	   /* of the store */
	const char *const *listen; /* PORT, HOST:PORT, unix:PATH */
	unsigned n_listen;
	unsigned threads;     /* 0: 1 */
	unsigned socket_mode; /* of Unix sockets; 0: 0700 */
	uint32_t max_conns;   /* 0: as many as descriptors allow */
	uint32_t timeout_ms;  /* of an operation; 0: 5000 */
	uint32_t stall_ms;    /* without a byte within a command or an answer; 0: 60000 */
	uint32_t idle_ms;     /* without a command; 0: for ever */
	uint64_t memory;      /* that clients make it hold, in all threads; 0: 256 MiB at least */
	struct gn_kv_client_opts kv;
};

struct proxy;
struct prom;

/* The store is not there, or lets nobody in: it can be tried again later. */
bool proxy_may_wait(int rc);

/*
 * Connects, listens and begins to serve. What went wrong has been told on stderr, unless the caller
 * may wait.
 */
int proxy_create(struct gn_fabric *fabric, const struct proxy_opts *opts, struct proxy **out);
/* Lets clients in until the descriptor is readable. From one thread. */
int proxy_run(struct proxy *proxy, int stop_fd);
/* Is it PORT, HOST:PORT or unix:PATH? Whether it is free is another question. */
bool proxy_can_listen(const char *where);
/* Where it listens: a text for people, NULL behind the last. */
const char *proxy_place(const struct proxy *proxy, unsigned i);
/* How many clients came, and how many commands they sent. */
void proxy_totals(const struct proxy *proxy, uint64_t *conns, uint64_t *commands);
/* Its own counters, since it began; the store has its own. Any thread. */
void proxy_metrics(const struct proxy *proxy, struct prom *prom);
void proxy_destroy(struct proxy *proxy);

#endif
