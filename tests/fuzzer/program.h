/* SPDX-License-Identifier: MIT */
/*
 * The fuzzer's programs: what one process, its workers and their endpoints own. It is on the
 * simulated heap and goes with the process; the model (model.h) stays.
 */
#ifndef FUZZER_PROGRAM_H
#define FUZZER_PROGRAM_H

#include "model.h"

#define GUARD		    GN_PAGE /* bytes before and after a region that nothing may write */
#define GUARD_BYTE	    0xa5
#define JUNK_BYTE	    0x5e /* in buffers without content */
#define PAD		    LINE /* bytes at the end of a region, for requests out of range */
#define ATTEMPTS	    6u
#define PROGRESS_TIMEOUT_US 4000000u /* no retry takes as long */
#define UD_AHS		    UDS_MAX

struct worker;

/* The private data of a connection request and of its reply. */
struct hello {
	uint32_t link, number;
	struct gn_remote region, atomics;
};

enum ep_state { EP_IDLE, EP_CONNECTING, EP_UP };

/* A qp with its memory: one side of a connection, or a UD qp. */
struct endpoint {
	struct worker *worker;
	unsigned link, side; /* 0: client */
	enum ep_state state;
	bool broken;	   /* it saw an error */
	bool disconnected; /* the event DISCONNECTED came */
	unsigned attempts;

	struct fuzz_run *run;
	struct conn *conn;
	struct qp_model *model, *peer; /* peer is NULL for UD */
	struct ud_model *ud;
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_mem *mem, *local;
	struct gn_mr *mr, *local_mr, *atomics_mr;
	struct gn_remote remote, atomics_remote; /* the peer's */
	uint64_t caps;
	uint32_t max_send, max_recv, max_inline;
	uint32_t max_len, send_slot_bytes, n_send_slots, recv_slot_bytes;
	uint32_t unsignaled; /* requests since the last signaled one */
	struct gn_ah **ah;   /* by index in fuzz_run.ud */
};

struct worker {
	struct fuzz_run *run;
	struct process *process;
	const struct plan_worker *plan;
	unsigned index;
	struct rng rng;
	uint64_t last_ns;
	struct gn_mutex lock; /* plan->shared: of everything below */
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *send_cq, *recv_cq;
	struct gn_listener *listener;
	struct endpoint endpoint[LINKS_MAX + 1]; /* the last is the UD qp */
	unsigned n_endpoints;
	struct gn_thread *thread;
	bool finishing; /* rejects connection requests */
};

struct process {
	struct fuzz_run *run;
	const struct plan_proc *plan;
	struct gn_fabric *fabric;
	struct gn_attr attr;
	struct gn_ctx *ctx; /* plan->shared: of both workers */
	struct gn_mem *atomics_mem;
	struct atomics *atomics;
	struct worker worker[2];
	struct shared *shared;
};

/* False: -ENOMEM, which a fault explains. Any other error is a violation. */
bool ok_or_no_memory(struct fuzz_run *run, int rc, const char *call);
/* gn_now_ns(), checked to be monotonic. */
uint64_t worker_now(struct worker *w);
/* Takes the completions of all its endpoints. */
void worker_poll(struct worker *w);
/* Waits for completions, and for events if asked to. A pending event ends every such wait. */
void worker_wait(struct worker *w, uint64_t us, bool events);

/* ---- endpoints (endpoint.c) ---- */

void ep_connect(struct endpoint *ep);
void ep_accept(struct endpoint *ep, struct gn_conn_req *req, const struct hello *hello);
void ep_event(struct endpoint *ep, const struct gn_event *event);
/* Waits until all requests have completed, or the connection broke. */
void ep_sync(struct endpoint *ep);
void ep_close(struct endpoint *ep);
/* Waits until the queues of a qp in error are flushed. */
void ep_drain(struct endpoint *ep);
/* Creates a qp with a pd and buffers of its own. */
bool ep_open_queues(struct endpoint *ep, const struct gn_qp_opts *opts);
void ep_free_queues(struct endpoint *ep);

/* ---- requests (endpoint_post.c) and their effects (endpoint_check.c) ---- */

void ep_post(struct endpoint *ep);
/* One signaled request without bytes, behind all others. False: the queue is full. */
bool ep_post_marker(struct endpoint *ep);
/* One signaled READ. False: the queue is full. */
bool ep_post_probe(struct endpoint *ep);
void ep_post_recvs(struct endpoint *ep, uint32_t most);
/* Posts the requests of the model from `first` on; makes number `broken` of them invalid. */
void ep_post_chain(struct endpoint *ep, struct gn_wr *wr, uint32_t first, uint32_t n,
		   uint32_t broken);
uint32_t ep_room(const struct endpoint *ep, uint32_t n_req);

uint8_t *ep_send_slot(const struct endpoint *ep, uint32_t req);
uint8_t *ep_recv_slot(const struct endpoint *ep, uint32_t recv);
uint8_t *ep_region(const struct endpoint *ep);
uint32_t area_bytes(uint32_t max_len);
uint32_t lines_bytes(uint32_t max_len);
uint32_t region_bytes(uint32_t max_len);

/* Splits len bytes into at most SGE_MAX pieces. */
uint32_t cut_pieces(struct rng *rng, uint32_t len, uint32_t piece[SGE_MAX]);
uint32_t fill_sges(struct gn_sge *sge, uint8_t *buffer, uint32_t lkey, uint32_t n,
		   const uint32_t *piece);
/* The pieces of a buffer, contiguous in the run's scratch buffer. */
const uint8_t *gather(struct fuzz_run *run, const uint8_t *buffer, uint32_t n,
		      const uint32_t *piece, uint32_t len);
void scatter(uint8_t *buffer, uint32_t n, const uint32_t *piece, const uint8_t *from);
uint32_t draw_len(struct rng *rng, uint32_t max);

void ep_sent(struct endpoint *ep, const struct gn_wc *wc);
void ep_received(struct endpoint *ep, const struct gn_wc *wc);
/* The target's CPU checks the memory that the peer writes, or overwrites lines that it reads. */
void ep_check_memory(struct endpoint *ep);
void ep_bump_version(struct endpoint *ep);
void ep_interfere(struct endpoint *ep);
/* Deregisters the region, and checks that it does not change any more. */
void ep_deregister(struct endpoint *ep);
void ep_check_guards(struct endpoint *ep);

/* ---- datagrams (endpoint_ud.c) ---- */

void ud_open(struct endpoint *ep);
void ud_post(struct endpoint *ep);
bool ud_post_marker(struct endpoint *ep);
void ud_take_back(struct endpoint *ep, const struct request *req);
void ud_sent(struct endpoint *ep, uint32_t req);
void ud_failed(struct endpoint *ep, uint32_t req, enum gn_wc_status status);
void ud_received(struct endpoint *ep, const struct gn_wc *wc, uint32_t recv);
void ud_close(struct endpoint *ep);

/* ---- what the threads of a process share (shared_state.c) ---- */

bool shared_open(struct process *process);
void shared_use(struct worker *w);
void shared_close(struct process *process);

#endif
