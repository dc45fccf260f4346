/* SPDX-License-Identifier: MIT */
/* The layers of the lab: what they refuse, and that what they measure goes together. */
#include <errno.h>
#include <math.h>

#include "lab.h"
#include "lab_config.h"

static void refused_by(lab_run_fn *run, const char *preset, const char *text, const char *why)
{
	const struct lab_setup setup = {
		.profile = "ideal", .card = "ideal", .preset = preset, .seed = 1, .effort = 0.01};
	struct config config = make(text);
	struct lab_error error = {""};
	struct lab_metrics metrics = {0};

	assert_int_equal(run(&setup, &config, &metrics, &error), -EINVAL);
	if (!strstr(error.text, why))
		fail_msg("%s: '%s' instead of '%s'", text, error.text, why);
}

static void rpc_refuses(void **state)
{
	static const char *const bad[][2] = {
		{"mode=fetch;colour=red", "key 'colour'"},
		{"req=1", "mode= is not"},
		{"mode=bypass", "mode=bypass"},
		{"mode=limit", "mode=limit is not"}, /* of processes */
		{"mode=fetch;req=1048577", "req=1048577"},
		{"mode=fetch;server_threads=0", "server_threads=0"},
		{"mode=fetch;retries=0", "retries=0"},
		{"mode=fetch;work_us=-1", "work_us=-1"},
		{"mode=fetch;route=any", "route=any"},
		{"mode=fetch;batch=0", "batch=0"},
		{"mode=fetch;batch=auto", "needs limit_us"},
		{"mode=fetch;batch=auto;limit_us=x", "limit_us=x"},
		{"mode=fetch;alpha_pct=101", "alpha_pct=101"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused_by(lab_rpc_run, "paper", bad[i][0], bad[i][1]);
	refused_by(lab_rpc_run, "other", "mode=fetch", "preset 'other'");
}

/* Calls are made one by one, by each client, and what is reported of them goes together. */
static void rpc_measures(void **state)
{
	static const char *const modes[] = {"mode=fetch", "mode=reply",
					    "mode=fetch;route=hash;server_threads=3",
					    "mode=fetch;batch=4", "mode=reply;resp=20000"};
	static const char *const presets[] = {"paper", "gannet"};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(modes) / sizeof(modes[0]); i++) {
		const struct lab_setup setup = {.profile = "cx3",
						.card = "cx3",
						.preset = presets[i % 2],
						.seed = 1,
						.effort = 0.05};
		struct config config = make(modes[i / 2]);
		const bool fetches = config_is(&config, "mode", "fetch");
		const double batch = config_get(&config, "batch") ? 4 : 1;
		struct lab_metrics m = {0};
		struct lab_error error = {""};

		if (lab_rpc_run(&setup, &config, &m, &error))
			fail_msg("%s, %s: %s", modes[i / 2], setup.preset, error.text);
		/* One client: a rate is a batch by its time. */
		assert_true(fabs(*lab_metric_get(&m, "mops") *
					 *lab_metric_get(&m, "latency_us_mean") / batch -
				 1) < 0.05);
		assert_true(*lab_metric_get(&m, "fetches") * batch >= (fetches ? 1 : 0));
		assert_true(fetches || *lab_metric_get(&m, "fetches") == 0);
		assert_true(*lab_metric_get(&m, "batch") == batch || config_get(&config, "route"));
		assert_true(*lab_metric_get(&m, "round_trips") * batch > 1.9);
	}
}

/* ---- the store ---- */

static void kv_refuses(void **state)
{
	static const char *const bad[][2] = {
		{"mode=fetch;req=32", "key 'req'"},
		{"mode=local", "mode=local is not"}, /* of this machine */
		{"mode=fetch;key=7", "key=7"},
		{"mode=fetch;value=1048577", "value=1048577"},
		{"mode=fetch;get_pct=101", "get_pct=101"},
		{"mode=fetch;dist=normal", "dist=normal"},
		{"mode=fetch;procs=all", "procs=all"},
		{"mode=fetch;qps_per_thread=3;server_threads=2", "2 server threads have 1 clients"},
		{"mode=fetch;fill_pct=75", "of mode=bypass"},
		{"mode=bypass;table=cuckoo2", "table=cuckoo2"},
		{"mode=bypass;fill_pct=96", "fill_pct=96"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused_by(lab_kv_run, "paper", bad[i][0], bad[i][1]);
}

/* What a client finds is what was stored: else a run fails. */
static void kv_measures(void **state)
{
	static const struct {
		const char *config;
		double trips; /* of an operation, the papers' way */
	} cases[] = {
		{"mode=fetch;get_pct=50;fetch_size=36", 2},
		{"mode=fetch;get_pct=100;value=64;fetch_size=36", 3},
		{"mode=fetch;get_pct=100;value=64;fetch_size=68", 2},
		{"mode=reply;server_threads=2;dist=zipf99", 2},
		{"mode=fetch;server_threads=3;procs=each;batch=6;fetch_size=2048", 2.0 / 6},
		{"mode=fetch;server_threads=2;client_machines=2;clients_per_machine=2;"
		 "qps_per_thread=2;fetch_size=36",
		 2},
		{"mode=bypass;get_pct=100", 3.1},
	};
	static const char *const presets[] = {"paper", "gannet"};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		const struct lab_setup setup = {.profile = "cx3",
						.card = "cx3",
						.preset = presets[i % 2],
						.seed = 1,
						.effort = 0.01};
		struct config config = make(cases[i / 2].config);
		const bool bypass = config_is(&config, "mode", "bypass");
		struct lab_metrics m = {0};
		struct lab_error error = {""};
		const double *trips;

		if (lab_kv_run(&setup, &config, &m, &error))
			fail_msg("%s, %s: %s", cases[i / 2].config, setup.preset, error.text);
		trips = lab_metric_get(&m, "round_trips");
		if (i % 2 == 0 && fabs(*trips / cases[i / 2].trips - 1) > (bypass ? 0.2 : 0.02))
			fail_msg("%s: %g round trips", cases[i / 2].config, *trips);
		assert_true(!bypass == !lab_metric_get(&m, "reads_per_get"));
		assert_true(!bypass || fabs(*lab_metric_get(&m, "reads_per_get") - *trips) < 0.1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_refuses),
		cmocka_unit_test(kv_refuses),
		cmocka_unit_test(rpc_measures),
		cmocka_unit_test(kv_measures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
