/* SPDX-License-Identifier: MIT */
/*
 * Messages on the control socket, with fds. Nothing here blocks, and whatever arrives is checked.
 */
#include "base/fail.h"
#include "fabric/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KERNEL_FDS 253u /* the most that a message has: SCM_MAX_FD */
#define DRAIN_MAX  64u	/* messages of a socket that is closed, taken at once */

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

/* Take the fds of a message; those beyond WIRE_FDS are closed. False: there were some. */
static bool take_fds(struct msghdr *hdr, int fds[WIRE_FDS])
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
 * One message, whatever it is: its length, or -errno. Room for all fds that it can have: what did
 * not fit would be closed in here. came: it is none but the end when this stays false and the
 * socket has SO_PASSCRED.
 */
static ssize_t receive(int sock, union wire_any *msg, int fds[WIRE_FDS], int *flags, bool *came)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(KERNEL_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec iov = {.iov_base = msg, .iov_len = sizeof(*msg)};
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
	if (!take_fds(&hdr, fds))
		*flags |= MSG_TRUNC;
	return len;
}

ssize_t wire_recv(int sock, union wire_any *msg, int fds[WIRE_FDS])
{
	bool came;
	ssize_t len;
	int flags;

	memset(msg, 0, sizeof(*msg));
	len = receive(sock, msg, fds, &flags, &came);
	if (len < 0)
		return len;
	if (len && !(flags & (MSG_TRUNC | MSG_CTRUNC)) && msg->head.magic == WIRE_MAGIC)
		return len;
	wire_close_fds(fds); /* even an empty message can bring some */
	if (flags & MSG_CTRUNC)
		return gn_fail_log(
			-EMFILE,
			"shm: a peer's memory could not be taken over: too many open files "
			"(ulimit -n)");
	return len ? -EPROTO : 0;
}

/* Nothing is sent to it after the shutdown. With credentials an empty message is not the end. */
bool wire_drain(int sock)
{
	const int on = 1;

	shutdown(sock, SHUT_RDWR);
	setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	for (unsigned i = 0; i < DRAIN_MAX; i++) {
		int fds[WIRE_FDS], flags;
		union wire_any msg;
		bool came = true;
		const ssize_t len = receive(sock, &msg, fds, &flags, &came);

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

	/* A full socket is readable: that wakes as well. */
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
		return PEER_STRANGER;
	return cred.uid == geteuid() && cred.pid == getpid() ? PEER_SELF : PEER_USER;
}

bool wire_same_peer(int sock, int other)
{
	struct ucred cred[2];
	socklen_t len = sizeof(*cred);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred[0], &len) &&
	       !getsockopt(other, SOL_SOCKET, SO_PEERCRED, &cred[1], &len) &&
	       cred[0].pid == cred[1].pid;
}

void wire_roomy(int sock)
{
	const int bytes = 1 << 20;

	setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &bytes,
		   sizeof(bytes)); /* cut to the system's limit */
}
