/* SPDX-License-Identifier: MIT */
/*
 * An endpoint: one thread's UD port, peers, calls and workers. Only its thread uses it; the control
 * thread reaches it by tasks.
 *
 *     poll: start waiting calls ▶ receive a batch ▶ post receives ▶ tasks ▶ timers ▶ workers ▶ send
 *
 * A peer keeps what must survive while it is idle. Its session holds the slots of calls in both
 * directions, and exists while there are any.
 */
#ifndef GN_DGRAM_ENDPOINT_H
#define GN_DGRAM_ENDPOINT_H

#include "base/bits.h"
#include "base/counter.h"
#include "base/owner.h"
#include "base/ticks.h"
#include "dgram/node.h"
#include "dgram/port.h"
#include "dgram/rtt.h"

#define DGRAM_RECV_BATCH    32
#define DGRAM_IDLE_NS	    10000000u /* without calls, before a session is given up */
#define DGRAM_IDLE_REPEATS  3u	      /* of the message that says so */
#define DGRAM_RETRY_NS	    1000000u  /* between requests for an association */
#define DGRAM_RESUMES_MAX   16u	      /* workers resumed between two polls */
#define DGRAM_EARLY_MSGS    8u	      /* sent at once to a peer that has nothing to do */
#define DGRAM_WINDOW_MIN    512u      /* bytes to a peer; one call may always be under way */
#define DGRAM_SLOT_GROUP    8u
#define DGRAM_INLINE_ANSWER 72u /* bytes of an answer that are kept in the slot */
#define DGRAM_PIECES_WINDOW 4u	/* pieces of a large message that are granted at a time */
#define DGRAM_PIECES_MAX    2048u
/* From the floor to the newest number: they compare as serial numbers. */
#define DGRAM_NUMBERS_MAX    (1u << 30)
#define DGRAM_CLOCK_TICKS    (EXEC_TICKS_SHORT / 8) /* 0.8 to 4 us: how old the time may be */
#define DGRAM_SENDS	     256u		    /* send buffers */
#define DGRAM_SPARE_RECVS    192u /* posted although nothing is expected for them */
#define DGRAM_ANSWER_CLASSES 3u	  /* sizes of kept answers that are pooled */

struct dgram_session;
struct dgram_worker;
struct dgram_old_ah;

/* A handler that runs. */
struct dgram_job {
	uint8_t *large; /* of gn_dgram_result(); owned */
};

/* Who waits for calls to end: on the stack of gn_dgram_call(). */
struct dgram_waiter {
	uint32_t pending;
	struct dgram_worker *worker; /* NULL: not in a worker */
};

/* State of an op. */
enum dgram_op_state {
	DGRAM_OP_NEW,
	DGRAM_OP_WAITING, /* on its peer's list: no association, slot, credit or window */
	DGRAM_OP_SENT,	  /* has a slot */
	DGRAM_OP_ENDED,
};

/* The receiving side of a large message. */
struct dgram_reassembly {
	uint8_t *data;	/* the caller's result, or owned */
	uint32_t bytes; /* all of it */
	uint32_t piece; /* bytes of the first one, and of all but the last */
	uint32_t pieces, arrived, granted;
	uint32_t reserved_recvs;
	unsigned status; /* of an answer */
	uint64_t map[DGRAM_PIECES_MAX / 64];
};

/* A caller's slot. */
struct dgram_call {
	struct gn_dgram_op *op; /* NULL: the call has ended without an answer; CANCEL is sent */
	uint32_t number;
	uint8_t attempt;
	bool canceled; /* CANCEL was sent */
	bool acked;    /* a piece of the request was acknowledged: do not send the first again */
	uint32_t cost_bytes; /* of the window */
	uint32_t recvs;	     /* reserved for the answer */
	uint32_t rto_ns;
	uint64_t first_ns, last_ns, repeat_ns;
	/* large messages */
	struct dgram_transfer *transfer; /* of the request */
	struct dgram_reassembly *result;
};

/* The sending side of a large message. */
struct dgram_transfer {
	const uint8_t *data;
	uint32_t bytes, piece, pieces;
	uint32_t granted;		     /* pieces below may be sent */
	uint32_t next;			     /* the next that was not sent yet */
	uint64_t map[DGRAM_PIECES_MAX / 64]; /* arrived there */
};

enum dgram_slot_state { DGRAM_SLOT_IDLE, DGRAM_SLOT_EXECUTING, DGRAM_SLOT_ANSWERED };

/* The executing side's slot. */
struct dgram_slot {
	uint32_t number; /* of the last call seen */
	uint8_t state;	 /* enum dgram_slot_state */
	uint8_t attempt;
	uint16_t status;
	uint32_t len;
	uint16_t method; /* of a request under reassembly */
	bool assembling, canceled;
	union {
		uint8_t *data; /* the answer, if longer than DGRAM_INLINE_ANSWER */
		struct dgram_reassembly *request;
	};
	struct dgram_transfer *transfer; /* of a large answer */
	uint8_t inlined[DGRAM_INLINE_ANSWER];
};

struct dgram_session {
	struct gn_dgram_peer *peer;
	struct link_timer timer; /* repeats, deadlines, idle check: a lower bound of all */
	uint64_t used;		 /* slots of calls */
	uint32_t idle_sent;	 /* how often the idle message was sent */
	uint32_t n_executing;
	uint64_t active_ns;	   /* the last time of use */
	uint64_t reassembly_bytes; /* of requests */
	uint64_t kept_bytes;	   /* of answers */
	uint64_t want_ns;	   /* the next request for an association */
	uint64_t asked_ns;	   /* the last request for credits */
	uint32_t ask_ns;	   /* … until the next one, if nothing comes */
	struct gn_dgram_op *waiting, **waiting_tail;
	uint32_t n_waiting;
	bool pieces_wait; /* of large messages, for a send buffer */
	uint32_t round;	  /* of walks over the list; an op that waits has that of its submission */
	uint32_t n_gone;  /* the remote's, when calls began to wait without an association */
	struct dgram_slot *groups[GN_DGRAM_SLOTS / DGRAM_SLOT_GROUP];
	struct dgram_call calls[GN_DGRAM_SLOTS];
	struct dgram_session *next; /* in the pool */
};

/* A thread of another node. */
struct gn_dgram_peer {
	struct gn_dgram_endpoint *ep;
	struct dgram_remote *remote;
	struct dgram_assoc *assoc; /* NULL: none */
	struct dgram_assoc *held;  /* one that has ended, for its remote node; NULL: none */
	struct dgram_session *session;
	struct gn_ah *ah; /* NULL: not made yet */
	struct dgram_old_ah *old_ah;
	uint64_t epoch;
	uint64_t ah_sends;	   /* sequence number of the last send, plus one */
	uint64_t heard_ns, cut_ns; /* last datagram of it; last time that the window shrank */
	void *user;
	struct gn_dgram_peer *next_in_hash, *next_to_flush, *next_blocked;
	uint32_t thread;
	uint32_t head_peer; /* for the head of datagrams to it */
	uint32_t qpn, qkey;
	uint32_t max_bytes; /* of a datagram to it */
	/* calls to the peer */
	uint32_t next_number, granted, done, returned;
	uint32_t window_bytes, used_bytes; /* may be, and are, under way */
	uint32_t result_bytes;		   /* expected length of a result */
	struct dgram_rtt rtt;
	/* calls of the peer */
	uint32_t floor;		/* numbers below are stale */
	uint32_t seen;		/* requests taken */
	uint32_t grant;		/* numbers below were granted */
	uint32_t peer_returned; /* credits given back */
	uint16_t quota;		/* credits to keep outstanding */
	uint16_t n_handlers;	/* workers that execute its requests */
	/* the datagram that is being filled */
	uint16_t open;
	uint16_t open_len;
	uint8_t open_count, open_flags;
	uint8_t open_less; /* messages that the datagram takes fewer than DGRAM_MSGS_MAX */
	bool opened;	   /* by name: the program has the pointer */
	bool secondary;	   /* of a second association of the same two nodes */
	bool flushing, blocked, assoc_ending;
	bool confirmed; /* its association is */
	bool idle;	/* it knows that there are no calls to it */
	bool free;	/* when its last handler has returned and its last call has ended */
};
static_assert(sizeof(struct gn_dgram_peer) <= 256, "an idle peer costs at most 256 bytes");

/* An association at this endpoint. */
struct dgram_table {
	struct dgram_assoc *assoc; /* NULL: none */
	struct gn_dgram_peer **peers;
};

/* An address handle that may be in use by sends. */
struct dgram_old_ah {
	struct gn_ah *ah;
	uint64_t sends;
	struct dgram_old_ah *next;
};

struct gn_dgram_endpoint {
	struct link_loop loop;
	struct gn_dgram_node *node;
	uint64_t owner;
	uint32_t thread;
	uint32_t flags;	 /* enum gn_dgram_flag */
	uint64_t now_ns; /* of this poll */
	struct dgram_port port;
	struct dgram_table *tables; /* opts.max_peers */
	struct link_task survey_task;
	uint64_t survey, surveyed; /* atomic: the last one asked for, and answered */
	bool survey_posted;	   /* atomic */
	/* lists */
	struct gn_dgram_peer *flush_list;
	struct gn_dgram_peer *blocked, **blocked_tail; /* calls wait for the endpoint's resources */
	struct gn_dgram_peer **hash;		       /* by remote node and thread */
	uint32_t hash_mask;
	struct gn_dgram_peer *free_peers;
	struct dgram_session *free_sessions;
	struct dgram_slot *free_groups;
	struct dgram_old_ah *old_ahs;
	/* receives: opts.receives = answers + requests + slack */
	uint32_t answers_max, answers; /* receives reserved for answers */
	uint32_t grants_max;
	uint64_t grants; /* … and for requests; a counter, as those below are */
	uint64_t n_ops;	 /* submitted and not ended */
	struct gn_dgram_peer *short_of_recvs; /* the first that waits for receives; NULL: none */
	bool in_handler, destroying;
	/* workers */
	struct gn_fiber *poller;
	struct dgram_worker *current, *ready, **ready_tail, *workers, *idle_workers;
	uint32_t n_workers, n_handlers, resumed;
	uint64_t poll_ticks, clock_ticks; /* of this poll, and of now_ns */
	uint64_t events;		  /* executed, completed, resumed: what a poll returns */
	uint64_t polled_ns;
	bool ran;			       /* workers or handlers since the last poll */
	uint8_t *scratch;		       /* a result of a handler: one datagram's */
	uint8_t *copy;			       /* of a request, with GN_DGRAM_NO_CHEAP_RECV */
	uint64_t kept_bytes, reassembly_bytes; /* counters */
	uint64_t pooled_bytes; /* of free_answers; with kept_bytes at most max_answer_bytes */
	struct gn_dgram_stats stats;
	void *free_answers[DGRAM_ANSWER_CLASSES];
};

#define ep_count(ep, counter) counter_add(&(ep)->stats.counter, 1)

/*
 * Before a datagram with new credits or requests is sent: has receives for what may arrive then,
 * once more for duplicates of it, and some for the rest. Not all of the endpoint's receives from
 * the beginning: they are used in turn, and each is in another page.
 */
static inline void dgram_ep_post_receives(struct gn_dgram_endpoint *ep)
{
	const uint32_t need = 2 * (ep->answers + (uint32_t)ep->grants) + DGRAM_SPARE_RECVS;

	if (unlikely(need > ep->port.posted) && ep->port.posted < ep->port.opts.receives)
		port_post_more(&ep->port, need);
}

static inline struct gn_dgram_endpoint *dgram_ep_of(struct link_loop *loop)
{
	return container_of(loop, struct gn_dgram_endpoint, loop);
}

/* Receives for requests that are not set aside. */
static inline uint32_t dgram_ep_spare_grants(const struct gn_dgram_endpoint *ep)
{
	return ep->grants < ep->grants_max ? ep->grants_max - (uint32_t)ep->grants : 0;
}

/* ---- endpoint.c ---- */

void dgram_ep_clock(struct gn_dgram_endpoint *ep);
/* Reads the clock, if the last reading is more than some microseconds old. */
static inline void dgram_ep_refresh(struct gn_dgram_endpoint *ep)
{
	const uint64_t ticks = exec_ticks();

	ep->poll_ticks = ticks;
	/* In a simulation the time costs nothing, and a microsecond is much. */
	if (unlikely(ticks - ep->clock_ticks > DGRAM_CLOCK_TICKS || exec_installed)) {
		ep->clock_ticks = ticks;
		dgram_ep_clock(ep);
	}
}
/* One iteration without workers. */
void dgram_ep_progress(struct gn_dgram_endpoint *ep);
int dgram_ep_invalid(const struct gn_dgram_endpoint *ep, const char *what);
static inline int dgram_ep_check(const struct gn_dgram_endpoint *ep, const char *what)
{
	if (likely(ep && exec_is_owner(ep->owner) && !ep->destroying))
		return 0;
	return dgram_ep_invalid(ep, what);
}

/* ---- node.c ---- */

int dgram_node_add(struct gn_dgram_endpoint *ep);
void dgram_node_remove(struct gn_dgram_endpoint *ep);

/* ---- peer.c ---- */

struct gn_dgram_peer *dgram_peer_find(struct gn_dgram_endpoint *ep, uint32_t number);
int dgram_peer_session(struct gn_dgram_peer *peer);
void dgram_peer_gone(struct gn_dgram_peer *peer);
/* Calls wait for an association: takes one that the peer has missed, or asks for one. */
void dgram_peer_want(struct gn_dgram_peer *peer);
/* The peer's node says that it has ended the epoch. */
void dgram_peer_ended(struct gn_dgram_peer *peer);
/* Frees the session of an idle peer, if nothing needs it. */
void dgram_peer_rest(struct gn_dgram_peer *peer);
/* Frees a peer that was waiting for it, unless something still uses it. */
void dgram_peer_release(struct gn_dgram_peer *peer);
int dgram_peer_ah(struct gn_dgram_peer *peer);
void dgram_peer_ah_from(struct gn_dgram_peer *peer, const struct gn_wc *wc, const uint8_t *grh);
void dgram_peers_free_ahs(struct gn_dgram_endpoint *ep);
void dgram_peers_destroy(struct gn_dgram_endpoint *ep);
struct dgram_slot *dgram_peer_slot(struct gn_dgram_peer *peer, uint32_t slot);
/* The same, inlined for a group that exists. */
static inline struct dgram_slot *dgram_slot_of(struct gn_dgram_peer *peer, uint32_t slot)
{
	struct dgram_slot *group = peer->session->groups[slot / DGRAM_SLOT_GROUP];

	return likely(group) ? &group[slot % DGRAM_SLOT_GROUP] : dgram_peer_slot(peer, slot);
}
/* The peer has said that it is idle: frees its slots. */
void dgram_peer_free_slots(struct gn_dgram_peer *peer, bool all);
/* The peer is never idle: forgets its oldest numbers before they would seem new. */
void dgram_peer_raise_floor(struct gn_dgram_peer *peer);

/* ---- credit.c ---- */

void dgram_credit_init(struct gn_dgram_peer *peer);
void dgram_credit_fini(struct gn_dgram_peer *peer);
/* Counters of a head that has been received. */
void dgram_credit_received(struct gn_dgram_peer *peer, const struct dgram_head *head);
/* A request of the peer with a new number: may it be taken? */
bool dgram_credit_take(struct gn_dgram_peer *peer, uint32_t number);
/* Before a head is sent: grants what may be granted. */
void dgram_credit_grant(struct gn_dgram_peer *peer);
/* The caller is idle: gives back all credits but one. */
void dgram_credit_return(struct gn_dgram_peer *peer);

/* ---- send.c ---- */

/* Opens a datagram to the peer, and closes the one that is open. */
int dgram_send_make_room(struct gn_dgram_peer *peer, uint8_t type);
/*
 * Adds a message with room for bytes of payload, and returns where the payload goes; NULL: no send
 * buffer is free, or no address handle. Inlined, so that the message is built in place.
 */
static force_inline uint8_t *dgram_send_add(struct gn_dgram_peer *peer, const struct dgram_msg *msg)
{
	const uint32_t bytes = (uint32_t)sizeof(*msg) + dgram_padded(msg->bytes);
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_msg *at;

	if (unlikely(peer->open == PORT_NO_BUFFER) ||
	    unlikely(peer->open_len + bytes > peer->max_bytes) ||
	    unlikely(peer->open_count + peer->open_less >= DGRAM_MSGS_MAX) ||
	    unlikely(ep->flags & GN_DGRAM_NO_COALESCE && peer->open_count))
		if (dgram_send_make_room(peer, msg->type))
			return NULL;
	at = (struct dgram_msg *)(void *)(port_buffer(&ep->port, peer->open) + peer->open_len);
	at->type = msg->type;
	at->attempt = msg->attempt;
	at->slot = msg->slot;
	at->number = msg->number;
	at->code = msg->code;
	at->bytes = msg->bytes;
	at->total = msg->total;
	peer->open_len = (uint16_t)(peer->open_len + bytes);
	peer->open_count++;
	return (uint8_t *)(at + 1);
}
/* Sends a datagram to the peer, if need be without a message. */
void dgram_send_head(struct gn_dgram_peer *peer, uint8_t flags);
/*
 * No call of the endpoint is under way, so the peer that answered last may be waiting for us: sends
 * the first DGRAM_EARLY_MSGS messages to it when there are so many, for it to work on them while
 * this side makes more. Otherwise two nodes with few workers would work in turns. Until the next
 * datagram to the peer.
 */
void dgram_send_early(struct gn_dgram_peer *peer);
/* Closes and posts all open datagrams. */
void dgram_send_flush(struct gn_dgram_endpoint *ep);
/* Closes the open datagram of the peer, if there is one. */
void dgram_send_now(struct gn_dgram_peer *peer);
void dgram_send_discard(struct gn_dgram_peer *peer);
/* Largest payload of a message in a datagram of its own. */
static inline uint32_t dgram_payload_max(const struct gn_dgram_peer *peer)
{
	return (peer->max_bytes - (uint32_t)sizeof(struct dgram_head) -
		(uint32_t)sizeof(struct dgram_msg)) &
	       ~(DGRAM_ALIGN - 1);
}

/* ---- receive.c ---- */

/* Takes a batch of datagrams. Their receives are posted again after the poll's sends. */
void dgram_receive(struct gn_dgram_endpoint *ep);
void dgram_receive_one(struct gn_dgram_endpoint *ep, const struct gn_wc *wc);

/* ---- call.c ---- */

int dgram_call_submit(struct gn_dgram_op *op);
bool dgram_call_is_under_way(const struct gn_dgram_op *op);
/* Starts waiting calls of the peer as far as slots, credits and the window allow. */
void dgram_call_start(struct gn_dgram_peer *peer);
/* The peer waits for a send buffer or a receive of the endpoint. */
void dgram_call_blocked(struct gn_dgram_peer *peer);
void dgram_call_start_blocked(struct gn_dgram_endpoint *ep);
void dgram_call_answer(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
		       const uint8_t *payload);
void dgram_call_abandon(struct gn_dgram_op *op, unsigned status);
void dgram_call_end_all(struct gn_dgram_peer *peer, unsigned status);
void dgram_call_end_waiting(struct gn_dgram_peer *peer, unsigned status);
void dgram_call_end(struct gn_dgram_op *op, unsigned status);
/* The slot's answer is complete, or its session ends. */
void dgram_call_free(struct gn_dgram_peer *peer, uint32_t slot);
void dgram_call_finish(struct gn_dgram_peer *peer, uint32_t slot, unsigned status, uint32_t len);

/* ---- timer.c ---- */

void dgram_timer_fired(struct link_timer *timer, uint64_t now_ns);
void dgram_timer_no_later(struct gn_dgram_peer *peer, uint64_t ns);

/* ---- serve.c ---- */

void dgram_serve_request(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
			 const uint8_t *payload);
void dgram_serve_cancel(struct gn_dgram_peer *peer, const struct dgram_msg *msg);
void dgram_serve_execute(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index,
			 uint32_t method, const uint8_t *data, uint32_t len);
/* Refuses a request that has not begun. */
void dgram_serve_busy(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index);
void dgram_serve_answer(struct gn_dgram_peer *peer, uint32_t index, bool again);
void dgram_serve_free(struct gn_dgram_peer *peer, struct dgram_slot *slot);
/* Runs a handler; then keeps and sends its answer. */
unsigned dgram_serve_run(struct gn_dgram_peer *peer, const struct dgram_method *method,
			 struct gn_dgram_request *request, struct dgram_job *job);
void dgram_serve_done(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index,
		      unsigned status, struct gn_dgram_request *request, struct dgram_job *job);

/* ---- large.c ---- */

/* A caller's request that needs pieces: the first one. */
int dgram_large_begin(struct gn_dgram_peer *peer, struct dgram_call *call);
void dgram_large_request(struct gn_dgram_peer *peer, struct dgram_slot *slot,
			 const struct dgram_msg *msg, const uint8_t *payload);
void dgram_large_answer(struct gn_dgram_peer *peer, struct dgram_call *call,
			const struct dgram_msg *msg, const uint8_t *payload);
void dgram_large_piece(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
		       const uint8_t *payload);
void dgram_large_ack(struct gn_dgram_peer *peer, const struct dgram_msg *msg,
		     const uint8_t *payload);
/* The first piece of a request has come again: acknowledges what has arrived. */
void dgram_large_repeat_ack(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index);
/* Sends the pieces that waited for a send buffer. */
void dgram_large_resume(struct gn_dgram_peer *peer);
/* A caller's timer: repeats what is missing. */
void dgram_large_repeat(struct gn_dgram_peer *peer, uint32_t slot);
void dgram_large_free_call(struct gn_dgram_peer *peer, struct dgram_call *call);
void dgram_large_free_slot(struct gn_dgram_peer *peer, struct dgram_slot *slot);
/* A large answer: its transfer. */
int dgram_large_answer_begin(struct gn_dgram_peer *peer, struct dgram_slot *slot);

/* ---- worker.c ---- */

int dgram_workers_init(struct gn_dgram_endpoint *ep);
void dgram_workers_destroy(struct gn_dgram_endpoint *ep);
/* Resumes ready workers; returns when the list is over, or after DGRAM_RESUMES_MAX. */
void dgram_workers_run(struct gn_dgram_endpoint *ep);
/* A call of the worker has ended. */
void dgram_worker_wake(struct dgram_worker *worker);
/* Runs the handler in a worker; -EBUSY: all are busy. The request is copied. */
int dgram_worker_serve(struct gn_dgram_peer *peer, struct dgram_slot *slot, uint32_t index,
		       const struct dgram_method *method, uint32_t code, const uint8_t *data,
		       uint32_t len);

#endif
