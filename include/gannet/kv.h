/* SPDX-License-Identifier: MIT */
/*
 * gannet/kv.h - a key-value store over RDMA.
 *
 * Each thread of a server owns one partition of the keys; no other thread touches that partition. A
 * client maps a key to its partition by the key's hash and calls the owning thread through
 * gannet/rpc.h. A server with the bypass option also exports its memory: clients then execute GETs
 * with one-sided READs, and only operations that change the store call the server.
 *
 * The store is a cache. An item is removed when its time to live ends, when memory is full (the
 * least recently used items first), and when the server ends.
 *
 * A client must be used by the thread that opened it. A store must be used by one thread at a time.
 * Functions return 0 or a negative errno; the outcome of an operation is in its status member.
 *
 * A deadline_ns is an absolute time of gn_now_ns(). GN_FOREVER and 0 mean no deadline; GN_NO_WAIT
 * means do not wait.
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
#define GN_KV_MEMORY_MIN  (256u << 10) /* per partition */
#define GN_KV_MEMORY_MAX  (16ull << 30)
/*
 * The largest value is this fraction of a partition's memory: a quarter, or a sixteenth with
 * bypass.
 */
#define GN_KV_VALUE_PART	4u
#define GN_KV_VALUE_PART_BYPASS 16u
#define GN_KV_GATHER_MAX	1024u /* operations per message */

enum gn_kv_status {
	GN_KV_OK,
	GN_KV_MISS,	  /* the key does not exist */
	GN_KV_EXISTS,	  /* the item's version differs from cas */
	GN_KV_NOT_STORED, /* ADD: the key exists; REPLACE, APPEND, PREPEND: it does not */
	GN_KV_NOT_NUMBER, /* INCR, DECR: the value does not begin with a 64-bit number */
	GN_KV_TOO_BIG,	  /* the value exceeds max_value, or room_bytes of a GET (see len) */
	GN_KV_NO_MEMORY,  /* memory is full and no item can be evicted */
	GN_KV_INVALID,	  /* the server does not support the operation */
	GN_KV_TIMEOUT,	  /* no response by the deadline; the operation may be executed */
	GN_KV_GONE,	  /* not connected; the operation may have been executed */
	GN_KV_BUSY,	  /* the server drains or is at a limit; not executed */
	GN_KV_FAILED,	  /* any other error; the operation may have been executed */
	GN_KV_STATUSES
};
/* Returns a static string, never NULL. */
GN_API const char *gn_kv_status_str(unsigned status);

enum gn_kv_verb {
	GN_KV_GET,
	GN_KV_SET,
	GN_KV_ADD,     /* store only if the key does not exist */
	GN_KV_REPLACE, /* store only if the key exists */
	GN_KV_APPEND,  /* append to the existing value */
	GN_KV_PREPEND,
	GN_KV_DELETE,
	GN_KV_INCR, /* wraps at 64 bits */
	GN_KV_DECR, /* stops at 0 */
	GN_KV_TOUCH,
	GN_KV_SCAN, /* list a page of keys: see gn_kv_scan() */
	GN_KV_VERBS
};

/* Options of an operation: gn_kv_op.how is a bitwise OR of these. */
enum gn_kv_how {
	GN_KV_IF_CAS = 1 << 0,	  /* only if the version equals cas; else EXISTS or MISS */
	GN_KV_SET_CAS = 1 << 1,	  /* store the item with version new_cas */
	GN_KV_NO_VALUE = 1 << 2,  /* GET: return everything except the value */
	GN_KV_AND_TOUCH = 1 << 3, /* GET, INCR, DECR: set the time to live to ttl_s */
	GN_KV_CREATE = 1 << 4,	  /* INCR, DECR: on a miss store initial with ttl create_s */
	GN_KV_VIVIFY = 1 << 5,	  /* GET: on a miss store an empty value with ttl create_s */
	GN_KV_RECACHE = 1 << 6,	  /* GET: if less than recache_s is left, one client gets WON */
	/*
	 * DELETE: keep the item and mark it STALE. SET with IF_CAS: if cas is not 0 and older than
	 * the item's version, store the value, mark it STALE and keep its time to live.
	 */
	GN_KV_INVALIDATE = 1 << 7,
	GN_KV_QUIET = 1 << 8,	/* GET: do not count this as a use of the item */
	GN_KV_DETAILS = 1 << 9, /* GET: return cas, ttl_s and idle_s as well */
	/* GET with RECACHE and AND_TOUCH: compare recache_s with the time left before the touch. */
	GN_KV_RECACHE_FIRST = 1 << 10,
	GN_KV_UNCOUNTED = 1 << 11, /* GET: do not count the operation in gn_kv_stats */
};

/* What the operation found: gn_kv_op.found is a bitwise OR of these. */
enum gn_kv_found {
	GN_KV_STALE = 1 << 0,
	GN_KV_WON = 1 << 1,	   /* this client must renew the item */
	GN_KV_LOST = 1 << 2,	   /* another client renews the item */
	GN_KV_HIT_BEFORE = 1 << 3, /* the item was read since it was stored */
	GN_KV_CREATED = 1 << 4,	   /* the item was created by VIVIFY or CREATE */
};

#define GN_KV_TTL_NONE UINT32_MAX /* out: the item does not expire */
#define GN_KV_TTL_PAST UINT32_MAX /* in: the item expires at once */

/*
 * An operation. Zero the struct, then set the members that the verb needs. The library owns the
 * struct and the memory it points to until the operation has completed.
 */
struct gn_kv_op {
	enum gn_kv_verb verb;
	unsigned how; /* enum gn_kv_how, ORed */
	const void *key;
	uint32_t key_len;
	uint32_t value_len; /* in: bytes of value */
	const void *value;
	void *room; /* GET: buffer that receives the value */
	uint32_t room_bytes;
	uint32_t flags; /* in and out: opaque to the store, kept with the value */
	uint32_t ttl_s; /* in: seconds, 0 for no expiry; out: seconds left, or GN_KV_TTL_NONE */
	uint32_t create_s, recache_s;
	uint64_t cas;	  /* in: for IF_CAS; out: the item's version (GET: with DETAILS) */
	uint64_t new_cas; /* for SET_CAS */
	uint64_t number;  /* INCR, DECR: in: the delta; out: the new number */
	uint64_t initial;
	/* for gn_kv_submit() */
	uint64_t deadline_ns;
	void (*done)(struct gn_kv_op *op);
	void *arg;
	/* out, valid when the operation has completed */
	unsigned status; /* enum gn_kv_status */
	unsigned found;	 /* enum gn_kv_found, ORed */
	uint32_t len;	 /* bytes of the stored value */
	/* seconds since the last use; up to 8 s too many while memory is not short */
	uint32_t idle_s;
	/*
	 * GET with DETAILS, INCR, DECR: ttl_s before this operation; TTL_NONE if the item was
	 * CREATED.
	 */
	uint32_t was_ttl_s;
	/* private */
	union {
		struct gn_kv_op *next; /* client */
		const void *line;      /* store */
	};
	uint64_t hash;
	uint32_t part, step;
	struct gn_rpc_op rpc; /* client */
};

/* ---- local store ---- */

struct gn_kv_store;

struct gn_kv_store_opts {
	size_t size;	    /* sizeof(struct gn_kv_store_opts) */
	uint64_t memory;    /* bytes for values, keys and index; 0: 64 MiB */
	uint32_t max_value; /* 0: GN_KV_VALUE_MAX or what memory allows; larger is -EINVAL */
	uint64_t seed;	    /* of the hash; 0: random */
};

GN_API int gn_kv_store_create(const struct gn_kv_store_opts *opts, struct gn_kv_store **out);
GN_API void gn_kv_store_destroy(struct gn_kv_store *store);
/* Executes n operations in order. done is not called. Lookups of several operations overlap. */
GN_API void gn_kv_store_do(struct gn_kv_store *store, struct gn_kv_op *ops, unsigned n);
/* Removes all items now, or after delay_s seconds. */
GN_API void gn_kv_store_clear(struct gn_kv_store *store, uint32_t delay_s);

/* Statistics of a store, or the sum over a server's partitions. */
struct gn_kv_stats {
	size_t size;			 /* sizeof(struct gn_kv_stats) */
	uint64_t items, item_bytes;	 /* stored now; bytes include all overhead */
	uint64_t memory, used;		 /* limit and use, in bytes */
	uint64_t buckets, spare_lines;	 /* of the index; bypass: table entries, and 0 */
	uint64_t gets, hits, misses;	 /* GETs without AND_TOUCH */
	uint64_t touches, touch_misses;	 /* TOUCH, and GET with AND_TOUCH: hits, misses */
	uint64_t sets, stored;		 /* requested; new items, by any operation */
	uint64_t deletes, delete_misses; /* delete_misses: includes version mismatches */
	uint64_t numbers;		 /* INCR and DECR requested */
	uint64_t incr_hits, incr_misses;
	uint64_t decr_hits, decr_misses;
	uint64_t cas_ok, cas_bad, cas_misses; /* SET and REPLACE with IF_CAS */
	uint64_t evicted_bucket;	      /* least recently used item of a bucket */
	uint64_t evicted_log;		      /* items of the oldest part of the log */
	uint64_t evicted_unfetched;	      /* of both: never read */
	uint64_t evicted_ttl;		      /* of both: had a time to live */
	uint64_t evicted_idle_s;    /* idle time of the last evicted item; in a sum the maximum */
	uint64_t expired;	    /* removed after their time to live */
	uint64_t expired_get;	    /* of these: by an operation on that key */
	uint64_t expired_unfetched; /* of these: never read */
	uint64_t clears;
	uint64_t too_big; /* values rejected because of their size */
	uint64_t moved;	  /* bytes, by compaction */
	uint64_t splits;  /* of buckets; bypass: times that the table grew */
	uint64_t kicks;	  /* bypass: entries displaced by an insertion */
	uint64_t no_memory;
	uint64_t partitions;
	uint64_t uptime_s;
};
GN_API int gn_kv_store_stats(struct gn_kv_store *store, struct gn_kv_stats *out);

/* ---- server ---- */

struct gn_kv_server;

struct gn_kv_server_opts {
	size_t size;	    /* sizeof(struct gn_kv_server_opts) */
	unsigned threads;   /* one partition each; 0: 1 */
	uint64_t memory;    /* of all partitions; 0: 64 MiB per partition */
	uint32_t max_value; /* as in gn_kv_store_opts, per partition */
	bool bypass;	    /* clients may execute GETs with one-sided READs */
	/* The library sets size and threads. GN_RPC_POLLED requires threads == 1. */
	struct gn_rpc_server_opts rpc;
};

GN_API int gn_kv_server_create(struct gn_fabric *fabric, const char *addr,
			       const struct gn_kv_server_opts *opts, struct gn_kv_server **out);
GN_API int gn_kv_server_start(struct gn_kv_server *server);
/* Same as gn_rpc_server_drain(). */
GN_API int gn_kv_server_drain(struct gn_kv_server *server, uint64_t deadline_ns);
GN_API void gn_kv_server_destroy(struct gn_kv_server *server);
/* For a GN_RPC_POLLED server: same as gn_rpc_server_source(). Serve with gn_rpc_server_poll(). */
GN_API struct gn_source *gn_kv_server_source(struct gn_kv_server *server);
/* The underlying RPC server, for gn_rpc_server_counters() and gn_rpc_server_metrics(). */
GN_API struct gn_rpc_server *gn_kv_server_rpc(struct gn_kv_server *server);

/* ---- client ---- */

struct gn_kv_client;

enum gn_kv_client_flag {
	GN_KV_CALL_ONLY = 1 << 0, /* never bypass the server, not even for GETs */
	GN_KV_PAPER = 1 << 1,	  /* bypass as in Pilaf: one entry and its item at a time */
	/* Reconnect after the connection broke: see gn_kv_do() and gn_kv_poll(). */
	GN_KV_RECONNECT = 1 << 2,
};

struct gn_kv_client_opts {
	size_t size;		       /* sizeof(struct gn_kv_client_opts) */
	unsigned flags;		       /* enum gn_kv_client_flag */
	unsigned gather;	       /* max. operations per message; 0: from rpc.batch, or 64 */
	struct gn_rpc_client_opts rpc; /* the library sets size, thread and ctx */
};

/*
 * Connects to all partitions of a server. Errors are those of gn_rpc_client_open(). -EPROTO: the
 * server is not a kv server; -EBUSY: the server is shutting down. opts may be NULL.
 */
GN_API int gn_kv_client_open(struct gn_fabric *fabric, const char *addr,
			     const struct gn_kv_client_opts *opts, struct gn_kv_client **out);
/*
 * Hand a client over to another thread, as gn_rpc_client_release() and gn_rpc_client_adopt() do. No
 * operation may be outstanding. The owner must release or close the client before its thread ends;
 * afterwards no thread can adopt or close it.
 */
GN_API int gn_kv_client_release(struct gn_kv_client *client);
GN_API int gn_kv_client_adopt(struct gn_kv_client *client);
/* Completes outstanding operations with GN_KV_GONE. client may be NULL. */
GN_API int gn_kv_client_close(struct gn_kv_client *client);

struct gn_kv_limits {
	size_t size; /* sizeof(struct gn_kv_limits) */
	uint32_t partitions, max_value;
	bool bypass; /* this client's GETs bypass the server */
};
GN_API int gn_kv_client_limits(const struct gn_kv_client *client, struct gn_kv_limits *out);

/*
 * Executes n operations and waits for all of them until the deadline. Returns 0; each operation has
 * its own status. Operations for one partition share messages; operations on one key are executed
 * in order. With GN_KV_RECONNECT a disconnected client reconnects first; operations that were
 * outstanding when the connection broke complete with GN_KV_GONE. done is not called.
 */
GN_API int gn_kv_do(struct gn_kv_client *client, struct gn_kv_op *ops, unsigned n,
		    uint64_t deadline_ns);

/*
 * Starts an operation. Never blocks. done is called from gn_kv_poll() or from any later call on
 * this client; also from within gn_kv_submit() if it detects a disconnect. done may submit
 * operations; functions that wait, poll or close return -EDEADLK there.
 *
 * -EAGAIN: too many operations are outstanding. -EMSGSIZE: the value is too large for any store or
 * for this connection. -ENOTCONN: the connection broke; with GN_KV_RECONNECT, gn_kv_poll()
 * reconnects and later submissions succeed.
 */
GN_API int gn_kv_submit(struct gn_kv_client *client, struct gn_kv_op *op);
/* Sends the operations gathered so far. */
GN_API int gn_kv_flush(struct gn_kv_client *client);
/*
 * Sends gathered operations and makes progress. Returns the number of completed operations. Never
 * blocks. With GN_KV_RECONNECT it also reconnects, step by step, once no operation is outstanding.
 */
GN_API int gn_kv_poll(struct gn_kv_client *client);
/*
 * Polls until at least one operation has completed. Returns the number of completed operations, 0
 * if none is outstanding, -ETIMEDOUT or -EINTR.
 */
GN_API int gn_kv_wait(struct gn_kv_client *client, uint64_t deadline_ns);

/*
 * A source for gn_wait(), or through gn_source_fd() for another event loop. The source is ready
 * when gn_kv_poll() should be called, also to reconnect. Without GN_KV_RECONNECT the source is
 * never ready again after the poll that detects the disconnect; then gn_kv_poll() and gn_kv_wait()
 * return 0, and gn_kv_submit() returns -ENOTCONN.
 */
GN_API struct gn_source *gn_kv_client_source(struct gn_kv_client *client);

/*
 * Synchronous calls for the common cases. Return 0, -ENOENT, -EEXIST, -EFBIG, -ETIMEDOUT,
 * -ENOTCONN, …
 */
GN_API int gn_kv_get(struct gn_kv_client *client, const void *key, uint32_t key_len, void *room,
		     uint32_t room_bytes, uint32_t *len, uint64_t deadline_ns);
GN_API int gn_kv_set(struct gn_kv_client *client, const void *key, uint32_t key_len,
		     const void *value, uint32_t value_len, uint32_t ttl_s, uint64_t deadline_ns);
GN_API int gn_kv_del(struct gn_kv_client *client, const void *key, uint32_t key_len,
		     uint64_t deadline_ns);
/*
 * Removes all items of all partitions, now or after delay_s seconds. A partition checks its clock
 * when it is called: until then, clients that bypass the server may still read removed items.
 */
GN_API int gn_kv_clear(struct gn_kv_client *client, uint32_t delay_s, uint64_t deadline_ns);
/* Statistics of one partition, or with GN_KV_ALL their sum. */
#define GN_KV_ALL UINT32_MAX
GN_API int gn_kv_client_stats(struct gn_kv_client *client, uint32_t partition,
			      struct gn_kv_stats *out, uint64_t deadline_ns);

/* Asynchronous versions of the two functions above. */
enum gn_kv_control_verb {
	GN_KV_CONTROL_CLEAR, /* gn_kv_clear() */
	GN_KV_CONTROL_STATS, /* gn_kv_client_stats() of GN_KV_ALL */
};

/*
 * A control request to all partitions. Zero the struct first. The library owns the struct until
 * done is called.
 */
struct gn_kv_control {
	enum gn_kv_control_verb verb;
	uint32_t delay_s; /* CLEAR */
	uint64_t deadline_ns;
	void (*done)(struct gn_kv_control *control);
	void *arg;
	/* out, valid in done */
	int error; /* 0, -ETIMEDOUT, -ENOTCONN, …; on error some partitions may have executed it */
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
 * Starts a control request. done is called under the same rules as for gn_kv_submit(). -ENOTCONN:
 * the connection broke.
 */
GN_API int gn_kv_control_submit(struct gn_kv_client *client, struct gn_kv_control *control);

/*
 * A scan lists the keys of all partitions, one page at a time. The server keeps no state of a scan.
 * Start with a zeroed cursor and pass the cursor of each page to the next call. The scan returns
 * every key that exists throughout the scan at least once, whatever is stored, deleted or moved
 * meanwhile. Other keys may be returned, and any key may be returned more than once.
 */
struct gn_kv_cursor {
	uint64_t opaque[3];
};

struct gn_kv_key {
	const void *key; /* valid as long as the page */
	uint32_t key_len;
	uint32_t len; /* bytes of the value */
	uint32_t flags, ttl_s, idle_s;
	unsigned found; /* GN_KV_STALE, LOST, HIT_BEFORE */
	uint64_t cas;
};

/*
 * Reads one page, synchronously: calls fn for each key and advances the cursor. Returns 1 if more
 * pages follow, 0 at the end, or a negative errno, which leaves the cursor unchanged. -EIO: the
 * server's table changes too fast for a scan (bypass).
 */
typedef void gn_kv_key_fn(const struct gn_kv_key *key, void *arg);
GN_API int gn_kv_scan(struct gn_kv_client *client, struct gn_kv_cursor *cursor, gn_kv_key_fn *fn,
		      void *arg, uint64_t deadline_ns);

/*
 * A page can also be read with the operation GN_KV_SCAN: key is the whole cursor, and room, of at
 * least GN_KV_PAGE_MIN bytes, receives the page. After completion gn_kv_page_next() returns the key
 * at *at and advances *at, which starts at 0; false at the end of the page. gn_kv_page_more()
 * returns the cursor of the next page; false if there is none.
 */
#define GN_KV_PAGE_MIN 16384u
GN_API bool gn_kv_page_next(const struct gn_kv_op *op, uint32_t *at, struct gn_kv_key *out);
GN_API bool gn_kv_page_more(const struct gn_kv_op *op, struct gn_kv_cursor *next);

/* Counters of a client. */
struct gn_kv_counters {
	size_t size; /* sizeof(struct gn_kv_counters) */
	uint64_t ops;
	uint64_t ended[GN_KV_STATUSES];
	uint64_t messages;		   /* request messages sent */
	uint64_t bypass_gets;		   /* GETs executed with READs */
	uint64_t entry_reads, value_reads; /* READs of entries and of items */
	uint64_t torn;			   /* READs that raced with a write and were repeated */
	uint64_t fell_back;		   /* bypass GETs that called the server in the end */
	uint64_t reconnects;
};
GN_API int gn_kv_client_counters(const struct gn_kv_client *client, struct gn_kv_counters *out);
/*
 * The RPC client of a partition, for its counters, choices and metrics. NULL if it is not
 * connected.
 */
GN_API struct gn_rpc_client *gn_kv_client_rpc(const struct gn_kv_client *client,
					      uint32_t partition);

#ifdef __cplusplus
}
#endif

#endif
