/* SPDX-License-Identifier: MIT */
/* The program of the layer msg: threads that ask, and threads that answer. */
#include <errno.h>
#include <stdio.h>

#include "msg_load.h"

#define FIRST_PORT 7000u
#define NAP_US	   20u	 /* between two looks at what others have got ready */
#define LOOK_US	   1000u /* answering threads see so often whether they are needed */
#define TAKE_MAX   16u	 /* answers taken at once */
#define FIRST	   8u	 /* requests of a connection to begin with */
#define READS	   16u	 /* that cards have under way of a qp */

struct side {
	struct msg_site *site;
	unsigned number; /* of its kind in its process */
	struct gn_thread *thread;
};

static bool ok(struct msg_run *run, int rc, const char *what)
{
	if (rc < 0)
		load_fail(&run->load, "%s on %s: %s", what, gn_node_name(), gn_strerror(rc));
	return rc >= 0;
}

static void add_stats(struct msg_run *run, const struct gn_msg_stats *stats)
{
	run->wrs += stats->wrs;
	run->doorbells += stats->doorbells;
	run->repeats += stats->repeats;
}

static void address(char out[LOAD_ADDR_MAX], unsigned node, unsigned thread)
{
	snprintf(out, LOAD_ADDR_MAX, "sim:n%u:%u", node, FIRST_PORT + thread);
}

/* ---- answering ---- */

/* Bytes that a connection's READs are about: a place for each, a key and a value long. */
static uint64_t data_bytes(const struct msg_load *o)
{
	return (uint64_t)(o->key + o->value) * o->pending;
}

static int answer(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	const struct msg_run *run = arg;

	(void)request;
	(void)len;
	(void)value; /* what stands there is as good as anything */
	return max < run->opts->value ? -EINVAL : (int)run->opts->value;
}

static void answer_all(struct msg_run *run, struct gn_msg_responder *responder)
{
	struct load_run *load = &run->load;
	struct gn_msg_stats stats;

	load->listening++;
	while (run->askers_gone < load->n_threads)
		if (!ok(run, gn_msg_respond(responder, gn_deadline_us(LOOK_US)), "answering"))
			break;
	gn_msg_responder_stats(responder, &stats);
	add_stats(run, &stats);
}

static void answerer_main(void *arg)
{
	struct side *side = arg;
	struct msg_site *site = side->site;
	struct msg_run *run = site->run;
	const struct msg_load *o = run->opts;
	struct gn_msg_responder_opts opts = {
		.answer = answer,
		.arg = run,
		.ctx = site->ctx,
		.max_conns = msg_conns_of_answerer(o),
		.max_pending = o->pending,
		.max_request = o->key,
		.max_value = o->value,
		.flags = o->paper ? GN_MSG_PAPER : 0,
	};
	struct gn_msg_responder *responder = NULL;
	char addr[LOAD_ADDR_MAX];

	address(addr, site->number, side->number);
	if ((o->protocol != GN_MSG_READ ||
	     ok(run,
		gn_mem_alloc(site->fabric, data_bytes(o) * opts.max_conns, GN_REMOTE_READ,
			     &opts.data),
		"memory for others")) &&
	    ok(run, gn_msg_responder_create(site->fabric, addr, &opts, &responder), "a responder"))
		answer_all(run, responder);
	gn_msg_responder_destroy(responder);
	gn_mem_free(opts.data);
}

/* ---- asking ---- */

struct asker {
	struct side *side;
	struct msg_run *run;
	struct gn_msg_requester *requester;
	struct gn_msg_conn **conns;
	uint64_t *bases;    /* where at its responder a connection's data begin */
	unsigned *asked;    /* that are under way on a connection */
	uint64_t *began_ns; /* of each request under way, by its number */
	unsigned n;
};

static bool connect_to(struct asker *a, unsigned i)
{
	const struct msg_load *o = a->run->opts;
	const struct msg_place to = msg_place_of(o, a->side->site->number, a->side->number, i);
	char addr[LOAD_ADDR_MAX];
	const char *why = NULL;
	int rc;

	address(addr, to.node, to.thread);
	rc = gn_msg_conn_open(a->requester, addr, &why, &a->conns[i]);
	if (rc)
		load_fail(&a->run->load, "connecting %s to %s: %s", gn_node_name(), addr,
			  why ? why : gn_strerror(rc));
	a->bases[i] = to.number * data_bytes(o);
	return !rc;
}

static bool open_requester(struct asker *a)
{
	const struct msg_load *o = a->run->opts;
	const struct gn_msg_requester_opts opts = {
		.protocol = o->protocol,
		.pending = o->pending,
		.request_bytes = o->key,
		.value_bytes = o->value,
		.max_conns = a->n,
		.ctx = a->side->site->ctx,
		.flags = o->paper ? GN_MSG_PAPER : 0,
	};
	int rc = gn_msg_requester_create(a->side->site->fabric, &opts, &a->requester);

	if (rc == -EMSGSIZE) {
		load_fail(&a->run->load, "value=%u is more than protocol=%s can carry", o->value,
			  gn_msg_protocol_str(o->protocol));
		return false;
	}
	if (!ok(a->run, rc, "a requester"))
		return false;
	for (unsigned i = 0; i < a->n; i++)
		if (!connect_to(a, i))
			return false;
	return true;
}

/* Request number id: the first of its connection are those of connection 0, and so on. */
static bool ask(struct asker *a, uint64_t id)
{
	const struct msg_load *o = a->run->opts;
	const uint64_t c = id / o->pending, i = id % o->pending;
	int rc;

	a->began_ns[id] = gn_now_ns();
	a->run->requests++;
	if (o->protocol == GN_MSG_READ)
		rc = gn_msg_read(a->conns[c], a->bases[c] + i * (o->key + o->value) + o->key,
				 o->value, id);
	else
		rc = gn_msg_ask(a->conns[c], a->run->key, o->key, id);
	return ok(a->run, rc, "asking");
}

/* One more is under way on a connection, up to its number. */
static bool ask_more(struct asker *a, unsigned c)
{
	const unsigned pending = a->run->opts->pending;

	if (a->asked[c] == pending)
		return true;
	return ask(a, (uint64_t)c * pending + a->asked[c]++);
}

static bool check(struct asker *a, const struct gn_msg_result *r)
{
	const struct msg_load *o = a->run->opts;

	if (r->status == GN_MSG_OK && r->len == o->value)
		return true;
	load_fail(&a->run->load, "a request on %s: %s, %u bytes instead of %u", gn_node_name(),
		  gn_msg_status_str(r->status), r->len, o->value);
	return false;
}

/*
 * With all that may be under way asked at once, requests and answers would come in waves for a long
 * time, the ones without the others. So there are more with each answer. More READs than a card
 * takes of a qp wait there, and make no waves.
 */
static void ask_always(struct asker *a)
{
	const struct msg_load *o = a->run->opts;
	struct load_run *load = &a->run->load;
	const unsigned first = o->protocol == GN_MSG_READ && o->pending > READS ? o->pending :
										  FIRST;
	struct gn_msg_result results[TAKE_MAX];

	for (unsigned i = 0; i < first; i++)
		for (unsigned c = 0; c < a->n; c++)
			if (load_stops(load) || !ask_more(a, c))
				return;
	while (!load_stops(load)) {
		const int n = gn_msg_take(a->requester, results, TAKE_MAX, GN_FOREVER);

		if (!ok(a->run, n, "taking answers"))
			return;
		for (int i = 0; i < n; i++) {
			if (!check(a, &results[i]))
				return;
			load_count(load, 1, a->began_ns[results[i].id]);
			if (!load_stops(load) &&
			    (!ask(a, results[i].id) ||
			     !ask_more(a, (unsigned)(results[i].id / o->pending))))
				return;
		}
	}
}

static void asker_main(void *arg)
{
	struct side *side = arg;
	struct msg_run *run = side->site->run;
	struct load_run *load = &run->load;
	struct asker a = {.side = side, .run = run, .n = msg_conns_of_asker(run->opts)};
	struct gn_msg_stats stats = {0};

	while (load->listening < load->n_listeners && !load->failed)
		gn_sleep_us(NAP_US);
	a.conns = gn_alloc(a.n * sizeof(a.conns[0]), 0);
	a.bases = gn_alloc(a.n * sizeof(a.bases[0]), 0);
	a.asked = gn_alloc(a.n * sizeof(a.asked[0]), 0);
	a.began_ns = gn_alloc((size_t)a.n * run->opts->pending * sizeof(a.began_ns[0]), 0);
	if (!a.conns || !a.bases || !a.asked || !a.began_ns)
		load_fail(load, "no memory for requests");
	else if (!load->failed && open_requester(&a) && load_starts(load))
		ask_always(&a);
	if (a.requester)
		gn_msg_requester_stats(a.requester, &stats);
	add_stats(run, &stats);
	gn_msg_requester_destroy(a.requester);
	gn_free(a.conns);
	gn_free(a.bases);
	gn_free(a.asked);
	gn_free(a.began_ns);
	run->askers_gone++;
}

/* ---- the process ---- */

static void run_sides(struct msg_site *site, struct side *sides)
{
	const unsigned n = site->answerers + site->askers;
	unsigned started = 0;

	for (; started < n; started++) {
		const bool answers = started < site->answerers;
		struct side *side = &sides[started];

		side->site = site;
		side->number = answers ? started : started - site->answerers;
		if (!ok(site->run,
			gn_thread_start(answers ? "answerer" : "asker",
					answers ? answerer_main : asker_main, side, &side->thread),
			"a thread"))
			break;
	}
	/* Those that are not there count as gone. */
	for (unsigned i = started; i < n; i++)
		site->run->askers_gone += i >= site->answerers;
	for (unsigned i = 0; i < started; i++)
		gn_thread_join(sides[i].thread);
}

static void add_completions(struct msg_site *site)
{
	struct gn_counters counters = {0};

	gn_fabric_counters(site->fabric, &counters);
	site->run->cqes += counters.cqes;
}

int msg_program(struct gn_env *env, int argc, char **argv)
{
	struct msg_site *site = env->arg;
	struct msg_run *run = site->run;
	struct side *sides = gn_alloc((site->answerers + site->askers) * sizeof(*sides), 0);

	(void)argc;
	(void)argv;
	if (sides && ok(run, gn_fabric_open(env->fabric, &site->fabric), "the fabric") &&
	    (!run->opts->paper || ok(run, gn_ctx_create(site->fabric, &site->ctx), "a context"))) {
		run_sides(site, sides);
		add_completions(site);
	} else {
		load_fail(&run->load, "no memory for threads");
		run->askers_gone += site->askers;
	}
	gn_ctx_destroy(site->ctx);
	if (site->fabric)
		ok(run, gn_fabric_close(site->fabric), "closing the fabric");
	gn_free(sides);
	return run->load.failed;
}
