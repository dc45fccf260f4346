/* SPDX-License-Identifier: MIT */
/* A connection between two qps: shared areas, the peer's memory, the control socket, closing. */
#include "base/fail.h"
#include "fabric/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RQ_SIZE_MIN  16u
#define RQ_SIZE_MAX  16384u
#define MEMS_MIN     16u
#define MEMS_MAX     65536u
#define MEM_TOMB     UINT64_MAX
#define PUMP_MAX     64	   /* messages and mems of one socket per call */
#define CATCH_UP_MAX 65536 /* batches: more than the longest message needs */

void shm_conn_init(struct shm_conn *c)
{
	*c = (struct shm_conn){
		.sock.fd = -1, .timer.fd = -1, .hello_area_fd = -1, .served.sock = -1};
}

static uint32_t conn_rq_size(const struct shm_qp *qp)
{
	uint32_t size = RQ_SIZE_MIN;

	while (size < qp->qp.max_recv_wr)
		size *= 2;
	return size;
}

/* Publishes the receives that were posted before the connection existed. */
static void conn_publish_recvs(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;

	for (uint64_t at = qp->rq.tail; at != qp->rq.head; at++)
		shm_conn_publish_recv(c, at, qp->rq.len_bytes[at & qp->rq.mask]);
	__atomic_store_n(&c->own_area->credit.posted, qp->rq.head, __ATOMIC_RELEASE);
}

int shm_conn_create_area(struct shm_qp *qp, int *area_fd)
{
	struct shm_conn *c = &qp->conn;
	const uint32_t rq_size = conn_rq_size(qp);
	int rc = shm_map_create("gannet-conn", area_bytes(rq_size), false, true, &c->own_map,
				area_fd);

	if (rc)
		return gn_fail_log(rc, "shm: cannot create a connection's memory: %s",
				   gn_strerror(rc));
	c->own_area = (struct area *)(void *)c->own_map->addr;
	c->own_rq_size = rq_size;
	c->own_sizes = (uint32_t *)(void *)c->own_area->rest;
	c->tx_slots = (struct slot *)(void *)(c->own_map->addr + area_slots_at(rq_size));
	c->tx_data = c->own_map->addr + area_data_at(rq_size);
	c->own_area->conn_state.recv_floor = UINT32_MAX;
	c->own_area->conn_state.mems = UINT64_MAX; /* until shm_conn_join() */
	conn_publish_recvs(qp);
	c->mems = gn_alloc(MEMS_MIN * sizeof(*c->mems), 0);
	c->mems_mask = MEMS_MIN - 1;
	return c->mems ? 0 : -ENOMEM;
}

/* Maps an fd of the peer, and charges it to the peer's quota. */
static int conn_map_charged(struct shm_qp *qp, int fd, uint64_t size, bool writable,
			    struct shm_map **out)
{
	int rc = shm_quota_take(qp, size);

	if (rc)
		return rc;
	rc = shm_map_peer(fd, size, writable, qp->conn.peer_kind, out);
	if (rc)
		shm_quota_give(qp, size);
	return rc;
}

int shm_conn_map(struct shm_qp *qp, int fd, uint64_t size, struct shm_map **out)
{
	return conn_map_charged(qp, fd, size, false, out);
}

static int conn_map_peer(struct shm_qp *qp, uint32_t rq_size, int area_fd, int grants_fd)
{
	struct shm_conn *c = &qp->conn;
	int rc;

	if (rq_size < RQ_SIZE_MIN || rq_size > RQ_SIZE_MAX || rq_size & (rq_size - 1))
		return -EPROTO;
	rc = conn_map_charged(qp, area_fd, area_bytes(rq_size), false, &c->peer_map);
	if (rc)
		return rc;
	rc = conn_map_charged(qp, grants_fd, SOFT_KEYS * sizeof(struct grant), false,
			      &c->grants_map);
	if (rc)
		return rc;
	/* Pairs with the acquire in peer_quiesced(), which may run in another thread. */
	__atomic_store_n(&c->peer, (const struct area *)(const void *)c->peer_map->addr,
			 __ATOMIC_RELEASE);
	c->peer_rq_size = rq_size;
	c->grants = (const struct grant *)(const void *)c->grants_map->addr;
	c->peer_sizes = (const uint32_t *)(const void *)c->peer->rest;
	c->rx_slots =
		(const struct slot *)(const void *)(c->peer_map->addr + area_slots_at(rq_size));
	c->rx_data = c->peer_map->addr + area_data_at(rq_size);
	c->slots_free_to = SHM_SLOTS;
	c->data_free_to = SHM_DATA;
	return 0;
}

int shm_conn_watch(struct shm_qp *qp)
{
	struct gn_cq *const cqs[] = {qp->qp.recv_cq, qp->qp.send_cq};
	/* While connecting, the channel already watches the socket. */
	int rc = qp->conn.watched ? 0 : chan_fds_add(qp->qp.chan, &qp->conn.sock);

	qp->conn.watched = true; /* possibly in part */
	for (int i = 0; i < 2 && !rc; i++) {
		if (i && cqs[1] == cqs[0])
			break;
		rc = shm_cq_watch((struct shm_cq *)cqs[i], &qp->conn.sock);
		if (!rc && cqs[i]->chan && cqs[i]->chan != qp->qp.chan &&
		    !(i && cqs[1]->chan == cqs[0]->chan))
			rc = chan_fds_add(cqs[i]->chan, &qp->conn.sock);
	}
	return rc;
}

static void conn_unwatch(struct shm_qp *qp)
{
	struct gn_cq *const cqs[] = {qp->qp.recv_cq, qp->qp.send_cq};

	if (!qp->conn.watched)
		return;
	qp->conn.watched = false;
	chan_fds_del(qp->qp.chan, &qp->conn.sock);
	for (int i = 0; i < 2; i++) {
		shm_cq_unwatch((struct shm_cq *)cqs[i], &qp->conn.sock);
		if (cqs[i]->chan)
			chan_fds_del(cqs[i]->chan, &qp->conn.sock);
	}
}

/*
 * Polls all messages. A wake-up answers one arming, but need not bring a completion: while the cq
 * is still armed, arm the peer again and poll once more.
 */
void shm_conn_catch_up(struct shm_qp *qp)
{
	struct shm_cq *cq = (struct shm_cq *)qp->qp.recv_cq;
	bool told = false;

	for (uint32_t i = 0; qp->rx_recv.cq; i++) {
		if (qp->rx_recv.progress(&qp->rx_recv)) {
			told = false;
			if (i < CATCH_UP_MAX)
				continue;
			gn_log(GN_LOG_WARN,
			       "shm: a peer's message does not end; closing its connection");
			shm_qp_fail(qp);
		}
		if (told || !qp->rx_recv.cq || cq->soft.armed == SOFT_UNARMED)
			break;
		cq->arm_generation += 4;
		shm_conn_arm(qp);
		told = true;
	}
	if (qp->rx_send.cq) {
		qp->rx_send.progress(&qp->rx_send);
		if (qp->rx_send.cq && ((struct shm_cq *)qp->qp.send_cq)->soft.armed != SOFT_UNARMED)
			shm_conn_await_credit(qp);
	}
}

void shm_conn_arm(struct shm_qp *qp)
{
	__atomic_store_n(&qp->conn.own_area->conn_state.armed,
			 shm_cq_armed((struct shm_cq *)qp->qp.recv_cq), __ATOMIC_RELAXED);
	/*
	 * Pairs with the fence in tx_wake_receiver(): the sender sees us armed, or our next poll
	 * sees the message.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void shm_conn_await_credit(struct shm_qp *qp)
{
	qp->conn.tx_waits += 2;
	__atomic_store_n(&qp->conn.own_area->conn_state.tx_waiting, qp->conn.tx_waits | 1,
			 __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

int shm_conn_identify(struct shm_qp *qp)
{
	uid_t uid;

	qp->conn.peer_kind = wire_peer(qp->conn.sock.fd, &uid);
	return shm_quota_join(qp, uid);
}

int shm_conn_join(struct shm_qp *qp)
{
	wire_max_sndbuf(qp->conn.sock.fd);
	return shm_grant_join(qp);
}

int shm_conn_attach_peer(struct shm_qp *qp, uint32_t rq_size, int area_fd, int grants_fd)
{
	return conn_map_peer(qp, rq_size, area_fd, grants_fd);
}

void shm_conn_ready(struct shm_qp *qp)
{
	qp->conn.phase = CONN_UP;
	qp->qp.state = GN_QP_READY;
}

void shm_conn_start(struct shm_qp *qp)
{
	shm_rx_add(&qp->rx_recv, (struct shm_cq *)qp->qp.recv_cq, shm_progress_recvs);
	/* The cq may have been armed before the peer was attached. */
	shm_conn_arm(qp);
	shm_conn_catch_up(qp);
}

/* On failure the connection breaks: the acceptor has already sent ACCEPT. */
void shm_conn_admit(struct shm_qp *qp)
{
	int rc;

	qp->incoming = false;
	shm_qp_join(qp);
	rc = shm_conn_watch(qp);
	if (qp->qp.send_cq->overrun || qp->qp.recv_cq->overrun)
		shm_qp_fail(qp);
	shm_conn_start(qp);
	if (rc)
		shm_conn_disconnected(qp);
}

static void conn_stop_timer(struct shm_qp *qp)
{
	if (qp->conn.timer.fd < 0)
		return;
	chan_fds_del(qp->qp.chan, &qp->conn.timer);
	close(qp->conn.timer.fd);
	qp->conn.timer.fd = -1;
}

void shm_conn_detach(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;

	if (c->own_area)
		__atomic_store_n(&c->own_area->conn_state.state, AREA_CLOSED, __ATOMIC_RELEASE);
	shm_rx_del(&qp->rx_recv);
	shm_rx_del(&qp->rx_send);
	conn_stop_timer(qp);
	conn_unwatch(qp);
	/* Shuts down our half only: the peer's close must still be detected. */
	if (c->sock.fd >= 0)
		shutdown(c->sock.fd, SHUT_WR);
}

int shm_conn_close(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	struct shm_conn *c = &qp->conn;
	bool quiet = true;

	gn_mutex_lock(&fabric->grant_lock);
	if (qp->prev_conn) { /* otherwise the peer was never granted anything */
		if (!c->ending.revocation)
			shm_revoke(fabric, &c->ending);
		quiet = shm_peers_quiesced(fabric, NULL, qp, &c->ending);
	}
	gn_mutex_unlock(&fabric->grant_lock);
	return quiet ? 0 : -EAGAIN;
}

void shm_conn_fini(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;

	if (c->own_area)
		__atomic_store_n(&c->own_area->conn_state.state, AREA_CLOSED, __ATOMIC_RELEASE);
	shm_grant_leave(qp);
	shm_serve_withdraw(qp);
	shm_rx_del(&qp->rx_recv);
	shm_rx_del(&qp->rx_send);
	conn_stop_timer(qp);
	if (c->sock.fd >= 0) {
		conn_unwatch(qp);
		shm_close_sock(c->sock.fd);
	}
	for (uint32_t i = 0; c->mems && i <= c->mems_mask; i++)
		shm_map_put(c->mems[i].map);
	gn_free(c->mems);
	gn_free(c->sent);
	shm_served_fini(&c->served);
	shm_map_put(c->own_map);
	shm_map_put(c->peer_map);
	shm_map_put(c->grants_map);
	shm_quota_leave(qp);
	if (c->hello_area_fd >= 0)
		close(c->hello_area_fd);
	shm_conn_init(c);
	c->phase = CONN_DOWN;
}

/* ---- the peer's memory ---- */

static struct peer_mem *peer_mem_slot(struct peer_mem *mems, uint32_t mask, uint64_t id)
{
	uint32_t at = (uint32_t)id & mask;

	while (mems[at].id && mems[at].id != id)
		at = (at + 1) & mask;
	return &mems[at];
}

const struct peer_mem *shm_peer_mem(const struct shm_conn *c, uint64_t id)
{
	const struct peer_mem *m;

	if (unlikely(!id || id == MEM_TOMB))
		return NULL;
	m = peer_mem_slot(c->mems, c->mems_mask, id);
	return m->id ? m : NULL;
}

/* Keeps the table at most half full of entries and tombstones, so that a look-up ends. */
static int peer_mems_reserve(struct shm_conn *c)
{
	const uint32_t size = c->mems_mask + 1;
	uint32_t live = 0, new_size;
	struct peer_mem *mems;

	if (c->n_mems < size / 2)
		return 0;
	for (uint32_t i = 0; i < size; i++)
		live += c->mems[i].map != NULL;
	new_size = live < size / 4 ? size : size * 2;
	if (new_size > MEMS_MAX)
		return -ENOSPC;
	mems = gn_alloc(new_size * sizeof(*mems), 0);
	if (!mems)
		return -ENOMEM;
	for (uint32_t i = 0; i < size; i++)
		if (c->mems[i].map)
			*peer_mem_slot(mems, new_size - 1, c->mems[i].id) = c->mems[i];
	gn_free(c->mems);
	c->mems = mems;
	c->mems_mask = new_size - 1;
	c->n_mems = live;
	return 0;
}

static int peer_mem_add(struct shm_qp *qp, const struct wire_mem *msg, int fd)
{
	struct shm_conn *c = &qp->conn;
	struct peer_mem *m;
	int rc = fd < 0 || !msg->id || msg->id == MEM_TOMB ? -EPROTO : peer_mems_reserve(c);

	if (rc)
		return rc;
	m = peer_mem_slot(c->mems, c->mems_mask, msg->id);
	if (m->id)
		return -EPROTO;
	rc = conn_map_charged(qp, fd, msg->size, msg->writable, &m->map);
	if (rc)
		return rc;
	m->id = msg->id;
	m->size = msg->size;
	m->writable = msg->writable;
	c->n_mems++;
	c->mapped_bytes += m->size;
	return 0;
}

static void peer_mem_remove(struct shm_qp *qp, uint64_t id)
{
	struct shm_conn *c = &qp->conn;
	struct peer_mem *m = id && id != MEM_TOMB ? peer_mem_slot(c->mems, c->mems_mask, id) : NULL;

	if (!m || !m->id)
		return;
	memset(c->views, 0, sizeof(c->views)); /* a view may refer to this mem */
	c->unmapped++;
	c->mapped_bytes -= m->size;
	shm_quota_give(qp, m->size);
	shm_map_put(m->map);
	*m = (struct peer_mem){.id = MEM_TOMB};
}

/* ---- the control socket of an established connection ---- */

int shm_conn_handle(struct shm_qp *qp, const union wire_any *msg, ssize_t len, int *fds)
{
	if (wire_is(msg, len, WIRE_WAKE, sizeof(msg->head))) {
		/* Written by other threads under the grant lock; a stale value is harmless. */
		if (unlikely(__atomic_load_n(&qp->conn.own_area->conn_state.mems,
					     __ATOMIC_RELAXED) == UINT64_MAX))
			shm_grant_catch_up(qp);
		return 0;
	}
	if (msg->mems.n <= WIRE_MEMS && wire_is(msg, len, WIRE_MEM, wire_mems_len(msg->mems.n))) {
		int rc = 0;

		for (uint32_t i = 0; i < msg->mems.n && !rc; i++)
			rc = peer_mem_add(qp, &msg->mems.mem[i], fds[i]);
		qp->conn.mems_taken += msg->mems.n;
		return rc;
	}
	if (wire_is(msg, len, WIRE_SERVE, sizeof(msg->head))) {
		qp->conn.mems_taken++;
		return shm_served_take(qp, fds);
	}
	if (wire_is(msg, len, WIRE_FORGET, wire_mems_len(1))) {
		peer_mem_remove(qp, msg->mems.mem[0].id);
		return 0;
	}
	return -EPROTO;
}

bool shm_conn_pump(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;
	union wire_any msg;
	int fds[WIRE_FDS];

	for (uint32_t work = 0; work < PUMP_MAX; work += wire_cost(&msg)) {
		ssize_t len;
		int rc;

		if (c->phase != CONN_UP || c->peer_ended)
			return false;
		len = wire_recv(c->sock.fd, &msg, fds);
		if (len == -EAGAIN)
			return false;
		rc = len > 0 ? shm_conn_handle(qp, &msg, len, fds) : (int)len;
		wire_close_fds(fds);
		if (len > 0 && !rc)
			continue;
		if (rc && rc != -ECONNRESET)
			gn_log(GN_LOG_WARN,
			       "shm: closing a connection: the peer's control message: %s",
			       gn_strerror(rc));
		/*
		 * Messages in the ring are delivered first: shm_progress_recvs() ends the
		 * connection.
		 */
		c->peer_ended = true;
		qp->rx_recv.peek = NULL;
		shm_rx_make_hot(&qp->rx_recv);
	}
	return true;
}

void shm_conn_peer_closed(struct shm_qp *qp)
{
	conn_unwatch(qp);
	/*
	 * Notifies the peer if we close first. Shuts down our half only: until the qp is destroyed,
	 * the peer's copies are awaited, and its close must be detected.
	 */
	shutdown(qp->conn.sock.fd, SHUT_WR);
}
