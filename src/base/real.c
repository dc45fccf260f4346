/* SPDX-License-Identifier: MIT */
/*
 * exec_real: the table of a process. Monotonic clock, getrandom(), libc's heap and POSIX threads;
 * waiting is in wait.c.
 */
#define _GNU_SOURCE 1
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/exec.h"
#include "base/fail.h"
#include "base/real.h"
#include "base/ticks.h"

/* A simulation that used anything of the real machine would not be reproducible. */
static void assert_no_simulation(void)
{
	assert(exec_current() == &exec_real);
}

/* ---- time, randomness, memory ---- */

int (*real_clock)(clockid_t id, struct timespec *out) = clock_gettime;

uint64_t real_clock_ns(void)
{
	struct timespec ts;

	real_clock(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t real_now_ns(void)
{
	assert_no_simulation();
	return real_clock_ns();
}

/* getrandom() returns up to 256 bytes without being interrupted. */
#define RANDOM_VALUES (256 / sizeof(uint64_t))

/* Random values from the kernel, one system call's worth at a time: unpredictable. */
static _Thread_local struct {
	size_t left;
	uint64_t value[RANDOM_VALUES];
} pool;

/* Only the forking thread survives in the child, so only its pool could be used twice. */
static void random_pool_drop(void)
{
	pool.left = 0;
}

static void random_pool_on_fork(void)
{
	pthread_atfork(NULL, NULL, random_pool_drop);
}

static void random_pool_fill(void)
{
	static pthread_once_t on_fork = PTHREAD_ONCE_INIT;
	ssize_t got;

	pthread_once(&on_fork, random_pool_on_fork);
	do
		got = getrandom(pool.value, sizeof(pool.value), 0);
	while (got < 0 && errno == EINTR); /* interrupted before the kernel's generator was ready */
	assert(got == sizeof(pool.value));
	pool.left = RANDOM_VALUES;
}

static uint64_t real_random(void)
{
	assert_no_simulation();
	if (unlikely(!pool.left))
		random_pool_fill();
	return pool.value[--pool.left];
}

/*
 * Random accesses to large memory mostly miss the TLB: advise huge pages. Memory of this size is
 * fresh from the kernel. Harmless where unsupported.
 */
#define HUGE_PAGES_FROM_BYTES (8u << 20)

static void advise_huge(void *ptr, size_t size)
{
	const uintptr_t page = 4096, from = ((uintptr_t)ptr + page - 1) & ~(page - 1);

	madvise((void *)from, ((uintptr_t)ptr + size - from) & ~(page - 1), MADV_HUGEPAGE);
}

static void *real_alloc(size_t size, size_t align)
{
	void *ptr;

	if (size == 0)
		size = 1;
	if (align <= _Alignof(max_align_t)) {
		ptr = calloc(1, size);
		if (ptr && size >= HUGE_PAGES_FROM_BYTES)
			advise_huge(ptr, size);
		return ptr;
	}
	if (posix_memalign(&ptr, align, size) != 0)
		return NULL;
	return memset(ptr, 0, size);
}

static void real_free(void *ptr)
{
	free(ptr);
}

static void real_charge(enum gn_work kind, uint64_t n)
{
	(void)kind;
	(void)n;
}

/* "MemAvailable:   12345 kB" */
static uint64_t real_memory_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib;
	char line[128];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
	if (file)
		fclose(file);
	return found ? kib << 10 : UINT64_MAX;
}

/* ---- threads ---- */

#define THREAD_NAME_MAX 16 /* the kernel's limit, with the final zero */

struct gn_thread {
	pthread_t handle;
	void (*fn)(void *arg);
	void *arg;
	char name[THREAD_NAME_MAX];
};

static void *real_thread_main(void *arg)
{
	struct gn_thread *thread = arg;

	if (thread->name[0])
		pthread_setname_np(pthread_self(), thread->name);
	thread->fn(thread->arg);
	return NULL;
}

static int real_thread_start(const char *name, void (*fn)(void *arg), void *arg,
			     struct gn_thread **out)
{
	struct gn_thread *thread = calloc(1, sizeof(*thread));
	int err;

	if (!thread)
		return gn_fail(-ENOMEM, "gn_thread_start(): there is no memory");
	thread->fn = fn;
	thread->arg = arg;
	if (name)
		memcpy(thread->name, name, strnlen(name, THREAD_NAME_MAX - 1));
	err = pthread_create(&thread->handle, NULL, real_thread_main, thread);
	if (err) {
		free(thread);
		return gn_fail(-err, "gn_thread_start(): no thread: %s", gn_strerror(-err));
	}
	*out = thread;
	return 0;
}

static int real_thread_join(struct gn_thread *thread)
{
	int err;

	if (!thread)
		return gn_fail(-EINVAL, "gn_thread_join(): thread is NULL");
	err = pthread_join(thread->handle, NULL);
	if (err)
		return gn_fail(-err, "gn_thread_join(): %s", gn_strerror(-err));
	free(thread);
	return 0;
}

_Thread_local uint64_t real_own_number;
uint64_t real_ticks_mask = UINT64_MAX;

uint64_t real_ticks(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc() & real_ticks_mask;
#else
	return gn_now_ns() & real_ticks_mask;
#endif
}

uint64_t real_inherited;
static _Atomic uint64_t last_number;

/* In a forked child: its thread needs a new number. */
static void thread_number_drop(void)
{
	real_inherited = atomic_load_explicit(&last_number, memory_order_relaxed);
	real_own_number = 0;
}

static void thread_number_on_fork(void)
{
	pthread_atfork(NULL, NULL, thread_number_drop);
}

/* Counted, because the kernel and pthread_self() reuse the ids of dead threads. */
uint64_t real_thread_number(void)
{
	static pthread_once_t on_fork = PTHREAD_ONCE_INIT;

	pthread_once(&on_fork, thread_number_on_fork);
	real_own_number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1;
	return real_own_number;
}

static char host[256] = "localhost";

static void host_look_up(void)
{
	char name[sizeof(host)];

	if (gethostname(name, sizeof(name) - 1) != 0)
		return;
	name[sizeof(name) - 1] = '\0';
	memcpy(host, name, sizeof(host));
}

static const char *real_node_name(void)
{
	static pthread_once_t looked_up = PTHREAD_ONCE_INIT;

	pthread_once(&looked_up, host_look_up);
	return host;
}

static struct fail_state *real_error(void)
{
	static _Thread_local struct fail_state state;

	return &state;
}

static void real_yield(void)
{
	sched_yield();
}

static void real_sleep_us(uint64_t us)
{
	struct timespec until;

	assert_no_simulation();
	until = ns_to_timespec(gn_deadline_us(us));
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

/* ---- locks ---- */

static_assert(sizeof(pthread_mutex_t) <= sizeof(struct gn_mutex), "a gn_mutex holds a mutex");
static_assert(sizeof(pthread_cond_t) <= sizeof(struct gn_cond), "a gn_cond holds a condition");
static_assert(_Alignof(pthread_mutex_t) <= _Alignof(struct gn_mutex), "and aligns it");
static_assert(_Alignof(pthread_cond_t) <= _Alignof(struct gn_cond), "and aligns it");

static pthread_mutex_t *native_mutex(struct gn_mutex *mutex)
{
	return (void *)mutex->opaque;
}

static pthread_cond_t *native_cond(struct gn_cond *cond)
{
	return (void *)cond->opaque;
}

/* With default attributes these fail only if the caller misused the lock. */
static void pthread_must_succeed(int err)
{
	assert(err == 0);
}

static void real_mutex_init(struct gn_mutex *mutex)
{
	pthread_must_succeed(pthread_mutex_init(native_mutex(mutex), NULL));
}

static void real_mutex_lock(struct gn_mutex *mutex)
{
	pthread_must_succeed(pthread_mutex_lock(native_mutex(mutex)));
}

static void real_mutex_unlock(struct gn_mutex *mutex)
{
	pthread_must_succeed(pthread_mutex_unlock(native_mutex(mutex)));
}

static void real_mutex_fini(struct gn_mutex *mutex)
{
	pthread_must_succeed(pthread_mutex_destroy(native_mutex(mutex)));
}

static void real_cond_init(struct gn_cond *cond)
{
	pthread_condattr_t attr;

	pthread_must_succeed(pthread_condattr_init(&attr));
	pthread_must_succeed(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
	pthread_must_succeed(pthread_cond_init(native_cond(cond), &attr));
	pthread_condattr_destroy(&attr);
}

static int real_cond_wait(struct gn_cond *cond, struct gn_mutex *mutex, uint64_t deadline_ns,
			  const char *reason)
{
	struct timespec until = ns_to_timespec(deadline_ns);

	(void)reason;
	assert_no_simulation();
	if (deadline_ns == GN_FOREVER)
		return -pthread_cond_wait(native_cond(cond), native_mutex(mutex));
	return -pthread_cond_timedwait(native_cond(cond), native_mutex(mutex), &until);
}

static void real_cond_wake(struct gn_cond *cond, bool all)
{
	pthread_must_succeed(all ? pthread_cond_broadcast(native_cond(cond)) :
				   pthread_cond_signal(native_cond(cond)));
}

static void real_cond_fini(struct gn_cond *cond)
{
	pthread_must_succeed(pthread_cond_destroy(native_cond(cond)));
}

/* ---- thread-local storage ---- */

struct gn_slot {
	pthread_key_t key;
};

static int real_slot_create(void (*destroy)(void *value), struct gn_slot **out)
{
	struct gn_slot *slot = calloc(1, sizeof(*slot));
	int err;

	if (!slot)
		return gn_fail(-ENOMEM, "gn_slot_create(): there is no memory");
	err = pthread_key_create(&slot->key, destroy);
	if (err) {
		free(slot);
		return gn_fail(-err, "gn_slot_create(): this process has no more keys: %s",
			       gn_strerror(-err));
	}
	*out = slot;
	return 0;
}

static void *real_slot_get(const struct gn_slot *slot)
{
	return pthread_getspecific(slot->key);
}

static int real_slot_set(struct gn_slot *slot, void *value)
{
	const int err = pthread_setspecific(slot->key, value);

	return err ? gn_fail(-err, "gn_slot_set(): %s", gn_strerror(-err)) : 0;
}

static void real_slot_destroy(struct gn_slot *slot)
{
	pthread_key_delete(slot->key);
	free(slot);
}

const struct exec_ops exec_real = {
	.name = "real",
	.now_ns = real_now_ns,
	.random = real_random,
	.alloc = real_alloc,
	.free = real_free,
	.charge = real_charge,
	.memory_available = real_memory_available,
	.thread_start = real_thread_start,
	.thread_join = real_thread_join,
	.thread_id = real_thread_id,
	.node_name = real_node_name,
	.error = real_error,
	.yield = real_yield,
	.sleep_us = real_sleep_us,
	.mutex_init = real_mutex_init,
	.mutex_lock = real_mutex_lock,
	.mutex_unlock = real_mutex_unlock,
	.mutex_fini = real_mutex_fini,
	.cond_init = real_cond_init,
	.cond_wait = real_cond_wait,
	.cond_wake = real_cond_wake,
	.cond_fini = real_cond_fini,
	.slot_create = real_slot_create,
	.slot_get = real_slot_get,
	.slot_set = real_slot_set,
	.slot_destroy = real_slot_destroy,
	.wait = real_wait,
};
