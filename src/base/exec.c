/* SPDX-License-Identifier: MIT */
/*
 * The table of this OS thread (process or simulation), and the dispatch of every public call to it.
 * A process pays one thread-local load and a predicted branch. Argument checks common to both
 * tables are here.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/exec.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/owner.h"
#include "base/preempt.h"
#include "base/real.h"

/*
 * NULL in a process. initial-exec makes the load one instruction in the shared library, too; with
 * dlopen() it takes one pointer of the static TLS reserve.
 */
_Thread_local const struct exec_ops *exec_installed __attribute__((tls_model("initial-exec")));

static inline const struct exec_ops *exec_table(void)
{
	return unlikely(exec_installed) ? exec_installed : &exec_real;
}

const struct exec_ops *exec_current(void)
{
	return exec_table();
}

const struct exec_ops *exec_install(const struct exec_ops *next)
{
	const struct exec_ops *last = exec_table();

	exec_installed = next == &exec_real ? NULL : next;
	return last;
}

uint64_t gn_now_ns(void)
{
	if (likely(!exec_installed))
		return real_clock_ns();
	return exec_installed->now_ns();
}

uint64_t gn_deadline_us(uint64_t us)
{
	uint64_t ns, deadline_ns;

	if (__builtin_mul_overflow(us, NS_PER_US, &ns) ||
	    __builtin_add_overflow(gn_now_ns(), ns, &deadline_ns))
		return GN_FOREVER;
	return deadline_due(deadline_ns); /* a simulation starts at time 0 */
}

uint64_t exec_memory_available(void)
{
	const struct exec_ops *ops = exec_table();

	return ops->memory_available ? ops->memory_available() : UINT64_MAX;
}

uint64_t gn_random(void)
{
	return exec_table()->random();
}

void *gn_alloc(size_t size, size_t align)
{
	void *ptr = NULL;

	if (unlikely(align & (align - 1)))
		gn_fail(0, "gn_alloc(): align %zu is not a power of two", align);
	else if (unlikely(!(ptr = exec_table()->alloc(size, align))))
		gn_fail(0, "there is no memory for %zu bytes", size);
	return ptr;
}

void gn_free(void *ptr)
{
	if (ptr)
		exec_table()->free(ptr);
}

void gn_charge(enum gn_work kind, uint64_t n)
{
	if (unlikely(exec_installed))
		exec_installed->charge(kind, n);
}

void exec_preempted(void)
{
	exec_installed->preempt();
}

int gn_thread_start(const char *name, void (*fn)(void *arg), void *arg, struct gn_thread **out)
{
	return exec_table()->thread_start(name, fn, arg, out);
}

int gn_thread_join(struct gn_thread *thread)
{
	return exec_table()->thread_join(thread);
}

uint64_t gn_thread_id(void)
{
	if (likely(!exec_installed))
		return real_thread_id();
	return exec_installed->thread_id();
}

int exec_not_owner(uint64_t owner, const char *what)
{
	if (!exec_inherited(owner & ~OWNER_RELEASED))
		return gn_fail(-EPERM,
			       owner & OWNER_RELEASED ?
				       "%s: it was released; a thread has to adopt it first" :
				       "%s: it belongs to another thread",
			       what);
	return gn_fail_log(-EPERM,
			   "%s: it belongs to the process that this one was forked from, and "
			   "cannot "
			   "be used here",
			   what);
}

int exec_adopt(uint64_t *owner, const char *what)
{
	uint64_t was = __atomic_load_n(owner, __ATOMIC_RELAXED);

	if (was == gn_thread_id())
		return 0;
	if (exec_inherited(was & ~OWNER_RELEASED))
		return exec_not_owner(was, what);
	/* Acquire pairs with exec_release(). */
	if (!(was & OWNER_RELEASED) ||
	    !__atomic_compare_exchange_n(owner, &was, gn_thread_id(), false, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		return gn_fail(-EBUSY, "%s: it belongs to another thread, which has to release it",
			       what);
	return 0;
}

const char *gn_node_name(void)
{
	return exec_table()->node_name();
}

void gn_yield(void)
{
	exec_table()->yield();
}

void gn_sleep_us(uint64_t us)
{
	exec_table()->sleep_us(us);
}

void gn_mutex_init(struct gn_mutex *mutex)
{
	exec_table()->mutex_init(mutex);
}

void gn_mutex_lock(struct gn_mutex *mutex)
{
	exec_table()->mutex_lock(mutex);
}

void gn_mutex_unlock(struct gn_mutex *mutex)
{
	exec_table()->mutex_unlock(mutex);
}

void gn_mutex_fini(struct gn_mutex *mutex)
{
	exec_table()->mutex_fini(mutex);
}

void gn_cond_init(struct gn_cond *cond)
{
	exec_table()->cond_init(cond);
}

int exec_wait_failed(int rc, uint64_t deadline_ns, const char *reason)
{
	if (rc == -ETIMEDOUT && deadline_ns == GN_NO_WAIT)
		return gn_fail_text(rc, "nothing is ready");
	if (rc == -ETIMEDOUT)
		return gn_fail(rc, "the deadline passed in a wait for %s",
			       reason ? reason : "something");
	if (rc == -EINTR)
		return gn_fail_text(rc, "a signal ended a wait");
	/* These two were reported where they were found. */
	if (rc == -EOPNOTSUPP || rc == -EINVAL)
		return rc;
	return gn_fail(rc, "a wait failed: %s", gn_strerror(rc));
}

int gn_cond_wait(struct gn_cond *cond, struct gn_mutex *mutex, uint64_t deadline_ns,
		 const char *reason)
{
	const int rc = exec_table()->cond_wait(cond, mutex, deadline_given(deadline_ns), reason);

	return likely(!rc) ? 0 : exec_wait_failed(rc, deadline_ns, reason);
}

void gn_cond_signal(struct gn_cond *cond)
{
	exec_table()->cond_wake(cond, false);
}

void gn_cond_broadcast(struct gn_cond *cond)
{
	exec_table()->cond_wake(cond, true);
}

void gn_cond_fini(struct gn_cond *cond)
{
	exec_table()->cond_fini(cond);
}

int gn_slot_create(void (*destroy)(void *value), struct gn_slot **out)
{
	return exec_table()->slot_create(destroy, out);
}

void *gn_slot_get(const struct gn_slot *slot)
{
	return exec_table()->slot_get(slot);
}

int gn_slot_set(struct gn_slot *slot, void *value)
{
	return exec_table()->slot_set(slot, value);
}

void gn_slot_destroy(struct gn_slot *slot)
{
	if (slot)
		exec_table()->slot_destroy(slot);
}

static inline int wait_spin_or_sleep(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns,
				     const char *reason, bool spin)
{
	if (n > GN_WAIT_MAX)
		return gn_fail(-EINVAL, "gn_wait(): n is more than GN_WAIT_MAX");
	deadline_ns = deadline_given(deadline_ns);
	if (likely(!exec_installed))
		return real_wait(items, n, deadline_ns, reason, spin);
	return exec_installed->wait(items, n, deadline_ns, reason, spin);
}

int exec_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason)
{
	return wait_spin_or_sleep(items, n, deadline_ns, reason, true);
}

int gn_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason)
{
	const int rc = exec_wait(items, n, deadline_ns, reason);

	return likely(rc >= 0) ? rc : exec_wait_failed(rc, deadline_ns, reason);
}

int gn_wait_sleep(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason)
{
	const int rc = wait_spin_or_sleep(items, n, deadline_ns, reason, false);

	return likely(rc >= 0) ? rc : exec_wait_failed(rc, deadline_ns, reason);
}
