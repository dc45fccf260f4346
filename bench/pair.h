/* SPDX-License-Identifier: MIT */
/*
 * What the two processes of a run share, and what the files of the benchmark share. The page below
 * is a memfd that both map; it carries orders and results, never the traffic that is measured
 * (except the cache-line ping-pong, which is nothing but memory).
 */
#ifndef GN_BENCH_PAIR_H
#define GN_BENCH_PAIR_H

#include <gannet/fabric.h>
#include <sched.h>
#include <string.h>
#include <sys/types.h>

#include "bench.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Two lines, since the prefetcher of some processors fetches them in pairs. */
#define LINE _Alignas(128)

static inline uint32_t least_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* What the peer is told to do. It does it until the next order, unless said otherwise. */
enum order {
	ORDER_START,	 /* implied by the spawn: set up and listen; answered */
	ORDER_CONNECT,	 /* accept a connection; answered */
	ORDER_CACHELINE, /* answer in pong what is in ping, until it is CACHELINE_END */
	ORDER_ECHO,	 /* send each message back */
	ORDER_CHECK,	 /* is the data what it should be? answered */
	ORDER_NOTE,	 /* note counters; answered */
	ORDER_WAKE,	 /* sleep, and note how long each message took to end the sleep */
	ORDER_WAKE_FD,	 /* the same by eventfd, without any fabric */
	ORDER_IDLE,
	ORDER_QUIT
};

#define CACHELINE_END UINT64_MAX

/* How a sleeper was woken, one way or the other. */
struct wakes {
	struct gn_hist latency_ns;
	uint64_t messages, arms;
	uint64_t cpu_ns, wall_ns;
};

struct wake_report {
	struct wakes by_message, by_eventfd;
	uint64_t stamp_ns; /* when the last one was sent */
};

struct shared {
	struct bench_opts opts;
	int eventfd; /* the eventfd's number is the same in both */
	struct gn_remote remote[2];
	struct gn_ud_addr ud[2];
	uint64_t check_ops; /* how many operations the peer's memory has seen */
	struct wake_report wake;
	LINE uint64_t order;  /* number << 8 | enum order */
	LINE uint64_t answer; /* the order that was carried out */
	int result;
	LINE uint64_t ping;
	LINE uint64_t pong;
	LINE char end[1];
};

enum role { INITIATOR, PEER };

/* How much of everything a run needs; both sides compute the same. */
struct plan {
	uint32_t slots;	 /* buffers an operation goes round in */
	uint32_t stride; /* from one to the next */
	uint32_t receives, send_wrs;
	uint32_t receive_stride;
	size_t local_bytes[2], exposed_bytes[2]; /* by role */
	size_t limit_bytes; /* the initiator's, of the kind the peer exposes: for memcpy */
	unsigned rights;
	bool needs_fabric, needs_qp, ud;
};

void plan_make(const struct bench_opts *opts, struct plan *plan);

/* One end of the connection. */
struct side {
	enum role role;
	struct plan plan;
	struct bench_opts opts;
	struct gn_attr attr;
	struct gn_fabric *fabric, *own_fabric;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_listener *listener;
	struct gn_ah *ah;
	struct gn_mem *local_mem, *exposed_mem, *limit_mem;
	struct gn_mr *local_mr, *exposed_mr;
	uint8_t *local, *exposed, *limit;
	struct gn_remote remote; /* the other side's exposed memory */
	struct gn_ud_addr to;	 /* the other side's datagram address */
	uint32_t inline_max;
};

/* fabric: NULL to open and close the side's own. */
int side_open(struct side *side, enum role role, const struct bench_opts *opts,
	      struct gn_fabric *fabric);
void side_close(struct side *side);
int side_listen(struct side *side, const char *addr);
int side_accept(struct side *side);
int side_connect(struct side *side, const char *addr);
/* Both: publish what the other needs, take what it published. */
int side_publish(struct side *side, struct shared *shared);
int side_meet(struct side *side, struct shared *shared);

/* The hold of the process that measures on its peer. */
struct pair {
	struct shared *shared;
	int fd;
	pid_t pid; /* 0: there is no second process; -1: it has gone */
	uint64_t orders;
};

void pair_order(struct pair *pair, enum order order);
/* Waits for the answer to the last order; its result. */
int pair_wait(struct pair *pair);
int pair_wait_us(struct pair *pair, uint64_t limit_us);
/* Both. */
int pair_ask(struct pair *pair, enum order order);
bool pair_peer_lives(struct pair *pair);
/* 0, or why the peer does not live any more. */
int pair_check(struct pair *pair);

/* The peer's: answers an order. */
void peer_answer(struct shared *shared, uint64_t word, int result);

/* ---- patience: what a loop does when it found nothing ---- */

#define SILENCE_US 5000000u /* a peer that is silent for so long has failed */

struct patience {
	uint32_t looks, spins;
	uint64_t since_ns;
	uint64_t limit_us;
	bool simulated;
};

struct patience patience_for(const struct bench_opts *opts, uint64_t limit_us);
/* The slow half of patience_turn(). */
int patience_yield(struct patience *p);

static inline void patience_reset(struct patience *p)
{
	p->looks = 0;
	p->since_ns = 0;
}

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* 0: look again; -EINTR when stopped, -ETIMEDOUT after the limit without a reset. */
static inline int patience_turn(struct patience *p)
{
	if (likely(++p->looks < p->spins)) {
		spin_pause();
		return 0;
	}
	return patience_yield(p);
}

/* ---- blocks: an operation and its limit taking turns ---- */

#define GROUP_TRIPS 32u /* round trips timed together: a clock reading costs a third of one */

struct block {
	struct gn_hist group_ns;
	uint64_t group_ops; /* in each group */
	uint64_t ops, ns;
};

struct load {
	/* Run for about block_ns in groups; at least one group. */
	int (*run)(void *arg, uint64_t block_ns, struct block *out);
	void *arg;
	double share; /* a limit's blocks: how long compared with the operation's */
};

/* NAN for what was not compared. */
struct comparison {
	double ratio;		  /* own time over the limit's */
	double overhead_ns;	  /* own minus limit, and minus part */
	double limit_ns, part_ns; /* of one, by themselves */
};

/*
 * limit may be NULL, and so may part, which is work that own has in it: what remains of own beyond
 * both is its overhead.
 */
int blocks_run(struct pair *pair, const struct load *own, const struct load *limit,
	       const struct load *part, bench_progress_fn *progress, struct bench_result *result,
	       struct comparison *compared);

/* A finished group: note it, and start the next at its end. */
static inline uint64_t block_group(struct block *block, uint64_t since_ns)
{
	const uint64_t now_ns = gn_now_ns();

	gn_hist_add(&block->group_ns, now_ns - since_ns, 1);
	block->ops += block->group_ops;
	block->ns += now_ns - since_ns;
	return now_ns;
}

/* ---- the loads ---- */

int cacheline_run(void *pair, uint64_t block_ns, struct block *out);
int cacheline_answer(struct shared *shared);

struct copying {
	const struct plan *plan;
	uint8_t *dst, *src;
	uint32_t size_bytes;
	uint64_t group_ops;
	uint64_t ops; /* copies made */
};
int copying_run(void *copying, uint64_t block_ns, struct block *out);

/* Requests that are posted together. Where they go is set before each post. */
struct chain {
	struct gn_wr *wr;
	struct gn_sge *sge;
	uint32_t n;
};

/* flags: of every request. 0 or -ENOMEM. */
int chain_create(struct chain *chain, uint32_t n, const struct bench_opts *opts, uint32_t lkey,
		 uint32_t flags);
void chain_destroy(struct chain *chain);

/* id: of the completion of the last request; 0: it has none. */
static inline int chain_post(struct chain *chain, struct gn_qp *qp, uint64_t id)
{
	struct gn_wr *last = &chain->wr[chain->n - 1];

	last->id = id;
	last->flags = id ? last->flags | GN_SIGNALED : last->flags & ~(uint32_t)GN_SIGNALED;
	return gn_post_send(qp, chain->wr, NULL);
}

struct one_sided;
int one_sided_create(struct side *side, struct one_sided **out);
void one_sided_destroy(struct one_sided *o);
/* So many requests, whole chains. */
int one_sided_post(struct one_sided *o, uint32_t n);
uint64_t one_sided_group_ops(const struct bench_opts *opts);
/* Two laps that nobody measures, so that every page is mapped. */
int one_sided_warm(struct one_sided *o);
/* Waits until everything is placed; *ops is how many requests the target has seen. */
int one_sided_settle(struct one_sided *o, uint64_t *ops);
/* What the initiator can see: the bytes a READ fetched, the old values of atomics. */
int one_sided_check(const struct one_sided *o, uint64_t ops);
/* What the target can see. */
int one_sided_check_target(const struct side *side, uint64_t ops);

struct messages;
int messages_create(struct side *side, struct messages **out);
void messages_destroy(struct messages *m);
uint64_t messages_lost(const struct messages *m);
/* Round trips that are timed together. */
uint64_t messages_group_ops(const struct bench_opts *opts);
/* Fills the window; after so many round trips it is full again; waits for all that is under way. */
int messages_begin(struct messages *m);
int messages_trips(struct messages *m, uint32_t n);
int messages_end(struct messages *m);
int messages_check(struct messages *m, struct pair *pair);
int messages_send(struct messages *m);
/* Take polled completions; how many were messages. */
int messages_receive(struct messages *m, const struct gn_wc *wc, int n);
/* Post the receives again that were used up. */
int messages_restock(struct messages *m);
/* Send each message back until *order is not mine any more. */
int messages_echo(struct messages *m, const uint64_t *order, uint64_t mine, bool check);
int messages_await_one(struct messages *m);

int wake_run(struct pair *pair, const struct side *side, struct messages *m,
	     bench_progress_fn *progress, struct bench_result *result);
int wake_sleep(struct messages *m, struct side *side, struct shared *shared, uint64_t mine);

/* ---- payload ---- */

/* len bytes that differ from those of any other seed. */
void pattern_fill(uint8_t *p, size_t len, uint64_t seed);
bool pattern_matches(const uint8_t *p, size_t len, uint64_t seed);
/* The first and the last 8 bytes, of 8 or more. */
void pattern_ends(size_t len, uint64_t seed, uint64_t ends[2]);

/* The source buffers of a run, and its target buffers after that many operations. */
void slots_fill(uint8_t *p, uint32_t slots, uint32_t stride, uint32_t size_bytes, uint64_t seed);
int slots_check(const char *what, const uint8_t *p, const struct plan *plan, uint32_t size_bytes,
		uint64_t ops, uint64_t seed);

#endif
