/* SPDX-License-Identifier: MIT */
/*
 * The shared-memory provider. Peers are processes on this host; one-sided operations are loads and
 * stores of the initiator; messages travel in rings. All work happens inside post, poll and
 * gn_chan_next(); only discard.c and serve.c have threads: one closes files of a peer that are not
 * memory, one executes accesses of peers that may not map the memory.
 * The control socket of a connection carries the handshake, the fds of memory, and wake-ups; its
 * end shows that the peer died.
 */
#ifndef GN_SHM_SHM_H
#define GN_SHM_SHM_H

#include "fabric/fabric.h"
#include "fabric/shm/ring.h"
#include "fabric/soft/soft.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <sys/un.h>

/* ---- mappings (map.c): our own memory, and memory that peers sent ---- */

/* The process at the other end of a control socket. */
enum wire_peer {
	PEER_OTHER_USER, /* of another user */
	PEER_SAME_USER,	 /* of our user, or of root */
	PEER_SELF,	 /* this process: no isolation needed */
};

#define SHM_HUGE_PAGE	(2u * 1024 * 1024)
#define SHM_LOCK_SUFFIX "~lock"
#define SHM_UD_PREFIX	"ud~" /* prefix of UD sockets; listener names have no tilde */

struct shm_map {
	struct shm_map *next;
	dev_t dev;
	ino_t ino;
	uint8_t *addr;
	size_t size;
	bool writable; /* protection of the pages */
	bool own;      /* created by us; else sent by a peer, with exactly its rights */
	uint32_t refs;
};

/* Creates a memfd and maps it writable. seal_writes: no other process can map it writable. */
int shm_map_create(const char *name, size_t size, bool huge, bool seal_writes, struct shm_map **out,
		   int *fd);
/*
 * Maps a peer's fd with the rights of the message and of the descriptor, after checking that it is
 * a memfd of this size that cannot shrink. Our own memory, sent back, is mapped separately, unless
 * the peer is this process. fd stays open.
 */
int shm_map_peer(int fd, size_t size, bool writable, enum wire_peer kind, struct shm_map **out);
void shm_map_put(struct shm_map *map);

/* ---- control socket (wire.c) ---- */
#define WIRE_MAGIC   0x54454e47u /* "GNET" */
#define WIRE_VERSION 4u

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_ACCEPT,
	WIRE_REJECT,
	WIRE_MEM,
	WIRE_FORGET,
	WIRE_WAKE,
	WIRE_UD,
	WIRE_SERVE
};

struct wire_head {
	uint32_t magic;
	uint16_t version;
	uint16_t type; /* enum wire_type */
};

/* HELLO and ACCEPT carry two fds: area and grants. REJECT carries none. */
struct wire_hello {
	struct wire_head head;
	uint32_t rq_size; /* REJECT: EMFILE, or 0: the application's reason */
	uint32_t private_len;
	uint8_t private_data[GN_PRIVATE_MAX];
	uint8_t reserved[44];
};
_Static_assert(sizeof(struct wire_hello) == 256, "fixed");

/*
 * FORGET: one entry, only its id is used. MEM: n entries and n fds. The message has only n entries.
 */
#define WIRE_MEMS 32u

struct wire_mem {
	uint64_t id;
	uint64_t size;
	uint32_t writable;
	uint32_t reserved;
};
struct wire_mems {
	struct wire_head head;
	uint32_t n;
	uint32_t reserved;
	struct wire_mem mem[WIRE_MEMS];
};
_Static_assert(sizeof(struct wire_mems) == 16 + WIRE_MEMS * 24, "fixed");

static inline size_t wire_mems_len(uint32_t n)
{
	return offsetof(struct wire_mems, mem) + n * sizeof(struct wire_mem);
}

/*
 * SERVE is a head and two fds: a socket for requests that the sender of SERVE executes (serve.c),
 * and the memory of their results.
 */
#define SERVE_CHUNK 65536u /* bytes of a request */

struct serve_request {
	uint32_t op; /* enum gn_op: WRITE, READ, CAS or FAA */
	uint32_t key;
	uint64_t offset;
	uint64_t length; /* up to SERVE_CHUNK; followed by the data of a WRITE */
	uint64_t compare, swap;
	uint64_t serial;
};
_Static_assert(sizeof(struct serve_request) == 48, "data after it is aligned");

/* In memory that the owner writes and the peer reads. */
struct serve_result {
	uint64_t serial; /* of the request; stored last with release */
	uint32_t status; /* enum gn_wc_status */
	uint32_t reserved;
	uint64_t old; /* CAS, FAA */
	uint8_t pad[40];
	uint8_t data[SERVE_CHUNK];
};
_Static_assert(offsetof(struct serve_result, data) == 64, "fixed");

/* UD carries one fd: the ring. */
struct wire_ud {
	struct wire_head head;
	uint32_t dst_qpn;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_ud) == 16, "fixed");

union wire_any {
	struct wire_head head;
	struct wire_hello hello;
	struct wire_mems mems;
	struct wire_ud ud;
};

#define WIRE_FDS 32 /* most fds of a message: WIRE_MEMS */

/* ---- limits on what a peer can make us hold; docs/limits.md ---- */

#define SHM_HELLO_NS	    2000000000ull /* time for a new client to send HELLO */
#define SHM_PENDING_MAX	    128u	  /* clients of a listener without a HELLO */
#define SHM_REQUESTS_MAX    256u	  /* clients of a listener with a HELLO, not answered yet */
#define SHM_ACCEPT_RETRY_NS 10000000ull	  /* without descriptors: until the next accept() */
/* Mems of other users' processes and their bytes: per connection, per user, of all users. */
#define SHM_CONN_MEMS	    1024u
#define SHM_CONN_BYTES	    (1ull << 40)
#define SHM_USER_MEMS	    4096u
#define SHM_USER_BYTES	    (1ull << 42)
#define SHM_ALL_USERS_MEMS  16384u
#define SHM_ALL_USERS_BYTES (1ull << 44)

/* ---- objects ---- */

/* Mappings for other users' processes. */
struct shm_quota {
	uint64_t mems, bytes;
};

struct shm_fabric {
	struct gn_fabric fabric;
	struct soft_keys keys;
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path) -
		 70];		    /* leaves space for a name of 64 bytes */
	uint64_t gid_tail;	    /* distinguishes this fabric's UD qps from all others */
	uint64_t next_mem_id;	    /* atomic */
	uint32_t next_qpn;	    /* atomic */
	struct gn_mutex grant_lock; /* of grants, conns, and the mems sent to each connection */
	uint32_t grant_serial;	    /* under grant_lock */
	/* under grant_lock: revocations of grants and connections so far */
	uint64_t revocations;
	struct shm_qp *conns;
	/*
	 * Of the serving thread (serve.c), and held while a key is removed: the thread uses no key
	 * afterwards. Taken after grant_lock.
	 */
	pthread_mutex_t serve_lock;
	struct serve_thread *serve; /* NULL: not needed so far; under grant_lock */
	bool serve_stop;	    /* atomic */
	struct gn_mutex quota_lock; /* of users and others: quota.c */
	struct shm_user *users;
	struct shm_quota others;
};

struct shm_mem {
	struct gn_mem mem;
	struct shm_map *map; /* NULL: anonymous or wrapped */
	int fd;
	uint64_t id;
};

/* A grant or connection that is being revoked: since when, and how long peers are awaited. */
struct shm_ending {
	uint64_t revocation; /* its number; 0: not being revoked */
	uint64_t deadline_ns;
};

struct shm_mr {
	struct gn_mr mr;
	struct shm_ending ending;
	struct shm_mr *next, **prev; /* regions of its pd with remote rights */
};

struct shm_pd {
	struct gn_pd pd;
	struct shm_mr *granted; /* under grant_lock */
	struct shm_map *grants; /* SOFT_KEYS entries, indexed like keys; read-only for peers */
	int grants_fd;
};

struct shm_cq {
	struct soft_cq soft;
	struct shm_qp *qps[2];	   /* qps that send, and that receive through this cq */
	struct shm_rx *hot, *cold; /* peers to poll; cold ones in turn */
	/* atomic: accepted by other threads; the owner must admit them */
	struct shm_qp *incoming;
	bool poll_all_cold; /* the next poll polls all cold peers */
	bool timer_on;
	uint32_t n_rx;
	uint32_t empty_polls;
	uint64_t checked_ns;
	uint32_t arm_generation;
	int epoll_fd;			 /* epoll set of the sockets behind this cq, or -1 */
	struct epoll_event *epoll_batch; /* events being handled */
	int n_epoll_batch;
	struct chan_fd timer; /* runs while armed with blocked sends; fd -1: not created */
};

/* A peer that a cq receives from, or a qp with blocked sends: polled by the cq. */
struct shm_rx {
	struct shm_rx *next, *prev; /* circular list; NULL: not in one */
	struct shm_cq *cq;
	bool (*progress)(struct shm_rx *self); /* true: made progress */
	const uint64_t *peek;		       /* head of the next slot; NULL: call progress() */
	uint32_t expect;		       /* its sequence number when a message is there */
	uint32_t idle;			       /* polls without progress */
	bool is_hot;
};

/*
 * A mem of the peer, by id. The rights are those that the peer sent on this connection, whatever
 * the mapping allows: other connections may share it.
 */
struct peer_mem {
	uint64_t id; /* 0: free; UINT64_MAX: tombstone */
	uint64_t size;
	bool writable;
	struct shm_map *map;
};

#define SHM_VIEWS	64u
#define SHM_SERVE_WAIT_NS 2000000000ull /* timeout of a request that the peer executes */
#define SHM_MEM_WAIT_NS 1000000000ull /* timeout of a request whose mem has not arrived */

/*
 * A grant of the peer, looked up and checked: valid while the grant has the same word. One cache
 * line each.
 */
enum view_use { VIEW_WRITE, VIEW_READ, VIEW_ATOMIC, VIEW_USES };
struct peer_view {
	uint64_t word;
	uint8_t *addr;		   /* address of the region's first byte */
	uint64_t limit[VIEW_USES]; /* accessible bytes per use; 0: none */
	uint64_t reserved[3];
};
_Static_assert(sizeof(struct peer_view) == GN_CACHELINE, "found by a shift");

/* Requests that the peer's process executes (serve.c). */
struct shm_served {
	int sock;
	bool active;  /* a work request is being executed, in parts */
	bool pending; /* the request for a part was sent, its result has not come */
	struct shm_map *map;
	const struct serve_result *result;
	struct serve_request *request; /* the last one sent */
	uint64_t serial;	       /* … and its number */
	uint64_t done;		       /* bytes of the work request, which is split */
	uint64_t since_ns;	       /* 0: nothing is awaited */
};

enum conn_phase { CONN_NONE, CONN_HELLO_SENT, CONN_UP, CONN_DOWN };

/* A connection, seen from one side. */
struct shm_conn {
	enum conn_phase phase;
	enum wire_peer peer_kind;
	struct chan_fd sock;
	/* … is in the epoll sets of the channel and, once attached, of the cqs */
	bool watched;
	struct chan_fd timer; /* while connecting */
	struct area *own_area;
	const struct area *peer;
	bool busy; /* own_area->busy is odd */
	struct shm_map *own_map, *peer_map, *grants_map;
	const struct grant *grants; /* the peer's table */
	uint32_t own_rq_size, peer_rq_size;

	/* sender: */
	struct slot *tx_slots;
	uint8_t *tx_data;
	const uint32_t *peer_sizes;
	uint64_t tx_slot, tx_data_at, tx_msg; /* positions: slots, data bytes and messages sent */
	uint64_t tx_off;		      /* offset in the message being sent */
	bool payload_done; /* the first blocked WRITE_IMM has written its payload */
	uint64_t slots_free_to, data_free_to,
		posted_known;  /* the peer's credit line as last read */
	uint64_t rnr_since_ns; /* 0: not waiting for a receive */
	uint64_t rnr_budget_ns;
	uint32_t tx_waits;     /* wake-ups for credit requested, times 2 */
	uint32_t arm_answered; /* the peer's arming that was answered last */

	/* receiver: */
	const struct slot *rx_slots;
	const uint8_t *rx_data;
	uint32_t *own_sizes;
	uint64_t rx_slot, rx_data_at;
	uint64_t slots_published, data_published; /* our credit line as last written */
	uint32_t rx_off, rx_len;		  /* of the message being received */
	bool peer_ended;			  /* deliver the messages in the ring, then fail */
	uint32_t wait_answered;			  /* the peer's tx_waiting that was answered last */

	/* the peer's memory: */
	struct peer_mem *mems;
	uint32_t mems_mask, n_mems;
	uint64_t mapped_bytes;
	struct shm_user *user; /* another user's peer: its quota account */
	struct shm_quota charged;
	struct peer_view views[SHM_VIEWS]; /* used last, by key index */
	uint64_t unmapped;		   /* mappings dropped so far; gn_fixed compares it */
	uint64_t mems_taken;		   /* mems received so far */
	bool mem_expected;		   /* the failed look-up was for a mem that will arrive */
	uint64_t mem_wait_since_ns;	   /* 0: no request waits for a mem */
	uint64_t mem_requested;		   /* mems_taken when we last asked the peer, plus 1 */
	struct shm_served served;
	/* memory we sent; under grant_lock: */
	struct serve_end *serve_end; /* the peer can send requests to our thread */
	uint64_t *sent;
	uint32_t n_sent, sent_cap;
	uint64_t mems_sent; /* so far */
	bool mems_unsent;   /* the peer's socket was full: more to send */

	/* the peer's accesses under our keys; under grant_lock, see revoke.c: */
	struct shm_ending ending;
	uint64_t quiesced_to; /* the peer has quiesced up to this revocation */
	uint64_t busy_word;   /* odd value of the peer's busy counter that must change; 0: none */
	uint64_t busy_to;     /* … then quiesced_to becomes this */
	bool abandoned;	      /* the peer is not awaited any more */

	/* while connecting: */
	struct sockaddr_un connect_addr;
	uint64_t connect_deadline_ns;
	struct wire_hello hello;
	int hello_area_fd;
};

struct shm_qp {
	struct gn_qp qp;
	const struct soft_key *keys; /* the fabric's table */
	struct soft_sq sq;
	struct soft_rq rq;
	struct shm_rx rx_send, rx_recv; /* on the send cq and on the receive cq */
	struct shm_conn conn;
	struct shm_qp *next_conn, **prev_conn;	 /* the fabric's connected qps, under grant_lock */
	struct shm_qp *next_on[2], **prev_on[2]; /* lists of its send cq and of its receive cq */
	struct shm_qp *next_incoming;
	bool on_cqs;   /* joined its cqs; before that it does not touch them */
	bool incoming; /* in its receive cq's incoming list, or about to be */
	bool detached;
	struct ud_port *ud; /* UD */
};

struct shm_ah {
	struct gn_ah ah;
	int sock;
	struct shm_map *map;
	struct ud_ring *ring;
	uint64_t slot, data_at;
	uint64_t slots_consumed, data_consumed; /* last seen; the receiver's may be higher */
	uint32_t arm_answered;
};

struct shm_listener {
	struct gn_listener listener;
	struct chan_fd sock;
	struct chan_fd timer;
	struct shm_pending *pending; /* connected, no HELLO yet; newest first */
	uint32_t n_pending, n_requests;
	uint64_t paused_to_ns; /* not 0: no descriptors, accept() is paused */
	bool full_logged;
	int lock_fd;
	int spare_fd; /* to refuse a client without descriptors; -1: none left */
	char name[65];
};

struct shm_req {
	struct gn_conn_req req;
	int sock;
	uint32_t rq_size;
	int area_fd, grants_fd;
};

static inline struct shm_fabric *shm_fabric_of(const struct gn_fabric *f)
{
	return (struct shm_fabric *)f;
}
static inline struct shm_fabric *shm_of(const struct obj *obj)
{
	return (struct shm_fabric *)obj->fabric;
}

/* ---- open.c ---- */
bool shm_name_ok(const char *name);
int shm_addr_check(struct gn_fabric *fabric, const char *name);
/* Path of a socket in the provider's directory. */
void shm_path(const struct shm_fabric *fabric, const char *name, struct sockaddr_un *out);
/* Server and client may use different directories: the client's error names its own. */
void shm_name_folder(struct gn_qp *qp, int status);

/* ---- mem.c, mr.c ---- */
int shm_mem_alloc(struct gn_mem *mem);
void shm_mem_fini(struct gn_mem *mem);
int shm_pd_init(struct gn_pd *pd);
void shm_pd_fini(struct gn_pd *pd);
int shm_mr_init(struct gn_mr *mr);
int shm_mr_revoke(struct gn_mr *mr);
void shm_mr_fini(struct gn_mr *mr);
/*
 * After the connection is set up: sends the mems granted in the qp's pd, now and later. Takes
 * grant_lock.
 */
int shm_grant_join(struct shm_qp *qp);
void shm_grant_leave(struct shm_qp *qp); /* does not wait for the peer */
/* The peer reads its socket again: sends the pending mems. */
void shm_grant_catch_up(struct shm_qp *qp);

/* ---- revoke.c: never waits; the caller holds grant_lock ---- */
/* Starts a revocation; poll its end with shm_peers_quiesced(). */
void shm_revoke(struct shm_fabric *fabric, struct shm_ending *ending);
/*
 * Have the peers of this pd (NULL: of this qp) stopped accessing what was revoked? Dead peers and
 * peers past the deadline do not count.
 */
bool shm_peers_quiesced(struct shm_fabric *fabric, const struct gn_pd *pd, struct shm_qp *qp,
			const struct shm_ending *ending);

/* ---- serve.c: requests under keys that give less than the mem's descriptor ---- */
/* The owner; the caller holds grant_lock. Starts the thread; sends a peer what it needs, once. */
int shm_serve_start(struct shm_fabric *fabric);
int shm_serve_offer(struct shm_qp *qp);
/* After this the thread executes no request of the peer. */
void shm_serve_withdraw(struct shm_qp *qp);
void shm_serve_stop(struct shm_fabric *fabric);
/* The peer: takes what it keeps of the fds of a SERVE message. */
int shm_served_take(struct shm_qp *qp, int *fds);
void shm_served_fini(struct shm_served *served);

/* ---- wire.c ---- */
struct wire_head wire_head(enum wire_type type);
/* Never blocks. -EAGAIN: the peer does not read its socket. */
int wire_send(int sock, const void *msg, size_t len, const int *fds, int n_fds);
/* Receives one message and its fds (-1: none). Returns its length, 0 at the end, or -errno. */
ssize_t wire_recv(int sock, union wire_any *msg, int fds[WIRE_FDS]);
/* … of any type, with the flags of recvmsg(). */
ssize_t wire_recv_any(int sock, void *msg, size_t size, int fds[WIRE_FDS], int *flags);
void wire_close_fds(int fds[WIRE_FDS]);
/* Shuts the socket down and closes unread fds. False: many messages are left. */
bool wire_drain(int sock);
/* Cost of a message: one, plus one per mem, which must be mapped. */
static inline uint32_t wire_cost(const union wire_any *msg)
{
	return 1 + (msg->head.type == WIRE_MEM && msg->mems.n <= WIRE_MEMS ? msg->mems.n : 0);
}
bool wire_is(const union wire_any *msg, ssize_t len, enum wire_type type, size_t want);
/* The status of a WIRE_REJECT message. */
int wire_rejected(const struct wire_hello *hello);
void wire_wake(int sock);
/* Sets the largest send buffer that the system allows. */
void wire_max_sndbuf(int sock);
/* The process at the other end. *uid (may be NULL): its user. */
enum wire_peer wire_peer(int sock, uid_t *uid);
/* Is it the same process? */
bool wire_same_peer(int sock, int other);

/* ---- discard.c: does not wait for a peer ---- */
void shm_unmap(void *addr, size_t size); /* later, if it takes long */
void shm_close_fd(int fd); /* closes an fd received from a peer; -1 is allowed */
/* Shuts down and closes a control socket and the fds of unread messages; -1 is allowed. */
void shm_close_sock(int sock);
/* … and a listening socket with its backlog. */
void shm_close_listener(int sock);

/* ---- cm.c ---- */
int shm_listen_init(struct gn_listener *listener, const char *name);
void shm_listen_fini(struct gn_listener *listener);
int shm_connect(struct gn_qp *qp, const char *name, const struct gn_conn_opts *opts);
int shm_accept(struct gn_conn_req *req, struct gn_qp *qp, const struct gn_conn_opts *opts);
int shm_reject(struct gn_conn_req *req, const void *private_data, uint32_t private_len);
int shm_disconnect(struct gn_qp *qp);

/* Stores the size of the receive at this position, before it counts as posted. */
static inline void shm_conn_publish_recv(struct shm_conn *c, uint64_t position, uint32_t len)
{
	__atomic_store_n(&c->own_sizes[position & (c->own_rq_size - 1)], len, __ATOMIC_RELAXED);
	if (unlikely(len < c->own_area->conn_state.recv_floor))
		__atomic_store_n(&c->own_area->conn_state.recv_floor, len, __ATOMIC_RELAXED);
}

/* ---- conn.c ---- */
void shm_conn_init(struct shm_conn *conn);
/* Creates our area; the caller sends area_fd and closes it. */
int shm_conn_create_area(struct shm_qp *qp, int *area_fd);
/* Finds out whose process the peer is. Call it before taking anything from the peer. */
int shm_conn_identify(struct shm_qp *qp);
/* Sends the peer the mems it may access, now and later. */
int shm_conn_join(struct shm_qp *qp);
/* Maps the peer's area and grants. */
int shm_conn_attach_peer(struct shm_qp *qp, uint32_t rq_size, int area_fd, int grants_fd);
/* Both sides are set up: the qp is ready. */
void shm_conn_ready(struct shm_qp *qp);
/*
 * Owner thread: watch the control socket in the qp's channel and cqs; start polling for messages;
 * both, for a qp that another thread accepted.
 */
int shm_conn_watch(struct shm_qp *qp);
void shm_conn_start(struct shm_qp *qp);
void shm_conn_admit(struct shm_qp *qp);
/* Owner thread: disconnects, and removes the connection from cqs and channel. */
void shm_conn_detach(struct shm_qp *qp);
/* Handles a message that does not belong to the handshake. */
int shm_conn_handle(struct shm_qp *qp, const union wire_any *msg, ssize_t len, int *fds);
/* After detach: 0 when the peer has quiesced, or -EAGAIN. Never waits. */
int shm_conn_close(struct shm_qp *qp);
/* The peer disconnected and all its messages were taken; or it cannot be watched. */
void shm_conn_disconnected(struct shm_qp *qp);
/* Frees the connection and notifies the peer. */
void shm_conn_fini(struct shm_qp *qp);
/* Reads the control socket; detects the peer's end. */
bool shm_conn_pump(struct shm_qp *qp); /* true: there may be more */
/* The peer closed the connection, or must: read nothing more. */
void shm_conn_peer_closed(struct shm_qp *qp);
/* After a wake-up: takes messages, continues blocked sends, and re-arms. */
void shm_conn_catch_up(struct shm_qp *qp);
/* Tells the peer that the receive cq is armed; that sends wait for credit. */
void shm_conn_arm(struct shm_qp *qp);
void shm_conn_await_credit(struct shm_qp *qp);
const struct peer_mem *shm_peer_mem(const struct shm_conn *conn, uint64_t id);
/* Maps an fd of the peer for reading, and charges it to the peer's quota. */
int shm_conn_map(struct shm_qp *qp, int fd, uint64_t size, struct shm_map **out);

/* ---- quota.c: limits on mappings for other users ---- */
/* Opens the account of the peer's user, if it is another user. */
int shm_quota_join(struct shm_qp *qp, uid_t uid);
/* Charges one mapping: 0 or -EDQUOT. */
int shm_quota_take(struct shm_qp *qp, uint64_t bytes);
void shm_quota_give(struct shm_qp *qp, uint64_t bytes);
/* Releases all charges and the account. */
void shm_quota_leave(struct shm_qp *qp);

/* ---- qp.c ---- */
int shm_qp_init(struct gn_qp *qp);
/* Owner thread: adds the qp to its cqs. */
void shm_qp_join(struct shm_qp *qp);
void shm_qp_adopt(struct gn_qp *qp);
void shm_qp_detach(struct gn_qp *qp);
int shm_qp_close(struct gn_qp *qp);
void shm_qp_fini(struct gn_qp *qp);
int shm_qp_error(struct gn_qp *qp);
int shm_qp_reset(struct gn_qp *qp);
/* Puts the qp in error and flushes all requests. */
void shm_qp_fail(struct shm_qp *qp);
/* A cq was overrun: puts its qps in error. */
void shm_cq_overrun(struct shm_cq *cq);
/* Queues a completion. */
static inline void shm_complete(struct shm_cq *cq, const struct gn_wc *wc, bool solicited)
{
	const bool was_overrun = cq->soft.cq.overrun;

	if (unlikely(!soft_cq_push(&cq->soft, wc, solicited) && !was_overrun))
		shm_cq_overrun(cq);
}

/* ---- post.c, send.c, recv.c ---- */
unsigned shm_post_send(struct gn_qp *qp, const struct gn_wr *wr, unsigned n);
bool shm_post_plain(struct gn_qp *qp, const struct gn_wr *wr); /* plain.c, with shm_post_one() */
int shm_post_one(struct gn_qp *qp, const struct gn_wr *wr);
/* fixed.c */
int shm_post_fixed_write(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id);
int shm_post_fixed_read(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id);
unsigned shm_post_recv(struct gn_qp *qp, const struct gn_recv_wr *wr, unsigned n);
bool shm_progress_sends(struct shm_rx *rx);
bool shm_progress_recvs(struct shm_rx *rx);

/* Sends a short SEND with one SGE if it is not blocked; false: did nothing. */
bool shm_send_short(struct shm_qp *qp, const struct gn_wr *wr);

/*
 * There is credit again: wakes a sender that asked for it, once per request. Without a fence: the
 * sender's timer covers a missed wake-up.
 */
static inline void shm_wake_sender(struct shm_conn *c)
{
	const uint32_t waits = __atomic_load_n(&c->peer->conn_state.tx_waiting, __ATOMIC_RELAXED);

	if (unlikely(waits && waits != c->wait_answered)) {
		c->wait_answered = waits;
		wire_wake(c->sock.fd);
	}
}

enum send_result { SEND_DONE, SEND_BLOCKED, SEND_FAILED };
/* Sends the message of a SEND or WRITE_IMM; *status: why it failed. */
enum send_result shm_send(struct shm_qp *qp, const struct gn_wr *wr, enum gn_wc_status *status);
/* Has the peer execute a one-sided request of len bytes, at least 1. Call again while blocked. */
enum send_result shm_served_access(struct shm_qp *qp, const struct gn_wr *wr, uint64_t len,
				   enum gn_wc_status *status);

/* No message: one load decides most polls of a peer. */
static inline bool shm_rx_empty(const struct shm_rx *rx)
{
	return rx->peek && slot_seq(__atomic_load_n(rx->peek, __ATOMIC_RELAXED)) != rx->expect;
}

static inline void shm_rx_expect(struct shm_rx *rx, const uint64_t *head, uint64_t position)
{
	rx->peek = head;
	rx->expect = (uint32_t)(position + 1);
	__builtin_prefetch(head); /* the next poll finds the line in the cache */
}

/* ---- cq.c ---- */
int shm_cq_init(struct gn_cq *cq);
void shm_cq_fini(struct gn_cq *cq);
int shm_cq_poll(struct gn_cq *cq, struct gn_wc *wc, int n);
int shm_cq_arm(struct gn_cq *cq, bool solicited_only);
bool shm_cq_ready(struct gn_cq *cq);
/* Any thread: passes the qp to the cq's owner, which will admit it. */
void shm_cq_hand_over(struct gn_qp *qp);
/* Owner thread: admits all qps passed to it. */
void shm_cq_admit(struct shm_cq *cq);
void shm_rx_add(struct shm_rx *rx, struct shm_cq *cq, bool (*progress)(struct shm_rx *));
void shm_rx_del(struct shm_rx *rx);
/* The value that tells peers about the arming. */
static inline uint32_t shm_cq_armed(const struct shm_cq *cq)
{
	return cq->arm_generation | (uint32_t)cq->soft.armed;
}
/* A message is expected soon. */
void shm_rx_make_hot(struct shm_rx *rx);
/* A send of this qp is blocked while the cq is armed: starts the timer. */
void shm_cq_blocked(struct shm_cq *cq, struct shm_qp *qp);
int shm_cq_watch(struct shm_cq *cq, struct chan_fd *sock);
void shm_cq_unwatch(struct shm_cq *cq, const struct chan_fd *sock);

/* ---- sweep.c ---- */
void shm_sweep(const struct shm_fabric *fabric);
/* Binds and listens, excluding a sweep in between. */
int shm_ud_bind(const struct shm_fabric *fabric, int sock, const struct sockaddr_un *addr,
		int backlog);

/* ---- ud.c ---- */
int shm_ud_init(struct shm_qp *qp);
void shm_ud_fini(struct shm_qp *qp);
int shm_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out);
int shm_ah_init(struct gn_ah *ah);
void shm_ah_fini(struct gn_ah *ah);
int shm_ah_reverse(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
		   struct gn_ud_addr *out);
enum gn_wc_status shm_ud_send(struct shm_qp *qp, const struct gn_wr *wr);
/* After n sends of a chain: wakes receivers that sleep. */
void shm_ud_wake(const struct gn_wr *wr, unsigned n);
void shm_ud_arm(struct shm_rx *rx, uint32_t armed);
/* Drops datagrams that arrived before any receive was posted. */
void shm_ud_drop_stale(struct shm_qp *qp);

#endif
