/* SPDX-License-Identifier: MIT */
/*
 * gannet/base.h - errors, log, time, waiting, checksums and histograms. gannet/exec.h has threads,
 * locks, queues and memory for programs that also run in a simulation.
 *
 * Unless a comment says otherwise, any thread may call these functions, and they return 0 or a
 * negative errno. In a simulation the clock is virtual, and a wait parks a simulated thread.
 */
#ifndef GANNET_BASE_H
#define GANNET_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GN_API __attribute__((visibility("default")))

/* ---- errors ---- */

/*
 * Returns the text for 0 or a negative errno that Gannet returned. Never NULL; the string is
 * static.
 */
GN_API const char *gn_strerror(int err);

/*
 * Returns why the last failed call of this thread failed, and what to do about it; "" before the
 * first failure. Call it right after the failure: the text stays until the next failure, including
 * a failed step inside a call that succeeds. Each thread, simulated or not, has its own text.
 */
GN_API const char *gn_error(void);

#define GN_VERSION_MAJOR 0
#define GN_VERSION_MINOR 2
#define GN_VERSION_PATCH 0
/* One number to compare: 0x000200 is 0.2.0. */
#define GN_VERSION (GN_VERSION_MAJOR << 16 | GN_VERSION_MINOR << 8 | GN_VERSION_PATCH)

/* The version of the library, which may be newer than the headers: "0.2.0". */
GN_API const char *gn_version(void);

/* ---- log ---- */

enum gn_log_level { GN_LOG_ERROR, GN_LOG_WARN, GN_LOG_INFO, GN_LOG_DEBUG };

/*
 * Logs one line; fmt has no newline. Control characters become spaces, and text beyond 1 KiB is cut
 * off. The default sink writes "gannet: error: …" to stderr, and does not wait for a reader: lines
 * that a full pipe has no space for are lost. GANNET_LOG sets the level (error, warn, info, debug;
 * default warn).
 */
GN_API void gn_log(enum gn_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Replaces the sink (NULL restores the default). Call it before other threads use Gannet. */
typedef void gn_log_fn(void *arg, enum gn_log_level level, const char *line);
GN_API void gn_log_to(gn_log_fn *fn, void *arg);
GN_API void gn_log_level_set(enum gn_log_level level);

/* ---- time ---- */

/* Returns monotonic time in nanoseconds; virtual time in a simulation. */
GN_API uint64_t gn_now_ns(void);

/*
 * A deadline_ns is a time of gn_now_ns(). GN_FOREVER and 0 mean no deadline. GN_NO_WAIT, like every
 * deadline in the past, means: poll once and do not wait.
 */
#define GN_FOREVER UINT64_MAX
#define GN_NO_WAIT UINT64_C(1)

/* Returns the deadline us microseconds from now: never 0; GN_FOREVER on overflow. */
GN_API uint64_t gn_deadline_us(uint64_t us);

/* Yields the processor to other threads. */
GN_API void gn_yield(void);
/* Sleeps for at least us microseconds. */
GN_API void gn_sleep_us(uint64_t us);

/* ---- waiting ---- */

/*
 * Something that becomes ready: a completion queue or an event channel of the fabric, a client or a
 * polled server, a queue of gannet/exec.h.
 */
struct gn_source;

/*
 * Integration into another event loop (poll, epoll, libuv).
 *
 * gn_source_fd() returns the source's fd. The source owns the fd: do not read or close it. The fd
 * is meaningful only while the source is armed:
 *
 *     loop: poll the object until it has nothing more to do
 *           gn_source_arm(); on -EAGAIN go to loop
 *           sleep until the fd is readable, or for other reasons
 *           go to loop
 *
 * gn_source_arm() returns 0: the fd becomes readable when the object must be polled (a completion,
 * a disconnect, a deadline, a timer). Spurious wake-ups are possible. -EAGAIN: poll the object
 * first. -EINVAL: gn_source_fd() was not called. -EPERM, -EDEADLK: as for a poll of the object.
 * Arming asks peers to wake this side, which costs the peers work: a loop that expects a message
 * within a few microseconds should poll for that long first. gn_source_disarm() cancels an arm when
 * the loop continues polling.
 *
 * gn_source_fd() returns -EOPNOTSUPP in a simulation; use gn_wait() there. Call these functions
 * only from the thread that owns the object.
 */
GN_API int gn_source_fd(struct gn_source *source);
GN_API int gn_source_arm(struct gn_source *source);
GN_API void gn_source_disarm(struct gn_source *source);

enum gn_wait_kind { GN_WAIT_SOURCE, GN_WAIT_WORD, GN_WAIT_FD };

/* One item of a wait set. Initialise it with gn_wait_on(), gn_wait_word() or gn_wait_fd(). */
struct gn_wait_item {
	enum gn_wait_kind kind;
	bool ready; /* out: this item is ready */
	int fd;
	struct gn_source *source;
	const uint64_t *word;
	uint64_t seen;
	struct gn_wait_item *next, **prev; /* private */
	void *waiter;			   /* private */
};

static inline struct gn_wait_item gn_wait_on(struct gn_source *source)
{
	struct gn_wait_item item = {GN_WAIT_SOURCE, false, -1, source, NULL, 0, NULL, NULL, NULL};
	return item;
}

/* Ready when *word differs from seen. */
static inline struct gn_wait_item gn_wait_word(const uint64_t *word, uint64_t seen)
{
	struct gn_wait_item item = {GN_WAIT_WORD, false, -1, NULL, word, seen, NULL, NULL, NULL};
	return item;
}

/* Ready when fd is readable, hung up or in error. -EOPNOTSUPP in a simulation. */
static inline struct gn_wait_item gn_wait_fd(int fd)
{
	struct gn_wait_item item = {GN_WAIT_FD, false, fd, NULL, NULL, 0, NULL, NULL, NULL};
	return item;
}

#define GN_WAIT_MAX 64 /* items of one set */

/*
 * Waits until an item is ready. Returns the number of ready items, -ETIMEDOUT past the deadline, or
 * -EINTR if a signal interrupted the sleep. It may return 0 early: poll again.
 *
 * In a process it spins, yields, then sleeps. It sleeps only if every item can wake it: a memory
 * word cannot, because a remote WRITE raises no event. In a simulation the thread is parked until
 * an item changes. reason appears in deadlock reports and must outlive the wait.
 *
 * A signal that arrives before the sleep does not interrupt it. To notice every signal, add an fd
 * that the signal handler writes to, or use a deadline.
 */
GN_API int gn_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns,
		   const char *reason);
/*
 * gn_wait() by events only: arms the items, polls them once and sleeps. For callers that have
 * polled long enough themselves, and for events that come seldom: an event costs several
 * microseconds, but the wait costs no CPU time. Poll first: cards raise an event at once for a cq
 * that is armed with completions in it. A set that cannot sleep yields from the start. In a
 * simulation each return with a ready item costs the profile's interrupt_ns of CPU time.
 */
GN_API int gn_wait_sleep(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns,
			 const char *reason);

/* ---- checksums ---- */

/* Returns the CRC-32C of len_bytes bytes, continuing from crc (0 at the start). */
GN_API uint32_t gn_crc32c(uint32_t crc, const void *data, size_t len_bytes);
/* Returns the CRC-64/XZ (ECMA-182, reflected), continuing from crc (0 at the start). */
GN_API uint64_t gn_crc64(uint64_t crc, const void *data, size_t len_bytes);

/* ---- histogram ---- */

/*
 * A histogram with log-linear buckets: 128 per octave, so a reported value is within 0.4 % of a
 * recorded one. Values below 256 are exact; values from 2^42 on count as 2^42 - 1. One thread
 * writes; merge the histograms of several threads. min is UINT64_MAX while empty.
 */
#define GN_HIST_BUCKETS (36u * 128u)

struct gn_hist {
	uint64_t count, sum, min, max;
	uint64_t bucket[GN_HIST_BUCKETS];
};

GN_API void gn_hist_init(struct gn_hist *hist);
GN_API void gn_hist_add(struct gn_hist *hist, uint64_t value, uint64_t times);
GN_API void gn_hist_merge(struct gn_hist *into, const struct gn_hist *from);
/* Returns the value that percent of the recorded values do not exceed; 0 when empty. */
GN_API uint64_t gn_hist_percentile(const struct gn_hist *hist, double percent);
GN_API double gn_hist_mean(const struct gn_hist *hist);

#ifdef __cplusplus
}
#endif

#endif
