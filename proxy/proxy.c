/* SPDX-License-Identifier: MIT */
/*
 * The whole of it: places to listen at, threads, and who lets clients in and hands them round.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "front.h"

#define FDS_SPARE	 32u
#define FDS_UNKNOWN	 256u /* … in use, without /proc */
#define CONN_PART	 8u   /* of a thread's memory for work, for a connection */
#define KEPT_PART	 16u  /* of a thread's memory, for slots that nobody uses now */
#define STALL_MS	 60000u
#define ACCEPTS		 64u /* of a listener, before the next has its turn */
#define TIMEOUT_MS	 5000u
#define MEMORY		 (256ull << 20)
#define SOCKET_MODE	 0700u
#define NO_DESCRIPTOR_MS 100

/* ---- making one ---- */

static uint64_t descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 1024;
	if (limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
		getrlimit(RLIMIT_NOFILE, &limit);
	}
	return limit.rlim_cur;
}

static unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!dir)
		return FDS_UNKNOWN;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/*
 * Descriptors that are no clients': those in use when all threads are connected to the store, as
 * many again as these connections have, for a store that comes back with twice the partitions, and
 * some for what is open for a moment.
 */
static int set_limits(struct proxy *p, unsigned fds_before)
{
	const uint64_t fds = descriptors(), used = open_descriptors();
	const uint64_t kept = used + (used > fds_before ? used - fds_before : 0) + FDS_SPARE;

	if (fds <= kept) {
		fprintf(stderr,
			"gannet: %llu descriptors are too few, %llu are for the store; raise "
			"ulimit -n\n",
			(unsigned long long)fds, (unsigned long long)kept);
		return -EMFILE;
	}
	p->conns_max = fds - kept;
	if (p->opts.max_conns && p->opts.max_conns < p->conns_max)
		p->conns_max = p->opts.max_conns;
	else if (p->opts.max_conns > p->conns_max)
		fprintf(stderr,
			"gannet: warning: %u connections need a higher ulimit -n; %llu it "
			"is\n",
			p->opts.max_conns, (unsigned long long)p->conns_max);
	return 0;
}

static int share_memory(struct proxy *p)
{
	const uint64_t least = p->opts.threads * PROXY_MEMORY_MIN;
	const uint64_t usual = MEMORY > least ? MEMORY : least;
	const uint64_t memory = p->opts.memory ? p->opts.memory : usual;
	const size_t each = memory / p->opts.threads;

	if (memory < least) {
		fprintf(stderr,
			"gannet: --memory %lluM is too little for %u threads: each needs %lluM\n",
			(unsigned long long)(memory >> 20), p->opts.threads,
			PROXY_MEMORY_MIN >> 20);
		return -EINVAL;
	}
	p->conns_bytes = p->ins_bytes = each / 4;
	p->slots_kept = (unsigned)(each / KEPT_PART / sizeof(struct px_slot));
	p->work_bytes = each / 2 - each / KEPT_PART;
	p->conn_bytes = p->work_bytes / CONN_PART;
	return 0;
}

static int listen_all(struct proxy *p)
{
	p->listeners = calloc(p->opts.n_listen, sizeof(*p->listeners));
	if (!p->listeners)
		return -ENOMEM;
	for (unsigned i = 0; i < p->opts.n_listen; i++) {
		int rc;

		p->n_listeners++;
		rc = px_listen(p->opts.listen[i], p->opts.socket_mode, &p->listeners[i]);
		if (rc)
			return rc;
	}
	return 0;
}

static int start_threads(struct proxy *p)
{
	int rc = 0;

	p->threads = gn_alloc(p->opts.threads * sizeof(*p->threads), 64);
	if (!p->threads)
		return -ENOMEM;
	for (unsigned i = 0; !rc && i < p->opts.threads; i++) {
		p->threads[i].proxy = p;
		p->threads[i].index = i;
		rc = px_thread_start(&p->threads[i]);
		p->n_threads += !rc;
	}
	gn_mutex_lock(&p->lock);
	while (p->n_begun < p->n_threads)
		gn_cond_wait(&p->begun, &p->lock, GN_FOREVER, "proxy threads");
	gn_mutex_unlock(&p->lock);
	for (unsigned i = 0; !rc && i < p->n_threads; i++)
		rc = p->threads[i].error;
	if (rc && !proxy_may_wait(rc))
		fprintf(stderr, "gannet: cannot connect to %s: %s\n", p->opts.server,
			gn_strerror(rc));
	return rc;
}

bool proxy_may_wait(int rc)
{
	return rc == -ECONNREFUSED || rc == -ETIMEDOUT;
}

int proxy_create(struct gn_fabric *fabric, const struct proxy_opts *opts, struct proxy **out)
{
	struct proxy *p = calloc(1, sizeof(*p));
	unsigned fds_before;
	int rc;

	if (!p)
		return -ENOMEM;
	p->opts = *opts;
	p->opts.threads = opts->threads ? opts->threads : 1;
	p->opts.timeout_ms = opts->timeout_ms ? opts->timeout_ms : TIMEOUT_MS;
	p->opts.socket_mode = opts->socket_mode ? opts->socket_mode : SOCKET_MODE;
	/* What a client reads by itself may be older than what it has just stored. */
	p->opts.kv.size = sizeof(p->opts.kv);
	p->opts.kv.flags |= GN_KV_CALL_ONLY | GN_KV_RECONNECT;
	p->opts.stall_ms = opts->stall_ms ? opts->stall_ms : STALL_MS;
	p->fabric = fabric;
	p->start_s = time(NULL);
	gn_mutex_init(&p->lock);
	gn_cond_init(&p->begun);
	rc = share_memory(p);
	if (!rc)
		rc = listen_all(p);
	descriptors();
	fds_before = open_descriptors();
	if (!rc)
		rc = start_threads(p);
	if (!rc)
		rc = set_limits(p, fds_before);
	if (rc) {
		proxy_destroy(p);
		return rc;
	}
	*out = p;
	return 0;
}

void proxy_destroy(struct proxy *p)
{
	if (!p)
		return;
	__atomic_store_n(&p->ending, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < p->n_listeners; i++)
		px_unlisten(&p->listeners[i]);
	for (unsigned i = 0; i < p->n_threads; i++)
		px_thread_end(&p->threads[i]);
	gn_free(p->threads);
	free(p->listeners);
	px_detail_free(p);
	gn_mutex_fini(&p->lock);
	gn_cond_fini(&p->begun);
	free(p);
}

/* ---- letting clients in ---- */

static uint64_t sum(const struct proxy *p, size_t offset)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < p->n_threads; i++) {
		const char *counters = (const char *)&p->threads[i].counters;

		total += __atomic_load_n((const uint64_t *)(const void *)(counters + offset),
					 __ATOMIC_RELAXED);
	}
	return total;
}

void px_sum(const struct proxy *p, struct px_counters *out)
{
	uint64_t *field = (uint64_t *)out;

	for (size_t i = 0; i < sizeof(*out) / sizeof(*field); i++)
		field[i] = sum(p, i * sizeof(*field));
}

void px_refuse(struct proxy *p, int fd)
{
	static const char text[] = "ERROR Too many open connections\r\n";

	__atomic_fetch_add(&p->rejected, 1, __ATOMIC_RELAXED);
	if (send(fd, text, sizeof(text) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		gn_log(GN_LOG_DEBUG, "cannot refuse: %s", strerror(errno));
	close(fd);
}

/* Nobody is there, or nobody any more: the next may be. Anything else is a want of something. */
static bool is_passing(int err)
{
	return err == EAGAIN || err == EINTR || err == ECONNABORTED || err == EPROTO;
}

/* False: there are no descriptors left, or no memory. */
static bool let_in(struct proxy *p, const struct px_listener *l)
{
	for (unsigned i = 0; i < ACCEPTS; i++) {
		const int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && is_passing(errno))
			return true;
		if (fd < 0) {
			if (!p->told_full)
				gn_log(GN_LOG_WARN, "cannot let clients in: %s", strerror(errno));
			p->told_full = true;
			return false;
		}
		p->told_full = false;
		if (p->let_in - sum(p, offsetof(struct px_counters, gone)) >= p->conns_max) {
			px_refuse(p, fd);
			continue;
		}
		p->let_in += px_thread_give(&p->threads[p->next++ % p->n_threads], fd);
	}
	return true;
}

int proxy_run(struct proxy *p, int stop_fd)
{
	struct pollfd fds[PROXY_LISTEN_MAX + 1];
	int wait_ms = -1;

	for (unsigned i = 0; i < p->n_listeners; i++)
		fds[i] = (struct pollfd){.fd = p->listeners[i].fd, .events = POLLIN};
	fds[p->n_listeners] = (struct pollfd){.fd = stop_fd, .events = POLLIN};
	for (;;) {
		/* Without descriptors a client that waits is no news. */
		const bool full = wait_ms > 0;

		if (poll(full ? fds + p->n_listeners : fds, full ? 1 : p->n_listeners + 1,
			 wait_ms) < 0 &&
		    errno != EINTR)
			return -errno;
		if (fds[p->n_listeners].revents)
			return 0;
		wait_ms = -1;
		for (unsigned i = 0; i < p->n_listeners; i++)
			if ((full || fds[i].revents) && !let_in(p, &p->listeners[i]))
				wait_ms = NO_DESCRIPTOR_MS;
	}
}

const char *proxy_place(const struct proxy *p, unsigned i)
{
	return i < p->n_listeners ? p->listeners[i].name : NULL;
}

void proxy_totals(const struct proxy *p, uint64_t *conns, uint64_t *commands)
{
	*conns = sum(p, offsetof(struct px_counters, came));
	*commands = sum(p, offsetof(struct px_counters, commands));
}
