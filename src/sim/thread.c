/* SPDX-License-Identifier: MIT */
/*
 * Simulated threads. Each has its own stack and one event, which is queued exactly while the thread
 * can continue, now or at a deadline.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/list.h"
#include "base/real.h"
#include "sim/nodes.h"

static void thread_switch_away(struct sim_thread *self)
{
	struct gn_sim *sim = self->proc->sim;

	/*
	 * If the program runs fibers, this may be one of their stacks; the switch works all the
	 * same.
	 */
	gn_fiber_switch(self->fiber, sim->scheduler);
}

static void thread_drop_stack(struct sim_thread *thread)
{
	if (!thread->fiber)
		return;
	gn_fiber_destroy(thread->fiber);
	thread->fiber = NULL;
	thread->proc->sim->n_stacks--;
}

/* Engine: runs the thread until it parks or ends. */
static void thread_resume(struct sim_event *event)
{
	struct sim_thread *thread = container_of(event, struct sim_thread, run);
	struct gn_sim *sim = thread->proc->sim;
	const uint64_t own_number = real_own_number;

	if (thread->proc->ending)
		return;
	if (unlikely(thread->proc->node->paused_until_ps > sim->engine.now_ps)) {
		thread->held_up = true;
		sim_event_at(&sim->engine, event, thread->proc->node->paused_until_ps);
		return;
	}
	thread->held_up = false;
	sim->thread = thread;
	sim->proc = thread->proc;
	real_own_number = sim_thread_number(thread);
	gn_fiber_switch(sim->scheduler, thread->fiber);
	real_own_number = own_number;
	sim->thread = NULL;
	sim->proc = NULL;
	if (thread->done)
		thread_drop_stack(thread);
}

static void thread_main(void *arg)
{
	struct sim_thread *self = arg;

	self->fn(self->arg);
	sim_slots_end(self);
	sim_words_stored(self->proc);
	self->done = true;
	if (self->joiner)
		sim_unpark(self->joiner);
	thread_switch_away(self);
}

/* 0: unknown. */
static unsigned long read_map_limit(void)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	unsigned long limit = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%lu", &limit) != 1)
		limit = 0;
	fclose(file);
	return limit;
}

static unsigned long process_count_maps(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned long n = 0;
	int c;

	if (!file)
		return 0;
	while ((c = fgetc(file)) != EOF)
		n += c == '\n';
	fclose(file);
	return n;
}

/* The process may have too many mappings: report that in terms of threads. */
static void thread_report_no_stack(const struct sim_proc *proc, int rc)
{
	const struct gn_sim *sim = proc->sim;
	const unsigned long limit = read_map_limit(), maps = process_count_maps();
	char why[96];

	/* A stack needs two mappings: itself and its guard page. */
	if (limit && maps + 2 >= limit)
		snprintf(why, sizeof(why), "%lu of vm.max_map_count %lu mappings are taken", maps,
			 limit);
	else
		snprintf(why, sizeof(why), "%s", gn_strerror(rc));
	gn_fail_log(rc, "sim: no room on %s for a thread with stack_bytes %zu, after %u: %s",
		    proc->node->name, sim->stack_bytes, sim->n_stacks, why);
}

/* Added to the fiber list of its own process, not of the one that starts it. */
static int thread_make_stack(struct sim_thread *thread, struct sim_proc *proc)
{
	struct gn_sim *sim = proc->sim;
	struct sim_proc *before = sim_act_for(sim, proc);
	int rc = gn_fiber_create(thread_main, thread, sim->stack_bytes, &thread->fiber);

	sim_act_for(sim, before);
	if (!rc)
		sim->n_stacks++;
	return rc;
}

int sim_thread_create(struct sim_proc *proc, const char *name, void (*fn)(void *), void *arg,
		      struct sim_thread **out)
{
	struct gn_sim *sim = proc->sim;
	struct sim_thread *thread = calloc(1, sizeof(*thread));
	int rc = -ENOMEM;

	if (!thread)
		goto say_so;
	rc = sim_event_init(&sim->engine, &thread->run, thread_resume, SIM_KIND_THREAD,
			    sim->n_threads + 1);
	if (rc)
		goto free_thread;
	rc = thread_make_stack(thread, proc);
	if (rc)
		goto fini_event;
	thread->proc = proc;
	thread->core = proc->node->cpu.next++;
	thread->id = ++sim->n_threads;
	thread->fn = fn;
	thread->arg = arg;
	thread->deadline_ns = GN_FOREVER;
	if (name)
		memcpy(thread->name, name, strnlen(name, sizeof(thread->name) - 1));
	list_push(&proc->threads, thread);
	sim_unpark(thread);
	*out = thread;
	return 0;

fini_event:
	sim_event_fini(&sim->engine, &thread->run);
free_thread:
	free(thread);
say_so:
	thread_report_no_stack(proc, rc);
	return rc;
}

void sim_thread_destroy(struct sim_thread *thread)
{
	sim_wait_unlink(thread);
	sim_waiters_leave(thread);
	sim_event_fini(&thread->proc->sim->engine, &thread->run);
	thread_drop_stack(thread);
	list_remove(thread);
	free(thread);
}

int sim_thread_join(struct sim_thread *self, struct sim_thread *thread)
{
	if (!thread || thread->proc != self->proc || thread->joiner)
		return gn_fail(-EINVAL,
			       "gn_thread_join(): thread is NULL, another process's, or joined");
	if (thread == self)
		return gn_fail(-EDEADLK, "gn_thread_join(): a thread cannot join itself");
	thread->joiner = self;
	while (!thread->done) {
		self->reason_id = thread->id;
		sim_park(self, SIM_NEVER, "the end of a thread");
	}
	sim_thread_destroy(thread);
	return 0;
}

void sim_park(struct sim_thread *self, uint64_t until_ps, const char *reason)
{
	struct gn_sim *sim = self->proc->sim;

	assert(sim->thread == self);
	self->reason = reason;
	self->until_ps = until_ps;
	self->unparked = false;
	self->spins = 0;
	/* From here on other threads see what this thread has stored since it last let them run. */
	sim_words_stored(self->proc);
	sim_event_at(&sim->engine, &self->run, until_ps > self->busy_ps ? until_ps : self->busy_ps);
	thread_switch_away(self);
	self->reason = NULL;
	self->reason_id = 0;
}

void sim_park_till(struct sim_thread *self, uint64_t deadline_ns, const char *reason)
{
	self->deadline_ns = deadline_ns;
	sim_park(self, sim_clock_until_ps(&self->proc->node->clock, deadline_ns), reason);
	self->deadline_ns = GN_FOREVER;
}

void sim_unpark(struct sim_thread *thread)
{
	thread->unparked = true;
	sim_event_at(&thread->proc->sim->engine, &thread->run, thread->busy_ps);
}

/* The duration on a node that may be slowed. */
static uint64_t node_slowed_ps(const struct sim_node *node, uint64_t ps)
{
	const uint32_t factor = sim_fault_cpu_factor(node->sim, node->index);
	uint64_t longer;

	if (likely(factor == SIM_FACTOR_ONE))
		return ps;
	if (__builtin_mul_overflow(ps / SIM_FACTOR_ONE, factor, &longer) ||
	    __builtin_add_overflow(longer, ps % SIM_FACTOR_ONE * factor / SIM_FACTOR_ONE, &longer))
		return SIM_NEVER;
	return longer;
}

void sim_spend(struct gn_sim *sim, uint64_t ps)
{
	struct sim_thread *self = sim->thread;

	if (!self)
		return;
	sim_owe(sim, ps);
	ps = self->busy_ps > sim->engine.now_ps ? self->busy_ps - sim->engine.now_ps : 0;
	sim_words_stored(self->proc);
	if (sim_engine_skip(&sim->engine, ps)) {
		if (ps)
			self->spins = 0;
		return;
	}
	self->working = true;
	sim_park(self, sim_after(&sim->engine, ps), "its own work");
	self->working = false;
}

void sim_owe(struct gn_sim *sim, uint64_t ps)
{
	struct sim_thread *self = sim->thread;
	const uint64_t now = sim->engine.now_ps;

	if (self && ps)
		self->busy_ps = sim_cpu_work(&self->proc->node->cpu, self->core,
					     self->busy_ps > now ? self->busy_ps : now,
					     node_slowed_ps(self->proc->node, ps));
}

/* Waiting uses no core, even if it spins: see cpu.c. */
void sim_owe_until(struct gn_sim *sim, uint64_t at_ps)
{
	if (sim->thread && sim->thread->busy_ps < at_ps)
		sim->thread->busy_ps = at_ps;
}

void sim_settle(struct gn_sim *sim)
{
	if (sim->thread && sim->thread->busy_ps > sim->engine.now_ps)
		sim_spend(sim, 0);
}

static void thread_spins_forever(struct sim_thread *self, const char *what, unsigned n)
{
	gn_log(GN_LOG_ERROR, "sim: thread %llu '%s' of process %u on %s %s %u times without a wait",
	       (unsigned long long)self->id, self->name, self->proc->number, self->proc->node->name,
	       what, n);
	sim_give_up(self->proc->sim, -EDEADLK);
}

void sim_looked(struct gn_sim *sim, uint64_t ps)
{
	struct sim_thread *self = sim->thread;

	if (!self || self->looking)
		return;
	if (++self->looks >= SIM_LOOKS_MAX) {
		self->looks = 0;
		thread_spins_forever(self, "made empty polls or yields", SIM_LOOKS_MAX);
	}
	if (self->looks == 1) /* a wait may follow */
		sim_owe(sim, ps);
	else
		sim_spend(sim, ps);
}

void sim_found(struct gn_sim *sim)
{
	if (sim->thread)
		sim->thread->looks = 0;
}

void sim_spun(struct gn_sim *sim)
{
	struct sim_thread *self = sim->thread;

	if (self && ++self->spins >= SIM_SPINS_MAX) {
		self->spins = 0;
		thread_spins_forever(self, "read the clock or asked for what was there",
				     SIM_SPINS_MAX);
	}
}
