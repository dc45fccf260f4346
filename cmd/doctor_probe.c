/* SPDX-License-Identifier: MIT */
/*
 * The proof that a provider works: a connection over which bytes move. In a process one thread has
 * both ends; in the simulator they are programs on two nodes.
 */
#include <errno.h>
#include <gannet/sim.h>
#include <stdio.h>
#include <string.h>

#include "doctor.h"

#define BYTES	 4096u /* of each half of the memory: the target, and our own */
#define LEN	 1000u
#define LIMIT_US 3000000u
#define EVENTS	 8 /* that a connection to oneself may take; two are needed */
#define SIM_ADDR "sim:n0:7"
#define SIM_SEED 1u

/* One side, or both of them in one. */
struct probe {
	struct probe_result *result;
	uint64_t deadline_ns;
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_pd *pd;
	struct gn_cq *cq;
	struct gn_qp *qp, *accepted;
	struct gn_listener *listener;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_remote target;
	uint8_t *bytes;
};

/* Names the present step, for the report of its failure. */
static int probe_step(struct probe *p, const char *what, int rc)
{
	if (rc < 0 && !p->result->step)
		p->result->step = what;
	return rc;
}

static int probe_make_qp(struct probe *p, struct gn_qp **out)
{
	const struct gn_qp_opts opts = {.size = sizeof(opts),
					.type = GN_QP_RC,
					.send_cq = p->cq,
					.recv_cq = p->cq,
					.chan = p->chan};

	return gn_qp_create(p->pd, &opts, out);
}

static int probe_set_up(struct probe *p, const char *fabric)
{
	const unsigned rights = GN_REMOTE_WRITE | GN_REMOTE_READ;
	struct gn_cq_opts cq_opts = {.size = sizeof(cq_opts), .depth = 64};
	int rc = probe_step(p, "opening it", gn_fabric_open(fabric, &p->fabric));

	if (rc)
		return rc;
	p->result->attr.size = sizeof(p->result->attr);
	p->result->opened = !gn_fabric_query(p->fabric, &p->result->attr);
	p->deadline_ns = gn_deadline_us(LIMIT_US);
	rc = probe_step(p, "making a context", gn_ctx_create(p->fabric, &p->ctx));
	if (!rc)
		rc = probe_step(p, "making an event channel", gn_chan_create(p->ctx, &p->chan));
	if (!rc)
		rc = probe_step(p, "making a protection domain", gn_pd_create(p->ctx, &p->pd));
	cq_opts.chan = p->chan;
	if (!rc)
		rc = probe_step(p, "making a completion queue",
				gn_cq_create(p->ctx, &cq_opts, &p->cq));
	if (!rc)
		rc = probe_step(p, "allocating memory",
				gn_mem_alloc(p->fabric, 2 * (size_t)BYTES, rights, &p->mem));
	if (!rc)
		rc = probe_step(p, "registering memory",
				gn_mr_register(p->pd, p->mem, 0, 2 * (size_t)BYTES,
					       GN_LOCAL_WRITE | rights, &p->mr));
	if (!rc)
		rc = probe_step(p, "making an endpoint", probe_make_qp(p, &p->qp));
	if (!rc)
		rc = gn_mr_remote(p->mr, &p->target);
	p->bytes = gn_mem_addr(p->mem);
	return rc;
}

/* All of these accept what was never made. */
static void probe_tear_down(struct probe *p)
{
	gn_qp_destroy(p->qp);
	gn_qp_destroy(p->accepted);
	gn_listener_destroy(p->listener);
	gn_mr_deregister(p->mr);
	gn_mem_free(p->mem);
	gn_cq_destroy(p->cq);
	gn_pd_destroy(p->pd);
	gn_chan_destroy(p->chan);
	gn_ctx_destroy(p->ctx);
	gn_fabric_close(p->fabric);
}

/* ---- a connection to oneself ---- */

static int probe_take_event(struct probe *p, unsigned *up)
{
	struct gn_event ev;
	int rc = gn_chan_wait(p->chan, p->deadline_ns, &ev);

	if (rc)
		return rc == -EINTR ? 0 : rc;
	switch (ev.type) {
	case GN_EVENT_CONNECT_REQUEST:
		if (p->accepted)
			return gn_reject(ev.req, NULL, 0);
		rc = probe_make_qp(p, &p->accepted);
		return rc ? rc : gn_accept(ev.req, p->accepted, NULL);
	case GN_EVENT_ESTABLISHED:
		++*up;
		return 0;
	case GN_EVENT_UNREACHABLE:
		return ev.status ? ev.status : -EHOSTUNREACH;
	default:
		return -ECONNREFUSED;
	}
}

static int probe_connect(struct probe *p, const char *addr)
{
	unsigned up = 0;
	int rc = probe_step(p, "listening",
			    gn_listener_create(p->ctx, addr, p->chan, 0, &p->listener));

	if (!rc)
		rc = probe_step(p, "connecting", gn_connect(p->qp, addr, NULL));
	for (int i = 0; !rc && up < 2; i++)
		rc = probe_step(p, "connecting", i < EVENTS ? probe_take_event(p, &up) : -EPROTO);
	return rc;
}

static int probe_wait_wc(struct probe *p, enum gn_op *op)
{
	struct gn_wc wc;
	int rc;

	do
		rc = gn_cq_wait(p->cq, &wc, 1, p->deadline_ns, "the doctor's request");
	while (rc == -EINTR);
	if (rc < 0)
		return rc;
	*op = wc.op;
	return wc.status == GN_WC_OK ? 0 : -EIO;
}

static struct gn_sge probe_at(const struct probe *p, unsigned offset)
{
	return (struct gn_sge){
		.addr = p->bytes + offset, .len_bytes = LEN, .lkey = gn_mr_lkey(p->mr)};
}

static int probe_write_read(struct probe *p)
{
	const struct gn_sge out = probe_at(p, BYTES), back = probe_at(p, BYTES + 2 * LEN);
	struct gn_wr wr[2];
	enum gn_op op;
	int rc;

	for (unsigned i = 0; i < LEN; i++)
		p->bytes[BYTES + i] = (uint8_t)(i * 7 + 1);
	gn_wr_rdma(&wr[0], GN_OP_WRITE, 1, &out, &p->target, 0, 0);
	gn_wr_rdma(&wr[1], GN_OP_READ, 2, &back, &p->target, 0, GN_SIGNALED);
	wr[0].next = &wr[1];
	rc = gn_post_send(p->qp, wr, NULL);
	if (!rc)
		rc = probe_wait_wc(p, &op);
	if (!rc && memcmp(p->bytes + BYTES, p->bytes + BYTES + 2 * LEN, LEN))
		rc = -EBADMSG;
	return rc;
}

static int probe_post_recv(struct probe *p, struct gn_qp *qp)
{
	const struct gn_sge in = probe_at(p, 2 * LEN);
	const struct gn_recv_wr recv = {.sge = &in, .n_sge = 1};

	return gn_post_recv(qp, &recv, NULL);
}

static int probe_send(struct probe *p)
{
	const struct gn_sge out = probe_at(p, BYTES);
	struct gn_wr wr;

	gn_wr_send(&wr, 3, &out, GN_SIGNALED);
	return gn_post_send(p->qp, &wr, NULL);
}

/* Both ends complete into one cq, in either order. */
static int probe_send_self(struct probe *p)
{
	enum gn_op op = GN_OP_SEND;
	int rc = probe_post_recv(p, p->accepted);

	if (!rc)
		rc = probe_send(p);
	for (int i = 0; !rc && i < 2; i++)
		rc = probe_wait_wc(p, &op);
	if (!rc && memcmp(p->bytes + BYTES, p->bytes + 2 * LEN, LEN))
		rc = -EBADMSG;
	return rc;
}

int probe_self(const char *fabric, const char *addr, struct probe_result *out)
{
	struct probe p = {.result = out};
	int rc;

	*out = (struct probe_result){.step = NULL};
	rc = probe_set_up(&p, fabric);
	if (!rc)
		rc = probe_connect(&p, addr);
	if (!rc)
		rc = probe_step(&p, "writing and reading", probe_write_read(&p));
	if (!rc)
		rc = probe_step(&p, "sending a message", probe_send_self(&p));
	probe_tear_down(&p);
	return rc;
}

/* ---- two simulated nodes ---- */

static int probe_serve(struct probe *p)
{
	struct gn_event ev;
	enum gn_op op;
	int rc = probe_post_recv(p, p->qp);

	if (!rc)
		rc = gn_listener_create(p->ctx, SIM_ADDR, p->chan, 0, &p->listener);
	if (!rc)
		rc = gn_chan_wait(p->chan, p->deadline_ns, &ev);
	if (!rc)
		rc = ev.type == GN_EVENT_CONNECT_REQUEST ? gn_accept(ev.req, p->qp, NULL) : -EPROTO;
	if (!rc)
		rc = probe_wait_wc(p, &op);
	return !rc && p->bytes[2 * LEN] != 'm' ? -EBADMSG : rc;
}

/* The server may begin later than we do, and a qp connects once. */
static int probe_connect_retry(struct probe *p)
{
	int rc = gn_connect_wait(p->qp, SIM_ADDR, NULL, NULL);

	while (rc == -ECONNREFUSED && gn_now_ns() < p->deadline_ns) {
		gn_sleep_us(10);
		gn_qp_destroy(p->qp);
		p->qp = NULL;
		rc = probe_make_qp(p, &p->qp);
		if (!rc)
			rc = gn_connect_wait(p->qp, SIM_ADDR, NULL, NULL);
	}
	return rc;
}

static int probe_client(struct probe *p)
{
	enum gn_op op;
	int rc = probe_connect_retry(p);

	memset(p->bytes + BYTES, 'm', LEN);
	if (!rc)
		rc = probe_send(p);
	return rc ? rc : probe_wait_wc(p, &op);
}

static int probe_node_main(struct gn_env *env, int argc, char **argv)
{
	struct probe p = {.result = env->arg};
	int rc = probe_set_up(&p, env->fabric);

	(void)argv;
	if (!rc)
		rc = probe_step(&p, "sending a message", argc ? probe_client(&p) : probe_serve(&p));
	probe_tear_down(&p);
	return rc;
}

static int probe_run(struct gn_sim *sim, struct probe_result *out)
{
	char name[] = "greet", *argv[] = {name};
	unsigned process[2];
	int rc = gn_sim_spawn(sim, 0, probe_node_main, 0, NULL, out, &process[0]);

	if (!rc)
		rc = gn_sim_spawn(sim, 1, probe_node_main, 1, argv, out, &process[1]);
	if (!rc)
		rc = gn_sim_run(sim);
	for (int i = 0; !rc && i < 2; i++) {
		int status = 0;

		rc = gn_sim_status(sim, process[i], &status);
		if (!rc)
			rc = status;
	}
	out->virtual_ns = gn_sim_now_ns(sim);
	out->events = gn_sim_events(sim);
	return rc;
}

int probe_sim(struct probe_result *out)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .seed = SIM_SEED,
					 .nodes = 2,
					 .limit_ns = 2 * LIMIT_US * 1000ull};
	struct gn_sim *sim;
	int rc;

	*out = (struct probe_result){.step = NULL};
	rc = gn_sim_create(&opts, &sim);
	if (rc) {
		out->step = "making two nodes";
		return rc;
	}
	rc = probe_run(sim, out);
	gn_sim_destroy(sim);
	return rc;
}
