/* SPDX-License-Identifier: MIT */
/*
 * The handler thread. It sleeps in one place, a read() of userfaultfd, and does not allocate. Other
 * threads wake it for a command by a fault: they touch the doorbell, a page that the core does not
 * know.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/counter.h"
#include "pager/pager.h"

#define POLL_NS \
	50000u /* that a fault of another thread waits, at most, while requests are under way */

/* ---- faults ---- */

static void handler_fault(struct gn_pager *p, const struct uffd_event *event)
{
	const uint64_t page = (uint64_t)(event->addr - p->uffd.base) / GN_PAGER_PAGE;

	if (unlikely(page >= p->uffd.pages || !p->core))
		return;
	if (event->write) {
		counter_add(&p->faults_write, 1);
		uffd_allow_write(&p->uffd, page);
	} else {
		pager_core_fault(p->core, page, (uint64_t)event->thread, event->writes);
	}
	if (!p->opts.stay)
		follow_fault(&p->follow, event->thread);
}

/*
 * During a command. The doorbell cannot ring for another one: its caller has the lock. If the
 * caller faults there again, because of a debugger, the answer to this command is for both faults.
 */
static void handler_take_faults(void *arg)
{
	struct gn_pager *p = arg;
	struct uffd_event events[UFFD_EVENTS];
	const int n = uffd_read(&p->uffd, events, false);

	for (int i = 0; i < n; i++)
		if (likely(events[i].addr != p->uffd.doorbell))
			handler_fault(p, &events[i]);
}

/* ---- commands ---- */

static int handler_start(struct gn_pager *p)
{
	const struct pager_core_opts opts = {
		.pages = p->uffd.pages,
		.local = p->opts.local_bytes / GN_PAGER_PAGE,
		.window = p->opts.prefetch == GN_PAGER_NO_PREFETCH ? 0 : p->opts.prefetch,
		.faults = handler_take_faults,
		.faults_arg = p};

	return pager_core_create(p->vol, &opts, &uffd_ops, &p->uffd, &p->core);
}

#define TOO_MANY(rc) ((rc) == -ENOMEM ? ": too many mappings, see vm.max_map_count" : "")

static int handler_map(struct gn_pager *p, struct pager_command *c)
{
	int rc = pager_core_map(p->core, c->n, &c->page);

	if (rc)
		return rc;
	rc = uffd_map_range(&p->uffd, c->page, c->n);
	if (rc) {
		pager_core_unmap(p->core, c->page, c->n);
		gn_fail(rc, "gn_pager_map(): %s%s", gn_strerror(rc), TOO_MANY(rc));
	}
	return rc;
}

/* A page that the core does not have must not be in a mapping: only the latter can fail. */
static int handler_unmap(struct gn_pager *p, const struct pager_command *c)
{
	int rc = pager_core_check(p->core, c->page, c->n, "gn_pager_unmap()");

	if (rc)
		return rc;
	rc = uffd_unmap_range(&p->uffd, c->page, c->n);
	if (rc)
		return gn_fail(rc, "gn_pager_unmap(): %s%s", gn_strerror(rc), TOO_MANY(rc));
	rc = pager_core_unmap(p->core, c->page, c->n);
	if (rc)
		uffd_map_range(&p->uffd, c->page, c->n);
	return rc;
}

static int handler_execute(struct gn_pager *p, struct pager_command *c)
{
	switch (c->kind) {
	case PAGER_START:
		return handler_start(p);
	case PAGER_STOP:
		pager_core_destroy(p->core);
		p->core = NULL;
		p->stopped = true;
		return 0;
	case PAGER_MAP:
		return handler_map(p, c);
	case PAGER_UNMAP:
		return handler_unmap(p, c);
	case PAGER_ADVISE:
		return pager_core_advise(p->core, c->page, c->n, c->advice);
	}
	return -EINVAL;
}

/* A debugger can make a thread fault again at the doorbell: then nothing is asked. */
static void handler_command(struct gn_pager *p)
{
	const unsigned asked = __atomic_load_n(&p->asked, __ATOMIC_ACQUIRE); /* pager_ring() */

	if (asked != p->answered) {
		p->command.rc = handler_execute(p, &p->command);
		if (p->command.rc)
			memcpy(p->command.text, gn_error(), strlen(gn_error()) + 1);
		__atomic_store_n(&p->answered, asked, __ATOMIC_RELEASE); /* pager_ring() */
	}
	uffd_answer(&p->uffd);
}

void pager_ring(struct gn_pager *p)
{
	const unsigned asked = p->asked + 1;

	__atomic_store_n(&p->asked, asked, __ATOMIC_RELEASE); /* handler_command() */
	do {
		uffd_arm(&p->uffd);
		*(volatile const uint8_t *)p->uffd.doorbell;
	} while (__atomic_load_n(&p->answered, __ATOMIC_ACQUIRE) != asked); /* handler_command() */
}

/* ---- the thread ---- */

/* The descriptor is not ours any more: without events, pages would read as zeros. */
static void handler_die(int rc)
{
	gn_log(GN_LOG_ERROR,
	       "pager: the program has closed the descriptor of its pager (%s): its memory cannot "
	       "be used any more",
	       gn_strerror(rc));
	signal(SIGABRT, SIG_DFL); /* the program's handler may touch its memory */
	abort();
}

void pager_handler(void *arg)
{
	struct gn_pager *p = arg;
	struct uffd_event events[UFFD_EVENTS];
	bool more = false;

	while (!p->stopped) {
		const bool busy = p->core && (more || pager_core_busy(p->core));
		const int n = uffd_read(&p->uffd, events, !busy);
		bool rung = false;

		if (unlikely(n < 0))
			handler_die(n);
		for (int i = 0; i < n; i++) {
			if (unlikely(events[i].addr == p->uffd.doorbell))
				rung = true;
			else
				handler_fault(p, &events[i]);
		}
		if (unlikely(rung))
			handler_command(p);
		if (unlikely(!p->core))
			continue;
		if (!n && !more && busy)
			more = pager_core_wait(p->core, gn_now_ns() + POLL_NS);
		else
			more = pager_core_work(p->core);
	}
}
