/* SPDX-License-Identifier: MIT */
/*
 * A responder: answers requests until all requesters have left. The first is also the limit's other
 * side.
 */
#include <errno.h>

#include "msg_load.h"
#include "procs.h"

#define IDLE_US 50u   /* processes: others on this core run at once then */
#define SIM_US	1000u /* simulated: how often a responder looks whether it is needed */

struct msg_responder {
	struct load_proc *proc;
	struct msg_run *run;
	uint32_t number, keys;
	struct gn_mem *data;
	struct gn_msg_responder *msg;
};

/* The response to a key is its value. */
static int responder_answer(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	const struct msg_responder *s = arg;
	const struct bench_msg_opts *o = &s->run->opts;
	const uint32_t key = request_get(request, len);

	if (unlikely(key >= s->keys || len != o->request_bytes || max < o->value_bytes))
		return -1;
	memcpy(value, (uint8_t *)gn_mem_addr(s->data) + key * value_stride(o), o->value_bytes);
	return (int)o->value_bytes;
}

static int make_data(struct msg_responder *s)
{
	const struct bench_msg_opts *o = &s->run->opts;
	const bool slots = o->load.profile && o->protocol == GN_MSG_READ;
	const uint64_t bytes = slots ? read_slots_bytes(o) * msg_resp_conns(o) :
				       s->keys * value_stride(o);
	const unsigned rights = o->protocol == GN_MSG_READ || !o->load.profile ? GN_REMOTE_READ : 0;
	const int rc = gn_mem_alloc(s->proc->fabric, bytes, rights, &s->data);

	for (uint32_t key = 0; !rc && !slots && key < s->keys; key++)
		pattern_fill((uint8_t *)gn_mem_addr(s->data) + key * value_stride(o),
			     o->value_bytes, value_seed(o, s->number, key));
	return rc;
}

static int msg_listen_at(void *arg, const char *addr)
{
	struct msg_responder *s = arg;
	const struct bench_msg_opts *o = &s->run->opts;
	const bool reads = o->protocol == GN_MSG_READ || !o->load.profile;
	const struct gn_msg_responder_opts opts = {
		.size = sizeof(opts),
		.answer = responder_answer,
		.arg = s,
		.data = reads ? s->data : NULL,
		.ctx = s->proc->ctx,
		.max_conns = o->load.profile ? msg_resp_conns(o) : bench_msg_requesters(o),
		.max_pending = o->pending,
		.max_request = o->request_bytes,
		.max_value = o->value_bytes,
		.flags = o->load.paper ? GN_MSG_PAPER : 0,
	};

	return gn_msg_responder_create(s->proc->fabric, addr, &opts, &s->msg);
}

/* Responds until there is nothing for a while. */
static int respond_some(struct msg_responder *s)
{
	const struct msg_run *run = s->run;
	uint64_t end_ns = GN_NO_WAIT;
	int n;

	if (run->load.simulated)
		return gn_msg_respond(s->msg, gn_deadline_us(SIM_US));
	if (!run->crowded)
		end_ns = gn_deadline_us(IDLE_US);
	do
		n = gn_msg_respond(s->msg, end_ns);
	while (n > 0);
	if (run->crowded)
		gn_yield();
	return n;
}

static int respond_to_all(struct msg_responder *s)
{
	struct msg_run *run = s->run;
	const struct limit_place place = msg_limit_place(run);
	uint64_t order;
	int rc = 0;

	while ((rc >= 0 || rc == -EINTR) && !s->proc->served(s->proc, NULL)) {
		/* Pairs with the release in pair_order(). */
		order = __atomic_load_n(&run->load.pair.order, __ATOMIC_ACQUIRE);
		if (!s->number && (order & 0xff) == ORDER_ECHO)
			rc = bare_answer(&place, order);
		else
			rc = respond_some(s);
	}
	return rc == -EINTR ? 0 : load_check(&run->load, rc, "responding");
}

static void note_counters(const struct msg_responder *s)
{
	struct gn_msg_stats stats = {.size = sizeof(stats)};
	struct msg_account *a;

	gn_msg_responder_stats(s->msg, &stats);
	if (s->run->load.simulated) {
		s->run->load.life.repeats += stats.repeats;
		return;
	}
	a = &s->run->answered[s->number];
	a->requests = stats.requests;
	a->sums.repeats = stats.repeats;
	load_count_fabric(s->proc->fabric, &a->sums);
}

int msg_serve(struct load_proc *proc, uint32_t number)
{
	struct msg_run *run = (struct msg_run *)proc->run; /* which begins with it */
	struct msg_responder s = {
		.proc = proc, .run = run, .number = number, .keys = keys_of(&run->opts)};
	int rc = load_check(proc->run, make_data(&s), "memory for values");

	if (!rc)
		rc = load_listen(proc, number, msg_listen_at, &s);
	if (!rc) {
		rc = respond_to_all(&s);
		note_counters(&s);
	}
	gn_msg_responder_destroy(s.msg);
	gn_mem_free(s.data);
	return rc;
}
