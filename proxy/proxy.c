/* SPDX-License-Identifier: MIT */
/* The proxy: memory and descriptor limits, listeners, threads, and accepting. */
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

#include "internal.h"

#define FDS_SPARE	    32u
#define FDS_OPEN_GUESS	    256u /* assumed to be open, without /proc */
#define CONN_DIVISOR	    8u	 /* a connection's share of a thread's work memory */
#define FREE_SLOTS_DIVISOR  16u	 /* free slots' share of a thread's memory */
#define STALL_DEFAULT_MS    60000u
#define ACCEPTS_PER_TURN    64u /* of a listener, before the next */
#define TIMEOUT_DEFAULT_MS  5000u
#define MEMORY_DEFAULT	    (256ull << 20)
#define SOCKET_MODE_DEFAULT 0700u
#define NO_FD_RETRY_MS	    100

/* ---- create ---- */

static uint64_t raise_fd_limit(void)
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

static unsigned count_open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!dir)
		return FDS_OPEN_GUESS;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/*
 * Descriptors that are not for clients: those open when all threads are connected to the store, as
 * many again as these connections use, for a store that returns with twice the partitions, and some
 * for short use.
 */
static int set_limits(struct proxy *p, unsigned fds_before)
{
	const uint64_t fds = raise_fd_limit(), used = count_open_fds();
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
			"gannet: warning: %u connections need a higher ulimit -n; limited to "
			"%llu\n",
			p->opts.max_conns, (unsigned long long)p->conns_max);
	return 0;
}

static int share_memory(struct proxy *p)
{
	const uint64_t least = p->opts.threads * PROXY_MEMORY_MIN;
	const uint64_t usual = MEMORY_DEFAULT > least ? MEMORY_DEFAULT : least;
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
	p->slots_kept = (unsigned)(each / FREE_SLOTS_DIVISOR / sizeof(struct px_slot));
	p->work_bytes = each / 2 - each / FREE_SLOTS_DIVISOR;
	p->conn_bytes = p->work_bytes / CONN_DIVISOR;
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
	while (p->n_started < p->n_threads)
		gn_cond_wait(&p->started, &p->lock, GN_FOREVER, "proxy threads");
	gn_mutex_unlock(&p->lock);
	for (unsigned i = 0; !rc && i < p->n_threads; i++)
		rc = p->threads[i].error;
	if (rc && !proxy_may_retry(rc))
		fprintf(stderr, "gannet: cannot connect to %s: %s\n", p->opts.server,
			gn_strerror(rc));
	return rc;
}

bool proxy_may_retry(int rc)
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
	p->opts.timeout_ms = opts->timeout_ms ? opts->timeout_ms : TIMEOUT_DEFAULT_MS;
	p->opts.socket_mode = opts->socket_mode ? opts->socket_mode : SOCKET_MODE_DEFAULT;
	/* A bypass GET may be older than what another connection has just stored. */
	p->opts.kv.size = sizeof(p->opts.kv);
	p->opts.kv.flags |= GN_KV_CALL_ONLY | GN_KV_RECONNECT;
	p->opts.stall_ms = opts->stall_ms ? opts->stall_ms : STALL_DEFAULT_MS;
	p->fabric = fabric;
	p->start_s = time(NULL);
	gn_mutex_init(&p->lock);
	gn_cond_init(&p->started);
	rc = share_memory(p);
	if (!rc)
		rc = listen_all(p);
	raise_fd_limit();
	fds_before = count_open_fds();
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
	gn_cond_fini(&p->started);
	free(p);
}

/* ---- accepting ---- */

static uint64_t sum_counter(const struct proxy *p, size_t offset)
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
		field[i] = sum_counter(p, i * sizeof(*field));
}

void px_refuse(struct proxy *p, int fd)
{
	static const char text[] = "ERROR Too many open connections\r\n";

	__atomic_fetch_add(&p->rejected, 1, __ATOMIC_RELAXED);
	if (send(fd, text, sizeof(text) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		gn_log(GN_LOG_DEBUG, "cannot refuse: %s", strerror(errno));
	close(fd);
}

/* No client is waiting, or it has left: continue. Any other error is a lack of resources. */
static bool accept_error_is_transient(int err)
{
	return err == EAGAIN || err == EINTR || err == ECONNABORTED || err == EPROTO;
}

/* False: no descriptors or no memory left. */
static bool accept_clients(struct proxy *p, const struct px_listener *l)
{
	for (unsigned i = 0; i < ACCEPTS_PER_TURN; i++) {
		const int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && accept_error_is_transient(errno))
			return true;
		if (fd < 0) {
			if (!p->logged_full)
				gn_log(GN_LOG_WARN, "cannot accept clients: %s", strerror(errno));
			p->logged_full = true;
			return false;
		}
		p->logged_full = false;
		if (p->n_accepted - sum_counter(p, offsetof(struct px_counters, gone)) >=
		    p->conns_max) {
			px_refuse(p, fd);
			continue;
		}
		p->n_accepted += px_thread_add_conn(&p->threads[p->next++ % p->n_threads], fd);
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
		/* Without descriptors, do not poll the listeners. */
		const bool full = wait_ms > 0;

		if (poll(full ? fds + p->n_listeners : fds, full ? 1 : p->n_listeners + 1,
			 wait_ms) < 0 &&
		    errno != EINTR)
			return -errno;
		if (fds[p->n_listeners].revents)
			return 0;
		wait_ms = -1;
		for (unsigned i = 0; i < p->n_listeners; i++)
			if ((full || fds[i].revents) && !accept_clients(p, &p->listeners[i]))
				wait_ms = NO_FD_RETRY_MS;
	}
}

const char *proxy_listen_addr(const struct proxy *p, unsigned i)
{
	return i < p->n_listeners ? p->listeners[i].name : NULL;
}

void proxy_totals(const struct proxy *p, uint64_t *conns, uint64_t *commands)
{
	*conns = sum_counter(p, offsetof(struct px_counters, came));
	*commands = sum_counter(p, offsetof(struct px_counters, commands));
}
