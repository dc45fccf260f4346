/* SPDX-License-Identifier: MIT */
/* Messages on the control socket, with fds. Nothing blocks, and every message is checked. */
#include "base/fail.h"
#include "fabric/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KERNEL_FDS 253u /* SCM_MAX_FD: fds of one message */
#define DRAIN_MAX  64u	/* messages read per call from a socket that is being closed */

struct wire_head wire_head(enum wire_type type)
{
	return (struct wire_head){
		.magic = WIRE_MAGIC, .version = WIRE_VERSION, .type = (uint16_t)type};
}

int wire_send(int sock, const void *msg, size_t len, const int *fds, int n_fds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(WIRE_FDS * sizeof(int))];
	} control = {.align = {.cmsg_len = 0}};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)msg, .iov_len = len};
	struct msghdr hdr = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *cmsg;

	if (n_fds) {
		hdr.msg_control = control.buf;
		hdr.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&hdr);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, (size_t)n_fds * sizeof(int));
	}
	if (sendmsg(sock, &hdr, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}

/* Takes the fds of a message and closes those beyond WIRE_FDS. False: there were some. */
static bool wire_take_fds(struct msghdr *hdr, int fds[WIRE_FDS])
{
	size_t taken = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(hdr); c; c = CMSG_NXTHDR(hdr, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < n; i++, taken++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (taken < WIRE_FDS)
				fds[taken] = fd;
			else
				shm_close_fd(fd);
		}
	}
	return taken <= WIRE_FDS;
}

void wire_close_fds(int fds[WIRE_FDS])
{
	for (int i = 0; i < WIRE_FDS; i++) {
		shm_close_fd(fds[i]);
		fds[i] = -1;
	}
}

/*
 * The control buffer has space for all fds, because the kernel closes those that do not fit. came:
 * stays false only at the end of the stream (with SO_PASSCRED every message has credentials).
 */
static ssize_t wire_receive_from(int sock, void *msg, size_t size, int fds[WIRE_FDS], int *flags,
				 bool *came)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(KERNEL_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec iov = {.iov_base = msg, .iov_len = size};
	struct msghdr hdr = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	ssize_t len;

	for (int i = 0; i < WIRE_FDS; i++)
		fds[i] = -1;
	do {
		len = recvmsg(sock, &hdr, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (len < 0 && errno == EINTR);
	if (len < 0)
		return -errno;
	*flags = hdr.msg_flags;
	*came = len || hdr.msg_controllen;
	if (!wire_take_fds(&hdr, fds))
		*flags |= MSG_TRUNC;
	return len;
}

ssize_t wire_recv_any(int sock, void *msg, size_t size, int fds[WIRE_FDS], int *flags)
{
	bool came;

	return wire_receive_from(sock, msg, size, fds, flags, &came);
}

ssize_t wire_recv(int sock, union wire_any *msg, int fds[WIRE_FDS])
{
	ssize_t len;
	int flags;

	memset(msg, 0, sizeof(*msg));
	len = wire_recv_any(sock, msg, sizeof(*msg), fds, &flags);
	if (len < 0)
		return len;
	if (len && !(flags & (MSG_TRUNC | MSG_CTRUNC)) && msg->head.magic == WIRE_MAGIC)
		return len;
	wire_close_fds(fds); /* an empty message can carry fds, too */
	if (flags & MSG_CTRUNC)
		return gn_fail_log(-EMFILE, "shm: cannot map a peer's memory: too many open files "
					    "(ulimit -n)");
	return len ? -EPROTO : 0;
}

/* Nothing arrives after the shutdown. With credentials, an empty message is not the end. */
bool wire_drain(int sock)
{
	const int on = 1;

	shutdown(sock, SHUT_RDWR);
	setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	for (unsigned i = 0; i < DRAIN_MAX; i++) {
		int fds[WIRE_FDS], flags;
		union wire_any msg;
		bool came = true;
		const ssize_t len = wire_receive_from(sock, &msg, sizeof(msg), fds, &flags, &came);

		wire_close_fds(fds);
		if (len == -EAGAIN || !came)
			return true;
	}
	return false;
}

bool wire_is(const union wire_any *msg, ssize_t len, enum wire_type type, size_t want)
{
	return len == (ssize_t)want && msg->head.type == type && msg->head.version == WIRE_VERSION;
}

int wire_rejected(const struct wire_hello *hello)
{
	const uint32_t error = hello->rq_size;

	return error == EMFILE || error == EACCES ? -(int)error : -ECONNREFUSED;
}

void wire_wake(int sock)
{
	const struct wire_head msg = wire_head(WIRE_WAKE);

	/* If the socket is full, it is readable, which wakes the peer, too. */
	wire_send(sock, &msg, sizeof(msg), NULL, 0);
}

enum wire_peer wire_peer(int sock, uid_t *uid)
{
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t len = sizeof(cred);
	const bool known = !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len);

	if (uid)
		*uid = cred.uid;
	if (!known || (cred.uid != geteuid() && cred.uid != 0))
		return PEER_OTHER_USER;
	return cred.uid == geteuid() && cred.pid == getpid() ? PEER_SELF : PEER_SAME_USER;
}

bool wire_same_peer(int sock, int other)
{
	struct ucred cred[2];
	socklen_t len = sizeof(*cred);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred[0], &len) &&
	       !getsockopt(other, SOL_SOCKET, SO_PEERCRED, &cred[1], &len) &&
	       cred[0].pid == cred[1].pid;
}

void wire_max_sndbuf(int sock)
{
	const int bytes = 1 << 20;

	setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)); /* limited by the system */
}
