/* SPDX-License-Identifier: MIT */
/*
 * Keys, values, and which of them are asked for. A key's bytes are made of its number; a value's of
 * its key's number and a version, which it begins with, so that whoever finds it can tell whether
 * every byte is right, without knowing who stored it.
 */
#include <errno.h>
#include <stdlib.h>

#include "choice.h"
#include "kv_hall.h"

#define LOAD_PUT  (1u << 31)
#define RING_MIN  (1u << 16)
#define RING_MAX  (1u << 22)
#define RING_LAPS 4u	/* as many as keys, so often, if that is within the limits */
#define FILL_OPS  1024u /* together */

/* ---- the ring ---- */

static void draw_ring(struct kv_load *load, uint64_t seed)
{
	const struct bench_kv_opts *o = load->opts;
	const uint64_t put_below = (uint64_t)((100 - o->get_percent) / 100 * 0x1p32);
	struct choice choice;

	choice_init(&choice, o->keys, o->zipf, seed);
	for (uint32_t i = 0; i < load->n; i++) {
		const uint32_t key = choice_draw(&choice);

		load->ring[i] = key | (choice_word(&choice) >> 32 < put_below ? LOAD_PUT : 0);
	}
}

int kv_load_create(struct kv_load *load, const struct bench_kv_opts *opts, uint64_t seed,
		   struct kv_tally *tally)
{
	*load = (struct kv_load){.opts = opts, .n = RING_MIN, .tally = tally};
	load->version = (uint32_t)choice_scramble(seed);
	while (load->n < RING_MAX && load->n / RING_LAPS < opts->keys)
		load->n *= 2;
	load->ring = malloc(load->n * sizeof(*load->ring));
	if (!load->ring)
		return -ENOMEM;
	draw_ring(load, seed);
	return 0;
}

void kv_load_destroy(struct kv_load *load)
{
	free(load->ring);
}

/* ---- bytes ---- */

static inline void put_word(uint8_t *to, uint32_t at, uint32_t len, uint64_t word)
{
	memcpy(to + at, &word, len - at < sizeof(word) ? len - at : sizeof(word));
}

/* Different for each key in the first four bytes already. */
static inline void key_fill(uint8_t *to, uint32_t len, uint32_t key)
{
	uint64_t word = (uint64_t)(key * 0x9e3779b1u) | choice_scramble(key) << 32;

	for (uint32_t at = 0; at < len; at += sizeof(word)) {
		put_word(to, at, len, word);
		word = word * 0xd6e8feb86659fd93u + key;
	}
}

static inline uint64_t value_seed(uint32_t key, uint32_t version)
{
	const uint64_t mixed = ((uint64_t)key << 32 | version) * 0x9e3779b97f4a7c15u;

	return mixed ^ mixed >> 29;
}

/* The first word has the version, if there is room for it. */
static inline uint64_t value_first(uint32_t len, uint32_t key, uint32_t version)
{
	if (len < sizeof(uint64_t))
		return value_seed(key, 0);
	return value_seed(key, version) << 32 | version;
}

static inline void value_fill(uint8_t *to, uint32_t len, uint32_t key, uint32_t version)
{
	uint64_t word = value_seed(key, version);

	if (len)
		put_word(to, 0, len, value_first(len, key, version));
	for (uint32_t at = sizeof(word); at < len; at += sizeof(word)) {
		word += 0x9e3779b97f4a7c15u;
		put_word(to, at, len, word);
	}
}

static inline bool value_is_right(const uint8_t *value, uint32_t len, uint32_t key)
{
	uint64_t word, wrong, found = 0;
	uint32_t at = sizeof(word), version = 0;

	if (!len)
		return true;
	if (len >= sizeof(found))
		memcpy(&version, value, sizeof(version));
	word = value_first(len, key, version);
	if (len < sizeof(word))
		return !memcmp(value, &word, len);
	memcpy(&found, value, sizeof(found));
	wrong = found ^ word;
	word = value_seed(key, version);
	for (; at + sizeof(word) <= len; at += sizeof(word)) {
		word += 0x9e3779b97f4a7c15u;
		memcpy(&found, value + at, sizeof(found));
		wrong |= found ^ word;
	}
	word += 0x9e3779b97f4a7c15u;
	return !wrong && !memcmp(value + at, &word, len - at);
}

/* ---- operations ---- */

int kv_errands_make(struct kv_errands *e, const struct bench_kv_opts *opts, uint32_t n)
{
	*e = (struct kv_errands){.key_stride = ((size_t)opts->key_bytes + 7) / 8 * 8,
				 .value_stride = ((size_t)opts->value_bytes + 63) / 64 * 64};
	e->ops = calloc(n, sizeof(*e->ops));
	e->numbers = calloc(n, sizeof(*e->numbers));
	e->keys = malloc(n * e->key_stride);
	e->values = malloc(n * e->value_stride + 1);
	if (!e->ops || !e->numbers || !e->keys || !e->values) {
		kv_errands_free(e);
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

void kv_errands_free(struct kv_errands *e)
{
	free(e->ops);
	free(e->numbers);
	free(e->keys);
	free(e->values);
	*e = (struct kv_errands){.ops = NULL};
}

static inline void address(const struct kv_load *load, struct kv_errands *e, uint32_t i,
			   uint32_t key)
{
	e->numbers[i] = key;
	key_fill(e->keys + i * e->key_stride, load->opts->key_bytes, key);
}

static inline void make_get(struct kv_load *load, struct kv_errands *e, uint32_t i, uint32_t key)
{
	address(load, e, i, key);
	e->ops[i].verb = GN_KV_GET;
}

static inline void make_put(struct kv_load *load, struct kv_errands *e, uint32_t i, uint32_t key)
{
	address(load, e, i, key);
	e->ops[i].verb = GN_KV_SET;
	e->ops[i].ttl_s = 0; /* a GET has left there what it found */
	e->ops[i].flags = 0;
	value_fill(e->values + i * e->value_stride, load->opts->value_bytes, key, ++load->version);
}

void kv_errand_next(struct kv_load *load, struct kv_errands *e, uint32_t i)
{
	const uint32_t entry = load->ring[load->at];

	load->at = load->at + 1 < load->n ? load->at + 1 : 0;
	if (entry & LOAD_PUT)
		make_put(load, e, i, entry & ~LOAD_PUT);
	else
		make_get(load, e, i, entry);
}

void kv_errand_undo(struct kv_load *load)
{
	load->at = load->at ? load->at - 1 : load->n - 1;
}

static int complain(const struct kv_load *load, const struct kv_errands *e, uint32_t i)
{
	const struct gn_kv_op *op = &e->ops[i];

	if (op->status != GN_KV_OK)
		gn_log(GN_LOG_ERROR, "%s of key %u failed: %s",
		       op->verb == GN_KV_SET ? "PUT" : "GET", e->numbers[i],
		       gn_kv_status_str(op->status));
	else
		gn_log(GN_LOG_ERROR, "GET of key %u found a wrong value, of %u bytes; it has %u",
		       e->numbers[i], op->len, load->opts->value_bytes);
	return -EBADMSG;
}

int kv_errand_check(struct kv_load *load, const struct kv_errands *e, uint32_t i)
{
	const uint32_t len = load->opts->value_bytes;
	const struct gn_kv_op *op = &e->ops[i];

	if (op->verb == GN_KV_SET) {
		load->tally->puts++;
		return likely(op->status == GN_KV_OK) ? 0 : complain(load, e, i);
	}
	load->tally->gets++;
	if (unlikely(op->status != GN_KV_OK))
		return op->status == GN_KV_MISS ? 0 : complain(load, e, i);
	load->tally->hits++;
	if (likely(op->len == len &&
		   value_is_right(e->values + i * e->value_stride, len, e->numbers[i])))
		return 0;
	return complain(load, e, i);
}

/* ---- all keys ---- */

static int fill_some(struct kv_load *load, struct kv_errands *e, uint32_t first, uint32_t n,
		     int (*do_some)(void *arg, struct gn_kv_op *ops, unsigned n), void *arg)
{
	int rc = bench_stopped() ? -EINTR : 0;

	for (uint32_t i = 0; i < n; i++)
		make_put(load, e, i, first + i);
	if (!rc)
		rc = do_some(arg, e->ops, n);
	for (uint32_t i = 0; !rc && i < n; i++)
		if (e->ops[i].status != GN_KV_OK)
			rc = complain(load, e, i);
	return rc;
}

int kv_fill(struct kv_load *load, int (*do_some)(void *arg, struct gn_kv_op *ops, unsigned n),
	    void *arg)
{
	const struct bench_kv_opts *o = load->opts;
	const uint32_t most = least_u32(FILL_OPS, BENCH_KV_IN_FLIGHT_MAX / (o->value_bytes + 1));
	struct kv_errands errands;
	int rc = kv_errands_make(&errands, o, most);

	for (uint32_t key = 0; !rc && key < o->keys; key += most)
		rc = fill_some(load, &errands, key, least_u32(most, o->keys - key), do_some, arg);
	kv_errands_free(&errands);
	return rc;
}
