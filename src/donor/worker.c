/* SPDX-License-Identifier: MIT */
/*
 * The worker: allocates, prefaults, registers, deregisters and frees, beside the serving threads.
 * It keeps some slabs ready. A slab's memory is never granted twice: on shared memory a client that
 * was stopped in the middle of a copy would write into the next client's slab.
 */
#include <errno.h>
#include <string.h>

#include "base/mutant.h"
#include "donor/server.h"

#define FILL_BYTES    (1u << 20)  /* prefaulted between two looks for jobs */
#define FILL_RETRY_NS 1000000000u /* after an allocation failed */
#define REAP_RETRY_NS 1000000u	  /* a peer is still copying */
#define LEASE_ACCESS  (GN_LOCAL_WRITE | GN_REMOTE_READ | GN_REMOTE_WRITE)
#define SLAB_ACCESS   LEASE_ACCESS

/* ---- jobs ---- */

static struct donor_job *job_take(struct donor_jobs *jobs)
{
	struct donor_job *job = jobs->first;

	if (!job)
		return NULL;
	jobs->first = job->next;
	if (!jobs->first)
		jobs->last = &jobs->first;
	jobs->n--;
	return job;
}

/* Before the answer: a client that got it may call again. With the lock held. */
static void job_settle(struct gn_donor_server *server, struct donor_job *job)
{
	struct donor_session *session = job->session;

	server->n_deferred--;
	if (!session)
		return;
	session->n_deferred--;
	donor_session_connected(server, session);
}

static void job_end(struct gn_donor_server *server, struct donor_job *job, unsigned status)
{
	job_settle(server, job);
	gn_rpc_answer(job->request, status, NULL, 0);
	gn_free(job);
}

static void token_make(uint8_t token[IO_TOKEN_BYTES])
{
	const uint64_t words[] = {gn_random(), gn_random()};

	_Static_assert(sizeof(words) == IO_TOKEN_BYTES, "a token");
	memcpy(token, words, sizeof(words));
}

static unsigned status_of(int rc)
{
	return rc == -ENOMEM || rc == -ENOSPC ? DONOR_NO_SPACE : GN_RPC_FAILED;
}

/* ---- sessions ---- */

static void session_free(struct donor_session *session)
{
	gn_mr_deregister(session->lease_mr); /* no qp is left: nobody is waited for */
	gn_mem_free(session->lease_mem);
	gn_pd_destroy(session->access.pd);
	gn_free(session);
}

static int session_create(struct gn_donor_server *server, const struct donor_hello *hello,
			  struct donor_session **out)
{
	struct donor_session *s = gn_alloc(sizeof(*s), 0);
	const size_t bytes = donor_lease_bytes(server);
	int rc;

	if (!s)
		return -ENOMEM;
	token_make(s->access.token);
	memcpy(s->owner, hello->owner, sizeof(s->owner));
	rc = gn_pd_create(server->loop.ctx, &s->access.pd);
	if (!rc)
		rc = gn_mem_alloc(server->fabric, bytes, GN_REMOTE_READ | GN_REMOTE_WRITE,
				  &s->lease_mem);
	if (!rc)
		rc = gn_mr_register(s->access.pd, s->lease_mem, 0, bytes, LEASE_ACCESS,
				    &s->lease_mr);
	if (rc)
		session_free(s);
	else
		*out = s;
	return rc;
}

static void job_hello(struct gn_donor_server *server, struct donor_job *job)
{
	const uint64_t client = gn_rpc_request_client(job->request);
	struct donor_session *session = NULL;
	unsigned status = 0;
	int rc;

	gn_mutex_unlock(&server->lock);
	rc = session_create(server, &job->hello, &session);
	gn_mutex_lock(&server->lock);
	server->n_hellos--;
	/* The serving thread reports a disconnect after the request's state says so. */
	if (rc)
		status = status_of(rc);
	else if (server->stopping || gn_rpc_request_state(job->request) == GN_RPC_CALLER_GONE)
		status = DONOR_GOING_AWAY;
	else if (donor_session_by_client(server, client))
		status = GN_RPC_DENIED;
	if (status) {
		if (session)
			session_free(session);
		job_end(server, job, status);
		return;
	}
	session->number = ++server->last_session;
	session->client = client;
	session->active_ns = gn_now_ns();
	server->sessions[server->n_sessions++] = session;
	job_settle(server, job);
	donor_answer_hello(server, session, job->request);
	gn_free(job);
}

/* ---- grants ---- */

static struct donor_slab *slab_in(struct gn_donor_server *server, enum donor_slab_state state)
{
	for (unsigned i = 0; i < server->n_slabs; i++)
		if (server->slabs[i].state == state)
			return &server->slabs[i];
	return NULL;
}

/* Refuses calls that nobody waits for, or that no slab will come for. */
static void grants_drop(struct gn_donor_server *server)
{
	const bool none = server->pressure || server->leaving || server->stopping ||
			  server->fill_ns > gn_now_ns();
	struct donor_job **at = &server->grants.first;

	while (*at) {
		struct donor_job *job = *at;
		const bool ended = job->session->access.state != ACCESS_OPEN;

		if (!none && !ended && gn_rpc_request_state(job->request) == GN_RPC_CALLER_WAITS) {
			at = &job->next;
			continue;
		}
		*at = job->next;
		if (!*at)
			server->grants.last = at;
		server->grants.n--;
		server->counts.refused++;
		job_end(server, job,
			ended				    ? DONOR_NO_SESSION :
			server->leaving || server->stopping ? DONOR_GOING_AWAY :
							      DONOR_NO_SPACE);
	}
}

static void job_grant(struct gn_donor_server *server, struct donor_job *job,
		      struct donor_slab *slab)
{
	struct donor_session *session = job->session;
	struct donor_grant_result result = {.use_offset = donor_use_offset(server, slab)};
	struct gn_remote remote;
	int rc;

	gn_mutex_unlock(&server->lock);
	rc = gn_mr_register(session->access.pd, slab->mem, 0, server->opts.slab, SLAB_ACCESS,
			    &slab->mr);
	gn_mutex_lock(&server->lock);
	if (rc) {
		server->counts.refused++;
		job_end(server, job, status_of(rc));
		return;
	}
	gn_mr_remote(slab->mr, &remote);
	slab->state = SLAB_GRANTED;
	slab->session = session;
	slab->id = ++server->last_slab;
	slab->granted_ns = gn_now_ns();
	slab->heat = slab->asked_ns = 0;
	slab->asked_told = false;
	__atomic_store_n((uint64_t *)((char *)gn_mem_addr(session->lease_mem) + result.use_offset),
			 0, __ATOMIC_RELAXED);
	slab->used = 0;
	session->n_slabs++;
	server->counts.grants++;
	if (session->access.state != ACCESS_OPEN)
		donor_slab_end(server, slab);
	result.slab = slab->id;
	result.remote = (struct donor_remote){remote.offset, remote.length, remote.key, 0};
	job_settle(server, job);
	gn_rpc_answer(job->request, GN_RPC_OK, &result, sizeof(result));
	gn_free(job);
}

/* ---- shares ---- */

static void share_free(struct donor_share *share)
{
	gn_mr_deregister(share->mr);
	gn_pd_destroy(share->access.pd);
	gn_free(share);
}

/* The holder of a token gets the range and the rights of it, until it is revoked. */
static unsigned rights_to_access(uint32_t rights)
{
	return GN_CONFINED | (rights & IO_RIGHT_READ ? GN_REMOTE_READ : 0u) |
	       (rights & IO_RIGHT_WRITE ? GN_REMOTE_WRITE | GN_LOCAL_WRITE : 0u);
}

static int share_create(struct gn_donor_server *server, const struct donor_slab *slab,
			const struct donor_share_request *request, struct donor_share **out)
{
	struct donor_share *s = gn_alloc(sizeof(*s), 0);
	int rc;

	if (!s)
		return -ENOMEM;
	token_make(s->access.token);
	s->length = request->length;
	s->rights = request->rights;
	rc = gn_pd_create(server->loop.ctx, &s->access.pd);
	if (!rc)
		rc = gn_mr_register(s->access.pd, slab->mem, request->offset, request->length,
				    rights_to_access(request->rights), &s->mr);
	if (rc)
		share_free(s);
	else
		*out = s;
	return rc;
}

/* The slab stays while the lock is not held: only this thread frees it. */
static void job_share(struct gn_donor_server *server, struct donor_job *job)
{
	struct donor_session *session = job->session;
	struct donor_slab *slab = donor_slab_by_id(server, session, job->share.slab);
	struct donor_share *share = NULL;
	struct donor_token result;
	int rc;

	if (!slab) {
		job_end(server, job, DONOR_NOT_FOUND);
		return;
	}
	gn_mutex_unlock(&server->lock);
	rc = share_create(server, slab, &job->share, &share);
	gn_mutex_lock(&server->lock);
	if (rc) {
		job_end(server, job, status_of(rc));
		return;
	}
	share->slab = slab;
	share->session = session;
	slab->n_shares++;
	session->n_shares++;
	server->shares[server->n_shares++] = share;
	if (slab->state != SLAB_GRANTED)
		donor_share_end(server, share);
	memcpy(result.token, share->access.token, sizeof(result.token));
	job_settle(server, job);
	gn_rpc_answer(job->request, GN_RPC_OK, &result, sizeof(result));
	gn_free(job);
}

/* ---- ends ---- */

/* True: gone. Only this thread removes shares, so the index stays valid without the lock. */
static bool reap_share(struct gn_donor_server *server, unsigned i)
{
	struct donor_share *share = server->shares[i];
	int rc;

	if (share->access.state != ACCESS_ENDING || share->access.n_conns)
		return false;
	gn_mutex_unlock(&server->lock);
	rc = share->mr ? gn_mr_deregister_try(share->mr) : 0;
	gn_mutex_lock(&server->lock);
	if (rc == -EAGAIN)
		return false;
	share->mr = NULL;
	share->slab->n_shares--;
	share->session->n_shares--;
	server->shares[i] = server->shares[--server->n_shares];
	if (share->revoke)
		gn_rpc_answer(share->revoke, GN_RPC_OK, NULL, 0);
	share_free(share);
	return true;
}

static bool reap_slab(struct gn_donor_server *server, struct donor_slab *slab)
{
	struct donor_session *session = slab->session;
	int rc;

	if (slab->state != SLAB_ENDING || slab->n_shares)
		return false;
	/* A client whose session ends sees its connections end, not refused accesses. */
	if (session->access.state == ACCESS_ENDING && session->access.n_conns)
		return false;
	gn_mutex_unlock(&server->lock);
	rc = slab->mr ? gn_mr_deregister_try(slab->mr) : 0;
	if (rc != -EAGAIN && !mutant("donor-slab-reused", MUTANT_ALWAYS)) {
		gn_mem_free(slab->mem);
		slab->mem = NULL;
	}
	gn_mutex_lock(&server->lock);
	if (rc == -EAGAIN)
		return false;
	slab->mr = NULL;
	slab->session = NULL;
	slab->state = slab->mem ? SLAB_READY : SLAB_NONE;
	session->n_slabs--;
	if (slab->release)
		gn_rpc_answer(slab->release, GN_RPC_OK, NULL, 0);
	slab->release = NULL;
	gn_cond_broadcast(&server->idle);
	return true;
}

static bool reap_session(struct gn_donor_server *server, unsigned i)
{
	struct donor_session *s = server->sessions[i];

	if (s->access.state != ACCESS_ENDING || s->access.n_conns || s->n_slabs || s->n_shares ||
	    s->n_deferred)
		return false;
	server->sessions[i] = server->sessions[--server->n_sessions];
	gn_mutex_unlock(&server->lock);
	session_free(s);
	gn_mutex_lock(&server->lock);
	gn_cond_broadcast(&server->idle);
	return true;
}

/* Under pressure ready slabs go first. */
static bool reap_ready(struct gn_donor_server *server)
{
	struct donor_slab *slab = server->pressure ? slab_in(server, SLAB_READY) : NULL;

	if (!slab)
		return false;
	slab->state = SLAB_FILLING;
	gn_mutex_unlock(&server->lock);
	gn_mem_free(slab->mem);
	gn_mutex_lock(&server->lock);
	slab->mem = NULL;
	slab->state = SLAB_NONE;
	return true;
}

/* True: something ended. *waits: something is to end, and must be tried again. */
static bool reap(struct gn_donor_server *server, bool *waits)
{
	bool ended = reap_ready(server);

	*waits = false;
	for (unsigned i = server->n_shares; i-- > 0;) {
		ended |= reap_share(server, i);
		*waits |= i < server->n_shares && server->shares[i]->access.state == ACCESS_ENDING;
	}
	for (unsigned i = 0; i < server->n_slabs; i++) {
		ended |= reap_slab(server, &server->slabs[i]);
		*waits |= server->slabs[i].state == SLAB_ENDING;
	}
	for (unsigned i = server->n_sessions; i-- > 0;)
		ended |= reap_session(server, i);
	return ended;
}

/* ---- ready slabs ---- */

static bool fill_wanted(const struct gn_donor_server *server, uint64_t now_ns)
{
	if (server->pressure || server->leaving || server->stopping || now_ns < server->fill_ns)
		return false;
	return donor_slabs_in(server, SLAB_READY) < server->opts.ready + server->grants.n;
}

static void fill_failed(struct gn_donor_server *server, int rc)
{
	server->fill_ns = gn_now_ns() + FILL_RETRY_NS;
	gn_log(GN_LOG_WARN, "donor: no memory for another slab: %s", gn_strerror(rc));
}

/* Some pages of a slab: new memory is zero, and a store makes the system provide the page. */
static void fill_pages(struct donor_slab *slab, size_t bytes)
{
	volatile uint8_t *mem = gn_mem_addr(slab->mem);
	const size_t end = slab->filled + bytes;

	for (size_t at = slab->filled; at < end; at += GN_PAGE)
		mem[at] = 0;
	gn_charge(GN_WORK_COPY, bytes);
	slab->filled = end;
}

/* Does a part of the work; true if there was some. */
static bool fill(struct gn_donor_server *server)
{
	struct donor_slab *slab = slab_in(server, SLAB_FILLING);
	const size_t bytes = server->opts.slab;
	int rc = 0;

	if (!slab) {
		slab = fill_wanted(server, gn_now_ns()) ? slab_in(server, SLAB_NONE) : NULL;
		if (!slab)
			return false;
		slab->state = SLAB_FILLING;
		slab->filled = 0;
	}
	gn_mutex_unlock(&server->lock);
	if (!slab->mem)
		rc = gn_mem_alloc(server->fabric, bytes, GN_REMOTE_READ | GN_REMOTE_WRITE,
				  &slab->mem);
	if (!rc)
		fill_pages(slab,
			   bytes - slab->filled < FILL_BYTES ? bytes - slab->filled : FILL_BYTES);
	gn_mutex_lock(&server->lock);
	if (rc) {
		slab->state = SLAB_NONE;
		fill_failed(server, rc);
	} else if (slab->filled == bytes) {
		slab->state = SLAB_READY;
	}
	return true;
}

/* ---- main ---- */

static bool worker_jobs(struct gn_donor_server *server)
{
	struct donor_job *job = job_take(&server->jobs);
	struct donor_slab *slab;

	if (job) {
		if (job->method == DONOR_HELLO)
			job_hello(server, job);
		else
			job_share(server, job);
		return true;
	}
	grants_drop(server);
	slab = server->grants.first ? slab_in(server, SLAB_READY) : NULL;
	if (!slab)
		return false;
	job_grant(server, job_take(&server->grants), slab);
	return true;
}

void donor_worker_main(void *arg)
{
	struct gn_donor_server *server = arg;

	gn_mutex_lock(&server->lock);
	while (!server->stop_worker) {
		bool waits = false, busy = worker_jobs(server);
		uint64_t until_ns = GN_FOREVER;

		busy |= reap(server, &waits);
		busy |= fill(server);
		if (busy)
			continue;
		if (waits)
			until_ns = gn_now_ns() + REAP_RETRY_NS;
		else if (server->fill_ns > gn_now_ns())
			until_ns = server->fill_ns;
		gn_cond_wait(&server->work, &server->lock, until_ns, "jobs of a donor");
	}
	gn_mutex_unlock(&server->lock);
}
