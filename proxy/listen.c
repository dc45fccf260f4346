/* SPDX-License-Identifier: MIT */
/* Listening sockets of a proxy: TCP, on the loopback by default, and Unix sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

#define BACKLOG 4096

static int listen_failed(const char *where, int err)
{
	fprintf(stderr, "gannet: cannot listen at %s: %s\n", where, strerror(err));
	return -err;
}

/* ---- Unix sockets ---- */

/* Removes a socket without a listener. Any other file is left alone. */
static int remove_stale(const struct sockaddr_un *addr)
{
	struct stat st;
	int fd, rc;

	if (lstat(addr->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	rc = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) ? -errno : -EADDRINUSE;
	close(fd);
	if (rc != -ECONNREFUSED)
		return rc;
	return unlink(addr->sun_path) ? -errno : 0;
}

static int listen_unix(const char *where, const char *path, unsigned mode, struct px_listener *out)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	mode_t old;
	int rc;

	if (!*path || strlen(path) >= sizeof(addr.sun_path)) {
		fprintf(stderr, "gannet: cannot listen at %s: a path has 1 to %zu bytes\n", where,
			sizeof(addr.sun_path) - 1);
		return -EINVAL;
	}
	strcpy(addr.sun_path, path);
	rc = remove_stale(&addr);
	if (rc)
		return listen_failed(where, -rc);
	out->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (out->fd < 0)
		return listen_failed(where, errno);
	/* No client may connect between bind() and chmod(). */
	old = umask(0777 & ~(mode_t)mode);
	rc = bind(out->fd, (struct sockaddr *)&addr, sizeof(addr));
	umask(old);
	if (!rc)
		out->path = strdup(path);
	if (rc || !out->path || listen(out->fd, BACKLOG))
		return listen_failed(where, errno);
	snprintf(out->name, sizeof(out->name), "unix:%s", path);
	return 0;
}

/* ---- TCP ---- */

/* Parses HOST:PORT, [HOST]:PORT or PORT. */
static int parse_host_port(const char *where, char *host, size_t room, const char **port)
{
	const char *colon = strrchr(where, ':');
	size_t len;

	*port = colon ? colon + 1 : where;
	if (!**port || strspn(*port, "0123456789") != strlen(*port) || strlen(*port) > 5 ||
	    atoi(*port) > 65535)
		return -EINVAL;
	if (!colon) {
		snprintf(host, room, "127.0.0.1");
		return 0;
	}
	len = (size_t)(colon - where);
	if (len > 1 && where[0] == '[' && where[len - 1] == ']') {
		where++;
		len -= 2;
	}
	if (!len || len >= room)
		return -EINVAL;
	memcpy(host, where, len);
	host[len] = 0;
	return 0;
}

static bool is_loopback(const struct sockaddr *addr)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;

	return addr->sa_family == AF_INET ? ntohl(in->sin_addr.s_addr) >> 24 == 127 :
					    IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

static int open_tcp(const struct addrinfo *ai, struct px_listener *out)
{
	const int yes = 1;
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);
	char host[64], port[8];

	out->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (out->fd < 0)
		return -errno;
	setsockopt(out->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	/* Inherited by connections: replies are complete when they are written. */
	setsockopt(out->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (bind(out->fd, ai->ai_addr, ai->ai_addrlen) || listen(out->fd, BACKLOG) ||
	    getsockname(out->fd, (struct sockaddr *)&bound, &len))
		return -errno;
	if (getnameinfo((struct sockaddr *)&bound, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return -EINVAL;
	snprintf(out->name, sizeof(out->name), bound.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
		 host, port);
	if (!is_loopback((struct sockaddr *)&bound))
		fprintf(stderr,
			"gannet: warning: %s can be reached from elsewhere, without "
			"authentication\n",
			out->name);
	return 0;
}

static int listen_tcp(const char *where, struct px_listener *out)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found;
	const char *port;
	char host[256];
	int rc = parse_host_port(where, host, sizeof(host), &port);

	if (rc) {
		fprintf(stderr,
			"gannet: '%s' is not an address to listen at: use PORT, HOST:PORT "
			"or unix:PATH\n",
			where);
		return rc;
	}
	rc = getaddrinfo(host, port, &hints, &found);
	if (rc) {
		fprintf(stderr, "gannet: cannot listen at %s: %s\n", where, gai_strerror(rc));
		return -EINVAL;
	}
	rc = open_tcp(found, out);
	freeaddrinfo(found);
	return rc ? listen_failed(where, -rc) : 0;
}

bool proxy_can_listen(const char *where)
{
	char host[256];
	const char *port;

	if (!strncmp(where, "unix:", 5))
		return where[5] && strlen(where + 5) < sizeof(((struct sockaddr_un *)0)->sun_path);
	return !parse_host_port(where, host, sizeof(host), &port);
}

int px_listen(const char *where, unsigned mode, struct px_listener *out)
{
	*out = (struct px_listener){.fd = -1};
	if (!strncmp(where, "unix:", 5))
		return listen_unix(where, where + 5, mode, out);
	return listen_tcp(where, out);
}

void px_unlisten(struct px_listener *l)
{
	if (l->fd >= 0)
		close(l->fd);
	if (l->path)
		unlink(l->path);
	free(l->path);
}
