/* SPDX-License-Identifier: MIT */
/*
 * Run "example-hello serve shm:hi" in one terminal and "example-hello shm:hi hello" in another. The
 * client writes to the server's memory, reads it back and sends a message; or: verbs:HOST:PORT.
 */
#include <err.h>
#include <gannet/fabric.h>
#include <stdio.h>
#include <string.h>

#define LEN 256u
static char provider[16];	 /* "shm" or "verbs" */
static struct gn_fabric *fabric; /* an opened provider */
static struct gn_ctx *ctx;
static struct gn_chan *chan; /* tells of connections */
static struct gn_cq *cq;     /* tells of requests that are done */
static struct gn_pd *pd;     /* who may reach what */
static struct gn_mem *mem;
static struct gn_mr *mr;	/* the memory, registered */
static struct gn_qp *qp;	/* our end of the connection */
static struct gn_remote window; /* all that a client needs to reach the server's memory */
static struct gn_event event;
static char *text; /* what is sent; at text + LEN is room for what arrives */

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, gn_strerror(rc));
}

static void set_up(const char *addr, unsigned rights)
{
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
}

static void done(const char *what) /* sleeps until a receive or a signaled request is */
{
	struct gn_wc wc;

	must(gn_cq_wait(cq, &wc, 1, GN_FOREVER, what), what);
	if (wc.status != GN_WC_OK)
		errx(1, "%s: %s", what, gn_wc_status_str(wc.status));
}

static void serve(const char *addr)
{
	struct gn_sge sge = {text + LEN, LEN, gn_mr_lkey(mr)};
	struct gn_conn_opts opts = {.private_data = &window, .private_len = sizeof(window)};
	struct gn_listener *listener;

	must(gn_mr_remote(mr, &window), "region");
	must(gn_post_recv(qp, &(struct gn_recv_wr){.sge = &sge, .n_sge = 1}, NULL), "receive");
	must(gn_listener_create(ctx, addr, chan, 0, &listener), addr);
	must(gn_chan_wait(chan, GN_FOREVER, &event), "a client");
	must(gn_listener_destroy(listener), "listener"); /* one client is enough */
	must(gn_accept(event.req, qp, &opts), "accept");
	must(gn_chan_wait(chan, GN_FOREVER, &event), "connection"); /* ESTABLISHED */
	done("message");
	printf("message: %.256s\nmemory:  %.256s\n", text + LEN, text);
}

static void greet(const char *addr, const char *words)
{
	struct gn_sge out = {text, LEN, gn_mr_lkey(mr)}, back = {text + LEN, LEN, gn_mr_lkey(mr)};
	struct gn_wr wr[3];

	must(gn_connect_wait(qp, addr, NULL, &event), addr);
	memcpy(&window, event.private_data, sizeof(window));
	snprintf(text, LEN, "%s", words);
	gn_wr_rdma(&wr[0], GN_OP_WRITE, 0, &out, &window, 0, 0);
	gn_wr_rdma(&wr[1], GN_OP_READ, 1, &back, &window, 0, 0);
	gn_wr_send(&wr[2], 2, &out, GN_SIGNALED);
	wr[0].next = &wr[1], wr[1].next = &wr[2]; /* one chain, one doorbell */
	must(gn_post_send(qp, wr, NULL), "post");
	done("the last of three"); /* they complete in order */
	printf("read back: %.256s\n", text + LEN);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve")) {
		set_up(argv[2], GN_REMOTE_WRITE | GN_REMOTE_READ);
		serve(argv[2]);
	} else if (argc == 3) {
		set_up(argv[1], 0);
		greet(argv[1], argv[2]);
	} else {
		errx(2, "usage: example-hello serve ADDR | ADDR TEXT");
	}
}
