/* SPDX-License-Identifier: MIT */
/*
 * Requests and answers of every size, one at a time and in full windows, in order, over several
 * connections and by several requesters, with every protocol.
 */
#include "msg_stream.h"

#define LARGE GN_MSG_BYTES_MAX

/* ---- names ---- */

static void test_names(void **state)
{
	static const char *const names[] = {"SEND/SEND", "SEND/WRITE", "WRITE/SEND", "WRITE/WRITE",
					    "READ",	 "WRITE_IMM",  "UD"};
	enum gn_msg_protocol protocol;

	(void)state;
	for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++) {
		assert_string_equal(gn_msg_protocol_str(i), names[i]);
		assert_int_equal(gn_msg_protocol_parse(names[i], &protocol), 0);
		assert_int_equal(protocol, i);
	}
	assert_int_equal(gn_msg_protocol_parse("write/Send", &protocol), 0);
	assert_int_equal(protocol, GN_MSG_WRITE_SEND);
	assert_int_equal(gn_msg_protocol_parse("write_imm", &protocol), 0);
	assert_int_equal(protocol, GN_MSG_WRITE_IMM);
	assert_int_equal(gn_msg_protocol_parse("ud", &protocol), 0);
	assert_int_equal(gn_msg_protocol_parse("SEND", &protocol), -EINVAL);
	assert_int_equal(gn_msg_protocol_parse("READ ", &protocol), -EINVAL);
	assert_int_equal(gn_msg_protocol_parse("", &protocol), -EINVAL);
	assert_int_equal(protocol, GN_MSG_UD);
	assert_non_null(gn_msg_protocol_str(GN_MSG_PROTOCOLS));
	for (unsigned i = 0; i < GN_MSG_STATUSES; i++)
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(gn_msg_status_str(i), gn_msg_status_str(j));
	assert_non_null(gn_msg_status_str(GN_MSG_STATUSES));
}

/* ---- sizes ---- */

/* The largest value of a datagram: one more is refused. */
static int ud_most(const struct world *w, struct gn_fabric *fabric, uint32_t *out)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_attr attr = {.size = sizeof(attr)};
	uint32_t low = 1, high;

	EXPECT(gn_fabric_query(fabric, &attr) == 0);
	high = attr.ud_mtu + 1;
	while (high - low > 1) {
		int rc;

		opts.value_bytes = low + (high - low) / 2;
		rc = gn_msg_requester_create(fabric, &opts, &requester);
		EXPECT(rc == 0 || rc == -EMSGSIZE);
		if (rc)
			high = opts.value_bytes;
		else
			low = opts.value_bytes;
		if (!rc)
			gn_msg_requester_destroy(requester);
	}
	EXPECT(low + 64 >= attr.ud_mtu && low < attr.ud_mtu);
	opts.value_bytes = 1;
	opts.request_bytes = attr.ud_mtu;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == -EMSGSIZE);
	*out = low;
	return 0;
}

static int sizes(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	static const uint32_t lens[] = {0,  1,	7,   8,	   9,	 36,	63,
					64, 65, 365, 1000, 4096, 65536, LARGE};
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;
	uint8_t *data = data_of(w);
	uint32_t most = LARGE;

	(void)client;
	if (w->protocol == GN_MSG_UD)
		EXPECT(ud_most(w, fabric, &most) == 0);
	opts.pending = 2;
	opts.request_bytes = opts.value_bytes = most;
	EXPECT(data && gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	for (unsigned i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		const uint32_t len = lens[i] < most ? lens[i] : most;
		const uint32_t other = lens[(i * 5 + 3) % 12];
		/* A long request with a short answer, and the other way round. */
		const struct want up = {.seed = i, .len = len, .value_len = 3};
		const struct want down = {.seed = i,
					  .len = 8 + other % 40,
					  .value_len = len,
					  .offset = w->data_bytes - len};

		EXPECT(echo(w, requester, conn, len, i + 100, data) == 0);
		EXPECT(one(w, requester, conn, &up, data) == 0);
		EXPECT(one(w, requester, conn, &down, data) == 0);
	}
	gn_msg_conn_close(conn);
	gn_msg_requester_destroy(requester);
	gn_free(data);
	return 0;
}

/*
 * Threads on a busy machine wait for each other to run, round trip by round trip; and a card in
 * software on a machine in software takes its time.
 */
static uint64_t enough(const struct world *w, uint32_t pending)
{
	if (given_addr())
		return pending > 16 ? 600 : 30 * pending;
	return w->simulated || pending > 16 ? 2000 : 100 * pending;
}

/* ---- windows ---- */

static int windows(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	static const uint32_t pending[] = {1, 2, 16, 256};
	uint8_t *data = data_of(w);

	EXPECT(data);
	for (unsigned i = 0; i < 4; i++) {
		struct stream s = {.conns = 1,
				   .pending = pending[i],
				   .max_request = 100,
				   .max_value = i == 1 ? 4000 : 400,
				   .n = enough(w, pending[i]),
				   .rng = client + i,
				   .data = data};

		if (w->protocol == GN_MSG_UD && i == 1)
			s.max_value = 2000;
		EXPECT(stream_begin(&s, w, fabric) == 0);
		EXPECT(stream_run(&s) == 0);
		gn_msg_requester_destroy(s.requester);
	}
	gn_free(data);
	return 0;
}

/* ---- many ---- */

static int many(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	uint8_t *data = data_of(w);
	struct stream s = {.conns = 3,
			   .pending = 1 + 6 * client,
			   .max_request = 60,
			   .max_value = 500 + 100 * client,
			   .refused_one_in = 20,
			   .n = enough(w, 1 + 6 * client),
			   .rng = client,
			   .data = data};

	EXPECT(data && stream_begin(&s, w, fabric) == 0);
	EXPECT(stream_run(&s) == 0);
	__atomic_fetch_add(&w->step, 1, __ATOMIC_ACQ_REL);
	world_await_least(w, &w->step, w->clients);
	world_await(w, &w->conns, s.conns * w->clients);
	__atomic_fetch_add(&w->step, 1, __ATOMIC_ACQ_REL); /* all have seen all */
	world_await(w, &w->step, 2 * w->clients);
	for (unsigned i = 0; i < s.conns; i++)
		gn_msg_conn_close(s.conn[i]);
	world_await(w, &w->conns, 0);
	gn_msg_requester_destroy(s.requester);
	gn_free(data);
	return 0;
}

/* ---- requesters of all protocols at one responder ---- */

static int mixed(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct stream s[GN_MSG_PROTOCOLS] = {0};
	struct world as[GN_MSG_PROTOCOLS];
	uint8_t *data = data_of(w);

	EXPECT(data);
	for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++) {
		as[i] = (struct world){.addr = w->addr, /* but for the protocol */
				       .simulated = w->simulated,
				       .flags = w->flags,
				       .data_bytes = w->data_bytes,
				       .protocol = (enum gn_msg_protocol)i};
		s[i] = (struct stream){.conns = 1 + client % 2,
				       .pending = 1 + i * 3,
				       .max_request = 40 + 8 * i,
				       .max_value = 300,
				       .n = given_addr() ? 50 : 300,
				       .rng = i,
				       .data = data};
		EXPECT(stream_begin(&s[i], &as[i], fabric) == 0);
	}
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++) {
			EXPECT(stream_run(&s[i]) == 0);
			s[i].n += given_addr() ? 50 : 300;
		}
	for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++)
		gn_msg_requester_destroy(s[i].requester);
	gn_free(data);
	return 0;
}

static void test_mixed(void **state)
{
	struct world w = {.program = mixed, .clients = 2, .data_bytes = MSG_DATA_BYTES};

	(void)state;
	for (unsigned paper = 0; paper < 2; paper++) {
		w.flags = paper ? GN_MSG_PAPER : 0;
		run_where(&w, EVERYWHERE);
	}
}

/* ---- what lies in a buffer ---- */

#define BUFFERS 8u /* for a connection with one request pending, at most */

/* Which answer each buffer was used for last; a buffer that is new holds zeros. */
static struct {
	const void *value;
	uint64_t last;
} buffers[BUFFERS];

static uint64_t *last_in(const void *value)
{
	unsigned i = 0;

	while (i < BUFFERS && buffers[i].value && buffers[i].value != value)
		i++;
	if (i == BUFFERS)
		return NULL;
	buffers[i].value = value;
	return &buffers[i].last;
}

static int remembering(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	struct world *w = arg;
	uint64_t before, *last = last_in(value);

	(void)request, (void)len;
	if (max < sizeof(before))
		return -EMSGSIZE;
	memcpy(&before, value, sizeof(before));
	if (!last || before != *last)
		__atomic_fetch_add(&w->wrong, 1, __ATOMIC_RELAXED);
	w->executed++;
	before = w->executed;
	if (last)
		*last = before;
	memcpy(value, &before, sizeof(before));
	return (int)max;
}

static int kept(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_result result;
	struct gn_msg_conn *conn;

	(void)client;
	memset(buffers, 0, sizeof(buffers));
	opts.pending = 1;
	opts.value_bytes = 100;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, NULL, &conn) == 0);
	for (uint64_t i = 1; i < 20; i++) {
		uint64_t got;

		EXPECT(gn_msg_ask(conn, "x", 1, i) == 0);
		EXPECT(gn_msg_take(requester, &result, 1, gn_deadline_us(UNIT_PATIENCE_US)) == 1);
		EXPECT(result.status == GN_MSG_OK && result.len == 100);
		memcpy(&got, result.value, sizeof(got));
		EXPECT(got == i);
	}
	gn_msg_requester_destroy(requester);
	return 0;
}

/* With the name of a case, only that one. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		MSG_TEST(test_sizes, EVERYWHERE, ALL, .program = sizes, .clients = 1,
			 .data_bytes = LARGE,
			 .opts = {.max_request = LARGE, .max_value = LARGE, .max_pending = 2}),
		MSG_TEST(test_windows, EVERYWHERE, ALL, .program = windows, .clients = 1,
			 .data_bytes = MSG_DATA_BYTES),
		MSG_TEST(test_many, EVERYWHERE, ALL, .program = many, .clients = 3,
			 .data_bytes = MSG_DATA_BYTES),
		cmocka_unit_test(test_mixed),
		MSG_TEST(test_kept, EVERYWHERE, BUT_READ, .program = kept, .clients = 1,
			 .opts = {.answer = remembering}),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
