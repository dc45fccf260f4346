/* SPDX-License-Identifier: MIT */
/*
 * Sockets that never block once they are connected.
 */
#include "socket_conn.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gannet/base.h>

#define IN_BYTES 65536u /* that a read takes, at least */

static int connect_unix(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd, rc;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	memcpy(addr.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

static int connect_to(const struct addrinfo *at)
{
	const int one = 1;
	int fd, rc;

	fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, at->ai_addr, at->ai_addrlen)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

/* HOST:PORT, where HOST may be in brackets. */
static int connect_tcp(const char *addr)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	char host[BENCH_SOCKET_ADDR_MAX];
	const char *colon = strrchr(addr, ':');
	struct addrinfo *list;
	size_t len;
	int fd = -ENOENT;

	if (!colon)
		return -EINVAL;
	len = (size_t)(colon - addr);
	if (len > 1 && addr[0] == '[' && addr[len - 1] == ']') {
		addr++;
		len -= 2;
	}
	memcpy(host, addr, len);
	host[len] = '\0';
	if (getaddrinfo(host, colon + 1, &hints, &list))
		return -ENOENT;
	for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
		fd = connect_to(at);
	freeaddrinfo(list);
	return fd;
}

static int open_socket(const struct bench_socket_opts *opts)
{
	const bool local = !strncmp(opts->connect, "unix:", 5);
	int fd = local ? connect_unix(opts->connect + 5) : connect_tcp(opts->connect);

	if (fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK)) {
		const int rc = -errno;

		close(fd);
		fd = rc;
	}
	if (fd < 0)
		gn_log(GN_LOG_ERROR, "cannot connect to %s: %s; is a server running there?",
		       opts->connect, gn_strerror(fd));
	return fd;
}

int conn_open(struct conn *conn, const struct bench_socket_opts *opts, uint32_t n)
{
	const size_t unit = wire_unit_bytes(opts);
	int fd;

	conn->in_size = unit > IN_BYTES / 2 ? 2 * unit : IN_BYTES;
	conn->in = malloc(conn->in_size);
	conn->batch.gets = calloc(n, sizeof(*conn->batch.gets));
	conn->batch.puts = calloc(n, sizeof(*conn->batch.puts));
	conn->batch.pending = calloc(n, sizeof(*conn->batch.pending));
	conn->batch.out = malloc(wire_out_bytes(opts, n));
	if (!conn->in || !conn->batch.gets || !conn->batch.puts || !conn->batch.pending ||
	    !conn->batch.out) {
		gn_log(GN_LOG_ERROR, "no memory for a connection");
		return -ENOMEM;
	}
	fd = open_socket(opts);
	if (fd < 0)
		return fd;
	conn->fd = fd;
	return 0;
}

void conn_close(struct conn *conn)
{
	if (conn->fd >= 0)
		close(conn->fd);
	free(conn->in);
	free(conn->batch.gets);
	free(conn->batch.puts);
	free(conn->batch.pending);
	free(conn->batch.out);
}

static int conn_lost(const struct wire *wire, int rc)
{
	gn_log(GN_LOG_ERROR, "the connection to %s broke: %s", wire->opts->connect,
	       gn_strerror(rc));
	return rc;
}

int conn_write(struct conn *conn, const struct wire *wire)
{
	while (conn->written < conn->batch.out_len) {
		const ssize_t n = send(conn->fd, conn->batch.out + conn->written,
				       conn->batch.out_len - conn->written, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			conn->writing = true;
			return 0;
		}
		if (n < 0)
			return conn_lost(wire, -errno);
		conn->written += (size_t)n;
	}
	conn->writing = false;
	return 0;
}

int conn_begin(struct conn *conn, const struct wire *wire, bool acknowledge)
{
	wire_write(wire, &conn->batch, acknowledge);
	conn->busy = true;
	conn->written = 0;
	conn->since_ns = gn_now_ns();
	return conn_write(conn, wire);
}

static int take_answers(struct conn *conn, const struct wire *wire)
{
	size_t at = 0;

	while (at < conn->in_len) {
		const long n = wire_read(wire, &conn->batch, conn->in + at, conn->in_len - at);

		if (n < 0)
			return (int)n;
		if (!n)
			break;
		at += (size_t)n;
	}
	conn->in_len -= at;
	if (at && conn->in_len)
		memmove(conn->in, conn->in + at, conn->in_len);
	if (conn->batch.answered == conn->batch.n_pending)
		conn->busy = conn->writing;
	return 0;
}

int conn_read(struct conn *conn, const struct wire *wire)
{
	for (;;) {
		const size_t room = conn->in_size - conn->in_len;
		const ssize_t n = recv(conn->fd, conn->in + conn->in_len, room, 0);
		int rc;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 :
									 conn_lost(wire, -errno);
		if (n == 0)
			return conn_lost(wire, -ECONNRESET);
		conn->in_len += (size_t)n;
		rc = take_answers(conn, wire);
		if (rc || !conn->busy || (size_t)n < room)
			return rc;
	}
}
