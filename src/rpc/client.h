/* SPDX-License-Identifier: MIT */
/* Internal state of a client. */
#ifndef GN_RPC_CLIENT_H
#define GN_RPC_CLIENT_H

#include "base/owner.h"
#include "base/source.h"
#include "base/ticks.h"
#include "link/link.h"
#include "rpc/area.h"
#include "rpc/times.h"
#include "rpc/wire.h"

/* A call of the window. Its index identifies the call on the wire until its result has arrived. */
struct rpc_call {
	struct gn_rpc_op *op; /* NULL: completed early, the result is dropped */
	/* NULL: the index is free; large_mstate: its result is being read */
	struct rpc_method_state *mstate;
	union {
		struct rpc_call *next; /* on the free list */
		uint64_t begun_ns;     /* when its message was opened; 0: not timed */
	};
	uint64_t index_bits;	 /* index << 48, as in an entry */
	struct rpc_area request; /* buffer of a large request */
	uint32_t number;	 /* of its message */
	uint16_t index;
	bool reply; /* result delivery: reply */
};

/* A result slot: the state of its READ. */
enum rpc_read { RPC_UNREAD, RPC_READING, RPC_READING_REST };
struct rpc_result_slot {
	uint32_t fails;
	uint32_t bytes;	  /* read so far, when the READ completes */
	uint32_t n_large; /* large results of this message that are still being read */
	uint8_t read;	  /* enum rpc_read */
	bool ack_due;	  /* the server wants an ack */
};

/* A large result or a large read: READ in pieces, in order, each copied to the caller. */
struct rpc_large_read {
	struct rpc_large_read *next;
	bool is_read;
	struct gn_rpc_read_op *read; /* NULL: completed early */
	uint32_t call, number;	     /* of a result: of the message that announced it */
	uint16_t status;
	struct rpc_large_ref from;
	uint32_t requested, done; /* bytes */
	uint8_t *bytes;		  /* of a GN_RPC_IN_PLACE result; else NULL */
};

/* READs of exposed memory: each short read lands in its own slot. */
struct rpc_reads {
	uint32_t n;			 /* outstanding, with large ones */
	uint32_t n_short;		 /* … without large ones */
	uint32_t slots, n_free;		 /* slots: 0 before the first read */
	uint32_t *free;			 /* stack of free slots */
	struct gn_rpc_read_op **read;	 /* by slot */
	struct gn_rpc_read_op *unposted; /* the send queue was full */
	struct rpc_area area;
};

/* What a client knows about a method. */
struct rpc_method_state {
	bool fast; /* mode fetch, server time 0, no streak: nothing to adapt */
	bool reply;
	uint8_t streak;	      /* consecutive samples that favor the other mode */
	uint32_t switched_us; /* the server's time when the mode changed */
	/* the server's time: the last, and the minimum of the last two */
	uint32_t last_us, time_us;
	struct rpc_times *latency;
};

#define RPC_PAGE_MSTATES 256u
#define RPC_GONE	 "rpc: the connection broke; call gn_rpc_reconnect()"
/* A client that has waited for this long requests a notification and sleeps. */
#define RPC_NOTIFY_NS	  100000u
#define RPC_NOTIFY_MAX_NS 3200000u
#define RPC_SIZE_SAMPLES  32u

/* What a client adapts, and the options that bound it: adapt.c. */
struct rpc_adapt {
	struct gn_rpc_tuning tuning;		  /* n_sizes 0: use defaults */
	uint32_t retries, switch_us, fetch_bytes; /* switch_us 0: use the default */
	/* bytes of a message that the first READ brings */
	uint32_t first_bytes;
	/* (len of the longest message that the first READ brings completely - first entry) / 8 */
	uint32_t first_words;
	bool fetch_fixed; /* fetch_bytes was given by the caller */
	uint32_t size_samples[RPC_SIZE_SAMPLES], n_size_samples;
	uint64_t least_ns; /* shortest call, without the server's time */
	uint64_t slack_ns; /* added to the server's time before the first fetch */
	struct gn_rpc_batch batch;
	uint32_t entries; /* N, the current batch size */
	/* calls in the current adaptation window */
	uint32_t window_calls, window_late;
	/* a batch size that failed, windows before it is retried, windows since */
	uint32_t failed_entries, retry_windows, windows;
	bool slow; /* slow calls or large batches: reading the clock is affordable */
	struct rpc_method_state *last;
	uint64_t last_method; /* of last; UINT64_MAX: none */
	uint64_t last_entry;  /* last_method << 32, as in an entry */
	uint64_t fast_method; /* last_method, if that is fast */
	struct rpc_method_state *mstates[0x10000 / RPC_PAGE_MSTATES];
};

/*
 * Per-connection memory and objects. Freed when the server no longer copies from it. Members that
 * the client uses all the time are in struct gn_rpc_client and move here when the connection
 * closes.
 */
struct rpc_link {
	struct link_conn conn;
	struct gn_rpc_client *client;
	struct gn_pd *pd;
	struct rpc_area local, reply; /* requests and fetched results; replies */
	struct rpc_call *calls;	      /* for the buffers of large requests */
	uint32_t n_calls;
	struct rpc_area areas[3];
	struct rpc_retired *retired;
};

/*
 * Polls (or completed calls in one poll) between two reads of the clock, and polls between two
 * turns of link_loop_maintain(). link_loop_force_maintain() sets the number of polls to
 * RPC_MAINTAIN_EVERY, and the next poll must read the clock.
 */
#define RPC_CLOCK_EVERY	   16u
#define RPC_MAINTAIN_EVERY 127u
_Static_assert((RPC_MAINTAIN_EVERY + 1) % RPC_CLOCK_EVERY == 0, "the next poll reads the clock");

struct gn_rpc_client {
	uint64_t owner; /* gn_thread_id() */
	enum gn_rpc_mode mode;
	unsigned flags;
	bool dead, busy;  /* busy: inside a poll or callback */
	bool check_reply; /* the connection does not guarantee the order of bytes */
	uint32_t max_inline, epoch, mask;
	uint32_t max_results;	  /* bytes of a result message: rpc_max_len() */
	uint32_t max_short;	  /* bytes of a request on the fast path */
	uint64_t park_quarter_ns; /* park_us / 4: after this idle time the client may be parked */
	struct gn_rpc_limits limits;
	uint64_t nonce, request_stride, result_stride;
	uint32_t request_key, result_key, local_key, park_us;
	struct gn_rpc_conn_id previous; /* the current connection, or the last one */

	/* requests */
	uint32_t number; /* of the open message */
	union {
		struct {
			uint32_t entries; /* in the open message */
			/* large requests that the server may still read */
			uint32_t n_exported;
		};
		uint64_t open_or_exported; /* 0: the fast path of a poll may complete calls */
	};
	uint8_t *put;	    /* address of the next entry */
	uint8_t *put_end;   /* limit for entries; NULL: no message is open */
	uint8_t *full;	    /* the message is sent when put reaches this */
	uint32_t max_fill;  /* bytes of entries, at most */
	uint32_t send_fill; /* bytes of entries with which the message is sent */
	uint32_t untimed;   /* messages to go before the next timed one */
	uint64_t slot_at;   /* offset of the message's slot */
	bool reply;	    /* mode of the open message */
	bool has_large;	    /* the open message has a large request */
	bool blocked;	    /* a submission failed for lack of a slot or an index */
	/* the server has taken messages up to this number: their slots are free */
	uint32_t taken;
	uint64_t open_ns;   /* when the message was opened; 0: not timed */
	uint64_t begun_ns;  /* … approximately, always set: for batch.wait_us */
	uint64_t newest_ns; /* open_ns of the message sent last */
	uint32_t open_us;   /* expected server time of the open message */
	/* op of gn_rpc_prepare() that is not committed, or NULL */
	const struct gn_rpc_op *prepared;
	uint8_t *prepared_at;  /* its request buffer */
	uint32_t prepared_len; /* and the size of it */
	/* WRITEs since the last signaled one, or one that completed when posted */
	uint32_t unsignaled;
	uint32_t unconfirmed;		       /* signaled WRITEs that have not completed */
	uint32_t signal_after;		       /* signal a WRITE after this many */
	struct gn_fixed request_wr, result_wr; /* templates for posts: rpc_init_posts() */
	uint64_t clock_ns, clock_ticks;	       /* when the clock was read last: rpc_coarse_ns() */
	uint64_t left_to_ns; /* a deadline, or 0; left_us is the time from clock_ns to it */
	uint32_t left_us;
	struct rpc_call *calls, *free_calls; /* by index; free list */
	union {
		struct {
			uint32_t n_fetch; /* calls sent, to be fetched */
			uint32_t n_reply; /* calls sent, to be replied */
		};
		uint32_t n_sent[2]; /* indexed by reply */
		uint64_t any_sent;
	};
	/* Marks calls whose large result is being read: see struct rpc_call. */
	struct rpc_method_state large_mstate;
	struct link_timer deadline_timer; /* a lower bound of all deadlines */

	/* results */
	uint32_t expected;  /* number of the next result message */
	uint32_t consumed;  /* results up to this number are consumed */
	uint32_t acked;	    /* … and acknowledged to the server */
	uint32_t ack_after; /* unacknowledged results before an ack is sent without a request */
	bool ack_due;	    /* send an ack in this poll */
	struct rpc_result_slot *rslots;
	uint32_t posted;	/* work requests that will complete */
	uint32_t n_fetch_reads; /* … READs of results */
	union {
		struct {
			bool send_due;	  /* the open message could not be posted */
			bool slow_reads;  /* READs do not complete when they are posted */
			bool check_fetch; /* the connection does not guarantee the order of bytes */
			bool missed;	  /* the last fetch of the next result was a miss */
		};
		uint32_t slow_path; /* 0: fetch_first() may be used */
	};
	uint64_t fetch_at_ns;	  /* do not fetch before this time; 0: at once */
	uint32_t wakes_sent;	  /* wake-ups since the last result */
	uint32_t woken_park;	  /* parked state that was answered with a wake-up; 0: none */
	bool notify;		  /* a notification of the next result was requested */
	uint64_t notify_ns;	  /* when it was requested */
	uint64_t notify_after_ns; /* waiting time before it is requested */
	uint64_t sent_ns;	  /* when a request was sent, approximately */
	uint64_t missed_ns;	  /* when fetches of the next result began to miss */
	uint64_t probed_ns;	  /* when the server was last probed */
	struct rpc_large_read *large_reads, **large_reads_end;
	uint32_t piece; /* bytes of a READ of a large result */
	struct rpc_area bounce;
	struct rpc_area spare; /* kept for the next large request */
	struct rpc_retired *retired;
	struct rpc_reads view_reads;
	struct rpc_histogram *histograms; /* exported; by method */

	struct link_loop loop;
	struct rpc_link *link; /* NULL: not connected, and the client is dead */
	struct gn_qp *qp;      /* the link's */
	char *addr;
	struct gn_rpc_client_opts opts;
	struct link_backoff backoff;	       /* for reconnecting in gn_rpc_call() */
	uint8_t *requests, *fetched, *replies; /* slots */

	uint64_t results_seen; /* results when liveness was last checked */
	uint64_t ended;	       /* completed calls and reads */
	struct rpc_adapt adapt;
	struct gn_rpc_counters count;
};

/* Type of a work request, in the upper half of its id. */
enum rpc_id {
	RPC_ID_RESULT,
	RPC_ID_REQUEST,
	RPC_ID_LARGE,
	RPC_ID_READ,
	RPC_ID_NOTIFY, /* a receive */
	RPC_ID_OTHER,
};
static inline uint64_t rpc_id(enum rpc_id id, uint32_t n)
{
	return (uint64_t)id << 32 | n;
}

/* connect.c: reconnects by the deadline */
int rpc_reconnect(struct gn_rpc_client *client, uint64_t deadline_ns);

/* connect.c: true while the client connects; it is dead meanwhile */
bool rpc_client_opening(const struct gn_rpc_client *client);

/* wait.c: callbacks of the loop while it waits */
void rpc_client_words(struct link_loop *loop, struct link_words *words);
bool rpc_client_notified(struct link_loop *loop);

/* source.c */
extern const struct source_ops rpc_client_source;

/* submit.c */
int rpc_client_refuse(const struct gn_rpc_client *client); /* -EINVAL, -EPERM */
static inline bool rpc_client_is_owner(const struct gn_rpc_client *client)
{
	return likely(client && exec_is_owner(__atomic_load_n(&client->owner, __ATOMIC_RELAXED)));
}
static inline int rpc_client_check(const struct gn_rpc_client *client)
{
	return rpc_client_is_owner(client) ? 0 : rpc_client_refuse(client);
}
/* gn_rpc_submit() after the check of the owner. */
int rpc_submit(struct gn_rpc_client *client, struct gn_rpc_op *op);
/* The connection broke: complete all calls. */
void rpc_client_disconnected(struct gn_rpc_client *client);
/* Tell the server that this call was canceled or is late. */
void rpc_call_abandon(struct gn_rpc_client *client, uint32_t index);
/* Send the open message. */
int rpc_send(struct gn_rpc_client *client); /* always 0 */
/* Move to the slot of the next message. */
void rpc_next_slot(struct gn_rpc_client *client);
static inline void rpc_flush(struct gn_rpc_client *c)
{
	if (c->entries && !c->dead)
		rpc_send(c);
}
/* Initialize the templates of WRITEs and READs for this connection. */
void rpc_init_posts(struct gn_rpc_client *client);

/* The time, up to some tens of microseconds old. */
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
/* Callbacks of the loop: a completion; a deadline; every 100 ms. */
void rpc_client_completed(struct link_conn *conn, const struct gn_wc *wc);
void rpc_client_deadline(struct link_timer *timer, uint64_t now_ns);
void rpc_client_check_liveness(struct link_conn *conn);
int rpc_client_poll(struct gn_rpc_client *client, bool clock);
/* READ the slot of the next result. */
void rpc_read_result(struct gn_rpc_client *client);

/* results.c */
/* The next result message is complete, and its head was checked. */
void rpc_take_message(struct gn_rpc_client *client, struct rpc_result_slot *rslot,
		      const uint8_t *message, const struct rpc_head *head);
/* … brought by the first fetch. */
void rpc_take_fetched_message(struct gn_rpc_client *client, const uint8_t *message);
/* Advance consumed up to the first message with a large result that is still being read. */
void rpc_advance_consumed(struct gn_rpc_client *client);

/* wake.c */
/* Acknowledge consumed results without a request. */
void rpc_send_ack(struct gn_rpc_client *client);
/* A submission failed because no request slot was free, as far as is known. */
bool rpc_waits_for_slot(const struct gn_rpc_client *client);
/* The slot of the next result says that the server has parked this client. */
void rpc_handle_parked(struct gn_rpc_client *client, uint32_t parked);
/* The requested notification has arrived. */
void rpc_notified(struct gn_rpc_client *client);
/* Wake the server, which may have parked this client. False: the send queue is full. */
bool rpc_wake(struct gn_rpc_client *client);
/* … even if a wake-up was sent since the last result. */
void rpc_wake_again(struct gn_rpc_client *client);
/* Request a notification of the next result. False: it cannot be posted now. */
bool rpc_notify(struct gn_rpc_client *client, uint64_t now_ns);
int rpc_notify_recv(struct gn_rpc_client *client);
/* Are sent calls outstanding? */
static inline bool rpc_calls_sent(const struct gn_rpc_client *c)
{
	return c->n_fetch | c->n_reply;
}
/*
 * READ the next result to check that the server is alive and polls this client; and when to do so.
 */
void rpc_probe_server(struct gn_rpc_client *client, uint64_t now_ns);
uint64_t rpc_probe_due_ns(const struct gn_rpc_client *client);

/* large.c */
int rpc_large_export(struct gn_rpc_client *client, struct rpc_call *call, const void *data,
		     uint32_t len, struct rpc_large_ref *out);
void rpc_large_release(struct gn_rpc_client *client, struct rpc_call *call);
/* Start to read a large result. False: no memory. */
bool rpc_large_read_begin(struct gn_rpc_client *client, const struct rpc_large_read *read);
/* A piece of this many bytes has been read. */
void rpc_large_piece_done(struct gn_rpc_client *client, uint32_t bytes);
void rpc_large_poll(struct gn_rpc_client *client);
void rpc_large_free(struct gn_rpc_client *client);

/* read.c */
uint32_t rpc_reads_max(uint32_t slots); /* outstanding reads, at most */
/* Post pending reads. */
void rpc_reads_post(struct gn_rpc_client *client);
/* The read in this slot has completed. */
void rpc_read_done(struct gn_rpc_client *client, uint32_t slot);
void rpc_read_end(struct gn_rpc_client *client, struct gn_rpc_read_op *read, unsigned status);
/* Complete all outstanding reads. */
void rpc_reads_end(struct gn_rpc_client *client, unsigned status);
void rpc_reads_free(struct gn_rpc_client *client);

/* adapt.c */
int rpc_adapt_init(struct gn_rpc_client *client, const struct gn_rpc_client_opts *opts);
void rpc_adapt_free(struct gn_rpc_client *client);
/* NULL: no memory */
struct rpc_method_state *rpc_method_state_of(struct gn_rpc_client *client, unsigned method);
/* Calls of one method that completed together. */
struct rpc_sample {
	struct rpc_method_state *mstate;
	uint32_t calls;
	uint64_t sent_ns, now_ns; /* now_ns 0: not timed */
	uint32_t fails;		  /* failed fetches */
	uint32_t time_us;	  /* the server's time */
};
void rpc_adapt_calls(struct gn_rpc_client *client, const struct rpc_sample *sample);
/* Number of messages after this one that are not timed. */
uint32_t rpc_adapt_untimed(const struct gn_rpc_client *client);
/* Compute first_bytes from fetch_bytes and the slots of the connection. */
void rpc_adapt_first_read(struct gn_rpc_client *client);
/* A result message of this many payload bytes has arrived. */
void rpc_adapt_fetch_size(struct gn_rpc_client *client, uint32_t bytes);
/* Where READs take time: did the first fetch of a result find it? */
void rpc_adapt_slack(struct gn_rpc_client *client, bool found);
/* When to fetch the result of a message opened at ns; 0: at once. */
uint64_t rpc_adapt_fetch_ns(const struct gn_rpc_client *client, uint64_t ns, uint32_t time_us);
/* Tx. */
uint32_t rpc_adapt_switch_us(const struct gn_rpc_client *client);

static inline bool rpc_uses_reply(const struct gn_rpc_client *c,
				  const struct rpc_method_state *mstate)
{
	return c->mode == GN_RPC_REPLY || mstate->reply;
}

/* Completes a call whose op is given. */
static inline void rpc_op_complete(struct gn_rpc_client *c, struct rpc_call *call,
				   struct gn_rpc_op *op, unsigned status, uint32_t result_len)
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

/* … if it has not completed early. */
static inline void rpc_call_complete(struct gn_rpc_client *c, struct rpc_call *call,
				     unsigned status, uint32_t result_len)
{
	if (call->op)
		rpc_op_complete(c, call, call->op, status, result_len);
}

/* The next request slot is still in use by the server. */
static inline bool rpc_slots_full(const struct gn_rpc_client *c)
{
	return c->number - c->taken > c->mask + 1;
}

static inline void rpc_note_taken(struct gn_rpc_client *c, uint32_t ack)
{
	c->taken += rpc_newly_taken(ack, c->taken, c->number - 1 - c->taken);
}

/* All calls have their results, so all messages are taken, even if no result said so. */
static inline void rpc_note_all_taken(struct gn_rpc_client *c)
{
	if (!(c->n_fetch | c->n_reply))
		c->taken = c->number - 1;
}

/* The result has arrived: free the index. */
static inline void rpc_call_free(struct gn_rpc_client *c, struct rpc_call *call)
{
	c->n_sent[call->reply]--;
	call->mstate = NULL;
	call->next = c->free_calls;
	c->free_calls = call;
}

/* … and the buffer of a large request. */
static inline void rpc_call_release(struct gn_rpc_client *c, struct rpc_call *call)
{
	if (call->request.mem)
		rpc_large_release(c, call);
	rpc_call_free(c, call);
}

#endif
