/* SPDX-License-Identifier: MIT */
/*
 * Inside the swarm: the plan that a seed makes, and the model.
 *
 * The model is the host's memory: it outlives the simulated processes, and sees both sides of each
 * connection. What happens is noted there in the order in which it happens, each request before it
 * is posted, so nothing can be seen at a target that the model does not know of. Everything is said
 * of one *life* of a connection: when it ends, its memory ends with it, and the next one starts
 * anew.
 */
#ifndef GN_LAB_SWARM_MODEL_H
#define GN_LAB_SWARM_MODEL_H

#include "swarm.h"

#define LINE	  64u
#define CHAIN_MAX 4u
#define SGE_MAX	  4u
#define LEN_MAX	  16384u
#define HEADER	  8u /* of a datagram: which of its receiver's it is */

#define NODES_MAX   6u
#define PROCS_MAX   8u
#define WORKERS_MAX 16u
#define LINKS_MAX   12u
#define UDS_MAX	    64u /* datagram endpoints ever made in a run */

/* ---- chance: splitmix64, because the programs' draws must not depend on the simulator's ---- */

struct rng {
	uint64_t state;
};

static inline uint64_t rng_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline uint64_t rng_next(struct rng *rng)
{
	return rng_mix(rng->state += 0x9e3779b97f4a7c15u);
}

/* 0 to n - 1. */
static inline uint32_t rng_below(struct rng *rng, uint32_t n)
{
	return (uint32_t)(((rng_next(rng) >> 32) * n) >> 32);
}

static inline uint32_t rng_range(struct rng *rng, uint32_t from, uint32_t to)
{
	return from + rng_below(rng, to - from + 1);
}

static inline bool rng_one_in(struct rng *rng, uint32_t n)
{
	return rng_below(rng, n) == 0;
}

/* ---- the plan (swarm_plan.c) ---- */

struct plan_proc {
	unsigned node, first_worker, n_workers;
	bool shared; /* one context, and workers that help each other */
};

struct plan_worker {
	unsigned proc;
	uint32_t steps;
	bool datagrams, hostile; /* datagrams: hostile to itself, by wrong keys */
};

struct plan_link {
	unsigned client, server; /* workers */
	uint32_t max_len;
	uint32_t window, recvs;	 /* depth of the queues */
	uint32_t weight[GN_OPS]; /* how often which operation; 0: never */
	uint32_t signal_one_in;	 /* how often a completion is asked for */
	bool sloppy;		 /* receives are missing now and then */
	bool hostile;		 /* wrong keys, small receives, memory withdrawn */
	uint32_t close_one_in;	 /* steps on it that end it */
	struct gn_conn_opts conn;
};

struct plan {
	unsigned n_nodes, n_procs, n_workers, n_links;
	struct plan_proc proc[PROCS_MAX];
	struct plan_worker worker[WORKERS_MAX];
	struct plan_link link[LINKS_MAX];
	uint32_t ud_len; /* bytes of the longest datagram */
	char profile[SWARM_PROFILE_MAX];
	uint64_t caps_off;
	char faults[SWARM_TEXT_MAX];
};

struct swarm;

void plan_draw(struct swarm *s);
void plan_print(const struct swarm *s);
/* Whether this kind of fault may happen in this run. */
bool plan_fault(const struct swarm *s, const char *kind);
bool plan_ends_programs(const struct swarm *s);

/* ---- memory with one remote writer (swarm_area.c) ---- */

struct area_write {
	uint32_t req; /* the writer's request */
	uint32_t off, len;
	uint64_t seed;
};

/*
 * What must be in an area: `base` for certain, and any of the pending WRITEs. A line of 64 bytes
 * takes the bytes of one WRITE at once, and never an older one's over a newer one's.
 */
struct area {
	uint32_t size;
	uint8_t *base;
	struct area_write *pending; /* in the order of their posting */
	uint32_t n, cap;
	uint32_t settled; /* the WRITEs of requests before it are there, and stay */
};

void bytes_fill(uint8_t *to, uint64_t seed, uint64_t off, size_t len);
bool bytes_equal(const uint8_t *at, uint64_t seed, uint64_t off, size_t len);

void area_init(struct area *area, uint32_t size, uint64_t seed);
void area_fini(struct area *area);
void area_post(struct area *area, uint32_t req, uint32_t off, uint32_t len, uint64_t seed);
/* The WRITEs from req on were not posted after all. */
void area_unpost(struct area *area, uint32_t req);
/* No READ that is older than req is under way: what has settled before it becomes the base. */
void area_forget(struct area *area, uint32_t req);
/*
 * Is seen, read from [off, off + len), possible when all WRITEs before `must` have been placed and
 * none from `may` on? If not, *at is the offset of the line that is wrong.
 */
bool area_possible(const struct area *area, const uint8_t *seen, uint32_t off, uint32_t len,
		   uint32_t must, uint32_t may, uint32_t *at);
/* The same for all of it at one instant, and for what the capabilities promise besides. */
bool area_in_order(const struct area *area, const uint8_t *seen, uint64_t caps, uint32_t *at);

/* ---- words for atomics: one pair in each process (swarm_hall.c) ---- */

struct hall_span {
	uint64_t from, add;
};

/* What a CAS was to put there. */
struct hall_value {
	bool refused;	     /* it found another than it expected */
	uint64_t taken_tick; /* another replaced it, which was known by then; 0: not yet */
};

struct hall {
	struct hall *next;
	uint64_t sum_ok;    /* of what was added for certain */
	uint64_t sum_maybe; /* … and of what may have been */
	struct hall_span *span;
	uint32_t n_spans, cap_spans;
	struct hall_value *value; /* 0, and those that a CAS offered, in their order */
	uint32_t n_values, cap_values;
	uint64_t known; /* one that the word has held */
	bool closed;
	uint64_t last_sum; /* closed: what the words were in the end */
};

enum { HALL_FAA, HALL_CAS, HALL_WORDS };

/* ---- one side of one connection's life, and one datagram endpoint (swarm_queue.c) ---- */

enum aim {
	AIM_NOTHING, /* no bytes, or a marker */
	AIM_AREA,
	AIM_LINES, /* a READ of lines that the target's CPU changes */
	AIM_FAA,
	AIM_CAS,
	AIM_MESSAGE,
	AIM_BAD_KEY, /* from here on: must fail */
	AIM_BAD_RANGE,
	AIM_BAD_RIGHT, /* a key for something else */
	AIM_BAD_LOCAL,
};

struct request {
	uint64_t id;
	uint64_t seed; /* of its payload */
	uint64_t tick; /* when it was posted */
	uint64_t low;  /* AIM_LINES: the version then; AIM_FAA: what the word held at least */
	uint64_t add;  /* FAA; CAS: expected */
	uint64_t swap; /* CAS */
	enum gn_op op;
	enum aim aim;
	uint32_t flags, imm, len, off;
	uint32_t n_sge, piece[SGE_MAX];
};

struct receipt {
	uint64_t id;
	uint64_t tick; /* when it had been posted */
	uint32_t len;
	uint32_t n_sge, piece[SGE_MAX];
};

struct half {
	bool started, ended; /* its program has, or had, a qp for it */
	struct request *req;
	uint32_t n_req, cap_req;
	uint32_t done; /* the fate of those before it is known */
	uint32_t ok;   /* … and those before it went well */
	bool failed;
	struct receipt *recv;
	uint32_t n_recv, cap_recv, recv_done;
	uint32_t recv_there; /* their posting has returned */
	bool recv_failed;
	uint32_t *msg; /* which requests are messages */
	uint32_t n_msg, cap_msg, msg_ok;
	uint32_t got;	    /* messages of the other side that arrived */
	struct area area;   /* this side's memory, the other's to write */
	uint64_t version;   /* of the lines that this side's CPU changes */
	bool withdrawn;	    /* the region is being deregistered, or was */
	uint64_t gone_tick; /* … and it was by then; 0 before */
	uint32_t key;	    /* of the region */
	struct hall *hall;  /* of this side's process */
};

struct life {
	struct life *next;
	unsigned link, number;
	bool may_break;	       /* somebody gave it a reason */
	char unexplained[160]; /* an error that needs one; at the end there must have been */
	struct half half[2];   /* client, server */
};

/* ---- datagrams ---- */

struct datagram {
	unsigned from; /* index in swarm.ud */
	uint64_t seed;
	uint32_t len, imm;
	bool has_imm;
	bool cancelled; /* it was not posted after all, or with a wrong qkey */
	uint32_t arrived;
	uint64_t left_ns; /* when its sender knew that it had left; 0 before */
};

/* One UD endpoint: of one worker, in one life of its process. */
struct ud_model {
	bool open;
	unsigned node, worker;
	struct gn_ud_addr addr;
	struct half half; /* its queues; nobody is on the other side */
	struct datagram *in;
	uint32_t n_in, cap_in, n_arrived;
	bool may_lose; /* there may have been more datagrams than receives */
};

/* ---- the run (swarm_run.c) ---- */

struct swarm {
	const struct swarm_opts *opts;
	struct swarm_result *result;
	struct gn_sim *sim;
	struct plan plan;
	uint64_t tick;	  /* counts what is noted: before and after without clocks */
	uint64_t last_id; /* of requests */
	struct life *lives;
	struct hall *halls;
	unsigned n_life[LINKS_MAX];
	unsigned runs[PROCS_MAX]; /* how often each program was started */
	struct ud_model ud[UDS_MAX];
	unsigned n_uds;
	bool breaks; /* a fault may break any connection at any time */
	bool no_memory;
	bool stalls;	/* threads may stand still */
	char log[2048]; /* the last lines, for runs that do not end */
	size_t log_len;
	uint8_t scratch[LEN_MAX + 8 * LINE]; /* for use without a wait in between */
};

/* A violation, found by a simulated thread: notes the first, and keeps the thread. */
void swarm_fail(struct swarm *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
/* For --verbose. */
void swarm_say(struct swarm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define CHECK(s, cond, ...)                         \
	do {                                        \
		if (!(cond))                        \
			swarm_fail(s, __VA_ARGS__); \
	} while (0)

/* room for one more in an array of the host's; the run ends with the host's memory. */
void *swarm_grow(void *array, uint32_t n, uint32_t *cap, size_t size);

struct life *life_create(struct swarm *s, unsigned link);
struct life *life_find(struct swarm *s, unsigned link, unsigned number);
/* An error that no request of its own explains. */
void life_broke(struct swarm *s, struct life *life, const char *what);

void half_fini(struct half *half);
/* Notes a request, or a receive; the caller fills it in and posts it. */
struct request *half_request(struct swarm *s, struct half *half);
struct receipt *half_receipt(struct swarm *s, struct half *half);
void half_unpost(struct half *half, uint32_t n_req);
/*
 * A completion of the send queue came. Returns how many requests are now known to have succeeded,
 * from half->ok on (the caller checks what they brought and moves half->ok), and sets *bad to the
 * request that failed, or UINT32_MAX.
 */
uint32_t half_completed(struct swarm *s, struct half *half, const struct gn_wc *wc, uint32_t *bad);
/* The receive that a completion is about; its index. */
uint32_t half_received(struct swarm *s, struct half *half, const struct gn_wc *wc);
/* Has the status a reason? peer is NULL for datagrams. */
void half_judge(struct swarm *s, struct life *life, struct half *half, struct half *peer,
		uint32_t bad, enum gn_wc_status status);

struct hall *hall_create(struct swarm *s);
void hall_fini(struct hall *hall);
void hall_faa_posted(struct hall *hall, struct request *req, uint64_t add);
void hall_cas_posted(struct hall *hall, struct request *req, bool guess);
void hall_faa_done(struct swarm *s, struct hall *hall, const struct request *req, uint64_t old);
void hall_cas_done(struct swarm *s, struct hall *hall, const struct request *req, uint64_t old);
/* The target's CPU added, atomically with the others. */
void hall_cpu_added(struct swarm *s, struct hall *hall, uint64_t old, uint64_t add);
/* No more of it: the words as they are. */
void hall_close(struct swarm *s, struct hall *hall, const uint64_t *words);

/* ---- the programs (swarm_node.c and below it) ---- */

/* What a program's env->arg is. */
struct swarm_arg {
	struct swarm *s;
	unsigned proc;
};

gn_node_main swarm_node;

#endif
