/* SPDX-License-Identifier: MIT */
/*
 * The life of a load process: open everything, let others connect, start the requesting threads,
 * take everything down again. Whatever fails, the way down is the same.
 */
#include "fab_load.h"

#include <errno.h>
#include <string.h>

#define NAP_US	     20u /* between two looks at what others have got ready */
#define LOOK_US	     1000u
#define START_US     20u
#define SCATTER_NS   1000u /* threads of a real machine do not begin at one instant either */
#define RECV_RING    64u   /* datagrams that a receiver takes; the rest are dropped */
#define QKEY	     0x6c616274u
#define CONN_TIME_US 1000000u

/* What an accepted connection is told. */
struct hello {
	struct gn_remote remote;
	struct gn_ud_addr ud;
};

struct fab_side {
	struct fab_run *run;
	struct fab_proc *proc;
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_mem *local_mem, *target_mem;
	struct gn_mr *local, *target;
	/* the side that is reached */
	struct gn_listener *listener;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_qp **accepted, **receivers;
	unsigned n_accepted, n_established, n_gone;
	/* the requesting side */
	struct fab_thread *threads;
	struct fab_end *ends;
	unsigned n_ends, n_started;
};

static unsigned window_of(const struct fab_proc *proc, unsigned thread)
{
	return proc->windows ? proc->windows[thread] : proc->run->opts.window;
}

/* Requests that one thread can have under way. */
static unsigned requests_of(const struct fab_proc *proc, unsigned thread)
{
	const struct fab_opts *o = &proc->run->opts;

	if (o->stream)
		return 2 * o->signal_every;
	return o->per_qp ? o->window * proc->n_targets : window_of(proc, thread);
}

/* Bytes of a target's memory that one connection uses. */
static uint64_t target_bytes(const struct fab_opts *o)
{
	return (uint64_t)o->buffer_bytes * (o->per_qp ? o->window : 1);
}

static bool ok(struct fab_side *s, int rc, const char *what)
{
	if (rc < 0)
		fab_fail(s->run, "%s on %s: %s", what, s->proc->addr, gn_strerror(rc));
	return rc >= 0;
}

static bool alloc(struct fab_side *s, void *out, size_t n, size_t each)
{
	void *p = gn_alloc(n * each, 0);

	memcpy(out, &p, sizeof(p));
	return ok(s, p ? 0 : -ENOMEM, "memory");
}

/* ---- opening ---- */

static bool open_local(struct fab_side *s)
{
	uint64_t requests = 0;

	for (unsigned i = 0; i < s->proc->n_threads; i++)
		requests += requests_of(s->proc, i);
	if (!requests)
		return true;
	return ok(s,
		  gn_mem_alloc(s->fabric, requests * s->run->opts.buffer_bytes, 0, &s->local_mem),
		  "memory of requests") &&
	       ok(s,
		  gn_mr_register(s->pd, s->local_mem, 0, gn_mem_size(s->local_mem), GN_LOCAL_WRITE,
				 &s->local),
		  "registering it");
}

static bool open_target(struct fab_side *s)
{
	const struct fab_opts *o = &s->run->opts;
	const unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE |
				(o->region_bytes ? GN_REMOTE_ATOMIC : 0);
	const uint64_t bytes = o->region_bytes ? o->region_bytes :
						 target_bytes(o) * s->proc->expected;

	return ok(s, gn_mem_alloc(s->fabric, bytes, rights, &s->target_mem), "memory for others") &&
	       ok(s,
		  gn_mr_register(s->pd, s->target_mem, 0, bytes, GN_LOCAL_WRITE | rights,
				 &s->target),
		  "registering it");
}

static bool open_receiver(struct fab_side *s, struct gn_qp **out)
{
	const uint32_t size = s->run->opts.size_bytes + GN_GRH_BYTES;
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_UD,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.max_send_wr = 1,
		.max_recv_wr = RECV_RING,
		.qkey = QKEY,
	};
	struct gn_sge sge;
	struct gn_recv_wr wr = {.sge = &sge, .n_sge = 1};

	/* All into one buffer: nobody reads what comes. */
	sge = (struct gn_sge){gn_mr_addr(s->target), size, gn_mr_lkey(s->target)};
	if (!ok(s, gn_qp_create(s->pd, &opts, out), "a receiver"))
		return false;
	for (unsigned i = 0; i < RECV_RING; i++)
		if (!ok(s, gn_post_recv(*out, &wr, NULL), "a receive"))
			return false;
	return true;
}

static bool open_listener(struct fab_side *s)
{
	const struct fab_opts *o = &s->run->opts;
	const struct gn_cq_opts cq = {.size = sizeof(cq), .depth = 1 + o->receivers * RECV_RING};

	if (!s->proc->expected)
		return true;
	if (!open_target(s) || !ok(s, gn_chan_create(s->ctx, &s->chan), "a channel") ||
	    !ok(s, gn_cq_create(s->ctx, &cq, &s->cq), "a cq") ||
	    !alloc(s, &s->accepted, s->proc->expected, sizeof(s->accepted[0])))
		return false;
	if (o->receivers && !alloc(s, &s->receivers, o->receivers, sizeof(s->receivers[0])))
		return false;
	for (unsigned i = 0; i < o->receivers; i++)
		if (!open_receiver(s, &s->receivers[i]))
			return false;
	if (!ok(s, gn_listener_create(s->ctx, s->proc->addr, s->chan, 0, &s->listener),
		"listening"))
		return false;
	s->run->listening++;
	return true;
}

static bool side_open(struct fab_side *s, const char *fabric)
{
	return ok(s, gn_fabric_open(fabric, &s->fabric), "the fabric") &&
	       ok(s, gn_ctx_create(s->fabric, &s->ctx), "a context") &&
	       ok(s, gn_pd_create(s->ctx, &s->pd), "a pd") && open_local(s) && open_listener(s);
}

/* ---- being reached ---- */

static void accept_one(struct fab_side *s, struct gn_conn_req *req)
{
	const struct fab_opts *o = &s->run->opts;
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_RC,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.chan = s->chan,
		.max_send_wr = 1,
		.max_recv_wr = 1,
	};
	const unsigned i = s->n_accepted;
	struct hello hello = {0};
	const struct gn_conn_opts conn = {
		.size = sizeof(conn), .private_data = &hello, .private_len = sizeof(hello)};

	if (i == s->proc->expected || !ok(s, gn_qp_create(s->pd, &opts, &s->accepted[i]), "a qp")) {
		gn_reject(req, NULL, 0);
		return;
	}
	s->n_accepted++;
	gn_mr_remote(s->target, &hello.remote);
	if (!o->region_bytes) {
		hello.remote.offset += i * target_bytes(o);
		hello.remote.length = target_bytes(o);
	}
	if (o->receivers)
		ok(s, gn_qp_ud_addr(s->receivers[i % o->receivers], &hello.ud), "its address");
	ok(s, gn_accept(req, s->accepted[i], &conn), "accepting");
}

/* Takes events until *count of them have come. Looks up now and then, lest others have failed. */
static void serve(struct fab_side *s, const unsigned *count)
{
	struct gn_event ev;

	while (*count < s->proc->expected && !s->run->failed) {
		const int rc = gn_chan_wait(s->chan, gn_deadline_us(LOOK_US), &ev);

		if (rc == -ETIMEDOUT)
			continue;
		if (!ok(s, rc, "waiting for connections"))
			return;
		if (ev.type == GN_EVENT_CONNECT_REQUEST)
			accept_one(s, ev.req);
		else if (ev.type == GN_EVENT_ESTABLISHED)
			s->n_established++;
		else if (ev.type == GN_EVENT_DISCONNECTED)
			s->n_gone++;
		else
			fab_fail(s->run, "%s at %s", gn_event_str(ev.type), s->proc->addr);
	}
}

/* ---- reaching others ---- */

static bool connect_link(struct fab_side *s, struct fab_end *end, const struct fab_proc *to)
{
	const struct fab_opts *o = &s->run->opts;
	const unsigned chains = o->per_qp ? o->window : requests_of(s->proc, 0);
	const struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_RC,
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.chan = end->chan,
		.max_send_wr = chains * (o->shared_by > 1 ? end->n_threads : 1),
		.max_recv_wr = 1,
		.max_inline = o->inlined && !o->ud ? o->size_bytes : 0,
		.flags = o->shared_by > 1 ? GN_SHARED : 0,
	};
	const struct gn_conn_opts conn = {.size = sizeof(conn), .timeout_us = CONN_TIME_US};
	struct fab_link *link = &end->links[end->n_links];
	struct gn_event reply;
	struct hello hello;

	if (!ok(s, gn_qp_create(s->pd, &opts, &link->qp), "a qp"))
		return false;
	end->n_links++;
	if (!ok(s, gn_connect_wait(link->qp, to->addr, &conn, &reply), "connecting"))
		return false;
	if (reply.private_len < sizeof(hello)) {
		fab_fail(s->run, "%s said hello with %u bytes", to->addr, reply.private_len);
		return false;
	}
	memcpy(&hello, reply.private_data, sizeof(hello));
	link->remote = hello.remote;
	link->qpn = hello.ud.qpn;
	link->qkey = hello.ud.qkey;
	return !o->ud || ok(s, gn_ah_create(end->ud, &hello.ud, &link->ah), "an address");
}

static bool open_end(struct fab_side *s, struct fab_end *end, unsigned first)
{
	const struct fab_opts *o = &s->run->opts;
	struct gn_cq_opts cq = {
		.size = sizeof(cq), .depth = 1, .flags = o->shared_by > 1 ? GN_SHARED : 0};
	struct gn_qp_opts ud = {
		.size = sizeof(ud), .type = GN_QP_UD, .max_recv_wr = 1, .qkey = QKEY};

	for (unsigned i = 0; i < end->n_threads; i++)
		cq.depth += requests_of(s->proc, first + i);
	if (!ok(s, gn_chan_create(s->ctx, &end->chan), "a channel") ||
	    !ok(s, gn_cq_create(s->ctx, &cq, &end->cq), "a cq") ||
	    !alloc(s, &end->links, s->proc->n_targets, sizeof(end->links[0])))
		return false;
	ud.send_cq = ud.recv_cq = end->cq;
	ud.max_send_wr = cq.depth;
	ud.max_inline = o->inlined ? o->size_bytes : 0;
	if (o->ud && !ok(s, gn_qp_create(s->pd, &ud, &end->ud), "a ud qp"))
		return false;
	for (unsigned i = 0; i < s->proc->n_targets; i++)
		if (!connect_link(s, end, &s->run->procs[s->proc->targets[i]]))
			return false;
	return true;
}

static void close_end(struct fab_end *end)
{
	for (unsigned i = 0; i < end->n_links; i++) {
		gn_ah_destroy(end->links[i].ah);
		gn_disconnect(end->links[i].qp);
		gn_qp_destroy(end->links[i].qp);
	}
	gn_qp_destroy(end->ud);
	gn_cq_destroy(end->cq);
	gn_chan_destroy(end->chan);
	gn_free(end->links);
}

/* ---- requesting threads ---- */

/* Between its start and the common one; false when there will be none. */
static bool wait_for_start(struct fab_run *run)
{
	while (!run->start_ns && !fab_stops(run))
		gn_sleep_us(NAP_US);
	if (fab_stops(run))
		return false;
	if (run->start_ns > gn_now_ns())
		gn_sleep_us((run->start_ns - gn_now_ns()) / 1000);
	gn_charge(GN_WORK_NS, gn_random() % SCATTER_NS);
	return true;
}

static bool get_ready(struct fab_thread *t)
{
	struct fab_side *s = t->side;
	struct fab_run *run = s->run;
	const unsigned first = (unsigned)(t->end->threads - s->threads);

	while (run->listening < run->n_listeners && !run->failed)
		gn_sleep_us(NAP_US);
	if (run->failed)
		return false;
	if (t->in_end == 0)
		t->end->up = open_end(s, t->end, first);
	while (!t->end->up && !run->failed)
		gn_sleep_us(NAP_US);
	if (run->failed)
		return false;
	if (++run->connected == run->n_threads)
		run->start_ns = gn_now_ns() + START_US * 1000;
	return wait_for_start(run);
}

static void thread_main(void *arg)
{
	struct fab_thread *t = arg;

	if (get_ready(t))
		fab_loop(t);
}

static bool prepare_thread(struct fab_side *s, unsigned i, uint8_t *buffer)
{
	const struct fab_opts *o = &s->run->opts;
	struct fab_thread *t = &s->threads[i];
	struct fab_end *end = &s->ends[i / o->shared_by];

	t->proc = s->proc;
	t->side = s;
	t->end = end;
	t->buffer = buffer;
	t->lkey = s->local ? gn_mr_lkey(s->local) : 0;
	t->in_end = end->n_threads++;
	if (t->in_end == 0)
		end->threads = t;
	t->n_slots = o->stream ? 0 : requests_of(s->proc, i) / o->signal_every;
	if (!t->n_slots)
		return true;
	return alloc(s, &t->slots, t->n_slots, sizeof(t->slots[0])) &&
	       alloc(s, &t->ready, t->n_slots, sizeof(t->ready[0]));
}

static bool start_threads(struct fab_side *s)
{
	const unsigned n = s->proc->n_threads, share = s->run->opts.shared_by;
	uint8_t *buffer = s->local ? gn_mr_addr(s->local) : NULL;

	if (!n)
		return true;
	s->n_ends = (n + share - 1) / share;
	if (!alloc(s, &s->threads, n, sizeof(s->threads[0])) ||
	    !alloc(s, &s->ends, s->n_ends, sizeof(s->ends[0])))
		return false;
	for (unsigned i = 0; i < n; i++) {
		if (!prepare_thread(s, i, buffer))
			return false;
		buffer += (size_t)requests_of(s->proc, i) * s->run->opts.buffer_bytes;
	}
	for (unsigned i = 0; i < n && !s->run->failed; i++) {
		if (!ok(s,
			gn_thread_start("requester", thread_main, &s->threads[i],
					&s->threads[i].thread),
			"a thread"))
			return false;
		s->n_started++;
	}
	return true;
}

/* ---- the way down ---- */

static void stop_threads(struct fab_side *s)
{
	for (unsigned i = 0; i < s->n_started; i++)
		gn_thread_join(s->threads[i].thread);
	for (unsigned i = 0; s->threads && i < s->proc->n_threads; i++) {
		gn_free(s->threads[i].slots);
		gn_free(s->threads[i].ready);
	}
	for (unsigned i = 0; s->ends && i < s->n_ends; i++)
		close_end(&s->ends[i]);
	gn_free(s->threads);
	gn_free(s->ends);
}

static void side_close(struct fab_side *s)
{
	for (unsigned i = 0; i < s->n_accepted; i++)
		gn_qp_destroy(s->accepted[i]);
	for (unsigned i = 0; s->receivers && i < s->run->opts.receivers; i++)
		gn_qp_destroy(s->receivers[i]);
	gn_free(s->accepted);
	gn_free(s->receivers);
	gn_listener_destroy(s->listener);
	gn_cq_destroy(s->cq);
	gn_chan_destroy(s->chan);
	gn_mr_deregister(s->target);
	gn_mem_free(s->target_mem);
	gn_mr_deregister(s->local);
	gn_mem_free(s->local_mem);
	gn_pd_destroy(s->pd);
	gn_ctx_destroy(s->ctx);
	ok(s, gn_fabric_close(s->fabric), "closing the fabric");
}

int fab_main(struct gn_env *env, int argc, char **argv)
{
	struct fab_proc *proc = env->arg;
	struct fab_side s = {.run = proc->run, .proc = proc};

	(void)argc;
	(void)argv;
	if (side_open(&s, env->fabric) && start_threads(&s))
		serve(&s, &s.n_established);
	stop_threads(&s);
	serve(&s, &s.n_gone);
	side_close(&s);
	return proc->run->failed;
}
