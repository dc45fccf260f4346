/* SPDX-License-Identifier: MIT */
/* The calls of gannet/pager.h. */
#include <errno.h>
#include <signal.h>

#include "base/counter.h"
#include "base/owner.h"
#include "base/sized.h"
#include "pager/pager.h"
#include "vol/claim.h"

#define WINDOW_DEFAULT 32u

/*
 * Without signals: a signal handler that touches paged memory must not run while its thread has the
 * lock. The text of a failure is that of the handler thread.
 */
static int pager_command(struct gn_pager *p, struct pager_command *c, const char *call)
{
	sigset_t all, before;

	if (exec_inherited(p->creator))
		return gn_fail(-EPERM,
			       "%s: the pager is the parent process's; a forked child does "
			       "not have its memory",
			       call);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	gn_mutex_lock(&p->lock);
	p->command = *c;
	pager_ring(p);
	c->page = p->command.page;
	c->rc = p->command.rc;
	if (c->rc)
		gn_fail(c->rc, "%s", p->command.text);
	gn_mutex_unlock(&p->lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return c->rc;
}

/* ---- creation ---- */

static int opts_check(struct gn_pager_opts *o)
{
	if (o->local_bytes < GN_PAGER_LOCAL_MIN)
		return gn_fail(-EINVAL,
			       "gn_pager_create(): local_bytes is %llu, and must be %u at "
			       "least",
			       (unsigned long long)o->local_bytes, GN_PAGER_LOCAL_MIN);
	if (!o->prefetch)
		o->prefetch = WINDOW_DEFAULT;
	if (o->prefetch != GN_PAGER_NO_PREFETCH && o->prefetch > GN_PAGER_WINDOW_MAX)
		return gn_fail(-EINVAL,
			       "gn_pager_create(): prefetch is %u, and must be %u at most, "
			       "or GN_PAGER_NO_PREFETCH",
			       o->prefetch, GN_PAGER_WINDOW_MAX);
	return 0;
}

/* Threads that take no signals of the program. */
static int threads_start(struct gn_pager *p)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = keeper_start(&p->keeper, p->uffd.fd);
	if (!rc)
		rc = gn_thread_start("gn-pager", pager_handler, p, &p->thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static void pager_free(struct gn_pager *p)
{
	keeper_stop(&p->keeper);
	uffd_close(&p->uffd);
	follow_fini(&p->follow);
	gn_mutex_fini(&p->lock);
	if (p->claimed)
		vol_unclaim(p->vol);
	gn_free(p);
}

int gn_pager_create(struct gn_vol *vol, const struct gn_pager_opts *opts, struct gn_pager **out)
{
	struct pager_command start = {.kind = PAGER_START};
	struct gn_pager_opts own;
	struct gn_pager *p;
	int rc;

	if (!vol || !opts || !out)
		return gn_fail(-EINVAL, "gn_pager_create(): an argument is NULL");
	rc = SIZED_READ(&own, opts, "gn_pager_opts");
	if (!rc)
		rc = opts_check(&own);
	if (rc)
		return rc;
	p = gn_alloc(sizeof(*p), 0);
	if (!p)
		return gn_fail(-ENOMEM, "gn_pager_create(): " NO_MEMORY);
	p->vol = vol;
	p->opts = own;
	p->creator = gn_thread_id();
	gn_mutex_init(&p->lock);
	follow_init(&p->follow);
	rc = uffd_open(&p->uffd, gn_vol_bytes(vol) / GN_PAGER_PAGE, own.write_faults);
	if (!rc) {
		p->claimed = vol_claim(vol);
		rc = p->claimed ? threads_start(p) :
				  gn_fail(-EBUSY, "gn_pager_create(): the volume has a pager");
	}
	if (rc) {
		pager_free(p);
		return rc;
	}
	rc = pager_command(p, &start, "gn_pager_create()");
	if (rc) {
		gn_pager_destroy(p);
		return rc;
	}
	*out = p;
	return 0;
}

int gn_pager_destroy(struct gn_pager *p)
{
	struct pager_command stop = {.kind = PAGER_STOP};
	int rc;

	if (!p)
		return 0;
	rc = pager_command(p, &stop, "gn_pager_destroy()");
	if (rc)
		return rc;
	gn_thread_join(p->thread);
	pager_free(p);
	return 0;
}

/* ---- memory ---- */

int gn_pager_map(struct gn_pager *p, size_t bytes, void **out)
{
	struct pager_command c = {.kind = PAGER_MAP};
	int rc;

	if (!p || !out || !bytes || bytes > GN_VOL_SIZE_MAX)
		return gn_fail(-EINVAL, "gn_pager_map(): %s",
			       p && out ? "bytes must be 1 to GN_VOL_SIZE_MAX" :
					  "an argument is NULL");
	c.n = (bytes + GN_PAGER_PAGE - 1) / GN_PAGER_PAGE;
	rc = pager_command(p, &c, "gn_pager_map()");
	if (!rc)
		*out = p->uffd.base + c.page * GN_PAGER_PAGE;
	return rc;
}

/* Whole pages of the range? */
static int range_take(const struct gn_pager *p, const void *addr, size_t bytes, const char *call,
		      struct pager_command *c)
{
	const uint64_t at = (uint64_t)((uintptr_t)addr - (uintptr_t)p->uffd.base);

	if (at % GN_PAGER_PAGE || bytes % GN_PAGER_PAGE || !bytes)
		return gn_fail(-EINVAL, "%s: not whole pages of %u bytes", call, GN_PAGER_PAGE);
	if (at >= p->uffd.pages * GN_PAGER_PAGE || bytes > p->uffd.pages * GN_PAGER_PAGE - at)
		return gn_fail(-EINVAL, "%s: not memory of gn_pager_map()", call);
	c->page = at / GN_PAGER_PAGE;
	c->n = bytes / GN_PAGER_PAGE;
	return 0;
}

int gn_pager_unmap(struct gn_pager *p, void *addr, size_t bytes)
{
	struct pager_command c = {.kind = PAGER_UNMAP};
	int rc;

	if (!p)
		return gn_fail(-EINVAL, "gn_pager_unmap(): pager is NULL");
	rc = range_take(p, addr, bytes, "gn_pager_unmap()", &c);
	return rc ? rc : pager_command(p, &c, "gn_pager_unmap()");
}

int gn_pager_advise(struct gn_pager *p, void *addr, size_t bytes, enum gn_pager_advice advice)
{
	struct pager_command c = {.kind = PAGER_ADVISE, .advice = advice};
	int rc;

	if (!p)
		return gn_fail(-EINVAL, "gn_pager_advise(): pager is NULL");
	rc = range_take(p, addr, bytes, "gn_pager_advise()", &c);
	return rc ? rc : pager_command(p, &c, "gn_pager_advise()");
}

/* ---- state ---- */

int gn_pager_query(struct gn_pager *p, struct gn_pager_stats *out)
{
	struct gn_pager_stats stats = {.size = sizeof(stats)};
	uint64_t write;

	if (!p)
		return gn_fail(-EINVAL, "gn_pager_query(): pager is NULL");
	pager_core_query(p->core, &stats);
	write = counter_read(&p->faults_write);
	stats.faults += write;
	stats.faults_write = write;
	stats.moves = counter_read(&p->follow.moves);
	return SIZED_WRITE(out, &stats, "gn_pager_stats");
}

int gn_pager_probe(void)
{
	return uffd_probe();
}
