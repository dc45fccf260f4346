/* SPDX-License-Identifier: MIT */
/*
 * gannet/donor.h - donors: processes that lend memory to others.
 *
 * A donor lends memory in slabs (64 MiB by default). A client has one session with a donor. The
 * session has a token, slabs, and data connections over which the client READs and WRITEs its slabs
 * without the donor's CPU. gn_donor_server_create() and gn_donor_server_start() make a donor of the
 * process; `gannet donor serve` is a program that does so.
 *
 * Leases. The donor keeps a session and its slabs while the client shows signs of life: control
 * calls, or renewals, which are one-sided WRITEs. If all connections of a session have ended, the
 * donor keeps it for lease_us; a client that connects again within this time finds its slabs. A
 * session that is connected and gives no sign of life is kept for silence_us. A donor that was
 * itself stopped extends all leases by that time.
 *
 * Slabs are zeroed. Memory that was returned is deregistered and given back to the system; no
 * client gets a mem that another client had.
 */
#ifndef GANNET_DONOR_H
#define GANNET_DONOR_H

#include <gannet/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GN_DONOR_OWNER	      32u /* bytes of an owner tag, with a NUL */
#define GN_DONOR_TOKEN	      16u
#define GN_DONOR_SLAB_DEFAULT (64ull << 20)
#define GN_DONOR_SLAB_MAX     (1ull << 30)
#define GN_DONOR_SLABS_MAX    65536u /* of one donor */

/* ---- server ---- */

struct gn_donor_server;

/* Defaults of a donor's limits: see struct gn_donor_server_opts. */
#define GN_DONOR_SESSIONS_DEFAULT      1024u
#define GN_DONOR_SHARES_DEFAULT	       4096u
#define GN_DONOR_CLIENT_SHARES_DEFAULT 256u
#define GN_DONOR_CONNS_DEFAULT	       4096u
#define GN_DONOR_OPENING_DEFAULT       64u

struct gn_donor_server_opts {
	size_t size;	 /* sizeof(struct gn_donor_server_opts) */
	uint64_t memory; /* that slabs take at most, granted and ready: at least one slab */
	uint64_t slab;	 /* bytes, a multiple of GN_PAGE; 0: GN_DONOR_SLAB_DEFAULT */
	uint32_t ready;	 /* slabs that are kept ready to be granted; 0: 2 */
	/*
	 * Pressure: while the system has less available memory than this, the donor grants nothing,
	 * asks clients for slabs, and takes slabs that were not returned after take_back_us. 0:
	 * never.
	 */
	uint64_t reserve;
	uint64_t take_back_us; /* 0: 10 s */
	uint64_t lease_us;     /* after the last connection has ended; 0: 30 s */
	uint64_t silence_us;   /* without a sign of life; 0: 10 min */
	/* Limits on what clients can make the donor keep: docs/limits.md. */
	uint32_t max_sessions;	    /* 0: GN_DONOR_SESSIONS_DEFAULT */
	uint32_t max_client_slabs;  /* of one session; 0: all */
	uint32_t max_shares;	    /* 0: GN_DONOR_SHARES_DEFAULT */
	uint32_t max_client_shares; /* of one session; 0: GN_DONOR_CLIENT_SHARES_DEFAULT */
	uint32_t max_conns;	    /* data connections; 0: GN_DONOR_CONNS_DEFAULT */
	uint32_t max_opening;	 /* … that are not established yet; 0: GN_DONOR_OPENING_DEFAULT */
	unsigned listener_flags; /* as gn_listener_create() */
	/* Replaces the system's available memory, in bytes; called by one thread of the donor. */
	uint64_t (*available)(void *arg);
	void *available_arg;
};

/*
 * Creates a donor for the control address addr. Its data connections use a second address: the
 * next port, or for an address without a port the name with ".data".
 */
GN_API int gn_donor_server_create(struct gn_fabric *fabric, const char *addr,
				  const struct gn_donor_server_opts *opts,
				  struct gn_donor_server **out);
GN_API int gn_donor_server_start(struct gn_donor_server *server);
/*
 * Refuses new sessions and grants, tells the clients that the donor is going away, and waits until
 * they have returned all slabs: 0 or -ETIMEDOUT. May be called again.
 */
GN_API int gn_donor_server_drain(struct gn_donor_server *server, uint64_t deadline_ns);
/* Ends all sessions. Returns when no client can access a slab any more. server may be NULL. */
GN_API void gn_donor_server_destroy(struct gn_donor_server *server);

struct gn_donor_stats {
	size_t size; /* sizeof(struct gn_donor_stats) */
	/* now */
	uint64_t memory, slab_bytes;
	uint64_t slabs;			 /* that memory has space for */
	uint64_t granted, ready, ending; /* slabs; ending: returned, not freed yet */
	uint64_t asked;			 /* granted slabs that the donor wants back */
	uint64_t sessions, orphans;	 /* orphans: sessions without a connection */
	uint64_t shares, conns;
	uint64_t waiting;	     /* GRANT calls that wait for a slab */
	uint64_t available, reserve; /* bytes; available 0: not known */
	/* since the start */
	uint64_t grants, releases, refused; /* refused: GRANT calls without a slab */
	uint64_t expired;		    /* sessions */
	uint64_t taken;			    /* slabs taken back by force */
	uint64_t revoked;		    /* shares */
	uint64_t attached;		    /* data connections accepted */
	/* data connections and HELLO calls refused, by reason */
	uint64_t bad_requests, bad_tokens, old_generations, other_incarnations, busy;
	uint64_t pauses; /* times that the donor itself was stopped: all leases were extended */
	uint64_t uptime_s;
};

/* Any thread. */
GN_API int gn_donor_server_stats(struct gn_donor_server *server, struct gn_donor_stats *out);
/* The server of the control calls, for its counters and metrics. */
struct gn_rpc_server;
GN_API struct gn_rpc_server *gn_donor_server_rpc(struct gn_donor_server *server);

#ifdef __cplusplus
}
#endif

#endif
