/* SPDX-License-Identifier: MIT */
/*
 * Events of later instants. Events of the next 2 us are in a timing wheel of small 4-ns buckets,
 * which has constant cost and fits the L1 cache; the rest, and overflows of a bucket, are in a
 * heap.
 */
#ifndef GN_SIM_QUEUE_H
#define GN_SIM_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_NEVER UINT64_MAX

#define SIM_BUCKETS	512u /* at most 64 words of 64 bits */
#define SIM_BUCKET_BITS 12u  /* ps in a bucket: 2^12 */
#define SIM_BUCKET_ROOM 4u

enum sim_place { SIM_EVENT_IDLE, SIM_EVENT_NEAR, SIM_EVENT_FAR, SIM_EVENT_NOW };

struct sim_event {
	void (*fn)(struct sim_event *event);
	uint64_t id;	      /* (kind, number), for the trace */
	enum sim_place where; /* the structure that holds it, and its position there */
	uint32_t pos;
};

struct sim_near {
	uint64_t at_ps;
	struct sim_event *event;
};

struct sim_far {
	uint64_t at_ps, seq;
	struct sim_event *event;
};

struct sim_queue {
	uint32_t n, capacity; /* entries, capacity */
	uint64_t first_ps;    /* time of the earliest entry, if known */
	bool known;

	struct sim_far *far;
	uint32_t n_far;
	uint64_t seq;

	uint64_t any;			 /* bit per non-zero word of used */
	uint64_t used[SIM_BUCKETS / 64]; /* bit per non-empty bucket */
	uint8_t n_near[SIM_BUCKETS];
	struct sim_near near[SIM_BUCKETS][SIM_BUCKET_ROOM];
};

void sim_queue_init(struct sim_queue *queue);
void sim_queue_fini(struct sim_queue *queue);
/* Reserves space for n events; adding one then cannot fail. */
int sim_queue_reserve(struct sim_queue *queue, uint32_t n);

/* at_ps is later than now_ps, which never decreases. Sets where and pos. */
void sim_queue_add(struct sim_queue *queue, struct sim_event *event, uint64_t at_ps,
		   uint64_t now_ps);
/* Removes a queued event. */
void sim_queue_remove(struct sim_queue *queue, struct sim_event *event);
/* Time of the earliest event; SIM_NEVER: the queue is empty. */
uint64_t sim_queue_first_ps(struct sim_queue *queue, uint64_t now_ps);
/* Removes and returns an event of the earliest instant, at_ps; NULL: there are no more. */
struct sim_event *sim_queue_take(struct sim_queue *queue, uint64_t at_ps);

#endif
