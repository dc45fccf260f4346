/* SPDX-License-Identifier: MIT */
/*
 * The layer "kv" of the list of figures: the store, which S000 and S002 call Jakiro, with its
 * comparators. A configuration becomes a load, a run becomes metrics.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kv_load.h"

#define KEY_MIN	     8u	    /* a number is in it */
#define FILL_DEFAULT 75u    /* S000 2.3: Pilaf's table */
#define MIN_OPS	     30000u /* clients that wait for each other have long good and bad times */
#define QPS_MAX	     256u

static const char *const keys[] = {
	CALL_KEYS,	  "key",   "value",    "get_pct", "dist", "procs",
	"qps_per_thread", "table", "fill_pct",
};

static int read_table(const struct config *c, const struct kv_load *o, struct lab_error *error)
{
	const char *table = config_get(c, "table");

	if (table && strcmp(table, "cuckoo3"))
		return lab_error(error, "table=%s is not cuckoo3", table);
	if ((table || config_get(c, "fill_pct")) && !o->call.bypass)
		return lab_error(error, "table and fill_pct are of mode=bypass");
	return 0;
}

/* qps_per_thread: a client talks to one server thread, of a process that has all of them. */
static int read_servers(const struct config *c, struct kv_load *o, bool each,
			struct lab_error *error)
{
	const uint64_t clients = (uint64_t)o->call.machines * o->call.clients;
	uint64_t qps;
	int rc = config_uint(c, "qps_per_thread", 0, 1, QPS_MAX, &qps, error);

	if (!rc && qps && qps * o->call.server_threads != clients)
		rc = lab_error(error, "qps_per_thread=%llu: %u server threads have %llu clients",
			       (unsigned long long)qps, o->call.server_threads,
			       (unsigned long long)clients);
	o->fixed = qps > 0;
	o->servers = each || qps ? o->call.server_threads : 1;
	return rc;
}

static int read_dist(const struct config *c, bool *zipf, struct lab_error *error)
{
	const char *dist = config_get(c, "dist");

	*zipf = dist && !strcmp(dist, "zipf99");
	if (dist && !*zipf && strcmp(dist, "uniform"))
		return lab_error(error, "dist=%s is neither uniform nor zipf99", dist);
	return 0;
}

static int read_load(const struct config *c, const char *preset, struct kv_load *o, bool *each,
		     struct lab_error *error)
{
	uint64_t key, value, get_pct, fill_pct;
	const struct config_number numbers[] = {
		{"key", 16, KEY_MIN, GN_KV_KEY_MAX, &key},
		{"value", 32, 0, GN_KV_VALUE_MAX, &value},
		{"get_pct", 95, 0, 100, &get_pct},
		{"fill_pct", FILL_DEFAULT, 1, 95, &fill_pct},
	};
	int rc = call_load_read(c, preset, &o->call, error);

	if (!rc)
		rc = config_numbers(c, numbers, sizeof(numbers) / sizeof(numbers[0]), error);
	if (!rc)
		rc = config_each(c, each, error);
	if (!rc)
		rc = read_servers(c, o, *each, error);
	if (!rc)
		rc = read_dist(c, &o->zipf, error);
	if (!rc)
		rc = read_table(c, o, error);
	if (rc)
		return rc;
	o->key = (uint32_t)key;
	o->value = (uint32_t)value;
	o->get_pct = (unsigned)get_pct;
	o->fill_pct = (unsigned)fill_pct;
	return 0;
}

/* ---- the run ---- */

struct spawned {
	struct kv_run run; /* the first: this is found by it */
	struct kv_site *sites;
};

static int spawn_servers(struct gn_sim *sim, struct call_run *call)
{
	struct spawned *s = (struct spawned *)call;
	const unsigned servers = s->run.opts->servers, n = call->each ? 1 : servers;
	int rc = 0;

	for (unsigned first = 0; first < servers && !rc; first += n) {
		s->sites[first] = (struct kv_site){&s->run, first, n};
		rc = gn_sim_spawn(sim, 0, kv_server_program, 0, NULL, &s->sites[first], NULL);
	}
	return rc;
}

static void metrics(const struct kv_load *o, const struct kv_run *run,
		    const struct call_result *result, struct lab_metrics *out)
{
	call_metrics(&o->call, result, out);
	lab_metric_add(out, "gbps", 8e-3 * *lab_metric_get(out, "mops") * o->value);
	if (run->bypass_gets)
		lab_metric_add(out, "reads_per_get", (double)run->reads / (double)run->bypass_gets);
}

int lab_kv_run(const struct lab_setup *setup, const struct config *config, struct lab_metrics *out,
	       struct lab_error *error)
{
	struct kv_load load = {0};
	struct spawned s = {.run = {.opts = &load}};
	struct call_result result;
	int rc = config_known(config, keys, sizeof(keys) / sizeof(keys[0]), "kv", error);

	s.run.call = (struct call_run){.method = KV_METHOD, .call = kv_call, .opts = &load.call};
	if (!rc)
		rc = read_load(config, setup->preset, &load, &s.run.call.each, error);
	if (rc)
		return rc;
	draws_init(&s.run.keys, load.zipf);
	s.run.call.min_ops = MIN_OPS;
	s.run.call.load.n_listeners = s.run.call.each ? load.servers : 1;
	s.run.stored = calloc(load.servers, sizeof(s.run.stored[0]));
	s.sites = calloc(load.servers, sizeof(s.sites[0]));
	if (!s.run.stored || !s.sites)
		rc = lab_error(error, "no memory for %u servers", load.servers);
	else
		rc = calls_run(&s.run.call, setup, spawn_servers, &result, error);
	if (!rc) {
		metrics(&load, &s.run, &result, out);
		trial_result_free(&result.trial);
	}
	free(s.run.stored);
	free(s.sites);
	return rc;
}
