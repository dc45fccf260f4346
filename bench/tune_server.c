/* SPDX-License-Identifier: MIT */
/*
 * The server's half of a tuning: a method that computes as long as it is told, and, at an address
 * beside it, memory that clients read and write without anybody's help.
 */
#include "tune_hall.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define LOOK_US 20000u

struct target {
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_listener *listener;
	struct gn_qp *qp[TUNE_CLIENTS_MAX]; /* NULL: free */
};

struct tune_server {
	struct gn_fabric *fabric;
	bool simulated;
	struct gn_rpc_server *rpc;
	struct target target;
	struct gn_thread *thread; /* lets clients in */
	uint32_t stop;
};

/* ---- calls ---- */

static void work(struct gn_rpc_request *request, void *arg)
{
	const struct tune_server *s = arg;
	const uint64_t since_ns = gn_now_ns();
	uint32_t len, ns;
	const void *data = gn_rpc_request_data(request, &len);

	if (len < sizeof(ns))
		return gn_rpc_answer(request, GN_RPC_FAILED, NULL, 0);
	memcpy(&ns, data, sizeof(ns));
	if (s->simulated)
		gn_charge(GN_WORK_NS, ns);
	else
		while (gn_now_ns() - since_ns < ns)
			;
	gn_rpc_answer(request, GN_RPC_OK, data, len);
}

static int start_calls(struct tune_server *s, const struct tune_opts *opts)
{
	const struct gn_rpc_server_opts rpc = {.threads = opts->threads};
	int rc = gn_rpc_server_create(s->fabric, opts->addr, &rpc, &s->rpc);

	if (!rc)
		rc = gn_rpc_server_handle(s->rpc, TUNE_METHOD, work, s);
	return rc ? rc : gn_rpc_server_start(s->rpc);
}

/* ---- memory ---- */

void tune_reads_addr(const char *addr, char *out, size_t room)
{
	const char *last = strrchr(addr, ':');
	char *end;
	const unsigned long port = strtoul(last + 1, &end, 10);

	if (!strncmp(addr, "shm:", 4) || *end)
		snprintf(out, room, "%s.reads", addr);
	else
		snprintf(out, room, "%.*s:%lu", (int)(last - addr), addr, port + 1);
}

static int open_target(struct tune_server *s, const struct tune_opts *opts)
{
	const unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE;
	const size_t bytes = (size_t)TUNE_CLIENTS_MAX * TUNE_SLOT_BYTES;
	struct target *t = &s->target;
	char addr[TUNE_ADDR_BYTES + 16];
	int rc = gn_ctx_create(s->fabric, &t->ctx);

	if (!rc)
		rc = gn_chan_create(t->ctx, &t->chan);
	if (!rc)
		rc = gn_cq_create(t->ctx, &(struct gn_cq_opts){.depth = 16}, &t->cq);
	if (!rc)
		rc = gn_pd_create(t->ctx, &t->pd);
	if (!rc)
		rc = gn_mem_alloc(s->fabric, bytes, rights, &t->mem);
	if (!rc)
		rc = gn_mr_register(t->pd, t->mem, 0, bytes, GN_LOCAL_WRITE | rights, &t->mr);
	tune_reads_addr(opts->addr, addr, sizeof(addr));
	return rc ? rc : gn_listener_create(t->ctx, addr, t->chan, 0, &t->listener);
}

static void close_target(struct target *t)
{
	gn_listener_destroy(t->listener);
	for (uint32_t i = 0; i < TUNE_CLIENTS_MAX; i++)
		gn_qp_destroy(t->qp[i]);
	gn_mr_deregister(t->mr);
	gn_mem_free(t->mem);
	gn_pd_destroy(t->pd);
	gn_cq_destroy(t->cq);
	gn_chan_destroy(t->chan);
	gn_ctx_destroy(t->ctx);
}

static void let_in(struct target *t, struct gn_conn_req *req)
{
	const struct gn_qp_opts opts = {.type = GN_QP_RC,
					.send_cq = t->cq,
					.recv_cq = t->cq,
					.chan = t->chan,
					.max_send_wr = 1,
					.max_recv_wr = 1};
	struct gn_remote remote;
	const struct gn_conn_opts conn = {.private_data = &remote, .private_len = sizeof(remote)};
	uint32_t i = 0;

	while (i < TUNE_CLIENTS_MAX && t->qp[i])
		i++;
	if (i == TUNE_CLIENTS_MAX || gn_qp_create(t->pd, &opts, &t->qp[i])) {
		gn_reject(req, NULL, 0);
		return;
	}
	gn_mr_remote(t->mr, &remote);
	remote.offset += (uint64_t)i * TUNE_SLOT_BYTES;
	remote.length = TUNE_SLOT_BYTES;
	if (gn_accept(req, t->qp[i], &conn)) {
		gn_qp_destroy(t->qp[i]);
		t->qp[i] = NULL;
	}
}

static void look_after(void *arg)
{
	struct tune_server *s = arg;
	struct target *t = &s->target;
	struct gn_event event;

	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
		if (gn_chan_wait(t->chan, gn_deadline_us(LOOK_US), &event) < 0)
			continue;
		if (event.type == GN_EVENT_CONNECT_REQUEST)
			let_in(t, event.req);
		for (uint32_t i = 0; i < TUNE_CLIENTS_MAX; i++) {
			if ((event.type == GN_EVENT_DISCONNECTED ||
			     event.type == GN_EVENT_UNREACHABLE) &&
			    t->qp[i] && t->qp[i] == event.qp) {
				gn_qp_destroy(t->qp[i]);
				t->qp[i] = NULL;
			}
		}
	}
}

/* ---- both ---- */

int tune_server_start(struct gn_fabric *fabric, const struct tune_opts *opts,
		      struct tune_server **out)
{
	struct tune_server *s = gn_alloc(sizeof(*s), 0);
	int rc;

	if (!s)
		return -ENOMEM;
	s->fabric = fabric;
	s->simulated = opts->profile;
	rc = open_target(s, opts);
	if (!rc)
		rc = gn_thread_start("tune-target", look_after, s, &s->thread);
	if (!rc)
		rc = start_calls(s, opts);
	if (rc) {
		gn_log(GN_LOG_ERROR, "tune: cannot serve at %s: %s", opts->addr, gn_strerror(rc));
		tune_server_stop(s);
		return rc;
	}
	*out = s;
	return 0;
}

void tune_server_stop(struct tune_server *s)
{
	if (!s)
		return;
	gn_rpc_server_destroy(s->rpc);
	/* Pairs with the acquire in look_after(). */
	__atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
	if (s->thread)
		gn_thread_join(s->thread);
	close_target(&s->target);
	gn_free(s);
}

int tune_serve(const struct tune_opts *opts)
{
	struct gn_fabric *fabric;
	struct tune_server *server;
	int rc = gn_fabric_open(opts->provider, &fabric);

	if (rc)
		return rc;
	rc = tune_server_start(fabric, opts, &server);
	if (!rc) {
		printf("ready to be measured at %s; Ctrl-C ends\n", opts->addr);
		fflush(stdout);
		while (!bench_stopped())
			gn_sleep_us(LOOK_US);
		tune_server_stop(server);
		rc = -EINTR;
	}
	gn_fabric_close(fabric);
	return rc;
}
