/* SPDX-License-Identifier: MIT */
/*
 * Listeners and handshakes. A listener is a Unix socket with a lock file in the provider's
 * directory. The client's first message carries its area and grants; the reply carries the
 * server's.
 */
#include "base/fail.h"
#include "base/list.h"
#include "fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define LOCK_TRIES    5
#define LOCK_RETRY_US 1000
#define SWEEP_WAIT_US 1000000 /* longest wait for a sweep, which takes microseconds */
#define HANDSHAKE_MAX 64      /* messages and mems per call */
#define BACKLOG	      4096
#define ACCEPT_MAX    64      /* clients per call */
#define RETRY_NS      1000000 /* until the next attempt when the listener's backlog is full */

struct shm_pending {
	struct chan_fd sock;
	uid_t uid;
	uint64_t deadline_ns;
	struct shm_listener *listener;
	struct shm_pending *next, **prev;
};

/* ---- listening ---- */

/*
 * The holder of the exclusive lock owns the name; the lock of a dead owner is free, whatever files
 * are left. A sweep holds the lock shared while it removes a dead owner's files (sweep.c), and may
 * be descheduled meanwhile, so wait for it.
 */
static int listener_lock_name(struct shm_listener *l, const char *path)
{
	const uint64_t deadline_ns = gn_deadline_us(SWEEP_WAIT_US);
	struct stat by_fd, by_path;

	for (int owned = 0; owned < LOCK_TRIES;) {
		const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		int rc;

		if (fd < 0)
			return -errno;
		rc = flock(fd, LOCK_EX | LOCK_NB) ? -errno : 0;
		/* The last holder may have removed the file between our open and our lock. */
		if (!rc && !fstat(fd, &by_fd) && !stat(path, &by_path) &&
		    by_fd.st_ino == by_path.st_ino) {
			l->lock_fd = fd;
			return 0;
		}
		if (rc)
			owned += flock(fd, LOCK_SH | LOCK_NB) != 0;
		close(fd);
		if (rc && rc != -EWOULDBLOCK)
			return rc;
		if (gn_now_ns() >= deadline_ns)
			break;
		if (rc)
			gn_sleep_us(LOCK_RETRY_US); /* the owner may be about to close */
	}
	return -EADDRINUSE;
}

/* Listener names have no tilde, so no listener name collides with this file. */
static void listener_lock_path(const struct shm_fabric *fabric, const char *name, char *out,
			       size_t size)
{
	snprintf(out, size, "%s/%s" SHM_LOCK_SUFFIX, fabric->dir, name);
}

static void listener_ready(struct chan_fd *cfd);
static void listener_timer(struct chan_fd *cfd);

static int listener_bind(struct shm_listener *l)
{
	struct sockaddr_un addr;
	const mode_t mode = l->listener.flags & GN_ANY_USER ? 0666 : 0600;
	int rc;

	shm_path(shm_of(&l->listener.obj), l->name, &addr);
	unlink(addr.sun_path); /* we hold the lock: any existing socket is stale */
	l->sock.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->sock.fd < 0)
		return -errno;
	/* No client can connect before listen(), so the mode is never too permissive. */
	if (bind(l->sock.fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    chmod(addr.sun_path, mode) || listen(l->sock.fd, BACKLOG)) {
		rc = -errno;
		close(l->sock.fd);
		return rc;
	}
	return 0;
}

int shm_listen_init(struct gn_listener *base, const char *name)
{
	struct shm_listener *l = (struct shm_listener *)base;
	char path[sizeof(struct sockaddr_un)];
	struct sockaddr_un addr;
	int rc = shm_addr_check(base->obj.fabric, name);

	if (rc)
		return rc;
	snprintf(l->name, sizeof(l->name), "%s", name);
	listener_lock_path(shm_of(&base->obj), name, path, sizeof(path));
	rc = listener_lock_name(l, path);
	if (rc)
		goto say;
	rc = listener_bind(l);
	if (rc)
		goto unlock;
	l->sock.ready = listener_ready;
	l->timer =
		(struct chan_fd){.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
				 .ready = listener_timer};
	rc = l->timer.fd < 0 ? -errno : chan_fds_add(base->chan, &l->timer);
	if (rc)
		goto close_timer;
	rc = chan_fds_add(base->chan, &l->sock);
	if (rc)
		goto close_timer;
	l->spare_fd = eventfd(0, EFD_CLOEXEC);
	return 0;
close_timer:
	if (l->timer.fd >= 0) {
		chan_fds_del(base->chan, &l->timer);
		close(l->timer.fd);
	}
	close(l->sock.fd);
	shm_path(shm_of(&base->obj), name, &addr);
	unlink(addr.sun_path);
unlock:
	unlink(path);
	close(l->lock_fd);
say:
	gn_fail_log(0, "shm: cannot listen as '%s' in %s: %s", name, shm_of(&base->obj)->dir,
		    rc == -EADDRINUSE ? "another server uses this name" : gn_strerror(rc));
	return rc;
}

/* Removes the entry; its socket stays open. */
static int pending_release(struct shm_pending *p)
{
	const int sock = p->sock.fd;

	chan_fds_del(p->listener->listener.chan, &p->sock);
	list_remove(p);
	p->listener->n_pending--;
	gn_free(p);
	return sock;
}

static void pending_drop(struct shm_pending *p)
{
	shm_close_sock(pending_release(p));
}

void shm_listen_fini(struct gn_listener *base)
{
	struct shm_listener *l = (struct shm_listener *)base;
	char path[sizeof(struct sockaddr_un)];
	struct sockaddr_un addr;

	while (l->pending)
		pending_drop(l->pending);
	chan_fds_del(base->chan, &l->timer);
	close(l->timer.fd);
	chan_fds_del(base->chan, &l->sock);
	shm_path(shm_of(&base->obj), l->name, &addr);
	unlink(addr.sun_path);
	shm_close_listener(l->sock.fd);
	listener_lock_path(shm_of(&base->obj), l->name, path, sizeof(path));
	unlink(path);
	close(l->lock_fd);
	if (l->spare_fd >= 0)
		close(l->spare_fd);
}

static void hello_fill(struct wire_hello *hello, enum wire_type type, uint32_t rq_size,
		       const void *data, uint32_t len)
{
	*hello = (struct wire_hello){
		.head = wire_head(type), .rq_size = rq_size, .private_len = len};
	if (len)
		memcpy(hello->private_data, data, len);
}

static void hello_reject(int sock, uint32_t error, const void *private_data, uint32_t private_len)
{
	struct wire_hello hello;

	hello_fill(&hello, WIRE_REJECT, error, private_data, private_len);
	wire_send(sock, &hello, sizeof(hello), NULL, 0);
}

static bool listener_allows(const struct shm_listener *l, int sock, uid_t *uid)
{
	if (wire_peer(sock, uid) != PEER_OTHER_USER || l->listener.flags & GN_ANY_USER)
		return true;
	gn_log(GN_LOG_WARN, "shm: '%s' refused a process of user %u", l->name, *uid);
	hello_reject(sock, EACCES, NULL, 0);
	return false;
}

/* Turns a client's HELLO into a request. -EAGAIN: not arrived; otherwise sock is consumed. */
static int listener_take_hello(struct shm_listener *l, int sock)
{
	union wire_any msg;
	int fds[WIRE_FDS], rc;
	struct gn_conn_req *base;
	struct shm_req *req;
	const ssize_t len = wire_recv(sock, &msg, fds);

	if (len == -EAGAIN)
		return -EAGAIN;
	rc = __atomic_load_n(&l->n_requests, __ATOMIC_RELAXED) < SHM_REQUESTS_MAX ? 0 : -EBUSY;
	if (!rc && len == -EMFILE) { /* no descriptors for the client's fds; tell the client */
		hello_reject(sock, EMFILE, NULL, 0);
		rc = -EMFILE;
	}
	if (!rc && (!wire_is(&msg, len, WIRE_HELLO, sizeof(msg.hello)) || fds[1] < 0 ||
		    fds[2] >= 0 || msg.hello.private_len > PRIVATE_CONNECT_MAX)) {
		if (len > 0)
			gn_log(GN_LOG_WARN, "shm: '%s': a client's HELLO is not of version %u",
			       l->name, WIRE_VERSION);
		rc = -EPROTO;
	}
	if (!rc)
		rc = req_create(&l->listener, &base);
	if (rc) {
		if (len > 0)
			wire_close_fds(fds);
		shm_close_sock(sock);
		return rc == -EAGAIN ? -EBUSY : rc;
	}
	req = (struct shm_req *)base;
	req->sock = sock;
	req->rq_size = msg.hello.rq_size;
	req->area_fd = fds[0];
	req->grants_fd = fds[1];
	base->private_len = msg.hello.private_len;
	memcpy(base->private_data, msg.hello.private_data, base->private_len);
	__atomic_fetch_add(&l->n_requests, 1, __ATOMIC_RELAXED);
	req_push(base);
	return 0;
}

/* ---- clients without a HELLO: bounded in number and time ---- */

static void timer_set_ns(int fd, uint64_t ns)
{
	const struct itimerspec spec = {.it_value = {.tv_sec = (time_t)(ns / 1000000000),
						     .tv_nsec = (long)(ns % 1000000000)}};

	timerfd_settime(fd, 0, &spec, NULL);
}

/* Sets the timer to the next deadline: a pending client's, or the next accept attempt. */
static void listener_set_timer(struct shm_listener *l)
{
	const uint64_t now = gn_now_ns();
	uint64_t next = l->paused_to_ns ? l->paused_to_ns : UINT64_MAX;

	for (const struct shm_pending *p = l->pending; p; p = p->next)
		next = p->deadline_ns < next ? p->deadline_ns : next;
	if (next != UINT64_MAX)
		timer_set_ns(l->timer.fd, next > now ? next - now : 1);
}

static void pending_add(struct shm_listener *l, int sock, uid_t uid, uint64_t deadline_ns);

static void pending_ready(struct chan_fd *cfd)
{
	struct shm_pending *p = container_of(cfd, struct shm_pending, sock);
	struct shm_listener *l = p->listener;
	const uint64_t deadline_ns = p->deadline_ns;
	const uid_t uid = p->uid;
	const int sock = pending_release(p);

	if (listener_take_hello(l, sock) == -EAGAIN)
		pending_add(l, sock, uid, deadline_ns);
}

/* The oldest pending client of the user with the most: one user cannot displace another. */
static struct shm_pending *listener_pick_victim(const struct shm_listener *l)
{
	struct shm_pending *victim = NULL;
	unsigned most = 0;

	for (struct shm_pending *p = l->pending; p; p = p->next) {
		unsigned n = 0;

		for (const struct shm_pending *q = l->pending; q; q = q->next)
			n += q->uid == p->uid;
		if (n >= most) { /* the list is sorted newest first */
			most = n;
			victim = p;
		}
	}
	return victim;
}

static void pending_add(struct shm_listener *l, int sock, uid_t uid, uint64_t deadline_ns)
{
	struct shm_pending *p = gn_alloc(sizeof(*p), 0);

	if (!p) {
		shm_close_sock(sock);
		return;
	}
	p->sock = (struct chan_fd){.fd = sock, .ready = pending_ready};
	p->uid = uid;
	p->deadline_ns = deadline_ns;
	p->listener = l;
	list_push(&l->pending, p);
	l->n_pending++;
	if (chan_fds_add(l->listener.chan, &p->sock))
		pending_drop(p);
	else if (l->n_pending > SHM_PENDING_MAX)
		pending_drop(listener_pick_victim(l));
	listener_set_timer(l);
}

/* Tells the next client that there is no descriptor for it, using the spare descriptor. */
static void listener_refuse_one(struct shm_listener *l)
{
	if (l->spare_fd >= 0) {
		int sock;

		close(l->spare_fd);
		sock = accept4(l->sock.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock >= 0) {
			hello_reject(sock, EMFILE, NULL, 0);
			shm_close_sock(sock);
		}
	}
	l->spare_fd = eventfd(0, EFD_CLOEXEC);
}

/* No descriptor for the next client: stop polling the socket for a while, instead of spinning. */
static void listener_pause(struct shm_listener *l, int error)
{
	if (!l->full_logged)
		gn_fail_log(0, "shm: '%s' cannot accept a client: %s%s", l->name,
			    gn_strerror(-error), error == EMFILE ? " (ulimit -n)" : "");
	l->full_logged = true;
	if (error == EMFILE)
		listener_refuse_one(l);
	chan_fds_del(l->listener.chan, &l->sock);
	l->paused_to_ns = gn_now_ns() + SHM_ACCEPT_RETRY_NS;
	listener_set_timer(l);
}

static void listener_timer(struct chan_fd *cfd)
{
	struct shm_listener *l = container_of(cfd, struct shm_listener, timer);
	const uint64_t now = gn_now_ns();
	uint64_t n;

	if (read(cfd->fd, &n, sizeof(n)) < 0)
		return;
	for (struct shm_pending *p = l->pending, *next; p; p = next) {
		next = p->next;
		if (p->deadline_ns <= now)
			pending_drop(p);
	}
	if (l->paused_to_ns && l->paused_to_ns <= now)
		l->paused_to_ns =
			chan_fds_add(l->listener.chan, &l->sock) ? now + SHM_ACCEPT_RETRY_NS : 0;
	listener_set_timer(l);
}

static void listener_ready(struct chan_fd *cfd)
{
	struct shm_listener *l = container_of(cfd, struct shm_listener, sock);

	for (int i = 0; i < ACCEPT_MAX; i++) {
		const int sock = accept4(l->sock.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		uid_t uid;

		if (sock < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				listener_pause(l, errno);
			return;
		}
		l->full_logged = false;
		if (!listener_allows(l, sock, &uid))
			shm_close_sock(sock);
		else if (listener_take_hello(l, sock) == -EAGAIN)
			pending_add(l, sock, uid, gn_now_ns() + SHM_HELLO_NS);
	}
}

/* ---- connecting ---- */

static void conn_connect_failed(struct shm_qp *qp, enum gn_event_type type, int status)
{
	if (type == GN_EVENT_UNREACHABLE)
		shm_name_folder(&qp->qp, status);
	if (type == GN_EVENT_UNREACHABLE && status != -ECANCELED && *qp->conn.connect_addr.sun_path)
		gn_log(GN_LOG_INFO, "shm: no connection to %s: %s", qp->conn.connect_addr.sun_path,
		       gn_strerror(status));
	shm_conn_fini(qp);
	shm_qp_fail(qp);
	qp_refused(&qp->qp, type, status);
}

/* Handles the listener's reply. Its mems arrive before the reply, which allows their use. */
static void conn_handshake(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;
	union wire_any msg;
	int fds[WIRE_FDS], rc = 0;
	bool accepted, rejected;
	ssize_t len;
	uint32_t work = 0;

	do {
		if (work >= HANDSHAKE_MAX) /* continue later; let others run */
			return;
		len = wire_recv(c->sock.fd, &msg, fds);
		/* A rejecting server left messages unread: ECONNRESET comes before its reply. */
		if (len == -ECONNRESET)
			len = wire_recv(c->sock.fd, &msg, fds);
		if (len == -EAGAIN)
			return;
		accepted = wire_is(&msg, len, WIRE_ACCEPT, sizeof(msg.hello)) && fds[1] >= 0;
		rejected = wire_is(&msg, len, WIRE_REJECT, sizeof(msg.hello));
		if (accepted || rejected || len <= 0)
			break;
		rc = shm_conn_handle(qp, &msg, len, fds);
		wire_close_fds(fds);
		work += wire_cost(&msg);
	} while (!rc);
	if ((accepted || rejected) && msg.hello.private_len <= GN_PRIVATE_MAX) {
		qp->qp.private_len = msg.hello.private_len;
		memcpy(qp->qp.private_data, msg.hello.private_data, msg.hello.private_len);
	}
	if (accepted && qp->qp.state == GN_QP_CONNECTING) {
		chan_fds_del(qp->qp.chan, &c->timer);
		close(c->timer.fd);
		c->timer.fd = -1;
		rc = shm_conn_attach_peer(qp, msg.hello.rq_size, fds[0], fds[1]);
		if (!rc)
			rc = shm_conn_watch(qp);
	}
	if (len > 0)
		wire_close_fds(fds);
	if (qp->qp.state != GN_QP_CONNECTING) { /* put into the error state meanwhile */
		conn_connect_failed(qp, GN_EVENT_UNREACHABLE, -ECANCELED);
	} else if (rejected) {
		conn_connect_failed(qp, GN_EVENT_REJECTED, wire_rejected(&msg.hello));
	} else if (!accepted || rc) {
		conn_connect_failed(qp, GN_EVENT_UNREACHABLE,
				    rc	    ? rc :
				    len < 0 ? (int)len :
					      -ECONNREFUSED);
	} else {
		shm_conn_ready(qp);
		shm_conn_start(qp);
		qp_established(&qp->qp);
	}
}

static void conn_sock_ready(struct chan_fd *cfd)
{
	struct shm_qp *qp = container_of(cfd, struct shm_qp, conn.sock);

	if (qp->conn.phase == CONN_HELLO_SENT) {
		conn_handshake(qp);
	} else {
		shm_conn_pump(qp);
		shm_conn_catch_up(qp);
	}
}

/* Returns 0, -EAGAIN while the listener's backlog is full, or an error. */
static int conn_connect_once(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;
	const int fds[2] = {c->hello_area_fd, ((struct shm_pd *)qp->qp.pd)->grants_fd};
	int rc;

	if (connect(c->sock.fd, (struct sockaddr *)&c->connect_addr, sizeof(c->connect_addr)))
		return errno == ENOENT ? -ECONNREFUSED : -errno;
	rc = shm_conn_identify(qp);
	if (rc)
		return rc;
	rc = wire_send(c->sock.fd, &c->hello, sizeof(c->hello), fds, 2);
	if (rc)
		return rc;
	close(c->hello_area_fd);
	c->hello_area_fd = -1;
	c->phase = CONN_HELLO_SENT;
	rc = chan_fds_add(qp->qp.chan, &c->sock);
	if (!rc) {
		c->watched = true;
		rc = shm_conn_join(qp);
	}
	return rc == -EPIPE ? 0 : rc; /* the listener has replied already; read the reply */
}

/* Connects; the timer calls again for another attempt. */
static void conn_try_connect(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;
	const uint64_t now = gn_now_ns();
	int rc;

	if (qp->qp.state != GN_QP_CONNECTING || now >= c->connect_deadline_ns) {
		conn_connect_failed(qp, GN_EVENT_UNREACHABLE,
				    now >= c->connect_deadline_ns ? -ETIMEDOUT : -ECANCELED);
		return;
	}
	rc = c->phase == CONN_NONE ? conn_connect_once(qp) : 0;
	if (rc && rc != -EAGAIN)
		conn_connect_failed(qp, GN_EVENT_UNREACHABLE, rc);
	else
		timer_set_ns(c->timer.fd, rc ? RETRY_NS : c->connect_deadline_ns - now);
}

static void conn_timer_ready(struct chan_fd *cfd)
{
	struct shm_qp *qp = container_of(cfd, struct shm_qp, conn.timer);
	uint64_t n;

	if (read(cfd->fd, &n, sizeof(n)) < 0)
		return;
	conn_try_connect(qp);
}

static uint64_t rnr_budget(const struct gn_conn_opts *opts)
{
	return (uint64_t)opts->rnr_retry * opts->rnr_timer_us * 1000;
}

int shm_connect(struct gn_qp *base, const char *name, const struct gn_conn_opts *opts)
{
	struct shm_qp *qp = (struct shm_qp *)base;
	struct shm_conn *c = &qp->conn;
	int rc = shm_addr_check(base->obj.fabric, name);

	if (rc)
		return rc;
	shm_qp_join(qp);
	c->sock = (struct chan_fd){.ready = conn_sock_ready};
	c->sock.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	c->timer = (struct chan_fd){.ready = conn_timer_ready};
	c->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (c->sock.fd < 0 || c->timer.fd < 0) {
		rc = -errno;
		gn_fail_log(0, "shm: cannot connect: %s", gn_strerror(rc));
		goto undo;
	}
	rc = shm_conn_create_area(qp, &c->hello_area_fd);
	if (rc)
		goto undo;
	rc = chan_fds_add(base->chan, &c->timer);
	if (rc)
		goto undo;
	shm_path(shm_of(&base->obj), name, &c->connect_addr);
	hello_fill(&c->hello, WIRE_HELLO, c->own_rq_size, opts->private_data, opts->private_len);
	c->connect_deadline_ns = gn_deadline_us(opts->timeout_us);
	c->rnr_budget_ns = rnr_budget(opts);
	base->state = GN_QP_CONNECTING;
	conn_try_connect(qp);
	return 0;
undo:
	shm_conn_fini(qp);
	c->phase = CONN_NONE;
	return rc;
}

static void req_close(struct shm_req *req)
{
	if (req->req.listener)
		__atomic_fetch_sub(&((struct shm_listener *)req->req.listener)->n_requests, 1,
				   __ATOMIC_RELAXED);
	shm_close_sock(req->sock);
	shm_close_fd(req->area_fd);
	shm_close_fd(req->grants_fd);
}

/* The owner may sleep on the cq's channel, which the qp's event does not wake. */
static void qp_hand_over(struct shm_qp *qp)
{
	struct gn_chan *chan = qp->qp.chan;
	struct gn_cq *cq = qp->qp.recv_cq;

	obj_hold(&cq->obj);
	qp_established_for(&qp->qp, shm_cq_hand_over);
	if (cq->chan && cq->chan != chan)
		chan_push(cq->chan, &cq->ev_completion);
	obj_release(&cq->obj);
}

/* Touches neither cqs nor channel before the last step, which cannot fail. */
int shm_accept(struct gn_conn_req *base_req, struct gn_qp *base, const struct gn_conn_opts *opts)
{
	struct shm_req *req = (struct shm_req *)base_req;
	struct shm_qp *qp = (struct shm_qp *)base;
	struct shm_cq *cq = (struct shm_cq *)base->recv_cq;
	struct shm_conn *c = &qp->conn;
	struct wire_hello hello;
	int rc, fds[2] = {-1, ((struct shm_pd *)base->pd)->grants_fd};

	c->sock = (struct chan_fd){.fd = dup(req->sock), .ready = conn_sock_ready};
	rc = c->sock.fd < 0 ? -errno : shm_conn_create_area(qp, &fds[0]);
	if (rc)
		goto fail;
	fcntl(c->sock.fd, F_SETFD, FD_CLOEXEC);
	rc = shm_conn_identify(qp);
	if (rc)
		goto fail;
	c->rnr_budget_ns = rnr_budget(opts);
	hello_fill(&hello, WIRE_ACCEPT, c->own_rq_size, opts->private_data, opts->private_len);
	rc = shm_conn_attach_peer(qp, req->rq_size, req->area_fd, req->grants_fd);
	/* Send the mems before the ACCEPT that allows their use. */
	if (!rc)
		rc = shm_conn_join(qp);
	if (!rc)
		rc = wire_send(c->sock.fd, &hello, sizeof(hello), fds, 2);
	if (rc)
		goto fail;
	close(fds[0]);
	close(req->sock); /* the qp has its own descriptor */
	req->sock = -1;
	req_close(req);
	shm_conn_ready(qp);
	if (base->shared) { /* the caller holds the owner's lock */
		qp_established_for(base, shm_cq_hand_over);
		shm_cq_admit(cq);
	} else {
		qp_hand_over(qp);
	}
	return 0;
fail:
	/* A client may change its mind: it is interrupted, or its deadline passes. */
	if (rc == -EPIPE)
		gn_log(GN_LOG_INFO, "shm: a connection was not accepted: the client disconnected");
	else
		gn_log(GN_LOG_WARN, "shm: cannot accept a connection: %s", gn_strerror(rc));
	if (fds[0] >= 0)
		close(fds[0]);
	if (rc == -EMFILE)
		hello_reject(req->sock, EMFILE, NULL, 0);
	req_close(req);
	shm_conn_fini(qp);
	c->phase = CONN_NONE;
	base->state = GN_QP_NEW;
	return rc == -EPIPE ? -ECONNABORTED : rc;
}

int shm_reject(struct gn_conn_req *base, const void *private_data, uint32_t private_len)
{
	struct shm_req *req = (struct shm_req *)base;

	hello_reject(req->sock, 0, private_data, private_len);
	req_close(req);
	return 0;
}

int shm_disconnect(struct gn_qp *base)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	shm_qp_adopt(base);
	if (base->state == GN_QP_CONNECTING) {
		conn_connect_failed(qp, GN_EVENT_UNREACHABLE, -ECANCELED);
		return 0;
	}
	if (qp->conn.phase != CONN_UP)
		return -ENOTCONN;
	shm_qp_fail(qp);
	__atomic_store_n(&qp->conn.own_area->conn_state.state, AREA_CLOSED, __ATOMIC_RELEASE);
	/* Our half only: the peer's close must still be detected while its copies are awaited. */
	shutdown(qp->conn.sock.fd, SHUT_WR);
	qp_disconnected(base);
	return 0;
}
