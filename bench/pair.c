/* SPDX-License-Identifier: MIT */
/*
 * The initiator's side of the pair: start the peer, order it about, end it. Orders are words in
 * shared memory, which a busy peer sees within a cache miss, so that blocks can take turns without
 * either side going to sleep.
 */
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_US 10000000u /* an order that takes longer has failed */
#define QUIT_US	  2000000u
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

/* Its number must not be the one that the spawn gives to something else. */
static int inherited_eventfd(void)
{
	const int fd = eventfd(0, EFD_CLOEXEC);
	const int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD, BENCH_PEER_FD + 1);

	if (fd >= 0)
		close(fd);
	return high;
}

static int share(struct pair *pair, const struct bench_opts *opts)
{
	struct shared *shared;
	int rc;

	pair->fd = memfd_create("gannet-bench", MFD_CLOEXEC);
	if (pair->fd < 0)
		return -errno;
	if (ftruncate(pair->fd, sizeof(*shared)))
		goto close_fd;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, pair->fd, 0);
	if (shared == MAP_FAILED)
		goto close_fd;
	shared->opts = *opts;
	shared->eventfd = inherited_eventfd();
	shared->answer = UINT64_MAX;
	pair->shared = shared;
	return 0;

close_fd:
	rc = -errno;
	close(pair->fd);
	return rc;
}

static void unshare_all(struct pair *pair)
{
	if (pair->shared->eventfd >= 0)
		close(pair->shared->eventfd);
	munmap(pair->shared, sizeof(*pair->shared));
	close(pair->fd);
}

static void pin(struct pair *pair, int cpu)
{
	int rc;

	pair->was_pinned = !sched_getaffinity(0, sizeof(pair->cpus_before), &pair->cpus_before);
	rc = bench_pin(cpu);
	if (rc)
		gn_log(GN_LOG_WARN, "cannot run on cpu %d only: %s", cpu, gn_strerror(rc));
}

static int connect_pair(struct pair *pair)
{
	int rc = side_publish(&pair->side, pair->shared);

	if (rc)
		return rc;
	pair_order(pair, ORDER_CONNECT);
	rc = side_connect(&pair->side, pair->shared);
	if (!rc)
		rc = pair_wait(pair);
	return rc ? rc : side_meet(&pair->side, pair->shared);
}

int pair_meet(struct pair *pair, const struct bench_opts *opts)
{
	int rc = pair_wait(pair);

	if (!rc)
		rc = side_open(&pair->side, INITIATOR, opts);
	if (!rc && pair->side.plan.needs_qp)
		rc = connect_pair(pair);
	return rc;
}

int pair_start(struct pair *pair, const struct bench_opts *opts)
{
	int rc;

	*pair = (struct pair){.pid = -1};
	rc = share(pair, opts);
	if (rc) {
		gn_log(GN_LOG_ERROR, "cannot share memory: %s", gn_strerror(rc));
		return rc;
	}
	pin(pair, opts->cpus[INITIATOR]);
	rc = bench_spawn("--bench-peer", pair->fd, &pair->pid);
	if (rc) {
		unshare_all(pair);
		return rc;
	}
	rc = pair_meet(pair, opts);
	if (rc)
		pair_stop(pair);
	return rc;
}

void pair_stop(struct pair *pair)
{
	if (pair_peer_lives(pair)) {
		const uint64_t end_ns = gn_deadline_us(QUIT_US);

		/* It may be answering pings. */
		__atomic_store_n(&pair->shared->ping, CACHELINE_END, __ATOMIC_RELEASE);
		pair_order(pair, ORDER_QUIT);
		while (pair_peer_lives(pair) && gn_now_ns() < end_ns)
			gn_sleep_us(1000);
	}
	if (pair->pid > 0) {
		kill(pair->pid, SIGKILL);
		waitpid(pair->pid, NULL, 0);
	}
	side_close(&pair->side);
	if (pair->was_pinned)
		sched_setaffinity(0, sizeof(pair->cpus_before), &pair->cpus_before);
	unshare_all(pair);
}
