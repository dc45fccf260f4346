/* SPDX-License-Identifier: MIT */
/*
 * The connection through which the two sides of a case agree: an RC qp on a fabric of its own, with
 * short messages in order. A side may be CTL_SLOTS messages ahead of the other; beyond that the
 * other's missing receives hold it up for as long as the retries last.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "harness.h"

#define CTL_SLOTS     32u
#define CTL_SLOT_SIZE 1024u
#define CTL_RNR_US    490000u

struct ctl_head {
	uint32_t kind;
	uint32_t len_bytes;
};

static_assert(sizeof(struct ctl_head) + sizeof(struct cf_verdict) <= CTL_SLOT_SIZE, "fits a slot");
static_assert(sizeof(struct ctl_head) + CF_MSG_MAX <= CTL_SLOT_SIZE, "fits a slot");

struct cf_ctl {
	struct gn_fabric *fabric;
	struct gn_attr attr;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_chan *listen_chan; /* A, with the listener */
	struct gn_listener *listener;
	char addr[CF_ADDR_MAX];

	/* per connection */
	struct gn_chan *chan;
	struct gn_cq *send_cq, *recv_cq;
	struct gn_qp *qp;
	bool up;
	uint64_t sent, acked;	   /* send slot n is n % CTL_SLOTS */
	uint64_t arrived, taken;   /* slots of inbox, modulo CTL_SLOTS */
	uint32_t inbox[CTL_SLOTS]; /* receive slots, in the order of arrival */
};

static uint8_t *send_slot(const struct cf_ctl *ctl, uint64_t n)
{
	return (uint8_t *)gn_mem_addr(ctl->mem) + (n % CTL_SLOTS) * CTL_SLOT_SIZE;
}

static uint8_t *recv_slot(const struct cf_ctl *ctl, uint64_t n)
{
	return send_slot(ctl, 0) + (CTL_SLOTS + n % CTL_SLOTS) * CTL_SLOT_SIZE;
}

/* ---- set-up ---- */

static int listen_on(struct cf_ctl *ctl)
{
	int err = gn_chan_create(ctl->ctx, &ctl->listen_chan);

	if (err)
		return err;
	return gn_listener_create(ctl->ctx, ctl->addr, ctl->listen_chan, 0, &ctl->listener);
}

int cf_ctl_open(const char *fabric_name, const char *addr, bool listen, struct cf_ctl **out)
{
	struct cf_ctl *ctl = gn_alloc(sizeof(*ctl), 0);
	int err;

	if (!ctl)
		return -ENOMEM;
	snprintf(ctl->addr, sizeof(ctl->addr), "%s", addr);
	err = gn_fabric_open(fabric_name, &ctl->fabric);
	ctl->attr.size = sizeof(ctl->attr);
	if (!err)
		err = gn_fabric_query(ctl->fabric, &ctl->attr);
	if (!err)
		err = gn_ctx_create(ctl->fabric, &ctl->ctx);
	if (!err)
		err = gn_pd_create(ctl->ctx, &ctl->pd);
	if (!err)
		err = gn_mem_alloc(ctl->fabric, 2 * CTL_SLOTS * CTL_SLOT_SIZE, 0, &ctl->mem);
	if (!err)
		err = gn_mr_register(ctl->pd, ctl->mem, 0, gn_mem_size(ctl->mem), GN_LOCAL_WRITE,
				     &ctl->mr);
	if (!err && listen)
		err = listen_on(ctl);
	if (err) {
		cf_ctl_close(ctl);
		return err;
	}
	*out = ctl;
	return 0;
}

void cf_ctl_close(struct cf_ctl *ctl)
{
	if (!ctl)
		return;
	cf_ctl_hangup(ctl);
	gn_listener_destroy(ctl->listener);
	gn_chan_destroy(ctl->listen_chan);
	gn_mr_deregister(ctl->mr);
	gn_mem_free(ctl->mem);
	gn_pd_destroy(ctl->pd);
	gn_ctx_destroy(ctl->ctx);
	gn_fabric_close(ctl->fabric);
	gn_free(ctl);
}

const struct gn_attr *cf_ctl_attr(const struct cf_ctl *ctl)
{
	return &ctl->attr;
}

static int post_slot(struct cf_ctl *ctl, uint32_t slot)
{
	struct gn_sge sge = {recv_slot(ctl, slot), CTL_SLOT_SIZE, gn_mr_lkey(ctl->mr)};
	struct gn_recv_wr wr = {.id = slot, .sge = &sge, .n_sge = 1};

	return gn_post_recv(ctl->qp, &wr, NULL);
}

/* A qp that can be connected, with all its receives. */
static int make_endpoint(struct cf_ctl *ctl)
{
	struct gn_cq_opts cq_opts = {.size = sizeof(cq_opts), .depth = CTL_SLOTS};
	struct gn_qp_opts qp_opts = {
		.size = sizeof(qp_opts),
		.type = GN_QP_RC,
		.max_send_wr = CTL_SLOTS,
		.max_recv_wr = CTL_SLOTS,
	};
	int err = gn_chan_create(ctl->ctx, &ctl->chan);

	ctl->sent = ctl->acked = ctl->arrived = ctl->taken = 0;
	cq_opts.chan = qp_opts.chan = ctl->chan;
	if (!err)
		err = gn_cq_create(ctl->ctx, &cq_opts, &ctl->send_cq);
	if (!err)
		err = gn_cq_create(ctl->ctx, &cq_opts, &ctl->recv_cq);
	qp_opts.send_cq = ctl->send_cq;
	qp_opts.recv_cq = ctl->recv_cq;
	if (!err)
		err = gn_qp_create(ctl->pd, &qp_opts, &ctl->qp);
	for (uint32_t slot = 0; !err && slot < CTL_SLOTS; slot++)
		err = post_slot(ctl, slot);
	return err;
}

void cf_ctl_hangup(struct cf_ctl *ctl)
{
	gn_qp_destroy(ctl->qp);
	gn_cq_destroy(ctl->send_cq);
	gn_cq_destroy(ctl->recv_cq);
	gn_chan_destroy(ctl->chan);
	ctl->qp = NULL;
	ctl->send_cq = ctl->recv_cq = NULL;
	ctl->chan = NULL;
	ctl->up = false;
}

bool cf_ctl_up(const struct cf_ctl *ctl)
{
	return ctl->up;
}

static const struct gn_conn_opts ctl_conn = {
	.size = sizeof(ctl_conn),
	.rnr_retry = GN_RNR_RETRY_DEFAULT,
	.rnr_timer_us = CTL_RNR_US,
};

static int accept_next(struct cf_ctl *ctl, uint64_t deadline_ns)
{
	struct gn_event event;
	int err = make_endpoint(ctl);

	if (!err)
		err = gn_chan_wait(ctl->listen_chan, deadline_ns, &event);
	if (!err)
		err = event.type == GN_EVENT_CONNECT_REQUEST ? 0 : -EPROTO;
	if (!err)
		err = gn_accept(event.req, ctl->qp, &ctl_conn);
	if (!err)
		err = gn_chan_wait(ctl->chan, deadline_ns, &event);
	if (!err)
		err = event.type == GN_EVENT_ESTABLISHED ? 0 : -ECONNABORTED;
	if (err)
		cf_ctl_hangup(ctl);
	return err;
}

int cf_ctl_accept(struct cf_ctl *ctl, uint64_t deadline_ns)
{
	int err;

	/* B may have called before, and given up while A was busy with its own cases. */
	do {
		err = accept_next(ctl, deadline_ns);
	} while (err == -ECONNABORTED && gn_now_ns() < deadline_ns);
	ctl->up = !err;
	return err;
}

int cf_ctl_connect(struct cf_ctl *ctl, uint64_t deadline_ns)
{
	const uint64_t pause_us = 20000;

	for (;;) {
		int err = make_endpoint(ctl);

		if (!err)
			err = gn_connect_wait(ctl->qp, ctl->addr, &ctl_conn, NULL);
		if (!err) {
			ctl->up = true;
			return 0;
		}
		cf_ctl_hangup(ctl);
		if (gn_now_ns() >= deadline_ns)
			return err;
		gn_sleep_us(pause_us);
	}
}

/* ---- messages ---- */

static int reap_send(struct cf_ctl *ctl, uint64_t deadline_ns)
{
	struct gn_wc wc;
	int n = gn_cq_wait(ctl->send_cq, &wc, 1, deadline_ns, "control message to leave");

	if (n < 0)
		return n;
	if (wc.status != GN_WC_OK) {
		ctl->up = false;
		return -EPIPE;
	}
	ctl->acked++;
	return 0;
}

int cf_ctl_put(struct cf_ctl *ctl, enum cf_kind kind, const void *data, uint32_t len_bytes,
	       uint64_t deadline_ns)
{
	struct ctl_head head = {.kind = kind, .len_bytes = len_bytes};
	struct gn_sge sge;
	struct gn_wr wr;
	uint8_t *slot;
	int err;

	if (len_bytes > CTL_SLOT_SIZE - sizeof(head))
		return -EMSGSIZE;
	while (ctl->up && ctl->sent - ctl->acked == CTL_SLOTS) {
		err = reap_send(ctl, deadline_ns);
		if (err)
			return err;
	}
	if (!ctl->up)
		return -EPIPE;
	slot = send_slot(ctl, ctl->sent);
	memcpy(slot, &head, sizeof(head));
	if (len_bytes)
		memcpy(slot + sizeof(head), data, len_bytes);
	sge = (struct gn_sge){slot, (uint32_t)sizeof(head) + len_bytes, gn_mr_lkey(ctl->mr)};
	gn_wr_send(&wr, ctl->sent, &sge, GN_SIGNALED);
	err = gn_post_send(ctl->qp, &wr, NULL);
	if (err)
		return err;
	ctl->sent++;
	return 0;
}

/* Puts received messages into the inbox; waits for one if the inbox is empty. */
static int pump(struct cf_ctl *ctl, uint64_t deadline_ns)
{
	struct gn_wc wc[CTL_SLOTS];
	int n;

	if (!ctl->up)
		return ctl->taken < ctl->arrived ? 0 : -EPIPE;
	if (ctl->taken < ctl->arrived)
		deadline_ns = GN_NO_WAIT;
	n = gn_cq_wait(ctl->recv_cq, wc, CTL_SLOTS, deadline_ns, "control message");
	if (n == -ETIMEDOUT && ctl->taken < ctl->arrived)
		return 0;
	for (int i = 0; i < n; i++) {
		if (wc[i].status != GN_WC_OK) {
			ctl->up = false;
			break;
		}
		ctl->inbox[ctl->arrived++ % CTL_SLOTS] = (uint32_t)wc[i].id;
	}
	if (ctl->taken < ctl->arrived)
		return 0;
	return n < 0 ? n : -EPIPE;
}

int cf_ctl_get(struct cf_ctl *ctl, enum cf_kind *kind, void *data, uint32_t *len_bytes,
	       uint64_t deadline_ns)
{
	struct ctl_head head;
	uint32_t slot;
	int err;

	do
		err = pump(ctl, deadline_ns);
	while (err == -EINTR);
	if (err)
		return err;
	slot = ctl->inbox[ctl->taken++ % CTL_SLOTS];
	memcpy(&head, recv_slot(ctl, slot), sizeof(head));
	if (head.len_bytes > *len_bytes)
		head.len_bytes = *len_bytes;
	if (head.len_bytes)
		memcpy(data, recv_slot(ctl, slot) + sizeof(head), head.len_bytes);
	*kind = head.kind;
	*len_bytes = head.len_bytes;
	return ctl->up ? post_slot(ctl, slot) : 0;
}

bool cf_ctl_ended(struct cf_ctl *ctl)
{
	struct ctl_head head;
	bool bad = false;

	pump(ctl, GN_NO_WAIT);
	for (uint64_t n = ctl->taken; n < ctl->arrived; n++) {
		const uint8_t *slot = recv_slot(ctl, ctl->inbox[n % CTL_SLOTS]);

		memcpy(&head, slot, sizeof(head));
		if (head.kind == CF_MSG_END && head.len_bytes == sizeof(bad))
			memcpy(&bad, slot + sizeof(head), sizeof(bad));
	}
	return bad || !ctl->up;
}

void cf_ctl_bye(struct cf_ctl *ctl, uint64_t deadline_ns)
{
	enum cf_kind kind;
	uint32_t len_bytes;

	do
		len_bytes = 0;
	while (!cf_ctl_get(ctl, &kind, NULL, &len_bytes, deadline_ns));
}

/* ---- what cases call ---- */

static const char *kind_str(enum cf_kind kind)
{
	switch (kind) {
	case CF_MSG_CASE:
		return "the start of a case";
	case CF_MSG_SYNC:
		return "cf_sync";
	case CF_MSG_TELL:
		return "cf_tell";
	case CF_MSG_END:
		return "the case's end";
	case CF_MSG_DONE:
		return "a verdict";
	case CF_MSG_QUIT:
		return "the end";
	}
	return "something";
}

bool cf_get(struct cf *cf, enum cf_kind kind, void *data, uint32_t len_bytes, uint64_t deadline_ns)
{
	uint8_t slot[CTL_SLOT_SIZE];
	uint32_t got = sizeof(slot);
	enum cf_kind got_kind;
	int err = cf_ctl_get(cf->ctl, &got_kind, slot, &got, deadline_ns);

	if (err)
		return cf_why(cf, "nothing heard from the other side: %s", gn_strerror(err));
	if (got_kind == CF_MSG_END && kind != CF_MSG_END) {
		cf->peer_said_end = true;
		cf->peer_ended = slot[0];
		return cf_why(cf, "the other side has ended its case");
	}
	if (got_kind != kind)
		return cf_why(cf, "out of step: the other side sent %s, not %s", kind_str(got_kind),
			      kind_str(kind));
	if (got != len_bytes)
		return cf_why(cf, "out of step: %u bytes from the other side, not %u", got,
			      len_bytes);
	if (len_bytes)
		memcpy(data, slot, len_bytes);
	return true;
}

/* The other side may be in a wait that will fail: let it report that first. */
static uint64_t patient(const struct cf *cf)
{
	return gn_deadline_us(2 * cf->wait_us);
}

static bool put(struct cf *cf, enum cf_kind kind, const void *data, uint32_t len_bytes)
{
	int err = cf_ctl_put(cf->ctl, kind, data, len_bytes, patient(cf));

	return !err || cf_why(cf, "cannot reach the other side: %s", gn_strerror(err));
}

bool cf_sync(struct cf *cf)
{
	return put(cf, CF_MSG_SYNC, NULL, 0) && cf_get(cf, CF_MSG_SYNC, NULL, 0, patient(cf));
}

bool cf_tell(struct cf *cf, const void *data, uint32_t len_bytes)
{
	if (len_bytes > CF_MSG_MAX)
		return cf_why(cf, "%u bytes are too much for a message", len_bytes);
	return put(cf, CF_MSG_TELL, data, len_bytes);
}

bool cf_hear(struct cf *cf, void *data, uint32_t len_bytes)
{
	return cf_get(cf, CF_MSG_TELL, data, len_bytes, patient(cf));
}

bool cf_swap(struct cf *cf, const void *mine, void *theirs, uint32_t len_bytes)
{
	return cf_tell(cf, mine, len_bytes) && cf_hear(cf, theirs, len_bytes);
}
