/* SPDX-License-Identifier: MIT */
/* What every load does: fail once for all, find its servers, and count operations. */
#include "load.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

const char *const load_presets[] = {"gannet", "paper", NULL};

#define BELOW_NS     7000u /* RF-RPC counts calls below 7 us */
#define PROGRESS_OPS 5000u /* simulated, between two signs of progress */

/* ---- failing ---- */

int bench_refuse(char why[BENCH_WHY_MAX], const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, BENCH_WHY_MAX, fmt, args);
	va_end(args);
	return -EINVAL;
}

int load_fail(struct load_run *run, int rc, const char *fmt, ...)
{
	va_list args;

	if (__atomic_exchange_n(&run->failed, 1, __ATOMIC_ACQ_REL))
		return rc;
	va_start(args, fmt);
	vsnprintf(run->error, sizeof(run->error), fmt, args);
	va_end(args);
	return rc;
}

int load_check(struct load_run *run, int rc, const char *what)
{
	if (rc < 0)
		return load_fail(run, rc, "%s on %s: %s", what, gn_node_name(), gn_strerror(rc));
	return 0;
}

/* ---- servers ---- */

#define SIM_PORT     7000u
#define ATTEMPTS_MAX 50u

static void make_address(const struct load_run *run, uint32_t i, unsigned attempt,
			 char out[LOAD_ADDR_MAX])
{
	if (run->simulated)
		snprintf(out, LOAD_ADDR_MAX, "sim:n%u:%u",
			 run->first_server_node + i / run->servers_per_node,
			 SIM_PORT + i % run->servers_per_node);
	else
		snprintf(out, LOAD_ADDR_MAX, "%.160s%u", run->prefix,
			 run->first_port + i + attempt * LOAD_SERVERS_MAX);
}

int load_listen_at(struct load_run *run, uint32_t number,
		   int (*listen_at)(void *arg, const char *addr), void *arg)
{
	char addr[LOAD_ADDR_MAX];
	int rc = -EADDRINUSE;

	for (unsigned i = 0; i < ATTEMPTS_MAX && rc == -EADDRINUSE; i++) {
		make_address(run, number, i, addr);
		rc = listen_at(arg, addr);
	}
	if (!rc && !run->simulated)
		memcpy(run->addr[number], addr, sizeof(addr));
	load_check(run, rc, "starting a server");
	return rc;
}

int load_listen(struct load_proc *proc, uint32_t number,
		int (*listen_at)(void *arg, const char *addr), void *arg)
{
	const int rc = load_listen_at(proc->run, number, listen_at, arg);

	proc->listens(proc, number, rc);
	return rc;
}

void load_server_addr(const struct load_run *run, uint32_t number, char out[LOAD_ADDR_MAX])
{
	if (run->simulated)
		make_address(run, number, 0, out);
	else
		memcpy(out, run->addr[number], LOAD_ADDR_MAX);
}

void load_serve(struct load_proc *proc, struct gn_rpc_server *rpc)
{
	while (!proc->served(proc, rpc))
		gn_sleep_us(proc->nap_us);
}

#define EAGER_US    200u /* of spinning between orders; then a server looks now and then */
#define LOOK_US	    1000u
#define SIM_LOOK_US 20u

uint64_t load_next_order(struct load_proc *proc, uint64_t last)
{
	const struct shared *shared = &proc->run->pair;
	const bool spins = !proc->run->simulated && shared->opts.cpus[0] != shared->opts.cpus[1];
	const uint64_t eager_ns = gn_deadline_us(EAGER_US);
	uint64_t word;

	/* Pairs with the release in pair_order(). */
	while ((word = __atomic_load_n(&shared->order, __ATOMIC_ACQUIRE)) == last) {
		if (proc->served(proc, NULL))
			return ORDER_QUIT;
		if (spins && gn_now_ns() < eager_ns)
			spin_pause();
		else
			gn_sleep_us(proc->run->simulated ? SIM_LOOK_US : LOOK_US);
	}
	return word;
}

void load_work(uint64_t ns)
{
	const uint64_t end_ns = gn_now_ns() + ns;

	gn_charge(GN_WORK_NS, ns); /* which takes no time but a simulated cluster's */
	while (gn_now_ns() < end_ns)
		spin_pause();
}

/* ---- counters ---- */

void load_sums_add(struct load_sums *to, const struct load_sums *what, int sign)
{
	uint64_t a[sizeof(*to) / sizeof(uint64_t)], b[sizeof(*to) / sizeof(uint64_t)];

	memcpy(a, to, sizeof(a));
	memcpy(b, what, sizeof(b));
	for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++)
		a[i] += (uint64_t)(int64_t)sign * b[i];
	memcpy(to, a, sizeof(a));
}

void load_count_rpc(const struct gn_rpc_client *rpc, struct load_sums *out)
{
	struct gn_rpc_counters now = {.size = sizeof(now)};

	if (gn_rpc_client_counters(rpc, &now))
		return;
	out->calls += now.calls;
	out->messages += now.batches;
	out->fetches += now.fetches;
	out->failed_fetches += now.failed_fetches;
	out->second_reads += now.second_reads;
	out->switches += now.switches;
}

void load_count_fabric(struct gn_fabric *fabric, struct load_sums *out)
{
	struct gn_counters now = {.size = sizeof(now)};

	gn_fabric_counters(fabric, &now);
	for (int op = 0; op < GN_OP_RECV; op++)
		out->wrs += now.wrs[op];
	out->doorbells += now.doorbells;
	out->cqes += now.cqes;
}

void load_count_choice(const struct gn_rpc_client *rpc, unsigned method, struct load_sums *out)
{
	struct gn_rpc_choice choice = {.size = sizeof(choice)};

	if (gn_rpc_client_choice(rpc, method, &choice))
		return;
	out->batches += choice.batch;
	out->batched++;
}

/* ---- a client's operations, in blocks ---- */

void load_client_init(struct load_client *c, struct load_proc *proc, uint32_t number)
{
	c->run = proc->run;
	c->proc = proc;
	c->kind = proc->kind;
	c->number = number;
	c->tally = &proc->run->tally[proc->run->simulated ? 0 : number];
	c->interrupted = proc->run->simulated ? proc->run->interrupted : bench_stop_flag();
	c->deadline_ns = GN_FOREVER;
}

static void look_at_block(struct load_client *c)
{
	const uint64_t group_ops = c->kind->group_ops(c), now_ns = gn_now_ns();
	const uint64_t more = c->ended - c->look_at; /* a batch ends as a whole */

	c->look_at = c->ended + group_ops;
	c->deadline_ns = now_ns + LOAD_OP_US * 1000ull + c->slack_ns;
	if (!c->block) {
		c->stops = true;
		return;
	}
	gn_hist_add(&c->block->group_ns, (now_ns - c->since_ns) * group_ops / (group_ops + more),
		    1);
	c->block->ops += group_ops + more;
	c->block->ns += now_ns - c->since_ns;
	c->since_ns = now_ns;
	c->stops = c->block->ns >= c->block_ns;
}

static int run_block(struct load_client *c, struct block *block, uint64_t block_ns)
{
	int rc;

	c->block = block;
	c->block_ns = block_ns;
	c->stops = false;
	c->since_ns = gn_now_ns();
	c->deadline_ns = c->since_ns + LOAD_OP_US * 1000ull + c->slack_ns;
	c->look_at = c->ended + c->kind->group_ops(c);
	rc = c->kind->run(c);
	c->block = NULL; /* what ends later is not of this block, which is the caller's */
	if (!rc && load_failed(c->run))
		rc = -EIO;
	return *c->interrupted ? -EINTR : rc;
}

int load_block(void *client, uint64_t block_ns, struct block *out)
{
	struct load_client *c = client;
	struct load_tally *t = c->tally;
	struct load_sums before, after;
	int rc = run_block(c, NULL, 0); /* both sides may have done something else before */

	if (rc)
		return rc;
	out->group_ops = t->group_ops = c->kind->group_ops(c);
	c->kind->count(c, &before);
	rc = run_block(c, out, block_ns);
	c->kind->count(c, &after);
	/* Of all its life: most switches come at the beginning, and a choice is no count. */
	before.switches = t->sums.switches;
	before.batches = t->sums.batches;
	before.batched = t->sums.batched;
	load_sums_add(&t->sums, &after, 1);
	load_sums_add(&t->sums, &before, -1);
	t->ns += out->ns;
	gn_hist_merge(&t->group_ns, &out->group_ns);
	return rc;
}

/* ---- … in virtual time ---- */

static void begin_phase(struct load_run *run, enum load_phase phase)
{
	run->phase = phase;
	run->mark(run);
}

/* took_ns: now_ns, if it is not known when they began. */
static void count_phase(struct load_run *run, uint64_t n, uint64_t now_ns, uint64_t took_ns)
{
	const struct load_length *l = &run->length;
	uint64_t ops, ns;

	run->ops += n;
	if (unlikely(run->progress && run->ops >= run->progress_ops)) {
		run->progress_ops += PROGRESS_OPS;
		run->progress(&run->pair.opts,
			      fmin(1, (double)run->ops / (double)(l->warm_ops + l->min_ops)));
	}
	if (run->phase == LOAD_SETUP)
		run->phase = LOAD_WARM;
	if (run->phase == LOAD_WARM) {
		if (run->ops < l->warm_ops || now_ns < run->start_ns + l->warm_ns)
			return;
		run->begin_ns = now_ns;
		run->begin_ops = run->ops;
		begin_phase(run, LOAD_MEASURED);
	} else if (run->phase == LOAD_MEASURED) {
		ops = run->ops - run->begin_ops;
		ns = now_ns - run->begin_ns;
		if (took_ns != now_ns)
			gn_hist_add(&run->tally[0].group_ns, took_ns, n);
		if ((ops < l->min_ops || ns < l->min_ns) && ops < l->max_ops && ns < l->max_ns)
			return;
		run->end_ns = now_ns;
		run->end_ops = run->ops;
		begin_phase(run, LOAD_OVER);
	}
}

static void look_at_phase(struct load_client *c, unsigned n, uint64_t began_ns)
{
	const uint64_t now_ns = gn_now_ns(), took_ns = now_ns - began_ns;

	c->own.ops += n;
	c->own.late += c->limit_ns && took_ns > c->limit_ns ? n : 0;
	c->own.below_7us += began_ns && took_ns < BELOW_NS ? n : 0;
	count_phase(c->run, n, now_ns, took_ns);
	c->stops = c->run->phase == LOAD_OVER;
	if (*c->interrupted)
		load_fail(c->run, -EINTR, "interrupted");
}

void load_look(struct load_client *c, unsigned n, uint64_t began_ns)
{
	if (c->run->simulated)
		look_at_phase(c, n, began_ns); /* look_at stays 0: all of them */
	else
		look_at_block(c);
}

void load_between(struct load_client *c)
{
	if (c->counts || !c->run->simulated || c->run->phase != LOAD_MEASURED)
		return;
	c->counts = true;
	c->kind->count(c, &c->before);
}

void load_client_ends(struct load_client *c)
{
	struct load_sums now = {0}, *sums = &c->tally->sums;
	const struct load_sums had = *sums;

	c->kind->count(c, &now);
	if (c->counts) {
		load_sums_add(sums, &now, 1);
		load_sums_add(sums, &c->before, -1);
	}
	/* Of all its life. */
	sums->switches = had.switches + now.switches;
	sums->repeats = had.repeats + now.repeats;
	sums->batches = had.batches + now.batches;
	sums->batched = had.batched + now.batched;
}

/* ---- results ---- */

void load_result_init(struct load_result *r)
{
	*r = (struct load_result){
		.run = {.p50_ns = NAN,
			.p99_ns = NAN,
			.p999_ns = NAN,
			.cacheline_ratio = NAN,
			.overhead_ns = NAN,
			.memcpy_ratio = NAN},
		.mops = NAN,
		.latency_ns_mean = NAN,
		.p15_ns = NAN,
		.limit_ratio = NAN,
		.server_wrs = NAN,
		.client_wrs = NAN,
		.round_trips = NAN,
		.doorbells = NAN,
		.cqes = NAN,
		.batch_fill = NAN,
		.batch = NAN,
		.server_cpu_percent = NAN,
		.misses = NAN,
		.served_misses = NAN,
		.interrupts = NAN,
		.cpu_ns = NAN,
		.wall_seconds = NAN,
	};
}

int load_no_memory(struct load_result *r)
{
	snprintf(r->error, sizeof(r->error), "there is not enough memory");
	return -ENOMEM;
}

void load_sheet_opts(struct bench_sheet *s, const struct load_opts *o)
{
	sheet_text(s, "provider", o->provider);
	sheet_text(s, "preset", load_presets[o->paper]);
	sheet_count(s, "seed", o->seed);
	if (!o->profile)
		return;
	sheet_text(s, "profile", o->profile);
	sheet_number(s, "effort", o->effort, 4);
}

void load_sheet_result(struct bench_sheet *s, const struct load_result *r)
{
	const struct load_sums *sums = &r->sums;
	const bool simulated = isfinite(r->wall_seconds);
	const double none = r->run.has_counters || simulated ? 0 :
							       NAN; /* NAN and a number is NAN */
	const double percent = sums->ops ? 100 / (double)sums->ops : NAN;
	const double one = simulated ? 0 : NAN;

	sheet_number(s, "seconds", r->run.seconds, 6);
	sheet_number(s, "calls", (double)r->run.ops, 0);
	sheet_number(s, "mops", r->mops, 9);
	sheet_number(s, "latency_us_mean", r->latency_ns_mean / 1000, 6);
	sheet_number(s, "p15_us", r->p15_ns / 1000, 4);
	sheet_number(s, "p50_us", r->run.p50_ns / 1000, 4);
	sheet_number(s, "p99_us", r->run.p99_ns / 1000, 4);
	sheet_number(s, "p999_us", r->run.p999_ns / 1000, 4);
	sheet_number(s, "pct_below_7us", one + percent * (double)sums->below_7us, 6);
	sheet_number(s, "pct_above_limit", one + percent * (double)sums->late, 6);
	sheet_number(s, "cacheline_ratio", r->run.cacheline_ratio, 3);
	sheet_number(s, "overhead_ns", r->run.overhead_ns, 1);
	sheet_number(s, "limit_ratio", r->limit_ratio, 3);
	sheet_number(s, "server_wrs_per_call", r->server_wrs, 4);
	sheet_number(s, "client_wrs_per_call", r->client_wrs, 4);
	sheet_number(s, "round_trips_per_call", r->round_trips, 6);
	sheet_number(s, "doorbells_per_call", r->doorbells, 4);
	sheet_number(s, "fetches_per_call",
		     none + (sums->calls ? (double)sums->fetches / (double)sums->calls : 0), 6);
	sheet_number(s, "fetches", none + (double)sums->fetches, 0);
	sheet_number(s, "failed_fetches", none + (double)sums->failed_fetches, 0);
	sheet_number(s, "second_reads", none + (double)sums->second_reads, 0);
	sheet_number(s, "switches", none + (double)sums->switches, 0);
	sheet_number(s, "batch_fill", r->batch_fill, 3);
	sheet_number(s, "batch_chosen", r->batch, 4);
	sheet_number(s, "server_cpu_percent", r->server_cpu_percent, 1);
	sheet_number(s, "blocks", simulated ? NAN : (double)r->run.blocks, 0);
	sheet_number(s, "blocks_dropped", simulated ? NAN : (double)r->run.blocks_dropped, 0);
	sheet_number(s, "events", one + (double)r->events, 0);
	sheet_number(s, "wall_seconds", r->wall_seconds, 3);
}
