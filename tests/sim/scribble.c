/* SPDX-License-Identifier: MIT */
#include "scribble.h"

#include <string.h>

#include "raw_conn.h"
#include "rpc/wire.h"

#define NONCE	 0x73637269626cu
#define SLOTS	 4u
#define MESSAGES 12u
#define STROKES	 12u /* over each message */
#define WORDS	 512u
#define TICK_US	 5u

struct hand {
	const struct scribbler *s;
	struct raw_endpoint ep; /* memory: messages, a page each; then the words */
	struct rpc_welcome welcome;
	uint32_t n_words;
};

static int open_conn(struct hand *h, struct gn_fabric *fabric)
{
	const struct raw_endpoint_opts opts = {.bytes = (MESSAGES + 1) * (size_t)GN_PAGE,
					       .remote = GN_REMOTE_WRITE,
					       .cq_depth = 64};
	const struct raw_conn_opts conn = {
		.addr = h->s->addr, .slots = SLOTS, .max_bytes = SCRIBBLE_BYTES, .nonce = NONCE};
	struct gn_qp_opts qp = {
		.size = sizeof(qp), .type = GN_QP_RC, .max_send_wr = 64, .max_recv_wr = 1};
	const int rc = raw_endpoint_make(&h->ep, fabric, &opts, &qp);

	return rc ? rc : raw_conn_open(&h->ep, &conn, &h->welcome);
}

/* ---- what it writes ---- */

static uint64_t compose(struct hand *h, uint32_t message, uint8_t *to)
{
	struct rpc_seal seal = {
		.seq = rpc_seq(h->welcome.epoch, message),
		.nonce = NONCE,
		.aux = 1,
		.flags = RPC_CRC,
		.ack = message - 1,
	};
	struct rpc_entry entry = {.code = (uint16_t)h->s->method};
	uint8_t *at = to + sizeof(struct rpc_head);

	entry.len = h->s->body(at + sizeof(entry));
	memcpy(at, &entry, sizeof(entry));
	seal.len = (uint32_t)sizeof(entry) + entry.len;
	return rpc_seal(to, &seal);
}

/* A length: right, a little wrong, or far beyond. */
static uint32_t some_length(uint32_t right)
{
	const uint32_t lengths[] = {right, 0,	  8,	       right + 8,
				    1024,  65536, 0xfffffff8u, (uint32_t)gn_random() & ~7u};

	return lengths[gn_random() % (sizeof(lengths) / sizeof(lengths[0]))];
}

/* Word i of a message: that of lengths in its head, its entry's, then those of its body. */
static uint64_t some_word(const struct hand *h, const uint8_t *message, unsigned i)
{
	struct rpc_head head;
	struct rpc_entry entry;
	uint64_t word;

	if (i == 0) {
		memcpy(&head, message, sizeof(head));
		head.len = some_length(head.len);
		head.aux = (uint16_t)(gn_random() % 4 ? 1 : gn_random());
		memcpy(&word, (const uint8_t *)&head + 8, 8);
		return word;
	}
	if (i > 1)
		return h->s->word(i - 2);
	memcpy(&entry, message + sizeof(head), sizeof(entry));
	entry.len = some_length(entry.len);
	entry.index = (uint16_t)(gn_random() & RPC_INDEX);
	memcpy(&word, &entry, 8);
	return word;
}

static int stroke(struct hand *h, const uint8_t *message, uint64_t slot, bool last)
{
	const unsigned i = (unsigned)(gn_random() % (2 + h->s->words));
	const uint64_t at = i == 0 ? 8 : sizeof(struct rpc_head) + 8ull * (i - 1);
	uint64_t *word = (uint64_t *)gn_mem_addr(h->ep.mem) + MESSAGES * (GN_PAGE / 8) +
			 h->n_words++ % WORDS;
	const struct gn_remote to = {.key = h->welcome.request_key};
	struct gn_sge sge = {word, 8, gn_mr_lkey(h->ep.mr)};
	struct gn_wr wr;

	*word = some_word(h, message, i);
	gn_wr_rdma(&wr, GN_OP_WRITE, 1, &sge, &to, slot + at, last ? GN_SIGNALED : 0);
	return gn_post_send(h->ep.qp, &wr, NULL);
}

/* One message, and what is written over it. False: the server has had enough. */
static bool attack(struct hand *h, uint32_t message)
{
	uint8_t *bytes = (uint8_t *)gn_mem_addr(h->ep.mem) + (message - 1) * (size_t)GN_PAGE;
	const uint64_t slot =
		(message & (h->welcome.slots - 1)) * rpc_stride(h->welcome.max_request);
	const struct gn_remote to = {.key = h->welcome.request_key};
	struct gn_sge sge = {bytes, (uint32_t)compose(h, message, bytes), gn_mr_lkey(h->ep.mr)};
	struct gn_wr wr, wake;
	struct gn_wc wc;
	int rc;

	gn_wr_rdma(&wr, GN_OP_WRITE, 1, &sge, &to, slot, 0);
	gn_wr_init(&wake, GN_OP_WRITE_IMM, 2, NULL, 0, GN_SOLICITED);
	wr.next = &wake;
	rc = gn_post_send(h->ep.qp, &wr, NULL);
	for (unsigned i = 1; i <= STROKES && !rc; i++) {
		if (gn_random() % 2)
			gn_charge(GN_WORK_NS, gn_random() % 1000);
		rc = stroke(h, bytes, slot, i == STROKES);
	}
	if (rc || gn_cq_wait(h->ep.cq, &wc, 1, gn_deadline_us(20000), "strokes") != 1 ||
	    wc.status != GN_WC_OK)
		return false;
	gn_sleep_us(gn_random() % TICK_US);
	return true;
}

uint64_t scribble(struct seeds *run, const char *fabric_name, const struct scribbler *s)
{
	struct gn_fabric *fabric;
	int rc = gn_fabric_open(fabric_name, &fabric);
	uint64_t n = 0;

	for (unsigned round = 0; !rc && round < s->rounds; round++) {
		struct hand h = {.s = s};

		if (!open_conn(&h, fabric)) {
			uint32_t i = 1;

			while (i <= MESSAGES && attack(&h, i))
				i++;
			n += i;
			gn_disconnect(h.ep.qp);
		}
		raw_endpoint_end(&h.ep);
		run->active_ns = gn_sim_now_ns(run->sim);
		gn_sleep_us(gn_random() % 50);
	}
	if (!rc)
		rc = gn_fabric_close(fabric);
	run->clients_over++;
	return rc ? 0 : n;
}
