/* SPDX-License-Identifier: MIT */
/*
 * The limit of every latency: two processes on two cores, one cache line for each direction, a
 * pause in the spin. No message between these cores can be faster.
 */
#include "pair.h"

#include <errno.h>

/* The peer's half. */
int cacheline_answer(struct shared *shared)
{
	struct patience patience = patience_for(&shared->opts, SILENCE_US);
	uint64_t last = __atomic_load_n(&shared->pong, __ATOMIC_RELAXED);
	int rc = 0;

	while (!rc) {
		/* Pairs with the release in trip(). */
		const uint64_t now = __atomic_load_n(&shared->ping, __ATOMIC_ACQUIRE);

		if (now == last) {
			rc = patience_turn(&patience);
			continue;
		}
		if (now == CACHELINE_END)
			return 0;
		patience_reset(&patience);
		last = now;
		/* Pairs with the acquire in trip(). */
		__atomic_store_n(&shared->pong, now, __ATOMIC_RELEASE);
	}
	return rc;
}

static inline int trip(struct shared *shared, struct patience *patience, uint64_t number)
{
	/* Pairs with the acquire in cacheline_answer(). */
	__atomic_store_n(&shared->ping, number, __ATOMIC_RELEASE);
	/* Pairs with the release in cacheline_answer(). */
	while (__atomic_load_n(&shared->pong, __ATOMIC_ACQUIRE) != number) {
		const int rc = patience_turn(patience);

		if (rc)
			return rc;
	}
	patience_reset(patience);
	return 0;
}

static int trips(struct shared *shared, struct patience *patience, uint64_t *number)
{
	for (unsigned i = 0; i < GROUP_TRIPS; i++) {
		const int rc = trip(shared, patience, ++*number);

		if (rc)
			return rc;
	}
	return 0;
}

int cacheline_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct pair *pair = arg;
	struct shared *shared = pair->shared;
	struct patience patience = patience_for(&shared->opts, SILENCE_US);
	uint64_t number = shared->pong, since_ns;
	int rc;

	/* Not the end that the last block left there. */
	__atomic_store_n(&shared->ping, number, __ATOMIC_RELAXED);
	pair_order(pair, ORDER_CACHELINE);
	rc = trips(shared, &patience, &number); /* until the peer is there */
	out->group_ops = GROUP_TRIPS;
	since_ns = gn_now_ns();
	while (!rc) {
		rc = trips(shared, &patience, &number);
		if (!rc)
			since_ns = block_group(out, since_ns);
		if (out->ns >= block_ns)
			break;
	}
	__atomic_store_n(&shared->ping, CACHELINE_END, __ATOMIC_RELEASE);
	if (rc && rc != -EINTR)
		gn_log(GN_LOG_ERROR, "cacheline: the second process does not answer");
	return rc;
}
