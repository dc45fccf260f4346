/* SPDX-License-Identifier: MIT */
/*
 * Checks the operations of clients of a key-value store for linearizability (Herlihy and Wing): for
 * each key there must be an order of its operations, each between its begin and its end, in which a
 * sequential store returns the same results. The search is that of Wing and Gong, with Lowe's cache
 * of visited states.
 *
 * An operation with an unknown outcome may have been executed at any time after its begin, or never.
 * A stored item may be evicted as the history's options and its operations allow, and does not come
 * back. Versions grow: a later write has a larger one.
 *
 * A value is a list of pieces: its writer knows the pieces, and a reader identifies the pieces of the
 * bytes it read, or finds that they are none (kv_value.c). No two operations write the same piece,
 * and no piece is appended to a value without pieces.
 */
#ifndef GN_TESTS_SIM_HISTORY_H
#define GN_TESTS_SIM_HISTORY_H

#include "gannet/kv.h"

#define HISTORY_NEVER	 UINT64_MAX
#define HISTORY_FORGET	 GN_KV_VERBS	   /* a verb: all is forgotten */
#define HISTORY_RESTART	 (GN_KV_VERBS + 1) /* … with the server, and another begins */
#define HISTORY_UNSEEN	 UINT32_MAX /* a value, or its length, that the client did not read */
#define HISTORY_SLACK_NS 1000000000ull	   /* how exactly a store counts seconds */

/* A piece of a value: what one operation wrote, or a number in decimal. */
struct piece {
	uint64_t what;
	uint32_t len;
	bool number;
};

struct history_op {
	unsigned client, verb, how; /* enum gn_kv_verb or one of the above; enum gn_kv_how */
	uint32_t key;
	uint32_t value; /* that is written: see history_value() */
	uint32_t flags, ttl_s, create_s;
	uint64_t cas, new_cas, number, initial;
	uint64_t begin_ns, end_ns; /* HISTORY_NEVER: it did not */
	uint32_t last_epoch;	   /* the server's, in which it may have been done at last */
	uint32_t batch;		   /* not 0: what is in one is done in order, but for reads */
	/* valid when it has ended */
	unsigned status;
	uint32_t seen, seen_len; /* value, or HISTORY_UNSEEN */
	uint32_t seen_flags;	 /* of a value that was seen */
	bool flags_unseen;	 /* … but they were not */
	uint64_t seen_cas;	 /* 0: not */
	uint64_t seen_number;
	/* private */
	uint64_t version; /* of what it wrote, if anybody has seen that; 0 */
};

struct history_opts {
	bool may_evict; /* anything may be forgotten at any time */
	uint64_t most;	/* steps of the search for one key; 0: half a million */
};

struct history;

struct history *history_create(const struct history_opts *opts);
void history_destroy(struct history *h);

/* The number of a value, equal for equal lists of pieces; the empty list is 0. */
uint32_t history_value(struct history *h, const struct piece *pieces, unsigned n);
/* A new operation, to be filled in; the number is its place. Valid until the next one is made. */
struct history_op *history_add(struct history *h, uint32_t *number);
struct history_op *history_at(struct history *h, uint32_t number);
uint32_t history_ops(const struct history *h);

enum history_verdict { HISTORY_RIGHT, HISTORY_WRONG, HISTORY_UNDECIDED };
struct history_result {
	enum history_verdict verdict; /* the worst over all keys */
	uint32_t key;		      /* where it is not right */
	uint32_t stuck;		      /* … and the operation that fits nowhere, or 0 */
	uint32_t keys, undecided;
	uint64_t steps;
	char why[256];
};
void history_check(struct history *h, struct history_result *out);
/* All operations on a key, as text for people, one line each. */
void history_print(const struct history *h, uint32_t key);

#endif
