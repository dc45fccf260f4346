/* SPDX-License-Identifier: MIT */
/*
 * What the programs of a tuning share. In the simulator, too, this is memory that all nodes see,
 * and carries orders and results only.
 */
#ifndef GN_BENCH_TUNE_HALL_H
#define GN_BENCH_TUNE_HALL_H

#include <gannet/exec.h>
#include <gannet/rpc.h>

#include "tune.h"

#define TUNE_ROUNDS 3u
#define TUNE_STEPS  (GN_RPC_TUNING_RETRIES * 12u + TUNE_POINTS * TUNE_WAYS)

/* A measurement: either reads of so many bytes, or calls. */
struct tune_step {
	bool calls;
	uint32_t retries, bytes;
	enum tune_way way;
	double work_us;
};

/* What a client has done in a step; its own lines. */
struct tune_count {
	_Alignas(128) uint64_t ops;
	uint64_t ns, fetches;
};

struct tune_hall {
	struct tune_opts opts;
	struct tune_step step;
	unsigned rounds;	       /* of all steps */
	uint64_t nap_us;	       /* between two looks at the words below */
	uint64_t slice_us;	       /* of a measurement */
	_Alignas(128) uint32_t number; /* of the step, from 1 on; UINT32_MAX: there are no more */
	uint32_t going, stopped;       /* steps that have begun, and ended */
	_Alignas(128) uint32_t ready;  /* clients, of all steps together */
	uint32_t done, left;
	int error; /* the first one; it ends everything */
	struct tune_count count[TUNE_CLIENTS_MAX];
	tune_progress_fn *progress;
};

static inline uint32_t tune_word(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Notes the first error and returns it; -EINTR when there is one already, or a signal came. */
int tune_fail(struct tune_hall *hall, const char *what, int rc);
bool tune_over(const struct tune_hall *hall);

/* ---- the parts ---- */

/* Orders all steps, and fills in the result (tune.c). */
int tune_control(struct tune_hall *hall, struct tune_result *out);
/* A client, from beginning to end, on a thread of its own (tune_client.c). */
void tune_client(struct tune_hall *hall, uint32_t index, const char *fabric);

/* Both servers: one for calls, and one whose memory is read (tune_server.c). */
struct tune_server;
int tune_server_start(struct gn_fabric *fabric, const struct tune_opts *opts,
		      struct tune_server **out);
void tune_server_stop(struct tune_server *server);
/* Where the memory is, if calls are served at addr. */
void tune_reads_addr(const char *addr, char *out, size_t room);

#define TUNE_METHOD	0u
#define TUNE_SLOT_BYTES 8192u /* of memory that a client reads and writes */
#define TUNE_HEAD_BYTES 40u   /* what a message has besides its bytes */

#endif
