/* SPDX-License-Identifier: MIT */
/* The programs of the layer kv: a process of servers, which fills its stores, and a client. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kv_load.h"

#define FIRST_PORT  7000u
#define KEYS	    16384u /* of all servers; see keys.h */
#define KEYS_MAX    (4 * KEYS)
#define LOAD_OPS    64u
#define LOAD_BYTES  3072u
#define EACH_BYTES  64u	       /* in memory and on the wire, besides key and value */
#define MEMORY_MIN  (2u << 20) /* of a partition */
#define MEMORY_MORE 6u	       /* times what is stored: nothing is ever forgotten */
#define PAPER_HEAD  4u
#define RESULT_HEAD 8u
#define LOOKS_US    1000000u /* the papers' servers look at every client all the time */

/*
 * A client's own work, which nothing else charges for: to draw an operation and write down how long
 * it took, outside of its latency (35 clients that take 5.78 us for a call would make 6.05 M/s, and
 * make 5.5: P1a, P7a); and what the library does for a call. Fitted on C10a, P7a, P22f and P23a.
 */
#define DRAW_NS 160u
#define CALL_NS 250u

/* ---- both sides ---- */

uint32_t kv_lab_slot_bytes(const struct kv_load *o)
{
	const uint32_t n = o->call.batch ? o->call.batch : 1;
	const uint64_t bytes = 2 * (uint64_t)n * (o->key + o->value + EACH_BYTES);

	if (bytes < GN_RPC_BYTES_DEFAULT)
		return GN_RPC_BYTES_DEFAULT;
	return bytes < GN_RPC_BYTES_MAX ? (uint32_t)bytes : GN_RPC_BYTES_MAX;
}

void kv_address(unsigned server, char out[KV_ADDRESS_MAX])
{
	snprintf(out, KV_ADDRESS_MAX, "sim:n0:%u", FIRST_PORT + server);
}

void kv_pair(const struct kv_load *o, unsigned server, uint64_t number, uint8_t *key,
	     uint8_t *value)
{
	const uint64_t seed = ((uint64_t)server << 32 | number) << 8;

	draws_fill(key, o->key, seed);
	draws_fill(value, o->value, seed);
}

/* ---- servers ---- */

struct loader {
	struct kv_run *run;
	unsigned server;
	struct gn_kv_client *client;
	uint8_t *bytes; /* key and value of each operation */
	struct gn_kv_op ops[LOAD_OPS];
};

static bool store_some(struct loader *l, unsigned n)
{
	struct kv_run *run = l->run;
	const struct kv_load *o = run->opts;
	const uint32_t each = o->key + o->value;

	for (unsigned i = 0; i < n; i++) {
		uint8_t *key = l->bytes + (size_t)i * each;

		kv_pair(o, l->server, run->stored[l->server]++, key, key + o->key);
		l->ops[i] = (struct gn_kv_op){
			.verb = GN_KV_SET,
			.key = key,
			.key_len = o->key,
			.value = key + o->key,
			.value_len = o->value,
		};
	}
	if (!call_ok(&run->call, gn_kv_do(l->client, l->ops, n, GN_FOREVER), "filling a store"))
		return false;
	for (unsigned i = 0; i < n; i++) {
		if (l->ops[i].status == GN_KV_OK)
			continue;
		load_fail(&run->call.load, "filling a store: %s",
			  gn_kv_status_str(l->ops[i].status));
		return false;
	}
	return true;
}

/* Bypass: the table grows as it likes, and is left when it is as full as it should be. */
static bool is_full(struct loader *l, bool *full)
{
	const struct kv_load *o = l->run->opts;
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	*full = true;
	if (!o->call.bypass)
		return true;
	if (!call_ok(&l->run->call, gn_kv_client_stats(l->client, GN_KV_ALL, &stats, GN_FOREVER),
		     "statistics"))
		return false;
	*full = stats.items * 100 >= stats.buckets * o->fill_pct;
	return true;
}

static bool fill_store(struct loader *l)
{
	struct kv_run *run = l->run;
	const struct kv_load *o = run->opts;
	const unsigned some = LOAD_BYTES / (o->key + o->value + EACH_BYTES);
	const unsigned n = some < 1 ? 1 : some > LOAD_OPS ? LOAD_OPS : some;
	uint64_t *stored = &run->stored[l->server];
	bool full = false;

	while (!full && *stored < KEYS_MAX / o->servers)
		if (!store_some(l, n) || (*stored >= KEYS / o->servers && !is_full(l, &full)))
			return false;
	if (!full)
		load_fail(&run->call.load, "a table does not become %u %% full", o->fill_pct);
	return full;
}

static bool load_server(struct kv_run *run, struct gn_fabric *fabric, unsigned server)
{
	const struct kv_load *o = run->opts;
	struct loader *l = gn_alloc(sizeof(*l), 0);
	uint8_t *bytes = gn_alloc(LOAD_OPS * (size_t)(o->key + o->value), 0);
	char addr[KV_ADDRESS_MAX];
	bool good = false;

	kv_address(server, addr);
	if (!l || !bytes) {
		load_fail(&run->call.load, "no memory to fill a store");
		goto done;
	}
	*l = (struct loader){.run = run, .server = server, .bytes = bytes};
	if (!call_ok(&run->call, gn_kv_client_open(fabric, addr, NULL, &l->client), "connecting"))
		goto done;
	good = fill_store(l);
	gn_kv_client_close(l->client);
done:
	gn_free(bytes);
	gn_free(l);
	return good;
}

static bool start_server(struct kv_run *run, struct gn_fabric *fabric, unsigned number,
			 struct gn_kv_server **out)
{
	const struct kv_load *o = run->opts;
	const unsigned threads = o->call.server_threads / o->servers;
	const uint64_t pairs = (uint64_t)KEYS / o->servers * (o->key + o->value + EACH_BYTES);
	const struct gn_kv_server_opts opts = {
		.size = sizeof(opts),
		.threads = threads,
		.memory = MEMORY_MORE * pairs + (uint64_t)threads * MEMORY_MIN,
		.bypass = o->call.bypass,
		.rpc =
			{
				.max_request = kv_lab_slot_bytes(o),
				.max_result = kv_lab_slot_bytes(o),
				.park_us = o->call.paper ? LOOKS_US : 0,
				.flags = o->call.paper ? GN_RPC_SERVER_PAPER : 0,
			},
	};
	char addr[KV_ADDRESS_MAX];

	kv_address(number, addr);
	return call_ok(&run->call, gn_kv_server_create(fabric, addr, &opts, out), "a server") &&
	       call_ok(&run->call, gn_kv_server_start(*out), "starting it") &&
	       load_server(run, fabric, number);
}

int kv_server_program(struct gn_env *env, int argc, char **argv)
{
	const struct kv_site *site = env->arg;
	struct kv_run *run = site->run;
	struct gn_kv_server **servers = gn_alloc(site->n * sizeof(servers[0]), 0);
	struct gn_fabric *fabric;
	unsigned started = 0;

	(void)argc;
	(void)argv;
	if (!call_ok(&run->call, servers ? 0 : -ENOMEM, "memory") ||
	    !call_ok(&run->call, gn_fabric_open(env->fabric, &fabric), "the fabric")) {
		gn_free(servers);
		return 1;
	}
	memset(servers, 0, site->n * sizeof(servers[0]));
	while (started < site->n &&
	       start_server(run, fabric, site->first + started, &servers[started]))
		started++;
	if (started == site->n)
		call_server_waits(&run->call);
	for (unsigned i = 0; i < site->n; i++)
		gn_kv_server_destroy(servers[i]);
	gn_free(servers);
	call_ok(&run->call, gn_fabric_close(fabric), "closing the fabric");
	return run->call.load.failed;
}

/* ---- a client ---- */

struct kv_caller {
	struct caller *c;
	struct kv_run *run;
	struct gn_kv_client **clients; /* of all servers, or of its own */
	unsigned first, n_clients;
	struct gn_kv_op *ops;
	uint8_t *bytes; /* of each operation: key, value, and room for a value */
	uint64_t gets_before, reads_before;
};

/* The papers count 4 bytes before a value, and there are 8 in the result of a GET. */
static uint32_t fetch_bytes(const struct kv_load *o)
{
	const uint32_t size = o->call.fetch_bytes;

	return size > PAPER_HEAD ? size - PAPER_HEAD + RESULT_HEAD : size;
}

static bool connect_to(struct kv_caller *k, unsigned server)
{
	const struct kv_load *o = k->run->opts;
	struct caller *c = k->c;
	const struct gn_kv_client_opts opts = {
		.size = sizeof(opts),
		.flags = o->call.paper ? GN_KV_PAPER : 0,
		.gather = o->call.paper && !o->call.chosen ? o->call.batch : 0,
		.rpc =
			{
				.mode = o->call.mode,
				.flags = o->call.paper ? GN_RPC_CLIENT_PAPER : 0,
				.slots = o->call.paper ? 1 : 0,
				.max_request = kv_lab_slot_bytes(o),
				.max_result = kv_lab_slot_bytes(o),
				.fetch_bytes = fetch_bytes(o),
				.retries = o->call.retries,
				.batch.entries = o->call.chosen ? o->call.batch : 0,
				.batch.limit_us =
					o->call.chosen ? (uint32_t)(o->call.limit_ns / 1000) : 0,
				.batch.alpha_pct = o->call.alpha_pct,
				.ctx = c->site->ctx,
			},
	};
	char addr[KV_ADDRESS_MAX];

	kv_address(server, addr);
	if (!call_ok(c->run,
		     gn_kv_client_open(c->site->fabric, addr, &opts, &k->clients[k->n_clients]),
		     "connecting"))
		return false;
	k->n_clients++;
	return true;
}

/* The calls of all partitions, one behind the other. */
static bool list_calls(struct kv_caller *k)
{
	const struct kv_load *o = k->run->opts;
	const unsigned partitions = o->call.server_threads / o->servers;
	struct caller *c = k->c;

	c->to = gn_alloc((size_t)k->n_clients * partitions * sizeof(c->to[0]), 0);
	if (!call_ok(c->run, c->to ? 0 : -ENOMEM, "memory"))
		return false;
	for (unsigned i = 0; i < k->n_clients; i++)
		for (unsigned p = 0; p < partitions; p++)
			c->to[c->n_to++] = gn_kv_client_rpc(k->clients[i], p);
	return true;
}

static bool connect_all(struct kv_caller *k)
{
	const struct kv_load *o = k->run->opts;
	const unsigned n = o->fixed ? 1 : o->servers;

	k->clients = gn_alloc(n * sizeof(k->clients[0]), 0);
	if (!call_ok(k->c->run, k->clients ? 0 : -ENOMEM, "memory"))
		return false;
	/* Neighbours have different servers, or begin with different ones. */
	k->first = k->c->number % o->servers;
	while (k->n_clients < n)
		if (!connect_to(k, (k->first + k->n_clients) % o->servers))
			return false;
	return list_calls(k);
}

static void make_op(struct kv_caller *k, unsigned server, unsigned i)
{
	const struct kv_run *run = k->run;
	const struct kv_load *o = run->opts;
	uint8_t *key = k->bytes + (size_t)i * (o->key + 2 * o->value);
	uint8_t *value = key + o->key;

	kv_pair(o, server, draws_next(&run->keys, run->stored[server]), key, value);
	k->ops[i] = (struct gn_kv_op){.key = key, .key_len = o->key};
	if (gn_random() % 100 < o->get_pct) {
		k->ops[i].room = value + o->value;
		k->ops[i].room_bytes = o->value;
	} else {
		k->ops[i].verb = GN_KV_SET;
		k->ops[i].value = value;
		k->ops[i].value_len = o->value;
	}
}

static bool check_op(struct kv_caller *k, const struct gn_kv_op *op)
{
	const uint32_t len = k->run->opts->value;
	const uint8_t *value = (const uint8_t *)op->key + op->key_len;

	if (op->status == GN_KV_OK &&
	    (op->verb == GN_KV_SET || (op->len == len && !memcmp(op->room, value, len))))
		return true;
	load_fail(&k->c->run->load, "%s on %s: %s, %u bytes, not those that were stored",
		  op->verb == GN_KV_SET ? "a SET" : "a GET", gn_node_name(),
		  gn_kv_status_str(op->status), op->len);
	return false;
}

static bool call_once(struct kv_caller *k)
{
	const struct kv_load *o = k->run->opts;
	struct gn_rpc_choice now = {.size = sizeof(now),
				    .batch = o->call.batch ? o->call.batch : 1};
	const unsigned pick = k->n_clients > 1 ? (unsigned)(gn_random() % k->n_clients) : 0;
	struct caller *c = k->c;

	if (o->call.chosen &&
	    !call_ok(c->run, gn_rpc_client_choice(c->to[pick], KV_METHOD, &now), "its choice"))
		return false;
	for (unsigned i = 0; i < now.batch; i++)
		make_op(k, (k->first + pick) % o->servers, i);
	gn_charge(GN_WORK_NS, (uint64_t)now.batch * DRAW_NS);
	c->began_ns = gn_now_ns();
	gn_charge(GN_WORK_NS, CALL_NS);
	if (!call_ok(c->run, gn_kv_do(k->clients[pick], k->ops, now.batch, GN_FOREVER),
		     "operations"))
		return false;
	for (unsigned i = 0; i < now.batch; i++)
		if (!check_op(k, &k->ops[i]))
			return false;
	caller_count(c, now.batch);
	return true;
}

/* What was read to bypass the servers. */
static void read_reads(const struct kv_caller *k, uint64_t *gets, uint64_t *reads)
{
	*gets = *reads = 0;
	for (unsigned i = 0; i < k->n_clients; i++) {
		struct gn_kv_counters now = {.size = sizeof(now)};

		if (gn_kv_client_counters(k->clients[i], &now))
			continue;
		*gets += now.bypass_gets;
		*reads += now.entry_reads + now.value_reads;
	}
}

static void call_always(struct kv_caller *k)
{
	struct caller *c = k->c;

	while (!load_stops(&c->run->load) && call_once(k)) {
		const bool counts = c->counts;

		caller_note(c);
		if (c->counts != counts)
			read_reads(k, &k->gets_before, &k->reads_before);
	}
}

static void add_reads(const struct kv_caller *k)
{
	uint64_t gets, reads;

	read_reads(k, &gets, &reads);
	if (!k->c->counts)
		return;
	k->run->bypass_gets += gets - k->gets_before;
	k->run->reads += reads - k->reads_before;
}

void kv_call(struct caller *c)
{
	struct kv_caller k = {.c = c, .run = (struct kv_run *)c->run};
	const struct kv_load *o = k.run->opts;
	const size_t n = o->call.batch ? o->call.batch : 1;

	k.ops = gn_alloc(n * sizeof(k.ops[0]), 0);
	k.bytes = gn_alloc(n * (o->key + 2 * (size_t)o->value), 0);
	if (!k.ops || !k.bytes)
		load_fail(&c->run->load, "no memory for operations");
	else if (connect_all(&k) && caller_starts(c))
		call_always(&k);
	caller_ends(c);
	add_reads(&k);
	for (unsigned i = 0; i < k.n_clients; i++)
		gn_kv_client_close(k.clients[i]);
	gn_free(k.clients);
	gn_free(c->to);
	gn_free(k.ops);
	gn_free(k.bytes);
}
