/* SPDX-License-Identifier: MIT */
/*
 * The server of the load of the I/O engine: a process that lends memory. It accepts the channels of
 * each client process (src/io/core/attach.h has the format) and then does nothing: the memory is
 * accessed by READs and WRITEs only.
 */
#include <errno.h>

#include "io/core/attach.h"
#include "io_load.h"

#define INCARNATION 1u

struct lender {
	struct load_proc *proc;
	struct io_run *run;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_listener *listener;
	struct lender_channel {
		struct gn_qp *qp;
		uint32_t generation;
	} channel[LOAD_MACHINES_MAX][IO_CHANNELS_MAX];
};

void io_fill_region(uint8_t *region, const struct bench_io_opts *o)
{
	const uint64_t blocks = o->region_bytes / o->block_bytes;

	for (uint64_t i = 0; i < blocks; i++) {
		uint8_t *block = region + i * o->block_bytes;
		const uint64_t word = io_first_word(i * o->block_bytes, o->load.seed);

		if (i)
			memcpy(block, region, o->block_bytes);
		else
			pattern_fill(block, o->block_bytes, o->load.seed);
		memcpy(block, &word, sizeof(word));
	}
}

/* ---- connections ---- */

/* The channel that a request is for; the token is the number of the client's process. */
static struct lender_channel *channel_of(struct lender *l, const struct gn_event *event,
					 struct io_attach *attach)
{
	uint32_t machine;

	if (event->private_len < sizeof(*attach))
		return NULL;
	memcpy(attach, event->private_data, sizeof(*attach));
	memcpy(&machine, attach->token, sizeof(machine));
	if (attach->magic != IO_ATTACH_MAGIC || attach->version != IO_ATTACH_VERSION ||
	    attach->channel >= IO_CHANNELS_MAX || machine >= LOAD_MACHINES_MAX)
		return NULL;
	return &l->channel[machine][attach->channel];
}

static int lender_accept(struct lender *l, const struct gn_event *event)
{
	const struct gn_qp_opts opts = {.size = sizeof(opts),
					.send_cq = l->cq,
					.recv_cq = l->cq,
					.chan = l->chan,
					.max_send_wr = 1,
					.max_recv_wr = 1};
	struct io_attach_reply reply = {.magic = IO_ATTACH_MAGIC,
					.version = IO_ATTACH_VERSION,
					.status = IO_ATTACH_BAD_REQUEST,
					.incarnation = INCARNATION};
	const struct gn_conn_opts conn = {
		.size = sizeof(conn), .private_data = &reply, .private_len = sizeof(reply)};
	struct io_attach attach;
	struct lender_channel *ch = channel_of(l, event, &attach);
	int rc;

	if (!ch || attach.generation <= ch->generation) {
		if (ch)
			reply.status = IO_ATTACH_OLD_GENERATION;
		return gn_reject(event->req, &reply, sizeof(reply));
	}
	reply.status = IO_ATTACH_OK;
	reply.generation = ch->generation = attach.generation;
	gn_qp_destroy(ch->qp);
	ch->qp = NULL;
	rc = gn_qp_create(l->pd, &opts, &ch->qp);
	return rc ? rc : gn_accept(event->req, ch->qp, &conn);
}

static void lender_loop(struct lender *l)
{
	struct gn_event event;
	struct gn_wc wc;

	while (!l->proc->served(l->proc, NULL)) {
		int rc = gn_chan_wait(l->chan, gn_deadline_us(l->proc->nap_us), &event);

		if (!rc && event.type == GN_EVENT_CONNECT_REQUEST)
			load_check(&l->run->load, lender_accept(l, &event), "accepting a channel");
		gn_cq_poll(l->cq, &wc, 1); /* flushed receives: there are none, but for errors */
	}
}

/* ---- beginning and end ---- */

static int lender_listen(void *arg, const char *addr)
{
	struct lender *l = arg;

	return gn_listener_create(l->ctx, addr, l->chan, 0, &l->listener);
}

static int lender_open(struct lender *l)
{
	const struct bench_io_opts *o = &l->run->opts;
	const unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE;
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = 2 * IO_CHANNELS_MAX};
	struct gn_fabric *fabric = l->proc->fabric;
	int rc = gn_ctx_create(fabric, &l->ctx);

	if (!rc)
		rc = gn_chan_create(l->ctx, &l->chan);
	cq.chan = l->chan;
	if (!rc)
		rc = gn_cq_create(l->ctx, &cq, &l->cq);
	if (!rc)
		rc = gn_pd_create(l->ctx, &l->pd);
	if (!rc)
		rc = gn_mem_alloc(fabric, o->region_bytes, rights, &l->mem);
	if (rc)
		return rc;
	io_fill_region(gn_mem_addr(l->mem), o);
	rc = gn_mr_register(l->pd, l->mem, 0, o->region_bytes, GN_LOCAL_WRITE | rights, &l->mr);
	return rc ? rc : gn_mr_remote(l->mr, &l->run->remote);
}

static void lender_close(struct lender *l)
{
	for (unsigned i = 0; i < LOAD_MACHINES_MAX; i++)
		for (unsigned j = 0; j < IO_CHANNELS_MAX; j++)
			gn_qp_destroy(l->channel[i][j].qp);
	gn_listener_destroy(l->listener);
	gn_mr_deregister(l->mr);
	gn_mem_free(l->mem);
	gn_pd_destroy(l->pd);
	gn_cq_destroy(l->cq);
	gn_chan_destroy(l->chan);
	gn_ctx_destroy(l->ctx);
}

int io_serve(struct load_proc *proc, uint32_t number)
{
	struct lender *l;
	int rc;

	if (((struct io_run *)proc->run)->opts.volume)
		return io_volume_serve(proc, number);
	l = gn_alloc(sizeof(*l), 0);
	rc = l ? 0 : -ENOMEM;
	if (!rc) {
		l->proc = proc;
		l->run = (struct io_run *)proc->run; /* which begins with it */
		rc = lender_open(l);
	}
	if (rc) {
		load_check(proc->run, rc, "lending memory");
		proc->listens(proc, number, rc);
	} else if (!load_listen(proc, number, lender_listen, l)) {
		lender_loop(l);
	}
	if (l)
		lender_close(l);
	gn_free(l);
	return rc;
}
