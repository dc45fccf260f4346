/* SPDX-License-Identifier: MIT */
/*
 * A server as its files see it. Every thread is a loop (src/link) and owns its connections with all
 * that belongs to them; an acceptor's thread makes them. A request may be answered by any thread:
 * another than the owner posts the answer to the owner's loop.
 */
#ifndef GN_RPC_SERVER_H
#define GN_RPC_SERVER_H

#include "base/bits.h"
#include "base/mutant.h"
#include "base/owner.h"
#include "link/link.h"
#include "rpc/area.h"
#include "rpc/copy.h"
#include "rpc/times.h"
#include "rpc/wire.h"

#define RPC_PAGE_METHODS 256u
/*
 * Receives of a connection, for words that its client wakes us by: RPC_WAKES_MAX before a result,
 * one that asks to be notified, and those that say that a server was found parked.
 */
#define RPC_RECVS	 20u
#define RPC_SENDS_BESIDE 9u /* beside replies: pieces of large requests, probes */

/*
 * The results of a method that takes so long have a message of their own, so that others do not
 * wait for them, and are not taken for slow.
 */
#define RPC_SLOW_US 20u

/* What completes, in a request's id: these, or the address of a large request's. */
enum rpc_wr_id {
	RPC_NOTIFY_ID, /* 0: no address of a request's */
	RPC_WAKE_ID,   /* a receive */
	RPC_REPLY_ID,  /* with its slot and RPC_REPLY_SYNC, RPC_REPLY_INLINE: rpc_reply_id() */
	RPC_ID_MASK = 7,
	RPC_REPLY_SYNC = 8,
	RPC_REPLY_INLINE = 16, /* of a slot that the next reply may use before this one completes */
};
static inline uint64_t rpc_reply_id(uint32_t slot, bool sync, bool copied)
{
	return (uint64_t)slot << 5 | (sync ? RPC_REPLY_SYNC : 0) | (copied ? RPC_REPLY_INLINE : 0) |
	       RPC_REPLY_ID;
}
static inline uint32_t rpc_reply_slot(uint64_t id)
{
	return (uint32_t)(id >> 5);
}

enum rpc_state {
	RPC_IDLE,
	RPC_RUNNING, /* its handler runs, and it is still among the idle ones */
	RPC_COMING,  /* it is large, and is being read */
	RPC_BUSY,    /* its handler has it */
	RPC_HELD,    /* it is answered, but there is no slot for the result */
};

/* How a message with results goes. */
enum rpc_way { RPC_NO_WAY, RPC_LEFT_HERE, RPC_WRITTEN_BACK };
static inline enum rpc_way rpc_way(unsigned flags)
{
	return RPC_LEFT_HERE + (flags & RPC_REPLY);
}
/* rpc_conn.quick, and the word of a request whose handler runs, and for which nobody did more. */
static inline uint64_t rpc_quick_word(enum rpc_way way)
{
	return RPC_RUNNING | (uint64_t)way << 8;
}
_Static_assert(RPC_REPLY == 1, "rpc_way()");

struct rpc_method {
	gn_rpc_handler *fn;
	gn_rpc_group_handler *group; /* instead of fn */
	void *arg;
	unsigned flags;
};

/* A result as it is answered. */
struct rpc_answer {
	uint16_t status;
	const void *data;
	uint32_t len;
	void *copy;	    /* data, if the library has it */
	uint64_t charged;   /* bytes, while the library keeps it */
	struct rpc_area area; /* data, if it is the library's and large */
	struct gn_mem *mem; /* of the handler, whose release is to be called */
	size_t offset;
	void (*release)(void *arg);
	void *arg;
};

/*
 * Where the bytes of a request are. Those of one that is answered after its handler has returned
 * are copied out of the slot, by the first thread that needs them there: the owner when the handler
 * returns, or another that asks for them before. Without memory for that they stay, and keep the
 * slot.
 */
enum rpc_bytes { RPC_IN_SLOT, RPC_COPYING, RPC_STAYING, RPC_APART };

/* What is to be called when its caller gives up; in rpc_thread.watched. */
struct rpc_abandon {
	gn_rpc_abandon_fn *fn;
	void *arg;
	struct gn_rpc_request *next, **prev; /* prev NULL: it is not in it */
};

/* A request of the window, idle or under way. What each one sets anew stands first. */
struct gn_rpc_request {
	struct rpc_conn *conn;
	struct gn_rpc_request *next; /* idle, held, or in rpc_thread.come */
	uint64_t owner;		     /* rpc_thread.id */
	const uint8_t *data;
	uint32_t len; /* from here as struct rpc_entry: */
	uint16_t method, index;
	uint32_t number;  /* of the message it came in */
	uint32_t left_us; /* of its caller's deadline, when it came; 0: it has none */
	union {
		struct rpc_request_state {
			uint8_t state; /* enum rpc_state, atomic */
			uint8_t way;   /* enum rpc_way */
			bool answered; /* atomic: otherwise than by rpc_request_quickly() */
			bool keeps_slot;
			uint32_t bytes; /* enum rpc_bytes, atomic */
		} is;
		uint64_t word; /* all of it */
	};
	uint64_t begin_ns;
	struct rpc_times *times; /* of its method; NULL: there are none */

	struct link_task task; /* an answer of another thread */
	uint8_t *copy;	       /* data, if it was copied */
	struct rpc_area area;  /* of a large one */
	struct rpc_far from;
	uint32_t asked, done;	      /* bytes of it that are being read, that were read */
	uint32_t fresh;		      /* pieces that nobody has looked at */
	struct gn_rpc_request *later; /* in rpc_conn.far */
	struct rpc_answer answer;
	struct rpc_abandon abandon;
};
_Static_assert(offsetof(struct gn_rpc_request, index) - offsetof(struct gn_rpc_request, len) ==
		       offsetof(struct rpc_entry, index),
	       "a copy of the entry");
/* The word of a request that was answered quickly: idle and answered, and not rpc_conn.quick. */
#define RPC_ANSWERED_WORD (1ull << 8 * offsetof(struct rpc_request_state, answered))

/*
 * Large results of a connection that are not acknowledged yet: each is a registration, and on
 * shared memory a descriptor. More of them are held.
 */
#define RPC_LENT_MAX 16u

/* A large result, until its client has read it. */
struct rpc_lent {
	struct rpc_lent *next;
	uint32_t number; /* of the message that tells of it */
	uint64_t bytes;
	struct rpc_area area;
	struct gn_mr *mr; /* of the handler's memory */
	void (*release)(void *arg);
	void *arg;
};

/* Memory that a client may read as long as it is connected. */
struct rpc_shown {
	struct rpc_shown *next;
	struct gn_mem *mem;
	struct gn_mr *mr;
};

/* How far a message is taken apart. What its head says was copied and checked. */
struct rpc_cursor {
	const uint8_t *message;
	uint32_t len;
	uint16_t entries, flags;
	uint32_t at; /* of the next entry */
	uint32_t i;
};

/* gn_rpc_group.quick while its handler has room for a result. */
#define GROUP_ROOM UINT64_MAX

/* Calls whose handler runs; each thread has one. */
struct gn_rpc_group {
	struct rpc_conn *conn;
	struct gn_rpc_request *request; /* the only one, if it was large; else NULL */
	uint64_t pending;		/* a bit for each that is not answered */
	uint64_t quick; /* rpc_conn.quick, if results go into the open message; GROUP_ROOM */
	uint32_t n;
	uint32_t most; /* bytes of room */
	enum rpc_way way;
	bool kept;  /* room is not behind the open message, but: */
	void *room; /* NULL: there is none, and quick is not GROUP_ROOM */
	struct rpc_answer keep;
	struct rpc_times *times; /* of the method of the last */
	struct rpc_group_entry {
		const uint8_t *data;
		uint32_t len;
		uint16_t method, index;
	} entry[GN_RPC_GROUP_MAX];
};
_Static_assert(offsetof(struct rpc_group_entry, index) - offsetof(struct rpc_group_entry, len) ==
		       offsetof(struct rpc_entry, index),
	       "a copy of the entry");
_Static_assert(GN_RPC_GROUP_MAX == 64, "bits of pending");

struct rpc_conn {
	struct link_conn link;
	struct rpc_thread *thread;
	struct rpc_conn *next, **prev; /* in rpc_thread.conns or parked */

	/* ---- what every call needs ---- */

	/* requests */
	const uint8_t *message; /* the slot of the next one, */
	uint64_t seq;		/* and its sequence */
	uint32_t number;	/* of the next message */
	uint32_t taken;		/* up to here the slots of messages are free */
	uint32_t mask;
	uint32_t max_len;    /* of a message */
	uint32_t max_more;   /* … in words, beyond its first entry */
	uint32_t n_kept;     /* requests that keep their slots */
	uint32_t *keep_slot; /* … by slot */
	/* By index: the number of the message of the last call that its caller gave up. */
	const uint32_t *given_up;
	struct gn_rpc_request *idle;
	struct gn_rpc_request *current; /* its handler runs, and it is not RPC_RUNNING */
	bool heard;			/* since the clock was looked at */
	uint32_t taken_told;		/* of taken, the client can know */
	uint64_t nonce;

	/* results: one message is put together at a time */
	uint8_t *result;	/* the slot of the next one */
	uint8_t *put;		/* where its next entry goes */
	uint64_t quick;		/* the word of requests that may be answered there; 0: none */
	uint32_t placed, acked; /* the last that is there, that is not needed any more */
	enum rpc_way open;	/* the message that is put together; RPC_NO_WAY: there is none */
	uint8_t *put_end;	/* where the last of its results may end */
	uint32_t entries, last_len;
	uint32_t max_result; /* bytes of one result */
	uint32_t sealed_len; /* of the last message */
	const void *room; /* the request or group whose handler may be writing behind the message */
	struct rpc_times *open_times; /* of the method of its last result */
	uint64_t begin_ns;	      /* of the work whose results it has; 0: nobody has looked */
	struct gn_rpc_request *held, **held_end;
	bool serving;	/* more may come for the message */
	bool time_each; /* each request by itself: one of them takes long */
	union {
		struct {
			/*
			 * rpc_conn_attend(): something besides the next message is to be looked at
			 * with each turn.
			 */
			bool attend;
			bool open_ack; /* its client is to acknowledge it at once */
			bool parked;
			bool check_request : 1, check_fetch : 1; /* no order is promised */
			bool writes : 1;			 /* n_writing */
			uint32_t notify; /* the result that its client sleeps for; 0: none */
		};
		uint64_t rare; /* not 0: serve_single() must not be used */
	};
	uint32_t n_writing; /* of writing */

	/* ---- the rest ---- */

	struct link_task task; /* it is handed over to its thread */
	uint64_t previous;     /* … which ends this connection first, or another thread: */
	unsigned previous_thread;
	uint64_t client;
	bool dead; /* its client is gone, or was never let in */
	bool told; /* opts.peer knows that the client came */
	uint64_t heard_ns;
	uint32_t epoch, window;
	uint32_t max_request;
	uint32_t park_count; /* 1 … RPC_PARKED_MAX */
	uint32_t reply_key;
	uint64_t request_stride, result_stride;

	bool untold;	 /* of taken, but the slot of the next result is being written from */
	uint32_t n_busy; /* requests that are not idle */
	struct gn_rpc_request *
		*blocks; /* of the window: RPC_BLOCK each, made when they are needed */
	uint32_t n_made; /* requests in them */
	uint64_t coming_bytes;		       /* of large ones */
	struct gn_rpc_request *far, **far_end; /* … of which not all was asked for */
	uint32_t reading;		       /* pieces that are under way */
	struct gn_rpc_request *ordered;	       /* a large one, for which what follows it waits: */
	struct rpc_cursor rest;		       /* the rest of its message */

	uint64_t ack_seen; /* the word of acked, when it was looked at */
	struct rpc_lent *lent;
	uint32_t n_lent;
	bool returning; /* some of it is acknowledged, but the client may still be copying */
	struct rpc_shown *shown;
	uint32_t n_shown;
	/*
	 * By slot: a reply is being written from it. The client may have taken it by a READ and
	 * acknowledged it, but the card may read the slot again until the WRITE has completed.
	 */
	bool *writing;
	struct gn_wr reply_wr; /* of the last reply; most of it stays */
	struct gn_sge reply_sge;
	uint32_t unsignaled, unsent; /* unsent: replies whose completion is waited for */
	bool notifying;		     /* it is just being told that one is there */

	uint64_t bytes;			       /* atomic: that are charged to it */
	uint32_t acked_before, rounds_unacked; /* of probes: for rpc_reclaim() */

	struct gn_pd *pd;
	struct rpc_area request_area, result_area;
	uint8_t *requests, *results;
	uint8_t *scratch; /* RPC_RACES_SHOW */
};

struct rpc_thread {
	struct link_loop loop;
	struct gn_rpc_server *server;
	unsigned index;
	struct gn_thread *thread;
	uint64_t id; /* gn_thread_id(), once it runs */
	bool stop, draining;
	bool drain_asked; /* atomic */
	struct rpc_conn *conns, *parked;
	struct link_timer park;	     /* look whether somebody is to be parked */
	struct gn_rpc_request *come; /* large ones of which a piece has come */
	struct gn_rpc_request *watched; /* whose handlers want to know when their callers give up */
	struct link_timer watch;
	uint64_t watch_ns;	     /* not before then are they looked at again */
	bool watch_woken;	     /* a client has woken the thread since */
	bool written;		     /* a reply for whose slot a result is held, perhaps */
	uint32_t n_conns;	     /* atomic: for others to read */
	uint32_t unquiet;	     /* atomic: connections that are not drained yet */
	struct link_task stop_task, drain_task;
	struct rpc_times **served[0x10000 / RPC_PAGE_METHODS]; /* atomic: pages, by method */
	/* The last method that was looked up: no handler is called beside it while draining. */
	struct rpc_known {
		unsigned method;
		gn_rpc_handler *fn;
		void *arg;
		const struct rpc_method *how; /* NULL: nobody handles it */
		struct rpc_times *times;
	} known;
	struct gn_rpc_counters count;
	struct gn_rpc_group group;
};

struct gn_rpc_server {
	struct gn_fabric *fabric;
	uint64_t creator; /* gn_thread_id() */
	char *addr;
	struct gn_rpc_server_opts opts;
	uint32_t piece; /* bytes of a large request that are read at once */
	uint32_t max_inline;
	struct rpc_method *methods[0x10000 / RPC_PAGE_METHODS];
	struct gn_ctx *ctx; /* GN_RPC_ONE_CTX */
	struct link_acceptor acceptor;
	struct gn_listener *listener; /* of a polled one, which has no acceptor */
	bool draining;		      /* atomic: nobody is let in */
	struct rpc_thread *threads;
	unsigned started;
	uint64_t poller;  /* gn_thread_id() of who polls it, once it is started; else of nobody */
	uint64_t clients; /* atomic: ever */
	uint64_t bytes;	  /* atomic: charged to clients */
	uint32_t n_conns; /* atomic: connections, those that are being torn down too */
	uint64_t refused, dropped, logged_ns; /* atomic */
	unsigned next;			      /* thread of the next client */
};

/* limits.c; any thread */
/* Keep so many bytes more for a client; false: that is beyond a limit, and counted as dropped. */
bool rpc_charge(struct rpc_conn *conn, uint64_t bytes, bool large);
/* … that can be done without: false is no reason to count or to log. */
bool rpc_charge_spare(struct rpc_conn *conn, uint64_t bytes);
void rpc_uncharge(struct rpc_conn *conn, uint64_t bytes);
/* Owner only: */
void rpc_limits_default(struct gn_rpc_server_opts *opts);
/* Completions that a connection with so many slots may cause before anybody looks. */
uint32_t rpc_completions(uint32_t slots);
uint32_t rpc_max_sends(uint32_t slots);
/* What the hello asked for, or less; false: the client is refused, and the log says why. */
bool rpc_admit(struct rpc_conn *conn);
void rpc_dismiss(struct rpc_conn *conn);
/*
 * With each round of probes: disconnect a client that acknowledges no result while memory is short.
 */
void rpc_reclaim(struct rpc_conn *conn, uint32_t rounds);

/* conn.c */
/* The acceptor's thread: somebody wants to connect. */
void rpc_conn_request(struct gn_rpc_server *server, struct gn_event *event);
/* It is over, and ends in this turn. */
static inline void rpc_conn_fail(struct rpc_conn *conn)
{
	link_conn_fail(&conn->link);
}
/* What the loop is told; conn_ops has the rest. */
void rpc_conn_established(struct link_conn *link);
void rpc_conn_end(struct link_conn *link);
bool rpc_conn_busy(const struct link_conn *link);
bool rpc_conn_destroy(struct link_conn *link);
/* Put it aside until it says that there is something. long_silent: for LINK_PROBE_NS. */
void rpc_conn_park(struct rpc_conn *conn, bool long_silent);
void rpc_conn_unpark(struct rpc_conn *conn);
int rpc_conn_recv(struct rpc_conn *conn);
/* Where it says which results it does not need any more. */
static inline const uint64_t *rpc_conn_ack(const struct rpc_conn *conn)
{
	const uint8_t *word = conn->requests + (conn->mask + 1) * conn->request_stride;

	return (const uint64_t *)(const void *)word;
}
static inline const uint64_t *rpc_conn_word(const struct rpc_conn *conn)
{
	return (const uint64_t *)(const void *)conn->message;
}

/* The next message: its number, its sequence, its slot. */
static inline void rpc_conn_next(struct rpc_conn *c, uint32_t number)
{
	c->number = number;
	c->seq = rpc_seq(c->epoch, number);
	c->message = c->requests + (number & c->mask) * c->request_stride;
}
/*
 * After a change of what it is about: results are held or lent, messages are not known to be taken,
 * keep their slots, or wait for a large one; or the server drains.
 */
static inline void rpc_conn_attend(struct rpc_conn *c)
{
	c->attend = c->held || c->lent || c->untold || c->ordered || c->rest.message || c->n_kept ||
		    c->thread->draining;
}
/* Is there something to do for it: a message, perhaps? */
static inline bool rpc_conn_ready(const struct rpc_conn *c)
{
	return __atomic_load_n(rpc_conn_word(c), __ATOMIC_RELAXED) == c->seq || unlikely(c->rare) ||
	       mutant("rpc-epoch-unchecked", 8);
}

/* The i-th request of its window. */
#define RPC_BLOCK 64u
static inline struct gn_rpc_request *rpc_conn_nth(const struct rpc_conn *conn, uint32_t i)
{
	return &conn->blocks[i / RPC_BLOCK][i % RPC_BLOCK];
}
/* RPC_BLOCK more requests of the window; false: it has all of them, or there is no memory. */
bool rpc_conn_grow(struct rpc_conn *conn);

/* serve.c */
/* Does its handler run, in this thread, and has not answered? */
static inline bool rpc_request_runs(const struct gn_rpc_request *r)
{
	return exec_is_owner(r->conn->thread->id) &&
	       (r->is.state == RPC_RUNNING || r->conn->current == r);
}
static inline bool rpc_request_answered(const struct gn_rpc_request *r)
{
	return __atomic_load_n(&r->is.answered, __ATOMIC_RELAXED);
}
/* Its memory changed, perhaps: handle the requests that are there. How many. */
int rpc_conn_serve_ready(struct rpc_conn *conn);
static inline int rpc_conn_serve(struct rpc_conn *c)
{
	return rpc_conn_ready(c) ? rpc_conn_serve_ready(c) : 0;
}
/* A piece of a large request has come. */
void rpc_request_come(struct gn_rpc_request *request);
/* Any thread: have its bytes where they stay when its slot is free. */
void rpc_request_copy_out(struct gn_rpc_request *request);
/* Its bytes were elsewhere than in its slot, or kept it. */
void rpc_request_release(struct gn_rpc_request *request);
static inline void rpc_request_free(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	if (__atomic_load_n(&r->is.bytes, __ATOMIC_RELAXED) != RPC_IN_SLOT)
		rpc_request_release(r);
	c->n_busy--;
	r->is.state = RPC_IDLE;
	r->next = c->idle;
	c->idle = r;
}
/* One whose handler runs, and which is not answered by the quick way. */
void rpc_request_settle(struct gn_rpc_request *request);
/* One of the window that is idle, and is not any more; NULL: there is none. */
static inline struct gn_rpc_request *rpc_request_take(struct rpc_conn *c)
{
	struct gn_rpc_request *r = c->idle;

	if (unlikely(!r)) {
		if (!rpc_conn_grow(c))
			return NULL;
		r = c->idle;
	}
	c->idle = r->next;
	c->n_busy++;
	return r;
}
/* group.c */
/* The entry, of the method that the thread knows, and those that go with it. */
void rpc_group_serve(struct rpc_conn *conn, const struct rpc_entry *entry, const uint8_t *data,
		     struct rpc_cursor *cursor);
/* A request by itself, whose state is RPC_BUSY. */
void rpc_group_serve_one(const struct rpc_method *method, struct gn_rpc_request *request);

/* abandon.c */
void rpc_abandon_forget(struct gn_rpc_request *request);
void rpc_abandon_gone(struct rpc_conn *conn);
void rpc_abandon_look(struct rpc_thread *thread, uint64_t now_ns);
void rpc_abandon_due(struct link_timer *timer, uint64_t now_ns);

/* answer.c; owner only */
void rpc_answer(struct gn_rpc_request *request);
void rpc_answer_posted(struct link_task *task);
/* No more results come for the message that is put together. */
void rpc_seal_results(struct rpc_conn *conn);
/* The client needs no result up to this one any more; false: it has not even got it. */
bool rpc_conn_newly_acked(struct rpc_conn *conn, uint32_t number);
static inline bool rpc_conn_acked(struct rpc_conn *c, uint32_t number)
{
	/* A request may be older than the word that was seen before it. Lent: attend. */
	if (likely(number - c->acked <= c->placed - c->acked && !c->rare)) {
		c->acked = number;
		return true;
	}
	return (int32_t)(number - c->acked) <= 0 || rpc_conn_newly_acked(c, number);
}
/* … and it may have said so without a request. */
void rpc_conn_look_acked(struct rpc_conn *conn);
void rpc_conn_release_held(struct rpc_conn *conn);
/* Tell a client that sleeps, if the result that it sleeps for is there. */
void rpc_conn_notify(struct rpc_conn *conn);
/* More messages are taken, perhaps; tell the client if no result does. */
static inline void rpc_conn_advance(struct rpc_conn *c)
{
	if (likely(!c->n_kept))
		c->taken = c->number - 1;
	while (c->taken + 1 != c->number && !c->keep_slot[(c->taken + 1) & c->mask])
		c->taken++;
}
void rpc_conn_tell_taken(struct rpc_conn *conn);

/* show.c */
void rpc_shown_hide(struct rpc_conn *conn);

/* lend.c */
bool rpc_lend(struct gn_rpc_request *request, struct rpc_far *out);
/*
 * Take back what is acknowledged, or all. What the client may be copying stays, to be tried again:
 * conn->returning.
 */
void rpc_lent_return(struct rpc_conn *conn, bool all);
static inline void rpc_answer_free(struct rpc_conn *c, struct rpc_answer *a)
{
	gn_free(a->copy);
	if (unlikely(a->area.mem))
		rpc_area_free(&a->area);
	if (a->charged)
		rpc_uncharge(c, a->charged);
	if (a->release)
		a->release(a->arg);
	*a = (struct rpc_answer){0};
}

/* thread.c */
void rpc_thread_main(void *thread);
int rpc_thread_turn(struct rpc_thread *thread);
int rpc_thread_idle(struct rpc_thread *thread, uint64_t deadline_ns);
void rpc_thread_end(struct rpc_thread *thread);
/* The table of its loop. */
extern const struct link_ops rpc_thread_ops;
/* Look at clients after park_us, as long as there are some that are not parked. */
void rpc_thread_park_due(struct link_timer *timer, uint64_t now_ns);
/*
 * Post one request of a connection, by gn_post_one(), or by rpc_post_send() if it is to complete;
 * -EAGAIN: its queue is full of what is not done.
 */
typedef int rpc_post_fn(struct gn_qp *qp, const struct gn_wr *wr);
int rpc_post_send(struct gn_qp *qp, const struct gn_wr *wr);
int rpc_thread_post(struct rpc_conn *conn, const struct gn_wr *wr, rpc_post_fn *post);
void rpc_thread_stop(struct link_task *task);
void rpc_thread_drain(struct link_task *task);

/* server.c */
const struct rpc_method *rpc_method_find(const struct gn_rpc_server *server, unsigned method);
void rpc_thread_learn(struct rpc_thread *thread, unsigned method);
static inline const struct rpc_known *rpc_thread_know(struct rpc_thread *t, unsigned method)
{
	if (unlikely(t->known.method != method))
		rpc_thread_learn(t, method);
	return &t->known;
}

/* metrics.c */
void rpc_metrics_handler(struct gn_rpc_request *request, void *arg);
/* What it knows of a method, which has a handler; NULL: no memory. */
struct rpc_times *rpc_served(struct rpc_thread *thread, unsigned method);
void rpc_served_free(struct rpc_thread *thread);

#endif
