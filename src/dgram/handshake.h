/* SPDX-License-Identifier: MIT */
/*
 * Handshakes: connections of the control thread. Each carries one hello each way and is then
 * closed. handshake.c begins them and runs the thread; accept.c answers and verifies those of
 * others.
 */
#ifndef GN_DGRAM_HANDSHAKE_H
#define GN_DGRAM_HANDSHAKE_H

#include "dgram/endpoint.h"

#define CONN_FAILURE 256u /* bytes of a text */

enum dgram_purpose {
	CONN_ACCEPTED, /* begun by another node */
	CONN_NEW,
	CONN_CHECK,
	CONN_VERIFY, /* asks the address that a hello names whether the hello is from there */
	CONN_BYE,
};

/* One handshake. */
struct dgram_conn {
	struct link_conn link;
	struct gn_dgram_node *node;
	enum dgram_purpose purpose;
	struct dgram_remote *remote; /* of NEW and CHECK */
	struct dgram_hello *in, *out;
	uint64_t epoch; /* in question: CHECK, VERIFY, BYE */
	uint32_t index;
	uint32_t assoc_index; /* NEW: taken for the association */
	bool has_index;
	bool refused_at_once; /* the provider did not even begin to connect */
	bool replied;	      /* the hello of the other side has arrived */
	bool succeeded;	      /* … and was as it should be: do not back off */
	/* An accepted conn and the VERIFY for its hello; NULL: none, or closed. */
	struct dgram_conn *other;
	struct dgram_hello *hello;    /* accepted: the hello that is being verified; owned */
	char addr[GN_DGRAM_ADDR_MAX]; /* VERIFY, BYE: where to connect to; others: for the log */
	char failure[CONN_FAILURE];   /* why there is no connection; "": no such reason */
	uint32_t reply;		      /* kind of the other side's hello; 0: none */
	struct link_timer limit;
};

/* ---- handshake.c ---- */

/* A conn with its qp; -ENOSPC: the share of its side of max_handshakes is used up. */
int dgram_conn_create(struct gn_dgram_node *node, enum dgram_purpose purpose,
		      struct dgram_conn **out);
/* Closes the handshake that long from now. */
void dgram_conn_limit(struct dgram_conn *conn, uint64_t ns);
/* Sends conn->out. */
void dgram_conn_send(struct dgram_conn *conn);
/* The remote node was reached: a later failure is reported again. */
void dgram_remote_reached(struct dgram_remote *remote);
/* A hello of this node; the addresses of its threads are for nodes that may call it. */
void dgram_hello_fill(struct gn_dgram_node *node, struct dgram_hello *out, uint32_t kind);
struct dgram_assoc *dgram_assoc_of_epoch(struct gn_dgram_node *node, uint64_t epoch);
/* May an association with so many threads be added? If not, idle ones are evicted for the next. */
bool dgram_peers_allowed(struct gn_dgram_node *node, uint32_t threads);

/* ---- accept.c: the node's lock is held ---- */

/* A hello has arrived: answers it, or begins to verify it. */
void dgram_accept_hello(struct dgram_conn *conn, const struct dgram_hello *hello);
/* The answer to VERIFY; NULL: there is none. */
void dgram_accept_verified(struct dgram_conn *verify, const struct dgram_hello *reply);

#endif
