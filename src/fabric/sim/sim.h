/* SPDX-License-Identifier: MIT */
/*
 * The sim provider: the fabric on a simulated cluster. Posting only queues; everything else happens
 * in events, so that time can pass between them:
 *
 *     post ──▶ ring: the doorbell rings, the device fetches request and payload
 *         ──▶ tx: it takes the request, checks its local buffers, sends it
 *              ──▶ rx: it arrives at the target's device
 *                  ──▶ place: its effect, every check of the target made there, and the answer
 *                      ──▶ back: the answer arrives
 *                          ──▶ done: its completion
 *
 * Each stage of a qp has one event and takes requests in their order; stages of different qps mix
 * as time and the seed decide. How long things take is asked of the models (sim/model/model.h);
 * all of it is nothing in the profile ideal. Events run as the engine (sim/sim.h), so nothing here
 * needs a lock. A datagram leaves its qp at tx and travels by itself (ud.c).
 */
#ifndef GN_FABRIC_SIM_SIM_H
#define GN_FABRIC_SIM_SIM_H

#include "fabric/soft/soft.h"
#include "sim/fault.h"
#include "sim/nodes.h"

#define SIM_RETRY_PS (1250ull * 1000 * 1000) /* 1.25 ms without a response, then retry … */
#define SIM_RETRIES  7u			     /* … this many times, before GN_WC_RETRY */
#define SIM_BACKLOG  1024u		     /* requests queued at a listener */
#define SIM_LINE     64u		     /* unit of visibility */
#define SIM_COPIES   2u			     /* transmissions of a datagram, with a duplicate */

/* ---- the node's device (nic.c): what the wire can address ---- */

#define SIM_NIC_BUCKETS 256u

struct sim_nic {
	struct sim_node *node;
	uint32_t last_qpn;
	struct sim_qp *qps[SIM_NIC_BUCKETS]; /* by qpn */
	struct sim_listener *listeners;
	struct sim_datagram *datagrams; /* in flight to this device */
};

int sim_nic_get(struct sim_node *node, struct sim_nic **out);
void sim_nic_add(struct sim_nic *nic, struct sim_qp *qp); /* sets its qpn */
void sim_nic_del(struct sim_qp *qp);
struct sim_qp *sim_nic_find(const struct sim_nic *nic, uint32_t qpn);
/* NULL: no such node, or nothing was ever opened there. */
struct sim_nic *sim_nic_of(const struct gn_sim *sim, unsigned node);

/* ---- objects ---- */

struct sim_fabric {
	struct gn_fabric fabric;
	struct gn_sim *sim;
	struct sim_proc *proc;
	struct sim_nic *nic;
	struct soft_keys keys;
	struct sim_hook hook; /* cleanup if the process ends without closing it */
};

struct sim_ctx {
	struct gn_ctx ctx;
	struct sim_path *paths;
	unsigned next_path;
};

struct sim_chan {
	struct gn_chan chan;
	struct sim_alarm timer;
	bool has_timer;
};

struct sim_cq {
	struct soft_cq soft;
	uint64_t requests; /* total queue entries whose completions go to it */
};

/* State of a connection, as one side sees it. */
enum sim_phase {
	SIM_CONN_NONE,
	SIM_CONN_ASKING,   /* the request is in flight */
	SIM_CONN_WAITING,  /* … is queued at the listener; the event is the timeout */
	SIM_CONN_ACCEPTED, /* the reply is in flight */
	SIM_CONN_REJECTED,
	SIM_CONN_REPLYING,  /* server: the reply is in flight; the event is the timeout */
	SIM_CONN_CONFIRMED, /* … the client has it and confirms */
	SIM_CONN_UP,
	SIM_CONN_LEFT, /* the peer's disconnect is in flight */
	SIM_CONN_DOWN
};

struct sim_conn {
	enum sim_phase phase;
	bool established; /* ESTABLISHED was queued */
	struct sim_qp *peer;
	struct sim_event event; /* the next step */
	struct sim_req *req;	/* WAITING */
	unsigned node, port;	/* ASKING: the destination */
	uint64_t deadline_ps;
	uint64_t rnr_timer_ps;
	uint32_t rnr_retry;
	uint32_t hello_len;
	uint8_t hello[GN_PRIVATE_MAX]; /* private data for the peer */
};

/* State of a posted send besides its request. */
struct sim_send {
	enum gn_wc_status status;
	uint32_t tries;
	bool acted;	   /* it took effect: a repetition only repeats the response */
	uint64_t at_ps;	   /* when its next stage may process it */
	bool first, alone; /* first of, or alone in its chain, which has one doorbell */
	bool sent;	   /* it has passed tx */
	bool rung;	   /* its doorbell has arrived at the device */
	uint64_t stall_ps; /* how long the target stalls before it accesses memory */
	bool cold;	   /* the device must fetch it and its context, which stalls others */
	uint32_t bytes;	   /* of payload */
	uint32_t lines;	   /* of 64 bytes that the request takes in the device */
	struct sim_sample *sample; /* a READ that is sampled in steps */
};

/* In the order of a request's life. MOVE has events only on cards that stall (profile.stalls). */
enum sim_stage { SIM_RING, SIM_TX, SIM_RX, SIM_MOVE, SIM_PLACE, SIM_BACK, SIM_DONE, SIM_STAGES };

struct sim_qp {
	struct gn_qp qp;
	/* Used by every stage, kept together. */
	uint64_t passed[SIM_STAGES]; /* positions below have passed the stage */
	struct sim_send *sends;	     /* by position, like sq */
	struct sim_held *held;	     /* … */
	struct soft_sq sq;
	struct sim_event stage[SIM_STAGES];
	struct sim_conn conn;
	struct sim_flight *flights;  /* WRITEs to it that are not visible yet, oldest first */
	struct sim_orphans *orphans; /* requests to it whose sender has failed */
	struct sim_path *path;
	uint64_t bell_ps; /* when the last doorbell arrived at the device */
	bool cold;	  /* … which had evicted its context */
	/* Requests, and responses to its READs, that are ready until then leave together. */
	uint64_t visit_ps, answer_visit_ps;
	uint64_t heard; /* from its peer: requests that took effect here, responses to READs */
	uint32_t reads; /* READs and atomics without a response: what a fence waits for */
	uint64_t lines; /* of requests that have not completed */
	bool placing;	/* the first request of stage PLACE is taking effect */
	bool up;	/* initialised: visible to other threads */
	struct soft_rq rq;
	struct sim_qp *nic_next, **nic_prev;
};

struct sim_listener {
	struct gn_listener listener;
	unsigned port;
	uint32_t waiting; /* requests neither accepted nor rejected */
	struct sim_listener *next, **prev;
};

struct sim_req {
	struct gn_conn_req req;
	struct sim_qp *client; /* NULL: timed out */
};

static inline struct sim_fabric *sim_fabric_of(const struct obj *obj)
{
	return (struct sim_fabric *)obj->fabric;
}

static inline struct sim_qp *sim_qp_of(const struct gn_qp *qp)
{
	return (struct sim_qp *)qp;
}

static inline struct sim_cq *sim_cq_of(struct gn_cq *cq)
{
	return container_of(cq, struct sim_cq, soft.cq);
}

static inline struct sim_node *sim_node_of(const struct sim_qp *qp)
{
	return sim_fabric_of(&qp->qp.obj)->nic->node;
}

static inline struct sim_device *sim_device_of(const struct sim_qp *qp)
{
	return &sim_node_of(qp)->device;
}

static inline struct sim_engine *sim_engine_of(const struct sim_qp *qp)
{
	return &sim_fabric_of(&qp->qp.obj)->sim->engine;
}

/* ---- mr.c ---- */
int sim_mem_alloc(struct gn_mem *mem);
void sim_mem_fini(struct gn_mem *mem);
int sim_mr_init(struct gn_mr *mr);
void sim_mr_fini(struct gn_mr *mr);

/* ---- cq.c ---- */
int sim_cq_init(struct gn_cq *cq);
void sim_cq_fini(struct gn_cq *cq);
int sim_cq_poll(struct gn_cq *cq, struct gn_wc *wc, int n);
int sim_cq_arm(struct gn_cq *cq, bool solicited_only);
bool sim_cq_ready(struct gn_cq *cq);
void sim_chan_pump(struct gn_chan *chan);
int sim_chan_timer(struct gn_chan *chan, uint64_t deadline_ns);
void sim_chan_fini(struct gn_chan *chan);
/* Queues a completion; an overrun puts the cq's qps in error. */
void sim_cq_push(struct gn_cq *cq, const struct gn_wc *wc, bool solicited);

/* ---- qp.c ---- */
int sim_qp_init(struct gn_qp *qp);
void sim_qp_detach(struct gn_qp *qp);
void sim_qp_fini(struct gn_qp *qp);
int sim_qp_reset(struct gn_qp *qp);
int sim_qp_error(struct gn_qp *qp);
/* The externally visible part of its destruction, for qps whose process has ended. */
void sim_qp_unplug(struct sim_qp *qp);
/*
 * Puts the qp in error and flushes its requests. Requests that have left may still arrive, and
 * requests that took effect without a response may be flushed.
 */
void sim_qp_fail(struct sim_qp *qp);
/* … by the response to a request: all earlier ones have responses, later ones do not count. */
void sim_qp_fail_answered(struct sim_qp *qp);
/* Completes the first posted receive. */
void sim_recv_complete(struct sim_qp *qp, struct gn_wc *wc, bool solicited);

/* ---- post.c ---- */
int sim_ctx_init(struct gn_ctx *ctx);
void sim_ctx_fini(struct gn_ctx *ctx);
/* The context's path to the device for the next qp. */
struct sim_path *sim_ctx_path(struct gn_ctx *ctx);
unsigned sim_post_send(struct gn_qp *qp, const struct gn_wr *wr, unsigned n);
unsigned sim_post_recv(struct gn_qp *qp, const struct gn_recv_wr *wr, unsigned n);

/* ---- send.c: the stages ---- */
extern void (*const sim_stage_fn[SIM_STAGES])(struct sim_event *event);
/* The device keeps a request from its post until it has completed. */
void sim_request_keep(struct sim_qp *qp, const struct sim_send *send);
void sim_request_drop(struct sim_qp *qp, const struct sim_send *send);
/* Schedules the stage if a request waits for it. */
void sim_stage_kick(struct sim_qp *qp, enum sim_stage stage);
/* Flushes all requests that have not taken effect. */
void sim_stages_flush(struct sim_qp *qp);
/* Also flushes, from some request on, those that took effect without a response. */
void sim_stages_unanswered(struct sim_qp *qp);
/* Are the local buffers valid: inline, or in regions with the rights? */
bool sim_local_ok(const struct sim_qp *qp, const struct gn_wr *wr);
static inline struct sim_send *sim_send_at(const struct sim_qp *qp, uint64_t position)
{
	return &qp->sends[position & qp->sq.mask];
}

/* ---- place.c: the effect at the target ---- */

/* UNFINISHED: continues at send->at_ps. NOT_READY: no receive. */
enum sim_placed { SIM_PLACED, SIM_UNFINISHED, SIM_NOT_READY, SIM_REFUSED };
/*
 * REFUSED: send->status has the reason, and the target's completion was queued. from is NULL if its
 * qp has failed: then the request is not a READ, and an atomic has no local SGEs.
 */
enum sim_placed sim_place(struct sim_qp *from, unsigned from_node, const struct gn_wr *wr,
			  struct sim_send *send, struct sim_qp *to);
/* Bytes of qp's process changed: wakes threads that wait for them. */
void sim_changed(const struct sim_qp *qp, const void *addr, uint64_t len_bytes);
/* Can the first receive of to take len_bytes? */
enum gn_wc_status sim_recv_check(const struct sim_qp *to, uint64_t len_bytes);
/* Copies payload into that receive, from offset on. */
void sim_recv_fill(struct sim_qp *to, uint64_t offset, const uint8_t *data, uint64_t len_bytes);

/* ---- held.c: buffers of requests that have not completed ---- */

static inline bool sim_op_gathers(enum gn_op op)
{
	return (1u << GN_OP_SEND | 1u << GN_OP_SEND_IMM | 1u << GN_OP_WRITE |
		1u << GN_OP_WRITE_IMM) >>
		       op &
	       1;
}

int sim_held_init(struct sim_qp *qp);
/* A request was posted: its buffers must not change before sim_held_end(). */
void sim_held_add(struct sim_qp *qp, uint64_t position);
/* The device reads the buffers now. If they have changed, the run ends with a report. */
void sim_held_check(struct sim_qp *qp, uint64_t position);
/* Its target has all of it. */
void sim_held_acted(struct sim_qp *qp, uint64_t position);
/* It has completed, with the status in its struct sim_send. */
void sim_held_end(struct sim_qp *qp, uint64_t position);
void sim_held_fini(struct sim_qp *qp); /* all of them */
/* The fabric stored bytes in the process's memory. */
void sim_held_placed(struct sim_proc *proc, const void *addr, uint64_t len_bytes);
/* A region is deregistered: buffers under its key cannot be gathered any more. */
void sim_held_deregister(struct sim_qp *qp, uint32_t lkey);
/* Gathers some bytes of a datagram now, the rest when it arrives or its request completes. */
void sim_held_carry(struct sim_qp *qp, uint64_t position, struct sim_datagram *datagram);
void sim_held_fill(struct sim_datagram *datagram);
void sim_held_drop(struct sim_datagram *datagram); /* it is lost */

/* ---- flight.c: what becomes visible late, or in pieces ---- */

/* Delays a WRITE. False: no delay, place it now. */
bool sim_flight_begin(unsigned from_node, const struct gn_wr *wr, struct sim_qp *to, uint8_t *addr,
		      uint64_t len_bytes);
/* Makes WRITEs in flight to a qp visible now: all of them, or those in one region. */
void sim_flights_land(struct sim_qp *to);
void sim_flights_land_in(struct sim_qp *to, const uint8_t *addr, uint64_t len_bytes);
/* … or drops them. */
void sim_flights_drop(struct sim_qp *to);
/* A READ of more than one line is sampled at several instants. True: continue at send->at_ps. */
bool sim_sample_more(struct sim_qp *from, const struct gn_wr *wr, struct sim_send *send,
		     const uint8_t *addr, uint64_t len_bytes);
void sim_sample_drop(struct sim_send *send);

/* ---- orphan.c: requests whose qp has failed after they left it ---- */

/* The qp fails or is destroyed: some of its sent requests still reach the peer. */
void sim_orphans_leave(struct sim_qp *qp);
void sim_orphans_drop(struct sim_qp *to);

/* ---- ud.c ---- */

/* A datagram in flight. */
struct sim_datagram {
	struct sim_event event;
	struct sim_nic *nic; /* its destination */
	struct sim_datagram *next, **prev;
	struct sim_qp *from; /* NULL: it has all its bytes; otherwise it lacks some of … */
	uint64_t position;   /* … this request's: the lines in … */
	uint64_t late;	     /* … this mask, by line number modulo 64 */
	bool taken_in;
	bool solicited;
	unsigned from_node;
	struct gn_wc wc; /* as the receiver will see it */
	uint32_t qpn, qkey;
	uint32_t len_bytes;
	uint8_t data[];
};

/* The first request of stage TX leaves as a datagram. */
void sim_ud_send(struct sim_qp *from, const struct gn_wr *wr, uint64_t leaves_ps);
void sim_datagrams_drop(struct sim_nic *nic);
int sim_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out);
int sim_ah_init(struct gn_ah *ah);
int sim_ah_reverse(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
		   struct gn_ud_addr *out);

/* ---- cm.c ---- */
int sim_addr_check(struct gn_fabric *fabric, const char *addr);
int sim_listen_init(struct gn_listener *listener, const char *addr);
void sim_listen_fini(struct gn_listener *listener);
void sim_listen_unplug(struct sim_listener *listener);
int sim_connect(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts);
int sim_accept(struct gn_conn_req *req, struct gn_qp *qp, const struct gn_conn_opts *opts);
int sim_reject(struct gn_conn_req *req, const void *private_data, uint32_t private_len);
void sim_req_unplug(struct sim_req *req);
int sim_disconnect(struct gn_qp *qp);
void sim_conn_step(struct sim_event *event);
/* Disconnects, if connected: the peer will be notified. */
void sim_conn_leave(struct sim_qp *qp);

#endif
