/* SPDX-License-Identifier: MIT */
/*
 * A connection between two qps: the areas they share, the memory they were handed, the control
 * socket, and the end.
 */
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
#define PUMP_MAX     64	   /* messages and mems of one socket taken at a time */
#define CATCH_UP_MAX 65536 /* batches: more than the longest message needs */

void shm_conn_init(struct shm_conn *c)
{
	*c = (struct shm_conn){.sock.fd = -1, .timer.fd = -1, .hello_area_fd = -1};
}

static uint32_t rq_size_of(const struct shm_qp *qp)
{
	uint32_t size = RQ_SIZE_MIN;

	while (size < qp->qp.max_recv_wr)
		size *= 2;
	return size;
}

/* Publish the receives that were posted before there was anybody to tell. */
static void publish_posted(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;

	for (uint64_t at = qp->rq.tail; at != qp->rq.head; at++)
		shm_conn_publish_recv(c, at, qp->rq.len_bytes[at & qp->rq.mask]);
	__atomic_store_n(&c->mine->credit.posted, qp->rq.head, __ATOMIC_RELEASE);
}

int shm_conn_mine(struct shm_qp *qp, int *area_fd)
{
	struct shm_conn *c = &qp->conn;
	const uint32_t rq_size = rq_size_of(qp);
	int rc = shm_map_create("gannet-conn", area_bytes(rq_size), false, true, &c->mine_map,
				area_fd);

	if (rc)
		return gn_fail_log(rc, "shm: cannot make a connection's memory: %s",
				   gn_strerror(rc));
	c->mine = (struct area *)(void *)c->mine_map->addr;
	c->mine_rq_size = rq_size;
	c->my_sizes = (uint32_t *)(void *)c->mine->rest;
	c->tx_slots = (struct slot *)(void *)(c->mine_map->addr + area_slots_at(rq_size));
	c->tx_data = c->mine_map->addr + area_data_at(rq_size);
	c->mine->mood.recv_floor = UINT32_MAX;
	c->mine->mood.mems = UINT64_MAX; /* until shm_conn_join() */
	publish_posted(qp);
	c->mems = gn_alloc(MEMS_MIN * sizeof(*c->mems), 0);
	c->mems_mask = MEMS_MIN - 1;
	return c->mems ? 0 : -ENOMEM;
}

/* Map what the peer sent, at its expense. */
static int map_charged(struct shm_qp *qp, int fd, uint64_t size, bool writable,
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

static int map_peer(struct shm_qp *qp, uint32_t rq_size, int area_fd, int grants_fd)
{
	struct shm_conn *c = &qp->conn;
	int rc;

	if (rq_size < RQ_SIZE_MIN || rq_size > RQ_SIZE_MAX || rq_size & (rq_size - 1))
		return -EPROTO;
	rc = map_charged(qp, area_fd, area_bytes(rq_size), false, &c->peer_map);
	if (rc)
		return rc;
	rc = map_charged(qp, grants_fd, SOFT_KEYS * sizeof(struct grant), false, &c->grants_map);
	if (rc)
		return rc;
	/* Pairs with the acquire in peer_quiet(), which may run in another thread. */
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
	/* While it connects, the channel has the socket already. */
	int rc = qp->conn.watched ? 0 : chan_fds_add(qp->qp.chan, &qp->conn.sock);

	qp->conn.watched = true; /* perhaps in part */
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

static void unwatch(struct shm_qp *qp)
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
 * Take what there is. One wake-up answers one arming, but need not bring a completion: while the cq
 * is still armed the peer is told anew, and we look again.
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
			       "shm: a peer's message has no end; its connection ends");
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
	__atomic_store_n(&qp->conn.mine->mood.armed, shm_cq_armed((struct shm_cq *)qp->qp.recv_cq),
			 __ATOMIC_RELAXED);
	/*
	 * Pairs with the fence in wake_receiver(): it sees us armed, or our next look sees the
	 * message.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void shm_conn_await_credit(struct shm_qp *qp)
{
	qp->conn.tx_waits += 2;
	__atomic_store_n(&qp->conn.mine->mood.tx_waiting, qp->conn.tx_waits | 1, __ATOMIC_RELAXED);
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
	wire_roomy(qp->conn.sock.fd);
	return shm_grant_join(qp);
}

int shm_conn_meet(struct shm_qp *qp, uint32_t rq_size, int area_fd, int grants_fd)
{
	return map_peer(qp, rq_size, area_fd, grants_fd);
}

void shm_conn_ready(struct shm_qp *qp)
{
	qp->conn.phase = CONN_UP;
	qp->qp.state = GN_QP_READY;
}

void shm_conn_start(struct shm_qp *qp)
{
	shm_rx_add(&qp->rx_recv, (struct shm_cq *)qp->qp.recv_cq, shm_progress_recvs);
	/* The cq may have been armed before the peer was known. */
	shm_conn_arm(qp);
	shm_conn_catch_up(qp);
}

/* A failure is a connection that ends: the acceptor has told the peer that it is there. */
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
		shm_conn_lost(qp);
}

static void stop_timer(struct shm_qp *qp)
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

	if (c->mine)
		__atomic_store_n(&c->mine->mood.state, AREA_CLOSED, __ATOMIC_RELEASE);
	shm_rx_del(&qp->rx_recv);
	shm_rx_del(&qp->rx_send);
	stop_timer(qp);
	unwatch(qp);
	/* Our own half only: the peer's death is still to be seen. */
	if (c->sock.fd >= 0)
		shutdown(c->sock.fd, SHUT_WR);
}

int shm_conn_close(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	struct shm_conn *c = &qp->conn;
	bool quiet = true;

	gn_mutex_lock(&fabric->grant_lock);
	if (qp->prev_conn) { /* else no peer was ever given anything */
		if (!c->ending.revocation)
			shm_revoke(fabric, &c->ending);
		quiet = shm_peers_quiet(fabric, NULL, qp, &c->ending);
	}
	gn_mutex_unlock(&fabric->grant_lock);
	return quiet ? 0 : -EAGAIN;
}

void shm_conn_fini(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;

	if (c->mine)
		__atomic_store_n(&c->mine->mood.state, AREA_CLOSED, __ATOMIC_RELEASE);
	shm_grant_leave(qp);
	shm_rx_del(&qp->rx_recv);
	shm_rx_del(&qp->rx_send);
	stop_timer(qp);
	if (c->sock.fd >= 0) {
		unwatch(qp);
		shm_close_sock(c->sock.fd);
	}
	for (uint32_t i = 0; c->mems && i <= c->mems_mask; i++)
		shm_map_put(c->mems[i].map);
	gn_free(c->mems);
	gn_free(c->sent);
	shm_map_put(c->mine_map);
	shm_map_put(c->peer_map);
	shm_map_put(c->grants_map);
	shm_quota_leave(qp);
	if (c->hello_area_fd >= 0)
		close(c->hello_area_fd);
	shm_conn_init(c);
	c->phase = CONN_DOWN;
}

/* ---- the peer's memory ---- */

static struct peer_mem *mem_slot(struct peer_mem *mems, uint32_t mask, uint64_t id)
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
	m = mem_slot(c->mems, c->mems_mask, id);
	return m->id ? m : NULL;
}

/* Keeps the table at most half full of entries and tombs, so that a look-up ends. */
static int mems_room(struct shm_conn *c)
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
			*mem_slot(mems, new_size - 1, c->mems[i].id) = c->mems[i];
	gn_free(c->mems);
	c->mems = mems;
	c->mems_mask = new_size - 1;
	c->n_mems = live;
	return 0;
}

static int add_mem(struct shm_qp *qp, const struct wire_mem *msg, int fd)
{
	struct shm_conn *c = &qp->conn;
	struct peer_mem *m;
	int rc = fd < 0 || !msg->id || msg->id == MEM_TOMB ? -EPROTO : mems_room(c);

	if (rc)
		return rc;
	m = mem_slot(c->mems, c->mems_mask, msg->id);
	if (m->id)
		return -EPROTO;
	rc = map_charged(qp, fd, msg->size, msg->writable, &m->map);
	if (rc)
		return rc;
	m->id = msg->id;
	m->size = msg->size;
	m->writable = msg->writable;
	c->n_mems++;
	c->mapped_bytes += m->size;
	return 0;
}

static void forget_mem(struct shm_qp *qp, uint64_t id)
{
	struct shm_conn *c = &qp->conn;
	struct peer_mem *m = id && id != MEM_TOMB ? mem_slot(c->mems, c->mems_mask, id) : NULL;

	if (!m || !m->id)
		return;
	memset(c->views, 0, sizeof(c->views)); /* one may be of this mem */
	c->forgotten++;
	c->mapped_bytes -= m->size;
	shm_quota_give(qp, m->size);
	shm_map_put(m->map);
	*m = (struct peer_mem){.id = MEM_TOMB};
}

/* ---- the control socket while the connection is up ---- */

int shm_conn_handle(struct shm_qp *qp, const union wire_any *msg, ssize_t len, const int *fds)
{
	if (wire_is(msg, len, WIRE_WAKE, sizeof(msg->head))) {
		/* The owner's look at what others write under the grant lock: it may be late. */
		if (unlikely(__atomic_load_n(&qp->conn.mine->mood.mems, __ATOMIC_RELAXED) ==
			     UINT64_MAX))
			shm_grant_catch_up(qp);
		return 0;
	}
	if (msg->mems.n <= WIRE_MEMS && wire_is(msg, len, WIRE_MEM, wire_mems_len(msg->mems.n))) {
		int rc = 0;

		for (uint32_t i = 0; i < msg->mems.n && !rc; i++)
			rc = add_mem(qp, &msg->mems.mem[i], fds[i]);
		qp->conn.mems_taken += msg->mems.n;
		return rc;
	}
	if (wire_is(msg, len, WIRE_FORGET, wire_mems_len(1))) {
		forget_mem(qp, msg->mems.mem[0].id);
		return 0;
	}
	return -EPROTO;
}

bool shm_conn_pump(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;
	union wire_any msg;
	int fds[WIRE_FDS];

	for (uint32_t work = 0; work < PUMP_MAX; work += wire_work(&msg)) {
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
			       "shm: a connection ends: the peer's control message: %s",
			       gn_strerror(rc));
		/* What is in the ring comes first: shm_progress_recvs() brings the end. */
		c->peer_ended = true;
		qp->rx_recv.peek = NULL;
		shm_rx_heat(&qp->rx_recv);
	}
	return true;
}

void shm_conn_end(struct shm_qp *qp)
{
	unwatch(qp);
	/*
	 * Tells the peer, if the end is our decision. Our own half only: until the qp is destroyed,
	 * the peer's copies are waited for, and its close has to be noticed.
	 */
	shutdown(qp->conn.sock.fd, SHUT_WR);
}
