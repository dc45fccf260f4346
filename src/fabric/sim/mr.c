/* SPDX-License-Identifier: MIT */
/* Memory from the process's heap, and the keys under which devices reach it. */
#include <errno.h>

#include "fabric/sim/sim.h"

int sim_mem_alloc(struct gn_mem *mem)
{
	mem->addr = gn_alloc(mem->size, GN_PAGE);
	return mem->addr ? 0 : -ENOMEM;
}

void sim_mem_fini(struct gn_mem *mem)
{
	if (!mem->foreign)
		gn_free(mem->addr);
}

int sim_mr_init(struct gn_mr *mr)
{
	return soft_key_add(&sim_fabric_of(&mr->obj)->keys, mr);
}

/* An access happens within one event, so none is under way now. */
void sim_mr_fini(struct gn_mr *mr)
{
	soft_key_remove(&sim_fabric_of(&mr->obj)->keys, mr);
}
