/* SPDX-License-Identifier: MIT */
#include "rpc/area.h"

#include "gannet/exec.h"

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

int rpc_area_free_try(struct rpc_area *area)
{
	const int rc = gn_mr_deregister_try(area->mr);

	if (rc)
		return rc;
	gn_mem_free(area->mem);
	*area = (struct rpc_area){0};
	return 0;
}

void rpc_area_free(struct rpc_area *area)
{
	gn_mr_deregister(area->mr);
	gn_mem_free(area->mem);
	*area = (struct rpc_area){0};
}

void rpc_area_retire(struct rpc_retired **list, struct rpc_area *area)
{
	struct rpc_retired *retired;

	if (!rpc_area_free_try(area))
		return;
	retired = gn_alloc(sizeof(*retired), 0);
	if (!retired) {
		rpc_area_free(area);
		return;
	}
	*retired = (struct rpc_retired){.next = *list, .area = *area};
	*list = retired;
	*area = (struct rpc_area){0};
}

void rpc_area_retry(struct rpc_retired **list)
{
	while (*list) {
		struct rpc_retired *retired = *list;

		if (rpc_area_free_try(&retired->area)) {
			list = &retired->next;
			continue;
		}
		*list = retired->next;
		gn_free(retired);
	}
}
