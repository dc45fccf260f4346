/* SPDX-License-Identifier: MIT */
/* Registered memory for large messages and slots. */
#ifndef GN_RPC_AREA_H
#define GN_RPC_AREA_H

#include "gannet/exec.h"
#include "gannet/fabric.h"

struct rpc_area {
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint64_t size; /* allocated: whole pages */
};

/* Bytes allocated for an area of this size. */
static inline uint64_t rpc_area_bytes(uint64_t size)
{
	return (size + GN_PAGE - 1) / GN_PAGE * GN_PAGE;
}
/* rights: remote access rights. Leaves nothing allocated on failure. */
int rpc_area_make(struct gn_fabric *fabric, struct gn_pd *pd, uint64_t size, unsigned rights,
		  struct rpc_area *area);
/* Waits while a peer may be copying: use only after the connection is closed. */
void rpc_area_free(struct rpc_area *area);
/* 0, or -EAGAIN while a peer may be copying: see gn_mr_deregister_try(). */
int rpc_area_free_try(struct rpc_area *area);

/* Areas that a peer may still be copying from. */
struct rpc_retired {
	struct rpc_retired *next;
	struct rpc_area area;
};
/* Free the area now, or in a later rpc_area_retry(). */
void rpc_area_retire(struct rpc_retired **list, struct rpc_area *area);
void rpc_area_retry(struct rpc_retired **list);

#endif
