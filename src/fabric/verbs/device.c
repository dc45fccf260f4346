/* SPDX-License-Identifier: MIT */
/*
 * Selects a device and queries its capabilities; contexts: each is an ibv_context of its own,
 * because posts contend on a context.
 */
#include "base/fail.h"
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Devices advertise more than is sensible to allocate; these limits bound an object's cost. */
#define SGE_MAX	      32u
#define CQE_MAX	      (1u << 18)
#define RD_ATOMIC_MAX 16

static const uint32_t inline_sizes[] = {512, 256, 128, 64};

static uint32_t at_most(int value, uint32_t limit)
{
	return value < 0 ? 0 : (uint32_t)value < limit ? (uint32_t)value : limit;
}

int vrb_nonblocking(int fd)
{
	const int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

/* The largest inline size is known only after creating a qp. */
static uint32_t device_probe_inline(struct ibv_context *ibv)
{
	struct ibv_pd *pd = ibv_alloc_pd(ibv);
	struct ibv_cq *cq = ibv_create_cq(ibv, 1, NULL, NULL, 0);
	uint32_t size = 0;

	for (size_t i = 0; pd && cq && !size && i < sizeof(inline_sizes) / sizeof(*inline_sizes);
	     i++) {
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC,
			.send_cq = cq,
			.recv_cq = cq,
			.cap = {.max_send_wr = 1,
				.max_recv_wr = 1,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = inline_sizes[i]},
		};
		struct ibv_qp *qp = ibv_create_qp(pd, &init);

		if (qp) {
			size = inline_sizes[i];
			ibv_destroy_qp(qp);
		}
	}
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return size;
}

static uint64_t device_caps(const struct ibv_device_attr *dev)
{
	/*
	 * No order of bytes in memory is guaranteed here: the device tells per connection (qp.c).
	 */
	uint64_t caps = GN_CAP_UD | GN_CAP_EVENT_FD | GN_CAP_FOREIGN_REMOTE | GN_CAP_HUGE;

	if (dev->atomic_cap != IBV_ATOMIC_NONE)
		caps |= GN_CAP_ATOMICS;
	if (dev->atomic_cap == IBV_ATOMIC_GLOB)
		caps |= GN_CAP_ATOMIC_CPU;
	return caps;
}

static void device_fill_attr(struct vrb_fabric *fabric, const struct ibv_device_attr *dev,
			     const struct ibv_port_attr *port)
{
	const int sge = dev->max_sge_rd && dev->max_sge_rd < dev->max_sge ? dev->max_sge_rd :
									    dev->max_sge;
	struct gn_attr *attr = &fabric->base.attr;

	fabric->rd_atomic_in = (uint8_t)at_most(dev->max_qp_rd_atom, RD_ATOMIC_MAX);
	fabric->rd_atomic_out = (uint8_t)at_most(dev->max_qp_init_rd_atom, RD_ATOMIC_MAX);
	snprintf(attr->device, sizeof(attr->device), "%s",
		 ibv_get_device_name(fabric->ibv->device));
	attr->caps = device_caps(dev);
	attr->max_send_wr = attr->max_recv_wr = at_most(dev->max_qp_wr, VRB_WR_MAX);
	attr->max_sge = at_most(sge, SGE_MAX);
	attr->max_inline = device_probe_inline(fabric->ibv);
	attr->max_cqe = at_most(dev->max_cqe, CQE_MAX);
	attr->max_rd_atomic = fabric->rd_atomic_in < fabric->rd_atomic_out ? fabric->rd_atomic_in :
									     fabric->rd_atomic_out;
	/* one of our regions may need two (mr.c) */
	attr->max_mr = at_most(dev->max_mr, INT32_MAX) / 2;
	attr->ud_mtu = 128u << port->active_mtu;
	attr->max_msg = port->max_msg_sz;
	attr->max_private = PRIVATE_CONNECT_MAX;
}

/* Finds the first active port, or -ENETDOWN. */
static int device_find_port(struct ibv_context *ibv, int n_ports, struct ibv_port_attr *out)
{
	for (int i = 1; i <= n_ports; i++)
		if (!ibv_query_port(ibv, (uint8_t)i, out) && out->state == IBV_PORT_ACTIVE)
			return i;
	return -ENETDOWN;
}

static int device_use(struct vrb_fabric *fabric, struct ibv_device *device)
{
	const char *name = ibv_get_device_name(device);
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	struct vrb_gid gid;
	int rc;

	if (device->transport_type != IBV_TRANSPORT_IB) {
		gn_log(GN_LOG_INFO, "verbs: %s is neither InfiniBand nor RoCE", name);
		return -EOPNOTSUPP;
	}
	fabric->ibv = ibv_open_device(device);
	if (!fabric->ibv) {
		rc = vrb_errno();
		return gn_fail_log(rc, "verbs: cannot open %s: %s", name, gn_strerror(rc));
	}
	rc = ibv_query_device(fabric->ibv, &dev);
	if (rc) {
		rc = -rc;
		gn_fail_log(0, "verbs: %s does not say what it can do: %s", name, gn_strerror(rc));
		goto close_device;
	}
	rc = device_find_port(fabric->ibv, dev.phys_port_cnt, &port);
	if (rc < 0)
		goto close_device;
	fabric->port = (uint8_t)rc;
	fabric->roce = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	rc = vrb_gid_choose(fabric->ibv, fabric->port, NULL, &gid);
	if (rc)
		goto close_device;
	device_fill_attr(fabric, &dev, &port);
	return 0;
close_device:
	ibv_close_device(fabric->ibv);
	return rc;
}

/*
 * A forked child that writes to its copy of registered memory must not change the pages that the
 * parent's device uses. Since Linux 5.12 fork copies pinned pages for the child, and nothing is
 * needed. For older kernels libibverbs can exclude registered pages from the child, if asked before
 * the first registration. This is better than madvise() in gn_mem_alloc(): it covers wrapped memory
 * and the queues, and where the kernel copies, a child can read its parent's memory.
 */
static void device_fork_init(void)
{
	if (ibv_is_fork_initialized() == IBV_FORK_DISABLED && ibv_fork_init())
		gn_log(GN_LOG_WARN,
		       "verbs: a fork will break registered memory: this kernel is older than 5.12 "
		       "and something registered memory before Gannet could prepare");
}

/* Returns the best result: 0, or else the most useful error. */
static int device_try_all(struct vrb_fabric *fabric, struct ibv_device **list, int n,
			  const char *wanted)
{
	int result = -ENODEV;

	for (int i = 0; i < n; i++) {
		int rc;

		if (*wanted && strcmp(wanted, ibv_get_device_name(list[i])))
			continue;
		rc = device_use(fabric, list[i]);
		if (!rc)
			return 0;
		if (result == -ENODEV || rc == -ENETDOWN)
			result = rc;
	}
	return result;
}

int vrb_open(struct gn_fabric *base, const char *device)
{
	struct vrb_fabric *fabric = vrb_fabric(base);
	struct ibv_device **list;
	int n = 0, rc;

	device_fork_init();
	list = ibv_get_device_list(&n);
	rc = device_try_all(fabric, list, list ? n : 0, device);
	if (list)
		ibv_free_device_list(list);
	if (rc == -ENODEV && *device)
		gn_fail_log(
			0, "verbs: there is no RDMA device %s; `ibv_devices` lists those there are",
			device);
	else if (rc == -ENODEV)
		gn_fail_log(0,
			    "verbs: there is no RDMA device; without hardware, make one with `rdma "
			    "link "
			    "add rxe0 type rxe netdev eth0`");
	else if (rc == -ENETDOWN)
		gn_fail_log(
			0,
			"verbs: no port of %s is active; bring its network interface up, or wait "
			"for the subnet manager; `ibv_devinfo` shows the ports",
			*device ? device : "any RDMA device");
	else if (rc == -EOPNOTSUPP)
		gn_fail_log(0, "verbs: %s is neither InfiniBand nor RoCE, and only those work here",
			    *device ? device : "every RDMA device");
	return rc;
}

void vrb_close(struct gn_fabric *fabric)
{
	ibv_close_device(vrb_fabric(fabric)->ibv);
}

int vrb_ctx_init(struct gn_ctx *base)
{
	struct vrb_ctx *ctx = vrb_ctx(base);
	int rc;

	ctx->ibv = ibv_open_device(vrb_fabric(base->obj.fabric)->ibv->device);
	if (!ctx->ibv) {
		rc = vrb_errno();
		return gn_fail_log(rc, "verbs: cannot open %s again: %s",
				   base->obj.fabric->attr.device, gn_strerror(rc));
	}
	rc = vrb_nonblocking(ctx->ibv->async_fd);
	if (rc) {
		ibv_close_device(ctx->ibv);
		return rc;
	}
	vrb_table_init(&ctx->table);
	return 0;
}

void vrb_ctx_fini(struct gn_ctx *base)
{
	struct vrb_ctx *ctx = vrb_ctx(base);

	vrb_table_fini(&ctx->table);
	ibv_close_device(ctx->ibv);
}
