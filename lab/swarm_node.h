/* SPDX-License-Identifier: MIT */
/*
 * The swarm's programs: what one process, its workers and their ends of connections own. All of it
 * lives on the simulated heap and goes with the process; the model (swarm_model.h) stays.
 */
#ifndef GN_LAB_SWARM_NODE_H
#define GN_LAB_SWARM_NODE_H

#include "swarm_model.h"

#define GUARD	    GN_PAGE /* bytes on both sides of a region that nobody may touch */
#define GUARD_BYTE  0xa5
#define JUNK_BYTE   0x5e /* in buffers whose content is nobody's */
#define PAD	    LINE /* at a region's end, for requests that reach beyond it */
#define ATTEMPTS    6u
#define PATIENCE_US 4000000u /* for what must happen; nothing that is repeated takes as long */
#define UD_AHS	    UDS_MAX

struct worker;

/* What a side tells the other when it connects. */
struct hello {
	uint32_t link, number;
	struct gn_remote region, hall;
};

enum end_state { END_IDLE, END_CONNECTING, END_UP };

/* A qp with its memory: one side of a connection, or (ud) of datagrams. */
struct end {
	struct worker *worker;
	unsigned link, side; /* 0: client */
	enum end_state state;
	bool broken;	/* it saw an error */
	bool told_gone; /* … the event DISCONNECTED */
	unsigned attempts;

	struct swarm *s;
	struct life *life;
	struct half *half, *peer; /* in the model; peer is NULL for datagrams */
	struct ud_model *ud;
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_mem *mem, *local;
	struct gn_mr *mr, *local_mr, *hall_mr;
	struct gn_remote remote, hall_remote; /* the peer's */
	uint64_t caps;
	uint32_t max_send, max_recv, max_inline;
	uint32_t max_len, bay, n_bays, recv_bay;
	uint32_t unsignaled; /* the last ones posted */
	struct gn_ah **ah;   /* by index in swarm.ud */
};

struct worker {
	struct swarm *s;
	struct house *house;
	const struct plan_worker *plan;
	unsigned index;
	struct rng rng;
	uint64_t last_ns;
	struct gn_mutex lock; /* of everything below, where workers help each other */
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *send_cq, *recv_cq;
	struct gn_listener *listener;
	struct end end[LINKS_MAX + 1]; /* the last for datagrams */
	unsigned n_ends;
	struct gn_thread *thread;
	bool finishing; /* takes no more connections */
};

/* A process. */
struct house {
	struct swarm *s;
	const struct plan_proc *plan;
	struct gn_fabric *fabric;
	struct gn_attr attr;
	struct gn_ctx *ctx; /* shared: the workers' */
	struct gn_mem *hall_mem;
	struct hall *hall;
	struct worker worker[2];
	struct yard *yard;
};

/* False for a lack of memory that a fault explains; anything else that is not 0 is a violation. */
bool got(struct swarm *s, int rc, const char *call);
/* The time, which never goes back. */
uint64_t worker_now(struct worker *w);
/* Takes completions of all its ends. */
void worker_poll(struct worker *w);
/* Waits for completions, and for events if asked to: one that stays there would end every wait. */
void worker_wait(struct worker *w, uint64_t us, bool events);

/* ---- ends (swarm_end.c) ---- */

void end_connect(struct end *e);
void end_accept(struct end *e, struct gn_conn_req *req, const struct hello *hello);
void end_event(struct end *e, const struct gn_event *event);
/* Until everything posted on a connection that works is done, or it broke. */
void end_sync(struct end *e);
void end_close(struct end *e);
/* All of its queues are empty: it is in error, and waits for the completions of all. */
void end_drain(struct end *e);
/* A qp with its own pd, buffers and receives. */
bool end_open_queues(struct end *e, const struct gn_qp_opts *opts);
void end_free_queues(struct end *e);

/* ---- requests (swarm_post.c) and what they bring (swarm_check.c) ---- */

void end_post(struct end *e);
/* One request without bytes that completes after everything before it. False: no room. */
bool end_post_marker(struct end *e);
/* One READ that is signaled. False: no room. */
bool end_post_probe(struct end *e);
void end_post_recvs(struct end *e, uint32_t most);
/* Posts what was noted from first on; the one at `broken` is made one that nobody takes. */
void end_post_chain(struct end *e, struct gn_wr *wr, uint32_t first, uint32_t n, uint32_t broken);
uint32_t end_room(const struct end *e, uint32_t n_req);

uint8_t *end_bay(const struct end *e, uint32_t req);
uint8_t *end_recv_bay(const struct end *e, uint32_t recv);
uint8_t *end_region(const struct end *e);
uint32_t area_size_of(uint32_t max_len);
uint32_t lines_size_of(uint32_t max_len);
uint32_t region_size_of(uint32_t max_len);

/* Cuts len into at most SGE_MAX pieces; and where piece i of a buffer begins. */
uint32_t cut_pieces(struct rng *rng, uint32_t len, uint32_t piece[SGE_MAX]);
uint32_t fill_sges(struct gn_sge *sge, uint8_t *buffer, uint32_t lkey, uint32_t n,
		   const uint32_t *piece);
/* The pieces of a buffer next to each other, in the run's scratch. */
const uint8_t *gather(struct swarm *s, const uint8_t *buffer, uint32_t n, const uint32_t *piece,
		      uint32_t len);
void scatter(uint8_t *buffer, uint32_t n, const uint32_t *piece, const uint8_t *from);
uint32_t draw_len(struct rng *rng, uint32_t max);

void end_sent(struct end *e, const struct gn_wc *wc);
void end_received(struct end *e, const struct gn_wc *wc);
/* The target's CPU looks at the memory that the peer writes, or changes what the peer reads. */
void end_sample(struct end *e);
void end_bump(struct end *e);
void end_interfere(struct end *e);
/* The region's key is withdrawn: from then on it does not change. */
void end_withdraw(struct end *e);
void end_check_guards(struct end *e);

/* ---- datagrams (swarm_ud.c) ---- */

void ud_open(struct end *e);
void ud_post(struct end *e);
bool ud_post_marker(struct end *e);
void ud_take_back(struct end *e, const struct request *req);
void ud_sent(struct end *e, uint32_t req);
void ud_failed(struct end *e, uint32_t req, enum gn_wc_status status);
void ud_received(struct end *e, const struct gn_wc *wc, uint32_t recv);
void ud_close(struct end *e);

/* ---- threads among themselves (swarm_yard.c) ---- */

bool yard_open(struct house *house);
void yard_play(struct worker *w);
void yard_close(struct house *house);

#endif
