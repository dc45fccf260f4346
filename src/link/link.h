/* SPDX-License-Identifier: MIT */
/*
 * link: what every layer above the fabric needs of its connections, once.
 *
 * A *loop* is one thread's: its context, completion queue and channel, its timers, its inbox, and
 * its connections. The layer embeds a struct link_loop in its thread (rpc) or object (msg), and a
 * struct link_conn in each connection, and gives a table of what is its own business: what a
 * completion means, where messages appear in memory.
 *
 *     turn      link_loop_poll()   completions go to their connections
 *               link_loop_tend()   now and then: the clock, events, timers, teardown
 *     idle      link_loop_wait()   until a message may be there, an event, a timer, a posted task
 *
 *     a connection: NEW ─ begin ▶ OPENING ─ established ▶ UP ─ fail ▶ FAILED ─ close ▶ CLOSING
 *
 * A connection that fails is only marked; its layer is told (ended) in the same turn, outside of
 * any post and any completion, and closes it. Closing never waits: a peer that is still copying is
 * looked at again until it has let go, for at most GN_TEARDOWN_US.
 *
 * A peer that dies without a word is found by asking: who has sent nothing for LINK_PROBE_NS gets a
 * WRITE of no bytes, one at a time, and the card says if nobody answers.
 *
 * All of it belongs to the loop's thread, except link_loop_post() and what an acceptor's thread
 * does before it hands a connection over: link_conn_init(), link_conn_make().
 */
#ifndef GN_LINK_LINK_H
#define GN_LINK_LINK_H

#include "base/bits.h"
#include "base/source.h"
#include "base/ticks.h"
#include "gannet/fabric.h"
#include "link/timer.h"

#define LINK_PROBE_NS	  100000000u  /* of silence */
#define LINK_ESTABLISH_NS 1000000000u /* from the acceptance to the news that it has arrived */
#define LINK_PROBE_ID	  UINT64_MAX  /* a layer's own requests have other ids */
#define LINK_POLL_MAX	  1024u	      /* completions that a poll takes at most */
#define LINK_PROBE_SENDS  1u	      /* of a connection's send queue */
#define LINK_TEND_NS	  50000u      /* between two tends, if the layer reads the clock */
#define LINK_TEND_TICKS	  (4 * EXEC_TICKS_SHORT) /* … and if it does not: 26 to 131 us */

struct link_loop;

enum link_state {
	LINK_NEW,     /* its qp is made, perhaps */
	LINK_OPENING, /* accepted, and not known to have arrived */
	LINK_UP,
	LINK_FAILED,  /* its layer knows, or is told before the turn ends */
	LINK_CLOSING, /* its qp is to be destroyed */
};

/* One connection. The qp's user is this struct. */
struct link_conn {
	struct link_loop *loop;
	struct gn_qp *qp;
	enum link_state state;
	bool heard;		 /* the layer sets it when something came from the peer */
	bool probing;		 /* it was asked, and has not answered yet */
	bool told;		 /* its layer knows that it has failed */
	bool opening;		 /* it is counted as half open */
	bool early, gone;	 /* NEW: it was established, or is gone already */
	uint32_t completions;	 /* that are reserved for it in the cq */
	int error;		 /* of link_conn_connect(): why it is not connected */
	const char *addr;	 /* … whereto: its caller's */
	uint64_t probe_ns;	 /* between two looks whether it is silent; GN_FOREVER: none */
	struct link_timer timer; /* … or until it is established */
	struct link_conn *next, **prev;
};

/* Something another thread wants done by the loop's: see link_loop_post(). */
struct link_task {
	struct link_task *next;
	void (*run)(struct link_task *task);
};

/* The memory in which peers' messages appear, for link_loop_wait(). */
struct link_words {
	struct gn_wait_item *items;
	unsigned n, max;
	bool torn; /* a message has begun to appear */
	bool more; /* there are more words than items */
};

static inline bool link_words_add(struct link_words *words, const uint64_t *word, uint64_t seen)
{
	words->more |= words->n == words->max;
	if (words->more)
		return false;
	words->items[words->n++] = gn_wait_word(word, seen);
	return true;
}

/* What a layer does. Only completed and destroy are needed. */
struct link_ops {
	/* A request has succeeded. It must not close a connection; it may fail one. */
	void (*completed)(struct link_conn *conn, const struct gn_wc *wc);
	/* A completion of a qp that is no connection's (datagrams): its user is NULL. */
	void (*datagram)(struct link_loop *loop, const struct gn_wc *wc);
	/* Somebody wants to connect. Without it, all are rejected. */
	void (*request)(struct link_loop *loop, struct gn_event *event);
	/*
	 * The outcome of link_conn_connect(), with the peer's private data: 0 if the connection is
	 * to be used, else an error for link_conn_wait(). Without it: as link_conn_refused() says.
	 */
	int (*answered)(struct link_conn *conn, const struct gn_event *event);
	void (*established)(struct link_conn *conn);
	/* Once: it has failed, was refused, or the peer is gone. */
	void (*ended)(struct link_conn *conn);
	/* Does it matter whether a silent peer is there? Without it: yes. */
	bool (*watched)(const struct link_conn *conn);
	/* With each look whether it is silent, once it is established. */
	void (*looked)(struct link_conn *conn);
	/* Closing: is something of it still used? */
	bool (*busy)(const struct link_conn *conn);
	/* Its qp is gone: frees the rest. False: not yet, a peer is copying; it comes again. */
	bool (*destroy)(struct link_conn *conn);
	void (*words)(struct link_loop *loop, struct link_words *words);
	/*
	 * A wait has looked for spin_us in vain. True: a completion or an event will tell of the
	 * next message, so the thread may sleep instead of looking at words.
	 */
	bool (*notified)(struct link_loop *loop);
	/*
	 * Before its thread sleeps in somebody else's event loop: from now on a completion or an
	 * event tells of every message. 0; -EAGAIN: a turn is needed first; an error. Messages
	 * that appear in memory and nowhere else: source_due() of loop->source.
	 */
	int (*sleep)(struct link_loop *loop);
};

/*
 * How a loop waits when a turn found nothing: it looks at memory and the inbox for spin_us, then
 * arms its events and sleeps; where messages appear in memory it yields instead, because nothing
 * would wake it. A loop may have another policy with each wait. RDMAbox's modes (busy, event,
 * hybrid, adaptive, shared) are values of it: spin for ever, not at all, for a while, for as long
 * as was worth it lately; and a loop has many connections anyway.
 */
struct link_policy {
	uint32_t spin_us; /* to look at events costs a system call, and most waits end before */
	bool completions; /* messages come by them: look at the cq as well meanwhile */
};

struct link_loop {
	const struct link_ops *ops;
	struct gn_fabric *fabric;
	struct gn_attr attr;
	struct gn_ctx *ctx;
	bool own_ctx;
	bool failed; /* some connections are FAILED and their layer does not know */
	bool torn;   /* … part of a message was there when the loop last went idle */
	struct link_policy policy;
	struct gn_chan *chan;
	struct gn_cq *cq;
	uint32_t cq_free;	 /* completions that are not reserved */
	struct link_conn *conns; /* NEW ones are not in it */
	struct link_conn *closing;
	unsigned n_conns, n_closing;
	unsigned n_opening;	    /* atomic: made, and not known to be established */
	unsigned turns, tend_every; /* turns since it was tended, at most */
	uint64_t now_ns;	    /* when it was tended, or the layer has read the clock */
	uint64_t tended_ns;
	uint64_t idle_ticks; /* exec_ticks() of the last link_loop_overdue() */
	uint64_t probes; /* atomic: silent peers that were asked */
	struct link_timers timers;
	struct link_timer sweep; /* a look at what is closing */
	struct gn_source source; /* the loop as one: completions, events, timers, tasks */
	/* The inbox: tasks, the newest first; the pushing threads; is the owner asleep? */
	struct gn_source inbox;
	struct link_task *tasks;
	uint32_t pushing, asleep;
};

struct link_loop_opts {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;   /* NULL: one of its own */
	uint32_t completions; /* of all connections; less where the device has less */
	unsigned tend_every;  /* turns */
	struct link_policy policy;
};

/* ---- loop.c ---- */

/* After a failure too, link_loop_close() frees what there is. */
int link_loop_open(struct link_loop *loop, const struct link_ops *ops,
		   const struct link_loop_opts *opts);
/* Waits for connections that are closing; those that are not must have been closed. */
void link_loop_close(struct link_loop *loop);
/* Takes completions, a bounded number. */
void link_loop_poll(struct link_loop *loop);
/*
 * With each turn. Now and then, or when it must, it looks at completions, events, timers and what
 * is closing: then true.
 */
bool link_loop_tend(struct link_loop *loop);
/* Would the next one look? Else counting the turn is all that it does. */
static inline bool link_loop_will_tend(const struct link_loop *loop)
{
	return loop->turns + 1 >= loop->tend_every;
}
/* Between two tends: reads the clock and runs the timers that are due. */
static inline void link_loop_run_timers(struct link_loop *loop)
{
	loop->now_ns = gn_now_ns();
	if (unlikely(link_timers_due(&loop->timers) <= loop->now_ns))
		link_timers_run(&loop->timers, loop->now_ns);
}
/* The next link_loop_tend() does. */
static inline void link_loop_must_tend(struct link_loop *loop)
{
	loop->turns = loop->tend_every;
}
/* For a layer: reads the clock, and sees to it that the loop is tended in time. */
static inline uint64_t link_loop_clock(struct link_loop *loop)
{
	loop->now_ns = gn_now_ns();
	if (unlikely(loop->now_ns - loop->tended_ns > LINK_TEND_NS))
		link_loop_must_tend(loop);
	return loop->now_ns;
}
/*
 * After a turn that found nothing: has time passed, so that the loop must be tended in this turn?
 * The count of turns says nothing of the time in a program that sleeps between two polls.
 */
static inline bool link_loop_overdue(struct link_loop *loop)
{
	const uint64_t ticks = exec_ticks();

	if (likely(ticks - loop->idle_ticks < LINK_TEND_TICKS))
		return false;
	loop->idle_ticks = ticks;
	link_loop_must_tend(loop);
	return true;
}
/* Runs what other threads have posted: how many. */
int link_loop_tasks(struct link_loop *loop);
/*
 * Any thread: run task in the loop's thread, soon. The task is the caller's until it runs. Never
 * waits and never fails. link_loop_quiet(): no thread is in the middle of it.
 */
void link_loop_post(struct link_loop *loop, struct link_task *task);
static inline bool link_loop_quiet(const struct link_loop *loop)
{
	return !__atomic_load_n(&loop->pushing, __ATOMIC_ACQUIRE);
}

/* ---- wait.c ---- */

/* Until something may have come: 0; -ETIMEDOUT; -EINTR. */
int link_loop_wait(struct link_loop *loop, uint64_t deadline_ns, const char *reason);
/* Of loop->source, whose owner sleeps elsewhere; see struct source_ops. */
int link_loop_prepare(struct gn_source *source);

/* ---- conn.c ---- */

void link_conn_init(struct link_loop *loop, struct link_conn *conn);
/*
 * Its qp. opts: sizes of its queues without the probe's; cqs, channel and user are filled in.
 * -ENOSPC: the cq has no room for its completions.
 */
int link_conn_make(struct link_conn *conn, struct gn_pd *pd, struct gn_qp_opts *opts);
/* Server side: it was accepted, and is OPENING until the peer is known to have arrived. */
void link_conn_begin(struct link_conn *conn);
/*
 * Client side: begins to connect a NEW connection; the outcome comes within opts->timeout_us, by
 * ops->answered. link_conn_wait() waits for it: 0; -EAGAIN: not by the deadline; or the error.
 */
int link_conn_connect(struct link_conn *conn, const char *addr, const struct gn_conn_opts *opts);
int link_conn_wait(struct link_conn *conn, uint64_t deadline_ns);
/* An outcome as an error with a text: 0 (ESTABLISHED), -ECONNREFUSED (REJECTED), or its status. */
int link_conn_refused(const struct link_conn *conn, const struct gn_event *event);
/* Its outcome has come. */
void link_conn_answered(struct link_conn *conn, const struct gn_event *event);
/* It is UP: it said so, or the peer has sent something. */
void link_conn_established(struct link_conn *conn);
/* It is over; ended is called before the turn ends. */
void link_conn_fail(struct link_conn *conn);
/* Look after that many ns whether it is silent; GN_FOREVER: never. */
void link_conn_watch(struct link_conn *conn, uint64_t every_ns);
/* Disconnects it; it is destroyed when nothing of it is used. Never waits. */
void link_conn_close(struct link_conn *conn);
/* Tries to destroy what is closing; all: until nothing is. */
void link_conns_sweep(struct link_loop *loop);
void link_conns_sweep_all(struct link_loop *loop);
/* Tells the layer which ones have failed. */
void link_conns_end_failed(struct link_loop *loop);

/* ---- backoff.c ---- */

/* When to try again to connect: after 1 ms, then after twice as long each time, up to 100 ms. */
struct link_backoff {
	uint32_t failed; /* attempts in a row */
	uint64_t at_ns;	 /* not before then is the next */
};

void link_backoff_failed(struct link_backoff *backoff);
/* Sleeps until the next attempt: 0; -ETIMEDOUT: the deadline has come. */
int link_backoff_wait(const struct link_backoff *backoff, uint64_t deadline_ns);

/* ---- accept.c ---- */

typedef void link_request_fn(void *arg, struct gn_event *event);

struct link_acceptor {
	struct gn_chan *chan;
	struct gn_listener *listener;
	struct gn_thread *thread;
	link_request_fn *request;
	void *arg;
	bool stop; /* atomic */
};

/*
 * Listens, and calls request in a thread of its own for everybody who wants to connect. request
 * makes the connection for the loop that is to have it, with link_conn_make() and gn_accept(), and
 * hands it over by a task that calls link_conn_begin().
 */
int link_acceptor_start(struct link_acceptor *acceptor, struct gn_ctx *ctx, const char *addr,
			unsigned flags, link_request_fn *request, void *arg);
/* Closes the listener and ends the thread; one that was not started is left alone. */
void link_acceptor_stop(struct link_acceptor *acceptor);

#endif
