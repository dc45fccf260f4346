/* SPDX-License-Identifier: MIT */
/* A UD qp: receives posted in chains, send buffers, selective signaling, resets. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "base/fail.h"
#include "dgram/port.h"

#define SIGNAL_EVERY	  32u
#define SLACK_RECEIVES	  (8 * PORT_CHAIN) /* with so many, a chain of them may be posted later */
#define QKEY_MASK	  0x7fffffffu /* the highest bit marks privileged qkeys */
#define MTU_MAX		  4096u	      /* of any port: the sender's may be larger than ours */
#define RESET_INTERVAL_NS 10000000u   /* a reset posts all receives again */
#define INLINE_MAX	  256u
#define LINE		  GN_CACHELINE

/* ---- receives ---- */

static void post_receives(struct dgram_port *port, const uint32_t *which, uint32_t n)
{
	struct gn_recv_wr wrs[PORT_CHAIN];
	struct gn_sge sge[PORT_CHAIN][2];
	const uint32_t n_sge = port->spill_bytes ? 2 : 1;

	for (uint32_t i = 0; i < n; i++) {
		sge[i][0] = (struct gn_sge){port->recv_base + (size_t)which[i] * port->recv_stride,
					    port->recv_stride, port->lkey};
		sge[i][1] = (struct gn_sge){port->spill, port->spill_bytes, port->lkey};
		wrs[i] = (struct gn_recv_wr){.id = which[i], .sge = sge[i], .n_sge = n_sge};
		wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
	}
	if (n && gn_post_recv(port->qp, wrs, NULL))
		port->broken = true;
	counter_add(&port->stats.recvs, n);
	counter_add(&port->stats.recv_doorbells, n != 0);
}

static int post_receives_from(struct dgram_port *port, uint32_t i)
{
	while (i < port->posted && !port->broken) {
		uint32_t which[PORT_CHAIN], n = 0;

		while (n < PORT_CHAIN && i < port->posted)
			which[n++] = i++;
		post_receives(port, which, n);
	}
	return port->broken ? -EIO : 0;
}

void port_post_more(struct dgram_port *port, uint32_t n)
{
	const uint32_t from = port->posted;

	n = min_u32((n + PORT_CHAIN - 1) / PORT_CHAIN * PORT_CHAIN, port->opts.receives);
	if (n <= from || port->broken)
		return;
	port->posted = n;
	post_receives_from(port, from);
}

void port_flush_receives(struct dgram_port *port)
{
	const uint32_t n = port->n_repost;

	port->n_repost = 0;
	if (unlikely(port->broken))
		return;
	if (likely(!port->opts.single_recv)) {
		post_receives(port, port->repost, n);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		post_receives(port, &port->repost[i], 1);
}

/* Either one receive failed (a foreign datagram did not fit), or the whole qp did. */
void port_receive_failed(struct dgram_port *port, const struct gn_wc *wc)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};

	if (wc->status == GN_WC_FLUSHED || gn_qp_query(port->qp, &attr) ||
	    attr.state != GN_QP_READY)
		port->broken = true;
}

/* ---- creation ---- */

static int port_create_qp(struct dgram_port *port)
{
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_UD,
		.send_cq = port->send_cq,
		.recv_cq = port->loop->cq,
		.max_send_wr = port->depth,
		.max_recv_wr = port->opts.receives,
		.max_recv_sge = port->spill_bytes ? 2 : 1,
		.max_inline = port->max_inline,
		.qkey = (uint32_t)gn_random() & QKEY_MASK,
	};

	return gn_qp_create(port->pd, &opts, &port->qp);
}

/*
 * A datagram longer than ours continues in memory that all receives share and nothing reads: no
 * receive is too short.
 */
static void port_size(struct dgram_port *port)
{
	const struct gn_attr *attr = &port->loop->attr;
	const uint32_t mtu = attr->ud_mtu > MTU_MAX ? attr->ud_mtu : MTU_MAX;
	const uint32_t longest = GN_GRH_BYTES + mtu;

	port->recv_stride = GN_GRH_BYTES + port->opts.datagram_bytes;
	if (attr->max_sge < 2)
		port->recv_stride = longest;
	port->recv_stride = (port->recv_stride + LINE - 1) / LINE * LINE;
	port->spill_bytes = port->recv_stride < longest ? longest - port->recv_stride : 0;
	port->send_stride = (port->opts.datagram_bytes + LINE - 1) / LINE * LINE;
	port->max_inline = min_u32(attr->max_inline, port->opts.max_inline);
	port->depth = min_u32(min_u32(port->opts.sends, attr->max_send_wr), attr->max_cqe);
	while (port->ring_mask + 1 < port->depth)
		port->ring_mask = 2 * port->ring_mask + 1;
}

static void port_init(struct dgram_port *port, struct link_loop *loop, const struct port_opts *opts)
{
	*port = (struct dgram_port){.opts = *opts, .loop = loop};
	if (!opts->max_inline)
		port->opts.max_inline = INLINE_MAX;
	if (!opts->signal_every)
		port->opts.signal_every = SIGNAL_EVERY;
	if (!opts->chain || opts->chain > PORT_CHAIN)
		port->opts.chain = PORT_CHAIN;
	port_size(port);
}

static size_t memory_bytes(const struct dgram_port *port)
{
	return (size_t)port->opts.receives * port->recv_stride +
	       (size_t)port->opts.buffers * port->send_stride + port->spill_bytes;
}

size_t port_bytes(struct link_loop *loop, const struct port_opts *opts)
{
	struct dgram_port port;

	port_init(&port, loop, opts);
	return memory_bytes(&port);
}

static int port_create_memory(struct dgram_port *port)
{
	const size_t bytes = memory_bytes(port);
	int rc = gn_mem_alloc(port->loop->fabric, bytes, 0, &port->mem);

	if (!rc)
		rc = gn_mr_register(port->pd, port->mem, 0, bytes, GN_LOCAL_WRITE, &port->mr);
	port->free_buffers = gn_alloc((port->opts.buffers + 1) * sizeof(uint16_t), 0);
	port->in_flight = gn_alloc((port->ring_mask + 1) * sizeof(uint16_t), 0);
	if (!rc && (!port->free_buffers || !port->in_flight))
		rc = gn_fail_text(-ENOMEM, "dgram: " NO_MEMORY);
	if (rc)
		return rc;
	port->recv_base = gn_mem_addr(port->mem);
	port->send_base = port->recv_base + (size_t)port->opts.receives * port->recv_stride;
	port->spill = port->send_base + (size_t)port->opts.buffers * port->send_stride;
	port->lkey = gn_mr_lkey(port->mr);
	for (uint32_t i = port->opts.buffers; i-- > 0;)
		port->free_buffers[port->n_free++] = (uint16_t)i;
	return 0;
}

int port_open(struct dgram_port *port, struct link_loop *loop, const struct port_opts *opts)
{
	struct gn_cq_opts cq = {.size = sizeof(cq)};
	int rc;

	port_init(port, loop, opts);
	if (!(loop->attr.caps & GN_CAP_UD))
		return gn_fail_text(-EOPNOTSUPP, "dgram: the fabric has no datagrams");
	if (port->depth < 2 * port->opts.signal_every)
		return gn_fail_text(-ENOSPC, "dgram: the device's send queue is too short");
	port->posted = min_u32(opts->posted ? opts->posted : opts->receives, opts->receives);
	cq.depth = port->depth;
	rc = gn_pd_create(loop->ctx, &port->pd);
	if (!rc)
		rc = port_create_memory(port);
	if (!rc)
		rc = gn_cq_create(loop->ctx, &cq, &port->send_cq);
	if (!rc)
		rc = port_create_qp(port);
	if (!rc)
		rc = post_receives_from(port, 0);
	if (rc)
		port_close(port);
	return rc;
}

void port_close(struct dgram_port *port)
{
	gn_qp_destroy(port->qp);
	gn_cq_destroy(port->send_cq);
	gn_mr_deregister(port->mr);
	gn_mem_free(port->mem);
	gn_pd_destroy(port->pd);
	gn_free(port->free_buffers);
	gn_free(port->in_flight);
	*port = (struct dgram_port){.loop = port->loop};
}

/* ---- sends ---- */

static void free_completed(struct dgram_port *port)
{
	if (!port->opts.buffers)
		return;
	for (; port->freed < port->completed; port->freed++) {
		uint16_t *at = &port->in_flight[port->freed & port->ring_mask];

		if (*at != PORT_NO_BUFFER)
			port->free_buffers[port->n_free++] = *at;
		*at = PORT_NO_BUFFER;
	}
}

static void poll_sends(struct dgram_port *port)
{
	struct gn_wc wc[SIGNAL_EVERY];
	int n;

	do {
		n = gn_cq_poll(port->send_cq, wc, (int)SIGNAL_EVERY);
		for (int i = 0; i < n; i++)
			if (likely(wc[i].status == GN_WC_OK))
				port->completed = wc[i].id + 1;
			else
				port->broken = true;
	} while (n == (int)SIGNAL_EVERY);
	port->broken |= n < 0;
	free_completed(port);
}

void port_flush_sends(struct dgram_port *port)
{
	const uint32_t n = port->n_chain;

	if (!n)
		return;
	/* What is sent may grant credits for receives of this batch. With few, none is spare. */
	if (unlikely(port->n_repost && port->opts.receives < SLACK_RECEIVES))
		port_flush_receives(port);
	port->n_chain = 0;
	for (uint32_t i = 0; i + 1 < n; i++)
		port->chain[i].next = &port->chain[i + 1];
	port->chain[n - 1].next = NULL;
	if (unlikely(port->broken) || unlikely(gn_post_send(port->qp, port->chain, NULL)))
		port->broken = true;
	for (uint32_t i = 0; i < n; i++)
		if (port->chain_buffer[i] != PORT_NO_BUFFER)
			port->free_buffers[port->n_free++] = port->chain_buffer[i];
	counter_add(&port->stats.sent, n);
	counter_add(&port->stats.doorbells, 1);
}

int port_take_slow(struct dgram_port *port, uint16_t *out)
{
	port_flush_sends(port);
	poll_sends(port);
	if (port->queued - port->completed >= port->depth || !port->n_free || port->broken)
		return -EAGAIN;
	*out = port->free_buffers[--port->n_free];
	return 0;
}

void port_give_back(struct dgram_port *port, uint16_t buffer)
{
	port->free_buffers[port->n_free++] = buffer;
}

bool port_queue_stays_full(struct dgram_port *port)
{
	port_flush_sends(port);
	poll_sends(port);
	return port->queued - port->completed >= port->depth;
}

uint64_t port_send(struct dgram_port *port, uint16_t buffer, uint32_t len, struct gn_ah *ah,
		   uint32_t qpn, uint32_t qkey)
{
	const struct port_datagram datagram = {.data = port_buffer(port, buffer),
					       .len = len,
					       .lkey = port->lkey,
					       .ah = ah,
					       .qpn = qpn,
					       .qkey = qkey,
					       .signal = port->n_free < SIGNAL_EVERY};

	/* Buffers taken earlier than others are sent may exceed the queue: as good as lost. */
	if (unlikely(port_queue_full(port)))
		port_give_back(port, buffer);
	else
		port_chain(port, &datagram, buffer);
	return port->queued;
}

bool port_poll_sent(struct dgram_port *port, uint64_t sequence)
{
	poll_sends(port);
	/* Unsignaled sends complete with a later one; a reset completes all. */
	return port->completed >= sequence;
}

/* ---- maintenance ---- */

bool port_maintain(struct dgram_port *port, uint64_t now_ns)
{
	if (likely(!port->broken) || now_ns < port->reset_ns)
		return false;
	port->reset_ns = now_ns + RESET_INTERVAL_NS;
	if (gn_qp_reset(port->qp))
		return false;
	counter_add(&port->stats.resets, 1);
	port->completed = port->queued;
	free_completed(port);
	for (uint32_t i = 0; i < port->n_chain; i++)
		if (port->chain_buffer[i] != PORT_NO_BUFFER)
			port_give_back(port, port->chain_buffer[i]);
	port->n_chain = port->n_repost = port->unsignaled = 0;
	port->broken = false;
	post_receives_from(port, 0);
	return true;
}
