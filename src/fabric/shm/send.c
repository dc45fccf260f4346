/* SPDX-License-Identifier: MIT */
/*
 * Sends messages into our ring. The receiver publishes the size of each posted receive, so the
 * sender detects RNR and length errors by itself.
 */
#include "fabric/shm/shm.h"

#include "fabric/soft/copy.h"

#include <string.h>

/* Is a receive posted for the next message? */
static inline bool tx_has_receive(struct shm_conn *c)
{
	if (likely(c->tx_msg < c->posted_known))
		return true;
	/* Pairs with the release in shm_post_recv(): the sizes up to here are valid. */
	c->posted_known = __atomic_load_n(&c->peer->credit.posted, __ATOMIC_ACQUIRE);
	return c->tx_msg < c->posted_known;
}

static inline bool tx_has_slot(struct shm_conn *c)
{
	if (likely(c->tx_slot < c->slots_free_to))
		return true;
	/* Pairs with the release in rx_publish_consumed(): these slots have been read. */
	c->slots_free_to =
		__atomic_load_n(&c->peer->credit.slots_consumed, __ATOMIC_ACQUIRE) + SHM_SLOTS;
	return c->tx_slot < c->slots_free_to;
}

/* Does the next message fit its receive? */
static inline bool receive_fits(const struct shm_conn *c, uint64_t len)
{
	return likely(len <= __atomic_load_n(&c->peer->conn_state.recv_floor, __ATOMIC_RELAXED)) ||
	       len <= __atomic_load_n(&c->peer_sizes[c->tx_msg & (c->peer_rq_size - 1)],
				      __ATOMIC_RELAXED);
}

/* Returns how many contiguous bytes of the data ring are free, at most want. */
static uint32_t data_space(struct shm_conn *c, uint64_t want)
{
	const uint32_t to_end = SHM_DATA - (uint32_t)(c->tx_data_at & (SHM_DATA - 1));
	uint64_t space = c->data_free_to - c->tx_data_at;

	if (space < want && space < SHM_FRAGMENT) {
		c->data_free_to =
			__atomic_load_n(&c->peer->credit.data_consumed, __ATOMIC_ACQUIRE) +
			SHM_DATA;
		space = c->data_free_to - c->tx_data_at;
	}
	if (space > SHM_DATA) /* an invalid value of the peer harms only its own messages */
		return 0;
	if (space > want)
		space = want;
	if (space > SHM_FRAGMENT)
		space = SHM_FRAGMENT;
	return space < to_end ? (uint32_t)space : to_end;
}

/* Called after every slot: the receiver may be asleep. */
static inline void tx_wake_receiver(struct shm_conn *c, bool solicited)
{
	uint32_t armed;

	/*
	 * Pairs with the fence in shm_cq_arm(): we see the receiver armed, or its next poll sees
	 * the message.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	armed = __atomic_load_n(&c->peer->conn_state.armed, __ATOMIC_RELAXED);
	if (likely((armed & 3) == SOFT_UNARMED || armed == c->arm_answered))
		return;
	if ((armed & 3) == SOFT_ARMED_SOLICITED && !solicited)
		return;
	c->arm_answered = armed;
	wire_wake(c->sock.fd);
}

static inline void slot_publish(struct shm_conn *c, struct slot *slot, uint32_t frag_len,
				uint32_t flags)
{
	/* Pairs with the acquire in the receiver's shm_progress_recvs(). */
	__atomic_store_n(&slot->head, slot_head(c->tx_slot, frag_len, flags), __ATOMIC_RELEASE);
	c->tx_slot++;
}

static inline struct slot *tx_next_slot(struct shm_conn *c, uint32_t msg_len, uint32_t imm)
{
	struct slot *slot = &c->tx_slots[c->tx_slot & (SHM_SLOTS - 1)];

	slot->msg_len = msg_len;
	slot->imm = imm;
	return slot;
}

/* No receive is posted: wait as long as the connection's rnr options allow. */
static enum send_result send_wait_for_receive(struct shm_conn *c, enum gn_wc_status *status)
{
	const uint64_t now = gn_now_ns();

	if (!c->rnr_since_ns)
		c->rnr_since_ns = now;
	if (now - c->rnr_since_ns < c->rnr_budget_ns)
		return SEND_BLOCKED;
	*status = GN_WC_RNR;
	return SEND_FAILED;
}

static uint32_t message_flags(const struct gn_wr *wr)
{
	return (wr->op == GN_OP_SEND ? 0u : SLOT_IMM) |
	       (wr->op == GN_OP_WRITE_IMM ? SLOT_WRITE_IMM : 0u) |
	       (wr->flags & GN_SOLICITED ? SLOT_SOLICITED : 0u);
}

/* Sends fragments through the data ring while it has space. */
static enum send_result send_fragments(struct shm_qp *qp, const struct gn_wr *wr, uint64_t len,
				       uint32_t flags)
{
	struct shm_conn *c = &qp->conn;

	while (c->tx_off < len) {
		const uint64_t at = c->tx_data_at;
		uint32_t frag_len, f = flags;
		struct slot *slot;

		if (!tx_has_slot(c))
			return SEND_BLOCKED;
		frag_len = data_space(c, len - c->tx_off);
		if (!frag_len)
			return SEND_BLOCKED;
		slot = tx_next_slot(c, (uint32_t)len, wr->imm);
		slot->data_at = at;
		soft_gather(c->tx_data + (at & (SHM_DATA - 1)), wr->sge, wr->n_sge, c->tx_off,
			    frag_len);
		f |= c->tx_off == 0 ? SLOT_FIRST : 0;
		c->tx_off += frag_len;
		c->tx_data_at += frag_len;
		f |= c->tx_off == len ? SLOT_LAST : 0;
		slot_publish(c, slot, frag_len, f);
		tx_wake_receiver(c, true);
	}
	return SEND_DONE;
}

bool shm_send_short(struct shm_qp *qp, const struct gn_wr *wr)
{
	struct shm_conn *c = &qp->conn;
	const uint32_t len = wr->sge->len_bytes;
	struct slot *slot;

	if (unlikely(c->tx_off || !tx_has_receive(c) || !tx_has_slot(c) || !receive_fits(c, len)))
		return false;
	slot = tx_next_slot(c, len, 0);
	copy_relaxed(slot->bytes, wr->sge->addr, len);
	slot_publish(c, slot, len, SLOT_FIRST | SLOT_LAST | SLOT_INLINED);
	c->tx_msg++;
	tx_wake_receiver(c, false);
	return true;
}

enum send_result shm_send(struct shm_qp *qp, const struct gn_wr *wr, enum gn_wc_status *status)
{
	struct shm_conn *c = &qp->conn;
	const uint64_t len = soft_sge_len(wr->sge, wr->n_sge);
	uint32_t flags = message_flags(wr);
	enum send_result result = SEND_DONE;

	if (likely(!c->tx_off)) {
		if (unlikely(!tx_has_receive(c)))
			return send_wait_for_receive(c, status);
		c->rnr_since_ns = 0;
		if (unlikely(!tx_has_slot(c)))
			return SEND_BLOCKED;
		if (unlikely(
			    !(flags & SLOT_WRITE_IMM) &&
			    len > __atomic_load_n(&c->peer_sizes[c->tx_msg & (c->peer_rq_size - 1)],
						  __ATOMIC_RELAXED))) {
			slot_publish(c, tx_next_slot(c, (uint32_t)len, 0), 0,
				     SLOT_TOO_LONG | SLOT_FIRST | SLOT_LAST);
			tx_wake_receiver(c, true);
			*status = GN_WC_REMOTE_INVALID;
			return SEND_FAILED;
		}
	}
	if (flags & SLOT_WRITE_IMM || len <= SLOT_INLINE) {
		struct slot *slot = tx_next_slot(c, (uint32_t)len, wr->imm);

		flags |= SLOT_FIRST | SLOT_LAST | SLOT_INLINED;
		if (!(flags & SLOT_WRITE_IMM))
			soft_gather(slot->bytes, wr->sge, wr->n_sge, 0, len);
		slot_publish(c, slot, flags & SLOT_WRITE_IMM ? 0 : (uint32_t)len, flags);
		tx_wake_receiver(c, flags & SLOT_SOLICITED);
	} else {
		result = send_fragments(qp, wr, len, flags);
	}
	if (likely(result == SEND_DONE)) {
		c->tx_msg++;
		c->tx_off = 0;
	}
	return result;
}
