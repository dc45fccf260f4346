/* SPDX-License-Identifier: MIT */
/*
 * conform.h - the conformance suite's harness, and what a case may use.
 *
 * A case has a side A and a side B (B may be NULL). They run in two processes, in two guests, or on
 * two nodes of a simulated cluster, and cannot tell which: everything a side knows is in its struct
 * cf, time and threads come from gannet/exec.h, and there are no statics. Before a case each side
 * gets a fresh fabric, ctx, pd and chan; after it the harness destroys what the case made through
 * the cf_make_ calls or gave to cf_own(), closes the fabric, and fails the case if an object was
 * left. Nothing waits longer than cf_deadline(). A struct cf belongs to its side's main thread:
 * other threads leave their findings in memory for it to CHECK.
 *
 *	static bool greet_a(struct cf *cf)
 *	{
 *		struct cf_rc rc;
 *
 *		CHECK(cf_rc_pair(cf, NULL, &rc));	// both sides: connected, a buffer each
 *		CHECK(cf_sync(cf));			// B has posted its receive
 *		CHECK(cf_send(cf, &rc, 1, 0, 64, GN_SIGNALED));
 *		CHECK(cf_expect_wc(cf, rc.send_cq, 1, GN_WC_OK));
 *		return true;
 *	}
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <gannet/exec.h>
#include <gannet/fabric.h>

struct cf;
struct cf_ctl;	 /* control connection; harness only */
struct cf_made;	 /* an object to destroy at the end; harness only */
struct cf_world; /* the environment of both sides; harness only */

/* ---- cases ---- */

/* One side of a case: true when it went well, false after CHECK or SKIP. */
typedef bool cf_side(struct cf *cf);

enum cf_case_flag {
	CF_B_DIES = 1 << 0, /* B ends in cf_die() and is started again; such cases come last */
	/*
	 * About the simulator itself: A's side runs outside of the simulated cluster, after it, has
	 * no fabric, and simulates what it needs. Skipped on other providers.
	 */
	CF_OUTSIDE = 1 << 1,
};

struct cf_case {
	unsigned number; /* as in the list of cases; 0 ends a table */
	const char *name;
	cf_side *a, *b;
	uint64_t needs; /* enum gn_cap: skipped without them */
	unsigned flags; /* enum cf_case_flag */
};

extern const struct cf_case cf_cases_objects[];	   /* 1-7, 11 */
extern const struct cf_case cf_cases_memory[];	   /* 8, 10 */
extern const struct cf_case cf_cases_state[];	   /* 12-16 */
extern const struct cf_case cf_cases_send[];	   /* 17-23 */
extern const struct cf_case cf_cases_onesided[];   /* 25-28, 33, 34 */
extern const struct cf_case cf_cases_atomics[];	   /* 29-32 */
extern const struct cf_case cf_cases_chains[];	   /* 35-39 */
extern const struct cf_case cf_cases_events[];	   /* 40-45, 47 */
extern const struct cf_case cf_cases_epoll[];	   /* 46 */
extern const struct cf_case cf_cases_ud[];	   /* 48-53 */
extern const struct cf_case cf_cases_isolation[];  /* 54-57 */
extern const struct cf_case cf_cases_connect[];	   /* 63-66 */
extern const struct cf_case cf_cases_disconnect[]; /* 67-70 */
extern const struct cf_case cf_cases_ordering[];   /* 71, 72, 75 */
extern const struct cf_case cf_cases_visible[];	   /* 73, 74 */
extern const struct cf_case cf_cases_repeat[];	   /* 76, 78 */
extern const struct cf_case cf_cases_faults[];	   /* 77 */
extern const struct cf_case cf_cases_beside[];	   /* 79, 80 */
extern const struct cf_case cf_cases_timer[];	   /* 81 */
extern const struct cf_case cf_cases_one[];	   /* 82-86 */
extern const struct cf_case cf_cases_fixed[];	   /* 87-89 */
extern const struct cf_case cf_cases_fence[];	   /* 90-92 */

/* ---- a side ---- */

enum cf_role { CF_A, CF_B };

#define CF_WHY_MAX    256
#define CF_REPORT_MAX 768
#define CF_NOTE_MAX   128

/* How the cluster is simulated. */
struct cf_sim {
	const char *profile; /* NULL: ideal */
	uint64_t caps_off;   /* enum gn_cap */
	const char *faults;  /* NULL: none */
};

struct cf {
	enum cf_role role;
	struct gn_fabric *fabric; /* this case's, as are the next three */
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_chan *chan; /* for the case's own use: no harness helper takes events from it */
	struct gn_attr attr;
	const char *fabric_name; /* what gn_fabric_open() takes: "shm", "verbs:rxe0", "sim:a" */
	bool process;	 /* a process of the operating system: fork, fds and signals exist */
	unsigned effort; /* 10 is the full count */
	uint64_t seed;	 /* of this case, the same on both sides */
	const struct cf_sim *sim; /* in a simulated cluster, or outside of it; NULL: none */

	/* the harness's */
	const struct cf_case *running;
	const char *host[2]; /* by role */
	const char *run_name;
	uint64_t rand;
	uint64_t wait_us, limit_us, started_ns;
	struct cf_ctl *ctl;
	struct cf_made *made;
	const struct cf_world *world;
	struct gn_listener *listener;
	struct gn_chan *listen_chan;
	bool failed, skipped;
	bool peer_said_end, peer_ended; /* ended at all; ended badly */
	char why[CF_WHY_MAX];
	char report[CF_REPORT_MAX];
	char note[CF_NOTE_MAX];
};

/* ---- verdicts ---- */

/*
 * Fail the case unless cond, and return false. What follows cond is a printf format that says more;
 * without one the reason that a cf_ helper left is shown. Good in any function that has a cf and
 * returns bool: the callers' CHECKs then show how it was reached.
 */
#define CHECK(cond, ...)                                                         \
	do {                                                                     \
		cf->why[0] = '\0';                                               \
		if (!(cond)) {                                                   \
			cf_fail(cf, __FILE__, __LINE__, #cond, " " __VA_ARGS__); \
			return false;                                            \
		}                                                                \
	} while (0)

/* CHECK that an integer, evaluated once, has this value; shows both when not. Good for errnos. */
#define CHECK_INT(expr, want)                                                                 \
	do {                                                                                  \
		long long cf_got_ = (long long)(expr), cf_want_ = (long long)(want);          \
		if (cf_got_ != cf_want_) {                                                    \
			cf_fail(cf, __FILE__, __LINE__, #expr, " is %lld, not %lld", cf_got_, \
				cf_want_);                                                    \
			return false;                                                         \
		}                                                                             \
	} while (0)

/* End the case as skipped. One side's skip is enough. */
#define SKIP(...)                         \
	do {                              \
		cf_skip(cf, __VA_ARGS__); \
		return false;             \
	} while (0)

#define SKIP_UNLESS(cap)                      \
	do {                                  \
		if (!(cf->attr.caps & (cap))) \
			SKIP("no %s", #cap);  \
	} while (0)

/* fmt starts with a space, because a format may not be empty. */
void cf_fail(struct cf *cf, const char *file, int line, const char *cond, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
void cf_skip(struct cf *cf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A only: what was counted, printed below a case that passed. */
void cf_note(struct cf *cf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Leave a reason for the caller's CHECK to report. Returns false: `return cf_why(cf, …);` */
bool cf_why(struct cf *cf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- the other side ---- */

#define CF_MSG_MAX 512u

/*
 * Over a connection of the harness's own. Each returns false when the other side has failed or
 * skipped (the case is then over, with nothing more to report here) or does not answer in time.
 * While one waits the case's own cqs are not polled: where GN_CAP_TARGET_PROGRESS is set, receive
 * first what the other side needs to send on.
 */
bool cf_sync(struct cf *cf);
bool cf_tell(struct cf *cf, const void *data, uint32_t len_bytes);
/* Exactly len_bytes, or it fails. */
bool cf_hear(struct cf *cf, void *data, uint32_t len_bytes);
/* Send and receive: both sides pass their data and get the other's. */
bool cf_swap(struct cf *cf, const void *mine, void *theirs, uint32_t len_bytes);

/*
 * Address n (0 to 99) for a listener on that role's side; the other side connects to the same
 * string. Number 0 is cf_rc_pair()'s.
 */
#define CF_ADDR_MAX 128
const char *cf_addr(struct cf *cf, enum cf_role role, unsigned n, char buf[CF_ADDR_MAX]);

/* B of a CF_B_DIES case only: this process, or this guest, ends here without a goodbye. */
_Noreturn void cf_die(struct cf *cf);

/* ---- how long, how often ---- */

/* The deadline of a wait. It is generous: reaching it is a failure. */
uint64_t cf_deadline(const struct cf *cf);
/* n at effort 10, in proportion below; never 0. */
uint64_t cf_count(const struct cf *cf, uint64_t n);
/* Loop condition: i < cf_count(cf, n) and, on verbs, the case is not 3 s old or i is 0. */
bool cf_more(struct cf *cf, uint64_t i, uint64_t n);
/* For a loop that both sides run in step: A decides. On verbs this costs a message. */
bool cf_more_both(struct cf *cf, uint64_t i, uint64_t n);
/* Random numbers from the seed. Both sides draw the same sequence in a case. */
uint64_t cf_rand(struct cf *cf);
/* Uniform in [low, high]. */
uint64_t cf_rand_in(struct cf *cf, uint64_t low, uint64_t high);
/* Open file descriptors of this process; -1 in a simulation. */
int cf_open_fds(const struct cf *cf);

/* ---- objects ---- */

/*
 * Each creates, and remembers for the end of the case; NULL on failure with the reason left for
 * CHECK. What a case makes with gn_ calls it must destroy itself, or hand over with cf_own(): that
 * also works on a failed CHECK.
 */
struct gn_cq *cf_make_cq(struct cf *cf, uint32_t depth, struct gn_chan *chan);
struct gn_chan *cf_make_chan(struct cf *cf);
struct gn_pd *cf_make_pd(struct cf *cf);
struct gn_qp *cf_make_qp(struct cf *cf, struct gn_pd *pd, const struct gn_qp_opts *opts);
struct gn_mem *cf_make_mem(struct cf *cf, size_t size, unsigned rights);
/* The whole of mem. */
struct gn_mr *cf_make_mr(struct cf *cf, struct gn_pd *pd, struct gn_mem *mem, unsigned access);
struct gn_ah *cf_make_ah(struct cf *cf, struct gn_qp *qp, const struct gn_ud_addr *addr);
struct gn_listener *cf_make_listener(struct cf *cf, const char *addr, struct gn_chan *chan);

enum cf_object {
	CF_FABRIC,
	CF_CTX,
	CF_PD,
	CF_MEM,
	CF_MR,
	CF_CQ,
	CF_CHAN,
	CF_QP,
	CF_AH,
	CF_LISTENER,
	CF_PAGES,
};
void cf_own(struct cf *cf, enum cf_object kind, void *object);
/* The case destroyed it, or will. True if it was known. */
bool cf_disown(struct cf *cf, const void *object);
/* Destroy now what would be destroyed at the end. */
bool cf_destroy(struct cf *cf, const void *object);

/*
 * size bytes of anonymous memory for gn_mem_wrap(), unmapped at the end of the case; with a hint,
 * at that address and in place of what is there.
 */
uint8_t *cf_make_pages(struct cf *cf, size_t size, void *hint);

/* Every right that the provider has. */
unsigned cf_all_rights(const struct cf *cf);

/* ---- a connected pair ---- */

struct cf_rc_opts {
	/* as gn_qp_opts */
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inline_bytes;
	uint32_t cq_depth; /* each; 0: send_wr and recv_wr together */
	size_t buf_bytes;  /* 0: 64 KiB */
	unsigned access;   /* of the buffer; 0: GN_LOCAL_WRITE and all remote rights */
	bool events;	   /* the cqs have the channel rc->chan */
	unsigned flags;	   /* GN_SHARED, for cqs and qp */
	const struct gn_conn_opts *conn; /* NULL: GN_RNR_RETRY_DEFAULT */

	/* given instead of made; both cqs or none, and their chan if they have one */
	struct gn_pd *pd; /* NULL: cf->pd */
	struct gn_cq *send_cq, *recv_cq;
	struct gn_chan *chan;
	const struct cf_rc *buf_of; /* the buffer of that connection */

	/* called before connecting, to post receives */
	bool (*early)(struct cf *cf, struct cf_rc *rc);
};

struct cf_rc {
	struct gn_qp *qp;
	struct gn_cq *send_cq, *recv_cq;
	struct gn_chan *chan;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint8_t *buf; /* the registered buffer */
	size_t buf_bytes;
	uint32_t lkey;
	struct gn_remote peer;		 /* the other side's buffer */
	bool own_cqs, own_chan, own_buf; /* private */
};

/*
 * Both sides: A listens, B connects; returns with both established and descriptors swapped. opts
 * may be NULL, and may differ between the sides. Call it again for a second connection.
 */
bool cf_rc_pair(struct cf *cf, const struct cf_rc_opts *opts, struct cf_rc *out);
/* Destroy it all before the end of the case. */
bool cf_rc_close(struct cf *cf, struct cf_rc *rc);

/* ---- requests on a connection's buffer: offsets count in rc->buf and in the peer's ---- */

struct gn_sge cf_sge(const struct cf_rc *rc, size_t offset, uint32_t len_bytes);
/* Post one request or chain; false, with the errno as reason, unless all of it was posted. */
bool cf_post(struct cf *cf, struct gn_qp *qp, const struct gn_wr *wr);
bool cf_recv(struct cf *cf, struct cf_rc *rc, uint64_t id, size_t offset, uint32_t len_bytes);
bool cf_send(struct cf *cf, struct cf_rc *rc, uint64_t id, size_t offset, uint32_t len_bytes,
	     uint32_t flags);
bool cf_write(struct cf *cf, struct cf_rc *rc, uint64_t id, size_t from, size_t to,
	      uint32_t len_bytes, uint32_t flags);
bool cf_read(struct cf *cf, struct cf_rc *rc, uint64_t id, size_t into, size_t from,
	     uint32_t len_bytes, uint32_t flags);

/*
 * Make A's earlier WRITEs visible to B (rule 7), or the other way round: the writer publishes, the
 * other side observes. A zero-byte SEND on the connection itself; its completions are taken here,
 * and earlier unpolled completions of the queue concerned fail it.
 */
bool cf_publish(struct cf *cf, struct cf_rc *rc);
bool cf_observe(struct cf *cf, struct cf_rc *rc);
/* The program of a peer that only connects, and waits until the other side publishes. */
bool cf_idle_peer(struct cf *cf);

/* ---- completions and events ---- */

/* One completion, with any status. */
bool cf_poll_one(struct cf *cf, struct gn_cq *cq, struct gn_wc *wc);
/* One completion, with this id and status. */
bool cf_expect_wc(struct cf *cf, struct gn_cq *cq, uint64_t id, enum gn_wc_status status);
/* No completion now, nor within a millisecond or two: call it when one would have come before. */
bool cf_expect_none(struct cf *cf, struct gn_cq *cq);
/* n completions, each flushed, with the ids first to first + n - 1 in this order. */
bool cf_expect_flushed(struct cf *cf, struct gn_cq *cq, uint64_t first, unsigned n);
/* The next event of the channel is of this type. out may be NULL. */
bool cf_expect_event(struct cf *cf, struct gn_chan *chan, enum gn_event_type type,
		     struct gn_event *out);
/* The qp gets into this state in time. */
bool cf_expect_state(struct cf *cf, struct gn_qp *qp, enum gn_qp_state state);

/* ---- data ---- */

/* Bytes that depend on tag, the case's seed and their offset. */
void cf_fill(const struct cf *cf, void *data, size_t len_bytes, uint64_t tag);
bool cf_check_fill(struct cf *cf, const void *data, size_t len_bytes, uint64_t tag);
/* Guards: paint a whole buffer, and see later that nothing changed in [from, to). */
void cf_paint(void *data, size_t len_bytes);
bool cf_check_paint(struct cf *cf, const void *data, size_t from, size_t to);
/* [at, at + len) holds the pattern of tag, and the rest of the painted buffer is as it was. */
bool cf_check_framed(struct cf *cf, const void *data, size_t size, size_t at, size_t len_bytes,
		     uint64_t tag);

#endif
