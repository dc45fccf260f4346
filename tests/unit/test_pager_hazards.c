/* SPDX-License-Identifier: MIT */
/*
 * What can go wrong around a pager: donors that are lost, forked children, descriptors that the
 * program closes, memory that runs out.
 */
#include <fcntl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pager_world.h"

#define PAGES(mib) ((uint64_t)(mib)*MIB / PAGE)

/* Every page begins with its number, plus one. */
static void number_pages(uint8_t *base, uint64_t pages)
{
	for (uint64_t page = 0; page < pages; page++)
		*(volatile uint64_t *)(void *)(base + page * PAGE) = page + 1;
}

static bool is_numbered(const uint8_t *base, uint64_t page)
{
	return *(volatile const uint64_t *)(const void *)(base + page * PAGE) == page + 1;
}

/* ---- the log ---- */

static unsigned lines_lost; /* atomic: lines that say that a page is lost */

static void count_line(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	if (strstr(line, "pager: page "))
		__atomic_add_fetch(&lines_lost, 1, __ATOMIC_RELAXED);
	fprintf(stderr, "# %s\n", line);
}

/* ---- lost donors ---- */

struct load {
	uint8_t *base;
	uint64_t pages, seed, longest_ns, touches, wrong;
	unsigned stop; /* atomic */
	struct gn_thread *thread;
};

static void load_main(void *arg)
{
	struct load *l = arg;

	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
		const uint64_t page = unit_next(&l->seed) % l->pages, begin_ns = gn_now_ns();

		l->wrong += !is_numbered(l->base, page);
		if (page % 2)
			*(volatile uint64_t *)(void *)(l->base + page * PAGE + 8) = begin_ns;
		if (gn_now_ns() - begin_ns > l->longest_ns)
			l->longest_ns = gn_now_ns() - begin_ns;
		__atomic_add_fetch(&l->touches, 1, __ATOMIC_RELEASE);
	}
}

static void load_pass(struct load *l, uint64_t n)
{
	const uint64_t goal = __atomic_load_n(&l->touches, __ATOMIC_ACQUIRE) + n;
	const uint64_t until_ns = gn_deadline_us(LONG_US);

	while (__atomic_load_n(&l->touches, __ATOMIC_ACQUIRE) < goal) {
		if (gn_now_ns() > until_ns)
			fail_msg("%llu touches are missing",
				 (unsigned long long)(goal - __atomic_load_n(&l->touches,
									     __ATOMIC_ACQUIRE)));
		gn_sleep_us(200);
	}
}

/* With two copies the program sees a pause. */
static void two_copies(bool write_faults)
{
	const struct gn_pager_opts opts = pager_opts(write_faults);
	struct load l = {.seed = unit_seed()};
	struct gn_vol_stats s;
	struct pager_world w;

	pager_open(&w, 3, 2, 16, &opts);
	l.base = pager_map(&w, w.bytes);
	l.pages = PAGES(16);
	number_pages(l.base, l.pages);
	assert_int_equal(gn_thread_start("load", load_main, &l, &l.thread), 0);
	for (unsigned donor = 0; donor < 2; donor++) {
		load_pass(&l, 500);
		donor_kill(&w.vol, donor);
		load_pass(&l, 500);
		VOL_AWAIT(&w.vol, s, s.donors[donor].lost && is_whole(&s));
		donor_start(&w.vol, donor);
		VOL_AWAIT(&w.vol, s, s.donors[donor].state == GN_VOL_DONOR_UP);
	}
	__atomic_store_n(&l.stop, 1, __ATOMIC_RELEASE);
	gn_thread_join(l.thread);
	printf("# %llu touches, the longest %.1f ms\n", (unsigned long long)l.touches,
	       (double)l.longest_ns / 1e6);
	assert_int_equal(l.wrong, 0);
	assert_int_equal(pager_stats(&w).lost, 0);
	for (uint64_t page = 0; page < l.pages; page++)
		assert_true(is_numbered(l.base, page));
	pager_close(&w);
}

static void test_two_copies(void **state)
{
	(void)state;
	two_copies(false);
}

static void test_two_copies_write_faults(void **state)
{
	(void)state;
	two_copies(true);
}

static void test_last_copy(void **state)
{
	struct gn_pager_opts opts = pager_opts(false);
	uint64_t lost = 0, kept = 0;
	const uint64_t begin_ns = gn_now_ns();
	struct gn_vol_stats s;
	struct pager_world w;
	unsigned lines;
	uint8_t *a;
	int fd[2];

	(void)state;
	__atomic_store_n(&lines_lost, 0, __ATOMIC_RELAXED);
	opts.prefetch = GN_PAGER_NO_PREFETCH;
	pager_open(&w, 2, 1, 16, &opts);
	a = pager_map(&w, w.bytes);
	number_pages(a, PAGES(16));
	assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
	donor_kill(&w.vol, 0);
	VOL_AWAIT(&w.vol, s, s.donors[0].copies == 0);
	assert_true(s.blocks_lost > 0);
	for (uint64_t page = 0; page < PAGES(16); page++) {
		const int signo = touch(a + page * PAGE + 100);

		if (!signo) {
			assert_true(is_numbered(a, page));
			kept++;
			continue;
		}
		assert_int_equal(signo, SIGBUS);
		if (lost++)
			continue;
		/* System calls get an error, in both directions. */
		assert_int_equal(write(fd[1], a + page * PAGE, 10), -1);
		assert_int_equal(errno, EFAULT);
		assert_int_equal(write(fd[1], "x", 1), 1);
		assert_int_equal(read(fd[0], a + page * PAGE, 1), -1);
		assert_int_equal(errno, EFAULT);
		/* The program takes the poison away, and not the loss. */
		assert_int_equal(madvise(a + page * PAGE, PAGE, MADV_DONTNEED), 0);
		assert_int_equal(touch(a + page * PAGE), SIGBUS);
	}
	printf("# %llu pages are lost, %llu are not\n", (unsigned long long)lost,
	       (unsigned long long)kept);
	assert_true(lost > 0 && kept > 0);
	assert_true(pager_stats(&w).lost >= lost);
	/* One line a second, not one for each page. */
	lines = __atomic_load_n(&lines_lost, __ATOMIC_RELAXED);
	assert_true(lines >= 1 && lines <= 2 + (gn_now_ns() - begin_ns) / 1000000000u);
	/* Who needs the bytes no more gets zeros. */
	donor_start(&w.vol, 0);
	VOL_AWAIT(&w.vol, s, s.donors[0].state == GN_VOL_DONOR_UP && is_whole(&s));
	assert_int_equal(gn_pager_advise(w.pager, a, w.bytes, GN_PAGER_DONT_NEED), 0);
	for (uint64_t page = 0; page < PAGES(16); page++) {
		assert_int_equal(*(uint64_t *)(void *)(a + page * PAGE), 0);
		a[page * PAGE + 8] = (uint8_t)page;
	}
	for (uint64_t page = 0; page < PAGES(16); page++)
		assert_int_equal(a[page * PAGE + 8], (uint8_t)page);
	close(fd[0]);
	close(fd[1]);
	pager_close(&w);
}

/* Lost pages can be unmapped, and their range is used again. */
static void test_lost_and_unmapped(void **state)
{
	const struct gn_pager_opts opts = pager_opts(true);
	struct gn_vol_stats s;
	struct pager_world w;
	uint8_t *a;

	(void)state;
	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, w.bytes);
	number_pages(a, PAGES(16));
	donor_kill(&w.vol, 0);
	VOL_AWAIT(&w.vol, s, s.donors[0].copies == 0);
	assert_int_equal(touch(a), SIGBUS);
	assert_int_equal(touch(a + PAGE), SIGBUS);
	assert_int_equal(gn_pager_unmap(w.pager, a, w.bytes), 0);
	assert_int_equal(touch(a), SIGSEGV);
	assert_ptr_equal(pager_map(&w, MIB), a);
	number_pages(a, PAGES(1));
	for (uint64_t page = 0; page < PAGES(1); page++)
		assert_true(is_numbered(a, page));
	pager_close(&w);
}

/* ---- children ---- */

/* Runs fn in a forked child. Returns its status. */
static int in_child(void (*fn)(void *arg), void *arg)
{
	const pid_t pid = fork();
	int status = 0;

	assert_true(pid >= 0);
	if (!pid) {
		signal(SIGSEGV, SIG_DFL); /* cmocka's */
		signal(SIGABRT, SIG_DFL);
		fn(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

struct child_case {
	struct pager_world *w;
	uint8_t *addr;
};

static void child_touches(void *arg)
{
	*(volatile uint8_t *)((struct child_case *)arg)->addr = 77;
}

static void child_calls(void *arg)
{
	struct child_case *c = arg;
	void *out;

	if (gn_pager_map(c->w->pager, PAGE, &out) != -EPERM || !strstr(gn_error(), "child"))
		_exit(1);
	if (gn_pager_unmap(c->w->pager, c->addr, PAGE) != -EPERM)
		_exit(2);
	if (gn_pager_destroy(c->w->pager) != -EPERM)
		_exit(3);
}

static void test_fork(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	struct pager_world w;
	struct child_case c = {.w = &w};
	int status;

	(void)state;
	if (UNIT_SANITIZED)
		skip(); /* it has threads of its own in the child */
	pager_open(&w, 1, 1, 8, &opts);
	c.addr = pager_map(&w, w.bytes);
	number_pages(c.addr, PAGES(8));
	/* A page that is local, and one that is not. */
	for (unsigned i = 0; i < 2; i++) {
		status = in_child(child_touches, &c);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		c.addr += w.bytes - PAGE;
	}
	c.addr -= 2 * (w.bytes - PAGE);
	status = in_child(child_calls, &c);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(system("exit 5") >> 8, 5);
	for (uint64_t page = 0; page < PAGES(8); page++)
		assert_true(is_numbered(c.addr, page));
	pager_close(&w);
}

/* ---- descriptors ---- */

static volatile uint8_t *abort_reads;

static void on_abort(int signo)
{
	(void)signo;
	for (uint64_t page = 0; page < PAGES(8); page++)
		abort_reads[page * PAGE];
}

static void close_everything(void *reopen)
{
	struct pager_world w;
	const struct gn_pager_opts opts = pager_opts(false);
	uint8_t *a;

	alarm(60); /* instead of a wait without an end */
	pager_open(&w, 1, 1, 8, &opts);
	a = pager_map(&w, w.bytes);
	number_pages(a, PAGES(8));
	abort_reads = a;
	signal(SIGABRT, on_abort);
	if (close_range(3, ~0u, 0))
		_exit(1);
	for (int fd = 3; reopen && fd < 64; fd++)
		if (open("/dev/null", O_RDWR) != fd)
			_exit(3);
	for (uint64_t page = 0; page < PAGES(8); page++)
		if (!is_numbered(a, page))
			_exit(2); /* zeros, without a word */
	_exit(0);
}

/* Closed descriptors end the process: its memory must not become zeros. */
static void test_closed(void **state)
{
	int status;

	(void)state;
	if (UNIT_SANITIZED)
		skip(); /* as above */
	for (unsigned reopen = 0; reopen < 2; reopen++) {
		status = in_child(close_everything, reopen ? &status : NULL);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGABRT);
	}
}

/* ---- accesses that do not go through the page table ---- */

/* The kernel's look into a process finds local pages, and says so about others. */
static void test_looks_from_outside(void **state)
{
	struct gn_pager_opts opts = pager_opts(false);
	const int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	unsigned missing = 0;
	struct pager_world w;
	uint8_t *a;

	(void)state;
	assert_true(fd >= 0);
	opts.prefetch = GN_PAGER_NO_PREFETCH;
	pager_open(&w, 1, 1, 8, &opts);
	a = pager_map(&w, w.bytes);
	number_pages(a, PAGES(8));
	for (uint64_t page = 0; page < PAGES(8); page += 16) {
		const uint8_t *at = a + page * PAGE;
		uint64_t word = 0;
		struct iovec here = {&word, sizeof(word)}, there = {(void *)(uintptr_t)at, 8};

		if (pread(fd, &word, sizeof(word), (off_t)(uintptr_t)at) == sizeof(word))
			assert_int_equal(word, page + 1);
		else
			missing++, assert_int_equal(errno, EIO);
		if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) == sizeof(word))
			assert_int_equal(word, page + 1);
		else
			assert_int_equal(errno, EFAULT);
	}
	printf("# %u of %u pages could not be read through /proc\n", missing,
	       (unsigned)PAGES(8) / 16);
	for (uint64_t page = 0; page < PAGES(8); page++)
		assert_true(is_numbered(a, page));
	close(fd);
	pager_close(&w);
}

/* A pinned range stays where a device writes. */
static void test_direct(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	char path[] = "/tmp/gannet-pager-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC | O_DIRECT);
	struct pager_world w;
	uint8_t *a, *b;

	(void)state;
	if (fd < 0)
		skip(); /* a file system without O_DIRECT */
	unlink(path);
	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, 8 * MIB);
	b = pager_map(&w, 8 * MIB);
	number_pages(a, PAGES(8));
	assert_int_equal(gn_pager_advise(w.pager, a, MIB, GN_PAGER_PIN), 0);
	assert_int_equal(write(fd, a, MIB), MIB);
	number_pages(b, PAGES(8));
	memset(a, 0, MIB);
	number_pages(b, PAGES(8));
	assert_int_equal(pread(fd, a, MIB, 0), MIB);
	assert_int_equal(gn_pager_advise(w.pager, a, MIB, GN_PAGER_UNPIN), 0);
	number_pages(b, PAGES(8));
	for (uint64_t page = 0; page < PAGES(8); page++) {
		assert_true(is_numbered(a, page));
		assert_true(is_numbered(b, page));
	}
	close(fd);
	pager_close(&w);
}

/* ---- what the program does to its mappings ---- */

/* Calls of userfaultfd take one mapping each: a window of pages must not fail at its end. */
static void divided(bool write_faults)
{
	const struct gn_pager_opts opts = pager_opts(write_faults);
	const uint64_t every = 37, gone = 500;
	struct pager_world w;
	uint8_t *a;

	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, w.bytes);
	for (uint64_t page = 0; page < PAGES(16); page += every)
		assert_int_equal(mprotect(a + page * PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(munmap(a + gone * PAGE, PAGE), 0);
	/* Fresh pages, upwards and downwards; then pages of the volume. */
	for (uint64_t page = 0; page < PAGES(16) / 2; page++)
		if (page % every && page != gone)
			*(volatile uint64_t *)(void *)(a + page * PAGE) = page + 1;
	for (uint64_t page = PAGES(16) - 1; page >= PAGES(16) / 2; page--)
		if (page % every)
			*(volatile uint64_t *)(void *)(a + page * PAGE) = page + 1;
	for (uint64_t page = 0; page < PAGES(16); page++) {
		if (page == gone)
			assert_int_equal(touch(a + page * PAGE), SIGSEGV);
		else if (page % every)
			assert_true(is_numbered(a, page));
		else
			assert_int_equal(*(volatile uint64_t *)(void *)(a + page * PAGE), 0);
	}
	assert_int_equal(pager_stats(&w).lost, 0);
	pager_close(&w);
}

static void test_divided(void **state)
{
	(void)state;
	divided(false);
	divided(true);
}

/* As many mappings as a process may have. */
struct filler {
	uint8_t *addr, *single[4];
	size_t bytes;
};

static bool filler_open(struct filler *f)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	unsigned max = 0, single = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%u", &max), 1);
	fclose(file);
	if (max > 200000)
		return false;
	f->bytes = (size_t)max * 2 * PAGE;
	f->addr =
		mmap(NULL, f->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(f->addr, MAP_FAILED);
	for (size_t page = 1; page < 2 * max; page += 2)
		if (mprotect(f->addr + page * PAGE, PAGE, PROT_READ))
			break;
	do {
		assert_true(single < 4);
		f->single[single] = mmap(NULL, PAGE, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	} while (f->single[single++] != MAP_FAILED);
	return true;
}

static void filler_close(const struct filler *f)
{
	munmap(f->addr, f->bytes);
	for (unsigned i = 0; f->single[i] != MAP_FAILED; i++)
		munmap(f->single[i], PAGE);
}

/* A range that cannot be unmapped stays as it is. */
static void test_too_many_mappings(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	struct pager_world w;
	struct filler filler;
	void *other;
	uint8_t *a;

	(void)state;
	if (UNIT_SANITIZED)
		skip(); /* it needs mappings itself */
	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, 8 * MIB);
	number_pages(a, PAGES(8));
	if (filler_open(&filler)) {
		assert_int_equal(gn_pager_unmap(w.pager, a + MIB, PAGE), -ENOMEM);
		assert_int_equal(gn_pager_map(w.pager, MIB, &other), -ENOMEM);
		filler_close(&filler);
		assert_int_equal(pager_stats(&w).mapped_bytes, 8 * MIB);
		for (uint64_t page = 0; page < PAGES(8); page++)
			assert_true(is_numbered(a, page));
	}
	assert_int_equal(gn_pager_unmap(w.pager, a + MIB, PAGE), 0);
	assert_int_equal(touch(a + MIB), SIGSEGV);
	assert_ptr_equal(pager_map(&w, PAGE), a + MIB);
	assert_int_equal(a[MIB], 0);
	pager_close(&w);
}

/* ---- no memory ---- */

/* The volume was promised more memory than its donors have. */
static void test_out_of_memory(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	struct gn_vol_opts vol;
	struct pager_world w;
	unsigned raised = 0;
	uint8_t *a;

	(void)state;
	world_open(&w.vol, 1, 4);
	w.bytes = 16 * MIB;
	vol = vol_opts(&w.vol, w.bytes, 1);
	vol.headroom = 2 * VOL_SLAB;
	vol_open(&w.vol, &vol);
	assert_int_equal(gn_pager_create(w.vol.vol, &opts, &w.pager), 0);
	a = pager_map(&w, w.bytes);
	for (uint64_t page = 0; page < PAGES(16) && !raised; page++) {
		raised = touch(a + page * PAGE) != 0;
		if (!raised)
			*(volatile uint64_t *)(void *)(a + page * PAGE) = page + 1;
	}
	assert_true(raised);
	assert_int_equal(touch_code, BUS_ADRERR);
	/* What was there is there. */
	for (uint64_t page = 0; page < PAGES(4); page++)
		assert_true(touch(a + page * PAGE) || is_numbered(a, page));
	pager_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed),
		cmocka_unit_test(test_two_copies),
		cmocka_unit_test(test_two_copies_write_faults),
		cmocka_unit_test(test_last_copy),
		cmocka_unit_test(test_lost_and_unmapped),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_looks_from_outside),
		cmocka_unit_test(test_direct),
		cmocka_unit_test(test_out_of_memory),
		cmocka_unit_test(test_divided),
		cmocka_unit_test(test_too_many_mappings),
	};

	pager_require();
	gn_log_to(count_line, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
