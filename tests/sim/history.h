/* SPDX-License-Identifier: MIT */
/*
 * What clients saw of a key-value store, and whether one store could have shown it to them: is there
 * for each key an order of its operations, each between its beginning and its end, in which a store
 * that does one at a time answers just so? (Herlihy and Wing's linearizability; the search is Wing
 * and Gong's, with Lowe's memory of where it was.)
 *
 * An operation whose outcome is not known may have been done at any time after it began, or never.
 * What was stored may be forgotten as the history's options and its operations say, and in no other
 * way; what was forgotten does not come back. Versions grow: a later write has a larger one.
 *
 * Values are lists of pieces: whoever writes one knows what pieces it has, and whoever reads bytes
 * finds out which pieces they are, or that they are none (kv_value.c). Two operations do not write
 * the same piece, and none is joined to a value that has no pieces of its own.
 */
#ifndef GN_TESTS_SIM_HISTORY_H
#define GN_TESTS_SIM_HISTORY_H

#include "gannet/kv.h"

#define HISTORY_NEVER	 UINT64_MAX
#define HISTORY_FORGET	 GN_KV_VERBS	   /* a verb: all is forgotten */
#define HISTORY_RESTART	 (GN_KV_VERBS + 1) /* … with the server, and another begins */
#define HISTORY_UNSEEN	 UINT32_MAX	   /* of a value, or its length: the client did not look */
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
