/* SPDX-License-Identifier: MIT */
/*
 * Connections. Each qp has one event for the next step of its connection. A message from the peer
 * changes the receiver's phase directly: so nothing in flight points to a qp that may be destroyed
 * before it arrives.
 *
 *     client: ASKING ──▶ WAITING ──▶ ACCEPTED ──▶ UP ──▶ LEFT ──▶ DOWN
 *                           └──▶ REJECTED ──▶ DOWN
 *     server: REPLYING ──▶ CONFIRMED ──▶ UP ──▶ LEFT ──▶ DOWN
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "fabric/sim/sim.h"

#define PORT_MAX 65535u

static void conn_step_at(struct sim_qp *qp, enum sim_phase phase, uint64_t at_ps)
{
	qp->conn.phase = phase;
	sim_event_at(sim_engine_of(qp), &qp->conn.event, at_ps);
}

/* Schedules the next step after one wire delay. */
static void conn_step_soon(struct sim_qp *qp, enum sim_phase phase)
{
	const struct sim_engine *engine = sim_engine_of(qp);

	conn_step_at(qp, phase, sim_after(engine, sim_device_of(qp)->profile->wire_ps));
}

/* "NODE:PORT"; *node is n_nodes for an unknown node. */
static int addr_parse(const struct gn_sim *sim, const char *addr, unsigned *node, unsigned *port)
{
	const char *colon = strchr(addr, ':');
	char *end;
	unsigned long n = 0;

	if (colon && colon[1] >= '0' && colon[1] <= '9') {
		n = strtoul(colon + 1, &end, 10);
		if (*end || n > PORT_MAX)
			n = 0;
	}
	if (!n)
		return gn_fail_log(-EINVAL,
				   "sim: 'sim:%s' is not sim:NODE:PORT with a port of 1 to %u",
				   addr, PORT_MAX);
	*port = (unsigned)n;
	for (*node = 0; *node < sim->n_nodes; (*node)++) {
		const char *name = sim->nodes[*node].name;
		const size_t len = (size_t)(colon - addr);

		if (strlen(name) == len && !memcmp(name, addr, len))
			break;
	}
	return 0;
}

/* Do messages reach the other node now? */
static bool conn_reaches(const struct sim_qp *qp, unsigned from, unsigned to)
{
	return !sim_fault_cut(sim_fabric_of(&qp->qp.obj)->sim, from, to);
}

/* ---- listening ---- */

static struct sim_listener *nic_find_listener(const struct sim_nic *nic, unsigned port)
{
	struct sim_listener *listener = nic ? nic->listeners : NULL;

	while (listener && listener->port != port)
		listener = listener->next;
	return listener;
}

int sim_addr_check(struct gn_fabric *fabric, const char *addr)
{
	unsigned node, port;

	return addr_parse(container_of(fabric, struct sim_fabric, fabric)->sim, addr, &node, &port);
}

int sim_listen_init(struct gn_listener *base, const char *addr)
{
	struct sim_listener *listener = container_of(base, struct sim_listener, listener);
	struct sim_fabric *fabric = sim_fabric_of(&base->obj);
	unsigned node, port;
	int rc = addr_parse(fabric->sim, addr, &node, &port);

	if (rc)
		return rc;
	if (node != fabric->nic->node->index)
		return gn_fail_log(-EADDRNOTAVAIL, "sim: 'sim:%s' is no address of node %s", addr,
				   fabric->nic->node->name);
	if (nic_find_listener(fabric->nic, port))
		return gn_fail_log(-EADDRINUSE, "sim: 'sim:%s' is taken", addr);
	listener->port = port;
	list_push(&fabric->nic->listeners, listener);
	return 0;
}

void sim_listen_unplug(struct sim_listener *listener)
{
	if (!listener->prev)
		return;
	list_remove(listener);
	listener->prev = NULL;
}

void sim_listen_fini(struct gn_listener *base)
{
	sim_listen_unplug(container_of(base, struct sim_listener, listener));
}

/* ---- client ---- */

static void conn_set_opts(struct sim_conn *conn, const struct gn_conn_opts *opts)
{
	conn->rnr_retry = opts->rnr_retry;
	conn->rnr_timer_ps = sim_ns_to_ps(opts->rnr_timer_us * 1000ull);
	conn->hello_len = opts->private_len;
	if (opts->private_len)
		memcpy(conn->hello, opts->private_data, opts->private_len);
}

static void qp_set_private(struct gn_qp *qp, const void *data, uint32_t len)
{
	qp->private_len = len;
	if (len)
		memcpy(qp->private_data, data, len);
}

static void conn_refused(struct sim_qp *qp, enum gn_event_type type, int status)
{
	sim_event_cancel(sim_engine_of(qp), &qp->conn.event); /* may be a deadline */
	qp->conn.phase = SIM_CONN_DOWN;
	sim_qp_fail(qp);
	if (type == GN_EVENT_UNREACHABLE)
		qp->qp.private_len = 0; /* no text in addition to the status */
	qp_refused(&qp->qp, type, status);
}

static uint64_t conn_deadline_ps(const struct sim_qp *qp, const struct gn_conn_opts *opts)
{
	return sim_after(sim_engine_of(qp), sim_ns_to_ps(opts->timeout_us * 1000ull));
}

int sim_connect(struct gn_qp *base, const char *addr, const struct gn_conn_opts *opts)
{
	struct sim_qp *qp = sim_qp_of(base);
	int rc = addr_parse(sim_fabric_of(&base->obj)->sim, addr, &qp->conn.node, &qp->conn.port);

	if (rc)
		return rc;
	conn_set_opts(&qp->conn, opts);
	qp->conn.deadline_ps = conn_deadline_ps(qp, opts);
	base->state = GN_QP_CONNECTING;
	conn_step_soon(qp, SIM_CONN_ASKING);
	return 0;
}

/* The request arrives at the listener's process, and its object is created there. */
static int request_arrives(struct sim_qp *qp, struct sim_listener *listener)
{
	struct gn_sim *sim = sim_fabric_of(&qp->qp.obj)->sim;
	struct sim_proc *before;
	struct gn_conn_req *base;
	struct sim_req *req;
	int rc;

	if (listener->waiting == SIM_BACKLOG)
		return -ECONNREFUSED;
	before = sim_act_for(sim, sim_fabric_of(&listener->listener.obj)->proc);
	rc = req_create(&listener->listener, &base);
	if (!rc) {
		req = container_of(base, struct sim_req, req);
		req->client = qp;
		qp->conn.req = req;
		listener->waiting++;
		base->private_len = qp->conn.hello_len;
		memcpy(base->private_data, qp->conn.hello, qp->conn.hello_len);
		req_push(base);
	}
	sim_act_for(sim, before);
	return rc;
}

static void conn_ask(struct sim_qp *qp)
{
	const struct gn_sim *sim = sim_fabric_of(&qp->qp.obj)->sim;
	const unsigned me = sim_node_of(qp)->index;
	struct sim_listener *listener;
	int rc = -ECONNREFUSED;

	if (qp->conn.node < sim->n_nodes && !sim->nodes[qp->conn.node].crashed &&
	    conn_reaches(qp, me, qp->conn.node) && conn_reaches(qp, qp->conn.node, me)) {
		listener = nic_find_listener(sim_nic_of(sim, qp->conn.node), qp->conn.port);
		if (listener)
			rc = request_arrives(qp, listener);
		if (rc) {
			conn_refused(qp, GN_EVENT_UNREACHABLE, rc);
			return;
		}
	}
	/* An unknown node, or one behind a partition, sends no reply. */
	conn_step_at(qp, SIM_CONN_WAITING, qp->conn.deadline_ps);
}

/* Unlinks client and request. */
static void request_unlink(struct sim_req *req)
{
	struct gn_listener *listener = req->req.listener;

	if (!req->client)
		return;
	req->client->conn.req = NULL;
	req->client = NULL;
	if (listener)
		container_of(listener, struct sim_listener, listener)->waiting--;
}

static void conn_timed_out(struct sim_qp *qp)
{
	if (qp->conn.req)
		request_unlink(qp->conn.req);
	conn_refused(qp, GN_EVENT_UNREACHABLE, -ETIMEDOUT);
}

static void conn_established(struct sim_qp *qp)
{
	qp->conn.phase = SIM_CONN_UP;
	qp->conn.established = true;
	if (qp->qp.state != GN_QP_ERROR)
		qp->qp.state = GN_QP_READY;
	qp_established(&qp->qp);
	sim_stage_kick(qp, SIM_RX); /* requests posted while the reply was in flight */
}

/* ---- server ---- */

int sim_accept(struct gn_conn_req *base, struct gn_qp *server, const struct gn_conn_opts *opts)
{
	struct sim_req *req = container_of(base, struct sim_req, req);
	struct sim_qp *client = req->client, *qp = sim_qp_of(server);

	if (!client) {
		gn_log(GN_LOG_WARN, "sim: accepted a request whose client has given up");
		return -ECONNABORTED;
	}
	request_unlink(req);
	conn_set_opts(&qp->conn, opts);
	server->state = GN_QP_READY;
	conn_step_at(qp, SIM_CONN_REPLYING, conn_deadline_ps(qp, opts));
	if (!conn_reaches(qp, sim_node_of(qp)->index, sim_node_of(client)->index))
		return 0; /* both sides will time out */
	qp->conn.peer = client;
	client->conn.peer = qp;
	qp_set_private(&client->qp, qp->conn.hello, qp->conn.hello_len);
	conn_step_soon(client, SIM_CONN_ACCEPTED);
	return 0;
}

int sim_reject(struct gn_conn_req *base, const void *private_data, uint32_t private_len)
{
	struct sim_req *req = container_of(base, struct sim_req, req);
	struct sim_qp *client = req->client;

	if (!client)
		return 0;
	request_unlink(req);
	if (!conn_reaches(client, sim_fabric_of(&base->obj)->nic->node->index,
			  sim_node_of(client)->index))
		return 0;
	qp_set_private(&client->qp, private_data, private_len);
	conn_step_soon(client, SIM_CONN_REJECTED);
	return 0;
}

void sim_req_unplug(struct sim_req *req)
{
	struct sim_qp *client = req->client;

	if (!client)
		return;
	request_unlink(req);
	if (!sim_fabric_of(&req->req.obj)->nic->node->crashed)
		conn_refused(client, GN_EVENT_UNREACHABLE, -ECONNREFUSED);
}

/* ---- disconnects and steps ---- */

void sim_conn_leave(struct sim_qp *qp)
{
	struct sim_qp *peer = qp->conn.peer;

	if (qp->conn.req)
		request_unlink(qp->conn.req);
	if (peer) {
		sim_orphans_leave(qp);
		peer->conn.peer = NULL;
		qp->conn.peer = NULL;
		/* A crashed node sends nothing; a partition drops messages. */
		if (!sim_node_of(qp)->crashed &&
		    conn_reaches(qp, sim_node_of(qp)->index, sim_node_of(peer)->index))
			conn_step_soon(peer, SIM_CONN_LEFT);
	}
	sim_event_cancel(sim_engine_of(qp), &qp->conn.event);
	qp->conn.phase = SIM_CONN_DOWN;
}

int sim_disconnect(struct gn_qp *base)
{
	struct sim_qp *qp = sim_qp_of(base);

	if (qp->conn.phase == SIM_CONN_DOWN)
		return 0;
	sim_conn_leave(qp);
	if (qp->conn.established) {
		sim_qp_fail(qp);
		qp_disconnected(base);
	} else {
		conn_refused(qp, GN_EVENT_UNREACHABLE, -ECANCELED);
	}
	return 0;
}

static void conn_peer_left(struct sim_qp *qp)
{
	if (!qp->conn.established) {
		conn_refused(qp, GN_EVENT_UNREACHABLE, -ECONNRESET);
		return;
	}
	qp->conn.phase = SIM_CONN_DOWN;
	sim_qp_fail_answered(qp); /* its responses arrived before this */
	qp_disconnected(&qp->qp);
}

/* The server learns that its ACCEPT has arrived, if it exists and is reachable. */
static void conn_confirm(struct sim_qp *qp)
{
	struct gn_sim *sim = sim_fabric_of(&qp->qp.obj)->sim;
	struct sim_qp *peer = qp->conn.peer;

	if (!peer || peer->conn.phase != SIM_CONN_REPLYING ||
	    !conn_reaches(qp, sim_node_of(qp)->index, sim_node_of(peer)->index))
		return;
	if (sim_fault(sim, SIM_LATE_ESTABLISHED, sim_node_of(peer)->index))
		conn_step_at(peer, SIM_CONN_CONFIRMED,
			     sim_after(&sim->engine, sim_device_of(qp)->profile->wire_ps +
							     sim_fault_delay_ps(sim)));
	else
		conn_step_soon(peer, SIM_CONN_CONFIRMED);
}

void sim_conn_step(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, conn.event);

	switch (qp->conn.phase) {
	case SIM_CONN_ASKING:
		conn_ask(qp);
		break;
	case SIM_CONN_WAITING:
		conn_timed_out(qp);
		break;
	case SIM_CONN_ACCEPTED:
		conn_established(qp);
		conn_confirm(qp);
		break;
	case SIM_CONN_CONFIRMED:
		conn_established(qp);
		break;
	case SIM_CONN_REPLYING:
		sim_conn_leave(qp);
		conn_refused(qp, GN_EVENT_UNREACHABLE, -ETIMEDOUT);
		break;
	case SIM_CONN_REJECTED:
		conn_refused(qp, GN_EVENT_REJECTED, -ECONNREFUSED);
		break;
	case SIM_CONN_LEFT:
		conn_peer_left(qp);
		break;
	case SIM_CONN_NONE:
	case SIM_CONN_UP:
	case SIM_CONN_DOWN:
		assert(false && "a step of a connection that takes none");
	}
}
