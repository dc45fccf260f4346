/* SPDX-License-Identifier: MIT */
/* A process whose memory others reach: it accepts their connections, and does nothing else. */
#include <errno.h>

#include "fabric_load.h"

#define LOOK_US	  1000u /* between looks whether anybody is left */
#define RECV_RING 64u	/* datagrams that a receiver takes; the rest are dropped */

struct server {
	struct load_proc *proc;
	const struct bench_fabric_opts *opts;
	struct fabric_side *side;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_listener *listener;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_qp **accepted, **receivers;
	uint32_t n_accepted, max_accepted, n_receivers;
};

static int server_fails(struct server *s, int rc, const char *what)
{
	return load_check(s->proc->run, rc, what);
}

static int server_open_memory(struct server *s)
{
	const struct bench_fabric_opts *o = s->opts;
	const unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE |
				(o->region_bytes ? GN_REMOTE_ATOMIC : 0);
	const uint64_t bytes =
		o->region_bytes ? o->region_bytes :
				  fabric_target_bytes(o) * (s->max_accepted + !s->max_accepted);
	int rc = gn_mem_alloc(s->proc->fabric, bytes, rights, &s->mem);

	if (!rc)
		rc = gn_mr_register(s->side->pd, s->mem, 0, bytes, GN_LOCAL_WRITE | rights, &s->mr);
	return server_fails(s, rc, "allocating memory for others");
}

/* Receives into one buffer: nobody reads what comes. */
static int server_open_receiver(struct server *s, struct gn_qp **out)
{
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_UD,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.max_send_wr = 1,
		.max_recv_wr = RECV_RING,
		.qkey = FABRIC_QKEY,
	};
	struct gn_sge sge = {gn_mr_addr(s->mr), s->opts->size_bytes + GN_GRH_BYTES,
			     gn_mr_lkey(s->mr)};
	const struct gn_recv_wr wr = {.sge = &sge, .n_sge = 1};
	int rc = gn_qp_create(s->side->pd, &opts, out);

	for (unsigned i = 0; i < RECV_RING && !rc; i++)
		rc = gn_post_recv(*out, &wr, NULL);
	return server_fails(s, rc, "creating a receiver");
}

static int server_open(struct server *s)
{
	const struct gn_cq_opts cq = {.size = sizeof(cq), .depth = 1 + s->n_receivers * RECV_RING};
	int rc = server_open_memory(s);

	if (rc)
		return rc;
	s->accepted = gn_alloc((s->max_accepted + 1) * sizeof(*s->accepted), 0);
	s->receivers = gn_alloc((s->n_receivers + 1) * sizeof(*s->receivers), 0);
	rc = s->accepted && s->receivers ? 0 : -ENOMEM;
	if (!rc)
		rc = gn_chan_create(s->side->ctx, &s->chan);
	if (!rc)
		rc = gn_cq_create(s->side->ctx, &cq, &s->cq);
	for (uint32_t i = 0; i < s->n_receivers && !rc; i++)
		rc = server_open_receiver(s, &s->receivers[i]);
	return server_fails(s, rc, "creating queues");
}

static void server_close(struct server *s)
{
	for (uint32_t i = 0; i < s->n_accepted; i++)
		gn_qp_destroy(s->accepted[i]);
	for (uint32_t i = 0; s->receivers && i < s->n_receivers; i++)
		gn_qp_destroy(s->receivers[i]);
	gn_free(s->accepted);
	gn_free(s->receivers);
	gn_listener_destroy(s->listener);
	gn_cq_destroy(s->cq);
	gn_chan_destroy(s->chan);
	gn_mr_deregister(s->mr);
	gn_mem_free(s->mem);
}

static int server_accept(struct server *s, struct gn_conn_req *req)
{
	const struct bench_fabric_opts *o = s->opts;
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_RC,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.chan = s->chan,
		.max_send_wr = 1,
		.max_recv_wr = 1,
	};
	const uint32_t i = s->n_accepted;
	struct fabric_hello hello = {0};
	const struct gn_conn_opts conn = {
		.size = sizeof(conn), .private_data = &hello, .private_len = sizeof(hello)};
	int rc = i < s->max_accepted ? gn_qp_create(s->side->pd, &opts, &s->accepted[i]) : -EPROTO;

	if (rc) {
		gn_reject(req, NULL, 0);
		return server_fails(s, rc, "creating a queue pair");
	}
	s->n_accepted++;
	gn_mr_remote(s->mr, &hello.remote);
	if (!o->region_bytes) {
		hello.remote.offset += i * fabric_target_bytes(o);
		hello.remote.length = fabric_target_bytes(o);
	}
	if (s->n_receivers)
		rc = gn_qp_ud_addr(s->receivers[i % s->n_receivers], &hello.ud);
	if (!rc)
		rc = gn_accept(req, s->accepted[i], &conn);
	return server_fails(s, rc, "accepting");
}

/* Until all clients have gone. */
static void server_run(struct server *s)
{
	struct gn_event ev;

	while (!s->proc->served(s->proc, NULL)) {
		const int rc = gn_chan_wait(s->chan, gn_deadline_us(LOOK_US), &ev);

		if (rc == -ETIMEDOUT)
			continue;
		if (server_fails(s, rc, "waiting for connections"))
			return;
		if (ev.type == GN_EVENT_CONNECT_REQUEST)
			server_accept(s, ev.req);
		else if (ev.type != GN_EVENT_ESTABLISHED && ev.type != GN_EVENT_DISCONNECTED)
			load_fail(s->proc->run, -EPROTO, "%s at a server", gn_event_str(ev.type));
	}
}

static int server_listen_at(void *arg, const char *addr)
{
	struct server *s = arg;

	return gn_listener_create(s->side->ctx, addr, s->chan, 0, &s->listener);
}

int fabric_serve(struct load_proc *proc, uint32_t number)
{
	const struct bench_fabric_opts *o = &fabric_run_of(proc->run)->opts;
	struct server s = {.proc = proc,
			   .opts = o,
			   .side = proc->state,
			   .max_accepted = fabric_accepts(o, number)};
	int rc;

	if (fabric_ud(o))
		s.n_receivers = o->procs_each ? 1 : o->load.clients;
	rc = server_open(&s);
	if (!rc)
		rc = load_listen(proc, number, server_listen_at, &s);
	if (!rc)
		server_run(&s);
	server_close(&s);
	return rc;
}
