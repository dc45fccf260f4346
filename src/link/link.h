/* SPDX-License-Identifier: MIT */
/*
 * link: connections, timers and waiting for every layer above the fabric.
 *
 * A *loop* belongs to one thread: its context, completion queue, channel, timers, inbox and
 * connections. A layer embeds a struct link_loop in its thread (rpc) or object (msg) and a struct
 * link_conn in each connection. A table of callbacks says what a completion means and where
 * messages appear in memory.
 *
 *     iteration   link_loop_poll()       dispatches completions to their connections
 *                 link_loop_maintain()   from time to time: clock, events, timers, closing
 *     idle        link_loop_wait()       for a message, an event, a timer, a posted task
 *
 *     states: NEW ─ accepted ▶ OPENING ─ established ▶ UP ─ fail ▶ FAILED ─ close ▶ CLOSING
 *
 * A failure only marks the connection. The loop calls conn_failed in the same iteration, outside
 * any post or completion, and the layer closes the connection. Closing never waits: while a peer is
 * still copying, the loop retries, for at most GN_TEARDOWN_US.
 *
 * Probes detect a peer that died silently: a peer that was idle for LINK_PROBE_NS gets an empty
 * WRITE, one at a time, and the device reports an error if nothing acknowledges it.
 *
 * Only the loop's thread may call these functions, except link_loop_post(), and link_conn_init()
 * and link_conn_create_qp() by an acceptor's thread before it hands the connection over.
 */
#ifndef GN_LINK_LINK_H
#define GN_LINK_LINK_H

#include "base/bits.h"
#include "base/source.h"
#include "base/ticks.h"
#include "gannet/fabric.h"
#include "link/timer.h"

#define LINK_PROBE_NS	  100000000u  /* idle time before a probe */
#define LINK_ESTABLISH_NS 1000000000u /* from gn_accept() to ESTABLISHED */
#define LINK_PROBE_ID	  UINT64_MAX  /* wr_id of probes; a layer must not use it */
#define LINK_POLL_MAX	  1024u	      /* completions per link_loop_poll() */
#define LINK_PROBE_SENDS  1u	      /* send queue entries per connection */
/* between two maintenances, if the layer reads the clock */
#define LINK_MAINTAIN_NS 50000u
/* … and if the layer does not: 26 to 131 us */
#define LINK_MAINTAIN_TICKS (4 * EXEC_TICKS_SHORT)

struct link_loop;

enum link_state {
	LINK_NEW,     /* before accept or connect; the qp may exist */
	LINK_OPENING, /* accepting or connecting, not established yet */
	LINK_UP,
	LINK_FAILED,  /* conn_failed was called, or is called in this iteration */
	LINK_CLOSING, /* waits for its qp to be destroyed */
};

/* One connection. gn_qp_user() of its qp returns this struct. */
struct link_conn {
	struct link_loop *loop;
	struct gn_qp *qp;
	enum link_state state;
	bool active;	       /* set by the layer: the peer has sent something */
	bool probe_pending;    /* a probe was sent and is not complete */
	bool failure_reported; /* conn_failed was called */
	bool opening;	       /* counted in n_opening */
	/* NEW: ESTABLISHED or DISCONNECTED came before accepted */
	bool early_established, early_failed;
	uint32_t completions;	 /* reserved in the cq */
	int error;		 /* of link_conn_connect(); -EAGAIN: no outcome yet */
	const char *addr;	 /* … its destination, owned by the caller */
	uint64_t probe_ns;	 /* interval between idle checks; GN_FOREVER: none */
	struct link_timer timer; /* next idle check, or the limit of OPENING */
	struct link_conn *next, **prev;
};

/* Work that another thread passes to the loop's thread: see link_loop_post(). */
struct link_task {
	struct link_task *next;
	void (*run)(struct link_task *task);
};

/* The memory words in which peers' messages appear, for link_loop_wait(). */
struct link_words {
	struct gn_wait_item *items;
	unsigned n, max;
	bool torn; /* a message is partly written */
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

/* A layer's callbacks. Only completed and destroy are required. */
struct link_ops {
	/* A request succeeded. May fail connections, must not close any. */
	void (*completed)(struct link_conn *conn, const struct gn_wc *wc);
	/* A completion of a UD qp, whose user is NULL. */
	void (*datagram)(struct link_loop *loop, const struct gn_wc *wc);
	/* A connect request. Default: reject. */
	void (*request)(struct link_loop *loop, struct gn_event *event);
	/*
	 * The outcome of link_conn_connect() with the peer's private data. Returns 0 to use the
	 * connection, or the error for link_conn_wait(). Default: link_connect_error().
	 */
	int (*connect_done)(struct link_conn *conn, const struct gn_event *event);
	void (*established)(struct link_conn *conn);
	/* Called once: the connection failed, was refused, or the peer disconnected. */
	void (*conn_failed)(struct link_conn *conn);
	/* Should an idle peer be probed? Default: yes. */
	bool (*needs_probe)(const struct link_conn *conn);
	/* Called at every idle check of an established connection. */
	void (*probe_due)(struct link_conn *conn);
	/* CLOSING: is the connection still in use? */
	bool (*busy)(const struct link_conn *conn);
	/* The qp is destroyed: free the rest. False: a peer is still copying; call again. */
	bool (*destroy)(struct link_conn *conn);
	void (*poll_words)(struct link_loop *loop, struct link_words *words);
	/*
	 * Called after spin_us without a message. True: a completion or an event will report the
	 * next message, so the thread may sleep instead of polling words.
	 */
	bool (*req_notify)(struct link_loop *loop);
	/*
	 * Called before the thread sleeps in another event loop: from now on a completion or an
	 * event must report every message. 0; -EAGAIN: iterate once more first; or an error. For
	 * messages that only appear in memory, set source_due() of loop->source.
	 */
	int (*prepare_sleep)(struct link_loop *loop);
};

/*
 * How a loop waits after an iteration without work. It polls memory and the inbox for spin_us, then
 * arms its events and sleeps. While messages may appear in memory it yields instead of sleeping,
 * because nothing would wake it. The policy may change before each wait. RDMAbox's polling modes
 * (busy, event, hybrid, adaptive, shared) are values of spin_us: infinite, zero, constant, adapted;
 * every loop is shared by its connections.
 */
struct link_policy {
	uint32_t spin_us; /* polling events costs a system call, and most waits are shorter */
	bool completions; /* completions report messages: poll the cq, too */
};

struct link_loop {
	const struct link_ops *ops;
	struct gn_fabric *fabric;
	struct gn_attr attr;
	struct gn_ctx *ctx;
	bool own_ctx;
	bool failed; /* some FAILED connections were not reported yet */
	bool torn;   /* a message was partly written before the last wait */
	struct link_policy policy;
	struct gn_chan *chan;
	struct gn_cq *cq;
	uint32_t cq_free;	 /* completions that are not reserved */
	struct link_conn *conns; /* all but NEW ones */
	struct link_conn *closing;
	unsigned n_conns, n_closing;
	unsigned n_opening; /* atomic: half-open connections */
	/* iterations since the last maintenance, and their maximum */
	unsigned iterations, maintain_every;
	uint64_t now_ns; /* last reading of the clock */
	uint64_t maintained_ns;
	uint64_t overdue_ticks; /* exec_ticks() of the last overdue maintenance */
	uint64_t probes;	/* atomic: probes sent */
	struct link_timers timers;
	struct link_timer sweep; /* retries closing */
	struct gn_source source; /* the loop as one source: completions, events, timers, tasks */
	/* The inbox: tasks, newest first; threads in link_loop_post(); the owner sleeps. */
	struct gn_source inbox;
	struct link_task *tasks;
	uint32_t n_posting, asleep;
};

struct link_loop_opts {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;	 /* NULL: creates its own */
	uint32_t completions;	 /* of all connections; bounded by the device */
	unsigned maintain_every; /* iterations */
	struct link_policy policy;
};

/* ---- loop.c ---- */

/* After a failure the caller must still call link_loop_close(). */
int link_loop_open(struct link_loop *loop, const struct link_ops *ops,
		   const struct link_loop_opts *opts);
/* Waits for CLOSING connections. The layer must have closed all others. */
void link_loop_close(struct link_loop *loop);
/* Polls and dispatches completions; bounded. */
void link_loop_poll(struct link_loop *loop);
/*
 * Call once per iteration. Returns true if it did the maintenance: completions, events, timers and
 * closing. Otherwise it only counts the iteration.
 */
bool link_loop_maintain(struct link_loop *loop);
/* Will the next link_loop_maintain() do the maintenance? */
static inline bool link_loop_will_maintain(const struct link_loop *loop)
{
	return loop->iterations + 1 >= loop->maintain_every;
}
/* Between two maintenances: reads the clock and runs due timers. */
static inline void link_loop_run_timers(struct link_loop *loop)
{
	loop->now_ns = gn_now_ns();
	if (unlikely(link_timers_due(&loop->timers) <= loop->now_ns))
		link_timers_run(&loop->timers, loop->now_ns);
}
/* Makes the next link_loop_maintain() do the maintenance. */
static inline void link_loop_force_maintain(struct link_loop *loop)
{
	loop->iterations = loop->maintain_every;
}
/* Reads the clock for the layer, and forces the maintenance when it is due. */
static inline uint64_t link_loop_clock(struct link_loop *loop)
{
	loop->now_ns = gn_now_ns();
	if (unlikely(loop->now_ns - loop->maintained_ns > LINK_MAINTAIN_NS))
		link_loop_force_maintain(loop);
	return loop->now_ns;
}
/*
 * After an iteration without work: has enough time passed to force the maintenance now? The number
 * of iterations says nothing about time if the program sleeps between two polls.
 */
static inline bool link_loop_overdue(struct link_loop *loop)
{
	const uint64_t ticks = exec_ticks();

	if (likely(ticks - loop->overdue_ticks < LINK_MAINTAIN_TICKS))
		return false;
	loop->overdue_ticks = ticks;
	link_loop_force_maintain(loop);
	return true;
}
/* Runs the tasks posted by other threads; returns their number. */
int link_loop_run_tasks(struct link_loop *loop);
/*
 * Any thread: runs task in the loop's thread soon. The caller must keep task valid until it runs.
 * Never waits and never fails. link_loop_no_posters(): no thread is inside link_loop_post().
 */
void link_loop_post(struct link_loop *loop, struct link_task *task);
static inline bool link_loop_no_posters(const struct link_loop *loop)
{
	return !__atomic_load_n(&loop->n_posting, __ATOMIC_ACQUIRE);
}

/* ---- wait.c ---- */

/* Waits until there may be work: 0; -ETIMEDOUT; -EINTR. */
int link_loop_wait(struct link_loop *loop, uint64_t deadline_ns, const char *reason);
/* The prepare operation of loop->source; see struct source_ops. */
int link_loop_prepare(struct gn_source *source);

/* ---- conn.c ---- */

void link_conn_init(struct link_loop *loop, struct link_conn *conn);
/*
 * Creates the qp. opts: queue sizes without the probe's; cqs, channel and user are filled in.
 * -ENOSPC: the cq has no space for its completions.
 */
int link_conn_create_qp(struct link_conn *conn, struct gn_pd *pd, struct gn_qp_opts *opts);
/* Server side, after gn_accept(): the connection is OPENING until ESTABLISHED. */
void link_conn_accepted(struct link_conn *conn);
/*
 * Client side: starts connecting a NEW connection. ops->connect_done gets the outcome within
 * opts->timeout_us. link_conn_wait() waits for it: 0; -EAGAIN: not before the deadline; or the
 * error.
 */
int link_conn_connect(struct link_conn *conn, const char *addr, const struct gn_conn_opts *opts);
int link_conn_wait(struct link_conn *conn, uint64_t deadline_ns);
/*
 * The errno of a connect event, with a text for gn_error(): 0 (ESTABLISHED), -ECONNREFUSED
 * (REJECTED), or its status.
 */
int link_connect_error(const struct link_conn *conn, const struct gn_event *event);
/* Handles the outcome of link_conn_connect(). */
void link_conn_connect_done(struct link_conn *conn, const struct gn_event *event);
/* ESTABLISHED arrived, or the peer sent something. */
void link_conn_established(struct link_conn *conn);
/* Fails the connection; conn_failed is called in this iteration. */
void link_conn_fail(struct link_conn *conn);
/* Checks for an idle peer at this interval; GN_FOREVER: never. */
void link_conn_set_probe_interval(struct link_conn *conn, uint64_t every_ns);
/* Disconnects. The connection is destroyed when nothing uses it any more. Never waits. */
void link_conn_close(struct link_conn *conn);
/* Tries to destroy closing connections; sweep_all waits until all are destroyed. */
void link_conns_sweep(struct link_loop *loop);
void link_conns_sweep_all(struct link_loop *loop);
/* Calls conn_failed for newly failed connections. */
void link_conns_report_failed(struct link_loop *loop);

/*
 * Delay between connection attempts: 1 ms after the first failure, doubled each time, up to 100 ms.
 */
struct link_backoff {
	uint32_t failed; /* failed attempts in a row */
	uint64_t at_ns;	 /* earliest time of the next attempt */
};

void link_backoff_failed(struct link_backoff *backoff);
/* Sleeps until the next attempt: 0; -ETIMEDOUT: past the deadline. */
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
 * Listens, and calls request in its own thread for each connect request. request creates the
 * connection on the loop that will own it, with link_conn_create_qp() and gn_accept(), and hands it
 * over by a task that calls link_conn_accepted().
 */
int link_acceptor_start(struct link_acceptor *acceptor, struct gn_ctx *ctx, const char *addr,
			unsigned flags, link_request_fn *request, void *arg);
/* Closes the listener and joins the thread. May be called for an acceptor that was not started. */
void link_acceptor_stop(struct link_acceptor *acceptor);

#endif
