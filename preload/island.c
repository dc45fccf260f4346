/* SPDX-License-Identifier: MIT */
/*
 * The island: the thread that opens fabric, volume and pager, and the threads that these start. It
 * has its own table of descriptors and its own root and working directory, so a program that closes
 * all descriptors or changes its root does no harm, and children inherit nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "preload.h"

#define ORPHANS_US 60000000u /* at most, for leases to end */
#define END_MS	   1000u     /* at most, for the last sample */

static struct gn_fabric *fabric, *monitor_fabric;
static struct gn_vol *vol;
static struct gn_vol_monitor *monitor;
static struct gn_pager *pager;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int open_rc = -EINPROGRESS;

/* ---- the sessions with the donors, which the command ends ---- */

static struct preload_slot *slot; /* NULL: there is no command, or no free slot */

/* In the island's table of descriptors, which the program cannot close: the lock stays. */
static void slot_take(const char *path)
{
	const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	struct preload_shared *page;

	if (fd < 0)
		return;
	page = plain_mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED || page->size != sizeof(*page)) {
		close(fd);
		return;
	}
	for (unsigned i = 0; i < PRELOAD_SLOTS; i++) {
		struct flock one = {.l_type = F_WRLCK, .l_start = i, .l_len = 1};

		if (page->slots[i].n || fcntl(fd, F_OFD_SETLK, &one))
			continue;
		if (!page->slots[i].n) {
			slot = &page->slots[i];
			break;
		}
		one.l_type = F_UNLCK; /* its program has just ended */
		fcntl(fd, F_OFD_SETLK, &one);
	}
}

static void slot_write(void)
{
	struct gn_vol_session sessions[GN_VOL_DONORS_MAX];
	int n;

	if (!slot)
		return;
	n = gn_vol_sessions(vol, sessions);
	if (n <= 0)
		return; /* the last ones */
	memcpy(slot->sessions, sessions, (size_t)n * sizeof(sessions[0]));
	atomic_store_explicit(&slot->n, (uint32_t)n, memory_order_release); /* run_release() */
}

/* ---- statistics ---- */

static sem_t asked, sampled; /* for the last sample */

static void island_sample(void)
{
	struct preload_shared *s = preload_shared;
	struct preload_sample sample = {.pager.size = sizeof(sample.pager),
					.vol.size = sizeof(sample.vol),
					.io.size = sizeof(sample.io)};

	if (gn_pager_query(pager, &sample.pager) || gn_vol_query(vol, &sample.vol) ||
	    gn_io_query(gn_vol_engine(vol), &sample.io))
		return;
	slot_write();
	/* Odd before, even after: pairs with the command, which reads version twice. */
	atomic_fetch_add_explicit(&s->version, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	s->sample = sample;
	atomic_fetch_add_explicit(&s->version, 1, memory_order_release);
}

/* Returns whether another thread has posted. */
static bool island_wait(sem_t *sem, unsigned ms)
{
	struct timespec until;
	int rc;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000l;
	if (until.tv_nsec >= 1000000000l) {
		until.tv_nsec -= 1000000000l;
		until.tv_sec++;
	}
	do
		rc = sem_clockwait(sem, CLOCK_MONOTONIC, &until);
	while (rc && errno == EINTR);
	return !rc;
}

/*
 * The thread that ends may wait for a page at any place, on its own stack or in a signal handler.
 * So it takes no lock of the volume, which the pager needs.
 */
void island_end(void)
{
	sem_post(&asked);
	island_wait(&sampled, END_MS);
}

/* ---- set-up ---- */

static int island_fail(int rc, const char *what)
{
	const char *why = gn_error();

	snprintf(preload_shared->why, PRELOAD_WHY, "%s: %s", what, *why ? why : gn_strerror(rc));
	return rc;
}

/* Descriptor 2 stays, for log lines. */
static int island_separate(void)
{
	int null;

	if (unshare(CLONE_FILES | CLONE_FS))
		return island_fail(-errno, "cannot leave the program's descriptors");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return island_fail(-errno, "/dev/null");
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	return close_range(STDERR_FILENO + 1, UINT32_MAX, 0) ? -errno : 0;
}

static void island_progress(void *arg, uint64_t granted, uint64_t wanted)
{
	(void)arg;
	atomic_store_explicit(&preload_shared->granted, granted, memory_order_relaxed);
	atomic_store_explicit(&preload_shared->wanted, wanted, memory_order_relaxed);
}

static int island_open_fabric(const char *addr, struct gn_fabric **out)
{
	char provider[16];
	int rc;

	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(addr, ":"), addr);
	rc = gn_fabric_open(provider, out);
	return rc ? island_fail(rc, "cannot open the fabric") : 0;
}

/* Do donors keep memory of programs that have ended, until the lease ends? */
static bool donors_have_orphans(const struct preload_opts *opts)
{
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct gn_donor *donor;

	for (uint32_t i = 0; i < opts->vol.n_donors; i++) {
		uint64_t orphans = 0;

		if (gn_donor_connect(fabric, NULL, opts->donors[i], NULL, &donor))
			continue;
		if (!gn_donor_query(donor, &stats, gn_deadline_us(ORPHANS_US)))
			orphans = stats.orphans + stats.ending;
		gn_donor_close(donor, 0);
		if (orphans)
			return true;
	}
	return false;
}

/* A program that follows another one at once would find its memory still granted. */
static int island_create_volume(const struct preload_opts *opts)
{
	const struct timespec pause = {.tv_nsec = PRELOAD_SAMPLE_MS * 1000000l};
	const uint64_t deadline_ns = gn_deadline_us(ORPHANS_US);
	struct gn_vol_opts vol_opts = opts->vol;
	bool last = false; /* there was nothing to wait for before the attempt */
	int rc;

	vol_opts.progress = island_progress;
	for (;;) {
		rc = gn_vol_create(fabric, &vol_opts, &vol);
		if (!rc)
			return 0;
		island_fail(rc, "cannot create the volume");
		if (rc != -ENOSPC || last || gn_now_ns() >= deadline_ns)
			return rc;
		last = !donors_have_orphans(opts);
		if (last)
			continue;
		atomic_store_explicit(&preload_shared->orphans, true, memory_order_relaxed);
		nanosleep(&pause, NULL);
	}
}

static int island_open(const struct preload_opts *opts)
{
	int rc = island_open_fabric(opts->donors[0], &fabric);

	slot_take(opts->shared);
	if (!rc)
		rc = island_create_volume(opts);
	if (rc)
		return rc;
	if (opts->monitor) {
		rc = island_open_fabric(opts->monitor, &monitor_fabric);
		if (rc)
			return rc;
		rc = gn_vol_monitor_create(vol, monitor_fabric, opts->monitor, 0, &monitor);
		if (rc)
			return island_fail(rc, opts->monitor);
	}
	rc = gn_pager_create(vol, &opts->pager, &pager);
	return rc ? island_fail(rc, "cannot create the pager") : 0;
}

/* The pager is used until the process ends, so only failures undo anything. */
static void island_close(void)
{
	gn_vol_monitor_destroy(monitor);
	if (vol)
		gn_vol_destroy(vol);
	if (monitor_fabric)
		gn_fabric_close(monitor_fabric);
	if (fabric)
		gn_fabric_close(fabric);
}

static void *island_run(void *arg)
{
	int rc = island_separate();

	heap_enter_island();
	if (!rc)
		rc = island_open(arg);
	if (rc)
		island_close();
	else
		island_sample();
	pthread_mutex_lock(&lock);
	open_rc = rc;
	pthread_cond_signal(&opened);
	pthread_mutex_unlock(&lock);
	while (!rc) {
		const bool last = island_wait(&asked, PRELOAD_SAMPLE_MS);

		island_sample();
		if (last)
			sem_post(&sampled);
	}
	return NULL;
}

int island_start(const struct preload_opts *opts)
{
	static struct preload_opts kept;
	sigset_t all, before;
	pthread_t thread;
	int rc;

	sem_init(&asked, 0, 0);
	sem_init(&sampled, 0, 0);
	kept = *opts;
	kept.vol.donors = kept.donors;
	kept.io.write_window = kept.io.read_window;
	kept.vol.io = &kept.io;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = -pthread_create(&thread, NULL, island_run, &kept);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return island_fail(rc, "cannot start a thread");
	pthread_detach(thread);
	pthread_mutex_lock(&lock);
	while (open_rc == -EINPROGRESS)
		pthread_cond_wait(&opened, &lock);
	rc = open_rc;
	pthread_mutex_unlock(&lock);
	if (!rc)
		paged_init(pager);
	return rc;
}
