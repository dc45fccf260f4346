/* SPDX-License-Identifier: MIT */
/*
 * Advice: which protocol of gannet/msg.h is best for a cluster, found by simulating all of them.
 *
 * A question has neighbours: the same with one thing changed. For each, every protocol is run with
 * more and more requests under way until that does not help any more (a ladder), in short runs and
 * side by side; the question's leaders are run again for longer. All is a function of the question
 * and its seed: how many processes do the work changes nothing.
 */
#ifndef GN_LAB_ADVISE_H
#define GN_LAB_ADVISE_H

#include <stdio.h>

#include <gannet/msg.h>

#include "lab.h"

#define ADVISE_PENDING_MAX   256u
#define ADVISE_POINTS_MAX    9u /* 1, 2, 4, … of them */
#define ADVISE_THREADS_MAX   32u
#define ADVISE_COUNTS_MAX    7u /* numbers of threads that are tried */
#define ADVISE_NODES_MAX     128u
#define ADVISE_CONNS_MAX     32768u /* in the whole cluster */
#define ADVISE_NEIGHBOURS    8u	    /* and the question itself */
#define ADVISE_CANDIDATES    8u	    /* the protocols, and READ beside another */
#define ADVISE_LADDERS_MAX   512u
#define ADVISE_TIE	     0.03 /* nearer than this is equal */
#define ADVISE_LABEL_MAX     64u
#define ADVISE_REASON_MAX    160u
#define ADVISE_NO_PROTOCOL   GN_MSG_PROTOCOLS
#define ADVISE_ALL_PROTOCOLS ((1u << GN_MSG_PROTOCOLS) - 1)

enum advise_topology { ADVISE_M1, ADVISE_1M, ADVISE_MM, ADVISE_TOPOLOGIES };

/* "M:1", "1:M", "M:M". */
const char *advise_topology_str(enum advise_topology topology);
/* Letters may be small; -EINVAL: there is no such topology. */
int advise_topology_parse(const char *text, enum advise_topology *out);

struct advise_query {
	enum advise_topology topology;
	unsigned nodes;			   /* that ask; 1:M: that answer; M:M: all */
	unsigned threads_min, threads_max; /* of each node that asks */
	uint32_t request, value;	   /* bytes */
	unsigned read_pct;
	double latency_us;    /* that 99 of 100 requests keep; 0: any */
	unsigned protocols;   /* a bit for each that is considered */
	bool datagrams;	      /* UD may win, too, and not only stand beside */
	unsigned pending_max; /* on each qp */
	const char *profile;  /* a name, or a file's with a '/' */
	const char *preset;   /* paper or gannet */
	uint64_t seed;
	double effort;
	unsigned jobs;
	bool brief; /* without neighbours */
};

/* Connections of the whole cluster, and qps of a node: [0] of one that asks, [1] that answers. */
unsigned advise_conns(const struct advise_query *query, unsigned threads);
void advise_qps(const struct advise_query *query, enum gn_msg_protocol protocol, unsigned threads,
		unsigned out[2]);

/* ---- what was simulated ---- */

struct advise_point {
	unsigned pending;
	double mops, mean_us, p99_us;
	double effort;
	bool longer; /* a leader's second run */
};

/* One protocol in one cluster. Writes are requests with the value in them, and small answers. */
struct advise_ladder {
	unsigned nodes, threads;
	uint32_t value;
	enum gn_msg_protocol protocol;
	bool writes;
	bool whole; /* not ended early: it is to be compared with another, point by point */
	unsigned pending_max;
	unsigned n;
	struct advise_point point[ADVISE_POINTS_MAX]; /* by pending */
	char reason[ADVISE_REASON_MAX];		      /* why there is none, or no more */
};

/* ---- what is made of it ---- */

/* A way to do it: a protocol, or READ for reads and another for writes. */
struct advise_candidate {
	enum gn_msg_protocol protocol;
	enum gn_msg_protocol writer; /* NO_PROTOCOL: the same does it all */
	unsigned threads;
	unsigned pending, writer_pending;
	double mops, gbps, gbps_per_node; /* of values, whichever way they go */
	double mean_us, p99_us;
	bool late;   /* above the query's latency */
	bool apart;  /* datagrams, which nobody has asked for: not compared with the others */
	bool longer; /* from longer runs */
	const char *impossible; /* why, and nothing else is known; or NULL */
};

struct advise_result {
	unsigned n;
	struct advise_candidate candidate[ADVISE_CANDIDATES]; /* the best first */
	unsigned n_equal; /* candidates [1, n_equal] are as good as the first */
};

struct advise_neighbour {
	char label[ADVISE_LABEL_MAX]; /* "twice the nodes (56)" */
	struct advise_query query;
	struct advise_result result;
	bool changes; /* another protocol is best there */
	bool better;  /* with another number of threads: more than now */
};

/* How gannet rpc would be set for the same. */
struct advise_rpc {
	uint32_t fetch_bytes, batch;
	double mops; /* simulated; 0: the batch is a rule's */
};

struct advise_answer {
	struct advise_query query;
	struct advise_result result;
	unsigned n_neighbours;
	struct advise_neighbour neighbour[ADVISE_NEIGHBOURS];
	struct advise_rpc rpc;
	struct advise_candidate quickest; /* the least p99_us of all that was run */
	unsigned runs;
	bool unfinished; /* interrupted */
	/* What it was made of; candidates point into it. */
	struct advise_ladder *ladders;
	unsigned n_ladders;
};

/* Can such a question be answered? -EINVAL and error: why not. */
int advise_check(const struct advise_query *query, struct lab_error *error);

struct advise_env {
	lab_run_fn *msg, *rpc; /* rpc: NULL: what it would say is left to rules */
	void (*progress)(void *arg, unsigned done, unsigned of); /* NULL: nobody looks */
	void *arg;
	const volatile sig_atomic_t *interrupted;
};

/*
 * 0, -EINTR, or -errno and error. After -EINTR the answer is made of what there was. To be freed in
 * every case.
 */
int advise_run(const struct advise_env *env, const struct advise_query *query,
	       struct advise_answer *out, struct lab_error *error);
void advise_free(struct advise_answer *answer);

/* ---- parts of it (advise_rank.c, advise_plan.c) ---- */

/* The numbers of threads to try: how many. */
unsigned advise_threads(const struct advise_query *query, unsigned out[ADVISE_COUNTS_MAX]);
/* The question, with one thing changed: label and query of each are set; how many. */
unsigned advise_neighbours(const struct advise_query *query, const struct advise_candidate *winner,
			   struct advise_neighbour out[ADVISE_NEIGHBOURS]);
/* Adds what answers the query with so many threads and is not there yet; how many there are. */
unsigned advise_ladders(const struct advise_query *query, unsigned threads,
			struct advise_ladder *ladders, unsigned n);
void advise_rank(const struct advise_query *query, const struct advise_ladder *ladders, unsigned n,
		 struct advise_result *out);
bool advise_same(const struct advise_candidate *a, const struct advise_candidate *b);
/* The point of a candidate's reads or writes; NULL: it has none. */
struct advise_point *advise_point_of(const struct advise_query *query,
				     struct advise_ladder *ladders, unsigned n,
				     const struct advise_candidate *candidate, bool writes);

/* Climbs one ladder (advise_climb.c). -EINTR, or 0: what went wrong is in the ladder's reason. */
int advise_climb(const struct advise_env *env, const struct advise_query *query, double effort,
		 struct advise_ladder *ladder);
/* One of its points, for longer. */
int advise_again(const struct advise_env *env, const struct advise_query *query,
		 const struct advise_ladder *ladder, unsigned pending, double effort,
		 struct advise_point *out, struct lab_error *error);

/* ---- words ---- */

/* "READ", or "READ for reads and SEND/SEND for writes". */
#define ADVISE_NAME_MAX 64u
void advise_name(const struct advise_candidate *candidate, char out[ADVISE_NAME_MAX]);
void advise_print(FILE *f, const struct advise_answer *answer);
void advise_json(FILE *f, const struct advise_answer *answer);

#endif
