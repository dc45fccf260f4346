/* SPDX-License-Identifier: MIT */
/* From a seed to a plan: cluster, responder, requesters and their protocols, and faults. */
#include "draw.h"
#include "sim_msg.h"

/* ---- faults ---- */

/* Mostly faults of datagrams. */
static void draw_lossy(struct plan *plan, struct rng *rng)
{
	static const char *const kinds[] = {"ud-loss", "ud-dup", "ud-reorder", "ud-delay"};
	char fault[64];

	for (unsigned i = 0; i < plan->n_requesters; i++) {
		struct gn_msg_requester_opts *o = &plan->requester[i].opts;

		o->protocol = GN_MSG_UD;
		o->repeat_us = range(rng, 5, 200);
		if (o->value_bytes > UD_BYTES_MAX)
			o->value_bytes = UD_BYTES_MAX;
		if (o->request_bytes > UD_BYTES_MAX)
			o->request_bytes = UD_BYTES_MAX;
	}
	for (unsigned i = 0; i < 4; i++) {
		if (one_in(rng, 4))
			continue;
		snprintf(fault, sizeof(fault), "%s=%u%%", kinds[i], range(rng, 1, 40));
		cluster_add_fault(&plan->cluster, fault);
	}
	plan->heals = true;
}

/* ---- programs ---- */

static uint32_t draw_bytes(struct rng *rng, bool datagram)
{
	static const uint32_t most[] = {12, 36, 64, 100, 365, 1000, 4096, BYTES_MAX};

	return most[range(rng, 0, datagram ? 5 : 7)];
}

static void draw_requester(struct plan_requester *r, struct rng *rng)
{
	struct gn_msg_requester_opts *o = &r->opts;
	const bool ud = one_in(rng, 4);

	o->protocol = ud ? GN_MSG_UD : (enum gn_msg_protocol)range(rng, 0, GN_MSG_UD - 1);
	o->pending = range(rng, 1, one_in(rng, 3) ? 2 : 32);
	o->request_bytes = draw_bytes(rng, ud);
	o->value_bytes = draw_bytes(rng, ud);
	o->max_conns = CONNS_MAX + range(rng, 0, 2);
	o->timeout_us = range(rng, 2000, 20000);
	o->repeat_us = range(rng, 10, 1000);
	o->request_timeout_us = one_in(rng, 4) ? range(rng, 100, 20000) : 0;
	o->flags = one_in(rng, 3) ? GN_MSG_PAPER : 0;
	r->conns = range(rng, 1, CONNS_MAX);
	r->window = one_in(rng, 2) ? o->pending : range(rng, 1, o->pending);
	r->requests = range(rng, 20, 300);
	r->think_us = range(rng, 1, one_in(rng, 4) ? 1000 : 30);
	r->thinks = one_in(rng, 3) ? 0 : range(rng, 1, 100);
	r->flushes = one_in(rng, 2) ? 0 : range(rng, 1, 300);
	r->leaves = one_in(rng, 2) ? 0 : range(rng, 1, 20);
}

static void draw_responder(struct plan *plan, struct rng *rng)
{
	struct gn_msg_responder_opts *o = &plan->responder;

	o->max_conns = REQUESTERS_MAX * CONNS_MAX + range(rng, 0, 4);
	o->max_pending = 32;
	o->max_request = o->max_value = BYTES_MAX;
	o->flags = one_in(rng, 3) ? GN_MSG_PAPER : 0;
	if (one_in(rng, 8)) { /* some are refused */
		o->max_conns = range(rng, 1, 4);
		o->max_pending = range(rng, 1, 32);
	}
	plan->stop_us = one_in(rng, 4) ? range(rng, 50, 3000) : 0;
	plan->pauses = one_in(rng, 2) ? 0 : range(rng, 1, 50);
	plan->pause_us = range(rng, 1, 300);
}

void test_plan(struct seeds *run)
{
	struct plan *plan = &((struct world *)run)->plan;
	struct rng rng = {run->seed * 0xd6e8feb86659fd93u + 0x6d7367};

	*plan = (struct plan){0};
	cluster_draw(&plan->cluster, &rng);
	plan->n_requesters = range(&rng, 1, REQUESTERS_MAX);
	draw_responder(plan, &rng);
	for (unsigned i = 0; i < plan->n_requesters; i++)
		draw_requester(&plan->requester[i], &rng);
	if (one_in(&rng, 6))
		draw_lossy(plan, &rng);
	else
		plan->heals = cluster_draw_faults(&plan->cluster, &rng);
}

void test_plan_small(struct seeds *run, const char *faults)
{
	struct plan *plan = &((struct world *)run)->plan;
	*plan = (struct plan){0};
	plan->n_requesters = 3;
	for (unsigned i = 0; i < plan->n_requesters; i++) {
		static const enum gn_msg_protocol protocols[] = {GN_MSG_WRITE_SEND, GN_MSG_UD,
								 GN_MSG_READ};
		struct plan_requester *r = &plan->requester[i];

		r->opts.protocol = protocols[i];
		r->opts.pending = 2;
		r->opts.max_conns = 2;
		r->opts.request_bytes = r->opts.value_bytes = 64;
		r->opts.timeout_us = 5000;
		r->opts.repeat_us = 100;
		r->conns = r->window = 2;
		r->requests = 8;
	}
	plan->responder.max_conns = 6;
	cluster_small(&plan->cluster, faults);
}

void test_print(const struct seeds *run)
{
	const struct plan *p = &((const struct world *)run)->plan;
	const struct gn_msg_responder_opts *o = &p->responder;

	printf("# profile %s, caps off %llx%s\n# faults %s\n", p->cluster.profile,
	       (unsigned long long)p->cluster.caps_off, p->heals ? ", heals" : "",
	       p->cluster.faults);
	printf("# n0: flags %x, %u connections, %u pending, stops %u us, pauses %u us\n", o->flags,
	       o->max_conns, o->max_pending, p->stop_us, p->pauses ? p->pause_us : 0);
	for (unsigned i = 0; i < p->n_requesters; i++) {
		const struct plan_requester *r = &p->requester[i];

		printf("# n%u: %s, flags %x, %u connections, %u pending of %u, %u and %u bytes, "
		       "repeats from %u us for %u us, %u requests, thinks %u us, flushes %u, leaves %u\n",
		       i + 1, gn_msg_protocol_str(r->opts.protocol), r->opts.flags, r->conns,
		       r->window, r->opts.pending, r->opts.request_bytes, r->opts.value_bytes,
		       r->opts.repeat_us, r->opts.request_timeout_us, r->requests,
		       r->thinks ? r->think_us : 0, r->flushes, r->leaves);
	}
}
