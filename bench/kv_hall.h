/* SPDX-License-Identifier: MIT */
/*
 * What the processes of a run of the store share, and what the files of the benchmark share.
 */
#ifndef GN_BENCH_KV_HALL_H
#define GN_BENCH_KV_HALL_H

#include <gannet/kv.h>

#include "crew.h"
#include "kv.h"

#define METHOD_HOLD 0xfe00u /* beside the store's own */

/* What a client has done; its own lines. */
struct kv_tally {
	LINE uint64_t gets;
	uint64_t puts, hits;
	uint64_t bypass_gets, reads;
};

struct kv_hall {
	struct crew_hall crew;
	struct bench_kv_opts opts;
	struct kv_tally tally[CREW_CLIENTS_MAX];
};

/* Of the store: enough for all keys, whatever holds them (kv_server.c). */
uint64_t kv_memory(const struct bench_kv_opts *opts);
/* Of a connection: messages under way, and what they have room for. */
uint32_t kv_slots(const struct bench_kv_opts *opts);
uint32_t kv_slot_bytes(const struct bench_kv_opts *opts);

/* ---- what is asked for (kv_load.c) ---- */

/*
 * Which keys, in which order, drawn before anything is measured; and what each operation looks
 * like. Both the client and the store without calls do these.
 */
struct kv_load {
	const struct bench_kv_opts *opts;
	uint32_t *ring; /* keys, with LOAD_PUT in those that are stored */
	uint32_t n, at;
	uint32_t version; /* of the next value */
	struct kv_tally *tally;
};

int kv_load_create(struct kv_load *load, const struct bench_kv_opts *opts, uint64_t seed,
		   struct kv_tally *tally);
void kv_load_destroy(struct kv_load *load);

/* Operations, and their bytes; what is of the i-th is at i times a stride. */
struct kv_errands {
	struct gn_kv_op *ops;
	uint32_t *numbers; /* of their keys */
	uint8_t *keys, *values;
	size_t key_stride, value_stride;
};

int kv_errands_make(struct kv_errands *errands, const struct bench_kv_opts *opts, uint32_t n);
void kv_errands_free(struct kv_errands *errands);

/* The i-th becomes the next of the ring; and goes back to it, when it could not be begun. */
void kv_errand_next(struct kv_load *load, struct kv_errands *errands, uint32_t i);
void kv_errand_undo(struct kv_load *load);
/* It has ended: is all well with it? Counts it. What is found is looked at byte by byte. */
int kv_errand_check(struct kv_load *load, const struct kv_errands *errands, uint32_t i);

/* Stores all keys, several at a time, by do_some, which does those and returns 0. */
int kv_fill(struct kv_load *load, int (*do_some)(void *arg, struct gn_kv_op *ops, unsigned n),
	    void *arg);

/* ---- a client (kv_client.c) ---- */

extern const struct crew_client kv_user_ops;
/* Stores all keys. */
int kv_user_fill(void *user);
/* Ends what is under way; the first partition's connection. */
struct gn_rpc_client *kv_user_rest(void *user);
/* The store's own figures. */
int kv_user_stats(void *user, struct gn_kv_stats *out);

/* ---- the store without calls (kv_local.c) ---- */

struct kv_local;
int kv_local_create(const struct bench_kv_opts *opts, struct kv_tally *tally,
		    struct kv_local **out);
void kv_local_destroy(struct kv_local *local);
/* A load. */
int kv_local_run(void *local, uint64_t block_ns, struct block *out);
void kv_local_stats(struct kv_local *local, struct gn_kv_stats *out);

/* ---- the server (kv_server.c) ---- */

int kv_server_main(struct kv_hall *hall);

#endif
