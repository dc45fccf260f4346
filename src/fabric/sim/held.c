/* SPDX-License-Identifier: MIT */
/*
 * Payload of sends between post and completion. Until a request has completed, its buffers belong
 * to the card, which may gather them at any time, in pieces, and again for a retransmission. So
 * they must not change: a checksum is taken at the post, and compared whenever the card could read
 * them. A program that changed a buffer violated the contract of gn_post_send(): the run ends with
 * a report.
 *
 * Bytes that the fabric itself stores in such a buffer (an earlier READ, for which a request with
 * GN_FENCE waits; a peer's WRITE) are not an error: that buffer is not compared any more.
 *
 * A response is as good as a completion: the target of an RC request may tell the program, by a
 * later message, that the request took effect. A card that has no ACK yet may still repeat the
 * request from a changed buffer, but the target ignores the repetition.
 */
#include <errno.h>
#include <string.h>

#include "base/list.h"
#include "fabric/sim/sim.h"

struct sim_held {
	struct sim_held *next, **prev; /* list of the process; prev NULL: not in one */
	const struct gn_wr *wr;
	uint64_t sum;
	bool excused;	/* the fabric itself stored something in the buffer */
	bool acted;	/* the target has all of it … */
	uint64_t heard; /* … when the qp's count of responses was this */
	uint64_t posted_ps, thread;
	struct sim_datagram *datagram[SIM_COPIES]; /* datagrams that still need some of its lines */
};

int sim_held_init(struct sim_qp *qp)
{
	qp->held = gn_alloc(((size_t)qp->sq.mask + 1) * sizeof(*qp->held), 0);
	return qp->held ? 0 : -ENOMEM;
}

static struct sim_held *held_at(const struct sim_qp *qp, uint64_t position)
{
	struct sim_held *held = &qp->held[position & qp->sq.mask];

	return held->prev ? held : NULL;
}

/* ---- checksums of buffers ---- */

static uint64_t held_sum_word(uint64_t sum, uint64_t word)
{
	sum = (sum ^ word) * 0x9fb21c651e98df25u;
	return sum ^ sum >> 32;
}

static uint64_t held_sum_bytes(uint64_t sum, const uint8_t *data, uint64_t len_bytes)
{
	uint64_t word = 0;

	for (; len_bytes >= sizeof(word); data += sizeof(word), len_bytes -= sizeof(word)) {
		memcpy(&word, data, sizeof(word));
		sum = held_sum_word(sum, word);
	}
	word = len_bytes;
	memcpy(&word, data, len_bytes);
	return held_sum_word(sum, word);
}

static uint64_t held_checksum(const struct gn_wr *wr)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < wr->n_sge; i++)
		sum = held_sum_bytes(sum, wr->sge[i].addr, wr->sge[i].len_bytes);
	return sum;
}

/* ---- the list ---- */

static bool held_readable(const struct sim_qp *qp, const struct gn_wr *wr)
{
	return soft_sge_ok(sim_fabric_of(&qp->qp.obj)->keys.table, qp->qp.pd, wr->sge, wr->n_sge,
			   0);
}

/* A list per address range of this size, so that a store checks few buffers. */
#define RANGE_BYTES 16384u

static uint64_t held_range(const void *addr)
{
	return (uintptr_t)addr / RANGE_BYTES;
}

static struct sim_held **held_list(struct sim_proc *proc, const struct gn_wr *wr)
{
	const struct gn_sge *sge = wr->sge;
	const uint64_t range = held_range(sge->addr);

	if (wr->n_sge > 1 || held_range((const uint8_t *)sge->addr + sge->len_bytes - 1) != range)
		return &proc->held[SIM_HELD_LISTS];
	return &proc->held[range % SIM_HELD_LISTS];
}

void sim_held_add(struct sim_qp *qp, uint64_t position)
{
	const struct gn_wr *wr = &qp->sq.wr[position & qp->sq.mask];
	struct sim_held *held = &qp->held[position & qp->sq.mask];
	struct sim_fabric *fabric = sim_fabric_of(&qp->qp.obj);
	struct sim_held **first;

	if (wr->flags & GN_INLINE || !sim_op_gathers(wr->op) || !sim_send_at(qp, position)->bytes ||
	    !held_readable(qp, wr))
		return;
	first = held_list(fabric->proc, wr);
	*held = (struct sim_held){
		.wr = wr,
		.sum = held_checksum(wr),
		.posted_ps = fabric->sim->engine.now_ps,
		.thread = fabric->sim->thread ? fabric->sim->thread->id : 0,
	};
	list_push(first, held);
}

static void held_release(struct sim_held *held)
{
	list_remove(held);
	held->prev = NULL;
}

static bool held_overlaps(const struct gn_wr *wr, const uint8_t *addr, uint64_t len_bytes)
{
	for (uint32_t i = 0; i < wr->n_sge; i++) {
		const uint8_t *piece = wr->sge[i].addr;

		if (piece < addr + len_bytes && addr < piece + wr->sge[i].len_bytes)
			return true;
	}
	return false;
}

static void held_excuse(struct sim_held *held, const void *addr, uint64_t len_bytes)
{
	for (; held; held = held->next)
		if (unlikely(held_overlaps(held->wr, addr, len_bytes)))
			held->excused = true;
}

void sim_held_placed(struct sim_proc *proc, const void *addr, uint64_t len_bytes)
{
	const uint64_t first = held_range(addr);
	const uint64_t last = len_bytes ? held_range((const uint8_t *)addr + len_bytes - 1) : first;

	for (uint64_t range = first; range <= last && range - first < SIM_HELD_LISTS; range++)
		held_excuse(proc->held[range % SIM_HELD_LISTS], addr, len_bytes);
	held_excuse(proc->held[SIM_HELD_LISTS], addr, len_bytes);
}

/* ---- checks ---- */

static void held_report(const struct sim_qp *qp, const struct sim_held *held, const char *what)
{
	const struct sim_fabric *fabric = sim_fabric_of(&qp->qp.obj);
	struct gn_sim *sim = fabric->sim;

	gn_log(GN_LOG_ERROR,
	       "sim: %s process %u: the buffer of a %s %s: qp %u, id %llu, %u bytes, posted at "
	       "%llu ns by thread %llu; noticed at %llu ns",
	       sim_node_of(qp)->name, fabric->proc->number, gn_op_str(held->wr->op), what,
	       qp->qp.qpn, (unsigned long long)held->wr->id,
	       (unsigned)soft_sge_len(held->wr->sge, held->wr->n_sge),
	       (unsigned long long)(held->posted_ps / SIM_PS_PER_NS),
	       (unsigned long long)held->thread, (unsigned long long)gn_sim_now_ns(sim));
	sim->stop = -EFAULT;
}

/* Is the buffer as it was posted? False: it is gone or has changed, which was reported. */
static bool held_intact(struct sim_qp *qp, struct sim_held *held, uint64_t sum)
{
	if (held->excused || likely(held->sum == sum))
		return true;
	held->excused = true; /* report only once */
	held_report(qp, held, "changed before it completed");
	return false;
}

void sim_held_check(struct sim_qp *qp, uint64_t position)
{
	struct sim_held *held = held_at(qp, position);

	if (held && !held->excused && held_readable(qp, held->wr))
		held_intact(qp, held, held_checksum(held->wr));
}

void sim_held_acted(struct sim_qp *qp, uint64_t position)
{
	struct sim_held *held = held_at(qp, position);

	if (!held)
		return;
	held->acted = true;
	held->heard = qp->heard;
}

/* ---- datagrams: some lines are gathered when sent, the others as late as possible ---- */

static void held_gather_lines(const struct gn_wr *wr, uint8_t *data, uint64_t len_bytes,
			      uint64_t mask)
{
	for (uint64_t at = 0, line = 0; at < len_bytes; at += SIM_LINE, line++)
		if (mask >> line % 64 & 1)
			soft_gather(data + at, wr->sge, wr->n_sge, at,
				    len_bytes - at < SIM_LINE ? len_bytes - at : SIM_LINE);
}

void sim_held_carry(struct sim_qp *qp, uint64_t position, struct sim_datagram *datagram)
{
	const struct gn_wr *wr = &qp->sq.wr[position & qp->sq.mask];
	struct sim_held *held = held_at(qp, position);
	unsigned i = 0;

	if (!held) {
		held_gather_lines(wr, datagram->data, datagram->len_bytes, ~0ull);
		return;
	}
	while (held->datagram[i])
		i++;
	held->datagram[i] = datagram;
	datagram->from = qp;
	datagram->position = position;
	/* Derived from the trace hash: needs no random draw. */
	datagram->late = sim_mix(sim_engine_of(qp)->hash + i);
	held_gather_lines(wr, datagram->data, datagram->len_bytes, ~datagram->late);
}

void sim_held_drop(struct sim_datagram *datagram)
{
	struct sim_held *held;

	if (!datagram->from)
		return;
	held = held_at(datagram->from, datagram->position);
	for (unsigned i = 0; i < SIM_COPIES; i++)
		if (held->datagram[i] == datagram)
			held->datagram[i] = NULL;
	datagram->from = NULL;
}

static void held_fill(struct sim_qp *qp, struct sim_held *held, struct sim_datagram *datagram)
{
	held_gather_lines(held->wr, datagram->data, datagram->len_bytes, datagram->late);
	sim_held_drop(datagram);
	if (held->wr->n_sge == 1)
		held_intact(qp, held, held_sum_bytes(0, datagram->data, datagram->len_bytes));
}

void sim_held_fill(struct sim_datagram *datagram)
{
	struct sim_qp *qp = datagram->from;

	if (qp)
		held_fill(qp, held_at(qp, datagram->position), datagram);
}

/* ---- completion ---- */

static void held_end(struct sim_qp *qp, struct sim_held *held)
{
	for (unsigned i = 0; i < SIM_COPIES; i++)
		if (held->datagram[i])
			held_fill(qp, held, held->datagram[i]);
	held_release(held);
}

void sim_held_end(struct sim_qp *qp, uint64_t position)
{
	struct sim_held *held = held_at(qp, position);

	if (!held)
		return;
	if (sim_send_at(qp, position)->status == GN_WC_OK &&
	    !(held->acted && held->heard != qp->heard))
		sim_held_check(qp, position);
	held_end(qp, held);
}

void sim_held_fini(struct sim_qp *qp)
{
	for (uint64_t at = 0; at <= qp->sq.mask; at++)
		if (qp->held[at].prev)
			held_end(qp, &qp->held[at]);
}

static bool held_uses(const struct gn_wr *wr, uint32_t lkey)
{
	for (uint32_t i = 0; i < wr->n_sge; i++)
		if (wr->sge[i].lkey == lkey)
			return true;
	return false;
}

void sim_held_deregister(struct sim_qp *qp, uint32_t lkey)
{
	for (uint64_t at = qp->passed[SIM_DONE]; at < qp->sq.head; at++) {
		struct sim_held *held = held_at(qp, at);

		if (!held || !held_uses(held->wr, lkey))
			continue;
		if (qp->qp.state == GN_QP_READY)
			held_report(qp, held, "was deregistered before it completed");
		held_end(qp, held);
	}
}
