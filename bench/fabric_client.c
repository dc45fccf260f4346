/* SPDX-License-Identifier: MIT */
/*
 * A requesting thread: it keeps its window full, takes completions, and counts. Threads may share
 * an end, which is a set of connections and a cq. Each of them then polls for all.
 */
#include <errno.h>

#include "fabric_load.h"

#define POLL_MAX   16  /* completions taken at once */
#define NAP_US	   20u /* between looks whether another thread has connected */
#define CONNECT_US 1000000u
#define GROUP_OPS  512u /* timed together in processes */

struct fabric_conn {
	struct gn_qp *qp;
	struct gn_remote remote;
	struct gn_ah *ah; /* datagrams */
	uint32_t qpn, qkey;
};

/* One chain under way. */
struct fabric_slot {
	uint32_t left;	   /* requests of its operation still to make, this one included */
	uint64_t began_ns; /* when the operation began; 0: the next one has not begun */
};

struct fabric_client {
	struct load_client base;
	struct fabric_end *end;
	uint32_t in_end; /* its number there */
	uint8_t *buffer;
	uint32_t n_slots, under_way;
	struct chain chain;
	struct fabric_slot *slots;
	uint32_t *ready;  /* slots to post again */
	uint64_t n_ready; /* also a word that the thread waits for while others poll for it */
	uint64_t posted;  /* without a window */
};

struct fabric_end {
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_qp *ud;
	struct fabric_conn *conns;
	uint32_t n_conns;
	bool up;
	uint32_t n_clients, left; /* that use it; of those that have not closed it */
	struct fabric_client *clients;
};

static const struct bench_fabric_opts *opts_of(const struct fabric_client *c)
{
	return &fabric_run_of(c->base.run)->opts;
}

/* ---- the process ---- */

static int fabric_side_requests(struct load_proc *proc, struct fabric_side *side)
{
	const struct bench_fabric_opts *o = &fabric_run_of(proc->run)->opts;
	uint64_t requests = 0;
	int rc;

	for (uint32_t i = 0; i < proc->n_clients; i++)
		requests += fabric_window(o, proc->first_client + i);
	side->n_ends = (proc->n_clients + o->shared_by - 1) / o->shared_by;
	side->ends = gn_alloc(side->n_ends * sizeof(*side->ends), 0);
	if (!side->ends)
		return -ENOMEM;
	for (uint32_t i = 0; i < proc->n_clients; i++)
		side->ends[i / o->shared_by].n_clients++;
	if (!requests)
		return 0;
	rc = gn_mem_alloc(proc->fabric, requests * fabric_buffer_bytes(o), 0, &side->mem);
	if (!rc)
		rc = gn_mr_register(side->pd, side->mem, 0, gn_mem_size(side->mem), GN_LOCAL_WRITE,
				    &side->mr);
	return rc;
}

static int fabric_side_open(struct load_proc *proc)
{
	struct fabric_side *side = gn_alloc(sizeof(*side), 0);
	int rc = side ? 0 : -ENOMEM;

	proc->state = side;
	if (!rc)
		rc = gn_ctx_create(proc->fabric, &side->ctx);
	if (!rc)
		rc = gn_pd_create(side->ctx, &side->pd);
	if (!rc && proc->n_clients)
		rc = fabric_side_requests(proc, side);
	return load_check(proc->run, rc, "creating a context and its memory");
}

static void fabric_side_close(struct load_proc *proc)
{
	struct fabric_side *side = proc->state;

	gn_mr_deregister(side->mr);
	gn_mem_free(side->mem);
	gn_pd_destroy(side->pd);
	gn_ctx_destroy(side->ctx);
	gn_free(side->ends);
	gn_free(side);
	proc->state = NULL;
}

/* ---- connections ---- */

static int client_connect(struct fabric_client *c, uint32_t server)
{
	const struct bench_fabric_opts *o = opts_of(c);
	const struct fabric_side *side = c->base.proc->state;
	struct fabric_end *end = c->end;
	const uint32_t requests = o->window_qp ? o->window_qp : fabric_window(o, 0);
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_RC,
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.chan = end->chan,
		.max_send_wr = requests * (o->shared_by > 1 ? end->n_clients : 1),
		.max_recv_wr = 1,
		.max_inline = o->inlined && !fabric_ud(o) ? o->size_bytes : 0,
		.flags = o->shared_by > 1 ? GN_SHARED : 0,
	};
	const struct gn_conn_opts conn_opts = {.size = sizeof(conn_opts), .timeout_us = CONNECT_US};
	struct fabric_conn *conn = &end->conns[end->n_conns];
	char addr[LOAD_ADDR_MAX];
	struct gn_event reply;
	struct fabric_hello hello;
	int rc = gn_qp_create(side->pd, &opts, &conn->qp);

	if (rc)
		return rc;
	end->n_conns++;
	load_server_addr(c->base.run, server, addr);
	rc = gn_connect_wait(conn->qp, addr, &conn_opts, &reply);
	if (rc)
		return rc;
	if (reply.private_len < sizeof(hello))
		return -EPROTO;
	memcpy(&hello, reply.private_data, sizeof(hello));
	conn->remote = hello.remote;
	conn->qpn = hello.ud.qpn;
	conn->qkey = hello.ud.qkey;
	return fabric_ud(o) ? gn_ah_create(end->ud, &hello.ud, &conn->ah) : 0;
}

static int end_open(struct fabric_client *c)
{
	const struct bench_fabric_opts *o = opts_of(c);
	const struct load_proc *proc = c->base.proc;
	const struct fabric_side *side = proc->state;
	const uint32_t n = fabric_conns(o), threads = fabric_shape(o).threads_per_proc;
	struct fabric_end *end = c->end;
	struct gn_cq_opts cq = {
		.size = sizeof(cq), .depth = 1, .flags = o->shared_by > 1 ? GN_SHARED : 0};
	struct gn_qp_opts ud = {
		.size = sizeof(ud), .type = GN_QP_UD, .max_recv_wr = 1, .qkey = FABRIC_QKEY};
	int rc;

	for (uint32_t i = 0; i < end->n_clients; i++)
		cq.depth += fabric_window(o, c->base.number + i);
	end->conns = gn_alloc(n * sizeof(*end->conns), 0);
	rc = end->conns ? gn_chan_create(side->ctx, &end->chan) : -ENOMEM;
	if (!rc)
		rc = gn_cq_create(side->ctx, &cq, &end->cq);
	ud.send_cq = ud.recv_cq = end->cq;
	ud.max_send_wr = cq.depth;
	ud.max_inline = o->inlined ? o->size_bytes : 0;
	if (!rc && fabric_ud(o))
		rc = gn_qp_create(side->pd, &ud, &end->ud);
	for (uint32_t i = 0; i < n && !rc && !load_gives_up(&c->base); i++)
		rc = client_connect(c, fabric_server_of(o, proc->first_client / threads, i));
	end->up = !rc && end->n_conns == n;
	return load_check(c->base.run, rc, "connecting");
}

static void end_close(struct fabric_end *end)
{
	for (uint32_t i = 0; i < end->n_conns; i++) {
		gn_ah_destroy(end->conns[i].ah);
		gn_disconnect(end->conns[i].qp);
		gn_qp_destroy(end->conns[i].qp);
	}
	gn_qp_destroy(end->ud);
	gn_cq_destroy(end->cq);
	gn_chan_destroy(end->chan);
	gn_free(end->conns);
}

static int client_open(struct load_client *base)
{
	struct fabric_client *c = (struct fabric_client *)base;
	const struct bench_fabric_opts *o = opts_of(c);
	const struct fabric_side *side = base->proc->state;
	const uint32_t i = base->number - base->proc->first_client;

	c->end = &side->ends[i / o->shared_by];
	c->in_end = i % o->shared_by;
	c->end->left++;
	if (side->mr)
		c->buffer = gn_mr_addr(side->mr);
	for (uint32_t k = 0; k < i; k++)
		c->buffer += (size_t)fabric_window(o, base->proc->first_client + k) *
			     fabric_buffer_bytes(o);
	c->n_slots = o->signal_every ? 0 : fabric_window(o, base->number) / o->chain;
	c->slots = gn_alloc((c->n_slots + 1) * sizeof(*c->slots), 0);
	c->ready = gn_alloc((c->n_slots + 1) * sizeof(*c->ready), 0);
	if (!c->slots || !c->ready ||
	    chain_create(&c->chain, o->chain,
			 &(struct bench_opts){.op = o->op, .size_bytes = o->size_bytes},
			 side->mr ? gn_mr_lkey(side->mr) : 0, o->inlined ? GN_INLINE : 0))
		return load_check(base->run, -ENOMEM, "allocating a window");
	for (; c->n_ready < c->n_slots; c->n_ready++)
		c->ready[c->n_ready] = c->n_slots - 1 - (uint32_t)c->n_ready;
	if (!c->in_end) {
		c->end->clients = c;
		return end_open(c);
	}
	while (!c->end->up && !load_gives_up(base))
		gn_sleep_us(NAP_US);
	return c->end->up ? 0 : -EIO;
}

/* Whoever polls completes the slots of all that share the end: they go when the last one does. */
static void client_close(struct load_client *base)
{
	struct fabric_client *c = (struct fabric_client *)base, *first = c - c->in_end;

	if (!c->end || --c->end->left)
		return;
	end_close(c->end);
	for (uint32_t i = 0; i < c->end->n_clients; i++) {
		chain_destroy(&first[i].chain);
		gn_free(first[i].slots);
		gn_free(first[i].ready);
	}
}

/* ---- posting ---- */

static const struct fabric_conn *pick_conn(const struct fabric_client *c, uint32_t slot)
{
	const struct bench_fabric_opts *o = opts_of(c);
	const struct fabric_end *end = c->end;

	if (o->window_qp)
		return &end->conns[slot / o->window_qp];
	return &end->conns[end->n_conns > 1 ? gn_random() % end->n_conns : 0];
}

/* Where at the target request i of all that the thread can have under way goes. */
static uint64_t target_offset(const struct bench_fabric_opts *o, uint64_t i)
{
	if (o->region_bytes)
		return gn_random() % (o->region_bytes / 8) * 8;
	return (o->window_qp ? i % o->window_qp * fabric_buffer_bytes(o) : 0) + o->lead_bytes;
}

/* The requests from number i on of all that the thread can have under way, in one chain. */
static int post_requests(struct fabric_client *c, const struct fabric_conn *conn, uint64_t i,
			 uint64_t id)
{
	const struct bench_fabric_opts *o = opts_of(c);
	const uint32_t buffer_bytes = fabric_buffer_bytes(o);
	struct gn_qp *qp = c->end->ud ? c->end->ud : conn->qp;

	for (uint32_t k = 0; k < c->chain.n; k++) {
		struct gn_wr *wr = &c->chain.wr[k];

		c->chain.sge[k].addr = c->buffer + (i + k) * buffer_bytes + o->lead_bytes;
		if (fabric_ud(o)) {
			wr->to.ud.ah = conn->ah;
			wr->to.ud.qpn = conn->qpn;
			wr->to.ud.qkey = conn->qkey;
		} else {
			wr->to.remote.key = conn->remote.key;
			wr->to.remote.offset = conn->remote.offset + target_offset(o, i + k);
		}
	}
	return load_check(c->base.run, chain_post(&c->chain, qp, id), "posting");
}

/* The next requests of a slot's operation, or the first of another. */
static int post_slot(struct fabric_client *c, uint32_t slot)
{
	if (!c->slots[slot].left) {
		c->slots[slot].left = opts_of(c)->requests;
		c->slots[slot].began_ns = load_stamp(&c->base);
	}
	c->under_way++;
	return post_requests(c, pick_conn(c, slot), (uint64_t)slot * c->chain.n,
			     (uint64_t)(c->in_end + 1) << 32 | slot);
}

/* ---- completions ---- */

static int check_completion(struct fabric_client *c, const struct gn_wc *wc)
{
	if (wc->status == GN_WC_OK)
		return 0;
	return load_fail(c->base.run, -EIO, "a request completed with %s",
			 gn_wc_status_str(wc->status));
}

/* A chain is done, whoever of those who share the cq polled it. */
static void complete_slot(struct fabric_end *end, uint64_t id)
{
	struct fabric_client *c = &end->clients[(id >> 32) - 1];
	const uint32_t slot = (uint32_t)id;

	c->under_way--;
	if (!--c->slots[slot].left)
		load_done(&c->base, opts_of(c)->chain, c->slots[slot].began_ns);
	c->ready[c->n_ready++] = slot;
}

/* Waits for completions, or until another thread took them. How many, or negative. */
static int wait_completions(struct fabric_client *c, struct gn_wc *wc)
{
	struct gn_wait_item items[2];
	int n;

	if (c->end->n_clients == 1)
		return gn_cq_wait(c->end->cq, wc, POLL_MAX, c->base.deadline_ns, "a completion");
	n = gn_cq_poll(c->end->cq, wc, POLL_MAX);
	if (n)
		return n;
	items[0] = gn_wait_on(gn_cq_source(c->end->cq));
	items[1] = gn_wait_word(&c->n_ready, 0);
	n = gn_wait(items, 2, c->base.deadline_ns, "a completion, or another's poll");
	return n < 0 ? n : 0;
}

static int take_completions(struct fabric_client *c)
{
	struct gn_wc wc[POLL_MAX];
	const int n = wait_completions(c, wc);
	int rc = load_check(c->base.run, n, "waiting for completions");

	for (int i = 0; i < n && !rc; i++) {
		rc = check_completion(c, &wc[i]);
		if (!rc)
			complete_slot(c->end, wc[i].id);
	}
	return rc;
}

static int keep_window(struct fabric_client *c)
{
	int rc = 0;

	while (!rc && !load_stops(&c->base) && c->n_slots) {
		while (c->n_ready && !rc)
			rc = post_slot(c, c->ready[--c->n_ready]);
		if (!rc)
			rc = take_completions(c);
		load_between(&c->base);
	}
	return rc;
}

/* ---- without a window ---- */

static int run_stream(struct fabric_client *c)
{
	const uint32_t every = opts_of(c)->signal_every;
	int rc = 0;

	while (!rc && !load_stops(&c->base)) {
		const uint64_t i = c->posted++;
		struct gn_wc wc;

		rc = post_requests(c, pick_conn(c, 0), i % (2 * every), i % every == 0);
		if (rc || i % every != every - 1)
			continue;
		/* By now the first of these is long done, unless the device is what we wait for. */
		rc = load_check(c->base.run,
				gn_cq_wait(c->end->cq, &wc, 1, c->base.deadline_ns,
					   "one completion of many"),
				"waiting for a completion");
		if (!rc)
			rc = check_completion(c, &wc);
		if (!rc)
			load_done(&c->base, every, 0);
		load_between(&c->base);
	}
	return rc;
}

static int client_run(struct load_client *base)
{
	struct fabric_client *c = (struct fabric_client *)base;

	return opts_of(c)->signal_every ? run_stream(c) : keep_window(c);
}

static int client_rest(struct load_client *base)
{
	struct fabric_client *c = (struct fabric_client *)base;
	int rc = 0;

	while (!rc && c->under_way)
		rc = take_completions(c);
	return rc;
}

static void client_count(const struct load_client *base, struct load_sums *out)
{
	*out = base->own;
	out->ops = base->ended;
	if (!base->run->simulated) /* where the client is all that its process does */
		load_count_fabric(base->proc->fabric, out);
}

static uint64_t client_group_ops(const struct load_client *base)
{
	(void)base;
	return GROUP_OPS;
}

const struct load_kind load_fabric = {
	.name = "fabric",
	.proc_open = fabric_side_open,
	.proc_close = fabric_side_close,
	.serve = fabric_serve,
	.client_bytes = sizeof(struct fabric_client),
	.open = client_open,
	.run = client_run,
	.rest = client_rest,
	.close = client_close,
	.count = client_count,
	.group_ops = client_group_ops,
};
