/* SPDX-License-Identifier: MIT */
/*
 * A requester written against the wire: it greets a responder with any hello, and then has the qps and
 * the memory to do what it likes. And an honest one beside it, which notes how long it waits.
 */
#ifndef GN_TESTS_HOSTILE_MSG_RAW_H
#define GN_TESTS_HOSTILE_MSG_RAW_H

#include "../raw_endpoint.h"
#include "msg/wire.h"
#include "msg_stream.h"

#define RAW_BYTES (64u << 10)
#define RAW_WRS	  64u
#define RAW_QKEY  77u

struct raw {
	struct raw_endpoint ep;
	struct gn_qp *ud;
	struct gn_ah *ah; /* to the responder's datagram qp */
	struct msg_welcome welcome;
};

static inline int raw_make(struct raw *raw, struct gn_fabric *fabric)
{
	const struct raw_endpoint_opts own = {.bytes = RAW_BYTES,
					      .remote = GN_REMOTE_WRITE,
					      .cq_depth = 4 * RAW_WRS,
					      .notify = true};
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = GN_QP_RC,
				  .max_send_wr = RAW_WRS,
				  .max_recv_wr = RAW_WRS,
				  .qkey = RAW_QKEY};

	*raw = (struct raw){.ud = NULL};
	EXPECT(raw_endpoint_make(&raw->ep, fabric, &own, &opts) == 0);
	opts.type = GN_QP_UD;
	EXPECT(gn_qp_create(raw->ep.pd, &opts, &raw->ud) == 0);
	return 0;
}

static inline void raw_free(struct raw *raw)
{
	gn_ah_destroy(raw->ah);
	gn_qp_destroy(raw->ud);
	raw_endpoint_end(&raw->ep);
}

/* As gn_connect_wait(); a refusal says why in welcome.refusal. */
static inline int raw_greet(struct raw *raw, const char *addr, const struct msg_hello *hello)
{
	const struct gn_conn_opts opts = {.size = sizeof(opts),
					  .private_data = hello,
					  .private_len = sizeof(*hello),
					  .timeout_us = UNIT_PATIENCE_US};
	struct gn_event event = {.private_len = 0};
	const int rc = gn_connect_wait(raw->ep.qp, addr, &opts, &event);

	memset(&raw->welcome, 0, sizeof(raw->welcome));
	memcpy(&raw->welcome, event.private_data, sizeof(raw->welcome));
	return rc;
}

static inline struct msg_hello raw_hello(const struct raw *raw, enum gn_msg_protocol protocol)
{
	struct msg_hello hello = {.magic = MSG_MAGIC,
				  .version = MSG_VERSION,
				  .protocol = (uint8_t)protocol,
				  .pending = 1,
				  .request_bytes = 8,
				  .value_bytes = 8};
	struct gn_remote remote;

	gn_mr_remote(raw->ep.mr, &remote);
	hello.answer_key = remote.key;
	if (protocol == GN_MSG_UD)
		gn_qp_ud_addr(raw->ud, &hello.ud);
	return hello;
}

/* ---- an honest requester beside it ---- */

struct honest {
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;
	uint64_t asked, worst_ns;
};

static inline int honest_begin(struct honest *h, struct world *w, struct gn_fabric *fabric)
{
	struct gn_msg_requester_opts opts = requester_opts(w);

	*h = (struct honest){.conn = NULL};
	opts.request_bytes = opts.value_bytes = 16;
	EXPECT(gn_msg_requester_create(fabric, &opts, &h->requester) == 0);
	EXPECT(gn_msg_conn_open(h->requester, w->addr, NULL, &h->conn) == 0);
	return 0;
}

/* One request, always on the same connection, which nothing may end. */
static inline int honest_ask(struct honest *h)
{
	const uint32_t bytes = (uint32_t)h->asked;
	struct gn_msg_result result;
	const uint64_t since_ns = gn_now_ns();
	uint64_t took_ns;

	EXPECT(gn_msg_ask(h->conn, &bytes, sizeof(bytes), h->asked) == 0);
	EXPECT(gn_msg_take(h->requester, &result, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
	if (result.status != GN_MSG_OK)
		print_error("honest request %llu: %s\n", (unsigned long long)h->asked,
			    gn_msg_status_str(result.status));
	EXPECT(result.status == GN_MSG_OK && result.id == h->asked);
	EXPECT(result.len == sizeof(bytes) && !memcmp(result.value, &bytes, sizeof(bytes)));
	took_ns = gn_now_ns() - since_ns;
	h->worst_ns = took_ns > h->worst_ns ? took_ns : h->worst_ns;
	h->asked++;
	return 0;
}

/* Client 0: asks until the hostile client has finished. */
static inline int honest_during_attack(struct honest *h, struct world *w, struct gn_fabric *fabric)
{
	EXPECT(honest_begin(h, w, fabric) == 0);
	EXPECT(honest_ask(h) == 0);
	STORE(w->step, 1);
	while (LOAD(w->step) < 2)
		EXPECT(honest_ask(h) == 0);
	return 0;
}

/* The hostile client: begins when the honest one is connected. */
static inline int attack_beside_honest(struct world *w, struct gn_fabric *fabric,
				       int (*attack)(struct world *w, struct gn_fabric *fabric))
{
	int rc;

	world_await_least(w, &w->step, 1);
	rc = attack(w, fabric);
	STORE(w->step, 2);
	return rc;
}

#endif
