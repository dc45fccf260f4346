/* SPDX-License-Identifier: MIT */
/* The threads of a program: touches, each of which is checked, and commands. */
#include "sim_pager.h"

#define ROW_MAX 80u
#define OWN_MAX 160u

static uint64_t page_word(uint64_t page, uint32_t version)
{
	return version ? (page + 1) << 32 | version : 0;
}

static void page_check(struct world *w, uint64_t page)
{
	const uint64_t *word = (const uint64_t *)(const void *)model_bytes(&w->model, page);
	const uint64_t want = page_word(page, w->version[page]);

	for (unsigned i = 0; i < GN_PAGER_PAGE / 8; i++)
		if (word[i] != want) {
			world_fail(w, "page %llu has %llx instead of %llx at word %u",
				   (unsigned long long)page, (unsigned long long)word[i],
				   (unsigned long long)want, i);
			return;
		}
}

/* Another version of a page; every eighth is zeros. */
static void page_write(struct world *w, uint64_t page)
{
	uint64_t *word = (uint64_t *)(void *)model_bytes(&w->model, page);

	w->sums.writes++;
	w->version[page] = gn_random() % 8 ? (uint32_t)w->sums.writes : 0;
	for (unsigned i = 0; i < GN_PAGER_PAGE / 8; i++)
		word[i] = page_word(page, w->version[page]);
}

/* As the kernel: tells the handler, and sleeps until somebody wakes threads that wait there. */
static void thread_fault(struct thread *t, uint64_t page, bool write)
{
	struct client *c = t->c;
	struct sleeper *s = &c->sleepers[t->index];

	if (c->n_events == EVENTS_MAX) {
		gn_sleep_us(1);
		return;
	}
	c->events[c->n_events].page = page;
	c->events[c->n_events].writes = write;
	c->events[c->n_events++].thread = t->index;
	*s = (struct sleeper){page, true};
	gn_cond_signal(&c->handler_cond);
	gn_mutex_lock(&c->lock);
	while (s->waits && !*c->w->run.failure)
		gn_cond_wait(&c->threads_cond, &c->lock, GN_FOREVER, "a page fault");
	gn_mutex_unlock(&c->lock);
}

void thread_touch(struct thread *t, uint64_t page, bool write)
{
	struct world *w = t->c->w;
	const uint64_t start_ns = gn_now_ns();
	enum model_touch touch;

	w->sums.touches++;
	w->active_ns = gn_sim_now_ns(w->run.sim);
	while ((touch = model_touch(&w->model, page, write)) == TOUCH_FAULT && !*w->run.failure) {
		if (page >= t->own && page < t->own + t->pinned_n)
			world_fail(w, "page %llu is pinned, and not there",
				   (unsigned long long)page);
		thread_fault(t, page, write);
	}
	if (*w->run.failure)
		return;
	if (touch == TOUCH_SIGBUS) {
		w->sums.sigbus++;
		w->lost[page] = true;
		return;
	}
	if (w->lost[page])
		world_fail(w, "page %llu was lost, and is there again", (unsigned long long)page);
	page_check(w, page);
	if (write)
		page_write(w, page);
	client_ended(t->c, start_ns, "a touch");
}

/* ---- commands ---- */

static void own_forget(struct thread *t, uint64_t page, uint64_t n)
{
	struct world *w = t->c->w;

	for (uint64_t p = page; p < page + n; p++) {
		w->version[p] = 0;
		w->lost[p] = false;
	}
}

static void own_map(struct thread *t)
{
	struct world *w = t->c->w;
	uint64_t page, n = 1 + gn_random() % OWN_MAX;

	if (n > (w->plan.pages - w->plan.shared) / w->plan.n_threads)
		n = 1;
	if (client_command(t->c, COMMAND_MAP, &page, n))
		return;
	t->own = page;
	t->own_n = n;
	t->pinned_n = 0;
	own_forget(t, page, n);
}

static void own_unmap(struct thread *t)
{
	const uint64_t n = gn_random() % 3 ? t->own_n : 1 + gn_random() % t->own_n;
	uint64_t page = t->own + t->own_n - n; /* the whole mapping, or its end */
	const uint64_t left = t->own_n - n;
	const uint64_t pinned = t->pinned_n < left ? t->pinned_n : left;

	t->own_n = left;
	t->pinned_n = pinned;
	while (client_command(t->c, COMMAND_UNMAP, &page, n) && !*t->c->w->run.failure)
		if (!t->c->w->plan.refuse_one_in)
			world_fail(t->c->w, "unmap: %s", gn_error());
}

static void own_pin(struct thread *t)
{
	struct world *w = t->c->w;
	const uint64_t n = 1 + gn_random() % t->own_n;
	uint64_t page = t->own;
	int rc;

	if (t->pinned_n) {
		const uint64_t pinned = t->pinned_n;

		t->pinned_n = 0;
		rc = client_command(t->c, GN_PAGER_UNPIN, &page, pinned);
		if (rc)
			world_fail(w, "unpin: %s", gn_strerror(rc));
		return;
	}
	rc = client_command(t->c, GN_PAGER_PIN, &page, n);
	if (!rc)
		t->pinned_n = n;
	else if (rc != -ENOMEM && !(rc == -EIO && may_lose(w)) && !w->plan.refuse_one_in)
		world_fail(w, "pin: %s", gn_strerror(rc));
	if (rc) /* a page that is lost now has the bytes that it had */
		for (uint64_t p = page; p < page + n; p++)
			w->lost[p] |= (w->pte[p] & PTE_POISON) != 0;
}

static void own_dont_need(struct thread *t)
{
	const uint64_t from = t->pinned_n, n = t->own_n - from;
	uint64_t page = t->own + from;
	int rc;

	if (!n)
		return;
	while ((rc = client_command(t->c, GN_PAGER_DONT_NEED, &page, n)) && !*t->c->w->run.failure)
		if (!t->c->w->plan.refuse_one_in)
			world_fail(t->c->w, "dont-need: %s", gn_strerror(rc));
	own_forget(t, page, n);
}

static void any_advice(struct thread *t, enum gn_pager_advice advice)
{
	const struct plan *plan = &t->c->w->plan;
	uint64_t page = gn_random() % plan->shared;
	const uint64_t n = 1 + gn_random() % (plan->shared - page);
	int rc;

	page += t->c->shared;
	rc = client_command(t->c, advice, &page, n);
	if (rc)
		world_fail(t->c->w, "advice %d: %s", (int)advice, gn_strerror(rc));
}

/* The program's own MADV_DONTNEED: the kernel forgets that the pages are mapped, not their bytes. */
static void any_forget(struct thread *t)
{
	struct world *w = t->c->w;
	const uint64_t page = gn_random() % w->plan.shared;
	const uint64_t end = page + 1 + gn_random() % (w->plan.shared - page);

	for (uint64_t p = page; p < end; p++)
		model_forget(&w->model, t->c->shared + p);
	w->sums.forgotten += end - page;
}

static void thread_command(struct thread *t)
{
	switch (gn_random() % 7) {
	case 6:
		any_forget(t);
		break;
	case 0:
		any_advice(t, GN_PAGER_WILL_NEED);
		break;
	case 1:
		any_advice(t, GN_PAGER_COLD);
		break;
	case 2:
		if (t->own_n)
			own_dont_need(t);
		break;
	case 3:
		if (t->own_n)
			own_pin(t);
		break;
	default:
		if (t->own_n)
			own_unmap(t);
		else
			own_map(t);
	}
}

/* ---- loop ---- */

/* A page that all threads use, or one of its own. */
static uint64_t draw_page(const struct thread *t)
{
	const struct plan *plan = &t->c->w->plan;

	if (t->own_n && gn_random() % 3 == 0)
		return t->own + gn_random() % t->own_n;
	return t->c->shared + gn_random() % (gn_random() % 8 ? plan->hot : plan->shared);
}

static void thread_pause(const struct thread *t)
{
	gn_sleep_us(gn_random() % t->c->w->plan.pace_us);
}

/* Pages one after the other, with gaps and backwards, as trends are. */
static unsigned thread_row(struct thread *t, bool write)
{
	const struct plan *plan = &t->c->w->plan;
	const int64_t delta = (int64_t)(gn_random() % 5) - 2;
	const unsigned n = 1 + (unsigned)gn_random() % ROW_MAX;
	uint64_t at = gn_random() % plan->shared;
	unsigned done = 0;

	for (; done < n && at < plan->shared && !*t->c->w->run.failure; done++) {
		thread_touch(t, t->c->shared + at, write && gn_random() % 2);
		at += (uint64_t)(delta ? delta : 1);
		if (gn_random() % 4 == 0)
			thread_pause(t);
	}
	return done;
}

void thread_main(void *arg)
{
	struct thread *t = arg;
	struct world *w = t->c->w;
	const struct plan *plan = &w->plan;

	for (unsigned step = 0; step < plan->steps && !*w->run.failure; step++) {
		const unsigned what = (unsigned)(gn_random() % 1000);
		const bool write = gn_random() % 1000 < plan->writes;

		if (what < plan->commands)
			thread_command(t);
		else if (what < plan->commands + plan->rows)
			step += thread_row(t, write);
		else
			thread_touch(t, draw_page(t), write);
		thread_pause(t);
	}
	if (t->own_n && !*w->run.failure) {
		for (uint64_t p = t->own; p < t->own + t->own_n; p++)
			thread_touch(t, p, false);
		own_unmap(t);
	}
	t->c->threads_over++;
	gn_cond_signal(&t->c->handler_cond);
}
