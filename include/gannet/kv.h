/* SPDX-License-Identifier: MIT */
/*
 * gannet/kv.h - a key-value store whose clients fetch.
 *
 * A server has threads, and each owns a partition of the keys: nothing else touches it. Clients
 * find the owner of a key by its hash and call it as gannet/rpc.h has it: results are fetched, or
 * written back, or as is better. A server may also be made so that its clients find values by
 * reading its memory, without it (bypass); then only what changes the store is called.
 *
 * What is stored may be forgotten: when memory is short, what was used least recently; after its
 * time to live; and all of it when the server ends.
 *
 * A client belongs to the thread that connected it, a store to whoever calls it, one at a time.
 * Calls return 0 or a negative errno; what became of an operation is in its status.
 *
 * A deadline_ns is a time of gn_now_ns(): GN_FOREVER and 0 mean none, GN_NO_WAIT only looks.
 */
#ifndef GANNET_KV_H
#define GANNET_KV_H

#include <gannet/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GN_KV_KEY_MAX	  250u
#define GN_KV_VALUE_MAX	  (1u << 20)
#define GN_KV_THREADS_MAX 256u
#define GN_KV_MEMORY_MIN  (256u << 10) /* of a partition */
#define GN_KV_MEMORY_MAX  (16ull << 30)
/* A value takes at most this part of its partition's memory: a quarter; with bypass a sixteenth. */
#define GN_KV_VALUE_PART	4u
#define GN_KV_VALUE_PART_BYPASS 16u
#define GN_KV_GATHER_MAX	1024u /* operations in a message */

enum gn_kv_status {
	GN_KV_OK,
	GN_KV_MISS,	  /* there is no such key */
	GN_KV_EXISTS,	  /* its version is not the one that was named */
	GN_KV_NOT_STORED, /* ADD: it is there; REPLACE, APPEND, PREPEND: it is not */
	GN_KV_NOT_NUMBER, /* INCR, DECR: the value does not begin with a number of 64 bits */
	GN_KV_TOO_BIG,	  /* the value does not fit the store, or what GET has room for (len) */
	GN_KV_NO_MEMORY,  /* all of it is used by others, and nothing could be forgotten */
	GN_KV_INVALID,	  /* the server does not take such an operation */
	GN_KV_TIMEOUT,	  /* no answer by the deadline; it may still have been executed */
	GN_KV_GONE,	  /* the server is not there; likewise */
	GN_KV_BUSY,	  /* the server ends, or has no room; it was not executed */
	GN_KV_FAILED,	  /* anything else; it may have been executed */
	GN_KV_STATUSES
};
/* Never NULL; the string is static. */
GN_API const char *gn_kv_status_str(unsigned status);

enum gn_kv_verb {
	GN_KV_GET,
	GN_KV_SET,
	GN_KV_ADD,     /* if there is none */
	GN_KV_REPLACE, /* if there is one */
	GN_KV_APPEND,  /* the value to what there is */
	GN_KV_PREPEND,
	GN_KV_DELETE,
	GN_KV_INCR, /* wraps at 64 bits */
	GN_KV_DECR, /* stops at 0 */
	GN_KV_TOUCH,
	GN_KV_SCAN, /* a page of keys: see gn_kv_scan() */
	GN_KV_VERBS
};

/* How, in gn_kv_op.how; several. */
enum gn_kv_how {
	GN_KV_IF_CAS = 1 << 0,	  /* only if its version is cas; else EXISTS, or MISS */
	GN_KV_SET_CAS = 1 << 1,	  /* what is stored has version new_cas */
	GN_KV_NO_VALUE = 1 << 2,  /* GET: all but the value */
	GN_KV_AND_TOUCH = 1 << 3, /* GET, INCR, DECR: its time to live becomes ttl_s */
	GN_KV_CREATE = 1 << 4,	  /* INCR, DECR: if there is none, store initial, for create_s */
	GN_KV_VIVIFY = 1 << 5,	  /* GET: if there is none, store an empty one, for create_s */
	GN_KV_RECACHE = 1 << 6,	  /* GET: with less than recache_s left, one client has WON */
	/* DELETE: leave it, STALE; SET with IF_CAS: an older cas, not 0, may: STALE, same time */
	GN_KV_INVALIDATE = 1 << 7,
	GN_KV_QUIET = 1 << 8,	/* GET: it does not count as used */
	GN_KV_DETAILS = 1 << 9, /* GET: cas, ttl_s and idle_s are wanted too */
	/* GET with RECACHE and AND_TOUCH: what was left before is compared with recache_s */
	GN_KV_RECACHE_FIRST = 1 << 10,
	GN_KV_UNCOUNTED = 1 << 11, /* GET: it is not counted: see gn_kv_stats */
};

/* What was found, in gn_kv_op.found; several. */
enum gn_kv_found {
	GN_KV_STALE = 1 << 0,
	GN_KV_WON = 1 << 1,	   /* this client is the one to renew it */
	GN_KV_LOST = 1 << 2,	   /* another is */
	GN_KV_HIT_BEFORE = 1 << 3, /* since it was stored */
	GN_KV_CREATED = 1 << 4,	   /* by VIVIFY or CREATE */
};

#define GN_KV_TTL_NONE UINT32_MAX /* out: it lives for ever */
#define GN_KV_TTL_PAST UINT32_MAX /* in: it is dead at once */

/* An operation: the caller's again when it has ended. Zeroed, and only what is needed set. */
struct gn_kv_op {
	enum gn_kv_verb verb;
	unsigned how; /* enum gn_kv_how */
	const void *key;
	uint32_t key_len;
	uint32_t value_len; /* in: of value */
	const void *value;
	void *room; /* GET: where the value goes */
	uint32_t room_bytes;
	uint32_t flags; /* the caller's own, kept with the value; in and out */
	uint32_t ttl_s; /* in: seconds, 0 for ever; out: what is left of them, GN_KV_TTL_NONE */
	uint32_t create_s, recache_s;
	uint64_t cas;	  /* in: see IF_CAS; out: its version; of GET with DETAILS */
	uint64_t new_cas; /* see SET_CAS */
	uint64_t number;  /* INCR, DECR: by how much; out: what it is now */
	uint64_t initial;
	/* asynchronous */
	uint64_t deadline_ns;
	void (*done)(struct gn_kv_op *op);
	void *arg;
	/* out, valid when it has ended */
	unsigned status; /* enum gn_kv_status */
	unsigned found;	 /* enum gn_kv_found */
	uint32_t len;	 /* of the value that is there */
	uint32_t idle_s; /* since it was last used; up to 8 s too many while memory is not short */
	/* GET with DETAILS, INCR, DECR: as ttl_s, but before this operation; TTL_NONE: CREATED */
	uint32_t was_ttl_s;
	/* private */
	union {
		struct gn_kv_op *next; /* a client's */
		const void *line;      /* a store's */
	};
	uint64_t hash;
	uint32_t part, step;
	struct gn_rpc_op rpc; /* a client's */
};

/* ---- a store by itself ---- */

struct gn_kv_store;

struct gn_kv_store_opts {
	size_t size;	    /* sizeof(struct gn_kv_store_opts) */
	uint64_t memory;    /* bytes, for values, keys and index; 0: 64 MiB */
	uint32_t max_value; /* 0: GN_KV_VALUE_MAX, or what memory allows; more is -EINVAL */
	uint64_t seed;	    /* of its hash; 0: drawn */
};

GN_API int gn_kv_store_create(const struct gn_kv_store_opts *opts, struct gn_kv_store **out);
GN_API void gn_kv_store_destroy(struct gn_kv_store *store);
/* Does n operations, in their order; done is not called. Lookups of several overlap. */
GN_API void gn_kv_store_do(struct gn_kv_store *store, struct gn_kv_op *ops, unsigned n);
/* Forget everything, in delay_s seconds or now. */
GN_API void gn_kv_store_clear(struct gn_kv_store *store, uint32_t delay_s);

/* Of a store, or the sum over a server's partitions. */
struct gn_kv_stats {
	size_t size;			 /* sizeof(struct gn_kv_stats) */
	uint64_t items, item_bytes;	 /* stored now; bytes with all that belongs to them */
	uint64_t memory, used;		 /* the limit, and what is taken of it */
	uint64_t buckets, spare_lines;	 /* of the index; bypass: entries of the table, 0 */
	uint64_t gets, hits, misses;	 /* GETs without AND_TOUCH */
	uint64_t touches, touch_misses;	 /* TOUCH, and GETs with AND_TOUCH: found, and not */
	uint64_t sets, stored;		 /* asked for; new items, by any operation */
	uint64_t deletes, delete_misses; /* misses: also of another version */
	uint64_t numbers;		 /* INCR and DECR asked for */
	uint64_t incr_hits, incr_misses;
	uint64_t decr_hits, decr_misses;
	uint64_t cas_ok, cas_bad, cas_misses; /* SET and REPLACE with IF_CAS */
	uint64_t evicted_bucket;	      /* the least recently used of a bucket */
	uint64_t evicted_log;		      /* of memory that was written longest ago */
	uint64_t evicted_unfetched;	      /* … of both, those that nobody had read */
	uint64_t evicted_ttl;		      /* … and those that had a time to live */
	uint64_t evicted_idle_s; /* since when the last of them was not used; of a sum the most */
	uint64_t expired;	 /* found to be over, and removed */
	uint64_t expired_get;	 /* … by an operation on that key */
	uint64_t expired_unfetched; /* … that nobody had read */
	uint64_t clears;
	uint64_t too_big; /* values that the store does not take */
	uint64_t moved;	  /* bytes, by compaction */
	uint64_t splits;  /* of buckets; bypass: how often the table grew */
	uint64_t kicks;	  /* bypass: entries that made room for others */
	uint64_t no_memory;
	uint64_t partitions;
	uint64_t uptime_s;
};
GN_API int gn_kv_store_stats(struct gn_kv_store *store, struct gn_kv_stats *out);

/* ---- server ---- */

struct gn_kv_server;

struct gn_kv_server_opts {
	size_t size;	    /* sizeof(struct gn_kv_server_opts) */
	unsigned threads;   /* partitions; 0: 1 */
	uint64_t memory;    /* of all; 0: 64 MiB for each */
	uint32_t max_value; /* as of a store, for each partition */
	bool bypass;	    /* clients may find values by themselves */
	struct gn_rpc_server_opts
		rpc; /* size and threads are set for it; GN_RPC_POLLED with one only */
};

GN_API int gn_kv_server_create(struct gn_fabric *fabric, const char *addr,
			       const struct gn_kv_server_opts *opts, struct gn_kv_server **out);
GN_API int gn_kv_server_start(struct gn_kv_server *server);
/* As gn_rpc_server_drain(). */
GN_API int gn_kv_server_drain(struct gn_kv_server *server, uint64_t deadline_ns);
GN_API void gn_kv_server_destroy(struct gn_kv_server *server);
/* Of a server that is GN_RPC_POLLED, as gn_rpc_server_source(); gn_rpc_server_poll() serves. */
GN_API struct gn_source *gn_kv_server_source(struct gn_kv_server *server);
/* Its calls: for gn_rpc_server_counters() and gn_rpc_server_metrics(). */
GN_API struct gn_rpc_server *gn_kv_server_rpc(struct gn_kv_server *server);

/* ---- client ---- */

struct gn_kv_client;

enum gn_kv_client_flag {
	GN_KV_CALL_ONLY = 1 << 0, /* also GET is called where it could bypass the server */
	GN_KV_PAPER = 1 << 1,	  /* bypass: as Pilaf has it, entry by entry, each with its pair */
	/* After the connection broke, connect again: see gn_kv_do() and gn_kv_poll(). */
	GN_KV_RECONNECT = 1 << 2,
};

struct gn_kv_client_opts {
	size_t size;	 /* sizeof(struct gn_kv_client_opts) */
	unsigned flags;	 /* enum gn_kv_client_flag */
	unsigned gather; /* operations in a message, at most; 0: as rpc.batch says, or 64 */
	struct gn_rpc_client_opts rpc; /* mode and all that; size, thread and ctx are set for it */
};

/*
 * Connect to all partitions of a server. Errors as of gn_rpc_client_open(); -EPROTO also: it is a
 * server, but of something else; -EBUSY: it ends. opts may be NULL.
 */
GN_API int gn_kv_client_open(struct gn_fabric *fabric, const char *addr,
			     const struct gn_kv_client_opts *opts, struct gn_kv_client **out);
/*
 * Hand it over to another thread, as gn_rpc_client_release() and gn_rpc_client_adopt(): nothing may
 * be under way. Release or close it before its owner's thread ends: afterwards no thread can adopt
 * or close it.
 */
GN_API int gn_kv_client_release(struct gn_kv_client *client);
GN_API int gn_kv_client_adopt(struct gn_kv_client *client);
/* Operations under way end with GN_KV_GONE. NULL is fine. */
GN_API int gn_kv_client_close(struct gn_kv_client *client);

struct gn_kv_limits {
	size_t size; /* sizeof(struct gn_kv_limits) */
	uint32_t partitions, max_value;
	bool bypass; /* GETs of this client bypass the server */
};
GN_API int gn_kv_client_limits(const struct gn_kv_client *client, struct gn_kv_limits *out);

/*
 * Do n operations and wait for all, by the deadline: 0, with a status in each. Operations for the
 * same partition travel together, and those on the same key are done in their order. With
 * GN_KV_RECONNECT a client whose connection broke connects again first; what was under way then has
 * GN_KV_GONE. done is not called.
 */
GN_API int gn_kv_do(struct gn_kv_client *client, struct gn_kv_op *ops, unsigned n,
		    uint64_t deadline_ns);

/*
 * Begin an operation, and have done called from gn_kv_poll(), or from another call of this client:
 * from this one too, when it finds that the server is gone. done may submit others; what waits,
 * polls or closes returns -EDEADLK there. Never waits, neither for the server nor for a connection.
 * -EAGAIN: too many are under way; -EMSGSIZE: its value is too large for any store or this
 * connection; -ENOTCONN: the connection broke; with GN_KV_RECONNECT gn_kv_poll() connects again,
 * and then this works.
 */
GN_API int gn_kv_submit(struct gn_kv_client *client, struct gn_kv_op *op);
/* Send what was gathered. */
GN_API int gn_kv_flush(struct gn_kv_client *client);
/*
 * Send what was gathered and move operations on: how many have ended. Does not wait either. With
 * GN_KV_RECONNECT it also moves on with connecting again, once nothing is under way.
 */
GN_API int gn_kv_poll(struct gn_kv_client *client);
/* … until at least one has: how many, or -ETIMEDOUT, -EINTR. 0 when none is under way. */
GN_API int gn_kv_wait(struct gn_kv_client *client, uint64_t deadline_ns);

/*
 * For gn_wait(), or by gn_source_fd() for another event loop: ready when gn_kv_poll() should be
 * called, also to connect again. Without GN_KV_RECONNECT it is never ready again after the poll
 * that finds the server gone; gn_kv_poll() and gn_kv_wait() return 0 then, gn_kv_submit()
 * -ENOTCONN.
 */
GN_API struct gn_source *gn_kv_client_source(struct gn_kv_client *client);

/* The usual, in a line. Return 0, -ENOENT, -EEXIST, -EFBIG, -ETIMEDOUT, -ENOTCONN, … */
GN_API int gn_kv_get(struct gn_kv_client *client, const void *key, uint32_t key_len, void *room,
		     uint32_t room_bytes, uint32_t *len, uint64_t deadline_ns);
GN_API int gn_kv_set(struct gn_kv_client *client, const void *key, uint32_t key_len,
		     const void *value, uint32_t value_len, uint32_t ttl_s, uint64_t deadline_ns);
GN_API int gn_kv_del(struct gn_kv_client *client, const void *key, uint32_t key_len,
		     uint64_t deadline_ns);
/*
 * Have all partitions forget everything, in delay_s seconds or now. A partition looks at its clock
 * when it is called: until then, clients that bypass it find what was there.
 */
GN_API int gn_kv_clear(struct gn_kv_client *client, uint32_t delay_s, uint64_t deadline_ns);
/* The server's, as a sum; or of one partition. */
#define GN_KV_ALL UINT32_MAX
GN_API int gn_kv_client_stats(struct gn_kv_client *client, uint32_t partition,
			      struct gn_kv_stats *out, uint64_t deadline_ns);

/* The same without waiting for it. */
enum gn_kv_control_verb {
	GN_KV_CONTROL_CLEAR, /* as gn_kv_clear() */
	GN_KV_CONTROL_STATS, /* as gn_kv_client_stats() of GN_KV_ALL */
};

/* A request to all partitions: the caller's again when done is called for it. Zeroed first. */
struct gn_kv_control {
	enum gn_kv_control_verb verb;
	uint32_t delay_s; /* CLEAR */
	uint64_t deadline_ns;
	void (*done)(struct gn_kv_control *control);
	void *arg;
	/* out, valid in done */
	int error; /* 0, -ETIMEDOUT, -ENOTCONN, …; then some partitions may have done it */
	struct gn_kv_stats stats;
	/* private */
	struct gn_kv_control *next, **prev;
	struct gn_kv_client *client;
	uint32_t part, request[2];
	bool called;
	struct gn_rpc_op rpc;
	uint64_t answer[(sizeof(struct gn_kv_stats) - sizeof(size_t)) / sizeof(uint64_t)];
};

/*
 * Begin it, and have done called from gn_kv_poll() or another call of this client, with the same
 * rules as after gn_kv_submit(). -ENOTCONN: the server is gone.
 */
GN_API int gn_kv_control_submit(struct gn_kv_client *client, struct gn_kv_control *control);

/*
 * A scan lists the keys of all partitions, a page at a time; servers keep nothing of it. It begins
 * with a zeroed cursor, and goes on with the one that a page ends with, as long as there is more.
 * Every key that is there during all of the scan is told at least once, whatever else is stored,
 * deleted or moved meanwhile; others may be, and any may be told twice.
 */
struct gn_kv_cursor {
	uint64_t opaque[3];
};

struct gn_kv_key {
	const void *key; /* as long as the page */
	uint32_t key_len;
	uint32_t len; /* of its value */
	uint32_t flags, ttl_s, idle_s;
	unsigned found; /* GN_KV_STALE, LOST, HIT_BEFORE */
	uint64_t cas;
};

/*
 * A page, waited for: fn is called for each of its keys, and the cursor is moved. 1: there is more,
 * 0: that was all; or an errno: the cursor is where it was. -EIO also: the server's table changes
 * too fast to be listed (bypass).
 */
typedef void gn_kv_key_fn(const struct gn_kv_key *key, void *arg);
GN_API int gn_kv_scan(struct gn_kv_client *client, struct gn_kv_cursor *cursor, gn_kv_key_fn *fn,
		      void *arg, uint64_t deadline_ns);

/*
 * … or as an operation, GN_KV_SCAN, whose key is the cursor (all of its bytes), and whose room, of
 * at least GN_KV_PAGE_MIN bytes, gets the page. When it has ended: the next key from *at on, which
 * is 0 for the first; false: there are no more in it. And the cursor to go on with; false: that was
 * all.
 */
#define GN_KV_PAGE_MIN 16384u
GN_API bool gn_kv_page_next(const struct gn_kv_op *op, uint32_t *at, struct gn_kv_key *out);
GN_API bool gn_kv_page_more(const struct gn_kv_op *op, struct gn_kv_cursor *next);

/* What this client has done. */
struct gn_kv_counters {
	size_t size; /* sizeof(struct gn_kv_counters) */
	uint64_t ops;
	uint64_t ended[GN_KV_STATUSES];
	uint64_t messages;		   /* with requests, that were sent */
	uint64_t bypass_gets;		   /* GETs by reading */
	uint64_t entry_reads, value_reads; /* … and what was read for them */
	uint64_t torn;			   /* read while it was written, and read again */
	uint64_t fell_back;		   /* GETs that called the server in the end */
	uint64_t reconnects;
};
GN_API int gn_kv_client_counters(const struct gn_kv_client *client, struct gn_kv_counters *out);
/* The calls of a partition, for its counters, choices and metrics; NULL: there is none now. */
GN_API struct gn_rpc_client *gn_kv_client_rpc(const struct gn_kv_client *client,
					      uint32_t partition);

#ifdef __cplusplus
}
#endif

#endif
