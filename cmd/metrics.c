/* SPDX-License-Identifier: MIT */
/*
 * /metrics over HTTP, by libmicrohttpd, in one thread beside those that serve. Nothing that an HTTP
 * client does costs more than is stated here: connections, bytes of a request and seconds of a
 * connection are limited, a connection has one request, and when there are too many connections
 * the oldest goes. So a scrape gets through beside clients that never finish.
 */
#include "metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/base.h>
#include <gannet/exec.h>

#include "cmd.h"
#include "proxy.h"

#define ROOM_FIRST 65536

uint64_t stat_value(const void *stats, size_t at)
{
	uint64_t value;

	memcpy(&value, (const char *)stats + at, sizeof(value));
	return value;
}

void stat_fields_prometheus(const struct stat_field *fields, size_t n, const void *stats,
			    struct prom *prom)
{
	for (const struct stat_field *f = fields; f < fields + n; f++)
		prom_single(prom, f->kind, f->metric, f->what, stat_value(stats, f->at));
}

int metrics_text(metrics_write_fn *write, void *arg, char **text)
{
	int room = ROOM_FIRST, len;
	char *buf;

	/* Again, if it was longer than that, with space for what is counted meanwhile. */
	while ((buf = malloc((size_t)room))) {
		len = write(arg, buf, (size_t)room);
		if (len >= 0 && len < room) {
			*text = buf;
			return 0;
		}
		free(buf);
		if (len < 0)
			return len;
		room = len + ROOM_FIRST;
	}
	return -ENOMEM;
}

#ifdef GN_MICROHTTPD

#include <dlfcn.h>
#include <microhttpd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listen.h"

#define CONNS_MAX	 8u    /* open at a time */
#define CONNS_ENDING	 8u    /* … and disconnected, but not closed yet */
#define REQUEST_BYTES	 8192u /* of a request line and headers; memory of a connection */
#define CONN_NS		 (5 * UINT64_C(1000000000)) /* for a request and its response */
#define NO_DESCRIPTOR_MS 100
#define PATH		 "/metrics"

/* ---- libmicrohttpd ---- */

/*
 * It is loaded when it is needed: it brings GnuTLS and eight more libraries with it, whose start
 * takes longer than a kv get.
 */
#define LIBRARY "libmicrohttpd.so.12"
#define CALLS(X)                       \
	X(add_connection)              \
	X(add_response_header)         \
	X(create_response_from_buffer) \
	X(destroy_response)            \
	X(get_connection_info)         \
	X(get_daemon_info)             \
	X(get_timeout)                 \
	X(queue_response)              \
	X(run)                         \
	X(start_daemon)                \
	X(stop_daemon)

static struct {
#define CALL(name) typeof(MHD_##name) *name;
	CALLS(CALL)
#undef CALL
} mhd;

/* -ENOENT after an error message. */
static int metrics_load(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	bool found = library;

#define CALL(name) found = found && (mhd.name = (typeof(mhd.name))dlsym(library, "MHD_" #name));
	CALLS(CALL)
#undef CALL
	if (!found)
		fprintf(stderr, "gannet: no metrics over HTTP: %s\n", dlerror());
	return found ? 0 : -ENOENT;
}

struct metrics_conn {
	int fd; /* -1: free */
	bool ending;
	uint64_t begin_ns;
};

struct metrics {
	struct metrics_source source;
	struct px_listener listener;
	struct MHD_Daemon *daemon;
	struct gn_thread *thread;
	int stop_fd;
	struct metrics_conn conns[CONNS_MAX + CONNS_ENDING];
	struct gn_mutex lock;
	struct gn_cond begun;
	bool has_begun;
	int error;    /* why it could not begin */
	bool failing; /* the last scrape had no metrics */
};

/* ---- responses ---- */

static enum MHD_Result metrics_respond(struct MHD_Connection *conn, unsigned status, char *text,
				       enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *response = mhd.create_response_from_buffer(strlen(text), text, mode);
	enum MHD_Result done;

	if (!response) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	mhd.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
				status == MHD_HTTP_OK ? PROM_CONTENT_TYPE :
							"text/plain; charset=utf-8");
	mhd.add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		mhd.add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	done = mhd.queue_response(conn, status, response);
	mhd.destroy_response(response);
	return done;
}

static enum MHD_Result metrics_answer(void *arg, struct MHD_Connection *conn, const char *url,
				      const char *method, const char *version, const char *data,
				      size_t *bytes, void **state)
{
	static char not_found[] = "There is only " PATH ".\n";
	static char not_allowed[] = "Only GET and HEAD.\n";
	static char no_metrics[] = "The server does not answer.\n";
	struct metrics *m = arg;
	char *text;
	int rc;

	(void)version, (void)data, (void)bytes, (void)state;
	if (strcmp(url, PATH) != 0)
		return metrics_respond(conn, MHD_HTTP_NOT_FOUND, not_found, MHD_RESPMEM_PERSISTENT);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return metrics_respond(conn, MHD_HTTP_METHOD_NOT_ALLOWED, not_allowed,
				       MHD_RESPMEM_PERSISTENT);
	rc = metrics_text(m->source.write, m->source.arg, &text);
	if (rc && !m->failing) /* once, however often they are asked for */
		gn_log(GN_LOG_WARN, "no metrics: %s", cmd_why(rc));
	m->failing = rc;
	if (rc)
		return metrics_respond(conn, MHD_HTTP_SERVICE_UNAVAILABLE, no_metrics,
				       MHD_RESPMEM_PERSISTENT);
	return metrics_respond(conn, MHD_HTTP_OK, text, MHD_RESPMEM_MUST_FREE);
}

/* ---- connections ---- */

/* libmicrohttpd closes it in its next turn. */
static void metrics_disconnect(struct metrics_conn *c)
{
	shutdown(c->fd, SHUT_RDWR);
	c->ending = true;
}

/* The oldest of too many. */
static void metrics_make_space(struct metrics *m)
{
	struct metrics_conn *oldest = NULL;
	unsigned n = 0;

	for (unsigned i = 0; i < CONNS_MAX + CONNS_ENDING; i++) {
		struct metrics_conn *c = &m->conns[i];

		if (c->fd < 0 || c->ending)
			continue;
		n++;
		if (!oldest || c->begin_ns < oldest->begin_ns)
			oldest = c;
	}
	if (n >= CONNS_MAX)
		metrics_disconnect(oldest);
}

/* A connection begins or ends. */
static void metrics_notified(void *arg, struct MHD_Connection *conn, void **state,
			     enum MHD_ConnectionNotificationCode code)
{
	struct metrics *m = arg;
	struct metrics_conn *c = *state;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (c)
			c->fd = -1;
		return;
	}
	for (c = m->conns; c < m->conns + CONNS_MAX + CONNS_ENDING; c++) {
		if (c->fd >= 0)
			continue;
		*c = (struct metrics_conn){
			.fd = mhd.get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)
				      ->connect_fd,
			.begin_ns = gn_now_ns(),
		};
		*state = c;
		return;
	}
}

/* False: there are no descriptors. */
static bool metrics_accept(struct metrics *m)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	const int fd = accept4(m->listener.fd, (struct sockaddr *)&addr, &len,
			       SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
	metrics_make_space(m);
	mhd.add_connection(m->daemon, fd, (struct sockaddr *)&addr, len); /* or closes it */
	return true;
}

/* Disconnects clients after their time-out. Returns the ms until the next, or -1. */
static int metrics_sweep(struct metrics *m)
{
	const uint64_t now_ns = gn_now_ns();
	int wait_ms = -1;

	for (unsigned i = 0; i < CONNS_MAX + CONNS_ENDING; i++) {
		struct metrics_conn *c = &m->conns[i];
		int ms;

		if (c->fd < 0 || c->ending)
			continue;
		if (now_ns - c->begin_ns >= CONN_NS)
			metrics_disconnect(c);
		ms = c->ending ? 0 : (int)((CONN_NS - (now_ns - c->begin_ns)) / 1000000) + 1;
		wait_ms = wait_ms < 0 || ms < wait_ms ? ms : wait_ms;
	}
	return wait_ms;
}

/* ---- the thread ---- */

static void metrics_loop(struct metrics *m)
{
	enum { STOP, EVENTS, LISTENER };
	struct pollfd fds[] = {
		[STOP] = {.fd = m->stop_fd, .events = POLLIN},
		[EVENTS] =
			{.fd = mhd.get_daemon_info(m->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
			 .events = POLLIN},
		[LISTENER] = {.fd = m->listener.fd, .events = POLLIN},
	};
	bool full = false;

	while (!fds[STOP].revents) {
		MHD_UNSIGNED_LONG_LONG ms;
		int wait_ms = metrics_sweep(m);

		if (mhd.get_timeout(m->daemon, &ms) && (wait_ms < 0 || ms < (unsigned)wait_ms))
			wait_ms = (int)ms;
		/* Without descriptors a client that waits is no news. */
		if (full && (wait_ms < 0 || wait_ms > NO_DESCRIPTOR_MS))
			wait_ms = NO_DESCRIPTOR_MS;
		fds[LISTENER].revents = 0;
		poll(fds, full ? LISTENER : LISTENER + 1, wait_ms);
		if (full || fds[LISTENER].revents)
			full = !metrics_accept(m);
		mhd.run(m->daemon);
	}
}

static void metrics_run(void *arg)
{
	struct metrics *m = arg;
	const int rc = m->source.begin ? m->source.begin(m->source.arg) : 0;

	gn_mutex_lock(&m->lock);
	m->has_begun = true;
	m->error = rc;
	gn_cond_signal(&m->begun);
	gn_mutex_unlock(&m->lock);
	if (rc)
		return;
	metrics_loop(m);
	if (m->source.end)
		m->source.end(m->source.arg);
}

/* What clients do wrong is not for the log. */
static void metrics_no_log(void *arg, const char *fmt, va_list args)
{
	(void)arg, (void)fmt, (void)args;
}

static int metrics_open(struct metrics *m)
{
	m->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (m->stop_fd < 0)
		return -errno;
	m->daemon = mhd.start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG,
				     0, NULL, NULL, metrics_answer, m, MHD_OPTION_EXTERNAL_LOGGER,
				     metrics_no_log, NULL, MHD_OPTION_CONNECTION_LIMIT,
				     CONNS_MAX + CONNS_ENDING, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				     (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
				     metrics_notified, m, MHD_OPTION_END);
	return m->daemon ? gn_thread_start("metrics", metrics_run, m, &m->thread) : -ENOMEM;
}

int metrics_start(const char *where, const struct metrics_source *source, struct metrics **out)
{
	struct metrics *m;
	int rc;

	*out = NULL;
	if (!where)
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->source = *source;
	m->stop_fd = -1;
	for (unsigned i = 0; i < CONNS_MAX + CONNS_ENDING; i++)
		m->conns[i].fd = -1;
	gn_mutex_init(&m->lock);
	gn_cond_init(&m->begun);
	m->listener.fd = -1;
	rc = metrics_load();
	if (!rc)
		rc = px_listen(where, 0, &m->listener);
	if (rc) { /* and has logged why */
		metrics_stop(m);
		return rc;
	}
	rc = metrics_open(m);
	gn_mutex_lock(&m->lock);
	while (!rc && !m->has_begun)
		gn_cond_wait(&m->begun, &m->lock, GN_FOREVER, "the metrics' thread");
	gn_mutex_unlock(&m->lock);
	rc = rc ? rc : m->error;
	if (rc) {
		fprintf(stderr, "gannet: no metrics at %s: %s\n", m->listener.name, cmd_why(rc));
		metrics_stop(m);
		return rc;
	}
	*out = m;
	return 0;
}

const char *metrics_place(const struct metrics *m)
{
	return m->listener.name;
}

void metrics_stop(struct metrics *m)
{
	if (!m)
		return;
	if (m->thread) {
		eventfd_write(m->stop_fd, 1);
		gn_thread_join(m->thread);
	}
	if (m->daemon)
		mhd.stop_daemon(m->daemon);
	if (m->stop_fd >= 0)
		close(m->stop_fd);
	px_unlisten(&m->listener);
	gn_cond_fini(&m->begun);
	gn_mutex_fini(&m->lock);
	free(m);
}

int metrics_take(const char *name, const char *text, void *to)
{
	if (!strncmp(text, "unix:", 5) || !proxy_can_listen(text))
		return cmd_usage_error("%s must be PORT or HOST:PORT, not '%s'", name, text);
	*(const char **)to = text;
	return 0;
}

#else

int metrics_start(const char *where, const struct metrics_source *source, struct metrics **out)
{
	(void)where, (void)source;
	*out = NULL;
	return 0;
}

const char *metrics_place(const struct metrics *m)
{
	(void)m;
	return NULL;
}

void metrics_stop(struct metrics *m)
{
	(void)m;
}

int metrics_take(const char *name, const char *text, void *to)
{
	(void)text, (void)to;
	return cmd_usage_error("%s: this gannet was built without libmicrohttpd, and has no HTTP; "
			       "see stats --prometheus",
			       name);
}

#endif
