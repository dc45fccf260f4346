/* SPDX-License-Identifier: MIT */
/* Requesters and responders that connect and disconnect; refusals, losses and timeouts. */
#include "msg/wire.h"
#include "msg_stream.h"

#define GONE_NS (unit_slow() ? 5000000000u : 1000000000u) /* until a disconnect is detected */

/* For what complains rightly. */
static void be_silent(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg, (void)level, (void)line;
}

/* ---- words that cannot be ---- */

static int opts_of_requesters(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester = NULL;

	(void)client;
	opts.protocol = GN_MSG_PROTOCOLS;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == -EINVAL);
	opts = requester_opts(w);
	opts.pending = GN_MSG_PENDING_MAX + 1;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == -EINVAL);
	opts = requester_opts(w);
	opts.max_conns = GN_MSG_CONNS_MAX + 1;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == -EINVAL);
	opts = requester_opts(w);
	opts.flags = 1u << 31;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == -EINVAL);
	if (w->protocol != GN_MSG_UD && w->protocol != GN_MSG_READ) {
		opts = requester_opts(w);
		opts.request_bytes = GN_MSG_BYTES_MAX + 1;
		EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == -EMSGSIZE);
		opts = requester_opts(w);
		opts.value_bytes = GN_MSG_BYTES_MAX + 1;
		EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == -EMSGSIZE);
	}
	EXPECT(requester == NULL);
	gn_msg_requester_destroy(NULL);
	return 0;
}

static int opts_of_responders(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	static const struct gn_msg_responder_opts bad[] = {
		{.max_conns = GN_MSG_CONNS_MAX + 1},
		{.max_pending = GN_MSG_PENDING_MAX + 1},
		{.max_request = GN_MSG_BYTES_MAX + 1},
		{.max_value = GN_MSG_BYTES_MAX + 1},
		{.flags = 1u << 31},
		{.listener_flags = 1u << 31},
	};
	struct gn_msg_responder *responder = NULL;
	struct gn_mem *mem;
	char addr[96];

	(void)client;
	snprintf(addr, sizeof(addr), "%s", w->simulated ? "sim:n1:7001" : w->addr);
	if (!w->simulated && !given_addr())
		snprintf(addr, sizeof(addr), "%s-more", w->addr);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct gn_msg_responder_opts opts = bad[i];

		opts.size = sizeof(opts);
		opts.answer = answer;
		opts.arg = w;
		EXPECT(gn_msg_responder_create(fabric, addr, &opts, &responder) == -EINVAL);
	}
	/* Memory without remote rights. */
	EXPECT(gn_mem_alloc(fabric, GN_PAGE, 0, &mem) == 0);
	EXPECT(gn_msg_responder_create(
		       fabric, addr,
		       &(struct gn_msg_responder_opts){.size = sizeof(struct gn_msg_responder_opts),
						       .data = mem},
		       &responder) < 0);
	EXPECT(gn_mem_free(mem) == 0);
	EXPECT(gn_msg_responder_create(fabric, addr, NULL, &responder) == -EINVAL);
	EXPECT(gn_msg_responder_create(fabric, addr,
				       &(struct gn_msg_responder_opts){
					       .size = sizeof(struct gn_msg_responder_opts)},
				       &responder) == -EINVAL);
	if (!w->simulated)
		EXPECT(gn_msg_responder_create(fabric, w->addr,
					       &(struct gn_msg_responder_opts){
						       .size = sizeof(struct gn_msg_responder_opts),
						       .answer = answer},
					       &responder) == -EADDRINUSE);
	EXPECT(responder == NULL);
	gn_msg_responder_destroy(NULL);
	return 0;
}

static void test_opts(void **state)
{
	struct world w = {.program = opts_of_requesters, .clients = 1};

	(void)state;
	run_protocols(&w, EVERYWHERE, ALL);
	w.program = opts_of_responders;
	gn_log_to(be_silent, NULL);
	run_where(&w, EVERYWHERE);
	gn_log_to(NULL, NULL);
}

/* ---- what cannot be asked ---- */

static int askings(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn, *second = NULL, *third = NULL;
	uint8_t *data = data_of(w);
	static uint8_t bytes[256];

	(void)client;
	opts.pending = 2;
	opts.request_bytes = 100;
	opts.value_bytes = 200;
	opts.max_conns = 2;
	EXPECT(data && gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	EXPECT(gn_msg_data_bytes(conn) == readable(w));
	if (w->protocol == GN_MSG_READ) {
		EXPECT(gn_msg_ask(conn, bytes, 1, 1) == -EINVAL);
		EXPECT(gn_msg_read(conn, 0, 201, 1) == -EMSGSIZE);
		EXPECT(gn_msg_read(conn, MSG_DATA_BYTES, 1, 1) == -ERANGE);
		EXPECT(gn_msg_read(conn, MSG_DATA_BYTES - 99, 100, 1) == -ERANGE);
		EXPECT(gn_msg_read(conn, UINT64_MAX, 2, 1) == -ERANGE);
		EXPECT(gn_msg_read(conn, UINT64_MAX - 99, 100, 1) == -ERANGE);
	} else {
		EXPECT(gn_msg_read(conn, 0, 1, 1) == -EINVAL);
		EXPECT(gn_msg_ask(conn, bytes, 101, 1) == -EMSGSIZE);
	}
	EXPECT(gn_msg_pending(conn) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &second) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &third) == -ENOSPC && !third);
	gn_msg_conn_close(second);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &second) == 0);
	for (unsigned i = 0; i < 5; i++) {
		EXPECT(echo(w, requester, conn, 100, i, data) == 0);
		EXPECT(echo(w, requester, second, 8 + i, i, data) == 0);
	}
	gn_msg_requester_destroy(requester);
	gn_free(data);
	return 0;
}

/* ---- refusals ---- */

static int refused(struct world *w, struct gn_fabric *fabric, struct gn_msg_requester_opts opts)
{
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn = NULL;
	const char *why = NULL;

	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, &why, &conn) == -ECONNREFUSED);
	EXPECT(!conn && why && *why);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == -ECONNREFUSED);
	gn_msg_requester_destroy(requester);
	return 0;
}

static int limits(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester[3];
	struct gn_msg_conn *conn[3] = {NULL};
	const char *why = NULL;

	(void)client;
	opts.pending = 4;
	opts.request_bytes = 64;
	opts.value_bytes = 128;
	for (unsigned i = 0; i < 3 && w->protocol != GN_MSG_READ; i++) {
		struct gn_msg_requester_opts more = opts;

		*(uint32_t *[]){&more.pending, &more.request_bytes, &more.value_bytes}[i] += 1;
		EXPECT(refused(w, fabric, more) == 0);
	}
	for (unsigned i = 0; i < 3; i++)
		EXPECT(gn_msg_requester_create(fabric, &opts, &requester[i]) == 0);
	EXPECT(gn_msg_conn_open(requester[0], w->addr, &why, &conn[0]) == 0);
	EXPECT(gn_msg_conn_open(requester[1], w->addr, &why, &conn[1]) == 0);
	EXPECT(gn_msg_conn_open(requester[2], w->addr, &why, &conn[2]) == -ECONNREFUSED);
	EXPECT(!conn[2] && why && *why);
	world_await(w, &w->conns, 2);
	gn_msg_conn_close(conn[0]);
	world_await(w, &w->conns, 1);
	EXPECT(gn_msg_conn_open(requester[2], w->addr, &why, &conn[2]) == 0);
	for (unsigned i = 0; i < 3; i++)
		gn_msg_requester_destroy(requester[i]);
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester[0]) == 0);
	EXPECT(gn_msg_conn_open(requester[0], "nosuch:thing", &why, &conn[0]) == -EINVAL);
	EXPECT(gn_msg_conn_open(requester[0],
				w->simulated ? "sim:n0:7999" :
				given_addr() ? "verbs:10.77.0.1:7999" :
					       "shm:test-msg-nobody",
				&why, &conn[0]) == -ECONNREFUSED);
	gn_msg_requester_destroy(requester[0]);
	return 0;
}

static void test_limits(void **state)
{
	struct world w = {
		.program = limits,
		.clients = 1,
		.opts = {.max_conns = 2, .max_pending = 4, .max_request = 64, .max_value = 128},
		.data_bytes = GN_PAGE};

	(void)state;
	gn_log_to(be_silent, NULL); /* of what is no address */
	run_protocols(&w, EVERYWHERE, ALL);
	gn_log_to(NULL, NULL);
}

/* ---- nothing to ask, nothing to read ---- */

static int one_sided(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	const bool reads = w->protocol == GN_MSG_READ;
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;

	(void)client;
	if (reads == !w->data_bytes)
		return refused(w, fabric, opts);
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	EXPECT(gn_msg_data_bytes(conn) == readable(w));
	EXPECT(reads || gn_msg_read(conn, 0, 0, 0) == -EINVAL);
	gn_msg_conn_close(conn);
	gn_msg_requester_destroy(requester);
	return 0;
}

static void test_one_sided(void **state)
{
	struct world w = {.program = one_sided, .clients = 1};

	(void)state;
	run_protocols(&w, EVERYWHERE, ALL);
	w.data_bytes = GN_PAGE;
	w.mute = true;
	run_protocols(&w, EVERYWHERE, ALL);
}

/* ---- waiting ---- */

static int waiting(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_result result;
	struct gn_msg_conn *conn;
	uint64_t until_ns;

	(void)client;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_take(requester, &result, 1, GN_NO_WAIT) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	EXPECT(gn_msg_take(requester, &result, 1, GN_NO_WAIT) == 0);
	/* Nothing is in flight, so there is nothing to wait for. */
	EXPECT(gn_msg_take(requester, &result, 1, GN_FOREVER) == 0);
	/* A flushed request is executed, though its answer is not taken. */
	EXPECT(gn_msg_ask(conn, "1234567", 7, 5) == 0);
	EXPECT(gn_msg_flush(requester) == 0);
	world_await(w, &w->executed, 1);
	EXPECT(gn_msg_take(requester, &result, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
	EXPECT(result.id == 5 && result.len == 7 && !memcmp(result.value, "1234567", 7));
	/* And one waits for a responder that does nothing for a while. */
	world_still(w);
	EXPECT(gn_msg_ask(conn, "abc", 3, 6) == 0);
	until_ns = gn_deadline_us(3000);
	EXPECT(gn_msg_take(requester, &result, 1, until_ns) == 0);
	EXPECT(gn_now_ns() >= until_ns && gn_msg_pending(conn) == 1);
	world_still(w);
	EXPECT(gn_msg_take(requester, &result, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
	EXPECT(result.id == 6 && result.status == GN_MSG_OK && !memcmp(result.value, "abc", 3));
	EXPECT(LOAD(w->executed) == 2);
	gn_msg_requester_destroy(requester);
	return 0;
}

/* ---- a responder that disconnects ---- */

/* All requests in flight end with one status, each once, in time; or were answered before. */
static int all_end(struct gn_msg_requester *requester, uint64_t n, enum gn_msg_status as,
		   uint64_t *ended)
{
	const uint64_t until_ns = gn_now_ns() + GONE_NS;
	struct gn_msg_result result[16];

	for (uint64_t got = 0; got < n;) {
		const int k = gn_msg_take(requester, result, 16, until_ns);

		EXPECT(k > 0);
		for (int i = 0; i < k; i++) {
			EXPECT(result[i].status == GN_MSG_OK || result[i].status == as);
			*ended += result[i].status == as;
			EXPECT(result[i].conn);
		}
		got += (uint64_t)k;
	}
	EXPECT(gn_msg_take(requester, result, 1, GN_NO_WAIT) == 0);
	return 0;
}

static int leaving(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct stream s = {.conns = 2, .pending = 8, .max_request = 40, .max_value = 300, .n = 100};
	uint8_t *data = data_of(w), room[48];
	struct gn_msg_conn *conn;
	uint64_t ended = 0;
	int rc = 0;

	(void)client;
	s.data = data;
	EXPECT(data && stream_begin(&s, w, fabric) == 0);
	EXPECT(stream_run(&s) == 0);
	world_still(w);
	for (unsigned i = 0; i < 16; i++) {
		const struct want want = {.seed = i, .len = 16, .value_len = 100};

		EXPECT(begin(w, s.conn[i % 2], &want, i, room) == 0);
	}
	EXPECT(gn_msg_flush(s.requester) == 0);
	world_down(w);
	EXPECT(all_end(s.requester, 16, GN_MSG_GONE, &ended) == 0);
	EXPECT(w->protocol == GN_MSG_READ || ended == 16);
	EXPECT(gn_msg_pending(s.conn[0]) == 0 && gn_msg_pending(s.conn[1]) == 0);
	/*
	 * An idle requester detects the disconnect with its next request, or at the latest by a
	 * result.
	 */
	for (unsigned i = 0; i < 2; i++) {
		const struct want want = {.len = 16, .value_len = 100};

		rc = begin(w, s.conn[i], &want, i, room);
		if (!rc)
			EXPECT(all_end(s.requester, 1, GN_MSG_GONE, &ended) == 0);
		else
			EXPECT(rc == -ENOTCONN);
		EXPECT(begin(w, s.conn[i], &want, i, room) == -ENOTCONN);
	}
	EXPECT(gn_msg_conn_open(s.requester, w->addr, NULL, &conn) == -ECONNREFUSED);
	gn_msg_conn_close(s.conn[0]);
	gn_msg_conn_close(s.conn[1]);
	/* Responder and requester are back. */
	STORE(w->still, 0);
	world_up(w);
	for (unsigned i = 0; i < 2; i++)
		EXPECT(gn_msg_conn_open(s.requester, w->addr, NULL, &s.conn[i]) == 0);
	s.n += 100;
	EXPECT(stream_run(&s) == 0);
	gn_msg_requester_destroy(s.requester);
	gn_free(data);
	return 0;
}

/* Clients send requests while the responder restarts; none hangs, and all reconnect. */
static int coming_and_going(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct stream s = {.conns = 1, .pending = 16, .max_request = 40, .max_value = 300, .n = 50};
	uint8_t *data = data_of(w);
	uint64_t gone = 0, answered = 0;

	s.data = data;
	s.rng = client;
	EXPECT(data && stream_begin(&s, w, fabric) == 0);
	EXPECT(stream_run(&s) == 0);
	__atomic_fetch_add(&w->step, 1, __ATOMIC_ACQ_REL);
	if (!client) {
		world_await(w, &w->step, w->clients);
		world_down(w);
	}
	while (!gone) {
		struct gn_msg_result result[16];
		uint8_t room[48];
		const struct want want = {.seed = 3, .len = 16, .value_len = 100};
		int rc = 0, n;

		while (!rc)
			rc = begin(w, s.conn[0], &want, answered, room);
		EXPECT(rc == -EAGAIN || rc == -ENOTCONN);
		if (!gn_msg_pending(s.conn[0]))
			break;
		n = gn_msg_take(s.requester, result, 16, gn_now_ns() + GONE_NS);
		EXPECT(n > 0);
		for (int i = 0; i < n; i++) {
			EXPECT(result[i].status == GN_MSG_OK || result[i].status == GN_MSG_GONE);
			gone += result[i].status == GN_MSG_GONE;
			answered += result[i].status == GN_MSG_OK;
		}
	}
	EXPECT(all_end(s.requester, gn_msg_pending(s.conn[0]), GN_MSG_GONE, &gone) == 0);
	gn_msg_conn_close(s.conn[0]);
	if (!client)
		world_up(w);
	while (gn_msg_conn_open(s.requester, w->addr, NULL, &s.conn[0]))
		gn_sleep_us(100);
	s.n += 50;
	EXPECT(stream_run(&s) == 0);
	gn_msg_requester_destroy(s.requester);
	gn_free(data);
	return 0;
}

/* ---- a requester that disconnects with requests in flight ---- */

static int going(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	uint8_t *data = data_of(w), room[48];

	EXPECT(data);
	for (unsigned round = 0; round < 6; round++) {
		struct stream s = {
			.conns = 2, .pending = 8, .max_request = 40, .max_value = 300, .n = 40};
		uint64_t lost = 0;

		s.data = data;
		s.rng = client * 100 + round;
		EXPECT(stream_begin(&s, w, fabric) == 0);
		EXPECT(stream_run(&s) == 0);
		for (unsigned i = 0; i < 8 + round; i++) {
			const struct want want = {.seed = i, .len = 16, .value_len = 100};

			EXPECT(begin(w, s.conn[i % 2], &want, i, room) == 0);
		}
		if (round % 2) {
			gn_msg_flush(s.requester);
			gn_msg_conn_close(s.conn[0]);
			/* Its own are forgotten; the other's go on. */
			EXPECT(all_end(s.requester, (8 + round) / 2, GN_MSG_GONE, &lost) == 0);
			EXPECT(lost == 0);
		}
		gn_msg_requester_destroy(s.requester);
	}
	__atomic_fetch_add(&w->step, 1, __ATOMIC_ACQ_REL);
	world_await(w, &w->step, w->clients);
	world_await(w, &w->conns, 0);
	gn_free(data);
	return 0;
}

/* ---- datagrams ---- */

/* Nobody answers, though somebody is there. */
static int losing(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_result result;
	struct gn_msg_stats stats = {.size = sizeof(stats)};
	struct gn_msg_conn *conn;
	uint64_t begun_ns, lost = 0;

	(void)client;
	opts.pending = 4;
	opts.repeat_us = 1000;
	opts.request_timeout_us = 15000;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	world_still(w);
	begun_ns = gn_now_ns();
	for (unsigned i = 0; i < 4; i++)
		EXPECT(gn_msg_ask(conn, "abcd", 4, i) == 0);
	EXPECT(all_end(requester, 4, GN_MSG_LOST, &lost) == 0);
	EXPECT(lost == 4);
	EXPECT(gn_now_ns() - begun_ns >= 15000000);
	gn_msg_requester_stats(requester, &stats);
	/* After 1, 2 and 4 ms; a thread that does not run for a while misses some. */
	EXPECT(stats.requests == 4 && stats.repeats <= 12 && stats.failed == 4);
	EXPECT(stats.repeats == 12 || !w->simulated);
	EXPECT(stats.wrs == 4 + stats.repeats && stats.answers == 0);
	/* It wakes up: what comes now belongs to nothing, and new ones are answered as they are. */
	world_still(w);
	for (unsigned i = 0; i < 20; i++) {
		EXPECT(gn_msg_ask(conn, &i, 4, i) == 0);
		for (;;) {
			EXPECT(gn_msg_take(requester, &result, 1, gn_now_ns() + GONE_NS) == 1);
			if (result.status == GN_MSG_OK)
				break;
			EXPECT(result.status == GN_MSG_LOST);
			EXPECT(gn_msg_ask(conn, &i, 4, i) == 0);
		}
		EXPECT(result.id == i && result.len == 4 && !memcmp(result.value, &i, 4));
	}
	gn_msg_requester_destroy(requester);
	return 0;
}

/* Half of all datagrams are lost, some come twice, or late; nothing is executed twice. */
static int lossy(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct stream s = {.conns = 3,
			   .pending = 8,
			   .max_request = 40,
			   .max_value = 300,
			   .n = 1000,
			   .rng = client};
	struct gn_msg_stats stats = {.size = sizeof(stats)};

	s.repeat_us = 20;
	EXPECT(stream_begin(&s, w, fabric) == 0);
	EXPECT(stream_run(&s) == 0);
	gn_msg_requester_stats(s.requester, &stats);
	EXPECT(stats.requests == 1000 && stats.answers == 1000 && stats.failed == 0);
	EXPECT(stats.repeats > 100 && stats.wrs == stats.requests + stats.repeats);
	EXPECT(w->executed == 1000);
	gn_msg_requester_destroy(s.requester);
	return 0;
}

static void test_lossy(void **state)
{
	struct world w = {.program = lossy, .clients = 1, .protocol = GN_MSG_UD};

	(void)state;
	for (unsigned paper = 0; paper < 2 && !given_addr() && !THREADS_WATCHED; paper++) {
		w.flags = paper ? GN_MSG_PAPER : 0;
		simulate(&w, "cx3-fdr", 0, unit_seed(),
			 "ud-loss=30%,ud-dup=10%,ud-reorder=10%,ud-delay=5%");
	}
}

/* The datagram qp breaks, again and again: it is reset, and no connection ends for that. */
static int mended(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct stream s = {.conns = 3,
			   .pending = 8,
			   .max_request = 40,
			   .max_value = 300,
			   .n = 0,
			   .rng = client};

	const uint64_t until_ns = gn_deadline_us(40000);
	struct gn_msg_stats stats = {.size = sizeof(stats)};

	s.repeat_us = 20;
	EXPECT(stream_begin(&s, w, fabric) == 0);
	while (gn_now_ns() < until_ns) {
		s.n += 100;
		EXPECT(stream_run(&s) == 0);
	}
	gn_msg_requester_stats(s.requester, &stats);
	EXPECT(stats.resets == 2 && stats.failed == 0);
	EXPECT(w->executed == s.n);
	gn_msg_requester_destroy(s.requester);
	return 0;
}

static void test_mended(void **state)
{
	struct world w = {.program = mended, .clients = 1, .protocol = GN_MSG_UD};

	(void)state;
	for (unsigned caps = 0; caps < 2 && !given_addr() && !THREADS_WATCHED; caps++) {
		simulate(&w, "cx3-fdr", caps ? SIM_CAPS : 0, unit_seed(),
			 "qp-error@3ms:n0,qp-error@3100us:n1,qp-error@14ms:n0,qp-error@25ms:n1");
		assert_int_equal(w.stats.resets, 2);
	}
}

/*
 * The datagram qp breaks with every send, for longer than it is reset: the connection ends. When
 * sends work again, a new connection of the same requester does.
 */
static int given_up(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_stats stats = {.size = sizeof(stats)};
	struct gn_msg_requester *requester;
	struct gn_msg_result result;
	struct gn_msg_conn *conn, *later;

	(void)client;
	opts.repeat_us = 100;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	gn_sleep_us(3000);
	EXPECT(gn_msg_ask(conn, "abcd", 4, 1) == 0);
	EXPECT(gn_msg_take(requester, &result, 1, gn_now_ns() + GONE_NS) == 1);
	EXPECT(result.id == 1 && result.status == GN_MSG_GONE);
	gn_msg_requester_stats(requester, &stats);
	EXPECT(stats.resets == 7 && stats.answers == 0);
	gn_sleep_us(100000);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &later) == 0);
	for (unsigned i = 0; i < 20; i++) {
		EXPECT(gn_msg_ask(later, &i, 4, i) == 0);
		EXPECT(gn_msg_take(requester, &result, 1, gn_now_ns() + GONE_NS) == 1);
		EXPECT(result.status == GN_MSG_OK && !memcmp(result.value, &i, 4));
	}
	gn_msg_requester_stats(requester, &stats);
	EXPECT(stats.answers == 20 && w->executed == 20);
	gn_msg_requester_destroy(requester);
	return 0;
}

static void test_given_up(void **state)
{
	struct world w = {.program = given_up, .clients = 1, .protocol = GN_MSG_UD};

	(void)state;
	if (given_addr() || THREADS_WATCHED)
		return;
	gn_log_to(be_silent, NULL);
	simulate(&w, "cx3-fdr", 0, unit_seed(), "qp-error@2ms+90ms:n1");
	gn_log_to(NULL, NULL);
}

/* ---- during the probe of an idle peer ---- */

/* A requester with fewer than pending requests in flight can always send. */
static int always_room(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_result result[4];
	struct gn_msg_conn *conn;
	uint64_t until_ns;

	(void)client;
	opts.pending = 4;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	for (unsigned round = 0; round < 3; round++) {
		for (until_ns = gn_deadline_us(1500); gn_now_ns() < until_ns;) {
			while (gn_msg_pending(conn) < opts.pending)
				EXPECT(gn_msg_ask(conn, "1234567", 7, 1) == 0);
			EXPECT(gn_msg_take(requester, result, 4, gn_now_ns() + GONE_NS) > 0);
		}
		gn_sleep_us(99000);
	}
	gn_msg_requester_destroy(requester);
	return 0;
}

/* ---- as many connections as there may be ---- */

/*
 * As gannet/msg.h promises: whoever connects after a gn_msg_conn_close() on the same host finds the
 * place free. Across a network the farewell and the next request to connect are on their way at the
 * same time: the place is free when the farewell is there.
 */
static int in_turn(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	const bool one_host = !w->simulated && !given_addr();
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;

	(void)client;
	opts.max_conns = 1;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	for (unsigned i = 0; i < 20; i++) {
		EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
		EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == -ENOSPC);
		if (!one_host)
			world_await(w, &w->conns, 1);
		gn_msg_conn_close(conn);
		if (!one_host)
			world_await(w, &w->conns, 0);
	}
	gn_msg_requester_destroy(requester);
	return 0;
}

/* One by datagrams does not take the room of others. */
static int as_many(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester, *datagrams;
	struct gn_msg_conn *conn;

	(void)client;
	opts.pending = 0;
	opts.protocol = GN_MSG_UD;
	EXPECT(gn_msg_requester_create(fabric, &opts, &datagrams) == 0);
	EXPECT(gn_msg_conn_open(datagrams, w->addr, NULL, &conn) == 0);
	opts.protocol = w->protocol;
	/* A device may hold fewer completions than all of the largest would need. */
	opts.pending = given_addr() ? 64 : 256;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	for (unsigned i = 1; i < 64; i++)
		EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	gn_msg_requester_destroy(datagrams);
	gn_msg_requester_destroy(requester);
	return 0;
}

static void test_full(void **state)
{
	struct world w = {.program = in_turn,
			  .clients = 1,
			  .data_bytes = MSG_DATA_BYTES,
			  .opts = {.max_conns = 1}};

	(void)state;
	run_protocols(&w, EVERYWHERE, ALL);
	w = (struct world){.program = as_many, .clients = 1};
	run_protocols(&w, EVERYWHERE, 1u << GN_MSG_SEND_SEND);
}

/* ---- a requester that takes no answers ---- */

#define UNTAKEN 5u /* one more than a responder sends to a requester with two pending */

static int ask_and_leave(struct gn_qp *qp, struct gn_cq *cq, const struct msg_welcome *welcome)
{
	const enum msg_frame frame = msg_frame_of(false, welcome->checksums);
	const struct gn_remote to = {.key = welcome->request_key};
	uint8_t place[MSG_CACHE_LINE] __attribute__((aligned(8))) = {0};
	const struct gn_sge sge = {place, msg_frame_bytes(frame, 0), 0};
	struct gn_wc wc;

	for (uint32_t i = 0; i < UNTAKEN; i++) {
		struct gn_wr wr;

		msg_frame_put(frame, place, i + 1, 0, 0);
		gn_wr_rdma(&wr, GN_OP_WRITE, 0, &sge, &to, i % 2 * MSG_CACHE_LINE,
			   GN_INLINE | GN_SIGNALED);
		EXPECT(gn_post_send(qp, &wr, NULL) == 0);
		gn_sleep_us(10);
		EXPECT(gn_cq_poll(cq, &wc, 1) == 1 && wc.status == GN_WC_OK);
	}
	return 0;
}

/* The responder's owner gets its turn while answers wait for somebody to take them. */
static int untaken(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	const struct msg_hello hello = {.magic = MSG_MAGIC,
					.version = MSG_VERSION,
					.protocol = GN_MSG_WRITE_SEND,
					.pending = 2,
					.request_bytes = 8,
					.value_bytes = 8};
	const struct gn_conn_opts conn = {
		.size = sizeof(conn), .private_data = &hello, .private_len = sizeof(hello)};
	struct gn_qp_opts opts = {
		.size = sizeof(opts), .type = GN_QP_RC, .max_inline = MSG_CACHE_LINE};
	struct msg_welcome welcome;
	struct gn_event event;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_qp *qp;
	uint64_t since_ns;

	(void)client;
	EXPECT(gn_ctx_create(fabric, &ctx) == 0);
	EXPECT(gn_chan_create(ctx, &opts.chan) == 0);
	EXPECT(gn_cq_create(ctx,
			    &(struct gn_cq_opts){.size = sizeof(struct gn_cq_opts), .depth = 64},
			    &opts.send_cq) == 0);
	opts.recv_cq = opts.send_cq;
	EXPECT(gn_pd_create(ctx, &pd) == 0);
	EXPECT(gn_qp_create(pd, &opts, &qp) == 0);
	EXPECT(gn_connect_wait(qp, w->addr, &conn, &event) == 0);
	memcpy(&welcome, event.private_data, sizeof(welcome));
	EXPECT(ask_and_leave(qp, opts.send_cq, &welcome) == 0);
	since_ns = gn_now_ns();
	world_still(w);
	EXPECT(gn_now_ns() - since_ns < 1000000);
	world_still(w);
	EXPECT(gn_qp_destroy(qp) == 0 && gn_pd_destroy(pd) == 0);
	EXPECT(gn_cq_destroy(opts.send_cq) == 0 && gn_chan_destroy(opts.chan) == 0);
	EXPECT(gn_ctx_destroy(ctx) == 0);
	return 0;
}

static void test_untaken(void **state)
{
	struct world w = {.program = untaken, .clients = 1};

	(void)state;
	run_where(&w, SIMULATED);
}

/* ---- what changes while it is read ---- */

static int changing(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	struct world *w = arg;
	uint64_t *word = gn_mem_addr(w->data);

	(void)request, (void)len, (void)value, (void)max;
	w->executed++;
	for (unsigned i = 0; i < w->data_bytes / 8; i++)
		__atomic_store_n(&word[i], (uint64_t)w->executed << 32 | i, __ATOMIC_RELAXED);
	return 0;
}

/* Whole words, each of its place, and never older than what was seen or answered before. */
static int changes(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *reader, *asker;
	struct gn_msg_conn *reads, *asks;
	struct gn_msg_result result;

	(void)client;
	opts.value_bytes = (uint32_t)w->data_bytes;
	EXPECT(gn_msg_requester_create(fabric, &opts, &reader) == 0);
	EXPECT(gn_msg_conn_open(reader, w->addr, NULL, &reads) == 0);
	opts.protocol = GN_MSG_WRITE_WRITE;
	opts.value_bytes = 64;
	EXPECT(gn_msg_requester_create(fabric, &opts, &asker) == 0);
	EXPECT(gn_msg_conn_open(asker, w->addr, NULL, &asks) == 0);
	for (uint64_t round = 1; round <= 100; round++) {
		const uint64_t *word;

		EXPECT(gn_msg_ask(asks, NULL, 0, round) == 0);
		EXPECT(round % 2 || gn_msg_flush(asker) == 0);
		if (round % 2) {
			EXPECT(gn_msg_take(asker, &result, 1, gn_now_ns() + GONE_NS) == 1);
			EXPECT(result.status == GN_MSG_OK && result.len == 0);
		}
		EXPECT(gn_msg_read(reads, 0, (uint32_t)w->data_bytes, round) == 0);
		EXPECT(gn_msg_take(reader, &result, 1, gn_now_ns() + GONE_NS) == 1);
		EXPECT(result.status == GN_MSG_OK && result.id == round);
		word = result.value;
		for (unsigned i = 0; i < w->data_bytes / 8 && round > 1; i++) {
			EXPECT((uint32_t)word[i] == i && word[i] >> 32 <= round);
			EXPECT(word[i] >> 32 >= (round % 2 ? round : round - 1));
		}
		if (round % 2 == 0)
			EXPECT(gn_msg_take(asker, &result, 1, gn_now_ns() + GONE_NS) == 1);
	}
	gn_msg_requester_destroy(asker);
	gn_msg_requester_destroy(reader);
	return 0;
}

/* With the name of a case, only that one. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_opts),
		MSG_TEST(test_askings, EVERYWHERE, ALL, .program = askings, .clients = 1,
			 .data_bytes = MSG_DATA_BYTES),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_one_sided),
		MSG_TEST(test_waiting, EVERYWHERE, BUT_READ, .program = waiting, .clients = 1),
		MSG_TEST(test_leaving, EVERYWHERE, ALL, .program = leaving, .clients = 1,
			 .data_bytes = MSG_DATA_BYTES),
		MSG_TEST(test_going, EVERYWHERE, ALL, .program = going, .clients = 2,
			 .data_bytes = MSG_DATA_BYTES),
		MSG_TEST(test_coming_and_going, EVERYWHERE, ALL, .program = coming_and_going,
			 .clients = 3, .data_bytes = MSG_DATA_BYTES),
		MSG_TEST(test_losing, EVERYWHERE, 1u << GN_MSG_UD, .program = losing, .clients = 1),
		cmocka_unit_test(test_lossy),
		MSG_TEST(test_changes, EVERYWHERE, 1u << GN_MSG_READ, .program = changes,
			 .clients = 1, .data_bytes = 8192, .opts = {.answer = changing}),
		MSG_TEST(test_always_room, EVERYWHERE, 1u << GN_MSG_UD, .program = always_room,
			 .clients = 1),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_untaken),
		cmocka_unit_test(test_mended),
		cmocka_unit_test(test_given_up),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
