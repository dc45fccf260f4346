/* SPDX-License-Identifier: MIT */
/* Between the files of the layer kv: its load, and its programs against gannet/kv.h. */
#ifndef GN_LAB_KV_LOAD_H
#define GN_LAB_KV_LOAD_H

#include <gannet/kv.h>

#include "calls.h"
#include "draws.h"

#define KV_METHOD 1u /* of operations, for the choices of a connection */

struct kv_load {
	struct call_load call;
	/*
	 * One server with a partition to each thread, of which a client calls the one that owns
	 * its key. Or servers of one partition each, in one process or each in its own (call_run's
	 * each): a client draws one for each batch, or has its own (fixed).
	 */
	unsigned servers;
	bool fixed;
	uint32_t key, value; /* bytes */
	unsigned get_pct;
	unsigned fill_pct; /* bypass: of the table */
	bool zipf;
};

struct kv_run {
	struct call_run call; /* the first: this is found by it */
	const struct kv_load *opts;
	struct draws keys;
	uint64_t *stored;	     /* keys of each server */
	uint64_t bypass_gets, reads; /* of what was measured */
};

/* A process of servers. env->arg: its struct kv_site. */
struct kv_site {
	struct kv_run *run;
	unsigned first, n; /* servers */
};
gn_node_main kv_server_program;
/* A client. */
void kv_call(struct caller *caller);

/* Bytes of a slot that holds what is called at once. */
uint32_t kv_lab_slot_bytes(const struct kv_load *load);
#define KV_ADDRESS_MAX 32u
void kv_address(unsigned server, char out[KV_ADDRESS_MAX]);
/* Key and value of that number; both are found again by it. */
void kv_pair(const struct kv_load *load, unsigned server, uint64_t number, uint8_t *key,
	     uint8_t *value);

#endif
