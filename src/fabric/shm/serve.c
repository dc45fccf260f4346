/* SPDX-License-Identifier: MIT */
/*
 * Accesses that the owner of the memory executes. A descriptor of a memfd gives a peer all of the
 * file, for writing if anybody may write: a read-only descriptor reopens read-write through /proc,
 * and seals hold for all peers alike. So the mem of a read-only region that others may write, and
 * of a confined region, is not sent to the peer. The peer sends its requests over a socket instead.
 * A thread of the owner checks them as a device would, executes them, and leaves the result in
 * memory that the peer can only read. This is slower than a copy by the peer, and still one-sided:
 * the owner's other threads take no part.
 *
 * Neither side can make the other wait: the thread only receives, on a socket that the peer does
 * not have; the peer only sends, and polls the result. A connection has one outstanding request; a
 * peer that sends more than one spoils its own results.
 */
#include "base/fail.h"
#include "fabric/shm/access.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVE_BATCH 32

/* ---- the owner ---- */

/* The owner's end of a connection's socket. The thread frees it, when nothing refers to it. */
struct serve_end {
	struct serve_end *next_dead;
	const struct shm_qp *qp; /* exists while sock is open */
	int sock;		 /* -1: closed */
	struct shm_map *map;
	struct serve_result *result;
};

struct serve_thread {
	pthread_t thread;
	int epoll_fd, stop_fd;
	struct serve_end *dead; /* under serve_lock */
	struct shm_fabric *fabric;
	struct {
		struct serve_request head;
		uint8_t data[SERVE_CHUNK];
	} request;
};

static unsigned serve_right(uint32_t op)
{
	switch (op) {
	case GN_OP_READ:
		return GN_REMOTE_READ;
	case GN_OP_WRITE:
		return GN_REMOTE_WRITE;
	case GN_OP_CAS:
	case GN_OP_FAA:
		return GN_REMOTE_ATOMIC;
	default:
		return 0;
	}
}

/* The caller holds serve_lock: no key is removed meanwhile. */
static enum gn_wc_status serve_execute(const struct serve_thread *t, const struct serve_end *end)
{
	const struct serve_request *rq = &t->request.head;
	const struct soft_key *k = soft_key_find(t->fabric->keys.table, rq->key, end->qp->qp.pd);
	const unsigned right = serve_right(rq->op);
	uint8_t *addr;

	if (!k || !rq->key || !(k->access & right) || rq->offset > k->length ||
	    rq->length > k->length - rq->offset)
		return GN_WC_REMOTE_ACCESS;
	addr = k->addr + rq->offset;
	if (right == GN_REMOTE_READ)
		copy_fetch(end->result->data, addr, rq->length);
	else if (right == GN_REMOTE_WRITE)
		copy_publish(addr, t->request.data, rq->length);
	else
		__atomic_store_n(&end->result->old,
				 shm_atomic(&(struct gn_wr){.op = (enum gn_op)rq->op,
							    .to.remote = {.compare = rq->compare,
									  .swap = rq->swap}},
					    addr),
				 __ATOMIC_RELAXED);
	return GN_WC_OK;
}

static bool serve_is_valid(const struct serve_thread *t, ssize_t len)
{
	const struct serve_request *rq = &t->request.head;
	const unsigned right = len >= (ssize_t)sizeof(*rq) ? serve_right(rq->op) : 0;

	if (!right || rq->length > SERVE_CHUNK || !rq->length)
		return false;
	if (right == GN_REMOTE_ATOMIC && (rq->length != 8 || rq->offset % 8))
		return false;
	return (uint64_t)len == sizeof(*rq) + (right == GN_REMOTE_WRITE ? rq->length : 0);
}

/* The caller holds serve_lock. */
static void serve_end_close(struct serve_thread *t, struct serve_end *end)
{
	if (end->sock < 0)
		return;
	epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, end->sock, NULL);
	shm_close_sock(end->sock);
	end->sock = -1;
}

/* Executes a request, publishes the result, and wakes a peer that sleeps. */
static void serve_run(const struct serve_thread *t, const struct serve_end *end)
{
	/* NULL: not connected yet; the peer is early, and not one of this library. */
	const struct area *peer = __atomic_load_n(&end->qp->conn.peer, __ATOMIC_ACQUIRE);
	enum gn_wc_status status;

	if (peer) /* pairs with the release in served_send() */
		(void)__atomic_load_n(&peer->busy.requested, __ATOMIC_ACQUIRE);
	status = serve_execute(t, end);
	__atomic_store_n(&end->result->status, status, __ATOMIC_RELAXED);
	/* Pairs with the acquire in served_poll(). */
	__atomic_store_n(&end->result->serial, t->request.head.serial, __ATOMIC_RELEASE);
	/* Pairs with the fence in shm_conn_await_credit(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (peer && __atomic_load_n(&peer->conn_state.tx_waiting, __ATOMIC_RELAXED))
		wire_wake(end->qp->conn.sock.fd);
}

/* One request of a peer. A peer that sends anything else is not served any more. */
static void serve_one(struct serve_thread *t, struct serve_end *end)
{
	int fds[WIRE_FDS], flags = 0;
	ssize_t len;

	pthread_mutex_lock(&t->fabric->serve_lock);
	if (end->sock >= 0) {
		len = wire_recv_any(end->sock, &t->request, sizeof(t->request), fds, &flags);
		if (len != -EAGAIN && (fds[0] >= 0 || flags & MSG_TRUNC || !serve_is_valid(t, len)))
			serve_end_close(t, end);
		else if (len != -EAGAIN)
			serve_run(t, end);
		wire_close_fds(fds);
	}
	pthread_mutex_unlock(&t->fabric->serve_lock);
}

static void serve_free_dead(struct serve_thread *t)
{
	struct serve_end *end, *next;

	pthread_mutex_lock(&t->fabric->serve_lock);
	end = t->dead;
	t->dead = NULL;
	pthread_mutex_unlock(&t->fabric->serve_lock);
	for (; end; end = next) {
		next = end->next_dead;
		shm_map_put(end->map);
		gn_free(end);
	}
}

static void *serve_main(void *arg)
{
	struct serve_thread *t = arg;

	for (;;) {
		struct epoll_event ev[SERVE_BATCH];
		int n;

		serve_free_dead(t); /* none of them is in ev */
		n = epoll_wait(t->epoll_fd, ev, SERVE_BATCH, -1);
		for (int i = 0; i < n; i++) {
			uint64_t count;

			if (ev[i].data.ptr) {
				serve_one(t, ev[i].data.ptr);
				continue;
			}
			/* Something died, or the fabric is closed. */
			if (read(t->stop_fd, &count, sizeof(count)) == sizeof(count) &&
			    __atomic_load_n(&t->fabric->serve_stop, __ATOMIC_ACQUIRE))
				return NULL;
		}
	}
}

static void serve_wake(const struct serve_thread *t)
{
	const uint64_t one = 1;
	ssize_t rc = write(t->stop_fd, &one, sizeof(one));

	(void)rc; /* an eventfd takes it */
}

/* The thread blocks all signals. */
static int serve_thread_start(struct serve_thread *t)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
	sigset_t all, before;
	int rc;

	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	t->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->epoll_fd < 0 || t->stop_fd < 0 ||
	    epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->stop_fd, &ev))
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = -pthread_create(&t->thread, NULL, serve_main, t);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static void serve_thread_free(struct serve_thread *t)
{
	if (t->epoll_fd >= 0)
		close(t->epoll_fd);
	if (t->stop_fd >= 0)
		close(t->stop_fd);
	gn_free(t);
}

int shm_serve_start(struct shm_fabric *fabric)
{
	struct serve_thread *t;
	int rc;

	if (fabric->serve)
		return 0;
	t = gn_alloc(sizeof(*t), GN_CACHELINE);
	if (!t)
		return -ENOMEM;
	t->epoll_fd = t->stop_fd = -1;
	t->fabric = fabric;
	rc = serve_thread_start(t);
	if (rc) {
		serve_thread_free(t);
		return gn_fail_log(rc,
				   "shm: cannot start the thread that executes requests of peers: "
				   "%s",
				   gn_strerror(rc));
	}
	fabric->serve = t;
	return 0;
}

void shm_serve_stop(struct shm_fabric *fabric)
{
	struct serve_thread *t = fabric->serve;

	if (!t)
		return;
	__atomic_store_n(&fabric->serve_stop, true, __ATOMIC_RELEASE);
	serve_wake(t);
	pthread_join(t->thread, NULL);
	serve_free_dead(t);
	serve_thread_free(t);
}

/* Sends the peer its end of the socket, and the descriptor of the results. */
static int serve_send_end(struct shm_qp *qp, int sock, int result_fd)
{
	const struct wire_head head = wire_head(WIRE_SERVE);
	const int fds[2] = {sock, result_fd};

	return wire_send(qp->conn.sock.fd, &head, sizeof(head), fds, 2);
}

int shm_serve_offer(struct shm_qp *qp)
{
	struct serve_thread *t = shm_of(&qp->qp.obj)->serve;
	struct epoll_event ev = {.events = EPOLLIN};
	struct serve_end *end;
	int pair[2], result_fd, rc;

	if (qp->conn.serve_end)
		return 0;
	end = gn_alloc(sizeof(*end), 0);
	if (!end)
		return -ENOMEM;
	rc = shm_map_create("gannet-served", sizeof(*end->result), false, true, &end->map,
			    &result_fd);
	if (rc)
		goto free_end;
	rc = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) ? -errno :
											   0;
	if (rc)
		goto close_result;
	end->qp = qp;
	end->sock = pair[0];
	end->result = (struct serve_result *)(void *)end->map->addr;
	ev.data.ptr = end;
	rc = serve_send_end(qp, pair[1], result_fd);
	if (!rc && epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, pair[0], &ev))
		rc = -errno;
	close(pair[1]);
	if (rc)
		goto close_sock;
	close(result_fd);
	qp->conn.serve_end = end;
	qp->conn.mems_sent++;
	return 0;
close_sock:
	close(pair[0]);
close_result:
	close(result_fd);
	shm_map_put(end->map);
free_end:
	gn_free(end);
	return rc;
}

void shm_serve_withdraw(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	struct serve_end *end = qp->conn.serve_end;

	if (!end)
		return;
	qp->conn.serve_end = NULL;
	pthread_mutex_lock(&fabric->serve_lock);
	serve_end_close(fabric->serve, end);
	end->next_dead = fabric->serve->dead;
	fabric->serve->dead = end;
	pthread_mutex_unlock(&fabric->serve_lock);
	serve_wake(fabric->serve);
}

/* ---- the peer ---- */

/* The socket could be of any type; a Unix socket never makes a send wait. */
static bool serve_sock_ok(int sock)
{
	int domain = 0, type = 0;
	socklen_t len = sizeof(int);

	return sock >= 0 && !getsockopt(sock, SOL_SOCKET, SO_DOMAIN, &domain, &len) &&
	       !getsockopt(sock, SOL_SOCKET, SO_TYPE, &type, &len) && domain == AF_UNIX &&
	       type == SOCK_SEQPACKET;
}

int shm_served_take(struct shm_qp *qp, int *fds)
{
	struct shm_served *s = &qp->conn.served;
	int rc;

	if (s->request || !serve_sock_ok(fds[0]) || fds[1] < 0)
		return -EPROTO;
	s->request = malloc(sizeof(struct serve_request) + SERVE_CHUNK);
	if (!s->request)
		return -ENOMEM;
	s->sock = fds[0];
	fds[0] = -1;
	rc = shm_conn_map(qp, fds[1], sizeof(struct serve_result), &s->map);
	if (rc)
		return rc;
	s->result = (const struct serve_result *)(const void *)s->map->addr;
	return 0;
}

void shm_served_fini(struct shm_served *s)
{
	shm_close_sock(s->sock);
	shm_map_put(s->map);
	free(s->request);
}

/* Sends the request for the next part. */
static int served_send(struct shm_conn *c, const struct gn_wr *wr, uint64_t len)
{
	struct shm_served *s = &c->served;
	struct serve_request *rq = s->request;
	uint64_t with = 0;

	*rq = (struct serve_request){.op = wr->op == GN_OP_WRITE_IMM ? GN_OP_WRITE : wr->op,
				     .key = wr->to.remote.key,
				     .offset = wr->to.remote.offset + s->done,
				     .length = len - s->done < SERVE_CHUNK ? len - s->done :
									     SERVE_CHUNK,
				     .compare = wr->to.remote.compare,
				     .swap = wr->to.remote.swap,
				     .serial = s->serial + 1};
	if (rq->op == GN_OP_WRITE) {
		with = rq->length;
		soft_gather((uint8_t *)(rq + 1), wr->sge, wr->n_sge, s->done, with);
	}
	/* Pairs with the acquire in serve_run(): the last result has been read. */
	__atomic_store_n(&c->own_area->busy.requested, rq->serial, __ATOMIC_RELEASE);
	if (send(s->sock, rq, sizeof(*rq) + with, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	s->serial++;
	s->pending = true;
	return 0;
}

/* Takes the result of a part, if it is there. */
static bool served_poll(struct shm_served *s, const struct gn_wr *wr, enum gn_wc_status *status)
{
	const struct serve_result *result = s->result;
	const uint64_t len = s->request->length;

	/* Pairs with the release in serve_one(). */
	if (__atomic_load_n(&result->serial, __ATOMIC_ACQUIRE) != s->serial)
		return false;
	*status = __atomic_load_n(&result->status, __ATOMIC_RELAXED) == GN_WC_OK ?
			  GN_WC_OK :
			  GN_WC_REMOTE_ACCESS;
	s->pending = false;
	s->since_ns = 0;
	if (*status != GN_WC_OK)
		return true;
	if (wr->op == GN_OP_READ) {
		soft_scatter(wr->sge, wr->n_sge, s->done, result->data, len);
	} else if (wr->op == GN_OP_CAS || wr->op == GN_OP_FAA) {
		const uint64_t old = __atomic_load_n(&result->old, __ATOMIC_RELAXED);

		soft_scatter(wr->sge, wr->n_sge, 0, (const uint8_t *)&old, sizeof(old));
	}
	s->done += len;
	return true;
}

enum send_result shm_served_access(struct shm_qp *qp, const struct gn_wr *wr, uint64_t len,
				   enum gn_wc_status *status)
{
	struct shm_served *s = &qp->conn.served;

	s->active = true;
	do {
		const int rc = s->pending ? 0 : served_send(&qp->conn, wr, len);

		*status = GN_WC_RETRY;
		if (rc && rc != -EAGAIN)
			return SEND_FAILED;
		if (rc || !served_poll(s, wr, status)) {
			const uint64_t now = gn_now_ns();

			if (!s->since_ns)
				s->since_ns = now;
			return now - s->since_ns < SHM_SERVE_WAIT_NS ? SEND_BLOCKED : SEND_FAILED;
		}
	} while (*status == GN_WC_OK && s->done < len);
	s->done = 0;
	s->active = false;
	return *status == GN_WC_OK ? SEND_DONE : SEND_FAILED;
}
