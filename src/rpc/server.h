/* SPDX-License-Identifier: MIT */
/*
 * Internal state of a server. Every thread runs a loop (src/link) and owns its connections with
 * everything that belongs to them; the acceptor's thread creates them. Any thread may answer a
 * request: a thread that is not the owner posts the answer to the owner's loop.
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
 * Receives of a connection, for the client's wake-ups: RPC_WAKES_MAX before a result, one that
 * requests a notification, and those sent because the client found itself parked.
 */
#define RPC_RECVS	 20u
#define RPC_SENDS_BESIDE 9u /* besides replies: READs of large requests, notifications */

/*
 * A method that takes this long gets result messages of its own, so that other results neither wait
 * for it nor count as slow.
 */
#define RPC_SLOW_US 20u

/* The id of a work request: one of these, or the address of a large request. */
enum rpc_wr_id {
	RPC_NOTIFY_ID, /* 0: not an address */
	RPC_WAKE_ID,   /* a receive */
	RPC_REPLY_ID,  /* with slot and flags: rpc_reply_id() */
	RPC_ID_MASK = 7,
	RPC_REPLY_SYNC = 8,
	RPC_REPLY_INLINE = 16, /* the slot can be reused before this reply completes */
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

enum rpc_request_status {
	RPC_REQ_FREE,
	RPC_REQ_RUNNING, /* its handler runs; still on the free list */
	RPC_REQ_READING, /* large, being read */
	RPC_REQ_BUSY,	 /* owned by its handler */
	RPC_REQ_HELD,	 /* answered, waits for a free result slot */
};

/* How a result message is delivered. */
enum rpc_delivery { RPC_DELIVER_NONE, RPC_DELIVER_FETCH, RPC_DELIVER_REPLY };
static inline enum rpc_delivery rpc_delivery_of(unsigned flags)
{
	return RPC_DELIVER_FETCH + (flags & RPC_REPLY);
}
/* rpc_conn.fast, and is_bits of a request whose handler runs while the fast path is open. */
static inline uint64_t rpc_fast_bits(enum rpc_delivery delivery)
{
	return RPC_REQ_RUNNING | (uint64_t)delivery << 8;
}
_Static_assert(RPC_REPLY == 1, "rpc_delivery_of()");

struct rpc_method {
	gn_rpc_handler *fn;
	gn_rpc_group_handler *group; /* instead of fn */
	void *arg;
	unsigned flags;
};

/* A result. */
struct rpc_answer {
	uint16_t status;
	const void *data;
	uint32_t len;
	void *copy;	      /* data, if the library allocated it */
	uint64_t charged;     /* bytes charged to the client */
	struct rpc_area area; /* data, if it is large and the library allocated it */
	struct gn_mem *mem;   /* data, if it is the handler's: release must be called */
	size_t offset;
	void (*release)(void *arg);
	void *arg;
};

/*
 * Where the bytes of a request are. If the request is answered after its handler has returned, its
 * bytes are copied out of the slot by the first thread that needs them: the owner when the handler
 * returns, or another thread that asks for them before. Without memory the bytes stay and pin the
 * slot.
 */
enum rpc_bytes { RPC_IN_SLOT, RPC_COPYING, RPC_PINNED, RPC_COPIED };

/* Callback for an abandoned call; on the list rpc_thread.watched. */
struct rpc_abandon {
	gn_rpc_abandon_fn *fn;
	void *arg;
	struct gn_rpc_request *next, **prev; /* prev NULL: not on the list */
};

/* A request of the window, free or in use. Members that every request sets come first. */
struct gn_rpc_request {
	struct rpc_conn *conn;
	struct gn_rpc_request *next; /* on the free list, held, or on rpc_thread.arrived */
	uint64_t owner;		     /* rpc_thread.id */
	const uint8_t *data;
	uint32_t len; /* from here the same layout as struct rpc_entry */
	uint16_t method, index;
	uint32_t number; /* of its message */
	/* time left until the deadline when the request arrived; 0: no deadline */
	uint32_t left_us;
	union {
		struct rpc_request_state {
			uint8_t state;	  /* enum rpc_request_status, atomic */
			uint8_t delivery; /* enum rpc_delivery */
			bool answered;	  /* atomic; not set on the fast path */
			bool pins_slot;
			uint32_t bytes; /* enum rpc_bytes, atomic */
		} is;
		uint64_t is_bits; /* all of is, for the fast path */
	};
	uint64_t begin_ns;
	struct rpc_times *times; /* of its method; NULL: none */

	struct link_task task; /* an answer from another thread */
	uint8_t *copy;	       /* data, if it was copied */
	struct rpc_area area;  /* of a large request */
	struct rpc_large_ref from;
	uint32_t requested, done;	   /* bytes of READs posted, and completed */
	uint32_t new_pieces;		   /* completed READs that were not processed yet */
	bool deferred;			   /* and counted in times->open */
	struct gn_rpc_request *next_large; /* on rpc_conn.large */
	struct rpc_answer answer;
	struct rpc_abandon abandon;
};
_Static_assert(offsetof(struct gn_rpc_request, index) - offsetof(struct gn_rpc_request, len) ==
		       offsetof(struct rpc_entry, index),
	       "a copy of the entry");
/*
 * is_bits of a request that was answered on the fast path: free and answered, never equal to
 * rpc_conn.fast.
 */
#define RPC_ANSWERED_BITS (1ull << 8 * offsetof(struct rpc_request_state, answered))

/*
 * Unacknowledged large results of a connection: each takes a registration, and on shared memory a
 * descriptor. Further large results are held.
 */
#define RPC_EXPORTS_MAX 16u

/* A large result that its client may still read. */
struct rpc_export {
	struct rpc_export *next;
	uint32_t number; /* of the message that announces it */
	uint64_t bytes;
	struct rpc_area area;
	struct gn_mr *mr; /* if it is the handler's memory */
	void (*release)(void *arg);
	void *arg;
};

/* Memory that a client may read while it is connected. */
struct rpc_exposed {
	struct rpc_exposed *next;
	struct gn_mem *mem;
	struct gn_mr *mr;
};

/* Position in a message. The members of its head were copied and checked. */
struct rpc_cursor {
	const uint8_t *message;
	uint32_t len;
	uint16_t entries, flags;
	uint32_t at; /* offset of the next entry */
	uint32_t i;
};

/* gn_rpc_group.fast while the handler has a result buffer. */
#define GROUP_ROOM UINT64_MAX

/* The calls of a running group handler. Each thread has one group. */
struct gn_rpc_group {
	struct rpc_conn *conn;
	/* the request, if the group is one large request; else NULL */
	struct gn_rpc_request *request;
	uint64_t pending; /* a bit for each unanswered call */
	uint64_t fast;	  /* rpc_conn.fast, if results go into the open message; or GROUP_ROOM */
	uint32_t n;
	uint32_t most; /* size of room */
	enum rpc_delivery delivery;
	bool kept;  /* room is not behind the open message but in keep */
	void *room; /* the handler's result buffer, or NULL */
	struct rpc_answer keep;
	struct rpc_times *times; /* of the last entry's method */
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
	struct rpc_conn *next, **prev; /* on rpc_thread.conns or parked */

	/* ---- needed by every call ---- */

	/* requests */
	const uint8_t *message; /* the slot of the next message */
	uint64_t seq;		/* its sequence */
	uint32_t number;	/* number of the next message */
	uint32_t taken;		/* slots of messages up to this number are free */
	uint32_t mask;
	uint32_t max_len;	  /* of a message */
	uint32_t max_extra_words; /* (max_len - first entry) / 8 */
	uint32_t n_pins;	  /* requests that pin their slots */
	uint32_t *slot_pins;	  /* … by slot */
	/*
	 * By index: the number of the message whose call the client abandoned last. The client
	 * writes here.
	 */
	const uint32_t *abandoned;
	struct gn_rpc_request *free_requests;
	struct gn_rpc_request *current; /* its handler runs, on the slow path */
	bool active;			/* a message arrived since the clock was last read */
	uint32_t taken_published;	/* the value of taken that the client can see */
	uint64_t nonce;

	/* results: one message is open at a time */
	uint8_t *result;	   /* the slot of the next message */
	uint8_t *put;		   /* address of its next entry */
	uint64_t fast;		   /* is_bits of requests that may be answered there; 0: none */
	uint32_t published, acked; /* last result published, last result acknowledged */
	enum rpc_delivery open; /* delivery of the open message; RPC_DELIVER_NONE: none is open */
	uint8_t *put_end;	/* limit for the end of its last result */
	uint32_t entries, last_len;
	uint32_t max_result; /* bytes of one result */
	uint32_t sealed_len; /* of the last message */
	/* the request or group whose handler may be writing behind the open message */
	const void *room_owner;
	struct rpc_times *open_times; /* of the method of its last result */
	uint64_t begin_ns;	      /* start of the work for the open message; 0: not timed */
	struct gn_rpc_request *held, **held_end;
	bool serving;	/* results may still be added */
	bool time_each; /* time every request: one of them takes long */
	union {
		struct {
			/* There is work besides the next message: rpc_conn_update_pending(). */
			bool pending_work;
			bool open_ack; /* set RPC_WANT_ACK in the open message */
			bool parked;
			/* the connection does not guarantee the order */
			bool check_request : 1, check_fetch : 1;
			bool writes : 1; /* n_writing is not 0 */
			uint32_t notify; /* the result that the client waits for; 0: none */
		};
		uint64_t slow_path; /* not 0: serve_single() must not be used */
	};
	uint32_t n_writing; /* number of slots that are set in writing */

	/* ---- the rest ---- */

	struct link_task task; /* hands the connection to its thread */
	/* name of the client's earlier connection, to be closed first; and its thread */
	uint64_t previous;
	unsigned previous_thread;
	uint64_t client;
	bool dead;	    /* disconnected, or never accepted */
	bool peer_notified; /* opts.peer was called for the connect */
	uint64_t active_ns;
	uint32_t epoch, window;
	uint32_t max_request;
	uint32_t park_count; /* 1 … RPC_PARKED_MAX */
	uint32_t reply_key;
	uint64_t request_stride, result_stride;

	/* taken changed, but a reply is being written from the slot that publishes it */
	bool taken_unpublished;
	uint32_t n_busy; /* requests in use */
	/* The window's requests: RPC_BLOCK each, allocated on demand. */
	struct gn_rpc_request **blocks;
	uint32_t n_made;	/* requests in blocks */
	uint64_t reading_bytes; /* of large requests being read */
	/* large requests whose READs are not all posted */
	struct gn_rpc_request *large, **large_end;
	uint32_t reading;		/* outstanding READs */
	struct gn_rpc_request *ordered; /* a large request that later requests wait for */
	struct rpc_cursor rest;		/* the rest of its message */

	uint64_t ack_seen; /* the client's ack word, when it was last checked */
	struct rpc_export *exports;
	uint32_t n_exports;
	bool releasing; /* some exports are acknowledged, but the client may still be copying */
	struct rpc_exposed *exposed;
	uint32_t n_exposed;
	/*
	 * By slot: a reply is being written from it. Even if the client has fetched and
	 * acknowledged the result, the card may read the slot again until the WRITE has completed.
	 */
	bool *writing;
	struct gn_wr reply_wr; /* template of a reply */
	struct gn_sge reply_sge;
	/* sync_pending: replies of GN_RPC_SYNC_REPLY in flight */
	uint32_t unsignaled, sync_pending;
	bool notifying; /* a notification is in flight */

	uint64_t bytes;			       /* atomic: charged to the client */
	uint32_t acked_before, rounds_unacked; /* for rpc_reclaim(), in probes */

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
	uint64_t id; /* gn_thread_id(), once the thread runs */
	bool stop, draining;
	bool drain_asked; /* atomic */
	struct rpc_conn *conns, *parked;
	struct link_timer park;		/* when to check for clients to park */
	struct gn_rpc_request *arrived; /* large requests with new pieces */
	struct gn_rpc_request *watched; /* requests with an abandon callback */
	struct link_timer watch;
	uint64_t watch_ns; /* earliest time of the next check */
	bool watch_woken;  /* a client has woken the thread since the last check */
	/* a reply completed, and a result is held for its slot, perhaps */
	bool written;
	uint32_t n_conns;   /* atomic: read by other threads */
	uint32_t undrained; /* atomic: undrained connections plus one; 0: not draining */
	struct link_task stop_task, drain_task;
	struct rpc_times **method_times[0x10000 / RPC_PAGE_METHODS]; /* atomic: pages, by method */
	/* The method that was looked up last. While draining, fn is NULL. */
	struct rpc_method_cache {
		unsigned method;
		gn_rpc_handler *fn;
		void *arg;
		const struct rpc_method *def; /* NULL: no such method */
		struct rpc_times *times;
	} cached;
	struct gn_rpc_counters count;
	struct gn_rpc_group group;
};

struct gn_rpc_server {
	struct gn_fabric *fabric;
	uint64_t creator; /* gn_thread_id() */
	char *addr;
	struct gn_rpc_server_opts opts;
	uint32_t piece; /* bytes of a READ of a large request */
	uint32_t max_inline;
	struct rpc_method *methods[0x10000 / RPC_PAGE_METHODS];
	struct gn_ctx *ctx; /* GN_RPC_ONE_CTX */
	struct link_acceptor acceptor;
	struct gn_listener *listener; /* of a polled server, which has no acceptor */
	bool draining;		      /* atomic: refuse connections */
	struct rpc_thread *threads;
	unsigned started;
	uint64_t poller;  /* gn_thread_id() of the polling thread, once started */
	uint64_t clients; /* atomic: connections so far */
	uint64_t bytes;	  /* atomic: charged to clients */
	uint32_t n_conns; /* atomic: connections, including those being torn down */
	uint64_t refused, dropped, logged_ns; /* atomic */
	unsigned next;			      /* thread of the next client */
	struct gn_mutex histograms_lock;
	struct rpc_histogram *histograms; /* exported; by method */
};

/* limits.c; any thread */
/* Charge bytes to a client. False: beyond a limit, and counted as dropped. */
bool rpc_charge(struct rpc_conn *conn, uint64_t bytes, bool large);
/* … for optional memory: failure is neither counted nor logged. */
bool rpc_charge_spare(struct rpc_conn *conn, uint64_t bytes);
void rpc_uncharge(struct rpc_conn *conn, uint64_t bytes);
/* owner only: */
void rpc_limits_default(struct gn_rpc_server_opts *opts);
/* Completions that a connection with so many slots can cause. */
uint32_t rpc_completions(uint32_t slots);
uint32_t rpc_max_sends(uint32_t slots);
/* Grants what the hello requested, or less. False: the client is refused, and the log says why. */
bool rpc_admit(struct rpc_conn *conn);
void rpc_unadmit(struct rpc_conn *conn);
/* Runs with each probe: disconnects a client that acknowledges no result while memory is short. */
void rpc_reclaim(struct rpc_conn *conn, uint32_t rounds);

/* conn.c */
/* Acceptor's thread: a connection request. */
void rpc_conn_request(struct gn_rpc_server *server, struct gn_event *event);
/* Marks the connection as failed; it ends in this turn. */
static inline void rpc_conn_fail(struct rpc_conn *conn)
{
	link_conn_fail(&conn->link);
}
/* Callbacks of the loop; rpc_thread_ops has the rest. */
void rpc_conn_established(struct link_conn *link);
void rpc_conn_end(struct link_conn *link);
bool rpc_conn_busy(const struct link_conn *link);
bool rpc_conn_destroy(struct link_conn *link);
/* Stop polling the connection until the client wakes it. long_idle: idle for LINK_PROBE_NS. */
void rpc_conn_park(struct rpc_conn *conn, bool long_idle);
void rpc_conn_unpark(struct rpc_conn *conn);
int rpc_conn_recv(struct rpc_conn *conn);
/* Where the client acknowledges results without a request. */
static inline const uint64_t *rpc_conn_ack_at(const struct rpc_conn *conn)
{
	const uint8_t *word = conn->requests + (conn->mask + 1) * conn->request_stride;

	return (const uint64_t *)(const void *)word;
}
static inline const uint64_t *rpc_conn_seq_at(const struct rpc_conn *conn)
{
	return (const uint64_t *)(const void *)conn->message;
}

/* Move to the message of this number. */
static inline void rpc_conn_next(struct rpc_conn *c, uint32_t number)
{
	c->number = number;
	c->seq = rpc_seq(c->epoch, number);
	c->message = c->requests + (number & c->mask) * c->request_stride;
}
/* Call after a change of any of these members. */
static inline void rpc_conn_update_pending(struct rpc_conn *c)
{
	c->pending_work = c->held || c->exports || c->taken_unpublished || c->ordered ||
			  c->rest.message || c->n_pins || c->thread->draining;
}
/* Is there a message, perhaps, or other work? */
static inline bool rpc_conn_ready(const struct rpc_conn *c)
{
	return __atomic_load_n(rpc_conn_seq_at(c), __ATOMIC_RELAXED) == c->seq ||
	       unlikely(c->slow_path) || mutant("rpc-epoch-unchecked", 8);
}

/* The i-th request of the window. */
#define RPC_BLOCK 64u
static inline struct gn_rpc_request *rpc_conn_request_at(const struct rpc_conn *conn, uint32_t i)
{
	return &conn->blocks[i / RPC_BLOCK][i % RPC_BLOCK];
}
/* Allocates RPC_BLOCK more requests of the window. False: the window is complete, or no memory. */
bool rpc_conn_grow(struct rpc_conn *conn);

/* serve.c */
/* True if its handler runs in this thread and has not answered. */
static inline bool rpc_request_runs(const struct gn_rpc_request *r)
{
	return exec_is_owner(r->conn->thread->id) &&
	       (r->is.state == RPC_REQ_RUNNING || r->conn->current == r);
}
static inline bool rpc_request_answered(const struct gn_rpc_request *r)
{
	return __atomic_load_n(&r->is.answered, __ATOMIC_RELAXED);
}
/* Serves the messages that are there. Returns their number. */
int rpc_conn_serve_ready(struct rpc_conn *conn);
static inline int rpc_conn_serve(struct rpc_conn *c)
{
	return rpc_conn_ready(c) ? rpc_conn_serve_ready(c) : 0;
}
/* READs of a large request have completed. */
void rpc_request_piece_read(struct gn_rpc_request *request);
/* Any thread: copies the bytes to where they survive their slot. */
void rpc_request_copy_out(struct gn_rpc_request *request);
/* Frees copied bytes, or unpins the slot. */
void rpc_request_release(struct gn_rpc_request *request);
static inline void rpc_request_free(struct gn_rpc_request *r)
{
	struct rpc_conn *c = r->conn;

	if (__atomic_load_n(&r->is.bytes, __ATOMIC_RELAXED) != RPC_IN_SLOT)
		rpc_request_release(r);
	c->n_busy--;
	r->is.state = RPC_REQ_FREE;
	r->next = c->free_requests;
	c->free_requests = r;
}
/* Takes a running request off the free list: it is not answered on the fast path. */
void rpc_request_make_busy(struct gn_rpc_request *request);
/* Takes a free request of the window; NULL: there is none. */
static inline struct gn_rpc_request *rpc_request_take(struct rpc_conn *c)
{
	struct gn_rpc_request *r = c->free_requests;

	if (unlikely(!r)) {
		if (!rpc_conn_grow(c))
			return NULL;
		r = c->free_requests;
	}
	c->free_requests = r->next;
	c->n_busy++;
	return r;
}
/* group.c */
/* Serves this entry, whose method is cached, and the entries that can join it. */
void rpc_group_serve(struct rpc_conn *conn, const struct rpc_entry *entry, const uint8_t *data,
		     struct rpc_cursor *cursor);
/* A single request in state RPC_REQ_BUSY. */
void rpc_group_serve_one(const struct rpc_method *method, struct gn_rpc_request *request);

/* abandon.c */
void rpc_abandon_unregister(struct gn_rpc_request *request);
void rpc_abandon_conn(struct rpc_conn *conn);
void rpc_abandon_check(struct rpc_thread *thread, uint64_t now_ns);
void rpc_abandon_due(struct link_timer *timer, uint64_t now_ns);

/* answer.c; owner only */
void rpc_answer(struct gn_rpc_request *request);
void rpc_answer_posted(struct link_task *task);
/* Seals the open message: no more results are added. */
void rpc_seal_results(struct rpc_conn *conn);
/* The client has consumed results up to number. False: beyond what was published. */
bool rpc_conn_newly_acked(struct rpc_conn *conn, uint32_t number);
static inline bool rpc_conn_acked(struct rpc_conn *c, uint32_t number)
{
	/*
	 * The ack of a request may be older than the ack word seen before it. With exports: slow
	 * path.
	 */
	if (likely(number - c->acked <= c->published - c->acked && !c->slow_path)) {
		c->acked = number;
		return true;
	}
	return (int32_t)(number - c->acked) <= 0 || rpc_conn_newly_acked(c, number);
}
/* Checks the ack word, which the client writes without a request. */
void rpc_conn_check_acks(struct rpc_conn *conn);
void rpc_conn_release_held(struct rpc_conn *conn);
/* Notifies a sleeping client, if the result that it waits for is published. */
void rpc_conn_notify(struct rpc_conn *conn);
/* Advances taken past messages whose slots are not pinned. */
static inline void rpc_conn_advance(struct rpc_conn *c)
{
	if (likely(!c->n_pins))
		c->taken = c->number - 1;
	while (c->taken + 1 != c->number && !c->slot_pins[(c->taken + 1) & c->mask])
		c->taken++;
}
void rpc_conn_publish_taken(struct rpc_conn *conn);

void rpc_exposed_free(struct rpc_conn *conn);

/* export.c */
bool rpc_result_export(struct gn_rpc_request *request, struct rpc_large_ref *out);
/*
 * Release acknowledged exports, or all. Exports that the client may be copying are retried later:
 * conn->releasing.
 */
void rpc_exports_release(struct rpc_conn *conn, bool all);
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
extern const struct link_ops rpc_thread_ops;
/* Checks for clients to park, every park_us while unparked clients exist. */
void rpc_thread_park_due(struct link_timer *timer, uint64_t now_ns);
/*
 * Post one work request of a connection with post: gn_post_one(), or rpc_post_send() if it must
 * create a completion. Polls the cq while the send queue is full; -EAGAIN: it stays full.
 */
typedef int rpc_post_fn(struct gn_qp *qp, const struct gn_wr *wr);
int rpc_post_send(struct gn_qp *qp, const struct gn_wr *wr);
int rpc_thread_post(struct rpc_conn *conn, const struct gn_wr *wr, rpc_post_fn *post);
void rpc_thread_stop(struct link_task *task);
void rpc_thread_drain(struct link_task *task);

/* server.c */
const struct rpc_method *rpc_method_find(const struct gn_rpc_server *server, unsigned method);
void rpc_thread_cache_method(struct rpc_thread *thread, unsigned method);
static inline const struct rpc_method_cache *rpc_thread_method(struct rpc_thread *t,
							       unsigned method)
{
	if (unlikely(t->cached.method != method))
		rpc_thread_cache_method(t, method);
	return &t->cached;
}

/* metrics.c */
void rpc_metrics_handler(struct gn_rpc_request *request, void *arg);
/* The histogram of a method that has a handler; NULL: no memory. */
struct rpc_times *rpc_method_times(struct rpc_thread *thread, unsigned method);
void rpc_method_times_free(struct rpc_thread *thread);

#endif
