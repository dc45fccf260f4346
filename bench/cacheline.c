/* SPDX-License-Identifier: MIT */
/*
 * The limit of every latency: two processes on two cores, one cache line for each direction, a
 * pause in the spin. No message between these cores can be faster.
 */
#include "pair.h"

#include <errno.h>

/* ---- the peer's half ---- */

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

/* ---- the half that measures ---- */

#define LOOK_US	  100000u /* of silence, then a look whether the peer lives */
#define LOOKS_MAX (SILENCE_US / LOOK_US)

struct pinger {
	struct pair *pair;
	struct patience patience;
	uint64_t number;
	unsigned looks;
};

static int silence(struct pinger *p)
{
	int rc = patience_turn(&p->patience);

	if (rc != -ETIMEDOUT)
		return rc;
	patience_reset(&p->patience);
	if (++p->looks < LOOKS_MAX && pair_peer_lives(p->pair))
		return 0;
	gn_log(GN_LOG_ERROR, "cacheline: the second process does not answer");
	return rc;
}

static inline int trip(struct pinger *p)
{
	struct shared *shared = p->pair->shared;

	/* Pairs with the acquire in cacheline_answer(). */
	__atomic_store_n(&shared->ping, ++p->number, __ATOMIC_RELEASE);
	/* Pairs with the release in cacheline_answer(). */
	while (__atomic_load_n(&shared->pong, __ATOMIC_ACQUIRE) != p->number) {
		const int rc = silence(p);

		if (unlikely(rc))
			return rc;
	}
	patience_reset(&p->patience);
	p->looks = 0;
	return 0;
}

static int trips(struct pinger *p)
{
	for (unsigned i = 0; i < GROUP_TRIPS; i++) {
		const int rc = trip(p);

		if (unlikely(rc))
			return rc;
	}
	return 0;
}

int cacheline_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct pair *pair = arg;
	struct pinger p = {.pair = pair,
			   .patience = patience_for(&pair->shared->opts, LOOK_US),
			   .number = pair->shared->pong};
	uint64_t since_ns;
	int rc;

	/* Not the end that the last block left there. */
	__atomic_store_n(&pair->shared->ping, p.number, __ATOMIC_RELAXED);
	pair_order(pair, ORDER_CACHELINE);
	out->group_ops = GROUP_TRIPS;
	rc = trips(&p); /* until the peer is there */
	since_ns = gn_now_ns();
	while (!rc && out->ns < block_ns) {
		rc = trips(&p);
		if (!rc)
			since_ns = block_group(out, since_ns);
	}
	/* Pairs with the acquire in cacheline_answer(). */
	__atomic_store_n(&pair->shared->ping, CACHELINE_END, __ATOMIC_RELEASE);
	return rc;
}
