/* SPDX-License-Identifier: MIT */
/*
 * A program with a pager: a volume, the handler, which does what the handler of userfaultfd does,
 * and threads.
 */
#include "sim_pager.h"

#define LIVES_MAX   6u
#define CREATES_MAX 300u
#define CREATE_US   200000u
#define MEMORY_US   1000u
#define WAIT_US	    50u
#define REPAIR_US   20000000u
#define NOTICE_US   200000u
#define LOOK_US	    500u
#define END_NS	    200000000000ull
#define DETECT_US   60000u /* the volume's own, if the plan has none */
#define GO_ON_US    100000u

bool may_lose(const struct world *w)
{
	return w->plan.tight || w->plan.refuse_one_in ||
	       (!w->plan.careful && (*w->plan.cluster.faults || w->plan.events));
}

/*
 * If one donor fails at a time, its loss is detected, and 100 ms later everything goes on. A touch
 * may come just before, and wait for a command that does, too.
 */
void client_ended(struct client *c, uint64_t start_ns, const char *what)
{
	struct world *w = c->w;
	const uint64_t us = (gn_now_ns() - start_ns) / 1000;

	w->sums.longest_us = us > w->sums.longest_us ? us : w->sums.longest_us;
	if (w->plan.careful && !*w->run.failure &&
	    us > (w->plan.detect_us ? w->plan.detect_us : DETECT_US) + GO_ON_US)
		world_fail(w, "%s took %llu us", what, (unsigned long long)us);
}

/* ---- the kernel ---- */

/* Other threads run between any two pages of a call. */
static void kernel_step(struct pager_model *m)
{
	const struct world *w = (const struct world *)(const void *)((const char *)m -
								     offsetof(struct world, model));

	if (gn_random() % w->plan.step_one_in == 0)
		gn_sleep_us(gn_random() % w->plan.step_us);
}

/* It has no memory for page tables, for example. */
static bool kernel_refuse(struct pager_model *m)
{
	const struct world *w = (const struct world *)(const void *)((const char *)m -
								     offsetof(struct world, model));

	return w->plan.refuse_one_in && gn_random() % w->plan.refuse_one_in == 0;
}

/* A fault that is not read yet disappears with its thread's sleep, unless it is just being read. */
static void kernel_wake(struct pager_model *m, uint64_t page, uint64_t n)
{
	struct world *w = (struct world *)(void *)((char *)m - offsetof(struct world, model));
	struct client *c = w->client;

	for (unsigned i = 0; i <= THREADS_MAX; i++) {
		struct sleeper *s = &c->sleepers[i];

		if (!s->waits || s->page < page || s->page >= page + n)
			continue;
		s->waits = false;
		for (unsigned e = 0; e < c->n_events && gn_random() % 2; e++)
			if (c->events[e].thread == i) {
				memmove(&c->events[e], &c->events[e + 1],
					(--c->n_events - e) * sizeof(c->events[0]));
				break;
			}
	}
	gn_cond_broadcast(&c->threads_cond);
}

/* ---- commands ---- */

int client_command(struct client *c, unsigned command, uint64_t *page, uint64_t n)
{
	struct request request = {.next = c->requests, .command = command, .page = *page, .n = n};
	const uint64_t start_ns = gn_now_ns();

	c->requests = &request;
	gn_cond_signal(&c->handler_cond);
	gn_mutex_lock(&c->lock);
	while (!request.done && !*c->w->run.failure)
		gn_cond_wait(&c->threads_cond, &c->lock, GN_FOREVER, "a command");
	gn_mutex_unlock(&c->lock);
	client_ended(c, start_ns, "a command");
	*page = request.page;
	return request.done ? request.status : -ECANCELED;
}

static void handler_command(struct client *c, struct request *request)
{
	struct world *w = c->w;

	switch (request->command) {
	case COMMAND_MAP:
		request->status = pager_core_map(c->core, request->n, &request->page);
		break;
	case COMMAND_UNMAP:
		request->status = pager_core_unmap(c->core, request->page, request->n);
		for (uint64_t p = request->page; p < request->page + request->n; p++) {
			if (w->pte[p] & (PTE_FILE | PTE_PRESENT) && !request->status)
				world_fail(w, "page %llu is unmapped, and there",
					   (unsigned long long)p);
			w->pte[p] &= PTE_FILE | PTE_PRESENT; /* no markers are left */
		}
		break;
	default:
		request->status = pager_core_advise(c->core, request->page, request->n,
						    (enum gn_pager_advice)request->command);
	}
	w->sums.commands[request->command] += !request->status;
	request->done = true;
	gn_cond_broadcast(&c->threads_cond);
}

/* ---- the handler ---- */

/* The volume has lost something, or something else explains the loss of a page. */
static bool has_lost(struct client *c)
{
	const struct plan *plan = &c->w->plan;
	struct gn_vol_stats s = {.size = sizeof(s)};

	return plan->tight || c->w->model.refused || plan->cluster.no_memory ||
	       (!gn_vol_query(c->vol, &s) && s.copies_lost);
}

static void handler_check(struct client *c)
{
	struct world *w = c->w;
	struct gn_pager_stats s = {.size = sizeof(s)};

	if (*w->model.failure)
		world_fail(w, "%s", w->model.failure);
	pager_core_query(c->core, &s);
	if (s.resident < w->model.in_file || s.resident > w->plan.local)
		world_fail(w, "%llu pages are resident, the file has %llu of %llu",
			   (unsigned long long)s.resident, (unsigned long long)w->model.in_file,
			   (unsigned long long)w->plan.local);
	if (s.cached > s.resident || s.pinned > w->plan.local / 2 ||
	    s.prefetch_used + s.prefetch_wasted > s.prefetched)
		world_fail(w, "the statistics contradict themselves");
	if (s.lost && (!may_lose(w) || !has_lost(c)))
		world_fail(w, "a page is lost without a reason");
}

static void handler_events(void *arg)
{
	struct client *c = arg;

	while (c->n_events && !*c->w->run.failure) {
		const uint64_t page = c->events[0].page, thread = c->events[0].thread;
		const bool writes = c->events[0].writes;

		memmove(&c->events[0], &c->events[1], --c->n_events * sizeof(c->events[0]));
		c->w->sums.stale += (c->w->pte[page] & PTE_PRESENT) != 0;
		pager_core_fault(c->core, page, thread, writes);
	}
}

static void stats_add(struct world *w, const struct pager_core *core)
{
	struct gn_pager_stats s = {.size = sizeof(s)};
	uint64_t *to = (uint64_t *)(void *)&w->sums.pager;
	const uint64_t *from = (const uint64_t *)(const void *)&s;

	pager_core_query(core, &s);
	for (size_t i = 1; i < sizeof(s) / sizeof(*from); i++)
		to[i] += from[i];
}

static bool handler_idle(const struct client *c)
{
	return !c->n_events && !c->requests && !c->end && !*c->w->run.failure;
}

static void handler_main(void *arg)
{
	struct client *c = arg;
	struct world *w = c->w;

	while (!c->end && !*w->run.failure && gn_sim_now_ns(w->run.sim) < END_NS) {
		struct request *request = c->requests;

		handler_events(c);
		if (request && request == c->requests) {
			c->requests = request->next;
			handler_command(c, request);
		}
		handler_check(c);
		if (pager_core_work(c->core) || !handler_idle(c))
			continue;
		if (pager_core_busy(c->core)) {
			pager_core_wait(c->core, gn_deadline_us(WAIT_US));
			continue;
		}
		gn_mutex_lock(&c->lock);
		while (handler_idle(c))
			gn_cond_wait(&c->handler_cond, &c->lock, GN_FOREVER, "faults");
		gn_mutex_unlock(&c->lock);
	}
	gn_cond_broadcast(&c->threads_cond);
	stats_add(w, c->core);
	w->sums.refused += w->model.refused;
	if (!*w->run.failure)
		pager_core_destroy(c->core); /* its queue belongs to this thread */
}

/* ---- donors that fail, one after the other if the plan is careful ---- */

static bool is_whole(struct client *c)
{
	struct gn_vol_stats s = {.size = sizeof(s)};

	return !gn_vol_wait_repaired(c->vol, gn_deadline_us(REPAIR_US)) &&
	       !gn_vol_query(c->vol, &s) && s.with_copies[s.copies] == s.extents - s.unused;
}

static void events_main(void *arg)
{
	struct client *c = arg;
	struct world *w = c->w;

	for (unsigned i = 0; i < w->plan.events && !c->end && !*w->run.failure; i++) {
		const uint32_t us = 100 + (uint32_t)gn_random() % 30000;
		char fault[64];

		gn_sleep_us(gn_random() % w->plan.event_us);
		snprintf(fault, sizeof(fault), "%s@0us+%uus:n%u",
			 gn_random() % 2 ? "kill" : "crash", us,
			 (unsigned)gn_random() % w->plan.n_donors);
		world_log(w, "event: %s", fault);
		if (gn_sim_inject(w->run.sim, fault))
			world_fail(w, "no fault %s", fault);
		w->sums.events++;
		if (w->plan.careful)
			gn_sleep_us(us + w->plan.detect_us + NOTICE_US);
		if (w->plan.careful && !is_whole(c))
			world_fail(w, "the volume does not repair itself");
	}
}

/* ---- life ---- */

static int client_volume(struct client *c)
{
	const struct plan *plan = &c->w->plan;
	char addr[DONORS_MAX][32];
	const char *donors[DONORS_MAX];
	struct gn_io_opts io = plan->io;
	const struct gn_vol_opts opts = {
		.size = sizeof(opts),
		.bytes = plan->pages * GN_PAGER_PAGE,
		.donors = donors,
		.n_donors = plan->n_donors,
		.copies = plan->copies,
		.verify = plan->verify,
		.headroom = plan->headroom,
		.detect_us = plan->detect_us,
		.lost_us = plan->lost_us,
		.io = &io,
		.timeout_us = CREATE_US,
	};
	int rc = -EAGAIN;

	io.size = sizeof(io);
	for (unsigned i = 0; i < plan->n_donors; i++) {
		snprintf(addr[i], sizeof(addr[i]), "sim:n%u:9", i);
		donors[i] = addr[i];
	}
	for (unsigned i = 0; rc && i < CREATES_MAX && !*c->w->run.failure; i++) {
		rc = gn_vol_create(c->fabric, &opts, &c->vol);
		c->w->active_ns = gn_sim_now_ns(c->w->run.sim);
		if (rc == -EINVAL)
			world_fail(c->w, "no volume: %s", gn_error());
		if (rc)
			gn_sleep_us(MEMORY_US * (1 + gn_random() % 20));
	}
	return rc;
}

static int client_core(struct client *c)
{
	struct world *w = c->w;
	const struct pager_core_opts opts = {
		.pages = w->plan.pages,
		.local = w->plan.local,
		.window = w->plan.window,
		.faults = handler_events,
		.faults_arg = c};
	int rc = -EAGAIN;

	w->model = (struct pager_model){.pages = w->plan.pages,
					.local = w->plan.local,
					.pte = w->pte,
					.file = w->file,
					.step = kernel_step,
					.wake = kernel_wake,
					.refuse = kernel_refuse};
	memset(w->pte, 0, sizeof(w->pte));
	memset(w->version, 0, sizeof(w->version));
	memset(w->lost, 0, sizeof(w->lost));
	w->client = c;
	for (unsigned i = 0; rc && i < CREATES_MAX; i++) {
		rc = pager_core_create(c->vol, &opts, &model_ops, &w->model, &c->core);
		if (rc && !w->plan.cluster.no_memory)
			world_fail(w, "no pager: %s", gn_strerror(rc));
		w->sums.no_memory += rc != 0;
		if (rc)
			gn_sleep_us(MEMORY_US);
	}
	return rc;
}

/* Each thread ends its own mapping; then all pages that they share are checked. */
static void client_threads(struct client *c)
{
	struct world *w = c->w;
	struct thread threads[THREADS_MAX + 1];
	struct gn_thread *joins[THREADS_MAX];
	unsigned n = 0;

	while (n < w->plan.n_threads) {
		threads[n] = (struct thread){.c = c, .index = n};
		if (gn_thread_start("program", thread_main, &threads[n], &joins[n]))
			break;
		n++;
	}
	for (unsigned i = 0; i < n; i++)
		gn_thread_join(joins[i]);
	threads[THREADS_MAX] = (struct thread){.c = c, .index = THREADS_MAX};
	for (uint64_t p = 0; p < w->plan.shared && !*w->run.failure; p++)
		thread_touch(&threads[THREADS_MAX], c->shared + p, false);
}

static void client_use(struct client *c)
{
	struct world *w = c->w;
	struct gn_thread *handler, *events = NULL;
	uint64_t n;

	gn_mutex_init(&c->lock);
	gn_cond_init(&c->handler_cond);
	gn_cond_init(&c->threads_cond);
	n = w->plan.shared;
	if (gn_thread_start("handler", handler_main, c, &handler)) {
		pager_core_destroy(c->core);
	} else {
		if (w->plan.events && gn_thread_start("events", events_main, c, &events))
			events = NULL;
		if (client_command(c, COMMAND_MAP, &c->shared, n) && !*w->run.failure)
			world_fail(w, "the first map failed");
		client_threads(c);
		if (events)
			gn_thread_join(events);
		c->end = true;
		gn_cond_broadcast(&c->handler_cond);
		gn_thread_join(handler);
		w->sums.ended += !*w->run.failure;
	}
	gn_cond_fini(&c->threads_cond);
	gn_cond_fini(&c->handler_cond);
	gn_mutex_fini(&c->lock);
}

static void client_run(struct client *c)
{
	struct world *w = c->w;
	int rc;

	if (client_volume(c)) {
		if (!*w->plan.cluster.faults)
			world_fail(w, "no volume: %s", gn_error());
		return;
	}
	if (!client_core(c)) {
		w->sums.created++;
		client_use(c);
	}
	rc = *w->run.failure ? 0 : gn_vol_destroy(c->vol);
	if (rc)
		world_fail(w, "the volume cannot be destroyed: %s", gn_error());
}

int client_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	struct client c = {.w = w};

	(void)argc, (void)argv;
	if (w->lives++ < LIVES_MAX && !seeds_fabric_open(env, 100, MEMORY_US, &c.fabric)) {
		client_run(&c);
		if (!*w->run.failure)
			seeds_fabric_close(&w->run, c.fabric, "the program");
	}
	w->over = true;
	return 0;
}
