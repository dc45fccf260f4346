/* SPDX-License-Identifier: MIT */
/*
 * A server of memcached's protocol in front of a key-value store, whose client it is (gannet/kv.h).
 */
#ifndef GN_PROXY_H
#define GN_PROXY_H

#include <stdbool.h>
#include <stdint.h>

#include <gannet/kv.h>

#define PROXY_THREADS_MAX 64u
#define PROXY_LISTEN_MAX  16u
#define PROXY_MEMORY_MIN  (8ull << 20) /* per thread */

struct proxy_opts {
	const char *server;	   /* address of the store */
	const char *const *listen; /* PORT, HOST:PORT, unix:PATH */
	unsigned n_listen;
	unsigned threads;     /* 0: 1 */
	unsigned socket_mode; /* of Unix sockets; 0: 0700 */
	uint32_t max_conns;   /* 0: as many as file descriptors allow */
	uint32_t timeout_ms;  /* of an operation; 0: 5000 */
	uint32_t stall_ms;    /* without a byte inside a command or a reply; 0: 60000 */
	uint32_t idle_ms;     /* without a command; 0: no limit */
	uint64_t memory;      /* for clients, in all threads; 0: at least 256 MiB */
	struct gn_kv_client_opts kv;
};

struct proxy;
struct prom;

/* The store is not running, or refuses clients: the caller may try again later. */
bool proxy_may_retry(int rc);

/*
 * Connects, listens and starts to serve. Errors are reported on stderr, unless proxy_may_retry().
 */
int proxy_create(struct gn_fabric *fabric, const struct proxy_opts *opts, struct proxy **out);
/* Accepts clients until stop_fd is readable. Call from one thread. */
int proxy_run(struct proxy *proxy, int stop_fd);
/* Is it PORT, HOST:PORT or unix:PATH? Does not check whether it is free. */
bool proxy_can_listen(const char *where);
/* An address that the proxy listens at, for messages; NULL behind the last. */
const char *proxy_listen_addr(const struct proxy *proxy, unsigned i);
/* Connections accepted and commands received. */
void proxy_totals(const struct proxy *proxy, uint64_t *conns, uint64_t *commands);
/* Its own counters, since it began; the store has its own. Any thread. */
void proxy_metrics(const struct proxy *proxy, struct prom *prom);
void proxy_destroy(struct proxy *proxy);

#endif
