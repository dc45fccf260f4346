/* SPDX-License-Identifier: MIT */
/*
 * Rights and ranges of a region hold against a peer that does not use this library. The hostile client
 * may only read the mem, or access only a part of it. It maps every descriptor that it receives,
 * reopens it through /proc, changes its mode, and punches holes, as another user and as the same user.
 */
#include "shm_lender.h"

#include <signal.h>

#define BIG_BYTES (8u << 20)

/* ---- the hostile client ---- */

static void attack_map(int fd)
{
	struct stat st;
	uint8_t *mem;

	if (fstat(fd, &st) || st.st_size <= 0)
		return;
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED) {
		mem = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
		if (mem == MAP_FAILED)
			return;
		if (mprotect(mem, (size_t)st.st_size, PROT_READ | PROT_WRITE)) {
			munmap(mem, (size_t)st.st_size);
			return;
		}
	}
	memset(mem, 'X', (size_t)st.st_size);
	munmap(mem, (size_t)st.st_size);
}

/* Tries to change the file by all means that a descriptor gives. */
static void attack_fd(int fd)
{
	char path[32];
	int again;

	attack_map(fd);
	if (pwrite(fd, "X", 1, 0) < 0)
		fchmod(fd, 0666);
	fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, GN_PAGE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again < 0)
		return;
	attack_map(again);
	if (pwrite(again, "X", 1, 0) < 0)
		fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, GN_PAGE);
	close(again);
}

/* Does the file hold the other client's data? */
static bool fd_leaks(int fd)
{
	struct stat st;
	uint8_t *mem;
	bool found;

	if (fstat(fd, &st) || st.st_size <= 0)
		return false;
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		return false;
	found = memmem(mem, (size_t)st.st_size, SECRET, strlen(SECRET)) != NULL;
	munmap(mem, (size_t)st.st_size);
	return found;
}

/* The region exists when it connects. */
static void evil_writes(int ctl)
{
	struct loot l;

	loot_begin(&l);
	assert_true(l.n >= 2);
	for (unsigned i = 0; i < l.n; i++)
		attack_fd(l.fds[i]);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	loot_end(&l);
}

/* The region is registered after it connected. */
static void evil_writes_late(int ctl)
{
	unsigned before;
	struct loot l;

	loot_begin(&l);
	before = l.n;
	raw_turn_end(ctl);
	loot_take(&l);
	assert_true(l.n > before);
	for (unsigned i = 0; i < l.n; i++)
		attack_fd(l.fds[i]);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	loot_end(&l);
}

static void evil_reads(int ctl)
{
	struct loot l;

	loot_begin(&l);
	for (unsigned i = 0; i < l.n; i++) {
		assert_false(fd_leaks(l.fds[i]));
		attack_fd(l.fds[i]);
	}
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	loot_end(&l);
}

/* Maps what it may write, and is stopped in the middle of a copy. Then it goes on. */
static void evil_stopped(int ctl)
{
	struct loot l;
	uint8_t *mem = MAP_FAILED;

	loot_begin(&l);
	for (unsigned i = 0; i < l.n; i++) {
		struct stat st;

		if (!fstat(l.fds[i], &st) && st.st_size == BIG_BYTES)
			mem = mmap(NULL, BIG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, l.fds[i],
				   0);
	}
	assert_ptr_not_equal(mem, MAP_FAILED);
	memset(mem, 'X', BIG_BYTES);
	raw_turn_end(ctl);
	raise(SIGSTOP);
	memset(mem, 'Y', BIG_BYTES);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	munmap(mem, BIG_BYTES);
	loot_end(&l);
}

static const struct raw_role roles[] = {
	{"writes", evil_writes},
	{"writes-late", evil_writes_late},
	{"reads", evil_reads},
	{"stopped", evil_stopped},
	{NULL, NULL},
};

/* ---- cases ---- */

/* A region for reading, of a mem that another client may write. */
static void read_only_as(const char *role)
{
	struct victim v;

	victim_make(&v);
	victim_register(&v, 0, BYTES, GN_REMOTE_READ);
	victim_accept(&v, role);
	victim_check(&v);
	victim_free(&v);
}

static void read_only(void **state)
{
	(void)state;
	read_only_as("writes");
}

static void read_only_same_user(void **state)
{
	(void)state;
	read_only_as("same-user-writes");
}

static void read_only_late_as(const char *role)
{
	struct victim v;

	victim_make(&v);
	victim_accept(&v, role);
	raw_turn_wait(v.evil.ctl);
	victim_register(&v, 0, BYTES, GN_LOCAL_WRITE | GN_REMOTE_READ);
	victim_check(&v);
	victim_free(&v);
}

static void read_only_late(void **state)
{
	(void)state;
	read_only_late_as("writes-late");
}

static void read_only_late_same_user(void **state)
{
	(void)state;
	read_only_late_as("same-user-writes-late");
}

/* A confined region: the peer may write there, and cannot even read elsewhere. */
static void confined_as(const char *role)
{
	struct victim v;

	victim_make(&v);
	victim_register(&v, GN_PAGE, GN_PAGE, SIDE_RIGHTS | GN_LOCAL_WRITE | GN_CONFINED);
	victim_accept(&v, role);
	victim_check(&v);
	victim_free(&v);
}

static void confined(void **state)
{
	(void)state;
	confined_as("reads");
}

static void confined_same_user(void **state)
{
	(void)state;
	confined_as("same-user-reads");
}

/*
 * Memory that is freed goes back to the kernel, although a stopped client still maps it; what the
 * client writes later is in nobody's memory.
 */
static void freed_while_mapped(void **state)
{
	struct gn_mem *old, *fresh;
	struct victim v;
	uint64_t before;
	int status;

	(void)state;
	victim_make(&v);
	assert_int_equal(gn_mem_alloc(v.side.fabric, BIG_BYTES, SIDE_RIGHTS, &old), 0);
	assert_int_equal(
		gn_mr_register(v.side.pd, old, 0, BIG_BYTES, SIDE_RIGHTS | GN_LOCAL_WRITE, &v.part),
		0);
	victim_accept(&v, "same-user-stopped");
	raw_turn_wait(v.evil.ctl);
	assert_int_equal(waitpid(v.evil.pid, &status, WUNTRACED), v.evil.pid);
	assert_true(WIFSTOPPED(status));
	before = cost_rss_bytes(v.evil.pid);
	assert_true(before >= BIG_BYTES);
	assert_int_equal(gn_mr_deregister(v.part), 0);
	v.part = NULL;
	assert_int_equal(gn_mem_free(old), 0);
	assert_true(cost_rss_bytes(v.evil.pid) <= before - BIG_BYTES);
	assert_int_equal(gn_mem_alloc(v.side.fabric, BIG_BYTES, SIDE_RIGHTS, &fresh), 0);
	assert_int_equal(kill(v.evil.pid, SIGCONT), 0);
	raw_turn_wait(v.evil.ctl);
	for (size_t i = 0; i < BIG_BYTES; i++)
		assert_int_equal(((uint8_t *)gn_mem_addr(fresh))[i], 0);
	assert_int_equal(gn_mem_free(fresh), 0);
	victim_free(&v);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		RAW_CASE(read_only_same_user),
		RAW_CASE(read_only_late_same_user),
		RAW_CASE(confined_same_user),
		RAW_CASE(freed_while_mapped),
		/* Only root can be another user, too. */
		RAW_CASE(read_only),
		RAW_CASE(read_only_late),
		RAW_CASE(confined),
	};

	if (argc == 3)
		return raw_run_role(roles, argv[1], atoi(argv[2]));
	return _cmocka_run_group_tests("shm_rights", tests,
				       sizeof(tests) / sizeof(tests[0]) - (geteuid() ? 3 : 0), NULL,
				       NULL);
}
