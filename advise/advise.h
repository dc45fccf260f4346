/* SPDX-License-Identifier: MIT */
/*
 * gannet advise: finds the best protocol of gannet/msg.h for a cluster by simulating all of them.
 *
 * A query has variants, each with one parameter changed. For the query and each variant every
 * protocol is run with more and more outstanding requests until the throughput stops growing (a
 * sweep), in short runs. The leaders of the query are run again for longer. The answer depends on
 * the query and its seed only, not on the number of worker processes.
 */
#ifndef GN_ADVISE_H
#define GN_ADVISE_H

#include <stdio.h>

#include "msg.h"
#include "rpc.h"

#define ADVISE_PENDING_MAX   256u
#define ADVISE_POINTS_MAX    9u /* of a sweep: 1, 2, 4, … outstanding requests */
#define ADVISE_THREADS_MAX   32u
#define ADVISE_COUNTS_MAX    7u /* thread counts that are tried */
#define ADVISE_NODES_MAX     128u
#define ADVISE_CONNS_MAX     32768u /* in the whole cluster */
#define ADVISE_VARIANTS_MAX  8u	    /* of a query */
#define ADVISE_CANDIDATES    8u	    /* the protocols, and READ combined with another */
#define ADVISE_SWEEPS_MAX    512u
#define ADVISE_TIE	     0.03 /* a smaller relative difference counts as equal */
#define ADVISE_LABEL_MAX     64u
#define ADVISE_REASON_MAX    160u
#define ADVISE_NO_PROTOCOL   GN_MSG_PROTOCOLS
#define ADVISE_ALL_PROTOCOLS ((1u << GN_MSG_PROTOCOLS) - 1)

struct advise_query {
	enum bench_msg_topology topology;
	unsigned nodes;			   /* clients; 1:M: servers; M:M: all nodes */
	unsigned threads_min, threads_max; /* of each client node */
	uint32_t request, value;	   /* bytes */
	unsigned read_pct;
	double latency_us;    /* limit of the 99th percentile; 0: none */
	unsigned protocols;   /* bit mask of the candidates */
	bool datagrams;	      /* rank UD with the others */
	unsigned pending_max; /* outstanding requests on each qp */
	const char *profile;  /* a name, or a file name with a '/' */
	uint32_t paper;	      /* of load_presets */
	uint64_t seed;
	double effort;
	unsigned jobs;
	bool brief; /* no variants */
};

/* Connections of the whole cluster, and qps of a node: [0] of a client, [1] of a server. */
unsigned advise_conns(const struct advise_query *query, unsigned threads);
void advise_qps(const struct advise_query *query, enum gn_msg_protocol protocol, unsigned threads,
		unsigned out[2]);

/* ---- simulations ---- */

struct advise_point {
	unsigned pending;
	double mops, mean_us, p99_us;
	double effort;
	bool long_run; /* from the second, longer run of a leader */
};

/* One protocol in one cluster. A write is a request that carries the value, and a small reply. */
struct advise_sweep {
	unsigned nodes, threads;
	uint32_t value;
	enum gn_msg_protocol protocol;
	bool writes;
	bool whole; /* do not stop early: its points are combined with another sweep's */
	unsigned pending_max;
	unsigned n;
	struct advise_point point[ADVISE_POINTS_MAX]; /* in the order of pending */
	char reason[ADVISE_REASON_MAX];		      /* why there are no points, or no more */
};

/* ---- the answer ---- */

/* One protocol, or READ for reads and another for writes. */
struct advise_candidate {
	enum gn_msg_protocol protocol;
	enum gn_msg_protocol writer; /* NO_PROTOCOL: the same for reads and writes */
	unsigned threads;
	unsigned pending, writer_pending;
	double mops, gbps, gbps_per_node; /* of values, in either direction */
	double mean_us, p99_us;
	bool late;		/* above the query's latency limit */
	bool unranked;		/* UD without query.datagrams: shown after the others */
	bool long_run;		/* all of its points are from long runs */
	const char *impossible; /* the reason why it cannot be run; NULL: it can */
};

struct advise_result {
	unsigned n;
	struct advise_candidate candidate[ADVISE_CANDIDATES]; /* the best first */
	unsigned n_equal; /* candidates [1, n_equal] are equal to the first */
};

struct advise_variant {
	char label[ADVISE_LABEL_MAX]; /* "twice the nodes (56)" */
	struct advise_query query;
	struct advise_result result;
	bool changes; /* another protocol is best */
	bool better;  /* another thread count has more throughput */
};

/* Settings of gannet rpc for the same load. */
struct advise_rpc {
	uint32_t fetch_bytes, batch;
	double mops; /* simulated; 0: the batch was not simulated */
};

struct advise_answer {
	struct advise_query query;
	struct advise_result result;
	unsigned n_variants;
	struct advise_variant variant[ADVISE_VARIANTS_MAX];
	struct advise_rpc rpc;
	struct advise_candidate quickest; /* the lowest p99_us of all runs */
	unsigned runs;
	bool unfinished; /* interrupted */
	/* All sweeps; candidates point into them. */
	struct advise_sweep *sweeps;
	unsigned n_sweeps;
};

/* Checks that the query can be simulated. -EINVAL and why not. */
int advise_check(const struct advise_query *query, char why[BENCH_WHY_MAX]);

struct advise_env {
	/* bench_msg_run(), bench_rpc_run(), or a test's. No rpc: rpc.batch is not simulated. */
	int (*msg)(const struct bench_msg_opts *opts, bench_progress_fn *progress,
		   struct bench_msg_result *out);
	int (*rpc)(const struct bench_rpc_opts *opts, bench_progress_fn *progress,
		   struct load_result *out);
	void (*progress)(void *arg, unsigned done, unsigned of); /* or NULL */
	void *arg;
	const volatile sig_atomic_t *interrupted;
};

/*
 * 0; -EINTR: the answer is made of the finished runs; or -errno and why. Call advise_free() in
 * every case.
 */
int advise_run(const struct advise_env *env, const struct advise_query *query,
	       struct advise_answer *out, char why[BENCH_WHY_MAX]);
void advise_free(struct advise_answer *answer);

/* ---- parts of the search (query.c, rank.c, sweep.c) ---- */

/* Fills in the thread counts to try; returns how many. */
unsigned advise_threads(const struct advise_query *query, unsigned out[ADVISE_COUNTS_MAX]);
/* Fills in label and query of each variant; returns how many. */
unsigned advise_variants(const struct advise_query *query, const struct advise_candidate *winner,
			 struct advise_variant out[ADVISE_VARIANTS_MAX]);
/* Adds the sweeps that the query needs with this thread count; returns their new number. */
unsigned advise_sweeps(const struct advise_query *query, unsigned threads,
		       struct advise_sweep *sweeps, unsigned n);
void advise_rank(const struct advise_query *query, const struct advise_sweep *sweeps, unsigned n,
		 struct advise_result *out);
bool advise_same(const struct advise_candidate *a, const struct advise_candidate *b);
/* The point of a candidate's reads or writes, or NULL. */
struct advise_point *advise_point_of(const struct advise_query *query, struct advise_sweep *sweeps,
				     unsigned n, const struct advise_candidate *candidate,
				     bool writes);

/* Runs one sweep. -EINTR, or 0: an error is in the reason of the sweep. */
int advise_sweep_run(const struct advise_env *env, const struct advise_query *query, double effort,
		     struct advise_sweep *sweep);
/* Runs one point of a sweep. */
int advise_point_run(const struct advise_env *env, const struct advise_query *query,
		     const struct advise_sweep *sweep, unsigned pending, double effort,
		     struct advise_point *out, char why[BENCH_WHY_MAX]);

/* ---- output (answer_text.c, answer_json.c) ---- */

/* "READ", or "READ for reads and SEND/SEND for writes". */
#define ADVISE_NAME_MAX 64u
void advise_name(const struct advise_candidate *candidate, char out[ADVISE_NAME_MAX]);
void advise_print(FILE *f, const struct advise_answer *answer);
void advise_json(FILE *f, const struct advise_answer *answer);

#endif
