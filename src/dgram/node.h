/* SPDX-License-Identifier: MIT */
/*
 * A node: what its endpoints share. The control thread owns handshakes and all changes of remote
 * nodes and associations; endpoints look at them under the lock, and learn of changes by tasks.
 *
 * An *association* is what a handshake makes: the epoch of two nodes, the UD addresses of the other
 * node's threads, and the index by which each node knows it.
 */
#ifndef GN_DGRAM_NODE_H
#define GN_DGRAM_NODE_H

#include "dgram/wire.h"
#include "gannet/exec.h"
#include "link/link.h"

struct dgram_assoc;

struct dgram_method {
	gn_dgram_handler *fn;
	gn_dgram_prefetch *prefetch;
	void *arg;
	unsigned flags;
	bool reported; /* atomic: an error of the handler was logged */
};

/* Another node: named by its address, or known by an association only. */
struct dgram_remote {
	struct gn_dgram_node *node;
	char addr[GN_DGRAM_ADDR_MAX]; /* "": it does not listen */
	uint64_t incarnation;	      /* of the last hello; 0: none yet */
	uint64_t attempt;	      /* … its number */
	uint64_t own_incarnation;     /* as this node says to it, if this node has no address */
	struct dgram_assoc *assoc;    /* for calls; NULL: none */
	bool opened;		      /* an endpoint has named it: it stays */
	bool unverified; /* it names an address, which may be another node's: addr is "" */
	char claim[GN_DGRAM_ADDR_MAX]; /* unverified: the address */
	bool connecting;	       /* by this node */
	struct link_backoff backoff;
	uint64_t failing_ns; /* the first handshake that failed since one succeeded; 0: none */
	bool reported;	     /* … and the log says so */
	uint32_t n_assocs;
	/*
	 * From endpoints to the control thread; atomic: an epoch to check, one that a peer cannot
	 * use for its calls, because a second peer of the same thread has it, and one that the
	 * remote node has ended.
	 */
	uint64_t check_epoch, renew_epoch, ended_epoch;
	bool wanted, gone; /* atomic: the task is posted; end all epochs */
	uint32_t n_gone;   /* atomic: how often gn_dgram_peer_gone() was called */
	struct link_task want;
	struct dgram_remote *next, **prev;
};

/* An association at one endpoint. */
struct dgram_assoc_end {
	struct dgram_assoc *assoc;
	struct gn_dgram_endpoint *ep;
	struct gn_dgram_peer **peers; /* of the remote threads; the endpoint's */
	struct link_task up, down;
	/* The last survey's; atomic: the last datagram of the remote node, and whether it stays. */
	uint64_t heard_ns;
	bool in_use;
};

struct dgram_assoc {
	struct gn_dgram_node *node;
	struct dgram_remote *remote;
	uint64_t epoch;
	uint64_t incarnation; /* of the remote node */
	bool initiated;	      /* by this node */
	bool dead;
	bool evicted; /* not by the remote node: it is told */
	bool bye;     /* the remote node was told */
	/*
	 * atomic: the remote node knows it, too. An acceptor learns that from the first datagram
	 * or by a check, and calls only then: the initiator may not have received the reply.
	 */
	bool confirmed;
	uint32_t index, remote_index; /* its numbers here and there */
	uint32_t threads;
	uint32_t datagram_bytes; /* longest that the remote node receives */
	uint32_t refs;		 /* atomic: endpoints that still use it */
	uint64_t made_ns;
	struct dgram_assoc *next, **prev;
	struct dgram_assoc_end *ends; /* of all endpoints */
	struct gn_ud_addr addr[];     /* of the remote threads */
};

#define DGRAM_VERIFY_RATES 256u

/* How often addresses of the same hash were asked whether they have sent a hello. */
struct dgram_verify_rate {
	uint64_t since_ns;
	uint32_t n;
};

struct gn_dgram_node {
	struct gn_fabric *fabric;
	struct gn_dgram_opts opts;
	struct gn_attr attr;
	char addr[GN_DGRAM_ADDR_MAX];
	uint64_t incarnation;
	struct gn_mutex lock; /* remotes, assocs, endpoints */
	struct dgram_remote *remotes;
	struct dgram_assoc *assocs, *dead;
	bool *indices;	  /* opts.max_peers: the index of an association is taken */
	uint32_t n_peers; /* threads of all associations, or one each if GN_DGRAM_MAPPED */
	struct gn_dgram_endpoint *endpoints[GN_DGRAM_THREADS_MAX];
	struct gn_ud_addr thread_addr[GN_DGRAM_THREADS_MAX];
	uint32_t n_endpoints;
	bool had_endpoints;
	bool any_prefetch;
	uint32_t n_remotes;
	struct gn_dgram_node_stats stats; /* counters: written by the control thread */
	/* the control thread */
	struct link_loop loop;
	struct link_task wake;
	struct gn_thread *thread;
	struct gn_listener *listener;
	struct gn_pd *pd;
	struct gn_mem *mem; /* hellos of all handshakes */
	struct gn_mr *mr;
	struct dgram_conn **conns; /* opts.max_handshakes */
	uint64_t attempts;
	struct dgram_verify_rate verify_rates[DGRAM_VERIFY_RATES];
	uint64_t survey; /* the number of the last survey; 0: none yet */
	uint64_t survey_ns;
	bool stop; /* atomic */
	struct dgram_method methods[GN_DGRAM_METHODS_MAX];
};

/* ---- handshake.c ---- */

int dgram_control_start(struct gn_dgram_node *node);
void dgram_control_stop(struct gn_dgram_node *node);

/* ---- remote.c: the node's lock is held ---- */

/* The remote node at addr, made if need be; NULL: no memory, or too many. "": always a new one. */
struct dgram_remote *dgram_remote_get(struct gn_dgram_node *node, const char *addr);
/* … if it is known; NULL: it is not, or addr is "". */
struct dgram_remote *dgram_remote_find(struct gn_dgram_node *node, const char *addr);
/* Frees a remote node without a use. */
void dgram_remote_put(struct dgram_remote *remote);
/* Any thread, without the lock: the control thread shall see to the remote node. */
void dgram_remote_want(struct dgram_remote *remote);
/*
 * Control thread: makes the association that hellos of both sides describe, and tells the
 * endpoints. index: from dgram_index_take(). NULL: no memory.
 */
struct dgram_assoc *dgram_assoc_add(struct dgram_remote *remote, const struct dgram_hello *hello,
				    uint64_t epoch, bool initiated, uint32_t index);
/* Control thread: ends the association, and tells the endpoints. */
void dgram_assoc_end(struct dgram_assoc *assoc);
/* Control thread: frees associations that no endpoint uses, and remote nodes without a use. */
void dgram_assocs_sweep(struct gn_dgram_node *node);
/* An index for a new association; -ENOSPC: max_peers. */
int dgram_index_take(struct gn_dgram_node *node, uint32_t *out);
/* How many peers an association adds to each endpoint. */
uint32_t dgram_assoc_peers(const struct gn_dgram_node *node, uint32_t threads);

/* ---- evict.c ---- */

/*
 * Control thread, with the lock: a limit is reached. Evicts idle associations, as far as it is
 * known which are; or asks the endpoints. The caller tries again later.
 */
void dgram_evict(struct gn_dgram_node *node);
/* At an endpoint: says which associations are idle. */
void dgram_evict_survey(struct link_task *task);

/* ---- peer.c: at an endpoint ---- */

void dgram_peer_assoc_up(struct link_task *task);
void dgram_peer_assoc_down(struct link_task *task);

#endif
