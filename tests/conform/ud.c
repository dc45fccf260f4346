/* SPDX-License-Identifier: MIT */
/*
 * Cases 48-53: datagrams. They may be lost by the rules of the fabric, but on an idle network and
 * with receives posted none is: the cases keep fewer in flight than any provider must take, and
 * fail on a loss that nothing explains.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "conform.h"

#define QKEY	  0x1234u /* with the high bit clear: set, it means the privileged key */
#define SLOTS	  64u	  /* receives at once */
#define SLOT_GAP  64u	  /* painted bytes between slots */
#define PORT_TAG  UINT64_C(0x100000)
#define SMALL_LEN 16u

/* One UD qp with a painted receive buffer of SLOTS slots, and a slot to send from. */
struct port {
	struct gn_qp *qp;
	struct gn_cq *send_cq, *recv_cq;
	struct gn_mr *mr;
	uint8_t *buf;
	size_t buf_bytes;
	uint32_t slot_bytes; /* GRH and the longest datagram */
	struct gn_ud_addr addr;
};

static bool port_buffer(struct cf *cf, unsigned slots, struct port *port)
{
	struct gn_mem *mem;

	port->slot_bytes = GN_GRH_BYTES + cf->attr.ud_mtu;
	port->buf_bytes = (slots + 1u) * (size_t)(port->slot_bytes + SLOT_GAP);
	CHECK((mem = cf_make_mem(cf, port->buf_bytes, 0)));
	CHECK((port->mr = cf_make_mr(cf, cf->pd, mem, GN_LOCAL_WRITE)));
	port->buf = gn_mem_addr(mem);
	cf_paint(port->buf, port->buf_bytes);
	return true;
}

static bool port_qp(struct cf *cf, uint32_t recv_wr, struct port *port)
{
	struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_UD,
		.send_cq = port->send_cq,
		.recv_cq = port->recv_cq,
		.max_send_sge = 2,
		.max_recv_wr = recv_wr,
		.qkey = QKEY,
	};

	CHECK((port->qp = cf_make_qp(cf, cf->pd, &opts)));
	CHECK_INT(gn_qp_ud_addr(port->qp, &port->addr), 0);
	CHECK_INT(port->addr.qkey, QKEY);
	return true;
}

static bool port_open(struct cf *cf, struct port *port)
{
	CHECK(port_buffer(cf, SLOTS, port));
	CHECK((port->send_cq = cf_make_cq(cf, 2 * SLOTS, NULL)));
	CHECK((port->recv_cq = cf_make_cq(cf, 2 * SLOTS, NULL)));
	CHECK(port_qp(cf, SLOTS, port));
	return true;
}

static size_t slot_at(const struct port *port, uint64_t slot)
{
	return (slot % SLOTS) * (port->slot_bytes + SLOT_GAP);
}

/* Datagrams are sent from the last slot. */
static uint8_t *out_slot(const struct port *port)
{
	return port->buf + port->buf_bytes - port->slot_bytes - SLOT_GAP;
}

static bool recv_into(struct cf *cf, struct port *port, uint64_t slot, uint32_t len_bytes)
{
	struct gn_sge sge = {port->buf + slot_at(port, slot), len_bytes, gn_mr_lkey(port->mr)};
	struct gn_recv_wr wr = {.id = slot, .sge = &sge, .n_sge = 1};

	CHECK_INT(gn_post_recv(port->qp, &wr, NULL), 0);
	return true;
}

/* A datagram of len bytes with the pattern of tag, sent and completed. */
static bool send_to(struct cf *cf, struct port *port, struct gn_ah *ah, const struct gn_ud_addr *to,
		    uint64_t tag, uint32_t len_bytes)
{
	struct gn_sge sge = {out_slot(port), len_bytes, gn_mr_lkey(port->mr)};
	struct gn_wr wr;

	cf_fill(cf, sge.addr, len_bytes, tag);
	gn_wr_ud(&wr, tag, &sge, ah, to->qpn, to->qkey, GN_SIGNALED);
	wr.n_sge = len_bytes ? 1 : 0;
	CHECK(cf_post(cf, port->qp, &wr));
	CHECK(cf_expect_wc(cf, port->send_cq, tag, GN_WC_OK));
	return true;
}

/* The next datagram is this one, in this slot, from there, with nothing written around it. */
static bool expect_in(struct cf *cf, struct port *port, uint64_t slot, uint64_t tag,
		      uint32_t len_bytes, const struct gn_ud_addr *from, struct gn_wc *wc)
{
	const uint8_t *data = port->buf + slot_at(port, slot);

	CHECK(cf_poll_one(cf, port->recv_cq, wc));
	CHECK_INT(wc->status, GN_WC_OK);
	CHECK_INT(wc->id, slot);
	CHECK_INT(wc->op, GN_OP_RECV);
	CHECK_INT(wc->len_bytes, GN_GRH_BYTES + len_bytes);
	CHECK(wc->flags & GN_WC_GRH, "no GRH");
	CHECK_INT(wc->src_qpn, from->qpn);
	CHECK(wc->qp == port->qp, "another qp");
	CHECK(cf_check_fill(cf, data + GN_GRH_BYTES, len_bytes, tag));
	CHECK(cf_check_paint(cf, port->buf, slot_at(port, slot) + wc->len_bytes,
			     slot_at(port, slot) + port->slot_bytes + SLOT_GAP));
	return true;
}

static bool open_and_swap(struct cf *cf, struct port *port, struct gn_ud_addr *peer)
{
	CHECK(port_open(cf, port));
	return cf_swap(cf, &port->addr, peer, sizeof(*peer));
}

/* ---- 48 ---- */

#define AH_ROUNDS 1000u
#define IMM	  0xfeedf00du

static uint32_t echo_len(const struct cf *cf, unsigned i)
{
	const uint32_t lens[] = {0, 1, 64, 1000, cf->attr.ud_mtu - 1, cf->attr.ud_mtu};

	return i < sizeof(lens) / sizeof(lens[0]) ? lens[i] : UINT32_MAX;
}

static bool send_imm(struct cf *cf, struct port *port, struct gn_ah *ah,
		     const struct gn_ud_addr *to)
{
	struct gn_wr wr;

	gn_wr_ud(&wr, 1, NULL, ah, to->qpn, to->qkey, GN_SIGNALED);
	wr.n_sge = 0;
	wr.op = GN_OP_SEND_IMM;
	wr.imm = IMM;
	CHECK(cf_post(cf, port->qp, &wr));
	CHECK(cf_expect_wc(cf, port->send_cq, 1, GN_WC_OK));
	return true;
}

static bool make_and_drop_ahs(struct cf *cf, struct port *port, const struct gn_ud_addr *peer)
{
	struct gn_ah *ah;

	for (uint64_t i = 0; cf_more(cf, i, AH_ROUNDS); i++) {
		CHECK_INT(gn_ah_create(port->qp, peer, &ah), 0);
		CHECK_INT(gn_ah_destroy(ah), 0);
	}
	CHECK_INT(gn_ah_destroy(NULL), 0);
	CHECK_INT(gn_ah_create(port->qp, NULL, &ah), -EINVAL);
	return true;
}

static bool echo_a(struct cf *cf)
{
	struct gn_ud_addr peer;
	struct port port;
	struct gn_ah *ah;
	struct gn_wc wc;
	uint32_t len;

	CHECK(open_and_swap(cf, &port, &peer));
	CHECK(make_and_drop_ahs(cf, &port, &peer));
	CHECK((ah = cf_make_ah(cf, port.qp, &peer)));
	CHECK_INT(gn_qp_destroy(port.qp), -EBUSY);
	for (unsigned i = 0; (len = echo_len(cf, i)) != UINT32_MAX; i++) {
		CHECK(recv_into(cf, &port, i, port.slot_bytes));
		CHECK(cf_sync(cf));
		CHECK(send_to(cf, &port, ah, &peer, i, len));
		CHECK(expect_in(cf, &port, i, PORT_TAG + i, len, &peer, &wc));
		CHECK(!(wc.flags & GN_WC_IMM), "an immediate value that nobody sent");
	}
	CHECK(cf_sync(cf));
	CHECK(send_imm(cf, &port, ah, &peer));
	return cf_sync(cf);
}

static bool echo_b(struct cf *cf)
{
	struct gn_ud_addr peer;
	struct port port;
	struct gn_ah *ah;
	struct gn_wc wc;
	uint32_t len;
	unsigned i;

	CHECK(open_and_swap(cf, &port, &peer));
	for (i = 0; (len = echo_len(cf, i)) != UINT32_MAX; i++) {
		CHECK(recv_into(cf, &port, i, port.slot_bytes));
		CHECK(cf_sync(cf));
		CHECK(expect_in(cf, &port, i, i, len, &peer, &wc));
		CHECK_INT(gn_ah_create_from_wc(port.qp, &wc, port.buf + slot_at(&port, i), &ah), 0);
		cf_own(cf, CF_AH, ah);
		CHECK(send_to(cf, &port, ah, &peer, PORT_TAG + i, len));
	}
	CHECK(recv_into(cf, &port, i, port.slot_bytes));
	CHECK(cf_sync(cf));
	CHECK(expect_in(cf, &port, i, 0, 0, &peer, &wc));
	CHECK(wc.flags & GN_WC_IMM && wc.imm == IMM, "flags %x, immediate %x", wc.flags, wc.imm);
	return cf_sync(cf);
}

/* ---- 49 ---- */

#define WRONG_KEYS 3u

static bool qkey_a(struct cf *cf)
{
	struct gn_ud_addr peer, wrong;
	struct port port;
	struct gn_ah *ah;

	CHECK(open_and_swap(cf, &port, &peer));
	CHECK((ah = cf_make_ah(cf, port.qp, &peer)));
	wrong = peer;
	CHECK(cf_sync(cf));
	for (uint32_t i = 1; i <= WRONG_KEYS; i++) {
		wrong.qkey = QKEY + i;
		CHECK(send_to(cf, &port, ah, &wrong, i, SMALL_LEN));
	}
	CHECK(send_to(cf, &port, ah, &peer, 0, SMALL_LEN));
	CHECK(cf_sync(cf));
	CHECK(cf_expect_state(cf, port.qp, GN_QP_READY));
	return true;
}

static bool qkey_b(struct cf *cf)
{
	struct gn_ud_addr peer;
	struct port port;
	struct gn_wc wc;

	CHECK(open_and_swap(cf, &port, &peer));
	for (unsigned i = 0; i <= WRONG_KEYS; i++)
		CHECK(recv_into(cf, &port, i, port.slot_bytes));
	CHECK(cf_sync(cf));
	CHECK(expect_in(cf, &port, 0, 0, SMALL_LEN, &peer,
			&wc)); /* the first receive is still there */
	CHECK(cf_expect_none(cf, port.recv_cq));
	CHECK(cf_expect_state(cf, port.qp, GN_QP_READY));
	return cf_sync(cf);
}

/* ---- 50 ---- */

static bool refuse_long(struct cf *cf, struct port *port, struct gn_ah *ah,
			const struct gn_ud_addr *to)
{
	struct gn_sge sge[] = {
		{port->buf, cf->attr.ud_mtu, gn_mr_lkey(port->mr)},
		{port->buf, 1, gn_mr_lkey(port->mr)},
	};
	struct gn_sge whole = {port->buf, cf->attr.ud_mtu + 1, gn_mr_lkey(port->mr)};
	struct gn_wr wr[3];
	const struct gn_wr *bad = NULL;

	gn_wr_ud(&wr[0], 1, &whole, ah, to->qpn, to->qkey, GN_SIGNALED);
	CHECK_INT(gn_post_send(port->qp, &wr[0], &bad), -EMSGSIZE);
	CHECK(bad == &wr[0], "the wrong request was blamed");
	CHECK(cf_expect_none(cf, port->send_cq));

	/* A chain stops there; the sum of the pieces counts. */
	memset(out_slot(port), 0, SMALL_LEN);
	cf_fill(cf, out_slot(port), SMALL_LEN, 2);
	whole = (struct gn_sge){out_slot(port), SMALL_LEN, gn_mr_lkey(port->mr)};
	for (unsigned i = 0; i < 3; i++) {
		gn_wr_ud(&wr[i], 2 + i, &whole, ah, to->qpn, to->qkey, GN_SIGNALED);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].sge = sge;
	wr[1].n_sge = 2;
	CHECK_INT(gn_post_send(port->qp, wr, &bad), -EMSGSIZE);
	CHECK(bad == &wr[1], "the wrong request was blamed");
	CHECK(cf_expect_wc(cf, port->send_cq, 2, GN_WC_OK));
	CHECK(cf_expect_none(cf, port->send_cq));
	return true;
}

static bool mtu_a(struct cf *cf)
{
	struct gn_ud_addr peer;
	struct port port;
	struct gn_ah *ah;

	CHECK(open_and_swap(cf, &port, &peer));
	CHECK((ah = cf_make_ah(cf, port.qp, &peer)));
	CHECK(cf_sync(cf));
	CHECK(refuse_long(cf, &port, ah, &peer));
	CHECK(send_to(cf, &port, ah, &peer, 3, cf->attr.ud_mtu));
	return cf_sync(cf);
}

static bool mtu_b(struct cf *cf)
{
	struct gn_ud_addr peer;
	struct port port;
	struct gn_wc wc;

	CHECK(open_and_swap(cf, &port, &peer));
	for (unsigned i = 0; i < 4; i++)
		CHECK(recv_into(cf, &port, i, port.slot_bytes));
	CHECK(cf_sync(cf));
	CHECK(expect_in(cf, &port, 0, 2, SMALL_LEN, &peer, &wc));
	CHECK(expect_in(cf, &port, 1, 3, cf->attr.ud_mtu, &peer, &wc));
	CHECK(cf_expect_none(cf, port.recv_cq));
	return cf_sync(cf);
}

/* ---- 51 ---- */

/* Receives that a datagram of SMALL_LEN does not fit: short of a byte, of all of it, of the GRH. */
static const uint32_t tight[] = {GN_GRH_BYTES + SMALL_LEN - 1, GN_GRH_BYTES, SMALL_LEN};

#define TIGHT (sizeof(tight) / sizeof(tight[0]))

static bool tight_a(struct cf *cf)
{
	struct gn_ud_addr peer;
	struct port port;
	struct gn_ah *ah;

	CHECK(port_open(cf, &port));
	for (unsigned i = 0; i < TIGHT; i++) {
		CHECK(cf_hear(cf, &peer, sizeof(peer)));
		CHECK((ah = cf_make_ah(cf, port.qp, &peer)));
		CHECK(send_to(cf, &port, ah, &peer, 1, SMALL_LEN));
		CHECK(cf_sync(cf));
		CHECK(cf_sync(cf)); /* B's qp is ready again */
		CHECK(send_to(cf, &port, ah, &peer, 2, SMALL_LEN));
		CHECK(cf_sync(cf));
	}
	return true;
}

/* Whatever a receive or its qp came to, after a reset it takes datagrams under the same address. */
static bool reset_and_receive(struct cf *cf, struct port *port)
{
	struct gn_ud_addr addr;
	struct gn_wc wc;

	/* Outstanding requests are dropped without completions. */
	for (uint32_t i = 1; i < SLOTS; i++)
		CHECK(recv_into(cf, port, i, port->slot_bytes));
	CHECK_INT(gn_qp_reset(port->qp), 0);
	CHECK(cf_expect_state(cf, port->qp, GN_QP_READY));
	CHECK(cf_expect_none(cf, port->recv_cq));
	CHECK_INT(gn_qp_ud_addr(port->qp, &addr), 0);
	CHECK(!memcmp(&addr, &port->addr, sizeof(addr)), "another address");
	cf_paint(port->buf, port->buf_bytes);
	for (uint32_t i = 0; i < SLOTS; i++)
		CHECK(recv_into(cf, port, i, port->slot_bytes));
	CHECK(cf_sync(cf));
	CHECK(cf_poll_one(cf, port->recv_cq, &wc));
	CHECK_INT(wc.status, GN_WC_OK);
	CHECK_INT(wc.id, 0);
	CHECK_INT(wc.len_bytes, GN_GRH_BYTES + SMALL_LEN);
	CHECK(cf_check_fill(cf, port->buf + GN_GRH_BYTES, SMALL_LEN, 2));
	return cf_sync(cf);
}

/* Dropped, or completed with LOCAL_LENGTH; in both cases the buffer's end is a wall. */
static bool tight_round(struct cf *cf, struct port *port, uint32_t len_bytes)
{
	struct gn_wc wc;
	int n;

	CHECK(port_qp(cf, SLOTS, port));
	cf_paint(port->buf, port->buf_bytes);
	CHECK(recv_into(cf, port, 0, len_bytes));
	CHECK(cf_tell(cf, &port->addr, sizeof(port->addr)));
	CHECK(cf_sync(cf)); /* sent and completed */
	n = gn_cq_wait(port->recv_cq, &wc, 1, gn_deadline_us(5000), "a datagram that does not fit");
	CHECK(n == 1 || n == -ETIMEDOUT, "%d", n);
	if (n == 1) {
		/* Soft-RoCE blames the receive instead of the datagram. */
		CHECK(wc.status == GN_WC_LOCAL_LENGTH || wc.status == GN_WC_LOCAL_QP, "%s",
		      gn_wc_status_str(wc.status));
		CHECK_INT(wc.id, 0);
	}
	CHECK(cf_check_paint(cf, port->buf, len_bytes, port->buf_bytes));
	return reset_and_receive(cf, port);
}

static bool tight_b(struct cf *cf)
{
	struct port port;

	CHECK(port_open(cf, &port));
	for (unsigned i = 0; i < TIGHT; i++)
		CHECK(tight_round(cf, &port, tight[i]));
	return true;
}

/* ---- 52 ---- */

#define LOST	 10u
#define POSTED	 8u
#define OVERSENT 100u

static bool drop_a(struct cf *cf)
{
	struct gn_ud_addr peer;
	struct port port;
	struct gn_ah *ah;
	uint64_t seq;

	CHECK(open_and_swap(cf, &port, &peer));
	CHECK((ah = cf_make_ah(cf, port.qp, &peer)));
	for (seq = 0; seq < LOST;
	     seq++) /* there is no receive for these, which the sender cannot know */
		CHECK(send_to(cf, &port, ah, &peer, seq, SMALL_LEN));
	CHECK(cf_sync(cf));
	CHECK(cf_sync(cf)); /* B has posted */
	for (; seq < LOST + POSTED; seq++)
		CHECK(send_to(cf, &port, ah, &peer, seq, SMALL_LEN));
	CHECK(cf_sync(cf));
	CHECK(cf_sync(cf)); /* B has posted again, fewer than come now */
	for (; seq < LOST + POSTED + OVERSENT; seq++)
		CHECK(send_to(cf, &port, ah, &peer, seq, SMALL_LEN));
	CHECK(cf_sync(cf));
	CHECK(cf_expect_state(cf, port.qp, GN_QP_READY));
	return true;
}

static bool post_some(struct cf *cf, struct port *port)
{
	for (unsigned i = 0; i < POSTED; i++)
		CHECK(recv_into(cf, port, i, port->slot_bytes));
	return true;
}

static bool drop_b(struct cf *cf)
{
	struct gn_ud_addr peer;
	struct port port;
	struct gn_wc wc;

	CHECK(open_and_swap(cf, &port, &peer));
	CHECK(cf_sync(cf));
	CHECK(cf_expect_none(cf, port.recv_cq)); /* polled while no receive is there: all lost */
	CHECK(post_some(cf, &port));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < POSTED; i++) /* the gap: the first to come is number LOST */
		CHECK(expect_in(cf, &port, i, LOST + i, SMALL_LEN, &peer, &wc));
	CHECK(cf_sync(cf));
	CHECK(cf_expect_none(cf, port.recv_cq));

	CHECK(post_some(cf, &port));
	CHECK(cf_sync(cf));
	CHECK(cf_sync(cf)); /* all sent: the first POSTED have come, and no others */
	for (unsigned i = 0; i < POSTED; i++)
		CHECK(expect_in(cf, &port, i, LOST + POSTED + i, SMALL_LEN, &peer, &wc));
	CHECK(cf_expect_none(cf, port.recv_cq));
	CHECK(cf_expect_state(cf, port.qp, GN_QP_READY));
	return true;
}

/* ---- 53: A has one qp, B has PEERS that share cqs and a buffer ---- */

#define PEERS	    64u
#define PEER_ROUNDS 3u
#define ADDR_CHUNK  16u

static_assert(PEERS <= SLOTS && PEERS % ADDR_CHUNK == 0, "one slot a peer, whole chunks");
static_assert(ADDR_CHUNK * sizeof(struct gn_ud_addr) <= CF_MSG_MAX, "a chunk fits a message");

static uint64_t peer_tag(unsigned round, unsigned i)
{
	return round * PEERS + i;
}

/* Each peer answers once; the order is the network's. */
static bool take_replies(struct cf *cf, struct port *port, const struct gn_ud_addr *peer,
			 unsigned round)
{
	bool seen[PEERS] = {false};
	struct gn_wc wc;

	for (unsigned n = 0; n < PEERS; n++) {
		unsigned i = 0;

		CHECK(cf_poll_one(cf, port->recv_cq, &wc));
		CHECK_INT(wc.status, GN_WC_OK);
		while (i < PEERS && peer[i].qpn != wc.src_qpn)
			i++;
		CHECK(i < PEERS && !seen[i], "reply from qp %u", wc.src_qpn);
		seen[i] = true;
		CHECK_INT(wc.len_bytes, GN_GRH_BYTES + SMALL_LEN);
		CHECK(cf_check_fill(cf, port->buf + slot_at(port, wc.id) + GN_GRH_BYTES, SMALL_LEN,
				    PORT_TAG + peer_tag(round, i)));
	}
	return true;
}

static bool peers_a(struct cf *cf)
{
	struct gn_ud_addr peer[PEERS];
	struct gn_ah *ah[PEERS];
	struct port port;

	CHECK(port_open(cf, &port));
	CHECK(cf_tell(cf, &port.addr, sizeof(port.addr)));
	for (unsigned round = 0; round < PEER_ROUNDS; round++) {
		for (unsigned i = 0; i < PEERS; i += ADDR_CHUNK)
			CHECK(cf_hear(cf, &peer[i], ADDR_CHUNK * sizeof(peer[0])));
		for (unsigned i = 0; i < PEERS; i++) {
			CHECK(recv_into(cf, &port, i, port.slot_bytes));
			CHECK((ah[i] = cf_make_ah(cf, port.qp, &peer[i])));
		}
		for (unsigned i = 0; i < PEERS; i++)
			CHECK(send_to(cf, &port, ah[i], &peer[i], peer_tag(round, i), SMALL_LEN));
		CHECK(take_replies(cf, &port, peer, round));
		for (unsigned i = 0; i < PEERS; i++)
			CHECK(cf_destroy(cf, ah[i]));
		CHECK(cf_sync(cf));
	}
	return true;
}

/* Every peer gets what was meant for it, and answers the way it came. */
static bool answer_all(struct cf *cf, struct port *port, const struct gn_ud_addr *a, unsigned round)
{
	bool seen[PEERS] = {false};
	struct gn_ah *ah;
	struct gn_wc wc;

	for (unsigned n = 0; n < PEERS; n++) {
		CHECK(cf_poll_one(cf, port[0].recv_cq, &wc));
		CHECK_INT(wc.status, GN_WC_OK);
		CHECK(wc.id < PEERS && !seen[wc.id], "receive %llu", (unsigned long long)wc.id);
		seen[wc.id] = true;

		struct port *p = &port[wc.id];
		const uint8_t *slot = p->buf + slot_at(p, wc.id);

		CHECK(wc.qp == p->qp, "another qp");
		CHECK_INT(wc.src_qpn, a->qpn);
		CHECK(cf_check_fill(cf, slot + GN_GRH_BYTES, SMALL_LEN,
				    peer_tag(round, (unsigned)wc.id)));
		CHECK_INT(gn_ah_create_from_wc(p->qp, &wc, slot, &ah), 0);
		cf_own(cf, CF_AH, ah);
		CHECK(send_to(cf, p, ah, a, PORT_TAG + peer_tag(round, (unsigned)wc.id),
			      SMALL_LEN));
		CHECK(cf_destroy(cf, ah));
	}
	return true;
}

/* Odd peers are replaced between rounds, so numbers and addresses may come back as others'. */
static bool renew_peers(struct cf *cf, struct port *port, unsigned round)
{
	for (unsigned i = 0; i < PEERS; i++) {
		if (round > 0 && i % 2 == 0)
			continue;
		if (round > 0)
			CHECK(cf_destroy(cf, port[i].qp));
		CHECK(port_qp(cf, 2, &port[i]));
	}
	return true;
}

static bool peers_b(struct cf *cf)
{
	struct port port[PEERS];
	struct gn_ud_addr a, chunk[ADDR_CHUNK];

	CHECK(port_open(cf, &port[0]));
	CHECK(cf_destroy(cf, port[0].qp)); /* renew_peers() makes it again with the others */
	for (unsigned i = 1; i < PEERS; i++)
		port[i] = port[0];
	CHECK(cf_hear(cf, &a, sizeof(a)));
	for (unsigned round = 0; round < PEER_ROUNDS; round++) {
		CHECK(renew_peers(cf, port, round));
		for (unsigned i = 0; i < PEERS; i++) {
			CHECK(recv_into(cf, &port[i], i, port[i].slot_bytes));
			chunk[i % ADDR_CHUNK] = port[i].addr;
			if (i % ADDR_CHUNK == ADDR_CHUNK - 1)
				CHECK(cf_tell(cf, chunk, sizeof(chunk)));
		}
		CHECK(answer_all(cf, port, &a, round));
		CHECK(cf_sync(cf));
	}
	return true;
}

const struct cf_case cf_cases_ud[] = {
	{48, "datagrams, and replies through ah_from_wc", echo_a, echo_b, GN_CAP_UD, 0},
	{49, "a wrong qkey is dropped silently", qkey_a, qkey_b, GN_CAP_UD, 0},
	{50, "datagrams longer than the mtu are refused", mtu_a, mtu_b, GN_CAP_UD, 0},
	{51, "receive without room for GRH and payload", tight_a, tight_b, GN_CAP_UD, 0},
	{52, "no receive posted: dropped, a gap is seen", drop_a, drop_b, GN_CAP_UD, 0},
	{53, "one qp, 64 peers, addresses reused", peers_a, peers_b, GN_CAP_UD, 0},
	{0},
};
