/* SPDX-License-Identifier: MIT */
/* The responder: accepts connections, executes requests, and closes failed connections. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "base/sized.h"
#include "msg/endpoint.h"

#define CONNS_DEFAULT	     64u
#define PENDING_DEFAULT	     256u
#define REQUEST_DEFAULT	     4096u
#define VALUE_DEFAULT	     65536u
#define MEMORY_DEFAULT	     (256ull << 20)
#define UD_RECEIVES_MAX	     8192u
#define UD_EXTRA_COMPLETIONS 64u /* slack for unsignaled sends that have completed */

struct gn_msg_responder {
	struct msg_poller poller;
	struct gn_msg_responder_opts opts;
	struct gn_listener *listener;
	int answered; /* in this poll */
};

/* Per connection, beside its endpoint. */
struct responder_conn {
	struct msg_ep *ep;
	/* UD: the last request executed in each slot. */
	struct last_request {
		uint32_t seq, length;
		bool valid;
	} * done;
};

static struct gn_msg_responder *responder_of(struct msg_poller *poller)
{
	return container_of(poller, struct gn_msg_responder, poller);
}

/* ---- execution ---- */

/* The handler writes the answer into the buffer it is sent from. */
static uint32_t responder_execute(struct gn_msg_responder *r, const struct msg_ep *ep,
				  const uint8_t *request, uint32_t len, uint8_t *value)
{
	const int rc = r->opts.answer(r->opts.arg, request, len, value, ep->tx.max);

	r->poller.stats.requests++;
	r->answered++;
	if (rc < 0)
		r->poller.stats.failed++;
	return rc < 0 ? MSG_REFUSED : (uint32_t)rc <= ep->tx.max ? (uint32_t)rc : ep->tx.max;
}

static void responder_serve_conn(struct gn_msg_responder *r, struct msg_ep *ep)
{
	uint8_t *request;

	while (ep->status == GN_MSG_OK && msg_ep_can_send(ep)) {
		const int64_t length = msg_ep_peek(ep, &request);
		const uint32_t at = ep->rx.at;
		uint32_t answer;

		if (length < 0)
			break;
		answer = responder_execute(r, ep, request, (uint32_t)length & ~MSG_REFUSED,
					   msg_ep_tx_payload(ep));
		msg_ep_consume(ep, (uint32_t)length);
		msg_ep_clear_slot(ep, at);
		if (ep->rx.verb != MSG_WRITE && !mutant("msg-receive", ep->queued))
			msg_ep_need_recv(ep);
		msg_ep_send(ep, answer);
		r->poller.stats.answers++;
	}
	msg_ep_flush(ep);
}

/* ---- datagrams ---- */

static void responder_datagram(struct msg_ep *ep, const struct msg_datagram *head, uint32_t attempt,
			       const uint8_t *data)
{
	struct gn_msg_responder *r = responder_of(ep->poller);
	const struct responder_conn *conn = ep->owner;
	struct last_request *done = &conn->done[head->slot];
	const uint32_t len = head->length & ~MSG_REFUSED;
	bool again = false;

	if (len > ep->rx.max || (done->valid && (int32_t)(head->seq - done->seq) < 0)) {
		r->poller.stats.strays++;
		return;
	}
	if (done->valid && head->seq == done->seq && !mutant("msg-again", head->seq)) {
		r->poller.stats.repeats++;
		again = true;
	} else if (!msg_ud_writable(ep, head->slot)) {
		/*
		 * The slot's earlier answer may still be read by the device. Drop the request; the
		 * requester retransmits it. If no signaled send covers the earlier answer, send it
		 * again, signaled, so that its completion is reported.
		 */
		if (msg_ud_will_complete(ep, head->slot))
			return;
		again = true;
	} else {
		*done = (struct last_request){.seq = head->seq, .valid = true};
		done->length = responder_execute(r, ep, data, len,
						 msg_slot(&ep->tx, head->slot) +
							 msg_frame_head(ep->tx.frame));
		r->poller.stats.answers++;
	}
	/* A full send queue counts as a lost datagram. */
	msg_ud_send(ep, head->slot, done->seq, done->length, attempt, again);
}

/* ---- connections ---- */

static void responder_conn_free(struct responder_conn *conn)
{
	if (conn->ep)
		msg_ep_close(conn->ep);
	gn_free(conn->done);
	gn_free(conn);
}

/* Call only between polls: completions may refer to an endpoint. */
static void responder_close_failed(struct msg_poller *poller)
{
	for (unsigned i = 0; i < poller->max_eps; i++)
		if (poller->eps[i] && poller->eps[i]->status != GN_MSG_OK)
			responder_conn_free(poller->eps[i]->owner);
}

static enum msg_refusal responder_check_hello(const struct gn_msg_responder *r,
					      const struct msg_hello *hello)
{
	const bool reads = hello->protocol == GN_MSG_READ;

	if (reads && !r->opts.data)
		return MSG_NO_DATA;
	if (!reads && !r->opts.answer)
		return MSG_READ_ONLY;
	if (!reads && hello->pending > r->opts.max_pending)
		return MSG_TOO_MANY_PENDING;
	if (!reads && hello->request_bytes > r->opts.max_request)
		return MSG_TOO_LARGE_REQUEST;
	if (!reads && hello->value_bytes > r->opts.max_value)
		return MSG_TOO_LARGE_VALUE;
	if (msg_poller_free_index(&r->poller) < 0 ||
	    r->poller.n_eps + r->poller.loop.n_closing >= 2 * r->opts.max_conns)
		return MSG_FULL;
	return MSG_ACCEPTED;
}

static uint32_t responder_ud_receives(const struct gn_msg_responder_opts *o)
{
	const uint32_t all = o->max_conns * o->max_pending;

	return all < UD_RECEIVES_MAX ? all : UD_RECEIVES_MAX;
}

static int responder_open_ud(struct gn_msg_responder *r, const struct msg_hello *hello)
{
	const uint32_t max = msg_ud_max(&r->poller.loop.attr), n = responder_ud_receives(&r->opts);

	if (hello->request_bytes > max || hello->value_bytes > max)
		return -EMSGSIZE;
	return msg_ud_open(&r->poller, n, n, r->opts.max_request < max ? r->opts.max_request : max);
}

static int responder_conn_create(struct gn_msg_responder *r, const struct msg_hello *hello,
				 struct responder_conn **out)
{
	const struct msg_ep_opts opts = {
		.protocol = hello->protocol,
		.pending = hello->pending,
		.tx_max = hello->value_bytes,
		.rx_max = hello->request_bytes,
		.tx_frame = msg_frame_of(hello->flags & MSG_HELLO_MARKERS,
					 hello->flags & MSG_HELLO_CHECKSUMS),
		.rx_frame = msg_frame_of(hello->flags & MSG_HELLO_MARKERS, r->poller.checksums),
		.nonce = hello->nonce,
	};
	struct responder_conn *conn = gn_alloc(sizeof(*conn), 0);
	int rc = conn ? 0 : -ENOMEM;

	if (rc)
		return rc;
	if (hello->protocol == GN_MSG_UD) {
		rc = responder_open_ud(r, hello);
		conn->done = gn_alloc(hello->pending * sizeof(*conn->done), 0);
		if (!rc && !conn->done)
			rc = -ENOMEM;
	}
	if (!rc)
		rc = msg_ep_create(&r->poller, &opts, &conn->ep);
	if (!rc) {
		conn->ep->owner = conn;
		conn->ep->n_expected = 1;
		conn->ep->to.key = hello->answer_key;
		conn->ep->sleep_key = hello->sleep_key;
	}
	if (!rc && hello->protocol == GN_MSG_READ)
		rc = gn_mr_register(conn->ep->pd, r->opts.data, 0, gn_mem_size(r->opts.data),
				    GN_REMOTE_READ, &conn->ep->data);
	if (rc) {
		responder_conn_free(conn);
		return rc;
	}
	*out = conn;
	return 0;
}

static int responder_fill_welcome(struct gn_msg_responder *r, struct responder_conn *conn,
				  struct msg_welcome *out)
{
	struct gn_remote remote;

	out->checksums = r->poller.checksums;
	out->request_key = msg_ring_rkey(&conn->ep->rx);
	out->sleep_key = msg_ring_rkey(&conn->ep->sleep_ring);
	out->conn = conn->ep->index;
	if (conn->ep->data) {
		gn_mr_remote(conn->ep->data, &remote);
		out->data_key = remote.key;
		out->data_bytes = remote.length;
	}
	return conn->done ? msg_ud_addr(&r->poller, &out->ud) : 0;
}

static enum msg_refusal refusal_from_errno(int rc)
{
	switch (rc) {
	case -EMSGSIZE:
	case -EOPNOTSUPP:
		return MSG_NO_DATAGRAMS;
	case -ENOSPC:
		return MSG_FULL;
	case -EINVAL:
		return MSG_TOO_MANY_PENDING;
	default:
		return MSG_NO_MEMORY;
	}
}

static void responder_connect_request(struct msg_poller *poller, struct gn_event *event)
{
	struct gn_msg_responder *r = responder_of(poller);
	struct msg_welcome reply = {.magic = MSG_MAGIC, .version = MSG_VERSION};
	struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = &reply, .private_len = sizeof(reply)};
	struct responder_conn *conn = NULL;
	struct msg_hello hello = {0};
	enum msg_refusal refusal = msg_hello_check(event->private_data, event->private_len, &hello);
	int rc;

	/* a reconnecting requester's old connection may use its index */
	responder_close_failed(poller);
	if (refusal == MSG_ACCEPTED)
		refusal = responder_check_hello(r, &hello);
	if (refusal == MSG_ACCEPTED) {
		rc = responder_conn_create(r, &hello, &conn);
		if (!rc)
			rc = responder_fill_welcome(r, conn, &reply);
		if (rc)
			refusal = refusal_from_errno(rc);
	}
	if (refusal != MSG_ACCEPTED) {
		if (conn)
			responder_conn_free(conn);
		reply.refusal = (uint8_t)refusal;
		gn_reject(event->req, &reply, offsetof(struct msg_welcome, request_key));
		return;
	}
	/* Requests may arrive with the ACCEPT: post their receives first. */
	msg_ep_flush(conn->ep);
	rc = gn_accept(event->req, conn->ep->link.qp, &opts);
	if (!rc)
		link_conn_accepted(&conn->ep->link);
	/* The connection's path is known now, so the address handle needs no resolution. */
	if (!rc && conn->done)
		rc = msg_ud_add_peer(conn->ep, &hello.ud, hello.nonce & MSG_NONCE_CONN);
	if (rc)
		responder_conn_free(conn);
}

/* ---- polling ---- */

static int responder_poll(struct gn_msg_responder *r, bool now)
{
	struct msg_poller *poller = &r->poller;
	const uint64_t looks = poller->stats.looks;

	r->answered = 0;
	msg_poller_poll(poller, now);
	for (unsigned i = 0; i < poller->max_eps; i++) {
		struct msg_ep *ep = poller->eps[i];

		if (!ep)
			continue;
		if (unlikely(ep->status != GN_MSG_OK))
			responder_conn_free(ep->owner);
		else if (ep->rx.n_arrived || ep->rx.verb == MSG_WRITE)
			responder_serve_conn(r, ep);
	}
	msg_ud_flush(poller);
	gn_charge(GN_WORK_SCAN, poller->stats.looks - looks);
	return r->answered;
}

int gn_msg_respond(struct gn_msg_responder *r, uint64_t deadline_ns)
{
	bool now = false;

	if (!r)
		return gn_fail(-EINVAL, "gn_msg_respond(): responder is NULL");
	if (msg_poller_check(&r->poller))
		return -EPERM;
	deadline_ns = deadline_given(deadline_ns);
	for (;;) {
		const int n = responder_poll(r, now);
		int rc;

		if (n)
			return n;
		rc = msg_poller_wait(&r->poller, deadline_ns, "requests", &now);
		if (rc <= 0)
			return rc;
	}
}

struct gn_source *gn_msg_responder_source(struct gn_msg_responder *r)
{
	if (r)
		return msg_poller_check(&r->poller) ? NULL : msg_poller_source(&r->poller);
	gn_fail(-EINVAL, "gn_msg_responder_source(): responder is NULL");
	return NULL;
}

unsigned gn_msg_responder_conns(const struct gn_msg_responder *r)
{
	return r ? r->poller.n_eps : 0;
}

int gn_msg_responder_stats(const struct gn_msg_responder *r, struct gn_msg_stats *out)
{
	if (!r)
		return gn_fail(-EINVAL, "gn_msg_responder_stats(): responder is NULL");
	return msg_poller_stats(&r->poller, out);
}

/* ---- creation ---- */

static int responder_check_opts(const struct gn_msg_responder_opts *o)
{
	if (o->max_conns > GN_MSG_CONNS_MAX || o->max_pending > GN_MSG_PENDING_MAX ||
	    o->max_request > GN_MSG_BYTES_MAX || o->max_value > GN_MSG_BYTES_MAX ||
	    (o->flags & ~(unsigned)GN_MSG_PAPER))
		return gn_fail(-EINVAL,
			       "gn_msg_responder_create(): max_conns %u (at most %u), max_pending "
			       "%u (at most %u), max_request %u and max_value %u (at most %u), or "
			       "flags %x",
			       o->max_conns, GN_MSG_CONNS_MAX, o->max_pending, GN_MSG_PENDING_MAX,
			       o->max_request, o->max_value, GN_MSG_BYTES_MAX, o->flags);
	if (o->answer || o->data)
		return 0;
	return gn_fail(-EINVAL, "gn_msg_responder_create(): neither answer nor data is set");
}

/*
 * Registers the data once, so that a mem without GN_REMOTE_READ fails now and not with the first
 * requester.
 */
static int responder_check_data(const struct gn_msg_responder *r)
{
	struct gn_mem *data = r->opts.data;
	struct gn_pd *pd = NULL;
	struct gn_mr *mr = NULL;
	int rc;

	if (!data)
		return 0;
	rc = gn_pd_create(r->poller.loop.ctx, &pd);
	if (!rc)
		rc = gn_mr_register(pd, data, 0, gn_mem_size(data), GN_REMOTE_READ, &mr);
	gn_mr_deregister(mr);
	gn_pd_destroy(pd);
	return rc;
}

int gn_msg_responder_create(struct gn_fabric *fabric, const char *addr,
			    const struct gn_msg_responder_opts *opts, struct gn_msg_responder **out)
{
	const unsigned failures_before = gn_fail_count();
	struct gn_msg_responder *r;
	struct gn_msg_responder_opts *o;
	uint64_t completions;
	int rc;

	if (!fabric || !addr || !opts || !out)
		return gn_fail(
			-EINVAL,
			"gn_msg_responder_create(): fabric is NULL, or addr is NULL, or opts is "
			"NULL, or out is NULL");
	r = gn_alloc(sizeof(*r), MSG_CACHE_LINE);
	if (!r)
		return -ENOMEM;
	r->poller.creator = gn_thread_id();
	o = &r->opts;
	rc = SIZED_READ(o, opts, "gn_msg_responder_opts");
	if (!rc)
		rc = responder_check_opts(o);
	if (rc) {
		gn_free(r);
		return rc;
	}
	o->max_conns = o->max_conns ? o->max_conns : CONNS_DEFAULT;
	o->max_pending = o->max_pending ? o->max_pending : PENDING_DEFAULT;
	o->max_request = o->max_request ? o->max_request : REQUEST_DEFAULT;
	o->max_value = o->max_value ? o->max_value : VALUE_DEFAULT;
	o->max_memory = o->max_memory ? o->max_memory : MEMORY_DEFAULT;
	/* All UD traffic uses one more qp, created with the first UD connection. */
	completions = (uint64_t)o->max_conns * (2 * o->max_pending + 64) +
		      2 * responder_ud_receives(o) + UD_EXTRA_COMPLETIONS;
	rc = msg_poller_open(&r->poller, fabric, o->ctx, o->max_conns,
			     completions < UINT32_MAX ? (uint32_t)completions : UINT32_MAX);
	r->poller.flags = o->flags;
	r->poller.max_bytes = o->max_memory;
	r->poller.connect_request = responder_connect_request;
	r->poller.datagram = responder_datagram;
	if (!rc)
		rc = responder_check_data(r);
	if (!rc)
		rc = gn_listener_create(r->poller.loop.ctx, addr, r->poller.loop.chan,
					o->listener_flags, &r->listener);
	if (rc) {
		gn_msg_responder_destroy(r);
		return gn_fail_since(failures_before, rc, addr);
	}
	*out = r;
	return 0;
}

void gn_msg_responder_destroy(struct gn_msg_responder *r)
{
	if (!r || msg_poller_check(&r->poller))
		return;
	gn_listener_destroy(r->listener);
	for (unsigned i = 0; r->poller.eps && i < r->poller.max_eps; i++)
		if (r->poller.eps[i])
			responder_conn_free(r->poller.eps[i]->owner);
	msg_poller_close(&r->poller);
	gn_free(r);
}
