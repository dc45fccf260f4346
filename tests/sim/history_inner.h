/* SPDX-License-Identifier: MIT */
/* Shared by history.c (record), history_step.c (sequential store) and history_search.c (search). */
#ifndef GN_TESTS_SIM_HISTORY_INNER_H
#define GN_TESTS_SIM_HISTORY_INNER_H

#include "history.h"

#define HISTORY_ANY_CAS UINT64_MAX /* a version that no client has seen yet */

/* A key, as it is at one moment of one order. Compared and hashed byte by byte: no holes. */
struct key_state {
	uint32_t value, flags;
	uint64_t cas;
	uint64_t top;			   /* the last version that a server has given */
	uint64_t dies_from_ns, dies_by_ns; /* it may be expired from, must be expired by */
	uint32_t epoch;
	uint32_t present;
};

struct history_value {
	struct piece *pieces;
	uint32_t n, len;
	uint64_t hash;
};

/* A version, and the value that was seen with it. */
struct named {
	uint64_t cas;
	uint32_t value;
};

struct history {
	struct history_opts opts;
	struct history_op *op;
	uint32_t n_ops, ops_room;
	struct history_value *value;
	uint32_t n_values, values_room;
	uint32_t *by_hash; /* 1 + value, open addressing */
	uint32_t hash_room;
	/* of the key that is looked at */
	struct named *named;
	uint32_t n_named, named_room;
};

/* history.c */
bool history_known(const struct history_op *op);
/* For one key: it has this value with that version; false if it had another. */
bool history_name(struct history *h, uint64_t cas, uint32_t value);
bool history_named(const struct history *h, uint64_t cas, uint32_t *value);

/*
 * history_step.c: what op does to a key in state at, with the answer that it had. False if it does
 * not answer so there; or, if its answer is not known, does nothing.
 */
bool history_step(struct history *h, const struct history_op *op, const struct key_state *at,
		  struct key_state *to);
/* … if it finds the key as it is, and if it finds it forgotten: may it? */
bool history_may_live(const struct history_op *op, const struct key_state *at);
bool history_may_die(const struct history *h, const struct history_op *op,
		     const struct key_state *at);

/* history_search.c: the operations of one key. */
void history_search(struct history *h, const uint32_t *ops, uint32_t n, uint32_t key,
		    struct history_result *out);

/* The key, as at, but forgotten. */
static inline struct key_state history_absent(const struct key_state *at)
{
	const struct key_state absent = {.top = at->top,
					 .dies_from_ns = HISTORY_NEVER,
					 .dies_by_ns = HISTORY_NEVER,
					 .epoch = at->epoch};

	return absent;
}

static inline uint64_t history_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

#endif
