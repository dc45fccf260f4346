/* SPDX-License-Identifier: MIT */
/*
 * Requests of random lengths over several connections, as many in flight as allowed: each value is
 * checked against its request, and over RC the order, too.
 */
#ifndef GN_TESTS_MSG_STREAM_H
#define GN_TESTS_MSG_STREAM_H

#include "msg_world.h"

#define STREAM_CONNS 8u
#define STREAM_TAKE  32u

struct stream {
	const struct world *w;
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn[STREAM_CONNS];
	unsigned conns;
	uint32_t pending, max_request, max_value;
	uint32_t repeat_us;	 /* of datagrams; 0: as ever */
	unsigned refused_one_in; /* 0: none */
	uint64_t n;		 /* requests in all */
	uint64_t rng;
	const uint8_t *data;
	/* as it goes on */
	struct want *want; /* of each, by its id */
	uint64_t asked, taken, asked_on[STREAM_CONNS], taken_on[STREAM_CONNS];
	uint8_t *room;
};

static inline uint32_t stream_draw(struct stream *s, uint32_t most)
{
	const uint32_t any = unit_next(&s->rng);

	return any % 8 == 0 ? most : any / 8 % (most + 1);
}

static inline void stream_want(struct stream *s, struct want *want, unsigned conn)
{
	*want = (struct want){.seed = unit_next(&s->rng),
			      .len = stream_draw(s, s->max_request),
			      .value_len = stream_draw(s, s->max_value),
			      .conn = conn,
			      .number = s->asked_on[conn]++};
	if (s->w->protocol == GN_MSG_READ) {
		want->offset = unit_next(&s->rng) % (s->w->data_bytes - want->value_len + 1);
	} else if (s->refused_one_in && unit_next(&s->rng) % s->refused_one_in == 0) {
		want->len = (uint32_t)sizeof(struct ask);
		want->value_len = REFUSE;
		want->status = GN_MSG_REFUSED;
	}
}

/* Fills a connection's window, and then there is room for none. */
static inline int stream_ask(struct stream *s, unsigned c)
{
	const struct want more = {.len = 0};

	while (gn_msg_pending(s->conn[c]) < s->pending && s->asked < s->n) {
		stream_want(s, &s->want[s->asked], c);
		EXPECT(begin(s->w, s->conn[c], &s->want[s->asked], s->asked, s->room) == 0);
		s->asked++;
	}
	if (gn_msg_pending(s->conn[c]) == s->pending)
		EXPECT(begin(s->w, s->conn[c], &more, 0, s->room) == -EAGAIN);
	return 0;
}

static inline int stream_take(struct stream *s)
{
	struct gn_msg_result result[STREAM_TAKE];
	const unsigned most = 1 + unit_next(&s->rng) % STREAM_TAKE;
	const int n = gn_msg_take(s->requester, result, most, gn_deadline_us(UNIT_PATIENCE_US));

	EXPECT(n > 0 && (unsigned)n <= most);
	for (int i = 0; i < n; i++) {
		struct want *want;

		EXPECT(result[i].id < s->asked);
		want = &s->want[result[i].id];
		EXPECT(!want->taken && result[i].conn == s->conn[want->conn]);
		EXPECT(s->w->protocol == GN_MSG_UD || want->number == s->taken_on[want->conn]);
		EXPECT(check(s->w, &result[i], want, s->data) == 0);
		want->taken = true;
		s->taken_on[want->conn]++;
		s->taken++;
	}
	return 0;
}

static inline int stream_run(struct stream *s)
{
	struct gn_msg_result result;

	s->want = gn_alloc(s->n * sizeof(*s->want), 0);
	s->room = gn_alloc(s->max_request + sizeof(struct ask), 0);
	EXPECT(s->want && s->room);
	while (s->taken < s->n) {
		const unsigned first = unit_next(&s->rng) % s->conns;

		for (unsigned i = 0; i < s->conns; i++)
			EXPECT(stream_ask(s, (first + i) % s->conns) == 0);
		EXPECT(stream_take(s) == 0);
	}
	EXPECT(gn_msg_take(s->requester, &result, 1, GN_NO_WAIT) == 0);
	gn_free(s->room);
	gn_free(s->want);
	return 0;
}

/* A requester with some connections, and the stream over them. */
static inline int stream_begin(struct stream *s, const struct world *w, struct gn_fabric *fabric)
{
	struct gn_msg_requester_opts opts = requester_opts(w);

	s->w = w;
	opts.pending = s->pending;
	opts.request_bytes = s->max_request;
	opts.value_bytes = s->max_value;
	if (s->repeat_us)
		opts.repeat_us = s->repeat_us;
	EXPECT(gn_msg_requester_create(fabric, &opts, &s->requester) == 0);
	for (unsigned i = 0; i < s->conns; i++) {
		const char *why = NULL;
		const int rc = gn_msg_conn_open(s->requester, w->addr, &why, &s->conn[i]);

		if (rc)
			print_error("connection %u with %u pending: %s %s\n", i, s->pending,
				    gn_strerror(rc), why ? why : "");
		EXPECT(rc == 0);
		EXPECT(gn_msg_data_bytes(s->conn[i]) == readable(w));
	}
	return 0;
}

#endif
