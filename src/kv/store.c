/* SPDX-License-Identifier: MIT */
/* A store: create, destroy, clear, and batches of operations. */
#include <errno.h>

#include "base/fail.h"
#include "base/sized.h"
#include "kv/bucket.h"
#include "kv/cuckoo.h"
#include "kv/scan.h"

#define MEMORY_DEFAULT (64ull << 20)
#define HUGE_PAGE      (2u << 20)
#define SECOND_NS      1000000000ull
/* Simulated cost of an operation: two cache misses. */
#define OPERATION_COST_NS 148u

/* A store must hold several values of the largest size. */
static uint32_t store_max_value(uint64_t memory, bool bypass)
{
	const uint64_t max = memory / (bypass ? GN_KV_VALUE_PART_BYPASS : GN_KV_VALUE_PART);

	return max < GN_KV_VALUE_MAX ? (uint32_t)max : GN_KV_VALUE_MAX;
}

static int store_alloc(struct gn_kv_store *s, uint64_t bytes, struct gn_fabric *fabric)
{
	int rc;

	if (!fabric) {
		/* Aligned here: gn_alloc() would touch memory that it aligns. */
		s->memory = gn_alloc(bytes + HUGE_PAGE, 0);
		if (!s->memory)
			return -ENOMEM;
		s->base = (uint8_t *)(((uintptr_t)s->memory + HUGE_PAGE - 1) &
				      ~(uintptr_t)(HUGE_PAGE - 1));
		return 0;
	}
	rc = gn_mem_alloc(fabric, bytes, GN_REMOTE_READ, &s->mem);
	if (!rc)
		s->base = gn_mem_addr(s->mem);
	return rc;
}

/*
 * Bypass: the table is a separate allocation; memory before the heap buffers an item that is moved.
 */
static int store_init_bypass(struct gn_kv_store *s, struct gn_fabric *fabric)
{
	const uint32_t largest = kv_item_bytes(kv_lengths(GN_KV_KEY_MAX, s->max_value) | KV_EXT);
	int rc;

	s->log.scratch = KV_LINE_SLOTS; /* no item is at location 0 */
	s->first_loc = s->log.scratch + largest / KV_UNIT;
	kv_log_clear(s, s->first_loc, (uint32_t)(s->stats.memory / KV_UNIT));
	rc = kv_cuckoo_make(s, fabric);
	return rc ? rc : store_alloc(s, (uint64_t)s->log.hi * KV_UNIT, fabric);
}

static int store_init(struct gn_kv_store *s, const struct kv_store_opts *opts)
{
	const struct gn_kv_store_opts *o = &opts->open;
	const uint64_t memory = o->memory ? o->memory : MEMORY_DEFAULT;
	int rc;

	s->stats.memory = memory;
	s->stats.partitions = 1;
	s->max_value = store_max_value(memory, opts->fabric);
	if (o->max_value > s->max_value)
		return gn_fail(-EINVAL, "kv: max_value %u: with this memory at most %u",
			       o->max_value, s->max_value);
	if (o->max_value)
		s->max_value = o->max_value;
	s->seed = o->seed ? o->seed : gn_random();
	s->version = gn_random() >> (64 - KV_VERSION_BITS + 1);
	s->start_ns = gn_now_ns();
	rc = kv_log_make(s);
	if (!rc)
		rc = opts->fabric ? store_init_bypass(s, opts->fabric) :
				    store_alloc(s, memory, NULL);
	if (!rc && !opts->fabric)
		kv_index_make(s);
	return rc;
}

int kv_store_make(const struct kv_store_opts *opts, struct gn_kv_store **out)
{
	struct gn_kv_store *s;
	int rc;

	if (opts->open.memory &&
	    (opts->open.memory < GN_KV_MEMORY_MIN || opts->open.memory > GN_KV_MEMORY_MAX))
		return gn_fail(-EINVAL, "kv: memory %llu: at least %llu, at most %llu",
			       (unsigned long long)opts->open.memory,
			       (unsigned long long)GN_KV_MEMORY_MIN,
			       (unsigned long long)GN_KV_MEMORY_MAX);
	s = gn_alloc(sizeof(*s), 0);
	if (!s)
		return -ENOMEM;
	*s = (struct gn_kv_store){0};
	rc = store_init(s, opts);
	if (rc) {
		gn_kv_store_destroy(s);
		return rc;
	}
	kv_tick(s);
	*out = s;
	return 0;
}

int gn_kv_store_create(const struct gn_kv_store_opts *opts, struct gn_kv_store **out)
{
	struct kv_store_opts all = {.fabric = NULL};
	int rc = SIZED_READ(&all.open, opts, "gn_kv_store_opts");

	return rc ? rc : kv_store_make(&all, out);
}

void gn_kv_store_destroy(struct gn_kv_store *s)
{
	if (!s)
		return;
	kv_cuckoo_free(s);
	if (s->mem)
		gn_mem_free(s->mem);
	else
		gn_free(s->memory);
	gn_free(s->log.regions);
	gn_free(s);
}

static void store_clear(struct gn_kv_store *s)
{
	s->clear_at_s = 0;
	kv_index_clear(s);
	if (s->cuckoo)
		kv_log_clear(s, s->first_loc, s->log.hi);
}

void kv_tick(struct gn_kv_store *s)
{
	s->now_s = (uint32_t)((gn_now_ns() - s->start_ns) / SECOND_NS) + 1;
	kv_log_update_recent_use(s);
	if (s->clear_at_s && s->now_s >= s->clear_at_s)
		store_clear(s);
}

void gn_kv_store_clear(struct gn_kv_store *s, uint32_t delay_s)
{
	kv_tick(s);
	s->stats.clears++;
	if (!delay_s)
		store_clear(s);
	else
		s->clear_at_s = s->now_s + delay_s < s->now_s ? 0 : s->now_s + delay_s;
}

void kv_item_remove(struct gn_kv_store *s, uint64_t hash, uint32_t loc)
{
	kv_unlink(s, hash, loc);
	kv_log_remove(s, loc);
}

static void store_do_one(struct gn_kv_store *s, struct gn_kv_op *op)
{
	const struct kv_item *item;

	if (unlikely(op->verb == GN_KV_SCAN)) {
		kv_scan(s, 1, op, op->room, op->room_bytes);
		return;
	}
	item = kv_execute(s, op);
	if (!item)
		return;
	if (unlikely(op->len > op->room_bytes))
		op->status = GN_KV_TOO_BIG;
	else if (op->len)
		kv_copy(op->room, kv_value(item), op->len);
}

void kv_charge(unsigned n)
{
	gn_charge(GN_WORK_NS, (uint64_t)n * OPERATION_COST_NS);
}

void gn_kv_store_do(struct gn_kv_store *s, struct gn_kv_op *ops, unsigned n)
{
	kv_tick(s);
	for (uint64_t i = 0; i < (uint64_t)n + 2 * KV_PREFETCH_DISTANCE; i++) {
		if (i < n) {
			ops[i].hash = kv_hash(ops[i].key, ops[i].key_len, s->seed);
			kv_prefetch_bucket(s, &ops[i]);
		}
		if (i >= KV_PREFETCH_DISTANCE && i - KV_PREFETCH_DISTANCE < n)
			kv_prefetch_item(s, &ops[i - KV_PREFETCH_DISTANCE]);
		if (i >= 2 * KV_PREFETCH_DISTANCE)
			store_do_one(s, &ops[i - 2 * KV_PREFETCH_DISTANCE]);
	}
	kv_charge(n);
}

static void store_collect_stats(struct gn_kv_store *s, struct gn_kv_stats *out)
{
	kv_tick(s);
	*out = s->stats;
	out->buckets = s->level + s->split;
	if (s->cuckoo)
		out->buckets = 1ull << kv_cuckoo_table(s->cuckoo)->bits;
	out->used = kv_log_reserved(s);
	if (s->log.high > s->log.lo)
		out->used += (uint64_t)((s->log.high < s->log.hi ? s->log.high : s->log.hi) -
					s->log.lo) *
			     KV_UNIT;
	out->uptime_s = s->now_s - 1;
}

int gn_kv_store_stats(struct gn_kv_store *s, struct gn_kv_stats *out)
{
	struct gn_kv_stats stats = {.size = sizeof(stats)};

	if (!s)
		return gn_fail(-EINVAL, "gn_kv_store_stats(): store is NULL");
	store_collect_stats(s, &stats);
	return SIZED_WRITE(out, &stats, "gn_kv_stats");
}

const char *gn_kv_status_str(unsigned status)
{
	static const char *const names[GN_KV_STATUSES] = {
		[GN_KV_OK] = "ok",
		[GN_KV_MISS] = "no such key",
		[GN_KV_EXISTS] = "another version",
		[GN_KV_NOT_STORED] = "not stored",
		[GN_KV_NOT_NUMBER] = "not a number",
		[GN_KV_TOO_BIG] = "too big",
		[GN_KV_NO_MEMORY] = "no memory",
		[GN_KV_INVALID] = "invalid operation",
		[GN_KV_TIMEOUT] = "no response by the deadline",
		[GN_KV_GONE] = "the connection broke",
		[GN_KV_BUSY] = "the server is busy",
		[GN_KV_FAILED] = "failed",
	};

	return status < GN_KV_STATUSES ? names[status] : "unknown status";
}
