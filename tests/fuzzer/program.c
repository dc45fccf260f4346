/* SPDX-License-Identifier: MIT */
/*
 * The program of each process: it opens the fabric, its workers post random requests and check the
 * results, and it closes everything. After a crash of its node it is started again.
 */
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RUNS_MAX      4u /* starts of a program whose node keeps crashing */
#define POLL_MAX      8
#define EVENTS	      8
#define LONG_WAIT_US  100000u
#define LINGER_US     10000u
#define ATOMICS_BYTES GN_PAGE

uint64_t worker_now(struct worker *w)
{
	const uint64_t now = gn_now_ns();

	CHECK(w->run, now >= w->last_ns, "time went back from %llu to %llu",
	      (unsigned long long)w->last_ns, (unsigned long long)now);
	w->last_ns = now;
	return now;
}

/* ---- completions and events ---- */

static void worker_poll_cq(struct worker *w, struct gn_cq *cq,
			   void (*fn)(struct endpoint *, const struct gn_wc *))
{
	struct gn_wc wc[POLL_MAX];
	int n;

	do {
		n = gn_cq_poll(cq, wc, POLL_MAX);
		CHECK(w->run, n >= 0, "gn_cq_poll gave %s", gn_strerror(n));
		for (int i = 0; i < n; i++)
			fn(gn_qp_user(wc[i].qp), &wc[i]);
	} while (n == POLL_MAX);
}

void worker_poll(struct worker *w)
{
	worker_poll_cq(w, w->send_cq, ep_sent);
	worker_poll_cq(w, w->recv_cq, ep_received);
}

void worker_wait(struct worker *w, uint64_t us, bool events)
{
	const uint64_t deadline = gn_deadline_us(us);
	struct gn_wait_item items[3] = {
		gn_wait_on(gn_cq_source(w->send_cq)),
		gn_wait_on(gn_cq_source(w->recv_cq)),
		gn_wait_on(gn_chan_source(w->chan)),
	};
	int rc = gn_wait(items, events ? 3 : 2, deadline, "completions and events");

	CHECK(w->run, rc >= 0 || (rc == -ETIMEDOUT && worker_now(w) >= deadline),
	      "a wait gave %s before its time", gn_strerror(rc));
	/* No event takes as long, and no pause lasts PROGRESS_TIMEOUT_US. */
	CHECK(w->run, rc <= 0 || us < LONG_WAIT_US || worker_now(w) < deadline,
	      "a wait of %llu us missed a wake-up", (unsigned long long)us);
}

static void worker_accept(struct worker *w, const struct gn_event *event)
{
	struct hello hello;

	CHECK(w->run, event->private_len >= sizeof(hello), "a request comes with %u bytes, not %zu",
	      event->private_len, sizeof(hello));
	memcpy(&hello, event->private_data, sizeof(hello));
	for (unsigned i = 0; i < w->n_endpoints; i++) {
		struct endpoint *ep = &w->endpoint[i];

		if (ep->link == hello.link && ep->side == 1 && !w->finishing) {
			ep_accept(ep, event->req, &hello);
			return;
		}
	}
	CHECK(w->run, w->finishing, "a request for link %u came to worker %u", hello.link,
	      w->index);
	CHECK(w->run, gn_reject(event->req, NULL, 0) == 0, "gn_reject failed");
}

static void worker_take_events(struct worker *w)
{
	struct gn_event event;

	for (unsigned i = 0; i < EVENTS; i++) {
		int rc = gn_chan_next(w->chan, &event);

		if (rc == -EAGAIN)
			return;
		CHECK(w->run, rc == 0, "gn_chan_next gave %s", gn_strerror(rc));
		if (event.type == GN_EVENT_CONNECT_REQUEST)
			worker_accept(w, &event);
		else if (event.type == GN_EVENT_CQ || event.type == GN_EVENT_CQ_OVERRUN)
			fuzz_fail(w->run, "event %s of a cq that was not armed",
				  gn_event_str(event.type));
		else
			ep_event(gn_qp_user(event.qp), &event);
	}
}

/* ---- one step on an endpoint ---- */

static void worker_add_locally(struct worker *w)
{
	uint64_t *word = (uint64_t *)gn_mem_addr(w->process->atomics_mem) + WORD_FAA;
	const uint64_t add = rng_range(&w->rng, 1, 1000);

	if (!(w->process->attr.caps & GN_CAP_ATOMIC_CPU))
		return;
	atomics_cpu_added(w->run, w->process->atomics,
			  __atomic_fetch_add(word, add, __ATOMIC_SEQ_CST), add);
}

static void ep_use(struct endpoint *ep)
{
	const struct plan_link *link = &ep->run->plan.link[ep->link];
	struct rng *rng = &ep->worker->rng;

	if (!link->few_recvs || rng_one_in(rng, 6))
		ep_post_recvs(ep, UINT32_MAX);
	if (ep->broken && rng_one_in(rng, 3)) {
		ep_close(ep);
		return;
	}
	if (rng_one_in(rng, link->close_one_in)) {
		if (rng_one_in(rng, 2))
			ep_sync(ep);
		ep_close(ep);
		return;
	}
	if (link->hostile && rng_one_in(rng, 200))
		ep_deregister(ep);
	switch (rng_below(rng, 16)) {
	case 0:
	case 1:
		ep_bump_version(ep);
		break;
	case 2:
	case 3:
		ep_check_memory(ep);
		break;
	case 4:
	case 5:
		worker_add_locally(ep->worker);
		break;
	case 6:
		if (!ep->broken && rng_one_in(rng, 4))
			ep_sync(ep);
		break;
	default:
		ep_post(ep);
	}
}

static void ep_step(struct endpoint *ep)
{
	if (ep->ud && ep->broken) {
		ud_close(ep);
	} else if (ep->ud) {
		ep_post_recvs(ep, UINT32_MAX);
		ud_post(ep);
	} else if (ep->link == UINT32_MAX) {
		ud_open(ep); /* in place of one that failed */
	} else if (ep->state == EP_UP) {
		ep_use(ep);
	} else if (ep->state == EP_IDLE && ep->side == 0 && ep->attempts < ATTEMPTS &&
		   rng_one_in(&ep->worker->rng, 3)) {
		ep_connect(ep);
	}
}

static void worker_lock(struct worker *w)
{
	if (w->process->plan->shared)
		gn_mutex_lock(&w->lock);
}

static void worker_unlock(struct worker *w)
{
	if (w->process->plan->shared)
		gn_mutex_unlock(&w->lock);
}

/* Polls and posts for the other worker, as threads that share a context may. */
static void worker_help_other(struct worker *w)
{
	struct process *process = w->process;
	struct worker *other = &process->worker[w == &process->worker[0]];
	struct endpoint *ep;

	if (!process->plan->shared || process->plan->n_workers < 2)
		return;
	worker_lock(other);
	if (other->n_endpoints > 0 && other->listener && !other->finishing) {
		worker_poll(other);
		ep = &other->endpoint[rng_below(&w->rng, other->n_endpoints)];
		if (ep->state == EP_UP && !ep->ud)
			ep_post(ep);
	}
	worker_unlock(other);
}

/* Some microseconds of local work on the memory that the peers access. */
static void worker_interfere(struct worker *w)
{
	for (uint32_t n = rng_below(&w->rng, 16); n > 0; n--) {
		worker_lock(w);
		for (unsigned i = 0; i < w->n_endpoints; i++)
			if (w->endpoint[i].conn)
				ep_interfere(&w->endpoint[i]);
		worker_unlock(w);
		gn_charge(GN_WORK_NS, rng_below(&w->rng, 400));
	}
}

static void worker_idle(struct worker *w)
{
	bool up = false;

	for (unsigned i = 0; i < w->n_endpoints; i++)
		up = up || w->endpoint[i].state == EP_UP;
	if (!up) {
		worker_wait(w, rng_range(&w->rng, 10, 300), true);
		return;
	}
	switch (rng_below(&w->rng, 8)) {
	case 0:
		worker_wait(w, rng_below(&w->rng, 60), true);
		break;
	case 1:
		gn_sleep_us(rng_below(&w->rng, 30));
		break;
	case 2:
		gn_yield();
		break;
	case 3:
		break;
	case 4:
	case 5:
		worker_interfere(w);
		break;
	default:
		gn_charge(GN_WORK_NS, rng_below(&w->rng, 3000));
	}
}

static void worker_loop(struct worker *w)
{
	for (uint32_t step = 0; step < w->plan->steps; step++) {
		worker_lock(w);
		worker_take_events(w);
		worker_poll(w);
		if (w->n_endpoints > 0)
			ep_step(&w->endpoint[rng_below(&w->rng, w->n_endpoints)]);
		worker_unlock(w);
		if (rng_one_in(&w->rng, 12))
			shared_use(w);
		if (rng_one_in(&w->rng, 8))
			worker_help_other(w);
		worker_idle(w);
	}
}

/* Clients disconnect; servers wait for that, and then close the remaining connections. */
static void worker_finish(struct worker *w)
{
	const uint64_t deadline = worker_now(w) + LINGER_US * 1000ull;
	bool any = true;

	worker_lock(w);
	w->finishing = true;
	for (unsigned i = 0; i < w->n_endpoints; i++) {
		struct endpoint *ep = &w->endpoint[i];

		if (!ep->conn || ep->side == 1)
			continue;
		if (ep->state == EP_UP && !ep->broken)
			ep_sync(ep);
		ep_close(ep);
	}
	while (any && worker_now(w) < deadline) {
		worker_wait(w, LINGER_US, true);
		worker_take_events(w);
		worker_poll(w);
		any = false;
		for (unsigned i = 0; i < w->n_endpoints; i++) {
			struct endpoint *ep = &w->endpoint[i];

			if (ep->conn && ep->state == EP_UP)
				ep_post_recvs(ep, UINT32_MAX);
			if (ep->conn && ep->broken)
				ep_close(ep);
			any = any || ep->conn;
		}
	}
	for (unsigned i = 0; i < w->n_endpoints; i++) {
		if (w->endpoint[i].conn)
			ep_close(&w->endpoint[i]);
		if (w->endpoint[i].ud)
			ud_close(&w->endpoint[i]);
	}
	worker_unlock(w);
}

/* ---- workers ---- */

static void worker_make_endpoints(struct worker *w)
{
	const struct plan *plan = &w->run->plan;

	for (unsigned i = 0; i < plan->n_links; i++) {
		if (plan->link[i].client != w->index && plan->link[i].server != w->index)
			continue;
		w->endpoint[w->n_endpoints++] = (struct endpoint){
			.run = w->run,
			.worker = w,
			.link = i,
			.side = plan->link[i].server == w->index,
		};
	}
	if (w->plan->datagrams) {
		struct endpoint *ep = &w->endpoint[w->n_endpoints++];

		*ep = (struct endpoint){.run = w->run, .worker = w, .link = UINT32_MAX};
		ud_open(ep);
		if (!ep->ud)
			w->n_endpoints--;
	}
}

static bool worker_open(struct worker *w)
{
	struct process *process = w->process;
	const unsigned flags = process->plan->shared ? GN_SHARED : 0;
	struct gn_cq_opts opts = {
		.size = sizeof(opts), .depth = 64u * (LINKS_MAX + 1), .flags = flags};
	char addr[32];

	snprintf(addr, sizeof(addr), "sim:n%u:%u", process->plan->node, w->index + 1);
	w->ctx = process->ctx;
	if (!w->ctx &&
	    !ok_or_no_memory(w->run, gn_ctx_create(process->fabric, &w->ctx), "gn_ctx_create"))
		return false;
	if (!ok_or_no_memory(w->run, gn_chan_create(w->ctx, &w->chan), "gn_chan_create"))
		return false;
	opts.chan = w->chan;
	return ok_or_no_memory(w->run, gn_cq_create(w->ctx, &opts, &w->send_cq), "gn_cq_create") &&
	       ok_or_no_memory(w->run, gn_cq_create(w->ctx, &opts, &w->recv_cq), "gn_cq_create") &&
	       ok_or_no_memory(w->run, gn_listener_create(w->ctx, addr, w->chan, 0, &w->listener),
			       "gn_listener_create");
}

static void worker_close(struct worker *w)
{
	const bool own_ctx = w->ctx != w->process->ctx;
	struct gn_listener *listener = w->listener;

	w->listener = NULL;
	CHECK(w->run, gn_listener_destroy(listener) == 0, "gn_listener_destroy failed");
	CHECK(w->run, gn_cq_destroy(w->send_cq) == 0 && gn_cq_destroy(w->recv_cq) == 0,
	      "gn_cq_destroy failed");
	CHECK(w->run, gn_chan_destroy(w->chan) == 0, "gn_chan_destroy failed");
	CHECK(w->run, !own_ctx || gn_ctx_destroy(w->ctx) == 0, "gn_ctx_destroy failed");
}

static void worker_main(void *arg)
{
	struct worker *w = arg;

	worker_lock(w);
	if (worker_open(w))
		worker_make_endpoints(w);
	worker_unlock(w);
	if (w->listener) {
		worker_loop(w);
		worker_finish(w);
	}
	worker_lock(w);
	worker_close(w);
	worker_unlock(w);
}

static void worker_init(struct process *process, unsigned i)
{
	struct fuzz_run *run = process->run;
	struct worker *w = &process->worker[i];
	const unsigned proc = (unsigned)(process->plan - run->plan.proc);

	w->run = run;
	w->process = process;
	w->index = process->plan->first_worker + i;
	w->plan = &run->plan.worker[w->index];
	w->rng.state = rng_mix(run->opts->seed * 64 + w->index) + run->runs[proc];
	gn_mutex_init(&w->lock);
}

static void process_run_workers(struct process *process)
{
	const unsigned n = process->plan->n_workers;

	for (unsigned i = 0; i < n; i++)
		worker_init(process, i);
	for (unsigned i = 1; i < n; i++)
		ok_or_no_memory(process->run,
				gn_thread_start("worker", worker_main, &process->worker[i],
						&process->worker[i].thread),
				"gn_thread_start");
	worker_main(&process->worker[0]);
	for (unsigned i = 1; i < n; i++)
		if (process->worker[i].thread)
			CHECK(process->run, gn_thread_join(process->worker[i].thread) == 0,
			      "gn_thread_join failed");
	for (unsigned i = 0; i < n; i++)
		gn_mutex_fini(&process->worker[i].lock);
}

/* ---- the process ---- */

static bool process_open(struct process *process, const char *fabric)
{
	struct fuzz_run *run = process->run;

	if (!ok_or_no_memory(run, gn_fabric_open(fabric, &process->fabric), "gn_fabric_open"))
		return false;
	process->attr.size = sizeof(process->attr);
	CHECK(run, gn_fabric_query(process->fabric, &process->attr) == 0, "gn_fabric_query failed");
	CHECK(run, !(process->attr.caps & run->plan.caps_off), "capabilities %llx with %llx off",
	      (unsigned long long)process->attr.caps, (unsigned long long)run->plan.caps_off);
	if (process->plan->shared &&
	    !ok_or_no_memory(run, gn_ctx_create(process->fabric, &process->ctx), "gn_ctx_create"))
		return false;
	if (!ok_or_no_memory(run,
			     gn_mem_alloc(process->fabric, ATOMICS_BYTES, GN_REMOTE_ATOMIC,
					  &process->atomics_mem),
			     "gn_mem_alloc"))
		return false;
	process->atomics = atomics_create(run);
	return shared_open(process);
}

static void process_close(struct process *process)
{
	struct fuzz_run *run = process->run;

	shared_close(process);
	if (process->atomics)
		atomics_close(run, process->atomics, gn_mem_addr(process->atomics_mem));
	CHECK(run, gn_mem_free(process->atomics_mem) == 0, "gn_mem_free failed");
	CHECK(run, gn_ctx_destroy(process->ctx) == 0, "gn_ctx_destroy failed");
	CHECK(run, !process->fabric || gn_fabric_close(process->fabric) == 0,
	      "gn_fabric_close failed");
}

/* The last run of this program crashed: its UD qps do not exist any more. */
static void forget_last_start(struct fuzz_run *run, unsigned proc)
{
	for (unsigned i = 0; i < run->n_uds; i++)
		if (run->plan.worker[run->ud[i].worker].proc == proc)
			run->ud[i].open = false;
}

int program_main(struct gn_env *env, int argc, char **argv)
{
	const struct program_arg *arg = env->arg;
	struct fuzz_run *run = arg->run;
	struct process *process;

	(void)argc;
	(void)argv;
	if (run->result->failed || run->runs[arg->proc] == RUNS_MAX)
		return 0;
	if (run->runs[arg->proc]++ > 0) {
		CHECK(run, plan_ends_programs(run), "a program was started twice");
		run->result->restarts++;
		forget_last_start(run, arg->proc);
	}
	process = gn_alloc(sizeof(*process), 0);
	CHECK(run, process || run->no_memory, "gn_alloc gave nothing");
	if (!process)
		return 0;
	process->run = run;
	process->plan = &run->plan.proc[arg->proc];
	if (process_open(process, env->fabric))
		process_run_workers(process);
	process_close(process);
	gn_free(process);
	return 0;
}
