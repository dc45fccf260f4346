/* SPDX-License-Identifier: MIT */
/*
 * Common parts of requester and responder. A poller belongs to one thread and owns a context, a
 * completion queue, a channel and the endpoints of the thread's connections. An endpoint has a tx
 * and an rx ring. A requester sends requests, a responder sends answers; the two sides do not
 * differ otherwise.
 *
 *     requester                                                  responder
 *     tx  slot 0 │ 1 │ … │ R-1   ── SEND, WRITE, WRITE_IMM ─▶   rx  slot 0 │ 1 │ … │ R-1
 *     rx  slot 0 │ 1 │ … │ R-1  ◀─ SEND, WRITE, WRITE_IMM ──    tx  slot 0 │ 1 │ … │ R-1
 *
 * Message n of a ring arrives in slot n mod R. RC messages arrive in order, so the receiver knows
 * the next slot. Datagrams (ud.c) may be reordered and carry their slot number.
 *
 * The device owns a posted buffer until the send has completed, even if the answer has arrived: the
 * device may still read the buffer, or read it again to retransmit. So message n is sent from
 * buffer n mod depth, and at most depth sends are posted and not known to be complete. A datagram
 * is sent from the buffer of its slot, which is free when the last send posted from it is complete
 * (msg_ud_writable()).
 *
 * Only the poller's thread may call these functions.
 */
#ifndef GN_MSG_ENDPOINT_H
#define GN_MSG_ENDPOINT_H

#include <errno.h>

#include "base/owner.h"
#include "link/link.h"
#include "msg/wire.h"

#define MSG_CHAIN   16u /* WRs per doorbell, and receives per post */
#define MSG_WAKEUPS 2u	/* extra sends and receives for wake-ups: msg_ep_announce_sleep() */

enum msg_verb { MSG_NONE, MSG_SEND, MSG_WRITE, MSG_WRITE_IMM, MSG_READ, MSG_DATAGRAM };

struct msg_ring {
	enum msg_verb verb;
	enum msg_frame frame;
	uint32_t max;	 /* payload bytes */
	uint32_t stride; /* bytes from slot to slot */
	uint32_t lkey;
	struct gn_mem *mem;
	struct gn_mr *mr;
	size_t bytes;
	uint8_t *slots;
	uint32_t seq, at;     /* sequence number of the next message, and its slot */
	uint32_t n_bufs, buf; /* tx: number of send buffers, and the next message's */
	/* Rings whose messages are reported by completions: */
	uint32_t n_arrived, arrived_slot; /* messages to consume, and the next slot to fill */
	uint32_t *lengths;		  /* per slot: payload length, may include MSG_REFUSED */
	uint32_t n_recvs_due, recv_slot;  /* receives to post, from this slot on */
};

struct msg_poller;

struct msg_ep {
	struct link_conn link;
	struct msg_poller *poller;
	unsigned index; /* in poller->eps */
	uint32_t pending;
	uint32_t nonce;
	struct gn_pd *pd;
	struct msg_ring tx, rx;
	struct msg_ring sleep_ring; /* two words: msg_ep_announce_sleep() */
	uint32_t sleep_key;	    /* rkey of the peer's sleep_ring */
	struct gn_remote to;	    /* the peer's slots (READ: data) */
	/* WRs chained so far, known to be complete, send queue limit */
	uint32_t queued, done, depth;
	/* one WR in signal_every is signaled; since the last signaled */
	uint32_t signal_every, n_unsignaled;
	uint32_t n_chain, chain_max; /* WRs not posted yet, and their maximum */
	struct gn_wr chain[MSG_CHAIN];
	struct gn_sge sge[MSG_CHAIN];
	uint32_t n_expected; /* messages that may arrive; 0: do not poll for any */
	bool rx_ended;	     /* an error was reported as a result: report no more messages */
	/* For msg_ep_announce_sleep(): */
	uint32_t n_wakeups; /* wake-up WRs that have not completed */
	/* sequence number last written to the peer's sleep word; 0: none */
	uint32_t sleep_seq;
	uint64_t wake_answered;	   /* the last value of the peer's sleep word that was answered */
	enum gn_msg_status status; /* not OK: the endpoint has failed */
	void *owner;
	struct gn_mr *data;	      /* exposed for the peer's READs */
	struct msg_peer *peer;	      /* UD: the peer's address (ud.c) */
	struct msg_slot_sends *sends; /* UD: per slot, the sends posted from it (ud.c) */
};

struct msg_ud;

struct msg_poller {
	struct link_loop loop;
	uint64_t creator; /* thread id */
	/* WRITEs to this side are not placed in order: messages need a checksum */
	bool checksums;
	unsigned flags;
	struct msg_ep **eps;
	unsigned max_eps, n_eps;   /* size of eps, and entries that are not NULL */
	uint64_t bytes, max_bytes; /* buffer bytes reserved for peers; max_bytes 0: no limit */
	struct gn_msg_stats stats;
	struct msg_ud *ud;
	struct link_timer ud_reset;
	uint64_t progress;	   /* message count at the last sleep */
	uint64_t poll_interval_ns; /* longest time asleep before memory is polled */
	/* Requester, before a sleep: 0, or -EAGAIN: results are ready. */
	int (*prepare_sleep)(struct msg_poller *poller);
	/* Requester: the outcome of link_conn_connect(). */
	int (*connect_done)(struct msg_ep *ep, const struct gn_event *event);
	/* Responder: a peer wants to connect. */
	void (*connect_request)(struct msg_poller *poller, struct gn_event *event);
	/* A datagram for ep with a valid header. attempt: see msg_ud_send(). */
	void (*datagram)(struct msg_ep *ep, const struct msg_datagram *head, uint32_t attempt,
			 const uint8_t *data);
};

/* -EPERM in a forked child: the child does not share the parent's fabric resources. */
static inline int msg_poller_check(const struct msg_poller *poller)
{
	return exec_inherited(poller->creator) ? exec_not_owner(poller->creator, "msg") : 0;
}

/* ---- poller.c ---- */

int msg_poller_open(struct msg_poller *poller, struct gn_fabric *fabric, struct gn_ctx *ctx,
		    unsigned max_eps, uint32_t completions);
void msg_poller_close(struct msg_poller *poller);
/* An unused index in eps; -ENOSPC. */
int msg_poller_free_index(const struct msg_poller *poller);
/* Counts buffer memory against max_bytes; -ENOBUFS. */
int msg_poller_reserve_bytes(struct msg_poller *poller, uint64_t bytes);
void msg_poller_release_bytes(struct msg_poller *poller, uint64_t bytes);
/* Polls completions, and from time to time (or with now) events. */
void msg_poller_poll(struct msg_poller *poller, bool now);
/*
 * Waits after a poll without a result. 1: poll again, with *now as the poll's argument. 0: the
 * deadline has passed, and the last poll included events. -EINTR.
 */
static inline int msg_poller_wait(struct msg_poller *poller, uint64_t deadline_ns,
				  const char *reason, bool *now)
{
	int rc;

	if (deadline_ns == GN_NO_WAIT) {
		if (*now || !link_loop_overdue(&poller->loop))
			return 0;
		*now = true;
		return 1;
	}
	rc = link_loop_wait(&poller->loop, deadline_ns, reason);
	if (rc == -EINTR)
		return rc;
	if (rc == -ETIMEDOUT && *now)
		return 0;
	*now = rc == -ETIMEDOUT;
	return 1;
}
int msg_poller_stats(const struct msg_poller *poller, struct gn_msg_stats *out);
/* The loop's source, for gn_wait() and other event loops. */
struct gn_source *msg_poller_source(struct msg_poller *poller);

/* ---- endpoint.c ---- */

struct msg_ep_opts {
	enum gn_msg_protocol protocol;
	uint32_t pending, tx_max, rx_max;
	enum msg_frame tx_frame, rx_frame; /* used if the ring is filled by WRITEs */
	bool requester;
	uint32_t nonce;
};

/* Allocates the rings, creates the qp and takes an index. Posts no receives yet. */
int msg_ep_create(struct msg_poller *poller, const struct msg_ep_opts *opts, struct msg_ep **out);
/* Receive queue size of the endpoint's qp. */
uint32_t msg_ep_max_recvs(const struct msg_ep *ep);
/* Fails the endpoint: no more posts, no more messages. The first status is kept. */
void msg_ep_fail(struct msg_ep *ep, enum gn_msg_status status);
/* Handles a successful completion of the endpoint's qp. */
void msg_ep_completed(struct msg_ep *ep, const struct gn_wc *wc);
/*
 * Disconnects; the index is free at once. Never waits: memory that a peer may still be copying to
 * stays with the loop until the peer has finished.
 */
void msg_ep_close(struct msg_ep *ep);
/* Frees everything but the qp, which is destroyed already. False: a peer is still copying. */
bool msg_ep_destroy(struct msg_ep *ep);

/* Bytes from slot to slot; each slot starts a cache line. */
static inline uint32_t msg_slot_stride(enum msg_frame frame, uint32_t max)
{
	const uint32_t bytes = msg_frame_bytes(frame, max);

	return bytes ? (bytes + MSG_CACHE_LINE - 1) / MSG_CACHE_LINE * MSG_CACHE_LINE :
		       MSG_CACHE_LINE;
}

/* The rkey that lets the peer write to the ring; 0 without memory. */
uint32_t msg_ring_rkey(const struct msg_ring *ring);

/* Does the send queue have space for another message? */
static inline bool msg_ep_can_send(const struct msg_ep *ep)
{
	return ep->queued - ep->done < ep->depth;
}

static inline uint8_t *msg_slot(const struct msg_ring *ring, uint32_t at)
{
	return ring->slots + (size_t)at * ring->stride;
}

/* Where the caller puts the payload of the next message. */
static inline uint8_t *msg_ep_tx_payload(const struct msg_ep *ep)
{
	return msg_slot(&ep->tx, ep->tx.buf) + msg_frame_head(ep->tx.frame);
}

/*
 * Sends the payload at msg_ep_tx_payload(). length may include MSG_REFUSED. The WR is posted by
 * msg_ep_flush() at the latest.
 */
void msg_ep_send(struct msg_ep *ep, uint32_t length);
/* Chains a READ into the next rx slot. */
void msg_ep_read(struct msg_ep *ep, uint64_t offset, uint32_t len);
/* Schedules a receive for the next slot; it is posted before the next send. */
void msg_ep_need_recv(struct msg_ep *ep);
void msg_ep_flush(struct msg_ep *ep);

/*
 * Returns the length of the next message (may include MSG_REFUSED) and sets bytes to its payload.
 * -EAGAIN: none; -EINPROGRESS: partly written. An invalid message fails the endpoint.
 */
int64_t msg_ep_peek(struct msg_ep *ep, uint8_t **bytes);
/* Moves on to the next message. The payload stays valid until msg_ep_clear_slot(). */
void msg_ep_consume(struct msg_ep *ep, uint32_t length);
/*
 * Zeroes a consumed slot where the frame needs it, so that the old bytes cannot look like the next
 * message.
 */
void msg_ep_clear_slot(struct msg_ep *ep, uint32_t at);
/* The word that changes when the next message is WRITTEN; NULL: a completion reports it. */
const uint64_t *msg_ep_poll_word(const struct msg_ep *ep);

/*
 * A WRITE raises no event at its target. So an endpoint whose messages are WRITTEN by the peer
 * writes, before its thread sleeps, the sequence number it waits for into the peer's sleep word.
 * The peer reads that word after it has sent the message, and before it sleeps itself, and sends an
 * empty WRITE_IMM behind the message. A poll timer (poller.c) covers the race in which the two
 * cross.
 */
void msg_ep_announce_sleep(struct msg_ep *ep);
void msg_ep_wake_peer(struct msg_ep *ep);

/* ---- ud.c ---- */

/* Creates the poller's datagram port; later calls have it reset again if it was given up. */
int msg_ud_open(struct msg_poller *poller, uint32_t receives, uint32_t sends, uint32_t bytes);
void msg_ud_close(struct msg_poller *poller);
int msg_ud_pd(const struct msg_poller *poller, struct gn_pd **out);
int msg_ud_addr(struct msg_poller *poller, struct gn_ud_addr *out);
/* Adds what the port has counted. */
void msg_ud_add_stats(const struct msg_poller *poller, struct gn_msg_stats *stats);
/* Largest payload of a datagram on this fabric. */
uint32_t msg_ud_max(const struct gn_attr *attr);
/* Send state of that many slots; NULL: no memory. */
struct msg_slot_sends *msg_ud_alloc_slot_sends(uint32_t slots);
/* Sets the peer's UD address. The endpoint's connection must be established. */
int msg_ud_add_peer(struct msg_ep *ep, const struct gn_ud_addr *addr, uint32_t conn);
void msg_ud_remove_peer(struct msg_ep *ep);
void msg_ud_completed(struct msg_poller *poller, const struct gn_wc *wc);
/* May the slot's buffer be written? True when every send posted from it is complete. */
bool msg_ud_writable(struct msg_ep *ep, uint32_t at);
/*
 * Sends the datagram in slot at. again: the buffer holds it already. attempt: 0 for the first
 * transmission of a request; an answer echoes the request's attempt. -EAGAIN: the send queue is
 * full, or the qp is broken.
 */
int msg_ud_send(struct msg_ep *ep, uint32_t at, uint32_t seq, uint32_t length, uint32_t attempt,
		bool again);
/*
 * If the slot is not writable: will a signaled send complete it? False: the slot's last sends were
 * unsignaled, and another send is needed.
 */
bool msg_ud_will_complete(const struct msg_ep *ep, uint32_t at);
void msg_ud_flush(struct msg_poller *poller);
/*
 * After each poll: frees closed peers whose sends are complete, and schedules the reset of a broken
 * qp.
 */
void msg_ud_maintain(struct msg_poller *poller);
void msg_ud_reset(struct link_timer *timer, uint64_t now_ns);

#endif
