/* SPDX-License-Identifier: MIT */
/*
 * The verbs provider's connections, where only a look inside or a certain network shows what is wrong.
 * In a guest with a device (tests/vm/run); GN_VM_ADDR is its IPv4 address, GN_VM_ADDR6 one of IPv6.
 */
#include <errno.h>

#include "fabric/verbs/verbs.h"
#include "unit.h"

#define PATIENCE_US 10000000u

struct side {
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_qp *qp;
};

static struct gn_fabric *fabric;

static void side_make(struct side *side)
{
	struct gn_qp_opts opts = {.size = sizeof(opts), .type = GN_QP_RC};

	assert_int_equal(gn_ctx_create(fabric, &side->ctx), 0);
	assert_int_equal(gn_chan_create(side->ctx, &side->chan), 0);
	assert_int_equal(
		gn_cq_create(side->ctx,
			     &(struct gn_cq_opts){.size = sizeof(struct gn_cq_opts), .depth = 512},
			     &side->cq),
		0);
	assert_int_equal(gn_pd_create(side->ctx, &side->pd), 0);
	opts.chan = side->chan;
	opts.send_cq = opts.recv_cq = side->cq;
	assert_int_equal(gn_qp_create(side->pd, &opts, &side->qp), 0);
}

static void side_free(struct side *side)
{
	assert_int_equal(gn_qp_destroy(side->qp), 0);
	assert_int_equal(gn_pd_destroy(side->pd), 0);
	assert_int_equal(gn_cq_destroy(side->cq), 0);
	assert_int_equal(gn_chan_destroy(side->chan), 0);
	assert_int_equal(gn_ctx_destroy(side->ctx), 0);
}

static void expect_event(struct gn_chan *chan, enum gn_event_type type, struct gn_event *event)
{
	assert_int_equal(gn_chan_wait(chan, gn_deadline_us(PATIENCE_US), event), 0);
	assert_string_equal(gn_event_str(event->type), gn_event_str(type));
}

/* The server's qp is accepted: the client's last word has not been taken from its channel. */
static struct gn_listener *begin(struct side *server, struct side *client, const char *at,
				 const char *to)
{
	struct gn_listener *listener;
	struct gn_event event;

	side_make(server);
	side_make(client);
	assert_int_equal(gn_listener_create(server->ctx, at, server->chan, 0, &listener), 0);
	assert_int_equal(gn_connect(client->qp, to,
				    &(struct gn_conn_opts){.size = sizeof(struct gn_conn_opts),
							   .timeout_us = PATIENCE_US}),
			 0);
	/* The client takes its own steps when its channel is looked at. */
	for (const uint64_t until_ns = gn_deadline_us(PATIENCE_US);
	     gn_chan_next(server->chan, &event) == -EAGAIN && gn_now_ns() < until_ns;) {
		assert_int_equal(gn_chan_next(client->chan, &event), -EAGAIN);
		gn_sleep_us(1000);
	}
	assert_string_equal(gn_event_str(event.type), gn_event_str(GN_EVENT_CONNECT_REQUEST));
	assert_int_equal(gn_accept(event.req, server->qp, NULL), 0);
	expect_event(client->chan, GN_EVENT_ESTABLISHED, &event);
	return listener;
}

static void end(struct gn_listener *listener, struct side *server, struct side *client)
{
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(server);
	side_free(client);
}

/*
 * A thread that takes the device's events may have one of a qp that another thread destroys just now:
 * the first message came before the last word of the handshake, whose connection is gone.
 */
static void test_heard_while_destroyed(void **state)
{
	struct side server, client;
	struct gn_listener *listener;
	struct vrb_qp *qp;
	char at[64];

	(void)state;
	snprintf(at, sizeof(at), "verbs:%s:7500", getenv("GN_VM_ADDR"));
	listener = begin(&server, &client, at, at);
	qp = vrb_qp(server.qp);
	assert_int_equal(qp->conn.state, VRB_CONN_ACCEPTED);
	vrb_cm_fini(qp); /* as gn_qp_destroy() begins */
	vrb_cm_received_early(qp);
	vrb_cm_peer_lost(qp);
	end(listener, &server, &client);
}

static void connects(const char *at, const char *to)
{
	struct side server, client;
	struct gn_event event;
	struct gn_listener *listener = begin(&server, &client, at, to);

	expect_event(server.chan, GN_EVENT_ESTABLISHED, &event);
	end(listener, &server, &client);
}

/* Who listens at any address is reached by both families. */
static void test_any_address(void **state)
{
	const char *const any[] = {"verbs:*:7501", "verbs::7502"};
	char to[80];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const char *port = strrchr(any[i], ':') + 1;

		snprintf(to, sizeof(to), "verbs:%s:%s", getenv("GN_VM_ADDR"), port);
		connects(any[i], to);
		snprintf(to, sizeof(to), "verbs:[%s]:%s", getenv("GN_VM_ADDR6"), port);
		connects(any[i], to);
	}
}

static void be_silent(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg, (void)level, (void)line;
}

/* The port is taken for both, too, and free again when the listener is closed. */
static void test_any_address_taken(void **state)
{
	struct gn_listener *any, *other;
	struct side side;

	(void)state;
	gn_log_to(be_silent, NULL);
	side_make(&side);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(gn_listener_create(side.ctx, "verbs:*:7503", side.chan, 0, &any),
				 0);
		assert_int_equal(gn_listener_create(side.ctx, "verbs:*:7503", side.chan, 0, &other),
				 -EADDRINUSE);
		assert_int_equal(gn_listener_destroy(any), 0);
	}
	side_free(&side);
	gn_log_to(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_address),
		cmocka_unit_test(test_any_address_taken),
		cmocka_unit_test(test_heard_while_destroyed),
	};
	int rc;

	if (!getenv("GN_VM_ADDR") || !getenv("GN_VM_ADDR6")) {
		printf("1..0 # SKIP needs a guest: GN_VM_ADDR and GN_VM_ADDR6\n");
		return 77;
	}
	if (gn_fabric_open("verbs", &fabric))
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	if (gn_fabric_close(fabric))
		return 1;
	return rc;
}
