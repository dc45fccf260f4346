/* SPDX-License-Identifier: MIT */
/*
 * What requester and responder are made of. A desk is a thread's: its context, its completion
 * queue, its channel, and the ends of its connections. An end has two lanes, one for what it says
 * and one for what it is told; a requester says requests, a responder answers. That is all the
 * difference between the two sides.
 *
 *     requester                                                responder
 *     said  place 0 │ 1 │ … │ R-1   ── SEND, WRITE, WRITE_IMM ─▶   told  place 0 │ 1 │ … │ R-1
 *     told  place 0 │ 1 │ … │ R-1  ◀─ SEND, WRITE, WRITE_IMM ──   said  place 0 │ 1 │ … │ R-1
 *
 * Message n of a lane is told in place n mod R. Everything is in order, so what comes next is
 * known, and where. Datagrams (ud.c) are not, and name their place.
 *
 * A buffer that was posted is the device's until the send has completed, whatever was answered
 * meanwhile: the device may still be reading it, or read it again to repeat the send. So message n
 * is said from buffer n mod depth, and no more than depth sends are posted and not known to be
 * done. A datagram is said from the buffer of its place, which is free when the last send posted
 * from it is done (msg_ud_writable()).
 *
 * All of it is used by the desk's thread only.
 */
#ifndef GN_MSG_END_H
#define GN_MSG_END_H

#include "base/owner.h"
#include "link/link.h"
#include "msg/wire.h"

#define MSG_CHAIN   16u /* requests in a doorbell, receives likewise */
#define MSG_NOTICES 2u	/* requests beside them, and receives for the peer's: msg_end_sleep() */

enum msg_verb { MSG_NONE, MSG_SEND, MSG_WRITE, MSG_WRITE_IMM, MSG_READ, MSG_DATAGRAM };

struct msg_lane {
	enum msg_verb verb;
	enum msg_frame frame;
	uint32_t max;	 /* bytes of a message */
	uint32_t stride; /* of a place */
	uint32_t lkey;
	struct gn_mem *mem;
	struct gn_mr *mr;
	size_t bytes;
	uint8_t *places;
	uint32_t number, at;	/* of the next message, and its place */
	uint32_t slots, source; /* said: buffers there are, and the next message's */
	/* Told by completions: */
	uint32_t arrived, arrived_at; /* how many there are to take, and the next place */
	uint32_t *lengths;	      /* of what is in each place; MSG_REFUSED */
	uint32_t wanted, wanted_at;   /* receives to be posted, from that place on */
};

struct msg_desk;

struct msg_end {
	struct link_conn link;
	struct msg_desk *desk;
	unsigned number; /* at the desk */
	uint32_t pending;
	uint32_t nonce;
	struct gn_pd *pd;
	struct msg_lane said, told;
	struct msg_lane notice;	       /* two words: msg_end_sleep() */
	uint32_t notice_key;	       /* the peer's */
	struct gn_remote to;	       /* the peer's places, or data */
	uint32_t queued, done, depth;  /* requests: put on the chain, known to be done, at most */
	uint32_t signal_every, silent; /* … of which one is signaled; since the last one */
	uint32_t n_chain, chain_max;   /* at most so many are posted together */
	struct gn_wr chain[MSG_CHAIN];
	struct gn_sge sge[MSG_CHAIN];
	uint32_t awaited; /* messages that may be told; 0: nobody looks for one */
	bool over;	  /* something ended without having been told: nothing is told any more */
	/* See msg_end_sleep(): */
	uint32_t n_notices;    /* requests beside the chain, that have not completed */
	uint32_t asleep_since; /* the number that the peer was last told we wait for; 0: none */
	uint64_t woken;	       /* the peer's word that was last answered */
	enum gn_msg_status fate; /* not OK: it is over */
	void *owner;
	struct gn_mr *data;	 /* that the peer may READ */
	struct msg_peer *peer;	 /* datagrams: where it is (ud.c) */
	struct msg_sends *sends; /* datagrams: of each place, what was posted from it (ud.c) */
};

struct msg_ud;

struct msg_desk {
	struct link_loop loop;
	uint64_t creator; /* thread */
	bool sums;	  /* what is written to this side needs a checksum */
	unsigned flags;
	struct msg_end **ends;
	unsigned max_ends, n_ends; /* places, of which some may be NULL; ends there are */
	uint64_t bytes, max_bytes; /* of buffers, for peers; max_bytes 0: no limit */
	struct gn_msg_stats stats;
	struct msg_ud *ud;
	struct link_timer ud_reset;
	uint64_t moved, nap_ns; /* of a sleep: what had come before the last, and how long it was */
	/* A requester's, before a sleep: 0; -EAGAIN: there are results to be taken. */
	int (*sleep)(struct msg_desk *desk);
	/* … the outcome of link_conn_connect(). */
	int (*answered)(struct msg_end *end, const struct gn_event *event);
	/* A responder's: somebody wants to connect. */
	void (*request)(struct msg_desk *desk, struct gn_event *event);
	/* A datagram for an end, checked as far as the head goes, and msg_ud_say()'s copy. */
	void (*datagram)(struct msg_end *end, const struct msg_datagram *head, uint32_t copy,
			 const uint8_t *data);
};

/* -EPERM in a child that has inherited it: what is shared with others is not there. */
static inline int msg_desk_check(const struct msg_desk *desk)
{
	return exec_inherited(desk->creator) ? exec_not_owner(desk->creator, "msg") : 0;
}

/* ---- desk.c ---- */

int msg_desk_open(struct msg_desk *desk, struct gn_fabric *fabric, struct gn_ctx *ctx,
		  unsigned max_ends, uint32_t completions);
void msg_desk_close(struct msg_desk *desk);
/* A number for another end; -ENOSPC. */
int msg_desk_number(const struct msg_desk *desk);
/* Memory for peers, within the limit; -ENOBUFS. */
int msg_desk_take_bytes(struct msg_desk *desk, uint64_t bytes);
void msg_desk_give_bytes(struct msg_desk *desk, uint64_t bytes);
/* Completions, and now and then (or with now) events. */
void msg_desk_turn(struct msg_desk *desk, bool now);
/* As the loop is, for gn_wait() and other event loops. */
struct gn_source *msg_desk_source(struct msg_desk *desk);

/* ---- end.c ---- */

struct msg_end_opts {
	enum gn_msg_protocol protocol;
	uint32_t pending, said_max, told_max;
	enum msg_frame said_frame, told_frame; /* where it is written */
	bool requester;
	uint32_t nonce;
};

/* Makes its memory and its qp, and gives it a number; receives are wanted, not posted yet. */
int msg_end_make(struct msg_desk *desk, const struct msg_end_opts *opts, struct msg_end **out);
/* Receives that its qp has room for. */
uint32_t msg_end_receives(const struct msg_end *end);
/* It is over: nothing is posted to it or taken from it any more. The first reason stays. */
void msg_end_fail(struct msg_end *end, enum gn_msg_status fate);
/* A request or receive of its own has succeeded. */
void msg_end_completed(struct msg_end *end, const struct gn_wc *wc);
/*
 * Ends the connection; its number is free at once. Never waits: what a peer may still be copying to
 * stays with the loop until it has let go.
 */
void msg_end_free(struct msg_end *end);
/* The qp is gone: the rest. False: a peer is copying. */
bool msg_end_destroy(struct msg_end *end);

/* Bytes from one place to the next; places begin cache lines. */
static inline uint32_t msg_stride(enum msg_frame frame, uint32_t max)
{
	const uint32_t bytes = msg_frame_bytes(frame, max);

	return bytes ? (bytes + MSG_LINE - 1) / MSG_LINE * MSG_LINE : MSG_LINE;
}

/* What the peer needs to write to a lane. */
uint32_t msg_lane_key(const struct msg_lane *lane);

/* Can another message be said? */
static inline bool msg_end_has_room(const struct msg_end *end)
{
	return end->queued - end->done < end->depth;
}

static inline uint8_t *msg_place(const struct msg_lane *lane, uint32_t at)
{
	return lane->places + (size_t)at * lane->stride;
}

/* Where the bytes of the next message to be said go. */
static inline uint8_t *msg_end_bytes(const struct msg_end *end)
{
	return msg_place(&end->said, end->said.source) + msg_frame_head(end->said.frame);
}

/* They are there: length, with MSG_REFUSED or not. Posted by msg_end_flush() at the latest. */
void msg_end_say(struct msg_end *end, uint32_t length);
/* The next message that is told is read from there. */
void msg_end_read(struct msg_end *end, uint64_t offset, uint32_t len);
/* A receive for the next place, before anything that is said from now on. */
void msg_end_want(struct msg_end *end);
void msg_end_flush(struct msg_end *end);

/*
 * The next message that was told, if it is there: its length with MSG_REFUSED or not, and where.
 * -EAGAIN; -EINPROGRESS. Nonsense ends the connection.
 */
int64_t msg_end_next(struct msg_end *end, uint8_t **bytes);
/* Go on to the one after it. Its bytes stay until msg_end_clear(). */
void msg_end_took(struct msg_end *end, uint32_t length);
/* What was told in this place is not needed any more: it must not look like the next message. */
void msg_end_clear(struct msg_end *end, uint32_t at);
/* What changes when the next message is told by a WRITE; NULL: a completion tells. */
const uint64_t *msg_end_word(const struct msg_end *end);

/*
 * A WRITE raises no event. So a side to which messages are WRITTEN says, before its thread sleeps,
 * for which number it waits: in a word of the peer's. A peer that finds the word when it
 * has said that message, or is about to sleep itself, sends an empty WRITE_IMM behind the message.
 * What crosses on its way is found by a timer (desk.c).
 */
void msg_end_sleep(struct msg_end *end);
void msg_end_wake_peer(struct msg_end *end);

/* ---- ud.c ---- */

/* The desk's datagram qp, with that many receives of that many bytes; once. */
int msg_ud_open(struct msg_desk *desk, uint32_t receives, uint32_t sends, uint32_t bytes);
void msg_ud_close(struct msg_desk *desk);
int msg_ud_pd(const struct msg_desk *desk, struct gn_pd **out);
int msg_ud_addr(struct msg_desk *desk, struct gn_ud_addr *out);
/* Largest message of that fabric. */
uint32_t msg_ud_max(const struct gn_attr *attr);
/* For that many places, nothing posted from any yet; NULL without memory. */
struct msg_sends *msg_ud_sends(uint32_t places);
/* The peer's qp, along the end's connection, which is up. */
int msg_ud_peer(struct msg_end *end, const struct gn_ud_addr *addr, uint32_t conn);
void msg_ud_forget(struct msg_end *end);
void msg_ud_completed(struct msg_desk *desk, const struct gn_wc *wc);
/*
 * May the buffer of a place be written? Not before every send posted from it is known to be done.
 */
bool msg_ud_writable(struct msg_end *end, uint32_t at);
/*
 * Says what is in a place, as message number, for the first time or again. -EAGAIN: no room now.
 * copy: of a request, 0 the first; an answer names the copy that it answers.
 */
int msg_ud_say(struct msg_end *end, uint32_t at, uint32_t number, uint32_t length, uint32_t copy,
	       bool again);
/*
 * If not: will its sends be known to be done? Not without another, if the last were not signaled.
 */
bool msg_ud_will_tell(const struct msg_end *end, uint32_t at);
void msg_ud_flush(struct msg_desk *desk);
/* Between two polls: frees what was forgotten and is sent, and has a qp that broke reset. */
void msg_ud_tend(struct msg_desk *desk);
void msg_ud_reset(struct link_timer *timer, uint64_t now_ns);

#endif
