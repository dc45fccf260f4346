/* SPDX-License-Identifier: MIT */
/*
 * A requester of the test: connects, sends requests, flushes, idles, disconnects and reconnects; and
 * checks each result.
 */
#include <errno.h>

#include "sim_msg.h"

#define ATTEMPTS   60u
#define UNTIL_NS   40000000ull	  /* no new requests from here on */
#define DRAIN_NS   2000000000ull  /* a request ends when the responder's end is noticed */
#define REQUEST_NS 30000000000ull /* the default time-out of datagrams */
#define HEAL_NS	   3000000000ull  /* what was cut off is reached again */
#define MEMORY_US  1000u	  /* until there may be some again */
#define TAKE	   8u
#define WAIT_US	   200u
#define TRY_EVERY  500000ull /* to connect, ns */

struct session {
	struct world *w;
	const struct plan_requester *plan;
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn[CONNS_MAX];
	unsigned serial[CONNS_MAX]; /* of each connection */
	uint32_t sent[CONNS_MAX], taken[CONNS_MAX], outstanding[CONNS_MAX];
	bool gone[CONNS_MAX], ended[CONNS_MAX]; /* no request can be sent; none can succeed */
	uint64_t try_ns[CONNS_MAX];
	unsigned left, life, serials;
	uint8_t *room;
};

/* ---- connections ---- */

static bool may_fail(const struct session *s, int rc)
{
	const struct plan *p = &s->w->plan;

	if (rc == -ENOMEM)
		return p->cluster.no_memory;
	/* There is no responder, it refuses more connections, or it does not answer. */
	return rc == -ECONNREFUSED || rc == -ETIMEDOUT || rc == -ECONNRESET || rc == -EPIPE;
}

static void connect_one(struct session *s, unsigned c)
{
	const char *why = NULL;
	int rc;

	if (gn_now_ns() < s->try_ns[c])
		return;
	rc = gn_msg_conn_open(s->requester, ADDR, &why, &s->conn[c]);
	world_log(s->w, "connection %u: %s %s", s->serials, gn_strerror(rc), why ? why : "");
	s->try_ns[c] = gn_now_ns() + TRY_EVERY;
	if (rc) {
		s->w->sums.refused_conns += why && *why;
		s->conn[c] = NULL;
		if (!may_fail(s, rc))
			world_fail(s->w, "cannot connect: %s", gn_strerror(rc));
		return;
	}
	s->w->sums.reconnects += s->serials >= s->plan->conns;
	s->serial[c] = s->serials++;
	s->sent[c] = s->taken[c] = s->outstanding[c] = 0;
	s->gone[c] = s->ended[c] = false;
}

/* With outstanding requests, or without. */
static void leave(struct session *s, unsigned c)
{
	world_log(s->w, "leaves connection %u with %u under way", s->serial[c], s->outstanding[c]);
	if (gn_msg_pending(s->conn[c]) != s->outstanding[c])
		world_fail(s->w, "%u requests are under way and not %u", s->outstanding[c],
			   gn_msg_pending(s->conn[c]));
	for (uint32_t i = 0; i < s->w->n_requests && s->outstanding[c]; i++) {
		struct request *request = &s->w->requests[i];

		if (request->life != s->life || request->conn != s->serial[c] || request->ended)
			continue;
		request->ended = 1; /* no result may name it any more */
		s->outstanding[c]--;
		s->w->sums.left++;
	}
	gn_msg_conn_close(s->conn[c]);
	s->conn[c] = NULL;
}

/* ---- requests ---- */

static uint32_t draw_len(uint32_t most)
{
	return (uint32_t)(gn_random() % 4 ? gn_random() % (most + 1) : most);
}

static uint32_t new_request(struct session *s, unsigned c)
{
	const struct gn_msg_requester_opts *o = &s->plan->opts;
	const uint32_t head = (uint32_t)sizeof(uint32_t);
	const uint32_t number = s->w->n_requests++;
	struct request *request = &s->w->requests[number];

	*request = (struct request){
		.life = s->life,
		.conn = s->serial[c],
		.number = s->sent[c],
		.protocol = o->protocol,
		.len = head + draw_len(o->request_bytes - head),
		.value_len = draw_len(o->value_bytes),
		.refuse = gn_random() % 32 == 0,
		.least = s->w->version,
		.at_ns = gn_now_ns(),
	};
	if (o->protocol == GN_MSG_READ) {
		const uint32_t words = request->value_len / 8;

		request->value_len = words * 8;
		request->offset = gn_random() % (DATA_WORDS - words + 1) * 8;
		request->refuse = false;
	}
	return number;
}

static int begin(struct session *s, unsigned c, uint32_t number)
{
	const struct request *request = &s->w->requests[number];

	if (request->protocol == GN_MSG_READ)
		return gn_msg_read(s->conn[c], request->offset, request->value_len, number);
	memcpy(s->room, &number, sizeof(number));
	pattern_fill(s->room + sizeof(number), request->len - (uint32_t)sizeof(number), number,
		     false);
	return gn_msg_ask(s->conn[c], s->room, request->len, number);
}

/* False: no request can be sent now. */
static bool send_request(struct session *s, unsigned c)
{
	struct world *w = s->w;
	uint32_t number;
	int rc;

	/* Sometimes one more than the limit, which must be refused. */
	if (!s->conn[c] || s->gone[c] || !s->left || w->n_requests == REQUESTS_MAX ||
	    s->outstanding[c] >= s->plan->window + (gn_random() % 8 == 0))
		return false;
	number = new_request(s, c);
	rc = begin(s, c, number);
	world_log(w, "asks %u on connection %u: %s", number, s->serial[c], gn_strerror(rc));
	if (!rc && s->outstanding[c] == s->plan->opts.pending)
		world_fail(w, "request %u is one too many", number);
	if (!rc) {
		s->sent[c]++;
		s->outstanding[c]++;
		s->left--;
		w->sums.protocols[s->plan->opts.protocol]++;
		w->sums.papers += s->plan->opts.flags & GN_MSG_PAPER;
		return true;
	}
	if (rc != -EAGAIN && rc != -ENOTCONN)
		world_fail(w, "request %u cannot be sent: %s", number, gn_strerror(rc));
	w->requests[number].ended = 1; /* it was not sent */
	if (number == w->n_requests - 1)
		w->n_requests--; /* no other was sent meanwhile */
	s->gone[c] |= rc == -ENOTCONN;
	return false;
}

/* ---- results ---- */

/* The words are those of the offset, and not older than the request. */
static void check_words(struct session *s, const struct request *request, uint32_t number,
			const uint64_t *word)
{
	for (uint32_t i = 0; i < request->value_len / 8; i++) {
		const uint32_t index = (uint32_t)(request->offset / 8) + i;
		const uint64_t version = word[i] >> 16;

		if ((word[i] & 0xffff) != (index & 0xffff) || version < request->least ||
		    version > s->w->version + 1) {
			world_fail(s->w, "request %u reads %llx as word %u; versions %llu to %llu",
				   number, (unsigned long long)word[i], index,
				   (unsigned long long)request->least,
				   (unsigned long long)s->w->version + 1);
			return;
		}
		s->w->sums.torn_words += i && version != word[i - 1] >> 16;
	}
}

static void check_value(struct session *s, const struct request *request, uint32_t number,
			const struct gn_msg_result *result)
{
	uint32_t bad;

	if (result->len != request->value_len)
		world_fail(s->w, "request %u is answered with %u bytes instead of %u", number,
			   result->len, request->value_len);
	else if (request->protocol == GN_MSG_READ)
		check_words(s, request, number, result->value);
	else if (request->executed != 1 || request->refuse)
		world_fail(s->w, "request %u is answered and was executed %u times%s", number,
			   request->executed, request->refuse ? ", and refused" : "");
	else if (!pattern_is(result->value, result->len, number, true, &bad))
		world_fail(s->w, "request %u: its answer of %u bytes is wrong from %u on", number,
			   result->len, bad);
	s->w->sums.reads += request->protocol == GN_MSG_READ;
}

static uint64_t request_timeout_ns(const struct session *s)
{
	const uint32_t us = s->plan->opts.request_timeout_us;

	return us ? us * 1000ull : REQUEST_NS;
}

static bool may_end(const struct session *s, const struct request *request,
		    enum gn_msg_status status)
{
	const struct plan *p = &s->w->plan;

	switch (status) {
	case GN_MSG_OK:
		return true;
	case GN_MSG_REFUSED:
		return request->refuse && request->executed == 1;
	case GN_MSG_GONE:
		return p->cluster.breaks || p->cluster.no_memory || p->stop_us;
	case GN_MSG_LOST: /* not before its time-out, whatever happened to its copies */
		return request->protocol == GN_MSG_UD &&
		       gn_now_ns() - request->at_ns >= request_timeout_ns(s);
	default:
		return false;
	}
}

static void take_one(struct session *s, const struct gn_msg_result *result)
{
	struct world *w = s->w;
	const uint32_t number = (uint32_t)result->id;
	struct request *request = &w->requests[number];
	unsigned c = 0;

	world_log(w, "%u ends: %s", number, gn_msg_status_str(result->status));
	if (result->id >= w->n_requests || request->life != s->life || request->ended++) {
		world_fail(w, "request %llu completes, which is not outstanding",
			   (unsigned long long)result->id);
		return;
	}
	while (c < CONNS_MAX && !(s->conn[c] && s->serial[c] == request->conn))
		c++;
	if (c == CONNS_MAX) {
		world_fail(w, "request %u completes on a closed connection", number);
		return;
	}
	s->outstanding[c]--;
	if (s->ended[c] && result->status != GN_MSG_GONE)
		world_fail(w, "request %u completes after one that failed with the connection",
			   number);
	s->ended[c] |= result->status == GN_MSG_GONE && request->protocol != GN_MSG_UD;
	s->gone[c] |= result->status == GN_MSG_GONE;
	if (result->conn != s->conn[c])
		world_fail(w, "request %u completes on another connection", number);
	if (request->protocol != GN_MSG_UD && request->number != s->taken[c])
		world_fail(w, "request %u is number %u and ends as number %u", number,
			   request->number, s->taken[c]);
	s->taken[c]++;
	if (!may_end(s, request, result->status))
		world_fail(w, "request %u (%s) ends: %s", number,
			   gn_msg_protocol_str(request->protocol),
			   gn_msg_status_str(result->status));
	if (result->status == GN_MSG_OK)
		check_value(s, request, number, result);
	w->sums.statuses[result->status]++;
}

static void take(struct session *s, uint64_t deadline_ns)
{
	struct gn_msg_result result[TAKE];
	const unsigned most = 1 + (unsigned)(gn_random() % TAKE);
	const int n = gn_msg_take(s->requester, result, most, deadline_ns);

	s->w->run.active_ns = gn_sim_now_ns(s->w->run.sim);
	if (n < 0 || (unsigned)n > most)
		world_fail(s->w, "results cannot be taken: %d", n);
	for (int i = 0; i < n; i++)
		take_one(s, &result[i]);
	for (unsigned c = 0; c < CONNS_MAX; c++)
		if (s->conn[c] && s->gone[c] && !s->outstanding[c])
			leave(s, c);
}

static unsigned under_way(const struct session *s)
{
	unsigned n = 0;

	for (unsigned c = 0; c < CONNS_MAX; c++)
		n += s->outstanding[c];
	return n;
}

/* ---- its life ---- */

static void step(struct session *s)
{
	const unsigned c = (unsigned)(gn_random() % s->plan->conns);

	s->w->run.active_ns = gn_sim_now_ns(s->w->run.sim);

	if (!s->conn[c])
		connect_one(s, c);
	while (send_request(s, c))
		;
	if (gn_random() % 1000 < s->plan->flushes)
		gn_msg_flush(s->requester);
	if (gn_random() % 1000 < s->plan->thinks)
		gn_sleep_us(1 + gn_random() % s->plan->think_us);
	if (gn_random() % 1000 < s->plan->leaves && s->conn[c])
		leave(s, c);
	if (under_way(s))
		take(s, gn_random() % 4 ? gn_deadline_us(1 + gn_random() % WAIT_US) : GN_NO_WAIT);
	else
		gn_sleep_us(1 + gn_random() % 10);
}

/* All outstanding requests complete. */
static void drain(struct session *s)
{
	const uint64_t timeout_ns = s->plan->opts.protocol == GN_MSG_UD ? request_timeout_ns(s) : 0;
	const uint64_t until_ns = gn_sim_now_ns(s->w->run.sim) + DRAIN_NS + timeout_ns;

	while (under_way(s) && gn_sim_now_ns(s->w->run.sim) < until_ns && !*s->w->run.failure)
		take(s, gn_deadline_us(WAIT_US));
	if (under_way(s))
		world_fail(s->w, "%u requests do not end", under_way(s));
}

/* After the last fault a new requester is served. */
static void heal(struct session *s)
{
	const uint64_t until_ns = gn_sim_now_ns(s->w->run.sim) + HEAL_NS;
	uint64_t answered;

	for (unsigned c = 0; c < CONNS_MAX; c++)
		if (s->conn[c])
			leave(s, c);
	drain(s);
	answered = s->w->sums.statuses[GN_MSG_OK];
	while (gn_sim_now_ns(s->w->run.sim) < until_ns && !*s->w->run.failure &&
	       s->w->sums.statuses[GN_MSG_OK] == answered) {
		s->left = 1;
		if (!s->conn[0])
			connect_one(s, 0);
		send_request(s, 0);
		take(s, gn_deadline_us(1000));
		if (!s->conn[0])
			gn_sleep_us(1000);
	}
	if (s->w->sums.statuses[GN_MSG_OK] == answered)
		world_fail(s->w, "nobody is answered after all is well again");
	s->w->sums.healed++;
	drain(s);
}

static void live(struct session *s)
{
	struct world *w = s->w;
	struct gn_msg_stats stats = {.size = sizeof(stats)};
	unsigned c;

	while ((s->left || under_way(s)) && gn_sim_now_ns(w->run.sim) < UNTIL_NS &&
	       !*w->run.failure)
		step(s);
	s->left = 0;
	drain(s);
	if (w->plan.heals && !w->plan.cluster.no_memory && w->plan.responder.max_pending == 32 &&
	    w->plan.responder.max_conns >= REQUESTERS_MAX * CONNS_MAX)
		heal(s);
	for (c = 0; c < CONNS_MAX && gn_random() % 2; c++)
		if (s->conn[c])
			leave(s, c);
	gn_msg_requester_stats(s->requester, &stats);
	w->sums.repeats += stats.repeats;
	w->sums.strays += stats.strays;
	w->sums.looks += stats.looks;
}

static int make(struct session *s, struct gn_fabric *fabric)
{
	struct gn_msg_requester_opts opts = s->plan->opts;
	int rc;

	opts.size = sizeof(opts);
	rc = gn_msg_requester_create(fabric, &opts, &s->requester);
	if (!rc)
		s->room = gn_alloc(BYTES_MAX, 0);
	if (!rc && !s->room) {
		gn_msg_requester_destroy(s->requester);
		rc = -ENOMEM;
	}
	return rc;
}

int requester_main(struct gn_env *env, int argc, char **argv)
{
	const struct requester_arg *arg = env->arg;
	struct world *w = arg->w;
	struct session s = {.w = w, .plan = &w->plan.requester[arg->index]};
	struct gn_fabric *fabric = NULL;
	int rc = -ENOMEM;

	(void)argc, (void)argv;
	if (w->n_lives == LIVES_MAX)
		return 0;
	s.life = w->n_lives++;
	s.left = s.plan->requests;
	for (unsigned i = 0; rc && i < ATTEMPTS; i++) {
		if (!fabric)
			rc = gn_fabric_open(env->fabric, &fabric);
		if (fabric)
			rc = make(&s, fabric);
		if (rc)
			gn_sleep_us(MEMORY_US);
	}
	if (rc && !w->plan.cluster.no_memory)
		world_fail(w, "no requester: %s", gn_strerror(rc));
	if (!rc) {
		live(&s);
		gn_msg_requester_destroy(s.requester);
		gn_free(s.room);
	}
	if (fabric && gn_fabric_close(fabric))
		world_fail(w, "a requester's fabric cannot be closed");
	w->over[s.life] = true;
	w->run.clients_over++;
	return 0;
}
