/* SPDX-License-Identifier: MIT */
/*
 * The provider's table, opening it on the process's node, and cleanup when a process ends with the
 * fabric open.
 */
#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "fabric/sim/sim.h"

static const uint64_t cap_of[SIM_PROMISES] = {
	[SIM_UD] = GN_CAP_UD,
	[SIM_ATOMICS] = GN_CAP_ATOMICS,
	[SIM_ATOMIC_CPU] = GN_CAP_ATOMIC_CPU,
	[SIM_INORDER_WRITE] = GN_CAP_INORDER_WRITE,
	[SIM_INORDER_128] = GN_CAP_INORDER_128,
	[SIM_WRITE_ORDER] = GN_CAP_WRITE_ORDER,
	[SIM_READ_HEAD_FIRST] = GN_CAP_READ_HEAD_FIRST,
	[SIM_FOREIGN_REMOTE] = GN_CAP_FOREIGN_REMOTE,
};

static uint64_t caps_of(const struct gn_sim *sim)
{
	uint64_t caps = 0;

	for (unsigned i = 0; i < SIM_PROMISES; i++)
		if (sim->profile.promises & 1u << i)
			caps |= cap_of[i];
	return caps & ~sim->caps_off;
}

/*
 * The process ended or was killed without closing the fabric: its memory is freed, so nothing
 * outside may point to it any more. Its locks are not taken: their holders are dead.
 */
static void process_ended(struct sim_hook *hook)
{
	struct sim_fabric *fabric = container_of(hook, struct sim_fabric, hook);
	struct obj_pool *pool = fabric->fabric.pool;

	for (struct obj *o = pool[OBJ_LISTENER].live; o; o = o->next)
		sim_listen_unplug(container_of(o, struct sim_listener, listener.obj));
	for (struct obj *o = pool[OBJ_REQ].live; o; o = o->next)
		sim_req_unplug(container_of(o, struct sim_req, req.obj));
	for (struct obj *o = pool[OBJ_QP].live; o; o = o->next)
		sim_qp_unplug(container_of(o, struct sim_qp, qp.obj));
	for (struct obj *o = pool[OBJ_CHAN].live; o; o = o->next)
		sim_chan_fini(container_of(o, struct gn_chan, obj));
}

static int open_fabric(struct gn_fabric *base, const char *device)
{
	struct sim_fabric *fabric = container_of(base, struct sim_fabric, fabric);
	struct gn_sim *sim = sim_current();
	int rc;

	if (!sim)
		return gn_fail_log(
			-ENODEV,
			"sim: 'sim:%s' can be opened only by a program that gn_sim_run() runs",
			device);
	if (strcmp(device, sim->proc->node->name))
		return gn_fail_log(-ENODEV, "sim: this process runs on node '%s', not on '%s'",
				   sim->proc->node->name, device);
	rc = sim_nic_get(sim->proc->node, &fabric->nic);
	if (rc)
		return rc;
	rc = soft_keys_init(&fabric->keys);
	if (rc)
		return rc;
	fabric->sim = sim;
	fabric->proc = sim->proc;
	fabric->hook.fn = process_ended;
	sim_hook_add(fabric->proc, &fabric->hook);

	strncpy(base->attr.device, device, sizeof(base->attr.device) - 1);
	base->attr.caps = caps_of(sim);
	base->attr.max_send_wr = (uint32_t)sim->profile.max_send_wr;
	base->attr.max_recv_wr = (uint32_t)sim->profile.max_send_wr;
	base->attr.max_sge = (uint32_t)sim->profile.max_sge;
	base->attr.max_inline = (uint32_t)sim->profile.max_inline;
	base->attr.max_cqe = 131072;
	base->attr.max_rd_atomic = (uint32_t)sim->profile.max_rd_atomic;
	base->attr.max_mr = SOFT_KEYS - 1;
	base->attr.ud_mtu = base->attr.caps & GN_CAP_UD ? (uint32_t)sim->profile.ud_mtu : 0;
	base->attr.max_msg = sim->profile.max_msg;
	base->attr.max_private = PRIVATE_CONNECT_MAX;
	return 0;
}

static void close_fabric(struct gn_fabric *base)
{
	struct sim_fabric *fabric = container_of(base, struct sim_fabric, fabric);

	sim_hook_del(&fabric->hook);
	soft_keys_fini(&fabric->keys);
}

const struct provider provider_sim = {
	.name = "sim",
	.fabric_size = sizeof(struct sim_fabric),
	.size =
		{
			[OBJ_CTX] = sizeof(struct sim_ctx),
			[OBJ_CHAN] = sizeof(struct sim_chan),
			[OBJ_CQ] = sizeof(struct sim_cq),
			[OBJ_QP] = sizeof(struct sim_qp),
			[OBJ_LISTENER] = sizeof(struct sim_listener),
			[OBJ_REQ] = sizeof(struct sim_req),
		},
	.open = open_fabric,
	.close = close_fabric,
	.ctx_init = sim_ctx_init,
	.ctx_fini = sim_ctx_fini,
	.mem_alloc = sim_mem_alloc,
	.mem_fini = sim_mem_fini,
	.mr_init = sim_mr_init,
	.mr_fini = sim_mr_fini,
	.chan_fini = sim_chan_fini,
	.chan_pump = sim_chan_pump,
	.chan_timer = sim_chan_timer,
	.cq_init = sim_cq_init,
	.cq_fini = sim_cq_fini,
	.cq_poll = sim_cq_poll,
	.cq_arm = sim_cq_arm,
	.cq_ready = sim_cq_ready,
	.qp_init = sim_qp_init,
	.qp_detach = sim_qp_detach,
	.qp_fini = sim_qp_fini,
	.qp_error = sim_qp_error,
	.qp_reset = sim_qp_reset,
	.ud_addr = sim_ud_addr,
	.ah_init = sim_ah_init,
	.ah_reverse = sim_ah_reverse,
	.post_send = sim_post_send,
	.post_recv = sim_post_recv,
	.listen_init = sim_listen_init,
	.listen_fini = sim_listen_fini,
	.addr_check = sim_addr_check,
	.connect = sim_connect,
	.accept = sim_accept,
	.reject = sim_reject,
	.disconnect = sim_disconnect,
};
