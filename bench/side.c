/* SPDX-License-Identifier: MIT */
/*
 * One end of a connection with all the objects a benchmark needs, and how the two ends meet.
 */
#include "pair.h"

#include <gannet/exec.h>

#include <errno.h>
#include <unistd.h>

#include <gannet/exec.h>

#define WORKING_SET    65536u	  /* bytes of the side that has fewer buffers, at least */
#define SLOTS_MIN      4u	  /* buffers, for sizes where that is more */
#define RECEIVES_MIN   64u	  /* posted at a time */
#define RECEIVES_BYTES (1u << 20) /* … unless that takes more than this */
#define SEND_WRS_MIN   256u
#define IN_QUEUE_BYTES \
	(256u << 10)	       /* of one-sided requests, unless that is less than four chains */
#define INLINE_MAX 64u	       /* what a program would send inline */
#define QKEY_MASK  0x7fffffffu /* the highest bit is for privileged qkeys */
#define CONNECT_US 5000000u

static uint32_t round_up(uint32_t n, uint32_t to)
{
	return (n + to - 1) / to * to;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t power_of_two(uint32_t at_least)
{
	uint32_t n = 1;

	while (n < at_least)
		n *= 2;
	return n;
}

/*
 * A source is twice as long as its target, so that each lap brings something else. Locally a READ
 * needs as much as a WRITE: its target, and one more for the memcpy next to it.
 */
static void plan_buffers(const struct bench_opts *opts, struct plan *plan)
{
	size_t few;

	plan->stride = round_up(opts->size_bytes, opts->size_bytes < 64 ? 8 : 64);
	plan->slots = max_u32(SLOTS_MIN, WORKING_SET / plan->stride);
	few = (size_t)plan->slots * plan->stride;
	plan->local_bytes[INITIATOR] = 2 * few;
	plan->exposed_bytes[PEER] = opts->op == BENCH_READ ? 2 * few : few;
	plan->limit_bytes = plan->exposed_bytes[PEER];
	plan->rights = opts->op == BENCH_READ ? GN_REMOTE_READ : GN_REMOTE_WRITE;
	if (bench_traits[opts->op].kind == BENCH_ATOMIC) {
		plan->limit_bytes = 0;
		plan->rights = GN_REMOTE_ATOMIC;
	}
	plan->receives = 1; /* the last message, that says to check */
	plan->send_wrs = max_u32(4 * opts->depth, IN_QUEUE_BYTES / opts->size_bytes);
	plan->send_wrs = least_u32(plan->send_wrs, max_u32(SEND_WRS_MIN, 4 * opts->depth));
}

static void plan_messages(const struct bench_opts *opts, struct plan *plan)
{
	uint32_t fit;

	plan->ud = opts->op == BENCH_UD_SEND;
	plan->stride = round_up(opts->size_bytes, 64);
	plan->receive_stride = plan->stride + (plan->ud ? 64 : 0);
	fit = RECEIVES_BYTES / plan->receive_stride;
	/* Four times what is in flight: receives are posted again a quarter at a time. */
	plan->receives =
		power_of_two(max_u32(4 * opts->depth, fit < RECEIVES_MIN ? fit : RECEIVES_MIN));
	plan->slots = plan->receives; /* send buffers */
	for (int role = 0; role < 2; role++) {
		plan->local_bytes[role] = (size_t)plan->slots * plan->stride;
		if (opts->op == BENCH_WRITE_IMM)
			plan->exposed_bytes[role] = (size_t)plan->receives * plan->receive_stride;
		else
			plan->local_bytes[role] += (size_t)plan->receives * plan->receive_stride;
	}
	plan->rights = GN_REMOTE_WRITE;
}

void plan_make(const struct bench_opts *opts, struct plan *plan)
{
	*plan = (struct plan){.send_wrs = max_u32(SEND_WRS_MIN, 4 * opts->depth)};
	switch (bench_traits[opts->op].kind) {
	case BENCH_ONE_SIDED:
	case BENCH_ATOMIC:
		plan_buffers(opts, plan);
		break;
	case BENCH_MESSAGE:
	case BENCH_SLEEPER:
		plan_messages(opts, plan);
		break;
	case BENCH_LIMIT:
		plan_buffers(opts, plan);
		plan->exposed_bytes[PEER] = 0;
		plan->receives = 0;
		plan->needs_fabric = opts->op == BENCH_MEMCPY;
		return;
	}
	plan->needs_fabric = plan->needs_qp = true;
}

/* ---- objects ---- */

static int failed(const char *what, int rc)
{
	gn_log(GN_LOG_ERROR, "bench: cannot %s: %s", what, gn_strerror(rc));
	return rc;
}

static int alloc(struct side *side, size_t bytes, unsigned rights, struct gn_mem **mem,
		 uint8_t **addr)
{
	int rc;

	if (!bytes)
		return 0;
	rc = gn_mem_alloc(side->fabric, bytes, rights, mem);
	if (rc)
		return failed("allocate memory", rc);
	*addr = gn_mem_addr(*mem);
	memset(*addr, 0, bytes); /* page faults now, not later */
	return 0;
}

static int open_memory(struct side *side)
{
	const struct plan *plan = &side->plan;
	int rc;

	rc = alloc(side, plan->local_bytes[side->role], 0, &side->local_mem, &side->local);
	if (!rc)
		rc = alloc(side, plan->exposed_bytes[side->role], plan->rights, &side->exposed_mem,
			   &side->exposed);
	if (!rc && side->role == INITIATOR)
		rc = alloc(side, plan->limit_bytes, plan->rights, &side->limit_mem, &side->limit);
	return rc;
}

static int register_memory(struct side *side)
{
	const struct plan *plan = &side->plan;
	int rc = 0;

	if (side->local_mem)
		rc = gn_mr_register(side->pd, side->local_mem, 0, plan->local_bytes[side->role],
				    GN_LOCAL_WRITE, &side->local_mr);
	if (!rc && side->exposed_mem)
		rc = gn_mr_register(side->pd, side->exposed_mem, 0, plan->exposed_bytes[side->role],
				    GN_LOCAL_WRITE | plan->rights, &side->exposed_mr);
	return rc ? failed("register memory", rc) : 0;
}

static int open_qp(struct side *side)
{
	const struct plan *plan = &side->plan;
	const bool small = side->opts.size_bytes <= INLINE_MAX &&
			   side->opts.size_bytes <= side->attr.max_inline;
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = plan->receives + plan->send_wrs};
	struct gn_qp_opts qp = {.size = sizeof(qp),
				.type = plan->ud ? GN_QP_UD : GN_QP_RC,
				.max_send_wr = plan->send_wrs,
				.max_recv_wr = plan->receives,
				.max_inline = small ? side->opts.size_bytes : 0,
				.qkey = (uint32_t)gn_random() & QKEY_MASK};
	int rc;

	side->inline_max = qp.max_inline;
	rc = gn_ctx_create(side->fabric, &side->ctx);
	if (!rc)
		rc = gn_chan_create(side->ctx, &side->chan);
	if (!rc)
		rc = gn_pd_create(side->ctx, &side->pd);
	cq.chan = side->chan;
	if (!rc)
		rc = gn_cq_create(side->ctx, &cq, &side->cq);
	qp.send_cq = qp.recv_cq = side->cq;
	qp.chan = side->chan;
	if (!rc)
		rc = gn_qp_create(side->pd, &qp, &side->qp);
	return rc ? failed("create a queue pair", rc) : register_memory(side);
}

static int check_limits(const struct side *side)
{
	const struct bench_opts *opts = &side->opts;
	const struct gn_attr *attr = &side->attr;

	if (side->plan.ud && (!(attr->caps & GN_CAP_UD) || opts->size_bytes > attr->ud_mtu)) {
		gn_log(GN_LOG_ERROR, "bench: %s sends datagrams of up to %u bytes", opts->provider,
		       attr->ud_mtu);
		return -EMSGSIZE;
	}
	if (bench_traits[opts->op].kind == BENCH_ATOMIC && !(attr->caps & GN_CAP_ATOMICS)) {
		gn_log(GN_LOG_ERROR, "bench: %s has no atomics", opts->provider);
		return -EOPNOTSUPP;
	}
	if (side->plan.send_wrs > attr->max_send_wr || side->plan.receives > attr->max_recv_wr) {
		gn_log(GN_LOG_ERROR, "bench: --depth %u is too much for %s: it has queues of %u",
		       opts->depth, opts->provider, attr->max_send_wr);
		return -E2BIG;
	}
	return 0;
}

int side_open(struct side *side, enum role role, const struct bench_opts *opts,
	      struct gn_fabric *fabric)
{
	int rc = 0;

	*side = (struct side){.role = role, .opts = *opts, .fabric = fabric};
	plan_make(opts, &side->plan);
	if (!side->plan.needs_fabric)
		return 0;
	if (!fabric)
		rc = gn_fabric_open(opts->provider, &side->own_fabric);
	if (rc) /* anything else has been logged */
		return rc == -EINVAL ? failed("open the fabric", rc) : rc;
	if (!fabric)
		side->fabric = side->own_fabric;
	side->attr.size = sizeof(side->attr);
	gn_fabric_query(side->fabric, &side->attr);
	rc = side->plan.needs_qp ? check_limits(side) : 0;
	if (!rc)
		rc = open_memory(side);
	if (!rc && side->plan.needs_qp)
		rc = open_qp(side);
	if (rc)
		side_close(side);
	return rc;
}

void side_close(struct side *side)
{
	gn_ah_destroy(side->ah);
	gn_qp_destroy(side->qp);
	gn_listener_destroy(side->listener);
	gn_mr_deregister(side->local_mr);
	gn_mr_deregister(side->exposed_mr);
	gn_mem_free(side->local_mem);
	gn_mem_free(side->exposed_mem);
	gn_mem_free(side->limit_mem);
	gn_cq_destroy(side->cq);
	gn_pd_destroy(side->pd);
	gn_chan_destroy(side->chan);
	gn_ctx_destroy(side->ctx);
	gn_fabric_close(side->own_fabric);
	*side = (struct side){.role = side->role};
}

/* ---- meeting ---- */

int side_publish(struct side *side, struct shared *shared)
{
	int rc = 0;

	if (side->exposed_mr)
		rc = gn_mr_remote(side->exposed_mr, &shared->remote[side->role]);
	if (!rc && side->plan.ud)
		rc = gn_qp_ud_addr(side->qp, &shared->ud[side->role]);
	return rc ? failed("describe this side", rc) : 0;
}

int side_listen(struct side *side, const char *addr)
{
	const int rc = side->plan.ud ?
			       0 :
			       gn_listener_create(side->ctx, addr, side->chan, 0, &side->listener);

	return rc && rc != -EADDRINUSE ? failed("listen", rc) : rc;
}

int side_accept(struct side *side)
{
	struct gn_event event;
	int rc;

	if (side->plan.ud)
		return 0;
	rc = gn_chan_wait(side->chan, gn_deadline_us(CONNECT_US), &event);
	if (rc || event.type != GN_EVENT_CONNECT_REQUEST)
		return failed("be connected to", rc ? rc : -EPROTO);
	rc = gn_accept(event.req, side->qp, NULL);
	if (!rc)
		rc = gn_chan_wait(side->chan, gn_deadline_us(CONNECT_US), &event);
	if (!rc && event.type != GN_EVENT_ESTABLISHED)
		rc = -EPROTO;
	gn_listener_destroy(side->listener); /* now, so that a killed process leaves no socket */
	side->listener = NULL;
	return rc ? failed("accept", rc) : 0;
}

int side_connect(struct side *side, const char *addr)
{
	const struct gn_conn_opts opts = {
		.size = sizeof(opts), .rnr_retry = GN_RNR_RETRY_DEFAULT, .timeout_us = CONNECT_US};
	int rc;

	if (side->plan.ud)
		return 0;
	rc = gn_connect_wait(side->qp, addr, &opts, NULL);
	return rc ? failed("connect", rc) : 0;
}

int side_meet(struct side *side, struct shared *shared)
{
	const enum role other = side->role == INITIATOR ? PEER : INITIATOR;
	int rc;

	side->remote = shared->remote[other];
	side->to = shared->ud[other];
	if (!side->plan.ud)
		return 0;
	rc = gn_ah_create(side->qp, &side->to, &side->ah);
	return rc ? failed("reach the other side", rc) : 0;
}
