/* SPDX-License-Identifier: MIT */
/*
 * The load of the I/O engine: the threads of one process read and write blocks of a memory that
 * another process lends. Over shm the same threads copy the same blocks with memcpy, in blocks of
 * time that alternate. Or (volume) they read and write a volume with copies on several donors,
 * which are processes, too.
 */
#ifndef GN_BENCH_IO_H
#define GN_BENCH_IO_H

#include <gannet/io.h>
#include <gannet/vol.h>

#include "load.h"

enum bench_io_op { BENCH_IO_READ, BENCH_IO_WRITE, BENCH_IO_MIXED, BENCH_IO_OPS };

/* The modes of enum gn_io_mr, and memory of the caller that is registered once. */
enum { BENCH_IO_MR_REGISTERED = GN_IO_MRS, BENCH_IO_MRS };

extern const char *const bench_io_ops[BENCH_IO_OPS + 1];
extern const char *const bench_io_batchings[GN_IO_BATCHINGS + 1];
extern const char *const bench_io_mrs[BENCH_IO_MRS + 1];
extern const char *const bench_io_polls[GN_IO_POLLINGS + 1];

#define BENCH_IO_DEPTH_MAX   4096u
#define BENCH_IO_GAP_US_MAX  1000000u
#define BENCH_IO_RATE_MAX    100000000u
#define BENCH_IO_REGION_MAX  (64ull << 30)
#define BENCH_IO_THREADS_MAX 64u

/* load.clients are threads of one process; load.inflight is the depth of each. */
struct bench_io_opts {
	struct load_opts load;
	enum bench_io_op op;
	uint32_t block_bytes; /* a multiple of 8 */
	uint32_t sges;	      /* registered buffers of a block, each with its own key */
	uint64_t region_bytes;
	enum gn_io_batching batching;
	uint32_t mr; /* enum gn_io_mr, or BENCH_IO_MR_REGISTERED */
	enum gn_io_polling poll;
	uint32_t max_retry; /* 0: the library's */
	uint64_t window;    /* of struct gn_io_opts, for READs and for WRITEs */
	uint32_t channels;  /* 0: the library's */
	uint32_t adjacent_pct;
	uint32_t burst;	 /* requests that are submitted and awaited together; 0: none */
	uint32_t gap_us; /* between two bursts */
	uint32_t rate;	 /* requests per second of the process; 0: as fast as they end */
	/* A volume. */
	bool volume, verify;
	uint32_t copies, donors;
	uint64_t slab_bytes;   /* a power of two */
	uint32_t repair_share; /* of struct gn_vol_opts */
	/* Processes: kill a donor after so many seconds, and so often; 0: never. */
	double kill_s;
	uint32_t kills;
	const char *series; /* file with the throughput of each 10 ms; NULL: none */
};

#define BENCH_IO_KILLS_MAX 1000u

/* What happened around the kills of donors: means, unless stated otherwise. */
struct bench_io_kills {
	uint32_t n;
	double outage_ms_p50, outage_ms_p99, outage_ms_max; /* longest time without a completion */
	double detect_ms;				    /* until copies were given up */
	double before_kiops, repair_kiops, after_kiops;
	double repair_s, repair_mib; /* of one kill */
};

extern const struct load_kind load_io;

/* 0, -EINTR after bench_stop_on_signals() caught one, or what went wrong, which has been logged. */
int bench_io_run(const struct bench_io_opts *opts, bench_progress_fn *progress,
		 struct load_result *out, struct bench_io_kills *kills);

void bench_io_print_json(FILE *f, const struct bench_io_opts *opts,
			 const struct load_result *result, const struct bench_io_kills *kills);
void bench_io_print_text(FILE *f, const struct bench_io_opts *opts,
			 const struct load_result *result, const struct bench_io_kills *kills);

#endif
