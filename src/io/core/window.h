/* SPDX-License-Identifier: MIT */
/*
 * Admission by bytes in flight (RDMAbox IV-A). A window is shared by all channels of an engine; one
 * for READs and one for WRITEs, so that an eviction never waits behind faults. Freestanding;
 * integer arithmetic only.
 */
#ifndef GN_IO_CORE_WINDOW_H
#define GN_IO_CORE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define IO_WINDOW_DEFAULT UINT64_C(7000000)
#define IO_WINDOW_NONE	  UINT64_MAX

struct io_window {
	uint64_t limit;		/* atomic: bytes; IO_WINDOW_NONE: no limit */
	uint64_t in_flight;	/* atomic: bytes */
	uint64_t in_flight_max; /* atomic: the most there were */
	uint64_t claim;		/* atomic: the channel that goes next; 0: any */
};

static inline void io_window_init(struct io_window *window, uint64_t limit)
{
	*window = (struct io_window){.limit = limit};
}

/* Any thread. May bytes go now? A request above the window goes when nothing is in flight. */
static inline bool io_window_has(const struct io_window *window, uint64_t bytes)
{
	const uint64_t now = __atomic_load_n(&window->in_flight, __ATOMIC_RELAXED);
	const uint64_t limit = __atomic_load_n(&window->limit, __ATOMIC_RELAXED);

	return !now || (now < limit && bytes <= limit - now);
}

/*
 * Any thread: takes bytes of the window for a channel, if they fit and no other channel has a
 * claim. Check and increment are one step.
 */
static inline bool io_window_take(struct io_window *window, uint64_t bytes, uint64_t channel)
{
	const uint64_t claim = __atomic_load_n(&window->claim, __ATOMIC_SEQ_CST);
	const uint64_t limit = __atomic_load_n(&window->limit, __ATOMIC_RELAXED);
	uint64_t now = __atomic_load_n(&window->in_flight, __ATOMIC_RELAXED);

	if (claim && claim != channel)
		return false;
	do {
		if (now && (now >= limit || bytes > limit - now))
			return false;
	} while (!__atomic_compare_exchange_n(&window->in_flight, &now, now + bytes, true,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (now + bytes > __atomic_load_n(&window->in_flight_max, __ATOMIC_RELAXED))
		__atomic_store_n(&window->in_flight_max, now + bytes, __ATOMIC_RELAXED);
	return true;
}

/*
 * Any thread. A channel that was refused claims the window: other channels wait until it has posted
 * or gives the claim up. Otherwise short requests would keep a long one out for ever.
 */
static inline void io_window_claim(struct io_window *window, uint64_t channel)
{
	uint64_t none = 0;

	__atomic_compare_exchange_n(&window->claim, &none, channel, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_RELAXED);
}

/* True: the channel had the claim, and other channels may be waiting. */
static inline bool io_window_disclaim(struct io_window *window, uint64_t channel)
{
	if (__atomic_load_n(&window->claim, __ATOMIC_RELAXED) != channel)
		return false;
	__atomic_store_n(&window->claim, 0, __ATOMIC_SEQ_CST);
	return true;
}

/* Any thread: takes bytes that were admitted by other means. */
static inline void io_window_add(struct io_window *window, uint64_t bytes)
{
	const uint64_t now = __atomic_add_fetch(&window->in_flight, bytes, __ATOMIC_RELAXED);

	if (now > __atomic_load_n(&window->in_flight_max, __ATOMIC_RELAXED))
		__atomic_store_n(&window->in_flight_max, now, __ATOMIC_RELAXED);
}

static inline void io_window_put(struct io_window *window, uint64_t bytes)
{
	/* Pairs with a channel that marks itself starved, then looks again. */
	__atomic_fetch_sub(&window->in_flight, bytes, __ATOMIC_SEQ_CST);
}

/*
 * Finds the smallest window whose throughput is within 5 % of the best. It measures the throughput
 * of a window for one epoch, then tries another: smaller ones while the throughput holds. After a
 * trial that failed it rests at the good window, longer each time. One trial in four is a larger
 * window, because the load may have changed. One thread at a time.
 */
#define IO_AUTO_EPOCH_NS    2000000u /* at least; and at least so many completions: */
#define IO_AUTO_EPOCH_ENDED 64u
#define IO_AUTO_REST_MAX    64u /* epochs between two trials */
#define IO_AUTO_MIN	    UINT64_C(65536)
#define IO_AUTO_MAX	    (UINT64_C(1) << 28)

enum io_auto_phase { IO_AUTO_REST, IO_AUTO_DOWN, IO_AUTO_UP };

struct io_auto {
	uint64_t since_ns, bytes, ended; /* of this epoch */
	uint64_t best;			 /* throughput, in bytes per ms */
	uint64_t good;			 /* the smallest window that reached 95 % of it */
	enum io_auto_phase phase;
	uint32_t rest, backoff; /* epochs: left of this rest; of the next */
	uint32_t trials;
	bool limited; /* the window held something back in this epoch */
};

void io_auto_init(struct io_auto *adapt, struct io_window *window);
/* After completions of so many requests. */
void io_auto_ended(struct io_auto *adapt, struct io_window *window, uint64_t bytes, uint32_t ended,
		   uint64_t now_ns);

#endif
