/* SPDX-License-Identifier: MIT */
/*
 * What a requesting thread does all the time: keep its window full, take completions, count. And
 * the counting itself, which decides when the measuring begins and ends.
 */
#include "fab_load.h"

#include <stdarg.h>
#include <stdio.h>

#define POLL_MAX   16  /* completions taken at once */
#define NAP_US	   20u /* between two looks at what others have got ready */
#define START_US   50u
#define SCATTER_NS 5000u /* callers do not begin at one instant */

/* ---- counting ---- */

void fab_fail(struct fab_run *run, const char *fmt, ...)
{
	va_list args;

	if (run->failed)
		return;
	run->failed = true;
	va_start(args, fmt);
	vsnprintf(run->error.text, sizeof(run->error.text), fmt, args);
	va_end(args);
}

static void begin(struct fab_run *run, uint64_t now_ns)
{
	run->phase = FAB_MEASURED;
	run->begin_ns = now_ns;
	run->begin_ops = run->ops;
	run->mark(run, run->phase);
}

static void end(struct fab_run *run, uint64_t now_ns)
{
	run->phase = FAB_OVER;
	run->end_ns = now_ns;
	run->end_ops = run->ops;
	run->mark(run, run->phase);
}

void fab_count(struct fab_run *run, uint64_t n, uint64_t began_ns)
{
	const struct fab_length *l = &run->length;
	const uint64_t now_ns = gn_now_ns();

	run->ops += n;
	if (run->interrupted && *run->interrupted)
		fab_fail(run, "interrupted");
	if (run->phase == FAB_SETUP || run->phase == FAB_WARM) {
		run->phase = FAB_WARM;
		if (run->ops >= l->warm_ops && now_ns >= run->start_ns + l->warm_ns)
			begin(run, now_ns);
	} else if (run->phase == FAB_MEASURED) {
		const uint64_t ops = run->ops - run->begin_ops, ns = now_ns - run->begin_ns;

		if (began_ns)
			gn_hist_add(run->latency_ns, now_ns - began_ns, n);
		if ((ops >= l->min_ops && ns >= l->min_ns) || ops >= l->max_ops || ns >= l->max_ns)
			end(run, now_ns);
	}
}

bool fab_starts(struct fab_run *run)
{
	if (++run->connected == run->n_threads)
		run->start_ns = gn_now_ns() + START_US * 1000;
	while (!run->start_ns && !run->failed)
		gn_sleep_us(NAP_US);
	if (run->failed)
		return false;
	if (run->start_ns > gn_now_ns())
		gn_sleep_us((run->start_ns - gn_now_ns()) / 1000);
	gn_charge(GN_WORK_NS, gn_random() % SCATTER_NS);
	return true;
}

/* ---- posting ---- */

static const struct fab_link *pick(const struct fab_thread *t, uint32_t slot)
{
	const struct fab_end *e = t->end;

	if (t->proc->run->opts.per_qp)
		return &e->links[slot / t->proc->run->opts.window];
	return &e->links[e->n_links > 1 ? gn_random() % e->n_links : 0];
}

/* Where at the target request i of all that the thread can have under way goes. */
static uint64_t target_offset(const struct fab_opts *o, uint64_t i)
{
	if (o->region_bytes)
		return gn_random() % (o->region_bytes / 8) * 8;
	return (o->per_qp ? i % o->window * o->buffer_bytes : 0) + o->lead_bytes;
}

static void fill(const struct fab_thread *t, const struct fab_link *link, uint64_t i, uint64_t id,
		 struct gn_wr *wr, struct gn_sge *sge)
{
	const struct fab_opts *o = &t->proc->run->opts;
	const uint32_t flags = o->inlined ? GN_INLINE : 0;

	sge->addr = t->buffer + i * o->buffer_bytes + o->lead_bytes;
	sge->len_bytes = o->size_bytes;
	sge->lkey = t->lkey;
	if (o->ud)
		gn_wr_ud(wr, id, sge, link->ah, link->qpn, link->qkey, flags);
	else if (o->op == GN_OP_FAA)
		gn_wr_faa(wr, id, sge, &link->remote, target_offset(o, i), 1, flags);
	else
		gn_wr_rdma(wr, o->op, id, sge, &link->remote, target_offset(o, i), flags);
}

static void post(struct fab_thread *t, const struct fab_link *link, const struct gn_wr *wr)
{
	struct gn_qp *qp = t->end->ud ? t->end->ud : link->qp;
	const int rc = gn_post_send(qp, wr, NULL);

	if (rc)
		fab_fail(t->proc->run, "a post on %s: %s", t->proc->addr, gn_strerror(rc));
}

/* The chain of a slot, with its last request signaled. */
static void post_slot(struct fab_thread *t, uint32_t slot)
{
	const unsigned n = t->proc->run->opts.signal_every;
	const struct fab_link *link = pick(t, slot);
	struct gn_wr wr[FAB_CHAIN_MAX];
	struct gn_sge sge[FAB_CHAIN_MAX];

	for (unsigned i = 0; i < n; i++) {
		fill(t, link, (uint64_t)slot * n + i, (uint64_t)t->in_end << 32 | slot, &wr[i],
		     &sge[i]);
		if (i)
			wr[i - 1].next = &wr[i];
	}
	wr[n - 1].flags |= GN_SIGNALED;
	t->under_way++;
	post(t, link, wr);
}

/* A slot begins an operation. */
static void post_operation(struct fab_thread *t, uint32_t slot)
{
	t->slots[slot].left = t->proc->run->opts.requests_per_op;
	t->slots[slot].post_ns = gn_now_ns();
	post_slot(t, slot);
}

/* ---- completions ---- */

static bool wc_ok(struct fab_run *run, const struct gn_wc *wc)
{
	if (wc->status == GN_WC_OK)
		return true;
	fab_fail(run, "a request completed with %s", gn_wc_status_str(wc->status));
	return false;
}

/* A chain is done, whoever of those who share the cq polled it. */
static void complete(struct fab_end *end, uint64_t id)
{
	struct fab_thread *t = &end->threads[id >> 32];
	const uint32_t slot = (uint32_t)id;
	const struct fab_opts *o = &t->proc->run->opts;

	t->under_way--;
	if (--t->slots[slot].left == 0) {
		fab_count(t->proc->run, o->signal_every, t->slots[slot].post_ns);
		t->slots[slot].left = o->requests_per_op;
		t->slots[slot].post_ns = 0;
	}
	t->ready[t->n_ready++] = slot;
}

/* Waits for completions, or until another thread took them. How many, or negative. */
static int take(struct fab_thread *t, struct gn_wc *wc)
{
	struct gn_wait_item items[2];
	int n;

	if (t->end->n_threads == 1)
		return gn_cq_wait(t->end->cq, wc, POLL_MAX, GN_FOREVER, "a completion");
	n = gn_cq_poll(t->end->cq, wc, POLL_MAX);
	if (n)
		return n;
	items[0] = gn_wait_on(gn_cq_source(t->end->cq));
	items[1] = gn_wait_word(&t->n_ready, 0);
	n = gn_wait(items, 2, GN_FOREVER, "a completion, or another's poll");
	return n < 0 ? n : 0;
}

static void take_completions(struct fab_thread *t)
{
	struct fab_run *run = t->proc->run;
	struct gn_wc wc[POLL_MAX];
	const int n = take(t, wc);

	if (n < 0)
		fab_fail(run, "waiting for completions: %s", gn_strerror(n));
	for (int i = 0; i < n && wc_ok(run, &wc[i]); i++)
		complete(t->end, wc[i].id);
}

static void keep_window(struct fab_thread *t)
{
	struct fab_run *run = t->proc->run;

	for (uint32_t slot = 0; slot < t->n_slots && !fab_stops(run); slot++)
		post_operation(t, slot);
	while (!run->failed && (t->under_way || t->n_ready)) {
		while (t->n_ready && !run->failed) {
			const uint32_t slot = t->ready[--t->n_ready];

			if (t->slots[slot].post_ns)
				post_slot(t, slot); /* the operation's next request */
			else if (!fab_stops(run))
				post_operation(t, slot);
		}
		if (t->under_way && !run->failed)
			take_completions(t);
	}
}

/* ---- without a window ---- */

static bool wait_one(struct fab_thread *t)
{
	struct gn_wc wc;
	const int n = gn_cq_wait(t->end->cq, &wc, 1, GN_FOREVER, "one completion of many");

	if (n < 0)
		fab_fail(t->proc->run, "waiting for a completion: %s", gn_strerror(n));
	return n == 1 && wc_ok(t->proc->run, &wc);
}

static void stream(struct fab_thread *t)
{
	struct fab_run *run = t->proc->run;
	const unsigned every = run->opts.signal_every;

	for (uint64_t i = 0; !fab_stops(run); i++) {
		const struct fab_link *link = pick(t, 0);
		struct gn_wr wr;
		struct gn_sge sge;

		fill(t, link, i % (2 * every), i, &wr, &sge);
		if (i % every == 0)
			wr.flags |= GN_SIGNALED;
		post(t, link, &wr);
		/* By now the first of these is long done, unless the device is what we wait for. */
		if (i % every == every - 1 && wait_one(t))
			fab_count(run, every, 0);
	}
}

void fab_loop(struct fab_thread *t)
{
	if (t->proc->run->opts.stream)
		stream(t);
	else
		keep_window(t);
}
