/* SPDX-License-Identifier: MIT */
/*
 * The load of message passing protocols. It follows section IV of the message passing evaluation:
 * which threads are connected, R requests under way on each connection, and what is counted.
 *
 * Over shm and verbs every thread of a node is a process: no two of them share anything but the
 * machine. One requester and one responder over shm run next to the bare loop of limit.h. A
 * simulated node is one process, with a thread for each requester and responder.
 */
#ifndef GN_BENCH_MSG_H
#define GN_BENCH_MSG_H

#include <gannet/msg.h>

#include "load.h"

enum bench_msg_topology { BENCH_MSG_M1, BENCH_MSG_1M, BENCH_MSG_MM, BENCH_MSG_TOPOLOGIES };

/* "M:1", "1:M", "M:M" */
extern const char *const bench_msg_topologies[BENCH_MSG_TOPOLOGIES + 1];

#define BENCH_MSG_NODES_MAX	256u
#define BENCH_MSG_THREADS_MAX	64u
#define BENCH_MSG_REQUEST_MIN	4u  /* bytes: it has a key in it */
#define BENCH_MSG_PROCESSES_MAX 65u /* requesters and responders, where they are processes */
#define BENCH_MSG_BUFFERS_MAX	(256ull << 20) /* bytes under way on all connections of a thread */

struct bench_msg_opts {
	struct load_opts load;
	enum gn_msg_protocol protocol;
	enum bench_msg_topology topology;
	uint32_t nodes;			     /* as the paper counts them: P, Q or N */
	uint32_t threads;		     /* S: requesting threads of a node */
	uint32_t resp_threads;		     /* M:1: responding threads; 0: the paper's, or S */
	uint32_t conns_max;		     /* of a responding thread; 0: any number */
	uint32_t pending;		     /* R */
	uint32_t request_bytes, value_bytes; /* L, V */
};

/* NAN where a figure has no meaning. */
struct bench_msg_result {
	uint64_t requests; /* answered and checked */
	double seconds;	   /* they took; of a simulated cluster virtual ones */
	double mops, gbps, gbps_per_node;
	double latency_us_mean, p50_us, p99_us; /* from posting a request to taking its response */
	double wrs, doorbells, cqes;		/* per request, of both sides; without receives */
	double repeats;				/* of datagrams */
	double lost;				/* requests over UD that nobody answered */
	double limit_ratio;			/* of the speed of the bare loop */
	double wall_seconds;			/* that it took to find out */
	unsigned blocks, blocks_dropped;	/* beside the limit */
	char error[LOAD_ERROR_MAX];		/* why there is no result */
};

/* Requesting and responding threads of all nodes, and connections of a requester. */
uint32_t bench_msg_requesters(const struct bench_msg_opts *opts);
uint32_t bench_msg_responders(const struct bench_msg_opts *opts);
uint32_t bench_msg_conns(const struct bench_msg_opts *opts);

/* Can it be, as far as one can tell without a fabric? -EINVAL and why, without a newline. */
int bench_msg_check(const struct bench_msg_opts *opts, char why[BENCH_WHY_MAX]);
/* Can a fabric carry it? -EMSGSIZE: not as datagrams; -EOPNOTSUPP: it has none. */
int bench_msg_try(struct gn_fabric *fabric, const struct bench_msg_opts *opts);

/* As bench_rpc_run(). */
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

extern const struct load_kind load_msg;

#endif
