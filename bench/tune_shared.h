/* SPDX-License-Identifier: MIT */
/*
 * The state that the threads of a tuning share: the present step and each client's counts. In the
 * simulator all nodes share it, too; it carries no data that is measured.
 */
#ifndef GN_BENCH_TUNE_SHARED_H
#define GN_BENCH_TUNE_SHARED_H

#include <gannet/exec.h>
#include <gannet/rpc.h>

#include "tune.h"

#define TUNE_ROUNDS 3u
#define TUNE_STEPS  (GN_RPC_TUNING_RETRIES * 12u + TUNE_POINTS * TUNE_WAYS)

/* One measurement: READs of a size, or calls. */
struct tune_step {
	bool calls;
	uint32_t retries, bytes;
	enum tune_way way;
	double work_us;
};

/* A client's counts of a step, in cache lines of its own. */
struct tune_count {
	_Alignas(128) uint64_t ops;
	uint64_t ns, fetches;
};

struct tune_shared {
	struct tune_opts opts;
	struct tune_step step;
	unsigned rounds;	       /* how often all steps are repeated */
	uint64_t poll_us;	       /* interval at which the counters below are polled */
	uint64_t slice_us;	       /* length of a measurement */
	_Alignas(128) uint32_t number; /* the present step, from 1 on; UINT32_MAX: no more steps */
	uint32_t going, stopped;       /* steps that have begun, and ended */
	_Alignas(128) uint32_t ready;  /* clients, summed over all steps */
	uint32_t done, left;
	int error; /* the first one ends all threads */
	struct tune_count count[TUNE_CLIENTS_MAX];
	tune_progress_fn *progress;
};

static inline uint32_t tune_load(const uint32_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

/* Stores the first error and returns it; returns -EINTR if there is one already. */
int tune_fail(struct tune_shared *shared, const char *what, int rc);
bool tune_over(const struct tune_shared *shared);

/* ---- the parts ---- */

/* Runs all steps and fills in the result (tune.c). */
int tune_control(struct tune_shared *shared, struct tune_result *out);
/* Runs a client in the calling thread until the last step (tune_client.c). */
void tune_client(struct tune_shared *shared, uint32_t index, const char *fabric);

/* A server for calls, and a target for READs (tune_server.c). */
struct tune_server;
int tune_server_start(struct gn_fabric *fabric, const struct tune_opts *opts,
		      struct tune_server **out);
void tune_server_stop(struct tune_server *server);
/* The READ target's address, if calls are served at addr. */
void tune_reads_addr(const char *addr, char *out, size_t room);

/* What either side of the READs needs besides its qps. */
struct tune_endpoint {
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
};
/* 0 or -errno; a failed endpoint must be closed, too. */
int tune_endpoint_open(struct tune_endpoint *e, struct gn_fabric *fabric, uint32_t cq_depth,
		       size_t bytes, unsigned remote_rights);
void tune_endpoint_close(struct tune_endpoint *e);

#define TUNE_METHOD	0u
#define TUNE_SLOT_BYTES 8192u /* a client's part of the READ target */
#define TUNE_HEAD_BYTES 40u   /* head and tail of an RPC message */

#endif
