/* SPDX-License-Identifier: MIT */
/*
 * What the proxy takes apart, and what it makes of answers: lines of memcached's protocols that
 * were changed at random, in memory that ends where they do. Then whole connections, to a proxy
 * with a store behind it in this process: they may be closed, but the next one is served. Runs for
 * some time, after a seed that is printed and can be given (GN_SEED).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz.h"
#include "gannet/kv.h"
#include "protocol.h"
#include "proxy.h"

#define LINE	3000u
#define PATIENT 20000 /* ms, for an answer */

static const struct px_context context = {.now_s = 1700000000, .max_value = 1 << 20};

/* ---- lines ---- */

static const char *const good[] = {"get a",
				   "gets a b",
				   "get key-1 key-2  key-3 ",
				   "gat 100 a b",
				   "gats 0 a",
				   "bget a",
				   "set a 0 0 5",
				   "set a 4294967295 -1 5 noreply",
				   "add a 1 1700000100 0",
				   "append a 0 0 3",
				   "cas a 0 0 5 12345",
				   "cas a 0 0 5 12345 noreply",
				   "replace a 0 0 1048577",
				   "delete a",
				   "delete a 0",
				   "delete a noreply",
				   "incr a 1",
				   "decr a 18446744073709551615",
				   "touch a 100",
				   "flush_all",
				   "flush_all 10 noreply",
				   "verbosity 1",
				   "version",
				   "quit",
				   "stats",
				   "stats items",
				   "stats detail on",
				   "stats cachedump 1 0",
				   "lru_crawler metadump all",
				   "shutdown",
				   "GET / HTTP/1.1",
				   "mg a",
				   "mg a s v f t h l c k O123 q",
				   "mg Zm9v b k v",
				   "mg a N30 R30 T30 v",
				   "mg a u E5",
				   "ms a 5",
				   "ms a 5 T30 F1 MA C5 c k O1 q I",
				   "ms Zm9v 2 b k",
				   "ms a 2147483647",
				   "md a",
				   "md a q I T30 C5 k O1",
				   "ma a",
				   "ma a N0 J5 D3 MD T5 C5 t c v k q",
				   "mn",
				   "me a b"};

static const char *const words[] = {" ",
				    "  ",
				    "\t",
				    "\r",
				    "",
				    "-1",
				    "0",
				    "noreply",
				    "b",
				    "k",
				    "q",
				    "v",
				    "O",
				    "Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
				    "T",
				    "T-1",
				    "N4294967296",
				    "M",
				    "MX",
				    "99999999999999999999",
				    "====",
				    "AAAA",
				    "\x80",
				    "get ",
				    "ms ",
				    "stats "};

static size_t change(char *line, size_t len)
{
	const char *word = words[fuzz_pick(sizeof(words) / sizeof(words[0]))];
	const size_t at = fuzz_pick(len + 1), n = *word ? strlen(word) : 1; /* a NUL, too */
	const size_t many = fuzz_pick(20) ? 1 : 1 + fuzz_pick(300);

	switch (fuzz_pick(3)) {
	case 0:
		if (at < len)
			line[at] = (char)fuzz_any();
		return len;
	case 1:
		if (at == len)
			return len;
		memmove(line + at, line + at + 1, len - at - 1);
		return len - 1;
	default:
		if (len + n * many > LINE)
			return len;
		memmove(line + at + n * many, line + at, len - at);
		for (size_t i = 0; i < many; i++)
			memcpy(line + at + i * n, word, n);
		return len + n * many;
	}
}

static size_t make_line(char *line)
{
	const char *text = good[fuzz_pick(sizeof(good) / sizeof(good[0]))];
	size_t len = strlen(text);

	memcpy(line, text, len);
	for (unsigned i = fuzz_pick(6); i < 5; i++)
		len = change(line, len);
	for (size_t i = 0; i < len; i++)
		if (line[i] == '\n')
			line[i] = 'n';
	return len;
}

/* Keys lie in the line, one behind the other. */
static unsigned take_keys(const char *line, size_t len, size_t at)
{
	unsigned n = 0;
	const char *key;
	size_t bytes;

	while ((bytes = px_key(line, len, &at, &key)) != 0) {
		assert_true(key >= line && key + bytes <= line + len && at <= len);
		assert_true(bytes <= GN_KV_KEY_MAX);
		assert_null(memchr(key, ' ', bytes));
		n++;
	}
	return n;
}

static bool within(const void *what, size_t n, const char *line, size_t len)
{
	return (const char *)what >= line && (const char *)what + n <= line + len;
}

/* Whatever the store says, the answer has room and ends as a line does. */
static void answer(struct px_request *r)
{
	static char room[64 + 2];
	char *out = malloc(PX_HEAD_MAX);
	struct gn_kv_op *op = &r->op;
	bool value;
	size_t len;

	assert_non_null(out);
	op->status = fuzz_pick(GN_KV_STATUSES);
	op->found = fuzz_any();
	op->flags = fuzz_strange();
	op->ttl_s = fuzz_strange();
	op->idle_s = fuzz_strange();
	op->cas = (uint64_t)fuzz_strange() << 32 | fuzz_strange();
	op->number = (uint64_t)fuzz_strange() << 32 | fuzz_strange();
	op->len = fuzz_strange();
	op->room = room;
	len = px_response(r, out, &value);
	assert_true(len <= PX_HEAD_MAX);
	assert_true(!len || (len > 2 && !memcmp(out + len - 2, "\r\n", 2)));
	assert_true(!value || len);
	free(out);
}

static void check(struct px_request *r, const char *line, size_t len)
{
	const struct gn_kv_op *op = &r->op;

	switch (r->kind) {
	case PX_REPLY_TEXT:
		assert_non_null(r->reply);
		break;
	case PX_STORE:
	case PX_META_SET:
		assert_true(r->bits & PX_DATA && op->value_len <= context.max_value);
		/* fall through */
	case PX_DELETE:
	case PX_NUMBER:
	case PX_TOUCH:
	case PX_META_GET:
	case PX_META_DELETE:
	case PX_META_NUMBER:
	case PX_META_DEBUG:
		assert_true(op->key_len && op->key_len <= GN_KV_KEY_MAX);
		assert_true(within(op->key, op->key_len, line, len));
		assert_true(!r->n_flags || within(r->flags, 1, line, len));
		break;
	default:
		assert_true(r->kind == PX_FLUSH || r->kind == PX_STATS || r->kind == PX_DUMP ||
			    r->kind == PX_QUIT || r->kind == PX_CLOSE);
		return;
	}
	answer(r);
}

static void test_lines(void **state)
{
	const uint64_t end_ns = fuzz_begin();
	unsigned kinds[PX_CLOSE + 1] = {0};

	(void)state;
	while (gn_now_ns() < end_ns) {
		char text[LINE], *line;
		const size_t len = make_line(text);
		struct px_request r;
		size_t keys;

		line = malloc(len + PX_SLACK);
		assert_non_null(line);
		memcpy(line, text, len);
		memset(line + len, 'x', PX_SLACK);
		px_parse(line, len, &context, &r, &keys);
		kinds[r.kind]++;
		if (r.kind == PX_KEYS) {
			assert_true(keys <= len);
			take_keys(line, len, keys);
			r.kind = PX_END;
			answer(&r);
		} else {
			check(&r, line, len);
		}
		free(line);
	}
	for (unsigned kind = 0; kind <= PX_CLOSE; kind++)
		if (kind != PX_VALUE && kind != PX_END && !kinds[kind])
			fail_msg("no line was of kind %u", kind);
}

/* ---- base64 and numbers, there and back ---- */

static void test_base64(void **state)
{
	const uint64_t end_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < end_ns) {
		const size_t n = 1 + fuzz_pick(187);
		uint8_t *bytes = malloc(n), *back = malloc(252);
		char text[256];
		size_t len;

		assert_true(bytes && back);
		for (size_t i = 0; i < n; i++)
			bytes[i] = (uint8_t)fuzz_any();
		len = px_base64_encode(bytes, n, text);
		assert_int_equal(len, (n + 2) / 3 * 4);
		assert_int_equal(px_base64_decode(text, len, back), n);
		assert_memory_equal(bytes, back, n);
		text[fuzz_pick(len)] = (char)fuzz_any();
		memcpy(back, text, len);
		assert_true(px_base64_decode((char *)back, len, back) <= len / 4 * 3);
		free(bytes);
		free(back);
	}
}

static void test_numbers(void **state)
{
	const uint64_t end_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < end_ns) {
		const uint64_t number = (uint64_t)fuzz_strange() << 32 | fuzz_strange();
		uint64_t back;
		uint32_t low;
		char text[24];

		*px_put_u64(text, number) = 0;
		assert_true(px_u64(text, &back) && back == number);
		*px_put_u64(text, (uint32_t)number) = 0;
		assert_true(px_u32(text, &low) && low == (uint32_t)number);
		text[fuzz_pick(strlen(text))] = 'x';
		assert_false(px_u64(text, &back) && text[0] == 'x');
	}
}

/* ---- connections ---- */

struct world {
	struct gn_fabric *fabric;
	struct gn_kv_server *server;
	struct proxy *proxy;
	struct gn_thread *thread;
	int stop[2];
	char folder[64], place[96];
};

static void let_in(void *arg)
{
	struct world *w = arg;

	assert_int_equal(proxy_run(w->proxy, w->stop[0]), 0);
}

static void open_world(struct world *w)
{
	const struct gn_kv_server_opts server = {
		.size = sizeof(server), .threads = 2, .memory = 16u << 20};
	const char *where = w->place;
	struct proxy_opts opts = {.listen = &where, .n_listen = 1, .memory = 32u << 20};
	char addr[64];

	snprintf(w->folder, sizeof(w->folder), "/tmp/gannet-fuzz-px-XXXXXX");
	assert_non_null(mkdtemp(w->folder));
	snprintf(w->place, sizeof(w->place), "unix:%s/s", w->folder);
	snprintf(addr, sizeof(addr), "shm:fuzz-px-%d", getpid());
	opts.server = addr;
	assert_int_equal(gn_fabric_open("shm", &w->fabric), 0);
	assert_int_equal(gn_kv_server_create(w->fabric, addr, &server, &w->server), 0);
	assert_int_equal(gn_kv_server_start(w->server), 0);
	assert_int_equal(proxy_create(w->fabric, &opts, &w->proxy), 0);
	assert_int_equal(pipe(w->stop), 0);
	assert_int_equal(gn_thread_start("let-in", let_in, w, &w->thread), 0);
}

static void close_world(struct world *w)
{
	assert_int_equal(write(w->stop[1], "", 1), 1);
	gn_thread_join(w->thread);
	proxy_destroy(w->proxy);
	gn_kv_server_destroy(w->server);
	gn_fabric_close(w->fabric);
	close(w->stop[0]);
	close(w->stop[1]);
	assert_int_equal(rmdir(w->folder), 0);
}

static int dial(const struct world *w)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/s", w->folder);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

/* Whoever else was there: it is served. */
static void is_served(const struct world *w)
{
	const int fd = dial(w);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char text[8] = "";

	assert_int_equal(write(fd, "mn\r\n", 4), 4);
	assert_int_equal(poll(&p, 1, PATIENT), 1);
	assert_int_equal(read(fd, text, sizeof(text)), 4);
	assert_memory_equal(text, "MN\r\n", 4);
	close(fd);
}

/* Lines, and data that may fit them. */
static size_t make_stream(char *out, size_t room)
{
	size_t len = 0;

	while (len + LINE + 600 < room && fuzz_pick(40)) {
		size_t n = make_line(out + len);

		if (n >= 4 && !memcmp(out + len, "quit", 4))
			continue;
		len += n;
		memcpy(out + len, "\r\n", 2);
		len += 2;
		for (n = fuzz_pick(3) ? 0 : fuzz_pick(8); n; n--)
			out[len++] = (char)('a' + fuzz_pick(26));
		if (fuzz_pick(2)) {
			memcpy(out + len, "\r\n", 2);
			len += 2;
		}
	}
	return len;
}

static void test_connections(void **state)
{
	static char stream[60000], sink[65536];
	const uint64_t end_ns = fuzz_begin();
	struct world w = {0};
	unsigned n = 0;

	(void)state;
	open_world(&w);
	while (gn_now_ns() < end_ns) {
		const size_t len = make_stream(stream, sizeof(stream));
		const int fd = dial(&w);
		size_t at = 0;

		fcntl(fd, F_SETFL, O_NONBLOCK);
		for (unsigned tries = 0; at < len && tries < 1000; tries++) {
			const size_t piece = 1 + fuzz_pick(fuzz_pick(2) ? 20 : 9000);
			const ssize_t sent = send(
				fd, stream + at, piece < len - at ? piece : len - at, MSG_NOSIGNAL);

			if (sent < 0 && errno != EAGAIN)
				break; /* closed, as may be */
			at += sent > 0 ? (size_t)sent : 0;
			if (fuzz_pick(3) == 0 && read(fd, sink, sizeof(sink)) == 0)
				break;
		}
		close(fd);
		if (n++ % 16 == 0)
			is_served(&w);
	}
	is_served(&w);
	print_message("# %u connections\n", n);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_connections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
