/* SPDX-License-Identifier: MIT */
/*
 * A pager on userfaultfd: contents under random touches of several threads, mappings, advice, the
 * limit of local memory, and what stays behind (nothing).
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "pager_world.h"

/* ---- contents ---- */

#define THREADS 4u

struct touching {
	uint8_t *base;
	uint64_t pages, seed;
	unsigned index, touches;
	uint32_t *versions; /* of the thread's own pages */
	uint64_t wrong;
};

static void touching_main(void *arg)
{
	struct touching *t = arg;

	for (unsigned i = 0; i < t->touches; i++) {
		const uint32_t random = unit_next(&t->seed);
		const uint64_t page = unit_next(&t->seed) % t->pages;
		const uint64_t own = page / THREADS * THREADS + t->index;

		switch (random % 4) {
		case 0: /* somebody else's */
			t->wrong += !page_has_number(t->base, page);
			break;
		case 1:
			page_write(t->base, own, ++t->versions[own / THREADS]);
			break;
		default:
			t->wrong += !page_is(t->base, own, t->versions[own / THREADS]);
		}
	}
}

static void touch_all(const struct pager_world *w, uint64_t bytes, unsigned touches)
{
	struct touching t[THREADS];
	struct gn_thread *threads[THREADS];
	uint64_t seed = unit_seed();
	uint8_t *base = pager_map(w, bytes);
	struct gn_pager_stats s;

	for (uint64_t page = 0; page < bytes / PAGE; page++)
		page_write(base, page, 0);
	for (unsigned i = 0; i < THREADS; i++) {
		t[i] = (struct touching){.base = base,
					 .pages = bytes / PAGE,
					 .seed = seed + i,
					 .index = i,
					 .touches = touches,
					 .versions = gn_alloc(bytes / PAGE * 4, 0)};
		assert_int_equal(gn_thread_start("touch", touching_main, &t[i], &threads[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		gn_thread_join(threads[i]);
		assert_int_equal(t[i].wrong, 0);
	}
	for (uint64_t page = 0; page < bytes / PAGE; page++)
		assert_true(page_is(base, page, t[page % THREADS].versions[page / THREADS]));
	for (unsigned i = 0; i < THREADS; i++)
		gn_free(t[i].versions);
	s = pager_stats(w);
	printf("# %llu faults, %llu pages in, %llu out\n", (unsigned long long)s.faults,
	       (unsigned long long)s.pages_in, (unsigned long long)s.pages_out);
	assert_true(s.pages_in > touches / 4 && s.pages_out > touches / 8);
	assert_true(s.resident * PAGE <= LOCAL && s.lost == 0);
	assert_int_equal(gn_pager_unmap(w->pager, base, bytes), 0);
}

/* Linux 6.7 or later? */
static bool kernel_tells_writes(void)
{
	struct utsname os;
	unsigned major = 0, minor = 0;

	assert_int_equal(uname(&os), 0);
	assert_int_equal(sscanf(os.release, "%u.%u", &major, &minor), 2);
	return major > 6 || (major == 6 && minor >= 7);
}

static void contents(unsigned mib, bool write_faults)
{
	const struct gn_pager_opts opts = pager_opts(write_faults);
	struct pager_world w;

	pager_open(&w, 2, 1, mib, &opts);
	touch_all(&w, w.bytes, unit_slow() ? 300 : 2000);
	assert_int_equal(pager_stats(&w).faults_write != 0, write_faults || !kernel_tells_writes());
	pager_close(&w);
}

static void test_contents_50(void **state)
{
	(void)state;
	contents(8, false);
}

static void test_contents_10(void **state)
{
	(void)state;
	contents(40, false);
}

static void test_contents_write_faults(void **state)
{
	(void)state;
	contents(16, true);
}

/* What fits stays: nothing needs free frames. */
static void test_all_local(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	const uint64_t n = LOCAL / PAGE - 1; /* one is in reserve */
	struct pager_world w;
	uint64_t faults;
	uint8_t *a, *b;

	(void)state;
	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, n * PAGE);
	for (uint64_t page = 0; page < n; page++)
		page_write(a, page, 1);
	faults = pager_stats(&w).faults;
	for (unsigned round = 0; round < 3; round++)
		for (uint64_t page = 0; page < n; page++)
			assert_true(page_is(a, page, 1));
	assert_int_equal(pager_stats(&w).faults, faults);
	assert_int_equal(pager_stats(&w).pages_out, 0);
	/* More than that does not. */
	b = pager_map(&w, LOCAL);
	for (uint64_t page = 0; page < n; page++)
		page_write(b, page, 2);
	for (uint64_t page = 0; page < n; page++)
		assert_true(page_is(a, page, 1) && page_is(b, page, 2));
	pager_close(&w);
}

/* ---- mappings ---- */

static void test_map(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	struct pager_world w;
	uint8_t *a, *b;
	void *none = &w;

	(void)state;
	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, 8 * MIB - 5);
	b = pager_map(&w, 8 * MIB);
	assert_int_equal((uintptr_t)a % PAGE + (uintptr_t)b % PAGE, 0);
	assert_int_equal(pager_stats(&w).mapped_bytes, 16 * MIB);
	assert_int_equal(gn_pager_map(w.pager, 1, &none), -ENOMEM);
	assert_non_null(strstr(gn_error(), "volume"));
	assert_ptr_equal(none, &w);
	for (uint64_t page = 0; page < 2048; page++)
		page_write(a, page, 1), page_write(b, page, 2);
	/* A part in the middle, which was partly local. */
	assert_int_equal(gn_pager_unmap(w.pager, a + MIB, 2 * MIB), 0);
	assert_int_equal(touch(a + MIB), SIGSEGV);
	assert_int_equal(touch(a + 3 * MIB - 1), SIGSEGV);
	assert_int_equal(gn_pager_unmap(w.pager, a + MIB, 2 * MIB), -EINVAL);
	assert_int_equal(gn_pager_unmap(w.pager, a, 2 * MIB), -EINVAL);
	assert_int_equal(gn_pager_advise(w.pager, a + MIB, PAGE, GN_PAGER_DONT_NEED), -EINVAL);
	for (uint64_t page = 0; page < 2048; page++) {
		assert_true((page >= 256 && page < 768) || page_is(a, page, 1));
		assert_true(page_is(b, page, 2));
	}
	/* Memory that is mapped again is zeros. */
	assert_ptr_equal(pager_map(&w, 2 * MIB), a + MIB);
	for (uint64_t at = MIB; at < 3 * MIB; at += 8)
		assert_int_equal(*(uint64_t *)(void *)(a + at), 0);
	/* Of two calls. */
	assert_int_equal(gn_pager_unmap(w.pager, a, 16 * MIB), 0);
	assert_int_equal(touch(b), SIGSEGV);
	assert_int_equal(pager_stats(&w).mapped_bytes, 0);
	assert_int_equal(pager_stats(&w).resident, 0);
	pager_close(&w);
}

static void test_misuse(void **state)
{
	struct gn_pager_opts opts = pager_opts(false);
	struct gn_pager *pager = NULL;
	struct rlimit before;
	struct pager_world w;
	uint8_t *a;
	void *addr;

	(void)state;
	pager_open(&w, 1, 1, 8, &opts);
	a = pager_map(&w, 4 * PAGE);
	assert_int_equal(gn_pager_create(NULL, &opts, &pager), -EINVAL);
	assert_int_equal(gn_pager_create(w.vol.vol, NULL, &pager), -EINVAL);
	assert_int_equal(gn_pager_create(w.vol.vol, &opts, &pager), -EBUSY);
	opts.local_bytes = LOCAL - 1;
	assert_int_equal(gn_pager_create(w.vol.vol, &opts, &pager), -EINVAL);
	assert_non_null(strstr(gn_error(), "local_bytes"));
	opts = pager_opts(false);
	opts.prefetch = GN_PAGER_WINDOW_MAX + 1;
	assert_int_equal(gn_pager_create(w.vol.vol, &opts, &pager), -EINVAL);
	opts = pager_opts(false);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){MIB, before.rlim_max}), 0);
	assert_int_equal(gn_pager_create(w.vol.vol, &opts, &pager), -EFBIG); /* and no SIGXFSZ */
	assert_non_null(strstr(gn_error(), "ulimit -f"));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	opts = pager_opts(false);
	opts.size = 8;
	assert_int_equal(gn_pager_create(w.vol.vol, &opts, &pager), -EINVAL);
	assert_null(strstr(gn_error(), "struct struct"));
	assert_null(pager);
	assert_int_equal(gn_pager_map(NULL, PAGE, &addr), -EINVAL);
	assert_int_equal(gn_pager_map(w.pager, PAGE, NULL), -EINVAL);
	assert_int_equal(gn_pager_map(w.pager, 0, &addr), -EINVAL);
	assert_int_equal(gn_pager_map(w.pager, SIZE_MAX, &addr), -EINVAL);
	assert_int_equal(gn_pager_unmap(NULL, a, PAGE), -EINVAL);
	assert_int_equal(gn_pager_unmap(w.pager, a + 1, PAGE), -EINVAL);
	assert_int_equal(gn_pager_unmap(w.pager, a, PAGE + 1), -EINVAL);
	assert_int_equal(gn_pager_unmap(w.pager, a, 0), -EINVAL);
	assert_int_equal(gn_pager_unmap(w.pager, a, SIZE_MAX - PAGE + 1), -EINVAL);
	assert_int_equal(gn_pager_unmap(w.pager, &w, PAGE), -EINVAL);
	assert_int_equal(gn_pager_unmap(w.pager, a - PAGE, PAGE), -EINVAL);
	assert_int_equal(gn_pager_advise(w.pager, a, PAGE, GN_PAGER_ADVICES), -EINVAL);
	assert_int_equal(gn_pager_advise(NULL, a, PAGE, GN_PAGER_COLD), -EINVAL);
	assert_int_equal(gn_pager_query(NULL, NULL), -EINVAL);
	assert_int_equal(gn_pager_query(w.pager, NULL), -EINVAL);
	assert_int_equal(gn_pager_destroy(NULL), 0);
	assert_int_equal(touch(a), 0);
	pager_close(&w);
}

/* ---- advice ---- */

static void test_dont_need(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	struct pager_world w;
	uint8_t *a;

	(void)state;
	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, w.bytes);
	for (uint64_t page = 0; page < 4096; page++)
		page_write(a, page, 1);
	assert_int_equal(gn_pager_advise(w.pager, a, 6 * MIB, GN_PAGER_DONT_NEED), 0);
	assert_int_equal(gn_pager_advise(w.pager, a + 14 * MIB, 2 * MIB, GN_PAGER_DONT_NEED), 0);
	for (uint64_t page = 0; page < 4096; page++)
		if (page < 1536 || page >= 3584)
			assert_int_equal(*(uint64_t *)(void *)(a + page * PAGE), 0);
		else
			assert_true(page_is(a, page, 1));
	pager_close(&w);
}

/* Pages of a range that are in the page table. */
static unsigned count_mapped(const uint8_t *addr, uint64_t pages)
{
	const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	unsigned n = 0;

	for (uint64_t i = 0; i < pages; i++) {
		uint64_t entry = 0;

		assert_int_equal(pread(fd, &entry, 8, (off_t)(((uintptr_t)addr / PAGE + i) * 8)),
				 8);
		n += (unsigned)(entry >> 63);
	}
	close(fd);
	return n;
}

static void test_pin(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	struct pager_world w;
	uint8_t *a;

	(void)state;
	pager_open(&w, 1, 1, 8, &opts);
	a = pager_map(&w, w.bytes);
	for (uint64_t page = 0; page < 2048; page++)
		page_write(a, page, 1);
	assert_int_equal(gn_pager_advise(w.pager, a + MIB, MIB, GN_PAGER_PIN), 0);
	assert_int_equal(pager_stats(&w).pinned, 256);
	assert_int_equal(count_mapped(a + MIB, 256), 256);
	for (unsigned round = 0; round < 2; round++) {
		for (uint64_t page = 0; page < 2048; page++)
			page_write(a, page, 2 + round);
		assert_int_equal(count_mapped(a + MIB, 256), 256);
	}
	assert_int_equal(gn_pager_advise(w.pager, a, LOCAL, GN_PAGER_PIN), -ENOMEM);
	assert_int_equal(pager_stats(&w).pinned, 256);
	assert_int_equal(gn_pager_advise(w.pager, a, 4 * MIB, GN_PAGER_COLD), 0);
	assert_int_equal(count_mapped(a + MIB, 256), 256);
	assert_int_equal(gn_pager_advise(w.pager, a + MIB, MIB, GN_PAGER_UNPIN), 0);
	assert_int_equal(pager_stats(&w).pinned, 0);
	assert_int_equal(gn_pager_advise(w.pager, a + MIB, MIB, GN_PAGER_COLD), 0);
	assert_int_equal(count_mapped(a + MIB, 256), 0);
	for (uint64_t page = 0; page < 2048; page++)
		assert_true(page_is(a, page, 3));
	pager_close(&w);
}

static void test_will_need(void **state)
{
	struct gn_pager_opts opts = pager_opts(false);
	struct pager_world w;
	uint64_t faults, until_ns;
	uint8_t *a;

	(void)state;
	opts.prefetch = GN_PAGER_NO_PREFETCH;
	pager_open(&w, 1, 1, 8, &opts);
	a = pager_map(&w, w.bytes);
	for (uint64_t page = 0; page < 2048; page++)
		page_write(a, page, 1);
	assert_int_equal(gn_pager_advise(w.pager, a, MIB, GN_PAGER_WILL_NEED), 0);
	until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	while (count_mapped(a, 256) < 256) {
		assert_true(gn_now_ns() < until_ns);
		gn_sleep_us(500);
	}
	faults = pager_stats(&w).faults;
	for (uint64_t page = 0; page < 256; page++)
		assert_true(page_is(a, page, 1));
	assert_int_equal(pager_stats(&w).faults, faults);
	/* These are the first to go. */
	assert_int_equal(gn_pager_advise(w.pager, a, MIB, GN_PAGER_COLD), 0);
	assert_int_equal(count_mapped(a, 256), 0);
	for (uint64_t page = 0; page < 2048; page++)
		assert_true(page_is(a, page, 1));
	pager_close(&w);
}

/* ---- the limit, and the end ---- */

/* Descriptors of the process whose file has a name with this in it; the last one's blocks. */
static unsigned count_fds(const char *name, uint64_t *bytes)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned n = 0;

	while ((entry = readdir(dir))) {
		char link[300], target[256];
		struct stat st;
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/self/fd/%s", entry->d_name);
		len = readlink(link, target, sizeof(target) - 1);
		target[len > 0 ? len : 0] = '\0';
		if (len <= 0 || !strstr(target, name))
			continue;
		n++;
		if (bytes && !stat(link, &st))
			*bytes = (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
	return n;
}

static unsigned count_lines(const char *path, const char *with)
{
	FILE *file = fopen(path, "re");
	char line[512];
	unsigned n = 0;

	while (fgets(line, sizeof(line), file))
		n += strstr(line, with) != NULL;
	fclose(file);
	return n;
}

static unsigned count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* A thread that was joined is listed for a moment. */
static void await_threads(unsigned n)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);

	while (count_threads() != n) {
		assert_true(gn_now_ns() < until_ns);
		gn_sleep_us(200);
	}
}

struct watch {
	unsigned stop; /* atomic */
	uint64_t most, wrong;
};

static void watch_main(void *arg)
{
	struct watch *w = arg;

	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		uint64_t bytes = 0;

		w->wrong += count_fds("/memfd:gannet-pager ", &bytes) != 1;
		w->most = bytes > w->most ? bytes : w->most;
		gn_yield();
	}
}

/* The file has all pages, mapped or not. */
static void test_resident(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	struct watch watch = {0};
	struct gn_thread *thread;
	struct pager_world w;

	(void)state;
	pager_open(&w, 1, 1, 16, &opts);
	assert_int_equal(gn_thread_start("watch", watch_main, &watch, &thread), 0);
	touch_all(&w, w.bytes, 1000);
	__atomic_store_n(&watch.stop, 1, __ATOMIC_RELEASE);
	gn_thread_join(thread);
	assert_int_equal(watch.wrong, 0);
	printf("# at most %llu KiB of %u\n", (unsigned long long)watch.most / 1024, LOCAL / 1024);
	assert_true(watch.most > LOCAL / 2 && watch.most <= LOCAL);
	pager_close(&w);
}

static void test_destroy(void **state)
{
	struct gn_pager_opts opts = pager_opts(false);
	struct pager_world w;
	unsigned fds, threads;

	(void)state;
	pager_open(&w, 1, 1, 8, &opts);
	threads = count_threads() - 2;
	assert_int_equal(gn_pager_destroy(w.pager), 0);
	fds = count_fds("", NULL);
	await_threads(threads);
	for (unsigned i = 0; i < 4; i++) {
		uint8_t *a;

		opts.write_faults = i % 2;
		assert_int_equal(gn_pager_create(w.vol.vol, &opts, &w.pager), 0);
		assert_int_equal(count_threads(), threads + 2);
		a = pager_map(&w, w.bytes);
		for (uint64_t page = 0; page < 2048; page++)
			page_write(a, page, i);
		assert_true(page_is(a, 0, i));
		assert_true(count_lines("/proc/self/maps", "gannet-pager") > 0);
		assert_int_equal(gn_pager_destroy(w.pager), 0);
		assert_int_equal(count_fds("", NULL), fds);
		await_threads(threads);
		assert_int_equal(count_lines("/proc/self/maps", "gannet-pager"), 0);
		assert_int_equal(touch(a), SIGSEGV);
	}
	world_close(&w.vol);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contents_50),
		cmocka_unit_test(test_contents_10),
		cmocka_unit_test(test_contents_write_faults),
		cmocka_unit_test(test_all_local),
		cmocka_unit_test(test_map),
		cmocka_unit_test(test_misuse),
		cmocka_unit_test(test_dont_need),
		cmocka_unit_test(test_pin),
		cmocka_unit_test(test_will_need),
		cmocka_unit_test(test_resident),
		cmocka_unit_test(test_destroy),
	};

	pager_require();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
