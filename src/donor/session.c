/* SPDX-License-Identifier: MIT */
/*
 * Sessions, shares and slabs: looking them up, marking their end, and notices. Everything here
 * needs the server's lock.
 */
#include <string.h>

#include "donor/server.h"

/* ---- look-up ---- */

struct donor_session *donor_session_by_client(const struct gn_donor_server *server, uint64_t client)
{
	for (unsigned i = 0; i < server->n_sessions; i++)
		if (server->sessions[i]->client == client)
			return server->sessions[i];
	return NULL;
}

/*
 * Both compare with all tokens, each in constant time: the time tells nothing about their content,
 * and is bounded by the limits on sessions and shares.
 */
struct donor_session *donor_session_by_token(const struct gn_donor_server *server,
					     const uint8_t *token)
{
	struct donor_session *found = NULL;

	for (unsigned i = 0; i < server->n_sessions; i++) {
		struct donor_session *s = server->sessions[i];

		if (donor_token_equal(s->access.token, token) && s->access.state == ACCESS_OPEN)
			found = s;
	}
	return found;
}

struct donor_share *donor_share_by_token(const struct gn_donor_server *server, const uint8_t *token)
{
	struct donor_share *found = NULL;

	for (unsigned i = 0; i < server->n_shares; i++) {
		struct donor_share *s = server->shares[i];

		if (donor_token_equal(s->access.token, token) && s->access.state == ACCESS_OPEN)
			found = s;
	}
	return found;
}

struct donor_slab *donor_slab_by_id(const struct gn_donor_server *server,
				    const struct donor_session *session, uint64_t id)
{
	for (unsigned i = 0; i < server->n_slabs; i++) {
		struct donor_slab *slab = &server->slabs[i];

		if (slab->state == SLAB_GRANTED && slab->id == id && slab->session == session)
			return slab;
	}
	return NULL;
}

unsigned donor_slabs_in(const struct gn_donor_server *server, enum donor_slab_state state)
{
	unsigned n = 0;

	for (unsigned i = 0; i < server->n_slabs; i++)
		n += server->slabs[i].state == state;
	return n;
}

/* ---- ends ---- */

void donor_share_end(struct gn_donor_server *server, struct donor_share *share)
{
	if (share->access.state == ACCESS_ENDING)
		return;
	share->access.state = ACCESS_ENDING;
	server->counts.revoked++;
	donor_data_kick(server);
	gn_cond_signal(&server->work);
}

void donor_slab_end(struct gn_donor_server *server, struct donor_slab *slab)
{
	slab->state = SLAB_ENDING;
	slab->asked_ns = 0;
	for (unsigned i = 0; i < server->n_shares; i++)
		if (server->shares[i]->slab == slab)
			donor_share_end(server, server->shares[i]);
	gn_cond_signal(&server->work);
}

void donor_session_end(struct gn_donor_server *server, struct donor_session *session)
{
	if (session->access.state == ACCESS_ENDING)
		return;
	session->access.state = ACCESS_ENDING;
	session->client = 0;
	for (unsigned i = 0; i < server->n_slabs; i++)
		if (server->slabs[i].state == SLAB_GRANTED && server->slabs[i].session == session)
			donor_slab_end(server, &server->slabs[i]);
	if (session->notice) {
		struct gn_rpc_request *notice = session->notice;

		session->notice = NULL;
		gn_rpc_answer(notice, DONOR_NO_SESSION, NULL, 0);
	}
	donor_data_kick(server);
	gn_cond_signal(&server->work);
}

void donor_session_connected(struct gn_donor_server *server, struct donor_session *session)
{
	if (session->client || session->access.n_conns) {
		session->alone_ns = 0;
		return;
	}
	if (!session->alone_ns)
		session->alone_ns = gn_now_ns();
	/* Nothing is lost with it. */
	if (!session->n_slabs && !session->n_deferred)
		donor_session_end(server, session);
}

uint64_t donor_session_left_ns(const struct gn_donor_server *server,
			       const struct donor_session *session, uint64_t now_ns)
{
	const uint64_t end_ns = session->alone_ns ?
					session->alone_ns + server->opts.lease_us * 1000 :
					session->active_ns + server->opts.silence_us * 1000;

	return end_ns > now_ns ? end_ns - now_ns : 0;
}

/* ---- notices ---- */

static uint64_t left_ms(uint64_t until_ns)
{
	const uint64_t now_ns = gn_now_ns();

	return until_ns > now_ns ? (until_ns - now_ns) / 1000000 : 0;
}

static struct donor_slab *slab_to_ask(struct gn_donor_server *server,
				      const struct donor_session *session)
{
	struct donor_slab *best = NULL;

	for (unsigned i = 0; i < server->n_slabs; i++) {
		struct donor_slab *slab = &server->slabs[i];

		if (slab->state == SLAB_GRANTED && slab->session == session && slab->asked_ns &&
		    !slab->asked_told && donor_slab_less_used(slab, best))
			best = slab;
	}
	return best;
}

static bool session_next_notice(struct gn_donor_server *server, struct donor_session *session,
				struct donor_notice *out)
{
	struct donor_slab *slab;

	*out = (struct donor_notice){.kind = 0};
	if (server->leaving && !session->leaving_told) {
		session->leaving_told = true;
		out->kind = DONOR_LEAVING;
		out->left_ms = left_ms(server->leave_ns);
		return true;
	}
	if (session->n_taken > DONOR_TAKEN_MAX) {
		session->n_taken = 0;
		out->kind = DONOR_TAKEN;
		return true;
	}
	if (session->n_taken) {
		out->kind = DONOR_TAKEN;
		out->slab = session->taken[0];
		memmove(session->taken, session->taken + 1,
			--session->n_taken * sizeof(session->taken[0]));
		return true;
	}
	slab = slab_to_ask(server, session);
	if (!slab)
		return false;
	slab->asked_told = true;
	out->kind = DONOR_TAKE_BACK;
	out->slab = slab->id;
	out->left_ms = left_ms(slab->asked_ns);
	return true;
}

void donor_session_notify(struct gn_donor_server *server, struct donor_session *session)
{
	struct gn_rpc_request *request = session->notice;
	struct donor_notice notice;

	if (!request || !session_next_notice(server, session, &notice))
		return;
	session->notice = NULL;
	gn_rpc_answer(request, GN_RPC_OK, &notice, sizeof(notice));
}
