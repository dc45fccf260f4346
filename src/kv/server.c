/* SPDX-License-Identifier: MIT */
/* A server: one store per thread, and the handlers of its calls. */
#include <errno.h>

#include "base/fail.h"
#include "base/mutant.h"
#include "base/sized.h"
#include "kv/bucket.h"
#include "kv/cuckoo.h"
#include "kv/scan.h"
#include "kv/wire.h"

#define TASK_RING	32u /* a power of two */
#define KEY_BYTES	((GN_KV_KEY_MAX + 7) / 8 * 8)
#define LARGE_MAX	(8u << 20)     /* bytes of a large request or result */
#define CONNS_BYTES	(128ull << 20) /* per thread, for connections */
#define WINDOW_MIN	512u	       /* outstanding calls per connection, at least */
#define WINDOW_PER_SLOT 32u	       /* and per slot */
_Static_assert(2 * KV_PREFETCH_DISTANCE < TASK_RING, "a task is done before it is used again");

/* An operation of a group, during the steps of its lookup. */
struct kv_task {
	struct gn_kv_op op;
	unsigned index; /* in the group */
	uint8_t key[KEY_BYTES];
};

struct kv_part {
	struct gn_kv_store *store;
	uint32_t number;
	struct kv_task tasks[TASK_RING];
	uint8_t page[sizeof(struct kv_response) + KV_PAGE_MAX]; /* used if a slot is too small */
};

struct gn_kv_server {
	struct gn_rpc_server *rpc;
	unsigned n_parts;
	bool bypass;
	uint64_t seed, epoch;
	struct kv_part *parts;
};

/* ---- operations ---- */

/* Clients know the seed of the hash that selects the partition. The index uses another seed. */
static bool op_in_partition(const struct gn_kv_server *server, const struct kv_part *part,
			    const struct gn_kv_op *op)
{
	if (server->n_parts == 1)
		return true;
	return part->number ==
	       kv_partition(server->bypass ? op->hash : kv_hash(op->key, op->key_len, server->seed),
			    server->n_parts);
}

/* Can the operation be repeated if its result is lost? */
static inline bool op_is_read_only(const struct gn_kv_op *op)
{
	return op->verb == GN_KV_GET &&
	       !(op->how & ~(unsigned)(GN_KV_NO_VALUE | GN_KV_DETAILS | GN_KV_QUIET));
}

/* Parses an operation and starts its lookup. False: it is invalid, and answered. */
static force_inline bool task_begin(struct kv_part *part, struct kv_task *t,
				    struct gn_rpc_group *group, unsigned i)
{
	uint32_t bytes;
	const uint8_t *data = gn_rpc_group_data(group, i, &bytes);

	if (unlikely(!kv_request_read(data, bytes, &t->op, t->key) || t->op.verb == GN_KV_SCAN)) {
		gn_rpc_group_answer(group, i, GN_RPC_DENIED, NULL, 0);
		return false;
	}
	t->index = i;
	t->op.hash = kv_hash(t->key, t->op.key_len, part->store->seed);
	kv_prefetch_bucket(part->store, &t->op);
	return true;
}

/* Maximum size of the response: with the current value, whatever buffer the client announces. */
static uint32_t response_max_bytes(struct gn_kv_store *store, const struct gn_kv_op *op)
{
	const uint32_t loc =
		op->verb != GN_KV_GET || op->how & GN_KV_NO_VALUE ? 0 : kv_find_op(store, op);
	const uint32_t len = loc ? kv_value_len(kv_item_at(store, loc)) : 0;

	return (uint32_t)KV_RESPONSE_MAX + (len <= op->room_bytes ? len : 0);
}

/* to: a buffer for any response, or NULL: allocate it now. */
static no_inline void task_answer(struct kv_task *t, struct gn_rpc_group *group,
				  const struct kv_item *item, void *to)
{
	struct kv_response_parts result;

	kv_response_make(&result, &t->op, item);
	if (!to)
		to = gn_rpc_group_room(group, t->index, result.bytes);
	if (!to)
		return;
	kv_response_write(to, &result, &t->op);
	gn_rpc_group_answer(group, t->index, GN_RPC_OK, to, result.bytes);
}

/*
 * Executes and answers. If the library has no memory for a result, the call ends with BUSY; so the
 * result buffer is reserved before anything changes.
 */
static no_inline void task_end_slow(const struct gn_kv_server *server, struct kv_part *part,
				    struct kv_task *t, struct gn_rpc_group *group)
{
	struct gn_kv_op *op = &t->op;
	const struct kv_item *item = NULL;
	void *to = NULL;

	if (!op_is_read_only(op)) {
		to = gn_rpc_group_room(group, t->index, response_max_bytes(part->store, op));
		if (!to)
			return;
	}
	if (op_in_partition(server, part, op)) {
		item = kv_execute(part->store, op);
	} else {
		op->status = KV_WRONG_PARTITION;
		op->found = op->len = 0;
	}
	task_answer(t, group, item, to);
}

static force_inline void task_end(const struct gn_kv_server *server, struct kv_part *part,
				  struct kv_task *t, struct gn_rpc_group *group)
{
	struct gn_kv_op *op = &t->op;
	const struct kv_item *item;
	uint32_t len;
	void *to;

	if (unlikely(!kv_is_plain_get(op) || !op_in_partition(server, part, op))) {
		task_end_slow(server, part, t, group);
		return;
	}
	item = kv_get_fast(part->store, op);
	if (unlikely(!item)) {
		task_answer(t, group, kv_execute(part->store, op), NULL);
		return;
	}
	len = kv_value_len(item);
	if (likely(len <= op->room_bytes &&
		   (to = gn_rpc_group_put(group, t->index, GN_RPC_OK,
					  (uint32_t)sizeof(struct kv_response) + len)))) {
		kv_response_write_plain(to, op, item, len);
		return;
	}
	op->status = GN_KV_OK;
	op->len = len;
	op->flags = 0;
	task_answer(t, group, item, NULL);
}

/* Lookups of several operations overlap: see KV_PREFETCH_DISTANCE. */
static void handle_do(struct gn_rpc_group *group, void *arg)
{
	const struct gn_kv_server *server = arg;
	struct kv_part *part = &server->parts[gn_rpc_group_thread(group)];
	const unsigned n = gn_rpc_group_size(group);
	unsigned begun = 0, prefetched = 0, done = 0;

	kv_tick(part->store);
	for (unsigned i = 0; i < n; i++) {
		if (unlikely(!task_begin(part, &part->tasks[begun % TASK_RING], group, i)))
			continue;
		begun++;
		if (begun - prefetched <= KV_PREFETCH_DISTANCE)
			continue;
		kv_prefetch_item(part->store, &part->tasks[prefetched++ % TASK_RING].op);
		if (prefetched - done > KV_PREFETCH_DISTANCE)
			task_end(server, part, &part->tasks[done++ % TASK_RING], group);
	}
	for (; done < begun; done++) {
		const unsigned until =
			done + KV_PREFETCH_DISTANCE < begun ? done + KV_PREFETCH_DISTANCE : begun;

		while (prefetched < until)
			kv_prefetch_item(part->store, &part->tasks[prefetched++ % TASK_RING].op);
		task_end(server, part, &part->tasks[done % TASK_RING], group);
	}
	kv_charge(n);
}

/* A page of keys takes as long as many operations, so it has its own method. */
static void handle_scan(struct gn_rpc_request *request, void *arg)
{
	const struct gn_kv_server *server = arg;
	struct kv_part *part = &server->parts[gn_rpc_request_thread(request)];
	struct kv_response head = {.bits = KV_RESPONSE_VALUE};
	struct gn_kv_op op = {.len = 0};
	uint8_t key[GN_KV_KEY_MAX], *to;
	uint32_t bytes, room;
	const uint8_t *data = gn_rpc_request_data(request, &bytes);

	if (!kv_request_read(data, bytes, &op, key) || op.verb != GN_KV_SCAN) {
		gn_rpc_answer(request, GN_RPC_DENIED, NULL, 0);
		return;
	}
	to = gn_rpc_request_room(request, &room);
	if (!to || room < sizeof(part->page))
		to = part->page;
	kv_tick(part->store);
	if (kv_scan_partition(&op) == part->number)
		kv_scan(part->store, server->n_parts, &op, to + sizeof(head),
			op.room_bytes < KV_PAGE_MAX ? op.room_bytes : KV_PAGE_MAX);
	else
		op.status = GN_KV_INVALID;
	head.status = (uint8_t)op.status;
	head.len = op.len;
	memcpy(to, &head, sizeof(head));
	gn_rpc_answer(request, GN_RPC_OK, to, (uint32_t)sizeof(head) + op.len);
}

/* ---- control calls ---- */

/* The views that a client needs for bypass; without them it calls. */
static void layout_expose_memory(struct gn_rpc_request *request, const struct gn_kv_store *store,
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

/* Copies a request of so many bytes. False: it has another size, and was answered. */
static bool request_read(struct gn_rpc_request *request, void *to, uint32_t size)
{
	uint32_t bytes;
	const void *data = gn_rpc_request_data(request, &bytes);

	if (bytes != size) {
		gn_rpc_answer(request, GN_RPC_DENIED, NULL, 0);
		return false;
	}
	memcpy(to, data, size);
	return true;
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
	struct kv_layout_request layout_request;

	if (!request_read(request, &layout_request, sizeof(layout_request)))
		return;
	kv_tick(store);
	layout.now_s = store->now_s;
	if (layout_request.expose && server->bypass)
		layout_expose_memory(request, store, &layout);
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

	if (!request_read(request, &clear, sizeof(clear)))
		return;
	gn_kv_store_clear(server->parts[gn_rpc_request_thread(request)].store, clear.delay_s);
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

/* ---- create and destroy ---- */

static int server_make_stores(struct gn_kv_server *server, struct gn_fabric *fabric,
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
		rc = kv_store_make(&opts, &part->store);
	}
	return rc;
}

static int server_make_rpc(struct gn_kv_server *server, struct gn_fabric *fabric, const char *addr,
			   const struct gn_kv_server_opts *o)
{
	static const struct {
		unsigned method;
		gn_rpc_handler *fn;
	} handlers[] = {{KV_SCAN, handle_scan},
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
	if (!rpc.max_window && rpc.max_slots <= WINDOW_MIN / WINDOW_PER_SLOT)
		rpc.max_window = WINDOW_MIN;
	else if (!rpc.max_window)
		rpc.max_window = rpc.max_slots * WINDOW_PER_SLOT;
	rc = gn_rpc_server_create(fabric, addr, &rpc, &server->rpc);
	if (!rc)
		rc = gn_rpc_server_handle_group(
			server->rpc, KV_DO, handle_do, server,
			mutant("kv-overtake", MUTANT_ALWAYS) ? 0 : GN_RPC_ORDERED);
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
	rc = server_make_stores(server, fabric, &o);
	if (!rc)
		rc = server_make_rpc(server, fabric, addr, &o);
	if (rc) {
		gn_kv_server_destroy(server);
		return rc;
	}
	*out = server;
	return 0;
}

int gn_kv_server_start(struct gn_kv_server *server)
{
	return gn_rpc_server_start(gn_kv_server_rpc(server));
}

int gn_kv_server_drain(struct gn_kv_server *server, uint64_t deadline_ns)
{
	return gn_rpc_server_drain(gn_kv_server_rpc(server), deadline_ns);
}

void gn_kv_server_destroy(struct gn_kv_server *server)
{
	if (!server)
		return;
	gn_rpc_server_destroy(server->rpc);
	for (unsigned i = 0; server->parts && i < server->n_parts; i++)
		gn_kv_store_destroy(server->parts[i].store);
	gn_free(server->parts);
	gn_free(server);
}

struct gn_rpc_server *gn_kv_server_rpc(struct gn_kv_server *server)
{
	return server ? server->rpc : NULL;
}
