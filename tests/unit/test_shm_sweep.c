/* SPDX-License-Identifier: MIT */
/*
 * Names on shared memory that are taken while another process, or thread, sweeps the folder: it may
 * lose its core in the middle of that. This program's own unlink() stands in for that moment.
 */
#include "shm_side.h"

#include "fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ADDR	"shm:sweep-test"
#define HOLD_US 30000u /* longer than a scheduler's slice */

/* ---- a sweep that takes long ---- */

static struct {
	_Bool slow;	/* sweeps are: atomic, like the next */
	_Bool sweeping; /* one is about to remove a lock's file, and has its lock */
} sweeps;

static bool ends_with_lock(const char *path)
{
	const size_t len = strlen(path), n = strlen(SHM_LOCK_SUFFIX);

	return len > n && !strcmp(path + len - n, SHM_LOCK_SUFFIX);
}

/* In place of libc's, for the library, too. */
int unlink(const char *path)
{
	if (__atomic_load_n(&sweeps.slow, __ATOMIC_ACQUIRE) && ends_with_lock(path)) {
		__atomic_store_n(&sweeps.sweeping, true, __ATOMIC_RELEASE);
		gn_sleep_us(HOLD_US);
	}
	return (int)syscall(SYS_unlink, path);
}

static void open_once(void *arg)
{
	struct gn_fabric *fabric;

	(void)arg;
	if (!gn_fabric_open("shm", &fabric))
		gn_fabric_close(fabric);
}

/* As a process leaves it that was killed while it listened. */
static void leave_lock(void)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/sweep-test" SHM_LOCK_SUFFIX, getenv("GANNET_SHM_DIR"));
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

/* ---- cases ---- */

/* Nobody listens there: somebody only clears away what a dead process has left. */
static void swept_name_is_free(void **state)
{
	struct gn_listener *listener;
	struct gn_thread *thread;
	struct side s;

	(void)state;
	side_make(&s);
	leave_lock();
	__atomic_store_n(&sweeps.slow, true, __ATOMIC_RELEASE);
	assert_int_equal(gn_thread_start("sweep", open_once, NULL, &thread), 0);
	while (!__atomic_load_n(&sweeps.sweeping, __ATOMIC_ACQUIRE))
		gn_yield();
	assert_int_equal(gn_listener_create(s.ctx, ADDR, s.chan, 0, &listener), 0);
	assert_int_equal(gn_thread_join(thread), 0);
	__atomic_store_n(&sweeps.slow, false, __ATOMIC_RELEASE);
	/* And nothing of it was swept away. */
	open_once(NULL);
	{
		struct gn_listener *second;
		struct gn_qp *c, *a;
		struct side other;

		assert_int_equal(gn_listener_create(s.ctx, ADDR, s.chan, 0, &second), -EADDRINUSE);
		side_make(&other);
		side_connect(&other, &s, ADDR, &c, &a);
		assert_int_equal(gn_qp_destroy(c), 0);
		assert_int_equal(gn_qp_destroy(a), 0);
		side_free(&other);
	}
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(&s);
}

#define OPENERS	  2u
#define LISTENS	  300u
#define LISTEN_US 2000000u /* for as many as there is time for */

struct opener {
	bool stop; /* atomic */
	struct gn_thread *thread;
};

static void open_and_close(void *arg)
{
	struct opener *o = arg;

	while (!__atomic_load_n(&o->stop, __ATOMIC_ACQUIRE))
		open_once(NULL);
}

/* A name is free or in use, whichever process opens the provider meanwhile. */
static void listen_while_others_open(void **state)
{
	const uint64_t until_ns = gn_deadline_us(LISTEN_US);
	struct opener openers[OPENERS] = {{.stop = false}};
	struct gn_listener *listener, *second;
	struct side s;

	(void)state;
	side_make(&s);
	for (unsigned i = 0; i < OPENERS; i++)
		assert_int_equal(
			gn_thread_start("opener", open_and_close, &openers[i], &openers[i].thread),
			0);
	for (unsigned n = 0; n < LISTENS && gn_now_ns() < until_ns; n++) {
		assert_int_equal(gn_listener_create(s.ctx, ADDR, s.chan, 0, &listener), 0);
		if (n % 50 == 0) /* each says so in the log */
			assert_int_equal(gn_listener_create(s.ctx, ADDR, s.chan, 0, &second),
					 -EADDRINUSE);
		assert_int_equal(gn_listener_destroy(listener), 0);
	}
	for (unsigned i = 0; i < OPENERS; i++) {
		__atomic_store_n(&openers[i].stop, true, __ATOMIC_RELEASE);
		assert_int_equal(gn_thread_join(openers[i].thread), 0);
	}
	side_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(swept_name_is_free),
		cmocka_unit_test(listen_while_others_open),
	};

	return cmocka_run_group_tests(tests, side_folder_make, side_folder_remove);
}
