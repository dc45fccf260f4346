/* SPDX-License-Identifier: MIT */
/*
 * A thread that sleeps, with a table of descriptors of its own: userfaultfd stays open whatever the
 * program closes. Without it, pages that are not there would read as zeros.
 */
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "base/fail.h"
#include "pager/pager.h"

static void close_others(int keep)
{
	if (keep > 0)
		close_range(0, (unsigned)keep - 1, 0);
	close_range((unsigned)keep + 1, ~0u, 0);
}

static void keeper_main(void *arg)
{
	struct pager_keeper *k = arg;
	const int rc = unshare(CLONE_FILES) ? -errno : 0;

	if (!rc)
		close_others(k->fd);
	gn_mutex_lock(&k->lock);
	k->rc = rc;
	k->ready = true;
	gn_cond_broadcast(&k->cond);
	while (!k->stop)
		gn_cond_wait(&k->cond, &k->lock, GN_FOREVER, "the end of the pager");
	gn_mutex_unlock(&k->lock);
}

int keeper_start(struct pager_keeper *k, int fd)
{
	int rc;

	k->fd = fd;
	gn_mutex_init(&k->lock);
	gn_cond_init(&k->cond);
	rc = gn_thread_start("gn-pager-fd", keeper_main, k, &k->thread);
	if (rc) {
		k->thread = NULL;
		gn_cond_fini(&k->cond);
		gn_mutex_fini(&k->lock);
		return rc;
	}
	gn_mutex_lock(&k->lock);
	while (!k->ready)
		gn_cond_wait(&k->cond, &k->lock, GN_FOREVER, "a thread of the pager");
	rc = k->rc;
	gn_mutex_unlock(&k->lock);
	return rc ? gn_fail(rc, "unshare(CLONE_FILES): %s", gn_strerror(rc)) : 0;
}

void keeper_stop(struct pager_keeper *k)
{
	if (!k->thread)
		return;
	gn_mutex_lock(&k->lock);
	k->stop = true;
	gn_cond_broadcast(&k->cond);
	gn_mutex_unlock(&k->lock);
	gn_thread_join(k->thread);
	gn_cond_fini(&k->cond);
	gn_mutex_fini(&k->lock);
	k->thread = NULL;
}
