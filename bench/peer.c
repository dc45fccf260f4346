/* SPDX-License-Identifier: MIT */
/*
 * The second process of a run: it maps the shared page, sets up its end and carries out orders
 * until it is told to quit or its parent is gone.
 */
#include "pair.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EAGER_US    200u /* of spinning between orders; then it looks once a millisecond */
#define SIM_LOOK_US 20u

struct peer {
	struct shared *shared;
	struct bench_opts opts;
	struct side side;
	struct messages *messages;
};

uint64_t peer_next_order(struct shared *shared, uint64_t last)
{
	const uint64_t eager_ns = gn_deadline_us(EAGER_US);
	uint64_t word;

	/* Pairs with the release in pair_order(). */
	while ((word = __atomic_load_n(&shared->order, __ATOMIC_ACQUIRE)) == last) {
		if (bench_stopped())
			return ORDER_QUIT;
		if (shared->opts.profile)
			gn_sleep_us(SIM_LOOK_US);
		else if (shared->opts.cpus[0] != shared->opts.cpus[1] && gn_now_ns() < eager_ns)
			spin_pause();
		else
			gn_sleep_us(1000);
	}
	return word;
}

void peer_answer(struct shared *shared, uint64_t word, int result)
{
	shared->result = result;
	/* Pairs with the acquire in pair_wait(). */
	__atomic_store_n(&shared->answer, word, __ATOMIC_RELEASE);
}

static int set_up(struct peer *p)
{
	const struct bench_opts *opts = &p->opts;
	int rc = side_open(&p->side, PEER, opts);

	if (rc || !p->side.plan.needs_qp)
		return rc;
	if (opts->op == BENCH_READ)
		slots_fill(p->side.exposed, 2 * p->side.plan.slots, p->side.plan.stride,
			   opts->size_bytes, opts->seed);
	rc = side_publish(&p->side, p->shared);
	if (!rc)
		rc = side_listen(&p->side, p->shared);
	return rc ? rc : messages_create(&p->side, &p->messages);
}

static int connect_to_parent(struct peer *p)
{
	int rc = side_accept(&p->side);

	return rc ? rc : side_meet(&p->side, p->shared);
}

static int check(struct peer *p, uint64_t word)
{
	int rc;

	if (bench_traits[p->shared->opts.op].kind == BENCH_MESSAGE)
		return messages_echo(p->messages, &p->shared->order, word, true);
	rc = messages_await_one(p->messages);
	return rc ? rc : one_sided_check_target(&p->side, p->shared->check_ops);
}

static int obey(struct peer *p, uint64_t word)
{
	switch ((enum order)(word & 0xff)) {
	case ORDER_CONNECT:
		return connect_to_parent(p);
	case ORDER_CACHELINE:
		return cacheline_answer(p->shared);
	case ORDER_ECHO:
		return messages_echo(p->messages, &p->shared->order, word, false);
	case ORDER_CHECK:
		return check(p, word);
	case ORDER_WAKE:
	case ORDER_WAKE_FD:
		return wake_sleep(p->messages, &p->side, p->shared, word);
	default:
		return 0;
	}
}

static int obey_all(struct peer *p)
{
	uint64_t word = ORDER_START;
	int rc = set_up(p);

	while (!rc) {
		peer_answer(p->shared, word, 0);
		word = peer_next_order(p->shared, word);
		if ((word & 0xff) == ORDER_QUIT)
			return 0;
		rc = obey(p, word);
	}
	peer_answer(p->shared, word, rc);
	return rc;
}

int peer_serve(struct shared *shared, const char *fabric)
{
	struct peer *p = calloc(1, sizeof(*p));
	int rc;

	if (!p) {
		peer_answer(shared, ORDER_START, -ENOMEM);
		return -ENOMEM;
	}
	p->shared = shared;
	p->opts = shared->opts;
	snprintf(p->opts.provider, sizeof(p->opts.provider), "%s", fabric);
	rc = obey_all(p);
	messages_destroy(p->messages);
	side_close(&p->side);
	free(p);
	return rc;
}

int bench_peer_main(void)
{
	struct shared *shared =
		mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, BENCH_PEER_FD, 0);
	int rc;

	if (shared == MAP_FAILED) {
		gn_log(GN_LOG_ERROR, "--bench-peer is for gannet bench itself: %s",
		       gn_strerror(-errno));
		return EXIT_FAILURE;
	}
	bench_pin(shared->opts.cpus[PEER]);
	rc = peer_serve(shared, shared->opts.provider);
	munmap(shared, sizeof(*shared));
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
