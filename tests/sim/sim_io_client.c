/* SPDX-License-Identifier: MIT */
/*
 * A client of the test: threads that share an engine read and write blocks of their own, and check
 * that each line of a block is the last that was written, or one whose WRITE may have landed.
 */
#include <errno.h>
#include <string.h>

#include "sim_io.h"

#define DEPTH_MAX   16u
#define LEN_MAX	    4u /* blocks of a request */
#define ATTEMPTS    2000u
#define UNTIL_NS    20000000000ull
#define END_NS	    30000000000ull
#define LIVES_MAX   12u /* of all clients: with many crashes they begin again and again */
#define MEMORY_US   1000u
#define WAIT_US	    2000u
#define WAIT_MAX_NS 1000000u /* without faults */
#define ROUND_US    5000u    /* all threads begin at the same time: a lost wake-up lasts long */
#define GENERATIONS 65536u /* of one session at most */

struct op {
	struct gn_io_req req;
	struct gn_io_sge sge;
	unsigned block, n;
	uint32_t version;
	bool busy, cancelled;
	uint8_t *bytes;
};

struct client {
	struct world *w;
	unsigned index;
	struct gn_io *io;
	struct gn_io_target *target;
	struct gn_io_region *region;
	struct gn_thread *threads[THREADS_MAX];
	struct gn_mutex lock;
};

struct thread {
	struct client *c;
	unsigned index, steps;
	struct gn_io_queue *queue;
	struct op op[DEPTH_MAX];
	uint8_t *bytes;
	bool busy[BLOCKS];
};

/* ---- the model ---- */

static void block_maybe(struct world *w, struct block *block, uint32_t version)
{
	if (block->n_maybe == MAYBE_MAX)
		world_fail(w, "the test has no space for another version");
	else
		block->maybe[block->n_maybe++] = version;
}

static void op_fill(const struct client *c, struct op *op)
{
	for (unsigned i = 0; i < op->n * LINES; i++)
		for (unsigned k = 0; k < 8; k++) {
			const uint64_t word =
				line_word(c->index, op->block + i / LINES, i % LINES, op->version);

			memcpy(op->bytes + i * 64 + k * 8, &word, 8);
		}
}

static bool line_is(const uint8_t *at, uint64_t word)
{
	for (unsigned k = 0; k < 8; k++)
		if (memcmp(at + k * 8, &word, 8))
			return false;
	return true;
}

static void op_check_read(const struct client *c, const struct op *op)
{
	struct world *w = c->w;

	for (unsigned i = 0; i < op->n * LINES; i++) {
		const unsigned number = op->block + i / LINES;
		const struct block *block = &w->blocks[c->index][number];
		const uint8_t *at = op->bytes + i * 64;
		bool good = line_is(at, line_word(c->index, number, i % LINES, block->written));
		uint64_t word;

		for (unsigned m = 0; !good && m < block->n_maybe; m++)
			good = line_is(at, line_word(c->index, number, i % LINES, block->maybe[m]));
		memcpy(&word, at, 8);
		if (!good)
			world_fail(w, "client %u, block %u, line %u: %llx instead of version %u",
				   c->index, number, i % LINES, (unsigned long long)word,
				   block->written);
	}
}

static void op_ended(struct thread *t, struct op *op)
{
	struct client *c = t->c;
	struct world *w = c->w;
	const int status = op->req.status;

	w->run.ended++;
	op->busy = false;
	memset(&t->busy[op->block], 0, op->n);
	w->run.active_ns = gn_sim_now_ns(w->run.sim);
	w->sums.timeouts += status == -ETIMEDOUT;
	w->sums.cancelled += status == -ECANCELED;
	w->sums.lost += status == -ESTALE;
	world_log(w, "thread %u: %s of %u blocks at %u, version %u: %s", t->index,
		  op->req.op == GN_IO_READ ? "READ" : "WRITE", op->n, op->block, op->version,
		  gn_strerror(status));
	if (status && status != -ESTALE && status != -ETIMEDOUT && status != -ECANCELED)
		world_fail(w, "a request ended with %s", gn_strerror(status));
	if (status == -ECANCELED && !op->cancelled)
		world_fail(w, "a request that nobody cancelled was cancelled");
	if (status == -ETIMEDOUT && !op->req.deadline_ns)
		world_fail(w, "a request without a deadline timed out");
	if (op->req.op == GN_IO_READ) {
		if (!status)
			op_check_read(c, op);
		w->sums.reads += !status;
		return;
	}
	for (unsigned i = 0; i < op->n; i++) {
		struct block *block = &w->blocks[c->index][op->block + i];

		/* A WRITE that ended well is the only one that can be there: the others cannot land. */
		if (!status) {
			block->written = op->version;
			block->n_maybe = 0;
		}
	}
	w->sums.writes += !status;
	w->sums.uncertain += status != 0;
}

/* ---- a thread ---- */

static bool op_draw(struct thread *t, struct op *op)
{
	const struct plan *plan = &t->c->w->plan;
	const unsigned group = (unsigned)gn_random() % plan->groups * plan->n_threads + t->index;
	const unsigned at = (unsigned)gn_random() % GROUP, left = GROUP - at;
	const bool read = gn_random() % 100 < plan->reads;

	op->block = group * GROUP + at;
	op->n = 1 + (unsigned)gn_random() % (left < LEN_MAX ? left : LEN_MAX);
	for (unsigned i = 0; i < op->n; i++)
		if (t->busy[op->block + i] ||
		    (!read && t->c->w->blocks[t->c->index][op->block + i].n_maybe == MAYBE_MAX))
			return false;
	op->sge = (struct gn_io_sge){.addr = op->bytes, .len_bytes = op->n * BLOCK};
	op->req = (struct gn_io_req){
		.op = read ? GN_IO_READ : GN_IO_WRITE,
		.region = t->c->region,
		.offset = CLIENT_START + op->block * BLOCK,
		.sge = &op->sge,
		.n_sge = 1,
		.deadline_ns = gn_random() % 100 < plan->deadlines ?
				       gn_deadline_us(20 + gn_random() % 20000) :
				       0,
		.user = op,
	};
	op->version = ++t->c->w->version;
	op->cancelled = false;
	if (!read)
		op_fill(t->c, op);
	return true;
}

/* Before the submit: from then on the WRITE may land. */
static void op_note(struct thread *t, struct op *op)
{
	op->busy = true;
	memset(&t->busy[op->block], 1, op->n);
	for (unsigned i = 0; op->req.op == GN_IO_WRITE && i < op->n; i++)
		block_maybe(t->c->w, &t->c->w->blocks[t->c->index][op->block + i], op->version);
}

static void op_forget(struct thread *t, struct op *op)
{
	op->busy = false;
	memset(&t->busy[op->block], 0, op->n);
	for (unsigned i = 0; op->req.op == GN_IO_WRITE && i < op->n; i++)
		t->c->w->blocks[t->c->index][op->block + i].n_maybe--;
}

static void thread_submit(struct thread *t)
{
	struct world *w = t->c->w;
	struct gn_io_req *list[DEPTH_MAX];
	unsigned n = 0;
	int rc;

	for (unsigned i = 0; i < w->plan.depth && t->steps; i++) {
		struct op *op = &t->op[i];

		if (op->busy || gn_random() % 3 == 0 || !op_draw(t, op))
			continue;
		op_note(t, op);
		list[n++] = &op->req;
		t->steps--;
	}
	rc = gn_io_submit(t->queue, list, n);
	if (rc < 0 && rc != -EAGAIN && rc != -ESTALE &&
	    !(rc == -ENOMEM && w->plan.cluster.no_memory))
		world_fail(w, "submit: %s", gn_strerror(rc));
	rc = rc < 0 ? 0 : rc;
	w->run.submitted += (unsigned)rc;
	for (unsigned i = (unsigned)rc; i < n; i++)
		op_forget(t, list[i]->user);
}

static unsigned thread_under_way(const struct thread *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < DEPTH_MAX; i++)
		n += t->op[i].busy;
	return n;
}

static void thread_wait(struct thread *t)
{
	struct world *w = t->c->w;
	const uint64_t start_ns = gn_now_ns();
	struct gn_io_req *ended[DEPTH_MAX];
	/* Half of the waits have no deadline: a wake-up that was lost ends the run. */
	const int rc =
		gn_io_wait(t->queue, ended, DEPTH_MAX,
			   gn_random() % 2 ? GN_FOREVER : gn_deadline_us(gn_random() % WAIT_US));

	if (w->plan.rounds && rc > 0 && gn_now_ns() - start_ns > WAIT_MAX_NS)
		world_fail(w, "a wait took %llu ns", (unsigned long long)(gn_now_ns() - start_ns));
	for (int i = 0; i < rc; i++)
		op_ended(t, ended[i]->user);
}

static void thread_loop(struct thread *t)
{
	struct world *w = t->c->w;

	while (t->steps && !*w->run.failure && gn_sim_now_ns(w->run.sim) < UNTIL_NS &&
	       !gn_io_target_state(t->c->target)) {
		thread_submit(t);
		for (unsigned i = 0; i < w->plan.depth; i++)
			if (t->op[i].busy && gn_random() % 100 < w->plan.cancels) {
				t->op[i].cancelled = true;
				gn_io_cancel(&t->op[i].req);
			}
		thread_wait(t);
		if (w->plan.rounds)
			gn_sleep_us(ROUND_US - gn_now_ns() / 1000 % ROUND_US);
		if (gn_random() % 16 == 0)
			gn_sleep_us(gn_random() % 200);
	}
	while (thread_under_way(t) && !*w->run.failure && gn_sim_now_ns(w->run.sim) < END_NS)
		thread_wait(t);
	if (thread_under_way(t))
		world_fail(w, "%u requests do not end", thread_under_way(t));
}

static void thread_main(void *arg)
{
	struct thread *t = arg;
	int rc;

	while ((rc = gn_io_queue_create(t->c->io, DEPTH_MAX, &t->queue)) == -ENOMEM)
		gn_sleep_us(MEMORY_US);
	if (rc) {
		world_fail(t->c->w, "no queue: %s", gn_strerror(rc));
		return;
	}
	thread_loop(t);
	if (!thread_under_way(t) && gn_io_queue_destroy(t->queue))
		world_fail(t->c->w, "a queue cannot be destroyed");
}

/* ---- a client ---- */

/* Connects to the lender that is there. A new one has other memory. */
static int client_open(struct client *c)
{
	struct world *w = c->w;
	struct gn_io_target_opts opts = {
		.size = sizeof(opts), .token = {(uint8_t)c->index}, .timeout_us = 5000};
	struct gn_io_range range = {.remote = {.length = CLIENT_STRIDE},
				    .rights = GN_REMOTE_READ | GN_REMOTE_WRITE};
	const uint64_t incarnation = w->incarnation;
	int rc;

	opts.incarnation = incarnation;
	opts.generation = (w->generation[c->index] += GENERATIONS);
	rc = gn_io_target_open(c->io, ADDR, &opts, NULL, &c->target);
	if (rc)
		return rc;
	/* Accepted: the keys are those of this incarnation, and so is the memory. */
	if (w->seen[c->index] != incarnation)
		memset(w->blocks[c->index], 0, sizeof(w->blocks[c->index]));
	w->seen[c->index] = incarnation;
	range.remote.key = w->keys[c->index];
	rc = gn_io_region_add(c->target, &range, &c->region);
	if (rc) {
		gn_io_target_close(c->target);
		c->target = NULL;
	}
	return rc;
}

static void client_close(struct client *c)
{
	if (gn_io_region_remove(c->region) || gn_io_target_close(c->target))
		world_fail(c->w, "a target cannot be closed: %s", gn_error());
	c->region = NULL;
	c->target = NULL;
}

/* An earlier user of the session comes back: it must not get in. */
static void client_intrude(struct client *c)
{
	struct world *w = c->w;
	struct gn_io_target_opts opts = {.size = sizeof(opts),
					 .token = {(uint8_t)c->index},
					 .incarnation = w->seen[c->index],
					 .generation = w->generation[c->index] - GENERATIONS + 1,
					 .timeout_us = 5000};
	struct gn_io_target *target;

	if (gn_io_target_open(c->io, ADDR, &opts, NULL, &target))
		return;
	world_fail(w, "a lower generation was accepted");
	gn_io_target_close(target);
}

static void client_threads(struct client *c, struct thread *threads)
{
	const unsigned n = c->w->plan.n_threads;
	unsigned started = 0;

	for (; started < n; started++)
		if (gn_thread_start("io", thread_main, &threads[started], &c->threads[started]))
			break;
	if (c->w->plan.intrudes)
		client_intrude(c);
	for (unsigned i = 0; i < started; i++)
		gn_thread_join(c->threads[i]);
}

static void client_stats(struct client *c)
{
	struct sums *sums = &c->w->sums;
	struct gn_io_stats stats = {.size = sizeof(stats)};

	gn_io_query(c->io, &stats);
	sums->merged += stats.merged;
	sums->waited += stats.waited;
	sums->repeated += stats.repeated;
	sums->reconnects += stats.reconnects;
	sums->slept += stats.wakeups;
	if ((stats.in_flight[0] || stats.in_flight[1]) && !*c->w->run.failure)
		world_fail(c->w, "%llu bytes are in flight at the end",
			   (unsigned long long)(stats.in_flight[0] + stats.in_flight[1]));
	for (unsigned op = 0; op < GN_IO_OPS; op++)
		if (stats.in_flight_max[op] > stats.window[op] &&
		    stats.window[op] >= LEN_MAX * BLOCK &&
		    (op ? c->w->plan.opts.write_window : c->w->plan.opts.read_window) !=
			    GN_IO_WINDOW_AUTO)
			world_fail(c->w, "%llu bytes were in flight: more than the window",
				   (unsigned long long)stats.in_flight_max[op]);
}

static void client_run(struct client *c)
{
	struct world *w = c->w;
	struct thread *threads = gn_alloc(sizeof(*threads) * THREADS_MAX, 0);
	uint8_t *bytes = gn_alloc(THREADS_MAX * DEPTH_MAX * LEN_MAX * BLOCK, 0);
	unsigned left = 1;

	if (!threads || !bytes)
		goto out;
	for (unsigned i = 0; i < THREADS_MAX; i++) {
		threads[i].c = c;
		threads[i].index = i;
		threads[i].steps = w->plan.steps;
		for (unsigned k = 0; k < DEPTH_MAX; k++)
			threads[i].op[k].bytes =
				bytes + (i * DEPTH_MAX + k) * (size_t)(LEN_MAX * BLOCK);
	}
	for (unsigned i = 0;
	     i < ATTEMPTS && left && !*w->run.failure && gn_sim_now_ns(w->run.sim) < UNTIL_NS;
	     i++) {
		if (client_open(c)) {
			gn_sleep_us(MEMORY_US);
			continue;
		}
		client_threads(c, threads);
		client_close(c);
		left = 0;
		for (unsigned k = 0; k < w->plan.n_threads; k++)
			left += threads[k].steps;
	}
	w->sums.healed += !left;
	if (left && w->plan.heals && !w->plan.cluster.no_memory)
		world_fail(w, "a client did not come to its end");
	client_stats(c);
out:
	gn_free(bytes);
	gn_free(threads);
}

int client_main(struct gn_env *env, int argc, char **argv)
{
	const struct seeds_client *arg = env->arg;
	struct world *w = (struct world *)arg->run;
	struct client c = {.w = w, .index = arg->index};
	struct gn_io_opts opts = w->plan.opts;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	if (w->lives++ >= LIVES_MAX) {
		w->run.clients_over++;
		return 0;
	}
	rc = seeds_fabric_open(env, 100, MEMORY_US, &fabric);
	if (rc)
		return w->plan.cluster.no_memory ? 0 : 1;
	opts.size = sizeof(opts);
	rc = gn_io_create(fabric, &opts, &c.io);
	if (!rc) {
		client_run(&c);
		if (gn_io_destroy(c.io) && !*w->run.failure)
			world_fail(w, "the engine cannot be destroyed: %s", gn_error());
	} else if (rc != -ENOMEM || !w->plan.cluster.no_memory) {
		world_fail(w, "no engine: %s", gn_strerror(rc));
	}
	if (!*w->run.failure)
		seeds_fabric_close(&w->run, fabric, "a client");
	w->run.clients_over++;
	return 0;
}
