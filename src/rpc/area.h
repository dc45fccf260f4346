/* SPDX-License-Identifier: MIT */
/* Memory of a large message. */
#ifndef GN_RPC_AREA_H
#define GN_RPC_AREA_H

#include "gannet/exec.h"
#include "gannet/fabric.h"

struct rpc_area {
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint64_t size; /* that was allocated: whole pages */
};

/* Bytes that are allocated for so many. */
static inline uint64_t rpc_area_bytes(uint64_t size)
{
	return (size + GN_PAGE - 1) / GN_PAGE * GN_PAGE;
}
/* rights: the remote ones. On failure nothing is left. */
int rpc_area_make(struct gn_fabric *fabric, struct gn_pd *pd, uint64_t size, unsigned rights,
		  struct rpc_area *area);
/* Waits for a peer that may be copying: only where no connection has it any more. */
void rpc_area_free(struct rpc_area *area);
/* 0, or -EAGAIN while a peer may be copying: as gn_mr_deregister_try(). */
int rpc_area_free_try(struct rpc_area *area);

/* Areas that a peer may still be copying. */
struct rpc_retired {
	struct rpc_retired *next;
	struct rpc_area area;
};
/* Free it, now or when rpc_area_retry() finds that nobody copies. */
void rpc_area_retire(struct rpc_retired **list, struct rpc_area *area);
void rpc_area_retry(struct rpc_retired **list);

#endif
