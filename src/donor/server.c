/* SPDX-License-Identifier: MIT */
/* A donor: create, start, drain, destroy; statistics. */
#include <errno.h>
#include <string.h>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/owner.h"
#include "base/sized.h"
#include "donor/server.h"

#define READY_DEFAULT	     2u
#define TAKE_BACK_US_DEFAULT 10000000u
#define LEASE_US_DEFAULT     30000000u
#define SILENCE_US_DEFAULT   600000000u
#define DURATION_US_MAX	     (366ull * 86400 * 1000000)
#define TICK_NS_MIN	     1000000u
#define TICK_NS_MAX	     250000000u
#define TICKS_PER_LEASE	     8u
#define LARGE_MAX	     (1u << 20) /* bytes of a result: metrics */
#define OTHER_CLIENTS	     64u	/* control connections without a session */

/* -EPERM in a forked child, which has none of the threads. */
static int server_check(const struct gn_donor_server *server, const char *call)
{
	if (!server)
		return gn_fail(-EINVAL, "%s: server is NULL", call);
	return exec_inherited(server->creator) ? exec_not_owner(server->creator, call) : 0;
}

/* ---- create ---- */

#define SET_DEFAULT(member, value) ((member) = (member) ? (member) : (value))

static void opts_set_defaults(struct gn_donor_server_opts *o)
{
	const uint64_t slabs = o->memory / SET_DEFAULT(o->slab, GN_DONOR_SLAB_DEFAULT);

	SET_DEFAULT(o->ready, READY_DEFAULT);
	SET_DEFAULT(o->take_back_us, TAKE_BACK_US_DEFAULT);
	SET_DEFAULT(o->lease_us, LEASE_US_DEFAULT);
	SET_DEFAULT(o->silence_us, SILENCE_US_DEFAULT);
	SET_DEFAULT(o->max_sessions, GN_DONOR_SESSIONS_DEFAULT);
	SET_DEFAULT(o->max_client_slabs, (uint32_t)(slabs < UINT32_MAX ? slabs : UINT32_MAX));
	SET_DEFAULT(o->max_shares, GN_DONOR_SHARES_DEFAULT);
	SET_DEFAULT(o->max_client_shares, GN_DONOR_CLIENT_SHARES_DEFAULT);
	SET_DEFAULT(o->max_conns, GN_DONOR_CONNS_DEFAULT);
	SET_DEFAULT(o->max_opening, GN_DONOR_OPENING_DEFAULT);
}

static int opts_check(const struct gn_donor_server_opts *o)
{
	if (o->slab % GN_PAGE || o->slab > GN_DONOR_SLAB_MAX)
		return gn_fail(-EINVAL,
			       "gn_donor_server_create(): slab must be a multiple of %u, and at "
			       "most %llu MiB",
			       GN_PAGE, GN_DONOR_SLAB_MAX >> 20);
	if (o->memory < o->slab || o->memory / o->slab > GN_DONOR_SLABS_MAX)
		return gn_fail(-EINVAL,
			       "gn_donor_server_create(): memory must have space for 1 to %u slabs",
			       GN_DONOR_SLABS_MAX);
	if (o->lease_us > DURATION_US_MAX || o->silence_us > DURATION_US_MAX ||
	    o->take_back_us > DURATION_US_MAX)
		return gn_fail(-EINVAL, "gn_donor_server_create(): lease_us, silence_us and "
					"take_back_us are a year at most");
	return 0;
}

static uint64_t tick_interval_ns(const struct gn_donor_server_opts *o)
{
	uint64_t us = o->lease_us < o->silence_us ? o->lease_us : o->silence_us;
	uint64_t ns;

	us = us < o->take_back_us ? us : o->take_back_us;
	ns = us * 1000 / TICKS_PER_LEASE;
	return ns < TICK_NS_MIN ? TICK_NS_MIN : ns > TICK_NS_MAX ? TICK_NS_MAX : ns;
}

static int server_make_tables(struct gn_donor_server *server)
{
	const struct gn_donor_server_opts *o = &server->opts;

	server->n_slabs = (unsigned)(o->memory / o->slab);
	server->slabs = gn_alloc(server->n_slabs * sizeof(server->slabs[0]), 0);
	server->sessions = gn_alloc(o->max_sessions * sizeof(struct donor_session *), 0);
	server->shares = gn_alloc(o->max_shares * sizeof(struct donor_share *), 0);
	server->jobs.last = &server->jobs.first;
	server->grants.last = &server->grants.first;
	return server->slabs && server->sessions && server->shares ? 0 : -ENOMEM;
}

static int server_make_rpc(struct gn_donor_server *server, const char *addr)
{
	const struct gn_rpc_server_opts opts = {
		.size = sizeof(opts),
		.max_large = LARGE_MAX,
		.max_clients = server->opts.max_sessions + OTHER_CLIENTS,
		.listener_flags = server->opts.listener_flags,
		.peer = donor_client_changed,
		.peer_arg = server,
	};
	const int rc = gn_rpc_server_create(server->fabric, addr, &opts, &server->rpc);

	return rc ? rc : donor_calls_register(server);
}

int gn_donor_server_create(struct gn_fabric *fabric, const char *addr,
			   const struct gn_donor_server_opts *opts, struct gn_donor_server **out)
{
	struct gn_donor_server_opts o = {.size = sizeof(o)};
	struct gn_donor_server *server;
	int rc = SIZED_READ(&o, opts, "gn_donor_server_opts");

	if (rc)
		return rc;
	if (!fabric || !addr || !out)
		return gn_fail(-EINVAL, "gn_donor_server_create(): fabric, addr or out is NULL");
	opts_set_defaults(&o);
	rc = opts_check(&o);
	if (rc)
		return rc;
	server = gn_alloc(sizeof(*server), 0);
	if (!server)
		return -ENOMEM;
	*server = (struct gn_donor_server){.fabric = fabric,
					   .creator = gn_thread_id(),
					   .opts = o,
					   .incarnation = gn_random() | 1,
					   .started_ns = gn_now_ns(),
					   .tick_ns = tick_interval_ns(&o)};
	gn_mutex_init(&server->lock);
	gn_cond_init(&server->work);
	gn_cond_init(&server->idle);
	rc = donor_data_open(server);
	if (!rc)
		rc = server_make_tables(server);
	if (!rc)
		rc = donor_data_name(addr, server->data_name);
	if (!rc)
		rc = donor_data_addr(addr, server->data_name, server->data_addr);
	if (!rc)
		rc = server_make_rpc(server, addr);
	if (rc) {
		gn_donor_server_destroy(server);
		return rc;
	}
	*out = server;
	return 0;
}

int gn_donor_server_start(struct gn_donor_server *server)
{
	int rc = server_check(server, "gn_donor_server_start()");

	if (!rc && server->worker)
		rc = gn_fail(-EINVAL, "gn_donor_server_start(): the server was started before");
	if (!rc)
		rc = gn_listener_create(server->loop.ctx, server->data_addr, server->loop.chan,
					server->opts.listener_flags, &server->listener);
	if (!rc)
		donor_pressure_begin(server);
	if (!rc)
		rc = gn_thread_start("donor-work", donor_worker_main, server, &server->worker);
	if (!rc)
		rc = gn_thread_start("donor-data", donor_data_main, server, &server->data);
	return rc ? rc : gn_rpc_server_start(server->rpc);
}

/* ---- drain and destroy ---- */

int gn_donor_server_leave(struct gn_donor_server *server, uint64_t deadline_ns)
{
	const int rc = server_check(server, "gn_donor_server_leave()");

	if (rc)
		return rc;
	gn_mutex_lock(&server->lock);
	server->leave_ns = deadline_given(deadline_ns);
	server->leaving = true;
	gn_cond_signal(&server->work);
	for (unsigned i = 0; i < server->n_sessions; i++)
		donor_session_notify(server, server->sessions[i]);
	gn_mutex_unlock(&server->lock);
	return 0;
}

int gn_donor_server_drain(struct gn_donor_server *server, uint64_t deadline_ns)
{
	int rc = server_check(server, "gn_donor_server_drain()");

	if (rc)
		return rc;
	if (!server->leaving) /* only this thread sets it */
		gn_donor_server_leave(server, deadline_ns);
	gn_mutex_lock(&server->lock);
	while (!rc && (donor_slabs_in(server, SLAB_GRANTED) || donor_slabs_in(server, SLAB_ENDING)))
		rc = gn_cond_wait(&server->idle, &server->lock, deadline_given(deadline_ns),
				  "slabs to be returned");
	gn_mutex_unlock(&server->lock);
	return rc;
}

/* The worker and the data thread take the sessions apart. */
static void server_end_sessions(struct gn_donor_server *server)
{
	gn_mutex_lock(&server->lock);
	server->stopping = server->leaving = true;
	for (unsigned i = 0; i < server->n_sessions; i++)
		donor_session_end(server, server->sessions[i]);
	gn_cond_signal(&server->work);
	gn_mutex_unlock(&server->lock);
}

static void server_wait_for_sessions(struct gn_donor_server *server)
{
	gn_mutex_lock(&server->lock);
	while (server->n_sessions && server->worker && server->data)
		gn_cond_wait(&server->idle, &server->lock, GN_FOREVER, "sessions to end");
	server->stop_worker = true;
	gn_cond_signal(&server->work);
	gn_mutex_unlock(&server->lock);
}

void gn_donor_server_destroy(struct gn_donor_server *server)
{
	if (!server || server_check(server, "gn_donor_server_destroy()"))
		return;
	server_end_sessions(server);
	gn_rpc_server_destroy(server->rpc);
	server_wait_for_sessions(server);
	if (server->worker)
		gn_thread_join(server->worker);
	if (server->data) {
		donor_data_stop(server);
		gn_thread_join(server->data);
	}
	for (unsigned i = 0; server->slabs && i < server->n_slabs; i++)
		gn_mem_free(server->slabs[i].mem);
	donor_data_close(server);
	gn_free(server->slabs);
	gn_free(server->sessions);
	gn_free(server->shares);
	gn_cond_fini(&server->idle);
	gn_cond_fini(&server->work);
	gn_mutex_fini(&server->lock);
	gn_free(server);
}

/* ---- statistics ---- */

static void stats_of_now(struct gn_donor_server *server, struct gn_donor_stats *out)
{
	*out = server->counts;
	out->size = sizeof(*out);
	out->memory = server->opts.memory;
	out->slab_bytes = server->opts.slab;
	out->slabs = server->n_slabs;
	out->granted = donor_slabs_in(server, SLAB_GRANTED);
	out->ready = donor_slabs_in(server, SLAB_READY);
	out->ending = donor_slabs_in(server, SLAB_ENDING);
	for (unsigned i = 0; i < server->n_slabs; i++)
		out->asked += server->slabs[i].state == SLAB_GRANTED &&
			      donor_slab_asked(server, &server->slabs[i]);
	out->sessions = server->n_sessions;
	for (unsigned i = 0; i < server->n_sessions; i++)
		out->orphans += server->sessions[i]->alone_ns != 0;
	out->shares = server->n_shares;
	out->conns = server->n_conns;
	out->waiting = server->grants.n;
	out->reserve = server->opts.reserve;
	out->uptime_s = (gn_now_ns() - server->started_ns) / 1000000000;
}

int gn_donor_server_stats(struct gn_donor_server *server, struct gn_donor_stats *out)
{
	struct gn_donor_stats stats;

	const int rc = server_check(server, "gn_donor_server_stats()");

	if (rc)
		return rc;
	gn_mutex_lock(&server->lock);
	stats_of_now(server, &stats);
	gn_mutex_unlock(&server->lock);
	return SIZED_WRITE(out, &stats, "gn_donor_stats");
}

struct gn_rpc_server *gn_donor_server_rpc(struct gn_donor_server *server)
{
	return server ? server->rpc : NULL;
}
