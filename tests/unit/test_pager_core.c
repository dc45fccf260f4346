/* SPDX-License-Identifier: MIT */
/*
 * The core of a pager on a volume, with a model of the page table: every page has the bytes that
 * were last written to it, however it was evicted, and at most the permitted number is resident.
 */
#include "pager_core_world.h"

/* ---- tests ---- */

static void test_pages_keep_their_bytes(void **state)
{
	static struct pager_world p;
	struct gn_pager_stats s;
	uint64_t first;

	(void)state;
	pager_open(&p, LOCAL, 0);
	first = pager_map(&p, PAGES);
	for (unsigned i = 0; i < 20000; i++) {
		const uint64_t page = first + unit_next(&p.seed) % PAGES;

		if (unit_next(&p.seed) % 3 == 0)
			pager_write(&p, page, unit_next(&p.seed) % 8 ? i + 1 : 0);
		else
			pager_check(&p, page);
	}
	for (uint64_t page = first; page < PAGES; page++)
		pager_check(&p, page);
	s = pager_stats(&p);
	assert_true(p.m.in_file_max <= LOCAL && p.m.in_file_max > LOCAL / 2);
	assert_int_equal(s.resident, p.m.in_file);
	assert_true(s.pages_in && s.pages_out && s.faults_cached && s.faults_fresh);
	assert_true(s.faults_remote <= s.pages_in);
	pager_close(&p);
}

/* Unchanged pages are not written again, and pages of zeros not at all. */
static void test_only_changes_are_written(void **state)
{
	static struct pager_world p;
	uint64_t first, out;

	(void)state;
	pager_open(&p, LOCAL, 0);
	first = pager_map(&p, PAGES);
	for (uint64_t page = first; page < first + PAGES; page++)
		pager_check(&p, page);
	assert_int_equal(pager_stats(&p).pages_out, 0);
	for (uint64_t page = first; page < first + PAGES; page++)
		pager_write(&p, page, 1);
	for (uint64_t page = first; page < first + PAGES; page++)
		pager_check(&p, page);
	out = pager_stats(&p).pages_out;
	assert_int_equal(out, PAGES);
	for (unsigned i = 0; i < 3; i++)
		for (uint64_t page = first; page < first + PAGES; page++)
			pager_check(&p, page);
	assert_int_equal(pager_stats(&p).pages_out, out);
	pager_close(&p);
}

/* Memory that fits, if only just, is left alone. */
static void test_what_fits_stays_mapped(void **state)
{
	static struct pager_world p;
	const uint64_t n = LOCAL - LOCAL / 8 - 8; /* more than the lower watermark is free */
	uint64_t first, faults;

	(void)state;
	pager_open(&p, LOCAL, 0);
	first = pager_map(&p, n);
	for (uint64_t i = 0; i < n; i++)
		pager_write(&p, first + i, 1);
	faults = pager_stats(&p).faults;
	for (unsigned round = 0; round < 3; round++)
		for (uint64_t i = 0; i < n; i++) {
			pager_check(&p, first + i);
			pager_core_work(p.core);
		}
	assert_int_equal(pager_stats(&p).faults, faults);
	assert_int_equal(pager_stats(&p).pages_out, 0);
	pager_close(&p);
}

static void test_ranges(void **state)
{
	static struct pager_world p;
	uint64_t a, b, c, page;

	(void)state;
	pager_open(&p, LOCAL, 0);
	assert_int_equal(pager_core_map(p.core, 0, &page), -EINVAL);
	assert_int_equal(pager_core_map(p.core, PAGES + 1, &page), -ENOMEM);
	a = pager_map(&p, 100);
	b = pager_map(&p, PAGES / 2);
	assert_int_equal(pager_core_map(p.core, PAGES / 2, &page), -ENOMEM);
	c = pager_map(&p, 7);
	for (uint64_t i = 0; i < PAGES / 2; i++)
		pager_write(&p, b + i, 3);
	for (uint64_t i = 0; i < 7; i++)
		pager_write(&p, c + i, 4);
	assert_int_equal(pager_core_unmap(p.core, b - 1, 2), -EINVAL);
	assert_int_equal(pager_core_unmap(p.core, b, PAGES / 2), 0);
	assert_int_equal(pager_core_unmap(p.core, b, PAGES / 2), -EINVAL);
	assert_int_equal(pager_core_unmap(p.core, PAGES, 1), -EINVAL);
	assert_int_equal(vol_stats(&p.w).blocks_written, 0);
	page = pager_map(&p, PAGES / 2);
	for (uint64_t i = 0; i < PAGES / 2; i++)
		pager_check(&p, page + i); /* zeros again */
	for (uint64_t i = 0; i < 7; i++)
		pager_check(&p, c + i);
	assert_int_equal(pager_core_unmap(p.core, a, 50), 0); /* a part of it */
	for (uint64_t i = 50; i < 100; i++)
		pager_check(&p, a + i);
	assert_int_equal(pager_stats(&p).mapped_bytes, (PAGES / 2 + 57) * (uint64_t)GN_PAGER_PAGE);
	pager_close(&p);
}

static void test_dont_need(void **state)
{
	static struct pager_world p;
	uint64_t first;

	(void)state;
	pager_open(&p, LOCAL, 0);
	first = pager_map(&p, PAGES);
	for (uint64_t i = 0; i < PAGES; i++)
		pager_write(&p, first + i, 3);
	assert_int_equal(pager_core_advise(p.core, first + 10, 700, GN_PAGER_DONT_NEED), 0);
	for (uint64_t i = 10; i < 710; i++)
		p.version[first + i] = 0;
	for (uint64_t i = 0; i < PAGES; i++)
		pager_check(&p, first + i);
	pager_close(&p);
}

/* ---- what else is mapped at a fault ---- */

struct walk {
	uint64_t from;
	int64_t delta;
	unsigned n, rows; /* rows: far from each other, in turn */
};

/* The statistics of a walk through pages that are not local. */
static struct gn_pager_stats pager_walk(struct pager_world *p, const struct walk *walk)
{
	const struct gn_pager_stats before = pager_stats(p);
	struct gn_pager_stats s;

	for (unsigned i = 0; i < walk->n; i++)
		for (unsigned row = 0; row < walk->rows; row++)
			pager_check(p, walk->from + (uint64_t)(walk->delta * (int64_t)i) +
					       row * (PAGES / 4));
	s = pager_stats(p);
	s.faults -= before.faults;
	s.pages_in -= before.pages_in;
	s.prefetched -= before.prefetched;
	s.prefetch_used -= before.prefetch_used;
	s.prefetch_wasted -= before.prefetch_wasted;
	return s;
}

static void test_trends(void **state)
{
	static const struct walk walks[] = {
		{20, 1, 400, 1},    {1200, -1, 400, 1}, {20, 3, 300, 1},
		{1400, -7, 180, 1}, {20, 1, 400, 3},	{450, -1, 400, 3},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(walks) / sizeof(*walks); i++) {
		const unsigned pages = walks[i].n * walks[i].rows;
		static struct pager_world p;
		struct gn_pager_stats s;

		pager_open(&p, LOCAL, 32);
		pager_fill_volume(&p);
		s = pager_walk(&p, &walks[i]);
		print_message("# %lld: %llu faults, %llu pages read, %llu ahead, %llu used\n",
			      (long long)walks[i].delta, (unsigned long long)s.faults,
			      (unsigned long long)s.pages_in, (unsigned long long)s.prefetched,
			      (unsigned long long)s.prefetch_used);
		assert_true(s.faults < pages / 5);
		assert_true(s.pages_in < pages + 3 * 32 * walks[i].rows);
		assert_true(s.prefetch_used > pages / 2);
		assert_true(s.prefetch_used + s.prefetch_wasted <= s.prefetched);
		pager_close(&p);
	}
}

/* Pages that are read by a pass over a range. */
static uint64_t pager_pass(struct pager_world *p, uint64_t from, uint64_t n)
{
	const uint64_t before = pager_stats(p).pages_in;

	for (uint64_t i = 0; i < n; i++)
		pager_check(p, from + i);
	return pager_stats(p).pages_in - before;
}

/*
 * Passes over twice the local memory find a part of it there. A smaller range is local after some
 * passes, although scans do not evict what was there before.
 */
static void test_scans(void **state)
{
	static struct pager_world p;
	uint64_t in = 0;

	(void)state;
	pager_open(&p, PAGES / 2, 32);
	pager_fill_volume(&p);
	for (unsigned pass = 0; pass < 4; pass++)
		in = pager_pass(&p, 0, PAGES);
	print_message("# %llu of %u pages\n", (unsigned long long)in, PAGES);
	assert_true(in < PAGES * 85 / 100);
	for (unsigned from = 0; from < PAGES; from += PAGES / 4) {
		unsigned passes = 0;

		while ((in = pager_pass(&p, from, PAGES / 4)) && passes < 40)
			passes++;
		print_message("# local after %u passes\n", passes);
		assert_true(passes < 40);
	}
	pager_close(&p);
}

/* Random faults have no trend, and with a window of 0 there is no prefetch. */
static void test_no_trend(void **state)
{
	(void)state;
	for (uint32_t window = 0; window <= 32; window += 32) {
		static struct pager_world p;
		struct gn_pager_stats s;

		pager_open(&p, LOCAL, window);
		pager_fill_volume(&p);
		for (unsigned i = 0; i < 5000; i++)
			pager_check(&p, unit_next(&p.seed) % PAGES);
		if (!window)
			pager_walk(&p, &(struct walk){20, 1, 100, 1});
		s = pager_stats(&p);
		assert_true(s.prefetched <= (window ? s.faults / 20 : 0));
		pager_close(&p);
	}
}

static void test_fresh_in_batches(void **state)
{
	(void)state;
	for (unsigned down = 0; down < 2; down++) {
		static struct pager_world p;
		struct gn_pager_stats s;
		uint64_t first;

		pager_open(&p, LOCAL, 0);
		first = pager_map(&p, PAGES);
		for (uint64_t i = 0; i < 300; i++)
			pager_write(&p, first + (down ? 600 - i : 600 + i), 1);
		s = pager_stats(&p);
		assert_true(s.faults_fresh <= 10);
		assert_true(s.zeroed >= 300 && s.zeroed < 500);
		/* Single pages here and there: fewer and fewer are filled. */
		for (uint64_t i = 0; i < 30; i++)
			pager_check(&p, first + 1000 + 32 * i);
		s = pager_stats(&p);
		for (uint64_t i = 0; i < 30; i++)
			pager_check(&p, first + 1016 + 32 * i);
		assert_true(pager_stats(&p).zeroed - s.zeroed <= 60);
		pager_close(&p);
	}
}

/* ---- advice ---- */

static void test_will_need(void **state)
{
	static struct pager_world p;
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	uint64_t faults;

	(void)state;
	pager_open(&p, LOCAL, 0);
	pager_fill_volume(&p);
	assert_int_equal(pager_core_advise(p.core, 100, 200, GN_PAGER_WILL_NEED), 0);
	while (model_touch(&p.m, 299, false) != TOUCH_DONE) {
		assert_true(gn_now_ns() < until_ns);
		pager_core_wait(p.core, gn_deadline_us(50));
	}
	faults = pager_stats(&p).faults;
	for (uint64_t i = 100; i < 300; i++)
		pager_check(&p, i);
	assert_int_equal(pager_stats(&p).faults, faults);
	/* More than fits is no harm, nor is memory that is unmapped meanwhile. */
	assert_int_equal(pager_core_advise(p.core, 0, PAGES, GN_PAGER_WILL_NEED), 0);
	assert_int_equal(pager_core_unmap(p.core, 50, 10), 0);
	while (pager_core_work(p.core) || pager_core_busy(p.core))
		assert_true(gn_now_ns() < until_ns);
	for (uint64_t i = 60; i < PAGES; i++)
		pager_check(&p, i);
	pager_close(&p);
}

/* The first pages are local already, as many as are looked at by one step. */
static void test_will_need_behind_local_pages(void **state)
{
	static struct pager_world p;
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	uint64_t page;

	(void)state;
	pager_open(&p, PAGES - 600, 0);
	pager_fill_volume(&p);
	for (page = 0; page < 512; page++)
		pager_check(&p, page);
	while (pager_core_work(p.core) || pager_core_busy(p.core))
		assert_true(gn_now_ns() < until_ns);
	assert_int_equal(p.m.pte[512] & PTE_FILE, 0);
	assert_int_equal(pager_core_advise(p.core, 0, 560, GN_PAGER_WILL_NEED), 0);
	while (pager_core_busy(p.core)) { /* otherwise the handler sleeps */
		assert_true(gn_now_ns() < until_ns);
		pager_core_wait(p.core, gn_deadline_us(50));
	}
	for (; page < 560; page++)
		assert_int_equal(model_touch(&p.m, page, false), TOUCH_DONE);
	pager_close(&p);
}

static void test_cold(void **state)
{
	static struct pager_world p;
	uint64_t first;

	(void)state;
	pager_open(&p, LOCAL, 0);
	first = pager_map(&p, PAGES);
	for (uint64_t i = 0; i < 300; i++)
		pager_write(&p, first + i, 1);
	assert_int_equal(pager_core_advise(p.core, first + 150, 100, GN_PAGER_COLD), 0);
	for (uint64_t i = 0; i < 300; i++)
		assert_int_equal(model_touch(&p.m, first + i, false),
				 i >= 150 && i < 250 ? TOUCH_FAULT : TOUCH_DONE);
	/* They go first. */
	for (uint64_t i = 400; i < 550; i++)
		pager_write(&p, first + i, 1);
	for (uint64_t i = 0; i < 300; i++)
		if (i < 128 || i >= 256) /* their chunks have no cold page */
			assert_true(p.m.pte[first + i] & PTE_FILE);
	pager_close(&p);
}

static void test_pin(void **state)
{
	static struct pager_world p;

	(void)state;
	pager_open(&p, LOCAL, 32);
	pager_fill_volume(&p);
	assert_int_equal(pager_core_advise(p.core, 0, LOCAL / 2 + 1, GN_PAGER_PIN), -ENOMEM);
	assert_int_equal(pager_core_advise(p.core, 90, 200, GN_PAGER_PIN), 0);
	assert_int_equal(pager_core_advise(p.core, 100, 50, GN_PAGER_PIN), 0);
	assert_int_equal(pager_stats(&p).pinned, 200);
	assert_int_equal(pager_core_advise(p.core, 100, 1, GN_PAGER_DONT_NEED), -EINVAL);
	for (unsigned i = 0; i < 3000; i++) {
		const uint64_t page = 90 + unit_next(&p.seed) % 200;

		assert_int_equal(model_touch(&p.m, page, false), TOUCH_DONE);
		pager_check(&p, page);
		pager_write(&p, unit_next(&p.seed) % PAGES, i);
	}
	/* Bytes that a device wrote, which leaves no trace. */
	p.version[100] = 77;
	for (unsigned i = 0; i < GN_PAGER_PAGE / 8; i++)
		((uint64_t *)(void *)model_bytes(&p.m, 100))[i] = page_word(100, 77);
	assert_int_equal(pager_core_advise(p.core, 90, 200, GN_PAGER_UNPIN), 0);
	assert_int_equal(pager_stats(&p).pinned, 0);
	for (unsigned round = 0; round < 2; round++)
		for (uint64_t page = 0; page < PAGES; page++)
			pager_check(&p, page);
	pager_close(&p);
}

/* A thread that touches another page while a range is pinned. */
struct toucher {
	struct pager_world *p;
	uint64_t page;
	unsigned calls, touched; /* touched: the call that found the page mapped */
};

static void toucher_faults(void *arg)
{
	struct toucher *t = arg;

	if (!t->calls++)
		pager_core_fault(t->p->core, t->page, 2, false);
	if (!t->touched && model_touch(&t->p->m, t->page, false) == TOUCH_DONE)
		t->touched = t->calls;
}

/* Half of the local memory is read, which takes a while. */
static void test_faults_during_a_pin(void **state)
{
	static struct pager_world p;
	struct toucher toucher = {.p = &p, .page = PAGES / 2};

	(void)state;
	p.faults = toucher_faults;
	p.faults_arg = &toucher;
	pager_open(&p, LOCAL, 32);
	pager_fill_volume(&p);
	assert_int_equal(model_touch(&p.m, toucher.page, false), TOUCH_FAULT);
	assert_int_equal(toucher.calls, 0);
	assert_int_equal(pager_core_advise(p.core, 0, 200, GN_PAGER_PIN), 0);
	/* It did not wait until all of them were read. */
	assert_true(toucher.touched && toucher.touched < toucher.calls);
	for (uint64_t page = 0; page < PAGES; page++)
		pager_check(&p, page);
	pager_close(&p);
}

/* ---- failures ---- */

/* The only donor ends: pages that it had raise SIGBUS, local ones stay. */
static void test_lost_pages(void **state)
{
	static struct pager_world p;
	uint64_t local = PAGES;

	(void)state;
	pager_open_vol(&p, LOCAL, 32, PAGES_SLABS, 2000000);
	pager_fill_volume(&p);
	while (pager_core_work(p.core) || pager_core_busy(p.core))
		;
	donor_kill(&p.w, 0);
	for (uint64_t page = PAGES - 200; page < PAGES; page++)
		pager_check(&p, page);
	for (uint64_t page = 100; page < 110; page++)
		assert_int_equal(pager_touch(&p, page, false), TOUCH_SIGBUS);
	assert_int_equal(pager_stats(&p).lost, 10);
	assert_int_equal(pager_core_advise(p.core, 105, 10, GN_PAGER_PIN), -EIO);
	assert_int_equal(pager_stats(&p).pinned, 0);
	/* A range that cannot be pinned leaves pages pinned that were. */
	while (p.m.pte[local - 1] & PTE_FILE)
		local--;
	assert_int_equal(pager_core_advise(p.core, local, 20, GN_PAGER_PIN), 0);
	assert_int_equal(pager_core_advise(p.core, local - 70, 90, GN_PAGER_PIN), -EIO);
	assert_int_equal(pager_stats(&p).pinned, 20);
	assert_int_equal(pager_core_advise(p.core, local, 20, GN_PAGER_UNPIN), 0);
	assert_int_equal(pager_stats(&p).pinned, 0);
	assert_int_equal(pager_core_advise(p.core, 105, 5, GN_PAGER_DONT_NEED), 0);
	for (uint64_t page = 105; page < 110; page++) {
		p.version[page] = 0;
		pager_check(&p, page);
	}
	assert_int_equal(pager_core_unmap(p.core, 0, PAGES / 2), 0);
	pager_close(&p);
}

static void stall_logged(void *arg, enum gn_log_level level, const char *line)
{
	(void)level;
	if (strstr(line, "pager: the READ of page "))
		*(bool *)arg = true;
}

/* The log says what a thread waits for. */
static void test_stalls_are_logged(void **state)
{
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	static struct pager_world p;
	struct gn_vol_stats s;
	uint64_t page = 100;
	bool logged = false;
	pid_t donor;

	(void)state;
	gn_log_to(stall_logged, &logged); /* before there are other threads */
	world_open(&p.w, 1, PAGES_SLABS);
	donor_kill(&p.w, 0);
	donor = donor_process_start(p.w.addrs[0], PAGES_SLABS);
	pager_open_core(&p, LOCAL, 0, PAGES_SLABS, 0);
	pager_fill_volume(&p);
	while (pager_core_work(p.core) || pager_core_busy(p.core))
		;
	kill(donor, SIGKILL);
	assert_int_equal(waitpid(donor, NULL, 0), donor);
	/* READs of its memory still succeed until the broken connection is noticed. */
	VOL_AWAIT(&p.w, s, s.donors[0].state != GN_VOL_DONOR_UP);
	while (!logged) {
		assert_true(gn_now_ns() < until_ns);
		if (!pager_core_busy(p.core))
			pager_core_fault(p.core, ++page, 1, false);
		pager_core_wait(p.core, gn_deadline_us(50));
	}
	donor_start(&p.w, 0); /* another one: the page is lost */
	while (model_touch(&p.m, page, false) == TOUCH_FAULT) {
		assert_true(gn_now_ns() < until_ns);
		pager_core_wait(p.core, gn_deadline_us(50));
	}
	pager_close(&p);
	gn_log_to(NULL, NULL);
}

static uint64_t woken;

static void count_wakes(struct pager_model *m, uint64_t page, uint64_t n)
{
	(void)m;
	(void)page;
	woken += n;
}

/* The kernel has no memory for a page table. A thread that waits is woken all the same. */
static void test_refusals_wake(void **state)
{
	static struct pager_world p;
	uint64_t first;

	(void)state;
	pager_open(&p, LOCAL, 0);
	p.m.wake = count_wakes;
	first = pager_map(&p, PAGES);
	for (uint64_t i = 0; i < 3; i++)
		pager_write(&p, first + i, 1);
	/* A page that the program has unmapped by itself. */
	model_forget(&p.m, first + 1);
	p.m.no_remap = true;
	woken = 0;
	pager_core_fault(p.core, first + 1, 1, false);
	assert_true(woken > 0);
	assert_int_equal(pager_touch(&p, first + 1, false), TOUCH_SIGBUS);
	assert_int_equal(pager_stats(&p).lost, 1);
	assert_int_equal(pager_stats(&p).resident, p.m.in_file);
	/* It cannot be poisoned either: the thread faults again. */
	model_forget(&p.m, first + 2);
	p.m.no_poison = true;
	for (unsigned i = 0; i < 3; i++) {
		woken = 0;
		pager_core_fault(p.core, first + 2, 1, false);
		assert_true(woken > 0);
	}
	p.m.no_remap = p.m.no_poison = false;
	assert_int_equal(pager_touch(&p, first + 2, false), TOUCH_SIGBUS);
	assert_int_equal(pager_core_advise(p.core, first, 3, GN_PAGER_DONT_NEED), 0);
	for (uint64_t i = 0; i < 3; i++) {
		p.version[first + i] = 0;
		pager_check(&p, first + i);
	}
	pager_close(&p);
}

/* The donor has less than the volume: what was not promised raises SIGBUS, the rest stays. */
static void test_out_of_remote_memory(void **state)
{
	static struct pager_world p;
	uint64_t first, n = 0;

	(void)state;
	pager_open_vol(&p, LOCAL, 0, PAGES_SLABS / 2, 0);
	first = pager_map(&p, PAGES);
	while (n < PAGES && pager_touch(&p, first + n, true) == TOUCH_DONE)
		pager_write(&p, first + n++, 9);
	assert_true(n >= PAGES / 2 && n < PAGES);
	assert_int_equal(pager_stats(&p).lost, 1);
	/* With some memory back it goes on. */
	assert_int_equal(pager_core_unmap(p.core, first, PAGES / 2), 0);
	for (uint64_t page = first + PAGES / 2; page < first + n; page++)
		pager_check(&p, page);
	pager_close(&p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages_keep_their_bytes),
		cmocka_unit_test(test_only_changes_are_written),
		cmocka_unit_test(test_what_fits_stays_mapped),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_dont_need),
		cmocka_unit_test(test_trends),
		cmocka_unit_test(test_scans),
		cmocka_unit_test(test_no_trend),
		cmocka_unit_test(test_fresh_in_batches),
		cmocka_unit_test(test_will_need),
		cmocka_unit_test(test_will_need_behind_local_pages),
		cmocka_unit_test(test_cold),
		cmocka_unit_test(test_pin),
		cmocka_unit_test(test_faults_during_a_pin),
		cmocka_unit_test(test_lost_pages),
		cmocka_unit_test(test_stalls_are_logged),
		cmocka_unit_test(test_refusals_wake),
		cmocka_unit_test(test_out_of_remote_memory),
	};

	return argc > 2 ? donor_process_main(argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
