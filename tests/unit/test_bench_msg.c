/* SPDX-License-Identifier: MIT */
/*
 * The sweeps of bench msg, its file of results, who is connected to whom, and that a value which is
 * wrong at either end does not pass.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "msg_file.h"
#include "msg_load.h"
#include "msg_sweep.h"

/* ---- sweeps ---- */

static void values_of(const char *text, uint32_t *out, uint32_t *n)
{
	struct sweep sweep = {0};
	char why[BENCH_WHY_MAX] = "";

	if (sweep_add(&sweep, text, why))
		fail_msg("%s: %s", text, why);
	*n = sweep_points(&sweep);
	for (uint32_t i = 0; i < *n; i++) {
		struct bench_msg_opts opts = {0};

		sweep_point(&sweep, i, &opts);
		out[i] = opts.protocol + (uint32_t)opts.topology + opts.nodes + opts.threads +
			 opts.pending + opts.request_bytes + opts.value_bytes;
	}
	sweep_free(&sweep);
}

static void ranges(void **state)
{
	static const struct {
		const char *text;
		uint32_t n, values[12];
	} cases[] = {
		{"pending=1..256x2", 9, {1, 2, 4, 8, 16, 32, 64, 128, 256}},
		{"pending=3..100x3", 4, {3, 9, 27, 81}},
		{"value=365,1024,4K", 3, {365, 1024, 4096}},
		{"value=1K..4Kx2,1M", 4, {1024, 2048, 4096, 1048576}},
		{"nodes=1..4+1", 4, {1, 2, 3, 4}},
		{"nodes=1..4", 4, {1, 2, 3, 4}},
		{"threads=2..9+3", 3, {2, 5, 8}},
		{"request=36", 1, {36}},
		{"request=7..7x2", 1, {7}},
		{"protocol=READ,write/write", 2, {GN_MSG_READ, GN_MSG_WRITE_WRITE}},
		{"protocol=all", 7, {0, 1, 2, 3, 4, 5, 6}},
		{"topology=m:m,M:1", 2, {BENCH_MSG_MM, BENCH_MSG_M1}},
	};
	uint32_t values[64], n;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		values_of(cases[i].text, values, &n);
		assert_int_equal(n, cases[i].n);
		assert_memory_equal(values, cases[i].values, n * sizeof(values[0]));
	}
}

static void impossible(void **state)
{
	/* What is wrong, and a word that the reason must have. */
	static const char *const cases[][2] = {
		{"pending=0..4", "1 to 4096"},
		{"value=10..1x2", "down"},
		{"pending=1..4x1", "never ends"},
		{"pending=1..4x0", "never ends"},
		{"pending=1..4+0", "never ends"},
		{"value=1..1000000", "10000"},
		{"value=1..1000000000", "1 to"},
		{"pending=99999999999999999999", "1 to 4096"},
		{"pending=", "commas"},
		{"pending=1,,2", "commas"},
		{"pending=1,", "commas"},
		{"pending=1..", "FROM..TO"},
		{"pending=..4", "FROM..TO"},
		{"pending=1..4x", "FROM..TO"},
		{"pending=1..4x2y", "FROM..TO"},
		{"pending=1-4", "FROM..TO"},
		{"pending=-1", "FROM..TO"},
		{"pending=x", "FROM..TO"},
		{"pending=4,1..8x2", "twice"},
		{"depth=1", "KEY"},
		{"pending", "KEY"},
		{"pend=1", "KEY"},
		{"=1", "KEY"},
		{"", "KEY"},
		{"protocol=SEND", "protocol"},
		{"protocol=READ,all", "twice"},
		{"topology=M:2", "topology"},
		{"request=3", "4 to"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sweep sweep = {0};
		char why[BENCH_WHY_MAX] = "";

		if (sweep_add(&sweep, cases[i][0], why) != -EINVAL)
			fail_msg("%s was taken", cases[i][0]);
		if (!strstr(why, cases[i][1]) || strchr(why, '\n'))
			fail_msg("%s: %s", cases[i][0], why);
		assert_int_equal(sweep.n, 0);
	}
}

static void products(void **state)
{
	struct sweep sweep = {0};
	struct bench_msg_opts opts = {.threads = 5};
	char why[BENCH_WHY_MAX];

	(void)state;
	assert_int_equal(sweep_points(&sweep), 1);
	assert_int_equal(sweep_add(&sweep, "pending=1,2", why), 0);
	assert_int_equal(sweep_add(&sweep, "value=10,20,30", why), 0);
	assert_int_equal(sweep_points(&sweep), 6);
	for (uint32_t i = 0; i < 6; i++) {
		sweep_point(&sweep, i, &opts);
		assert_int_equal(opts.pending, 1 + i / 3);
		assert_int_equal(opts.value_bytes, 10 * (1 + i % 3));
		assert_int_equal(opts.threads, 5);
	}
	assert_int_equal(sweep_add(&sweep, "pending=4", why), -EINVAL);
	assert_non_null(strstr(why, "twice"));
	assert_int_equal(sweep_add(&sweep, "request=4..2000", why), -EINVAL);
	assert_non_null(strstr(why, "11982"));
	assert_int_equal(sweep_points(&sweep), 6);
	sweep_free(&sweep);
}

/* ---- the file ---- */

struct place {
	char dir[64], path[80];
};

static struct place make_place(void)
{
	struct place p = {"/tmp/gannet-test-msg-XXXXXX", ""};

	assert_non_null(mkdtemp(p.dir));
	snprintf(p.path, sizeof(p.path), "%s/results", p.dir);
	return p;
}

static void unmake_place(const struct place *p)
{
	unlink(p->path);
	assert_int_equal(rmdir(p->dir), 0);
}

static void write_text(const struct place *p, const char *text, size_t len)
{
	const int fd = open(p->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	close(fd);
}

static char *read_text(const struct place *p, size_t *len)
{
	struct stat stat;
	const int fd = open(p->path, O_RDONLY);
	char *text;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &stat), 0);
	text = calloc(1, (size_t)stat.st_size + 1);
	assert_non_null(text);
	assert_int_equal(read(fd, text, (size_t)stat.st_size), stat.st_size);
	close(fd);
	*len = (size_t)stat.st_size;
	return text;
}

static struct bench_msg_opts point(uint32_t pending)
{
	return (struct bench_msg_opts){.load = {.provider = "shm", .seconds = 1, .seed = 1},
				       .protocol = GN_MSG_WRITE_WRITE,
				       .nodes = 1,
				       .threads = 1,
				       .pending = pending,
				       .request_bytes = 36,
				       .value_bytes = 365};
}

static void add_point(struct result_file *f, uint32_t pending)
{
	const struct bench_msg_opts opts = point(pending);
	const struct bench_msg_result result = {.requests = pending, .mops = 1};
	char *line = bench_msg_json(&opts, &result);

	assert_non_null(line);
	assert_int_equal(result_file_add(f, line), 0);
	free(line);
}

static bool has_point(const struct result_file *f, const struct bench_msg_opts *opts)
{
	char *identity = bench_msg_identity(opts);
	bool has;

	assert_non_null(identity);
	has = result_file_has(f, identity);
	free(identity);
	return has;
}

static void open_it(struct result_file *f, const struct place *p, bool cut)
{
	char why[BENCH_WHY_MAX] = "";
	bool was_cut;

	if (result_file_open(f, p->path, &was_cut, why))
		fail_msg("%s", why);
	assert_int_equal(was_cut, cut);
}

/* It is refused with a reason that has this word, and is as it was. */
static void refused(const struct place *p, const char *word)
{
	size_t before_len, after_len;
	char *before = read_text(p, &before_len), *after, why[BENCH_WHY_MAX] = "";
	struct result_file f;
	bool cut;

	assert_int_equal(result_file_open(&f, p->path, &cut, why), -EINVAL);
	if (!strstr(why, word) || strchr(why, '\n'))
		fail_msg("%s", why);
	after = read_text(p, &after_len);
	assert_int_equal(after_len, before_len);
	assert_memory_equal(after, before, before_len);
	free(before);
	free(after);
}

static void what_is_there_is_known(void **state)
{
	const struct place p = make_place();
	struct bench_msg_opts other;
	struct result_file f;

	(void)state;
	open_it(&f, &p, false);
	assert_int_equal(f.n, 0);
	for (uint32_t i = 1; i <= 100; i++)
		add_point(&f, i);
	result_file_close(&f);
	open_it(&f, &p, false);
	assert_int_equal(f.n, 100);
	for (uint32_t i = 1; i <= 101; i++) {
		other = point(i);
		assert_int_equal(has_point(&f, &other), i <= 100);
	}
	/* Whatever makes it another point. */
	other = point(7);
	other.load.seed = 2;
	assert_false(has_point(&f, &other));
	other = point(7);
	other.load.seconds = 2;
	assert_false(has_point(&f, &other));
	other = point(7);
	other.load.paper = true;
	assert_false(has_point(&f, &other));
	other = point(7);
	other.resp_threads = 2;
	assert_false(has_point(&f, &other));
	other = point(7);
	other.protocol = GN_MSG_READ;
	assert_false(has_point(&f, &other));
	other = point(7);
	other.topology = BENCH_MSG_1M;
	assert_false(has_point(&f, &other));
	other = point(7);
	other.load.profile = "cx3";
	assert_false(has_point(&f, &other));
	result_file_close(&f);
	unmake_place(&p);
}

/* Wherever the last line ends: the lines before it stay, and no more. */
static void half_a_line(void **state)
{
	const struct place p = make_place();
	size_t len, first, now;
	struct result_file f;
	char *text, *after;

	(void)state;
	open_it(&f, &p, false);
	add_point(&f, 1);
	add_point(&f, 2);
	result_file_close(&f);
	text = read_text(&p, &len);
	first = (size_t)(strchr(text, '\n') - text) + 1;
	for (size_t end = 0; end <= len; end++) {
		const bool whole = end == 0 || end == first || end == len;

		write_text(&p, text, end);
		open_it(&f, &p, !whole);
		assert_int_equal(f.n, end < first ? 0 : end < len ? 1 : 2);
		add_point(&f, 3);
		result_file_close(&f);
		after = read_text(&p, &now);
		assert_memory_equal(after, text, end < first ? 0 : end < len ? first : len);
		assert_int_equal(after[now - 1], '\n');
		free(after);
		open_it(&f, &p, false);
		result_file_close(&f);
	}
	free(text);
	unmake_place(&p);
}

static void not_ours(void **state)
{
	static const char *const texts[] = {
		"hello",
		"hello\n",
		"\n",
		"{\"bench\":\"rpc\",\"requests\":3}\n",
		"{\"bench\":\"msg\",\"version\":\"0.1.0\"}\n",
		"{\"bench\":\"msg\",\"version\":\"0.1.0\",\"requests\":1\n",
		"{\"bench\":\"msg\",\"v\":1,\"requests\":1}\n#\n",
		"{\"bench\":\"msg\",\"v\":1,\"requests\":1}\nx",
	};
	const struct place p = make_place();

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		write_text(&p, texts[i], strlen(texts[i]));
		refused(&p, "name another file");
	}
	write_text(&p, "{\"bench\":\"msg\",\"requests\":1\0}\n", 30);
	refused(&p, "name another file");
	unmake_place(&p);
}

static void one_at_a_time(void **state)
{
	const struct place p = make_place();
	char why[BENCH_WHY_MAX];
	struct result_file f;
	bool cut;

	(void)state;
	open_it(&f, &p, false);
	add_point(&f, 1);
	refused(&p, "in use");
	result_file_close(&f);
	open_it(&f, &p, false);
	result_file_close(&f);
	assert_int_equal(result_file_open(&f, p.dir, &cut, why), -EINVAL);
	assert_int_equal(result_file_open(&f, "/dev/null", &cut, why), -EINVAL);
	assert_int_equal(result_file_open(&f, "/nowhere/at/all", &cut, why), -EINVAL);
	unmake_place(&p);
}

/* A disk that is full, here a file that must not grow: the line is not there, and no part of it. */
static void no_room(void **state)
{
	const struct place p = make_place();
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit limit;
	struct result_file f;
	size_t len, after;
	char *text;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	open_it(&f, &p, false);
	add_point(&f, 1);
	text = read_text(&p, &len);
	free(text);
	limit = (struct rlimit){len + 10, RLIM_INFINITY};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_true(result_file_add(&f, "{\"bench\":\"msg\",\"requests\":1}\n") < 0);
	limit.rlim_cur = len;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_true(result_file_add(&f, "{\"bench\":\"msg\",\"requests\":1}\n") < 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	text = read_text(&p, &after);
	free(text);
	assert_int_equal(after, len);
	add_point(&f, 2);
	result_file_close(&f);
	open_it(&f, &p, false);
	assert_int_equal(f.n, 2);
	result_file_close(&f);
	unmake_place(&p);
}

/* ---- who asks whom, and what ---- */

/* Every responder has as many connections as S003 IV says, each from another requester. */
static void connections(void **state)
{
	static const struct {
		enum bench_msg_topology topology;
		uint32_t nodes, threads, requesters, responders, conns, of_responder;
	} cases[] = {
		{BENCH_MSG_M1, 1, 1, 1, 1, 1, 1},   {BENCH_MSG_M1, 5, 3, 15, 3, 1, 5},
		{BENCH_MSG_1M, 4, 2, 2, 8, 4, 1},   {BENCH_MSG_MM, 2, 1, 2, 2, 1, 1},
		{BENCH_MSG_MM, 4, 3, 12, 12, 3, 3},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct bench_msg_opts o = {.topology = cases[i].topology,
						 .nodes = cases[i].nodes,
						 .threads = cases[i].threads};
		uint32_t from[64] = {0};

		assert_int_equal(bench_msg_requesters(&o), cases[i].requesters);
		assert_int_equal(bench_msg_responders(&o), cases[i].responders);
		assert_int_equal(bench_msg_conns(&o), cases[i].conns);
		for (uint32_t q = 0; q < cases[i].requesters; q++)
			for (uint32_t k = 0; k < cases[i].conns; k++) {
				uint32_t number;
				const uint32_t to = msg_responder_of(&o, q, k, &number);

				assert_true(number < cases[i].of_responder);
				assert_true(to < cases[i].responders);
				assert_int_equal(to % o.threads, q % o.threads);
				if (o.topology == BENCH_MSG_MM)
					assert_int_not_equal(to / o.threads, q / o.threads);
				from[to]++;
			}
		for (uint32_t k = 0; k < cases[i].responders; k++)
			assert_int_equal(from[k], cases[i].of_responder);
	}
}

static void requests_and_values(void **state)
{
	uint8_t request[36] = {0}, value[365];

	(void)state;
	for (uint32_t bytes = 4; bytes <= sizeof(request); bytes++) {
		request_put(request, bytes, 17);
		assert_int_equal(request_get(request, bytes), 17);
		if (bytes < 8)
			continue;
		request[bytes - 1] ^= 1;
		assert_int_equal(request_get(request, bytes), UINT32_MAX);
		request[bytes - 1] ^= 1;
		request[0] ^= 1;
		assert_int_equal(request_get(request, bytes), UINT32_MAX);
	}
	assert_int_equal(request_get(request, 3), UINT32_MAX);
	for (uint32_t bytes = 1; bytes <= sizeof(value); bytes++) {
		pattern_fill(value, bytes, 42);
		assert_true(pattern_matches(value, bytes, 42));
		assert_false(pattern_matches(value, bytes, 43) && bytes > 1);
		if (bytes >= 8) {
			uint64_t ends[2];

			pattern_ends(bytes, 42, ends);
			assert_memory_equal(&ends[0], value, 8);
			assert_memory_equal(&ends[1], value + bytes - 8, 8);
		}
		for (uint32_t i = 0; i < bytes; i++) {
			value[i] ^= 1;
			assert_false(pattern_matches(value, bytes, 42));
			value[i] ^= 1;
		}
	}
}

/* The key of a buffer's next request is another: an old value there does not pass. */
static void keys_change(void **state)
{
	(void)state;
	for (uint32_t pending = 1; pending <= 4096; pending *= 2) {
		uint32_t same = 0;

		for (uint64_t n = 0; n < 10000; n++) {
			assert_true(key_at(n, 64) < 64);
			same += key_at(n, 64) == key_at(n + pending, 64);
		}
		assert_in_range(same, 0, 1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges),	 cmocka_unit_test(impossible),
		cmocka_unit_test(products),	 cmocka_unit_test(what_is_there_is_known),
		cmocka_unit_test(half_a_line),	 cmocka_unit_test(not_ours),
		cmocka_unit_test(one_at_a_time), cmocka_unit_test(no_room),
		cmocka_unit_test(connections),	 cmocka_unit_test(requests_and_values),
		cmocka_unit_test(keys_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
