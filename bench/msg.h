/* SPDX-License-Identifier: MIT */
/*
 * The benchmark of message passing protocols, as the gannet command sees it: fill in options, run,
 * print. S003 IV is what it follows: who is connected to whom, R requests under way on each
 * connection, and what is counted.
 *
 * Over shm and verbs every thread of a node is a process of its own: no two of them share anything
 * but the machine. The caller's process is the first requester. One requester and one responder
 * over shm run next to the bare loop of limit.h.
 */
#ifndef GN_BENCH_MSG_H
#define GN_BENCH_MSG_H

#include <gannet/msg.h>

#include "bench.h"

enum bench_msg_topology { BENCH_MSG_M1, BENCH_MSG_1M, BENCH_MSG_MM, BENCH_MSG_TOPOLOGIES };

/* "M:1", "1:M", "M:M" */
extern const char *const bench_msg_topologies[BENCH_MSG_TOPOLOGIES + 1];

#define BENCH_MSG_NODES_MAX	256u
#define BENCH_MSG_THREADS_MAX	64u
#define BENCH_MSG_REQUEST_MIN	4u  /* bytes: it has a key in it */
#define BENCH_MSG_PROCESSES_MAX 65u /* requesters and responders, where they are processes */
#define BENCH_MSG_BUFFERS_MAX	(256ull << 20) /* bytes under way on all connections of a thread */

struct bench_msg_opts {
	char provider[80];   /* for gn_fabric_open(), or "sim" */
	char host[128];	     /* where responders listen, over verbs */
	const char *profile; /* of a simulated cluster; else NULL */
	bool paper;	     /* S003's way, or the library's own */
	enum gn_msg_protocol protocol;
	enum bench_msg_topology topology;
	uint32_t nodes;			     /* as S003 counts them: P, Q or N */
	uint32_t threads;		     /* S */
	uint32_t pending;		     /* R */
	uint32_t request_bytes, value_bytes; /* L, V */
	double seconds;			     /* to measure; of a simulated cluster virtual ones */
	uint64_t seed;
	int cpus[2]; /* the first requester's and the first responder's */
};

/* NAN where a figure has no meaning. */
struct bench_msg_result {
	uint64_t requests; /* answered and checked */
	double seconds;	   /* they took; of a simulated cluster virtual ones */
	double mops, gbps, gbps_per_node;
	double p50_us, p99_us;		 /* from asking to taking the answer */
	double wrs, doorbells, cqes;	 /* per request, of both sides; without receives */
	double repeats;			 /* of datagrams */
	double lost;			 /* requests over UD that nobody answered */
	double limit_ratio;		 /* of the speed of the bare loop */
	double wall_seconds;		 /* that it took to find out */
	unsigned blocks, blocks_dropped; /* beside the limit */
};

/* Threads that ask and that answer, and connections of one that asks. */
uint32_t bench_msg_requesters(const struct bench_msg_opts *opts);
uint32_t bench_msg_responders(const struct bench_msg_opts *opts);
uint32_t bench_msg_conns(const struct bench_msg_opts *opts);

#define BENCH_MSG_WHY_MAX 160u
/* Can it be, as far as one can tell without a fabric? -EINVAL and why, without a newline. */
int bench_msg_check(const struct bench_msg_opts *opts, char why[BENCH_MSG_WHY_MAX]);
/* Can a fabric carry it? -EMSGSIZE: not as datagrams; -EOPNOTSUPP: it has none. */
int bench_msg_try(struct gn_fabric *fabric, const struct bench_msg_opts *opts);

/* Over shm and verbs; as bench_run(). */
int bench_msg_run(const struct bench_msg_opts *opts, bench_progress_fn *progress,
		  struct bench_msg_result *out);

/* ---- printing (msg_print.c) ---- */

/* The line's beginning, up to where results begin: what a point is. To be freed; NULL: no memory */
char *bench_msg_identity(const struct bench_msg_opts *opts);
/* What the results begin with. */
#define BENCH_MSG_RESULTS "\"requests\":"
/* The whole line with its end, to be freed. */
char *bench_msg_json(const struct bench_msg_opts *opts, const struct bench_msg_result *result);
void bench_msg_print_head(FILE *f);
void bench_msg_print_row(FILE *f, const struct bench_msg_opts *opts,
			 const struct bench_msg_result *result);

/* The other processes of a run, spawned as "--bench-msg". Returns the exit status. */
int bench_msg_peer_main(void);

#endif
