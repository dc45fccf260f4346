/* SPDX-License-Identifier: MIT */
/*
 * What a client adapts and reports: fetch or reply per method, by both rules, and the bytes of a
 * fetch; and the metrics of client and server, as JSON and for Prometheus.
 */
#include "rpc_world.h"

#define TIMED_WITHIN 13u /* messages of which at least one is timed */

static int call_slow(struct gn_rpc_client *client, uint32_t us)
{
	unsigned status = GN_RPC_FAILED;

	EXPECT(gn_rpc_call(client, SLOW, &us, sizeof(us), NULL, 0, NULL, GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_OK);
	return 0;
}

static bool replies(const struct gn_rpc_client *client, unsigned method)
{
	struct gn_rpc_choice choice = {.size = sizeof(choice), .mode = GN_RPC_MODES};

	gn_rpc_client_choice(client, method, &choice);
	return choice.mode == GN_RPC_REPLY;
}

static int slow_calls(struct gn_rpc_client *client, uint32_t us, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		EXPECT(call_slow(client, us) == 0);
	return 0;
}

/* ---- the server's time decides ---- */

/* On a shared machine a call may stall for some ms, so Tx is far above that. */
static int by_time(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct gn_rpc_choice choice = {.size = sizeof(choice)};

	opts.switch_us = w->simulated ? 100 : 20000;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	EXPECT(slow_calls(client, 0, 10) == 0);
	EXPECT(call_echo(client, ECHO, 10, 1) == 0);
	EXPECT(!replies(client, SLOW));
	for (unsigned i = 0; i < 20; i++) { /* every other call is not enough */
		EXPECT(slow_calls(client, i % 2 ? 2 * opts.switch_us : 0, 1) == 0);
		EXPECT(!replies(client, SLOW));
	}
	/* Not every call is timed while they seem short, so it may take a few. */
	EXPECT(slow_calls(client, 2 * opts.switch_us, TIMED_WITHIN + 1) == 0);
	EXPECT(replies(client, SLOW) && !replies(client, ECHO));
	EXPECT(slow_calls(client, opts.switch_us * 9 / 10, 3) == 0);
	EXPECT(replies(client, SLOW)); /* between 0.8 Tx and Tx nothing changes */
	EXPECT(slow_calls(client, 0, 1) == 0);
	EXPECT(replies(client, SLOW));
	EXPECT(slow_calls(client, 0, 1) == 0);
	EXPECT(!replies(client, SLOW));
	EXPECT(gn_rpc_client_counters(client, &count) == 0);
	EXPECT(count.switches == 2);
	EXPECT(gn_rpc_client_choice(client, SLOW, &choice) == 0);
	EXPECT(choice.switch_us == opts.switch_us && choice.retries && choice.batch == 1);
	EXPECT(gn_rpc_client_choice(client, GN_RPC_BUILTIN_END, &choice) == -EINVAL);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- a slow method beside a fast one ---- */

#define SEEN_WITHIN 4u /* calls of a slow method before it is known to be slow */

/* How many fetches of a slow call and a fast one behind it fail, in so many rounds. */
static int slow_rounds(struct gn_rpc_client *client, uint32_t us, unsigned rounds, uint64_t *vain)
{
	struct gn_rpc_counters before = {.size = sizeof(before)}, after = {.size = sizeof(after)};

	EXPECT(gn_rpc_client_counters(client, &before) == 0);
	for (unsigned i = 0; i < rounds; i++) {
		EXPECT(call_slow(client, us) == 0);
		EXPECT(call_echo(client, ECHO, 10, i) == 0);
	}
	EXPECT(gn_rpc_client_counters(client, &after) == 0);
	*vain = after.failed_fetches - before.failed_fetches;
	return 0;
}

static int slow_beside_fast(struct world *w, struct gn_fabric *fabric)
{
	static const uint32_t us[] = {200, 20000, 120000, 2000000};

	for (unsigned i = 0; i < (w->simulated ? 4 : 3); i++) {
		struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
		struct gn_rpc_client *client;
		uint64_t vain, fails_later;

		opts.switch_us = 100;
		EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
		EXPECT(slow_rounds(client, us[i], SEEN_WITHIN, &vain) == 0);
		EXPECT(replies(client, SLOW));
		EXPECT(slow_rounds(client, us[i], SEEN_WITHIN, &fails_later) == 0);
		EXPECT(replies(client, SLOW));
		/* On a real machine another thread may slow anything down. */
		EXPECT(!w->simulated || (!replies(client, ECHO) && fails_later < 64 * SEEN_WITHIN));
		EXPECT(gn_rpc_client_close(client) == 0);
	}
	return 0;
}

/* In one message: the fast calls do not wait for the slow one, once it is known to be slow. */
static int slow_in_batch(struct world *w, struct gn_fabric *fabric)
{
	const uint32_t us = 5000;
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	struct gn_rpc_client *client;

	opts.batch.entries = 3;
	opts.switch_us = 1000;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned round = 0; round < 2 * SEEN_WITHIN; round++) {
		struct gn_rpc_op ops[3] = {{.method = ECHO},
					   {.method = SLOW, .request = &us, .request_len = 4},
					   {.method = ECHO}};

		EXPECT(gn_rpc_call_all(client, ops, 3) == 0);
		for (unsigned i = 0; i < 3; i++)
			EXPECT(ops[i].status == GN_RPC_OK);
	}
	EXPECT(replies(client, SLOW));
	EXPECT(!w->simulated || !replies(client, ECHO));
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static void test_slow_beside_fast(void **state)
{
	(void)state;
	run_everywhere(slow_beside_fast, NULL, 1);
	run_everywhere(slow_in_batch, NULL, 1);
}

/* ---- failed fetches decide, as in the papers ---- */

static int by_fails(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	unsigned n = 0;

	opts.flags = GN_RPC_CLIENT_PAPER;
	opts.retries = w->simulated ? 5 : 1000;
	opts.switch_us = w->simulated ? 100 : 20000;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	/* Fetches fail for as long as the handler takes. */
	EXPECT(slow_calls(client, 2 * opts.switch_us, TIMED_WITHIN) == 0);
	for (; n < 10 && !replies(client, SLOW); n++)
		EXPECT(slow_calls(client, 2 * opts.switch_us, 1) == 0);
	EXPECT(replies(client, SLOW));
	EXPECT(gn_rpc_client_counters(client, &count) == 0);
	EXPECT(count.failed_fetches >= opts.retries * 2);
	EXPECT(slow_calls(client, 2 * opts.switch_us, 2) == 0);
	EXPECT(replies(client, SLOW));
	for (n = 0; n < 100 && replies(client, SLOW); n++)
		EXPECT(slow_calls(client, 0, 1) == 0);
	EXPECT(n >= 2 && n < 100);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static void test_by_fails(void **state)
{
	const struct gn_rpc_server_opts paper = {
		.size = sizeof(paper), .flags = GN_RPC_SERVER_PAPER, .threads = 2};

	(void)state;
	run_everywhere(by_fails, NULL, 1);
	run_everywhere(by_fails, &paper, 1);
}

/* ---- bytes of a fetch ---- */

static int fetch_size(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct gn_rpc_client *client;
	struct gn_rpc_choice choice = {.size = sizeof(choice)};
	struct gn_rpc_counters before = {.size = sizeof(before)}, after = {.size = sizeof(after)};

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < 64 * TIMED_WITHIN; i++)
		EXPECT(call_echo(client, ECHO, 2000, i) == 0);
	EXPECT(gn_rpc_client_choice(client, ECHO, &choice) == 0 && choice.fetch_bytes >= 2000);
	EXPECT(gn_rpc_client_counters(client, &before) == 0);
	for (unsigned i = 0; i < 20; i++)
		EXPECT(call_echo(client, ECHO, 2000, i) == 0);
	EXPECT(gn_rpc_client_counters(client, &after) == 0);
	/* The first READ brings the whole result; where READs cost almost nothing it only peeks. */
	EXPECT(!w->simulated || after.second_reads == before.second_reads);
	for (unsigned i = 0; i < 64 * TIMED_WITHIN; i++)
		EXPECT(call_echo(client, ECHO, 8, i) == 0);
	EXPECT(gn_rpc_client_choice(client, ECHO, &choice) == 0 && choice.fetch_bytes < 500);
	EXPECT(gn_rpc_client_close(client) == 0);
	opts.fetch_bytes = 64;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < 100; i++)
		EXPECT(call_echo(client, ECHO, i % 2 ? 64 : 65, i) == 0);
	EXPECT(gn_rpc_client_choice(client, ECHO, &choice) == 0 && choice.fetch_bytes == 64);
	EXPECT(gn_rpc_client_counters(client, &after) == 0);
	EXPECT(after.second_reads >= 1);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

/* ---- metrics ---- */

/* A JSON parser that only checks the syntax. */
static const char *skip_value(const char *p);

static const char *skip_space(const char *p)
{
	return p + strspn(p, " \t\n");
}

static const char *skip_string(const char *p)
{
	if (*p++ != '"')
		return NULL;
	p += strcspn(p, "\"\\\n");
	return *p == '"' ? p + 1 : NULL;
}

static const char *skip_list(const char *p, bool names, char close)
{
	p = skip_space(p + 1);
	if (*p == close)
		return p + 1;
	for (;;) {
		p = skip_space(p);
		if (names) {
			p = skip_string(p);
			p = p ? skip_space(p) : NULL;
			if (!p || *p++ != ':')
				return NULL;
		}
		p = skip_value(skip_space(p));
		p = p ? skip_space(p) : NULL;
		if (!p || (*p != ',' && *p != close))
			return NULL;
		if (*p++ == close)
			return p;
	}
}

static const char *skip_value(const char *p)
{
	char *end;

	if (*p == '{' || *p == '[')
		return skip_list(p, *p == '{', *p == '{' ? '}' : ']');
	if (*p == '"')
		return skip_string(p);
	strtod(p, &end);
	return end == p || *p == '+' ? NULL : end;
}

static bool is_json(const char *text)
{
	const char *end = *text == '{' ? skip_value(text) : NULL;

	return end && !*skip_space(end);
}

/* Comments, or a name with labels in braces, and a number. */
static bool is_prometheus(const char *text)
{
	unsigned values = 0;

	for (const char *line = text; *line; line++) {
		const size_t len = strcspn(line, "\n");
		const size_t name = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
		const char *p = line + name;
		char *end;

		if (line[len] != '\n')
			return false;
		if (*line != '#') {
			if (strncmp(line, "gannet_rpc_", 11))
				return false;
			if (*p == '{')
				p = memchr(p, '}', len - name);
			p = p && *p == '}' ? p + 1 : p;
			if (!p || *p++ != ' ')
				return false;
			strtod(p, &end);
			if (end != line + len)
				return false;
			values++;
		}
		line += len;
	}
	return values > 10;
}

static int has(const char *text, const char *word)
{
	EXPECT(strstr(text, word));
	return 0;
}

static int check_text(const char *text, enum gn_rpc_format format, const char *who)
{
	char word[80];

	EXPECT(format == GN_RPC_JSON ? is_json(text) : is_prometheus(text));
	/* Every call, though not every one was timed. */
	snprintf(word, sizeof(word), "gannet_rpc_%s_call_duration_seconds_count{method=\"1\"} 21\n",
		 who);
	EXPECT(has(text, format == GN_RPC_JSON ? "\"method\": 1, \"calls\": " : word) == 0);
	return 0;
}

static int client_text(const struct gn_rpc_client *client, enum gn_rpc_format format)
{
	const int len = gn_rpc_client_metrics(client, format, NULL, 0);
	char *text = gn_alloc((size_t)len + 16, 0);

	EXPECT(text && len > 100);
	memset(text, 'x', (size_t)len + 16);
	EXPECT(gn_rpc_client_metrics(client, format, text, (size_t)len + 1) == len);
	EXPECT(strlen(text) == (size_t)len && text[len + 1] == 'x');
	EXPECT(check_text(text, format, "client") == 0);
	EXPECT(format != GN_RPC_JSON || !has(text, "\"no_method\": 1"));
	EXPECT(gn_rpc_client_metrics(client, format, text, 10) == len);
	EXPECT(strlen(text) == 9); /* as much as fits */
	gn_free(text);
	return 0;
}

static int server_text(struct gn_rpc_client *client, enum gn_rpc_format format)
{
	const unsigned method = format == GN_RPC_JSON ? GN_RPC_STATS_JSON : GN_RPC_STATS_PROMETHEUS;
	enum { ROOM = 1 << 20 };
	char *text = gn_alloc(ROOM, 0);
	unsigned status = GN_RPC_FAILED;
	uint32_t len = 0;

	EXPECT(text);
	EXPECT(gn_rpc_call(client, method, NULL, 0, text, ROOM - 1, &len, GN_FOREVER, &status) ==
	       0);
	EXPECT(status == GN_RPC_OK && strlen(text) == len);
	EXPECT(check_text(text, format, "server") == 0);
	gn_free(text);
	return 0;
}

static int metrics(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct gn_rpc_limits limits = {.size = sizeof(limits)};
	unsigned status;

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	for (unsigned i = 0; i < 21; i++)
		EXPECT(call_echo(client, ECHO, 100, i) == 0);
	EXPECT(gn_rpc_call(client, NEVER, NULL, 0, NULL, 0, NULL, GN_FOREVER, &status) == 0);
	EXPECT(client_text(client, GN_RPC_JSON) == 0);
	EXPECT(client_text(client, GN_RPC_PROMETHEUS) == 0);
	EXPECT(server_text(client, GN_RPC_JSON) == 0);
	EXPECT(server_text(client, GN_RPC_PROMETHEUS) == 0);
	EXPECT(gn_rpc_client_metrics(client, (enum gn_rpc_format)2, NULL, 0) == -EINVAL);
	EXPECT(gn_rpc_client_metrics(client, GN_RPC_JSON, NULL, 1) == -EINVAL);
	EXPECT(gn_rpc_client_counters(client, &count) == 0);
	EXPECT(count.calls == 24 && count.ended[GN_RPC_OK] == 23 &&
	       count.ended[GN_RPC_NO_METHOD] == 1 && count.batches == 24 && count.results == 24);
	EXPECT(gn_rpc_client_limits(client, &limits) == 0);
	EXPECT(limits.slots == GN_RPC_SLOTS_DEFAULT && limits.window == GN_RPC_SLOTS_DEFAULT &&
	       limits.max_large == GN_RPC_LARGE_MAX);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static void test_metrics(void **state)
{
	(void)state;
	assert_true(is_json("{\"a\": [1, -2.5e3, {}], \"b\": {\"c\": \"d\"}}\n"));
	assert_false(is_json("{\"a\": [1, ]}"));
	assert_false(is_json("{\"a\" 1}"));
	assert_false(is_json("{\"a\": 1"));
	assert_false(is_json("{\"a\": nan_}x"));
	run_everywhere(metrics, NULL, 1);
}

/* The _count of a method's histogram; -1: it has none. */
static long exported_calls(struct gn_rpc_client *client, unsigned method)
{
	enum { ROOM = 1 << 18 };
	char name[80], *text = gn_alloc(ROOM, 0);
	unsigned status = GN_RPC_FAILED;
	const char *at;
	long n = -1;

	snprintf(name, sizeof(name), "call_duration_seconds_count{method=\"%u\"} ", method);
	if (text &&
	    !gn_rpc_call(client, GN_RPC_STATS_PROMETHEUS, NULL, 0, text, ROOM - 1, NULL,
			 gn_deadline_us(UNIT_PATIENCE_US), &status) &&
	    status == GN_RPC_OK) {
		at = strstr(text, name);
		n = at ? strtol(at + strlen(name), NULL, 10) : -1;
	}
	gn_free(text);
	return n;
}

/* A call whose answer is deferred counts when it is answered. */
static int deferred_counts(struct world *w, struct gn_rpc_client *client)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct async_call f[3];

	shut(&w->service, true);
	for (unsigned i = 0; i < 3; i++) {
		EXPECT(submit_echo(client, &f[i], LATER, 0) == 0);
		EXPECT(gn_rpc_flush(client) == 0);
	}
	while (aside(&w->service) != 3) {
		EXPECT(gn_now_ns() < until_ns && gn_rpc_poll(client) >= 0);
		gn_sleep_us(50);
	}
	EXPECT(exported_calls(client, LATER) == 0);
	shut(&w->service, false);
	EXPECT(wait_all(client, f, 3) == 0);
	EXPECT(exported_calls(client, LATER) == 3);
	return 0;
}

/* Messages with calls of several methods: each call counts for its own, whichever is the last. */
static int mixed_counts(struct gn_rpc_client *client)
{
	const long echo = exported_calls(client, ECHO);
	const long sum = exported_calls(client, SUM);
	struct async_call f[4];

	for (unsigned i = 0; i < 30; i++) {
		for (unsigned j = 0; j < 4; j++) {
			flight_make(&f[j], j == 2 ? SUM : ECHO, 8, i, 0);
			EXPECT(gn_rpc_submit(client, &f[j].op) == 0);
		}
		EXPECT(gn_rpc_flush(client) == 0);
		EXPECT(wait_all(client, f, 4) == 0);
	}
	EXPECT(exported_calls(client, ECHO) - (echo > 0 ? echo : 0) == 90);
	EXPECT(exported_calls(client, SUM) - (sum > 0 ? sum : 0) == 30);
	return 0;
}

static int true_counts(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_HYBRID);
	struct gn_rpc_client *client;

	opts.batch.entries = 4;
	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	EXPECT(mixed_counts(client) == 0);
	EXPECT(deferred_counts(w, client) == 0);
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST(test_by_time, by_time, NULL, 1),
		cmocka_unit_test(test_slow_beside_fast),
		cmocka_unit_test(test_by_fails),
		RPC_TEST(test_fetch_size, fetch_size, NULL, 2),
		cmocka_unit_test(test_metrics),
		RPC_TEST(test_true_counts, true_counts, NULL, 1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
