/* SPDX-License-Identifier: MIT */
/* UD addresses: ours, address handles for a peer's, and for the sender of a datagram. */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define HOP_LIMIT 64 /* RoCE v2 is routed; 1 would reach only the first router */

int vrb_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out)
{
	const struct vrb_fabric *fabric = vrb_fabric(qp->obj.fabric);
	struct ibv_context *ibv = vrb_ctx(qp->ctx)->ibv;
	struct ibv_port_attr port;
	struct vrb_gid gid;
	int rc = vrb_gid_choose(ibv, fabric->port, NULL, &gid);

	if (rc)
		return rc;
	rc = ibv_query_port(ibv, fabric->port, &port);
	if (rc)
		return -rc;
	memcpy(out->gid, gid.gid.raw, sizeof(out->gid));
	out->lid = port.lid;
	return 0;
}

/* On InfiniBand a LID reaches every port of the subnet; beyond it a GID is needed. */
static bool ah_needs_gid(const struct vrb_fabric *fabric, const struct gn_ud_addr *addr,
			 const struct vrb_gid *own)
{
	static const uint8_t none[sizeof(addr->gid)];
	union ibv_gid peer;

	if (fabric->roce)
		return true;
	if (!memcmp(addr->gid, none, sizeof(none)))
		return false;
	memcpy(peer.raw, addr->gid, sizeof(peer.raw));
	return !addr->lid || peer.global.subnet_prefix != own->gid.global.subnet_prefix;
}

static int ah_attr_of_addr(const struct gn_ah *ah, struct ibv_ah_attr *out)
{
	const struct vrb_fabric *fabric = vrb_fabric(ah->obj.fabric);
	union ibv_gid peer;
	struct vrb_gid own;
	int rc;

	memcpy(peer.raw, ah->addr.gid, sizeof(peer.raw));
	rc = vrb_gid_choose(vrb_ctx(ah->qp->ctx)->ibv, fabric->port, &peer, &own);
	if (rc)
		return rc;
	*out = (struct ibv_ah_attr){.port_num = fabric->port, .dlid = ah->addr.lid};
	if (ah_needs_gid(fabric, &ah->addr, &own)) {
		out->is_global = 1;
		out->grh.dgid = peer;
		out->grh.sgid_index = own.index;
		out->grh.hop_limit = HOP_LIMIT;
	}
	return 0;
}

/*
 * The path of a connected qp. The kernel resolved it for the connection, so an address handle with
 * this path needs no resolution that could block.
 */
static int ah_attr_of_conn(struct gn_qp *conn, struct ibv_ah_attr *out)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	const int rc = ibv_query_qp(vrb_qp(conn)->ibv, &attr, IBV_QP_AV, &init);

	if (rc)
		return -rc;
	*out = attr.ah_attr;
	return 0;
}

int vrb_ah_init(struct gn_ah *base)
{
	struct vrb_ah *ah = container_of(base, struct vrb_ah, base);
	struct ibv_ah_attr attr;
	int rc = base->conn ? ah_attr_of_conn(base->conn, &attr) : ah_attr_of_addr(base, &attr);

	if (rc)
		return rc;
	ah->ibv = ibv_create_ah(vrb_pd(base->qp->pd)->ibv, &attr);
	if (ah->ibv)
		return 0;
	rc = vrb_errno();
	return gn_fail_log(rc, "verbs: cannot address a datagram peer: %s", gn_strerror(rc));
}

void vrb_ah_fini(struct gn_ah *base)
{
	const int rc = ibv_destroy_ah(container_of(base, struct vrb_ah, base)->ibv);

	if (rc)
		gn_fail_log(0, "verbs: an address handle is left behind: %s", gn_strerror(-rc));
}

int vrb_ah_reverse(struct gn_qp *qp, const struct gn_wc *wc, const void *grh_bytes,
		   struct gn_ud_addr *out)
{
	const struct vrb_fabric *fabric = vrb_fabric(qp->obj.fabric);
	/* cq.c stored the sender's LID. */
	struct ibv_wc ibv_wc = {.slid = wc->src_lid, .src_qp = wc->src_qpn};
	struct ibv_ah_attr attr = {.is_global = 0};
	struct ibv_grh grh;

	static_assert(sizeof(grh) == GN_GRH_BYTES, "the GRH as verbs has it");
	memcpy(&grh, grh_bytes, sizeof(grh));
	/* InfiniBand omits the GRH within a subnet; its 40 bytes are then undefined. */
	if (fabric->roce)
		ibv_wc.wc_flags = IBV_WC_GRH;
	if (ibv_init_ah_from_wc(vrb_ctx(qp->ctx)->ibv, fabric->port, &ibv_wc, &grh, &attr))
		return gn_fail_log(-EADDRNOTAVAIL,
				   "verbs: a datagram's header names no GID of ours");
	if (attr.is_global)
		memcpy(out->gid, attr.grh.dgid.raw, sizeof(out->gid));
	out->lid = attr.dlid;
	out->qkey = qp->qkey;
	return 0;
}
