/* SPDX-License-Identifier: MIT */
/*
 * The server of a tuning: a method that computes for as long as its request says, and, at a second
 * address, memory that clients READ and WRITE.
 */
#include "tune_shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define POLL_INTERVAL_US 20000u

struct target {
	struct tune_endpoint ep;
	struct gn_listener *listener;
	struct gn_qp *qp[TUNE_CLIENTS_MAX]; /* NULL: free */
};

struct tune_server {
	struct gn_fabric *fabric;
	bool simulated;
	struct gn_rpc_server *rpc;
	struct target target;
	struct gn_thread *thread; /* accepts clients */
	uint32_t stop;
};

/* ---- calls ---- */

static void tune_work(struct gn_rpc_request *request, void *arg)
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

static int tune_start_calls(struct tune_server *s, const struct tune_opts *opts)
{
	const struct gn_rpc_server_opts rpc = {.size = sizeof(rpc), .threads = opts->threads};
	int rc = gn_rpc_server_create(s->fabric, opts->addr, &rpc, &s->rpc);

	if (!rc)
		rc = gn_rpc_server_handle(s->rpc, TUNE_METHOD, tune_work, s);
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

int tune_endpoint_open(struct tune_endpoint *e, struct gn_fabric *fabric, uint32_t cq_depth,
		       size_t bytes, unsigned remote_rights)
{
	const struct gn_cq_opts cq = {.size = sizeof(cq), .depth = cq_depth};
	int rc = gn_ctx_create(fabric, &e->ctx);

	if (!rc)
		rc = gn_chan_create(e->ctx, &e->chan);
	if (!rc)
		rc = gn_cq_create(e->ctx, &cq, &e->cq);
	if (!rc)
		rc = gn_pd_create(e->ctx, &e->pd);
	if (!rc)
		rc = gn_mem_alloc(fabric, bytes, remote_rights, &e->mem);
	if (!rc)
		rc = gn_mr_register(e->pd, e->mem, 0, bytes, GN_LOCAL_WRITE | remote_rights,
				    &e->mr);
	return rc;
}

void tune_endpoint_close(struct tune_endpoint *e)
{
	gn_mr_deregister(e->mr);
	gn_mem_free(e->mem);
	gn_pd_destroy(e->pd);
	gn_cq_destroy(e->cq);
	gn_chan_destroy(e->chan);
	gn_ctx_destroy(e->ctx);
}

static int target_open(struct tune_server *s, const struct tune_opts *opts)
{
	const size_t bytes = (size_t)TUNE_CLIENTS_MAX * TUNE_SLOT_BYTES;
	struct target *t = &s->target;
	char addr[TUNE_ADDR_BYTES + 16];
	const int rc =
		tune_endpoint_open(&t->ep, s->fabric, 16, bytes, GN_REMOTE_READ | GN_REMOTE_WRITE);

	tune_reads_addr(opts->addr, addr, sizeof(addr));
	return rc ? rc : gn_listener_create(t->ep.ctx, addr, t->ep.chan, 0, &t->listener);
}

static void target_close(struct target *t)
{
	gn_listener_destroy(t->listener);
	for (uint32_t i = 0; i < TUNE_CLIENTS_MAX; i++)
		gn_qp_destroy(t->qp[i]);
	tune_endpoint_close(&t->ep);
}

static void target_accept(struct target *t, struct gn_conn_req *req)
{
	const struct gn_qp_opts opts = {.size = sizeof(opts),
					.type = GN_QP_RC,
					.send_cq = t->ep.cq,
					.recv_cq = t->ep.cq,
					.chan = t->ep.chan,
					.max_send_wr = 1,
					.max_recv_wr = 1};
	struct gn_remote remote;
	const struct gn_conn_opts conn = {
		.size = sizeof(conn), .private_data = &remote, .private_len = sizeof(remote)};
	uint32_t i = 0;

	while (i < TUNE_CLIENTS_MAX && t->qp[i])
		i++;
	if (i == TUNE_CLIENTS_MAX || gn_qp_create(t->ep.pd, &opts, &t->qp[i])) {
		gn_reject(req, NULL, 0);
		return;
	}
	gn_mr_remote(t->ep.mr, &remote);
	remote.offset += (uint64_t)i * TUNE_SLOT_BYTES;
	remote.length = TUNE_SLOT_BYTES;
	if (gn_accept(req, t->qp[i], &conn)) {
		gn_qp_destroy(t->qp[i]);
		t->qp[i] = NULL;
	}
}

static void target_main(void *arg)
{
	struct tune_server *s = arg;
	struct target *t = &s->target;
	struct gn_event event;

	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
		if (gn_chan_wait(t->ep.chan, gn_deadline_us(POLL_INTERVAL_US), &event) < 0)
			continue;
		if (event.type == GN_EVENT_CONNECT_REQUEST)
			target_accept(t, event.req);
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
	rc = target_open(s, opts);
	if (!rc)
		rc = gn_thread_start("tune-target", target_main, s, &s->thread);
	if (!rc)
		rc = tune_start_calls(s, opts);
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
	/* Pairs with the acquire in target_main(). */
	__atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
	if (s->thread)
		gn_thread_join(s->thread);
	target_close(&s->target);
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
			gn_sleep_us(POLL_INTERVAL_US);
		tune_server_stop(server);
		rc = -EINTR;
	}
	gn_fabric_close(fabric);
	return rc;
}
