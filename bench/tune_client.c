/* SPDX-License-Identifier: MIT */
/*
 * A client of a tuning: for each step it says that it is ready, runs until the step's end, and
 * leaves its count.
 */
#include "tune_hall.h"

#include <errno.h>
#include <string.h>

#define CALL_US	      10000000u
#define REQUEST_BYTES 32u
#define WRITE_BYTES   (REQUEST_BYTES + TUNE_HEAD_BYTES)

struct client {
	struct tune_hall *hall;
	uint32_t index;
	struct gn_fabric *fabric;
	/* reads: one connection for all steps */
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_qp *qp;
	struct gn_remote remote;
	/* calls: one for each way, when it is needed */
	struct gn_rpc_client *rpc[TUNE_WAYS];
};

/* ---- reads ---- */

static int open_reads(struct client *c)
{
	const struct gn_qp_opts qp = {.type = GN_QP_RC, .max_inline = WRITE_BYTES};
	struct gn_qp_opts opts = qp;
	char addr[TUNE_ADDR_BYTES + 16];
	struct gn_event event;
	int rc = gn_ctx_create(c->fabric, &c->ctx);

	if (!rc)
		rc = gn_chan_create(c->ctx, &c->chan);
	if (!rc)
		rc = gn_cq_create(c->ctx, &(struct gn_cq_opts){.depth = 128}, &c->cq);
	if (!rc)
		rc = gn_pd_create(c->ctx, &c->pd);
	if (!rc)
		rc = gn_mem_alloc(c->fabric, TUNE_SLOT_BYTES, 0, &c->mem);
	if (!rc)
		rc = gn_mr_register(c->pd, c->mem, 0, TUNE_SLOT_BYTES, GN_LOCAL_WRITE, &c->mr);
	opts.send_cq = opts.recv_cq = c->cq;
	opts.chan = c->chan;
	if (!rc)
		rc = gn_qp_create(c->pd, &opts, &c->qp);
	tune_reads_addr(c->hall->opts.addr, addr, sizeof(addr));
	if (!rc)
		rc = gn_connect_wait(c->qp, addr, NULL, &event);
	if (!rc)
		memcpy(&c->remote, event.private_data, sizeof(c->remote));
	return rc;
}

static void close_reads(struct client *c)
{
	if (c->qp)
		gn_disconnect(c->qp);
	gn_qp_destroy(c->qp);
	gn_mr_deregister(c->mr);
	gn_mem_free(c->mem);
	gn_pd_destroy(c->pd);
	gn_cq_destroy(c->cq);
	gn_chan_destroy(c->chan);
	gn_ctx_destroy(c->ctx);
}

static int wait_read(struct client *c)
{
	struct gn_wc wc;
	const int n = gn_cq_wait(c->cq, &wc, 1, gn_deadline_us(CALL_US), "a read of tune");

	return n < 0 ? n : wc.status == GN_WC_OK ? 0 : -EIO;
}

/* A request, and as many looks for its result. */
static int read_once(struct client *c)
{
	const struct tune_step *step = &c->hall->step;
	char *at = gn_mem_addr(c->mem);
	struct gn_sge out = {at, WRITE_BYTES, gn_mr_lkey(c->mr)};
	struct gn_sge in = {at + WRITE_BYTES, step->bytes + TUNE_HEAD_BYTES, gn_mr_lkey(c->mr)};
	struct gn_wr write, read;
	int rc;

	gn_wr_rdma(&write, GN_OP_WRITE, 0, &out, &c->remote, 0, GN_INLINE);
	gn_wr_rdma(&read, GN_OP_READ, 1, &in, &c->remote, WRITE_BYTES, GN_SIGNALED);
	write.next = &read;
	rc = gn_post_send(c->qp, &write, NULL);
	for (uint32_t i = 1; !rc && i < step->retries; i++) {
		rc = wait_read(c);
		if (!rc)
			rc = gn_post_send(c->qp, &read, NULL);
	}
	return rc ? rc : wait_read(c);
}

/* ---- calls ---- */

static int open_calls(struct client *c)
{
	const struct tune_hall *hall = c->hall;
	const struct gn_rpc_client_opts opts = {
		.mode = hall->step.way == TUNE_REPLY ? GN_RPC_REPLY : GN_RPC_FETCH,
		.flags = hall->step.way == TUNE_EAGER ? GN_RPC_SIGNALED | GN_RPC_EAGER : 0,
		.slots = 1,
		.fetch_bytes = REQUEST_BYTES,
		.thread = 1 + c->index % hall->opts.threads};

	if (c->rpc[hall->step.way])
		return 0;
	return gn_rpc_client_open(c->fabric, hall->opts.addr, &opts, &c->rpc[hall->step.way]);
}

static int call_once(struct client *c)
{
	char request[REQUEST_BYTES] = {0}, result[REQUEST_BYTES];
	const uint32_t ns = (uint32_t)(c->hall->step.work_us * 1000);
	unsigned status;
	int rc;

	memcpy(request, &ns, sizeof(ns));
	rc = gn_rpc_call(c->rpc[c->hall->step.way], TUNE_METHOD, request, sizeof(request), result,
			 sizeof(result), NULL, gn_deadline_us(CALL_US), &status);
	return rc ? rc : status == GN_RPC_OK ? 0 : -EIO;
}

static uint64_t fetches_of(const struct client *c)
{
	struct gn_rpc_counters counters = {0};

	if (c->hall->step.calls)
		gn_rpc_client_counters(c->rpc[c->hall->step.way], &counters);
	return counters.fetches;
}

/* ---- steps ---- */

/* Until word has reached number; false: it is over. */
static bool await(struct client *c, const uint32_t *word, uint32_t number)
{
	while (tune_word(word) < number) {
		if (tune_over(c->hall))
			return false;
		gn_sleep_us(c->hall->nap_us);
	}
	return true;
}

static int run_step(struct client *c, uint32_t number)
{
	struct tune_hall *hall = c->hall;
	struct tune_count *count = &hall->count[c->index];
	int (*const once)(struct client * c) = hall->step.calls ? call_once : read_once;
	uint64_t since_ns, fetches, ops = 0;
	int rc = hall->step.calls ? open_calls(c) : 0;

	if (!rc)
		rc = once(c);
	if (rc)
		return rc;
	__atomic_add_fetch(&hall->ready, 1, __ATOMIC_RELEASE);
	if (!await(c, &hall->going, number))
		return 0;
	fetches = fetches_of(c);
	since_ns = gn_now_ns();
	do {
		rc = once(c);
		ops++;
	} while (!rc && tune_word(&hall->stopped) < number && !tune_over(hall));
	count->ns = gn_now_ns() - since_ns;
	count->ops = ops;
	count->fetches = fetches_of(c) - fetches;
	__atomic_add_fetch(&hall->done, 1, __ATOMIC_RELEASE);
	return rc;
}

void tune_client(struct tune_hall *hall, uint32_t index, const char *fabric)
{
	struct client c = {.hall = hall, .index = index};
	const char *what = "connecting a client";
	int rc = gn_fabric_open(fabric, &c.fabric);

	if (!rc)
		rc = open_reads(&c);
	if (!rc)
		what = "a client's step";
	for (uint32_t number = 1; !rc && await(&c, &hall->number, number); number++) {
		if (tune_word(&hall->number) == UINT32_MAX)
			break;
		rc = run_step(&c, number);
	}
	if (rc)
		tune_fail(hall, what, rc);
	for (int way = 0; way < TUNE_WAYS; way++)
		gn_rpc_client_close(c.rpc[way]);
	close_reads(&c);
	gn_fabric_close(c.fabric);
	__atomic_add_fetch(&hall->left, 1, __ATOMIC_RELEASE);
}
