/* SPDX-License-Identifier: MIT */
/*
 * The benchmark of stores behind a socket, as the gannet command sees it: memcached, Redis and what
 * speaks as they do. Fill in options, run, print.
 *
 * One thread has many connections. Each has a batch of operations under way, and sends the next
 * when all of them are answered; so a server never waits while there are several.
 */
#ifndef GN_BENCH_SOCKET_H
#define GN_BENCH_SOCKET_H

#include "bench.h"

enum bench_socket_protocol {
	BENCH_SOCKET_MEMCACHED,
	BENCH_SOCKET_META, /* memcached's meta commands */
	BENCH_SOCKET_REDIS,
	BENCH_SOCKET_PROTOCOLS
};

extern const char *const bench_socket_protocols[BENCH_SOCKET_PROTOCOLS + 1];

#define BENCH_SOCKET_CONNECTIONS_MAX 1024u
#define BENCH_SOCKET_PIPELINE_MAX    4096u
#define BENCH_SOCKET_KEYS_MAX	     (64u << 20)
#define BENCH_SOCKET_KEY_MAX	     250u
#define BENCH_SOCKET_VALUE_MAX	     65536u
#define BENCH_SOCKET_PIDS_MAX	     8u
#define BENCH_SOCKET_ADDR_MAX	     256u
#define BENCH_SOCKET_MEMORY_MAX	     (512u << 20) /* bytes, for what is under way */

struct bench_socket_opts {
	enum bench_socket_protocol protocol;
	char connect[BENCH_SOCKET_ADDR_MAX]; /* unix:PATH or HOST:PORT */
	uint32_t connections;
	uint32_t pipeline; /* operations that a connection has under way */
	uint32_t multiget; /* keys that a command asks for; 1: each has its own */
	bool noreply;	   /* memcached: what is stored is not acknowledged */
	uint32_t keys, key_bytes, value_bytes;
	uint32_t get_percent;
	double zipf; /* the exponent of Zipf's law; 0: uniform */
	bool fill;   /* store all keys first */
	bool sleep;  /* wait for answers asleep, instead of looking for them all the time */
	double seconds;
	int pids[BENCH_SOCKET_PIDS_MAX]; /* the server's */
	unsigned n_pids;
	int cpu; /* ours; -1: any */
	uint64_t seed;
};

/* NAN where a figure is not known. */
struct bench_socket_result {
	uint64_t ops, gets, puts, hits; /* answered in these seconds */
	double seconds;
	double p50_us, p99_us; /* of a batch, from sending it to its last answer */
	double server_cpu_s, client_cpu_s;
	double fill_seconds;
	double rss_before, rss_filled; /* bytes, of all server processes */
};

/*
 * 0, -EINTR after bench_stop_on_signals() caught one (*out is what there was so far), or what went
 * wrong, which has been logged. progress may be NULL.
 */
int bench_socket_run(const struct bench_socket_opts *opts, void (*progress)(const char *, double),
		     struct bench_socket_result *out);

void bench_socket_print_json(FILE *f, const struct bench_socket_opts *opts,
			     const struct bench_socket_result *result);
void bench_socket_print_head(FILE *f);
void bench_socket_print_row(FILE *f, const struct bench_socket_opts *opts,
			    const struct bench_socket_result *result);

/* Of other processes, summed: CPU time they have used, memory they have now. -errno, logged. */
int bench_cpu_ns(const int *pids, unsigned n, uint64_t *out);
int bench_rss_bytes(const int *pids, unsigned n, uint64_t *out);

#endif
