/* SPDX-License-Identifier: MIT */
/*
 * The list of charts: that it is well formed and agrees with the list of figures, where its points
 * are, what is wrong with a line; and the reader of result files.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "json.h"
#include "unit.h"

struct lists {
	struct paper paper;
	struct charts charts;
};

static int open_lists(void **state)
{
	struct lists *l = calloc(1, sizeof(*l));
	struct lab_error error = {""};

	assert_non_null(l);
	*state = l;
	if (paper_parse(&l->paper, lab_paper_data, (size_t)(lab_paper_data_end - lab_paper_data),
			&error) ||
	    charts_parse(&l->charts, lab_figures_data,
			 (size_t)(lab_figures_data_end - lab_figures_data), &error))
		fail_msg("%s", error.text);
	return 0;
}

static int close_lists(void **state)
{
	struct lists *l = *state;

	charts_free(&l->charts);
	paper_free(&l->paper);
	free(l);
	return 0;
}

/* ---- the list that is built in ---- */

static void is_the_file(void **state)
{
	const char *source = getenv("GANNET_SOURCE");
	const size_t len = (size_t)(lab_figures_data_end - lab_figures_data);
	char path[512], *text = malloc(len + 1);
	FILE *f;

	(void)state;
	assert_non_null(text);
	if (!source) {
		free(text);
		skip();
	}
	snprintf(path, sizeof(path), "%s/data/figures.tsv", source);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fread(text, 1, len + 1, f), len);
	assert_memory_equal(text, lab_figures_data, len);
	fclose(f);
	free(text);
}

/* A line that is drawn has the chart's configuration, as far as both say anything. */
static void check_drawn(const struct chart *chart, const struct chart_mark *mark)
{
	struct lab_error error;
	const char *metric;
	struct point at;

	assert_int_equal(chart_point(chart, mark->series, mark->x, &at, &metric, &error), 0);
	for (unsigned i = 0; mark->line && i < at.config.n; i++) {
		const char *key = at.config.pair[i].key;
		const char *has = config_get(&mark->line->config, key);

		if (!has || (mark->where == CHART_HIGHEST && !strcmp(key, chart->x_key)) ||
		    !strcmp(at.config.pair[i].value, "best"))
			continue;
		if (strcmp(has, at.config.pair[i].value))
			fail_msg("%s: %s has %s=%s, not %s", chart->id, mark->line->id, key, has,
				 at.config.pair[i].value);
	}
	assert_true(mark->value > 0);
}

static void agrees(void **state)
{
	const struct lists *l = *state;
	struct chart_mark marks[CHART_MARKS_MAX];
	struct lab_error error = {""};
	unsigned n;

	for (unsigned c = 0; c < l->charts.n; c++) {
		const struct chart *chart = &l->charts.chart[c];

		if (chart_marks(chart, &l->paper, marks, &n, &error))
			fail_msg("%s", error.text);
		assert_true(n > 0);
		for (unsigned i = 0; i < n; i++) {
			for (unsigned k = 0; k < i; k++)
				if (marks[i].line && marks[i].line == marks[k].line)
					fail_msg("%s has %s twice", chart->id, marks[i].line->id);
			if (marks[i].where != CHART_LISTED)
				check_drawn(chart, &marks[i]);
		}
	}
}

/* Every line of S003's protocols is in some chart. */
static void has_all(void **state)
{
	const struct lists *l = *state;
	struct chart_mark marks[CHART_MARKS_MAX];
	struct lab_error error;
	unsigned n, lines = 0;

	for (unsigned i = 0; i < l->paper.n; i++) {
		const struct paper_line *line = &l->paper.lines[i];
		bool found = false;

		if (strcmp(line->layer, "msg") || line->no)
			continue;
		lines++;
		for (unsigned c = 0; c < l->charts.n && !found; c++) {
			assert_int_equal(
				chart_marks(&l->charts.chart[c], &l->paper, marks, &n, &error), 0);
			for (unsigned k = 0; k < n; k++)
				found = found || marks[k].line == line;
		}
		if (!found)
			fail_msg("%s is in no chart", line->id);
	}
	assert_true(lines > 100);
}

static struct chart_mark mark_of(const struct lists *l, const char *chart_id, const char *id)
{
	const struct chart *chart = charts_find(&l->charts, chart_id);
	struct chart_mark marks[CHART_MARKS_MAX];
	struct lab_error error;
	unsigned n;

	assert_non_null(chart);
	assert_int_equal(chart_marks(chart, &l->paper, marks, &n, &error), 0);
	for (unsigned i = 0; i < n; i++)
		if (marks[i].line && !strcmp(marks[i].line->id, id))
			return marks[i];
	fail_msg("%s has no %s", chart_id, id);
	return marks[0];
}

static void places(void **state)
{
	static const struct {
		const char *chart, *line;
		enum chart_where where;
		const char *series, *x;
		double value;
	} wanted[] = {
		{"S003-8a", "P30a", CHART_AT_POINT, "READ", "16", 43},
		{"S003-8a", "P31c", CHART_AT_POINT, "SEND/SEND", "256", 24},
		{"S003-8a", "P42a", CHART_HIGHEST, "READ", NULL, 42},
		{"S003-8a", "P30b", CHART_LISTED, NULL, NULL, 2},
		{"S003-10a", "P35f", CHART_HIGHEST, "WRITE/SEND", NULL, 11},
		{"S003-3", "P35f", CHART_AT_POINT, "WRITE/SEND", "1:M", 11},
		{"S003-3", "C16a", CHART_AT_POINT, "READ", "M:M per node", 13.5},
		{"S003-5", "P42i", CHART_AT_POINT, "READ", "M:1", 1},
		{"S003-12b", "P40b", CHART_AT_POINT, "READ", "8", 1},
		{"S000-T3", "P25a", CHART_AT_POINT, "reply", "ConnectX-3", 1.66},
		{"S000-T3", "P26e", CHART_AT_POINT, "fetch", "ConnectX-4 batch 16", 22.6},
		{"S000-T3", "P26f", CHART_LISTED, NULL, NULL, 3.6},
		{"S002-5", "P7b", CHART_AT_POINT, "ServerReply", "mean", 12.06},
		{"S002-7", "P10a", CHART_LISTED, NULL, NULL, 0.68},
	};
	const struct lists *l = *state;

	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		const struct chart *chart = charts_find(&l->charts, wanted[i].chart);
		const struct chart_mark m = mark_of(l, wanted[i].chart, wanted[i].line);

		assert_int_equal(m.where, wanted[i].where);
		assert_true(m.value == wanted[i].value);
		if (wanted[i].series)
			assert_int_equal(m.series, chart_series_find(chart, wanted[i].series));
		if (wanted[i].x)
			assert_int_equal(m.x, chart_x_find(chart, wanted[i].x));
	}
}

static void points(void **state)
{
	const struct lists *l = *state;
	const struct chart *chart = charts_find(&l->charts, "S000-T3");
	struct lab_error error;
	const char *metric;
	struct point at;

	assert_int_equal(chart_point(chart, 1, 3, &at, &metric, &error), 0);
	assert_string_equal(at.profile, "cx4");
	assert_string_equal(metric, "mops");
	assert_true(config_is(&at.config, "mode", "reply"));
	assert_true(config_is(&at.config, "batch", "16"));
	assert_null(config_get(&at.config, "profile"));
	chart = charts_find(&l->charts, "S003-3");
	assert_int_equal(chart_point(chart, 0, 2, &at, &metric, &error), 0);
	assert_string_equal(metric, "gbps_per_node_max");
	assert_true(config_is(&at.config, "topology", "mm"));
}

/* ---- lines that are not understood ---- */

static void bad_charts(void **state)
{
	static const struct {
		const char *text, *error;
	} bad[] = {
		{"", "no lines in it"},
		{"A\tt\tkv", "line 1: 3 columns instead of 16"},
		{"#\nA\tt\tkv\tcx3\tpaper\t-\tmops\ty\t\tx\tlinear\ta:1\t-\t-\t-\t-",
		 "line 2: x is empty"},
		{"A\tt\tkv\tcx3\tpaper\tk\tmops\ty\tk:1,2\tx\tlinear\ta:1\t-\t-\t-\t-",
		 "line 1: config: 'k' is not key=value"},
		{"A\tt\tkv\tcx3\tpaper\t-\tmops\ty\tk:1,2\tx\tround\ta:1\t-\t-\t-\t-",
		 "line 1: scale: 'round' is not linear, log2 or bars"},
		{"A\tt\tkv\tcx3\tpaper\t-\tmops\ty\tk:1,b\tx\tlog2\ta:1\t-\t-\t-\t-",
		 "line 1: x: 'b' is not a number above 0"},
		{"A\tt\tkv\tcx3\tpaper\t-\tmops\ty\tk:2,1\tx\tlog2\ta:1\t-\t-\t-\t-",
		 "line 1: x: 1 does not come after 2"},
		{"A\tt\tkv\tcx3\tpaper\t-\tmops\ty\tk\tx\tbars\ta:1\t-\t-\t-\t-",
		 "line 1: x: 'k' is not KEY:a,b,c"},
		{"A\tt\tkv\tcx3\tpaper\t-\tmops\ty\tn=k:1|m\tx\tbars\ta:1\t-\t-\t-\t-",
		 "line 1: x: 'm' is not LABEL=KEY:v,KEY:v"},
		{"A\tt\tkv\tcx3\tpaper\t-\tmops\ty\tk:1,2\tx\tlog2\ta:1\t-\t5\t-\t-",
		 "line 1: ideal: '5' is not NUMBER:what it is"},
		{"A\tt\tkv\tcx3\tpaper\t-\tmops\ty\tk:1,2,3\tx\tlog2\ta:1\t-\t5|6:i\t-\t-",
		 "line 1: ideal: 2 numbers for 3 x"},
	};
	struct charts charts;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct lab_error error = {""};

		assert_int_equal(charts_parse(&charts, bad[i].text, strlen(bad[i].text), &error),
				 -EINVAL);
		assert_string_equal(error.text, bad[i].error);
		assert_null(charts.chart);
	}
}

static void bad_points(void **state)
{
	static const struct {
		const char *points, *error;
	} bad[] = {
		{"C999", "A: points: there is no line 'C999'"},
		{"a1@2=x", "A: points: 'x' is not a number"},
		{"1@9=3", "A: points: there is no '1' at '9'"},
		{"C1a@1", "A: points: there is no '1' at ''"},
	};
	const struct lists *l = *state;
	struct chart_mark marks[CHART_MARKS_MAX];
	unsigned n;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct lab_error error = {""};
		struct charts charts;
		char line[256];

		snprintf(line, sizeof(line),
			 "A\tt\tkv\tcx3\tpaper\t-\tmops\ty\tk:1,2\tx\tlog2\ta:1\t-\t-\t%s\t-",
			 bad[i].points);
		assert_int_equal(charts_parse(&charts, line, strlen(line), &error), 0);
		assert_int_equal(chart_marks(charts.chart, &l->paper, marks, &n, &error), -EINVAL);
		assert_string_equal(error.text, bad[i].error);
		charts_free(&charts);
	}
}

/* ---- result files ---- */

static void objects(void **state)
{
	static const char line[] =
		" {\"a\": 1.5e2 , \"b\":\"x\\\"\\u00b5\\ud83d\\ude00\",\"c\":null,"
		"\"d\":[1,\"two\",-3],\"e\":true,\"f\":[],\"g\":-0.5,"
		"\"m\":{\"a\":2,\"b\":\"in\"},\"o\":{}}\r";
	struct json *json = calloc(1, sizeof(*json));
	double number;

	(void)state;
	assert_non_null(json);
	assert_null(json_parse(json, line, strlen(line)));
	assert_int_equal(json->n, 9);
	assert_string_equal(json_text(json, "m.b"), "in");
	assert_true(json_number(json, "m.a", &number) && number == 2);
	assert_true(json_number(json, "a", &number) && number == 150);
	assert_string_equal(json_text(json, "b"), "x\"µ😀");
	assert_int_equal(json_field(json, "c")->type, JSON_NULL);
	assert_string_equal(json_field(json, "d")->text, "1,\"two\",-3");
	assert_true(json_field(json, "e")->number == 1);
	assert_string_equal(json_field(json, "f")->text, "");
	assert_true(json_number(json, "g", &number) && number == -0.5);
	assert_null(json_text(json, "a"));
	assert_false(json_number(json, "b", &number));
	assert_null(json_field(json, "h"));
	assert_null(json_parse(json, "{}", 2));
	assert_int_equal(json->n, 0);
	free(json);
}

static void bad_objects(void **state)
{
	static const char *const bad[][2] = {
		{"", "not a JSON object"},
		{"id\tprofile", "not a JSON object"},
		{"[1]", "not a JSON object"},
		{"{\"a\":1", "a line that ends in the middle"},
		{"{\"a\":", "a line that ends in the middle"},
		{"{\"a", "a text without an end"},
		{"{\"a\":\"b", "a text without an end"},
		{"{\"a\":\"\\", "a text without an end"},
		{"{\"a\"}", "a key without a value"},
		{"{\"a\":1 \"b\":2}", "no comma between two fields"},
		{"{\"a\":1,\"a\":2}", "a key that is there twice"},
		{"{\"a\":{\"b\":{}}}", "a value that is none"},
		{"{\"a\":{\"b\":1,\"b\":2}}", "a key that is there twice"},
		{"{\"a\":{\"b\":1", "a line that ends in the middle"},
		{"{\"a\":[[1]]}", "a value that is none"},
		{"{\"a\":[1}", "an array without an end"},
		{"{\"a\":01}", "no comma between two fields"},
		{"{\"a\":1.}", "a number without its digits"},
		{"{\"a\":1e}", "a number without its digits"},
		{"{\"a\":nan}", "a value that is none"},
		{"{\"a\":1}}", "something after the object"},
		{"{\"a\":\"\\x\"}", "an escape that there is not"},
		{"{\"a\":\"\\u12\"}", "a \\u without four digits"},
		{"{\"a\":\"\\ud800\"}", "half of a surrogate pair"},
		{"{\"a\":\"\\u0000\"}", "a zero in a text"},
		{"{\"a\":\"\t\"}", "a control character in a text"},
		{"{,}", "no text where one belongs"},
	};
	struct json *json = calloc(1, sizeof(*json));

	(void)state;
	assert_non_null(json);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *wrong = json_parse(json, bad[i][0], strlen(bad[i][0]));

		if (!wrong || strcmp(wrong, bad[i][1]))
			fail_msg("%s: %s", bad[i][0], wrong ? wrong : "is taken");
	}
	free(json);
}

/* However long a line is, it is refused or fits. */
static void long_objects(void **state)
{
	struct json *json = calloc(1, sizeof(*json));
	const size_t len = 2 * JSON_TEXT_MAX;
	char *line = malloc(len + 16), *at = line;

	(void)state;
	assert_non_null(json);
	assert_non_null(line);
	snprintf(line, 8, "{\"a\":\"");
	memset(line + 6, 'x', len);
	snprintf(line + 6 + len, 3, "\"}");
	assert_string_equal(json_parse(json, line, len + 8),
			    "more text than a line of results has");
	*at++ = '{';
	for (unsigned i = 0; i <= JSON_FIELDS_MAX; i++)
		at += sprintf(at, "%s\"k%u\":%u", i ? "," : "", i, i);
	*at++ = '}';
	assert_string_equal(json_parse(json, line, (size_t)(at - line)),
			    "more fields than a line of results has");
	free(line);
	free(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_the_file),
		cmocka_unit_test_setup_teardown(agrees, open_lists, close_lists),
		cmocka_unit_test_setup_teardown(has_all, open_lists, close_lists),
		cmocka_unit_test_setup_teardown(places, open_lists, close_lists),
		cmocka_unit_test_setup_teardown(points, open_lists, close_lists),
		cmocka_unit_test(bad_charts),
		cmocka_unit_test_setup_teardown(bad_points, open_lists, close_lists),
		cmocka_unit_test(objects),
		cmocka_unit_test(bad_objects),
		cmocka_unit_test(long_objects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
