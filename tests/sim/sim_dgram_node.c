/* SPDX-License-Identifier: MIT */
/*
 * A process: a node with its handlers and threads. Handlers record each execution and check that the
 * request is whole, was made, came to the right endpoint and is executed for the first time.
 */
#include <errno.h>
#include <stdio.h>

#include "sim_dgram.h"

#define ATTEMPTS  200u
#define MEMORY_US 1000u
#define DOWN_US	  1000u
#define CALM_NS	  4500000000ull /* faults of nodes that have begun are over */
#define LIVES_MAX 60u		/* with many crashes a process gives up */

/* ---- handlers ---- */

static struct thread *thread_of(struct node *node, const struct gn_dgram_request *request)
{
	for (unsigned i = 0; i < node->w->plan.n_threads; i++)
		if (node->threads[i].endpoint == request->endpoint)
			return &node->threads[i];
	world_fail(node->w, "a request of no endpoint");
	return &node->threads[0];
}

static void check_caller(const struct thread *t, const struct call *call, uint32_t number,
			 const struct gn_dgram_request *request)
{
	struct world *w = t->node->w;
	const char *from = gn_dgram_peer_addr(request->peer);
	char addr[32] = "";

	if (!w->plan.silent[call->node])
		snprintf(addr, sizeof(addr), "sim:n%u:%u", call->node, DG_PORT);
	if (call->to_node != t->node->index || call->to_thread != t->index)
		world_fail(w, "call %u to n%u.%u is executed by n%u.%u", number, call->to_node,
			   call->to_thread, t->node->index, t->index);
	/* A fault may have met the verification of the address: then there is none. */
	if (gn_dgram_peer_thread(request->peer) != call->thread ||
	    (strcmp(from, addr) && (*from || w->plan.faultless)))
		world_fail(w, "call %u comes from %s thread %u", number, from,
			   gn_dgram_peer_thread(request->peer));
}

/* The call that is executed; NULL: there is none, and the test has failed. */
static struct call *execute(struct thread *t, const struct gn_dgram_request *request,
			    uint32_t *number)
{
	struct world *w = t->node->w;
	struct call *call;
	uint32_t bad;

	if (request->len < DG_HEAD || (uintptr_t)request->data % 8) {
		world_fail(w, "a request of %u bytes at %p", request->len, request->data);
		return NULL;
	}
	memcpy(number, request->data, DG_HEAD);
	if (*number >= w->n_calls) {
		world_fail(w, "call %u was never made", *number);
		return NULL;
	}
	call = &w->calls[*number];
	world_log(w, "executes %u", *number);
	if (call->executed++)
		world_fail(w, "call %u is executed %u times", *number, call->executed);
	call->executed_by = t->node->life;
	if (call->len != request->len || call->method != request->method)
		world_fail(w, "call %u has %u bytes and method %u instead of %u and %u", *number,
			   request->len, request->method, call->len, call->method);
	else if (!pattern_is((const uint8_t *)request->data + DG_HEAD, request->len - DG_HEAD,
			     *number, false, &bad))
		world_fail(w, "call %u of %u bytes is wrong from %u on", *number, request->len,
			   bad);
	check_caller(t, call, *number, request);
	w->sums.executed++;
	return call;
}

static unsigned answer(struct gn_dgram_request *request, const struct call *call, uint32_t number)
{
	if (call->refuse)
		return call->refuse;
	if (call->value_len > request->room || gn_random() % 16 == 0) {
		void *room = gn_dgram_result(request, call->value_len);

		if (!room)
			return GN_RPC_BUSY;
	}
	pattern_fill(request->result, call->value_len, number, true);
	request->result_len = call->value_len;
	return GN_RPC_OK;
}

/* What a handler that is not in a worker may not do. */
static void misuse(struct thread *t, const struct gn_dgram_request *request)
{
	struct gn_dgram_op op = {.peer = request->peer};

	if (gn_random() % 64)
		return;
	if (gn_dgram_call(&op) != -EDEADLK || gn_dgram_poll(t->endpoint) != -EDEADLK ||
	    gn_dgram_endpoint_destroy(t->endpoint) != -EDEADLK)
		world_fail(t->node->w, "a handler may call, poll or destroy");
}

static unsigned handle_inline(void *arg, struct gn_dgram_request *request)
{
	struct thread *t = thread_of(arg, request);
	uint32_t number;
	const struct call *call = execute(t, request, &number);

	misuse(t, request);
	if (t->node->index == 1)
		gn_charge(GN_WORK_NS, t->node->w->plan.work_us * 1000ull);
	return call ? answer(request, call, number) : (unsigned)GN_RPC_FAILED;
}

static unsigned handle_in_worker(void *arg, struct gn_dgram_request *request)
{
	struct thread *t = thread_of(arg, request);
	uint32_t number;
	const struct call *call = execute(t, request, &number);

	for (uint64_t n = gn_random() % 4; n; n--)
		gn_dgram_yield(t->endpoint);
	return call ? answer(request, call, number) : (unsigned)GN_RPC_FAILED;
}

static unsigned handle_nested(void *arg, struct gn_dgram_request *request)
{
	struct thread *t = thread_of(arg, request);
	const struct wish wish = {
		.node = -1, .thread = -1, .method = DG_INLINE, .small = true, .nested = true};
	uint32_t number;
	const struct call *call = execute(t, request, &number);
	struct job *job = job_create(t, 1, &wish);

	t->handlers++;
	if (job)
		job_run(job);
	t->handlers--;
	return call ? answer(request, call, number) : (unsigned)GN_RPC_FAILED;
}

static unsigned handle_empty(void *arg, struct gn_dgram_request *request)
{
	struct node *node = arg;

	if (request->len)
		world_fail(node->w, "an empty request has %u bytes", request->len);
	node->w->empty_executed++;
	return GN_RPC_OK;
}

static void prefetch(void *arg, const void *data, uint32_t len)
{
	struct node *node = arg;

	(void)data, (void)len;
	node->w->sums.prefetched++;
}

int handlers_register(struct node *node)
{
	int rc = gn_dgram_handle(node->node, DG_INLINE, handle_inline, prefetch, node, 0);

	if (!rc)
		rc = gn_dgram_handle(node->node, DG_IN_WORKER, handle_in_worker, NULL, node,
				     GN_DGRAM_IN_WORKER);
	if (!rc)
		rc = gn_dgram_handle(node->node, DG_NESTED, handle_nested, prefetch, node,
				     GN_DGRAM_IN_WORKER);
	if (!rc)
		rc = gn_dgram_handle(node->node, DG_EMPTY, handle_empty, NULL, node, 0);
	return rc;
}

/* ---- a life ---- */

static int node_create(struct node *node)
{
	struct world *w = node->w;
	struct gn_dgram_opts opts = w->plan.opts[node->index];
	char addr[32];
	int rc;

	opts.size = sizeof(opts);
	snprintf(addr, sizeof(addr), "sim:n%u:%u", node->index, DG_PORT);
	node->threads = gn_alloc(w->plan.n_threads * sizeof(*node->threads), 0);
	if (!node->threads)
		return -ENOMEM;
	rc = gn_dgram_node_create(node->fabric, w->plan.silent[node->index] ? NULL : addr, &opts,
				  &node->node);
	if (!rc) {
		rc = handlers_register(node);
		if (rc)
			gn_dgram_node_destroy(node->node);
	}
	if (rc)
		gn_free(node->threads);
	return rc;
}

static int node_threads(struct node *node)
{
	const unsigned n = node->w->plan.n_threads;
	unsigned started = 0;
	int rc = 0;

	for (; started < n && !rc; started += !rc) {
		struct thread *t = &node->threads[started];

		t->node = node;
		t->index = started;
		rc = gn_thread_start("dgram-user", dgram_thread_main, t, &t->os);
		if (rc)
			node->ending = true;
	}
	for (unsigned i = 0; i < started; i++) {
		gn_thread_join(node->threads[i].os);
		if (node->threads[i].rc)
			rc = node->threads[i].rc;
	}
	return rc;
}

static void node_count(struct node *node)
{
	struct gn_dgram_node_stats stats = {.size = sizeof(stats)};

	if (gn_dgram_node_stats_read(node->node, &stats))
		world_fail(node->w, "no statistics of a node");
	node->w->sums.checks += stats.checks;
}

/* 0: it came to its end, or is to restart. */
static int node_live(struct node *node)
{
	struct world *w = node->w;
	int rc = node_create(node), end;

	world_log(w, "n%u begins life %u: %s", node->index, node->life, gn_strerror(rc));
	if (rc)
		return rc;
	rc = node_threads(node);
	node_count(node);
	end = gn_dgram_node_destroy(node->node);
	if (end)
		world_fail(w, "a node cannot be destroyed: %s", gn_strerror(end));
	gn_free(node->threads);
	world_log(w, "n%u has ended: %s", node->index, gn_strerror(rc));
	return rc;
}

static bool all_over(const struct world *w)
{
	for (unsigned i = 0; i < w->plan.n_nodes; i++)
		for (unsigned k = 0; k < w->plan.n_threads; k++)
			if (w->nodes[i].phase[k] != PHASE_OVER)
				return false;
	return true;
}

static void check_drops(struct node *node)
{
	struct gn_counters counters = {.size = sizeof(counters)};

	gn_fabric_counters(node->fabric, &counters);
	if (node->w->plan.faultless && node->w->nodes[node->index].lives == 1 && counters.drops)
		world_fail(node->w, "%llu datagrams found no receive",
			   (unsigned long long)counters.drops);
}

int dgram_node_main(struct gn_env *env, int argc, char **argv)
{
	const struct node_arg *arg = env->arg;
	struct world *w = arg->w;
	struct node_world *nw = &w->nodes[arg->index];
	struct gn_fabric *fabric;
	unsigned attempts = 0;
	int rc;

	(void)argc, (void)argv;
	if (seeds_fabric_open(env, ATTEMPTS, MEMORY_US, &fabric))
		return w->plan.cluster.no_memory ? 0 : 1;
	do {
		struct node node = {.w = w, .index = arg->index, .fabric = fabric};

		memset(nw->phase, 0, sizeof(nw->phase));
		node.life = ++nw->lives;
		w->sums.lives += node.life > 1;
		rc = node_live(&node);
		if (rc && rc != -EAGAIN && !(rc == -ENOMEM && w->plan.cluster.no_memory))
			world_fail(w, "n%u: %s", node.index, gn_strerror(rc));
		if (!rc)
			check_drops(&node);
		if (rc)
			gn_sleep_us(MEMORY_US + gn_random() % DOWN_US);
	} while (rc && attempts++ < LIVES_MAX && !*w->run.failure);
	if (rc && !*w->run.failure)
		world_fail(w, "n%u never comes to its end", arg->index);
	if (!*w->run.failure)
		seeds_fabric_close(&w->run, fabric, "a node");
	return 0;
}

/* ---- the conductor ---- */

int dgram_conductor_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	const uint64_t heal_ns = w->plan.heal_us * 1000ull;

	(void)argc, (void)argv;
	while (gn_sim_now_ns(w->run.sim) < heal_ns)
		gn_sleep_us((heal_ns - gn_sim_now_ns(w->run.sim)) / 1000 + 1);
	cluster_heal(w->run.sim);
	if (!w->plan.faultless)
		gn_sleep_us(CALM_NS / 1000);
	w->calm = true;
	w->calm_ns = gn_sim_now_ns(w->run.sim);
	world_log(w, "the faults are over");
	while (!all_over(w) && !*w->run.failure)
		gn_sleep_us(CALM_NS / 1000000);
	return 0;
}
