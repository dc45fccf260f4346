/* SPDX-License-Identifier: MIT */
/*
 * A thread of a client: requests of all kinds, sizes and alignments, many at a time through a queue
 * of its own, or one at a time by the calls that block. Requests of all threads overlap.
 */
#include <errno.h>
#include <stddef.h>

#include "sim_vol.h"

#define UNTIL_NS   30000000000ull
#define END_NS	   90000000000ull
#define WAIT_US	   3000u
#define NEAR	   24u	/* sectors around a hot one */
#define SHORT_MAX  20u	/* sectors of most requests */
#define LONG_MAX   256u /* … and of a few */
#define CALM_STEPS 8u	/* after the faults */
#define MEMORY_US  1000u

#define DETECT_US_DEFAULT 60000u
#define GO_ON_US	  100000u
#define DECIDE_US	  300000u

/* ---- results ---- */

static bool status_has_reason(const struct world *w, const struct op *op, int status)
{
	switch (-status) {
	case 0:
		return true;
	case EIO:
		return op->req.op != GN_VOL_FLUSH || w->plan.backup;
	case ENOSPC:
		return (w->plan.headroom || truth_may_lose(w)) && op->req.op != GN_VOL_READ &&
		       op->req.op != GN_VOL_FLUSH;
	case ENOMEM:
		return w->plan.cluster.no_memory;
	default:
		return false;
	}
}

/*
 * If one donor fails at a time, requests go on within 100 ms of its detection, and of the decisions
 * of a slow authority.
 */
static uint64_t outage_us(const struct plan *plan)
{
	return (plan->detect_us ? plan->detect_us : DETECT_US_DEFAULT) + GO_ON_US +
	       (plan->authority ? DECIDE_US : 0);
}

/* Events whose outage is over. */
static unsigned events_over(const struct world *w)
{
	const uint64_t until_ns = w->event_ns + outage_us(&w->plan) * 1000;

	return w->n_events - (w->n_events && gn_sim_now_ns(w->run.sim) < until_ns);
}

/* A request that waits behind others may see the outages of several events. */
static uint64_t longest_us(const struct world *w, const struct op *op)
{
	const unsigned outages = w->n_events - op->events;

	return outage_us(&w->plan) * (outages ? outages : 1);
}

static const char *op_name(const struct op *op)
{
	static const char *const names[] = {"READ", "WRITE", "ZERO", "DISCARD", "FLUSH"};

	return names[op->req.op];
}

static void op_ended(struct client *c, struct op *op, int status)
{
	struct world *w = c->w;
	const uint64_t us = (gn_now_ns() - op->start_ns) / 1000;

	w->run.ended++;
	w->active_ns = gn_sim_now_ns(w->run.sim);
	w->sums.ops[op->req.op] += !status;
	w->sums.failed += status == -EIO;
	w->sums.no_space += status == -ENOSPC;
	w->sums.longest_us = us > w->sums.longest_us ? us : w->sums.longest_us;
	world_log(w, "op %u: %s%s of %u sectors at %u, version %u, %llu us: %s", op->slot,
		  op_name(op), op->req.flags ? " with FUA" : "", op->n, op->first, op->version,
		  (unsigned long long)us, gn_strerror(status));
	if (!op->busy)
		world_fail(w, "a request ended twice");
	op->busy = false;
	if (w->plan.careful && us > longest_us(w, op))
		world_fail(w, "a %s took %llu us", op_name(op), (unsigned long long)us);
	if (!status_has_reason(w, op, status))
		world_fail(w, "a %s ended with %s", op_name(op), gn_strerror(status));
	model_end(w, c->index, op, status);
	if (!status && op->req.op != GN_VOL_READ && !*w->run.failure &&
	    (w->plan.visible || op->req.op == GN_VOL_FLUSH || op->req.flags & GN_VOL_FUA))
		truth_check(w, c->index, op);
}

/* ---- drawing ---- */

static enum gn_vol_op draw_kind(const struct plan *plan)
{
	const unsigned what = (unsigned)gn_random() % 100;

	if (what < plan->reads)
		return GN_VOL_READ;
	if (what < plan->reads + plan->zeroes)
		return gn_random() % 2 ? GN_VOL_ZERO : GN_VOL_DISCARD;
	return what < plan->reads + plan->zeroes + plan->flushes ? GN_VOL_FLUSH : GN_VOL_WRITE;
}

static void draw_range(const struct world *w, struct op *op, unsigned room)
{
	const struct plan *plan = &w->plan;
	const unsigned all = (unsigned)(plan->bytes / SECTOR);
	const unsigned about = plan->hot[gn_random() % plan->n_hot] + (unsigned)gn_random() % NEAR;
	const unsigned size = (unsigned)gn_random() % 64;
	unsigned max = size ? size < 8 ? LONG_MAX : SHORT_MAX : room;

	op->first = about < NEAR / 2 ? 0 : about - NEAR / 2;
	op->first = op->first < all ? op->first : all - 1;
	if (gn_random() % 4 == 0)
		op->first = op->first / BLOCK_SECTORS * BLOCK_SECTORS;
	op->n = 1 + (unsigned)gn_random() % (max < room ? max : room);
	if (gn_random() % 4 == 0)
		op->n = (op->n + BLOCK_SECTORS - 1) / BLOCK_SECTORS * BLOCK_SECTORS;
	max = all - op->first < room ? all - op->first : room;
	op->n = op->n < max ? op->n : max;
}

/* The buffer, in one to four pieces. */
static void draw_pieces(struct client *c, struct op *op)
{
	unsigned left = op->n, at = 0;

	op->req.n_sge = 0;
	while (left) {
		const unsigned n = op->req.n_sge == 3 ? left : 1 + (unsigned)gn_random() % left;

		op->sge[op->req.n_sge++] =
			(struct gn_io_sge){.addr = op->bytes + (size_t)at * SECTOR,
					   .len_bytes = n * SECTOR,
					   .mem = gn_random() % 2 ? c->mem : NULL};
		at += n;
		left -= n;
	}
}

static bool op_begin(struct client *c, struct op *op, enum gn_vol_op kind)
{
	struct world *w = c->w;

	op->req = (struct gn_vol_req){.op = kind,
				      .flags = kind != GN_VOL_READ && kind != GN_VOL_FLUSH &&
							       gn_random() % 16 == 0 ?
						       GN_VOL_FUA :
						       0,
				      .user = op};
	if (kind == GN_VOL_FLUSH)
		op->first = op->n = 0;
	op->req.offset = (uint64_t)op->first * SECTOR;
	op->req.len_bytes = (uint64_t)op->n * SECTOR;
	if (!model_begin(&w->clients[c->index].model, op))
		return false;
	if (kind == GN_VOL_WRITE)
		model_fill(c->index, op);
	if (kind == GN_VOL_READ || kind == GN_VOL_WRITE) {
		op->req.sge = op->sge;
		draw_pieces(c, op);
	}
	op->busy = true;
	op->start_ns = gn_now_ns();
	op->events = events_over(w);
	return true;
}

static void op_forget(struct client *c, struct op *op)
{
	op->busy = false;
	model_cancel(&c->w->clients[c->index].model, op);
}

/* ---- blocking ---- */

static int op_block(struct client *c, struct op *op)
{
	const uint64_t offset = op->req.offset, len = op->req.len_bytes;

	c->w->run.submitted++;
	switch (op->req.op) {
	case GN_VOL_READ:
		return gn_vol_read(c->vol, op->bytes, len, offset);
	case GN_VOL_WRITE:
		return gn_vol_write(c->vol, op->bytes, len, offset, op->req.flags);
	case GN_VOL_ZERO:
		return gn_vol_zero(c->vol, len, offset, op->req.flags);
	case GN_VOL_DISCARD:
		return gn_vol_discard(c->vol, len, offset, op->req.flags);
	default:
		return gn_vol_flush(c->vol);
	}
}

int thread_run(struct thread *t, struct op *op, enum gn_vol_op kind, unsigned first, unsigned n)
{
	int rc;

	op->first = first;
	op->n = n;
	if (!op_begin(t->c, op, kind))
		return -EAGAIN;
	rc = op_block(t->c, op);
	op_ended(t->c, op, rc);
	return rc;
}

static void step_block(struct thread *t)
{
	struct op *op = &t->op[0];

	draw_range(t->c->w, op, op->room);
	thread_run(t, op, draw_kind(&t->c->w->plan), op->first, op->n);
}

/* ---- asynchronous ---- */

static void op_done(struct gn_vol_req *req)
{
	struct op *op = req->user;
	struct thread *t =
		(void *)((char *)(op - op->slot % DEPTH_MAX) - offsetof(struct thread, op));

	op_ended(t->c, op, req->status);
}

static void step_submit(struct thread *t)
{
	struct client *c = t->c;
	struct world *w = c->w;
	struct gn_vol_req *list[DEPTH_MAX];
	unsigned n = 0;
	int rc;

	for (unsigned i = 0; i < w->plan.depth && t->steps; i++) {
		struct op *op = &t->op[i];

		if (op->busy || gn_random() % 3 == 0)
			continue;
		draw_range(w, op, op->room);
		if (!op_begin(c, op, draw_kind(&w->plan)))
			continue;
		op->req.done = gn_random() % 2 ? op_done : NULL;
		list[n++] = &op->req;
		t->steps--;
	}
	rc = n ? gn_vol_submit(t->queue, list, n) : 0;
	if (rc < 0 && rc != -EAGAIN && !(rc == -ENOMEM && w->plan.cluster.no_memory))
		world_fail(w, "submit: %s", gn_error() ? gn_error() : gn_strerror(rc));
	rc = rc < 0 ? 0 : rc;
	w->run.submitted += (unsigned)rc;
	for (unsigned i = (unsigned)rc; i < n; i++)
		op_forget(c, list[i]->user);
}

static unsigned thread_under_way(const struct thread *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < DEPTH_MAX; i++)
		n += t->op[i].busy;
	return n;
}

static void step_wait(struct thread *t)
{
	struct gn_vol_req *ended[DEPTH_MAX] = {NULL};
	/* Half of the waits have no deadline: a wake-up that was lost ends the run. */
	const int rc =
		gn_vol_wait(t->queue, ended, DEPTH_MAX,
			    gn_random() % 2 ? GN_FOREVER : gn_deadline_us(gn_random() % WAIT_US));

	if (rc < 0 && rc != -ETIMEDOUT && rc != -EAGAIN)
		world_fail(t->c->w, "wait: %s", gn_strerror(rc));
	for (unsigned i = 0; i < DEPTH_MAX && ended[i]; i++) /* those without done */
		op_ended(t->c, ended[i]->user, ended[i]->status);
}

/* ---- loop ---- */

static void thread_loop(struct thread *t)
{
	struct world *w = t->c->w;
	unsigned calm = 0;

	while (t->steps && calm < CALM_STEPS && !*w->run.failure &&
	       gn_sim_now_ns(w->run.sim) < UNTIL_NS) {
		calm += w->calm;
		if (t->blocking) {
			t->steps--;
			step_block(t);
		} else {
			step_submit(t);
			step_wait(t);
		}
		gn_sleep_us(gn_random() % w->plan.pace_us);
	}
	while (thread_under_way(t) && !*w->run.failure && gn_sim_now_ns(w->run.sim) < END_NS)
		step_wait(t);
	if (thread_under_way(t))
		world_fail(w, "%u requests do not end", thread_under_way(t));
}

void thread_main(void *arg)
{
	struct thread *t = arg;
	struct world *w = t->c->w;
	int rc = 0;

	while (!t->blocking &&
	       (rc = gn_vol_queue_create(t->c->vol, DEPTH_MAX, &t->queue)) == -ENOMEM &&
	       w->plan.cluster.no_memory)
		gn_sleep_us(MEMORY_US);
	if (rc) {
		world_fail(w, "no queue: %s", gn_strerror(rc));
		return;
	}
	thread_loop(t);
	if (t->queue && !thread_under_way(t) && gn_vol_queue_destroy(t->queue))
		world_fail(w, "a queue cannot be destroyed: %s", gn_error());
}
