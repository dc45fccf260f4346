/* SPDX-License-Identifier: MIT */
/*
 * WRITEs that become visible late or in pieces. A device without ordering guarantees shows the
 * 64-byte lines of a WRITE in any order, possibly after its completion, and samples those of a READ
 * at different instants. Here both happen as often as possible: always when the guarantee is
 * missing, and as faults where the rules allow it anyway.
 *
 * All WRITEs in flight become visible before a READ, an atomic or a receive of the same qp could
 * show otherwise.
 */
#include <stdlib.h>
#include <string.h>

#include "fabric/sim/sim.h"

#define BLOCK_LINES 2u		    /* of GN_CAP_INORDER_128 */
#define STEP_MAX_PS (400ull * 1000) /* between two lines, or two samples */
#define SAMPLES_MAX 3u

/* ---- order of cache lines ---- */

static uint64_t lines_of(const uint8_t *addr, uint64_t len_bytes)
{
	const uintptr_t first = (uintptr_t)addr / SIM_LINE;

	return ((uintptr_t)addr + len_bytes - 1) / SIM_LINE - first + 1;
}

/* Offset and length of the i-th line of the message. */
static uint64_t line_at(const uint8_t *addr, uint64_t len_bytes, uint64_t i, uint64_t *run)
{
	const uint64_t lead = SIM_LINE - (uintptr_t)addr % SIM_LINE;
	const uint64_t from = i ? lead + (i - 1) * SIM_LINE : 0;
	const uint64_t to = lead + i * SIM_LINE;

	*run = (to < len_bytes ? to : len_bytes) - from;
	return from;
}

/* Shuffles n lines except the first keep; lines stay in order within a block. */
static void lines_shuffle(struct sim_engine *engine, uint32_t *order, uint64_t n, uint64_t keep)
{
	for (uint64_t i = n; i > keep + 1; i--) {
		const uint64_t j = keep + sim_random_below(&engine->random, (uint32_t)(i - keep));
		const uint32_t swap = order[i - 1];

		order[i - 1] = order[j];
		order[j] = swap;
	}
}

/* Shuffles blocks of aligned lines; lines stay in order within a block. */
static void lines_shuffle_blocks(struct sim_engine *engine, uint32_t *order, uint64_t n, bool odd)
{
	uint32_t *sorted = malloc(n * sizeof(*sorted));
	uint64_t at = 0, blocks = (n + odd + BLOCK_LINES - 1) / BLOCK_LINES;

	if (!sorted)
		return; /* one of the possible orders */
	for (uint32_t i = 0; i < blocks; i++)
		order[i] = i;
	lines_shuffle(engine, order, blocks, 0);
	for (uint64_t b = 0; b < blocks; b++)
		for (uint64_t k = 0; k < BLOCK_LINES; k++) {
			const uint64_t line = order[b] * (uint64_t)BLOCK_LINES + k;

			if (line >= odd && line - odd < n)
				sorted[at++] = (uint32_t)(line - odd);
		}
	memcpy(order, sorted, n * sizeof(*sorted));
	free(sorted);
}

static uint64_t step_ps(struct sim_engine *engine)
{
	return sim_random_below(&engine->random, STEP_MAX_PS);
}

/* ---- WRITEs ---- */

struct sim_flight {
	struct sim_event event;
	struct sim_qp *to;
	struct sim_flight *next;
	uint8_t *addr;
	uint64_t len_bytes, lines, landed;
	bool in_order; /* after the previous one */
	uint32_t *order;
	uint8_t data[];
};

static void flight_land_line(struct sim_flight *flight)
{
	uint64_t run;
	const uint64_t at =
		line_at(flight->addr, flight->len_bytes, flight->order[flight->landed++], &run);

	memcpy(flight->addr + at, flight->data + at, run);
	sim_changed(flight->to, flight->addr + at, run);
}

static void flight_free(struct sim_flight *flight)
{
	struct sim_flight **at = &flight->to->flights;

	while (*at != flight)
		at = &(*at)->next;
	*at = flight->next;
	sim_event_fini(sim_engine_of(flight->to), &flight->event);
	free(flight->order);
	free(flight);
}

static void flight_land(struct sim_flight *flight)
{
	while (flight->landed < flight->lines)
		flight_land_line(flight);
	flight_free(flight);
}

static void flight_land_earlier(const struct sim_flight *flight)
{
	while (flight->in_order && flight->to->flights != flight)
		flight_land(flight->to->flights);
}

static void flight_step(struct sim_event *event)
{
	struct sim_flight *flight = container_of(event, struct sim_flight, event);
	struct sim_engine *engine = sim_engine_of(flight->to);

	flight_land_earlier(flight);
	flight_land_line(flight);
	if (flight->landed == flight->lines)
		flight_free(flight);
	else
		sim_event_at(engine, event, sim_after(engine, step_ps(engine)));
}

void sim_flights_land(struct sim_qp *to)
{
	while (to->flights)
		flight_land(to->flights);
}

void sim_flights_land_in(struct sim_qp *to, const uint8_t *addr, uint64_t len_bytes)
{
	for (struct sim_flight *flight = to->flights, *next; flight; flight = next) {
		next = flight->next;
		if (flight->addr < addr || flight->addr >= addr + len_bytes)
			continue;
		flight_land_earlier(flight);
		flight_land(flight);
	}
}

void sim_flights_drop(struct sim_qp *to)
{
	while (to->flights)
		flight_free(to->flights);
}

/* Time until the first line becomes visible; false: place it now. */
static bool flight_is_late(unsigned node, struct sim_qp *to, uint64_t len_bytes, uint64_t *ps)
{
	struct gn_sim *sim = sim_fabric_of(&to->qp.obj)->sim;
	const uint64_t caps = to->qp.caps;

	*ps = 0;
	if (sim_fault(sim, SIM_LATE_VISIBILITY, node)) {
		*ps = sim_fault_delay_ps(sim);
		return true;
	}
	if (len_bytes > SIM_LINE && !(caps & GN_CAP_INORDER_WRITE) &&
	    sim_fault(sim, SIM_LINES, node))
		return true;
	if (to->flights && caps & GN_CAP_WRITE_ORDER)
		return true;
	if (caps & GN_CAP_INORDER_WRITE && caps & GN_CAP_WRITE_ORDER)
		return false;
	/* A device with weaker guarantees uses them for half of its WRITEs. */
	*ps = step_ps(&sim->engine);
	return *ps % 2;
}

static void flight_order(struct sim_flight *flight, uint64_t caps)
{
	struct sim_engine *engine = sim_engine_of(flight->to);

	for (uint32_t i = 0; i < flight->lines; i++)
		flight->order[i] = i;
	if (caps & GN_CAP_INORDER_WRITE)
		return;
	if (caps & GN_CAP_INORDER_128)
		lines_shuffle_blocks(engine, flight->order, flight->lines,
				     (uintptr_t)flight->addr / SIM_LINE % BLOCK_LINES);
	else
		lines_shuffle(engine, flight->order, flight->lines, 0);
}

/*
 * Of two WRITEs to the same bytes the later one must win, whatever the guarantees. With ordered
 * WRITEs this happens by itself.
 */
static void flight_land_under(struct sim_qp *to, const uint8_t *addr, uint64_t len_bytes)
{
	if (to->qp.caps & GN_CAP_WRITE_ORDER)
		return;
	for (struct sim_flight *flight = to->flights, *next; flight; flight = next) {
		next = flight->next;
		if (flight->addr < addr + len_bytes && addr < flight->addr + flight->len_bytes)
			flight_land(flight);
	}
}

bool sim_flight_begin(unsigned from_node, const struct gn_wr *wr, struct sim_qp *to, uint8_t *addr,
		      uint64_t len_bytes)
{
	struct sim_engine *engine = sim_engine_of(to);
	struct sim_flight *flight, **last;
	uint64_t ps;

	flight_land_under(to, addr, len_bytes);
	if (!flight_is_late(from_node, to, len_bytes, &ps))
		return false;
	flight = calloc(1, sizeof(*flight) + len_bytes);
	if (!flight)
		goto now;
	flight->lines = lines_of(addr, len_bytes);
	flight->order = malloc(flight->lines * sizeof(*flight->order));
	if (!flight->order ||
	    sim_event_init(engine, &flight->event, flight_step, SIM_KIND_QP, to->qp.qpn))
		goto free_flight;
	flight->to = to;
	flight->addr = addr;
	flight->len_bytes = len_bytes;
	flight->in_order = to->qp.caps & GN_CAP_WRITE_ORDER;
	soft_gather(flight->data, wr->sge, wr->n_sge, 0, len_bytes);
	flight_order(flight, to->qp.caps);
	for (last = &to->flights; *last; last = &(*last)->next)
		;
	*last = flight;
	sim_event_at(engine, &flight->event, sim_after(engine, ps));
	return true;

free_flight:
	free(flight->order);
	free(flight);
now:
	sim_flights_land(to);
	return false;
}

/* ---- READs ---- */

struct sim_sample {
	uint64_t lines, taken, rounds;
	uint32_t *order;
	uint8_t data[];
};

void sim_sample_drop(struct sim_send *send)
{
	if (!send->sample)
		return;
	free(send->sample->order);
	free(send->sample);
	send->sample = NULL;
}

static bool sample_is_torn(struct sim_qp *from, uint64_t len_bytes)
{
	struct gn_sim *sim = sim_fabric_of(&from->qp.obj)->sim;

	if (len_bytes <= sizeof(uint64_t))
		return false;
	return !(from->qp.caps & GN_CAP_READ_HEAD_FIRST) ||
	       sim_fault(sim, SIM_TORN_READ, sim_node_of(from)->index);
}

static struct sim_sample *sample_begin(struct sim_qp *from, const uint8_t *addr, uint64_t len_bytes)
{
	struct sim_engine *engine = sim_engine_of(from);
	const uint64_t lines = lines_of(addr, len_bytes);
	struct sim_sample *sample;

	if (lines < 2 || !sample_is_torn(from, len_bytes))
		return NULL;
	sample = calloc(1, sizeof(*sample) + len_bytes);
	if (!sample)
		return NULL;
	sample->order = malloc(lines * sizeof(*sample->order));
	if (!sample->order) {
		free(sample);
		return NULL;
	}
	sample->lines = lines;
	sample->rounds = 2 + sim_random_below(&engine->random, SAMPLES_MAX - 1);
	for (uint32_t i = 0; i < lines; i++)
		sample->order[i] = i;
	lines_shuffle(engine, sample->order, lines, from->qp.caps & GN_CAP_READ_HEAD_FIRST ? 1 : 0);
	return sample;
}

bool sim_sample_more(struct sim_qp *from, const struct gn_wr *wr, struct sim_send *send,
		     const uint8_t *addr, uint64_t len_bytes)
{
	struct sim_engine *engine = sim_engine_of(from);
	struct sim_sample *sample = send->sample;
	uint64_t until;

	if (!sample)
		sample = send->sample = sample_begin(from, addr, len_bytes);
	if (!sample)
		return false;
	until = --sample->rounds ? 1 + sim_random_below(&engine->random, (uint32_t)sample->lines) :
				   sample->lines;
	for (; sample->taken < until; sample->taken++) {
		uint64_t run;
		const uint64_t at = line_at(addr, len_bytes, sample->order[sample->taken], &run);

		memcpy(sample->data + at, addr + at, run);
	}
	if (sample->rounds) {
		send->at_ps = sim_after(engine, 1 + step_ps(engine));
		return true;
	}
	soft_scatter(wr->sge, wr->n_sge, 0, sample->data, len_bytes);
	return false;
}
