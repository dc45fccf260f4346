/* SPDX-License-Identifier: MIT */
/*
 * Internal state of the proxy: connections and the threads that serve them.
 *
 * A thread has an epoll set, a client of the store, and connections that no other thread touches.
 * Each command or key of a connection takes a slot, in the order of the replies; its operation is
 * outstanding or done.
 *
 * Lines, keys and values stay in the connection's input buffer, and slots point into it. The buffer
 * is reference counted: the connection holds a reference, and so does every slot, from
 * px_slot_new() until px_slot_free() or px_slot_detach(). Only pool.c moves or frees bytes of a
 * buffer, and it asserts that no slot holds a reference. A connection has one buffer: while slots
 * refer to it, more input is appended or not read at all.
 *
 * All memory that clients make a thread allocate counts against the thread's share of --memory: a
 * quarter for connections, a quarter for input buffers, and half for work: slots, values, replies
 * that were not written, and the copies that the store's client keeps of outstanding operations. So
 * input that waits for slots never uses their memory. A connection that needs memory waits
 * (starved), while connections that wait for their peers are closed, the longest waiting first.
 */
#ifndef GN_PROXY_INTERNAL_H
#define GN_PROXY_INTERNAL_H

#include <sys/uio.h>

#include <gannet/exec.h>

#include "listen.h"
#include "protocol.h"
#include "proxy.h"

#define PX_INLINE_BYTES	 1024u	/* bytes of a value that fit the slot itself */
#define PX_SLOT_LINE_MAX 640u	/* bytes of a line that fit the slot itself */
#define PX_IN_BYTES	 16384u /* input buffer of a connection */
#define PX_WINDOW	 512u	/* slots of a connection */
/* values up to this size get a buffer before their size is known */
#define PX_GUESS_MAX	       32768u
#define PX_TAGS		       4096u	    /* keys being read, distinguished so far */
#define PX_OUT_BYTES	       (128u << 10) /* replies gathered for one write */
#define PX_COPY_MAX	       4096u	    /* longer values are written from where they are */
#define PX_IOVS		       64u
#define PX_READS_PER_TURN      8u     /* of a connection, before other connections proceed */
#define PX_OPS_OUTSTANDING_MAX 65536u /* outstanding operations of a thread */
/* memory of the store's client per operation, besides its bytes */
#define PX_OP_OVERHEAD_BYTES 64u
/* without a byte, before a connection may be closed for its memory */
#define PX_DROP_IDLE_MS 100u
#define PX_DROP_SLOW_MS 1000u /* … despite bytes */

enum px_slot_state {
	PX_FILLING,	/* its value is being received */
	PX_OUTSTANDING, /* its operation is outstanding */
	PX_RETRY,	/* the value did not fit: read it again when it is the slot's turn */
	PX_DONE,
};

/* Input buffer of a connection. */
struct px_in {
	uint32_t refs; /* the connection, and each slot that may point into it */
	/* PX_IN_BYTES; less for the kept beginning of a command of an idle connection */
	uint32_t capacity;
	struct px_in *next_free;
	char bytes[]; /* capacity, and PX_SLACK */
};

struct px_slot {
	struct px_request request;
	struct px_slot *next; /* of the connection, or on the free list */
	struct px_slot **prev;
	struct px_conn *conn;
	struct px_in *in;     /* the buffer that the request points into; NULL: none */
	char *buf;	      /* allocated: a value, or a complete reply */
	uint32_t buf_bytes;   /* its size */
	uint32_t reply_bytes; /* bytes of buf that are the reply */
	uint32_t filled;      /* bytes of its value received so far */
	uint32_t held_len;
	const char *held_line;
	uint16_t tag;
	bool reads;    /* counted in reading[tag] */
	uint8_t tries; /* reads that did not fit; found and was_ttl_s are from the first */
	unsigned found;
	uint32_t was_ttl_s;
	uint8_t state;
	char inline_buf[PX_INLINE_BYTES + 2];
	char line[PX_SLOT_LINE_MAX + PX_SLACK]; /* last: few commands need it */
};

enum px_mode {
	PX_MODE_NEW, /* no byte received yet */
	PX_MODE_LINE,
	PX_MODE_KEYS,  /* inside a get */
	PX_MODE_VALUE, /* inside the value of the last slot */
	PX_MODE_HELD,  /* the last slot must not start yet */
	PX_MODE_SKIP,  /* skip bytes */
	PX_MODE_SKIP_LINE,
	PX_MODE_DUMP,	 /* listing keys */
	PX_MODE_CLOSING, /* nothing is read any more */
};

/* A list of keys being sent. */
struct px_dump {
	struct gn_kv_cursor cursor;
	uint32_t listed, limit; /* keys; limit 0: all */
	uint8_t format;		/* enum px_dump_format */
	bool more;
};

struct px_conn {
	int fd;
	uint8_t mode;
	bool readable, hung_up, ended, queued, dead;
	struct px_thread *thread;
	struct px_conn *next_queued;
	struct px_conn *next, **prev;
	struct px_slot *first, **last;
	unsigned slots, outstanding, reading, n_retry;
	size_t buf_bytes; /* of the buffers of its slots */
	struct px_conn *next_starved;
	/* list of connections that wait for their peers */
	struct px_conn *next_waiting, **prev_waiting;
	uint64_t waiting_since_ns, last_io_ns, command_ns; /* last_io: last byte in or out */
	bool starved;					   /* waits for memory of its thread */
	bool waiting;	 /* waits for its peer, inside a command or a reply */
	bool progressed; /* since its last turn: a command started, or all replies were written */
	bool control_pending; /* a control request is outstanding: nothing may overtake it */
	struct px_in *in;     /* NULL: no unparsed input */
	uint32_t in_at, in_len;
	char *out; /* output that could not be written yet */
	size_t out_at, out_len, out_bytes;
	struct px_slot *filling;
	uint64_t skip;
	size_t line_end;	       /* PX_MODE_KEYS: end of the line; 0: not received yet */
	uint32_t keys_how, keys_ttl_s; /* PX_MODE_KEYS: for each key */
	uint8_t keys_bits;
	const char *get_failed; /* error of a key of the current get */
	uint64_t last_ns;	/* time of its last command */
	struct px_dump dump;
};

/* Written by their thread only, read by any. */
struct px_counters {
	uint64_t came, gone; /* connections accepted and closed */
	uint64_t commands, bytes_read, bytes_written;
	uint64_t debugs;	 /* me commands */
	uint64_t rooms_short;	 /* values that were read again because they did not fit */
	uint64_t messages;	 /* to the store, updated with each sleep and second */
	uint64_t waits;		 /* sleeps until the store wakes the thread */
	uint64_t closed_slow;	 /* connections closed for lack of memory */
	uint64_t closed_stalled; /* … whose peers sent or read nothing: proxy_opts.stall_ms */
	uint64_t closed_idle;	 /* … without a command: proxy_opts.idle_ms */
};

struct px_thread {
	struct proxy *proxy;
	unsigned index;
	struct gn_thread *thread;
	struct gn_kv_client *kv;
	struct gn_source *store; /* source of kv */
	bool armed;		 /* the store's source was armed for the last sleep */
	bool idle;		 /* no event for a while */
	bool answered;		 /* the store responded in the last turn */
	int error;		 /* why the thread could not start */
	int epoll_fd, wake_fd;
	int *new_fds; /* accepted connections, to be added; under the proxy's lock */
	unsigned n_new_fds, new_fds_capacity;
	struct px_conn *conns;
	struct px_conn *queue, **queue_last; /* connections to be processed */
	struct px_slot *free_slots;
	unsigned n_free, ins_free;
	struct px_in *free_ins;
	unsigned outstanding;
	unsigned guess_bytes; /* buffer size for values of unknown size */
	unsigned fit_streak;  /* consecutive values that would fit half of guess_bytes */
	unsigned short_score; /* grows with values that did not fit, shrinks with others */
	size_t conns_bytes;   /* of struct px_conn */
	size_t ins_bytes;     /* of input buffers, in use or free */
	size_t work_bytes;    /* of everything else */
	struct px_conn *starved, **starved_last;
	bool store_disconnected;		 /* polls reconnect */
	struct px_conn *waiting, **waiting_last; /* the longest waiting first */
	uint64_t swept_ns, woke_ns;
	uint64_t now_ns;
	struct px_context context;
	struct px_request get; /* the current get, until its keys have slots */
	struct px_counters counters;
	char *out;
	struct iovec iov[PX_IOVS];
	uint16_t reading[PX_TAGS];
};

#define PX_COUNT(thread, field, n)                                                            \
	__atomic_store_n(&(thread)->counters.field, (thread)->counters.field + (uint64_t)(n), \
			 __ATOMIC_RELAXED)

/* pool.c */
/* May the connection have one more slot now? False: it gets a turn when it may. */
bool px_may_add_slot(struct px_conn *c);
/* Not limited. NULL: malloc() failed. */
struct px_slot *px_slot_new(struct px_conn *c);
/* Removes the newest slot again. */
void px_slot_undo_new(struct px_conn *c, struct px_slot *s);
void px_slot_free(struct px_thread *t, struct px_slot *s);
/* Allocates a slot's buffer within the thread's limit; other connections may be closed for it. */
bool px_slot_alloc(struct px_thread *t, struct px_slot *s, uint32_t bytes);
/* … only if memory is plentiful. */
bool px_slot_try_alloc(struct px_slot *s, uint32_t bytes);
/* c, which may be NULL, is not closed for it. */
bool px_memory_reserve(struct px_thread *t, const struct px_conn *c, size_t bytes);
void px_memory_release(struct px_thread *t, size_t bytes);
/* Starved connections get a turn. */
void px_starved_wake(struct px_thread *t);
void px_starve(struct px_conn *c);
/* The slot has copied what it needs of the input: drop its reference. */
void px_slot_detach(struct px_slot *s);
/* Makes space at in->bytes + in_len. -EAGAIN: slots must drop their references first; -ENOMEM. */
int px_in_ready(struct px_conn *c);
/* The connection is idle: keep its unparsed input in a buffer of that size, or none. */
void px_in_shrink(struct px_conn *c);
void px_in_release(struct px_conn *c);
void px_pool_free(struct px_thread *t);

/* conn.c */
void px_conn_add(struct px_thread *t, int fd);
/* Queues the connection for this turn; processes it. */
void px_conn_queue(struct px_conn *c);
void px_conn_turn(struct px_conn *c);
/* Frees the connection; no operation may be outstanding. */
void px_conn_free(struct px_conn *c);
/* Closes the connection and releases its memory; the struct is freed in its next turn. */
void px_conn_drop(struct px_conn *c);
/* Drops the connection that has waited longest for its peer. False: none has for long. */
bool px_conn_drop_waiting(struct px_thread *t, const struct px_conn *except);
/* Drops stalled and idle connections. Returns ms until the next sweep; -1: not needed. */
int px_conns_sweep(struct px_thread *t);

/* input.c: parses input as far as possible now. */
void px_input(struct px_conn *c);

/* ops.c: starts the operation of a slot. */
void px_op_start(struct px_slot *s);
/* Would a change of this key overtake a read that may have to be repeated? */
bool px_would_overtake(const struct px_conn *c, const void *key, uint32_t len);
/* Starts a control request: flush_all, stats. */
void px_control_start(struct px_slot *s);
/* Repeats reads of values that did not fit. */
void px_retry(struct px_conn *c);
/* Submits the slot's operation; on_end must call px_op_ended(). */
void px_submit(struct px_slot *s, void (*on_end)(struct gn_kv_op *op));
void px_op_ended(struct px_slot *s);
struct px_slot *px_slot_of(struct gn_kv_op *op);

/* dump.c: starts a list of keys; sends its next page. */
void px_dump_start(struct px_conn *c, enum px_dump_format format, uint32_t limit);
bool px_dump_step(struct px_conn *c);

/* output.c: writes the replies of completed slots, in order. False: not all could be written. */
bool px_write_replies(struct px_conn *c);
bool px_write_pending(struct px_conn *c);

/* stats.c: writes statistics into the slot's buffer. */
void px_stats(struct px_slot *s, const char *which, const struct gn_kv_stats *stats);
/* … those that need no request to the store. */
bool px_stats_local(struct px_slot *s, const char *which);

/* detail.c: counters by key prefix, the part before a colon. */
void px_detail_free(struct proxy *p);
void px_detail_switch(struct proxy *p, bool on);
void px_detail_clear(struct proxy *p);
void px_detail_count(const struct px_slot *s);
/* Writes lines into the slot's buffer; false: no memory. */
bool px_detail_dump(struct px_slot *s);

/* thread.c */
int px_thread_start(struct px_thread *t);
void px_thread_end(struct px_thread *t);
/* False: no memory; fd was closed. */
bool px_thread_add_conn(struct px_thread *t, int fd);

struct px_detail;

struct proxy {
	struct proxy_opts opts;
	struct gn_fabric *fabric;
	struct px_thread *threads;
	unsigned n_threads, next;
	size_t conns_bytes, ins_bytes, work_bytes; /* limits of a thread */
	size_t conn_bytes; /* work bytes of a connection, before it may start one more command */
	unsigned slots_kept;
	int64_t start_s;
	uint64_t conns_max, n_accepted;
	uint64_t rejected; /* atomic, as the next */
	bool ending, logged_full;
	struct gn_mutex lock;
	struct gn_cond started;
	unsigned n_started;
	struct px_listener *listeners;
	unsigned n_listeners;
	bool detail_on; /* atomic */
	struct px_detail *detail;
	/* counters at the last stats reset; under the lock */
	struct gn_kv_stats reset_store;
	struct px_counters reset_proxy;
	uint64_t reset_rejected;
};

static inline bool px_detail_on(const struct proxy *p)
{
	return __atomic_load_n(&p->detail_on, __ATOMIC_RELAXED);
}

/* proxy.c */
/* Sends an error for too many connections and closes fd. Any thread. */
void px_refuse(struct proxy *p, int fd);
/* Sum over all threads. */
void px_sum(const struct proxy *p, struct px_counters *out);

#endif
