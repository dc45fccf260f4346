/* SPDX-License-Identifier: MIT */
/*
 * A client of a tuning: in each step it reports that it is ready, runs until the step ends, and
 * stores its counts.
 */
#include "tune_shared.h"

#include <errno.h>
#include <string.h>

#define CALL_US	      10000000u
#define REQUEST_BYTES 32u
#define WRITE_BYTES   (REQUEST_BYTES + TUNE_HEAD_BYTES)

struct client {
	struct tune_shared *shared;
	uint32_t index;
	struct gn_fabric *fabric;
	/* READs: one connection for all steps */
	struct tune_endpoint ep;
	struct gn_qp *qp;
	struct gn_remote remote;
	/* calls: one client for each way, opened by its first step */
	struct gn_rpc_client *rpc[TUNE_WAYS];
};

/* ---- reads ---- */

static int client_open_reads(struct client *c)
{
	struct gn_qp_opts opts = {
		.size = sizeof(opts), .type = GN_QP_RC, .max_inline = WRITE_BYTES};
	char addr[TUNE_ADDR_BYTES + 16];
	struct gn_event event;
	int rc = tune_endpoint_open(&c->ep, c->fabric, 128, TUNE_SLOT_BYTES, 0);

	opts.send_cq = opts.recv_cq = c->ep.cq;
	opts.chan = c->ep.chan;
	if (!rc)
		rc = gn_qp_create(c->ep.pd, &opts, &c->qp);
	tune_reads_addr(c->shared->opts.addr, addr, sizeof(addr));
	if (!rc)
		rc = gn_connect_wait(c->qp, addr, NULL, &event);
	if (!rc)
		memcpy(&c->remote, event.private_data, sizeof(c->remote));
	return rc;
}

static void client_close_reads(struct client *c)
{
	if (c->qp)
		gn_disconnect(c->qp);
	gn_qp_destroy(c->qp);
	tune_endpoint_close(&c->ep);
}

static int client_wait_read(struct client *c)
{
	struct gn_wc wc;
	const int n = gn_cq_wait(c->ep.cq, &wc, 1, gn_deadline_us(CALL_US), "a read of tune");

	return n < 0 ? n : wc.status == GN_WC_OK ? 0 : -EIO;
}

/* WRITEs a request, then READs its result as often as the step says. */
static int client_read_once(struct client *c)
{
	const struct tune_step *step = &c->shared->step;
	char *at = gn_mem_addr(c->ep.mem);
	struct gn_sge out = {at, WRITE_BYTES, gn_mr_lkey(c->ep.mr)};
	struct gn_sge in = {at + WRITE_BYTES, step->bytes + TUNE_HEAD_BYTES, gn_mr_lkey(c->ep.mr)};
	struct gn_wr write, read;
	int rc;

	gn_wr_rdma(&write, GN_OP_WRITE, 0, &out, &c->remote, 0, GN_INLINE);
	gn_wr_rdma(&read, GN_OP_READ, 1, &in, &c->remote, WRITE_BYTES, GN_SIGNALED);
	write.next = &read;
	rc = gn_post_send(c->qp, &write, NULL);
	for (uint32_t i = 1; !rc && i < step->retries; i++) {
		rc = client_wait_read(c);
		if (!rc)
			rc = gn_post_send(c->qp, &read, NULL);
	}
	return rc ? rc : client_wait_read(c);
}

/* ---- calls ---- */

static int client_open_calls(struct client *c)
{
	const struct tune_shared *shared = c->shared;
	const struct gn_rpc_client_opts opts = {
		.size = sizeof(opts),
		.mode = shared->step.way == TUNE_REPLY ? GN_RPC_REPLY : GN_RPC_FETCH,
		.flags = shared->step.way == TUNE_EAGER ? GN_RPC_SIGNALED | GN_RPC_EAGER : 0,
		.slots = 1,
		.fetch_bytes = REQUEST_BYTES,
		.thread = 1 + c->index % shared->opts.threads};

	if (c->rpc[shared->step.way])
		return 0;
	return gn_rpc_client_open(c->fabric, shared->opts.addr, &opts, &c->rpc[shared->step.way]);
}

static int client_call_once(struct client *c)
{
	char request[REQUEST_BYTES] = {0}, result[REQUEST_BYTES];
	const uint32_t ns = (uint32_t)(c->shared->step.work_us * 1000);
	unsigned status;
	int rc;

	memcpy(request, &ns, sizeof(ns));
	rc = gn_rpc_call(c->rpc[c->shared->step.way], TUNE_METHOD, request, sizeof(request), result,
			 sizeof(result), NULL, gn_deadline_us(CALL_US), &status);
	return rc ? rc : status == GN_RPC_OK ? 0 : -EIO;
}

static uint64_t client_fetches(const struct client *c)
{
	struct gn_rpc_counters counters = {.size = sizeof(counters)};

	if (c->shared->step.calls)
		gn_rpc_client_counters(c->rpc[c->shared->step.way], &counters);
	return counters.fetches;
}

/* ---- steps ---- */

/* Waits until the counter has reached number. False: the tuning has ended. */
static bool client_await(struct client *c, const uint32_t *counter, uint32_t number)
{
	while (tune_load(counter) < number) {
		if (tune_over(c->shared))
			return false;
		gn_sleep_us(c->shared->poll_us);
	}
	return true;
}

static int client_run_step(struct client *c, uint32_t number)
{
	struct tune_shared *shared = c->shared;
	struct tune_count *count = &shared->count[c->index];
	int (*const once)(struct client * c) = shared->step.calls ? client_call_once :
								    client_read_once;
	uint64_t since_ns, fetches, ops = 0;
	int rc = shared->step.calls ? client_open_calls(c) : 0;

	if (!rc)
		rc = once(c);
	if (rc)
		return rc;
	__atomic_add_fetch(&shared->ready, 1, __ATOMIC_RELEASE);
	if (!client_await(c, &shared->going, number))
		return 0;
	fetches = client_fetches(c);
	since_ns = gn_now_ns();
	do {
		rc = once(c);
		ops++;
	} while (!rc && tune_load(&shared->stopped) < number && !tune_over(shared));
	count->ns = gn_now_ns() - since_ns;
	count->ops = ops;
	count->fetches = client_fetches(c) - fetches;
	__atomic_add_fetch(&shared->done, 1, __ATOMIC_RELEASE);
	return rc;
}

void tune_client(struct tune_shared *shared, uint32_t index, const char *fabric)
{
	struct client c = {.shared = shared, .index = index};
	const char *what = "connecting a client";
	int rc = gn_fabric_open(fabric, &c.fabric);

	if (!rc)
		rc = client_open_reads(&c);
	if (!rc)
		what = "a client's step";
	for (uint32_t number = 1; !rc && client_await(&c, &shared->number, number); number++) {
		if (tune_load(&shared->number) == UINT32_MAX)
			break;
		rc = client_run_step(&c, number);
	}
	if (rc)
		tune_fail(shared, what, rc);
	for (int way = 0; way < TUNE_WAYS; way++)
		gn_rpc_client_close(c.rpc[way]);
	client_close_reads(&c);
	gn_fabric_close(c.fabric);
	__atomic_add_fetch(&shared->left, 1, __ATOMIC_RELEASE);
}
