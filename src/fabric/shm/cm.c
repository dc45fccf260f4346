/* SPDX-License-Identifier: MIT */
/*
 * Names and handshakes. A listener is a Unix socket under a lock file in our folder; the client's
 * first message brings its area and grants, the answer brings the server's.
 */
#include "base/fail.h"
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
#define LOCK_NAP_US   1000
#define SWEEP_US      1000000 /* that a sweep is waited for; it takes microseconds, if it runs */
#define HANDSHAKE_MAX 64      /* messages and mems taken at a time */
#define BACKLOG	      4096
#define ACCEPT_MAX    64      /* clients taken at a time */
#define RETRY_NS      1000000 /* a listener's backlog was full: try again */

struct shm_pending {
	struct chan_fd sock;
	uid_t uid;
	uint64_t deadline_ns;
	struct shm_listener *listener;
	struct shm_pending *next, **prev;
};

/* ---- listening ---- */

/*
 * The lock says who owns the name; a dead owner's lock is free, whatever files it left. An owner
 * has it exclusively. A sweep has it shared while it removes what a dead owner left (sweep.c), and
 * may lose its core meanwhile: it is waited for.
 */
static int lock_name(struct shm_listener *l, const char *path)
{
	const uint64_t deadline_ns = gn_deadline_us(SWEEP_US);
	struct stat by_fd, by_path;

	for (int owned = 0; owned < LOCK_TRIES;) {
		const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		int rc;

		if (fd < 0)
			return -errno;
		rc = flock(fd, LOCK_EX | LOCK_NB) ? -errno : 0;
		/* Who had it may have removed the file between our open and our lock. */
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
			gn_sleep_us(LOCK_NAP_US); /* an owner may be about to go */
	}
	return -EADDRINUSE;
}

/* No name has a tilde in it, so no listener can take this one's lock. */
static void lock_path(const struct shm_fabric *fabric, const char *name, char *out, size_t size)
{
	snprintf(out, size, "%s/%s" SHM_LOCK_SUFFIX, fabric->dir, name);
}

static void listener_ready(struct chan_fd *cfd);
static void listener_timer(struct chan_fd *cfd);

static int bind_name(struct shm_listener *l)
{
	struct sockaddr_un addr;
	const mode_t mode = l->listener.flags & GN_ANY_USER ? 0666 : 0600;
	int rc;

	shm_path(shm_of(&l->listener.obj), l->name, &addr);
	unlink(addr.sun_path); /* we hold the lock: whatever is there is stale */
	l->sock.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->sock.fd < 0)
		return -errno;
	/* Nobody can connect before listen(), so there is no moment with the wrong mode. */
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
	int rc;

	if (!shm_name_ok(name))
		return gn_fail_log(-EINVAL, "shm: '%.80s' is no name: 1 to 64 of A-Z a-z 0-9 . _ -",
				   name);
	snprintf(l->name, sizeof(l->name), "%s", name);
	lock_path(shm_of(&base->obj), name, path, sizeof(path));
	rc = lock_name(l, path);
	if (rc)
		goto say;
	rc = bind_name(l);
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
		    rc == -EADDRINUSE ? "a server has this name already" : gn_strerror(rc));
	return rc;
}

/* Unlink the entry; its socket lives on. */
static int release_pending(struct shm_pending *p)
{
	const int sock = p->sock.fd;

	chan_fds_del(p->listener->listener.chan, &p->sock);
	*p->prev = p->next;
	if (p->next)
		p->next->prev = p->prev;
	p->listener->n_pending--;
	gn_free(p);
	return sock;
}

static void drop_pending(struct shm_pending *p)
{
	shm_close_sock(release_pending(p));
}

void shm_listen_fini(struct gn_listener *base)
{
	struct shm_listener *l = (struct shm_listener *)base;
	char path[sizeof(struct sockaddr_un)];
	struct sockaddr_un addr;

	while (l->pending)
		drop_pending(l->pending);
	chan_fds_del(base->chan, &l->timer);
	close(l->timer.fd);
	chan_fds_del(base->chan, &l->sock);
	shm_path(shm_of(&base->obj), l->name, &addr);
	unlink(addr.sun_path);
	shm_close_listener(l->sock.fd);
	lock_path(shm_of(&base->obj), l->name, path, sizeof(path));
	unlink(path);
	close(l->lock_fd);
	if (l->spare_fd >= 0)
		close(l->spare_fd);
}

static void fill_hello(struct wire_hello *hello, enum wire_type type, uint32_t rq_size,
		       const void *data, uint32_t len)
{
	*hello = (struct wire_hello){
		.head = wire_head(type), .rq_size = rq_size, .private_len = len};
	if (len)
		memcpy(hello->private_data, data, len);
}

static void reject(int sock, uint32_t error, const void *private_data, uint32_t private_len)
{
	struct wire_hello hello;

	fill_hello(&hello, WIRE_REJECT, error, private_data, private_len);
	wire_send(sock, &hello, sizeof(hello), NULL, 0);
}

static bool peer_allowed(const struct shm_listener *l, int sock, uid_t *uid)
{
	if (wire_peer(sock, uid) != PEER_STRANGER || l->listener.flags & GN_ANY_USER)
		return true;
	gn_log(GN_LOG_WARN, "shm: '%s' refused a process of user %u", l->name, *uid);
	reject(sock, EACCES, NULL, 0);
	return false;
}

/*
 * The client's first message: make a request of it. -EAGAIN: not here yet; otherwise the socket is
 * taken.
 */
static int take_hello(struct shm_listener *l, int sock)
{
	union wire_any msg;
	int fds[WIRE_FDS], rc;
	struct gn_conn_req *base;
	struct shm_req *req;
	const ssize_t len = wire_recv(sock, &msg, fds);

	if (len == -EAGAIN)
		return -EAGAIN;
	rc = __atomic_load_n(&l->n_requests, __ATOMIC_RELAXED) < SHM_REQUESTS_MAX ? 0 : -EBUSY;
	if (!rc && len == -EMFILE) { /* there is no room for the client's; it hears so */
		reject(sock, EMFILE, NULL, 0);
		rc = -EMFILE;
	}
	if (!rc && (!wire_is(&msg, len, WIRE_HELLO, sizeof(msg.hello)) || fds[1] < 0 ||
		    fds[2] >= 0 || msg.hello.private_len > PRIVATE_CONNECT_MAX)) {
		if (len > 0)
			gn_log(GN_LOG_WARN,
			       "shm: '%s': a client said nothing this version (%u) understands",
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

/*
 * ---- clients that connected and said nothing yet: few, and not for long ----
 */

static void set_timer(int fd, uint64_t ns)
{
	const struct itimerspec spec = {.it_value = {.tv_sec = (time_t)(ns / 1000000000),
						     .tv_nsec = (long)(ns % 1000000000)}};

	timerfd_settime(fd, 0, &spec, NULL);
}

/* The next thing that is due: a client's time is over, or accepting is tried again. */
static void set_listener_timer(struct shm_listener *l)
{
	const uint64_t now = gn_now_ns();
	uint64_t next = l->paused_to_ns ? l->paused_to_ns : UINT64_MAX;

	for (const struct shm_pending *p = l->pending; p; p = p->next)
		next = p->deadline_ns < next ? p->deadline_ns : next;
	if (next != UINT64_MAX)
		set_timer(l->timer.fd, next > now ? next - now : 1);
}

static void keep_pending(struct shm_listener *l, int sock, uid_t uid, uint64_t deadline_ns);

static void pending_ready(struct chan_fd *cfd)
{
	struct shm_pending *p = container_of(cfd, struct shm_pending, sock);
	struct shm_listener *l = p->listener;
	const uint64_t deadline_ns = p->deadline_ns;
	const uid_t uid = p->uid;
	const int sock = release_pending(p);

	if (take_hello(l, sock) == -EAGAIN)
		keep_pending(l, sock, uid, deadline_ns);
}

/* The oldest of the user with most of them, so that no user can drive out another's. */
static struct shm_pending *one_too_many(const struct shm_listener *l)
{
	struct shm_pending *victim = NULL;
	unsigned most = 0;

	for (struct shm_pending *p = l->pending; p; p = p->next) {
		unsigned n = 0;

		for (const struct shm_pending *q = l->pending; q; q = q->next)
			n += q->uid == p->uid;
		if (n >= most) { /* the list has the newest first */
			most = n;
			victim = p;
		}
	}
	return victim;
}

static void keep_pending(struct shm_listener *l, int sock, uid_t uid, uint64_t deadline_ns)
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
	p->next = l->pending;
	p->prev = &l->pending;
	if (p->next)
		p->next->prev = &p->next;
	l->pending = p;
	l->n_pending++;
	if (chan_fds_add(l->listener.chan, &p->sock))
		drop_pending(p);
	else if (l->n_pending > SHM_PENDING_MAX)
		drop_pending(one_too_many(l));
	set_listener_timer(l);
}

/* The next client hears that there is no descriptor for it, by the one that is kept for that. */
static void turn_away(struct shm_listener *l)
{
	if (l->spare_fd >= 0) {
		int sock;

		close(l->spare_fd);
		sock = accept4(l->sock.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock >= 0) {
			reject(sock, EMFILE, NULL, 0);
			shm_close_sock(sock);
		}
	}
	l->spare_fd = eventfd(0, EFD_CLOEXEC);
}

/* There is no descriptor for the next client: look away for a moment, or this would spin. */
static void pause_listener(struct shm_listener *l, int error)
{
	if (!l->said_full)
		gn_fail_log(0, "shm: '%s' cannot take a client: %s%s", l->name, gn_strerror(-error),
			    error == EMFILE ? " (ulimit -n)" : "");
	l->said_full = true;
	if (error == EMFILE)
		turn_away(l);
	chan_fds_del(l->listener.chan, &l->sock);
	l->paused_to_ns = gn_now_ns() + SHM_ACCEPT_NAP_NS;
	set_listener_timer(l);
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
			drop_pending(p);
	}
	if (l->paused_to_ns && l->paused_to_ns <= now)
		l->paused_to_ns =
			chan_fds_add(l->listener.chan, &l->sock) ? now + SHM_ACCEPT_NAP_NS : 0;
	set_listener_timer(l);
}

static void listener_ready(struct chan_fd *cfd)
{
	struct shm_listener *l = container_of(cfd, struct shm_listener, sock);

	for (int i = 0; i < ACCEPT_MAX; i++) {
		const int sock = accept4(l->sock.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		uid_t uid;

		if (sock < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				pause_listener(l, errno);
			return;
		}
		l->said_full = false;
		if (!peer_allowed(l, sock, &uid))
			shm_close_sock(sock);
		else if (take_hello(l, sock) == -EAGAIN)
			keep_pending(l, sock, uid, gn_now_ns() + SHM_HELLO_NS);
	}
}

/* ---- connecting ---- */

static void give_up(struct shm_qp *qp, enum gn_event_type type, int status)
{
	if (type == GN_EVENT_UNREACHABLE)
		shm_name_folder(&qp->qp, status);
	if (type == GN_EVENT_UNREACHABLE && status != -ECANCELED && *qp->conn.dial_addr.sun_path)
		gn_log(GN_LOG_INFO, "shm: no connection to %s: %s", qp->conn.dial_addr.sun_path,
		       gn_strerror(status));
	shm_conn_fini(qp);
	shm_qp_fail(qp);
	qp_refused(&qp->qp, type, status);
}

/* What the listener answered. Its memory comes before that, to be here when it may be used. */
static void handshake(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;
	union wire_any msg;
	int fds[WIRE_FDS], rc = 0;
	bool accepted, rejected;
	ssize_t len;
	uint32_t work = 0;

	do {
		if (work >= HANDSHAKE_MAX) /* more in a moment; others have their turn */
			return;
		len = wire_recv(c->sock.fd, &msg, fds);
		/* Who rejects has not read all that we sent: that is told before its word. */
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
		work += wire_work(&msg);
	} while (!rc);
	if ((accepted || rejected) && msg.hello.private_len <= GN_PRIVATE_MAX) {
		qp->qp.private_len = msg.hello.private_len;
		memcpy(qp->qp.private_data, msg.hello.private_data, msg.hello.private_len);
	}
	if (accepted && qp->qp.state == GN_QP_CONNECTING) {
		chan_fds_del(qp->qp.chan, &c->timer);
		close(c->timer.fd);
		c->timer.fd = -1;
		rc = shm_conn_meet(qp, msg.hello.rq_size, fds[0], fds[1]);
		if (!rc)
			rc = shm_conn_watch(qp);
	}
	if (len > 0)
		wire_close_fds(fds);
	if (qp->qp.state != GN_QP_CONNECTING) { /* put in error meanwhile */
		give_up(qp, GN_EVENT_UNREACHABLE, -ECANCELED);
	} else if (rejected) {
		give_up(qp, GN_EVENT_REJECTED, wire_rejected(&msg.hello));
	} else if (!accepted || rc) {
		give_up(qp, GN_EVENT_UNREACHABLE, rc ? rc : len < 0 ? (int)len : -ECONNREFUSED);
	} else {
		shm_conn_ready(qp);
		shm_conn_start(qp);
		qp_established(&qp->qp);
	}
}

static void conn_ready(struct chan_fd *cfd)
{
	struct shm_qp *qp = container_of(cfd, struct shm_qp, conn.sock);

	if (qp->conn.phase == CONN_HELLO_SENT) {
		handshake(qp);
	} else {
		shm_conn_pump(qp);
		shm_conn_catch_up(qp);
	}
}

/* 0, -EAGAIN while the listener's backlog is full, or why not. */
static int dial(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;
	const int fds[2] = {c->hello_area_fd, ((struct shm_pd *)qp->qp.pd)->grants_fd};
	int rc;

	if (connect(c->sock.fd, (struct sockaddr *)&c->dial_addr, sizeof(c->dial_addr)))
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
	return rc == -EPIPE ? 0 : rc; /* the listener has answered already, and says what */
}

/* Dial, or dial again when the timer says so. */
static void try_dial(struct shm_qp *qp)
{
	struct shm_conn *c = &qp->conn;
	const uint64_t now = gn_now_ns();
	int rc;

	if (qp->qp.state != GN_QP_CONNECTING || now >= c->dial_deadline_ns) {
		give_up(qp, GN_EVENT_UNREACHABLE,
			now >= c->dial_deadline_ns ? -ETIMEDOUT : -ECANCELED);
		return;
	}
	rc = c->phase == CONN_NONE ? dial(qp) : 0;
	if (rc && rc != -EAGAIN)
		give_up(qp, GN_EVENT_UNREACHABLE, rc);
	else
		set_timer(c->timer.fd, rc ? RETRY_NS : c->dial_deadline_ns - now);
}

static void timer_ready(struct chan_fd *cfd)
{
	struct shm_qp *qp = container_of(cfd, struct shm_qp, conn.timer);
	uint64_t n;

	if (read(cfd->fd, &n, sizeof(n)) < 0)
		return;
	try_dial(qp);
}

static uint64_t rnr_budget(const struct gn_conn_opts *opts)
{
	return (uint64_t)opts->rnr_retry * opts->rnr_timer_us * 1000;
}

int shm_connect(struct gn_qp *base, const char *name, const struct gn_conn_opts *opts)
{
	struct shm_qp *qp = (struct shm_qp *)base;
	struct shm_conn *c = &qp->conn;
	int rc;

	if (!shm_name_ok(name))
		return gn_fail_log(-EINVAL, "shm: '%.80s' is no name: 1 to 64 of A-Z a-z 0-9 . _ -",
				   name);
	shm_qp_join(qp);
	c->sock = (struct chan_fd){.ready = conn_ready};
	c->sock.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	c->timer = (struct chan_fd){.ready = timer_ready};
	c->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (c->sock.fd < 0 || c->timer.fd < 0) {
		rc = -errno;
		gn_fail_log(0, "shm: cannot connect: %s", gn_strerror(rc));
		goto undo;
	}
	rc = shm_conn_mine(qp, &c->hello_area_fd);
	if (rc)
		goto undo;
	rc = chan_fds_add(base->chan, &c->timer);
	if (rc)
		goto undo;
	shm_path(shm_of(&base->obj), name, &c->dial_addr);
	fill_hello(&c->hello, WIRE_HELLO, c->mine_rq_size, opts->private_data, opts->private_len);
	c->dial_deadline_ns = gn_deadline_us(opts->timeout_us);
	c->rnr_budget_ns = rnr_budget(opts);
	base->state = GN_QP_CONNECTING;
	try_dial(qp);
	return 0;
undo:
	shm_conn_fini(qp);
	c->phase = CONN_NONE;
	return rc;
}

static void close_req(struct shm_req *req)
{
	if (req->req.listener)
		__atomic_fetch_sub(&((struct shm_listener *)req->req.listener)->n_requests, 1,
				   __ATOMIC_RELAXED);
	shm_close_sock(req->sock);
	shm_close_fd(req->area_fd);
	shm_close_fd(req->grants_fd);
}

/* The owner may be asleep on the channel of the cq, which the qp's event does not wake. */
static void hand_over(struct shm_qp *qp)
{
	struct gn_chan *chan = qp->qp.chan;
	struct gn_cq *cq = qp->qp.recv_cq;

	obj_hold(&cq->obj);
	qp_established_for(&qp->qp, shm_cq_hand_over);
	if (cq->chan && cq->chan != chan)
		chan_push(cq->chan, &cq->ev_completion);
	obj_release(&cq->obj);
}

/* Nothing of the cqs and of the channel is touched before the end, when nothing can fail. */
int shm_accept(struct gn_conn_req *base_req, struct gn_qp *base, const struct gn_conn_opts *opts)
{
	struct shm_req *req = (struct shm_req *)base_req;
	struct shm_qp *qp = (struct shm_qp *)base;
	struct shm_cq *cq = (struct shm_cq *)base->recv_cq;
	struct shm_conn *c = &qp->conn;
	struct wire_hello hello;
	int rc, fds[2] = {-1, ((struct shm_pd *)base->pd)->grants_fd};

	c->sock = (struct chan_fd){.fd = dup(req->sock), .ready = conn_ready};
	rc = c->sock.fd < 0 ? -errno : shm_conn_mine(qp, &fds[0]);
	if (rc)
		goto fail;
	fcntl(c->sock.fd, F_SETFD, FD_CLOEXEC);
	rc = shm_conn_identify(qp);
	if (rc)
		goto fail;
	c->rnr_budget_ns = rnr_budget(opts);
	fill_hello(&hello, WIRE_ACCEPT, c->mine_rq_size, opts->private_data, opts->private_len);
	rc = shm_conn_meet(qp, req->rq_size, req->area_fd, req->grants_fd);
	/* The memory goes before the word that it may be used. */
	if (!rc)
		rc = shm_conn_join(qp);
	if (!rc)
		rc = wire_send(c->sock.fd, &hello, sizeof(hello), fds, 2);
	if (rc)
		goto fail;
	close(fds[0]);
	close(req->sock); /* the qp has it, too */
	req->sock = -1;
	close_req(req);
	shm_conn_ready(qp);
	if (base->shared) { /* its owner is who has the lock: we */
		qp_established_for(base, shm_cq_hand_over);
		shm_cq_admit(cq);
	} else {
		hand_over(qp);
	}
	return 0;
fail:
	gn_log(GN_LOG_WARN, "shm: cannot accept a connection: %s",
	       rc == -EPIPE ? "the client is gone" : gn_strerror(rc));
	if (fds[0] >= 0)
		close(fds[0]);
	if (rc == -EMFILE)
		reject(req->sock, EMFILE, NULL, 0);
	close_req(req);
	shm_conn_fini(qp);
	c->phase = CONN_NONE;
	base->state = GN_QP_NEW;
	return rc == -EPIPE ? -ECONNABORTED : rc;
}

int shm_reject(struct gn_conn_req *base, const void *private_data, uint32_t private_len)
{
	struct shm_req *req = (struct shm_req *)base;

	reject(req->sock, 0, private_data, private_len);
	close_req(req);
	return 0;
}

int shm_disconnect(struct gn_qp *base)
{
	struct shm_qp *qp = (struct shm_qp *)base;

	shm_qp_adopt(base);
	if (base->state == GN_QP_CONNECTING) {
		give_up(qp, GN_EVENT_UNREACHABLE, -ECANCELED);
		return 0;
	}
	if (qp->conn.phase != CONN_UP)
		return -ENOTCONN;
	shm_qp_fail(qp);
	__atomic_store_n(&qp->conn.mine->mood.state, AREA_CLOSED, __ATOMIC_RELEASE);
	/*
	 * Our own half only: the peer's end is still to be seen, when a copy of its is waited for.
	 */
	shutdown(qp->conn.sock.fd, SHUT_WR);
	qp_disconnected(base);
	return 0;
}
