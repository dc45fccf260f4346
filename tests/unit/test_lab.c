/* SPDX-License-Identifier: MIT */
/*
 * The list of figures: reading it, and the rule of each operator, on a layer whose figures are
 * known. And that the list in the command is the file, byte for byte.
 */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "figure.h"
#include "figure_run.h"
#include "lab_config.h"
#include "score.h"

#define HEAD \
	"id\tkind\tlayer\tprofile\tpreset\tconfig\tmetric\tunit\top\tvalue\ttol_pct\trun\tsource\tnote\n"

/* ---- configurations ---- */

static void assert_config(const struct config *config, const char *wanted)
{
	char text[CONFIG_TEXT_MAX];

	config_text(config, text, sizeof(text));
	assert_string_equal(text, wanted);
}

static void configurations(void **state)
{
	struct config c = make("size=32;op=READ;over=op:WRITE,dir:out");
	struct lab_error error;
	uint64_t n;

	(void)state;
	assert_string_equal(config_get(&c, "op"), "READ");
	assert_null(config_get(&c, "dir"));
	assert_true(config_is(&c, "size", "32"));
	assert_int_equal(config_uint(&c, "size", 1, 1, 64, &n, &error), 0);
	assert_int_equal(n, 32);
	assert_int_equal(config_uint(&c, "absent", 7, 1, 64, &n, &error), 0);
	assert_int_equal(n, 7);
	assert_int_equal(config_uint(&c, "size", 1, 1, 31, &n, &error), -EINVAL);
	assert_string_equal(error.text, "size=32 is not a number of 1 to 31");
	assert_int_equal(config_change(&c, "op:WRITE,dir:out", &error), 0);
	config_drop(&c, "over");
	assert_config(&c, "dir=out;op=WRITE;size=32");
	config_drop(&c, "absent");
	c = make("-");
	assert_config(&c, "");
}

static void bad_configurations(void **state)
{
	static const char *const bad[][2] = {
		{"op", "'op' is not key=value"},    {"op=", "op has a value of 0 characters"},
		{"=x", "a key of 0 characters"},    {"op=a;", "'' is not key=value"},
		{"op=a;op=b", "op is there twice"}, {"", "'' is not key=value"},
	};
	struct lab_error error;
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(config_parse(&c, bad[i][0], strlen(bad[i][0]), &error), -EINVAL);
		if (strncmp(error.text, bad[i][1], strlen(bad[i][1])))
			fail_msg("'%s' instead of '%s'", error.text, bad[i][1]);
	}
}

/* ---- the list ---- */

static void malformed_lines(void **state)
{
#define GOOD "A1a\tC\tfake\tcard\t-\tx=1\tmops\tM\t=\t1\t5\tyes\ts\tn\n"
	static const char *const bad[][2] = {
		{"A1a\tC\tfake\n", "line 2: 3 fields instead of 14"},
		{"A1a\tQ\tfake\tcard\t-\tx=1\tmops\tM\t=\t1\t5\tyes\ts\tn\n", "line 2: kind: 'Q'"},
		{"A1a\tC\tfake\tcard\t-\tx\tmops\tM\t=\t1\t5\tyes\ts\tn\n", "line 2: config: 'x'"},
		{"A1a\tC\tfake\tcard\t-\tx=1\tmops\tM\t~\t1\t5\tyes\ts\tn\n", "line 2: op: '~'"},
		{"A1a\tC\tfake\tcard\t-\tx=1\tmops\tM\t=\t1x\t5\tyes\ts\tn\n",
		 "line 2: value: '1x'"},
		{"A1a\tC\tfake\tcard\t-\tx=1\tmops\tM\t=\tnan\t5\tyes\ts\tn\n",
		 "line 2: value: 'nan'"},
		{"A1a\tC\tfake\tcard\t-\tx=1\tmops\tM\t=\t1\t-5\tyes\ts\tn\n",
		 "line 2: tol_pct: '-5'"},
		{"A1a\tC\tfake\tcard\t-\tx=1\tmops\tM\t=\t1\t5\tno\ts\tn\n", "line 2: run: 'no'"},
		{"A1a\tC\tfake\tcard\t-\tx=1\tmops\tM\t=\t1\t5\tyes\t\tn\n",
		 "line 2: source: is empty"},
		{GOOD "# comment\n" GOOD, "line 4: id: A1a is there twice"},
		{"A1a\tC\tfake\tcard\t-\tover=A9;of=m\tratio\tM\t=\t1\t5\tyes\ts\tn\n",
		 "line 2: config: over=A9 is neither"},
		{"A1a\tC\tfake\tcard\t-\tvary=x\tmops_max\tM\t=\t1\t5\tyes\ts\tn\n",
		 "line 2: config: vary=x is not"},
		{"A1a\tC\tfake\tcard\t-\tof=m\tpeak_at\tM\tpeak\t1\t0\tyes\ts\tn\n",
		 "line 2: config: a peak needs vary="},
		{"A1a\tC\tfake\tcard\t-\tof=m\torder\tM\torder\ta,b\t0\tyes\ts\tn\n",
		 "line 2: config: an order needs among="},
		{"A1a\tC\tfake\tcard\t-\tof=m;among=x\torder\tM\torder\ta\t0\tyes\ts\tn\n",
		 "line 2: value: 'a' is no list"},
		{"A1a\tC\tfake\tcard\t-\tof=m;among=line\torder\tM\torder\tself,A7\t0\tyes\ts\tn\n",
		 "line 2: value: there is no line 'A7'"},
		{"# nothing\n", "no lines"},
	};
	char text[1024];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct lab_error error = {""};
		struct paper paper;

		snprintf(text, sizeof(text), HEAD "%s", bad[i][0]);
		assert_int_equal(paper_parse(&paper, text, strlen(text), &error), -EINVAL);
		if (strncmp(error.text, bad[i][1], strlen(bad[i][1])))
			fail_msg("'%s' instead of '%s'", error.text, bad[i][1]);
		assert_null(paper.lines);
	}
}

/* What the command has in it is the file; and all of the file is understood. */
static void embedded(void **state)
{
	const size_t len = (size_t)(lab_paper_data_end - lab_paper_data);
	const char *source = getenv("GANNET_SOURCE");
	char path[4096];
	char *text = malloc(len + 2);
	struct lab_error error = {""};
	struct fit_line fits[FIT_LINES_MAX];
	struct paper paper;
	unsigned fabric = 0;
	FILE *f;

	(void)state;
	assert_non_null(source);
	snprintf(path, sizeof(path), "%s/data/paper.tsv", source);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_non_null(text);
	assert_int_equal(fread(text, 1, len + 2, f), len);
	assert_memory_equal(text, lab_paper_data, len);
	fclose(f);
	free(text);
	if (paper_parse(&paper, lab_paper_data, len, &error))
		fail_msg("%s", error.text);
	for (unsigned i = 0; i < paper.n; i++)
		fabric += !strcmp(paper.lines[i].layer, "fabric") && !paper.lines[i].no &&
			  paper.lines[i].kind == 'C';
	assert_int_equal(fabric, 42);
	assert_non_null(paper_find(&paper, "C26b"));
	assert_null(paper_find(&paper, "C26"));
	paper_free(&paper);
	assert_true(fit_parse(fits, lab_fit_data, (size_t)(lab_fit_data_end - lab_fit_data),
			      &error) >= 0);
}

static void fits(void **state)
{
	static const char text[] = "profile\tparameters\tlines\tloo_median_pct\tloo_max_pct\n"
				   "# comment\ncx3\t9\t31\t1.5\t4.25\n";
	static const char bad[] = "cx3\t9\t31\t1.5\n";
	struct fit_line fit[FIT_LINES_MAX];
	struct lab_error error;

	(void)state;
	assert_int_equal(fit_parse(fit, text, sizeof(text) - 1, &error), 1);
	assert_string_equal(fit[0].profile, "cx3");
	assert_int_equal(fit[0].parameters, 9);
	assert_int_equal(fit[0].lines, 31);
	assert_true(fit[0].loo_median_pct == 1.5 && fit[0].loo_max_pct == 4.25);
	assert_int_equal(fit_parse(fit, bad, sizeof(bad) - 1, &error), -EINVAL);
}

/* ---- the evaluator, on a layer whose figures are known ---- */

static unsigned fake_runs;

/*
 * mops = 10 x, latency_us_mean = x, p50_us = 100 - x; and with curve= a value that rises to its
 * fourth point and falls. With broken= it fails.
 */
static int fake_run(const struct lab_setup *setup, const struct config *config,
		    struct lab_metrics *out, struct lab_error *error)
{
	const char *protocol = config_get(config, "protocol");
	uint64_t x, threads, factor = 1;

	fake_runs++;
	if (config_get(config, "broken"))
		return lab_error(error, "broken=%s", config_get(config, "broken"));
	if (config_uint(config, "x", 1, 0, 1000, &x, error) ||
	    config_uint(config, "server_threads", 1, 1, 64, &threads, error))
		return -EINVAL;
	if (protocol)
		factor = !strncmp(protocol, "WRITE", 5) ? 2 : !strcmp(protocol, "READ") ? 3 : 1;
	if (!strcmp(setup->profile, "fast"))
		factor = 7;
	lab_metric_add(out, "mops", 10.0 * (double)(x * factor));
	lab_metric_add(out, "latency_us_mean", (double)x);
	lab_metric_add(out, "p50_us", 100 - (double)x);
	lab_metric_add(out, "curve", 16 - ((double)x - 4) * ((double)x - 4));
	lab_metric_add(out, "best", 8 - fabs((double)threads - 8));
	lab_metric_add(out, "mops_per_node", 20);
	return 0;
}

static const struct lab_layer fake_layers[] = {
	{"fake", fake_run},
	{"fabric", fake_run},
	{NULL, NULL},
};

/* Evaluates the last of the lines given. */
static struct figure eval(const char *lines)
{
	char text[4096];
	struct lab_error error = {""};
	struct figure_env env = {.layers = fake_layers, .seed = 1, .effort = 1};
	struct figure figure;
	struct paper paper;

	snprintf(text, sizeof(text), HEAD "%s", lines);
	if (paper_parse(&paper, text, strlen(text), &error))
		fail_msg("%s", error.text);
	env.paper = &paper;
	fake_runs = 0;
	assert_int_equal(figure_eval(&env, &paper.lines[paper.n - 1], &figure), 0);
	figure_forget(&env);
	paper_free(&paper);
	return figure;
}

#define LINE(config, metric, op, value, tol) \
	"A1a\tC\tfake\tcard\t-\t" config "\t" metric "\tu\t" op "\t" value "\t" tol "\tyes\ts\tn\n"

static void assert_figure(const char *lines, double simulated, bool hit)
{
	const struct figure f = eval(lines);

	if (f.status != FIGURE_MEASURED)
		fail_msg("%s: %s: %s", lines, figure_status_text(f.status), f.reason);
	if (fabs(f.simulated - simulated) > 1e-9 || f.hit != hit)
		fail_msg("%s: %g, %s", lines, f.simulated, f.hit ? "hit" : "miss");
}

static void scalars(void **state)
{
	(void)state;
	assert_figure(LINE("x=5", "mops", "=", "50", "5"), 50, true);
	assert_figure(LINE("x=5", "mops", "=", "47.7", "5"), 50, true);
	assert_figure(LINE("x=5", "mops", "=", "47.5", "5"), 50, false);
	assert_figure(LINE("x=5", "mops", "<=", "50", "0"), 50, true);
	assert_figure(LINE("x=5", "mops", "<=", "49.9", "0"), 50, false);
	assert_figure(LINE("x=5", "mops", ">=", "50.1", "0"), 50, false);
	assert_true(fabs(eval(LINE("x=5", "mops", "=", "40", "5")).error_pct - 25) < 1e-9);
	assert_true(isnan(eval(LINE("x=5", "mops", "<=", "40", "0")).error_pct));
	assert_figure(LINE("x=5;over=x:2;of=mops", "ratio", "=", "2.5", "5"), 2.5, true);
	assert_figure(LINE("x=5;over=x:2;of=mops", "delta", "=", "30", "5"), 30, true);
	assert_figure(LINE("server_threads=best", "best", "=", "8", "5"), 8, true);
	assert_int_equal(fake_runs, 5);
}

static void others_lines(void **state)
{
	(void)state;
	assert_figure("B1a\tC\tfake\tcard\t-\tx=4\tmops\tu\t=\t1\t5\tyes\ts\tn\n" LINE(
			      "x=2;over=B1a;of=mops", "ratio", "=", "0.5", "5"),
		      0.5, true);
	assert_figure(LINE("x=4;over=READ6;of=mops", "ratio", "=", "2", "5"), 2, true);
	assert_figure(LINE("x=4;over=READ6x2;of=mops", "ratio", "=", "4", "5"), 4, true);
}

static void sweeps(void **state)
{
	(void)state;
	assert_figure(LINE("vary=x:1,9,3", "mops_max", "=", "90", "5"), 90, true);
	assert_figure(LINE("vary=x:3,2,9", "mops_min", "=", "20", "5"), 20, true);
	assert_figure(LINE("vary=x:2,4,8;over=x:1;of=mops", "ratio_max", "=", "8", "5"), 8, true);
	assert_figure(LINE("vary=x:2,4,8;over=x:1;of=mops", "ratio_min", "=", "2", "5"), 2, true);
	assert_figure(LINE("vary=x:8,3,2", "drop_mops", "=", "4", "5"), 4, true);
	assert_figure(LINE("vary=x:2,4,8;limit_us=5", "mops_at_latency", "=", "50", "5"), 50, true);
	assert_figure(LINE("protocol=READ;over=protocol:rest;of=mops", "ratio_max", "=", "3", "5"),
		      3, true);
	assert_figure(
		LINE("protocol=READ;over=protocol:rest;of=mops", "ratio_min", "=", "1.5", "5"), 1.5,
		true);
	assert_figure(LINE("vary=x:1,2,8;over=protocol:READ;of=mops_max", "ratio", "=", "1", "5"),
		      1.0 / 3, false);
}

static void peaks(void **state)
{
	(void)state;
	assert_figure(LINE("vary=x:1,2,4,6;of=curve", "peak_at", "peak", "4", "0"), 4, true);
	/* 15 is less than 95 % of 16. */
	assert_figure(LINE("vary=x:1,3,4,6;of=curve", "peak_at", "peak", "3", "0"), 4, false);
	/* 990 is more than 95 % of 1000. */
	assert_figure(LINE("vary=x:1,99,100;of=mops", "peak_at", "peak", "99", "0"), 100, true);
	assert_int_equal(eval(LINE("vary=x:1,2;of=mops", "peak_at", "peak", "3", "0")).status,
			 FIGURE_FAILED);
}

static void equal_points(void **state)
{
	(void)state;
	/* 97 is within 5 % of 100, but 9 comes after it. */
	assert_figure(LINE("vary=x:3,97,9,98,102;over=x:100;of=mops", "equal_from", "=", "98", "5"),
		      98, true);
	assert_figure(
		LINE("vary=x:3,97,9,98,102;over=x:100;of=mops", "equal_from", "<=", "97", "0"), 98,
		false);
	assert_true(isinf(eval(LINE("vary=x:3,4;over=x:100;of=mops", "equal_from", ">=", "3", "0"))
				  .simulated));
	assert_true(eval(LINE("vary=x:3,4;over=x:100;of=mops", "equal_from", ">=", "3", "0")).hit);
	assert_false(eval(LINE("vary=x:3,4;over=x:100;of=mops", "equal_from", "<=", "3", "0")).hit);
}

static void assert_order(const char *lines, unsigned n, const double *list, bool hit)
{
	const struct figure f = eval(lines);

	if (f.status != FIGURE_MEASURED || f.hit != hit || f.n_list != n)
		fail_msg("%s: %s %s, %u figures, %s", lines, figure_status_text(f.status), f.reason,
			 f.n_list, f.hit ? "hit" : "miss");
	for (unsigned i = 0; i < n; i++)
		assert_true(fabs(f.list[i] - list[i]) < 1e-9);
}

static void orders(void **state)
{
	(void)state;
	assert_order(LINE("among=x;of=mops", "order", "order", "9,4,1", "0"), 3,
		     (double[]){90, 40, 10}, true);
	assert_order(LINE("among=x;of=mops", "order", "order", "9,1,4", "0"), 3,
		     (double[]){90, 10, 40}, false);
	/* Strictly: the same twice is no order. */
	assert_order(LINE("among=y;of=mops", "order", "order", "a,b", "0"), 2, (double[]){10, 10},
		     false);
	/* Of times the smallest is best, but of their ratios the largest. */
	assert_order(LINE("among=x;of=latency_us_mean", "order", "order", "1,4,9", "0"), 3,
		     (double[]){1, 4, 9}, true);
	assert_order(LINE("among=x;of=latency_us_mean;over=x:2", "order", "order", "4,1", "0"), 2,
		     (double[]){2, 0.5}, true);
	assert_order(LINE("x=2;among=profile;of=mops", "order", "order", "fast,card", "0"), 2,
		     (double[]){140, 20}, true);
	assert_order(LINE("among=x;of=gain_p50_us", "order", "order", "4,40", "0"), 2,
		     (double[]){92.0 / 96, 20.0 / 60}, true);
	assert_order("B1a\tC\tfake\tcard\t-\tx=4\tmops\tu\t=\t1\t5\tyes\ts\tn\n" LINE(
			     "x=3;among=line;of=mops", "order", "order", "B1a,self", "0"),
		     2, (double[]){40, 30}, true);
}

static void groups(void **state)
{
	(void)state;
	assert_order(
		LINE("x=1;among=protocol;of=mops", "order", "order", "READ,WRITE/x,SEND/x", "0"), 5,
		(double[]){30, 20, 20, 10, 10}, true);
	assert_order(LINE("x=1;among=protocol;of=mops", "order", "order", "READ,rest", "0"), 5,
		     (double[]){30, 10, 10, 20, 20}, true);
	/* x/WRITE has a member that is no better than one of x/SEND. */
	assert_order(LINE("x=1;among=protocol;of=mops", "order", "order", "x/WRITE,x/SEND", "0"), 4,
		     (double[]){10, 20, 10, 20}, false);
	assert_order(LINE("protocol=WRITE/x;among=x;of=mops", "order", "order", "2,1", "0"), 4,
		     (double[]){40, 20, 40, 20}, true);
	assert_true(setting_is_group("protocol", "x/SEND"));
	assert_false(setting_is_group("protocol", "READ"));
	assert_false(setting_is_group("mode", "rest"));
}

static void other_statuses(void **state)
{
	struct figure f;

	(void)state;
	f = eval("A1a\tC\tlater\tcard\t-\tx=1\tmops\tu\t=\t1\t5\tyes\ts\tn\n");
	assert_int_equal(f.status, FIGURE_WAITING);
	f = eval("A1a\tC\tfake\tcard\t-\tx=1\tmops\tu\t=\t1\t5\tno:because\ts\tn\n");
	assert_int_equal(f.status, FIGURE_NO);
	assert_string_equal(f.reason, "because");
	assert_int_equal(fake_runs, 0);
	f = eval(LINE("broken=leg", "mops", "=", "1", "5"));
	assert_int_equal(f.status, FIGURE_FAILED);
	assert_string_equal(f.reason, "broken=leg");
	assert_false(f.hit);
	f = eval(LINE("x=1", "nonsense", "=", "1", "5"));
	assert_int_equal(f.status, FIGURE_FAILED);
	assert_non_null(strstr(f.reason, "'nonsense'"));
	/* A line that needs one that waits, waits. */
	f = eval("B1a\tC\tlater\tcard\t-\tx=4\tmops\tu\t=\t1\t5\tyes\ts\tn\n" LINE(
		"x=2;over=B1a;of=mops", "ratio", "=", "0.5", "5"));
	assert_int_equal(f.status, FIGURE_WAITING);
}

/* Equal configurations run once, however their keys are ordered. */
static void runs_once(void **state)
{
	(void)state;
	eval(LINE("x=2;y=1;over=y:1,x:2;of=mops", "ratio", "=", "1", "5"));
	assert_int_equal(fake_runs, 1);
	eval(LINE("x=2;vary=x:1,2,3,2;of=mops", "mops_max", "=", "30", "5"));
	assert_int_equal(fake_runs, 3);
}

/* ---- the score ---- */

static struct score score_of(unsigned within, unsigned off, double off_pct, unsigned right,
			     unsigned wrong)
{
	const struct paper_line equal = {.op = PAPER_EQUAL}, bound = {.op = PAPER_AT_MOST};
	const struct figure hit = {.hit = true, .error_pct = -3}, miss = {.error_pct = off_pct};
	const struct figure no = {.status = FIGURE_NO};
	struct score s = {0};

	for (unsigned i = 0; i < within; i++)
		score_add(&s, &equal, &hit);
	for (unsigned i = 0; i < off; i++)
		score_add(&s, &equal, &miss);
	for (unsigned i = 0; i < right; i++)
		score_add(&s, &bound, &hit);
	for (unsigned i = 0; i < wrong; i++)
		score_add(&s, &bound, &miss);
	score_add(&s, &equal, &no);
	return s;
}

static void scores(void **state)
{
	const struct paper_line equal = {.op = PAPER_EQUAL};
	const struct figure failed = {.status = FIGURE_FAILED, .error_pct = NAN};
	struct score s = score_of(4, 1, -25, 9, 1);

	(void)state;
	assert_int_equal(s.equal, 5);
	assert_int_equal(s.within, 4);
	assert_int_equal(s.others, 10);
	assert_int_equal(s.right, 9);
	assert_int_equal(s.no, 1);
	assert_true(s.worst_pct == 25);
	assert_true(score_reached(&s)); /* each just so */
	s = score_of(3, 1, 12, 9, 1);
	assert_false(score_reached(&s));
	s = score_of(9, 1, 25.1, 9, 1);
	assert_false(score_reached(&s));
	s = score_of(4, 1, 12, 8, 1);
	assert_false(score_reached(&s));
	s = score_of(0, 0, 0, 0, 0);
	assert_true(score_reached(&s));
	s = score_of(9, 0, 0, 0, 0);
	score_add(&s, &equal, &failed);
	assert_true(isinf(s.worst_pct));
	assert_false(score_reached(&s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(configurations),
		cmocka_unit_test(bad_configurations),
		cmocka_unit_test(malformed_lines),
		cmocka_unit_test(embedded),
		cmocka_unit_test(fits),
		cmocka_unit_test(scalars),
		cmocka_unit_test(others_lines),
		cmocka_unit_test(sweeps),
		cmocka_unit_test(peaks),
		cmocka_unit_test(equal_points),
		cmocka_unit_test(orders),
		cmocka_unit_test(groups),
		cmocka_unit_test(other_statuses),
		cmocka_unit_test(runs_once),
		cmocka_unit_test(scores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
