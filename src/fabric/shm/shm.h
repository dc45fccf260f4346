/* SPDX-License-Identifier: MIT */
/*
 * The shared-memory provider: peers are processes on this host, one-sided operations are the
 * initiator's own loads and stores, messages are rings. No hidden threads: everything happens in
 * the caller's post, poll and gn_chan_next(), but that a thread of its own closes what a peer sent
 * and is no memory (discard.c). The control socket of a connection carries the handshake, the fds
 * of memory, and wake-ups; its end is how a peer's death shows.
 */
#ifndef GN_SHM_SHM_H
#define GN_SHM_SHM_H

#include "fabric/fabric.h"
#include "fabric/shm/ring.h"
#include "fabric/soft/soft.h"

#include <sys/epoll.h>
#include <sys/types.h>
#include <sys/un.h>

/* ---- mappings (map.c): our own memory, and what peers sent ---- */

/* Whose process the peer of a control socket is. */
enum wire_peer {
	PEER_STRANGER, /* another user's process */
	PEER_USER,     /* our own user's, or the system's */
	PEER_SELF,     /* this process: nothing is kept apart */
};

#define SHM_HUGE_PAGE	(2u * 1024 * 1024)
#define SHM_LOCK_SUFFIX "~lock"
#define SHM_UD_PREFIX	"ud~" /* files of datagram qps; no name has a tilde */

struct shm_map {
	struct shm_map *next;
	dev_t dev;
	ino_t ino;
	uint8_t *addr;
	size_t size;
	bool writable; /* the pages' protection */
	bool own;      /* made by us; else what a peer sent, with exactly its rights */
	uint32_t refs;
};

/* A new memfd, mapped writable. seal_writes: nobody else will ever map it writable. */
int shm_map_create(const char *name, size_t size, bool huge, bool seal_writes, struct shm_map **out,
		   int *fd);
/*
 * Map what a peer sent, with the rights that it says and that its descriptor has, after checking
 * that it is a memfd of this size that cannot shrink. What is our own and came back is mapped anew,
 * unless the peer is ourselves. fd stays open.
 */
int shm_map_peer(int fd, size_t size, bool writable, enum wire_peer kind, struct shm_map **out);
void shm_map_put(struct shm_map *map);

/* ---- wire.c: the control socket ---- */
#define WIRE_MAGIC   0x54454e47u /* "GNET" */
#define WIRE_VERSION 2u

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_ACCEPT,
	WIRE_REJECT,
	WIRE_MEM,
	WIRE_FORGET,
	WIRE_WAKE,
	WIRE_UD
};

struct wire_head {
	uint32_t magic;
	uint16_t version;
	uint16_t type; /* enum wire_type */
};

/* HELLO and ACCEPT: fds are area and grants. REJECT: none. */
struct wire_hello {
	struct wire_head head;
	uint32_t rq_size; /* REJECT: EMFILE, or 0 for a reason of whom it was for */
	uint32_t private_len;
	uint8_t private_data[GN_PRIVATE_MAX];
	uint8_t reserved[44];
};
_Static_assert(sizeof(struct wire_hello) == 256, "fixed");

/*
 * FORGET: one entry, of which the id counts. MEM: n entries, an fd for each. Sent as long as they
 * are.
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

/* UD: one fd, the ring. */
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

#define WIRE_FDS 32 /* the most a message carries: WIRE_MEMS */

/* ---- what a peer may make us hold; docs/limits.md ---- */

#define SHM_HELLO_NS	  2000000000ull /* a client that connected says hello within this time */
#define SHM_PENDING_MAX	  128u		/* … and so many may not have done so, of a listener */
#define SHM_REQUESTS_MAX  256u		/* of a listener, said hello and were not answered */
#define SHM_ACCEPT_NAP_NS 10000000ull	/* without descriptors: until the next try to accept */
/* Mems of another user's process, and their bytes: on a connection, of a user, of all of them. */
#define SHM_STRANGER_MEMS  1024u
#define SHM_STRANGER_BYTES (1ull << 40)
#define SHM_USER_MEMS	   4096u
#define SHM_USER_BYTES	   (1ull << 42)
#define SHM_OTHERS_MEMS	   16384u
#define SHM_OTHERS_BYTES   (1ull << 44)

/* ---- objects ---- */

/* What is mapped of other users' processes. */
struct shm_quota {
	uint64_t mems, bytes;
};

struct shm_fabric {
	struct gn_fabric fabric;
	struct soft_keys keys;
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path) -
		 70];		    /* a name of 64 fits behind it */
	uint64_t gid_tail;	    /* tells this fabric's datagram qps from all others */
	uint64_t next_mem_id;	    /* atomic */
	uint32_t next_qpn;	    /* atomic */
	struct gn_mutex grant_lock; /* grants, conns, and what was sent to whom */
	uint32_t grant_serial;	    /* under the grant lock */
	uint64_t revocations;	    /* so far, of grants and of connections; under the grant lock */
	struct shm_qp *conns;
	struct gn_mutex quota_lock; /* users and others: quota.c */
	struct shm_user *users;
	struct shm_quota others;
};

struct shm_mem {
	struct gn_mem mem;
	struct shm_map *map; /* NULL: anonymous or foreign */
	int fd;
	uint64_t id;
};

/* A grant or a connection that ends: since when, and until when peers are waited for. */
struct shm_ending {
	uint64_t revocation; /* counted in the fabric; 0: not ending */
	uint64_t deadline_ns;
};

struct shm_mr {
	struct gn_mr mr;
	struct shm_ending ending;
	struct shm_mr *next, **prev; /* its pd's regions with remote rights */
};

struct shm_pd {
	struct gn_pd pd;
	struct shm_mr *granted; /* under the grant lock */
	struct shm_map
		*grants; /* SOFT_KEYS entries, indexed like keys; sealed against others' writing */
	int grants_fd;
};

struct shm_cq {
	struct soft_cq soft;
	struct shm_qp *qps[2];	   /* that send, that receive through it */
	struct shm_rx *hot, *cold; /* who may send something; cold ones are looked at in turn */
	struct shm_qp *incoming;   /* atomic: accepted by other threads, for the owner to admit */
	bool look_at_cold;	   /* the next poll looks at all of them */
	bool ticking;
	uint32_t n_rx;
	uint32_t empty_polls;
	uint64_t checked_ns;
	uint32_t arm_generation;
	int life_fd;			/* epoll of the sockets behind this cq, or -1 */
	struct epoll_event *life_batch; /* being worked through */
	int n_life_batch;
	struct chan_fd timer; /* runs while armed with sends that wait; fd -1: none yet */
};

/* Somebody a cq may receive from, or a qp with sends that wait: looked at by polls. */
struct shm_rx {
	struct shm_rx *next, *prev; /* a circle; NULL: in none */
	struct shm_cq *cq;
	bool (*progress)(struct shm_rx *self); /* true: did something */
	const uint64_t *peek; /* the head of the slot that comes next, or NULL: ask progress() */
	uint32_t expect;      /* its sequence number when something is there */
	uint32_t idle;	      /* looks since it last did */
	bool is_hot;
};

/*
 * A peer's mem that was sent to us, by id. What may be done with it is what this peer said on this
 * connection, whatever the mapping could do: others may share that.
 */
struct peer_mem {
	uint64_t id; /* 0: free; UINT64_MAX: was used */
	uint64_t size;
	bool writable;
	struct shm_map *map;
};

#define SHM_VIEWS	8u
#define SHM_MEM_WAIT_NS 1000000000ull /* a request waits for the mem that a grant names */

/*
 * A grant of the peer that was looked up and checked against what it sent: good while the grant has
 * the same word. A line each.
 */
enum view_use { VIEW_WRITE, VIEW_READ, VIEW_ATOMIC, VIEW_USES };
struct peer_view {
	uint64_t word;
	uint8_t *addr;		   /* of the region's first byte */
	uint64_t limit[VIEW_USES]; /* how much of the region may be used so; 0: nothing */
	uint64_t reserved[3];
};
_Static_assert(sizeof(struct peer_view) == GN_CACHELINE, "found by a shift");

enum conn_phase { CONN_NONE, CONN_HELLO_SENT, CONN_UP, CONN_DOWN };

/* A connection as one side sees it. */
struct shm_conn {
	enum conn_phase phase;
	enum wire_peer peer_kind;
	struct chan_fd sock;
	bool watched;	      /* … is in the sets of the channel and, when met, of the cqs */
	struct chan_fd timer; /* while connecting */
	struct area *mine;
	const struct area *peer;
	bool busy; /* mine->busy is odd */
	struct shm_map *mine_map, *peer_map, *grants_map;
	const struct grant *grants; /* the peer's */
	uint32_t mine_rq_size, peer_rq_size;

	/* as sender */
	struct slot *tx_slots;
	uint8_t *tx_data;
	const uint32_t *peer_sizes;
	uint64_t tx_slot, tx_data_at, tx_msg; /* positions: slots, data bytes and messages sent */
	uint64_t tx_off;		      /* of the message that is under way */
	bool payload_done; /* the first request waits with its WRITE done, for a receive */
	uint64_t slots_free_to, data_free_to,
		posted_known;  /* what the peer's credit line said last */
	uint64_t rnr_since_ns; /* 0: not waiting for a receive */
	uint64_t rnr_budget_ns;
	uint32_t tx_waits;  /* how often we asked to be told of credit, times 2 */
	uint32_t woken_arm; /* the arming of the peer that we answered with a wake-up */

	/* as receiver */
	const struct slot *rx_slots;
	const uint8_t *rx_data;
	uint32_t *my_sizes;
	uint64_t rx_slot, rx_data_at;
	uint64_t slots_told, data_told; /* what our credit line says */
	uint32_t rx_off, rx_len;	/* of the message that is arriving */
	bool peer_ended;		/* deliver what is in the ring, then fail */
	uint32_t woken_wait;		/* the peer's tx_waiting that we answered with a wake-up */

	/* memory of the peer */
	struct peer_mem *mems;
	uint32_t mems_mask, n_mems;
	uint64_t mapped_bytes;
	struct shm_user *user; /* a stranger's: what it was charged with */
	struct shm_quota charged;
	struct peer_view views[SHM_VIEWS]; /* used last, by the key's index */
	uint64_t forgotten;		   /* mappings dropped so far: gn_fixed compares it */
	uint64_t mems_taken;		   /* all that were ever sent to us */
	bool mem_due;	       /* the look-up that failed was for a mem that is on its way */
	uint64_t mem_since_ns; /* 0: no request waits for a mem */
	uint64_t mem_asked;    /* mems_taken when we last told the peer that we wait, and 1 */
	/* memory we sent; under the grant lock */
	uint64_t *sent;
	uint32_t n_sent, sent_cap;
	uint64_t mems_sent; /* all that were ever sent */
	bool mems_behind;   /* the peer's socket was full: more is to be sent */

	/* what we know of the peer's copies under our keys; under the grant lock: revoke.c */
	struct shm_ending ending;
	uint64_t quiet_to;  /* no copy of the peer began before this revocation */
	uint64_t busy_word; /* the peer's odd word that is waited for; 0: none */
	uint64_t busy_to;   /* … and when it changes, quiet_to is this */
	bool cut_off;	    /* the peer is not waited for any more */

	/* while connecting */
	struct sockaddr_un dial_addr;
	uint64_t dial_deadline_ns;
	struct wire_hello hello;
	int hello_area_fd;
};

struct shm_qp {
	struct gn_qp qp;
	const struct soft_key *keys; /* the fabric's table */
	struct soft_sq sq;
	struct soft_rq rq;
	struct shm_rx rx_send, rx_recv; /* on the send and the receive cq */
	struct shm_conn conn;
	struct shm_qp *next_conn,
		**prev_conn; /* the fabric's connected ones, under the grant lock */
	struct shm_qp *next_on[2], **prev_on[2]; /* the qps of its send cq, of its receive cq */
	struct shm_qp *next_incoming;
	bool on_cqs;   /* of which nothing is touched before */
	bool incoming; /* in its receive cq's list, or on the way there */
	bool detached;
	struct ud_port *ud; /* UD */
};

struct shm_ah {
	struct gn_ah ah;
	int sock;
	struct shm_map *map;
	struct ud_ring *ring;
	uint64_t slot, data_at;
	uint32_t woken_arm;
};

struct shm_listener {
	struct gn_listener listener;
	struct chan_fd sock;
	struct chan_fd timer;
	struct shm_pending *pending; /* connected, but said nothing yet; the newest first */
	uint32_t n_pending, n_requests;
	uint64_t paused_to_ns; /* not 0: no descriptors, not accepting */
	bool said_full;
	int lock_fd;
	int spare_fd; /* to refuse a client when there are no descriptors; -1: not even this one */
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
/* Path of a socket in our folder. */
void shm_path(const struct shm_fabric *fabric, const char *name, struct sockaddr_un *out);
/* Server and client may look in different folders: the client's error names its own. */
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
 * A qp was connected: send it the memory granted in its pd so far, and what will be. Takes the
 * grant lock.
 */
int shm_grant_join(struct shm_qp *qp);
void shm_grant_leave(struct shm_qp *qp); /* does not wait for the peer */
/* The peer reads its socket again: send it what did not fit before. */
void shm_grant_catch_up(struct shm_qp *qp);

/* ---- revoke.c: never waits. The grant lock is held. ---- */
/* Begin to end: what comes of it is asked with shm_peers_quiet(). */
void shm_revoke(struct shm_fabric *fabric, struct shm_ending *ending);
/*
 * Do the peers of this pd (pd NULL: this qp's) copy no more under what ended? A peer that is dead
 * or beyond the deadline does not count.
 */
bool shm_peers_quiet(struct shm_fabric *fabric, const struct gn_pd *pd, struct shm_qp *qp,
		     const struct shm_ending *ending);

/* ---- wire.c ---- */
struct wire_head wire_head(enum wire_type type);
/* Never blocks. -EAGAIN when the peer does not drain its socket. */
int wire_send(int sock, const void *msg, size_t len, const int *fds, int n_fds);
/* One message and its fds (-1 where none), 0 bytes at the peer's end: length, or -errno. */
ssize_t wire_recv(int sock, union wire_any *msg, int fds[WIRE_FDS]);
void wire_close_fds(int fds[WIRE_FDS]);
/* Shut it down and close the fds that nobody took. False: there are many more messages. */
bool wire_drain(int sock);
/* What it costs to take a message: one, and one for each mem, which is mapped. */
static inline uint32_t wire_work(const union wire_any *msg)
{
	return 1 + (msg->head.type == WIRE_MEM && msg->mems.n <= WIRE_MEMS ? msg->mems.n : 0);
}
bool wire_is(const union wire_any *msg, ssize_t len, enum wire_type type, size_t want);
/* The status of a WIRE_REJECT. */
int wire_rejected(const struct wire_hello *hello);
void wire_wake(int sock);
/* As many messages in flight as the system allows. */
void wire_roomy(int sock);
/* Whose process is at the other end? *uid (may be NULL): its user. */
enum wire_peer wire_peer(int sock, uid_t *uid);
/* Do both lead to the same process? */
bool wire_same_peer(int sock, int other);

/* ---- discard.c: none of these waits for a peer ---- */
void shm_close_fd(int fd); /* that came from a peer; -1 is none */
/* A control socket, with the fds in what was not read of it; -1 is none. It is shut down. */
void shm_close_sock(int sock);
/* … and one that listens, with those who were not let in. */
void shm_close_listener(int sock);

/* ---- cm.c ---- */
int shm_listen_init(struct gn_listener *listener, const char *name);
void shm_listen_fini(struct gn_listener *listener);
int shm_connect(struct gn_qp *qp, const char *name, const struct gn_conn_opts *opts);
int shm_accept(struct gn_conn_req *req, struct gn_qp *qp, const struct gn_conn_opts *opts);
int shm_reject(struct gn_conn_req *req, const void *private_data, uint32_t private_len);
int shm_disconnect(struct gn_qp *qp);

/* The size of the receive at this position, before it counts as posted. */
static inline void shm_conn_publish_recv(struct shm_conn *c, uint64_t position, uint32_t len)
{
	__atomic_store_n(&c->my_sizes[position & (c->mine_rq_size - 1)], len, __ATOMIC_RELAXED);
	if (unlikely(len < c->mine->mood.recv_floor))
		__atomic_store_n(&c->mine->mood.recv_floor, len, __ATOMIC_RELAXED);
}

/* ---- conn.c ---- */
void shm_conn_init(struct shm_conn *conn);
/* Make our half of what is shared; area_fd is to be sent and closed. */
int shm_conn_mine(struct shm_qp *qp, int *area_fd);
/* Find out whose process the peer is: before anything of it is taken. */
int shm_conn_identify(struct shm_qp *qp);
/* Send the peer the memory it may reach, now and whenever there is more. */
int shm_conn_join(struct shm_qp *qp);
/* Take the peer's half. */
int shm_conn_meet(struct shm_qp *qp, uint32_t rq_size, int area_fd, int grants_fd);
/* Both are done: the qp is ready. */
void shm_conn_ready(struct shm_qp *qp);
/*
 * The owner: watch the control socket, for the qp's channel and cqs; look for messages; both for a
 * qp that was accepted by another thread.
 */
int shm_conn_watch(struct shm_qp *qp);
void shm_conn_start(struct shm_qp *qp);
void shm_conn_admit(struct shm_qp *qp);
/* The owner: the connection ends, the peer is told; cqs and channel know nothing of it any more. */
void shm_conn_detach(struct shm_qp *qp);
/* A message of the control socket that is not of the handshake itself. */
int shm_conn_handle(struct shm_qp *qp, const union wire_any *msg, ssize_t len, const int *fds);
/* Once detached, without waiting for the peer's copies: 0 when there are none, or -EAGAIN. */
int shm_conn_close(struct shm_qp *qp);
/* The peer is gone, and all its messages were taken; or it cannot be watched. */
void shm_conn_lost(struct shm_qp *qp);
/* Everything of a connection goes, the peer is told. */
void shm_conn_fini(struct shm_qp *qp);
/* Read what came on the control socket; notices the peer's end. */
bool shm_conn_pump(struct shm_qp *qp); /* true: there may be more */
/* The peer is gone, or is to be: nothing more is read. */
void shm_conn_end(struct shm_qp *qp);
/* Woken: take what came, send what waits, and stay armed if the cq is. */
void shm_conn_catch_up(struct shm_qp *qp);
/* Tell the peer that the receive cq is armed; that sends wait for credit. */
void shm_conn_arm(struct shm_qp *qp);
void shm_conn_await_credit(struct shm_qp *qp);
const struct peer_mem *shm_peer_mem(const struct shm_conn *conn, uint64_t id);

/* ---- quota.c: mappings of strangers count against three limits ---- */
/* The user of a stranger at the other end; nothing is charged for anybody else. */
int shm_quota_join(struct shm_qp *qp, uid_t uid);
/* One more mapping: 0 or -EDQUOT. */
int shm_quota_take(struct shm_qp *qp, uint64_t bytes);
void shm_quota_give(struct shm_qp *qp, uint64_t bytes);
/* All of it, and the user with it. */
void shm_quota_leave(struct shm_qp *qp);

/* ---- qp.c ---- */
int shm_qp_init(struct gn_qp *qp);
/* The owner: its cqs know the qp from now on. */
void shm_qp_join(struct shm_qp *qp);
void shm_qp_adopt(struct gn_qp *qp);
void shm_qp_detach(struct gn_qp *qp);
int shm_qp_close(struct gn_qp *qp);
void shm_qp_fini(struct gn_qp *qp);
int shm_qp_error(struct gn_qp *qp);
int shm_qp_reset(struct gn_qp *qp);
/* To error, and everything outstanding flushes. */
void shm_qp_fail(struct shm_qp *qp);
/* A cq was overrun: its qps are in error. */
void shm_cq_overrun(struct shm_cq *cq);
/* Queue a completion. */
static inline void shm_complete(struct shm_cq *cq, const struct gn_wc *wc, bool solicited)
{
	const bool was_overrun = cq->soft.cq.overrun;

	if (unlikely(!soft_cq_push(&cq->soft, wc, solicited) && !was_overrun))
		shm_cq_overrun(cq);
}

/* ---- post.c, send.c, recv.c ---- */
unsigned shm_post_send(struct gn_qp *qp, const struct gn_wr *wr, unsigned n);
bool shm_post_plain(struct gn_qp *qp, const struct gn_wr *wr); /* plain.c, and so is … */
int shm_post_one(struct gn_qp *qp, const struct gn_wr *wr);
/* fixed.c */
int shm_post_fixed_write(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id);
int shm_post_fixed_read(struct gn_fixed *fixed, uint64_t offset, uint32_t len, uint64_t id);
unsigned shm_post_recv(struct gn_qp *qp, const struct gn_recv_wr *wr, unsigned n);
bool shm_progress_sends(struct shm_rx *rx);
bool shm_progress_recvs(struct shm_rx *rx);

/* A SEND of one short piece that can go at once: true, or nothing was done. */
bool shm_send_short(struct shm_qp *qp, const struct gn_wr *wr);

/*
 * There is credit again: wake a sender that asked for it, once for each time it asks. Unfenced: a
 * wake-up missed by a hair is made good by the sender's timer.
 */
static inline void shm_wake_sender(struct shm_conn *c)
{
	const uint32_t waits = __atomic_load_n(&c->peer->mood.tx_waiting, __ATOMIC_RELAXED);

	if (unlikely(waits && waits != c->woken_wait)) {
		c->woken_wait = waits;
		wire_wake(c->sock.fd);
	}
}

enum send_result { SEND_DONE, SEND_BLOCKED, SEND_FAILED };
/* The message part of a SEND or WRITE_IMM; *status says why it failed. */
enum send_result shm_send(struct shm_qp *qp, const struct gn_wr *wr, enum gn_wc_status *status);

/* Nothing there: the one load that most looks at a peer consist of. */
static inline bool shm_rx_quiet(const struct shm_rx *rx)
{
	return rx->peek && slot_seq(__atomic_load_n(rx->peek, __ATOMIC_RELAXED)) != rx->expect;
}

static inline void shm_rx_expect(struct shm_rx *rx, const uint64_t *head, uint64_t position)
{
	rx->peek = head;
	rx->expect = (uint32_t)(position + 1);
	__builtin_prefetch(
		head); /* the next look comes after an answer was sent, and finds it here */
}

/* ---- cq.c ---- */
int shm_cq_init(struct gn_cq *cq);
void shm_cq_fini(struct gn_cq *cq);
int shm_cq_poll(struct gn_cq *cq, struct gn_wc *wc, int n);
int shm_cq_arm(struct gn_cq *cq, bool solicited_only);
bool shm_cq_ready(struct gn_cq *cq);
/* Any thread: the owner will admit the qp, which is its own from now on. */
void shm_cq_hand_over(struct gn_qp *qp);
/* The owner: take in all that were handed over. */
void shm_cq_admit(struct shm_cq *cq);
void shm_rx_add(struct shm_rx *rx, struct shm_cq *cq, bool (*progress)(struct shm_rx *));
void shm_rx_del(struct shm_rx *rx);
/* What the peers of an armed cq are to be told. */
static inline uint32_t shm_cq_armed(const struct shm_cq *cq)
{
	return cq->arm_generation | (uint32_t)cq->soft.armed;
}
/* Something will happen there soon. */
void shm_rx_heat(struct shm_rx *rx);
/* The socket's end is noticed by this cq's polls, too. */
/* A send of this qp has to wait while the cq is armed: it must not sleep for ever. */
void shm_cq_blocked(struct shm_cq *cq, struct shm_qp *qp);
int shm_cq_watch(struct shm_cq *cq, struct chan_fd *sock);
void shm_cq_unwatch(struct shm_cq *cq, const struct chan_fd *sock);

/* ---- sweep.c ---- */
void shm_sweep(const struct shm_fabric *fabric);
/* Bind and listen, with no sweep in between. */
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
void shm_ud_arm(struct shm_rx *rx, uint32_t armed);
/* Datagrams that came before any receive was posted are gone. */
void shm_ud_drop_stale(struct shm_qp *qp);

#endif
