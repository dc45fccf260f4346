/* SPDX-License-Identifier: MIT */
/*
 * The control calls, on the serving threads. A handler checks its request and changes the tables;
 * what needs the fabric becomes a job of the worker, which answers.
 */
#include <string.h>

#include "base/mutant.h"
#include "donor/server.h"

static void answer(struct gn_rpc_request *request, unsigned status)
{
	gn_rpc_answer(request, status, NULL, 0);
}

/* The caller's session, with the lock held; or NULL, and the call is answered. */
static struct donor_session *call_begin(struct gn_donor_server *server,
					struct gn_rpc_request *request)
{
	struct donor_session *session;
	bool stopping;

	gn_mutex_lock(&server->lock);
	session = donor_session_by_client(server, gn_rpc_request_client(request));
	stopping = server->stopping;
	if (session && !stopping) {
		session->active_ns = gn_now_ns();
		return session;
	}
	gn_mutex_unlock(&server->lock);
	answer(request, stopping ? DONOR_GOING_AWAY : DONOR_NO_SESSION);
	return NULL;
}

/* Ends call_begin(), and answers unless status is 0xffff: the call is deferred. */
#define DEFERRED UINT16_MAX

static void call_end(struct gn_donor_server *server, struct gn_rpc_request *request,
		     unsigned status)
{
	gn_mutex_unlock(&server->lock);
	if (status != DEFERRED)
		answer(request, status);
}

/* ---- deferred calls ---- */

/* A job's caller stopped waiting: the worker looks. */
static void job_abandoned(struct gn_rpc_request *request, enum gn_rpc_caller state, void *arg)
{
	struct gn_donor_server *server = arg;

	(void)request;
	(void)state;
	gn_mutex_lock(&server->lock);
	gn_cond_signal(&server->work);
	gn_mutex_unlock(&server->lock);
}

/* With the lock held. session NULL: HELLO. */
static struct donor_job *job_new(struct gn_donor_server *server, struct gn_rpc_request *request,
				 struct donor_session *session)
{
	struct donor_job *job;

	if (server->n_deferred >= DONOR_DEFERRED_MAX ||
	    (session && session->n_deferred >= DONOR_CLIENT_DEFERRED_MAX))
		return NULL;
	job = gn_alloc(sizeof(*job), 0);
	if (!job)
		return NULL;
	job->method = gn_rpc_request_method(request);
	job->request = request;
	job->session = session;
	server->n_deferred++;
	if (session)
		session->n_deferred++;
	gn_rpc_request_on_abandon(request, job_abandoned, server);
	gn_cond_signal(&server->work);
	return job;
}

/* ---- HELLO ---- */

/* Above all generations that an earlier client of the session has, or will try. */
static uint32_t hello_generation(const struct donor_access *access)
{
	uint32_t last = 0;

	for (unsigned i = 0; i < IO_CHANNELS_MAX; i++)
		if (access->channels[i].generation > last)
			last = access->channels[i].generation;
	return last ? (donor_epoch(last) + 1) << IO_EPOCH_SHIFT : 1;
}

static void hello_fill_result(const struct gn_donor_server *server,
			      const struct donor_session *session, struct donor_hello_result *out)
{
	struct gn_remote lease;

	gn_mr_remote(session->lease_mr, &lease);
	*out = (struct donor_hello_result){
		.version = DONOR_VERSION,
		.n_slabs = session->n_slabs,
		.incarnation = server->incarnation,
		.session = session->number,
		.slab_bytes = server->opts.slab,
		.lease_us = server->opts.lease_us,
		.silence_us = server->opts.silence_us,
		.lease = {lease.offset, lease.length, lease.key, 0},
		.generation = hello_generation(&session->access),
	};
	memcpy(out->token, session->access.token, sizeof(out->token));
	memcpy(out->data, server->data_name, sizeof(out->data));
}

void donor_answer_hello(const struct gn_donor_server *server, const struct donor_session *session,
			struct gn_rpc_request *request)
{
	struct donor_hello_result result;

	hello_fill_result(server, session, &result);
	gn_rpc_answer(request, GN_RPC_OK, &result, sizeof(result));
}

/* The control connection of a session is replaced: the client lost the old one. */
static unsigned hello_resume(struct gn_donor_server *server, struct gn_rpc_request *request,
			     const struct donor_hello *hello)
{
	struct donor_session *session;

	if (hello->incarnation != server->incarnation) {
		server->counts.other_incarnations++;
		return DONOR_OTHER_INCARNATION;
	}
	session = donor_session_by_token(server, hello->token);
	if (!session ||
	    (hello->generation && donor_epoch(hello->generation) < session->access.epoch)) {
		server->counts.bad_tokens++;
		return DONOR_NO_SESSION;
	}
	if (session->access.epoch == IO_EPOCH_MAX)
		return DONOR_LIMIT;
	session->client = gn_rpc_request_client(request);
	session->active_ns = gn_now_ns();
	donor_session_connected(server, session);
	donor_answer_hello(server, session, request);
	return DEFERRED;
}

static unsigned hello_create(struct gn_donor_server *server, struct gn_rpc_request *request,
			     const struct donor_hello *hello)
{
	struct donor_job *job;

	if (server->leaving)
		return DONOR_GOING_AWAY;
	job = server->n_sessions + server->n_hellos < server->opts.max_sessions ?
		      job_new(server, request, NULL) :
		      NULL;
	if (!job) {
		server->counts.busy++;
		return DONOR_LIMIT;
	}
	job->hello = *hello;
	server->n_hellos++;
	donor_job_add(&server->jobs, job);
	return DEFERRED;
}

static void handle_hello(struct gn_rpc_request *request, void *arg)
{
	struct gn_donor_server *server = arg;
	struct donor_hello hello;
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);
	const bool ok = donor_hello_read(data, len, &hello);
	unsigned status;

	gn_mutex_lock(&server->lock);
	if (!ok || donor_session_by_client(server, gn_rpc_request_client(request))) {
		server->counts.bad_requests++;
		status = GN_RPC_DENIED;
	} else if (hello.version != DONOR_VERSION) {
		server->counts.bad_requests++;
		status = DONOR_BAD_VERSION;
	} else if (server->stopping) {
		status = DONOR_GOING_AWAY;
	} else {
		status = hello.resume ? hello_resume(server, request, &hello) :
					hello_create(server, request, &hello);
	}
	call_end(server, request, status);
}

/* ---- GRANT, RELEASE ---- */

static unsigned grant_check(struct gn_donor_server *server, const struct donor_session *session)
{
	if (server->leaving)
		return DONOR_GOING_AWAY;
	if (server->pressure ||
	    donor_slabs_in(server, SLAB_GRANTED) + server->grants.n >= server->n_slabs)
		return DONOR_NO_SPACE;
	if (session->n_slabs + session->n_deferred >= server->opts.max_client_slabs)
		return DONOR_LIMIT;
	return 0;
}

static void handle_grant(struct gn_rpc_request *request, void *arg)
{
	struct gn_donor_server *server = arg;
	struct donor_session *session = call_begin(server, request);
	struct donor_job *job = NULL;
	unsigned status;

	if (!session)
		return;
	status = grant_check(server, session);
	if (!status) {
		job = job_new(server, request, session);
		status = job ? DEFERRED : DONOR_LIMIT;
	}
	if (job)
		donor_job_add(&server->grants, job);
	else
		server->counts.refused++;
	call_end(server, request, status);
}

static void handle_release(struct gn_rpc_request *request, void *arg)
{
	struct gn_donor_server *server = arg;
	struct donor_session *session = call_begin(server, request);
	struct donor_slab_id id;
	struct donor_slab *slab;
	uint32_t len;
	const void *data;

	if (!session)
		return;
	data = gn_rpc_request_data(request, &len);
	if (len != sizeof(id)) {
		call_end(server, request, GN_RPC_DENIED);
		return;
	}
	memcpy(&id, data, sizeof(id));
	slab = donor_slab_by_id(server, session, id.slab);
	if (!slab) {
		call_end(server, request, DONOR_NOT_FOUND);
		return;
	}
	slab->release = request;
	server->counts.releases++;
	donor_slab_end(server, slab);
	call_end(server, request, DEFERRED);
}

/* ---- SHARE, REVOKE ---- */

static unsigned share_begin(struct gn_donor_server *server, struct donor_session *session,
			    struct gn_rpc_request *request, const struct donor_share_request *share)
{
	struct donor_job *job;

	if (!donor_slab_by_id(server, session, share->slab))
		return DONOR_NOT_FOUND;
	if (server->n_shares + server->jobs.n >= server->opts.max_shares ||
	    session->n_shares + session->n_deferred >= server->opts.max_client_shares)
		return DONOR_LIMIT;
	job = job_new(server, request, session);
	if (!job)
		return DONOR_LIMIT;
	job->share = *share;
	donor_job_add(&server->jobs, job);
	return DEFERRED;
}

static void handle_share(struct gn_rpc_request *request, void *arg)
{
	struct gn_donor_server *server = arg;
	struct donor_session *session = call_begin(server, request);
	struct donor_share_request share;
	uint32_t len;
	const void *data;

	if (!session)
		return;
	data = gn_rpc_request_data(request, &len);
	call_end(server, request,
		 donor_share_read(data, len, server->opts.slab, &share) ?
			 share_begin(server, session, request, &share) :
			 DONOR_INVALID);
}

static void handle_revoke(struct gn_rpc_request *request, void *arg)
{
	struct gn_donor_server *server = arg;
	struct donor_session *session = call_begin(server, request);
	struct donor_share *share = NULL;
	struct donor_token token;
	uint32_t len;
	const void *data;

	if (!session)
		return;
	data = gn_rpc_request_data(request, &len);
	if (len == sizeof(token)) {
		memcpy(&token, data, sizeof(token));
		share = donor_share_by_token(server, token.token);
	}
	if (!share || share->session != session) {
		call_end(server, request, len == sizeof(token) ? DONOR_NOT_FOUND : GN_RPC_DENIED);
		return;
	}
	if (mutant("donor-revoke-early", MUTANT_ALWAYS)) {
		call_end(server, request, GN_RPC_OK);
		return;
	}
	share->revoke = request;
	donor_share_end(server, share);
	call_end(server, request, DEFERRED);
}

/* ---- NOTICE ---- */

static void notice_abandoned(struct gn_rpc_request *request, enum gn_rpc_caller state, void *arg)
{
	struct gn_donor_server *server = arg;
	bool found = false;

	(void)state;
	gn_mutex_lock(&server->lock);
	for (unsigned i = 0; i < server->n_sessions && !found; i++) {
		found = server->sessions[i]->notice == request;
		if (found)
			server->sessions[i]->notice = NULL;
	}
	gn_mutex_unlock(&server->lock);
	if (found) /* otherwise another thread is answering it */
		answer(request, GN_RPC_CANCELED);
}

static void handle_notice(struct gn_rpc_request *request, void *arg)
{
	struct gn_donor_server *server = arg;
	struct donor_session *session = call_begin(server, request);
	struct gn_rpc_request *old;

	if (!session)
		return;
	old = session->notice;
	session->notice = request;
	gn_rpc_request_on_abandon(request, notice_abandoned, server);
	donor_session_notify(server, session);
	gn_mutex_unlock(&server->lock);
	if (old) /* of the same client, which waits for one at a time */
		answer(old, GN_RPC_BUSY);
}

/* ---- LIST, STATS, END ---- */

static bool list_wants(const struct donor_list_request *list, const struct donor_session *session)
{
	return (!list->owner[0] || !strcmp(session->owner, list->owner)) &&
	       (!list->session || list->session == session->number);
}

static void entry_of_session(const struct gn_donor_server *server,
			     const struct donor_session *session, struct donor_list_entry *out)
{
	*out = (struct donor_list_entry){
		.session = session->number,
		.left_ms = donor_session_left_ns(server, session, gn_now_ns()) / 1000000,
		.state = session->access.state == ACCESS_OPEN ? DONOR_HELD : DONOR_ENDING,
	};
	memcpy(out->owner, session->owner, sizeof(out->owner));
}

static void entry_of_slab(const struct gn_donor_server *server, const struct donor_slab *slab,
			  uint64_t client, struct donor_list_entry *out)
{
	struct gn_remote remote;

	entry_of_session(server, slab->session, out);
	out->slab = slab->id;
	out->bytes = server->opts.slab;
	out->held_ms = (gn_now_ns() - slab->granted_ns) / 1000000;
	out->state = slab->state == SLAB_ENDING	    ? DONOR_ENDING :
		     donor_slab_asked(server, slab) ? DONOR_ASKED :
						      DONOR_HELD;
	if (slab->session->client != client || slab->state != SLAB_GRANTED)
		return;
	gn_mr_remote(slab->mr, &remote);
	out->remote = (struct donor_remote){remote.offset, remote.length, remote.key, 0};
	out->use_offset = donor_use_offset(server, slab);
}

/* Positions: first the slabs, then the sessions that hold none. */
static void list_page(const struct gn_donor_server *server, const struct donor_list_request *list,
		      uint64_t client, struct donor_list_result *out)
{
	const uint64_t end = (uint64_t)server->n_slabs + server->n_sessions;
	uint64_t i = list->after;

	for (; i < end && out->n < DONOR_LIST_MAX; i++) {
		if (i < server->n_slabs) {
			const struct donor_slab *slab = &server->slabs[i];

			if (slab->session && list_wants(list, slab->session))
				entry_of_slab(server, slab, client, &out->entries[out->n++]);
		} else {
			const struct donor_session *s = server->sessions[i - server->n_slabs];

			if (!s->n_slabs && list_wants(list, s))
				entry_of_session(server, s, &out->entries[out->n++]);
		}
	}
	out->next = i < end ? i : 0;
}

static void handle_list(struct gn_rpc_request *request, void *arg)
{
	struct gn_donor_server *server = arg;
	union {
		struct donor_list_result result;
		uint8_t bytes[sizeof(struct donor_list_result) +
			      DONOR_LIST_MAX * sizeof(struct donor_list_entry)];
	} page;
	struct donor_list_request list;
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);

	if (!donor_list_read(data, len, &list)) {
		answer(request, GN_RPC_DENIED);
		return;
	}
	memset(&page, 0, sizeof(page));
	gn_mutex_lock(&server->lock);
	list_page(server, &list, gn_rpc_request_client(request), &page.result);
	gn_mutex_unlock(&server->lock);
	gn_rpc_answer(
		request, GN_RPC_OK, &page,
		(uint32_t)(sizeof(page.result) + page.result.n * sizeof(struct donor_list_entry)));
}

static void handle_stats(struct gn_rpc_request *request, void *arg)
{
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	uint64_t words[DONOR_STATS_WORDS];

	gn_donor_server_stats(arg, &stats);
	donor_stats_write(words, &stats);
	gn_rpc_answer(request, GN_RPC_OK, words, sizeof(words));
}

static void handle_end(struct gn_rpc_request *request, void *arg)
{
	struct gn_donor_server *server = arg;
	struct donor_session *session = call_begin(server, request);

	if (!session)
		return;
	donor_session_end(server, session);
	call_end(server, request, GN_RPC_OK);
}

/* ---- connections and registration ---- */

void donor_client_changed(void *arg, uint64_t client, bool came)
{
	struct gn_donor_server *server = arg;
	struct donor_session *session;

	if (came)
		return;
	gn_mutex_lock(&server->lock);
	session = donor_session_by_client(server, client);
	if (session) {
		session->client = 0;
		donor_session_connected(server, session);
	}
	gn_mutex_unlock(&server->lock);
}

int donor_calls_register(struct gn_donor_server *server)
{
	static const struct {
		unsigned method;
		gn_rpc_handler *fn;
	} handlers[] = {
		{DONOR_HELLO, handle_hello},	 {DONOR_GRANT, handle_grant},
		{DONOR_RELEASE, handle_release}, {DONOR_SHARE, handle_share},
		{DONOR_REVOKE, handle_revoke},	 {DONOR_LIST, handle_list},
		{DONOR_NOTICE, handle_notice},	 {DONOR_STATS, handle_stats},
		{DONOR_END, handle_end},
	};
	int rc = 0;

	for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]) && !rc; i++)
		rc = gn_rpc_server_handle(server->rpc, handlers[i].method, handlers[i].fn, server);
	return rc;
}
