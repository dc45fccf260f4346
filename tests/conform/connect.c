/* SPDX-License-Identifier: MIT */
/*
 * Cases 63-66: how connections are made, refused and abandoned half-way. A listens, B connects.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "conform.h"

#define PORTABLE_PRIVATE 56u /* what every provider carries */
#define TIMEOUT_US	 300000u
#define PATIENT_US	 20000000u /* where many connect at once, and a slow device is no failure */

/* Addresses on A's side; number 0 is cf_rc_pair()'s. */
enum { DOOR = 1, NOBODY, UNSERVED };

static struct gn_qp *make_end(struct cf *cf, struct gn_cq *cq, struct gn_chan *chan)
{
	struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.chan = chan,
		.max_send_wr = 4,
		.max_recv_wr = 4,
	};

	return cf_make_qp(cf, cf->pd, &opts);
}

/* The event carries these bytes, and after them at most zeros. */
static bool check_private(struct cf *cf, const struct gn_event *ev, uint32_t len_bytes,
			  uint64_t tag)
{
	CHECK(ev->private_len >= len_bytes && ev->private_len <= GN_PRIVATE_MAX, "%u bytes, not %u",
	      ev->private_len, len_bytes);
	CHECK(cf_check_fill(cf, ev->private_data, len_bytes, tag));
	for (uint32_t i = len_bytes; i < ev->private_len; i++)
		CHECK(!ev->private_data[i], "byte %u of the padding is not zero", i);
	return true;
}

/* ---- 63 ---- */

#define PRIVATE_ROUNDS 4u

static uint32_t private_len(const struct cf *cf, unsigned i)
{
	const uint32_t lens[PRIVATE_ROUNDS] = {0, 1, PORTABLE_PRIVATE, cf->attr.max_private};

	return lens[i % PRIVATE_ROUNDS];
}

/* An acceptor may reply with more than a connector may send. */
static uint32_t reply_len(const struct cf *cf, unsigned i)
{
	return i + 1 < PRIVATE_ROUNDS ? private_len(cf, i + 1) : GN_PRIVATE_MAX;
}

static bool accept_private(struct cf *cf, struct gn_cq *cq, unsigned i)
{
	uint8_t data[GN_PRIVATE_MAX];
	struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = data, .private_len = reply_len(cf, i)};
	struct gn_event ev;
	struct gn_qp *qp;

	CHECK((qp = make_end(cf, cq, cf->chan)));
	CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_CONNECT_REQUEST, &ev));
	CHECK(check_private(cf, &ev, private_len(cf, i), i));
	cf_fill(cf, data, opts.private_len, PRIVATE_ROUNDS + i);
	CHECK_INT(gn_accept(ev.req, qp, &opts), 0);
	CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_ESTABLISHED, &ev));
	CHECK(ev.qp == qp, "the event names another qp");
	CHECK(cf_expect_state(cf, qp, GN_QP_READY));
	CHECK(cf_sync(cf));
	return cf_destroy(cf, qp);
}

static bool private_a(struct cf *cf)
{
	char addr[CF_ADDR_MAX];
	uint8_t data[GN_PRIVATE_MAX + 1] = {0};
	struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = data, .private_len = sizeof(data)};
	struct gn_event ev;
	struct gn_cq *cq;
	struct gn_qp *qp;

	CHECK((cq = cf_make_cq(cf, 16, NULL)));
	CHECK(cf_make_listener(cf, cf_addr(cf, CF_A, DOOR, addr), cf->chan));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < PRIVATE_ROUNDS; i++)
		CHECK(accept_private(cf, cq, i));

	/* An accept that cannot be done uses the request up all the same. */
	CHECK((qp = make_end(cf, cq, cf->chan)));
	CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_CONNECT_REQUEST, &ev));
	CHECK_INT(gn_accept(ev.req, qp, &opts), -EINVAL);
	return cf_sync(cf);
}

/* Options that gn_connect() must refuse, leaving the qp as it was. */
static bool connect_badly(struct cf *cf, struct gn_qp *qp, const char *addr)
{
	uint8_t data[GN_PRIVATE_MAX + 1] = {0};
	struct gn_conn_opts opts = {.size = sizeof(opts), .private_data = data};

	CHECK(cf->attr.max_private >= PORTABLE_PRIVATE && cf->attr.max_private <= GN_PRIVATE_MAX,
	      "max_private %u", cf->attr.max_private);
	opts.private_len = cf->attr.max_private + 1;
	CHECK_INT(gn_connect(qp, addr, &opts), -EINVAL);
	opts.private_data = NULL;
	opts.private_len = 1;
	CHECK_INT(gn_connect(qp, addr, &opts), -EINVAL);
	opts.private_len = 0;
	opts.rnr_retry = GN_RNR_RETRY_DEFAULT + 1;
	CHECK_INT(gn_connect(qp, addr, &opts), -EINVAL);
	CHECK_INT(gn_connect(qp, NULL, NULL), -EINVAL);
	CHECK_INT(gn_connect(NULL, addr, NULL), -EINVAL);
	CHECK(cf_expect_state(cf, qp, GN_QP_NEW));
	return true;
}

static bool private_b(struct cf *cf)
{
	uint8_t data[GN_PRIVATE_MAX];
	struct gn_conn_opts opts = {.size = sizeof(opts), .private_data = data};
	char addr[CF_ADDR_MAX];
	struct gn_event ev;
	struct gn_cq *cq;
	struct gn_qp *qp;

	CHECK((cq = cf_make_cq(cf, 16, NULL)));
	cf_addr(cf, CF_A, DOOR, addr);
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < PRIVATE_ROUNDS; i++) {
		CHECK((qp = make_end(cf, cq, cf->chan)));
		CHECK(connect_badly(cf, qp, addr));
		opts.private_len = private_len(cf, i);
		cf_fill(cf, data, opts.private_len, i);
		CHECK_INT(gn_connect_wait(qp, addr, &opts, &ev), 0);
		CHECK_INT(ev.type, GN_EVENT_ESTABLISHED);
		CHECK(check_private(cf, &ev, reply_len(cf, i), PRIVATE_ROUNDS + i));
		CHECK(cf_expect_state(cf, qp, GN_QP_READY));
		CHECK_INT(gn_connect(qp, addr, NULL), -EISCONN);
		CHECK(cf_sync(cf));
		CHECK(cf_destroy(cf, qp));
	}
	CHECK((qp = make_end(cf, cq, cf->chan)));
	CHECK_INT(gn_connect_wait(qp, addr, NULL, NULL), -ECONNREFUSED);
	return cf_sync(cf);
}

/* ---- 64 ---- */

static bool refuse_a(struct cf *cf)
{
	uint8_t data[PORTABLE_PRIVATE];
	char addr[CF_ADDR_MAX];
	struct gn_event ev;
	struct gn_chan *unserved;

	CHECK((unserved = cf_make_chan(cf)));
	CHECK(cf_make_listener(cf, cf_addr(cf, CF_A, DOOR, addr), cf->chan));
	CHECK(cf_make_listener(cf, cf_addr(cf, CF_A, UNSERVED, addr), unserved));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < PRIVATE_ROUNDS - 1; i++) {
		CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_CONNECT_REQUEST, &ev));
		cf_fill(cf, data, private_len(cf, i), i);
		CHECK_INT(gn_reject(ev.req, data, private_len(cf, i)), 0);
	}
	return cf_sync(cf);
}

/* Addresses that are none, here as a listener's and as a peer's. */
static bool bad_address(struct cf *cf, struct gn_qp *qp, const char *addr)
{
	struct gn_listener *listener = NULL;

	CHECK_INT(gn_connect(qp, addr, NULL), -EINVAL);
	CHECK_INT(gn_listener_create(cf->ctx, addr, cf->chan, 0, &listener), -EINVAL);
	CHECK(!listener, "an output was touched");
	return true;
}

static bool bad_addresses(struct cf *cf, struct gn_qp *qp)
{
	char addr[CF_ADDR_MAX];

	CHECK(bad_address(cf, qp, ""));
	CHECK(bad_address(cf, qp, ":"));
	CHECK(bad_address(cf, qp, "nonsense:1"));
	snprintf(addr, sizeof(addr), "%s:", cf->attr.provider);
	CHECK(bad_address(cf, qp, addr));
	snprintf(addr, sizeof(addr), "%s", cf->attr.provider);
	CHECK(bad_address(cf, qp, addr));
	if (!strcmp(cf->attr.provider, "shm")) { /* names: 1 to 64 of [A-Za-z0-9._-] */
		snprintf(addr, sizeof(addr), "shm:%065d", 0);
		CHECK(bad_address(cf, qp, addr));
		CHECK(bad_address(cf, qp, "shm:a/b"));
		CHECK(bad_address(cf, qp, "shm:../a"));
		CHECK(bad_address(cf, qp, "shm:a b"));
		CHECK(bad_address(cf, qp, "shm:\xc3\xa4"));
	}
	return true;
}

/* No listener, a peer that does not answer, and on a network also an unknown host. */
static bool unreachable(struct cf *cf, struct gn_cq *cq)
{
	struct gn_conn_opts opts = {.size = sizeof(opts), .timeout_us = TIMEOUT_US};
	char addr[CF_ADDR_MAX];
	struct gn_event ev;
	struct gn_qp *qp;
	uint64_t start_ns;

	CHECK((qp = make_end(cf, cq, cf->chan)));
	CHECK_INT(gn_connect(qp, cf_addr(cf, CF_A, NOBODY, addr), NULL), 0);
	CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_UNREACHABLE, &ev));
	CHECK_INT(ev.status, -ECONNREFUSED);
	CHECK(ev.qp == qp, "the event names another qp");

	CHECK((qp = make_end(cf, cq, cf->chan)));
	start_ns = gn_now_ns();
	CHECK_INT(gn_connect_wait(qp, cf_addr(cf, CF_A, UNSERVED, addr), &opts, &ev), -ETIMEDOUT);
	CHECK_INT(ev.type, GN_EVENT_UNREACHABLE);
	CHECK(gn_now_ns() - start_ns >= UINT64_C(1000) * TIMEOUT_US, "it gave up early");

	if (!strcmp(cf->attr.provider, "verbs")) { /* an address that is kept for documentation */
		CHECK((qp = make_end(cf, cq, cf->chan)));
		CHECK_INT(gn_connect(qp, "verbs:192.0.2.1:9", &opts), 0);
		CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_UNREACHABLE, &ev));
		CHECK(ev.status < 0, "status %d", ev.status);
	}
	return true;
}

static bool refuse_b(struct cf *cf)
{
	char addr[CF_ADDR_MAX];
	struct gn_event ev;
	struct gn_cq *cq;
	struct gn_qp *qp;

	CHECK((cq = cf_make_cq(cf, 64, NULL)));
	CHECK((qp = make_end(cf, cq, cf->chan)));
	CHECK(bad_addresses(cf, qp));
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < PRIVATE_ROUNDS - 1; i++) {
		CHECK((qp = make_end(cf, cq, cf->chan)));
		CHECK_INT(gn_connect_wait(qp, cf_addr(cf, CF_A, DOOR, addr), NULL, &ev),
			  -ECONNREFUSED);
		CHECK_INT(ev.type, GN_EVENT_REJECTED);
		CHECK(check_private(cf, &ev, private_len(cf, i), i));
	}
	CHECK(unreachable(cf, cq));
	return cf_sync(cf);
}

/* ---- 65 ---- */

/*
 * A thread of B that connects and, on request, destroys its qp before A answers. The request
 * reaches A only while the thread takes its channel's events, so it owns all objects.
 */
struct visitor {
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	char addr[CF_ADDR_MAX];
	bool leave; /* atomic */
	int err;
	struct gn_thread *thread;
};

static int visit(struct visitor *v, struct gn_chan *chan, struct gn_cq *cq)
{
	const uint64_t look_us = 1000;
	struct gn_conn_opts conn = {.size = sizeof(conn), .timeout_us = PATIENT_US};
	struct gn_qp_opts opts = {
		.size = sizeof(opts), .type = GN_QP_RC, .send_cq = cq, .recv_cq = cq, .chan = chan};
	struct gn_event ev;
	struct gn_qp *qp;
	int err = gn_qp_create(v->pd, &opts, &qp);

	if (err)
		return err;
	err = gn_connect(qp, v->addr, &conn);
	while (!err && !__atomic_load_n(&v->leave, __ATOMIC_ACQUIRE)) {
		err = gn_chan_wait(chan, gn_deadline_us(look_us), &ev);
		/* Nothing must arrive: the request was not accepted. */
		err = err == -ETIMEDOUT || err == -EINTR ? 0 : err ? err : -EPROTO;
	}
	return gn_qp_destroy(qp) ?: err;
}

static void visitor_main(void *arg)
{
	struct gn_cq_opts opts = {.size = sizeof(opts), .depth = 256};
	struct visitor *v = arg;
	struct gn_chan *chan = NULL;
	struct gn_cq *cq = NULL;

	v->err = gn_chan_create(v->ctx, &chan);
	if (!v->err)
		v->err = gn_cq_create(v->ctx, &opts, &cq);
	if (!v->err)
		v->err = visit(v, chan, cq);
	v->err = gn_cq_destroy(cq) ?: v->err;
	v->err = gn_chan_destroy(chan) ?: v->err;
}

/* B: a visitor comes, A takes its request, it leaves, A answers. */
static bool come_and_go(struct cf *cf)
{
	struct visitor v = {.ctx = cf->ctx, .pd = cf->pd};
	bool taken;

	cf_addr(cf, CF_A, DOOR, v.addr);
	CHECK_INT(gn_thread_start("visitor", visitor_main, &v, &v.thread), 0);
	taken = cf_sync(cf);
	__atomic_store_n(&v.leave, true, __ATOMIC_RELEASE);
	CHECK_INT(gn_thread_join(v.thread), 0);
	CHECK(taken);
	CHECK_INT(v.err, 0);
	return cf_sync(cf);
}

/* A: a connection accepted too late fails at once, or is established and lost. */
static bool accept_late(struct cf *cf, struct gn_cq *cq)
{
	const uint64_t deadline_ns = cf_deadline(cf);
	struct gn_event ev;
	struct gn_qp *qp;
	int rc;

	CHECK((qp = make_end(cf, cq, cf->chan)));
	CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_CONNECT_REQUEST, &ev));
	CHECK(cf_sync(cf));
	CHECK(cf_sync(cf)); /* the visitor has left */
	rc = gn_accept(ev.req, qp, NULL);
	if (rc == 0) {
		do {
			rc = gn_chan_wait(cf->chan, deadline_ns, &ev);
			CHECK(rc == 0, "no end: %s", gn_strerror(rc));
			CHECK(ev.qp == qp, "event %s of another", gn_event_str(ev.type));
		} while (ev.type == GN_EVENT_ESTABLISHED);
		CHECK(ev.type == GN_EVENT_UNREACHABLE || ev.type == GN_EVENT_DISCONNECTED, "%s",
		      gn_event_str(ev.type));
		CHECK(cf_expect_state(cf, qp, GN_QP_ERROR));
	}
	return cf_destroy(cf, qp);
}

static bool reject_late(struct cf *cf)
{
	struct gn_event ev;

	CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_CONNECT_REQUEST, &ev));
	CHECK(cf_sync(cf));
	CHECK(cf_sync(cf));
	gn_reject(ev.req, NULL,
		  0); /* whatever it returns, the request is freed: the fabric will close */
	return true;
}

/* A: a queued request is destroyed with its listener; a taken request is not. */
static bool close_listener(struct cf *cf, struct gn_cq *cq, struct gn_listener *listener)
{
	struct gn_wait_item item = gn_wait_on(gn_chan_source(cf->chan));
	char addr[CF_ADDR_MAX];
	struct gn_event ev;
	struct gn_qp *qp;
	int rc;

	CHECK(cf_sync(cf));
	do
		rc = gn_wait(&item, 1, cf_deadline(cf), "a request, to leave it");
	while (rc == 0 || rc == -EINTR);
	CHECK_INT(rc, 1);
	CHECK(cf_destroy(cf, listener));
	CHECK_INT(gn_chan_next(cf->chan, &ev), -EAGAIN);
	CHECK(cf_sync(cf));

	CHECK((listener = cf_make_listener(cf, cf_addr(cf, CF_A, DOOR, addr), cf->chan)));
	CHECK((qp = make_end(cf, cq, cf->chan)));
	CHECK(cf_sync(cf));
	CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_CONNECT_REQUEST, &ev));
	CHECK(cf_destroy(cf, listener));
	CHECK_INT(gn_accept(ev.req, qp, NULL), 0);
	return cf_expect_event(cf, cf->chan, GN_EVENT_ESTABLISHED, NULL);
}

static bool pending_a(struct cf *cf)
{
	struct gn_listener *listener, *second = NULL;
	char addr[CF_ADDR_MAX];
	struct gn_cq *cq;

	CHECK((cq = cf_make_cq(cf, 64, NULL)));
	CHECK((listener = cf_make_listener(cf, cf_addr(cf, CF_A, DOOR, addr), cf->chan)));
	CHECK_INT(gn_listener_create(cf->ctx, addr, cf->chan, 0, &second), -EADDRINUSE);
	CHECK(!second, "an output was touched");
	CHECK(cf_sync(cf)); /* B tries to listen there too */
	CHECK(cf_sync(cf));
	CHECK(accept_late(cf, cq));
	CHECK(reject_late(cf));
	CHECK(close_listener(cf, cq, listener));
	return cf_sync(cf);
}

static bool pending_b(struct cf *cf)
{
	struct gn_listener *listener = NULL;
	char addr[CF_ADDR_MAX];
	struct gn_cq *cq;
	struct gn_qp *qp;

	CHECK((cq = cf_make_cq(cf, 64, NULL)));
	CHECK(cf_sync(cf));
	cf_addr(cf, CF_A, DOOR, addr);
	CHECK(gn_listener_create(cf->ctx, addr, cf->chan, 0, &listener) < 0, "the address is A's");
	CHECK(cf_sync(cf));
	CHECK(come_and_go(cf));
	CHECK(come_and_go(cf));

	CHECK((qp = make_end(cf, cq, cf->chan)));
	CHECK(cf_sync(cf));
	CHECK_INT(gn_connect_wait(qp, addr, NULL, NULL), -ECONNREFUSED);
	CHECK(cf_sync(cf));

	CHECK((qp = make_end(cf, cq, cf->chan)));
	CHECK(cf_sync(cf));
	CHECK_INT(gn_connect_wait(qp, addr, NULL, NULL), 0);
	return cf_sync(cf);
}

/* ---- 66 ---- */

#define CROWD	   100u
#define SEQUENTIAL 1000u
#define NAME_BYTES sizeof(uint64_t)

/* Many ends on one cq, one channel and one buffer with a word for each. */
struct crowd {
	unsigned n;
	struct gn_cq *cq;
	struct gn_mr *mr;
	uint64_t *word;
	struct gn_qp *qp[CROWD];
};

static bool crowd_open(struct cf *cf, struct crowd *crowd)
{
	struct gn_mem *mem;

	crowd->n = (unsigned)cf_count(cf, CROWD);
	if (crowd->n > CROWD)
		crowd->n = CROWD;
	CHECK((crowd->cq = cf_make_cq(cf, 8 * CROWD, NULL)));
	CHECK((mem = cf_make_mem(cf, 2 * CROWD * NAME_BYTES, 0)));
	CHECK((crowd->mr = cf_make_mr(cf, cf->pd, mem, GN_LOCAL_WRITE)));
	crowd->word = gn_mem_addr(mem);
	return true;
}

static bool crowd_recv(struct cf *cf, struct crowd *crowd, struct gn_qp *qp, unsigned i)
{
	struct gn_sge sge = {&crowd->word[i], NAME_BYTES, gn_mr_lkey(crowd->mr)};
	struct gn_recv_wr wr = {.id = i, .sge = &sge, .n_sge = 1};

	CHECK_INT(gn_post_recv(qp, &wr, NULL), 0);
	return true;
}

static bool crowd_send(struct cf *cf, struct crowd *crowd, struct gn_qp *qp, unsigned i,
		       uint64_t name)
{
	struct gn_sge sge = {&crowd->word[CROWD + i], NAME_BYTES, gn_mr_lkey(crowd->mr)};
	struct gn_wr wr;

	crowd->word[CROWD + i] = name;
	gn_wr_send(&wr, CROWD + i, &sge, 0);
	return cf_post(cf, qp, &wr);
}

/* One message on each connection, in its own word and on its own qp. */
static bool crowd_hear(struct cf *cf, struct crowd *crowd, bool heard[CROWD])
{
	struct gn_wc wc;

	memset(heard, 0, CROWD * sizeof(*heard));
	for (unsigned n = 0; n < crowd->n; n++) {
		CHECK(cf_poll_one(cf, crowd->cq, &wc));
		CHECK_INT(wc.status, GN_WC_OK);
		CHECK_INT(wc.op, GN_OP_RECV);
		CHECK(wc.id < crowd->n && wc.qp == crowd->qp[wc.id], "message on another qp");
		CHECK(!heard[wc.id], "two messages on connection %u", (unsigned)wc.id);
		heard[wc.id] = true;
	}
	return true;
}

static bool accept_crowd(struct cf *cf, struct crowd *crowd)
{
	struct gn_conn_opts conn = {
		.size = sizeof(conn), .rnr_retry = GN_RNR_RETRY_DEFAULT, .timeout_us = PATIENT_US};
	unsigned accepted = 0, established = 0;
	struct gn_event ev;

	while (established < crowd->n) {
		int rc = gn_chan_wait(cf->chan, cf_deadline(cf), &ev);

		CHECK(rc == 0, "%u accepted, %u established, then %s", accepted, established,
		      gn_strerror(rc));
		if (ev.type == GN_EVENT_ESTABLISHED) {
			established++;
			continue;
		}
		CHECK(ev.type == GN_EVENT_CONNECT_REQUEST && accepted < crowd->n, "%s",
		      gn_event_str(ev.type));
		CHECK((crowd->qp[accepted] = make_end(cf, crowd->cq, cf->chan)));
		CHECK(crowd_recv(cf, crowd, crowd->qp[accepted], accepted));
		CHECK_INT(gn_accept(ev.req, crowd->qp[accepted++], &conn), 0);
	}
	return true;
}

static bool crowd_a(struct cf *cf, struct crowd *crowd)
{
	bool heard[CROWD], named[CROWD] = {false};

	CHECK(accept_crowd(cf, crowd));
	CHECK(crowd_hear(cf, crowd, heard));
	for (unsigned i = 0; i < crowd->n; i++) {
		CHECK(crowd->word[i] < crowd->n && !named[crowd->word[i]], "a name twice");
		named[crowd->word[i]] = true;
		CHECK(crowd_send(cf, crowd, crowd->qp[i], i, crowd->word[i]));
	}
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < crowd->n; i++)
		CHECK(cf_destroy(cf, crowd->qp[i]));
	return true;
}

static bool crowd_b(struct cf *cf, struct crowd *crowd, const char *addr)
{
	struct gn_conn_opts conn = {
		.size = sizeof(conn), .rnr_retry = GN_RNR_RETRY_DEFAULT, .timeout_us = PATIENT_US};
	bool heard[CROWD];

	for (unsigned i = 0; i < crowd->n; i++) {
		CHECK((crowd->qp[i] = make_end(cf, crowd->cq, cf->chan)));
		CHECK(crowd_recv(cf, crowd, crowd->qp[i], i));
		CHECK_INT(gn_connect(crowd->qp[i], addr, &conn), 0);
	}
	for (unsigned i = 0; i < crowd->n; i++)
		CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_ESTABLISHED, NULL));
	for (unsigned i = 0; i < crowd->n; i++)
		CHECK(crowd_send(cf, crowd, crowd->qp[i], i, i));
	CHECK(crowd_hear(cf, crowd, heard));
	for (unsigned i = 0; i < crowd->n; i++)
		CHECK_INT(crowd->word[i], i);
	CHECK(cf_sync(cf));
	for (unsigned i = 0; i < crowd->n; i++)
		CHECK(cf_destroy(cf, crowd->qp[i]));
	return true;
}

/* One after the other, each with a message. */
static bool queue_a(struct cf *cf, struct crowd *crowd, uint64_t name)
{
	struct gn_event ev;
	struct gn_qp *qp;

	CHECK((qp = make_end(cf, crowd->cq, cf->chan)));
	CHECK(crowd_recv(cf, crowd, qp, 0));
	CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_CONNECT_REQUEST, &ev));
	CHECK_INT(gn_accept(ev.req, qp, NULL), 0);
	CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_ESTABLISHED, NULL));
	CHECK(cf_expect_wc(cf, crowd->cq, 0, GN_WC_OK));
	CHECK(crowd->word[0] == name, "name %llu", (unsigned long long)crowd->word[0]);
	CHECK(cf_sync(cf));
	return cf_destroy(cf, qp);
}

static bool queue_b(struct cf *cf, struct crowd *crowd, const char *addr, uint64_t name)
{
	struct gn_qp *qp;

	CHECK((qp = make_end(cf, crowd->cq, cf->chan)));
	CHECK_INT(gn_connect_wait(qp, addr, NULL, NULL), 0);
	CHECK(crowd_send(cf, crowd, qp, 0, name));
	CHECK(cf_sync(cf));
	return cf_destroy(cf, qp);
}

static bool many_a(struct cf *cf)
{
	char addr[CF_ADDR_MAX];
	struct crowd crowd;

	CHECK(crowd_open(cf, &crowd));
	CHECK(cf_make_listener(cf, cf_addr(cf, CF_A, DOOR, addr), cf->chan));
	CHECK(cf_sync(cf));
	CHECK(crowd_a(cf, &crowd));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0; cf_more_both(cf, i, SEQUENTIAL); i++)
		CHECK(queue_a(cf, &crowd, i));
	return true;
}

static bool many_b(struct cf *cf)
{
	char addr[CF_ADDR_MAX];
	struct crowd crowd;

	CHECK(crowd_open(cf, &crowd));
	CHECK(cf_sync(cf));
	cf_addr(cf, CF_A, DOOR, addr);
	CHECK(crowd_b(cf, &crowd, addr));
	CHECK(cf_sync(cf));
	for (uint64_t i = 0; cf_more_both(cf, i, SEQUENTIAL); i++)
		CHECK(queue_b(cf, &crowd, addr, i));
	return true;
}

const struct cf_case cf_cases_connect[] = {
	{63, "private data, padding ignored", private_a, private_b, 0, 0},
	{64, "rejected, nobody there, no answer, bad names", refuse_a, refuse_b, 0, 0},
	{65, "clients that vanish, listeners that close", pending_a, pending_b, 0, 0},
	{66, "many clients at once and one after the other", many_a, many_b, 0, 0},
	{0},
};
