/* SPDX-License-Identifier: MIT */
/* Memory from the process's heap, and the keys of its regions. */
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
	struct sim_fabric *fabric = sim_fabric_of(&mr->obj);
	struct gn_sim *sim = fabric->sim;

	if (sim_fault(sim, SIM_REGISTER, fabric->nic->node->index))
		return -ENOMEM;
	sim_owe(sim, sim_register_cost(&sim->profile, mr->length));
	return soft_key_add(&fabric->keys, mr);
}

/* WRITEs that are not visible yet become visible now; a READ in progress finds no key. */
void sim_mr_fini(struct gn_mr *mr)
{
	struct sim_fabric *fabric = sim_fabric_of(&mr->obj);

	for (struct obj *o = fabric->fabric.pool[OBJ_QP].live; o; o = o->next) {
		struct sim_qp *qp = container_of(o, struct sim_qp, qp.obj);

		/* Another thread of the process may be creating or destroying it. */
		if (!qp->up)
			continue;
		sim_flights_land_in(qp, mr->addr, mr->length);
		sim_held_deregister(qp, gn_mr_lkey(mr));
	}
	sim_owe(fabric->sim, fabric->sim->profile.deregister_ps);
	soft_key_remove(&fabric->keys, mr);
}
