/* SPDX-License-Identifier: MIT */
/* Internal state of a client. */
#ifndef GN_KV_CLIENT_H
#define GN_KV_CLIENT_H

#include "base/owner.h"
#include "base/source.h"
#include "kv/wire.h"
#include "link/link.h"

#define KV_DISCONNECTED "kv: the connection to %s broke"
#define KV_CLOCK_EVERY	8u /* polls between two reads of the clock, while deadlines are set */

/* What an attempt to connect waits for, on the last link. */
enum kv_connect_step { KV_CONNECT_IDLE, KV_CONNECT_OPEN, KV_CONNECT_LAYOUT };

struct kv_bypass;

struct kv_link {
	struct gn_kv_client *client;
	struct gn_rpc_client *rpc;
	uint32_t max_request;		       /* bytes that fit a slot */
	struct gn_kv_op *queued, **queued_end; /* operations that wait for a free slot */
	uint32_t outstanding;		       /* operations, calls and bypass GETs */
	struct kv_bypass *bypass;	       /* NULL: all operations are calls */
};

struct gn_kv_client {
	uint64_t owner; /* gn_thread_id() */
	struct gn_source source;
	struct gn_fabric *fabric;
	char *addr;
	struct gn_kv_client_opts opts;
	struct kv_layout layout;
	struct kv_link *links;
	uint32_t n_links;
	struct gn_rpc_conn_id *previous; /* by partition: the previous connection */
	struct gn_kv_control *controls, **controls_end;
	uint64_t earliest_deadline_ns; /* lower bound of the deadlines that rpc does not know */
	uint32_t polls;		       /* modulo KV_CLOCK_EVERY */
	uint64_t n_ops;		       /* outstanding operations and controls */
	uint64_t n_waited;	       /* outstanding operations of gn_kv_do() */
	int ended;		       /* completed by this poll, without gn_kv_do() */
	uint64_t idle_poll_ticks;      /* exec_ticks() of the last poll of idle links */
	bool poll_idle_links;	       /* poll idle links next time: one may be disconnected */
	bool disconnected;	       /* disconnected, perhaps reconnecting */
	bool closing;
	bool busy; /* inside a call that may call done */
	struct link_backoff backoff;
	/* state of connecting: connect.c */
	enum kv_connect_step connect;
	uint64_t connect_deadline_ns, layout_sent_ns;
	struct kv_layout_request layout_request;
	struct kv_layout layout_response;
	struct gn_rpc_op layout_op;
	bool layout_received; /* layout_op has completed */
	struct gn_kv_counters count;
};

/* Flags in op->step. */
enum kv_op_flag {
	KV_OP_SUBMITTED = 0,
	KV_OP_WAITED = 1 << 0, /* operation of gn_kv_do() */
	KV_OP_READS = 1 << 1,  /* bypass GET */
	KV_OP_WRITES = 1 << 2, /* a write, counted by bypass.c */
};

/* GETs of this client use READs where possible. */
static inline bool kv_client_bypasses(const struct gn_kv_client *c)
{
	return c->layout.bypass && !(c->opts.flags & GN_KV_CALL_ONLY);
}

/* client.c */
int kv_client_refuse(const struct gn_kv_client *client); /* -EINVAL, -EPERM */
static inline int kv_client_check(const struct gn_kv_client *client)
{
	return likely(client && exec_is_owner(__atomic_load_n(&client->owner, __ATOMIC_RELAXED))) ?
		       0 :
		       kv_client_refuse(client);
}
/* Calls a method of a partition and waits. */
int kv_client_call(struct gn_kv_client *client, uint32_t part, enum kv_method method,
		   const void *request, uint32_t request_len, void *result, uint32_t result_len,
		   uint64_t deadline_ns);

/* connect.c */
/* One attempt to connect, synchronously. */
int kv_connect(struct gn_kv_client *client);
/* Outstanding operations complete with GN_KV_GONE. */
void kv_disconnect(struct gn_kv_client *client);
/* Connects again by the deadline if the connection broke and the client may reconnect. */
int kv_client_ensure_connected(struct gn_kv_client *client, uint64_t deadline_ns);
/* Advances a reconnect without waiting. */
void kv_reconnect_step(struct gn_kv_client *client);

/* source.c */
/* Polls an idle link to detect a disconnect. */
void kv_link_poll_idle(struct gn_kv_client *client, struct kv_link *link);
extern const struct source_ops kv_client_source;

/* calls.c */
/* Executes one operation and waits. Returns 0 or the status as an errno. */
int kv_do_one(struct gn_kv_client *client, struct gn_kv_op *op, uint64_t deadline_ns);
/* Request messages that the link has sent. */
uint64_t kv_link_messages(const struct kv_link *link);
void kv_stats_sum(struct gn_kv_stats *to, const struct gn_kv_stats *what);

/* control.c */
/*
 * Starts controls that wait for a slot; completes controls whose deadline has passed; completes
 * all.
 */
void kv_controls_poll(struct gn_kv_client *client);
void kv_controls_expire(struct gn_kv_client *client, uint64_t now_ns);
void kv_controls_end_all(struct gn_kv_client *client);

/* op.c */
/* Starts an operation. On an error the operation was not started. */
int kv_op_begin(struct gn_kv_client *client, struct gn_kv_op *op, enum kv_op_flag step);
/* Starts an operation as a call; its hash and partition are set. */
int kv_op_call(struct gn_kv_client *client, struct gn_kv_op *op);
/* Starts operations that wait for a free slot. */
void kv_ops_poll(struct gn_kv_client *client);
/*
 * Moves the operations of a list whose deadline has passed to the list expired, and decrements
 * *count for each. Returns the new head of expired.
 */
struct gn_kv_op *kv_ops_collect_expired(struct gn_kv_client *client, struct gn_kv_op **list,
					struct gn_kv_op ***end, uint32_t *count, uint64_t now_ns,
					struct gn_kv_op *expired);
/* Completes operations whose deadline has passed. */
void kv_ops_expire(struct gn_kv_client *client);
static inline void kv_note_deadline(struct gn_kv_client *c, uint64_t deadline_ns)
{
	if (deadline_ns < c->earliest_deadline_ns)
		c->earliest_deadline_ns = deadline_ns;
}
void kv_op_complete(struct gn_kv_client *client, struct gn_kv_op *op, unsigned status);
unsigned kv_status_of_error(int rc);

#endif
