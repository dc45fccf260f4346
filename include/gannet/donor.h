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

#include <gannet/io.h>

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
 * Announces the end: refuses new sessions and grants, and tells the clients to return their slabs
 * by then. gn_donor_server_drain() also waits until they have: 0 or -ETIMEDOUT; it may be called
 * again.
 */
GN_API int gn_donor_server_leave(struct gn_donor_server *server, uint64_t deadline_ns);
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

/* ---- client ---- */

/*
 * A session with a donor. Only the thread that connected it may use it, its slabs and its notices
 * (-EPERM). The regions of its slabs may be used as io.h says, by any thread.
 *
 * Calls connect the control connection again if it broke, until their deadline. The data
 * connections are the engine's. -ESTALE from any call: the donor was restarted or has ended the
 * session; all slabs are lost.
 */
struct gn_donor;

/*
 * Names a session, for a process that takes over another's. The other process, if it still runs,
 * loses the session: its requests end with -ESTALE. Keep it secret.
 */
struct gn_donor_id {
	uint8_t token[GN_DONOR_TOKEN];
	uint64_t incarnation; /* of the donor */
};

struct gn_donor_opts {
	size_t size;	   /* sizeof(struct gn_donor_opts) */
	const char *owner; /* a tag for gn_donor_list(): text without blanks; NULL: none */
	const struct gn_donor_id *id; /* the session to take over; NULL: a new one */
	uint32_t timeout_us;	      /* to connect; 0: 2 s */
};

/*
 * Connects to a donor, and opens it as a target of the engine. io NULL: without a session, for
 * gn_donor_list() and gn_donor_query() only. -ENOSPC: the donor has no space for another session.
 * -ESTALE: the session of opts.id has ended, or the donor was restarted. -ESHUTDOWN: the donor is
 * going away. opts may be NULL.
 */
GN_API int gn_donor_connect(struct gn_fabric *fabric, struct gn_io *io, const char *addr,
			    const struct gn_donor_opts *opts, struct gn_donor **out);
enum gn_donor_close_flag {
	GN_DONOR_KEEP = 1 << 0, /* the donor keeps the session and its slabs until the lease ends */
};
/* -EBUSY: requests refer to its slabs. donor may be NULL. */
GN_API int gn_donor_close(struct gn_donor *donor, unsigned flags);
GN_API int gn_donor_session_id(const struct gn_donor *donor, struct gn_donor_id *out);
GN_API struct gn_io_target *gn_donor_target(const struct gn_donor *donor);

/* Memory that the donor granted. The library owns the struct. */
struct gn_donor_slab {
	uint64_t id;
	uint64_t bytes;
	struct gn_io_region *region; /* all of it */
	void *user;		     /* for the caller */
	/* private */
	uint64_t use_offset;
	struct gn_donor_slab *next, **prev;
};

/*
 * Gets up to n slabs of zeroed memory and returns their number, or an error if there is none.
 * -ENOSPC: all memory is granted, or the donor's system is short of memory. -EDQUOT: a limit of
 * this client. -ESHUTDOWN: the donor is going away. -ETIMEDOUT. -ECONNRESET: the connection broke.
 * Slabs whose grant was not answered are in gn_donor_next_slab(), at the latest when the next call
 * has returned.
 */
GN_API int gn_donor_grant(struct gn_donor *donor, unsigned n, struct gn_donor_slab **out,
			  uint64_t deadline_ns);
/*
 * Returns a slab, and returns when nothing can land in it any more. Its shares are revoked. Frees
 * the struct if it returns 0 or -ESTALE. -EBUSY: requests refer to it. After other errors, such as
 * -ETIMEDOUT, its region is gone, and only gn_donor_release() may use it.
 */
GN_API int gn_donor_release(struct gn_donor *donor, struct gn_donor_slab *slab,
			    uint64_t deadline_ns);
/* The slabs that this session holds, one after the other: NULL begins and ends. */
GN_API struct gn_donor_slab *gn_donor_next_slab(const struct gn_donor *donor,
						const struct gn_donor_slab *slab);

/*
 * Makes a token that gives access to a range of a slab: gn_io_target_open() with opts.share. offset
 * and length are multiples of GN_PAGE; rights: GN_REMOTE_READ | GN_REMOTE_WRITE. A token is for
 * one client at a time: to open it again, after a restart or in another process, takes it over, and
 * requests of the earlier client end with -ESTALE; at most 4095 times.
 */
GN_API int gn_donor_share(struct gn_donor *donor, const struct gn_donor_slab *slab, uint64_t offset,
			  uint64_t length, unsigned rights, uint64_t deadline_ns,
			  uint8_t token[GN_DONOR_TOKEN]);
/* Returns when nothing can land under the token any more. -ENOENT: no such token. */
GN_API int gn_donor_revoke(struct gn_donor *donor, const uint8_t token[GN_DONOR_TOKEN],
			   uint64_t deadline_ns);
/* The address of the data connections, for the holder of a share's token. */
GN_API const char *gn_donor_data_addr(const struct gn_donor *donor);

/*
 * Renews the lease by a one-sided WRITE. Does not wait. Call it at least twice in the donor's
 * silence_us if the session makes no calls. gn_donor_used() states how often a slab was used so
 * far: the next renewals tell the donor, which takes back the least used slabs first.
 */
GN_API int gn_donor_renew(struct gn_donor *donor);
GN_API void gn_donor_used(struct gn_donor *donor, const struct gn_donor_slab *slab, uint64_t used);

enum gn_donor_notice_kind {
	GN_DONOR_TAKE_BACK = 1, /* release this slab by then, or the donor takes it */
	GN_DONOR_TAKEN,		/* the donor took this slab, or (id 0) several: they are lost */
	GN_DONOR_GOING_AWAY,	/* release all slabs by then: the donor ends */
};

struct gn_donor_notice {
	size_t size; /* sizeof(struct gn_donor_notice) */
	enum gn_donor_notice_kind kind;
	struct gn_donor_slab *slab; /* NULL: none, or it is not known any more */
	uint64_t id;		    /* of the slab, or 0 */
	uint64_t deadline_ns;
};

/*
 * Waits for what the donor has to tell: 0, -ETIMEDOUT, -EINTR, -ESTALE. If the control connection
 * broke it is connected again, which may take 100 ms more, also with GN_NO_WAIT.
 */
GN_API int gn_donor_next_notice(struct gn_donor *donor, struct gn_donor_notice *out,
				uint64_t deadline_ns);
/* Ready when gn_donor_next_notice() should be called with GN_NO_WAIT; after its first call. */
GN_API struct gn_source *gn_donor_source(struct gn_donor *donor);

enum gn_donor_state { GN_DONOR_HELD, GN_DONOR_ASKED, GN_DONOR_ENDING };

struct gn_donor_entry {
	uint64_t slab; /* 0: a session without slabs */
	uint64_t session;
	uint64_t bytes;
	uint64_t held_ms; /* since the grant */
	uint64_t left_ms; /* until the lease ends, without a sign of life */
	enum gn_donor_state state;
	bool mine; /* of this session */
	char owner[GN_DONOR_OWNER];
};

/*
 * Calls fn for each slab, and each session without slabs, of an owner; NULL: of all. fn returns 0
 * to go on. Entries that come or go meanwhile may be missing.
 */
GN_API int gn_donor_list(struct gn_donor *donor, const char *owner,
			 int (*fn)(void *arg, const struct gn_donor_entry *entry), void *arg,
			 uint64_t deadline_ns);
GN_API int gn_donor_query(struct gn_donor *donor, struct gn_donor_stats *out, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif
