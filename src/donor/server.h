/* SPDX-License-Identifier: MIT */
/*
 * A donor's inside. Three kinds of threads share its tables under one lock:
 *
 *     serving threads (rpc)   calls.c    check control calls, answer them or queue a job
 *     worker                  worker.c   slabs and regions: everything that takes long. It alone
 *                                        creates and frees sessions, shares and slabs.
 *     data thread             attach.c   accepts and closes data connections; leases and pressure
 *                             lease.c
 *
 * No thread waits for a peer while it holds the lock. One-sided accesses need none of the threads.
 *
 *     slab:    NONE ─ FILLING ─ READY ─ GRANTED ─ ENDING ─ NONE (with another mem)
 *     access:  OPEN ─ ENDING ─ freed: when its connections, shares and slabs are gone
 *
 * What ends is only marked by other threads: the data thread closes the connections, then the
 * worker deregisters and frees.
 */
#ifndef GN_DONOR_SERVER_H
#define GN_DONOR_SERVER_H

#include "donor/wire.h"
#include "gannet/exec.h"
#include "gannet/rpc.h"
#include "link/link.h"

#define DONOR_CLIENT_DEFERRED_MAX 16u	/* deferred calls of one session */
#define DONOR_DEFERRED_MAX	  1024u /* … and of all; NOTICE does not count: one per session */
#define DONOR_TAKEN_MAX		  16u	/* forced losses that a session is told one by one */

struct donor_conn;

struct donor_channel {
	struct donor_conn *conn;
	uint32_t generation; /* the last that was accepted */
};

enum donor_access_state { ACCESS_OPEN, ACCESS_ENDING };

/* The holder of a token: a session or a share, with its data connections. */
struct donor_access {
	uint8_t token[IO_TOKEN_BYTES];
	enum donor_access_state state;
	struct gn_pd *pd;
	unsigned n_conns;
	uint32_t epoch; /* of the client that connected last */
	struct donor_channel channels[IO_CHANNELS_MAX];
};

struct donor_session {
	struct donor_access access;
	uint64_t number;
	char owner[GN_DONOR_OWNER];
	uint64_t client; /* gn_rpc_request_client() of its control connection; 0: none */
	struct gn_mem *lease_mem;
	struct gn_mr *lease_mr;
	uint64_t renewed;   /* the lease's counter, when it was last read */
	uint64_t active_ns; /* last sign of life */
	uint64_t alone_ns;  /* since when it has no connection; 0: it has one */
	unsigned n_slabs, n_shares, n_deferred;
	bool leaving_told;
	struct gn_rpc_request *notice;
	uint64_t taken[DONOR_TAKEN_MAX]; /* to be told */
	unsigned n_taken;		 /* may exceed the array */
};

enum donor_slab_state { SLAB_NONE, SLAB_FILLING, SLAB_READY, SLAB_GRANTED, SLAB_ENDING };

struct donor_slab {
	uint64_t id; /* of the grant */
	enum donor_slab_state state;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct donor_session *session;
	unsigned n_shares;
	size_t filled;
	uint64_t granted_ns;
	uint64_t used, heat; /* the client's counter when last read; recent use */
	uint64_t asked_ns;   /* deadline to return it; 0: not asked */
	bool asked_told;
	struct gn_rpc_request *release; /* the call that waits for its end */
};

struct donor_share {
	struct donor_access access;
	struct donor_session *session;
	struct donor_slab *slab;
	uint64_t length;
	uint32_t rights;
	struct gn_mr *mr;
	struct gn_rpc_request *revoke;
};

struct donor_job {
	struct donor_job *next;
	unsigned method; /* HELLO, GRANT, SHARE */
	struct gn_rpc_request *request;
	struct donor_session *session;
	union {
		struct donor_hello hello;
		struct donor_share_request share;
	};
};

struct donor_jobs {
	struct donor_job *first, **last;
	unsigned n;
};

struct gn_donor_server {
	struct gn_fabric *fabric;
	uint64_t creator;		  /* gn_thread_id(): is this a forked child? */
	struct gn_donor_server_opts opts; /* all set */
	uint64_t incarnation, started_ns;
	char data_name[DONOR_DATA_NAME], data_addr[DONOR_ADDR_MAX];
	struct gn_rpc_server *rpc;

	struct gn_mutex lock; /* for all below, but the loop */
	struct gn_cond work, idle;
	bool leaving;  /* no new sessions and grants */
	bool stopping; /* calls are refused */
	uint64_t leave_ns;
	struct donor_session **sessions;
	struct donor_share **shares;
	struct donor_slab *slabs;
	unsigned n_sessions, n_shares, n_slabs;
	unsigned n_hellos;		/* jobs that will create a session */
	struct donor_jobs jobs, grants; /* grants wait for a slab */
	unsigned n_deferred;
	uint64_t last_session, last_slab;
	bool pressure;
	uint64_t pressure_log_ns; /* not logged again before */
	uint64_t fill_ns;	  /* no memory until then */
	struct gn_donor_stats counts;

	struct gn_thread *worker, *data;
	bool stop_worker;
	struct link_loop loop; /* of the data thread */
	struct gn_listener *listener;
	struct link_timer tick;
	uint64_t ticked_ns, tick_ns;
	unsigned n_conns; /* data thread only */
	struct link_task close_task, stop_task;
	uint32_t close_posted; /* atomic */
	bool stop_data;	       /* data thread only */
};

/* ---- calls.c ---- */

int donor_calls_register(struct gn_donor_server *server);
/* A gn_rpc_peer_fn. */
void donor_client_changed(void *arg, uint64_t client, bool came);
/* Answers a HELLO call with the session; with the lock held. */
void donor_answer_hello(const struct gn_donor_server *server, const struct donor_session *session,
			struct gn_rpc_request *request);

/* ---- session.c: with the lock held ---- */

struct donor_session *donor_session_by_client(const struct gn_donor_server *server,
					      uint64_t client);
/* NULL: unknown, expired or ended. */
struct donor_session *donor_session_by_token(const struct gn_donor_server *server,
					     const uint8_t *token);
struct donor_share *donor_share_by_token(const struct gn_donor_server *server,
					 const uint8_t *token);
struct donor_slab *donor_slab_by_id(const struct gn_donor_server *server,
				    const struct donor_session *session, uint64_t id);
/* After its connections changed: notes since when the session has none. */
void donor_session_connected(struct gn_donor_server *server, struct donor_session *session);
void donor_session_end(struct gn_donor_server *server, struct donor_session *session);
void donor_slab_end(struct gn_donor_server *server, struct donor_slab *slab);
void donor_share_end(struct gn_donor_server *server, struct donor_share *share);
/* Answers the session's NOTICE call if there is something to tell. */
void donor_session_notify(struct gn_donor_server *server, struct donor_session *session);
/* Until the session ends without a sign of life. */
uint64_t donor_session_left_ns(const struct gn_donor_server *server,
			       const struct donor_session *session, uint64_t now_ns);
unsigned donor_slabs_in(const struct gn_donor_server *server, enum donor_slab_state state);

static inline uint64_t donor_use_offset(const struct gn_donor_server *server,
					const struct donor_slab *slab)
{
	return 64 + 8 * (uint64_t)(slab - server->slabs);
}

static inline size_t donor_lease_bytes(const struct gn_donor_server *server)
{
	return (64 + 8 * (size_t)server->n_slabs + GN_PAGE - 1) / GN_PAGE * GN_PAGE;
}

/* ---- worker.c ---- */

void donor_worker_main(void *arg);

static inline void donor_job_add(struct donor_jobs *jobs, struct donor_job *job)
{
	job->next = NULL;
	*jobs->last = job;
	jobs->last = &job->next;
	jobs->n++;
}

/* ---- attach.c: the data thread ---- */

int donor_data_open(struct gn_donor_server *server);
void donor_data_close(struct gn_donor_server *server);
void donor_data_main(void *arg);
/* Any thread: makes the data thread close the connections of accesses that end. */
void donor_data_kick(struct gn_donor_server *server);
void donor_data_stop(struct gn_donor_server *server);

/* ---- lease.c: the data thread ---- */

void donor_tick(struct link_timer *timer, uint64_t now_ns);
/* Before the threads start: a donor that starts under pressure grants nothing. */
void donor_pressure_begin(struct gn_donor_server *server);
/* The least used slab is asked for first, the oldest among equals. than NULL: true. */
static inline bool donor_slab_less_used(const struct donor_slab *slab,
					const struct donor_slab *than)
{
	return !than || slab->heat < than->heat ||
	       (slab->heat == than->heat && slab->id < than->id);
}
/* Is the client of a granted slab to return it? The lock is held. */
static inline bool donor_slab_asked(const struct gn_donor_server *server,
				    const struct donor_slab *slab)
{
	return slab->asked_ns || server->leaving;
}

#endif
