/* SPDX-License-Identifier: MIT */
/* The control block of the load of the store, and what its parts share. */
#ifndef GN_BENCH_KV_LOAD_H
#define GN_BENCH_KV_LOAD_H

#include <gannet/kv.h>

#include "kv.h"

#define METHOD_HOLD 0xfe00u /* beside the store's own */
#define METHOD_KV   1u	    /* of operations, for the choices of a connection */

struct kv_run {
	struct load_run load;
	struct bench_kv_opts opts;
	uint32_t servers;
	uint64_t stored[LOAD_SERVERS_MAX]; /* keys of each server */
};

/* Of a connection: messages under way, and how long they may be. */
uint32_t kv_slots(const struct bench_kv_opts *opts);
uint32_t kv_slot_bytes(const struct bench_kv_opts *opts);

/* Why there is no store, and which options to change. Returns rc. */
int kv_no_store(const struct bench_kv_opts *opts, int rc, char why[LOAD_ERROR_MAX]);

/* ---- operations (kv_ops.c) ---- */

/* Which keys come in which order, drawn before anything is measured. */
struct kv_draws {
	const struct bench_kv_opts *opts;
	uint32_t *ring; /* keys, with KV_PUT in those that are stored */
	uint32_t n, at;
	uint32_t version; /* of the next value */
	struct load_sums *sums;
};

/* keys: how many there are, with numbers from 0 on. */
int kv_draws_create(struct kv_draws *draws, const struct bench_kv_opts *opts, uint32_t keys,
		    uint64_t seed, struct load_sums *sums);
void kv_draws_destroy(struct kv_draws *draws);

/* Operations and their bytes; what is of the i-th is at i times a stride. */
struct kv_ops {
	struct gn_kv_op *ops;
	uint32_t *numbers; /* of their keys */
	uint8_t *keys, *values;
	size_t key_stride, value_stride;
};

int kv_ops_make(struct kv_ops *ops, const struct bench_kv_opts *opts, uint32_t n);
void kv_ops_free(struct kv_ops *ops);

/* The i-th becomes the next of the ring, of keys from base on. */
void kv_op_next(struct kv_draws *draws, struct kv_ops *ops, uint32_t i, uint32_t base);
/* It goes back to the ring: it could not be begun. */
void kv_op_undo(struct kv_draws *draws);
/* It has ended: counts it, and checks what a GET found, byte by byte. -EBADMSG and why. */
#define KV_WHY_MAX 96u
int kv_op_check(struct kv_draws *draws, const struct kv_ops *ops, uint32_t i, char why[KV_WHY_MAX]);

/* Stores keys [first, first + n), several at a time, by do_some, which does those and returns 0. */
int kv_fill(const struct bench_kv_opts *opts, uint32_t first, uint32_t n,
	    int (*do_some)(void *arg, struct gn_kv_op *ops, unsigned n), void *arg,
	    char why[KV_WHY_MAX]);

/* ---- a client (kv_client.c) ---- */

/* The first partition's connection, and the store's own figures. */
struct gn_rpc_client *kv_client_connection(const struct load_client *client);
int kv_client_stats(const struct load_client *client, struct gn_kv_stats *out);

/* ---- the store without calls (kv_local.c) ---- */

struct kv_local;
int kv_local_create(const struct bench_kv_opts *opts, struct kv_local **out);
void kv_local_destroy(struct kv_local *local);
/* A load of blocks.c. */
int kv_local_run(void *local, uint64_t block_ns, struct block *out);
void kv_local_stats(const struct kv_local *local, struct gn_kv_stats *out, struct load_sums *sums);

/* ---- the server (kv_server.c) ---- */

int kv_serve(struct load_proc *proc, uint32_t number);
void kv_server_opts(const struct bench_kv_opts *opts, struct gn_kv_server_opts *out);
void kv_client_opts(const struct bench_kv_opts *opts, struct gn_kv_client_opts *out);

#endif
