/* SPDX-License-Identifier: MIT */
/* A client as its files see it. */
#ifndef GN_KV_CLIENT_H
#define GN_KV_CLIENT_H

#include "base/owner.h"
#include "base/source.h"
#include "kv/wire.h"
#include "link/link.h"

#define KV_GONE	       "kv: the server at %s is gone"
#define KV_CLOCK_EVERY 8u /* polls, while something has a deadline */

/* What an attempt to connect waits for, with the last of links. */
enum kv_connect_step { KV_CONNECT_IDLE, KV_CONNECT_OPEN, KV_CONNECT_ASK };

struct kv_bypass;

struct kv_link {
	struct gn_kv_client *client;
	struct gn_rpc_client *rpc;
	uint32_t max_request;			 /* bytes, that fit a slot */
	struct gn_kv_op *waiting, **waiting_end; /* until there is room for their calls */
	uint32_t under_way;			 /* operations, calls and looks */
	struct kv_bypass *bypass;		 /* NULL: everything is called */
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
	struct gn_rpc_conn_id *previous; /* by partition: the last connection */
	struct gn_kv_control *controls, **controls_end;
	uint64_t due_ns;   /* not later than the first deadline of what rpc does not know of */
	uint32_t polls;	   /* KV_CLOCK_EVERY */
	uint64_t n_ops;	   /* under way, with controls */
	uint64_t n_waited; /* … of gn_kv_do() */
	int ended;	   /* by this poll, of others */
	uint64_t look_ticks; /* exec_ticks() when idle connections were polled last */
	bool look_at_all;  /* the next poll polls idle connections, too: one may be gone */
	bool down;	   /* the server is gone, and perhaps being connected to again */
	bool closing;
	bool busy; /* in a call that may call done */
	struct link_backoff backoff;
	/* while it is connected: connect.c */
	enum kv_connect_step connect;
	uint64_t connect_until_ns, asked_ns;
	struct kv_layout_ask ask;
	struct kv_layout answer;
	struct gn_rpc_op asked;
	bool told; /* asked has ended */
	struct gn_kv_counters count;
};

/* op->step */
enum kv_step {
	KV_STEP_SUBMITTED = 0,
	KV_STEP_WAITED = 1 << 0, /* by gn_kv_do() */
	KV_STEP_READS = 1 << 1,	 /* bypass.c knows of it: a GET */
	KV_STEP_WRITES = 1 << 2, /* … or what others must not overtake */
};

/* Its GETs are reads, where they can be. */
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
/* Call something else of a partition. */
int kv_client_call(struct gn_kv_client *client, uint32_t part, enum kv_method method,
		   const void *request, uint32_t request_len, void *result, uint32_t result_len,
		   uint64_t deadline_ns);

/* connect.c */
/* One attempt, waited for: 0, or why not. */
int kv_connect(struct gn_kv_client *client);
/* Whatever is under way ends with GN_KV_GONE. */
void kv_disconnect(struct gn_kv_client *client);
/* Connected, or again, by the deadline: 0, or why not. */
int kv_client_ready(struct gn_kv_client *client, uint64_t deadline_ns);
/* Move on with connecting to a server that was gone, without waiting. */
void kv_reconnect_some(struct gn_kv_client *client);

/* source.c */
/* An idle connection: is its server there? */
void kv_link_look(struct gn_kv_client *client, struct kv_link *link);
extern const struct source_ops kv_client_source;

/* calls.c */
/* Waits for it. 0, or why it was not done. */
int kv_do_one(struct gn_kv_client *client, struct gn_kv_op *op, uint64_t deadline_ns);
/* Messages with requests that its connection has sent. */
uint64_t kv_link_messages(const struct kv_link *link);
void kv_stats_add(struct gn_kv_stats *to, const struct gn_kv_stats *what);

/* control.c */
/* Calls those that had to wait, and ends those that have waited for too long. */
void kv_controls_poll(struct gn_kv_client *client);
void kv_controls_end_late(struct gn_kv_client *client, uint64_t now_ns);
void kv_controls_end_all(struct gn_kv_client *client);

/* op.c */
/* Begin an operation, of gn_kv_do() or not: 0, or an errno, and then it has not begun. */
int kv_op_begin(struct gn_kv_client *client, struct gn_kv_op *op, enum kv_step step);
/* … by a call; its key and partition are known. */
int kv_op_call(struct gn_kv_client *client, struct gn_kv_op *op);
/* Call those that wait for room, and end those that have waited for too long. */
void kv_ops_poll(struct gn_kv_client *client);
/* Puts those of a list that are late before others that are, and counts them down: all of these. */
struct gn_kv_op *kv_ops_pick_late(struct gn_kv_client *client, struct gn_kv_op **list,
				  struct gn_kv_op ***end, uint32_t *count, uint64_t now_ns,
				  struct gn_kv_op *late);
/* Ends what is late. */
void kv_end_late(struct gn_kv_client *client);
static inline void kv_due(struct gn_kv_client *c, uint64_t deadline_ns)
{
	if (deadline_ns < c->due_ns)
		c->due_ns = deadline_ns;
}
/* It has ended. */
void kv_op_end(struct gn_kv_client *client, struct gn_kv_op *op, unsigned status);
unsigned kv_status_of_error(int rc);

#endif
