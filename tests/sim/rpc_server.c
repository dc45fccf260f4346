/* SPDX-License-Identifier: MIT */
/* The server of the test: executes, writes down that it did, answers now or later. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rpc.h"

#define ASIDE_MAX 512u
#define QUIET_NS  1000000000ull /* no client has done anything: they are gone */
#define FORGET_NS 3000000000ull /* then the server must know, too; an accept takes up to 2 s */
#define TICK_US	  100u
#define MEMORY_US 50u
#define SLOW_NS	  20000u
#define ATTEMPTS  200u

/* Requests that are put aside, and answered in another order by another thread. */
struct service {
	struct world *w;
	struct gn_rpc_server *server;
	struct gn_thread *answerer;
	struct gn_mutex lock;
	struct gn_rpc_request *aside[ASIDE_MAX];
	unsigned n_aside;
	bool stop;
	uint32_t peers;
};

/* ---- execution ---- */

/* Whose request it is, and that it is all there, and is here for the first time. */
static struct call *take(struct service *s, struct gn_rpc_request *request, uint64_t *number)
{
	struct world *w = s->w;
	uint32_t len, bad;
	const uint8_t *data = gn_rpc_request_data(request, &len);
	struct call *call;
	struct ask ask;

	if (len < sizeof(ask)) {
		world_fail(w, "a request of %u bytes", len);
		return NULL;
	}
	memcpy(&ask, data, sizeof(ask));
	if (ask.call >= w->n_calls || ask.len != len - sizeof(ask)) {
		world_fail(w, "a request that nobody made: call %llu, %u of %u bytes",
			   (unsigned long long)ask.call, ask.len, len);
		return NULL;
	}
	call = &w->call[ask.call];
	if (len != call->request_len || gn_rpc_request_method(request) != call->method)
		world_fail(w, "call %llu: %u bytes for method %u instead of %u for %u",
			   (unsigned long long)ask.call, len, gn_rpc_request_method(request),
			   call->request_len, call->method);
	if (!pattern_is(data + sizeof(ask), ask.len, ask.call, false, &bad))
		world_fail(w, "call %llu: byte %u of its request's %u is wrong",
			   (unsigned long long)ask.call, bad, ask.len);
	if (call->executed++)
		world_fail(w, "call %llu is executed twice", (unsigned long long)ask.call);
	w->executed++;
	*number = ask.call;
	return call;
}

static void answer(struct service *s, struct gn_rpc_request *request, uint64_t number)
{
	struct world *w = s->w;
	struct call *call = &w->call[number];
	uint32_t room, len = call->result_len;
	uint8_t *to = gn_rpc_request_room(request, &room);
	uint8_t mine[ROOM_MAX];

	if (len > room || gn_random() % 2)
		to = mine;
	pattern_fill(to, len, number, true);
	call->answered_ns = gn_sim_now_ns(w->sim);
	gn_rpc_answer(request, call->method == OWN ? OWN_STATUS : GN_RPC_OK, to, len);
}

static void handle(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;
	uint64_t number;
	const struct call *call = take(s, request, &number);

	if (!call) {
		gn_rpc_answer(request, GN_RPC_DENIED, NULL, 0);
		return;
	}
	if (call->method == SLOW)
		gn_charge(GN_WORK_NS, gn_random() % SLOW_NS);
	answer(s, request, number);
}

static void put_aside(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;
	bool full;

	gn_mutex_lock(&s->lock);
	full = s->n_aside == ASIDE_MAX;
	if (!full)
		s->aside[s->n_aside++] = request;
	gn_mutex_unlock(&s->lock);
	if (full)
		handle(request, arg);
}

static void answer_later(void *arg)
{
	struct service *s = arg;
	const uint32_t most = s->w->plan.defer_us;

	while (!s->stop) {
		struct gn_rpc_request *request = NULL;

		gn_mutex_lock(&s->lock);
		if (s->n_aside) {
			const unsigned i = (unsigned)(gn_random() % s->n_aside);

			request = s->aside[i];
			s->aside[i] = s->aside[--s->n_aside];
		}
		gn_mutex_unlock(&s->lock);
		if (request)
			handle(request, s);
		gn_sleep_us(s->n_aside ? gn_random() % most / (s->n_aside + 1) : 5);
	}
}

static void peer(void *arg, uint64_t client, bool came)
{
	struct service *s = arg;

	(void)client;
	if (!came && !s->peers)
		world_fail(s->w, "a client left that never came");
	s->peers += came ? 1 : -1u;
}

/* ---- a server's life ---- */

static int begin(struct service *s, struct gn_fabric *fabric)
{
	struct gn_rpc_server_opts opts = s->w->plan.server;
	int rc;

	opts.peer = peer;
	opts.peer_arg = s;
	rc = gn_rpc_server_create(fabric, ADDR, &opts, &s->server);
	for (unsigned method = NOW; !rc && method < NOBODY; method++)
		rc = gn_rpc_server_handle(s->server, method, method == LATER ? put_aside : handle,
					  s);
	if (!rc)
		rc = gn_rpc_server_start(s->server);
	if (!rc)
		rc = gn_thread_start("answerer", answer_later, s, &s->answerer);
	return rc;
}

static uint64_t clients_now(const struct service *s)
{
	struct gn_rpc_counters count;

	gn_rpc_server_counters(s->server, &count);
	return count.clients;
}

static bool all_over(const struct world *w)
{
	return w->clients_over == w->plan.n_clients ||
	       gn_sim_now_ns(w->sim) > w->active_ns + QUIET_NS;
}

/* Until it is to end, or nobody is left: and then it must know that nobody is. */
static void serve(struct service *s, uint32_t stop_us)
{
	struct world *w = s->w;
	uint64_t until;

	while (!all_over(w) && (!stop_us || gn_sim_now_ns(w->sim) < stop_us * 1000ull))
		gn_sleep_us(TICK_US);
	if (!all_over(w))
		return;
	until = gn_sim_now_ns(w->sim) + FORGET_NS;
	while (clients_now(s) && gn_sim_now_ns(w->sim) < until)
		gn_sleep_us(1000);
	if (clients_now(s))
		world_fail(w, "the server still has %llu clients, %llu ms after the last has gone",
			   (unsigned long long)clients_now(s), FORGET_NS / 1000000);
}

static void end(struct service *s)
{
	gn_rpc_server_destroy(s->server);
	s->stop = true;
	if (s->answerer)
		gn_thread_join(s->answerer);
	if (s->peers)
		world_fail(s->w, "%u clients came and never left", s->peers);
	gn_mutex_fini(&s->lock);
}

static int serve_once(struct world *w, struct gn_fabric *fabric, uint32_t stop_us)
{
	struct service s = {.w = w};
	int rc;

	gn_mutex_init(&s.lock);
	rc = begin(&s, fabric);
	if (!rc)
		serve(&s, stop_us);
	else if (rc != -ENOMEM || !w->plan.no_memory)
		world_fail(w, "no server: %s", gn_strerror(rc));
	end(&s);
	return rc;
}

int server_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	uint32_t stop_us = w->plan.stop_us;
	struct gn_fabric *fabric;
	int rc = -ENOMEM;

	(void)argc;
	(void)argv;
	for (unsigned i = 0; rc && i < ATTEMPTS; i++) {
		rc = gn_fabric_open(env->fabric, &fabric);
		if (rc)
			gn_sleep_us(MEMORY_US);
	}
	if (rc)
		return w->plan.no_memory ? 0 : 1;
	for (unsigned i = 0; i < ATTEMPTS && !all_over(w); i++) {
		rc = serve_once(w, fabric, stop_us);
		if (!rc)
			stop_us = 0;
		gn_sleep_us(MEMORY_US);
	}
	rc = gn_fabric_close(fabric);
	if (rc)
		world_fail(w, "the server's fabric cannot be closed: %s", gn_strerror(rc));
	return 0;
}
