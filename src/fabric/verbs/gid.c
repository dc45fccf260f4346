/* SPDX-License-Identifier: MIT */
/*
 * Selects one of a port's GIDs. On RoCE each address of the network interface has one, in both
 * versions of the protocol. Only version 2 is routed, and only GIDs of one kind can communicate.
 * The table is read each time, because addresses change.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/types.h>

#define GIDS_MAX 1024u /* of all ports */

enum kind { LINK_LOCAL, GLOBAL, IPV4 }; /* best last */

#define KINDS (IPV4 + 1)

static enum kind gid_kind(const union ibv_gid *gid)
{
	struct in6_addr addr;

	memcpy(&addr, gid->raw, sizeof(addr));
	if (IN6_IS_ADDR_V4MAPPED(&addr))
		return IPV4;
	return IN6_IS_ADDR_LINKLOCAL(&addr) ? LINK_LOCAL : GLOBAL;
}

/* Higher is better: the peer's kind, then version 2, then the kind. */
static int gid_rank(const struct ibv_gid_entry *entry, const union ibv_gid *peer)
{
	const enum kind kind = gid_kind(&entry->gid);
	int r = (int)kind + 1;

	if (entry->gid_type == IBV_GID_TYPE_ROCE_V2)
		r += KINDS;
	if (peer && kind == gid_kind(peer))
		r += 2 * KINDS;
	return r;
}

static const struct ibv_gid_entry *gid_best(const struct ibv_gid_entry *entry, ssize_t n,
					    uint8_t port, const union ibv_gid *peer)
{
	const struct ibv_gid_entry *found = NULL;

	for (; n > 0; n--, entry++) {
		if (entry->port_num != port || entry->gid_index > UINT8_MAX)
			continue;
		if (!found || gid_rank(entry, peer) > gid_rank(found, peer))
			found = entry;
	}
	return found;
}

int vrb_gid_choose(struct ibv_context *ibv, uint8_t port, const union ibv_gid *peer,
		   struct vrb_gid *out)
{
	struct ibv_gid_entry *table = gn_alloc(GIDS_MAX * sizeof(*table), 0);
	const struct ibv_gid_entry *found;
	int rc = 0;

	if (!table)
		return -ENOMEM;
	found = gid_best(table, ibv_query_gid_table(ibv, table, GIDS_MAX, 0), port, peer);
	if (found) {
		out->gid = found->gid;
		out->index = (uint8_t)found->gid_index;
	} else {
		rc = -EADDRNOTAVAIL;
		gn_fail_log(
			0, "verbs: port %u of %s has no GID; give its network interface an address",
			port, ibv_get_device_name(ibv->device));
	}
	gn_free(table);
	return rc;
}
