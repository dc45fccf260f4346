/* SPDX-License-Identifier: MIT */
/* The requester: connections, requests in flight, and their results. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "base/sized.h"
#include "msg/endpoint.h"
#include "msg/requester.h"

#define PENDING_DEFAULT 16u
#define REQUEST_DEFAULT 64u
#define VALUE_DEFAULT	4096u
#define CONNS_DEFAULT	64u
#define CONNECT_US	2000000u
#define REQUEST_US	30000000u

#define PENDING_FULL "msg: opts.pending requests are in flight; call gn_msg_take()"
#define SENDS_FULL   "msg: the send queue is full; call gn_msg_take()"
#define DISCONNECTED "msg: the connection is disconnected; close it and open a new one"

/* ---- creation ---- */

static void requester_set_defaults(struct gn_msg_requester_opts *o, const struct gn_attr *attr)
{
	const uint32_t most = o->protocol == GN_MSG_UD ? msg_ud_max(attr) : VALUE_DEFAULT;

	o->pending = o->pending ? o->pending : PENDING_DEFAULT;
	o->request_bytes = o->request_bytes ? o->request_bytes : REQUEST_DEFAULT;
	if (!o->value_bytes)
		o->value_bytes = most < VALUE_DEFAULT ? most : VALUE_DEFAULT;
	o->max_conns = o->max_conns ? o->max_conns : CONNS_DEFAULT;
	o->timeout_us = o->timeout_us ? o->timeout_us : CONNECT_US;
	o->request_timeout_us = o->request_timeout_us ? o->request_timeout_us : REQUEST_US;
}

static int requester_too_large(const struct gn_msg_requester_opts *o, uint32_t most)
{
	return gn_fail(-EMSGSIZE,
		       "gn_msg_requester_create(): request_bytes %u, value_bytes %u: at most %u",
		       o->request_bytes, o->value_bytes, most);
}

static int requester_check_opts(const struct gn_msg_requester_opts *o, const struct gn_attr *attr)
{
	const bool reads = o->protocol == GN_MSG_READ;

	if (o->protocol >= GN_MSG_PROTOCOLS || o->pending > GN_MSG_PENDING_MAX ||
	    o->max_conns > GN_MSG_CONNS_MAX || (o->flags & ~(unsigned)GN_MSG_PAPER))
		return gn_fail(-EINVAL,
			       "gn_msg_requester_create(): protocol %u, pending %u (at most %u), "
			       "max_conns %u (at most %u), or flags %x",
			       (unsigned)o->protocol, o->pending, GN_MSG_PENDING_MAX, o->max_conns,
			       GN_MSG_CONNS_MAX, o->flags);
	if (o->request_bytes > GN_MSG_BYTES_MAX ||
	    o->value_bytes > (reads ? attr->max_msg : GN_MSG_BYTES_MAX))
		return requester_too_large(o, GN_MSG_BYTES_MAX);
	if (o->protocol != GN_MSG_UD)
		return 0;
	if (!(attr->caps & GN_CAP_UD))
		return gn_fail(-EOPNOTSUPP, "gn_msg_requester_create(): %s has no GN_CAP_UD",
			       attr->provider);
	if (o->request_bytes > msg_ud_max(attr) || o->value_bytes > msg_ud_max(attr))
		return requester_too_large(o, msg_ud_max(attr));
	return 0;
}

static int requester_open_ud(struct gn_msg_requester *r)
{
	const uint32_t n = r->opts.max_conns * r->opts.pending;

	return r->opts.protocol == GN_MSG_UD ? msg_ud_open(&r->poller, n, n, r->opts.value_bytes) :
					       0;
}

int gn_msg_requester_create(struct gn_fabric *fabric, const struct gn_msg_requester_opts *opts,
			    struct gn_msg_requester **out)
{
	const unsigned failures_before = gn_fail_count();
	struct gn_msg_requester *r;
	struct gn_attr attr = {.size = sizeof(attr)};
	uint64_t completions;
	int rc;

	if (!fabric || !opts || !out)
		return gn_fail(
			-EINVAL,
			"gn_msg_requester_create(): fabric is NULL, or opts is NULL, or out is "
			"NULL");
	rc = gn_fabric_query(fabric, &attr);
	if (rc)
		return rc;
	r = gn_alloc(sizeof(*r), MSG_CACHE_LINE);
	if (!r)
		return -ENOMEM;
	r->poller.creator = gn_thread_id();
	rc = SIZED_READ(&r->opts, opts, "gn_msg_requester_opts");
	requester_set_defaults(&r->opts, &attr);
	if (!rc)
		rc = requester_check_opts(&r->opts, &attr);
	/* Per connection: receives, sends, and slack for unsignaled sends that have completed. */
	completions = (uint64_t)r->opts.max_conns * (2 * r->opts.pending + 64);
	if (!rc)
		rc = msg_poller_open(&r->poller, fabric, r->opts.ctx, r->opts.max_conns,
				     completions < UINT32_MAX ? (uint32_t)completions : UINT32_MAX);
	link_timer_init(&r->repeat, msg_requester_retransmit);
	r->poller.flags = opts->flags;
	r->poller.datagram = msg_requester_datagram;
	r->poller.prepare_sleep = msg_requester_prepare_sleep;
	r->poller.connect_done = msg_requester_connect_done;
	if (!rc)
		rc = requester_open_ud(r);
	if (rc) {
		gn_msg_requester_destroy(r);
		return gn_fail_since(failures_before, rc, "gn_msg_requester_create()");
	}
	*out = r;
	return 0;
}

static void conn_free(struct gn_msg_conn *c)
{
	if (c->ep)
		msg_ep_close(c->ep);
	gn_free(c->ids);
	gn_free(c->requests);
	gn_free(c->idle.slots);
	gn_free(c->ready.slots);
	gn_free(c);
}

void gn_msg_requester_destroy(struct gn_msg_requester *r)
{
	if (!r || msg_poller_check(&r->poller))
		return;
	for (unsigned i = 0; r->poller.eps && i < r->poller.max_eps; i++)
		if (r->poller.eps[i])
			conn_free(r->poller.eps[i]->owner);
	msg_poller_close(&r->poller);
	gn_free(r);
}

/* ---- connecting ---- */

static int conn_create(struct gn_msg_requester *r, struct gn_msg_conn **out)
{
	const struct gn_msg_requester_opts *o = &r->opts;
	const int index = msg_poller_free_index(&r->poller);
	struct msg_ep_opts ep = {
		.protocol = o->protocol,
		.pending = o->pending,
		.tx_max = o->request_bytes,
		.rx_max = o->value_bytes,
		.rx_frame = msg_frame_of(o->flags & GN_MSG_PAPER, r->poller.checksums),
		/* The largest frame. The responder's welcome says which one is used. */
		.tx_frame = MSG_CHECKSUMMED,
		.requester = true,
		.nonce = ((uint32_t)gn_random() & ~MSG_NONCE_CONN) | (uint32_t)(index & 0x3ff),
	};
	struct gn_msg_conn *c;
	int rc;

	if (index < 0)
		return index;
	rc = requester_open_ud(r); /* has a port that was given up reset again */
	if (rc)
		return rc;
	c = gn_alloc(sizeof(*c), MSG_CACHE_LINE);
	if (!c)
		return -ENOMEM;
	c->requester = r;
	c->ids = gn_alloc(o->pending * sizeof(*c->ids), 0);
	rc = c->ids ? msg_ep_create(&r->poller, &ep, &c->ep) : -ENOMEM;
	if (!rc && o->protocol == GN_MSG_UD)
		rc = msg_requester_init_slots(c);
	if (rc) {
		conn_free(c);
		return rc;
	}
	c->ep->owner = c;
	*out = c;
	return 0;
}

static int conn_apply_welcome(struct gn_msg_conn *c, const struct msg_welcome *w)
{
	const struct gn_msg_requester *r = c->requester;
	struct msg_ep *ep = c->ep;
	int rc;

	ep->to.key = r->opts.protocol == GN_MSG_READ ? w->data_key : w->request_key;
	ep->to.length = r->opts.protocol == GN_MSG_READ ? w->data_bytes : 0;
	ep->sleep_key = w->sleep_key;
	c->data_bytes = w->data_bytes;
	if (ep->tx.verb == MSG_WRITE) {
		ep->tx.frame = msg_frame_of(r->opts.flags & GN_MSG_PAPER, w->checksums);
		ep->tx.stride = msg_slot_stride(ep->tx.frame, ep->tx.max);
	}
	if (r->opts.protocol != GN_MSG_UD)
		return 0;
	rc = msg_ud_add_peer(ep, &w->ud, w->conn);
	/* the responder disconnected right after accepting */
	return rc == -ENOTCONN ? -ECONNRESET : rc;
}

/* A responder that refuses gives the reason in its welcome. */
int msg_requester_connect_done(struct msg_ep *ep, const struct gn_event *event)
{
	struct gn_msg_conn *c = ep->owner;
	struct msg_welcome welcome;
	int rc = link_connect_error(&ep->link, event);
	unsigned version;

	if (rc && event->type != GN_EVENT_REJECTED)
		return rc;
	version = msg_welcome_version(event->private_data, event->private_len);
	if (version != MSG_VERSION) {
		c->refusal = msg_refusal_text(MSG_NO_VERSION);
		return gn_fail(-EPROTO,
			       "the responder at %s speaks version %u, this requester "
			       "version %u",
			       ep->link.addr, version, MSG_VERSION);
	}
	if (msg_welcome_check(event->private_data, event->private_len, &welcome))
		return rc ? rc : -EPROTO;
	if (!rc)
		return conn_apply_welcome(c, &welcome);
	c->refusal = msg_refusal_text(welcome.refusal);
	return gn_fail(rc, "%s refused the connection: %s", ep->link.addr, c->refusal);
}

int gn_msg_conn_open(struct gn_msg_requester *r, const char *addr, const char **why,
		     struct gn_msg_conn **out)
{
	const unsigned before = gn_fail_count();
	struct gn_conn_opts opts = {.size = sizeof(opts)};
	struct gn_msg_conn *c;
	struct msg_hello hello;
	int rc;

	if (why)
		*why = "";
	if (!r || !addr || !out)
		return gn_fail(-EINVAL, "gn_msg_conn_open(): requester, addr or out is NULL");
	rc = msg_poller_check(&r->poller);
	if (!rc)
		rc = conn_create(r, &c);
	if (rc)
		return gn_fail_since(before, rc, "gn_msg_conn_open()");
	hello = (struct msg_hello){
		.magic = MSG_MAGIC,
		.version = MSG_VERSION,
		.protocol = (uint8_t)r->opts.protocol,
		.flags = (r->opts.flags & GN_MSG_PAPER ? MSG_HELLO_MARKERS : 0) |
			 (r->poller.checksums ? MSG_HELLO_CHECKSUMS : 0),
		.pending = r->opts.pending,
		.request_bytes = r->opts.request_bytes,
		.value_bytes = r->opts.value_bytes,
		.nonce = c->ep->nonce,
	};
	if (r->opts.protocol == GN_MSG_UD) {
		rc = msg_ud_addr(&r->poller, &hello.ud);
	} else {
		hello.answer_key = msg_ring_rkey(&c->ep->rx);
		hello.sleep_key = msg_ring_rkey(&c->ep->sleep_ring);
	}
	opts.private_data = &hello;
	opts.private_len = sizeof(hello);
	opts.timeout_us = r->opts.timeout_us;
	if (!rc)
		rc = link_conn_connect(&c->ep->link, addr, &opts);
	if (!rc)
		rc = link_conn_wait(&c->ep->link, GN_FOREVER);
	if (why && c->refusal)
		*why = c->refusal;
	if (rc) {
		conn_free(c);
		return gn_fail_since(before, rc, addr);
	}
	*out = c;
	return 0;
}

void gn_msg_conn_close(struct gn_msg_conn *c)
{
	if (!c || msg_poller_check(&c->requester->poller))
		return;
	c->requester->in_flight -= c->in_flight;
	conn_free(c);
}

uint64_t gn_msg_data_bytes(const struct gn_msg_conn *c)
{
	return c ? c->data_bytes : 0;
}

uint32_t gn_msg_pending(const struct gn_msg_conn *c)
{
	return c ? c->in_flight : 0;
}

/* ---- requests ---- */

static force_inline void conn_count_request(struct gn_msg_conn *c)
{
	c->in_flight++;
	c->ep->n_expected = c->in_flight;
	c->requester->in_flight++;
	c->requester->poller.stats.requests++;
}

static force_inline int conn_check_send(struct gn_msg_conn *c, uint32_t len, uint32_t max)
{
	if (msg_poller_check(&c->requester->poller))
		return -EPERM;
	if (unlikely(c->ep->status != GN_MSG_OK))
		return gn_fail_text(-ENOTCONN, DISCONNECTED);
	if (unlikely(len > max))
		return gn_fail(-EMSGSIZE, "msg: %u bytes: this connection takes at most %u", len,
			       max);
	if (c->in_flight == c->requester->opts.pending && !mutant("msg-reuse", c->ep->queued))
		return gn_fail_text(-EAGAIN, PENDING_FULL);
	/* The RC qp of a UD connection only detects disconnects; msg_ud_send() checks the UD qp. */
	if (c->ep->tx.verb == MSG_DATAGRAM)
		return 0;
	if (unlikely(!msg_ep_can_send(c->ep)))
		msg_poller_poll(&c->requester->poller, false);
	return msg_ep_can_send(c->ep) ? 0 : gn_fail_text(-EAGAIN, SENDS_FULL);
}

int gn_msg_ask(struct gn_msg_conn *c, const void *request, uint32_t len, uint64_t id)
{
	struct msg_ep *ep;
	int rc;

	if (!c || (len && !request) || c->requester->opts.protocol == GN_MSG_READ)
		return gn_fail(
			-EINVAL,
			"gn_msg_ask(): conn is NULL, request is NULL but len is not 0, or the "
			"protocol is READ");
	ep = c->ep;
	rc = conn_check_send(c, len, c->requester->opts.request_bytes);
	if (unlikely(rc))
		return rc;
	if (ep->tx.verb == MSG_DATAGRAM) {
		rc = msg_requester_send(c, request, len, id);
		return likely(!rc)   ? 0 :
		       rc == -EAGAIN ? gn_fail_text(rc, SENDS_FULL) :
				       gn_fail_text(rc, DISCONNECTED);
	}
	c->ids[ep->tx.at] = id;
	if (likely(len))
		memcpy(msg_ep_tx_payload(ep), request, len);
	gn_charge(GN_WORK_COPY, len);
	/* The answer arrives in the slot with the same number; the old answer is consumed. */
	msg_ep_clear_slot(ep, ep->tx.at);
	if (ep->rx.verb != MSG_WRITE)
		msg_ep_need_recv(ep);
	msg_ep_send(ep, len);
	conn_count_request(c);
	return 0;
}

int gn_msg_read(struct gn_msg_conn *c, uint64_t offset, uint32_t len, uint64_t id)
{
	int rc;

	if (!c || c->requester->opts.protocol != GN_MSG_READ)
		return gn_fail(
			-EINVAL,
			"gn_msg_read(): conn is NULL, or the requester's protocol is not READ");
	rc = conn_check_send(c, len, c->requester->opts.value_bytes);
	if (unlikely(rc))
		return rc;
	if (len > c->data_bytes || offset > c->data_bytes - len)
		return gn_fail(-ERANGE, "gn_msg_read(): %u bytes at %llu: the data has %llu", len,
			       (unsigned long long)offset, (unsigned long long)c->data_bytes);
	c->ids[c->ep->rx.recv_slot] = id;
	msg_ep_read(c->ep, offset, len);
	conn_count_request(c);
	return 0;
}

int gn_msg_flush(struct gn_msg_requester *r)
{
	if (!r)
		return gn_fail(-EINVAL, "gn_msg_flush(): requester is NULL");
	if (msg_poller_check(&r->poller))
		return -EPERM;
	for (unsigned i = 0; i < r->poller.max_eps; i++)
		if (r->poller.eps[i] && r->poller.eps[i]->n_chain)
			msg_ep_flush(r->poller.eps[i]);
	msg_ud_flush(&r->poller);
	return 0;
}

/* ---- results ---- */

void msg_requester_result(struct gn_msg_conn *c, uint32_t at, enum gn_msg_status status,
			  uint32_t len, const void *value, struct gn_msg_result *out)
{
	struct gn_msg_stats *stats = &c->requester->poller.stats;

	*out = (struct gn_msg_result){
		.id = c->ids[at], .conn = c, .status = status, .len = len, .value = value};
	c->in_flight--;
	c->ep->n_expected = c->in_flight;
	c->requester->in_flight--;
	if (status == GN_MSG_OK)
		stats->answers++;
	else
		stats->failed++;
}

/* Takes up to n results of a connection whose answers arrive in order. */
static unsigned conn_take_ordered(struct gn_msg_conn *c, struct gn_msg_result *out, unsigned n)
{
	struct msg_ep *ep = c->ep;
	unsigned got = 0;
	uint8_t *bytes;

	while (got < n && c->in_flight) {
		const int64_t length = msg_ep_peek(ep, &bytes);
		const uint32_t at = ep->rx.at;

		if (length < 0 && ep->status == GN_MSG_OK)
			break;
		if (unlikely(length < 0)) {
			ep->rx_ended = true;
			ep->rx.at = at + 1 == ep->pending ? 0 : at + 1;
			msg_requester_result(c, at, ep->status, 0, NULL, &out[got++]);
			continue;
		}
		msg_ep_consume(ep, (uint32_t)length);
		if (likely(!(length & MSG_REFUSED)))
			msg_requester_result(c, at, GN_MSG_OK, (uint32_t)length, bytes,
					     &out[got++]);
		else
			msg_requester_result(c, at, GN_MSG_REFUSED, 0, NULL, &out[got++]);
	}
	return got;
}

/* Takes the results that are there. A different connection comes first each time. */
static unsigned requester_collect(struct gn_msg_requester *r, struct gn_msg_result *out, unsigned n)
{
	const uint64_t looks = r->poller.stats.looks;
	unsigned got = 0, i = r->first;

	for (unsigned k = 0; k < r->poller.max_eps && got < n; k++) {
		struct msg_ep *ep = r->poller.eps[i];

		i = i + 1 == r->poller.max_eps ? 0 : i + 1;
		if (!ep || !ep->n_expected)
			continue;
		if (ep->rx.verb == MSG_DATAGRAM)
			got += msg_requester_take_datagrams(ep->owner, out + got, n - got);
		else
			got += conn_take_ordered(ep->owner, out + got, n - got);
	}
	r->first = i;
	gn_charge(GN_WORK_SCAN, r->poller.stats.looks - looks);
	return got;
}

int gn_msg_take(struct gn_msg_requester *r, struct gn_msg_result *out, unsigned n,
		uint64_t deadline_ns)
{
	bool now = false;

	if (!r || !out)
		return gn_fail(-EINVAL, "gn_msg_take(): requester is NULL, or out is NULL");
	deadline_ns = deadline_given(deadline_ns);
	if (gn_msg_flush(r))
		return -EPERM;
	if (!r->in_flight) /* detects disconnects of idle connections */
		msg_poller_poll(&r->poller, link_loop_overdue(&r->poller.loop));
	while (n && r->in_flight) {
		unsigned got;
		int rc;

		msg_poller_poll(&r->poller, now);
		if (r->opts.protocol == GN_MSG_UD)
			link_loop_run_timers(&r->poller.loop);
		got = requester_collect(r, out, n);
		if (got)
			return (int)got;
		rc = msg_poller_wait(&r->poller, deadline_ns, "answers", &now);
		if (rc <= 0)
			return rc;
	}
	return 0;
}

struct gn_source *gn_msg_requester_source(struct gn_msg_requester *r)
{
	if (r)
		return msg_poller_check(&r->poller) ? NULL : msg_poller_source(&r->poller);
	gn_fail(-EINVAL, "gn_msg_requester_source(): requester is NULL");
	return NULL;
}

int gn_msg_requester_stats(const struct gn_msg_requester *r, struct gn_msg_stats *out)
{
	if (!r)
		return gn_fail(-EINVAL, "gn_msg_requester_stats(): requester is NULL");
	return msg_poller_stats(&r->poller, out);
}
