/* SPDX-License-Identifier: MIT */
/* The layer "kv" of the list of figures: operations of the store. */
#include <string.h>

#include <gannet/kv.h>

#include "keys.h"
#include "kv.h"
#include "calls.h"

#define KEYS	     16384u
#define FILL_DEFAULT 75u

static const char *const keys[] = {CALL_KEYS, "key",   "value",	   "get_pct",	    "dist",
				   "procs",   "table", "fill_pct", "qps_per_thread"};

/* qps_per_thread: a client talks to one server thread, of a process that has all of them. */
static int read_servers(const struct config *c, struct bench_kv_opts *o, struct lab_error *error)
{
	const uint64_t clients = (uint64_t)o->load.machines * o->load.clients;
	uint64_t qps;
	int rc = config_uint(c, "qps_per_thread", 0, 1, LOAD_THREADS_MAX, &qps, error);

	if (!rc && qps && qps * o->load.threads != clients)
		rc = lab_error(error, "qps_per_thread=%llu: %u server threads have %llu clients",
			       (unsigned long long)qps, o->load.threads,
			       (unsigned long long)clients);
	if (!rc)
		rc = config_each(c, &o->procs_each, error);
	o->fixed = qps > 0;
	o->split = o->procs_each || qps;
	return rc;
}

static int read_choices(const struct config *c, struct bench_kv_opts *o, struct lab_error *error)
{
	const char *dist = config_get(c, "dist"), *table = config_get(c, "table");

	if (dist && strcmp(dist, "uniform") && strcmp(dist, "zipf99"))
		return lab_error(error, "dist=%s is neither uniform nor zipf99", dist);
	o->zipf = dist && !strcmp(dist, "zipf99") ? 0.99 : 0;
	if (table && strcmp(table, "cuckoo3"))
		return lab_error(error, "table=%s is not cuckoo3", table);
	if ((table || config_get(c, "fill_pct")) && o->mode != BENCH_KV_BYPASS)
		return lab_error(error, "table and fill_pct are of mode=bypass");
	return 0;
}

int lab_kv_run(const struct lab_setup *setup, const struct config *c, struct lab_metrics *out,
	       struct lab_error *error)
{
	uint64_t key, value, get_pct, fill_pct;
	const struct config_number numbers[] = {
		{"key", 16, 8, GN_KV_KEY_MAX, &key},
		{"value", 32, 0, GN_KV_VALUE_MAX, &value},
		{"get_pct", 95, 0, 100, &get_pct},
		{"fill_pct", FILL_DEFAULT, 1, 95, &fill_pct},
	};
	struct bench_kv_opts o = {.keys = KEYS};
	struct bench_kv_result result;
	unsigned mode = 0;
	int rc = config_known(c, keys, sizeof(keys) / sizeof(keys[0]), "kv", error);

	if (!rc)
		rc = calls_mode(c, bench_kv_modes, BENCH_KV_LOCAL, &mode, error);
	o.mode = (enum bench_kv_mode)mode;
	if (!rc)
		rc = calls_read(setup, c, &o.load, error);
	if (!rc)
		rc = config_numbers(c, numbers, sizeof(numbers) / sizeof(numbers[0]), error);
	if (!rc)
		rc = read_servers(c, &o, error);
	if (!rc)
		rc = read_choices(c, &o, error);
	if (rc)
		return rc;
	o.key_bytes = (uint32_t)key;
	o.value_bytes = (uint32_t)value;
	o.get_percent = (double)get_pct;
	o.fill_pct = o.mode == BENCH_KV_BYPASS ? (uint32_t)fill_pct : 0;
	rc = bench_kv_run(&o, NULL, &result);
	if (rc)
		return lab_error(error, "%s", result.calls.error), rc;
	calls_metrics(&result.calls, o.value_bytes, out);
	if (result.calls.sums.bypass_gets)
		lab_metric_add(out, "reads_per_get",
			       (double)result.calls.sums.bypass_reads /
				       (double)result.calls.sums.bypass_gets);
	return 0;
}
