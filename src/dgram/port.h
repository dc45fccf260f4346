/* SPDX-License-Identifier: MIT */
/*
 * A UD qp with its receives and send buffers, for datagram calls and for msg's UD protocol. Any
 * host on the network can send to the qp: the qkey is random and known to accepted peers only, and
 * no datagram is longer than a receive. If the qp fails nevertheless, it is reset in place:
 * datagrams in flight are lost.
 *
 * A send buffer is taken, filled and sent. Inline sends free it at once, others when their
 * completion, or a later one, was polled. A caller that keeps what it sends, to send it again, has
 * buffers of its own, registered in the port's pd: port_send_from(). Sends are chained until
 * port_flush_sends(): one doorbell.
 */
#ifndef GN_DGRAM_PORT_H
#define GN_DGRAM_PORT_H

#include <errno.h>

#include "base/bits.h"
#include "gannet/fabric.h"
#include "link/link.h"

#define PORT_CHAIN 32u

struct port_opts {
	uint32_t datagram_bytes; /* longest */
	uint32_t receives;
	uint32_t posted;       /* receives that are posted at first; 0: all */
	uint32_t sends;	       /* in the queue, with unsignaled ones that have completed */
	uint32_t buffers;      /* to send from; 0: only the caller's */
	uint32_t max_inline;   /* at most; 0: 256 */
	uint32_t signal_every; /* send; 0: 32. And when buffers run short */
	uint32_t chain;	       /* sends per doorbell; 0: 32, the most */
	bool single_recv;      /* post receives one by one */
};

/* Counters: written by the owner. */
struct port_stats {
	uint64_t sent, doorbells, recvs, recv_doorbells, resets;
};

struct dgram_port {
	struct port_opts opts;
	struct link_loop *loop; /* its cq gets the receives */
	struct gn_pd *pd;
	struct gn_cq *send_cq;
	struct gn_qp *qp;
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint8_t *recv_base, *send_base, *spill; /* spill: the tail of datagrams that are too long */
	uint32_t lkey;
	uint32_t recv_stride, send_stride, spill_bytes;
	uint32_t max_inline;
	uint32_t posted; /* receives in use: posted, or about to be posted again */
	bool broken;
	/* sends: sequence numbers; a signaled send's id is its own */
	uint64_t queued, completed;
	uint32_t depth, unsignaled;
	uint32_t n_chain, n_repost;
	struct gn_wr chain[PORT_CHAIN];
	struct gn_sge sge[PORT_CHAIN];
	uint16_t chain_buffer[PORT_CHAIN]; /* to be freed after the post; PORT_NO_BUFFER */
	uint32_t repost[PORT_CHAIN];
	/* buffers: a stack of free ones; those in flight by sequence number */
	uint16_t *free_buffers;
	uint32_t n_free;
	uint16_t *in_flight; /* ring of ring_mask + 1 entries; PORT_NO_BUFFER: none */
	uint64_t ring_mask;
	uint64_t freed; /* sends whose buffers were freed */
	struct port_stats stats;
	uint64_t reset_ns; /* earliest time of the next reset */
};

#define PORT_NO_BUFFER UINT16_MAX

/* Bytes of memory that port_open() registers. */
size_t port_bytes(struct link_loop *loop, const struct port_opts *opts);
int port_open(struct dgram_port *port, struct link_loop *loop, const struct port_opts *opts);
void port_close(struct dgram_port *port);

/* Takes a send buffer; -EAGAIN: all are in flight. */
int port_take_slow(struct dgram_port *port, uint16_t *out);
static inline int port_take(struct dgram_port *port, uint16_t *out)
{
	if (unlikely(!port->n_free || port->queued - port->completed >= port->depth ||
		     port->broken))
		return port_take_slow(port, out);
	*out = port->free_buffers[--port->n_free];
	return 0;
}
static inline uint8_t *port_buffer(const struct dgram_port *port, uint16_t buffer)
{
	return port->send_base + (size_t)buffer * port->send_stride;
}
/* Gives back a buffer that is not sent. */
void port_give_back(struct dgram_port *port, uint16_t buffer);
/* Chains a datagram and releases the buffer. Returns its sequence number + 1. */
uint64_t port_send(struct dgram_port *port, uint16_t buffer, uint32_t len, struct gn_ah *ah,
		   uint32_t qpn, uint32_t qkey);
/* Posts the chain. */
void port_flush_sends(struct dgram_port *port);

/* A datagram in the caller's memory. */
struct port_datagram {
	void *data; /* unchanged until port_sent(), or, if inline, until it is posted */
	uint32_t len, lkey;
	struct gn_ah *ah;
	uint32_t qpn, qkey;
	uint32_t imm; /* immediate data; 0: none */
	bool signal;  /* in any case */
};

static inline bool port_inlines(const struct dgram_port *port, uint32_t len)
{
	return len <= port->max_inline;
}

bool port_queue_stays_full(struct dgram_port *port);
/* Is the send queue full, after a poll? */
static inline bool port_queue_full(struct dgram_port *port)
{
	return unlikely(port->queued - port->completed >= port->depth) &&
	       port_queue_stays_full(port);
}

/* Chains a datagram. buffer: the port's that it is sent from, or PORT_NO_BUFFER. */
static force_inline void port_chain(struct dgram_port *port, const struct port_datagram *datagram,
				    uint16_t buffer)
{
	const bool inlined = port_inlines(port, datagram->len);
	const uint32_t i = port->n_chain;
	uint32_t flags = inlined ? GN_INLINE : 0;

	port->unsignaled++;
	if (port->unsignaled >= port->opts.signal_every || datagram->signal) {
		port->unsignaled = 0;
		flags |= GN_SIGNALED;
	}
	port->sge[i] = (struct gn_sge){datagram->data, datagram->len, datagram->lkey};
	port->chain_buffer[i] = inlined ? buffer : PORT_NO_BUFFER;
	port->in_flight[port->queued & port->ring_mask] = inlined ? PORT_NO_BUFFER : buffer;
	gn_wr_ud(&port->chain[i], port->queued++, &port->sge[i], datagram->ah, datagram->qpn,
		 datagram->qkey, flags);
	if (unlikely(datagram->imm)) {
		port->chain[i].op = GN_OP_SEND_IMM;
		port->chain[i].imm = datagram->imm;
	}
	if (++port->n_chain == port->opts.chain)
		port_flush_sends(port);
}

/* Chains it. Its sequence number + 1 is port->queued then. -EAGAIN: the queue is full or broken. */
static force_inline int port_send_from(struct dgram_port *port,
				       const struct port_datagram *datagram)
{
	if (unlikely(port_queue_full(port) || port->broken))
		return -EAGAIN;
	port_chain(port, datagram, PORT_NO_BUFFER);
	return 0;
}
/* Sequence number + 1 of the last send that was posted, and of the last signaled one. */
static inline uint64_t port_posted(const struct dgram_port *port)
{
	return port->queued - port->n_chain;
}
static inline uint64_t port_signaled(const struct dgram_port *port)
{
	return port->queued - port->unsignaled;
}
/* Has at least so many receives in use from now on, if there are so many. */
void port_post_more(struct dgram_port *port, uint32_t n);
/* Posts receives again. */
void port_flush_receives(struct dgram_port *port);

/* The received bytes of a completion, behind the GRH; NULL: not a datagram. */
void port_receive_failed(struct dgram_port *port, const struct gn_wc *wc);
static inline const uint8_t *port_received(struct dgram_port *port, const struct gn_wc *wc,
					   uint32_t *len)
{
	if (unlikely(wc->status != GN_WC_OK)) {
		port_receive_failed(port, wc);
		return NULL;
	}
	if (unlikely(wc->len_bytes < GN_GRH_BYTES || wc->len_bytes > port->recv_stride))
		return NULL;
	*len = wc->len_bytes - GN_GRH_BYTES;
	return port->recv_base + (size_t)wc->id * port->recv_stride + GN_GRH_BYTES;
}
/* The receive of the completion may be posted again. */
static inline void port_repost(struct dgram_port *port, const struct gn_wc *wc)
{
	port->repost[port->n_repost++] = (uint32_t)wc->id;
	if (unlikely(port->n_repost == PORT_CHAIN))
		port_flush_receives(port);
}
bool port_poll_sent(struct dgram_port *port, uint64_t sequence);
/* Have all sends before this sequence number completed? Polls. */
static inline bool port_sent(struct dgram_port *port, uint64_t sequence)
{
	return port->completed >= sequence || port_poll_sent(port, sequence);
}
/* From time to time: resets a failed qp. True: it was reset now. */
bool port_maintain(struct dgram_port *port, uint64_t now_ns);

#endif
