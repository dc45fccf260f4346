/* SPDX-License-Identifier: MIT */
/*
 * Datagrams: one single-producer ring per sender and receiver, created with the ah and sent to the
 * receiver's socket. The sender does not wait for the receiver to attach it; a full ring drops
 * datagrams.
 */
#include "base/fail.h"
#include "base/list.h"
#include "fabric/shm/shm.h"

#include "fabric/soft/copy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG	    1024
#define ACCEPT_MAX  16
#define RECV_BATCH  16
#define PUMP_MAX    64	  /* messages of one socket per call */
#define SENDERS_MAX 16384 /* per qp */
#define GID_PREFIX  "\xfdgannet\0"

/* A sender to one of our UD qps. */
struct ud_sender {
	struct shm_rx rx;
	struct ud_port *port;
	struct chan_fd sock;
	enum wire_peer kind;
	struct shm_map *map;
	struct ud_ring *ring;
	uint64_t slot, data_at;
	uint8_t grh[GN_GRH_BYTES]; /* of its datagrams, apart from their length */
	bool ended;
	struct ud_sender *next, **prev;
};

/* The receiving socket of a UD qp. */
struct ud_port {
	struct chan_fd door;
	struct shm_qp *qp;
	struct ud_sender *senders, *dropped;
	uint32_t n_senders, n_pending; /* pending: connected, no ring received yet */
	struct sockaddr_un addr;
};

static void ud_path(const struct shm_fabric *fabric, uint64_t gid_tail, uint32_t qpn,
		    struct sockaddr_un *out)
{
	char name[48];

	snprintf(name, sizeof(name), SHM_UD_PREFIX "%016" PRIx64 "-%06x", gid_tail, qpn);
	shm_path(fabric, name, out);
}

static int sender_watch(struct shm_qp *qp, struct chan_fd *cfd)
{
	const int rc = shm_cq_watch((struct shm_cq *)qp->qp.recv_cq, cfd);

	return !rc && qp->qp.recv_cq->chan ? chan_fds_add(qp->qp.recv_cq->chan, cfd) : rc;
}

static void sender_unwatch(struct shm_qp *qp, struct chan_fd *cfd)
{
	shm_cq_unwatch((struct shm_cq *)qp->qp.recv_cq, cfd);
	if (qp->qp.recv_cq->chan)
		chan_fds_del(qp->qp.recv_cq->chan, cfd);
}

/* ---- receiving ---- */

/* Unmaps its ring. The struct stays until port_free_dropped(), for callers that still use it. */
static void sender_drop(struct ud_sender *in)
{
	struct ud_port *port = in->port;

	shm_rx_del(&in->rx);
	sender_unwatch(port->qp, &in->sock);
	shm_close_sock(in->sock.fd);
	shm_map_put(in->map);
	list_remove(in);
	port->n_senders--;
	port->n_pending -= !in->map;
	in->next = port->dropped;
	port->dropped = in;
}

static void port_free_dropped(struct ud_port *port)
{
	while (port->dropped) {
		struct ud_sender *in = port->dropped;

		port->dropped = in->next;
		gn_free(in);
	}
}

static void sender_init_grh(struct ud_sender *in)
{
	struct gn_ud_addr self;

	in->grh[0] = 0x60;
	in->grh[6] = 0x1b; /* next header: IBA transport */
	copy_relaxed(in->grh + 8, in->ring->src_gid, 16);
	shm_ud_addr(&in->port->qp->qp, &self);
	memcpy(in->grh + 24, self.gid, 16);
}

/* GRH and payload to the receive; false: not its owner's memory. */
static force_inline bool sender_copy(struct ud_sender *in, const uint8_t *src, uint32_t len)
{
	const struct shm_qp *qp = in->port->qp;
	const struct gn_sge *sge = soft_rq_sge(&qp->rq);
	const uint32_t n_sge = soft_rq_n_sge(&qp->rq);

	if (likely(n_sge && sge->len_bytes >= GN_GRH_BYTES + len)) {
		uint8_t *to = sge->addr;

		if (unlikely(!soft_one_sge_ok(qp->keys, qp->qp.pd, sge, GN_LOCAL_WRITE)))
			return false;
		memcpy(to, in->grh, GN_GRH_BYTES);
		/* There, not in the template: its copy would wait for these stores. */
		to[4] = (uint8_t)(len >> 8);
		to[5] = (uint8_t)len;
		copy_relaxed(to + GN_GRH_BYTES, src, len);
		return true;
	}
	if (!soft_sge_ok(qp->keys, qp->qp.pd, sge, n_sge, GN_LOCAL_WRITE))
		return false;
	in->grh[4] = (uint8_t)(len >> 8);
	in->grh[5] = (uint8_t)len;
	soft_scatter(sge, n_sge, 0, in->grh, GN_GRH_BYTES);
	soft_scatter(sge, n_sge, GN_GRH_BYTES, src, len);
	return true;
}

/*
 * Copies one datagram to the next receive, if it is addressed to us and fits; otherwise drops it.
 */
static force_inline bool sender_deliver(struct ud_sender *in, const struct ud_slot *slot,
					const uint8_t *src, uint32_t len, uint32_t flags)
{
	struct shm_qp *qp = in->port->qp;
	struct gn_wc wc = {.id = qp->rq.tail,
			   .qp = &qp->qp,
			   .op = GN_OP_RECV,
			   .len_bytes = len + GN_GRH_BYTES,
			   .imm = __atomic_load_n(&slot->imm, __ATOMIC_RELAXED),
			   .flags = GN_WC_GRH | (flags & SLOT_IMM ? GN_WC_IMM : 0u),
			   .src_qpn = __atomic_load_n(&slot->src_qpn, __ATOMIC_RELAXED)};

	if (unlikely(__atomic_load_n(&slot->qkey, __ATOMIC_RELAXED) != qp->qp.qkey))
		return false;
	if (unlikely(soft_rq_empty(&qp->rq) || soft_rq_len(&qp->rq) < len + GN_GRH_BYTES))
		return false;
	if (unlikely(!sender_copy(in, src, len)))
		wc.status = GN_WC_LOCAL_ACCESS;
	qp->rq.tail++;
	shm_complete((struct shm_cq *)qp->qp.recv_cq, &wc, flags & SLOT_SOLICITED);
	if (unlikely(wc.status != GN_WC_OK))
		shm_qp_fail(qp);
	return true;
}

/* Consumes the slot's datagram; false: the sender wrote invalid values. */
static force_inline bool sender_take_slot(struct ud_sender *in, const struct ud_slot *slot,
					  uint64_t head)
{
	const uint32_t flags = slot_flags(head), len = slot_len(head);
	const uint8_t *src = slot->bytes;

	if (!(flags & SLOT_INLINED)) {
		const uint64_t at = __atomic_load_n(&slot->data_at, __ATOMIC_RELAXED);

		if (len > UD_DATA || (at & (UD_DATA - 1)) > UD_DATA - len ||
		    at - in->data_at > UD_DATA)
			return false;
		src = in->ring->data + (at & (UD_DATA - 1));
		in->data_at = at + len;
	} else if (len > UD_INLINE) {
		return false;
	}
	if (!sender_deliver(in, slot, src, len, flags))
		counter_add(&in->port->qp->qp.count.drops, 1);
	return true;
}

static bool sender_progress(struct shm_rx *rx)
{
	struct ud_sender *in = container_of(rx, struct ud_sender, rx);
	struct shm_qp *qp = in->port->qp;
	struct ud_ring *ring = in->ring;
	int taken = 0;

	while (taken < RECV_BATCH && qp->qp.state == GN_QP_READY &&
	       !soft_cq_full((struct soft_cq *)qp->qp.recv_cq)) {
		const struct ud_slot *slot = &ring->slots[in->slot & (UD_SLOTS - 1)];
		/* Pairs with the release in shm_ud_send(). */
		const uint64_t head = __atomic_load_n(&slot->head, __ATOMIC_ACQUIRE);

		if (slot_seq(head) != (uint32_t)(in->slot + 1))
			break;
		if (!sender_take_slot(in, slot, head)) {
			gn_log(GN_LOG_WARN, "shm: invalid data in a datagram sender's ring");
			in->ended = true;
		}
		in->slot++;
		taken++;
		__atomic_store_n(&ring->data_consumed, in->data_at, __ATOMIC_RELAXED);
		/* Pairs with the acquire in ah_fits_now(). */
		__atomic_store_n(&ring->slots_consumed, in->slot, __ATOMIC_RELEASE);
		if (in->ended)
			break;
	}
	if (unlikely(in->ended || qp->qp.state != GN_QP_READY)) {
		rx->peek = NULL;
		if (in->ended && (!taken || qp->qp.state != GN_QP_READY))
			sender_drop(in);
	} else {
		shm_rx_expect(rx, &ring->slots[in->slot & (UD_SLOTS - 1)].head, in->slot);
	}
	return taken;
}

/* The sender's first message carries its ring. */
static bool sender_attach_ring(struct ud_sender *in, const union wire_any *msg, ssize_t len,
			       const int *fds)
{
	struct shm_cq *cq = (struct shm_cq *)in->port->qp->qp.recv_cq;

	if (!wire_is(msg, len, WIRE_UD, sizeof(msg->ud)) || fds[0] < 0 ||
	    msg->ud.dst_qpn != in->port->qp->qp.qpn ||
	    shm_map_peer(fds[0], sizeof(struct ud_ring), true, in->kind, &in->map))
		return false;
	in->ring = (struct ud_ring *)(void *)in->map->addr;
	sender_init_grh(in);
	in->port->n_pending--;
	shm_rx_add(&in->rx, cq, sender_progress);
	/*
	 * The cq may have been armed before this sender was attached. Pairs with the fence in
	 * shm_ud_wake().
	 */
	shm_ud_arm(&in->rx, shm_cq_armed(cq));
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return true;
}

/* As shm_conn_catch_up(): a wake-up may have brought only dropped datagrams. */
static void sender_catch_up(struct ud_sender *in)
{
	struct shm_cq *cq = in->rx.cq;
	bool told = false;

	for (uint32_t i = 0; i < UD_SLOTS && in->rx.cq; i++) {
		if (sender_progress(&in->rx)) {
			told = false;
		} else if (told || !in->rx.cq || cq->soft.armed == SOFT_UNARMED) {
			break;
		} else {
			cq->arm_generation += 4;
			shm_ud_arm(&in->rx, shm_cq_armed(cq));
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			told = true;
		}
	}
}

static void sender_ready(struct chan_fd *cfd)
{
	struct ud_sender *in = container_of(cfd, struct ud_sender, sock);
	union wire_any msg;
	int fds[WIRE_FDS];
	ssize_t len = -EAGAIN;

	for (int i = 0; i < PUMP_MAX; i++) {
		bool bad;

		len = wire_recv(in->sock.fd, &msg, fds);
		if (len <= 0)
			break;
		bad = !in->map && !sender_attach_ring(in, &msg, len, fds);
		wire_close_fds(fds);
		if (bad)
			break;
		len = -EAGAIN;
	}
	if (len != -EAGAIN) {
		in->ended = true;
		in->rx.peek = NULL;
		sender_unwatch(in->port->qp, &in->sock);
		shm_rx_make_hot(&in->rx);
	}
	if (in->rx.cq)
		sender_catch_up(in);
	else if (in->ended)
		sender_drop(in);
}

static void port_drop_oldest_pending(struct ud_port *port)
{
	struct ud_sender *oldest = NULL;

	for (struct ud_sender *in = port->senders; in; in = in->next)
		if (!in->map)
			oldest = in;
	sender_drop(oldest);
}

static void port_accept_sender(struct ud_port *port, int sock)
{
	struct ud_sender *in = port->n_senders < SENDERS_MAX ? gn_alloc(sizeof(*in), 0) : NULL;

	if (!in) {
		shm_close_sock(sock);
		return;
	}
	in->port = port;
	in->kind = wire_peer(sock, NULL);
	in->sock = (struct chan_fd){.fd = sock, .ready = sender_ready};
	list_push(&port->senders, in);
	port->n_senders++;
	port->n_pending++;
	if (sender_watch(port->qp, &in->sock)) {
		sender_drop(in);
		return;
	}
	sender_ready(&in->sock);
	if (port->n_pending > SHM_PENDING_MAX)
		port_drop_oldest_pending(port);
}

static void port_ready(struct chan_fd *cfd)
{
	struct ud_port *port = container_of(cfd, struct ud_port, door);

	port_free_dropped(port);
	for (int i = 0; i < ACCEPT_MAX; i++) {
		const int sock = accept4(port->door.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (sock < 0)
			return;
		if (wire_peer(sock, NULL) == PEER_OTHER_USER)
			shm_close_sock(sock);
		else
			port_accept_sender(port, sock);
	}
}

void shm_ud_arm(struct shm_rx *rx, uint32_t armed)
{
	__atomic_store_n(&container_of(rx, struct ud_sender, rx)->ring->armed, armed,
			 __ATOMIC_RELAXED);
}

void shm_ud_drop_stale(struct shm_qp *qp)
{
	for (struct ud_sender *in = qp->ud->senders, *next; in; in = next) {
		next = in->next;
		for (uint32_t i = 0; i < UD_SLOTS && in->rx.cq && sender_progress(&in->rx); i++)
			;
	}
}

/* ---- UD qps ---- */

int shm_ud_init(struct shm_qp *qp)
{
	const struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	struct ud_port *port = gn_alloc(sizeof(*port), 0);
	int rc;

	if (!port)
		return -ENOMEM;
	port->qp = qp;
	port->door = (struct chan_fd){
		.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
		.ready = port_ready};
	ud_path(fabric, fabric->gid_tail, qp->qp.qpn, &port->addr);
	rc = port->door.fd < 0 ? -errno : shm_ud_bind(fabric, port->door.fd, &port->addr, BACKLOG);
	if (rc) {
		gn_fail_log(0, "shm: cannot create a datagram qp: %s", gn_strerror(rc));
		if (port->door.fd >= 0)
			close(port->door.fd);
		gn_free(port);
		return rc;
	}
	qp->ud = port;
	rc = sender_watch(qp, &port->door);
	if (rc)
		shm_ud_fini(qp);
	else
		qp->qp.state = GN_QP_READY;
	return rc;
}

void shm_ud_fini(struct shm_qp *qp)
{
	while (qp->ud->senders)
		sender_drop(qp->ud->senders);
	port_free_dropped(qp->ud);
	sender_unwatch(qp, &qp->ud->door);
	unlink(qp->ud->addr.sun_path);
	shm_close_listener(qp->ud->door.fd);
	gn_free(qp->ud);
}

int shm_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out)
{
	const uint64_t tail = shm_of(&qp->obj)->gid_tail;

	memcpy(out->gid, GID_PREFIX, 8);
	memcpy(out->gid + 8, &tail, 8);
	return 0;
}

int shm_ah_reverse(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
		   struct gn_ud_addr *out)
{
	(void)qp;
	(void)wc;
	memcpy(out->gid, (const uint8_t *)grh + 8, 16);
	return 0;
}

/* ---- sending ---- */

int shm_ah_init(struct gn_ah *base)
{
	const struct shm_fabric *fabric = shm_of(&base->obj);
	struct shm_ah *ah = (struct shm_ah *)base;
	const struct wire_ud msg = {.head = wire_head(WIRE_UD), .dst_qpn = base->addr.qpn};
	struct gn_ud_addr self;
	struct sockaddr_un to;
	uint64_t tail;
	int rc, fd;

	if (memcmp(base->addr.gid, GID_PREFIX, 8))
		return gn_fail_log(-EINVAL,
				   "shm: not the address of a datagram qp on shared memory");
	memcpy(&tail, base->addr.gid + 8, 8);
	ud_path(fabric, tail, base->addr.qpn, &to);
	ah->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (ah->sock < 0)
		return -errno;
	if (connect(ah->sock, (struct sockaddr *)&to, sizeof(to))) {
		rc = -errno;
		if (rc == -ENOENT || rc == -ECONNREFUSED) {
			/* No receiver: as on any network, datagrams to it are lost. */
			close(ah->sock);
			ah->sock = -1;
			return 0;
		}
		goto close_sock;
	}
	if (base->conn && !wire_same_peer(ah->sock, ((struct shm_qp *)base->conn)->conn.sock.fd)) {
		rc = -EPERM;
		goto close_sock;
	}
	rc = shm_map_create("gannet-ud", sizeof(struct ud_ring), false, false, &ah->map, &fd);
	if (rc)
		goto close_sock;
	ah->ring = (struct ud_ring *)(void *)ah->map->addr;
	shm_ud_addr(base->qp, &self);
	memcpy(ah->ring->src_gid, self.gid, 16);
	/* A receiver that closes just now counts as none. */
	rc = wire_send(ah->sock, &msg, sizeof(msg), &fd, 1);
	close(fd);
	if (!rc || rc == -EPIPE || rc == -ECONNRESET)
		return 0;
	shm_map_put(ah->map);
close_sock:
	close(ah->sock);
	return gn_fail_log(rc, "shm: cannot reach a datagram qp: %s", gn_strerror(rc));
}

void shm_ah_fini(struct gn_ah *base)
{
	struct shm_ah *ah = (struct shm_ah *)base;

	shm_close_sock(ah->sock);
	shm_map_put(ah->map);
}

/* Finds a slot, and len contiguous free bytes in the data ring; false: there are none. */
static force_inline bool ah_fits(const struct shm_ah *ah, uint32_t len, uint64_t *at)
{
	if (ah->slot - ah->slots_consumed >= UD_SLOTS)
		return false;
	*at = ah->data_at;
	if (len <= UD_INLINE)
		return true;
	if ((*at & (UD_DATA - 1)) > UD_DATA - len)
		*at = (*at + UD_DATA - 1) & ~(uint64_t)(UD_DATA - 1);
	return *at + len - ah->data_consumed <= UD_DATA;
}

/* The receiver's counters change with each datagram: reads them only when the ring seems full. */
static no_inline bool ah_fits_now(struct shm_ah *ah, uint32_t len, uint64_t *at)
{
	/* Pairs with the release in sender_progress(). */
	ah->slots_consumed = __atomic_load_n(&ah->ring->slots_consumed, __ATOMIC_ACQUIRE);
	ah->data_consumed = __atomic_load_n(&ah->ring->data_consumed, __ATOMIC_RELAXED);
	return ah_fits(ah, len, at);
}

enum gn_wc_status shm_ud_send(struct shm_qp *qp, const struct gn_wr *wr)
{
	struct shm_ah *ah = (struct shm_ah *)wr->to.ud.ah;
	const uint32_t len = (uint32_t)soft_sge_len(wr->sge, wr->n_sge);
	uint32_t flags = SLOT_FIRST | SLOT_LAST;
	struct ud_slot *slot;
	uint8_t *to;
	uint64_t at;

	if (unlikely(!ah->ring || wr->to.ud.qpn != ah->ah.addr.qpn))
		return GN_WC_OK; /* nobody is there */
	if (unlikely(!ah_fits(ah, len, &at) && !ah_fits_now(ah, len, &at)))
		return GN_WC_OK; /* lost, as datagrams may be */
	slot = &ah->ring->slots[ah->slot & (UD_SLOTS - 1)];
	slot->qkey = wr->to.ud.qkey;
	slot->imm = wr->imm;
	slot->src_qpn = qp->qp.qpn;
	flags |= wr->op == GN_OP_SEND_IMM ? SLOT_IMM : 0u;
	flags |= wr->flags & GN_SOLICITED ? SLOT_SOLICITED : 0u;
	if (len <= UD_INLINE) {
		flags |= SLOT_INLINED;
		to = slot->bytes;
	} else {
		slot->data_at = at;
		to = ah->ring->data + (at & (UD_DATA - 1));
		ah->data_at = at + len;
	}
	if (likely(wr->n_sge == 1))
		copy_relaxed(to, wr->sge->addr, len);
	else
		soft_gather(to, wr->sge, wr->n_sge, 0, len);
	/* Pairs with the acquire in sender_progress(). */
	__atomic_store_n(&slot->head, slot_head(ah->slot, len, flags), __ATOMIC_RELEASE);
	ah->slot++;
	return GN_WC_OK;
}

void shm_ud_wake(const struct gn_wr *wr, unsigned n)
{
	/* Pairs with the fence in shm_cq_arm(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (; n; n--, wr = wr->next) {
		struct shm_ah *ah = (struct shm_ah *)wr->to.ud.ah;
		uint32_t armed;

		if (unlikely(!ah->ring))
			continue;
		armed = __atomic_load_n(&ah->ring->armed, __ATOMIC_RELAXED);
		if (likely((armed & 3) == SOFT_UNARMED || armed == ah->arm_answered))
			continue;
		if ((armed & 3) == SOFT_ARMED_SOLICITED && !(wr->flags & GN_SOLICITED))
			continue;
		ah->arm_answered = armed;
		wire_wake(ah->sock);
	}
}
