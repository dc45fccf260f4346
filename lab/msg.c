/* SPDX-License-Identifier: MIT */
/* The layer "msg" of the list of figures: requests and responses by one of several protocols. */
#include <string.h>

#include "msg.h"
#include "lab.h"

static const char *const keys[] = {
	"topology", "nodes", "threads", "resp_threads", "qps_per_resp_thread",
	"pending",  "key",   "value",	"protocol",
};

static int read_topology(const struct config *c, struct bench_msg_opts *o, struct lab_error *error)
{
	static const char *const names[] = {
		[BENCH_MSG_M1] = "m1",
		[BENCH_MSG_1M] = "1m",
		[BENCH_MSG_MM] = "mm",
	};
	const char *text = config_get(c, "topology");

	for (unsigned i = 0; text && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			o->topology = (enum bench_msg_topology)i;
			return 0;
		}
	return lab_error(error, "topology=%s is not m1, 1m or mm", text ? text : "");
}

static int read_protocol(const struct config *c, struct bench_msg_opts *o, struct lab_error *error)
{
	const char *text = config_get(c, "protocol");

	if (text && !gn_msg_protocol_parse(text, &o->protocol))
		return 0;
	return lab_error(error,
			 "protocol=%s is not SEND/SEND, SEND/WRITE, WRITE/SEND, WRITE/WRITE, READ, "
			 "WRITE_IMM or UD",
			 text ? text : "");
}

static int read_load(const struct config *c, struct bench_msg_opts *o, struct lab_error *error)
{
	uint64_t nodes, threads, pending, key, value, resp, conns;
	const struct config_number numbers[] = {
		{"nodes", 2, 1, BENCH_MSG_NODES_MAX, &nodes},
		{"threads", 1, 1, BENCH_MSG_THREADS_MAX, &threads},
		{"pending", 1, 1, GN_MSG_PENDING_MAX, &pending},
		{"key", 36, BENCH_MSG_REQUEST_MIN, GN_MSG_BYTES_MAX, &key},
		{"value", 365, 1, GN_MSG_BYTES_MAX, &value},
		{"resp_threads", 0, 1, BENCH_MSG_THREADS_MAX, &resp},
		{"qps_per_resp_thread", 0, 1, GN_MSG_CONNS_MAX, &conns},
	};
	char why[BENCH_WHY_MAX];
	int rc = read_topology(c, o, error);

	if (!rc)
		rc = read_protocol(c, o, error);
	if (!rc)
		rc = config_numbers(c, numbers, sizeof(numbers) / sizeof(numbers[0]), error);
	if (rc)
		return rc;
	o->nodes = (uint32_t)nodes;
	o->threads = (uint32_t)threads;
	o->pending = (uint32_t)pending;
	o->request_bytes = (uint32_t)key;
	o->value_bytes = (uint32_t)value;
	o->resp_threads = (uint32_t)resp;
	o->conns_max = (uint32_t)conns;
	return bench_msg_check(o, why) ? lab_error(error, "%s", why) : 0;
}

int lab_msg_run(const struct lab_setup *setup, const struct config *config, struct lab_metrics *out,
		struct lab_error *error)
{
	struct bench_msg_opts o = {.load = {.provider = "sim",
					    .profile = setup->card,
					    .effort = setup->effort,
					    .seed = setup->seed,
					    .paper = !strcmp(setup->preset, "paper")}};
	struct bench_msg_result r;
	int rc = config_known(config, keys, sizeof(keys) / sizeof(keys[0]), "msg", error);

	if (!rc && !o.load.paper && strcmp(setup->preset, "gannet"))
		rc = lab_error(error, "preset '%s' is neither paper nor gannet", setup->preset);
	if (!rc)
		rc = read_load(config, &o, error);
	if (rc)
		return rc;
	rc = bench_msg_run(&o, NULL, &r);
	if (rc)
		return lab_error(error, "%s", r.error), rc;
	out->n = 0;
	lab_metric_add(out, "requests", (double)r.requests);
	lab_metric_add(out, "seconds", r.seconds);
	lab_metric_add(out, "mops", r.mops);
	lab_metric_add(out, "gbps", r.gbps);
	lab_metric_add(out, "gbps_per_node", r.gbps_per_node);
	lab_metric_add(out, "latency_us_mean", r.latency_us_mean);
	lab_metric_add(out, "p50_us", r.p50_us);
	lab_metric_add(out, "p99_us", r.p99_us);
	lab_metric_add(out, "wrs_per_request", r.wrs);
	lab_metric_add(out, "doorbells_per_request", r.doorbells);
	lab_metric_add(out, "cqes_per_request", r.cqes);
	lab_metric_add(out, "repeats", r.repeats);
	return 0;
}
