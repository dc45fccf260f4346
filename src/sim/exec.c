/* SPDX-License-Identifier: MIT */
/*
 * exec_sim: the table for simulated threads. Locks are in lock.c, waiting in wait.c, thread-local
 * slots in slot.c, the heap in heap.c.
 */
#include <assert.h>

#include "base/fail.h"
#include "sim/nodes.h"

#define PREEMPT_MAX_PS (3000u * SIM_PS_PER_NS)

static uint64_t exec_sim_now_ns(void)
{
	struct gn_sim *sim = sim_current();

	sim_spun(sim);
	sim_settle(sim);
	if (!sim->proc) /* the engine, not for a process */
		return sim->engine.now_ps / SIM_PS_PER_NS;
	return sim_clock_ns(&sim->proc->node->clock, sim->engine.now_ps);
}

static uint64_t exec_sim_random(void)
{
	return sim_random_next(&sim_current()->engine.random);
}

static void exec_sim_charge(enum gn_work kind, uint64_t n)
{
	struct gn_sim *sim = sim_current();
	uint64_t ps;

	assert((unsigned)kind < GN_WORK_KINDS);
	if (__builtin_mul_overflow(n, sim->profile.work_ps[kind], &ps))
		ps = SIM_NEVER;
	if (kind == GN_WORK_SCAN)
		sim_looked(sim, sim->profile.look_ps + ps);
	else if (ps)
		sim_spend(sim, ps);
}

/*
 * Lets others run for a moment, or for about as long as a WRITE takes; not while holding a lock,
 * see mutex_maybe_preempt().
 */
static void exec_sim_preempt(void)
{
	struct gn_sim *sim = sim_current();

	if (sim->thread && !sim->thread->locks &&
	    sim_fault(sim, SIM_PREEMPT, sim->proc->node->index))
		sim_spend(sim, sim_random_below(&sim->engine.random, 2) ?
				       0 :
				       sim_random_below(&sim->engine.random, PREEMPT_MAX_PS));
}

/* Only the fault limits it. */
static uint64_t exec_sim_memory_available(void)
{
	const struct gn_sim *sim = sim_current();

	return sim->proc->node->low_memory_until_ps > sim->engine.now_ps ? 0 : UINT64_MAX;
}

static int exec_sim_thread_start(const char *name, void (*fn)(void *), void *arg,
				 struct gn_thread **out)
{
	struct sim_thread *thread;
	int rc = sim_thread_create(sim_current()->proc, name, fn, arg, &thread);

	if (rc)
		return rc;
	*out = (struct gn_thread *)(void *)thread;
	return 0;
}

static int exec_sim_thread_join(struct gn_thread *thread)
{
	return sim_thread_join(sim_current()->thread, (struct sim_thread *)(void *)thread);
}

static uint64_t exec_sim_thread_id(void)
{
	assert(sim_current()->thread);
	return sim_thread_number(sim_current()->thread);
}

static const char *exec_sim_node_name(void)
{
	return sim_current()->proc->node->name;
}

/* The engine has its own text, for work that belongs to no thread. */
static struct fail_state *exec_sim_error(void)
{
	struct gn_sim *sim = sim_current();

	return sim->thread ? &sim->thread->error : &sim->error;
}

static struct gn_fiber **exec_sim_fibers(void)
{
	struct sim_proc *proc = sim_current()->proc;

	return proc ? &proc->fibers : NULL;
}

static void exec_sim_yield(void)
{
	struct gn_sim *sim = sim_current();

	sim_looked(sim, sim->profile.yield_ps);
	sim_settle(sim);
}

static void exec_sim_sleep_us(uint64_t us)
{
	struct sim_thread *self = sim_current()->thread;

	self->looks = 0;
	sim_park_till(self, gn_deadline_us(us), "the end of a sleep");
}

const struct exec_ops exec_sim = {
	.name = "sim",
	.now_ns = exec_sim_now_ns,
	.random = exec_sim_random,
	.alloc = sim_heap_alloc,
	.free = sim_heap_free,
	.charge = exec_sim_charge,
	.preempt = exec_sim_preempt,
	.memory_available = exec_sim_memory_available,
	.thread_start = exec_sim_thread_start,
	.thread_join = exec_sim_thread_join,
	.thread_id = exec_sim_thread_id,
	.node_name = exec_sim_node_name,
	.error = exec_sim_error,
	.fibers = exec_sim_fibers,
	.yield = exec_sim_yield,
	.sleep_us = exec_sim_sleep_us,
	.mutex_init = sim_mutex_init,
	.mutex_lock = sim_mutex_lock,
	.mutex_unlock = sim_mutex_unlock,
	.mutex_fini = sim_mutex_fini,
	.cond_init = sim_cond_init,
	.cond_wait = sim_cond_wait,
	.cond_wake = sim_cond_wake,
	.cond_fini = sim_cond_fini,
	.slot_create = sim_slot_create,
	.slot_get = sim_slot_get,
	.slot_set = sim_slot_set,
	.slot_destroy = sim_slot_destroy,
	.wait = sim_wait,
};
