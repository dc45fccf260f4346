/* SPDX-License-Identifier: MIT */
/*
 * A thread that reads and writes blocks of the lent memory through the engine of its process. It
 * submits all requests that are free as one list, and waits for the first to end: a closed loop
 * (or whole bursts), or requests that are due at a rate. Every READ's first word is checked, and at
 * the end every byte of the last blocks.
 */
#include <errno.h>
#include <time.h>

#include "choice.h"
#include "io_load.h"

#define NAP_US	      20u	 /* between two looks whether the target is open */
#define SAMPLE_LISTS  16u	 /* of the lists, one has a request whose time is taken */
#define GROUP_LISTS   8u	 /* so many times as many requests are timed together */
#define GROUP_BYTES   (4u << 20) /* … but not more bytes, or a group takes longer than a block */
#define CHANNEL_DEPTH 128u	 /* work requests, at least */
#define STAGING_MIN   (16u << 20)
#define STAGING_MAX   (1u << 30)
#define LOST_US	      5000000u /* of a lender that does not answer */

struct io_client {
	struct load_client base;
	struct io_run *run;
	struct io_process *process;
	struct io_queue queue;
	struct gn_source *source; /* with a rate */
	struct gn_io_mem *mem[2]; /* NULL: the buffers are not registered */
	uint8_t *buffers;
	struct gn_io_req *reqs;
	struct gn_io_sge *sges;
	uint64_t *began_ns;
	struct gn_io_req **idle; /* n_idle of them; those that ended last are behind */
	uint32_t depth, n_idle;
	uint64_t blocks, next_offset; /* next_offset: where the last request ended */
	struct choice random;
	uint32_t lists, sample_lists; /* since the last sample, and until the next */
	struct gn_io_req *sample;
	uint64_t sample_ns;
	uint64_t due_ns, interval_ns; /* with a rate: of the next request */
	uint64_t watched_ns;	      /* with a watch: when the last request ended */
	bool open;
};

static struct io_client *io_client_of(const struct load_client *c)
{
	return (struct io_client *)c; /* which it begins with */
}

/* ---- the process ---- */

static bool has_limit(const struct load_run *run)
{
	const struct bench_io_opts *o = &((const struct io_run *)run)->opts;

	return !run->simulated && !run->opts.host[0] && !o->burst && !o->rate && !o->kills;
}

/* Enough for all requests to be copied: a quarter of the staging area has buffers of one size. */
static uint32_t staging_bytes(const struct bench_io_opts *o, uint32_t under_way)
{
	const uint64_t bytes = 4ull * under_way * o->block_bytes;

	return bytes < STAGING_MIN ? STAGING_MIN :
	       bytes > STAGING_MAX ? STAGING_MAX :
				     (uint32_t)(bytes & ~(GN_PAGE - 1ull));
}

static struct gn_io_opts engine_opts(const struct load_proc *proc)
{
	const struct bench_io_opts *o = &((struct io_run *)proc->run)->opts;
	const uint32_t under_way = o->load.inflight * proc->n_clients;

	return (struct gn_io_opts){
		.size = sizeof(struct gn_io_opts),
		.batching = o->batching,
		.mr = o->mr == BENCH_IO_MR_REGISTERED ? GN_IO_MR_AUTO : (enum gn_io_mr)o->mr,
		.polling = o->poll,
		.read_window = o->window,
		.write_window = o->window,
		.channels = o->channels,
		.depth = under_way < CHANNEL_DEPTH	? CHANNEL_DEPTH :
			 under_way > BENCH_IO_DEPTH_MAX ? BENCH_IO_DEPTH_MAX :
							  under_way,
		.max_retry = o->max_retry,
		.lost_us = LOST_US,
		.staging_bytes = o->mr == BENCH_IO_MR_REGISTERED ? 0 : staging_bytes(o, under_way),
	};
}

static int io_proc_open(struct load_proc *proc)
{
	const struct gn_io_opts opts = engine_opts(proc);
	struct io_process *p;

	if (!proc->n_clients)
		return 0;
	p = gn_alloc(sizeof(*p), 0);
	if (!p)
		return load_check(proc->run, -ENOMEM, "memory for an engine");
	p->users = proc->n_clients;
	proc->state = p;
	if (((struct io_run *)proc->run)->opts.volume)
		return 0; /* made when its donors listen */
	return load_check(proc->run, gn_io_create(proc->fabric, &opts, &p->io),
			  "creating an engine");
}

static void io_proc_close(struct load_proc *proc)
{
	struct io_process *p = proc->state;

	if (!((struct io_run *)proc->run)->opts.volume)
		load_check(proc->run, gn_io_destroy(p->io), "destroying the engine");
	gn_free(p->lent);
	gn_free(p);
	proc->state = NULL;
}

static int target_open(struct io_client *c)
{
	struct io_process *p = c->process;
	const struct gn_io_range range = {.remote = c->run->remote,
					  .rights = GN_REMOTE_READ | GN_REMOTE_WRITE};
	const uint32_t machine = c->base.proc->first_client / c->base.proc->n_clients;
	struct gn_io_target_opts opts = {.size = sizeof(opts)};
	const struct gn_io_opts engine = engine_opts(c->base.proc);
	char addr[LOAD_ADDR_MAX];
	int rc;

	memcpy(opts.token, &machine, sizeof(machine));
	load_server_addr(c->base.run, 0, addr);
	if (c->run->opts.volume)
		rc = io_volume_open(c->base.proc, p, &engine);
	else
		rc = gn_io_target_open(p->io, addr, &opts, NULL, &p->target);
	if (!rc && !c->run->opts.volume)
		rc = gn_io_region_add(p->target, &range, &p->region);
	/* Pairs with the acquire in target_await(). */
	if (!rc)
		__atomic_store_n(&p->ready, 1, __ATOMIC_RELEASE);
	return load_check(c->base.run, rc, "connecting to the memory");
}

static int target_await(struct io_client *c)
{
	while (!__atomic_load_n(&c->process->ready, __ATOMIC_ACQUIRE)) {
		if (load_gives_up(&c->base))
			return -EINTR;
		gn_sleep_us(NAP_US);
	}
	return 0;
}

/* The last thread closes what the first has opened. */
static void target_close(struct io_client *c)
{
	struct io_process *p = c->process;

	if (__atomic_sub_fetch(&p->users, 1, __ATOMIC_ACQ_REL))
		return;
	if (c->run->opts.volume) {
		load_check(c->base.run, io_volume_close(p), "closing the volume");
		return;
	}
	gn_io_region_remove(p->region);
	load_check(c->base.run, gn_io_target_close(p->target), "closing the target");
}

/* ---- beginning and end ---- */

static int make_requests(struct io_client *c)
{
	const struct bench_io_opts *o = &c->run->opts;
	const size_t bytes = (size_t)c->depth * o->block_bytes;
	struct io_process *p = c->process;
	int rc = 0;

	c->reqs = gn_alloc(c->depth * sizeof(*c->reqs), 64);
	c->sges = gn_alloc((size_t)c->depth * o->sges * sizeof(*c->sges), 0);
	c->idle = gn_alloc(c->depth * sizeof(struct gn_io_req *), 0);
	c->began_ns = gn_alloc(c->depth * sizeof(*c->began_ns), 0);
	c->buffers = gn_alloc(bytes, GN_PAGE);
	if (!c->reqs || !c->sges || !c->idle || !c->began_ns || !c->buffers)
		return -ENOMEM;
	/* Neighbouring SGEs have different keys: the engine would join them otherwise. */
	for (uint32_t i = 0; i < (o->sges > 1 ? 2 : 1) && o->mr == BENCH_IO_MR_REGISTERED; i++) {
		rc = gn_io_mem_register(p->io, c->buffers, bytes, &c->mem[i]);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < c->depth; i++) {
		uint8_t *buffer = c->buffers + (size_t)i * o->block_bytes;

		pattern_fill(buffer, o->block_bytes, o->load.seed);
		for (uint32_t s = 0; s < o->sges; s++)
			c->sges[i * o->sges + s] =
				(struct gn_io_sge){.addr = buffer + s * (o->block_bytes / o->sges),
						   .len_bytes = o->block_bytes / o->sges,
						   .mem = c->mem[s % 2]};
		c->reqs[i] = (struct gn_io_req){
			.n_sge = o->sges, .region = p->region, .sge = &c->sges[i * o->sges]};
		c->idle[i] = &c->reqs[i];
	}
	c->n_idle = c->depth;
	rc = io_queue_create(p, c->reqs, c->depth, &c->queue);
	return rc || !o->rate ? rc : io_queue_source(&c->queue, &c->source);
}

static int touch_region(struct io_client *c, enum gn_io_op op);

static int io_open(struct load_client *base)
{
	struct io_client *c = io_client_of(base);
	const bool first = base->number == base->proc->first_client;
	const struct bench_io_opts *o;
	int rc;

	c->run = (struct io_run *)base->run; /* which begins with it */
	c->process = base->proc->state;
	c->open = true;
	o = &c->run->opts;
	c->depth = o->burst ? o->burst : o->load.inflight;
	c->blocks = o->region_bytes / o->block_bytes;
	c->next_offset = o->region_bytes;
	c->random.state = choice_scramble(o->load.seed + ((uint64_t)base->number << 32));
	c->sample_lists = o->burst || o->rate ? 1 : SAMPLE_LISTS;
	base->slack_ns = 2000ull * o->gap_us;
	if (o->rate)
		c->interval_ns = 1000000000ull * base->proc->n_clients / o->rate;
	rc = first ? target_open(c) : target_await(c);
	if (!rc)
		rc = load_check(base->run, make_requests(c), "making requests");
	if (!rc && first && o->volume)
		rc = touch_region(c, GN_IO_WRITE);
	if (!rc && first && has_limit(base->run))
		rc = touch_region(c, GN_IO_READ);
	if (!rc && first && has_limit(base->run))
		rc = load_check(base->run, io_lent_find(c->run, c->process),
				"finding the lent memory for memcpy");
	return rc;
}

static void io_close(struct load_client *base)
{
	struct io_client *c = io_client_of(base);

	if (!c->open)
		return;
	load_check(base->run, io_queue_destroy(&c->queue), "destroying a queue");
	gn_io_mem_deregister(c->mem[0]);
	gn_io_mem_deregister(c->mem[1]);
	target_close(c);
	gn_free(c->reqs);
	gn_free(c->sges);
	gn_free(c->idle);
	gn_free(c->began_ns);
	gn_free(c->buffers);
}

/* ---- requests ---- */

static inline uint64_t draw_offset(struct io_client *c, uint64_t random)
{
	const struct bench_io_opts *o = &c->run->opts;
	uint64_t offset = c->next_offset;

	/* The low bits choose; the high bits are the block. */
	if ((uint32_t)random % 100 >= o->adjacent_pct || offset + o->block_bytes > o->region_bytes)
		offset = (uint64_t)((unsigned __int128)choice_scramble(random) * c->blocks >> 64) *
			 o->block_bytes;
	c->next_offset = offset + o->block_bytes;
	return offset;
}

static inline enum gn_io_op draw_op(const struct bench_io_opts *o, uint64_t random)
{
	return o->op == BENCH_IO_MIXED ? (enum gn_io_op)(random >> 40 & 1) : (enum gn_io_op)o->op;
}

static inline void prepare(struct io_client *c, struct gn_io_req *req, uint64_t began_ns)
{
	const uint64_t random = choice_word(&c->random);

	req->offset = draw_offset(c, random);
	req->op = draw_op(&c->run->opts, random);
	c->began_ns[req - c->reqs] = began_ns;
	if (req->op == GN_IO_WRITE) {
		const uint64_t word = io_first_word(req->offset, c->run->opts.load.seed);

		memcpy(req->sge->addr, &word, sizeof(word));
	}
}

static int complain(struct io_client *c, const struct gn_io_req *req)
{
	if (req->status)
		return load_fail(c->base.run, req->status, "a %s at %llu failed: %s",
				 bench_io_ops[req->op], (unsigned long long)req->offset,
				 gn_strerror(req->status));
	return load_fail(c->base.run, -EBADMSG, "the bytes at %llu are wrong",
			 (unsigned long long)req->offset);
}

static inline int check_first(struct io_client *c, const struct gn_io_req *req)
{
	const uint64_t word = io_first_word(req->offset, c->run->opts.load.seed);

	if (unlikely(req->status ||
		     (req->op == GN_IO_READ && memcmp(req->sge->addr, &word, sizeof(word)) != 0)))
		return complain(c, req);
	return 0;
}

static void take_sample(struct io_client *c)
{
	struct gn_io_stats stats = {.size = sizeof(stats)};

	if (c->sample && c->base.block)
		gn_hist_add(&c->base.tally->latency_ns, gn_now_ns() - c->sample_ns, 1);
	c->sample = NULL;
	if (gn_io_query(c->process->io, &stats))
		return;
	c->base.own.inflight_bytes += stats.in_flight[GN_IO_READ] + stats.in_flight[GN_IO_WRITE];
	c->base.own.inflight_samples++;
}

/* Submits the first n idle requests, which are prepared. Staging buffers may all be in use. */
static inline int submit(struct io_client *c, uint32_t n)
{
	int rc;

	if (!n)
		return 0;
	if (unlikely(++c->lists >= c->sample_lists) && !c->base.run->simulated) {
		c->lists = 0;
		c->sample = c->idle[0];
		c->sample_ns = c->interval_ns ? c->began_ns[c->sample - c->reqs] : gn_now_ns();
	}
	rc = io_queue_submit(&c->queue, c->idle, n);
	if (unlikely(rc < 0))
		return rc == -EAGAIN ? 0 : load_check(c->base.run, rc, "submitting requests");
	c->n_idle -= (uint32_t)rc;
	if (c->n_idle)
		memmove(c->idle, c->idle + rc, c->n_idle * sizeof(c->idle[0]));
	return 0;
}

/* n requests, behind the idle ones, have ended. */
static inline int take(struct io_client *c, int n)
{
	struct gn_io_req **ended = c->idle + c->n_idle;
	int rc = 0;

	if (c->base.run->simulated)
		take_sample(c); /* which takes no virtual time */
	for (int i = 0; i < n; i++) {
		const int wrong = check_first(c, ended[i]);

		if (unlikely(wrong && !rc))
			rc = wrong;
		if (unlikely(ended[i] == c->sample))
			take_sample(c);
		if (c->base.run->simulated)
			load_done(&c->base, 1, c->began_ns[ended[i] - c->reqs]);
	}
	c->n_idle += (uint32_t)n;
	if (!c->base.run->simulated)
		load_done(&c->base, (unsigned)n, 0);
	if (unlikely(c->process->watch))
		io_watch_note(c->process->watch, (uint32_t)n, &c->watched_ns);
	return rc;
}

/* Waits until some end. */
static inline int await(struct io_client *c, uint64_t deadline_ns)
{
	int n;

	if (unlikely(c->n_idle == c->depth)) { /* other threads use all staging buffers */
		gn_sleep_us(1);
		return 0;
	}
	n = io_queue_wait(&c->queue, c->idle + c->n_idle, c->depth - c->n_idle, deadline_ns);
	if (unlikely(n < 0))
		return n == -EINTR ? 0 : n;
	return take(c, n);
}

/* Takes those that have ended, and returns how many. */
static int take_ended(struct io_client *c, int *rc)
{
	const int n = io_queue_poll(&c->queue, c->idle + c->n_idle, c->depth - c->n_idle);

	*rc = n < 0 ? load_check(c->base.run, n, "polling") : n ? take(c, n) : 0;
	return n;
}

static int await_or_fail(struct io_client *c)
{
	const int rc = await(c, c->base.deadline_ns);

	return unlikely(rc) ? load_check(c->base.run, rc, "waiting for requests") : 0;
}

/* ---- loops ---- */

static int run_closed(struct io_client *c)
{
	int rc = 0;

	while (!rc && !load_stops(&c->base)) {
		const uint64_t began_ns = load_stamp(&c->base);

		for (uint32_t i = 0; i < c->n_idle; i++)
			prepare(c, c->idle[i], began_ns);
		rc = submit(c, c->n_idle);
		if (!rc)
			rc = await_or_fail(c);
		load_between(&c->base);
	}
	return rc;
}

static int run_bursts(struct io_client *c)
{
	int rc = 0;

	while (!rc && !load_stops(&c->base)) {
		const uint64_t began_ns = load_stamp(&c->base);
		uint32_t left = c->depth;

		for (uint32_t i = 0; i < c->depth; i++)
			prepare(c, c->idle[i], began_ns);
		while (!rc && (left || c->n_idle < c->depth)) {
			const uint32_t idle = c->n_idle;

			/* What was not submitted is first. */
			rc = submit(c, left);
			left -= idle - c->n_idle;
			if (!rc)
				rc = await_or_fail(c);
		}
		load_between(&c->base);
		if (c->run->opts.gap_us && !load_stops(&c->base))
			gn_sleep_us(c->run->opts.gap_us);
	}
	return rc;
}

/*
 * Requests are due at a rate, as in an event loop: the thread sleeps until one is due or has ended,
 * while the engine's service thread looks for completions. The rate goes on from block to block.
 */
static int run_rate(struct io_client *c)
{
	struct gn_wait_item item = gn_wait_on(c->source);
	int rc = 0;

	if (!c->due_ns)
		c->due_ns = gn_now_ns() +
			    c->interval_ns * (c->base.number + 1) / c->base.proc->n_clients;
	while (!rc && !load_stops(&c->base)) {
		const uint64_t now_ns = gn_now_ns();
		uint32_t n = 0;

		for (; n < c->n_idle && c->due_ns <= now_ns; c->due_ns += c->interval_ns)
			prepare(c, c->idle[n++], c->due_ns);
		rc = submit(c, n);
		if (!rc && (c->n_idle == c->depth || !take_ended(c, &rc)) && !rc) {
			const uint64_t until_ns = c->n_idle ? c->due_ns : c->base.deadline_ns;

			rc = gn_wait_sleep(&item, 1, until_ns, "requests");
			rc = rc >= 0 || rc == -EINTR || (rc == -ETIMEDOUT && c->n_idle) ? 0 : rc;
			load_check(c->base.run, rc, "waiting for requests");
		}
		load_between(&c->base);
	}
	return rc;
}

static int io_rest(struct load_client *base);

static int io_run_requests(struct load_client *base)
{
	struct io_client *c = io_client_of(base);
	const struct bench_io_opts *o = &c->run->opts;
	const int rc = o->rate ? run_rate(c) : o->burst ? run_bursts(c) : run_closed(c);

	/* Client 0 waits for the others, and these for its requests that overlap. */
	return rc || !o->volume || base->number || o->load.clients == 1 || base->run->simulated ?
		       rc :
		       io_rest(base);
}

/* ---- the limit ---- */

static int io_rest(struct load_client *base)
{
	struct io_client *c = io_client_of(base);
	int rc = 0;

	base->deadline_ns = gn_deadline_us(LOAD_OP_US);
	while (!rc && c->n_idle < c->depth && !*base->interrupted)
		rc = await_or_fail(c);
	return *base->interrupted ? -EINTR : rc;
}

/* What a list of requests does. */
static int copy_list(struct io_client *c, uint32_t n)
{
	const uint32_t bytes = c->run->opts.block_bytes;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		prepare(c, &c->reqs[i], 0);
	for (uint32_t i = 0; i < n; i++) {
		const struct gn_io_req *req = &c->reqs[i];
		uint8_t *lent = io_lent_at(c->process, req->offset);

		if (req->op == GN_IO_READ)
			memcpy(req->sge->addr, lent, bytes);
		else
			memcpy(lent, req->sge->addr, bytes);
	}
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = check_first(c, &c->reqs[i]);
	return rc;
}

static int io_limit(struct load_client *base, uint64_t block_ns, struct block *out)
{
	struct io_client *c = io_client_of(base);
	uint64_t since_ns;
	int rc;

	rc = io_rest(base); /* which has the requests that the copies use */
	out->group_ops = base->kind->group_ops(base);
	since_ns = gn_now_ns();
	while (!rc && out->ns < block_ns && !load_gives_up(base)) {
		for (uint64_t left = out->group_ops; left && !rc;) {
			const uint32_t n = left < c->depth ? (uint32_t)left : c->depth;

			rc = copy_list(c, n);
			left -= n;
		}
		since_ns = block_group(out, since_ns);
	}
	return load_gives_up(base) ? -EINTR : rc;
}

/* ---- apart from what is measured ---- */

/* READs a block of every page of the region, so that it is mapped; or WRITEs every block. */
static int touch_region(struct io_client *c, enum gn_io_op op)
{
	const struct bench_io_opts *o = &c->run->opts;
	const uint64_t pages = (GN_PAGE + o->block_bytes - 1) / o->block_bytes * o->block_bytes;
	const uint64_t step = op == GN_IO_READ ? pages : o->block_bytes;
	uint64_t at = 0;
	int rc = 0;

	c->base.look_at = UINT64_MAX;
	while (!rc && at + o->block_bytes <= o->region_bytes && !load_gives_up(&c->base)) {
		uint32_t n = 0;

		for (; n < c->depth && at + n * step + o->block_bytes <= o->region_bytes; n++) {
			const uint64_t word = io_first_word(at + n * step, o->load.seed);

			c->idle[n]->op = op;
			c->idle[n]->offset = at + n * step;
			if (op == GN_IO_WRITE)
				memcpy(c->idle[n]->sge->addr, &word, sizeof(word));
		}
		rc = submit(c, n);
		at += step * (c->depth - c->n_idle);
		if (!rc)
			rc = io_rest(&c->base);
	}
	c->base.look_at = 0; /* from now on requests count */
	c->base.deadline_ns = GN_FOREVER;
	return load_gives_up(&c->base) ? -EINTR : rc;
}

/* Reads the last blocks again: every byte. */
static int io_check(struct load_client *base)
{
	struct io_client *c = io_client_of(base);
	const struct bench_io_opts *o = &c->run->opts;
	uint8_t *want = gn_alloc(o->block_bytes, 0);
	int rc = load_check(base->run, want ? 0 : -ENOMEM, "memory for a block");

	for (uint32_t i = 0; !rc && i < c->depth; i++) {
		struct gn_io_req *req = &c->reqs[i];

		req->op = GN_IO_READ;
		memset(req->sge->addr, 0, o->block_bytes);
		rc = load_check(base->run, io_queue_run(&c->queue, req), "reading a block again");
		io_fill(want, o->block_bytes, req->offset, o->load.seed);
		if (!rc && memcmp(want, req->sge->addr, o->block_bytes) != 0)
			rc = complain(c, req);
	}
	gn_free(want);
	return rc;
}

/* The engine's counters are those of all threads: the first one counts them. */
static void io_count(const struct load_client *base, struct load_sums *out)
{
	const struct io_client *c = io_client_of(base);
	struct gn_io_stats stats = {.size = sizeof(stats)};
	struct timespec cpu;

	*out = base->own;
	if (!base->run->simulated)
		out->ops = base->ended;
	if (base->number != base->proc->first_client || gn_io_query(c->process->io, &stats))
		return;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	out->cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
	out->calls = c->process->vol ? io_volume_requests(c->process) :
				       stats.requests[GN_IO_READ] + stats.requests[GN_IO_WRITE];
	out->wrs = stats.wrs;
	out->doorbells = stats.doorbells;
	out->events = stats.events;
	out->polls = stats.polls;
	out->empty_polls = stats.polls_empty;
	out->wakeups = stats.wakeups;
	out->held_back = stats.waited;
	for (unsigned op = 0; op < GN_IO_OPS; op++)
		if (stats.in_flight_max[op] > base->tally->inflight_max)
			base->tally->inflight_max = stats.in_flight_max[op];
}

static uint64_t io_group_ops(const struct load_client *base)
{
	const struct bench_io_opts *o = &((const struct io_run *)base->run)->opts;
	const uint64_t ops =
		GROUP_LISTS *
		(uint64_t)(o->load.inflight < GROUP_TRIPS ? GROUP_TRIPS : o->load.inflight);
	const uint64_t most = GROUP_BYTES / o->block_bytes;

	if (o->rate || o->burst)
		return o->burst ? o->burst : 1;
	return ops < most ? ops : most > o->load.inflight ? most : o->load.inflight;
}

const struct load_kind load_io = {
	.name = "io",
	.threads = true,
	.proc_open = io_proc_open,
	.proc_close = io_proc_close,
	.serve = io_serve,
	.client_bytes = sizeof(struct io_client),
	.open = io_open,
	.run = io_run_requests,
	.limit = io_limit,
	.rest = io_rest,
	.check = io_check,
	.close = io_close,
	.count = io_count,
	.group_ops = io_group_ops,
};
