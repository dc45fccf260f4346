/* SPDX-License-Identifier: MIT */
/*
 * Mutexes and conditions between simulated threads. An unlock does not hand the mutex over: a woken
 * thread tries again, and may find it locked by another thread, as in a process. The thread to wake
 * is drawn from the seed. A thread about to lock is sometimes preempted, because another thread
 * could have been faster there.
 */
#include <assert.h>
#include <errno.h>

#include "sim/nodes.h"

#define PREEMPT_ONE_IN 8u

#define MUTEX_MAGIC 0x67636d7574657801u
#define COND_MAGIC  0x6763636f6e640001u

struct mutex {
	uint64_t magic;
	const void *owner; /* a thread, or the sim when the engine holds it */
	uint64_t last;	   /* id of the last holder, or 0 */
	uint64_t free_ps;  /* when the last holder's work under the lock ends */
	struct sim_waiters waiters;
};

struct cond {
	uint64_t magic;
	struct sim_waiters waiters;
};

static_assert(sizeof(struct mutex) <= sizeof(struct gn_mutex), "a gn_mutex holds one");
static_assert(sizeof(struct cond) <= sizeof(struct gn_cond), "a gn_cond holds one");

/* ---- waiters ---- */

static void waiters_enqueue(struct sim_waiters *waiters, struct sim_thread *self)
{
	self->queue = waiters;
	self->queue_next = waiters->first;
	self->queue_prev = &waiters->first;
	if (self->queue_next)
		self->queue_next->queue_prev = &self->queue_next;
	waiters->first = self;
	waiters->n++;
}

void sim_waiters_leave(struct sim_thread *thread)
{
	if (!thread->queue)
		return;
	*thread->queue_prev = thread->queue_next;
	if (thread->queue_next)
		thread->queue_next->queue_prev = thread->queue_prev;
	thread->queue->n--;
	thread->queue = NULL;
}

static void waiters_wake_one(struct sim_waiters *waiters)
{
	struct sim_thread *thread = waiters->first;
	struct gn_sim *sim;

	if (!thread)
		return;
	sim = thread->proc->sim;
	for (uint32_t i = waiters->n > 1 ? sim_random_below(&sim->engine.random, waiters->n) : 0;
	     i > 0; i--)
		thread = thread->queue_next;
	sim_waiters_leave(thread);
	sim_unpark(thread);
}

/* ---- mutexes ---- */

static struct mutex *mutex_of(struct gn_mutex *opaque)
{
	struct mutex *mutex = (void *)opaque->opaque;

	assert(mutex->magic == MUTEX_MAGIC);
	return mutex;
}

void sim_mutex_init(struct gn_mutex *opaque)
{
	*(struct mutex *)(void *)opaque->opaque = (struct mutex){.magic = MUTEX_MAGIC};
}

/* A thread that holds a lock is not preempted: the engine may need the lock, and cannot wait. */
static void mutex_maybe_preempt(struct gn_sim *sim)
{
	if (sim->thread->locks == 0 && sim_random_below(&sim->engine.random, PREEMPT_ONE_IN) == 0)
		sim_spend(sim, 0);
}

/*
 * Charges the transfer of the lock's cache line to this core: from the last holder's, or from the
 * waiters that poll it.
 */
static void mutex_charge_transfer(struct gn_sim *sim, struct mutex *mutex)
{
	sim_owe_until(sim, mutex->free_ps);
	if (mutex->waiters.n || (mutex->last && mutex->last != sim->thread->id))
		sim_owe(sim, sim->profile.mutex_handover_ps +
				     mutex->waiters.n * sim->profile.mutex_waiter_ps);
	mutex->last = sim->thread->id;
}

void sim_mutex_lock(struct gn_mutex *opaque)
{
	struct mutex *mutex = mutex_of(opaque);
	struct gn_sim *sim = sim_current();
	struct sim_thread *self = sim->thread;

	if (!self) {
		/* no thread parks while it holds a lock that the engine takes */
		assert(!mutex->owner);
		mutex->owner = sim;
		return;
	}
	sim_settle(sim);
	mutex_maybe_preempt(sim);
	while (mutex->owner) {
		assert(mutex->owner != sim);
		waiters_enqueue(&mutex->waiters, self);
		self->reason_id = ((const struct sim_thread *)mutex->owner)->id;
		sim_park(self, SIM_NEVER, "a mutex");
		sim_waiters_leave(self);
	}
	mutex->owner = self;
	self->locks++;
	mutex_charge_transfer(sim, mutex);
}

void sim_mutex_unlock(struct gn_mutex *opaque)
{
	struct mutex *mutex = mutex_of(opaque);
	struct gn_sim *sim = sim_current();

	assert(mutex->owner == (sim->thread ? (const void *)sim->thread : sim));
	mutex->owner = NULL;
	if (sim->thread) {
		sim->thread->locks--;
		mutex->free_ps = sim->thread->busy_ps;
	}
	waiters_wake_one(&mutex->waiters);
}

void sim_mutex_fini(struct gn_mutex *opaque)
{
	struct mutex *mutex = mutex_of(opaque);

	assert(!mutex->owner && !mutex->waiters.n);
	mutex->magic = 0;
}

/* ---- conditions ---- */

static struct cond *cond_of(struct gn_cond *opaque)
{
	struct cond *cond = (void *)opaque->opaque;

	assert(cond->magic == COND_MAGIC);
	return cond;
}

void sim_cond_init(struct gn_cond *opaque)
{
	*(struct cond *)(void *)opaque->opaque = (struct cond){.magic = COND_MAGIC};
}

int sim_cond_wait(struct gn_cond *opaque, struct gn_mutex *mutex, uint64_t deadline_ns,
		  const char *reason)
{
	struct cond *cond = cond_of(opaque);
	struct sim_thread *self = sim_current()->thread;
	bool timed_out;

	self->looks = 0;
	waiters_enqueue(&cond->waiters, self);
	sim_mutex_unlock(mutex);
	sim_park_till(self, deadline_ns, reason);
	timed_out = self->queue && sim_passed(self, deadline_ns);
	sim_waiters_leave(self);
	sim_mutex_lock(mutex);
	return timed_out ? -ETIMEDOUT : 0;
}

void sim_cond_wake(struct gn_cond *opaque, bool all)
{
	struct cond *cond = cond_of(opaque);

	do
		waiters_wake_one(&cond->waiters);
	while (all && cond->waiters.n);
}

void sim_cond_fini(struct gn_cond *opaque)
{
	struct cond *cond = cond_of(opaque);

	assert(!cond->waiters.n);
	cond->magic = 0;
}
