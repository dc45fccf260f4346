/* SPDX-License-Identifier: MIT */
/* The control block of the load of the I/O engine, and what its client and its server share. */
#ifndef GN_BENCH_IO_LOAD_H
#define GN_BENCH_IO_LOAD_H

#include "io.h"

struct io_run {
	struct load_run load;
	struct bench_io_opts opts;
	struct gn_remote remote; /* the lent memory; set before the server listens */
	/* Processes of donors; set before they listen. */
	int32_t donor_pid[GN_VOL_DONORS_MAX];
};

/* What the threads of a process share. */
struct io_process {
	struct gn_io *io; /* of a volume: the volume's */
	struct gn_io_target *target;
	struct gn_io_region *region;
	struct gn_vol *vol;
	/* shm: where the extents of the lent memory are mapped, for memcpy. One if no volume. */
	uint8_t **lent;
	unsigned lent_shift; /* extents have 1 << lent_shift bytes */
	struct io_watch *watch;
	uint32_t users; /* atomic: clients that have not closed */
	uint32_t ready; /* atomic: the target is open */
};

/*
 * What the memory has at an offset that is a multiple of the block size: first the word below, then
 * io_fill()'s bytes, which are the same in all blocks. A WRITE stores the same.
 */
static inline uint64_t io_first_word(uint64_t offset, uint64_t seed)
{
	return (offset + 1) * 0x9e3779b97f4a7c15u ^ seed;
}

static inline void io_fill(uint8_t *block, uint32_t bytes, uint64_t offset, uint64_t seed)
{
	const uint64_t word = io_first_word(offset, seed);

	pattern_fill(block, bytes, seed);
	memcpy(block, &word, sizeof(word));
}

/* Fills a whole region. */
void io_fill_region(uint8_t *region, const struct bench_io_opts *opts);

/* ---- the server (io_server.c) ---- */

int io_serve(struct load_proc *proc, uint32_t number);

/* ---- the lent memory in this process (io_lent.c) ---- */

/* shm: finds where the lent memory, which has been filled, is mapped. */
int io_lent_find(const struct io_run *run, struct io_process *p);

static inline uint8_t *io_lent_at(const struct io_process *p, uint64_t offset)
{
	return p->lent[offset >> p->lent_shift] + (offset & ((1ull << p->lent_shift) - 1));
}

/* ---- the queue of a thread, to the engine or to a volume (io_volume.c) ---- */

struct io_queue {
	struct gn_io_queue *io;
	struct gn_vol_queue *vol;
	struct gn_io_req *reqs;	  /* of the client … */
	struct gn_vol_req *twins; /* … and those that a volume gets in place of them */
	struct gn_vol_req **list;
};

int io_queue_create(struct io_process *p, struct gn_io_req *reqs, uint32_t depth,
		    struct io_queue *out);
int io_queue_destroy(struct io_queue *q);
int io_queue_source(struct io_queue *q, struct gn_source **out);
/* As the functions of gannet/io.h. */
int io_queue_submit(struct io_queue *q, struct gn_io_req *const *reqs, uint32_t n);
int io_queue_poll(struct io_queue *q, struct gn_io_req **reqs, uint32_t n);
int io_queue_wait(struct io_queue *q, struct gn_io_req **reqs, uint32_t n, uint64_t deadline_ns);
int io_queue_run(struct io_queue *q, struct gn_io_req *req);

/* ---- volumes (io_volume.c) ---- */

/* Creates the volume of a process, when all donors listen. */
int io_volume_open(struct load_proc *proc, struct io_process *p, const struct gn_io_opts *io);
int io_volume_close(struct io_process *p);
/* READs and WRITEs that have ended. */
uint64_t io_volume_requests(const struct io_process *p);
/* A donor. */
int io_volume_serve(struct load_proc *proc, uint32_t number);

/* ---- kills of donors (io_kill.c) ---- */

#define IO_BUCKET_NS 10000000u

/* Requests that ended, in time: of all threads of a process. */
struct io_watch {
	uint64_t begin_ns;
	uint32_t n; /* buckets */
	uint64_t *ended;
	uint64_t gap_ns; /* atomic: the longest between two completions of a thread */
};

/* n requests of a thread have ended; *last_ns: when the last ones did. */
void io_watch_note(struct io_watch *watch, uint32_t n, uint64_t *last_ns);

int io_kill_run(const struct bench_io_opts *opts, bench_progress_fn *progress,
		struct load_result *out, struct bench_io_kills *kills);

#endif
