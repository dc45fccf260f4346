/* SPDX-License-Identifier: MIT */
/* The record of a history: operations, values, and the value of each version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history_inner.h"

#define STEPS_MAX 500000u

/* The test itself cannot do without memory. */
static void *grown(void *ptr, size_t bytes)
{
	void *p = realloc(ptr, bytes);

	if (!p)
		abort();
	return p;
}

struct history *history_create(const struct history_opts *opts)
{
	struct history *h = grown(NULL, sizeof(*h));

	memset(h, 0, sizeof(*h));
	h->opts = *opts;
	if (!h->opts.most)
		h->opts.most = STEPS_MAX;
	history_value(h, NULL, 0);
	return h;
}

void history_destroy(struct history *h)
{
	if (!h)
		return;
	for (uint32_t i = 0; i < h->n_values; i++)
		free(h->value[i].pieces);
	free(h->value);
	free(h->by_hash);
	free(h->op);
	free(h->named);
	free(h);
}

/* ---- values ---- */

static uint64_t hash_pieces(const struct piece *pieces, unsigned n)
{
	uint64_t hash = n;

	for (unsigned i = 0; i < n; i++)
		hash = history_mix(hash * 31 + pieces[i].what * 2 + pieces[i].number) +
		       pieces[i].len;
	return hash;
}

static bool same_pieces(const struct history_value *v, const struct piece *pieces, unsigned n)
{
	if (v->n != n)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (v->pieces[i].what != pieces[i].what || v->pieces[i].len != pieces[i].len ||
		    v->pieces[i].number != pieces[i].number)
			return false;
	return true;
}

static void rehash(struct history *h)
{
	h->hash_room = h->hash_room ? 2 * h->hash_room : 1024;
	h->by_hash = grown(h->by_hash, h->hash_room * sizeof(*h->by_hash));
	memset(h->by_hash, 0, h->hash_room * sizeof(*h->by_hash));
	for (uint32_t i = 0; i < h->n_values; i++) {
		uint64_t at = h->value[i].hash & (h->hash_room - 1);

		while (h->by_hash[at])
			at = (at + 1) & (h->hash_room - 1);
		h->by_hash[at] = i + 1;
	}
}

static uint32_t new_value(struct history *h, const struct piece *pieces, unsigned n, uint64_t hash)
{
	struct history_value *v;

	if (h->n_values == h->values_room) {
		h->values_room = h->values_room ? 2 * h->values_room : 256;
		h->value = grown(h->value, h->values_room * sizeof(*h->value));
	}
	v = &h->value[h->n_values];
	*v = (struct history_value){.n = n, .hash = hash, .pieces = NULL};
	if (n)
		v->pieces = grown(NULL, n * sizeof(*pieces));
	for (unsigned i = 0; i < n; i++) {
		v->pieces[i] = pieces[i];
		v->len += pieces[i].len;
	}
	return h->n_values++;
}

uint32_t history_value(struct history *h, const struct piece *pieces, unsigned n)
{
	const uint64_t hash = hash_pieces(pieces, n);
	uint64_t at;

	if (2 * h->n_values >= h->hash_room)
		rehash(h);
	for (at = hash & (h->hash_room - 1); h->by_hash[at]; at = (at + 1) & (h->hash_room - 1))
		if (same_pieces(&h->value[h->by_hash[at] - 1], pieces, n))
			return h->by_hash[at] - 1;
	h->by_hash[at] = new_value(h, pieces, n, hash) + 1;
	return h->by_hash[at] - 1;
}

/* ---- operations ---- */

struct history_op *history_add(struct history *h, uint32_t *number)
{
	struct history_op *op;

	if (h->n_ops == h->ops_room) {
		h->ops_room = h->ops_room ? 2 * h->ops_room : 1024;
		h->op = grown(h->op, h->ops_room * sizeof(*h->op));
	}
	op = &h->op[h->n_ops];
	*op = (struct history_op){.end_ns = HISTORY_NEVER,
				  .last_epoch = UINT32_MAX,
				  .seen = HISTORY_UNSEEN,
				  .seen_len = HISTORY_UNSEEN};
	if (number)
		*number = h->n_ops;
	h->n_ops++;
	return op;
}

struct history_op *history_at(struct history *h, uint32_t number)
{
	return &h->op[number];
}

uint32_t history_ops(const struct history *h)
{
	return h->n_ops;
}

bool history_known(const struct history_op *op)
{
	return op->end_ns != HISTORY_NEVER && op->status != GN_KV_TIMEOUT &&
	       op->status != GN_KV_GONE && op->status != GN_KV_FAILED;
}

/* ---- versions ---- */

bool history_named(const struct history *h, uint64_t cas, uint32_t *value)
{
	for (uint32_t i = 0; i < h->n_named; i++)
		if (h->named[i].cas == cas) {
			*value = h->named[i].value;
			return true;
		}
	return false;
}

bool history_name(struct history *h, uint64_t cas, uint32_t value)
{
	uint32_t had;

	if (history_named(h, cas, &had))
		return had == value;
	if (h->n_named == h->named_room) {
		h->named_room = h->named_room ? 2 * h->named_room : 64;
		h->named = grown(h->named, h->named_room * sizeof(*h->named));
	}
	h->named[h->n_named++] = (struct named){cas, value};
	return true;
}

/* ---- all keys, one after the other ---- */

static bool is_of_all(const struct history_op *op)
{
	return op->verb >= GN_KV_VERBS;
}

static const struct history *sorting; /* qsort() has no argument of the caller's */

static int by_key(const void *a, const void *b)
{
	const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const uint32_t k = sorting->op[i].key, l = sorting->op[j].key;

	if (k != l)
		return k < l ? -1 : 1;
	return i < j ? -1 : i > j;
}

/* The operations of one key, and those on all keys. */
static uint32_t gather(const struct history *h, const uint32_t *sorted, uint32_t n, uint32_t *to)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++)
		to[count++] = sorted[i];
	for (uint32_t i = 0; i < h->n_ops; i++)
		if (is_of_all(&h->op[i]))
			to[count++] = i;
	return count;
}

void history_check(struct history *h, struct history_result *out)
{
	uint32_t *sorted = grown(NULL, (h->n_ops + 1) * sizeof(*sorted));
	uint32_t *ops = grown(NULL, (h->n_ops + 1) * sizeof(*ops));
	uint32_t n = 0;

	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < h->n_ops; i++)
		if (!is_of_all(&h->op[i]))
			sorted[n++] = i;
	sorting = h;
	qsort(sorted, n, sizeof(*sorted), by_key);
	for (uint32_t from = 0, to; from < n && out->verdict != HISTORY_WRONG; from = to) {
		const uint32_t key = h->op[sorted[from]].key;

		for (to = from; to < n && h->op[sorted[to]].key == key;)
			to++;
		out->keys++;
		history_search(h, ops, gather(h, sorted + from, to - from, ops), key, out);
	}
	free(sorted);
	free(ops);
}

/* ---- for people ---- */

static const char *verb_name(unsigned verb)
{
	static const char *const names[] = {"get",    "set",	 "add",	   "replace",
					    "append", "prepend", "delete", "incr",
					    "decr",   "touch",	 "forget", "restart"};

	return names[verb];
}

static void print_value(const struct history *h, const char *what, uint32_t value)
{
	if (value == HISTORY_UNSEEN)
		return;
	printf(" %s [", what);
	for (uint32_t i = 0; i < h->value[value].n; i++)
		printf("%s%s%llu", i ? " " : "", h->value[value].pieces[i].number ? "=" : "",
		       (unsigned long long)h->value[value].pieces[i].what);
	printf("]");
}

static void print_op(const struct history *h, uint32_t i)
{
	const struct history_op *op = &h->op[i];

	printf("#   %5u client %u %10llu ", i, op->client, (unsigned long long)op->begin_ns);
	if (op->end_ns == HISTORY_NEVER)
		printf("     never ");
	else
		printf("%10llu ", (unsigned long long)op->end_ns);
	printf("%s how %x", verb_name(op->verb), op->how);
	if (op->verb >= GN_KV_SET && op->verb <= GN_KV_PREPEND)
		print_value(h, "to", op->value);
	if (op->how & GN_KV_IF_CAS)
		printf(" if %llx", (unsigned long long)op->cas);
	if (op->how & GN_KV_SET_CAS)
		printf(" as %llx", (unsigned long long)op->new_cas);
	if (op->verb == GN_KV_INCR || op->verb == GN_KV_DECR)
		printf(" by %llu or %llu: %llu", (unsigned long long)op->number,
		       (unsigned long long)op->initial, (unsigned long long)op->seen_number);
	if (op->ttl_s)
		printf(" for %u s", op->ttl_s);
	if (op->batch)
		printf(" in batch %u", op->batch);
	if (op->end_ns == HISTORY_NEVER) {
		printf("\n");
		return;
	}
	printf(": %s", gn_kv_status_str(op->status));
	print_value(h, "saw", op->seen);
	if (op->seen_len != HISTORY_UNSEEN)
		printf(" %u bytes", op->seen_len);
	printf(" version %llx\n", (unsigned long long)op->seen_cas);
}

void history_print(const struct history *h, uint32_t key)
{
	for (uint32_t i = 0; i < h->n_ops; i++)
		if (h->op[i].key == key || is_of_all(&h->op[i]))
			print_op(h, i);
}
