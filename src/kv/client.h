/* SPDX-License-Identifier: MIT */
/* A client as its files see it. */
#ifndef GN_KV_CLIENT_H
#define GN_KV_CLIENT_H

#include "kv/wire.h"

#define KV_GONE "kv: the server is gone"

/* Operations that travel together, to one partition. */
struct kv_message {
	struct kv_message *next; /* that waits, or is free */
	struct gn_kv_client *client;
	struct gn_rpc_op rpc;
	uint32_t part, n;
	struct gn_kv_op *first, **last;
	uint8_t *request, *result;
	uint32_t request_room, result_room;
	uint32_t request_bytes, result_bytes; /* used; that may come */
	bool alone;			      /* others could overtake it, and wait: see call() */
};

/* What an attempt to connect waits for, with the last of links. */
enum kv_connect_step { KV_CONNECT_IDLE, KV_CONNECT_OPEN, KV_CONNECT_ASK };

struct kv_bypass;

struct kv_link {
	struct gn_rpc_client *rpc;
	uint32_t max_request;		       /* bytes, for more than one operation */
	struct kv_message *open;	       /* that operations are added to */
	struct kv_message *queue, **queue_end; /* that the calls have no room for now */
	uint64_t until_ns;		       /* not later than the first deadline of those */
	uint32_t under_way;		       /* messages: open, waiting and called; looks */
	uint32_t called;		       /* … of these */
	bool alone;			       /* one of them is */
	struct kv_bypass *bypass;	       /* NULL: everything is called */
};

struct gn_kv_client {
	uint64_t owner; /* gn_thread_id() */
	struct gn_fabric *fabric;
	char *addr;
	struct gn_kv_client_opts opts;
	struct kv_layout layout;
	struct kv_link *links;
	uint32_t n_links;
	struct gn_rpc_conn_id *previous; /* by partition: the last connection */
	struct gn_kv_control *controls, **controls_end;
	uint64_t controls_due_ns; /* no deadline of those that wait for a slot is earlier */
	struct kv_message *idle;
	unsigned n_large;  /* … of which have room for large results */
	uint64_t n_ops;	   /* under way, with controls */
	uint64_t n_waited; /* … of gn_kv_do() */
	int ended;	   /* by this poll, of others */
	bool down;	   /* the server is gone, and perhaps being connected to again */
	bool closing;
	bool busy;	   /* in a call that may call done */
	bool alone;	   /* what gn_kv_do() begins is all there is */
	uint64_t retry_ns; /* when a poll may look for the server again */
	/* while it is connected: connect.c */
	enum kv_connect_step connect;
	uint64_t connect_until_ns, asked_ns;
	struct kv_layout_ask ask;
	struct kv_layout answer;
	struct gn_rpc_op asked;
	bool told;	 /* asked has ended */
	unsigned failed; /* attempts of polls, one after the other */
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
int kv_client_check(const struct gn_kv_client *client); /* 0, -EINVAL, -EPERM */
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

/* calls.c */
/* Waits for it. 0, or why it was not done. */
int kv_do_one(struct gn_kv_client *client, struct gn_kv_op *op, uint64_t deadline_ns);
void kv_stats_add(struct gn_kv_stats *to, const struct gn_kv_stats *what);

/* control.c */
/* Calls those that had to wait, and ends those that have waited for too long. */
void kv_controls_poll(struct gn_kv_client *client);
void kv_controls_end_all(struct gn_kv_client *client);

/* message.c */
/* Begin an operation; its key and partition are known. 0, or -ENOMEM. */
int kv_message_add(struct gn_kv_client *client, struct gn_kv_op *op);
void kv_message_send_all(struct gn_kv_client *client);
/* Those end that wait to be called, and have waited for too long. */
void kv_messages_end_late(struct gn_kv_client *client);
/* The only operation of a message, called and waited for. */
int kv_message_call(struct gn_kv_client *client, struct gn_kv_op *op);
/* It has ended. */
void kv_op_end(struct gn_kv_client *client, struct gn_kv_op *op, unsigned status);
void kv_messages_free(struct gn_kv_client *client);

#endif
