/* SPDX-License-Identifier: MIT */
/*
 * gannet/base.h - what every program that uses Gannet needs: errors, log, time, waiting, checksums
 * and histograms. gannet/exec.h has the rest of what a program needs to run in a simulation too.
 *
 * Unless a call says otherwise it may be made from any thread, and returns 0 or a negative errno.
 * In a simulation the clock is virtual, and a wait parks a simulated thread.
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

/* Text for 0 or a negative errno as Gannet returns it. Never NULL; the string is static. */
GN_API const char *gn_strerror(int err);

/*
 * Why the last call of this thread that failed did so, in words that say what to do: "" when none
 * has. Ask at once: it stays until something else fails, be it a step that a call which succeeds
 * tried in vain. Each thread, simulated ones too, has its own text.
 */
GN_API const char *gn_error(void);

#define GN_VERSION_MAJOR 0
#define GN_VERSION_MINOR 2
#define GN_VERSION_PATCH 0
/* As one number, to be compared: 0x000200 is 0.2.0. */
#define GN_VERSION (GN_VERSION_MAJOR << 16 | GN_VERSION_MINOR << 8 | GN_VERSION_PATCH)

/* The library's, which may be newer than the headers': "0.2.0". */
GN_API const char *gn_version(void);

/* ---- log ---- */

enum gn_log_level { GN_LOG_ERROR, GN_LOG_WARN, GN_LOG_INFO, GN_LOG_DEBUG };

/*
 * One line, without a newline, at the place where a cause is known. Control characters become
 * spaces, and what exceeds a kilobyte is cut off. The default sink writes "gannet: error: …" to
 * stderr; the level comes from GANNET_LOG (error, warn, info, debug; default warn).
 */
GN_API void gn_log(enum gn_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Replace the sink (NULL restores the default). Call before other threads use Gannet. */
typedef void gn_log_fn(void *arg, enum gn_log_level level, const char *line);
GN_API void gn_log_to(gn_log_fn *fn, void *arg);
GN_API void gn_log_level_set(enum gn_log_level level);

/* ---- time ---- */

/* Monotonic nanoseconds; virtual in a simulation. */
GN_API uint64_t gn_now_ns(void);

/*
 * A deadline_ns is a time of gn_now_ns(): GN_FOREVER and 0 mean none, GN_NO_WAIT only looks.
 * GN_NO_WAIT is a time that has always passed; a deadline that has passed already means the same.
 */
#define GN_FOREVER UINT64_MAX
#define GN_NO_WAIT UINT64_C(1)

/* The deadline us microseconds from now: never 0, and GN_FOREVER when it is beyond all time. */
GN_API uint64_t gn_deadline_us(uint64_t us);

/* Let others run. */
GN_API void gn_yield(void);
/* Let at least this much time go by. */
GN_API void gn_sleep_us(uint64_t us);

/* ---- waiting ---- */

/*
 * What can become ready: a completion queue or an event channel of the fabric, a client or a server
 * that is polled, a queue of gannet/exec.h.
 */
struct gn_source;

/*
 * A source in somebody else's event loop. The fd is the source's, for as long as that lives, and is
 * good for poll(), epoll and the like; nobody reads it. It says something only while the source is
 * armed:
 *
 *     poll the object until it has nothing more to do; gn_source_arm(); if that is 0, sleep until
 *     the fd is readable, or something else; poll the object again
 *
 * gn_source_arm(): 0: the fd becomes readable when the object should be polled: something has come,
 * a peer is gone, a deadline or another timer is due. It may do so early. -EAGAIN: poll it first.
 * -EINVAL: gn_source_fd() was not called; -EPERM, -EDEADLK: as of a poll of the object. To arm asks
 * peers to wake this side, which is work for them: a loop that expects something within a few
 * microseconds polls for that long before. gn_source_disarm() is for one that goes on polling
 * without another arm. All of it from the thread that the object belongs to. gn_source_fd(): the
 * fd, -EOPNOTSUPP in a simulation, where gn_wait() does the same, or what keeps it from being made.
 */
GN_API int gn_source_fd(struct gn_source *source);
GN_API int gn_source_arm(struct gn_source *source);
GN_API void gn_source_disarm(struct gn_source *source);

enum gn_wait_kind { GN_WAIT_SOURCE, GN_WAIT_WORD, GN_WAIT_FD };

/* One member of a set to wait for. Fill it with gn_wait_on(), gn_wait_word() or gn_wait_fd(). */
struct gn_wait_item {
	enum gn_wait_kind kind;
	bool ready; /* out: this member woke the wait */
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

/* Ready when fd is readable, hung up or broken. Refused in a simulation (-EOPNOTSUPP). */
static inline struct gn_wait_item gn_wait_fd(int fd)
{
	struct gn_wait_item item = {GN_WAIT_FD, false, fd, NULL, NULL, 0, NULL, NULL, NULL};
	return item;
}

#define GN_WAIT_MAX 64 /* members of one set */

/*
 * What a loop calls when it found nothing: returns how many members are ready, -ETIMEDOUT past the
 * deadline (see GN_FOREVER), or -EINTR when a signal ended its sleep. It may
 * return 0 early: look again. In a process it spins, yields, then sleeps, but sleeps only if every
 * member can wake it: a memory word cannot, because a remote WRITE raises no event. In a simulation
 * it parks until a member changes. reason is what a deadlock report prints; it must outlive the
 * wait.
 *
 * A signal that comes before the sleep does not end it. To be sure of noticing one, give the set a
 * descriptor that its handler writes, or a deadline.
 */
GN_API int gn_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns,
		   const char *reason);

/* ---- checksums ---- */

/* CRC-32C of len bytes, continuing from crc (0 to begin). */
GN_API uint32_t gn_crc32c(uint32_t crc, const void *data, size_t len_bytes);
/* CRC-64/XZ (ECMA-182, reflected), continuing from crc (0 to begin). */
GN_API uint64_t gn_crc64(uint64_t crc, const void *data, size_t len_bytes);

/* ---- histogram ---- */

/*
 * Values in log-linear buckets: 128 to an octave, so a reported value is within 0.4 % of a recorded
 * one. Exact below 256; values from 2^42 count as 2^42 - 1. One writer; merge to combine threads.
 * min is UINT64_MAX while empty.
 */
#define GN_HIST_BUCKETS (36u * 128u)

struct gn_hist {
	uint64_t count, sum, min, max;
	uint64_t bucket[GN_HIST_BUCKETS];
};

GN_API void gn_hist_init(struct gn_hist *hist);
GN_API void gn_hist_add(struct gn_hist *hist, uint64_t value, uint64_t times);
GN_API void gn_hist_merge(struct gn_hist *into, const struct gn_hist *from);
/* The value below or at which percent of the values lie; 0 when empty. */
GN_API uint64_t gn_hist_percentile(const struct gn_hist *hist, double percent);
GN_API double gn_hist_mean(const struct gn_hist *hist);

#ifdef __cplusplus
}
#endif

#endif
