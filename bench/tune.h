/* SPDX-License-Identifier: MIT */
/*
 * What rpc tune measures, as the gannet command sees it: RF-RPC 3.2's parameter selection.
 *
 * How many calls a network can carry when each takes one write and R reads of F bytes, with many
 * clients: I(R, F), without any server's CPU. And what calls that the server computes for a while
 * come to, when their results are fetched and when they are written back. From both: until when it
 * is better to fetch.
 *
 * The same programs run as threads of this process, which measures the machine, and on the nodes of
 * a simulated cluster.
 */
#ifndef GN_BENCH_TUNE_H
#define GN_BENCH_TUNE_H

#include <gannet/rpc.h>
#include <stdio.h>

#define TUNE_CLIENTS_MAX 256u
#define TUNE_THREADS_MAX 64u
#define TUNE_POINTS	 16u
#define TUNE_ADDR_BYTES	 192u

enum tune_way {
	TUNE_FETCH, /* waits for the time that the server reports */
	TUNE_EAGER, /* the papers': reads again and again */
	TUNE_REPLY,
	TUNE_WAYS
};

struct tune_opts {
	char provider[80];	    /* for gn_fabric_open() */
	char addr[TUNE_ADDR_BYTES]; /* where the server is */
	bool elsewhere;		    /* it runs already: tune_serve() */
	const char *profile;	    /* of a simulated cluster; NULL: this machine */
	uint32_t clients, threads;
	double seconds; /* of all measurements together; of a simulation nothing */
	uint64_t seed;
};

/* Calls in a millisecond, of all clients; NAN: not measured. */
struct tune_point {
	double work_us; /* that the server computes for each */
	double rate[TUNE_WAYS];
	double fetches; /* of a call, by TUNE_EAGER */
};

struct tune_result {
	struct gn_rpc_tuning tuning; /* rates of 0 were not measured */
	struct tune_point point[TUNE_POINTS];
};

typedef void tune_progress_fn(double done);

/*
 * 0, or what went wrong, which has been logged; -EINTR after bench_stop_on_signals() caught one:
 * then *out has what there is, and no choice.
 */
int tune_run(const struct tune_opts *opts, tune_progress_fn *progress, struct tune_result *out);

/* The server's half alone, until a signal; says on stdout when it is ready. Errors are logged. */
int tune_serve(const struct tune_opts *opts);

void tune_print(FILE *f, const struct tune_opts *opts, const struct tune_result *result);
void tune_print_json(FILE *f, const struct tune_opts *opts, const struct tune_result *result);

#endif
