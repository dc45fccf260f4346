/* SPDX-License-Identifier: MIT */
/* The side that asks: connections, requests under way, and their results. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "base/sized.h"
#include "msg/end.h"
#include "msg/requester.h"

#define PENDING_DEFAULT 16u
#define REQUEST_DEFAULT 64u
#define VALUE_DEFAULT	4096u
#define CONNS_DEFAULT	64u
#define CONNECT_US	2000000u
#define REQUEST_US	30000000u

#define PENDING_FULL "msg: opts.pending requests are under way; gn_msg_take() some"
#define SENDS_FULL   "msg: the send queue is full; gn_msg_take() makes room"
#define CONN_GONE    "msg: this connection is gone; close it and open another"

/* ---- making ---- */

static void set_defaults(struct gn_msg_requester_opts *o, const struct gn_attr *attr)
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

static int too_large(const struct gn_msg_requester_opts *o, uint32_t most)
{
	return gn_fail(-EMSGSIZE,
		       "gn_msg_requester_create(): request_bytes %u, value_bytes %u: at most %u",
		       o->request_bytes, o->value_bytes, most);
}

static int check(const struct gn_msg_requester_opts *o, const struct gn_attr *attr)
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
		return too_large(o, GN_MSG_BYTES_MAX);
	if (o->protocol != GN_MSG_UD)
		return 0;
	if (!(attr->caps & GN_CAP_UD))
		return gn_fail(-EOPNOTSUPP, "gn_msg_requester_create(): %s has no GN_CAP_UD",
			       attr->provider);
	if (o->request_bytes > msg_ud_max(attr) || o->value_bytes > msg_ud_max(attr))
		return too_large(o, msg_ud_max(attr));
	return 0;
}

static int open_datagrams(struct gn_msg_requester *r)
{
	const uint32_t n = r->opts.max_conns * r->opts.pending;

	return r->opts.protocol == GN_MSG_UD ? msg_ud_open(&r->desk, n, n, r->opts.value_bytes) : 0;
}

int gn_msg_requester_create(struct gn_fabric *fabric, const struct gn_msg_requester_opts *opts,
			    struct gn_msg_requester **out)
{
	const unsigned said = gn_fail_count();
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
	r = gn_alloc(sizeof(*r), MSG_LINE);
	if (!r)
		return -ENOMEM;
	r->desk.creator = gn_thread_id();
	rc = SIZED_READ(&r->opts, opts, "gn_msg_requester_opts");
	set_defaults(&r->opts, &attr);
	if (!rc)
		rc = check(&r->opts, &attr);
	/* Each connection: receives, requests, and some that are done without having said so. */
	completions = (uint64_t)r->opts.max_conns * (2 * r->opts.pending + 64);
	if (!rc)
		rc = msg_desk_open(&r->desk, fabric, r->opts.ctx, r->opts.max_conns,
				   completions < UINT32_MAX ? (uint32_t)completions : UINT32_MAX);
	link_timer_init(&r->repeat, msg_requester_repeat);
	r->desk.flags = opts->flags;
	r->desk.datagram = msg_requester_datagram;
	r->desk.sleep = msg_requester_sleep;
	r->desk.answered = msg_requester_answered;
	if (!rc)
		rc = open_datagrams(r);
	if (rc) {
		gn_msg_requester_destroy(r);
		return gn_fail_since(said, rc, "gn_msg_requester_create()");
	}
	*out = r;
	return 0;
}

static void free_conn(struct gn_msg_conn *c)
{
	if (c->end)
		msg_end_free(c->end);
	gn_free(c->ids);
	gn_free(c->asked);
	gn_free(c->idle.places);
	gn_free(c->ready.places);
	gn_free(c);
}

void gn_msg_requester_destroy(struct gn_msg_requester *r)
{
	if (!r || msg_desk_check(&r->desk))
		return;
	for (unsigned i = 0; r->desk.ends && i < r->desk.max_ends; i++)
		if (r->desk.ends[i])
			free_conn(r->desk.ends[i]->owner);
	msg_desk_close(&r->desk);
	gn_free(r);
}

/* ---- connecting ---- */

static int make_conn(struct gn_msg_requester *r, struct gn_msg_conn **out)
{
	const struct gn_msg_requester_opts *o = &r->opts;
	const int number = msg_desk_number(&r->desk);
	struct msg_end_opts end = {
		.protocol = o->protocol,
		.pending = o->pending,
		.said_max = o->request_bytes,
		.told_max = o->value_bytes,
		.told_frame = msg_frame_of(o->flags & GN_MSG_PAPER, r->desk.sums),
		/* As large as any; what the responder needs is known when it has answered. */
		.said_frame = MSG_SUMMED,
		.requester = true,
		.nonce = ((uint32_t)gn_random() & ~MSG_NONCE_CONN) | (uint32_t)(number & 0x3ff),
	};
	struct gn_msg_conn *c;
	int rc;

	if (number < 0)
		return number;
	rc = open_datagrams(r); /* once more, if they had to end */
	if (rc)
		return rc;
	c = gn_alloc(sizeof(*c), MSG_LINE);
	if (!c)
		return -ENOMEM;
	c->requester = r;
	c->ids = gn_alloc(o->pending * sizeof(*c->ids), 0);
	rc = c->ids ? msg_end_make(&r->desk, &end, &c->end) : -ENOMEM;
	if (!rc && o->protocol == GN_MSG_UD)
		rc = msg_requester_places(c);
	if (rc) {
		free_conn(c);
		return rc;
	}
	c->end->owner = c;
	*out = c;
	return 0;
}

static int take_welcome(struct gn_msg_conn *c, const struct msg_welcome *w)
{
	const struct gn_msg_requester *r = c->requester;
	struct msg_end *end = c->end;
	int rc;

	end->to.key = r->opts.protocol == GN_MSG_READ ? w->data_key : w->request_key;
	end->to.length = r->opts.protocol == GN_MSG_READ ? w->data_bytes : 0;
	end->notice_key = w->notice_key;
	c->data_bytes = w->data_bytes;
	if (end->said.verb == MSG_WRITE) {
		end->said.frame = msg_frame_of(r->opts.flags & GN_MSG_PAPER, w->sums);
		end->said.stride = msg_stride(end->said.frame, end->said.max);
	}
	if (r->opts.protocol != GN_MSG_UD)
		return 0;
	rc = msg_ud_peer(end, &w->ud, w->conn);
	return rc == -ENOTCONN ? -ECONNRESET : rc; /* it has gone again already */
}

/* A responder that refuses says why in its welcome. */
int msg_requester_answered(struct msg_end *end, const struct gn_event *event)
{
	struct gn_msg_conn *c = end->owner;
	struct msg_welcome welcome;
	int rc = link_conn_refused(&end->link, event);
	unsigned version;

	if (rc && event->type != GN_EVENT_REJECTED)
		return rc;
	version = msg_welcome_version(event->private_data, event->private_len);
	if (version != MSG_VERSION) {
		c->refusal = msg_refusal_text(MSG_NO_VERSION);
		return gn_fail(-EPROTO,
			       "the responder at %s speaks version %u, this requester "
			       "version %u",
			       end->link.addr, version, MSG_VERSION);
	}
	if (msg_welcome_check(event->private_data, event->private_len, &welcome))
		return rc ? rc : -EPROTO;
	if (!rc)
		return take_welcome(c, &welcome);
	c->refusal = msg_refusal_text(welcome.refusal);
	return gn_fail(rc, "%s refused the connection: %s", end->link.addr, c->refusal);
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
	rc = msg_desk_check(&r->desk);
	if (!rc)
		rc = make_conn(r, &c);
	if (rc)
		return gn_fail_since(before, rc, "gn_msg_conn_open()");
	hello = (struct msg_hello){
		.magic = MSG_MAGIC,
		.version = MSG_VERSION,
		.protocol = (uint8_t)r->opts.protocol,
		.flags = (r->opts.flags & GN_MSG_PAPER ? MSG_HELLO_MARKERS : 0) |
			 (r->desk.sums ? MSG_HELLO_SUMS : 0),
		.pending = r->opts.pending,
		.request_bytes = r->opts.request_bytes,
		.value_bytes = r->opts.value_bytes,
		.nonce = c->end->nonce,
	};
	if (r->opts.protocol == GN_MSG_UD) {
		rc = msg_ud_addr(&r->desk, &hello.ud);
	} else {
		hello.answer_key = msg_lane_key(&c->end->told);
		hello.notice_key = msg_lane_key(&c->end->notice);
	}
	opts.private_data = &hello;
	opts.private_len = sizeof(hello);
	opts.timeout_us = r->opts.timeout_us;
	if (!rc)
		rc = link_conn_connect(&c->end->link, addr, &opts);
	if (!rc)
		rc = link_conn_wait(&c->end->link, GN_FOREVER);
	if (why && c->refusal)
		*why = c->refusal;
	if (rc) {
		free_conn(c);
		return gn_fail_since(before, rc, addr);
	}
	*out = c;
	return 0;
}

void gn_msg_conn_close(struct gn_msg_conn *c)
{
	if (!c || msg_desk_check(&c->requester->desk))
		return;
	c->requester->under_way -= c->under_way;
	free_conn(c);
}

uint64_t gn_msg_data_bytes(const struct gn_msg_conn *c)
{
	return c ? c->data_bytes : 0;
}

uint32_t gn_msg_pending(const struct gn_msg_conn *c)
{
	return c ? c->under_way : 0;
}

/* ---- asking ---- */

static force_inline void asked(struct gn_msg_conn *c)
{
	c->under_way++;
	c->end->awaited = c->under_way;
	c->requester->under_way++;
	c->requester->desk.stats.requests++;
}

static force_inline int can_ask(struct gn_msg_conn *c, uint32_t len, uint32_t max)
{
	if (msg_desk_check(&c->requester->desk))
		return -EPERM;
	if (unlikely(c->end->fate != GN_MSG_OK))
		return gn_fail_text(-ENOTCONN, CONN_GONE);
	if (unlikely(len > max))
		return gn_fail(-EMSGSIZE, "msg: %u bytes: this connection takes %u", len, max);
	if (c->under_way == c->requester->opts.pending && !mutant("msg-reuse", c->end->queued))
		return gn_fail_text(-EAGAIN, PENDING_FULL);
	/* Its own qp only says who is there; the one of all datagrams is asked by who says one. */
	if (c->end->said.verb == MSG_DATAGRAM)
		return 0;
	if (unlikely(!msg_end_has_room(c->end)))
		msg_desk_turn(&c->requester->desk, false);
	return msg_end_has_room(c->end) ? 0 : gn_fail_text(-EAGAIN, SENDS_FULL);
}

int gn_msg_ask(struct gn_msg_conn *c, const void *request, uint32_t len, uint64_t id)
{
	struct msg_end *end;
	int rc;

	if (!c || (len && !request) || c->requester->opts.protocol == GN_MSG_READ)
		return gn_fail(
			-EINVAL,
			"gn_msg_ask(): conn is NULL, request is NULL but len is not 0, or the "
			"protocol is READ");
	end = c->end;
	rc = can_ask(c, len, c->requester->opts.request_bytes);
	if (unlikely(rc))
		return rc;
	if (end->said.verb == MSG_DATAGRAM) {
		rc = msg_requester_ask(c, request, len, id);
		return likely(!rc)   ? 0 :
		       rc == -EAGAIN ? gn_fail_text(rc, SENDS_FULL) :
				       gn_fail_text(rc, CONN_GONE);
	}
	c->ids[end->said.at] = id;
	if (likely(len))
		memcpy(msg_end_bytes(end), request, len);
	gn_charge(GN_WORK_COPY, len);
	/* The answer comes to the same place: what was there before is not needed any more. */
	msg_end_clear(end, end->said.at);
	if (end->told.verb != MSG_WRITE)
		msg_end_want(end);
	msg_end_say(end, len);
	asked(c);
	return 0;
}

int gn_msg_read(struct gn_msg_conn *c, uint64_t offset, uint32_t len, uint64_t id)
{
	int rc;

	if (!c || c->requester->opts.protocol != GN_MSG_READ)
		return gn_fail(
			-EINVAL,
			"gn_msg_read(): conn is NULL, or the requester's protocol is not READ");
	rc = can_ask(c, len, c->requester->opts.value_bytes);
	if (unlikely(rc))
		return rc;
	if (len > c->data_bytes || offset > c->data_bytes - len)
		return gn_fail(-ERANGE, "gn_msg_read(): %u bytes at %llu: there are %llu", len,
			       (unsigned long long)offset, (unsigned long long)c->data_bytes);
	c->ids[c->end->told.wanted_at] = id;
	msg_end_read(c->end, offset, len);
	asked(c);
	return 0;
}

int gn_msg_flush(struct gn_msg_requester *r)
{
	if (!r)
		return gn_fail(-EINVAL, "gn_msg_flush(): requester is NULL");
	if (msg_desk_check(&r->desk))
		return -EPERM;
	for (unsigned i = 0; i < r->desk.max_ends; i++)
		if (r->desk.ends[i] && r->desk.ends[i]->n_chain)
			msg_end_flush(r->desk.ends[i]);
	msg_ud_flush(&r->desk);
	return 0;
}

/* ---- results ---- */

void msg_requester_result(struct gn_msg_conn *c, uint32_t at, enum gn_msg_status status,
			  uint32_t len, const void *value, struct gn_msg_result *out)
{
	struct gn_msg_stats *stats = &c->requester->desk.stats;

	*out = (struct gn_msg_result){
		.id = c->ids[at], .conn = c, .status = status, .len = len, .value = value};
	c->under_way--;
	c->end->awaited = c->under_way;
	c->requester->under_way--;
	if (status == GN_MSG_OK)
		stats->answers++;
	else
		stats->failed++;
}

/* Up to n results of a connection in which all is in order. */
static unsigned take_ordered(struct gn_msg_conn *c, struct gn_msg_result *out, unsigned n)
{
	struct msg_end *end = c->end;
	unsigned got = 0;
	uint8_t *bytes;

	while (got < n && c->under_way) {
		const int64_t length = msg_end_next(end, &bytes);
		const uint32_t at = end->told.at;

		if (length < 0 && end->fate == GN_MSG_OK)
			break;
		if (unlikely(length < 0)) {
			end->over = true;
			end->told.at = at + 1 == end->pending ? 0 : at + 1;
			msg_requester_result(c, at, end->fate, 0, NULL, &out[got++]);
			continue;
		}
		msg_end_took(end, (uint32_t)length);
		if (likely(!(length & MSG_REFUSED)))
			msg_requester_result(c, at, GN_MSG_OK, (uint32_t)length, bytes,
					     &out[got++]);
		else
			msg_requester_result(c, at, GN_MSG_REFUSED, 0, NULL, &out[got++]);
	}
	return got;
}

/* What is there now; the connections take turns at being first. */
static unsigned collect(struct gn_msg_requester *r, struct gn_msg_result *out, unsigned n)
{
	const uint64_t looks = r->desk.stats.looks;
	unsigned got = 0, i = r->first;

	for (unsigned k = 0; k < r->desk.max_ends && got < n; k++) {
		struct msg_end *end = r->desk.ends[i];

		i = i + 1 == r->desk.max_ends ? 0 : i + 1;
		if (!end || !end->awaited)
			continue;
		if (end->told.verb == MSG_DATAGRAM)
			got += msg_requester_take(end->owner, out + got, n - got);
		else
			got += take_ordered(end->owner, out + got, n - got);
	}
	r->first = i;
	gn_charge(GN_WORK_SCAN, r->desk.stats.looks - looks);
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
	if (!r->under_way) /* one whose connections are idle hears that they end */
		msg_desk_turn(&r->desk, link_loop_overdue(&r->desk.loop));
	while (n && r->under_way) {
		unsigned got;
		int rc;

		msg_desk_turn(&r->desk, now);
		if (r->opts.protocol == GN_MSG_UD)
			link_loop_run_timers(&r->desk.loop);
		got = collect(r, out, n);
		if (got)
			return (int)got;
		if (deadline_ns == GN_NO_WAIT) {
			if (now || !link_loop_overdue(&r->desk.loop))
				return 0;
			now = true;
			continue;
		}
		rc = link_loop_wait(&r->desk.loop, deadline_ns, "answers");
		if (rc == -EINTR)
			return rc;
		if (rc == -ETIMEDOUT && now)
			return 0;
		/* One more look, at the channel too, before there was nothing. */
		now = rc == -ETIMEDOUT;
	}
	return 0;
}

struct gn_source *gn_msg_requester_source(struct gn_msg_requester *r)
{
	if (r)
		return msg_desk_check(&r->desk) ? NULL : msg_desk_source(&r->desk);
	gn_fail(-EINVAL, "gn_msg_requester_source(): requester is NULL");
	return NULL;
}

int gn_msg_requester_stats(const struct gn_msg_requester *r, struct gn_msg_stats *out)
{
	if (!r)
		return gn_fail(-EINVAL, "gn_msg_requester_stats(): requester is NULL");
	return SIZED_WRITE(out, &r->desk.stats, "gn_msg_stats");
}
