/* SPDX-License-Identifier: MIT */
/*
 * Instructions per call, counted by valgrind's callgrind.
 *
 * The caller spawns this program again under callgrind. That process is client and server at once:
 * two threads that take turns, so that neither ever polls in vain. Its clock advances by fixed
 * steps, so that what depends on time happens after the same number of calls in every run. Each
 * turn is made through one of the functions named below, and the caller reads their inclusive cost
 * from callgrind's file.
 */
#ifndef GN_BENCH_COUNT_H
#define GN_BENCH_COUNT_H

#include "kv.h"

enum count_kind { COUNT_RPC, COUNT_KV, COUNT_FABRIC };

struct count_opts {
	enum count_kind kind;
	struct bench_rpc_opts rpc; /* one thread, one client */
	struct bench_kv_opts kv;
	struct bench_opts fabric; /* a one-sided operation; depth: requests of a chain */
	bool post_one;		  /* fabric: by gn_post_one() */
	const char *keep;	  /* where callgrind's file is left; NULL: nowhere */
};

/* Instructions per call, operation or request; turns per message or chain. */
struct count_result {
	uint64_t calls;
	double submit, collect; /* the client's; fabric: post and poll; a local store: all of it */
	double bench;		/* of these, the bench's own */
	double server;		/* NAN where there is none */
	double collect_turns, server_turns;
};

/* 0, -EINTR, or -errno after an error message on stderr. */
int count_run(const struct count_opts *opts, struct count_result *out);

void count_print_head(FILE *f);
void count_print_row(FILE *f, const struct count_opts *opts, const struct count_result *result);
void count_print_json(FILE *f, const struct count_opts *opts, const struct count_result *result);

/* The counted process, spawned as "--bench-count". Returns its exit status. */
int count_main(void);

#endif
