/* SPDX-License-Identifier: MIT */
/*
 * Events of later instants. Those of the next 2 us wait in a wheel of small buckets, 4 ns each,
 * which costs the same however many there are and fits a processor's nearest cache; the rest, and
 * what a bucket has no room for, wait in a heap.
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
	enum sim_place where; /* it waits, and at which position there */
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
	uint32_t n, room;  /* how many wait, and can */
	uint64_t first_ps; /* when the earliest happens, if known */
	bool known;

	struct sim_far *far;
	uint32_t n_far;
	uint64_t seq;

	uint64_t any;			 /* words of used that are not 0 */
	uint64_t used[SIM_BUCKETS / 64]; /* buckets that are not empty */
	uint8_t n_near[SIM_BUCKETS];
	struct sim_near near[SIM_BUCKETS][SIM_BUCKET_ROOM];
};

void sim_queue_init(struct sim_queue *queue);
void sim_queue_fini(struct sim_queue *queue);
/* Make room for so many at once; then adding one cannot fail. */
int sim_queue_reserve(struct sim_queue *queue, uint32_t n);

/* at_ps is later than now_ps, which never goes back. Sets where and pos. */
void sim_queue_add(struct sim_queue *queue, struct sim_event *event, uint64_t at_ps,
		   uint64_t now_ps);
/* Takes out one that waits here. */
void sim_queue_remove(struct sim_queue *queue, struct sim_event *event);
/* When the earliest happens; SIM_NEVER: none waits. */
uint64_t sim_queue_first_ps(struct sim_queue *queue, uint64_t now_ps);
/* One that happens at at_ps, which is the earliest, is taken out; NULL: no more do. */
struct sim_event *sim_queue_take(struct sim_queue *queue, uint64_t at_ps);

#endif
