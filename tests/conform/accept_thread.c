/* SPDX-License-Identifier: MIT */
/*
 * Cases 79 and 80: connections that are accepted and destroyed by other threads than the owner of
 * their cq and channel. Side A is the owner; threads of A accept and destroy. B is the clients.
 */
#include <errno.h>
#include <string.h>

#include "conform.h"

#define PORT		 7u
#define CONNS		 60u /* connections of a round */
#define RECVS	   3u
#define MSG_BYTES  16u
#define QUEUE	   64u
#define ECHO_ID	   99u
#define SHORT_TIMEOUT_US 5000u /* of a client that gives up early */
#define LONG_TIMEOUT_US	 30000000u

/* How the owner waits for completions and events. */
enum waiting { POLLING, WAITING, ARMED };

static const struct cf_round {
	enum waiting waiting;
	bool own_cq_chan; /* the cq has a channel of its own */
} rounds[] = {
	{POLLING, false}, {WAITING, false}, {ARMED, false}, {WAITING, true}, {ARMED, true},
};

#define ROUNDS (sizeof(rounds) / sizeof(*rounds))

/* The outcome of a connect in case 80, chosen by the client. LATE: its time-out may be over. */
enum outcome { REJECTED = 1, LATE, NOT_ACCEPTED, LAST };

/* One connection at the server: the acceptor's until gn_accept(), then the owner's. */
struct conn {
	struct gn_qp *qp;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	unsigned established, got, flushed, disconnected;
	bool detached;
	bool accepted; /* atomic */
};

struct server {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_cq *cq;
	struct gn_chan *chan, *cq_chan, *listen_chan;
	struct gn_queue *detached; /* from the owner to the cleaner */
	struct gn_thread *acceptor, *cleaner;
	struct conn conns[CONNS];
	unsigned n_conns;
	bool not_accepted; /* case 80 */
	unsigned n_detached;
	bool acceptor_done; /* atomic */
	bool stop;	    /* atomic: the cleaner's end */
	uint64_t deadline_ns;
	int acceptor_rc, cleaner_rc; /* once they have ended */
};

/* ---- threads of A's ---- */

/* All objects of a connection, as a server would create them. */
static int conn_make(struct server *server, struct conn *conn)
{
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = GN_QP_RC,
				  .send_cq = server->cq,
				  .recv_cq = server->cq,
				  .chan = server->chan,
				  .max_recv_wr = RECVS,
				  .user = conn};
	struct gn_sge sge = {.len_bytes = MSG_BYTES};
	struct gn_recv_wr wr = {.sge = &sge, .n_sge = 1};
	int rc = gn_pd_create(server->ctx, &conn->pd);

	rc = rc ?: gn_mem_alloc(server->fabric, GN_PAGE, GN_REMOTE_WRITE, &conn->mem);
	rc = rc	   ?:
		     gn_mr_register(conn->pd, conn->mem, 0, GN_PAGE,
				    GN_LOCAL_WRITE | GN_REMOTE_WRITE, &conn->mr);
	rc = rc ?: gn_qp_create(conn->pd, &opts, &conn->qp);
	if (rc)
		return rc;
	sge.addr = gn_mr_addr(conn->mr);
	sge.lkey = gn_mr_lkey(conn->mr);
	for (; wr.id < RECVS && !rc; wr.id++)
		rc = gn_post_recv(conn->qp, &wr, NULL);
	return rc;
}

static int conn_destroy(struct conn *conn)
{
	int rc, first = 0;

	while ((rc = gn_qp_destroy_try(conn->qp)) == -EAGAIN)
		gn_yield();
	first = rc;
	rc = gn_mr_deregister(conn->mr);
	first = first ?: rc;
	rc = gn_mem_free(conn->mem);
	first = first ?: rc;
	rc = gn_pd_destroy(conn->pd);
	return first ?: rc;
}

static int conn_accept(struct server *server, struct gn_conn_req *req, struct conn *conn)
{
	struct gn_conn_opts opts = {.size = sizeof(opts), .private_len = sizeof(struct gn_remote)};
	struct gn_remote remote;
	int rc = conn_make(server, conn);

	rc = rc ?: gn_mr_remote(conn->mr, &remote);
	if (rc) {
		gn_reject(req, NULL, 0);
		return rc;
	}
	opts.private_data = &remote;
	return gn_accept(req, conn->qp, &opts);
}

/* The owner sees nothing of a qp that was not accepted. */
static int conn_not_accepted(struct server *server, struct gn_conn_req *req, struct conn *conn,
			     enum outcome outcome)
{
	int rc;

	if (outcome == REJECTED)
		return gn_reject(req, NULL, 0);
	if (outcome == NOT_ACCEPTED) {
		rc = conn_make(server, conn);
		rc = rc ?: conn_destroy(conn);
		return gn_reject(req, NULL, 0) ?: rc;
	}
	gn_sleep_us(2 * SHORT_TIMEOUT_US); /* the client's time-out is over, or nearly */
	rc = conn_accept(server, req, conn);
	if (rc)
		return conn_destroy(conn);
	__atomic_store_n(&conn->accepted, true, __ATOMIC_RELEASE);
	return 0;
}

/* Accepts as many requests as there are connections. */
static void acceptor_main(void *arg)
{
	struct server *server = arg;
	struct gn_event ev;
	int rc = 0;

	for (unsigned i = 0; i < server->n_conns && !rc;) {
		rc = gn_chan_wait(server->listen_chan, server->deadline_ns, &ev);
		if (rc == -EINTR) {
			rc = 0;
			continue;
		}
		if (!rc && ev.type != GN_EVENT_CONNECT_REQUEST)
			rc = -EPROTO;
		if (!rc && server->not_accepted && ev.private_data[0] == LAST) {
			rc = gn_reject(ev.req, NULL, 0);
			break;
		}
		if (!rc && server->not_accepted)
			rc = conn_not_accepted(server, ev.req, &server->conns[i],
					       (enum outcome)ev.private_data[0]);
		else if (!rc)
			rc = conn_accept(server, ev.req, &server->conns[i]);
		i++;
	}
	server->acceptor_rc = rc;
	__atomic_store_n(&server->acceptor_done, true, __ATOMIC_RELEASE);
}

static void cleaner_main(void *arg)
{
	struct server *server = arg;
	struct gn_wait_item item = gn_wait_on(gn_queue_source(server->detached));

	for (;;) {
		const bool stop = __atomic_load_n(&server->stop, __ATOMIC_ACQUIRE);
		struct conn *conn = gn_queue_pop(server->detached);
		int rc;

		if (!conn && stop)
			return;
		if (!conn) {
			gn_wait(&item, 1, gn_deadline_us(1000), "a detached connection");
			continue;
		}
		rc = conn_destroy(conn);
		server->cleaner_rc = server->cleaner_rc ?: rc;
	}
}

/* ---- the owner ---- */

static bool take_completion(struct cf *cf, struct server *server, const struct gn_wc *wc)
{
	struct conn *conn = gn_qp_user(wc->qp);
	struct gn_sge sge;
	struct gn_wr wr;

	CHECK(conn >= server->conns && conn < server->conns + CONNS && conn->qp == wc->qp,
	      "a completion of no connection");
	CHECK(!conn->detached, "a completion of a qp that was detached");
	if (wc->id == ECHO_ID)
		return true; /* flushed: the client has disconnected */
	if (wc->status != GN_WC_OK) {
		CHECK(wc->status == GN_WC_FLUSHED, "%s", gn_wc_status_str(wc->status));
		conn->flushed++;
	} else {
		CHECK_INT(wc->op, GN_OP_RECV_WRITE_IMM);
		conn->got++;
		sge = (struct gn_sge){gn_mr_addr(conn->mr), MSG_BYTES, gn_mr_lkey(conn->mr)};
		gn_wr_send(&wr, ECHO_ID, &sge, 0);
		CHECK_INT(gn_post_send(conn->qp, &wr, NULL), 0);
	}
	CHECK(conn->got + conn->flushed <= RECVS, "%u completions of %u receives",
	      conn->got + conn->flushed, RECVS);
	return true;
}

static bool take_event(struct cf *cf, struct server *server, const struct gn_event *ev)
{
	struct conn *conn;

	if (ev->type == GN_EVENT_CQ)
		return true;
	conn = ev->qp ? gn_qp_user(ev->qp) : NULL;
	CHECK(conn >= server->conns && conn < server->conns + CONNS && conn->qp == ev->qp,
	      "%s of no connection", gn_event_str(ev->type));
	CHECK(!conn->detached, "%s of a qp that was detached", gn_event_str(ev->type));
	if (ev->type == GN_EVENT_ESTABLISHED)
		conn->established++;
	else if (ev->type == GN_EVENT_DISCONNECTED ||
		 (ev->type == GN_EVENT_UNREACHABLE && server->not_accepted))
		conn->disconnected++;
	else
		CHECK(false, "%s", gn_event_str(ev->type));
	CHECK(conn->established == (ev->type != GN_EVENT_UNREACHABLE) && conn->disconnected <= 1,
	      "%s: %u ESTABLISHED, %u ends", gn_event_str(ev->type), conn->established,
	      conn->disconnected);
	return true;
}

/* Detaches connections without more completions and events; another thread destroys them. */
static bool detach_finished(struct cf *cf, struct server *server)
{
	for (struct conn *conn = server->conns; conn < server->conns + server->n_conns; conn++) {
		if (conn->detached || !conn->disconnected || conn->got + conn->flushed < RECVS)
			continue;
		CHECK(server->not_accepted || conn->got == 1,
		      "%u messages of a client that sent one", conn->got);
		conn->detached = true;
		server->n_detached++;
		CHECK_INT(gn_qp_detach(conn->qp), 0);
		CHECK_INT(gn_queue_push(server->detached, conn), 0);
	}
	return true;
}

static bool take_all(struct cf *cf, struct server *server, bool *any)
{
	struct gn_chan *const chans[] = {server->chan, server->cq_chan};
	struct gn_event ev;
	struct gn_wc wc[4];
	int n, rc = 0;

	*any = false;
	while ((n = gn_cq_poll(server->cq, wc, 4)) > 0) {
		*any = true;
		for (int i = 0; i < n; i++)
			CHECK(take_completion(cf, server, &wc[i]));
	}
	CHECK_INT(n, 0);
	for (unsigned i = 0; i < (chans[0] == chans[1] ? 1u : 2u); i++) {
		while (!(rc = gn_chan_next(chans[i], &ev))) {
			*any = true;
			CHECK(take_event(cf, server, &ev));
		}
		CHECK_INT(rc, -EAGAIN);
	}
	return detach_finished(cf, server);
}

/* The clients wait for the owner meanwhile: only completions and events wake it. */
static bool sleep_once(struct cf *cf, struct server *server, enum waiting waiting)
{
	struct gn_wait_item items[2] = {gn_wait_on(gn_chan_source(server->chan)),
					gn_wait_on(gn_cq_source(server->cq))};
	bool any;
	int rc;

	if (waiting == POLLING) {
		gn_yield();
		return true;
	}
	if (waiting == ARMED) {
		items[1] = gn_wait_on(gn_chan_source(server->cq_chan));
		CHECK_INT(gn_cq_arm(server->cq, false), 0);
		CHECK(take_all(cf, server, &any));
		if (any || server->n_detached == server->n_conns)
			return true;
	}
	rc = gn_wait(items, 2, cf_deadline(cf), "a connection");
	CHECK(rc >= 0 || rc == -EINTR, "nothing wakes the owner: %s", gn_strerror(rc));
	return true;
}

static bool serve(struct cf *cf, struct server *server, enum waiting waiting)
{
	bool any;

	while (server->n_detached < server->n_conns) {
		CHECK(gn_now_ns() < server->deadline_ns, "%u of %u connections have ended",
		      server->n_detached, server->n_conns);
		CHECK(take_all(cf, server, &any));
		if (!any && server->n_detached < server->n_conns)
			CHECK(sleep_once(cf, server, waiting));
	}
	return true;
}

/* Until all accepted connections have ended. */
static bool serve_not_accepted(struct cf *cf, struct server *server)
{
	unsigned accepted = 0, i = 0;
	bool any;

	while (!__atomic_load_n(&server->acceptor_done, __ATOMIC_ACQUIRE) ||
	       server->n_detached < accepted) {
		CHECK(gn_now_ns() < server->deadline_ns, "%u of %u connections have ended",
		      server->n_detached, accepted);
		CHECK(take_all(cf, server, &any));
		if (__atomic_load_n(&server->acceptor_done, __ATOMIC_ACQUIRE))
			for (; i < server->n_conns; i++)
				accepted += server->conns[i].accepted;
		if (!any)
			gn_yield();
	}
	return cf_expect_none(cf, server->cq);
}

/* The threads must end before the server is freed, even if a check failed. */
static bool server_join_threads(struct cf *cf, struct server *server)
{
	int rc = server->acceptor ? gn_thread_join(server->acceptor) : 0;

	__atomic_store_n(&server->stop, true, __ATOMIC_RELEASE);
	rc = (server->cleaner ? gn_thread_join(server->cleaner) : 0) ?: rc;
	gn_queue_destroy(server->detached);
	CHECK_INT(rc, 0);
	CHECK_INT(server->acceptor_rc, 0);
	CHECK_INT(server->cleaner_rc, 0);
	return true;
}

static bool server_open(struct cf *cf, struct server *server, unsigned number, bool own_cq_chan)
{
	char addr[CF_ADDR_MAX];

	*server = (struct server){
		.fabric = cf->fabric, .ctx = cf->ctx, .deadline_ns = cf_deadline(cf)};
	CHECK((server->chan = server->cq_chan = cf_make_chan(cf)));
	if (own_cq_chan)
		CHECK((server->cq_chan = cf_make_chan(cf)));
	CHECK((server->listen_chan = cf_make_chan(cf)));
	CHECK((server->cq = cf_make_cq(cf, CONNS * (RECVS + 2), server->cq_chan)));
	CHECK(cf_make_listener(cf, cf_addr(cf, CF_A, PORT + number, addr), server->listen_chan));
	return true;
}

/* ---- 79: accepted and destroyed by others; 80: not accepted ---- */

static bool round_a(struct cf *cf, unsigned number, bool not_accepted)
{
	struct server *server = gn_alloc(sizeof(*server), 0);
	bool ok;

	CHECK(server, "no memory");
	ok = server_open(cf, server, number, rounds[number].own_cq_chan);
	if (ok) {
		server->n_conns = not_accepted ? CONNS : (unsigned)cf_count(cf, CONNS);
		server->not_accepted = not_accepted;
		ok = !gn_queue_create(QUEUE, &server->detached) &&
		     !gn_thread_start("cleaner", cleaner_main, server, &server->cleaner) &&
		     !gn_thread_start("acceptor", acceptor_main, server, &server->acceptor);
		ok = ok && cf_sync(cf) &&
		     (not_accepted ? serve_not_accepted(cf, server) :
				     serve(cf, server, rounds[number].waiting));
		ok = server_join_threads(cf, server) && ok;
	}
	gn_free(server);
	return ok && cf_sync(cf);
}

struct client {
	struct gn_qp *qp;
	struct gn_cq *cq;
	struct gn_mr *mr;
	char addr[CF_ADDR_MAX];
};

static bool client_init(struct cf *cf, struct client *client, unsigned number)
{
	struct gn_mem *mem;

	CHECK((client->cq = cf_make_cq(cf, 64, cf->chan)));
	CHECK((mem = cf_make_mem(cf, GN_PAGE, 0)));
	CHECK((client->mr = cf_make_mr(cf, cf->pd, mem, GN_LOCAL_WRITE)));
	cf_addr(cf, CF_A, PORT + number, client->addr);
	return cf_sync(cf);
}

static bool client_make_qp(struct cf *cf, struct client *client)
{
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = GN_QP_RC,
				  .send_cq = client->cq,
				  .recv_cq = client->cq,
				  .chan = cf->chan};

	CHECK((client->qp = cf_make_qp(cf, cf->pd, &opts)));
	return true;
}

/* One connection: a message, the answer, and a disconnect or destroy. */
static bool client_connect_once(struct cf *cf, struct client *client, bool disconnects)
{
	const struct gn_conn_opts patient = {.size = sizeof(patient),
					     .timeout_us = LONG_TIMEOUT_US};
	struct gn_sge sge = {gn_mr_addr(client->mr), MSG_BYTES, gn_mr_lkey(client->mr)};
	struct gn_recv_wr recv = {.id = 1, .sge = &sge, .n_sge = 1};
	struct gn_remote remote;
	struct gn_event ev;
	struct gn_wc wc;
	struct gn_wr wr;

	CHECK(client_make_qp(cf, client));
	CHECK_INT(gn_post_recv(client->qp, &recv, NULL), 0);
	CHECK_INT(gn_connect_wait(client->qp, client->addr, &patient, &ev), 0);
	memcpy(&remote, ev.private_data, sizeof(remote));
	gn_wr_rdma(&wr, GN_OP_WRITE_IMM, 2, &sge, &remote, 0, GN_SIGNALED);
	CHECK(cf_post(cf, client->qp, &wr));
	for (unsigned i = 0; i < 2; i++) {
		CHECK(cf_poll_one(cf, client->cq, &wc));
		CHECK(wc.status == GN_WC_OK, "%s", gn_wc_status_str(wc.status));
	}
	if (disconnects) {
		CHECK_INT(gn_disconnect(client->qp), 0);
		CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_DISCONNECTED, NULL));
	}
	return cf_destroy(cf, client->qp);
}

static bool other_thread_a(struct cf *cf)
{
	for (unsigned i = 0; i < ROUNDS; i++)
		CHECK(round_a(cf, i, false));
	return true;
}

static bool other_thread_b(struct cf *cf)
{
	struct client client;

	for (unsigned i = 0; i < ROUNDS; i++) {
		CHECK(client_init(cf, &client, i));
		for (unsigned k = 0; k < cf_count(cf, CONNS); k++)
			CHECK(client_connect_once(cf, &client, k % 2));
		CHECK(cf_sync(cf));
	}
	return true;
}

static bool not_accepted_a(struct cf *cf)
{
	return round_a(cf, 0, true);
}

static bool not_accepted_b(struct cf *cf)
{
	const unsigned clients = (unsigned)cf_count(cf, CONNS);
	struct client client;

	CHECK(client_init(cf, &client, 0));
	for (unsigned k = 1; k <= clients; k++) {
		const uint8_t outcome = k == clients ? LAST : (uint8_t)(REJECTED + k % 3);
		const struct gn_conn_opts opts = {
			.size = sizeof(opts),
			.private_data = &outcome,
			.private_len = 1,
			.timeout_us = outcome == LATE ? SHORT_TIMEOUT_US : LONG_TIMEOUT_US,
		};
		struct gn_event ev;
		int rc;

		CHECK(client_make_qp(cf, &client));
		rc = gn_connect_wait(client.qp, client.addr, &opts, &ev);
		if (outcome != LATE)
			CHECK(rc == -ECONNREFUSED && ev.type == GN_EVENT_REJECTED, "%s",
			      gn_strerror(rc));
		CHECK(cf_destroy(cf, client.qp));
	}
	return cf_sync(cf);
}

const struct cf_case cf_cases_beside[] = {
	{79, "accepted and destroyed by other threads", other_thread_a, other_thread_b, 0, 0},
	{80, "another thread's qp that is not accepted", not_accepted_a, not_accepted_b, 0, 0},
	{0},
};
