/* SPDX-License-Identifier: MIT */
/*
 * Models of hardware, one file each. Most are stations: an arrival waits until the station is free
 * and then occupies it for its service time. A station's state is only the instant from which it is
 * free, so it must be asked in the order of arrival, by the events in which things arrive.
 *
 *     thread ─ cpu ─ post ─ pcie ─▶ tx ─▶ link ─▶ (wire) ─▶ link ─▶ rx ─▶ memory
 *                                    └ cache                         └ cache
 *
 * docs/simulator.md has the equations.
 */
#ifndef GN_SIM_MODEL_H
#define GN_SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "gannet/sim.h"
#include "sim/engine.h"
#include "sim/fault.h"
#include "sim/profile.h"

struct gn_sim;
struct sim_thread;

/* ---- stations ---- */

struct sim_station {
	uint64_t free_ps, busy_ps;
};

/* An arrival at at_ps with service_ps leaves at the result. */
static inline uint64_t sim_station_pass(struct sim_station *station, uint64_t at_ps,
					uint64_t service_ps)
{
	const uint64_t start = station->free_ps > at_ps ? station->free_ps : at_ps;

	station->busy_ps += service_ps;
	station->free_ps = service_ps < SIM_NEVER - 1 - start ? start + service_ps : SIM_NEVER - 1;
	return station->free_ps;
}

static inline uint64_t sim_rate_ps(sim_rate rate, uint64_t bytes)
{
	return (bytes * rate) >> 10;
}

/* A slowdown by factor / SIM_FACTOR_ONE until a time. */
struct sim_slow {
	uint64_t until_ps;
	uint32_t factor;
};

static inline uint32_t sim_slow_factor(const struct sim_slow *slow, uint64_t now_ps)
{
	return slow->until_ps > now_ps ? slow->factor : SIM_FACTOR_ONE;
}

/* ---- cache.c: LRU cache of contexts and translations ---- */

struct sim_cache_entry;

struct sim_cache {
	uint64_t units, used;
	struct sim_cache_entry *entries;
	uint32_t *buckets;
	uint32_t n_entries, mask, first, last, free; /* first: used most recently */
};

int sim_cache_init(struct sim_cache *cache, uint64_t units);
void sim_cache_fini(struct sim_cache *cache);
/*
 * Looks up and inserts an entry as most recently used. True: it was there. Without units everything
 * is.
 */
bool sim_cache_touch(struct sim_cache *cache, uint64_t key, uint32_t units);

/*
 * Objects of one kind in use, of which the card caches some units. Beyond that each one evicts
 * another.
 */
struct sim_set {
	struct sim_cache used; /* twice as many units: beyond that nothing is ever cached */
	uint64_t units, debt;
};

int sim_set_init(struct sim_set *set, uint64_t units);
void sim_set_fini(struct sim_set *set);
/* True: it must be fetched. Never without units. */
bool sim_set_gone(struct sim_set *set, uint64_t key, uint32_t units);

/* ---- a node's device ---- */

struct sim_device {
	const struct sim_profile *profile;
	struct sim_engine *engine;
	struct sim_station doorbells, dma_read, dma_write, tx, rx, atomic, icm, link_out, link_in;
	struct sim_slow slow; /* fault: slow-link */
	struct sim_cache cache;
	struct sim_set contexts, scatter, gather; /* of a card that stalls, instead */
	/* lines of requests posted and not complete; fetches that are due, in 1/2^32 */
	uint64_t wqes, wqe_debt;
	uint64_t requests, packets_out, packets_in, bytes_out, bytes_in, inbound, interrupts;
	uint64_t hits, misses, wqe_misses, inbound_misses;
};

/* ---- cpu.c ---- */

struct sim_cpu {
	struct sim_station *cores;
	unsigned n_cores, next; /* core of the next thread */
	uint64_t busy_ps;
};

int sim_cpu_init(struct sim_cpu *cpu, const struct sim_profile *profile);
void sim_cpu_fini(struct sim_cpu *cpu);
/* Returns when ps of work of a thread with that core ends, which may start at at_ps. */
uint64_t sim_cpu_work(struct sim_cpu *cpu, unsigned core, uint64_t at_ps, uint64_t ps);

/* ---- post.c: the path of requests from a thread to the card, through their context ---- */

#define SIM_PATH_MAX 256u /* concurrent posters; more count as this many. A power of two */

/* Zero-initialised is ready for use. */
struct sim_path {
	uint64_t ends[SIM_PATH_MAX]; /* a ring: until when each poster occupies the path */
	uint32_t head, tail;
	uint64_t last; /* id of the last thread, or 0: never an address */
};

/* The thread with this id arrives at at_ps and leaves at the result. */
uint64_t sim_path_pass(struct sim_path *path, const struct sim_device *device, uint64_t who,
		       uint64_t at_ps);

/* ---- pcie.c ---- */

/*
 * Returns when a doorbell rung at at_ps, with or without inline data, arrives at the card. cold: a
 * card that stalls must fetch the context first.
 */
uint64_t sim_doorbell(struct sim_device *device, uint64_t at_ps, bool with_data, bool cold);
/* Returns when the card has read bytes from memory, by dependent reads. */
uint64_t sim_dma_read(struct sim_device *device, uint64_t at_ps, uint64_t bytes, unsigned reads);
/* … has written them to memory. */
uint64_t sim_dma_write(struct sim_device *device, uint64_t at_ps, uint64_t bytes);
/* A card that stalls: no transfer for ps. */
uint64_t sim_dma_stall(struct sim_device *device, uint64_t at_ps, uint64_t ps);

/* ---- engines.c: requests, responses and acknowledgements of connected qps ---- */

enum sim_packet { SIM_REQUEST, SIM_READ_RESPONSE, SIM_ACK };

/* A range of registered memory, by the key of its region. */
struct sim_span {
	uint64_t memory, offset, bytes;
};

/* What a message accesses, for the card's cache. */
struct sim_message {
	enum sim_packet packet;
	bool read;    /* a READ or an atomic: misses do not overlap */
	uint32_t qpn; /* of the card's own qp */
	bool receive; /* it uses a receive */
	bool cold;    /* its doorbell found the context evicted (sim_is_cold()) */
	bool more;    /* other requests of its qp are in flight */
	/* no other request of its qp is ready to leave: it is the first of a visit */
	bool visit;
	/* lines of 64 bytes of its request, or 0: no slot; of all outstanding ones of its qp */
	uint64_t lines, qp_lines;
	uint64_t bytes;		      /* of payload */
	const struct sim_span *spans; /* the memory it accesses */
	unsigned n_spans;
};

/* Returns when it leaves the engine. */
uint64_t sim_tx(struct sim_device *device, const struct sim_message *message);
/* A card that stalls: for how long before a request with payload is fetched? */
uint64_t sim_gather_ps(struct sim_device *device, const struct sim_message *message);
/* A card that stalls: was the context of a doorbell evicted? It is cached afterwards. */
bool sim_is_cold(struct sim_device *device, uint32_t qpn);
/*
 * Returns when it was received; it accesses memory after *stall_ps, during which everything else
 * stalls, too.
 */
uint64_t sim_rx(struct sim_device *device, const struct sim_message *message, uint64_t *stall_ps);
static inline uint64_t sim_later(uint64_t a_ps, uint64_t b_ps)
{
	return a_ps > b_ps ? a_ps : b_ps;
}
/* An atomic on a region of that length. */
uint64_t sim_atomic_unit(struct sim_device *device, uint64_t at_ps, uint64_t region_bytes);

/* ---- datagram.c ---- */
uint64_t sim_tx_datagram(struct sim_device *device);
uint64_t sim_rx_datagram(struct sim_device *device);

/* ---- link.c ---- */

/* A message that may leave at at_ps: returns when its head arrives at the switch. */
uint64_t sim_link_send(struct sim_device *device, uint64_t at_ps, uint64_t bytes);
/* Its head arrives now: returns when all of it has arrived. */
uint64_t sim_link_receive(struct sim_device *device, uint64_t bytes);

/* ---- complete.c ---- */

/* When a completion that the card reports at at_ps becomes visible. */
uint64_t sim_complete(const struct sim_device *device, uint64_t at_ps);
/* An interrupt wakes a thread that sleeps: its cost. */
uint64_t sim_interrupt(struct sim_device *device);

/* ---- register.c ---- */
uint64_t sim_register_cost(const struct sim_profile *profile, uint64_t bytes);

/* ---- device.c ---- */
int sim_device_init(struct sim_device *device, struct sim_engine *engine,
		    const struct sim_profile *profile);
void sim_device_fini(struct sim_device *device);
void sim_device_stats(const struct sim_device *device, struct gn_sim_stats *out);
/* ps with the profile's jitter. */
uint64_t sim_jitter(const struct sim_device *device, uint64_t ps);

#endif
