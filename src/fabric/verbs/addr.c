/* SPDX-License-Identifier: MIT */
/*
 * Parses addresses: 10.0.0.1:7000, [fd00::1]:7000, host:7000; for listeners also :7000 and *:7000.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#define HOST_MAX 255u
#define PORT_MAX 65535u

static int addr_parse_port(const char *text, uint16_t *out)
{
	unsigned port = 0;

	for (; *text >= '0' && *text <= '9' && port <= PORT_MAX; text++)
		port = port * 10 + (unsigned)(*text - '0');
	if (*text || !port || port > PORT_MAX)
		return -EINVAL;
	*out = (uint16_t)port;
	return 0;
}

static int addr_split(const char *addr, char host[HOST_MAX + 1], uint16_t *port)
{
	const char *colon = strrchr(addr, ':'), *begin = addr, *end = colon;

	if (!colon)
		return -EINVAL;
	if (*addr == '[') {
		begin++;
		end--;
		if (end < begin || *end != ']')
			return -EINVAL;
	} else if (memchr(addr, ':', (size_t)(colon - addr))) {
		return -EINVAL; /* an IPv6 address without brackets is ambiguous */
	}
	if ((size_t)(end - begin) > HOST_MAX)
		return -EINVAL;
	memcpy(host, begin, (size_t)(end - begin));
	host[end - begin] = 0;
	return addr_parse_port(colon + 1, port);
}

/* One listener for both families (listen.c). */
static void addr_any(uint16_t port, struct sockaddr_storage *out)
{
	const struct sockaddr_in6 any = {
		.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT, .sin6_port = htons(port)};

	memset(out, 0, sizeof(*out));
	memcpy(out, &any, sizeof(any));
}

static int addr_look_up(const char *host, uint16_t port, struct sockaddr_storage *out)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *list;
	const int rc = getaddrinfo(host, NULL, &hints, &list);

	if (rc)
		return gn_fail_log(-EHOSTUNREACH, "verbs: no address for '%s': %s", host,
				   gai_strerror(rc));
	memset(out, 0, sizeof(*out));
	memcpy(out, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	/* The port has the same offset in both. */
	static_assert(offsetof(struct sockaddr_in, sin_port) ==
			      offsetof(struct sockaddr_in6, sin6_port),
		      "the port's place");
	((struct sockaddr_in *)out)->sin_port = htons(port);
	return 0;
}

/* The parts of addr, if it may be used. */
static int addr_parts(const char *addr, bool passive, char *host, uint16_t *port)
{
	if (addr_split(addr, host, port))
		return gn_fail_log(-EINVAL,
				   "verbs: '%s' is not HOST:PORT; an IPv6 HOST goes in brackets",
				   addr);
	if (!passive && (!*host || !strcmp(host, "*")))
		return gn_fail_log(
			-EINVAL, "verbs: 'verbs:%s' is an address to listen at, not to connect to",
			addr);
	return 0;
}

int vrb_addr_check(struct gn_fabric *fabric, const char *addr)
{
	char host[HOST_MAX + 1];
	uint16_t port;

	(void)fabric;
	return addr_parts(addr, false, host, &port);
}

int vrb_addr_parse(const char *addr, bool passive, struct sockaddr_storage *out)
{
	char host[HOST_MAX + 1];
	uint16_t port;
	const int rc = addr_parts(addr, passive, host, &port);

	if (rc)
		return rc;
	if (*host && strcmp(host, "*"))
		return addr_look_up(host, port, out);
	addr_any(port, out);
	return 0;
}
