/* SPDX-License-Identifier: MIT */
/*
 * The program of each process: it opens the fabric, its workers post at random and check what comes
 * of it, and everything is taken down again. A program whose node crashed starts here once more.
 */
#include "swarm_node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RUNS_MAX     4u /* of a program whose node keeps crashing */
#define POLL_MAX     8
#define EVENTS	     8
#define LONG_WAIT_US 100000u
#define LINGER_US    10000u
#define HALL_SIZE    GN_PAGE

uint64_t worker_now(struct worker *w)
{
	const uint64_t now = gn_now_ns();

	CHECK(w->s, now >= w->last_ns, "time went back from %llu to %llu",
	      (unsigned long long)w->last_ns, (unsigned long long)now);
	w->last_ns = now;
	return now;
}

/* ---- completions and events ---- */

static void poll_cq(struct worker *w, struct gn_cq *cq,
		    void (*fn)(struct end *, const struct gn_wc *))
{
	struct gn_wc wc[POLL_MAX];
	int n;

	do {
		n = gn_cq_poll(cq, wc, POLL_MAX);
		CHECK(w->s, n >= 0, "gn_cq_poll gave %s", gn_strerror(n));
		for (int i = 0; i < n; i++)
			fn(gn_qp_user(wc[i].qp), &wc[i]);
	} while (n == POLL_MAX);
}

void worker_poll(struct worker *w)
{
	poll_cq(w, w->send_cq, end_sent);
	poll_cq(w, w->recv_cq, end_received);
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

	CHECK(w->s, rc >= 0 || (rc == -ETIMEDOUT && worker_now(w) >= deadline),
	      "a wait gave %s before its time", gn_strerror(rc));
	/* Nothing comes as late as that by itself, nor does a pause last as long as PATIENCE_US. */
	CHECK(w->s, rc <= 0 || us < LONG_WAIT_US || worker_now(w) < deadline,
	      "a wait of %llu us slept over what it waited for", (unsigned long long)us);
}

static void take_request(struct worker *w, const struct gn_event *event)
{
	struct hello hello;

	CHECK(w->s, event->private_len >= sizeof(hello), "a request comes with %u bytes, not %zu",
	      event->private_len, sizeof(hello));
	memcpy(&hello, event->private_data, sizeof(hello));
	for (unsigned i = 0; i < w->n_ends; i++) {
		struct end *e = &w->end[i];

		if (e->link == hello.link && e->side == 1 && !w->finishing) {
			end_accept(e, event->req, &hello);
			return;
		}
	}
	CHECK(w->s, w->finishing, "a request for link %u came to worker %u", hello.link, w->index);
	CHECK(w->s, gn_reject(event->req, NULL, 0) == 0, "gn_reject failed");
}

static void take_events(struct worker *w)
{
	struct gn_event event;

	for (unsigned i = 0; i < EVENTS; i++) {
		int rc = gn_chan_next(w->chan, &event);

		if (rc == -EAGAIN)
			return;
		CHECK(w->s, rc == 0, "gn_chan_next gave %s", gn_strerror(rc));
		if (event.type == GN_EVENT_CONNECT_REQUEST)
			take_request(w, &event);
		else if (event.type == GN_EVENT_CQ || event.type == GN_EVENT_CQ_OVERRUN)
			swarm_fail(w->s, "event %s of a cq that nobody armed",
				   gn_event_str(event.type));
		else
			end_event(gn_qp_user(event.qp), &event);
	}
}

/* ---- what a worker does with an end ---- */

static void cpu_adds(struct worker *w)
{
	uint64_t *word = (uint64_t *)gn_mem_addr(w->house->hall_mem) + HALL_FAA;
	const uint64_t add = rng_range(&w->rng, 1, 1000);

	if (!(w->house->attr.caps & GN_CAP_ATOMIC_CPU))
		return;
	hall_cpu_added(w->s, w->house->hall, __atomic_fetch_add(word, add, __ATOMIC_SEQ_CST), add);
}

static void end_use(struct end *e)
{
	const struct plan_link *link = &e->s->plan.link[e->link];
	struct rng *rng = &e->worker->rng;

	if (!link->sloppy || rng_one_in(rng, 6))
		end_post_recvs(e, UINT32_MAX);
	if (e->broken && rng_one_in(rng, 3)) {
		end_close(e);
		return;
	}
	if (rng_one_in(rng, link->close_one_in)) {
		if (rng_one_in(rng, 2))
			end_sync(e);
		end_close(e);
		return;
	}
	if (link->hostile && rng_one_in(rng, 200))
		end_withdraw(e);
	switch (rng_below(rng, 16)) {
	case 0:
	case 1:
		end_bump(e);
		break;
	case 2:
	case 3:
		end_sample(e);
		break;
	case 4:
	case 5:
		cpu_adds(e->worker);
		break;
	case 6:
		if (!e->broken && rng_one_in(rng, 4))
			end_sync(e);
		break;
	default:
		end_post(e);
	}
}

static void end_step(struct end *e)
{
	if (e->ud && e->broken) {
		ud_close(e);
	} else if (e->ud) {
		end_post_recvs(e, UINT32_MAX);
		ud_post(e);
	} else if (e->link == UINT32_MAX) {
		ud_open(e); /* a new one in its place */
	} else if (e->state == END_UP) {
		end_use(e);
	} else if (e->state == END_IDLE && e->side == 0 && e->attempts < ATTEMPTS &&
		   rng_one_in(&e->worker->rng, 3)) {
		end_connect(e);
	}
}

static void lock(struct worker *w)
{
	if (w->house->plan->shared)
		gn_mutex_lock(&w->lock);
}

static void unlock(struct worker *w)
{
	if (w->house->plan->shared)
		gn_mutex_unlock(&w->lock);
}

/* Works with another's ends, as threads may that share a context. */
static void help(struct worker *w)
{
	struct house *house = w->house;
	struct worker *other = &house->worker[w == &house->worker[0]];
	struct end *e;

	if (!house->plan->shared || house->plan->n_workers < 2)
		return;
	lock(other);
	if (other->n_ends > 0 && other->listener && !other->finishing) {
		worker_poll(other);
		e = &other->end[rng_below(&w->rng, other->n_ends)];
		if (e->state == END_UP && !e->ud)
			end_post(e);
	}
	unlock(other);
}

/* Some microseconds of its own work, in which it meddles with what others do in its memory. */
static void interfere(struct worker *w)
{
	for (uint32_t n = rng_below(&w->rng, 16); n > 0; n--) {
		lock(w);
		for (unsigned i = 0; i < w->n_ends; i++)
			if (w->end[i].life)
				end_interfere(&w->end[i]);
		unlock(w);
		gn_charge(GN_WORK_NS, rng_below(&w->rng, 400));
	}
}

static void rest(struct worker *w)
{
	bool up = false;

	for (unsigned i = 0; i < w->n_ends; i++)
		up = up || w->end[i].state == END_UP;
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
		interfere(w);
		break;
	default:
		gn_charge(GN_WORK_NS, rng_below(&w->rng, 3000));
	}
}

static void work(struct worker *w)
{
	for (uint32_t step = 0; step < w->plan->steps; step++) {
		lock(w);
		take_events(w);
		worker_poll(w);
		if (w->n_ends > 0)
			end_step(&w->end[rng_below(&w->rng, w->n_ends)]);
		unlock(w);
		if (rng_one_in(&w->rng, 12))
			yard_play(w);
		if (rng_one_in(&w->rng, 8))
			help(w);
		rest(w);
	}
}

/* Clients leave, servers wait for them to; what is left then is closed. */
static void finish(struct worker *w)
{
	const uint64_t deadline = worker_now(w) + LINGER_US * 1000ull;
	bool any = true;

	lock(w);
	w->finishing = true;
	for (unsigned i = 0; i < w->n_ends; i++) {
		struct end *e = &w->end[i];

		if (!e->life || e->side == 1)
			continue;
		if (e->state == END_UP && !e->broken)
			end_sync(e);
		end_close(e);
	}
	while (any && worker_now(w) < deadline) {
		worker_wait(w, LINGER_US, true);
		take_events(w);
		worker_poll(w);
		any = false;
		for (unsigned i = 0; i < w->n_ends; i++) {
			struct end *e = &w->end[i];

			if (e->life && e->state == END_UP)
				end_post_recvs(e, UINT32_MAX);
			if (e->life && e->broken)
				end_close(e);
			any = any || e->life;
		}
	}
	for (unsigned i = 0; i < w->n_ends; i++) {
		if (w->end[i].life)
			end_close(&w->end[i]);
		if (w->end[i].ud)
			ud_close(&w->end[i]);
	}
	unlock(w);
}

/* ---- workers ---- */

static void make_ends(struct worker *w)
{
	const struct plan *plan = &w->s->plan;

	for (unsigned i = 0; i < plan->n_links; i++) {
		if (plan->link[i].client != w->index && plan->link[i].server != w->index)
			continue;
		w->end[w->n_ends++] = (struct end){
			.s = w->s,
			.worker = w,
			.link = i,
			.side = plan->link[i].server == w->index,
		};
	}
	if (w->plan->datagrams) {
		struct end *e = &w->end[w->n_ends++];

		*e = (struct end){.s = w->s, .worker = w, .link = UINT32_MAX};
		ud_open(e);
		if (!e->ud)
			w->n_ends--;
	}
}

static bool open_worker(struct worker *w)
{
	struct house *house = w->house;
	const unsigned flags = house->plan->shared ? GN_SHARED : 0;
	struct gn_cq_opts opts = {.depth = 64u * (LINKS_MAX + 1), .flags = flags};
	char addr[32];

	snprintf(addr, sizeof(addr), "sim:n%u:%u", house->plan->node, w->index + 1);
	w->ctx = house->ctx;
	if (!w->ctx && !got(w->s, gn_ctx_create(house->fabric, &w->ctx), "gn_ctx_create"))
		return false;
	if (!got(w->s, gn_chan_create(w->ctx, &w->chan), "gn_chan_create"))
		return false;
	opts.chan = w->chan;
	return got(w->s, gn_cq_create(w->ctx, &opts, &w->send_cq), "gn_cq_create") &&
	       got(w->s, gn_cq_create(w->ctx, &opts, &w->recv_cq), "gn_cq_create") &&
	       got(w->s, gn_listener_create(w->ctx, addr, w->chan, 0, &w->listener),
		   "gn_listener_create");
}

static void close_worker(struct worker *w)
{
	const bool own_ctx = w->ctx != w->house->ctx;
	struct gn_listener *listener = w->listener;

	w->listener = NULL;
	CHECK(w->s, gn_listener_destroy(listener) == 0, "gn_listener_destroy failed");
	CHECK(w->s, gn_cq_destroy(w->send_cq) == 0 && gn_cq_destroy(w->recv_cq) == 0,
	      "gn_cq_destroy failed");
	CHECK(w->s, gn_chan_destroy(w->chan) == 0, "gn_chan_destroy failed");
	CHECK(w->s, !own_ctx || gn_ctx_destroy(w->ctx) == 0, "gn_ctx_destroy failed");
}

static void run_worker(void *arg)
{
	struct worker *w = arg;

	lock(w);
	if (open_worker(w))
		make_ends(w);
	unlock(w);
	if (w->listener) {
		work(w);
		finish(w);
	}
	lock(w);
	close_worker(w);
	unlock(w);
}

static void init_worker(struct house *house, unsigned i)
{
	struct swarm *s = house->s;
	struct worker *w = &house->worker[i];
	const unsigned proc = (unsigned)(house->plan - s->plan.proc);

	w->s = s;
	w->house = house;
	w->index = house->plan->first_worker + i;
	w->plan = &s->plan.worker[w->index];
	w->rng.state = rng_mix(s->opts->seed * 64 + w->index) + s->runs[proc];
	gn_mutex_init(&w->lock);
}

static void run_workers(struct house *house)
{
	const unsigned n = house->plan->n_workers;

	for (unsigned i = 0; i < n; i++)
		init_worker(house, i);
	for (unsigned i = 1; i < n; i++)
		got(house->s,
		    gn_thread_start("worker", run_worker, &house->worker[i],
				    &house->worker[i].thread),
		    "gn_thread_start");
	run_worker(&house->worker[0]);
	for (unsigned i = 1; i < n; i++)
		if (house->worker[i].thread)
			CHECK(house->s, gn_thread_join(house->worker[i].thread) == 0,
			      "gn_thread_join failed");
	for (unsigned i = 0; i < n; i++)
		gn_mutex_fini(&house->worker[i].lock);
}

/* ---- the process ---- */

static bool open_house(struct house *house, const char *fabric)
{
	struct swarm *s = house->s;

	if (!got(s, gn_fabric_open(fabric, &house->fabric), "gn_fabric_open"))
		return false;
	CHECK(s, gn_fabric_query(house->fabric, &house->attr) == 0, "gn_fabric_query failed");
	CHECK(s, !(house->attr.caps & s->plan.caps_off), "capabilities %llx with %llx off",
	      (unsigned long long)house->attr.caps, (unsigned long long)s->plan.caps_off);
	if (house->plan->shared &&
	    !got(s, gn_ctx_create(house->fabric, &house->ctx), "gn_ctx_create"))
		return false;
	if (!got(s, gn_mem_alloc(house->fabric, HALL_SIZE, GN_REMOTE_ATOMIC, &house->hall_mem),
		 "gn_mem_alloc"))
		return false;
	house->hall = hall_create(s);
	return yard_open(house);
}

static void close_house(struct house *house)
{
	struct swarm *s = house->s;

	yard_close(house);
	if (house->hall)
		hall_close(s, house->hall, gn_mem_addr(house->hall_mem));
	CHECK(s, gn_mem_free(house->hall_mem) == 0, "gn_mem_free failed");
	CHECK(s, gn_ctx_destroy(house->ctx) == 0, "gn_ctx_destroy failed");
	CHECK(s, !house->fabric || gn_fabric_close(house->fabric) == 0, "gn_fabric_close failed");
}

/* The last run of this program was cut short: nobody answers for what it had. */
static void bury_last_run(struct swarm *s, unsigned proc)
{
	for (unsigned i = 0; i < s->n_uds; i++)
		if (s->plan.worker[s->ud[i].worker].proc == proc)
			s->ud[i].open = false;
}

int swarm_node(struct gn_env *env, int argc, char **argv)
{
	const struct swarm_arg *arg = env->arg;
	struct swarm *s = arg->s;
	struct house *house;

	(void)argc;
	(void)argv;
	if (s->result->failed || s->runs[arg->proc] == RUNS_MAX)
		return 0;
	if (s->runs[arg->proc]++ > 0) {
		CHECK(s, plan_ends_programs(s), "a program was started twice");
		s->result->restarts++;
		bury_last_run(s, arg->proc);
	}
	house = gn_alloc(sizeof(*house), 0);
	CHECK(s, house || s->no_memory, "gn_alloc gave nothing");
	if (!house)
		return 0;
	house->s = s;
	house->plan = &s->plan.proc[arg->proc];
	if (open_house(house, env->fabric))
		run_workers(house);
	close_house(house);
	gn_free(house);
	return 0;
}
