/* SPDX-License-Identifier: MIT */
/*
 * The responder of the test: executes requests and records the executions, changes the memory that
 * READs see, ends and starts again.
 */
#include <errno.h>

#include "sim_msg.h"

#define ATTEMPTS   300u
#define TICK_US	   100u
#define MEMORY_US  1000u /* until there may be some again */
#define DOWN_US	   1000u
#define CHUNK	   64u
#define SILENCE_NS 4000000000ull /* longer than a node of a run that heals is down */
#define FORGET_NS  5000000000ull /* until it knows that all requesters have left */

struct service {
	struct world *w;
	struct gn_msg_responder *responder;
	struct gn_mem *data;
	uint32_t next;	  /* word to be changed */
	uint64_t version; /* … from the first word on */
};

static int answer(void *arg, const void *data, uint32_t len, void *value, uint32_t max)
{
	const struct service *s = arg;
	struct world *w = s->w;
	struct request *request;
	uint32_t number, bad;

	if (len < sizeof(number)) {
		world_fail(w, "a request of %u bytes", len);
		return -EINVAL;
	}
	memcpy(&number, data, sizeof(number));
	if (number >= w->n_requests) {
		world_fail(w, "request %u was never sent", number);
		return -EINVAL;
	}
	request = &w->requests[number];
	world_log(w, "executes %u", number);
	if (request->executed++)
		world_fail(w, "request %u is executed %u times", number, request->executed);
	if (request->protocol == GN_MSG_READ || request->len != len)
		world_fail(w, "request %u has %u bytes instead of %u", number, len, request->len);
	else if (!pattern_is((const uint8_t *)data + sizeof(number), len - (uint32_t)sizeof(number),
			     number, false, &bad))
		world_fail(w, "request %u of %u bytes is wrong from %u on", number, len, bad);
	if (request->value_len > max)
		world_fail(w, "request %u: the buffer has %u of %u bytes", number, max,
			   request->value_len);
	w->sums.executed++;
	if (request->refuse || request->value_len > max)
		return -EACCES;
	pattern_fill(value, request->value_len, number, true);
	return (int)request->value_len;
}

/* A round over all words at a time: those of the last round are all at least as new. */
static void change(struct service *s)
{
	uint64_t *word = gn_mem_addr(s->data);

	for (uint32_t i = 0; i < CHUNK; i++, s->next++)
		__atomic_store_n(&word[s->next], data_word(s->version, s->next), __ATOMIC_RELAXED);
	if (s->next < DATA_WORDS)
		return;
	s->next = 0;
	s->w->version = s->version++;
}

/* All have returned, or crashed permanently. */
static bool all_over(const struct world *w)
{
	return seeds_over(&w->run, w->plan.n_requesters, SILENCE_NS);
}

static void pass(struct service *s)
{
	const struct plan *plan = &s->w->plan;
	const int rc = gn_msg_respond(s->responder, gn_deadline_us(gn_random() % TICK_US));

	if (rc < 0)
		world_fail(s->w, "the responder cannot go on: %s", gn_strerror(rc));
	change(s);
	if (gn_random() % 1000 < plan->pauses)
		gn_sleep_us(1 + gn_random() % plan->pause_us);
}

/* Until it must end, or all requesters have ended: then it must know this. */
static void serve(struct service *s, uint32_t stop_us)
{
	struct world *w = s->w;
	uint64_t until;

	while (!all_over(w) && !*w->run.failure &&
	       (!stop_us || gn_sim_now_ns(w->run.sim) < stop_us * 1000ull))
		pass(s);
	if (!all_over(w))
		return;
	until = gn_sim_now_ns(w->run.sim) + FORGET_NS;
	while (gn_msg_responder_conns(s->responder) && gn_sim_now_ns(w->run.sim) < until)
		pass(s);
	if (gn_msg_responder_conns(s->responder))
		world_fail(w, "the responder still has %u connections, %llu ms after the last left",
			   gn_msg_responder_conns(s->responder), FORGET_NS / 1000000);
}

static int begin(struct service *s, struct gn_fabric *fabric)
{
	struct gn_msg_responder_opts opts = s->w->plan.responder;
	int rc = gn_mem_alloc(fabric, DATA_WORDS * sizeof(uint64_t), GN_REMOTE_READ, &s->data);

	if (rc)
		return rc;
	s->version = s->w->version + 1;
	do
		change(s);
	while (s->next);
	opts.size = sizeof(opts);
	opts.answer = answer;
	opts.arg = s;
	opts.data = s->data;
	return gn_msg_responder_create(fabric, ADDR, &opts, &s->responder);
}

static int serve_once(struct world *w, struct gn_fabric *fabric, uint32_t stop_us)
{
	struct service s = {.w = w};
	struct gn_msg_stats stats = {.size = sizeof(stats)};
	int rc = begin(&s, fabric);

	world_log(w, "the responder begins: %s", gn_strerror(rc));
	if (!rc) {
		serve(&s, stop_us);
		gn_msg_responder_stats(s.responder, &stats);
		w->sums.strays += stats.strays;
		w->sums.repeats += stats.repeats;
	} else if (rc != -ENOMEM || !w->plan.cluster.no_memory) {
		world_fail(w, "no responder: %s", gn_strerror(rc));
	}
	gn_msg_responder_destroy(s.responder);
	rc = gn_mem_free(s.data) ? -EBUSY : rc;
	if (rc == -EBUSY)
		world_fail(w, "the data is still in use");
	world_log(w, "the responder has ended");
	return rc;
}

int responder_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	uint32_t stop_us = w->plan.stop_us;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	rc = seeds_fabric_open(env, ATTEMPTS, MEMORY_US, &fabric);
	if (rc)
		return w->plan.cluster.no_memory ? 0 : 1;
	for (unsigned i = 0; i < ATTEMPTS && !all_over(w) && !*w->run.failure; i++) {
		rc = serve_once(w, fabric, stop_us);
		gn_sleep_us(rc ? MEMORY_US : gn_random() % DOWN_US);
		w->sums.restarts += i && !rc;
		if (!rc)
			stop_us = 0;
	}
	seeds_fabric_close(&w->run, fabric, "the responder");
	return 0;
}
