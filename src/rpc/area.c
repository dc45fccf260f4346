/* SPDX-License-Identifier: MIT */
#include "rpc/area.h"

int rpc_area_make(struct gn_fabric *fabric, struct gn_pd *pd, uint64_t size, unsigned rights,
		  struct rpc_area *area)
{
	int rc;

	*area = (struct rpc_area){.size = rpc_area_bytes(size)};
	rc = gn_mem_alloc(fabric, area->size, rights, &area->mem);
	if (!rc)
		rc = gn_mr_register(pd, area->mem, 0, area->size, GN_LOCAL_WRITE | rights,
				    &area->mr);
	if (rc)
		rpc_area_free(area);
	return rc;
}

void rpc_area_free(struct rpc_area *area)
{
	gn_mr_deregister(area->mr);
	gn_mem_free(area->mem);
	*area = (struct rpc_area){0};
}
