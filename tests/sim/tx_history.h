/* SPDX-License-Identifier: MIT */
/*
 * Histories of transactions, and whether they are strictly serializable: is there an order of all
 * committed transactions that respects real time and in which each reads what was written last?
 *
 * The order of the versions of a key is known, because each write names the version before it. So
 * the answer is exact and quick: the order exists if the graph of what had to come before what has
 * no cycle. Digests are unique to a write: they tell whose value a read has seen.
 */
#ifndef GN_TESTS_TX_HISTORY_H
#define GN_TESTS_TX_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

enum tx_outcome {
	TX_HISTORY_OK,
	TX_HISTORY_FAIL, /* aborted: nobody sees its writes */
	TX_HISTORY_INFO, /* not known: committed if somebody has seen it */
};

#define TX_HISTORY_NEVER UINT64_MAX /* ret_ns of an attempt that did not return */

struct tx_access {
	uint32_t key;	  /* the test's number of it */
	char op;	  /* write: 'i', 'u', 'd'; read: 'r' */
	bool present;	  /* read: there was a value; write: not 'd' */
	uint64_t prev;	  /* write: the version before it */
	uint64_t version; /* read or written */
	uint64_t digest;  /* of the value; 0 without one */
};

struct tx_history;

struct tx_history *tx_history_create(uint32_t n_keys);
void tx_history_destroy(struct tx_history *h);
/* A value that is there at the beginning. Keys without one are absent, with version 0. */
void tx_history_init(struct tx_history *h, uint32_t key, uint64_t version, uint64_t digest);
/* An attempt. Its accesses are added by tx_history_access(), its end by tx_history_end(). */
uint32_t tx_history_begin(struct tx_history *h, uint64_t inv_ns);
void tx_history_access(struct tx_history *h, uint32_t attempt, const struct tx_access *access);
void tx_history_end(struct tx_history *h, uint32_t attempt, enum tx_outcome outcome,
		    uint64_t ret_ns);
/* What a replica has at the end; for each key that was ever written and each of its replicas. */
void tx_history_final(struct tx_history *h, uint32_t key, uint64_t version, bool present,
		      uint64_t digest);

/* 0, or -EILSEQ: tx_history_error() says why. */
int tx_history_check(struct tx_history *h);
const char *tx_history_error(const struct tx_history *h);

#endif
