/* SPDX-License-Identifier: MIT */
/*
 * A node's device as the wire sees it: qps by number, listeners by port. It outlives the processes
 * that use it, so it is allocated outside of the simulated heaps.
 */
#include <errno.h>
#include <stdlib.h>

#include "fabric/sim/sim.h"

#define FIRST_QPN 0x10u
#define QPN_MASK  0xffffffu /* 24 bits, as on InfiniBand */

static void nic_free(void *nic)
{
	sim_datagrams_drop(nic);
	free(nic);
}

int sim_nic_get(struct sim_node *node, struct sim_nic **out)
{
	struct sim_nic *nic = node->nic;

	if (!nic) {
		nic = calloc(1, sizeof(*nic));
		if (!nic)
			return -ENOMEM;
		nic->node = node;
		nic->last_qpn = FIRST_QPN;
		node->nic = nic;
		node->nic_free = nic_free;
	}
	*out = nic;
	return 0;
}

struct sim_nic *sim_nic_of(const struct gn_sim *sim, unsigned node)
{
	return node < sim->n_nodes ? sim->nodes[node].nic : NULL;
}

struct sim_qp *sim_nic_find(const struct sim_nic *nic, uint32_t qpn)
{
	struct sim_qp *qp = nic->qps[qpn % SIM_NIC_BUCKETS];

	while (qp && qp->qp.qpn != qpn)
		qp = qp->nic_next;
	return qp;
}

void sim_nic_add(struct sim_nic *nic, struct sim_qp *qp)
{
	struct sim_qp **bucket;

	do
		nic->last_qpn = (nic->last_qpn + 1) & QPN_MASK;
	while (nic->last_qpn < FIRST_QPN || sim_nic_find(nic, nic->last_qpn));
	qp->qp.qpn = nic->last_qpn;
	bucket = &nic->qps[qp->qp.qpn % SIM_NIC_BUCKETS];
	qp->nic_next = *bucket;
	qp->nic_prev = bucket;
	if (qp->nic_next)
		qp->nic_next->nic_prev = &qp->nic_next;
	*bucket = qp;
}

void sim_nic_del(struct sim_qp *qp)
{
	*qp->nic_prev = qp->nic_next;
	if (qp->nic_next)
		qp->nic_next->nic_prev = qp->nic_prev;
}
