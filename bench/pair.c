/* SPDX-License-Identifier: MIT */
/*
 * Orders to the other process. They are words in shared memory, which a busy peer sees within a
 * cache miss, so that blocks can take turns without either side going to sleep.
 */
#include "pair.h"

#include <errno.h>
#include <sys/wait.h>

#define ANSWER_US 10000000u /* an order that takes longer has failed */
#define ALIVE_NS  10000000u /* between looks whether the peer lives */

struct patience patience_for(const struct bench_opts *opts, uint64_t limit_us)
{
	/* With one core for two processes the other one cannot answer while we spin. */
	return (struct patience){.spins = opts->cpus[0] == opts->cpus[1] ? 1 : 2000,
				 .limit_us = limit_us,
				 .simulated = opts->profile != NULL};
}

int patience_yield(struct patience *p)
{
	const uint64_t now_ns = gn_now_ns();

	p->looks = 0;
	if (bench_stopped())
		return -EINTR;
	if (!p->since_ns)
		p->since_ns = now_ns;
	if (now_ns - p->since_ns > p->limit_us * 1000)
		return -ETIMEDOUT;
	if (p->simulated) /* where a thread that spins for long has failed */
		gn_sleep_us(1);
	else
		gn_yield();
	return 0;
}

bool pair_peer_lives(struct pair *pair)
{
	if (pair->pid > 0 && waitpid(pair->pid, NULL, WNOHANG) == pair->pid)
		pair->pid = -1;
	return pair->pid > 0;
}

int pair_check(struct pair *pair)
{
	if (!pair->pid || pair_peer_lives(pair))
		return 0;
	/* If an order failed it has said so. */
	if (pair->shared->result)
		return pair->shared->result;
	gn_log(GN_LOG_ERROR, "the second process has died");
	return -EPIPE;
}

/* Orders are few, so that looking at the process table for each is no burden. */
int pair_wait(struct pair *pair)
{
	return pair_wait_us(pair, ANSWER_US);
}

int pair_wait_us(struct pair *pair, uint64_t limit_us)
{
	const uint64_t end_ns = gn_deadline_us(limit_us);
	uint64_t look_ns = gn_now_ns() + ALIVE_NS;
	int rc;

	/* Pairs with the release in peer_answer(). */
	while (__atomic_load_n(&pair->shared->answer, __ATOMIC_ACQUIRE) != pair->shared->order) {
		const uint64_t now_ns = gn_now_ns();

		if (now_ns > end_ns) {
			gn_log(GN_LOG_ERROR, "the second process does not answer");
			return -ETIMEDOUT;
		}
		if (now_ns > look_ns) {
			look_ns = now_ns + ALIVE_NS;
			rc = pair_check(pair);
			if (rc)
				return rc;
		}
		gn_yield();
	}
	return pair->shared->result;
}

void pair_order(struct pair *pair, enum order order)
{
	const uint64_t word = ++pair->orders << 8 | order;

	/* Pairs with the acquire in the peer's loops: what the order is about is in place. */
	__atomic_store_n(&pair->shared->order, word, __ATOMIC_RELEASE);
}

int pair_ask(struct pair *pair, enum order order)
{
	pair_order(pair, order);
	return pair_wait(pair);
}

void peer_answer(struct shared *shared, uint64_t word, int result)
{
	shared->result = result;
	/* Pairs with the acquire in pair_wait(). */
	__atomic_store_n(&shared->answer, word, __ATOMIC_RELEASE);
}
