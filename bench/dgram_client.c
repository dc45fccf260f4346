/* SPDX-License-Identifier: MIT */
/*
 * A thread of the load of datagram calls: it polls its endpoints, whose workers call all the time
 * and whose handler answers the calls of others (dgram_node.c). A request begins with its number,
 * and so must its result.
 */
#include <errno.h>

#include "dgram_load.h"

#define GROUP_ROUNDS 32u /* calls of every worker are timed together, in processes */
#define GROUP_MAX    4096u
#define CLOCK_EVERY  16u    /* … and one batch in so many by itself: reading a clock takes time */
#define SERVE_NS     50000u /* a thread that only answers looks for signals so often */
#define POLLS	     32u    /* … and at the clock */
#define MEET_US	     20u    /* simulated: between looks whether all others have endpoints */
#define GREET_US     200u
#define YIELD_EVERY  2048u /* polls in vain, some 100 us: on a busy machine the peer may not run */

struct dgram_worker {
	struct dgram_client *c;
	struct dgram_endpoint *endpoint;
	uint32_t first_slot; /* of the endpoint's slots: one for each call of a batch */
	uint32_t turn;	     /* the peer that is next */
	uint32_t seq, batches;
	struct gn_dgram_op *ops;
};

struct dgram_endpoint {
	struct gn_dgram_endpoint *gn;
	struct gn_dgram_peer **peers;
	struct dgram_worker *workers;
	struct gn_dgram_op *ops;
	uint8_t *bytes; /* requests and results */
	struct dgram_raw *raw;
};

struct dgram_client {
	struct load_client base;
	struct dgram_run *run;
	struct dgram_endpoint *endpoints;
	uint32_t n_workers, parked; /* of all endpoints; those that wait while raw sends run */
	uint32_t in_vain;	    /* polls since something arrived */
	bool met;		    /* peers are open, and workers started */
	bool raw_met;
	bool calls, ends;
	bool parks, counted;	       /* workers wait; counted: in the control block */
	struct gn_dgram_op *greetings; /* simulated: the first call to each node */
	uint32_t n_greetings;
	int error;
};

static struct dgram_client *dgram_client_of(const struct load_client *base)
{
	return (struct dgram_client *)base; /* which it begins with */
}

/* ---- workers ---- */

static int dgram_complain(struct dgram_client *c, const struct gn_dgram_op *op)
{
	const char *to = gn_dgram_peer_addr(op->peer);

	if (op->status == GN_RPC_OK && op->result_len == op->result_room)
		return load_fail(c->base.run, -EBADMSG, "a call to %s has another call's result",
				 to);
	__atomic_add_fetch(&c->run->misses.lost, 1, __ATOMIC_RELAXED);
	if (c->base.run->opts.faults || *c->base.interrupted)
		return 0;
	return load_fail(c->base.run, -EIO, "a call to %s ended with %s and %u of %u bytes", to,
			 gn_rpc_status_str(op->status), op->result_len, op->result_room);
}

static inline bool is_answered(const struct gn_dgram_op *op)
{
	return likely(op->status == GN_RPC_OK && op->result_len == op->result_room) &&
	       likely(!memcmp(op->result, op->request,
			      least_u32(op->result_room, sizeof(struct dgram_number))));
}

/* One batch of calls, each to the next peer. */
static int worker_call(struct dgram_worker *w, uint32_t batch, uint32_t peers)
{
	struct dgram_client *c = w->c;
	int rc;

	w->seq++;
	for (uint32_t i = 0; i < batch; i++) {
		struct gn_dgram_op *op = &w->ops[i];

		op->peer = w->endpoint->peers[w->turn];
		op->deadline_ns = c->base.deadline_ns;
		memcpy((void *)op->request, &w->seq, sizeof(w->seq)); /* of struct dgram_number */
		if (++w->turn == peers)
			w->turn = 0;
	}
	rc = batch == 1 ? gn_dgram_call(w->ops) : gn_dgram_call_all(w->ops, batch);
	if (unlikely(rc))
		return load_check(c->base.run, rc, "calling");
	for (uint32_t i = 0; i < batch && !rc; i++)
		if (unlikely(!is_answered(&w->ops[i])))
			rc = dgram_complain(c, &w->ops[i]);
	return rc;
}

static void worker_park(struct dgram_worker *w)
{
	struct dgram_client *c = w->c;

	c->parked++;
	while (c->parks && !c->ends)
		gn_dgram_yield(w->endpoint->gn);
	c->parked--;
}

static void worker_main(void *arg)
{
	struct dgram_worker *w = arg;
	struct dgram_client *c = w->c;
	const struct bench_dgram_opts *o = &c->run->opts;
	const uint32_t batch = o->batch, peers = dgram_peers(o);
	/* One worker by itself is timed in groups: a clock reading is a part of a round trip. */
	const uint32_t every = !c->run->load.simulated && dgram_under_way(o) > 1 ? CLOCK_EVERY : 0;

	while (!c->ends && !c->error) {
		const bool timed = every && !(w->batches++ % every);
		const uint64_t began_ns = timed ? gn_now_ns() : load_stamp(&c->base);

		if (unlikely(c->parks)) {
			worker_park(w);
			continue;
		}
		c->error = worker_call(w, batch, peers);
		if (timed && c->base.block)
			gn_hist_add(&c->base.tally->latency_ns, gn_now_ns() - began_ns, 1);
		load_done(&c->base, batch, began_ns);
	}
}

static int make_ops(struct dgram_client *c, struct dgram_endpoint *e, uint32_t number)
{
	const struct bench_dgram_opts *o = &c->run->opts;
	const uint32_t n = dgram_under_way(o);
	const size_t request = (o->request_bytes + 7) / 8 * 8;
	const size_t stride = request + (o->result_bytes + 7) / 8 * 8;

	e->workers = gn_alloc(o->workers * sizeof(*e->workers), 64);
	e->ops = gn_alloc(n * sizeof(*e->ops), 64);
	e->bytes = gn_alloc(n * stride, 64);
	if (!e->workers || !e->ops || !e->bytes)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *bytes = e->bytes + i * stride;
		const struct dgram_number first = {.slot = (uint16_t)i, .caller = (uint16_t)number};

		pattern_fill(bytes, o->request_bytes, o->load.seed + i);
		memcpy(bytes, &first, sizeof(first));
		e->ops[i] = (struct gn_dgram_op){.method = DGRAM_METHOD_ECHO,
						 .request = bytes,
						 .request_len = o->request_bytes,
						 .result = bytes + request,
						 .result_room = o->result_bytes};
	}
	for (uint32_t i = 0; i < o->workers; i++)
		e->workers[i] = (struct dgram_worker){
			.c = c,
			.endpoint = e,
			.turn = (uint32_t)(gn_random() % dgram_peers(o)),
			.batches = i,
			.ops = &e->ops[i * o->batch],
		};
	return 0;
}

/* ---- beginning and end ---- */

static int open_endpoint(struct dgram_client *c, uint32_t i)
{
	struct dgram_run *run = c->run;
	const struct bench_dgram_opts *o = &run->opts;
	const uint32_t number = c->base.number * o->endpoints + i;
	struct dgram_endpoint *e = &c->endpoints[i];
	int rc = gn_dgram_endpoint_create(dgram_node_of(c->base.proc),
					  number % dgram_node_endpoints(o), &e->gn);

	if (rc)
		return load_check(&run->load, rc, "creating an endpoint");
	e->peers = gn_alloc(dgram_peers(o) * sizeof(struct gn_dgram_peer *), 0);
	rc = e->peers ? make_ops(c, e, number) : -ENOMEM;
	if (load_check(&run->load, rc, "memory for calls"))
		return rc;
	if (!run->with_raw || run->load.simulated)
		return 0;
	return load_check(&run->load,
			  dgram_raw_create(run, c->base.proc->fabric, number, c->calls, &e->raw),
			  "creating a UD qp for the raw load");
}

/* After polls in vain: lets others run that are needed, or that have the peer's core as well. */
static void poll_rest(struct dgram_client *c, int n)
{
	c->in_vain = n ? 0 : c->in_vain + 1;
	if (unlikely(c->in_vain && (c->run->crowded || !(c->in_vain % YIELD_EVERY))) &&
	    !c->run->load.simulated)
		gn_yield();
}

static int poll_all(struct dgram_client *c)
{
	int n = 0;

	for (uint32_t i = 0; i < c->run->opts.endpoints; i++) {
		const int rc = gn_dgram_poll(c->endpoints[i].gn);

		if (unlikely(rc < 0))
			return load_check(c->base.run, rc, "polling");
		n += rc;
	}
	poll_rest(c, n);
	return c->error;
}

/* Opens all peers and starts the workers, when every node has an address. */
static int meet(struct dgram_client *c)
{
	const struct bench_dgram_opts *o = &c->run->opts;
	const uint32_t each = dgram_node_endpoints(o), n = dgram_peers(o);
	int rc = 0;

	c->met = true;
	for (uint32_t k = 0; k < o->endpoints && c->calls; k++) {
		struct dgram_endpoint *e = &c->endpoints[k];
		const uint32_t number = c->base.number * o->endpoints + k;

		for (uint32_t i = 0; i < n && !rc; i++) {
			const uint32_t to = dgram_peer_of(o, number, i);
			char addr[LOAD_ADDR_MAX];

			load_server_addr(c->base.run, to / each, addr);
			rc = gn_dgram_peer_open(e->gn, addr, to % each, &e->peers[i]);
		}
		for (uint32_t i = 0; i < o->workers && !rc; i++) {
			rc = gn_dgram_spawn(e->gn, worker_main, &e->workers[i]);
			c->n_workers += !rc;
		}
	}
	return load_check(c->base.run, rc, "opening peers and starting workers");
}

static int submit_greetings(struct dgram_client *c, uint32_t n)
{
	const uint32_t node = c->base.number / c->run->opts.load.threads;

	while (c->n_greetings < n) {
		struct gn_dgram_op *op = &c->greetings[c->n_greetings];
		char addr[LOAD_ADDR_MAX];
		int rc;

		*op = (struct gn_dgram_op){.method = DGRAM_METHOD_NULL,
					   .status = GN_RPC_FAILED + 1};
		load_server_addr(c->base.run, node + 1 + c->n_greetings, addr);
		rc = gn_dgram_peer_open(c->endpoints[0].gn, addr, 0, &op->peer);
		if (!rc)
			rc = gn_dgram_submit(op);
		if (rc)
			return rc == -EAGAIN ? 0 : rc;
		c->n_greetings++;
	}
	return 0;
}

/*
 * Simulated: the first thread of a node calls the nodes after it once, so that all are connected
 * before the others begin to poll, which takes most of the simulator's time.
 */
static int greet(struct dgram_client *c)
{
	const struct bench_dgram_opts *o = &c->run->opts;
	const uint32_t n = o->nodes - 1 - c->base.number / o->load.threads;
	uint32_t done = 0;
	bool said = false;
	int rc;

	c->greetings = gn_alloc((n + 1) * sizeof(*c->greetings), 0);
	rc = c->greetings ? 0 : -ENOMEM;
	while (rc >= 0 && c->run->greeted < o->nodes && !load_gives_up(&c->base)) {
		rc = submit_greetings(c, n);
		while (done < c->n_greetings && c->greetings[done].status == GN_RPC_OK)
			done++;
		if (done == n && !said)
			c->run->greeted++;
		said = done == n;
		if (!rc)
			rc = gn_dgram_wait(c->endpoints[0].gn, gn_deadline_us(GREET_US));
		if (rc == -ETIMEDOUT)
			rc = 0;
	}
	return load_check(c->base.run, rc, "connecting nodes");
}

static int dgram_open(struct load_client *base)
{
	struct dgram_client *c = dgram_client_of(base);
	const struct bench_dgram_opts *o;
	int rc = 0;

	c->run = dgram_run_of(base->run);
	o = &c->run->opts;
	c->calls = dgram_calls(o, base->number);
	c->endpoints = gn_alloc(o->endpoints * sizeof(*c->endpoints), 64);
	if (!c->endpoints)
		return load_check(base->run, -ENOMEM, "memory for endpoints");
	for (uint32_t i = 0; i < o->endpoints && !rc; i++)
		rc = open_endpoint(c, i);
	if (rc || !base->run->simulated)
		return rc;
	c->run->opened++;
	while (c->run->opened < base->run->n_clients && !load_gives_up(base))
		gn_sleep_us(MEET_US);
	return base->number % o->load.threads || load_gives_up(base) ? 0 : greet(c);
}

static void dgram_close(struct load_client *base)
{
	struct dgram_client *c = dgram_client_of(base);

	for (uint32_t i = 0; c->endpoints && i < c->run->opts.endpoints; i++) {
		struct dgram_endpoint *e = &c->endpoints[i];

		dgram_raw_destroy(e->raw);
		if (e->gn)
			gn_dgram_endpoint_destroy(e->gn);
		gn_free(e->peers);
		gn_free(e->workers);
		gn_free(e->ops);
		gn_free(e->bytes);
	}
	gn_free(c->greetings);
	gn_free(c->endpoints);
}

/* ---- running ---- */

static void unpark(struct dgram_client *c)
{
	c->parks = false;
	if (c->counted)
		__atomic_sub_fetch(&c->run->parked, 1, __ATOMIC_ACQ_REL);
	c->counted = false;
}

/* A thread of a process that calls nobody. */
static int serve_some(struct dgram_client *c)
{
	const uint64_t end_ns = gn_now_ns() + SERVE_NS;
	int rc = 0;

	while (!rc && !load_gives_up(&c->base) && gn_now_ns() < end_ns)
		for (unsigned i = 0; i < POLLS && !rc; i++)
			rc = poll_all(c);
	return rc;
}

static int dgram_run_calls(struct load_client *base)
{
	struct dgram_client *c = dgram_client_of(base);
	int rc = c->met ? 0 : meet(c);

	unpark(c);
	if (!rc && !c->calls &&
	    !base->run->simulated) /* all of it is counted, so it has no warm-up */
		return base->block ? serve_some(c) : 0;
	while (!rc && !load_stops(base)) {
		rc = poll_all(c);
		load_between(base);
		if (base->run->simulated)
			base->stops = base->run->phase == LOAD_OVER;
	}
	return rc;
}

/* Waits until no worker of any thread has a call under way. */
static int park(struct dgram_client *c)
{
	int rc = 0;

	c->parks = true;
	while (!rc && c->parked < c->n_workers && !load_gives_up(&c->base))
		rc = poll_all(c);
	if (!c->counted)
		__atomic_add_fetch(&c->run->parked, 1, __ATOMIC_ACQ_REL);
	c->counted = true;
	while (!rc && __atomic_load_n(&c->run->parked, __ATOMIC_ACQUIRE) < c->run->load.n_clients &&
	       !load_gives_up(&c->base))
		rc = poll_all(c);
	return rc || load_gives_up(&c->base) ? -EINTR : 0;
}

static int raw_meet(struct dgram_client *c)
{
	int rc = 0;

	c->raw_met = true;
	for (uint32_t i = 0; i < c->run->opts.endpoints && !rc; i++)
		rc = dgram_raw_connect(c->endpoints[i].raw);
	return load_check(c->base.run, rc, "reaching the others for the raw load");
}

static int raw_poll_all(struct dgram_client *c)
{
	int n = 0;

	for (uint32_t i = 0; i < c->run->opts.endpoints; i++) {
		const int ended = dgram_raw_poll(c->endpoints[i].raw);

		if (unlikely(ended < 0))
			return load_check(c->base.run, ended, "raw sends");
		n += ended;
	}
	poll_rest(c, n);
	return n;
}

/* Groups of raw requests for about block_ns. The others only follow client 0. */
static int raw_groups(struct dgram_client *c, uint64_t block_ns, struct block *out)
{
	const uint64_t began_ns = gn_now_ns();
	uint64_t since_ns = began_ns, group = 0;
	unsigned looks = 0;
	int n;

	out->group_ops = c->base.kind->group_ops(&c->base);
	while (!load_gives_up(&c->base)) {
		n = raw_poll_all(c);
		if (n < 0)
			return n;
		group += (unsigned)n;
		if (group >= out->group_ops) {
			group -= out->group_ops;
			since_ns = block_group(out, since_ns);
			if (out->ns >= block_ns)
				return 0;
		}
		if (c->base.number && !(++looks % POLLS) && gn_now_ns() - began_ns > block_ns)
			return 0;
	}
	return -EINTR;
}

/* Client 0 measures; the others send and answer until it says that the block is over. */
static int dgram_limit(struct load_client *base, uint64_t block_ns, struct block *out)
{
	struct dgram_client *c = dgram_client_of(base);
	struct block warm = {.ops = 0};
	int rc = c->met ? 0 : meet(c);

	if (!rc)
		rc = park(c);
	if (!rc && !c->raw_met)
		rc = raw_meet(c);
	gn_hist_init(&warm.group_ns);
	if (!rc && !base->number)
		rc = raw_groups(c, 1, &warm);
	if (!rc)
		rc = raw_groups(c, block_ns, out);
	return rc;
}

/* ---- apart from what is measured ---- */

static uint32_t others_rested(const struct dgram_client *c)
{
	return __atomic_load_n(&c->run->rested, __ATOMIC_ACQUIRE);
}

/* Client 0 answers the others, which still call or end their calls. */
static bool dgram_idle(struct load_client *base)
{
	struct dgram_client *c = dgram_client_of(base);

	if (c->raw_met)
		raw_poll_all(c);
	if (c->endpoints)
		poll_all(c);
	return others_rested(c) + 1 < base->run->n_clients;
}

/* Ends all workers, and answers others until theirs have ended. */
static int dgram_rest(struct load_client *base)
{
	struct dgram_client *c = dgram_client_of(base);
	const bool alone = !base->run->simulated &&
			   !base->number; /* the others are still calling */
	const uint32_t all = base->run->n_clients - (base->run->simulated ? 0 : 1);
	uint32_t left = 0;
	int rc = 0;

	c->ends = true;
	unpark(c);
	base->deadline_ns = gn_deadline_us(LOAD_OP_US);
	do {
		left = 0;
		for (uint32_t i = 0; i < c->run->opts.endpoints; i++)
			left += gn_dgram_workers(c->endpoints[i].gn);
		rc = left ? poll_all(c) : 0;
	} while (!rc && left && !*base->interrupted && gn_now_ns() < base->deadline_ns);
	if (left && !rc)
		__atomic_add_fetch(&c->run->misses.lost, left, __ATOMIC_RELAXED);
	if (alone)
		return *base->interrupted ? -EINTR : rc;
	__atomic_add_fetch(&c->run->rested, 1, __ATOMIC_ACQ_REL);
	while (!rc && others_rested(c) < all && !load_gives_up(base))
		rc = poll_all(c);
	return *base->interrupted ? -EINTR : rc;
}

/* Results were checked as they came: this is for drivers, which rest before they check. */
static int dgram_check(struct load_client *base)
{
	(void)base;
	return 0;
}

static void dgram_count(const struct load_client *base, struct load_sums *out)
{
	const struct dgram_client *c = dgram_client_of(base);

	*out = base->own;
	for (uint32_t i = 0; i < c->run->opts.endpoints; i++) {
		struct gn_dgram_stats now = {.size = sizeof(now)};

		if (gn_dgram_endpoint_stats(c->endpoints[i].gn, &now))
			continue;
		out->calls += now.calls;
		out->messages += now.messages;
		out->datagrams += now.sent;
		out->wrs += now.sent + now.received;
		out->doorbells += now.doorbells;
		out->recv_doorbells += now.recv_doorbells;
		out->repeats += now.repeats;
	}
	if (!base->run->simulated)
		out->ops = base->ended;
}

static uint64_t dgram_group_ops(const struct load_client *base)
{
	const struct bench_dgram_opts *o = &dgram_client_of(base)->run->opts;
	const uint32_t n = GROUP_ROUNDS * dgram_under_way(o);

	return n < GROUP_MAX ? n : dgram_under_way(o) > GROUP_MAX ? dgram_under_way(o) : GROUP_MAX;
}

const struct load_kind load_dgram = {
	.name = "dgram",
	.proc_open = dgram_node_open,
	.proc_close = dgram_node_close,
	.client_bytes = sizeof(struct dgram_client),
	.open = dgram_open,
	.run = dgram_run_calls,
	.limit = dgram_limit,
	.idle = dgram_idle,
	.rest = dgram_rest,
	.check = dgram_check,
	.close = dgram_close,
	.count = dgram_count,
	.group_ops = dgram_group_ops,
};
