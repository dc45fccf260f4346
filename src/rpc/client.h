/* SPDX-License-Identifier: MIT */
/* A client as its files see it. */
#ifndef GN_RPC_CLIENT_H
#define GN_RPC_CLIENT_H

#include "base/owner.h"
#include "base/source.h"
#include "base/ticks.h"
#include "link/link.h"
#include "rpc/area.h"
#include "rpc/times.h"
#include "rpc/wire.h"

/* A call of the window: its index is its name on the wire, until its result has come. */
struct rpc_call {
	struct gn_rpc_op *op;  /* NULL: it ended early, nobody waits for the result */
	struct rpc_kind *kind; /* NULL: the index is free; far_kind: its result is being read */
	union {
		struct rpc_call *next; /* free */
		uint64_t ns;	       /* when its message was begun; 0: nobody has looked */
	};
	uint64_t name;		 /* index << 48, ready to be or-ed into an entry */
	struct rpc_area request; /* one that is read by the server */
	uint32_t number;	 /* of its message */
	uint16_t index;
	bool reply; /* its result is written back */
};

/* A slot of results, as far as it is read. */
enum rpc_read { RPC_UNREAD, RPC_READING, RPC_READING_REST };
struct rpc_got {
	uint32_t fails;
	uint32_t bytes; /* that the read brings */
	uint32_t far;	/* of its results that are still to be read from elsewhere */
	uint8_t read;	/* enum rpc_read */
	bool tell;	/* the server wants to know when it is not needed any more */
};

/* A large result, or read: in pieces, one after the other, and copied to the caller. */
struct rpc_far_read {
	struct rpc_far_read *next;
	bool is_read;
	struct gn_rpc_read_op *read; /* NULL: it has ended early */
	uint32_t call, number;	     /* of a result: of the message that told of it */
	uint16_t status;
	struct rpc_far from;
	uint32_t asked, done; /* bytes */
	uint8_t *bytes;	      /* of a result that its caller wants in place, or NULL */
};

/* Reads of what the server shows: each short one lands in a slot of its own. */
struct rpc_reads {
	uint32_t n;		      /* under way, large ones too */
	uint32_t n_short;	      /* … without them */
	uint32_t slots, n_idle;	      /* slots: 0 as long as nobody has read anything */
	uint32_t *idle;		      /* … that are not taken */
	struct gn_rpc_read_op **read; /* by slot */
	struct gn_rpc_read_op *late;  /* for which the queue had no room */
	struct rpc_area area;
};

/* What is known of a method. */
struct rpc_kind {
	bool quick; /* fetched, takes no time, and nothing speaks against it: nothing to learn */
	bool reply;
	uint8_t strikes;	   /* calls in a row that speak for the other mode */
	uint32_t switched_us;	   /* the server's, when the mode changed */
	uint32_t last_us, time_us; /* the server's: the last, and the shorter of the last two */
	struct rpc_times *latency;
};

#define RPC_PAGE_KINDS 256u
#define RPC_GONE       "rpc: the server is gone; gn_rpc_reconnect()"
/* A client that has waited for so long asks to be notified, and sleeps. */
#define RPC_NOTIFY_NS	  100000u
#define RPC_NOTIFY_MAX_NS 3200000u
#define RPC_SAMPLES	  32u

/* What a client learns, and what it is told to do. */
struct rpc_learn {
	struct gn_rpc_tuning tuning;		  /* n_sizes 0: the rule of thumb */
	uint32_t retries, switch_us, fetch_bytes; /* switch_us 0: the rule of thumb */
	uint32_t first_bytes;			  /* of a message that the first read brings */
	uint32_t
		first_words; /* (longest message a first read brings whole - first entry) / 8 */
	bool fetch_fixed;    /* fetch_bytes was given */
	uint32_t samples[RPC_SAMPLES], n_samples;
	uint64_t least_ns; /* that a call has taken, beyond the server's time */
	uint64_t slack_ns; /* beyond the server's time, before the first fetch */
	struct gn_rpc_batch batch;
	uint32_t entries;		      /* N now */
	uint32_t seen, late;		      /* calls of the window that chooses it */
	uint32_t too_many, patience, windows; /* a size that was; windows until it may not be */
	bool slow; /* calls take so long, or are so many in a message, that the clock is cheap */
	struct rpc_kind *last;
	uint64_t last_method;  /* of last; UINT64_MAX: none */
	uint64_t last_entry;   /* method << 32, likewise */
	uint64_t quick_method; /* last_method, if that is quick */
	struct rpc_kind *kinds[0x10000 / RPC_PAGE_KINDS];
};

/*
 * A connection: what is made anew with each, and freed when the server does not copy any more. What
 * the client uses all the time is moved here from struct gn_rpc_client when the connection closes.
 */
struct rpc_link {
	struct link_conn conn;
	struct gn_rpc_client *client;
	struct gn_pd *pd;
	struct rpc_area local, reply; /* requests and fetched results; results that are written */
	struct rpc_call *calls;	      /* their requests */
	uint32_t n_calls;
	struct rpc_area areas[3];
	struct rpc_retired *retired;
};

/*
 * Polls between two looks at the clock (or ends of calls in one poll), and at everything else.
 * link_loop_must_tend() sets the count of polls to RPC_TEND_EVERY, and the next poll must look at
 * the clock.
 */
#define RPC_CLOCK_EVERY 16u
#define RPC_TEND_EVERY	127u
_Static_assert((RPC_TEND_EVERY + 1) % RPC_CLOCK_EVERY == 0, "the next poll looks at the clock");

struct gn_rpc_client {
	uint64_t owner; /* gn_thread_id() */
	enum gn_rpc_mode mode;
	unsigned flags;
	bool dead, busy;  /* busy: in a poll */
	bool check_reply; /* no order is promised */
	uint32_t max_inline, epoch, mask;
	uint32_t max_results; /* bytes of a message with them, rpc_max_len() */
	uint32_t max_short;   /* bytes of a request: RPC_SHORT, or limits.max_request */
	uint64_t silence_ns;  /* after which the server may not look any more */
	struct gn_rpc_limits limits;
	uint64_t nonce, request_stride, result_stride;
	uint32_t request_key, result_key, local_key, park_us;
	struct gn_rpc_conn_id previous; /* its connection, or the last that it had */

	/* requests */
	uint32_t number; /* of the message that is, or will be, put together */
	union {
		struct {
			uint32_t entries; /* in it */
			uint32_t lent;	  /* calls whose requests are read by the server */
		};
		uint64_t open_or_lent; /* not 0: a poll cannot take the short way, fetch_first() */
	};
	uint8_t *put;	    /* where the next goes */
	uint8_t *end;	    /* up to where; NULL: nothing can be put in */
	uint8_t *full;	    /* from here on it is sent */
	uint32_t most;	    /* … how many there may be */
	uint32_t enough;    /* … with which it is sent */
	uint32_t untimed;   /* messages to come that the clock is not read for */
	uint64_t slot_at;   /* where its slot is, among those for requests */
	bool reply;	    /* its mode */
	bool far;	    /* it has large ones */
	bool starved;	    /* a call was refused because slot or index were missing */
	uint32_t taken;	    /* up to here the server has taken messages: their slots are free */
	uint64_t open_ns;   /* when it was begun, exactly; 0: not measured */
	uint64_t begun_ns;  /* … about, always set: for batch.wait_us */
	uint64_t newest_ns; /* … the one that went last */
	uint32_t open_us;   /* that the server is thought to take for it */
	const struct gn_rpc_op *prepared; /* gn_rpc_prepare(): not begun yet; or NULL */
	uint8_t *prepared_at;		  /* … its request's bytes */
	uint32_t prepared_len;		  /* … at most */
	uint32_t unsignaled;   /* WRITEs since one was signaled, or was done when it was posted */
	uint32_t unconfirmed;  /* signaled ones that have not completed */
	uint32_t signal_after; /* so many that were not */
	struct gn_fixed request_wr, result_wr; /* posted again and again: rpc_set_posts() */
	uint64_t clock_ns, clock_ticks;	       /* when the clock was read last: rpc_coarse_ns() */
	uint64_t left_to_ns; /* a deadline, or 0; the time from clock_ns to it is … */
	uint32_t left_us;
	struct rpc_call *calls, *idle; /* by index; those that are free */
	union {
		struct {
			uint32_t n_fetch; /* calls sent, whose result is to be fetched */
			uint32_t n_reply; /* … to be written back */
		};
		uint32_t n_sent[2]; /* both */
		uint64_t any_sent;
	};
	struct rpc_kind
		far_kind;	/* of calls whose result is not in a message: see struct rpc_call */
	struct link_timer late; /* not later than the first deadline */

	/* results */
	uint32_t expected;   /* number of the next */
	uint32_t spent;	     /* up to here not needed any more */
	uint32_t told;	     /* … and the server knows */
	uint32_t tell_after; /* results that it does not know of, before it is told */
	bool tell;	     /* it wants to */
	struct rpc_got *got;
	uint32_t posted; /* requests whose completion is to come */
	uint32_t reads;	 /* … of results */
	union {
		struct {
			bool due;	  /* the open message should have been sent */
			bool slow_reads;  /* no read is done as soon as it is posted */
			bool check_fetch; /* no order is promised */
			bool missed;	  /* the next result was looked for in vain */
		};
		uint32_t odd; /* not 0: a poll cannot take the short way, fetch_first() */
	};
	uint64_t first_ns;  /* not before then is the next result read */
	uint32_t waking;    /* times that the server was woken since something has come */
	uint32_t woken;	    /* the last that said: parked; 0: none since something came or went */
	bool notify;	    /* the server will say when the next result is there */
	uint64_t notify_ns; /* when it was asked to */
	uint64_t notify_after_ns; /* of waiting, until it is asked to */
	uint64_t sent_ns;	  /* when a request went, about */
	uint64_t missed_ns;	  /* when the next result had been looked for in vain for a while */
	uint64_t asked_ns;	  /* when the server was looked at, beside fetches */
	struct rpc_far_read *far_reads, **far_end;
	uint32_t piece; /* bytes of one, at most what the fabric can carry */
	struct rpc_area bounce;
	struct rpc_area spare; /* for the next large request */
	struct rpc_retired *retired;
	struct rpc_reads look;

	struct link_loop loop;
	struct rpc_link *link; /* NULL: none, and the client is dead */
	struct gn_qp *qp;      /* the link's */
	char *addr;
	struct gn_rpc_client_opts opts;
	struct link_backoff backoff;	       /* of a gn_rpc_call() that connects again */
	uint8_t *requests, *fetched, *replies; /* slots */

	uint64_t seen;	/* results that had come when the connection was looked at */
	uint64_t ended; /* calls and reads, of all that were begun */
	struct rpc_learn learn;
	struct gn_rpc_counters count;
};

/* What completes, in a request's id. */
enum rpc_id {
	RPC_ID_RESULT,
	RPC_ID_REQUEST,
	RPC_ID_FAR,
	RPC_ID_READ,
	RPC_ID_NOTIFY, /* a receive */
	RPC_ID_OTHER,
};
static inline uint64_t rpc_id(enum rpc_id id, uint32_t n)
{
	return (uint64_t)id << 32 | n;
}

/* connect.c: by the deadline, if there is one */
int rpc_reconnect(struct gn_rpc_client *client, uint64_t deadline_ns);

/* connect.c: it connects, so it is dead, but not for ever */
bool rpc_client_opening(const struct gn_rpc_client *client);

/* wait.c: what the loop asks for, while it waits */
void rpc_client_words(struct link_loop *loop, struct link_words *words);
bool rpc_client_notified(struct link_loop *loop);

/* source.c: what a client is in another event loop */
extern const struct source_ops rpc_client_source;

/* submit.c */
int rpc_client_refuse(const struct gn_rpc_client *client); /* -EINVAL, -EPERM */
static inline bool rpc_client_own(const struct gn_rpc_client *client)
{
	return likely(client && exec_is_owner(__atomic_load_n(&client->owner, __ATOMIC_RELAXED)));
}
static inline int rpc_client_check(const struct gn_rpc_client *client)
{
	return rpc_client_own(client) ? 0 : rpc_client_refuse(client);
}
/* gn_rpc_submit() by the owner. */
int rpc_submit(struct gn_rpc_client *client, struct gn_rpc_op *op);
/* The connection is gone: so are its calls. */
void rpc_client_die(struct gn_rpc_client *client);
/* Tell the server that nobody waits for this call any more. */
void rpc_give_up(struct gn_rpc_client *client, uint32_t index);
/* Send what is put together, if there is anything. */
int rpc_send(struct gn_rpc_client *client); /* 0 */
/* A message begins in the slot of its number. */
void rpc_next_slot(struct gn_rpc_client *client);
static inline void rpc_flush(struct gn_rpc_client *c)
{
	if (c->entries && !c->dead)
		rpc_send(c);
}
/* The requests for WRITEs and READs of this connection, as far as all are the same. */
void rpc_set_posts(struct gn_rpc_client *client);

/* The time, as it was at most some tens of microseconds ago. */
uint64_t rpc_read_clock(struct gn_rpc_client *client);
static inline uint64_t rpc_coarse_ns(struct gn_rpc_client *c)
{
	const uint64_t ticks = exec_ticks();

	if (likely(ticks - c->clock_ticks < EXEC_TICKS_SHORT))
		return c->clock_ns;
	c->clock_ticks = ticks;
	return rpc_read_clock(c);
}

/* fetch.c */
/* What the loop tells: a request is done; a deadline has come; for 100 ms nothing has come. */
void rpc_client_completed(struct link_conn *conn, const struct gn_wc *wc);
void rpc_client_late(struct link_timer *timer, uint64_t now_ns);
void rpc_client_looked(struct link_conn *conn);
int rpc_client_poll(struct gn_rpc_client *client, bool clock);
/* Look at the next result. */
void rpc_read_result(struct gn_rpc_client *client);

/* results.c */
/* The next message with results is here, all of it, and its head was checked. */
void rpc_take_message(struct gn_rpc_client *client, struct rpc_got *got, const uint8_t *message,
		      const struct rpc_head *head);
/* … which was found there by the first look at it. */
void rpc_take_fetched(struct gn_rpc_client *client, const uint8_t *message);
/* Results are not needed any more up to the first of which something is still to be read. */
void rpc_move_spent(struct gn_rpc_client *client);

/* wake.c */
/* Tell the server which results are not needed any more, without a request. */
void rpc_tell_spent(struct gn_rpc_client *client);
/* A call was refused because the server had not taken enough messages, as far as is known. */
bool rpc_wants_slot(const struct gn_rpc_client *client);
/* The server does not poll this client's slots, says the slot of its next result. */
void rpc_see_parked(struct gn_rpc_client *client, uint32_t parked);
/* The server has said that the next result is there. */
void rpc_notified(struct gn_rpc_client *client);
/* The server does not look at this client any more, and should; false: it cannot be told now. */
bool rpc_wake(struct gn_rpc_client *client);
/* … after a silence, whether it was woken before or not. */
void rpc_wake_again(struct gn_rpc_client *client);
/* The server is to say when the next result is there; false: it cannot be asked now. */
bool rpc_notify(struct gn_rpc_client *client, uint64_t now_ns);
int rpc_notify_recv(struct gn_rpc_client *client);
/* Is a call under way that was sent? */
static inline bool rpc_calls_sent(const struct gn_rpc_client *c)
{
	return c->n_fetch | c->n_reply;
}
/* Look whether the server is there and looks at this client; and when it is time to. */
void rpc_ask(struct gn_rpc_client *client, uint64_t now_ns);
uint64_t rpc_ask_ns(const struct gn_rpc_client *client);

/* far.c */
int rpc_far_lend(struct gn_rpc_client *client, struct rpc_call *call, const void *data,
		 uint32_t len, struct rpc_far *out);
void rpc_far_return(struct gn_rpc_client *client, struct rpc_call *call);
/* Begin to read a large result; false: there is no memory. */
bool rpc_far_begin(struct gn_rpc_client *client, const struct rpc_far_read *read);
/* A piece of so many bytes has come. */
void rpc_far_done(struct gn_rpc_client *client, uint32_t bytes);
void rpc_far_poll(struct gn_rpc_client *client);
void rpc_far_free(struct gn_rpc_client *client);

/* read.c */
uint32_t rpc_reads_most(uint32_t slots); /* that may be under way */
/* What was put off. */
void rpc_read_late(struct gn_rpc_client *client);
/* The read in this slot is there. */
void rpc_read_done(struct gn_rpc_client *client, uint32_t slot);
void rpc_read_end(struct gn_rpc_client *client, struct gn_rpc_read_op *read, unsigned status);
/* All that are under way end. */
void rpc_reads_end(struct gn_rpc_client *client, unsigned status);
void rpc_reads_free(struct gn_rpc_client *client);

/* learn.c */
int rpc_learn_init(struct gn_rpc_client *client, const struct gn_rpc_client_opts *opts);
void rpc_learn_free(struct gn_rpc_client *client);
struct rpc_kind *rpc_kind_of(struct gn_rpc_client *client, unsigned method); /* or NULL */
/* Calls of a kind that came together. */
struct rpc_lesson {
	struct rpc_kind *kind;
	uint32_t calls;
	uint64_t sent_ns, now_ns; /* now_ns 0: nobody has looked */
	uint32_t fails;		  /* fetches in vain */
	uint32_t time_us;	  /* the server's */
};
void rpc_learn_calls(struct gn_rpc_client *client, const struct rpc_lesson *lesson);
/* How many messages after this one the clock is not worth while for. */
uint32_t rpc_learn_untimed(const struct gn_rpc_client *client);
/* What the connection's slots and fetch_bytes make of a first read. */
void rpc_learn_stride(struct gn_rpc_client *client);
/* A message with results came, of so many payload bytes. */
void rpc_learn_size(struct gn_rpc_client *client, uint32_t bytes);
/* Where READs take their time: the first fetch of a result found it, or not. */
void rpc_learn_first(struct gn_rpc_client *client, bool found);
/* When the result of a message that was begun at ns is worth a look; 0: now. */
uint64_t rpc_learn_delay(const struct gn_rpc_client *client, uint64_t ns, uint32_t time_us);
/* Tx, in us. */
uint32_t rpc_learn_switch(const struct gn_rpc_client *client);

/* Are results of this kind written back? */
static inline bool rpc_replied(const struct gn_rpc_client *c, const struct rpc_kind *kind)
{
	return c->mode == GN_RPC_REPLY || kind->reply;
}

/* The call ends, for its caller, whose op this is. */
static inline void rpc_end_op(struct gn_rpc_client *c, struct rpc_call *call, struct gn_rpc_op *op,
			      unsigned status, uint32_t result_len)
{
	call->op = NULL;
	op->status = status;
	op->result_len = result_len;
	op->client = NULL;
	c->count.ended[status < GN_RPC_FAILED ? status : GN_RPC_FAILED]++;
	c->ended++;
	if (op->done)
		op->done(op);
}

/* … if there is one. */
static inline void rpc_end(struct gn_rpc_client *c, struct rpc_call *call, unsigned status,
			   uint32_t result_len)
{
	if (call->op)
		rpc_end_op(c, call, call->op, status, result_len);
}

/* The server has not taken the message that was in the slot of the next. */
static inline bool rpc_slots_full(const struct gn_rpc_client *c)
{
	return c->number - c->taken > c->mask + 1;
}

static inline void rpc_note_taken(struct gn_rpc_client *c, uint32_t word)
{
	c->taken += rpc_newly_taken(word, c->taken, c->number - 1 - c->taken);
}

/* All have their results: so they are taken, even if no result has told so. */
static inline void rpc_note_all_taken(struct gn_rpc_client *c)
{
	if (!(c->n_fetch | c->n_reply))
		c->taken = c->number - 1;
}

/* Its result has come: its name is free. */
static inline void rpc_call_free(struct gn_rpc_client *c, struct rpc_call *call)
{
	c->n_sent[call->reply]--;
	call->kind = NULL;
	call->next = c->idle;
	c->idle = call;
}

/* … and so is its request. */
static inline void rpc_call_over(struct gn_rpc_client *c, struct rpc_call *call)
{
	if (call->request.mem)
		rpc_far_return(c, call);
	rpc_call_free(c, call);
}

#endif
