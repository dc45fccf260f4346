/* SPDX-License-Identifier: MIT */
/* A server: a store for each thread, and the calls that reach it. */
#include <errno.h>

#include "base/fail.h"
#include "base/sized.h"
#include "kv/bucket.h"
#include "kv/cuckoo.h"
#include "kv/scan.h"
#include "kv/wire.h"

#define BLOCKS	    3u /* of operations, one for each step of their look-ups */
#define KEY_STRIDE  256u
#define LARGE_MAX   (8u << 20)	   /* of a message: it has the results of one, or a value */
#define RESULTS_MAX (4u << 20)	   /* bytes of a message with results; more is asked for again */
#define CONNS_BYTES (128ull << 20) /* of a thread, for its connections */

struct kv_part {
	struct gn_kv_store *store;
	uint32_t number;
	/* operations of a message, from the first step of their look-up to the last */
	struct gn_kv_op ops[BLOCKS][KV_AHEAD];
	uint8_t keys[BLOCKS][KV_AHEAD][KEY_STRIDE];
	uint8_t *results; /* RESULTS_MAX, where a slot is too small */
};

struct gn_kv_server {
	struct gn_rpc_server *rpc;
	unsigned n_parts;
	bool bypass;
	uint64_t seed, epoch;
	struct kv_part *parts;
};

/* ---- operations ---- */

/* Where results are put: in the slot, as long as they fit. */
struct reply {
	struct kv_part *part;
	uint8_t *begin, *at, *end;
	unsigned left; /* operations that may still be done: others wait, too */
	bool full;     /* what comes behind is not done, and asked for again */
};

/* There is room for so much more; false: there is not. */
static bool make_room(struct reply *r, uint64_t bytes)
{
	const size_t used = (size_t)(r->at - r->begin);

	if ((uint64_t)(r->end - r->at) >= bytes)
		return true;
	if (r->begin == r->part->results)
		return false;
	if (used)
		memcpy(r->part->results, r->begin, used);
	r->begin = r->part->results;
	r->at = r->begin + used;
	r->end = r->begin + RESULTS_MAX;
	return (uint64_t)(r->end - r->at) >= bytes;
}

/* Clients choose the partition by a hash whose seed they are told. The index has another. */
static bool is_ours(const struct gn_kv_server *server, const struct kv_part *part,
		    const struct gn_kv_op *op)
{
	if (server->n_parts == 1)
		return true;
	return part->number ==
	       kv_partition(server->bypass ? op->hash : kv_hash(op->key, op->key_len, server->seed),
			    server->n_parts);
}

/* A page of keys takes as long as many operations: those behind it are asked for again. */
static bool do_scan(const struct gn_kv_server *server, struct reply *r, struct gn_kv_op *op)
{
	const uint32_t room = op->room_bytes < KV_PAGE_MAX ? op->room_bytes : KV_PAGE_MAX;
	struct kv_tell tell = {.bits = KV_TELL_VALUE};

	if (!r->left || !make_room(r, sizeof(tell) + room))
		return false;
	r->left = 0;
	if (kv_scan_partition(op) == r->part->number)
		kv_scan(r->part->store, server->n_parts, op, r->at + sizeof(tell), room);
	else
		op->status = GN_KV_INVALID, op->len = 0;
	tell.status = (uint8_t)op->status;
	tell.len = op->len;
	memcpy(r->at, &tell, sizeof(tell));
	r->at += sizeof(tell) + op->len;
	return true;
}

/* Done only if there is room for what may come of it: else this is all, and false. */
static force_inline bool do_one(const struct gn_kv_server *server, struct reply *r,
				struct gn_kv_op *op)
{
	struct gn_kv_store *store = r->part->store;
	const uint32_t most = op->room_bytes < store->max_value ? op->room_bytes : store->max_value;
	const uint32_t value = op->verb == GN_KV_GET ? most : 0;
	const struct kv_item *item = NULL;

	op->found = op->len = 0;
	if (op->verb == GN_KV_SCAN)
		return do_scan(server, r, op);
	if (!r->left || !make_room(r, KV_TELL_MAX + kv_round(value)))
		return false;
	r->left--;
	if (!is_ours(server, r->part, op))
		op->status = KV_ELSEWHERE;
	else
		item = kv_execute(store, op);
	r->at = kv_tell_write(r->at, value, op, item);
	return true;
}

/* Reads an operation, and begins to look it up: how many bytes it takes, 0 if it is none. */
static force_inline uint32_t begin_one(struct kv_part *part, struct gn_kv_op *op, uint8_t *key,
				       const uint8_t *data, uint32_t bytes)
{
	const uint32_t used = kv_ask_read(data, bytes, op, key);

	if (likely(used)) {
		op->hash = kv_hash(key, op->key_len, part->store->seed);
		kv_prefetch_bucket(part->store, op);
	}
	return used;
}

/* All operations of a message, as far as there is room for results: 0, or -EINVAL. */
static int do_all(const struct gn_kv_server *server, struct reply *r, const uint8_t *data,
		  uint32_t bytes)
{
	struct kv_part *part = r->part;
	unsigned n_begun, n_looked = 0, n_old = 0, block = 0;
	struct gn_kv_op *looked = NULL, *old = NULL;
	uint32_t at = begin_one(part, part->ops[0], part->keys[0][0], data, bytes);

	if (unlikely(!at))
		return bytes ? -EINVAL : 0;
	if (at == bytes) { /* the only one: nothing can overlap */
		kv_prefetch_item(part->store, part->ops[0]);
		do_one(server, r, part->ops[0]);
		kv_charge(1);
		return 0;
	}
	at = 0;
	do {
		struct gn_kv_op *op = part->ops[block];

		n_begun = 0;
		for (unsigned i = 0; i < KV_AHEAD && (at < bytes || i < n_looked || i < n_old);
		     i++) {
			if (at < bytes) {
				const uint32_t used = begin_one(part, &op[i], part->keys[block][i],
								data + at, bytes - at);

				if (unlikely(!used))
					return -EINVAL;
				at += used;
				n_begun++;
			}
			if (i < n_looked)
				kv_prefetch_item(part->store, &looked[i]);
			if (i < n_old && !r->full)
				r->full = !do_one(server, r, &old[i]);
		}
		kv_charge(n_old);
		old = looked, n_old = n_looked;
		looked = op, n_looked = n_begun;
		block = (block + 1) % BLOCKS;
	} while ((n_looked || n_old) && !r->full);
	return 0;
}

static void handle_do(struct gn_rpc_request *request, void *arg)
{
	const struct gn_kv_server *server = arg;
	struct reply r = {.part = &server->parts[gn_rpc_request_thread(request)],
			  .left = GN_KV_GATHER_MAX};
	uint32_t bytes, room = 0;
	const uint8_t *data = gn_rpc_request_data(request, &bytes);
	uint8_t *slot = gn_rpc_request_room(request, &room);

	r.begin = r.at = slot ? slot : r.part->results;
	r.end = r.begin + (slot ? room : RESULTS_MAX);
	kv_tick(r.part->store);
	if (do_all(server, &r, data, bytes))
		gn_rpc_answer(request, GN_RPC_DENIED, NULL, 0);
	else
		gn_rpc_answer(request, GN_RPC_OK, r.begin, (uint32_t)(r.at - r.begin));
}

/* ---- what else is asked ---- */

/* What a client needs to find values by itself; without it, it calls. */
static void show_memory(struct gn_rpc_request *request, const struct gn_kv_store *store,
			struct kv_layout *layout)
{
	const struct kv_table *table = kv_cuckoo_table(store->cuckoo);

	struct gn_rpc_view items, entries;

	layout->age_ns = gn_now_ns() - store->start_ns;
	layout->table_bits = table->bits;
	if (gn_rpc_request_show(request, store->mem, &items) ||
	    gn_rpc_request_show(request, table->mem, &entries)) {
		layout->bypass = 0;
		return;
	}
	layout->items = kv_view_write(&items);
	layout->table = kv_view_write(&entries);
}

static void handle_layout(struct gn_rpc_request *request, void *arg)
{
	const struct gn_kv_server *server = arg;
	struct gn_kv_store *store = server->parts[gn_rpc_request_thread(request)].store;
	struct kv_layout layout = {
		.version = KV_VERSION,
		.partitions = server->n_parts,
		.max_value = store->max_value,
		.seed = server->seed,
		.epoch = server->epoch,
		.bypass = server->bypass,
	};
	struct kv_layout_ask ask;
	uint32_t bytes;
	const void *data = gn_rpc_request_data(request, &bytes);

	if (bytes != sizeof(ask)) {
		gn_rpc_answer(request, GN_RPC_DENIED, NULL, 0);
		return;
	}
	memcpy(&ask, data, sizeof(ask));
	kv_tick(store);
	layout.now_s = store->now_s;
	if (ask.show && server->bypass)
		show_memory(request, store, &layout);
	gn_rpc_answer(request, GN_RPC_OK, &layout, sizeof(layout));
}

static void handle_stats(struct gn_rpc_request *request, void *arg)
{
	const struct gn_kv_server *server = arg;
	uint64_t words[KV_STATS_WORDS];
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	gn_kv_store_stats(server->parts[gn_rpc_request_thread(request)].store, &stats);
	kv_stats_write(words, &stats);
	gn_rpc_answer(request, GN_RPC_OK, words, sizeof(words));
}

static void handle_clear(struct gn_rpc_request *request, void *arg)
{
	const struct gn_kv_server *server = arg;
	struct kv_clear clear;
	uint32_t bytes;
	const void *data = gn_rpc_request_data(request, &bytes);

	if (bytes != sizeof(clear)) {
		gn_rpc_answer(request, GN_RPC_DENIED, NULL, 0);
		return;
	}
	memcpy(&clear, data, sizeof(clear));
	gn_kv_store_clear(server->parts[gn_rpc_request_thread(request)].store, clear.delay_s);
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

/* ---- life ---- */

static int make_parts(struct gn_kv_server *server, struct gn_fabric *fabric,
		      const struct gn_kv_server_opts *o)
{
	const struct kv_store_opts opts = {
		.open = {.memory = o->memory / server->n_parts,
			 .max_value = o->max_value,
			 .seed = o->bypass ? server->seed : 0},
		.fabric = o->bypass ? fabric : NULL,
	};
	int rc = 0;

	server->parts = gn_alloc(server->n_parts * sizeof(server->parts[0]), 0);
	if (!server->parts)
		return -ENOMEM;
	for (unsigned i = 0; i < server->n_parts && !rc; i++) {
		struct kv_part *part = &server->parts[i];

		part->number = i;
		part->results = gn_alloc(RESULTS_MAX, 0);
		rc = part->results ? kv_store_make(&opts, &part->store) : -ENOMEM;
	}
	return rc;
}

static int make_calls(struct gn_kv_server *server, struct gn_fabric *fabric, const char *addr,
		      const struct gn_kv_server_opts *o)
{
	static const struct {
		unsigned method;
		gn_rpc_handler *fn;
	} handlers[] = {{KV_DO, handle_do},
			{KV_LAYOUT, handle_layout},
			{KV_STATS, handle_stats},
			{KV_CLEAR, handle_clear}};
	const uint64_t conns_bytes = CONNS_BYTES * server->n_parts;
	struct gn_rpc_server_opts rpc = o->rpc;
	int rc;

	rpc.size = sizeof(rpc);
	rpc.threads = server->n_parts;
	if (!rpc.max_large)
		rpc.max_large = LARGE_MAX;
	if (!rpc.max_bytes)
		rpc.max_bytes = o->memory / 4 > conns_bytes ? o->memory / 4 : conns_bytes;
	rc = gn_rpc_server_create(fabric, addr, &rpc, &server->rpc);
	for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]) && !rc; i++)
		rc = gn_rpc_server_handle(server->rpc, handlers[i].method, handlers[i].fn, server);
	return rc;
}

int gn_kv_server_create(struct gn_fabric *fabric, const char *addr,
			const struct gn_kv_server_opts *opts, struct gn_kv_server **out)
{
	struct gn_kv_server_opts o = {.size = sizeof(o)};
	struct gn_kv_server *server;
	int rc = SIZED_READ(&o, opts, "gn_kv_server_opts");
	unsigned n;

	if (rc)
		return rc;
	n = o.threads ? o.threads : 1;
	if (!fabric || !addr || !out || n > GN_KV_THREADS_MAX ||
	    (o.rpc.flags & GN_RPC_POLLED && n > 1) ||
	    (o.memory && (o.memory / n < GN_KV_MEMORY_MIN || o.memory / n > GN_KV_MEMORY_MAX)))
		return gn_fail(
			-EINVAL,
			"gn_kv_server_create(): fabric, addr or out is NULL; threads is more than "
			"%u, or more than "
			"1 and polled; or memory is not %u KiB to %llu GiB for each thread",
			GN_KV_THREADS_MAX, GN_KV_MEMORY_MIN >> 10, GN_KV_MEMORY_MAX >> 30);
	server = gn_alloc(sizeof(*server), 0);
	if (!server)
		return -ENOMEM;
	*server = (struct gn_kv_server){
		.n_parts = n, .bypass = o.bypass, .seed = gn_random() | 1, .epoch = gn_random()};
	rc = make_parts(server, fabric, &o);
	if (!rc)
		rc = make_calls(server, fabric, addr, &o);
	if (rc) {
		gn_kv_server_destroy(server);
		return rc;
	}
	*out = server;
	return 0;
}

int gn_kv_server_start(struct gn_kv_server *server)
{
	return server ? gn_rpc_server_start(server->rpc) : -EINVAL;
}

int gn_kv_server_drain(struct gn_kv_server *server, uint64_t deadline_ns)
{
	return server ? gn_rpc_server_drain(server->rpc, deadline_ns) : -EINVAL;
}

void gn_kv_server_destroy(struct gn_kv_server *server)
{
	if (!server)
		return;
	gn_rpc_server_destroy(server->rpc);
	for (unsigned i = 0; server->parts && i < server->n_parts; i++) {
		gn_kv_store_destroy(server->parts[i].store);
		gn_free(server->parts[i].results);
	}
	gn_free(server->parts);
	gn_free(server);
}

struct gn_rpc_server *gn_kv_server_rpc(struct gn_kv_server *server)
{
	return server ? server->rpc : NULL;
}
