/* SPDX-License-Identifier: MIT */
/*
 * The load: all keys are stored, then every connection has a batch under way all the time. What is
 * answered within the measured seconds counts.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <gannet/base.h>

#include "socket_conn.h"

#define FILL_BATCH  64u
#define WARM_UP_S   0.2 /* before the measured seconds, or a tenth of them if that is less */
#define SILENCE_NS  10000000000ull
#define SLEEP_MS    100 /* at most, to look at the clock and for signals */
#define EVENTS	    64
#define LOOKS	    64u /* at the sockets between two at the clock, when nothing has come */
#define PROGRESS_NS 200000000u

struct socket_load {
	const struct bench_socket_opts *opts;
	struct wire wire;
	struct choice choice;
	struct conn *conns;
	int epoll;
	uint32_t busy; /* connections with a batch under way */
	/* What the next batch is: of a fill while next_fill < keys, of the load else, or none. */
	bool filling, ending;
	uint32_t next_fill;
	/* answered */
	uint64_t ops, gets, hits;
	struct gn_hist *batch_ns;
};

static void draw_batch(struct socket_load *l, struct batch *b)
{
	b->n_gets = b->n_puts = 0;
	if (l->filling) {
		while (b->n_puts < FILL_BATCH && l->next_fill < l->opts->keys)
			b->puts[b->n_puts++] = l->next_fill++;
		return;
	}
	for (uint32_t i = 0; i < l->opts->pipeline; i++) {
		const uint32_t number = choice_draw(&l->choice);

		if ((choice_word(&l->choice) >> 32) * 100 >> 32 < l->opts->get_percent)
			b->gets[b->n_gets++] = number;
		else
			b->puts[b->n_puts++] = number;
	}
}

static int conn_watch(struct socket_load *l, struct conn *conn, int how)
{
	struct epoll_event event = {.events = EPOLLIN | (conn->writing ? EPOLLOUT : 0u),
				    .data.ptr = conn};

	return epoll_ctl(l->epoll, how, conn->fd, &event) ? -errno : 0;
}

static int conn_begin_batch(struct socket_load *l, struct conn *conn)
{
	int rc;

	if (l->ending || (l->filling && l->next_fill == l->opts->keys))
		return 0;
	draw_batch(l, &conn->batch);
	l->busy++;
	rc = conn_begin(conn, &l->wire, l->filling);
	return !rc && conn->writing ? conn_watch(l, conn, EPOLL_CTL_MOD) : rc;
}

static int conn_on_event(struct socket_load *l, struct conn *conn, uint32_t events)
{
	const bool was_writing = conn->writing;
	int rc = 0;

	if (events & EPOLLOUT)
		rc = conn_write(conn, &l->wire);
	if (!rc && events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		rc = conn_read(conn, &l->wire);
	if (!rc && was_writing && !conn->writing)
		rc = conn_watch(l, conn, EPOLL_CTL_MOD);
	if (rc || conn->busy)
		return rc;
	l->busy--;
	l->ops += conn->batch.n_gets + conn->batch.n_puts;
	l->gets += conn->batch.n_gets;
	l->hits += conn->batch.hits;
	gn_hist_add(l->batch_ns, gn_now_ns() - conn->since_ns, 1);
	return conn_begin_batch(l, conn);
}

/* Take what has come: how many connections had something, or -errno. */
static int load_poll(struct socket_load *l)
{
	struct epoll_event events[EVENTS];
	const int n = epoll_wait(l->epoll, events, EVENTS, l->opts->sleep ? SLEEP_MS : 0);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++) {
		const int rc = conn_on_event(l, events[i].data.ptr, events[i].events);

		if (rc)
			return rc;
	}
	return n;
}

struct phase {
	const char *name; /* NULL: progress is not reported */
	uint64_t until_ns;
	uint64_t least_ops; /* … and until so many have been answered, however long that takes */
	void (*progress)(const char *, double);
};

static void load_progress(const struct socket_load *l, const struct phase *phase, uint64_t from_ns,
			  uint64_t now_ns)
{
	double done = l->filling ? (double)l->next_fill / l->opts->keys :
				   (double)(now_ns - from_ns) / (double)(phase->until_ns - from_ns);

	if (phase->progress && phase->name)
		phase->progress(phase->name, done < 1 ? done : 1);
}

/* Until then, or until nothing is under way. */
static int load_drive(struct socket_load *l, const struct phase *phase)
{
	const uint64_t from_ns = gn_now_ns();
	uint64_t heard_ns = from_ns, told_ns = from_ns, now_ns = from_ns;

	while (l->busy && (now_ns < phase->until_ns || l->ops < phase->least_ops)) {
		unsigned looks = 0;
		int n;

		do
			n = load_poll(l);
		while (!n && ++looks < LOOKS && !l->opts->sleep);
		if (n < 0)
			return n;
		if (bench_stopped())
			return -EINTR;
		now_ns = gn_now_ns();
		if (n) {
			heard_ns = now_ns;
		} else if (now_ns - heard_ns > SILENCE_NS) {
			gn_log(GN_LOG_ERROR, "%s has not answered for %llu seconds",
			       l->opts->connect, SILENCE_NS / 1000000000u);
			return -ETIMEDOUT;
		}
		if (now_ns - told_ns > PROGRESS_NS) {
			told_ns = now_ns;
			load_progress(l, phase, from_ns, now_ns);
		}
	}
	return 0;
}

static int load_begin_all(struct socket_load *l)
{
	int rc = 0;

	for (uint32_t i = 0; i < l->opts->connections && !rc; i++)
		rc = conn_begin_batch(l, &l->conns[i]);
	return rc;
}

static int server_rss(const struct bench_socket_opts *o, double *out)
{
	uint64_t bytes;
	int rc;

	if (!o->n_pids)
		return 0;
	rc = bench_rss_bytes(o->pids, o->n_pids, &bytes);
	if (!rc)
		*out = (double)bytes;
	return rc;
}

static int load_fill(struct socket_load *l, void (*progress)(const char *, double),
		     struct bench_socket_result *out)
{
	const struct phase phase = {
		.name = "filling", .until_ns = UINT64_MAX, .progress = progress};
	const uint64_t from_ns = gn_now_ns();
	int rc = server_rss(l->opts, &out->rss_before);

	if (rc)
		return rc;
	l->filling = true;
	rc = load_begin_all(l);
	if (!rc)
		rc = load_drive(l, &phase);
	l->filling = false;
	out->fill_seconds = (double)(gn_now_ns() - from_ns) / 1e9;
	return rc ? rc : server_rss(l->opts, &out->rss_filled);
}

struct reading {
	uint64_t ns, server_ns, client_ns, ops, gets, hits;
};

static int read_all(struct socket_load *l, struct reading *r)
{
	const int self = (int)getpid();
	int rc = bench_cpu_ns(l->opts->pids, l->opts->n_pids, &r->server_ns);

	if (!rc)
		rc = bench_cpu_ns(&self, 1, &r->client_ns);
	r->ns = gn_now_ns();
	r->ops = l->ops;
	r->gets = l->gets;
	r->hits = l->hits;
	return rc;
}

static int load_measure(struct socket_load *l, void (*progress)(const char *, double),
			struct bench_socket_result *out)
{
	struct phase phase = {.name = "measuring", .progress = progress};
	const double seconds = l->opts->seconds;
	const double warm_up_s = seconds / 10 < WARM_UP_S ? seconds / 10 : WARM_UP_S;
	struct reading from, to;
	int rc, end_rc;

	rc = load_begin_all(l);
	phase.until_ns = gn_now_ns() + (uint64_t)(warm_up_s * 1e9);
	if (!rc)
		rc = load_drive(l, &phase);
	if (!rc)
		rc = read_all(l, &from);
	if (rc)
		return rc;
	gn_hist_init(l->batch_ns);
	phase.until_ns = from.ns + (uint64_t)(seconds * 1e9);
	phase.least_ops = from.ops + 1;
	rc = load_drive(l, &phase);
	end_rc = read_all(l, &to);
	if (end_rc || (rc && rc != -EINTR))
		return rc ? rc : end_rc;
	out->ops = to.ops - from.ops;
	out->gets = to.gets - from.gets;
	out->puts = out->ops - out->gets;
	out->hits = to.hits - from.hits;
	out->seconds = (double)(to.ns - from.ns) / 1e9;
	out->p50_us = (double)gn_hist_percentile(l->batch_ns, 50) / 1000;
	out->p99_us = (double)gn_hist_percentile(l->batch_ns, 99) / 1000;
	out->client_cpu_s = (double)(to.client_ns - from.client_ns) / 1e9;
	if (l->opts->n_pids)
		out->server_cpu_s = (double)(to.server_ns - from.server_ns) / 1e9;
	return rc;
}

/* Whatever is still under way is answered, too, and looked at. */
static int load_settle(struct socket_load *l)
{
	const struct phase phase = {.until_ns = UINT64_MAX};

	l->ending = true;
	return load_drive(l, &phase);
}

static int load_open(struct socket_load *l)
{
	const struct bench_socket_opts *o = l->opts;
	const uint32_t n = o->fill && o->pipeline < FILL_BATCH ? FILL_BATCH : o->pipeline;
	int rc = 0;

	choice_init(&l->choice, o->keys, o->keys, o->zipf, o->seed);
	l->wire = (struct wire){.opts = o, .choice = &l->choice};
	l->conns = calloc(o->connections, sizeof(*l->conns));
	l->batch_ns = malloc(sizeof(*l->batch_ns));
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!l->conns || !l->batch_ns || l->epoll < 0) {
		rc = l->epoll < 0 ? -errno : -ENOMEM;
		gn_log(GN_LOG_ERROR, "cannot begin: %s", gn_strerror(rc));
		return rc;
	}
	gn_hist_init(l->batch_ns);
	for (uint32_t i = 0; i < o->connections; i++)
		l->conns[i].fd = -1;
	for (uint32_t i = 0; i < o->connections && !rc; i++) {
		rc = conn_open(&l->conns[i], o, n);
		if (!rc)
			rc = conn_watch(l, &l->conns[i], EPOLL_CTL_ADD);
	}
	return rc;
}

static void load_close(struct socket_load *l)
{
	for (uint32_t i = 0; l->conns && i < l->opts->connections; i++)
		conn_close(&l->conns[i]);
	free(l->conns);
	free(l->batch_ns);
	if (l->epoll >= 0)
		close(l->epoll);
}

int bench_socket_run(const struct bench_socket_opts *opts, void (*progress)(const char *, double),
		     struct bench_socket_result *out)
{
	struct socket_load load = {.opts = opts, .epoll = -1};
	int rc;

	*out = (struct bench_socket_result){.p50_us = NAN,
					    .p99_us = NAN,
					    .server_cpu_s = NAN,
					    .client_cpu_s = NAN,
					    .fill_seconds = NAN,
					    .rss_before = NAN,
					    .rss_filled = NAN};
	if (opts->cpu >= 0)
		bench_pin(opts->cpu);
	rc = load_open(&load);
	if (!rc && opts->fill)
		rc = load_fill(&load, progress, out);
	if (!rc && opts->seconds > 0)
		rc = load_measure(&load, progress, out);
	if (!rc)
		rc = load_settle(&load);
	load_close(&load);
	return rc;
}
