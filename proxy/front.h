/* SPDX-License-Identifier: MIT */
/*
 * Connections and the threads that serve them, for the files of this folder.
 *
 * A thread has an epoll set, a client of the store, and connections that nobody else touches. What
 * a connection asks for lies in slots, in the order in which it is to be answered; a slot's
 * operation is under way, or done.
 *
 * Lines, keys and values stay where they were read, in the connection's input buffer, and slots
 * point into it. The buffer is reference counted: the connection has a reference, and so has every
 * slot, from px_slot_new() until px_slot_free() or px_slot_detach(). pool.c is the only place that
 * moves or frees bytes of a buffer, and it asserts that no slot has a reference. A connection has
 * one buffer: while slots refer to it, more is read behind what is there or not at all.
 *
 * Everything that a client makes a thread allocate counts against the thread's share of --memory. A
 * quarter of it is for connections themselves, a quarter for inputs, and half for work: slots,
 * values, answers not taken, and the copies that the store's client has of operations under way. So
 * input that waits for slots never takes their memory. A connection that needs memory when there is
 * none waits (starved), while others that wait for their peers are closed, the longest waiting
 * first.
 */
#ifndef GN_PROXY_FRONT_H
#define GN_PROXY_FRONT_H

#include <sys/uio.h>

#include <gannet/exec.h>

#include "listen.h"
#include "protocol.h"
#include "proxy.h"

#define PX_ROOM	      1024u	   /* bytes of a value that a slot has room for */
#define PX_LINE_KEPT  640u	   /* bytes of a line that a slot can keep */
#define PX_IN_BYTES   16384u	   /* input of a connection */
#define PX_WINDOW     512u	   /* slots of a connection */
#define PX_ROOM_EARLY 32768u	   /* up to that size, values get room before it is known */
#define PX_TAGS	      4096u	   /* keys being read, told apart so far */
#define PX_OUT_BYTES  (128u << 10) /* answers put together for a write */
#define PX_COPY_MAX   4096u	   /* longer values are written from where they are */
#define PX_IOVS	      64u
#define PX_READS      8u     /* of a connection, before it is others' turn */
#define PX_OPS_MAX    65536u /* operations of a thread under way */
#define PX_OP_BYTES   64u    /* that the store's client has for an operation, besides its bytes */
#define PX_STILL_MS   100u   /* without a byte, before a connection is closed for its memory */
#define PX_SLOW_MS    1000u  /* … in spite of bytes */

enum px_slot_state {
	PX_FILLING,   /* its value is on its way */
	PX_UNDER_WAY, /* its operation is */
	PX_AGAIN,     /* the value has no room: to be asked for again, when it is its turn */
	PX_DONE,
};

/* Input of a connection. */
struct px_in {
	uint32_t refs; /* the connection's, and one of each slot that may point into it */
	uint32_t room; /* PX_IN_BYTES; less: the beginning of a command, kept while it is idle */
	struct px_in *next_free;
	char bytes[]; /* room, and PX_SLACK */
};

struct px_slot {
	struct px_request request;
	struct px_slot *next; /* of the connection, or of the free ones */
	struct px_slot **prev;
	struct px_conn *conn;
	struct px_in *in;    /* what the request points into; NULL: nothing of it */
	char *more;	     /* its own memory: a value, or an answer that is ready */
	uint32_t more_bytes; /* … and how much */
	uint32_t raw_bytes;  /* of more, that are the answer */
	uint32_t filled;     /* of its value */
	uint32_t held_len;
	const char *held_line;
	uint16_t tag;
	bool reads;    /* it counts in reading[tag] */
	uint8_t tries; /* … and was asked for so often; what was found first: */
	unsigned found;
	uint32_t was_ttl_s;
	uint8_t state;
	char room[PX_ROOM + 2];
	char line[PX_LINE_KEPT + PX_SLACK]; /* last: few commands need it */
};

enum px_mode {
	PX_MODE_NEW, /* not a byte was seen */
	PX_MODE_LINE,
	PX_MODE_KEYS,  /* within a get */
	PX_MODE_VALUE, /* within the value of the last slot */
	PX_MODE_HELD,  /* the last slot may not begin yet */
	PX_MODE_SKIP,  /* bytes that are of no use */
	PX_MODE_SKIP_LINE,
	PX_MODE_DUMP, /* keys are listed */
	PX_MODE_OVER, /* nothing is read any more */
};

/* A list of keys that is being answered. */
struct px_dump {
	struct gn_kv_cursor cursor;
	uint32_t told, limit; /* keys; 0: all of them */
	uint8_t format;	      /* enum px_dump_format */
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
	unsigned slots, under_way, reading, again;
	size_t more_bytes; /* own memory of its slots */
	struct px_conn *next_starved;
	struct px_conn *next_waiting, **prev_waiting; /* waiting: since since_ns, for the peer */
	uint64_t since_ns, moved_ns, command_ns;      /* moved: the last byte, in or out */
	bool starved;				      /* it waits for memory of its thread */
	bool waiting;	  /* for its peer, in the middle of a command or of an answer */
	bool progressed;  /* since its last turn: a command began, or all answers were taken */
	bool control;	  /* a request to the whole store is under way, and nothing may overtake */
	struct px_in *in; /* NULL: nothing was read that is not taken apart */
	uint32_t in_at, in_len;
	char *out; /* what could not be written yet */
	size_t out_at, out_len, out_bytes;
	struct px_slot *filling;
	uint64_t skip;
	size_t line_end;	       /* PX_MODE_KEYS: 0: it is not there yet */
	uint32_t keys_how, keys_ttl_s; /* … what to do with each */
	uint8_t keys_bits;
	const char *get_failed; /* a key of the get being answered */
	uint64_t last_ns;	/* when its last command came */
	struct px_dump dump;
};

/* Written by their thread only, read by all. */
struct px_counters {
	uint64_t came, gone; /* connections */
	uint64_t commands, bytes_read, bytes_written;
	uint64_t debugs;	 /* me */
	uint64_t rooms_short;	 /* values that were asked for again */
	uint64_t messages;	 /* to the store, as of the last sleep or second */
	uint64_t waits;		 /* for the store, which is asked to wake the thread */
	uint64_t closed_slow;	 /* connections, for want of memory */
	uint64_t closed_stalled; /* … whose peers sent or took nothing, see proxy_opts.stall_ms */
	uint64_t closed_idle;	 /* … without a command, see proxy_opts.idle_ms */
};

struct px_thread {
	struct proxy *proxy;
	unsigned index;
	struct gn_thread *thread;
	struct gn_kv_client *kv;
	struct gn_source *store; /* kv's */
	bool armed;		 /* it was, when the thread last slept */
	bool idle;		 /* nothing has come for a while */
	bool answered;		 /* the store has, in the last turn */
	int error;		 /* why it could not begin */
	int epoll_fd, wake_fd;
	int *given; /* connections that were let in; under the proxy's lock */
	unsigned n_given, given_room;
	struct px_conn *conns;
	struct px_conn *queue, **queue_last; /* to be looked at */
	struct px_slot *free_slots;
	unsigned n_free, ins_free;
	struct px_in *free_ins;
	unsigned under_way;
	unsigned early_bytes; /* room that values get at once */
	unsigned fits;	      /* values in a row that would have fit half of that */
	unsigned short_of;    /* grows with those that did not fit, and shrinks with others */
	size_t conns_bytes;   /* of connections themselves */
	size_t ins_bytes;     /* of inputs of the usual size, in use or not */
	size_t work_bytes;    /* of everything else */
	struct px_conn *starved, **starved_last;
	bool store_gone;			 /* polls connect to it again */
	struct px_conn *waiting, **waiting_last; /* the longest waiting first */
	uint64_t swept_ns, woke_ns;
	uint64_t now_ns;
	struct px_context context;
	struct px_request get; /* the line of a get, until its keys have slots */
	struct px_counters counters;
	char *out;
	struct iovec iov[PX_IOVS];
	uint16_t reading[PX_TAGS];
};

#define PX_COUNT(thread, field, n)                                                            \
	__atomic_store_n(&(thread)->counters.field, (thread)->counters.field + (uint64_t)(n), \
			 __ATOMIC_RELAXED)

/* pool.c */
/* May the connection have one more slot now? False: it will have a turn when it may. */
bool px_slot_room(struct px_conn *c);
/* Not refused, but for want of any memory: NULL. */
struct px_slot *px_slot_new(struct px_conn *c);
/* The newest, which shall not have been. */
void px_slot_take_back(struct px_conn *c, struct px_slot *s);
void px_slot_free(struct px_thread *t, struct px_slot *s);
/* Own memory for a slot, within the thread's limit: others may be closed for it. */
bool px_slot_more(struct px_thread *t, struct px_slot *s, uint32_t bytes);
/* … only if there is plenty. */
bool px_slot_more_early(struct px_slot *s, uint32_t bytes);
/* c, which may be NULL, is not closed for it. */
bool px_memory_take(struct px_thread *t, const struct px_conn *c, size_t bytes);
void px_memory_give(struct px_thread *t, size_t bytes);
/* Those that wait for memory have a turn, if there is some. */
void px_starved_wake(struct px_thread *t);
void px_starve(struct px_conn *c);
/* The slot has copied what it needs of the input, and gives up its reference. */
void px_slot_detach(struct px_slot *s);
/*
 * Room to read into, at in->bytes + in_len. -EAGAIN: there is none before slots have given up their
 * references; -ENOMEM.
 */
int px_in_ready(struct px_conn *c);
/* The connection is idle: what is left of its input is kept in as few bytes as it has, or none. */
void px_in_shrink(struct px_conn *c);
void px_in_end(struct px_conn *c);
void px_pool_empty(struct px_thread *t);

/* conn.c */
void px_conn_add(struct px_thread *t, int fd);
/* To be looked at in this turn, and to do so. */
void px_conn_queue(struct px_conn *c);
void px_conn_turn(struct px_conn *c);
/* At once; nothing of it may be under way. */
void px_conn_free(struct px_conn *c);
/* Closes it and gives back what it holds; the rest, in its next turn. */
void px_conn_drop(struct px_conn *c);
/* Drops the one that has waited for its peer for the longest time. False: none has for long. */
bool px_conn_drop_waiting(struct px_thread *t, const struct px_conn *but);
/* Drops those that have stalled or are idle. Until the next look: ms, -1: none is needed. */
int px_conns_sweep(struct px_thread *t);

/* input.c: takes what was read apart, as far as that is possible now. */
void px_input(struct px_conn *c);

/* work.c: begins what a slot asks for, which is in its place already. */
void px_begin(struct px_slot *s);
/* Would a change of the key overtake a read of it that may have to be repeated? */
bool px_overtakes(const struct px_conn *c, const void *key, uint32_t len);
/* A request to the whole store: flush_all, stats. */
void px_begin_control(struct px_slot *s);
/* Values that had no room get it. */
void px_begin_again(struct px_conn *c);
/* An operation of the slot, and who hears of its end; which says so with px_ended(). */
void px_submit(struct px_slot *s, void (*on_end)(struct gn_kv_op *op));
void px_ended(struct px_slot *s);
struct px_slot *px_slot_of(struct gn_kv_op *op);

/* dump.c: keys are listed from now on, and the next page of them. */
void px_dump_start(struct px_conn *c, enum px_dump_format format, uint32_t limit);
bool px_dump_step(struct px_conn *c);

/* reply.c: writes what is done, from the first slot on. False: not all of it could be. */
bool px_reply(struct px_conn *c);
bool px_reply_rest(struct px_conn *c);

/* stats.c: into the slot. */
void px_stats(struct px_slot *s, const char *which, const struct gn_kv_stats *stats);
/* Those that need no store. */
bool px_stats_local(struct px_slot *s, const char *which);

/* detail.c: what is done to keys, by the part before a colon. */
void px_detail_free(struct proxy *p);
void px_detail_switch(struct proxy *p, bool on);
void px_detail_clear(struct proxy *p);
void px_detail_count(const struct px_slot *s);
/* Lines, into the slot; false: there is no memory. */
bool px_detail_dump(struct px_slot *s);

/* thread.c */
int px_thread_start(struct px_thread *t);
void px_thread_end(struct px_thread *t);
/* False: there is no memory, and it is closed. */
bool px_thread_give(struct px_thread *t, int fd);

struct px_detail;

struct proxy {
	struct proxy_opts opts;
	struct gn_fabric *fabric;
	struct px_thread *threads;
	unsigned n_threads, next;
	size_t conns_bytes, ins_bytes, work_bytes; /* a thread's limits */
	size_t conn_bytes; /* work of a connection, before it may begin one more command */
	unsigned slots_kept;
	int64_t start_s;
	uint64_t conns_max, let_in;
	uint64_t rejected; /* atomic, as the next */
	bool ending, told_full;
	struct gn_mutex lock;
	struct gn_cond begun;
	unsigned n_begun;
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
/* Says that there are too many connections, and closes it. From any thread. */
void px_refuse(struct proxy *p, int fd);
/* Over all threads. */
void px_sum(const struct proxy *p, struct px_counters *out);

#endif
