/* SPDX-License-Identifier: MIT */
/* Operations of the load of the store: which keys, in which order, and whether all is well. */
#include <errno.h>

#include "keys.h"
#include "kv_load.h"

#define KV_PUT	   (1u << 31)
#define RING_MIN   (1u << 16)
#define RING_MAX   (1u << 22)
#define RING_LAPS  4u	      /* as many as keys, so often, if that is within the limits */
#define RING_SIM   (1u << 12) /* simulated: a client makes few operations */
#define POPULATION 128000000u /* keys of the papers (RF-RPC 5.1, RFP V.D.3) */
#define FILL_OPS   1024u      /* together, … */
#define FILL_BYTES (4u << 20) /* … well below what a server keeps of a connection */

/* ---- the ring ---- */

static void draw_ring(struct kv_draws *d, uint32_t keys, uint64_t seed)
{
	const struct bench_kv_opts *o = d->opts;
	const uint64_t put_below = (uint64_t)((100 - o->get_percent) / 100 * 0x1p32);
	struct choice choice;

	choice_init(&choice, keys, o->load.profile ? POPULATION : keys, o->zipf, seed);
	for (uint32_t i = 0; i < d->n; i++) {
		const uint32_t key = choice_draw(&choice);

		d->ring[i] = key | (choice_word(&choice) >> 32 < put_below ? KV_PUT : 0);
	}
}

int kv_draws_create(struct kv_draws *d, const struct bench_kv_opts *opts, uint32_t keys,
		    uint64_t seed, struct load_sums *sums)
{
	*d = (struct kv_draws){.opts = opts, .n = RING_MIN, .sums = sums};
	d->version = (uint32_t)choice_scramble(seed);
	while (d->n < RING_MAX && d->n / RING_LAPS < keys)
		d->n *= 2;
	if (opts->load.profile)
		d->n = RING_SIM;
	d->ring = gn_alloc(d->n * sizeof(*d->ring), 0);
	if (!d->ring)
		return -ENOMEM;
	draw_ring(d, keys, seed);
	return 0;
}

void kv_draws_destroy(struct kv_draws *d)
{
	gn_free(d->ring);
}

/* ---- operations ---- */

int kv_ops_make(struct kv_ops *e, const struct bench_kv_opts *opts, uint32_t n)
{
	*e = (struct kv_ops){.key_stride = ((size_t)opts->key_bytes + 7) / 8 * 8,
			     .value_stride = ((size_t)opts->value_bytes + 63) / 64 * 64};
	e->ops = gn_alloc(n * sizeof(*e->ops), 0);
	e->numbers = gn_alloc(n * sizeof(*e->numbers), 0);
	e->keys = gn_alloc(n * e->key_stride, 0);
	e->values = gn_alloc(n * e->value_stride + 1, 0);
	if (!e->ops || !e->numbers || !e->keys || !e->values) {
		kv_ops_free(e);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		e->ops[i] = (struct gn_kv_op){.key = e->keys + i * e->key_stride,
					      .key_len = opts->key_bytes,
					      .value = e->values + i * e->value_stride,
					      .value_len = opts->value_bytes,
					      .room = e->values + i * e->value_stride,
					      .room_bytes = opts->value_bytes};
	return 0;
}

void kv_ops_free(struct kv_ops *e)
{
	gn_free(e->ops);
	gn_free(e->numbers);
	gn_free(e->keys);
	gn_free(e->values);
	*e = (struct kv_ops){.ops = NULL};
}

static inline void make_get(const struct bench_kv_opts *o, struct kv_ops *e, uint32_t i,
			    uint32_t key)
{
	e->numbers[i] = key;
	keys_fill(e->keys + i * e->key_stride, o->key_bytes, key);
	e->ops[i].verb = GN_KV_GET;
}

static inline void make_put(const struct bench_kv_opts *o, struct kv_ops *e, uint32_t i,
			    uint32_t key, uint32_t version)
{
	make_get(o, e, i, key);
	e->ops[i].verb = GN_KV_SET;
	e->ops[i].ttl_s = 0; /* a GET has left there what it found */
	e->ops[i].flags = 0;
	keys_value_fill(e->values + i * e->value_stride, o->value_bytes, key, version);
}

void kv_op_next(struct kv_draws *d, struct kv_ops *e, uint32_t i, uint32_t base)
{
	const uint32_t entry = d->ring[d->at];

	d->at = d->at + 1 < d->n ? d->at + 1 : 0;
	if (entry & KV_PUT)
		make_put(d->opts, e, i, base + (entry & ~KV_PUT), ++d->version);
	else
		make_get(d->opts, e, i, base + entry);
}

void kv_op_undo(struct kv_draws *d)
{
	d->at = d->at ? d->at - 1 : d->n - 1;
}

static int kv_complain(const struct bench_kv_opts *o, const struct kv_ops *e, uint32_t i,
		       char why[KV_WHY_MAX])
{
	const struct gn_kv_op *op = &e->ops[i];

	if (op->status != GN_KV_OK)
		snprintf(why, KV_WHY_MAX, "%s of key %u failed: %s",
			 op->verb == GN_KV_SET ? "PUT" : "GET", e->numbers[i],
			 gn_kv_status_str(op->status));
	else
		snprintf(why, KV_WHY_MAX,
			 "GET of key %u found a wrong value, of %u bytes; it has %u", e->numbers[i],
			 op->len, o->value_bytes);
	return -EBADMSG;
}

int kv_op_check(struct kv_draws *d, const struct kv_ops *e, uint32_t i, char why[KV_WHY_MAX])
{
	const uint32_t len = d->opts->value_bytes;
	const struct gn_kv_op *op = &e->ops[i];

	if (op->verb == GN_KV_SET) {
		d->sums->puts++;
		return likely(op->status == GN_KV_OK) ? 0 : kv_complain(d->opts, e, i, why);
	}
	d->sums->gets++;
	if (unlikely(op->status != GN_KV_OK))
		return op->status == GN_KV_MISS ? 0 : kv_complain(d->opts, e, i, why);
	d->sums->hits++;
	if (likely(op->len == len &&
		   keys_value_is_right(e->values + i * e->value_stride, len, e->numbers[i])))
		return 0;
	return kv_complain(d->opts, e, i, why);
}

/* ---- all keys ---- */

int kv_fill(const struct bench_kv_opts *o, uint32_t first, uint32_t n,
	    int (*do_some)(void *arg, struct gn_kv_op *ops, unsigned n), void *arg,
	    char why[KV_WHY_MAX])
{
	const uint32_t most = least_u32(FILL_OPS, FILL_BYTES / (o->value_bytes + 1));
	struct kv_ops ops;
	int rc = kv_ops_make(&ops, o, most);

	snprintf(why, KV_WHY_MAX, "no memory to fill the store");
	for (uint32_t key = 0; !rc && key < n; key += most) {
		const uint32_t some = least_u32(most, n - key);

		for (uint32_t i = 0; i < some; i++)
			make_put(o, &ops, i, first + key + i, 0);
		rc = do_some(arg, ops.ops, some);
		if (rc)
			snprintf(why, KV_WHY_MAX, "filling the store: %s", gn_strerror(rc));
		for (uint32_t i = 0; !rc && i < some; i++)
			if (ops.ops[i].status != GN_KV_OK)
				rc = kv_complain(o, &ops, i, why);
	}
	kv_ops_free(&ops);
	return rc;
}
