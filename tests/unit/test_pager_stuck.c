/* SPDX-License-Identifier: MIT */
/*
 * One of two donors ends without a word, and there is one copy: until it is given up, requests for
 * its pages do not end. What needs none of these goes on.
 */
#include "pager_core_world.h"

#define STUCK_LOCAL 1024u
#define STUCK_CHUNK 64u
#define SOON_US	    4000000u /* much less than lost_us, and enough for a busy machine */
#define EXTENT	    (VOL_SLAB / GN_PAGER_PAGE)

static uint64_t pages_of(const struct pager_world *p, unsigned donor)
{
	uint64_t n = 0;

	for (uint32_t e = 0; e < PAGES_SLABS; e++)
		n += donor_read(&p->w, e) == donor ? EXTENT : 0;
	return n;
}

/* The i-th page of a donor, in the order of addresses. */
static uint64_t page_of(const struct pager_world *p, unsigned donor, uint64_t i)
{
	for (uint32_t e = 0;; e++) {
		assert_true(e < PAGES_SLABS);
		if (donor_read(&p->w, e) != donor)
			continue;
		if (i < EXTENT)
			return (uint64_t)e * EXTENT + i;
		i -= EXTENT;
	}
}

/*
 * The second donor is a process. All pages are written, half of them with each donor, and most of
 * those that are local are the first one's.
 */
static pid_t stuck_open(struct pager_world *p, uint32_t lost_us)
{
	pid_t donor;

	world_open(&p->w, 2, PAGES_SLABS / 2);
	donor_kill(&p->w, 1);
	donor = donor_process_start(p->w.addrs[1], PAGES_SLABS / 2);
	pager_open_core(p, STUCK_LOCAL, 0, PAGES_SLABS, lost_us);
	pager_fill_volume(p);
	assert_int_equal(pages_of(p, 0), pages_of(p, 1));
	for (uint64_t i = 0; i < pages_of(p, 0); i++)
		pager_check(p, page_of(p, 0, i));
	return donor;
}

static void stuck_kill(struct pager_world *p, pid_t donor)
{
	struct gn_vol_stats s;

	while (pager_core_work(p->core) || pager_core_busy(p->core))
		;
	kill(donor, SIGKILL);
	assert_int_equal(waitpid(donor, NULL, 0), donor);
	/* Requests for its memory still succeed until the broken connection is noticed. */
	VOL_AWAIT(&p->w, s, s.donors[1].state != GN_VOL_DONOR_UP);
}

/* Another donor takes its address: the volume notices that the memory is lost. */
static void stuck_end(struct pager_world *p)
{
	donor_start(&p->w, 1);
	while (pager_core_work(p->core) || pager_core_busy(p->core))
		pager_core_wait(p->core, gn_deadline_us(50));
}

/* A page of a donor that is not local. */
static uint64_t remote_page_of(const struct pager_world *p, unsigned donor)
{
	uint64_t i = 0;

	while (p->m.pte[page_of(p, donor, i)] & PTE_FILE)
		i++;
	return page_of(p, donor, i);
}

/* Other requests may never end. */
static void touch_soon(struct pager_world *p, uint64_t page, bool write)
{
	const uint64_t until_ns = gn_deadline_us(SOON_US);
	bool faulted = false;

	while (model_touch(&p->m, page, write) == TOUCH_FAULT) {
		assert_true(gn_now_ns() < until_ns);
		if (!faulted || !(p->m.pte[page] & PTE_FILE))
			pager_core_fault(p->core, page, 1, write);
		faulted = true;
		while (model_touch(&p->m, page, write) == TOUCH_FAULT && gn_now_ns() < until_ns)
			pager_core_wait(p->core, gn_deadline_us(50));
	}
}

/*
 * Changed pages of the donor fill all buffers of the write-back: unchanged ones can be dropped, and
 * those of the other donor be written.
 */
static void test_faults_go_on(void **state)
{
	static struct pager_world p;
	uint64_t healthy;
	pid_t donor;

	(void)state;
	donor = stuck_open(&p, 0);
	for (uint64_t i = 0; i < 8 * STUCK_CHUNK; i++)
		pager_write(&p, page_of(&p, 1, i), 6);
	for (uint64_t i = 0; i < STUCK_LOCAL / 4; i++)
		pager_check(&p, page_of(&p, 0, i));
	healthy = pages_of(&p, 0);
	stuck_kill(&p, donor);
	for (unsigned round = 0; round < 6; round++)
		for (uint64_t i = 0; i < healthy; i++) {
			const uint64_t page = page_of(&p, 0, i);

			touch_soon(&p, page, round / 2 == 1);
			pager_check(&p, page);
			if (round / 2 == 1)
				pager_write(&p, page, 10 + round);
		}
	/* What could not be written is still there. */
	stuck_end(&p);
	for (uint64_t i = 0; i < 8 * STUCK_CHUNK; i++)
		pager_check(&p, page_of(&p, 1, i));
	pager_close(&p);
}

/* A thread that touches a page of the other donor while a command waits. */
struct toucher {
	struct pager_world *p;
	uint64_t page, since_ns, took_ns;
	unsigned calls;
};

static void toucher_faults(void *arg)
{
	struct toucher *t = arg;

	if (++t->calls < 3 || t->took_ns)
		return;
	if (model_touch(&t->p->m, t->page, false) == TOUCH_FAULT) {
		pager_core_fault(t->p->core, t->page, 2, false);
		return;
	}
	t->took_ns = gn_now_ns() - t->since_ns;
	donor_start(&t->p->w, 1); /* the READ of the pinned page ends */
}

static void test_faults_during_a_pin(void **state)
{
	static struct pager_world p;
	struct toucher toucher = {.p = &p};
	pid_t donor;

	(void)state;
	p = (struct pager_world){.faults = toucher_faults, .faults_arg = &toucher};
	donor = stuck_open(&p, 0);
	toucher.page = remote_page_of(&p, 0);
	stuck_kill(&p, donor);
	toucher.since_ns = gn_now_ns();
	assert_int_equal(pager_core_advise(p.core, remote_page_of(&p, 1), 1, GN_PAGER_PIN), -EIO);
	assert_true(toucher.took_ns && toucher.took_ns < SOON_US * UINT64_C(1000));
	pager_close(&p);
}

/* A READ is under way for a page that is forgotten, or unmapped. */
static void test_faults_during_a_command(void **state)
{
	(void)state;
	for (unsigned unmap = 0; unmap < 2; unmap++) {
		static struct pager_world p;
		struct toucher toucher = {.p = &p};
		uint64_t page;
		pid_t donor;

		p = (struct pager_world){.faults = toucher_faults, .faults_arg = &toucher};
		donor = stuck_open(&p, 0);
		toucher.page = remote_page_of(&p, 0);
		page = remote_page_of(&p, 1);
		stuck_kill(&p, donor);
		pager_core_fault(p.core, page, 1, false);
		toucher.since_ns = gn_now_ns();
		assert_int_equal(unmap ? pager_core_unmap(p.core, page, 1) :
					 pager_core_advise(p.core, page, 1, GN_PAGER_DONT_NEED),
				 0);
		assert_true(toucher.took_ns && toucher.took_ns < SOON_US * UINT64_C(1000));
		pager_close(&p);
	}
}

/* Pages that the program will need, one by one, are more than there are buffers for READs. */
static void test_no_reads_ahead(void **state)
{
	static struct pager_world p;
	uint64_t first, healthy, n = 0;
	pid_t donor;

	(void)state;
	p = (struct pager_world){.faults = NULL};
	donor = stuck_open(&p, 0);
	first = remote_page_of(&p, 1) / EXTENT * EXTENT;
	for (uint64_t i = 0; i < EXTENT; i += 2)
		pager_check(&p, first + i);
	for (uint64_t i = 0; i < EXTENT; i++)
		n += !(p.m.pte[first + i] & PTE_FILE);
	assert_true(n > 72); /* buffers */
	healthy = remote_page_of(&p, 0);
	stuck_kill(&p, donor);
	assert_int_equal(pager_core_advise(p.core, first, EXTENT, GN_PAGER_WILL_NEED), 0);
	for (unsigned i = 0; i < 1000; i++)
		pager_core_wait(p.core, gn_deadline_us(50));
	touch_soon(&p, healthy, false);
	/* They are read when the donor is back, or are lost. */
	stuck_end(&p);
	pager_close(&p);
}

/* A page that is lost while its bytes are being forgotten is zeros, as any other. */
static void test_forgotten_while_it_is_lost(void **state)
{
	static struct pager_world p;
	uint64_t page;
	pid_t donor;

	(void)state;
	p = (struct pager_world){.faults = NULL};
	donor = stuck_open(&p, 1000000);
	page = remote_page_of(&p, 1);
	stuck_kill(&p, donor);
	pager_core_fault(p.core, page, 1, false);
	assert_int_equal(model_touch(&p.m, page, false), TOUCH_FAULT);
	assert_int_equal(pager_core_advise(p.core, page, 1, GN_PAGER_DONT_NEED), 0);
	p.version[page] = 0;
	pager_check(&p, page);
	pager_close(&p);
}

struct lines {
	unsigned reads, not_run;
};

static void count_line(void *arg, enum gn_log_level level, const char *line)
{
	struct lines *lines = arg;

	(void)level;
	lines->reads += strstr(line, "pager: the READ of page ") != NULL;
	lines->not_run += strstr(line, "pager: the handler did not run for ") != NULL;
}

/* The log tells a volume that does not answer from a handler that was not scheduled. */
static void test_a_handler_that_does_not_run(void **state)
{
	static struct pager_world p;
	struct lines lines = {0};
	pid_t donor;

	(void)state;
	gn_log_to(count_line, &lines); /* before there are other threads */
	p = (struct pager_world){.faults = NULL};
	donor = stuck_open(&p, 0);
	stuck_kill(&p, donor);
	pager_core_fault(p.core, remote_page_of(&p, 1), 1, false);
	while (lines.reads < 1)
		pager_core_wait(p.core, gn_deadline_us(50));
	lines = (struct lines){0};
	usleep(1200000);
	pager_core_wait(p.core, gn_deadline_us(50));
	assert_int_equal(lines.reads, 1);
	assert_int_equal(lines.not_run, 1);
	stuck_end(&p);
	pager_close(&p);
	gn_log_to(NULL, NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_faults_go_on),
		cmocka_unit_test(test_faults_during_a_pin),
		cmocka_unit_test(test_faults_during_a_command),
		cmocka_unit_test(test_no_reads_ahead),
		cmocka_unit_test(test_forgotten_while_it_is_lost),
		cmocka_unit_test(test_a_handler_that_does_not_run),
	};

	return argc > 2 ? donor_process_main(argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
