/* SPDX-License-Identifier: MIT */
/*
 * The plan that the fuzzer draws from a seed, and the model that it checks the fabric against.
 *
 * The model lives in the host's memory: it outlives the simulated processes and sees both sides of
 * each connection. A program adds a request to the model before it posts the request, so the model
 * knows every request whose effect a target can observe. A link of the plan has one connection
 * after another; each connection (struct conn) has memory and queues of its own.
 */
#ifndef FUZZER_MODEL_H
#define FUZZER_MODEL_H

#include "../sim/rng.h"
#include "fuzzer.h"

#define LINE	  64u
#define CHAIN_MAX 4u
#define SGE_MAX	  4u
#define LEN_MAX	  16384u
#define HEADER	  8u /* bytes at the start of a datagram: its number at the receiver */

#define NODES_MAX   6u
#define PROCS_MAX   8u
#define THREADS_MAX 16u
#define LINKS_MAX   12u
#define UDS_MAX	    64u /* datagram endpoints ever made in a run */

/* ---- random numbers ---- */

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

/* ---- the plan (plan.c) ---- */

struct plan_proc {
	unsigned node, first_worker, n_workers;
	bool shared; /* the workers share a context and poll for each other */
};

struct plan_worker {
	unsigned proc;
	uint32_t steps;
	bool datagrams, hostile; /* hostile: some datagrams have a wrong local key */
};

struct plan_link {
	unsigned client, server; /* workers */
	uint32_t max_len;
	uint32_t window, recvs;	 /* depth of the queues */
	uint32_t weight[GN_OPS]; /* of each operation in the draw; 0: never */
	uint32_t signal_one_in;	 /* how often a request is signaled */
	bool few_recvs;		 /* post too few receives now and then */
	bool hostile;		 /* wrong keys, small receives, deregistered memory */
	uint32_t close_one_in;	 /* how often a step closes the connection */
	struct gn_conn_opts conn;
};

struct plan {
	unsigned n_nodes, n_procs, n_workers, n_links;
	struct plan_proc proc[PROCS_MAX];
	struct plan_worker worker[THREADS_MAX];
	struct plan_link link[LINKS_MAX];
	uint32_t ud_len; /* bytes of the longest datagram */
	char profile[FUZZ_PROFILE_MAX];
	uint64_t caps_off;
	char faults[FUZZ_TEXT_MAX];
};

struct fuzz_run;

void plan_draw(struct fuzz_run *run);
void plan_print(const struct fuzz_run *run);
/* Whether this kind of fault may happen in this run. */
bool plan_fault(const struct fuzz_run *run, const char *kind);
bool plan_ends_programs(const struct fuzz_run *run);

/* ---- memory with one remote writer (model_memory.c) ---- */

struct mem_write {
	uint32_t req; /* the writer's request */
	uint32_t off, len;
	uint64_t seed;
};

/*
 * The possible contents of an area: `base`, with any of the pending WRITEs over it. The device
 * places a WRITE line by line (64 bytes), and never an older WRITE over a newer one.
 */
struct mem_model {
	uint32_t size;
	uint8_t *base;
	struct mem_write *pending; /* in posting order */
	uint32_t n, cap;
	uint32_t settled; /* the WRITEs of all requests before this one are placed */
};

void bytes_fill(uint8_t *to, uint64_t seed, uint64_t off, size_t len);
bool bytes_equal(const uint8_t *at, uint64_t seed, uint64_t off, size_t len);

void mem_model_init(struct mem_model *area, uint32_t size, uint64_t seed);
void mem_model_fini(struct mem_model *area);
void mem_model_post(struct mem_model *area, uint32_t req, uint32_t off, uint32_t len,
		    uint64_t seed);
/* Removes the WRITEs from req on: the post call did not take them. */
void mem_model_unpost(struct mem_model *area, uint32_t req);
/* No READ older than req is in flight: settled WRITEs before req become part of the base. */
void mem_model_forget(struct mem_model *area, uint32_t req);
/*
 * Are the bytes `seen`, read from [off, off + len), possible if all WRITEs before request `must` are
 * placed and none from request `may` on? If not, *at is the offset of the wrong line.
 */
bool mem_model_possible(const struct mem_model *area, const uint8_t *seen, uint32_t off,
			uint32_t len, uint32_t must, uint32_t may, uint32_t *at);
/* The same for the whole area at one instant, with the order that the capabilities promise. */
bool mem_model_in_order(const struct mem_model *area, const uint8_t *seen, uint64_t caps,
			uint32_t *at);

/* ---- the targets of atomics: two words in each process (model_atomics.c) ---- */

struct atomics_span {
	uint64_t from, add;
};

/* The swap value of one CAS. */
struct atomics_value {
	bool refused;	     /* the CAS found another value than it expected */
	uint64_t taken_tick; /* when a CAS that replaced it completed; 0: none yet */
};

struct atomics {
	struct atomics *next;
	uint64_t sum_ok;    /* of the additions that completed */
	uint64_t sum_maybe; /* of the additions that may have been done */
	struct atomics_span *span;
	uint32_t n_spans, cap_spans;
	struct atomics_value *value; /* 0, then the swap values in posting order */
	uint32_t n_values, cap_values;
	uint64_t known; /* a value that the word has held */
	bool closed;
	uint64_t last_sum; /* closed: the final sum */
};

enum { WORD_FAA, WORD_CAS, WORDS };

/* ---- the queues of one qp (model_qp.c) ---- */

enum target {
	TARGET_NOTHING, /* no bytes, or a marker */
	TARGET_AREA,
	TARGET_LINES, /* a READ of lines that the target's CPU overwrites */
	TARGET_FAA,
	TARGET_CAS,
	TARGET_MESSAGE,
	TARGET_BAD_KEY, /* the request must fail, from here on */
	TARGET_BAD_RANGE,
	TARGET_BAD_RIGHT, /* the key does not permit the operation */
	TARGET_BAD_LOCAL,
};

struct request {
	uint64_t id;
	uint64_t seed; /* of its payload */
	uint64_t tick; /* when it was posted */
	uint64_t low;  /* TARGET_LINES: version at the post; TARGET_FAA: lowest value it may find */
	uint64_t add;  /* FAA; CAS: expected */
	uint64_t swap; /* CAS */
	enum gn_op op;
	enum target target;
	uint32_t flags, imm, len, off;
	uint32_t n_sge, piece[SGE_MAX];
};

struct recv {
	uint64_t id;
	uint64_t tick; /* when the post call returned */
	uint32_t len;
	uint32_t n_sge, piece[SGE_MAX];
};

struct qp_model {
	bool started, ended; /* its qp was created, was destroyed */
	struct request *req;
	uint32_t n_req, cap_req;
	uint32_t done; /* requests whose outcome is known */
	uint32_t ok;   /* requests known to have succeeded */
	bool failed;
	struct recv *recv;
	uint32_t n_recv, cap_recv, recv_done;
	uint32_t recv_there; /* receives whose post call has returned */
	bool recv_failed;
	uint32_t *msg; /* the requests that are messages */
	uint32_t n_msg, cap_msg, msg_ok;
	uint32_t got;		    /* the peer's messages that arrived */
	struct mem_model area;	    /* this side's memory, which the peer writes */
	uint64_t version;	    /* of the lines that this side's CPU overwrites */
	bool deregistering;	    /* deregistering the region has begun */
	uint64_t deregistered_tick; /* when the region was deregistered; 0: not yet */
	uint32_t key;		    /* of the region */
	struct atomics *atomics;    /* of this side's process */
};

/* One connection of a link. */
struct conn {
	struct conn *next;
	unsigned link, number;
	bool may_break;		  /* there was a reason to break it */
	char unexplained[160];	  /* an error without a reason so far; a failure if none comes */
	struct qp_model model[2]; /* client, server */
};

/* ---- datagrams ---- */

struct datagram {
	unsigned from; /* index in fuzz_run.ud */
	uint64_t seed;
	uint32_t len, imm;
	bool has_imm;
	bool cancelled; /* not posted after all, or posted with a wrong qkey */
	uint32_t arrived;
	uint64_t left_ns; /* when its send completed; 0: not yet */
};

/* One UD qp. */
struct ud_model {
	bool open;
	unsigned node, worker;
	struct gn_ud_addr addr;
	struct qp_model model; /* it has no peer */
	struct datagram *in;
	uint32_t n_in, cap_in, n_arrived;
	bool may_lose; /* datagrams may have found no receive */
};

/* ---- the run (run_seed.c) ---- */

struct fuzz_run {
	const struct fuzz_opts *opts;
	struct fuzz_result *result;
	struct gn_sim *sim;
	struct plan plan;
	uint64_t tick;	  /* logical clock: counts the entries of the model */
	uint64_t last_id; /* of requests and receives */
	struct conn *conns;
	struct atomics *all_atomics;
	unsigned n_conns[LINKS_MAX];
	unsigned runs[PROCS_MAX]; /* starts of each program */
	struct ud_model ud[UDS_MAX];
	unsigned n_uds;
	bool breaks; /* a fault may break any connection at any time */
	bool no_memory;
	bool stalls;	/* threads may be delayed for long */
	char log[2048]; /* its last lines, for the report of a failure */
	size_t log_len;
	uint8_t scratch[LEN_MAX + 8 * LINE]; /* valid until the thread waits */
};

/* Reports a violation, unless there is one already. The simulated thread never returns. */
void fuzz_fail(struct fuzz_run *run, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
/* A line on stderr with --verbose. */
void fuzz_trace(struct fuzz_run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define CHECK(run, cond, ...)                        \
	do {                                         \
		if (!(cond))                         \
			fuzz_fail(run, __VA_ARGS__); \
	} while (0)

/* The array, with capacity for element n. Aborts if the host is out of memory. */
void *array_grow(void *array, uint32_t n, uint32_t *cap, size_t size);

struct conn *conn_create(struct fuzz_run *run, unsigned link);
struct conn *conn_find(struct fuzz_run *run, unsigned link, unsigned number);
/* The connection broke; a later event may give the reason. */
void conn_broke(struct fuzz_run *run, struct conn *conn, const char *what);

void qp_model_fini(struct qp_model *model);
/* Adds a request, or a receive; the caller fills it in and posts it. */
struct request *qp_model_add_send(struct fuzz_run *run, struct qp_model *model);
struct recv *qp_model_add_recv(struct fuzz_run *run, struct qp_model *model);
void qp_model_unpost(struct qp_model *model, uint32_t n_req);
/*
 * Takes a completion of the send queue. Returns how many requests are now known to have succeeded:
 * the caller checks the effects of those from model->ok on, and then sets model->ok. *bad is the
 * request that failed, or UINT32_MAX.
 */
uint32_t qp_model_send_done(struct fuzz_run *run, struct qp_model *model, const struct gn_wc *wc,
			    uint32_t *bad);
/* Takes a completion of the receive queue; returns the index of the receive. */
uint32_t qp_model_recv_done(struct fuzz_run *run, struct qp_model *model, const struct gn_wc *wc);
/* Checks that the failure of request `bad` has a reason. */
void qp_model_explain(struct fuzz_run *run, struct conn *conn, struct qp_model *model,
		      struct qp_model *peer, uint32_t bad, enum gn_wc_status status);

struct atomics *atomics_create(struct fuzz_run *run);
void atomics_fini(struct atomics *atomics);
void atomics_faa_posted(struct atomics *atomics, struct request *req, uint64_t add);
void atomics_cas_posted(struct atomics *atomics, struct request *req, bool guess);
void atomics_faa_done(struct fuzz_run *run, struct atomics *atomics, const struct request *req,
		      uint64_t old);
void atomics_cas_done(struct fuzz_run *run, struct atomics *atomics, const struct request *req,
		      uint64_t old);
/* The target's CPU did an atomic addition. */
void atomics_cpu_added(struct fuzz_run *run, struct atomics *atomics, uint64_t old, uint64_t add);
/* The process ends, with these values of the words. */
void atomics_close(struct fuzz_run *run, struct atomics *atomics, const uint64_t *words);

/* ---- the programs (program.c) ---- */

/* env->arg of a program. */
struct program_arg {
	struct fuzz_run *run;
	unsigned proc;
};

gn_node_main program_main;

#endif
