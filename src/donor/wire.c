/* SPDX-License-Identifier: MIT */
/* Reads requests that a client wrote, and makes addresses. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "donor/wire.h"

#define PORT_DIGITS_MAX 5u
#define PORT_MAX	65535u

/* ---- addresses ---- */

/* "PROVIDER:HOST:PORT" has a port, "PROVIDER:NAME" has none. */
static bool addr_has_port(const char *addr, const char *last)
{
	const size_t digits = strspn(last, "0123456789");

	return strchr(addr, ':') + 1 < last && digits && digits <= PORT_DIGITS_MAX && !last[digits];
}

static unsigned port_of(const char *digits)
{
	unsigned port = 0;

	for (; *digits; digits++)
		port = port * 10 + (unsigned)(*digits - '0');
	return port;
}

int donor_data_name(const char *addr, char out[DONOR_DATA_NAME])
{
	const char *colon = strrchr(addr, ':');
	unsigned port;
	int n;

	if (!colon || !colon[1] || strpbrk(colon + 1, "/ "))
		return gn_fail(
			-EINVAL,
			"'%s' is no address of a donor: PROVIDER:NAME or PROVIDER:HOST:PORT, "
			"without '/' and blanks",
			addr);
	if (!addr_has_port(addr, colon + 1)) {
		n = snprintf(out, DONOR_DATA_NAME, "%s.data", colon + 1);
		return n < (int)DONOR_DATA_NAME ? 0 : gn_fail(-EINVAL, "'%s' is too long", addr);
	}
	port = port_of(colon + 1);
	if (port >= PORT_MAX)
		return gn_fail(-EINVAL, "a donor needs a port after that of %s", addr);
	snprintf(out, DONOR_DATA_NAME, "%u", port + 1);
	return 0;
}

int donor_data_addr(const char *addr, const char *name, char out[DONOR_ADDR_MAX])
{
	const char *colon = strrchr(addr, ':');
	int n;

	if (!colon || !name[0] || memchr(name, '\0', DONOR_DATA_NAME) == NULL ||
	    strpbrk(name, ":/ "))
		return gn_fail(-EINVAL, "the donor at %s tells no data address", addr);
	n = snprintf(out, DONOR_ADDR_MAX, "%.*s%s", (int)(colon + 1 - addr), addr, name);
	return n < (int)DONOR_ADDR_MAX ? 0 : gn_fail(-EINVAL, "'%s' is too long", addr);
}

/* ---- requests ---- */

static bool wire_copy(void *out, size_t size, const void *data, uint32_t len)
{
	if (len != size)
		return false;
	memcpy(out, data, size);
	return true;
}

bool donor_owner_ok(const char owner[GN_DONOR_OWNER])
{
	size_t n = 0;

	while (n < GN_DONOR_OWNER && owner[n] > ' ' && owner[n] <= '~')
		n++;
	if (n == GN_DONOR_OWNER)
		return false;
	while (n < GN_DONOR_OWNER && !owner[n])
		n++;
	return n == GN_DONOR_OWNER;
}

bool donor_hello_read(const void *data, uint32_t len, struct donor_hello *out)
{
	return wire_copy(out, sizeof(*out), data, len) && out->resume <= 1 && !out->reserved &&
	       donor_owner_ok(out->owner);
}

bool donor_share_read(const void *data, uint32_t len, uint64_t slab_bytes,
		      struct donor_share_request *out)
{
	return wire_copy(out, sizeof(*out), data, len) && !out->reserved && out->length &&
	       out->offset % GN_PAGE == 0 && out->length % GN_PAGE == 0 &&
	       out->length <= slab_bytes && out->offset <= slab_bytes - out->length &&
	       out->rights & (IO_RIGHT_READ | IO_RIGHT_WRITE) &&
	       !(out->rights & ~(IO_RIGHT_READ | IO_RIGHT_WRITE));
}

bool donor_list_read(const void *data, uint32_t len, struct donor_list_request *out)
{
	return wire_copy(out, sizeof(*out), data, len) && donor_owner_ok(out->owner);
}

/* Providers may append zeros to private data. */
enum io_attach_status donor_attach_read(const void *data, uint32_t len, struct io_attach *out)
{
	if (len < sizeof(*out))
		return IO_ATTACH_BAD_REQUEST;
	memcpy(out, data, sizeof(*out));
	if (out->magic != IO_ATTACH_MAGIC)
		return IO_ATTACH_BAD_REQUEST;
	if (out->version != IO_ATTACH_VERSION)
		return IO_ATTACH_BAD_VERSION;
	if ((out->kind != IO_ATTACH_SESSION && out->kind != IO_ATTACH_SHARE) || out->reserved ||
	    out->channel >= IO_CHANNELS_MAX || !out->generation)
		return IO_ATTACH_BAD_REQUEST;
	return IO_ATTACH_OK;
}

bool donor_token_equal(const uint8_t *a, const uint8_t *b)
{
	unsigned differ = 0;

	for (unsigned i = 0; i < IO_TOKEN_BYTES; i++) {
		differ |= (unsigned)(a[i] ^ b[i]);
		__asm__ volatile("" : "+r"(differ)); /* no early end */
	}
	return !differ;
}

/* ---- statistics: all members but the first are 64-bit words ---- */

_Static_assert(sizeof(struct gn_donor_stats) == sizeof(size_t) + DONOR_STATS_WORDS * 8,
	       "no other members");

void donor_stats_write(uint64_t words[DONOR_STATS_WORDS], const struct gn_donor_stats *stats)
{
	memcpy(words, (const char *)stats + sizeof(size_t), DONOR_STATS_WORDS * sizeof(words[0]));
}

void donor_stats_read(const uint64_t words[DONOR_STATS_WORDS], struct gn_donor_stats *stats)
{
	memcpy((char *)stats + sizeof(size_t), words, DONOR_STATS_WORDS * sizeof(words[0]));
}
