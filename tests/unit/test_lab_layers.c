/* SPDX-License-Identifier: MIT */
/* The layer fabric of the lab: what it refuses, and that what it measures goes together. */
#include <errno.h>
#include <math.h>

#include "lab.h"
#include "lab_config.h"

static void refuse(const char *text, const char *why)
{
	const struct lab_setup setup = {
		.profile = "ideal", .card = "ideal", .preset = "-", .seed = 1, .effort = 0.01};
	struct config config = make(text);
	struct lab_error error = {""};
	struct lab_metrics metrics = {0};

	assert_int_equal(lab_fabric_run(&setup, &config, &metrics, &error), -EINVAL);
	if (!strstr(error.text, why))
		fail_msg("%s: '%s' instead of '%s'", text, error.text, why);
}

static void fabric_refuses(void **state)
{
	(void)state;
	refuse("op=READ;dir=in;size=32;colour=red", "key 'colour'");
	refuse("dir=in;size=32", "op is missing");
	refuse("op=PING;dir=in;size=32", "op 'PING'");
	refuse("op=READ;dir=up;size=32", "dir=up");
	refuse("op=READ;topology=ring;nodes=2;size=32", "topology=ring");
	refuse("op=READ;topology=mm;size=32", "needs nodes");
	refuse("op=READ;topology=mm;nodes=1;size=32", "nodes=1");
	refuse("op=READ;dir=in", "size");
	refuse("op=READ;dir=in;size=0", "size=0");
	refuse("op=READ;dir=in;size=32;inline=yes", "inline");
	refuse("op=READ;dir=in;size=32;pending=1;window=2", "only one");
	refuse("op=READ;dir=in;size=32;window=6;signaled=1/4", "window of 6");
	refuse("op=READ;dir=in;size=32;signaled=maybe", "signaled=maybe");
	refuse("op=FAA;dir=in;size=4;region=cache", "8 bytes");
	refuse("op=FAA;dir=in;size=8", "region=");
	refuse("op=SEND;dir=out;size=8", "transport=UD");
	refuse("op=READ;topology=mm;nodes=2;threads=all;size=8", "threads=all");
	refuse("op=READ;dir=in;size=32;opt=fast", "opt=fast");
}

static struct lab_metrics measure(const char *text, const char *profile, uint64_t seed)
{
	const struct lab_setup setup = {
		.profile = profile, .card = "ideal", .preset = "-", .seed = seed, .effort = 0.05};
	struct config config = make(text);
	struct lab_error error = {""};
	struct lab_metrics metrics = {0};

	if (lab_fabric_run(&setup, &config, &metrics, &error))
		fail_msg("%s: %s", text, error.text);
	return metrics;
}

/*
 * Every kind of load runs to its end, leaves nothing behind (or it would fail), and counts what it
 * did. On the ideal profile a look at an empty cq takes 50 ns and nothing else takes time: a
 * synchronous thread makes 20 operations a microsecond.
 */
static void fabric_measures(void **state)
{
	static const struct {
		const char *config;
		double mops, per_node, per_core; /* 0: whatever */
	} runs[] = {
		{"op=READ;dir=in;size=32;pending=1;client_machines=2;clients_per_machine=3", 120,
		 60, 20},
		{"op=WRITE;dir=out;size=32;pending=1;client_machines=2;server_threads=4", 80, 80,
		 20},
		{"op=READ;dir=in;size=32;pending=1;client_machines=2;reads_per_request=4", 10, 5,
		 5},
		{"op=WRITE;dir=in;size=4096;pending=1;procs=each;clients_per_machine=2", 40, 40,
		 20},
		{"op=READ;dir=out;size=8;window=8;server_threads=4;shared_by=2", 0, 0, 0},
		{"op=READ;dir=out;size=8;window=8;signaled=1/4;server_threads=2", 0, 0, 0},
		{"op=READ;dir=in;size=8;window_machine=5;clients_per_machine=3;qps_per_thread=4", 0,
		 0, 0},
		{"op=READ;dir=in;size=8;window_machine=1;clients_per_machine=3", 20, 20, 20.0 / 3},
		{"op=SEND;transport=UD;dir=out;size=16;signaled=1/64;client_machines=3", 0, 0, 0},
		{"op=WRITE;dir=in;size=32;opt=unsignaled", 0, 0, 0},
		{"op=FAA;dir=in;size=8;window=4;region=cache;client_machines=2", 0, 0, 0},
		{"topology=m1;nodes=3;threads=2;pending=4;key=36;value=365;protocol=READ", 0, 0, 0},
		{"topology=1m;nodes=3;threads=2;pending=1;key=36;value=365;protocol=READ", 0, 0, 0},
		{"topology=mm;nodes=4;threads=2;pending=3;key=36;value=365;protocol=READ", 0, 0, 0},
		{"op=READ;topology=mm;nodes=3;threads=all;qps_per_thread=3;vms=2;window=4;size=8",
		 0, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		const struct lab_metrics m = measure(runs[i].config, "cx3-fdr", 1);
		const double mops = *lab_metric_get(&m, "mops");

		assert_true(mops > 1 && *lab_metric_get(&m, "gbps") > 0);
		if (runs[i].mops > 0 &&
		    (fabs(mops / runs[i].mops - 1) > 0.01 ||
		     fabs(*lab_metric_get(&m, "mops_per_node") / runs[i].per_node - 1) > 0.01 ||
		     fabs(*lab_metric_get(&m, "mops_per_core") / runs[i].per_core - 1) > 0.01))
			fail_msg("%s: %g", runs[i].config, mops);
	}
}

static void same_seed_same_figures(void **state)
{
	static const char config[] =
		"op=READ;dir=out;size=8;window=8;server_threads=3;shared_by=3;client_machines=3";
	const struct lab_metrics a = measure(config, "x", 5), b = measure(config, "x", 5);

	(void)state;
	assert_int_equal(a.n, b.n);
	for (unsigned i = 0; i < a.n; i++)
		assert_true(a.metric[i].value == b.metric[i].value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fabric_refuses),
		cmocka_unit_test(fabric_measures),
		cmocka_unit_test(same_seed_same_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
