/* SPDX-License-Identifier: MIT */
/*
 * Connections of the proxy whose peers pipeline commands, stop reading and read on at random
 * moments. The proxy is the real one, with a store in this process; each connection has keys of its
 * own, so a model knows every byte of every answer. The proxy's end of a connection has a small
 * send buffer: its output is blocked most of the time. Then the same with more connections than
 * memory: they may be closed or hear of it, but what they hear before is right, and all memory is
 * given back in the end. Runs for some time, after a seed that is printed and can be given
 * (GN_SEED).
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"
#include "fuzz.h"

#define CONNS	   3u
#define MANY_CONNS 60u
#define KEYS	   12u
#define COMMANDS   900u /* of all connections of an episode: it takes as long, however many */
#define PATIENT_MS 20000
#define GAT_KEYS   6u
#define DEAF_GETS  64u
#define LONG_GET   700u /* keys: more than a window of slots */

struct bytes {
	char *at;
	size_t from, len, room; /* from: what was sent or compared already */
};

struct model_value {
	char *at; /* NULL: there is none */
	size_t len;
	unsigned flags;
};

struct peer {
	int fd;
	unsigned id, commands, most; /* commands that it sends, so far and in all */
	bool reads;
	bool may_fail; /* memory is short */
	bool failed;   /* … for it: nothing is compared any more */
	bool deaf;     /* it reads nothing before the end */
	char keys[KEYS][GN_KV_KEY_MAX + 1];
	struct model_value values[KEYS];
	uint64_t number;
	struct bytes out, want;
	uint64_t compared; /* bytes, of all answers */
};

static unsigned peers_made;

/* ---- text ---- */

static char *extend(struct bytes *b, size_t len)
{
	char *at;

	if (b->from == b->len)
		b->from = b->len = 0;
	if (b->len + len > b->room) {
		b->room = (b->len + len) * 2;
		b->at = realloc(b->at, b->room);
		assert_non_null(b->at);
	}
	at = b->at + b->len;
	b->len += len;
	return at;
}

static void put(struct bytes *b, const void *from, size_t len)
{
	if (len)
		memcpy(extend(b, len), from, len);
}

static void put_text(struct bytes *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put_text(struct bytes *b, const char *fmt, ...)
{
	char text[1024];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	assert_true(n >= 0 && (size_t)n < sizeof(text));
	put(b, text, (size_t)n);
}

/* ---- commands, and what the model says to them ---- */

static size_t pick_size(void)
{
	switch (fuzz_pick(12)) {
	case 0:
		return fuzz_pick(60000);
	case 1:
	case 2:
	case 3:
		return 900 + fuzz_pick(4000);
	default:
		return fuzz_pick(40);
	}
}

/* Appends len random bytes and CR LF to what is sent; where the value is. */
static const char *send_value(struct peer *p, size_t len)
{
	char *at = extend(&p->out, len + 2);

	for (size_t i = 0; i < len; i++)
		at[i] = (char)('a' + fuzz_pick(26));
	memcpy(at + len, "\r\n", 2);
	return at;
}

static void model_set(struct model_value *v, const char *from, size_t len, unsigned flags)
{
	free(v->at);
	v->at = malloc(len + 1);
	assert_non_null(v->at);
	memcpy(v->at, from, len);
	v->len = len;
	v->flags = flags;
}

static void model_forget(struct model_value *v)
{
	free(v->at);
	v->at = NULL;
}

static void want_value(struct peer *p, unsigned k)
{
	const struct model_value *v = &p->values[k];

	if (!v->at)
		return;
	put_text(&p->want, "VALUE %s %u %zu\r\n", p->keys[k], v->flags, v->len);
	put(&p->want, v->at, v->len);
	put_text(&p->want, "\r\n");
}

static void cmd_get(struct peer *p, unsigned n)
{
	/* A gat has to fit a line. */
	put_text(&p->out, n > GAT_KEYS || fuzz_pick(4) ? "get" : "gat 0");
	while (n--) {
		const unsigned k = fuzz_pick(KEYS);

		put_text(&p->out, " %s", p->keys[k]);
		want_value(p, k);
	}
	put_text(&p->out, "\r\n");
	put_text(&p->want, "END\r\n");
}

static void cmd_set(struct peer *p)
{
	const unsigned k = fuzz_pick(KEYS), flags = fuzz_pick(1000);
	/* Where memory is short a set may be refused, and with noreply nobody hears of it. */
	const bool noreply = !p->may_fail && !fuzz_pick(4);
	const size_t len = pick_size();

	put_text(&p->out, "set %s %u 0 %zu%s\r\n", p->keys[k], flags, len,
		 noreply ? " noreply" : "");
	model_set(&p->values[k], send_value(p, len), len, flags);
	if (!noreply)
		put_text(&p->want, "STORED\r\n");
}

static void cmd_append(struct peer *p)
{
	const unsigned k = fuzz_pick(KEYS);
	struct model_value *v = &p->values[k];
	const size_t len = fuzz_pick(30);
	const char *more;

	put_text(&p->out, "append %s 0 0 %zu\r\n", p->keys[k], len);
	more = send_value(p, len);
	put_text(&p->want, v->at ? "STORED\r\n" : "NOT_STORED\r\n");
	if (!v->at)
		return;
	v->at = realloc(v->at, v->len + len + 1);
	assert_non_null(v->at);
	memcpy(v->at + v->len, more, len);
	v->len += len;
}

static void cmd_delete(struct peer *p)
{
	const unsigned k = fuzz_pick(KEYS);

	put_text(&p->out, "delete %s\r\n", p->keys[k]);
	put_text(&p->want, p->values[k].at ? "DELETED\r\n" : "NOT_FOUND\r\n");
	model_forget(&p->values[k]);
}

static void cmd_number(struct peer *p)
{
	const unsigned by = fuzz_pick(1000);

	p->number += by;
	put_text(&p->out, "incr number-%s %u\r\n", p->keys[0], by);
	put_text(&p->want, "%llu\r\n", (unsigned long long)p->number);
}

/* Flags that are repeated in an answer, in an order of their own; to both. */
struct meta_flags {
	char asked[128], answered[600];
	bool quiet, value;
};

static void draw_flags(struct meta_flags *f, const char *key, const struct model_value *v,
		       const char *allowed)
{
	unsigned seen = 0;
	size_t a = 0, b = 0;

	*f = (struct meta_flags){.quiet = false};
	for (unsigned i = fuzz_pick(6); i; i--) {
		const char c = allowed[fuzz_pick(strlen(allowed))];
		const unsigned token = fuzz_any();

		if (seen >> ((c - 'A') & 31) & 1)
			continue;
		seen |= 1u << ((c - 'A') & 31);
		f->quiet |= c == 'q';
		f->value |= c == 'v';
		if (c == 'O')
			a += (size_t)sprintf(f->asked + a, " O%x", token);
		else
			a += (size_t)sprintf(f->asked + a, " %c", c);
		if (c == 'O')
			b += (size_t)sprintf(f->answered + b, " O%x", token);
		else if (c == 'k')
			b += (size_t)sprintf(f->answered + b, " k%s", key);
		else if (v && v->at && c == 's')
			b += (size_t)sprintf(f->answered + b, " s%zu", v->len);
		else if (v && v->at && c == 'f')
			b += (size_t)sprintf(f->answered + b, " f%u", v->flags);
		else if (v && v->at && c == 't')
			b += (size_t)sprintf(f->answered + b, " t-1");
	}
}

static void cmd_meta_get(struct peer *p)
{
	const unsigned k = fuzz_pick(KEYS);
	const struct model_value *v = &p->values[k];
	struct meta_flags f;

	draw_flags(&f, p->keys[k], v, "kOvsftq");
	put_text(&p->out, "mg %s%s\r\n", p->keys[k], f.asked);
	if (!v->at && f.quiet)
		return;
	if (!v->at || !f.value) {
		put_text(&p->want, "%s%s\r\n", v->at ? "HD" : "EN", f.answered);
		return;
	}
	put_text(&p->want, "VA %zu%s\r\n", v->len, f.answered);
	put(&p->want, v->at, v->len);
	put_text(&p->want, "\r\n");
}

static void cmd_meta_set(struct peer *p)
{
	const unsigned k = fuzz_pick(KEYS);
	const size_t len = pick_size();
	struct meta_flags f;

	draw_flags(&f, p->keys[k], NULL, "kOq");
	put_text(&p->out, "ms %s %zu%s\r\n", p->keys[k], len, f.asked);
	model_set(&p->values[k], send_value(p, len), len, 0);
	if (!f.quiet)
		put_text(&p->want, "HD%s\r\n", f.answered);
}

static void cmd_meta_delete(struct peer *p)
{
	const unsigned k = fuzz_pick(KEYS);
	struct meta_flags f;

	draw_flags(&f, p->keys[k], NULL, "kOq");
	put_text(&p->out, "md %s%s\r\n", p->keys[k], f.asked);
	if (!f.quiet || !p->values[k].at)
		put_text(&p->want, "%s%s\r\n", p->values[k].at ? "HD" : "NF", f.answered);
	model_forget(&p->values[k]);
}

static void cmd_other(struct peer *p)
{
	static const char *const others[][2] = {
		{"mn", "MN"},	       {"version", "VERSION " PX_VERSION},
		{"nonsense", "ERROR"}, {"stats sizes", "STAT sizes_status disabled\r\nEND"},
		{"verbosity 1", "OK"},
	};
	const unsigned i = fuzz_pick(sizeof(others) / sizeof(others[0]));

	put_text(&p->out, "%s\r\n", others[i][0]);
	put_text(&p->want, "%s\r\n", others[i][1]);
}

static void command(struct peer *p)
{
	p->commands++;
	switch (fuzz_pick(16)) {
	case 0:
		cmd_get(p, 1 + fuzz_pick(fuzz_pick(20) ? 20 : LONG_GET));
		break;
	case 1:
	case 2:
	case 3:
		cmd_get(p, 1);
		break;
	case 4:
	case 5:
		cmd_set(p);
		break;
	case 6:
		cmd_append(p);
		break;
	case 7:
		cmd_delete(p);
		break;
	case 8:
		cmd_number(p);
		break;
	case 9:
	case 10:
		cmd_meta_get(p);
		break;
	case 11:
	case 12:
	case 13:
		cmd_meta_set(p);
		break;
	case 14:
		cmd_meta_delete(p);
		break;
	default:
		cmd_other(p);
		break;
	}
}

/* ---- a peer's moves ---- */

static void send_some(struct peer *p)
{
	const size_t most = p->out.len - p->out.from;
	const size_t piece = fuzz_pick(3) ? 1 + fuzz_pick(fuzz_pick(2) ? 40 : 9000) : most;
	ssize_t n;

	if (!most)
		return;
	n = send(p->fd, p->out.at + p->out.from, piece < most ? piece : most, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN) {
		if (!p->may_fail)
			fail_msg("the proxy closed a connection: %s", strerror(errno));
		p->failed = true;
	}
	p->out.from += n > 0 ? (size_t)n : 0;
}

/*
 * For want of memory: an error instead of an answer, or a value that a get leaves out (it ends with
 * an error then): the next value is this peer's, too. The line may begin as the expected one does.
 */
static bool is_refusal(const struct peer *p, const char *got, size_t n, size_t at)
{
	static const char error[] = "SERVER_ERROR out of memory";
	const char *want = p->want.at + p->want.from + at;
	char line[64] = "", value[32];
	size_t len = 0;

	while (want - len > p->want.at && len < sizeof(line) / 2 &&
	       want[-1 - (ptrdiff_t)len] != '\n')
		len++;
	memcpy(line, want - len, len);
	while (at < n && len < sizeof(line))
		line[len++] = got[at++];
	snprintf(value, sizeof(value), "VALUE p%u-", p->id);
	return !memcmp(line, error, len < sizeof(error) - 1 ? len : sizeof(error) - 1) ||
	       !memcmp(line, value, len < strlen(value) ? len : strlen(value));
}

static void compare(struct peer *p, const char *got, size_t n)
{
	const char *want = p->want.at + p->want.from;
	size_t same = 0;

	while (same < n && same < p->want.len - p->want.from && got[same] == want[same])
		same++;
	if (same < n && p->may_fail && is_refusal(p, got, n, same)) {
		p->failed = true;
		return;
	}
	if (same < n)
		fail_msg("byte %llu of the answers: '%.*s' instead of '%.*s'",
			 (unsigned long long)(p->compared + same),
			 (int)(n - same < 60 ? n - same : 60), got + same,
			 (int)(p->want.len - p->want.from - same < 60 ?
				       p->want.len - p->want.from - same :
				       60),
			 want + same);
	p->want.from += n;
	p->compared += n;
}

/* False: nothing is there now. */
static bool read_some(struct peer *p, size_t most)
{
	static char got[1 << 16];
	const ssize_t n = read(p->fd, got, most < sizeof(got) ? most : sizeof(got));

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0 && p->may_fail) {
		p->failed = true;
		return false;
	}
	if (n <= 0)
		fail_msg("the proxy closed a connection that waits for %zu bytes",
			 p->want.len - p->want.from);
	compare(p, got, (size_t)n);
	return true;
}

static void move(struct peer *p)
{
	if (p->failed)
		p->commands = p->most;
	if (p->failed)
		return;
	switch (fuzz_pick(8)) {
	case 0:
		p->reads = !p->deaf && !fuzz_pick(3);
		break;
	case 1:
		gn_sleep_us(fuzz_pick(400));
		break;
	case 2:
	case 3:
		if (p->reads)
			read_some(p, 1 + fuzz_pick(fuzz_pick(2) ? 300 : 60000));
		break;
	case 4:
	case 5:
		if (p->out.len - p->out.from < 30000 && p->commands < p->most)
			for (unsigned i = 1 + fuzz_pick(40); i; i--)
				command(p);
		break;
	default:
		send_some(p);
		break;
	}
}

/* Everything is sent, and every answer comes. */
static void finish(struct peer *p)
{
	const bool half_close = fuzz_pick(2);
	bool closed = false;

	while (!p->failed && (p->want.from < p->want.len || p->out.from < p->out.len ||
			      (half_close && !closed))) {
		const bool more = p->out.from < p->out.len;
		struct pollfd ready = {.fd = p->fd,
				       .events = (short)(POLLIN | (more ? POLLOUT : 0))};

		if (!more && half_close && !closed) {
			assert_int_equal(shutdown(p->fd, SHUT_WR), 0);
			closed = true;
			continue;
		}
		if (poll(&ready, 1, PATIENT_MS) != 1)
			fail_msg("no answer for %d ms: %zu bytes are not sent, %zu not answered",
				 PATIENT_MS, p->out.len - p->out.from, p->want.len - p->want.from);
		send_some(p);
		if (p->want.from < p->want.len)
			read_some(p, 1 << 16);
	}
	if (half_close && !p->failed) {
		struct pollfd ready = {.fd = p->fd, .events = POLLIN};
		char byte;

		assert_int_equal(poll(&ready, 1, PATIENT_MS), 1);
		assert_int_equal(read(p->fd, &byte, 1), 0);
	}
}

/* ---- the world ---- */

struct world {
	struct gn_fabric *fabric;
	struct gn_kv_server *server;
	struct proxy *proxy;
};

static void open_world(struct world *w, unsigned threads, uint64_t memory)
{
	const struct gn_kv_server_opts server = {
		.size = sizeof(server), .threads = 2, .memory = 256u << 20};
	struct proxy_opts opts = {.threads = threads, .memory = memory, .timeout_ms = 60000};
	char addr[64];

	snprintf(addr, sizeof(addr), "shm:fuzz-px-conn-%d", getpid());
	opts.server = addr;
	assert_int_equal(gn_fabric_open("shm", &w->fabric), 0);
	assert_int_equal(gn_kv_server_create(w->fabric, addr, &server, &w->server), 0);
	assert_int_equal(gn_kv_server_start(w->server), 0);
	assert_int_equal(proxy_create(w->fabric, &opts, &w->proxy), 0);
}

static void close_world(struct world *w)
{
	proxy_destroy(w->proxy);
	gn_kv_server_destroy(w->server);
	gn_fabric_close(w->fabric);
}

static void open_peer(const struct world *w, struct peer *p)
{
	static const int send_bytes[] = {4608, 4608, 30000, 200000};
	const int bytes = send_bytes[fuzz_pick(sizeof(send_bytes) / sizeof(send_bytes[0]))];
	int fds[2];

	*p = (struct peer){.id = peers_made, .reads = true};
	for (unsigned k = 0; k < KEYS; k++) {
		int n = sprintf(p->keys[k], "p%u-%u-", peers_made, k);

		for (unsigned more = fuzz_pick(4) ? fuzz_pick(20) : fuzz_pick(200); more; more--)
			p->keys[k][n++] = (char)('A' + fuzz_pick(26));
		p->keys[k][n] = 0;
	}
	peers_made++;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
	p->fd = fds[0];
	put_text(&p->out, "set number-%s 0 0 1\r\n0\r\n", p->keys[0]);
	put_text(&p->want, "STORED\r\n");
	assert_true(px_thread_add_conn(&w->proxy->threads[fuzz_pick(w->proxy->n_threads)], fds[1]));
}

static void close_peer(struct peer *p)
{
	close(p->fd);
	for (unsigned k = 0; k < KEYS; k++)
		free(p->values[k].at);
	free(p->out.at);
	free(p->want.at);
}

/* It asks for far more than it takes: the proxy has to keep that, a third of its memory. */
static void make_deaf(struct peer *p)
{
	const size_t len = 20000;

	p->deaf = true;
	p->reads = false;
	put_text(&p->out, "set %s 0 0 %zu\r\n", p->keys[0], len);
	model_set(&p->values[0], send_value(p, len), len, 0);
	put_text(&p->want, "STORED\r\n");
	for (unsigned i = 0; i < DEAF_GETS; i++) {
		put_text(&p->out, "get %s\r\n", p->keys[0]);
		want_value(p, 0);
		put_text(&p->want, "END\r\n");
	}
}

struct totals {
	uint64_t commands, bytes, failed;
};

static void episode(const struct world *w, unsigned n, bool may_fail, struct totals *totals)
{
	static struct peer peers[MANY_CONNS];
	bool more = true;

	for (unsigned i = 0; i < n; i++) {
		open_peer(w, &peers[i]);
		peers[i].may_fail = may_fail;
		peers[i].most = COMMANDS / n;
		if (may_fail && fuzz_pick(2))
			make_deaf(&peers[i]);
	}
	while (more) {
		more = false;
		for (unsigned i = 0; i < n; i++) {
			move(&peers[i]);
			more |= !peers[i].deaf && peers[i].commands < peers[i].most;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		finish(&peers[i]);
		totals->commands += peers[i].commands;
		totals->bytes += peers[i].compared;
		totals->failed += peers[i].failed;
		close_peer(&peers[i]);
	}
}

static void tell(const struct totals *totals)
{
	print_message("# %llu commands, %llu bytes of answers compared, %llu connections failed\n",
		      (unsigned long long)totals->commands, (unsigned long long)totals->bytes,
		      (unsigned long long)totals->failed);
	assert_true(totals->bytes);
}

static void test_blocked_output(void **state)
{
	const uint64_t end_ns = fuzz_begin();
	struct totals totals = {0};
	struct world w = {0};

	(void)state;
	open_world(&w, 2, 256u << 20);
	do /* once at least: on a busy machine the time may be over by now */
		episode(&w, CONNS, false, &totals);
	while (gn_now_ns() < end_ns);
	close_world(&w);
	tell(&totals);
}

static void test_short_memory(void **state)
{
	const uint64_t end_ns = fuzz_begin();
	struct totals totals = {0};
	struct world w = {0};

	(void)state;
	open_world(&w, 1, PROXY_MEMORY_MIN);
	do
		episode(&w, MANY_CONNS / 2 + fuzz_pick(MANY_CONNS / 2 + 1), true, &totals);
	while (gn_now_ns() < end_ns);
	close_world(&w); /* its thread asserts that it holds nothing */
	tell(&totals);
}

/* ---- a quiet command that is refused ---- */

#define HOGS	  8u
#define HOG_BYTES 1000000u
#define ROUNDS	  200u

/* A connection that has memory for a value, of which a byte comes now and then. */
static int open_hog(const struct world *w)
{
	char text[64];
	int fds[2];
	const int n = snprintf(text, sizeof(text), "set hog 0 0 %u\r\nx", HOG_BYTES);

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(send(fds[0], text, (size_t)n, MSG_NOSIGNAL), n);
	assert_true(px_thread_add_conn(&w->proxy->threads[0], fds[1]));
	return fds[0];
}

static uint64_t commands_begun(const struct world *w)
{
	return __atomic_load_n(&w->proxy->threads[0].counters.commands, __ATOMIC_RELAXED);
}

/* The lines that answer text, up to and with "MN". */
static void ask_lines(int fd, const char *text, size_t len, char *out, size_t room)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	size_t got = 0;

	for (size_t sent = 0; sent < len;) {
		const ssize_t n = send(fd, text + sent, len - sent, MSG_NOSIGNAL);

		assert_true(n > 0);
		sent += (size_t)n;
	}
	do {
		ssize_t n;

		assert_int_equal(poll(&ready, 1, PATIENT_MS), 1);
		n = read(fd, out + got, room - 1 - got);
		assert_true(n > 0);
		got += (size_t)n;
		out[got] = 0;
	} while (got < 4 || strcmp(out + got - 4, "MN\r\n") != 0);
}

/*
 * An "ms … q" without an answer has stored its value. One that has not says so, and what was there
 * before is gone, as it is with memcached.
 */
static bool quiet_set(int fd, unsigned round)
{
	static char text[HOG_BYTES + 128];
	char out[256], ask[64];
	size_t len = (size_t)sprintf(text, "ms quiet-%u 3 q\r\nold\r\nms quiet-%u %u q\r\n", round,
				     round, HOG_BYTES);
	bool refused;

	memset(text + len, 'v', HOG_BYTES);
	len += HOG_BYTES;
	len += (size_t)sprintf(text + len, "\r\nmn\r\n");
	ask_lines(fd, text, len, out, sizeof(out));
	refused = strcmp(out, "MN\r\n") != 0;
	if (refused)
		assert_string_equal(out, "SERVER_ERROR out of memory storing object\r\nMN\r\n");
	len = (size_t)sprintf(ask, "mg quiet-%u s\r\nmd quiet-%u\r\nmn\r\n", round, round);
	ask_lines(fd, ask, len, out, sizeof(out));
	assert_string_equal(out, refused ? "EN\r\nNF\r\nMN\r\n" : "HD s1000000\r\nHD\r\nMN\r\n");
	return refused;
}

static void test_quiet_refusal(void **state)
{
	int hogs[HOGS], fds[2];
	unsigned refused = 0;
	struct world w = {0};

	(void)state;
	open_world(&w, 1, PROXY_MEMORY_MIN);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_true(px_thread_add_conn(&w.proxy->threads[0], fds[1]));
	/* Hogs that were silent for too long are closed, and the value has room then. */
	for (unsigned round = 0; round < ROUNDS && refused < 3; round++) {
		const uint64_t before = commands_begun(&w);

		for (unsigned i = 0; i < HOGS; i++)
			hogs[i] = open_hog(&w);
		while (commands_begun(&w) < before + HOGS)
			gn_sleep_us(100);
		refused += quiet_set(fds[0], round);
		for (unsigned i = 0; i < HOGS; i++)
			close(hogs[i]);
	}
	close(fds[0]);
	close_world(&w);
	assert_true(refused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocked_output),
		cmocka_unit_test(test_short_memory),
		cmocka_unit_test(test_quiet_refusal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
