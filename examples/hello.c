/* SPDX-License-Identifier: MIT */
/*
 * In one terminal: example-hello serve shm:greeter. In another: example-hello shm:greeter "good day".
 * The client writes into the server's memory, reads it back, and sends a message. What stands
 * before the first colon is the provider: verbs:HOST:PORT does the same over a network.
 */
#include <err.h>
#include <errno.h>
#include <gannet/fabric.h>
#include <stdio.h>
#include <string.h>

#define LEN 256u
static struct gn_fabric *fabric; /* an opened provider */
static struct gn_ctx *ctx;
static struct gn_chan *chan; /* tells of connections */
static struct gn_cq *cq;     /* tells of requests that are done */
static struct gn_pd *pd;     /* who may reach what */
static struct gn_mem *mem;
static struct gn_mr *mr;   /* the memory, registered */
static struct gn_qp *qp;   /* our end of the connection */
static char *text, *inbox; /* two halves of the memory */

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, gn_strerror(rc));
}

static void set_up(const char *addr, unsigned rights)
{
	char provider[16];

	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(addr, ":"), addr);
	must(gn_fabric_open(provider, &fabric), provider);
	must(gn_ctx_create(fabric, &ctx), "context");
	must(gn_chan_create(ctx, &chan), "channel");
	must(gn_pd_create(ctx, &pd), "protection domain");
	must(gn_mem_alloc(fabric, 2 * LEN, rights, &mem), "memory");
	must(gn_mr_register(pd, mem, 0, 2 * LEN, GN_LOCAL_WRITE | rights, &mr), "region");
	must(gn_cq_create(ctx, &(struct gn_cq_opts){.depth = 16, .chan = chan}, &cq), "cq");
	must(gn_qp_create(pd, &(struct gn_qp_opts){GN_QP_RC, cq, cq, .chan = chan}, &qp), "qp");
	text = gn_mem_addr(mem);
	inbox = text + LEN;
}

/* Sleeps until a receive, or a signaled request, is done. */
static void done(const char *what)
{
	struct gn_wc wc;

	must(gn_cq_wait(cq, &wc, 1, GN_FOREVER, what), what);
	must(wc.status == GN_WC_OK ? 0 : -EIO, gn_wc_status_str(wc.status));
}

static void serve(const char *addr)
{
	struct gn_sge sge = {inbox, LEN, gn_mr_lkey(mr)};
	struct gn_listener *listener;
	struct gn_remote ours; /* all that a client needs to reach our memory */
	struct gn_event ev;

	must(gn_mr_remote(mr, &ours), "region");
	must(gn_post_recv(qp, &(struct gn_recv_wr){.sge = &sge, .n_sge = 1}, NULL), "receive");
	must(gn_listen(ctx, addr, chan, 0, &listener), addr);
	must(gn_chan_wait(chan, GN_FOREVER, &ev), "a client");
	must(gn_accept(ev.req, qp, &(struct gn_conn_opts){&ours, sizeof(ours), 6}), "accept");
	must(gn_chan_wait(chan, GN_FOREVER, &ev), "connection"); /* ESTABLISHED */
	done("message");
	printf("message: %s\nmemory:  %s\n", inbox, text);
}

static void greet(const char *addr)
{
	struct gn_sge out = {text, LEN, gn_mr_lkey(mr)}, back = {inbox, LEN, gn_mr_lkey(mr)};
	struct gn_remote theirs;
	struct gn_event reply;
	struct gn_wr wr[3];

	must(gn_connect_wait(qp, addr, NULL, &reply), addr);
	memcpy(&theirs, reply.private_data, sizeof(theirs));
	gn_wr_rdma(&wr[0], GN_OP_WRITE, 0, &out, &theirs, 0, 0);
	gn_wr_rdma(&wr[1], GN_OP_READ, 1, &back, &theirs, 0, 0);
	gn_wr_send(&wr[2], 2, &out, GN_SIGNALED);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	must(gn_post_send(qp, wr, NULL), "post");
	done("the last of three"); /* they complete in order */
	printf("read back: %s\n", inbox);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "serve ADDR, or ADDR TEXT");
