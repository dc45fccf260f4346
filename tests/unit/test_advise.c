/* SPDX-License-Identifier: MIT */
/*
 * gannet advise without the simulator: a load whose figures are known stands in for it, so that
 * what the search finds, how it ranks it and what it says of it can be told beforehand.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise.h"
#include "unit.h"

/* ---- a load of our own ---- */

/*
 * Figures grow with the requests under way up to knee, and stay there, or fall by a tenth with
 * each doubling. Each is the most of a protocol with so many threads; less is said by the tests.
 */
struct made {
	double most[GN_MSG_PROTOCOLS];	       /* M/s; 0: impossible */
	double most_threads[GN_MSG_PROTOCOLS]; /* with more than one thread; 0: the same */
	unsigned knee;
	bool falls;
	double write_part; /* of the most, for writes */
	double base_us;
	int stop_after; /* runs; 0: never */
};

static struct made made;
static volatile sig_atomic_t interrupted;
static unsigned runs, runs_threads_max;

static double rate_of(enum gn_msg_protocol protocol, unsigned threads, unsigned pending,
		      bool writes)
{
	double most = made.most[protocol];

	if (threads > 1 && made.most_threads[protocol] > 0)
		most = made.most_threads[protocol];
	if (writes)
		most *= made.write_part;
	if (pending < made.knee)
		return most * pending / made.knee;
	for (unsigned r = made.knee; made.falls && r < pending; r *= 2)
		most *= 0.9;
	return most;
}

static int made_run(const struct bench_msg_opts *o, bench_progress_fn *progress,
		    struct bench_msg_result *out)
{
	double mops;

	assert_null(progress);
	assert_string_equal(o->load.provider, "sim");
	assert_string_equal(o->load.profile, "ideal");
	assert_int_equal(o->load.paper, 0);
	runs++;
	if (o->threads > runs_threads_max)
		runs_threads_max = o->threads;
	*out = (struct bench_msg_result){.requests = 0};
	if (made.stop_after && runs == (unsigned)made.stop_after) {
		interrupted = 1;
		return -EINTR;
	}
	if (!(made.most[o->protocol] > 0)) {
		snprintf(out->error, sizeof(out->error), "%s is not there",
			 gn_msg_protocol_str(o->protocol));
		return -EINVAL;
	}
	mops = rate_of(o->protocol, o->threads, o->pending, o->value_bytes == 8);
	out->mops = mops;
	out->latency_us_mean = made.base_us + (double)o->pending / mops;
	out->p99_us = made.base_us + 2 * (double)o->pending / mops;
	return 0;
}

static const struct advise_env env = {.msg = made_run, .interrupted = &interrupted};

static struct advise_query question(void)
{
	interrupted = 0;
	runs = runs_threads_max = 0;
	made = (struct made){
		.most = {[GN_MSG_SEND_SEND] = 6,
			 [GN_MSG_SEND_WRITE] = 7,
			 [GN_MSG_WRITE_SEND] = 8,
			 [GN_MSG_WRITE_WRITE] = 9,
			 [GN_MSG_READ] = 12,
			 [GN_MSG_WRITE_IMM] = 6.5,
			 [GN_MSG_UD] = 5},
		.knee = 32,
		.write_part = 0.5,
		.base_us = 2,
	};
	return (struct advise_query){
		.topology = BENCH_MSG_M1,
		.nodes = 28,
		.threads_min = 1,
		.threads_max = 1,
		.request = 36,
		.value = 1000,
		.read_pct = 100,
		.protocols = ADVISE_ALL_PROTOCOLS,
		.datagrams = true,
		.pending_max = ADVISE_PENDING_MAX,
		.profile = "ideal",
		.seed = 1,
		.effort = 1,
		.jobs = 1,
	};
}

static struct advise_answer ask(const struct advise_query *q)
{
	struct advise_answer answer;
	char why[BENCH_WHY_MAX] = "";
	const int rc = advise_run(&env, q, &answer, why);

	if (rc)
		print_message("# %s\n", why);
	assert_int_equal(rc, 0);
	return answer;
}

/* What is printed; to be freed. */
static char *words(const struct advise_answer *answer)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	advise_print(f, answer);
	fclose(f);
	return text;
}

static void assert_says(const struct advise_answer *answer, const char *wanted)
{
	char *text = words(answer);

	if (!strstr(text, wanted))
		print_message("# '%s' is not in:\n%s", wanted, text);
	assert_non_null(strstr(text, wanted));
	free(text);
}

static void assert_begins(const struct advise_answer *answer, const char *wanted)
{
	char *text = words(answer);

	if (strncmp(text, wanted, strlen(wanted)))
		print_message("# '%s' does not begin:\n%s", wanted, text);
	assert_memory_equal(text, wanted, strlen(wanted));
	free(text);
}

static const struct advise_variant *variant(const struct advise_answer *a, const char *label)
{
	for (unsigned i = 0; i < a->n_variants; i++)
		if (strstr(a->variant[i].label, label))
			return &a->variant[i];
	fail_msg("no variant '%s'", label);
	return NULL;
}

/* ---- what is best ---- */

static void order(void **state)
{
	static const enum gn_msg_protocol wanted[] = {
		GN_MSG_READ,	  GN_MSG_WRITE_WRITE, GN_MSG_WRITE_SEND, GN_MSG_SEND_WRITE,
		GN_MSG_WRITE_IMM, GN_MSG_SEND_SEND,   GN_MSG_UD};
	const struct advise_query q = question();
	struct advise_answer a = ask(&q);

	(void)state;
	assert_int_equal(a.result.n, GN_MSG_PROTOCOLS);
	assert_int_equal(a.result.n_equal, 0);
	for (unsigned i = 0; i < GN_MSG_PROTOCOLS; i++)
		assert_int_equal(a.result.candidate[i].protocol, wanted[i]);
	/* As few under way as do it: the knee. */
	assert_int_equal(a.result.candidate[0].pending, 32);
	assert_true(fabs(a.result.candidate[0].mops - 12) < 1e-9);
	assert_true(fabs(a.result.candidate[0].gbps - 96) < 1e-9);
	assert_true(a.result.candidate[0].long_run);
	assert_false(a.result.candidate[6].long_run);
	assert_begins(&a, "READ: 96.0 Gbps of values (12.00 M/s), simulated; the next best, "
			  "WRITE/WRITE, has 25 % less.\n");
	assert_says(&a, "1 on each client node, 28 on the server node");
	assert_says(&a, "fetch size  1000 B");
	advise_free(&a);
}

static void peak_inside(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;

	(void)state;
	made.knee = 8;
	made.falls = true;
	q.brief = true;
	a = ask(&q);
	assert_int_equal(a.result.candidate[0].pending, 8);
	assert_int_equal(a.n_variants, 0);
	advise_free(&a);
	q = question();
	made.knee = 1;
	made.falls = true;
	a = ask(&q);
	assert_int_equal(a.result.candidate[0].pending, 1);
	advise_free(&a);
}

/* Nearer than three per cent is equal, and the simpler one is taken. */
static void ties(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;

	(void)state;
	made.most[GN_MSG_READ] = 1;
	made.most[GN_MSG_WRITE_WRITE] = 9.8;
	made.most[GN_MSG_SEND_WRITE] = 10;
	made.most[GN_MSG_UD] = 9.9;
	a = ask(&q);
	assert_int_equal(a.result.candidate[0].protocol, GN_MSG_WRITE_WRITE);
	assert_int_equal(a.result.n_equal, 2);
	assert_begins(&a, "WRITE/WRITE: ");
	assert_says(&a, "SEND/WRITE and UD are as good and more complex.\n");
	advise_free(&a);
	q = question();
	made.most[GN_MSG_WRITE_WRITE] = 11.6; /* of 12 */
	a = ask(&q);
	assert_int_equal(a.result.n_equal, 0);
	advise_free(&a);
}

/* Datagrams are mentioned, and not chosen unless asked for. */
static void datagrams(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;

	(void)state;
	made.most[GN_MSG_UD] = 18;
	q.brief = true;
	a = ask(&q);
	assert_begins(&a, "UD: ");
	advise_free(&a);
	q.datagrams = false;
	a = ask(&q);
	assert_begins(&a, "READ: ");
	assert_int_equal(a.result.candidate[6].protocol, GN_MSG_UD);
	assert_says(&a, "UD would have 50 % more");
	advise_free(&a);
	made.most[GN_MSG_UD] = 12;
	a = ask(&q);
	assert_int_equal(a.result.n_equal, 0);
	assert_says(&a, "the next best, WRITE/WRITE");
	advise_free(&a);
}

/* ---- limits ---- */

static void latency(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;

	(void)state;
	/* READ: 2 + 2 * 32 / 12 us at the knee, and as much with any less. */
	q.latency_us = 7.4;
	q.brief = true;
	a = ask(&q);
	assert_int_equal(a.result.candidate[0].protocol, GN_MSG_READ);
	assert_false(a.result.candidate[0].late);
	assert_int_equal(a.result.candidate[0].pending, 32);
	assert_true(a.result.candidate[1].late);
	assert_begins(&a, "READ: ");
	assert_says(&a, "no other keeps the limit, WRITE/WRITE comes closest with 9.1 us");
	advise_free(&a);
	q.latency_us = 2;
	a = ask(&q);
	assert_true(a.result.candidate[0].late);
	assert_begins(&a, "None keeps 2 us: READ comes closest with 7.3 us for 99 of 100, ");
	advise_free(&a);
}

static void impossible(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;
	char why[BENCH_WHY_MAX];

	(void)state;
	made.most[GN_MSG_UD] = 0;
	a = ask(&q);
	assert_int_equal(a.result.n, GN_MSG_PROTOCOLS);
	assert_string_equal(a.result.candidate[6].impossible, "UD is not there");
	assert_says(&a, "not possible: UD is not there");
	advise_free(&a);
	q = question();
	memset(made.most, 0, sizeof(made.most));
	assert_int_equal(advise_run(&env, &q, &a, why), -EIO);
	assert_non_null(strstr(why, "is not there"));
	advise_free(&a);
}

static void refused(void **state)
{
	static const struct {
		unsigned nodes, threads, request, value, read_pct, protocols;
		enum bench_msg_topology topology;
		const char *why;
	} bad[] = {
		{1, 1, 36, 365, 100, ADVISE_ALL_PROTOCOLS, BENCH_MSG_MM, "M:M needs two"},
		{128, 16, 36, 365, 100, ADVISE_ALL_PROTOCOLS, BENCH_MSG_MM, "connections"},
		{4, 1, 36, 2u << 20, 100, ADVISE_ALL_PROTOCOLS, BENCH_MSG_M1, "--value 2097152 is"},
		{4, 1, 2u << 20, 36, 100, ADVISE_ALL_PROTOCOLS, BENCH_MSG_M1,
		 "--request 2097152 is"},
		{4, 1, 64, 1u << 20, 50, ADVISE_ALL_PROTOCOLS, BENCH_MSG_M1, "for a write"},
		{4, 1, 36, 365, 50, 1u << GN_MSG_READ, BENCH_MSG_M1, "cannot write"},
		{128, 16, 36, 1u << 20, 100, ADVISE_ALL_PROTOCOLS, BENCH_MSG_M1, "fewer nodes"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct advise_query q = question();
		char why[BENCH_WHY_MAX] = "";

		q.topology = bad[i].topology;
		q.nodes = bad[i].nodes;
		q.threads_min = q.threads_max = bad[i].threads;
		q.request = bad[i].request;
		q.value = bad[i].value;
		q.read_pct = bad[i].read_pct;
		q.protocols = bad[i].protocols;
		assert_int_equal(advise_check(&q, why), -EINVAL);
		if (!strstr(why, bad[i].why))
			fail_msg("'%s' is not in '%s'", bad[i].why, why);
	}
}

/* ---- reads and writes ---- */

static void writes(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;

	(void)state;
	q.read_pct = 50;
	q.brief = true;
	a = ask(&q);
	/* READ 12 and WRITE/WRITE's writes 4.5: half each. */
	assert_int_equal(a.result.candidate[0].protocol, GN_MSG_READ);
	assert_int_equal(a.result.candidate[0].writer, GN_MSG_WRITE_WRITE);
	assert_true(fabs(a.result.candidate[0].mops - 1 / (0.5 / 12 + 0.5 / 4.5)) < 1e-9);
	assert_begins(&a, "READ for reads and WRITE/WRITE for writes: ");
	for (unsigned i = 1; i < a.result.n; i++)
		assert_int_not_equal(a.result.candidate[i].protocol, GN_MSG_READ);
	advise_free(&a);
	q.read_pct = 0;
	a = ask(&q);
	assert_int_equal(a.result.n, GN_MSG_PROTOCOLS - 1);
	assert_begins(&a, "WRITE/WRITE: ");
	assert_true(fabs(a.result.candidate[0].mops - 4.5) < 1e-9);
	advise_free(&a);
	/* Almost only writes: two protocols are not worth the while. */
	q.read_pct = 2;
	a = ask(&q);
	assert_begins(&a, "WRITE/WRITE: ");
	assert_says(&a, "READ for reads and WRITE/WRITE for writes is as good and more complex");
	advise_free(&a);
}

/* ---- threads, variants ---- */

static void threads(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;

	(void)state;
	q.topology = BENCH_MSG_MM;
	q.threads_max = 16;
	q.brief = true;
	made.most_threads[GN_MSG_READ] = 1;
	a = ask(&q);
	assert_int_equal(a.result.candidate[0].protocol, GN_MSG_READ);
	assert_int_equal(a.result.candidate[0].threads, 1);
	/* Two numbers of threads in without_gain are enough. */
	assert_int_equal(runs_threads_max, 4);
	assert_says(&a, "54 on each node");
	advise_free(&a);
	q = question();
	q.topology = BENCH_MSG_1M;
	q.threads_max = 16;
	q.brief = true;
	made.most_threads[GN_MSG_SEND_WRITE] = 20;
	a = ask(&q);
	assert_int_equal(a.result.candidate[0].protocol, GN_MSG_SEND_WRITE);
	assert_int_equal(a.result.candidate[0].threads, 2);
	assert_says(&a, "56 on the client node, 2 on each server node");
	advise_free(&a);
}

static void changes(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;
	const struct advise_variant *n;

	(void)state;
	made.most_threads[GN_MSG_READ] = 1;
	a = ask(&q);
	assert_int_equal(a.n_variants, 6);
	n = variant(&a, "8 threads instead of 1");
	assert_true(n->changes);
	assert_false(n->better);
	assert_int_equal(n->result.candidate[0].protocol, GN_MSG_WRITE_WRITE);
	assert_false(variant(&a, "twice the nodes (56)")->changes);
	assert_false(variant(&a, "half the nodes (14)")->changes);
	assert_false(variant(&a, "values of 4096 bytes")->changes);
	assert_false(variant(&a, "1 outstanding request")->changes);
	n = variant(&a, "50 % reads");
	assert_true(n->changes);
	assert_int_equal(n->result.candidate[0].writer, GN_MSG_WRITE_WRITE);
	assert_says(&a, "What would change the answer");
	assert_says(&a, "  8 threads instead of 1: WRITE/WRITE, 72.0 Gbps of values (9.00 M/s); "
			"READ 89 % less\n");
	advise_free(&a);
	/* The other way round: fewer threads would be better. */
	q = question();
	q.threads_min = q.threads_max = 8;
	made.most_threads[GN_MSG_READ] = 1;
	a = ask(&q);
	n = variant(&a, "1 thread instead of 8");
	assert_true(n->changes && n->better);
	assert_says(&a, "If you can, use 1 thread: that has 33 % more.");
	advise_free(&a);
}

/* ---- the search itself ---- */

static void assert_same(const struct advise_answer *a, const struct advise_answer *b)
{
	char *one = words(a), *two = words(b);

	assert_string_equal(one, two);
	free(one);
	free(two);
}

static void processes(void **state)
{
	struct advise_query q = question();
	struct advise_answer one, three;

	(void)state;
	one = ask(&q);
	q.jobs = 3;
	three = ask(&q);
	assert_same(&one, &three);
	advise_free(&one);
	advise_free(&three);
}

static void few_runs(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;

	(void)state;
	q.brief = true;
	a = ask(&q);
	assert_int_equal(a.runs, runs);
	assert_in_range(runs, 5 * GN_MSG_PROTOCOLS, 7 * GN_MSG_PROTOCOLS + 4);
	advise_free(&a);
}

static void interrupts(void **state)
{
	struct advise_query q = question();
	struct advise_answer a;
	char why[BENCH_WHY_MAX];

	(void)state;
	made.stop_after = 1;
	assert_int_equal(advise_run(&env, &q, &a, why), -EINTR);
	assert_true(a.unfinished);
	assert_begins(&a, "Interrupted before anything was known.\n");
	advise_free(&a);
	q = question();
	made.stop_after = 40; /* some sweeps are complete */
	assert_int_equal(advise_run(&env, &q, &a, why), -EINTR);
	assert_begins(&a, "Interrupted; so far: READ: ");
	advise_free(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order),      cmocka_unit_test(peak_inside),
		cmocka_unit_test(ties),	      cmocka_unit_test(latency),
		cmocka_unit_test(impossible), cmocka_unit_test(refused),
		cmocka_unit_test(writes),     cmocka_unit_test(threads),
		cmocka_unit_test(changes),    cmocka_unit_test(processes),
		cmocka_unit_test(few_runs),   cmocka_unit_test(interrupts),
		cmocka_unit_test(datagrams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
